//! Algorithms whose whole state fits forty bits, for stores that keep a fingerprint beside it.
//!
//! A *state* is a number modulo 2⁴⁰ that only grows, by what is admitted and by time. At any time there is a
//! *reference*, the state that an idle key has just then, and all that matters about a state is how far it stands
//! *ahead* of the reference. So stores can compare states without knowing the algorithm:
//!
//! | word | state | reference | ahead |
//! |---|---|---|---|
//! | [`TatWord`] | theoretical arrival time, in ticks | now, in ticks | what is owed |
//! | [`FixedWord`] | window index, then count | this window's index, count 0 | count |
//! | [`SlidingWord`] | window index, previous count, count | the last window's index, nothing counted | both counts |
//!
//! A state that is not ahead says what an absent key says. If two keys of the first two kinds are merged, the
//! further one is right for both, or against the client (*domination*); of the third kind it is not.

pub(crate) mod slot;
mod tat;
pub(crate) mod ticks;
mod window;

use core::fmt::Debug;

pub(crate) use self::tat::{TatVariant, TatWord};
pub(crate) use self::ticks::STATE_BITS;
pub use self::window::WindowAlgorithm;
pub(crate) use self::window::{FixedWord, SlidingWord, WindowCounts, WindowState};
use crate::algorithm::step::{Algorithm, Refund};
use crate::base::check_time::Newest;
use crate::base::decision::{Decision, Outcome};
use crate::base::quota::{Quota, QuotaError};

/// An algorithm that the [`Compact`](crate::Compact) store can hold: its state fits forty bits. Sealed.
///
/// GCRA, the greedy token bucket, both leaky buckets and minimum spacing; the aligned fixed window, up to 8,573,190,079
/// units, and the sliding window of two counts up to 65,407 each.
pub trait CompactAlgorithm: Algorithm + IntoCompact {}

impl<A: Algorithm + IntoCompact> CompactAlgorithm for A {}

/// What states can be, as errors say it.
pub(crate) const STATES: [&str; 6] = [
    "aligned windows",
    "sliding windows",
    "strict sliding windows",
    "arrival times",
    "departure times of a queue",
    "times of spaced events",
];

/// How an algorithm becomes a [`CompactState`] one. Public in a private module, as [`super::step::Stepper`].
pub trait IntoCompact: Sized {
    /// The narrow form.
    type CompactState: CompactState;

    /// The narrow form in a layout that holds every quota of `tiers` as well, and debts of `overdraft` units beyond the
    /// burst.
    ///
    /// # Errors
    /// If there is no such layout; the error says what would fit.
    fn compact(&self, tiers: &[Quota], overdraft: u64) -> Result<Self::CompactState, QuotaError>;

    /// Another quota in the layout of `own`.
    ///
    /// # Errors
    /// If the layout has no room for it.
    fn tier(&self, own: &Self::CompactState, quota: &Quota) -> Result<Self::CompactState, QuotaError>;
}

/// What a narrow algorithm says of a request.
///
/// A few registers: the [`Decision`] is made of it only once the state was exchanged. Made before, its words would be
/// written out ahead of the exchange, which waits for all writes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Not now.
    Deny,
    /// Not ever.
    Never,
    /// Admitted, if the state can be put so far ahead of the reference: no further than it is, if the cost is zero.
    Admit(u64),
}

impl Verdict {
    /// What the client is told.
    pub(crate) const fn outcome(self) -> Outcome {
        match self {
            Self::Deny => Outcome::Denied,
            Self::Never => Outcome::Never,
            Self::Admit(_) => Outcome::Allowed,
        }
    }
}

/// What a charge or a refund makes of a state.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Moved {
    /// How far ahead the state is then.
    pub ahead: u64,
    /// The units that were charged or taken back, of which the last may have been paid in part.
    pub units: u64,
}

/// An algorithm on forty bits. Pure.
pub trait CompactState: Copy + Debug + Send + Sync + 'static {
    /// Whether of two states the one further ahead is right for both keys, or against the client.
    const DOMINATES: bool;

    /// The most bits by which a sketch may shift a state, where a thousandth part of the horizon is too fine for it.
    const COARSEST: u32;

    /// The state of an idle key at `now_ns`, modulo 2⁶⁴; states are compared with it modulo 2⁴⁰.
    fn reference(&self, now_ns: u64) -> u64;

    /// Decides `cost` units for a state that is `ahead` of the reference at `now_ns`.
    fn judge(&self, ahead: u64, now_ns: u64, cost: u64) -> Verdict;

    /// Charges as much of `cost` as the state can hold, room or not.
    fn force(&self, ahead: u64, now_ns: u64, cost: u64) -> Moved;

    /// Charges `units` to a key that owes nothing, as what it owes from elsewhere: how far ahead that puts it.
    fn seed(&self, now_ns: u64, units: u64) -> u64 {
        self.force(0, now_ns, units).ahead
    }

    /// Whether a charge can be taken back whatever was charged since; in a queue only the last one can.
    fn can_refund(&self) -> bool {
        true
    }

    /// Decides `cost` units that may go within `wait_ns`, charged now; as [`CompactState::judge`], if it does not foresee.
    fn reserve(&self, ahead: u64, at: (u64, u64), cost: u64, wait_ns: u64) -> Verdict {
        let _ = wait_ns;
        self.judge(ahead, at.0, cost)
    }

    /// Takes back what is still owed of a charge; `reference` is that of the refund's time. `None` if nothing is.
    fn refund(&self, ahead: u64, reference: u64, refund: &Refund<'_>) -> Option<Moved>;

    /// The answer for a request that was charged, and left its state `ahead`; `at` is the time in nanoseconds, and its
    /// reference.
    fn decision(&self, outcome: Outcome, ahead: u64, at: (u64, u64), cost: u64) -> Decision;

    /// The answer for a request that was not charged, of a state that is `ahead`.
    #[inline(always)]
    fn uncharged(&self, outcome: Outcome, ahead: u64, at: (u64, u64), cost: u64) -> Decision {
        self.decision(outcome, ahead, at, cost).uncharged()
    }

    /// How far a state of this quota can be ahead of a clock that does not lag.
    fn horizon(&self) -> u64;

    /// By how many states of time the newest time may be out of date: the larger, the more seldom it is written, and the
    /// longer a key that comes back just before a whole range has passed is denied.
    fn slack(&self) -> u64;

    /// The last time, in nanoseconds, whose words are no further ahead than those of `now_ns`: in windows, the last of its window.
    fn last_ns(&self, now_ns: u64) -> u64;

    /// The least time, in nanoseconds, in which the reference moves on by `states`.
    fn span_ns(&self, states: u64) -> u64;

    /// Whether `other` means the same by the same state.
    fn reads(&self, other: &Self) -> bool;

    /// The layout, for snapshots: equal if and only if the same states lead to the same decisions. What states are (a place in
    /// [`STATES`]), the limit or burst, the nanoseconds for a window or unit (a fraction), and two numbers for how states count.
    fn layout(&self) -> [u64; 6];
}

/// The newest time of a store of such words: none is written yet.
pub(crate) fn newest_of<S: CompactState>(word: &S) -> Newest {
    let quarter_range = 1 << (STATE_BITS - 2);
    let slack_ns = word.span_ns(word.slack());
    // A caller that is ahead, and checks once in a burst's time, raises `high` once in two slacks at least.
    let patience_ns = word.span_ns(word.horizon()).max(1_000_000_000).saturating_add(2 * slack_ns);
    Newest::new(slack_ns, word.span_ns(quarter_range), patience_ns)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    /// A caller that is ahead, and checks once in a burst's time, keeps the newest time up against one that lags by more than a
    /// quarter of the range.
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
