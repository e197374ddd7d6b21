//! Stands in for `trace` without the feature `tracing`: the same names, without effect.

use std::time::Duration;

use super::denial::{Denial, Level};

pub(super) const ENABLED: bool = false;

#[inline]
pub(super) fn denied(
    _level: Level,
    _denial: &Denial<'_>,
    _key: Option<&str>,
    _retry_after: impl Fn() -> Option<Duration>,
) {
}
