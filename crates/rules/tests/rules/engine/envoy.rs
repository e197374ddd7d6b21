//! Expected codes and figures of Envoy's service where several rules or both ways of charging are involved.

use std::time::Duration;

use tollgate_rules::{Amount, Answer, Descriptor, TimeUnit};

use super::{OK, OVER, Scene, file, left};

/// One scene for each way of charging.
fn both(descriptors: &[&str]) -> [Scene; 2] {
    [Scene::of(descriptors), Scene::counting_first(&file(descriptors))]
}

/// Returns the overall code, and the code and the remaining units of each descriptor.
fn said(answer: &Answer, descriptors: usize) -> (bool, Vec<(bool, u32)>) {
    let status = |at| (answer.is_over_limit(at), answer.remaining(at));
    (answer.is_denied(), (0..descriptors).map(status).collect())
}

const UNLIMITED: u32 = u32::MAX;

// G67
#[test]
fn exhausted_quota_reports_over_limit() {
    for scene in both(&[
        "key: small, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 }",
        "key: large, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 3 }",
    ]) {
        let ask = || said(&scene.ask_both(&[("small", "x")], &[("large", "x")]), 2);
        assert_eq!(ask(), (OK, vec![(OK, 0), (OK, 2)]));
        assert_eq!(ask(), (OK, vec![(OVER, 0), (OK, 1)]));
        assert_eq!(ask(), (OK, vec![(OVER, 0), (OK, 0)]));
        assert_eq!(ask(), (OVER, vec![(OVER, 0), (OVER, 0)]));
    }
}

// G67
#[test]
fn unlimited_rule_is_no_quota() {
    for scene in both(&[
        "key: small, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 }",
        "key: all, quota_mode: true, rate_limit: { unlimited: true }",
    ]) {
        let ask = || said(&scene.ask_both(&[("small", "x")], &[("all", "x")]), 2);
        assert_eq!(ask(), (OK, vec![(OK, 0), (OK, UNLIMITED)]));
        assert_eq!(ask(), (OVER, vec![(OVER, 0), (OK, UNLIMITED)]));
    }
}

/// `shadow_mode` makes a rule's status OK. A quota whose status is OK counts as having room, even if the counter is
/// over its limit.
// G67
#[test]
fn shadowed_quota_always_has_room() {
    for scene in both(&[
        "key: small, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 }",
        "key: shadow, quota_mode: true, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 3 }",
    ]) {
        let ask = || said(&scene.ask_both(&[("small", "x")], &[("shadow", "x")]), 2);
        assert_eq!(ask(), (OK, vec![(OK, 0), (OK, 2)]));
        assert_eq!(ask(), (OK, vec![(OVER, 0), (OK, 1)]));
        assert_eq!(ask(), (OK, vec![(OVER, 0), (OK, 0)]));
        assert_eq!(ask(), (OK, vec![(OVER, 0), (OK, 0)]));
        let small = scene.ask(&[("small", "x")]);
        assert!(small.is_denied(), "without the shadowed quota, the request is denied");
    }
}

const FIVE: &[&str] = &[
    "key: a, rate_limit: { unit: minute, requests_per_unit: 5 }",
    "key: b, rate_limit: { unit: minute, requests_per_unit: 5, algorithm: gcra }",
    "key: c, value: 'x*', share_threshold: true, rate_limit: { unit: minute, requests_per_unit: 5 }",
    "key: c, rate_limit: { unit: minute, requests_per_unit: 0 }",
];

/// Sends a request that carries its own limit.
fn own(scene: &Scene, entries: &[(&str, &str)], limit: u32, unit: TimeUnit, hits: u64) -> (bool, u32) {
    let answer = scene.rules.check_n("d", &[Descriptor::new(entries).limit(limit, unit)], hits);
    let limit_shown = answer.limits().next().map(|shown| shown.quota());
    assert_eq!(limit_shown, Some(u64::from(limit)), "the status shows the request's limit");
    (answer.is_denied(), answer.remaining(0))
}

// G67
#[test]
fn request_limit_shares_counter_with_rule() {
    for scene in both(FIVE) {
        let a = [("a", "x")];
        scene.advance(20);
        assert!(scene.ask_n(&a, 3).is_allowed());
        let peek = own(&scene, &a, 4, TimeUnit::Minute, 0);
        assert_eq!(peek, (OK, 1), "a peek sees the units that the rule used");
        assert_eq!(own(&scene, &a, 4, TimeUnit::Minute, 1), (OK, 0));
        assert_eq!(left(&scene, &a), 1, "the rule sees the unit of the request's limit");
        assert_eq!(own(&scene, &a, 9, TimeUnit::Hour, 1), (OK, 8), "each unit has its own counter");
        let other = own(&scene, &[("a", "y")], 4, TimeUnit::Minute, 1);
        assert_eq!(other, (OK, 3), "each value has its own counter");
        assert!(scene.ask(&a).is_allowed());
        let refused = scene.ask(&a);
        // The request's own limit has charged two units. The wait lasts until the end of the window.
        assert_eq!(said(&refused, 1), (OVER, vec![(OVER, 0)]));
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(40)));
        assert_eq!(own(&scene, &a, 4, TimeUnit::Minute, 1), (OVER, 0));
        assert_eq!(own(&scene, &a, 1, TimeUnit::Minute, 1), (OVER, 0));
        assert_eq!(own(&scene, &a, 20, TimeUnit::Minute, 7).0, OK);
        assert_eq!(own(&scene, &a, 20, TimeUnit::Minute, 21).0, OVER);
        scene.advance(40);
        assert_eq!(own(&scene, &a, 20, TimeUnit::Minute, 9), (OK, 11));
        let next = scene.ask(&a);
        assert!(next.is_denied(), "requests with a higher limit have used more than the rule's limit");
        assert!(!scene.ask(&a).is_never());
    }
    // If requests are counted first, denied requests count too.
    let scene = Scene::counting_first(&file(FIVE));
    assert_eq!(own(&scene, &[("a", "x")], 2, TimeUnit::Minute, 4), (OVER, 0));
    assert_eq!(left(&scene, &[("a", "x")]), 1);
}

#[test]
fn request_limit_refund_restores_rule() {
    let scene = Scene::of(FIVE);
    let a = [("a", "x")];
    assert!(scene.ask_n(&a, 2).is_allowed());
    let request = [Descriptor::new(&a).limit(9, TimeUnit::Minute).hits(3)];
    let answer = scene.rules.check("d", &request);
    assert_eq!((answer.is_denied(), left(&scene, &a)), (OK, 0));
    scene.rules.refund(&request, &answer);
    assert_eq!(left(&scene, &a), 3);
    let of_rule = [Descriptor::new(&a)];
    let answer = scene.rules.check("d", &of_rule);
    scene.rules.refund(&of_rule, &answer);
    assert_eq!(left(&scene, &a), 3);
}

/// A request with both limits charges both of them or neither.
#[test]
fn request_limit_and_rule_both_charge() {
    let scene = Scene::of(FIVE);
    let a = [("a", "x")];
    let request = [Descriptor::new(&a), Descriptor::new(&a).limit(5, TimeUnit::Minute)];
    let ask = || scene.rules.check("d", &request).is_denied();
    assert_eq!([ask(), ask(), ask()], [OK, OK, OVER]);
    assert_eq!(left(&scene, &a), 1);
}

/// A difference from Envoy's service: a rule that does not count in fixed windows, or that counts several values
/// together, does not share a counter with the request's limit.
#[test]
fn request_limit_skips_unwindowed_and_shared_rules() {
    for scene in both(FIVE) {
        assert!(scene.ask_n(&[("b", "x")], 3).is_allowed());
        assert_eq!(own(&scene, &[("b", "x")], 4, TimeUnit::Minute, 1), (OK, 3), "gcra");
        assert!(scene.ask_n(&[("c", "x1")], 3).is_allowed());
        // A shared threshold has its own counter, as in Envoy's service.
        assert_eq!(own(&scene, &[("c", "x1")], 4, TimeUnit::Minute, 1), (OK, 3));
    }
}

// G67
#[test]
fn shared_threshold_counts_per_wildcard_key() {
    for scene in both(&[
        "key: 'header-*', value: 'v*', share_threshold: true, rate_limit: { unit: minute, requests_per_unit: 2 }",
    ]) {
        assert_eq!(scene.ask(&[("header-a", "v1")]).remaining(0), 1);
        assert_eq!(scene.ask(&[("header-a", "v2")]).remaining(0), 0, "all values of one key share a counter");
        assert_eq!(scene.ask(&[("header-b", "v1")]).remaining(0), 1, "each key has its own counter");
        assert!(scene.ask(&[("header-a", "v3")]).is_denied());
    }
}

// G67
#[test]
fn zero_limit_peek_is_over_after_denial() {
    let scene = Scene::counting_first(&file(FIVE));
    let c = [("c", "none")];
    assert_eq!(said(&scene.ask_n(&c, 0), 1), (OK, vec![(OK, 0)]));
    let refused = scene.ask(&c);
    assert!(refused.is_never());
    assert_eq!(said(&refused, 1), (OVER, vec![(OVER, 0)]));
    assert_eq!(said(&scene.ask_n(&c, 0), 1), (OVER, vec![(OVER, 0)]));
    assert!(scene.ask_n(&[("c", "other")], 0).is_allowed());
    scene.advance(60);
    assert_eq!(said(&scene.ask_n(&c, 0), 1), (OK, vec![(OK, 0)]), "the new window is empty");
    assert_eq!(own(&scene, &c, 0, TimeUnit::Minute, 0), (OK, 0));
    assert_eq!(own(&scene, &c, 0, TimeUnit::Minute, 1), (OVER, 0));
    let peek = own(&scene, &c, 0, TimeUnit::Minute, 0);
    assert_eq!(peek, (OVER, 0), "the request's own limit behaves the same");
    // By default a denied request costs nothing, so a peek finds an unused window.
    let scene = Scene::of(FIVE);
    assert_eq!((scene.ask(&c).is_denied(), scene.ask_n(&c, 0).is_denied()), (OVER, OK));
}

// G67
#[test]
fn unlimited_rule_is_not_replaced() {
    for scene in both(&[
        "key: a, rate_limit: { unlimited: true, name: free }",
        "key: b, rate_limit: { unit: minute, requests_per_unit: 3, replaces: [ { name: free } ] }",
    ]) {
        let answer = scene.ask_both(&[("a", "x")], &[("b", "x")]);
        assert_eq!(said(&answer, 2), (OK, vec![(OK, UNLIMITED), (OK, 2)]));
        assert_eq!(answer.strictest(0).map(|limit| limit.rule().limit.clone()), Some(Amount::Unlimited));
    }
}

// G67
#[test]
fn detailed_metric_shows_empty_value() {
    let scene = Scene::new(
        "
domain: dom
descriptors:
  - { key: a, detailed_metric: true, rate_limit: { unit: minute, requests_per_unit: 3 } }
  - { key: b, value_to_metric: true, rate_limit: { unit: minute, requests_per_unit: 3 } }
  - key: 'c'
    value: 'v*'
    share_threshold: true
    descriptors: [ { key: d, detailed_metric: true, rate_limit: { unit: minute, requests_per_unit: 3 } } ]
",
    );
    let name = |entries: &[(&str, &str)]| {
        let answer = scene.ask(entries);
        answer.limits().next().unwrap().rule().metric_name("dom", entries)
    };
    assert_eq!(name(&[("a", "")]), "dom.a_");
    assert_eq!(name(&[("a", "x")]), "dom.a_x");
    assert_eq!(name(&[("b", "")]), "dom.b");
    // With a shared threshold, the metric does not show the empty value.
    assert_eq!(name(&[("c", "v1"), ("d", "")]), "dom.c_v*.d");
}

// G67
#[test]
fn denied_cost_status_shows_zero_remaining() {
    for scene in both(FIVE) {
        let a = [("a", "x")];
        assert_eq!(scene.ask_n(&a, 2).remaining(0), 3);
        let answer = scene.ask_n(&a, 5);
        assert_eq!(said(&answer, 1), (OVER, vec![(OVER, 0)]));
        let limit = answer.limits().next().unwrap();
        // The status and the decision show the same number: three units, unless denied requests are counted.
        assert_eq!(limit.decision().unwrap().remaining(), u64::from(left(&scene, &a)));
        assert_eq!(limit.remaining(), limit.decision().unwrap().remaining());
    }
}
