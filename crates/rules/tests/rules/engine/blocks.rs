//! `block`: a denial blocks its key.

use std::time::Duration;

use tollgate_rules::{Charging, Descriptor, Verdict};

use super::{Scene, left, one};

const A: [(&str, &str); 1] = [("a", "x")];
const B: [(&str, &str); 1] = [("b", "x")];

/// Returns a limit of five a minute.
fn five(more: &str) -> String {
    format!("{{ unit: minute, requests_per_unit: 5, algorithm: gcra, {more} }}")
}

fn two(a: &str, b: &str) -> String {
    format!("{{ domain: d, tollgate: {{}}, descriptors: [ {{ key: a, {a} }}, {{ key: b, {b} }} ] }}")
}

fn minutes(minutes: u64) -> Option<Duration> {
    Some(Duration::from_secs(60 * minutes))
}

#[test]
fn constant_block_and_one_counter_for_all() {
    for (descriptor, more) in [("key: a, value: x", ""), ("key: a", ", memory: 64KiB")] {
        let limit = five(&format!("block: 600s{more}"));
        let scene = Scene::of(&[&format!("{descriptor}, rate_limit: {limit}")]);
        assert_eq!(scene.admitted(&A, 6), 5);
        scene.advance(599);
        assert_eq!(scene.admitted(&A, 1), 0);
        scene.advance(1);
        assert_eq!(scene.admitted(&A, 2), 1);
        assert_eq!(scene.ask(&A).retry_after(), minutes(10));
    }
}

/// A block without `store` is in a keyed store, which counts in nanoseconds, and not in ticks.
#[test]
fn block_without_store_is_in_a_keyed_store() {
    let stores = [("", true), ("store: keyed", true), ("store: compact", false)];
    for (more, is_exact) in stores {
        // A block of an odd number of intervals: its ticks are no whole nanoseconds.
        let scene = Scene::new(&one(&format!(
            "{{ unit: second, requests_per_unit: 7, algorithm: gcra, block: 123457ms, {more} }}"
        )));
        assert_eq!(scene.admitted(&A, 7), 7);
        let end = scene.ask(&A).retry_after().unwrap();
        assert_eq!(end == Duration::from_millis(123_457), is_exact, "{more}: {end:?}");
        assert!(end.abs_diff(Duration::from_millis(123_457)) < Duration::from_millis(1));
    }
}

// G129
#[test]
fn only_rules_that_deny_block() {
    let blocking = format!("rate_limit: {}", five("block: 10m"));
    let scene = Scene::new(&two(&blocking, &blocking));
    assert_eq!(scene.admitted(&A, 5), 5);
    for _ in 0..2 {
        let denied = scene.ask_both(&A, &B);
        assert_eq!(denied.retry_after(), minutes(10));
        let verdicts: Vec<_> = denied.limits().map(|limit| limit.verdict()).collect();
        assert_eq!(verdicts, [Verdict::Denied, Verdict::Allowed]);
    }
    assert_eq!(left(&scene, &B), 5, "nothing was charged there");
    assert_eq!(scene.admitted(&B, 5), 5);
    // A cost that never fits blocks no key.
    assert!(scene.ask_n(&[("a", "z")], 6).is_never());
    assert_eq!(scene.admitted(&[("a", "z")], 5), 5);
}

// G129
#[test]
fn shadow_rules_and_dry_runs_block_no_key() {
    let limit = five("block: 10m");
    let shadow = Scene::new(&two(
        &format!("shadow_mode: true, rate_limit: {limit}"),
        "rate_limit: { unit: minute, requests_per_unit: 100 }",
    ));
    for _ in 0..7 {
        assert!(shadow.ask_both(&A, &B).is_allowed());
    }
    shadow.advance(12);
    let verdicts = shadow.ask_both(&A, &B).limits().map(|limit| limit.verdict()).collect::<Vec<_>>();
    assert_eq!(verdicts, [Verdict::Allowed; 2], "one unit is free after 12 seconds");

    let file = one(&limit).replace("tollgate: {}", "tollgate: { shadow: true }");
    let dry = Scene::new(&file);
    for _ in 0..7 {
        assert!(dry.ask(&A).is_allowed());
    }
    dry.advance(12);
    assert!(!dry.ask(&A).is_shadow_denied());
    dry.reload(&one(&limit));
    assert_eq!(dry.ask(&A).retry_after(), minutes(10), "enforced since now");
}

#[test]
fn quota_rules_block_only_if_all_of_them_deny() {
    let limit = format!("quota_mode: true, rate_limit: {}", five("block: 10m"));
    let scene = Scene::new(&two(&limit, &limit));
    assert_eq!(scene.admitted(&A, 5), 5);
    assert!(scene.ask_both(&A, &B).is_allowed());
    scene.advance(12);
    assert!(scene.ask(&A).is_allowed(), "its denial was not that of the request");
    assert_eq!(scene.admitted(&B, 9), 5);
    assert!(scene.ask_both(&A, &B).is_denied());
    scene.advance(599);
    assert!(scene.ask(&A).is_denied());
    scene.advance(1);
    assert!(scene.ask(&A).is_allowed());
}

// G130
#[test]
fn loads_add_and_remove_a_block() {
    let with = |more: &str| one(&format!("{{ unit: minute, algorithm: gcra, {more} }}"));
    // A lower limit keeps no room for usage beyond it: a key whose block has ended would be blocked again at once.
    let scene = Scene::new(&with("requests_per_unit: 50"));
    assert_eq!(scene.admitted(&A, 50), 50);
    scene.reload(&with("requests_per_unit: 5, block: 10m"));
    assert_eq!(scene.ask(&A).retry_after(), minutes(10));
    scene.advance(600);
    assert!(scene.ask(&A).is_allowed());
    scene.advance(30);
    scene.reload(&with("requests_per_unit: 5"));
    assert_eq!(left(&scene, &A), 2, "without a block, the rest is an ordinary debt");
}

#[test]
fn tiers_have_their_own_blocks() {
    let tiers = "tiers: { premium: { members: [vip], rate_limit: { unit: minute, requests_per_unit: 9, algorithm: gcra, \
                 block: 1m } } }";
    let limit = five("block: 10m");
    let scene = Scene::of(&[&format!("key: a, rate_limit: {limit}, {tiers}")]);
    assert_eq!(scene.admitted(&A, 6), 5);
    assert_eq!(scene.admitted(&[("a", "vip")], 10), 9);
    assert_eq!(scene.ask(&A).retry_after(), minutes(10));
    assert_eq!(scene.ask(&[("a", "vip")]).retry_after(), minutes(1));
}

/// With `charging` modes that count denied requests, the block stands for the denied request.
#[test]
fn denied_request_blocks_instead_of_being_counted() {
    let both = |store| [(Charging::CountFirst, store), (Charging::CountDenials, store)];
    for (charging, store) in ["keyed", "compact"].into_iter().flat_map(both) {
        let block = format!("block: 10m, store: {store}");
        let text = two(&format!("rate_limit: {}", five(&block)), &format!("rate_limit: {}", five("")));
        let scene = Scene::try_new(&text, Some(charging)).unwrap();
        assert_eq!(scene.admitted(&A, 5), 5, "{charging}");
        assert_eq!(left(&scene, &A), 0);
        assert!(scene.ask_n(&A, 0).is_allowed(), "{charging}: a query starts no block");
        assert_eq!(scene.ask_both(&A, &B).retry_after(), minutes(10), "{charging}");
        assert_eq!(scene.ask_n(&A, 0).retry_after(), minutes(10), "{charging}: and sees one");
        assert_eq!(left(&scene, &B), if charging == Charging::CountFirst { 4 } else { 5 });
        scene.rules.for_each(|_, rule, counts| {
            assert_eq!(counts.blocked, u64::from(&*rule.name == "d.a"), "{charging} {}", rule.name);
        });
        scene.advance(600);
        assert!(scene.ask_n(&A, 0).is_allowed() && scene.ask(&A).is_allowed(), "{charging}");
        assert_eq!(scene.ask(&A).retry_after(), minutes(10), "{charging}");
    }
}

#[test]
fn unknown_number_of_rules_blocks_alike() {
    // With three descriptors, a request takes the long route.
    let scene = Scene::new(&two(
        &format!("rate_limit: {}", five("block: 10m")),
        &format!("rate_limit: {}", five("")),
    ));
    assert_eq!(scene.admitted(&A, 5), 5);
    let descriptors = [Descriptor::new(&A), Descriptor::new(&B), Descriptor::new(&[("c", "x")])];
    assert_eq!(scene.rules.check("d", &descriptors).retry_after(), minutes(10));
    assert_eq!(left(&scene, &B), 5);
}

// G121
#[test]
fn explanation_shows_a_block_and_starts_none() {
    let scene = Scene::new(&one(&five("block: 10m")));
    let explained = || {
        let explanation = scene.rules.explain("d", &[Descriptor::new(&A)], 1);
        let rule = explanation.rules().next().expect("it applies");
        let decision = rule.applied().and_then(|applied| applied.decision().copied()).expect("a limit");
        (decision.is_block(), explanation.answer().retry_after())
    };
    assert_eq!(scene.admitted(&A, 5), 5);
    for _ in 0..2 {
        assert_eq!(explained(), (false, Some(Duration::from_secs(12))));
    }
    assert_eq!(scene.ask(&A).retry_after(), minutes(10));
    assert_eq!(explained(), (true, minutes(10)));
}

#[test]
fn denial_of_a_prefix_blocks_that_prefix() {
    let scene = Scene::of(&["
  - key: ip
    prefixes:
      ipv4: { 32: { unit: minute, requests_per_unit: 5 } }
      ipv6:
        64: { unit: minute, requests_per_unit: 2, algorithm: gcra, block: 10m }
        48: { unit: minute, requests_per_unit: 5, algorithm: gcra }
"]);
    let ask = |address: &str| scene.ask(&[("ip", address)]).retry_after();
    for address in ["2001:db8:0:1::1", "2001:db8:0:1::2"] {
        assert_eq!(ask(address), Some(Duration::ZERO));
    }
    assert_eq!(ask("2001:db8:0:1::3"), minutes(10));
    scene.advance(60);
    assert_eq!(ask("2001:db8:0:1::4"), minutes(9));
    assert_eq!(ask("2001:db8:0:2::1"), Some(Duration::ZERO), "another network of the same /48");
}
