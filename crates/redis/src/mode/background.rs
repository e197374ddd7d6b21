//! For the modes that decide in this process: which limits they can decide, which waiters an answer wakes, and how their
//! tasks stop.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use tollgate::internals::quota_error;
use tollgate::internals::sync::{AtomicU64, Ordering};
use tollgate::{Limit, LimitKind, QuotaError};

use crate::client::Tasks;

/// Returns an error if a process cannot decide this limit alone within a known bound.
///
/// `mode` is the mode's name, for the error.
pub(crate) fn can_decide_here(mode: &str, limit: &Limit) -> Result<(), QuotaError> {
    const LATE: &str =
        "a unit would be counted at the time of the call to the server, and not of its request";
    const SLIDES: &str = "SlidingWindow";
    const UNSEEN: &str = "a denial here would block the key in this process only";
    let (name, reason, instead) = match limit.kind() {
        _ if limit.block().is_some() => ("GCRA with a block", UNSEEN, "a limit without the block"),
        LimitKind::Gcra
        | LimitKind::TokenBucket
        | LimitKind::LeakyBucketMeter
        | LimitKind::FixedWindow
        | LimitKind::SlidingWindow { .. } => return Ok(()),
        LimitKind::SlidingLog => ("sliding log", LATE, SLIDES),
        LimitKind::CalendarWindow { .. } => {
            ("calendar window", "it counts windows of one length", "FixedWindow::new")
        }
        LimitKind::SubWindow { .. } => ("sub-window counter", LATE, SLIDES),
        LimitKind::MinimumSpacing { .. } => {
            ("minimum spacing", "units that are spent together have no spacing", "Gcra with a burst of 1")
        }
        LimitKind::FirstUseWindow => {
            ("fixed window", "this process does not know when a key's window begins", "FixedWindow::new")
        }
        LimitKind::IntervalBucket => {
            ("token bucket", "this process does not know when a key's periods begin", "TokenBucket::new")
        }
        LimitKind::AlignedBucket { .. } => (
            "token bucket",
            "units of a period can be owed to earlier periods",
            "FixedWindow::new if each refill fills the bucket, or TokenBucket::new",
        ),
        LimitKind::LeakyBucketQueue => {
            ("leaky bucket queue", "only the server knows the turn of a request", "Gcra")
        }
        other => (&*format!("{other:?}"), "this version does not know it", "Gcra"),
    };
    Err(quota_error(format!(
        "shared {name} of {}: {mode} cannot bound it, because {reason}; use atomic(), or {instead}",
        limit.quota()
    )))
}

/// The number of notifiers. The waiters of all keys share them.
const NOTIFIERS: usize = 256;

/// Where the tasks of a limiter run, what stops and wakes them, and what wakes the callers that wait for them.
pub(crate) struct Background {
    pub(crate) tasks: Tasks,
    pub(crate) signal: Arc<Signal>,
    pub(crate) notifiers: AnswerNotifiers,
}

impl Background {
    pub(crate) fn new(tasks: Tasks) -> Self {
        Self { tasks, signal: Arc::default(), notifiers: AnswerNotifiers::new() }
    }

    /// Creates the value that all clones of the limiter share, and that stops the task when it is dropped.
    pub(crate) fn owner(&self) -> Arc<StopOnDrop> {
        Arc::new(StopOnDrop(Arc::clone(&self.signal)))
    }

    /// Returns a function that wakes the limiter's task, for a book.
    pub(crate) fn waker(&self) -> impl Fn() + Send + Sync + 'static {
        let signal = Arc::clone(&self.signal);
        move || signal.wake()
    }
}

/// Wakes the task of a limiter, and stops it.
#[derive(Default)]
pub(crate) struct Signal {
    due: Notify,
    stopped: AtomicU64,
}

impl Signal {
    /// Wakes the task, because work is due.
    pub(crate) fn wake(&self) {
        self.due.notify_one();
    }

    pub(crate) fn stop(&self) {
        // Ordering: Release, and Acquire below: a task that sees the stop also sees every unit admitted before it.
        self.stopped.store(1, Ordering::Release);
        self.wake();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire) != 0
    }

    /// Waits for a wake-up, but at most for `most`.
    pub(crate) async fn wait(&self, most: Duration) {
        // After a wake-up or a time-out, there may be work.
        let _ = timeout(most, self.due.notified()).await;
    }
}

/// Stops a limiter's task when the last copy of the limiter is dropped.
pub(crate) struct StopOnDrop(Arc<Signal>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Notifications for tasks that wait for an answer about a key. Each key has a notifier, but keys share notifiers. So a task
/// that wakes checks its key again.
pub(crate) struct AnswerNotifiers {
    notifiers: Box<[Arc<Notify>]>,
    hasher: ahash::RandomState,
}

impl AnswerNotifiers {
    pub(crate) fn new() -> Self {
        let notifiers = (0..NOTIFIERS).map(|_| Arc::default()).collect();
        Self { notifiers, hasher: ahash::RandomState::new() }
    }

    pub(crate) fn of(&self, key: &[u8]) -> &Arc<Notify> {
        let hash = self.hasher.hash_one(key);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the remainder is less than the number of notifiers"
        )]
        let index = (hash % NOTIFIERS as u64) as usize;
        &self.notifiers[index]
    }

    /// Wakes all waiters.
    pub(crate) fn notify_all(&self) {
        for notifier in &self.notifiers {
            notifier.notify_waiters();
        }
    }
}
