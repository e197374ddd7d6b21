//! The counter that decides a rule in one request.

use std::time::Duration;

use crate::edge::rules::engine::state::{ActiveRule, Counter, LocalCounter, ProgressCounter, SharedCounter};
use crate::edge::rules::rule::Charging;

/// The counter of a rule in one request.
#[derive(Copy, Clone, Debug)]
pub(in crate::edge::rules::engine) enum CountedBy<'r> {
    /// No counter: there is no limit.
    Nothing,
    /// No counter: the limit is 0.
    Blocked(Duration),
    Local {
        counter: &'r LocalCounter,
        /// The number of units that must stay free in the store.
        headroom: u64,
    },
    Shared(&'r SharedCounter),
    /// The book of the holds.
    Book(&'r ProgressCounter),
}

impl<'r> CountedBy<'r> {
    /// `own` is the limit that the request sets.
    #[inline]
    pub(super) fn of(active: &'r ActiveRule, own: Option<u32>, charging: Charging) -> Self {
        match (&active.counter, own) {
            // A limit of 0 denies without counting, unless requests are counted first.
            (Counter::Local(_), Some(0)) if charging == Charging::AllOrNothing => {
                Self::Blocked(active.window)
            }
            (Counter::Local(counter), own) => {
                let headroom =
                    own.map_or(counter.headroom, |own| active.quota.saturating_sub(u64::from(own)));
                Self::Local { counter, headroom }
            }
            (Counter::Shared(shared), _) => Self::Shared(shared),
            (Counter::InProgress(counter), _) => Self::Book(counter),
            (Counter::Unlimited(_), _) => Self::Nothing,
            (Counter::Blocked { period, .. }, _) => Self::Blocked(*period),
        }
    }

    /// Whether a charge can be refunded.
    #[inline]
    pub(super) fn can_refund(self) -> bool {
        match self {
            Self::Local { counter, .. } => counter.can_refund,
            Self::Shared(shared) => shared.limiter.can_refund(),
            Self::Book(_) => true,
            Self::Nothing | Self::Blocked(_) => false,
        }
    }

    #[inline]
    pub(in crate::edge::rules::engine) const fn is_shared(self) -> bool {
        matches!(self, Self::Shared(_))
    }
}
