//! Limits that must be awaited because they ask a server.

use std::sync::Arc;

use tollgate_http::Policy;

use crate::limit::{Named, Ruling};

/// Decides about requests with keys of type `K`, and may wait for a server. For limits in this process, see
/// [`RequestLimit`](crate::RequestLimit).
///
/// # Examples
/// A limit of your own that waits briefly:
/// ```
/// use std::time::Duration;
/// use tollgate_tower::{AwaitedLimit, ClientIp, RateLimitLayer, Ruling};
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
    /// The result of a check. If the request is admitted, the layer keeps it until the response is ready.
    type Ruling: Ruling + Send + Sync;

    /// Decides about a request of `cost` units, 1 or more, and charges the request if it is admitted. The
    /// implementation must limit its own waiting time, because the request waits for it.
    fn check(&self, key: &K, cost: u64) -> impl Future<Output = Self::Ruling> + Send;

    /// Refunds an admitted request as far as possible. The layer calls this at most once for a ruling, with the
    /// ruling's key. The response waits for it.
    fn refund(&self, key: &K, ruling: &Self::Ruling) -> impl Future<Output = ()> + Send;

    /// Same as [`RequestLimit::policies`](crate::RequestLimit::policies).
    fn policies(&self, ruling: &Self::Ruling, tell: &mut dyn FnMut(&[Policy<'_>])) {
        let _ = ruling;
        tell(&[]);
    }

    /// Same as [`RequestLimit::knows_remaining`](crate::RequestLimit::knows_remaining).
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
