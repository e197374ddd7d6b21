//! All keys of one process: checks, the posts that are due, and what answers mean.
//!
//! This module does no I/O and reads no clock. The caller passes the time. So the same code runs in tokio tasks, in a
//! thread, and in a simulation.
//!
//! 1. A check spends units of the key's allowance. A new key, or a key without allowance, is queued for a call at once.
//! 2. Once in each interval, `due` scans all keys. It removes idle keys, and queues keys with unposted units.
//! 3. The caller sends the calls that [`WriteBackBook::due`] returns.
//! 4. The caller reports each call with [`posted`](WriteBackBook::posted) or [`failed`](WriteBackBook::failed). An
//!    answer sets the next allowance.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;
use tollgate::internals::Facts;
use tollgate::internals::sync::{AtomicU64, Mutex, Ordering};
use tollgate::{Decision, Outcome};
use tollgate_protocol::slot::PARTS;
use tollgate_protocol::{Call, ErrorKind, Plan, Portion, Question, Reply, slot};

use super::account::{Account, Learnt};
use super::allowance::{Removal, Spend};
use super::basis::{Basis, WriteBackCheck};
use super::entry::{KeyLedger, Season, WriteBackKey};
use super::offset::{ClockOffset, ClockRange};
use super::post_queues::PostQueues;
use super::poster::PosterNumbers;
use super::stats::WriteBackStats;
use crate::client::{KeyPlaces, OnFailure};
use crate::mode::count::Count;
use crate::mode::name::Bytes;
use crate::mode::queue::KeyQueue;
use crate::mode::table::KeyTable;

/// The minimum time between two scans of the keys.
const SHORTEST_NS: u64 = 5_000_000;
/// The retry time of a request that is denied until an answer arrives.
const SOON_NS: u64 = 1_000_000;
/// After a failure, a key waits at least this long before its next call. A part that does not answer is called for at
/// most one key in this time.
const RETRY_NS: u64 = 100_000_000;

/// The settings of a book.
#[derive(Clone, Debug)]
pub struct BookSettings {
    /// The servers that hold the keys.
    pub places: KeyPlaces,
    /// The longest time between two posts of a key.
    pub interval_ns: u64,
    /// The number of processes that share the limits.
    pub processes: u64,
    /// What decides while the server does not answer.
    pub on_failure: OnFailure,
    /// The maximum number of keys.
    pub max_keys: usize,
    /// The first of the numbers with which keys are posted. The numbers count up. It is a random number below 2^52, far
    /// from the numbers of other processes.
    pub process: u64,
    /// The maximum number of posts in flight to one server.
    pub in_flight: usize,
    /// Whether parts of the shared state fail by themselves; see
    /// [`Transport::in_parts`](tollgate_protocol::Transport::in_parts).
    pub in_parts: bool,
    /// This region's part of the limits, if several regions share them.
    pub portion: Option<Portion>,
}

/// The keys of a limiter; see the module docs.
#[derive(Debug)]
pub struct WriteBackBook {
    pub(super) options: BookSettings,
    plan: Arc<Plan>,
    /// One plan for each limit, because limits with different windows are posted separately.
    singles: Box<[Arc<Plan>]>,
    /// The time between two posts of a key.
    pace_ns: u64,
    most: u64,
    table: KeyTable<WriteBackKey>,
    offset: ClockOffset,
    /// Keys for which a call is due immediately.
    urgent: KeyQueue<Arc<WriteBackKey>>,
    schedule: Mutex<PostQueues>,
    /// For each part: 0 if the last call was answered. Otherwise, the time of the last failure, or the time when a key
    /// was last allowed to retry. Failures of a single key are in that key's accounts.
    failed_ns: Box<[AtomicU64]>,
    /// Until this time, returning keys start with no units, because some idle keys were removed before their window was
    /// over. It is at least the time of the last removal, in case the local clock steps back.
    pressed_until_ns: AtomicU64,
    numbers: PosterNumbers,
    tallies: Tallies,
}

#[derive(Debug, Default)]
struct Tallies {
    posts: Count,
    failures: Count,
    overshoot: Count,
    dropped: Count,
}

/// Spends units of an entry at a given time, or only tests whether it could.
type Spends = fn(&WriteBackKey, u64, u64) -> Spend;

/// A call to send, and the key it belongs to.
#[derive(Clone, Debug)]
#[must_use = "send the call, or report it as failed"]
pub struct Post {
    entry: Arc<WriteBackKey>,
    index: usize,
    at_ns: u64,
    /// The call.
    pub call: Call,
}

impl Post {
    /// The key that the caller passed.
    pub fn key(&self) -> &[u8] {
        &self.entry.key
    }
}

impl WriteBackBook {
    /// `wake` is called when a call is [`due`](Self::due) before [`next_ns`](Self::next_ns).
    pub fn new(plan: Arc<Plan>, options: BookSettings, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let singles = (0..).map_while(|index| plan.single(index)).map(Arc::new).collect();
        let windows = plan.parts().iter().filter_map(|part| part.window_us()).min();
        let bursts = plan.parts().iter().filter(|part| part.window_us().is_none());
        let bursts = bursts.map(|part| part.refill_us()).min();
        // A window is posted several times before it is over. With GCRA, units are charged at most half a burst's
        // refill time late, because a late charge is owed for too long.
        let shortest = windows.map(|us| us / 4).into_iter().chain(bursts.map(|us| us / 2)).min();
        let pace_ns = shortest.unwrap_or(u64::MAX).saturating_mul(1_000).max(SHORTEST_NS);
        Self {
            pace_ns: pace_ns.min(options.interval_ns.max(1)),
            most: plan.most(),
            table: KeyTable::new(options.max_keys),
            numbers: PosterNumbers::new(options.process),
            schedule: Mutex::new(PostQueues::new(options.places.routes.len(), options.in_flight)),
            failed_ns: (0..options.places.routes.len() * PARTS).map(|_| AtomicU64::new(0)).collect(),
            options,
            plan,
            singles,
            offset: ClockOffset::default(),
            urgent: KeyQueue::new(wake),
            pressed_until_ns: AtomicU64::new(0),
            tallies: Tallies::default(),
        }
    }

    /// Takes over from another limiter of the same keys. The server knows the units that the other limiter admitted.
    /// Until time has paid for those units, a key starts with no units, and its first request waits for a call.
    #[cfg(feature = "rules")]
    pub(crate) fn succeed(&self, now_ns: u64) {
        let rest_ns = self.plan.refill_us().saturating_mul(1_000);
        // Ordering: Relaxed; see `sweep`.
        self.pressed_until_ns.fetch_max(now_ns.saturating_add(rest_ns), Ordering::Relaxed);
    }

    /// The part with which a key is assumed to fail: a part of its server. The nodes of a Cluster hold ranges of slots.
    fn part(&self, key: &[u8]) -> usize {
        let BookSettings { places, in_parts, .. } = &self.options;
        let part = if *in_parts { slot::part(&places.tag(key)) } else { 0 };
        places.server(key) * PARTS + part
    }

    /// Returns whether a part of the shared state does not answer.
    fn is_out(&self, part: usize) -> bool {
        // Ordering: Relaxed, here and wherever it is set. The value chooses between two paths, and the ledgers make
        // both correct.
        self.failed_ns[part].load(Ordering::Relaxed) != 0
    }

    /// Returns whether a key of this part whose last call failed may retry. While the part does not answer, one key at
    /// a time may retry.
    fn may_retry(&self, part: usize, now_ns: u64) -> bool {
        let word = &self.failed_ns[part];
        // Ordering: Relaxed; see `is_out`.
        let failed_ns = word.load(Ordering::Relaxed);
        failed_ns == 0
            || (self.is_retry_due(failed_ns, now_ns)
                && word
                    .compare_exchange(failed_ns, now_ns.max(1), Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok())
    }

    fn is_retry_due(&self, failed_ns: u64, now_ns: u64) -> bool {
        // A failure in the future comes from before a step back of the clock.
        now_ns.abs_diff(failed_ns) >= RETRY_NS.min(self.pace_ns)
    }

    /// Returns whether a key gets units before its first answer. `is_failing` is whether the last call about this key
    /// failed.
    fn has_share(&self, part: usize, is_failing: bool) -> bool {
        self.options.on_failure != OnFailure::Closed || !(is_failing || self.is_out(part))
    }

    /// Enters spent units, ends windows that are over, refills, and sets the allowance.
    fn settle(&self, entry: &WriteBackKey, ledger: &mut KeyLedger, now_ns: u64) -> Season {
        let has_share = self.has_share(entry.part, ledger.is_failing());
        let processes = self.options.processes;
        let left = entry.allowance.left();
        ledger.enter(ledger.was.saturating_sub(left), now_ns);
        ledger.was = left;
        let (mut until, mut reset, mut dropped) = (u64::MAX, now_ns, 0);
        let mut season = Season::Within;
        for account in &mut ledger.accounts {
            let Some(period_ns) = account.period_ns() else {
                account.refill(now_ns);
                reset = reset.max(now_ns.saturating_add(account.until_paid_ns()));
                continue;
            };
            let bounds = self.offset.within(period_ns, now_ns);
            let ClockRange { first_ns, last_ns } = bounds.server(now_ns);
            let (surely, perhaps) = (first_ns / period_ns, last_ns / period_ns);
            if surely > account.epoch.number {
                dropped += account.turn(surely, processes, has_share);
            } else if perhaps.saturating_add(1) < account.epoch.number {
                // A clock was stepped. The units of this window may already be spent.
                dropped += account.turn_back(surely, processes, self.numbers.next());
            }
            let mut end_ns = account.end_ns();
            if perhaps > surely {
                if perhaps > account.epoch.number {
                    dropped += account.turn_early(perhaps, processes, has_share);
                } else {
                    end_ns = end_ns.saturating_sub(period_ns);
                }
                let next_ns = bounds.local(end_ns).last_ns.max(now_ns.saturating_add(1));
                season = Season::Between { next_ns };
                until = until.min(next_ns);
            } else {
                if surely < account.epoch.number {
                    end_ns = end_ns.saturating_sub(period_ns);
                } else {
                    account.begin(processes, has_share);
                }
                until = until.min(bounds.local(end_ns).first_ns);
            }
            reset = reset.max(bounds.local(end_ns).last_ns);
        }
        entry.refresh(ledger, now_ns);
        entry.allowance.set_until(if ledger.is_new { 0 } else { until });
        entry.reset_ns.store(reset, Ordering::Relaxed);
        self.tallies.dropped.add(dropped);
        season
    }

    /// Decides in this process. One compare-exchange, as long as the allowance lasts.
    #[inline]
    pub fn check(&self, key: &[u8], cost: u64, now_ns: u64) -> WriteBackCheck {
        match self.quick(key, cost, now_ns) {
            Some(decision) => WriteBackCheck { decision, basis: Basis::Held },
            None => self.decide_slow(key, cost, now_ns, WriteBackKey::spend),
        }
    }

    /// Returns the decision that [`check`](Self::check) would make, and queues the call that it would queue. Charges
    /// nothing.
    #[cfg(feature = "rules")]
    pub(crate) fn peek(&self, key: &[u8], cost: u64, now_ns: u64) -> WriteBackCheck {
        let checked = self.decide_slow(key, cost, now_ns, WriteBackKey::peek);
        WriteBackCheck { decision: checked.decision.uncharged(), ..checked }
    }

    /// The common case of [`check`](Self::check): the allowance has enough units, or it is known that no more are
    /// available. Otherwise does nothing.
    #[inline(always)]
    pub(super) fn quick(&self, key: &[u8], cost: u64, now_ns: u64) -> Option<Decision> {
        if cost > self.most {
            return None;
        }
        let table = self.table.pin();
        let entry = table.get(Bytes(key))?;
        let (outcome, left, retry_ns) = match entry.spend(cost, now_ns) {
            Spend::Done(left) => (Outcome::Allowed, left, now_ns),
            Spend::Short(left) if now_ns < entry.retry_ns() => (Outcome::Denied, left, entry.retry_ns()),
            Spend::Short(_) | Spend::Over | Spend::Dead => return None,
        };
        let reset_ns = entry.reset_ns();
        Some(self.decide(outcome, cost, left, retry_ns, reset_ns, now_ns))
    }

    #[inline(always)]
    fn decide(
        &self,
        outcome: Outcome,
        cost: u64,
        remaining: u64,
        retry_ns: u64,
        reset_ns: u64,
        now_ns: u64,
    ) -> Decision {
        let facts = Facts::Plain {
            remaining,
            retry_ns: retry_ns.saturating_sub(now_ns).max(u64::from(outcome == Outcome::Denied)),
            reset_ns: reset_ns.saturating_sub(now_ns),
            delay_ns: 0,
        };
        Decision::new(outcome, cost, self.most, now_ns, facts)
    }

    /// A denial without a state.
    fn refuse(&self, outcome: Outcome, cost: u64, now_ns: u64) -> Decision {
        let until_ns = now_ns.saturating_add(self.pace_ns);
        self.decide(outcome, cost, 0, until_ns, until_ns, now_ns).uncharged()
    }

    #[cold]
    #[inline(never)]
    fn decide_slow(&self, key: &[u8], cost: u64, now_ns: u64, spend: Spends) -> WriteBackCheck {
        if cost > self.most {
            let decision = self.refuse(Outcome::Never, cost, now_ns);
            return WriteBackCheck { decision, basis: Basis::Held };
        }
        loop {
            let Some(entry) = self.table.get_or_make(key.into(), || self.make(key, now_ns)) else {
                let decision = self.refuse(Outcome::Denied, cost, now_ns);
                return WriteBackCheck { decision, basis: Basis::Full };
            };
            match self.check_entry(&entry, cost, now_ns, spend) {
                Some(checked) => return checked,
                // The entry is dead. Removes it from the table, so that the next pass makes a new entry.
                None => self.table.remove(key.into(), &entry),
            }
        }
    }

    fn make(&self, key: &[u8], now_ns: u64) -> WriteBackKey {
        // Ordering: Acquire; see `press`.
        let is_pressed = now_ns < self.pressed_until_ns.load(Ordering::Acquire);
        let (process, part) = (self.numbers.next(), self.part(key));
        let has_share = self.has_share(part, false) && !is_pressed;
        let accounts: SmallVec<[Account; 1]> = self
            .plan
            .parts()
            .iter()
            .map(|part| {
                let epoch = match part.window_us() {
                    Some(us) => {
                        let ns = us.saturating_mul(1_000);
                        self.offset.within(ns, now_ns).server(now_ns).first_ns / ns
                    }
                    // Any epoch is valid, because the number is new.
                    None => now_ns / 1_000,
                };
                let (processes, portion) = (self.options.processes, self.options.portion);
                Account::new(*part, process, epoch, (processes, portion), has_share, now_ns)
            })
            .collect();
        WriteBackKey::new(key, part, accounts, now_ns)
    }

    /// Returns `None` if the entry is dead.
    fn check_entry(
        &self,
        entry: &Arc<WriteBackKey>,
        cost: u64,
        now_ns: u64,
        takes: Spends,
    ) -> Option<WriteBackCheck> {
        let mut ledger = entry.ledger();
        if entry.allowance.is_dead() {
            return None;
        }
        let mut asks = std::mem::take(&mut ledger.is_new);
        let season = self.settle(entry, &mut ledger, now_ns);
        let is_failing = ledger.is_failing();
        let mut spend = takes(entry, cost, now_ns);
        let mut basis = Basis::Held;
        if let (Spend::Short(_), true, OnFailure::Local { .. }) = (spend, is_failing, self.options.on_failure)
        {
            for account in &mut ledger.accounts {
                account.raise_to_starting_share(cost, self.options.processes);
            }
            entry.refresh(&mut ledger, now_ns);
            spend = takes(entry, cost, now_ns);
            basis = Basis::Alone;
        }
        let may_ask = !ledger.is_asked() && !ledger.is_queued && !asks;
        if may_ask && is_failing && self.is_retry_due(ledger.failed_ns, now_ns) {
            asks = self.may_retry(entry.part, now_ns);
        }
        let (left, outcome) = match spend {
            Spend::Done(left) => (left, Outcome::Allowed),
            Spend::Short(left) => (left, Outcome::Denied),
            Spend::Over | Spend::Dead => (0, Outcome::Denied),
        };
        let mut retry_ns = now_ns;
        if outcome == Outcome::Denied {
            (basis, retry_ns) = self.deny(&mut ledger, season, cost, now_ns);
            asks |= basis == Basis::Asked && !ledger.is_asked();
            if basis == Basis::Held && cost == 1 {
                entry.set_retry_ns(retry_ns);
            }
        }
        if asks {
            self.queue_at_once(entry, ledger);
        }
        let decision = self.decide(outcome, cost, left, retry_ns, entry.reset_ns(), now_ns);
        Some(WriteBackCheck { decision, basis })
    }

    /// Returns what a denial rests on, and when to retry.
    fn deny(&self, ledger: &mut KeyLedger, season: Season, cost: u64, now_ns: u64) -> (Basis, u64) {
        ledger.wanted = ledger.wanted.max(cost);
        let refilled = ledger.accounts.iter().map(|account| account.until_refilled_ns(cost)).max();
        let refilled_ns = now_ns.saturating_add(refilled.unwrap_or(u64::MAX));
        let ask_ns = self.ask_ns(ledger, cost, now_ns);
        let within = |ns: u64| refilled_ns.min(now_ns.saturating_add(ns));
        match season {
            Season::Between { next_ns } => (Basis::Held, next_ns),
            Season::Within if ledger.is_failing() => (Basis::Failing, within(self.pace_ns)),
            Season::Within if ask_ns > now_ns => (Basis::Held, ask_ns.min(refilled_ns)),
            Season::Within => (Basis::Asked, within(SOON_NS)),
        }
    }

    /// Queues a key for a call at once.
    fn queue_at_once(&self, entry: &Arc<WriteBackKey>, mut ledger: MutexGuard<'_, KeyLedger>) {
        if !std::mem::replace(&mut ledger.is_queued, true) {
            drop(ledger);
            // This queue is never closed.
            let _ = self.urgent.push(Arc::clone(entry));
        }
    }

    /// The time from which an answer can contain new information about this many units.
    fn ask_ns(&self, ledger: &KeyLedger, cost: u64, now_ns: u64) -> u64 {
        let each = ledger.accounts.iter().map(|account| match account.room() {
            _ if account.is_worth_asking(cost) => 0,
            // In a fixed window of one region, no units are added before its end.
            Some(room) if room < cost && !account.gains_units() => match account.period_ns() {
                Some(period_ns) => self.offset.within(period_ns, now_ns).local(account.end_ns()).last_ns,
                None => ledger.answered_ns.saturating_add(self.pace_ns),
            },
            _ => ledger.answered_ns.saturating_add(self.pace_ns),
        });
        each.max().unwrap_or(0)
    }

    fn schedule(&self) -> MutexGuard<'_, PostQueues> {
        // This lock is never held while a ledger is locked.
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest time at which [`due`](Self::due) must be called, unless the book wakes the task.
    pub fn next_ns(&self) -> u64 {
        let schedule = self.schedule();
        // Calls that wait for another call to end are due when it ends.
        let is_due = schedule.has_next() || (self.urgent.len() > 0 && schedule.has_room());
        if is_due { 0 } else { schedule.next_ns }
    }

    /// Returns the calls to send now: new keys and keys without allowance first, then the keys whose windows end first.
    /// The caller must report each call with [`posted`](Self::posted) or [`failed`](Self::failed).
    pub fn due(&self, now_ns: u64) -> Vec<Post> {
        if now_ns >= self.schedule().next_ns {
            self.sweep(now_ns);
        }
        let mut posts = Vec::new();
        loop {
            let mut schedule = self.schedule();
            while let Some(entry) = self.urgent.pop() {
                schedule.add_urgent(entry);
            }
            let Some((entry, is_urgent)) = schedule.next() else { break };
            drop(schedule);
            let before = posts.len();
            self.collect(&entry, is_urgent, now_ns, &mut posts);
            self.schedule().started(&entry, posts.len() - before);
        }
        let is_post = |post: &&Post| matches!(post.call.ask, Question::Post { .. });
        self.tallies.posts.add(posts.iter().filter(is_post).count() as u64);
        posts
    }

    fn collect(&self, entry: &Arc<WriteBackKey>, is_urgent: bool, now_ns: u64, posts: &mut Vec<Post>) {
        let mut ledger = entry.ledger();
        if is_urgent {
            ledger.is_queued = false;
        }
        if entry.allowance.is_dead() {
            return;
        }
        let _ = self.settle(entry, &mut ledger, now_ns);
        let mut dropped = 0;
        let waits_ns = ledger.pending_since.map_or(0, |since| now_ns.saturating_sub(since));
        for (index, account) in ledger.accounts.iter_mut().enumerate() {
            let Some(plan) = self.singles.get(index) else { continue };
            if waits_ns > plan.refill_us().saturating_mul(1_000).saturating_add(self.pace_ns) {
                dropped += account.clip();
            }
            dropped += account.give_up(now_ns);
            let Some(ask) = account.ask(is_urgent, now_ns) else { continue };
            let call = self.options.places.call(plan, &entry.key, ask, None);
            posts.push(Post { entry: Arc::clone(entry), index, at_ns: now_ns, call });
        }
        self.tallies.dropped.add(dropped);
    }

    /// Lets keys that are removed and return before `until_ns` start with no units. Must be called before such a key is
    /// removed.
    fn start_returning_keys_empty_until(&self, until_ns: u64) {
        // Ordering: Release, and Acquire in `make`. After this store, the holder of the ledger marks the entry dead.
        // The thread that makes the key's next entry first either finds the entry dead while it holds the ledger, or
        // finds it missing from the map after the removal. So its load is later than this store, and reads this value
        // or a larger one.
        self.pressed_until_ns.fetch_max(until_ns, Ordering::Release);
    }

    /// Settles each key that is not dead, and calls `visit` with the key and its ledger. O(keys).
    fn for_each_settled(&self, now_ns: u64, mut visit: impl FnMut(&Arc<WriteBackKey>, &mut KeyLedger)) {
        self.table.for_each(|_, entry| {
            let mut ledger = entry.ledger();
            if !entry.allowance.is_dead() {
                let _ = self.settle(entry, &mut ledger, now_ns);
                visit(entry, &mut ledger);
            }
        });
    }

    /// Scans all keys: settles them, removes idle keys, and finds keys to post. O(keys).
    fn sweep(&self, now_ns: u64) {
        let is_full = self.table.len() > self.options.max_keys / 2;
        let rest_ns = self.plan.refill_us().saturating_mul(1_000);
        let mut pending: Vec<(u64, u64, Arc<WriteBackKey>)> = Vec::new();
        self.for_each_settled(now_ns, |entry, ledger| {
            let idle_ns = now_ns.saturating_sub(ledger.spent_ns);
            let is_over = idle_ns > rest_ns.saturating_add(self.pace_ns);
            let is_idle = is_over || (is_full && idle_ns > self.pace_ns.saturating_mul(2));
            if is_idle {
                self.start_returning_keys_empty_until(if is_over {
                    now_ns
                } else {
                    now_ns.saturating_add(rest_ns)
                });
            }
            if is_idle && entry.kill(ledger) == Removal::Done {
                self.table.remove((&*entry.key).into(), entry);
            } else if ledger.pending() > 0 {
                let end = ledger.accounts.iter().map(Account::end_ns).min().unwrap_or(u64::MAX);
                if !ledger.is_queued {
                    let since = ledger.pending_since.unwrap_or(0);
                    pending.push((end, since, Arc::clone(entry)));
                }
            } else {
                ledger.pending_since = None;
                if idle_ns > self.pace_ns && entry.allowance.left() > 0 && !ledger.is_asked() {
                    entry.rest(ledger);
                }
            }
        });
        // Keys that have waited longest come first, so that every key is posted even if there are more keys than calls.
        pending.sort_by_key(|(end, since, _)| (*end, *since));
        let mut schedule = self.schedule();
        schedule.replace_usual(pending.into_iter().map(|(_, _, entry)| entry));
        schedule.next_ns = now_ns.saturating_add(self.pace_ns);
        // Scans once more shortly before windows end.
        if let Some(period_us) = self.plan.parts().iter().filter_map(|part| part.window_us()).min() {
            let period_ns = period_us.saturating_mul(1_000);
            let bounds = self.offset.within(period_ns, now_ns);
            let end_ns =
                (bounds.server(now_ns).last_ns / period_ns).saturating_add(1).saturating_mul(period_ns);
            let last_ns = bounds.local(end_ns).first_ns.saturating_sub(self.pace_ns / 8);
            if last_ns > now_ns.saturating_add(self.pace_ns / 8) {
                schedule.next_ns = schedule.next_ns.min(last_ns);
            }
        }
    }

    /// The number of calls that are not yet reported.
    pub fn in_flight(&self) -> usize {
        self.schedule().in_flight()
    }

    /// Scans all keys at the next [`due`](Self::due), at any time.
    pub fn hurry(&self) {
        self.schedule().next_ns = 0;
    }

    /// Reports an answer.
    pub fn posted(&self, post: &Post, reply: &Reply, received_ns: u64) {
        self.offset.learn(reply.now_us, post.at_ns, received_ns);
        let entry = &post.entry;
        // The test avoids a write to shared memory in the usual case.
        if self.is_out(entry.part) {
            // Ordering: Relaxed; see `is_out`.
            self.failed_ns[entry.part].store(0, Ordering::Relaxed);
        }
        let mut ledger = entry.ledger();
        let _ = self.settle(entry, &mut ledger, received_ns);
        let least = ledger.wanted.max(1);
        let processes = self.options.processes;
        if let Some(account) = ledger.accounts.get_mut(post.index) {
            match account.answered(reply, processes, least, received_ns) {
                Learnt::Present { overshoot } | Learnt::Other { overshoot } => {
                    self.tallies.overshoot.add(overshoot);
                }
                Learnt::TooLate { dropped } => self.tallies.dropped.add(dropped),
            }
        }
        ledger.answered_ns = received_ns;
        entry.refresh(&mut ledger, received_ns);
        entry.set_retry_ns(0);
        let pending = ledger.pending();
        if pending == 0 {
            ledger.pending_since = None;
        } else if ledger.pending_since.is_some() {
            ledger.pending_since = Some(post.at_ns);
        }
        // The allowance was spent during the call, and more units are left.
        let is_spent = entry.allowance.left() < least
            && pending > 0
            && ledger.accounts.iter().all(|account| account.is_worth_asking(1));
        let is_free = !ledger.is_asked();
        if is_free {
            ledger.wanted = 0;
        }
        if is_free && is_spent {
            self.queue_at_once(entry, ledger);
        } else {
            drop(ledger);
        }
        self.call_ended(entry);
    }

    /// Records that a call ended, so that another call may be sent.
    fn call_ended(&self, entry: &WriteBackKey) {
        self.schedule().ended(entry);
        if self.next_ns() == 0 {
            self.urgent.wake();
        }
    }

    /// Reports that no useful answer arrived; the server may have charged the units. An error of kind
    /// [`Reply`](ErrorKind::Reply) affects this key only. Any other error affects the part of the shared state that
    /// holds the key.
    pub fn failed(&self, post: &Post, why: ErrorKind, now_ns: u64) {
        self.tallies.failures.add(1);
        let entry = &post.entry;
        if why != ErrorKind::Reply {
            // Ordering: Relaxed; see `is_out`.
            self.failed_ns[entry.part].store(now_ns.max(1), Ordering::Relaxed);
        }
        let mut ledger = entry.ledger();
        let _ = self.settle(entry, &mut ledger, now_ns);
        ledger.failed_ns = now_ns;
        if let Some(account) = ledger.accounts.get_mut(post.index) {
            self.tallies.dropped.add(account.failed());
            account.fall_back(self.options.processes);
        }
        drop(ledger);
        self.call_ended(entry);
    }

    /// Returns the counts since the limiter was built. O(keys).
    pub fn counted(&self, now_ns: u64) -> WriteBackStats {
        let (mut pending, mut oldest_pending) = (0_u64, None);
        self.for_each_settled(now_ns, |_, ledger| {
            pending = pending.saturating_add(ledger.pending());
            if ledger.pending() > 0 {
                let age_ns = ledger.pending_since.map_or(0, |since| now_ns.saturating_sub(since));
                oldest_pending = oldest_pending.max(Some(Duration::from_nanos(age_ns)));
            }
        });
        let Tallies { posts, failures, overshoot, dropped } = &self.tallies;
        WriteBackStats {
            keys: self.table.len() as u64,
            pending,
            oldest_pending,
            posts: posts.get(),
            failures: failures.get(),
            overshoot: overshoot.get(),
            evicted_pending: dropped.get(),
        }
    }
}
