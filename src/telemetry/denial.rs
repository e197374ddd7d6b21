//! The data of a denial.

use std::time::Duration;

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
    /// The key of the request. It is logged only with [`DenialLog::with_keys`](crate::telemetry::DenialLog::with_keys).
    pub key: &'a str,
}
