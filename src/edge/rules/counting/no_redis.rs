//! Stand-ins for shared rules in a program without the feature `redis`. Such a program has no shared rules.

use std::sync::Arc;

use super::{NoCounter, SharedLimiter};
use crate::algorithm::Limit;
use crate::edge::rules::rule::Shared;
use crate::edge::telemetry::Event;

/// Which side decided for a shared rule. This type has no values.
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
        _limit: Limit,
        _how: Shared,
        _counts_denials: bool,
        _succeeds: bool,
    ) -> Result<Arc<dyn SharedLimiter>, NoCounter> {
        Err(NoCounter::NoServer)
    }
}
