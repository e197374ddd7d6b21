//! A count of what happened.

use crate::base::sync::{AtomicU64, Ordering};

/// A count that publishes nothing: exact, and read at any time.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        // As a rule nothing that threads share is written for nothing.
        if more > 0 {
            // Ordering: Relaxed, here and below. A tally.
            self.0.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
