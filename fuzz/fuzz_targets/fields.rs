//! Writes decisions of real limiters, under random names, as header fields. Reading them back must give the same
//! values.

#![no_main]

use arbitrary::Unstructured;
use http::HeaderMap;
use libfuzzer_sys::{Corpus, fuzz_target};
use tollgate::{Decision, Quota};
use tollgate_http::{Dialect, Fields, Policy, Reset, problem};
use tollgate_testing::fuzzing::Case;
use tollgate_testing::kinds::{Kind, quota};
use tollgate_testing::reader::{entry, list, number, percent_decoded};
use tollgate_testing::subjects::direct;

/// Returns the last decision of a random run, and its quota.
fn decided(case: &Case) -> Option<(Quota, Decision)> {
    let Case { kind, spec, start, ops } = case;
    let (limiter, quota) = (direct(*kind, *spec)?, quota(*spec)?);
    let quota = if *kind == Kind::Spacing { Quota::new(1, quota.period()) } else { quota };
    let (mut oracle, mut now) = (kind.oracle(*spec), *start);
    let mut last = None;
    for op in ops {
        now = op.step.apply(now, *spec, &*oracle);
        let cost = op.cost.apply(now, &*oracle);
        let decision = limiter.at(now).check_n(0, cost);
        if decision.is_allowed() {
            oracle.offer(now, cost);
        }
        last = Some((quota, decision));
    }
    last
}

fn read_back(policies: &[Policy<'_>], nearest_only: bool, refuse: bool) {
    let written = |dialect| {
        let mut headers = HeaderMap::new();
        let fields = Fields::new(dialect).nearest_only(nearest_only);
        if refuse {
            fields.refuse(&mut headers, policies);
        } else {
            fields.write(&mut headers, policies);
        }
        headers
    };
    let figures = |policy: &Policy<'_>| {
        let available = policy.available();
        (policy.name().to_owned(), Some(available.units), Some(available.seconds))
    };

    let headers = written(Dialect::Draft11);
    let listed = list(&headers, "ratelimit-policy");
    assert_eq!(listed.len(), policies.len());
    for (member, policy) in listed.iter().zip(policies) {
        assert_eq!(member.name(), policy.name());
        assert_eq!(member.number("q"), Some(policy.quota().min(999_999_999_999_999)));
        assert_eq!(member.bytes("pk"), Some(policy.name().as_bytes()));
    }
    let shown = list(&headers, "ratelimit");
    assert!(!shown.is_empty());
    assert!(!nearest_only || shown.len() == 1);
    let known: Vec<_> = policies.iter().map(figures).collect();
    for member in &shown {
        assert!(known.contains(&(member.name(), member.number("r"), member.number("t"))));
    }

    let headers = written(Dialect::Draft07);
    let three = ["limit", "remaining", "reset"].map(|key| entry(&headers, "ratelimit", key));
    let headers = written(Dialect::Draft06);
    let again = ["limit", "remaining", "reset"].map(|key| number(&headers, &format!("ratelimit-{key}")));
    assert_eq!(three, again);
    let headers = written(Dialect::Legacy { reset: Reset::Delta });
    let again = ["limit", "remaining", "reset"].map(|key| number(&headers, &format!("x-ratelimit-{key}")));
    assert_eq!(three, again);
    number(&written(Dialect::Legacy { reset: Reset::Epoch }), "x-ratelimit-reset");

    let body: serde_json::Value = serde_json::from_str(&problem(policies)).expect("JSON");
    let names = body["violated-policies"].as_array().expect("the value is an array").iter();
    let names: Vec<String> =
        names.map(|name| percent_decoded(name.as_str().expect("the item is a string"))).collect();
    let violated = policies.iter().filter(|policy| policy.is_violated()).map(Policy::name);
    assert!(violated.eq(names.iter().map(String::as_str)));
}

fn play(bytes: &[u8]) -> arbitrary::Result<Corpus> {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let mut names = Unstructured::new(first);
    let (nearest_only, refuse) = (names.arbitrary()?, names.arbitrary()?);
    let (one, two): (&str, &str) = (names.arbitrary()?, names.arbitrary()?);
    let (head, tail) = second.split_at(second.len() / 2);
    let decisions = [head, tail]
        .map(|bytes| Case::read(&mut Unstructured::new(bytes), 1, true).ok().as_ref().and_then(decided));
    let policies: Vec<Policy<'_>> = decisions
        .iter()
        .flatten()
        .zip([one, two])
        .map(|((quota, decision), name)| Policy::new(name, quota, *decision).partition(name.as_bytes()))
        .collect();
    if policies.is_empty() {
        return Ok(Corpus::Reject);
    }
    read_back(&policies, nearest_only, refuse);
    Ok(Corpus::Keep)
}

// G69
fuzz_target!(|bytes: &[u8]| -> Corpus { play(bytes).unwrap_or(Corpus::Reject) });
