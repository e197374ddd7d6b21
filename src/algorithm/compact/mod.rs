//! Algorithms whose whole state fits 40 bits, for stores that keep the state and a fingerprint in one word.
//!
//! A *state* is a number modulo 2⁴⁰ that only grows, with admissions and with time. At every time there is a
//! *reference*: the state that an idle key has at that time. Only the distance from the reference to the state matters:
//! how far the state is *ahead*. Stores can therefore compare states without knowledge of the algorithm:
//!
//! | word | state | reference | ahead |
//! |---|---|---|---|
//! | [`TatWord`] | theoretical arrival time, in ticks | now, in ticks | the debt |
//! | [`FixedWord`] | window index, then count | this window's index, count 0 | count |
//! | [`SlidingWord`] | window index, previous count, count | the last window's index, nothing counted | both counts |
//! | [`BlockedWord`] | theoretical arrival time, then the mark of a block | now, in ticks, no mark | the debt or the block |
//!
//! A state that is not ahead means the same as an absent key. If a store merges two keys with the first or second word,
//! the state that is further ahead is right for both keys, or denies more (*domination*). This does not hold for the
//! other two words.

mod blocked;
pub(crate) mod slot;
mod tat;
pub(crate) mod ticks;
mod window;

use core::fmt::Debug;

pub(crate) use self::blocked::BlockedWord;
pub(crate) use self::tat::{TatVariant, TatWord};
pub(crate) use self::ticks::STATE_BITS;
pub use self::window::WindowAlgorithm;
pub(crate) use self::window::{FixedWord, SlidingWord, WindowCounts, WindowState};
use crate::algorithm::step::{Algorithm, BlockRest, Refund};
use crate::base::check_time::Newest;
use crate::base::decision::{Decision, Outcome};
use crate::base::quota::{Quota, QuotaError};

/// An algorithm that the [`Compact`](crate::Compact) store can hold: its state fits 40 bits. Sealed.
///
/// These are GCRA, the greedy token bucket, both leaky buckets and minimum spacing; the aligned fixed window, up to
/// 8,573,190,079 units; the sliding window of two counts, up to 65,407 units each; and GCRA with
/// [blocks](crate::Blocked) of one length.
pub trait CompactAlgorithm: Algorithm + IntoCompact {}

impl<A: Algorithm + IntoCompact> CompactAlgorithm for A {}

/// The kinds of states, as error messages name them.
pub(crate) const STATES: [&str; 7] = [
    "aligned windows",
    "sliding windows",
    "strict sliding windows",
    "arrival times",
    "departure times of a queue",
    "times of spaced events",
    "arrival times with blocks",
];

/// The conversion of an algorithm to a [`CompactState`]. Public in a private module, as [`super::step::Stepper`].
pub trait IntoCompact: Sized {
    /// The compact form.
    type CompactState: CompactState;

    /// Returns the compact form, in a layout that also holds every quota of `tiers`, and debts of `overdraft` units
    /// beyond the burst.
    ///
    /// # Errors
    /// Returns an error if there is no such layout. The error states what would fit.
    fn compact(&self, tiers: &[Quota], overdraft: u64) -> Result<Self::CompactState, QuotaError>;

    /// Returns another quota in the layout of `own`.
    ///
    /// # Errors
    /// Returns an error if the layout has no room for the quota.
    fn tier(&self, own: &Self::CompactState, quota: &Quota) -> Result<Self::CompactState, QuotaError>;
}

/// The result of a compact algorithm for a request.
///
/// It fits a few registers. The store builds the [`Decision`] only after it has exchanged the state. If it built the
/// decision earlier, the processor would write the decision to memory first, and the exchange waits for all earlier
/// writes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Denied for now.
    Deny,
    /// Never possible.
    Never,
    /// Admitted, if the state can be set this far ahead of the reference. If the cost is zero, the state does not
    /// change.
    Admit(u64),
}

impl Verdict {
    /// Returns the outcome for the client.
    pub(crate) const fn outcome(self) -> Outcome {
        match self {
            Self::Deny => Outcome::Denied,
            Self::Never => Outcome::Never,
            Self::Admit(_) => Outcome::Allowed,
        }
    }
}

/// The result of a charge or a refund.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Moved {
    /// How far the state is ahead afterwards.
    pub ahead: u64,
    /// The units that were charged or refunded. The last one may have been paid in part.
    pub units: u64,
}

/// The time of a decision, in nanoseconds, and the state of an idle key at that time.
#[derive(Copy, Clone, Debug)]
pub struct Moment {
    /// The time in nanoseconds.
    pub now_ns: u64,
    /// See [`CompactState::reference`].
    pub reference: u64,
}

/// An algorithm on 40 bits. Pure.
pub trait CompactState: Copy + Debug + Send + Sync + 'static {
    /// Whether the state that is further ahead is right for both of two merged keys, or denies more.
    const DOMINATES: bool;

    /// The most bits that a sketch may cut off a state, if a thousandth of the horizon is too fine for the sketch.
    const COARSEST: u32;

    /// Returns the state of an idle key at `now_ns`, modulo 2⁶⁴. States are compared with it modulo 2⁴⁰.
    fn reference(&self, now_ns: u64) -> u64;

    /// Returns the time with its reference.
    #[inline(always)]
    fn moment(&self, now_ns: u64) -> Moment {
        Moment { now_ns, reference: self.reference(now_ns) }
    }

    /// Decides `cost` units for a state that is `ahead` of the reference at `now_ns`.
    fn judge(&self, ahead: u64, now_ns: u64, cost: u64) -> Verdict;

    /// Whether a denial can start a block.
    const BLOCKS: bool = false;

    /// Returns how far ahead a state is in the block that a denial starts. `None` if it is in a block already.
    fn block(&self, ahead: u64) -> Option<u64> {
        let _ = ahead;
        None
    }

    /// Returns how far ahead a state is in a block of `block_ns` that begins now, or in its own block if that ends later.
    /// `None` if the words have no blocks.
    fn block_for(&self, ahead: u64, block_ns: u64) -> Option<u64> {
        let _ = (ahead, block_ns);
        None
    }

    /// Returns how far ahead a seeded state is, with the rest of its blocks under another quota.
    fn resume(&self, then_ns: u64, seeded: u64, block: BlockRest) -> u64 {
        let _ = (then_ns, block);
        seeded
    }

    /// Charges as much of `cost` as the state can hold, without a check for room.
    fn force(&self, ahead: u64, now_ns: u64, cost: u64) -> Moved;

    /// Charges `units`, the debt from another state, to a key that owes nothing. Returns how far ahead the state is
    /// then.
    fn seed(&self, now_ns: u64, units: u64) -> u64 {
        self.force(0, now_ns, units).ahead
    }

    /// Returns whether a charge can be refunded after later charges; in a queue only the last charge can.
    fn can_refund(&self) -> bool {
        true
    }

    /// Decides `cost` units that may proceed within `wait_ns`, and charges them now. The default is
    /// [`CompactState::judge`].
    fn reserve(&self, ahead: u64, at: Moment, cost: u64, wait_ns: u64) -> Verdict {
        let _ = wait_ns;
        self.judge(ahead, at.now_ns, cost)
    }

    /// Decides like [`CompactState::judge`] a cost up to the burst. Admits a larger cost if a whole burst is free, the state
    /// can hold the debt, and the debt is paid at the rate.
    fn judge_oversized(&self, ahead: u64, at: Moment, cost: u64) -> Verdict {
        let asked = self.judge(ahead, at.now_ns, cost);
        let never = self.uncharged(Outcome::Never, ahead, at, cost);
        let fits = || never.keeps_debts() && self.force(0, at.now_ns, cost).units == cost;
        if asked != Verdict::Never || !fits() {
            return asked;
        }
        match self.judge(ahead, at.now_ns, never.limit()) {
            Verdict::Admit(_) => Verdict::Admit(self.force(ahead, at.now_ns, cost).ahead),
            denied => denied,
        }
    }

    /// Refunds the unpaid part of a charge, or the last units that are owed; `reference` is the one at the refund's time.
    /// Returns `None` if there are none.
    fn refund(&self, ahead: u64, reference: u64, refund: &Refund<'_>) -> Option<Moved>;

    /// Returns the decision for a request that was charged and left its state `ahead`.
    fn decision(&self, outcome: Outcome, ahead: u64, at: Moment, cost: u64) -> Decision;

    /// Returns the decision for a request that was not charged, with a state that is `ahead`.
    #[inline(always)]
    fn uncharged(&self, outcome: Outcome, ahead: u64, at: Moment, cost: u64) -> Decision {
        self.decision(outcome, ahead, at, cost).uncharged()
    }

    /// Returns how far a state of this quota can be ahead of the reference, for a caller whose clock does not lag.
    fn horizon(&self) -> u64;

    /// Returns by how much the newest time may be out of date, in states. With a larger slack, the newest time is
    /// written less often, but a key that returns just before a whole range has passed is denied for longer.
    fn slack(&self) -> u64;

    /// Returns the last time, in nanoseconds, whose words are no further ahead than those of `now_ns`. For windows this
    /// is the last nanosecond of the window.
    fn last_ns(&self, now_ns: u64) -> u64;

    /// Returns the shortest time, in nanoseconds, in which the reference advances by `states`.
    fn span_ns(&self, states: u64) -> u64;

    /// Returns whether the same state means the same to `other`.
    fn reads(&self, other: &Self) -> bool;

    /// Returns the layout, for snapshots: equal if and only if the same states lead to the same decisions. The numbers
    /// are: the kind of state (an index in [`STATES`]); the limit or burst; the nanoseconds per window or unit (a
    /// fraction); and two numbers that describe how states count.
    fn layout(&self) -> [u64; 6];
}

/// Creates the newest time of a store that holds such words, before any word is written.
pub(crate) fn newest_of<S: CompactState>(word: &S) -> Newest {
    let quarter_range = 1 << (STATE_BITS - 2);
    let slack_ns = word.span_ns(word.slack());
    // A caller with the newest time that checks once per burst time raises `high` at least once in two slacks.
    let patience_ns = word.span_ns(word.horizon()).max(1_000_000_000).saturating_add(2 * slack_ns);
    Newest::new(slack_ns, word.span_ns(quarter_range), patience_ns)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    /// If a caller with the newest time checks once per burst time, `high` does not fall to another caller that lags by
    /// more than a quarter of the range.
    // G40
    #[test]
    fn active_caller_keeps_its_newest_time() {
        for quota in [crate::Quota::per_minute(6).burst(1), crate::Quota::per_second(10).burst(5)] {
            let word = crate::Gcra::new(quota).compact(&[], 0).unwrap();
            let newest = newest_of(&word);
            let (burst_ns, quarter_ns) = (word.span_ns(word.horizon()), word.span_ns(1 << (STATE_BITS - 2)));
            let mut now_ns = 1 << 60;
            for _ in 0..1_000 {
                newest.raise(now_ns, |now_ns| now_ns);
                for step_ns in [1_000_000, burst_ns - 1] {
                    let lagging_ns = now_ns + step_ns - quarter_ns - 4 * burst_ns;
                    assert!(newest.as_of(lagging_ns) > lagging_ns, "{quota:?}");
                }
                now_ns += burst_ns;
            }
        }
    }
}
