//! The floor: the shortest possible time of a check by any keyed limiter with a real clock, and the parts of that time.
//!
//! A denied check reads the clock, hashes the key, loads one word and compares it; it needs no exchange. In tables of
//! denials, the floor's row is therefore the shortest possible time of a denial.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::keys::Key;
use crate::subject::{Contender, Expect, Recipe, Setup, Subject};
use crate::support::{length, stopwatch};

/// GCRA as governor implements it: emission interval and tolerance in nanoseconds, and the TAT in one word.
pub(crate) struct Gcra {
    interval_ns: u64,
    tolerance_ns: u64,
}

impl Gcra {
    pub(crate) fn new(expect: Expect) -> Self {
        let terms = expect.terms();
        let interval_ns =
            u64::try_from(terms.interval().as_nanos()).expect("the interval is at most an hour");
        Self { interval_ns, tolerance_ns: interval_ns * (u64::from(terms.burst) - 1) }
    }

    #[inline(always)]
    pub(crate) fn check(&self, word: &AtomicU64, now: u64) -> bool {
        let mut arrival = word.load(Ordering::Relaxed);
        loop {
            if arrival > now.saturating_add(self.tolerance_ns) {
                return false;
            }
            let next = arrival.max(now).saturating_add(self.interval_ns);
            match word.compare_exchange_weak(arrival, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => arrival = seen,
            }
        }
    }
}

pub(crate) struct Clock {
    clock: quanta::Clock,
    start: u64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let clock = quanta::Clock::new();
        Self { start: clock.raw(), clock }
    }

    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        self.clock.delta_as_nanos(self.start, self.clock.raw())
    }
}

/// A limiter that hashes the key, reads the clock, and makes one CAS in a flat array that holds no keys. Keys whose
/// hashes have the same low bits share a word.
struct Floor<W> {
    hasher: ahash::RandomState,
    clock: Clock,
    gcra: Gcra,
    words: Box<[W]>,
}

impl<W: Default> Floor<W> {
    fn new(setup: Setup) -> Self {
        // In a scenario that denies some keys, only few other keys may share a word with them. Otherwise the share of
        // denials would change.
        let spread = if matches!(setup.expect, Expect::Denying(_)) { 16 } else { 1 };
        let words = length(setup.population).next_power_of_two() * spread;
        Self {
            hasher: ahash::RandomState::new(),
            clock: Clock::new(),
            gcra: Gcra::new(setup.expect),
            words: std::iter::repeat_with(W::default).take(words).collect(),
        }
    }

    #[inline(always)]
    fn word<Q: std::hash::Hash + ?Sized>(&self, key: &Q) -> &W {
        #[expect(clippy::cast_possible_truncation, reason = "an index keeps the hash's low bits")]
        let index = self.hasher.hash_one(key) as usize & (self.words.len() - 1);
        &self.words[index]
    }
}

impl Subject<u64> for Floor<AtomicU64> {
    #[inline(always)]
    fn check(&self, key: &u64) -> bool {
        self.gcra.check(self.word(key), self.clock.now())
    }
}

impl Subject<u64> for Floor<CachePadded<AtomicU64>> {
    #[inline(always)]
    fn check(&self, key: &u64) -> bool {
        self.gcra.check(self.word(key), self.clock.now())
    }
}

impl Subject<String> for Floor<AtomicU64> {
    #[inline(always)]
    fn check(&self, key: &String) -> bool {
        self.gcra.check(self.word(key.as_str()), self.clock.now())
    }
}

impl Subject<IpAddr> for Floor<AtomicU64> {
    #[inline(always)]
    fn check(&self, key: &IpAddr) -> bool {
        self.gcra.check(self.word(key), self.clock.now())
    }
}

/// One word that all keys share.
struct OneWord {
    clock: Clock,
    gcra: Gcra,
    word: CachePadded<AtomicU64>,
}

impl Subject<u64> for OneWord {
    #[inline(always)]
    fn check(&self, _: &u64) -> bool {
        self.gcra.check(&self.word, self.clock.now())
    }
}

/// A part of a check: an operation on a key that the optimiser must not remove.
struct Piece<F>(F);

impl<K: Key, R, F: Fn(&K) -> R + Sync> Subject<K> for Piece<F> {
    #[inline(always)]
    fn check(&self, key: &K) -> bool {
        std::hint::black_box((self.0)(key));
        true
    }
}

fn piece<K: Key, R: 'static>(operation: impl Fn(&K) -> R + Sync + 'static) -> Box<dyn Contender<K>> {
    Box::new(Piece(operation))
}

pub(crate) const FLOOR: &str = "floor";
pub(crate) const COUNTER: &str = "quanta now";

/// The clock reading, which every check with this clock needs.
pub(crate) fn counter() -> Vec<Recipe<u64>> {
    vec![Recipe {
        name: COUNTER,
        counts: "time-stamp counter, scaled to nanoseconds",
        build: |_| {
            let clock = Clock::new();
            piece(move |_: &u64| clock.now())
        },
    }]
}

pub(crate) fn keyed() -> Vec<Recipe<u64>> {
    vec![
        Recipe {
            name: FLOOR,
            counts: "quanta now + ahash + GCRA + one CAS on an 8-byte word of a flat array; no keys kept",
            build: |setup| Box::new(Floor::<AtomicU64>::new(setup)),
        },
        Recipe {
            name: "floor, a line a key",
            counts: "the same with each word on its own pair of cache lines",
            build: |setup| Box::new(Floor::<CachePadded<AtomicU64>>::new(setup)),
        },
    ]
}

pub(crate) fn strings() -> Vec<Recipe<String>> {
    vec![Recipe {
        name: FLOOR,
        counts: "quanta now + ahash of 24 bytes + GCRA + one CAS in a flat array; no keys kept",
        build: |setup| Box::new(Floor::<AtomicU64>::new(setup)),
    }]
}

pub(crate) fn addresses() -> Vec<Recipe<IpAddr>> {
    vec![Recipe {
        name: FLOOR,
        counts: "quanta now + ahash of an IpAddr + GCRA + one CAS in a flat array; no keys kept",
        build: |setup| Box::new(Floor::<AtomicU64>::new(setup)),
    }]
}

/// The floor's row without variants, for tables with few rows.
pub(crate) fn alone() -> Vec<Recipe<u64>> {
    keyed().into_iter().filter(|recipe| recipe.name == FLOOR).collect()
}

pub(crate) fn one_word() -> Vec<Recipe<u64>> {
    vec![Recipe {
        name: FLOOR,
        counts: "quanta now + GCRA + one CAS on one word",
        build: |setup| {
            Box::new(OneWord {
                clock: Clock::new(),
                gcra: Gcra::new(setup.expect),
                word: CachePadded::default(),
            })
        },
    }]
}

/// Returns the parts of a check as rows. With two threads, each thread has its own stream of keys, and only the CAS and
/// the fetch-add touch shared memory.
pub(crate) fn pieces() -> Vec<Recipe<u64>> {
    let mut rows =
        vec![Recipe { name: "read the key", counts: "the loop itself", build: |_| piece(|key: &u64| *key) }];
    rows.extend(counter());
    rows.extend([
        Recipe {
            name: "Instant::now",
            counts: "the operating system's clock",
            build: |_| piece(|_: &u64| stopwatch()),
        },
        Recipe {
            name: "ahash of u64",
            counts: "one keyed hash",
            build: |_| {
                let hasher = ahash::RandomState::new();
                piece(move |key: &u64| hasher.hash_one(key))
            },
        },
        Recipe {
            name: "epoch pin",
            counts: "crossbeam-epoch pin and unpin",
            build: |_| piece(|_: &u64| drop(crossbeam_epoch::pin())),
        },
        Recipe {
            name: "CAS",
            counts: "load and compare-and-swap of one word until it succeeds",
            build: |_| {
                let word = CachePadded::new(AtomicU64::new(0));
                piece(move |key: &u64| {
                    let mut seen = word.load(Ordering::Relaxed);
                    while let Err(now) = word.compare_exchange_weak(
                        seen,
                        seen ^ *key | 1,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    ) {
                        seen = now;
                    }
                })
            },
        },
        Recipe {
            name: "fetch_add",
            counts: "one fetch-add on one word",
            build: |_| {
                let word = CachePadded::new(AtomicU64::new(0));
                piece(move |_: &u64| word.fetch_add(1, Ordering::Relaxed))
            },
        },
    ]);
    rows
}

pub(crate) fn string_pieces() -> Vec<Recipe<String>> {
    vec![Recipe {
        name: "ahash of 24 bytes",
        counts: "one keyed hash of a string in cache",
        build: |_| {
            let hasher = ahash::RandomState::new();
            piece(move |key: &String| hasher.hash_one(key.as_str()))
        },
    }]
}
