//! A random extra delay.

use std::time::Duration;

use crate::base::clock::saturating_nanos;

/// A random delay added to a wait, uniform between two durations, so that requests that wait for the same moment do
/// not all go at that moment.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{Gcra, waiting::Jitter, Quota, RateLimiter};
///
/// let limiter = RateLimiter::direct(Gcra::new(Quota::per_second(1_000).burst(1)));
/// for _ in 0..5 {
///     limiter.wait().jitter(Jitter::up_to(Duration::from_millis(1))).block()?;
/// }
/// # Ok::<(), tollgate::waiting::NotReady>(())
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Jitter {
    least_ns: u64,
    span_ns: u64,
}

impl Jitter {
    /// Creates a delay between zero and `most`.
    #[must_use]
    pub const fn up_to(most: Duration) -> Self {
        Self::between(Duration::ZERO, most)
    }

    /// Creates a delay between `a` and `b`, both included. The order of `a` and `b` does not matter.
    #[must_use]
    pub const fn between(a: Duration, b: Duration) -> Self {
        let (a, b) = (saturating_nanos(a), saturating_nanos(b));
        let least_ns = if a < b { a } else { b };
        Self { least_ns, span_ns: a.abs_diff(b) }
    }

    /// Returns the delay for 64 random bits.
    #[doc(hidden)]
    pub fn nanos(&self, random: u64) -> u64 {
        let spread = (u128::from(random) * (u128::from(self.span_ns) + 1)) >> 64;
        // The product is at most the span, and the sum at most the larger of the two durations.
        self.least_ns + u64::try_from(spread).unwrap_or(self.span_ns)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn jitter_includes_both_ends() {
        let [a, b] = [3, 7].map(Duration::from_nanos);
        for jitter in [Jitter::between(a, b), Jitter::between(b, a)] {
            assert_eq!((jitter.nanos(0), jitter.nanos(u64::MAX)), (3, 7));
        }
        assert_eq!(Jitter::up_to(Duration::ZERO).nanos(u64::MAX), 0);
        assert_eq!(Jitter::up_to(Duration::MAX).nanos(u64::MAX), u64::MAX);
        assert_eq!(Jitter::between(Duration::MAX, Duration::MAX).nanos(u64::MAX), u64::MAX);
        assert_eq!(Jitter::up_to(b).nanos(1 << 63), 4);
    }
}
