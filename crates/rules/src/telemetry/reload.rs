//! Counts loads of rules, their results, and the time of the last success.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

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
    /// All counts but those of requests, because a check takes no lock.
    counts: Mutex<ReloadCounts>,
    unknown_domains: AtomicU64,
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
        let (config_hash, now) = (config_hash & MAX_HASH, SystemTime::now());
        self.update(|counts| {
            counts.successes += 1;
            (counts.rules, counts.config_hash, counts.last_success) = (rules.into(), config_hash, Some(now));
        });
        self.handles.loaded(rules, config_hash, seconds(now));
        trace::rules_loaded(rules, config_hash);
    }

    /// Records that rules were rejected for this reason. The previous rules stay in force.
    pub fn failed(&self, error: &dyn fmt::Display) {
        self.update(|counts| counts.errors += 1);
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
        self.update(|counts| (counts.version, counts.version_time) = (version, written_at));
        self.handles.version(version, written_at.map_or(0.0, seconds));
    }

    /// Records a poll of the source: whether it answered, and what is wrong.
    #[cfg(feature = "watch")]
    pub(crate) fn polled(&self, answered: bool, error: Option<&dyn fmt::Display>) {
        let now = SystemTime::now();
        let (answer, failed_before) = self.update(|counts| {
            counts.source_answer = Some(now).filter(|_| answered).or(counts.source_answer);
            (counts.source_answer, std::mem::replace(&mut counts.source_fails, error.is_some()))
        });
        self.handles.polled(answer.map_or(0.0, seconds), error.is_some());
        match error {
            Some(error) if !failed_before => trace::source_fails(error),
            None if failed_before => trace::source_works(),
            _ => {}
        }
    }

    /// Records a request with a domain that has no rules.
    pub fn unknown_domain(&self) {
        // Ordering: Relaxed. The counter publishes no other data.
        self.unknown_domains.fetch_add(1, Relaxed);
        self.handles.unknown_domain();
    }

    /// Records that a load removed a domain. Its requests have no limits from now on.
    pub fn removed_domain(&self, domain: &str) {
        self.update(|counts| counts.removed_domains += 1);
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
        let unknown_domains = self.unknown_domains.load(Relaxed);
        ReloadCounts { unknown_domains, ..self.update(|counts| *counts) }
    }

    fn update<R>(&self, change: impl FnOnce(&mut ReloadCounts) -> R) -> R {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the seconds since 1970.
fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
