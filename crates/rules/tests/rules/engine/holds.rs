//! `hold` and `in_progress`: units that requests hold until their end.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::ManualClock;
use tollgate::holds::HoldId;
use tollgate_rules::{Answer, Charging, Config, Descriptor, Rules, TimeUnit, Verdict};

use super::{START, Scene, config, left, one};

const A: [(&str, &str); 1] = [("a", "x")];
const B: [(&str, &str); 1] = [("b", "x")];
const REQUEST: [Descriptor<'_>; 1] = [Descriptor::new(&A)];
const ALL: Duration = Duration::MAX;

fn hold(scene: &Scene, units: u64) -> Option<HoldId> {
    scene.rules.hold("d", &REQUEST, units, ALL).1
}

fn commit(scene: &Scene, id: HoldId, actual: u64) -> bool {
    scene.rules.commit("d", &REQUEST, id, actual)
}

/// Returns a limit of ten a day with a hold.
fn ten(hold: &str) -> String {
    one(&format!("{{ unit: day, requests_per_unit: 10, hold: {{ {hold} }} }}"))
}

// G135
#[test]
fn holds_take_at_most_their_share() {
    let scene = Scene::new(&ten("most: 50%"));
    assert!(scene.rules.hold("d", &REQUEST, 6, ALL).0.is_never());
    let id = hold(&scene, 3).unwrap();
    assert_eq!(hold(&scene, 3), None, "six units would be held");
    assert_eq!(left(&scene, &A), 7, "a denied hold is refunded");
    assert!(scene.ask_n(&A, 7).is_allowed(), "other requests can use the rest");
    assert!(commit(&scene, id, 0));
    assert!(hold(&scene, 3).is_some());
}

// G135
#[test]
fn all_rules_hold_or_none() {
    let scene = Scene::of(&[
        "key: a, rate_limits: [ { unit: minute, requests_per_unit: 10, hold: {} }, \
         { unit: day, requests_per_unit: 12, hold: { most: 60% } }, { in_progress: 1 } ]",
        "key: b, rate_limit: { unit: minute, requests_per_unit: 3 }",
    ]);
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

// G135
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
    assert!(scene.rules.refund_n("d", &REQUEST, 1), "a refund ends one request");
    assert!(scene.ask(&A).is_allowed());
    scene.advance(299);
    assert!(scene.ask(&A).is_denied());
    scene.advance(1);
    assert_eq!(scene.admitted(&A, 3), 2);
}

// G135
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

// G135
#[test]
fn request_holds_what_its_rule_says_and_a_report_settles_it() {
    for charging in ["all-or-nothing", "count-denials"] {
        let text = ten("units: 4").replace("tollgate: {}", &format!("tollgate: {{ charging: {charging} }}"));
        let scene = Scene::new(&text);
        assert!(scene.ask_n(&A, 0).is_allowed() && scene.ask_n(&A, 0).is_allowed());
        assert_eq!(scene.rules.holds(), 2);
        assert!(scene.ask_n(&A, 0).is_denied(), "two units are left");
        let report = scene.ask_n(&A, 7);
        assert_eq!((report.is_allowed(), report.remaining(0)), (true, 0), "11 of 10");
        let is_over = charging == "count-denials";
        assert_eq!(scene.ask_n(&A, 1).is_denied(), is_over, "11 of 10 were used before it");
        assert_eq!(scene.rules.holds(), 0, "each report settles a hold");
        let left = scene.rules.explain("d", &REQUEST, 0);
        assert!(left.answer().is_denied(), "eight are used, and the next request would hold four");
        assert!(scene.ask_n(&A, 3).is_denied(), "a cost without a hold is an ordinary request");
        let used = if charging == "count-denials" { 11 } else { 8 };
        assert_eq!(scene.ask_n(&A, 2).is_allowed(), used == 8, "{charging}");
    }
}

// G135
#[test]
fn unreported_holds_end_and_limit_stays_on() {
    let scene = Scene::new(&ten("units: 4, life: 1m"));
    assert_eq!((0..100).filter(|_| scene.ask_n(&A, 0).is_allowed()).count(), 2);
    scene.advance(60);
    assert_eq!((0..100).filter(|_| scene.ask_n(&A, 0).is_allowed()).count(), 2);
    let admitted = (0..100).filter(|_| scene.ask_n(&A, 4).is_allowed()).count();
    assert_eq!(admitted, 2, "each hold admits one report, and then nothing is left");
}

/// A new hold of one client releases the ended ones of others, also those of rules that a load has changed.
// G117
#[test]
fn ended_holds_of_other_clients_give_their_units_back() {
    let daily = |limit, more: &str| {
        one(&format!("{{ unit: day, requests_per_unit: {limit}, hold: {{ life: 30s }}{more} }}"))
    };
    let (same, keyed) = (daily(10, ""), daily(10, ", store: keyed"));
    for (before, after, most) in [
        (&same, &same, 10),
        (&keyed, &keyed, 10),
        (&same, &daily(20, ""), 20),
        (&same, &daily(10, ", algorithm: gcra"), 10),
        (&keyed, &same, 10),
    ] {
        let scene = Scene::new(before);
        assert!(hold(&scene, 8).is_some());
        if before != after {
            scene.reload(after);
        }
        scene.advance(30);
        let of_other = scene.rules.hold("d", &[Descriptor::new(&[("a", "y")])], 1, ALL).1;
        assert!(of_other.is_some(), "{after}");
        assert_eq!(scene.rules.holds(), 1, "{after}: only the new hold is left");
        assert_eq!(left(&scene, &A), most, "{after}: the units are back");
    }
}

// G118
#[test]
fn peek_does_not_count_ended_requests() {
    let scene = Scene::new(&one("{ in_progress: 2, hold: { life: 30s } }"));
    assert!(hold(&scene, 1).is_some() && hold(&scene, 1).is_some());
    let peek = || scene.rules.peek("d", &REQUEST).remaining(0);
    assert_eq!(peek(), 0);
    scene.advance(30);
    assert_eq!(peek(), 2);
}

// G135
#[test]
fn hold_survives_loads() {
    let daily =
        |limit, more: &str| one(&format!("{{ unit: day, requests_per_unit: {limit}, hold: {{}}{more} }}"));
    for (after, fits, rest) in [
        (daily(20, ""), true, 14),
        (daily(9, ""), false, 6),
        (daily(10, ", algorithm: gcra"), false, 7),
        (daily(10, ", store: keyed"), false, 7),
    ] {
        let scene = Scene::new(&daily(10, ""));
        let id = hold(&scene, 8).unwrap();
        scene.reload(&after);
        assert_eq!(scene.ask_n(&A, 3).is_allowed(), fits, "{after}: the units stay taken");
        assert!(commit(&scene, id, 3), "{after}");
        assert_eq!(left(&scene, &A), rest, "{after}");
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

// G135
#[test]
fn shadow_rules_hold_and_deny_nothing() {
    let text = ten("most: 50%").replace("key: a,", "key: a, shadow_mode: true,");
    let scene = Scene::new(&text);
    let id = hold(&scene, 4).unwrap();
    assert_eq!(left(&scene, &A), 6);
    let (answer, other) = scene.rules.hold("d", &REQUEST, 4, ALL);
    assert!(answer.is_allowed());
    assert_eq!(answer.limits().next().unwrap().verdict(), Verdict::ShadowDenied);
    assert_eq!((left(&scene, &A), scene.rules.holds()), (6, 1), "a denied hold is refunded");
    assert!(commit(&scene, id, 1) && !commit(&scene, other.unwrap(), 2));
    assert_eq!(left(&scene, &A), 7);
}

// G135
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

// G135
#[test]
fn descriptors_of_one_rule_hold_once() {
    let scene = Scene::new(&ten(""));
    let twice = [Descriptor::new(&A), Descriptor::new(&A)];
    let (answer, id) = scene.rules.hold("d", &twice, 3, ALL);
    assert!(answer.is_allowed());
    assert_eq!((left(&scene, &A), scene.rules.holds()), (4, 1));
    assert!(scene.rules.commit("d", &twice, id.unwrap(), 1));
    assert_eq!(left(&scene, &A), 6, "the second descriptor is an ordinary charge");

    // A request is in progress once, whatever it costs and however many of its descriptors have the rule.
    let scene = Scene::new(&one("{ in_progress: 2 }"));
    let (answer, id) = scene.rules.hold("d", &twice, 500, ALL);
    assert!(answer.is_allowed() && id.is_some());
    assert_eq!(scene.rules.holds(), 1);
    assert!(scene.ask(&A).is_allowed());
    assert!(scene.rules.refund_n("d", &twice, 1), "ends one of them");
    assert_eq!(scene.rules.holds(), 1);
}

// G135
#[test]
fn counting_first_has_no_holds() {
    for text in [ten(""), one("{ in_progress: 3 }")] {
        let error = Scene::try_new(&text, Some(Charging::CountFirst)).err().unwrap().to_string();
        assert!(error.starts_with("test.yaml"), "{error}");
        assert!(error.contains("denied requests are charged first"), "{error}");
    }
}

// G135
#[test]
fn requests_without_holds_are_not_counted_as_held() {
    let scene = Scene::new(&one("{ unit: day, requests_per_unit: 10 }"));
    let (answer, id) = scene.rules.hold("d", &REQUEST, 4, ALL);
    assert!(answer.is_allowed() && id.is_none());
    assert_eq!((left(&scene, &A), scene.rules.holds()), (6, 0), "the charge is an ordinary one");
    let (answer, id) = scene.rules.hold("nope", &REQUEST, 4, ALL);
    assert!(answer.is_allowed() && id.is_none());
    assert_eq!(scene.rules.reloads().unknown_domains, 1, "the request is counted once");
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
    // G135
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
                    let (answer, id) = scene.rules.hold("d", &REQUEST, units, life);
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

/// A quota rule without room for the hold denies by itself. If another one has room, the request is charged to that one.
// G135
#[test]
fn full_share_of_one_quota_rule_switches_no_limit_off() {
    let text = "{ domain: d, tollgate: {}, descriptors: [
        { key: a, quota_mode: true, rate_limits: [ { name: one, unit: day, requests_per_unit: 100, hold: { most: 10% } },
          { name: two, unit: day, requests_per_unit: 20, hold: {} } ] },
        { key: b, rate_limit: { unit: day, requests_per_unit: 5 } } ] }";
    let scene = Scene::new(text);
    let both = [Descriptor::new(&A), Descriptor::new(&B).hits(1)];
    let admitted = (0..50).filter(|_| scene.rules.hold("d", &both, 10, ALL).0.is_allowed()).count();
    assert_eq!((admitted, left(&scene, &B)), (2, 3));
}

/// Each rule has its own life: a short hold of a rate does not end a request in progress.
// G135
#[test]
fn life_of_a_hold_does_not_shorten_a_request_in_progress() {
    let text = "{ domain: d, tollgate: {}, descriptors: [ { key: a, rate_limits: [
        { unit: day, requests_per_unit: 100, hold: { life: 5s } }, { in_progress: 1, hold: { life: 10m } } ] } ] }";
    let scene = Scene::new(text);
    let id = hold(&scene, 1).unwrap();
    scene.advance(6);
    assert_eq!(hold(&scene, 1), None, "the first request is in progress");
    assert!(commit(&scene, id, 1));
    assert!(hold(&scene, 1).is_some());
}

/// The hold is settled by its commit even while its rule has no `hold`.
// G135
#[test]
fn commit_counts_while_a_load_has_no_holds() {
    let daily = |more: &str| one(&format!("{{ unit: day, requests_per_unit: 10{more} }}"));
    for (actual, rest) in [(8, 2), (9, 1), (3, 7)] {
        let scene = Scene::new(&daily(", hold: {}"));
        let id = hold(&scene, 8).unwrap();
        scene.reload(&daily(""));
        commit(&scene, id, actual);
        scene.reload(&daily(", hold: {}"));
        scene.advance(60);
        assert_eq!(left(&scene, &A), rest, "{actual} units were used");
    }
}

/// A hold of a counter that is gone gives nothing back to the next counter, which does not contain its charge.
// G135
#[test]
fn hold_of_a_removed_rule_gives_back_no_units_of_others() {
    let other = "{ domain: d, tollgate: {}, descriptors: [ { key: b, rate_limit: { in_progress: 1 } } ] }";
    let progress = one("{ in_progress: 3 }");
    for between in [other, &progress] {
        let scene = Scene::new(&ten("life: 60s"));
        assert!(hold(&scene, 8).is_some());
        scene.reload(between);
        scene.reload(&ten("life: 60s"));
        assert!(scene.ask_n(&A, 10).is_allowed(), "the usage was lost with the rule");
        scene.advance(60);
        assert!(scene.ask_n(&A, 8).is_denied(), "{between}: ten of ten are used");
    }
}

/// Which rules are replaced can depend on the time of the request.
// G135
#[test]
fn commit_settles_a_hold_of_a_rule_that_is_replaced_by_then() {
    let text = "{ domain: d, tollgate: {}, descriptors: [
        { key: a, value: x, rate_limit: { name: base, unit: day, requests_per_unit: 1000, hold: { life: 60s } } },
        { key: b, value: x, rate_limit: { unit: day, requests_per_unit: 100000, enforced: 50%, replaces: [ { name: base } ], hold: {} } } ] }";
    let scene = Scene::new(text);
    let both = [Descriptor::new(&A), Descriptor::new(&B)];
    for _ in 0..64 {
        let id = scene.rules.hold("d", &both, 1, ALL).1.unwrap();
        scene.clock.advance(Duration::from_millis(7));
        scene.rules.commit("d", &both, id, 1);
    }
    assert_eq!(scene.rules.holds(), 0, "all are settled");
}

/// A report can settle the hold of a request that another rule denies at the same time. The refund of the denied request
/// then must not return what the report used.
// G135
#[test]
fn report_loses_no_units_to_a_request_that_is_denied() {
    let text = "{ domain: d, tollgate: {}, descriptors: [
        { key: a, rate_limit: { unit: day, requests_per_unit: 4000000000, store: keyed, hold: { units: 4 } } },
        { key: b, rate_limit: { unit: day, requests_per_unit: 100, hold: { units: 1, most: 1% } } } ] }";
    let scene = Scene::new(text);
    assert!(scene.ask_n(&B, 0).is_allowed(), "this hold takes the whole share");
    let both = [Descriptor::new(&A), Descriptor::new(&B)];
    let reports = 20_000;
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                assert!(scene.rules.check_n("d", &both, 0).is_denied());
            }
        });
        for _ in 0..reports {
            assert!(scene.ask_n(&A, 4).is_allowed());
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(scene.rules.holds(), 1, "that of the other rule");
    let left =
        scene.rules.check_n("d", &[Descriptor::new(&A).hits(4)], 4).limits().next().unwrap().remaining();
    assert_eq!(4_000_000_000 - left, 4 * (reports + 1));
}

// G135
#[test]
fn refund_of_nothing_gives_nothing_back() {
    let scene = Scene::new(&ten("units: 4"));
    assert!(scene.ask_n(&A, 5).is_allowed());
    assert!(scene.rules.refund_n("d", &REQUEST, 0));
    assert!(scene.ask_n(&A, 6).is_denied(), "five are used");
    let scene = Scene::new(&one("{ in_progress: 1 }"));
    assert!(scene.ask(&A).is_allowed());
    assert!(scene.rules.refund_n("d", &REQUEST, 0));
    assert!(scene.ask(&A).is_denied(), "one is in progress");
}

// G135
#[test]
fn refund_gives_units_back_beside_a_hold() {
    let scene = Scene::new(&ten("units: 4"));
    assert!(scene.ask_n(&A, 5).is_allowed() && scene.ask_n(&A, 0).is_allowed());
    let left = || scene.rules.explain("d", &REQUEST, 1).answer().limits().next().unwrap().remaining();
    assert_eq!(left(), 1);
    assert!(scene.rules.refund_n("d", &REQUEST, 5));
    assert_eq!(left(), 6, "only the hold is left");
}

/// Units that a hold still has are not in use: they must not be given back twice.
// G135
#[test]
fn refund_leaves_the_units_of_holds() {
    let scene = Scene::new(&ten("life: 60s"));
    assert!(hold(&scene, 8).is_some());
    assert!(scene.rules.refund_n("d", &REQUEST, 8));
    let used = [10, 2].into_iter().find(|&cost| scene.ask_n(&A, cost).is_allowed()).unwrap_or(0);
    scene.advance(60);
    let more = (0..10).filter(|_| scene.ask(&A).is_allowed()).count();
    assert_eq!(used + more as u64, 10, "in one window");
}

/// A dry run tells how many requests the rules would deny. A request that they would deny would not have run.
// G135
#[test]
fn dry_run_denies_what_the_rules_would_deny() {
    let text =
        one("{ unit: minute, requests_per_unit: 10, algorithm: gcra, store: keyed, hold: { life: 60s } }");
    let denied = |shadow: bool| {
        let clock = ManualClock::new(START);
        let rules = Rules::builder().clock(clock.clone()).shadow(shadow).load([config(&text)]).unwrap();
        let mut denied = 0;
        for _ in 0..600 {
            let (answer, id) = rules.hold("d", &REQUEST, 1, ALL);
            denied += u32::from(answer.limits().next().unwrap().verdict() != Verdict::Allowed);
            if let Some(id) = id {
                rules.commit("d", &REQUEST, id, 1);
            }
            clock.advance(Duration::from_secs(3));
        }
        denied
    };
    assert_eq!(denied(true), denied(false));
}

/// A quota rule that denied the request is not charged for it: another one admitted it.
// G135
#[test]
fn commit_charges_no_quota_rule_that_denied() {
    let limit = "unit: hour, requests_per_unit: 10, algorithm: gcra, store: keyed, hold: {}";
    let text = format!("{{ domain: d, tollgate: {{}}, descriptors: [ {{ key: a, quota_mode: true, rate_limits: [ {{ name: one, {limit} }},
        {{ name: two, {} }} ] }} ] }}", limit.replace("10,", "100,"));
    let scene = Scene::new(&text);
    for units in [10, 5] {
        let id = hold(&scene, units).unwrap();
        assert!(commit(&scene, id, units));
    }
    scene.advance(1_800);
    let answer = scene.ask_n(&A, 0);
    assert_eq!(answer.limits().next().unwrap().remaining(), 5, "half of the ten units are back");
}

/// Entries of `in_progress` have no charge, so they are no part of what a commit has charged. A hold of eight units is one
/// request.
// G135
#[test]
fn loads_between_a_rate_and_requests_in_progress_count_what_is_held() {
    let scene = Scene::new(&one("{ in_progress: 2 }"));
    let id = hold(&scene, 1).unwrap();
    scene.reload(&ten(""));
    assert!(commit(&scene, id, 5));
    assert_eq!(left(&scene, &A), 5);

    let scene = Scene::new(&ten("life: 10m"));
    assert!(hold(&scene, 8).is_some());
    scene.reload(&one("{ in_progress: 3 }"));
    assert!(scene.ask(&A).is_allowed(), "at most one request is in progress");
}

// G135
#[test]
fn requests_release_64_ended_holds_each() {
    let scene = Scene::new(&one("{ unit: day, requests_per_unit: 200, hold: { life: 60s } }"));
    for _ in 0..200 {
        assert!(hold(&scene, 1).is_some());
    }
    scene.advance(60);
    assert_eq!([64, 128, 192, 200, 200].map(|_| left(&scene, &A)), [64, 128, 192, 200, 200]);
}

/// "A limit that a request carries shares the counter of the file's rule", also if requests can hold units of it.
// G135
#[test]
fn limit_of_a_request_shares_the_counter_of_a_rule_with_holds() {
    for hold in ["", ", hold: {}"] {
        let scene = Scene::new(&one(&format!("{{ unit: day, requests_per_unit: 10{hold} }}")));
        let own = [Descriptor::new(&A).limit(10, TimeUnit::Day)];
        assert!(scene.rules.check_n("d", &own, 10).is_allowed());
        assert!(scene.ask_n(&A, 10).is_denied(), "{hold:?}");
    }
}

// G135
#[test]
fn hold_of_no_units_is_committed_as_a_report() {
    let scene = Scene::new(&ten(""));
    let (answer, id) = scene.rules.hold("d", &REQUEST, 0, ALL);
    assert!(answer.is_allowed());
    assert_eq!(scene.rules.holds(), 0);
    assert!(!commit(&scene, id.expect("the rule has holds"), 4));
    assert_eq!(left(&scene, &A), 6);
}

/// "Requests can hold units of every rule that can give units back": the option must not refuse a file.
// G135
#[test]
fn hold_all_loads_each_file_that_loads_without_it() {
    for limit in [1_u32 << 16, 1 << 20, 1 << 22, 1 << 23, 1 << 24, (1 << 25) - 1, 1 << 25, u32::MAX] {
        for unit in ["second", "minute", "day", "year"] {
            for algorithm in ["gcra", "fixed-window", "sliding-window", "token-bucket", "leaky-bucket"] {
                let limit = format!(
                    "unit: {unit}, requests_per_unit: {limit}, algorithm: {algorithm}, store: compact"
                );
                let load = |hold_all| {
                    let config = Config::from_yaml("test.yaml", &one(&format!("{{ {limit} }}"))).ok()?;
                    Some(Rules::builder().hold_all(hold_all).load([config]).map(drop))
                };
                if let (Some(Ok(())), Some(Err(error))) = (load(false), load(true)) {
                    panic!("{limit}: {error}");
                }
            }
        }
    }
}

/// The metrics of a rule show the units that were used, and not the estimates.
// G135
#[test]
fn metrics_count_what_a_report_used() {
    let hits = |limit: &str| {
        let scene = Scene::new(&one(limit));
        assert!(scene.ask_n(&A, 0).is_allowed() && scene.ask_n(&A, 7).is_allowed());
        let mut hits = 0;
        scene.rules.for_each(|_, _, counts| hits += counts.hits);
        hits
    };
    assert_eq!(hits("{ unit: day, requests_per_unit: 100 }"), 7);
    assert_eq!(hits("{ unit: day, requests_per_unit: 100, hold: { units: 4 } }"), 7);
}

/// "A report of a key without holds is an ordinary request, so a client cannot avoid the limit with it": one hold admits one
/// report, also if several come at the same time.
// G135
#[test]
fn one_hold_admits_one_report() {
    let scene = Scene::new(&one("{ unit: day, requests_per_unit: 1000, store: keyed, hold: { units: 1 } }"));
    assert!(scene.ask_n(&A, 1000).is_allowed());
    let reports = std::sync::atomic::AtomicUsize::new(0);
    let mut holds = 0;
    let barrier = std::sync::Barrier::new(3);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..3_000 {
                    barrier.wait();
                    reports.fetch_add(
                        usize::from(scene.ask_n(&A, 500).is_allowed()),
                        std::sync::atomic::Ordering::Relaxed,
                    );
                    barrier.wait();
                }
            });
        }
        for _ in 0..3_000 {
            assert!(scene.rules.refund_n("d", &REQUEST, 1_000_000));
            assert!(scene.ask_n(&A, 999).is_allowed());
            assert!(scene.ask_n(&A, 0).is_allowed());
            holds += 1;
            barrier.wait();
            barrier.wait();
        }
    });
    assert_eq!(reports.into_inner(), holds);
}
