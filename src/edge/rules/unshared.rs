//! Rules that processes share, in a program that was built without Redis: there are none.

use super::chosen::NoStore;
use super::error::Unmade;
use super::spec::{Algorithm, Shared};
use crate::base::decision::Decision;
use crate::base::quota::Quota;
use crate::edge::telemetry::{Event, Reading};

/// Who decided, of a rule that processes share; nobody.
#[derive(Copy, Clone, Debug)]
pub(super) struct By;

/// What a shared limiter says; none does.
pub(super) type Said = (Decision, By);

impl By {
    pub(super) const fn knows_remaining(self) -> bool {
        false
    }

    #[cfg(feature = "tower")]
    pub(super) const fn is_undecided(self) -> bool {
        false
    }

    pub(super) const fn event(self) -> Option<Event> {
        None
    }
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
        _succeeds: bool,
    ) -> Result<SharedLimiter, Unmade> {
        Err(Unmade::Store(NoStore::Algorithm))
    }
}

/// There is none.
#[derive(Debug)]
pub(super) enum SharedLimiter {}

impl SharedLimiter {
    pub(super) const fn check(&self, _key: &str, _cost: u64) -> Said {
        match *self {}
    }

    pub(super) const fn look(&self, _key: &str, _cost: u64) -> Option<Said> {
        match *self {}
    }

    pub(super) const fn refund(&self, _key: &str, _charge: &Decision, _by: Option<By>) {
        match *self {}
    }

    pub(super) const fn undoes(&self) -> bool {
        match *self {}
    }

    pub(super) const fn readings(&self) -> Vec<Reading> {
        match *self {}
    }
}
