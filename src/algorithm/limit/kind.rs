//! The algorithms as values.

use core::time::Duration;

use crate::algorithm::Calendar;
use crate::base::clock::Timestamp;

/// The algorithm of a [`Limit`](crate::Limit), with its parameters and without its quota.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LimitKind {
    /// `gcra`: [`Gcra`](crate::Gcra), the default.
    Gcra,
    /// `token-bucket`: [`TokenBucket::new`](crate::TokenBucket::new), which refills continuously and makes the same
    /// decisions as GCRA.
    TokenBucket,
    /// `token-bucket(interval)`: [`TokenBucket::interval`](crate::TokenBucket::interval).
    IntervalBucket,
    /// `token-bucket(aligned)`: [`TokenBucket::aligned`](crate::TokenBucket::aligned) and
    /// [`TokenBucket::aligned_adaptive`](crate::TokenBucket::aligned_adaptive).
    AlignedBucket {
        /// A time at which the bucket refills. A limit keeps the first one at or after the clock's origin.
        at: Timestamp,
        /// Whether a new key starts with a share of a batch.
        adaptive: bool,
    },
    /// `leaky-bucket`: [`LeakyBucketMeter`](crate::LeakyBucketMeter), which makes the same decisions as GCRA.
    LeakyBucketMeter,
    /// `leaky-bucket(queue)`: [`LeakyBucketQueue`](crate::LeakyBucketQueue).
    LeakyBucketQueue,
    /// `fixed-window`: [`FixedWindow`](crate::FixedWindow), with windows aligned to the Unix epoch.
    FixedWindow,
    /// `fixed-window(first-use)`: [`FixedWindow::from_first_use`](crate::FixedWindow::from_first_use).
    FirstUseWindow,
    /// `calendar-window`: [`CalendarWindow`](crate::CalendarWindow), with windows that are periods of a calendar.
    CalendarWindow {
        /// The calendar.
        calendar: Calendar,
    },
    /// `sliding-window`: [`SlidingWindow`](crate::SlidingWindow), two counts, with a weight for the previous one.
    SlidingWindow {
        /// Whether the window is [strict](crate::SlidingWindow::strict).
        strict: bool,
    },
    /// `sub-window`: [`SubWindow`](crate::SubWindow).
    SubWindow {
        /// The number of parts, from 1 to [`SubWindow::MAX_PARTS`](crate::SubWindow::MAX_PARTS).
        parts: u32,
        /// Whether the counter is [strict](crate::SubWindow::strict).
        strict: bool,
    },
    /// `sliding-log`: [`SlidingLog`](crate::SlidingLog).
    SlidingLog,
    /// `minimum-spacing`: [`MinimumSpacing`](crate::MinimumSpacing).
    MinimumSpacing {
        /// The spacing, in whole nanoseconds. Zero limits nothing.
        spacing: Duration,
    },
}

impl LimitKind {
    /// The number of parts of a sub-window whose text states none.
    #[doc(hidden)]
    pub const PARTS: u32 = 60;

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
}
