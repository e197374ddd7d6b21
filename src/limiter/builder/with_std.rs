//! What else is built with the standard library: limiters by the default clock, keyed ones, sketches and leases.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use super::Builder;
use crate::algorithm::{Algorithm, Gcra, WindowAlgorithm};
use crate::base::clock::IntoClock;
use crate::base::quota::{Quota, QuotaError};
use crate::limiter::RateLimiter;
use crate::limiter::striped::{LeaseAlgorithm, LeaseSource, Leases, Striped};
use crate::store::{Direct, Keyed, Sketch, WhenFull, keyed};

impl RateLimiter {
    /// GCRA for any number of keys of any type in 4 MiB, by the default clock. (Rules from files default to fixed windows.)
    ///
    /// The 4 MiB are allocated at once; [`Builder::capacity`] asks for less or more. Calibrates the clock, for up to 200 ms, if this is the
    /// first in the process. [`RateLimiter::builder`] has everything else.
    ///
    /// # Panics
    /// If the burst is above 2²⁵, or the rate above 2³¹ a second: [`RateLimiter::try_new`] returns the error instead.
    #[must_use]
    #[track_caller]
    pub fn new(quota: Quota) -> Self {
        match Self::try_new(quota) {
            Ok(limiter) => limiter,
            Err(error) => panic!("{error}"),
        }
    }

    /// As [`RateLimiter::new`].
    ///
    /// # Errors
    /// If the burst is above 2²⁵, or the rate above 2³¹ a second.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// assert!(RateLimiter::try_new(Quota::per_second(100)).is_ok());
    /// assert!(RateLimiter::try_new(Quota::per_second(1 << 26)).is_err()); // a burst of as many
    /// ```
    pub fn try_new(quota: Quota) -> Result<Self, QuotaError> {
        Self::builder(Gcra::new(quota)).compact()
    }

    /// A limiter with one state for everything, by the default clock.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Gcra, Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::direct(Gcra::new(Quota::per_second(2)));
    /// assert!(limiter.check_n(2).is_allowed());
    /// assert!(limiter.check().is_denied());
    /// ```
    #[must_use]
    pub fn direct<A: Algorithm>(algorithm: A) -> RateLimiter<Direct<A>> {
        Self::builder(algorithm).direct()
    }

    /// A limiter with one state for each key, by the default clock. Keys are any that hash, compare and clone.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Gcra, Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::keyed::<(u32, String), _>(Gcra::new(Quota::per_second(10)));
    /// assert!(limiter.check(&(7, "upload".to_owned())).is_allowed());
    /// ```
    #[must_use]
    pub fn keyed<K, A>(algorithm: A) -> RateLimiter<Keyed<K, A>>
    where
        K: Hash + Eq + Send + Sync + 'static,
        A: Algorithm,
    {
        Self::builder(algorithm).keyed()
    }

    /// A limiter with another clock, hasher, size or cap.
    pub fn builder<A: Algorithm>(algorithm: A) -> Builder<A> {
        Builder::new(algorithm, ahash::RandomState::new())
    }

    /// A limiter that leases from a source of your own; [`Builder::leases`] makes it, after what is optional.
    /// For a state in this process see [`Builder::striped`].
    pub fn leasing<P: LeaseSource>(source: P) -> Builder<P> {
        Builder::new(source, ahash::RandomState::new())
    }
}

impl<A, C, H> Builder<A, C, H> {
    /// For leases: how many stripes, rounded up to a power of two, at most 1,024. Default: as many as there are processors for this
    /// process. Fewer strand less, and search faster before they deny; with fewer than there are busy cores, some of
    /// them share a word.
    pub fn stripes(mut self, stripes: usize) -> Self {
        self.options.leases.stripes = Some(stripes);
        self
    }

    /// For leases: how long what was charged may be spent. Default: 10 ms. What is admitted in any interval can be
    /// ahead of the algorithm by what that admits in one life; shorter ones need a block more often. Below 4 µs nothing is
    /// held at all, and above an hour it is an hour. Where units are [deposited](crate::RateLimiter::deposit), it must exceed
    /// the time from one check to the next and the way to their source and back, with a sixteenth to spare.
    pub fn lease_life(mut self, life: Duration) -> Self {
        self.options.leases.life = life;
        self
    }

    /// For leases: the most units that a stripe charges at once, rounded down to a power of two (a request that costs more
    /// charges what it costs). Default: 4,096. Units of which a request needs many, such as bytes, want more; with 1, every
    /// check is charged at the source. As expiries share a word with units, a life of 1 ms has room for 1,023, and one of
    /// 10 ms for 16,383.
    pub fn max_block(mut self, units: u64) -> Self {
        self.options.leases.max_block = units;
        self
    }
}

impl<A: Algorithm, C, H> Builder<A, C, H> {
    /// For keyed stores: never holds more than `max` keys. Default: no cap; idle keys are removed as new ones come.
    ///
    /// # Panics
    /// If `max` is 0: such a store would deny every request, or limit none.
    #[track_caller]
    pub fn max_keys(mut self, max: usize, when_full: WhenFull) -> Self {
        assert!(max > 0, "max_keys is 0, but a keyed store must have room for one key");
        self.options.max_keys = Some((max, when_full));
        self
    }
}

impl<A: Algorithm, C: IntoClock, H> Builder<A, C, H> {
    /// A limiter with one state for everything that all cores can hit at once: each of them spends from a block that was charged
    /// beforehand.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Gcra, Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::builder(Gcra::new(Quota::per_hour(1_000))).striped();
    /// let admitted = std::thread::scope(|scope| {
    ///     let threads: Vec<_> = (0..2)
    ///         .map(|_| scope.spawn(|| (0..800).filter(|_| limiter.check().is_allowed()).count()))
    ///         .collect();
    ///     threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    /// });
    /// assert!(admitted <= 1_020); // and an hour's thousand refill while it runs: one in 3.6 s
    /// ```
    #[must_use]
    pub fn striped(self) -> RateLimiter<Striped<A>, C::Clock>
    where
        A: LeaseAlgorithm,
    {
        let leases = Leases::new(Direct::new(self.algorithm), &self.options.leases);
        RateLimiter::of(leases, self.clock.into_clock())
    }

    /// A limiter with one state for each key.
    #[must_use]
    pub fn keyed<K>(self) -> RateLimiter<Keyed<K, A, H>, C::Clock>
    where
        K: Hash + Eq + Send + Sync + 'static,
        H: BuildHasher,
    {
        let (store, clock) = self.keyed_parts();
        RateLimiter::of(store, clock.into_clock())
    }

    /// A limiter that counts windows in a sketch, in constant memory whatever the number of keys.
    ///
    /// # Errors
    /// If the sketch's counters cannot hold the limit, the windows are not aligned, or there is no memory of this size; the
    /// error says what would fit.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Capacity, FixedWindow, Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::builder(FixedWindow::new(Quota::per_hour(1_000)))
    ///     .capacity("16MiB".parse::<Capacity>()?)
    ///     .sketch()?;
    /// assert!(limiter.check("203.0.113.7").is_allowed());
    /// assert!(limiter.check_n("203.0.113.7", 1_000).is_denied());
    /// assert!(!limiter.saturation().is_warning()); // ask now and then: is there memory enough?
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sketch(self) -> Result<RateLimiter<Sketch<A, H>, C::Clock>, QuotaError>
    where
        A: WindowAlgorithm,
        H: BuildHasher,
    {
        let (store, clock) = self.sketch_parts()?;
        Ok(RateLimiter::of(store, clock.into_clock()))
    }
}

impl<A: Algorithm, C, H: BuildHasher> Builder<A, C, H> {
    pub(crate) fn keyed_parts<K: Hash + Eq + Send + Sync + 'static>(self) -> (Keyed<K, A, H>, C) {
        let capacity = self.options.capacity.map_or(0, |capacity| capacity.keys());
        let layout = keyed::KeyedLayout { capacity, cap: self.options.max_keys };
        (Keyed::new(self.algorithm, self.hasher, layout), self.clock)
    }

    pub(crate) fn sketch_parts(self) -> Result<(Sketch<A, H>, C), QuotaError>
    where
        A: WindowAlgorithm,
    {
        let capacity = self.options.capacity.unwrap_or_default();
        Ok((Sketch::new(self.algorithm, self.hasher, capacity)?, self.clock))
    }
}

impl<P: LeaseSource, C: IntoClock, H> Builder<P, C, H> {
    /// A limiter that leases from the source that [`RateLimiter::leasing`](crate::RateLimiter::leasing) was given.
    #[must_use]
    pub fn leases(self) -> RateLimiter<Leases<P>, C::Clock> {
        RateLimiter::of(Leases::new(self.algorithm, &self.options.leases), self.clock.into_clock())
    }
}
