//! The atomic mode: each request is decided by the server, in one script.

use std::fmt;
use std::sync::Arc;

use crate::base::clock::{Clock, StdClock, Timestamp};
use crate::base::quota::QuotaError;
use crate::edge::redis::client::BlockingClient;
use crate::edge::redis::client::Builder;
use crate::edge::redis::client::Client;
use crate::edge::redis::client::{BlockingInProcess, InProcess};
use crate::edge::redis::guard::Guard;
use crate::edge::redis::guard::Health;
use crate::edge::redis::protocol::Error;
use crate::edge::redis::protocol::Plan;
use crate::edge::redis::protocol::{Answer, DecidedBy};
use crate::edge::redis::protocol::{Call, Question, Reply};
use crate::edge::redis::protocol::{Key, tagged};

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
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    transport: T,
    plan: Arc<Plan>,
    head: Arc<[u8]>,
    guard: Guard,
    /// For what is decided without the server.
    clock: StdClock,
}

/// What is done with a request's units.
#[derive(Copy, Clone)]
enum Operation {
    Check,
    Peek,
}

impl<T> Clone for AtomicLimiter<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T: fmt::Debug> fmt::Debug for AtomicLimiter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<_> = self.shared.plan.limits().collect();
        f.debug_struct("AtomicLimiter")
            .field("client", &self.shared.transport)
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
        let shared = Shared { transport: builder.client, plan, head, guard, clock: StdClock::new() };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// How the server fares, by this limiter's calls.
    #[must_use]
    pub fn health(&self) -> Health {
        self.shared.guard.health()
    }
}

#[cfg(feature = "rules")]
impl<T> AtomicLimiter<T> {
    /// What becomes of a request of who cannot wait for the server: as if that could not be asked.
    pub(crate) fn unasked<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
        self.shared.guard.fallback(&key.bytes(), cost, self.shared.clock.now())
    }

    /// Takes back what needs no server for it.
    pub(crate) fn refund_here<K: Key + ?Sized>(&self, key: &K, answer: &Answer) {
        if answer.by() == DecidedBy::Local {
            self.shared.undo(&key.bytes(), answer, None);
        }
    }
}

impl<T> Shared<T> {
    fn call(&self, key: &[u8], ask: Question, now: Option<Timestamp>) -> Call {
        Call { tag: tagged(&self.head, key), plan: Arc::clone(&self.plan), ask, now }
    }

    fn ask(&self, key: &[u8], verb: Operation, cost: u64, now: Option<Timestamp>) -> Call {
        let ask = match verb {
            Operation::Check if cost > 0 => Question::Check { cost },
            _ => Question::Peek,
        };
        self.call(key, ask, now)
    }

    fn answer(
        &self,
        result: Result<Reply, Error>,
        key: &[u8],
        verb: Operation,
        cost: u64,
        now: Option<Timestamp>,
    ) -> Answer {
        let Ok(reply) = result else {
            let now = now.unwrap_or_else(|| self.clock.now());
            return match verb {
                Operation::Check => self.guard.fallback(key, cost, now),
                Operation::Peek => self.guard.fallback_peek(key, cost, now),
            };
        };
        let at = Timestamp::from_nanos(reply.now_us.saturating_mul(1_000));
        let decision = match verb {
            Operation::Check if cost > 0 => self.plan.decision(&reply, cost, at),
            _ => self.plan.looked(&reply, cost, at),
        };
        Answer::new(decision, DecidedBy::Server)
    }

    /// Takes back what this process's share was charged.
    fn undo(&self, key: &[u8], answer: &Answer, now: Option<Timestamp>) -> u64 {
        self.guard.undo(key, &answer.decision(), now.unwrap_or_else(|| self.clock.now()))
    }

    /// What there is to take back of an answer.
    fn refund(&self, key: &[u8], answer: &Answer, now: Option<Timestamp>) -> Option<Call> {
        let decision = answer.decision();
        let (units, at_us) = (decision.charged(), decision.at().as_nanos() / 1_000);
        (answer.by() == DecidedBy::Server && units > 0)
            .then(|| self.call(key, Question::Refund { units, at_us }, now))
    }
}

macro_rules! limiter {
    ($transport:ty, $ask:ident $(, $async:ident, $await:ident)?) => {
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
                self.act(key, Operation::Check, 1, None)$(.$await)?
            }

            /// Checks `cost` units for `key` now, and charges all of them or none.
            pub $($async)? fn check_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
                self.act(key, Operation::Check, cost, None)$(.$await)?
            }

            /// Checks `cost` units for `key` at a time that the caller says, in whole microseconds, rounded down.
            ///
            /// All that ask about a key should say the time, or none. What it holds is forgotten by the server's own time, a minute
            /// after it would be paid.
            pub $($async)? fn check_at<K: Key + ?Sized>(&self, key: &K, cost: u64, now: Timestamp) -> Answer {
                self.act(key, Operation::Check, cost, Some(now))$(.$await)?
            }

            /// Whether [`check`](Self::check) would be allowed now, and how things stand, without charging.
            pub $($async)? fn peek<K: Key + ?Sized>(&self, key: &K) -> Answer {
                self.act(key, Operation::Peek, 1, None)$(.$await)?
            }

            /// Whether [`check_n`](Self::check_n) would be allowed now, and how things stand, without charging.
            pub $($async)? fn peek_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
                self.act(key, Operation::Peek, cost, None)$(.$await)?
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
                let shared = &*self.shared;
                let ask = if cost > 0 { Question::Force { cost } } else { Question::Peek };
                let call = shared.call(&key.bytes(), ask, None);
                let reply = shared.guard.$ask(&shared.transport, &call)$(.$await)??;
                let at = Timestamp::from_nanos(reply.now_us.saturating_mul(1_000));
                Ok(Answer::new(shared.plan.forced(&reply, cost, at), DecidedBy::Server))
            }

            /// Takes back what an answer charged and what is not paid meanwhile: of GCRA, what time has not given back yet; of
            /// windows, nothing once the window is over. Returns the units taken back, a part of one as a whole. What
            /// this process's share admitted ([`DecidedBy::Local`]) is given back to it, without asking anybody; 0 of what nobody
            /// decided. Do it once: nobody remembers.
            ///
            /// # Errors
            /// If the server does not answer. It may have taken them back.
            pub $($async)? fn refund<K: Key + ?Sized>(&self, key: &K, answer: &Answer) -> Result<u64, Error> {
                self.give_back(key, answer, None)$(.$await)?
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
                self.give_back(key, answer, Some(now))$(.$await)?
            }

            $($async)? fn act<K: Key + ?Sized>(
                &self,
                key: &K,
                verb: Operation,
                cost: u64,
                now: Option<Timestamp>,
            ) -> Answer {
                let (shared, key) = (&*self.shared, key.bytes());
                let call = shared.ask(&key, verb, cost, now);
                let result = shared.guard.$ask(&shared.transport, &call)$(.$await)?;
                shared.answer(result, &key, verb, cost, now)
            }

            $($async)? fn give_back<K: Key + ?Sized>(
                &self,
                key: &K,
                answer: &Answer,
                now: Option<Timestamp>,
            ) -> Result<u64, Error> {
                let (shared, key) = (&*self.shared, key.bytes());
                if answer.by() == DecidedBy::Local {
                    return Ok(shared.undo(&key, answer, now));
                }
                let Some(call) = shared.refund(&key, answer, now) else { return Ok(0) };
                let result = shared.guard.$ask(&shared.transport, &call)$(.$await)?;
                result.map(|reply| reply.granted)
            }
        }
    };
}

limiter!(Client, ask, async, await);
limiter!(InProcess, ask, async, await);
limiter!(BlockingClient, ask_blocking);
limiter!(BlockingInProcess, ask_blocking);
