//! What a limit of bytes can be.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{Adjustable, Algorithm, Clock, Decision, Direct, RateLimiter};

/// A limit of what has passed already: it charges, and says how long to wait.
///
/// Limiters without keys are limits, also adjustable ones. A tuple of two or three limits charges each of them and waits for
/// the slowest one. A function is a limit, too: with a keyed limiter, it names the key. It charges, and returns what a check of
/// one unit would return now. If the store has no place for the key, the charge itself is denied, and the function returns
/// that denial, so that nothing passes without a charge.
///
/// Buckets keep debts, so their rate is exact. A window forgets its debts when it ends: after a call that exceeds it, the rest
/// of the window is closed, and the next one is open. So with a window, one call may transport any number of bytes in each
/// window.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tollgate::{Gcra, Quota, RateLimiter};
/// use tollgate_io::ByteLimit;
///
/// let all = Arc::new(RateLimiter::direct(Gcra::new(Quota::per_second(50_000_000))));
/// let one = RateLimiter::direct(Gcra::new(Quota::per_second(1_000_000)));
/// // 3 MB: a burst of one million is free, so the connection waits for two seconds.
/// let wait = (one, all).charge(3_000_000);
/// assert!(wait > Duration::from_millis(1_900) && wait <= Duration::from_micros(2_000_001));
///
/// let by_client = RateLimiter::keyed::<String, _>(Gcra::new(Quota::per_second(1_000_000)));
/// let client = |bytes| {
///     let charged = by_client.charge_unchecked("alice", bytes);
///     if charged.is_denied() { charged } else { by_client.peek("alice") }
/// };
/// assert_eq!(client.charge(900_000), Duration::ZERO);
/// ```
pub trait ByteLimit {
    /// Charges `units` that have passed, and returns how long nothing more should pass: until a unit of this limit is free. With
    /// 0 units, it only returns the wait.
    fn charge(&self, units: u64) -> Duration;
}

impl<A: Algorithm, C: Clock> ByteLimit for RateLimiter<Direct<A>, C> {
    fn charge(&self, units: u64) -> Duration {
        if units > 0 {
            self.charge_unchecked(units);
        }
        wait(&self.peek())
    }
}

impl<A: Algorithm, C: Clock> ByteLimit for RateLimiter<Adjustable<Direct<A>>, C> {
    fn charge(&self, units: u64) -> Duration {
        if units > 0 {
            self.charge_unchecked(units);
        }
        wait(&self.peek())
    }
}

impl<L: ByteLimit + ?Sized> ByteLimit for Arc<L> {
    fn charge(&self, units: u64) -> Duration {
        (**self).charge(units)
    }
}

impl<S, C> ByteLimit for &RateLimiter<S, C>
where
    RateLimiter<S, C>: ByteLimit,
{
    fn charge(&self, units: u64) -> Duration {
        (**self).charge(units)
    }
}

impl<A: ByteLimit, B: ByteLimit> ByteLimit for (A, B) {
    fn charge(&self, units: u64) -> Duration {
        self.0.charge(units).max(self.1.charge(units))
    }
}

impl<A: ByteLimit, B: ByteLimit, C: ByteLimit> ByteLimit for (A, B, C) {
    fn charge(&self, units: u64) -> Duration {
        self.0.charge(units).max(self.1.charge(units)).max(self.2.charge(units))
    }
}

impl<F: Fn(u64) -> Decision> ByteLimit for F {
    fn charge(&self, units: u64) -> Duration {
        wait(&self(units))
    }
}

/// How long nothing passes if a check of one unit would be decided in this way.
fn wait(next: &Decision) -> Duration {
    match next.is_denied() {
        true => next.retry_after().unwrap_or(Duration::MAX),
        false => next.delay(),
    }
}
