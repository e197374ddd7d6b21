//! The counters of rules: stores of this process, or a server that processes share.
//!
//! A rule names its algorithm and its store at run time. [`AnyStore`](crate::stores::AnyStore) is a store of this process. [`SharedLimiter`] is
//! a limiter in one of the modes of [`redis`](crate::redis). Both take the texts of
//! [keys](super::matching::CounterKey).

mod act;
#[cfg(feature = "redis")]
mod beyond;
#[cfg(feature = "redis")]
mod redis;
#[cfg(not(feature = "redis"))]
#[path = "no_redis.rs"]
mod redis;

use std::fmt;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

pub use self::act::{OperatorAct, Refusal};
#[cfg(feature = "redis")]
pub use self::redis::Server;
pub(super) use self::redis::{DecidedWhere, Servers, SharedLimiter};
#[cfg(feature = "redis")]
pub(super) use self::redis::{key_digest, key_hash};
use crate::base::decision::Decision;
use crate::base::quota::QuotaError;

/// The hasher of all stores in one set of rules. Sharing it allows one compact store to be carried over into another.
pub(crate) type Hasher = ahash::RandomState;

/// The decision of a shared limiter, and which side made it.
#[derive(Copy, Clone, Debug)]
pub(crate) struct SharedDecision {
    pub(crate) decision: Decision,
    pub(crate) by: DecidedWhere,
}

/// Whether the caller of a shared limiter may wait for the server. A client for threads blocks its callers in both cases.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// The future is ready when it is first polled; see [`ready`].
    No,
    /// The caller is a task that may wait.
    #[cfg(feature = "redis")]
    Yes,
}

/// Whether a shared limiter denies a request, or reports only that it would.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Denies {
    Request,
    Nothing,
}

/// Returns the output of a future that does not wait.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("a call with `Wait::No` does not wait"),
    }
}

/// Why a rule's counter could not be created.
#[derive(Clone, Debug)]
pub(crate) enum NoCounter {
    /// The store cannot hold the quota, or there is not enough memory.
    Quota(QuotaError),
    /// The rule is shared by processes, and the builder has no server.
    NoServer,
    /// The rule cannot be counted with the options of the load.
    Refused(&'static str),
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
            Self::Refused(why) => f.write_str(why),
            #[cfg(feature = "redis")]
            Self::Task(why) => write!(f, "has no background task: {why}"),
        }
    }
}
