//! Order statistics of measured values: quartiles, a confidence interval of the median, and ratios in quiet rounds.

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

/// A round is quiet if the floor takes at most this many times as long as in its best round.
const QUIET: f64 = 1.1;

/// The number of quiet rounds that decide whether a target is met. With fewer, all rounds decide.
const ENOUGH: usize = 3;

/// The ratios of a row to another row, one per round.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Ratio {
    /// Over all rounds.
    pub(crate) all: Summary,
    /// The median over the quiet rounds. Other programs and the host slow down whole rounds, and not all rows alike.
    pub(crate) quiet: f64,
    pub(crate) quiet_rounds: usize,
}

impl Ratio {
    /// Takes the times of a row, of the row that it is compared with, and of the floor, round by round.
    pub(crate) fn of(own: &[f64], base: &[f64], floor: &[f64]) -> Self {
        let best = floor.iter().copied().fold(f64::INFINITY, f64::min);
        let ratios: Vec<f64> = own.iter().zip(base).map(|(own, base)| own / base).collect();
        let quiet: Vec<f64> = (ratios.iter().zip(floor))
            .filter_map(|(ratio, floor)| (*floor <= best * QUIET).then_some(*ratio))
            .collect();
        let quiet_rounds = quiet.len();
        Self { all: Summary::of(ratios), quiet: Summary::of(quiet).median, quiet_rounds }
    }

    /// Returns the figure that a target is compared with: the quiet ratio, unless there are too few quiet rounds.
    pub(crate) fn decisive(&self) -> f64 {
        if self.quiet_rounds >= ENOUGH { self.quiet } else { self.all.median }
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
