//! Several quotas in one compact table, chosen by each call.
//!
//! Properties, over random operations on a few keys under random quotas:
//! - Arrival times are those of one GCRA in ticks, with the interval and burst of each call.
//!   Intervals are rounded up to ticks, so no rate is higher than requested.
//!   What each quota admits stays within that quota's own bound, plus a tick.
//! - Counts in windows are those of one window, with the limit of each call.
//! - A quota that does not fit the table is refused. The error names the remedy.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::cell::Cell;
use tollgate::{
    Capacity, Compact, CompactAlgorithm, FixedWindow, ManualClock, Quota, RateLimiter, SlidingWindow,
    Timestamp, stores::Tier,
};
use tollgate_testing::compact::{Layout, Seeded, Ticks};
use tollgate_testing::kinds::quota;
use tollgate_testing::laws::newest_is_within;
use tollgate_testing::operations::{config, ops_with, start};
use tollgate_testing::oracle::{Fixed, Gcra, Oracle, Sliding, Spec};
use tollgate_testing::steps::Op;
use tollgate_testing::subjects::verdict;
use tollgate_testing::{HOUR, MINUTE, SEC, build};

const KEYS: u32 = 3;
const START: Timestamp = Timestamp::from_secs(1_700_000_000);

type Limiter<A> = RateLimiter<Compact<A, Seeded>, ManualClock>;

fn limiter<A: CompactAlgorithm>(
    algorithm: A,
    declared: &[Quota],
) -> Result<Limiter<A>, tollgate::QuotaError> {
    build(algorithm, &ManualClock::new(START))
        .hasher(Seeded(11))
        .capacity(Capacity::memory(1 << 14))
        .tiers(declared.iter().copied())
        .compact()
}

fn quotas() -> impl Strategy<Value = Vec<Spec>> {
    let limit = prop_oneof![1_u64..=12, 1_u64..=1_000, Just(44_101)];
    let period = prop_oneof![select(vec![SEC, 10 * SEC, MINUTE, HOUR]), 1_000_000..=10 * SEC];
    let burst = prop_oneof![Just(None), (1_u64..=2_000).prop_map(Some)];
    let spec = (limit, period, burst).prop_map(|(limit, period, burst)| {
        let spec = Spec::new(limit, period);
        burst.map_or(spec, |burst| spec.with_burst(burst))
    });
    prop::collection::vec(spec, 1..5)
}

/// Operations, each with an index that selects its quota.
fn ops_under() -> impl Strategy<Value = Vec<(Op, Index)>> {
    ops_with(KEYS, 60, false, any::<Index>())
}

/// The time and cost of each request that one key was admitted under one quota.
type Admitted = Vec<(u64, u64)>;

fn arrival_times(specs: &[Spec], start: u64, ops: &[(Op, Index)]) -> bool {
    let quotas: Vec<Quota> = specs.iter().map(|spec| quota(*spec).expect("ordinary quotas")).collect();
    let limiter = match limiter(tollgate::Gcra::new(quotas[0]), &quotas[1..]) {
        Ok(limiter) => limiter,
        Err(error) => {
            assert!(error.to_string().contains("too far apart"), "{specs:?}: {error}");
            return false;
        }
    };
    let layout = Layout::read(&limiter.snapshot());
    let ticks = *layout.ticks().expect("GCRA has ticks");
    let tiers: Vec<Tier> = quotas
        .iter()
        .map(|quota| limiter.tier(quota).expect("a declared quota, or the limiter's own"))
        .collect();
    let in_ticks: Vec<Spec> = specs.iter().map(|spec| rounded(&ticks, *spec)).collect();

    let mut oracles: Vec<Gcra> = (0..KEYS).map(|_| Gcra::new(in_ticks[0])).collect();
    let mut admitted: Vec<Vec<Admitted>> = vec![vec![Vec::new(); specs.len()]; KEYS as usize];
    let reach = layout.reach() / 2;
    let first = ticks.floor(start.saturating_sub(reach));
    let mut now = start;
    for (op, place) in ops {
        let place = place.index(specs.len());
        let oracle = &mut oracles[op.key as usize];
        oracle.set(in_ticks[place]);
        // Steps are in nanoseconds, so a fresh oracle in nanoseconds computes them.
        now = op.step.apply(now, specs[place], &Gcra::new(specs[place])).min(start.saturating_add(reach));
        let tick = u64::try_from(ticks.floor(now) - first).expect("within half the range");
        let cost = op.cost.apply(tick, oracle);
        let decision = limiter.at(Timestamp::from_nanos(now)).check_with(&op.key, cost, &tiers[place]);
        let expected = oracle.peek(tick, cost);
        let told = || format!("{cost} at {now} under {:?} of {specs:?}: {oracle:?}, {ticks:?}", specs[place]);
        assert_eq!(verdict(&decision), expected, "{}", told());
        assert_eq!(decision.limit(), specs[place].burst);
        let wait = oracle
            .retry_after(tick, cost)
            .map(|wait| if wait == 0 { 0 } else { ticks.until(now, first + u128::from(tick) + wait) });
        assert_eq!(decision.retry_after().map(|wait| wait.as_nanos()), wait, "{}", told());
        if decision.is_allowed() && cost > 0 {
            oracle.charge(tick.into(), cost);
            let own = &mut admitted[op.key as usize][place];
            own.push((now, cost));
            let bound = Gcra::new(specs[place]);
            newest_is_within(own, |t| bound.most_in(t + ticks.nanos(1)), specs[place]);
        }
    }
    true
}

fn rounded(ticks: &Ticks, spec: Spec) -> Spec {
    ticks.spec(tollgate_testing::kinds::Kind::Gcra, spec)
}

/// Random limits of one period.
fn limits() -> impl Strategy<Value = (Vec<u64>, u64)> {
    let limits = prop::collection::vec(prop_oneof![1_u64..=8, 1_u64..=2_000], 1..4);
    (limits, select(vec![SEC, MINUTE, HOUR, 300_000_007]))
}

fn counts<A: CompactAlgorithm, O: Oracle>(
    algorithm: A,
    (limits, period_ns): &(Vec<u64>, u64),
    oracle: impl Fn(Spec) -> O,
    set: impl Fn(&mut O, u64),
    start: u64,
    ops: &[(Op, Index)],
) {
    let specs: Vec<Spec> = limits.iter().map(|limit| Spec::new(*limit, *period_ns)).collect();
    let quotas: Vec<Quota> = specs.iter().map(|spec| quota(*spec).expect("ordinary quotas")).collect();
    let limiter = limiter(algorithm, &quotas[1..]).expect("these limits fit");
    let reach = Layout::read(&limiter.snapshot()).reach();
    let tiers: Vec<Tier<A>> =
        quotas.iter().map(|quota| limiter.tier(quota).expect("a declared quota")).collect();
    let mut oracles: Vec<O> = (0..KEYS).map(|_| oracle(specs[0])).collect();
    let mut now = start;
    for (op, place) in ops {
        let place = place.index(specs.len());
        let oracle = &mut oracles[op.key as usize];
        set(oracle, limits[place]);
        now = op.step.apply(now, specs[place], oracle).min(start.saturating_add(reach)).min(1 << 62);
        // The usage under another limit may be higher than this limit. Then nothing remains.
        let over = !oracle.admits(now.into(), 0);
        let cost = if over { 1 } else { op.cost.apply(now, oracle) };
        let decision = limiter.at(Timestamp::from_nanos(now)).check_with(&op.key, cost, &tiers[place]);
        assert_eq!(verdict(&decision), oracle.offer(now, cost), "{cost} at {now} of {limits:?}: {oracle:?}");
        assert_eq!(decision.limit(), limits[place]);
        if over {
            assert_eq!(decision.remaining(), 0, "{limits:?} at {now}: {oracle:?}");
        } else {
            assert_eq!(decision.remaining(), oracle.remaining(now), "{limits:?} at {now}: {oracle:?}");
        }
    }
}

// G48
#[test]
fn tiers_share_one_gcra_arrival_time() {
    let (tried, held) = (Cell::new(0_u32), Cell::new(0_u32));
    proptest!(config(256), |(specs in quotas(), start in start(), ops in ops_under())| {
        tried.set(tried.get() + 1);
        held.set(held.get() + u32::from(arrival_times(&specs, start, &ops)));
    });
    assert!(held.get() * 2 > tried.get(), "only {} of {} fit one table", held.get(), tried.get());
}

proptest! {
    #![proptest_config(config(128))]

    // G48
    #[test]
    fn tiers_share_one_fixed_window_count(
        limits in limits(),
        start in start(),
        ops in ops_under(),
    ) {
        let own = quota(Spec::new(limits.0[0], limits.1)).expect("an ordinary quota");
        counts(FixedWindow::new(own), &limits, Fixed::new, Fixed::set, start, &ops);
    }

    #[test]
    fn tiers_share_one_sliding_window_count(
        limits in limits(),
        start in start(),
        ops in ops_under(),
    ) {
        let own = quota(Spec::new(limits.0[0], limits.1)).expect("an ordinary quota");
        counts(SlidingWindow::new(own), &limits, Sliding::new, Sliding::set, start, &ops);
        counts(SlidingWindow::new(own).strict(), &limits, Sliding::strict, Sliding::set, start, &ops);
    }
}

#[test]
fn undeclared_tiers_with_same_refill_fit() {
    let limiter = limiter(tollgate::Gcra::new(Quota::per_minute(60)), &[]).unwrap();
    for fits in [Quota::per_minute(600), Quota::per_minute(10), Quota::per_second(10).burst(7)] {
        assert!(limiter.tier(&fits).is_ok(), "{fits}");
    }
    for (unfit, why) in [
        (Quota::per_minute(60).burst(61), "pass the quota to Builder::tiers"),
        (Quota::per_hour(60), "pass the quota to Builder::tiers"),
        (Quota::per_day(1), "pass the quota to Builder::tiers"),
    ] {
        let error = limiter.tier(&unfit).unwrap_err().to_string();
        assert!(error.contains(why), "{unfit}: {error}");
    }
    assert!(limiter.tier(&Quota::per_second(100_000_000)).is_err(), "the interval is less than a tick");
    // When the builder is given these quotas, they fit, as long as one tick size suits all of them.
    let named = [Quota::per_minute(60).burst(61), Quota::per_hour(60), Quota::per_day(1)];
    let limiter = self::limiter(tollgate::Gcra::new(Quota::per_minute(60)), &named)
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(named.iter().all(|quota| limiter.tier(quota).is_ok()));
}

#[test]
fn builder_refuses_tiers_too_far_apart() {
    let error = limiter(tollgate::Gcra::new(Quota::per_second(1_000_000)), &[Quota::per_day(1)]).unwrap_err();
    assert!(error.to_string().contains("too far apart"), "{error}");
    assert!(error.to_string().contains("256") && error.to_string().contains("2^33"), "{error}");
}

#[test]
fn window_tiers_need_same_period_and_room() {
    let minute = Quota::per_minute(100);
    for (error, why) in [
        (limiter(FixedWindow::new(minute), &[Quota::per_hour(5)]).map(|_| ()), "the period"),
        (limiter(SlidingWindow::new(minute), &[Quota::per_hour(5)]).map(|_| ()), "the period"),
        (limiter(FixedWindow::new(minute), &[]).unwrap().tier(&Quota::per_hour(5)).map(|_| ()), "the period"),
        (
            limiter(FixedWindow::new(minute), &[]).unwrap().tier(&Quota::per_minute(100_000)).map(|_| ()),
            "tiers",
        ),
        (
            limiter(SlidingWindow::new(minute), &[]).unwrap().tier(&Quota::per_minute(1_000)).map(|_| ()),
            "tiers",
        ),
    ] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let named = limiter(FixedWindow::new(minute), &[Quota::per_minute(100_000)]).unwrap();
    assert!(named.tier(&Quota::per_minute(100_000)).is_ok());
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "use a tier only with the limiter that created it"))]
fn foreign_tier_never_admits() {
    let limiter = limiter(tollgate::Gcra::new(Quota::per_minute(2)), &[]).unwrap();
    let foreign = self::limiter(tollgate::Gcra::new(Quota::per_second(7)), &[]).unwrap();
    let foreign = foreign.tier(&Quota::per_second(7)).unwrap();
    assert!(limiter.at(START).check_with("a", 7, &foreign).is_never());
}

// G48
#[test]
fn charge_counts_under_every_tier() {
    let premium = Quota::per_minute(100);
    let limiter = limiter(tollgate::Gcra::new(Quota::per_minute(10)), &[premium]).unwrap();
    let premium = limiter.tier(&premium).unwrap();
    assert!(limiter.at(START).check_n("a", 10).is_allowed());
    assert!(limiter.at(START).check("a").is_denied());
    // The key owes 60 s, which is as long as the 100 units of premium take.
    assert!(limiter.at(START).check_with("a", 1, &premium).is_denied());
    let later = START + std::time::Duration::from_secs(6);
    assert!(limiter.at(later).check_with("a", 10, &premium).is_allowed());
    assert!(limiter.at(later).check_with("a", 1, &premium).is_denied());
    assert!(limiter.at(later).check("a").is_denied());
}
