//! A clock for models.

use super::{Clock, Timestamp};
use crate::base::sync::{AtomicU64, Ordering};

/// A clock that shows what the threads make of it. Each reading is a step that other threads can come before or after.
#[derive(Debug)]
pub(crate) struct SharedTime(AtomicU64);

impl SharedTime {
    pub(crate) fn new(secs: u64) -> Self {
        Self(AtomicU64::new(secs))
    }

    pub(crate) fn advance(&self, secs: u64) {
        self.secs(secs);
    }

    /// Ordering: AcqRel, and a read-modify-write: no thread reads an older time than another thread has seen.
    fn secs(&self, more: u64) -> u64 {
        self.0.fetch_add(more, Ordering::AcqRel)
    }
}

impl Clock for SharedTime {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(self.secs(0))
    }
}
