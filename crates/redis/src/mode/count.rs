//! A counter of events.

use tollgate::internals::sync::{AtomicU64, Ordering};

/// An exact counter that can be read at any time. It publishes no other memory.

#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        // Avoids a write to shared memory if there is nothing to add.
        if more > 0 {
            // Ordering: Relaxed, here and below. The counter publishes no other memory.
            self.0.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
