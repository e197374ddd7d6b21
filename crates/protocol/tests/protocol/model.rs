//! What the model answers. The script gives the same answers: see `scripts`.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use tollgate::Quota;

use super::*;

const SEC: u64 = 1_000_000;
const NOW: u64 = 1_700_000_000 * SEC;

/// One key, and the limit under which it is asked.
struct Key(Arc<Plan>, Model);

impl Key {
    fn new(limit: Limit) -> Self {
        Self(plan(&[limit]), Model::default())
    }

    fn reply(&self, ask: Question, now_us: u64) -> Reply {
        self.1.call(&call("k", &self.0, ask, Some(now_us)))
    }

    fn ask(&self, ask: Question, now_us: u64) -> u64 {
        self.reply(ask, now_us).granted
    }

    fn check(&self, cost: u64, now_us: u64) -> bool {
        self.ask(Question::Check { cost }, now_us) == cost
    }

    fn remaining(&self, now_us: u64) -> u64 {
        self.0.remaining(&self.reply(Question::Peek { cost: 0 }, now_us))
    }

    fn post(&self, process: u64, epoch: u64, total: u64, now_us: u64) -> u64 {
        self.ask(Question::Post { process, epoch, total }, now_us)
    }

    /// Uses the same key with another quota, as another process would.
    fn under(&mut self, limit: Limit) {
        self.0 = plan(&[limit]);
    }
}

// G76
#[test]
fn large_clock_step_back_is_corrected() {
    let key = Key::new(Limit::gcra(Quota::per_second(1).burst(10)));
    assert!(key.check(10, NOW));
    assert!(!key.check(1, NOW - 3 * SEC), "the debt also counts at the earlier time");
    assert!(!key.check(1, NOW + SEC - 1) && key.check(1, NOW + SEC));
    // The step is longer than the time that refills the burst. A denied request moves the state back, and the debt
    // is paid from that time on.
    let back = NOW - 3_600 * SEC;
    assert!(!key.check(1, back) && !key.check(1, back + SEC - 1));
    assert!(key.check(1, back + SEC));
    for limit in [Limit::fixed_window(Quota::per_minute(5)), Limit::sliding_window(Quota::per_minute(5))] {
        let (key, start) = (Key::new(limit), NOW / (60 * SEC) * 60 * SEC);
        assert!(key.check(5, start) && !key.check(1, start - 1), "the state's window is the current one");
        assert!(!key.check(1, start - 7_200 * SEC), "the window is moved back and keeps its units");
        assert!(key.check(1, start - 7_000 * SEC), "the moved window ends");
    }
}

// G77
#[test]
fn changed_quota_carries_debt_over() {
    let mut key = Key::new(Limit::gcra(Quota::per_second(10)));
    assert!(key.check(10, NOW));
    key.under(Limit::gcra(Quota::per_second(4).burst(20)));
    assert_eq!(key.remaining(NOW), 10);
    assert!(key.check(10, NOW) && !key.check(1, NOW));
    key.under(Limit::gcra(Quota::per_hour(30).burst(25)));
    assert_eq!(key.remaining(NOW), 5);
    // Half a unit is paid. The other half is owed under any quota.
    key.under(Limit::gcra(Quota::per_second(4).burst(25)));
    assert_eq!((key.remaining(NOW), key.remaining(NOW + SEC / 8)), (5, 5));
    assert_eq!(key.remaining(NOW + SEC / 4), 6);
}

/// A unit returns at the microsecond at which it is due, also if its interval is not a whole number of microseconds.
// G74
#[test]
fn burst_returns_after_exactly_its_time() {
    for period in [1, 60, 3_600] {
        for limit in (1..200).chain([997, 6_007, 9_999, 19_541]) {
            let quota = Quota::new(limit, Duration::from_secs(period));
            let key = Key::new(Limit::gcra(quota));
            assert!(key.check(limit, NOW) && !key.check(limit, NOW + period * SEC - 1), "{quota}");
            assert!(key.check(limit, NOW + period * SEC), "{quota}");
            for unit in 1..=limit.min(50) {
                let due_us = (unit * period * SEC).div_ceil(limit);
                let at = NOW + period * SEC + due_us;
                assert_eq!([key.remaining(at - 1), key.remaining(at)], [unit - 1, unit], "{quota}");
            }
        }
    }
}

// G77
#[test]
fn changed_limit_keeps_counts_changed_period_does_not() {
    for kind in [Limit::fixed_window, Limit::sliding_window] {
        let day = |limit| kind(Quota::per_day(limit));
        let start = NOW / (86_400 * SEC) * 86_400 * SEC;
        let mut key = Key::new(day(100));
        assert!(key.check(80, start));
        key.under(day(90));
        assert_eq!(key.remaining(start + 1), 10);
        key.under(day(50));
        assert_eq!(key.remaining(start + 2), 0);
        // The new period begins empty, so callers do not wait for the day to end.
        key.under(kind(Quota::per_minute(10)));
        assert!(key.check(10, start + 3) && !key.check(1, start + 3));
        assert!(key.check(1, start + 120 * SEC));
        // The count of the day is not lost.
        key.under(day(100));
        assert_eq!(key.remaining(start + 130 * SEC), 20);
        assert!(!key.check(21, start + 130 * SEC) && key.check(20, start + 130 * SEC));
        // A clock that steps far back also restores the state of a period that had just begun.
        key.under(kind(Quota::new(10, Duration::from_secs(30))));
        assert!(key.check(10, start - 86_400 * 30 * SEC) && !key.check(1, start - 86_400 * 30 * SEC));
        assert!(key.check(1, start - 86_400 * 30 * SEC + 60 * SEC));
    }
}

#[test]
fn posts_are_counted_per_period() {
    let mut key = Key::new(Limit::fixed_window(Quota::per_day(10)));
    let (day, minute) = (NOW / (86_400 * SEC), NOW / (60 * SEC));
    assert_eq!(key.post(1, day, 4, NOW), 4);
    key.under(Limit::fixed_window(Quota::per_minute(10)));
    assert_eq!((key.post(1, minute, 3, NOW), key.post(1, minute, 3, NOW)), (3, 0));
    assert_eq!(key.remaining(NOW), 7);
    key.under(Limit::fixed_window(Quota::per_day(10)));
    assert_eq!((key.post(1, day, 5, NOW), key.remaining(NOW)), (1, 5));
}

fn quota() -> impl Strategy<Value = Quota> {
    let period_us = select(vec![1_000_u64, 7_777_777, 1_000_000, 60_000_000, 3_600_000_000]);
    let limit = prop_oneof![4 => 1_u64..=20, 1 => select(vec![999, 1_000_003])];
    (limit, period_us, 1_u64..=20).prop_map(|(limit, period_us, burst)| {
        Quota::new(limit, Duration::from_micros(period_us)).burst(burst)
    })
}

/// Two versions of a program with one state: in any interval, at most the larger burst and the higher rate.
// G77
#[test]
fn two_quotas_share_the_larger_bound() {
    let wait = prop_oneof![3 => Just(0_u64), 2 => 1_u64..5_000, 3 => 1_u64..20_000_000];
    let step = (wait, 0_usize..2, 1_u64..=4);
    let asked = ((quota(), quota()), prop::collection::vec(step, 1..80));
    TestRunner::new(Config { rng_seed: RngSeed::Fixed(0x5C42), ..config(500) })
        .run(&asked, |((one, two), steps)| {
            let (mut key, mut now_us) = (Key::new(Limit::gcra(one)), NOW);
            let mut admitted: Vec<(u64, u64)> = Vec::new();
            for (wait_us, which, cost) in steps {
                now_us += wait_us;
                key.under(Limit::gcra([one, two][which]));
                let units = key.ask(Question::Check { cost }, now_us);
                admitted.push((now_us, units));
                let mut sum = 0;
                for &(from_us, units) in admitted.iter().rev() {
                    sum += units;
                    // The comparison multiplies instead of dividing, so that it is exact.
                    let beyond = u128::from(sum.saturating_sub(one.burst_size().max(two.burst_size())));
                    let paid = |quota: Quota| {
                        let gone_ns = u128::from(now_us - from_us) * 1_000;
                        beyond * quota.period().as_nanos() <= gone_ns * u128::from(quota.limit())
                    };
                    prop_assert!(paid(one) || paid(two), "{} and {}: {} since {}", one, two, sum, from_us);
                }
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn posts_count_once_in_any_order() {
    let key = Key::new(Limit::gcra(Quota::per_day(10)));
    assert_eq!((key.post(1, 5, 4, NOW), key.post(1, 5, 4, NOW), key.post(1, 5, 3, NOW)), (4, 0, 0));
    assert_eq!((key.post(2, 5, 1, NOW), key.post(1, 5, 6, NOW)), (1, 2));
    // The previous epoch still accepts posts.
    assert_eq!((key.post(1, 7, 2, NOW), key.post(1, 5, 8, NOW)), (2, 2));
    // A late post of an epoch between the two counts once.
    assert_eq!((key.post(1, 6, 1, NOW), key.post(1, 6, 1, NOW)), (1, 0));
    // An epoch before the last two is forgotten.
    assert_eq!((key.post(1, 5, 9, NOW), key.post(1, 7, 2, NOW)), (0, 0));
    assert_eq!(key.remaining(NOW), 0, "posts may exceed the limit");
    let minute = Quota::per_minute(10);
    for (limit, previous) in [(Limit::fixed_window(minute), 0), (Limit::sliding_window(minute), 3)] {
        let key = Key::new(limit);
        let window = NOW / (60 * SEC);
        let start = window * 60 * SEC;
        assert_eq!((key.post(1, window, 2, start), key.post(1, window - 1, 3, start)), (2, previous));
        assert_eq!((key.post(1, window - 2, 5, start), key.post(1, window + 1, 5, start)), (0, 0));
        assert_eq!(key.remaining(start), 8 - previous);
    }
}

#[test]
fn lease_is_a_share_of_remaining_units() {
    let key = Key::new(Limit::fixed_window(Quota::per_day(100)));
    let lease = |least, wanted, share| Question::Lease { least, wanted, share };
    assert_eq!(key.ask(lease(1, 10, 4), NOW), 10);
    assert_eq!(key.ask(lease(1, 50, 4), NOW), 22);
    assert_eq!(key.ask(lease(30, 50, 4), NOW), 30, "at least `least`, even if the share is smaller");
    assert_eq!(key.ask(lease(39, 50, 1), NOW), 0);
    assert_eq!(key.ask(lease(0, 0, 0), NOW), 1, "a lease is at least 1 unit");
    assert_eq!(key.ask(lease(1, u64::MAX, u64::MAX), NOW), 1);
    assert_eq!(key.ask(lease(1, u64::MAX, 1), NOW), 36);
}

#[test]
fn refund_returns_only_unpaid_debt() {
    let key = Key::new(Limit::gcra(Quota::per_second(1).burst(10)));
    assert!(key.check(6, NOW));
    let refund = |units, at_us| Question::Refund { units, at_us };
    assert_eq!(key.ask(refund(6, NOW), NOW + 4 * SEC), 2);
    assert_eq!((key.remaining(NOW + 4 * SEC), key.ask(refund(6, NOW), NOW + 4 * SEC)), (10, 0));
    let key = Key::new(Limit::fixed_window(Quota::per_day(10)));
    assert!(key.check(6, NOW));
    assert_eq!((key.ask(refund(4, NOW), NOW), key.ask(refund(4, NOW), NOW)), (4, 2));
    assert!(key.check(6, NOW));
    assert_eq!(key.ask(refund(4, NOW), NOW + 86_400 * SEC), 0, "the window is over");
}

#[test]
fn nothing_overflows() {
    let limits = [
        Limit::gcra(Quota::new(32_000, Duration::from_micros(1))),
        Limit::gcra(Quota::per_day(1).burst(26_062)),
        Limit::gcra(Quota::per_second(1_000_003).burst(999_983)),
        Limit::fixed_window(Quota::new(1 << 51, Duration::from_secs(2_000_000_000))),
        Limit::sliding_window(Quota::new(1_000_000_000, Duration::from_secs(86_400))).strict(),
        Limit::sliding_window(Quota::new(1, Duration::from_micros(1))),
    ];
    let many = [0, 1, 1 << 52, (1 << 53) + 1, u64::MAX];
    for limit in limits {
        for first in limits.iter().filter(|other| other.kind() == limit.kind()) {
            for (units, more) in many.iter().flat_map(|&units| many.map(|more| (units, more))) {
                let mut key = Key::new(*first);
                for now_us in [0, NOW, u64::MAX, 0] {
                    for ask in [
                        Question::Force { cost: units },
                        Question::Check { cost: more },
                        Question::Refund { units, at_us: more },
                        Question::Lease { least: units, wanted: more, share: units },
                        Question::Post { process: more, epoch: units, total: more },
                        Question::Force { cost: more },
                    ] {
                        key.ask(ask, now_us);
                        let most = first.most().max(limit.most());
                        assert!(key.remaining(now_us) <= most, "{ask:?} of {limit:?}");
                    }
                    key.under(limit);
                }
            }
        }
    }
}
