//! `charging: count-denials`: a denied request is charged to the rules that deny it, and to no other.

use std::time::Duration;

use tollgate::rules::{Answer, Charging, Code, Config, Descriptor, Rules, Unit, Verdict};

use super::{Scene, config};

const ALGORITHMS: [&str; 6] =
    ["fixed-window", "gcra", "sliding-window", "sub-window", "sliding-log", "token-bucket"];

fn text(rules: &str) -> String {
    format!("{{ domain: d, tollgate: {{ charging: count-denials }}, descriptors: [ {rules} ] }}")
}

fn scene(rules: &str) -> Scene {
    Scene::new(&text(rules))
}

fn one(limit: u32, algorithm: &str) -> Scene {
    scene(&format!(
        "{{ key: a, rate_limit: {{ unit: hour, requests_per_unit: {limit}, algorithm: {algorithm} }} }}"
    ))
}

const A: &[(&str, &str)] = &[("a", "x")];
const B: &[(&str, &str)] = &[("b", "x")];

/// Returns the verdict and the remaining units of a query with a cost of 0.
fn look(scene: &Scene, entries: &[(&str, &str)]) -> (Code, u32) {
    let answer = scene.ask_n(entries, 0);
    (answer.status(0).code(), answer.status(0).remaining())
}

fn verdicts(answer: &Answer) -> Vec<Verdict> {
    answer.limits().map(|limit| limit.verdict()).collect()
}

/// Limit 4. Each round is a query and then a report of 2 units: the queries see 0, 2, 4 (exactly full) and 6.
#[test]
fn reports_fill_limit_exactly() {
    for algorithm in ALGORITHMS {
        let scene = one(4, algorithm);
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.push(look(&scene, A));
            let _ = scene.ask_n(A, 2);
        }
        let expected = [(Code::Ok, 4), (Code::Ok, 2), (Code::Ok, 0), (Code::OverLimit, 0)];
        assert_eq!(seen, expected, "{algorithm}");
    }
}

/// Limit 100, reports of 60: the queries see 0, 60, and then 120, which is over.
#[test]
fn report_beyond_limit_stays_counted() {
    for algorithm in ALGORITHMS {
        let scene = one(100, algorithm);
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(look(&scene, A));
            let _ = scene.ask_n(A, 60);
        }
        assert_eq!(seen, [(Code::Ok, 100), (Code::Ok, 40), (Code::OverLimit, 0)], "{algorithm}");
        assert_eq!(look(&scene, A), (Code::OverLimit, 0));
    }
    let scene = one(100, "fixed-window");
    let _ = (scene.ask_n(A, 60), scene.ask_n(A, 60));
    scene.advance(3_599);
    assert_eq!(look(&scene, A).0, Code::OverLimit);
    scene.advance(1);
    assert_eq!(look(&scene, A), (Code::Ok, 100), "the debt ends with the window");
}

/// Limit 100 with 99 used: a request of 5 is denied, and another rule of the same request is charged nothing.
#[test]
fn denied_request_spares_other_rules() {
    for algorithm in ALGORITHMS {
        for first in ["a", "b"] {
            let second = if first == "a" { "b" } else { "a" };
            let rule = |key: &str| {
                let limit = if key == "a" { 100 } else { 1_000 };
                format!(
                    "{{ key: {key}, rate_limit: {{ unit: hour, requests_per_unit: {limit}, algorithm: {algorithm} }} }}"
                )
            };
            let scene = scene(&format!("{}, {}", rule(first), rule(second)));
            assert!(scene.ask_n(A, 99).is_allowed());
            let both = [Descriptor::new(A), Descriptor::new(B)];
            let answer = scene.rules.check_n("d", &both, 5);
            assert!(answer.is_denied());
            assert_eq!(verdicts(&answer), [Verdict::Denied, Verdict::Allowed], "{algorithm}");
            assert_eq!((answer.status(0).remaining(), answer.status(1).remaining()), (0, 1_000));
            assert_eq!(look(&scene, A), (Code::OverLimit, 0), "{algorithm}");
            assert_eq!(look(&scene, B), (Code::Ok, 1_000), "{algorithm}");
        }
    }
}

/// Algorithms without window ends owe at most one unit beyond the limit, however often a client is denied.
#[test]
fn hammering_client_owes_one_unit_more() {
    for algorithm in ["gcra", "token-bucket"] {
        let scene = one(4, algorithm); // one unit returns in 900 s
        let admitted = (0..100).filter(|_| scene.ask_n(A, 3).is_allowed()).count();
        assert_eq!(admitted, 1);
        assert_eq!(look(&scene, A).0, Code::OverLimit);
        scene.advance(900);
        assert_eq!(look(&scene, A), (Code::Ok, 0), "{algorithm}: one unit returned");
        scene.advance(900);
        assert!(scene.ask(A).is_allowed(), "{algorithm}");
    }
    let scene = one(4, "fixed-window");
    (0..100).for_each(|_| drop(scene.ask_n(A, 3)));
    scene.advance(3_600);
    assert_eq!(look(&scene, A), (Code::Ok, 4));
}

#[test]
fn exceeded_shadow_rule_is_charged_too() {
    let scene = scene(
        "{ key: a, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 2 } },
         { key: b, rate_limit: { unit: hour, requests_per_unit: 4 } }",
    );
    for _ in 0..4 {
        assert!(scene.ask_both(A, B).is_allowed(), "an exceeded shadow rule does not stop another rule");
    }
    assert!(scene.ask_both(A, B).is_denied());
    assert_eq!(verdicts(&scene.ask_n(A, 0)), [Verdict::ShadowDenied]);
    assert_eq!(look(&scene, B), (Code::OverLimit, 0));
}

#[test]
fn exceeded_quota_rule_is_charged_too() {
    let quota = |key: &str, limit: u32| {
        format!(
            "{{ key: {key}, quota_mode: true, rate_limit: {{ unit: hour, requests_per_unit: {limit} }} }}"
        )
    };
    let scene = scene(&format!(
        "{}, {}, {{ key: c, rate_limit: {{ unit: hour, requests_per_unit: 3 }} }}",
        quota("a", 1),
        quota("b", 3)
    ));
    let each = [Descriptor::new(A), Descriptor::new(B), Descriptor::new(&[("c", "x")])];
    let ask = || scene.rules.check("d", &each);
    assert!(ask().is_allowed());
    let second = ask();
    assert!(second.is_allowed(), "a quota that is over does not stop another rule");
    assert_eq!(second.status(0).code(), Code::OverLimit);
    assert_eq!(look(&scene, A), (Code::OverLimit, 0), "the admitted request was charged to it");
    assert!(ask().is_allowed());
    // All three are at or over their limits now. The rule c denies, and so do all quotas together.
    let denied = ask();
    assert!(denied.is_denied());
    assert_eq!(denied.denied_by().count(), 3);
    assert_eq!([look(&scene, B).0, look(&scene, &[("c", "x")]).0], [Code::OverLimit; 2]);
}

/// A quota that is over is not charged if another rule denies the request while some quota has room.
#[test]
fn quota_with_room_elsewhere_is_not_charged() {
    let scene = scene(
        "{ key: a, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } },
         { key: b, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 9 } },
         { key: c, rate_limit: { unit: hour, requests_per_unit: 1 } }",
    );
    let each = [Descriptor::new(A), Descriptor::new(B), Descriptor::new(&[("c", "x")])];
    let ask = || scene.rules.check("d", &each);
    assert!(ask().is_allowed() && ask().is_denied());
    assert_eq!(look(&scene, A), (Code::Ok, 0), "exactly full, and not over");
    assert_eq!(look(&scene, B), (Code::Ok, 8));
    assert_eq!(look(&scene, &[("c", "x")]), (Code::OverLimit, 0));
}

/// A limit of 0 denies every request, and a query once a request was denied.
#[test]
fn limit_of_zero_denies_query_after_request() {
    let scene = scene("{ key: a, rate_limit: { unit: hour, requests_per_unit: 0 } }");
    assert_eq!(look(&scene, A), (Code::Ok, 0));
    assert!(scene.ask(A).is_denied());
    assert_eq!(look(&scene, A), (Code::OverLimit, 0));
}

#[test]
fn limit_of_request_counts_its_denials() {
    let scene = scene("{ key: a, rate_limit: { unit: hour, requests_per_unit: 9 } }");
    let ask = |hits| scene.rules.check_n("d", &[Descriptor::new(A).limit(3, Unit::Hour)], hits);
    assert!(ask(2).is_allowed() && ask(0).is_allowed());
    assert!(ask(2).is_denied());
    assert!(ask(0).is_denied());
}

#[test]
fn setting_of_file_overrides_default_charging() {
    let plain = "domain: plain\ndescriptors: [{ key: a, rate_limit: { unit: hour, requests_per_unit: 4 } }]";
    let set = text("{ key: a, rate_limit: { unit: hour, requests_per_unit: 4 } }")
        .replace("count-denials", "all-or-nothing");
    let rules = Rules::builder()
        .default_charging(Charging::CountDenials)
        .load([config(plain), Config::from_yaml("set.yaml", &set).unwrap()])
        .unwrap();
    let ask = |domain, hits| rules.check_n(domain, &[Descriptor::new(A)], hits);
    for domain in ["plain", "d"] {
        assert!(ask(domain, 5).is_denied());
    }
    assert!(ask("plain", 0).is_denied() && ask("d", 0).is_allowed());
}

/// A raised limit gives back the difference: the store holds one unit beyond the old limit.
#[test]
fn reload_keeps_counted_denials() {
    let limit =
        |limit: u32| text(&format!("{{ key: a, rate_limit: {{ unit: hour, requests_per_unit: {limit} }} }}"));
    let scene = Scene::new(&limit(4));
    assert!(scene.ask_n(A, 5).is_denied());
    scene.reload(&limit(6));
    assert_eq!(look(&scene, A), (Code::Ok, 1), "five of six units are in use");
    scene.reload(&limit(4));
    assert_eq!(look(&scene, A).0, Code::OverLimit);
    scene.clock.advance(Duration::from_secs(3_600));
    assert_eq!(look(&scene, A), (Code::Ok, 4));
}

#[test]
fn refund_of_admitted_request_restores_rules() {
    let scene = scene("{ key: a, rate_limit: { unit: hour, requests_per_unit: 4 } }");
    let request = [Descriptor::new(A)];
    let answer = scene.rules.check_n("d", &request, 3);
    scene.rules.refund(&request, &answer);
    assert_eq!(look(&scene, A), (Code::Ok, 4));
    let denied = scene.rules.check_n("d", &request, 5);
    scene.rules.refund(&request, &denied);
    assert_eq!(look(&scene, A).0, Code::OverLimit, "a denied request keeps its charge");
}

#[test]
fn counted_denials_are_metered_in_full() {
    let scene = scene("{ key: a, rate_limit: { unit: hour, requests_per_unit: 10 } }");
    let _ = (scene.ask_n(A, 7), scene.ask_n(A, 5));
    scene.rules.for_each(|_, _, counts| {
        assert_eq!((counts.allowed, counts.denied, counts.hits), (1, 1, 12));
        assert_eq!((counts.near_limit, counts.over_limit), (2, 2), "the denied cost crosses both lines");
    });
}
