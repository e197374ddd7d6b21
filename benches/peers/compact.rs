//! Tollgate's rows for the compact store.

use std::hash::Hash;
use std::net::IpAddr;

use tollgate::{Capacity, Compact, Overflow, RateLimiter};

use crate::flood::Victim;
use crate::ours::gcra;
use crate::subject::{Recipe, Setup, Subject};
use crate::support::length;

/// Four slots per key. With a thousand keys, no key is evicted. With many keys, about one check in a million evicts a
/// key. With the sketch, this is 64 bytes per key, and checks touch 32 of them.
fn ample(setup: Setup) -> Capacity {
    Capacity::slots(length(setup.population.max(1_000)) * 4)
}

/// 12.3 bytes per key, for the table and the sketch together, if all keys have debts.
fn tight(setup: Setup) -> Capacity {
    // Each key must get its full quota.
    let terms = setup.expect.terms();
    let quota = tollgate::Quota::new(u64::from(terms.rate), terms.period).burst(u64::from(terms.burst));
    Capacity::for_traffic(setup.population * u64::from(terms.rate) / terms.period.as_secs(), &quota)
}

/// Uses the default hasher with fixed seeds, so that each run evicts the same keys.
fn limiter(setup: Setup, capacity: Capacity, overflow: Overflow) -> RateLimiter<Compact> {
    RateLimiter::builder(gcra(setup.expect))
        .hasher(ahash::RandomState::with_seeds(1, 2, 3, 4))
        .capacity(capacity)
        .overflow(overflow)
        .compact()
        .expect("the quota fits in a slot's word")
}

/// One `check` call per key.
struct Single(RateLimiter<Compact>);

impl Single {
    fn of(setup: Setup, capacity: Capacity) -> Self {
        Self(limiter(setup, capacity, Overflow::Spill))
    }

    /// Makes a table with exactly one slot per key of the scenario.
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

/// `check_hash`, for keys that are already hashes.
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

/// `check_each` on pieces of `N` keys. Each piece takes one clock reading and prefetches its memory. Admissions are
/// counted as they are decided.
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

/// `check_each` on pieces of 16 keys. Like [`Each`], but the decisions are written to a vector.
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
            self.0.check_each(batch.iter().map(|key| (key, 1)), |decision| decisions.push(decision));
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

/// The rows for tables with few rows. They work with any kind of key.
fn both<K: Hash + Sync>() -> Vec<Recipe<K>> {
    vec![
        Recipe {
            name: COMPACT,
            counts: "check, GCRA, ahash, default clock; four slots a key: 64 B, of which 32 are touched",
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
            counts: "check_each on 16 keys: decisions written to a Vec, and read there",
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

/// Two slots per key, and all keys have debts. Many keys are therefore not in their first slot.
pub(crate) fn half_full() -> Vec<Recipe<u64>> {
    vec![Recipe {
        name: HALF_FULL,
        counts: "check in a table of two slots a key",
        build: |setup| Box::new(Single::of(setup, Capacity::slots(length(setup.population * 2)))),
    }]
}

/// The smallest table that is allowed if all keys have debts at once.
pub(crate) fn tight_rows() -> Vec<Recipe<u64>> {
    vec![Recipe {
        name: TIGHT,
        counts: "check, with Capacity::for_traffic: fewer slots than keys, all of which owe, so that many checks evict one",
        build: |setup| Box::new(Single::of(setup, tight(setup))),
    }]
}

/// 24 bytes per key, so that 100 M keys fit in memory.
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

/// A full table of keys with debts, where each new key evicts another.
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
