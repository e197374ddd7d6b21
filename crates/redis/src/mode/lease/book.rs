//! Keys and their leases, without a clock, a connection or a task. The caller passes the time and carries the calls.
//!
//! 1. [`LeaseBook::check`] spends held units. If few units are left, it queues the key for a call.
//! 2. If too few units are held, the caller queues the key with [`want`](LeaseBook::want), or takes the key's call
//!    itself with [`claim`](LeaseBook::claim).
//! 3. [`due`](LeaseBook::due) returns the calls of queued keys. The caller sends them to the shared state.
//! 4. The caller reports each call. [`answered`](LeaseBook::answered) deposits the granted units, or starts a pause of
//!    the key after a denial. [`failed`](LeaseBook::failed) starts a pause of the key.
//!
//! *Only charged units are spent*, and only during their life.
//!
//! 1. The local clock measures the life. It begins before the call is sent.
//! 2. Units of a window live no longer than the rest of the window when they were charged. The reply contains this
//!    time. The life begins before the charge, so the units expire before the window ends.
//! 3. If a reply comes after the life, or never, its units are charged and lost.

use std::cell::Cell;
use std::sync::Arc;

use tollgate::internals::sync::{AtomicU64, Ordering};
use tollgate::internals::{Facts, Terms, saturating_nanos};
use tollgate::leases::Lease;
use tollgate::{Decision, Outcome, Timestamp};
use tollgate_protocol::{Plan, Question, Reply};

use super::key_lease::{Habit, KeyLease, Pause, Turn, Wish};
use super::stats::{Counters, LeaseStats, RequestTally};
use crate::mode::name::{KeyRef, LookupKey};
use crate::mode::queue::KeyQueue;
use crate::mode::table::KeyTable;

/// A round trip before the first measurement, and the minimum wait for units that are in flight.
const TRIP_NS: u64 = 1_000_000;
/// A key that holds nothing and was not used for this many lives is removed.
const IDLE_LIVES: u64 = 4;
/// While this many keys are queued, the process asks for larger blocks, because it cannot send more calls.
const CROWD: usize = 128;

/// The options of the lease mode.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LeaseSettings {
    /// The largest cost that all limits together can admit at once.
    pub limit: u64,
    /// How long units may be spent.
    pub life: std::time::Duration,
    /// The largest number of units of a key.
    pub max_block: u64,
    /// The number of processes that share the limits.
    pub processes: u32,
    /// The number of stripes for each key. `None` means one word for each key.
    pub stripes: Option<usize>,
    /// The maximum number of keys.
    pub max_keys: usize,
    /// The seed of random delays, so that processes do not call the server at the same time.
    pub seed: u64,
}

/// The result of a check in this process.
#[derive(Clone, Debug)]
pub enum LeaseCheck {
    /// The check is decided, with units held until this time (0 if nothing was charged), or with a recent answer of the
    /// server.
    Decided(Decision, u64),
    /// Too few units are held. The retry time of the denial is when to check again. No call is queued yet.
    Missing(Decision, Arc<KeyLease>),
    /// Too few units are held, and a call to the server failed a short time ago.
    Failing,
    /// The table has no room for the key, so the server decides.
    Full,
}

/// A call for units, from when it is sent until it is answered. If it is dropped before the answer, it has failed: its
/// task ended or panicked.
#[derive(Debug)]
#[must_use = "dropping a call reports it as failed"]
pub struct BlockRequest {
    /// The key.
    pub key: Box<[u8]>,
    /// When the call was sent.
    pub(crate) asked_ns: u64,
    pub(super) holding: Arc<KeyLease>,
    pub(super) wish: Wish,
    /// The units that the caller takes from the answer, before other checks can take them.
    pub cost: u64,
    requests: Arc<RequestTally>,
    /// How long the key pauses if the call is dropped.
    pause_ns: u64,
    is_reported: Cell<bool>,
}

impl Drop for BlockRequest {
    fn drop(&mut self) {
        if !self.is_reported.replace(true) {
            self.lose(self.asked_ns, self.pause_ns);
        }
    }
}

impl BlockRequest {
    /// The question for the server.
    pub fn ask(&self) -> Question {
        Question::Lease { least: self.wish.least, wanted: self.wish.wanted, share: self.wish.share }
    }

    fn lose(&self, now_ns: u64, pause_ns: u64) {
        self.holding.pause_failing(now_ns, now_ns.saturating_add(pause_ns));
        self.holding.release();
        self.requests.landed.add(1);
        self.requests.lost.add(1);
    }
}

/// The result of an answer, for the caller.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Receipt {
    /// The caller has its cost, until this time. The rest was deposited.
    Taken {
        /// The end of the life.
        until_ns: u64,
    },
    /// The units were granted, but too late.
    Late,
    /// The server denied the units. No call asks for them again until this time.
    Refused {
        /// The end of the pause.
        until_ns: u64,
    },
}

/// All leases of a limiter; see the module docs.
#[derive(Debug)]
pub struct LeaseBook {
    pub(super) terms: Terms,
    settings: LeaseSettings,
    pub(super) keys: KeyTable<KeyLease>,
    pub(super) queue: KeyQueue<(Box<[u8]>, Arc<KeyLease>)>,
    /// The smoothed round trip.
    trip_ns: AtomicU64,
    pub(super) counters: Counters,
}

impl Default for LeaseSettings {
    fn default() -> Self {
        let life = std::time::Duration::from_secs(1);
        Self { limit: 0, life, max_block: 4_096, processes: 8, stripes: None, max_keys: 0, seed: 0 }
    }
}

impl LeaseBook {
    /// `wake` is called when calls are [`due`](Self::due).
    pub fn new(settings: LeaseSettings, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let terms = Terms::new(settings.limit, settings.life, settings.max_block);
        Self {
            terms,
            settings: LeaseSettings { max_block: settings.max_block.clamp(1, terms.most()), ..settings },
            keys: KeyTable::new(settings.max_keys),
            queue: KeyQueue::new(wake),
            trip_ns: AtomicU64::new(TRIP_NS),
            counters: Counters::default(),
        }
    }

    /// The sum of all held units. O(keys).
    pub fn held(&self, now_ns: u64) -> u64 {
        let mut held = 0_u64;
        self.keys.for_each(|_, holding| held = held.saturating_add(holding.held(&self.terms, now_ns)));
        held
    }

    /// The measured round trip.
    pub(crate) fn trip_ns(&self) -> u64 {
        // Ordering: Relaxed, here and below. The value is a hint and publishes no other memory.
        self.trip_ns.load(Ordering::Relaxed)
    }

    /// Returns all counts. O(keys).
    pub fn stats(&self, now_ns: u64) -> LeaseStats {
        self.counters.sum(self.held(now_ns), self.keys.len())
    }

    /// `queued` is the number of keys in the queue.
    fn habit(&self, queued: usize) -> Habit {
        Habit {
            max_block: self.settings.max_block,
            processes: self.settings.processes,
            trip_ns: self.trip_ns(),
            is_crowded: queued >= CROWD,
        }
    }

    /// The common case of [`check`](Self::check): the units are held, and no other thread interferes. Returns the end
    /// of the lease. In other cases it does nothing. O(1). Takes no lock, except in the call that finds few units left.
    #[inline(always)]
    pub(super) fn take<'k>(
        &self,
        key: impl LookupKey<'k>,
        cost: u64,
        now_ns: u64,
    ) -> Option<(Decision, u64)> {
        let keys = self.keys.pin();
        let holding = keys.get(key)?;
        let (left, until_ns) = holding.take(&self.terms, cost, now_ns)?;
        if left < holding.low() {
            self.low(key.into(), holding, now_ns);
        }
        // Dropped before the count: the guard ends with an atomic exchange, which waits for earlier writes.
        drop(keys);
        self.counters.spent(cost);
        let facts = Facts::Plain { remaining: left, retry_ns: 0, reset_ns: 0, delay_ns: 0 };
        Some((Decision::new(Outcome::Allowed, cost, self.settings.limit, now_ns, facts), until_ns))
    }

    /// Spends held units, if there are enough. O(1). Takes no lock, except in the call that finds few units left.
    pub fn check<'k>(&self, key: impl Into<KeyRef<'k>>, cost: u64, now_ns: u64) -> LeaseCheck {
        let key = key.into();
        match self.take(key, cost, now_ns) {
            Some((decision, until_ns)) => LeaseCheck::Decided(decision, until_ns),
            None => self.check_slow(key, cost, now_ns),
        }
    }

    #[cold]
    pub(super) fn check_slow(&self, key: KeyRef<'_>, cost: u64, now_ns: u64) -> LeaseCheck {
        let checked = self.keys.get(key, |holding| self.spend(key, holding, cost, now_ns));
        checked.unwrap_or_else(|| self.first(key, cost, now_ns))
    }

    fn spend(&self, key: KeyRef<'_>, holding: &Arc<KeyLease>, cost: u64, now_ns: u64) -> LeaseCheck {
        let (decision, until_ns) = holding.spend(&self.terms, cost, now_ns, TRIP_NS);
        if decision.is_allowed() {
            if decision.remaining() < holding.low() {
                self.low(key, holding, now_ns);
            }
            self.counters.spent(cost);
            return LeaseCheck::Decided(decision, until_ns);
        }
        self.short(holding, decision, now_ns)
    }

    /// Few units are left in a stripe. If all stripes have few, the key is queued.
    #[cold]
    fn low(&self, key: KeyRef<'_>, holding: &Arc<KeyLease>, now_ns: u64) {
        if holding.is_idle()
            && holding.held(&self.terms, now_ns) < holding.low()
            && holding.pause(&self.terms, 1, now_ns).is_none()
        {
            self.enqueue(key, holding);
        }
    }

    #[cold]
    fn short(&self, holding: &Arc<KeyLease>, decision: Decision, now_ns: u64) -> LeaseCheck {
        if decision.is_never() {
            return LeaseCheck::Decided(decision, 0);
        }
        match holding.pause(&self.terms, self.missing(holding, decision.cost(), now_ns), now_ns) {
            Some(Pause::Refused { until_ns }) => {
                let wait_ns = until_ns.saturating_sub(now_ns);
                // Another thread may have put units back since. The caller may then check again immediately.
                let denied = holding.peek(&self.terms, decision.cost(), now_ns, wait_ns);
                let decision = if denied.is_denied() { denied } else { decision };
                LeaseCheck::Decided(decision, 0)
            }
            Some(Pause::Failing) => LeaseCheck::Failing,
            None => LeaseCheck::Missing(self.soon(decision.cost(), now_ns), Arc::clone(holding)),
        }
    }

    fn missing(&self, holding: &KeyLease, cost: u64, now_ns: u64) -> u64 {
        cost.saturating_sub(holding.held(&self.terms, now_ns)).max(1)
    }

    /// A denial whose retry time is when units in flight should arrive.
    pub(crate) fn soon(&self, cost: u64, now_ns: u64) -> Decision {
        let wait = std::time::Duration::from_nanos(self.trip_ns().max(TRIP_NS));
        Decision::denied(cost, self.settings.limit, 0, wait, Timestamp::from_nanos(now_ns))
    }

    /// A key that is not in the table.
    #[cold]
    fn first(&self, key: KeyRef<'_>, cost: u64, now_ns: u64) -> LeaseCheck {
        if cost == 0 || cost > self.settings.limit {
            // This decision needs no state, so it needs no place in the table.
            let (decision, _) = KeyLease::new(None, now_ns).spend(&self.terms, cost, now_ns, TRIP_NS);
            return LeaseCheck::Decided(decision, 0);
        }
        match self.keys.get_or_make(key, || KeyLease::new(self.settings.stripes, now_ns)) {
            Some(holding) => self.spend(key, &holding, cost, now_ns),
            None => {
                self.counters.full.add(1);
                LeaseCheck::Full
            }
        }
    }

    /// Returns the decision that the held units give, without a charge. The real limit has at least this many units
    /// left.
    pub fn peek<'k>(&self, key: impl Into<KeyRef<'k>>, cost: u64, now_ns: u64) -> Decision {
        let peek = |holding: &KeyLease| {
            let pause = holding.pause(&self.terms, self.missing(holding, cost, now_ns), now_ns);
            let wait_ns = match pause {
                Some(Pause::Refused { until_ns }) => until_ns.saturating_sub(now_ns),
                _ => TRIP_NS,
            };
            holding.peek(&self.terms, cost, now_ns, wait_ns)
        };
        let known = self.keys.get(key.into(), |holding| peek(holding));
        known.unwrap_or_else(|| peek(&KeyLease::new(None, now_ns)))
    }

    fn enqueue(&self, key: KeyRef<'_>, holding: &Arc<KeyLease>) {
        if holding.queue() == Turn::Own
            && let Err((_, holding)) = self.queue.push((Box::from(key.bytes()), Arc::clone(holding)))
        {
            holding.release();
        }
    }

    /// Closes the queue. Callers can then ask for queued keys themselves, and no key is queued again.
    pub(crate) fn close(&self) {
        for (_, holding) in self.queue.close() {
            holding.release();
        }
    }

    /// Returns whether a key can hold this many units. The process never asks for more, because it could not keep them.
    pub(crate) const fn keeps(&self, cost: u64) -> bool {
        cost <= self.terms.most()
    }

    /// Queues a call for units, after a check that found too few. Does nothing if a key can never hold the cost.
    pub fn want<'k>(&self, key: impl Into<KeyRef<'k>>, holding: &Arc<KeyLease>, cost: u64, now_ns: u64) {
        if self.keeps(cost) {
            holding.note(self.missing(holding, cost, now_ns));
            self.enqueue(key.into(), holding);
        }
    }

    /// Records that a caller waits for units of a key for which a call is already pending. The record lasts as long as
    /// the returned value.
    pub fn wait(&self, holding: Arc<KeyLease>, cost: u64, now_ns: u64) -> Waiting {
        let missing = self.missing(&holding, cost, now_ns);
        holding.note(missing);
        holding.wait(missing);
        Waiting { holding, missing }
    }

    /// Returns a call for a caller that asks itself, and takes its cost from the answer. Returns `None` if a call for
    /// the key is pending.
    pub fn claim<'k>(
        &self,
        key: impl Into<KeyRef<'k>>,
        holding: &Arc<KeyLease>,
        cost: u64,
        now_ns: u64,
    ) -> Option<BlockRequest> {
        match holding.claim() {
            Turn::Own => self.due_for(key.into().bytes().into(), Arc::clone(holding), 0, cost, now_ns),
            Turn::Others => None,
        }
    }

    /// Returns the call of the thread whose turn it is. If enough units are held, releases the key and returns `None`.
    fn due_for(
        &self,
        key: Box<[u8]>,
        holding: Arc<KeyLease>,
        queued: usize,
        cost: u64,
        now_ns: u64,
    ) -> Option<BlockRequest> {
        let Some(wish) = holding.wish(&self.terms, self.habit(queued), cost, now_ns) else {
            holding.release();
            return None;
        };
        self.counters.asked.add(1);
        Some(BlockRequest {
            key,
            asked_ns: now_ns,
            holding,
            wish,
            cost,
            requests: Arc::clone(&self.counters.requests),
            pause_ns: self.terms.life_ns() / 16,
            is_reported: Cell::new(false),
        })
    }

    /// Returns at most `most` calls for keys that have too few units or will soon, oldest first. The caller must report
    /// each call with [`answered`](Self::answered) or [`failed`](Self::failed).
    pub fn due(&self, most: usize, now_ns: u64) -> Vec<BlockRequest> {
        let queued = self.queue.len();
        let keys = std::iter::from_fn(|| self.queue.pop()).take(most.min(queued));
        let mine = keys.filter(|(_, holding)| holding.take_up() == Turn::Own);
        mine.filter_map(|(key, holding)| self.due_for(key, holding, queued, 0, now_ns)).collect()
    }

    /// Reports the answer of a call.
    pub fn answered(&self, due: &BlockRequest, answer: &Granted, now_ns: u64) -> Receipt {
        due.is_reported.set(true);
        self.learn_trip(now_ns.saturating_sub(due.asked_ns));
        self.counters.requests.landed.add(1);
        if answer.units == 0 {
            let until_ns = now_ns.saturating_add(self.pause_ns(answer, now_ns));
            due.holding.pause_refused(due.wish.least, now_ns, until_ns);
            due.holding.mark(&self.terms, &due.wish, 0, now_ns);
            due.holding.release();
            self.counters.refused.add(1);
            return Receipt::Refused { until_ns };
        }
        self.counters.granted.add(answer.units);
        let life_ns = answer.window_ns.unwrap_or(u64::MAX).min(self.terms.life_ns());
        // If the clock has stepped back since the call was sent, the life begins now.
        let until_ns = due.asked_ns.min(now_ns).saturating_add(life_ns);
        let in_time = now_ns < until_ns;
        let own = if in_time { due.cost.min(answer.units) } else { 0 };
        self.counters.spent(own);
        let lease = Lease::new(answer.units - own, std::time::Duration::from_nanos(life_ns));
        due.holding.deposit(&self.terms, lease, due.asked_ns, now_ns);
        due.holding.mark(&self.terms, &due.wish, answer.units, now_ns);
        if answer.left == 0 {
            // The answer left no units, so the next call would return none.
            due.holding.pause_refused(1, now_ns, now_ns.saturating_add(self.pause_ns(answer, now_ns)));
        }
        due.holding.release();
        if own == due.cost { Receipt::Taken { until_ns } } else { Receipt::Late }
    }

    /// The pause after a denial. It ends when the units should be available, but not before another call is worthwhile.
    /// It is up to an eighth longer, so that processes do not call at the same time.
    fn pause_ns(&self, answer: &Granted, now_ns: u64) -> u64 {
        let worth = (self.terms.life_ns() / 64).min(answer.reset_ns / 8).max(self.trip_ns());
        self.jitter(answer.retry_ns.max(worth), now_ns)
    }

    /// Adds up to an eighth.
    fn jitter(&self, ns: u64, now_ns: u64) -> u64 {
        let mixed = (now_ns ^ self.settings.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        let part = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 48;
        let more = (u128::from(ns / 8) * u128::from(part)) >> 16;
        ns.saturating_add(u64::try_from(more).unwrap_or(0))
    }

    /// Reports that a call got no answer. Units that it may have charged are lost.
    pub fn failed(&self, due: &BlockRequest, now_ns: u64) {
        due.is_reported.set(true);
        due.holding.mark(&self.terms, &due.wish, 0, now_ns);
        due.lose(now_ns, self.jitter(due.pause_ns, now_ns));
    }

    /// Puts units where checks find them: units of a refunded check, or of a caller that is gone. They keep their
    /// expiry time. Returns the number of units that could be kept.
    pub(crate) fn refund(&self, key: KeyRef<'_>, units: u64, until_ns: u64, now_ns: u64) -> u64 {
        self.keys.get(key, |holding| self.refund_to(holding, units, until_ns, now_ns)).unwrap_or(0)
    }

    /// Puts units back whose life ends at this time. Returns the units that the key keeps.
    pub(super) fn refund_to(&self, holding: &KeyLease, units: u64, until_ns: u64, now_ns: u64) -> u64 {
        let Some(left_ns) = until_ns.checked_sub(now_ns) else { return 0 };
        let lease = Lease::new(units, std::time::Duration::from_nanos(left_ns));
        let kept = holding.deposit(&self.terms, lease, now_ns, now_ns);
        self.counters.unspent.add(kept);
        kept
    }

    fn learn_trip(&self, trip_ns: u64) {
        let old = self.trip_ns();
        // The new value counts for an eighth. Answers that took longer than a life brought no units.
        let new = old - old / 8 + trip_ns.min(self.terms.life_ns()) / 8;
        self.trip_ns.store(new, Ordering::Relaxed);
    }

    /// Removes keys that hold nothing and were not used for a while. O(keys).
    pub fn sweep(&self, now_ns: u64) {
        let idle_ns = self.terms.life_ns().saturating_mul(IDLE_LIVES);
        self.keys.for_each(|key, holding| {
            if holding.is_forgettable(&self.terms, now_ns, idle_ns) {
                self.keys.remove(key, holding);
            }
        });
    }

    /// Takes all units of all keys, to return them to the server. O(keys).
    pub(crate) fn take_all(&self, now_ns: u64) -> Vec<LeasedBlock> {
        let mut all = Vec::new();
        self.keys.for_each(|key, holding| {
            holding.take_all(&self.terms, now_ns, |units, until_ns| {
                all.push(LeasedBlock { key: key.bytes().into(), units, until_ns });
            });
        });
        all
    }
}

/// Units of a key that expire together.
#[derive(Debug)]
pub(crate) struct LeasedBlock {
    pub(crate) key: Box<[u8]>,
    pub(crate) units: u64,
    pub(crate) until_ns: u64,
}

/// A caller that waits for another caller's call.
#[derive(Debug)]
pub struct Waiting {
    holding: Arc<KeyLease>,
    missing: u64,
}

impl Waiting {
    /// Returns whether there is nothing left to wait for.
    pub(crate) fn is_over(&self) -> bool {
        self.holding.is_idle()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.holding.waited(self.missing);
    }
}

impl Granted {
    /// Reads a reply.
    pub fn read(plan: &Plan, due: &BlockRequest, reply: &Reply) -> Self {
        let cost = if reply.granted == 0 { due.wish.least } else { 1 };
        let next = plan.peeked(reply, cost, Timestamp::ZERO);
        Self {
            units: reply.granted,
            window_ns: plan.window_left_us(reply).map(|us| us.saturating_mul(1_000)),
            left: plan.remaining(reply),
            retry_ns: saturating_nanos(next.retry_after().unwrap_or_default()),
            reset_ns: saturating_nanos(next.reset_after()),
        }
    }
}

/// The answer of the shared state to a call for units.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Granted {
    /// The granted units; 0 means denied.
    pub(crate) units: u64,
    /// The rest of the shortest window when the units were charged.
    pub(crate) window_ns: Option<u64>,
    /// The units left afterwards.
    pub(crate) left: u64,
    /// After a denial: when the denied units are available. Otherwise, if no units are left: when one unit is
    /// available.
    pub(crate) retry_ns: u64,
    /// When the whole debt is paid.
    pub(crate) reset_ns: u64,
}
