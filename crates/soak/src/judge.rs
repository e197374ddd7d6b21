//! Checks the admitted units in every interval.
//!
//! A check takes effect between two clock readings, one before it and one after it. So a check that starts and ends
//! within an interval of length t took effect in it. The sum of such checks is at most the amount that the algorithm
//! admits in t. An admission may cross an end of the interval, because its thread was held up. It is not counted
//! there, so the bound needs no allowance for it.

use super::{Found, Seen, ensure};

/// The bound of an interval.
pub struct Bound<'b> {
    /// The bound by the interval's length in nanoseconds.
    pub most_in: &'b dyn Fn(u128) -> u128,
    /// An interval counts as longer by this time: a tick, or the life of a lease.
    pub more_ns: u128,
    /// Whether idle keys are forgotten. Suppose that a key was forgotten as of a time after that of a late thread.
    /// The key then starts again at the thread's time, and is ahead by the difference, each time.
    pub forgets: bool,
    /// The units that the store may have admitted above the bound, and has counted.
    pub spared: u128,
    /// The limit under test, for the report.
    pub what: String,
}

/// Up to this number of admissions of a key, every interval is checked. With more admissions, every interval of half
/// this number is checked.
const LOOKED_AT: usize = if cfg!(debug_assertions) { 120 } else { 320 };

/// Checks every interval of every key, and returns the number of intervals.
pub fn judge(seen: &mut [Seen], bound: &Bound<'_>) -> (u64, Found) {
    seen.sort_unstable_by_key(|seen| (seen.key, seen.after));
    let mut intervals = 0;
    for of_key in seen.chunk_by(|one, other| one.key == other.key) {
        let mut from = 0;
        loop {
            let part = &of_key[from..of_key.len().min(from + LOOKED_AT)];
            if let Err(story) = of_one_key(part, bound, &mut intervals) {
                return (intervals, Err(story));
            }
            if from + LOOKED_AT >= of_key.len() {
                break;
            }
            from += LOOKED_AT / 2;
        }
    }
    (intervals, Ok(()))
}

fn of_one_key(seen: &[Seen], bound: &Bound<'_>, intervals: &mut u64) -> Found {
    let longer = bound.more_ns;
    let least = (bound.most_in)(longer) + bound.spared;
    for (first, start) in seen.iter().enumerate() {
        let (mut sum, mut lags) = (0, 0);
        // Admissions that ended earlier than this one may have begun after it.
        let earlier = seen[..first].iter().rev().take_while(|other| other.after >= start.before);
        let from = first - earlier.count();
        for end in seen[from..].iter().filter(|end| end.before >= start.before) {
            sum += u128::from(end.cost);
            lags += u128::from(end.after - end.before);
            *intervals += 1;
            if sum <= least {
                continue;
            }
            let length = u128::from(end.after - start.before);
            let allowed = length + longer + if bound.forgets { lags } else { 0 };
            let most = (bound.most_in)(allowed) + bound.spared;
            ensure!(
                sum <= most,
                "{}\nkey {}: {sum} units were admitted by checks within {length} ns, from {} to {}; the bound is {most} in {allowed} ns\n{}",
                bound.what,
                start.key,
                start.before,
                end.after,
                listed(seen, start.before, end.after)
            );
        }
    }
    Ok(())
}

/// Describes the admissions of an interval; only the last ones, if there are many.
fn listed(seen: &[Seen], from: u64, to: u64) -> String {
    let of_interval: Vec<_> = seen.iter().filter(|seen| seen.before >= from && seen.after <= to).collect();
    let skipped = of_interval.len().saturating_sub(40);
    let lines = of_interval[skipped..].iter().map(|seen| {
        let (begun, took) = (seen.before - from, seen.after - seen.before);
        format!("  {} units: begun after {begun} ns, took {took} ns\n", seen.cost)
    });
    let first = if skipped > 0 { format!("  ({skipped} more)\n") } else { String::new() };
    std::iter::once(first).chain(lines).collect()
}
