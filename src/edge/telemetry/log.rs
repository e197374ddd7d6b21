//! An event for each refusal.

use std::time::Duration;

/// How grave an event is.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Level {
    /// ERROR.
    Error,
    /// WARN.
    Warn,
    /// INFO.
    Info,
    /// DEBUG, the default: a flood of refusals is no flood of logs.
    #[default]
    Debug,
    /// TRACE.
    Trace,
}

/// What there is to say about a refusal.
#[derive(Copy, Clone, Debug)]
pub struct Refusal<'a> {
    /// The rules' domain.
    pub domain: &'a str,
    /// The rule that refused.
    pub rule: &'a str,
    /// When it could be admitted; `None` if never.
    pub retry_after: Option<Duration>,
    /// Whether it was a dry run, which refused nobody.
    pub shadow: bool,
    /// Who asked. Logged only if [`RefusalLog::with_keys`] says so.
    pub key: &'a str,
}

/// Writes an event for each refusal with feature `tracing`, and nothing without.
///
/// The target is `tollgate`, the fields are `domain`, `rule`, `retry_after_ms` (rounded up; absent if it can never be admitted) and
/// `shadow`; and `key`, if that was asked for.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::telemetry::{Level, Refusal, RefusalLog};
///
/// const LOG: RefusalLog = RefusalLog::at(Level::Info);
/// LOG.record(&Refusal {
///     domain: "api",
///     rule: "per-ip",
///     retry_after: Some(Duration::from_millis(1_500)),
///     shadow: false,
///     key: "203.0.113.7",
/// });
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct RefusalLog {
    level: Level,
    keys: bool,
}

impl RefusalLog {
    /// Events of this level, without keys.
    #[must_use]
    pub const fn at(level: Level) -> Self {
        Self { level, keys: false }
    }

    /// Whether events name who was refused. Keys are often personal (addresses, accounts). Default: they do not.
    #[must_use]
    pub const fn with_keys(self, keys: bool) -> Self {
        Self { keys, ..self }
    }

    /// Whether events name who was refused.
    #[cfg(feature = "rules")]
    pub(crate) const fn has_keys(&self) -> bool {
        cfg!(feature = "tracing") && self.keys
    }

    /// Writes an event, if anybody listens.
    #[inline]
    pub fn record(&self, refusal: &Refusal<'_>) {
        #[cfg(feature = "tracing")]
        self.write(refusal);
        #[cfg(not(feature = "tracing"))]
        let _ = (self.level, self.keys, refusal);
    }

    #[cfg(feature = "tracing")]
    fn write(&self, refusal: &Refusal<'_>) {
        let &Refusal { domain, rule, retry_after, shadow, key } = refusal;
        // Worked out only if the event is enabled: the macro sees to that.
        let wait = || retry_after.map(milliseconds);
        let key = self.keys.then_some(key);
        macro_rules! event {
            ($level:ident) => {
                tracing::event!(
                    target: "tollgate",
                    tracing::Level::$level,
                    domain,
                    rule,
                    retry_after_ms = wait(),
                    shadow,
                    key,
                    "rate limited"
                )
            };
        }
        match self.level {
            Level::Error => event!(ERROR),
            Level::Warn => event!(WARN),
            Level::Info => event!(INFO),
            Level::Debug => event!(DEBUG),
            Level::Trace => event!(TRACE),
        }
    }
}

/// Whole milliseconds, rounded up.
#[cfg(feature = "tracing")]
fn milliseconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
