//! For the modes that decide in this process: how they call the server, which waiters an answer wakes, and how their
//! tasks stop.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::base::clock::{Clock, Timestamp};
use crate::base::quota::QuotaError;
use crate::base::sync::{AtomicU64, Ordering};
use crate::edge::redis::client::{BuildError, Routes, Settings, Tasks};
use crate::edge::redis::guard::Guard;
use crate::edge::redis::protocol::{
    Answer, Call, DecidedBy, Error, Limit, LimitKind, Plan, Question, Reply, Transport, tagged,
};

/// Returns an error if a process cannot decide this limit alone within a known bound.
fn can_decide_here(mode: &str, limit: &Limit) -> Result<(), QuotaError> {
    const LATE: &str =
        "a unit would be counted at the time of the call to the server, and not of its request";
    const SLIDES: &str = "SlidingWindow";
    let (name, reason, instead) = match limit.kind() {
        LimitKind::Gcra | LimitKind::FixedWindow | LimitKind::SlidingWindow { .. } => return Ok(()),
        LimitKind::SlidingLog => ("sliding log", LATE, SLIDES),
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
    };
    Err(QuotaError::worded(format!(
        "shared {name} of {}: {mode} cannot bound it, because {reason}; use atomic(), or {instead}",
        limit.quota()
    )))
}

/// The number of bells. The waiters of all keys share them.
const BELLS: usize = 256;

type Carried = Pin<Box<dyn Future<Output = Result<Reply, Error>> + Send>>;

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

/// A limiter's clock and its connection to the server. It hides the transport type, so that limiters of all transports
/// have one type.
pub(crate) struct Dispatch<C> {
    pub(crate) plan: Arc<Plan>,
    pub(crate) guard: Arc<Guard>,
    pub(crate) tasks: Tasks,
    pub(crate) signal: Arc<Signal>,
    pub(crate) bells: Bells,
    clock: C,
    head: Arc<[u8]>,
    pub(crate) routes: Arc<Routes>,
    carry: Box<dyn Fn(Call) -> Carried + Send + Sync>,
}

impl<C> Dispatch<C> {
    /// Creates the value that all clones of the limiter share, and that stops the task when it is dropped.
    pub(crate) fn owner(&self) -> Arc<StopOnDrop> {
        Arc::new(StopOnDrop(Arc::clone(&self.signal)))
    }
}

impl<C: Clock> Dispatch<C> {
    /// `mode` is the mode's name, for errors.
    pub(crate) fn new<T: Transport>(
        mode: &str,
        transport: T,
        settings: &Settings,
        tasks: Tasks,
        clock: C,
    ) -> Result<Self, BuildError> {
        settings.limits.iter().try_for_each(|limit| can_decide_here(mode, limit))?;
        let plan = Arc::new(Plan::new(&settings.limits)?);
        let guard = Arc::new(Guard::new(settings));
        let both = (Arc::new(transport), Arc::clone(&guard));
        let carry = move |call: Call| -> Carried {
            let (transport, guard) = both.clone();
            Box::pin(async move { guard.ask(&*transport, &call).await })
        };
        let (signal, bells) = (Arc::default(), Bells::new());
        let (head, routes) = (Arc::clone(&settings.head), Arc::clone(&settings.routes));
        Ok(Self { plan, guard, tasks, signal, bells, clock, head, routes, carry: Box::new(carry) })
    }

    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.now().as_nanos()
    }

    /// Returns a function that wakes the limiter's task, for a book.
    pub(crate) fn waker(&self) -> impl Fn() + Send + Sync + 'static {
        let signal = Arc::clone(&self.signal);
        move || signal.wake()
    }

    pub(crate) fn call(&self, key: &[u8], question: Question) -> Call {
        let tag = tagged(&self.head, key);
        let place = self.routes.place(key, &tag);
        Call { tag, plan: Arc::clone(&self.plan), ask: question, now: None, place }
    }

    /// The server that holds a key.
    pub(crate) fn server(&self, key: &[u8]) -> usize {
        self.routes.server(&self.head, key)
    }

    /// Sends a call through the limiter's guard.
    pub(crate) async fn ask(&self, call: Call) -> Result<Reply, Error> {
        (self.carry)(call).await
    }

    /// Asks the server to decide one request.
    pub(crate) async fn check(&self, key: &[u8], cost: u64) -> Answer {
        let question = if cost == 0 { Question::Peek { cost: 0 } } else { Question::Check { cost } };
        let reply = self.ask(self.call(key, question)).await;
        let now = self.now();
        match reply {
            Ok(reply) => Answer::new(self.plan.decision(&reply, cost, now), DecidedBy::Server),
            Err(_) => self.guard.fallback(key, cost, now),
        }
    }
}

/// Notifications for tasks that wait for an answer about a key. Each key has a bell, but keys share bells. So a task
/// that wakes checks its key again.
pub(crate) struct Bells {
    bells: Box<[Arc<Notify>]>,
    hasher: ahash::RandomState,
}

impl Bells {
    pub(crate) fn new() -> Self {
        let bells = (0..BELLS).map(|_| Arc::default()).collect();
        Self { bells, hasher: ahash::RandomState::new() }
    }

    pub(crate) fn of(&self, key: &[u8]) -> &Arc<Notify> {
        let hash = self.hasher.hash_one(key);
        #[expect(clippy::cast_possible_truncation, reason = "the remainder is less than the number of bells")]
        let index = (hash % BELLS as u64) as usize;
        &self.bells[index]
    }

    /// Wakes all waiters.
    pub(crate) fn ring(&self) {
        for bell in &self.bells {
            bell.notify_waiters();
        }
    }
}
