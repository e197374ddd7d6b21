//! Counts without windows, and sets: compared with pingora-limits' `Estimator` and with fastbloom.

use fastbloom::AtomicBloomFilter;
use pingora_limits::estimator::Estimator;
use tollgate::sketch::{Bloom, CountMin};

use crate::subject::{Recipe, Setup};
use crate::support::length;
use crate::{Scene, call};

/// Returns the columns per row for 32 KiB, or for 8 MiB with a million keys, with counters of 8 bytes.
fn columns(setup: Setup) -> usize {
    if setup.population > 10_000 { 1 << 18 } else { 1 << 10 }
}

pub(crate) const COUNT_MIN: &str = "CountMin";
pub(crate) const ESTIMATOR: &str = "pingora Estimator";

fn counting() -> Vec<Recipe<u64>> {
    vec![
        Recipe {
            name: COUNT_MIN,
            counts: "add; 4 rows of 4-byte counters in as much memory as Estimator's",
            build: |setup| {
                let counts = CountMin::try_new(2 * columns(setup), 4).expect("a valid size");
                call(move |key| counts.add(key, 1) > 0)
            },
        },
        Recipe {
            name: ESTIMATOR,
            counts: "incr; 4 rows of 8-byte counters, plain count-min",
            build: |setup| {
                let estimator = Estimator::new(4, columns(setup));
                call(move |key| estimator.incr(key, 1) > 0)
            },
        },
    ]
}

pub(crate) const BLOOM: &str = "Bloom";
pub(crate) const FASTBLOOM: &str = "fastbloom + ahash";
/// Bits of memory for each key.
const BITS: usize = 16;

fn bloom(setup: Setup) -> Bloom {
    let items = length(setup.population);
    Bloom::for_memory(items * BITS / 8, items).expect("a valid size")
}

fn fastbloom(setup: Setup) -> AtomicBloomFilter<ahash::RandomState> {
    let items = length(setup.population);
    AtomicBloomFilter::with_num_bits(items * BITS).hasher(ahash::RandomState::new()).expected_items(items)
}

fn fastbloom_as_it_comes(setup: Setup) -> AtomicBloomFilter {
    let items = length(setup.population);
    AtomicBloomFilter::with_num_bits(items * BITS).expected_items(items)
}

/// Ignores the answer: the filter may report a new key as present.
#[inline(always)]
fn done(answer: bool) -> bool {
    std::hint::black_box(answer);
    true
}

fn inserting() -> Vec<Recipe<u64>> {
    vec![
        Recipe {
            name: BLOOM,
            counts: "insert; 16 bits a key, a word each",
            build: |setup| {
                let filter = bloom(setup);
                call(move |key| done(filter.insert(key)))
            },
        },
        Recipe {
            name: FASTBLOOM,
            counts: "insert; 16 bits a key, 11 bits of it anywhere",
            build: |setup| {
                let filter = fastbloom(setup);
                call(move |key| done(filter.insert(key)))
            },
        },
        Recipe {
            name: "fastbloom",
            counts: "insert, by its own hasher",
            build: |setup| {
                let filter = fastbloom_as_it_comes(setup);
                call(move |key| done(filter.insert(key)))
            },
        },
    ]
}

fn asking() -> Vec<Recipe<u64>> {
    vec![
        Recipe {
            name: BLOOM,
            counts: "contains, of keys that are in",
            build: |setup| {
                let filter = filled(setup, bloom(setup), |filter, key| filter.insert(key));
                call(move |key| filter.contains(key))
            },
        },
        Recipe {
            name: FASTBLOOM,
            counts: "contains, of keys that are in",
            build: |setup| {
                let filter = filled(setup, fastbloom(setup), |filter, key| filter.insert(key));
                call(move |key| filter.contains(key))
            },
        },
        Recipe {
            name: "fastbloom",
            counts: "contains, by its own hasher",
            build: |setup| {
                let filter = filled(setup, fastbloom_as_it_comes(setup), |filter, key| filter.insert(key));
                call(move |key| filter.contains(key))
            },
        },
    ]
}

fn filled<F>(setup: Setup, filter: F, insert: impl Fn(&F, &u64) -> bool) -> F {
    for number in 0..setup.population {
        insert(&filter, &crate::support::key(number));
    }
    filter
}

pub(crate) fn scenes() -> [Scene; 4] {
    [
        Scene::known("count-hot", "Counts: add to one of 1,000 keys", 1_000, ESTIMATOR, counting()),
        Scene::known("count-1m", "Counts: add to one of 1 M keys", 1_000_000, ESTIMATOR, counting()),
        Scene::new_keys("set-insert", "Sets: insert new keys, up to 1 M", 1_000_000, FASTBLOOM, inserting()),
        Scene::known("set-contains", "Sets: ask for one of 1 M keys", 1_000_000, FASTBLOOM, asking()),
    ]
}
