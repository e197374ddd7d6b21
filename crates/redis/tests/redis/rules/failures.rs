//! Rules while the server cannot be reached.

use tollgate::telemetry::Reading;
use tollgate_rules::Verdict;

use super::*;
use crate::absent;

fn three() -> String {
    let each = ["open", "closed", "local, processes: 2"];
    let rules = each.map(|policy| rule(&policy[..1], &format!("requests_per_unit: 4, on_failure: {policy}")));
    file("store: redis, mode: atomic, timeout: 500ms", &rules)
}

/// Returns the counts of each rule: allowed, denied, and failures by policy (open, closed, local).
fn counts(rules: &Rules<ManualClock>) -> Vec<[u64; 5]> {
    let mut all = Vec::new();
    rules.for_each(|_, _, counts| {
        let failures = [counts.error_open, counts.error_closed, counts.error_local];
        all.push([counts.allowed, counts.denied, failures[0], failures[1], failures[2]]);
    });
    all
}

async fn assert_failure_policies_apply(rules: &Rules<ManualClock>) {
    assert_eq!(admitted(rules, &[("o", "x")], 9).await, 9);
    assert_eq!(admitted(rules, &[("c", "x")], 9).await, 0);
    assert_eq!(admitted(rules, &[("l", "x")], 9).await, 2, "this process gets half of the limit");
    assert_eq!(counts(rules), [[0, 0, 9, 0, 0], [0, 0, 0, 9, 0], [0, 0, 0, 0, 9]]);
    let by = [("o", DecidedBy::Open), ("c", DecidedBy::Closed), ("l", DecidedBy::Local)];
    for (key, by) in by {
        assert_eq!(decided_by(&ask(rules, &[(key, "y")]).await), Some(by));
    }
    let answer = ask(rules, &[("c", "x")]).await;
    assert!(answer.retry_after().is_some_and(|wait| !wait.is_zero()), "the client may try again later");
    assert_eq!(answer.limits().next().unwrap().verdict(), Verdict::Denied);
}

// G83
#[test]
fn each_rule_follows_its_failure_policy() {
    let clock = clock();
    let rules = process(absent(), &clock, &three());
    run(assert_failure_policies_apply(&rules));
    run(assert_failure_policies_apply(&process(absent().blocking(), &clock, &three())));
    // After five failures the breaker of each rule is open.
    let mut partitioned = 0;
    rules.readings(|_, _, readings| {
        partitioned += usize::from(readings.contains(&Reading::Gauge("tollgate_partitioned", 1.0)));
    });
    assert_eq!(partitioned, 3);
}

#[test]
fn closed_policy_denies_whole_request() {
    let clock = clock();
    let rules = [("c", "on_failure: closed"), ("o", "on_failure: open"), ("near", "store: keyed")];
    let rules = rules.map(|(key, more)| rule(key, &format!("requests_per_unit: 4, {more}")));
    let text = file("store: redis, mode: atomic, timeout: 500ms", &rules);
    let rules = process(absent(), &clock, &text);
    run(async {
        assert_eq!(admitted(&rules, &[("c", "x"), ("o", "x"), ("near", "x")], 9).await, 0);
        assert_eq!(admitted(&rules, &[("near", "x")], 9).await, 4, "the local rule charged nothing");
        // The `open` policy admitted its part, but nothing is counted, since the `closed` rule denied the request.
        assert_eq!(counts(&rules), [[0, 0, 0, 9, 0], [0, 0, 0, 0, 0], [4, 5, 0, 0, 0]]);
    });
}

/// A synchronous check with an async client follows the failure policy, and counts as a failure.
#[test]
fn non_waiting_check_follows_failure_policy() {
    let clock = clock();
    let (server, _) = in_process(&clock);
    let rules = process(server.clone(), &clock, &three());
    let admitted = |key: &str| (0..9).filter(|_| ask_now(&rules, &[(key, "x")]).is_allowed()).count();
    assert_eq!(["o", "c", "l"].map(admitted), [9, 0, 2]);
    assert_eq!(counts(&rules), [[0, 0, 9, 0, 0], [0, 0, 0, 9, 0], [0, 0, 0, 0, 9]]);
    assert_eq!(server.keys(), 0);
}
