//! The algorithms as values, and all that a [`Limit`] says of its algorithm: which quotas it holds, and its text.

use core::fmt;
use core::time::Duration;

use super::Limit;
use crate::algorithm::batch::Returns;
use crate::algorithm::{
    Blocked, Calendar, CalendarWindow, FixedWindow, Gcra, LeakyBucketMeter, LeakyBucketQueue, MinimumSpacing,
    SlidingLog, SlidingWindow, SubWindow, TokenBucket,
};
use crate::base::clock::{Timestamp, saturating_nanos};
use crate::base::quota::{PeriodText, Quota, Reason, parse_number, parse_period};

/// The algorithm of a [`Limit`], with its parameters and without its quota. Each variant names its text.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LimitKind {
    /// `gcra`: [`Gcra`], the default. A text without a name means it.
    Gcra,
    /// `token-bucket`: [`TokenBucket::new`], which refills continuously and makes the same
    /// decisions as GCRA.
    TokenBucket,
    /// `token-bucket(interval)`: [`TokenBucket::interval`].
    IntervalBucket,
    /// `token-bucket(aligned)`, `token-bucket(aligned, at 8h)`: [`TokenBucket::aligned`]; `at` is the time from the clock's origin,
    /// the Unix epoch, to any one of the refills. `token-bucket(aligned, adaptive)`: [`TokenBucket::aligned_adaptive`]; `at` can
    /// stand before `adaptive`.
    AlignedBucket {
        /// A time at which the bucket refills. A limit keeps the first one at or after the clock's origin.
        at: Timestamp,
        /// Whether a new key starts with a share of a batch.
        adaptive: bool,
    },
    /// `leaky-bucket`: [`LeakyBucketMeter`], which makes the same decisions as GCRA.
    LeakyBucketMeter,
    /// `leaky-bucket(queue)`: [`LeakyBucketQueue`].
    LeakyBucketQueue,
    /// `fixed-window`: [`FixedWindow`], with windows aligned to the Unix epoch.
    FixedWindow,
    /// `fixed-window(first-use)`: [`FixedWindow::from_first_use`].
    FirstUseWindow,
    /// `calendar-window`: [`CalendarWindow`], with windows that are periods of a calendar. A text cannot name its table, so
    /// nothing reads one.
    CalendarWindow {
        /// The calendar.
        calendar: Calendar,
    },
    /// `sliding-window`, `sliding-window(strict)`: [`SlidingWindow`], two counts, with a weight for the previous one.
    SlidingWindow {
        /// Whether the window is [strict](crate::SlidingWindow::strict).
        strict: bool,
    },
    /// `sub-window(60)`, `sub-window(60, strict)`: [`SubWindow`]. Without a number it has 60 parts.
    SubWindow {
        /// The number of parts, from 1 to [`SubWindow::MAX_PARTS`].
        parts: u32,
        /// Whether the counter is [strict](crate::SubWindow::strict).
        strict: bool,
    },
    /// `sliding-log`: [`SlidingLog`].
    SlidingLog,
    /// `minimum-spacing 250ms`, without a quota: [`MinimumSpacing`].
    MinimumSpacing {
        /// The spacing, in whole nanoseconds. Zero limits nothing.
        spacing: Duration,
    },
}

impl LimitKind {
    /// The number of parts of a sub-window whose text states none.
    #[doc(hidden)]
    pub const PARTS: u32 = 60;

    /// The algorithms that need no more than a name, with their usual parameters and a sentence about each. Rules and
    /// `tollgate replay --algorithm` accept these names.
    ///
    /// # Examples
    /// ```
    /// use tollgate::LimitKind;
    ///
    /// let named = |name: &str| LimitKind::BY_NAME.iter().map(|(kind, _)| *kind).find(|kind| kind.name() == name);
    /// assert_eq!(named("sliding-log"), Some(LimitKind::SlidingLog));
    /// ```
    pub const BY_NAME: &'static [(Self, &'static str)] = &[
        (Self::Gcra, "Generic cell rate algorithm: one time per key; smooth, with a burst"),
        (Self::TokenBucket, "Tokens refill continuously up to the burst; makes the same decisions as GCRA"),
        (
            Self::LeakyBucketMeter,
            "A bucket of the burst's size that leaks at the limit's rate; makes the same decisions as GCRA",
        ),
        (
            Self::FixedWindow,
            "A counter that restarts every period, counted from 1970; admits up to twice the limit around a boundary",
        ),
        (Self::SlidingLog, "The times of the last admissions; exact in every window, 8 bytes per unit"),
        (
            Self::SlidingWindow { strict: false },
            "The current window's count and a share of the previous one's; close to sliding-log, 16 bytes for the two counts",
        ),
        (
            Self::SubWindow { parts: Self::PARTS, strict: false },
            "The window in equal parts that expire one by one",
        ),
    ];

    /// Returns the name of the algorithm, without parameters: `sub-window`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gcra => "gcra",
            Self::TokenBucket | Self::IntervalBucket | Self::AlignedBucket { .. } => "token-bucket",
            Self::LeakyBucketMeter | Self::LeakyBucketQueue => "leaky-bucket",
            Self::FixedWindow | Self::FirstUseWindow => "fixed-window",
            Self::CalendarWindow { .. } => "calendar-window",
            Self::SlidingWindow { .. } => "sliding-window",
            Self::SubWindow { .. } => "sub-window",
            Self::SlidingLog => "sliding-log",
            Self::MinimumSpacing { .. } => "minimum-spacing",
        }
    }

    /// Returns whether a quota's burst matters to the algorithm. Window algorithms count up to the limit instead.
    #[must_use]
    pub const fn has_burst(self) -> bool {
        match self {
            Self::Gcra
            | Self::TokenBucket
            | Self::IntervalBucket
            | Self::AlignedBucket { .. }
            | Self::LeakyBucketMeter
            | Self::LeakyBucketQueue => true,
            Self::FixedWindow
            | Self::FirstUseWindow
            | Self::CalendarWindow { .. }
            | Self::SlidingWindow { .. }
            | Self::SubWindow { .. }
            | Self::SlidingLog
            | Self::MinimumSpacing { .. } => false,
        }
    }

    /// Whether denials can block keys under the algorithm: its states are arrival times.
    #[doc(hidden)]
    pub const fn has_blocks(self) -> bool {
        matches!(self, Self::Gcra | Self::TokenBucket | Self::LeakyBucketMeter)
    }

    /// Whether the compact store supports the algorithm. It counts a lenient sub-window of one part as a fixed window.
    #[doc(hidden)]
    pub const fn is_compact(self) -> bool {
        match self {
            Self::Gcra
            | Self::TokenBucket
            | Self::LeakyBucketMeter
            | Self::LeakyBucketQueue
            | Self::FixedWindow
            | Self::SubWindow { parts: 1, strict: false }
            | Self::SlidingWindow { .. } => true,
            Self::MinimumSpacing { spacing } => !spacing.is_zero(),
            Self::IntervalBucket
            | Self::AlignedBucket { .. }
            | Self::FirstUseWindow
            | Self::CalendarWindow { .. }
            | Self::SubWindow { .. }
            | Self::SlidingLog => false,
        }
    }

    /// Whether the sketch supports the algorithm, as for [`is_compact`](Self::is_compact).
    pub(crate) const fn is_sketched(self) -> bool {
        matches!(
            self,
            Self::FixedWindow | Self::SubWindow { parts: 1, strict: false } | Self::SlidingWindow { .. }
        )
    }

    /// Writes a limit without its block: the name with its options, and the quota.
    pub(super) fn write(self, quota: Quota, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::Gcra => return fmt::Display::fmt(&quota, f),
            Self::MinimumSpacing { spacing } => {
                return write!(f, "{name} {}", PeriodText(saturating_nanos(spacing)));
            }
            Self::TokenBucket
            | Self::LeakyBucketMeter
            | Self::FixedWindow
            | Self::SlidingWindow { strict: false }
            | Self::SlidingLog => write!(f, "{name}")?,
            Self::IntervalBucket => write!(f, "{name}(interval)")?,
            Self::AlignedBucket { at, adaptive } => {
                write!(f, "{name}(aligned")?;
                if at != Timestamp::ZERO {
                    write!(f, ", at {}", PeriodText(at.as_nanos()))?;
                }
                f.write_str(if adaptive { ", adaptive)" } else { ")" })?;
            }
            Self::LeakyBucketQueue => write!(f, "{name}(queue)")?,
            Self::FirstUseWindow => write!(f, "{name}(first-use)")?,
            Self::CalendarWindow { calendar } => {
                return write!(f, "{name}({calendar}) {}", quota.limit());
            }
            Self::SlidingWindow { strict: true } => write!(f, "{name}(strict)")?,
            Self::SubWindow { parts, strict: false } => write!(f, "{name}({parts})")?,
            Self::SubWindow { parts, strict: true } => write!(f, "{name}({parts}, strict)")?,
        }
        f.write_str(" ")?;
        fmt::Display::fmt(&quota, f)
    }
}

const NAMES: &str = "a number of units, or the name of an algorithm (gcra, token-bucket, leaky-bucket, fixed-window, \
                     sliding-window, sub-window, sliding-log or minimum-spacing), at the beginning";
const NO_BURST: &str = "no burst, because this algorithm has none: it counts up to the limit";
const NO_TEXT: &str =
    "another algorithm: a calendar has no text; build a CalendarWindow in code, or write period in rules";
const PARTS: &str = "a whole number of parts in the parentheses, as in sub-window(60)";

/// Reads the limit of the algorithm with this name: its options, and the quota after them.
pub(super) fn parse(name: &str, options: &[&str], quota: &str) -> Result<Limit, Reason> {
    if name == "minimum-spacing" && options.is_empty() {
        return Ok(Limit::spacing(Duration::from_nanos(parse_period(quota.trim())?)));
    }
    let kind = of_text(name, options)?;
    let quota = Quota::parse(quota)?;
    if !kind.has_burst() && quota.burst_size() != quota.limit() {
        return Err(Reason::Syntax { expected: NO_BURST });
    }
    Limit::checked(kind, quota)
}

fn of_text(name: &str, options: &[&str]) -> Result<LimitKind, Reason> {
    Ok(match (name, options) {
        ("gcra", []) => LimitKind::Gcra,
        ("token-bucket", []) => LimitKind::TokenBucket,
        ("token-bucket", ["interval"]) => LimitKind::IntervalBucket,
        ("token-bucket", ["aligned"]) => LimitKind::AlignedBucket { at: Timestamp::ZERO, adaptive: false },
        ("token-bucket", ["aligned", "adaptive"]) => {
            LimitKind::AlignedBucket { at: Timestamp::ZERO, adaptive: true }
        }
        ("token-bucket", ["aligned", at]) => LimitKind::AlignedBucket { at: time(at)?, adaptive: false },
        ("token-bucket", ["aligned", at, "adaptive"]) => {
            LimitKind::AlignedBucket { at: time(at)?, adaptive: true }
        }
        ("leaky-bucket", []) => LimitKind::LeakyBucketMeter,
        ("leaky-bucket", ["queue"]) => LimitKind::LeakyBucketQueue,
        ("fixed-window", []) => LimitKind::FixedWindow,
        ("fixed-window", ["first-use"]) => LimitKind::FirstUseWindow,
        ("sliding-window", []) => LimitKind::SlidingWindow { strict: false },
        ("sliding-window", ["strict"]) => LimitKind::SlidingWindow { strict: true },
        ("sub-window", []) => LimitKind::SubWindow { parts: LimitKind::PARTS, strict: false },
        ("sub-window", ["strict"]) => LimitKind::SubWindow { parts: LimitKind::PARTS, strict: true },
        ("sub-window", [parts]) => LimitKind::SubWindow { parts: number(parts)?, strict: false },
        ("sub-window", [parts, "strict"]) => LimitKind::SubWindow { parts: number(parts)?, strict: true },
        ("sliding-log", []) => LimitKind::SlidingLog,
        _ => return Err(Reason::Syntax { expected: options_of(name) }),
    })
}

fn number(parts: &str) -> Result<u32, Reason> {
    // A number that is too large for 32 bits gives the same error as one that is too large for the counter.
    parse_number(parts, PARTS).map(|parts| u32::try_from(parts).unwrap_or(u32::MAX))
}

fn time(option: &str) -> Result<Timestamp, Reason> {
    let expected = options_of("token-bucket");
    let period = option.strip_prefix("at ").ok_or(Reason::Syntax { expected })?;
    Ok(Timestamp::from_nanos(parse_period(period.trim())?))
}

/// The options that an algorithm has, for errors.
fn options_of(name: &str) -> &'static str {
    match name {
        "gcra" | "sliding-log" | "minimum-spacing" => "no parentheses after this algorithm",
        "token-bucket" => {
            "token-bucket, token-bucket(interval), token-bucket(aligned) or token-bucket(aligned, at 8h, adaptive)"
        }
        "leaky-bucket" => "leaky-bucket or leaky-bucket(queue)",
        "calendar-window" => NO_TEXT,
        "fixed-window" => "fixed-window or fixed-window(first-use)",
        "sliding-window" => "sliding-window or sliding-window(strict)",
        "sub-window" => "sub-window(60) or sub-window(60, strict)",
        _ => NAMES,
    }
}

/// Whether an algorithm has this name.
pub(super) fn is_name(name: &str) -> bool {
    options_of(name) != NAMES
}

impl Limit {
    /// Creates a limit if its algorithm can hold the quota.
    pub(super) const fn checked(kind: LimitKind, quota: Quota) -> Result<Self, Reason> {
        macro_rules! fits {
            ($algorithm:expr) => {
                match $algorithm {
                    Ok(_) => {}
                    Err(reason) => return Err(reason),
                }
            };
        }
        match kind {
            LimitKind::Gcra
            | LimitKind::TokenBucket
            | LimitKind::LeakyBucketMeter
            | LimitKind::LeakyBucketQueue => return Ok(Self { kind, quota, block: None }),
            LimitKind::IntervalBucket => fits!(TokenBucket::from_first_use(&quota)),
            LimitKind::AlignedBucket { at, adaptive } => {
                fits!(TokenBucket::in_batches(&quota, at, adaptive));
                let at = Timestamp::from_nanos(at.as_nanos() % quota.period_ns());
                return Ok(Self { kind: LimitKind::AlignedBucket { at, adaptive }, quota, block: None });
            }
            LimitKind::FixedWindow => fits!(FixedWindow::aligned(&quota)),
            LimitKind::FirstUseWindow => fits!(FixedWindow::first_use(&quota)),
            LimitKind::CalendarWindow { calendar } => fits!(CalendarWindow::of_quota(calendar, &quota)),
            LimitKind::SlidingWindow { .. } => fits!(SlidingWindow::checked(&quota)),
            LimitKind::SubWindow { parts, .. } => fits!(SubWindow::checked(&quota, parts)),
            LimitKind::SlidingLog => fits!(SlidingLog::checked(&quota)),
            LimitKind::MinimumSpacing { spacing } => return Ok(Self::spacing(spacing)),
        }
        match if kind.has_burst() { Ok(quota) } else { quota.without_burst() } {
            Ok(quota) => Ok(Self { kind, quota, block: None }),
            Err(reason) => Err(reason),
        }
    }

    /// Creates a limit of minimum spacing.
    const fn spacing(spacing: Duration) -> Self {
        let spacing_ns = saturating_nanos(spacing);
        let kind = LimitKind::MinimumSpacing { spacing: Duration::from_nanos(spacing_ns) };
        Self { kind, quota: Quota::stored(1, spacing_ns, 1), block: None }
    }
}

/// The algorithm stores the interval of one unit and the burst, so `10/60s` becomes `1/6s burst 10`.
impl From<Gcra> for Limit {
    fn from(algorithm: Gcra) -> Self {
        Self::gcra(algorithm.quota())
    }
}

/// The quota changes its numbers as for [`Gcra`].
impl From<Blocked> for Limit {
    fn from(algorithm: Blocked) -> Self {
        Self { block: Some(algorithm.blocks()), ..Self::gcra(algorithm.quota()) }
    }
}

/// The quota changes its numbers as for [`Gcra`].
impl From<LeakyBucketMeter> for Limit {
    fn from(algorithm: LeakyBucketMeter) -> Self {
        Self { kind: LimitKind::LeakyBucketMeter, quota: algorithm.quota(), block: None }
    }
}

/// The quota changes its numbers as for [`Gcra`].
impl From<LeakyBucketQueue> for Limit {
    fn from(algorithm: LeakyBucketQueue) -> Self {
        Self { kind: LimitKind::LeakyBucketQueue, quota: algorithm.quota(), block: None }
    }
}

/// The quota of a bucket that refills continuously changes its numbers as for [`Gcra`].
impl From<TokenBucket> for Limit {
    fn from(algorithm: TokenBucket) -> Self {
        let (quota, returns) = algorithm.quota();
        let kind = match returns {
            Returns::Continuously => LimitKind::TokenBucket,
            Returns::FromFirstUse => LimitKind::IntervalBucket,
            Returns::Aligned { at, adaptive } => LimitKind::AlignedBucket { at, adaptive },
        };
        Self { kind, quota, block: None }
    }
}

impl From<FixedWindow> for Limit {
    fn from(algorithm: FixedWindow) -> Self {
        let (quota, returns) = algorithm.quota();
        let kind = match returns {
            Returns::FromFirstUse => LimitKind::FirstUseWindow,
            Returns::Continuously | Returns::Aligned { .. } => LimitKind::FixedWindow,
        };
        Self { kind, quota, block: None }
    }
}

/// The quota's period is the calendar's longest one.
impl From<CalendarWindow> for Limit {
    fn from(algorithm: CalendarWindow) -> Self {
        let kind = LimitKind::CalendarWindow { calendar: algorithm.calendar() };
        Self { kind, quota: algorithm.quota(), block: None }
    }
}

impl From<SlidingWindow> for Limit {
    fn from(algorithm: SlidingWindow) -> Self {
        let (quota, strict) = algorithm.quota();
        Self { kind: LimitKind::SlidingWindow { strict }, quota, block: None }
    }
}

impl From<SubWindow> for Limit {
    fn from(algorithm: SubWindow) -> Self {
        let (quota, parts, strict) = algorithm.quota();
        Self { kind: LimitKind::SubWindow { parts, strict }, quota, block: None }
    }
}

impl From<SlidingLog> for Limit {
    fn from(algorithm: SlidingLog) -> Self {
        Self { kind: LimitKind::SlidingLog, quota: algorithm.quota(), block: None }
    }
}

impl From<MinimumSpacing> for Limit {
    fn from(algorithm: MinimumSpacing) -> Self {
        Self::spacing(algorithm.spacing())
    }
}
