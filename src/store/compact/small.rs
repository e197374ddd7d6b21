//! The arithmetic of the compact store with states of four bits, for the exhaustive checks in `tests/stores`. Only a
//! checkout has it.

use crate::algorithm::compact::slot::{self, SlotStanding, standing};
use crate::algorithm::compact::ticks::{Interval, UnitRate};
use crate::algorithm::compact::{CompactState, TatVariant, TatWord, Verdict};

/// The number of bits in a state.
pub const BITS: u32 = 4;

/// GCRA with one unit per tick.
#[derive(Debug)]
pub struct SmallGcra(TatWord);

impl SmallGcra {
    /// # Panics
    /// Panics if the burst does not fit.
    #[must_use]
    pub fn new(burst: u64) -> Self {
        let rate = UnitRate { interval: Interval { num: 1, den: 1 }, burst };
        Self(TatWord::with_ticks("exhaustive", rate, 1, TatVariant::Meter).expect("a small burst"))
    }

    /// The largest number of ticks that a debt is ahead.
    #[must_use]
    pub fn horizon(&self) -> u8 {
        narrow(self.0.horizon())
    }

    /// Decides on one unit of a key that is `ahead` ticks ahead. Returns how far ahead it is afterwards, if admitted.
    #[must_use]
    pub fn admit(&self, ahead: u8) -> Option<u8> {
        match self.0.judge(ahead.into(), 0, 1) {
            Verdict::Admit(after) => Some(narrow(after)),
            Verdict::Deny | Verdict::Never => None,
        }
    }
}

/// Returns how far a state is ahead of a time, or zero if it is idle.
///
/// # Errors
/// Returns the distance if it is more than the horizon.
pub fn ahead(state: u8, now: u8, horizon: u8) -> Result<u8, u8> {
    match standing::<BITS>(state.into(), now.into(), horizon.into()) {
        SlotStanding::Idle => Ok(0),
        SlotStanding::Ahead(ahead) => Ok(narrow(ahead)),
        SlotStanding::Unsure(ahead) => Err(narrow(ahead)),
    }
}

/// Returns how far a state is ahead of a time, and a negative number if it is behind.
#[must_use]
pub fn order(state: u8, now: u8) -> i64 {
    slot::order::<BITS>(state.into(), now.into())
}

fn narrow(ticks: u64) -> u8 {
    u8::try_from(ticks).expect("below 16 ticks")
}
