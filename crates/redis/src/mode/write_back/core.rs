//! A book, with a clock and a connection to the server.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tollgate::internals::sync::AtomicU64;
use tollgate::internals::{saturating_nanos, unix_nanos};
use tollgate::{Clock, DecidedBy, SharedDecision, Timestamp};
use tollgate_protocol::{Key, Transport};

use super::basis::{Basis, WriteBackCheck};
use super::book::{BookSettings, WriteBackBook};
use super::options::WriteBackOptions;
use super::regions::{self, Regions};
use crate::client::{BuildError, OnFailure, Settings, Tasks};
use crate::mode::background::{Background, can_decide_here};
use crate::mode::dispatch::Dispatch;

/// The maximum number of posts in flight to one server.
const IN_FLIGHT: usize = 64;

/// A limiter without its task.
pub(super) struct WriteBackCore<C> {
    pub(super) book: WriteBackBook,
    pub(super) dispatch: Dispatch<C>,
    pub(super) background: Background,
    /// Notified when the task ends, by itself or with its runtime.
    pub(super) ended: Notify,
    /// 1 after the last post of the task.
    pub(super) flushed: AtomicU64,
    pub(super) timeout: Duration,
    pub(super) regions: Option<Regions>,
}

impl<C: Clock> WriteBackCore<C> {
    pub(super) fn new<T: Transport + Clone>(
        client: T,
        mut settings: Settings,
        options: WriteBackOptions<T>,
        clock: C,
        tasks: Tasks,
    ) -> Result<Self, BuildError> {
        let on_failure = settings.on_failure;
        let processes = options.processes.unwrap_or(match on_failure {
            OnFailure::Local { processes } => processes,
            OnFailure::Open | OnFailure::Closed => 1,
        });
        let in_parts = client.in_parts();
        let interval_ns = saturating_nanos(options.interval);
        let has_regions = !options.own.is_empty() || !options.others.is_empty();
        let start = || regions::start(options, client.clone(), &settings, &tasks.runtime);
        let started = has_regions.then(start).transpose()?;
        settings.limits.iter().try_for_each(|limit| can_decide_here("write_back()", limit))?;
        let (dispatch, regions) = match started {
            None => (Dispatch::new(client, None, &settings, clock)?, None),
            Some((regions, own_server)) => {
                if let OnFailure::Local { processes } = &mut settings.on_failure {
                    // While the own server is unavailable, a process has a part of this region's share.
                    *processes =
                        processes.saturating_mul(u32::try_from(regions.portion.of).unwrap_or(u32::MAX));
                }
                (Dispatch::new(own_server, None, &settings, clock)?, Some(regions))
            }
        };
        let background = Background::new(tasks);
        let options = BookSettings {
            places: settings.places,
            interval_ns,
            processes: processes.max(1).into(),
            on_failure,
            max_keys: settings.max_keys,
            process: ahash::RandomState::new().hash_one(unix_nanos()) >> 12,
            in_flight: IN_FLIGHT,
            in_parts,
            portion: regions.as_ref().map(|regions| regions.portion),
        };
        Ok(Self {
            book: WriteBackBook::new(Arc::clone(&dispatch.plan), options, background.waker()),
            dispatch,
            background,
            ended: Notify::new(),
            flushed: AtomicU64::new(0),
            timeout: settings.timeout,
            regions,
        })
    }

    /// Decides in this process, and queues a call if units are missing.
    pub(super) fn check<K: Key + ?Sized>(&self, key: &K, cost: u64) -> SharedDecision {
        let now = self.dispatch.now();
        key.with_bytes(|key| self.answer(self.book.check(key, cost, now.as_nanos()), key, cost, now))
    }

    /// Decides without waiting. Returns `None` if a call to the server is needed.
    pub(super) fn check_now(&self, key: &[u8], cost: u64) -> Option<SharedDecision> {
        let decision = self.book.quick(key, cost, self.dispatch.now_ns())?;
        Some(SharedDecision::new(decision, DecidedBy::Held))
    }

    /// Returns the answer to a check that charges nothing. Returns `None` if only the server can decide, or if nothing
    /// decided.
    #[cfg(feature = "rules")]
    pub(super) fn peeked(&self, checked: WriteBackCheck) -> Option<SharedDecision> {
        let by = self.by(&checked).filter(|_| checked.basis != Basis::Full)?;
        Some(SharedDecision::new(checked.decision, by))
    }

    /// The answer to a check that does not wait.
    #[inline]
    pub(super) fn answer(
        &self,
        checked: WriteBackCheck,
        key: &[u8],
        cost: u64,
        now: Timestamp,
    ) -> SharedDecision {
        match self.by(&checked) {
            Some(by) => SharedDecision::new(checked.decision, by),
            None => self.dispatch.guard.fallback(key, cost, now),
        }
    }

    /// What decided; `None` if nothing decided.
    const fn by(&self, checked: &WriteBackCheck) -> Option<DecidedBy> {
        match (checked.basis, self.book.options.on_failure) {
            (Basis::Failing, OnFailure::Open | OnFailure::Closed) => None,
            (Basis::Failing | Basis::Alone, _) => Some(DecidedBy::Local),
            (Basis::Held | Basis::Asked | Basis::Full, _) => Some(DecidedBy::Held),
        }
    }

    /// How long `flush` and `close` wait for calls that other callers sent. It is longer than any call takes, including
    /// its retries.
    pub(super) fn patience(&self) -> Duration {
        self.timeout.saturating_mul(4).max(Duration::from_secs(1))
    }

    /// The time until the next work is due, unless a wake-up comes first.
    pub(super) fn rest(&self) -> Duration {
        Duration::from_nanos(self.book.next_ns().saturating_sub(self.dispatch.now_ns()).max(100_000))
    }
}
