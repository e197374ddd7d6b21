//! Charges that are later than the time of a quota change: the clock stops between its reading and the publication, or
//! the caller gives an older time. Each of them still counts after the change.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use tollgate::{
    Adjustable, Algorithm, Carry, Clock, Compact, CompactAlgorithm, Direct, FixedWindow, Gcra, Keyed,
    Overflow, Quota, RateLimiter, SlidingWindow, Timestamp,
};
use tollgate_testing::compact::Random;
use tollgate_testing::laws::all_are_within;
use tollgate_testing::stopping::Stopping;

const START: Timestamp = Timestamp::from_secs(19_700 * 86_400);
const CARRIES: [Carry; 4] = [Carry::AsIs, Carry::Proportional, Carry::Additive, Carry::Used];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A limiter of any store whose quota changes.
trait Changing: Send + Sync {
    fn check(&self, key: u64) -> bool;
    fn check_at(&self, key: u64, now: Timestamp) -> bool;
    fn change(&self, quota: &Quota, carry: Carry);
    fn change_at(&self, quota: &Quota, carry: Carry, now: Timestamp);

    /// The number of admitted checks until one is denied.
    fn drain(&self, key: u64) -> u64 {
        (0..).take_while(|_| self.check(key)).count() as u64
    }

    /// [`Changing::drain`] at a given time.
    fn drain_at(&self, key: u64, now: Timestamp) -> u64 {
        (0..).take_while(|_| self.check_at(key, now)).count() as u64
    }
}

macro_rules! changing {
    ($store:ident, $bound:ident, $key:ident => $($argument:expr)?) => {
        impl<A: $bound> Changing for RateLimiter<Adjustable<$store<A>>, Stopping> {
            fn check(&self, $key: u64) -> bool {
                self.check($($argument)?).is_allowed()
            }

            fn check_at(&self, $key: u64, now: Timestamp) -> bool {
                self.at(now).check($($argument)?).is_allowed()
            }

            fn change(&self, quota: &Quota, carry: Carry) {
                self.set_quota(quota, carry).unwrap();
            }

            fn change_at(&self, quota: &Quota, carry: Carry, now: Timestamp) {
                self.at(now).set_quota(quota, carry).unwrap();
            }
        }
    };
}

type ByNumber<A> = Keyed<u64, A>;
changing!(Direct, Algorithm, _key =>);
changing!(ByNumber, Algorithm, key => &key);
changing!(Compact, CompactAlgorithm, key => &key);

/// A limiter of each store.
fn store<A: CompactAlgorithm>(name: &str, algorithm: &A, clock: &Stopping) -> Arc<dyn Changing> {
    let build = RateLimiter::builder(algorithm.clone()).clock(clock.clone());
    match name {
        "direct" => Arc::new(build.direct().adjustable()),
        "keyed" => Arc::new(build.keyed::<u64>().adjustable()),
        _ => Arc::new(build.capacity(4_096).compact().unwrap().adjustable()),
    }
}

const STORES: [&str; 3] = ["direct", "keyed", "compact"];

/// Runs a test for all stores with their own clocks, and for all ways to carry debts over.
fn for_all<A: CompactAlgorithm>(algorithm: &A, test: impl Fn(&str, Arc<dyn Changing>, &Stopping, Carry)) {
    for carry in CARRIES {
        for name in STORES {
            let clock = Stopping::new(START);
            test(&format!("{name}, {carry:?}"), store(name, algorithm, &clock), &clock, carry);
        }
    }
}

// G49
#[test]
fn charge_before_late_publication_counts() {
    let quota = Quota::per_second(1_000).burst(20);
    for late in [0, 1, 10, 41, 1_000, 100_000] {
        for_all(&Gcra::new(quota), |what, limiter, clock, carry| {
            for changes in 0..3 {
                let (other, time) = (Arc::clone(&limiter), clock.time.clone());
                clock.stop_after(0, move || {
                    time.advance(ms(late));
                    other.drain(1);
                    assert_eq!(other.drain(1), 0, "the burst is used before the publication");
                });
                limiter.change(&quota, carry);
                assert_eq!(limiter.drain(1), 0, "{what}, {late} ms late, after {changes} changes");
            }
            clock.time.advance(ms(7));
            assert!(limiter.drain(1) <= 7, "{what}, {late} ms late");
            clock.time.advance(ms(20));
            assert_eq!(limiter.drain(1), 20, "{what}, {late} ms late: a wrong denial");
        });
    }
}

// G49
#[test]
fn window_of_late_publication_is_used_once() {
    let quota = Quota::per_second(100);
    for late in [0, 500, 1_000, 2_000, 60_500] {
        let test = |what: &str, limiter: Arc<dyn Changing>, clock: &Stopping, carry: Carry| {
            clock.time.advance(ms(250));
            let (other, time) = (Arc::clone(&limiter), clock.time.clone());
            clock.stop_after(0, move || {
                time.advance(ms(late));
                assert_eq!(other.drain(1), 100);
            });
            limiter.change(&quota, carry);
            assert_eq!(limiter.drain(1), 0, "{what}, {late} ms late");
            limiter.change(&quota, carry);
            assert_eq!(limiter.drain(1), 0, "{what}, {late} ms late, second change");
            clock.time.advance(ms(2_000));
            assert_eq!(limiter.drain(1), 100, "{what}, {late} ms late: a wrong denial");
        };
        for_all(&FixedWindow::new(quota), test);
        for_all(&SlidingWindow::new(quota), test);
    }
}

/// A change at a given time before the latest charge is decided as of that charge.
// G49
#[test]
fn charge_after_given_time_of_change_counts() {
    let quota = Quota::per_second(1_000).burst(20);
    let day = 86_400_000;
    for before in [1, 10, 20, 40, 41, 50, 1_000, 1_001, 60_000, day] {
        for_all(&Gcra::new(quota), |what, limiter, _, carry| {
            let at = |ms_after: u64| START + ms(day + ms_after);
            assert_eq!(limiter.drain_at(1, at(0)), 20);
            limiter.change_at(&quota, carry, START + ms(day - before));
            assert_eq!(limiter.drain_at(1, at(0)), 0, "{what}, {before} ms before");
            limiter.change_at(&quota, carry, START + ms(day - before));
            assert_eq!(limiter.drain_at(1, at(5)), 5, "{what}, {before} ms before");
            limiter.change_at(&quota, carry, START + ms(day - before));
            assert_eq!(limiter.drain_at(1, at(30)), 20, "{what}, {before} ms before: a wrong denial");
        });
    }
}

/// A charge that is later than the change counts in full, at whichever rate it is paid afterwards.
// G49
#[test]
fn late_charge_is_not_paid_before_it_was_made() {
    let (slow, fast) = (Quota::per_second(10).burst(20), Quota::per_second(10_000).burst(20));
    for (before, after, why) in [
        (slow, fast, "ten of twenty units are used at this instant"),
        (fast, slow, "the time before the charge is no debt"),
    ] {
        for_all(&Gcra::new(before), |what, limiter, clock, carry| {
            let (other, time) = (Arc::clone(&limiter), clock.time.clone());
            clock.stop_after(0, move || {
                time.advance(ms(50));
                assert!((0..10).all(|_| other.check(1)));
            });
            limiter.change(&after, carry);
            assert_eq!(limiter.drain(1), 10, "{what}: {why}");
        });
    }
}

/// With debts in more keys than there are slots, a store cannot list its debts, and a chain of stores remains.
// G49
#[test]
fn spilled_charges_before_late_publication_count() {
    let quota = Quota::per_second(1_000).burst(20);
    for late in [0, 10, 41, 1_000] {
        for carry in CARRIES {
            let clock = Stopping::new(START);
            let limiter = RateLimiter::builder(Gcra::new(quota)).clock(clock.clone()).capacity(64);
            let limiter = Arc::new(limiter.overflow(Overflow::Spill).compact().unwrap().adjustable());
            let drain = |limiter: &dyn Changing| (0..200).map(|key| limiter.drain(key)).sum::<u64>();
            for change in 0..4 {
                let (other, time) = (Arc::clone(&limiter), clock.time.clone());
                clock.stop_after(0, move || {
                    time.advance(ms(late));
                    drain(&*other);
                });
                limiter.change(&quota, carry);
                assert_eq!(drain(&*limiter), 0, "{carry:?}, {late} ms late, change {change}");
            }
        }
    }
}

/// One key is charged at a time far ahead, by mistake. The debts of other keys are not taken for paid.
// G49
#[test]
fn wrong_time_of_another_key_loses_no_debt() {
    let quota = Quota::per_second(1).burst(20);
    for ahead in [60, 86_400, 86_400 * 3_650].map(Duration::from_secs) {
        for carry in CARRIES {
            let clock = Stopping::new(START);
            let limiter = RateLimiter::builder(Gcra::new(quota)).clock(clock).keyed::<u64>().adjustable();
            assert_eq!(limiter.drain(1), 20);
            assert!(Changing::check_at(&limiter, 2, START + ahead));
            for change in 0..3 {
                limiter.change(&quota, carry);
                assert_eq!(limiter.drain(1), 0, "{carry:?}, {ahead:?} ahead, change {change}");
            }
        }
    }
}

/// Random checks and changes of one to three keys, with clocks that stop and with given times. No interval admits more
/// than the largest quota.
// G49
#[test]
fn no_interval_admits_more_than_largest_quota() {
    const PERIOD: Duration = Duration::from_secs(1);
    let mut random = Random(1);
    let mut below = move |bound: u64| random.below(bound);
    for round in 0..40 {
        let clock = Stopping::new(START);
        let mut limit = 20 + below(20);
        let start = Gcra::new(Quota::new(limit, PERIOD));
        let name = STORES[usize::try_from(below(3)).unwrap()];
        let limiter = store(name, &start, &clock);
        let admitted = Arc::new(Mutex::new(Vec::new()));
        let checks = {
            let (limiter, admitted, time) = (Arc::clone(&limiter), Arc::clone(&admitted), clock.time.clone());
            move |checks: u64, step_us: u64| {
                for _ in 0..checks {
                    time.advance(Duration::from_micros(step_us));
                    if limiter.check(1) {
                        admitted.lock().unwrap().push((time.now().as_nanos(), 1));
                    }
                }
            }
        };
        for _ in 0..40 {
            checks(below(40), below(60_000));
            limit += below(3);
            let carry = CARRIES[usize::try_from(below(4)).unwrap()];
            let quota = Quota::new(limit, PERIOD);
            match below(3) {
                0 => limiter.change_at(&quota, carry, START + Duration::from_micros(below(3_000_000))),
                1 => limiter.change(&quota, carry),
                _ => {
                    let (checks, number, step_us) = (checks.clone(), below(60), below(200_000));
                    clock.stop_after(0, move || checks(number, step_us));
                    limiter.change(&quota, carry);
                }
            }
        }
        // A tick of a compact store is at most 1/256 of an interval.
        let refilled = |ns| (ns + PERIOD.as_nanos() / 256) * u128::from(limit) / PERIOD.as_nanos();
        let most_in = |ns| u128::from(limit) + refilled(ns);
        all_are_within(&admitted.lock().unwrap(), most_in, (round, name));
    }
}

/// The limiter is charged before it becomes adjustable. Then its quota changes as of a time before these charges.
fn charged_before_adjustable<A: CompactAlgorithm>(algorithm: &A, quota: &Quota, burst: u64) {
    for carry in CARRIES {
        for early in [1, 41, 100, 10_000] {
            let clock = Stopping::new(START);
            let build = || RateLimiter::builder(algorithm.clone()).clock(clock.clone());
            let direct = build().direct();
            let keyed = build().keyed::<u64>();
            let compact = build().capacity(4_096).compact().unwrap();
            for _ in 0..burst {
                assert!(direct.check().is_allowed());
                assert!(keyed.check(&1).is_allowed() && compact.check(&1).is_allowed());
            }
            let limiters: [(&str, Box<dyn Changing>); 3] = [
                ("direct", Box::new(direct.adjustable())),
                ("keyed", Box::new(keyed.adjustable())),
                ("compact", Box::new(compact.adjustable())),
            ];
            for (name, limiter) in limiters {
                limiter.change_at(quota, carry, Timestamp::from_nanos(START.as_nanos() - early * 1_000_000));
                assert_eq!(limiter.drain_at(1, START), 0, "{name}, {carry:?}, {early} ms before the charges");
            }
        }
    }
}

// G49
#[test]
fn charge_before_limiter_is_adjustable_counts() {
    let quota = Quota::per_second(1_000).burst(20);
    charged_before_adjustable(&Gcra::new(quota), &quota, 20);
    let quota = Quota::per_second(100);
    charged_before_adjustable(&FixedWindow::new(quota), &quota, 100);
    charged_before_adjustable(&SlidingWindow::new(quota), &quota, 100);
}

/// Regression test. A check reads its time, and is held up for more than a second. In the meantime its window ends and
/// the quota changes. The new store had no units of the old window, so the check was admitted beyond the limit.
// G49
#[test]
fn check_held_up_over_a_change_finds_its_own_window() {
    let (quota, next) = (Quota::per_day(300), START + Duration::from_secs(86_400));
    let late = START + Duration::from_secs(80_000);
    let test = |what: &str, limiter: Arc<dyn Changing>, clock: &Stopping, carry: Carry| {
        assert_eq!(limiter.drain_at(1, late), 300);
        clock.time.set(next);
        limiter.change(&quota, carry);
        assert_eq!(limiter.drain_at(1, late), 0, "{what}: the window has no unit left");
        assert_eq!(limiter.drain(1), 300, "{what}: the next window has all units");
    };
    for_all(&FixedWindow::new(quota), test);
    let burst = Quota::per_day(86_400).burst(300);
    for_all(&Gcra::new(burst), |what, limiter, clock, carry| {
        assert_eq!(limiter.drain_at(1, late), 300);
        clock.time.set(next);
        limiter.change(&burst, carry);
        assert_eq!(limiter.drain_at(1, late), 0, "{what}: the burst is used at that time");
    });
}
