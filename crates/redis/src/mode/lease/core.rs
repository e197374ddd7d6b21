//! A book of leases, with a clock and a connection to the server: what the server's answers mean.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tollgate::internals::Facts;
use tollgate::internals::sync::{AtomicU64, Ordering};
use tollgate::{Clock, DecidedBy, Decision, SharedDecision, Timestamp};
use tollgate_protocol::{Call, Error, Key, Question, Reply, Transport};

use super::book::{BlockRequest, Granted, LeaseBook, LeaseCheck, LeaseSettings, LeasedBlock, Receipt};
use crate::client::{BuildError, Settings, Tasks};
use crate::mode::background::{Background, can_decide_here};
use crate::mode::dispatch::Dispatch;
use crate::mode::name::{Bytes, KeyRef};

/// How often a check asks for units to hold, before it asks the server for its own cost alone.
const ROUNDS: usize = 4;
/// The maximum number of calls in flight to one server. More calls would wait at the server and be late; here they wait before their
/// time-out starts.
const MAX_IN_FLIGHT: usize = 256;

/// A limiter without its task.
pub(super) struct LeaseCore<C> {
    pub(super) book: LeaseBook,
    pub(super) dispatch: Dispatch<C>,
    pub(super) background: Background,
    /// The permits for calls to each server, so that a server that hangs does not hold the calls to others.
    pub(super) under_way: Box<[Arc<Semaphore>]>,
    /// The server's time in the last answer minus the local time when it arrived, in nanoseconds modulo 2^64. The answer
    /// took time to arrive, so this is a lower bound of the clocks' difference.
    offset_ns: AtomicU64,
    /// How long a call waits for units that other calls ask for, and then for its own call to the server. After both,
    /// the limiter decides as if the server had not answered.
    pub(super) timeout: Duration,
}

/// The result of a call to the server, for the caller.
#[derive(Debug)]
pub(super) enum BlockOutcome {
    Answered(SharedDecision),
    /// The caller takes no units from the answer, because it did not want any, or because the answer came too late.
    Again,
    Failed,
}

impl<C> LeaseCore<C> {
    /// Stops the task, and lets all callers that wait for the queue ask for themselves.
    pub(super) fn stop(&self) {
        self.background.signal.stop();
        self.book.close();
        self.background.notifiers.notify_all();
    }
}

impl<C: Clock> LeaseCore<C> {
    pub(super) fn new(
        client: impl Transport,
        settings: Settings,
        options: LeaseSettings,
        clock: C,
        tasks: Tasks,
    ) -> Result<Self, BuildError> {
        // Callers wait for their time-out. The call to the server continues in its task for up to a quarter of a life,
        // because late units are still useful while most of their life remains. So an answer that is later than a
        // caller's time-out does not count as a failure of the server.
        let answer = settings.timeout.max(options.life / 4);
        let guarded = Settings { timeout: answer, ..settings.clone() };
        settings.limits.iter().try_for_each(|limit| can_decide_here("leases()", limit))?;
        let dispatch = Dispatch::new(client, None, &guarded, clock)?;
        let background = Background::new(tasks);
        let settled = LeaseSettings {
            limit: dispatch.plan.most(),
            max_keys: settings.max_keys,
            seed: ahash::RandomState::new().hash_one(0),
            ..options
        };
        Ok(Self {
            book: LeaseBook::new(settled, background.waker()),
            under_way: std::iter::repeat_with(|| Arc::new(Semaphore::new(MAX_IN_FLIGHT)))
                .take(settings.places.routes.len())
                .collect(),
            dispatch,
            background,
            offset_ns: AtomicU64::new(0),
            timeout: settings.timeout,
        })
    }

    /// Decides with the held units. Queues a call if units are missing.
    #[inline]
    pub(super) fn check<K: Key + ?Sized>(&self, key: &K, cost: u64, now: Timestamp) -> SharedDecision {
        let now_ns = now.as_nanos();
        let taken = match key.number() {
            Some(number) => self.book.take(number, cost, now_ns),
            None => key.with_bytes(|bytes| self.book.take(Bytes(bytes), cost, now_ns)),
        };
        match taken {
            Some((decision, until_ns)) => SharedDecision::new(decision, DecidedBy::Held).with_mark(until_ns),
            None => KeyRef::with(key, |key| self.check_slow(key, cost, now)),
        }
    }

    /// Decides without waiting. `Err` contains how often to ask for units to hold, before the caller asks the server
    /// for the cost alone.
    pub(super) fn check_now(&self, key: KeyRef<'_>, cost: u64) -> Result<SharedDecision, usize> {
        let now = self.dispatch.now();
        let answer = self.decided(self.book.check(key, cost, now.as_nanos()), key, cost, now);
        answer.map_err(|undecided| if matches!(undecided, LeaseCheck::Full) { 0 } else { ROUNDS })
    }

    /// The answer of a check that this process decides. Otherwise returns the check.
    #[inline]
    pub(super) fn decided(
        &self,
        checked: LeaseCheck,
        key: KeyRef<'_>,
        cost: u64,
        now: Timestamp,
    ) -> Result<SharedDecision, LeaseCheck> {
        match checked {
            LeaseCheck::Decided(decision, until_ns) => {
                Ok(SharedDecision::new(decision, DecidedBy::Held).with_mark(until_ns))
            }
            LeaseCheck::Failing => Ok(self.dispatch.guard.fallback(&key.bytes(), cost, now)),
            undecided => Err(undecided),
        }
    }

    #[cold]
    #[inline(never)]
    fn check_slow(&self, key: KeyRef<'_>, cost: u64, now: Timestamp) -> SharedDecision {
        let now_ns = now.as_nanos();
        let answer = self.decided(self.book.check_slow(key, cost, now_ns), key, cost, now);
        answer.unwrap_or_else(|undecided| {
            if let LeaseCheck::Missing(_, holding) = undecided {
                self.book.want(key, &holding, cost, now_ns);
            }
            SharedDecision::new(self.book.soon(cost, now_ns), DecidedBy::Held)
        })
    }

    /// Processes an answer of the server, and returns its result for the caller.
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
                BlockOutcome::Answered(SharedDecision::new(decision, DecidedBy::Server).with_mark(until_ns))
            }
            Receipt::Late => BlockOutcome::Again,
            Receipt::Refused { until_ns } => {
                // This process denies until then, so that is the retry time.
                let retry_ns = until_ns.saturating_sub(now_ns);
                let (remaining, reset_ns) = (decision.remaining(), answer.reset_ns.max(retry_ns));
                let facts = Facts::Plain { remaining, retry_ns, reset_ns, delay_ns: 0 };
                let decision = Decision::new(decision.outcome(), least, decision.limit(), now_ns, facts);
                BlockOutcome::Answered(SharedDecision::new(decision, DecidedBy::Server))
            }
        }
    }

    /// Puts back units that were leased for an answer that no caller reads or wants. For a local answer, returns the
    /// units to this process's share.
    pub(super) fn refund(&self, key: KeyRef<'_>, answer: &SharedDecision) -> u64 {
        let decision = answer.decision();
        if answer.by() == DecidedBy::Local {
            return self.dispatch.guard.refund(&key.bytes(), &decision, self.dispatch.now());
        }
        self.book.refund(key, decision.charged(), answer.mark(), self.dispatch.now_ns())
    }

    fn learn_offset(&self, reply: &Reply, now_ns: u64) {
        let offset = reply.now_us.saturating_mul(1_000).wrapping_sub(now_ns);
        // Ordering: Relaxed. The number does not depend on other memory.
        self.offset_ns.store(offset, Ordering::Relaxed);
    }

    /// Returns calls that give all held units back. Each unit is dated at the earliest time at which it may have been
    /// charged.
    pub(super) fn returns(&self) -> Vec<Call> {
        let offset = self.offset_ns.load(Ordering::Relaxed);
        let call = |block: LeasedBlock| {
            let LeasedBlock { key, units, until_ns } = block;
            let charged_ns = until_ns.saturating_sub(self.book.terms.life_ns());
            let at_us = charged_ns.wrapping_add(offset) / 1_000;
            self.dispatch.call(&key, Question::Refund { units, at_us }, None)
        };
        self.book.take_all(self.dispatch.now_ns()).into_iter().map(call).collect()
    }
}
