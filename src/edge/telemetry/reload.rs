//! Counts loads of rules, their results, and the time of the last success.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::base::sync::AtomicU64;
use crate::base::sync::Ordering::Relaxed;

/// A mask of 48 bits: a gauge represents such a number exactly.
const MAX_HASH: u64 = (1 << 48) - 1;

/// The counts of [`Reloads`].
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ReloadCounts {
    /// Loads whose rules took effect.
    pub successes: u64,
    /// Loads whose rules were rejected. The previous rules stay in force.
    pub errors: u64,
    /// Rules in force.
    pub rules: u64,
    /// A 48-bit hash of the texts of the files in force, or 0 if there are no files. Processes with the same rules in
    /// force have the same hash, whatever the file names are.
    pub config_hash: u64,
    /// The time when rules last took effect.
    pub last_success: Option<SystemTime>,
    /// Requests with a domain that has no rules.
    pub unknown_domains: u64,
}

/// Counts loads of rules and reports them. With the feature `metrics`, it reports `tollgate_reload_total` and others.
/// With the feature `tracing`, it writes an event for each load (target `tollgate`; INFO for a success, WARN for a
/// failure).
///
/// # Examples
/// ```
/// use tollgate::telemetry::Reloads;
///
/// let reloads = Reloads::new();
/// reloads.loaded(12);
/// reloads.failed(&"rules.yaml:3:5: unknown field `requests_per_units`");
/// let counts = reloads.counts();
/// assert_eq!((counts.successes, counts.errors, counts.rules), (1, 1, 12));
/// assert!(counts.last_success.is_some());
/// ```
#[derive(Default)]
pub struct Reloads {
    successes: AtomicU64,
    errors: AtomicU64,
    rules: AtomicU64,
    config_hash: AtomicU64,
    /// Milliseconds since 1970, or 0 before the first success.
    last_ms: AtomicU64,
    unknown_domains: AtomicU64,
    #[cfg(feature = "metrics")]
    handles: super::facade::ReloadHandles,
}

impl fmt::Debug for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloads").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Reloads {
    /// Creates counters with no loads. Registers the metrics; install the recorder first.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that `rules` rules took effect now.
    pub fn loaded(&self, rules: u32) {
        self.loaded_from(rules, 0);
    }

    /// Records that `rules` rules took effect now, from files with this hash. Only the lowest 48 bits of the hash
    /// count.
    pub fn loaded_from(&self, rules: u32, config_hash: u64) {
        let config_hash = config_hash & MAX_HASH;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(1);
        // Ordering: Relaxed, here and below. The counters publish no other data.
        self.successes.fetch_add(1, Relaxed);
        self.rules.store(rules.into(), Relaxed);
        self.config_hash.store(config_hash, Relaxed);
        self.last_ms.store(ms, Relaxed);
        #[cfg(feature = "metrics")]
        self.handles.loaded(rules, config_hash, since.as_secs_f64());
        #[cfg(feature = "tracing")]
        tracing::info!(target: "tollgate", rules, config_hash, "rules loaded");
    }

    /// Records that rules were rejected for this reason. The previous rules stay in force.
    pub fn failed(&self, error: &dyn fmt::Display) {
        self.errors.fetch_add(1, Relaxed);
        #[cfg(feature = "metrics")]
        self.handles.error.increment(1);
        #[cfg(feature = "tracing")]
        tracing::warn!(target: "tollgate", %error, "rules rejected; the previous rules stay in force");
        #[cfg(not(feature = "tracing"))]
        let _ = error;
    }

    /// Records a request with a domain that has no rules.
    pub fn unknown_domain(&self) {
        self.unknown_domains.fetch_add(1, Relaxed);
        #[cfg(feature = "metrics")]
        self.handles.unknown_domains.increment(1);
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> ReloadCounts {
        let last_ms = self.last_ms.load(Relaxed);
        ReloadCounts {
            successes: self.successes.load(Relaxed),
            errors: self.errors.load(Relaxed),
            rules: self.rules.load(Relaxed),
            config_hash: self.config_hash.load(Relaxed),
            unknown_domains: self.unknown_domains.load(Relaxed),
            last_success: (last_ms > 0)
                .then(|| UNIX_EPOCH.checked_add(Duration::from_millis(last_ms)))
                .flatten(),
        }
    }
}
