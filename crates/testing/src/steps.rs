//! Requests described by where they fall: at an equal time, at a boundary, at the end of a wait. They become numbers
//! when the requests before them are known.

use super::kinds::Kind;
use super::oracle::{Oracle, Spec};

/// Clamps a time to the range in which decisions are exact.
///
/// The range ends before 2116. For buckets whose interval is a fraction of nanoseconds, it is so close to `start`
/// that the fractions fit in 62 bits.
pub fn within_reach(now: u64, start: u64, kind: Kind, spec: Spec) -> u64 {
    let den = if kind.is_bucket_family() { spec.interval().1 } else { 1 };
    let reach = u64::try_from((1 << 62) / den).expect("fewer than 63 bits");
    let (earliest, latest) =
        if den == 1 { (0, reach) } else { (start.saturating_sub(reach / 2), start + reach / 2) };
    now.clamp(earliest, latest)
}

/// One request: a key, a time and a cost.
#[derive(Copy, Clone, Debug)]
pub struct Op {
    pub key: u32,
    pub step: Step,
    pub cost: Cost,
}

#[derive(Copy, Clone, Debug)]
pub enum Step {
    Stay,
    /// Advances by this many nanoseconds, from a few to years.
    Nanos(u64),
    /// Advances by this many emission intervals (rounded up), and by an offset in nanoseconds.
    Intervals(u64, i64),
    /// Advances to the start of the n-th window of the clock after the next one, and by an offset in nanoseconds.
    Boundary(u64, i64),
    /// Advances by the wait for a cost (a share of the capacity in sixteenths), and by an offset in nanoseconds.
    Wait(u64, i64),
    Back(u64),
    /// Steps back by a share of the period in sixteenths.
    BackShare(u64),
}

#[derive(Copy, Clone, Debug)]
pub enum Cost {
    Zero,
    Units(u64),
    /// A share of the capacity in sixteenths.
    Share(u64),
    /// The oracle's remaining units, and this many more.
    Remaining(u64),
    Over,
    Max,
}

impl Step {
    pub fn apply(self, now: u64, spec: Spec, oracle: &dyn Oracle) -> u64 {
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
                    .expect("a time not after now");
            }
        };
        u64::try_from(to).unwrap_or(u64::MAX).saturating_add_signed(offset).max(now)
    }
}

impl Cost {
    pub fn apply(self, now: u64, oracle: &dyn Oracle) -> u64 {
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
