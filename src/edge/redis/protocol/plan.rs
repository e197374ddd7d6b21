//! Limits as integers, with which the script on a server and its model in this process both count.
//!
//! A Lua script has only doubles, which are exact below 2^53. So every number that the script adds, multiplies or
//! compares stays below 2^53. There is one exception: numbers that are larger only where every larger number gives the
//! same decision.
//!
//! *GCRA.* The state is a time in microseconds, and the distance from this time to the theoretical arrival time, in
//! ticks. A microsecond has `scale` ticks, so that an emission interval is a whole number of ticks.
//!
//! 1. `scale` is the smallest whole number that makes the interval exact, if a full burst then takes at most 2^46 ticks:
//!    7 a minute has 7 ticks in a microsecond, and an interval of 60,000,000 ticks. So a burst that refills in a whole
//!    number of microseconds is back at exactly this microsecond.
//! 2. Otherwise `scale` is a power of two: the smallest that makes the interval exact. If there is none, it is the largest
//!    at which a full burst takes at most 2^46 ticks.
//! 3. Intervals are rounded up, so the rate is never higher than the quota's rate.
//! 4. The rate is lower by at most one part in `interval`: one in 2^25, for bursts of up to 2^20 and rates of up to 32
//!    a microsecond. A quota with an error above one in a thousand is rejected.
//! 5. There is room for a debt of 63 bursts, or of one burst if a burst takes 2^51 ticks. Bursts of up to 2^46 ticks
//!    keep that room, so rule 1 does not go beyond them.
//!
//! *Windows* are aligned to the Unix epoch and end on whole microseconds. A sliding window weights its previous count
//! by the remaining time. The unit of this time is 1 µs times a power of ten, so that limit times period is below 2^53.
//! The time is rounded up to whole units, which can deny more but never admit more.
//!
//! Times are whole microseconds, rounded down, until the year 2112. In any interval of real time, a limit admits at
//! most as much as the exact algorithm does in an interval that is one microsecond longer.

use std::fmt;

use super::exact::{EXACT, MOST, above};
use super::kinds::{Batches, CalendarPeriods, FewKinds, KindSet, Log, Parts, Spacing};
use crate::algorithm::compact::ticks::gcd;
use crate::algorithm::{Calendar, Limit, LimitKind};
use crate::base::quota::{Quota, QuotaError};

/// The preferred maximum number of ticks of a burst.
const ROOMY: u64 = 1 << 46;
/// The largest `scale`, as an exponent of two: 2^30 ticks in a microsecond. So intervals of 1/32 ns are distinct to one
/// part in 30,000.
const MOST_SHIFT: u32 = 30;
/// The error of a rate is at most one part in this number.
const FINE: u128 = 1_000;

/// The limits of a limiter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    parts: Box<[Part]>,
    /// The kinds of the limits, which select the script.
    kinds: KindSet,
    /// The ends of the names of their states, as texts.
    names: Box<[Box<str>]>,
    /// The arguments of each limit.
    arguments: Box<[Arguments]>,
    /// The kinds, if there are one or two limits and no calendar.
    few: Option<FewKinds>,
    /// Whether a limit has a calendar, so that the arguments of a call depend on its time.
    needs_time: bool,
}

/// The name of a limit's kind in the arguments of a script, and its numbers as texts. They are written once, and not for
/// each call, except for calendars.
type Arguments = (&'static str, Box<[Box<str>]>);

/// One limit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Part {
    pub(crate) limit: Limit,
    /// The index of this limit among the limits of the limiter.
    pub(crate) index: usize,
    pub(crate) kind: Arithmetic,
}

/// The end of the name of a limit's state. It contains the algorithm, so that no other algorithm reads the state; the
/// index; and the period, the number of parts and the phase, or the calendar, because windows with other values begin and
/// end at other times.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StateName {
    letter: char,
    index: usize,
    period_us: Option<u64>,
    parts: u64,
    phase_us: u64,
    calendar: Option<Calendar>,
}

/// The numbers that the script counts with.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Arithmetic {
    Pace(Pace),
    Windows(Windows),
    Log(Log),
    Parts(Parts),
    Spacing(Spacing),
    Batches(Batches),
    Calendar(CalendarPeriods),
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pace {
    /// Ticks for one unit, at least 1.
    pub(crate) interval: u64,
    /// Ticks in a microsecond, at least 1.
    pub(crate) scale: u64,
    /// Ticks for a full burst.
    pub(crate) capacity: u64,
}

/// The numbers with which the script counts windows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Windows {
    /// The limit, in units.
    pub limit: u64,
    /// The length of a window.
    pub period_us: u64,
    /// The unit of time for weights, in microseconds. It divides the period.
    pub unit_us: u64,
    /// Whether the previous window counts.
    pub slides: bool,
    /// Whether the weighted previous count is rounded up.
    pub strict: bool,
}

impl Plan {
    /// # Errors
    /// Returns an error for the first limit that cannot be counted exactly. The error states the largest burst or limit
    /// that fits, or the periods that are possible.
    pub fn new(limits: &[Limit]) -> Result<Self, QuotaError> {
        let part = |(index, limit): (usize, &Limit)| {
            let (limit, quota) = (limit.canonical(), limit.quota());
            if limit.block().is_some() {
                return Err(QuotaError::worded(
                    "limits on a server do not block keys after a denial; use a limit of this process, such as a keyed \
                     one, or remove the block"
                        .to_owned(),
                ));
            }
            let kind = match limit.kind() {
                LimitKind::Gcra
                | LimitKind::TokenBucket
                | LimitKind::LeakyBucketMeter
                | LimitKind::LeakyBucketQueue => Arithmetic::Pace(Pace::new(&quota)?),
                LimitKind::FixedWindow => Arithmetic::Windows(Windows::new(&quota, None)?),
                LimitKind::SlidingWindow { strict } => {
                    Arithmetic::Windows(Windows::new(&quota, Some(strict))?)
                }
                LimitKind::SlidingLog => Arithmetic::Log(Log::new(&quota)?),
                LimitKind::SubWindow { parts, strict } => {
                    Arithmetic::Parts(Parts::new(&quota, parts, strict)?)
                }
                LimitKind::MinimumSpacing { spacing } => Arithmetic::Spacing(Spacing::new(spacing)?),
                LimitKind::CalendarWindow { calendar } => {
                    Arithmetic::Calendar(CalendarPeriods::new(calendar, &quota)?)
                }
                LimitKind::FirstUseWindow => Arithmetic::Batches(Batches::windows(&quota)?),
                LimitKind::IntervalBucket => Arithmetic::Batches(Batches::bucket(&quota, None)?),
                LimitKind::AlignedBucket { at, adaptive } => {
                    Arithmetic::Batches(Batches::bucket(&quota, Some((at, adaptive)))?)
                }
            };
            Ok::<_, QuotaError>(Part { limit, index, kind })
        };
        let parts: Box<[Part]> = limits.iter().enumerate().map(part).collect::<Result<_, _>>()?;
        Ok(Self::of(parts))
    }

    fn of(parts: Box<[Part]>) -> Self {
        let needs_time = parts.iter().any(|part| matches!(part.kind, Arithmetic::Calendar(_)));
        let plan = Self::at(parts, 0);
        Self { few: plan.few.filter(|_| !needs_time), needs_time, ..plan }
    }

    /// Creates the plan of calls at a time, in microseconds.
    fn at(parts: Box<[Part]>, at_us: u64) -> Self {
        let kinds = parts.iter().map(|part| part.kind.text()).reduce(KindSet::with);
        let names = parts.iter().map(|part| part.name().to_string().into()).collect();
        let text = |number: &u64| number.to_string().into();
        let arguments = |part: &Part| {
            let (kind, numbers) = part.kind.arguments(at_us);
            (kind, numbers.iter().map(text).collect())
        };
        let arguments: Box<[Arguments]> = parts.iter().map(arguments).collect();
        let few = match &*arguments {
            [(first, _)] => Some(FewKinds::new(first, None)),
            [(first, _), (second, _)] => Some(FewKinds::new(first, Some(second))),
            _ => None,
        };
        Self { parts, kinds: kinds.unwrap_or(KindSet::of(0)), names, arguments, few, needs_time: false }
    }

    /// The kinds of the limits.
    pub(super) const fn kinds(&self) -> KindSet {
        self.kinds
    }

    /// The ends of the names of their states, in order.
    pub(super) fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// The arguments of each limit, in order.
    pub(super) fn arguments(&self) -> &[Arguments] {
        &self.arguments
    }

    /// The kinds, if there are one or two limits and no calendar.
    pub(super) const fn few(&self) -> Option<FewKinds> {
        self.few
    }

    /// Whether a command needs [`Plan::with_time`].
    pub(super) const fn needs_time(&self) -> bool {
        self.needs_time
    }

    /// Returns the plan of calls at this time: the arguments have the periods of calendars.
    pub(super) fn with_time(&self, at_us: u64) -> Self {
        Self::at(self.parts.clone(), at_us)
    }

    /// The limits, in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The limits.
    pub(crate) fn limits(&self) -> impl ExactSizeIterator<Item = Limit> {
        self.parts.iter().map(|part| part.limit)
    }

    /// Returns a plan with one of the limits. It reads and writes the same state as in the whole plan.
    pub fn single(&self, index: usize) -> Option<Self> {
        self.parts.get(index).map(|&part| Self::of([part].into()))
    }

    /// The largest cost that all limits together can admit at once.
    pub fn most(&self) -> u64 {
        self.parts.iter().map(|part| part.limit.most()).min().unwrap_or(u64::MAX)
    }

    /// The time in microseconds that pays all units up to the limits.
    pub fn refill_us(&self) -> u64 {
        self.parts.iter().map(|part| part.refill_us()).max().unwrap_or(0)
    }
}

/// Checks that the script can count a limit.
#[cfg(feature = "rules")]
pub(crate) fn check_limit(limit: &Limit) -> Result<(), QuotaError> {
    Plan::new(&[*limit]).map(drop)
}

impl Arithmetic {
    /// The text that counts this kind.
    const fn text(&self) -> KindSet {
        match self {
            Self::Pace(_) => KindSet::of(0),
            Self::Windows(_) => KindSet::of(1),
            Self::Log(_) => KindSet::of(2),
            Self::Parts(_) => KindSet::of(3),
            Self::Spacing(_) => KindSet::of(4),
            Self::Batches(_) => KindSet::of(5),
            Self::Calendar(_) => KindSet::of(6),
        }
    }

    /// The name of its kind in the arguments of a script, and its numbers. A calendar has the numbers of calls at a time.
    fn arguments(&self, at_us: u64) -> (&'static str, Vec<u64>) {
        match *self {
            Self::Pace(Pace { interval, scale, capacity }) => ("g", vec![interval, scale, capacity]),
            Self::Windows(windows) => {
                (windows.kind(), vec![windows.limit, windows.period_us, windows.unit_us])
            }
            Self::Log(Log { limit, period_us }) => ("l", vec![limit, period_us]),
            Self::Parts(Parts { limit, part_us, parts, strict }) => {
                (if strict { "P" } else { "p" }, vec![limit, part_us, parts])
            }
            Self::Spacing(Spacing { spacing_us }) => ("m", vec![spacing_us]),
            Self::Batches(Batches { capacity, period_us, batch, phase_us, adaptive }) => {
                let kind = match phase_us {
                    None => "i",
                    Some(_) if adaptive => "A",
                    Some(_) => "a",
                };
                (kind, vec![capacity, period_us, batch, phase_us.unwrap_or(0)])
            }
            Self::Calendar(periods) => {
                let [own, next, after] = periods.starts_us(at_us);
                ("c", vec![periods.limit, own, next, after])
            }
        }
    }
}

impl Part {
    /// Its windows, if it has windows.
    pub const fn windows(&self) -> Option<Windows> {
        match self.kind {
            Arithmetic::Windows(windows) => Some(windows),
            _ => None,
        }
    }

    /// The period of its windows in microseconds, if it has windows.
    pub(crate) fn window_us(&self) -> Option<u64> {
        self.windows().map(|windows| windows.period_us)
    }

    pub(crate) const fn refill_us(&self) -> u64 {
        match self.kind {
            Arithmetic::Pace(pace) => pace.capacity.div_ceil(pace.scale),
            Arithmetic::Windows(windows) if windows.slides => windows.period_us * 2,
            Arithmetic::Windows(windows) => windows.period_us,
            Arithmetic::Log(log) => log.period_us,
            Arithmetic::Parts(parts) => (parts.parts + 1) * parts.part_us,
            Arithmetic::Spacing(spacing) => spacing.spacing_us,
            Arithmetic::Batches(batches) => {
                batches.period_us.saturating_mul(batches.periods(batches.capacity))
            }
            // The longest period.
            Arithmetic::Calendar(_) => self.limit.quota().period_ns().div_ceil(1_000),
        }
    }

    /// The end of the name of its state.
    pub const fn name(&self) -> StateName {
        let (mut parts, mut phase_us, mut calendar) = (1, 0, None);
        let (letter, period_us) = match self.kind {
            Arithmetic::Pace(_) => ('g', None),
            Arithmetic::Windows(windows) => (if windows.slides { 's' } else { 'f' }, Some(windows.period_us)),
            Arithmetic::Log(log) => ('l', Some(log.period_us)),
            Arithmetic::Parts(counter) => {
                parts = counter.parts;
                ('p', Some(counter.part_us * parts))
            }
            Arithmetic::Spacing(_) => ('m', None),
            Arithmetic::Batches(batches) => {
                if let Some(phase) = batches.phase_us {
                    phase_us = phase;
                }
                let letter = match batches {
                    Batches { phase_us: Some(_), .. } => 'a',
                    Batches { batch: Batches::ALL, .. } => 'w',
                    _ => 'i',
                };
                (letter, Some(batches.period_us))
            }
            Arithmetic::Calendar(periods) => {
                calendar = Some(periods.calendar);
                ('c', None)
            }
        };
        StateName { letter, index: self.index, period_us, parts, phase_us, calendar }
    }
}

/// Writes names like `g0`, `f1:1d`, `s0:1500ms`, `p0:1h/60`, `a0:1d+8h`, `c0:month in Europe/Berlin`. Each time is in the
/// largest unit that gives a whole number.
impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.letter, self.index)?;
        if let Some(calendar) = self.calendar {
            write!(f, ":{calendar}")?;
        }
        let Some(period_us) = self.period_us else { return Ok(()) };
        write!(f, ":{}", InUnits(period_us))?;
        if self.parts != 1 {
            write!(f, "/{}", self.parts)?;
        }
        if self.phase_us != 0 {
            write!(f, "+{}", InUnits(self.phase_us))?;
        }
        Ok(())
    }
}

/// A time in microseconds, written in the largest unit that gives a whole number.
struct InUnits(u64);

impl fmt::Display for InUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 5] =
            [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1_000, "ms")];
        let unit = UNITS.into_iter().find(|(unit, _)| self.0.is_multiple_of(*unit));
        let (unit_us, unit) = unit.unwrap_or((1, "us"));
        write!(f, "{}{unit}", self.0 / unit_us)
    }
}

impl Pace {
    fn new(quota: &Quota) -> Result<Self, QuotaError> {
        // The ticks of a unit at a scale, and whether they are exact or close enough.
        let at = |shift: u32| {
            let (period, limit) = (u128::from(quota.period_ns()) << shift, u128::from(quota.limit()) * 1_000);
            let interval = period.div_ceil(limit);
            let (over, exact) = (interval * limit - period, period % limit == 0);
            (interval, exact, over * FINE <= period)
        };
        let burst = u128::from(quota.burst_size());
        let fits = |interval: u128, most: u64| interval * burst <= u128::from(most);
        let made = |shift: u32, interval: u128| {
            // The caller has checked that the value is at most `MOST`, so this conversion does not fail.
            let interval = u64::try_from(interval).unwrap_or(MOST);
            Self { interval, scale: 1 << shift, capacity: interval * quota.burst_size() }
        };
        if let Some(exact) = Self::exact(quota) {
            return Ok(exact);
        }
        let scales = 0..=MOST_SHIFT;
        let exact = scales.clone().find(|&shift| at(shift).1).filter(|&shift| fits(at(shift).0, MOST));
        let roomy = || {
            let largest = scales.clone().rev().find(|&shift| fits(at(shift).0, ROOMY));
            largest.filter(|&shift| at(shift).2)
        };
        let near = || scales.clone().find(|&shift| at(shift).2).filter(|&shift| fits(at(shift).0, MOST));
        if let Some(shift) = exact.or_else(roomy).or_else(near) {
            return Ok(made(shift, at(shift).0));
        }
        let interval = scales.clone().map(at).find(|scale| scale.2).map_or(u128::MAX, |scale| scale.0);
        let max = u64::try_from(u128::from(MOST) / interval).unwrap_or(u64::MAX);
        Err(above("GCRA", quota, "burst", max))
    }

    /// Returns the quota without rounding, if its numbers are small enough.
    fn exact(quota: &Quota) -> Option<Self> {
        let (period, limit) = (u128::from(quota.period_ns()), u128::from(quota.limit()) * 1_000);
        let common = gcd(period, limit);
        let interval = u64::try_from(period / common).ok()?;
        let scale = u64::try_from(limit / common).ok().filter(|scale| *scale <= 1 << MOST_SHIFT)?;
        let capacity = interval.checked_mul(quota.burst_size()).filter(|capacity| *capacity <= ROOMY)?;
        Some(Self { interval, scale, capacity })
    }

    /// The units left.
    pub(super) const fn left(&self, ahead: u64) -> u64 {
        self.capacity.saturating_sub(ahead) / self.interval
    }
}

impl Windows {
    fn new(quota: &Quota, slides: Option<bool>) -> Result<Self, QuotaError> {
        let algorithm = if slides.is_some() { "sliding window" } else { "fixed window" };
        let (limit, period_us) = (quota.limit(), quota.period_ns() / 1_000);
        if !quota.period_ns().is_multiple_of(1_000) || period_us > MOST {
            return Err(QuotaError::worded(format!(
                "shared {algorithm} of {quota}: the period must be a whole number of microseconds and at most 71 years, because \
                 the server counts time in microseconds"
            )));
        }
        let mut windows =
            Self { limit, period_us, unit_us: 1, slides: slides.is_some(), strict: slides == Some(true) };
        let mut max = MOST;
        if windows.slides {
            let most_in = |unit_us: u64| (EXACT / (period_us / unit_us)).min(MOST) - 1;
            while limit > most_in(windows.unit_us) && period_us.is_multiple_of(windows.unit_us * 10) {
                windows.unit_us *= 10;
            }
            max = most_in(windows.unit_us);
        }
        if limit > max {
            return Err(above(algorithm, quota, "limit", max));
        }
        Ok(windows)
    }

    /// The units left, when this much time of the current window is left.
    pub(super) fn left(&self, previous: u64, current: u64, left_us: u64) -> u64 {
        self.limit.saturating_sub(current).saturating_sub(self.weighed(previous, left_us))
    }

    /// The weighted units of the previous window, when this much time of the current window is left.
    pub fn weighed(&self, previous: u64, left_us: u64) -> u64 {
        let product = u128::from(previous) * u128::from(left_us.div_ceil(self.unit_us));
        match u64::try_from(product) {
            Ok(product) if product < EXACT => {
                let period = self.period_us / self.unit_us;
                if self.strict { product.div_ceil(period) } else { product / period }
            }
            // More than any limit.
            _ => EXACT,
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    fn pace(quota: Quota) -> Pace {
        Pace::new(&quota).unwrap()
    }

    #[test]
    fn smallest_scale_makes_interval_exact() {
        for (quota, interval, scale) in [
            (Quota::per_minute(10), 6_000_000, 1),
            (Quota::per_second(1_000_000), 1, 1),
            (Quota::per_second(4_000_000), 1, 4),
            (Quota::per_second(64), 15_625, 1),
            (Quota::per_second(128), 15_625, 2),
            (Quota::per_minute(7), 60_000_000, 7),
            (Quota::per_hour(19_541), 3_600_000_000, 19_541),
            (Quota::per_second(3_000_000), 1, 3),
        ] {
            assert_eq!(
                pace(quota),
                Pace { interval, scale, capacity: interval * quota.burst_size() },
                "{quota}"
            );
        }
    }

    #[test]
    fn rate_error_is_bounded() {
        let bursts = [1, 2, 1_000, 999_999, 1 << 31];
        let limits = [1, 3, 7, 999, 1_000_003, 31_999_999_999, 32_000_000_000];
        for limit in limits {
            for burst in bursts {
                for period in [1_000_000_000, 60_000_000_000, 86_400_000_000_000] {
                    let Ok(quota) = Quota::try_new(limit, Duration::from_nanos(period)) else { continue };
                    let Ok(quota) = quota.try_burst(burst) else { continue };
                    let Ok(pace) = Pace::new(&quota) else {
                        let longest = u128::from(period) * u128::from(burst) / u128::from(limit);
                        assert!(longest > 1 << 50, "{quota} was rejected");
                        continue;
                    };
                    let asked = u128::from(period) * u128::from(pace.scale);
                    let got = u128::from(pace.interval) * u128::from(limit) * 1_000;
                    assert!(got >= asked && (got - asked) * 1_000 <= asked, "{quota}: {pace:?}");
                    if burst < 1_000_000 && limit <= 32_000_000 && pace.capacity <= ROOMY {
                        assert!((got - asked) << 25 <= asked, "{quota}: {pace:?}");
                    }
                    assert!(pace.capacity <= MOST && (1..=1 << MOST_SHIFT).contains(&pace.scale));
                    let is_small = burst <= 814 * 86_400_000_000_000 / period && limit <= 1_000_003;
                    assert!(!is_small || got == asked, "{quota}: {pace:?}");
                }
            }
        }
    }

    #[test]
    fn sliding_window_weight_unit_fits() {
        for (quota, unit) in [
            (Quota::per_minute(7), 1),
            (Quota::per_day(10_000), 1),
            (Quota::per_day(1_000_000), 10),
            (Quota::per_day(1_000_000_000), 10_000),
        ] {
            let windows = Windows::new(&quota, Some(false)).unwrap();
            assert_eq!(windows.unit_us, unit, "{quota}");
            assert!((windows.limit + 1) * (windows.period_us / unit) <= EXACT);
        }
    }
}
