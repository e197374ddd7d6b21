//! The algorithms: pure functions on words, one file each.
//!
//! | file | word (head; tail) | engine |
//! |---|---|---|
//! | `gcra`, `leaky_bucket_meter`, `leaky_bucket_queue`, `token_bucket` (greedy) | TAT | `pace` |
//! | `token_bucket` (interval, aligned), `fixed_window` | window and units used; two anchors | `batch` |
//! | `sliding_window`, `sub_window` | window and count; counts of the windows before | `counts` |
//! | `sliding_log` | units ever admitted; their times | its own |
//! | `minimum_spacing` | last admission | its own |
//!
//! `compact` has the forms of some of them that fit forty bits, for the compact store.

mod batch;
pub(crate) mod compact;
mod counts;
mod fixed_window;
mod gcra;
mod leaky_bucket_meter;
mod leaky_bucket_queue;
mod minimum_spacing;
mod pace;
mod sliding_log;
mod sliding_window;
pub(crate) mod step;
mod sub_window;
mod token_bucket;

use core::fmt::Debug;

pub use self::compact::{CompactAlgorithm, WindowAlgorithm};
pub use self::fixed_window::FixedWindow;
pub use self::gcra::Gcra;
pub use self::leaky_bucket_meter::LeakyBucketMeter;
pub use self::leaky_bucket_queue::LeakyBucketQueue;
pub use self::minimum_spacing::MinimumSpacing;
pub use self::sliding_log::SlidingLog;
pub use self::sliding_window::SlidingWindow;
pub use self::sub_window::SubWindow;
pub use self::token_bucket::TokenBucket;
use crate::base::quota::{Quota, QuotaError, Reason};

/// An algorithm: a quota, and how it is kept. Sealed.
///
/// Values are small, immutable and cheap to clone; limiters hold one and apply it to every key's state.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an algorithm",
    note = "of a `Quota` make one first: `Gcra::new(quota)`, for a rate and a burst; `RateLimiter::new` alone takes the quota itself"
)]
pub trait Algorithm: step::Stepper + Clone + Debug + Send + Sync + 'static {
    /// The same algorithm with another quota, able to read the state that this one wrote; for quotas by call
    /// ([`RateLimiter::check_with`](crate::RateLimiter::check_with)).
    ///
    /// # Errors
    /// If the state could not be read under both: window algorithms need the same period, the sliding log a
    /// limit no larger than its own.
    fn requota(&self, quota: &Quota) -> Result<Self, QuotaError>;

    /// The same kind of algorithm with another quota, for states of its own.
    ///
    /// # Errors
    /// If the algorithm has no room for the quota; the error says what would fit.
    fn with_quota(&self, quota: &Quota) -> Result<Self, QuotaError>;
}

/// A word of two unsigned fields: an index above, a count below.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Split {
    low_bits: u32,
}

impl Split {
    /// Room for every index of windows of `window_ns` in 64-bit time (and two more, for "never" and for a phase);
    /// the rest is the count's. Both fields all ones is [`step::DEAD`], so counts end one below.
    const fn for_windows(window_ns: u64) -> Option<Self> {
        let largest = (u64::MAX / window_ns) as u128 + 2;
        let high_bits = u128::BITS - largest.leading_zeros();
        match 64u32.checked_sub(high_bits) {
            None | Some(0) => None,
            Some(low_bits) => Some(Self { low_bits }),
        }
    }

    /// The largest count that is not all ones.
    const fn max_low(self) -> u64 {
        (1 << self.low_bits) - 2
    }

    #[inline]
    const fn pack(self, high: u64, low: u64) -> u64 {
        (high << self.low_bits) | low
    }

    #[inline]
    const fn unpack(self, word: u64) -> (u64, u64) {
        (word >> self.low_bits, word & ((1 << self.low_bits) - 1))
    }

    /// Refuses a limit that the count cannot hold.
    const fn holding(
        algorithm: &'static str,
        what: &'static str,
        window_ns: u64,
        limit: u64,
    ) -> Result<Self, Reason> {
        match Self::for_windows(window_ns) {
            Some(split) if limit <= split.max_low() => Ok(split),
            Some(split) => Err(Reason::Word { algorithm, what, got: limit, max: split.max_low() }),
            None => Err(Reason::Word { algorithm, what, got: limit, max: 0 }),
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn split_words_round_trip_and_never_look_dead() {
        for window_ns in [2, 3, 1_000, 1_000_000_000, 3_600_000_000_000, u64::MAX] {
            let Some(split) = Split::for_windows(window_ns) else {
                assert!(window_ns < 3, "{window_ns}");
                continue;
            };
            for high in [0, 1, u64::MAX / window_ns + 2] {
                for low in [0, 1.min(split.max_low()), split.max_low()] {
                    let word = split.pack(high, low);
                    assert_eq!(split.unpack(word), (high, low), "{window_ns}");
                    assert_ne!(word, step::DEAD);
                }
            }
        }
    }

    #[test]
    fn a_window_of_one_nanosecond_has_no_room_for_a_count() {
        assert!(Split::for_windows(1).is_none());
        assert!(matches!(Split::holding("x", "the limit", 1, 1), Err(Reason::Word { max: 0, .. })));
    }
}
