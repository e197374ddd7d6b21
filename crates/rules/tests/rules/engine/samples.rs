//! Samples A and B in Envoy's language, decision by decision. Each row starts with empty counters.

use std::time::Duration;

use tollgate_rules::{Amount, Verdict};

use super::{OK, OVER, Scene, left};
use crate::texts::{EDGE as A, FILES as B};

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
        let to_end = Some(Duration::from_millis(700));
        assert_eq!(answer.retry_after(), to_end, "the wait lasts until the end of the window");
        let other = scene.ask(&[("remote_address", "192.0.2.2")]);
        assert_eq!((other.is_denied(), other.remaining(0)), (OK, 9), "each value has its own counter");
        scene.clock.advance(Duration::from_millis(700));
        assert_eq!(scene.ask(&one).remaining(0), 9, "the new window is empty");
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
        let exact = of(&scene, &[("path", "/login")]);
        assert_eq!(exact, None, "the exact entry hides the entry without a value");
        assert_eq!(scene.admitted(&[("path", "/home")], 1_001), 1_000);
        assert_eq!(of(&scene, &[("path", "/home")]), Some((1_000, HOUR)));
        assert_eq!(left(&scene, &[("path", "/about")]), 1_000, "each value has its own counter");
    }
}

#[test]
fn shared_threshold_uses_one_counter() {
    for scene in both(B) {
        assert_eq!(scene.admitted(&[("path", "/v1/a")], 12), 12);
        assert_eq!(scene.admitted(&[("path", "/v1/b")], 8), 8);
        assert!(scene.ask(&[("path", "/v1/c")]).is_over_limit(0));
        let both = of(&scene, &[("path", "/v1/admin/x")]);
        assert_eq!(both, Some((20, MINUTE)), "the pattern that is declared first wins");
        assert_eq!(of(&scene, &[("path", "/v1/")]), Some((20, MINUTE)));
        assert_eq!(of(&scene, &[("path", "/v1")]), None);
    }
}
