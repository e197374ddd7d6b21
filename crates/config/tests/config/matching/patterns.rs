//! Patterns: what a `*` matches, and which of many patterns is the first.

use proptest::prelude::*;
use proptest::sample::select;
use tollgate_config::Domain;
use tollgate_testing::naive::{Entry, find, valid_entries, yaml};

use super::support::domain;

/// Returns a domain with these patterns as values of the key `k`. The names of the rules are their indices.
fn values(patterns: impl IntoIterator<Item = String>) -> Domain {
    let entry =
        |pattern| Entry { key: "k".to_owned(), value: Some(pattern), is_limited: true, ..Entry::default() };
    domain(&yaml(&patterns.into_iter().map(entry).collect::<Vec<_>>()))
}

fn first(domain: &Domain, key: &str, value: &str) -> Option<usize> {
    let found = domain.matching(&[(key, value)], None).first()?;
    Some(found.name.parse().expect("the name is a number"))
}

#[test]
fn stars_match_any_characters() {
    let matches = |row: &&str| {
        let (pattern, text) = row.split_once('=').expect("a pattern and a text");
        first(&values([pattern.to_owned()]), "k", text).is_some()
    };
    let like = "*= *=x **= /v1/*=/v1/ /v1/*=/v1/a/b /*/export/*=/v2/export/a /*/export/*=//export/ *.png=a.png \
                a*b*c=abc a*b*c=aXbYbZc *é*=café-au-lait a*a=aa";
    let unlike = "/v1/*=/v1 /*/export/*=/export/a a*a=a a*b*c=acb ab*bc=abc *x*x*=x A*=a /v1/=/v1/a";
    assert_eq!(like.split(' ').find(|row| !matches(row)), None);
    assert_eq!(unlike.split(' ').find(matches), None);
}

#[test]
fn hostile_patterns_take_linear_time() {
    let domain = values(["*a".repeat(5_000)]);
    assert_eq!(first(&domain, "k", &"a".repeat(4_999)), None);
    assert_eq!(first(&domain, "k", &"a".repeat(5_000)), Some(0));
}

#[test]
fn first_of_thousand_matches_is_found() {
    let domain = values((0..1_000).map(|n| format!("*/{n:03}/*")));
    let all: String = (0..1_000).rev().map(|n| format!("/{n:03}/")).collect();
    assert_eq!(first(&domain, "k", &all), Some(0));
    assert_eq!(first(&domain, "k", "/x/731/y/730/"), Some(730));
    assert_eq!(first(&domain, "k", "/x/1000/"), None);
    assert_eq!(first(&domain, "j", &all), None);
}

/// Each literal occurs in the text, most of them often, and only the last pattern matches.
#[test]
fn frequent_literals_fall_back_to_linear_search() {
    let frequent = (1..=200).map(|n| format!("*{}*b*", "a".repeat(n)));
    let domain = values(frequent.chain(["*c*a*".to_owned()]));
    let text = "ba".to_owned() + &"a".repeat(1_000);
    assert_eq!(first(&domain, "k", &text), None);
    assert_eq!(first(&domain, "k", &("c".to_owned() + &text)), Some(200));
    assert_eq!(first(&domain, "k", &(text + "b")), Some(0));
}

/// Texts from literals that contain each other, share their starts and ends, or are cut, with or without a `*`.
fn text(parts: usize, stars: u32) -> impl Strategy<Value = String> {
    let long = |end: char| "/b".repeat(12) + end.encode_utf8(&mut [0; 4]);
    let literals = ["a", "aa", "aaa", "ab", "ba", "/", "/a/", "/ab", "é", "éa", "\u{a9}", "日本"];
    let literals = literals.map(str::to_owned).into_iter().chain([long('x'), long('é')]).collect::<Vec<_>>();
    let part = prop_oneof![5 => select(literals).boxed(), stars => Just("*".to_owned()).boxed()];
    prop::collection::vec(part, 0..parts).prop_map(|parts| parts.concat())
}

/// Many patterns begin and end alike.
fn pattern() -> impl Strategy<Value = String> {
    let ends = [("*", "*"), ("/a*", "*"), ("*", "*ab"), ("/*", "*a"), ("", "")];
    (select(ends.to_vec()), text(5, 4)).prop_map(|((first, last), middle)| format!("{first}{middle}{last}"))
}

fn entry() -> impl Strategy<Value = Entry> {
    let key = prop_oneof![6 => Just("k".to_owned()), 2 => pattern(), 1 => Just("*".to_owned())];
    (key, prop::option::weighted(0.9, pattern())).prop_map(|(key, value)| Entry {
        key,
        value,
        is_limited: true,
        ..Entry::default()
    })
}

proptest! {
    #![proptest_config(tollgate_testing::operations::config(128))]

    #[test]
    fn many_patterns_match_as_the_naive_matcher(
        entries in prop::collection::vec(entry(), 0..60),
        requests in prop::collection::vec((prop_oneof![Just("k".to_owned()), text(4, 1)], text(12, 1)), 40),
    ) {
        let entries = valid_entries(entries);
        let domain = domain(&yaml(&entries));
        for (key, value) in &requests {
            let request = [(&**key, &**value)];
            let found = domain.matching(&request, None).first().map(|rule| rule.name.to_string());
            prop_assert_eq!(found, find(&entries, &request, None), "{} {}\n{}", key, value, yaml(&entries));
        }
    }
}
