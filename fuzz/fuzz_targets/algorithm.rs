//! Runs random operations on a random algorithm. Each decision must equal the oracle's decision, to the nanosecond.

#![no_main]

use arbitrary::Unstructured;
use libfuzzer_sys::{Corpus, fuzz_target};
use std::time::Duration;
use tollgate_testing::fuzzing::Case;
use tollgate_testing::kinds::Kind;
use tollgate_testing::steps::within_reach;
use tollgate_testing::subjects::{direct, verdict};

fn nanos(wait: u128) -> Duration {
    Duration::from_nanos(u64::try_from(wait).expect("the wait fits in 64 bits (584 years)"))
}

fn play(Case { kind, spec, start, ops }: &Case) -> Corpus {
    let Some(limiter) = direct(*kind, *spec) else { return Corpus::Reject };
    let mut oracle = kind.oracle(*spec);
    let mut now = *start;
    for op in ops {
        now = within_reach(op.step.apply(now, *spec, &*oracle), *start, *kind, *spec);
        let cost = op.cost.apply(now, &*oracle);
        let before = format!("{kind:?} {spec:?}: {cost} at {now}, {oracle:?}");
        let delay = oracle.delay(now.into());
        let wait = oracle.retry_after(now, cost).map(nanos);
        let decision = limiter.at(now).check_n(0, cost);
        assert_eq!(verdict(&decision), oracle.offer(now, cost), "{before}");
        assert_eq!(decision.retry_after(), wait, "{before}");
        if decision.is_allowed() && cost > 0 {
            assert_eq!(decision.delay(), nanos(delay), "{before}");
        }
        if *kind != Kind::Spacing {
            assert_eq!(decision.remaining(), oracle.remaining(now), "{before}");
        }
    }
    Corpus::Keep
}

// G1, G38, G87
fuzz_target!(|bytes: &[u8]| -> Corpus {
    match Case::read(&mut Unstructured::new(bytes), 1, true) {
        Ok(case) => play(&case),
        Err(_) => Corpus::Reject,
    }
});
