//! Loads of rules: how many, how they went, when the last good one was.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::base::sync::AtomicU64;
use crate::base::sync::Ordering::Relaxed;

/// 48 bits, which a gauge holds exactly.
const MAX_HASH: u64 = (1 << 48) - 1;

/// What [`Reloads`] has counted.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ReloadCounts {
    /// Loads whose rules came in force.
    pub successes: u64,
    /// Loads whose rules were refused, so that those before stay in force.
    pub errors: u64,
    /// Rules in force.
    pub rules: u64,
    /// A hash of the texts of the files in force, of 48 bits: the same in processes that have the same rules in force, whatever the files
    /// are called. 0 if there are none.
    pub config_hash: u64,
    /// When rules last came in force.
    pub last_success: Option<SystemTime>,
    /// Requests of a domain that there are no rules for.
    pub unknown_domains: u64,
}

/// Counts loads of rules, and tells of them: by `tollgate_reload_total` and others with feature `metrics`, and by an event each with
/// feature `tracing` (target `tollgate`; INFO if it went well, WARN if not).
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
    /// In milliseconds since 1970, 0 if never.
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
    /// Nothing loaded yet. Registers its metrics: install the recorder before.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// So many rules came in force now.
    pub fn loaded(&self, rules: u32) {
        self.loaded_from(rules, 0);
    }

    /// So many rules came in force now, from files of this hash; of more than 48 bits the lowest count.
    pub fn loaded_from(&self, rules: u32, config_hash: u64) {
        let config_hash = config_hash & MAX_HASH;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(1);
        // Ordering: Relaxed, here and below. Tallies, that publish nothing.
        self.successes.fetch_add(1, Relaxed);
        self.rules.store(rules.into(), Relaxed);
        self.config_hash.store(config_hash, Relaxed);
        self.last_ms.store(ms, Relaxed);
        #[cfg(feature = "metrics")]
        self.handles.loaded(rules, config_hash, since.as_secs_f64());
        #[cfg(feature = "tracing")]
        tracing::info!(target: "tollgate", rules, config_hash, "rules loaded");
    }

    /// Rules were refused, for this reason; those before stay in force.
    pub fn failed(&self, error: &dyn fmt::Display) {
        self.errors.fetch_add(1, Relaxed);
        #[cfg(feature = "metrics")]
        self.handles.error.increment(1);
        #[cfg(feature = "tracing")]
        tracing::warn!(target: "tollgate", %error, "rules not loaded, those before stay in force");
        #[cfg(not(feature = "tracing"))]
        let _ = error;
    }

    /// A request said a domain that there are no rules for.
    pub fn unknown_domain(&self) {
        self.unknown_domains.fetch_add(1, Relaxed);
        #[cfg(feature = "metrics")]
        self.handles.unknown_domains.increment(1);
    }

    /// What was counted so far.
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
