//! Ways to choose the size of a count-min sketch: by counters, by memory, by error, or by the traffic that it limits.

use std::f64::consts::E;

use super::{COUNTER, CountMin, MAX_DEPTH};
use crate::base::memory::Array;
use crate::sketch::analytics::error::{SketchError, SketchReason, share};

impl CountMin {
    /// Creates a sketch of `depth` rows (1 to 8) with `width` counters each (any number above 0).
    ///
    /// Each counter takes four bytes. The operating system supplies a page of memory when a counter in it is first
    /// written.
    ///
    /// # Errors
    /// If the width is 0, if the depth is not 1 to 8, or if the memory cannot be allocated.
    pub fn try_new(width: usize, depth: usize) -> Result<Self, SketchError> {
        if width == 0 {
            return Err(SketchReason::ZeroWidth.into());
        }
        let depth = checked_depth(depth)?;
        let bytes = width as u128 * depth as u128 * COUNTER as u128;
        let counters = width.checked_mul(depth).and_then(Array::zeroed);
        let counters = counters.ok_or(SketchReason::Memory { bytes })?;
        Ok(Self { counters, width, depth, hasher: ahash::RandomState::new() })
    }

    /// Creates a sketch with a bounded error: the estimate of a key exceeds its count by more than `epsilon` of all
    /// counts with probability at most `delta`. The sketch has `⌈e / epsilon⌉` counters in each of `⌈ln(1 / delta)⌉`
    /// rows.
    ///
    /// The bound holds for all traffic, and also for plain count-min. Conservative update usually makes the error
    /// several times smaller.
    ///
    /// # Errors
    /// If `epsilon` or `delta` is not above 0 and below 1 (or is not a number). If `delta` is below e⁻⁸ = 0.000335,
    /// which would take more than eight rows. If the memory cannot be allocated.
    pub fn for_error(epsilon: f64, delta: f64) -> Result<Self, SketchError> {
        let epsilon = share("epsilon", epsilon)?;
        let delta = share("delta", delta)?;
        let depth = rows(delta);
        if depth > MAX_DEPTH {
            // With this width, eight rows reach the same probability of failure, by Markov's inequality in each row.
            let width = (widening(delta) / epsilon).ceil();
            return Err(SketchReason::Delta { got: delta, width }.into());
        }
        Self::try_new(whole(E / epsilon), depth)
    }

    /// Creates the largest sketch that fits into `bytes`, with `depth` rows (1 to 8).
    ///
    /// # Errors
    /// If the depth is not 1 to 8, if `bytes` is less than 4 per row, or if the memory cannot be allocated.
    pub fn for_memory(bytes: usize, depth: usize) -> Result<Self, SketchError> {
        let depth = checked_depth(depth)?;
        let width = bytes / COUNTER / depth;
        if width == 0 {
            return Err(SketchReason::TooFewBytes { got: bytes, least: depth * COUNTER }.into());
        }
        Self::try_new(width, depth)
    }

    /// Computes the width and the depth of a sketch that limits each key to `limit` units per window. `units` is the
    /// total of all keys in a window. With this size, a key at half its limit is denied wrongly with probability at
    /// most `wrong_denials`.
    ///
    /// A key is denied wrongly if, in every row, the other keys add more to its counter than the unused part of its
    /// limit. Let `ρ` be the used share of the limit, here ½. On average, the other keys add `units / width` to a
    /// counter. By Markov's inequality, they add more than `(1 − ρ) × limit` with probability at most
    /// `units / (width × (1 − ρ) × limit)`. With
    ///
    /// ```text
    /// width = e × units / ((1 − ρ) × limit)        depth = ⌈ln(1 / wrong_denials)⌉
    /// ```
    /// this probability is 1/e in one row, and `wrong_denials` in all rows together. If the formula gives more than
    /// eight rows, the depth is eight, and the factor `e` in the width becomes `wrong_denials^(-1/8)`.
    ///
    /// # Errors
    /// If the limit is 0, or if `wrong_denials` is not above 0 and below 1.
    ///
    /// # Examples
    /// ```
    /// use tollgate::sketch::CountMin;
    ///
    /// // 10 M requests per minute, 1,000 for each client.
    /// let (width, depth) = CountMin::size_for_limit(10_000_000, 1_000, 0.01)?;
    /// assert_eq!((width, depth), (54_366, 5));
    /// let counts = CountMin::try_new(width, depth)?;
    /// assert_eq!(counts.state_bytes(), 4 * 54_366 * 5);
    /// # Ok::<(), tollgate::sketch::SketchError>(())
    /// ```
    #[expect(clippy::cast_precision_loss, reason = "a bound, rounded in the sixteenth digit")]
    pub fn size_for_limit(units: u64, limit: u64, wrong_denials: f64) -> Result<(usize, usize), SketchError> {
        if limit == 0 {
            return Err(SketchReason::ZeroLimit.into());
        }
        let wrong_denials = share("the share of wrong denials", wrong_denials)?;
        let depth = rows(wrong_denials);
        let factor = if depth > MAX_DEPTH { widening(wrong_denials) } else { E };
        Ok((whole(factor * units as f64 * 2.0 / limit as f64), depth.min(MAX_DEPTH)))
    }
}

fn checked_depth(depth: usize) -> Result<usize, SketchError> {
    if (1..=MAX_DEPTH).contains(&depth) { Ok(depth) } else { Err(SketchReason::Depth { got: depth }.into()) }
}

/// Returns the number of rows that fail all together with probability at most `failures`, if each row fails with
/// probability 1/e.
fn rows(failures: f64) -> usize {
    whole((1.0 / failures).ln())
}

/// Returns the factor by which a row must be wider than its mean error requires, so that eight rows fail all together
/// with probability at most `failures`.
fn widening(failures: f64) -> f64 {
    failures.powf(-1.0 / MAX_DEPTH as f64)
}

/// Rounds up to an integer that is at least 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates; the allocation of a sketch of this size fails"
)]
fn whole(number: f64) -> usize {
    (number.ceil() as usize).max(1)
}
