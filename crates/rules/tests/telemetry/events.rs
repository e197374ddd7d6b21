//! The `tracing` events about rules that a subscriber receives.

use crate::listener::{events, fields};
use tollgate_rules::telemetry::Reloads;
use tollgate_rules::{Config, Descriptor, Rules, WithoutRule};

#[test]
fn rule_loads_are_events() {
    let seen = events(|| {
        let reloads = Reloads::new();
        reloads.loaded(7);
        reloads.failed(&"rules.yaml:3:5: no");
    });
    let [(good, _, loaded), (bad, target, failed)] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((*good, loaded["rules"].as_str()), (tracing::Level::INFO, "7"));
    assert_eq!((*bad, target.as_str()), (tracing::Level::WARN, "tollgate"));
    assert_eq!(failed["error"], "rules.yaml:3:5: no");
}

/// A request to which no rule applies is logged once for each domain and load, with its keys and without its values.
// G64
#[test]
fn first_request_without_a_rule_is_an_event() {
    let file = |key: &str, limit: u32| {
        let rule = format!("{{ key: {key}, rate_limit: {{ unit: day, requests_per_unit: {limit} }} }}");
        Config::from_yaml("limits.yaml", &format!("{{ domain: shop, descriptors: [ {rule} ] }}"))
            .expect("valid rules")
    };
    for (action, said) in [
        (WithoutRule::Admit, None),
        (WithoutRule::Log, Some("\"admitted\"")),
        (WithoutRule::Deny, Some("\"denied\"")),
    ] {
        let rules = Rules::builder().without_rule(action).load([file("user", 1)]).expect("the rules load");
        let entries = [("usr", "secret"), ("path", "/")];
        let ask = || {
            let (one, other) = (Descriptor::new(&entries), Descriptor::new(&entries[..1]));
            events(|| _ = (rules.check("shop", &[one, other]), rules.check("shop", &[other])))
        };
        let unknown = || events(|| _ = rules.check("shopp", &[Descriptor::new(&entries)]));
        let expected = |domain: &str, keys: &str| {
            let event = said.map(|action| {
                let message = "no rule applies to a request; further ones are not logged until the next load";
                let fields =
                    fields([("domain", domain), ("keys", keys), ("action", action), ("message", message)]);
                (tracing::Level::WARN, "tollgate".to_owned(), fields)
            });
            event.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(ask(), expected("\"shop\"", "\"usr.path, usr\""));
        assert_eq!(unknown(), expected("\"shopp\"", "\"\""));
        assert!(ask().is_empty() && unknown().is_empty(), "only the first one");
        let _ = rules.explain("shop", &[Descriptor::new(&entries)], 1);
        rules.replace([file("user", 2)]).expect("the rules load");
        assert_eq!(ask(), expected("\"shop\"", "\"usr.path, usr\""), "again after a load");
        // A load that leaves the requests of the domain without rules.
        let _ = rules.check("shop", &[Descriptor::new(&[("user", "alice")])]);
        let seen = events(|| _ = rules.replace([file("user_id", 2)]));
        let warned: Vec<_> = seen.iter().filter(|(level, ..)| *level == tracing::Level::WARN).collect();
        let [(_, _, lost)] = &warned[..] else { panic!("{seen:?}") };
        assert!(lost["domain"] == "\"shop\"" && lost["message"].contains("no rule is left"), "{lost:?}");
    }
}
