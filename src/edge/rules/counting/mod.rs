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

pub(super) use self::any_store::{AnyStore, StoreKind};
#[cfg(feature = "redis")]
pub use self::redis::Server;
pub(super) use self::redis::{DecidedWhere, Servers, SharedLimiter};
#[cfg(feature = "redis")]
pub(super) use self::redis::{check, key_hash};
use crate::base::decision::Decision;
use crate::base::quota::QuotaError;

/// How keys are hashed, by all stores of one set of rules, so that a compact store can be carried over into another.
pub(crate) type Hasher = ahash::RandomState;

/// The answer of a shared limiter, and who decided.
pub(crate) type SharedDecision = (Decision, DecidedWhere);

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
