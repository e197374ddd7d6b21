//! Stands in for `trace` without the feature `tracing`: the same names, without effect.

use std::fmt::Display;
use std::time::Duration;

#[cfg(feature = "redis")]
use super::LimiterServer;
use super::denial::{Denial, Level};

#[cfg(feature = "rules")]
pub(super) const ENABLED: bool = false;

#[inline]
pub(super) fn denied(
    _level: Level,
    _denial: &Denial<'_>,
    _key: Option<&str>,
    _retry_after: impl Fn() -> Option<Duration>,
) {
}
pub(super) fn rules_loaded(_rules: u32, _config_hash: u64) {}
pub(super) fn rules_rejected(_error: &dyn Display) {}
pub(super) fn domain_removed(_domain: &str) {}
#[cfg(feature = "rules")]
pub(crate) fn request_without_rule(_domain: &str, _keys: &str, _is_denied: bool) {}
pub(super) fn rules_lost(_domain: &str) {}
#[cfg(feature = "watch")]
pub(super) fn source_fails(_error: &dyn Display) {}
#[cfg(feature = "watch")]
pub(super) fn source_works() {}
#[cfg(feature = "redis")]
pub(crate) fn server_works(_of: &LimiterServer<'_>) {}
#[cfg(feature = "redis")]
pub(crate) fn server_fails(
    _of: &LimiterServer<'_>,
    _pause: Duration,
    _again: bool,
    _error: Option<&dyn Display>,
) {
}
#[cfg(feature = "redis")]
pub(crate) fn server_evicts(_policy: &str) {}
#[cfg(feature = "redis")]
pub(crate) fn credentials_refused(_error: &dyn Display) {}
#[cfg(all(feature = "redis", feature = "rules"))]
pub(crate) fn subscription_refused(_channel: &str) {}
