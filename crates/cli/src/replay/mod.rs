//! `tollgate replay`: runs a trace through the library's limiters, at the trace's own times.
//!
//! | file | does |
//! |---|---|
//! | `run` | the command with limits: `rules/replay` is the command with rules |
//! | `limiters` | limiters of numbered keys, over any store |
//! | `ledger` | how many decisions differ from a keyed store's |
//! | `windows` | when a sketch is fullest |
//! | `log` | how many decisions differ from an exact sliding log's |
//! | `accuracy/` | the report of how accurate a store was |
//! | `output` | the report of everything else |
//! | `sections` | the sections of the page of `--report` |

pub mod accuracy;
pub mod ledger;
mod limiters;
mod log;
pub mod output;
pub mod run;
mod sections;
mod windows;

use std::time::Duration;

use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::Value;
use tollgate::{
    Algorithm, AnyLimiter, CompactAlgorithm, FixedWindow, Gcra, LeakyBucketMeter, Limit, LimitKind,
    ManualClock, Quota, QuotaError, RateLimiter, SlidingWindow, StoreKind, Timestamp, TokenBucket,
    WindowAlgorithm, stores::Saturation,
};

use self::ledger::{Differences, Ledger};
use self::limiters::{Denial, Hasher, NumberLimiter, hasher};
use crate::args::ReplayArgs;
use crate::input::{Record, Trace};
use crate::output::chart::{self, Series};
use crate::output::finish;
use crate::output::page::{Page, Section};
use crate::store::{Memory, Storage};
use tollgate_report::error::Error;
use tollgate_report::human;
use tollgate_report::output::write_to;

/// Records between two updates of the progress bar and two samples of the store.
const STRIDE: usize = 1 << 12;

/// The most slots counted in one replay. A count of 4 MiB takes a quarter of a millisecond; such tables are counted at
/// every sample.
const COUNTED: usize = 1 << 30;

/// Windows per limit at whose ends a sketch is sampled; one sample takes a tenth of a millisecond.
const LOOKS: usize = 256;

/// The result of one algorithm on a trace.
#[derive(Clone, Debug)]
pub struct AlgorithmReplay {
    /// The algorithm.
    pub algorithm: LimitKind,
    /// The limits on every request.
    pub quotas: Vec<Quota>,
    /// The decisions.
    pub tally: ReplayTally,
    /// How accurate the store was.
    pub figures: StoreFigures,
    /// The decisions that differ from those of an exact sliding log, if they were counted.
    pub against_log: Option<Differences>,
}

/// Algorithms that decided each request alike.
pub struct AlikeReplays<'a> {
    /// Their names, with commas.
    pub names: String,
    /// All of them. Each of their figures is that of the first, except the memory.
    pub replays: Vec<&'a AlgorithmReplay>,
}

impl AlikeReplays<'_> {
    /// Returns the memory of all of them as text.
    pub fn memory_text(&self) -> String {
        let bytes = || self.replays.iter().map(|replay| replay.tally.state_bytes);
        match (bytes().min().unwrap_or(0), bytes().max().unwrap_or(0)) {
            (least, most) if least == most => human::bytes(most),
            (least, most) => format!("{} to {}", human::bytes(least), human::bytes(most)),
        }
    }
}

/// Merges algorithms that decided alike, in the order of the first of them.
pub fn merge_alike(replays: &[AlgorithmReplay]) -> Vec<(&AlgorithmReplay, AlikeReplays<'_>)> {
    let mut merged: Vec<(&AlgorithmReplay, AlikeReplays<'_>)> = Vec::new();
    for replay in replays {
        let name = replay.algorithm.name();
        let is_alike = |first: &AlgorithmReplay| {
            let [first_decisions, decisions] = [first, replay].map(|one| &one.tally.decisions);
            // The same denials can have other waits.
            first_decisions.denials.longest_wait == decisions.denials.longest_wait
                && first.figures.differences == replay.figures.differences
                && first_decisions.bytes == decisions.bytes
        };
        match merged.iter_mut().find(|(first, _)| is_alike(first)) {
            Some((_, alike)) => {
                alike.names += &format!(", {name}");
                alike.replays.push(replay);
            }
            None => merged.push((replay, AlikeReplays { names: name.to_owned(), replays: vec![replay] })),
        }
    }
    merged
}

/// The settings of a replay that do not depend on the algorithm or the limits.
#[derive(Copy, Clone, Debug)]
pub struct ReplaySetup {
    /// The store.
    pub storage: Storage,
    /// Whether a keyed store runs in parallel, to count the decisions that differ.
    pub with_exact_store: bool,
}

/// Denied requests, and the longest wait that the limiter returned.
#[derive(Clone, Debug, Default)]
pub struct Denials {
    /// Requests denied.
    pub denied: u64,
    /// The denied requests whose cost can never be admitted.
    pub never: u64,
    /// The longest wait that the limiter returned for a denied request.
    pub longest_wait: Duration,
}

impl Denials {
    /// Counts a denied request with this wait; `None` if the request can never be admitted.
    pub fn add(&mut self, wait: Option<Duration>) {
        self.denied += 1;
        match wait {
            Some(wait) => self.longest_wait = self.longest_wait.max(wait),
            None => self.never += 1,
        }
    }

    /// Returns the longest wait as text.
    pub fn wait_text(&self) -> String {
        match (self.denied, self.never) {
            (0, _) => "-".to_owned(),
            (_, 0) => human::duration(self.longest_wait),
            (denied, never) if denied == never => "never".to_owned(),
            (_, never) => format!("{}; {} never", human::duration(self.longest_wait), human::count(never)),
        }
    }
}

/// The outcome of each request.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    /// One byte per record, in the order of replay: `1` admitted, `0` denied.
    pub bytes: Vec<u8>,
    /// The denied requests.
    pub denials: Denials,
}

impl Decisions {
    /// Creates an empty list with capacity for `records` decisions.
    pub fn with_capacity(records: usize) -> Self {
        Self { bytes: Vec::with_capacity(records), denials: Denials::default() }
    }

    /// Adds one decision; for a denial, the wait, or `None` if the request can never be admitted.
    pub fn add(&mut self, denial: Option<Option<Duration>>) {
        self.bytes.push(if denial.is_some() { b'0' } else { b'1' });
        if let Some(wait) = denial {
            self.denials.add(wait);
        }
    }

    /// Requests admitted.
    pub fn admitted(&self) -> u64 {
        self.bytes.len() as u64 - self.denials.denied
    }
}

/// Iterates over the records in the order of replay, in chunks, and updates the progress bar after each chunk.
pub fn strides<'t>(trace: &'t Trace, progress: &ProgressBar) -> impl Iterator<Item = &'t [Record]> {
    trace.records.chunks(STRIDE).inspect(|records| progress.inc(records.len() as u64))
}

/// The decisions and their totals.
#[derive(Clone, Debug)]
pub struct ReplayTally {
    /// All decisions.
    pub decisions: Decisions,
    /// Requests denied, by key.
    pub denied_by_key: Vec<u64>,
    /// Denied requests, by the limit that denied them. If several limits deny, the one with the longest wait counts.
    pub refused: Vec<u64>,
    /// The most memory that the limiters' states used, estimated from their number at regular samples.
    pub state_bytes: u64,
}

impl ReplayTally {
    /// Keys of which at least one request was denied.
    pub fn keys_denied(&self) -> u64 {
        self.denied_by_key.iter().filter(|&&denied| denied > 0).count() as u64
    }

    /// Returns the keys with the most denials.
    pub fn top_denied(&self, most: usize) -> Vec<(u32, u64)> {
        top(self.denied_by_key.iter().copied(), most)
    }
}

/// Returns the largest nonzero counts with their indexes: highest count first, then lowest index.
fn top(counts: impl Iterator<Item = u64>, most: usize) -> Vec<(u32, u64)> {
    let mut counts: Vec<(u32, u64)> = (0_u32..).zip(counts).filter(|&(_, count)| count > 0).collect();
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    counts.truncate(most);
    counts
}

/// The accuracy of a store; a figure that the store does not report is zero.
#[derive(Clone, Debug, Default)]
pub struct StoreFigures {
    /// The decisions that differ from a keyed store's, if a keyed store ran in parallel.
    pub differences: Differences,
    /// The figures of a compact store.
    pub compact: CompactFigures,
    /// How full a sketch became: each figure separately, and the worst of several limiters.
    pub saturation: Saturation,
}

/// The accuracy of a compact store. New fields may be added to the JSON; these fields keep their names and meaning.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CompactFigures {
    /// Slots of all limiters.
    pub slots: u64,
    /// The most slots in use at any sample.
    pub peak_live_slots: u64,
    /// Keys that still had a debt when they were evicted.
    pub evicted: u64,
    /// New keys that started with a debt.
    pub indebted: u64,
    /// New keys that were denied because of that debt.
    pub denied_for_debt: u64,
    /// First checks that were decided again, because they met a larger debt after the insertion.
    pub retreats: u64,
    /// First checks that raced and could not be decided again; none in a replay.
    pub raced: u64,
}

/// A finished replay, of limits or of rules.
pub struct FinishedReplay<'a> {
    /// The requests.
    pub trace: &'a Trace,
    /// What was replayed through.
    pub limits: String,
    /// The decisions by name.
    pub series: Vec<Series<'a>>,
    /// The lines about the input.
    pub about: String,
}

/// Writes and prints the results: the decisions of the only series, a chart and a page of all, JSON and tables.
/// `sections` returns the page's sections. The first one is the summary.
///
/// # Errors
/// Returns an error if output fails, and after all output if more than a tenth of the input was skipped.
pub fn write_results(
    args: &ReplayArgs,
    finished: &FinishedReplay<'_>,
    sections: impl FnOnce() -> Vec<Section>,
    json: impl FnOnce() -> Value,
    tables: impl FnOnce() -> String,
) -> Result<(), Error> {
    let FinishedReplay { trace, limits, series, about } = finished;
    // Files first, so that they are complete even if standard output is closed early. A file that fails does not stop
    // the others.
    let decisions = match (&args.decisions, &series[..]) {
        (Some(path), [(_, decisions)]) => write_to(path, decisions),
        _ => Ok(()),
    };
    let chart = args.chart.as_ref().map_or(Ok(()), |path| chart::draw(path, trace, limits, series));
    let page = args.report.as_ref().map_or(Ok(()), |path| {
        // A warning that names a key is left out together with the list of keys.
        let is_shown = |line: &&str| args.top > 0 || !line.starts_with("Warning  key ");
        let about = about.lines().filter(is_shown).collect();
        Page { limits, about, trace, series, sections: sections() }.write(path)
    });
    finish(decisions.and(chart).and(page), args.json.as_deref(), about, json, tables)?;
    trace.mostly_used(args.input.allow_skipped)
}

/// Replays a trace through one algorithm, with one limit or several limits at once.
///
/// With several limits a request is admitted, and charged to all of them, only if every limit admits it.
///
/// # Errors
/// Returns an error if the algorithm cannot hold a quota.
pub fn replay(
    trace: &Trace,
    algorithm: LimitKind,
    quotas: &[Quota],
    setup: ReplaySetup,
    progress: &ProgressBar,
) -> Result<AlgorithmReplay, QuotaError> {
    let run = ReplayRun { trace, algorithm, quotas, setup, progress };
    let (tally, figures) = run.run()?;
    Ok(AlgorithmReplay { algorithm, quotas: quotas.to_vec(), tally, figures, against_log: None })
}

impl ReplaySetup {
    /// Rewrites an error in the terms of the command line, with the flag that caused it: always for the sketch store,
    /// and for the compact store if the memory is the cause. `limit` names the flag of a quota.
    pub fn quota_error_text(
        &self,
        error: &QuotaError,
        algorithm: LimitKind,
        quotas: &[Quota],
        limit: impl Fn(&Quota) -> String,
    ) -> String {
        let text = error.to_string();
        let text = text.strip_prefix("invalid quota: ").unwrap_or(&text);
        let memory = || format!("--memory {}: {text}", self.storage.memory);
        match self.storage.store {
            StoreKind::Sketch => match quotas.iter().find(|quota| !self.fits(algorithm, **quota)) {
                Some(quota) => format!("{}: {text}", limit(quota)),
                None => memory(),
            },
            StoreKind::Compact if error.is_out_of_memory() => memory(),
            StoreKind::Compact | StoreKind::Keyed | StoreKind::Direct => text
                .replace("Overflow::Inherit", "--overflow inherit")
                .replace("Overflow::Forget", "--overflow forget"),
        }
    }

    /// Returns whether the store can hold this quota, with any amount of memory.
    fn fits(self, algorithm: LimitKind, quota: Quota) -> bool {
        let setup =
            Self { storage: Storage { memory: Memory::LEAST, ..self.storage }, with_exact_store: false };
        replay(&Trace::default(), algorithm, &[quota], setup, &ProgressBar::hidden()).is_ok()
    }
}

/// One replay, generic over its algorithm.
struct ReplayRun<'a> {
    trace: &'a Trace,
    algorithm: LimitKind,
    quotas: &'a [Quota],
    setup: ReplaySetup,
    progress: &'a ProgressBar,
}

/// The outcome of the requests and the store's accuracy, or an error if the algorithm or the store cannot hold a quota.
type Replayed = Result<(ReplayTally, StoreFigures), QuotaError>;

// `Storage::holds` excludes what a store cannot hold, so every other combination runs on the keyed store.
impl ReplayRun<'_> {
    /// Builds the algorithm for each quota. This `match` selects the algorithms that a compact store or a sketch can hold, because
    /// their stores report more; everything below them is monomorphic.
    fn run(&self) -> Replayed {
        match self.algorithm {
            LimitKind::Gcra => self.compact(self.each(|quota| Ok(Gcra::new(quota)))?),
            LimitKind::TokenBucket => self.compact(self.each(|quota| Ok(TokenBucket::new(quota)))?),
            LimitKind::LeakyBucketMeter => self.compact(self.each(|quota| Ok(LeakyBucketMeter::new(quota)))?),
            LimitKind::FixedWindow => self.window(self.each(FixedWindow::try_new)?),
            LimitKind::SlidingWindow { strict } => self.window(self.each(|quota| {
                let window = SlidingWindow::try_new(quota)?;
                Ok(if strict { window.strict() } else { window })
            })?),
            _ => self.any(),
        }
    }

    /// Runs any algorithm in the keyed store, which holds all of them.
    fn any(&self) -> Replayed {
        let build = |quota| {
            let limit = Limit::try_new(self.algorithm, quota)?;
            RateLimiter::any(limit).clock(ManualClock::default()).hasher(hasher()).build(StoreKind::Keyed)
        };
        let limiters: Vec<AnyLimiter<u32, ManualClock, Hasher>> = self.each(build)?;
        Ok(self.through(&limiters, None::<Ledger<Gcra>>, |_| {}, |_, _| {}))
    }

    /// Runs an algorithm in the keyed store.
    fn keyed<A: Algorithm>(&self, algorithms: Vec<A>) -> Replayed {
        Ok(self.through(&limiters::keyed(algorithms), None::<Ledger<A>>, |_| {}, |_, _| {}))
    }

    /// Runs an algorithm that the compact store holds too.
    fn compact<A: CompactAlgorithm>(&self, algorithms: Vec<A>) -> Replayed {
        let Storage { store: StoreKind::Compact, memory, overflow } = self.setup.storage else {
            return self.keyed(algorithms);
        };
        let clock = ManualClock::default();
        let (ledger, share) = (self.ledger(&algorithms), memory.share(algorithms.len()));
        let build = |algorithm| {
            let builder =
                RateLimiter::builder(algorithm).clock(clock.clone()).hasher(hasher()).capacity(share);
            match overflow {
                Some(overflow) => builder.overflow(overflow),
                None => builder,
            }
            .compact()
        };
        let limiters = algorithms.into_iter().map(build).collect::<Result<Vec<_>, _>>()?;
        let slots: usize = limiters.iter().map(|limiter| limiter.gauges().slots).sum();
        let looks = self.trace.records.len().div_ceil(STRIDE);
        let stride = looks.div_ceil((COUNTED / slots).max(1));
        let mut peak_live_slots = 0;
        let looked = |look, now| {
            if look % stride == 0 {
                clock.set(now);
                peak_live_slots =
                    peak_live_slots.max(limiters.iter().map(|limiter| limiter.live_slots()).sum());
            }
        };
        let (tally, mut figures) = self.through(&limiters, ledger, |_| {}, looked);
        let compact = &mut figures.compact;
        compact.peak_live_slots = peak_live_slots as u64;
        for gauges in limiters.iter().map(|limiter| limiter.gauges()) {
            compact.slots += gauges.slots as u64;
            compact.evicted += gauges.evicted;
            compact.indebted += gauges.indebted;
            compact.denied_for_debt += gauges.denied_for_debt;
            compact.retreats += gauges.retreats;
            compact.raced += gauges.raced;
        }
        Ok((tally, figures))
    }

    /// Runs an algorithm that every store holds.
    fn window<A: WindowAlgorithm>(&self, algorithms: Vec<A>) -> Replayed {
        let Storage { store: StoreKind::Sketch, memory, .. } = self.setup.storage else {
            return self.compact(algorithms);
        };
        let clock = ManualClock::default();
        let (ledger, share) = (self.ledger(&algorithms), memory.share(algorithms.len()));
        let build = |algorithm| {
            RateLimiter::builder(algorithm).clock(clock.clone()).hasher(hasher()).capacity(share).sketch()
        };
        let limiters = algorithms.into_iter().map(build).collect::<Result<Vec<_>, _>>()?;
        let ends = ledger.as_ref().map(|_| windows::ends(&self.trace.records, self.quotas, LOOKS));
        let mut ends = ends.unwrap_or_default().into_iter().peekable();
        let (mut number, mut latest_ns, mut worst) = (0, 0, Saturation::default());
        let decided = |record: &Record| {
            number += 1;
            latest_ns = latest_ns.max(record.at);
            if ends.next_if_eq(&number).is_some() {
                clock.set(Timestamp::from_nanos(latest_ns));
                for seen in limiters.iter().map(|limiter| limiter.saturation()) {
                    worst.false_positive = worst.false_positive.max(seen.false_positive);
                    worst.overcounted = worst.overcounted.max(seen.overcounted);
                    worst.denied = worst.denied.max(seen.denied);
                }
            }
        };
        let (tally, figures) = self.through(&limiters, ledger, decided, |_, _| {});
        Ok((tally, StoreFigures { saturation: worst, ..figures }))
    }

    /// Builds an algorithm for each limit.
    fn each<A>(&self, build: impl Fn(Quota) -> Result<A, QuotaError>) -> Result<Vec<A>, QuotaError> {
        self.quotas.iter().map(|&quota| build(quota)).collect()
    }

    /// Builds the parallel keyed store, if one is wanted.
    fn ledger<A: Algorithm>(&self, algorithms: &[A]) -> Option<Ledger<A>> {
        self.setup.with_exact_store.then(|| Ledger::new(algorithms.to_vec()))
    }

    /// Runs the loop over the records. It calls `decided` for each decision. At regular samples it calls `looked` with
    /// the number of decisions so far and the time.
    fn through<L: NumberLimiter, A: Algorithm>(
        &self,
        limiters: &[L],
        mut ledger: Option<Ledger<A>>,
        mut decided: impl FnMut(&Record),
        mut looked: impl FnMut(usize, Timestamp),
    ) -> (ReplayTally, StoreFigures) {
        let mut tally = ReplayTally {
            decisions: Decisions::with_capacity(self.trace.records.len()),
            denied_by_key: vec![0; self.trace.keys.len()],
            refused: vec![0; limiters.len()],
            state_bytes: 0,
        };
        for (look, records) in (1..).zip(strides(self.trace, self.progress)) {
            let mut now = 0;
            for record in records {
                let decision = L::decide(limiters, record);
                tally.decisions.add(decision.err().map(|denial| denial.wait));
                if let Err(Denial { by, .. }) = decision {
                    tally.refused[by] += 1;
                    tally.denied_by_key[record.key as usize] += 1;
                }
                if let Some(ledger) = &mut ledger {
                    ledger.enter(record, decision.is_ok());
                }
                decided(record);
                now = record.at;
            }
            looked(look, Timestamp::from_nanos(now));
            let bytes: usize = limiters.iter().map(L::bytes).sum();
            tally.state_bytes = tally.state_bytes.max(bytes as u64);
        }
        let differences = ledger.map_or_else(Differences::default, |ledger| ledger.differences);
        (tally, StoreFigures { differences, ..StoreFigures::default() })
    }
}
