//! The seam between the layer and what decides.
//!
//! The layer asks once for each request, on the thread that calls the service, and never awaits: what decides is in this process.
//! A limit that has to be awaited is an [`AwaitedLimit`](super::AwaitedLimit).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::Algorithm;
use crate::base::clock::Clock;
use crate::base::decision::Decision;
use crate::base::quota::Quota;
use crate::edge::http::Policy;
use crate::limiter::RateLimiter;
use crate::limiter::striped::{LeaseSource, Leases};
use crate::store::{Adjustable, Direct, ManyKeys, Operation, Store};

/// What decides about requests with keys of type `K`. Every [`RateLimiter`] does, whatever its store, and an [`Arc`] of one.
///
/// # Examples
/// A limit of your own, which lets nobody in twice:
/// ```
/// use std::collections::HashSet;
/// use std::net::IpAddr;
/// use std::sync::Mutex;
/// use std::time::Duration;
/// use tollgate::tower::{ClientIp, Limit, RateLimitLayer, Ruling};
///
/// struct Once(Mutex<HashSet<IpAddr>>);
/// struct First(bool);
///
/// impl Limit<IpAddr> for Once {
///     type Ruling = First;
///     fn check(&self, key: &IpAddr, _cost: u64) -> First {
///         First(self.0.lock().unwrap().insert(*key))
///     }
///     fn refund(&self, key: &IpAddr, _ruling: &First) {
///         self.0.lock().unwrap().remove(key);
///     }
/// }
///
/// impl Ruling for First {
///     fn is_allowed(&self) -> bool {
///         self.0
///     }
///     fn retry_after(&self) -> Option<Duration> {
///         None // never
///     }
/// }
///
/// let layer = RateLimitLayer::new(Once(Mutex::default()), ClientIp::peer());
/// # drop(layer);
/// ```
pub trait Limit<K: ?Sized>: Send + Sync + 'static {
    /// The answer. It is kept until the response is there, if the request is admitted.
    type Ruling: Ruling;

    /// Decides about a request of `cost` units, 1 or more, and charges it if it is admitted. Must not block for long: it runs on
    /// the server's own threads.
    fn check(&self, key: &K, cost: u64) -> Self::Ruling;

    /// Takes the charge of an admitted request back, as far as that can be done. Called at most once for a ruling, with its key.
    fn refund(&self, key: &K, ruling: &Self::Ruling);

    /// Tells which policies the request was subject to, and what each decided: for header fields and problem documents. Calls
    /// `tell` once. Default: none.
    fn policies(&self, ruling: &Self::Ruling, tell: &mut dyn FnMut(&[Policy<'_>])) {
        let _ = ruling;
        tell(&[]);
    }

    /// Whether the rulings of admitted requests know what is left: else [`RateLimitLayer::policy`](super::RateLimitLayer::policy) tells
    /// of refusals only. Default: they do.
    fn knows_remaining(&self) -> bool {
        true
    }
}

/// The answer of a [`Limit`].
pub trait Ruling {
    /// Whether the request is admitted.
    fn is_allowed(&self) -> bool;

    /// For a refusal, how long until the same request could be admitted; `None` if it never can, or if nobody knows.
    fn retry_after(&self) -> Option<Duration>;

    /// Whether an admitted request is beyond a soft limit: then it goes on with [`SoftLimited`] among its extensions. Default: no.
    fn is_soft_limited(&self) -> bool {
        false
    }

    /// The one decision that it is, if it is one: what [`RateLimitLayer::policy`](super::RateLimitLayer::policy) tells clients.
    /// Default: none.
    fn decision(&self) -> Option<Decision> {
        None
    }
}

/// Among the extensions of requests that are admitted beyond a soft limit: their services may do less for them.
///
/// # Examples
/// ```
/// use http::Extensions;
/// use tollgate::tower::SoftLimited;
///
/// fn results(extensions: &Extensions) -> usize {
///     if extensions.get::<SoftLimited>().is_some() { 10 } else { 100 }
/// }
/// let mut extensions = Extensions::new(); // of the request
/// assert_eq!(results(&extensions), 100);
/// extensions.insert(SoftLimited); // as the layer does
/// assert_eq!(results(&extensions), 10);
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SoftLimited;

impl Ruling for Decision {
    #[inline]
    fn is_allowed(&self) -> bool {
        Self::is_allowed(self)
    }

    fn retry_after(&self) -> Option<Duration> {
        Self::retry_after(self)
    }

    fn decision(&self) -> Option<Decision> {
        Some(*self)
    }
}

impl<K: ?Sized, L: Limit<K> + ?Sized> Limit<K> for Arc<L> {
    type Ruling = L::Ruling;

    #[inline]
    fn check(&self, key: &K, cost: u64) -> L::Ruling {
        (**self).check(key, cost)
    }

    fn refund(&self, key: &K, ruling: &L::Ruling) {
        (**self).refund(key, ruling);
    }

    fn policies(&self, ruling: &L::Ruling, tell: &mut dyn FnMut(&[Policy<'_>])) {
        (**self).policies(ruling, tell);
    }

    fn knows_remaining(&self) -> bool {
        (**self).knows_remaining()
    }
}

/// A limiter with its name and quota, which clients are told: see [`RateLimitLayer::policy`](super::RateLimitLayer::policy).
#[derive(Clone, Debug)]
pub struct Named<L> {
    pub(super) limit: L,
    name: Cow<'static, str>,
    quota: Quota,
}

impl<L> Named<L> {
    /// A limiter of this quota, by this name.
    pub fn new(name: impl Into<Cow<'static, str>>, quota: Quota, limit: L) -> Self {
        Self { limit, name: name.into(), quota }
    }

    /// Tells the policy, unless nobody knows what is left.
    pub(super) fn tell(
        &self,
        ruling: &impl Ruling,
        knows_remaining: bool,
        tell: &mut dyn FnMut(&[Policy<'_>]),
    ) {
        match ruling.decision() {
            Some(decision) if knows_remaining || decision.is_denied() => {
                tell(&[Policy::new(&self.name, &self.quota, decision)]);
            }
            _ => tell(&[]),
        }
    }
}

impl<K: ?Sized, L: Limit<K>> Limit<K> for Named<L> {
    type Ruling = L::Ruling;

    #[inline]
    fn check(&self, key: &K, cost: u64) -> L::Ruling {
        self.limit.check(key, cost)
    }

    fn refund(&self, key: &K, ruling: &L::Ruling) {
        self.limit.refund(key, ruling);
    }

    fn policies(&self, ruling: &L::Ruling, tell: &mut dyn FnMut(&[Policy<'_>])) {
        self.tell(ruling, self.limit.knows_remaining(), tell);
    }

    fn knows_remaining(&self) -> bool {
        self.limit.knows_remaining()
    }
}

/// A limiter is a limit for the keys that its store is asked for.
macro_rules! limit {
    ($([$parameter:ident: $bound:ident] $store:ty),+) => {$(
        impl<Q: ?Sized, C, $parameter: $bound> Limit<Q> for RateLimiter<$store, C>
        where
            $store: Store<Q> + Send + Sync + 'static,
            C: Clock + Send + Sync + 'static,
        {
            type Ruling = Decision;

            #[inline]
            fn check(&self, key: &Q, cost: u64) -> Decision {
                self.apply(key, Operation::Check, cost, None)
            }

            fn refund(&self, key: &Q, ruling: &Decision) {
                self.refund_key(key, ruling, ruling.charged(), None);
            }
        }
    )+};
}

limit!([S: ManyKeys] S, [A: Algorithm] Direct<A>, [A: Algorithm] Adjustable<Direct<A>>);

/// Whatever the key. What a lease was charged is not given back, and an admitted request does not know what is left.
impl<Q: ?Sized, P, C> Limit<Q> for RateLimiter<Leases<P>, C>
where
    P: LeaseSource + Send + Sync + 'static,
    C: Clock + Send + Sync + 'static,
{
    type Ruling = Decision;

    #[inline]
    fn check(&self, _key: &Q, cost: u64) -> Decision {
        self.check_n(cost)
    }

    fn refund(&self, _key: &Q, _ruling: &Decision) {}

    /// What is left is spread over the stripes, and a request sees one of them.
    fn knows_remaining(&self) -> bool {
        false
    }
}
