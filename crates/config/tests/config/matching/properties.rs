//! Random files and random requests, compared with the naive matcher.

use proptest::prelude::*;
use proptest::sample::select;

use super::support::domain;
use tollgate_testing::naive::{Entry, find, valid_entries, yaml};

/// Short random texts, so that equal texts are frequent.
fn text(letters: &'static str) -> impl Strategy<Value = String> {
    let letters: Vec<char> = letters.chars().collect();
    prop::collection::vec(select(letters), 0..6).prop_map(|letters| letters.into_iter().collect())
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![8 => select(vec!["k", "l"]).prop_map(str::to_owned), 1 => text("kl*")]
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let tier = (select(vec!["t", "u"]).prop_map(str::to_owned), prop::collection::vec(text("abé"), 0..3));
    let tiers = prop_oneof![4 => Just(Vec::new()), 1 => prop::collection::vec(tier, 1..3)];
    let leaf = (key(), prop::option::weighted(0.8, text("abé*")), prop::bool::weighted(0.8), tiers).prop_map(
        |(key, value, is_limited, tiers)| Entry { key, value, is_limited, tiers, children: Vec::new() },
    );
    let level = |leaf: BoxedStrategy<Entry>| {
        let children = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(leaf.clone(), 1..6)];
        (leaf, children).prop_map(|(entry, children)| Entry { children, ..entry }).boxed()
    };
    prop::collection::vec(level(level(leaf.boxed())), 1..24)
}

proptest! {
    #![proptest_config(tollgate_testing::operations::config(192))]

    // G66
    #[test]
    fn tree_matches_naive_matcher(
        entries in entries(),
        requests in prop::collection::vec(
            (prop::collection::vec((key(), text("abé*")), 1..4), prop::option::of(select(vec!["t", "u", "v"]))), 40
        ),
    ) {
        let entries = valid_entries(entries);
        let domain = domain(&yaml(&entries));
        for (request, tier) in requests {
            let request: Vec<(&str, &str)> = request.iter().map(|(key, value)| (&**key, &**value)).collect();
            let found = domain.matching(&request, tier);
            prop_assert!(found.len() <= 1);
            let expected = find(&entries, &request, tier);
            let name = found.first().map(|rule| rule.name.to_string());
            prop_assert_eq!(name, expected, "{:?} {:?}\n{}", request, tier, yaml(&entries));
        }
    }
}
