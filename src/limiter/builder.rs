//! Building a limiter with what is optional.

use std::hash::{BuildHasher, Hash};

use super::RateLimiter;
use crate::algorithm::Algorithm;
use crate::clock::QuantaClock;
use crate::store::keyed::Layout;
use crate::store::{Direct, Keyed, Overflow};

/// Sets what is optional about a limiter; made by [`RateLimiter::builder`](crate::RateLimiter::builder).
///
/// # Examples
/// ```
/// use tollgate::{Gcra, Overflow, Quota, RateLimiter, StdClock};
///
/// let limiter = RateLimiter::builder(Gcra::new(Quota::per_second(50)))
///     .clock(StdClock::new())
///     .capacity(100_000)
///     .max_keys(1_000_000, Overflow::Forget)
///     .keyed::<u64>();
/// assert!(limiter.check(&7).is_allowed());
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until a limiter is made"]
pub struct Builder<A, C = (), H = ahash::RandomState> {
    algorithm: A,
    clock: C,
    hasher: H,
    layout: Layout,
}

impl<A: Algorithm> Builder<A> {
    pub(super) fn new(algorithm: A) -> Self {
        Self { algorithm, clock: (), hasher: ahash::RandomState::new(), layout: Layout::default() }
    }
}

impl<A: Algorithm, C, H> Builder<A, C, H> {
    /// The clock. Default: [`QuantaClock`].
    pub fn clock<D>(self, clock: D) -> Builder<A, D, H> {
        let Self { algorithm, hasher, layout, .. } = self;
        Builder { algorithm, clock, hasher, layout }
    }

    /// The hasher of keys. Default: ahash with random keys, about a nanosecond for an integer, and no client can
    /// choose keys that collide without knowing the hasher's keys. Standard's SipHash
    /// ([`RandomState`](std::hash::RandomState)) is some 8 ns slower and better studied. A hasher without a secret
    /// lets clients make one list of all their keys, and so does one whose top bits do not vary, such as the identity.
    pub fn hasher<I>(self, hasher: I) -> Builder<A, C, I> {
        let Self { algorithm, clock, layout, .. } = self;
        Builder { algorithm, clock, hasher, layout }
    }

    /// Makes room for about so many keys at the start, 8 bytes each. Default: 0. The table grows without it too,
    /// a doubling at a time, and no request pays for moving keys.
    pub fn capacity(mut self, keys: usize) -> Self {
        self.layout.capacity = keys;
        self
    }

    /// Never holds more than `max` keys. Default: no cap; idle keys are removed as new ones come.
    pub fn max_keys(mut self, max: usize, overflow: Overflow) -> Self {
        self.layout.cap = Some((max, overflow));
        self
    }
}

impl<A: Algorithm, H> Builder<A, (), H> {
    /// A limiter with one state for everything.
    #[must_use]
    pub fn direct(self) -> RateLimiter<Direct<A>> {
        self.clock(QuantaClock::new()).direct()
    }

    /// A limiter with one state for each key.
    #[must_use]
    pub fn keyed<K>(self) -> RateLimiter<Keyed<K, A, H>>
    where
        K: Hash + Eq + Send + Sync + 'static,
        H: BuildHasher,
    {
        self.clock(QuantaClock::new()).keyed()
    }
}

impl<A: Algorithm, C: crate::Clock, H> Builder<A, C, H> {
    /// A limiter with one state for everything.
    #[must_use]
    pub fn direct(self) -> RateLimiter<Direct<A>, C> {
        RateLimiter { store: Direct::new(self.algorithm), clock: self.clock }
    }

    /// A limiter with one state for each key.
    #[must_use]
    pub fn keyed<K>(self) -> RateLimiter<Keyed<K, A, H>, C>
    where
        K: Hash + Eq + Send + Sync + 'static,
        H: BuildHasher,
    {
        RateLimiter { store: Keyed::new(self.algorithm, self.hasher, self.layout), clock: self.clock }
    }
}
