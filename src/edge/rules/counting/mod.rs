//! Where rules count: in a store of this process, or in a server that processes share.
//!
//! A rule names its algorithm and its store while the program runs. [`AnyStore`] is one of the stores of this process,
//! [`SharedLimiter`] a limiter of one of the modes of [`redis`](crate::redis). Both are asked by the texts of
//! [keys](super::matching::CounterKey).

mod any_store;
#[cfg(feature = "redis")]
mod redis;
#[cfg(not(feature = "redis"))]
#[path = "no_redis.rs"]
mod redis;

use std::fmt;

#[cfg(feature = "redis")]
use futures_util::future::BoxFuture;

pub(super) use self::any_store::{AnyStore, StoreKind};
#[cfg(feature = "redis")]
pub use self::redis::Server;
pub(super) use self::redis::{DecidedWhere, Servers};
#[cfg(feature = "redis")]
pub(super) use self::redis::{check, key_hash};
use crate::base::decision::Decision;
use crate::base::quota::QuotaError;
use crate::edge::telemetry::Reading;

/// How keys are hashed, by all stores of one set of rules, so that a compact store can be carried over into another.
pub(crate) type Hasher = ahash::RandomState;

/// The answer of a shared limiter, and who decided.
pub(crate) type SharedDecision = (Decision, DecidedWhere);

/// The limiter of a rule that processes share, whatever its mode and client.
pub(crate) trait SharedLimiter: fmt::Debug + Send + Sync {
    /// Decides without waiting for longer than the mode does, and charges what it admits.
    fn check(&self, key: &str, cost: u64) -> SharedDecision;

    /// The same for who may wait.
    #[cfg(feature = "redis")]
    fn check_async<'a>(&'a self, key: &'a str, cost: u64) -> BoxFuture<'a, SharedDecision>;

    /// What a check would say, of a mode whose charges are not taken back; charges nothing. `None` of others, and if only the server
    /// knows.
    fn look(&self, _key: &str, _cost: u64) -> Option<SharedDecision> {
        None
    }

    /// The same for who may wait.
    #[cfg(feature = "redis")]
    fn look_async<'a>(&'a self, _key: &'a str, _cost: u64) -> BoxFuture<'a, Option<SharedDecision>> {
        Box::pin(std::future::ready(None))
    }

    /// Takes a charge back, as far as that needs no waiting.
    fn refund(&self, key: &str, charge: &Decision, by: DecidedWhere);

    /// The same for who may wait.
    #[cfg(feature = "redis")]
    fn refund_async<'a>(&'a self, key: &'a str, charge: &'a Decision, by: DecidedWhere) -> BoxFuture<'a, ()> {
        self.refund(key, charge, by);
        Box::pin(std::future::ready(()))
    }

    /// Whether a charge can be taken back.
    fn undoes(&self) -> bool {
        true
    }

    /// Another limiter has counted for the rule until now.
    #[cfg(feature = "redis")]
    fn succeed(&self) {}

    /// How the server fares.
    fn readings(&self) -> Vec<Reading>;
}

/// Why a rule's counter could not be made.
#[derive(Clone, Debug)]
pub(crate) enum NoCounter {
    /// The store cannot hold the quota, or there is no memory.
    Quota(QuotaError),
    /// The store does not know the algorithm.
    Algorithm,
    /// The rule is shared by processes, and no server was given.
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

/// Follows the rule's name.
impl fmt::Display for NoCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota(error) if error.is_pending() => f.write_str(
                "has changed so often, in a store that cannot list who owes, that what clients owe from before is not paid yet; \
                 give it more `memory`, or change it again later",
            ),
            Self::Quota(error) => write!(f, "has no store: {error}"),
            Self::Algorithm => f.write_str(
                "has a store that does not hold its algorithm; leave `store` out, or take `keyed`",
            ),
            Self::NoServer => {
                let why = if cfg!(feature = "redis") {
                    "was given no server: give one to `RulesBuilder::redis`"
                } else {
                    "was built without Redis: build it with the feature `redis`"
                };
                write!(f, "says store: redis, and this program {why}, or choose another store")
            }
            #[cfg(feature = "redis")]
            Self::Task(why) => write!(f, "has nothing to fetch or post for it: {why}"),
        }
    }
}
