//! The lease limiter.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout};
use tollgate::{Clock, Decision, DefaultClock, IntoClock, SharedDecision, Timestamp};
use tollgate_protocol::Key;

use super::book::{BlockRequest, LeaseCheck};
use super::core::{BlockOutcome, LeaseCore};
use super::options::LeaseBuilder;
use super::stats::LeaseStats;
use crate::client::{BuildError, Connected, OnDrop, Tasks};
use crate::guard::Health;
use crate::mode::LimiterAt;
use crate::mode::background::StopOnDrop;
use crate::mode::name::KeyRef;

/// A limiter that fetches units from the server in blocks, and spends them in this process. [`LimiterBuilder::leases`] creates
/// its builder.
///
/// Most checks cost as much as a check of a local limiter: no round trip and no lock. The server charges the units of a
/// key in advance, and the units live for a [`life`](LeaseBuilder::life). When few units are left, a task fetches the
/// next block. A block is about the amount that the key uses in a quarter of a life. For a rarely used key, the server
/// charges only the units that a request asks for.
///
/// All clones are the same limiter. The task ends when the last clone is dropped. To give held units back first, call
/// [`LeaseLimiter::close`].
///
/// # What is guaranteed
/// `N` is the number of processes, `L` the limit (for GCRA: a burst of `B` and a rate of `r` a second), and `l` the
/// life.
///
/// - **Every admitted unit was charged first.** With GCRA, all processes together admit at most `B + r · (t + l)` in
///   any interval of length `t`. With windows, they never admit more than the limit in a window: a unit lives no longer
///   than the rest of its window at the time of the charge, counted from before the call was sent. The only deviation
///   is the difference in clock speed during one life. If a clock steps back, add the step, at most one life.
/// - **The process loses units whose answer is lost.** It never spends units that the server may have charged without
///   an answer. It also never spends units whose answer arrives after their life.
/// - **Stranded units are bounded.** For each key a process holds at most [`max_block`](LeaseBuilder::max_block) units,
///   at most twice its last block, and about the amount that the key used in a quarter of a life. The server grants it
///   at most one part in `2 · processes` of the remaining units. When the key falls idle, the held units expire
///   unspent: at most `N · min(max_block, use of a process in l/4 and two round trips)` units for each key.
/// - **Two cases strand more.** While 128 or more keys are queued for a call, blocks last for a whole life and grow up
///   to 16 times at once. The bound then uses the use in `l`, not in `l/4`. A process that has just used up several
///   blocks quickly in a row is granted larger parts, finally all remaining units. When a limit is nearly used up, one
///   process may therefore strand up to twice its last block. Under steady use almost nothing is stranded, because a
///   block is used up in a quarter of its life.
/// - **The end of a quota is used up.** Blocks shrink with the remaining units, down to single units. The last unit
///   goes to the first process that asks for it.
/// - **A denial is remembered.** After the server denies units, the process does not ask again until the units should
///   be available. This pause is at least the smaller of a 64th of a life and an eighth of the time that refills the
///   limit. It is also at least a round trip, and a random part of up to an eighth is added. A flood on a used-up key
///   therefore does not cause a call for each check. [`SharedDecision::retry_after`] returns the rest of the pause.
/// - **While the server is unavailable**, checks first spend the held units. Then
///   [`OnFailure`](crate::OnFailure) decides.
///
/// # Large requests
/// With the default life, a key holds at most about a million units. With a shorter life it holds fewer. The maximum is
/// one less than the largest power of two that is not above a 512th of the life in nanoseconds: 1,048,575 with one
/// second, 1,023 with 1 ms.
///
/// For a cost above this maximum, [`check_n_async`](LeaseLimiter::check_n_async) asks the server each time for exactly
/// the cost, and spends no held units. Such an answer cannot be refunded here. [`check_n`](LeaseLimiter::check_n)
/// denies such a cost and fetches nothing, because it could never spend the units.
///
/// # How long a call waits
/// A call waits for at most two [time-outs](crate::LimiterBuilder::timeout). After that, the limiter decides as
/// if the server had not answered.
///
/// The call to the server itself may take up to a quarter of a life, if that is longer than the time-out. It continues
/// in a task, and the units that it brings are available to other checks. Only after this longer time does it count as
/// failed, also for the breaker. At most 256 calls to the server are in flight at a time; further calls wait in this
/// process.
///
/// # More keys than the table holds
/// When the table holds [`max_keys`](crate::LimiterBuilder::max_keys) keys, a new key is not stored. For such a
/// key, [`check_async`](LeaseLimiter::check_async) asks the server for exactly the cost. [`check`](LeaseLimiter::check)
/// cannot wait, and denies the request. A key that holds nothing and was not used for four lives is removed.
///
/// # Examples
/// ```
/// use tollgate_redis::{InProcess, Limit};
/// use tollgate::Quota;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = InProcess::default(); // or a `Client`
/// let limiter = server.limiter("api", Limit::gcra(Quota::per_second(100))).leases().build()?;
/// // Asks the server if no units are held; most calls decide here.
/// let answer = limiter.check_async("203.0.113.7").await;
/// assert!(answer.is_allowed());
/// limiter.close().await;
/// # Ok(())
/// # }
/// ```
///
/// [`LimiterBuilder::leases`]: crate::LimiterBuilder::leases
pub struct LeaseLimiter<C = DefaultClock> {
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

impl<T: Connected, C: IntoClock<Clock: Send + Sync + 'static>> LeaseBuilder<T, C> {
    /// Builds the limiter. Its task runs on the thread of a [`Blocking`](crate::Blocking) client, and otherwise
    /// on the current tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the thread cannot start or the caller is not in a tokio runtime, or if the server's script cannot
    /// count a quota exactly.
    pub fn build(self) -> Result<T::Form<LeaseLimiter<C::Clock>>, BuildError> {
        let Self { builder, options, clock } = self;
        let settings = builder.settings();
        let (client, thread) = builder.client.split();
        let tasks = Tasks::on(thread.as_ref())?;
        let core = Arc::new(LeaseCore::new(client, settings, options, clock.into_clock(), tasks)?);
        // When the task ends, by itself or with its runtime, nothing processes the queue any more.
        let own = Arc::clone(&core);
        let stops = OnDrop::new(move || own.stop());
        core.background.tasks.runtime.spawn(fetch(Arc::clone(&core), stops));
        Ok(T::form(LeaseLimiter { _owner: core.background.owner(), core }, thread))
    }
}

/// Fetches due keys until the limiter stops.
async fn fetch<C: Clock + Send + Sync + 'static>(core: Arc<LeaseCore<C>>, _stops: OnDrop<impl FnOnce()>) {
    let dispatch = &core.dispatch;
    let mut swept_ns = dispatch.now_ns();
    while !core.background.signal.is_stopped() {
        core.background.signal.wait(Duration::from_nanos(core.book.terms.life_ns())).await;
        loop {
            let now_ns = dispatch.now_ns();
            if now_ns.abs_diff(swept_ns) >= core.book.terms.life_ns() {
                core.book.sweep(now_ns);
                swept_ns = now_ns;
            }
            if core.book.queue.len() == 0 {
                break;
            }
            // With one server, the task waits in the same line as the calls of callers. With several, the call waits:
            // the task must not wait for a server that hangs while calls to the others are due.
            let permit = if core.under_way.len() == 1 { core.permit(0).await } else { None };
            if let Some(due) = core.book.due(1, dispatch.now_ns()).pop() {
                drop(core.request(due, permit));
            }
        }
    }
}

/// A call in flight in a task, and then its answer on the way to the caller. If no caller reads the answer, its units
/// become available to other checks. On every path the key is released before its waiters are notified.
struct BlockInFlight<C: Clock> {
    asked: Option<BlockOutcome>,
    due: BlockRequest,
    _notify: NotifyOnDrop,
    core: Arc<LeaseCore<C>>,
}

struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

impl<C: Clock> Drop for BlockInFlight<C> {
    fn drop(&mut self) {
        if let Some(BlockOutcome::Answered(answer)) = self.asked.take() {
            let (core, due) = (&self.core, &self.due);
            let units = answer.decision().charged();
            core.book.refund_to(&due.holding, units, answer.mark(), core.dispatch.now_ns());
        }
    }
}

impl<C: Clock + Send + Sync + 'static> LeaseCore<C> {
    /// Waits until fewer calls to a server are in flight. Returns `None` if the semaphore is closed, which never happens.
    async fn permit(&self, server: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.under_way[server]).acquire_owned().await.ok()
    }

    /// Asks the server in a separate task. The task continues if its caller stops waiting, and the units that it brings
    /// are available to other checks. Without a permit, the task first waits until fewer calls are in flight.
    fn request(
        self: &Arc<Self>,
        due: BlockRequest,
        permit: Option<OwnedSemaphorePermit>,
    ) -> oneshot::Receiver<BlockInFlight<C>> {
        let (tell, told) = oneshot::channel();
        let notifier = Arc::clone(self.background.notifiers.of(&due.key));
        let mut flight = BlockInFlight {
            asked: None,
            due,
            _notify: NotifyOnDrop(Arc::clone(&notifier)),
            core: Arc::clone(self),
        };
        self.background.tasks.runtime.spawn(async move {
            let core = Arc::clone(&flight.core);
            let _permit = match permit {
                Some(permit) => Some(permit),
                None => core.permit(core.dispatch.guard.places().server(&flight.due.key)).await,
            };
            // The wait for a permit took time, and a unit's life starts when the call is sent.
            flight.due.asked_ns = core.dispatch.now_ns();
            let reply = core.dispatch.ask(&core.dispatch.call(&flight.due.key, flight.due.ask(), None)).await;
            flight.asked = Some(core.land(&flight.due, reply));
            // If no receiver reads the answer, `BlockInFlight::drop` gives the units back: in this task, or where the
            // receiver is dropped.
            let _ = tell.send(flight);
            notifier.notify_waiters();
        });
        told
    }

    /// Asks for units to hold, up to `rounds` times, and then for the cost alone.
    async fn check_by_asking(self: &Arc<Self>, key: KeyRef<'_>, cost: u64, rounds: usize) -> SharedDecision {
        // Without a runtime in this thread, the timer of the limiter's runtime is used.
        let timed = {
            let _entered = Handle::try_current().is_err().then(|| self.background.tasks.runtime.enter());
            timeout(self.timeout.saturating_mul(2), self.ask(key, cost, rounds))
        };
        match timed.await {
            Ok(answer) => answer,
            Err(_) => self.dispatch.guard.fallback(&key.bytes(), cost, self.dispatch.now()),
        }
    }

    async fn ask(self: &Arc<Self>, key: KeyRef<'_>, cost: u64, rounds: usize) -> SharedDecision {
        let (began, bytes) = (Instant::now(), key.bytes());
        let notifier = self.background.notifiers.of(&bytes);
        let mut asked = 0;
        while asked < rounds {
            let mut notified = pin!(notifier.notified());
            // From here on, no notification is missed. The check below sees every answer that arrived before.
            notified.as_mut().enable();
            let now = self.dispatch.now();
            let now_ns = now.as_nanos();
            let holding = match self.decided(self.book.check(key, cost, now_ns), key, cost, now) {
                Ok(answer) => return answer,
                Err(LeaseCheck::Missing(_, holding)) if self.book.keeps(cost) => holding,
                Err(_) => break,
            };
            if let Some(due) = self.book.claim(key, &holding, cost, now_ns) {
                asked += 1;
                match self.request(due, None).await.ok().and_then(|mut told| told.asked.take()) {
                    Some(BlockOutcome::Answered(answer)) => return answer,
                    Some(BlockOutcome::Again) => {}
                    // `None` means that the runtime is shutting down.
                    Some(BlockOutcome::Failed) | None => {
                        return self.dispatch.guard.fallback(&bytes, cost, self.dispatch.now());
                    }
                }
            } else {
                let waiting = self.book.wait(holding, cost, now_ns);
                let most = self.timeout.saturating_sub(began.elapsed());
                if most.is_zero() {
                    break;
                }
                // Another caller may have spent the units of the answer, or the notification was for another key. The loop
                // then tries again.
                if !waiting.is_over() && timeout(most, notified).await.is_err() {
                    break;
                }
            }
        }
        // The table has no room for the key, the key cannot hold the cost, other callers took the units in every round,
        // or the time-out for waiting passed.
        let _permit = self.under_way[self.dispatch.guard.places().server(&bytes)].acquire().await;
        self.dispatch.check(&bytes, cost).await
    }
}

impl<C: Clock + Send + Sync + 'static> LeaseLimiter<C> {
    /// Checks one unit of a key against the held units, and charges it if it is admitted. Never waits.
    ///
    /// If the process holds too few units, the answer is a denial with a short [`retry_after`](SharedDecision::retry_after),
    /// and a task fetches the missing units. This is the case for the first check of each key. If a request can wait
    /// for a round trip, use [`check_async`](LeaseLimiter::check_async).
    ///
    /// # Complexity
    /// O(1): a look-up, a load, a compare-exchange, and a count. Lock-free, except for the check that finds that few
    /// units are left.
    #[inline]
    pub fn check<K: Key + ?Sized>(&self, key: &K) -> SharedDecision {
        self.core.check(key, 1, self.core.dispatch.now())
    }

    /// Like [`check`](LeaseLimiter::check), for `cost` units: charges all of them or none.
    #[inline]
    pub fn check_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> SharedDecision {
        self.core.check(key, cost, self.core.dispatch.now())
    }

    /// Returns this limiter at a time that the caller read from [`clock`](LeaseBuilder::clock).
    pub const fn at(&self, now: Timestamp) -> LimiterAt<'_, Self> {
        LimiterAt { limiter: self, now }
    }

    /// Checks one unit of a key: with held units if there are any, otherwise at the server. Prefer this method where a
    /// request can wait for a round trip.
    ///
    /// The first check of a key waits for a round trip; later checks rarely wait. Concurrent calls that lack units of
    /// the same key share one call to the server. If the future is dropped, before or after the answer arrives, the
    /// granted units are available to other checks. The exception is a cost that is [too large to be
    /// held](LeaseLimiter#large-requests): its units are lost.
    pub async fn check_async<K: Key + ?Sized>(&self, key: &K) -> SharedDecision {
        self.check_n_async(key, 1).await
    }

    /// Like [`check_async`](LeaseLimiter::check_async), for `cost` units: charges all of them or none.
    pub async fn check_n_async<K: Key + ?Sized>(&self, key: &K, cost: u64) -> SharedDecision {
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

    /// Returns the state of a key in this process, without a charge: the held units, and when to retry if they are too
    /// few. The server may have more units.
    #[must_use]
    pub fn peek<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        KeyRef::with(key, |key| self.core.book.peek(key, cost, self.core.dispatch.now_ns()))
    }

    /// Takes back the units of an answer. Other checks of this process can spend them until their life ends.
    ///
    /// Returns the number of units taken back. Returns 0 if the units have expired, if
    /// [`OnFailure`](crate::OnFailure) decided as `Open` or `Closed`, or if the cost was [too large to be
    /// held](LeaseLimiter#large-requests). If this process's share admitted the request, the units return to the share.
    /// Call it at most once for each answer.
    pub fn refund<K: Key + ?Sized>(&self, key: &K, answer: &SharedDecision) -> u64 {
        let taken = KeyRef::with(key, |name| self.core.refund(name, answer));
        if taken > 0 {
            self.core.background.notifiers.of(&key.bytes()).notify_waiters();
        }
        taken
    }

    /// Returns the counts since the limiter was built. O(keys).
    #[must_use]
    pub fn stats(&self) -> LeaseStats {
        self.core.book.stats(self.core.dispatch.now_ns())
    }

    /// Returns the health of the server.
    #[must_use]
    pub fn health(&self) -> Health {
        self.core.dispatch.guard.health()
    }

    /// Returns the health of each server, if the client has [several](crate::Client::sharded). Otherwise
    /// returns an empty list.
    #[must_use]
    pub fn health_by_server(&self) -> Vec<(Arc<str>, Health)> {
        self.core.dispatch.guard.health_by_server()
    }

    /// Stops fetching, and gives held units back to the server. The server does not take back units that time has paid
    /// for since, or units that may belong to a window that is over. Later checks find no held units.
    pub async fn close(self) {
        self.core.stop();
        for call in self.core.returns() {
            match self.core.dispatch.ask(&call).await {
                Ok(reply) => self.core.book.counters.returned.add(reply.granted),
                // Units that are not given back expire.
                Err(_) => break,
            }
        }
    }
}

#[cfg(feature = "rules")]
impl<C: Clock + Send + Sync + 'static> LeaseLimiter<C> {
    /// Decides a request of a caller that cannot wait for the server, as if the server were unavailable.
    pub(crate) fn decide_without_server(&self, key: &str, cost: u64) -> SharedDecision {
        self.core.dispatch.decide_without_server(key.as_bytes(), cost)
    }

    /// Decides with what this process holds, if that is enough.
    pub(crate) fn check_held(&self, key: &str, cost: u64) -> Option<SharedDecision> {
        KeyRef::with(key, |key| self.core.check_now(key, cost).ok())
    }

    /// Spends up to `cost` of the units that this process holds. Returns the number of units spent.
    pub(crate) fn spend_held(&self, key: &str, cost: u64) -> u64 {
        let held = self.peek(key, 0).remaining().min(cost);
        if held > 0 && self.check_n(key, held).is_allowed() { held } else { 0 }
    }
}

impl<C: Clock + Send + Sync + 'static> LimiterAt<'_, LeaseLimiter<C>> {
    /// [`LeaseLimiter::check`] at this time.
    #[inline]
    pub fn check<K: Key + ?Sized>(self, key: &K) -> SharedDecision {
        self.check_n(key, 1)
    }

    /// [`LeaseLimiter::check_n`] at this time.
    #[inline]
    pub fn check_n<K: Key + ?Sized>(self, key: &K, cost: u64) -> SharedDecision {
        self.limiter.core.check(key, cost, self.now)
    }
}
