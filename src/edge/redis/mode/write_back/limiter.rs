//! The write-back limiter of async code.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::book::{Basis, Post, WriteBackCheck};
use super::core::WriteBackCore;
use super::options::WriteBackBuilder;
use super::stats::WriteBackStats;
use crate::base::clock::{Clock, QuantaClock};
use crate::base::sync::Ordering;
use crate::edge::redis::client::{BuildError, RuntimeThread, Tasks};
use crate::edge::redis::guard::Health;
use crate::edge::redis::mode::dispatch::StopOnDrop;
use crate::edge::redis::mode::forms::builds_here;
use crate::edge::redis::protocol::{Answer, Error, ErrorKind, Key, Reply, Transport};

/// So often a call waits for an answer about its key before it takes what it has got.
const ROUNDS: usize = 4;
/// A flush goes on for no longer than so many rounds of posts that bring nothing new.
const FLUSH_ROUNDS: usize = 3;

/// A limiter that decides in this process, and tells the server afterwards what it let through. By [`Builder::write_back`].
///
/// A check is one compare-exchange, and never waits. Each [`interval`](WriteBackBuilder::interval) a task posts what was let through,
/// key by key, and learns how all processes together stand; keys that are new, and those whose allowance is spent, are posted at once.
/// So it costs the server a call for each key in use, process and interval, however many requests there are; and **it admits more than the
/// limit**, by a bounded amount. Where none may be, use leases or ask for each request.
///
/// Copies are the same limiter. The task ends when the last one is dropped, after a last post if the runtime lasts so long;
/// [`close`](Self::close) waits for that.
///
/// # What is guaranteed
/// `N` processes, a limit of `L` (for GCRA: `B` at once and `r` a second), an interval `T`, a round trip `d`, requests of at most `c`
/// units.
///
/// - **The cap.** After an answer that `R` units are left, a process lets through at most `max(c, share · R)` until the next, and asks
///   at once when that is spent. `share = (own + L/N) / (used + L)`, of `used` units that the shared state counts, `own` of them this
///   process's: 1/N where nothing is known, and its part of the traffic later. Of a new key or window it is `max(1, L/N)`.
/// - **Over-admission in a window** is at most `2 ln 2 · L + c · N`, about `1.39 · L + c · N`, whatever the traffic, and however many
///   requests come. *Proof sketch.* Nothing is handed out after an answer that says `R = 0`; so what is over is at most what was
///   handed out by each process's last answer before the limit was reached. Order those answers by time. An answer that came when
///   `u` units were counted handed out at most `(own + L/N)(L − u)/(u + L)`, or `c`. The `own` of different processes are different units
///   of those `u`; so the sum over the processes is at most `∫ (L − u)/(u + L) du` from 0 to `L`, which is `(2 ln 2 − 1) L`, and the
///   parts `L/N` add no more than `L`. Without the cap it would be `(N − 1) · L`.
/// - **At a rate `λ` of requests** it is also at most about `λ · (T + d)`: whatever is let through is told within that, and a process
///   that was idle tells at once when it is used again. That is the smaller number where windows are long:
///   1,000 a minute by ten processes, offered 17 a second: 17, or 1.7 %.
/// - **By GCRA**, over an interval of length `t` all processes admit at most `B + r · t`, and `2 ln 2 · B + c · N + r · (T + d)` more.
///   The surplus is debited: what is posted beyond the limit is owed, and paid before anything more is admitted, so the rate is
///   kept in the long run. Posts come late, so what was idle may be charged up to `r · T` more than was due: never less.
/// - **Nothing is counted twice.** Posts are totals of this process, window by window: a lost answer, a post sent again or late
///   changes nothing. What cannot be posted is kept, and sent again with the next; until its window is over, for it is never
///   charged to another (of a sliding window, to the one before the present still). What is dropped so is
///   [counted](WriteBackStats::evicted_pending).
/// - **While the server cannot be asked** a process goes on by what it has: the rest of its allowance, and of each new window `L/N`; by
///   GCRA 1/N of the rate. So a partition of `P` processes that lasts `t` adds, in the window in which it begins and with
///   [`OnFailure::Local`](crate::edge::redis::OnFailure::Local), at most `P · max(1, L/N)`, and by GCRA `P/N · (B + r · t)`. Errors that come
///   and go add that to each window: with all processes, a second limit in every window. With `Open` and
///   `Closed`, what is beyond the allowance is as they say, and with `Closed` nothing is handed out anew. A call that is lost is such a
///   partition of its process, until the next one that is answered: the bounds above are for calls that arrive.
/// - **Failures are counted key by key.** The policy decides a key whose last call failed, and no other. So a key under which Redis keeps
///   something else, or a node of a Cluster that is down, changes nothing for other keys. Such a key asks again after 100 ms when it is
///   checked; while no call is answered, one key at a time asks, so that a server that is down meets few calls.
/// - **Windows** are the server's: each answer bounds the difference of the clocks, and within that difference around a window's
///   end only what is of both windows' allowances is spent. Before the first answer, clocks are taken to agree.
///
/// - **Clocks that are stepped.** A window that this process comes back to, since its clock went forth and back, is not handed out again.
///   What a process was handed in the meantime, of windows that were not there yet, is at most `L/N` each.
///   A step of the server's clock moves its windows: in the window in which it falls, processes that have not heard of it spend what they
///   hold of the one before. So that window admits at most twice the bound.
/// - **A fork** copies the numbers by which the shared state tells posters apart. What parent and child post of a key is then taken
///   for one total, and one of them is counted for nothing: make the limiter after the fork.
///
/// The price is early refusals: [`check`](Self::check) refuses when the allowance is spent, until the answer comes.
/// [`check_async`](Self::check_async) waits for it.
///
/// # More keys than there is room for
/// Beyond [`max_keys`](crate::edge::redis::Builder::max_keys) a new key has no place here. `check_async` then asks the server for this very
/// request; `check` refuses. Idle keys are forgotten, earlier if more than half of the room is used.
///
/// # Examples
/// ```
/// use tollgate::redis::{InProcess, Limit};
/// use tollgate::Quota;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = InProcess::default(); // or a `Client`
/// let limit = Limit::fixed_window(Quota::per_minute(600));
/// let limiter = server.limiter("api", limit).write_back().processes(4).build()?;
/// assert!(limiter.check("203.0.113.7").is_allowed()); // decided here
/// assert_eq!(limiter.flush().await, 0); // nothing is left to be posted
/// assert_eq!(limiter.stats().posts, 1);
/// # Ok(())
/// # }
/// ```
///
/// [`Builder::write_back`]: crate::edge::redis::Builder::write_back
pub struct WriteBackLimiter<C: Clock + Send + Sync + 'static = QuantaClock> {
    core: Arc<WriteBackCore<C>>,
    _owner: Arc<StopOnDrop>,
}

/// The task. It is dropped with its runtime, too.
struct Task<C: Clock>(Arc<WriteBackCore<C>>);

impl<C: Clock> Drop for Task<C> {
    fn drop(&mut self) {
        self.0.ended.notify_one();
    }
}

/// A post on its way. One that is dropped before its answer, with its runtime, has failed.
struct PostInFlight<C: Clock> {
    core: Arc<WriteBackCore<C>>,
    post: Option<Post>,
}

impl<C: Clock> PostInFlight<C> {
    fn land(&mut self, reply: Result<Reply, Error>) {
        let Some(post) = self.post.take() else { return };
        let WriteBackCore { book, dispatch, .. } = &*self.core;
        match reply {
            Ok(reply) => book.posted(&post, &reply, dispatch.now_ns()),
            Err(error) => book.failed(&post, error.kind(), dispatch.now_ns()),
        }
        dispatch.bells.of(post.key()).notify_waiters();
    }
}

impl<C: Clock> Drop for PostInFlight<C> {
    fn drop(&mut self) {
        if self.post.is_some() {
            self.land(Err(Error::new(ErrorKind::Timeout, "the runtime that carried the call is gone")));
        }
    }
}

impl<C: Clock + Send + Sync + 'static> Clone for WriteBackLimiter<C> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), _owner: Arc::clone(&self._owner) }
    }
}

impl<C: Clock + Send + Sync + 'static> fmt::Debug for WriteBackLimiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBackLimiter").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

pub(super) fn make<T: Transport, C: Clock + Send + Sync + 'static>(
    tasks: Tasks,
    builder: WriteBackBuilder<T, C>,
) -> Result<WriteBackLimiter<C>, BuildError> {
    let core = Arc::new(WriteBackCore::new(builder, tasks)?);
    core.dispatch.tasks.runtime.spawn(Task(Arc::clone(&core)).run());
    Ok(WriteBackLimiter { _owner: core.dispatch.owner(), core })
}

builds_here!(WriteBackBuilder => WriteBackLimiter by make);

impl<C: Clock + Send + Sync + 'static> Task<C> {
    /// Posts what is due until it is over, and once more.
    async fn run(self) {
        let core = &self.0;
        while !core.dispatch.signal.is_stopped() {
            for flight in core.due() {
                core.dispatch.tasks.runtime.spawn(flight.carry());
            }
            core.dispatch.signal.wait(core.rest()).await;
        }
        core.flush().await;
        // Ordering: Release, and Acquire in `close`: who sees it sees what was posted.
        core.flushed.store(1, Ordering::Release);
    }
}

impl<C: Clock + Send + Sync + 'static> PostInFlight<C> {
    async fn carry(mut self) {
        let Some(call) = self.post.as_ref().map(|post| post.call.clone()) else { return };
        let reply = self.core.dispatch.ask(call).await;
        self.land(reply);
    }
}

impl<C: Clock + Send + Sync + 'static> WriteBackCore<C> {
    fn due(self: &Arc<Self>) -> Vec<PostInFlight<C>> {
        // All of them, before one of them is sent: a post that is not reported is never sent again.
        let posts = self.book.due(self.dispatch.now_ns()).into_iter();
        posts.map(|post| PostInFlight { core: Arc::clone(self), post: Some(post) }).collect()
    }

    async fn flush(self: &Arc<Self>) -> u64 {
        let mut last = u64::MAX;
        let mut rounds = 0;
        let mut since = tokio::time::Instant::now();
        // No longer without anything new, for the runtime of those on their way may not go on.
        while rounds < FLUSH_ROUNDS && since.elapsed() <= self.patience() {
            self.book.hurry();
            let mut posts = JoinSet::new();
            for flight in self.due() {
                posts.spawn(flight.carry());
            }
            if posts.is_empty() && self.book.in_flight() > 0 {
                // By the task.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            while posts.join_next().await.is_some() {}
            let pending = self.book.counted(self.dispatch.now_ns()).pending;
            if pending == 0 {
                return 0;
            }
            if pending < last {
                since = tokio::time::Instant::now();
            }
            rounds = if pending < last || self.book.in_flight() > 0 { 0 } else { rounds + 1 };
            last = pending;
        }
        last
    }

    /// Calls `check` until it need not wait for an answer about the key any more, or the time-out is over: what it said last, and whether that
    /// was in time.
    async fn until_answered(
        &self,
        key: &[u8],
        mut check: impl FnMut() -> WriteBackCheck,
    ) -> (WriteBackCheck, bool) {
        let began = tokio::time::Instant::now();
        for _ in 0..ROUNDS {
            let mut told = pin!(self.dispatch.bells.of(key).notified());
            // From here on no bell is missed.
            told.as_mut().enable();
            let checked = check();
            if checked.basis != Basis::Asked {
                return (checked, true);
            }
            // By what is left of it: a time-out may be beyond the last time that there is.
            let left = self.timeout.saturating_sub(began.elapsed());
            if tokio::time::timeout(left, told).await.is_err() {
                break;
            }
        }
        (check(), false)
    }

    async fn check_by_asking(&self, key: &[u8], cost: u64) -> Answer {
        let mut now = self.dispatch.now();
        let check = || {
            now = self.dispatch.now();
            self.book.check(key, cost, now.as_nanos())
        };
        match self.until_answered(key, check).await {
            (WriteBackCheck { basis: Basis::Full, .. }, true) => self.dispatch.check(key, cost).await,
            (checked, _) => self.answer(checked, key, cost, now),
        }
    }
}

impl<C: Clock + Send + Sync + 'static> WriteBackLimiter<C> {
    /// Decides about one unit, here and now. Never waits.
    pub fn check<K: Key + ?Sized>(&self, key: &K) -> Answer {
        self.core.check(key, 1)
    }

    /// Decides about `cost` units, here and now; all or nothing. Never waits.
    pub fn check_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
        self.core.check(key, cost)
    }

    /// As [`check`](Self::check), but waits for the server where this process has spent what it may: no longer than the time-out.
    pub async fn check_async<K: Key + ?Sized>(&self, key: &K) -> Answer {
        self.check_n_async(key, 1).await
    }

    /// As [`check_n`](Self::check_n), but waits for the server where this process has spent what it may: no longer than the time-out.
    ///
    /// A future that is dropped has charged nothing, unless it was about to be ready.
    pub async fn check_n_async<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
        let key = key.bytes();
        match self.core.check_now(&key, cost) {
            Some(answer) => answer,
            None => self.core.check_by_asking(&key, cost).await,
        }
    }

    /// The same for a thread, which drives what has to wait.
    pub(super) fn check_wait<K: Key + ?Sized>(&self, key: &K, cost: u64, thread: &RuntimeThread) -> Answer {
        key.with_bytes(|key| {
            let asked = || thread.block_on(self.core.check_by_asking(key, cost));
            self.core.check_now(key, cost).unwrap_or_else(asked)
        })
    }

    /// Posts all that is not posted. Returns how many units could not be.
    pub async fn flush(&self) -> u64 {
        self.core.flush().await
    }

    /// Posts all that is not posted and ends the task, for all copies: later checks go on by what this process has, and nothing more is
    /// posted. Returns how many units could not be.
    pub async fn close(self) -> u64 {
        let core = &self.core;
        core.dispatch.signal.stop();
        // A task that cannot go on, for its runtime is not run any more, is not waited for.
        let mut seen = self.stats();
        while tokio::time::timeout(core.patience(), core.ended.notified()).await.is_err() {
            let stats = self.stats();
            if (stats.pending, stats.posts) == (seen.pending, seen.posts) {
                break;
            }
            seen = stats;
        }
        // For others that close.
        core.ended.notify_one();
        // Ordering: Acquire; see `Task::run`.
        if core.flushed.load(Ordering::Acquire) == 0 {
            core.flush().await;
        }
        self.stats().pending
    }

    /// What was counted, and what is not posted. O(keys).
    #[must_use]
    pub fn stats(&self) -> WriteBackStats {
        self.core.book.counted(self.core.dispatch.now_ns())
    }

    /// How the server fares.
    #[must_use]
    pub fn health(&self) -> Health {
        self.core.dispatch.guard.health()
    }
}

#[cfg(feature = "rules")]
impl<C: Clock + Send + Sync + 'static> WriteBackLimiter<C> {
    /// What [`check_n`](Self::check_n) would decide now, and what it would ask for; charges nothing. `None` if only the server knows.
    pub(crate) fn look<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Option<Answer> {
        let core = &self.core;
        core.looked(core.book.look(&key.bytes(), cost, core.dispatch.now_ns()))
    }

    /// The same of [`check_n_async`](Self::check_n_async).
    pub(crate) async fn look_async<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Option<Answer> {
        let (core, key) = (&self.core, key.bytes());
        let looked = core.until_answered(&key, || core.book.look(&key, cost, core.dispatch.now_ns())).await;
        core.looked(looked.0)
    }

    /// See [`WriteBackBook::succeed`](super::book::WriteBackBook::succeed).
    pub(crate) fn succeed(&self) {
        self.core.book.succeed(self.core.dispatch.now_ns());
    }
}
