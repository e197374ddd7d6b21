//! What a script on a server counts exactly, and the errors for quotas beyond it.
//!
//! A Lua script has only doubles, which are exact below 2^53. Times are whole microseconds.

use tollgate::internals::quota_error;
use tollgate::{Quota, QuotaError};

/// A script counts with doubles, which are exact below this. So all of its numbers are below it.
pub const EXACT: u64 = 1 << 53;
/// The largest debt, in ticks or in units of a window.
pub(crate) const MAX_DEBT: u64 = 1 << 52;
/// The last time, in microseconds.
pub(crate) const LAST_US: u64 = 1 << 52;
/// The maximum number of ticks of a burst, and of units of a window.
pub(super) const MOST: u64 = 1 << 51;

/// The error for a quota with a number above what the shared state counts exactly.
pub(super) fn above(algorithm: &str, quota: &Quota, what: &str, max: u64) -> QuotaError {
    quota_error(match max {
        0 => format!(
            "shared {algorithm} of {quota}: no {what} is small enough for this rate; the server's script counts whole \
             microseconds, and is exact only below 2^53"
        ),
        _ => format!(
            "shared {algorithm} of {quota}: the {what} can be at most {max}, because the server's script is exact only below \
             2^53"
        ),
    })
}

/// Returns the error if a number of units is above the maximum.
pub(super) fn at_most(
    algorithm: &str,
    quota: &Quota,
    what: &str,
    max: u64,
    units: u64,
) -> Result<(), QuotaError> {
    if units > max { Err(above(algorithm, quota, what, max)) } else { Ok(()) }
}

/// Returns the period in whole microseconds.
pub(super) fn period_us(algorithm: &str, quota: &Quota) -> Result<u64, QuotaError> {
    let period_us = quota.period_ns() / 1_000;
    if period_us > MOST {
        return Err(quota_error(format!(
            "shared {algorithm} of {quota}: the period can be at most 71 years, because the server's script is exact \
             only below 2^53"
        )));
    }
    if !quota.period_ns().is_multiple_of(1_000) {
        return Err(quota_error(format!(
            "shared {algorithm} of {quota}: the period must be a whole number of microseconds, because the server counts \
             time in microseconds; the nearest are {} and {}",
            period_us.max(1),
            period_us + 1
        )));
    }
    Ok(period_us)
}
