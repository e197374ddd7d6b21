//! Rules in modes that decide with units held by the process. Held units expire in real time, so the limits here are
//! per year.

use std::thread;

use tollgate::telemetry::MeterCounts;
use tollgate_rules::Verdict;

use super::*;

fn text(mode: &str, limit: u32) -> String {
    format!(
        "
domain: d
tollgate: {{ store: redis, mode: {mode}, processes: 2, timeout: 5s }}
descriptors:
  - {{ key: a, rate_limit: {{ unit: year, requests_per_unit: {limit} }} }}
  - {{ key: far, rate_limit: {{ unit: year, requests_per_unit: 2, mode: atomic }} }}
  - {{ key: near, rate_limit: {{ unit: year, requests_per_unit: 3, store: keyed }} }}
"
    )
}

/// Loads the rules of one process with the system's clock.
fn real(server: impl SharedStore, text: &str) -> Rules<tollgate::StdClock> {
    Rules::builder().clock(tollgate::StdClock::new()).shared(server).load([config(text)]).unwrap()
}

fn counts_of(rules: &Rules<tollgate::StdClock>, name: &str) -> MeterCounts {
    let mut found = Vec::new();
    rules.for_each(|_, rule, counts| found.extend((&*rule.name == name).then_some(counts)));
    found.pop().expect("the file has a rule with this name")
}

#[test]
fn blocking_check_waits_for_units() {
    let (_, blocking) = in_process(&ManualClock::default());
    for mode in ["lease", "write-back"] {
        let answer = ask_now(&real(blocking.clone(), &text(mode, 100)), &[("a", mode)]);
        assert!(answer.is_allowed(), "{mode}: {answer:?}");
    }
}

/// A check that does not wait finds no units at first and is denied for a short time. This does not count as a server
/// failure.
#[test]
fn non_waiting_check_uses_held_units() {
    run(async {
        let rules = real(InProcess::default(), &text("lease", 1_000));
        let answer = ask_now(&rules, &[("a", "x")]);
        assert!(answer.is_denied());
        let limit = answer.limits().next().unwrap();
        assert_eq!((limit.verdict(), limit.decided_by()), (Verdict::Denied, Some(DecidedBy::Held)));
        assert!(answer.retry_after().is_some_and(|wait| wait.as_secs() < 60), "{:?}", answer.retry_after());
        assert!(ask(&rules, &[("a", "x")]).await.is_allowed());
        let counts = counts_of(&rules, "d.a");
        assert_eq!((counts.allowed, counts.denied, counts.requests(), counts.near_limit), (1, 1, 2, 0));
    });
}

/// A request that a local or a shared rule denies takes no units from the leased rule.
#[test]
fn denied_request_returns_leased_units() {
    for other in ["far", "near"] {
        run(async {
            let rules = real(InProcess::default(), &text("lease", 10));
            let most = if other == "far" { 2 } else { 3 };
            assert_eq!(admitted(&rules, &[("a", "x"), (other, "x")], 30).await, most, "{other}");
            assert_eq!(admitted(&rules, &[("a", "x")], 30).await, 10 - most, "{other}");
        });
    }
}

#[test]
fn reload_with_new_limit_keeps_charges() {
    run(async {
        let server = InProcess::default();
        let rules = real(server.clone(), &text("lease", 8));
        assert_eq!(admitted(&rules, &[("a", "x")], 20).await, 8);
        rules.replace([config(&text("lease", 12))]).unwrap();
        let more = admitted(&rules, &[("a", "x")], 20).await;
        assert!((1..=4).contains(&more), "{more}");
    });
}

/// Modes with their own task need a tokio runtime at the first load. Later loads may run in any thread.
#[test]
fn reload_needs_no_tokio_runtime() {
    let outside = Rules::builder().shared(InProcess::default()).load([config(&text("lease", 5))]);
    let error = outside.unwrap_err().to_string();
    assert!(["test.yaml:5:", "\"d|a\"", "tokio"].iter().all(|part| error.contains(part)), "{error}");
    run(async {
        for mode in ["lease", "write-back"] {
            let rules = real(InProcess::default(), &text(mode, 5));
            thread::scope(|scope| {
                let loader = scope.spawn(|| rules.replace([config(&text(mode, 6))]));
                loader.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
            });
            assert!(ask(&rules, &[("a", "x")]).await.is_allowed());
        }
    });
}
