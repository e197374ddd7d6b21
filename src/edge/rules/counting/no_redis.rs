//! Rules that processes share, in a program without the feature `redis`: there are none.

use super::{NoCounter, SharedDecision};
use crate::base::decision::Decision;
use crate::base::quota::Quota;
use crate::edge::rules::rule::{Algorithm, Shared};
use crate::edge::telemetry::{Event, Reading};

/// Who decided for a shared rule: nobody.
#[derive(Copy, Clone, Debug)]
pub(crate) struct DecidedWhere;

impl DecidedWhere {
    pub(crate) const fn knows_remaining(self) -> bool {
        false
    }

    #[cfg(feature = "tower")]
    pub(crate) const fn is_undecided(self) -> bool {
        false
    }

    pub(crate) const fn event(self) -> Option<Event> {
        None
    }
}

/// Whether this process counts shared rules alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Servers {
    pub(crate) alone: bool,
}

impl Servers {
    pub(crate) const fn limiter(
        &self,
        _name: &str,
        _quota: Quota,
        _algorithm: Algorithm,
        _how: Shared,
        _succeeds: bool,
    ) -> Result<SharedLimiter, NoCounter> {
        Err(NoCounter::NoServer)
    }
}

/// There is none.
#[derive(Debug)]
pub(crate) enum SharedLimiter {}

impl SharedLimiter {
    pub(crate) const fn check(&self, _key: &str, _cost: u64) -> SharedDecision {
        match *self {}
    }

    pub(crate) const fn look(&self, _key: &str, _cost: u64) -> Option<SharedDecision> {
        match *self {}
    }

    pub(crate) const fn refund(&self, _key: &str, _charge: &Decision, _by: DecidedWhere) {
        match *self {}
    }

    pub(crate) const fn undoes(&self) -> bool {
        match *self {}
    }

    pub(crate) const fn readings(&self) -> Vec<Reading> {
        match *self {}
    }
}
