//! Quotas that change while a limiter is in use.

use std::time::Duration;
use tollgate::{
    Builder, Carry, Clock, Decision, FixedWindow, Gcra, ManualClock, MinimumSpacing, Quota, SlidingLog,
    SlidingWindow, Timestamp, TokenBucket, check_all,
};
use tollgate_testing::compact::policies;
use tollgate_testing::kinds::{ALL, COMPACT, Kind};
use tollgate_testing::oracle::Spec;
use tollgate_testing::{HOUR, build};

/// The start of a day, so that no window ends during a test.
const START: Timestamp = Timestamp::from_secs(19_700 * 86_400);

fn clock() -> ManualClock {
    ManualClock::new(START)
}

/// For each policy: the units that remain in a new burst of 200 and in a new burst of 20, when 40 of 100 remained
/// before the change. The values are from Bucket4j's table.
const VECTORS: [(Carry, u64, u64); 5] = [
    (Carry::AsIs, 40, 20),
    (Carry::Proportional, 80, 8),
    (Carry::Additive, 140, 20),
    (Carry::Reset, 200, 20),
    (Carry::Used, 140, 0),
];

/// Uses 60 of 100 units, changes the quota, and returns the units that remain.
macro_rules! left {
    ($limiter:expr, $carry:expr, $to:expr) => {{
        let limiter = $limiter.adjustable();
        assert_eq!(limiter.check_n("alice", 60).remaining(), 40);
        limiter.set_quota(&Quota::per_day($to), $carry).unwrap();
        let left = limiter.peek("alice").remaining();
        assert_eq!(limiter.peek("bob").remaining(), $to, "a key without a debt has the full burst");
        // The check decides by the same figures that the peek shows.
        assert!(limiter.check_n("alice", left + 1).is_denied());
        assert!(limiter.check_n("alice", left).is_allowed());
        left
    }};
}

// G49
#[test]
fn carry_table_holds_for_all_limiters() {
    let spec = Spec::new(100, 24 * HOUR);
    // The turns of a queue and of a spacing, and the first units of an adaptive bucket, are no debts of units.
    let has_units = |kind: &Kind| !matches!(kind, Kind::Queue | Kind::Spacing | Kind::Adaptive(_));
    let changes =
        VECTORS.into_iter().flat_map(|(carry, of_200, of_20)| [(carry, 200, of_200), (carry, 20, of_20)]);
    for (carry, to, expected) in changes {
        let clock = clock();
        let check =
            |store: &str, kind: Kind, left| assert_eq!(left, expected, "{store} {kind:?} {carry:?} to {to}");
        for kind in ALL.into_iter().filter(has_units) {
            with_algorithm!(kind, spec, algorithm => {
                check("keyed", kind, left!(build(algorithm, &clock).keyed::<String>(), carry, to));
                let direct = build(algorithm, &clock).direct().adjustable();
                assert!(direct.check_n(60).is_allowed());
                direct.set_quota(&Quota::per_day(to), carry).unwrap();
                check("direct", kind, direct.peek_n(1).remaining());
            })
            .expect("an ordinary quota");
        }
        for kind in COMPACT.into_iter().filter(has_units) {
            for &overflow in policies(kind) {
                with_compact!(kind, spec, algorithm => {
                    let build = build(algorithm, &clock).overflow(overflow);
                    check("compact", kind, left!(build.compact().unwrap(), carry, to));
                })
                .expect("an ordinary quota");
            }
        }
    }
}

/// From the change on, time pays at the new rate, however late the key is looked up.
// G49
#[test]
fn debt_is_paid_at_new_rate_after_change() {
    let clock = clock();
    let limiter = build(Gcra::new(Quota::per_minute(60)), &clock).compact().unwrap().adjustable();
    for key in ["early", "late"] {
        assert!(limiter.check_n(key, 60).is_allowed());
    }
    clock.advance(Duration::from_secs(30));
    // 30 of 60 units remain. From now on the quota has ten times the rate and ten times the burst.
    limiter.set_quota(&Quota::per_minute(600), Carry::Additive).unwrap();
    assert_eq!(limiter.peek("early").remaining(), 570);
    clock.advance(Duration::from_secs(1));
    assert_eq!(limiter.peek("early").remaining(), 580);
    assert_eq!(
        limiter.peek("late").remaining(),
        580,
        "the result does not depend on when the key is first looked up"
    );
    clock.advance(Duration::from_secs(3));
    assert_eq!(limiter.peek("late").remaining(), 600);
}

/// Checks the table in the documentation of `Carry`.
// G49
#[test]
fn alternating_bursts_forgive_at_most_difference() {
    let forgiven = |carry: Carry, owed: u64| {
        let limiter = build(Gcra::new(Quota::per_day(40)), &clock()).keyed::<u64>().adjustable();
        let owes = || 40 - limiter.peek(&1).remaining();
        assert!(limiter.check_n(&1, owed).is_allowed());
        for burst in [20, 40] {
            limiter.set_quota(&Quota::per_day(40).burst(burst), carry).unwrap();
        }
        let after = owes();
        // A change of the rate alone forgives nothing.
        limiter.set_quota(&Quota::per_day(20).burst(40), carry).unwrap();
        limiter.set_quota(&Quota::per_day(40), carry).unwrap();
        assert!(owes() >= after, "{carry:?} {owed}");
        owed.saturating_sub(after)
    };
    for owed in 1..=40 {
        assert_eq!(forgiven(Carry::AsIs, owed), if owed <= 20 { owed } else { 0 }, "as is {owed}");
        assert_eq!(forgiven(Carry::Proportional, owed), 0, "proportional {owed}");
        assert_eq!(forgiven(Carry::Additive, owed), owed.min(20), "additive {owed}");
        assert_eq!(forgiven(Carry::Used, owed), owed.saturating_sub(20), "used {owed}");
    }
}

#[test]
fn successive_changes_carry_unpaid_debt() {
    let clock = clock();
    let limiter = build(Gcra::new(Quota::per_day(100)), &clock).keyed::<String>().adjustable();
    for key in ["asks between", "does not"] {
        assert!(limiter.check_n(key, 60).is_allowed());
    }
    limiter.set_quota(&Quota::per_day(200), Carry::AsIs).unwrap();
    assert_eq!(limiter.peek("asks between").remaining(), 40);
    limiter.set_quota(&Quota::per_day(50), Carry::Proportional).unwrap();
    limiter.set_quota(&Quota::per_day(100), Carry::Additive).unwrap();
    for key in ["asks between", "does not"] {
        // Remaining units after each quota: 40 of 100; 40 of 200; 10 of 50; 60 of 100.
        assert_eq!(limiter.peek(key).remaining(), 60, "{key}");
    }
    limiter.set_quota(&Quota::per_day(7), Carry::Reset).unwrap();
    assert_eq!(limiter.peek("does not").remaining(), 7);
}

#[test]
fn debt_above_burst_is_carried_over() {
    let clock = clock();
    let limiter = build(Gcra::new(Quota::per_minute(60)), &clock).keyed::<String>().adjustable();
    assert_eq!(limiter.charge_unchecked("alice", 160).cost(), 160);
    limiter.set_quota(&Quota::per_minute(120), Carry::Additive).unwrap();
    // The key owes 160 units with a burst of 120, and time pays two units a second. The excess is paid after 20 s,
    // and the first unit conforms half a second later.
    let denied = limiter.check("alice");
    assert_eq!(denied.retry_after(), Some(Duration::from_millis(20_500)));
    // This debt lasts longer than a full burst takes to refill. Keys that come late still read the old state.
    assert_eq!(limiter.charge_unchecked("bob", 1_000).cost(), 1_000);
    limiter.set_quota(&Quota::per_minute(60), Carry::AsIs).unwrap();
    clock.advance(Duration::from_secs(120));
    assert!(
        limiter.check("bob").is_denied(),
        "bob owed 940 units of a burst of 60, and 120 s paid only 120 of them"
    );
}

#[test]
fn forget_past_and_time_clear_debts() {
    let clock = clock();
    let limiter = build(FixedWindow::new(Quota::per_minute(10)), &clock).compact().unwrap().adjustable();
    assert!(limiter.check_n("alice", 10).is_allowed());
    limiter.set_quota(&Quota::per_minute(10), Carry::AsIs).unwrap();
    assert!(limiter.check("alice").is_denied());
    assert!(limiter.check_n("bob", 10).is_allowed());
    limiter.set_quota(&Quota::per_minute(10), Carry::AsIs).unwrap();
    limiter.forget_past();
    assert!(limiter.check("bob").is_allowed(), "`forget_past` drops the debts from before the change");
    clock.advance(Duration::from_secs(60));
    assert_eq!(limiter.peek("alice").remaining(), 10);
}

/// An adaptive server may change its quota every second. A limiter keeps at most one old state.
///
/// A compact limiter without enough room is the exception: it keeps every old store with an unpaid debt. After 64
/// such stores it refuses further changes.
#[test]
fn quota_changes_keep_few_old_states() {
    let clock = clock();
    let direct = build(Gcra::new(Quota::per_day(100)), &clock).direct().adjustable();
    let keyed = build(Gcra::new(Quota::per_day(100)), &clock).keyed::<String>().adjustable();
    assert!(direct.check_n(60).is_allowed() && keyed.check_n("alice", 60).is_allowed());
    assert_eq!(
        keyed.wait("bob").block().map(|turn| turn.remaining()),
        Ok(99),
        "bob is admitted at once, and a finished wait keeps no old state"
    );
    for change in 0..2_000_u64 {
        let quota = Quota::per_day(100 + change % 2);
        direct.set_quota(&quota, Carry::AsIs).unwrap();
        keyed.set_quota(&quota, Carry::AsIs).unwrap();
    }
    // 40 units remain, of 100 or of 101.
    assert_eq!(direct.peek_n(1).remaining(), 40);
    assert_eq!(keyed.peek("alice").remaining(), 40);

    let compact = build(Gcra::new(Quota::per_day(100)), &clock).compact().unwrap().adjustable();
    let keys = || (0..500_u64).map(|key| (key, 1 + key % 100));
    keys().for_each(|(key, cost)| assert!(compact.check_n(&key, cost).is_allowed()));
    for change in 0..100 {
        compact.set_quota(&Quota::per_day(100 + change % 2), Carry::Used).unwrap();
    }
    keys().for_each(|(key, cost)| assert_eq!(compact.peek(&key).remaining(), 101 - cost, "{key}"));

    // The table is full, so some debts are spilled, and the keys of spilled debts cannot be listed.
    let full = build(Gcra::new(Quota::per_day(100)), &clock).capacity(64);
    let compact = full.compact().unwrap().adjustable();
    assert!(compact.check_n("alice", 60).is_allowed());
    (0..400_u64).for_each(|key| assert!(!compact.check_n(&key, 90).is_never()));
    let left = compact.peek("alice").remaining();
    let change = || compact.set_quota(&Quota::per_day(100), Carry::AsIs);
    for _ in 0..64 {
        change().unwrap();
    }
    let error = change().unwrap_err().to_string();
    assert!(error.contains("64 earlier changes") && error.contains("forget_past"), "{error}");
    assert!(!error.contains("  "), "the message has a run of spaces: {error}");
    assert!(
        left <= 40 && compact.peek("alice").remaining() <= left,
        "the debt is kept through 64 old stores"
    );
    compact.set_quota(&Quota::per_day(50), Carry::Reset).unwrap();
    assert_eq!(compact.peek("alice").remaining(), 50);
    clock.advance(Duration::from_secs(86_400));
    for _ in 0..100 {
        change().unwrap();
        clock.advance(Duration::from_secs(86_400));
    }
}

// G49
#[test]
fn old_quota_charge_is_not_refunded() {
    let clock = clock();
    let limiter = build(Gcra::new(Quota::per_day(10)), &clock).keyed::<String>().adjustable();
    let charge = limiter.check_n("alice", 5);
    assert_eq!(limiter.refund("alice", &charge), 5, "a charge under the current quota is refunded");
    let charge = limiter.check_n("alice", 5);
    limiter.set_quota(&Quota::per_day(100), Carry::Additive).unwrap();
    assert_eq!(limiter.refund("alice", &charge), 0);
    assert_eq!(limiter.peek("alice").remaining(), 95);
    clock.advance(Duration::from_secs(1));
    let charge = limiter.check_n("alice", 5);
    assert_eq!(limiter.refund("alice", &charge), 5);
}

#[test]
fn invalid_quota_change_has_no_effect() {
    let clock = clock();
    let limiter = build(SlidingLog::new(Quota::per_day(10)), &clock).keyed::<String>().adjustable();
    assert!(limiter.check_n("alice", 4).is_allowed());
    let error = limiter.set_quota(&Quota::per_day(1_000_000), Carry::Reset).unwrap_err();
    assert!(error.to_string().contains("65536"), "{error}");
    assert_eq!(limiter.peek("alice").remaining(), 6);
}

#[test]
fn quota_change_keeps_algorithm_options() {
    let clock = clock();
    // An aligned bucket refills at half past each hour, before and after the change.
    let half_past = START + Duration::from_secs(1_800);
    let limiter = build(TokenBucket::aligned(Quota::per_hour(10), half_past), &clock).direct().adjustable();
    limiter.set_quota(&Quota::per_hour(20), Carry::Reset).unwrap();
    assert!(limiter.check_n(20).is_allowed());
    assert_eq!(limiter.check_n(1).retry_after(), Some(Duration::from_secs(1_800)));

    let spacing = build(MinimumSpacing::new(Duration::from_secs(10)), &clock).direct().adjustable();
    assert!(spacing.check().is_allowed());
    spacing.set_quota(&Quota::per_minute(1), Carry::AsIs).unwrap();
    assert_eq!(
        spacing.check_n(1).retry_after(),
        Some(Duration::from_secs(60)),
        "a spacing limiter admits one event in each period"
    );
}

#[test]
fn quota_change_at_given_time() {
    let limiter = build(Gcra::new(Quota::per_minute(60)), &clock()).compact().unwrap().adjustable();
    let at = |seconds: u64| Timestamp::from_secs(1_000 + seconds);
    assert!(limiter.at(at(0)).check_n("alice", 60).is_allowed());
    limiter.at(at(10)).set_quota(&Quota::per_minute(30), Carry::AsIs).unwrap();
    assert_eq!(limiter.at(at(10)).peek("alice").remaining(), 10);
    assert_eq!(limiter.at(at(20)).peek("alice").remaining(), 15);
}

/// A check that was held up during changes is decided as of a time before them. It is admitted no second time in a
/// window that has ended.
#[test]
fn check_dated_before_changes_gets_no_more_windows() {
    let quota = Quota::per_second(10);
    let at = |ms: u64| START + Duration::from_millis(ms);
    for changes in 1..=3 {
        let admitted = |check: &dyn Fn(u64) -> Decision, change: &dyn Fn(u64)| -> u64 {
            let all = |ms: u64| (0..20).map(|_| u64::from(check(ms).is_allowed())).sum::<u64>();
            let before = all(999);
            (0..changes).for_each(|number| change(1_001 + number));
            before + all(999) + all(1_010)
        };
        let direct = build(FixedWindow::new(quota), &clock()).direct().adjustable();
        let keyed = build(FixedWindow::new(quota), &clock()).keyed::<u64>().adjustable();
        let compact = build(FixedWindow::new(quota), &clock()).compact().unwrap().adjustable();
        let change = |ms| direct.at(at(ms)).set_quota(&quota, Carry::Proportional).unwrap();
        assert_eq!(admitted(&|ms| direct.at(at(ms)).check(), &change), 20, "direct, {changes} changes");
        let change = |ms| keyed.at(at(ms)).set_quota(&quota, Carry::Proportional).unwrap();
        assert_eq!(admitted(&|ms| keyed.at(at(ms)).check(&1), &change), 20, "keyed, {changes} changes");
        let change = |ms| compact.at(at(ms)).set_quota(&quota, Carry::Proportional).unwrap();
        assert_eq!(admitted(&|ms| compact.at(at(ms)).check(&1), &change), 20, "compact, {changes} changes");
    }
}

#[test]
fn adjustable_limiter_in_joint_check() {
    let clock = clock();
    let changing = build(Gcra::new(Quota::per_day(3)), &clock).compact().unwrap().adjustable();
    let fixed = build(Gcra::new(Quota::per_day(5)), &clock).compact().unwrap();
    let ask = || check_all((changing.on("alice"), fixed.on("alice")));
    let left = |each: &[Decision]| each.iter().map(Decision::remaining).collect::<Vec<_>>();
    assert_eq!(left(ask().each()), [2, 4]);
    changing.set_quota(&Quota::per_day(1), Carry::AsIs).unwrap();
    assert_eq!(left(ask().each()), [0, 3]);
    let refused = ask();
    assert_eq!((refused.denied_by(), left(refused.each())), (Some(0), vec![0, 3]));
    assert_eq!(changing.clock().now(), START);
}

/// Regression tests: each shows a debt that a change of the quota once lost.
mod regressions {
    use super::*;
    use tollgate::{LeakyBucketQueue, WhenFull, joint::AllOf};

    /// Cause: the carried debt asked for room at the time of the change, when the other key still owed. Then the
    /// check made room at the current time.
    #[test]
    fn capped_key_without_room_keeps_debt() {
        let clock = clock();
        let limiter = build(Gcra::new(Quota::per_hour(10)), &clock).max_keys(1, WhenFull::Deny);
        let limiter = limiter.keyed::<String>().adjustable();
        assert!(limiter.check_n("a", 10).is_allowed());
        limiter.set_quota(&Quota::per_hour(10), Carry::AsIs).unwrap();
        assert!(limiter.check("b").is_allowed());
        assert!(limiter.check_n("a", 1).is_denied(), "key b has the only place");
        clock.advance(Duration::from_secs(361));
        assert!(limiter.check_n("a", 10).is_denied(), "key a owes nine units");
        assert!(limiter.check_n("a", 1).is_allowed());
    }

    /// Cause: spilled debts were looked up at the current time. By then they counted as paid, at the old rate.
    // G49
    #[test]
    fn spilled_debts_survive_quota_change() {
        let clock = clock();
        let limiter = build(Gcra::new(Quota::per_second(100)), &clock).capacity(4_096);
        let limiter = limiter.compact().unwrap().adjustable();
        for key in 0..6_000 {
            assert!(limiter.check_n(&key, 100).is_allowed() || key > 100);
        }
        limiter.set_quota(&Quota::per_hour(100), Carry::AsIs).unwrap();
        clock.advance(Duration::from_secs(5));
        let again = (0..6_000).filter(|key| limiter.check_n(key, 90).is_allowed()).count();
        assert_eq!(again, 0, "no key has paid more than one unit at the new rate");
    }

    /// Cause: the middle store was read at the time of the second change, but it forgot the debts of the first store
    /// at the time of the third change.
    #[test]
    fn spilled_debts_survive_two_changes() {
        let clock = clock();
        let limiter = build(Gcra::new(Quota::per_minute(100)), &clock).capacity(64);
        let limiter = limiter.compact().unwrap().adjustable();
        (0..2_000).for_each(|key| assert!(!limiter.check_n(&key, 100).is_never()));
        assert_eq!(
            limiter.peek(&77_777).remaining(),
            0,
            "the spill is saturated, so a key that never came also reads as in debt"
        );
        for per_minute in [90, 1] {
            limiter.set_quota(&Quota::per_minute(per_minute).burst(100), Carry::Used).unwrap();
        }
        clock.advance(Duration::from_secs(180));
        limiter.set_quota(&Quota::per_minute(100), Carry::Used).unwrap();
        for key in (0..2_000).chain([77_777]) {
            assert!(limiter.peek(&key).remaining() <= 3, "{key}: time pays one unit a minute, not ninety");
        }
    }

    /// Two changes, with no lookup of the key between them. Cause: the oldest store was read only as long as its own
    /// keys owed.
    // G49
    #[test]
    fn spilled_overdraft_survives_two_changes() {
        let clock = clock();
        let limiter = build(Gcra::new(Quota::per_second(10)), &clock).capacity(64).overdraft(2_000);
        let limiter = limiter.compact().unwrap().adjustable();
        assert_eq!(limiter.charge_unchecked("a", 1_000).cost(), 1_000);
        // Some debts are spilled, so the limiter cannot list the keys.
        (0..2_000).for_each(|key| assert!(!limiter.check_n(&key, 10).is_never()));
        for _ in 0..2 {
            limiter.set_quota(&Quota::per_second(10), Carry::AsIs).unwrap();
        }
        clock.advance(Duration::from_secs(4));
        let denied = limiter.check("a");
        assert_eq!(
            denied.retry_after(),
            Some(Duration::from_millis(95_100)),
            "the key owes 960 units, and one more unit conforms when it owes 9"
        );
        clock.advance(Duration::from_secs(96));
        assert!(limiter.check_n("a", 10).is_allowed());
    }

    /// A paid debt no longer keeps old stores. Changes therefore always succeed if they are slower than a burst
    /// refills.
    #[test]
    fn spilled_overdraft_is_forgotten_once_paid() {
        let clock = clock();
        let limiter = build(Gcra::new(Quota::per_second(10)), &clock).capacity(64).overdraft(2_000);
        let limiter = limiter.compact().unwrap().adjustable();
        assert_eq!(limiter.charge_unchecked("a", 1_000).cost(), 1_000);
        (0..2_000).for_each(|key| assert!(!limiter.check_n(&key, 10).is_never()));
        for change in 0..200 {
            clock.advance(Duration::from_secs(3));
            limiter.set_quota(&Quota::per_second(10), Carry::AsIs).unwrap_or_else(|_| panic!("{change}"));
        }
    }

    #[test]
    fn debt_survives_conversion_to_adjustable() {
        let clock = clock();
        let limiter = build(Gcra::new(Quota::per_minute(60)), &clock).keyed::<String>();
        assert_eq!(limiter.charge_unchecked("a", 1_000).cost(), 1_000);
        let limiter = limiter.adjustable();
        limiter.set_quota(&Quota::per_minute(60), Carry::AsIs).unwrap();
        clock.advance(Duration::from_secs(61));
        assert_eq!(limiter.check("a").retry_after(), Some(Duration::from_secs(1_000 - 61 - 60 + 1)));
    }

    /// Cause: the old state was read only for the time of one spacing, as if five turns were one.
    #[test]
    fn quota_change_keeps_spacing_turns() {
        macro_rules! delays {
            ($make:expr) => {
                [0, 9].map(|later| {
                    let (clock, hour) = (clock(), Duration::from_secs(3_600));
                    let limiter =
                        $make(build(MinimumSpacing::new(Duration::from_secs(2)), &clock)).adjustable();
                    (0..5).for_each(|_| assert!(limiter.reserve("a", 1, hour).is_allowed()));
                    limiter.set_quota(&Quota::per_minute(30), Carry::AsIs).unwrap();
                    clock.advance(Duration::from_secs(later));
                    limiter.reserve("a", 1, hour).delay().as_secs()
                })
            };
        }
        // Five turns of two seconds each end at 10 s.
        type Build = Builder<MinimumSpacing, ManualClock>;
        assert_eq!(delays!(|build: Build| build.keyed::<String>()), [10, 1]);
        assert_eq!(delays!(|build: Build| build.overdraft(10).compact().unwrap()), [10, 1]);
    }

    #[test]
    fn sliding_window_debt_survives_change() {
        let clock = clock();
        let limiter = build(SlidingWindow::new(Quota::per_minute(10)), &clock).keyed::<String>().adjustable();
        assert_eq!(limiter.charge_unchecked("a", 30).cost(), 30);
        limiter.set_quota(&Quota::per_minute(10), Carry::AsIs).unwrap();
        clock.advance(Duration::from_secs(80));
        assert_eq!(limiter.peek("a").remaining(), 0, "20 of the 30 units still count");
    }

    /// The caller gives the times. The effect is the same as that of a clock reading from before the window's end.
    #[test]
    fn charge_after_change_time_is_carried() {
        let limiter = build(FixedWindow::new(Quota::per_minute(10)), &clock()).keyed::<String>().adjustable();
        let at = Timestamp::from_secs;
        assert!(limiter.at(at(61)).check_n("a", 10).is_allowed());
        limiter.at(at(59)).set_quota(&Quota::per_minute(10), Carry::AsIs).unwrap();
        assert!(limiter.at(at(62)).check("a").is_denied());
    }

    /// The caller gives a time that is more than a burst before the change.
    #[test]
    fn late_check_sees_carried_debt() {
        let limiter = build(Gcra::new(Quota::per_second(10)), &clock()).compact().unwrap().adjustable();
        let at = Timestamp::from_secs;
        assert!(limiter.at(at(1_000)).check_n("a", 10).is_allowed());
        limiter.at(at(1_000)).set_quota(&Quota::per_second(10), Carry::AsIs).unwrap();
        assert!(limiter.at(at(998)).check("a").is_denied());
        assert!(limiter.at(at(1_000)).check_n("a", 10).is_denied());
    }

    /// A request may be decided as of a time before the change. Its charge still belongs to the new quota, and is
    /// refunded in full.
    #[test]
    fn charge_dated_before_change_is_refundable() {
        let clock = clock();
        let limiter = build(Gcra::new(Quota::per_hour(2).burst(1)), &clock).direct().adjustable();
        clock.advance(Duration::from_secs(10));
        limiter.set_quota(&Quota::per_hour(1), Carry::AsIs).unwrap();
        let changed = clock.now();
        clock.advance(Duration::from_secs(10));
        let charge = limiter.at(START + Duration::from_secs(5)).check();
        assert!(charge.is_allowed() && charge.at() < changed);
        assert_eq!(limiter.refund(&charge), 1);
    }

    #[test]
    fn refund_after_change_at_given_time() {
        let limiter = build(Gcra::new(Quota::per_day(10)), &clock()).keyed::<String>().adjustable();
        let charge = limiter.check_n("a", 5);
        let before = Timestamp::from_secs(19_700 * 86_400 - 1);
        limiter.at(before).set_quota(&Quota::per_day(100), Carry::Additive).unwrap();
        assert_eq!(limiter.refund("a", &charge), 0);
        let charge = limiter.check_n("a", 5);
        assert_eq!(
            limiter.refund("a", &charge),
            5,
            "a charge after the change is refunded, even if the clock did not advance"
        );
    }

    /// The second change is as of a time before the first. So the debt was further ahead than a burst, and the compact
    /// table took its state for one from an earlier round.
    #[test]
    fn debt_survives_changes_out_of_order() {
        for step in (0..400).step_by(7) {
            let at = |us: u64| START + Duration::from_micros(1_000 * step + us);
            let quota = Quota::per_second(1);
            let limiter = build(Gcra::new(quota), &clock()).capacity(64).compact().unwrap().adjustable();
            assert!(limiter.at(at(0)).check("alice").is_allowed());
            for change_us in [3_000, 2_700] {
                limiter.at(at(change_us)).set_quota(&quota, Carry::Proportional).unwrap();
            }
            assert!(limiter.at(at(8_600)).check("alice").is_denied(), "{step} ms");
        }
    }

    /// A new key of an adaptive bucket starts with less than a full burst. The missing part is not a debt.
    #[test]
    fn new_adaptive_keys_carry_no_debt() {
        let clock = ManualClock::new(START + Duration::from_secs(1_200));
        let bucket = TokenBucket::aligned_adaptive(Quota::per_hour(400), START);
        let limiter = build(bucket, &clock).keyed::<String>().adjustable();
        assert!(limiter.check_n("alice", 66).is_allowed());
        limiter.set_quota(&Quota::per_hour(400), Carry::AsIs).unwrap();
        assert_eq!(limiter.peek("bob").remaining(), 266);
        assert_eq!(limiter.peek("alice").remaining(), 200);
    }

    #[test]
    fn joint_refund_of_queue_and_given_time() {
        let clock = clock();
        let queue = build(LeakyBucketQueue::new(Quota::per_second(1).burst(5)), &clock).direct();
        let day = build(Gcra::new(Quota::per_day(9)), &clock).direct();
        let limits = (queue.on(), day.on().cost(3));
        let first = check_all(limits);
        assert_eq!((first.at(), first.is_allowed()), (START, true));
        let second = check_all(limits);
        AllOf::new(limits).refund(&first);
        assert_eq!(
            (queue.peek_n(0).remaining(), day.peek_n(0).remaining()),
            (3, 6),
            "a request that is behind in the queue keeps its turn"
        );
        AllOf::new(limits).refund(&second);
        assert_eq!((queue.peek_n(0).remaining(), day.peek_n(0).remaining()), (4, 9));
        let yesterday = Timestamp::from_secs(1_000_000);
        let other = build(Gcra::new(Quota::per_day(9)), &clock).direct();
        let charge = AllOf::new((other.on(),)).at(yesterday).check();
        AllOf::new((other.on(),)).at(yesterday).refund(&charge);
        assert_eq!(other.at(yesterday).peek_n(0).remaining(), 9);
    }
}
