//! Classes of requests as the limit of a layer.

use std::sync::Arc;

use tollgate::stores::{ManyKeys, Store};
use tollgate::{Class, Clock, Decision, RateLimiter};

use crate::limit::RequestLimit;

/// A limiter whose requests have [classes](Class), as a limit of a layer. The key of a request is a pair: the limiter's key
/// and the class, which a closure chooses.
///
/// # Examples
/// ```
/// use tollgate::{Class, Quota, RateLimiter};
/// use tollgate_tower::{ClientIp, Classes, RateLimitLayer, key_fn};
///
/// const PER_CLIENT: Quota = Quota::per_second(100);
///
/// let class = key_fn(|head| {
///     Some(if head.path().starts_with("/export") { Class::percent(50) } else { Class::ALL })
/// });
/// let limit = Classes::new(RateLimiter::new(PER_CLIENT));
/// let layer = RateLimitLayer::new(limit, (ClientIp::peer(), class)).policy("per-client", PER_CLIENT);
/// # drop(layer);
/// ```
#[derive(Debug)]
pub struct Classes<S, C> {
    limiter: Arc<RateLimiter<S, C>>,
}

impl<S, C> Classes<S, C> {
    /// Creates the limit. Pass the limiter, or an [`Arc`] of it to use it elsewhere too.
    pub fn new(limiter: impl Into<Arc<RateLimiter<S, C>>>) -> Self {
        Self { limiter: limiter.into() }
    }
}

impl<S, C> Clone for Classes<S, C> {
    fn clone(&self) -> Self {
        Self { limiter: Arc::clone(&self.limiter) }
    }
}

impl<K, S, C> RequestLimit<(K, Class)> for Classes<S, C>
where
    S: ManyKeys + Store<K> + Send + Sync + 'static,
    C: Clock + Send + Sync + 'static,
{
    type Ruling = Decision;

    #[inline]
    fn check(&self, (key, class): &(K, Class), cost: u64) -> Decision {
        self.limiter.check_class(key, cost, *class)
    }

    fn refund(&self, (key, _): &(K, Class), ruling: &Decision) {
        self.limiter.refund(key, ruling);
    }
}
