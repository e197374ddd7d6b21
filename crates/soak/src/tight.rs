//! One thread with more keys than the store has room for. Each key is compared with an oracle of its admissions. Each
//! policy errs on one side only: spilling, inheriting and sketches deny; forgetting admits.

use super::draw;
use super::gate::{self, Store};
use super::{Found, Round, START, ensure};
use std::sync::Arc;
use tollgate::{ManualClock, Overflow, Timestamp, WhenFull};
use tollgate_testing::compact::policies;
use tollgate_testing::kinds::{COMPACT, Kind, WINDOWS};
use tollgate_testing::laws::newest_is_within;
use tollgate_testing::oracle::{Spec, Verdict};
use tollgate_testing::reading::Reading;

const KEYS: u64 = 300;

pub fn play(round: &mut Round<'_>) -> Found {
    while round.goes_on() {
        let stream = match round.random.below(6) {
            0..4 => {
                let kind = round.pick(&COMPACT);
                let overflow = round.pick(policies(kind));
                let bytes = draw::pick(&mut round.random, &[1, 400, 800, 1_600]);
                (kind, Store::Compact(overflow, bytes))
            }
            4 => (round.pick(&WINDOWS), Store::Sketch(draw::pick(&mut round.random, &[256, 400, 1_024]))),
            _ => {
                let when_full =
                    draw::pick(&mut round.random, &[WhenFull::Deny, WhenFull::Forget, WhenFull::Admit]);
                let most = draw::pick(&mut round.random, &[1, 5, 40]);
                (draw::kind(&mut round.random), Store::Keyed(Some((most, when_full))))
            }
        };
        one(round, stream)?;
    }
    Ok(())
}

/// What a store may do to a key if it has no room.
#[derive(Copy, Clone, PartialEq)]
enum Side {
    Deny,
    Admit,
}

fn side(store: Store) -> Side {
    match store {
        Store::Compact(Overflow::Forget, _) | Store::Keyed(Some((_, WhenFull::Admit | WhenFull::Forget))) => {
            Side::Admit
        }
        _ => Side::Deny,
    }
}

/// A quota under which the debts of keys last long enough to crowd the store.
fn spec(round: &mut Round<'_>, kind: Kind) -> Spec {
    let random = &mut round.random;
    let limit = if draw::one_in(random, 4) { 127 } else { draw::between(random, 1, 20) };
    let period_ns = draw::pick(random, &[super::SEC, tollgate_testing::MINUTE, super::HOUR, 77_777_777]);
    let spec = Spec::new(limit, period_ns);
    let is_window = matches!(kind, Kind::Fixed | Kind::Sliding | Kind::SlidingStrict);
    if is_window || draw::one_in(random, 2) { spec } else { spec.with_burst(draw::between(random, 1, 20)) }
}

/// A stream of few frequent keys and many rare keys, while time does not step back.
fn one(round: &mut Round<'_>, (kind, store): (Kind, Store)) -> Found {
    // Some periods start at a key's first use, or are partial at first. They restart when the key is forgotten. So
    // the key may be denied requests that its first periods would have admitted.
    if side(store) == Side::Admit && matches!(kind, Kind::Interval | Kind::FirstUse | Kind::Adaptive(_)) {
        return Ok(());
    }
    let spec = spec(round, kind);
    let clock = ManualClock::new(Timestamp::from_nanos(START));
    let Some(built) = gate::build(kind, spec, store, Arc::new(clock.clone()), round.random.next()) else {
        return Ok(());
    };
    let (gate, side) = (&*built.gate, side(store));
    let reading = Reading::new(built.layout, kind, spec, START);
    let mut keys: Vec<_> = (0..KEYS).map(|_| (reading.oracle(), Vec::<(u64, u64)>::new())).collect();
    // A key with the same number as another key in a compact store is taken for that key.
    let is_shared = |key| {
        let number = |key| gate.fingerprint(u32::try_from(key).expect("few keys"));
        let others = (0..KEYS).filter(|other| *other != key);
        matches!(store, Store::Compact(..)) && others.map(number).any(|other| other == number(key))
    };
    let exact = kind.oracle(spec);
    let bytes = gate.bytes();
    let mut now = START + round.random.below(spec.period_ns);
    for _ in 0..800 {
        let random = &mut round.random;
        let most = draw::pick(random, &[4, 40, KEYS]);
        let key = random.below(most);
        now += match random.below(200) {
            0..150 => 0,
            150..199 => spec.period_ns / spec.limit * random.below(20) / 100,
            _ => spec.period_ns * random.below(3),
        };
        let cost = match random.below(9) {
            0..6 => 1,
            6..8 => random.below(4),
            _ => 1 + random.below(20),
        };
        clock.set(Timestamp::from_nanos(now));
        let way = random.next();
        let (oracle, admitted) = &mut keys[usize::try_from(key).expect("few keys")];
        let at = reading.at(now);
        let expected = oracle.peek(at, cost);
        let allowed = gate.ask(way, u32::try_from(key).expect("few keys"), cost, now);
        let allowed = if expected == Verdict::Never { allowed } else { round.told(allowed) };
        let before = || format!("{kind:?} {spec:?} in {store:?}: {cost} at {now} of key {key}, {oracle:?}");
        match (allowed, expected) {
            (true, Verdict::Never) => return Err(format!("{}\nadmitted an impossible cost", before())),
            (true, Verdict::Denied) => ensure!(side == Side::Admit, "{}\nadmitted", before()),
            (false, Verdict::Allowed) => {
                ensure!(side == Side::Deny || is_shared(key), "{}\ndenied\n{gate:?}", before());
            }
            _ => {}
        }
        if allowed && cost > 0 {
            oracle.charge(at.into(), cost);
            admitted.push((now, if kind == Kind::Spacing { 1 } else { cost }));
        }
        if allowed && cost > 0 && side == Side::Deny {
            // A panic is a breach, too.
            let last = &admitted[admitted.len().saturating_sub(24)..];
            newest_is_within(last, |t| exact.most_in(t + built.more_ns), (kind, spec, store, key));
        }
        if let Store::Keyed(Some((most, _))) = store {
            ensure!(
                gate.held() <= Some(most),
                "{kind:?} {spec:?} in {store:?}: the store holds {:?} keys",
                gate.held()
            );
        }
    }
    let raced = gate.gauges().map_or(0, |gauges| gauges.raced);
    ensure!(raced == 0, "{kind:?} {store:?}: {raced} races were counted with one thread");
    ensure!(
        gate.bytes() == bytes,
        "{kind:?} {store:?}: {:?} bytes, but {bytes:?} at the start",
        gate.bytes()
    );
    Ok(())
}
