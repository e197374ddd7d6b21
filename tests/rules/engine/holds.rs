//! `hold` and `in_progress`: units that requests hold until their end.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::holds::HoldId;
use tollgate::rules::{Answer, Charging, Descriptor, Verdict};

use super::{Scene, left, one};

const A: [(&str, &str); 1] = [("a", "x")];
const B: [(&str, &str); 1] = [("b", "x")];
const ALL: Duration = Duration::MAX;

fn hold(scene: &Scene, units: u64) -> Option<HoldId> {
    scene.rules.hold("d", &[Descriptor::new(&A)], units, ALL).1
}

fn commit(scene: &Scene, id: HoldId, actual: u64) -> bool {
    scene.rules.commit("d", &[Descriptor::new(&A)], id, actual)
}

/// Returns a limit of ten a day with a hold.
fn ten(hold: &str) -> String {
    one(&format!("{{ unit: day, requests_per_unit: 10, hold: {{ {hold} }} }}"))
}

#[test]
fn units_are_taken_and_settled() {
    for store in
        ["", "store: keyed", "algorithm: gcra", "algorithm: gcra, store: keyed", "algorithm: sub-window"]
    {
        let scene = Scene::new(&one(&format!("{{ unit: day, requests_per_unit: 10, hold: {{}}, {store} }}")));
        let id = hold(&scene, 8).unwrap();
        assert_eq!((left(&scene, &A), scene.rules.holds()), (2, 1), "{store}");
        assert_eq!(hold(&scene, 3), None, "{store}: the units of the hold are taken");
        assert!(commit(&scene, id, 3));
        assert_eq!((left(&scene, &A), scene.rules.holds()), (7, 0), "{store}");
        let id = hold(&scene, 5).unwrap();
        assert!(commit(&scene, id, 9), "{store}: more than was held");
        assert!(scene.ask(&A).is_denied(), "{store}: 12 of 10 units are used");
        assert_eq!(scene.rules.holds(), 0);
    }
}

#[test]
fn ended_hold_gives_its_units_back_and_late_commit_charges() {
    let scene = Scene::new(&ten("life: 30s"));
    let id = hold(&scene, 8).unwrap();
    assert_eq!(id.end(), super::START + Duration::from_secs(30));
    scene.advance(29);
    assert!(scene.ask_n(&A, 3).is_denied());
    scene.advance(1);
    assert!(scene.ask_n(&A, 3).is_allowed());
    assert_eq!(scene.rules.holds(), 0);
    assert!(!commit(&scene, id, 4), "the hold has ended");
    assert_eq!(left(&scene, &A), 3, "units that were used are charged");
    assert!(!commit(&scene, id, 0), "nothing more is charged");
    assert_eq!(left(&scene, &A), 3);
    let (_, id) = scene.rules.hold("d", &[Descriptor::new(&A)], 1, Duration::from_secs(5));
    assert_eq!(id.unwrap().end(), super::START + Duration::from_secs(35));
}

#[test]
fn holds_take_at_most_their_share() {
    let scene = Scene::new(&ten("most: 50%"));
    assert!(scene.rules.hold("d", &[Descriptor::new(&A)], 6, ALL).0.is_never());
    let id = hold(&scene, 3).unwrap();
    assert_eq!(hold(&scene, 3), None, "six units would be held");
    assert_eq!(left(&scene, &A), 7, "a denied hold is refunded");
    assert!(scene.ask_n(&A, 7).is_allowed(), "other requests can use the rest");
    assert!(commit(&scene, id, 0));
    assert!(hold(&scene, 3).is_some());
}

#[test]
fn all_rules_hold_or_none() {
    let text = "{ domain: d, tollgate: {}, descriptors: [
        { key: a, rate_limits: [ { unit: minute, requests_per_unit: 10, hold: {} }, { unit: day, requests_per_unit: 12, hold: { most: 60% } },
          { in_progress: 1 } ] },
        { key: b, rate_limit: { unit: minute, requests_per_unit: 3 } } ] }";
    let scene = Scene::new(text);
    let both = [Descriptor::new(&A), Descriptor::new(&B).hits(1)];
    let limits = |answer: &Answer| answer.limits().map(|limit| limit.remaining()).collect::<Vec<_>>();
    let peek = || limits(&scene.rules.check_n("d", &[Descriptor::new(&A), Descriptor::new(&B)], 0));
    let (answer, id) = scene.rules.hold("d", &both, 2, ALL);
    assert_eq!(limits(&answer), [8, 10, 0, 2]);
    assert_eq!(scene.rules.holds(), 3);
    let (answer, none) = scene.rules.hold("d", &both, 1, ALL);
    assert!(answer.is_denied() && none.is_none(), "one is in progress");
    assert_eq!(scene.rules.holds(), 3);
    assert!(scene.rules.commit("d", &both, id.unwrap(), 1));
    assert_eq!(scene.rules.holds(), 0);
    assert_eq!(peek(), [9, 11, 1, 2], "a rule without holds keeps its charge");
    // The second rule has no room for the hold, so the first one gets its units back.
    let (answer, none) = scene.rules.hold("d", &both[..1], 8, ALL);
    assert!(answer.is_denied() && none.is_none());
    assert_eq!(peek(), [9, 11, 1, 2]);
}

#[test]
fn requests_are_in_progress_until_they_are_settled() {
    let scene = Scene::new(&one("{ in_progress: 2, hold: { life: 5m } }"));
    let first = hold(&scene, 500).unwrap();
    assert!(hold(&scene, 1).is_some(), "each is one request, whatever it costs");
    let answer = scene.ask(&A);
    assert_eq!(answer.retry_after(), Some(Duration::from_secs(300)), "the first life ends then");
    assert!(answer.is_denied() && scene.ask(&[("a", "y")]).is_allowed());
    assert!(commit(&scene, first, 1) && !commit(&scene, first, 1));
    assert_eq!(left(&scene, &A), 1);
    assert!(scene.ask(&A).is_allowed(), "a check counts until its life has ended");
    assert!(scene.ask(&A).is_denied());
    assert!(scene.rules.refund_n("d", &[Descriptor::new(&A)], 1), "a refund ends one request");
    assert!(scene.ask(&A).is_allowed());
    scene.advance(299);
    assert!(scene.ask(&A).is_denied());
    scene.advance(1);
    assert_eq!(scene.admitted(&A, 3), 2);
}

#[test]
fn denied_request_is_not_in_progress() {
    let text = "{ domain: d, tollgate: {}, descriptors: [ { key: a, rate_limit: { in_progress: 5 } },
        { key: b, rate_limit: { unit: day, requests_per_unit: 2 } } ] }";
    for (one, other) in [(A, B), (B, A)] {
        let scene = Scene::new(text);
        let admitted = (0..4).filter(|_| scene.ask_both(&one, &other).is_allowed()).count();
        assert_eq!((admitted, scene.rules.holds(), left(&scene, &A)), (2, 2, 3));
    }
}

#[test]
fn request_holds_what_its_rule_says_and_a_report_settles_it() {
    for charging in ["all-or-nothing", "count-denials"] {
        let text = ten("units: 4").replace("tollgate: {}", &format!("tollgate: {{ charging: {charging} }}"));
        let scene = Scene::new(&text);
        assert!(scene.ask_n(&A, 0).is_allowed() && scene.ask_n(&A, 0).is_allowed());
        assert_eq!(scene.rules.holds(), 2);
        assert!(scene.ask_n(&A, 0).is_denied(), "two units are left");
        let report = scene.ask_n(&A, 7);
        assert_eq!((report.is_allowed(), report.status(0).remaining()), (true, 0), "11 of 10");
        let is_over = charging == "count-denials";
        assert_eq!(scene.ask_n(&A, 1).is_denied(), is_over, "11 of 10 were used before it");
        assert_eq!(scene.rules.holds(), 0, "each report settles a hold");
        let left = scene.rules.explain("d", &[Descriptor::new(&A)], 0);
        assert!(left.answer().is_denied(), "eight are used, and the next request would hold four");
        assert!(scene.ask_n(&A, 3).is_denied(), "a cost without a hold is an ordinary request");
        let used = if charging == "count-denials" { 11 } else { 8 };
        assert_eq!(scene.ask_n(&A, 2).is_allowed(), used == 8, "{charging}");
    }
}

#[test]
fn unreported_holds_end_and_limit_stays_on() {
    let scene = Scene::new(&ten("units: 4, life: 1m"));
    assert_eq!((0..100).filter(|_| scene.ask_n(&A, 0).is_allowed()).count(), 2);
    scene.advance(60);
    assert_eq!((0..100).filter(|_| scene.ask_n(&A, 0).is_allowed()).count(), 2);
    let admitted = (0..100).filter(|_| scene.ask_n(&A, 4).is_allowed()).count();
    assert_eq!(admitted, 2, "each hold admits one report, and then nothing is left");
}

#[test]
fn hold_survives_loads() {
    let daily =
        |limit, more: &str| one(&format!("{{ unit: day, requests_per_unit: {limit}, hold: {{}}{more} }}"));
    for (after, used) in [
        (daily(10, ""), 3),
        (daily(20, ""), 3),
        (daily(9, ""), 3),
        (daily(10, ", algorithm: gcra"), 3),
        (daily(10, ", store: keyed"), 3),
    ] {
        let scene = Scene::new(&daily(10, ""));
        let id = hold(&scene, 8).unwrap();
        scene.reload(&after);
        assert!(scene.ask_n(&A, 3).is_denied() || after.contains("20"), "{after}: the units stay taken");
        assert!(commit(&scene, id, 3), "{after}");
        let limit = if after.contains("20") { 17 } else { 7 - u32::from(after.contains('9')) };
        let expected = limit - if after.contains("20") { 3 } else { 0 };
        assert_eq!(left(&scene, &A), expected, "{after}: {used} are used");
    }
    let scene = Scene::new(&one("{ in_progress: 2 }"));
    let ids = [hold(&scene, 1).unwrap(), hold(&scene, 1).unwrap()];
    scene.reload(&one("{ in_progress: 3 }"));
    assert_eq!(scene.admitted(&A, 2), 1);
    scene.reload(&one("{ in_progress: 1 }"));
    assert!(commit(&scene, ids[0], 1) && scene.ask(&A).is_denied());
    assert!(commit(&scene, ids[1], 1) && scene.ask(&A).is_denied(), "one is in progress");
    scene.reload(&one("{ unit: day, requests_per_unit: 1 }"));
    assert!(scene.ask(&A).is_allowed() && scene.ask(&A).is_denied());
}

#[test]
fn shadow_rules_hold_and_deny_nothing() {
    let text = ten("most: 50%").replace("key: a,", "key: a, shadow_mode: true,");
    let scene = Scene::new(&text);
    let id = hold(&scene, 4).unwrap();
    assert_eq!(left(&scene, &A), 6);
    let (answer, other) = scene.rules.hold("d", &[Descriptor::new(&A)], 4, ALL);
    assert!(answer.is_allowed());
    assert_eq!(answer.limits().next().unwrap().verdict(), Verdict::ShadowDenied);
    assert_eq!((left(&scene, &A), scene.rules.holds()), (6, 1), "a denied hold is refunded");
    assert!(commit(&scene, id, 1) && !commit(&scene, other.unwrap(), 2));
    assert_eq!(left(&scene, &A), 7);
}

#[test]
fn tiers_hold_by_themselves() {
    let text = "{ domain: d, tollgate: {}, descriptors: [ { key: a, rate_limit: { unit: day, requests_per_unit: 4, hold: {} },
        tiers: { gold: { members: [ g ], rate_limit: { unit: day, requests_per_unit: 40, hold: { most: 25% } } } } } ] }";
    let scene = Scene::new(text);
    let gold = [("a", "g")];
    let id = scene.rules.hold("d", &[Descriptor::new(&gold)], 10, ALL).1.unwrap();
    assert!(scene.rules.hold("d", &[Descriptor::new(&gold)], 1, ALL).0.is_denied());
    assert!(hold(&scene, 4).is_some() && hold(&scene, 1).is_none());
    assert!(scene.rules.commit("d", &[Descriptor::new(&gold)], id, 2));
    assert_eq!(left(&scene, &gold), 38);
}

#[test]
fn descriptors_of_one_rule_hold_once() {
    let scene = Scene::new(&ten(""));
    let twice = [Descriptor::new(&A), Descriptor::new(&A)];
    let (answer, id) = scene.rules.hold("d", &twice, 3, ALL);
    assert!(answer.is_allowed());
    assert_eq!((left(&scene, &A), scene.rules.holds()), (4, 1));
    assert!(scene.rules.commit("d", &twice, id.unwrap(), 1));
    assert_eq!(left(&scene, &A), 6, "the second descriptor is an ordinary charge");
}

#[test]
fn counting_first_has_no_holds() {
    for text in [ten(""), one("{ in_progress: 3 }")] {
        let error = Scene::try_new(&text, Some(Charging::CountFirst)).err().unwrap().to_string();
        assert!(
            error.contains("test.yaml") && error.contains("denied requests are charged first"),
            "{error}"
        );
    }
}

#[test]
fn requests_without_holds_are_not_counted_as_held() {
    let scene = Scene::new(&one("{ unit: day, requests_per_unit: 10 }"));
    let (answer, id) = scene.rules.hold("d", &[Descriptor::new(&A)], 4, ALL);
    assert!(answer.is_allowed() && id.is_none());
    assert_eq!((left(&scene, &A), scene.rules.holds()), (6, 0), "the charge is an ordinary one");
    assert!(scene.rules.hold("nope", &[Descriptor::new(&A)], 4, ALL).1.is_none());
}

#[derive(Clone, Debug)]
enum Step {
    Check(u64),
    Hold(u64, u64),
    Commit(usize, u64),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..12_u64).prop_map(Step::Check),
        (1..12_u64, 0..90_u64).prop_map(|(units, life)| Step::Hold(units, life)),
        (0..6_usize, 0..14_u64).prop_map(|(which, actual)| Step::Commit(which, actual)),
        (0..40_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    /// The reference notes the used units of a minute, and the holds with their ends.
    #[test]
    fn window_holds_are_those_of_the_reference(steps in proptest::collection::vec(step(), 1..60)) {
        let scene = Scene::new(&one("{ unit: minute, requests_per_unit: 10, store: keyed, hold: { life: 60s } }"));
        let (mut now, mut window, mut used) = (0_u64, 0_u64, 0_u64);
        let mut held: Vec<(HoldId, u64, u64, u64)> = Vec::new(); // identity, units, end, window
        let mut ids = Vec::new();
        for step in steps {
            if now / 60 > window {
                (window, used) = (now / 60, 0);
            }
            // A hold that has ended gives back what it holds of this window.
            let release = |held: &mut Vec<(HoldId, u64, u64, u64)>, used: &mut u64| {
                held.retain(|&(_, units, end, of)| {
                    if end <= now && of == window { *used = used.saturating_sub(units); }
                    end > now
                });
            };
            match step {
                Step::Wait(seconds) => {
                    now += seconds;
                    scene.advance(seconds);
                }
                Step::Check(cost) => {
                    release(&mut held, &mut used);
                    let expected = used + cost <= 10;
                    prop_assert_eq!(scene.ask_n(&A, cost).is_allowed(), expected);
                    if expected { used += cost; }
                }
                Step::Hold(units, life) => {
                    release(&mut held, &mut used);
                    let expected = used + units <= 10
                        && held.iter().map(|&(_, units, ..)| units).sum::<u64>() + units <= 10;
                    let life = Duration::from_secs(life);
                    let (answer, id) = scene.rules.hold("d", &[Descriptor::new(&A)], units, life);
                    prop_assert_eq!((answer.is_allowed(), id.is_some()), (expected, expected));
                    if let Some(id) = id {
                        used += units;
                        held.push((id, units, now + life.as_secs().min(60), window));
                        ids.push(id);
                    }
                }
                Step::Commit(which, actual) if !ids.is_empty() => {
                    release(&mut held, &mut used);
                    let id = ids[which % ids.len()];
                    let place = held.iter().position(|hold| hold.0 == id);
                    prop_assert_eq!(commit(&scene, id, actual), place.is_some());
                    match place.map(|place| held.remove(place)) {
                        Some((_, units, _, of)) if of == window => used = used.saturating_sub(units.saturating_sub(actual)) + actual.saturating_sub(units),
                        Some((_, units, ..)) => used += actual.saturating_sub(units),
                        None => used += actual,
                    }
                }
                Step::Commit(..) => {}
            }
            prop_assert_eq!(scene.rules.holds() >= held.len(), true);
        }
    }
}
