//! Runs random operations on a keyed limiter, and compares it with a map of oracles.

#![no_main]

#[macro_use]
extern crate tollgate_testing;

use arbitrary::Unstructured;
use libfuzzer_sys::{Corpus, fuzz_target};
use std::collections::{HashMap, HashSet};
use tollgate::{Algorithm, ManualClock, RateLimiter, Timestamp};
use tollgate_testing::fuzzing::Case;
use tollgate_testing::kinds::Kind;
use tollgate_testing::oracle::{Oracle, Verdict};
use tollgate_testing::steps::{Cost, within_reach};
use tollgate_testing::subjects::verdict;

const KEYS: u32 = 40;

fn play<A: Algorithm>(algorithm: A, Case { kind, spec, start, ops }: &Case) {
    let clock = ManualClock::new(Timestamp::from_nanos(*start));
    let limiter = RateLimiter::builder(algorithm).clock(clock.clone()).capacity(1).keyed::<u32>();
    let mut model: HashMap<u32, Box<dyn Oracle>> = HashMap::new();
    let mut now = *start;
    for (number, op) in ops.iter().enumerate() {
        let fresh = kind.oracle(*spec);
        let oracle: &dyn Oracle = model.get(&op.key).map_or(&*fresh, |oracle| &**oracle);
        now = within_reach(op.step.apply(now, *spec, oracle), *start, *kind, *spec);
        clock.set(Timestamp::from_nanos(now));
        let cost = op.cost.apply(now, oracle);
        let expected = oracle.peek(now, cost);
        match op.cost {
            // A few values of the cost select other operations.
            Cost::Share(0) => {
                limiter.reset(&op.key);
                model.remove(&op.key);
            }
            Cost::Share(1) => limiter.retain_active(),
            Cost::Share(2) => {
                limiter.clear();
                model.clear();
            }
            Cost::Share(_) => {
                assert_eq!(verdict(&limiter.peek_n(&op.key, cost)), expected, "{op:?} at {now}")
            }
            _ => {
                assert_eq!(verdict(&limiter.check_n(&op.key, cost)), expected, "{op:?} at {now}");
                if expected == Verdict::Allowed && cost > 0 {
                    model.entry(op.key).or_insert(fresh).charge(now.into(), cost);
                }
            }
        }
        if number.is_multiple_of(8) {
            let mut seen = HashSet::new();
            limiter.for_each(|key, _| assert!(seen.insert(*key), "for_each visited {key} twice"));
            assert_eq!(limiter.len(), seen.len());
            assert!(seen.iter().all(|key| model.contains_key(key)));
            // A new adaptive bucket starts below its full level, so the limiter never forgets it.
            let kept = matches!(kind, Kind::Adaptive(_));
            let mut active = model.iter().filter(|(_, oracle)| kept || oracle.reset_after(now) > 0);
            assert!(active.all(|(key, _)| seen.contains(key)), "an active key was forgotten at {now}");
        }
    }
}

// G3
fuzz_target!(|bytes: &[u8]| -> Corpus {
    match Case::read(&mut Unstructured::new(bytes), KEYS, false) {
        Err(_) => Corpus::Reject,
        Ok(case) => match with_algorithm!(case.kind, case.spec, algorithm => play(algorithm, &case)) {
            Some(()) => Corpus::Keep,
            None => Corpus::Reject,
        },
    }
});
