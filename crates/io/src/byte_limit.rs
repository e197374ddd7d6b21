//! What a limit of bytes can be.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{Adjustable, Algorithm, Clock, Direct, RateLimiter};

/// A limit of what has passed already: it charges, and says how long to wait.
///
/// Limiters without keys are limits, also adjustable ones. A tuple of two or three limits charges each of them and waits for
/// the slowest one. A function is a limit, too: with a keyed limiter, it names the key.
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
/// assert!(wait > Duration::from_millis(1_900) && wait <= Duration::from_secs(2));
///
/// let by_client = RateLimiter::keyed::<String, _>(Gcra::new(Quota::per_second(1_000_000)));
/// let client = |bytes| by_client.charge_unchecked("alice", bytes).delay();
/// assert_eq!(client.charge(1_000_000), Duration::ZERO);
/// ```
pub trait ByteLimit {
    /// Charges `units` that have passed, and returns how long nothing more should pass: until time has paid all debts of
    /// this limit beyond its burst.
    fn charge(&self, units: u64) -> Duration;
}

impl<A: Algorithm, C: Clock> ByteLimit for RateLimiter<Direct<A>, C> {
    fn charge(&self, units: u64) -> Duration {
        self.charge_unchecked(units).delay()
    }
}

impl<A: Algorithm, C: Clock> ByteLimit for RateLimiter<Adjustable<Direct<A>>, C> {
    fn charge(&self, units: u64) -> Duration {
        self.charge_unchecked(units).delay()
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

impl<F: Fn(u64) -> Duration> ByteLimit for F {
    fn charge(&self, units: u64) -> Duration {
        self(units)
    }
}
