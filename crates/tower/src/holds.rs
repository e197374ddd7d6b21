//! Held units as the limit of a layer.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tollgate::holds::Holding;
use tollgate::stores::{ManyKeys, Store};
use tollgate::{Clock, RateLimiter};

use crate::limit::{Entered, RequestLimit, Settles};
use crate::settle::Unsettled;

/// A limiter with [holds](RateLimiter::with_holds), as a limit of a layer: the layer holds the cost of a request until
/// the response tells the actual cost.
///
/// [`RateLimitLayer::cost`](crate::RateLimitLayer::cost) is the estimate that is held. One of
/// [`settle_by_header`](crate::RateLimitLayer::settle_by_header), [`settle_by`](crate::RateLimitLayer::settle_by) and
/// [`settle_by_body`](crate::RateLimitLayer::settle_by_body) finds the actual cost.
///
/// # What happens to the units
/// Units that may have been used are charged:
///
/// | event | charge |
/// |---|---|
/// | the response tells the cost | this cost, even if it is more than was held |
/// | the response does not tell the cost, or tells it badly | the estimate |
/// | the body breaks off, is dropped early, or panics | the estimate, or what was [counted](crate::RateLimitLayer::settle_by_body) until then if that is more |
/// | the service panics, or the client disconnects before the response | the estimate |
/// | the service fails, or the response has a status that [refunds](crate::RateLimitLayer::refund) | nothing if the layer [refunds errors](crate::RateLimitLayer::refund_errors) or the status; otherwise as above |
///
/// The limiter has keys. For one limit on all requests, use the key extractor [`Global`](crate::Global).
///
/// If a body lasts longer than the life of its hold, other requests of the key can get the units. The cost is charged
/// at the end.
///
/// # Examples
/// ```
/// use http::HeaderName;
/// use std::time::Duration;
/// use tollgate::{Quota, RateLimiter};
/// use tollgate_tower::{Header, Holds, RateLimitLayer};
///
/// let tokens = RateLimiter::new(Quota::per_minute(10_000)).with_holds(1_000)?;
/// let by_key = Header::new(HeaderName::from_static("x-api-key"));
/// let layer = RateLimitLayer::new(Holds::new(tokens, Duration::from_secs(120)), by_key)
///     .cost(|_| 2_000)
///     .settle_by_header(HeaderName::from_static("x-tokens-used"));
/// # drop(layer);
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
pub struct Holds<S, C> {
    limiter: Arc<RateLimiter<Holding<S>, C>>,
    life: Duration,
}

impl<S, C> Holds<S, C> {
    /// Creates the limit. Pass the limiter, or an [`Arc`] of it to use it elsewhere too. Choose a `life` that is longer
    /// than the longest response.
    pub fn new(limiter: impl Into<Arc<RateLimiter<Holding<S>, C>>>, life: Duration) -> Self {
        Self { limiter: limiter.into(), life }
    }
}

impl<S, C> Clone for Holds<S, C> {
    fn clone(&self) -> Self {
        Self { limiter: Arc::clone(&self.limiter), life: self.life }
    }
}

impl<S, C> fmt::Debug for Holds<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Holds");
        shown.field("life", &self.life).field("holds", &self.limiter.holds()).finish_non_exhaustive()
    }
}

impl<K, S, C> RequestLimit<K> for Holds<S, C>
where
    K: Hash + Clone + Send + Sync + 'static,
    S: ManyKeys + Store<K> + Send + Sync + 'static,
    C: Clock + Send + Sync + 'static,
{
    type Ruling = Entered<HeldCost>;

    fn check(&self, key: &K, cost: u64) -> Self::Ruling {
        match self.limiter.hold(key, cost, self.life) {
            Ok(hold) => {
                let (decision, id) = (hold.decision(), hold.detach());
                let (limiter, key) = (Arc::clone(&self.limiter), key.clone());
                let commit = move |actual: Option<u64>| {
                    limiter.commit(&key, id, actual.unwrap_or(cost));
                };
                Entered { decision, unsettled: Some(HeldCost::new(cost, SettledAt::Once, commit)) }
            }
            Err(denied) => Entered { decision: denied.decision(), unsettled: None },
        }
    }

    /// Does nothing: the layer settles the hold.
    fn refund(&self, _key: &K, _ruling: &Self::Ruling) {}
}

/// When a hold is settled whose actual cost is known.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum SettledAt {
    /// At once, so that other requests can use the rest.
    Once,
    /// At the end of the response, because the request is in progress until then.
    #[cfg(feature = "rules")]
    End,
}

/// The held cost of an admitted request. If nothing settles it, it stays charged.
pub struct HeldCost {
    units: u64,
    actual: Option<u64>,
    at: SettledAt,
    /// Settles the hold for the cost that the response told. `None` once it is settled.
    commit: Option<Box<dyn FnOnce(Option<u64>) + Send + Sync>>,
}

impl HeldCost {
    pub(crate) fn new(
        units: u64,
        at: SettledAt,
        commit: impl FnOnce(Option<u64>) + Send + Sync + 'static,
    ) -> Self {
        Self { units, actual: None, at, commit: Some(Box::new(commit)) }
    }

    fn commit(&mut self) {
        if let Some(commit) = self.commit.take() {
            commit(self.actual);
        }
    }
}

impl Drop for HeldCost {
    fn drop(&mut self) {
        self.commit();
    }
}

impl fmt::Debug for HeldCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("HeldCost");
        shown.field("units", &self.units).field("actual", &self.actual).finish_non_exhaustive()
    }
}

impl Unsettled for HeldCost {
    fn units(&self) -> u64 {
        self.units
    }

    fn settle(&mut self, actual: u64) {
        self.actual = Some(actual);
        if self.at == SettledAt::Once {
            self.commit();
        }
    }
}

impl Settles for Entered<HeldCost> {}
