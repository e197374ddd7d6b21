//! Stores that machines share: what a store must do, and the store of a set of rules.
//!
//! ```text
//! RulesBuilder::shared(store) ──► SharedStore::limiter_for(rule) ──► SharedLimiter: one for each rule with `store: redis`
//! ```
//! Rules know no server. A limiter answers at once where it can. Where it cannot, and the caller may wait, it answers with
//! a future. So a limiter that holds units in this process costs no allocation.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll};

use sha2::{Digest, Sha256};
use tollgate::telemetry::Reading;
use tollgate::{Class, DecidedBy, Decision, Limit, Outcome, QuotaError, SharedDecision, Timestamp};
use tollgate_config::Shared;

use super::{NoCounter, OperatorAction, Refusal};

/// A store in which several processes count the same rules: those with `store: redis`.
///
/// The clients of the package `tollgate-redis`, with its feature `rules`, are such stores. A program can bring its own, for
/// example one that counts in a database: the example `own_store` is a whole one. [`RulesBuilder::shared`](crate::RulesBuilder::shared) takes it.
///
/// # Examples
/// ```
/// use std::collections::HashMap;
/// use std::error::Error;
/// use std::sync::{Arc, Mutex};
/// use tollgate_rules::{
///     Config, Descriptor, MayWait, Rules, SharedLimiter, SharedReply, SharedRule, SharedStore,
/// };
/// use tollgate::{DecidedBy, Decision, Outcome, SharedDecision, Timestamp};
///
/// /// Counts for ever, whatever the period of a rule is.
/// #[derive(Clone, Debug, Default)]
/// struct Counts(Arc<Mutex<HashMap<String, u64>>>);
///
/// #[derive(Debug)]
/// struct Counter {
///     counts: Counts,
///     name: String,
///     limit: u64,
/// }
///
/// impl SharedStore for Counts {
///     fn limiter_for(&self, rule: &SharedRule<'_>) -> Result<Arc<dyn SharedLimiter>, Box<dyn Error + Send + Sync>> {
///         let (counts, name) = (self.clone(), rule.name.to_owned());
///         Ok(Arc::new(Counter { counts, name, limit: rule.limit.most() }))
///     }
/// }
///
/// impl SharedLimiter for Counter {
///     fn check(&self, key: &str, cost: u64, _: bool, _: MayWait) -> SharedReply<SharedDecision> {
///         let mut counts = self.counts.0.lock().expect("no thread panics with the lock");
///         let used = counts.entry(format!("{}|{key}", self.name)).or_default();
///         let outcome = if *used + cost > self.limit { Outcome::Denied } else { Outcome::Allowed };
///         if outcome == Outcome::Allowed {
///             *used += cost;
///         }
///         let decision = Decision::made_elsewhere(outcome, cost, self.limit, Timestamp::from_secs(0));
///         SharedReply::Now(SharedDecision::new(decision, DecidedBy::Server))
///     }
/// }
///
/// let text = "
/// domain: edge
/// tollgate: { store: redis }
/// descriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 1 } }]
/// ";
/// let store = Counts::default();
/// let machine = || Rules::builder().shared(store.clone()).load([Config::from_yaml("limits.yaml", text)?]);
/// let (one, other) = (machine()?, machine()?);
/// let alice = [Descriptor::new(&[("user", "alice")])];
/// assert!(one.check("edge", &alice).is_allowed());
/// assert!(other.check("edge", &alice).is_denied());
/// # Ok::<(), Box<dyn Error>>(())
/// ```
pub trait SharedStore: fmt::Debug + Send + Sync + 'static {
    /// Creates the limiter of a rule. Each load calls it for the rules that are new, or whose limit or settings changed.
    ///
    /// # Errors
    /// If the store cannot count the rule, so that the load fails. A [`QuotaError`] becomes "cannot be counted", with its
    /// text. The text of another error follows the file, the line and the name of the rule.
    fn limiter_for(
        &self,
        rule: &SharedRule<'_>,
    ) -> Result<Arc<dyn SharedLimiter>, Box<dyn Error + Send + Sync>>;
}

/// Several sets of rules use one store.
impl<S: SharedStore + ?Sized> SharedStore for Arc<S> {
    fn limiter_for(
        &self,
        rule: &SharedRule<'_>,
    ) -> Result<Arc<dyn SharedLimiter>, Box<dyn Error + Send + Sync>> {
        (**self).limiter_for(rule)
    }
}

/// A rule that a [`SharedStore`] counts.
#[derive(Copy, Clone, Debug)]
#[non_exhaustive]
pub struct SharedRule<'a> {
    /// The identity of the rule's counter, the same in all processes: the [identity](crate::Rule::identity) of the rule,
    /// or the [counter](crate::RuleClass::counter) of its class.
    pub name: &'a str,
    /// The limit.
    pub limit: Limit,
    /// The settings for `store: redis`.
    pub settings: Shared,
    /// Whether the rule charges denied requests too: `charging: count-denials`. Such a limiter
    /// [counts them](SharedLimiter::counts_denials), and denies a cost of 0 while more units than the limit are in use.
    pub counts_denials: bool,
    /// Whether this limiter takes the place of another limiter of the rule in this process, because a load changed the rule.
    pub succeeds: bool,
    /// The prefix of all keys: [`RulesBuilder::shared_prefix`](crate::RulesBuilder::shared_prefix).
    pub prefix: Option<&'a str>,
}

/// Counts the keys of one rule, in a store that processes share. Created by [`SharedStore::limiter_for`].
///
/// Only [`check`](Self::check) is required. Without the other methods, charges cannot be refunded, and a load rejects rules
/// with classes or with `charging: count-denials`. All methods are called by several threads at once. A key is the text of the rule's key in a request, or its hash if it
/// is long.
///
/// # Waiting
/// A method with [`MayWait::No`] answers [`Now`](SharedReply::Now), because its caller is not async: from what this process
/// knows, or by blocking the thread. If such a method answers [`Later`](SharedReply::Later), the future is dropped before
/// its first poll, and the check decides by [`fallback`](Self::fallback). A future that was polled may be dropped too, so
/// it must not lose more than its own answer. A check that is no longer wanted is completed by a task, and then refunded.
/// Without a tokio runtime, and with `charging: count-first`, it is dropped instead, and its charge may stay.
///
/// # Panics
/// If a method panics during a request, what the request has charged so far stays charged. A panic during a load is an
/// error of the load.
///
/// See [`SharedStore`] for an example.
pub trait SharedLimiter: Any + fmt::Debug + Send + Sync {
    /// Decides, and charges all of the cost to an admitted request. If `reports_only`, a denial does not deny the request, so
    /// it must not block the key. A cost of 0 asks whether more units than the limit are in use; only a limiter that
    /// [counts denials](SharedRule::counts_denials) receives it.
    fn check(&self, key: &str, cost: u64, reports_only: bool, wait: MayWait) -> SharedReply<SharedDecision>;

    /// Decides as [`check`](Self::check) would, and charges nothing. `None` if the decision is not known: this is the
    /// default.
    fn peek(&self, key: &str, cost: u64, wait: MayWait) -> SharedReply<Option<SharedDecision>> {
        let _ = (key, cost, wait);
        SharedReply::Now(None)
    }

    /// Decides without the store, because it has not answered by the deadline of the request. Obeys
    /// [`on_failure`](Shared::on_failure). Default: denies.
    fn fallback(&self, key: &str, cost: u64) -> SharedDecision {
        let _ = key;
        let denied = Decision::made_elsewhere(Outcome::Denied, cost, 0, Timestamp::from_nanos(0));
        SharedDecision::new(denied, DecidedBy::Closed)
    }

    /// Returns whether charges can be refunded. Rules that cannot are asked last. Default: they cannot.
    fn can_refund(&self) -> bool {
        false
    }

    /// Refunds the charge of a decision of this limiter, as far as possible. Default: does nothing.
    fn refund(&self, key: &str, charge: SharedDecision, wait: MayWait) -> SharedReply<()> {
        let _ = (key, charge, wait);
        SharedReply::Now(())
    }

    /// Returns whether [`count_denied`](Self::count_denied) charges denied requests. Default: it does not, and rules with
    /// `charging: count-denials` are rejected.
    fn counts_denials(&self) -> bool {
        false
    }

    /// Charges a request that this limiter denied, until one unit beyond the limit is in use. Default: does nothing.
    fn count_denied(&self, key: &str, cost: u64, wait: MayWait) -> SharedReply<()> {
        let _ = (key, cost, wait);
        SharedReply::Now(())
    }

    /// Does what an operator wants, and returns the units that were given back. Default: refuses.
    fn operate(&self, key: &str, action: OperatorAction, wait: MayWait) -> SharedReply<Result<u64, Refusal>> {
        let _ = (key, action, wait);
        SharedReply::Now(Err(Refusal::CannotForget))
    }

    /// Returns the limiter of a class of requests, which counts in the same state. Default: `None`, and rules with classes
    /// are rejected.
    fn class(&self, class: Class) -> Option<Arc<dyn SharedLimiter>> {
        let _ = class;
        None
    }

    /// Gives back to the store what this process holds, and reports what it has admitted: [`Rules::close`]. Default: does
    /// nothing.
    ///
    /// [`Rules::close`]: crate::Rules::close
    fn close(&self) -> SharedReply<()> {
        SharedReply::Now(())
    }

    /// Returns figures for metrics. Default: none.
    fn readings(&self) -> Vec<Reading> {
        Vec::new()
    }
}

/// Whether the caller of a [`SharedLimiter`] may wait for the store.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum MayWait {
    /// The caller takes an answer at once.
    No,
    /// The caller is a task that may wait.
    Yes,
}

/// The answer of a [`SharedLimiter`], or a future of it.
pub enum SharedReply<T> {
    /// The answer.
    Now(T),
    /// The answer comes later. The future does nothing before its first poll.
    Later(Pin<Box<dyn Future<Output = T> + Send>>),
}

impl<T> SharedReply<T> {
    /// Returns the answer if it is here.
    pub(crate) fn now(self) -> Option<T> {
        if let Self::Now(answer) = self { Some(answer) } else { None }
    }

    /// Returns whether the answer is here. Otherwise, the task is woken when it is time to ask again.
    #[cfg(feature = "tokio")]
    pub(crate) fn poll_ready(&mut self, context: &mut Context<'_>) -> bool {
        if let Self::Later(future) = self {
            let Poll::Ready(answer) = future.as_mut().poll(context) else { return false };
            *self = Self::Now(answer);
        }
        true
    }

    /// Returns the answer, for which a caller that may wait does. `None` if the caller may not.
    pub(crate) async fn get(self, wait: MayWait) -> Option<T> {
        match (self, wait) {
            (Self::Now(answer), _) => Some(answer),
            (Self::Later(future), MayWait::Yes) => Some(future.await),
            (Self::Later(_), MayWait::No) => None,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for SharedReply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(answer) => f.debug_tuple("Now").field(answer).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

impl dyn SharedLimiter {
    /// [`check`](Self::check) for a caller that does not wait.
    pub(crate) fn check_now(&self, key: &str, cost: u64, reports_only: bool) -> SharedDecision {
        let answer = self.check(key, cost, reports_only, MayWait::No).now();
        answer.unwrap_or_else(|| self.fallback(key, cost))
    }
}

/// Why a rule that processes share cannot be counted without a store.
const NO_SERVER: NoCounter = NoCounter::refused(
    "has store: redis, but this program was given no server: pass one to `RulesBuilder::shared` (a client of the \
     package `tollgate-redis`, with its feature `rules`), or to `tollgate serve` with --redis, or choose another store",
);

/// The store of the rules that processes share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Servers {
    store: Option<Arc<dyn SharedStore>>,
    /// The tokio runtime in which the caller set the store.
    #[cfg(feature = "tokio")]
    runtime: Option<tokio::runtime::Handle>,
    /// Whether this process counts shared rules alone.
    pub(crate) alone: bool,
    pub(crate) prefix: Option<Box<str>>,
}

impl Servers {
    pub(crate) fn set(&mut self, store: impl SharedStore) {
        self.store = Some(Arc::new(store));
        #[cfg(feature = "tokio")]
        {
            self.runtime = tokio::runtime::Handle::try_current().ok();
        }
    }

    /// Returns the limiter of a rule, by the rule's identity, and whether another limiter counted for it until now.
    pub(crate) fn limiter(
        &self,
        name: &str,
        limit: Limit,
        settings: Shared,
        counts_denials: bool,
        succeeds: bool,
    ) -> Result<Arc<dyn SharedLimiter>, NoCounter> {
        let store = self.store.as_ref().ok_or(NO_SERVER)?;
        // A limiter may have tasks, but the thread that reloads rules may have no runtime. The runtime in which the caller
        // set the store may have ended.
        #[cfg(feature = "tokio")]
        let kept = self.runtime.as_ref().filter(|_| tokio::runtime::Handle::try_current().is_err());
        #[cfg(feature = "tokio")]
        let _entered = kept.map(tokio::runtime::Handle::enter);
        let prefix = self.prefix.as_deref();
        let rule = SharedRule { name, limit, settings, counts_denials, succeeds, prefix };
        // A panic must not end the thread that watches the rules. The panic hook has reported it.
        let made = catch_unwind(AssertUnwindSafe(|| store.limiter_for(&rule)));
        made.unwrap_or_else(|_| Err("cannot be counted: its store panicked".into())).map_err(|error| {
            match error.downcast::<QuotaError>() {
                Ok(quota) => NoCounter::Quota(*quota),
                Err(other) => NoCounter::Refused(other.to_string().into()),
            }
        })
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

#[cfg(test)]
mod tests {
    use super::key_hash;

    /// The value of `printf 'd|a\0x' | sha256sum`: other builds must select the same keys.
    #[test]
    fn key_hash_is_the_same_in_all_builds() {
        assert_eq!(key_hash("d|a", "x"), 0xdae8_ebba_aaf8_2961);
    }
}
