//! The parts that all other modules use: the sync shim, clocks, the time of a check, quotas, decisions, memory and its
//! reclamation, and values that are created when they are first needed.

pub(crate) mod address;
pub(crate) mod check_time;
pub(crate) mod clock;
pub(crate) mod decision;
#[cfg(feature = "std")]
pub(crate) mod lazy;
pub(crate) mod memory;
pub(crate) mod quota;
#[cfg(feature = "std")]
pub(crate) mod reclaim;
pub mod sync;
mod unlimited;
mod waits;

/// Makes the `Debug` of an error show its message: a program whose `main` returns an error prints the `Debug`.
#[doc(hidden)]
#[macro_export]
macro_rules! __debug_shows_message {
    ($error:ty) => {
        impl core::fmt::Debug for $error {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    };
}

// An exported macro is at the root of the crate, so its name there shows that it is not for users.
pub use __debug_shows_message as debug_shows_message;

/// Returns the upper 64 bits of a 128-bit product.
#[inline(always)]
pub(crate) const fn multiply_high(a: u64, b: u64) -> u64 {
    ((a as u128 * b as u128) >> 64) as u64
}
