//! Property tests of the reader, with random texts.

use std::collections::HashSet;
use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::sample::select;
use tollgate_config::{Config, ConfigError, Domain};

use super::support::good;

type Read = fn(&str, &str) -> Result<Config, ConfigError>;

/// Random sequences of tokens from all three formats. They reach more code of the checker than random letters do.
fn text() -> impl Strategy<Value = String> {
    let words = "domain descriptors key value rate_limit unit requests_per_unit unlimited tollgate tiers members rate_limits \
                 replaces name algorithm gcra burst every store memory 4MiB second true null";
    let marks = [
        ": ", ":\n", "\n", "\n  ", "\n    ", "- ", "{", "}", "[", "]", ", ", "\"", "'", "5", "-1", "1.5",
        "~", "*", "&a ", "*a", "<<", "!!str ", "---\n", "%", "#", "= ", "é", "\t", "\\u", "|\n", ">\n", "? ",
        "a", "b",
    ];
    let pieces = words.split(' ').chain(marks).chain(["[[descriptors]]\n"]);
    let piece = select(pieces.collect::<Vec<_>>());
    prop_oneof![
        3 => prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat()),
        1 => ".{0,80}",
    ]
}

proptest! {
    #![proptest_config(tollgate_testing::operations::config(512))]

    // G68
    #[test]
    fn arbitrary_text_never_panics_reader(text in text()) {
        for read in [Config::from_yaml as Read, Config::from_json, Config::from_toml] {
            match read("any", &text) {
                Ok(config) => {
                    let domains = Domain::merge([config], false).expect("one file cannot clash with itself");
                    let rules = domains[0].matching(&[("a", "b"), ("", "")], Some("a"));
                    prop_assert!(rules.len() <= domains[0].rules().len());
                }
                Err(error) => {
                    let problems = error.problems();
                    prop_assert!(!problems.is_empty());
                    prop_assert!(problems.iter().all(|problem| problem.line() > 0), "{error}");
                    prop_assert_eq!(error.to_string().lines().count(), problems.len());
                }
            }
        }
    }

    #[test]
    #[ignore = "takes several seconds in a debug build; .ci/run runs it"]
    fn identities_are_unique_and_ignore_numbers(
        texts in prop::collection::vec("[a-b|=#\\\\*_ ]{1,4}", 2..6),
        numbers in prop::collection::vec(1_u32..1_000_000, 4),
    ) {
        let identities = |numbers: &[u32], algorithm: &str, store: &str| {
            let config = good(&file(&texts, numbers, algorithm, store));
            config.rules().iter().map(|rule| rule.identity.to_string()).collect::<Vec<_>>()
        };
        let one = identities(&numbers, "fixed-window", "keyed");
        let unique: HashSet<&String> = one.iter().collect();
        prop_assert_eq!(unique.len(), one.len(), "{:?}", one);
        let other: Vec<u32> = numbers.iter().map(|number| number % 1_000 + 7).collect();
        prop_assert_eq!(one, identities(&other, "sliding-window", "sketch"));
    }
}

/// Returns a file that uses each of these texts as a key, as a value, as a child's key and as a tier.
fn file(texts: &[String], numbers: &[u32], algorithm: &str, store: &str) -> String {
    let unique: Vec<&String> = texts.iter().collect::<HashSet<_>>().into_iter().collect();
    let mut sorted = unique;
    sorted.sort();
    let limit = |unit: &str, number: u32| {
        format!("{{ unit: {unit}, requests_per_unit: {number}, algorithm: {algorithm}, store: {store} }}")
    };
    let mut yaml = "domain: 'd|='\ntollgate: {}\ndescriptors:\n".to_owned();
    let mut entry = |key: &str, value: Option<&str>| {
        let value = value.map_or(String::new(), |value| format!("    value: '{value}'\n"));
        let [one, two, three, four] =
            [0, 1, 2, 3].map(|at| limit(["day", "day", "hour", "day"][at], numbers[at]));
        write!(
            yaml,
            "  - key: '{key}'\n{value}    rate_limit: {one}\n    tiers:\n      '{key}':\n        rate_limits: [{two}, {three}]\n"
        )
        .expect("writing to a String never fails");
        write!(yaml, "    descriptors:\n      - key: '{key}'\n        rate_limit: {four}\n")
            .expect("writing to a String never fails");
    };
    for key in &sorted {
        entry(key, None);
        for value in &sorted {
            entry(key, Some(value));
        }
    }
    yaml
}
