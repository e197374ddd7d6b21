//! Rules that processes share: where they are counted.
//!
//! A rule's limiter is one of three modes on one of several kinds of clients; here they are made alike, by what a rule needs of them.

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;

use super::spec::{self, Mode, OnFailure, Shared};
use crate::decision::Decision;
use crate::quota::{Quota, QuotaError};
pub(super) use crate::redis::DecidedBy;
use crate::redis::{
    Answer, AtomicLimiter, BlockingClient, BlockingInProcess, Builder, Client, Health, InProcess, Limit,
};
use crate::store::chosen::NoStore;
use crate::telemetry::{Event, Reading, Readings};

/// The server of [`RulesBuilder::redis`](super::RulesBuilder::redis).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Server {
    /// For async code.
    Client(Client),
    /// For threads that may wait.
    Blocking(BlockingClient),
    /// A model of one, as of a client for async code.
    InProcess(InProcess),
    /// A model of one, as of a client for threads that may wait.
    BlockingInProcess(BlockingInProcess),
}

macro_rules! from {
    ($($client:ty => $variant:ident),+) => {
        $(impl From<$client> for Server {
            fn from(client: $client) -> Self {
                Self::$variant(client)
            }
        })+
    };
}

from!(Client => Client, BlockingClient => Blocking, InProcess => InProcess, BlockingInProcess => BlockingInProcess);

/// What a shared limiter says.
pub(super) type Said = (Decision, DecidedBy);

pub(super) const fn is_failure(by: DecidedBy) -> bool {
    by.is_failure()
}

/// Whether nobody decided, so that its figures mean nothing.
#[cfg(feature = "tower")]
pub(super) const fn is_undecided(by: DecidedBy) -> bool {
    matches!(by, DecidedBy::Open | DecidedBy::Closed)
}

/// What is recorded of it in the place of its decision.
pub(super) const fn event(by: DecidedBy) -> Option<Event> {
    by.event()
}

/// Where shared rules are counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Servers {
    server: Option<Server>,
    alone: bool,
}

impl Servers {
    pub(super) fn set(&mut self, server: Server) {
        self.server = Some(server);
    }

    pub(super) fn set_alone(&mut self, alone: bool) {
        self.alone = alone;
    }

    /// Whether shared rules are counted in this process only.
    pub(super) const fn alone(&self) -> bool {
        self.alone
    }

    /// Whether there is a place for shared rules.
    pub(super) const fn knows_how(&self) -> bool {
        self.alone || self.server.is_some()
    }

    /// The limiter of a rule, by its identity.
    pub(super) fn limiter(
        &self,
        name: &str,
        quota: Quota,
        algorithm: spec::Algorithm,
        how: Shared,
    ) -> Result<SharedLimiter, NoStore> {
        let limit = limit(quota, algorithm).ok_or(NoStore::Algorithm)?;
        macro_rules! of {
            ($client:expr) => {
                match how.mode {
                    Mode::Atomic => Box::new(set($client.limiter(name, limit), how).atomic()?),
                    Mode::Lease | Mode::WriteBack => return Err(NoStore::Algorithm),
                }
            };
        }
        let counts: Box<dyn Counts> = match self.server.as_ref().ok_or(NoStore::Algorithm)? {
            Server::Client(client) => of!(client),
            Server::InProcess(server) => of!(server),
            Server::Blocking(client) => of!(client),
            Server::BlockingInProcess(server) => of!(server),
        };
        Ok(SharedLimiter(counts))
    }
}

/// What the script in Redis knows of algorithms.
fn limit(quota: Quota, algorithm: spec::Algorithm) -> Option<Limit> {
    use spec::Algorithm::{
        FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingWindow, SubWindow, TokenBucket,
    };
    Some(match algorithm {
        FixedWindow => Limit::fixed_window(quota),
        // A leaky bucket as a meter and a token bucket decide alike.
        Gcra | TokenBucket | LeakyBucket => Limit::gcra(quota),
        SlidingWindow { strict: false } => Limit::sliding_window(quota),
        SlidingWindow { strict: true } => Limit::sliding_window(quota).strict(),
        SubWindow { .. } | SlidingLog => return None,
    })
}

/// Whether the script can count it.
pub(super) fn check(quota: Quota, algorithm: spec::Algorithm) -> Result<(), QuotaError> {
    limit(quota, algorithm).map_or(Ok(()), |limit| limit.check())
}

fn set<T>(builder: Builder<T>, how: Shared) -> Builder<T> {
    use crate::redis::OnFailure as Policy;
    builder.timeout(how.timeout).on_failure(match how.on_failure {
        OnFailure::Open => Policy::Open,
        OnFailure::Closed => Policy::Closed,
        OnFailure::Local => Policy::Local { processes: how.processes },
    })
}

/// The limiter of a rule that processes share.
pub(super) struct SharedLimiter(Box<dyn Counts>);

impl fmt::Debug for SharedLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLimiter").field("health", &self.0.health()).finish_non_exhaustive()
    }
}

impl SharedLimiter {
    /// Decides without waiting for longer than the mode does, and charges what it admits.
    pub(super) fn check(&self, key: &str, cost: u64) -> Said {
        said(self.0.check(key, cost))
    }

    /// The same for who may wait.
    pub(super) async fn check_async(&self, key: &str, cost: u64) -> Said {
        said(self.0.check_async(key, cost).await)
    }

    /// Takes a charge back, as far as that needs no waiting.
    pub(super) fn refund(&self, key: &str, charge: &Decision, by: Option<DecidedBy>) {
        if let Some(by) = by {
            self.0.refund(key, &Answer::new(*charge, by));
        }
    }

    /// The same for who may wait.
    pub(super) async fn refund_async(&self, key: &str, charge: &Decision, by: Option<DecidedBy>) {
        if let Some(by) = by {
            let answer = Answer::new(*charge, by);
            self.0.refund_async(key, &answer).await;
        }
    }

    /// How the server fares.
    pub(super) fn readings(&self) -> Vec<Reading> {
        self.0.health().readings()
    }
}

fn said(answer: Answer) -> Said {
    (answer.decision(), answer.by())
}

type Awaited<'a, R> = Pin<Box<dyn Future<Output = R> + Send + 'a>>;

/// What a rule needs of a limiter, whatever its mode and client.
trait Counts: Send + Sync {
    fn check(&self, key: &str, cost: u64) -> Answer;
    fn check_async<'a>(&'a self, key: &'a str, cost: u64) -> Awaited<'a, Answer>;
    fn refund(&self, key: &str, answer: &Answer);
    fn refund_async<'a>(&'a self, key: &'a str, answer: &'a Answer) -> Awaited<'a, ()>;
    fn health(&self) -> Health;
}

/// Asking a server takes a wait, so a check that does not wait goes by what is done without the server.
macro_rules! awaits {
    ($($client:ty),+) => {
        $(impl Counts for AtomicLimiter<$client> {
            fn check(&self, key: &str, cost: u64) -> Answer {
                self.unasked(key, cost)
            }

            fn check_async<'a>(&'a self, key: &'a str, cost: u64) -> Awaited<'a, Answer> {
                Box::pin(self.check_n(key, cost))
            }

            fn refund(&self, _key: &str, _answer: &Answer) {}

            fn refund_async<'a>(&'a self, key: &'a str, answer: &'a Answer) -> Awaited<'a, ()> {
                Box::pin(async move {
                    // What cannot be taken back stays charged.
                    let _ = self.refund(key, answer).await;
                })
            }

            fn health(&self) -> Health {
                self.health()
            }
        })+
    };
}

awaits!(Client, InProcess);

macro_rules! blocks {
    ($($client:ty),+) => {
        $(impl Counts for AtomicLimiter<$client> {
            fn check(&self, key: &str, cost: u64) -> Answer {
                self.check_n(key, cost)
            }

            fn check_async<'a>(&'a self, key: &'a str, cost: u64) -> Awaited<'a, Answer> {
                Box::pin(ready(self.check_n(key, cost)))
            }

            fn refund(&self, key: &str, answer: &Answer) {
                let _ = self.refund(key, answer);
            }

            fn refund_async<'a>(&'a self, key: &'a str, answer: &'a Answer) -> Awaited<'a, ()> {
                let _ = self.refund(key, answer);
                Box::pin(ready(()))
            }

            fn health(&self) -> Health {
                self.health()
            }
        })+
    };
}

blocks!(BlockingClient, BlockingInProcess);
