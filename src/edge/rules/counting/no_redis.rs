//! Stand-ins for shared rules in a program without the feature `redis`. Such a program has no shared rules.

use std::sync::Arc;

use super::{Denies, NoCounter, OperatorAct, Refusal, SharedDecision, Wait};
use crate::algorithm::Limit;
use crate::base::decision::Decision;
use crate::base::quota::QuotaError;
use crate::edge::rules::rule::Shared;
use crate::edge::telemetry::{Event, Reading};
use crate::limiter::Class;

/// Which side decided for a shared rule. This type has no values.
#[derive(Copy, Clone, Debug)]
pub(crate) struct DecidedWhere;

impl DecidedWhere {
    pub(crate) const fn knows_remaining(self) -> bool {
        false
    }

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
        _limit: Limit,
        _how: Shared,
        _counts_denials: bool,
        _succeeds: bool,
    ) -> Result<Arc<SharedLimiter>, NoCounter> {
        Err(NoCounter::NoServer)
    }
}

/// The limiter of a shared rule. This type has no values.
#[derive(Debug)]
pub(crate) enum SharedLimiter {}

impl SharedLimiter {
    pub(crate) async fn check(&self, _key: &str, _cost: u64, _denies: Denies, _wait: Wait) -> SharedDecision {
        match *self {}
    }

    pub(crate) const fn class(&self, _class: Class) -> Result<Self, QuotaError> {
        match *self {}
    }

    pub(crate) async fn peek(&self, _key: &str, _cost: u64, _wait: Wait) -> Option<SharedDecision> {
        match *self {}
    }

    pub(crate) const fn can_refund(&self) -> bool {
        match *self {}
    }

    pub(crate) async fn refund(&self, _key: &str, _charge: SharedDecision, _wait: Wait) {
        match *self {}
    }

    pub(crate) async fn count_denied(&self, _key: &str, _cost: u64, _wait: Wait) {
        match *self {}
    }

    pub(crate) async fn peek_use(&self, _key: &str, _wait: Wait) -> Option<SharedDecision> {
        match *self {}
    }

    pub(crate) async fn inspect(&self, _key: &str, _wait: Wait) -> Option<Decision> {
        match *self {}
    }

    pub(crate) async fn operate(&self, _key: &str, _verb: OperatorAct, _wait: Wait) -> Result<u64, Refusal> {
        match *self {}
    }

    pub(crate) fn readings(&self) -> Vec<Reading> {
        match *self {}
    }
}
