//! Theoretical arrival times in 40 bits: GCRA and the other algorithms whose state is one time.

use super::ticks::{self, Interval, MAX_HORIZON, MAX_RATE, MIN_TICKS, TickRate, Unfit, UnitRate};
use super::{CompactState, Moment, Moved, Verdict};
use crate::algorithm::step::Refund;
use crate::base::decision::{Decision, Facts, Outcome};
use crate::base::quota::{QuotaError, Reason};
use alloc::vec::Vec;

/// The greatest distance between two states that can be compared.
const HALF_RANGE: u128 = 1 << (ticks::STATE_BITS - 1);

/// The store in messages.
pub(super) const STORE: &str = "the compact store";

/// GCRA whose state is a time in ticks, in 40 bits. [`ticks`] defines a tick.
// What each check reads comes first: one cache line, for thousands of stores. It ends in the rate.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct TatWord {
    /// Ticks per unit.
    interval: u64,
    /// Ticks per full burst.
    capacity: u64,
    burst: u64,
    kind: TatVariant,
    /// How many ticks a state may be ahead of now, under any quota of this table.
    horizon: u64,
    rate: TickRate,
    /// The units that a key may owe beyond its burst.
    overdraft: u64,
}

/// The meaning of a TAT.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum TatVariant {
    /// GCRA, token bucket, or leaky bucket as a meter.
    Meter,
    /// A queue: the departure time of the last admitted request.
    Queue,
    /// Minimum spacing: the time of the next event, for every cost.
    Event,
}

impl TatWord {
    /// The error for a rate that has no tick.
    pub(super) fn refused(algorithm: &'static str, unfit: Unfit, rate: UnitRate) -> QuotaError {
        let reason = match unfit {
            Unfit::Burst { max } => {
                Reason::SmallWord { algorithm, what: "the burst", store: STORE, got: rate.burst, max }
            }
            Unfit::Fast { max } => {
                let Interval { num, den } = rate.interval;
                let per_second = 1_000_000_000 * u128::from(den) / u128::from(num.max(1));
                let got = u64::try_from(per_second).unwrap_or(u64::MAX);
                Reason::SmallWord { algorithm, what: "the units a second", store: STORE, got, max }
            }
            Unfit::Apart => Reason::Apart { algorithm },
        };
        reason.into()
    }

    /// Creates a word whose ticks can also count `tiers`, and debts of `overdraft` units beyond the burst.
    pub(crate) fn new(
        algorithm: &'static str,
        own: UnitRate,
        tiers: Vec<UnitRate>,
        overdraft: u64,
        kind: TatVariant,
    ) -> Result<Self, QuotaError> {
        // Debts take as much room as a larger burst.
        let room = own.burst.saturating_add(overdraft);
        let interval = ticks::choose(own, room, &tiers).map_err(|unfit| match unfit {
            Unfit::Burst { max } if overdraft > 0 => {
                let what = "the burst and the overdraft together";
                Reason::SmallWord { algorithm, what, store: STORE, got: room, max }.into()
            }
            _ => Self::refused(algorithm, unfit, own),
        })?;
        let mut word = Self::with_ticks(algorithm, own, interval, kind)?;
        // At most the longest horizon: `choose` has room for it.
        let mut most = interval * room;
        for &tier in &tiers {
            most = most.max(word.counted(algorithm, tier)?.capacity);
        }
        (word.horizon, word.overdraft) = (most, overdraft);
        Ok(word)
    }

    /// Creates a word for a rate, with a whole number of ticks per unit and at most 2^`bits` ticks, or slightly fewer,
    /// per burst.
    pub(crate) fn coarse(
        algorithm: &'static str,
        own: UnitRate,
        bits: u32,
        kind: TatVariant,
    ) -> Result<Self, QuotaError> {
        let interval = (1 << bits) / own.burst;
        if interval == 0 {
            let reason = Reason::Word { algorithm, what: "the burst", got: own.burst, max: 1 << bits };
            return Err(reason.into());
        }
        Self::with_ticks(algorithm, own, interval, kind)
    }

    /// Creates a word for a rate, with `interval` ticks per unit.
    pub(crate) fn with_ticks(
        algorithm: &'static str,
        own: UnitRate,
        interval: u64,
        kind: TatVariant,
    ) -> Result<Self, QuotaError> {
        // In lowest terms, so that two tables of one quota have equal layouts.
        let Interval { num, den } = own.interval;
        let (top, bottom) = (u128::from(interval) * u128::from(den), u128::from(num));
        let common = ticks::gcd(top, bottom);
        let fits = |value: u128| {
            u64::try_from(value).map_err(|_| Self::refused(algorithm, Unfit::Fast { max: MAX_RATE }, own))
        };
        let rate = TickRate::new(fits(top / common)?, fits(bottom / common)?);
        let capacity = interval * own.burst;
        Ok(Self { rate, interval, capacity, burst: own.burst, kind, horizon: capacity, overdraft: 0 })
    }

    /// Returns the same word for states that may be this far ahead.
    pub(super) const fn with_horizon(self, horizon: u64) -> Self {
        Self { horizon, ..self }
    }

    /// Returns how far ahead a reservation or a charge without a check may move a state. The horizon can be longer: it
    /// also has room for tiers and for blocks.
    fn most_owed(&self) -> u64 {
        self.capacity.saturating_add(self.interval.saturating_mul(self.overdraft)).min(self.horizon)
    }

    /// Returns the ticks of a time span, rounded up.
    pub(super) fn ticks_in(&self, span_ns: u64) -> u64 {
        let ticks = (u128::from(span_ns) * u128::from(self.rate.num())).div_ceil(u128::from(self.rate.den()));
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// Returns another rate in the same ticks, with its interval rounded up. The horizon may be too short for the
    /// result.
    fn counted(&self, algorithm: &'static str, rate: UnitRate) -> Result<Self, QuotaError> {
        let apart = || Self::refused(algorithm, Unfit::Apart, rate);
        let Interval { num, den } = rate.interval;
        // num / den nanoseconds × rate.num / rate.den ticks per nanosecond: at most 63 + 64 bits.
        let top = u128::from(num) * u128::from(self.rate.num());
        let bottom = u128::from(den) * u128::from(self.rate.den());
        let interval = u64::try_from(top.div_ceil(bottom)).map_err(|_| apart())?;
        let is_coarse = interval < MIN_TICKS && top % bottom > 0;
        if is_coarse || u128::from(interval) * u128::from(rate.burst) > u128::from(MAX_HORIZON) {
            return Err(apart());
        }
        Ok(Self { interval, capacity: interval * rate.burst, burst: rate.burst, ..*self })
    }

    /// Returns another rate, for single calls.
    pub(crate) fn tier(&self, algorithm: &'static str, rate: UnitRate) -> Result<Self, QuotaError> {
        // If the rate is declared to the builder, the table may choose other ticks that can count it. The error
        // therefore says that the rate is undeclared.
        match self.counted(algorithm, rate) {
            Ok(tier) if tier.capacity <= self.horizon => Ok(tier),
            _ => Err(Reason::Undeclared { algorithm }.into()),
        }
    }
}

impl CompactState for TatWord {
    const DOMINATES: bool = true;
    // A coarser time is rounded up, which can only deny more.
    const COARSEST: u32 = 24;

    #[inline]
    fn reference(&self, now_ns: u64) -> u64 {
        self.rate.floor(now_ns)
    }

    #[inline(always)]
    fn judge(&self, ahead: u64, _now_ns: u64, cost: u64) -> Verdict {
        if cost == 0 {
            return Verdict::Admit(ahead);
        }
        let units = if self.kind == TatVariant::Event { 1 } else { cost };
        // The first comparison is redundant, because a burst is at least one unit. The compiler does not know that:
        // with this comparison, it removes the branch where the cost is the constant 1.
        if units > 1 && units > self.burst {
            return Verdict::Never;
        }
        // At most 2³³ ticks beyond the state, since the units are at most the burst.
        let after = ahead + units * self.interval;
        if after > self.capacity { Verdict::Deny } else { Verdict::Admit(after) }
    }

    #[inline(always)]
    fn decision(&self, outcome: Outcome, ahead: u64, at: Moment, cost: u64) -> Decision {
        let Self { interval, burst, rate, kind, .. } = *self;
        let remainder = rate.remainder(at.now_ns, at.reference);
        let (num, den, queued) = (rate.num(), rate.den(), kind == TatVariant::Queue);
        let facts = Facts::Ticks { ahead, interval, remainder, num, den, queued };
        Decision::new(outcome, cost, burst, at.now_ns, facts)
    }

    fn force(&self, ahead: u64, _now_ns: u64, cost: u64) -> Moved {
        let room = self.most_owed().saturating_sub(ahead) / self.interval;
        match self.kind {
            TatVariant::Event if cost == 0 || room == 0 => Moved { ahead, units: 0 },
            TatVariant::Event => Moved { ahead: ahead + self.interval, units: cost },
            TatVariant::Meter | TatVariant::Queue => {
                let units = cost.min(room);
                Moved { ahead: ahead + units * self.interval, units }
            }
        }
    }

    /// Charges `units` units, the debt from another state. For minimum spacing, each unit is one event. The debt may
    /// come from a later time, so the state may be further ahead than the horizon.
    fn seed(&self, _now_ns: u64, units: u64) -> u64 {
        units.saturating_mul(self.interval).min(1 << (ticks::STATE_BITS - 2))
    }

    fn can_refund(&self) -> bool {
        self.kind != TatVariant::Queue
    }

    fn reserve(&self, ahead: u64, at: Moment, cost: u64, wait_ns: u64) -> Verdict {
        let units = if self.kind == TatVariant::Event { 1 } else { cost };
        if cost == 0 || units > self.burst {
            return self.judge(ahead, at.now_ns, cost);
        }
        // The last tick that begins within the wait.
        let remainder = self.rate.remainder(at.now_ns, at.reference);
        let passed = u128::from(wait_ns) * u128::from(self.rate.num()) + u128::from(remainder);
        let wait = u64::try_from(passed / u128::from(self.rate.den())).unwrap_or(u64::MAX);
        let after = ahead + units * self.interval;
        let fits = if self.kind == TatVariant::Queue {
            ahead <= wait && after <= self.capacity
        } else {
            after <= self.capacity.saturating_add(wait).min(self.most_owed())
        };
        if fits { Verdict::Admit(after) } else { Verdict::Deny }
    }

    fn refund(&self, ahead: u64, reference: u64, refund: &Refund<'_>) -> Option<Moved> {
        let &Refund { charge, units, now_ns } = refund;
        let Some(charge) = charge else {
            let back = self.interval.saturating_mul(units).min(ahead);
            return (back > 0).then(|| Moved { ahead: ahead - back, units: back.div_ceil(self.interval) });
        };
        let &Facts::Ticks { ahead: then, interval, num, den, .. } = charge.facts() else {
            return None;
        };
        if ahead == 0 || (num, den) != (self.rate.num(), self.rate.den()) {
            return None;
        }
        let (charged, at) = (charge.charged(), self.rate.floor(charge.at_ns()));
        // In a queue, or if the request waits, only the last charge can be refunded. The same is true for events.
        let is_last = at.wrapping_add(then) == reference.wrapping_add(ahead);
        if self.kind == TatVariant::Event {
            // A request of any cost is one event.
            let whole = is_last && charged > 0 && units >= charged;
            return whole.then(|| Moved { ahead: ahead - ahead.min(interval), units: charged });
        }
        let own = interval.saturating_mul(charged);
        let turn = match charge.has_turn() {
            true if !is_last => return None,
            true if self.kind == TatVariant::Queue => then.saturating_sub(own),
            true => then.saturating_sub(interval.saturating_mul(charge.limit())),
            false => 0,
        };
        // The same rule as in `pace`. The ticks since the charge may need more than 64 bits; `own` does not.
        let passed = match now_ns.checked_sub(charge.at_ns()) {
            None => 0,
            Some(ns) if u128::from(ns) * u128::from(num) / u128::from(den) > HALF_RANGE => return None,
            Some(_) => reference.wrapping_sub(at),
        };
        let owed = own.saturating_sub(passed.saturating_sub(turn));
        let back = owed.min(interval.saturating_mul(units)).min(ahead);
        (back > 0).then(|| Moved { ahead: ahead - back, units: back.div_ceil(interval) })
    }

    fn horizon(&self) -> u64 {
        self.horizon
    }

    /// Returns the horizon, but at most 2²⁰ ticks, which is an ordinary burst. A sketch's cells have room for two
    /// slacks.
    fn slack(&self) -> u64 {
        self.horizon.min(1 << 20)
    }

    #[inline(always)]
    fn last_ns(&self, now_ns: u64) -> u64 {
        now_ns
    }

    fn span_ns(&self, states: u64) -> u64 {
        let span = u128::from(states) * u128::from(self.rate.den()) / u128::from(self.rate.num());
        u64::try_from(span).unwrap_or(u64::MAX)
    }

    fn reads(&self, other: &Self) -> bool {
        self.rate == other.rate && self.horizon == other.horizon
    }

    fn layout(&self) -> [u64; 6] {
        let states = match self.kind {
            TatVariant::Meter => 3,
            TatVariant::Queue => 4,
            TatVariant::Event => 5,
        };
        // The interval from which the rate was built, in lowest terms.
        let (num, den) =
            (u128::from(self.interval) * u128::from(self.rate.den()), u128::from(self.rate.num()));
        let common = ticks::gcd(num, den);
        let fits = |value: u128| u64::try_from(value / common).unwrap_or(u64::MAX);
        [states, self.burst, fits(num), fits(den), self.interval, self.horizon]
    }
}
