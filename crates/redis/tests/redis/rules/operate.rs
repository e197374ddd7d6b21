//! What operators do to keys of shared rules: for all processes, at the server.

use std::time::Duration;

use tollgate_rules::{OperatorAction, Refusal};

use super::*;
use crate::absent;

const A: [(&str, &str); 1] = [("a", "x")];
const HOUR: Duration = Duration::from_secs(3_600);

fn text(more: &str) -> String {
    format!(
        "{{ domain: d, tollgate: {{ store: redis, timeout: 5s, on_failure: closed }}, descriptors: [ \
         {{ key: a, rate_limit: {{ unit: day, requests_per_unit: 10, {more} }} }} ] }}"
    )
}

async fn act(rules: &Rules<ManualClock>, verb: OperatorAction) -> Result<u64, Refusal> {
    let reports = rules.operate_async("d", &each(&A), None, verb).await.unwrap();
    assert_eq!((reports.len(), reports[0].is_shared), (1, true));
    reports[0].result.clone()
}

async fn used(rules: &Rules<ManualClock>) -> Option<u64> {
    let reports = rules.operate_async("d", &each(&A), None, OperatorAction::Inspect).await.unwrap();
    reports[0].figures.map(|figures| figures.used)
}

async fn admitted(rules: &Rules<ManualClock>, times: u32) -> u32 {
    super::admitted(rules, &A, times).await
}

/// Runs a test with two processes and the server that they share.
fn on_each(with: impl AsyncFn(&str, &Rules<ManualClock>, &Rules<ManualClock>), more: &str) {
    let (clock, file) = (clock(), text(more));
    on_each_server(|name, server| {
        run(async {
            let server = server();
            let [one, other] = [(); 2].map(|()| process(server.clone(), &clock, &file));
            with(name, &one, &other).await;
        });
    });
}

// G146
#[test]
fn verbs_act_for_all_processes() {
    for more in ["fixed-window", "gcra", "sliding-window", "sub-window", "token-bucket"] {
        on_each(
            async |server, one, other| {
                assert_eq!(admitted(one, 8).await, 8, "{server}: {more}");
                assert_eq!(used(other).await, Some(8), "{server}: {more}");
                assert_eq!(act(other, OperatorAction::Grant(0)).await, Ok(0));
                assert_eq!(act(other, OperatorAction::Grant(3)).await, Ok(3), "{server}: {more}");
                assert_eq!(used(one).await, Some(5), "{server}: {more}");
                assert_eq!(act(other, OperatorAction::Reset).await, Ok(5), "{server}: {more}");
                assert_eq!(admitted(one, 11).await, 10, "{server}: {more}");
                assert_eq!(act(one, OperatorAction::Grant(u64::MAX)).await, Ok(10), "{server}: {more}");
                assert_eq!(act(one, OperatorAction::Block(HOUR)).await, Err(Refusal::HasNoBlock));
                assert_eq!(act(one, OperatorAction::Unblock).await, Err(Refusal::HasNoBlock));
                assert_eq!(act(one, OperatorAction::Reset).await, Ok(0), "{server}: {more}");
            },
            &format!("mode: atomic, algorithm: {more}"),
        );
    }
}

/// A denied request takes a unit beyond the limit. A grant does not go into that unit.
#[test]
fn grant_counts_from_the_limit_if_denials_are_counted() {
    let clock = clock();
    let (server, _) = in_process(&clock);
    let file = text("mode: atomic, algorithm: gcra").replace("timeout", "charging: count-denials, timeout");
    let rules = process(server, &clock, &file);
    run(async {
        assert_eq!(admitted(&rules, 12).await, 10);
        assert_eq!(used(&rules).await, Some(10));
        assert_eq!(act(&rules, OperatorAction::Grant(2)).await, Ok(2));
        assert_eq!(admitted(&rules, 12).await, 2);
        assert_eq!(act(&rules, OperatorAction::Reset).await, Ok(10));
        assert_eq!(admitted(&rules, 12).await, 10);
    });
}

// G146
#[test]
fn blocks_of_operators_hold_in_all_processes() {
    on_each(
        async |server, one, other| {
            let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
            assert_eq!(act(one, OperatorAction::Block(minutes(20))).await, Ok(0), "{server}");
            let answer = ask(other, &A).await;
            let wait = answer.retry_after().unwrap();
            assert!(answer.is_denied() && wait > minutes(19) && wait <= minutes(20), "{server}: {wait:?}");
            assert_eq!(act(other, OperatorAction::Block(HOUR)).await, Err(Refusal::InBlock), "{server}");
            assert_eq!(act(other, OperatorAction::Grant(1)).await, Err(Refusal::InBlock), "{server}");
            assert_eq!(act(other, OperatorAction::Unblock).await, Ok(10), "{server}");
            assert_eq!(admitted(one, 4).await, 4, "{server}: a whole burst is free");
            assert_eq!(act(one, OperatorAction::Unblock).await, Ok(0), "{server}");
            assert_eq!(used(one).await, Some(4), "{server}");
            assert_eq!(act(one, OperatorAction::Block(HOUR)).await, Ok(0), "{server}: of a key in use");
            assert_eq!(admitted(other, 1).await, 0, "{server}");
            assert_eq!(act(other, OperatorAction::Reset).await, Ok(10), "{server}");
            let longer = act(one, OperatorAction::Block(2 * HOUR)).await;
            assert_eq!(longer, Err(Refusal::BlockLength { most: HOUR }), "{server}");
        },
        "mode: atomic, algorithm: gcra, block: { for: 10m, at_most: 1h }",
    );
}

/// A block that the server cut short would end before the operator's time.
// G146
#[test]
fn block_lasts_to_its_end() {
    let clock = clock();
    let (server, _) = in_process(&clock);
    let file = text("mode: atomic, algorithm: gcra, block: { for: 1s, at_most: 1h }");
    let [one, other] = [0, 1].map(|_| process(server.clone(), &clock, &file));
    run(async {
        assert_eq!(admitted(&one, 3).await, 3);
        assert_eq!(act(&one, OperatorAction::Block(HOUR)).await, Ok(0));
        clock.advance(HOUR - Duration::from_secs(1));
        assert_eq!(admitted(&other, 1).await, 0);
        clock.advance(Duration::from_secs(1));
        assert_eq!(admitted(&other, 1).await, 1);
    });
}

// G146
#[test]
fn modes_that_hold_units_refuse() {
    for mode in ["lease", "write-back"] {
        on_each(
            async |server, one, _| {
                assert_eq!(admitted(one, 2).await, 2, "{server} {mode}");
                for verb in [OperatorAction::Reset, OperatorAction::Grant(1)] {
                    assert_eq!(act(one, verb).await, Err(Refusal::HeldByProcesses), "{server} {mode}");
                }
                assert!(used(one).await.is_none_or(|used| used <= 10), "{server} {mode}");
            },
            &format!("mode: {mode}"),
        );
    }
}

#[test]
fn call_that_cannot_wait_refuses() {
    let clock = clock();
    let (one, other) = in_process(&clock);
    let reset = |rules: &Rules<ManualClock>| {
        rules.operate("d", &each(&A), None, OperatorAction::Reset).unwrap().remove(0)
    };
    let report = reset(&process(one, &clock, &text("mode: atomic")));
    assert_eq!((report.result, report.figures), (Err(Refusal::CannotWait), None));
    let report = reset(&process(other, &clock, &text("mode: atomic")));
    assert_eq!(report.result, Ok(0), "with a blocking client, it waits");
}

// G146
#[test]
fn server_that_is_away_is_an_error() {
    let clock = clock();
    let rules = process(absent(), &clock, &text("mode: atomic"));
    run(async {
        for verb in [OperatorAction::Reset, OperatorAction::Grant(1)] {
            let result = act(&rules, verb).await;
            assert!(matches!(result, Err(Refusal::NoAnswer(_))), "{result:?}");
        }
        assert_eq!(used(&rules).await, None);
    });
}
