//! A flood of keys that come once competes with honest keys, on more threads than there are processors. The stores
//! are far too small for the flood.
//!
//! - With spilling and inheriting, with caps that deny, and with sketches, no honest key is admitted more than its
//!   bound in any interval.
//! - With forgetting, no conforming request of an honest key is denied. Each honest key belongs to one thread, so its
//!   admissions are known in order. If the limiter denies a request, an oracle with all these charges must also deny
//!   it.
//! - The memory keeps its initial size. After the round, a store holds no more keys than its cap.

use super::draw;
use super::gate::{self, Gate, Store, Time};
use super::judge::Bound;
use super::{Found, Round, SEC, START, ensure};
use std::sync::Arc;
use std::time::Duration;
use tollgate::{ManualClock, Overflow, Timestamp, WhenFull};
use tollgate_testing::compact::policies;
use tollgate_testing::kinds::{COMPACT, Kind, WINDOWS};
use tollgate_testing::oracle::{Oracle, Spec};
use tollgate_testing::reading::Reading;

/// For each thread.
const HONEST: u32 = 3;
/// The numbers of the flood's keys begin here.
const FLOOD: u32 = 1 << 10;

pub fn play(round: &mut Round<'_>) -> Found {
    let (kind, store) = match round.random.below(8) {
        0..5 => {
            let kind = round.pick(&COMPACT);
            let overflow = round.pick(policies(kind));
            (kind, Store::Compact(overflow, draw::pick(&mut round.random, &[1_024, 4_096, 1 << 14])))
        }
        5 => (round.pick(&WINDOWS), Store::Sketch(draw::pick(&mut round.random, &[1_024, 1 << 14]))),
        _ => {
            let when_full =
                draw::pick(&mut round.random, &[WhenFull::Deny, WhenFull::Forget, WhenFull::Admit]);
            let most = draw::pick(&mut round.random, &[64, 1_000]);
            (draw::kind(&mut round.random), Store::Keyed(Some((most, when_full))))
        }
    };
    let random = &mut round.random;
    let spec = Spec::new(draw::between(random, 1, 20), draw::pick(random, &[SEC, 10 * SEC]));
    let clock = ManualClock::new(Timestamp::from_nanos(START));
    let time: Time = Arc::new(clock.clone());
    let Some(built) = gate::build(kind, spec, store, Arc::clone(&time), random.next()) else { return Ok(()) };
    let gate = &*built.gate;
    let (slots, bytes) = (gate.gauges().map(|gauges| gauges.slots), gate.bytes());
    // Each step of the clock is so long that the flood keeps the store full: each of its keys has a debt for an
    // interval.
    let step = spec.period_ns / spec.limit / draw::between(random, 50, 2_000);
    let is_forgetting = matches!(store, Store::Compact(Overflow::Forget, _));
    let reading = Reading::new(built.layout.filter(|_| is_forgetting), kind, spec, START);
    // A flood key with the number of an honest key is taken for that key.
    let fingerprints: Vec<u64> = (0..HONEST * 64).map(|key| gate.fingerprint(key)).collect();
    let (honest_of, threads) =
        (|thread: usize| u32::try_from(thread).expect("few threads") * HONEST, round.threads);
    let found = round.on_threads(|hand| {
        let first = honest_of(hand.number);
        let mut honest: Vec<Box<dyn Oracle>> = (0..HONEST).map(|_| reading.oracle()).collect();
        let mut newcomer = FLOOD + u32::try_from(hand.number).expect("few threads");
        while hand.goes_on() {
            for _ in 0..24 {
                newcomer = newcomer.wrapping_add(u32::try_from(threads).expect("few threads")).max(FLOOD);
                if slots.is_none() || !fingerprints.contains(&gate.fingerprint(newcomer)) {
                    let cost = 1 + hand.random.below(spec.limit) * hand.random.below(2);
                    let now = gate::now_of(&time);
                    hand.checks += 1;
                    gate.ask(hand.random.next(), newcomer, cost, now);
                }
            }
            let place = super::below(&mut hand.random, honest.len());
            let key = first + u32::try_from(place).expect("few keys");
            let cost = 1 + hand.random.below(2) * hand.random.below(spec.limit);
            if is_forgetting {
                deserving(hand, gate, &time, (key, cost), &reading, &mut *honest[place])?;
            } else {
                let units = if kind == Kind::Spacing { 1 } else { cost };
                gate::ask(hand, gate, &time, (key, cost, units));
            }
            clock.advance(Duration::from_nanos(hand.random.below(step * 25)));
        }
        Ok(())
    });
    let said =
        |story: String| format!("{kind:?} {spec:?} in {store:?} with a flood on {threads} threads: {story}");
    found.into_iter().collect::<Result<Vec<()>, _>>().map_err(said)?;
    let gauges = gate.gauges();
    ensure!(
        gauges.map(|gauges| gauges.slots) == slots,
        "{kind:?} {store:?}: {gauges:?}, but {slots:?} slots at the start"
    );
    ensure!(
        gate.bytes() == bytes,
        "{kind:?} {store:?}: {:?} bytes, but {bytes:?} at the start",
        gate.bytes()
    );
    if let Store::Keyed(Some((most, _))) = store {
        // Only now. While other threads run, the count is a sum over shards that are read one after another, and each of
        // them may add and remove keys meanwhile.
        ensure!(
            gate.held() <= Some(most),
            "{kind:?} {spec:?} in {store:?}: the store holds {:?} keys",
            gate.held()
        );
        // A full cap forgets idle keys as of the latest time. A check with an earlier time may then find that its key
        // was forgotten, and starts the key with its full quota. No bound holds for such checks.
        round.notes.each.iter_mut().for_each(|seen| seen.retain(|seen| seen.before == seen.after));
    }
    // A policy that drops debts guarantees no bound.
    if is_forgetting || matches!(store, Store::Keyed(Some((_, WhenFull::Forget | WhenFull::Admit)))) {
        round.forget();
        return Ok(());
    }
    let oracle = kind.oracle(spec);
    let raced = gauges.map_or(0, |gauges| gauges.raced);
    let (most_in, more_ns, forgets) = (|t: u128| oracle.most_in(t), built.more_ns, built.forgets);
    let spared = u128::from(raced) * u128::from(spec.burst);
    let what = format!("{kind:?} {spec:?} in {store:?}, {gauges:?}, with a flood on {threads} threads");
    round.judge(&Bound { most_in: &most_in, more_ns, forgets, spared, what })
}

/// Checks an honest key under forgetting. If the limiter denies it, the oracle that knows all of its admissions must
/// also deny it.
fn deserving(
    hand: &mut super::Hand<'_>,
    gate: &dyn Gate,
    time: &Time,
    (key, cost): (u32, u64),
    reading: &Reading,
    oracle: &mut dyn Oracle,
) -> Found {
    let before = gate::now_of(time);
    // Checks at this time, not at a later clock reading.
    let allowed = gate.ask(4, key, cost, before);
    if hand.told(allowed) {
        if cost <= oracle.capacity() {
            // If the thread was stopped and another key took the slot in the meantime, the key begins at that later
            // time.
            let after = gate::now_of(time);
            oracle.charge(reading.at(after).into(), cost);
        }
    } else {
        let deserves = oracle.admits(reading.at(before).into(), cost) && cost <= oracle.capacity();
        ensure!(!deserves, "key {key} was wrongly denied {cost} at {before}\n{oracle:?}\n{gate:?}");
    }
    Ok(())
}
