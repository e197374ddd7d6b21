//! Many threads use one limiter. While time runs, every interval of every key stays within the algorithm's bound.
//! While the clock does not advance, all threads together are admitted exactly as many units as one thread would be.

use super::draw;
use super::gate::{self, Built, Store, Time};
use super::judge::Bound;
use super::{Found, MS, Round, SEC, START, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tollgate::{DefaultClock, ManualClock, StdClock, Timestamp};
use tollgate_testing::compact::policies;
use tollgate_testing::kinds::{COMPACT, Kind, LEASABLE, WINDOWS};
use tollgate_testing::oracle::Spec;
use tollgate_testing::reading::Reading;

const ROOMY: usize = 1 << 17;

pub fn play(round: &mut Round<'_>) -> Found {
    // Rounds in which the clock does not advance are short. They find denials without a reason.
    standing(round)?;
    standing(round)?;
    running(round)
}

/// An algorithm, and a store that can hold it.
fn subject(round: &mut Round<'_>) -> (Kind, Store) {
    match round.random.below(5) {
        0 => (draw::kind(&mut round.random), Store::Direct),
        1 => (round.pick(&LEASABLE), Store::Striped),
        2 => (draw::kind(&mut round.random), Store::Keyed(None)),
        3 => (round.pick(&WINDOWS), Store::Sketch(ROOMY)),
        _ => {
            let kind = round.pick(&COMPACT);
            (kind, Store::Compact(round.pick(policies(kind)), ROOMY))
        }
    }
}

fn keys_of(store: Store) -> u64 {
    if matches!(store, Store::Direct | Store::Striped) { 1 } else { 8 }
}

/// Time runs, by a real clock or by steps that the threads make between other threads' calls.
fn running(round: &mut Round<'_>) -> Found {
    let (kind, store) = subject(round);
    let is_real = draw::one_in(&mut round.random, 2);
    // The period is short, so that a key is admitted some hundred times in the round, and is idle in between.
    let period_ns = if is_real { 20 * MS } else { SEC };
    let spec = draw::busy_spec(&mut round.random, period_ns);
    let spec = if matches!(store, Store::Sketch(_)) { Spec::new(spec.limit, spec.period_ns) } else { spec };
    let manual = ManualClock::new(Timestamp::from_nanos(START));
    let time: Time = match round.random.below(3) {
        _ if !is_real => Arc::new(manual.clone()),
        0 => Arc::new(StdClock::new()),
        _ => Arc::new(DefaultClock::new()),
    };
    let Some(built) = gate::build(kind, spec, store, Arc::clone(&time), round.random.next()) else {
        return Ok(());
    };
    let (gate, keys) = (&*built.gate, keys_of(store));
    // No check of a thread has a time before this.
    let start = gate::now_of(&time);
    let begun: Vec<_> = (0..round.threads).map(|_| AtomicU64::new(start)).collect();
    let weight = |cost: u64| if kind == Kind::Spacing { 1 } else { cost };
    round.on_threads(|hand| {
        while hand.goes_on() {
            // The checks below read the clock after this.
            begun[hand.number].store(gate::now_of(&time), Ordering::SeqCst);
            for _ in 0..16 {
                // Some keys are busy all the time; others come and go.
                let key = hand.random.below(keys).min(hand.random.below(keys));
                let key = u32::try_from(key).expect("few keys");
                let cost = 1 + hand.random.below(3) * hand.random.below(2);
                gate::ask(hand, gate, &time, (key, cost, weight(cost)));
            }
            if is_real {
                // The thread may also be preempted here, outside a check.
                if hand.random.below(32) == 0 {
                    std::thread::yield_now();
                }
            } else {
                let most = if hand.random.below(200) == 0 { 4 * period_ns } else { period_ns / 64 };
                manual.advance(Duration::from_nanos(hand.random.below(most)));
            }
            if hand.random.below(64) == 0 {
                let begun = begun.iter().map(|begun| begun.load(Ordering::SeqCst));
                gate.tidy(begun.fold(gate::now_of(&time), u64::min));
            }
        }
    });
    // A store with room evicts nothing.
    if let Some(gauges) = gate.gauges() {
        ensure!((gauges.evicted, gauges.raced) == (0, 0), "{kind:?} {spec:?} {store:?}: {gauges:?}");
    }
    judge(round, kind, spec, store, &built, is_real)
}

fn judge(round: &mut Round<'_>, kind: Kind, spec: Spec, store: Store, built: &Built, is_real: bool) -> Found {
    let oracle = kind.oracle(spec);
    // The time-stamp counters of two processors may differ by less than the time of a message between them.
    let more_ns = built.more_ns + if is_real { 1_000 } else { 0 };
    let clock = if is_real { "a real clock" } else { "a clock that the threads advance" };
    round.judge(&Bound {
        most_in: &|t| oracle.most_in(t),
        more_ns,
        forgets: built.forgets,
        spared: 0,
        what: format!("{kind:?} {spec:?} in {store:?} by {clock}, on {} threads", round.threads),
    })
}

/// In each turn, the clock does not advance while all threads send requests until all are denied. Then time jumps: a
/// little, far, or back, if a step back means the same to the store and to the oracle.
fn standing(round: &mut Round<'_>) -> Found {
    let (kind, store) = subject(round);
    // A thread that is held up at a sketch's first check may be denied although there is room, once.
    if matches!(store, Store::Sketch(_)) {
        return Ok(());
    }
    let spec =
        Spec::new(1 + round.random.skewed(40), draw::pick(&mut round.random, &[SEC, 7 * SEC, 60 * SEC]));
    let manual = ManualClock::new(Timestamp::ZERO);
    let time: Time = Arc::new(manual.clone());
    let Some(built) = gate::build(kind, spec, store, Arc::clone(&time), round.random.next()) else {
        return Ok(());
    };
    let (gate, keys) = (&*built.gate, keys_of(store));
    let back = matches!(store, Store::Direct);
    let reading = Reading::new(built.layout, kind, spec, START);
    let mut oracles: Vec<_> = (0..keys).map(|_| reading.oracle()).collect();
    let mut now = START + round.random.below(spec.period_ns);
    for turn in 0..4 {
        manual.set(Timestamp::from_nanos(now));
        let admitted: Vec<_> = (0..keys).map(|_| AtomicU64::new(0)).collect();
        round.on_threads(|hand| {
            for _ in 0..=spec.limit {
                let first = hand.random.below(keys);
                for key in (0..keys).map(|step| (first + step) % keys) {
                    let id = u32::try_from(key).expect("few keys");
                    let allowed = gate.ask(hand.random.next(), id, 1, now);
                    let told = u64::from(hand.told(allowed));
                    admitted[usize::try_from(key).expect("few keys")].fetch_add(told, Ordering::Relaxed);
                }
            }
        });
        for (key, (oracle, admitted)) in (0..).zip(oracles.iter_mut().zip(&admitted)) {
            let due = oracle.take_all(reading.at(now));
            let mut admitted = admitted.load(Ordering::Relaxed);
            if store == Store::Striped {
                // Units that another thread was returning when the last request was denied.
                admitted += (0..=spec.limit).filter(|_| gate.ask(2, key, 1, now)).count() as u64;
            }
            ensure!(
                admitted == due,
                "{kind:?} {spec:?} in {store:?}: key {key} was admitted {admitted} by {} threads in turn {turn} at {now}, and the oracle admits {due}\n{oracle:?}\n{gate:?}",
                round.threads
            );
        }
        // Leases that remain from one turn to the next are used then, or lost.
        let far = spec.period_ns * round.random.below(6);
        now = match round.random.below(6) {
            _ if store == Store::Striped => now + 10 * spec.period_ns + round.random.below(SEC),
            0 => now,
            1 if back => now - round.random.below(2 * spec.period_ns),
            2 => now + far,
            _ => now + round.random.below(spec.period_ns),
        };
    }
    Ok(())
}
