//! Time arithmetic shared by the algorithms whose word is a theoretical arrival time (TAT).
//!
//! ```text
//!            |<------------- capacity = burst × T ------------->|
//! -----------+------------------------+-------------------------+------> time
//!           now        ahead         TAT      room for more
//! ```
//!
//! *Ticks.* The word counts ticks of `1/scale` ns, so that an emission interval `T = period / limit` is a whole number
//! of ticks. `scale` is the denominator of `T` in nanoseconds, if that is at most 32: `10/60s` has T = 6 s and scale 1,
//! `7/60s` has T = 60/7 s and scale 7. Both are exact, ties included.
//!
//! For other quotas `scale` is 32, or less if a full burst takes more than two years to refill, and `T` is rounded *up*
//! to a whole tick. The rate is never higher than the quota's, and lower by less than one part in `32 × T / 1 ns`.
//!
//! *Wrapping.* With scale 1 the word is nanoseconds since the clock's origin, and comparisons are plain. With a larger
//! scale the word is taken modulo 2⁶⁴. A TAT is then ahead of now if it is ahead by less than half the range: 2⁶³ ticks
//! of 1/32 ns are 9 years. A key that is idle for longer than that, and was not removed, may read as busy. A caller's
//! time that steps back by more than that may read a busy key as idle.
//!
//! Zero means "never used". A wrapping TAT that would be 0 or [`DEAD`] becomes 1, which can only deny more.

use super::step::{DEAD, Refund, Refunded, Step, Stepper};
use crate::algorithm::compact::ticks::{Interval, UnitRate};
use crate::algorithm::compact::{TatVariant, TatWord};
use crate::base::decision::{Decision, Facts, Outcome};
use crate::base::quota::{Quota, QuotaError, Reason};

/// An emission interval and a burst, in ticks. If `QUEUED`, a request proceeds at the time of the TAT instead of at
/// once.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Pace<const QUEUED: bool> {
    /// Ticks per unit, at least 1.
    interval: u64,
    /// `burst` intervals: the furthest that a TAT may be ahead of now. At most 2⁶³ − 1, and 2⁶¹ if the scale is not 1.
    capacity: u64,
    burst: u64,
    /// Ticks per nanosecond, 1 to 32.
    scale: u32,
}

/// Implements the algorithm traits for a type whose only field is `pace`.
macro_rules! paced {
    ($algorithm:ident, $name:literal, queued: $queued:literal) => {
        #[allow(dead_code, reason = "only some features need it")]
        impl $algorithm {
            /// Returns the quota of the word's ticks.
            pub(crate) fn quota(&self) -> Quota {
                self.pace.quota()
            }
        }

        impl $crate::algorithm::step::Wrapper for $algorithm {
            type Engine = Pace<$queued>;

            #[inline]
            fn engine(&self) -> &Pace<$queued> {
                &self.pace
            }
        }

        impl $crate::algorithm::compact::IntoCompact for $algorithm {
            type CompactState = TatWord;

            fn compact(&self, tiers: &[Quota], overdraft: u64) -> Result<TatWord, QuotaError> {
                self.pace.compact($name, tiers, overdraft)
            }

            fn tier(&self, own: &TatWord, quota: &Quota) -> Result<TatWord, QuotaError> {
                own.tier($name, Pace::<$queued>::new(quota).rate())
            }
        }

        impl $crate::algorithm::step::Algorithm for $algorithm {
            fn requota(&self, quota: &Quota) -> Result<Self, QuotaError> {
                Ok(Self { pace: self.pace.requota($name, quota)? })
            }

            fn with_quota(&self, quota: &Quota) -> Result<Self, QuotaError> {
                Ok(Self::new(*quota))
            }

            fn reading(&self, other: &Self) -> Option<Self> {
                Some(Self { pace: self.pace.reading(&other.pace)? })
            }
        }
    };
}
pub(super) use paced;

pub(super) const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Pace<false> {
    /// Returns the quota in ticks of `1 / (scale × spread)` ns if its times are multiples of `spread` ticks, so that a
    /// word has room for other data in its lowest bits. `None` if a full burst does not fit then.
    pub(super) const fn spread(quota: &Quota, scale: u32, spread: u32) -> Option<Self> {
        let Some(Self { interval, capacity, burst, scale }) = Self::at_scale(quota, scale) else {
            return None;
        };
        if capacity as u128 * spread as u128 > Self::MAX_WRAPPING_CAPACITY {
            return None;
        }
        let (interval, capacity) = (interval * spread as u64, capacity * spread as u64);
        Some(Self { interval, capacity, burst, scale: scale * spread })
    }

    /// Returns how far a word is ahead of now if exactly one unit is free.
    pub(super) const fn one_free(&self) -> u64 {
        self.capacity - self.interval
    }

    /// Returns the ticks of a time span, at most `u64::MAX`.
    pub(super) const fn span(&self, span_ns: u64) -> u64 {
        span_ns.saturating_mul(self.scale as u64)
    }
}

impl<const QUEUED: bool> Pace<QUEUED> {
    const MAX_SCALE: u32 = 32;
    pub(super) const MAX_WRAPPING_CAPACITY: u128 = 1 << 61;

    pub(crate) const fn new(quota: &Quota) -> Self {
        let denominator = quota.limit() / gcd(quota.limit(), quota.period_ns());
        if denominator <= Self::MAX_SCALE as u64 {
            #[expect(clippy::cast_possible_truncation, reason = "at most 32")]
            let exact = Self::at_scale(quota, denominator as u32);
            if let Some(pace) = exact {
                return pace;
            }
        }
        let mut scale = Self::MAX_SCALE;
        loop {
            match Self::at_scale(quota, scale) {
                Some(pace) => return pace,
                // A quota is valid only if scale 1 fits, so the loop ends.
                None => scale -= 1,
            }
        }
    }

    /// Returns the quota in ticks of `1/scale` ns, if it fits.
    pub(crate) const fn at_scale(quota: &Quota, scale: u32) -> Option<Self> {
        let interval = (quota.period_ns() as u128 * scale as u128).div_ceil(quota.limit() as u128);
        let max = if scale == 1 { i64::MAX as u128 } else { Self::MAX_WRAPPING_CAPACITY };
        if interval > max / quota.burst_size() as u128 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most `max`, which fits")]
        let interval = interval as u64;
        Some(Self { interval, capacity: interval * quota.burst_size(), burst: quota.burst_size(), scale })
    }

    /// Returns another quota in the same ticks; its interval is rounded up to whole ticks.
    pub(crate) fn requota(&self, algorithm: &'static str, quota: &Quota) -> Result<Self, QuotaError> {
        Self::at_scale(quota, self.scale).ok_or_else(|| {
            let same = "range of times: its full burst takes too long to refill";
            Reason::Layout { algorithm, same }.into()
        })
    }

    /// Returns another pace in the ticks of this one, if it fits; its interval is rounded up to whole ticks.
    pub(crate) fn reading(&self, other: &Self) -> Option<Self> {
        if self.reads(other) { Some(*other) } else { Self::at_scale(&other.quota(), self.scale) }
    }

    /// Returns this pace in the ticks of one compact table that also holds `tiers`.
    pub(crate) fn compact(
        &self,
        algorithm: &'static str,
        tiers: &[Quota],
        overdraft: u64,
    ) -> Result<TatWord, QuotaError> {
        let kind = if QUEUED { TatVariant::Queue } else { TatVariant::Meter };
        let tiers = tiers.iter().map(|quota| Self::new(quota).rate()).collect();
        TatWord::new(algorithm, self.rate(), tiers, overdraft, kind)
    }

    /// Returns the interval as a fraction in lowest terms, and the burst.
    pub(crate) fn rate(&self) -> UnitRate {
        let scale = u64::from(self.scale);
        let common = gcd(self.interval, scale);
        UnitRate {
            interval: Interval { num: self.interval / common, den: scale / common },
            burst: self.burst,
        }
    }

    /// Returns the quota of these ticks. Its rate is that of the quota from which they were made, rounded as they are.
    pub(crate) fn quota(&self) -> Quota {
        let UnitRate { interval: Interval { num, den }, burst } = self.rate();
        Quota::stored(den, num, burst)
    }

    pub(crate) const fn burst(&self) -> u64 {
        self.burst
    }

    /// Returns the length of the longest queue in which no unit waits longer than `wait_ns`: in units, at least 1.
    pub(crate) const fn units_within(&self, wait_ns: u64) -> u64 {
        wait_ns.saturating_mul(self.scale as u64) / self.interval + 1
    }

    /// Returns the furthest that any word may be ahead of now, by debts and reservations: 292 years, or four years if
    /// the word wraps.
    pub(super) const fn furthest(&self) -> u64 {
        if self.scale == 1 { i64::MAX as u64 } else { 1 << 62 }
    }

    /// Returns how far the word is ahead of now, in ticks.
    #[inline]
    pub(super) const fn ahead(&self, word: u64, now_ticks: u64) -> u64 {
        if self.scale == 1 {
            return word.saturating_sub(now_ticks);
        }
        let ahead = word.wrapping_sub(now_ticks);
        if word == 0 || ahead > i64::MAX as u64 { 0 } else { ahead }
    }

    #[inline]
    pub(super) const fn ticks(&self, now_ns: u64) -> u64 {
        // Wraps only if the scale is not 1; then the comparison wraps too.
        now_ns.wrapping_mul(self.scale as u64)
    }

    /// Returns the TAT `ahead` ticks after now, or `None` if it is beyond the end of time.
    #[inline]
    pub(super) const fn tat(&self, now_ticks: u64, ahead: u64) -> Option<u64> {
        if self.scale == 1 {
            return match now_ticks.checked_add(ahead) {
                Some(DEAD) | None => None,
                tat => tat,
            };
        }
        Some(match now_ticks.wrapping_add(ahead) {
            0 | DEAD => 1,
            tat => tat,
        })
    }

    #[inline]
    pub(super) fn decide(&self, outcome: Outcome, now_ns: u64, cost: u64, ahead: u64) -> Decision {
        let Self { interval, capacity, burst, scale } = *self;
        let facts = Facts::Pace { ahead, interval, capacity, scale, queued: QUEUED, mark: 0 };
        Decision::new(outcome, cost, burst, now_ns, facts)
    }

    /// Virtual scheduling: admits `cost` units if the resulting TAT is at most `room` ahead of now. `room` is at least
    /// the capacity.
    #[inline]
    fn step_within(&self, room: u64, word: u64, now_ns: u64, cost: u64) -> Step {
        let now = self.ticks(now_ns);
        let ahead = self.ahead(word, now);
        let decide = |outcome, ahead| self.decide(outcome, now_ns, cost, ahead);
        if cost == 0 {
            return Step::admit(decide(Outcome::Allowed, ahead), word);
        }
        if cost > self.burst {
            return Step::Deny(decide(Outcome::Never, ahead));
        }
        // At most the capacity, since the cost is at most the burst.
        let charge = cost * self.interval;
        if ahead > room - charge {
            return Step::Deny(decide(Outcome::Denied, ahead));
        }
        match self.tat(now, ahead + charge) {
            Some(next) => Step::admit(decide(Outcome::Allowed, ahead + charge), next),
            None => Step::Deny(decide(Outcome::Denied, self.capacity)),
        }
    }
}

impl<const QUEUED: bool> Pace<QUEUED> {
    /// Returns the ticks of one unit of a charge, and the ticks of the charge that are certainly not paid at `now_ns`: see
    /// [`Stepper::refund`]. `None` if the charge cannot be refunded.
    fn unpaid(&self, charge: &Decision, word: u64, now_ns: u64) -> Option<(u64, u64)> {
        let &Facts::Pace { ahead: then, interval, capacity, scale, queued, .. } = charge.facts() else {
            return None;
        };
        if scale != self.scale {
            return None;
        }
        let own = interval.saturating_mul(charge.charged());
        let turn = match charge.has_turn() {
            true if self.tat(self.ticks(charge.at_ns()), then) != Some(word) => return None,
            true if queued => then.saturating_sub(own),
            true => then.saturating_sub(capacity),
            false => 0,
        };
        let passed = now_ns.saturating_sub(charge.at_ns());
        let passed = passed.saturating_mul(u64::from(scale)).saturating_sub(turn);
        Some((interval, own.saturating_sub(passed)))
    }
}

impl<const QUEUED: bool> Stepper for Pace<QUEUED> {
    type Tail = ();

    #[inline]
    fn step(&self, word: u64, _read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        self.step_within(self.capacity, word, now_ns, cost)
    }

    /// Admits `cost` units if their turn comes within `wait_ns`. In a queue the turn is that of the first unit, and the
    /// queue never exceeds the capacity. Otherwise the turn is the time at which the resulting TAT is `capacity` ahead.
    fn reserve(&self, word: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64, wait_ns: u64) -> Step {
        let wait = wait_ns.saturating_mul(u64::from(self.scale));
        if !QUEUED {
            let room = self.capacity.saturating_add(wait).min(self.furthest());
            return self.step_within(room, word, now_ns, cost);
        }
        let ahead = self.ahead(word, self.ticks(now_ns));
        if ahead <= wait || cost == 0 || cost > self.burst {
            return self.step(word, read, now_ns, cost);
        }
        Step::Deny(self.decide(Outcome::Denied, now_ns, cost, ahead))
    }

    /// Charges `cost` units without a check for room, but only as many as the word can hold.
    fn force(&self, word: u64, _read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        let now = self.ticks(now_ns);
        let before = self.ahead(word, now);
        let most = match self.scale {
            1 => (DEAD - 1).saturating_sub(now).min(self.furthest()),
            _ => self.furthest(),
        };
        let units = cost.min(most.saturating_sub(before) / self.interval);
        let ahead = before + units * self.interval;
        let next = if units == 0 { word } else { self.tat(now, ahead).unwrap_or(word) };
        Step::admit(self.decide(Outcome::Allowed, now_ns, units, ahead).forced(), next)
    }

    /// The decision may be by another quota in the same ticks, whose units take longer or less long.
    fn owed(&self, decision: &Decision) -> u64 {
        match decision.facts() {
            Facts::Pace { ahead, .. } => ahead.div_ceil(self.interval),
            _ => decision.owed(),
        }
    }

    const CAN_REFUND: bool = !QUEUED;

    /// Refunds the unpaid part of up to `units` of a charge. All time since the charge's turn counts as payment of this
    /// charge, and the refund takes the charge's last units.
    ///
    /// The time does not count as payment of earlier charges. Earlier charges may have been refunded since, and then
    /// the time has paid this charge. The word does not record earlier charges, so only this part of the charge is
    /// certainly still owed.
    ///
    /// Why the bound holds: let W be the TAT, and W' the TAT if all refunded units had never been charged. After a
    /// charge of c ticks at time t, W' is at least c − (u − t) ahead at every later time u, and every later charge adds
    /// to that. Without r ticks of the charge, W' therefore decreases by r or by the rest of c, whichever is less. A
    /// refund moves W back by no more than that. W is therefore never before W', and the admissions of W' keep within
    /// the bound.
    ///
    /// Of the requests that wait, only the last one can be refunded: the later requests already have their turns.
    ///
    /// Without a charge, the word moves back by the time of the units, but not before now.
    fn refund(&self, word: u64, _read: impl Fn(usize) -> u64, refund: &Refund<'_>) -> Option<Refunded> {
        let &Refund { charge, units, now_ns } = refund;
        let (interval, owed) = match charge {
            Some(charge) => self.unpaid(charge, word, now_ns)?,
            None => (self.interval, u64::MAX),
        };
        let now = self.ticks(now_ns);
        let ahead = self.ahead(word, now);
        let back = owed.min(interval.saturating_mul(units)).min(ahead);
        if back == 0 {
            return None;
        }
        // `next` may be zero, which means a key that was never seen. That is right, because this key then owes nothing.
        let next = match ahead - back {
            0 if now == 0 => 0,
            left => self.tat(now, left)?,
        };
        Some(Refunded { next, units: back.div_ceil(interval) })
    }

    #[inline]
    fn is_idle(&self, word: u64, _read: impl Fn(usize) -> u64, now_ns: u64) -> bool {
        self.ahead(word, self.ticks(now_ns)) == 0
    }

    #[inline]
    fn until_idle(&self, word: u64, _read: impl Fn(usize) -> u64 + Copy, now_ns: u64) -> u64 {
        self.ahead(word, self.ticks(now_ns))
    }

    fn reads(&self, other: &Self) -> bool {
        self.scale == other.scale
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    fn admitted(step: Step) -> u64 {
        match step {
            Step::Admit { next, .. } => next,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn common_intervals_are_exact() {
        for (quota, interval, scale) in [
            (Quota::per_minute(10), 6_000_000_000, 1),
            (Quota::per_minute(7), 60_000_000_000, 7),
            (Quota::per_second(32_000_000_000), 1, 32),
            (Quota::per_second(700_000), 10_000, 7),
            (Quota::per_second(999), 32_032_033, 32),
            // A burst of two years or more leaves less room for fractions.
            (Quota::per_day(7).burst(5_000), 86_400_000_000_000, 7),
            (Quota::per_day(7).burst(700_000), 12_342_857_142_858, 1),
        ] {
            let pace = Pace::<false>::new(&quota);
            assert_eq!((pace.interval, pace.scale), (interval, scale), "{quota}");
        }
    }

    // G15
    #[test]
    fn pace_never_rounds_the_rate_up() {
        for limit in [3, 7, 11, 333, 999, 65_537, 699_999, 333_000_000, 31_999_999_999] {
            let pace = Pace::<false>::new(&Quota::per_second(limit));
            let exact = 1e9 / limit as f64 * f64::from(pace.scale);
            assert!(u128::from(pace.interval) * u128::from(limit) >= 1_000_000_000 * u128::from(pace.scale));
            assert!((pace.interval as f64) < exact + 1.0);
        }
    }

    // G42
    #[test]
    fn pace_denies_at_the_end_of_time() {
        let pace = Pace::<false>::new(&Quota::per_second(1).burst(3));
        let almost = u64::MAX - 1_000_000_001;
        assert!(matches!(pace.step(0, |_| 0, almost, 1), Step::Admit { .. }));
        assert!(matches!(pace.step(0, |_| 0, almost, 2), Step::Deny(_)));
        assert!(matches!(pace.step(0, |_| 0, u64::MAX, 1), Step::Deny(_)));
        assert!(matches!(pace.step(u64::MAX - 1, |_| 0, 0, 3), Step::Deny(_)));
    }

    // G42
    #[test]
    fn wrapping_tat_skips_zero_and_dead() {
        let pace = Pace::<false>::new(&Quota::per_second(7));
        let interval = pace.interval;
        // Times whose TAT would be 0 or DEAD, found by the inverse of 7 modulo 2^64.
        let inverse = 7u64.wrapping_mul(0x6DB6_DB6D_B6DB_6DB7);
        assert_eq!(inverse, 1);
        for target in [0u64, DEAD] {
            let now = target.wrapping_sub(interval).wrapping_mul(0x6DB6_DB6D_B6DB_6DB7);
            let word = admitted(pace.step(0, |_| 0, now, 1));
            assert_eq!(word, 1);
            assert!(!pace.is_idle(word, |_| 0, now));
            assert!(pace.is_idle(word, |_| 0, now.wrapping_add(interval)));
        }
    }
}
