//! The algorithm of the server's script, in Rust, with the same integers and the same rounding. Tests compare the two.
//!
//! *Time that steps back.*
//!
//! 1. A theoretical arrival time does not change, and a window that begins in the future counts as if it had begun. So
//!    the limiter denies for longer, by less than the step.
//! 2. A state that is too far in the future is moved back to the present, and keeps its debt. Too far is more than the
//!    time that refills a burst (for a class of requests, its share), or more than a whole window. So a clock that ran
//!    ahead does not lock out a client for long. The corrected state is written even if the request is denied.
//!
//! *Blocks.* The end of a block is part of the theoretical arrival time, so the same holds for it. But denials in a block write
//! nothing, so its state has the time of its beginning, and a step is measured from there. After a step back, the block ends
//! later: by the step, or by the time already passed in the block plus the time that refills a burst, whichever is less. So
//! from the step on, it lasts for at most its length plus the time that refills a burst.
//!
//! *Quotas that change.* A GCRA state contains the interval with which it was written. Under another interval, the debt
//! is converted unit for unit, rounded up (except 2^-25 of a unit), and is paid at the new rate. Limiters with
//! different quotas can share a state, for example two versions of a program. In any interval of time, they together
//! admit at most the larger burst, plus the higher rate times the length of the interval. Windows of the same period
//! are counted together under any limit. The name of a state contains the period, so each period has its own count, and
//! a changed period begins with an empty count. A block that has begun keeps its end under every quota, because a
//! debt in a block is kept as a time. If the limit's longest block is shorter, the block has that length from its beginning,
//! unless the wait without the block was longer.

mod batches;
mod blocked;
mod calendar;
mod holds;
mod log;
mod pace;
mod parts;
mod spacing;
mod windows;

use std::collections::VecDeque;

use self::batches::BatchesView;
use self::blocked::BlockedView;
use self::calendar::CalendarView;
pub(crate) use self::holds::{answer_holds, holds_are_over};
use self::log::LogView;
use self::parts::{Counts, PartsView};
use self::spacing::SpacingView;
use super::call::{LimitStanding, Question, Reply};
use super::exact::{EXACT, LAST_US, MAX_DEBT};
use super::kinds::Pace;
use super::plan::{Arithmetic, Plan, PlannedLimit, Windows};

/// How much longer than necessary keys are kept: first if the server's clock gives the time, second if the call does.
pub(crate) const MARGINS_US: [u64; 2] = [1_000_000, 60_000_000];
/// How long the posts of a key are remembered after the last post, in addition to the refill time or the window.
pub const POSTS_KEPT_US: u64 = 3_600_000_000;

/// The stored data of one key.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct KeyState {
    limits: Vec<KeptState>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct KeptState {
    name: Box<str>,
    state: Option<StoredState>,
    posts: Vec<(u64, Posts)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum StoredState {
    Pace {
        t_us: u64,
        ahead: u64,
        interval: u64,
        scale: u64,
    },
    Windows {
        index: u64,
        current: u64,
        previous: u64,
    },
    /// The times of the units, oldest first.
    Log(VecDeque<u64>),
    Parts(Counts),
    Spacing {
        came_us: u64,
        turn_us: u64,
        next_us: u64,
    },
    Batches {
        ends_us: u64,
        used: u64,
    },
    Blocked {
        t_us: u64,
        /// How far the theoretical arrival time is ahead of it, without the block.
        alone: u64,
        interval: u64,
        scale: u64,
        mark: u64,
        rest_us: u64,
    },
}

/// The total that a process posted in an epoch, as in [`Question::Post`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PostedTotal {
    /// The epoch.
    pub epoch: u64,
    /// The sum of all units that the process admitted in this epoch.
    pub total: u64,
}

/// The posts of one process: in its highest epoch, and in the next lower epoch.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Posts {
    last: PostedTotal,
    before: Option<PostedTotal>,
    at_us: u64,
}

/// A state at the current time.
struct View {
    /// The counts in the current window.
    now: Now,
    /// The units left.
    left: u64,
    /// Whether the state was moved back from the future.
    healed: bool,
    /// Whether units were charged or taken back, or a block began.
    is_changed: bool,
}

enum Now {
    Pace { pace: Pace, ahead: u64 },
    Windows { windows: Windows, index: u64, current: u64, previous: u64 },
    Log(LogView),
    Parts(PartsView),
    Spacing(SpacingView),
    Batches(BatchesView),
    Calendar(CalendarView),
    Blocked(BlockedView),
}

/// Answers a question.
pub(crate) fn answer(plan: &Plan, held: &mut KeyState, now_us: u64, ask: &Question) -> Reply {
    let now_us = now_us.min(LAST_US);
    if matches!(ask, Question::Forget) {
        return Reply::new(held.forget(plan), now_us, Default::default());
    }
    let seen = |(part, name)| view(part, held.find(name).and_then(|limit| limit.state.clone()), now_us);
    let mut views: Vec<View> = plan.named().map(seen).collect();
    let left = views.iter().map(|view| view.left).min().unwrap_or(u64::MAX);
    let mut granted = 0;
    let mut charge = |units: u64, views: &mut [View]| {
        for view in views {
            granted = granted.max(view.charge(units, None, now_us));
        }
    };
    match *ask {
        Question::Check { cost } if cost <= left => charge(cost.min(EXACT - 1), &mut views),
        Question::Check { cost } => views.iter_mut().for_each(|view| view.block(cost)),
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
            for ((part, name), view) in plan.named().zip(&mut views) {
                if view.takes(epoch) {
                    let units = held.make(name).post(part, process, PostedTotal { epoch, total }, now_us);
                    granted = granted.max(view.charge(units, Some(epoch), now_us));
                }
            }
        }
        // A peek changes nothing. The others are about holds and regions, which have models of their own.
        _ => {}
    }
    for (name, view) in plan.names.iter().zip(&views) {
        if view.writes(granted) || (view.healed && !matches!(ask, Question::Peek { .. })) {
            held.make(name).state = Some(view.state(now_us));
        }
    }
    // The units for which the caller waits.
    let cost = match *ask {
        Question::Check { cost } if granted == 0 => cost,
        Question::Peek { cost } => cost,
        _ => 0,
    };
    let limits = views.iter().map(|view| view.standing(cost, now_us)).collect();
    Reply::new(granted, now_us, limits)
}

impl KeyState {
    /// The time after which the stored data has no effect.
    pub(crate) fn rest_us(&self, plan: &Plan, now_us: u64) -> u64 {
        let rest = |(part, name): (&PlannedLimit, &str)| {
            let Some(limit) = self.find(name) else { return 0 };
            let posts = if limit.posts.is_empty() { 0 } else { kept_us(part) };
            let until_us = match &limit.state {
                Some(StoredState::Pace { t_us, ahead, scale, .. }) => {
                    (*t_us).max(now_us) + ahead.div_ceil(*scale)
                }
                Some(StoredState::Windows { index, .. }) => (index + 2) * part.window_us().unwrap_or(1),
                Some(StoredState::Log(times)) => times.back().map_or(0, |newest| newest + part.refill_us()),
                Some(StoredState::Parts(counts)) => counts.until_us(part),
                Some(StoredState::Spacing { came_us, next_us, .. }) => *came_us.max(next_us),
                Some(StoredState::Batches { ends_us, used }) => BatchesView::until_us(part, *ends_us, *used),
                Some(state @ StoredState::Blocked { .. }) => BlockedView::until_us(part, state, now_us),
                None => 0,
            };
            posts.max(until_us.saturating_sub(now_us))
        };
        plan.named().map(rest).max().unwrap_or(0)
    }

    /// Returns whether each limit has a state.
    pub(crate) fn is_complete(&self, plan: &Plan) -> bool {
        plan.names.iter().all(|name| self.find(name).is_some_and(|limit| limit.state.is_some()))
    }

    /// Returns the states of the limits, without the posts.
    pub(crate) fn states(&self, plan: &Plan) -> Self {
        let state = |name: &str| Some(KeptState { posts: Vec::new(), ..self.find(name)?.clone() });
        Self { limits: plan.names.iter().filter_map(|name| state(name)).collect() }
    }

    /// Takes these states for the limits that have none.
    pub(crate) fn adopt(&mut self, plan: &Plan, states: &Self) {
        for name in &plan.names {
            if let Some(KeptState { state: Some(state), .. }) = states.find(name) {
                self.make(name).state.get_or_insert_with(|| state.clone());
            }
        }
    }

    /// Removes the states of the limits. Returns their number.
    fn forget(&mut self, plan: &Plan) -> u64 {
        let limits = self.limits.iter_mut().filter(|limit| plan.names.contains(&limit.name));
        limits.filter_map(|limit| limit.state.take()).count() as u64
    }

    fn find(&self, name: &str) -> Option<&KeptState> {
        self.limits.iter().find(|limit| &*limit.name == name)
    }

    fn make(&mut self, name: &str) -> &mut KeptState {
        let at = self.limits.iter().position(|limit| &*limit.name == name).unwrap_or_else(|| {
            self.limits.push(KeptState { name: name.into(), state: None, posts: Vec::new() });
            self.limits.len() - 1
        });
        &mut self.limits[at]
    }
}

impl KeptState {
    /// Remembers a total. Returns the units that it adds.
    fn post(&mut self, part: &PlannedLimit, process: u64, post: PostedTotal, now_us: u64) -> u64 {
        let PostedTotal { epoch, total } = post;
        let Some((_, posts)) = self.posts.iter_mut().find(|(of, _)| *of == process) else {
            if total > 0 {
                let kept = kept_us(part);
                self.posts.retain(|(_, posts)| now_us.saturating_sub(posts.at_us) <= kept);
                self.posts.push((process, Posts { last: post, before: None, at_us: now_us }));
            }
            return total;
        };
        let Posts { last, before, .. } = *posts;
        let added = if epoch > last.epoch {
            (posts.last, posts.before) = (post, Some(last));
            total
        } else if epoch == last.epoch {
            posts.last.total = total.max(last.total);
            posts.last.total - last.total
        } else {
            match before {
                Some(known) if known.epoch == epoch => {
                    posts.before = Some(PostedTotal { epoch, total: total.max(known.total) });
                    total.saturating_sub(known.total)
                }
                Some(known) if known.epoch > epoch => 0,
                _ => {
                    posts.before = Some(post);
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
const fn kept_us(part: &PlannedLimit) -> u64 {
    POSTS_KEPT_US + part.refill_us()
}

/// Returns a state as a plan sees it at a given time.
fn view(part: &PlannedLimit, state: Option<StoredState>, now_us: u64) -> View {
    match part.kind {
        Arithmetic::Pace(pace) => pace.view(state, now_us),
        Arithmetic::Windows(windows) => windows.view(state, now_us),
        Arithmetic::Log(log) => LogView::view(log, state, now_us),
        Arithmetic::Parts(parts) => PartsView::view(parts, state, now_us),
        Arithmetic::Spacing(spacing) => SpacingView::view(spacing, state, now_us),
        Arithmetic::Batches(batches) => BatchesView::view(batches, state, now_us),
        Arithmetic::Calendar(periods) => CalendarView::view(periods, state, now_us),
        Arithmetic::Blocked(blocks) => BlockedView::view(blocks, state, now_us),
    }
}

impl View {
    const fn new(left: u64, healed: bool, now: Now) -> Self {
        Self { now, left, healed, is_changed: false }
    }

    /// Returns whether a post of this epoch is charged.
    fn takes(&self, epoch: u64) -> bool {
        match self.now {
            Now::Windows { windows, index, .. } => epoch == index || (windows.slides && epoch + 1 == index),
            Now::Pace { .. } => true,
            // Limits without posts.
            Now::Log(_)
            | Now::Parts(_)
            | Now::Spacing(_)
            | Now::Batches(_)
            | Now::Calendar(_)
            | Now::Blocked(_) => false,
        }
    }

    /// Charges the units, up to the maximum that can be counted. With an epoch, charges the window of that epoch.
    fn charge(&mut self, units: u64, epoch: Option<u64>, now_us: u64) -> u64 {
        let charged = match &mut self.now {
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
            Now::Log(log) => log.charge(units, now_us),
            Now::Parts(parts) => parts.charge(units),
            Now::Spacing(spacing) => spacing.charge(units, now_us),
            Now::Batches(BatchesView { count, .. }) | Now::Calendar(CalendarView { count, .. }) => {
                count.charge(units)
            }
            Now::Blocked(blocked) => blocked.charge(units),
        };
        self.is_changed |= charged > 0;
        charged
    }

    fn refund(&mut self, units: u64, at_us: u64, now_us: u64) -> u64 {
        let back = match &mut self.now {
            Now::Pace { pace, ahead } => pace.refund(ahead, units, at_us, now_us),
            Now::Windows { windows, index, current, .. } if at_us / windows.period_us == *index => {
                let back = units.min(*current);
                *current -= back;
                back
            }
            Now::Windows { .. } => 0,
            Now::Log(log) => log.refund(units, at_us),
            Now::Parts(parts) => parts.refund(units, at_us),
            Now::Spacing(spacing) => spacing.refund(units, at_us, now_us),
            Now::Batches(batches) => batches.refund(units, at_us),
            Now::Calendar(calendar) => calendar.refund(units, at_us),
            Now::Blocked(blocked) => blocked.refund(units, at_us, now_us),
        };
        self.is_changed |= back > 0;
        back
    }

    /// Starts the block of a denied check, if this limit has blocks and denies it.
    fn block(&mut self, cost: u64) {
        if let Now::Blocked(blocked) = &mut self.now {
            self.is_changed |= blocked.block(cost);
        }
    }

    /// Returns whether a call that granted these units writes this state. GCRA and windows are also written if the call
    /// charged only another limit. The other kinds are written if they changed.
    fn writes(&self, granted: u64) -> bool {
        self.is_changed || (granted > 0 && matches!(self.now, Now::Pace { .. } | Now::Windows { .. }))
    }

    fn state(&self, now_us: u64) -> StoredState {
        match &self.now {
            &Now::Pace { pace: Pace { interval, scale, .. }, ahead } => {
                StoredState::Pace { t_us: now_us, ahead, interval, scale }
            }
            &Now::Windows { index, current, previous, .. } => {
                StoredState::Windows { index, current, previous }
            }
            Now::Log(log) => log.state(),
            Now::Parts(parts) => parts.state(),
            Now::Spacing(spacing) => spacing.state(),
            Now::Batches(BatchesView { count, .. }) | Now::Calendar(CalendarView { count, .. }) => {
                count.state()
            }
            Now::Blocked(blocked) => blocked.state(now_us),
        }
    }

    /// Returns the figures of the reply. `cost` units did not fit, if they are more than those left.
    fn standing(&self, cost: u64, now_us: u64) -> LimitStanding {
        match &self.now {
            &Now::Pace { ahead, .. } => LimitStanding::Pace { ahead, is_blocked: false },
            &Now::Windows { windows, index, current, previous } => {
                LimitStanding::Windows { start_us: index * windows.period_us, previous, current }
            }
            Now::Log(log) => log.standing(cost, now_us),
            Now::Parts(parts) => parts.standing(cost, now_us),
            Now::Spacing(spacing) => spacing.standing(now_us),
            Now::Batches(BatchesView { count, .. }) | Now::Calendar(CalendarView { count, .. }) => {
                count.standing()
            }
            Now::Blocked(blocked) => blocked.standing(),
        }
    }
}

/// Returns the units whose wait a reply states: the cost if it does not fit, or one if none is left.
fn wanted(cost: u64, left: u64, most: u64) -> u64 {
    if cost > left && cost <= most { cost } else { u64::from(left == 0) }
}
