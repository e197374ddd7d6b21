//! The arithmetic of waits, for the figures of a decision.

/// Returns the value, at most `u64::MAX`.
pub(super) const fn saturate(value: u128) -> u64 {
    if value > u64::MAX as u128 {
        u64::MAX
    } else {
        #[expect(clippy::cast_possible_truncation, reason = "compared with the maximum just above")]
        let value = value as u64;
        value
    }
}

/// Returns the time until there is room. A queue can have room and still deny, because the wait would be too long; the
/// result is then the time until there is no wait.
pub(super) const fn in_queue(full: u64, ahead: u64, queued: bool) -> u64 {
    if queued && full == 0 { ahead } else { full }
}

/// Returns the time until batches of `batch` units have returned `missing` units.
pub(super) fn boundaries(missing: u128, batch: u64, first_ns: u64, period_ns: u64) -> u64 {
    match missing.div_ceil(u128::from(batch)) {
        0 => 0,
        count => {
            saturate(u128::from(first_ns).saturating_add((count - 1).saturating_mul(u128::from(period_ns))))
        }
    }
}

/// Returns the most time that may be left in a window while the weighted count of the previous window is at most
/// `room`. Returns `None` if the window must end first.
pub(super) fn most_left(previous: u64, room: u64, window_ns: u64, ceil: bool) -> Option<u64> {
    if previous == 0 {
        return Some(window_ns);
    }
    // Rounded down: floor(p·left/W) <= room  <=>  p·left < (room + 1)·W.  Rounded up: p·left <= room·W.
    let (room, window) = (u128::from(room), u128::from(window_ns));
    let left = if ceil {
        room * window / u128::from(previous)
    } else {
        ((room + 1) * window).div_ceil(u128::from(previous)) - 1
    };
    // With no time left, the window has ended, so this count no longer has a weight.
    (left > 0).then(|| saturate(left).min(window_ns))
}
