//! How many keys each server of a set holds, and which keys move when the set changes.

use std::hash::Hasher;

use proptest::prelude::*;
use tollgate::Quota;
use tollgate_redis::internals::{KeyPlaces, places_of};
use tollgate_redis::{InProcess, Limit, Shard};
use tollgate_testing::operations::config;

/// A set of servers with weights.
struct Set {
    names: Vec<String>,
    places: KeyPlaces,
}

impl Set {
    fn new<'n>(servers: impl IntoIterator<Item = (&'n str, u32)>) -> Self {
        let servers: Vec<_> = servers.into_iter().collect();
        let shards =
            servers.iter().map(|(name, weight)| Shard::new(name, InProcess::default()).weight(*weight));
        let client = InProcess::sharded(shards.collect::<Vec<_>>()).expect("the set is valid");
        let places = places_of(&client.limiter("api", Limit::gcra(Quota::per_second(1))));
        Self { names: servers.into_iter().map(|(name, _)| name.to_owned()).collect(), places }
    }

    fn holder(&self, key: &[u8]) -> &str {
        &self.names[self.places.server(key)]
    }
}

/// The vector of the paper: key 00 … 0f, input 00 … 0e.
// G95
#[test]
#[expect(deprecated, reason = "std documents this hasher as SipHash-2-4")]
fn standard_hasher_is_siphash_2_4() {
    let all: Vec<u8> = (0..16).collect();
    let (key, input) = (&all, &all[..15]);
    let half = |at: usize| u64::from_le_bytes(key[at..at + 8].try_into().unwrap());
    for cut in 0..=input.len() {
        let mut hasher = std::hash::SipHasher::new_with_keys(half(0), half(8));
        hasher.write(&input[..cut]);
        hasher.write(&input[cut..]);
        assert_eq!(hasher.finish(), 0xa129_ca61_49be_45e5, "written in two parts, cut at {cut}");
    }
}

const KEYS: u32 = 20_000;

/// Whether `count` of `of` differs from the expected share by at most 4 standard deviations.
fn is_share(count: u32, of: u32, share: f64) -> bool {
    let (mean, deviation) = (f64::from(of) * share, (f64::from(of) * share * (1.0 - share)).sqrt());
    (f64::from(count) - mean).abs() <= 4.0 * deviation
}

// G95
#[test]
fn keys_split_by_weight() {
    for weights in [&[1, 1, 1][..], &[1, 2, 5], &[7], &[1; 30], &[1, 1_000], &[u32::MAX, u32::MAX / 3]] {
        let names: Vec<_> = (0..weights.len()).map(|at| format!("server-{at}")).collect();
        let set = Set::new(names.iter().map(String::as_str).zip(weights.iter().copied()));
        let mut counts = vec![0_u32; weights.len()];
        for key in 0..KEYS {
            counts[set.places.server(format!("key {key}").as_bytes())] += 1;
        }
        let total: f64 = weights.iter().copied().map(f64::from).sum();
        for (&count, &weight) in counts.iter().zip(weights) {
            assert!(is_share(count, KEYS, f64::from(weight) / total), "{weights:?}: {counts:?}");
        }
    }
}

/// Returns how many keys move from one set to another, and asserts that `may_move` permits each move.
fn moved(from: &Set, to: &Set, may_move: impl Fn(&str, &str) -> bool) -> u32 {
    let moves = (0..KEYS).filter(|&key| {
        let (old, new) = (from.holder(&key.to_le_bytes()), to.holder(&key.to_le_bytes()));
        assert!(old == new || may_move(old, new), "key {key} moved from {old} to {new}");
        old != new
    });
    moves.count().try_into().unwrap()
}

// G95
#[test]
fn change_moves_only_the_share_of_its_server() {
    let three = Set::new([("a", 1), ("b", 2), ("c", 5)]);
    let four = Set::new([("d", 2), ("a", 1), ("b", 2), ("c", 5)]);
    let heavier = Set::new([("c", 5), ("b", 4), ("a", 1)]);
    assert!(is_share(moved(&three, &four, |_, new| new == "d"), KEYS, 0.2), "add 2 to 8");
    assert!(is_share(moved(&four, &three, |old, _| old == "d"), KEYS, 0.2), "remove 2 of 10");
    assert!(is_share(moved(&three, &heavier, |_, new| new == "b"), KEYS, 0.4 - 0.25), "2 of 8 to 4 of 10");
    assert!(is_share(moved(&heavier, &three, |old, _| old == "b"), KEYS, 0.4 - 0.25), "4 of 10 to 2 of 8");
    let doubled = Set::new([("b", 4), ("c", 10), ("a", 2)]);
    assert_eq!(moved(&three, &doubled, |_, _| false), 0, "only ratios count");
}

proptest! {
    #![proptest_config(config(256))]

    /// A server that joins takes keys, and no key moves between the others. The order of the set has no effect.
    // G95
    #[test]
    fn joining_server_moves_keys_only_to_itself(
        weights in prop::collection::vec(1_u32..=50, 1..8),
        joins in 1_u32..=50,
        key in any::<Vec<u8>>(),
    ) {
        let names: Vec<_> = (0..weights.len()).map(|at| format!("s{at}")).collect();
        let pairs: Vec<_> = names.iter().map(String::as_str).zip(weights).collect();
        let mut more = pairs.clone();
        more.insert(0, ("joins", joins));
        let (before, after) = (Set::new(pairs), Set::new(more.clone()));
        let new = after.holder(&key);
        prop_assert!(new == "joins" || new == before.holder(&key));
        more.reverse();
        let reversed = Set::new(more);
        prop_assert_eq!(new, reversed.holder(&key));
    }
}
