//! Rows of tollgate's compact store.

use std::hash::Hash;
use std::net::IpAddr;

use tollgate::{Capacity, Compact, Overflow, RateLimiter};

use crate::flood::Victim;
use crate::ours::gcra;
use crate::subject::{Recipe, Setup, Subject};
use crate::support::length;

/// Four slots a key: of a thousand keys none is evicted, of many about one check in a million evicts another. With the
/// sketch these are 64 bytes a key, of which 32 are ever touched.
fn ample(setup: Setup) -> Capacity {
    Capacity::slots(length(setup.population.max(1_000)) * 4)
}

/// 12.3 bytes for each of the keys if all of them owe, table and sketch together.
fn tight(setup: Setup) -> Capacity {
    // Each key is to be admitted as much as it may.
    let terms = setup.expect.terms();
    let quota = tollgate::Quota::new(u64::from(terms.rate), terms.period).burst(u64::from(terms.burst));
    Capacity::for_traffic(setup.population * u64::from(terms.rate) / terms.period.as_secs(), &quota)
}

/// The default hasher with fixed keys, so that the same keys are evicted in each run, if any.
fn limiter(setup: Setup, capacity: Capacity, overflow: Overflow) -> RateLimiter<Compact> {
    RateLimiter::builder(gcra(setup.expect))
        .hasher(ahash::RandomState::with_seeds(1, 2, 3, 4))
        .capacity(capacity)
        .overflow(overflow)
        .compact()
        .expect("a quota that the words hold")
}

/// `check`, one by one.
struct Single(RateLimiter<Compact>);

impl Single {
    fn of(setup: Setup, capacity: Capacity) -> Self {
        Self(limiter(setup, capacity, Overflow::Spill))
    }

    /// A table with exactly as many slots as the scenario has keys.
    fn full(setup: Setup, overflow: Overflow) -> Self {
        Self(limiter(setup, Capacity::slots(length(setup.population)), overflow))
    }
}

impl<K: Hash + Sync> Subject<K> for Single {
    #[inline(always)]
    fn check(&self, key: &K) -> bool {
        self.0.check(key).is_allowed()
    }

    fn evicted(&self) -> Option<u64> {
        Some(self.0.gauges().evicted)
    }
}

/// `check_hash`, for keys that are hashes already.
struct Hashed(RateLimiter<Compact>);

impl Subject<u64> for Hashed {
    #[inline(always)]
    fn check(&self, key: &u64) -> bool {
        self.0.check_hash(*key, 1).is_allowed()
    }

    fn evicted(&self) -> Option<u64> {
        Some(self.0.gauges().evicted)
    }
}

/// `check_each` on pieces of `N`: one clock reading for each piece, memory asked for beforehand, admissions counted as
/// they are decided.
struct Each<const N: usize>(RateLimiter<Compact>);

impl<const N: usize> Each<N> {
    fn of(setup: Setup, capacity: Capacity) -> Self {
        Self(limiter(setup, capacity, Overflow::Spill))
    }
}

impl<K: Hash + Sync, const N: usize> Subject<K> for Each<N> {
    #[inline(always)]
    fn check(&self, key: &K) -> bool {
        self.0.check(key).is_allowed()
    }

    #[inline(always)]
    fn check_all(&self, keys: &[K]) -> u64 {
        let mut admitted = 0;
        for batch in keys.chunks(N) {
            self.0.check_each(batch.iter().map(|key| (key, 1)), |decision| {
                admitted += u64::from(decision.is_allowed());
            });
        }
        admitted
    }

    fn evicted(&self) -> Option<u64> {
        Some(self.0.gauges().evicted)
    }
}

/// `check_many` on pieces of 16: as [`Each`], with the decisions kept in a vector.
struct Many(RateLimiter<Compact>);

impl<K: Hash + Sync> Subject<K> for Many {
    #[inline(always)]
    fn check(&self, key: &K) -> bool {
        self.0.check(key).is_allowed()
    }

    #[inline(always)]
    fn check_all(&self, keys: &[K]) -> u64 {
        let mut decisions = Vec::with_capacity(16);
        let mut admitted = 0;
        for batch in keys.chunks(16) {
            decisions.clear();
            self.0.check_many(batch, &mut decisions);
            admitted += decisions.iter().map(|decision| u64::from(decision.is_allowed())).sum::<u64>();
        }
        admitted
    }

    fn evicted(&self) -> Option<u64> {
        Some(self.0.gauges().evicted)
    }
}

pub(crate) const COMPACT: &str = "tollgate compact";
pub(crate) const BATCHES: &str = "tollgate compact, batches of 16";
pub(crate) const TIGHT: &str = "tollgate compact, 12 B a key";
pub(crate) const HALF_FULL: &str = "tollgate compact, half full";

/// The rows that tables of few rows have, and those of any kind of key.
fn both<K: Hash + Sync>() -> Vec<Recipe<K>> {
    vec![
        Recipe {
            name: COMPACT,
            counts: "check, GCRA, ahash, quanta clock; four slots a key: 64 B, of which 32 are touched",
            build: |setup| Box::new(Single::of(setup, ample(setup))),
        },
        Recipe {
            name: BATCHES,
            counts: "check_each on 16 keys: one clock reading, prefetched; a time a check, all work included",
            build: |setup| Box::new(Each::<16>::of(setup, ample(setup))),
        },
    ]
}

pub(crate) fn keyed() -> Vec<Recipe<u64>> {
    let mut rows = both();
    rows.extend([
        Recipe {
            name: "tollgate compact, batches of 8",
            counts: "check_each on 8 keys",
            build: |setup| Box::new(Each::<8>::of(setup, ample(setup))),
        },
        Recipe {
            name: "tollgate compact, batches of 64",
            counts: "check_each on 64 keys",
            build: |setup| Box::new(Each::<64>::of(setup, ample(setup))),
        },
        Recipe {
            name: "tollgate compact, vectors of 16",
            counts: "check_many on 16 keys: decisions written to a Vec, and read there",
            build: |setup| Box::new(Many(limiter(setup, ample(setup), Overflow::Spill))),
        },
        Recipe {
            name: "tollgate compact, hashed keys",
            counts: "check_hash on keys that are 64-bit hashes already",
            build: |setup| Box::new(Hashed(limiter(setup, ample(setup), Overflow::Spill))),
        },
    ]);
    rows
}

pub(crate) fn strings() -> Vec<Recipe<String>> {
    both()
}

pub(crate) fn addresses() -> Vec<Recipe<IpAddr>> {
    both()
}

/// The rows for tables of new keys.
pub(crate) fn new_keys() -> Vec<Recipe<u64>> {
    both()
}

/// Two slots a key, all of which owe: many keys are not at home.
pub(crate) fn half_full() -> Vec<Recipe<u64>> {
    vec![Recipe {
        name: HALF_FULL,
        counts: "check in a table of two slots a key",
        build: |setup| Box::new(Single::of(setup, Capacity::slots(length(setup.population * 2)))),
    }]
}

/// As small as the table may be if all keys owe at once.
pub(crate) fn tight_rows() -> Vec<Recipe<u64>> {
    vec![Recipe {
        name: TIGHT,
        counts: "check, with Capacity::for_traffic: fewer slots than keys, all of which owe, so that many checks evict one",
        build: |setup| Box::new(Single::of(setup, tight(setup))),
    }]
}

/// 24 bytes a key: what fits in memory with 100 M of them.
pub(crate) fn huge() -> Vec<Recipe<u64>> {
    fn capacity(setup: Setup) -> Capacity {
        Capacity::memory(length(setup.population * 24))
    }
    vec![
        Recipe {
            name: COMPACT,
            counts: "check, in 24 B a key with the sketch: 1.5 slots a key, some keys evicted",
            build: |setup| Box::new(Single::of(setup, capacity(setup))),
        },
        Recipe {
            name: BATCHES,
            counts: "check_each on 16 keys, in 24 B a key with the sketch",
            build: |setup| Box::new(Each::<16>::of(setup, capacity(setup))),
        },
    ]
}

/// A full table of keys that owe, in which each newcomer evicts one.
pub(crate) fn eviction() -> Vec<Recipe<u64>> {
    vec![
        Recipe {
            name: "tollgate compact, spill",
            counts: "check of a new key in a full table: its debt is looked up, another's recorded",
            build: |setup| Box::new(Single::full(setup, Overflow::Spill)),
        },
        Recipe {
            name: "tollgate compact, forget",
            counts: "check of a new key in a full table: another's debt is forgotten",
            build: |setup| Box::new(Single::full(setup, Overflow::Forget)),
        },
        Recipe {
            name: "tollgate compact, inherit",
            counts: "check of a new key in a full table: another's debt becomes its own",
            build: |setup| Box::new(Single::full(setup, Overflow::Inherit)),
        },
    ]
}

pub(crate) fn victims() -> Vec<Victim> {
    vec![
        Victim {
            name: COMPACT,
            counts: "check, 2^18 slots and as much memory for the sketch (4 MiB), spill",
            build: |setup| Box::new(Single::full(setup, Overflow::Spill)),
            unbounded: false,
        },
        Victim {
            name: "tollgate compact, all a core can",
            counts: "the same, with a flood as fast as one core can make it",
            build: |setup| Box::new(Single::full(setup, Overflow::Spill)),
            unbounded: true,
        },
    ]
}
