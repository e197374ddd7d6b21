//! One turn of one subject, on one thread or on several threads that start together.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use crossbeam_utils::CachePadded;

use crate::subject::{Contender, Expect};
use crate::summary::{Summary, float};
use crate::support::{count, stopwatch};

/// One measured turn.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Sample {
    /// Wall time × threads / checks of all threads.
    pub(crate) ns: f64,
    /// Millions of checks per second, of all threads together.
    pub(crate) mops: f64,
    /// The share of the threads' time in which they were ready but did not run.
    pub(crate) delayed: f64,
}

struct Turn {
    start: Instant,
    end: Instant,
    admitted: u64,
    delayed_ns: u64,
}

/// Returns for how many nanoseconds this thread was ready to run but did not run, because another thread had its
/// processor. Returns 0 if the system does not report this time.
pub(crate) fn delayed_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Lets threads start at the same time. The threads spin, because a thread that must be woken starts late.
pub(crate) struct Gate {
    missing: AtomicUsize,
}

impl Gate {
    pub(crate) fn new(threads: usize) -> Self {
        Self { missing: AtomicUsize::new(threads) }
    }

    pub(crate) fn wait(&self) {
        self.missing.fetch_sub(1, Ordering::AcqRel);
        let mut spins = 0_u32;
        while self.missing.load(Ordering::Acquire) > 0 {
            spins += 1;
            if spins.is_multiple_of(1024) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

fn turn<K>(contender: &dyn Contender<K>, keys: &[K], checks: u64, gate: &Gate) -> Turn {
    gate.wait();
    let before = delayed_ns();
    let start = stopwatch();
    let admitted = contender.run(keys, checks);
    let end = stopwatch();
    Turn { start, end, admitted, delayed_ns: delayed_ns().saturating_sub(before) }
}

/// Runs one turn with one thread per stream. Each thread makes `checks` checks.
pub(crate) fn sample<K: Sync>(
    contender: &dyn Contender<K>,
    streams: &[Vec<K>],
    checks: u64,
    expect: Expect,
) -> Sample {
    let gate = Gate::new(streams.len());
    let turns: Vec<Turn> = if let [keys] = streams {
        vec![turn(contender, keys, checks, &gate)]
    } else {
        std::thread::scope(|scope| {
            let handles: Vec<_> =
                streams.iter().map(|keys| scope.spawn(|| turn(contender, keys, checks, &gate))).collect();
            handles.into_iter().map(|handle| handle.join().expect("a bench thread panicked")).collect()
        })
    };
    let threads = count(streams.len());
    let total = checks * threads;
    let admitted: u64 = turns.iter().map(|turn| turn.admitted).sum();
    match expect {
        Expect::Denied => assert_eq!(admitted, 0, "a check was admitted in a row that must deny all"),
        Expect::Allowed | Expect::AllowedIdle | Expect::AllowedWord => {
            assert_eq!(admitted, total, "a check was denied in a row that must admit all");
        }
        Expect::Mostly | Expect::Spent => {}
        Expect::Denying(percent) => {
            let (got, due) = (admitted * 100, total * (100 - percent));
            // The keys are drawn at random, so the share of denials varies. Only 0 % and 100 % are exact.
            let tolerance = if percent.is_multiple_of(100) { 0 } else { total * 5 };
            assert!(
                got.abs_diff(due) <= tolerance,
                "{percent} % should be denied, but {admitted} of {total} were admitted"
            );
        }
    }
    let start = turns.iter().map(|turn| turn.start).min().expect("at least one thread");
    let end = turns.iter().map(|turn| turn.end).max().expect("at least one thread");
    let wall = (end - start).as_secs_f64();
    let (threads, total) = (float(threads), float(total));
    let delayed = float(turns.iter().map(|turn| turn.delayed_ns).sum()) / 1e9 / (wall * threads);
    Sample { ns: wall * 1e9 * threads / total, mops: total / wall / 1e6, delayed }
}

/// The maximum number of tries for a disturbed turn.
const TRIES: usize = 5;

/// Repeats a turn of this many threads while the scheduler keeps them waiting, and returns the least disturbed sample.
/// If there are more threads than processors, some threads always wait, and the first sample is returned.
pub(crate) fn least_disturbed(threads: usize, mut measure: impl FnMut() -> Sample) -> Sample {
    let mut best = measure();
    let crowded = threads > std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 1..if crowded { 1 } else { TRIES } {
        if best.delayed < 0.01 {
            break;
        }
        let again = measure();
        if again.delayed < best.delayed {
            best = again;
        }
    }
    best
}

/// Measures the time, in nanoseconds, that a modified cache line takes from one core to another. Two threads pass one
/// line back and forth.
///
/// On virtual machines, this time changes during a run, because the host moves the virtual processors closer together
/// or farther apart. The figures of rows with two threads change with it.
pub(crate) fn transfer_ns() -> f64 {
    const TURNS: u64 = 20_000;
    const BATCH: u64 = 500;
    let (line, gate) = (CachePadded::new(AtomicU64::new(0)), Gate::new(2));
    let play = |parity: u64| {
        gate.wait();
        let mut start = stopwatch();
        let mut batches = Vec::new();
        for turn in (parity..TURNS).step_by(2) {
            let mut spins = 0_u32;
            while line.load(Ordering::Acquire) != turn {
                spins += 1;
                if spins.is_multiple_of(1 << 16) {
                    std::thread::yield_now();
                }
            }
            line.store(turn + 1, Ordering::Release);
            if turn % BATCH == parity && turn > parity {
                let now = stopwatch();
                batches.push((now - start).as_secs_f64() * 1e9 / float(BATCH));
                start = now;
            }
        }
        // Returns the fastest batch. In other batches, a thread may have lost its processor to other work.
        Summary::of(batches).min
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| play(1));
        play(0).min(other.join().expect("a bench thread panicked"))
    })
}
