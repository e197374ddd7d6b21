//! The guards of [`InFlight`]: each counts its requests as in flight until it is dropped.

use std::fmt;
use std::sync::Arc;

use super::{InFlight, KeyCounters, Rows};

/// Counts `n` requests of a key as in flight until it is dropped; created by [`InFlight::enter`] and
/// [`InFlight::try_enter`].
#[must_use = "the requests are no longer in flight once the guard is dropped"]
pub struct Guard<'a> {
    rows: &'a Rows,
    place: KeyCounters,
    n: u32,
    count: u64,
}

impl<'a> Guard<'a> {
    #[inline]
    pub(super) fn new(rows: &'a Rows, place: KeyCounters, n: u32, count: u64) -> Self {
        Self { rows, place, n, count }
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.rows.subtract_units(&self.place, self.n);
    }
}

/// A [`Guard`] that keeps the counters alive; created by [`InFlight::enter_owned`] and [`InFlight::try_enter_owned`].
#[must_use = "the requests are no longer in flight once the guard is dropped"]
pub struct OwnedGuard<H = ahash::RandomState> {
    in_flight: Arc<InFlight<H>>,
    place: KeyCounters,
    n: u32,
    count: u64,
}

impl<H> OwnedGuard<H> {
    #[inline]
    pub(super) fn new(in_flight: Arc<InFlight<H>>, place: KeyCounters, n: u32, count: u64) -> Self {
        Self { in_flight, place, n, count }
    }
}

impl<H> Drop for OwnedGuard<H> {
    #[inline]
    fn drop(&mut self) {
        self.in_flight.rows.subtract_units(&self.place, self.n);
    }
}

macro_rules! guard {
    ($name:literal, [$($parameters:tt)*] $type:ty, $self:ident => $rows:expr) => {
        impl $($parameters)* $type {
            /// Returns the key's count in flight at the time when this guard was created, including its own `n`: at
            /// least the true number.
            #[must_use]
            pub fn count(&self) -> u64 {
                self.count
            }

            /// Returns the key's count in flight now, including this guard's `n`: at least the true number.
            #[must_use]
            pub fn current(&$self) -> u64 {
                $rows.read(&$self.place)
            }

            /// Returns the number of requests that this guard counts.
            #[must_use]
            pub fn n(&self) -> u32 {
                self.n
            }
        }

        impl $($parameters)* fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct($name).field("n", &self.n).field("count", &self.count).finish_non_exhaustive()
            }
        }
    };
}

guard!("Guard", [] Guard<'_>, self => self.rows);
guard!("OwnedGuard", [<H>] OwnedGuard<H>, self => self.in_flight.rows);
