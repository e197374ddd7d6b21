//! How a figure is made: subjects take turns, round after round, on the same keys in the same order.
//!
//! * A [`Subject`] is monomorphised into its loop; dynamic dispatch happens once per turn, never per check.
//! * Keys come from a stream drawn before the turn, so that drawing costs every subject the same 1/8 line a check.
//! * Rounds are interleaved (A B C, B C A, …), so that slow drift of the machine falls on everyone. Ratios are
//!   taken within a round, and their median is reported: drift and neighbours cancel out of them.
//! * A turn during which the scheduler kept a ready thread waiting for more than 1 % of the time is measured
//!   again, up to [`TRIES`] times, and the least disturbed try counts. What remains is reported.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::support::{XorShift, count, key, length, stopwatch, write_text};

/// How often a disturbed turn is tried before the least disturbed try is taken.
const TRIES: usize = 5;

/// What every check of a turn must answer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Expect {
    /// All admitted: 1 a minute for each key, and a burst that is never used up. Keys owe all along, as busy
    /// clients do.
    Allowed,
    /// All admitted: 1 M a second for each key and a large burst, so that where there are many keys each has paid
    /// back before it comes again. Stores that forget idle keys may forget it in between.
    AllowedIdle,
    /// Limits that the priming check of each key has used up for an hour.
    Denied,
}

/// What a subject is built for.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) population: u64,
    pub(crate) expect: Expect,
}

/// A quota that every subject can express: `rate` units in each `period`, `burst` at once.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) rate: u32,
    pub(crate) period: Duration,
    pub(crate) burst: u32,
}

impl Expect {
    pub(crate) fn terms(self) -> Terms {
        match self {
            Self::Allowed => Terms { rate: 1, period: Duration::from_secs(60), burst: 10_000_000 },
            Self::AllowedIdle => Terms { rate: 1_000_000, period: Duration::from_secs(1), burst: 10_000_000 },
            Self::Denied => Terms { rate: 1, period: Duration::from_secs(3600), burst: 1 },
        }
    }
}

impl Terms {
    /// The time for one unit.
    pub(crate) fn interval(self) -> Duration {
        self.period / self.rate
    }
}

/// One limiter under measurement.
pub(crate) trait Subject<K>: Sync {
    /// One check of cost 1: whether it was admitted.
    fn check(&self, key: &K) -> bool;

    /// Checks all of `keys` in order; how many were admitted. Only batch APIs override this.
    #[inline(always)]
    fn check_all(&self, keys: &[K]) -> u64 {
        keys.iter().map(|key| u64::from(self.check(key))).sum()
    }
}

/// A [`Subject`] behind one dynamic call a turn.
pub(crate) trait Contender<K>: Sync {
    /// Runs `checks` checks over `keys`, again and again from the start; how many were admitted.
    fn run(&self, keys: &[K], checks: u64) -> u64;
}

impl<K, S: Subject<K>> Contender<K> for S {
    #[inline(never)]
    fn run(&self, keys: &[K], checks: u64) -> u64 {
        let mut left = length(checks);
        let mut admitted = 0;
        while left > 0 {
            let pass = &keys[..left.min(keys.len())];
            admitted += self.check_all(pass);
            left -= pass.len();
        }
        admitted
    }
}

/// How to build a subject, and what its figure counts.
pub(crate) struct Recipe<K> {
    pub(crate) name: &'static str,
    pub(crate) counts: &'static str,
    pub(crate) build: fn(Setup) -> Box<dyn Contender<K>>,
}

/// A key type that streams can be made of.
pub(crate) trait Key: Clone + Sync + Send + 'static {
    const KIND: &'static str;
    fn numbered(number: u64) -> Self;
    /// Overwrites in place, so that a stream of strings keeps its allocations in order.
    fn renumber(&mut self, number: u64);
}

impl Key for u64 {
    const KIND: &'static str = "u64";
    fn numbered(number: u64) -> Self {
        key(number)
    }
    fn renumber(&mut self, number: u64) {
        *self = key(number);
    }
}

impl Key for String {
    const KIND: &'static str = "24-byte strings";
    fn numbered(number: u64) -> Self {
        crate::support::text(number)
    }
    fn renumber(&mut self, number: u64) {
        write_text(number, self);
    }
}

/// One measured turn.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Sample {
    /// Wall time × threads / checks of all threads.
    pub(crate) ns: f64,
    /// Millions of checks a second, of all threads together.
    pub(crate) mops: f64,
    /// Share of the threads' time spent ready but not running.
    pub(crate) delayed: f64,
}

struct Turn {
    start: Instant,
    end: Instant,
    admitted: u64,
    delayed_ns: u64,
}

/// Nanoseconds this thread has been ready to run while another ran in its place; 0 where Linux does not tell.
fn delayed_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Lets threads go at the same time: they spin, since a thread that must first be woken starts late.
struct Gate {
    missing: AtomicUsize,
}

impl Gate {
    fn new(threads: usize) -> Self {
        Self { missing: AtomicUsize::new(threads) }
    }

    fn wait(&self) {
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

/// One turn on as many threads as there are streams, `checks` checks each.
fn sample_once<K: Key>(
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
        Expect::Denied => assert_eq!(admitted, 0, "a denied row admitted something"),
        Expect::Allowed | Expect::AllowedIdle => {
            assert_eq!(admitted, total, "an allowed row denied something");
        }
    }
    let start = turns.iter().map(|turn| turn.start).min().expect("at least one thread");
    let end = turns.iter().map(|turn| turn.end).max().expect("at least one thread");
    let wall = (end - start).as_secs_f64();
    let (threads, total) = (float(threads), float(total));
    let delayed = float(turns.iter().map(|turn| turn.delayed_ns).sum()) / 1e9 / (wall * threads);
    Sample { ns: wall * 1e9 * threads / total, mops: total / wall / 1e6, delayed }
}

fn sample<K: Key>(contender: &dyn Contender<K>, streams: &[Vec<K>], checks: u64, expect: Expect) -> Sample {
    let mut best = sample_once(contender, streams, checks, expect);
    for _ in 1..TRIES {
        if best.delayed < 0.01 {
            break;
        }
        let again = sample_once(contender, streams, checks, expect);
        if again.delayed < best.delayed {
            best = again;
        }
    }
    best
}

/// Nanoseconds that a modified cache line takes from one core to another, by handing one to and fro.
///
/// On virtual machines this changes while a bench runs, as the host moves the virtual processors nearer together
/// or further apart, and the two-thread figures change with it.
fn transfer_ns() -> f64 {
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
        // The best batch: in the others a thread may have lost its processor to other work.
        Summary::of(batches).min
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| play(1));
        play(0).min(other.join().expect("a bench thread panicked"))
    })
}

/// A number for a ratio; exact below 2^53.
pub(crate) fn float(number: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts here stay far below 2^53")]
    let float = number as f64;
    float
}

/// Order statistics over the rounds.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Summary {
    pub(crate) min: f64,
    pub(crate) q1: f64,
    pub(crate) median: f64,
    pub(crate) q3: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Of at least one value, none of them NaN.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |quarter: usize| {
            // Linear interpolation between the two neighbours.
            let scaled = quarter * (sorted.len() - 1);
            let (low, rest) = (scaled / 4, scaled % 4);
            let high = sorted[(low + 1).min(sorted.len() - 1)];
            sorted[low] + (high - sorted[low]) * float(count(rest)) / 4.0
        };
        Self { min: at(0), q1: at(1), median: at(2), q3: at(3), max: at(4) }
    }
}

/// All rounds of one subject in one scenario.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) counts: &'static str,
    pub(crate) samples: Vec<Sample>,
}

impl Row {
    pub(crate) fn ns(&self) -> Summary {
        Summary::of(self.samples.iter().map(|sample| sample.ns))
    }

    pub(crate) fn mops(&self) -> Summary {
        Summary::of(self.samples.iter().map(|sample| sample.mops))
    }

    /// The mean share of time that the scheduler took away.
    pub(crate) fn delayed(&self) -> f64 {
        self.samples.iter().map(|sample| sample.delayed).sum::<f64>() / float(count(self.samples.len()))
    }

    /// This row's time over `base`'s, round by round.
    pub(crate) fn ratio(&self, base: &Row) -> Summary {
        Summary::of(self.samples.iter().zip(&base.samples).map(|(own, base)| own.ns / base.ns))
    }
}

/// One table: the same load on several subjects.
pub(crate) struct Scenario {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// Distinct keys.
    pub(crate) population: u64,
    pub(crate) expect: Expect,
    pub(crate) threads: &'static [usize],
    /// Checks per thread and turn.
    pub(crate) checks: u64,
    pub(crate) rounds: usize,
    /// The rows that ratios are taken against.
    pub(crate) floor: &'static str,
    pub(crate) governor: &'static str,
}

/// A scenario's rows on one number of threads.
pub(crate) struct Table {
    pub(crate) scenario: &'static str,
    pub(crate) title: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) population: u64,
    pub(crate) expect: Expect,
    pub(crate) threads: usize,
    pub(crate) floor: &'static str,
    pub(crate) governor: &'static str,
    /// What a cache line took between two cores before each round, if there were two threads.
    pub(crate) transfer_ns: Option<Summary>,
    pub(crate) rows: Vec<Row>,
}

impl Table {
    pub(crate) fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }
}

impl Scenario {
    /// Builds every subject, shows it every key once, and measures it on each number of threads.
    pub(crate) fn run<K: Key>(&self, recipes: &[Recipe<K>], done: &mut dyn FnMut(Table)) {
        let setup = Setup { population: self.population, expect: self.expect };
        let contenders: Vec<Box<dyn Contender<K>>> =
            recipes.iter().map(|recipe| (recipe.build)(setup)).collect();
        for contender in &contenders {
            for_each_chunk(self.population, |keys: &[K]| {
                contender.run(keys, count(keys.len()));
            });
        }
        for &threads in self.threads {
            let mut rows: Vec<Row> = recipes
                .iter()
                .map(|recipe| Row { name: recipe.name, counts: recipe.counts, samples: Vec::new() })
                .collect();
            // A stream at least as long as a turn where keys are many (each is then met at its natural
            // rate), and one that stays in the second-level cache where they are few.
            let len = if self.population <= 10_000 { self.checks.min(1 << 14) } else { self.checks };
            let mut streams: Vec<Vec<K>> =
                (0..threads).map(|_| (0..len).map(|_| K::numbered(0)).collect()).collect();
            let mut transfers = Vec::new();
            for round in 0..=self.rounds {
                if threads > 1 {
                    transfers.push(transfer_ns());
                }
                for (thread, stream) in streams.iter_mut().enumerate() {
                    let mut rng = XorShift::new(count(round * 64 + thread));
                    for slot in stream.iter_mut() {
                        slot.renumber(rng.below(self.population));
                    }
                }
                for turn in 0..rows.len() {
                    let index = (turn + round) % rows.len();
                    let sample = sample(&*contenders[index], &streams, self.checks, self.expect);
                    // Round 0 warms up.
                    if round > 0 {
                        rows[index].samples.push(sample);
                    }
                }
            }
            done(Table {
                scenario: self.id,
                title: self.title,
                kind: K::KIND,
                population: self.population,
                expect: self.expect,
                threads,
                floor: self.floor,
                governor: self.governor,
                transfer_ns: (!transfers.is_empty()).then(|| Summary::of(transfers)),
                rows,
            });
        }
    }
}

/// Hands out the keys 0 to `population` in order, in pieces that add no memory of note.
pub(crate) fn for_each_chunk<K: Key>(population: u64, mut visit: impl FnMut(&[K])) {
    let mut chunk: Vec<K> = (0..population.min(4096)).map(K::numbered).collect();
    let mut next = 0;
    while next < population {
        let len = length((population - next).min(4096));
        for (slot, number) in chunk[..len].iter_mut().zip(next..) {
            slot.renumber(number);
        }
        visit(&chunk[..len]);
        next += 4096;
    }
}
