//! Rules in shadow mode, soft limits, rules that replace others, and rules for some keys only.

use tollgate_rules::{Descriptor, OperatorAction, Rules, Verdict};

use super::{Scene, config, file, left};

fn verdicts(answer: &tollgate_rules::Answer) -> Vec<Verdict> {
    answer.limits().map(|limit| limit.verdict()).collect()
}

/// A dry run of all rules: the statuses show what would be denied, and every request is admitted.
// G67
#[test]
fn global_shadow_mode_denies_nothing() {
    let text = file(&["key: a, rate_limit: { unit: minute, requests_per_unit: 1 }"]);
    let rules = Rules::builder().shadow(true).load([config(&text)]).unwrap();
    let of_file = text.replace("tollgate: {}", "tollgate: { shadow: true }");
    let of_file = Rules::builder().load([config(&of_file)]).unwrap();
    for rules in [rules, of_file] {
        let ask = || rules.check("d", &[Descriptor::new(&[("a", "x")])]);
        assert!(ask().is_allowed() && !ask().is_denied());
        let answer = ask();
        assert!(answer.is_allowed() && answer.is_shadow_denied());
        assert!(answer.is_over_limit(0), "the status is the same as in Envoy's global shadow mode");
        assert!(answer.is_allowed());
        assert_eq!(verdicts(&answer), [Verdict::ShadowDenied]);
        assert_eq!(answer.denied_by().count(), 0);
        let told = rules.operate("d", &[Descriptor::new(&[("a", "x")])], None, OperatorAction::Inspect);
        assert_eq!(told.unwrap()[0].role, "shadow", "operators see that the rule only reports");
    }
}

/// `enforced: 25%` enforces the rule for about a quarter of the keys, and always for the same keys. For the other keys
/// a denial is only reported.
#[test]
fn rule_is_enforced_for_share_of_keys() {
    let scene = Scene::of(&["key: a, rate_limit: { unit: hour, requests_per_unit: 1, enforced: 25% }"]);
    let mut refused = 0;
    for client in (1..2_000).map(|client| client.to_string()).chain([String::new()]) {
        let ask = || scene.ask(&[("a", &client)]);
        assert!(ask().is_allowed());
        let denied = ask().is_denied();
        scene.clock.advance(std::time::Duration::from_nanos(12_345));
        assert!((0..3).all(|_| ask().is_denied() == denied), "a key is always enforced, or never");
        refused += u32::from(denied);
        let verdict = if denied { Verdict::Denied } else { Verdict::ShadowDenied };
        assert_eq!(verdicts(&ask()), [verdict]);
    }
    assert!((400..=600).contains(&refused), "{refused} of 2,000 should be about a quarter");
}

/// A soft limit marks and counts the requests above it, but admits them up to the hard limit.
#[test]
fn soft_limit_marks_and_admits() {
    for charging in ["all-or-nothing", "count-first"] {
        let text = file(&["key: a, rate_limit: { unit: minute, requests_per_unit: 5, soft: 3 }"]);
        let scene = Scene::new(&text.replace("{}", &format!("{{ charging: {charging} }}")));
        let a = [("a", "x")];
        let seen: Vec<_> = (0..6).map(|_| scene.ask(&a)).collect();
        let marked = seen.iter().map(|answer| answer.is_soft_limited());
        assert_eq!(marked.collect::<Vec<_>>(), [false, false, false, true, true, false], "{charging}");
        let verdicts: Vec<_> = seen.iter().flat_map(verdicts).collect();
        let (first, last) =
            ([Verdict::Allowed; 3], [Verdict::SoftLimited, Verdict::SoftLimited, Verdict::Denied]);
        assert_eq!(verdicts, [first, last].concat(), "{charging}");
    }
}

/// A rule that replaces another by name disables that rule in the same request: the replaced rule is neither counted
/// nor reported.
#[test]
fn rule_replaces_named_rule() {
    let text = file(&[
        "key: a, rate_limit: { unit: minute, requests_per_unit: 1, name: basic }",
        "key: b, rate_limit: { unit: minute, requests_per_unit: 3, replaces: [ { name: basic } ] }",
        "key: c, rate_limit: { unlimited: true, replaces: [ { name: basic } ] }",
    ]);
    let (a, b, c) = ([("a", "x")], [("b", "x")], [("c", "x")]);
    for scene in [Scene::new(&text), Scene::counting_first(&text)] {
        assert!((0..3).all(|_| scene.ask_both(&a, &b).is_allowed()));
        assert!(scene.ask_both(&a, &b).is_denied());
        assert!((0..3).all(|_| scene.ask_both(&a, &c).is_allowed()), "an unlimited rule replaces others too");
        let answer = scene.ask_both(&a, &c);
        assert!(answer.strictest(0).is_none() && !answer.is_over_limit(0));
        assert_eq!(left(&scene, &a), 1, "the replaced rule is not charged");
        assert_eq!(scene.admitted(&a, 2), 1);
    }
}

/// One descriptor may have several limits. Envoy's language cannot express this.
#[test]
fn descriptor_enforces_several_limits() {
    let scene = Scene::of(&[
        "key: a, rate_limits: [ { unit: second, requests_per_unit: 2 }, { unit: hour, requests_per_unit: 3 } ]",
    ]);
    let a = [("a", "x")];
    assert_eq!(scene.admitted(&a, 5), 2);
    scene.advance(1);
    assert_eq!(scene.admitted(&a, 5), 1, "one unit of the hour is left, and denials cost nothing");
    let answer = scene.ask(&a);
    assert_eq!(verdicts(&answer), [Verdict::Allowed, Verdict::Denied]);
    let quota = answer.strictest(0).map(|limit| limit.quota());
    assert_eq!(quota, Some(3), "the status shows the strictest limit");
}
