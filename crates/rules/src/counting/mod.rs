//! The counters of rules: stores of this process, or a store that processes share.
//!
//! A rule names its algorithm and its store at run time. [`AnyStore`](tollgate::stores::AnyStore) is a store of this process. A
//! [`SharedLimiter`] counts in a store that processes share, for example one of the package `tollgate-redis`. Both take the texts
//! of [keys](super::matching::CounterKey).

mod operator;
mod shared;

use std::fmt;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tollgate::QuotaError;

pub use self::operator::{OperatorAction, Refusal};
pub use self::shared::{MayWait, SharedLimiter, SharedReply, SharedRule, SharedStore};
pub(super) use self::shared::{Servers, key_digest, key_hash};

/// The hasher of all stores in one set of rules. Sharing it allows one compact store to be carried over into another.
pub(crate) type Hasher = ahash::RandomState;

/// Returns the output of a future that does not wait.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("a call with `MayWait::No` does not wait"),
    }
}

/// Why a rule's counter could not be created.
#[derive(Clone, Debug)]
pub(crate) enum NoCounter {
    /// The store cannot hold the quota, or there is not enough memory.
    Quota(QuotaError),
    /// The rule is shared by processes, and the builder has no store for it.
    NoServer,
    /// The rule cannot be counted with the options of the load.
    Refused(&'static str),
    /// The store that processes share cannot count the rule.
    Store(Box<str>),
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
            Self::NoServer => f.write_str(
                "has store: redis, but this program was given no server: pass one to `RulesBuilder::shared` (a client of the \
                 package `tollgate-redis`, with its feature `rules`), or to `tollgate serve` with --redis, or choose another store",
            ),
            Self::Refused(why) => f.write_str(why),
            Self::Store(why) => f.write_str(why),
        }
    }
}
