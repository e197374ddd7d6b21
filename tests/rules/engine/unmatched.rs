//! Rules that matched no request.

use super::{Scene, config};

const TEXT: &str = "
domain: d
tollgate: {}
descriptors:
  - key: a
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: b
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: c
    rate_limits:
      - { unit: hour, requests_per_unit: 1, name: hourly, replaces: [{ name: daily }] }
      - { unit: day, requests_per_unit: 1, name: daily }
";

fn unmatched(scene: &Scene) -> Vec<String> {
    scene.rules.unmatched().iter().map(|(_, rule)| rule.identity.to_string()).collect()
}

#[test]
fn unmatched_rules_are_listed_after_first_request() {
    let scene = Scene::new(TEXT);
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

#[test]
fn unmatched_rules_reset_at_load() {
    let scene = Scene::new(TEXT);
    for key in ["a", "b", "c"] {
        let _ = scene.ask(&[(key, "x")]);
    }
    assert!(unmatched(&scene).is_empty());
    scene.reload(&TEXT.replace("key: b", "key: bee"));
    assert!(unmatched(&scene).is_empty(), "no request has used the domain since the load");
    for key in ["a", "b", "c"] {
        let _ = scene.ask(&[(key, "x")]);
    }
    assert_eq!(unmatched(&scene), ["d|bee"]);
    let other =
        "{ domain: other, descriptors: [ { key: a, rate_limit: { unit: hour, requests_per_unit: 1 } } ] }";
    scene.rules.replace([config(TEXT), config(other)]).unwrap();
    let _ = scene.rules.check("other", &[]);
    assert_eq!(unmatched(&scene), ["other|a"], "only the domain with requests is listed");
}
