//! Methods that only limiters with one state have.
//!
//! A macro generates them for each store, as in [`keyless`](super::keyless).

use super::class::check_class;
use super::states::check_with;
use super::{At, Class, RateLimiter};
use crate::algorithm::Algorithm;
use crate::base::clock::Clock;
use crate::base::decision::Decision;
use crate::store::Direct;
#[cfg(feature = "std")]
use crate::store::{Adjustable, PresentStore};

macro_rules! one_state {
    ($($store:ty),+) => {$(
        impl<A: Algorithm, C: Clock> RateLimiter<$store, C> {
            /// Checks `cost` units now under the quota of `algorithm` instead of the limiter's own quota.
            ///
            /// Make `algorithm` with [`Algorithm::requota`] from the limiter's own algorithm. If another algorithm is
            /// passed that would read the state differently, the limiter uses its own algorithm instead.
            ///
            /// # Panics
            /// Debug builds panic if `algorithm` would read the state differently, and the limiter is not
            /// [adjustable](RateLimiter::adjustable).
            #[inline]
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn check_with(&self, cost: u64, algorithm: &A) -> Decision {
                check_with(self, &(), cost, algorithm)
            }

            /// Checks `cost` units now, for a request of a [`Class`]. Charges all of them if at most the class's share
            /// of the burst is in use afterwards, and nothing otherwise.
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn check_class(&self, cost: u64, class: Class) -> Decision {
                check_class(self, &(), cost, class)
            }
        }

        impl<A: Algorithm, C> At<'_, RateLimiter<$store, C>> {
            /// [`RateLimiter::check_with`] at this time.
            #[inline]
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn check_with(self, cost: u64, algorithm: &A) -> Decision {
                check_with(&self, &(), cost, algorithm)
            }

            /// [`RateLimiter::check_class`] at this time.
            #[must_use = "the limiter does not stop the request: the caller must read the decision"]
            pub fn check_class(self, cost: u64, class: Class) -> Decision {
                check_class(&self, &(), cost, class)
            }
        }
    )+};
}

one_state!(Direct<A>);
#[cfg(feature = "std")]
one_state!(Adjustable<Direct<A>>);

impl<A: Algorithm, C> RateLimiter<Direct<A>, C> {
    /// Returns the algorithm.
    pub fn algorithm(&self) -> &A {
        self.store.algorithm()
    }
}

#[cfg(feature = "std")]
impl<A: Algorithm, C> RateLimiter<Adjustable<Direct<A>>, C> {
    /// Returns the algorithm that is in force.
    pub fn algorithm(&self) -> A {
        self.store.present(|store| store.algorithm().clone())
    }
}
