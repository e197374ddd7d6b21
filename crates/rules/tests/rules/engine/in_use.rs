//! Loads that would remove a domain in use are rejected.

use std::fs;

use tollgate_rules::{Config, Descriptor, Rules};

use super::{START, Scene, config};

const X: [(&str, &str); 1] = [("a", "x")];

fn text(domain: &str) -> String {
    format!(
        "{{ domain: {domain}, tollgate: {{}}, descriptors: [ {{ key: a, rate_limit: {{ unit: year, every: 70, requests_per_unit: 1 }} }} ] }}"
    )
}

/// Cause: a load accepted whatever domains the files have. Trigger: `sed 's/domain: shop/domain: store/'`. Symptom: the
/// load succeeded, and all requests were admitted without a limit.
// G64
#[test]
fn renamed_domain_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.yaml");
    fs::write(&path, text("shop")).unwrap();
    let rules = Rules::read(&path).unwrap();
    let ask = || rules.check("shop", &[Descriptor::new(&X)]);
    assert!(ask().is_allowed() && ask().is_denied());

    fs::write(&path, text("store")).unwrap();
    let error = rules.reload().unwrap_err();
    for part in ["limits.yaml:1:11: domain: ", "\"shop\" is in use", "\"store\"", "allow_removals"] {
        assert!(error.to_string().contains(part), "expected {part} in the error {error}");
    }
    let problem = &error.config().unwrap().problems()[0];
    assert_eq!((problem.file(), problem.line()), (path.to_str().unwrap(), 1));
    assert!(ask().is_denied(), "the old limits stay");
    let counts = rules.reloads();
    assert_eq!((counts.successes, counts.errors), (1, 1));
    assert_eq!(rules.last_error().unwrap().to_string(), error.to_string());

    // The original file still loads.
    fs::write(&path, text("shop")).unwrap();
    assert!(rules.reload().unwrap().is_empty());
    assert!(ask().is_denied() && rules.last_error().is_none());
}

#[test]
fn required_domain_removal_is_rejected() {
    let rules = Rules::from_yaml(&text("shop")).unwrap();
    rules.require_domain("shop").unwrap();
    rules.require_domain("shop").unwrap();
    assert!(rules.replace([config(&text("store"))]).is_err());
    // Other domains may come and go.
    for others in [&["one", "two"][..], &["two"], &[]] {
        let configs = others.iter().map(|other| Config::from_yaml(other, &text(other)).unwrap());
        rules.replace(configs.chain([config(&text("shop"))])).unwrap();
    }
    assert!(rules.replace([]).unwrap_err().to_string().contains("\"shop\""));
}

#[test]
fn used_domain_stays_required_over_reloads() {
    let scene = Scene::new(&text("shop"));
    assert!(scene.ask(&X).is_allowed());
    for _ in 0..3 {
        scene.reload(&text("shop"));
    }
    assert!(scene.rules.replace([config(&text("store"))]).is_err());
    assert!(scene.rules.at(START).replace([config(&text("store"))]).is_err());
    assert!(scene.ask(&X).is_denied());
}

// G64
#[test]
fn domain_without_rules_is_rejected() {
    let empty = "{ domain: shop, descriptors: [] }";
    let scene = Scene::new(&text("shop"));
    assert!(scene.ask(&X).is_allowed());
    let error = scene.rules.replace([config(empty)]).unwrap_err().to_string();
    for part in ["test.yaml:1:11: descriptors: ", "\"shop\" is in use", "without any rule", "allow_removals"]
    {
        assert!(error.contains(part), "expected {part} in the error {error}");
    }
    assert!(scene.ask(&X).is_denied());

    // A domain that had no rules may stay without rules.
    let scene = Scene::new(empty);
    assert!(scene.ask(&X).is_allowed());
    scene.reload(empty);
    assert!(scene.rules.replace([config(&text("store"))]).is_err(), "the domain's name may not disappear");
}

#[test]
fn unused_domain_can_be_removed() {
    let rules = Rules::from_yaml(&text("shop")).unwrap();
    rules.replace([config(&text("store"))]).unwrap();
    let error = rules.require_domain("shop").unwrap_err().to_string();
    for part in ["\"shop\"", "the most similar domain is \"store\", in test.yaml", "load a file"] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
}

#[test]
fn allow_removals_permits_removed_domain() {
    let rules = Rules::builder().allow_removals(true).load([config(&text("shop"))]).unwrap();
    rules.require_domain("shop").unwrap();
    let ask = || rules.check("shop", &[Descriptor::new(&X)]);
    assert!(ask().is_allowed() && ask().is_denied());
    rules.replace([config("{ domain: shop, descriptors: [] }")]).unwrap();
    assert!(ask().is_allowed() && ask().has_domain());
    let report = rules.replace([config(&text("store"))]).unwrap();
    assert!(report.to_string().contains("removed domain \"shop\""), "{report}");
    assert!(ask().is_allowed() && !ask().has_domain());
}
