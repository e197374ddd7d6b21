//! Checks of limiters with any store, whether it has keys or not.

use super::RateLimiter;
use super::at::Timed;
use crate::algorithm::Algorithm;
use crate::base::clock::Clock;
use crate::base::decision::Decision;
#[cfg(feature = "std")]
use crate::limiter::striped::{LeaseSource, Leases};
#[cfg(feature = "std")]
use crate::store::Adjustable;
use crate::store::{Direct, ManyKeys, Operation, Store};

/// A limiter that decides about requests with keys of type `Q`. One without keys ignores the key.
///
/// Code for limiters of any store names it as a bound, such as middleware.
///
/// # Examples
/// ```
/// use tollgate::stores::CheckKey;
/// use tollgate::{Gcra, Quota, RateLimiter};
///
/// fn admits(limiter: &impl CheckKey<str>, client: &str) -> bool {
///     limiter.check_key(client, 1).is_allowed()
/// }
/// let quota = Quota::per_minute(5);
/// assert!(admits(&RateLimiter::new(quota), "alice"));
/// assert!(admits(&RateLimiter::direct(Gcra::new(quota)), "alice")); // one limit on all clients
/// ```
pub trait CheckKey<Q: ?Sized> {
    /// Checks `cost` units for `key` now, and charges all of them or none.
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    fn check_key(&self, key: &Q, cost: u64) -> Decision;

    /// Refunds the part of a charge that is still owed. Returns the number of refunded units: 0 if the limiter cannot
    /// refund. Refund each charge once, with its key.
    fn refund_charge(&self, key: &Q, charge: &Decision) -> u64;

    /// Whether the decision of an admitted request knows the remaining quota.
    fn knows_remaining(&self) -> bool {
        true
    }
}

macro_rules! check_key {
    ($([$parameter:ident: $bound:ident] $store:ty),+) => {$(
        impl<Q: ?Sized, C: Clock, $parameter: $bound> CheckKey<Q> for RateLimiter<$store, C>
        where
            $store: Store<Q>,
        {
            #[inline]
            fn check_key(&self, key: &Q, cost: u64) -> Decision {
                self.apply(key, Operation::Check, cost)
            }

            fn refund_charge(&self, key: &Q, charge: &Decision) -> u64 {
                self.refund_key(key, charge, charge.charged())
            }
        }
    )+};
}

check_key!([S: ManyKeys] S, [A: Algorithm] Direct<A>);
#[cfg(feature = "std")]
check_key!([A: Algorithm] Adjustable<Direct<A>>);

/// The units of a lease are not refunded. The remaining quota is spread over the stripes, and a request sees one stripe
/// only.
#[cfg(feature = "std")]
impl<Q: ?Sized, P: LeaseSource, C: Clock> CheckKey<Q> for RateLimiter<Leases<P>, C> {
    #[inline]
    fn check_key(&self, _key: &Q, cost: u64) -> Decision {
        self.check_n(cost)
    }

    fn refund_charge(&self, _key: &Q, _charge: &Decision) -> u64 {
        0
    }

    fn knows_remaining(&self) -> bool {
        false
    }
}
