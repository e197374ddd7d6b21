//! Limiters that count in sketches, and how full those get.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::iter::Peekable;
use std::vec;

use super::{Answer, Differences, Gates, Hasher, Ledger, ask, hasher};
use crate::cli::algorithms::{Kind, Options, WindowVisitor};
use crate::cli::input::Record;
use crate::cli::report::nanos;
use crate::cli::storage;
use crate::{
    Capacity, ManualClock, Quota, QuotaError, RateLimiter, Saturation, Sketch, Timestamp, WindowAlgorithm,
};

type Limiter<A> = RateLimiter<Sketch<A, Hasher>, ManualClock>;

/// Windows of a limit at whose ends a sketch is looked at, each look a tenth of a millisecond.
const LOOKS: usize = 256;

/// How a sketch store fared.
#[derive(Clone, Debug, Default)]
pub struct SketchFigures {
    /// How full it got, each figure by itself, and of several limiters the worst.
    pub saturation: Saturation,
    /// What a keyed store would have decided otherwise, if one ran beside it.
    pub differences: Option<Differences>,
}

/// Counts in constant memory, and a keyed store beside them.
pub(in crate::cli) struct SketchGates<A: WindowAlgorithm> {
    limiters: Vec<Limiter<A>>,
    clock: ManualClock,
    ledger: Option<Ledger<A>>,
    decided: usize,
    /// Numbers of records after which the sketches are looked at, in order.
    ends: Peekable<vec::IntoIter<usize>>,
    latest_ns: u64,
    saturation: Saturation,
}

fn build<A: WindowAlgorithm>(
    algorithm: A,
    clock: &ManualClock,
    share: Capacity,
) -> Result<Limiter<A>, QuotaError> {
    RateLimiter::builder(algorithm).clock(clock.clone()).hasher(hasher()).capacity(share).sketch()
}

impl<A: WindowAlgorithm> SketchGates<A> {
    /// With a ledger, of these records; else the store is not looked at either.
    pub(in crate::cli) fn new(
        algorithms: Vec<A>,
        setup: storage::Sketch,
        ledger: Option<(&[Quota], Kind)>,
        records: &[Record],
    ) -> Result<Self, QuotaError> {
        let clock = ManualClock::new(Timestamp::ZERO);
        let share = setup.memory.share(algorithms.len());
        let ends = ledger.map_or(Vec::new(), |(quotas, _)| ends_of_windows(records, quotas, LOOKS));
        let ledger = ledger.map(|(quotas, kind)| Ledger::new(algorithms.clone(), quotas, kind));
        let build = |algorithm| build(algorithm, &clock, share);
        let limiters = algorithms.into_iter().map(build).collect::<Result<_, _>>()?;
        Ok(Self {
            limiters,
            clock,
            ledger,
            decided: 0,
            ends: ends.into_iter().peekable(),
            latest_ns: 0,
            saturation: Saturation::default(),
        })
    }

    pub(in crate::cli) fn figures(&self) -> SketchFigures {
        let differences = self.ledger.as_ref().map(|ledger| ledger.differences);
        SketchFigures { saturation: self.saturation, differences }
    }

    /// Looks how full the sketches are.
    fn measure(&mut self) {
        self.clock.set(Timestamp::from_nanos(self.latest_ns));
        let worst = &mut self.saturation;
        for seen in self.limiters.iter().map(RateLimiter::saturation) {
            worst.mistaken = worst.mistaken.max(seen.mistaken);
            worst.overcounted = worst.overcounted.max(seen.overcounted);
            worst.denied = worst.denied.max(seen.denied);
        }
    }
}

impl<A: WindowAlgorithm> Gates for SketchGates<A> {
    fn decide(&mut self, record: &Record) -> Answer {
        let answer = ask(&self.limiters, record);
        if let Some(ledger) = &mut self.ledger {
            ledger.enter(record, answer.is_ok());
        }
        self.decided += 1;
        self.latest_ns = self.latest_ns.max(record.at);
        if self.ends.next_if_eq(&self.decided).is_some() {
            self.measure();
        }
        answer
    }

    fn look(&mut self, _now: Timestamp) -> usize {
        self.limiters.iter().map(RateLimiter::state_bytes).sum()
    }
}

/// After how many records a window ends, of the `most` windows of each limit in which the most units are admitted: a sketch
/// is fullest at the end of one of them.
fn ends_of_windows(records: &[Record], quotas: &[Quota], most: usize) -> Vec<usize> {
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

/// The units of one window that a fixed window admits.
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

/// Whether a sketch store can hold this quota, in whatever memory.
pub(in crate::cli) fn fits_sketch(kind: Kind, quota: &Quota, options: Options) -> bool {
    struct Fits;

    impl WindowVisitor for Fits {
        type Output = ();

        fn visit<A: WindowAlgorithm>(self, algorithms: Vec<A>) -> Result<(), QuotaError> {
            let (clock, least) = (ManualClock::default(), Capacity::memory(storage::LEAST_BYTES));
            algorithms.into_iter().try_for_each(|algorithm| build(algorithm, &clock, least).map(drop))
        }
    }

    matches!(kind.visit_windows(std::slice::from_ref(quota), options, Fits), Ok(Some(())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(seconds: &[u64]) -> Vec<Record> {
        seconds.iter().map(|second| Record { at: second * 1_000_000_000, cost: 1, key: 0 }).collect()
    }

    #[test]
    fn windows_end_before_the_first_request_of_another() {
        let records = records(&[0, 1, 9, 10, 10, 35, 61, 62, 63]);
        let ends = |limits: &[&str], most| {
            let quotas: Vec<Quota> = limits.iter().map(|limit| limit.parse().unwrap()).collect();
            ends_of_windows(&records, &quotas, most)
        };
        assert_eq!(ends(&["5/10s"], 9), [3, 5, 6, 9]);
        assert_eq!(ends(&["5/min"], 9), [6, 9]);
        // Those of both, each once.
        assert_eq!(ends(&["5/10s", "5/min", "5/d"], 9), [3, 5, 6, 9]);
        // Those in which the most is admitted: 3, 2, 1 and 3; with the other limit, 6 and 3.
        assert_eq!(ends(&["5/10s"], 3), [3, 5, 9]);
        assert_eq!(ends(&["9/min"], 1), [6]);
        assert!(ends_of_windows(&[], &["5/s".parse().unwrap()], 3).is_empty());
        // Time steps back: the windows are those of the order of replay.
        assert_eq!(ends_of_windows(&self::records(&[0, 9, 0]), &["5/s".parse().unwrap()], 3), [1, 2, 3]);
    }

    #[test]
    fn what_is_admitted_is_counted_by_client() {
        let records = |each: &[(u32, u64)]| -> Vec<Record> {
            each.iter().map(|&(key, cost)| Record { at: 0, cost, key }).collect()
        };
        assert_eq!(admitted(&records(&[(0, 1), (0, 1), (0, 1), (1, 1)]), 2), 3);
        assert_eq!(admitted(&records(&[(0, 3), (0, 2), (0, 1), (1, u64::MAX)]), 3), 3);
        assert_eq!(admitted(&records(&[(0, u64::MAX), (1, u64::MAX)]), u64::MAX), u64::MAX);
    }

    #[test]
    fn the_fullest_window_is_the_one_that_is_told() {
        // A thousand clients in the tenth minute, and one in the next.
        let mut records: Vec<_> =
            (0..1_000).map(|key| Record { at: 545_000_000_000, cost: 9, key }).collect();
        records.push(Record { at: 605_000_000_000, cost: 1, key: 0 });
        let quota: Quota = "10/min".parse().unwrap();
        let mut worst = Vec::new();
        for records in [&records[..], &records[1_000..]] {
            let setup = storage::Sketch { memory: "1KiB".parse().unwrap() };
            let algorithms = vec![crate::FixedWindow::try_new(quota).unwrap()];
            let ledger = Some((&[quota][..], Kind::FixedWindow));
            let mut gates = SketchGates::new(algorithms, setup, ledger, records).unwrap();
            for record in records {
                let _ = gates.decide(record);
            }
            let figures = gates.figures();
            assert_eq!(figures.differences.unwrap().wrongly_admitted, 0);
            worst.push(figures.saturation);
        }
        assert!(worst[0].is_warning() && worst[0].mistaken > 0.1, "{worst:?}");
        assert!(!worst[1].is_warning() && worst[1].mistaken < 0.01, "{worst:?}");
    }
}
