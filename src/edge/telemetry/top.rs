//! Who is denied most.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write;

use crate::sketch::{CutText, SampledTopKeys, SketchError};

/// What is kept of a rule's name.
const RULE_BYTES: usize = 64;
/// What is kept of a key.
const KEY_BYTES: usize = 256;

#[derive(Copy, Clone, PartialEq, Eq, Hash)]
struct RuleAndKey {
    rule: CutText<RULE_BYTES>,
    key: CutText<KEY_BYTES>,
}

/// A key that was denied often.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeniedKey {
    /// The rule that denied it: the first 64 bytes of its name.
    pub rule: String,
    /// The key: its first 256 bytes, to a whole character; or its hash in hexadecimal, if keys are hashed.
    pub key: String,
    /// How often, at most; an estimate if denials are sampled.
    pub count: u64,
    /// By how much `count` may be too high, at most.
    pub error: u64,
}

/// The keys that are denied most, in bounded memory: for a page of the operator's, and not for labels of metrics.
///
/// Built on [`SampledTopKeys`], whose bounds hold: recording never waits and never allocates, and keys that clients make up push out
/// light keys only.
///
/// # Privacy
/// Keys are often personal. With [`TopDenied::hashed`] none is kept: what is shown is a keyed hash, the same for the same secret,
/// by which an operator who knows a key can look for it.
///
/// # Memory
/// Fixed: about 450 bytes for each of `entries`, times twice the threads that can run at once and at most 16: 720 KB for 100 on
/// eight cores.
///
/// # Examples
/// ```
/// use tollgate::telemetry::TopDenied;
///
/// let denied = TopDenied::try_new(100, 1)?; // all denials; 64 would be one in 64
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
    /// Room for so many pairs of rule and key; one in `every` denials is sampled, and all if it is 0 or 1.
    ///
    /// # Errors
    /// If `entries` is 0, or there is no memory for so many.
    pub fn try_new(entries: usize, every: u32) -> Result<Self, SketchError> {
        Ok(Self { sample: SampledTopKeys::try_new(entries, every)?, secret: None })
    }

    /// Keeps hashes of keys instead of keys, under a secret: at least 16 random bytes.
    ///
    /// Equal secrets give equal hashes in programs of one build.
    #[must_use]
    pub fn hashed(self, secret: &[u8]) -> Self {
        Self { secret: Some(secret.into()), ..self }
    }

    /// What is shown for a key: its text, or its hash.
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
        // SipHash, whose output tells nothing of what follows the secret. The length parts secret and key.
        let mut hasher = DefaultHasher::new();
        hasher.write_usize(secret.len());
        hasher.write(secret);
        hasher.write(key.as_bytes());
        // Sixteen digits, without the heap. Never an error: there is room for them, and they are ASCII.
        let mut digits = [0; 16];
        let _ = write!(&mut digits[..], "{:016x}", hasher.finish());
        CutText::new(std::str::from_utf8(&digits).unwrap_or_default())
    }

    /// Records a denial of `key` by `rule`.
    ///
    /// # Complexity
    /// O(length of both), if it is sampled. Never waits, never allocates.
    #[inline]
    pub fn record(&self, rule: &str, key: &str) {
        self.sample.record_with(1, || RuleAndKey { rule: CutText::new(rule), key: self.kept(key) });
    }

    /// The `n` pairs of rule and key that were denied most, most first.
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

    /// Forgets all: a period begins.
    pub fn clear(&self) {
        drop(self.sample.take());
    }
}
