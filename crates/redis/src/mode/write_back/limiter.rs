//! The write-back limiter.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::internals::sync::Ordering;
use tollgate::{Clock, DefaultClock, IntoClock, SharedDecision};
use tollgate_protocol::{Error, ErrorKind, Key, Reply};

use super::basis::{Basis, WriteBackCheck};
use super::book::Post;
use super::core::WriteBackCore;
use super::options::WriteBackBuilder;
use super::regions::{RegionHealth, Regions};
use super::stats::WriteBackStats;
use crate::client::{BuildError, Connected, OnDrop, Tasks};
use crate::guard::Health;
use crate::mode::background::StopOnDrop;

/// The number of times that a call waits for an answer about its key, before it uses the decision that it has.
const ROUNDS: usize = 4;
/// The number of rounds of posts without new data after which a flush ends.
const FLUSH_ROUNDS: usize = 3;

/// A limiter that decides in this process, and later posts the admitted units to the server. [`LimiterBuilder::write_back`]
/// creates its builder.
///
/// A check is one compare-exchange, and never waits. In each [`interval`](WriteBackBuilder::interval) a task posts the
/// admitted units of each key, and learns the total of all processes. New keys, and keys whose allowance is spent, are
/// posted immediately. The server therefore handles one call for each used key, process and interval, whatever the
/// number of requests. In return, the limiter **admits more than the limit**, by a bounded amount. If a limit must
/// never be exceeded, use leases or the atomic mode.
///
/// All clones are the same limiter. The task ends when the last clone is dropped. It then posts once more, if the
/// runtime still runs; [`close`](Self::close) waits for this last post.
///
/// # What is guaranteed
/// The symbols: `N` processes share a limit `L` (for GCRA: a burst of `B` and a rate of `r` a second). `T` is the
/// interval, `d` a round trip, and `c` the largest cost of a request.
///
/// - **The cap.** An answer says that `R` units are left. Until the next answer, the process admits at most
///   `max(c, share · R)` units, and asks again as soon as they are spent. `share = (own + L/N) / (used + L)`, where
///   `used` is the number of units that the shared state counts, and `own` is this process's part of them. The share
///   starts at 1/N and later follows the process's part of the traffic. For a new key or window, the process admits
///   `max(1, L/N)` units before the first answer.
/// - **Over-admission in a window** is at most `2 ln 2 · L + c · N`, about `1.39 · L + c · N`, for any traffic and any
///   number of requests. *Proof sketch.* After an answer with `R = 0`, a process gets no more units. So the excess is
///   at most the units that each process got from its last answer before the limit was reached. Order those answers by
///   time. An answer that came when `u` units were counted allowed at most `(own + L/N)(L − u)/(u + L)` units, or `c`.
///   The `own` units of different processes are different units of those `u`. So the sum over the processes is at most
///   `∫ (L − u)/(u + L) du` from 0 to `L`, which is `(2 ln 2 − 1) L`, and the parts `L/N` add at most `L`. Without the
///   cap, the bound would be `(N − 1) · L`.
/// - **A process that restarts** knows nothing, and is one more process of the window. For each key that it is asked for,
///   also an exhausted one, it admits at most `max(1, L/N)` units (GCRA: `max(1, B/N)`) before its first answer, and then
///   none. So `k` restarts in a window add at most `k · max(1, L/N)`. Units that a process admitted and had not posted when
///   it was killed are lost; those of the time `T`.
/// - **At a request rate `λ`**, over-admission is also at most about `λ · (T + d)`. Admitted units are posted within
///   this time, and a process that was idle posts immediately when it is used again. This is the smaller bound for long
///   windows. Example: for a limit of 1,000 a minute, ten processes and 17 requests a second, it is 17 units, or 1.7 %.
/// - **With GCRA**, all processes together admit at most `B + r · t` in an interval of length `t`, plus
///   `2 ln 2 · B + c · N + r · (T + d)`. The surplus becomes debt: units posted beyond the limit are paid before
///   anything more is admitted, so the rate holds in the long run. Because posts come late, a key that was idle may be
///   charged up to `r · T` more than was due, and never less.
/// - **No unit is counted twice.** A post contains this process's total for one window. A lost answer, a repeated post
///   and a late post therefore change nothing. Units that cannot be posted are kept, and sent with the next post, until
///   their window is over. Units are never charged to another window. A sliding window still accepts posts for its
///   previous window. Dropped units are [counted](WriteBackStats::evicted_pending).
/// - **While the server is unavailable**, a process spends the rest of its allowance, and `L/N` in each new window;
///   with GCRA, 1/N of the rate. With [`OnFailure::Local`](crate::OnFailure::Local), a partition of `P`
///   processes that lasts for a time `t` adds at most `P · max(1, L/N)` to the window in which it begins, and with GCRA
///   at most `P/N · (B + r · t)`. If errors come and go, each window gets this addition. If all processes are affected,
///   it is a second limit in every window. With `Open` and `Closed`, that setting decides every request beyond the
///   allowance; with `Closed`, new windows get no units. A lost call has the effect of a partition of its process until
///   the next call is answered. The bounds above therefore assume that calls arrive.
/// - **Failures are counted for each key.** The policy decides only the keys whose last call failed. If Redis holds
///   other data under one key, or one node of a Cluster is down, other keys are not affected. A failed key asks again
///   after 100 ms, when it is checked. While no call is answered, one key at a time asks, so that a server that is down
///   receives few calls.
/// - **Windows** follow the server's clock. Each answer bounds the difference between the clocks. Near the end of a
///   window, this difference leaves open which window a request belongs to. Then a process spends only units that the
///   allowances of both windows contain. Before the first answer, the limiter assumes that the clocks agree.
/// - **Clock steps.** If the local clock steps forward and back, the process gets no new units for a window to which it
///   returns. In the meantime it got at most `L/N` for each window that had not begun. If the server's clock steps, its
///   windows move. In the window of the step, processes that do not know of the step spend units that they hold for the
///   previous window. That window admits at most twice the bound.
/// - **A fork** copies the numbers by which the shared state distinguishes posters. The shared state then takes the
///   posts of parent and child for a key as totals of one poster, and counts only the larger total. Build the limiter
///   after the fork.
///
/// The price is early denials: when the allowance is spent, [`check`](Self::check) denies requests until the answer
/// arrives. [`check_async`](Self::check_async) waits for the answer.
///
/// # Several regions
/// With [`regions`](WriteBackBuilder::regions), each region has its own server, and the regions exchange their totals.
/// `R` regions share the limit `L`. `E` is the exchange interval, `D` the time of a message between regions, and `T` the
/// interval of posts with a round trip to the own server. A region's knowledge of another region is at most
/// `A = 1.1 · E + D + 2 · T` old, plus `1.1 · E` for each exchange in a row that is lost. `λⱼ` is the rate that region `j`
/// admits, `λ` the rate of all, and `q = max(1, L/64)` the growth that is worth an exchange. In a window, all regions
/// together admit at most `L` plus:
///
/// | [policy](crate::RegionPolicy) | while messages arrive | in the window in which a partition begins | in each later window of the partition |
/// |---|---|---|---|
/// | `Share` (default) | `Σ λⱼ · (A + T) + 2 · λ · T + R · q`, and never more than `2 · L + 2 · R + W` | the units that were not known to all regions, and `W` | `W` |
/// | `AsLastKnown` | `Σ λⱼ · (A + T) + 2 · λ · T + R · q`, and never more than `(R − 1) · L + W` | `(R − 1)` times the units that were left, and `W` | `(R − 1) · L + W` |
///
/// The sum is over all regions except the slowest. `W` is the bound of the section above, `2 ln 2 · L + c · N` for each
/// region; it is 0 if each region has one process. In a partition, a region with `Share` admits its share of the limit:
/// other regions cannot use the rest. For a sliding window, the second column also applies to the window after the one
/// in which the partition begins.
///
/// *Why `W` is not in the first bound.* A process spends from an answer that is at most `T` old. The server that gave it
/// knew all units except those that other regions admitted in `A`, and fewer than `q` of each region; and units were left.
/// So the excess is at most what was unknown then, what all admit until the next answer, and what each process that was
/// idle admits, once, until its first answer. In the simulation, three regions of four processes with `E` = 1 s and `T` = 0.2 s
/// exceed 3,000 a minute by about 2 %. This bound is 14 %, and with `W` it would be 430 %.
///
/// - **Shares.** A region admits its part of the units that were left at its last renewal. It renews its share only after
///   every other region has answered an exchange that began after the last renewal. News makes a share smaller at once.
/// - **A lost, repeated or late message** changes nothing: a total belongs to a window and only grows.
/// - **Clocks.** Each region counts by its server's clock. A total belongs to the window that it names, so these bounds hold
///   for windows with the same index, if the clocks differ by less than a window. Counted by one clock, a window also
///   contains units that other regions count in the window before or after. These are at most the units that each region
///   `j` admits in `σⱼ`, the difference of its clock: `Σ λⱼ · σⱼ` more. If the clocks differ by a window or more, regions
///   ignore each other's totals, and all together admit up to `R · L`.
/// - **A server that restarts without data** gets its total back from its processes and from the other regions. Until
///   then, the region may admit one share again. Only the totals of processes that never post again can stay uncounted.
/// - **A region is cut off** if it has answered no process of this region, although calls were sent over three exchange
///   intervals. All processes of this region report the same, at most two exchange intervals later; see
///   [`health_by_region`](Self::health_by_region). After a partition heals, the totals of the keys in use agree within `1.1 · E + 2 · D + 2 · T`.
/// - **A server that is down** affects its own region, as in the section above, with the region's part of the limit.
///
/// What never exceeds the limit is an escrow, in which regions pass rights to each other (Balegas et al., "Bounded
/// Counters", 2015); this crate has none. Redis Active-Active databases are not supported: they resolve conflicts by
/// time, so two regions overwrite each other.
///
/// # More keys than the table holds
/// When the table holds [`max_keys`](crate::LimiterBuilder::max_keys) keys, a new key is not stored. For such a
/// key, `check_async` asks the server to decide the request, and `check` denies it. Idle keys are removed, and removed
/// earlier while more than half of the table is used.
///
/// # Examples
/// ```
/// use tollgate_redis::{InProcess, Limit};
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
/// [`LimiterBuilder::write_back`]: crate::LimiterBuilder::write_back
pub struct WriteBackLimiter<C: Clock + Send + Sync + 'static = DefaultClock> {
    core: Arc<WriteBackCore<C>>,
    _owner: Arc<StopOnDrop>,
}

/// A post in flight. If it is dropped with its runtime before its answer arrives, it has failed.
struct PostInFlight<C: Clock> {
    core: Arc<WriteBackCore<C>>,
    post: Option<Post>,
}

impl<C: Clock> PostInFlight<C> {
    fn land(&mut self, reply: Result<Reply, Error>) {
        let Some(post) = self.post.take() else { return };
        let WriteBackCore { book, dispatch, background, .. } = &*self.core;
        match reply {
            Ok(reply) => book.posted(&post, &reply, dispatch.now_ns()),
            Err(error) => book.failed(&post, error.kind(), dispatch.now_ns()),
        }
        background.notifiers.of(post.key()).notify_waiters();
    }
}

impl<C: Clock> Drop for PostInFlight<C> {
    fn drop(&mut self) {
        if self.post.is_some() {
            self.land(Err(Error::new(
                ErrorKind::Timeout,
                "the runtime shut down before the call was answered",
            )));
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

impl<T, C> WriteBackBuilder<T, C>
where
    T: Connected<Transport: Clone>,
    C: IntoClock<Clock: Send + Sync + 'static>,
{
    /// Builds the limiter. Its task runs on the thread of a [`Blocking`](crate::Blocking) client, and otherwise
    /// on the current tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the thread cannot start or the caller is not in a tokio runtime, or if the server's script cannot
    /// count a quota exactly.
    pub fn build(self) -> Result<T::Form<WriteBackLimiter<C::Clock>>, BuildError> {
        let Self { builder, options, clock } = self;
        let settings = builder.settings();
        let (client, thread) = builder.client.split();
        let tasks = Tasks::on(thread.as_ref())?;
        let core = WriteBackCore::new(client, settings, options.split(), clock.into_clock(), tasks)?;
        let core = Arc::new(core);
        // The task also ends when its runtime shuts down.
        let own = Arc::clone(&core);
        let ends = OnDrop::new(move || own.ended.notify_one());
        core.background.tasks.runtime.spawn(run(Arc::clone(&core), ends));
        Ok(T::form(WriteBackLimiter { _owner: core.background.owner(), core }, thread))
    }
}

/// Posts due keys until the limiter stops, and then posts once more.
async fn run<C: Clock + Send + Sync + 'static>(core: Arc<WriteBackCore<C>>, _ends: OnDrop<impl FnOnce()>) {
    while !core.background.signal.is_stopped() {
        for flight in core.due() {
            core.background.tasks.runtime.spawn(flight.carry());
        }
        core.background.signal.wait(core.rest()).await;
    }
    core.flush().await;
    // Ordering: Release, and Acquire in `close`: a thread that sees the flag sees the result of the posts.
    core.flushed.store(1, Ordering::Release);
}

impl<C: Clock + Send + Sync + 'static> PostInFlight<C> {
    async fn carry(mut self) {
        let Some(post) = &self.post else { return };
        let reply = self.core.dispatch.ask(&post.call).await;
        self.land(reply);
    }
}

impl<C: Clock + Send + Sync + 'static> WriteBackCore<C> {
    fn due(self: &Arc<Self>) -> Vec<PostInFlight<C>> {
        // Wraps all posts before it sends one: a post whose result is not reported would never be sent again.
        let posts = self.book.due(self.dispatch.now_ns()).into_iter();
        posts.map(|post| PostInFlight { core: Arc::clone(self), post: Some(post) }).collect()
    }

    async fn flush(self: &Arc<Self>) -> u64 {
        let mut last = u64::MAX;
        let mut rounds = 0;
        let mut since = tokio::time::Instant::now();
        // The loop ends if nothing changes for too long, because the runtime that carries the calls may have stopped.
        while rounds < FLUSH_ROUNDS && since.elapsed() <= self.patience() {
            self.book.hurry();
            let mut posts = JoinSet::new();
            for flight in self.due() {
                posts.spawn(flight.carry());
            }
            if posts.is_empty() && self.book.in_flight() > 0 {
                // The task carries these calls.
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

    /// Calls `check` until it no longer needs an answer about the key, or until the time-out. Returns the last result,
    /// and whether it came in time.
    async fn until_answered(
        &self,
        key: &[u8],
        mut check: impl FnMut() -> WriteBackCheck,
    ) -> (WriteBackCheck, bool) {
        let began = tokio::time::Instant::now();
        for _ in 0..ROUNDS {
            let mut told = pin!(self.background.notifiers.of(key).notified());
            // From here on, no notification is missed.
            told.as_mut().enable();
            let checked = check();
            if checked.basis != Basis::Asked {
                return (checked, true);
            }
            // The remaining time is used, because the sum of a start time and a long time-out may overflow.
            let left = self.timeout.saturating_sub(began.elapsed());
            if tokio::time::timeout(left, told).await.is_err() {
                break;
            }
        }
        (check(), false)
    }

    async fn check_by_asking(&self, key: &[u8], cost: u64) -> SharedDecision {
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
    /// Checks one unit of a key in this process, and charges it if it is admitted. Never waits.
    pub fn check<K: Key + ?Sized>(&self, key: &K) -> SharedDecision {
        self.core.check(key, 1)
    }

    /// Checks `cost` units of a key in this process, and charges all of them or none. Never waits.
    pub fn check_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> SharedDecision {
        self.core.check(key, cost)
    }

    /// Like [`check`](Self::check), but waits for the server, at most for the time-out, if this process has spent its
    /// allowance.
    pub async fn check_async<K: Key + ?Sized>(&self, key: &K) -> SharedDecision {
        self.check_n_async(key, 1).await
    }

    /// Like [`check_n`](Self::check_n), but waits for the server, at most for the time-out, if this process has spent
    /// its allowance.
    ///
    /// If the future is dropped before it completes, it has charged nothing, except in the moment before it completes.
    pub async fn check_n_async<K: Key + ?Sized>(&self, key: &K, cost: u64) -> SharedDecision {
        let key = key.bytes();
        match self.core.check_now(&key, cost) {
            Some(answer) => answer,
            None => self.core.check_by_asking(&key, cost).await,
        }
    }

    /// Posts all units that are not yet posted. Returns the number of units that could not be posted.
    pub async fn flush(&self) -> u64 {
        self.core.flush().await
    }

    /// Posts all units that are not yet posted, and ends the task for all clones. Later checks use what this process
    /// has, and nothing more is posted. Returns the number of units that could not be posted.
    pub async fn close(self) -> u64 {
        let core = &self.core;
        core.background.signal.stop();
        // The loop does not wait for a task that makes no progress because its runtime no longer runs.
        let mut seen = self.stats();
        while tokio::time::timeout(core.patience(), core.ended.notified()).await.is_err() {
            let stats = self.stats();
            if (stats.pending, stats.posts) == (seen.pending, seen.posts) {
                break;
            }
            seen = stats;
        }
        // Wakes other callers of `close`.
        core.ended.notify_one();
        // Ordering: Acquire; see `run`.
        if core.flushed.load(Ordering::Acquire) == 0 {
            core.flush().await;
        }
        self.stats().pending
    }

    /// Returns the counts since the limiter was built, and the units that are not yet posted. O(keys).
    #[must_use]
    pub fn stats(&self) -> WriteBackStats {
        self.core.book.counted(self.core.dispatch.now_ns())
    }

    /// Returns what this region knows of the other regions, in the order in which the builder received them. Empty if
    /// there is only one region.
    #[must_use]
    pub fn health_by_region(&self) -> Vec<(Arc<str>, RegionHealth)> {
        self.core.regions.as_ref().map(Regions::health).unwrap_or_default()
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
}

#[cfg(feature = "rules")]
impl<C: Clock + Send + Sync + 'static> WriteBackLimiter<C> {
    /// Returns what [`check_n`](Self::check_n) would decide now, and queues the call that it would queue. Charges
    /// nothing. Returns `None` if only the server can decide.
    pub(crate) fn peek_here(&self, key: &str, cost: u64) -> Option<SharedDecision> {
        let core = &self.core;
        core.peeked(core.book.peek(key.as_bytes(), cost, core.dispatch.now_ns()))
    }

    /// Like `peek_here`, for [`check_n_async`](Self::check_n_async).
    pub(crate) async fn peek_async(&self, key: &str, cost: u64) -> Option<SharedDecision> {
        let (core, key) = (&self.core, key.as_bytes());
        let peeked = core.until_answered(key, || core.book.peek(key, cost, core.dispatch.now_ns())).await;
        core.peeked(peeked.0)
    }

    /// Decides with what this process holds, if that is enough.
    pub(crate) fn check_held(&self, key: &str, cost: u64) -> Option<SharedDecision> {
        self.core.check_now(key.as_bytes(), cost)
    }

    /// Spends up to `cost` of the units that this process may admit without the server. Returns the number of units spent.
    pub(crate) fn spend_held(&self, key: &str, cost: u64) -> u64 {
        let held = self.peek_here(key, 1).map_or(0, |peeked| peeked.decision().remaining()).min(cost);
        if held > 0 && self.check_n(key, held).is_allowed() { held } else { 0 }
    }

    /// Decides a request of a caller that cannot wait for the server, as if the server were unavailable.
    pub(crate) fn decide_without_server(&self, key: &str, cost: u64) -> SharedDecision {
        self.core.dispatch.decide_without_server(key.as_bytes(), cost)
    }

    /// See [`WriteBackBook::succeed`](super::book::WriteBackBook::succeed).
    pub(crate) fn succeed(&self) {
        self.core.book.succeed(self.core.dispatch.now_ns());
    }
}
