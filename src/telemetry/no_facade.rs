//! Stands in for `facade` without the feature `metrics`: the same names, without effect.

use super::event::Event;
use crate::base::clock::Timestamp;

#[derive(Clone)]
pub(super) struct RuleHandles;

impl RuleHandles {
    pub(super) const fn register(_domain: &str, _rule: &str) -> Self {
        Self
    }

    #[inline]
    pub(super) const fn record(&self, _event: Event, _hits: u64) {}
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
