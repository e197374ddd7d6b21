//! Samples A and B in Envoy's language, decision by decision. Each row starts with empty counters.

use std::time::Duration;

use tollgate::rules::{Amount, Verdict};

use super::{OK, OVER, Scene, left};
use crate::matching::texts::{EDGE as A, FILES as B};

/// Both ways of charging give the same decisions in these rows.
fn both(text: &str) -> [Scene; 2] {
    [Scene::new(text), Scene::counting_first(text)]
}

fn of(scene: &Scene, entries: &[(&str, &str)]) -> Option<(u64, Duration)> {
    let answer = scene.ask_n(entries, 0);
    let limit = answer.strictest(0)?;
    Some((limit.quota(), limit.window()))
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

#[test]
fn valueless_rule_counts_per_value() {
    for scene in both(A) {
        let one = [("remote_address", "192.0.2.1")];
        for left in (0..10).rev() {
            let answer = scene.ask(&one);
            assert_eq!((answer.is_denied(), answer.remaining(0)), (OK, left));
        }
        assert_eq!(of(&scene, &one), Some((10, SECOND)));
        scene.clock.advance(Duration::from_millis(300));
        let answer = scene.ask(&one);
        assert_eq!((answer.is_denied(), answer.remaining(0)), (OVER, 0));
        assert_eq!(
            answer.retry_after(),
            Some(Duration::from_millis(700)),
            "the wait lasts until the end of the window"
        );
        let other = scene.ask(&[("remote_address", "192.0.2.2")]);
        assert_eq!((other.is_denied(), other.remaining(0)), (OK, 9), "each value has its own counter");
        scene.clock.advance(Duration::from_millis(700));
        assert_eq!(scene.ask(&one).remaining(0), 9, "the new window is empty");
    }
}

#[test]
fn zero_limit_denies_all() {
    for scene in both(A) {
        let answer = scene.ask(&[("remote_address", "203.0.113.7")]);
        assert!(answer.is_denied());
        assert_eq!(answer.strictest(0).map(|limit| limit.quota()), Some(0));
    }
}

#[test]
fn entry_without_limit_allows_all() {
    for scene in both(A) {
        for _ in 0..100 {
            let answer = scene.ask(&[("remote_address", "198.51.100.20")]);
            assert!(answer.is_allowed() && answer.strictest(0).is_none());
        }
    }
}

#[test]
fn nested_rules_count_separately() {
    for scene in both(A) {
        let login = [("path", "/login"), ("remote_address", "192.0.2.1")];
        assert_eq!(scene.admitted(&login, 6), 5);
        assert_eq!(of(&scene, &login), Some((5, MINUTE)));
        let unlimited = scene.ask(&[("path", "/login"), ("remote_address", "198.51.100.20")]);
        assert_eq!((unlimited.is_denied(), unlimited.remaining(0)), (OK, 4_294_967_295));
        let limit = unlimited.strictest(0).unwrap();
        assert!(limit.rule().limit == Amount::Unlimited && limit.verdict() == Verdict::Unlimited);
        assert_eq!(
            of(&scene, &[("path", "/login")]),
            None,
            "the exact entry hides the entry without a value"
        );
        assert_eq!(scene.admitted(&[("path", "/home")], 1_001), 1_000);
        assert_eq!(of(&scene, &[("path", "/home")]), Some((1_000, HOUR)));
        assert_eq!(left(&scene, &[("path", "/about")]), 1_000, "each value has its own counter");
    }
}

#[test]
fn matching_needs_depth_order_and_case() {
    for scene in both(A) {
        for entries in [
            &[("path", "/home"), ("remote_address", "192.0.2.1")][..],
            &[("remote_address", "192.0.2.1"), ("path", "/login")],
            &[("remote_Address", "192.0.2.1")],
        ] {
            let answer = scene.ask(entries);
            assert!(answer.is_allowed() && answer.limits().count() == 0, "{entries:?}");
        }
    }
}

/// The two ways of charging differ in this row.
#[test]
fn all_or_nothing_differs_from_count_first() {
    let (address, login) = ([("remote_address", "x")], [("path", "/login"), ("remote_address", "x")]);
    for (scene, left_of_first) in [(Scene::counting_first(A), 9), (Scene::new(A), 10)] {
        assert_eq!(scene.admitted(&login, 5), 5);
        let answer = scene.ask_both(&address, &login);
        assert!(answer.is_denied());
        assert_eq!((answer.is_over_limit(0), answer.is_over_limit(1)), (OK, OVER));
        let refused: Vec<_> = answer.denied_by().map(|limit| limit.descriptor()).collect();
        assert_eq!(refused, [1]);
        assert_eq!(
            left(&scene, &address),
            left_of_first,
            "count-first charges the first counter too; all-or-nothing charges none"
        );
    }
}

#[test]
fn exact_value_beats_wildcard() {
    for scene in both(B) {
        assert_eq!(of(&scene, &[("path", "/v1/public")]), Some((100, MINUTE)));
        assert_eq!(scene.admitted(&[("path", "/v1/a")], 21), 20);
        assert_eq!(left(&scene, &[("path", "/v1/public")]), 100, "the exact entry has its own counter");
    }
}

#[test]
fn shared_threshold_uses_one_counter() {
    for scene in both(B) {
        assert_eq!(scene.admitted(&[("path", "/v1/a")], 12), 12);
        assert_eq!(scene.admitted(&[("path", "/v1/b")], 8), 8);
        assert!(scene.ask(&[("path", "/v1/c")]).is_over_limit(0));
        assert_eq!(
            of(&scene, &[("path", "/v1/admin/x")]),
            Some((20, MINUTE)),
            "the pattern that is declared first wins"
        );
        assert_eq!(of(&scene, &[("path", "/v1/")]), Some((20, MINUTE)));
        assert_eq!(of(&scene, &[("path", "/v1")]), None);
    }
}

#[test]
fn wildcards_count_per_value() {
    for scene in both(B) {
        assert_eq!(scene.admitted(&[("path", "/v2/export/a")], 4), 3);
        assert!(!scene.ask(&[("path", "/v2/export/b")]).is_over_limit(0));
        assert_eq!(of(&scene, &[("path", "/export/a")]), None);
    }
}

#[test]
fn shadow_rule_reports_and_admits() {
    for scene in both(B) {
        assert_eq!(of(&scene, &[("tenant", "acme"), ("method", "GET")]), Some((50, SECOND)));
        let delete = [("tenant", "acme"), ("method", "DELETE")];
        assert_eq!(scene.admitted(&delete, 2), 2);
        let answer = scene.ask(&delete);
        assert_eq!((answer.is_denied(), answer.is_over_limit(0), answer.remaining(0)), (OK, OK, 0));
        assert_eq!(answer.limits().next().unwrap().verdict(), Verdict::ShadowDenied);
        assert_eq!(of(&scene, &[("tenant", "acme")]), None);
    }
}
