//! The counters of rules: stores of this process, or a server that processes share.
//!
//! A rule names its algorithm and its store at run time. [`AnyStore`](crate::AnyStore) is a store of this process. [`SharedLimiter`] is
//! a limiter in one of the modes of [`redis`](crate::redis). Both take the texts of
//! [keys](super::matching::CounterKey).

#[cfg(feature = "redis")]
mod beyond;

#[cfg(feature = "redis")]
mod redis;
#[cfg(not(feature = "redis"))]
#[path = "no_redis.rs"]
mod redis;

use std::fmt;

#[cfg(feature = "redis")]
use futures_util::future::BoxFuture;

#[cfg(feature = "redis")]
pub use self::redis::Server;
pub(super) use self::redis::{DecidedWhere, Servers};
#[cfg(feature = "redis")]
pub(super) use self::redis::{check, key_digest, key_hash};
use crate::base::decision::Decision;
use crate::base::quota::QuotaError;
use crate::edge::telemetry::Reading;

/// The hasher of all stores in one set of rules. Sharing it allows one compact store to be carried over into another.
pub(crate) type Hasher = ahash::RandomState;

/// The decision of a shared limiter, and which side made it.
pub(crate) type SharedDecision = (Decision, DecidedWhere);

/// The limiter of a rule that processes share, for any mode and client.
pub(crate) trait SharedLimiter: fmt::Debug + Send + Sync {
    /// Decides, and charges an admitted request. Waits no longer than the mode does.
    fn check(&self, key: &str, cost: u64) -> SharedDecision;

    /// Does the same for a caller that may wait.
    #[cfg(feature = "redis")]
    fn check_async<'a>(&'a self, key: &'a str, cost: u64) -> BoxFuture<'a, SharedDecision>;

    /// Gives the server what this process holds, or has not reported yet.
    #[cfg(feature = "redis")]
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Decides, and charges this process's share of the limit, as if the server did not answer.
    #[cfg(feature = "redis")]
    fn decide_without_server(&self, key: &str, cost: u64) -> SharedDecision;

    /// Returns the decision on a cost of 0 if this process holds units, so that the limit has room.
    #[cfg(feature = "redis")]
    fn holds(&self, _key: &str) -> Option<SharedDecision> {
        None
    }

    /// Spends up to `cost` of the units that this process holds. Returns the number of units spent.
    #[cfg(feature = "redis")]
    fn spend_held(&self, _key: &str, _cost: u64) -> u64 {
        0
    }

    /// Returns the decision that a check would give, for modes whose charges cannot be refunded. Charges nothing.
    /// `None` for other modes, and if only the server knows the decision.
    fn look(&self, _key: &str, _cost: u64) -> Option<SharedDecision> {
        None
    }

    /// Does the same for a caller that may wait.
    #[cfg(feature = "redis")]
    fn look_async<'a>(&'a self, _key: &'a str, _cost: u64) -> BoxFuture<'a, Option<SharedDecision>> {
        Box::pin(std::future::ready(None))
    }

    /// Charges a request that this limiter denied, until one unit beyond the limit is in use. Waits no longer than
    /// `check`, so a limiter with an async client charges nothing at the server. Only a limiter that counts denials
    /// does anything.
    fn count_denied(&self, _key: &str, _cost: u64) {}

    /// Does the same for a caller that may wait.
    #[cfg(feature = "redis")]
    fn count_denied_async<'a>(&'a self, _key: &'a str, _cost: u64) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Returns whether more units than the limit are in use, as the decision on a cost of 0. `None` if this limiter
    /// counts no denials.
    fn look_at_use(&self, _key: &str) -> Option<SharedDecision> {
        None
    }

    /// Does the same for a caller that may wait.
    #[cfg(feature = "redis")]
    fn look_at_use_async<'a>(&'a self, _key: &'a str) -> BoxFuture<'a, Option<SharedDecision>> {
        Box::pin(std::future::ready(None))
    }

    /// Refunds a charge as far as possible without waiting.
    fn refund(&self, key: &str, charge: &Decision, by: DecidedWhere);

    /// Does the same for a caller that may wait.
    #[cfg(feature = "redis")]
    fn refund_async<'a>(&'a self, key: &'a str, charge: &'a Decision, by: DecidedWhere) -> BoxFuture<'a, ()> {
        self.refund(key, charge, by);
        Box::pin(std::future::ready(()))
    }

    /// Whether a charge can be refunded.
    fn undoes(&self) -> bool {
        true
    }

    /// Tells this limiter that another limiter counted for the rule until now.
    #[cfg(feature = "redis")]
    fn succeed(&self) {}

    /// Returns the health of the server.
    fn readings(&self) -> Vec<Reading>;
}

/// Why a rule's counter could not be created.
#[derive(Clone, Debug)]
pub(crate) enum NoCounter {
    /// The store cannot hold the quota, or there is not enough memory.
    Quota(QuotaError),
    /// The rule is shared by processes, and the builder has no server.
    NoServer,
    /// The rule is shared by processes, and its background task could not be started.
    #[cfg(feature = "redis")]
    Task(Box<str>),
}

impl From<QuotaError> for NoCounter {
    fn from(error: QuotaError) -> Self {
        Self::Quota(error)
    }
}

/// This text follows the rule's name in the message.
impl fmt::Display for NoCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota(error) if error.is_pending() => f.write_str(
                "was changed too often: its store cannot list the keys in debt, and debts from earlier changes are not paid yet; \
                 give it more `memory`, or change it again later",
            ),
            Self::Quota(error) => write!(f, "cannot be counted: {error}"),
            Self::NoServer => {
                let why = if cfg!(feature = "redis") {
                    "was given no server: pass one to `RulesBuilder::redis`, or to `tollgate serve` with --redis"
                } else {
                    "was built without Redis: enable the feature `redis`"
                };
                write!(f, "has store: redis, but this program {why}, or choose another store")
            }
            #[cfg(feature = "redis")]
            Self::Task(why) => write!(f, "has no background task: {why}"),
        }
    }
}
