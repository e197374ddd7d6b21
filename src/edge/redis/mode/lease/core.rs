//! A book of leases with a clock, and with the way to the server: what its answers mean.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::book::{BlockRequest, Granted, LeaseBook, LeaseCheck, LeaseSettings, Receipt};
use super::options::LeaseBuilder;
use crate::base::clock::{Clock, Timestamp};
use crate::base::decision::{Decision, Facts};
use crate::base::sync::{AtomicU64, Ordering};
use crate::edge::redis::client::{BuildError, Settings, Tasks};
use crate::edge::redis::mode::dispatch::Dispatch;
use crate::edge::redis::protocol::{
    Answer, Bytes, Call, DecidedBy, Error, Key, KeyRef, Question, Reply, Transport,
};

/// So often a call waits for units that others ask for, before it asks for its own alone.
const ROUNDS: usize = 4;
/// Questions under way at a time. More would wait at the server, and be late there; here they wait without a time-out that counts.
const UNDER_WAY: usize = 256;

/// A limiter without its task.
pub(super) struct LeaseCore<C> {
    pub(super) book: LeaseBook,
    pub(super) dispatch: Dispatch<C>,
    pub(super) under_way: Arc<Semaphore>,
    /// The server's time less the local one, at the least, in nanoseconds modulo 2^64; of the last answer.
    offset_ns: AtomicU64,
    /// How long a call waits for units that others ask for, and then for what it asks itself. After both it is as if the server had not
    /// answered.
    pub(super) timeout: Duration,
}

/// What became of a question, for the one who asked.
#[derive(Debug)]
pub(super) enum BlockOutcome {
    Answered(Answer),
    /// The asker takes nothing out of what was granted: it did not want to, or the answer came too late.
    Again,
    Failed,
}

impl<C> LeaseCore<C> {
    /// Stops the task, and has everything that waits for what was queued ask by itself.
    pub(super) fn stop(&self) {
        self.dispatch.signal.stop();
        self.book.close();
        self.dispatch.bells.ring();
    }
}

impl<C: Clock> LeaseCore<C> {
    pub(super) fn new<T: Transport>(builder: LeaseBuilder<T, C>, tasks: Tasks) -> Result<Self, BuildError> {
        let LeaseBuilder { builder, options, clock } = builder;
        let settings = builder.settings();
        // Callers wait for their time-out. A question goes on in its task: what it brings is of use as long as it lives for most of its
        // life, and an answer that is late because this process was not scheduled is no failure of the server.
        let answer = settings.timeout.max(options.life / 4);
        let guarded = Settings { timeout: answer, ..settings.clone() };
        let dispatch = Dispatch::new(builder.client, &guarded, tasks, clock)?;
        let settled = LeaseSettings {
            limit: dispatch.plan.most(),
            max_keys: settings.max_keys,
            seed: ahash::RandomState::new().hash_one(0),
            ..options
        };
        Ok(Self {
            book: LeaseBook::new(settled, dispatch.waker()),
            dispatch,
            under_way: Arc::new(Semaphore::new(UNDER_WAY)),
            offset_ns: AtomicU64::new(0),
            timeout: settings.timeout,
        })
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
            Some((decision, until_ns)) => Answer::leased(decision, DecidedBy::Held, until_ns),
            None => KeyRef::with(key, |key| self.check_slow(key, cost, now)),
        }
    }

    /// Decides without waiting. `Err`: how often to ask for units to be held, before the server is asked for the cost alone.
    pub(super) fn check_now(&self, key: KeyRef<'_>, cost: u64) -> Result<Answer, usize> {
        let now = self.dispatch.now();
        match self.book.check(key, cost, now.as_nanos()) {
            LeaseCheck::Decided(decision, until_ns) => {
                Ok(Answer::leased(decision, DecidedBy::Held, until_ns))
            }
            LeaseCheck::Failing => Ok(self.dispatch.guard.fallback(&key.bytes(), cost, now)),
            LeaseCheck::Missing(..) => Err(ROUNDS),
            LeaseCheck::Full => Err(0),
        }
    }

    #[cold]
    #[inline(never)]
    fn check_slow(&self, key: KeyRef<'_>, cost: u64, now: Timestamp) -> Answer {
        match self.book.check_slow(key, cost, now.as_nanos()) {
            LeaseCheck::Decided(decision, until_ns) => Answer::leased(decision, DecidedBy::Held, until_ns),
            LeaseCheck::Missing(decision, holding) => {
                self.book.want(key, &holding, cost, now.as_nanos());
                Answer::new(decision, DecidedBy::Held)
            }
            LeaseCheck::Failing => self.dispatch.guard.fallback(&key.bytes(), cost, now),
            LeaseCheck::Full => Answer::new(self.book.soon(cost, now.as_nanos()), DecidedBy::Held),
        }
    }

    /// What an answer means for the one who asked.
    pub(super) fn land(&self, due: &BlockRequest, reply: Result<Reply, Error>) -> BlockOutcome {
        let now_ns = self.dispatch.now_ns();
        let Ok(reply) = reply else {
            self.book.failed(due, now_ns);
            return BlockOutcome::Failed;
        };
        self.learn_offset(&reply, now_ns);
        let (least, at) = (due.wish.least, Timestamp::from_nanos(now_ns));
        let decision = self.dispatch.plan.decision(&reply, least, at);
        let answer = Granted::read(&self.dispatch.plan, due, &reply);
        match self.book.answered(due, &answer, now_ns) {
            Receipt::Taken { .. } if due.cost == 0 => BlockOutcome::Again,
            Receipt::Taken { until_ns } => {
                BlockOutcome::Answered(Answer::leased(decision, DecidedBy::Server, until_ns))
            }
            Receipt::Late => BlockOutcome::Again,
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

    /// Puts units back that were leased for an answer which nobody has seen, or wants; or gives them back to this process's share.
    pub(super) fn give(&self, key: KeyRef<'_>, answer: &Answer) -> u64 {
        let decision = answer.decision();
        if answer.by() == DecidedBy::Local {
            return self.dispatch.guard.undo(&key.bytes(), &decision, self.dispatch.now());
        }
        self.book.give(key, decision.charged(), answer.leased_until_ns(), self.dispatch.now_ns())
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
            let charged_ns = until_ns.saturating_sub(self.book.terms.life_ns());
            let at_us = charged_ns.wrapping_add(offset) / 1_000;
            self.dispatch.call(&key, Question::Refund { units, at_us })
        };
        self.book.take_all(self.dispatch.now_ns()).into_iter().map(call).collect()
    }
}
