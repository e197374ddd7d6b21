//! Stands in for `trace` without the feature `tracing`: the same names, without effect.

use std::fmt::Display;

pub(super) fn rules_loaded(_rules: u32, _config_hash: u64) {}
pub(super) fn rules_rejected(_error: &dyn Display) {}
pub(super) fn rules_warned(_warning: &dyn Display) {}
pub(super) fn domain_removed(_domain: &str) {}
pub(crate) fn request_without_rule(_domain: &str, _keys: &str, _is_denied: bool) {}
pub(super) fn rules_lost(_domain: &str) {}
#[cfg(feature = "watch")]
pub(super) fn source_fails(_error: &dyn Display) {}
#[cfg(feature = "watch")]
pub(super) fn source_works() {}
