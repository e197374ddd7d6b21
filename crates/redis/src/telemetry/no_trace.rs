//! Stands in for `trace` without the feature `tracing`: the same names, without effect.

use std::fmt::Display;
use std::time::Duration;

use super::LimiterServer;

pub(crate) fn server_works(_of: &LimiterServer<'_>) {}
pub(crate) fn server_fails(
    _of: &LimiterServer<'_>,
    _pause: Duration,
    _again: bool,
    _error: Option<&dyn Display>,
) {
}
pub(crate) fn server_evicts(_policy: &str) {}
pub(crate) fn credentials_refused(_error: &dyn Display) {}
#[cfg(feature = "rules")]
pub(crate) fn subscription_refused(_channel: &str) {}
