//! The cost of a *turn*, the change from one window to the next. This bench times single events near turns and away
//! from turns.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tollgate::Clock;

use crate::rates;
use crate::support::stopwatch;

/// The windows are short, so that there are many turns.
const WINDOW: Duration = Duration::from_millis(10);
/// An event from `BEFORE` before a turn to `AFTER` after it counts as near. The peer's clock is known only to within
/// `BEFORE`.
const BEFORE: Duration = Duration::from_micros(20);
const AFTER: Duration = Duration::from_micros(100);
/// The reported quantile. With about a thousand events near each turn, it is the time of the slowest event in about one
/// of ten turns.
const WORST: f64 = 0.9999;

/// A rate that reports its position in the window.
trait Turning: Sync {
    fn observe(&self, key: u64);
    /// Returns the time since the last turn.
    fn since_turn(&self) -> Duration;
}

struct Ours {
    rate: tollgate::sketch::Rate<tollgate::DefaultClock>,
    clock: tollgate::DefaultClock,
}

impl Ours {
    /// Touches the pages before the measurement, as the peer does in its constructor.
    fn new(bytes: usize, keys: &[u64]) -> Self {
        let clock = tollgate::DefaultClock::new();
        let rate = tollgate::sketch::Rate::builder(WINDOW).memory(bytes).clock(clock.clone()).build();
        let ours = Self { rate: rate.expect("the configuration is valid"), clock };
        let start = stopwatch();
        while start.elapsed() < 4 * WINDOW {
            keys.iter().for_each(|&key| ours.observe(key));
        }
        ours
    }
}

impl Turning for Ours {
    #[inline(always)]
    fn observe(&self, key: u64) {
        std::hint::black_box(self.rate.observe(&key, 1));
    }

    fn since_turn(&self) -> Duration {
        let window = u64::try_from(WINDOW.as_nanos()).expect("milliseconds");
        Duration::from_nanos(self.clock.now().as_nanos() % window)
    }
}

/// The peer. Its window turns with the first call that finds the window's whole milliseconds over. The next window
/// begins with the millisecond of that call. `since_turn` repeats this calculation.
struct Pingora {
    rate: pingora_limits::rate::Rate,
    start: Instant,
    turned_ms: AtomicU64,
}

impl Pingora {
    /// In its first second, the peer panics if two threads meet at a turn (`assertion failed: new >= now - 1000`). One
    /// thread alone uses the peer during that second.
    fn new(bytes: usize) -> Self {
        let rate = rates::pingora(WINDOW, rates::columns(bytes));
        // The peer reads its clock at the end of its constructor.
        let pingora = Self { rate, start: stopwatch(), turned_ms: AtomicU64::new(0) };
        while pingora.start.elapsed() < Duration::from_millis(1_100) {
            pingora.since_turn();
            pingora.observe(0);
        }
        pingora
    }
}

impl Turning for Pingora {
    #[inline(always)]
    fn observe(&self, key: u64) {
        std::hint::black_box(self.rate.observe(&key, 1));
    }

    fn since_turn(&self) -> Duration {
        let elapsed = self.start.elapsed();
        let whole = |span: Duration| u64::try_from(span.as_millis()).expect("the time is a few seconds");
        let now_ms = whole(elapsed);
        if now_ms - self.turned_ms.load(Ordering::Relaxed) >= whole(WINDOW) {
            self.turned_ms.store(now_ms, Ordering::Relaxed);
        }
        elapsed - Duration::from_millis(self.turned_ms.load(Ordering::Relaxed))
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds")
}

/// The events of one subject.
pub(crate) struct Turns {
    pub(crate) name: &'static str,
    pub(crate) bytes: usize,
    pub(crate) threads: usize,
    pub(crate) near: Histogram<u64>,
    pub(crate) away: Histogram<u64>,
}

impl Turns {
    /// Returns the lower bound of the slowest 0.01 %, in nanoseconds. Above it, interruptions by the operating system
    /// dominate.
    fn worst(histogram: &Histogram<u64>) -> f64 {
        crate::summary::float(histogram.value_at_quantile(WORST))
    }

    /// Returns the ratio of this subject's slowest events near turns to those of another subject.
    pub(crate) fn against(&self, other: &Self) -> f64 {
        Self::worst(&self.near) / Self::worst(&other.near)
    }

    /// Returns the ratio of the slowest events near turns to the slowest events away from turns.
    pub(crate) fn ratio(&self) -> f64 {
        Self::worst(&self.near) / Self::worst(&self.away)
    }

    pub(crate) fn print(&self) {
        for (place, histogram) in [("near a turn", &self.near), ("away", &self.away)] {
            println!(
                "{:<10} {:>9} B {} thread(s) {:<12} {:>10} {:>8.1} {:>8} {:>8} {:>8} {:>12.0} {:>10}",
                self.name,
                self.bytes,
                self.threads,
                place,
                histogram.len(),
                histogram.mean(),
                histogram.value_at_quantile(0.5),
                histogram.value_at_quantile(0.99),
                histogram.value_at_quantile(0.999),
                Self::worst(histogram),
                histogram.max(),
            );
        }
        println!("{:<34} ratio of p99.99 near a turn to p99.99 away: {:.2}", "", self.ratio());
    }

    pub(crate) fn json(&self) -> Value {
        let place = |histogram: &Histogram<u64>| {
            json!({
                "events": histogram.len(), "mean_ns": histogram.mean(),
                "p50_ns": histogram.value_at_quantile(0.5),
                "p99_ns": histogram.value_at_quantile(0.99), "p99.9_ns": histogram.value_at_quantile(0.999),
                "p99.99_ns": Self::worst(histogram), "max_ns": histogram.max(),
            })
        };
        json!({
            "subject": self.name, "bytes": self.bytes, "threads": self.threads,
            "near": place(&self.near), "away": place(&self.away), "ratio": self.ratio(),
        })
    }
}

/// Times single events for a while on one thread. Other threads may count at the same time.
fn time(subject: &impl Turning, threads: usize, keys: &[u64], span: Duration, turns: &mut Turns) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| {
                for &key in keys.iter().cycle() {
                    subject.observe(key);
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        let (clock, start) = (quanta::Clock::new(), stopwatch());
        'all: loop {
            for keys in keys.chunks(256) {
                for &key in keys {
                    let since = subject.since_turn();
                    let before = clock.raw();
                    subject.observe(key);
                    let ns = clock.delta_as_nanos(before, clock.raw());
                    let is_near = since < AFTER || since + BEFORE > WINDOW;
                    let into = if is_near { &mut turns.near } else { &mut turns.away };
                    into.saturating_record(ns);
                }
                if start.elapsed() > span {
                    break 'all;
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

const ROUNDS: u32 = 4;

/// Measures both subjects in turn, with two sizes, with one thread and with two.
pub(crate) fn run(span: Duration) -> Vec<Turns> {
    let keys = rates::hot();
    let mut all = Vec::new();
    for (bytes, threads) in [(rates::SMALL, 1), (rates::SMALL, 2), (4 << 20, 1), (4 << 20, 2)] {
        let new = |name| Turns { name, bytes, threads, near: histogram(), away: histogram() };
        let (mut ours, mut peer) = (new("Rate"), new("pingora"));
        let our_rate = Ours::new(bytes, &keys);
        for _ in 0..ROUNDS {
            time(&our_rate, threads, &keys, span / ROUNDS, &mut ours);
            // Builds the peer again, because its turns would drift with each pause.
            let pingora = Pingora::new(bytes);
            time(&pingora, threads, &keys, span / ROUNDS, &mut peer);
        }
        all.extend([ours, peer]);
    }
    all
}
