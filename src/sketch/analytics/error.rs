//! The error for a sketch that cannot be created.

use std::error::Error;
use std::fmt;

/// The error of a sketch constructor. Its message names the bad parameter and the allowed values.
///
/// # Examples
/// ```
/// use tollgate::sketch::CountMin;
///
/// let error = CountMin::try_new(1_000, 0).unwrap_err();
/// assert_eq!(error.to_string(), "invalid sketch: the depth is 0, but must be 1 to 8 rows; 4 suit most uses");
/// ```
#[derive(Clone, PartialEq)]
pub struct SketchError {
    reason: SketchReason,
}

#[derive(Copy, Clone, PartialEq, Debug)]
pub(in crate::sketch) enum SketchReason {
    ZeroWidth,
    Depth {
        got: usize,
    },
    ZeroLimit,
    ZeroItems,
    ZeroWindow,
    ZeroLargest,
    /// The count does not fit into a word together with the window tag, because the window is too short.
    Largest {
        got: u64,
        max: u64,
    },
    /// The share is not above 0 and below 1.
    Share {
        what: &'static str,
        got: f64,
    },
    /// `delta` is so small that it takes more than eight rows. Eight rows of this `width` are enough.
    Delta {
        got: f64,
        width: f64,
    },
    /// The share of false positives is so small that it takes more than one word per key.
    FalsePositives {
        got: f64,
        least: f64,
    },
    /// The caller allowed less memory than the minimum.
    TooFewBytes {
        got: usize,
        least: usize,
    },
    /// The memory cannot be allocated.
    Memory {
        bytes: u128,
    },
}

impl From<SketchReason> for SketchError {
    fn from(reason: SketchReason) -> Self {
        Self { reason }
    }
}

impl fmt::Display for SketchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid sketch: ")?;
        match self.reason {
            SketchReason::ZeroWidth => write!(f, "the width is 0, but must be at least 1 counter a row"),
            SketchReason::Depth { got } => {
                write!(f, "the depth is {got}, but must be 1 to 8 rows; 4 suit most uses")
            }
            SketchReason::ZeroLimit => write!(f, "the limit is 0, but must be at least 1"),
            SketchReason::ZeroItems => write!(f, "the number of items is 0, but must be at least 1"),
            SketchReason::ZeroWindow => {
                write!(f, "the window is 0, but must be at least 1 ns; a second suits most uses")
            }
            SketchReason::ZeroLargest => write!(f, "the largest count is 0, but must be at least 1"),
            SketchReason::Largest { got, max } => write!(
                f,
                "the largest count is {got}, but with this window can be at most {max}; count in larger \
                 units, such as KiB for bytes"
            ),
            SketchReason::Share { what, got } => {
                write!(f, "{what} is {got}, but must be above 0 and below 1, as in 0.01")
            }
            SketchReason::Delta { got, width } => write!(
                f,
                "delta is {got}, which takes more than 8 rows; use 0.00034 or more, or create a sketch of the same \
                 accuracy with 8 rows of {width:.0} counters"
            ),
            SketchReason::FalsePositives { got, least } => write!(
                f,
                "the share of false positives is {got}, but must be no less than {least:.7}, which takes 64 bits per \
                 key; for a smaller share, store the hashes in a set"
            ),
            SketchReason::TooFewBytes { got, least } => {
                write!(f, "the memory limit is {got} bytes, but must be at least {least}")
            }
            SketchReason::Memory { bytes } => write!(f, "cannot allocate {bytes} bytes for the sketch"),
        }
    }
}

crate::base::debug_shows_message!(SketchError);

impl Error for SketchError {}

/// Checks that a share is above 0 and below 1.
pub(in crate::sketch) fn share(what: &'static str, share: f64) -> Result<f64, SketchError> {
    // Both comparisons are false for NaN.
    if share > 0.0 && share < 1.0 { Ok(share) } else { Err(SketchReason::Share { what, got: share }.into()) }
}
