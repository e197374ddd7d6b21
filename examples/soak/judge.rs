//! What was admitted, in every interval.
//!
//! A check takes effect between two readings of the clock, before and after it. So whatever was asked for and answered within
//! an interval of length t took effect in it, and is at most what the algorithm admits in t. An admission that lies across
//! an end of the interval, because its thread was held up, is not counted there: nothing has to be allowed for it.

use super::{Found, Seen, ensure};

/// What an interval may see.
pub(crate) struct Bound<'b> {
    /// By its length in nanoseconds.
    pub(crate) most_in: &'b dyn Fn(u128) -> u128,
    /// It counts as so much longer: a tick, a lease's life.
    pub(crate) more_ns: u128,
    /// Whether keys are forgotten when they are idle. One that was forgotten as of a time after that of a thread that is late
    /// starts anew as of the thread's: by so much, each time, it is ahead.
    pub(crate) forgets: bool,
    /// The store may have admitted so many units more, and has counted that.
    pub(crate) spared: u128,
    /// What is limited, for the story.
    pub(crate) what: String,
}

/// Admissions of one key among which every interval is looked at; of more, every interval of half as many.
const LOOKED_AT: usize = if cfg!(debug_assertions) { 120 } else { 320 };

/// Judges every interval of every key; how many those were.
pub(crate) fn judge(seen: &mut [Seen], bound: &Bound<'_>) -> (u64, Found) {
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
        // Those that ended earlier than this one may have begun after it, too.
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
                "{}\nkey {}: {sum} units asked for and answered within {length} ns, from {} to {}; at most {most} in {allowed} ns\n{}",
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

/// The admissions of an interval, the last of them if they are many.
fn listed(seen: &[Seen], from: u64, to: u64) -> String {
    let of_interval: Vec<_> = seen.iter().filter(|seen| seen.before >= from && seen.after <= to).collect();
    let skipped = of_interval.len().saturating_sub(40);
    let lines = of_interval[skipped..].iter().map(|seen| {
        let (begun, took) = (seen.before - from, seen.after - seen.before);
        format!("  {} after {begun} ns, within {took} ns\n", seen.cost)
    });
    let first = if skipped > 0 { format!("  ({skipped} more)\n") } else { String::new() };
    std::iter::once(first).chain(lines).collect()
}
