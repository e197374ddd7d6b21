//! Writes an event for each denial.

use std::time::Duration;

use super::trace;

/// The severity of an event.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Level {
    /// ERROR.
    Error,
    /// WARN.
    Warn,
    /// INFO.
    Info,
    /// DEBUG. This is the default, so that many denials do not flood the log.
    #[default]
    Debug,
    /// TRACE.
    Trace,
}

/// The data of a denial.
#[derive(Copy, Clone, Debug)]
pub struct Denial<'a> {
    /// The domain of the rules.
    pub domain: &'a str,
    /// The rule that denied the request.
    pub rule: &'a str,
    /// The time until the request could be admitted, or `None` if it can never be admitted.
    pub retry_after: Option<Duration>,
    /// Whether this was a dry run, which denies nothing.
    pub shadow: bool,
    /// The key of the request. It is logged only with [`DenialLog::with_keys`].
    pub key: &'a str,
}

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

    /// Whether events include the key.
    #[cfg(feature = "rules")]
    pub(crate) const fn has_keys(&self) -> bool {
        trace::ENABLED && self.keys
    }

    /// Writes an event, if a subscriber is interested in it.
    #[inline]
    pub fn record(&self, denial: &Denial<'_>) {
        trace::denied(self.level, denial, self.keys.then_some(denial.key));
    }
}
