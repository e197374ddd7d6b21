//! What operators do to keys: `Rules::operate`.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::ManualClock;
use tollgate_rules::OperatorAction::{self, Block, Grant, Inspect, Reset, Unblock};
use tollgate_rules::{Charging, Descriptor, KeyFigures, KeyReport, Refusal, Rules};

use super::{Scene, config, left, one};

const A: [(&str, &str); 1] = [("a", "x")];
const B: [(&str, &str); 1] = [("a", "y")];
const ALL: Duration = Duration::MAX;
const HOUR: Duration = Duration::from_secs(3_600);

/// Every store and algorithm of rules, with what `reset` and `grant` do: whether each works.
const KINDS: [(&str, bool, bool); 16] = [
    ("", true, true),
    ("store: keyed", true, true),
    ("store: compact", true, true),
    ("store: sketch", false, false),
    ("algorithm: gcra", true, true),
    ("algorithm: gcra, store: keyed", true, true),
    ("algorithm: token-bucket", true, true),
    ("algorithm: leaky-bucket", true, true),
    ("algorithm: sliding-window", true, true),
    ("algorithm: sliding-window, store: keyed", true, true),
    ("algorithm: sliding-window, store: sketch", false, false),
    ("algorithm: sub-window", true, true),
    ("algorithm: sliding-log", true, false),
    ("algorithm: sub-window, parts: 4, strict: true", true, true),
    ("algorithm: gcra, block: 10m", true, true),
    ("algorithm: gcra, block: 10m, store: keyed", true, true),
];

fn act(scene: &Scene, entries: &[(&str, &str)], verb: OperatorAction) -> KeyReport {
    let reports = scene.rules.operate("d", &[Descriptor::new(entries)], None, verb).unwrap();
    let [report] = <[_; 1]>::try_from(reports).unwrap();
    report
}

fn result(scene: &Scene, verb: OperatorAction) -> Result<u64, Refusal> {
    act(scene, &A, verb).result
}

fn figures(scene: &Scene) -> KeyFigures {
    act(scene, &A, Inspect).figures.unwrap()
}

fn ten(more: &str) -> Scene {
    Scene::new(&one(&format!("{{ unit: day, requests_per_unit: 10, {more} }}")))
}

// G146
#[test]
fn every_store_and_algorithm_resets_and_grants_or_says_why_not() {
    for (more, resets, grants) in KINDS {
        let scene = ten(more);
        assert_eq!(scene.admitted(&A, 8), 8, "{more}");
        assert_eq!(scene.admitted(&B, 4), 4, "{more}");
        let state = figures(&scene);
        assert_eq!((state.limit, state.used, state.remaining), (10, 8, 2), "{more}");
        assert!(!state.reset_after.is_zero() && state.blocked_for.is_none() && state.held == 0, "{more}");

        let granted = result(&scene, Grant(3));
        assert_eq!(granted, if grants { Ok(3) } else { Err(Refusal::CannotGiveBack) }, "{more}");
        let used = if grants { 5 } else { 8 };
        assert_eq!(figures(&scene).used, used, "{more}");
        assert_eq!(result(&scene, Grant(0)).is_ok(), grants, "{more}");
        let reset = result(&scene, Reset);
        assert_eq!(reset, if resets { Ok(used) } else { Err(Refusal::CannotForget) }, "{more}");
        assert_eq!(left(&scene, &A), if resets { 10 } else { 2 }, "{more}");
        assert_eq!(left(&scene, &B), 6, "{more}: another key");
        assert_eq!(result(&scene, Reset).ok(), resets.then_some(0), "{more}: twice");
        if resets {
            assert_eq!(scene.admitted(&A, 20), 10, "{more}: exactly the limit");
        }
    }
}

// G146
#[test]
fn rule_with_one_counter_for_all_is_reset() {
    for (more, _, grants) in KINDS {
        if more.contains("store") {
            continue;
        }
        let rule = format!("key: a, value: x, rate_limit: {{ unit: day, requests_per_unit: 10, {more} }}");
        let scene = Scene::of(&[&rule]);
        assert_eq!(scene.admitted(&A, 8), 8, "{more}");
        let can = grants || more.contains("queue");
        assert_eq!(result(&scene, Reset), if can { Ok(8) } else { Err(Refusal::CannotForget) }, "{more}");
        assert_eq!(left(&scene, &A), if can { 10 } else { 2 }, "{more}");
    }
}

// G146
#[test]
fn limits_beyond_32_bits_are_shown_and_given_back() {
    const USED: u64 = 4_900_000_000;
    for (more, resets, grants) in KINDS {
        // These remember single requests, or count in 32 bits.
        if more.contains("log") || more.contains("sketch") {
            continue;
        }
        let month = format!("{{ unit: month, requests_per_unit: 5000000000, {more} }}");
        let scene = Scene::new(&one(&month));
        assert!(scene.ask_n(&A, USED).is_allowed(), "{more}");
        let state = figures(&scene);
        assert_eq!((state.limit, state.used, state.remaining), (5_000_000_000, USED, 100_000_000), "{more}");
        if grants {
            assert_eq!(result(&scene, Grant(4_800_000_000)), Ok(4_800_000_000), "{more}");
            assert_eq!(figures(&scene).used, 100_000_000, "{more}");
        }
        if resets {
            assert!(result(&scene, Reset).is_ok(), "{more}");
            assert_eq!(figures(&scene).remaining, 5_000_000_000, "{more}");
        }
    }
}

/// A denied request takes a unit beyond the limit. A grant does not go into that unit.
// G146
#[test]
fn grant_counts_from_the_limit_if_denials_are_counted() {
    for charging in [Charging::CountDenials, Charging::CountFirst] {
        for more in ["", "algorithm: gcra", "store: keyed"] {
            let text = one(&format!("{{ unit: day, requests_per_unit: 10, {more} }}"));
            let scene = Scene::try_new(&text, Some(charging)).unwrap();
            assert_eq!(scene.admitted(&A, 13), 10, "{more}");
            assert_eq!(figures(&scene).used, 10, "{more}");
            assert_eq!(result(&scene, Grant(0)), Ok(0));
            assert!(scene.ask(&A).is_denied());
            assert_eq!(result(&scene, Grant(2)), Ok(2), "{more}");
            assert_eq!(scene.admitted(&A, 13), 2, "{charging} {more}");
            assert_eq!(result(&scene, Reset), Ok(10), "{more}");
            assert_eq!(scene.admitted(&A, 13), 10, "{more}");
        }
    }
}

// G146
#[test]
fn block_lasts_as_long_as_the_operator_says() {
    for more in ["block: { for: 10m, at_most: 1h }", "block: 1h, store: compact", "block: 1h, store: keyed"] {
        let scene = ten(&format!("algorithm: gcra, {more}"));
        assert_eq!(result(&scene, Block(HOUR)), Ok(0), "{more}");
        let slack = Duration::from_secs(2);
        let near = |wait: Duration, seconds| {
            let exact = Duration::from_secs(seconds);
            assert!(wait <= exact + slack && exact <= wait + slack, "{more}: {wait:?}, not {exact:?}");
        };
        let state = figures(&scene);
        near(state.blocked_for.unwrap(), 3_600);
        assert_eq!((state.used, state.remaining), (10, 0), "{more}");
        let denial = scene.ask(&A);
        assert_eq!(denial.retry_after(), state.blocked_for, "{more}");
        assert!(scene.ask(&B).is_allowed(), "{more}: another key");

        assert_eq!(result(&scene, Block(Duration::from_secs(60))), Ok(0));
        near(figures(&scene).blocked_for.unwrap(), 3_600);
        assert_eq!(result(&scene, Grant(1)), Err(Refusal::InBlock), "{more}");
        scene.advance(3_590);
        assert!(scene.ask(&A).is_denied(), "{more}");
        scene.advance(12);
        assert!(scene.ask(&A).is_allowed(), "{more}: the block has ended");
        assert!(figures(&scene).blocked_for.is_none(), "{more}");

        let short = ten(&format!("algorithm: gcra, {more}"));
        assert_eq!(short.admitted(&A, 3), 3);
        assert_eq!(result(&short, Block(Duration::from_secs(90))), Ok(0));
        near(figures(&short).blocked_for.unwrap(), 90);
        short.advance(92);
        assert!(short.ask(&A).is_allowed(), "{more}");
    }
}

// G146
#[test]
fn unblock_ends_a_block_and_touches_no_other_key() {
    for more in ["", "store: compact", "store: keyed"] {
        let scene = ten(&format!("algorithm: gcra, block: 10m, {more}"));
        assert_eq!(scene.admitted(&A, 4), 4);
        assert_eq!(result(&scene, Unblock), Ok(0), "{more}: not in a block");
        assert_eq!(left(&scene, &A), 6, "{more}");
        assert_eq!(scene.admitted(&A, 7), 6);
        assert!(figures(&scene).blocked_for.is_some(), "{more}: the denial blocked it");
        assert_eq!(result(&scene, Unblock), Ok(10), "{more}");
        assert!(figures(&scene).blocked_for.is_none(), "{more}");
        assert_eq!(scene.admitted(&A, 10), 10, "{more}");
    }
}

// G146
#[test]
fn lengths_of_blocks_have_bounds() {
    let scene = ten("algorithm: gcra, block: 1h");
    let wrong = Err(Refusal::BlockLength { most: HOUR });
    for length in [Duration::ZERO, HOUR + Duration::from_nanos(1), Duration::MAX] {
        assert_eq!(result(&scene, Block(length)), wrong, "{length:?}");
    }
    assert_eq!(result(&scene, Block(Duration::from_nanos(1))), Ok(0));
    assert_eq!(result(&ten(""), Block(HOUR)), Err(Refusal::HasNoBlock));
    assert_eq!(result(&ten(""), Unblock), Err(Refusal::HasNoBlock));
}

#[test]
fn rules_that_count_nothing_refuse() {
    for limit in ["{ unlimited: true }", "{ unit: hour, requests_per_unit: 0 }"] {
        let scene = Scene::new(&one(limit));
        for verb in [Reset, Grant(1), Block(HOUR), Unblock] {
            assert_eq!(result(&scene, verb), Err(Refusal::CountsNothing), "{limit} {verb:?}");
        }
        assert_eq!(result(&scene, Inspect), Ok(0));
    }
    let scene = ten("");
    assert_eq!(scene.rules.operate("nope", &[Descriptor::new(&A)], None, Reset), None);
    let none = scene.rules.operate("d", &[Descriptor::new(&[("z", "x")])], None, Reset);
    assert_eq!(none, Some(Vec::new()));
    assert_eq!(scene.rules.operate("d", &[], None, Reset), Some(Vec::new()));
}

// G146
#[test]
fn holds_stay_and_are_settled_once() {
    for store in ["", "store: keyed", "algorithm: gcra, store: keyed"] {
        let scene = ten(&format!("hold: {{ life: 60s }}, {store}"));
        let request = [Descriptor::new(&A)];
        let (_, id) = scene.rules.hold("d", &request, 6, ALL);
        assert_eq!(scene.admitted(&A, 4), 4);
        let state = figures(&scene);
        assert_eq!((state.used, state.held, state.remaining), (10, 6, 0), "{store}");
        let minute = Duration::from_secs(60);
        assert_eq!(state.held_until, Some((minute, minute)), "{store}");

        assert_eq!(result(&scene, Reset), Ok(4), "{store}: all but the held units");
        assert_eq!(left(&scene, &A), 4, "{store}");
        assert_eq!(result(&scene, Grant(u64::MAX)), Ok(0), "{store}");
        assert_eq!(scene.admitted(&A, 9), 4, "{store}");
        assert!(scene.rules.commit("d", &request, id.unwrap(), 1));
        assert_eq!(scene.admitted(&A, 9), 5, "{store}: the hold gives back its own units only");

        scene.advance(86_400);
        assert!(scene.rules.hold("d", &request, 7, ALL).1.is_some());
        scene.advance(61);
        assert_eq!(figures(&scene).held, 0, "{store}: an ended hold is released");
        assert_eq!(figures(&scene).used, 0, "{store}");
    }
}

// G146
#[test]
fn blocked_key_with_holds_waits_for_them() {
    let scene = ten("algorithm: gcra, block: 10m, store: keyed, hold: { life: 60s }");
    let request = [Descriptor::new(&A)];
    let (_, id) = scene.rules.hold("d", &request, 6, ALL);
    assert_eq!(scene.admitted(&A, 5), 4);
    for verb in [Reset, Unblock] {
        assert_eq!(result(&scene, verb), Err(Refusal::HoldsInBlock));
    }
    assert!(scene.rules.commit("d", &request, id.unwrap(), 6));
    assert_eq!(result(&scene, Unblock), Ok(10));
    assert_eq!(scene.admitted(&A, 11), 10);
}

// G146
#[test]
fn requests_in_progress_are_shown_and_stay() {
    let scene = Scene::new(&one("{ in_progress: 2, hold: { life: 30s } }"));
    let request = [Descriptor::new(&A)];
    let (_, id) = scene.rules.hold("d", &request, 1, ALL);
    let state = figures(&scene);
    assert_eq!((state.limit, state.used, state.remaining, state.held), (2, 1, 1, 1));
    assert_eq!(state.reset_after, Duration::from_secs(30));
    for verb in [Reset, Grant(1), Block(HOUR), Unblock] {
        assert_eq!(result(&scene, verb), Err(Refusal::InProgress), "{verb:?}");
    }
    assert_eq!(figures(&scene).used, 1);
    assert!(scene.rules.commit("d", &request, id.unwrap(), 1));
    assert_eq!(figures(&scene).used, 0);
}

// G146
#[test]
fn each_rule_of_a_request_has_its_own_result() {
    let scene = Scene::of(&[
        "key: a, rate_limit: { name: plain, unit: day, requests_per_unit: 10 }",
        "key: b, rate_limit: { name: ghost, unit: day, requests_per_unit: 10 }, shadow_mode: true",
        "key: c, rate_limit: { name: better, unit: day, requests_per_unit: 10, replaces: [ { name: plain } ] }",
    ]);
    let plain = Descriptor::new(&A);
    let (ghost, better) = ([("b", "x")], [("c", "x")]);
    let (ghost, better) = (Descriptor::new(&ghost), Descriptor::new(&better));
    for _ in 0..3 {
        assert!(scene.rules.check("d", &[plain, ghost]).is_allowed());
    }
    let operate = |rule, verb| scene.rules.operate("d", &[plain, ghost], rule, verb).unwrap();
    let reports = operate(None, Grant(1));
    let parts: Vec<_> = reports.iter().map(|one| (&*one.name, one.role, one.result.clone())).collect();
    assert_eq!(parts, [("plain", "enforced", Ok(1)), ("ghost", "shadow", Ok(1))]);
    assert_eq!((&*reports[0].file, reports[0].line, &*reports[0].key), ("test.yaml", 4, "x"));
    assert!(!reports[0].is_shared);
    assert_eq!(operate(Some("ghost"), Reset).len(), 1, "only the rule with this name");
    let used =
        |reports: &[KeyReport]| reports.iter().map(|one| one.figures.unwrap().used).collect::<Vec<_>>();
    assert_eq!(used(&operate(None, Inspect)), [2, 0]);
    assert_eq!(used(&operate(Some(&reports[0].identity), Reset)), [0], "by its identity");
    assert_eq!(operate(Some("nope"), Reset), []);

    let replaced = scene.rules.operate("d", &[plain, better], Some("plain"), Reset).unwrap();
    assert_eq!((replaced[0].role, &replaced[0].result), ("replaced", &Err(Refusal::Replaced)));
    assert_eq!(replaced[0].figures, None);
}

#[test]
fn steps_of_addresses_and_tiers_have_their_own_counts() {
    let scene = Scene::of(&["
  - key: ip
    prefixes:
      ipv4: { 32: { unit: day, requests_per_unit: 10 }, 24: { unit: day, requests_per_unit: 20 } }
      ipv6: { 64: { unlimited: true } }
    tiers:
      partner: { members: [192.0.2.9], rate_limit: { unit: day, requests_per_unit: 50 } }
"]);
    let used = |address, rule, verb| {
        let entries = [("ip", address)];
        let reports = scene.rules.operate("d", &[Descriptor::new(&entries)], rule, verb).unwrap();
        let of = |one: &KeyReport| (one.identity.clone(), one.figures.unwrap().used);
        reports.iter().map(of).collect::<Vec<_>>()
    };
    let counts = |address| used(address, None, Inspect).iter().map(|(_, used)| *used).collect::<Vec<_>>();
    assert!(scene.ask_n(&[("ip", "192.0.2.1")], 5).is_allowed());
    assert_eq!(counts("192.0.2.1"), [5, 5]);
    let (first, _) = used("192.0.2.1", None, Inspect).remove(0);
    assert_eq!(used("192.0.2.1", Some(&first), Reset).len(), 1);
    assert_eq!(counts("192.0.2.1").iter().sum::<u64>(), 5, "the other step stays");
    assert_eq!(counts("192.0.2.2").iter().sum::<u64>() % 5, 0);

    assert!(scene.ask_n(&[("ip", "192.0.2.9")], 40).is_allowed());
    assert_eq!(counts("192.0.2.9"), [40], "the tier has its own rule");
    assert_eq!(used("192.0.2.9", None, Reset)[0].1, 0);
}

#[test]
fn one_counter_is_acted_on_once() {
    let scene = ten("");
    assert_eq!(scene.admitted(&A, 8), 8);
    let reports =
        scene.rules.operate("d", &[Descriptor::new(&A), Descriptor::new(&A)], None, Grant(3)).unwrap();
    assert_eq!(reports.len(), 2);
    assert_eq!(reports.iter().map(|one| one.figures.unwrap().used).collect::<Vec<_>>(), [5, 5]);
}

/// After a load, units may still be in the store before. An act reaches them there.
// G146
#[test]
fn acts_reach_usage_that_a_load_carries_over() {
    for more in ["", "store: keyed", "store: compact", "algorithm: gcra", "algorithm: gcra, block: 10m"] {
        for verb in [Reset, Grant(4)] {
            let limit = |limit| one(&format!("{{ unit: day, requests_per_unit: {limit}, {more} }}"));
            let scene = Scene::new(&limit(10));
            assert_eq!(scene.admitted(&A, 8), 8, "{more}");
            scene.reload(&limit(12));
            scene.reload(&limit(20));
            assert_eq!(result(&scene, verb), Ok(if verb == Reset { 8 } else { 4 }), "{more}");
            assert_eq!(left(&scene, &A), if verb == Reset { 20 } else { 16 }, "{more} {verb:?}");
        }
    }
    let limit =
        |limit| one(&format!("{{ unit: day, requests_per_unit: {limit}, algorithm: gcra, block: 1h }}"));
    let scene = Scene::new(&limit(10));
    assert_eq!(result(&scene, Block(HOUR)), Ok(0));
    scene.reload(&limit(20));
    assert_eq!(figures(&scene).blocked_for, Some(HOUR), "a load keeps the block of an operator");
    assert_eq!(result(&scene, Unblock).ok().map(|units| units > 0), Some(true));
    assert_eq!(scene.admitted(&A, 30), 20);
}

/// Checks on other threads admit at most the limit for each reset.
// G146
#[test]
fn acts_race_with_checks_and_loads() {
    for more in ["store: keyed", "store: compact", "algorithm: gcra, block: 1h, store: keyed"] {
        let rules = Rules::builder()
            .clock(ManualClock::new(super::START))
            .load([config(&one(&format!("{{ unit: day, requests_per_unit: 10, {more} }}")))])
            .unwrap();
        let request = [Descriptor::new(&A)];
        let (mut resets, admitted) = (0, std::sync::atomic::AtomicU64::new(0));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..20_000 {
                            let one = u64::from(rules.check("d", &request).is_allowed());
                            admitted.fetch_add(one, std::sync::atomic::Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            while threads.iter().any(|thread| !thread.is_finished()) {
                assert!(rules.operate("d", &request, None, Reset).unwrap()[0].result.is_ok());
                resets += 1;
            }
        });
        let most = 10 * (resets + 1);
        let admitted = admitted.into_inner();
        assert!(admitted <= most, "{more}: {admitted} of {most}");
        let _ = rules.operate("d", &request, None, Reset);
        assert!(rules.check_n("d", &request, 10).is_allowed(), "{more}: the last reset holds");
    }
}

proptest! {
    /// Whatever happens before, a grant gives back exactly the smaller of its units and the used ones.
    // G146
    #[test]
    fn grants_are_exact(used in 0_u64..=10, units in any::<u64>(), kind in 0..KINDS.len()) {
        let (more, _, grants) = KINDS[kind];
        prop_assume!(grants);
        let scene = ten(more);
        if used > 0 {
            prop_assert!(scene.ask_n(&A, used).is_allowed());
        }
        let expected = units.min(used);
        prop_assert_eq!(result(&scene, Grant(units)), Ok(expected));
        prop_assert_eq!(u64::from(left(&scene, &A)), 10 - used + expected);
    }
}
