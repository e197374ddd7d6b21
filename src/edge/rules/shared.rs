//! Rules that processes share: where they are counted.
//!
//! A rule's limiter is one of three modes on one of several kinds of clients; here they are made alike, by what a rule needs of them.

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;

use sha2::{Digest, Sha256};
use tokio::runtime::Handle;

use super::chosen::NoStore;
use super::error::Unmade;
use super::spec::{self, Mode, OnFailure, Shared};
use crate::base::decision::Decision;
use crate::base::quota::{Quota, QuotaError};
use crate::edge::redis::{
    Answer, AtomicLimiter, BlockingClient, BlockingInProcess, BlockingLeaseLimiter, BlockingWriteBackLimiter,
    BuildError, Builder, Client, DecidedBy, Health, InProcess, LeaseLimiter, Limit, WriteBackLimiter,
};
use crate::edge::telemetry::{Event, Reading, Readings};

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
pub(super) type Said = (Decision, By);

/// Who decided, and until when the units were leased.
#[derive(Copy, Clone, Debug)]
pub(super) struct By {
    by: DecidedBy,
    until_ns: u64,
}

impl By {
    pub(super) const fn decided_by(self) -> DecidedBy {
        self.by
    }

    /// Whether the decision's figures are those of the limit: it is the server that made it, and not a part that this process holds.
    pub(super) const fn knows_remaining(self) -> bool {
        matches!(self.by, DecidedBy::Server)
    }

    /// Whether nobody decided, so that its figures mean nothing.
    #[cfg(feature = "tower")]
    pub(super) const fn is_undecided(self) -> bool {
        matches!(self.by, DecidedBy::Open | DecidedBy::Closed)
    }

    /// What is recorded of it in the place of its decision.
    pub(super) const fn event(self) -> Option<Event> {
        self.by.event()
    }

    const fn answer(self, charge: Decision) -> Answer {
        Answer::leased(charge, self.by, self.until_ns)
    }
}

impl From<BuildError> for Unmade {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Quota(error) => error.into(),
            other => Self::Task(other.to_string().into()),
        }
    }
}

/// Where shared rules are counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Servers {
    server: Option<Server>,
    /// In which the server was named.
    runtime: Option<Handle>,
    alone: bool,
}

impl Servers {
    pub(super) fn set(&mut self, server: Server) {
        self.server = Some(server);
        self.runtime = Handle::try_current().ok();
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

    /// The limiter of a rule, by its identity; whether another one has counted for it until now.
    pub(super) fn limiter(
        &self,
        name: &str,
        quota: Quota,
        algorithm: spec::Algorithm,
        how: Shared,
        succeeds: bool,
    ) -> Result<SharedLimiter, Unmade> {
        let limit = limit(quota, algorithm).ok_or(NoStore::Algorithm)?;
        // Those that fetch and post do it by tasks; whoever loads rules again may be a thread that knows of no runtime.
        // The one in which the server was named may have ended meanwhile.
        let kept = self.runtime.as_ref().filter(|_| Handle::try_current().is_err());
        let _entered = kept.map(Handle::enter);
        macro_rules! of {
            ($client:expr) => {{
                let builder = set($client.limiter(name, limit), how);
                let counts: Box<dyn Counts> = match how.mode {
                    Mode::Atomic => Box::new(builder.atomic()?),
                    // One is the default of a file that does not say: the mode's own is more cautious.
                    Mode::Lease if how.processes == 1 => Box::new(builder.leases().build()?),
                    Mode::Lease => Box::new(builder.leases().processes(how.processes).build()?),
                    Mode::WriteBack => Box::new(builder.write_back().processes(how.processes).build()?),
                };
                counts
            }};
        }
        let counts = match self.server.as_ref().ok_or(NoStore::Algorithm)? {
            Server::Client(client) => of!(client),
            Server::InProcess(server) => of!(server),
            Server::Blocking(client) => of!(client),
            Server::BlockingInProcess(server) => of!(server),
        };
        if succeeds {
            counts.succeed();
        }
        Ok(SharedLimiter(counts))
    }
}

/// A number by which a key of a rule is chosen alike by all processes, whatever they were built for.
pub(super) fn hash(identity: &str, key: &str) -> u64 {
    let digest = Sha256::new().chain_update(identity).chain_update([0]).chain_update(key).finalize();
    digest.iter().take(8).fold(0, |hash, byte| (hash << 8) | u64::from(*byte))
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
    use crate::edge::redis::OnFailure as Policy;
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

    /// What a check would say, of a mode whose charges are not taken back; charges nothing. `None` of others, and if only the server
    /// knows.
    pub(super) fn look(&self, key: &str, cost: u64) -> Option<Said> {
        self.0.look(key, cost).map(said)
    }

    /// The same for who may wait.
    pub(super) async fn look_async(&self, key: &str, cost: u64) -> Option<Said> {
        self.0.look_async(key, cost).await.map(said)
    }

    /// Takes a charge back, as far as that needs no waiting.
    pub(super) fn refund(&self, key: &str, charge: &Decision, by: Option<By>) {
        if let Some(by) = by {
            self.0.refund(key, &by.answer(*charge));
        }
    }

    /// The same for who may wait.
    pub(super) async fn refund_async(&self, key: &str, charge: &Decision, by: Option<By>) {
        if let Some(by) = by {
            let answer = by.answer(*charge);
            self.0.refund_async(key, &answer).await;
        }
    }

    /// Whether a charge can be taken back.
    pub(super) fn undoes(&self) -> bool {
        self.0.undoes()
    }

    /// How the server fares.
    pub(super) fn readings(&self) -> Vec<Reading> {
        self.0.health().readings()
    }
}

fn said(answer: Answer) -> Said {
    (answer.decision(), By { by: answer.by(), until_ns: answer.leased_until_ns() })
}

type Awaited<'a, R> = Pin<Box<dyn Future<Output = R> + Send + 'a>>;

/// What a rule needs of a limiter, whatever its mode and client.
trait Counts: Send + Sync {
    fn check(&self, key: &str, cost: u64) -> Answer;
    fn check_async<'a>(&'a self, key: &'a str, cost: u64) -> Awaited<'a, Answer>;
    fn refund(&self, key: &str, answer: &Answer);
    fn refund_async<'a>(&'a self, key: &'a str, answer: &'a Answer) -> Awaited<'a, ()>;
    /// Whether a charge can be taken back.
    fn undoes(&self) -> bool {
        true
    }
    /// What a check would decide, where a charge cannot be taken back.
    fn look(&self, _key: &str, _cost: u64) -> Option<Answer> {
        None
    }
    fn look_async<'a>(&'a self, _key: &'a str, _cost: u64) -> Awaited<'a, Option<Answer>> {
        Box::pin(ready(None))
    }
    /// Another limiter has counted for the rule until now.
    fn succeed(&self) {}
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

            fn refund(&self, key: &str, answer: &Answer) {
                self.refund_here(key, answer);
            }

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

/// What this process holds decides, and a check that may wait asks for more.
macro_rules! holds {
    ($limiter:ty, $wait:ident $(, $await:tt)?; |$held:ident, $key:ident, $answer:ident| $refund:expr) => {
        impl Counts for $limiter {
            holds!(@check $wait $($await)?);

            fn refund(&self, $key: &str, $answer: &Answer) {
                let $held = self;
                let _: u64 = $refund;
            }

            fn refund_async<'a>(&'a self, key: &'a str, answer: &'a Answer) -> Awaited<'a, ()> {
                Counts::refund(self, key, answer);
                Box::pin(ready(()))
            }

            fn health(&self) -> Health {
                self.health()
            }
        }
    };
    (@check $wait:ident await) => {
        fn check(&self, key: &str, cost: u64) -> Answer {
            self.check_n(key, cost)
        }

        fn check_async<'a>(&'a self, key: &'a str, cost: u64) -> Awaited<'a, Answer> {
            Box::pin(self.$wait(key, cost))
        }
    };
    (@check $wait:ident) => {
        fn check(&self, key: &str, cost: u64) -> Answer {
            self.$wait(key, cost)
        }

        fn check_async<'a>(&'a self, key: &'a str, cost: u64) -> Awaited<'a, Answer> {
            Box::pin(ready(self.$wait(key, cost)))
        }
    };
}

holds!(LeaseLimiter, check_n_async, await; |held, key, answer| held.refund(key, answer));
holds!(BlockingLeaseLimiter, check_n_wait; |held, key, answer| held.refund(key, answer));

macro_rules! tells_later {
    ($limiter:ty, $check:ident, |$held:ident, $key:ident, $cost:ident| $checked:expr, $looked:expr) => {
        impl Counts for $limiter {
            fn check(&self, key: &str, cost: u64) -> Answer {
                self.$check(key, cost)
            }

            fn check_async<'a>(&'a self, $key: &'a str, $cost: u64) -> Awaited<'a, Answer> {
                let $held = self;
                Box::pin($checked)
            }

            // It has told nobody yet, or has told them already.
            fn refund(&self, _key: &str, _answer: &Answer) {}

            fn refund_async<'a>(&'a self, _key: &'a str, _answer: &'a Answer) -> Awaited<'a, ()> {
                Box::pin(ready(()))
            }

            fn undoes(&self) -> bool {
                false
            }

            fn look(&self, key: &str, cost: u64) -> Option<Answer> {
                self.look(key, cost)
            }

            fn look_async<'a>(&'a self, $key: &'a str, $cost: u64) -> Awaited<'a, Option<Answer>> {
                let $held = self;
                Box::pin($looked)
            }

            fn succeed(&self) {
                self.succeed();
            }

            fn health(&self) -> Health {
                self.health()
            }
        }
    };
}

tells_later!(
    WriteBackLimiter,
    check_n,
    |held, key, cost| held.check_n_async(key, cost),
    held.look_async(key, cost)
);
tells_later!(
    BlockingWriteBackLimiter,
    check_n_wait,
    |held, key, cost| ready(held.check_n_wait(key, cost)),
    ready(held.look(key, cost))
);

#[cfg(test)]
mod tests {
    use super::hash;

    /// As `printf 'd|a\0x' | sha256sum` says: other builds have to choose the same keys.
    #[test]
    fn keys_are_chosen_alike_by_all_builds() {
        assert_eq!(hash("d|a", "x"), 0xdae8_ebba_aaf8_2961);
    }
}
