//! The atomic mode: each request is decided by the server, in one script.

use std::fmt;
use std::sync::Arc;

use crate::base::clock::{Clock, StdClock, Timestamp};
use crate::base::quota::QuotaError;
use crate::edge::redis::client::{BlockingClient, BlockingInProcess, Builder, Client, Connected, InProcess};
use crate::edge::redis::guard::{Guard, Health};
use crate::edge::redis::protocol::{Answer, Call, DecidedBy, Error, Key, Plan, Question, Reply, tagged};

/// A limiter of which every request is decided by the server, in one step and one round trip.
///
/// It never admits more than its limits allow, however many processes ask, as long as the server keeps what it was told: a replica that
/// takes over may not know the last of it. Time is the server's. Made by [`Builder::atomic`]; the methods are async for a
/// [`Client`], and wait for a [`BlockingClient`]. Copies are the same limiter.
///
/// # If the server does not answer
/// in time ([`Builder::timeout`]), or has failed just now ([`Builder::breaker`]), [`Builder::on_failure`] decides, and
/// [`Answer::by`] says so. A request whose answer was lost may have been charged: that is never taken back.
///
/// # Cost
/// One round trip, one script of a few dozen steps. Keys are spread over a Cluster; one key is in one place.
/// A denial writes nothing (but for a state from the future, after the server's clock stepped back, which is brought back to now).
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
    guard: Guard,
    /// For what is decided without the server.
    clock: StdClock,
}

/// What decides while the server cannot be asked.
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
        let head = settings.head;
        let core = AtomicCore { client: builder.client, plan, head, guard, clock: StdClock::new() };
        Ok(Self { core: Arc::new(core) })
    }

    /// How the server fares, by this limiter's calls.
    #[must_use]
    pub fn health(&self) -> Health {
        self.core.guard.health()
    }
}

#[cfg(feature = "rules")]
impl<T> AtomicLimiter<T> {
    /// What becomes of a request of who cannot wait for the server: as if that could not be asked.
    pub(crate) fn unasked<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
        self.core.guard.fallback(&key.bytes(), cost, self.core.clock.now())
    }

    /// Takes back what needs no server for it.
    pub(crate) fn refund_here<K: Key + ?Sized>(&self, key: &K, answer: &Answer) {
        if answer.by() == DecidedBy::Local {
            self.core.undo(&key.bytes(), answer, None);
        }
    }
}

impl<T> AtomicCore<T> {
    fn call(&self, key: &[u8], question: Question, now: Option<Timestamp>) -> Call {
        Call { tag: tagged(&self.head, key), plan: Arc::clone(&self.plan), ask: question, now }
    }

    /// Takes back what this process's share was charged.
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
        match self.ask(&self.call(key, Question::Peek, now)).await {
            Ok((reply, at)) => Answer::new(self.plan.looked(&reply, cost, at), DecidedBy::Server),
            Err(_) => fallback(&self.guard, key, cost, now.unwrap_or_else(|| self.clock.now())),
        }
    }

    async fn charge(&self, key: &[u8], cost: u64) -> Result<Answer, Error> {
        let question = if cost > 0 { Question::Force { cost } } else { Question::Peek };
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

/// Waits for a future: in async code, or in the thread that calls.
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
            /// A limiter of which every request is decided by the server.
            ///
            /// # Errors
            /// The first limit that the server's script cannot count exactly, and what would fit: bursts that take more than 71 years to
            /// refill, windows that are not whole microseconds, sliding windows of so many units that limit times period has no
            /// fifteen digits in any power of ten of microseconds.
            pub fn atomic(self) -> Result<AtomicLimiter<$transport>, QuotaError> {
                AtomicLimiter::new(self)
            }
        }

        impl AtomicLimiter<$transport> {
            /// Checks one unit for `key` now, and charges it if it is allowed.
            pub $($async)? fn check<K: Key + ?Sized>(&self, key: &K) -> Answer {
                drive!($($await,)? self, self.core.check(&key.bytes(), 1, None))
            }

            /// Checks `cost` units for `key` now, and charges all of them or none.
            pub $($async)? fn check_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
                drive!($($await,)? self, self.core.check(&key.bytes(), cost, None))
            }

            /// Checks `cost` units for `key` at a time that the caller says, in whole microseconds, rounded down.
            ///
            /// All that ask about a key should say the time, or none. What it holds is forgotten by the server's own time, a minute
            /// after it would be paid.
            pub $($async)? fn check_at<K: Key + ?Sized>(&self, key: &K, cost: u64, now: Timestamp) -> Answer {
                drive!($($await,)? self, self.core.check(&key.bytes(), cost, Some(now)))
            }

            /// Whether [`check`](Self::check) would be allowed now, and how things stand, without charging.
            pub $($async)? fn peek<K: Key + ?Sized>(&self, key: &K) -> Answer {
                drive!($($await,)? self, self.core.peek(&key.bytes(), 1, None, Guard::fallback_peek))
            }

            /// Whether [`check_n`](Self::check_n) would be allowed now, and how things stand, without charging.
            pub $($async)? fn peek_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
                drive!($($await,)? self, self.core.peek(&key.bytes(), cost, None, Guard::fallback_peek))
            }

            /// Charges `cost` units for `key` now, room or not: for what has happened already. What is owed beyond a limit is paid
            /// before anything is admitted again (of windows, when they are over). The answer is always allowed, and says how things stand
            /// afterwards.
            ///
            /// # Errors
            /// If the server does not answer. It may have charged them.
            pub $($async)? fn charge_unchecked<K: Key + ?Sized>(
                &self,
                key: &K,
                cost: u64,
            ) -> Result<Answer, Error> {
                drive!($($await,)? self, self.core.charge(&key.bytes(), cost))
            }

            /// Takes back what an answer charged and what is not paid meanwhile: of GCRA, what time has not given back yet; of
            /// windows, nothing once the window is over. Returns the units taken back, a part of one as a whole. What
            /// this process's share admitted ([`DecidedBy::Local`]) is given back to it, without asking anybody; 0 of what nobody
            /// decided. Do it once: nobody remembers.
            ///
            /// # Errors
            /// If the server does not answer. It may have taken them back.
            pub $($async)? fn refund<K: Key + ?Sized>(&self, key: &K, answer: &Answer) -> Result<u64, Error> {
                drive!($($await,)? self, self.core.refund(&key.bytes(), answer, None))
            }

            /// The same at a time that the caller says, for answers of [`check_at`](Self::check_at).
            ///
            /// # Errors
            /// As [`refund`](Self::refund).
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
