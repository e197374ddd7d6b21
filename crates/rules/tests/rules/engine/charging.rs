//! Which counters a request charges, and when.

use std::time::Duration;

use tollgate_rules::{Descriptor, TimeUnit};

use super::{OK, Scene, file, left};

const TWO: &[&str] = &[
    "key: a, rate_limit: { unit: minute, requests_per_unit: 10 }",
    "key: b, rate_limit: { unit: hour, requests_per_unit: 2 }",
];

/// Envoy's service counts a request before it decides. Denied requests therefore use up the window too.
#[test]
fn count_first_counts_denied_requests() {
    let scene = Scene::counting_first(&file(TWO));
    let a = [("a", "x")];
    assert!(scene.ask_n(&a, 8).is_allowed());
    assert!(scene.ask_n(&a, 5).is_denied());
    assert!(scene.ask(&a).is_denied(), "two units were left, and the denied request used them");
    scene.advance(60);
    assert_eq!(left(&scene, &a), 10, "a new window starts empty");
    // A peek at a full window is still OK. It is over the limit only after a denied request.
    assert!(scene.ask_n(&a, 10).is_allowed());
    let look = scene.ask_n(&a, 0);
    assert_eq!((look.is_denied(), look.remaining(0)), (OK, 0));
    assert!(scene.ask(&a).is_denied());
    assert!(scene.ask_n(&a, 0).is_denied());
    // A request whose cost exceeds the limit is never admitted.
    scene.advance(60);
    let never = scene.ask_n(&a, 11);
    assert!(never.is_never() && never.retry_after().is_none());
    let minute = Some(Duration::from_secs(60));
    assert_eq!(scene.ask(&a).retry_after(), minute, "the impossible request was counted");
}

/// This holds for every algorithm that a file can name: the limit is admitted, and a denied request is admitted after
/// the reported wait.
#[test]
fn count_first_works_with_every_algorithm() {
    let algorithms = "fixed-window gcra token-bucket leaky-bucket sliding-window sub-window sliding-log";
    for algorithm in algorithms.split(' ') {
        for shared in ["*", "x*"] {
            let limit = format!("{{ unit: minute, requests_per_unit: 10, algorithm: {algorithm} }}");
            let rule = format!("key: a, value: '{shared}', rate_limit: {limit}");
            let scene = Scene::counting_first(&file(&[&rule]));
            let x = [("a", "x1")];
            assert_eq!(scene.admitted(&x, 10), 10, "{algorithm}");
            let refused = scene.ask(&x);
            assert!(refused.is_denied(), "{algorithm}");
            let wait = refused.retry_after().unwrap();
            assert!(wait > Duration::ZERO && wait <= Duration::from_secs(120), "{algorithm} {wait:?}");
            scene.clock.advance(wait - Duration::from_nanos(1));
            let is_full = scene.ask_n(&x, 0).is_denied() || left(&scene, &x) == 0;
            assert!(is_full, "{algorithm}: admitted before the reported wait");
            scene.clock.advance(Duration::from_nanos(1) + Duration::from_millis(1));
            assert!(scene.ask(&x).is_allowed(), "{algorithm}: {wait:?}");
        }
    }
}

#[test]
fn equal_descriptors_are_charged_twice() {
    for scene in [Scene::of(TWO), Scene::counting_first(&file(TWO))] {
        let a = [("a", "x")];
        assert!(scene.ask_both(&a, &a).is_allowed());
        assert_eq!(left(&scene, &a), 8);
    }
}

#[test]
fn descriptor_hits_override_request_hits() {
    let scene = Scene::of(TWO);
    let (a, b) = ([("a", "x")], [("b", "x")]);
    let descriptors = [Descriptor::new(&a).hits(4), Descriptor::new(&b)];
    assert!(scene.rules.check_n("d", &descriptors, 2).is_allowed());
    assert_eq!((left(&scene, &a), left(&scene, &b)), (6, 0));
    let look = [Descriptor::new(&a), Descriptor::new(&b).hits(0)];
    assert!(scene.rules.check("d", &look).is_allowed(), "a request with 0 hits only peeks");
    assert_eq!((left(&scene, &a), left(&scene, &b)), (5, 0));
}

#[test]
fn rules_refund_restores_all_counters() {
    let scene = Scene::of(TWO);
    let (a, b) = ([("a", "x")], [("b", "x")]);
    let descriptors = [Descriptor::new(&a).hits(4), Descriptor::new(&b)];
    let answer = scene.rules.check("d", &descriptors);
    assert_eq!((left(&scene, &a), left(&scene, &b)), (6, 1));
    scene.rules.refund(&descriptors, &answer);
    assert_eq!((left(&scene, &a), left(&scene, &b)), (10, 2));
    assert!(scene.ask_n(&b, 2).is_allowed());
    let refused = scene.rules.check("d", &descriptors);
    scene.rules.refund(&descriptors, &refused);
    assert_eq!((left(&scene, &a), left(&scene, &b)), (10, 0), "a denied request has nothing to refund");
}

/// A limit on several keys counts each combination of values separately, whatever characters the values contain.
#[test]
fn value_combinations_count_separately() {
    let scene = Scene::of(&[
        "key: a, descriptors: [ { key: b, rate_limit: { unit: minute, requests_per_unit: 1 } } ]",
    ]);
    for (a, b) in [("x", "yz"), ("xy", "z"), ("", "xyz"), ("xyz", ""), ("1:x", "y"), ("", "1:x1:y")] {
        assert_eq!(scene.admitted(&[("a", a), ("b", b)], 2), 1, "{a:?} {b:?}");
    }
}

/// A request may carry its own limit, which overrides the limit in the file. It counts by keys, values and unit.
#[test]
fn request_limit_overrides_file() {
    for (scene, left_of_file) in [(Scene::of(TWO), 7), (Scene::counting_first(&file(TWO)), 6)] {
        let a = [("a", "x")];
        let ask = |requests: u32, unit: TimeUnit| {
            let answer = scene.rules.check("d", &[Descriptor::new(&a).limit(requests, unit)]);
            (answer.is_allowed(), answer.remaining(0), answer.limits().next().unwrap().quota())
        };
        assert_eq!(ask(2, TimeUnit::Minute), (true, 1, 2));
        assert_eq!(ask(2, TimeUnit::Minute), (true, 0, 2));
        assert_eq!(ask(5, TimeUnit::Minute), (true, 2, 5), "the counter does not depend on the limit");
        assert!(!ask(2, TimeUnit::Minute).0);
        assert_eq!(ask(2, TimeUnit::Hour), (true, 1, 2), "each unit has its own counter");
        assert!(!ask(0, TimeUnit::Second).0, "a limit of 0 denies every request");
        assert!(ask(u32::MAX, TimeUnit::Second).0 && ask(u32::MAX, TimeUnit::Year).0);
        assert_eq!(left(&scene, &a), left_of_file, "the file's rule of the same unit shares the counter");
        let unknown = [("other", "value")];
        let answer = scene.rules.check("d", &[Descriptor::new(&unknown).limit(1, TimeUnit::Day)]);
        assert_eq!(answer.limits().next().unwrap().name(), "requested per day");
        let nope = scene.rules.check("nope", &[Descriptor::new(&a).limit(0, TimeUnit::Day)]);
        assert!(nope.is_allowed(), "an unknown domain ignores the request's limit");
        scene.advance(60);
        assert_eq!(ask(2, TimeUnit::Minute), (true, 1, 2));
        scene.reload(&file(TWO));
        assert_eq!(ask(2, TimeUnit::Minute), (true, 0, 2), "a reload keeps the counter");
    }
    let scene = Scene::of(TWO);
    let a = [("a", "x")];
    let own = [Descriptor::new(&a).limit(2, TimeUnit::Minute)];
    let answer = scene.rules.check("d", &own);
    scene.rules.refund(&own, &answer);
    assert_eq!(scene.rules.check("d", &own).remaining(0), 1);
}

/// The first limit of a unit that a request sets exists before any rule is charged. A rule that counts together with it
/// would otherwise be charged again, and a sketch cannot refund the first charge.
#[test]
fn first_limit_of_request_charges_other_rules_once() {
    let scene = Scene::of(&["key: a, rate_limit: { unit: minute, requests_per_unit: 10, store: sketch }"]);
    let (a, b) = ([("a", "x")], [("b", "y")]);
    let both = [Descriptor::new(&a), Descriptor::new(&b).limit(5, TimeUnit::Minute)];
    assert!(scene.rules.check("d", &both).is_allowed());
    assert_eq!(left(&scene, &a), 9);
}

/// The request's limit counts although no rule applies to its descriptor, and the store of the other descriptor's rule would
/// alone decide.
#[test]
fn request_limit_without_rule_denies_beside_plain_rule() {
    let scene = Scene::of(TWO);
    let (a, unknown) = ([("a", "x")], [("other", "value")]);
    let both = [Descriptor::new(&a), Descriptor::new(&unknown).limit(1, TimeUnit::Day)];
    assert!(scene.rules.check("d", &both).is_allowed());
    assert!(scene.rules.check("d", &both).is_denied());
}
