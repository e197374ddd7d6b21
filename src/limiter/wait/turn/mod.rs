//! One wait: a state machine that is driven by whoever waits.
//!
//! ```text
//!         nobody in line, and room                            ┌─ turn comes ─► (jitter) ─► admitted
//! New ──────────────────────────► admitted      ┌─ Reserved ──┴─ dropped: refund
//!  └────► InLine ─── head of the line: reserve ─┤
//!            └ deadline: refused                └─ Polling: the store does not foresee; asks again when told to
//! ```
//!
//! *The head's reservation.* Only the head of a line asks for anything, by [`Operation::Reserve`] with the longest wait that its
//! deadline allows. The reservation is the newest charge of its key (but for those that nobody asked permission for), so plain
//! checks are denied until it has gone, and if the head is dropped its refund is exact. The head leaves when
//! its turn has come by the limiter's own clock, and the next one reserves then.
//!
//! *The schedule does not drift.* Timers wake late. The next one therefore reserves as of the *turn* of the one before it, not
//! as of the time at which that one woke, up to [`LATE_NS`] back: as a thread that was held up between reading its clock
//! and its charge. So turns are what they would be with timers that are never late; each wait ends at its turn or a
//! timer's lateness after it. What lateness goes beyond that is lost, so a stalled process does not catch up in a burst.
//!
//! *Polling.* Counts of windows, logs, sketches and compact stores without an overdraft know nothing of the future: they
//! deny a reservation and say when to come back. The head then asks again at that time. Nothing is held meanwhile, so plain
//! checks may overtake it; who waits may not.
//!
//! *Refused at once* is who comes too late as things stand: behind the units that the limiter has admitted and those before it
//! in line. The figures are read before the line is joined, and a head takes its units off the line before it charges
//! them, so that what is counted is never counted twice: at worst not at all. What the algorithm does not say of those in line
//! is left out as well. Then the deadline decides.

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

/// How late a wake-up may be without any loss to the schedule: tokio's timer has ticks of a millisecond, and so does the
/// system call that it sleeps in.
const LATE_NS: u64 = 2_000_000;

/// How long a deadline waits for a line that is still on its way at that very moment: from the deadline, or from when the line
/// last moved.
const GRACE_NS: u64 = 1_000_000;

/// The first and the longest pause of a head that is told again and again to come back at once.
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
    /// Known from the first step on; the end of time, if there is none.
    deadline_ns: u64,
    arrived_ns: u64,
    stage: WaitStage,
}

#[derive(Copy, Clone, Debug)]
enum WaitStage {
    New,
    InLine(LinePosition),
    /// At the head, told to ask again.
    Polling {
        place: LinePosition,
        told_ns: u64,
        /// If denied again then, no earlier than after this.
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

/// What is to be done next.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Next {
    Done(Result<Decision, NotReady>),
    /// Go on at `until_ns`, or when the waker is called. Who waits for others without a deadline has the end of time here.
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

    /// Goes as far as can be gone now.
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

    /// Goes to the next stage, or says until when there is none.
    fn step(&mut self, now_ns: u64, waker: &Waker) -> Option<u64> {
        match self.stage {
            WaitStage::New => {
                self.begin(now_ns, waker);
                None
            }
            WaitStage::InLine(place) => match self.lines.look(place, waker) {
                LineStanding::Head { since_ns } => {
                    let since_ns = since_ns.max(self.arrived_ns);
                    self.ask(place, since_ns, now_ns, 0);
                    None
                }
                LineStanding::Behind { turn_ns, moved_ns } => self.patience(place, turn_ns, moved_ns, now_ns),
            },
            WaitStage::Polling { told_ns, .. } if now_ns < told_ns => Some(told_ns),
            WaitStage::Polling { place, told_ns, pause_ns } => {
                self.ask(place, told_ns, now_ns, pause_ns);
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
            self.look(now_ns)
        } else {
            // With a wait of nothing: what a queue would have wait is not admitted yet.
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
        // Above the limit only for spacings, where a request is one event whatever it costs.
        let units = self.cost.min(seen.limit());
        let (place, before) = self.lines.join(self.key, units, now_ns, waker.clone());
        self.stage = WaitStage::InLine(place);
        if let Some(Ahead { units: before, turn_ns }) = before
            && self.deadline_ns < u64::MAX
        {
            // Those before it may be reckoned from a turn that has passed, and who has not seen it yet.
            let late_ns = now_ns.saturating_sub(turn_ns).min(LATE_NS);
            let turn_ns = turn_behind(&seen, before.saturating_add(u128::from(units)), units);
            let turn_ns = turn_ns.saturating_sub(late_ns);
            if turn_ns > self.within_ns {
                self.refuse(place, NotReady::new(seen, turn_ns), now_ns);
            }
        }
    }

    /// Asks for the turn, as the head of the line since `since_ns`; if told to come back, no earlier than after `pause_ns`.
    fn ask(&mut self, place: LinePosition, since_ns: u64, now_ns: u64, pause_ns: u64) {
        let since_ns = since_ns.max(now_ns.saturating_sub(LATE_NS)).min(now_ns);
        if since_ns > self.deadline_ns {
            return self.give_up(place, now_ns);
        }
        self.lines.asks(place);
        let mut decision = self.reserve(since_ns);
        if decision.outcome() == Outcome::Denied && since_ns < now_ns && now_ns <= self.deadline_ns {
            // What the store did not foresee may have come since.
            decision = self.reserve(now_ns);
        }
        match decision.outcome() {
            Outcome::Allowed => {
                let turn_ns = later(&decision, saturating_nanos(decision.delay()));
                self.lines.mean_to_go(place, turn_ns, true);
                self.stage = WaitStage::Reserved { place, charge: decision, turn_ns };
            }
            Outcome::Never => self.refuse(place, NotReady::new(decision, u64::MAX), now_ns),
            Outcome::Denied => self.come_back(place, &decision, now_ns, pause_ns),
        }
    }

    /// Denied, since the turn is after the deadline, or since the store does not foresee it.
    fn come_back(&mut self, place: LinePosition, denied: &Decision, now_ns: u64, pause_ns: u64) {
        // A queue says here how long it is; as the answer to a reservation, only when to ask again.
        let turn_ns = turn(&self.look(denied.at().as_nanos()), self.cost);
        let retry_ns = denied.retry_after().map_or(u64::MAX, saturating_nanos).max(1);
        let told_ns = later(denied, retry_ns.max(pause_ns)).min(self.deadline_ns);
        if later(denied, turn_ns) > self.deadline_ns || told_ns <= now_ns {
            return self.refuse(place, NotReady::new(*denied, turn_ns.max(retry_ns)), now_ns);
        }
        self.lines.mean_to_go(place, told_ns, false);
        // A store without room does not know when it will have some.
        let pause_ns = pause_ns.saturating_mul(2).clamp(PAUSES_NS.0, PAUSES_NS.1);
        self.stage = WaitStage::Polling { place, told_ns, pause_ns };
    }

    /// Behind a head that goes at `turn_ns` or has yet to ask: until when to wait for it, if not in vain.
    fn patience(&mut self, place: LinePosition, turn_ns: u64, moved_ns: u64, now_ns: u64) -> Option<u64> {
        if now_ns < self.deadline_ns || self.deadline_ns == u64::MAX {
            return Some(self.deadline_ns);
        }
        // If the head goes at the deadline or before, it is on its way out, and this one's turn may be the same moment. So is
        // who came to be the head by then: each that leaves gives the next one time to.
        let until_ns = self.deadline_ns.max(moved_ns).saturating_add(GRACE_NS);
        if turn_ns <= self.deadline_ns && now_ns < until_ns {
            return Some(until_ns);
        }
        self.give_up(place, now_ns);
        None
    }

    /// The deadline has passed.
    fn give_up(&mut self, place: LinePosition, now_ns: u64) {
        let seen = self.look(now_ns);
        self.refuse(place, NotReady::new(seen, turn(&seen, self.cost)), now_ns);
    }

    fn refuse(&mut self, place: LinePosition, error: NotReady, now_ns: u64) {
        self.lines.leave(place, now_ns, now_ns);
        self.stage = WaitStage::Done(Err(error));
    }

    fn apply(&self, operation: Operation, at_ns: u64) -> Decision {
        self.store.apply(self.store.prepare(self.key), operation, CheckTime::from_ns(at_ns), self.cost)
    }

    /// At a time that is not after the deadline.
    fn reserve(&self, at_ns: u64) -> Decision {
        let wait_ns = self.deadline_ns.saturating_sub(at_ns);
        self.apply(Operation::Reserve { wait_ns }, at_ns)
    }

    fn look(&self, at_ns: u64) -> Decision {
        self.store.peek(self.store.prepare(self.key), CheckTime::from_ns(at_ns), self.cost)
    }
}

/// So long after the decision's time.
fn later(decision: &Decision, ns: u64) -> u64 {
    decision.at().as_nanos().saturating_add(ns)
}

/// What allowed a cost of nothing, without the delay that others have.
fn at_once(seen: &Decision) -> Decision {
    let facts = Facts::Plain {
        remaining: seen.remaining(),
        retry_ns: 0,
        reset_ns: saturating_nanos(seen.reset_after()),
        delay_ns: 0,
    };
    Decision::new(Outcome::Allowed, seen.cost(), seen.limit(), seen.at().as_nanos(), facts)
}

/// How long after an uncharged decision `cost` units could go.
fn turn(seen: &Decision, cost: u64) -> u64 {
    let units = cost.min(seen.limit());
    turn_behind(seen, u128::from(units), units)
}

/// How long after an uncharged decision `units` could go if `total` are charged, these the last of them. Too little, if the
/// algorithm does not say what others' units mean.
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
    /// Gives back what was charged, before the place: the next one finds it free.
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
            // Of a turn that was waited for only the newest is given back, and then nothing has happened to the key since: so as
            // of its own time, as if it had never been. What has passed since has paid nothing of what nobody did.
            let at_ns = if charge.delay().is_zero() { now_ns } else { charge.at().as_nanos() };
            let at = CheckTime::from_ns(at_ns);
            self.store.refund(self.store.prepare(self.key), at, &charge, charge.cost());
        }
    }
}

/// Leaves the line when dropped, though a clock or a key panicked: nobody behind it waits for ever.
struct Leaving<'a> {
    lines: &'a WaitLines,
    place: Option<LinePosition>,
    /// The beginning of time, if it is not known.
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
