//! Builder methods that need the standard library: the default clock, keyed limiters, sketches and leases.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use super::{Builder, DIRECT, LEASES, Supported};
use crate::algorithm::{Algorithm, Gcra, Limit, WindowAlgorithm};
use crate::base::clock::IntoClock;
use crate::base::quota::{Quota, QuotaError};
use crate::limiter::striped::{LeaseAlgorithm, LeaseSource, Leases, Striped};
use crate::limiter::{AnyLimiter, RateLimiter};
use crate::store::sketch::SketchPlan;
use crate::store::{Adjustable, AnyStore, Direct, Keyed, Sketch, StoreConfig, StoreKind, WhenFull};

const KEYED: Supported = Supported("keyed", &["capacity", "max_keys"]);
const SKETCH: Supported = Supported("sketch", &["capacity"]);
const STRIPED: Supported = Supported("striped", &[LEASES]);

impl RateLimiter {
    /// Creates a GCRA limiter for any number of keys of any type in 4 MiB, with the default clock. (Rules from files
    /// default to fixed windows.)
    ///
    /// This allocates the 4 MiB at once; [`Builder::capacity`] sets another size. If this is the first default clock
    /// in the process, its calibration takes up to 200 ms. [`RateLimiter::builder`] has all other options.
    ///
    /// # Panics
    /// Panics if the burst is above 2³³ units. The message names what to use: a keyed store holds every quota.
    /// [`RateLimiter::try_new`] returns the error instead.
    #[must_use]
    #[track_caller]
    pub fn new(quota: Quota) -> Self {
        match Self::try_new(quota) {
            Ok(limiter) => limiter,
            Err(error) => panic!(
                "{error}. RateLimiter::new builds a compact store of 4 MiB. RateLimiter::builder(Gcra::new(quota)).keyed() \
                 builds a keyed store, and quota.burst(n) sets a smaller burst"
            ),
        }
    }

    /// Creates the same limiter as [`RateLimiter::new`], or returns an error.
    ///
    /// # Errors
    /// Returns an error if the burst is above 2³³ units.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// assert!(RateLimiter::try_new(Quota::per_second(100)).is_ok());
    /// assert!(RateLimiter::try_new(Quota::per_second(1_000_000_000)).is_ok()); // a gigabyte
    /// assert!(RateLimiter::try_new(Quota::per_second(1 << 34)).is_err()); // the burst is also 2³⁴
    /// ```
    pub fn try_new(quota: Quota) -> Result<Self, QuotaError> {
        Self::builder(Gcra::new(quota)).compact()
    }

    /// Creates a limiter with one state for all requests, with the default clock.
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

    /// Creates a limiter with one state for each key, with the default clock. Keys can have any type that hashes
    /// and compares. Checks also need `Clone`, or a [`Lookup`](crate::stores::Lookup) of your own.
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

    /// Returns a builder, to set another clock, hasher, size or cap.
    pub fn builder<A: Algorithm>(algorithm: A) -> Builder<A> {
        Builder::new(algorithm, ahash::RandomState::new())
    }

    /// Returns a builder for a limiter whose algorithm is chosen at run time, such as by a line of a file. Its method
    /// [`build`](Builder::build) takes the kind of store.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{AnyLimiter, Carry, Limit, RateLimiter, StoreKind};
    ///
    /// let limit: Limit = "sliding-log 3/10s".parse()?;
    /// let limiter: AnyLimiter = RateLimiter::any(limit).build(StoreKind::Keyed)?;
    /// assert_eq!(limiter.check_n("alice", 2).remaining(), 1);
    ///
    /// limiter.set_limit("fixed-window 30/min".parse()?, Carry::Used)?;
    /// assert_eq!(limiter.peek("alice").remaining(), 28);
    /// assert_eq!(limiter.limit().to_string(), "fixed-window 30/min");
    /// # Ok::<(), tollgate::QuotaError>(())
    /// ```
    pub fn any(limit: impl Into<Limit>) -> Builder<Limit> {
        Builder::new(limit.into(), ahash::RandomState::new())
    }
}

impl<A, C, H> Builder<A, C, H> {
    /// For leases: sets the number of stripes, rounded up to a power of two, at most 1,024. Default: the number of
    /// processors for this process. With fewer stripes, fewer units can be lost in expired leases, and a denial
    /// searches faster. With fewer stripes than busy cores, some cores share a word.
    pub fn stripes(mut self, stripes: usize) -> Self {
        self.options.leases.get_or_insert_default().stripes = Some(stripes);
        self
    }

    /// For leases: sets how long charged units may be spent. Default: 10 ms.
    ///
    /// In any interval, the limiter can admit more than the algorithm, by at most the units that the algorithm admits
    /// in one life. With a shorter life, checks charge blocks more often. With a life below 4 µs, stripes hold no units
    /// at all. A life above an hour is set to an hour. If units are [deposited](Leases::deposit), the life
    /// must exceed the time from one check to the next plus the round trip to the source, with a sixteenth to spare.
    pub fn lease_life(mut self, life: Duration) -> Self {
        self.options.leases.get_or_insert_default().life = life;
        self
    }

    /// For leases: sets the most units that a stripe charges in one step, rounded down to a power of two. Default:
    /// 4,096. A request that costs more charges its own cost.
    ///
    /// Use a larger value if each request costs many units, such as bytes. With 1, every check charges the source.
    /// Expiries and units share a word: a life of 1 ms has room for 1,023 units, and a life of 10 ms for 16,383.
    pub fn max_block(mut self, units: u64) -> Self {
        self.options.leases.get_or_insert_default().max_block = units;
        self
    }
}

impl<A, C, H> Builder<A, C, H> {
    /// For keyed stores: sets the most keys that the limiter holds. Default: no cap; the limiter removes idle keys
    /// when it inserts new keys.
    ///
    /// # Panics
    /// Panics if `max` is 0. Such a store would deny every request, or limit no request.
    #[track_caller]
    pub fn max_keys(mut self, max: usize, when_full: WhenFull) -> Self {
        assert!(max > 0, "max_keys is 0, but a keyed store must have room for one key");
        self.options.store.max_keys = Some((max, when_full));
        self
    }
}

impl<C: IntoClock, H: BuildHasher + Clone + Send + Sync + 'static> Builder<Limit, C, H> {
    /// Builds a limiter with this store: a [`StoreKind`], or a [`StoreConfig`] with its size and options. An option of this
    /// builder precedes that of the config. See [`RateLimiter::any`]. A change of the limit applies the options again.
    ///
    /// # Errors
    /// Returns an error if the store does not support the limit, its size or an option that was set. Also returns an
    /// error if there is not enough memory for a store of more than 16 MiB. The error names a store or values that would
    /// fit.
    pub fn build<K>(self, store: impl Into<StoreConfig>) -> Result<AnyLimiter<K, C::Clock, H>, QuotaError>
    where
        K: Hash + Eq + Clone + Send + Sync + 'static,
    {
        let StoreConfig { kind, options: of_config } = store.into();
        let mut options = self.options;
        options.store = options.store.or(of_config);
        options.only(match kind {
            StoreKind::Direct => DIRECT,
            StoreKind::Keyed => KEYED,
            // A tier belongs to one algorithm, and here the algorithm can change.
            StoreKind::Compact => Supported("compact", &["capacity", "overflow", "overdraft"]),
            StoreKind::Sketch => SKETCH,
        })?;
        let config = StoreConfig { kind, options: options.store };
        let store = AnyStore::new(config, self.algorithm, &self.hasher)?;
        Ok(RateLimiter::of(Adjustable::new(store), self.clock.into_clock()))
    }
}

impl<A: Algorithm, C: IntoClock, H> Builder<A, C, H> {
    /// Builds a limiter with one state for all requests that all cores can use at once. Each core spends from a block
    /// of units that was charged in advance.
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
    /// assert!(admitted <= 1_020); // 1,000, and one more for each 3.6 s that the example runs
    /// ```
    ///
    /// # Panics
    /// Panics if an option was set that a striped store does not have. It has the options of leases.
    #[must_use]
    #[track_caller]
    pub fn striped(self) -> RateLimiter<Striped<A>, C::Clock>
    where
        A: LeaseAlgorithm,
    {
        self.options.must_only(STRIPED);
        let leases = Leases::new(Direct::new(self.algorithm), &self.options.leases.unwrap_or_default());
        RateLimiter::of(leases, self.clock.into_clock())
    }

    /// Builds a limiter with one state for each key.
    ///
    /// # Panics
    /// Panics if an option was set that a keyed store does not have. It has `capacity` and `max_keys`.
    #[must_use]
    #[track_caller]
    pub fn keyed<K>(self) -> RateLimiter<Keyed<K, A, H>, C::Clock>
    where
        K: Hash + Eq + Send + Sync + 'static,
        H: BuildHasher,
    {
        let (store, clock) = self.keyed_parts();
        RateLimiter::of(store, clock.into_clock())
    }

    /// Builds a limiter that counts windows in a sketch. The memory is constant, for any number of keys.
    ///
    /// # Errors
    /// Returns an error if the sketch's counters cannot hold the limit, if the windows are not aligned, or if the
    /// memory is not available, or if an option other than `capacity` was set. The error names values that would fit.
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
    /// assert!(!limiter.saturation().is_warning()); // check this regularly: is the memory large enough?
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
    #[track_caller]
    pub(crate) fn keyed_parts<K: Hash + Eq + Send + Sync + 'static>(self) -> (Keyed<K, A, H>, C) {
        self.options.must_only(KEYED);
        (Keyed::new(self.algorithm, self.hasher, self.options.store.keyed()), self.clock)
    }

    pub(crate) fn sketch_parts(self) -> Result<(Sketch<A, H>, C), QuotaError>
    where
        A: WindowAlgorithm,
    {
        self.options.only(SKETCH)?;
        let capacity = self.options.store.capacity.unwrap_or_default();
        Ok((Sketch::new(SketchPlan::new(self.algorithm, capacity)?, self.hasher)?, self.clock))
    }
}

impl<P: LeaseSource> Leases<P> {
    /// Returns a builder for a limiter that leases from your own source; [`Builder::leases`] builds it. For a state in
    /// this process, see [`Builder::striped`].
    pub fn builder(source: P) -> Builder<P> {
        Builder::new(source, ahash::RandomState::new())
    }
}

impl<P: LeaseSource, C: IntoClock, H> Builder<P, C, H> {
    /// Builds a limiter that leases from the source passed to [`Leases::builder`].
    ///
    /// # Panics
    /// Panics if an option was set that leases do not have.
    #[must_use]
    #[track_caller]
    pub fn leases(self) -> RateLimiter<Leases<P>, C::Clock> {
        self.options.must_only(STRIPED);
        let leases = Leases::new(self.algorithm, &self.options.leases.unwrap_or_default());
        RateLimiter::of(leases, self.clock.into_clock())
    }
}
