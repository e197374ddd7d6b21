//! One wait: a state machine that a waiting thread or task drives.
//!
//! ```text
//!      no other waiters, free capacity                        ┌─ turn comes ─► (jitter) ─► admitted
//! New ─────────────────────────────► admitted   ┌─ Reserved ──┴─ dropped: refund
//!  └────► InLine ─── head of the line: reserve ─┤
//!            └ deadline: denied                 └─ Polling: the store cannot predict the turn; asks again later
//! ```
//!
//! *The head's reservation.*
//!
//! 1. The head is the first waiter of a line. Only the head asks the limiter, by [`Operation::Reserve`] with the
//!    longest wait that its deadline allows.
//! 2. Its reservation is the newest charge of the key, except for unchecked charges. Plain checks are therefore denied
//!    until the head has gone. If the head is dropped, its refund is exact.
//! 3. The head leaves when its turn has come by the limiter's own clock. The next waiter then reserves its turn.
//!
//! *The schedule does not drift.* Timers wake late. The next waiter therefore reserves as of the *turn* of the previous
//! head, not as of the time at which that head woke. The reservation goes back by at most [`LATE_NS`]. It has the same
//! effect as a thread that is delayed between its clock reading and its charge. Turns are therefore the same as with
//! timers that are never late, and each wait ends at its turn, or later by the timer's lateness. Lateness beyond
//! [`LATE_NS`] is lost, so a stalled process does not catch up in a burst.
//!
//! *Polling.* Counts of windows, logs, sketches and compact stores without an overdraft cannot predict a turn. They
//! deny a reservation and return a retry time. The head then asks again at that time. It holds no reservation in
//! between, so plain checks may overtake it. Other waiters may not.
//!
//! *Immediate denial.* A wait with a deadline estimates its turn when it joins the line, from the units that the
//! limiter has admitted and the units before it in line. If that turn is after the deadline, the wait is denied at
//! once.
//!
//! - The wait reads the limiter's figures before it joins the line, and a head takes its units off the line before it
//!   charges them. The estimate therefore counts no unit twice, but it may miss a unit.
//! - The estimate leaves out the waiters in line if the algorithm cannot predict their turns.
//! - A wait whose estimate was too early is denied at the deadline.

#[cfg(all(test, tollgate_loom))]
mod models;

use std::fmt;
use std::hash::Hash;
use std::task::Waker;
use std::time::Duration;

use super::lines::{Ahead, LinePosition, LineStanding, WaitLines};
use super::{Jitter, NotReady};
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, saturating_nanos};
use crate::base::decision::{Decision, Facts, Outcome};
use crate::store::{Operation, Store};

/// How late a wake-up may be without a delay of later turns. Tokio's timer and the system call in which it sleeps both
/// have ticks of a millisecond.
const LATE_NS: u64 = 2_000_000;

/// How long a waiter stays after its deadline, if the line may be moving at that moment. The time counts from the
/// deadline, or from the last move of the line if that is later.
const GRACE_NS: u64 = 1_000_000;

/// The first and the longest pause of a head, if the store's retry time is always now.
const PAUSES_NS: (u64, u64) = (1_000, 1_000_000);

/// A wait for `cost` units of `key`.
pub(crate) struct Turn<'a, S: Store<Q>, C: Clock, Q: Hash + ?Sized> {
    store: &'a S,
    clock: &'a C,
    lines: &'a WaitLines,
    key: &'a Q,
    cost: u64,
    within_ns: u64,
    jitter: Option<Jitter>,
    /// Set by the first step. `u64::MAX` if there is no deadline.
    deadline_ns: u64,
    arrived_ns: u64,
    stage: WaitStage,
}

#[derive(Copy, Clone, Debug)]
enum WaitStage {
    New,
    InLine(LinePosition),
    /// At the head; must ask again later.
    Polling {
        place: LinePosition,
        /// When to ask again.
        ask_at_ns: u64,
        /// The minimum pause if the next reservation is denied too.
        pause_ns: u64,
    },
    /// At the head, charged.
    Reserved {
        place: LinePosition,
        charge: Decision,
        turn_ns: u64,
    },
    /// Out of the line: the turn has come.
    Jitter {
        charge: Decision,
        until_ns: u64,
    },
    Done(Result<Decision, NotReady>),
}

/// The next action of the caller.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Next {
    Done(Result<Decision, NotReady>),
    /// Continue at `until_ns`, or when the waker is called. `u64::MAX` for a waiter without a deadline that is behind
    /// other waiters.
    Sleep {
        now_ns: u64,
        until_ns: u64,
    },
}

impl<'a, S: Store<Q>, C: Clock, Q: Hash + ?Sized> Turn<'a, S, C, Q> {
    pub(crate) fn new(store: &'a S, clock: &'a C, lines: &'a WaitLines, key: &'a Q, cost: u64) -> Self {
        Self {
            store,
            clock,
            lines,
            key,
            cost,
            within_ns: u64::MAX,
            jitter: None,
            deadline_ns: u64::MAX,
            arrived_ns: 0,
            stage: WaitStage::New,
        }
    }

    pub(crate) fn within(&mut self, longest: Duration) {
        self.within_ns = saturating_nanos(longest);
    }

    pub(crate) fn jitter(&mut self, jitter: Jitter) {
        self.jitter = Some(jitter);
    }

    /// Advances as far as possible now.
    pub(crate) fn advance(&mut self, waker: &Waker) -> Next {
        loop {
            if let WaitStage::Done(result) = self.stage {
                return Next::Done(result);
            }
            let now_ns = self.clock.now().as_nanos();
            if let Some(until_ns) = self.step(now_ns, waker) {
                return Next::Sleep { now_ns, until_ns };
            }
        }
    }

    /// Moves to the next stage, or returns the time at which to call this method again.
    fn step(&mut self, now_ns: u64, waker: &Waker) -> Option<u64> {
        match self.stage {
            WaitStage::New => {
                self.begin(now_ns, waker);
                None
            }
            WaitStage::InLine(place) => match self.lines.standing(place, waker) {
                LineStanding::Head { since_ns } => {
                    let since_ns = since_ns.max(self.arrived_ns);
                    self.ask(place, since_ns, now_ns, 0);
                    None
                }
                LineStanding::Behind { turn_ns, moved_ns } => self.patience(place, turn_ns, moved_ns, now_ns),
            },
            WaitStage::Polling { ask_at_ns, .. } if now_ns < ask_at_ns => Some(ask_at_ns),
            WaitStage::Polling { place, ask_at_ns, pause_ns } => {
                self.ask(place, ask_at_ns, now_ns, pause_ns);
                None
            }
            WaitStage::Reserved { turn_ns, .. } if now_ns < turn_ns => Some(turn_ns),
            WaitStage::Reserved { place, charge, turn_ns } => {
                self.lines.leave(place, turn_ns, now_ns);
                let extra = match self.jitter {
                    Some(jitter) if turn_ns > self.arrived_ns => jitter.nanos(self.lines.random(place)),
                    _ => 0,
                };
                let until_ns = turn_ns.saturating_add(extra).min(self.deadline_ns);
                self.stage = WaitStage::Jitter { charge, until_ns };
                None
            }
            WaitStage::Jitter { until_ns, .. } if now_ns < until_ns => Some(until_ns),
            WaitStage::Jitter { charge, .. } => {
                self.stage = WaitStage::Done(Ok(charge));
                None
            }
            WaitStage::Done(_) => None,
        }
    }

    fn begin(&mut self, now_ns: u64, waker: &Waker) {
        self.arrived_ns = now_ns;
        self.deadline_ns = now_ns.saturating_add(self.within_ns);
        let seen = if self.cost > 0 && self.lines.has(self.key) {
            self.peek(now_ns)
        } else {
            // The wait is zero, because a request that a queue would delay must not be admitted yet.
            let decision = self.apply(Operation::Reserve { wait_ns: 0 }, now_ns);
            if decision.is_allowed() {
                self.stage = WaitStage::Done(Ok(if self.cost > 0 { decision } else { at_once(&decision) }));
                return;
            }
            decision
        };
        if seen.is_never() {
            self.stage = WaitStage::Done(Err(NotReady::new(seen, u64::MAX)));
            return;
        }
        // The cost exceeds the limit only for minimum spacing, where each request is one event at any cost.
        let units = self.cost.min(seen.limit());
        let (place, before) = self.lines.join(self.key, units, now_ns, waker.clone());
        self.stage = WaitStage::InLine(place);
        if let Some(Ahead { units: before, turn_ns }) = before
            && self.deadline_ns < u64::MAX
        {
            // If the head's turn has passed and its timer is late, the next turn counts from the head's turn.
            let late_ns = now_ns.saturating_sub(turn_ns).min(LATE_NS);
            let turn_ns = turn_behind(&seen, before.saturating_add(u128::from(units)), units);
            let turn_ns = turn_ns.saturating_sub(late_ns);
            if turn_ns > self.within_ns {
                self.reject(place, NotReady::new(seen, turn_ns), now_ns);
            }
        }
    }

    /// Asks for the turn, as the head of the line since `since_ns`. After a denial, pauses for at least `pause_ns`.
    fn ask(&mut self, place: LinePosition, since_ns: u64, now_ns: u64, pause_ns: u64) {
        let since_ns = since_ns.max(now_ns.saturating_sub(LATE_NS)).min(now_ns);
        if since_ns > self.deadline_ns {
            return self.give_up(place, now_ns);
        }
        self.lines.asks(place);
        let mut decision = self.reserve(since_ns);
        if decision.outcome() == Outcome::Denied && since_ns < now_ns && now_ns <= self.deadline_ns {
            // Capacity that the store could not predict may be free by now.
            decision = self.reserve(now_ns);
        }
        match decision.outcome() {
            Outcome::Allowed => {
                let turn_ns = later(&decision, saturating_nanos(decision.delay()));
                self.lines.set_turn(place, turn_ns, true);
                self.stage = WaitStage::Reserved { place, charge: decision, turn_ns };
            }
            Outcome::Never => self.reject(place, NotReady::new(decision, u64::MAX), now_ns),
            Outcome::Denied => self.retry_or_reject(place, &decision, now_ns, pause_ns),
        }
    }

    /// Handles a denial: the turn is after the deadline, or the store cannot predict it.
    fn retry_or_reject(&mut self, place: LinePosition, denied: &Decision, now_ns: u64, pause_ns: u64) {
        // For a queue, the peek also contains the length of the queue. The denied reservation contains only the time to
        // ask again.
        let turn_ns = turn(&self.peek(denied.at().as_nanos()), self.cost);
        let retry_ns = denied.retry_after().map_or(u64::MAX, saturating_nanos).max(1);
        let ask_at_ns = later(denied, retry_ns.max(pause_ns)).min(self.deadline_ns);
        if later(denied, turn_ns) > self.deadline_ns || ask_at_ns <= now_ns {
            return self.reject(place, NotReady::new(*denied, turn_ns.max(retry_ns)), now_ns);
        }
        self.lines.set_turn(place, ask_at_ns, false);
        // A store without free slots does not know when it will have one.
        let pause_ns = pause_ns.saturating_mul(2).clamp(PAUSES_NS.0, PAUSES_NS.1);
        self.stage = WaitStage::Polling { place, ask_at_ns, pause_ns };
    }

    /// Returns the time until which to wait for the head, whose turn is at `turn_ns` or not known yet. Gives up if the
    /// deadline has passed.
    fn patience(&mut self, place: LinePosition, turn_ns: u64, moved_ns: u64, now_ns: u64) -> Option<u64> {
        if now_ns < self.deadline_ns || self.deadline_ns == u64::MAX {
            return Some(self.deadline_ns);
        }
        // If the head's turn is at the deadline or before, the head is leaving now, and this waiter's turn may come at
        // the same moment. The next head may also leave at that moment, so each move of the line extends the time.
        let until_ns = self.deadline_ns.max(moved_ns).saturating_add(GRACE_NS);
        if turn_ns <= self.deadline_ns && now_ns < until_ns {
            return Some(until_ns);
        }
        self.give_up(place, now_ns);
        None
    }

    /// Gives up because the deadline has passed.
    fn give_up(&mut self, place: LinePosition, now_ns: u64) {
        let seen = self.peek(now_ns);
        self.reject(place, NotReady::new(seen, turn(&seen, self.cost)), now_ns);
    }

    fn reject(&mut self, place: LinePosition, error: NotReady, now_ns: u64) {
        self.lines.leave(place, now_ns, now_ns);
        self.stage = WaitStage::Done(Err(error));
    }

    fn apply(&self, operation: Operation, at_ns: u64) -> Decision {
        self.store.apply(self.store.prepare(self.key), operation, CheckTime::from_ns(at_ns), self.cost)
    }

    /// Reserves at a time that is not after the deadline.
    fn reserve(&self, at_ns: u64) -> Decision {
        let wait_ns = self.deadline_ns.saturating_sub(at_ns);
        self.apply(Operation::Reserve { wait_ns }, at_ns)
    }

    fn peek(&self, at_ns: u64) -> Decision {
        self.store.peek(self.store.prepare(self.key), CheckTime::from_ns(at_ns), self.cost)
    }
}

/// Returns the time `ns` after the decision's time.
fn later(decision: &Decision, ns: u64) -> u64 {
    decision.at().as_nanos().saturating_add(ns)
}

/// Returns the admission of a cost of zero, without the delay of other requests.
fn at_once(seen: &Decision) -> Decision {
    let facts = Facts::Plain {
        remaining: seen.remaining(),
        retry_ns: 0,
        reset_ns: saturating_nanos(seen.reset_after()),
        delay_ns: 0,
    };
    Decision::new(Outcome::Allowed, seen.cost(), seen.limit(), seen.at().as_nanos(), facts)
}

/// Returns how long after an uncharged decision a request of `cost` units conforms.
fn turn(seen: &Decision, cost: u64) -> u64 {
    let units = cost.min(seen.limit());
    turn_behind(seen, u128::from(units), units)
}

/// Returns how long after an uncharged decision a request of `units` units conforms, if `total` units are charged and
/// this request is the last. The result is too small if the algorithm cannot predict the effect of the other units.
fn turn_behind(seen: &Decision, total: u128, units: u64) -> u64 {
    let total = u64::try_from(total).unwrap_or(u64::MAX);
    let mut facts = *seen.facts();
    match &mut facts {
        Facts::Pace { ahead, interval, .. } | Facts::Ticks { ahead, interval, .. } => {
            *ahead = ahead.saturating_add(interval.saturating_mul(total));
        }
        Facts::Batch { used, raised, .. } => {
            *used = used.saturating_add(total);
            *raised = 0;
        }
        Facts::Blend { .. } | Facts::Plain { .. } => {
            return seen.retry_after().map_or(u64::MAX, saturating_nanos);
        }
    }
    let charged = Decision::new(Outcome::Allowed, units, seen.limit(), seen.at().as_nanos(), facts);
    saturating_nanos(charged.delay())
}

impl<S: Store<Q>, C: Clock, Q: Hash + ?Sized> Drop for Turn<'_, S, C, Q> {
    /// Refunds the charge, and then leaves the line, so that the next waiter finds the units free.
    fn drop(&mut self) {
        let (place, charge) = match self.stage {
            WaitStage::New | WaitStage::Done(_) => return,
            WaitStage::InLine(place) | WaitStage::Polling { place, .. } => (Some(place), None),
            WaitStage::Reserved { place, charge, .. } => (Some(place), Some(charge)),
            WaitStage::Jitter { charge, .. } => (None, Some(charge)),
        };
        let mut leaving = Leaving { lines: self.lines, place, now_ns: 0 };
        let now_ns = self.clock.now().as_nanos();
        leaving.now_ns = now_ns;
        if let Some(charge) = charge {
            // The store refunds a reserved turn only if no other charge of the key came after it. The refund is
            // therefore dated at the charge's own time, as if the charge had never been made. The time since then has
            // paid no part of the unused charge.
            let at_ns = if charge.delay().is_zero() { now_ns } else { charge.at().as_nanos() };
            let at = CheckTime::from_ns(at_ns);
            self.store.refund(self.store.prepare(self.key), at, &charge, charge.cost());
        }
    }
}

/// Leaves the line when dropped, even if a clock or a key panicked, so that no waiter behind it waits forever.
struct Leaving<'a> {
    lines: &'a WaitLines,
    place: Option<LinePosition>,
    /// The time of leaving, or 0 if the clock panicked.
    now_ns: u64,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.lines.leave(place, self.now_ns, self.now_ns);
        }
    }
}

impl<S: Store<Q>, C: Clock, Q: Hash + ?Sized> fmt::Debug for Turn<'_, S, C, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("cost", &self.cost).field("stage", &self.stage).finish_non_exhaustive()
    }
}
