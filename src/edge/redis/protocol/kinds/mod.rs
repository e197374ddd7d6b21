//! The kinds of limits that the second script counts, as integers. `script.lua` counts the other kinds.
//!
//! Times are whole microseconds, so a period or a part that is not a whole number of them is an error, which names the
//! nearest values that work. Only a spacing is rounded, up, which denies more and never admits more.

use super::plan::MOST;
use crate::base::quota::{Quota, QuotaError};

/// The text that all kinds need, before and after the texts of the kinds.
pub(super) const BEGIN: &str = include_str!("begin.lua");
pub(super) const END: &str = include_str!("end.lua");

/// The texts of the kinds. A script contains the texts that its plan needs.
pub(super) const TEXTS: [&str; 2] = [include_str!("old.lua"), include_str!("log.lua")];

/// A set of kinds, as indices into [`TEXTS`]. The first index stands for all kinds of `script.lua`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct KindSet(u8);

/// The exact log: at most `limit` units in any period.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Log {
    pub(crate) limit: u64,
    pub(crate) period_us: u64,
}

impl KindSet {
    /// The number of sets.
    pub(super) const COUNT: usize = 1 << TEXTS.len();
    /// The kinds of `script.lua`.
    pub(super) const OLD: Self = Self(1);

    pub(super) const fn of(text: u8) -> Self {
        Self(1 << text)
    }

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }

    pub(super) fn texts(self) -> impl Iterator<Item = &'static str> {
        (0..).zip(TEXTS).filter(move |(text, _)| self.0 & (1 << text) != 0).map(|(_, text)| text)
    }

    pub(super) fn is_old(self) -> bool {
        self == Self::OLD
    }
}

/// Returns the period in whole microseconds.
fn period_us(algorithm: &str, quota: &Quota) -> Result<u64, QuotaError> {
    let period_us = quota.period_ns() / 1_000;
    if period_us > MOST {
        return Err(QuotaError::worded(format!(
            "shared {algorithm} of {quota}: the period can be at most 71 years, because the server's script is exact \
             only below 2^53"
        )));
    }
    if !quota.period_ns().is_multiple_of(1_000) {
        return Err(QuotaError::worded(format!(
            "shared {algorithm} of {quota}: the period must be a whole number of microseconds, because the server counts \
             time in microseconds; the nearest are {} and {}",
            period_us.max(1),
            period_us + 1
        )));
    }
    Ok(period_us)
}

impl Log {
    pub(super) fn new(quota: &Quota) -> Result<Self, QuotaError> {
        Ok(Self { limit: quota.limit(), period_us: period_us("sliding log", quota)? })
    }
}
