//! GCRA with blocks of one length, in 40 bits.
//!
//! ```text
//! state = [ arrival time : 39 | mark : 1 ]
//! ```
//! As in [`Blocked`](crate::Blocked), a block moves the arrival time so far ahead that one unit is free when it ends. Until
//! then the mark is 1: without it, a denial in the last interval of a block would look like a burst that is used up, and
//! would start another block. Blocks of one length need no more, because nothing counts them.
//!
//! Half the bits of time are left, and a block takes more of them than a burst. So blocks are limited to
//! [`MAX_UNITS`]: the range is then at least 8,192 times as long as a burst and a block together. A key that returns after
//! exactly that range, which is months or years, is in its old block again, as other keys of this store owe again.
//!
//! Blocks are never merged: the state that is further ahead would block a key that was never denied.

use super::tat::STORE;
use super::ticks::{self, Interval, MAX_RATE, MIN_TICKS, Unfit, UnitRate};
use super::{CompactState, Moment, Moved, TatVariant, TatWord, Verdict};
use crate::algorithm::step::{BlockRest, Refund};
use crate::base::decision::{Decision, Outcome};
use crate::base::quota::{QuotaError, Reason};

const NAME: &str = "GCRA with blocks";
/// The most units of a burst and a block together: a block counts as the units that refill in it. Each has at least 256
/// ticks, and mostly at most 512: 2²⁶ of 2³⁹ ticks.
const MAX_UNITS: u64 = 1 << 17;
/// The index of these states in [`STATES`](super::STATES).
const STATES_INDEX: u64 = 6;

/// An arrival time with a mark.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BlockedWord {
    /// Counts all but the mark.
    tat: TatWord,
    /// How far ahead the arrival time is if one unit is free.
    one_free: u64,
    /// The length of a block, in ticks and in nanoseconds.
    block: u64,
    block_ns: u64,
}

impl BlockedWord {
    /// # Errors
    /// Returns an error if the block is too long for the range. The error states the maximum.
    pub(crate) fn new(own: UnitRate, block_ns: u64) -> Result<Self, QuotaError> {
        let Interval { num, den } = own.interval;
        if own.burst >= MAX_UNITS {
            let (what, got, max) = ("the burst", own.burst, MAX_UNITS - 1);
            return Err(Reason::SmallWord { algorithm: NAME, what, store: STORE, got, max }.into());
        }
        let most = u128::from(MAX_UNITS - own.burst) * u128::from(num) / u128::from(den);
        let units = (u128::from(block_ns) * u128::from(den)).div_ceil(u128::from(num));
        let units = match u64::try_from(units) {
            Ok(units) if units <= MAX_UNITS - own.burst => units,
            _ => {
                let max_ns = u64::try_from(most).unwrap_or(u64::MAX);
                return Err(Reason::LongBlock { got_ns: block_ns, max_ns }.into());
            }
        };
        // With half the interval, half the range of 39 bits is at least a second.
        let both =
            UnitRate { interval: Interval { num, den: den.saturating_mul(2) }, burst: own.burst + units };
        let interval =
            ticks::choose(both, both.burst, &[]).map_err(|unfit| TatWord::refused(NAME, unfit, own))?;
        if interval < MIN_TICKS {
            return Err(TatWord::refused(NAME, Unfit::Fast { max: MAX_RATE / MIN_TICKS / 2 }, own));
        }
        let tat = TatWord::with_ticks(NAME, own, interval, TatVariant::Meter)?;
        let block = tat.ticks_in(block_ns);
        let one_free = interval * (own.burst - 1);
        let tat = tat.with_horizon(interval.saturating_mul(own.burst).saturating_add(block));
        Ok(Self { tat, one_free, block, block_ns })
    }

    /// Returns whether a state is in a block.
    #[inline]
    const fn is_blocked(&self, ahead: u64) -> bool {
        ahead % 2 == 1 && ahead / 2 > self.one_free
    }

    /// Returns a state after a charge: a block that has ended does not begin again.
    #[inline]
    const fn charged(&self, before: u64, tat: u64) -> u64 {
        2 * tat + self.is_blocked(before) as u64
    }

    #[inline]
    const fn marked(&self, before: u64, verdict: Verdict) -> Verdict {
        match verdict {
            // Without a charge.
            Verdict::Admit(after) if after == before / 2 => Verdict::Admit(before),
            Verdict::Admit(after) => Verdict::Admit(self.charged(before, after)),
            denied => denied,
        }
    }

    fn at(&self, now_ns: u64) -> Moment {
        self.tat.moment(now_ns)
    }
}

impl CompactState for BlockedWord {
    const DOMINATES: bool = false;
    const COARSEST: u32 = 0;
    const BLOCKS: bool = true;

    #[inline]
    fn reference(&self, now_ns: u64) -> u64 {
        self.tat.reference(now_ns).wrapping_mul(2)
    }

    #[inline]
    fn judge(&self, ahead: u64, now_ns: u64, cost: u64) -> Verdict {
        self.marked(ahead, self.tat.judge(ahead / 2, now_ns, cost))
    }

    #[inline]
    fn block(&self, ahead: u64) -> Option<u64> {
        // A debt beyond the burst is not forgiven.
        let blocked = || 2 * (self.one_free + self.block).max(ahead / 2) + 1;
        (!self.is_blocked(ahead)).then(blocked)
    }

    fn block_for(&self, ahead: u64, block_ns: u64) -> Option<u64> {
        let block = self.tat.ticks_in(block_ns.clamp(1, self.block_ns)).max(1);
        Some(2 * (self.one_free + block).max(ahead / 2) + 1)
    }

    fn force(&self, ahead: u64, now_ns: u64, cost: u64) -> Moved {
        let Moved { ahead: after, units } = self.tat.force(ahead / 2, now_ns, cost);
        Moved { ahead: if units == 0 { ahead } else { self.charged(ahead, after) }, units }
    }

    fn seed(&self, now_ns: u64, units: u64) -> u64 {
        2 * self.tat.seed(now_ns, units).min(1 << (ticks::STATE_BITS - 3))
    }

    fn resume(&self, then_ns: u64, seeded: u64, BlockRest { level, until_ns }: BlockRest) -> u64 {
        match until_ns.saturating_sub(then_ns) {
            rest_ns @ 1.. if level > 0 => {
                // A shorter block cuts the rest, but not below the wait that the debt has without a block.
                let owed = (seeded / 2).saturating_sub(self.one_free);
                let most = self.tat.ticks_in(self.block_ns).max(owed);
                2 * (self.one_free + self.tat.ticks_in(rest_ns).min(most)) + 1
            }
            _ => seeded,
        }
    }

    fn reserve(&self, ahead: u64, at: Moment, cost: u64, wait_ns: u64) -> Verdict {
        self.marked(ahead, self.tat.reserve(ahead / 2, self.at(at.now_ns), cost, wait_ns))
    }

    /// A key in a block gets nothing back: its debt is that of the block.
    fn refund(&self, ahead: u64, _reference: u64, refund: &Refund<'_>) -> Option<Moved> {
        if self.is_blocked(ahead) {
            return None;
        }
        let Moved { ahead, units } = self.tat.refund(ahead / 2, self.tat.reference(refund.now_ns), refund)?;
        Some(Moved { ahead: 2 * ahead, units })
    }

    fn decision(&self, outcome: Outcome, ahead: u64, at: Moment, cost: u64) -> Decision {
        self.tat.decision(outcome, ahead / 2, self.at(at.now_ns), cost)
    }

    #[inline]
    fn uncharged(&self, outcome: Outcome, ahead: u64, at: Moment, cost: u64) -> Decision {
        let decision = self.decision(outcome, ahead, at, cost);
        if self.is_blocked(ahead) { decision.in_block() } else { decision.uncharged() }
    }

    fn horizon(&self) -> u64 {
        2 * self.tat.horizon() + 1
    }

    fn slack(&self) -> u64 {
        self.horizon().min(1 << 20)
    }

    #[inline(always)]
    fn last_ns(&self, now_ns: u64) -> u64 {
        now_ns
    }

    fn span_ns(&self, states: u64) -> u64 {
        self.tat.span_ns(states / 2)
    }

    fn reads(&self, other: &Self) -> bool {
        self == other
    }

    /// The horizon tells the length of the block.
    fn layout(&self) -> [u64; 6] {
        let [_, burst, num, den, interval, horizon] = self.tat.layout();
        [STATES_INDEX, burst, num, den, interval, horizon]
    }
}
