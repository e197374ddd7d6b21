//! Counts requests without a key.

use std::fmt;

use crate::base::sync::AtomicU64;
use crate::base::sync::Ordering::Relaxed;
use crate::edge::telemetry::KeylessHandles;

/// The number of requests without a key since their layer was created, by outcome.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct WithoutKey {
    /// Denied: [`Missing::Deny`](super::Missing::Deny), or an [ambiguous](super::KeyExtractor::is_ambiguous) key.
    pub refused: u64,
    /// Admitted without counting: [`Missing::Allow`](super::Missing::Allow).
    pub allowed: u64,
    /// Limited together: [`Missing::Shared`](super::Missing::Shared).
    pub shared: u64,
}

/// The outcome of a request without a key.
#[derive(Copy, Clone)]
pub(super) enum KeylessOutcome {
    Refused,
    Allowed,
    Shared,
}

/// Counts the outcomes, and reports them to the `metrics` facade.
pub(super) struct Unknown {
    /// In the order of [`KeylessOutcome`].
    counts: [AtomicU64; 3],
    handles: KeylessHandles,
}

impl Default for Unknown {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            handles: KeylessHandles::register(["refused", "allowed", "shared"]),
        }
    }
}

impl Unknown {
    pub(super) fn record(&self, outcome: KeylessOutcome) {
        // Ordering: Relaxed, here and below. The counters publish no other data.
        self.counts[outcome as usize].fetch_add(1, Relaxed);
        self.handles.record(outcome as usize);
    }

    pub(super) fn counts(&self) -> WithoutKey {
        let [refused, allowed, shared] = [0, 1, 2].map(|outcome: usize| self.counts[outcome].load(Relaxed));
        WithoutKey { refused, allowed, shared }
    }
}

impl fmt::Debug for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts().fmt(f)
    }
}
