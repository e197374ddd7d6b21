//! `store: redis`: what it sets, and which combinations are rejected.

use std::time::Duration;

use tollgate_config::{Amount, FailurePolicy, Mode, Rule, Shared, Store};

use super::support::{good, limit, problem, rejected, rejected_limits};

fn shared(rule: &Rule) -> Shared {
    match rule.limit {
        Amount::Limited { store: Some(Store::Redis(shared)), .. } => shared,
        _ => panic!("{rule:?}"),
    }
}

fn only(fields: &str) -> Shared {
    let config = good(&limit(&format!("unit: day, requests_per_unit: 100, {fields}")));
    assert!(config.warnings().is_empty(), "{:?}", config.warnings());
    shared(&config.rules()[0])
}

#[test]
fn rule_sets_redis_options() {
    let plain = only("store: redis");
    assert_eq!((plain.mode, plain.on_failure, plain.processes), (Mode::Lease, FailurePolicy::Local, 1));
    assert_eq!(plain.timeout, Duration::from_millis(40));
    let full = only("store: redis, mode: write-back, on_failure: closed, processes: 12, timeout: 2s");
    assert_eq!((full.mode, full.on_failure, full.processes), (Mode::WriteBack, FailurePolicy::Closed, 12));
    assert_eq!(full.timeout, Duration::from_secs(2));
    assert_eq!(only("store: redis, mode: atomic, on_failure: open").mode, Mode::Atomic);
    assert_eq!((full.mode.to_string(), full.on_failure.to_string()), ("write-back".into(), "closed".into()));
    let algorithms =
        "fixed-window|sliding-window|sliding-window, strict: true|gcra, burst: 7|token-bucket|leaky-bucket";
    for algorithm in algorithms.split('|') {
        only(&format!("store: redis, algorithm: {algorithm}"));
    }
}

#[test]
fn file_sets_redis_defaults() {
    let text = "
domain: d
tollgate: { store: redis, mode: atomic, on_failure: closed, processes: 3, timeout: 25ms }
descriptors:
  - { key: a, rate_limit: { unit: day, requests_per_unit: 10 } }
  - { key: b, rate_limit: { unit: day, requests_per_unit: 10, mode: lease, processes: 5, timeout: 1s } }
  - { key: c, rate_limit: { unit: day, requests_per_unit: 10, store: keyed } }
";
    let config = good(text);
    let [a, b, c] = config.rules() else { panic!("{config:?}") };
    assert_eq!((shared(a).mode, shared(a).on_failure), (Mode::Atomic, FailurePolicy::Closed));
    assert_eq!((shared(a).processes, shared(a).timeout), (3, Duration::from_millis(25)));
    assert_eq!((shared(b).mode, shared(b).on_failure), (Mode::Lease, FailurePolicy::Closed));
    assert_eq!((shared(b).processes, shared(b).timeout), (5, Duration::from_secs(1)));
    assert!(a.is_shared() && !c.is_shared());
    // The file has settings for Redis although only one rule uses Redis.
    let text = "
domain: d
tollgate: { processes: 3 }
descriptors:
  - { key: a, rate_limit: { unit: day, requests_per_unit: 10, store: redis } }
";
    assert_eq!(shared(&good(text).rules()[0]).processes, 3);
}

#[test]
fn invalid_redis_options_suggest_remedies() {
    let rows = r#"
        store: redis, algorithm: sliding-log
            => the redis store does not support sliding-log; use fixed-window, sliding-window, gcra,
        store: redis, algorithm: sub-window => does not support sub-window
        store: redis, mode: fast => no mode is called "fast"; use atomic, lease or write-back
        store: redis, on_failure: panic => use open, closed or local
        store: redis, processes: 0 => 0 is less than 1
        store: redis, processes: 4294967296 => more than 4294967295
        store: redis, timeout: 40 => expected a time from 1ms to 60s, found "40"; write a whole number with its unit
        store: redis, memory: 1MiB => the redis store uses no memory of this process; remove memory
        store: redis, max_keys: 5 => max_keys applies only to the keyed store; remove it, or use store: keyed
        mode: lease => mode applies only to limits with store: redis; remove it, or write store: redis
        store: keyed, on_failure: open => on_failure applies only to limits with store: redis
        processes: 2 => processes applies only to limits with store: redis
        store: compact, timeout: 1s => timeout applies only to limits with store: redis
        store: redi => no store is called "redi"; use compact, keyed, sketch or redis
    "#;
    rejected_limits("unit: day, requests_per_unit: 100, ", rows);
    problem(&limit("unlimited: true, mode: lease"), "mode cannot be used with unlimited: true");
    let rows = r#"
        tollgate: { store: redis, memory: 1MiB } => tollgate.memory: the redis store uses no memory of this
        tollgate: { store: redis }\ndescriptors: [{ key: a, rate_limit: { DAY, algorithm: sliding-log } }]
            => test.yaml:3 ... the redis store, the file's default, does not support sliding-log
        descriptors: [{ key: a, rate_limit: { DAY, mode: lease } }] => it is an extra key of the `tollgate` map
    "#;
    rejected(rows, |rest| format!("domain: d\n{}", rest.replace("DAY", "unit: day, requests_per_unit: 1")));
    let unused = limit("unit: day, requests_per_unit: 1").replace("{}", "{ processes: 2, mode: lease }");
    let said = "
        test.yaml:2 ... tollgate.processes: processes applies only to limits with store: redis, and this file has none
        tollgate.mode ... write store: redis, here or in a rate_limit
    ";
    problem(&unused, said);
    // The reader reports all mistakes in one pass.
    let three = limit("unit: day, requests_per_unit: 1, store: redis, mode: x, timeout: y, processes: z");
    let said = r#"
            mode
            timeout
            processes
    "#;
    problem(&three, said);
}
