//! Shared limiters as limits of a layer.

use std::borrow::Cow;
use std::time::Duration;

use tollgate::telemetry::Event;
use tollgate::{Clock, Decision};
use tollgate_http::Policy;
use tollgate_redis::{
    AtomicLimiter, Blocking, DecidedBy, Key, LeaseLimiter, SharedDecision, WriteBackLimiter,
};

use crate::awaited::AwaitedLimit;
use crate::key::{HeaderKey, RouteKey};
use crate::limit::{RequestLimit, Ruling};

impl Ruling for SharedDecision {
    fn is_allowed(&self) -> bool {
        Self::is_allowed(self)
    }

    fn retry_after(&self) -> Option<Duration> {
        Self::retry_after(self)
    }

    /// `None` if no limiter decided, so that clients never see invented numbers.
    fn decision(&self) -> Option<Decision> {
        let is_known = !matches!(self.by(), DecidedBy::Open | DecidedBy::Closed);
        is_known.then(|| Self::decision(self))
    }

    /// Names the failure policy, if it decided.
    fn event(&self) -> Event {
        let decided = if self.is_allowed() { Event::Allowed } else { Event::Denied };
        self.by().event().unwrap_or(decided)
    }
}

/// Asks the server for each request and waits for the answer: [`RateLimitLayer::awaited`](crate::RateLimitLayer::awaited).
impl<K: Key + Sync + ?Sized> AwaitedLimit<K> for AtomicLimiter {
    type Ruling = SharedDecision;

    async fn check(&self, key: &K, cost: u64) -> SharedDecision {
        self.check_n(key, cost).await
    }

    async fn refund(&self, key: &K, ruling: &SharedDecision) {
        // If the refund fails, the charge stays.
        let _ = Self::refund(self, key, ruling).await;
    }
}

macro_rules! held {
    ($limiter:ident; |$held:ident, $key:ident, $ruling:ident| $refund:expr) => {
        /// Decides from the units that this process holds, and never waits. An admitted request does not know the
        /// remaining quota.
        impl<K: Key + ?Sized, C: Clock + Send + Sync + 'static> RequestLimit<K> for $limiter<C> {
            type Ruling = SharedDecision;

            #[inline]
            fn check(&self, key: &K, cost: u64) -> SharedDecision {
                self.check_n(key, cost)
            }

            fn refund(&self, $key: &K, $ruling: &SharedDecision) {
                let $held = self;
                let _: u64 = $refund;
            }

            fn knows_remaining(&self) -> bool {
                false
            }
        }

        /// Decides from the units that this process holds, and waits for the server if they do not suffice. An admitted
        /// request does not know the remaining quota.
        impl<K: Key + Sync + ?Sized, C: Clock + Send + Sync + 'static> AwaitedLimit<K> for $limiter<C> {
            type Ruling = SharedDecision;

            async fn check(&self, key: &K, cost: u64) -> SharedDecision {
                self.check_n_async(key, cost).await
            }

            async fn refund(&self, $key: &K, $ruling: &SharedDecision) {
                let $held = self;
                let _: u64 = $refund;
            }

            fn knows_remaining(&self) -> bool {
                false
            }
        }
    };
}

held!(LeaseLimiter; |held, key, ruling| held.refund(key, ruling));
// The server already counts what this mode admitted, so there is no refund.
held!(WriteBackLimiter; |_held, _key, _ruling| 0);

/// Decides as the limiter does that the thread runs.
impl<K: ?Sized, L: RequestLimit<K>> RequestLimit<K> for Blocking<L> {
    type Ruling = L::Ruling;

    #[inline]
    fn check(&self, key: &K, cost: u64) -> L::Ruling {
        L::check(self, key, cost)
    }

    fn refund(&self, key: &K, ruling: &L::Ruling) {
        L::refund(self, key, ruling);
    }

    fn policies(&self, ruling: &L::Ruling, tell: &mut dyn FnMut(&[Policy<'_>])) {
        L::policies(self, ruling, tell);
    }

    fn knows_remaining(&self) -> bool {
        L::knows_remaining(self)
    }
}

impl Key for HeaderKey {
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.as_bytes())
    }
}

/// The same bytes as those of a pair of texts.
impl Key for RouteKey {
    fn bytes(&self) -> Cow<'_, [u8]> {
        (self.method.as_str(), &*self.path).bytes().into_owned().into()
    }
}
