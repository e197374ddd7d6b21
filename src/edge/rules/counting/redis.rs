//! The limiters of rules that processes share.
//!
//! A rule's limiter has one of three modes and one of several kinds of clients. [`SharedLimiter`] is the common
//! form. A client for threads blocks its callers, whether they may wait or not.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio::runtime::Handle;

use super::beyond::{DenialCounter, TWO};
use super::{Denies, NoCounter, OperatorAct, Refusal, SharedDecision, Wait};
use crate::algorithm::Limit;
use crate::base::decision::Decision;
use crate::base::quota::QuotaError;
use crate::edge::redis::{
    Answer, AtomicLimiter, Blocking, BuildError, Builder, Client, DecidedBy, Error, Health, InProcess,
    LeaseLimiter, RuntimeThread, WriteBackLimiter,
};
use crate::edge::rules::rule::{Mode, OnFailure, Shared};
use crate::edge::telemetry::{Event, Reading, Readings};
use crate::limiter::Class;

/// The server of [`RulesBuilder::redis`](crate::rules::RulesBuilder::redis).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Server {
    /// For async code.
    Client(Client),
    /// For threads that may wait.
    Blocking(Blocking<Client>),
    /// A model of a server, used like a client for async code.
    InProcess(InProcess),
    /// A model of a server, used like a client for threads that may wait.
    BlockingInProcess(Blocking<InProcess>),
}

/// Converts the contents of the variants of an enum into the enum.
macro_rules! from {
    ($any:ty: $($content:ty => $variant:ident),+) => {
        $(impl From<$content> for $any {
            fn from(content: $content) -> Self {
                Self::$variant(content)
            }
        })+
    };
}

from!(Server: Client => Client, Blocking<Client> => Blocking, InProcess => InProcess, Blocking<InProcess> => BlockingInProcess);

/// Which side decided, and until when the units are leased.
#[derive(Copy, Clone, Debug)]
pub(crate) struct DecidedWhere {
    by: DecidedBy,
    until_ns: u64,
}

impl DecidedWhere {
    const HELD: Self = Self { by: DecidedBy::Held, until_ns: 0 };
    const SERVER: Self = Self { by: DecidedBy::Server, until_ns: 0 };

    pub(crate) const fn decided_by(self) -> DecidedBy {
        self.by
    }

    /// Whether the decision's numbers describe the limit. They do if the server decided, and not if this process
    /// decided from the part that it holds.
    pub(crate) const fn knows_remaining(self) -> bool {
        matches!(self.by, DecidedBy::Server)
    }

    /// Whether no limiter decided, so that the decision's numbers have no meaning.
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
    /// The prefix of all keys, if it is not the default.
    pub(crate) prefix: Option<Box<str>>,
}

impl Servers {
    pub(crate) fn set(&mut self, server: Server) {
        self.server = Some(server);
        self.runtime = Handle::try_current().ok();
    }

    fn named<T>(&self, builder: Builder<T>) -> Builder<T> {
        match &self.prefix {
            Some(prefix) => builder.prefix(prefix),
            None => builder,
        }
    }

    /// Returns the limiter of a rule, by the rule's identity, and whether another limiter counted for it until now.
    pub(crate) fn limiter(
        &self,
        name: &str,
        rule: Limit,
        how: Shared,
        counts_denials: bool,
        succeeds: bool,
    ) -> Result<Arc<SharedLimiter>, NoCounter> {
        let server = self.server.as_ref().ok_or(NoCounter::NoServer)?;
        // The same limit with room for one unit more.
        let beyond = counts_denials.then(|| rule.with_most(rule.most().saturating_add(1))).transpose()?;
        // Limiters fetch and post with tasks, but the thread that reloads rules may have no runtime. The runtime in
        // which the caller set the server may have ended.
        let kept = self.runtime.as_ref().filter(|_| Handle::try_current().is_err());
        let _entered = kept.map(Handle::enter);
        macro_rules! of {
            ($client:expr $(, $async:ident, $thread:expr)?) => {{
                let builder = set(self.named($client.limiter(name, rule)), how);
                let beyond = beyond.map(|beyond| set(self.named($client.limiter(name, beyond)), how).atomic()).transpose()?;
                let limiter: ModeLimiter = match how.mode {
                    Mode::Atomic => builder.atomic()?$(.$async())?.into(),
                    // 1 is the default of a file without the setting. The mode's own default is more cautious.
                    Mode::Lease if how.processes == 1 => builder.leases().build()?$(.$async())?.into(),
                    Mode::Lease => builder.leases().processes(how.processes).build()?$(.$async())?.into(),
                    Mode::WriteBack => builder.write_back().processes(how.processes).build()?$(.$async())?.into(),
                };
                (limiter, beyond$(.map(|beyond| beyond.$async()))?, None$(.or(Some($thread)))?)
            }};
        }
        let (limiter, beyond, thread) = match server {
            Server::Client(client) => of!(client),
            Server::InProcess(server) => of!(server),
            Server::Blocking(client) => of!(client, into_inner, client.thread().clone()),
            Server::BlockingInProcess(server) => of!(server, into_inner, server.thread().clone()),
        };
        if let (ModeLimiter::WriteBack(limiter), true) = (&limiter, succeeds) {
            limiter.succeed();
        }
        let denials = beyond.map(|beyond| DenialCounter::new(beyond, &rule, how.mode));
        Ok(Arc::new(SharedLimiter { limiter, thread, denials: denials.transpose()? }))
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

fn set<T>(builder: Builder<T>, how: Shared) -> Builder<T> {
    use crate::edge::redis::OnFailure as Policy;
    builder.timeout(how.timeout).on_failure(match how.on_failure {
        OnFailure::Open => Policy::Open,
        OnFailure::Closed => Policy::Closed,
        OnFailure::Local => Policy::Local { processes: how.processes },
    })
}

impl From<Answer> for SharedDecision {
    fn from(answer: Answer) -> Self {
        let by = DecidedWhere { by: answer.by(), until_ns: answer.leased_until_ns() };
        Self { decision: answer.decision(), by }
    }
}

/// A limiter of one mode, for any client.
#[derive(Debug)]
enum ModeLimiter {
    Atomic(AtomicLimiter),
    Lease(LeaseLimiter),
    WriteBack(WriteBackLimiter),
}

from!(ModeLimiter: AtomicLimiter => Atomic, LeaseLimiter => Lease, WriteBackLimiter => WriteBack);

/// The limiter of a rule that processes share, for any mode and client.
#[derive(Debug)]
pub(crate) struct SharedLimiter {
    limiter: ModeLimiter,
    /// The thread that carries the calls, if callers may block. In that case callers never wait in any other way.
    thread: Option<RuntimeThread>,
    denials: Option<DenialCounter>,
}

impl SharedLimiter {
    /// Waits for the server in the way that the client and the caller allow. Returns `None` if neither allows to wait.
    async fn asked<R>(&self, wait: Wait, asked: impl Future<Output = R>) -> Option<R> {
        match (&self.thread, wait) {
            (Some(thread), _) => Some(thread.block_on(asked)),
            (None, Wait::Yes) => Some(asked.await),
            (None, Wait::No) => None,
        }
    }

    /// Returns the limiter of a class of requests, which counts in the same state.
    ///
    /// # Errors
    /// Returns an error if less than one unit is left for the class, or in a mode that holds units in this process: they
    /// belong to no class.
    pub(crate) fn class(&self, class: Class) -> Result<Self, QuotaError> {
        let ModeLimiter::Atomic(limiter) = &self.limiter else {
            return Err(QuotaError::worded("only the mode atomic has classes".to_owned()));
        };
        let limiter = limiter.class(class)?.into();
        Ok(Self { limiter, thread: self.thread.clone(), denials: None })
    }

    /// Decides, and charges an admitted request.
    pub(crate) async fn check(&self, key: &str, cost: u64, denies: Denies, wait: Wait) -> SharedDecision {
        let only_reports = denies == Denies::Nothing;
        let answer = match &self.limiter {
            // Only the server decides. A check that does not wait decides as if the server did not answer.
            ModeLimiter::Atomic(limiter) => {
                match self.asked(wait, limiter.check_rule(key, cost, only_reports)).await {
                    Some(answer) => answer,
                    None => limiter.decide_without_server(key, cost),
                }
            }
            // These decide with the units that this process holds, and fetch more if the call may wait.
            ModeLimiter::Lease(limiter) => match self.asked(wait, limiter.check_n_async(key, cost)).await {
                Some(answer) => answer,
                None => limiter.check_n(key, cost),
            },
            ModeLimiter::WriteBack(limiter) => match self.asked(wait, limiter.check_n_async(key, cost)).await
            {
                Some(answer) => answer,
                None => limiter.check_n(key, cost),
            },
        };
        answer.into()
    }

    /// Decides, and charges this process's share of the limit, as if the server did not answer.
    pub(crate) fn decide_without_server(&self, key: &str, cost: u64) -> SharedDecision {
        let answer = match &self.limiter {
            ModeLimiter::Atomic(limiter) => limiter.decide_without_server(key, cost),
            ModeLimiter::Lease(limiter) => limiter.decide_without_server(key, cost),
            ModeLimiter::WriteBack(limiter) => limiter.decide_without_server(key, cost),
        };
        answer.into()
    }

    /// Returns the decision that a check would give, for a mode whose charges cannot be refunded. Charges nothing. `None`
    /// for other modes, and if only the server knows the decision.
    pub(crate) async fn peek(&self, key: &str, cost: u64, wait: Wait) -> Option<SharedDecision> {
        let ModeLimiter::WriteBack(limiter) = &self.limiter else { return None };
        let peeked = self.asked(wait, limiter.peek_async(key, cost)).await;
        peeked.unwrap_or_else(|| limiter.peek_here(key, cost)).map(Into::into)
    }

    /// Whether a charge can be refunded. Units of `write-back` are posted later, or are already posted.
    pub(crate) const fn can_refund(&self) -> bool {
        !matches!(self.limiter, ModeLimiter::WriteBack(_))
    }

    /// Refunds a charge as far as possible. If the server does not answer, the charge stays there.
    pub(crate) async fn refund(&self, key: &str, charge: SharedDecision, wait: Wait) {
        let answer = charge.by.answer(charge.decision);
        match &self.limiter {
            ModeLimiter::Atomic(limiter) => {
                if self.asked(wait, limiter.refund(key, &answer)).await.is_none() {
                    limiter.refund_here(key, &answer);
                }
            }
            ModeLimiter::Lease(limiter) => {
                limiter.refund(key, &answer);
            }
            ModeLimiter::WriteBack(_) => {}
        }
    }

    /// Returns the decision on a cost of 0 if this process holds units, so that the limit has room.
    fn holds(&self, key: &str) -> Option<SharedDecision> {
        let held: Decision = match &self.limiter {
            ModeLimiter::Atomic(_) => return None,
            ModeLimiter::Lease(limiter) => limiter.peek(key, 1),
            ModeLimiter::WriteBack(limiter) => limiter.peek_here(key, 1)?.into(),
        };
        let decision = held.for_cost(0).uncharged();
        held.is_allowed().then_some(SharedDecision { decision, by: DecidedWhere::HELD })
    }

    /// Spends up to `cost` of the units that this process holds. Returns the number of units spent.
    fn spend_held(&self, key: &str, cost: u64) -> u64 {
        match &self.limiter {
            ModeLimiter::Atomic(_) => 0,
            ModeLimiter::Lease(limiter) => limiter.spend_held(key, cost),
            ModeLimiter::WriteBack(limiter) => limiter.spend_held(key, cost),
        }
    }

    /// Charges a request that this limiter denied, until one unit beyond the limit is in use. Charges nothing at the
    /// server if the call may not wait. Only a limiter that counts denials does anything.
    pub(crate) async fn count_denied(&self, key: &str, cost: u64, wait: Wait) {
        let Some(denials) = &self.denials else { return };
        let rest = denials.rest(key, cost, |cost| self.spend_held(key, cost));
        if rest > 0 {
            let over = self.asked(wait, denials.beyond.take(key, rest)).await;
            denials.mark(key, over.flatten());
        }
    }

    /// Returns whether more units than the limit are in use, as the decision on a cost of 0. `None` if this limiter
    /// counts no denials.
    pub(crate) async fn peek_use(&self, key: &str, wait: Wait) -> Option<SharedDecision> {
        let denials = self.denials.as_ref()?;
        if let Some(decision) = denials.marked(key) {
            return Some(SharedDecision { decision, by: DecidedWhere::HELD });
        }
        if let Some(known) = self.holds(key) {
            return Some(known);
        }
        let beyond = self.asked(wait, denials.beyond.peek_rule(key, TWO)).await.and_then(Result::ok);
        Some(match beyond {
            Some(beyond) => SharedDecision { decision: denials.in_use(&beyond), by: DecidedWhere::SERVER },
            None => self.decide_without_server(key, 0),
        })
    }

    /// Returns the decision on one unit, as far as it is known. Charges nothing.
    pub(crate) async fn inspect(&self, key: &str, wait: Wait) -> Option<Decision> {
        match &self.limiter {
            ModeLimiter::Atomic(limiter) => self.asked(wait, limiter.peek_rule(key, 1)).await?.ok(),
            _ => self.peek(key, 1, wait).await.map(|peeked| peeked.decision),
        }
    }

    /// Does at the server what an operator wants. Returns the units that were given back.
    pub(crate) async fn operate(&self, key: &str, verb: OperatorAct, wait: Wait) -> Result<u64, Refusal> {
        let ModeLimiter::Atomic(limiter) = &self.limiter else { return Err(Refusal::HeldByProcesses) };
        let beyond = self.denials.as_ref().map(|denials| &denials.beyond);
        let acted = self.asked(wait, operate(limiter, beyond, key, verb)).await;
        match acted.ok_or(Refusal::CannotWait)? {
            Ok(result) => result,
            Err(error) => Err(Refusal::NoAnswer(error.to_string().into())),
        }
    }

    /// Gives the server what this process holds, or has not reported yet. With a client for threads, this is left to the
    /// client's thread.
    pub(crate) async fn close(&self) {
        match &self.limiter {
            ModeLimiter::Lease(limiter) if self.thread.is_none() => limiter.clone().close().await,
            ModeLimiter::WriteBack(limiter) if self.thread.is_none() => drop(limiter.clone().close().await),
            _ => {}
        }
    }

    /// Returns the health of the server.
    pub(crate) fn readings(&self) -> Vec<Reading> {
        self.health().readings()
    }

    fn health(&self) -> Health {
        match &self.limiter {
            ModeLimiter::Atomic(limiter) => limiter.health(),
            ModeLimiter::Lease(limiter) => limiter.health(),
            ModeLimiter::WriteBack(limiter) => limiter.health(),
        }
    }

    /// Returns the health of each server by name. A server that is alone has an empty name.
    pub(crate) fn health_by_server(&self) -> Vec<(Arc<str>, Health)> {
        let named = match &self.limiter {
            ModeLimiter::Atomic(limiter) => limiter.health_by_server(),
            ModeLimiter::Lease(limiter) => limiter.health_by_server(),
            ModeLimiter::WriteBack(limiter) => limiter.health_by_server(),
        };
        if named.is_empty() { vec![(Arc::from(""), self.health())] } else { named }
    }
}

/// [`SharedLimiter::operate`] in the mode `atomic`.
async fn operate(
    limiter: &AtomicLimiter,
    beyond: Option<&AtomicLimiter>,
    key: &str,
    verb: OperatorAct,
) -> Result<Result<u64, Refusal>, Error> {
    let now = limiter.peek_rule(key, 1).await?;
    let (is_block, used) = (now.is_block(), now.limit().saturating_sub(now.remaining()));
    Ok(match verb {
        OperatorAct::Inspect => Ok(0),
        OperatorAct::Grant(0) => Ok(0),
        OperatorAct::Grant(_) | OperatorAct::Block(_) if is_block => Err(Refusal::InBlock),
        OperatorAct::Grant(units) => {
            // A denied request has taken a unit beyond the limit, if none is left there.
            let taken = match beyond {
                Some(beyond) => u64::from(beyond.peek_rule(key, 1).await?.remaining() == 0),
                None => 0,
            };
            let back = limiter.refund_any(key, units.saturating_add(taken)).await?;
            Ok(back.saturating_sub(taken))
        }
        OperatorAct::Block(length) => {
            if limiter.block_for(key, length).await? {
                Ok(0)
            } else {
                Err(Refusal::NoRoom)
            }
        }
        OperatorAct::Unblock if !is_block => Ok(0),
        OperatorAct::Reset | OperatorAct::Unblock => {
            limiter.forget(key).await?;
            Ok(used)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::key_hash;

    /// The value of `printf 'd|a\0x' | sha256sum`: other builds must select the same keys.
    #[test]
    fn key_hash_is_the_same_in_all_builds() {
        assert_eq!(key_hash("d|a", "x"), 0xdae8_ebba_aaf8_2961);
    }
}
