//! Rules with a block or with classes, shared by processes.

use std::time::Duration;

use super::*;
use crate::client;

const MINUTES: Duration = Duration::from_secs(600);
const ATOMIC: &str = "store: redis, mode: atomic";

/// Three a minute, then a block.
fn login(keys: &str, block: &str) -> String {
    let limit = "{ unit: minute, requests_per_unit: 3, algorithm: gcra, block: ";
    format!("  - {{ key: a{keys}, rate_limit: {limit}{block} }} }}\n")
}

/// The wait of a request that a block denies.
fn blocked(rules: &Rules<ManualClock>) -> Option<Duration> {
    let answer = run(ask(rules, &[("a", "x")]));
    assert_eq!(answer.is_denied(), is_block(&answer));
    answer.retry_after().filter(|_| answer.is_denied())
}

fn is_block(answer: &Answer) -> bool {
    let decision = answer.limits().next().and_then(|limit| limit.decision());
    decision.is_some_and(|decision| decision.is_block())
}

// G132
#[test]
fn rule_that_only_reports_blocks_nothing() {
    let (keys, rest) = (", shadow_mode: true", "");
    let in_file = login(keys, "10m");
    let of_none = login(rest, "10m").replace("block: 10m", "block: 10m, enforced: 0%");
    for (text, is_dry_run) in [
        (file(ATOMIC, &[in_file]), false),
        (file(ATOMIC, &[of_none]), false),
        (file(&format!("{ATOMIC}, shadow: true"), &[login("", "10m")]), false),
        (file(ATOMIC, &[login("", "10m")]), true),
    ] {
        let clock = clock();
        let server = in_process(&clock).0;
        let Ok(config) = Config::from_yaml("test.yaml", &text) else { panic!("{text}") };
        let rules = Rules::builder().clock(clock.clone()).shared(server.clone()).shadow(is_dry_run);
        let rules = rules.load([config]).unwrap();
        for _ in 0..5 {
            assert!(run(ask(&rules, &[("a", "x")])).is_allowed(), "{text}");
        }
        let enforcing = process(server, &clock, &file(ATOMIC, &[login("", "10m")]));
        clock.advance(Duration::from_secs(20));
        assert_eq!(blocked(&enforcing), None, "{text}: a unit has refilled, and no block began");
        assert_eq!(blocked(&enforcing), Some(MINUTES), "{text}");
    }
}

// G132
#[test]
fn server_starts_no_block_for_a_dry_run() {
    let Some(server) = tollgate_testing::redis::Server::start() else { return };
    let settings = format!("{ATOMIC}, timeout: 20s, on_failure: closed");
    let rules = |shadow| {
        let builder = Rules::builder().clock(clock()).shared(client(&server).blocking()).shadow(shadow);
        builder.load([config(&file(&settings, &[login("", "10m"), classes()]))]).unwrap()
    };
    let (dry, enforcing) = (rules(true), rules(false));
    let is_blocked = |rules| is_block(&run(ask(rules, &[("a", "x")])));
    assert!((0..6).all(|_| !is_blocked(&dry)));
    assert!(is_blocked(&enforcing) && is_blocked(&dry));
    assert_eq!([admitted(&enforcing, "batch"), admitted(&enforcing, "critical")], [5, 5]);
}

/// A denial by another rule starts no block, and returns the units of the rule with the block.
#[test]
fn rule_blocks_only_what_it_denies() {
    let clock = clock();
    let server = in_process(&clock).0;
    let other = "  - { key: b, rate_limit: { unit: hour, requests_per_unit: 1, store: keyed } }\n".to_owned();
    let rules = process(server, &clock, &file(ATOMIC, &[login("", "10m"), other]));
    let both = [("a", "x"), ("b", "y")];
    assert!(run(ask(&rules, &both)).is_allowed());
    for _ in 0..5 {
        assert!(run(ask(&rules, &both)).is_denied());
    }
    assert_eq!([blocked(&rules), blocked(&rules)], [None, None]);
    assert_eq!(blocked(&rules), Some(MINUTES));
    // A caller that cannot wait for the server has this process's share, without blocks.
    assert!(ask_now(&rules, &[("a", "x")]).is_allowed());
}

#[test]
fn loads_that_a_server_cannot_count_are_refused() {
    let clock = clock();
    let server = in_process(&clock).0;
    let of_file = |text: &str| Config::from_yaml("test.yaml", text).unwrap_err().to_string();
    for mode in ["lease", "write-back"] {
        let told = of_file(&file(&format!("store: redis, mode: {mode}"), &[login("", "10m")]));
        let part = format!("the redis store has no blocks in the mode {mode}");
        assert!(told.contains(&part) && told.contains("mode: atomic, or store: keyed"), "{told}");
    }
    let told = of_file(&file(ATOMIC, &[login(", quota_mode: true", "10m")]));
    assert!(told.contains("test.yaml:4"), "{told}");
    assert!(told.contains("quota_mode cannot be used with a block"), "{told}");
    let count_denials = format!("{ATOMIC}, charging: count-denials");
    for rule in [login("", "10m"), classes()] {
        let text = file(&count_denials, &[rule]);
        let told = load(server.clone(), &clock, &text).unwrap_err().to_string();
        assert!(told.contains("test.yaml:") && told.contains("use another charging"), "{told}");
    }
    let quotas = Rules::builder().clock(clock.clone()).shared(server).quota(true);
    let told = quotas.load([config(&file(ATOMIC, &[login("", "10m")]))]).unwrap_err().to_string();
    assert!(told.contains("cannot be a quota"), "{told}");
}

fn classes() -> String {
    "  - key: tenant\n    descriptors:\n      - key: class\n        classes: { critical: 100%, normal: 80%, '*': 50% }\n        \
     rate_limit: { unit: hour, requests_per_unit: 10 }\n"
        .to_owned()
}

fn admitted(rules: &Rules<ManualClock>, class: &str) -> usize {
    let entries = [("tenant", "acme"), ("class", class)];
    let descriptors = [Descriptor::new(&entries)];
    (0..20).filter(|_| run(rules.check_async("d", &descriptors)).is_allowed()).count()
}
