//! What a check by rules allocates: nothing where rules count by one value each, be it admitted or refused; one text for a rule
//! that counts by several.
#![cfg(feature = "rules")]

#[path = "common/counting.rs"]
mod counting;

use counting::allocations;
use tollgate::rules::{Config, Descriptor, Rules};

const TEXT: &str = "
domain: d
tollgate: {}
descriptors:
  - { key: many, rate_limit: { unit: second, requests_per_unit: 1000000 } }
  - { key: none, rate_limit: { unit: year, requests_per_unit: 1 } }
  - key: path
    value: /login
    descriptors: [ { key: client, rate_limit: { unit: year, requests_per_unit: 1 } } ]
  - key: tenant
    descriptors: [ { key: client, rate_limit: { unit: year, requests_per_unit: 1 } } ]
";

/// The fewest of many calls: the first of a thread make what it keeps.
fn fewest(what: impl Fn()) -> u64 {
    (0..4).for_each(|_| what());
    (0..200).map(|_| allocations(&what)).min().unwrap_or(u64::MAX)
}

#[test]
fn a_check_allocates_nothing() {
    let rules = Rules::builder().load([Config::from_yaml("test.yaml", TEXT).unwrap()]).unwrap();
    let ask = |entries: &[(&str, &str)]| {
        let _ = rules.check("d", &[Descriptor::new(entries)]);
    };
    assert_eq!(fewest(|| ask(&[("many", "x")])), 0, "admitted");
    assert_eq!(fewest(|| ask(&[("none", "x")])), 0, "refused");
    assert_eq!(fewest(|| ask(&[("path", "/login"), ("client", "x")])), 0, "refused, by one of two values");
    assert_eq!(fewest(|| ask(&[("tenant", "t"), ("client", "x")])), 1, "refused, by both");
    let (one, other) = ([("many", "x")], [("none", "x")]);
    let both = [Descriptor::new(&one), Descriptor::new(&other)];
    assert_eq!(fewest(|| drop(rules.check("d", &both))), 0, "two rules");
    assert_eq!(fewest(|| drop(rules.check("nope", &both))), 0, "no rules");
}
