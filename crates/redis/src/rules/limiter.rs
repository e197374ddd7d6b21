//! The limiters of rules on a server.
//!
//! A rule's limiter has one of three modes and one of several kinds of clients. [`RuleLimiter`] is the common form. A client
//! for threads blocks its callers, whether they may wait or not.

use std::error::Error as StdError;
use std::sync::Arc;

use tollgate::telemetry::{Reading, Readings};
use tollgate::{Class, DecidedBy, Decision, SharedDecision};

use super::denials::{DenialCounter, TWO};
use crate::client::{Blocking, BuildError, Client, InProcess, LimiterBuilder, OnFailure, RuntimeThread};
use crate::guard::Health;
use crate::mode::{AtomicLimiter, LeaseLimiter, WriteBackLimiter};
use tollgate_protocol::Error;
use tollgate_rules::{
    FailurePolicy, MayWait, Mode, OperatorAction, Refusal, Shared, SharedLimiter, SharedReply, SharedRule,
    SharedStore,
};

/// Why a rule has no limiter.
type NoLimiter = Box<dyn StdError + Send + Sync>;

/// Makes the limiters of rules on clients of one kind: `async` and `thread` take apart what a client for threads makes.
macro_rules! stores {
    ($($client:ty $(: $async:ident, $thread:ident)?);+) => {$(
        /// The client counts rules with `store: redis`.
        impl SharedStore for $client {
            fn limiter_for(&self, rule: &SharedRule<'_>) -> Result<Arc<dyn SharedLimiter>, NoLimiter> {
                let builder = |limit| set(self.limiter(rule.name, limit), rule);
                // The same limit with room for one unit more.
                let beyond = || rule.limit.with_most(rule.limit.most().saturating_add(1));
                let beyond = rule.counts_denials.then(beyond).transpose()?;
                let beyond = beyond.map(|beyond| builder(beyond).atomic()).transpose()?;
                let (builder, processes) = (builder(rule.limit), rule.settings.processes);
                let limiter = match rule.settings.mode {
                    Mode::Atomic => ModeLimiter::Atomic(builder.atomic()?$(.$async())?),
                    // 1 is the default of a file without the setting. The mode's own default is more cautious.
                    Mode::Lease if processes == 1 => ModeLimiter::Lease(builder.leases().build().map_err(failed)?$(.$async())?),
                    Mode::Lease => {
                        ModeLimiter::Lease(builder.leases().processes(processes).build().map_err(failed)?$(.$async())?)
                    }
                    Mode::WriteBack => {
                        ModeLimiter::WriteBack(builder.write_back().processes(processes).build().map_err(failed)?$(.$async())?)
                    }
                    other => return Err(format!("has a mode that this store does not know: {other:?}").into()),
                };
                let thread = None$(.or(Some(self.$thread().clone())))?;
                RuleLimiter::build(limiter, thread, beyond$(.map(|beyond| beyond.$async()))?, rule)
            }
        }
    )+};
}

stores!(Client; InProcess; Blocking<Client>: into_inner, thread; Blocking<InProcess>: into_inner, thread);

fn set<T>(builder: LimiterBuilder<T>, rule: &SharedRule<'_>) -> LimiterBuilder<T> {
    let Shared { timeout, on_failure, processes, .. } = rule.settings;
    let builder = match rule.prefix {
        Some(prefix) => builder.prefix(prefix),
        None => builder,
    };
    builder.timeout(timeout).on_failure(match on_failure {
        FailurePolicy::Open => OnFailure::Open,
        FailurePolicy::Closed => OnFailure::Closed,
        FailurePolicy::Local => OnFailure::Local { processes },
        // The strictest one, for one that this version does not know.
        _ => OnFailure::Closed,
    })
}

/// Returns the text that follows the rule's name in the message.
fn failed(error: BuildError) -> NoLimiter {
    match error {
        BuildError::Quota(error) => error.into(),
        other => format!("has no background task: {other}").into(),
    }
}

/// A limiter of one mode, for any client.
#[derive(Clone, Debug)]
enum ModeLimiter {
    Atomic(AtomicLimiter),
    Lease(LeaseLimiter),
    WriteBack(WriteBackLimiter),
}

/// The limiter of a rule, for any mode and client. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct RuleLimiter {
    limiter: ModeLimiter,
    /// The thread that carries the calls, if callers may block. In that case callers never wait in any other way.
    thread: Option<RuntimeThread>,
    denials: Option<Arc<DenialCounter>>,
}

impl RuleLimiter {
    fn build(
        limiter: ModeLimiter,
        thread: Option<RuntimeThread>,
        beyond: Option<AtomicLimiter>,
        rule: &SharedRule<'_>,
    ) -> Result<Arc<dyn SharedLimiter>, NoLimiter> {
        if let (ModeLimiter::WriteBack(limiter), true) = (&limiter, rule.succeeds) {
            limiter.succeed();
        }
        let denials = beyond.map(|beyond| DenialCounter::new(beyond, rule)).transpose()?;
        Ok(Arc::new(Self { limiter, thread, denials: denials.map(Arc::new) }))
    }

    /// Asks the server about a key, and waits for it in the way that the client and the caller allow. Returns `None` if
    /// neither allows to wait.
    fn asked<T, F>(&self, key: &str, wait: MayWait, ask: impl FnOnce(Box<str>) -> F) -> Option<SharedReply<T>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        match (&self.thread, wait) {
            (Some(thread), _) => Some(SharedReply::Now(thread.block_on(ask(key.into())))),
            (None, MayWait::Yes) => Some(SharedReply::Later(Box::pin(ask(key.into())))),
            (None, MayWait::No) => None,
        }
    }

    /// Returns the answer of a limiter that may hold units: those, or more units that it fetches.
    fn fetched<F>(
        &self,
        held: Option<SharedDecision>,
        (key, cost): (&str, u64),
        wait: MayWait,
        fetch: impl FnOnce(Box<str>) -> F,
    ) -> SharedReply<SharedDecision>
    where
        F: Future<Output = SharedDecision> + Send + 'static,
    {
        let held = held.map(SharedReply::Now).or_else(|| self.asked(key, wait, fetch));
        held.unwrap_or_else(|| SharedReply::Now(self.fallback(key, cost)))
    }

    /// Returns the decision on a cost of 0 if this process holds units, so that the limit has room.
    fn holds(&self, key: &str) -> Option<SharedDecision> {
        let held: Decision = match &self.limiter {
            ModeLimiter::Atomic(_) => return None,
            ModeLimiter::Lease(limiter) => limiter.peek(key, 1),
            ModeLimiter::WriteBack(limiter) => limiter.peek_here(key, 1)?.into(),
        };
        let decision = held.for_cost(0).uncharged();
        held.is_allowed().then_some(SharedDecision::new(decision, DecidedBy::Held))
    }

    /// Spends up to `cost` of the units that this process holds. Returns the number of units spent.
    fn spend_held(&self, key: &str, cost: u64) -> u64 {
        match &self.limiter {
            ModeLimiter::Atomic(_) => 0,
            ModeLimiter::Lease(limiter) => limiter.spend_held(key, cost),
            ModeLimiter::WriteBack(limiter) => limiter.spend_held(key, cost),
        }
    }

    /// Returns whether more units than the limit are in use, as the decision on a cost of 0.
    fn peek_use(&self, key: &str, wait: MayWait) -> SharedReply<SharedDecision> {
        let known = self.denials.as_ref().and_then(|denials| {
            let marked = denials.marked(key).map(|decision| SharedDecision::new(decision, DecidedBy::Held));
            marked.or_else(|| self.holds(key))
        });
        if let Some(known) = known {
            return SharedReply::Now(known);
        }
        let asked = self.denials.clone().and_then(|denials| {
            let limiter = self.clone();
            self.asked(key, wait, move |key| async move {
                match denials.beyond.peek_rule(&key, TWO).await {
                    Ok(beyond) => SharedDecision::new(denials.in_use(&beyond), DecidedBy::Server),
                    Err(_) => limiter.fallback(&key, 0),
                }
            })
        });
        asked.unwrap_or_else(|| SharedReply::Now(self.fallback(key, 0)))
    }

    fn health(&self) -> Health {
        match &self.limiter {
            ModeLimiter::Atomic(limiter) => limiter.health(),
            ModeLimiter::Lease(limiter) => limiter.health(),
            ModeLimiter::WriteBack(limiter) => limiter.health(),
        }
    }

    /// Returns the health of each server by name. A server that is alone has an empty name.
    pub(super) fn health_by_server(&self) -> Vec<(Arc<str>, Health)> {
        let named = match &self.limiter {
            ModeLimiter::Atomic(limiter) => limiter.health_by_server(),
            ModeLimiter::Lease(limiter) => limiter.health_by_server(),
            ModeLimiter::WriteBack(limiter) => limiter.health_by_server(),
        };
        if named.is_empty() { vec![(Arc::from(""), self.health())] } else { named }
    }
}

impl SharedLimiter for RuleLimiter {
    fn check(&self, key: &str, cost: u64, reports_only: bool, wait: MayWait) -> SharedReply<SharedDecision> {
        let waits = self.thread.is_some() || wait == MayWait::Yes;
        match &self.limiter {
            _ if cost == 0 => self.peek_use(key, wait),
            // Only the server decides. A check that does not wait decides as if the server did not answer.
            ModeLimiter::Atomic(limiter) => {
                let asked = limiter.clone();
                let ask =
                    move |key: Box<str>| async move { asked.check_rule(&key, cost, reports_only).await };
                let asked = self.asked(key, wait, ask);
                asked.unwrap_or_else(|| SharedReply::Now(limiter.decide_without_server(key, cost)))
            }
            // These decide with the units that this process holds, and fetch more if the call may wait.
            ModeLimiter::Lease(limiter) => {
                let held =
                    if waits { limiter.check_held(key, cost) } else { Some(limiter.check_n(key, cost)) };
                let limiter = limiter.clone();
                let fetch = move |key: Box<str>| async move { limiter.check_n_async(&*key, cost).await };
                self.fetched(held, (key, cost), wait, fetch)
            }
            ModeLimiter::WriteBack(limiter) => {
                let held =
                    if waits { limiter.check_held(key, cost) } else { Some(limiter.check_n(key, cost)) };
                let limiter = limiter.clone();
                let fetch = move |key: Box<str>| async move { limiter.check_n_async(&*key, cost).await };
                self.fetched(held, (key, cost), wait, fetch)
            }
        }
    }

    /// The units of `lease` belong to no key until they are spent, so their use is not known.
    fn peek(&self, key: &str, cost: u64, wait: MayWait) -> SharedReply<Option<SharedDecision>> {
        let asked = match &self.limiter {
            ModeLimiter::Atomic(limiter) => {
                let limiter = limiter.clone();
                self.asked(key, wait, move |key| async move {
                    let peeked = limiter.peek_rule(&key, cost).await.ok()?;
                    Some(SharedDecision::new(peeked, DecidedBy::Server))
                })
            }
            ModeLimiter::Lease(_) => None,
            ModeLimiter::WriteBack(limiter) => {
                let asked = limiter.clone();
                let asked =
                    self.asked(key, wait, move |key| async move { asked.peek_async(&key, cost).await });
                asked.or_else(|| Some(SharedReply::Now(limiter.peek_here(key, cost))))
            }
        };
        asked.unwrap_or(SharedReply::Now(None))
    }

    /// Charges this process's share of the limit, as if the server did not answer.
    fn fallback(&self, key: &str, cost: u64) -> SharedDecision {
        match &self.limiter {
            ModeLimiter::Atomic(limiter) => limiter.decide_without_server(key, cost),
            ModeLimiter::Lease(limiter) => limiter.decide_without_server(key, cost),
            ModeLimiter::WriteBack(limiter) => limiter.decide_without_server(key, cost),
        }
    }

    /// Units of `write-back` are posted later, or are already posted.
    fn can_refund(&self) -> bool {
        !matches!(self.limiter, ModeLimiter::WriteBack(_))
    }

    /// If the server does not answer, the charge stays there.
    fn refund(&self, key: &str, charge: SharedDecision, wait: MayWait) -> SharedReply<()> {
        match &self.limiter {
            ModeLimiter::Atomic(limiter) => {
                let asked = limiter.clone();
                let ask = move |key: Box<str>| async move { drop(asked.refund(&*key, &charge).await) };
                if let Some(asked) = self.asked(key, wait, ask) {
                    return asked;
                }
                limiter.refund_here(key, &charge);
            }
            ModeLimiter::Lease(limiter) => {
                limiter.refund(key, &charge);
            }
            ModeLimiter::WriteBack(_) => {}
        }
        SharedReply::Now(())
    }

    fn counts_denials(&self) -> bool {
        self.denials.is_some()
    }

    /// Charges nothing at the server if the call may not wait.
    fn count_denied(&self, key: &str, cost: u64, wait: MayWait) -> SharedReply<()> {
        let Some(denials) = self.denials.clone() else { return SharedReply::Now(()) };
        let rest = denials.rest(key, cost, |cost| self.spend_held(key, cost));
        if rest == 0 {
            return SharedReply::Now(());
        }
        let asked = Arc::clone(&denials);
        let ask = move |key: Box<str>| async move { asked.mark(&key, asked.beyond.take(&key, rest).await) };
        self.asked(key, wait, ask).unwrap_or_else(|| {
            denials.mark(key, None);
            SharedReply::Now(())
        })
    }

    fn operate(&self, key: &str, action: OperatorAction, wait: MayWait) -> SharedReply<Result<u64, Refusal>> {
        let ModeLimiter::Atomic(limiter) = &self.limiter else {
            return SharedReply::Now(Err(Refusal::HeldByProcesses));
        };
        let (limiter, denials) = (limiter.clone(), self.denials.clone());
        let done = self.asked(key, wait, move |key| async move {
            let beyond = denials.as_ref().map(|denials| &denials.beyond);
            let done = operate(&limiter, beyond, &key, action).await;
            done.unwrap_or_else(|error| Err(Refusal::NoAnswer(error.to_string().into())))
        });
        done.unwrap_or(SharedReply::Now(Err(Refusal::CannotWait)))
    }

    /// In the modes that hold units in this process, the units belong to no class.
    fn class(&self, class: Class) -> Option<Arc<dyn SharedLimiter>> {
        let ModeLimiter::Atomic(limiter) = &self.limiter else { return None };
        let limiter = ModeLimiter::Atomic(limiter.class(class).ok()?);
        Some(Arc::new(Self { limiter, thread: self.thread.clone(), denials: None }))
    }

    /// With a client for threads, this is left to the client's thread.
    fn close(&self) -> SharedReply<()> {
        match self.limiter.clone() {
            ModeLimiter::Lease(limiter) if self.thread.is_none() => {
                SharedReply::Later(Box::pin(limiter.close()))
            }
            ModeLimiter::WriteBack(limiter) if self.thread.is_none() => {
                SharedReply::Later(Box::pin(async move { _ = limiter.close().await }))
            }
            _ => SharedReply::Now(()),
        }
    }

    /// Returns the health of the server.
    fn readings(&self) -> Vec<Reading> {
        self.health().readings()
    }
}

/// [`SharedLimiter::operate`] in the mode `atomic`.
async fn operate(
    limiter: &AtomicLimiter,
    beyond: Option<&AtomicLimiter>,
    key: &str,
    action: OperatorAction,
) -> Result<Result<u64, Refusal>, Error> {
    let now = limiter.peek_rule(key, 1).await?;
    let (is_block, used) = (now.is_block(), now.limit().saturating_sub(now.remaining()));
    Ok(match action {
        OperatorAction::Inspect => Ok(0),
        OperatorAction::Grant(0) => Ok(0),
        OperatorAction::Grant(_) | OperatorAction::Block(_) if is_block => Err(Refusal::InBlock),
        OperatorAction::Grant(units) => {
            // A denied request has taken a unit beyond the limit, if none is left there.
            let taken = match beyond {
                Some(beyond) => u64::from(beyond.peek_rule(key, 1).await?.remaining() == 0),
                None => 0,
            };
            let back = limiter.give_back(key, units.saturating_add(taken)).await?;
            Ok(back.saturating_sub(taken))
        }
        OperatorAction::Block(length) => {
            if limiter.block_for(key, length).await? {
                Ok(0)
            } else {
                Err(Refusal::NoRoom)
            }
        }
        OperatorAction::Unblock if !is_block => Ok(0),
        OperatorAction::Reset | OperatorAction::Unblock => {
            limiter.forget(key).await?;
            Ok(used)
        }
        other => Err(Refusal::NoAnswer(format!("the store does not know the action {other:?}").into())),
    })
}
