//! `classes`: rules that share one count, each with a share of it.

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::sample::select;
use tollgate_rules::{Config, Descriptor};

use super::{Scene, config, left};

const KINDS: [&str; 9] = [
    "",
    ", store: keyed",
    ", algorithm: gcra",
    ", algorithm: token-bucket, store: keyed",
    ", algorithm: sliding-window",
    ", algorithm: sliding-window, strict: true, store: keyed",
    ", algorithm: sub-window, parts: 6",
    ", algorithm: sliding-log",
    ", store: sketch",
];
/// The classes of all tests, and what each may use of ten units.
const CLASSES: [(&str, u64); 4] = [("critical", 10), ("normal", 8), ("batch", 5), ("other", 2)];
const MAP: &str = "{ critical: 100%, normal: 80%, batch: 50%, '*': 25% }";

fn text(limit: &str, settings: &str) -> String {
    format!(
        "domain: d\ntollgate: {{ {settings} }}\ndescriptors:\n  - key: tenant\n    descriptors:\n      - key: priority\n        \
         classes: {MAP}\n        rate_limit: {{ unit: hour, requests_per_unit: 10 {limit} }}\n"
    )
}

fn of<'a>(tenant: &'a str, class: &'a str) -> [(&'a str, &'a str); 2] {
    [("tenant", tenant), ("priority", class)]
}

#[test]
fn named_rules_have_names_of_classes() {
    let named = config(&text(", name: calls", ""));
    let names: Vec<&str> = named.rules().iter().map(|rule| &*rule.name).collect();
    assert_eq!(names, ["calls.critical", "calls.normal", "calls.batch", "calls.*"]);
    assert!(named.warnings().is_empty(), "{:?}", named.warnings());
    let identities: Vec<&str> = named.rules().iter().map(|rule| &*rule.identity).collect();
    assert_eq!(identities[1..3], ["d|tenant|priority=normal", "d|tenant|priority=batch"]);
    assert_eq!(identities[3], "d|tenant|priority");
}

/// One limit of several: each has a count of its own, which the classes share.
// G120
#[test]
fn several_limits_have_shares() {
    let scene = Scene::of(&["
  - key: priority
    classes: { high: 100%, low: 50% }
    rate_limits:
      - { unit: minute, requests_per_unit: 4 }
      - { unit: hour, requests_per_unit: 10, algorithm: gcra }
  - { key: other, rate_limit: { unit: hour, requests_per_unit: 1 } }
"]);
    let [low, high] = [[("priority", "low")], [("priority", "high")]];
    assert_eq!(scene.admitted(&low, 9), 2, "half of a minute's units");
    assert_eq!(scene.admitted(&high, 9), 2);
    scene.advance(60);
    assert_eq!(scene.admitted(&low, 9), 1, "the fifth of ten in this hour");
    assert_eq!(scene.admitted(&[("priority", "none")], 99), 99, "no class is no rule");
    // All or none: the other rule denies, so the class is not charged.
    scene.advance(60);
    assert!(scene.ask_both(&high, &[("other", "x")]).is_allowed());
    assert!(scene.ask_both(&high, &[("other", "x")]).is_denied());
    assert_eq!(scene.admitted(&high, 9), 3);
    // The class denies, so the other rule is not charged.
    assert!(scene.ask_both(&low, &[("other", "y")]).is_denied());
    assert!(scene.ask(&[("other", "y")]).is_allowed());
}

/// Classes below ranges, and ranges beside classes of one key.
// G120
#[test]
fn classes_and_ranges_work_together() {
    let scene = Scene::of(&["
  - key: ip
    ranges: [10.0.0.0/8]
    descriptors:
      - { key: priority, classes: { high: 100%, low: 50% }, rate_limit: { unit: hour, requests_per_unit: 4 } }
  - key: ip
    ranges: [10.1.0.0/16]
    share_threshold: true
    descriptors:
      - { key: priority, classes: { high: 100%, low: 50% }, rate_limit: { unit: hour, requests_per_unit: 6 } }
  - { key: who, classes: { vip: 100%, '*': 50% }, rate_limit: { unit: hour, requests_per_unit: 2 } }
  - { key: who, ranges: [10.0.0.0/8], rate_limit: { unit: hour, requests_per_unit: 5 } }
"]);
    let of = |ip, class| [("ip", ip), ("priority", class)];
    assert_eq!(scene.admitted(&of("10.9.0.1", "low"), 9), 2, "each address has a count");
    assert_eq!(scene.admitted(&of("10.9.0.2", "low"), 9), 2);
    assert_eq!(scene.admitted(&of("10.9.0.1", "high"), 9), 2);
    assert_eq!(scene.admitted(&of("10.1.0.1", "low"), 9), 3, "the addresses of the range have one count");
    assert_eq!(scene.admitted(&of("10.1.0.2", "low"), 9), 0);
    assert_eq!(scene.admitted(&of("10.1.0.2", "high"), 9), 3);
    // A range comes before the class of all other values.
    assert_eq!(scene.admitted(&[("who", "10.0.0.1")], 9), 5);
    assert_eq!(scene.admitted(&[("who", "11.0.0.1")], 9), 1);
    assert_eq!(scene.admitted(&[("who", "vip")], 9), 1);
}

/// A refund is for the shared count.
#[test]
fn refunds_are_for_all_classes() {
    let scene = Scene::new(&text("", ""));
    let descriptors = [Descriptor::new(&[("tenant", "a"), ("priority", "batch")])];
    let answer = scene.rules.check_n("d", &descriptors, 5);
    assert!(answer.is_allowed());
    scene.rules.refund(&descriptors, &answer);
    assert_eq!(left(&scene, &of("a", "critical")), 10);
    assert!(scene.rules.check_n("d", &descriptors, 5).is_allowed());
    assert!(scene.rules.refund_n("d", &descriptors, 2));
    assert_eq!(left(&scene, &of("a", "normal")), 5);
}

/// Shares change at a load, the use stays, whatever happens to single classes.
// G120
#[test]
fn reloads_keep_the_shared_use() {
    for kind in KINDS.into_iter().filter(|kind| !kind.contains("sketch")) {
        let with = |map: &str, limit: u64| {
            text(kind, "")
                .replace(MAP, map)
                .replace("requests_per_unit: 10", &format!("requests_per_unit: {limit}"))
        };
        let scene = Scene::new(&with(MAP, 10));
        assert_eq!(scene.admitted(&of("a", "batch"), 5), 5);
        scene.reload(&with("{ batch: 70% }", 10));
        assert_eq!(scene.admitted(&of("a", "batch"), 9), 2, "{kind}");
        scene.reload(&with("{ urgent: 100%, batch: 80% }", 10));
        assert_eq!(scene.admitted(&of("a", "batch"), 9), 1, "{kind}");
        assert_eq!(scene.admitted(&of("a", "urgent"), 1), 1, "{kind}");
        // Nine are used. A higher limit, and then a lower one.
        scene.reload(&with(MAP, 20));
        assert_eq!(scene.admitted(&of("a", "batch"), 9), 1, "{kind}");
        scene.reload(&with(MAP, 15));
        assert_eq!(scene.admitted(&of("a", "batch"), 9), 0, "{kind}");
        assert_eq!(scene.admitted(&of("a", "critical"), 9), 5, "{kind}");
        let report = scene.rules.replace([config(&with("{ critical: 90%, batch: 50% }", 15))]).unwrap();
        assert!(report.to_string().contains("class critical of 1000000 per million to"), "{report}");
    }
}

/// Denied requests count, at most one unit beyond the class's share.
// G120
#[test]
fn counted_denials_take_one_unit() {
    for charging in ["charging: count-first", "charging: count-denials"] {
        let scene = Scene::new(&text("", charging));
        assert_eq!(scene.admitted(&of("a", "batch"), 30), 5, "{charging}");
        assert_eq!(scene.admitted(&of("a", "normal"), 30), 2, "{charging}: the denied one counts");
        assert_eq!(scene.admitted(&of("a", "critical"), 30), 1, "{charging}");
        // A query of tokens that are reported later.
        let scene = Scene::new(&text("", charging));
        assert!(scene.ask_n(&of("a", "batch"), 40).is_denied());
        if charging.ends_with("denials") {
            assert!(scene.ask_n(&of("a", "batch"), 0).is_denied());
            assert!(scene.ask_n(&of("a", "normal"), 0).is_allowed());
        }
    }
}

#[test]
fn classes_only_report_in_shadow_mode() {
    let scene = Scene::new(
        &text("", "").replace("- key: priority\n", "- key: priority\n        shadow_mode: true\n"),
    );
    assert_eq!(scene.admitted(&of("a", "batch"), 9), 9);
    assert!(scene.ask(&of("a", "batch")).limits().all(|limit| limit.decision().unwrap().is_denied()));
    let soft = Scene::new(&text(", soft: 3", ""));
    assert!(!soft.ask_n(&of("a", "critical"), 3).is_soft_limited());
    assert!(soft.ask(&of("a", "batch")).is_soft_limited(), "the soft limit is one of the shared use");
}

proptest! {
    #![proptest_config(tollgate_testing::operations::config(60))]

    /// While the clock does not advance, a request of a class is admitted exactly if at most its share is in use afterwards.
    /// An explanation gives the same answer. No class leaves less than the headroom of the others.
    // G120
    #[test]
    fn class_is_admitted_up_to_its_share(
        kind in select(KINDS.to_vec()),
        ops in prop::collection::vec((0_usize..2, 0..CLASSES.len(), 0_u64..7), 1..40),
    ) {
        let scene = Scene::new(&text(kind, ""));
        let mut used = HashMap::<usize, u64>::new();
        for &(tenant, class, cost) in &ops {
            let (name, share) = CLASSES[class];
            let used = used.entry(tenant).or_default();
            let entries = of(["a", "b"][tenant], name);
            let fits = cost == 0 || *used + cost <= share;
            let explained = scene.rules.explain("d", &[Descriptor::new(&entries)], cost);
            prop_assert_eq!(explained.answer().is_allowed(), fits);
            let answer = scene.ask_n(&entries, cost);
            prop_assert_eq!(answer.is_allowed(), fits, "{} used, {} of {} {}", used, cost, name, kind);
            if fits {
                *used += cost;
            }
            let limit = answer.limits().next().unwrap();
            prop_assert_eq!((limit.quota(), limit.remaining()), (share, share.saturating_sub(*used)), "{}", kind);
        }
    }

    /// No text with classes panics, and what is accepted decides.
    #[test]
    fn any_map_is_read(map in "[{]( ?['a*\"]{0,3}: ?[0-9.%-]{0,8},?){0,4}[}]", limit in 0_u64..3) {
        let text = text("", "").replace(MAP, &map).replace("requests_per_unit: 10", &format!("requests_per_unit: {limit}"));
        if let Ok(config) = Config::from_yaml("test.yaml", &text) {
            let rules = tollgate_rules::Rules::builder().load([config]).unwrap();
            let _ = rules.check("d", &[Descriptor::new(&of("a", "a"))]);
        }
    }
}
