//! A client reads back the values that the limiter wrote.
//!
//! Properties, for names of any characters and decisions of any algorithm:
//! - In all dialects, every value is a structured field.
//! - Names, quotas, windows, counts and partitions match the policies.
//! - The problem document is valid JSON and has the same names as the fields.

use http::HeaderMap;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate::{Decision, Quota};
use tollgate_http::{Dialect, Fields, Policy, Reset, problem};
use tollgate_testing::kinds::{ALL, Kind, quota};
use tollgate_testing::operations::{config, spec, start};
use tollgate_testing::reader::{Member, entry, list, number, percent_decoded};
use tollgate_testing::subjects::direct;

#[derive(Clone, Debug)]
struct Limit {
    name: String,
    quota: Quota,
    decision: Decision,
    partition: Option<Vec<u8>>,
    enforced: bool,
}

impl Limit {
    fn policy(&self) -> Policy<'_> {
        let policy = Policy::new(&self.name, &self.quota, self.decision).enforced(self.enforced);
        self.partition.as_deref().map_or(policy, |key| policy.partition(key))
    }
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-z_-]{1,12}",
        2 => "[ -~]{0,20}",
        2 => any::<String>(),
        1 => "[\u{0}-\u{ff}\"\\\\%,;]{0,300}",
    ]
}

fn limit() -> impl Strategy<Value = Option<Limit>> {
    let decision = (select(ALL.to_vec()), spec(), start(), 0_u64..=20, 0_u64..=20);
    let partition = prop::option::weighted(0.2, prop::collection::vec(any::<u8>(), 0..40));
    (decision, name(), partition, prop::bool::weighted(0.9)).prop_map(
        |((kind, spec, start, first, second), name, partition, enforced)| {
            let limiter = direct(kind, spec)?;
            let quota = quota(spec)?;
            limiter.at(start).check_n(0, first);
            let decision = limiter.at(start.saturating_add(spec.period_ns / 7)).check_n(0, second);
            let quota = if kind == Kind::Spacing { Quota::new(1, quota.period()) } else { quota };
            Some(Limit { name, quota, decision, partition, enforced })
        },
    )
}

fn numbers(member: &Member) -> (String, Option<u64>, Option<u64>, Option<Vec<u8>>) {
    let bytes = member.bytes("pk").map(<[u8]>::to_vec);
    (member.name(), member.number("r"), member.number("t"), bytes)
}

fn written(dialect: Dialect, policies: &[Policy<'_>], refuse: bool) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let fields = Fields::new(dialect);
    if refuse {
        fields.refuse(&mut headers, policies);
    } else {
        fields.write(&mut headers, policies);
    }
    headers
}

const MAX: u64 = 999_999_999_999_999;

fn assert_reads_back(limits: &[Limit], refuse: bool) {
    let all: Vec<Policy<'_>> = limits.iter().map(Limit::policy).collect();
    let (told, violated): (Vec<&Limit>, Vec<&Limit>) = (
        limits.iter().filter(|limit| limit.enforced).collect(),
        limits.iter().filter(|limit| limit.enforced && limit.decision.is_denied()).collect(),
    );

    let headers = written(Dialect::Draft11, &all, refuse);
    let policies: Vec<_> = list(&headers, "ratelimit-policy")
        .iter()
        .map(|member| (member.name(), member.number("q"), member.number("w"), member.text("qu").is_none()))
        .collect();
    let expected: Vec<_> = told
        .iter()
        .map(|limit| {
            let window = limit.policy().window();
            let seconds = window.as_secs() + u64::from(window.subsec_nanos() > 0);
            (limit.name.clone(), Some(limit.decision.limit().min(MAX)), Some(seconds), true)
        })
        .collect();
    assert_eq!(policies, expected);

    let available: Vec<_> = list(&headers, "ratelimit").iter().map(numbers).collect();
    let shown = if refuse && !violated.is_empty() { &violated } else { &told };
    let expected: Vec<_> = shown
        .iter()
        .map(|limit| {
            let available = limit.policy().available();
            (limit.name.clone(), Some(available.units), Some(available.seconds), limit.partition.clone())
        })
        .collect();
    assert_eq!(available, expected);

    let figures: Vec<(u64, u64, u64)> = told
        .iter()
        .map(|limit| {
            let available = limit.policy().available();
            (limit.decision.limit().min(MAX), available.units, available.seconds)
        })
        .collect();
    if !told.is_empty() {
        let headers = written(Dialect::Draft07, &all, refuse);
        let three = ["limit", "remaining", "reset"].map(|key| entry(&headers, "ratelimit", key));
        assert!(figures.contains(&three.into()), "{three:?} of {figures:?}");
        let quotas: Vec<u64> = list(&headers, "ratelimit-policy").iter().map(Member::value).collect();
        assert!(quotas.iter().eq(figures.iter().map(|(quota, ..)| quota)));

        let headers = written(Dialect::Draft06, &all, refuse);
        let again =
            ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"].map(|name| number(&headers, name));
        assert_eq!(again, three);
        let headers = written(Dialect::Legacy { reset: Reset::Delta }, &all, refuse);
        let again =
            ["limit", "remaining", "reset"].map(|name| number(&headers, &format!("x-ratelimit-{name}")));
        assert_eq!(again, three);
        let headers = written(Dialect::Legacy { reset: Reset::Epoch }, &all, refuse);
        number(&headers, "x-ratelimit-reset");
    }

    let body: serde_json::Value = serde_json::from_str(&problem(&all)).expect("JSON");
    let names: Vec<String> = body["violated-policies"]
        .as_array()
        .expect("the value is an array")
        .iter()
        .map(|name| percent_decoded(name.as_str().expect("the item is a string")))
        .collect();
    assert!(names.iter().eq(violated.iter().map(|limit| &limit.name)), "{names:?}");
}

proptest! {
    #![proptest_config(config(400))]

    // G69
    #[test]
    fn random_policies_read_back(limits in prop::collection::vec(limit(), 0..6), refuse: bool) {
        let limits: Vec<Limit> = limits.into_iter().flatten().collect();
        assert_reads_back(&limits, refuse);
    }
}
