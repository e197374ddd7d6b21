//! Limits that have to be awaited: those that ask a server.

use std::sync::Arc;

use super::limit::{Named, Ruling};
use crate::edge::http::Policy;

/// What decides about requests with keys of type `K`, by asking elsewhere. For limits in this process see [`Limit`](super::Limit).
///
/// # Examples
/// A limit of your own, which asks nobody for long:
/// ```
/// use std::time::Duration;
/// use tollgate::tower::{AwaitedLimit, ClientIp, RateLimitLayer, Ruling};
///
/// struct Elsewhere;
/// struct Said(bool);
///
/// impl<K: Sync> AwaitedLimit<K> for Elsewhere {
///     type Ruling = Said;
///     async fn check(&self, _key: &K, _cost: u64) -> Said {
///         tokio::time::sleep(Duration::from_millis(1)).await;
///         Said(true)
///     }
///     async fn refund(&self, _key: &K, _ruling: &Said) {}
/// }
///
/// impl Ruling for Said {
///     fn is_allowed(&self) -> bool {
///         self.0
///     }
///     fn retry_after(&self) -> Option<Duration> {
///         None
///     }
/// }
///
/// let layer = RateLimitLayer::new(Elsewhere, ClientIp::peer()).awaited();
/// # drop(layer);
/// ```
pub trait AwaitedLimit<K: ?Sized>: Send + Sync + 'static {
    /// The answer. It is kept until the response is there, if the request is admitted.
    type Ruling: Ruling + Send + Sync;

    /// Decides about a request of `cost` units, 1 or more, and charges it if it is admitted. Has a time limit of its own: the request
    /// waits for it.
    fn check(&self, key: &K, cost: u64) -> impl Future<Output = Self::Ruling> + Send;

    /// Takes the charge of an admitted request back, as far as that can be done. Called at most once for a ruling, with its key; the
    /// response waits for it.
    fn refund(&self, key: &K, ruling: &Self::Ruling) -> impl Future<Output = ()> + Send;

    /// As [`Limit::policies`](super::Limit::policies).
    fn policies(&self, ruling: &Self::Ruling, tell: &mut dyn FnMut(&[Policy<'_>])) {
        let _ = ruling;
        tell(&[]);
    }

    /// As [`Limit::knows_remaining`](super::Limit::knows_remaining).
    fn knows_remaining(&self) -> bool {
        true
    }
}

impl<K: ?Sized + Sync, L: AwaitedLimit<K> + ?Sized> AwaitedLimit<K> for Arc<L> {
    type Ruling = L::Ruling;

    fn check(&self, key: &K, cost: u64) -> impl Future<Output = L::Ruling> + Send {
        (**self).check(key, cost)
    }

    fn refund(&self, key: &K, ruling: &L::Ruling) -> impl Future<Output = ()> + Send {
        (**self).refund(key, ruling)
    }

    fn policies(&self, ruling: &L::Ruling, tell: &mut dyn FnMut(&[Policy<'_>])) {
        (**self).policies(ruling, tell);
    }

    fn knows_remaining(&self) -> bool {
        (**self).knows_remaining()
    }
}

impl<K: ?Sized + Sync, L: AwaitedLimit<K>> AwaitedLimit<K> for Named<L> {
    type Ruling = L::Ruling;

    fn check(&self, key: &K, cost: u64) -> impl Future<Output = L::Ruling> + Send {
        self.limit.check(key, cost)
    }

    fn refund(&self, key: &K, ruling: &L::Ruling) -> impl Future<Output = ()> + Send {
        self.limit.refund(key, ruling)
    }

    fn policies(&self, ruling: &L::Ruling, tell: &mut dyn FnMut(&[Policy<'_>])) {
        self.tell(ruling, self.limit.knows_remaining(), tell);
    }

    fn knows_remaining(&self) -> bool {
        self.limit.knows_remaining()
    }
}
