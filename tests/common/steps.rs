//! Requests described by where they fall: on a tie, a boundary, the end of a wait; they become numbers when it is known
//! what came before.

use super::kinds::Kind;
use super::oracle::{Oracle, Spec};

/// Keeps a time where decisions are promised to be exact: before 2116, and for buckets whose interval is a fraction of
/// nanoseconds, near enough to the others that the fractions between them fit in 62 bits.
pub(crate) fn within_reach(now: u64, start: u64, kind: Kind, spec: Spec) -> u64 {
    let den = if kind.is_bucket_family() { spec.interval().1 } else { 1 };
    let reach = u64::try_from((1 << 62) / den).expect("fewer than 63 bits");
    let (earliest, latest) =
        if den == 1 { (0, reach) } else { (start.saturating_sub(reach / 2), start + reach / 2) };
    now.clamp(earliest, latest)
}

/// One request: who, when, how much.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Op {
    pub(crate) key: u32,
    pub(crate) step: Step,
    pub(crate) cost: Cost,
}

#[derive(Copy, Clone, Debug)]
pub(crate) enum Step {
    Stay,
    /// This many nanoseconds on, from a few to years.
    Nanos(u64),
    /// This many emission intervals (rounded up), and so many nanoseconds more.
    Intervals(u64, i64),
    /// To the start of the next but n-th window of the clock, and so many nanoseconds more.
    Boundary(u64, i64),
    /// To the wait for this cost (a share of the capacity in sixteenths), and so many nanoseconds more.
    Wait(u64, i64),
    Back(u64),
    /// Back by a share of the period in sixteenths.
    BackShare(u64),
}

#[derive(Copy, Clone, Debug)]
pub(crate) enum Cost {
    Zero,
    Units(u64),
    /// A share of the capacity in sixteenths.
    Share(u64),
    /// What the oracle says remains, and so many more.
    Remaining(u64),
    Over,
    Max,
}

impl Step {
    pub(crate) fn apply(self, now: u64, spec: Spec, oracle: &dyn Oracle) -> u64 {
        let period = u128::from(spec.period_ns);
        let wide = u128::from(now);
        let (to, offset) = match self {
            Self::Stay => (wide, 0),
            Self::Nanos(nanos) => (wide + u128::from(nanos), 0),
            Self::Intervals(n, offset) => {
                (wide + (u128::from(n) * period).div_ceil(u128::from(spec.limit)), offset)
            }
            Self::Boundary(n, offset) => ((wide / period + 1 + u128::from(n)) * period, offset),
            Self::Wait(share, offset) => {
                let wait = oracle.retry_after(now, sixteenths(oracle.capacity(), share).max(1));
                (wide + wait.unwrap_or(0), offset)
            }
            Self::Back(nanos) => return now.saturating_sub(nanos),
            Self::BackShare(share) => {
                return u64::try_from(wide.saturating_sub(period * u128::from(share) / 16))
                    .expect("not after now");
            }
        };
        u64::try_from(to).unwrap_or(u64::MAX).saturating_add_signed(offset).max(now)
    }
}

impl Cost {
    pub(crate) fn apply(self, now: u64, oracle: &dyn Oracle) -> u64 {
        match self {
            Self::Zero => 0,
            Self::Units(units) => units,
            Self::Share(share) => sixteenths(oracle.capacity(), share),
            Self::Remaining(more) => oracle.remaining(now).saturating_add(more),
            Self::Over => oracle.capacity().saturating_add(1),
            Self::Max => u64::MAX,
        }
    }
}

fn sixteenths(whole: u64, share: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(share) / 16).expect("a share is less than the whole")
}
