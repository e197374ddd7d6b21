//! A book with a clock, and with the way to the server.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::book::{Basis, BookSettings, Post, WriteBackBook, WriteBackCheck};
use super::options::WriteBackBuilder;
use super::stats::WriteBackStats;
use crate::base::clock::{Clock, Timestamp, saturating_nanos, unix_nanos};
use crate::base::sync::{AtomicU64, Ordering};
use crate::edge::redis::client::{BuildError, OnFailure, Tasks};
use crate::edge::redis::mode::dispatch::Dispatch;
use crate::edge::redis::protocol::{Answer, DecidedBy, Error, Key, Reply, Transport};

/// Posts that are under way at a time.
const IN_FLIGHT: usize = 64;

/// A limiter without its task.
pub(super) struct WriteBackCore<C> {
    pub(super) book: WriteBackBook,
    pub(super) dispatch: Dispatch,
    pub(super) clock: C,
    /// The task has ended, by itself or with its runtime.
    pub(super) ended: Notify,
    /// 1 once the task has posted for the last time.
    pub(super) flushed: AtomicU64,
    on_failure: OnFailure,
    pub(super) timeout: Duration,
    stopped: AtomicU64,
}

impl<C: Clock> WriteBackCore<C> {
    pub(super) fn new<T: Transport>(
        builder: WriteBackBuilder<T, C>,
        tasks: Tasks,
    ) -> Result<Self, BuildError> {
        let WriteBackBuilder { builder, options, clock } = builder;
        let settings = builder.settings();
        let on_failure = settings.on_failure;
        let processes = options.processes.unwrap_or(match on_failure {
            OnFailure::Local { processes } => processes,
            OnFailure::Open | OnFailure::Closed => 1,
        });
        let in_parts = builder.client.in_parts();
        let dispatch = Dispatch::new(builder.client, &settings, tasks)?;
        let options = BookSettings {
            head: settings.head,
            interval_ns: saturating_nanos(options.interval),
            processes: processes.max(1).into(),
            on_failure,
            max_keys: settings.max_keys,
            process: ahash::RandomState::new().hash_one(unix_nanos()) >> 12,
            in_flight: IN_FLIGHT,
            in_parts,
        };
        Ok(Self {
            book: WriteBackBook::new(Arc::clone(&dispatch.plan), options),
            dispatch,
            clock,
            ended: Notify::new(),
            flushed: AtomicU64::new(0),
            on_failure,
            timeout: settings.timeout,
            stopped: AtomicU64::new(0),
        })
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    /// Decides here and now, and has asked for what is missing.
    pub(super) fn check<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
        let now = self.now();
        key.with_bytes(|key| match self.book.quick(key, cost, now.as_nanos()) {
            Some(decision) => Answer::new(decision, DecidedBy::Held),
            None => self.check_slow(key, cost, now),
        })
    }

    /// Decides without waiting, as long as nothing has to be asked.
    pub(super) fn check_now(&self, key: &[u8], cost: u64) -> Option<Answer> {
        let decision = self.book.quick(key, cost, self.now_ns())?;
        Some(Answer::new(decision, DecidedBy::Held))
    }

    #[cold]
    #[inline(never)]
    fn check_slow(&self, key: &[u8], cost: u64, now: Timestamp) -> Answer {
        let checked = self.woken(self.book.check_slow(key, cost, now.as_nanos()));
        self.answer(checked, key, cost, now)
    }

    /// The same for who may wait: what came of it.
    pub(super) fn checked(&self, key: &[u8], cost: u64, now: Timestamp) -> WriteBackCheck {
        self.woken(self.book.check(key, cost, now.as_nanos()))
    }

    /// What [`checked`](Self::checked) would come to; charges nothing.
    #[cfg(feature = "rules")]
    pub(super) fn look(&self, key: &[u8], cost: u64, now: Timestamp) -> WriteBackCheck {
        self.woken(self.book.look(key, cost, now.as_nanos()))
    }

    fn woken(&self, checked: WriteBackCheck) -> WriteBackCheck {
        if checked.wakes {
            self.dispatch.due.notify_one();
        }
        checked
    }

    /// What is said of a look: nothing where only the server knows, or nobody does.
    #[cfg(feature = "rules")]
    pub(super) fn looked(&self, checked: WriteBackCheck) -> Option<Answer> {
        let by = self.by(&checked).filter(|_| checked.basis != Basis::Full)?;
        Some(Answer::new(checked.decision, by))
    }

    /// What is said of a check that nobody waits for.
    pub(super) fn answer(&self, checked: WriteBackCheck, key: &[u8], cost: u64, now: Timestamp) -> Answer {
        match self.by(&checked) {
            Some(by) => Answer::new(checked.decision, by),
            None => self.dispatch.guard.fallback(key, cost, now),
        }
    }

    /// Who decided; `None` if nobody did.
    const fn by(&self, checked: &WriteBackCheck) -> Option<DecidedBy> {
        match (checked.basis, self.on_failure) {
            (Basis::Failing, OnFailure::Open | OnFailure::Closed) => None,
            (Basis::Failing | Basis::Alone, _) => Some(DecidedBy::Local),
            (Basis::Held | Basis::Asked | Basis::Full, _) => Some(DecidedBy::Held),
        }
    }

    /// A post came back. Whether something is to be sent at once.
    pub(super) fn land(&self, post: &Post, reply: Result<Reply, Error>) -> bool {
        match reply {
            Ok(reply) => _ = self.book.posted(post, &reply, self.now_ns()),
            Err(error) => self.book.failed(post, error.kind(), self.now_ns()),
        }
        // What waited for a call to come back, too.
        self.book.next_ns() == 0
    }

    /// How long somebody waits for calls that others have sent: longer than any takes, its retries included.
    pub(super) fn patience(&self) -> Duration {
        self.timeout.saturating_mul(4).max(Duration::from_secs(1))
    }

    /// How long nothing is due, unless something wakes.
    pub(super) fn rest(&self) -> Duration {
        Duration::from_nanos(self.book.next_ns().saturating_sub(self.now_ns()).max(100_000))
    }

    pub(super) fn stats(&self) -> WriteBackStats {
        self.book.counted(self.now_ns())
    }

    pub(super) fn stop(&self) {
        // Ordering: Release, and Acquire below: whoever sees that it is over sees all that was let through before.
        self.stopped.store(1, Ordering::Release);
        self.dispatch.due.notify_one();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire) != 0
    }
}
