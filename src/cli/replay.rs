//! Runs a trace through the library's limiters, in the trace's own time.

use std::time::Duration;

use indicatif::ProgressBar;

use super::algorithms::{CompactVisitor, Kind, Options, Visitor, WindowVisitor};
use super::error::Error;
use super::exact;
use super::input::Trace;
use super::storage::{self, Storage};
use super::stores::{
    CompactFigures, CompactGates, Differences, Figures, Gates, KeyedGates, Refusal, SketchFigures,
    SketchGates, fits_sketch,
};
use crate::base::quota::Reason;
use crate::{Algorithm, CompactAlgorithm, Quota, QuotaError, Timestamp, WindowAlgorithm};

/// Between two looks at the progress bar and at the store.
const STRIDE: usize = 1 << 12;

/// What one algorithm made of a trace.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which algorithm.
    pub kind: Kind,
    /// The limits on every request.
    pub quotas: Vec<Quota>,
    /// The decisions.
    pub tally: Tally,
    /// How the store fared.
    pub figures: Figures,
    /// What an exact sliding log would have decided otherwise, if that was counted.
    pub against_log: Option<Differences>,
}

/// How to replay, whatever the algorithm and the limits.
#[derive(Copy, Clone, Debug)]
pub struct Setup {
    /// Settings of window algorithms.
    pub options: Options,
    /// Where states are kept.
    pub storage: Storage,
    /// Whether a keyed store runs beside another one, to count the decisions that differ.
    pub beside: bool,
}

/// The decisions, and what they add up to.
#[derive(Clone, Debug)]
pub struct Tally {
    /// A byte a record, in the order of replay: `1` admitted, `0` denied.
    pub decisions: Vec<u8>,
    /// Requests denied, by key.
    pub denied_by_key: Vec<u64>,
    /// Requests denied.
    pub denied: u64,
    /// The same by the limit that refused them; of several the one with the longest wait.
    pub refused: Vec<u64>,
    /// Of them, those whose cost no wait would ever admit.
    pub never: u64,
    /// The longest time that a denied request was told to wait.
    pub longest_wait: Duration,
    /// The most memory that the limiters' states took, by their number at regular looks.
    pub state_bytes: u64,
}

impl Tally {
    /// Requests admitted.
    #[must_use]
    pub fn admitted(&self) -> u64 {
        self.decisions.len() as u64 - self.denied
    }

    /// Keys of which at least one request was denied.
    #[must_use]
    pub fn keys_denied(&self) -> u64 {
        self.denied_by_key.iter().filter(|&&denied| denied > 0).count() as u64
    }

    /// The keys with the most denials: most first, of equals the one seen first.
    #[must_use]
    pub fn top_denied(&self, most: usize) -> Vec<(u32, u64)> {
        let ids = 0_u32..;
        let mut keys: Vec<(u32, u64)> =
            ids.zip(self.denied_by_key.iter().copied()).filter(|&(_, denied)| denied > 0).collect();
        keys.sort_by_key(|&(_, denied)| std::cmp::Reverse(denied));
        keys.truncate(most);
        keys
    }
}

/// Replays a trace through one algorithm, under one limit or several at once.
///
/// With several limits a request is admitted, and charged to all of them, only if every one admits it.
///
/// # Errors
/// If the algorithm cannot hold a quota.
pub fn replay(
    trace: &Trace,
    kind: Kind,
    quotas: &[Quota],
    setup: Setup,
    progress: &ProgressBar,
) -> Result<Outcome, QuotaError> {
    let Setup { options, storage, beside } = setup;
    let run = Run { trace, progress };
    let ledger = beside.then_some((quotas, kind));
    let refused = |instead| Reason::NoCompactForm { algorithm: kind.as_str(), instead };
    let (tally, figures) = match storage {
        Storage::Keyed => (kind.visit(quotas, options, run)?, Figures::Keyed),
        Storage::Compact(setup) => {
            let run = CompactRun { run, setup, ledger };
            let outcome = kind.visit_compact(quotas, options, run);
            let (tally, figures) = outcome?.ok_or_else(|| refused(storage::COMPACT_HOLDS))?;
            (tally, Figures::Compact(figures))
        }
        Storage::Sketch(setup) => {
            let run = SketchRun { run, setup, ledger };
            let outcome = kind.visit_windows(quotas, options, run);
            let (tally, figures) = outcome?.ok_or_else(|| refused(storage::SKETCH_HOLDS))?;
            (tally, Figures::Sketch(figures))
        }
    };
    Ok(Outcome { kind, quotas: quotas.to_vec(), tally, figures, against_log: None })
}

/// Replays through several algorithms, and compares each with an exact sliding log. One that cannot hold the quotas ends the run if it was asked for by name,
/// and is left out with a note if it is only one of all.
///
/// # Errors
/// If an algorithm asked for, or every one, cannot hold a quota.
pub fn replay_all(
    trace: &Trace,
    kinds: &[Kind],
    by_name: bool,
    quotas: &[Quota],
    setup: Setup,
    progress: &ProgressBar,
) -> Result<(Vec<Outcome>, Vec<String>), Error> {
    let mut outcomes = Vec::new();
    let mut left_out = Vec::new();
    for &kind in kinds {
        let exact = if setup.beside { ", and exactly beside it" } else { "" };
        progress.set_message(format!("{}{exact}", kind.as_str()));
        match replay(trace, kind, quotas, setup, progress) {
            Ok(mut outcome) => {
                outcome.against_log = exact::differences(trace, quotas, &outcome.tally.decisions);
                outcomes.push(outcome);
            }
            Err(error) => {
                let limit = |quota: &Quota| format!("--limit {quota}");
                let why = setup.refusal(&error, kind, quotas, limit);
                if by_name {
                    return Err(Error::usage(format!("{}: {why}", kind.as_str())));
                }
                left_out.push(format!("{} left out: {why}", kind.as_str()));
            }
        }
    }
    if outcomes.is_empty() {
        return Err(Error::usage(left_out.join("\n")));
    }
    Ok((outcomes, left_out))
}

impl Setup {
    /// A refusal in the words of the command line instead of the library's, with the flag that caused it: of the sketch store
    /// always, of the compact one where that is the memory. `limit` says which flag a quota comes from.
    #[must_use]
    pub fn refusal(
        &self,
        error: &QuotaError,
        kind: Kind,
        quotas: &[Quota],
        limit: impl Fn(&Quota) -> String,
    ) -> String {
        let text = error.to_string();
        let text = text.strip_prefix("invalid quota: ").unwrap_or(&text);
        match &self.storage {
            Storage::Sketch(sketch) => {
                match quotas.iter().find(|quota| !fits_sketch(kind, quota, self.options)) {
                    Some(quota) => format!("{}: {text}", limit(quota)),
                    None => format!("--memory {}: {text}", sketch.memory),
                }
            }
            Storage::Compact(compact) if error.is_for_memory() => {
                format!("--memory {}: {text}", compact.memory)
            }
            Storage::Compact(_) | Storage::Keyed => text
                .replace("Overflow::Inherit", "--overflow inherit")
                .replace("Overflow::Forget", "--overflow forget"),
        }
    }
}

struct Run<'a> {
    trace: &'a Trace,
    progress: &'a ProgressBar,
}

impl Visitor for Run<'_> {
    type Output = Tally;

    fn visit<A: Algorithm>(self, algorithms: Vec<A>) -> Tally {
        let limits = algorithms.len();
        self.through(&mut KeyedGates::new(algorithms), limits)
    }
}

struct CompactRun<'a> {
    run: Run<'a>,
    setup: storage::Compact,
    /// What a keyed store beside it needs to know.
    ledger: Option<(&'a [Quota], Kind)>,
}

impl CompactVisitor for CompactRun<'_> {
    type Output = (Tally, CompactFigures);

    fn visit<A: CompactAlgorithm>(self, algorithms: Vec<A>) -> Result<Self::Output, QuotaError> {
        let looks = self.run.trace.records.len().div_ceil(STRIDE);
        let limits = algorithms.len();
        let mut gates = CompactGates::new(algorithms, self.setup, self.ledger, looks)?;
        let tally = self.run.through(&mut gates, limits);
        Ok((tally, gates.figures()))
    }
}

struct SketchRun<'a> {
    run: Run<'a>,
    setup: storage::Sketch,
    /// What a keyed store beside it needs to know.
    ledger: Option<(&'a [Quota], Kind)>,
}

impl WindowVisitor for SketchRun<'_> {
    type Output = (Tally, SketchFigures);

    fn visit<A: WindowAlgorithm>(self, algorithms: Vec<A>) -> Result<Self::Output, QuotaError> {
        let (limits, records) = (algorithms.len(), &self.run.trace.records);
        let mut gates = SketchGates::new(algorithms, self.setup, self.ledger, records)?;
        let tally = self.run.through(&mut gates, limits);
        Ok((tally, gates.figures()))
    }
}

impl Run<'_> {
    /// The loop over the records.
    fn through(self, gates: &mut impl Gates, limits: usize) -> Tally {
        let mut tally = Tally {
            decisions: Vec::with_capacity(self.trace.records.len()),
            denied_by_key: vec![0; self.trace.keys.len()],
            denied: 0,
            refused: vec![0; limits],
            never: 0,
            longest_wait: Duration::ZERO,
            state_bytes: 0,
        };
        for records in self.trace.records.chunks(STRIDE) {
            let mut now = 0;
            for record in records {
                match gates.decide(record) {
                    Ok(()) => tally.decisions.push(b'1'),
                    Err(Refusal { by, wait }) => {
                        tally.decisions.push(b'0');
                        tally.denied += 1;
                        tally.refused[by] += 1;
                        tally.denied_by_key[record.key as usize] += 1;
                        match wait {
                            Some(wait) => tally.longest_wait = tally.longest_wait.max(wait),
                            None => tally.never += 1,
                        }
                    }
                }
                now = record.at;
            }
            tally.state_bytes = tally.state_bytes.max(gates.look(Timestamp::from_nanos(now)) as u64);
            self.progress.inc(records.len() as u64);
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::input::Record;

    const SETUP: Setup =
        Setup { options: Options { sub_windows: 60, strict: false }, storage: Storage::Keyed, beside: false };
    const SECOND: u64 = 1_000_000_000;

    fn trace(records: &[(u64, u8, u64)]) -> Trace {
        let mut trace = Trace::default();
        for &(second, key, cost) in records {
            let key = trace.keys.intern(&[key]).unwrap();
            trace.records.push(Record { at: second * SECOND, cost, key });
        }
        trace
    }

    fn decisions(trace: &Trace, kind: Kind, limits: &[&str]) -> (String, Tally) {
        let quotas: Vec<Quota> = limits.iter().map(|limit| limit.parse().unwrap()).collect();
        let tally = replay(trace, kind, &quotas, SETUP, &ProgressBar::hidden()).unwrap().tally;
        (String::from_utf8(tally.decisions.clone()).unwrap(), tally)
    }

    #[test]
    fn denials_are_counted_by_key() {
        let trace =
            trace(&[(0, b'a', 1), (0, b'b', 1), (0, b'a', 1), (1, b'a', 1), (2, b'c', 9), (10, b'a', 1)]);
        let (text, tally) = decisions(&trace, Kind::SlidingLog, &["1/10s"]);
        assert_eq!(text, "110001");
        assert_eq!((tally.admitted(), tally.denied, tally.never, tally.keys_denied()), (3, 3, 1, 2));
        assert_eq!(tally.refused, [3]);
        assert_eq!(tally.longest_wait, Duration::from_secs(10));
        assert_eq!(tally.top_denied(1), [(0, 2)]);
    }

    #[test]
    fn several_limits_charge_all_or_none() {
        // 1/s and 2 in 10 s. At 1.0 s both admit; the denials at 0 s must not have used up the second.
        let trace =
            trace(&[(0, b'a', 1), (0, b'a', 1), (0, b'a', 1), (1, b'a', 1), (2, b'a', 1), (10, b'a', 1)]);
        for kind in [Kind::SlidingLog, Kind::FixedWindow] {
            let (text, tally) = decisions(&trace, kind, &["1/s", "2/10s"]);
            assert_eq!(text, "100101", "{kind:?}");
            // At 0 s only the first limit refuses, at 2 s only the second.
            assert_eq!((tally.denied, &tally.refused[..]), (3, &[2, 1][..]), "{kind:?}");
            // At 2 s the second limit is full until 10 s.
            assert_eq!(tally.longest_wait, Duration::from_secs(8), "{kind:?}");
        }
    }
}
