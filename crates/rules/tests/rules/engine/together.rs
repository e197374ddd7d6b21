//! Several rules that affect one request: on one counter, with quotas, with dry runs. Each case was once a bug.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tollgate_rules::{Descriptor, Rules, Verdict};

use super::{Scene, config, file, left, one};

const X: [(&str, &str); 1] = [("a", "x")];

fn names(answer: &tollgate_rules::Answer) -> Vec<&str> {
    answer.denied_by().map(|limit| limit.name()).collect()
}

/// Each of the two checks sees one unit left, so the second charge is denied. The request is denied, and the first
/// charge is returned.
#[test]
fn same_counter_twice_needs_both_units() {
    let scene = Scene::new(&one("{ unit: hour, requests_per_unit: 1 }"));
    for _ in 0..10 {
        assert!(scene.ask_both(&X, &X).is_never(), "a request for two units of one is never admitted");
    }
    assert_eq!(left(&scene, &X), 1, "a denied request charges nothing");
    let scene = Scene::new(
        "{ domain: d, descriptors: [ { key: path, value: '/v1/*', share_threshold: true, \
         rate_limit: { unit: hour, requests_per_unit: 3 } } ] }",
    );
    let (a, b) = ([("path", "/v1/a")], [("path", "/v1/b")]);
    assert_eq!((0..10).filter(|_| scene.ask_both(&a, &b).is_allowed()).count(), 1);
    assert_eq!(scene.ask_both(&a, &b).retry_after(), Some(Duration::from_secs(3_600)));
    assert_eq!(left(&scene, &a), 1);
}

/// Rules of each kind of store, and more of them than the lists on the stack hold. The rule that denies is the first one, one
/// between, or the last one.
// G67
#[test]
fn many_rules_are_charged_together() {
    const RULES: usize = 20;
    for (count, tight) in [(2, 0), (2, 1), (3, 2), (16, 7), (17, 16), (RULES, 0), (RULES, 19)] {
        let rule = |n: usize| {
            let units = if n == tight { 3 } else { 5 };
            let (value, store) = [("", ""), ("", ", store: keyed"), (", value: x", "")][n % 3];
            format!("{{ key: k{n}{value}, rate_limit: {{ unit: hour, requests_per_unit: {units}{store} }} }}")
        };
        let rules: Vec<_> = (0..RULES).map(rule).collect();
        let scene =
            Scene::new(&format!("{{ domain: d, tollgate: {{}}, descriptors: [ {} ] }}", rules.join(", ")));
        let keys: Vec<_> = (0..count).map(|n| format!("k{n}")).collect();
        let entries: Vec<_> = keys.iter().map(|key| [(&**key, "x")]).collect();
        let descriptors: Vec<_> = entries.iter().map(|entries| Descriptor::new(entries)).collect();
        for left in (0..3).rev() {
            let answer = scene.rules.check("d", &descriptors);
            assert!(answer.is_allowed());
            let remaining: Vec<_> = answer.limits().map(|limit| limit.remaining()).collect();
            let expected: Vec<_> = (0..count).map(|n| if n == tight { left } else { left + 2 }).collect();
            assert_eq!(remaining, expected);
        }
        for _ in 0..3 {
            let answer = scene.rules.check("d", &descriptors);
            assert_eq!(answer.denied_by().map(|limit| limit.descriptor()).collect::<Vec<_>>(), [tight]);
            let remaining: Vec<_> = answer.limits().map(|limit| limit.remaining()).collect();
            let expected: Vec<_> = (0..count).map(|n| if n == tight { 0 } else { 2 }).collect();
            assert_eq!(remaining, expected, "a denied request charges nothing");
            assert!(answer.limits().all(|limit| limit.decision().is_some_and(|it| it.charged() == 0)));
        }
    }
}

/// A rival thread takes the only unit and returns it. A request that loses the race for that unit is denied, even if
/// the unit is free again by the time the request has returned its other charges.
#[test]
fn admitted_request_is_charged_under_contention() {
    let scene = Scene::new(
        "{ domain: d, descriptors: [ { key: a, rate_limit: { unit: year, requests_per_unit: 1 } }, \
         { key: b, rate_limit: { unit: year, requests_per_unit: 1000000 } } ] }",
    );
    let (rules, done) = (&scene.rules, AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let answer = rules.check("d", &[Descriptor::new(&X)]);
                rules.refund(&[Descriptor::new(&X)], &answer);
            }
        });
        let b = [("b", "x")];
        let both = [Descriptor::new(&X), Descriptor::new(&b)];
        for _ in 0..20_000 {
            let before = left(&scene, &b);
            let answer = rules.check("d", &both);
            if answer.is_allowed() {
                assert_eq!(left(&scene, &b), before - 1, "the request was admitted without a charge");
                rules.refund(&both, &answer);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

const QUOTAS: &[&str] = &[
    "key: a, quota_mode: true, rate_limit: { unit: second, requests_per_unit: 1, name: a }",
    "key: b, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 1, name: b }",
    "key: c, rate_limit: { unit: minute, requests_per_unit: 1, name: c }",
];

/// One quota with room is enough. So the wait ends when the first quota has room again, and a single quota without room
/// denies nothing.
#[test]
fn quota_mode_waits_for_first_quota() {
    let scene = Scene::of(QUOTAS);
    let (a, b, c) = ([("a", "x")], [("b", "x")], [("c", "x")]);
    assert!(scene.ask_both(&a, &b).is_allowed());
    let refused = scene.ask_both(&a, &b);
    assert_eq!((names(&refused), refused.retry_after()), (vec!["a", "b"], Some(Duration::from_secs(1))));
    scene.advance(1);
    assert!(scene.ask_both(&a, &b).is_allowed());

    let scene = Scene::of(QUOTAS);
    assert!(scene.ask(&b).is_allowed() && scene.ask(&c).is_allowed());
    let all = [Descriptor::new(&a), Descriptor::new(&b), Descriptor::new(&c)];
    let refused = scene.rules.check("d", &all);
    assert_eq!((names(&refused), refused.retry_after()), (vec!["c"], Some(Duration::from_secs(60))));
    let verdicts: Vec<_> = refused.limits().map(|limit| limit.verdict()).collect();
    assert_eq!(verdicts, [Verdict::Allowed, Verdict::ShadowDenied, Verdict::Denied]);
    // A cost above one quota's limit, but not above the other's.
    let scene = Scene::new(&file(QUOTAS).replace("hour, requests_per_unit: 1", "hour, requests_per_unit: 5"));
    let five = || scene.rules.check_n("d", &[Descriptor::new(&a), Descriptor::new(&b)], 5);
    assert!(five().is_allowed());
    assert_eq!((five().is_never(), five().retry_after()), (false, Some(Duration::from_secs(3_600))));
}

/// With count-first, the other rule counts the denied request too. That rule may be full when the first rule has room
/// again.
#[test]
fn count_first_wait_covers_all_rules() {
    let scene = Scene::counting_first(
        "{ domain: d, descriptors: [ { key: s, rate_limit: { unit: second, requests_per_unit: 1 } }, \
         { key: h, rate_limit: { unit: hour, requests_per_unit: 2 } } ] }",
    );
    let (s, h) = ([("s", "x")], [("h", "x")]);
    assert!(scene.ask_both(&s, &h).is_allowed());
    let refused = scene.ask_both(&s, &h);
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(3_600)));
    scene.advance(3_600);
    assert!(scene.ask_both(&s, &h).is_allowed());
}

#[test]
fn report_only_rule_never_affects_enforced() {
    let scene = Scene::of(&["
  - key: a
    rate_limits:
      - { unit: minute, requests_per_unit: 100, name: real }
      - { unit: hour, requests_per_unit: 1, enforced: 0%, name: trial }
"]);
    assert_eq!(scene.admitted(&X, 5), 5);
    let answer = scene.ask(&X);
    assert_eq!(answer.strictest(0).map(|limit| limit.name()), Some("real"));
    assert_eq!(answer.remaining(0), 94);
    // A rule that is not enforced replaces no other rule.
    let scene = Scene::of(&[
        "key: a, rate_limit: { unit: hour, requests_per_unit: 1, name: real }",
        "key: b, shadow_mode: true, \
         rate_limit: { unit: hour, requests_per_unit: 1, name: trial, replaces: [ { name: real } ] }",
    ]);
    assert_eq!((0..9).filter(|_| scene.ask_both(&X, &[("b", "x")]).is_allowed()).count(), 1);
    // A rule that is not enforced marks no request. If it would deny the request, zero units remain.
    let soft = one("{ unit: hour, requests_per_unit: 10, soft: 0 }");
    let shadow = Rules::builder().shadow(true).load([config(&soft)]).unwrap();
    assert!(!shadow.check("d", &[Descriptor::new(&X)]).is_soft_limited());
    let scene = Scene::new(
        "{ domain: d, descriptors: [ { key: a, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 10 } } ] }",
    );
    let answer = scene.ask_n(&X, 11);
    assert_eq!((answer.is_allowed(), answer.remaining(0)), (true, 0));
    assert_eq!(answer.limits().map(|limit| limit.remaining()).collect::<Vec<_>>(), [0]);
}

/// This holds even if a client has used more than a limit that was lowered since.
#[test]
fn rule_peek_is_never_denied() {
    let scene = Scene::new(&one("{ unit: hour, requests_per_unit: 10 }"));
    assert_eq!(scene.admitted(&X, 10), 10);
    scene.reload(&one("{ unit: hour, requests_per_unit: 5 }"));
    assert!(scene.ask_n(&X, 0).is_allowed() && scene.ask(&X).is_denied());
}

/// In an emergency an operator sets a limit to 0 or removes it, and restores it later.
#[test]
fn zeroed_or_unlimited_rule_keeps_counts() {
    let full = one("{ unit: hour, requests_per_unit: 100 }");
    for meanwhile in ["{ unit: hour, requests_per_unit: 0 }", "{ unlimited: true }"] {
        for scene in [Scene::new(&full), Scene::counting_first(&full)] {
            assert_eq!(scene.admitted(&X, 70), 70);
            scene.reload(&one(meanwhile));
            assert_eq!(scene.ask(&X).is_allowed(), meanwhile.contains("unlimited"));
            scene.reload(&full);
            assert_eq!(scene.admitted(&X, 200), 30, "{meanwhile}");
        }
    }
}

/// The caller supplies the times, here of a day before.
#[test]
fn rules_load_at_given_time() {
    let scene = Scene::new(&one("{ unit: hour, requests_per_unit: 10 }"));
    let at = tollgate::Timestamp::from_secs(3_600 * 499_976 + 5);
    let admitted = || {
        let ask = || scene.rules.at(at).check("d", &[Descriptor::new(&X)]).is_allowed();
        (0..20).filter(|_| ask()).count()
    };
    assert_eq!(admitted(), 10);
    let eleven = config(&one("{ unit: hour, requests_per_unit: 11 }"));
    scene.rules.at(at).replace([eleven]).unwrap();
    assert_eq!(admitted(), 1);
}
