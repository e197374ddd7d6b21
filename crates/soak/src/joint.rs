//! Several limits on one request, and refunds. The final charges equal the units that were admitted and kept. Turns
//! that are given out at one instant follow each other, and each waiter goes within the bound.

use super::draw;
use super::judge::Bound;
use super::{Found, Round, SEC, START, ensure};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tollgate::{
    Capacity, Clock, DefaultClock, FixedWindow, Gcra, ManualClock, Quota, RateLimiter, SlidingWindow,
    Timestamp, TokenBucket, check_all, joint::AllOf,
};
use tollgate_testing::compact::compact_of;
use tollgate_testing::kinds::{ALL, COMPACT, Kind};
use tollgate_testing::oracle::Spec;
use tollgate_testing::reading::Reading;
use tollgate_testing::subjects::{direct, keyed};

pub fn play(round: &mut Round<'_>) -> Found {
    for _ in 0..4 {
        all_or_nothing(round)?;
        given_back(round)?;
        turns(round)?;
    }
    if draw::one_in(&mut round.random, 3) { waits(round) } else { Ok(()) }
}

const USERS: usize = 5;
const ROUTES: usize = 3;

/// Limits for users, routes and a total, in any order. The clock does not advance. When all threads are done, each
/// limit holds exactly the admitted units, and no residue of denied requests.
fn all_or_nothing(round: &mut Round<'_>) -> Found {
    let clock = ManualClock::new(Timestamp::from_nanos(START));
    let [per_user, per_route, total] = [40, 60, 150].map(|most| draw::between(&mut round.random, 1, most));
    let by_user = RateLimiter::builder(Gcra::new(Quota::per_hour(per_user))).clock(clock.clone());
    let by_user = by_user.capacity(Capacity::memory(1 << 14)).compact().map_err(|error| error.to_string())?;
    let by_route = RateLimiter::builder(FixedWindow::new(Quota::per_hour(per_route)))
        .clock(clock.clone())
        .keyed::<usize>();
    let of_all = RateLimiter::builder(TokenBucket::new(Quota::per_hour(total))).clock(clock.clone()).direct();
    // Its charges cannot be compared with a residue. But it must not be charged for requests that other limits deny.
    let sliding = RateLimiter::builder(SlidingWindow::new(Quota::per_hour(total + 1))).clock(clock).direct();
    let kept: Vec<_> = (0..=USERS + ROUTES).map(|_| AtomicU64::new(0)).collect();
    round.on_threads(|hand| {
        for _ in 0..60 {
            let (user, route) =
                (super::below(&mut hand.random, USERS), super::below(&mut hand.random, ROUTES));
            let (here, there) = (1 + hand.random.below(3), 1 + hand.random.below(2));
            let limits = (
                by_user.on(&user).cost(here),
                by_route.on(&route).cost(there),
                of_all.on().cost(1),
                sliding.on().cost(1),
            );
            // Half of the checks list the limits in the other order, and refund them in that order.
            let is_refunded = hand.random.below(4) == 0;
            let allowed = if hand.random.below(2) == 0 {
                let charge = check_all(limits);
                if charge.is_allowed() && is_refunded {
                    AllOf::new(limits).refund(&charge);
                }
                charge.is_allowed()
            } else {
                let limits = (limits.3, limits.2, limits.1, limits.0);
                let charge = check_all(limits);
                if charge.is_allowed() && is_refunded {
                    AllOf::new(limits).refund(&charge);
                }
                charge.is_allowed()
            };
            let told = hand.told(allowed);
            if told && !(is_refunded && allowed) {
                kept[user].fetch_add(here, Ordering::Relaxed);
                kept[USERS + route].fetch_add(there, Ordering::Relaxed);
                kept[USERS + ROUTES].fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let kept = |place: usize| kept[place].load(Ordering::Relaxed);
    for user in 0..USERS {
        let (kept, left) = (kept(user), by_user.peek(&user).remaining());
        ensure!(kept + left == per_user, "user {user}: {kept} kept and {left} left of {per_user}");
    }
    for route in 0..ROUTES {
        let (kept, left) = (kept(USERS + route), by_route.peek(&route).remaining());
        ensure!(kept + left == per_route, "route {route}: {kept} kept and {left} left of {per_route}");
    }
    let (kept, left) = (kept(USERS + ROUTES), [of_all.peek().remaining(), sliding.peek().remaining()]);
    ensure!(
        kept + left[0] == total && kept + left[1] == total + 1,
        "all: {kept} kept and {left:?} left of {total}"
    );
    Ok(())
}

const SPEC: Spec = Spec { limit: 1_000, period_ns: 1_000 * SEC, burst: 1_000 };
const KEYS: u64 = 3;

/// The algorithms whose charges at one time form a sum. Spaced events are not units, and logs refund nothing. A late
/// check of an adaptive limiter finds less than an earlier reading showed.
fn gives_back(kind: Kind) -> bool {
    !matches!(kind, Kind::Spacing | Kind::Log | Kind::Adaptive(_))
}

/// Threads charge, by checks and by force, and refund any part of the charges. Each turn happens at one instant.
/// Afterwards, each key equals its oracle, which was charged with the kept units.
fn given_back(round: &mut Round<'_>) -> Found {
    let kind = round.pick(&ALL);
    let kind = if gives_back(kind) { kind } else { Kind::Gcra };
    let mut keys = KEYS;
    let (limiter, layout) = match round.random.below(3) {
        0 => {
            keys = 1;
            (direct(kind, SPEC), None)
        }
        1 if COMPACT.contains(&kind) => {
            let built = compact_of(kind, SPEC, Capacity::memory(1 << 15), 50_000);
            let Some(Ok((limiter, layout))) = built else { return Ok(()) };
            (Some(limiter), Some(layout))
        }
        _ => (keyed(kind, SPEC), None),
    };
    let Some(limiter) = limiter else { return Ok(()) };
    let reading = Reading::new(layout, kind, SPEC, START);
    let mut oracles: Vec<_> = (0..keys).map(|_| reading.oracle()).collect();
    let mut now = START;
    for turn in 0..3 {
        let kept: Vec<_> = (0..keys).map(|_| AtomicU64::new(0)).collect();
        round.on_threads(|hand| {
            let mut held = Vec::new();
            for _ in 0..80 {
                let key = hand.random.below(keys);
                let (place, id) = (usize::try_from(key).expect("few"), u32::try_from(key).expect("few"));
                let cost = 1 + hand.random.below(5);
                let decision = match hand.random.below(4) {
                    0 => limiter.at(now).charge_unchecked(id, cost),
                    1 => limiter.at(now).take(id, cost),
                    _ => limiter.at(now).check_n(id, cost),
                };
                if hand.told(decision.is_allowed()) {
                    kept[place].fetch_add(decision.cost(), Ordering::Relaxed);
                    held.push((place, id, decision));
                }
                if held.len() > 3 {
                    // Refunds charges in any order. Some charges are never refunded, and some only in part.
                    let (place, id, charge) = held.swap_remove(super::below(&mut hand.random, 4));
                    // `settle` does not return the refunded amount. For a charge that need not wait, it is the whole
                    // charge.
                    let is_known =
                        kind.is_bucket_family() && kind != Kind::Queue && charge.delay() == Duration::ZERO;
                    if is_known && hand.random.below(4) == 0 {
                        let actual = hand.random.below(charge.cost() + 1);
                        let before = charge.cost() - actual;
                        limiter.at(now).settle(id, &charge, actual);
                        kept[place].fetch_sub(before, Ordering::Relaxed);
                    } else {
                        let back = limiter.at(now).refund_n(id, &charge, 1 + hand.random.below(5));
                        kept[place].fetch_sub(back, Ordering::Relaxed);
                    }
                }
            }
        });
        for (key, (oracle, kept)) in (0..).zip(oracles.iter_mut().zip(&kept)) {
            let kept = kept.load(Ordering::Relaxed);
            // A false answer may leave less than the refunded amount.
            ensure!(kept < 1 << 40, "{kind:?} {limiter:?}: turn {turn} refunded more than was charged");
            let at = reading.at(now);
            oracle.force(at.into(), kept);
            let (ours, due) = (limiter.at(now).peek_n(key, 0).remaining(), oracle.remaining(at));
            ensure!(
                ours == due,
                "{kind:?} {limiter:?}: key {key} has {ours} left in turn {turn} at {now}; with {kept} units kept, the oracle has {due}\n{oracle:?}"
            );
        }
        now += round.random.below(SPEC.period_ns);
    }
    Ok(())
}

/// Turns that are requested at one instant follow each other.
fn turns(round: &mut Round<'_>) -> Found {
    let spec = Spec::new(1, SEC);
    let kind = round.pick(&[Kind::Gcra, Kind::Greedy, Kind::Interval, Kind::Spacing]);
    let limiter = if draw::one_in(&mut round.random, 2) { direct(kind, spec) } else { keyed(kind, spec) };
    let Some(limiter) = limiter else { return Ok(()) };
    let given = round.on_threads(|hand| {
        let turn = |_| {
            hand.checks += 1;
            limiter.at(START).reserve(0, 1, Duration::from_secs(3_600))
        };
        (0..20).map(turn).map(|decision| (decision.is_allowed(), decision.delay())).collect::<Vec<_>>()
    });
    let given: Vec<_> = given.into_iter().flatten().collect();
    let distinct: BTreeSet<_> = given.iter().map(|(_, delay)| *delay).collect();
    let count = u32::try_from(given.len()).expect("few");
    let due: BTreeSet<_> = (0..count).map(|number| Duration::from_secs(1) * number).collect();
    ensure!(
        distinct == due && given.iter().all(|(allowed, _)| *allowed),
        "{kind:?}: turns of one instant do not follow each other: {given:?}"
    );
    Ok(())
}

/// How much earlier the next waiters may go after a late wake-up.
const LATE_NS: u128 = 2_000_000;

/// Threads wait for few keys in real time, and give up at any moment. No waiter stays in a queue, and each interval
/// is within the bound.
fn waits(round: &mut Round<'_>) -> Found {
    let spec = Spec::new(2_000, SEC).with_burst(4);
    let clock = DefaultClock::new();
    let quota = Quota::per_second(spec.limit).burst(spec.burst);
    let limiter = RateLimiter::builder(Gcra::new(quota)).clock(clock).keyed::<u32>();
    let now = || limiter.clock().now().as_nanos();
    let found = round.on_threads(|hand| {
        while hand.goes_on() {
            let (key, cost) =
                (u32::try_from(hand.random.below(2)).expect("few"), 1 + hand.random.below(spec.burst));
            let patience = Duration::from_micros(hand.random.below(20_000));
            let before = now();
            let went = limiter.wait_n(&key, cost).within(patience).block();
            let after = now();
            if let Ok(charge) = went {
                let due = (charge.at() + charge.delay()).as_nanos();
                ensure!(after >= due, "a waiter went at {after}, before its turn at {due}: {charge:?}");
            }
            if hand.told(went.is_ok()) {
                hand.note(key, cost, before, after);
            }
        }
        Ok(())
    });
    found.into_iter().collect::<Result<Vec<()>, _>>()?;
    let left = (limiter.waiting(), limiter.waiting_lines());
    ensure!(left == (0, 0), "after the last waiter, the limiter reports {left:?} waiters and queues");
    let oracle = Kind::Gcra.oracle(spec);
    let what = format!("waiters under {spec:?}, on {} threads", round.threads);
    round.judge(&Bound { most_in: &|t| oracle.most_in(t), more_ns: LATE_NS, forgets: true, spared: 0, what })
}
