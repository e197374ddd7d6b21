//! The sketch of arrival times on its own.
//!
//! Properties, while time does not step back:
//! - With room, it is one GCRA for each key, in the sketch's ticks.
//! - Without room, the key's own GCRA admits every request that the sketch admits.

use proptest::prelude::*;
use proptest::sample::select;
use std::time::Duration;
use tollgate::sketch::TatSketch;
use tollgate::{Quota, Timestamp};
use tollgate_testing::compact::Random;
use tollgate_testing::kinds::quota;
use tollgate_testing::operations::config;
use tollgate_testing::oracle::Spec;
use tollgate_testing::{HOUR, MINUTE, SEC, START};

/// Start times over all phases of a cell. A cell's range is the time of 64 to 128 bursts.
fn start() -> impl Strategy<Value = u64> {
    START..START + 2 * 365 * 24 * HOUR
}

/// The sketch's ticks in one interval.
fn ticks(spec: Spec) -> u64 {
    1_024 / spec.burst
}

/// The tick that contains a time.
fn tick(spec: Spec, now: u64) -> u64 {
    let tick =
        u128::from(now) * u128::from(ticks(spec)) * u128::from(spec.limit) / u128::from(spec.period_ns);
    u64::try_from(tick).expect("a tick is longer than a nanosecond")
}

/// The arrival time of one key, in ticks.
#[derive(Debug, Default)]
struct Arrival(u64);

impl Arrival {
    /// The ticks that a request of this cost has to wait.
    fn wait(&self, spec: Spec, at: u64, cost: u64) -> u64 {
        (self.0.max(at) + cost * ticks(spec)).saturating_sub(at + spec.burst * ticks(spec))
    }

    fn charge(&mut self, spec: Spec, at: u64, cost: u64) {
        self.0 = self.0.max(at) + cost * ticks(spec);
    }
}

fn spec() -> impl Strategy<Value = Spec> {
    let burst = prop_oneof![1_u64..=20, 1_u64..=1_024];
    // Intervals of whole nanoseconds.
    let limit = select(vec![1_u64, 2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20]);
    (limit, select(vec![SEC, MINUTE, HOUR]), burst).prop_map(|(limit, period_ns, burst)| {
        Spec::new(limit, period_ns - period_ns % limit).with_burst(burst)
    })
}

/// A key, the time since the previous request in thousandths of the interval, and a cost in sixteenths of the burst.
fn requests() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    let step = prop_oneof![2 => Just(0_u64), 5 => 0..2_000_u64, 1 => 0..40_000_u64];
    let cost = prop_oneof![4 => Just(0_u64), 1 => 0..18_u64];
    prop::collection::vec((prop_oneof![0..3_u64, 0..60_u64], step, cost), 1..200)
}

fn play(spec: Spec, bytes: usize, keys: u64, start: u64, requests: &[(u64, u64, u64)]) {
    let sketch =
        TatSketch::try_new(quota(spec).expect("an ordinary quota"), bytes).expect("a quota that fits");
    assert!(sketch.state_bytes() <= bytes.max(136));
    let mut arrivals: Vec<Arrival> = (0..60).map(|_| Arrival::default()).collect();
    let mut now = start;
    for &(key, step, cost) in requests {
        now += spec.period_ns / spec.limit * step / 1_000;
        let key = key % keys;
        let cost = (spec.burst * cost / 16).max(1);
        let arrival = &mut arrivals[usize::try_from(key).expect("few keys")];
        let decision = sketch.check_at(Random(key << 32).next(), cost, Timestamp::from_nanos(now));
        let (at, told) = (tick(spec, now), format!("{cost} at {now} of key {key}, {spec:?}, {arrival:?}"));
        assert_eq!(decision.is_never(), cost > spec.burst, "{told}");
        if decision.is_never() {
            continue;
        }
        let wait = arrival.wait(spec, at, cost);
        if keys <= 3 {
            let first = (u128::from(at + wait) * u128::from(spec.period_ns))
                .div_ceil(u128::from(ticks(spec)) * u128::from(spec.limit));
            let wait_ns = if wait == 0 { 0 } else { first - u128::from(now) };
            assert_eq!(decision.retry_after().map(|wait| wait.as_nanos()), Some(wait_ns), "{told}");
        }
        assert!(decision.is_denied() || wait == 0, "{told}");
        if decision.is_allowed() {
            arrival.charge(spec, at, cost);
        }
    }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn roomy_tat_sketch_equals_gcra_per_key(spec in spec(), start in start(), requests in requests()) {
        play(spec, 64 << 10, 3, start, &requests);
    }

    // G6
    #[test]
    fn full_tat_sketch_never_admits_more(spec in spec(), start in start(), requests in requests()) {
        play(spec, 136, 60, start, &requests);
    }
}

#[test]
fn tat_sketch_refuses_quota_beyond_16_bits() {
    let error = TatSketch::try_new(Quota::per_second(100).burst(1_025), 1 << 10).unwrap_err().to_string();
    assert!(error.contains("1025") && error.contains("at most 1024"), "{error}");
    assert!(TatSketch::try_new(Quota::per_second(100).burst(1_024), 1 << 10).is_ok());
    // 32 bursts take less than a second.
    assert!(TatSketch::try_new(Quota::per_second(1_000).burst(10), 1 << 10).is_err());
    assert!(TatSketch::try_new(Quota::per_second(100).burst(10), 1 << 10).is_ok());
}

#[test]
fn idle_tat_sketch_key_has_full_quota() {
    let sketch = TatSketch::try_new(Quota::per_minute(4), 1 << 10).unwrap();
    let mut now = Timestamp::from_nanos(START);
    // Half the range is the time of 32 bursts, each of one minute.
    for minutes in [1, 2, 31, 33, 40, 62, 65, 100, 1_000, 100_000] {
        assert!(sketch.check_at(1, 4, now).is_allowed(), "{minutes} min");
        assert!(sketch.check_at(1, 1, now).is_denied());
        now = now + Duration::from_secs(60 * minutes);
    }
}
