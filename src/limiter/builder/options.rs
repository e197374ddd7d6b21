//! Builder methods of every build.

use core::hash::BuildHasher;

use super::{Builder, BuilderOptions, COMPACT, DIRECT};
use crate::algorithm::{Algorithm, CompactAlgorithm, FirstFill};
use crate::base::clock::IntoClock;
use crate::base::quota::{Quota, QuotaError};
use crate::limiter::RateLimiter;
use crate::store::{Capacity, Compact, Direct, Overflow, StoreOptions, compact};

impl<A, C, H> Builder<A, C, H> {
    /// Sets the clock. Default: [`DefaultClock`](crate::DefaultClock); without the feature `std` there is no default.
    pub fn clock<D>(self, clock: D) -> Builder<A, D, H> {
        let Self { algorithm, hasher, options, .. } = self;
        Builder { algorithm, clock, hasher, options }
    }
}

impl<A, C, H> Builder<A, C, H> {
    /// Sets the hasher of keys. Default: ahash with random seeds.
    ///
    /// The default takes about a nanosecond for an integer. A client that does not know the seeds cannot choose keys
    /// that collide. The standard library's SipHash ([`RandomState`](std::hash::RandomState)) is about 8 ns slower and
    /// better studied.
    ///
    /// The top bits of the hash choose the part of the store that holds a key: a bucket of a compact store, or a shard
    /// of a keyed store. With a hasher that has no secret, clients can choose keys that all fall into one part. With a
    /// hasher whose top bits do not vary, such as the identity, all keys fall into one part.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Gcra, Quota, RateLimiter};
    ///
    /// let build = RateLimiter::builder(Gcra::new(Quota::per_second(10)));
    /// let limiter = build.hasher(std::hash::RandomState::new()).compact()?;
    /// assert!(limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    pub fn hasher<I>(self, hasher: I) -> Builder<A, C, I> {
        let Self { algorithm, clock, options, .. } = self;
        Builder { algorithm, clock, hasher, options }
    }

    /// Uses the default hasher with the given seeds instead of random seeds. Limiters with the same seeds compute the
    /// same hashes if they use the same version of ahash and are compiled for the same processor features.
    ///
    /// Without the feature `std` the crate has no source of random numbers. The builder then has no hasher until you
    /// call this method or [`Builder::hasher`]. If clients choose keys, the seeds must be secret and random. Take them
    /// from the machine's random number generator or from its configuration: a client that knows the seeds can choose
    /// keys that share a state.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Gcra, ManualClock, Quota, RateLimiter, Timestamp};
    ///
    /// let seeds = [0x5EC2_E7A1, 0x0B5C_93D4, 0xA24B_AED4, 0x9FB2_1C65]; // four random numbers, kept secret
    /// let limiter = RateLimiter::builder(Gcra::new(Quota::per_minute(1)))
    ///     .clock(ManualClock::default())
    ///     .seeds(seeds)
    ///     .compact()?;
    /// assert!(limiter.at(Timestamp::from_secs(1)).check("alice").is_allowed());
    /// assert!(limiter.at(Timestamp::from_secs(2)).check("alice").is_denied());
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    pub fn seeds(self, seeds: [u64; 4]) -> Builder<A, C, ahash::RandomState> {
        let [a, b, c, d] = seeds;
        self.hasher(ahash::RandomState::with_seeds(a, b, c, d))
    }

    /// Sets the size of the store: a number of slots or keys, or a [`Capacity`] by memory or traffic.
    ///
    /// Compact stores and sketches have this fixed size. Default: 4 MiB. A sketch has no slots, so give its memory or
    /// its traffic.
    ///
    /// Keyed stores begin with room for this many keys, 8 bytes each. Default: 0. They double their size when they
    /// grow. No single request moves all keys.
    pub fn capacity(mut self, capacity: impl Into<Capacity>) -> Self {
        self.options.store.capacity = Some(capacity.into());
        self
    }

    /// For compact stores: sets what happens to the debt of a key that is evicted. Default: [`Overflow::Spill`], or
    /// [`Overflow::Forget`] for the sliding window, which supports no other policy.
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.options.store.overflow = Some(overflow);
        self
    }

    /// For compact stores: sets the quotas that single calls will use
    /// ([`RateLimiter::tier`](crate::RateLimiter::tier)), so that the layout of the words can hold them. You can leave
    /// out a quota if its burst refills no slower than the limiter's own and its interval is not hundreds of times
    /// shorter.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Gcra, Quota, RateLimiter};
    ///
    /// let (free, patient) = (Quota::per_second(100), Quota::per_day(10));
    /// assert!(RateLimiter::new(free).tier(&patient).is_err()); // its burst refills in a day, not in a second
    /// let limiter = RateLimiter::builder(Gcra::new(free)).tiers([patient]).compact()?;
    /// assert!(limiter.tier(&patient).is_ok());
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    pub fn tiers(mut self, quotas: impl IntoIterator<Item = Quota>) -> Self {
        self.options.tiers = quotas.into_iter().collect();
        self
    }

    /// For compact stores: sets how many units a key may owe beyond its burst (its limit, for windows). Default: 0.
    ///
    /// [`charge_unchecked`](RateLimiter::charge_unchecked), [`settle`](RateLimiter::settle) and
    /// [`reserve`](RateLimiter::reserve) create such debts. Units beyond the overdraft are not charged. For other
    /// stores, see [`charge_unchecked`](RateLimiter::charge_unchecked). If the burst and the overdraft together exceed 2²⁵
    /// units, the store counts in ticks of up to a unit's time, so it may admit one unit too many.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Gcra, Quota, RateLimiter};
    ///
    /// let tokens = RateLimiter::builder(Gcra::new(Quota::per_hour(1_000))).overdraft(500).compact()?;
    /// assert_eq!(tokens.charge_unchecked("alice", 1_400).cost(), 1_400); // 400 units beyond the burst
    /// assert!(tokens.check("alice").is_denied());
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    pub fn overdraft(mut self, units: u64) -> Self {
        self.options.store.overdraft = units;
        self
    }
}

impl<A: Algorithm<Tail = ()>, C, H> Builder<A, C, H> {
    /// Sets the units with which new keys begin, instead of the full burst: 0 or more. More than the burst is the burst. Only direct and
    /// keyed stores have this option; others do not compile with it. See [`FirstFill`], also for what a key that the limiter
    /// forgets begins with.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Gcra, Quota, RateLimiter};
    ///
    /// let congested = RateLimiter::builder(Gcra::new(Quota::per_second(10))).first_fill(0).direct();
    /// assert!(congested.check().is_denied()); // the first unit comes in 100 ms
    /// ```
    pub fn first_fill(self, units: u64) -> Builder<FirstFill<A>, C, H> {
        let Self { algorithm, clock, hasher, options } = self;
        Builder { algorithm: FirstFill::new(algorithm, units), clock, hasher, options }
    }
}

impl<A: Algorithm, C: IntoClock, H> Builder<A, C, H> {
    /// Builds a limiter with one state for all requests.
    ///
    /// # Panics
    /// Panics if an option was set that a direct store does not have. It has none.
    #[must_use]
    #[track_caller]
    pub fn direct(self) -> RateLimiter<Direct<A>, C::Clock> {
        self.options.must_only(DIRECT);
        RateLimiter::of(Direct::new(self.algorithm), self.clock.into_clock())
    }

    /// Builds a limiter that keeps a fingerprint of each key, in fixed memory.
    ///
    /// # Errors
    /// Returns an error if the store's words cannot hold the quota or the tiers, if the memory is not available, or if
    /// an option was set that a compact store does not have. The error names values that would fit.
    pub fn compact(self) -> Result<RateLimiter<Compact<A, H>, C::Clock>, QuotaError>
    where
        A: CompactAlgorithm,
        H: BuildHasher,
    {
        let (store, clock) = self.compact_parts()?;
        Ok(RateLimiter::of(store, clock.into_clock()))
    }
}

/// Builds stores, and returns each with its clock.
impl<A: Algorithm, C, H: BuildHasher> Builder<A, C, H> {
    pub(crate) fn compact_parts(self) -> Result<(Compact<A, H>, C), QuotaError>
    where
        A: CompactAlgorithm,
    {
        self.options.only(COMPACT)?;
        let BuilderOptions { store: StoreOptions { capacity, overflow, overdraft, .. }, tiers, .. } =
            self.options;
        let layout =
            compact::CompactLayout { capacity: capacity.unwrap_or_default(), overflow, tiers, overdraft };
        let plan = compact::CompactPlan::new(self.algorithm, layout)?;
        Ok((Compact::new(plan, self.hasher)?, self.clock))
    }
}
