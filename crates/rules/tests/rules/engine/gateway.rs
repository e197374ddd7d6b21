//! What a service that gateways ask needs from each answer: statuses, times and counts.

use std::time::Duration;

use tollgate::ManualClock;
use tollgate::telemetry::NearLimit;
use tollgate_rules::{Descriptor, Rules, TimeUnit};

use super::{OK, OVER, START, Scene, config, one};

const A: &[(&str, &str)] = &[("a", "x")];

fn reset(scene: &Scene, hits: u64) -> Option<Duration> {
    scene.ask_n(A, hits).strictest(0).and_then(|limit| limit.reset_after())
}

#[test]
fn dry_run_status_stays_over_limit() {
    let file = one("{ unit: minute, requests_per_unit: 0 }").replace("{}", "{ shadow: true }");
    let answer = Scene::new(&file).ask(A);
    assert_eq!((answer.is_denied(), answer.is_over_limit(0)), (OK, OVER));
}

#[test]
fn fixed_window_resets_at_its_end() {
    let seconds = Duration::from_secs;
    let scene = Scene::new(&one("{ unit: minute, requests_per_unit: 2 }"));
    assert_eq!(reset(&scene, 0), Some(seconds(60)), "an unused window ends too");
    scene.advance(1);
    assert_eq!([reset(&scene, 1), reset(&scene, 0), reset(&scene, 9)], [Some(seconds(59)); 3]);
    let blocked = Scene::new(&one("{ unit: hour, requests_per_unit: 0 }"));
    blocked.advance(600);
    assert_eq!(reset(&blocked, 1), Some(seconds(3_000)));
    for none in [one("{ unlimited: true }"), "{ domain: d, descriptors: [] }".to_owned()] {
        assert_eq!(reset(&Scene::new(&none), 1), None);
    }
    let own = [Descriptor::new(A).limit(3, TimeUnit::Hour)];
    let answer = scene.rules.check("d", &own);
    assert_eq!(answer.strictest(0).and_then(|limit| limit.reset_after()), Some(seconds(3_599)));
}

#[test]
fn gcra_resets_when_request_fits_or_all_units_return() {
    let scene = Scene::new(&one("{ unit: minute, requests_per_unit: 6, algorithm: gcra }"));
    assert_eq!(reset(&scene, 5), Some(Duration::from_secs(50)), "all units are available in 50 s");
    assert_eq!(reset(&scene, 2), Some(Duration::from_secs(10)), "two units fit in 10 s");
}

#[test]
fn near_limit_share_is_settable() {
    let counted = |near: Option<u32>| {
        let builder = Rules::builder().clock(ManualClock::new(START));
        let builder = match near {
            Some(near) => builder.near_limit(NearLimit::per_million(near)),
            None => builder,
        };
        let rules = builder.load([config(&one("{ unit: hour, requests_per_unit: 10 }"))]).unwrap();
        for _ in 0..10 {
            assert!(rules.check("d", &[Descriptor::new(A)]).is_allowed());
        }
        let mut near = 0;
        rules.for_each(|_, _, counts| near = counts.near_limit);
        near
    };
    assert_eq!([counted(None), counted(Some(800_000))], [2, 2]);
    assert_eq!([counted(Some(250_000)), counted(Some(0)), counted(Some(1_000_000))], [8, 10, 0]);
    assert_eq!(counted(Some(u32::MAX)), 0);
}

/// The unit of a response is found by the period.
#[test]
fn period_names_its_unit() {
    assert_eq!(TimeUnit::of(Duration::from_secs(604_800)), Some(TimeUnit::Week));
    assert_eq!(TimeUnit::of(Duration::from_secs(10)), None);
}

/// A service finds the metadata of the rule that applies to a descriptor, also for wildcards.
#[test]
fn status_leads_to_metadata_of_its_rule() {
    let scene = Scene::of(&[
        "key: a, value: x*, metadata: { backend: large }, rate_limit: { unit: hour, requests_per_unit: 1 }",
    ]);
    let answer = scene.ask(&[("a", "xy")]);
    let metadata = answer.strictest(0).and_then(|limit| limit.rule().metadata.as_deref());
    assert!(metadata.is_some_and(|metadata| metadata.get("backend").is_some()));
}
