//! Counts requests in which a layer found no key.

use std::fmt;

use super::facade::KeylessHandles;
use crate::base::sync::AtomicU64;
use crate::base::sync::Ordering::Relaxed;

/// Counts requests by three outcomes, and reports them to the `metrics` facade.
pub struct KeylessCounts {
    counts: [AtomicU64; 3],
    handles: KeylessHandles,
}

impl KeylessCounts {
    /// Creates the counters of outcomes with these labels.
    pub fn register(outcomes: [&'static str; 3]) -> Self {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Self { counts, handles: KeylessHandles::register(outcomes) }
    }

    /// Counts a request. `outcome` is the position of its outcome in [`KeylessCounts::register`].
    pub fn record(&self, outcome: usize) {
        // Ordering: Relaxed, here and below. The counters publish no other data.
        self.counts[outcome].fetch_add(1, Relaxed);
        self.handles.record(outcome);
    }

    /// Returns the number of requests with each outcome.
    pub fn counts(&self) -> [u64; 3] {
        [0, 1, 2].map(|outcome: usize| self.counts[outcome].load(Relaxed))
    }
}

impl fmt::Debug for KeylessCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts().fmt(f)
    }
}
