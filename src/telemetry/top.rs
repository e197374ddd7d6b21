//! Lists the most-denied keys.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write;

use crate::sketch::{CutText, SampledTopKeys, SketchError};

/// The maximum stored length of a rule's name, in bytes.
const RULE_BYTES: usize = 64;
/// The maximum stored length of a key, in bytes.
const KEY_BYTES: usize = 256;

#[derive(Copy, Clone, PartialEq, Eq, Hash)]
struct RuleAndKey {
    rule: CutText<RULE_BYTES>,
    key: CutText<KEY_BYTES>,
}

/// A key with many denials.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeniedKey {
    /// The first 64 bytes of the name of the rule that denied the key.
    pub rule: String,
    /// The first 256 bytes of the key, cut at a character boundary. If keys are hashed, this is the hash in
    /// hexadecimal.
    pub key: String,
    /// An upper bound on the number of denials. If denials are sampled, this is an estimate.
    pub count: u64,
    /// The maximum by which `count` may be too high.
    pub error: u64,
}

/// Lists the most-denied keys, in bounded memory. Use it for an operator's page, and not for metric labels.
///
/// It uses [`SampledTopKeys`], so the bounds of that type apply. Recording never waits and never allocates. Keys that
/// an attacker invents displace only keys with few denials.
///
/// # Privacy
/// Keys are often personal data. [`TopDenied::hashed`] stores a keyed hash instead of each key. The same secret gives
/// the same hash, so an operator who knows a key can search for it.
///
/// # Memory
/// Fixed: about 450 bytes for each of `entries`, times the number of stripes. There are twice as many stripes as
/// threads that can run at the same time, and at most 16. For 100 entries on eight cores, this is 720 KB.
///
/// # Examples
/// ```
/// use tollgate::telemetry::TopDenied;
///
/// let denied = TopDenied::try_new(100, 1)?; // counts all denials; 64 would count one in 64
/// for request in 0..1_000 {
///     denied.record("per-ip", if request % 10 == 0 { "203.0.113.7" } else { "198.51.100.1" });
/// }
/// let top = denied.top(1);
/// assert_eq!((top[0].rule.as_str(), top[0].key.as_str(), top[0].count), ("per-ip", "198.51.100.1", 900));
/// # Ok::<(), tollgate::sketch::SketchError>(())
/// ```
pub struct TopDenied {
    sample: SampledTopKeys<RuleAndKey>,
    secret: Option<Box<[u8]>>,
}

impl fmt::Debug for TopDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopDenied")
            .field("every", &self.sample.every())
            .field("is_hashed", &self.secret.is_some())
            .finish_non_exhaustive()
    }
}

impl TopDenied {
    /// Creates a list with room for `entries` pairs of rule and key. Samples one in `every` denials; 0 and 1 count all
    /// denials.
    ///
    /// # Errors
    /// If `entries` is 0, or if there is not enough memory.
    pub fn try_new(entries: usize, every: u32) -> Result<Self, SketchError> {
        Ok(Self { sample: SampledTopKeys::try_new(entries, every)?, secret: None })
    }

    /// Stores hashes of keys instead of keys. `secret` should have at least 16 random bytes.
    ///
    /// Equal secrets give equal hashes in all programs of the same build.
    #[must_use]
    pub fn hashed(self, secret: &[u8]) -> Self {
        Self { secret: Some(secret.into()), ..self }
    }

    /// Returns the listed form of a key: its text, or its hash.
    ///
    /// # Examples
    /// ```
    /// use tollgate::telemetry::TopDenied;
    ///
    /// let denied = TopDenied::try_new(10, 1)?.hashed(b"0123456789abcdef");
    /// denied.record("per-ip", "203.0.113.7");
    /// assert_eq!(denied.top(1)[0].key, denied.shown("203.0.113.7"));
    /// assert_eq!(denied.shown("203.0.113.7").len(), 16);
    /// # Ok::<(), tollgate::sketch::SketchError>(())
    /// ```
    #[must_use]
    pub fn shown(&self, key: &str) -> String {
        self.kept(key).as_str().to_owned()
    }

    fn kept(&self, key: &str) -> CutText<KEY_BYTES> {
        let Some(secret) = &self.secret else {
            return CutText::new(key);
        };
        // SipHash is a keyed hash, so its output reveals nothing about the secret. The length separates the secret from
        // the key.
        let mut hasher = DefaultHasher::new();
        hasher.write_usize(secret.len());
        hasher.write(secret);
        hasher.write(key.as_bytes());
        // Writes sixteen digits without the heap. It cannot fail: the buffer has room, and the digits are ASCII.
        let mut digits = [0; 16];
        let _ = write!(&mut digits[..], "{:016x}", hasher.finish());
        CutText::new(std::str::from_utf8(&digits).unwrap_or_default())
    }

    /// Records a denial of `key` by `rule`.
    ///
    /// # Complexity
    /// O(length of both) if the denial is sampled. Never waits and never allocates.
    #[inline]
    pub fn record(&self, rule: &str, key: &str) {
        self.sample.record_with(1, || RuleAndKey { rule: CutText::new(rule), key: self.kept(key) });
    }

    /// Returns the `n` pairs of rule and key with the most denials, highest count first.
    ///
    /// # Complexity
    /// O(m log m) for each stripe; see [`SampledTopKeys::snapshot`].
    #[must_use]
    pub fn top(&self, n: usize) -> Vec<DeniedKey> {
        let top = self.sample.top(n).into_iter();
        top.map(|entry| DeniedKey {
            rule: entry.key.rule.as_str().to_owned(),
            key: entry.key.key.as_str().to_owned(),
            count: entry.count,
            error: entry.error,
        })
        .collect()
    }

    /// Clears the list, to start a new period.
    pub fn clear(&self) {
        drop(self.sample.take());
    }
}
