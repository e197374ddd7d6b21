//! From memory or traffic to the sizes of doorkeeper and counters.

use crate::quota::{QuotaError, Reason};
use crate::sketch::window::{Counters, Seen, Windows};
use crate::store::Capacity;

/// What a capacity comes to, in bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Sizes {
    pub(super) seen: usize,
    pub(super) counters: usize,
}

impl Sizes {
    pub(super) fn new(capacity: Capacity, limit: u64, windows: &Windows) -> Result<Self, QuotaError> {
        let _ = (limit, windows);
        let bytes = capacity.bytes().ok_or(Reason::SpillRange)?;
        let share: f64 = std::env::var("SHARE").ok().and_then(|s| s.parse().ok()).unwrap_or(0.25);
        let seen = ((bytes as f64 * share) as usize).max(Seen::LEAST_BYTES);
        Ok(Self { seen, counters: bytes.saturating_sub(seen).max(Counters::LEAST_BYTES) })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.seen as u64 + self.counters as u64
    }
}
