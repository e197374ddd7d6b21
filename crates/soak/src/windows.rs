//! Windows of a sketch that expire while threads count in them. No key is admitted more than its limit in a window,
//! and `n` windows together admit at most `n` limits.

use super::draw;
use super::gate::{self, Store, Time};
use super::judge::Bound;
use super::{Found, MS, Round, START, ensure};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tollgate::{DefaultClock, ManualClock, StdClock, Timestamp};
use tollgate_testing::kinds::WINDOWS;
use tollgate_testing::oracle::Spec;
use tollgate_testing::sketch::LEAST;

const KEYS: u64 = 4;

pub fn play(round: &mut Round<'_>) -> Found {
    let kind = round.pick(&WINDOWS);
    let random = &mut round.random;
    let is_real = draw::one_in(random, 2);
    let window_ns =
        if is_real { draw::pick(random, &[MS, 3 * MS]) } else { draw::pick(random, &[1_000, MS]) };
    let spec = Spec::new(draw::pick(random, &[1, 2, 5, 40]), window_ns);
    let store = Store::Sketch(draw::pick(random, &[LEAST, 1_024, 1 << 17]));
    let manual = ManualClock::new(Timestamp::from_nanos(START));
    let time: Time = match random.below(3) {
        _ if !is_real => Arc::new(manual.clone()),
        0 => Arc::new(StdClock::new()),
        _ => Arc::new(DefaultClock::new()),
    };
    let Some(built) = gate::build(kind, spec, store, Arc::clone(&time), random.next()) else { return Ok(()) };
    let gate = &*built.gate;
    round.on_threads(|hand| {
        while hand.goes_on() {
            for _ in 0..16 {
                let key = u32::try_from(hand.random.below(KEYS)).expect("few keys");
                let cost = 1 + hand.random.below(spec.limit.min(3));
                gate::ask(hand, gate, &time, (key, cost, cost));
            }
            // Checks other keys, which share counters with the keys above.
            for _ in 0..hand.random.below(16) {
                let key = 1_000 + u32::try_from(hand.random.below(1 << 20)).expect("a number of 32 bits");
                hand.checks += 1;
                gate.ask(hand.random.next(), key, 1, gate::now_of(&time));
            }
            if !is_real {
                let most = if hand.random.below(100) == 0 { 4 * window_ns } else { window_ns / 4 };
                manual.advance(Duration::from_nanos(hand.random.below(most)));
            }
            if hand.random.below(256) == 0 {
                gate.tidy(gate::now_of(&time));
            }
        }
    });
    let what = format!("{kind:?} {spec:?} in {store:?}, real time {is_real}, on {} threads", round.threads);
    // Requests that began and ended in one window were counted in it.
    let mut counts = BTreeMap::<(u32, u64), u64>::new();
    for seen in round.notes.each.iter().flatten() {
        let (from, to) = (seen.before / window_ns, seen.after / window_ns);
        if from == to {
            *counts.entry((seen.key, from)).or_default() += u64::from(seen.cost);
        }
    }
    round.intervals += counts.len() as u64;
    for ((key, window), count) in counts {
        let limit = spec.limit;
        ensure!(
            count <= limit,
            "{what}\nkey {key} was admitted {count} of {limit} in window {window} of {window_ns} ns"
        );
    }
    let oracle = kind.oracle(spec);
    round.judge(&Bound { most_in: &|t| oracle.most_in(t), more_ns: 0, forgets: false, spared: 0, what })
}
