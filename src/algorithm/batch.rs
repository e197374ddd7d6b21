//! The engine of the algorithms that return units in batches at period boundaries: fixed windows, and token buckets
//! with interval or aligned refill.
//!
//! A key's state is the number of units *used* and the position of its periods. Zero used units are a full bucket,
//! which an absent key also has. The words have this layout:
//!
//! ```text
//! aligned    head = [ period index + 1 | used ]                  boundaries at phase + k × period, for all keys
//! first use  head = [ lap : 16 | steps | used ]                  boundaries at anchor[lap & 1] + k × period
//!            tail = [ anchor, anchor ]   nanoseconds
//! ```
//!
//! *First use.* The next use of a full bucket starts a new *lap*, and the lap's periods start at that use. The *anchor*
//! is the time at which the lap's first period starts.
//!
//! 1. The new anchor and the count cannot share a word, because both need all their bits. The caller therefore first
//!    raises the tail word of the next lap to its anchor. It then exchanges the head, which begins the lap.
//! 2. `steps` counts the boundaries whose batches have been added. It is part of the head, so if an exchange fails, the
//!    batches that the thread wanted to add are not added either.
//!
//! Why the races are right:
//!
//! - *Two threads begin one lap.* The anchor is then the later of their times. The winner's call was in progress at
//!   that time, because the loser read its clock before it loaded the head that the winner replaced. The lap begins as
//!   if the winner had read its clock at that time.
//! - *A thread stalls* between its clock reading and its raise, while another thread begins the lap. The stalled thread
//!   can still raise the anchor of that lap, but only to a time before the exchange that began the lap. `steps` never
//!   decreases. The boundaries come later by less than the time between the old anchor and that exchange, which can
//!   only deny more.

use super::split::Split;
use super::step::{Raise, Refund, Refunded, Step, Stepper};
use crate::base::clock::{Timestamp, saturating_nanos};
use crate::base::decision::{Decision, Facts, Outcome};
use crate::base::quota::{Quota, Reason};
use crate::base::sync::AtomicU64;

/// Bits of the lap. The lowest bit selects the anchor. The other bits make a stalled thread's exchange fail.
const LAP_BITS: u32 = 16;
/// Bits of the count beyond the capacity, for debts, as long as 24 bits hold the whole count.
const DEBT_BITS: u32 = 8;
/// The minimum number of bits for steps. After a lap has used all its steps, a new lap starts.
const MIN_STEP_BITS: u32 = 16;

/// The engine; see the module documentation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    capacity: u64,
    batch: u64,
    period_ns: u64,
    start: Start,
}

/// The position of the periods.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Start {
    /// Boundaries at `phase_ns + k × period`, for every whole k. Negative k give the boundaries before the phase.
    Aligned { phase_ns: u64, split: Split, adaptive: bool },
    /// Periods start at a key's first use of a full bucket.
    FirstUse { used_bits: u32 },
}

/// When units return.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Returns {
    Continuously,
    FromFirstUse,
    Aligned { at: Timestamp, adaptive: bool },
}

/// A state at one time: the units used, and the time to the next boundary.
struct Present {
    used: u64,
    to_boundary_ns: u64,
}

impl Batch {
    pub(super) const fn aligned(
        algorithm: &'static str,
        quota: &Quota,
        [capacity, batch]: [u64; 2],
        aligned_ns: u64,
        adaptive: bool,
    ) -> Result<Self, Reason> {
        let period_ns = quota.period_ns();
        match Split::holding(algorithm, "the number of units at once", period_ns, capacity) {
            Ok(split) => {
                let start = Start::Aligned { phase_ns: aligned_ns % period_ns, split, adaptive };
                Ok(Self { capacity, batch, period_ns, start })
            }
            Err(reason) => Err(reason),
        }
    }

    pub(super) const fn from_first_use(
        algorithm: &'static str,
        quota: &Quota,
        [capacity, batch]: [u64; 2],
    ) -> Result<Self, Reason> {
        const MAX_BITS: u32 = 64 - LAP_BITS - MIN_STEP_BITS;
        const MAX: u64 = (1 << MAX_BITS) - 2;
        if capacity > MAX {
            let what = "the number of units at once";
            return Err(Reason::Word { algorithm, what, got: capacity, max: MAX });
        }
        // Room for one more than the capacity, so that no word is all ones. Debts also get bits, if enough are left for
        // steps.
        let bits = u64::BITS - (capacity + 1).leading_zeros();
        let used_bits = if bits + DEBT_BITS < 24 {
            bits + DEBT_BITS
        } else if bits < 24 {
            24
        } else {
            bits
        };
        Ok(Self { capacity, batch, period_ns: quota.period_ns(), start: Start::FirstUse { used_bits } })
    }

    /// Returns the same kind of engine with another quota. Words must keep their meaning, so this is an error if the
    /// period or the batch differs, or if the words have no room for the capacity.
    pub(super) fn requota(
        &self,
        algorithm: &'static str,
        quota: &Quota,
        [capacity, batch]: [u64; 2],
    ) -> Result<Self, Reason> {
        if quota.period_ns() != self.period_ns {
            return Err(Reason::Layout { algorithm, same: "period" });
        }
        if batch != self.batch {
            return Err(Reason::Layout { algorithm, same: "limit (only the burst may differ)" });
        }
        let most = self.most();
        if capacity > most {
            let what = "the number of units at once, with the limiter's own layout,";
            return Err(Reason::Word { algorithm, what, got: capacity, max: most });
        }
        Ok(Self { capacity, ..*self })
    }

    /// Returns the same kind of engine with another quota, in its own layout.
    pub(super) const fn with_quota(
        &self,
        algorithm: &'static str,
        quota: &Quota,
        units: [u64; 2],
    ) -> Result<Self, Reason> {
        match self.start {
            Start::Aligned { phase_ns, adaptive, .. } => {
                Self::aligned(algorithm, quota, units, phase_ns, adaptive)
            }
            Start::FirstUse { .. } => Self::from_first_use(algorithm, quota, units),
        }
    }

    /// Returns the most units that a word can hold.
    const fn most(&self) -> u64 {
        match self.start {
            Start::Aligned { split, .. } => split.max_low(),
            Start::FirstUse { used_bits } => (1 << used_bits) - 2,
        }
    }

    /// Returns the quota, if the periods are windows that begin at multiples of the period.
    pub(super) fn aligned_quota(&self) -> Option<Quota> {
        match self.start {
            Start::Aligned { phase_ns: 0, adaptive: false, .. } => {
                Quota::try_new(self.capacity, core::time::Duration::from_nanos(self.period_ns)).ok()
            }
            _ => None,
        }
    }

    /// Returns a quota of `batch` units per period with the capacity as its burst, and when the units return.
    pub(super) fn quota(&self) -> (Quota, Returns) {
        let returns = match self.start {
            Start::FirstUse { .. } => Returns::FromFirstUse,
            Start::Aligned { phase_ns, adaptive, .. } => {
                Returns::Aligned { at: Timestamp::from_nanos(phase_ns), adaptive }
            }
        };
        (
            Quota::stored(
                if self.batch == u64::MAX { self.capacity } else { self.batch },
                self.period_ns,
                self.capacity,
            ),
            returns,
        )
    }

    fn decide(&self, outcome: Outcome, now_ns: u64, cost: u64, present: &Present) -> Decision {
        self.decide_raised(outcome, now_ns, cost, present, 0)
    }

    fn decide_raised(
        &self,
        outcome: Outcome,
        now_ns: u64,
        cost: u64,
        present: &Present,
        raised: u64,
    ) -> Decision {
        let Self { capacity, batch, period_ns, .. } = *self;
        let Present { used, to_boundary_ns } = *present;
        let facts = Facts::Batch { used, raised, batch, to_boundary_ns, period_ns };
        Decision::new(outcome, cost, capacity, now_ns, facts)
    }

    /// Decides `cost` more units.
    #[inline]
    fn judge(&self, present: &Present, now_ns: u64, cost: u64) -> Decision {
        if cost > self.capacity {
            return self.decide(Outcome::Never, now_ns, cost, present);
        }
        // With a per-call quota, more units may be used than this capacity.
        if cost > 0 && cost > self.capacity.saturating_sub(present.used) {
            return self.decide(Outcome::Denied, now_ns, cost, present);
        }
        let after = Present { used: present.used + cost, ..*present };
        self.decide(Outcome::Allowed, now_ns, cost, &after)
    }

    #[inline]
    fn step_by(
        &self,
        head: u64,
        read: impl Fn(usize) -> u64,
        now_ns: u64,
        judge: impl FnOnce(&Present) -> Decision,
    ) -> Step {
        match self.start {
            Start::Aligned { phase_ns, split, .. } => {
                let (index, present) = self.aligned_present(head, now_ns, phase_ns, split);
                let decision = judge(&present);
                if decision.is_denied() {
                    Step::Deny(decision)
                } else if decision.cost() == 0 {
                    Step::admit(decision, head)
                } else {
                    Step::admit(decision, split.pack(index + 1, used_after(&decision)))
                }
            }
            Start::FirstUse { used_bits } => self.first_use_step(head, read, now_ns, used_bits, judge),
        }
    }

    /// Returns the current period and the state in it. The period is never before the word's own: an earlier time
    /// counts as the beginning of the word's period.
    #[inline]
    fn aligned_present(&self, head: u64, now_ns: u64, phase_ns: u64, split: Split) -> (u64, Present) {
        // Period 0 ends at the phase; period k ends at phase + k × period.
        let now_index = match now_ns.checked_sub(phase_ns) {
            Some(since) => since / self.period_ns + 1,
            None => 0,
        };
        let (stored, used) = split.unpack(head);
        let index = now_index.max(stored.saturating_sub(1));
        let boundary = u128::from(phase_ns) + u128::from(index) * u128::from(self.period_ns);
        let to_boundary_ns = u64::try_from(boundary - u128::from(now_ns)).unwrap_or(u64::MAX);
        let used = if stored == 0 {
            self.first_used(to_boundary_ns)
        } else {
            used.saturating_sub((index + 1 - stored).saturating_mul(self.batch))
        };
        (index, Present { used, to_boundary_ns })
    }

    /// Returns the used units of a key that was never seen: zero, unless the start is adaptive. With an adaptive start,
    /// the key has `capacity − batch` units (if that is positive), and a share of a batch in proportion to its first,
    /// partial period, rounded down.
    fn first_used(&self, to_boundary_ns: u64) -> u64 {
        if let Start::Aligned { adaptive: true, .. } = self.start {
            let share = u128::from(to_boundary_ns.min(self.period_ns)) * u128::from(self.batch)
                / u128::from(self.period_ns);
            // The share is at most the batch.
            let share = u64::try_from(share).unwrap_or(self.batch);
            let initial = self.capacity.saturating_sub(self.batch).saturating_add(share).min(self.capacity);
            return self.capacity - initial;
        }
        0
    }

    /// Returns the units of a charge that were charged in the present period, and the units that were raised for it. `None`
    /// if the charge cannot be refunded.
    fn unpaid(&self, charge: &Decision, present: &Present, now_ns: u64) -> Option<(u64, u64)> {
        let &Facts::Batch { used: led_to, raised, batch, to_boundary_ns, period_ns } = charge.facts() else {
            return None;
        };
        let boundary = |at_ns: u64, to_ns: u64| u128::from(at_ns) + u128::from(to_ns);
        let same = (batch, period_ns) == (self.batch, self.period_ns)
            && boundary(now_ns, present.to_boundary_ns) == boundary(charge.at_ns(), to_boundary_ns);
        // A charge with a later turn can be refunded only if it is the last charge. Otherwise later requests already
        // have their turns.
        let last = present.used == led_to || !charge.has_turn();
        (same && last).then(|| (charge.charged(), raised))
    }

    fn lap_present(&self, lap: &Lap, read: impl Fn(usize) -> u64, now_ns: u64, used_bits: u32) -> LapPresent {
        if lap.used == 0 {
            return LapPresent { used: 0, steps: 0, to_boundary_ns: 0, worn_out: false };
        }
        let anchor = read(lap.anchor());
        let passed = now_ns.saturating_sub(anchor) / self.period_ns;
        let steps = passed.max(lap.steps);
        let used = lap.used.saturating_sub((steps - lap.steps).saturating_mul(self.batch));
        let boundary = u128::from(anchor) + (u128::from(steps) + 1) * u128::from(self.period_ns);
        let to_boundary_ns = u64::try_from(boundary.saturating_sub(u128::from(now_ns))).unwrap_or(u64::MAX);
        LapPresent { used, steps, to_boundary_ns, worn_out: steps >> Lap::step_bits(used_bits) != 0 }
    }

    fn first_use_step(
        &self,
        head: u64,
        read: impl Fn(usize) -> u64,
        now_ns: u64,
        used_bits: u32,
        judge: impl FnOnce(&Present) -> Decision,
    ) -> Step {
        let lap = Lap::unpack(head, used_bits);
        let here = self.lap_present(&lap, read, now_ns, used_bits);
        // If the bucket is full, the periods start now. If the lap is worn out (after 2^16 or more periods in which the
        // bucket was never full), the periods also start now, and the used units stay. The next batch then comes later
        // by less than a period.
        let new_lap = here.used == 0 || here.worn_out;
        let to_boundary_ns = if new_lap { self.period_ns } else { here.to_boundary_ns };
        let present = Present { used: here.used, to_boundary_ns };
        let decision = judge(&present);
        if decision.is_denied() {
            return Step::Deny(decision);
        }
        if decision.cost() == 0 {
            return Step::admit(decision, head);
        }
        let used = used_after(&decision);
        if new_lap {
            let next = Lap { lap: lap.lap.wrapping_add(1), steps: 0, used };
            let raise = Some(Raise { index: next.anchor(), value: now_ns });
            return Step::Admit { decision, next: next.pack(used_bits), raise, fill: None };
        }
        Step::admit(decision, Lap { lap: lap.lap, steps: here.steps, used }.pack(used_bits))
    }
}

impl Stepper for Batch {
    type Tail = [AtomicU64; 2];

    #[inline]
    fn step(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        self.step_by(head, read, now_ns, |present| self.judge(present, now_ns, cost))
    }

    /// Charges as much of `cost` as the word can hold.
    fn force(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        self.step_by(head, read, now_ns, |present| {
            let cost = cost.min(self.most().saturating_sub(present.used));
            let after = Present { used: present.used + cost, ..*present };
            self.decide(Outcome::Allowed, now_ns, cost, &after).forced()
        })
    }

    /// Charges `units`, the debt from another state, to a new key, as far as the word can hold them. The key gets no
    /// other used units, even if a new key would start with some.
    fn seed(&self, now_ns: u64, units: u64) -> Step {
        self.step_by(
            0,
            |_| 0,
            now_ns,
            |present| {
                let used = units.min(self.most());
                self.decide(Outcome::Allowed, now_ns, used, &Present { used, ..*present })
            },
        )
    }

    /// Charges units of later batches if they come within `wait_ns`.
    ///
    /// If the turn is k boundaries away, the bucket receives k batches until then, but it never holds more than its
    /// capacity. Units that are in the bucket now, and would overflow until the turn, are therefore charged too.
    fn reserve(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64, wait_ns: u64) -> Step {
        self.step_by(head, read, now_ns, |present| {
            let now = self.judge(present, now_ns, cost);
            if now.outcome() != Outcome::Denied {
                return now;
            }
            let missing = present.used.saturating_add(cost).saturating_sub(self.capacity);
            let batches = missing.div_ceil(self.batch).saturating_mul(self.batch);
            let raised = batches.saturating_sub(present.used);
            let used = present.used.max(batches).saturating_add(cost);
            let after = Present { used, ..*present };
            let later = self.decide_raised(Outcome::Allowed, now_ns, cost, &after, raised);
            let fits = used <= self.most() && saturating_nanos(later.delay()) <= wait_ns;
            if fits { later } else { now }
        })
    }

    const CAN_REFUND: bool = true;

    /// Refunds up to `units` of a charge, if the current period is still the period of the charge. (After a boundary,
    /// a whole batch has already been returned.) Without a charge, refunds up to `units` of the used units.
    fn refund(&self, head: u64, read: impl Fn(usize) -> u64, refund: &Refund<'_>) -> Option<Refunded> {
        let &Refund { charge, units, now_ns } = refund;
        // With an adaptive start, a key that was never seen may have used units.
        if head == 0 {
            return None;
        }
        // Returns the refunded units, and the used units after the refund. A refund of the whole charge also returns
        // the units that were raised for it.
        let back = |present: &Present| {
            let (most, raised) = match charge {
                Some(charge) => self.unpaid(charge, present, now_ns)?,
                None => (u64::MAX, 0),
            };
            let raised = if units >= most { raised } else { 0 };
            let back = units.min(most).min(present.used);
            (back > 0).then(|| (back, (present.used - back).saturating_sub(raised)))
        };
        match self.start {
            Start::Aligned { phase_ns, split, .. } => {
                let (index, present) = self.aligned_present(head, now_ns, phase_ns, split);
                let (units, used) = back(&present)?;
                Some(Refunded { next: split.pack(index + 1, used), units })
            }
            Start::FirstUse { used_bits } => {
                let lap = Lap::unpack(head, used_bits);
                let here = self.lap_present(&lap, read, now_ns, used_bits);
                let present = Present { used: here.used, to_boundary_ns: here.to_boundary_ns };
                let (units, used) = back(&present)?;
                if here.worn_out {
                    return None;
                }
                let next = Lap { lap: lap.lap, steps: here.steps, used };
                Some(Refunded { next: next.pack(used_bits), units })
            }
        }
    }

    fn is_idle(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64) -> bool {
        match self.start {
            // An absent key starts with the share of its first, partial period. No state of a used key means the same.
            Start::Aligned { adaptive: true, .. } => head == 0,
            Start::Aligned { phase_ns, split, .. } => {
                self.aligned_present(head, now_ns, phase_ns, split).1.used == 0
            }
            Start::FirstUse { used_bits } => {
                let lap = Lap::unpack(head, used_bits);
                self.lap_present(&lap, read, now_ns, used_bits).used == 0
            }
        }
    }

    fn reads(&self, other: &Self) -> bool {
        (self.batch, self.period_ns, self.start) == (other.batch, other.period_ns, other.start)
    }
}

/// Returns the used units after an admission.
#[inline]
const fn used_after(decision: &Decision) -> u64 {
    match decision.facts() {
        Facts::Batch { used, .. } => *used,
        _ => 0,
    }
}

/// The head of a first-use state.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Lap {
    lap: u16,
    steps: u64,
    used: u64,
}

struct LapPresent {
    used: u64,
    steps: u64,
    to_boundary_ns: u64,
    worn_out: bool,
}

impl Lap {
    const fn step_bits(used_bits: u32) -> u32 {
        64 - LAP_BITS - used_bits
    }

    const fn pack(self, used_bits: u32) -> u64 {
        ((self.lap as u64) << (64 - LAP_BITS)) | (self.steps << used_bits) | self.used
    }

    const fn unpack(word: u64, used_bits: u32) -> Self {
        let lap = (word >> (64 - LAP_BITS)) as u16;
        let below = word & (u64::MAX >> LAP_BITS);
        Self { lap, steps: below >> used_bits, used: below & ((1 << used_bits) - 1) }
    }

    const fn anchor(&self) -> usize {
        (self.lap & 1) as usize
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn laps_round_trip() {
        for used_bits in [1, 4, 32] {
            for lap in [0, 1, u16::MAX] {
                for steps in [0, 1, (1 << Lap::step_bits(used_bits)) - 1] {
                    for used in [0, (1 << used_bits) - 2] {
                        let state = Lap { lap, steps, used };
                        assert_eq!(Lap::unpack(state.pack(used_bits), used_bits), state);
                        assert_ne!(state.pack(used_bits), super::super::step::DEAD);
                    }
                }
            }
        }
    }

    #[test]
    fn worn_out_lap_restarts_with_its_debt() {
        // With 31 bits for units, 17 remain for steps.
        let capacity = (1 << 31) - 2;
        let quota = Quota::new(1, std::time::Duration::from_nanos(1));
        let bucket = Batch::from_first_use("test", &quota, [capacity, 1]).unwrap();
        let Step::Admit { next, raise: Some(raise), .. } = bucket.step(0, |_| 0, 100, capacity) else {
            panic!()
        };
        assert_eq!(raise, Raise { index: 1, value: 100 });
        let late = 100 + (1 << 17);
        let Step::Admit { next: new_lap, raise: Some(raise), .. } = bucket.step(next, |_| 100, late, 1)
        else {
            panic!()
        };
        assert_eq!(raise, Raise { index: 0, value: late });
        let lap = Lap::unpack(new_lap, 31);
        assert_eq!(lap, Lap { lap: 2, steps: 0, used: capacity - (1 << 17) + 1 });
    }
}
