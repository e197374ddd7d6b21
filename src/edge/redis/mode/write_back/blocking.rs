//! The write-back limiter of threads that may wait.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder as Thread, JoinHandle};
use std::time::Duration;

use super::book::Basis;
use super::core::Core;
use super::options::WriteBackBuilder;
use super::stats::WriteBackStats;
use crate::base::clock::{Clock, QuantaClock, StdClock};
use crate::edge::redis::client::BuildError;
use crate::edge::redis::guard::Health;
use crate::edge::redis::mode::dispatch::{self, BlockingCarry, builds};
use crate::edge::redis::protocol::Answer;
use crate::edge::redis::protocol::BlockingTransport;
use crate::edge::redis::protocol::Key;
use crate::edge::redis::protocol::Plan;

/// As often as in async code.
const ROUNDS: usize = 4;

struct Shared<C> {
    core: Core<C>,
    carry: BlockingCarry,
    signals: Arc<Signals>,
}

/// What threads wait for.
#[derive(Default)]
struct Signals {
    bell: Mutex<Bell>,
    /// Something is due, or it is over.
    due: Condvar,
    /// Answers came.
    told: Condvar,
}

#[derive(Default)]
struct Bell {
    is_due: bool,
    answers: u64,
}

impl Signals {
    fn bell(&self) -> MutexGuard<'_, Bell> {
        self.bell.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.bell().is_due = true;
        self.due.notify_one();
    }

    fn tell(&self) {
        self.bell().answers += 1;
        self.told.notify_all();
    }

    /// Waits until something is due, but no longer than this; `is_over` says that nothing is waited for any more.
    fn wait_due(&self, most: Duration, is_over: impl Fn() -> bool) {
        let mut bell = self.bell();
        if !bell.is_due && !is_over() {
            bell = self.due.wait_timeout(bell, most).unwrap_or_else(PoisonError::into_inner).0;
        }
        bell.is_due = false;
    }

    /// Waits until there are other answers than these were, but no longer than this. Whether there are.
    fn wait_told(&self, answers: u64, most: Duration) -> bool {
        let is_silent = |bell: &mut Bell| bell.answers == answers;
        let waited = self.told.wait_timeout_while(self.bell(), most, is_silent);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// As [`WriteBackLimiter`](super::WriteBackLimiter), for threads: one thread posts for all. By
/// [`Builder::write_back`](crate::edge::redis::Builder::write_back).
///
/// Copies are the same limiter. The thread ends when the last one is dropped, after a last post; [`close`](Self::close) waits for that.
///
/// # Examples
/// ```
/// use tollgate::redis::{InProcess, Limit};
/// use tollgate::Quota;
///
/// let server = InProcess::default().blocking(); // or a `BlockingClient`
/// let limit = Limit::fixed_window(Quota::per_minute(600));
/// let limiter = server.limiter("api", limit).write_back().processes(4).build()?;
/// assert!(limiter.check("203.0.113.7").is_allowed()); // decided here
/// assert_eq!(limiter.close(), 0); // nothing is left to be posted
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BlockingWriteBackLimiter<C: Clock + Send + Sync + 'static = QuantaClock> {
    shared: Arc<Shared<C>>,
    /// Dropped with the last copy.
    owner: Arc<Owner<C>>,
}

struct Owner<C: Clock + Send + Sync + 'static> {
    shared: Arc<Shared<C>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<C: Clock + Send + Sync + 'static> Drop for Owner<C> {
    fn drop(&mut self) {
        self.shared.core.stop();
    }
}

impl<C: Clock + Send + Sync + 'static> Clone for BlockingWriteBackLimiter<C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), owner: Arc::clone(&self.owner) }
    }
}

impl<C: Clock + Send + Sync + 'static> fmt::Debug for BlockingWriteBackLimiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingWriteBackLimiter").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

fn make<T: BlockingTransport, C: Clock + Send + Sync + 'static>(
    builder: WriteBackBuilder<T, C>,
) -> Result<BlockingWriteBackLimiter<C>, BuildError> {
    let WriteBackBuilder { builder, options, clock } = builder;
    let settings = builder.settings();
    let plan = Plan::new(&settings.limits)?;
    let signals = Arc::new(Signals::default());
    let waker = Arc::clone(&signals);
    let in_parts = builder.client.in_parts();
    let core = Core::new(&settings, &options, plan, clock, in_parts, move || waker.wake());
    let carry = dispatch::by_blocking(builder.client, &core.guard);
    let shared = Arc::new(Shared { core, carry, signals });
    let posts = Arc::clone(&shared);
    let thread = Thread::new().name("tollgate-write-back".to_owned()).spawn(move || posts.post());
    let thread = Mutex::new(Some(thread.map_err(BuildError::Thread)?));
    let owner = Arc::new(Owner { shared: Arc::clone(&shared), thread });
    Ok(BlockingWriteBackLimiter { shared, owner })
}

builds!(blocking WriteBackBuilder => BlockingWriteBackLimiter by make);

impl<C: Clock> Shared<C> {
    /// Posts what is due until it is over, and once more.
    fn post(&self) {
        while !self.core.is_stopped() {
            self.send();
            self.signals.wait_due(self.core.rest(), || self.core.is_stopped());
        }
        self.flush();
    }

    /// Whether anything was sent.
    fn send(&self) -> bool {
        let mut sent = false;
        loop {
            let posts = self.core.book.due(self.core.now_ns());
            if posts.is_empty() {
                return sent;
            }
            sent = true;
            for post in posts {
                let reply = (self.carry)(&post.call);
                self.core.land(&post, reply);
                self.signals.tell();
            }
        }
    }

    fn flush(&self) -> u64 {
        let pending = || self.core.book.counted(self.core.now_ns()).pending;
        let mut last = u64::MAX;
        loop {
            self.core.book.hurry();
            let sent = self.send();
            let left = pending();
            if left == 0 || !sent || left >= last {
                return left;
            }
            last = left;
        }
    }
}

impl<C: Clock + Send + Sync + 'static> BlockingWriteBackLimiter<C> {
    /// Decides about one unit, here and now. Never waits.
    pub fn check<K: Key + ?Sized>(&self, key: &K) -> Answer {
        self.check_n(key, 1)
    }

    /// Decides about `cost` units, here and now; all or nothing. Never waits.
    pub fn check_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
        self.shared.core.check(key, cost)
    }

    /// As [`check`](Self::check), but waits for the server where this process has spent what it may: no longer than the time-out.
    pub fn check_wait<K: Key + ?Sized>(&self, key: &K) -> Answer {
        self.check_n_wait(key, 1)
    }

    /// As [`check_n`](Self::check_n), but waits for the server where this process has spent what it may: no longer than the time-out.
    pub fn check_n_wait<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
        let (shared, key) = (&self.shared, key.bytes());
        let core = &shared.core;
        // The limiter's own clock may be one that is set.
        let clock = StdClock::new();
        let began = clock.now();
        for _ in 0..ROUNDS {
            let answers = shared.signals.bell().answers;
            let now = core.now();
            let checked = core.checked(&key, cost, now);
            match checked.basis {
                Basis::Asked => {}
                Basis::Full => {
                    let reply = (shared.carry)(&core.exactly(&key, cost));
                    return core.exact(reply, &key, cost);
                }
                Basis::Held | Basis::Alone | Basis::Failing => {
                    return core.answer(checked, &key, cost, now);
                }
            }
            let left = core.timeout.saturating_sub(clock.now().duration_since(began));
            if left == Duration::ZERO || !shared.signals.wait_told(answers, left) {
                break;
            }
        }
        let now = core.now();
        core.answer(core.checked(&key, cost, now), &key, cost, now)
    }

    /// Posts all that is not posted, in this thread. Returns how many units could not be.
    pub fn flush(&self) -> u64 {
        self.shared.flush()
    }

    /// Posts all that is not posted and ends the thread, for all copies: later checks go on by what this process has, and nothing more is
    /// posted. Returns how many units could not be.
    pub fn close(self) -> u64 {
        self.shared.core.stop();
        let thread = self.owner.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // One that panicked has posted what it could.
            let _ = thread.join();
        }
        self.shared.core.stats().pending
    }

    /// What was counted, and what is not posted. O(keys).
    #[must_use]
    pub fn stats(&self) -> WriteBackStats {
        self.shared.core.stats()
    }

    /// How the server fares.
    #[must_use]
    pub fn health(&self) -> Health {
        self.shared.core.guard.health()
    }
}

#[cfg(feature = "rules")]
impl<C: Clock + Send + Sync + 'static> BlockingWriteBackLimiter<C> {
    /// What [`check_n_wait`](Self::check_n_wait) would decide, and what it would ask for; charges nothing. `None` if only the server
    /// knows.
    pub(crate) fn look<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Option<Answer> {
        let (shared, key) = (&self.shared, key.bytes());
        let core = &shared.core;
        // The limiter's own clock may be one that is set.
        let clock = StdClock::new();
        let began = clock.now();
        for round in 0.. {
            let answers = shared.signals.bell().answers;
            let checked = core.look(&key, cost, core.now());
            let left = core.timeout.saturating_sub(clock.now().duration_since(began));
            if checked.basis != Basis::Asked || left == Duration::ZERO || round >= ROUNDS {
                return core.looked(checked);
            }
            // Looked at once more, whether or not it was told in time.
            shared.signals.wait_told(answers, left);
        }
        None
    }

    /// See [`WriteBackBook::succeed`](super::book::WriteBackBook::succeed).
    pub(crate) fn succeed(&self) {
        self.shared.core.book.succeed(self.shared.core.now_ns());
    }
}
