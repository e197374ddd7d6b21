//! Clocks for models.

use super::{Clock, Timestamp};
use crate::base::sync::{AtomicU64, Ordering};

/// A clock that shows what the threads make of it. Each reading is a step that other threads can come before or after.
#[derive(Debug)]
pub struct SharedTime(AtomicU64);

impl SharedTime {
    /// Creates a clock that shows these seconds.
    pub fn new(secs: u64) -> Self {
        Self(AtomicU64::new(secs))
    }

    /// Moves the clock on.
    pub fn advance(&self, secs: u64) {
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

/// A clock that always shows the same time, in nanoseconds.
pub(crate) struct Still(pub(crate) u64);

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0)
    }
}

/// A clock that threads set, in nanoseconds. Each reading is a step of the model.
pub(crate) struct Running(AtomicU64);

impl Running {
    pub(crate) fn new(now_ns: u64) -> Self {
        Self(AtomicU64::new(now_ns))
    }

    pub(crate) fn set(&self, now_ns: u64) {
        self.0.store(now_ns, Ordering::Release);
    }
}

impl Clock for Running {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::Acquire))
    }
}
