//! Rules decide each kind of limit as the library and the service do.

use tollgate::rules::{Answer, Config, Descriptor, Rules};
use tollgate::{ManualClock, Timestamp};

use crate::alike::{Seen, cases};

fn seen(answer: &Answer) -> Seen {
    let blocks =
        |limit: tollgate::rules::Applied<'_>| limit.decision().is_some_and(|decision| decision.is_block());
    Seen {
        is_allowed: answer.is_allowed(),
        left: answer.remaining(0).into(),
        wait: answer.retry_after().map(|wait| wait.as_secs()),
        is_block: Some(answer.limits().any(blocks)),
    }
}

#[test]
fn rules_decide_each_kind_alike() {
    for case in cases(cfg!(feature = "calendar")) {
        let config =
            Config::from_yaml("alike.yaml", &case.text("")).unwrap_or_else(|error| panic!("{error}"));
        let rules = Rules::builder().clock(ManualClock::default()).load([config]).unwrap();
        case.play(|now, entries| {
            seen(&rules.at(Timestamp::from_secs(now)).check("alike", &[Descriptor::new(entries)]))
        });
    }
}
