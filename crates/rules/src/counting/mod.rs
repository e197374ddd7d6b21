//! The counters of rules: stores of this process, or a store that processes share.
//!
//! A rule names its algorithm and its store at run time. [`AnyStore`](tollgate::stores::AnyStore) is a store of this process. A
//! [`SharedLimiter`] counts in a store that processes share, for example one of the package `tollgate-redis`. Both take the texts
//! of [keys](super::descriptor::CounterKey).

mod operator;
mod shared;

use std::borrow::Cow;
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
    /// The options of the load, or the store that processes share, cannot count the rule.
    Refused(Cow<'static, str>),
}

impl NoCounter {
    pub(crate) const fn refused(why: &'static str) -> Self {
        Self::Refused(Cow::Borrowed(why))
    }
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
            Self::Refused(why) => f.write_str(why),
        }
    }
}
