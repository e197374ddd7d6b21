//! The sketch store against the oracles.
//!
//! Properties, over random operations:
//! - With room for all keys, decisions and all figures equal the oracle's at any time. This also holds when time steps
//!   back by less than half of the range of the tags. Such a time counts as the beginning of the newest window in which
//!   the key was charged.
//! - Without room, while time does not step back, the key's own oracle admits every request that the store admits.
//!   That oracle knows no other key, so sharing can only deny more.
//! - Without room, even if time steps back or jumps, n consecutive windows admit at most n times the limit.
//! - A denied request is not charged: a limiter that never saw the denied requests decides the others the same.
//! - A peek returns the decision of the check and changes nothing. Batches decide like the single checks.

use proptest::prelude::*;
use proptest::sample::select;
use std::cell::Cell;
use tollgate::{
    Capacity, Decision, FixedWindow, ManualClock, Quota, RateLimiter, Sketch, SlidingWindow, Timestamp,
    WindowAlgorithm,
};
use tollgate_testing::compact::Seeded;
use tollgate_testing::kinds::{Kind, WINDOWS};
use tollgate_testing::laws;
use tollgate_testing::operations::{ops, run_cases, start};
use tollgate_testing::oracle::{Spec, Verdict};
use tollgate_testing::sketch::{LEAST, build, reach, sketch_of};
use tollgate_testing::steps::Op;
use tollgate_testing::subjects::{Subject, verdict};
use tollgate_testing::{HOUR, MINUTE, SEC, START};

const KEYS: u32 = 3;
const ROOMY: usize = 64 << 10;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;
/// The largest limits that fit a sliding and a fixed window.
const MOST_SLIDING: u64 = 65_407;
const MOST_FIXED: u64 = 8_573_190_079;

/// Limits around the sizes of counters, and windows from nanoseconds to years. Some combinations are refused.
fn spec() -> impl Strategy<Value = Spec> {
    let limit = prop_oneof![
        4 => 1_u64..=12,
        4 => select(vec![1, 2, 3, 127, 128, 129, 4_095, 4_096, MOST_SLIDING, MOST_FIXED]),
        1 => 1_u64..=1_000,
    ];
    let period = prop_oneof![
        6 => select(vec![SEC, 10 * SEC, MINUTE, HOUR, DAY, YEAR]),
        2 => select(vec![7, 64, 1_000, 1_024, 999_983, 1_000_000]),
        1 => 1_u64..=10_000_000_000,
    ];
    (limit, period).prop_map(|(limit, period_ns)| Spec::new(limit, period_ns))
}

/// The range of times of a stream. It is too short for tags to wrap.
struct Times {
    earliest: u64,
    latest: u64,
}

impl Times {
    fn around(start: u64, window_ns: u64) -> Self {
        let reach = reach(window_ns) / 2;
        Self { earliest: start.saturating_sub(reach), latest: start.saturating_add(reach).min(1 << 62) }
    }

    fn within(&self, now: u64) -> u64 {
        now.clamp(self.earliest, self.latest)
    }
}

/// The decision and all its figures equal the oracle's.
fn agrees(kind: Kind, spec: Spec, start: u64, ops: &[Op], limiter: &dyn Subject) {
    let times = Times::around(start, spec.period_ns);
    let mut oracles: Vec<_> = (0..KEYS).map(|_| kind.oracle(spec)).collect();
    let mut now = start;
    for op in ops {
        let oracle = &mut *oracles[op.key as usize];
        now = times.within(op.step.apply(now, spec, oracle));
        let cost = op.cost.apply(now, oracle);
        let request = laws::Request { kind, key: op.key, cost, now, at: now, layout: None };
        laws::agrees(limiter, oracle, &request, verdict);
    }
}

fn with_room(kind: Kind, backward: bool) {
    let cases = (spec(), start(), ops(KEYS, 60, backward));
    let held = run_cases(kind, 128, &cases, |(spec, start, ops)| {
        let Some(Ok(limiter)) = sketch_of(kind, spec, ROOMY) else { return false };
        agrees(kind, spec, start, &ops, &*limiter);
        true
    });
    assert!(held > 0.5, "{kind:?} refused most quotas: {held} were accepted");
}

#[test]
fn roomy_sketch_decides_as_oracle() {
    WINDOWS.into_iter().for_each(|kind| with_room(kind, false));
}

// G39
#[test]
fn roomy_sketch_decides_as_oracle_after_step_back() {
    WINDOWS.into_iter().for_each(|kind| with_room(kind, true));
}

/// A key, the time since the previous request in hundredths of the window, and the cost.
type Request = (u16, i32, u64);

/// A `Request` before its cost is known: if the flag is set, the cost is a number of sixteenths of the limit.
type Asked = (u16, i32, u64, bool);

const CROWD: u16 = 400;

/// Requests in which a few keys are frequent and many keys are rare. A window ends now and then.
fn requests(backward: bool) -> impl Strategy<Value = Vec<Asked>> {
    let key = prop_oneof![1 => 0..8_u16, 2 => 0..CROWD];
    let back = u32::from(backward);
    let step = prop_oneof![
        300 => Just(0),
        10 => 0..10_i32,
        1 => 0..250_i32,
        10 * back => -120..0_i32,
        3 * back => -400..0_i32,
    ];
    let cost = prop_oneof![
        3 => Just((1, false)),
        1 => (0..4_u64, Just(false)),
        3 => (1..=16_u64, Just(true)),
    ];
    let asked = (key, step, cost).prop_map(|(key, step, (cost, share))| (key, step, cost, share));
    prop::collection::vec(asked, 300..500)
}

fn crowded_spec() -> impl Strategy<Value = Spec> {
    let limit = prop_oneof![1_u64..=3, 1_u64..=20, select(vec![127, 4_096, MOST_SLIDING])];
    let period = select(vec![SEC, MINUTE, DAY, 7_812_500, 77_777_777]);
    (limit, period).prop_map(|(limit, period_ns)| Spec::new(limit, period_ns))
}

/// The least memory that the store accepts, and a little more.
fn small() -> impl Strategy<Value = usize> {
    select(vec![LEAST, 400, 1_024])
}

/// The times of requests. The first time is in the middle of a window.
fn times(spec: Spec, requests: &[Request]) -> Vec<u64> {
    let mut now = START / spec.period_ns * spec.period_ns + spec.period_ns / 2;
    let step = |step: i32| spec.period_ns / 100 * u64::from(step.unsigned_abs());
    requests
        .iter()
        .map(|&(_, by, _)| {
            now = if by < 0 { now - step(by) } else { now + step(by) };
            now
        })
        .collect()
}

/// Runs a law on random streams of many keys in little memory.
fn without_room(kind: Kind, backward: bool, law: impl Fn(Spec, usize, &[Request])) {
    let cases = (crowded_spec(), small(), requests(backward));
    run_cases(kind, 48, &cases, |(spec, bytes, asked)| {
        let cost = |cost: u64, share| if share { (spec.limit * cost).div_ceil(16) } else { cost };
        let request = |&(key, step, units, share): &Asked| (key, step, cost(units, share));
        let requests: Vec<Request> = asked.iter().map(request).collect();
        law(spec, bytes, &requests);
        true
    });
}

fn crowded(kind: Kind, spec: Spec, bytes: usize) -> Box<dyn Subject> {
    sketch_of(kind, spec, bytes).expect("an ordinary quota").expect("an ordinary quota")
}

// G10
#[test]
fn full_sketch_admits_no_more_than_oracle() {
    for kind in WINDOWS {
        let (allowed, denied) = (Cell::new(0_u64), Cell::new(0_u64));
        without_room(kind, false, |spec, bytes, requests| {
            let limiter = crowded(kind, spec, bytes);
            let mut oracles: Vec<_> = (0..CROWD).map(|_| kind.oracle(spec)).collect();
            for (&(key, _, cost), now) in requests.iter().zip(times(spec, requests)) {
                let oracle = &mut oracles[usize::from(key)];
                let ours = verdict(&limiter.at(now).check_n(key.into(), cost));
                match (ours, oracle.peek(now, cost)) {
                    (Verdict::Allowed, Verdict::Denied) => {
                        panic!("admitted {cost} at {now} of key {key}, {spec:?} {bytes}, {oracle:?}");
                    }
                    (Verdict::Denied, Verdict::Allowed) => denied.set(denied.get() + 1),
                    (ours, own) => assert_eq!(ours, own, "{cost} at {now} of key {key}, {oracle:?}"),
                }
                if ours == Verdict::Allowed && cost > 0 {
                    oracle.charge(now.into(), cost);
                    allowed.set(allowed.get() + 1);
                }
            }
        });
        assert!(
            allowed.get() > 1_000 && denied.get() > 100,
            "{kind:?}: {allowed:?} admitted, {denied:?} wrongly denied"
        );
    }
}

/// A check whose time steps back is decided in the newest window that it reads, whichever key wrote it. So a key's
/// requests with times from window `a` on, made before any time after window `b` was seen, count in windows `a` to `b`.
// G10
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn n_windows_admit_at_most_n_limits() {
    for kind in WINDOWS {
        without_room(kind, true, |spec, bytes, requests| {
            let limiter = crowded(kind, spec, bytes);
            let mut newest = 0;
            // Key, window of the request's time, newest window so far, admitted cost.
            let mut admitted: Vec<(u16, u64, u64, u64)> = Vec::new();
            for (&(key, _, cost), now) in requests.iter().zip(times(spec, requests)) {
                newest = newest.max(now / spec.period_ns);
                if limiter.at(now).check_n(key.into(), cost).is_allowed() {
                    admitted.push((key, now / spec.period_ns, newest, cost));
                }
            }
            let windows = || admitted.iter().flat_map(|&(_, from, to, _)| [from, to]);
            let (first, last) = (windows().min().unwrap_or(0), windows().max().unwrap_or(0));
            for (a, b) in (first..=last).flat_map(|a| (a..=last.min(a + 3)).map(move |b| (a, b))) {
                for key in 0..CROWD {
                    let of_key = |&&(own, from, to, _): &&_| own == key && a <= from && to <= b;
                    let sum: u64 = admitted.iter().filter(of_key).map(|(.., cost)| cost).sum();
                    assert!(sum <= (b - a + 1) * spec.limit, "{sum} of key {key} in {a} to {b}: {spec:?}");
                }
            }
        });
    }
}

// G24
#[test]
fn sketch_denial_charges_nothing() {
    for kind in WINDOWS {
        without_room(kind, false, |spec, bytes, requests| {
            let (limiter, other) = (crowded(kind, spec, bytes), crowded(kind, spec, bytes));
            for (&(key, _, cost), now) in requests.iter().zip(times(spec, requests)) {
                let decided = limiter.at(now).check_n(key.into(), cost);
                if decided.is_allowed() {
                    assert_eq!(other.at(now).check_n(key.into(), cost), decided, "{spec:?}");
                }
            }
        });
    }
}

#[test]
fn sketch_peek_equals_check_and_changes_nothing() {
    for kind in WINDOWS {
        without_room(kind, true, |spec, bytes, requests| {
            let (limiter, other) = (crowded(kind, spec, bytes), crowded(kind, spec, bytes));
            for (&(key, _, cost), now) in requests.iter().zip(times(spec, requests)) {
                let key = key.into();
                // No peek uses a time that only one of the limiters has seen.
                let decided = other.at(now).check_n(key, cost);
                let peeked = limiter.at(now).peek_n(key, cost);
                assert_eq!(limiter.at(now).peek_n(key, cost), peeked);
                assert_eq!(peeked.outcome(), decided.outcome());
                assert_eq!(peeked.retry_after(), decided.retry_after());
                assert_eq!(limiter.at(now).check_n(key, cost), decided);
            }
        });
    }
}

/// Compares single checks by the clock, checks by hash and batches of every length, each on its own limiter.
fn batched<A: WindowAlgorithm>(algorithm: A, spec: Spec, bytes: usize, requests: &[Request]) {
    let clock = ManualClock::new(Timestamp::ZERO);
    let limiter = || build(algorithm.clone(), bytes, clock.clone()).expect("an ordinary quota");
    let limiters: [RateLimiter<Sketch<A, Seeded>, ManualClock>; 4] = std::array::from_fn(|_| limiter());
    let [single, by_hash, each, each_hash] = &limiters;
    for (chunk, now) in requests.chunk_by(|_, next| next.1 == 0).zip(times_of_chunks(spec, requests)) {
        clock.set(Timestamp::from_nanos(now));
        let decisions: Vec<Decision> =
            chunk.iter().map(|&(key, _, cost)| single.check_n(&key, cost)).collect();
        let by_hashes: Vec<Decision> =
            chunk.iter().map(|&(key, _, cost)| by_hash.check_hash(by_hash.hash(&key), cost)).collect();
        assert_eq!(by_hashes, decisions, "{spec:?}");
        let mut batch = Vec::new();
        each.check_each(chunk.iter().map(|(key, _, cost)| (key, *cost)), |decision| batch.push(decision));
        assert_eq!(batch, decisions, "{spec:?}");
        let hashes = chunk.iter().map(|&(key, _, cost)| (single.hash(&key), cost));
        batch.clear();
        each_hash.check_each_hash(hashes, |decision| batch.push(decision));
        assert_eq!(batch, decisions, "{spec:?}");
    }
    let keys: Vec<u16> = requests.iter().map(|request| request.0).collect();
    let mut many = Vec::new();
    each.check_each(keys.iter().map(|key| (key, 1)), |decision| many.push(decision));
    let decisions: Vec<Decision> = keys.iter().map(|key| single.check(key)).collect();
    assert_eq!(many, decisions, "{spec:?}");
}

/// The time of each chunk of requests. A request with a step of zero belongs to the chunk of the one before.
fn times_of_chunks(spec: Spec, requests: &[Request]) -> Vec<u64> {
    let times = times(spec, requests);
    requests
        .chunk_by(|_, next| next.1 == 0)
        .fold((Vec::new(), 0), |(mut chunks, at), chunk| {
            chunks.push(times[at]);
            (chunks, at + chunk.len())
        })
        .0
}

// G29
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn batches_equal_single_checks() {
    for kind in WINDOWS {
        without_room(kind, false, |spec, bytes, requests| {
            with_windows!(kind, spec, algorithm => batched(algorithm, spec, bytes, requests))
                .expect("an ordinary quota");
        });
    }
}

#[test]
fn cleared_sketch_starts_empty() {
    for kind in WINDOWS {
        without_room(kind, false, |spec, bytes, requests| {
            with_windows!(kind, spec, algorithm => {
                let clock = ManualClock::new(Timestamp::ZERO);
                let limiter = build(algorithm, bytes, clock.clone()).expect("an ordinary quota");
                let new = build(algorithm, bytes, clock.clone()).expect("an ordinary quota");
                let times = times(spec, requests);
                for (&(key, _, cost), now) in requests.iter().zip(&times) {
                    clock.set(Timestamp::from_nanos(*now));
                    let _ = limiter.check_n(&key, cost);
                }
                limiter.clear();
                assert_eq!(limiter.saturation(), new.saturation());
                for (&(key, _, cost), now) in requests.iter().zip(&times) {
                    clock.set(Timestamp::from_nanos(times[times.len() - 1].max(*now)));
                    assert_eq!(limiter.check_n(&key, cost), new.check_n(&key, cost));
                }
            })
            .expect("an ordinary quota");
        });
    }
}

/// Admits each unit up to the limit and denies the next. The next window admits the same number again.
#[test]
fn every_counter_size_counts_to_limit() {
    let limits = [1, 2, 3, 4, 7, 8, 9, 127, 128, 129, 255, 256, 257, 4_095, 4_096, MOST_SLIDING, MOST_FIXED];
    for (kind, limit) in WINDOWS.into_iter().flat_map(|kind| limits.map(|limit| (kind, limit))) {
        let spec = Spec::new(limit, HOUR);
        let Some(Ok(limiter)) = sketch_of(kind, spec, ROOMY) else {
            assert!(kind != Kind::Fixed && limit == MOST_FIXED, "{kind:?} refuses {limit}");
            continue;
        };
        // The times are two windows apart, so a sliding window has forgotten the previous usage.
        for now in [START, START + 2 * HOUR, START + 4 * HOUR] {
            for key in 0..4_u32 {
                let steps = limit.min(1 + u64::from(key) * 50);
                for _ in 1..steps {
                    assert!(limiter.at(now).check(key).is_allowed(), "{kind:?} {limit}");
                }
                let rest = limiter.at(now).peek_n(key, 0).remaining();
                assert_eq!(rest, limit + 1 - steps, "{kind:?} {limit}");
                assert!(limiter.at(now).check_n(key, rest + 1).is_denied() || rest == limit);
                assert!(limiter.at(now).check_n(key, limit + 1).is_never());
                assert!(limiter.at(now).check_n(key, rest).is_allowed(), "{kind:?} {limit}");
                assert!(limiter.at(now).check(key).is_denied(), "{kind:?} {limit}");
                assert!(limiter.at(now).check_n(key, 0).is_allowed(), "{kind:?} {limit}");
            }
        }
    }
}

#[test]
fn oversized_sketch_limit_is_refused_with_maximum() {
    let refused = |kind, limit| {
        let spec = Spec::new(limit, HOUR);
        sketch_of(kind, spec, ROOMY)
            .expect("a limit within the algorithm's range")
            .expect_err("too large")
            .to_string()
    };
    for (kind, most) in [(Kind::Fixed, MOST_FIXED), (Kind::Sliding, MOST_SLIDING)] {
        assert!(sketch_of(kind, Spec::new(most, HOUR), ROOMY).unwrap().is_ok());
        let error = refused(kind, most + 1);
        let told = error.replace(',', "");
        assert!(told.contains(&(most + 1).to_string()) && told.contains(&most.to_string()), "{error}");
    }
}

// G31
#[test]
fn state_stays_within_requested_memory() {
    for bytes in [LEAST, 1_000, 4_096, 100_000, 1 << 20] {
        for limit in [1, 5, 100, 4_000] {
            let quota = Quota::per_hour(limit);
            let fixed = build(FixedWindow::new(quota), bytes, ManualClock::default()).unwrap().state_bytes();
            let sliding =
                build(SlidingWindow::new(quota), bytes, ManualClock::default()).unwrap().state_bytes();
            for taken in [fixed, sliding] {
                assert!(taken <= bytes && taken * 10 >= bytes * 6, "{taken} of {bytes} for {limit}");
            }
        }
    }
    assert!(
        RateLimiter::builder(FixedWindow::new(Quota::per_hour(5)))
            .capacity(Capacity::memory(1 << 60))
            .sketch()
            .is_err()
    );
}

#[test]
fn invalid_sketch_capacity_is_refused_with_advice() {
    for (capacity, problem, advice) in
        [(Capacity::memory(255), "255 bytes", "at least 256"), (Capacity::slots(1_000), "no slots", "4MiB")]
    {
        let window = FixedWindow::new(Quota::per_hour(10));
        let error = RateLimiter::builder(window).capacity(capacity).sketch().unwrap_err().to_string();
        assert!(error.contains(problem) && error.contains(advice), "{error}");
    }
}

#[test]
fn sliding_window_doubles_traffic_size() {
    // A minimum size applies to any small amount of traffic.
    for (traffic, quota, least) in
        [(50_000, Quota::per_minute(100), 40 * 30_000), (1, Quota::per_second(100), 64 << 10)]
    {
        let capacity = Capacity::for_traffic(traffic, &quota);
        let fixed = RateLimiter::builder(FixedWindow::new(quota)).capacity(capacity).sketch().unwrap();
        let sliding = RateLimiter::builder(SlidingWindow::new(quota)).capacity(capacity).sketch().unwrap();
        let (fixed, sliding) = (fixed.state_bytes(), sliding.state_bytes());
        assert!((least - 256..=least).contains(&fixed), "{fixed} bytes");
        assert!((2 * fixed - 256..=2 * fixed + 256).contains(&sliding) || traffic == 1, "{sliding} bytes");
    }
}
