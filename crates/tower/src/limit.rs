//! The interface between the layer and the limiter that decides.
//!
//! The layer asks once for each request, on the thread that calls the service. It never awaits, because a [`RequestLimit`]
//! decides in this process. A limit that must be awaited is an [`AwaitedLimit`](crate::AwaitedLimit).

use std::borrow::Cow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

use tollgate::holds::{InProgress, Permit};
use tollgate::stores::CheckKey;
use tollgate::telemetry::Event;
use tollgate::{Clock, Decision, Distinct, Quota, RateLimiter};
use tollgate_http::Policy;

use crate::settle::Unsettled;

/// Decides about requests with keys of type `K`. Implemented by every [`RateLimiter`], whatever its store, and by an
/// [`Arc`] of one.
///
/// # Examples
/// A limit of your own that admits each address once:
/// ```
/// use std::collections::HashSet;
/// use std::net::IpAddr;
/// use std::sync::Mutex;
/// use std::time::Duration;
/// use tollgate_tower::{ClientIp, RequestLimit, RateLimitLayer, Ruling};
///
/// struct Once(Mutex<HashSet<IpAddr>>);
/// struct First(bool);
///
/// impl RequestLimit<IpAddr> for Once {
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
pub trait RequestLimit<K: ?Sized>: Send + Sync + 'static {
    /// The result of a check. If the request is admitted, the layer keeps it until the response is ready.
    type Ruling: Ruling;

    /// Decides about a request of `cost` units, 1 or more, and charges the request if it is admitted. Must not block
    /// for long: it runs on the server's own threads.
    fn check(&self, key: &K, cost: u64) -> Self::Ruling;

    /// Refunds an admitted request as far as possible. The layer calls this at most once for a ruling, with the
    /// ruling's key.
    fn refund(&self, key: &K, ruling: &Self::Ruling);

    /// Reports which policies the request was subject to, and what each policy decided. The layer uses this for header
    /// fields and problem documents. Calls `tell` once. Default: no policies.
    fn policies(&self, ruling: &Self::Ruling, tell: &mut dyn FnMut(&[Policy<'_>])) {
        let _ = ruling;
        tell(&[]);
    }

    /// Whether the rulings of admitted requests know the remaining quota. If not,
    /// [`RateLimitLayer::policy`](crate::RateLimitLayer::policy) applies to denials only. Default: true.
    fn knows_remaining(&self) -> bool {
        true
    }
}

/// The result of a check by a [`RequestLimit`].
pub trait Ruling {
    /// Whether the request is admitted.
    fn is_allowed(&self) -> bool;

    /// For a denial, how long until the same request could be admitted. `None` if it can never be admitted, or if the
    /// time is not known.
    fn retry_after(&self) -> Option<Duration>;

    /// Whether an admitted request exceeds a soft limit. The request's extensions then include [`SoftLimited`].
    /// Default: false.
    fn is_soft_limited(&self) -> bool {
        false
    }

    /// Returns the single decision behind this ruling, if there is one.
    /// [`RateLimitLayer::policy`](crate::RateLimitLayer::policy) reports it to clients. Default: none.
    fn decision(&self) -> Option<Decision> {
        None
    }

    /// Whether an admitted request must be [settled](Ruling::unsettled) when the body of its response ends. Default:
    /// false.
    fn is_unsettled(&self) -> bool {
        false
    }

    /// Takes what remains to be settled out of the ruling. The layer keeps it until the body of the response has ended
    /// or is dropped. If the request has no response, the layer drops the ruling instead. Default: nothing.
    fn unsettled(&mut self) -> Option<Box<dyn Unsettled>> {
        None
    }

    /// Returns the outcome that [`RateLimitLayer::metered`](crate::RateLimitLayer::metered) counts. Default:
    /// [`Event::Allowed`] or [`Event::Denied`].
    fn event(&self) -> Event {
        if self.is_allowed() { Event::Allowed } else { Event::Denied }
    }
}

/// A ruling whose cost the response can settle. Needed for [`RateLimitLayer::settle_by`](crate::RateLimitLayer::settle_by) and the like.
#[diagnostic::on_unimplemented(
    message = "the limit does not hold units, so a response cannot settle them",
    note = "use `tollgate_tower::Holds` as the limit of the layer, or rules"
)]
pub trait Settles: Ruling {}

/// Marks a request that is admitted beyond a soft limit. It is an extension of the request, and the service may do less
/// work for such a request.
///
/// # Examples
/// ```
/// use http::Extensions;
/// use tollgate_tower::SoftLimited;
///
/// fn results(extensions: &Extensions) -> usize {
///     if extensions.get::<SoftLimited>().is_some() { 10 } else { 100 }
/// }
/// let mut extensions = Extensions::new(); // the request's extensions
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

impl<K: ?Sized, L: RequestLimit<K> + ?Sized> RequestLimit<K> for Arc<L> {
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

/// A limiter with the name and quota that clients see: see [`RateLimitLayer::policy`](crate::RateLimitLayer::policy).
#[derive(Clone, Debug)]
pub struct Named<L> {
    pub(crate) limit: L,
    name: Cow<'static, str>,
    quota: Quota,
}

impl<L> Named<L> {
    /// Combines a limiter with the name and quota that clients see.
    pub fn new(name: impl Into<Cow<'static, str>>, quota: Quota, limit: L) -> Self {
        Self { limit, name: name.into(), quota }
    }

    /// Reports the policy, unless the remaining quota is not known.
    pub(crate) fn tell(
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

impl<K: ?Sized, L: RequestLimit<K>> RequestLimit<K> for Named<L> {
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

/// A limiter is a limit for the keys that its store accepts. A limiter without keys ignores them.
impl<Q: ?Sized, S, C> RequestLimit<Q> for RateLimiter<S, C>
where
    Self: CheckKey<Q> + Send + Sync + 'static,
{
    type Ruling = Decision;

    #[inline]
    fn check(&self, key: &Q, cost: u64) -> Decision {
        self.check_key(key, cost)
    }

    fn refund(&self, key: &Q, ruling: &Decision) {
        self.refund_charge(key, ruling);
    }

    fn knows_remaining(&self) -> bool {
        CheckKey::knows_remaining(self)
    }
}

/// The key is a pair: of what is limited, and of the value that is counted.
impl<K, V, C, H> RequestLimit<(K, V)> for Distinct<C, H>
where
    K: Hash,
    V: Hash,
    C: Clock + Send + Sync + 'static,
    H: BuildHasher + Send + Sync + 'static,
{
    type Ruling = Decision;

    /// Counts the value once, whatever the cost.
    fn check(&self, (key, value): &(K, V), _cost: u64) -> Decision {
        Self::check(self, key, value)
    }

    /// Does nothing. The value stays known in its window, so it stays counted.
    fn refund(&self, _pair: &(K, V), _ruling: &Decision) {}
}

/// A request is in progress until the body of its response has ended.
impl<Q: Hash + ?Sized, C: Clock + Send + Sync + 'static> RequestLimit<Q> for InProgress<C> {
    type Ruling = Entered<Permit>;

    #[inline]
    fn check(&self, key: &Q, cost: u64) -> Entered<Permit> {
        match self.try_enter(key, cost) {
            Ok(permit) => Entered { decision: permit.decision(), unsettled: Some(permit) },
            Err(denied) => Entered { decision: denied.decision(), unsettled: None },
        }
    }

    /// Does nothing: the permit ends with the request.
    fn refund(&self, _key: &Q, _ruling: &Entered<Permit>) {}
}

/// The units are in progress, whatever the request used.
impl Unsettled for Permit {
    fn units(&self) -> u64 {
        self.decision().cost()
    }

    fn settle(&mut self, _actual: u64) {}
}

/// The ruling of a limit whose requests have an end.
#[derive(Debug)]
pub struct Entered<U> {
    pub(crate) decision: Decision,
    pub(crate) unsettled: Option<U>,
}

impl<U: Unsettled> Ruling for Entered<U> {
    fn is_allowed(&self) -> bool {
        self.decision.is_allowed()
    }

    fn retry_after(&self) -> Option<Duration> {
        self.decision.retry_after()
    }

    fn decision(&self) -> Option<Decision> {
        Some(self.decision)
    }

    #[inline]
    fn is_unsettled(&self) -> bool {
        self.unsettled.is_some()
    }

    fn unsettled(&mut self) -> Option<Box<dyn Unsettled>> {
        Some(Box::new(self.unsettled.take()?))
    }
}
