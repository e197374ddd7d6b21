//! The atomic mode: a script on the server decides each request.

use std::fmt;
use std::sync::Arc;
#[cfg(feature = "rules")]
use std::time::Duration;

use crate::base::clock::{Clock, StdClock, Timestamp};
#[cfg(feature = "rules")]
use crate::base::decision::Decision;
use crate::base::quota::QuotaError;
use crate::edge::redis::client::{
    BlockingClient, BlockingInProcess, Builder, Client, Connected, InProcess, Routes,
};
use crate::edge::redis::guard::{Guard, Health};
use crate::edge::redis::protocol::{Answer, Call, DecidedBy, Error, Key, Plan, Question, Reply, tagged};

/// A limiter that asks the server to decide every request, in one atomic step and one round trip.
///
/// It never admits more than its limits allow, however many processes share it, as long as the server keeps its data. A
/// replica that takes over may lack the last writes. All times are the server's. [`Builder::atomic`] builds the
/// limiter. Its methods are async for a [`Client`], and block for a [`BlockingClient`]. All clones are the same
/// limiter.
///
/// # If the server does not answer
///
/// [`Builder::on_failure`] decides the request if the server does not answer in time ([`Builder::timeout`]), or if the
/// breaker is open after failures ([`Builder::breaker`]). [`Answer::by`] then names what decided. If an answer was
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
/// use tollgate::redis::{InProcess, Limit};
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
pub struct AtomicLimiter<T> {
    core: Arc<AtomicCore<T>>,
}

struct AtomicCore<T> {
    client: T,
    plan: Arc<Plan>,
    head: Arc<[u8]>,
    routes: Arc<Routes>,
    guard: Guard,
    /// The clock for decisions without the server.
    clock: StdClock,
}

/// Decides a request while the server is unavailable.
type Fallback = fn(&Guard, &[u8], u64, Timestamp) -> Answer;

impl<T> Clone for AtomicLimiter<T> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core) }
    }
}

impl<T: fmt::Debug> fmt::Debug for AtomicLimiter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<_> = self.core.plan.limits().collect();
        f.debug_struct("AtomicLimiter")
            .field("client", &self.core.client)
            .field("limits", &limits)
            .finish_non_exhaustive()
    }
}

impl<T> AtomicLimiter<T> {
    fn new(builder: Builder<T>) -> Result<Self, QuotaError> {
        let settings = builder.settings();
        let plan = Arc::new(Plan::new(&settings.limits)?);
        let guard = Guard::new(&settings);
        let (head, routes) = (settings.head, settings.routes);
        let core = AtomicCore { client: builder.client, plan, head, routes, guard, clock: StdClock::new() };
        Ok(Self { core: Arc::new(core) })
    }

    /// Returns the health of the server, as seen by this limiter's calls.
    #[must_use]
    pub fn health(&self) -> Health {
        self.core.guard.health()
    }

    /// Returns the health of each server, if the client has [several](Client::sharded). Otherwise returns an empty
    /// list.
    #[must_use]
    pub fn health_by_server(&self) -> Vec<(Arc<str>, Health)> {
        self.core.guard.health_by_server()
    }
}

#[cfg(feature = "rules")]
impl<T> AtomicLimiter<T> {
    /// Decides a request of a caller that cannot wait for the server, as if the server were unavailable.
    pub(crate) fn decide_without_server<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
        self.core.guard.fallback(&key.bytes(), cost, self.core.clock.now())
    }

    /// Takes back a charge if that needs no call to the server.
    pub(crate) fn refund_here<K: Key + ?Sized>(&self, key: &K, answer: &Answer) {
        if answer.by() == DecidedBy::Local {
            self.core.undo(&key.bytes(), answer, None);
        }
    }
}

impl<T> AtomicCore<T> {
    fn call(&self, key: &[u8], question: Question, now: Option<Timestamp>) -> Call {
        let tag = tagged(&self.head, key);
        let place = self.routes.place(key, &tag);
        Call { tag, plan: Arc::clone(&self.plan), ask: question, now, place }
    }

    /// Takes back a charge on this process's share.
    fn undo(&self, key: &[u8], answer: &Answer, now: Option<Timestamp>) -> u64 {
        self.guard.undo(key, &answer.decision(), now.unwrap_or_else(|| self.clock.now()))
    }
}

impl<T: Connected> AtomicCore<T> {
    async fn ask(&self, call: &Call) -> Result<(Reply, Timestamp), Error> {
        let reply = self.guard.ask(self.client.transport()?, call).await?;
        let at = Timestamp::from_nanos(reply.now_us.saturating_mul(1_000));
        Ok((reply, at))
    }

    async fn check(&self, key: &[u8], cost: u64, now: Option<Timestamp>) -> Answer {
        if cost == 0 {
            return self.peek(key, cost, now, Guard::fallback).await;
        }
        match self.ask(&self.call(key, Question::Check { cost }, now)).await {
            Ok((reply, at)) => Answer::new(self.plan.decision(&reply, cost, at), DecidedBy::Server),
            Err(_) => self.guard.fallback(key, cost, now.unwrap_or_else(|| self.clock.now())),
        }
    }

    async fn peek(&self, key: &[u8], cost: u64, now: Option<Timestamp>, fallback: Fallback) -> Answer {
        match self.ask(&self.call(key, Question::Peek { cost }, now)).await {
            Ok((reply, at)) => Answer::new(self.plan.peeked(&reply, cost, at), DecidedBy::Server),
            Err(_) => fallback(&self.guard, key, cost, now.unwrap_or_else(|| self.clock.now())),
        }
    }

    /// Charges as many of `cost` units as there is room for. If none is left afterwards, returns how long that lasts.
    #[cfg(feature = "rules")]
    async fn take(&self, key: &[u8], cost: u64) -> Option<Duration> {
        let question = Question::Lease { least: 1, wanted: cost, share: 1 };
        let (reply, at) = self.ask(&self.call(key, question, None)).await.ok()?;
        self.plan.peeked(&reply, 1, at).retry_after().filter(|wait| !wait.is_zero())
    }

    /// Returns whether `cost` units would be admitted, or `None` if the server does not answer.
    #[cfg(feature = "rules")]
    async fn look(&self, key: &[u8], cost: u64) -> Option<Decision> {
        let (reply, at) = self.ask(&self.call(key, Question::Peek { cost }, None)).await.ok()?;
        Some(self.plan.peeked(&reply, cost, at))
    }

    async fn charge(&self, key: &[u8], cost: u64) -> Result<Answer, Error> {
        let question = if cost > 0 { Question::Force { cost } } else { Question::Peek { cost: 0 } };
        let (reply, at) = self.ask(&self.call(key, question, None)).await?;
        Ok(Answer::new(self.plan.forced(&reply, cost, at), DecidedBy::Server))
    }

    async fn refund(&self, key: &[u8], answer: &Answer, now: Option<Timestamp>) -> Result<u64, Error> {
        let decision = answer.decision();
        let (units, at_us) = (decision.charged(), decision.at().as_nanos() / 1_000);
        match answer.by() {
            DecidedBy::Local => Ok(self.undo(key, answer, now)),
            DecidedBy::Server if units > 0 => {
                let call = self.call(key, Question::Refund { units, at_us }, now);
                self.ask(&call).await.map(|(reply, _)| reply.granted)
            }
            _ => Ok(0),
        }
    }
}

/// Waits for a future: with `await` in async code, or by blocking the calling thread.
macro_rules! drive {
    (await, $limiter:ident, $future:expr) => {
        $future.await
    };
    ($limiter:ident, $future:expr) => {
        $limiter.core.client.thread.block_on($future)
    };
}

macro_rules! limiter {
    ($transport:ty $(, $async:ident, $await:ident)?) => {
        impl Builder<$transport> {
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
            /// - buckets with an adaptive start whose limit times period, in microseconds, is 2^53 or more.
            pub fn atomic(self) -> Result<AtomicLimiter<$transport>, QuotaError> {
                AtomicLimiter::new(self)
            }
        }

        #[cfg(feature = "rules")]
        impl AtomicLimiter<$transport> {
            /// Charges as many of `cost` units as there is room for. If none is left afterwards, returns how long that
            /// lasts. If the server does not answer, it may have charged the units.
            pub(crate) $($async)? fn take(&self, key: &str, cost: u64) -> Option<Duration> {
                drive!($($await,)? self, self.core.take(key.as_bytes(), cost))
            }

            /// Like [`peek_n`](Self::peek_n), but returns `None` if the server does not answer.
            pub(crate) $($async)? fn look(&self, key: &str, cost: u64) -> Option<Decision> {
                drive!($($await,)? self, self.core.look(key.as_bytes(), cost))
            }
        }

        impl AtomicLimiter<$transport> {
            /// Checks one unit for `key` now, and charges it if it is admitted.
            pub $($async)? fn check<K: Key + ?Sized>(&self, key: &K) -> Answer {
                drive!($($await,)? self, self.core.check(&key.bytes(), 1, None))
            }

            /// Checks `cost` units for `key` now, and charges all of them or none.
            pub $($async)? fn check_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
                drive!($($await,)? self, self.core.check(&key.bytes(), cost, None))
            }

            /// Checks `cost` units for `key` at a time that the caller passes. The time is rounded down to whole
            /// microseconds.
            ///
            /// For one key, either all callers should pass a time, or none. The server removes the key's state by its
            /// own clock, one minute after the key's debt would be paid.
            pub $($async)? fn check_at<K: Key + ?Sized>(&self, key: &K, cost: u64, now: Timestamp) -> Answer {
                drive!($($await,)? self, self.core.check(&key.bytes(), cost, Some(now)))
            }

            /// Returns whether [`check`](Self::check) would admit the request now, and the state of the limits. Charges
            /// nothing.
            pub $($async)? fn peek<K: Key + ?Sized>(&self, key: &K) -> Answer {
                drive!($($await,)? self, self.core.peek(&key.bytes(), 1, None, Guard::fallback_peek))
            }

            /// Returns whether [`check_n`](Self::check_n) would admit the request now, and the state of the limits.
            /// Charges nothing.
            pub $($async)? fn peek_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
                drive!($($await,)? self, self.core.peek(&key.bytes(), cost, None, Guard::fallback_peek))
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
            pub $($async)? fn charge_unchecked<K: Key + ?Sized>(
                &self,
                key: &K,
                cost: u64,
            ) -> Result<Answer, Error> {
                drive!($($await,)? self, self.core.charge(&key.bytes(), cost))
            }

            /// Takes back the units that an answer charged, as far as time has not yet paid for them. With GCRA, units
            /// that have refilled since are not taken back. With windows and batches, nothing is taken back after the window or
            /// period ends; with sub-windows, after a later part has units. With a sliding log and with minimum spacing,
            /// only the last charge is taken back.
            ///
            /// Returns the number of units taken back; a part of a unit counts as one. If this process's share admitted
            /// the request ([`DecidedBy::Local`]), the units return to the share without a call to the server. Returns
            /// 0 for an answer that [`OnFailure`](crate::edge::redis::OnFailure) decided as `Open` or `Closed`. Call it
            /// at most once for each answer: the limiter does not detect a second refund.
            ///
            /// # Errors
            /// Returns an error if the server does not answer. The server may have taken the units back.
            pub $($async)? fn refund<K: Key + ?Sized>(&self, key: &K, answer: &Answer) -> Result<u64, Error> {
                drive!($($await,)? self, self.core.refund(&key.bytes(), answer, None))
            }

            /// Takes units back as [`refund`](Self::refund) does, at a time that the caller passes. Use it for answers
            /// of [`check_at`](Self::check_at).
            ///
            /// # Errors
            /// The errors of [`refund`](Self::refund).
            pub $($async)? fn refund_at<K: Key + ?Sized>(
                &self,
                key: &K,
                answer: &Answer,
                now: Timestamp,
            ) -> Result<u64, Error> {
                drive!($($await,)? self, self.core.refund(&key.bytes(), answer, Some(now)))
            }
        }
    };
}

limiter!(Client, async, await);
limiter!(InProcess, async, await);
limiter!(BlockingClient);
limiter!(BlockingInProcess);
