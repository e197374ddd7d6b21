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

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    fn refused<T>(result: Result<T, SketchError>) -> String {
        result.err().expect("the parameters are invalid").to_string()
    }

    #[test]
    fn invalid_arguments_are_refused_with_advice() {
        assert!(refused(CountMin::try_new(0, 4)).contains("at least 1 counter"));
        for depth in [0, 9, usize::MAX] {
            assert!(refused(CountMin::try_new(1, depth)).contains("1 to 8 rows"));
            assert!(refused(CountMin::for_memory(1 << 10, depth)).contains("1 to 8 rows"));
        }
        for width in [usize::MAX, usize::MAX / 4, usize::MAX / 8, isize::MAX as usize / 4] {
            for depth in [1, 3, 8] {
                assert!(refused(CountMin::try_new(width, depth)).contains("cannot allocate"), "{width}");
            }
        }
        assert!(refused(CountMin::for_memory(usize::MAX, 4)).contains("cannot allocate"));
        assert!(refused(CountMin::for_memory(15, 4)).contains("at least 16"));
        assert_eq!(CountMin::for_memory(16, 4).unwrap().width(), 1);
        for nonsense in [f64::NAN, 0.0, -0.0, -1.0, 1.0, 2.0, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(refused(CountMin::for_error(nonsense, 0.01)).contains("epsilon"), "{nonsense}");
            assert!(refused(CountMin::for_error(0.01, nonsense)).contains("delta"), "{nonsense}");
            assert!(
                refused(CountMin::size_for_limit(1, 1, nonsense)).contains("wrong denials"),
                "{nonsense}"
            );
        }
        assert!(refused(CountMin::size_for_limit(1, 0, 0.5)).contains("limit is 0"));
        assert!(refused(CountMin::for_error(f64::MIN_POSITIVE, 0.5)).contains("cannot allocate"));
    }

    #[test]
    fn for_error_computes_width_and_depth() {
        for (epsilon, delta, width, depth) in [
            (0.01, 0.01, 272, 5),
            (0.001, 0.5, 2_719, 1),
            (0.999_999, 0.000_336, 3, 8),
            (0.5, 0.999_999, 6, 1),
        ] {
            let counts = CountMin::for_error(epsilon, delta).unwrap();
            assert_eq!((counts.width(), counts.depth()), (width, depth), "{epsilon} {delta}");
            assert_eq!(counts.state_bytes(), width * depth * 4);
        }
    }

    /// The width in the error message is the smallest that reaches delta: (1 / (width × epsilon))^8 ≤ delta.
    #[test]
    fn too_small_delta_is_refused_with_a_width() {
        let error = refused(CountMin::for_error(0.01, 1e-6));
        assert!(error.contains("8 rows of 563 counters"), "{error}");
        assert!((1.0_f64 / (563.0 * 0.01)).powi(8) < 1e-6);
        assert!((1.0_f64 / (562.0 * 0.01)).powi(8) > 1e-6);
    }

    #[test]
    fn size_for_limit_keeps_markov_bound() {
        for units in [0, 1, 1_000, 10_000_000, u64::MAX] {
            for limit in [1, 2, 1_000, u64::MAX] {
                for share in [0.9, 0.1, 1e-3, 1e-5, 1e-12, f64::MIN_POSITIVE] {
                    let (width, depth) = CountMin::size_for_limit(units, limit, share).unwrap();
                    assert!(width >= 1 && (1..=MAX_DEPTH).contains(&depth));
                    let row = units as f64 / (width as f64 * 0.5 * limit as f64);
                    let all = row.powi(i32::try_from(depth).unwrap());
                    assert!(
                        all <= share * 1.000_001 || width == usize::MAX,
                        "{units} {limit} {share}: {all}"
                    );
                }
            }
        }
    }

    #[test]
    fn for_memory_stays_within_bytes() {
        for bytes in [4, 31, 32, 33, 1_000, 1 << 20] {
            for depth in [1, 8].into_iter().filter(|depth| depth * 4 <= bytes) {
                let counts = CountMin::for_memory(bytes, depth).unwrap();
                assert!(counts.state_bytes() <= bytes && counts.state_bytes() + 4 * depth > bytes);
            }
        }
    }
}
