//! Refunds without an answer.

use tollgate_rules::Descriptor;

use super::{Scene, one};

const A: &[(&str, &str)] = &[("a", "x")];

#[test]
fn refund_without_answer_is_clamped() {
    for limit in [
        "{ unit: day, requests_per_unit: 10 }",
        "{ unit: day, requests_per_unit: 10, store: keyed }",
        "{ unit: day, requests_per_unit: 10, algorithm: gcra }",
        "{ unit: day, requests_per_unit: 10, algorithm: gcra, store: keyed }",
        "{ unit: day, requests_per_unit: 10, algorithm: sliding-window }",
        "{ unit: day, requests_per_unit: 10, algorithm: sub-window }",
    ] {
        let scene = Scene::new(&one(limit));
        let left = || scene.ask_n(A, 0).remaining(0);
        let refund = |hits| assert!(scene.rules.refund_n("d", &[Descriptor::new(A)], hits), "{limit}");
        refund(5);
        assert_eq!(left(), 10, "{limit}: nothing was in use");
        let _ = scene.ask_n(A, 8);
        refund(0);
        assert_eq!(left(), 2, "{limit}");
        refund(3);
        assert_eq!(left(), 5, "{limit}");
        refund(u64::MAX);
        assert_eq!(left(), 10, "{limit}");
        assert!(scene.ask_n(A, 10).is_allowed() && scene.ask_n(A, 1).is_denied(), "{limit}");
    }
}

#[test]
fn refund_without_answer_frees_counted_denials() {
    let file = one("{ unit: day, requests_per_unit: 10 }").replace("{}", "{ charging: count-denials }");
    let scene = Scene::new(&file);
    assert!(scene.ask_n(A, 60).is_denied() && scene.ask_n(A, 0).is_denied());
    assert!(scene.rules.refund_n("d", &[Descriptor::new(A)], 4));
    assert_eq!(scene.ask_n(A, 0).remaining(0), 3);
}

#[test]
fn refund_without_answer_is_refused_whole() {
    for limit in [
        "{ unit: day, requests_per_unit: 10, algorithm: sliding-log }",
        "{ unit: day, requests_per_unit: 10, store: sketch }",
    ] {
        let other = ", { key: b, rate_limit: { unit: day, requests_per_unit: 10 } } ] }";
        let file = one(limit).replace(" ] }", other);
        let scene = Scene::new(&file);
        let both = [Descriptor::new(A), Descriptor::new(&[("b", "x")])];
        let refund = |place: usize| scene.rules.refund_n("d", &both[place..], 4);
        let left = || [0, 1].map(|place| scene.rules.check_n("d", &both, 0).remaining(place));
        assert!(scene.rules.check_n("d", &both, 6).is_allowed());
        assert_eq!((refund(0), left()), (false, [4, 4]), "{limit}");
        assert_eq!((refund(1), left()), (true, [4, 8]), "{limit}");
    }
    let scene = Scene::new(&one("{ unit: day, requests_per_unit: 0 }"));
    assert!(scene.rules.refund_n("d", &[Descriptor::new(A)], 4), "nothing is in use");
    assert!(scene.rules.refund_n("other", &[Descriptor::new(A)], 4));
}
