//! Order statistics.

use crate::support::count;

/// A number for a ratio; exact below 2^53.
pub(crate) fn float(number: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts here stay far below 2^53")]
    let float = number as f64;
    float
}

/// Order statistics over the rounds.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Summary {
    pub(crate) min: f64,
    pub(crate) q1: f64,
    pub(crate) median: f64,
    pub(crate) q3: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Of at least one value, none of them NaN.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |quarter: usize| {
            // Linear interpolation between the two neighbours.
            let scaled = quarter * (sorted.len() - 1);
            let (low, rest) = (scaled / 4, scaled % 4);
            let high = sorted[(low + 1).min(sorted.len() - 1)];
            sorted[low] + (high - sorted[low]) * float(count(rest)) / 4.0
        };
        Self { min: at(0), q1: at(1), median: at(2), q3: at(3), max: at(4) }
    }
}
