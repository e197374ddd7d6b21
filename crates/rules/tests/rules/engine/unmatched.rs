//! Rules that matched no request.

use std::time::Duration;

use tollgate::ManualClock;
use tollgate_rules::{Charging, Descriptor, Rules, RulesBuilder, WithoutRule};

use super::{START, Scene, config, file};

const TEXT: &[&str] = &["
  - { key: a, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: b, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - key: c
    rate_limits:
      - { unit: hour, requests_per_unit: 1, name: hourly, replaces: [{ name: daily }] }
      - { unit: day, requests_per_unit: 1, name: daily }
"];

fn unmatched(scene: &Scene) -> Vec<String> {
    scene.rules.unmatched().iter().map(|(_, rule)| rule.identity.to_string()).collect()
}

#[test]
fn unmatched_rules_are_listed_after_first_request() {
    let scene = Scene::of(TEXT);
    assert!(unmatched(&scene).is_empty(), "no request has used the domain yet");
    // A request without descriptors uses the domain too.
    let _ = scene.rules.check("d", &[]);
    assert_eq!(unmatched(&scene).len(), 4);
    let _ = scene.ask(&[("a", "x")]);
    assert_eq!(unmatched(&scene), ["d|b", "d|c#name=hourly", "d|c#name=daily"]);
    // A peek counts as a match. A rule that another rule replaces also counts as matched.
    let _ = scene.ask_n(&[("b", "x")], 0);
    let _ = scene.ask(&[("c", "x")]);
    assert!(unmatched(&scene).is_empty());
}

// G64
#[test]
fn unmatched_rules_reset_at_load() {
    let scene = Scene::of(TEXT);
    for key in ["a", "b", "c"] {
        let _ = scene.ask(&[(key, "x")]);
    }
    assert!(unmatched(&scene).is_empty());
    scene.reload(&file(TEXT).replace("key: b", "key: bee"));
    assert!(unmatched(&scene).is_empty(), "no request has used the domain since the load");
    for key in ["a", "b", "c"] {
        let _ = scene.ask(&[(key, "x")]);
    }
    assert_eq!(unmatched(&scene), ["d|bee"]);
    let other =
        "{ domain: other, descriptors: [ { key: a, rate_limit: { unit: hour, requests_per_unit: 1 } } ] }";
    scene.rules.replace([config(&file(TEXT)), config(other)]).unwrap();
    let _ = scene.rules.check("other", &[]);
    assert_eq!(unmatched(&scene), ["other|a"], "only the domain with requests is listed");
}

/// Rules that deny what no rule matches.
fn strict(
    text: &str,
    build: impl Fn(RulesBuilder<ManualClock>) -> RulesBuilder<ManualClock>,
) -> Rules<ManualClock> {
    let builder = Rules::builder().clock(ManualClock::new(START)).without_rule(WithoutRule::Deny);
    build(builder).load([config(text)]).unwrap()
}

const STRICT: &[&str] = &[
    "key: user, rate_limit: { unit: hour, requests_per_unit: 10 }",
    "key: free, rate_limit: { unlimited: true }",
    "key: exempt, value: yes",
    "key: ip, rate_limit: { unit: hour, requests_per_unit: 10 }",
    "key: ip, ranges: [10.0.0.0/8]",
    "key: path, descriptors: [ { key: user, rate_limit: { unit: hour, requests_per_unit: 10 } } ]",
    "key: plan, tiers: { paid: { members: [acme], rate_limit: { unit: hour, requests_per_unit: 10 } } }",
];

/// A key that was renamed in the file left every client without a limit, and no option refused such requests.
// G64
#[test]
fn requests_without_a_rule_are_denied_if_asked_for() {
    type Entries<'a> = &'a [(&'a str, &'a str)];
    let rows: [(&[Entries<'_>], bool); 13] = [
        (&[&[("user", "a")]], true),
        (&[&[("usr", "a")]], false),
        (&[&[("usr", "a")], &[("user", "a")]], true),
        (&[&[("usr", "a")], &[("usr", "b")]], false),
        (&[&[("usr", "a")], &[("usr", "b")], &[("usr", "c")]], false),
        (&[], false),
        // Rules and descriptors that exempt.
        (&[&[("free", "a")]], true),
        (&[&[("usr", "a")], &[("exempt", "yes")]], true),
        (&[&[("exempt", "no")]], false),
        (&[&[("ip", "10.1.2.3")]], true),
        // A descriptor that only leads to others limits nothing.
        (&[&[("path", "/")]], false),
        // A descriptor with tiers only limits their members, and exempts no other request.
        (&[&[("plan", "acme")]], true),
        (&[&[("plan", "other")]], false),
    ];
    for charging in [Charging::AllOrNothing, Charging::CountFirst, Charging::CountDenials] {
        let rules = strict(&file(STRICT), |builder| builder.charging(charging));
        let dry = strict(&file(STRICT), |builder| builder.charging(charging).shadow(true));
        for (each, admitted) in rows {
            let descriptors: Vec<_> = each.iter().map(|entries| Descriptor::new(entries)).collect();
            let explained = rules.explain("d", &descriptors, 1);
            let answer = rules.check("d", &descriptors);
            assert_eq!(answer.is_allowed(), admitted, "{each:?}");
            let never = (answer.is_never(), answer.retry_after().is_none());
            assert_eq!(never, (!admitted, !admitted), "{each:?}");
            assert_eq!(explained.answer().is_allowed(), admitted, "{each:?}");
            assert_eq!(rules.peek("d", &descriptors).is_allowed(), admitted, "{each:?}");
            let (held, id) = rules.hold("d", &descriptors, 1, Duration::from_secs(1));
            assert!(held.is_allowed() == admitted && id.is_none(), "{each:?}");
            let dry = dry.check("d", &descriptors);
            assert_eq!((dry.is_allowed(), dry.is_shadow_denied()), (true, !admitted), "{each:?}");
            let unknown = rules.check("e", &descriptors);
            let explained = rules.explain("e", &descriptors, 1);
            assert!(unknown.is_denied() && explained.answer().is_denied(), "{each:?}");
        }
    }
    // By default, such requests are admitted.
    assert!(Scene::of(STRICT).ask(&[("usr", "a")]).is_allowed());
}

/// A load that renames the key of the only rule that requests matched said "2 added, 2 removed", and nothing else.
// G64
#[test]
fn loads_name_domains_whose_requests_lose_their_rules() {
    let one = |descriptor: &str| format!("{{ domain: d, tollgate: {{}}, descriptors: [ {descriptor} ] }}");
    let limit = "rate_limit: { unit: hour, requests_per_unit: 9 }";
    let user = one(&format!("{{ key: user, {limit} }}, {{ key: idle, {limit} }}"));
    let lost = |scene: &Scene, text: &str| {
        let report = scene.rules.replace([config(text)]).unwrap();
        let lost: Vec<String> = report.lost().map(str::to_owned).collect();
        assert_eq!(report.to_string().contains("warning: no rule is left"), !lost.is_empty(), "{report}");
        lost
    };
    let renamed = one(&format!("{{ key: user_id, {limit} }}, {{ key: idle, {limit} }}"));
    let scene = Scene::new(&user);
    assert!(lost(&scene, &renamed).is_empty(), "no request has matched a rule");
    assert!(lost(&scene, &user).is_empty());
    let _ = scene.ask(&[("user", "a")]);
    assert!(lost(&scene, &user.replace('9', "8")).is_empty(), "the rule stays");
    // The request came before the last load.
    assert_eq!(lost(&scene, &renamed), ["d"]);
    assert!(lost(&scene, &user).is_empty());

    // The requests still match something: another limit, a descriptor without a limit, steps of prefixes, a tier.
    let same = [
        format!("{{ key: user, value: a, {limit} }}, {{ key: user, {limit} }}"),
        format!("{{ key: user }}, {{ key: idle, {limit} }}"),
        "{ key: user, rate_limits: [ { name: n, unit: day, requests_per_unit: 1 } ] }".to_owned(),
        "{ key: user, prefixes: { ipv4: { 32: FREE }, ipv6: { 64: FREE } } }"
            .replace("FREE", "{ unlimited: true }"),
        format!("{{ key: user, tiers: {{ t: {{ {limit} }} }} }}"),
    ];
    for descriptor in same {
        let scene = Scene::new(&user);
        let _ = scene.ask(&[("user", "a")]);
        assert!(lost(&scene, &one(&descriptor)).is_empty(), "{descriptor}");
    }
    // Ranges, values and levels below are followed.
    for (descriptor, entry, from, to, is_lost) in [
        ("{ key: ip, ranges: [10.0.0.0/8], LIMIT }", ("ip", "10.1.1.1"), "0/8", "0/7", false),
        ("{ key: ip, ranges: [10.0.0.0/8], LIMIT }", ("ip", "10.1.1.1"), "10.", "11.", true),
        ("{ key: plan, value: 'fr*', LIMIT }", ("plan", "free"), "fr*", "paid", true),
    ] {
        let descriptor = descriptor.replace("LIMIT", limit);
        let scene = Scene::new(&one(&descriptor));
        assert!(scene.ask(&[entry]).limits().count() == 1);
        let lost = lost(&scene, &one(&descriptor.replace(from, to)));
        assert_eq!(lost.len(), usize::from(is_lost), "{descriptor}");
    }
}
