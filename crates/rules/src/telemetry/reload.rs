//! Counts loads of rules, their results, and the time of the last success.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::internals::sync::AtomicU64;
use tollgate::internals::sync::Ordering::Relaxed;

use super::facade::ReloadHandles;
use super::trace;

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
    /// Domains that loads have removed.
    pub removed_domains: u64,
    /// The number of the version in force, or 0 if the rules do not follow a source with numbers.
    pub version: u64,
    /// The time when the version in force was written, if the source reports it.
    pub version_time: Option<SystemTime>,
    /// The time when the source last answered.
    pub source_answer: Option<SystemTime>,
    /// Whether the source does not answer, or has rules that cannot be used.
    pub source_fails: bool,
}

/// Counts loads of rules and reports them. With the feature `metrics`, it reports `tollgate_reload_total` and others.
/// With the feature `tracing`, it writes an event for each load (target `tollgate`; INFO for a success, WARN for a
/// failure).
///
/// # Examples
/// ```
/// use tollgate_rules::telemetry::Reloads;
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
    removed_domains: AtomicU64,
    version: AtomicU64,
    /// Milliseconds since 1970, or 0 if unknown.
    version_ms: AtomicU64,
    /// Milliseconds since 1970, or 0 before the first answer.
    answer_ms: AtomicU64,
    /// 1 while the source fails.
    source_fails: AtomicU64,
    handles: ReloadHandles,
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
        let ms = ms_of(SystemTime::now());
        // Ordering: Relaxed, here and below. The counters publish no other data.
        self.successes.fetch_add(1, Relaxed);
        self.rules.store(rules.into(), Relaxed);
        self.config_hash.store(config_hash, Relaxed);
        self.last_ms.store(ms, Relaxed);
        self.handles.loaded(rules, config_hash, seconds(ms));
        trace::rules_loaded(rules, config_hash);
    }

    /// Records that rules were rejected for this reason. The previous rules stay in force.
    pub fn failed(&self, error: &dyn fmt::Display) {
        self.errors.fetch_add(1, Relaxed);
        self.handles.failed();
        trace::rules_rejected(error);
    }

    /// Records a warning about rules that took effect.
    pub fn warned(&self, warning: &dyn fmt::Display) {
        trace::rules_warned(warning);
    }

    /// Records the version in force, and when it was written.
    #[cfg(feature = "watch")]
    pub(crate) fn version(&self, version: u64, written_at: Option<SystemTime>) {
        let ms = written_at.map_or(0, ms_of);
        self.version.store(version, Relaxed);
        self.version_ms.store(ms, Relaxed);
        self.handles.version(version, seconds(ms));
    }

    /// Records a poll of the source: whether it answered, and what is wrong.
    #[cfg(feature = "watch")]
    pub(crate) fn polled(&self, answered: bool, error: Option<&dyn fmt::Display>) {
        if answered {
            self.answer_ms.store(ms_of(SystemTime::now()), Relaxed);
        }
        let failed_before = self.source_fails.swap(error.is_some().into(), Relaxed) == 1;
        self.handles.polled(seconds(self.answer_ms.load(Relaxed)), error.is_some());
        match error {
            Some(error) if !failed_before => trace::source_fails(error),
            None if failed_before => trace::source_works(),
            _ => {}
        }
    }

    /// Records a request with a domain that has no rules.
    pub fn unknown_domain(&self) {
        self.unknown_domains.fetch_add(1, Relaxed);
        self.handles.unknown_domain();
    }

    /// Records that a load removed a domain. Its requests have no limits from now on.
    pub fn removed_domain(&self, domain: &str) {
        self.removed_domains.fetch_add(1, Relaxed);
        self.handles.removed_domain();
        trace::domain_removed(domain);
    }

    /// Records that a load left no rule that the requests of a domain matched.
    pub fn lost_rules(&self, domain: &str) {
        trace::rules_lost(domain);
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> ReloadCounts {
        let time = |ms: &AtomicU64| {
            let ms = ms.load(Relaxed);
            (ms > 0).then(|| UNIX_EPOCH.checked_add(Duration::from_millis(ms))).flatten()
        };
        ReloadCounts {
            successes: self.successes.load(Relaxed),
            errors: self.errors.load(Relaxed),
            rules: self.rules.load(Relaxed),
            config_hash: self.config_hash.load(Relaxed),
            unknown_domains: self.unknown_domains.load(Relaxed),
            removed_domains: self.removed_domains.load(Relaxed),
            last_success: time(&self.last_ms),
            version: self.version.load(Relaxed),
            version_time: time(&self.version_ms),
            source_answer: time(&self.answer_ms),
            source_fails: self.source_fails.load(Relaxed) == 1,
        }
    }
}

/// Returns the milliseconds since 1970, at least 1.
fn ms_of(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(1)
}

fn seconds(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}
