//! Rules in shadow mode, soft limits, rules that replace others, and rules for some keys only.

use tollgate::rules::{Descriptor, Rules, Verdict};

use super::{Scene, config, left};

fn verdicts(answer: &tollgate::rules::Answer) -> Vec<Verdict> {
    answer.limits().map(|limit| limit.verdict()).collect()
}

/// A shadow rule is evaluated in addition to the enforced rules and hides none of them.
// G67
#[test]
fn shadow_rules_never_hide_enforced_ones() {
    let scene = Scene::new(
        "
domain: d
descriptors:
  - key: a
    shadow_mode: true
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: b
    rate_limit: { unit: minute, requests_per_unit: 3 }
",
    );
    let (a, b) = ([("a", "x")], [("b", "x")]);
    assert_eq!(verdicts(&scene.ask_both(&a, &b)), [Verdict::Allowed; 2]);
    for _ in 0..2 {
        let answer = scene.ask_both(&a, &b);
        assert!(answer.is_allowed() && answer.retry_after() == Some(std::time::Duration::ZERO));
        assert_eq!(verdicts(&answer), [Verdict::ShadowDenied, Verdict::Allowed]);
    }
    let answer = scene.ask_both(&a, &b);
    assert_eq!(verdicts(&answer), [Verdict::ShadowDenied, Verdict::Denied]);
    assert_eq!(answer.denied_by().map(|limit| limit.descriptor()).collect::<Vec<_>>(), [1]);
}

/// A dry run of all rules: the statuses show what would be denied, and every request is admitted.
// G67
#[test]
fn global_shadow_mode_denies_nothing() {
    let text =
        "{ domain: d, descriptors: [ { key: a, rate_limit: { unit: minute, requests_per_unit: 1 } } ] }";
    let rules = Rules::builder().shadow(true).load([config(text)]).unwrap();
    let of_file = text.replace("domain: d,", "domain: d, tollgate: { shadow: true },");
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
    }
}

/// `enforced: 25%` enforces the rule for about a quarter of the keys, and always for the same keys. For the other keys
/// a denial is only reported.
#[test]
fn rule_is_enforced_for_share_of_keys() {
    let scene = Scene::new(
        "
domain: d
tollgate: {}
descriptors:
  - key: a
    rate_limit: { unit: hour, requests_per_unit: 1, enforced: 25% }
",
    );
    let mut refused = 0;
    for client in 0..2_000 {
        let client = client.to_string();
        let ask = || scene.ask(&[("a", &client)]);
        assert!(ask().is_allowed());
        let denied = ask().is_denied();
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
        let scene = Scene::new(&format!(
            "
domain: d
tollgate: {{ charging: {charging} }}
descriptors:
  - key: a
    rate_limit: {{ unit: minute, requests_per_unit: 5, soft: 3 }}
"
        ));
        let a = [("a", "x")];
        let seen: Vec<_> = (0..6)
            .map(|_| scene.ask(&a))
            .map(|answer| (answer.is_soft_limited(), verdicts(&answer)[0]))
            .collect();
        let expected = [
            (false, Verdict::Allowed),
            (false, Verdict::Allowed),
            (false, Verdict::Allowed),
            (true, Verdict::SoftLimited),
            (true, Verdict::SoftLimited),
            (false, Verdict::Denied),
        ];
        assert_eq!(seen, expected, "{charging}");
    }
}

/// Rules with `quota_mode` deny a request only if all of them deny it.
#[test]
fn quota_mode_rules_deny_together() {
    let text = "
domain: d
descriptors:
  - key: a
    quota_mode: true
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: b
    quota_mode: true
    rate_limit: { unit: minute, requests_per_unit: 3 }
  - key: c
    rate_limit: { unit: minute, requests_per_unit: 5 }
";
    let (a, b, c) = ([("a", "x")], [("b", "x")], [("c", "x")]);
    for scene in [Scene::new(text), Scene::counting_first(text)] {
        let ask = || {
            let descriptors = [Descriptor::new(&a), Descriptor::new(&b), Descriptor::new(&c)];
            scene.rules.check("d", &descriptors)
        };
        assert!((0..3).all(|_| ask().is_allowed()), "one quota with room is enough");
        let answer = ask();
        assert_eq!(answer.denied_by().map(|limit| limit.descriptor()).collect::<Vec<_>>(), [0, 1]);
        assert!(scene.ask(&c).is_allowed());
    }
    let scene = Scene::new(text);
    let ask = || scene.rules.check("d", &[Descriptor::new(&a), Descriptor::new(&b), Descriptor::new(&c)]);
    assert!(
        (0..10).filter(|_| ask().is_allowed()).count() == 3 && left(&scene, &c) == 2,
        "denied requests charge nothing"
    );
}

/// A rule that replaces another by name disables that rule in the same request: the replaced rule is neither counted
/// nor reported.
#[test]
fn rule_replaces_named_rule() {
    let text = "
domain: d
descriptors:
  - key: a
    rate_limit: { unit: minute, requests_per_unit: 1, name: basic }
  - key: b
    rate_limit: { unit: minute, requests_per_unit: 3, replaces: [ { name: basic } ] }
  - key: c
    rate_limit: { unlimited: true, replaces: [ { name: basic } ] }
";
    let (a, b, c) = ([("a", "x")], [("b", "x")], [("c", "x")]);
    for scene in [Scene::new(text), Scene::counting_first(text)] {
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
    let scene = Scene::new(
        "
domain: d
tollgate: {}
descriptors:
  - key: a
    rate_limits:
      - { unit: second, requests_per_unit: 2 }
      - { unit: hour, requests_per_unit: 3 }
",
    );
    let a = [("a", "x")];
    assert_eq!(scene.admitted(&a, 5), 2);
    scene.advance(1);
    assert_eq!(scene.admitted(&a, 5), 1, "one unit of the hour is left, and denials cost nothing");
    let answer = scene.ask(&a);
    assert_eq!(verdicts(&answer), [Verdict::Allowed, Verdict::Denied]);
    assert_eq!(
        answer.strictest(0).map(|limit| limit.quota()),
        Some(3),
        "the status shows the strictest limit"
    );
}

/// A request's tier comes from the request or from membership. A customer with its own entry has its own limit.
#[test]
fn tier_limits_override_entry_limit() {
    let scene = Scene::new(
        "
domain: d
tollgate: {}
descriptors:
  - key: account
    rate_limit: { unit: minute, requests_per_unit: 1 }
    tiers:
      premium: { members: [acme], rate_limit: { unit: minute, requests_per_unit: 3 } }
      trial: { rate_limit: { unit: minute, requests_per_unit: 0 } }
  - key: account
    value: globex
    rate_limit: { unit: minute, requests_per_unit: 5 }
",
    );
    assert_eq!(scene.admitted(&[("account", "someone")], 9), 1);
    assert_eq!(scene.admitted(&[("account", "acme")], 9), 3);
    assert_eq!(scene.admitted(&[("account", "globex")], 9), 5);
    let of_tier = |account: &str, tier: &str| {
        let entries = [("account", account)];
        let ask = || scene.rules.check("d", &[Descriptor::new(&entries).tier(tier)]).is_allowed();
        (0..9).filter(|_| ask()).count()
    };
    assert_eq!(of_tier("initech", "premium"), 3);
    assert_eq!(of_tier("hooli", "trial"), 0);
    assert_eq!(of_tier("umbrella", "no such tier"), 1);
}
