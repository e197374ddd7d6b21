//! Stands in for `facade` without the feature `metrics`: the same names, without effect.

use super::event::Event;
use crate::base::clock::Timestamp;

pub(super) struct RuleHandles;

impl RuleHandles {
    pub(super) const fn register(_domain: &str, _rule: &str) -> Self {
        Self
    }

    #[inline]
    pub(super) const fn record(&self, _event: Event, _hits: u64) {}
}

#[derive(Default)]
pub(super) struct ReloadHandles;

impl ReloadHandles {
    pub(super) const fn loaded(&self, _rules: u32, _config_hash: u64, _unix_seconds: f64) {}
    pub(super) const fn failed(&self) {}
    pub(super) const fn unknown_domain(&self) {}
    pub(super) const fn removed_domain(&self) {}
    #[cfg(feature = "watch")]
    pub(super) const fn version(&self, _version: u64, _unix_seconds: f64) {}
    #[cfg(feature = "watch")]
    pub(super) const fn polled(&self, _answer_unix_seconds: f64, _fails: bool) {}
}

pub(super) struct SampleTimer;

impl SampleTimer {
    pub(super) const fn register(_domain: &str, _every: u32) -> Self {
        Self
    }

    #[inline]
    pub(super) const fn start(&self) -> Option<Timestamp> {
        None
    }

    #[inline]
    pub(super) const fn stop(&self, _start: Option<Timestamp>) {}
}

pub(super) struct KeylessHandles;

impl KeylessHandles {
    pub(super) const fn register(_outcomes: [&'static str; 3]) -> Self {
        Self
    }

    pub(super) const fn record(&self, _outcome: usize) {}
}

#[cfg(feature = "redis")]
pub(crate) const fn count_refused_credentials() {}

#[cfg(feature = "redis")]
pub(crate) struct SharedHandles;

#[cfg(feature = "redis")]
impl SharedHandles {
    pub(crate) const fn register(_limiter: &str, _server: Option<&str>, _kinds: &[&'static str]) -> Self {
        Self
    }

    pub(crate) const fn took(&self, _duration: std::time::Duration) {}
    pub(crate) const fn error(&self, _kind: usize) {}
    pub(crate) const fn decided(&self, _event: Event) {}
}
