//! The limiter: a store with its algorithm, and a clock.

#[cfg(feature = "std")]
mod adjustable;
mod builder;
mod check;
mod compact;
mod direct;
mod hashed;
pub(crate) mod joint;
#[cfg(feature = "std")]
mod keyed;
mod keyless;
#[cfg(feature = "std")]
mod leasing;
#[cfg(feature = "std")]
mod sketch;
#[cfg(feature = "std")]
pub(crate) mod striped;
mod verbs;
#[cfg(feature = "std")]
pub(crate) mod wait;
#[cfg(feature = "std")]
mod waiting;

use core::fmt;

pub use self::builder::Builder;
use crate::algorithm::Algorithm;
use crate::base::clock::{Clock, QuantaClock};
#[cfg(feature = "std")]
use crate::limiter::wait::WaitLines;
use crate::store::Compact;

/// A rate limiter: decides, for each request, whether it may go now.
///
/// Made of a store (where keys' states live: [`Compact`], [`Keyed`](crate::Keyed) or [`Direct`](crate::Direct)), which holds an [`Algorithm`], and a
/// [`Clock`]. Without type arguments it is GCRA for keys of any type in fixed memory, and fits in a struct field.
///
/// All calls take `&self`, never block and can be made from any number of threads. A denied request is not
/// charged. A cost of 0 is a peek: allowed, and charged nothing. A cost above the burst (the limit, for window
/// algorithms) answers [`never`](crate::Decision::is_never).
///
/// # Consistency
/// Each key's charges take effect one after another, and what is admitted never exceeds the algorithm's bound, given
/// the times that were read. A thread that is held up between reading its clock and its charge takes effect late
/// by that span: over any interval of length `t` the bound is the algorithm's for `t` plus the longest such span.
///
/// # Examples
/// ```
/// use std::net::IpAddr;
/// use tollgate::{FixedWindow, Keyed, Quota, RateLimiter};
///
/// struct Server {
///     by_account: RateLimiter,
///     by_address: RateLimiter<Keyed<IpAddr, FixedWindow>>,
/// }
///
/// let server = Server {
///     by_account: RateLimiter::new(Quota::per_second(100).burst(200)),
///     by_address: RateLimiter::keyed(FixedWindow::new(Quota::per_minute(1_000))),
/// };
/// assert!(server.by_account.check("alice").is_allowed());
/// assert!(server.by_address.check(&"203.0.113.7".parse::<IpAddr>().unwrap()).is_allowed());
/// ```
pub struct RateLimiter<S = Compact, C = QuantaClock> {
    store: S,
    clock: C,
    /// Those who wait.
    #[cfg(feature = "std")]
    lines: WaitLines,
}

impl<S, C> RateLimiter<S, C> {
    pub(crate) fn of(store: S, clock: C) -> Self {
        Self {
            store,
            clock,
            #[cfg(feature = "std")]
            lines: WaitLines::new(),
        }
    }

    /// The clock.
    #[inline]
    pub const fn clock(&self) -> &C {
        &self.clock
    }
}

impl<S, C: Clock> RateLimiter<S, C> {
    #[inline]
    fn now_ns(&self) -> u64 {
        self.clock.now().as_nanos()
    }
}

/// The algorithm for a single call, if it reads the limiter's words; else the limiter's own.
#[inline]
fn readable<'a, A: Algorithm>(own: &'a A, wanted: &'a A) -> &'a A {
    let reads = own.reads(wanted);
    debug_assert!(reads, "an algorithm for single calls is made by `requota` from the limiter's own");
    if reads { wanted } else { own }
}

impl<S: fmt::Debug, C> fmt::Debug for RateLimiter<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter").field("store", &self.store).finish_non_exhaustive()
    }
}
