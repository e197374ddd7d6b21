//! `charging: count-denials` for rules on a server: on the model and on a real Redis, in every mode.

use std::time::{Duration, Instant};

use tollgate_rules::Verdict;

use super::*;
use crate::{absent, client};

const MODES: [&str; 3] = ["atomic", "lease", "write-back"];
const ALGORITHMS: [&str; 5] = ["fixed-window", "gcra", "sliding-window", "sub-window", "sliding-log"];

/// A file with limits on `a` and `b` in a year, so that no window ends during a test.
fn limits(settings: &str, a: u32, b: u32) -> String {
    let rule = |key: &str, limit: u32| {
        format!("  - {{ key: {key}, rate_limit: {{ unit: year, requests_per_unit: {limit} }} }}\n")
    };
    let settings = format!("charging: count-denials, timeout: 5s, store: redis, {settings}");
    file(&settings, &[rule("a", a), rule("b", b)])
}

/// In the mode `atomic`, with every algorithm. The other modes hold units, or admit before they have asked.
// G102
#[test]
fn shared_rules_follow_every_scenario() {
    on_each_server(|_, server| {
        let modes = MODES.map(|mode| (format!("mode: {mode}"), mode == "atomic"));
        let algorithms = ALGORITHMS.map(|name| (format!("mode: atomic, algorithm: {name}"), true));
        for (settings, is_exact) in modes.into_iter().chain(algorithms) {
            let server = server();
            let settings = format!("timeout: 5s, store: redis, {settings}");
            let load = |text: &str| process(server.clone(), &clock(), text);
            run(crate::scenarios::play_all(&settings, is_exact, load));
        }
    });
}

async fn look(rules: &Rules<ManualClock>, key: &str) -> bool {
    let answer = ask_n(rules, &[(key, "x")], 0).await;
    assert_ne!(answer.limits().next().unwrap().verdict(), Verdict::NotAsked);
    answer.is_over_limit(0)
}

/// Another process sees at once what the first process counted.
// G102
#[test]
fn query_of_other_process_sees_denial() {
    for mode in ["atomic", "lease"] {
        let (server, text) = (InProcess::default(), limits(&format!("mode: {mode}"), 10, 9));
        run(async {
            let [one, other] = [(); 2].map(|()| process(server.clone(), &clock(), &text));
            let ask = async |rules, hits| ask_n(rules, &[("a", "x")], hits).await.is_allowed();
            assert!(ask(&one, 0).await && ask(&other, 0).await);
            assert!(!ask(&one, 11).await);
            assert!(!ask(&other, 0).await, "{mode}");
            assert!(!ask(&other, 1).await, "{mode}");
        });
    }
}

/// A hundred concurrent requests of 1 unit: exactly the limit is admitted, and each denied request spares the other rule.
// G102
#[test]
fn concurrent_requests_admit_exactly_the_limit() {
    on_each_server(|_, server| {
        run(async {
            let rules = process(server(), &clock(), &limits("mode: atomic", 10, 1_000));
            let requests = (0..100).map(|_| ask(&rules, &[("a", "x"), ("b", "x")]));
            let answers = futures_util::future::join_all(requests).await;
            assert_eq!(answers.iter().filter(|answer| answer.is_allowed()).count(), 10);
            assert!(look(&rules, "a").await);
            assert!(ask_n(&rules, &[("b", "x")], 990).await.is_allowed());
            assert!(ask(&rules, &[("b", "x")]).await.is_denied());
        });
    });
}

/// A query at a rule whose server is away is decided by the rule's policy.
#[test]
fn query_without_server_follows_policy() {
    for (policy, expected) in [("open", false), ("closed", true), ("local", false)] {
        // `write-back` admits before it has asked the server.
        for mode in ["atomic", "lease"] {
            let text = limits(&format!("mode: {mode}, on_failure: {policy}"), 10, 9).replace("5s", "100ms");
            run(async {
                let answer = ask_n(&process(absent(), &clock(), &text), &[("a", "x")], 0).await;
                assert_eq!(answer.is_over_limit(0), expected, "{mode} {policy}");
                let by = decided_by(&answer);
                assert!(by.is_some_and(DecidedBy::is_failure), "{mode} {policy}: {by:?}");
            });
        }
    }
}

/// A server that hangs delays no answer beyond the deadline, however many stages the request has.
// G103
#[test]
#[expect(clippy::disallowed_methods, reason = "a real server takes real time")]
fn hung_server_answers_by_deadline() {
    let Some(server) = tollgate_testing::redis::Server::start() else { return };
    for charging in ["all-or-nothing", "count-first", "count-denials"] {
        let keys = ["k0", "k1", "k2", "k3", "k4", "k5"];
        let rules = keys.iter().enumerate().map(|(at, key)| {
            let (mode, enforced) = (MODES[at / 2], [100, 0][at % 2]);
            rule(key, &format!("requests_per_unit: 100, mode: {mode}, enforced: {enforced}%"))
        });
        let settings = format!("charging: {charging}, timeout: 60s, store: redis, on_failure: closed");
        let text = file(&settings, &rules.collect::<Vec<_>>());
        run(async {
            let rules = process(client(&server), &clock(), &text);
            let entries = keys.map(|key| (key, "x"));
            let all = each(&entries);
            let within = Duration::from_secs(50);
            assert!(rules.check_until("d", &all, 1, Instant::now() + within).await.is_allowed());
            server.pause();
            for hits in [0, 1, 200] {
                let began = Instant::now();
                let answer = rules.check_until("d", &all, hits, began + Duration::from_millis(100)).await;
                let took = began.elapsed();
                assert!(took < Duration::from_secs(60), "{charging} {hits}: {took:?}, which is the time-out");
                assert!(hits == 0 || answer.is_denied(), "{charging} {hits}");
            }
            server.resume();
        });
        server.command::<()>(&["FLUSHALL"]);
    }
}

/// A charge that the server makes after the deadline is given back.
// G103
#[test]
#[expect(clippy::disallowed_methods, reason = "a real server takes real time")]
fn late_charge_is_refunded() {
    let Some(server) = tollgate_testing::redis::Server::start() else { return };
    let text = limits("mode: atomic, on_failure: open", 10, 9);
    run(async {
        let rules = process(client(&server), &clock(), &text);
        let a = [("a", "x")];
        assert!(ask(&rules, &a).await.is_allowed());
        server.pause();
        for _ in 0..5 {
            let deadline = Instant::now() + Duration::from_millis(20);
            let answer = rules.check_until("d", &each(&a), 2, deadline).await;
            assert_eq!((answer.is_allowed(), decided_by(&answer)), (true, Some(DecidedBy::Open)));
        }
        server.resume();
        let left = async || ask_n(&rules, &a, 0).await.remaining(0);
        crate::until("the late charges are refunded", async || left().await == 9).await;
    });
}
