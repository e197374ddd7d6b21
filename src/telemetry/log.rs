//! Writes an event for each denial.

use std::time::Duration;

use super::denial::{Denial, Level};
use super::trace;

/// Writes an event for each denial with the feature `tracing`, and nothing without it.
///
/// The target is `tollgate`. The fields are `domain`, `rule`, `retry_after_ms` (rounded up; absent if the request can
/// never be admitted), `shadow`, and optionally `key`.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::telemetry::{Denial, DenialLog, Level};
///
/// const LOG: DenialLog = DenialLog::at(Level::Info);
/// LOG.record(&Denial {
///     domain: "api",
///     rule: "per-ip",
///     retry_after: Some(Duration::from_millis(1_500)),
///     shadow: false,
///     key: "203.0.113.7",
/// });
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct DenialLog {
    level: Level,
    keys: bool,
}

impl DenialLog {
    /// Creates a log with events of this level, without keys.
    #[must_use]
    pub const fn at(level: Level) -> Self {
        Self { level, keys: false }
    }

    /// Sets whether events include the key. Keys are often personal data (addresses, accounts). Default: false.
    #[must_use]
    pub const fn with_keys(self, keys: bool) -> Self {
        Self { keys, ..self }
    }

    /// Returns whether events include the key. Without the feature `tracing` there are no events, so it returns false, and a
    /// caller need not write the key.
    #[must_use]
    pub const fn has_keys(&self) -> bool {
        trace::ENABLED && self.keys
    }

    /// Writes an event, if a subscriber is interested in it.
    #[inline]
    pub fn record(&self, denial: &Denial<'_>) {
        self.record_with(denial, || denial.retry_after);
    }

    /// Writes an event with another wait, which is computed only if a subscriber is interested in the event.
    #[inline]
    pub fn record_with(&self, denial: &Denial<'_>, retry_after: impl Fn() -> Option<Duration>) {
        trace::denied(self.level, denial, self.keys.then_some(denial.key), retry_after);
    }
}
