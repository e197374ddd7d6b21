//! The decisions of an algorithm that differ from those of an exact sliding log with the same limits.
//!
//! The log holds what the algorithm itself admitted, so each decision is compared on its own. In an independent log,
//! one difference would cause further differences in later decisions, although these decisions are right. The library's
//! sliding log cannot hold more than its limit, so this log is a queue. Tests compare the two: the library's own log
//! never differs.
//!
//! It takes one more pass over the records, with constant work per record on average, and at most 16 bytes per admitted
//! request.

use std::collections::VecDeque;

use tollgate::Quota;

use super::ledger::Differences;
use crate::input::{Record, Trace};
use tollgate_report::human::nanos;

/// The admitted requests of one limit.
struct Log {
    limit: u64,
    period: u64,
    by_key: Vec<Admitted>,
}

/// The admitted requests of one key in the last period: times in order with their units, and the sum of the units.
#[derive(Clone, Default)]
struct Admitted {
    units: VecDeque<(u64, u64)>,
    sum: u64,
}

impl Log {
    fn new(quota: &Quota, keys: usize) -> Self {
        Self { limit: quota.limit(), period: nanos(quota.period()), by_key: vec![Admitted::default(); keys] }
    }

    /// Returns whether a request has room in the period that ends with it.
    fn has_room(&mut self, record: &Record) -> bool {
        let Admitted { units, sum } = &mut self.by_key[record.key as usize];
        while let Some(&(_, gone)) = units.front().filter(|(at, _)| record.at - at >= self.period) {
            units.pop_front();
            *sum -= gone;
        }
        record.cost == 0 || sum.saturating_add(record.cost) <= self.limit
    }

    fn charge(&mut self, record: &Record) {
        let Admitted { units, sum } = &mut self.by_key[record.key as usize];
        // The sum saturates at the largest number, so costs can be subtracted again.
        let cost = record.cost.min(u64::MAX - *sum);
        *sum += cost;
        match units.back_mut() {
            Some((at, units)) if *at == record.at => *units += cost,
            _ if cost > 0 => units.push_back((record.at, cost)),
            _ => {}
        }
    }
}

/// Counts the decisions that differ; returns `None` if the records are not in order of time.
pub fn differences(trace: &Trace, quotas: &[Quota], decisions: &[u8]) -> Option<Differences> {
    if !trace.records.is_sorted_by_key(|record| record.at) {
        return None;
    }
    let mut logs: Vec<Log> = quotas.iter().map(|quota| Log::new(quota, trace.keys.len())).collect();
    let mut differences = Differences::default();
    for (record, &decision) in trace.records.iter().zip(decisions) {
        let has_room = logs.iter_mut().all(|log| log.has_room(record));
        let admitted = decision == b'1';
        differences.wrongly_admitted += u64::from(admitted && !has_room);
        differences.wrongly_denied += u64::from(!admitted && has_room);
        if admitted {
            logs.iter_mut().for_each(|log| log.charge(record));
        }
    }
    Some(differences)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn compared(records: &[(u64, u64)], limits: &[&str], decisions: &[u8]) -> Option<(u64, u64)> {
        let mut trace = Trace::default();
        let key = trace.keys.intern(b"a").unwrap();
        trace.records = records.iter().map(|&(at, cost)| Record { at: at * SECOND, cost, key }).collect();
        let quotas: Vec<Quota> = limits.iter().map(|limit| limit.parse().unwrap()).collect();
        let found = differences(&trace, &quotas, decisions)?;
        Some((found.wrongly_admitted, found.wrongly_denied))
    }

    #[test]
    fn each_decision_is_judged_by_itself() {
        let most = (0, u64::MAX);
        for (records, limits, decisions, differ) in [
            // A unit expires after one period.
            (&[(0, 1), (9, 1), (10, 1)][..], &["1/10s"][..], &b"101"[..], (0, 0)),
            (&[(0, 1), (9, 1), (10, 1)], &["1/10s"], b"100", (0, 1)),
            // The request that was wrongly denied at 0 s is no reason to deny the next one.
            (&[(0, 1), (1, 1), (2, 1)], &["1/10s"], b"010", (0, 1)),
            // Wrongly admitted requests count.
            (&[(0, 1), (1, 1), (10, 1), (11, 1)], &["1/10s"], b"1101", (1, 0)),
            // A cost of 0 has room, and the sum of the units saturates.
            (&[(0, 3), (1, 3), (2, 0), (3, 2)], &["5/10s"], b"1011", (0, 0)),
            (&[most, most, (10, 1)], &["5/10s"], b"111", (2, 0)),
            (&[(0, 1), (0, 1), (1, 1), (2, 1)], &["1/s", "2/10s"], b"1010", (0, 0)),
        ] {
            assert_eq!(compared(records, limits, decisions), Some(differ), "{records:?} {limits:?}");
        }
    }
}
