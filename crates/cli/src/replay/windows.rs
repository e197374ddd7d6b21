//! The times at which a sketch is fullest.

use std::cmp::Reverse;
use std::collections::HashMap;

use tollgate::Quota;

use super::limiters::hasher;
use crate::input::Record;
use tollgate_report::human::nanos;

/// Returns the record counts at which windows end, for the `most` windows of each limit that admit the most units. A
/// sketch is fullest at the end of one of them.
pub fn ends(records: &[Record], quotas: &[Quota], most: usize) -> Vec<usize> {
    let mut ends = Vec::new();
    for quota in quotas {
        let window = |record: &Record| record.at / nanos(quota.period());
        let mut end = 0;
        let ended = records.chunk_by(|a, b| window(a) == window(b)).map(|records| {
            end += records.len();
            (admitted(records, quota.limit()), end)
        });
        let mut windows: Vec<(u64, usize)> = ended.collect();
        if windows.len() > most {
            windows.select_nth_unstable_by_key(most, |&(admitted, _)| Reverse(admitted));
            windows.truncate(most);
        }
        ends.extend(windows.into_iter().map(|(_, end)| end));
    }
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// The units that a fixed window admits in one window.
fn admitted(records: &[Record], limit: u64) -> u64 {
    let mut used = HashMap::with_hasher(hasher());
    for record in records {
        let used: &mut u64 = used.entry(record.key).or_default();
        if record.cost <= limit - *used {
            *used += record.cost;
        }
    }
    used.into_values().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(seconds: &[u64]) -> Vec<Record> {
        seconds.iter().map(|second| Record { at: second * 1_000_000_000, cost: 1, key: 0 }).collect()
    }

    #[test]
    fn window_ends_at_last_record() {
        let records = records(&[0, 1, 9, 10, 10, 35, 61, 62, 63]);
        let of = |limits: &[&str], most| {
            let quotas: Vec<Quota> = limits.iter().map(|limit| limit.parse().unwrap()).collect();
            ends(&records, &quotas, most)
        };
        assert_eq!(of(&["5/10s"], 9), [3, 5, 6, 9]);
        assert_eq!(of(&["5/min"], 9), [6, 9]);
        // With two limits, the ends of the windows of both, each once.
        assert_eq!(of(&["5/10s", "5/min", "5/d"], 9), [3, 5, 6, 9]);
        // The fullest windows: 3, 2, 1 and 3 units; with the other limit, 6 and 3.
        assert_eq!(of(&["5/10s"], 3), [3, 5, 9]);
        assert_eq!(of(&["9/min"], 1), [6]);
        assert!(ends(&[], &["5/s".parse().unwrap()], 3).is_empty());
        // Time steps back: the windows are those of the order of replay.
        assert_eq!(ends(&self::records(&[0, 9, 0]), &["5/s".parse().unwrap()], 3), [1, 2, 3]);
    }

    #[test]
    fn admitted_units_are_counted_per_client() {
        let records = |each: &[(u32, u64)]| -> Vec<Record> {
            each.iter().map(|&(key, cost)| Record { at: 0, cost, key }).collect()
        };
        assert_eq!(admitted(&records(&[(0, 1), (0, 1), (0, 1), (1, 1)]), 2), 3);
        assert_eq!(admitted(&records(&[(0, 3), (0, 2), (0, 1), (1, u64::MAX)]), 3), 3);
        assert_eq!(admitted(&records(&[(0, u64::MAX), (1, u64::MAX)]), u64::MAX), u64::MAX);
    }
}
