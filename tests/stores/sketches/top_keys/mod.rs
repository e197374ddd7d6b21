//! The heaviest keys of a stream.
//!
//! Properties, for any keys and weights, adds and merges (see `bounds`):
//! - Every count is right within its own error, and every error is within the documented bound.
//! - Every key above the bound has an entry.
//!
//! Properties of the sampled variant for many threads:
//! - The units in it plus the units that it dropped are the units that all threads recorded.
//! - A record never waits and never allocates.

mod sampled;

use proptest::prelude::*;
use proptest::sample::select;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use tollgate::sketch::{CutText, SampledTopKeys, TopKeys};
use tollgate_testing::bounds::Exact;
use tollgate_testing::compact::Random;
use tollgate_testing::kinds::Kind;
use tollgate_testing::operations::config;
use tollgate_testing::oracle::Spec;
use tollgate_testing::trace::{TRACES, directory, normalized};
use tollgate_testing::{HOUR, MINUTE};

fn top_keys<K>(entries: usize) -> TopKeys<K> {
    TopKeys::try_new(entries).expect("a small summary")
}

/// Adds of more keys than there are entries, so that most adds replace an entry. Weights are from zero to `u64::MAX`.
fn adds(keys: u32) -> impl Strategy<Value = Vec<(u32, u64)>> {
    let weight = prop_oneof![
        8 => Just(1_u64),
        4 => 0_u64..=20,
        1 => any::<u64>(),
        1 => select(vec![u64::MAX, u64::MAX - 1, u64::MAX / 2, 1 << 63]),
    ];
    let ordinary = prop::collection::vec((0..keys, 0_u64..=20), 0..200);
    prop_oneof![3 => ordinary, 1 => prop::collection::vec((0..keys, weight), 0..200)]
}

fn summed(entries: usize, adds: &[(u32, u64)]) -> (TopKeys<u32>, Exact<u32>) {
    let (mut ours, mut exact) = (top_keys(entries), Exact::new(entries));
    for &(key, n) in adds {
        ours.add(key, n);
        exact.add(key, n);
    }
    (ours, exact)
}

proptest! {
    #![proptest_config(config(400))]

    // G63
    #[test]
    fn every_bound_holds_after_every_add(entries in 1_usize..12, adds in adds(30)) {
        let (mut ours, mut exact) = (top_keys(entries), Exact::new(entries));
        for (key, n) in adds {
            ours.add(key, n);
            exact.add(key, n);
            exact.judge(&ours);
        }
    }

    // G63
    #[test]
    fn merged_bounds_cover_all_units(
        entries in 1_usize..12,
        parts in prop::collection::vec((adds(30), adds(30)), 1..5),
    ) {
        let (mut ours, mut exact) = summed(entries, &[]);
        for (part, more) in &parts {
            let (other, other_exact) = summed(entries, part);
            ours.merge(&other);
            exact.merge(&other_exact);
            exact.judge(&ours);
            // A merged summary continues like any other.
            for &(key, n) in more {
                ours.add(key, n);
                exact.add(key, n);
            }
            exact.judge(&ours);
        }
    }

    #[test]
    fn merged_error_is_bounded_by_smallest_sketch(
        entries in prop::array::uniform3(1_usize..12),
        adds in prop::array::uniform3(adds(30)),
    ) {
        let [(mut first, mut exact), (second, second_exact), (third, third_exact)] =
            std::array::from_fn(|i| summed(entries[i], &adds[i]));
        for (other, other_exact) in [(&second, &second_exact), (&third, &third_exact)] {
            first.merge(other);
            exact.merge(other_exact);
            exact.judge(&first);
        }
        let (more, more_exact) = summed(first.capacity(), &adds[0]);
        first.merge(&more);
        exact.merge(&more_exact);
        exact.judge(&first);
        prop_assert_eq!(first.capacity(), entries[0]);
    }

    #[test]
    fn different_texts_stay_separate_keys(texts in prop::collection::vec("[ab€]{0,6}", 0..60)) {
        let mut ours = top_keys::<CutText<5>>(1 << 12);
        let mut exact = HashMap::<&str, u64>::new();
        for text in &texts {
            ours.add(text.as_str().into(), 1);
            *exact.entry(text).or_default() += 1;
        }
        prop_assert_eq!(ours.len(), exact.len());
        for (text, units) in exact {
            let key = CutText::new(text);
            prop_assert!(text.starts_with(key.as_str()) && key.as_str().len() <= 5);
            prop_assert!(key.as_str().len() > 2 || !key.is_cut(), "more is cut than necessary");
            prop_assert_eq!((key.is_cut(), key.whole_len()), (key.as_str() != text, text.len()));
            prop_assert_eq!(ours.get(&key).map(|entry| (entry.count, entry.error)), Some((units, 0)));
        }
    }
}

#[test]
fn zero_weight_adds_no_entry() {
    let mut ours = top_keys(1);
    ours.add("a", 0);
    assert!(ours.is_empty() && ours.top(1).is_empty() && ours.get("a").is_none());
    ours.add("a", 2);
    ours.add("b", 0);
    assert_eq!((ours.len(), ours.max_error(), ours.total()), (1, 0, 2));
    ours.add("b", 1);
    assert_eq!((ours.len(), ours.max_error(), ours.total()), (1, 2, 3));
    ours.clear();
    assert_eq!((ours.len(), ours.max_error(), ours.total(), ours.capacity()), (0, 0, 0, 1));
    ours.add("b", 1);
    assert_eq!(ours.top(9)[0].key, "b");
}

#[test]
fn zero_or_huge_entry_counts_are_refused() {
    assert!(TopKeys::<u64>::try_new(0).unwrap_err().to_string().contains("at least 1"));
    assert!(SampledTopKeys::<u64>::try_new(0, 1).is_err());
    for entries in [1 << 31, usize::MAX / 2, usize::MAX] {
        let error = TopKeys::<u64>::try_new(entries).unwrap_err().to_string();
        assert!(error.contains("cannot allocate"), "{error}");
    }
}

#[test]
fn equal_counts_rank_by_entry_age() {
    let mut ours = top_keys(4);
    for key in ["d", "b", "c", "a", "b", "c"] {
        ours.add(key, 1);
    }
    let keys = |ours: &TopKeys<&'static str>| ours.top(9).iter().map(|entry| entry.key).collect::<Vec<_>>();
    assert_eq!(keys(&ours), ["b", "c", "d", "a"]);

    // The rank depends on when a key took its entry, not on which entry it took.
    let mut two = top_keys(2);
    ["a", "b", "c", "b"].into_iter().for_each(|key| two.add(key, 1));
    assert_eq!(keys(&two), ["b", "c"]);
    let mut many = top_keys(1_000);
    (0..1_000).for_each(|key| many.add(key, 1 + key % 2));
    let order: Vec<u64> = many.top(1_000).iter().map(|entry| entry.key).collect();
    assert!(order.into_iter().eq((0..1_000).map(|rank| (2 * rank + 1) % 1_001)));

    // New keys of the other summary come after the own keys, in the other's order.
    let (mut left, mut right) = (top_keys(8), top_keys(8));
    ["p", "q"].into_iter().for_each(|key| left.add(key, 1));
    ["z", "q", "y"].into_iter().for_each(|key| right.add(key, 1));
    left.add("o", 2);
    left.merge(&right);
    assert_eq!(keys(&left), ["q", "o", "p", "z", "y"]);
    // A new key comes after all of them.
    left.add("a", 1);
    assert_eq!(keys(&left), ["q", "o", "p", "z", "y", "a"]);
}

#[test]
fn hasher_secrets_do_not_change_results() {
    let run = || {
        let mut random = Random(5);
        let mut ours = top_keys(20);
        (0..5_000).for_each(|_| ours.add(random.below(40).min(random.below(40)), 1));
        ours.top(20).into_iter().copied().collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

/// A key whose hash is the same for all values.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Alike(u32);

impl Hash for Alike {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(0);
    }
}

#[test]
fn keys_with_equal_hash_stay_separate() {
    let (mut ours, mut exact) = (top_keys(50), Exact::new(50));
    let mut random = Random(1);
    for _ in 0..3_000 {
        let key = Alike(u32::try_from(random.below(120)).expect("small"));
        ours.add(key, 1);
        exact.add(key, 1);
    }
    exact.judge(&ours);
}

#[test]
fn flood_of_new_keys_keeps_heavy_keys() {
    const ENTRIES: u64 = 100;
    let (mut ours, mut exact) = (top_keys(100), Exact::new(100));
    let mut turn = |key: u64| {
        ours.add(key, 1);
        exact.add(key, 1);
    };
    for round in 0..2_000 {
        // Each round adds 101 units. The keys 1 and 2 come twice.
        [1, 2, 1, 2].into_iter().for_each(&mut turn);
        (0..97).for_each(|n| turn(1_000 + 97 * round + n));
    }
    exact.judge(&ours);
    let top = ours.top(3);
    assert_eq!([top[0].key.min(top[1].key), top[0].key.max(top[1].key)], [1, 2]);
    assert!(top[0].at_least() >= 4_000 - ours.total() / ENTRIES);
    // Keys of the flood have counts as high as the floor, and errors that show that these may be nothing.
    assert!(top[2].at_least() <= 1 && top[2].count <= ours.total() / ENTRIES + 1);
}

// G63
#[test]
fn worst_case_is_one_extra_key() {
    const ENTRIES: u64 = 64;
    let (mut ours, mut exact) = (top_keys(64), Exact::new(64));
    for turn in 0..(ENTRIES + 1) * 1_000 {
        ours.add(turn % (ENTRIES + 1), 1);
        exact.add(turn % (ENTRIES + 1), 1);
    }
    exact.judge(&ours);
    // No entry guarantees more than one unit, and the error reaches its bound.
    assert_eq!(ours.max_error(), ours.total() / ENTRIES);
    assert!(ours.top(64).iter().all(|entry| entry.at_least() <= 1));
}

#[test]
fn top_key_counts_saturate() {
    let mut ours = top_keys(2);
    ["a", "b"].into_iter().for_each(|key| ours.add(key, u64::MAX));
    ours.add("a", u64::MAX);
    ours.add("c", u64::MAX);
    assert_eq!((ours.total(), ours.max_error()), (u64::MAX, u64::MAX));
    assert!(ours.top(2).iter().all(|entry| entry.count == u64::MAX));
    let other = ours.clone();
    ours.merge(&other);
    assert_eq!(
        ours.top(2).iter().filter(|entry| entry.at_least() == u64::MAX).count(),
        1,
        "the summary guarantees no unit of key c"
    );
}

/// Returns the denied keys with their denials, most first, and the number of all denials.
/// Of two keys with equal denials, the key that was denied first comes first.
fn denials(denied: &[&str]) -> (Vec<(String, u64)>, u64) {
    let mut counts = HashMap::<&str, (u64, usize)>::new();
    for (turn, key) in denied.iter().enumerate() {
        counts.entry(key).or_insert((0, turn)).0 += 1;
    }
    let mut keys: Vec<_> = counts.into_iter().collect();
    keys.sort_by_key(|&(_, (count, first))| (Reverse(count), first));
    (keys.into_iter().map(|(key, (count, _))| (key.to_owned(), count)).collect(), denied.len() as u64)
}

/// Denials of real traffic: compares the ten most-denied keys with the results of summaries of several sizes and of
/// the sampled variant.
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn most_denied_keys_of_traces_are_found() {
    const TEN_A_MINUTE: Spec = Spec { limit: 10, period_ns: MINUTE, burst: 10 };
    const SIXTY_AN_HOUR: Spec = Spec { limit: 60, period_ns: HOUR, burst: 60 };
    let Some(directory) = directory() else { return };
    for (name, _) in TRACES {
        let trace = normalized(&directory, name);
        for spec in [TEN_A_MINUTE, SIXTY_AN_HOUR] {
            let limiter = tollgate_testing::subjects::keyed(Kind::Gcra, spec).expect("an ordinary quota");
            let denied = |record: &&tollgate_testing::trace::Record| {
                limiter.at(record.at_ns).check(record.client).is_denied()
            };
            let denied: Vec<&str> =
                trace.records.iter().filter(denied).map(|record| trace.client(record)).collect();
            let (exact, units) = denials(&denied);
            assert!(exact.len() > 5 && units > 1_000, "{name}: {} keys, {units} denials", exact.len());

            let all = SampledTopKeys::<CutText<8>>::try_new(exact.len(), 1).expect("small");
            let mut whole = top_keys::<CutText<8>>(exact.len());
            denied.iter().for_each(|key| {
                all.record_text(key);
                whole.add(CutText::new(key), 1);
            });
            let sampled = all.take();
            assert_eq!((sampled.dropped, sampled.keys.total()), (0, units));
            for ours in [&whole, &sampled.keys] {
                assert_eq!(ours.max_error(), 0);
                let ours: Vec<_> =
                    ours.top(usize::MAX).iter().map(|entry| (entry.key, entry.count)).collect();
                let exact: Vec<_> = exact.iter().map(|(key, n)| (CutText::new(key), *n)).collect();
                assert_eq!(ours, exact, "{name} {spec:?}: a summary with room for all keys is exact");
            }

            for entries in [16, 64, 256] {
                let mut ours = top_keys::<&str>(entries);
                let mut judge = Exact::new(entries);
                denied.iter().for_each(|&key| {
                    ours.add(key, 1);
                    judge.add(key, 1);
                });
                judge.judge(&ours);
                let top: Vec<&str> = ours.top(10).iter().map(|entry| entry.key).collect();
                let right = exact.iter().take(10).filter(|(key, _)| top.contains(&key.as_str())).count();
                // A key that exceeds the eleventh by more than the error is among the ten of the summary.
                let sure = ours.max_error() + exact.get(10).map_or(0, |(_, count)| *count);
                let certain = exact.iter().take(10).filter(|(_, count)| *count > sure).count();
                assert!(right >= certain, "{name} {spec:?}: {right} of {certain}");
            }
        }
    }
}

#[test]
fn text_is_cut_between_characters() {
    // Characters of two, three and four bytes.
    let text = "aé€😀";
    let kept = |text: CutText<4>| text.as_str().to_owned();
    assert_eq!(kept(CutText::new(text)), "aé");
    assert_eq!(kept(CutText::new(&text[1..])), "é");
    assert_eq!(kept(CutText::new(&text[3..])), "€");
    assert_eq!(kept(CutText::new(&text[6..])), "😀");
    assert_eq!(kept(CutText::new("")), "");
    assert!(!CutText::<4>::new("😀").is_cut());
}

#[test]
fn texts_with_equal_beginning_differ() {
    let texts = ["", "a", "ab", "abc", "abd", "abcd", "ab\0", "abc\0"];
    for (i, a) in texts.iter().enumerate() {
        for (j, b) in texts.iter().enumerate() {
            assert_eq!(CutText::<2>::new(a) == CutText::<2>::new(b), i == j, "{a:?} {b:?}");
            assert_eq!(CutText::<0>::new(a) == CutText::<0>::new(b), i == j, "{a:?} {b:?}");
        }
    }
    let [c, d] = ["abc", "abd"].map(|text| CutText::<2>::new(text).to_string());
    assert_ne!(c, d, "two cut texts are printed differently");
    assert_eq!(CutText::<2>::new("abcd").whole_len(), 4);
}
