//! Order statistics of measured values: quartiles, and a confidence interval of the median.

use crate::support::count;

/// Converts a number for a ratio. The result is exact below 2^53.
pub(crate) fn float(number: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts here stay far below 2^53")]
    let float = number as f64;
    float
}

/// The extremes and quartiles of the values of all rounds.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Summary {
    pub(crate) min: f64,
    pub(crate) q1: f64,
    pub(crate) median: f64,
    pub(crate) q3: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Takes at least one value. No value may be NaN.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |quarter: usize| {
            // Interpolates linearly between the two neighbours.
            let scaled = quarter * (sorted.len() - 1);
            let (low, rest) = (scaled / 4, scaled % 4);
            let high = sorted[(low + 1).min(sorted.len() - 1)];
            sorted[low] + (high - sorted[low]) * float(count(rest)) / 4.0
        };
        Self { min: at(0), q1: at(1), median: at(2), q3: at(3), max: at(4) }
    }
}

/// The median of some values and its 95 % confidence interval by order statistics. Outliers do not move this interval.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Interval {
    /// Takes at least one value. No value may be NaN. With fewer than six values, the interval is their range, which is
    /// less certain.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        // Each value is below the median with probability 1/2. `below` is the probability that at most `rank` values
        // are below it.
        let mut exactly = 0.5_f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
        let (mut below, mut rank) = (exactly, 0);
        loop {
            exactly *= float(count(n - rank)) / float(count(rank + 1));
            if below + exactly > 0.025 || rank + 1 > n / 2 {
                break;
            }
            below += exactly;
            rank += 1;
        }
        Self {
            low: sorted[rank],
            median: Summary::of(sorted.iter().copied()).median,
            high: sorted[n - 1 - rank],
        }
    }
}
