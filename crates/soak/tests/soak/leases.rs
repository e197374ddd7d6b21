//! Leases of several processes on one server. Messages take time and can be lost, and clocks differ.
//!
//! Laws, over random limits, traffic, delays, losses and clocks:
//! - GCRA: in no interval of length `t` do all processes together admit more than `B + r · (t + life)`;
//! - windows: no window admits more than its limit;
//! - sums: `granted = spent + held + stranded`, and the units that the server charged are the units granted or lost;
//! - denials: the retry time is not later than the server's.
//!
//! Single cases: under high demand, nearly all of a GCRA limit is admitted, and all of a window. Keys that fall idle
//! strand no more than the docs of `LeaseLimiter` state.

use std::collections::BTreeMap;
use std::time::Duration;

use tollgate::{LimitKind, Quota};
use tollgate_redis::Limit;
use tollgate_soak::simulation::{Faults, Mode, Network, ROUNDS, Request, SECOND, START, Setup, World};
use tollgate_testing::accuracy::random::Random;

fn begun(setup: &Setup) -> World {
    let mut world = World::new(setup);
    world.begin();
    world
}

/// Processes with the same clock, half a millisecond from the server.
fn world(limit: Limit, processes: u32) -> World {
    begun(&Setup { skew: Duration::ZERO, ..Setup::new(Mode::Awaited, limit, processes) })
}

/// For this time, requests of one unit at random nodes and times, as many a second on average.
fn offer(world: &mut World, waits: bool, per_second: u64, for_ns: u64) {
    let Setup { nodes, keys, .. } = world.setup;
    let (step, mut at, end) = (SECOND / per_second, world.now, world.now + for_ns);
    while at < end {
        at += 1 + world.random.below(2 * step);
        let node = usize::try_from(world.random.below(nodes.into())).unwrap();
        let key = u32::try_from(world.random.below(keys.into())).unwrap();
        world.request(at, Request { node, key, cost: 1, waits });
    }
    world.until(at);
}

fn admitted(world: &World) -> u64 {
    world.admitted.iter().map(|(_, request)| request.cost).sum()
}

/// The units that can still be spent.
fn held(world: &World) -> u64 {
    world.leases().map(|(book, now_ns)| book.held(now_ns)).sum()
}

/// Checks the documented bounds for each key, and the sums.
fn audit(world: &World) {
    let setup = &world.setup;
    let (quota, life_ns) = (setup.limit.quota(), setup.interval.as_nanos());
    let period_ns = u64::try_from(quota.period().as_nanos()).unwrap();
    for key in 0..setup.keys {
        let of_key = || world.admitted.iter().filter(move |(_, request)| request.key == key);
        if setup.limit.kind() != LimitKind::Gcra {
            let mut windows = BTreeMap::new();
            for (at, request) in of_key() {
                *windows.entry(at / period_ns).or_insert(0) += request.cost;
            }
            for (window, units) in windows {
                assert!(units <= quota.limit(), "{units} in window {window} of {quota}");
            }
            continue;
        }
        // A bucket of B + r · life that leaks at r never overflows. In units times period, and with one microsecond
        // more, the resolution of server times.
        let (limit, period) = (u128::from(quota.limit()), u128::from(period_ns));
        let most = u128::from(quota.burst_size()) * period + limit * (life_ns + 1_000);
        let (mut level, mut last) = (0_u128, START);
        for (at, request) in of_key() {
            level = level.saturating_sub(limit * u128::from(at - last)) + u128::from(request.cost) * period;
            last = *at;
            assert!(level <= most, "{} units beyond the bound", (level - most) / period);
        }
    }
    let (mut granted, mut spent) = (world.asked_exactly, world.asked_exactly);
    for (book, now_ns) in world.leases() {
        let stats = book.stats(now_ns);
        let sum = stats.spent + stats.returned + stats.held + stats.stranded;
        assert_eq!(stats.granted, sum, "{stats:?}");
        (granted, spent) = (granted + stats.granted, spent + stats.spent);
    }
    assert!(granted <= world.outcome.charged, "every granted unit was charged");
    assert_eq!(spent, admitted(world));
}

// G79
#[test]
fn high_demand_uses_nearly_the_whole_rate() {
    for waits in [false, true] {
        for (rate, burst) in [(1_000, 1_000), (1_000, 100), (20, 20), (10_000, 10_000), (10_000, 200)] {
            let limit = Limit::gcra(Quota::per_second(rate).burst(burst));
            let mut world = world(limit, 8);
            let seconds = (20_000 / rate).clamp(2, 20);
            offer(&mut world, waits, rate * 3, seconds * SECOND);
            audit(&world);
            let percent = admitted(&world) * 100 / (burst + rate * seconds);
            assert!(percent >= 95, "{percent} % of {rate}/s, burst {burst}");
        }
    }
}

#[test]
fn moderate_demand_is_nearly_all_admitted() {
    for (waits, rate, offered, least) in [
        (false, 1_000, 500, 98),
        (true, 1_000, 500, 100),
        (false, 10_000, 8_000, 98),
        (true, 10_000, 8_000, 100),
        (true, 100, 50, 100),
        (true, 4, 2, 100),
    ] {
        let limit = Limit::gcra(Quota::per_second(rate).burst(rate));
        let mut world = world(limit, 8);
        offer(&mut world, waits, offered, 10 * SECOND);
        world.until(world.now + SECOND);
        audit(&world);
        let percent = world.outcome.admitted * 100 / world.outcome.offered;
        assert!(percent >= least, "{percent} % of the offered units were admitted");
    }
}

#[test]
fn whole_window_is_admitted_and_no_more() {
    for limit in [1, 7, 100, 5_000] {
        let hour = Limit::fixed_window(Quota::per_hour(limit));
        let mut world = world(hour, 8);
        offer(&mut world, true, (limit / 4).max(10), 60 * SECOND);
        audit(&world);
        let stats = world.leases().map(|(book, now_ns)| book.stats(now_ns));
        let stranded: u64 = stats.map(|stats| stats.held + stats.stranded).sum();
        assert_eq!(admitted(&world) + stranded, limit);
        assert!(stranded <= (limit / 50).max(8), "{stranded} units are stranded");
    }
}

/// Random settings: whether requests wait, how many come in a second, and the rest.
fn settings(random: &mut Random) -> (Setup, u64, bool) {
    let (units, quarters) = (1 + random.below(2_000), 1 + random.below(19));
    let quota = Quota::new(units, Duration::from_millis(quarters * 250));
    let limit = match random.below(4) {
        0 | 1 => Limit::gcra(quota.burst(1 + units * (quarters % 3) / 2)),
        2 => Limit::fixed_window(quota),
        _ => Limit::fixed_window(Quota::new(units, Duration::from_millis(quarters * 40))),
    };
    let small = |random: &mut Random, bound| u32::try_from(random.below(bound)).unwrap();
    let nodes = 1 + small(random, 8);
    let percent = |random: &mut Random| random.below(2) * random.below(50);
    let setup = Setup {
        keys: 1 + small(random, 3),
        interval: Duration::from_millis(5 + random.below(1_995)),
        max_block: 1 + random.below(199),
        stripes: (random.below(2) == 0).then_some(2),
        network: [Network::Lan, Network::Regions][small(random, 2) as usize],
        faults: Faults { lost: percent(random), lost_calls: percent(random), partition_ms: None },
        skew: Duration::from_nanos(random.below(2 * SECOND)),
        seed: random.next(),
        ..Setup::new(Mode::Awaited, limit, nodes)
    };
    (setup, 10 + random.below(20_000), random.below(2) == 0)
}

// G78
#[test]
fn leases_stay_within_documented_bounds() {
    for seed in 0..32 {
        let random = &mut Random::new(seed);
        let (setup, per_second, waits) = settings(random);
        println!("{per_second} a second, waits: {waits}, {setup:?}");
        let mut world = begun(&setup);
        let for_ns = 1_000 * SECOND / per_second.max(400);
        // Traffic, a pause in which leases expire, some requests with a higher cost, and traffic again.
        offer(&mut world, waits, per_second, for_ns);
        world.until(world.now + random.below(3 * SECOND));
        for cost in 1..20 {
            let key = u32::try_from(random.below(setup.keys.into())).unwrap();
            for (cost, waits) in [(cost, true), (cost * 3, false)] {
                world.request(world.now, Request { node: 0, key, cost, waits });
            }
        }
        world.until(world.now);
        world.leases().for_each(|(book, now_ns)| book.sweep(now_ns));
        offer(&mut world, waits, per_second, for_ns);
        // All messages arrive, and waiting requests continue one after another. Each asks at most a few times, so the
        // loop ends.
        let most = world.outcome.calls + (world.unfinished() as u64 + 1) * (ROUNDS as u64 + 1);
        while world.unfinished() > 0 {
            world.until(world.now + SECOND);
            assert!(world.outcome.calls <= most, "{} calls are more than the bound", world.outcome.calls);
        }
        audit(&world);
        assert!(world.leases().all(|(book, now_ns)| book.stats(now_ns).in_flight == 0));
    }
}

// G79
#[test]
fn idle_key_strands_at_most_documented_units() {
    for (rate, offered, processes) in [(10_000, 4_000, 8), (1_000, 900, 4), (100, 80, 2), (5_000, 100, 8)] {
        let mut world = world(Limit::gcra(Quota::per_second(rate).burst(rate)), processes);
        offer(&mut world, true, offered, 10 * SECOND);
        let held_now = held(&world);
        // A quarter of the units used in a life, half as much again for random variation, and one unit for each
        // process.
        let most = offered / 4 * 3 / 2 + u64::from(processes);
        assert!(held_now <= most, "{held_now} units are held at {offered}/s, but at most {most} are allowed");
        assert!(held_now * 4 <= rate * 3, "{held_now} held units are more than three quarters of the limit");
        world.until(world.now + 2 * SECOND);
        assert_eq!(held(&world), 0, "held units expire after a life");
    }
}

#[test]
fn flood_on_used_up_key_sends_no_calls() {
    let mut world = world(Limit::fixed_window(Quota::per_hour(100)), 8);
    offer(&mut world, true, 2_000, 2 * SECOND);
    let calls = world.outcome.calls;
    offer(&mut world, true, 2_000, 10 * SECOND);
    assert_eq!(world.outcome.calls, calls, "no call is sent during the pause after a denial");
    let (book, now_ns) = world.leases().next().unwrap();
    let denied = book.peek(&0_u32.to_be_bytes(), 1, now_ns);
    let left = 3_600 * SECOND - world.now % (3_600 * SECOND);
    let told = denied.retry_after().unwrap().as_nanos();
    assert!(told >= u128::from(left - 1_000_000), "retry_after is too short: {told} of {left}");
    assert!(told <= u128::from(left) * 9 / 8 + 1_000_000);
}

#[test]
fn clock_step_back_locks_out_no_client() {
    let limit = Limit::gcra(Quota::per_second(10));
    let mut world = world(limit, 1);
    world.skews[0] = 3_600 * SECOND;
    offer(&mut world, true, 100, 2 * SECOND);
    world.skews[0] = 0;
    let before = admitted(&world);
    offer(&mut world, true, 100, 2 * SECOND);
    assert!(admitted(&world) - before >= 18, "{} of 20 units", admitted(&world) - before);
    audit(&world);
}
