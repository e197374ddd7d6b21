//! Errors that say why a quota is invalid or does not fit.

use alloc::boxed::Box;
use alloc::string::String;
use core::error::Error;
use core::fmt;

use super::NANOS_PER_SEC;
use super::period::PeriodText;

/// The error for an invalid quota. The message contains the input and the valid range.
///
/// # Examples
/// ```
/// use tollgate::Quota;
///
/// let error = "10 per fortnight".parse::<Quota>().unwrap_err();
/// assert!(error.to_string().contains("10 per fortnight"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct QuotaError {
    reason: Reason,
    text: Option<Box<str>>,
    form: TextForm,
}

/// The form that a text should have had.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum TextForm {
    Quota,
    Limit,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    ZeroLimit,
    ZeroPeriod,
    ZeroBurst,
    ZeroParts,
    /// The rate is no positive number.
    Rate {
        got: &'static str,
    },
    TooFast {
        limit: u64,
        period_ns: u64,
    },
    TooLong {
        limit: u64,
        period_ns: u64,
        burst: u64,
    },
    /// The quota is valid, but the algorithm's word has no room for it.
    Word {
        algorithm: &'static str,
        what: &'static str,
        got: u64,
        max: u64,
    },
    /// The quota is valid, but the words of this store have less room for it than those of other stores.
    SmallWord {
        algorithm: &'static str,
        what: &'static str,
        store: &'static str,
        got: u64,
        max: u64,
    },
    /// The quotas of one compact table have no common tick.
    Apart {
        algorithm: &'static str,
    },
    /// A per-call quota that was not declared when the compact table was built.
    Undeclared {
        algorithm: &'static str,
    },
    /// The window is so short that its index would wrap too soon, or leaves no room for the count.
    ShortWindow {
        algorithm: &'static str,
        got_ns: u64,
        min_ns: u64,
    },
    /// The compact store has no form for this variant of the algorithm.
    NoCompactForm {
        algorithm: &'static str,
        instead: &'static str,
    },
    /// The kind of store does not support the algorithm.
    Unsupported {
        algorithm: &'static str,
        store: &'static str,
    },
    /// There is not enough memory for a table of this size.
    Memory {
        bytes: u64,
    },
    /// The capacity is a number of slots, but the store has no slots.
    NoSlots,
    /// Holds must be released, and the limiter cannot refund.
    CannotHold,
    /// Values that are counted twice must be refunded, and the limiter cannot refund.
    CannotCountValues,
    /// The builder was given an option that its store does not have.
    Option {
        store: &'static str,
        option: &'static str,
    },
    /// The sketch has so few bytes that all keys would share its counters.
    TooSmall {
        got: u64,
        min: u64,
    },
    /// The windows are so short that the index of the spill sketch would wrap too soon.
    SpillRange,
    /// An overflow policy that moves debts, for words that cannot be merged: of two counts, neither word needs to include the
    /// other's debt; a block would stop a key that was never denied. So only `Forget` is possible.
    Overflow,
    /// A per-call quota would need another layout of the limiter's words.
    Layout {
        algorithm: &'static str,
        same: &'static str,
    },
    /// Too many earlier quota changes are still being carried over.
    Pending {
        changes: u32,
    },
    /// A block of length 0, or a longest block that is shorter than the first one.
    ShortBlock {
        got_ns: u64,
        min_ns: u64,
    },
    /// The block is too long for the algorithm's word, or for the number of blocks that the word counts.
    LongBlock {
        got_ns: u64,
        max_ns: u64,
    },
    /// The algorithm has no blocks.
    NoBlocks {
        algorithm: &'static str,
    },
    /// Another module found the error and wrote its text.
    Worded,
    Syntax {
        expected: &'static str,
    },
    NumberTooLarge,
}

impl Reason {
    /// Returns one sentence without the figures, for panics in constants.
    pub(crate) const fn summary(self) -> &'static str {
        match self {
            Self::ZeroLimit => "quota: the limit must be at least 1",
            Self::ZeroPeriod => "quota: the period must be at least 1 ns",
            Self::ZeroBurst => "quota: the burst must be at least 1",
            Self::ZeroParts => "quota: the number of sub-windows must be at least 1",
            Self::Rate { .. } => "quota: the rate must be above 0, and finite",
            Self::TooFast { .. } => "quota: the rate must be at most 32 units per nanosecond",
            Self::TooLong { .. } => "quota: refilling the burst must take at most 292 years",
            Self::Word { .. } => "quota: out of the algorithm's range; try_new returns the maximum",
            Self::SmallWord { .. } => "quota: out of the store's range; use a keyed or direct store",
            Self::Apart { .. } => "quota: too different from the other quotas of its compact table",
            Self::Undeclared { .. } => {
                "quota: the compact table was not built for it; pass it to Builder::tiers"
            }
            Self::ShortWindow { .. } => {
                "quota: the period is too short for the limit; try_new returns the minimum"
            }
            Self::NoCompactForm { .. } => "quota: the compact store does not support this variant",
            Self::Unsupported { .. } => "quota: the store does not support the algorithm",
            Self::Memory { .. } => "capacity: a table of this size cannot be allocated",
            Self::CannotHold => "holds: the limiter cannot refund",
            Self::CannotCountValues => "distinct values: the limiter cannot refund",
            Self::NoSlots => "capacity: a sketch has no slots",
            Self::Option { .. } => "option: the store does not have it",
            Self::TooSmall { .. } => "capacity: too small for a sketch",
            Self::SpillRange => "overflow: the windows are too short to spill debts",
            Self::Overflow => "overflow: sliding windows and blocks support only Overflow::Forget",
            Self::Layout { .. } => "quota: changes a part of the limiter's quota that must stay the same",
            Self::Pending { .. } => "quota: the debts of too many earlier changes are not paid yet",
            Self::ShortBlock { .. } => "block: shorter than 1 ns, or at most shorter than the first block",
            Self::LongBlock { .. } => {
                "block: too long for the quota, or more than 16384 times the first block"
            }
            Self::NoBlocks { .. } => "block: the algorithm has no blocks",
            Self::Worded => "quota: this kind of limiter cannot hold it",
            Self::Syntax { .. } => "quota: expected LIMIT/PERIOD [burst N]",
            Self::NumberTooLarge => {
                "quota: a number, or the period in nanoseconds, is above 18446744073709551615"
            }
        }
    }
}

/// Returns the value, or panics with a short reason. For `const` constructors.
#[track_caller]
pub(crate) const fn or_panic<T: Copy>(made: Result<T, Reason>) -> T {
    match made {
        Ok(made) => made,
        Err(reason) => panic!("{}", reason.summary()),
    }
}

impl QuotaError {
    /// Returns whether only unfinished earlier changes prevent this one.
    #[doc(hidden)]
    pub const fn is_pending(&self) -> bool {
        matches!(self.reason, Reason::Pending { .. })
    }

    /// Returns whether a number has no room in the algorithm's word. The text then ends with the remedy, after a semicolon.
    #[doc(hidden)]
    pub const fn is_out_of_range(&self) -> bool {
        matches!(self.reason, Reason::Word { .. } | Reason::ShortWindow { .. })
    }

    /// Returns `true` if the quota is valid, and only the memory for its table could not be allocated.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Capacity, Gcra, Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::builder(Gcra::new(Quota::per_minute(60)));
    /// let error = limiter.capacity(Capacity::memory(isize::MAX as usize)).compact().unwrap_err();
    /// assert!(error.is_out_of_memory());
    /// assert!(!"0/min".parse::<Quota>().unwrap_err().is_out_of_memory());
    /// ```
    #[must_use]
    pub const fn is_out_of_memory(&self) -> bool {
        matches!(self.reason, Reason::Memory { .. })
    }

    /// Creates an error with the caller's own text.
    #[cfg(feature = "std")]
    pub(crate) fn worded(text: String) -> Self {
        Self { reason: Reason::Worded, text: Some(text.into()), form: TextForm::Quota }
    }

    pub(crate) fn in_text(reason: Reason, text: &str, form: TextForm) -> Self {
        // The text may come from a file and have any length. The error message shows only a readable part.
        let cut: String = text.chars().take(80).collect();
        Self { reason, text: Some(cut.into()), form }
    }
}

impl From<Reason> for QuotaError {
    fn from(reason: Reason) -> Self {
        Self { reason, text: None, form: TextForm::Quota }
    }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(text) = &self.text else { return write!(f, "invalid quota: {}", self.reason) };
        if self.reason == Reason::Worded {
            return write!(f, "invalid quota: {text}");
        }
        write!(f, "invalid quota {text:?}: {}", self.reason)?;
        f.write_str(match self.form {
            TextForm::Quota => "; write LIMIT/PERIOD [burst N], as in 100/60s, 5/min burst 20 or 1000/h",
            TextForm::Limit => {
                "; write [ALGORITHM] LIMIT/PERIOD [burst N] [block LENGTH [to LONGEST]], as in 100/min burst 20, \
                 sliding-log 3/10s, sub-window(60, strict) 500/h or 5/min block 10min to 1d"
            }
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ZeroLimit => write!(f, "the limit is 0, but must be at least 1"),
            Self::ZeroPeriod => write!(f, "the period is 0, but must be at least 1 ns"),
            Self::ZeroBurst => write!(f, "the burst is 0, but must be at least 1"),
            Self::ZeroParts => write!(f, "the number of sub-windows is 0, but must be at least 1"),
            Self::Rate { got } => write!(
                f,
                "the rate is {got}, but must be a number above 0; an adjustable limiter can be turned off instead of \
                 an infinite rate, and a limiter that admits nothing needs no quota"
            ),
            Self::TooFast { limit, period_ns } => write!(
                f,
                "{limit} units in {period_ns} ns is more than 32 units per nanosecond, the highest rate"
            ),
            Self::TooLong { limit, period_ns, burst } => write!(
                f,
                "a burst of {burst} at {limit} units in {period_ns} ns takes more than 292 years to refill"
            ),
            Self::Word { algorithm, what, got, max } => {
                write!(
                    f,
                    "{algorithm}: {what} can be at most {max}, but is {got}; lower it to {max}, or use another algorithm"
                )
            }
            Self::SmallWord { algorithm, what, store, got, max } => write!(
                f,
                "{algorithm}: {what}, in {store}, can be at most {max}, but is {got}; a keyed or direct store has \
                 room for it"
            ),
            Self::Layout { algorithm, same } => {
                write!(f, "{algorithm}: a quota for a single call must not change the {same}")
            }
            Self::Pending { changes } => write!(
                f,
                "the debts of {changes} earlier changes are not paid yet; change the quota less often than a burst \
                 refills, use Carry::Reset, or call forget_past first"
            ),
            Self::Syntax { expected } => write!(f, "expected {expected}"),
            Self::NumberTooLarge => {
                write!(f, "a number, or the period in nanoseconds, is above {}", u64::MAX)
            }
            Self::Apart { algorithm } => write!(
                f,
                "{algorithm}: the quotas of one compact table are too far apart: they share one tick, and the \
                 shortest interval must be at least 256 ticks, the longest burst at most 2^33 ticks"
            ),
            Self::Undeclared { algorithm } => write!(
                f,
                "{algorithm}: this compact table was not built for this quota; pass the quota to Builder::tiers"
            ),
            Self::ShortWindow { algorithm, got_ns, min_ns } => write!(
                f,
                "{algorithm}: the period is {got_ns} ns, but with this limit it must be at least {min_ns} ns; use a \
                 longer period or a lower limit"
            ),
            Self::NoCompactForm { algorithm, instead } => {
                write!(f, "{algorithm}: the store does not support this variant; use {instead}")
            }
            Self::Unsupported { algorithm, store } => write!(
                f,
                "{algorithm}: the {store} store does not support this algorithm; use a keyed store"
            ),
            Self::Memory { bytes } => {
                write!(f, "cannot allocate a table of {bytes} bytes; use a smaller capacity")
            }
            Self::CannotHold => f.write_str(
                "a limiter that cannot refund has no holds; use GCRA, a token bucket, minimum spacing or a window, in a \
                 direct, keyed or compact store without Overflow::Inherit",
            ),
            Self::CannotCountValues => f.write_str(
                "a limiter that cannot refund counts no different values; use a compact store without \
                 Overflow::Inherit",
            ),
            Self::NoSlots => f.write_str(
                "a sketch has no slots; give its memory (Capacity::memory, \"4MiB\") or its traffic \
                 (Capacity::for_traffic)",
            ),
            Self::Option { store, option } => write!(
                f,
                "a {store} limiter has no option {option}; do not set it, or build another store"
            ),
            Self::TooSmall { got, min } => write!(
                f,
                "a sketch of {got} bytes is too small, because nearly all keys would share their counters; it needs \
                 at least {min} bytes. For one or two false denials in ten thousand, give it about 40 bytes for each \
                 key that spends its limit in a window (Capacity::for_traffic)"
            ),
            Self::SpillRange => f.write_str(
                "the windows are too short to spill debts: the window numbers in the sketch would repeat within a \
                 second; use Overflow::Inherit or Overflow::Forget",
            ),
            Self::Overflow => f.write_str(
                "the compact store cannot move the debt of an evicted key if the algorithm is a sliding window or has \
                 blocks; use Overflow::Forget",
            ),
            Self::ShortBlock { got_ns, min_ns } => {
                let [got, min] = [got_ns, min_ns].map(PeriodText);
                write!(f, "a block, or the longest block, is {got}, but must be at least {min}")
            }
            Self::LongBlock { max_ns: 0, .. } => {
                f.write_str("a key cannot be blocked, because a full burst takes years to refill")
            }
            Self::LongBlock { got_ns, max_ns } => {
                const DAY_NS: u64 = 86_400 * NANOS_PER_SEC;
                // A limit of years is easier to read without its nanoseconds.
                let is_short = max_ns < DAY_NS || max_ns.is_multiple_of(NANOS_PER_SEC);
                let [got, max] = [got_ns, if is_short { max_ns } else { max_ns - max_ns % DAY_NS }].map(PeriodText);
                write!(f, "the longest block is {got}, but with this quota and first block it can be at most {max}")
            }
            Self::NoBlocks { algorithm } => write!(
                f,
                "{algorithm} cannot block keys, because its states hold no time to which a block could add; use gcra, \
                 token-bucket or leaky-bucket"
            ),
            // `QuotaError` writes its own text.
            Self::Worded => Ok(()),
        }
    }
}

crate::base::debug_shows_message!(QuotaError);

impl Error for QuotaError {}
