//! The compact store's own methods: batches, reset, gauges, sizes, hashers, and the quotas that it refuses.

use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::time::Duration;
use tollgate::{
    Capacity, Clock, Compact, CompactAlgorithm, Decision, FixedWindow, Gcra, ManualClock, MinimumSpacing,
    Overflow, Quota, QuotaError, RateLimiter, SlidingWindow, Timestamp, TokenBucket, stores::Gauges,
};
use tollgate_testing::SEC;
use tollgate_testing::compact::{POLICIES, Random, Seeded, build, policies};
use tollgate_testing::kinds::COMPACT;
use tollgate_testing::oracle::Spec;
use tollgate_testing::subjects::Constant;

const START: Timestamp = Timestamp::from_secs(1_700_000_000);

type Limiter<A = Gcra, H = Seeded> = RateLimiter<Compact<A, H>, ManualClock>;

fn per_minute(limit: u64, overflow: Overflow, slots: usize) -> (Limiter, ManualClock) {
    let clock = ManualClock::new(START);
    (build(Gcra::new(Quota::per_minute(limit)), overflow, Capacity::slots(slots), clock.clone()), clock)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

mod batches {
    use super::*;

    /// Keys and costs. Some keys repeat, and some costs are zero or above the burst.
    fn requests(random: &mut Random, keys: u64, len: u64) -> Vec<(u64, u64)> {
        let cost = |random: &mut Random| match random.below(12) {
            0 => 0,
            1 => u64::MAX,
            2..=5 => random.below(6),
            _ => 1,
        };
        (0..len).map(|_| (random.skewed(keys), cost(random))).collect()
    }

    /// Compares batches of all lengths with the same single calls on a twin limiter.
    fn law<A: CompactAlgorithm>(algorithm: A, overflow: Overflow, capacity: Capacity, seed: u64) {
        let clock = ManualClock::new(START);
        let twins = || build(algorithm.clone(), overflow, capacity, clock.clone());
        let (single, batched, hashed, many) = (twins(), twins(), twins(), twins());
        let mut random = Random(seed);
        for len in (0..70).chain([128, 200]) {
            let requests = requests(&mut random, 40, len);
            let now = clock.now();
            let told = || format!("{algorithm:?} {overflow:?} {capacity:?}, batch of {len}");
            let expected: Vec<Decision> =
                requests.iter().map(|(key, cost)| single.at(now).check_n(key, *cost)).collect();
            let mut decisions = Vec::new();
            batched.check_each(requests.iter().map(|(key, cost)| (key, *cost)), |decision| {
                decisions.push(decision);
            });
            assert_eq!(decisions, expected, "{}", told());
            decisions.clear();
            let by_hash = requests.iter().map(|(key, cost)| (hashed.hash(key), *cost));
            hashed.check_each_hash(by_hash, |decision| decisions.push(decision));
            assert_eq!(decisions, expected, "{} by hash", told());
            assert_eq!(batched.gauges(), single.gauges(), "{}", told());
            clock.advance(Duration::from_millis(random.below(3_000)));
        }
        // `check_each` charges one unit a key and appends its decisions.
        let keys: Vec<u64> = (0..100).map(|_| random.skewed(40)).collect();
        single.clear();
        let mut decisions = vec![many.peek(&7)];
        many.check_each(keys.iter().map(|key| (key, 1)), |decision| decisions.push(decision));
        let expected: Vec<Decision> = keys.iter().map(|key| single.check(key)).collect();
        assert_eq!(decisions[1..], expected, "{algorithm:?} {overflow:?} {capacity:?}");
    }

    // G29
    #[test]
    fn batches_decide_as_single_calls() {
        let spec = Spec::new(5, 10 * SEC);
        for (kind, seed) in COMPACT.into_iter().zip(0..) {
            with_compact!(kind, spec, algorithm => {
                for capacity in [Capacity::memory(1 << 16), Capacity::memory(512)] {
                    policies(kind).iter().for_each(|overflow| law(algorithm, *overflow, capacity, seed));
                }
            })
            .expect("an ordinary quota");
        }
    }
}

#[test]
fn hash_decides_as_its_key() {
    for overflow in POLICIES {
        let (limiter, clock) = per_minute(5, overflow, 16);
        let (twin, _) = per_minute(5, overflow, 16);
        let mut random = Random(1);
        for _ in 0..2_000 {
            let (key, cost) = (random.skewed(60), random.below(4));
            let now = clock.now();
            let hash = limiter.hash(&key);
            let (by_key, by_hash) = match random.below(3) {
                0 => (twin.at(now).check_n(&key, cost), limiter.check_hash(hash, cost)),
                1 => (twin.at(now).check_n(&key, cost), limiter.at(now).check_hash(hash, cost)),
                _ => {
                    let own = twin.tier(&Quota::per_minute(5)).unwrap();
                    (twin.at(now).check_with(&key, cost, &own), limiter.check_n(&key, cost))
                }
            };
            assert_eq!(by_hash, by_key, "{key} of {overflow:?}");
            clock.advance(Duration::from_millis(random.below(2_000)));
        }
    }
}

#[test]
fn borrowed_and_owned_text_share_a_key() {
    let (limiter, _) = per_minute(1, Overflow::Spill, 1_000);
    assert!(limiter.check("alice").is_allowed());
    assert!(limiter.check(&String::from("alice")).is_denied());
    assert!(limiter.check(&("alice", 7)).is_allowed());
    assert!(limiter.check(&7_u64).is_allowed());
    assert!(limiter.check(&[1_u8, 2][..]).is_allowed());
    assert!(limiter.check(&vec![1_u8, 2]).is_denied());
    assert!(limiter.check(&std::net::IpAddr::from([127, 0, 0, 1])).is_allowed());
}

// G24
#[test]
fn compact_peek_equals_check_and_changes_nothing() {
    for overflow in POLICIES {
        for slots in [8, 1_000] {
            let (limiter, clock) = per_minute(3, overflow, slots);
            let mut random = Random(slots as u64);
            for _ in 0..1_000 {
                let (key, cost) = (random.skewed(30), random.below(5));
                let before = (limiter.snapshot(), limiter.gauges());
                let peeked = limiter.peek_n(&key, cost);
                let again = limiter.at(clock.now()).peek_n(&key, cost);
                assert_eq!((peeked, limiter.snapshot(), limiter.gauges()), (again, before.0, before.1));
                let decided = limiter.check_n(&key, cost);
                assert_eq!(
                    (peeked.outcome(), peeked.retry_after()),
                    (decided.outcome(), decided.retry_after())
                );
                assert!(peeked.remaining() >= decided.remaining());
                clock.advance(Duration::from_millis(random.below(3_000)));
            }
        }
    }
}

#[test]
fn reset_clears_one_key_only() {
    for overflow in POLICIES {
        let (limiter, _) = per_minute(4, overflow, 1_000);
        for key in 0..50 {
            assert!(limiter.check_n(&key, 3).is_allowed());
        }
        assert!(limiter.reset(&7));
        assert!(!limiter.reset(&7), "the key owes nothing after the reset");
        assert!(!limiter.reset(&1_000), "the key was never seen");
        assert_eq!(limiter.live_slots(), 49);
        for key in 0..50 {
            assert_eq!(limiter.check_n(&key, 2).is_allowed(), key == 7, "{key} of {overflow:?}");
        }
        assert_eq!(limiter.live_slots(), 50);
    }
}

#[test]
fn clear_also_empties_spill_sketch() {
    for overflow in POLICIES {
        for capacity in [Capacity::slots(8), Capacity::memory(1 << 16)] {
            let clock = ManualClock::new(START);
            let limiter = build(Gcra::new(Quota::per_hour(2)), overflow, capacity, clock.clone());
            for round in 0..3 {
                for key in 0..500 {
                    let _ = limiter.check_n(&key, 2);
                }
                assert!(limiter.live_slots() > 0);
                limiter.clear();
                assert_eq!(limiter.live_slots(), 0);
                assert!(limiter.fill() == 0.0);
                for key in 0..500 {
                    assert_eq!(
                        limiter.peek(&key).remaining(),
                        2,
                        "{key}, round {round}, {overflow:?} {capacity:?}"
                    );
                }
            }
        }
    }
}

// G8
#[test]
fn roomy_table_counts_no_evictions() {
    for overflow in POLICIES {
        let (limiter, clock) = per_minute(5, overflow, 20_000);
        let mut random = Random(5);
        for _ in 0..20_000 {
            let _ = limiter.check(&random.skewed(2_000));
            clock.advance(Duration::from_millis(5));
        }
        let Gauges { slots, evicted, indebted, denied_for_debt, retreats, raced, .. } = limiter.gauges();
        assert!(slots >= 20_000, "{overflow:?}");
        assert_eq!([evicted, indebted, denied_for_debt, retreats, raced], [0; 5], "{overflow:?}");
    }
}

// G8
#[test]
fn full_bucket_events_are_counted() {
    // In one bucket, all keys owe. Each new key takes a slot, or is denied for the debt that it inherits.
    let one_bucket = |limit, overflow| {
        let clock = ManualClock::new(START);
        build(Gcra::new(Quota::per_minute(limit)), overflow, Capacity::memory(1), clock.clone())
    };
    for overflow in POLICIES {
        let limiter = one_bucket(1, overflow);
        let ways = limiter.gauges().slots as u64;
        let admitted = (0..100).filter(|key| limiter.check(key).is_allowed()).count() as u64;
        let Gauges { evicted, indebted, denied_for_debt, retreats, .. } = limiter.gauges();
        assert_eq!(denied_for_debt, 100 - admitted, "{overflow:?}");
        // A key that retreats has evicted another key, and leaves its slot to a later key. The last slot may stay free.
        let owe = limiter.live_slots() as u64;
        assert_eq!(evicted, admitted - owe, "{overflow:?}");
        assert!(owe == ways || owe + 1 == ways && retreats > 0, "{owe} of {ways}");
        assert!(ways < 50 && (retreats == 0 || overflow == Overflow::Spill));
        match overflow {
            Overflow::Forget => assert_eq!(admitted, 100),
            Overflow::Inherit => assert_eq!(admitted, ways),
            // The least that a sketch of 128 bytes, with four cells a key, can tell apart.
            _ => assert!(admitted > ways, "{admitted}"),
        }
        assert_eq!(indebted, 0, "{overflow:?}: with a burst of one, a key with a debt is denied");
    }
    let limiter = one_bucket(2, Overflow::Inherit);
    let ways = limiter.gauges().slots as u64;
    assert!((0..2 * ways).all(|key| limiter.check(&key).is_allowed()));
    assert_eq!((limiter.gauges().evicted, limiter.gauges().indebted), (ways, ways));
    assert!(limiter.fill() == 1.0);
}

// G32
#[test]
fn load_is_share_of_live_slots() {
    let (small, clock) = per_minute(1, Overflow::Forget, 4_096);
    assert!(small.fill() == 0.0);
    for key in 0..1_500 {
        let _ = small.check(&key);
    }
    let share = small.live_slots() as f64 / small.gauges().slots as f64;
    assert!((small.fill() - share).abs() < 1e-12, "all slots of a small table are counted");
    assert_eq!(small.live_slots(), 1_500);
    clock.advance(secs(60));
    assert!(small.fill() == 0.0);

    let (large, _) = per_minute(1, Overflow::Forget, 200_000);
    for key in 0..60_000 {
        let _ = large.check(&key);
    }
    let share = large.live_slots() as f64 / large.gauges().slots as f64;
    assert!((large.fill() - share).abs() < 0.04, "{} instead of {share}", large.fill());
}

/// The law behind the sizing advice: each admitted unit keeps its key live for one interval.
// G32
#[test]
fn live_slots_are_rate_times_interval() {
    let quota = Quota::per_second(1).burst(5);
    let interval = 1.0;
    let clock = ManualClock::new(START);
    let limiter = build(Gcra::new(quota), Overflow::Spill, Capacity::slots(40_000), clock.clone());
    let mut random = Random(9);
    let (mut admitted, mut seen, mut looks) = (0_u64, 0, 0_u64);
    let (step, steps) = (Duration::from_micros(250), 144_000_u64);
    for number in 0..steps {
        clock.advance(step);
        let allowed = limiter.check(&random.skewed(1 << 20)).is_allowed();
        // The table fills during the first six bursts.
        if number >= steps / 6 {
            admitted += u64::from(allowed);
            if number % 1_000 == 0 {
                seen += limiter.live_slots() as u64;
                looks += 1;
            }
        }
    }
    let rate = admitted as f64 / (step.as_secs_f64() * (steps * 5 / 6) as f64);
    let law = rate * interval;
    let measured = seen as f64 / looks as f64;
    assert!((measured / law - 1.0).abs() < 0.01, "{measured} live slots, expected {law}");
    // `Capacity::for_traffic` computes the same number.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few thousand")]
    let keys = Capacity::for_traffic(rate as u64, &quota).busy_keys().expect("a capacity for traffic") as f64;
    assert!((keys / law - 1.0).abs() < 0.01, "{keys} busy keys, expected {law}");
}

// G31
#[test]
fn requested_memory_is_kept_and_never_grows() {
    let clock = ManualClock::new(START);
    for overflow in POLICIES {
        let bytes_of =
            |capacity| build(Gcra::new(Quota::per_hour(9)), overflow, capacity, clock.clone()).state_bytes();
        let least = bytes_of(Capacity::memory(1));
        assert!(least <= 512, "{least} bytes");
        for bytes in (least..4_096).step_by(8) {
            let state = bytes_of(Capacity::memory(bytes));
            assert!(state <= bytes, "{state} bytes of {bytes}, {overflow:?}");
        }
    }
    for (text, bytes) in [("1KiB", 1 << 10), ("64 kB", 64_000), ("1.5MiB", 3 << 19)] {
        let capacity: Capacity = text.parse().expect("an amount of memory");
        for overflow in POLICIES {
            let limiter = build(Gcra::new(Quota::per_hour(9)), overflow, capacity, clock.clone());
            let state = limiter.state_bytes();
            assert!(state <= bytes, "{state} bytes of {text}, {overflow:?}");
            assert!(state * 10 > bytes * 9 || bytes < 4_096, "{state} bytes of {text}, {overflow:?}");
            for key in 0..2_000 {
                let _ = limiter.check(&key);
            }
            assert_eq!(limiter.state_bytes(), state);
        }
    }
    for slots in [0, 1, 8, 9, 1_000] {
        for overflow in POLICIES {
            let (limiter, _) = per_minute(1, overflow, slots);
            let own = limiter.gauges().slots;
            assert!(own >= slots.max(1) && own < slots + 64, "{own} slots instead of {slots}, {overflow:?}");
        }
    }
    let default = RateLimiter::new(Quota::per_second(1));
    assert!(default.state_bytes() <= 4 << 20 && default.state_bytes() > 3 << 20);
    assert!("4 pints".parse::<Capacity>().unwrap_err().to_string().contains("4MiB"));
}

#[test]
fn impossible_capacity_is_refused() {
    for overflow in POLICIES {
        for capacity in [
            Capacity::slots(usize::MAX),
            Capacity::slots(1 << 58),
            Capacity::memory(isize::MAX as usize),
            Capacity::for_traffic(u64::MAX, &Quota::per_day(1)),
        ] {
            let builder =
                RateLimiter::builder(Gcra::new(Quota::per_second(1))).capacity(capacity).overflow(overflow);
            let error = builder.compact().unwrap_err().to_string();
            assert!(error.contains("cannot allocate a table"), "{error}");
        }
    }
}

mod hashers {
    use super::*;

    /// Maps every key to one of two hashes.
    #[derive(Default)]
    struct Two(u64);

    impl Hasher for Two {
        fn finish(&self) -> u64 {
            if self.0 & 1 == 0 { 0 } else { u64::MAX }
        }
        fn write(&mut self, _: &[u8]) {}
        fn write_u64(&mut self, n: u64) {
            self.0 = n;
        }
    }

    fn hashed<H: BuildHasher>(hasher: H, overflow: Overflow) -> Limiter<Gcra, H> {
        RateLimiter::builder(Gcra::new(Quota::per_minute(5)))
            .clock(ManualClock::new(START))
            .hasher(hasher)
            .capacity(64)
            .overflow(overflow)
            .compact()
            .expect("an ordinary quota")
    }

    #[test]
    fn constant_hasher_makes_one_key() {
        for overflow in POLICIES {
            let limiter = hashed(BuildHasherDefault::<Constant>::default(), overflow);
            let admitted = (0..1_000_u64).filter(|key| limiter.check(key).is_allowed()).count();
            assert_eq!(admitted, 5);
            assert_eq!(limiter.live_slots(), 1);
            assert!(limiter.reset(&"absent"));
            assert!(limiter.check(&1).is_allowed());
        }
    }

    #[test]
    fn two_hashes_make_two_keys() {
        for overflow in POLICIES {
            let limiter = hashed(BuildHasherDefault::<Two>::default(), overflow);
            let admitted = |parity: u64| {
                (0..1_000_u64).filter(|n| limiter.check(&(2 * n + parity)).is_allowed()).count()
            };
            assert_eq!((admitted(0), admitted(1)), (5, 5));
            assert_eq!(limiter.live_slots(), 2);
        }
    }

    #[test]
    fn extreme_hashes_are_separate_keys() {
        for overflow in POLICIES {
            let (limiter, _) = per_minute(1, overflow, 1_000);
            // The lowest bits are the fingerprint. The fingerprints 0 and 1 are the same.
            let hashes = [0, 2, 3, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) | 2];
            for hash in hashes {
                assert!(limiter.check_hash(hash, 1).is_allowed(), "{hash:#x}");
                assert!(limiter.check_hash(hash, 1).is_denied(), "{hash:#x}");
            }
        }
    }
}

mod time {
    use super::*;

    /// Half a range later and more, up to the part of a range after which an old debt would be read again.
    // G42
    #[test]
    fn long_idle_key_has_full_quota() {
        const YEAR: u64 = 365 * 86_400;
        for overflow in POLICIES {
            for seconds in [60, 86_400, YEAR / 8, YEAR / 5, YEAR, 10 * YEAR + 13, 100 * YEAR] {
                let (limiter, clock) = per_minute(10, overflow, 100);
                assert!(limiter.check_n("by the clock", 10).is_allowed());
                assert!(limiter.at(START).check_n("by given times", 10).is_allowed());
                clock.advance(secs(seconds));
                assert_eq!(limiter.peek("by the clock").remaining(), 10, "{seconds} s later, {overflow:?}");
                assert!(limiter.check_n("by the clock", 10).is_allowed(), "{seconds} s later, {overflow:?}");
                assert!(limiter.at(clock.now()).check_n("by given times", 10).is_allowed());
                assert!(limiter.check("by the clock").is_denied());
            }
        }
    }

    // G40
    #[test]
    fn far_future_time_locks_out_no_key() {
        for overflow in POLICIES {
            let (limiter, clock) = per_minute(10, overflow, 100);
            for wrong in [Timestamp::MAX, Timestamp::from_secs(4_000_000_000), START + secs(3_600)] {
                assert!(limiter.at(wrong).check_n("wrong", 10).is_allowed(), "{overflow:?}");
                limiter.clear();
                for _ in 0..10 {
                    assert!(limiter.at(clock.now()).check("right").is_allowed(), "{overflow:?}");
                    assert!(limiter.check("by the clock").is_allowed(), "{overflow:?}");
                }
                assert!(limiter.at(clock.now()).check("right").is_denied());
                assert!(limiter.check("by the clock").is_denied());
                clock.advance(secs(60));
            }
        }
    }

    // G38, G87
    #[test]
    fn extreme_times_and_costs_do_not_panic() {
        let spec = Spec::new(1_000, 60 * SEC);
        for kind in COMPACT {
            with_compact!(kind, spec, algorithm => {
                let overflow = policies(kind)[0];
                let clock = ManualClock::new(Timestamp::ZERO);
                let limiter = build(algorithm, overflow, Capacity::slots(8), clock.clone());
                for now in [0, u64::MAX, 1, 1 << 63, u64::MAX - 1, 1_700_000_000 * SEC, 0] {
                    clock.set(Timestamp::from_nanos(now));
                    for cost in [0, 1, 500, 1_000, 1_001, u64::MAX] {
                        for key in 0..20 {
                            for decision in [limiter.peek_n(&key, cost), limiter.check_n(&key, cost)] {
                                let _ = (decision.remaining(), decision.retry_after(), decision.reset_after());
                                let _ = (decision.delay(), decision.limit(), format!("{decision:?}"));
                            }
                        }
                    }
                    assert!(limiter.restore(&limiter.snapshot()).is_ok());
                    let _ = (limiter.live_slots(), limiter.fill(), limiter.reset(&1), limiter.gauges());
                }
            })
            .expect("an ordinary quota");
        }
    }
}

mod refusals {
    use super::*;

    fn refusal<A: CompactAlgorithm>(algorithm: A) -> String {
        built(algorithm).unwrap_err().to_string()
    }

    fn number_after(text: &str, words: &str) -> u64 {
        let rest = text.split_once(words).unwrap_or_else(|| panic!("{words:?} is not in {text:?}")).1;
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().expect("a number")
    }

    /// Asserts that the largest value that the error names is accepted, and that the next value is refused.
    fn most(what: &str, build: impl Fn(u64) -> Result<(), QuotaError>) -> u64 {
        let error = build(1 << 40).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        let most = number_after(&error, "at most ");
        assert!(build(most).is_ok(), "{most} is named as the largest: {}", build(most).unwrap_err());
        let error = build(most + 1).unwrap_err().to_string();
        assert_eq!(number_after(&error, "at most "), most, "{error}");
        assert!(error.contains(&(most + 1).to_string()), "{error}");
        most
    }

    fn built<A: CompactAlgorithm>(algorithm: A) -> Result<(), QuotaError> {
        RateLimiter::builder(algorithm).compact().map(|_| ())
    }

    #[test]
    fn errors_name_largest_burst_and_limit() {
        let gcra = most("burst", |burst| built(Gcra::new(Quota::per_second(1_000).burst(burst))));
        let bucket = most("burst", |burst| built(TokenBucket::new(Quota::per_second(5_000).burst(burst))));
        assert_eq!((gcra, bucket), (1 << 33, 1 << 33));
        let sliding = most("limit", |limit| built(SlidingWindow::new(Quota::per_hour(limit))));
        let fixed = most("limit", |limit| built(FixedWindow::new(Quota::per_hour(limit))));
        assert!((65_000..65_535).contains(&sliding) && fixed > 1 << 32, "{sliding} {fixed}");
    }

    #[test]
    fn high_rate_error_names_highest() {
        // The highest rate of a quota.
        assert!(built(Gcra::new(Quota::per_second(32_000_000_000).burst(1))).is_ok());
        // With another quota in the same table, there is less room.
        let tiers = |rate| {
            let builder = RateLimiter::builder(Gcra::new(Quota::per_second(rate).burst(1)));
            builder.tiers([Quota::per_second(rate).burst(2)]).compact().map(|_| ())
        };
        let error = tiers(4_000_000_000).unwrap_err().to_string();
        assert!(error.contains("units a second") && error.contains("4000000000"), "{error}");
        let most = number_after(&error, "at most ");
        assert_eq!(most, 1 << 31);
        assert!(tiers(most).is_ok() && tiers(most + most / 8).is_err());
    }

    /// A gigabyte a second with a burst of one second, as servers ask for it: the burst is exact, and so is the rate.
    // G5
    #[test]
    fn gigabyte_a_second_is_limited() {
        const GB: u64 = 1_000_000_000;
        let limiter = RateLimiter::new(Quota::per_second(GB));
        let at = |ns| limiter.at(Timestamp::from_secs(1_000) + Duration::from_nanos(ns));
        assert!(at(0).check_n("alice", GB).is_allowed());
        assert_eq!(at(0).peek("alice").retry_after(), Some(Duration::from_nanos(1)));
        let admitted: u64 = (1..=1_000)
            .filter(|ms| at(ms * 1_000_000).check_n("alice", 1_500_000).is_allowed())
            .count() as u64;
        assert_eq!(admitted, 666, "of 1 GB in a second, in packets of 1.5 MB");
        assert!(at(GB).check_n("bob", GB + 1).is_never());
    }

    #[test]
    fn short_window_error_names_shortest() {
        for limit in [5_000, 60_000] {
            let window =
                |ns| SlidingWindow::try_new(Quota::new(limit, Duration::from_nanos(ns))).and_then(built);
            let error = window(20 * limit).unwrap_err().to_string();
            let least = number_after(&error, "at least ");
            assert!(window(least).is_ok(), "{least} ns is named as the shortest for {limit}, but is refused");
            assert!(
                window(least - 1).is_err(),
                "{least} ns is named as the shortest for {limit}, but a shorter one fits"
            );
        }
    }

    #[test]
    fn short_spill_window_error_names_policies() {
        let short = || FixedWindow::new(Quota::new(1_000, Duration::from_millis(1)));
        let error = refusal(short());
        assert!(error.contains("Overflow::Inherit") && error.contains("Overflow::Forget"), "{error}");
        for overflow in [Overflow::Inherit, Overflow::Forget] {
            assert!(RateLimiter::builder(short()).overflow(overflow).compact().is_ok());
        }
    }

    #[test]
    fn unsupported_algorithm_error_names_alternative() {
        let quota = Quota::per_minute(10);
        for (error, instead) in [
            (refusal(FixedWindow::from_first_use(quota)), "FixedWindow::new"),
            (refusal(TokenBucket::interval(quota)), "greedy"),
            (refusal(TokenBucket::aligned(quota, START)), "FixedWindow"),
            (refusal(TokenBucket::aligned_adaptive(quota, START)), "greedy"),
            (refusal(MinimumSpacing::new(Duration::ZERO)), "1 ns"),
        ] {
            assert!(
                error.contains("the store does not support this variant") && error.contains(instead),
                "{error}"
            );
        }
    }

    #[test]
    fn sliding_window_policy_error_names_forget() {
        for overflow in [Overflow::Spill, Overflow::Inherit] {
            let builder = RateLimiter::builder(SlidingWindow::new(Quota::per_minute(5))).overflow(overflow);
            let error = builder.compact().map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("use Overflow::Forget"), "{error}");
        }
        assert!(built(SlidingWindow::new(Quota::per_minute(5))).is_ok(), "the default policy is Forget");
    }
}
