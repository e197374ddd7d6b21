//! `charging: count-denials`: a denied request is charged to the rules that deny it, and to no other.

use std::time::Duration;

use tollgate::ManualClock;
use tollgate_rules::{Charging, Config, Descriptor, Rules, TimeUnit};

use super::{OK, START, Scene, config};
use crate::scenarios::play_all;

/// The law of each scenario holds for every algorithm.
// G67, G102
#[tokio::test]
async fn local_rules_follow_every_scenario() {
    let algorithms = "fixed-window gcra sliding-window sub-window sliding-log token-bucket leaky-bucket";
    for algorithm in algorithms.split(' ') {
        play_all(&format!("algorithm: {algorithm}"), true, |text| {
            Rules::builder().clock(ManualClock::new(START)).load([config(text)]).unwrap()
        })
        .await;
    }
}

fn text(rules: &str) -> String {
    format!("{{ domain: d, tollgate: {{ charging: count-denials }}, descriptors: [ {rules} ] }}")
}

fn scene(rules: &str) -> Scene {
    Scene::new(&text(rules))
}

fn one(limit: u32, algorithm: &str) -> Scene {
    let limit = format!("{{ unit: hour, requests_per_unit: {limit}, algorithm: {algorithm} }}");
    scene(&format!("{{ key: a, rate_limit: {limit} }}"))
}

const A: &[(&str, &str)] = &[("a", "x")];

/// Returns the verdict and the remaining units of a query with a cost of 0.
fn look(scene: &Scene, entries: &[(&str, &str)]) -> (bool, u32) {
    let answer = scene.ask_n(entries, 0);
    (answer.is_over_limit(0), answer.remaining(0))
}

// G102
#[test]
fn debt_ends_with_window() {
    let scene = one(100, "fixed-window");
    let _ = (scene.ask_n(A, 60), scene.ask_n(A, 60));
    scene.advance(3_599);
    assert!(look(&scene, A).0);
    scene.advance(1);
    assert_eq!(look(&scene, A), (OK, 100));
}

/// Algorithms without window ends owe at most one unit beyond the limit, however often a client is denied.
// G102
#[test]
fn hammering_client_owes_one_unit_more() {
    for algorithm in ["gcra", "token-bucket"] {
        let scene = one(4, algorithm); // one unit returns in 900 s
        let admitted = (0..100).filter(|_| scene.ask_n(A, 3).is_allowed()).count();
        assert_eq!(admitted, 1);
        assert!(look(&scene, A).0);
        scene.advance(900);
        assert_eq!(look(&scene, A), (OK, 0), "{algorithm}: one unit returned");
        scene.advance(900);
        assert!(scene.ask(A).is_allowed(), "{algorithm}");
    }
    let scene = one(4, "fixed-window");
    (0..100).for_each(|_| drop(scene.ask_n(A, 3)));
    scene.advance(3_600);
    assert_eq!(look(&scene, A), (OK, 4));
}

#[test]
fn limit_of_request_counts_its_denials() {
    let scene = scene("{ key: a, rate_limit: { unit: hour, requests_per_unit: 9 } }");
    let ask = |hits| scene.rules.check_n("d", &[Descriptor::new(A).limit(3, TimeUnit::Hour)], hits);
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
// G102
#[test]
fn reload_keeps_counted_denials() {
    let limit =
        |limit: u32| text(&format!("{{ key: a, rate_limit: {{ unit: hour, requests_per_unit: {limit} }} }}"));
    let scene = Scene::new(&limit(4));
    assert!(scene.ask_n(A, 5).is_denied());
    scene.reload(&limit(6));
    assert_eq!(look(&scene, A), (OK, 1), "five of six units are in use");
    scene.reload(&limit(4));
    assert!(look(&scene, A).0);
    scene.clock.advance(Duration::from_secs(3_600));
    assert_eq!(look(&scene, A), (OK, 4));
}

#[test]
fn refund_of_admitted_request_restores_rules() {
    let scene = scene("{ key: a, rate_limit: { unit: hour, requests_per_unit: 4 } }");
    let request = [Descriptor::new(A)];
    let answer = scene.rules.check_n("d", &request, 3);
    scene.rules.refund(&request, &answer);
    assert_eq!(look(&scene, A), (OK, 4));
    let denied = scene.rules.check_n("d", &request, 5);
    scene.rules.refund(&request, &denied);
    assert!(look(&scene, A).0, "a denied request keeps its charge");
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
