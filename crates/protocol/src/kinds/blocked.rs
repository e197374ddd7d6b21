//! GCRA with blocks, as [`Blocked`](tollgate::Blocked) decides it.
//!
//! A block is counted apart from the debt, in microseconds: so it ends at its stated time also under another quota.

use std::time::Duration;

use tollgate::internals::quota_error;
use tollgate::internals::saturating_nanos;
use tollgate::{Block, Quota, QuotaError};

use super::pace::Pace;

/// The numbers of a limit with blocks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Blocks {
    pub(crate) pace: Pace,
    pub(crate) first_us: u64,
    pub(crate) longest_us: u64,
    /// How far the theoretical arrival time is ahead, in ticks, when one unit is free: at the end of a block.
    pub(crate) free: u64,
}

impl Blocks {
    pub(crate) fn new(quota: &Quota, block: Block) -> Result<Self, QuotaError> {
        let us = |length: Duration| {
            let length_ns = saturating_nanos(length);
            let whole = length_ns.is_multiple_of(1_000).then_some(length_ns / 1_000);
            whole.ok_or_else(|| {
                quota_error(format!(
                    "shared GCRA of {quota}: a block of {length:?} must be a whole number of microseconds, because the \
                     server counts time in microseconds"
                ))
            })
        };
        let (first_us, longest_us) = (us(block.first())?, us(block.longest())?);
        let pace = Pace::new(quota).and_then(|_| Pace::with_room(quota, longest_us).map_err(|error| {
            let halves = std::iter::successors(Some(longest_us), |us| Some(us / 2).filter(|half| *half > 0));
            let fits = halves.into_iter().find(|&us| Pace::with_room(quota, us).is_ok());
            let Some(fits) = fits.map(Duration::from_micros) else { return error };
            quota_error(format!(
                "shared GCRA of {quota}: a block of {:?} is too long, because the server's script is exact only below 2^53; \
                 {fits:?} is possible",
                block.longest(),
            ))
        }))?;
        Ok(Self { pace, first_us, longest_us, free: pace.capacity - pace.interval })
    }

    /// The length of the n-th block, from 1.
    pub(crate) fn length_us(&self, level: u64) -> u64 {
        let doubled = 1_u64.checked_shl(u32::try_from(level).map_or(u32::MAX, |level| level - 1));
        self.first_us.saturating_mul(doubled.unwrap_or(u64::MAX)).min(self.longest_us)
    }

    /// How long a key without a debt keeps this mark: as long as its last block was.
    pub(crate) fn quiet_us(&self, mark: u64) -> u64 {
        if mark == 0 { 0 } else { self.length_us(mark.div_ceil(2)) }
    }

    /// The ticks of a time.
    pub(crate) const fn ticks(&self, us: u64) -> u64 {
        us.saturating_mul(self.pace.scale)
    }

    /// Whether a denial starts a block. A request that leaves units to other classes starts none.
    pub(crate) const fn starts(&self) -> bool {
        self.free + self.pace.interval == self.pace.capacity
    }
}
