//! Limits of all algorithms, chosen at run time.

use std::time::Duration;

use tollgate::{
    Block, Blocked, FixedWindow, Gcra, LeakyBucketMeter, LeakyBucketQueue, Limit, MinimumSpacing, Quota,
    SlidingLog, SlidingWindow, SubWindow, Timestamp, TokenBucket,
};

/// Limits of all algorithms. Units of the first ten can be held.
pub fn all_kinds(quota: Quota) -> [Limit; 13] {
    let (at, in_parts) = (Timestamp::from_nanos(7_003_000_000), SubWindow::new(quota, 5));
    [
        Limit::gcra(quota),
        Limit::fixed_window(quota),
        Limit::sliding_window(quota),
        Limit::sliding_window(quota).strict(),
        in_parts.into(),
        in_parts.strict().into(),
        SlidingLog::new(quota).into(),
        FixedWindow::from_first_use(quota).into(),
        TokenBucket::interval(quota).into(),
        TokenBucket::aligned(quota, at).into(),
        LeakyBucketQueue::new(quota).into(),
        MinimumSpacing::new(quota.period() / 4).into(),
        TokenBucket::aligned_adaptive(quota, at).into(),
    ]
}

/// Returns a limit by the number of its algorithm, with these parameters.
pub fn made(kind: u8, quota: Quota, parts: u32, at_us: u64) -> Limit {
    let at = Timestamp::from_nanos(at_us * 1_000);
    let few = quota.limit() % 31 + 1;
    // Most of these intervals are not whole numbers of microseconds.
    let odd = |of: fn(u64) -> Quota| of(few).burst(quota.burst_size());
    let in_parts = SubWindow::new(Quota::new(quota.limit(), quota.period() * parts), parts);
    match kind {
        0 | 1 => SlidingLog::new(quota).into(),
        2 => in_parts.into(),
        3 => in_parts.strict().into(),
        4 => MinimumSpacing::new(quota.period()).into(),
        5 => FixedWindow::from_first_use(quota).into(),
        6 => TokenBucket::interval(quota).into(),
        7 => TokenBucket::aligned(quota, at).into(),
        8 => TokenBucket::aligned_adaptive(quota, at).into(),
        9 => LeakyBucketQueue::new(odd(Quota::per_second)).into(),
        10 => TokenBucket::new(odd(Quota::per_minute)).into(),
        // The model of this process rounds intervals that are no multiple of a quarter of a nanosecond.
        12 => {
            let first = Duration::from_micros(1 + at_us % 3_000_000);
            let block = Block::of(first).at_most(first * u32::from(parts != 1) * parts + first);
            Blocked::new(Quota::new(1, quota.period()).burst(quota.burst_size()), block).into()
        }
        13 => Gcra::new(odd(Quota::per_hour)).into(),
        14 => FixedWindow::new(quota).into(),
        15 if parts == 1 => SlidingWindow::new(quota).strict().into(),
        15 => SlidingWindow::new(quota).into(),
        _ => LeakyBucketMeter::new(odd(Quota::per_hour)).into(),
    }
}
