//! Counts requests without a key.

use tollgate::internals::KeylessCounts;

/// The number of requests without a key since their layer was created, by outcome.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct WithoutKey {
    /// Denied: [`Missing::Deny`](crate::Missing::Deny), or an [ambiguous](crate::KeyExtractor::is_ambiguous) key.
    pub refused: u64,
    /// Admitted without counting: [`Missing::Allow`](crate::Missing::Allow).
    pub allowed: u64,
    /// Limited together: [`Missing::Shared`](crate::Missing::Shared).
    pub shared: u64,
}

/// The outcome of a request without a key.
#[derive(Copy, Clone)]
pub(crate) enum KeylessOutcome {
    Refused,
    Allowed,
    Shared,
}

/// Counts the outcomes, and reports them to the `metrics` facade.
#[derive(Debug)]
pub(crate) struct Unknown {
    /// In the order of [`KeylessOutcome`].
    counts: KeylessCounts,
}

impl Default for Unknown {
    fn default() -> Self {
        Self { counts: KeylessCounts::register(["refused", "allowed", "shared"]) }
    }
}

impl Unknown {
    pub(crate) fn record(&self, outcome: KeylessOutcome) {
        self.counts.record(outcome as usize);
    }

    pub(crate) fn counts(&self) -> WithoutKey {
        let [refused, allowed, shared] = self.counts.counts();
        WithoutKey { refused, allowed, shared }
    }
}
