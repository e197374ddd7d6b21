//! The offset of the server's clock from the local clock, as two bounds.
//!
//! The server decides after the call is sent and before the answer arrives. So each answer bounds the offset from both
//! sides, and many answers together bound it to less than a round trip. Because clocks drift, each bound widens by 200
//! µs a second until the next answer.

use tollgate::internals::sync::{AtomicU64, Mutex, Ordering};

/// The drift of two machines' clocks is less than one part in this number: 200 µs a second.
const DRIFT: u64 = 5_000;
/// Server times are whole microseconds, rounded down.
const MICRO: i64 = 1_000;

/// The bounds of the offset; see the module docs.
#[derive(Debug, Default)]
pub(super) struct ClockOffset {
    /// The bounds of the offset in nanoseconds, as bits of an `i64`. Both are 0 until the first answer: the clocks are
    /// assumed to agree.
    lo: AtomicU64,
    hi: AtomicU64,
    /// The local time of the last update; 0 before the first answer.
    at_ns: AtomicU64,
    /// Serializes updates.
    learns: Mutex<()>,
}

impl ClockOffset {
    /// Learns from an answer. The call was sent and received at these local times, and decided at this server time.
    pub(super) fn learn(&self, server_us: u64, sent_ns: u64, received_ns: u64) {
        let Ok(_one) = self.learns.lock() else { return };
        let server = signed(server_us.saturating_mul(1_000));
        let mut lo = server.saturating_sub(signed(received_ns));
        let mut hi = server.saturating_add(MICRO).saturating_sub(signed(sent_ns.min(received_ns)));
        if let Some((known_lo, known_hi)) = self.bounds(received_ns) {
            // If the old and new bounds do not overlap, a clock was stepped.
            if known_lo <= hi && lo <= known_hi {
                (lo, hi) = (lo.max(known_lo), hi.min(known_hi));
            }
        }
        // Ordering: Relaxed. Each bound is valid by itself; `at_ns` publishes both.
        self.lo.store(lo.cast_unsigned(), Ordering::Relaxed);
        self.hi.store(hi.cast_unsigned(), Ordering::Relaxed);
        // Ordering: Release, and Acquire in `bounds`: a reader of this time sees its bounds or later ones. A reader of
        // an older time with newer bounds widens them too much, which is safe.
        self.at_ns.store(received_ns.max(1), Ordering::Release);
    }

    /// The bounds at this time, if any are known.
    fn bounds(&self, now_ns: u64) -> Option<(i64, i64)> {
        // Ordering: see `learn`.
        let at_ns = self.at_ns.load(Ordering::Acquire);
        let (lo, hi) = (self.lo.load(Ordering::Relaxed), self.hi.load(Ordering::Relaxed));
        let drift = signed(now_ns.abs_diff(at_ns) / DRIFT);
        (at_ns > 0).then(|| (lo.cast_signed().saturating_sub(drift), hi.cast_signed().saturating_add(drift)))
    }

    /// The bounds at this time, at most a quarter of a period apart. A window shorter than a round trip cannot have
    /// more precise ends.
    pub(super) fn within(&self, period_ns: u64, now_ns: u64) -> OffsetBounds {
        let (lo, hi) = self.bounds(now_ns).unwrap_or((0, 0));
        let most = signed(period_ns / 4);
        let width = hi.saturating_sub(lo);
        if width <= most {
            return OffsetBounds { lo, hi: hi.max(lo) };
        }
        let lo = lo.saturating_add((width - most) / 2);
        OffsetBounds { lo, hi: lo.saturating_add(most) }
    }
}

/// Bounds of the server's clock minus the local clock, in nanoseconds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct OffsetBounds {
    lo: i64,
    hi: i64,
}

/// The earliest and the latest time that a clock may show.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct ClockRange {
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
}

impl OffsetBounds {
    /// When it is now by the server's clock.
    pub(super) fn server(self, now_ns: u64) -> ClockRange {
        let by = |offset: i64| now_ns.saturating_add_signed(offset);
        ClockRange { first_ns: by(self.lo), last_ns: by(self.hi) }
    }

    /// The local time at which the server's clock shows `server_ns`.
    pub(super) fn local(self, server_ns: u64) -> ClockRange {
        let by = |offset: i64| server_ns.saturating_add_signed(offset.saturating_neg());
        ClockRange { first_ns: by(self.hi), last_ns: by(self.lo) }
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    const PERIOD: u64 = 60_000_000_000;

    #[test]
    fn answers_bound_the_offset_from_both_sides() {
        let offset = ClockOffset::default();
        assert_eq!(offset.within(PERIOD, PERIOD), OffsetBounds { lo: 0, hi: 0 });
        // The server is 5 µs ahead; its clock shows 105 µs at the local 100.
        offset.learn(105, 90_000, 130_000);
        let bounds = offset.within(PERIOD, 130_000);
        assert_eq!(bounds, OffsetBounds { lo: -25_000, hi: 16_000 });
        offset.learn(205, 199_000, 220_000);
        let bounds = offset.within(PERIOD, 220_000);
        assert!(bounds.lo <= 5_000 && 5_000 <= bounds.hi && bounds.hi - bounds.lo <= 22_100, "{bounds:?}");
        assert_eq!(bounds.local(1_000_000).first_ns, 1_000_000 - 7_000);
        let ClockRange { first_ns, last_ns } = bounds.server(300_000);
        assert!(first_ns <= 305_000 && 305_000 <= last_ns);
    }

    #[test]
    fn stepped_clock_replaces_old_bounds() {
        let offset = ClockOffset::default();
        offset.learn(1_000, 1_000_000, 1_000_000);
        offset.learn(9_000, 2_000_000, 2_000_000);
        assert_eq!(offset.within(PERIOD, 2_000_000), OffsetBounds { lo: 7_000_000, hi: 7_001_000 });
    }

    #[test]
    fn offset_bounds_are_at_most_a_quarter_period() {
        let offset = ClockOffset::default();
        offset.learn(0, 0, 4_000_000);
        assert_eq!(offset.within(4_000, 4_000_000), OffsetBounds { lo: -2_000_000, hi: -1_999_000 });
    }

    #[test]
    fn bounds_widen_until_the_next_answer() {
        let offset = ClockOffset::default();
        offset.learn(1_000, 1_000_000, 1_000_000);
        let hour = 1_000_000 + 3_600_000_000_000;
        assert_eq!(offset.within(PERIOD, hour), OffsetBounds { lo: -720_000_000, hi: 720_001_000 });
        offset.learn(hour / 1_000, hour, hour);
        assert_eq!(offset.within(PERIOD, hour), OffsetBounds { lo: 0, hi: 1_000 });
    }
}
