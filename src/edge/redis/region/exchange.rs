//! When exchanges are due, and which pairs of regions are cut off.

use crate::base::sync::{AtomicU64, Ordering};

/// A region is cut off if it has not answered for this many exchange intervals.
const SILENT_INTERVALS: u64 = 3;

/// Returns the time to the next exchange of a key: the interval, 10 % more or less. So the exchanges of many keys do
/// not happen at the same time. `random` is any number.
pub(crate) fn pause(interval: u64, random: u64) -> u64 {
    let spread = interval / 5;
    let more = u64::try_from((u128::from(random) * u128::from(spread)) >> 64).unwrap_or(spread);
    interval - interval / 10 + more
}

/// What a process knows of its way to another region.
#[derive(Debug, Default)]
pub(crate) struct RegionLink {
    /// The time of the first call since the last answer. 0 if there is none.
    waiting_since_ns: AtomicU64,
    /// The time of the last answer. 0 if there is none.
    answered_ns: AtomicU64,
}

impl RegionLink {
    /// Records that a call was sent.
    pub(crate) fn sent(&self, now_ns: u64) {
        // Ordering: Relaxed, here and below. The values are only reported, and publish no other memory.
        let _ =
            self.waiting_since_ns.compare_exchange(0, now_ns.max(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Records that a call was answered.
    pub(crate) fn answered(&self, now_ns: u64) {
        self.answered_ns.store(now_ns.max(1), Ordering::Relaxed);
        self.waiting_since_ns.store(0, Ordering::Relaxed);
    }

    /// Returns whether calls have not been answered for three exchange intervals. If no key is exchanged, no call is
    /// sent, and the value does not change.
    pub(crate) fn is_cut_off(&self, interval_ns: u64, now_ns: u64) -> bool {
        let since_ns = self.waiting_since_ns.load(Ordering::Relaxed);
        since_ns > 0 && now_ns.saturating_sub(since_ns) >= interval_ns.saturating_mul(SILENT_INTERVALS)
    }

    /// The time since the last answer. `None` if no call was answered yet.
    pub(crate) fn age_ns(&self, now_ns: u64) -> Option<u64> {
        let answered_ns = self.answered_ns.load(Ordering::Relaxed);
        (answered_ns > 0).then(|| now_ns.saturating_sub(answered_ns))
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn pause_is_within_ten_percent() {
        assert_eq!((pause(1_000, 0), pause(1_000, u64::MAX), pause(1_000, 1 << 63)), (900, 1_099, 1_000));
        assert_eq!(pause(0, 7), 0);
    }

    #[test]
    fn silent_region_is_cut_off_after_three_intervals() {
        let link = RegionLink::default();
        assert!(!link.is_cut_off(10, 1_000), "no call was sent");
        link.sent(1_000);
        link.sent(1_020);
        assert_eq!((link.is_cut_off(10, 1_029), link.is_cut_off(10, 1_030)), (false, true));
        link.answered(1_040);
        assert_eq!((link.is_cut_off(10, 9_000), link.age_ns(1_050)), (false, Some(10)));
    }
}
