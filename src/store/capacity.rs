//! The size of a store.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::error::Error;
use core::fmt;
use core::str::FromStr;

use crate::base::quota::Quota;

const DEFAULT_BYTES: usize = 4 << 20;
/// Bytes of a sketch for each key, if every key spends its full limit. In other words: the bytes for each `limit` units
/// that are admitted in one window. Measured with Zipf-distributed keys (exponent 1.0) and limits of 10 or more: with
/// 20 to 33 bytes, one deserving request in ten thousand is denied.
const SKETCH_BYTES: usize = 40;

/// The size of a store: in slots, in bytes, or by the traffic that it must hold.
///
/// A key needs a slot only while it *owes* something. Each admitted unit keeps its key busy for one emission interval.
/// So `admitted units per second × seconds per unit` slots are in use, whatever the number of keys. For example, take
/// 10 M keys (Zipf 1.0) and 1 M checks per second for all keys together. They need about 50,000 slots with a quota of
/// 10/s per key, and 240,000 slots with a quota of 100/min per key.
///
/// # Examples
/// ```
/// use tollgate::{Capacity, Gcra, Quota, RateLimiter};
///
/// let quota = Quota::per_minute(100);
/// let by_slots = Capacity::slots(100_000);
/// let by_memory: Capacity = "4MiB".parse()?;
/// let by_traffic = Capacity::for_traffic(50_000, &quota); // 50,000 units per second, admitted for all keys together
///
/// let limiter = RateLimiter::builder(Gcra::new(quota)).capacity(by_memory).compact()?;
/// assert!(limiter.state_bytes() <= 4 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Capacity(pub(super) Size);

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Size {
    Slots(usize),
    Bytes(usize),
    /// The number of keys that owe at the same time, each with this burst.
    Busy {
        keys: usize,
        burst: u64,
    },
}

impl Default for Capacity {
    fn default() -> Self {
        Self::memory(DEFAULT_BYTES)
    }
}

impl From<usize> for Capacity {
    fn from(slots: usize) -> Self {
        Self::slots(slots)
    }
}

impl Capacity {
    /// A table of `slots` slots of eight bytes each. With [`Overflow::Spill`](crate::Overflow::Spill), the sketch takes
    /// another seven ninths of that memory. A keyed store holds `slots` keys before it grows.
    #[must_use]
    pub const fn slots(slots: usize) -> Self {
        Self(Size::Slots(slots))
    }

    /// At most `bytes` bytes in total, at least 272. With [`Overflow::Spill`](crate::Overflow::Spill), seven sixteenths
    /// of them are the sketch.
    #[must_use]
    pub const fn memory(bytes: usize) -> Self {
        Self(Size::Bytes(bytes))
    }

    /// Enough room to admit `admitted_per_second` units per second, for all keys together, under this quota.
    ///
    /// With this capacity, fewer than one in ten thousand deserving requests is denied because of a lack of room. It
    /// takes about 12 bytes for each key that owes.
    ///
    /// Count only *admitted* units. Denied requests need no room. A flood of fresh keys does need room, because the
    /// first request of each key is admitted.
    ///
    /// The [`Sketch`](crate::Sketch) store takes about 40 bytes for each `limit` units that are admitted in one window.
    /// Sliding windows take twice as much.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Capacity, Quota};
    ///
    /// // 50,000 units per second × 0.6 seconds per unit are 30,000 busy keys.
    /// assert_eq!(Capacity::for_traffic(50_000, &Quota::per_minute(100)).busy_keys(), Some(30_000));
    /// ```
    #[must_use]
    pub fn for_traffic(admitted_per_second: u64, quota: &Quota) -> Self {
        // Each unit keeps its key busy for `period / limit` seconds. So `units per second × period / limit` keys are
        // busy at most.
        let units_ns = u128::from(admitted_per_second) * u128::from(quota.period_ns());
        let keys = units_ns.div_ceil(u128::from(quota.limit()) * 1_000_000_000);
        Self(Size::Busy { keys: usize::try_from(keys).unwrap_or(usize::MAX), burst: quota.burst_size() })
    }

    /// The number of keys that owe at the same time, if [`Capacity::for_traffic`] made this capacity.
    #[must_use]
    pub const fn busy_keys(&self) -> Option<usize> {
        match self.0 {
            Size::Busy { keys, .. } => Some(keys),
            _ => None,
        }
    }

    /// The total number of bytes, if [`Capacity::memory`] or a parsed text made this capacity.
    #[must_use]
    pub const fn bytes(&self) -> Option<usize> {
        match self.0 {
            Size::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The capacity as a number of keys, for stores that keep their keys.
    pub(crate) fn keys(&self) -> usize {
        match self.0 {
            Size::Slots(keys) | Size::Busy { keys, .. } => keys,
            Size::Bytes(bytes) => bytes / 128,
        }
    }

    /// The capacity as the bytes of a sketch. A sketch has no slots.
    pub(crate) fn sketch_bytes(&self) -> Option<usize> {
        match self.0 {
            Size::Slots(_) => None,
            Size::Bytes(bytes) => Some(bytes),
            // `keys` is the number of keys that spend their full limit. There may be more keys that spend less, because
            // each of them takes less memory. See `Capacity::for_traffic`.
            Size::Busy { keys, .. } => Some(keys.saturating_mul(SKETCH_BYTES).max(DEFAULT_BYTES >> 6)),
        }
    }
}

/// The error for a text that is not an amount of memory.
///
/// # Examples
/// ```
/// use tollgate::Capacity;
///
/// let error = "4 megs".parse::<Capacity>().unwrap_err();
/// assert!(error.to_string().contains("4MiB")); // the error shows a valid example
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct CapacityError {
    text: Box<str>,
    problem: &'static str,
}

impl CapacityError {
    /// Returns the message without a remedy, for callers that accept fewer amounts and name their own.
    #[doc(hidden)]
    pub fn problem(&self) -> String {
        format!("invalid amount of memory {:?}: {}", self.text, self.problem)
    }
}

impl fmt::Display for CapacityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; write bytes with a unit, as in 512KiB, 4MiB or 1.5GiB", self.problem())
    }
}

crate::base::debug_shows_message!(CapacityError);

impl Error for CapacityError {}

impl FromStr for Capacity {
    type Err = CapacityError;

    /// Parses bytes with an optional unit: `4MiB`, `512 KiB`, `1.5GiB`, `64kB`, `4096`.
    ///
    /// Binary units are powers of 1,024, and decimal units are powers of 1,000. Letters may be upper or lower case.
    fn from_str(text: &str) -> Result<Self, CapacityError> {
        let refused =
            |problem| CapacityError { text: text.chars().take(80).collect::<String>().into(), problem };
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(refused("the unit is not B, KiB, MiB, GiB, TiB, kB, MB, GB or TB")),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') {
            return Err(refused("the number has two decimal points"));
        }
        if whole.is_empty() && fraction.is_empty() {
            return Err(refused("the number is missing"));
        }
        let digits = |digits: &str| if digits.is_empty() { Ok(0_u64) } else { digits.parse::<u64>() };
        let (Ok(whole), Ok(cut)) = (digits(whole), digits(&fraction[..fraction.len().min(9)])) else {
            return Err(refused("the number is too large"));
        };
        #[expect(clippy::cast_possible_truncation, reason = "at most 9")]
        let parts = 10_u128.pow(fraction.len().min(9) as u32);
        let bytes = u128::from(whole) * u128::from(scale) + u128::from(cut) * u128::from(scale) / parts;
        match usize::try_from(bytes) {
            Ok(0) => Err(refused("it is less than 1 byte")),
            Ok(bytes) if bytes <= isize::MAX as usize => Ok(Self::memory(bytes)),
            _ => Err(refused("it is larger than the address space")),
        }
    }
}
