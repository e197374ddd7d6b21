//! What the script on a server does, in Rust: the same integers, rounded alike. Tests hold the two together.
//!
//! *Time that steps back.* A theoretical arrival time stays where it is, and a window that begins later counts as if it had begun: so
//! this denies more, by less than the step. A state that is further in the future than a burst is refilled in, or than a whole
//! window, is brought back to now, with all that is owed: nobody is shut out until a clock that ran ahead is caught up with. That is
//! written even if the request is refused.
//!
//! *Quotas that change.* A state holds the interval or period by which it was written. Under another one it is carried over unit for
//! unit, rounded up: of GCRA what is owed is as many units (but for 2^-25 of one) and is paid at the new rate; of a window that is
//! not over, all that it counted and still weighed is counted in the present one.

use super::call::{Ask, Reply, Standing};
use super::plan::{EXACT, Kind, LAST_US, MOST_OWED, Pace, Part, Plan, Windows};

/// The posts of a key are remembered for so long after the last one, and the refill or the window.
pub(super) const POSTS_KEPT_US: u64 = 3_600_000_000;

/// All that is kept of one key.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    limits: Vec<HeldLimit>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct HeldLimit {
    letter: char,
    index: usize,
    state: Option<State>,
    posts: Vec<(u64, Posts)>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    Pace { t_us: u64, ahead: u64, interval: u64, scale: u64 },
    Windows { period_us: u64, index: u64, current: u64, previous: u64 },
}

/// What one process posted: in its highest epoch, and in the next below.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Posts {
    last: (u64, u64),
    before: Option<(u64, u64)>,
    at_us: u64,
}

/// A state as of now.
#[derive(Copy, Clone)]
struct View {
    /// In the present window.
    now: Now,
    /// The units that there is room for.
    left: u64,
    /// Whether it was brought back from the future.
    healed: bool,
}

#[derive(Copy, Clone)]
enum Now {
    Pace { ahead: u64 },
    Windows { index: u64, current: u64, previous: u64 },
}

/// Answers an ask.
pub(crate) fn answer(plan: &Plan, held: &mut Held, now_us: u64, ask: &Ask) -> Reply {
    let now_us = now_us.min(LAST_US);
    let mut views: Vec<View> = plan
        .parts()
        .iter()
        .map(|part| view(part, held.find(part).and_then(|limit| limit.state), now_us))
        .collect();
    let left = views.iter().map(|view| view.left).min().unwrap_or(u64::MAX);
    let mut granted = 0;
    let mut charge = |units: u64, views: &mut [View]| {
        for (part, view) in plan.parts().iter().zip(views) {
            granted = granted.max(view.charge(part, units, None));
        }
    };
    match *ask {
        Ask::Peek => {}
        Ask::Check { cost } if cost <= left => charge(cost, &mut views),
        Ask::Check { .. } => {}
        Ask::Force { cost } => charge(cost.min(EXACT - 1), &mut views),
        Ask::Lease { least, wanted, share } => {
            let least = least.max(1);
            if least <= left {
                charge((left / share.max(1)).min(wanted).max(least), &mut views);
            }
        }
        Ask::Refund { units, at_us } => {
            for (part, view) in plan.parts().iter().zip(&mut views) {
                granted = granted.max(view.refund(part, units.min(EXACT - 1), at_us.min(LAST_US), now_us));
            }
        }
        Ask::Post { process, epoch, total } => {
            let (epoch, total) = (epoch.min(EXACT - 1), total.min(EXACT - 1));
            for (part, view) in plan.parts().iter().zip(&mut views) {
                if view.takes(part, epoch) {
                    let units = held.make(part).post(part, process, epoch, total, now_us);
                    granted = granted.max(view.charge(part, units, Some(epoch)));
                }
            }
        }
    }
    for (part, view) in plan.parts().iter().zip(&views) {
        if granted > 0 || (view.healed && *ask != Ask::Peek) {
            held.make(part).state = Some(view.state(part, now_us));
        }
    }
    let limits = plan.parts().iter().zip(&views).map(|(part, view)| view.standing(part)).collect();
    Reply { granted, now_us, limits }
}

impl Held {
    /// The time after which nothing of it matters any more.
    pub(super) fn rest_us(&self, plan: &Plan, now_us: u64) -> u64 {
        let rest = |part: &Part| {
            let Some(limit) = self.find(part) else { return 0 };
            let posts = if limit.posts.is_empty() { 0 } else { kept_us(part) };
            let owed = match limit.state {
                Some(State::Pace { t_us, ahead, scale, .. }) => {
                    t_us.saturating_sub(now_us) + ahead.div_ceil(scale)
                }
                Some(State::Windows { period_us, index, .. }) => {
                    ((index + 2) * period_us).saturating_sub(now_us)
                }
                None => 0,
            };
            posts.max(owed)
        };
        plan.parts().iter().map(rest).max().unwrap_or(0)
    }

    fn find(&self, part: &Part) -> Option<&HeldLimit> {
        self.limits.iter().find(|limit| (limit.letter, limit.index) == (part.letter(), part.index))
    }

    fn make(&mut self, part: &Part) -> &mut HeldLimit {
        let (letter, index) = (part.letter(), part.index);
        let at = self.limits.iter().position(|limit| (limit.letter, limit.index) == (letter, index));
        let at = at.unwrap_or_else(|| {
            self.limits.push(HeldLimit { letter, index, state: None, posts: Vec::new() });
            self.limits.len() - 1
        });
        &mut self.limits[at]
    }
}

impl HeldLimit {
    /// Remembers a total, and returns what it adds.
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
pub(super) const fn kept_us(part: &Part) -> u64 {
    POSTS_KEPT_US + part.refill_us()
}

/// A state as a plan sees it at a time.
fn view(part: &Part, state: Option<State>, now_us: u64) -> View {
    match part.kind {
        Kind::Pace(pace) => pace.view(state, now_us),
        Kind::Windows(windows) => windows.view(state, now_us),
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
                    ((ahead + step).min(MOST_OWED).saturating_sub(gone), false)
                }
            }
            _ => (0, false),
        };
        View { now: Now::Pace { ahead }, left: self.capacity.saturating_sub(ahead) / self.interval, healed }
    }

    /// As many units of this interval, rounded up, so that no product reaches 2^53.
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
        (units.min(MOST_OWED / self.interval) * self.interval + part).min(MOST_OWED)
    }
}

impl Windows {
    fn view(&self, state: Option<State>, now_us: u64) -> View {
        let present = now_us / self.period_us;
        let (mut index, mut current, mut previous, mut healed) = (present, 0, 0, false);
        match state {
            Some(State::Windows { period_us, index: of, current: units, previous: before })
                if period_us == self.period_us =>
            {
                if of > present + 1 {
                    (current, previous, healed) = (units, before, true);
                } else if of >= present {
                    (index, current, previous) = (of, units, before);
                } else if of + 1 == present && self.slides {
                    previous = units;
                }
            }
            Some(State::Windows { period_us, index: of, current: units, previous: before }) => {
                let then = now_us / period_us;
                if of >= then {
                    current = (units + before).min(MOST_OWED);
                } else if of + 1 == then && self.slides {
                    current = units;
                }
            }
            _ => {}
        }
        let left_us = if index > present { self.period_us } else { self.period_us - now_us % self.period_us };
        let left = self.limit.saturating_sub(current).saturating_sub(self.weighed(previous, left_us));
        View { now: Now::Windows { index, current, previous }, left, healed }
    }

    /// What the previous window's units weigh while so much time of the present one is left.
    pub(super) fn weighed(&self, previous: u64, left_us: u64) -> u64 {
        let product = u128::from(previous) * u128::from(left_us.div_ceil(self.unit_us));
        match u64::try_from(product) {
            Ok(product) if product < EXACT => {
                let period = self.period_us / self.unit_us;
                if self.strict { product.div_ceil(period) } else { product / period }
            }
            // More than any limit.
            _ => EXACT,
        }
    }
}

impl View {
    /// Whether a post of this epoch is charged.
    fn takes(&self, part: &Part, epoch: u64) -> bool {
        match (self.now, part.kind) {
            (Now::Windows { index, .. }, Kind::Windows(windows)) => {
                epoch == index || (windows.slides && epoch + 1 == index)
            }
            _ => true,
        }
    }

    /// Charges so many, as far as they can be counted: to the window of the epoch, if there is one.
    fn charge(&mut self, part: &Part, units: u64, epoch: Option<u64>) -> u64 {
        match (&mut self.now, part.kind) {
            (Now::Pace { ahead }, Kind::Pace(pace)) => {
                let units = units.min((MOST_OWED - *ahead) / pace.interval);
                *ahead += units * pace.interval;
                units
            }
            (Now::Windows { index, current, previous }, _) => {
                let count = if epoch.is_some_and(|epoch| epoch < *index) { previous } else { current };
                let units = units.min(MOST_OWED.saturating_sub(*count));
                *count += units;
                units
            }
            (Now::Pace { .. }, Kind::Windows(_)) => 0,
        }
    }

    fn refund(&mut self, part: &Part, units: u64, at_us: u64, now_us: u64) -> u64 {
        match (&mut self.now, part.kind) {
            (Now::Pace { ahead }, Kind::Pace(pace)) => {
                let own = units.min(MOST_OWED / pace.interval) * pace.interval;
                let paid = now_us.saturating_sub(at_us).saturating_mul(pace.scale);
                let back = own.saturating_sub(paid).min(*ahead);
                *ahead -= back;
                back.div_ceil(pace.interval)
            }
            (Now::Windows { index, current, .. }, Kind::Windows(windows))
                if at_us / windows.period_us == *index =>
            {
                let back = units.min(*current);
                *current -= back;
                back
            }
            _ => 0,
        }
    }

    fn state(&self, part: &Part, now_us: u64) -> State {
        match (self.now, part.kind) {
            (Now::Pace { ahead }, Kind::Pace(Pace { interval, scale, .. })) => {
                State::Pace { t_us: now_us, ahead, interval, scale }
            }
            (Now::Windows { index, current, previous }, _) => {
                State::Windows { period_us: part.period_us(), index, current, previous }
            }
            (Now::Pace { ahead }, Kind::Windows(_)) => {
                State::Pace { t_us: now_us, ahead, interval: 1, scale: 1 }
            }
        }
    }

    fn standing(&self, part: &Part) -> Standing {
        match self.now {
            Now::Pace { ahead } => Standing::Pace { ahead },
            Now::Windows { index, current, previous } => {
                Standing::Windows { start_us: index * part.period_us(), previous, current }
            }
        }
    }
}
