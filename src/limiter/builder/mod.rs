//! The builder of limiters with optional settings.

// The order of these modules is the order of `Builder`'s page.
mod options;
#[cfg(feature = "std")]
mod with_std;

use alloc::vec::Vec;

#[cfg(not(feature = "std"))]
use super::RateLimiter;
#[cfg(not(feature = "std"))]
use crate::algorithm::Algorithm;
use crate::base::quota::{Quota, QuotaError, Reason};
use crate::store::StoreOptions;

/// Sets the options of a limiter, and builds it; created by [`RateLimiter::builder`](crate::RateLimiter::builder).
///
/// An option that the store does not have is never ignored: the method that builds the store returns an error, or
/// panics if it returns no `Result`. The text of each option names the stores that have it.
///
/// # Examples
/// ```
/// use tollgate::{Gcra, WhenFull, Quota, RateLimiter, StdClock};
///
/// let limiter = RateLimiter::builder(Gcra::new(Quota::per_second(50)))
///     .clock(StdClock::new())
///     .capacity(100_000)
///     .max_keys(1_000_000, WhenFull::Forget)
///     .keyed::<u64>();
/// assert!(limiter.check(&7).is_allowed());
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it builds a limiter"]
pub struct Builder<A, C = (), H = ahash::RandomState> {
    algorithm: A,
    clock: C,
    hasher: H,
    options: BuilderOptions,
}

#[derive(Clone, Debug, Default)]
struct BuilderOptions {
    store: StoreOptions,
    tiers: Vec<Quota>,
    #[cfg(feature = "std")]
    leases: Option<crate::limiter::striped::StripeOptions>,
}

/// The options of leases, which are one: a store has all of them or none.
const LEASES: &str = "stripes, lease_life or max_block";

/// The name of a store, and the options that it has.
struct Supported(&'static str, &'static [&'static str]);

const DIRECT: Supported = Supported("direct", &[]);
const COMPACT: Supported = Supported("compact", &["capacity", "overflow", "tiers", "overdraft"]);

impl BuilderOptions {
    /// Refuses an option that was set although this store does not have it.
    fn only(&self, Supported(store, has): Supported) -> Result<(), QuotaError> {
        let others = [
            ("tiers", !self.tiers.is_empty()),
            #[cfg(feature = "std")]
            (LEASES, self.leases.is_some()),
        ];
        match self.store.names().chain(others).find(|(name, is_set)| *is_set && !has.contains(name)) {
            None => Ok(()),
            Some((option, _)) => Err(Reason::Option { store, option }.into()),
        }
    }

    /// Panics if an option was set that this store does not have.
    #[track_caller]
    fn must_only(&self, store: Supported) {
        if let Err(error) = self.only(store) {
            panic!("{error}");
        }
    }
}

#[cfg(not(feature = "std"))]
impl RateLimiter {
    /// Returns a builder for this algorithm. Set a clock, and, for a limiter with keys, a hasher or seeds.
    pub fn builder<A: Algorithm>(algorithm: A) -> Builder<A, (), ()> {
        Builder::new(algorithm, ())
    }
}

impl<A, H> Builder<A, (), H> {
    pub(super) fn new(algorithm: A, hasher: H) -> Self {
        Self { algorithm, clock: (), hasher, options: BuilderOptions::default() }
    }
}
