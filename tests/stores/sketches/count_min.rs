//! The count-min sketch on its own.
//!
//! Properties:
//! - An estimate is never below its key's count, and never above the total count. This holds under any operations and
//!   with any number of threads.
//! - An add returns what the next estimate returns.
//! - The errors stay within the bounds that the sizes are computed from, for skewed and even traffic, and for keys of
//!   every kind.

use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Barrier;
use tollgate::sketch::{CountMin, SketchError};
use tollgate_testing::accuracy::random::{Random, Zipf};
use tollgate_testing::operations::config;

fn seeded(width: usize, depth: usize) -> CountMin {
    with_seeds(CountMin::try_new(width, depth).expect("a small sketch"), 1)
}

fn with_seeds(counts: CountMin, seed: u64) -> CountMin {
    counts.with_hasher(ahash::RandomState::with_seeds(seed, 2, 3, 4))
}

#[derive(Copy, Clone, Debug)]
enum Op {
    Add { key: u8, n: u64 },
    Estimate { key: u8 },
    Clear,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let n = prop_oneof![1 => Just(0), 20 => 1..10_u64, 4 => 0..1_000_000_000_u64, 1 => any::<u64>()];
    let op = prop_oneof![
        20 => (any::<u8>(), n).prop_map(|(key, n)| Op::Add { key, n }),
        8 => any::<u8>().prop_map(|key| Op::Estimate { key }),
        1 => Just(Op::Clear),
    ];
    prop::collection::vec(op, 1..300)
}

proptest! {
    #![proptest_config(config(256))]

    // G59
    #[test]
    fn estimates_lie_between_key_count_and_total(
        width in prop_oneof![1..5_usize, 1..200_usize],
        depth in 1..=8_usize,
        ops in ops(),
    ) {
        let counts = seeded(width, depth);
        let (mut truth, mut all) = (HashMap::<u8, u64>::new(), 0_u64);
        for op in ops {
            match op {
                Op::Add { key, n } => {
                    let counted = truth.entry(key).or_default();
                    *counted = counted.saturating_add(n).min(CountMin::MAX);
                    all = all.saturating_add(n).min(CountMin::MAX);
                    let told = counts.add(&key, n);
                    prop_assert!((*counted..=all).contains(&told), "{op:?}: {counted} {told} {all}");
                    prop_assert_eq!(counts.estimate(&key), told);
                }
                Op::Estimate { key } => {
                    let counted = truth.get(&key).copied().unwrap_or(0);
                    let told = counts.estimate_hash(counts.hash(&key));
                    prop_assert!((counted..=all).contains(&told), "{op:?}: {counted} {told} {all}");
                }
                Op::Clear => {
                    counts.clear();
                    truth.clear();
                    all = 0;
                }
            }
        }
    }
}

/// Adds a stream of keys to the sketch, and returns their exact counts.
fn count<K: Hash + Eq>(counts: &CountMin, keys: impl Iterator<Item = K>) -> HashMap<K, u64> {
    let mut truth = HashMap::new();
    for key in keys {
        counts.add(&key, 1);
        *truth.entry(key).or_insert(0) += 1;
    }
    truth
}

/// The share of keys whose estimates are too high by more than `error`.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn failures<K: Hash + Eq>(counts: &CountMin, truth: &HashMap<K, u64>, error: f64) -> f64 {
    let failed = truth.iter().filter(|(key, counted)| {
        let over = counts.estimate(*key).checked_sub(**counted).expect("an estimate is at least the count");
        over as f64 > error
    });
    failed.count() as f64 / truth.len() as f64
}

const EVENTS: usize = 100_000;

// G59
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn errors_stay_bounded_for_every_skew() {
    for (epsilon, delta) in [(0.001, 0.01), (0.01, 0.1), (0.002, 0.3)] {
        for seed in 1..4 {
            for exponent in [0.0, 0.8, 1.0, 1.3] {
                let counts = with_seeds(CountMin::for_error(epsilon, delta).expect("a small sketch"), seed);
                let (zipf, mut random) = (Zipf::new(20_000, exponent), Random::new(seed));
                let truth = count(&counts, (0..EVENTS).map(|_| zipf.sample(&mut random)));
                let failed = failures(&counts, &truth, epsilon * EVENTS as f64);
                assert!(failed <= delta, "{epsilon} {delta}: {failed} in Zipf {exponent}");
            }
        }
    }
}

// G59
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
#[test]
fn errors_stay_bounded_for_all_key_types() {
    fn check<K: Hash + Eq>(kind: &str, key: impl Fn(u64) -> K) {
        const KEYS: u64 = 10_000;
        // The sketch has a single row, where a bad spread would show.
        let counts = with_seeds(CountMin::for_error(0.002, 0.4).expect("a small sketch"), 7);
        assert_eq!(counts.depth(), 1);
        let truth = count(&counts, (0..10 * KEYS).map(|event| key(event % KEYS)));
        assert_eq!(truth.len() as u64, KEYS, "{kind}: two keys are equal");
        let mean = 10 * KEYS / counts.width() as u64;
        let failed = failures(&counts, &truth, 2.0 * mean as f64);
        // A counter has 7.35 keys on average. By the Poisson distribution, the chance of twice as many other keys is
        // 0.9 %. Keys fail in groups of 16; the bound is four standard deviations above.
        assert!(failed < 0.025, "{kind}: {failed}");
    }
    for_each_key_type!(check);
}

/// Keys at half their limit share the sketch with many others. They are wrongly denied no more often than requested.
#[test]
fn size_for_limit_bounds_wrong_denials() {
    const UNITS: u64 = 100_000;
    const LIMIT: u64 = 40;
    for share in [0.3, 0.05, 0.001] {
        for exponent in [0.0, 0.9] {
            let (width, depth) = CountMin::size_for_limit(UNITS, LIMIT, share).expect("ordinary traffic");
            let counts = seeded(width, depth);
            let (zipf, mut random) = (Zipf::new(50_000, exponent), Random::new(5));
            for _ in 0..UNITS {
                counts.add(&zipf.sample(&mut random), 1);
            }
            // New keys, each of which comes with half its limit, one at a time.
            let refused = (0..10_000).filter(|n| counts.estimate(&("stranger", n)) > LIMIT / 2).count();
            assert!(
                f64::from(u32::try_from(refused).expect("few")) <= share * 10_000.0,
                "{share}: {refused}"
            );
        }
    }
}

#[test]
fn reports_size_and_is_send_sync_debug() {
    fn shared<T: Send + Sync + std::fmt::Debug + 'static>(_: &T) {}
    let counts = CountMin::try_new(50, 3).expect("a small sketch").with_hasher(std::hash::RandomState::new());
    shared(&counts);
    assert_eq!((counts.width(), counts.depth(), counts.state_bytes()), (50, 3, 600));
    assert_eq!(format!("{counts:?}"), "CountMin { width: 50, depth: 3, .. }");
    fn error<T: std::error::Error + Send + Sync + 'static>(_: T) {}
    error(CountMin::try_new(0, 1).expect_err("no counters"));
}

#[test]
fn same_seeds_give_same_estimates() {
    let (one, other) = (seeded(50, 3), seeded(50, 3));
    for key in 0..1_000 {
        assert_eq!(one.add(&(key % 77), 1), other.add(&(key % 77), 1));
    }
    assert_eq!(one.hash("key"), other.hash("key"));
}

const THREADS: usize = if cfg!(miri) { 3 } else { 8 };
const ROUNDS: u64 = if cfg!(miri) { 30 } else { 5_000 };

/// More threads than cores add to one hot key, five warm keys and a stream of other keys, all at once.
// G59
#[test]
fn racing_adds_lose_no_count() {
    for (width, depth) in [(1, 1), (1, 4), (2, 2), (3, 3), (16, 4), (50, 8), (4_096, 4)] {
        let counts = seeded(width, depth);
        let start = Barrier::new(THREADS);
        let told: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS as u64)
                .map(|thread| {
                    let (counts, start) = (&counts, &start);
                    scope.spawn(move || {
                        start.wait();
                        let told = (0..ROUNDS).map(|round| {
                            counts.add(&("warm", round % 5), round % 3);
                            counts.add(&("other", thread, round), 1);
                            counts.add("hot", 1)
                        });
                        told.collect()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
        });
        let hot = ROUNDS * THREADS as u64;
        assert!(counts.estimate("hot") >= hot, "{width}x{depth}: {} of {hot}", counts.estimate("hot"));
        for warm in 0..5 {
            let each: u64 = (0..ROUNDS).filter(|round| round % 5 == warm).map(|round| round % 3).sum();
            let (told, truth) = (counts.estimate(&("warm", warm)), each * THREADS as u64);
            assert!(told >= truth, "{width}x{depth}: {told} of {truth}");
        }
        for thread in 0..THREADS as u64 {
            assert!((0..ROUNDS).all(|round| counts.estimate(&("other", thread, round)) >= 1));
        }
        // Each add to a key includes all earlier adds. So no two adds return the same number, and one thread's rise.
        assert!(told.iter().all(|told| told.is_sorted_by(|a, b| a < b)), "{width}x{depth}");
        let different: HashSet<u64> = told.iter().flatten().copied().collect();
        assert_eq!(different.len() as u64, hot, "{width}x{depth}: two adds return the same number");
    }
}

#[test]
fn racing_adds_saturate_at_max() {
    let counts = seeded(2, 3);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..100 {
                    let told = counts.add("key", CountMin::MAX / 100);
                    assert!((CountMin::MAX / 100..=CountMin::MAX).contains(&told));
                }
            });
        }
    });
    assert_eq!(counts.estimate("key"), CountMin::MAX);
    assert_eq!(counts.add("key", 1), CountMin::MAX);
}

fn refused<T>(result: Result<T, SketchError>) -> String {
    result.err().expect("the parameters are invalid").to_string()
}

#[test]
fn invalid_arguments_are_refused_with_advice() {
    assert!(refused(CountMin::try_new(0, 4)).contains("at least 1 counter"));
    for depth in [0, 9, usize::MAX] {
        assert!(refused(CountMin::try_new(1, depth)).contains("1 to 8 rows"));
        assert!(refused(CountMin::for_memory(1 << 10, depth)).contains("1 to 8 rows"));
    }
    for width in [usize::MAX, usize::MAX / 4, usize::MAX / 8, isize::MAX as usize / 4] {
        for depth in [1, 3, 8] {
            assert!(refused(CountMin::try_new(width, depth)).contains("cannot allocate"), "{width}");
        }
    }
    assert!(refused(CountMin::for_memory(usize::MAX, 4)).contains("cannot allocate"));
    assert!(refused(CountMin::for_memory(15, 4)).contains("at least 16"));
    assert_eq!(CountMin::for_memory(16, 4).unwrap().width(), 1);
    for nonsense in [f64::NAN, 0.0, -0.0, -1.0, 1.0, 2.0, f64::INFINITY, f64::NEG_INFINITY] {
        assert!(refused(CountMin::for_error(nonsense, 0.01)).contains("epsilon"), "{nonsense}");
        assert!(refused(CountMin::for_error(0.01, nonsense)).contains("delta"), "{nonsense}");
        assert!(refused(CountMin::size_for_limit(1, 1, nonsense)).contains("wrong denials"), "{nonsense}");
    }
    assert!(refused(CountMin::size_for_limit(1, 0, 0.5)).contains("limit is 0"));
    assert!(refused(CountMin::for_error(f64::MIN_POSITIVE, 0.5)).contains("cannot allocate"));
}

#[test]
fn for_error_computes_width_and_depth() {
    for (epsilon, delta, width, depth) in
        [(0.01, 0.01, 272, 5), (0.001, 0.5, 2_719, 1), (0.999_999, 0.000_336, 3, 8), (0.5, 0.999_999, 6, 1)]
    {
        let counts = CountMin::for_error(epsilon, delta).unwrap();
        assert_eq!((counts.width(), counts.depth()), (width, depth), "{epsilon} {delta}");
        assert_eq!(counts.state_bytes(), width * depth * 4);
    }
}

/// The width in the error message is the smallest that reaches delta: (1 / (width × epsilon))^8 ≤ delta.
#[test]
fn too_small_delta_is_refused_with_a_width() {
    let error = refused(CountMin::for_error(0.01, 1e-6));
    assert!(error.contains("8 rows of 563 counters"), "{error}");
    assert!((1.0_f64 / (563.0 * 0.01)).powi(8) < 1e-6);
    assert!((1.0_f64 / (562.0 * 0.01)).powi(8) > 1e-6);
}

#[test]
fn size_for_limit_keeps_markov_bound() {
    for units in [0, 1, 1_000, 10_000_000, u64::MAX] {
        for limit in [1, 2, 1_000, u64::MAX] {
            for share in [0.9, 0.1, 1e-3, 1e-5, 1e-12, f64::MIN_POSITIVE] {
                let (width, depth) = CountMin::size_for_limit(units, limit, share).unwrap();
                assert!(width >= 1 && (1..=8).contains(&depth));
                let row = units as f64 / (width as f64 * 0.5 * limit as f64);
                let all = row.powi(i32::try_from(depth).unwrap());
                assert!(all <= share * 1.000_001 || width == usize::MAX, "{units} {limit} {share}: {all}");
            }
        }
    }
}

#[test]
fn for_memory_stays_within_bytes() {
    for bytes in [4, 31, 32, 33, 1_000, 1 << 20] {
        for depth in [1, 8].into_iter().filter(|depth| depth * 4 <= bytes) {
            let counts = CountMin::for_memory(bytes, depth).unwrap();
            assert!(counts.state_bytes() <= bytes && counts.state_bytes() + 4 * depth > bytes);
        }
    }
}

#[test]
fn shared_counter_counts_all_keys() {
    for depth in 1..=8 {
        let counts = seeded(1, depth);
        for (before, key) in (0..10).zip(["a", "b", "c"].iter().cycle()) {
            assert_eq!(counts.add(key, 1), before + 1);
        }
        assert_eq!(counts.estimate("d"), 10);
    }
}

#[test]
fn counters_saturate_at_max() {
    for depth in 1..=8 {
        let counts = seeded(2, depth);
        for units in [
            [CountMin::MAX - 5, 7],
            [CountMin::MAX - 1, 1],
            [CountMin::MAX, 1],
            [CountMin::MAX + 1, 0],
            [u64::MAX; 2],
        ] {
            counts.clear();
            assert_eq!(counts.add(&1, units[0]), units[0].min(CountMin::MAX), "{units:?}");
            assert_eq!(counts.add(&1, units[1]), CountMin::MAX, "{units:?}");
            assert_eq!(counts.estimate(&1), CountMin::MAX);
        }
    }
}
