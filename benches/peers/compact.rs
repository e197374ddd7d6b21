//! Rows of tollgate's compact store.

use std::hash::Hash;

use tollgate::{Capacity, Compact, Gcra, RateLimiter};

use crate::harness::{Recipe, Setup, Subject};
use crate::ours::gcra;
use crate::support::length;

/// Four slots a key: so roomy that a bucket of eight overflows about once in 4,000, and keys that few are all kept.
/// In bytes, with the sketch: 64 a key, of which 32 are ever touched.
fn ample(setup: Setup) -> Capacity {
    Capacity::slots(length(setup.population.max(1_000)) * 4)
}

/// The default hasher with fixed keys, so that in every run the same buckets overflow, if any.
fn limiter(setup: Setup, capacity: Capacity) -> RateLimiter<Compact> {
    RateLimiter::builder(gcra(setup.expect))
        .hasher(ahash::RandomState::with_seeds(1, 2, 3, 4))
        .capacity(capacity)
        .compact()
        .expect("a quota that the words hold")
}

/// `check`, one by one.
struct Single(RateLimiter<Compact<Gcra>>);

impl<K: Hash + Sync> Subject<K> for Single {
    #[inline(always)]
    fn check(&self, key: &K) -> bool {
        self.0.check(key).is_allowed()
    }
}

/// `check_hash`, for keys that are hashes already.
struct Hashed(RateLimiter<Compact>);

impl Subject<u64> for Hashed {
    #[inline(always)]
    fn check(&self, key: &u64) -> bool {
        self.0.check_hash(*key, 1).is_allowed()
    }
}

/// `check_each` on pieces of `N`: one clock reading for each, memory asked for beforehand, admissions counted as they
/// are decided.
struct Each<const N: usize>(RateLimiter<Compact>);

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
}

pub(crate) const COMPACT: &str = "tollgate compact";
pub(crate) const BATCHES: &str = "tollgate compact, batches of 16";

/// The rows that every kind of key has.
fn of_any_key<K: Hash + Sync>() -> Vec<Recipe<K>> {
    vec![
        Recipe {
            name: COMPACT,
            counts: "check, GCRA, ahash, quanta clock; four slots a key, 64 B with the sketch",
            build: |setup| Box::new(Single(limiter(setup, ample(setup)))),
        },
        Recipe {
            name: BATCHES,
            counts: "check_each on 16 keys: one clock reading, prefetched; a time a check, all work included",
            build: |setup| Box::new(Each::<16>(limiter(setup, ample(setup)))),
        },
    ]
}

pub(crate) fn keyed() -> Vec<Recipe<u64>> {
    let mut rows = of_any_key();
    rows.extend([
        Recipe {
            name: "tollgate compact, batches of 8",
            counts: "check_each on 8 keys",
            build: |setup| Box::new(Each::<8>(limiter(setup, ample(setup)))),
        },
        Recipe {
            name: "tollgate compact, batches of 64",
            counts: "check_each on 64 keys",
            build: |setup| Box::new(Each::<64>(limiter(setup, ample(setup)))),
        },
        Recipe {
            name: "tollgate compact, vectors of 16",
            counts: "check_many on 16 keys: decisions written to a Vec, and read there",
            build: |setup| Box::new(Many(limiter(setup, ample(setup)))),
        },
        Recipe {
            name: "tollgate compact, hashed keys",
            counts: "check_hash on keys that are 64-bit hashes already",
            build: |setup| Box::new(Hashed(limiter(setup, ample(setup)))),
        },
    ]);
    rows
}

pub(crate) fn strings() -> Vec<Recipe<String>> {
    of_any_key()
}
