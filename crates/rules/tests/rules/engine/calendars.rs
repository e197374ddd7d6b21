//! Rules that count in periods of a calendar: the ends of periods in all figures, and loads.

use std::time::Duration;

use tollgate::Timestamp;
use tollgate_rules::Descriptor;

use super::{Scene, config, left, one};

const X: [(&str, &str); 1] = [("a", "x")];
/// 2026-11-27 12:00 in UTC, and the end of the period of the 15th at 06:00 in Berlin that contains it.
const NOW: u64 = 1_795_780_800;
const END: u64 = 1_797_310_800;

fn monthly(limit: u32) -> String {
    one(&format!(
        "{{ period: month, time_zone: Europe/Berlin, starts: {{ day: 15, hour: 6 }}, requests_per_unit: {limit} }}"
    ))
}

fn scene(text: &str) -> Scene {
    let scene = Scene::new(text);
    scene.clock.set(Timestamp::from_secs(NOW));
    scene
}

/// Both ways of charging: the figures of an admission and of a denial point to the end of the period.
// G125
#[test]
fn figures_point_to_end_of_period() {
    for scene in [scene(&monthly(3)), Scene::counting_first(&monthly(3))] {
        scene.clock.set(Timestamp::from_secs(NOW));
        let to_end = Some(Duration::from_secs(END - NOW));
        let answer = scene.ask_n(&X, 0);
        // Also for a key that used nothing.
        assert_eq!(answer.strictest(0).and_then(|limit| limit.reset_after()), to_end);
        assert_eq!(scene.admitted(&X, 5), 3);
        let answer = scene.ask(&X);
        assert!(answer.is_over_limit(0));
        assert_eq!(answer.strictest(0).and_then(|limit| limit.reset_after()), to_end);
        assert_eq!(answer.retry_after(), to_end);
        scene.advance(END - NOW - 1);
        assert_eq!(scene.ask(&X).retry_after(), Some(Duration::from_secs(1)));
        scene.advance(1);
        assert_eq!(scene.admitted(&X, 5), 3, "the next period begins");
        assert_eq!(scene.ask(&X).retry_after(), Some(Duration::from_secs(31 * 86_400)));
    }
}

/// A load of another limit of the same calendar keeps the used units in the period. A load of another calendar
/// counts them in the period of the new one.
// G126
#[test]
fn loads_keep_usage() {
    for charging in [Scene::new, Scene::counting_first] {
        let scene = charging(&monthly(10));
        scene.clock.set(Timestamp::from_secs(NOW));
        assert_eq!(scene.admitted(&X, 6), 6);
        scene.reload(&monthly(8));
        assert_eq!(left(&scene, &X), 2);
        scene.reload(&monthly(10));
        assert_eq!(left(&scene, &X), 4, "a lower limit forgot used units");
        scene.reload(&one("{ period: month, requests_per_unit: 10 }"));
        assert_eq!(left(&scene, &X), 4, "the calendar month of UTC");
        scene.advance(Duration::from_secs(1_796_083_200 - NOW).as_secs());
        assert_eq!(left(&scene, &X), 10, "2026-12-01 in UTC");
    }
}

#[test]
fn changed_calendar_is_reported() {
    let scene = scene(&monthly(10));
    let report = scene.rules.replace([config(&one("{ period: month, requests_per_unit: 9 }"))]).unwrap();
    let changes = "limit 10/month from day 15 at 06:00 in Europe/Berlin to 9/month in UTC";
    assert!(report.to_string().contains(changes), "{report}");
}

#[test]
fn explanation_has_figures_of_the_period() {
    let scene = scene(&monthly(3));
    assert_eq!(scene.admitted(&X, 2), 2);
    for (cost, is_allowed) in [(1, true), (2, false)] {
        let explanation = scene.rules.explain("d", &[Descriptor::new(&X)], cost);
        assert_eq!(explanation.answer().is_allowed(), is_allowed);
        let rule = explanation.rules().next().expect("it applies");
        let decision = rule.applied().and_then(|applied| applied.decision().copied()).expect("it decides");
        assert_eq!((decision.remaining(), decision.reset_after()), (1, Duration::from_secs(END - NOW)));
    }
    assert_eq!(left(&scene, &X), 1);
}

/// One counter for all requests, and a keyed store.
#[test]
fn calendars_work_in_every_place_that_can_hold_them() {
    let text = "domain: edge\ntollgate: {}\ndescriptors:\n  - key: a\n    rate_limits:\n      - { period: day, time_zone: Asia/Kathmandu, requests_per_unit: 4, store: keyed, max_keys: 10 }\n  - key: b\n    value: all\n    rate_limit: { period: year, requests_per_unit: 2 }\n";
    let scene = scene(text);
    assert_eq!(scene.admitted(&X, 9), 4);
    assert_eq!(scene.admitted(&[("b", "all")], 9), 2);
    let midnight = 1_795_803_300; // 2026-11-28 00:00 in Kathmandu
    scene.advance(midnight - NOW - 1);
    assert_eq!(scene.admitted(&X, 9), 0);
    scene.advance(1);
    assert_eq!(scene.admitted(&X, 9), 4);
    assert_eq!(scene.admitted(&[("b", "all")], 9), 0);
}
