//! What lease limiters have in common, whatever carries their questions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::book::{BlockRequest, Granted, LeaseBook, LeaseCheck, LeaseSettings, Receipt};
use super::options::LeaseOptions;
use super::stats::LeaseStats;
use crate::base::clock::{Clock, Timestamp};
use crate::base::decision::{Decision, Facts};
use crate::base::sync::{AtomicU64, Ordering};
use crate::edge::redis::client::Settings;
use crate::edge::redis::guard::Guard;
use crate::edge::redis::protocol::Error;
use crate::edge::redis::protocol::Plan;
use crate::edge::redis::protocol::{Answer, DecidedBy};
use crate::edge::redis::protocol::{Bytes, KeyRef};
use crate::edge::redis::protocol::{Call, Question, Reply};
use crate::edge::redis::protocol::{Key, tagged};
use crate::limiter::wait::TokioClock;

/// A limiter without its transport and its task.
pub(super) struct Core<C> {
    pub(super) book: LeaseBook,
    pub(super) guard: Arc<Guard>,
    plan: Arc<Plan>,
    head: Arc<[u8]>,
    clock: C,
    /// The server's time less the local one, at the least, in nanoseconds modulo 2^64; of the last answer.
    offset_ns: AtomicU64,
    timeout: Duration,
    /// Of how long calls wait: monotonic, and tokio's, so that tests can pause it.
    waits: TokioClock,
    pub(super) stopped: AtomicU64,
}

/// How long one call waits: for a time-out for units that others ask for, and until the end of another for what it asks itself. After that
/// it is as if the server had not answered.
pub(super) struct WaitBudget<'c> {
    clock: &'c TokioClock,
    began: Timestamp,
    timeout: Duration,
}

impl WaitBudget<'_> {
    /// All of it.
    pub(super) const fn whole(&self) -> Duration {
        self.timeout.saturating_mul(2)
    }

    /// What is left to wait for others.
    pub(super) fn for_others(&self) -> Duration {
        self.timeout.saturating_sub(self.passed())
    }

    /// Whether there is no time left for a question.
    pub(super) fn is_over(&self) -> bool {
        // Whoever waited for others until the end of that time may still ask.
        self.passed() > self.timeout.saturating_add(self.timeout / 2)
    }

    fn passed(&self) -> Duration {
        Duration::from_nanos(self.clock.now().as_nanos().saturating_sub(self.began.as_nanos()))
    }
}

/// What became of a question, for the one who asked.
#[derive(Debug)]
pub(super) enum BlockOutcome {
    /// What was granted is there for checks; the asker took nothing out of it.
    Fetched,
    Answered(Answer),
    /// It was granted, but not in time.
    Late,
    Failed,
}

impl<C: Clock> Core<C> {
    /// `answer`: how long a question may take. Callers may wait for less.
    pub(super) fn new(
        settings: &Settings,
        options: &LeaseOptions,
        plan: Plan,
        clock: C,
        answer: Duration,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let habits = LeaseSettings {
            limit: plan.most(),
            life: options.life,
            max_block: options.max_block,
            processes: options.processes,
            stripes: options.stripes,
            max_keys: settings.max_keys,
            seed: ahash::RandomState::new().hash_one(0),
        };
        Self {
            book: LeaseBook::new(habits, wake),
            guard: Arc::new(Guard::new(&Settings { timeout: answer, ..settings.clone() })),
            plan: Arc::new(plan),
            head: Arc::clone(&settings.head),
            clock,
            offset_ns: AtomicU64::new(0),
            timeout: settings.timeout,
            waits: TokioClock::new(),
            stopped: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn now_ns(&self) -> u64 {
        self.now().as_nanos()
    }

    pub(super) fn is_stopped(&self) -> bool {
        // Ordering: Relaxed. Whoever stops it wakes the task afterwards, by a lock or a notification.
        self.stopped.load(Ordering::Relaxed) > 0
    }

    /// How long one call may wait that begins now.
    pub(super) fn patience(&self) -> WaitBudget<'_> {
        WaitBudget { clock: &self.waits, began: self.waits.now(), timeout: self.timeout }
    }

    pub(super) fn call(&self, key: &[u8], ask: Question) -> Call {
        Call { tag: tagged(&self.head, key), plan: Arc::clone(&self.plan), ask, now: None }
    }

    /// Decides by what is held, and has what is missing fetched.
    #[inline]
    pub(super) fn check<K: Key + ?Sized>(&self, key: &K, cost: u64, now: Timestamp) -> Answer {
        let now_ns = now.as_nanos();
        let taken = match key.number() {
            Some(number) => self.book.take(number, cost, now_ns),
            None => key.with_bytes(|bytes| self.book.take(Bytes(bytes), cost, now_ns)),
        };
        match taken {
            Some((left, until_ns)) => {
                Answer::leased(self.book.spent(cost, left, now_ns), DecidedBy::Held, until_ns)
            }
            None => KeyRef::with(key, |name| self.check_slow(name, cost, now)),
        }
    }

    #[cold]
    #[inline(never)]
    fn check_slow(&self, key: KeyRef<'_>, cost: u64, now: Timestamp) -> Answer {
        match self.book.check_slow(key, cost, now.as_nanos()) {
            LeaseCheck::Decided(decision, until_ns) => Answer::leased(decision, DecidedBy::Held, until_ns),
            LeaseCheck::Missing(decision, _) if !self.book.keeps(cost) => {
                // It can never be held; when to come back for that is for who asks the server.
                Answer::new(decision, DecidedBy::Held)
            }
            LeaseCheck::Missing(decision, holding) => {
                self.book.want(key, &holding, cost, now.as_nanos());
                Answer::new(decision, DecidedBy::Held)
            }
            LeaseCheck::Failing => self.guard.fallback(&key.bytes(), cost, now),
            LeaseCheck::Full => Answer::new(self.book.soon(cost, now.as_nanos()), DecidedBy::Held),
        }
    }

    /// What an answer means for the one who asked.
    pub(super) fn land(&self, due: &BlockRequest, reply: Result<Reply, Error>) -> BlockOutcome {
        let now_ns = self.now_ns();
        let Ok(reply) = reply else {
            self.book.failed(due, now_ns);
            return BlockOutcome::Failed;
        };
        self.learn_offset(&reply, now_ns);
        let (least, at) = (due.least(), Timestamp::from_nanos(now_ns));
        let decision = self.plan.decision(&reply, least, at);
        let answer = Granted::read(&self.plan, due, &reply);
        match self.book.answered(due, &answer, now_ns) {
            Receipt::Taken { .. } if due.is_for_all() => BlockOutcome::Fetched,
            Receipt::Taken { until_ns } => {
                BlockOutcome::Answered(Answer::leased(decision, DecidedBy::Server, until_ns))
            }
            Receipt::Late => BlockOutcome::Late,
            Receipt::Refused { until_ns } => {
                // This process says no until then, so that is when to come back.
                let retry_ns = until_ns.saturating_sub(now_ns);
                let (remaining, reset_ns) = (decision.remaining(), answer.reset_ns.max(retry_ns));
                let facts = Facts::Plain { remaining, retry_ns, reset_ns, delay_ns: 0 };
                let decision = Decision::new(decision.outcome(), least, decision.limit(), now_ns, facts);
                BlockOutcome::Answered(Answer::new(decision, DecidedBy::Server))
            }
        }
    }

    /// What the server says to a cost that it alone decides.
    pub(super) fn exact(&self, key: &[u8], cost: u64, reply: Result<Reply, Error>) -> Answer {
        let now = self.now();
        match reply {
            Ok(reply) => Answer::new(self.plan.decision(&reply, cost, now), DecidedBy::Server),
            Err(_) => self.guard.fallback(key, cost, now),
        }
    }

    /// Puts units back that were leased for an answer which nobody has seen, or wants; or gives them back to this process's share.
    pub(super) fn give(&self, key: KeyRef<'_>, answer: &Answer) -> u64 {
        let decision = answer.decision();
        if answer.by() == DecidedBy::Local {
            return self.guard.undo(&key.bytes(), &decision, self.now());
        }
        self.book.give(key, decision.charged(), answer.leased_until_ns(), self.now_ns())
    }

    /// The same, of the one who asked and is gone.
    pub(super) fn give_due(&self, due: &BlockRequest, answer: &Answer) {
        let decision = answer.decision();
        self.book.give_due(due, decision.charged(), answer.leased_until_ns(), self.now_ns());
    }

    fn learn_offset(&self, reply: &Reply, now_ns: u64) {
        let offset = reply.now_us.saturating_mul(1_000).wrapping_sub(now_ns);
        // Ordering: Relaxed. A number by itself.
        self.offset_ns.store(offset, Ordering::Relaxed);
    }

    /// All that is held, as questions that give it back: of each unit it is said that it was charged as early as it may have been.
    pub(super) fn returns(&self) -> Vec<Call> {
        let offset = self.offset_ns.load(Ordering::Relaxed);
        let call = |(key, units, until_ns): (Box<[u8]>, u64, u64)| {
            let charged_ns = until_ns.saturating_sub(self.book.life_ns());
            let at_us = charged_ns.wrapping_add(offset) / 1_000;
            self.call(&key, Question::Refund { units, at_us })
        };
        self.book.take_all(self.now_ns()).into_iter().map(call).collect()
    }

    pub(super) fn peek<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        KeyRef::with(key, |name| self.book.peek(name, cost, self.now_ns()))
    }

    pub(super) fn stats(&self) -> LeaseStats {
        self.book.stats(self.now_ns())
    }
}

impl<C> fmt::Debug for Core<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").field("keys", &self.book.keys()).finish_non_exhaustive()
    }
}
