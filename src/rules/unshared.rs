//! Rules that processes share, in a program that was built without Redis: there are none.

use super::spec::{Algorithm, Shared};
use crate::decision::Decision;
use crate::quota::Quota;
use crate::store::chosen::NoStore;
use crate::telemetry::{Event, Reading};

/// Who decided, of a rule that processes share.
#[derive(Copy, Clone, Debug)]
pub(super) struct DecidedBy;
/// What a shared limiter says; none does.
pub(super) type Said = (Decision, DecidedBy);

pub(super) const fn is_failure(_by: DecidedBy) -> bool {
    false
}

#[cfg(feature = "tower")]
pub(super) const fn is_undecided(_by: DecidedBy) -> bool {
    false
}

pub(super) const fn event(_by: DecidedBy) -> Option<Event> {
    None
}

/// Whether rules are counted in this process that other processes would share.
#[derive(Clone, Debug, Default)]
pub(super) struct Servers {
    alone: bool,
}

impl Servers {
    pub(super) fn set_alone(&mut self, alone: bool) {
        self.alone = alone;
    }

    pub(super) const fn alone(&self) -> bool {
        self.alone
    }

    pub(super) const fn knows_how(&self) -> bool {
        self.alone
    }

    /// Not called: such rules are refused before.
    pub(super) const fn limiter(
        &self,
        _name: &str,
        _quota: Quota,
        _algorithm: Algorithm,
        _how: Shared,
    ) -> Result<SharedLimiter, NoStore> {
        Err(NoStore::Algorithm)
    }
}

/// There is none.
#[derive(Debug)]
pub(super) enum SharedLimiter {}

impl SharedLimiter {
    pub(super) const fn check(&self, _key: &str, _cost: u64) -> Said {
        match *self {}
    }

    pub(super) const fn refund(&self, _key: &str, _charge: &Decision, _by: Option<DecidedBy>) {
        match *self {}
    }

    pub(super) const fn readings(&self) -> Vec<Reading> {
        match *self {}
    }
}
