//! The limiter: a store with its algorithm, and a clock. Each file adds methods to [`RateLimiter`].
//!
//! | file | holds |
//! |---|---|
//! | `check`, `check_key`, `verbs` | checks, charges, refunds and reservations of limiters with keys |
//! | `class` | checks for a share of the burst |
//! | `at` | the methods that depend on the time, at a given time |
//! | `keyless` | the same methods for limiters without keys |
//! | `states` | checks under another quota, and all states at once |
//! | `compact`, `keyed`, `sketch`, `direct`, `hashed`, `leasing`, `adjustable` | methods for one kind of store |
//! | `any` | limiters whose algorithm and store are chosen at run time |
//! | `builder` | constructors and options |
//! | `distinct` | limits on the number of different values of a key |
//! | `holds`, `in_progress` | units that are taken now and settled later; requests in progress |
//! | `state_at` | the methods of a state in the caller's struct |
//! | `joint` | several limits on one request |
//! | `striped` | leases: one limit that all cores use at the same time |
//! | `wait`, `waiting` | threads and tasks that wait for a turn |

// The order of these modules is the order of `RateLimiter`'s page: constructors, checks, other verbs, stores.
mod builder;

mod check;
mod check_key;
mod class;

pub(crate) mod joint;

mod verbs;

mod at;

#[cfg(feature = "std")]
pub(crate) mod distinct;
#[cfg(feature = "std")]
pub(crate) mod holds;
#[cfg(feature = "std")]
pub(crate) mod in_progress;

#[cfg(feature = "std")]
mod waiting;

#[cfg(feature = "std")]
mod adjustable;
#[cfg(feature = "std")]
mod any;
mod compact;
#[cfg(feature = "std")]
mod keyed;
#[cfg(feature = "std")]
mod saved;
#[cfg(feature = "std")]
mod sketch;
mod states;

mod direct;
mod hashed;
#[cfg(feature = "std")]
mod leasing;
mod state_at;
#[cfg(feature = "std")]
pub(crate) mod striped;
#[cfg(feature = "std")]
pub(crate) mod wait;

mod keyless;

use core::fmt;

#[cfg(feature = "std")]
pub use self::any::AnyLimiter;
pub use self::at::At;
pub(crate) use self::at::Timed;
pub use self::builder::Builder;
pub use self::check_key::CheckKey;
pub use self::class::Class;
#[cfg(feature = "std")]
pub use self::distinct::Distinct;
pub use self::state_at::StateAt;
use crate::base::clock::{Clock, DefaultClock};
#[cfg(feature = "std")]
use crate::limiter::wait::WaitLines;
use crate::store::Compact;

/// A rate limiter: decides, for each request, whether the request may go now.
///
/// A limiter consists of a store and a [`Clock`]. The store, such as [`Compact`], `Keyed` or
/// [`Direct`](crate::Direct), holds the states of keys and an [`Algorithm`](crate::Algorithm). Without type arguments, a `RateLimiter`
/// uses GCRA for keys of any type in fixed memory, so its type is short enough for a struct field.
///
/// All calls take `&self`, and only waits and changes of a quota block. Any number of threads may call them. A denied request is not charged. A
/// cost of 0 is a peek: it is admitted and charges nothing. For a cost above the burst (above the limit, for window
/// algorithms) the decision is [`never`](crate::Decision::is_never).
///
/// # Consistency
/// The charges of one key take effect one after another. Admitted units never exceed the algorithm's bound for the
/// times that the callers read. If a thread is delayed between its clock reading and its charge, the charge takes
/// effect late by that delay. Over any interval of length `t`, the bound is then the algorithm's bound for `t` plus
/// the longest such delay.
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
pub struct RateLimiter<S = Compact, C = DefaultClock> {
    store: S,
    clock: C,
    /// The threads and tasks that wait for a turn.
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

    /// Returns the clock.
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

impl<S: fmt::Debug, C> fmt::Debug for RateLimiter<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter").field("store", &self.store).finish_non_exhaustive()
    }
}
