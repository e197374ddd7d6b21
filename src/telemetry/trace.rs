//! The events of the `tracing` facade. All have the target `tollgate`.
//!
//! Only this module names the crate `tracing`. Without the feature, `no_trace` stands in for it.

use std::time::Duration;

use super::denial::{Denial, Level};

/// Whether events are written.
pub(super) const ENABLED: bool = true;

/// Writes a denial, without its key if that is `None`.
pub(super) fn denied(
    level: Level,
    denial: &Denial<'_>,
    key: Option<&str>,
    retry_after: impl Fn() -> Option<Duration>,
) {
    let &Denial { domain, rule, shadow, .. } = denial;
    // Whole milliseconds, rounded up. The macro computes them only if the event is enabled.
    let wait =
        || retry_after().map(|wait| u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX));
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
    match level {
        Level::Error => event!(ERROR),
        Level::Warn => event!(WARN),
        Level::Info => event!(INFO),
        Level::Debug => event!(DEBUG),
        Level::Trace => event!(TRACE),
    }
}
