//! Limits that several machines share. A server runs in this process, and limiters of three modes run in threads. The
//! modes that decide locally also run in virtual time, with late, lost and repeated answers and with partitions.

use super::draw;
use super::judge::Bound;
use super::simulation::{Faults, Mode, Network, Pattern, Setup, run};
use super::{Found, Round, START, ensure};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tollgate::{Clock, ManualClock, Quota, Timestamp};
use tollgate_redis::{InProcess, Limit};
use tollgate_testing::kinds::Kind;
use tollgate_testing::oracle::Spec;

pub fn play(round: &mut Round<'_>) -> Found {
    match round.random.below(3) {
        0 => asked_each_time(round),
        1 => leased(round),
        _ => simulated(round),
    }
}

/// Each thread is a separate machine. The server decides each request while time runs.
fn asked_each_time(round: &mut Round<'_>) -> Found {
    let spec = draw::busy_spec(&mut round.random, super::SEC);
    // The server counts in microseconds.
    let spec = Spec::new(spec.limit, spec.period_ns / 1_000_000 * 1_000_000);
    let quota = Quota::new(spec.limit, Duration::from_nanos(spec.period_ns));
    let (kind, limit) = if draw::one_in(&mut round.random, 2) {
        (Kind::Gcra, Limit::gcra(quota))
    } else {
        (Kind::Fixed, Limit::fixed_window(quota))
    };
    let clock = ManualClock::new(Timestamp::from_nanos(START));
    let server = InProcess::new(clock.clone()).blocking();
    let limiters: Vec<_> = (0..round.threads).map(|_| server.limiter("soak", limit).atomic()).collect();
    let limiters = limiters.into_iter().collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    let now = || clock.now().as_nanos();
    round.on_threads(|hand| {
        while hand.goes_on() {
            for _ in 0..8 {
                let key = u32::try_from(hand.random.below(4)).expect("few keys");
                let cost = 1 + hand.random.below(2) * hand.random.below(2);
                let before = now();
                let allowed = limiters[hand.number].check_n(&*format!("client {key}"), cost).is_allowed();
                if hand.told(allowed) {
                    hand.note(key, cost, before, now());
                }
            }
            clock.advance(Duration::from_nanos(hand.random.below(spec.period_ns / 64)));
        }
    });
    let oracle = kind.oracle(spec);
    let what = format!("{kind:?} {spec:?} at a server, {} machines", round.threads);
    // Both the times of requests and the arrival times are rounded to microseconds.
    round.judge(&Bound { most_in: &|t| oracle.most_in(t), more_ns: 2_000, forgets: true, spared: 0, what })
}

/// Each thread is a machine that takes leases or asks each time. All machines together stay within the limit of a
/// window.
fn leased(round: &mut Round<'_>) -> Found {
    let limit = 1 + round.random.skewed(5_000);
    let clock = ManualClock::new(Timestamp::from_nanos(START));
    let server = InProcess::new(clock.clone()).blocking();
    let of = || server.limiter("soak", Limit::fixed_window(Quota::per_hour(limit)));
    let mut machines = Vec::new();
    for _ in 0..round.threads {
        let leases = of().leases().clock(clock.clone()).build().map_err(|error| error.to_string())?;
        machines.push((leases, of().atomic().map_err(|error| error.to_string())?));
    }
    let admitted = AtomicU64::new(0);
    let share = 2 * limit / round.threads as u64 + 20;
    round.on_threads(|hand| {
        let (leases, atomic) = &machines[hand.number];
        for _ in 0..share {
            let cost = 1 + hand.random.below(2) * hand.random.below(3);
            let allowed = match hand.random.below(8) {
                0 => atomic.check_n("one", cost).is_allowed(),
                1..4 => leases.block_on(|l| l.check_n_async("one", cost)).is_allowed(),
                _ => leases.check_n("one", cost).is_allowed(),
            };
            if hand.told(allowed) {
                admitted.fetch_add(cost, Ordering::Relaxed);
            }
            // Leases end after seconds, which do not matter in an hour.
            if hand.random.below(64) == 0 {
                clock.advance(Duration::from_millis(hand.random.below(20)));
            }
        }
    });
    let spent: u64 = machines.iter().map(|(leases, _)| leases.stats().spent).sum();
    let granted: u64 = machines.iter().map(|(leases, _)| leases.stats().granted).sum();
    machines.into_iter().for_each(|(leases, _)| leases.block_on(|l| l.clone().close()));
    let admitted = admitted.into_inner();
    ensure!(
        admitted <= limit,
        "{admitted} admitted in an hour with a limit of {limit}, by {} machines with leases",
        round.threads
    );
    ensure!(spent <= granted && granted <= limit, "{spent} units spent, {granted} granted, limit {limit}");
    Ok(())
}

/// Runs any mode, network, pattern and fault in virtual time, and compares it with the mode's documented bound.
fn simulated(round: &mut Round<'_>) -> Found {
    while round.goes_on() {
        let random = &mut round.random;
        let quota = Quota::new(draw::pick(random, &[20, 300, 1_000]), Duration::from_secs(10));
        let limit = if draw::one_in(random, 2) {
            Limit::fixed_window(quota)
        } else {
            Limit::gcra(quota.burst(draw::pick(random, &[20, 200])))
        };
        let faults = match random.below(3) {
            0 => Faults::default(),
            1 => Faults { lost: draw::between(random, 1, 30), ..Faults::default() },
            _ => {
                let from = random.below(6_000);
                Faults {
                    lost: random.below(10),
                    partition_ms: Some((from, from + draw::between(random, 500, 6_000))),
                    ..Faults::default()
                }
            }
        };
        let (mode, nodes) = (draw::pick(random, &Mode::ALL), draw::pick(random, &[1, 3, 10]));
        let setup = Setup {
            pattern: draw::pick(random, &Pattern::ALL),
            per_second: draw::pick(random, &[100, 300]),
            seconds: draw::between(random, 4, 15),
            network: draw::pick(random, &[Network::Lan, Network::Regions]),
            faults,
            seed: random.next(),
            ..Setup::new(mode, limit, nodes)
        };
        let outcome = run(&setup);
        round.checks += outcome.offered;
        // The bound of write-back assumes that calls arrive. Each lost call disconnects its process for one more
        // interval.
        if setup.mode != Mode::WriteBack || faults == Faults::default() {
            ensure!(outcome.over <= outcome.bound, "{setup:?}\n{outcome:?}: admitted more than the bound");
        }
        if setup.mode == Mode::WriteBack {
            ensure!(
                outcome.charged <= outcome.admitted,
                "{setup:?}\n{outcome:?}: some units were charged twice"
            );
            let found = outcome.charged + outcome.dropped + outcome.pending;
            ensure!(
                found >= outcome.admitted,
                "{setup:?}\n{outcome:?}: some admitted units were not charged"
            );
        } else if faults == Faults::default() {
            ensure!(
                outcome.charged >= outcome.admitted,
                "{setup:?}\n{outcome:?}: some units were admitted without a charge"
            );
        }
    }
    Ok(())
}
