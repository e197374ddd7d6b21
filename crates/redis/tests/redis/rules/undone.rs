//! Denied requests, refunds and cancelled requests spend no units of other clients. This holds in every mode, and
//! also when the failure policy decides.

use std::time::Duration;

use super::*;
use crate::absent;

fn two(settings: &str) -> String {
    file(settings, &[rule("a", "requests_per_unit: 10"), rule("g", "requests_per_unit: 2")])
}

const BOTH: [(&str, &str); 2] = [("a", "x"), ("g", "x")];

fn admitted_now(rules: &Rules<ManualClock>, entries: &[(&str, &str)], of: u32) -> usize {
    (0..of).filter(|_| ask_now(rules, entries).is_allowed()).count()
}

#[test]
fn denied_request_charges_no_local_share() {
    for mode in ["atomic", "lease"] {
        run(async {
            let text = two(&format!("store: redis, mode: {mode}, timeout: 500ms"));
            let rules = process(absent(), &clock(), &text);
            assert_eq!(admitted(&rules, &BOTH, 9).await, 2, "{mode}");
            assert_eq!(admitted(&rules, &[("a", "x")], 20).await, 8, "{mode}");
        });
    }
}

#[test]
fn non_waiting_denial_refunds_local_share() {
    let text = two("store: redis, mode: atomic, timeout: 500ms");
    let servers: [Server; 2] = [Arc::new(absent().blocking()), Arc::new(absent())];
    for server in servers {
        let rules = process(server, &clock(), &text);
        assert_eq!((admitted_now(&rules, &BOTH, 9), admitted_now(&rules, &[("a", "x")], 20)), (2, 8));
    }
}

#[test]
fn refund_returns_to_local_share() {
    for mode in ["atomic", "lease"] {
        run(async {
            let settings = format!("store: redis, mode: {mode}, timeout: 500ms");
            let text = file(&settings, &[rule("a", "requests_per_unit: 2")]);
            let rules = process(absent(), &clock(), &text);
            let entries = [("a", "x")];
            let descriptors = each(&entries);
            for turn in 0..6 {
                let answer = rules.check_async("d", &descriptors).await;
                assert!(answer.is_allowed(), "{mode} {turn}");
                if turn % 2 == 0 {
                    rules.refund_async(&descriptors, &answer).await;
                } else {
                    rules.refund(&descriptors, &answer);
                }
            }
            assert_eq!(admitted(&rules, &entries, 9).await, 2, "{mode}");
        });
    }
}

/// A write-back charge cannot be undone, so all limits are checked before any is charged.
#[test]
fn write_back_rules_are_charged_together() {
    let text = "
domain: d
tollgate: { store: redis, mode: write-back, timeout: 5s }
descriptors:
  - { key: a, rate_limit: { unit: year, requests_per_unit: 10 } }
  - { key: g, rate_limit: { unit: year, requests_per_unit: 3 } }
";
    let rules = |server: Server| {
        let clock = ManualClock::default();
        Rules::builder().clock(clock).shared(server).load([config(text)]).unwrap()
    };
    run(async {
        let rules = rules(Arc::new(InProcess::default()));
        assert_eq!(admitted(&rules, &BOTH, 30).await, 3);
        let refused = ask(&rules, &BOTH).await;
        assert_eq!(refused.denied_by().count(), 1, "{refused:?}");
        assert_eq!(admitted(&rules, &[("a", "x")], 30).await, 7);
    });
    let rules = rules(Arc::new(InProcess::default().blocking()));
    assert_eq!((admitted_now(&rules, &BOTH, 30), admitted_now(&rules, &[("a", "x")], 30)), (3, 7));
}

/// A client over its own limit cancels its requests after many different delays. No units of other clients are spent.
#[test]
fn cancelled_requests_spend_no_shared_units() {
    let Some(server) = tollgate_testing::redis::Server::start() else { return };
    let proxy = tollgate_testing::redis::Proxy::start(server.port());
    for mode in ["atomic", "lease"] {
        let client = format!("client-{mode}");
        let rules = [
            rule("all", &format!("requests_per_unit: 50, mode: {mode}, name: {mode}")),
            rule(&client, "requests_per_unit: 1"),
            rule("near", "requests_per_unit: 1000, store: keyed"),
        ];
        let text = file("store: redis, mode: atomic, timeout: 5s", &rules);
        let all = [("all", mode), (&*client, "bad"), ("near", mode)];
        run(async {
            let rules = process(Client::open(&proxy.url()).unwrap(), &clock(), &text);
            assert!(ask(&rules, &all).await.is_allowed());
            assert!(ask(&rules, &all).await.is_denied());
            proxy.delay(Duration::from_millis(20));
            for turn in 0..30 {
                let patience = Duration::from_millis(2 + 3 * turn);
                let _ = tokio::time::timeout(patience, ask(&rules, &all)).await;
            }
            proxy.delay(Duration::ZERO);
            // Calls under way are undone after some time, so the test tries again until the units are back.
            let mut left = 0;
            // In lease mode a few units may have expired while the process held them.
            let least = if mode == "atomic" { 49 } else { 40 };
            for turn in 0..3_000 {
                left += admitted(&rules, &[("all", mode)], 50).await;
                if left >= 49 || (turn > 25 && left >= least) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert!((least..=49).contains(&left), "{mode}: {left}");
            assert_eq!(admitted(&rules, &[("near", mode)], 1_000).await, 999, "{mode}");
        });
    }
}

/// The caller of a refund stops waiting before the server has answered.
#[test]
fn dropped_refund_continues_in_task() {
    let Some(server) = tollgate_testing::redis::Server::start() else { return };
    let proxy = tollgate_testing::redis::Proxy::start(server.port());
    let text = file("store: redis, mode: atomic, timeout: 5s", &[rule("a", "requests_per_unit: 1")]);
    run(async {
        let rules = process(Client::open(&proxy.url()).unwrap(), &clock(), &text);
        let entries = [("a", "x")];
        let answer = ask(&rules, &entries).await;
        assert!(answer.is_allowed());
        proxy.delay(Duration::from_millis(20));
        let descriptors = each(&entries);
        let refund = rules.refund_async(&descriptors, &answer);
        assert!(tokio::time::timeout(Duration::ZERO, refund).await.is_err());
        proxy.delay(Duration::ZERO);
        crate::until("the unit is back", async || admitted(&rules, &entries, 1).await == 1).await;
    });
}

/// After the first runtime has ended, a reload moves the rules to the current runtime.
#[test]
fn reload_moves_rules_to_current_runtime() {
    for mode in ["lease", "write-back"] {
        let settings = format!("store: redis, mode: {mode}, timeout: 1s");
        let text = |limit: u32| file(&settings, &[rule("a", &format!("requests_per_unit: {limit}"))]);
        let clock = clock();
        let rules = run(async { process(InProcess::new(clock.clone()), &clock, &text(20)) });
        run(async {
            rules.replace([config(&text(30))]).unwrap();
            let answer = ask(&rules, &[("a", "x")]).await;
            assert!(answer.is_allowed() && !decided_by(&answer).unwrap().is_failure(), "{mode}: {answer:?}");
        });
    }
}

/// Frequent changes of the limit do not admit more than the limit.
#[test]
fn write_back_reload_keeps_used_units() {
    let text = |limit: u32| {
        let rule = format!("  - {{ key: a, rate_limit: {{ unit: year, requests_per_unit: {limit} }} }}\n");
        file("store: redis, mode: write-back, timeout: 5s", &[rule])
    };
    run(async {
        // This server uses the present time, as the write-back mode's own clock does.
        let rules = process(InProcess::default(), &clock(), &text(20));
        let mut all = admitted(&rules, &[("a", "x")], 30).await;
        assert_eq!(all, 20);
        for limit in 21..26 {
            rules.replace([config(&text(limit))]).unwrap();
            // The process and the server both know the units that are used.
            all += admitted(&rules, &[("a", "x")], 30).await;
        }
        assert_eq!(all, 25);
    });
}

#[test]
fn refunded_rule_reports_remaining_after_refund() {
    let clock = clock();
    for algorithm in ["fixed-window", "sliding-window", "gcra"] {
        let (server, blocking) = in_process(&clock);
        let limit = format!("requests_per_unit: 3, algorithm: {algorithm}");
        let text =
            file("store: redis, mode: atomic", &[rule("a", &limit), rule("b", "requests_per_unit: 1")]);
        let both = [("a", "x"), ("b", "x")];
        let (one, other) = (process(server, &clock, &text), process(blocking, &clock, &text));
        run(async {
            assert!(ask(&one, &both).await.is_allowed());
            for denied in [ask(&one, &both).await, ask_now(&other, &both)] {
                let left: Vec<_> = denied.limits().map(|limit| limit.remaining()).collect();
                assert_eq!((denied.is_denied(), &left[..]), (true, &[2, 0][..]), "{algorithm}");
            }
        });
    }
}
