//! Rules on the model of a server decide each kind of limit that a server counts as rules in this process do. (A real
//! server has its own time.)

use std::time::Duration;

use tollgate::rules::Applied;

use super::*;
use crate::alike::{Case, Kind, START as FIRST, Seen, cases};

/// Whether a server counts this kind of limit. (A rule that names a store of its own is not shared.)
fn is_shared(case: &Case) -> bool {
    !matches!(case.kind, Kind::Distinct | Kind::CompactBlock)
}

const SETTINGS: &str = "store: redis, mode: atomic, timeout: 20s";

fn play(case: &Case, rules: &Rules<ManualClock>, clock: &ManualClock) {
    let mut last = FIRST;
    case.play(|now, entries| {
        clock.advance(Duration::from_secs(now - last));
        last = now;
        let answer = rules.check("alike", &[Descriptor::new(entries)]);
        let blocks = |limit: Applied<'_>| limit.decision().is_some_and(|decision| decision.is_block());
        Seen {
            is_allowed: answer.is_allowed(),
            left: answer.remaining(0).into(),
            wait: answer.retry_after().map(|wait| wait.as_secs()),
            is_block: Some(answer.limits().any(blocks)),
        }
    });
}

#[test]
fn shared_rules_decide_each_kind_alike() {
    let clock = || ManualClock::new(Timestamp::from_secs(FIRST));
    for case in cases(cfg!(feature = "calendar")) {
        let own = clock();
        let text = case.text(SETTINGS);
        if !is_shared(case) {
            assert!(Config::from_yaml("alike.yaml", &text).is_err(), "{:?}", case.kind);
            continue;
        }
        play(case, &process(in_process(&own).1, &own, &text), &own);
    }
}
