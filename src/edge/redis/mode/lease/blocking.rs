//! The lease limiter of threads that may wait.

use std::fmt;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::book::{BlockRequest, LeaseCheck};
use super::core::{BlockOutcome, Core};
use super::options::LeaseBuilder;
use super::stats::LeaseStats;
use crate::base::clock::{Clock, QuantaClock, Timestamp};
use crate::base::decision::Decision;
use crate::base::sync::{Condvar, Mutex, Ordering};
use crate::edge::redis::client::BuildError;
use crate::edge::redis::guard::Health;
use crate::edge::redis::mode::dispatch::{self, BlockingCarry, builds};
use crate::edge::redis::protocol::Key;
use crate::edge::redis::protocol::KeyRef;
use crate::edge::redis::protocol::Plan;
use crate::edge::redis::protocol::{Answer, DecidedBy};
use crate::edge::redis::protocol::{BlockingTransport, Question};

/// So often a call waits for units that others ask for, before it asks for its own alone.
const ROUNDS: usize = 4;

struct Shared<C> {
    core: Core<C>,
    carry: BlockingCarry,
    signals: Arc<Signals>,
}

/// What threads wait for.
#[derive(Default)]
struct Signals {
    /// Whether something became due since the thread looked.
    due: Mutex<bool>,
    wake: Condvar,
    /// How many answers there were.
    answers: Mutex<u64>,
    answered: Condvar,
}

impl Signals {
    fn due(&self) -> MutexGuard<'_, bool> {
        // Neither value can be left half changed.
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        *self.due() = true;
        self.wake.notify_one();
    }

    /// Waits until something is due, but no longer than this.
    fn wait_due(&self, most: Duration) {
        let mut due = self.due();
        if !*due {
            due = self.wake.wait_timeout(due, most).unwrap_or_else(PoisonError::into_inner).0;
        }
        *due = false;
    }

    fn answers(&self) -> MutexGuard<'_, u64> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        let mut answers = self.answers();
        *answers = answers.wrapping_add(1);
        drop(answers);
        self.answered.notify_all();
    }
}

/// [`LeaseLimiter`](super::LeaseLimiter) for threads: a thread of its own fetches units, and ends when the last copy is dropped.
///
/// All that is said there holds here. The thread asks for one key after another, so what it fetches beforehand is bounded by round
/// trips; checks that [may wait](BlockingLeaseLimiter::check_wait) ask in their own threads.
///
/// # Examples
/// ```
/// use tollgate::redis::{InProcess, Limit};
/// use tollgate::Quota;
///
/// let server = InProcess::default().blocking(); // or a `BlockingClient`
/// let limiter = server.limiter("api", Limit::gcra(Quota::per_second(100))).leases().build()?;
/// assert!(limiter.check_wait("203.0.113.7").is_allowed());
/// limiter.close();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BlockingLeaseLimiter<C = QuantaClock> {
    shared: Arc<Shared<C>>,
    /// Dropped with the last copy.
    _owner: Arc<Owner>,
}

/// Stops the thread, and waits for its end: for no longer than its last question takes.
struct Owner {
    stop: Box<dyn Fn() + Send + Sync>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        (self.stop)();
        if let Some(thread) = self.thread.take() {
            // If it panicked there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

impl<C> Clone for BlockingLeaseLimiter<C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), _owner: Arc::clone(&self._owner) }
    }
}

impl<C> fmt::Debug for BlockingLeaseLimiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BlockingLeaseLimiter").field(&self.shared.core).finish()
    }
}

fn make<T: BlockingTransport, C: Clock + Send + Sync + 'static>(
    builder: LeaseBuilder<T, C>,
) -> Result<BlockingLeaseLimiter<C>, BuildError> {
    let LeaseBuilder { builder, options, clock } = builder;
    let (settings, signals) = (builder.settings(), Arc::new(Signals::default()));
    let plan = Plan::new(&settings.limits)?;
    let waker = Arc::clone(&signals);
    let core = Core::new(&settings, &options, plan, clock, settings.timeout, move || waker.wake());
    let carry = dispatch::by_blocking(builder.client, &core.guard);
    let shared = Arc::new(Shared { core, carry, signals });
    let (fetcher, owned) = (Fetching(Arc::clone(&shared)), Arc::clone(&shared));
    let thread = std::thread::Builder::new()
        .name("tollgate-leases".to_owned())
        .spawn(move || fetcher.0.fetch())
        .map_err(BuildError::Thread)?;
    let owner = Owner { stop: Box::new(move || owned.stop()), thread: Some(thread) };
    Ok(BlockingLeaseLimiter { shared, _owner: Arc::new(owner) })
}

builds!(blocking LeaseBuilder => BlockingLeaseLimiter by make);

impl<C: Clock> Shared<C> {
    /// Fetches what is due until it is over.
    fn fetch(&self) {
        let core = &self.core;
        let life_ns = core.book.life_ns();
        let mut swept_ns = core.now().as_nanos();
        while !core.is_stopped() {
            self.signals.wait_due(Duration::from_nanos(life_ns));
            let now_ns = core.now().as_nanos();
            for mut due in core.book.due(usize::MAX, now_ns) {
                if core.is_stopped() {
                    core.book.failed(&due, now_ns);
                    continue;
                }
                // Those before it have taken their time.
                due.asked_ns = core.now().as_nanos();
                let _ = self.ask(&due);
            }
            if now_ns.abs_diff(swept_ns) >= life_ns {
                core.book.sweep(now_ns);
                swept_ns = now_ns;
            }
        }
    }

    fn ask(&self, due: &BlockRequest) -> BlockOutcome {
        let call = self.core.call(&due.key, due.ask);
        let reply = (self.carry)(&call);
        let asked = self.core.land(due, reply);
        self.signals.tell();
        asked
    }

    fn check(&self, key: KeyRef<'_>, cost: u64) -> Answer {
        let core = &self.core;
        let now = core.now();
        match core.book.check(key, cost, now.as_nanos()) {
            LeaseCheck::Decided(decision, until_ns) => Answer::leased(decision, DecidedBy::Held, until_ns),
            LeaseCheck::Failing => core.guard.fallback(&key.bytes(), cost, now),
            LeaseCheck::Missing(..) => self.check_slow(key, cost, ROUNDS),
            LeaseCheck::Full => self.check_slow(key, cost, 0),
        }
    }

    /// Asks for units to be held so often, and then for the cost alone.
    fn check_slow(&self, key: KeyRef<'_>, cost: u64, rounds: usize) -> Answer {
        let core = &self.core;
        let patience = core.patience();
        let mut asked = 0;
        while asked < rounds {
            // Whoever was done before is seen by this look.
            let seen = *self.signals.answers();
            let now = core.now();
            let now_ns = now.as_nanos();
            let holding = match core.book.check(key, cost, now_ns) {
                LeaseCheck::Decided(decision, until_ns) => {
                    return Answer::leased(decision, DecidedBy::Held, until_ns);
                }
                LeaseCheck::Failing => return core.guard.fallback(&key.bytes(), cost, now),
                LeaseCheck::Missing(_, holding) if core.book.keeps(cost) => holding,
                LeaseCheck::Full | LeaseCheck::Missing(..) => break,
            };
            if let Some(due) = core.book.claim(key, &holding, cost, now_ns) {
                asked += 1;
                match self.ask(&due) {
                    BlockOutcome::Answered(answer) => return answer,
                    BlockOutcome::Late | BlockOutcome::Fetched if patience.is_over() => break,
                    BlockOutcome::Late | BlockOutcome::Fetched => {}
                    BlockOutcome::Failed => return core.guard.fallback(&key.bytes(), cost, core.now()),
                }
            } else {
                let waiting = core.book.wait(&holding, cost, now_ns);
                let most = patience.for_others();
                if most.is_zero() {
                    break;
                }
                // Others may have spent what one answer brought, or it was another key's: then it is asked and waited anew.
                let answers = self.signals.answers();
                if *answers == seen && !waiting.is_over() {
                    drop(self.signals.answered.wait_timeout(answers, most));
                }
            }
        }
        if patience.is_over() {
            return core.guard.fallback(&key.bytes(), cost, core.now());
        }
        // There is no room for the key or for so many units of it; or others took all of it, again and again.
        let key = key.bytes();
        let call = core.call(&key, Question::Check { cost });
        let reply = (self.carry)(&call);
        core.exact(&key, cost, reply)
    }
}

/// What the thread has. When it ends, by itself or by a panic, nobody takes up any more what is queued.
struct Fetching<C>(Arc<Shared<C>>);

impl<C> Drop for Fetching<C> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl<C> Shared<C> {
    fn stop(&self) {
        // Ordering: Relaxed. The thread is woken by what follows, under a lock, and looks then.
        self.core.stopped.store(1, Ordering::Relaxed);
        self.core.book.close();
        self.signals.wake();
        // Whoever waits for what was queued asks by itself.
        self.signals.tell();
    }
}

impl<C: Clock + Send + Sync + 'static> BlockingLeaseLimiter<C> {
    /// Checks one unit of a key by what is held, and charges it if it is allowed. Never waits.
    ///
    /// As [`LeaseLimiter::check`](super::LeaseLimiter::check).
    #[inline]
    pub fn check<K: Key + ?Sized>(&self, key: &K) -> Answer {
        self.check_n(key, 1)
    }

    /// As [`check`](BlockingLeaseLimiter::check), of `cost` units: all of them or none.
    #[inline]
    pub fn check_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
        self.shared.core.check(key, cost, self.shared.core.now())
    }

    /// As [`check_n`](BlockingLeaseLimiter::check_n), at a time that the caller read from [`clock`](LeaseBuilder::clock).
    #[inline]
    pub fn check_at<K: Key + ?Sized>(&self, key: &K, cost: u64, now: Timestamp) -> Answer {
        self.shared.core.check(key, cost, now)
    }

    /// Checks one unit of a key: by what is held, or else by the server, and waits for it. What most servers should use.
    ///
    /// As [`LeaseLimiter::check_async`](super::LeaseLimiter::check_async).
    pub fn check_wait<K: Key + ?Sized>(&self, key: &K) -> Answer {
        self.check_n_wait(key, 1)
    }

    /// As [`check_wait`](BlockingLeaseLimiter::check_wait), of `cost` units: all of them or none.
    pub fn check_n_wait<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
        KeyRef::with(key, |name| self.shared.check(name, cost))
    }

    /// How things stand in this process, without charging. As [`LeaseLimiter::peek`](super::LeaseLimiter::peek).
    #[must_use]
    pub fn peek<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        self.shared.core.peek(key, cost)
    }

    /// Takes back the units of an answer. As [`LeaseLimiter::refund`](super::LeaseLimiter::refund).
    pub fn refund<K: Key + ?Sized>(&self, key: &K, answer: &Answer) -> u64 {
        let taken = KeyRef::with(key, |name| self.shared.core.give(name, answer));
        if taken > 0 {
            self.shared.signals.tell();
        }
        taken
    }

    /// What became of units so far. O(keys).
    #[must_use]
    pub fn stats(&self) -> LeaseStats {
        self.shared.core.stats()
    }

    /// How the server fares.
    #[must_use]
    pub fn health(&self) -> Health {
        self.shared.core.guard.health()
    }

    /// Stops fetching, and gives back to the server what is held. As [`LeaseLimiter::close`](super::LeaseLimiter::close).
    pub fn close(self) {
        self.shared.stop();
        for call in self.shared.core.returns() {
            match (self.shared.carry)(&call) {
                Ok(reply) => self.shared.core.book.returned(reply.granted),
                // What is not given back expires.
                Err(_) => break,
            }
        }
    }
}
