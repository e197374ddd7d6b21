//! The events of the `tracing` facade. All have the target `tollgate`.
//!
//! Only this module names the crate `tracing`. Without the feature, `no_trace` stands in for it.

use std::fmt::Display;
use std::time::Duration;

use tracing::{info, warn};

#[cfg(feature = "redis")]
use super::LimiterServer;
use super::denial::{Denial, Level};

/// Whether events are written.
#[cfg(feature = "rules")]
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

pub(super) fn rules_loaded(rules: u32, config_hash: u64) {
    info!(target: "tollgate", rules, config_hash, "rules loaded");
}

pub(super) fn rules_rejected(error: &dyn Display) {
    warn!(target: "tollgate", %error, "rules rejected; the previous rules stay in force");
}

pub(super) fn domain_removed(domain: &str) {
    warn!(target: "tollgate", domain, "a load removed the domain; its requests have no limits now");
}

/// Names keys and no values, because values may be secrets.
#[cfg(feature = "rules")]
pub(crate) fn request_without_rule(domain: &str, keys: &str, is_denied: bool) {
    let action = if is_denied { "denied" } else { "admitted" };
    warn!(target: "tollgate", domain, keys, action, "no rule applies to a request; further ones are not logged until the next load");
}

pub(super) fn rules_lost(domain: &str) {
    warn!(
        target: "tollgate",
        domain,
        "no rule is left that the requests of the domain matched, so they have no limits now: compare the keys of the rules \
         with those of the requests"
    );
}

#[cfg(feature = "watch")]
pub(super) fn source_fails(error: &dyn Display) {
    warn!(target: "tollgate", %error, "the source of rules fails; the rules stay in force");
}

#[cfg(feature = "watch")]
pub(super) fn source_works() {
    info!(target: "tollgate", "the source of rules works again");
}

/// The circuit breaker closed.
#[cfg(feature = "redis")]
pub(crate) fn server_works(of: &LimiterServer<'_>) {
    let &LimiterServer { limiter, server, address, failing, .. } = of;
    let failed_ms = millis(failing);
    info!(target: "tollgate", limiter, server, address, failed_ms, "the server answers again, and decides");
}

/// The circuit breaker opened, also `again` after a probe. Only the first event of an outage is a warning.
#[cfg(feature = "redis")]
pub(crate) fn server_fails(
    of: &LimiterServer<'_>,
    pause: Duration,
    again: bool,
    error: Option<&dyn Display>,
) {
    let &LimiterServer { limiter, server, address, on_failure, failing } = of;
    macro_rules! event {
        ($level:ident, $message:literal) => {
            tracing::event!(
                target: "tollgate",
                tracing::Level::$level,
                limiter,
                server,
                address,
                on_failure,
                failing_ms = millis(failing),
                pause_ms = millis(pause),
                error = error.map(tracing::field::display),
                $message
            )
        };
    }
    match again {
        false => event!(WARN, "the server cannot be used: on_failure decides until it answers"),
        true => event!(DEBUG, "the server still cannot be used"),
    }
}

#[cfg(feature = "redis")]
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(feature = "redis")]
pub(crate) fn server_evicts(policy: &str) {
    warn!(
        target: "tollgate",
        policy,
        "when its memory is full, the server evicts keys and with them the state of limits: set maxmemory-policy noeviction"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn credentials_refused(error: &dyn Display) {
    warn!(target: "tollgate", %error, "the server did not accept new credentials; open connections stay in use");
}

#[cfg(all(feature = "redis", feature = "rules"))]
pub(crate) fn subscription_refused(channel: &str) {
    info!(target: "tollgate", channel, "no permission to subscribe; the rules are only polled");
}
