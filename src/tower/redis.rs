//! Limits that machines share, as what decides.

use std::borrow::Cow;
use std::time::Duration;

use http::Method;

use super::awaited::AwaitedLimit;
use super::key::HeaderKey;
use super::limit::Ruling;
use crate::decision::Decision;
use crate::redis::{Answer, AtomicLimiter, Client, DecidedBy, InProcess, Key};

impl Ruling for Answer {
    fn is_allowed(&self) -> bool {
        Self::is_allowed(self)
    }

    fn retry_after(&self) -> Option<Duration> {
        Self::retry_after(self)
    }

    /// None if nobody decided, so that clients are told no figures that nobody knows.
    fn decision(&self) -> Option<Decision> {
        let is_known = !matches!(self.by(), DecidedBy::Open | DecidedBy::Closed);
        is_known.then(|| Self::decision(self))
    }
}

macro_rules! awaited {
    ($($client:ty),+) => {
        $(
            /// Each request asks the server, and waits for it: [`RateLimitLayer::awaited`](super::RateLimitLayer::awaited).
            impl<K: Key + Sync + ?Sized> AwaitedLimit<K> for AtomicLimiter<$client> {
                type Ruling = Answer;

                async fn check(&self, key: &K, cost: u64) -> Answer {
                    self.check_n(key, cost).await
                }

                async fn refund(&self, key: &K, ruling: &Answer) {
                    // What cannot be taken back stays charged.
                    let _ = Self::refund(self, key, ruling).await;
                }
            }
        )+
    };
}

awaited!(Client, InProcess);

impl Key for HeaderKey {
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.as_bytes())
    }
}

impl Key for Method {
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.as_str().as_bytes())
    }
}
