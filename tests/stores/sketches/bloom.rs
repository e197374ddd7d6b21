//! The Bloom filter on its own.
//!
//! Properties:
//! - An inserted key is found, under any operations and with any number of threads.
//! - If threads insert one key at the same time, at most one of them learns that the key is new.
//! - The share of false positives is as computed, for every size and for keys of every kind.

use proptest::prelude::*;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Barrier;
use tollgate::sketch::{Bloom, SketchError};
use tollgate_testing::operations::config;

fn seeded(filter: Bloom) -> Bloom {
    filter.with_hasher(ahash::RandomState::with_seeds(1, 2, 3, 4))
}

fn sized(bits_a_key: usize, items: usize) -> Bloom {
    seeded(Bloom::for_memory(bits_a_key * items / 8, items).expect("a small filter"))
}

#[derive(Copy, Clone, Debug)]
enum Op {
    Insert(u16),
    Contains(u16),
    Clear,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        20 => (0..500_u16).prop_map(Op::Insert),
        10 => (0..500_u16).prop_map(Op::Contains),
        1 => Just(Op::Clear),
    ];
    prop::collection::vec(op, 1..400)
}

proptest! {
    #![proptest_config(config(256))]

    // G60
    #[test]
    fn inserted_keys_are_found(bytes in 8..600_usize, items in 1..2_000_usize, ops in ops()) {
        let filter = seeded(Bloom::for_memory(bytes, items).expect("a small filter"));
        prop_assert!(filter.state_bytes() <= bytes);
        let mut truth = HashSet::new();
        for op in ops {
            match op {
                Op::Insert(key) => {
                    let found = filter.contains(&key);
                    prop_assert_eq!(filter.insert(&key), found, "insert and contains differ: {}", key);
                    prop_assert!(found || truth.insert(key), "an inserted key is reported new: {}", key);
                    truth.insert(key);
                    prop_assert!(filter.contains_hash(filter.hash(&key)));
                }
                Op::Contains(key) => prop_assert!(filter.contains(&key) || !truth.contains(&key)),
                Op::Clear => {
                    filter.clear();
                    truth.clear();
                }
            }
        }
        prop_assert!(truth.iter().all(|key| filter.contains(key)));
    }
}

#[test]
fn reports_size_and_is_send_sync_debug() {
    fn shared<T: Send + Sync + std::fmt::Debug + 'static>(_: &T) {}
    let filter =
        Bloom::for_memory(100, 60).expect("a small filter").with_hasher(std::hash::RandomState::new());
    shared(&filter);
    assert_eq!(filter.state_bytes(), 96);
    assert!(format!("{filter:?}").starts_with("Bloom { state_bytes: 96"));
}

/// The share of other keys that the filter takes for inserted keys.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn measured<K: Hash>(filter: &Bloom, items: usize, strangers: usize, key: impl Fn(usize) -> K) -> f64 {
    for item in 0..items {
        filter.insert(&key(item));
    }
    assert!((0..items).all(|item| filter.contains(&key(item))), "an inserted key is found");
    (items..items + strangers).filter(|&item| filter.contains(&key(item))).count() as f64 / strangers as f64
}

fn assert_near(measured: f64, computed: f64, what: &str) {
    assert!((measured - computed).abs() < 0.2 * computed, "{what}: {measured} measured, {computed} computed");
}

// G60
#[test]
fn false_positives_match_computed_share() {
    // Larger filters have fewer false positives and need more other keys, so that each size sees 300 or more. The last two
    // filters have another number of items than they were created for.
    for (bits_a_key, created_for, items, strangers) in [
        (8, 50_000, 50_000, 50_000),
        (10, 50_000, 50_000, 50_000),
        (12, 50_000, 50_000, 50_000),
        (16, 50_000, 50_000, 100_000),
        (24, 50_000, 50_000, 400_000),
        (10, 30_000, 15_000, 200_000),
        (10, 30_000, 60_000, 200_000),
    ] {
        let filter = sized(bits_a_key, created_for);
        let computed = filter.false_positives(items);
        let measured = measured(&filter, items, strangers, |item| item);
        assert_near(measured, computed, &format!("{bits_a_key} bits a key, {items} of {created_for} items"));
    }
}

// G60
#[test]
fn for_items_keeps_requested_share() {
    for share in [0.2, 0.03, 0.01, 0.003] {
        const ITEMS: usize = 40_000;
        let filter = seeded(Bloom::for_items(ITEMS, share).expect("a small filter"));
        assert_near(measured(&filter, ITEMS, 200_000, |item| item), share, "the requested share");
    }
}

#[test]
fn false_positives_match_for_all_key_types() {
    fn check<K: Hash>(kind: &str, key: impl Fn(u64) -> K) {
        const ITEMS: usize = 20_000;
        let filter = sized(10, ITEMS);
        let computed = filter.false_positives(ITEMS);
        assert_near(measured(&filter, ITEMS, 50_000, |n| key(n as u64)), computed, kind);
    }
    for_each_key_type!(check);
}

const THREADS: usize = if cfg!(miri) { 3 } else { 8 };

/// More threads than cores insert the same keys in the same order, so that several threads reach a key together.
// G60
#[test]
fn racing_inserts_report_a_key_new_once() {
    let items = if cfg!(miri) { 50 } else { 20_000 };
    for bits_a_key in [1, 10, 24] {
        let filter = sized(bits_a_key, items.max(64));
        let start = Barrier::new(THREADS);
        let told: Vec<Vec<bool>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        (0..items).map(|item| !filter.insert(&item)).collect()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
        });
        let new: Vec<usize> = (0..items).map(|item| told.iter().filter(|told| told[item]).count()).collect();
        assert!(new.iter().all(|&new| new <= 1), "two threads learn that one key is new");
        assert!((0..items).all(|item| filter.contains(&item)), "a key is missing");
        // If no thread learns that a key is new, other keys cover it. Such keys are at most as frequent as false
        // positives are in the end.
        let covered = new.iter().filter(|&&new| new == 0).count();
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let share = covered as f64 / items as f64;
        assert!(share <= 1.2 * filter.false_positives(items), "{bits_a_key}: {share}");
    }
}

fn refused<T>(result: Result<T, SketchError>) -> String {
    result.err().expect("the parameters are invalid").to_string()
}

#[test]
fn invalid_arguments_are_refused_with_advice() {
    assert!(refused(Bloom::for_items(0, 0.01)).contains("items is 0"));
    assert!(refused(Bloom::for_memory(8, 0)).contains("items is 0"));
    assert!(refused(Bloom::for_memory(7, 1)).contains("at least 8"));
    for nonsense in [f64::NAN, 0.0, -1.0, 1.0, 2.0, f64::INFINITY, f64::NEG_INFINITY] {
        assert!(refused(Bloom::for_items(10, nonsense)).contains("false positives"), "{nonsense}");
    }
    for rare in [f64::MIN_POSITIVE, 1e-9, 0.000_029] {
        assert!(refused(Bloom::for_items(10, rare)).contains("no less than 0.0000293"), "{rare}");
    }
    assert!(refused(Bloom::for_memory(usize::MAX, 1)).contains("cannot allocate"));
    assert!(refused(Bloom::for_items(usize::MAX, 0.01)).contains("cannot allocate"));
}

#[test]
fn for_items_creates_smallest_filter() {
    for share in [0.000_03, 0.001, 0.01, 0.3, 0.999] {
        for items in [1, 2, 1_000, 123_456] {
            let filter = Bloom::for_items(items, share).unwrap();
            assert!(filter.false_positives(items) <= share, "{items} {share}");
            let bytes = filter.state_bytes();
            assert!(bytes <= 8 * items);
            let smaller = Bloom::for_memory(bytes - 8, items).map(|filter| filter.false_positives(items));
            assert!(smaller.map_or(bytes == 8, |more| more > share), "{items} {share}: {bytes}");
        }
    }
}

#[test]
fn full_word_reports_every_key() {
    let filter = Bloom::for_memory(8, 1).unwrap();
    for key in 0..1_000 {
        filter.insert(&key);
    }
    assert!((0..2_000).all(|key| filter.contains(&key)));
    assert!(filter.false_positives(1_000) > 0.999);
    assert_eq!(filter.false_positives(0), 0.0);
}

/// Computes the same share in another way: it follows the distribution of the number of set bits in a word, from
/// draw to draw and from key to key.
fn by_filling(load: f64, bits: u32) -> f64 {
    const WORD_BITS: usize = 64;
    let mut set = vec![0.0; WORD_BITS + 1];
    set[0] = 1.0;
    let (mut share, mut poisson) = (0.0, (-load).exp());
    for keys in 1..200 {
        let full = set
            .iter()
            .zip(0_u32..)
            .map(|(p, set)| p * (f64::from(set) / WORD_BITS as f64).powf(f64::from(bits)));
        share += poisson * full.sum::<f64>();
        poisson *= load / f64::from(keys);
        for _ in 0..bits {
            for at in (0..WORD_BITS).rev() {
                let hit = at as f64 / WORD_BITS as f64;
                set[at + 1] += set[at] * (1.0 - hit);
                set[at] *= hit;
            }
        }
    }
    share
}

/// The number of bits of a key depends on the share of keys and words that the filter was created for.
#[test]
fn false_positive_formula_matches_simulation() {
    const WORDS: usize = 100;
    let mut seen = HashSet::new();
    for created_for in (1..20_000).step_by(5) {
        let filter = Bloom::for_memory(8 * WORDS, created_for).unwrap();
        let text = format!("{filter:?}");
        let bits = text.rsplit_once("bits: ").unwrap().1.split(',').next().unwrap().parse().unwrap();
        if !seen.insert(bits) {
            continue;
        }
        for items in [10, 100, 266, 400, 800, 1_600] {
            let load = f64::from(u32::try_from(items).unwrap()) / WORDS as f64;
            let (formula, filled) = (filter.false_positives(items), by_filling(load, bits));
            assert!((formula - filled).abs() <= filled * 1e-6 + 1e-12, "{load} {bits}: {formula} {filled}");
        }
    }
    assert_eq!(seen, (1..=10).collect());
}

#[test]
fn documented_false_positive_table_is_right() {
    for (bits_a_key, percent) in [(8, 3.35), (10, 1.78), (12, 1.04), (16, 0.405), (24, 0.100), (64, 0.0029)] {
        let share = sized(bits_a_key, 64_000).false_positives(64_000);
        assert!((share * 100.0 - percent).abs() < percent * 0.02, "{bits_a_key}: {share}");
    }
}

#[test]
fn false_positives_fall_with_memory() {
    const ITEMS: usize = 1_000_000;
    let mut last = 1.0;
    for words in [1, 2, 10, 1_000, 10_000, 100_000, ITEMS] {
        let share = Bloom::for_memory(8 * words, ITEMS).unwrap().false_positives(ITEMS);
        assert!((0.0..=last).contains(&share), "{words}: {share}");
        last = share;
    }
    assert!(last < 1e-4);
    assert_eq!(Bloom::for_memory(8, usize::MAX).unwrap().false_positives(usize::MAX), 1.0);
}
