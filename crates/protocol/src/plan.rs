//! Limits as integers, with which the script on a server and its model in this process both count.
//!
//! A Lua script has only doubles, which are exact below 2^53. So every number that the script adds, multiplies or
//! compares stays below 2^53. There is one exception: numbers that are larger only where every larger number gives the
//! same decision.
//!
//! *GCRA* and *blocks*: see [`Pace`].
//!
//! *Windows* are aligned to the Unix epoch and end on whole microseconds. A sliding window weights its previous count
//! by the remaining time. The unit of this time is 1 µs times a power of ten, so that limit times period is below 2^53.
//! The time is rounded up to whole units, which can deny more but never admit more.
//!
//! Times are whole microseconds, rounded down, until the year 2112. In any interval of real time, a limit admits at
//! most as much as the exact algorithm does in an interval that is one microsecond longer.

use tollgate::internals::quota_error;
use tollgate::{Class, Limit, LimitKind, Quota, QuotaError};

use super::exact::{EXACT, MOST, at_most, period_us};
use super::kinds::{Batches, Blocks, CalendarPeriods, KindPair, KindSet, Log, Pace, Parts, Spacing};

/// The limits of a limiter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    parts: Box<[PlannedLimit]>,
    /// The kinds of the limits, which select the script.
    pub(super) kinds: KindSet,
    /// The ends of the names of their states, as texts.
    pub(super) names: Box<[Box<str>]>,
    /// The arguments of each limit.
    pub(super) arguments: Box<[Arguments]>,
    /// The kinds, if there are one or two limits and no calendar.
    pub(super) pair: Option<KindPair>,
    /// Whether a limit has a calendar, so that the arguments of a call depend on its time.
    pub(super) needs_time: bool,
}

/// The name of a limit's kind in the arguments of a script, and its numbers as texts. They are written once, and not for
/// each call, except for calendars.
type Arguments = (&'static str, Box<[Box<str>]>);

/// One limit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PlannedLimit {
    /// The limit, in its canonical form.
    pub limit: Limit,
    /// The index of this limit among the limits of the limiter.
    pub index: usize,
    pub(crate) kind: Arithmetic,
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
    Blocked(Blocks),
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
    /// Converts the limits of a limiter into the integers that scripts count with.
    ///
    /// # Errors
    /// Returns an error for the first limit that cannot be counted exactly. The error states the largest burst or limit
    /// that fits, or the periods that are possible.
    pub fn new(limits: &[Limit]) -> Result<Self, QuotaError> {
        let part = |(index, limit): (usize, &Limit)| {
            let (limit, quota) = (limit.canonical(), limit.quota());
            let kind = match limit.kind() {
                LimitKind::Gcra
                | LimitKind::TokenBucket
                | LimitKind::LeakyBucketMeter
                | LimitKind::LeakyBucketQueue => match limit.block() {
                    Some(block) => Arithmetic::Blocked(Blocks::new(&quota, block)?),
                    None => Arithmetic::Pace(Pace::new(&quota)?),
                },
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
                other => {
                    return Err(quota_error(format!("no script on a server counts {other:?} of {quota}")));
                }
            };
            Ok::<_, QuotaError>(PlannedLimit { limit, index, kind })
        };
        let parts: Box<[PlannedLimit]> = limits.iter().enumerate().map(part).collect::<Result<_, _>>()?;
        Ok(Self::of(parts))
    }

    fn of(parts: Box<[PlannedLimit]>) -> Self {
        let needs_time = parts.iter().any(|part| matches!(part.kind, Arithmetic::Calendar(_)));
        let plan = Self::at(parts, 0);
        Self { pair: plan.pair.filter(|_| !needs_time), needs_time, ..plan }
    }

    /// Creates the plan of calls at a time, in microseconds.
    fn at(parts: Box<[PlannedLimit]>, at_us: u64) -> Self {
        let names = parts.iter().map(|part| part.name().into()).collect();
        let arguments: Box<[Arguments]> = parts.iter().map(|part| part.kind.arguments(at_us)).collect();
        let kinds = || arguments.iter().map(|(kind, _)| *kind);
        let (kinds, pair) = (KindSet::of(kinds()), KindPair::of(kinds()));
        Self { parts, kinds, names, arguments, pair, needs_time: false }
    }

    /// The limits, with the ends of the names of their states.
    pub(super) fn named(&self) -> impl Iterator<Item = (&PlannedLimit, &str)> {
        self.parts.iter().zip(self.names.iter().map(|name| &**name))
    }

    /// Returns the plan of calls at this time: the arguments have the periods of calendars.
    pub(super) fn with_time(&self, at_us: u64) -> Self {
        Self::at(self.parts.clone(), at_us)
    }

    /// The limits, in order.
    pub fn parts(&self) -> &[PlannedLimit] {
        &self.parts
    }

    /// The limits.
    pub fn limits(&self) -> impl ExactSizeIterator<Item = Limit> {
        self.parts.iter().map(|part| part.limit)
    }

    /// Returns a plan with one of the limits. It reads and writes the same state as in the whole plan.
    pub fn single(&self, index: usize) -> Option<Self> {
        self.parts.get(index).map(|&part| Self::of([part].into()))
    }

    /// Returns the plan of calls for a class of requests. It reads and writes the same states.
    ///
    /// # Errors
    /// Returns an error if less than one unit is left for the class, or if a new key starts with a share of the burst.
    pub fn of_class(&self, class: Class) -> Result<Self, QuotaError> {
        let parts = self.parts.iter().map(|part| part.of_class(class));
        Ok(Self::of(parts.collect::<Result<_, _>>()?))
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

impl Arithmetic {
    /// The name of its kind in the arguments of a script, and its numbers. A calendar has the numbers of calls at a time.
    fn arguments(&self, at_us: u64) -> Arguments {
        let mut texts = Vec::new();
        let (kind, numbers) = match *self {
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
            Self::Blocked(Blocks {
                pace: Pace { interval, scale, capacity },
                first_us,
                longest_us,
                free,
            }) => {
                texts.push(format!("{first_us} {longest_us} {free}").into());
                ("b", vec![interval, scale, capacity])
            }
        };
        let numbers = numbers.iter().map(|number| number.to_string().into());
        (kind, numbers.chain(texts).collect())
    }
}

impl PlannedLimit {
    /// Returns this limit without the units that a class leaves to other requests. The ticks and the name stay, so the state
    /// is the same.
    fn of_class(&self, class: Class) -> Result<Self, QuotaError> {
        let (mut kind, most) = (self.kind, self.limit.most());
        let kept = class.headroom(most);
        if kept == 0 {
            return Ok(*self);
        }
        if kept == most {
            return Err(quota_error(format!(
                "shared {}: less than one of {most} units is left for a class with {} millionths; raise its share, or the limit",
                self.limit,
                class.share(),
            )));
        }
        match &mut kind {
            Arithmetic::Pace(pace) | Arithmetic::Blocked(Blocks { pace, .. }) => {
                pace.capacity -= kept * pace.interval;
            }
            Arithmetic::Windows(Windows { limit, .. })
            | Arithmetic::Log(Log { limit, .. })
            | Arithmetic::Parts(Parts { limit, .. })
            | Arithmetic::Calendar(CalendarPeriods { limit, .. }) => *limit -= kept,
            Arithmetic::Batches(Batches { adaptive: true, .. }) => {
                return Err(quota_error(format!(
                    "shared {}: it has no classes, because a new key starts with a share of the burst; use \
                     TokenBucket::aligned",
                    self.limit
                )));
            }
            Arithmetic::Batches(batches) => batches.capacity -= kept,
            // It admits every cost or none.
            Arithmetic::Spacing(_) => return Ok(*self),
        }
        Ok(Self { limit: self.limit.with_most(most - kept)?, kind, ..*self })
    }

    /// Its windows, if it has windows.
    pub const fn windows(&self) -> Option<Windows> {
        match self.kind {
            Arithmetic::Windows(windows) => Some(windows),
            _ => None,
        }
    }

    /// The numbers of its GCRA, if it has one without blocks.
    pub const fn pace(&self) -> Option<Pace> {
        match self.kind {
            Arithmetic::Pace(pace) => Some(pace),
            _ => None,
        }
    }

    /// The period of its windows in microseconds, if it has windows.
    pub fn window_us(&self) -> Option<u64> {
        self.windows().map(|windows| windows.period_us)
    }

    /// The time in microseconds that pays all units up to the limit.
    pub const fn refill_us(&self) -> u64 {
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
            Arithmetic::Blocked(Blocks { pace, longest_us, .. }) => {
                pace.capacity.div_ceil(pace.scale) + longest_us
            }
        }
    }

    /// The end of the name of its state, like `g0`, `f1:1d`, `s0:1500ms`, `p0:1h/60`, `a0:1d+8h` or `c0:month in Europe/Berlin`.
    ///
    /// It contains the algorithm, so that no other algorithm reads the state; the index; and the period, the number of parts
    /// and the phase, or the calendar, because windows with other values begin and end at other times.
    pub fn name(&self) -> String {
        let named = |letter: char, period_us: u64| format!("{letter}{}:{}", self.index, in_units(period_us));
        match self.kind {
            Arithmetic::Pace(_) => format!("g{}", self.index),
            Arithmetic::Blocked(_) => format!("b{}", self.index),
            Arithmetic::Spacing(_) => format!("m{}", self.index),
            Arithmetic::Calendar(periods) => format!("c{}:{}", self.index, periods.calendar),
            Arithmetic::Windows(windows) => named(if windows.slides { 's' } else { 'f' }, windows.period_us),
            Arithmetic::Log(log) => named('l', log.period_us),
            Arithmetic::Parts(Parts { part_us, parts, .. }) => {
                let name = named('p', part_us * parts);
                if parts == 1 { name } else { format!("{name}/{parts}") }
            }
            Arithmetic::Batches(Batches { phase_us: Some(phase_us), period_us, .. }) => {
                let name = named('a', period_us);
                if phase_us == 0 { name } else { format!("{name}+{}", in_units(phase_us)) }
            }
            Arithmetic::Batches(Batches { batch, period_us, .. }) => {
                named(if batch == Batches::ALL { 'w' } else { 'i' }, period_us)
            }
        }
    }
}

/// A time in microseconds, in the largest unit that gives a whole number.
fn in_units(us: u64) -> String {
    const UNITS: [(u64, &str); 6] = [
        (86_400_000_000, "d"),
        (3_600_000_000, "h"),
        (60_000_000, "m"),
        (1_000_000, "s"),
        (1_000, "ms"),
        (1, "us"),
    ];
    let unit = UNITS.into_iter().find(|(unit_us, _)| us.is_multiple_of(*unit_us));
    unit.map_or_else(String::new, |(unit_us, unit)| format!("{}{unit}", us / unit_us))
}

impl Windows {
    fn new(quota: &Quota, slides: Option<bool>) -> Result<Self, QuotaError> {
        let algorithm = if slides.is_some() { "sliding window" } else { "fixed window" };
        let (limit, period_us) = (quota.limit(), period_us(algorithm, quota)?);
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
        at_most(algorithm, quota, "limit", max, limit)?;
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

#[cfg(test)]
mod tests {
    use super::*;

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
