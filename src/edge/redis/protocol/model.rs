//! The algorithm of the server's script, in Rust, with the same integers and the same rounding. Tests compare the two.
//!
//! *Time that steps back.*
//!
//! 1. A theoretical arrival time does not change, and a window that begins in the future counts as if it had begun. So
//!    the limiter denies for longer, by less than the step.
//! 2. A state that is too far in the future is moved back to the present, and keeps its debt. Too far is more than the
//!    time that refills a burst, or more than a whole window. So a clock that ran ahead does not lock out a client for
//!    long. The corrected state is written even if the request is denied.
//!
//! *Quotas that change.* A GCRA state contains the interval with which it was written. Under another interval, the debt
//! is converted unit for unit, rounded up (except 2^-25 of a unit), and is paid at the new rate. Limiters with
//! different quotas can share a state, for example two versions of a program. In any interval of time, they together
//! admit at most the larger burst, plus the higher rate times the length of the interval. Windows of the same period
//! are counted together under any limit. The name of a state contains the period, so each period has its own count, and
//! a changed period begins with an empty count.

use super::call::{LimitState, Question, Reply};
use super::plan::{Arithmetic, EXACT, LAST_US, MAX_DEBT, Pace, Part, Plan, StateName, Windows};

/// How much longer than necessary keys are kept: first if the server's clock gives the time, second if the call does.
pub(crate) const MARGINS_US: [u64; 2] = [1_000_000, 60_000_000];
/// How long the posts of a key are remembered after the last post, in addition to the refill time or the window.
pub(crate) const POSTS_KEPT_US: u64 = 3_600_000_000;

/// The stored data of one key.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct KeyState {
    limits: Vec<HeldState>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct HeldState {
    name: StateName,
    state: Option<State>,
    posts: Vec<(u64, Posts)>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    Pace { t_us: u64, ahead: u64, interval: u64, scale: u64 },
    Windows { index: u64, current: u64, previous: u64 },
}

/// The posts of one process: in its highest epoch, and in the next lower epoch.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Posts {
    last: (u64, u64),
    before: Option<(u64, u64)>,
    at_us: u64,
}

/// A state at the current time.
#[derive(Copy, Clone)]
struct View {
    /// The counts in the current window.
    now: Now,
    /// The units left.
    left: u64,
    /// Whether the state was moved back from the future.
    healed: bool,
}

#[derive(Copy, Clone)]
enum Now {
    Pace { pace: Pace, ahead: u64 },
    Windows { windows: Windows, index: u64, current: u64, previous: u64 },
}

/// Answers a question.
pub(crate) fn answer(plan: &Plan, held: &mut KeyState, now_us: u64, ask: &Question) -> Reply {
    let now_us = now_us.min(LAST_US);
    let mut views: Vec<View> = plan
        .parts()
        .iter()
        .map(|part| view(part, held.find(part).and_then(|limit| limit.state), now_us))
        .collect();
    let left = views.iter().map(|view| view.left).min().unwrap_or(u64::MAX);
    let mut granted = 0;
    let mut charge = |units: u64, views: &mut [View]| {
        for view in views {
            granted = granted.max(view.charge(units, None));
        }
    };
    match *ask {
        Question::Peek => {}
        Question::Check { cost } if cost <= left => charge(cost, &mut views),
        Question::Check { .. } => {}
        Question::Force { cost } => charge(cost.min(EXACT - 1), &mut views),
        Question::Lease { least, wanted, share } => {
            let least = least.max(1);
            if least <= left {
                charge((left / share.max(1)).min(wanted).max(least), &mut views);
            }
        }
        Question::Refund { units, at_us } => {
            for view in &mut views {
                granted = granted.max(view.refund(units.min(EXACT - 1), at_us.min(LAST_US), now_us));
            }
        }
        Question::Post { process, epoch, total } => {
            let (epoch, total) = (epoch.min(EXACT - 1), total.min(EXACT - 1));
            for (part, view) in plan.parts().iter().zip(&mut views) {
                if view.takes(epoch) {
                    let units = held.make(part).post(part, process, epoch, total, now_us);
                    granted = granted.max(view.charge(units, Some(epoch)));
                }
            }
        }
    }
    for (part, view) in plan.parts().iter().zip(&views) {
        if granted > 0 || (view.healed && *ask != Question::Peek) {
            held.make(part).state = Some(view.state(now_us));
        }
    }
    let limits = views.iter().map(View::standing).collect();
    Reply { granted, now_us, limits }
}

impl KeyState {
    /// The time after which the stored data has no effect.
    pub(crate) fn rest_us(&self, plan: &Plan, now_us: u64) -> u64 {
        let rest = |part: &Part| {
            let Some(limit) = self.find(part) else { return 0 };
            let posts = if limit.posts.is_empty() { 0 } else { kept_us(part) };
            let owed = match limit.state {
                Some(State::Pace { t_us, ahead, scale, .. }) => {
                    t_us.saturating_sub(now_us) + ahead.div_ceil(scale)
                }
                Some(State::Windows { index, .. }) => {
                    ((index + 2) * part.window_us().unwrap_or(1)).saturating_sub(now_us)
                }
                None => 0,
            };
            posts.max(owed)
        };
        plan.parts().iter().map(rest).max().unwrap_or(0)
    }

    fn find(&self, part: &Part) -> Option<&HeldState> {
        let name = part.name();
        self.limits.iter().find(|limit| limit.name == name)
    }

    fn make(&mut self, part: &Part) -> &mut HeldState {
        let name = part.name();
        let at = self.limits.iter().position(|limit| limit.name == name).unwrap_or_else(|| {
            self.limits.push(HeldState { name, state: None, posts: Vec::new() });
            self.limits.len() - 1
        });
        &mut self.limits[at]
    }
}

impl HeldState {
    /// Remembers a total. Returns the units that it adds.
    fn post(&mut self, part: &Part, process: u64, epoch: u64, total: u64, now_us: u64) -> u64 {
        let Some((_, posts)) = self.posts.iter_mut().find(|(of, _)| *of == process) else {
            if total > 0 {
                let kept = kept_us(part);
                self.posts.retain(|(_, posts)| now_us.saturating_sub(posts.at_us) <= kept);
                self.posts.push((process, Posts { last: (epoch, total), before: None, at_us: now_us }));
            }
            return total;
        };
        let Posts { last, before, .. } = *posts;
        let added = if epoch > last.0 {
            (posts.last, posts.before) = ((epoch, total), Some(last));
            total
        } else if epoch == last.0 {
            posts.last.1 = total.max(last.1);
            posts.last.1 - last.1
        } else {
            match before {
                Some((known, posted)) if known == epoch => {
                    posts.before = Some((epoch, total.max(posted)));
                    total.saturating_sub(posted)
                }
                Some((known, _)) if known > epoch => 0,
                _ => {
                    posts.before = Some((epoch, total));
                    total
                }
            }
        };
        if added == 0 {
            (posts.last, posts.before) = (last, before);
        } else {
            posts.at_us = now_us;
        }
        added
    }
}

/// How long posts are remembered.
pub(crate) const fn kept_us(part: &Part) -> u64 {
    POSTS_KEPT_US + part.refill_us()
}

/// Returns a state as a plan sees it at a given time.
fn view(part: &Part, state: Option<State>, now_us: u64) -> View {
    match part.kind {
        Arithmetic::Pace(pace) => pace.view(state, now_us),
        Arithmetic::Windows(windows) => windows.view(state, now_us),
    }
}

impl Pace {
    fn view(&self, state: Option<State>, now_us: u64) -> View {
        let (ahead, healed) = match state {
            Some(State::Pace { t_us, ahead, interval, scale }) => {
                let ahead = if (interval, scale) == (self.interval, self.scale) {
                    ahead
                } else {
                    self.convert(ahead, interval)
                };
                let gone = now_us.saturating_sub(t_us).saturating_mul(self.scale);
                let step = t_us.saturating_sub(now_us).saturating_mul(self.scale);
                if step > self.capacity {
                    (ahead, true)
                } else {
                    ((ahead + step).min(MAX_DEBT).saturating_sub(gone), false)
                }
            }
            _ => (0, false),
        };
        View { now: Now::Pace { pace: *self, ahead }, left: self.left(ahead), healed }
    }

    /// Returns the debt in ticks of this interval, unit for unit and rounded up. The calculation keeps each product
    /// below 2^53.
    fn convert(&self, ahead: u64, interval: u64) -> u64 {
        const SMALL: u64 = 1 << 26;
        let (units, part) = (ahead / interval, ahead % interval);
        let (mut from, mut to) = (1, 1);
        while interval / from >= SMALL {
            from *= 2;
        }
        while self.interval.div_ceil(to) >= SMALL {
            to *= 2;
        }
        let part = (part.div_ceil(from) * self.interval.div_ceil(to)).div_ceil(interval / from) * to;
        (units.min(MAX_DEBT / self.interval) * self.interval + part).min(MAX_DEBT)
    }
}

impl Windows {
    fn view(&self, state: Option<State>, now_us: u64) -> View {
        let present = now_us / self.period_us;
        let (mut index, mut current, mut previous, mut healed) = (present, 0, 0, false);
        if let Some(State::Windows { index: of, current: units, previous: before }) = state {
            if of > present + 1 {
                (current, previous, healed) = (units, before, true);
            } else if of >= present {
                (index, current, previous) = (of, units, before);
            } else if of + 1 == present && self.slides {
                previous = units;
            }
        }
        let left_us = if index > present { self.period_us } else { self.period_us - now_us % self.period_us };
        let now = Now::Windows { windows: *self, index, current, previous };
        View { now, left: self.left(previous, current, left_us), healed }
    }
}

impl View {
    /// Returns whether a post of this epoch is charged.
    fn takes(&self, epoch: u64) -> bool {
        match self.now {
            Now::Windows { windows, index, .. } => epoch == index || (windows.slides && epoch + 1 == index),
            Now::Pace { .. } => true,
        }
    }

    /// Charges the units, up to the maximum that can be counted. With an epoch, charges the window of that epoch.
    fn charge(&mut self, units: u64, epoch: Option<u64>) -> u64 {
        match &mut self.now {
            Now::Pace { pace, ahead } => {
                let units = units.min((MAX_DEBT - *ahead) / pace.interval);
                *ahead += units * pace.interval;
                units
            }
            Now::Windows { index, current, previous, .. } => {
                let count = if epoch.is_some_and(|epoch| epoch < *index) { previous } else { current };
                let units = units.min(MAX_DEBT.saturating_sub(*count));
                *count += units;
                units
            }
        }
    }

    fn refund(&mut self, units: u64, at_us: u64, now_us: u64) -> u64 {
        match &mut self.now {
            Now::Pace { pace, ahead } => {
                let own = units.min(MAX_DEBT / pace.interval) * pace.interval;
                let paid = now_us.saturating_sub(at_us).saturating_mul(pace.scale);
                let back = own.saturating_sub(paid).min(*ahead);
                *ahead -= back;
                back.div_ceil(pace.interval)
            }
            Now::Windows { windows, index, current, .. } if at_us / windows.period_us == *index => {
                let back = units.min(*current);
                *current -= back;
                back
            }
            Now::Windows { .. } => 0,
        }
    }

    fn state(&self, now_us: u64) -> State {
        match self.now {
            Now::Pace { pace: Pace { interval, scale, .. }, ahead } => {
                State::Pace { t_us: now_us, ahead, interval, scale }
            }
            Now::Windows { index, current, previous, .. } => State::Windows { index, current, previous },
        }
    }

    fn standing(&self) -> LimitState {
        match self.now {
            Now::Pace { ahead, .. } => LimitState::Pace { ahead },
            Now::Windows { windows, index, current, previous } => {
                LimitState::Windows { start_us: index * windows.period_us, previous, current }
            }
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use proptest::sample::select;
    use proptest::test_runner::{Config, RngSeed, TestRunner};

    use super::*;
    use crate::base::quota::Quota;
    use crate::edge::redis::Limit;

    const SEC: u64 = 1_000_000;
    const NOW: u64 = 1_700_000_000 * SEC;

    struct Key(Plan, KeyState);

    impl Key {
        fn new(limit: Limit) -> Self {
            Self(Plan::new(&[limit]).unwrap(), KeyState::default())
        }

        fn ask(&mut self, ask: Question, now_us: u64) -> u64 {
            answer(&self.0, &mut self.1, now_us, &ask).granted
        }

        fn check(&mut self, cost: u64, now_us: u64) -> bool {
            self.ask(Question::Check { cost }, now_us) == cost
        }

        fn remaining(&mut self, now_us: u64) -> u64 {
            self.0.remaining(&answer(&self.0, &mut self.1, now_us, &Question::Peek))
        }

        fn post(&mut self, process: u64, epoch: u64, total: u64, now_us: u64) -> u64 {
            self.ask(Question::Post { process, epoch, total }, now_us)
        }

        /// Uses the same key with another quota, as another process would.
        fn under(&mut self, limit: Limit) {
            self.0 = Plan::new(&[limit]).unwrap();
        }
    }

    #[test]
    fn large_clock_step_back_is_corrected() {
        let mut key = Key::new(Limit::gcra(Quota::per_second(1).burst(10)));
        assert!(key.check(10, NOW));
        assert!(!key.check(1, NOW - 3 * SEC), "the debt also counts at the earlier time");
        assert!(!key.check(1, NOW + SEC - 1) && key.check(1, NOW + SEC));
        // The step is longer than the time that refills the burst. A denied request moves the state back, and the debt
        // is paid from that time on.
        let back = NOW - 3_600 * SEC;
        assert!(!key.check(1, back) && !key.check(1, back + SEC - 1));
        assert!(key.check(1, back + SEC));
        for limit in [Limit::fixed_window(Quota::per_minute(5)), Limit::sliding_window(Quota::per_minute(5))]
        {
            let (mut key, start) = (Key::new(limit), NOW / (60 * SEC) * 60 * SEC);
            assert!(
                key.check(5, start) && !key.check(1, start - 1),
                "the state's window counts as the current window"
            );
            assert!(!key.check(1, start - 7_200 * SEC), "the window is moved back and keeps its units");
            assert!(key.check(1, start - 7_000 * SEC), "the moved window ends");
        }
    }

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
    #[test]
    fn two_quotas_share_the_larger_bound() {
        let wait = prop_oneof![3 => Just(0_u64), 2 => 1_u64..5_000, 3 => 1_u64..20_000_000];
        let step = (wait, 0_usize..2, 1_u64..=4);
        let asked = ((quota(), quota()), prop::collection::vec(step, 1..80));
        let config = Config {
            cases: 500,
            rng_seed: RngSeed::Fixed(0x5C42),
            failure_persistence: None,
            ..Config::default()
        };
        TestRunner::new(config)
            .run(&asked, |((one, two), steps)| {
                let plans = [one, two].map(|quota| Plan::new(&[Limit::gcra(quota)]).unwrap());
                let (mut held, mut now_us) = (KeyState::default(), NOW);
                let mut admitted: Vec<(u64, u64)> = Vec::new();
                for (wait_us, which, cost) in steps {
                    now_us += wait_us;
                    let units = answer(&plans[which], &mut held, now_us, &Question::Check { cost }).granted;
                    admitted.push((now_us, units));
                    let mut sum = 0;
                    for &(from_us, units) in admitted.iter().rev() {
                        sum += units;
                        // The comparison multiplies instead of dividing, so that it is exact.
                        let beyond = u128::from(sum.saturating_sub(one.burst_size().max(two.burst_size())));
                        let paid = |quota: Quota| {
                            let gone_ns = u128::from(now_us - from_us) * 1_000;
                            beyond * u128::from(quota.period_ns()) <= gone_ns * u128::from(quota.limit())
                        };
                        prop_assert!(
                            paid(one) || paid(two),
                            "{} and {}: {} since {}",
                            one,
                            two,
                            sum,
                            from_us
                        );
                    }
                }
                Ok(())
            })
            .unwrap();
    }

    #[test]
    fn posts_count_once_in_any_order() {
        let mut key = Key::new(Limit::gcra(Quota::per_day(10)));
        assert_eq!((key.post(1, 5, 4, NOW), key.post(1, 5, 4, NOW), key.post(1, 5, 3, NOW)), (4, 0, 0));
        assert_eq!((key.post(2, 5, 1, NOW), key.post(1, 5, 6, NOW)), (1, 2));
        assert_eq!(
            (key.post(1, 7, 2, NOW), key.post(1, 5, 8, NOW)),
            (2, 2),
            "the previous epoch still accepts posts"
        );
        assert_eq!(
            (key.post(1, 6, 1, NOW), key.post(1, 6, 1, NOW)),
            (1, 0),
            "a late post of an epoch between the two counts once"
        );
        assert_eq!(
            (key.post(1, 5, 9, NOW), key.post(1, 7, 2, NOW)),
            (0, 0),
            "an epoch before the last two is forgotten"
        );
        assert_eq!(key.remaining(NOW), 0, "posts may exceed the limit");
        for (limit, previous) in [
            (Limit::fixed_window(Quota::per_minute(10)), 0),
            (Limit::sliding_window(Quota::per_minute(10)), 3),
        ] {
            let mut key = Key::new(limit);
            let window = NOW / (60 * SEC);
            let start = window * 60 * SEC;
            assert_eq!((key.post(1, window, 2, start), key.post(1, window - 1, 3, start)), (2, previous));
            assert_eq!((key.post(1, window - 2, 5, start), key.post(1, window + 1, 5, start)), (0, 0));
            assert_eq!(key.remaining(start), 8 - previous);
        }
    }

    #[test]
    fn lease_is_a_share_of_remaining_units() {
        let mut key = Key::new(Limit::fixed_window(Quota::per_day(100)));
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
        let mut key = Key::new(Limit::gcra(Quota::per_second(1).burst(10)));
        assert!(key.check(6, NOW));
        let refund = |units, at_us| Question::Refund { units, at_us };
        assert_eq!(key.ask(refund(6, NOW), NOW + 4 * SEC), 2);
        assert_eq!((key.remaining(NOW + 4 * SEC), key.ask(refund(6, NOW), NOW + 4 * SEC)), (10, 0));
        let mut key = Key::new(Limit::fixed_window(Quota::per_day(10)));
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
                            assert!(
                                key.remaining(now_us) <= first.most().max(limit.most()),
                                "{ask:?} of {limit:?}"
                            );
                        }
                        key.under(limit);
                    }
                }
            }
        }
    }
}
