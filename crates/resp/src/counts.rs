//! What the endpoint counts, beside the counts of all endpoints.

use std::sync::Arc;

use tollgate_serve::endpoint::{Count, Stats};

/// The counts, which are those of the service with these names.
#[derive(Clone, Debug)]
pub struct RespCounts {
    /// Commands.
    pub commands: Arc<Count>,
    /// Commands that were answered with an error.
    pub errors: Arc<Count>,
    /// Denials by quotas that clients send.
    pub denied: Arc<Count>,
    /// Commands whose quota was not put in force.
    pub quotas_refused: Arc<Count>,
    /// Wrong passwords.
    pub wrong_passwords: Arc<Count>,
    /// Clients that were cut off because they did not take their answers.
    pub slow: Arc<Count>,
}

impl RespCounts {
    /// Registers the counts, in the order in which pages show them.
    #[rustfmt::skip]
    pub fn of(stats: &Stats) -> Self {
        Self {
            commands: stats.counter("tollgate_resp_commands_total", "Commands of Redis clients"),
            errors: stats.counter("tollgate_resp_errors_total", "Commands of Redis clients that were answered with an error"),
            denied: stats.counter("tollgate_resp_denied_total", "Denials by quotas that Redis clients send"),
            quotas_refused: stats.counter("tollgate_resp_quotas_refused_total", "Commands whose quota was not put in force"),
            wrong_passwords: stats.counter("tollgate_resp_wrong_passwords_total", "Wrong passwords of Redis clients"),
            slow: stats.counter("tollgate_resp_slow_total", "Redis clients cut off because they did not take their answers"),
        }
    }
}
