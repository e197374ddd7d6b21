//! The lease limiter of async code.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout};

use super::book::{BlockRequest, LeaseCheck};
use super::core::{BlockOutcome, LeaseCore};
use super::options::LeaseBuilder;
use super::stats::LeaseStats;
use crate::base::clock::{Clock, QuantaClock, Timestamp};
use crate::base::decision::Decision;
use crate::edge::redis::client::{BuildError, RuntimeThread, Tasks};
use crate::edge::redis::guard::Health;
use crate::edge::redis::mode::dispatch::StopOnDrop;
use crate::edge::redis::mode::forms::builds_here;
use crate::edge::redis::protocol::{Answer, DecidedBy, Key, KeyRef, Transport};

/// A limiter that is charged for units in blocks at the server, and spends them in this process. By [`Builder::leases`].
///
/// A check costs what one in this process does, most of the time: no round trip, no lock. Each key's units are charged
/// beforehand and live for a [`life`](LeaseBuilder::life); when few are left, a task fetches the next block, which is about what
/// the key uses in a quarter of a life. Keys that are used seldom are charged only for what is asked for.
///
/// Copies are the same limiter. The task ends when the last one is dropped; [`LeaseLimiter::close`] gives back what is held before.
///
/// # What is guaranteed
/// `N` processes, a limit of `L` (for GCRA: `B` at once and `r` a second), a life `l`:
///
/// - **Nothing is admitted that was not charged.** In any interval of length `t` all processes together admit, by GCRA, at most
///   `B + r · (t + l)`. Of windows, no more than the limit in any: a unit lives no longer than what was left of its window when it
///   was charged, counted from before the question was sent. What differs is only how fast clocks run in one life. A clock that
///   steps back adds its step, at most a life.
/// - **Lost answers are the client's loss.** What may have been charged and was not heard of is never spent; nor is what is
///   heard of after its life.
/// - **What is stranded is bounded.** A process holds of a key at most [`max_block`](LeaseBuilder::max_block) units, at most twice
///   its last block, and about what the key used in a quarter of a life; it is granted at most one part in
///   `2 · processes` of what is left. What it holds when the key falls idle expires unspent: at most
///   `N · min(max_block, use of a process in l/4 and two round trips)` units a key. While 128 keys or more wait to be asked for, blocks
///   last for a whole life, and grow up to 16 times at once: it is the use in `l`, not in `l/4`, then. A process that has just used up one block after
///   another at once is granted larger parts, at last all that is left: of a limit that is nearly used up, one process may strand as
///   much as twice its last block. Under steady use next to nothing is stranded: a block is used up in a quarter
///   of its life.
/// - **The end of a quota is used up.** Blocks shrink with what is left, down to single units, so the last unit goes to whoever asks
///   first.
/// - A refusal of the server is remembered until the units should be there, but for no less than a 64th of a life (an eighth of the time in
///   which the limit is refilled, if that is less; a round trip, if that is more) and up to an eighth longer, so that a flood on a key
///   that is used up does not ask each time. [`Answer::retry_after`] says until when.
/// - While the server cannot be asked, what is held is spent first; then it is as [`OnFailure`](crate::edge::redis::OnFailure) says.
///
/// # Large requests
/// A key holds at most about a million units with the default life, fewer with a shorter one: the largest power of two that is no more than
/// a 512th of the life in nanoseconds, less one (1,048,575 with a second, 1,023 with 1 ms). Of a cost above that
/// [`check_n_async`](LeaseLimiter::check_n_async) asks the server each time, for exactly the cost, and takes no part of it from what is held;
/// such an answer cannot be refunded here. [`check_n`](LeaseLimiter::check_n) refuses it, and asks for nothing: it would be charged in vain.
///
/// # How long a call waits
/// At most two [time-outs](crate::edge::redis::Builder::timeout), whatever becomes of it. Then it is as if the server had not answered.
///
/// A question itself may take a quarter of a life, if that is longer: it goes on in a task, and what it brings is there for others. Only after
/// that it has failed, for the breaker too. At most 256 questions are under way at a time; others wait in this process.
///
/// # More keys than there is room for
/// Beyond [`max_keys`](crate::edge::redis::Builder::max_keys) a new key has no place here. [`check_async`](LeaseLimiter::check_async) then
/// asks the server for exactly the cost; [`check`](LeaseLimiter::check), which cannot wait, refuses. Keys that hold nothing and were not
/// used for four lives are forgotten.
///
/// # Examples
/// ```
/// use tollgate::redis::{InProcess, Limit};
/// use tollgate::Quota;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = InProcess::default(); // or a `Client`
/// let limiter = server.limiter("api", Limit::gcra(Quota::per_second(100))).leases().build()?;
/// // Asks the server if nothing is held; most calls decide here.
/// let answer = limiter.check_async("203.0.113.7").await;
/// assert!(answer.is_allowed());
/// limiter.close().await;
/// # Ok(())
/// # }
/// ```
///
/// [`Builder::leases`]: crate::edge::redis::Builder::leases
pub struct LeaseLimiter<C = QuantaClock> {
    core: Arc<LeaseCore<C>>,
    _owner: Arc<StopOnDrop>,
}

impl<C> Clone for LeaseLimiter<C> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), _owner: Arc::clone(&self._owner) }
    }
}

impl<C> fmt::Debug for LeaseLimiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.core.book.keys.len();
        f.debug_struct("LeaseLimiter").field("keys", &keys).finish_non_exhaustive()
    }
}

pub(super) fn make<T: Transport, C: Clock + Send + Sync + 'static>(
    tasks: Tasks,
    builder: LeaseBuilder<T, C>,
) -> Result<LeaseLimiter<C>, BuildError> {
    let core = Arc::new(LeaseCore::new(builder, tasks)?);
    core.dispatch.tasks.runtime.spawn(fetch(Fetching(Arc::clone(&core))));
    Ok(LeaseLimiter { _owner: core.dispatch.owner(), core })
}

builds_here!(LeaseBuilder => LeaseLimiter by make);

/// What the task has. When it ends, by itself or with its runtime, nobody takes up any more what is queued.
struct Fetching<C>(Arc<LeaseCore<C>>);

impl<C> Drop for Fetching<C> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Fetches what is due until it is over.
async fn fetch<C: Clock + Send + Sync + 'static>(fetching: Fetching<C>) {
    let core = &fetching.0;
    let dispatch = &core.dispatch;
    let mut swept_ns = dispatch.now_ns();
    while !dispatch.signal.is_stopped() {
        dispatch.signal.wait(Duration::from_nanos(core.book.terms.life_ns())).await;
        loop {
            let now_ns = dispatch.now_ns();
            if now_ns.abs_diff(swept_ns) >= core.book.terms.life_ns() {
                core.book.sweep(now_ns);
                swept_ns = now_ns;
            }
            if core.book.queue.len() == 0 {
                break;
            }
            // In one line with the questions of callers.
            let leave = core.leave().await;
            if let Some(due) = core.book.due(1, dispatch.now_ns()).pop() {
                drop(core.request(due, leave));
            }
        }
    }
}

/// A question under way in a task, and then its answer on its way to the one who asked. If nobody reads it, its units are there for
/// others. Wherever it ends, the key is free first, and then its bell rings.
struct InFlight<C: Clock> {
    asked: Option<BlockOutcome>,
    due: BlockRequest,
    _ring: Ring,
    core: Arc<LeaseCore<C>>,
}

struct Ring(Arc<Notify>);

impl Drop for Ring {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

impl<C: Clock> Drop for InFlight<C> {
    fn drop(&mut self) {
        if let Some(BlockOutcome::Answered(answer)) = self.asked.take() {
            let (core, due) = (&self.core, &self.due);
            let units = answer.decision().charged();
            core.book.give_due(due, units, answer.leased_until_ns(), core.dispatch.now_ns());
        }
    }
}

impl<C: Clock + Send + Sync + 'static> LeaseCore<C> {
    /// Waits until fewer questions are under way. `None` if the line is closed, which nobody does.
    async fn leave(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.under_way).acquire_owned().await.ok()
    }

    /// Asks in a task of its own, which goes on if nobody waits for it any more: what it brings is there for others. Without a leave
    /// it waits until fewer are under way.
    fn request(
        self: &Arc<Self>,
        due: BlockRequest,
        leave: Option<OwnedSemaphorePermit>,
    ) -> oneshot::Receiver<InFlight<C>> {
        let (tell, told) = oneshot::channel();
        let bell = Arc::clone(self.dispatch.bells.of(&due.key));
        let mut flight =
            InFlight { asked: None, due, _ring: Ring(Arc::clone(&bell)), core: Arc::clone(self) };
        self.dispatch.tasks.runtime.spawn(async move {
            let core = Arc::clone(&flight.core);
            let _leave = match leave {
                Some(leave) => Some(leave),
                None => core.leave().await,
            };
            // Those before it have taken their time.
            flight.due.asked_ns = core.dispatch.now_ns();
            let reply = core.dispatch.ask(core.dispatch.call(&flight.due.key, flight.due.ask)).await;
            flight.asked = Some(core.land(&flight.due, reply));
            // Of what is not read its drop takes care, here or there.
            let _ = tell.send(flight);
            bell.notify_waiters();
        });
        told
    }

    /// Asks for units to be held so often, and then for the cost alone.
    pub(super) async fn check_by_asking(
        self: &Arc<Self>,
        key: KeyRef<'_>,
        cost: u64,
        rounds: usize,
    ) -> Answer {
        let began = Instant::now();
        let asking = self.ask(key, cost, rounds, began);
        // Without a runtime here the timer is that of the limiter's own.
        let timed = {
            let _entered = Handle::try_current().is_err().then(|| self.dispatch.tasks.runtime.enter());
            timeout(self.timeout.saturating_mul(2), asking)
        };
        match timed.await {
            Ok(answer) => answer,
            Err(_) => self.dispatch.guard.fallback(&key.bytes(), cost, self.dispatch.now()),
        }
    }

    async fn ask(self: &Arc<Self>, key: KeyRef<'_>, cost: u64, rounds: usize, began: Instant) -> Answer {
        let (core, guard) = (self, &self.dispatch.guard);
        let bytes = key.bytes();
        let bell = self.dispatch.bells.of(&bytes);
        let mut asked = 0;
        while asked < rounds {
            let mut rings = pin!(bell.notified());
            // From here on it is heard; so whoever was done before is seen by this look.
            rings.as_mut().enable();
            let now = core.dispatch.now();
            let now_ns = now.as_nanos();
            let holding = match core.book.check(key, cost, now_ns) {
                LeaseCheck::Decided(decision, until_ns) => {
                    return Answer::leased(decision, DecidedBy::Held, until_ns);
                }
                LeaseCheck::Failing => return guard.fallback(&bytes, cost, now),
                LeaseCheck::Missing(_, holding) if core.book.keeps(cost) => holding,
                LeaseCheck::Full | LeaseCheck::Missing(..) => break,
            };
            if let Some(due) = core.book.claim(key, &holding, cost, now_ns) {
                asked += 1;
                match self.request(due, None).await.ok().and_then(|mut told| told.asked.take()) {
                    Some(BlockOutcome::Answered(answer)) => return answer,
                    Some(BlockOutcome::Again) => {}
                    // The runtime is being shut down, if there is nothing at all.
                    Some(BlockOutcome::Failed) | None => {
                        return guard.fallback(&bytes, cost, core.dispatch.now());
                    }
                }
            } else {
                let waiting = core.book.wait(&holding, cost, now_ns);
                let most = self.timeout.saturating_sub(began.elapsed());
                if most.is_zero() {
                    break;
                }
                // Others may have spent what one answer brought, or another key has this bell: then it is asked and waited anew.
                if !waiting.is_over() && timeout(most, rings).await.is_err() {
                    break;
                }
            }
        }
        // There is no room for the key or for so many units of it; or others took all of it, again and again.
        let _leave = self.under_way.acquire().await;
        self.dispatch.check(&bytes, cost).await
    }
}

impl<C: Clock + Send + Sync + 'static> LeaseLimiter<C> {
    /// Checks one unit of a key by what is held, and charges it if it is allowed. Never waits.
    ///
    /// If too little is held the answer is a denial with a short [`retry_after`](Answer::retry_after), and a task fetches what is
    /// missing meanwhile: so it is with the first check of each key. For requests that can wait for a round trip there is
    /// [`check_async`](LeaseLimiter::check_async).
    ///
    /// # Complexity
    /// O(1): a look-up, a load, an exchange, and a count. Lock-free, but for the check that finds that little is left.
    #[inline]
    pub fn check<K: Key + ?Sized>(&self, key: &K) -> Answer {
        self.core.check(key, 1, self.core.dispatch.now())
    }

    /// As [`check`](LeaseLimiter::check), of `cost` units: all of them or none.
    #[inline]
    pub fn check_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
        self.core.check(key, cost, self.core.dispatch.now())
    }

    /// As [`check_n`](LeaseLimiter::check_n), at a time that the caller read from [`clock`](LeaseBuilder::clock).
    #[inline]
    pub fn check_at<K: Key + ?Sized>(&self, key: &K, cost: u64, now: Timestamp) -> Answer {
        self.core.check(key, cost, now)
    }

    /// Checks one unit of a key: by what is held, or else by the server. What most servers should use.
    ///
    /// The first check of a key waits for a round trip; later ones seldom do. Calls that miss units of one key at the same time share
    /// one question. If a future is dropped, before or after there is an answer, what the server granted it is there for others; but for a
    /// cost that is [too large to be held](LeaseLimiter#large-requests), which is lost.
    pub async fn check_async<K: Key + ?Sized>(&self, key: &K) -> Answer {
        self.check_n_async(key, 1).await
    }

    /// As [`check_async`](LeaseLimiter::check_async), of `cost` units: all of them or none.
    pub async fn check_n_async<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
        let bytes;
        let key = match key.number() {
            Some(number) => KeyRef::Number(number),
            None => {
                bytes = key.bytes();
                KeyRef::Bytes(&bytes)
            }
        };
        match self.core.check_now(key, cost) {
            Ok(answer) => answer,
            Err(rounds) => self.core.check_by_asking(key, cost, rounds).await,
        }
    }

    /// The same for a thread, which drives what has to wait.
    pub(super) fn check_wait<K: Key + ?Sized>(&self, key: &K, cost: u64, thread: &RuntimeThread) -> Answer {
        KeyRef::with(key, |key| {
            let asked = |rounds| thread.block_on(self.core.check_by_asking(key, cost, rounds));
            self.core.check_now(key, cost).unwrap_or_else(asked)
        })
    }

    /// How things stand in this process, without charging: what it holds of a key, and when it is worth while to come back if
    /// that is too little. The server may have more.
    #[must_use]
    pub fn peek<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        KeyRef::with(key, |key| self.core.book.peek(key, cost, self.core.dispatch.now_ns()))
    }

    /// Takes back the units of an answer, for checks of this process to spend until they would have expired. Returns how
    /// many; 0 if they have expired, or if the server could not be asked for them. Once for each answer.
    pub fn refund<K: Key + ?Sized>(&self, key: &K, answer: &Answer) -> u64 {
        let taken = KeyRef::with(key, |name| self.core.give(name, answer));
        if taken > 0 {
            self.core.dispatch.bells.of(&key.bytes()).notify_waiters();
        }
        taken
    }

    /// What became of units so far. O(keys).
    #[must_use]
    pub fn stats(&self) -> LeaseStats {
        self.core.book.stats(self.core.dispatch.now_ns())
    }

    /// How the server fares.
    #[must_use]
    pub fn health(&self) -> Health {
        self.core.dispatch.guard.health()
    }

    /// Stops fetching, and gives back to the server what is held: units that have been paid for meanwhile are not taken back, nor
    /// are those that may have been charged to a window that is over. Checks after this find nothing held.
    pub async fn close(self) {
        self.core.stop();
        for call in self.core.returns() {
            match self.core.dispatch.ask(call).await {
                Ok(reply) => self.core.book.counters.returned.add(reply.granted),
                // What is not given back expires.
                Err(_) => break,
            }
        }
    }
}
