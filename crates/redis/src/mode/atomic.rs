//! The atomic mode: a script on the server decides each request.

use std::fmt;
use std::sync::Arc;
#[cfg(feature = "rules")]
use std::time::Duration;

#[cfg(feature = "rules")]
use tollgate::{Block, Limit};
use tollgate::{Class, DecidedBy, Decision, QuotaError, SharedDecision, StdClock, Timestamp};
use tollgate_protocol::{Error, Key, Plan, Question, Reply};

use super::dispatch::{AsksServer, Dispatch};
use crate::client::{Blocking, Connected, LimiterBuilder};
use crate::guard::{Health, Local, LocalVerb};
use crate::mode::LimiterAt;

/// A limiter that asks the server to decide every request, in one atomic step and one round trip.
///
/// It never admits more than its limits allow, however many processes share it, as long as the server keeps its data. A
/// replica that takes over may lack the last writes. All times are the server's. [`LimiterBuilder::atomic`] builds the
/// limiter. Its methods are async; a client for threads builds a [`Blocking`] one. All clones are the same limiter.
///
/// # If the server does not answer
///
/// [`LimiterBuilder::on_failure`] decides the request if the server does not answer in time ([`LimiterBuilder::timeout`]), or if the
/// breaker is open after failures ([`LimiterBuilder::breaker`]). [`SharedDecision::by`] then names what decided. If an answer was
/// lost, the server may have charged the request. The limiter never takes such a charge back.
///
/// # Cost
/// A request costs one round trip and one script of a few dozen steps. A Cluster spreads the keys over its nodes; each
/// key is on one node. A denial writes nothing, with one exception: if the server's clock stepped back, a state from
/// the future is moved back to the present.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_redis::{InProcess, Limit};
/// use tollgate::{ManualClock, Quota};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let clock = ManualClock::default();
/// let server = InProcess::new(clock.clone()); // or Client::open("redis://127.0.0.1")?
/// let limiter = server
///     .limiter("api", Limit::gcra(Quota::per_second(2)))
///     .and(Limit::fixed_window(Quota::per_day(1_000)))
///     .atomic()?;
/// assert!(limiter.check("203.0.113.7").await.is_allowed());
/// assert!(limiter.check("203.0.113.7").await.is_allowed());
/// let answer = limiter.check("203.0.113.7").await;
/// assert_eq!(answer.retry_after(), Some(Duration::from_millis(500)));
/// clock.advance(Duration::from_millis(500));
/// assert!(limiter.check("203.0.113.7").await.is_allowed());
/// # Ok(()) })
/// # }
/// ```
#[derive(Clone)]
pub struct AtomicLimiter {
    /// Its clock is for decisions without the server.
    dispatch: Arc<Dispatch<StdClock>>,
    /// The plan of checks and peeks: without the units that the class leaves to other requests.
    plan: Arc<Plan>,
    class: Class,
}

impl fmt::Debug for AtomicLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<_> = self.plan.limits().collect();
        f.debug_struct("AtomicLimiter").field("limits", &limits).finish_non_exhaustive()
    }
}

impl<T: Connected> LimiterBuilder<T> {
    /// Builds a limiter that asks the server to decide every request.
    ///
    /// # Errors
    /// Returns an error for the first limit that the server's script cannot count exactly. The error states the
    /// largest burst or limit that fits, or the periods that are possible. The script cannot count:
    ///
    /// - bursts that take more than 71 years to refill. Above 1,000 units a second, the bound can be lower: down
    ///   to 25 days at a million units a second.
    /// - windows that are not a whole number of microseconds, or are longer than 71 years.
    /// - limits of windows above 2^51.
    /// - sliding windows whose limit times period is 2^53 or more. The period is counted in the largest unit of
    ///   1, 10, 100, … microseconds that divides it.
    /// - sub-windows whose parts are not a whole number of microseconds, or whose limit is 2^48 or more.
    /// - a spacing of zero or above 71 years, and times of alignment that are not a whole number of microseconds.
    /// - blocks that are not a whole number of microseconds, or that take 71 years together with the burst. At rates above
    ///   1,000 units a second, the bound can be lower.
    /// - buckets with an adaptive start whose limit times period, in microseconds, is 2^53 or more.
    pub fn atomic(self) -> Result<T::Form<AtomicLimiter>, QuotaError> {
        let settings = self.settings();
        let (client, thread) = self.client.split();
        let dispatch = Arc::new(Dispatch::new(client, thread.clone(), &settings, StdClock::new())?);
        let plan = Arc::clone(&dispatch.plan);
        Ok(T::form(AtomicLimiter { dispatch, plan, class: Class::ALL }, thread))
    }
}

impl AtomicLimiter {
    /// Returns this limiter for the requests of a [`Class`]: it denies a request if more than the class's share of a limit
    /// would be in use afterwards. All classes share the counts of the keys, and so do the checks without a class.
    ///
    /// The figures of its answers are those of the class. While the server is unavailable, the class has its share of this
    /// process's share. [`charge_unchecked`](Self::charge_unchecked) and [`refund`](Self::refund) are those of the whole
    /// limit. A denial starts no [block](tollgate::Blocked), unless the class has the whole burst.
    ///
    /// # Errors
    /// Returns an error if the class's share is less than one unit, or if the limiter has a token bucket with an
    /// [adaptive start](tollgate::TokenBucket::aligned_adaptive).
    ///
    /// # Examples
    /// ```
    /// use tollgate_redis::{InProcess, Limit};
    /// use tollgate::{Class, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = InProcess::default(); // or Client::open("redis://127.0.0.1")?
    /// let limiter = server.limiter("api", Limit::gcra(Quota::per_hour(10))).atomic()?;
    /// let batch = limiter.class(Class::percent(50))?;
    /// assert!(batch.check_n("alice", 5).await.is_allowed());
    /// assert!(batch.check("alice").await.is_denied());
    /// assert!(limiter.check_n("alice", 5).await.is_allowed()); // the other half is for other requests
    /// # Ok(()) }
    /// ```
    pub fn class(&self, class: Class) -> Result<Self, QuotaError> {
        let plan = Arc::new(self.dispatch.plan.of_class(class)?);
        Ok(Self { dispatch: Arc::clone(&self.dispatch), plan, class })
    }

    /// Returns the health of the server, as seen by this limiter's calls.
    #[must_use]
    pub fn health(&self) -> Health {
        self.dispatch.guard.health()
    }

    /// Returns the health of each server, if the client has [several](crate::Client::sharded). Otherwise
    /// returns an empty list.
    #[must_use]
    pub fn health_by_server(&self) -> Vec<(Arc<str>, Health)> {
        self.dispatch.guard.health_by_server()
    }

    /// The time of a decision without the server.
    fn time(&self, now: Option<Timestamp>) -> Timestamp {
        now.unwrap_or_else(|| self.dispatch.now())
    }

    /// Asks the server. Returns its reply, and the time of its decision.
    async fn ask(
        &self,
        key: &[u8],
        question: Question,
        now: Option<Timestamp>,
    ) -> Result<(Reply, Timestamp), Error> {
        // The units of a class are charged without a check, and refunded, as those of other requests.
        let plan = match question {
            Question::Force { .. } | Question::Refund { .. } => &self.dispatch.plan,
            _ => &self.plan,
        };
        let reply = self.dispatch.ask(&self.dispatch.call_by(plan, key, question, now)).await?;
        let at = Timestamp::from_nanos(reply.now_us.saturating_mul(1_000));
        Ok((reply, at))
    }

    async fn check_bytes(&self, key: &[u8], cost: u64, now: Option<Timestamp>) -> SharedDecision {
        if cost == 0 {
            return self.peek_bytes(key, cost, now, Local::check).await;
        }
        self.charge_bytes(key, cost, Question::Check { cost }, now).await
    }

    /// Asks a question that charges the cost or nothing.
    async fn charge_bytes(
        &self,
        key: &[u8],
        cost: u64,
        question: Question,
        now: Option<Timestamp>,
    ) -> SharedDecision {
        match self.ask(key, question, now).await {
            Ok((reply, at)) => SharedDecision::new(self.plan.decision(&reply, cost, at), DecidedBy::Server),
            Err(_) => self.dispatch.guard.fallback_of(self.class, key, cost, self.time(now)),
        }
    }

    async fn peek_bytes(
        &self,
        key: &[u8],
        cost: u64,
        now: Option<Timestamp>,
        fallback: LocalVerb,
    ) -> SharedDecision {
        match self.peek_server(key, cost, now).await {
            Ok(decision) => SharedDecision::new(decision, DecidedBy::Server),
            Err(_) => self.dispatch.guard.without_server((key, cost, self.class), self.time(now), fallback),
        }
    }

    async fn peek_server(&self, key: &[u8], cost: u64, now: Option<Timestamp>) -> Result<Decision, Error> {
        let (reply, at) = self.ask(key, Question::Peek { cost }, now).await?;
        Ok(self.plan.peeked(&reply, cost, at))
    }

    async fn refund_bytes(
        &self,
        key: &[u8],
        answer: &SharedDecision,
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        let decision = answer.decision();
        let (units, at_us) = (decision.charged(), decision.at().as_nanos() / 1_000);
        match answer.by() {
            DecidedBy::Local => Ok(self.dispatch.guard.refund(key, &decision, self.time(now))),
            DecidedBy::Server if units > 0 => {
                let reply = self.ask(key, Question::Refund { units, at_us }, now).await;
                reply.map(|(reply, _)| reply.granted)
            }
            _ => Ok(0),
        }
    }

    /// Checks one unit for `key` now, and charges it if it is admitted.
    pub async fn check<K: Key + ?Sized>(&self, key: &K) -> SharedDecision {
        self.check_bytes(&key.bytes(), 1, None).await
    }

    /// Checks `cost` units for `key` now, and charges all of them or none.
    pub async fn check_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> SharedDecision {
        self.check_bytes(&key.bytes(), cost, None).await
    }

    /// Returns this limiter at a time that the caller passes. The time is rounded down to whole microseconds.
    ///
    /// For one key, either all callers should pass a time, or none. The server removes the key's state by its
    /// own clock, one minute after the key's debt would be paid.
    pub const fn at(&self, now: Timestamp) -> LimiterAt<'_, Self> {
        LimiterAt { limiter: self, now }
    }

    /// Returns whether [`check`](Self::check) would admit the request now, and the state of the limits. Charges
    /// nothing.
    pub async fn peek<K: Key + ?Sized>(&self, key: &K) -> SharedDecision {
        self.peek_bytes(&key.bytes(), 1, None, Local::peek).await
    }

    /// Returns whether [`check_n`](Self::check_n) would admit the request now, and the state of the limits.
    /// Charges nothing.
    pub async fn peek_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> SharedDecision {
        self.peek_bytes(&key.bytes(), cost, None, Local::peek).await
    }

    /// Charges `cost` units for `key` now, even if they exceed a limit. Use it for work that has already
    /// happened.
    ///
    /// The key owes the units beyond a limit, and this debt is paid before the key admits anything again. A
    /// debt in a window ends with the window. The answer is always allowed, and describes the state after the
    /// charge.
    ///
    /// # Errors
    /// Returns an error if the server does not answer. The server may have charged the units.
    pub async fn charge_unchecked<K: Key + ?Sized>(
        &self,
        key: &K,
        cost: u64,
    ) -> Result<SharedDecision, Error> {
        let key = key.bytes();
        if cost == 0 {
            return self
                .peek_server(&key, 0, None)
                .await
                .map(|decision| SharedDecision::new(decision, DecidedBy::Server));
        }
        let (reply, at) = self.ask(&key, Question::Force { cost }, None).await?;
        Ok(SharedDecision::new(self.dispatch.plan.forced(&reply, cost, at), DecidedBy::Server))
    }

    /// Takes back the units that an answer charged, as far as time has not yet paid for them. With GCRA, units
    /// that have refilled since are not taken back. With windows and batches, nothing is taken back after the window or
    /// period ends; with sub-windows, after a later part has units. With a sliding log and with minimum spacing,
    /// only the last charge is taken back.
    ///
    /// Returns the number of units taken back; a part of a unit counts as one. If this process's share admitted
    /// the request ([`DecidedBy::Local`]), the units return to the share without a call to the server. Returns
    /// 0 for an answer that [`OnFailure`](crate::OnFailure) decided as `Open` or `Closed`. Call it
    /// at most once for each answer: the limiter does not detect a second refund.
    ///
    /// # Errors
    /// Returns an error if the server does not answer. The server may have taken the units back.
    pub async fn refund<K: Key + ?Sized>(&self, key: &K, answer: &SharedDecision) -> Result<u64, Error> {
        self.refund_bytes(&key.bytes(), answer, None).await
    }

    /// Takes back up to `units` of what a key owes, whichever process charged them: for a caller that does not have the
    /// answer. Returns the number of units taken back; a part of a unit counts as one.
    ///
    /// The units are those of a [`refund`](Self::refund) of a charge that was made now: up to a full burst, and of windows
    /// and batches only the present one. It takes two calls to the server, and the second one is one step, so no charge
    /// of another process is lost.
    ///
    /// # Errors
    /// Returns an error if the server does not answer. The server may have taken the units back.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{ManualClock, Quota};
    /// use tollgate_redis::{InProcess, Limit};
    ///
    /// let server = InProcess::new(ManualClock::default()).blocking();
    /// let retries = server.limiter("retries", Limit::gcra(Quota::per_hour(10))).atomic()?;
    /// assert!(retries.check_n("backend", 8).is_allowed());
    /// assert_eq!(retries.block_on(|limiter| limiter.give_back("backend", 3))?, 3);
    /// assert_eq!(retries.block_on(|limiter| limiter.give_back("backend", 100))?, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn give_back<K: Key + ?Sized>(&self, key: &K, units: u64) -> Result<u64, Error> {
        if units == 0 {
            return Ok(0);
        }
        let key = key.bytes();
        let (reply, _) = self.ask(&key, Question::Peek { cost: 0 }, None).await?;
        let question = Question::Refund { units, at_us: reply.now_us };
        self.ask(&key, question, None).await.map(|(reply, _)| reply.granted)
    }
}

impl LimiterAt<'_, AtomicLimiter> {
    /// [`AtomicLimiter::check`] at this time.
    pub async fn check<K: Key + ?Sized>(self, key: &K) -> SharedDecision {
        self.check_n(key, 1).await
    }

    /// [`AtomicLimiter::check_n`] at this time.
    pub async fn check_n<K: Key + ?Sized>(self, key: &K, cost: u64) -> SharedDecision {
        self.limiter.check_bytes(&key.bytes(), cost, Some(self.now)).await
    }

    /// [`AtomicLimiter::refund`] at this time, for answers of [`check`](Self::check).
    ///
    /// # Errors
    /// The errors of [`AtomicLimiter::refund`].
    pub async fn refund<K: Key + ?Sized>(self, key: &K, answer: &SharedDecision) -> Result<u64, Error> {
        self.limiter.refund_bytes(&key.bytes(), answer, Some(self.now)).await
    }
}

impl Blocking<AtomicLimiter> {
    /// Returns this limiter for the requests of a class. See [`AtomicLimiter::class`].
    ///
    /// # Errors
    /// The errors of [`AtomicLimiter::class`].
    pub fn class(&self, class: Class) -> Result<Self, QuotaError> {
        Ok(self.with(AtomicLimiter::class(self, class)?))
    }
}

impl AsksServer for AtomicLimiter {
    fn ask_about(&self, key: &[u8], cost: u64) -> impl Future<Output = SharedDecision> + Send {
        self.check_bytes(key, cost, None)
    }
}

#[cfg(feature = "rules")]
impl AtomicLimiter {
    /// Decides a request of a caller that cannot wait for the server, as if the server were unavailable.
    pub(crate) fn decide_without_server(&self, key: &str, cost: u64) -> SharedDecision {
        self.dispatch.guard.fallback_of(self.class, key.as_bytes(), cost, self.dispatch.now())
    }

    /// Checks a request. If it `only_reports`, a denial starts no block.
    pub(crate) async fn check_rule(&self, key: &str, cost: u64, only_reports: bool) -> SharedDecision {
        if !only_reports || !self.plan.limits().any(|limit| limit.block().is_some()) {
            return self.check_n(key, cost).await;
        }
        // A lease of all units or of none is a check that starts no block.
        let question = Question::Lease { least: cost, wanted: cost, share: 1 };
        self.charge_bytes(key.as_bytes(), cost, question, None).await
    }

    /// Takes back a charge if that needs no call to the server.
    pub(crate) fn refund_here(&self, key: &str, answer: &SharedDecision) {
        if answer.by() == DecidedBy::Local {
            self.dispatch.guard.refund(key.as_bytes(), &answer.decision(), self.dispatch.now());
        }
    }

    /// Charges as many of `cost` units as there is room for. If none is left afterwards, returns how long that lasts. If
    /// the server does not answer, it may have charged the units.
    pub(crate) async fn take(&self, key: &str, cost: u64) -> Option<Duration> {
        let question = Question::Lease { least: 1, wanted: cost, share: 1 };
        let (reply, at) = self.ask(key.as_bytes(), question, None).await.ok()?;
        self.plan.peeked(&reply, 1, at).retry_after().filter(|wait| !wait.is_zero())
    }

    /// Forgets what a key owes, and its block.
    pub(crate) async fn forget(&self, key: &str) -> Result<(), Error> {
        self.ask(key.as_bytes(), Question::Forget, None).await.map(drop)
    }

    /// Blocks a key that is not in a block, for at most the longest block of the limit. A check of one unit uses a unit or begins
    /// the block, and after that, a check of the whole burst is denied and begins it. Returns whether the key is in a block.
    pub(crate) async fn block_for(&self, key: &str, length: Duration) -> Result<bool, Error> {
        let blocking = |limit: Limit| limit.with_block(Block::of(length));
        let limits = self.dispatch.plan.limits().map(blocking).collect::<Result<Vec<_>, _>>();
        let Ok(plan) = limits.and_then(|limits| Plan::new(&limits)) else { return Ok(false) };
        let (plan, most) = (Arc::new(plan), self.dispatch.plan.most());
        for cost in [1, most, 1, most] {
            let call = self.dispatch.call_by(&plan, key.as_bytes(), Question::Check { cost }, None);
            if self.dispatch.ask(&call).await?.granted == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Like [`peek_n`](Self::peek_n), but returns the error if the server does not answer.
    pub(crate) async fn peek_rule(&self, key: &str, cost: u64) -> Result<Decision, Error> {
        self.peek_server(key.as_bytes(), cost, None).await
    }
}
