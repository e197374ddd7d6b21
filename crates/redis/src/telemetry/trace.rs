//! The events of the `tracing` facade. All have the target `tollgate`.
//!
//! Only this module names the crate `tracing`. Without the feature, `no_trace` stands in for it.

use std::fmt::Display;
use std::time::Duration;

use tracing::{info, warn};

use super::LimiterServer;

/// The circuit breaker closed.
pub(crate) fn server_works(of: &LimiterServer<'_>) {
    let &LimiterServer { limiter, server, address, failing, .. } = of;
    let failed_ms = millis(failing);
    info!(target: "tollgate", limiter, server, address, failed_ms, "the server answers again, and decides");
}

/// The circuit breaker opened, also `again` after a probe. Only the first event of an outage is a warning.
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

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn server_evicts(policy: &str) {
    warn!(
        target: "tollgate",
        policy,
        "when its memory is full, the server evicts keys and with them the state of limits: set maxmemory-policy noeviction"
    );
}

pub(crate) fn credentials_refused(error: &dyn Display) {
    warn!(target: "tollgate", %error, "the server did not accept new credentials; open connections stay in use");
}

#[cfg(feature = "rules")]
pub(crate) fn subscription_refused(channel: &str) {
    info!(target: "tollgate", channel, "no permission to subscribe; the rules are only polled");
}
