//! Stands in for `facade` without the feature `metrics`: the same names, without effect.

use std::time::Duration;

use tollgate::telemetry::Event;

pub(crate) const fn count_refused_credentials() {}

pub(crate) struct SharedHandles;

impl SharedHandles {
    pub(crate) const fn register(_limiter: &str, _server: Option<&str>, _kinds: &[&'static str]) -> Self {
        Self
    }

    pub(crate) const fn took(&self, _duration: Duration) {}
    pub(crate) const fn error(&self, _kind: usize) {}
    pub(crate) const fn decided(&self, _event: Event) {}
}
