//! The limiters of rules that processes share.
//!
//! A rule's limiter has one of three modes and one of several kinds of clients. [`SharedLimiter`] is the common
//! interface.

use std::future::ready;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;

use super::beyond::CountsDenials;
use super::{NoCounter, SharedDecision, SharedLimiter};
use crate::algorithm::{self, Limit as RuleLimit, LimitKind};
use crate::base::decision::Decision;
use crate::base::quota::QuotaError;
use crate::edge::redis::{
    Answer, AtomicLimiter, BlockingClient, BlockingInProcess, BlockingLeaseLimiter, BlockingWriteBackLimiter,
    BuildError, Builder, Client, DecidedBy, InProcess, LeaseLimiter, Limit, WriteBackLimiter,
};
use crate::edge::rules::rule::{Mode, OnFailure, Shared};
use crate::edge::telemetry::{Event, Reading, Readings};

/// The server of [`RulesBuilder::redis`](crate::rules::RulesBuilder::redis).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Server {
    /// For async code.
    Client(Client),
    /// For threads that may wait.
    Blocking(BlockingClient),
    /// A model of a server, used like a client for async code.
    InProcess(InProcess),
    /// A model of a server, used like a client for threads that may wait.
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

/// Which side decided, and until when the units are leased.
#[derive(Copy, Clone, Debug)]
pub(crate) struct DecidedWhere {
    by: DecidedBy,
    until_ns: u64,
}

impl DecidedWhere {
    pub(super) const HELD: Self = Self { by: DecidedBy::Held, until_ns: 0 };
    pub(super) const SERVER: Self = Self { by: DecidedBy::Server, until_ns: 0 };

    pub(crate) const fn decided_by(self) -> DecidedBy {
        self.by
    }

    /// Whether the decision's numbers describe the limit. They do if the server decided, and not if this process
    /// decided from the part that it holds.
    pub(crate) const fn knows_remaining(self) -> bool {
        matches!(self.by, DecidedBy::Server)
    }

    /// Whether no limiter decided, so that the decision's numbers have no meaning.
    #[cfg(feature = "tower")]
    pub(crate) const fn is_undecided(self) -> bool {
        matches!(self.by, DecidedBy::Open | DecidedBy::Closed)
    }

    /// Returns the event that is recorded instead of the decision.
    pub(crate) const fn event(self) -> Option<Event> {
        self.by.event()
    }

    const fn answer(self, charge: Decision) -> Answer {
        Answer::leased(charge, self.by, self.until_ns)
    }
}

impl From<BuildError> for NoCounter {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Quota(error) => error.into(),
            other => Self::Task(other.to_string().into()),
        }
    }
}

/// The server that counts shared rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct Servers {
    server: Option<Server>,
    /// The tokio runtime in which the caller set the server.
    runtime: Option<Handle>,
    /// Whether this process counts shared rules alone.
    pub(crate) alone: bool,
}

impl Servers {
    pub(crate) fn set(&mut self, server: Server) {
        self.server = Some(server);
        self.runtime = Handle::try_current().ok();
    }

    /// Returns the limiter of a rule, by the rule's identity, and whether another limiter counted for it until now.
    pub(crate) fn limiter(
        &self,
        name: &str,
        rule: RuleLimit,
        how: Shared,
        counts_denials: bool,
        succeeds: bool,
    ) -> Result<Arc<dyn SharedLimiter>, NoCounter> {
        let server = self.server.as_ref().ok_or(NoCounter::NoServer)?;
        let limit = limit(&rule)?;
        let beyond = counts_denials.then(|| limit_beyond(&rule)).transpose()?;
        // Limiters fetch and post with tasks, but the thread that reloads rules may have no runtime. The runtime in
        // which the caller set the server may have ended.
        let kept = self.runtime.as_ref().filter(|_| Handle::try_current().is_err());
        let _entered = kept.map(Handle::enter);
        macro_rules! of {
            ($client:expr) => {{
                let builder = set($client.limiter(name, limit), how);
                let beyond = beyond.map(|beyond| set($client.limiter(name, beyond), how).atomic()).transpose()?;
                let counts: Arc<dyn SharedLimiter> = match how.mode {
                    Mode::Atomic => Arc::new(builder.atomic()?),
                    // 1 is the default of a file without the setting. The mode's own default is more cautious.
                    Mode::Lease if how.processes == 1 => Arc::new(builder.leases().build()?),
                    Mode::Lease => Arc::new(builder.leases().processes(how.processes).build()?),
                    Mode::WriteBack => Arc::new(builder.write_back().processes(how.processes).build()?),
                };
                match beyond {
                    Some(beyond) => Arc::new(CountsDenials::new(counts, beyond, &rule, how.mode)?),
                    None => counts,
                }
            }};
        }
        let counts = match server {
            Server::Client(client) => of!(client),
            Server::InProcess(server) => of!(server),
            Server::Blocking(client) => of!(client),
            Server::BlockingInProcess(server) => of!(server),
        };
        if succeeds {
            counts.succeed();
        }
        Ok(counts)
    }
}

/// Returns a number that selects keys of a rule. All processes get the same number, whatever their build target is.
pub(crate) fn key_hash(identity: &str, key: &str) -> u64 {
    let digest = Sha256::new().chain_update(identity).chain_update([0]).chain_update(key).finalize();
    digest.iter().take(8).fold(0, |hash, byte| (hash << 8) | u64::from(*byte))
}

/// Returns a hash of a long key of a shared rule. All processes get the same hash.
pub(crate) fn key_digest(key: &str) -> u128 {
    Sha256::digest(key).iter().take(16).fold(0, |hash, byte| (hash << 8) | u128::from(*byte))
}

/// Returns the form of the algorithm that the scripts in Redis support.
fn limit(rule: &RuleLimit) -> Result<Limit, QuotaError> {
    let quota = rule.quota();
    Ok(match rule.canonical().kind() {
        LimitKind::FixedWindow => Limit::fixed_window(quota),
        LimitKind::SlidingWindow { strict: false } => Limit::sliding_window(quota),
        LimitKind::SlidingWindow { strict: true } => Limit::sliding_window(quota).strict(),
        LimitKind::SubWindow { parts, strict } => {
            let counter = algorithm::SubWindow::try_new(quota, parts)?;
            (if strict { counter.strict() } else { counter }).into()
        }
        LimitKind::SlidingLog => algorithm::SlidingLog::try_new(quota)?.into(),
        // Rules have no other algorithms.
        _ => Limit::gcra(quota),
    })
}

/// Returns the same limit with room for one unit more.
fn limit_beyond(rule: &RuleLimit) -> Result<Limit, QuotaError> {
    limit(&rule.with_most(rule.most().saturating_add(1))?)
}

/// Checks that a script can count the limit.
pub(crate) fn check(rule: &RuleLimit) -> Result<(), QuotaError> {
    limit(rule)?.check()
}

fn set<T>(builder: Builder<T>, how: Shared) -> Builder<T> {
    use crate::edge::redis::OnFailure as Policy;
    builder.timeout(how.timeout).on_failure(match how.on_failure {
        OnFailure::Open => Policy::Open,
        OnFailure::Closed => Policy::Closed,
        OnFailure::Local => Policy::Local { processes: how.processes },
    })
}

fn said(answer: Answer) -> SharedDecision {
    (answer.decision(), DecidedWhere { by: answer.by(), until_ns: answer.leased_until_ns() })
}

macro_rules! shared_store {
    ($one:ty, $other:ty; $($rest:tt)*) => {
        shared_store!($one; $($rest)*);
        shared_store!($other; $($rest)*);
    };
    (
        $store:ty; |$this:ident, $key:ident, $given:ident|
        check: $check:expr, check_async: $check_async:expr, refund: $refund:expr
        $(, refund_async: $refund_async:expr)? $(, holds: $holds:expr)?
        $(, look: $look:expr, look_async: $look_async:expr)? $(, close: $close:expr)? $(,)?
    ) => {
        impl SharedLimiter for $store {
            fn check(&self, $key: &str, $given: u64) -> SharedDecision {
                let $this = self;
                said($check)
            }

            fn check_async<'a>(&'a self, $key: &'a str, $given: u64) -> BoxFuture<'a, SharedDecision> {
                let $this = self;
                Box::pin($check_async.map(said))
            }

            $(fn close(&self) -> BoxFuture<'_, ()> {
                let $this = self;
                Box::pin($close.map(drop))
            })?

            fn decide_without_server(&self, key: &str, cost: u64) -> SharedDecision {
                said(self.decide_without_server(key, cost))
            }

            $(fn holds(&self, $key: &str) -> Option<SharedDecision> {
                let ($this, $given) = (self, 1);
                let held: Option<Decision> = $holds;
                let held = held.filter(Decision::is_allowed)?;
                Some((held.for_cost(0).uncharged(), DecidedWhere::HELD))
            }

            fn spend_held(&self, key: &str, cost: u64) -> u64 {
                self.spend_held(key, cost)
            })?

            fn refund(&self, $key: &str, charge: &Decision, by: DecidedWhere) {
                let ($this, $given) = (self, &by.answer(*charge));
                // Some modes do not use these arguments.
                let _ = ($this, $key, $given);
                let _ = $refund;
            }

            $(fn refund_async<'a>(&'a self, $key: &'a str, charge: &'a Decision, by: DecidedWhere) -> BoxFuture<'a, ()> {
                let $this = self;
                // If the refund fails, the charge stays.
                Box::pin(async move {
                    let $given = &by.answer(*charge);
                    _ = $refund_async.await;
                })
            })?

            $(fn undoes(&self) -> bool {
                false
            }

            fn look(&self, $key: &str, $given: u64) -> Option<SharedDecision> {
                let $this = self;
                $look.map(said)
            }

            fn look_async<'a>(&'a self, $key: &'a str, $given: u64) -> BoxFuture<'a, Option<SharedDecision>> {
                let $this = self;
                Box::pin($look_async.map(|looked| looked.map(said)))
            }

            fn succeed(&self) {
                self.succeed();
            })?

            fn readings(&self) -> Vec<Reading> {
                self.health().readings()
            }
        }
    };
}

// Only the server decides, and asking it takes a wait. A check that does not wait decides as if the server did not
// answer.
shared_store!(AtomicLimiter<Client>, AtomicLimiter<InProcess>; |limiter, key, given|
    check: limiter.decide_without_server(key, given), check_async: limiter.check_n(key, given),
    refund: limiter.refund_here(key, given), refund_async: limiter.refund(key, given));
shared_store!(AtomicLimiter<BlockingClient>, AtomicLimiter<BlockingInProcess>; |limiter, key, given|
    check: limiter.check_n(key, given), check_async: ready(limiter.check_n(key, given)),
    refund: limiter.refund(key, given));

// The units that this process holds decide. A check that may wait fetches more.
shared_store!(LeaseLimiter; |limiter, key, given|
    check: limiter.check_n(key, given), check_async: limiter.check_n_async(key, given),
    refund: limiter.refund(key, given),
    holds: Some(limiter.peek(key, given)), close: limiter.clone().close());
shared_store!(BlockingLeaseLimiter; |limiter, key, given|
    check: limiter.check_n_wait(key, given), check_async: ready(limiter.check_n_wait(key, given)),
    refund: limiter.refund(key, given),
    holds: Some(limiter.peek(key, given)));

// Charges are posted later, or are already posted, so there is no refund.
shared_store!(WriteBackLimiter; |limiter, key, given|
    check: limiter.check_n(key, given), check_async: limiter.check_n_async(key, given), refund: (),
    holds: limiter.look(key, given).map(Into::into),
    look: limiter.look(key, given), look_async: limiter.look_async(key, given), close: limiter.clone().close());
shared_store!(BlockingWriteBackLimiter; |limiter, key, given|
    check: limiter.check_n_wait(key, given), check_async: ready(limiter.check_n_wait(key, given)), refund: (),
    holds: limiter.look_here(key, given).map(Into::into),
    look: limiter.look(key, given), look_async: ready(limiter.look(key, given)));

#[cfg(test)]
mod tests {
    use super::{key_digest, key_hash};

    /// The value of `printf 'd|a\0x' | sha256sum`: other builds must select the same keys.
    #[test]
    fn key_hash_is_the_same_in_all_builds() {
        assert_eq!(key_hash("d|a", "x"), 0xdae8_ebba_aaf8_2961);
    }

    /// The value of `printf abc | sha256sum`.
    #[test]
    fn key_digest_is_the_same_in_all_builds() {
        assert_eq!(key_digest("abc"), 0xba78_16bf_8f01_cfea_4141_40de_5dae_2223);
    }
}
