//! What a window's turn costs: single events timed near turns, and away from them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tollgate::Clock;

use crate::rates;
use crate::support::stopwatch;

/// Windows are short, so that there are many turns.
const WINDOW: Duration = Duration::from_millis(10);
/// So long before a turn an event is near it, since the peer's clock is known to within that; and so long after it.
const BEFORE: Duration = Duration::from_micros(20);
const AFTER: Duration = Duration::from_micros(100);
/// The share of events that is looked at: with some thousand events near each turn, about as many as there are turns.
const WORST: f64 = 0.0001;

/// A rate, and where it stands in its window.
trait Turning: Sync {
    fn observe(&self, key: u64);
    /// The time since the last turn.
    fn since_turn(&self) -> Duration;
}

struct Ours {
    rate: tollgate::sketch::Rate<tollgate::QuantaClock>,
    clock: tollgate::QuantaClock,
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

/// Its windows begin when it is made, and turn with the first call of a later one: beside a thread that calls all the time,
/// on time.
struct Pingora {
    rate: pingora_limits::rate::Rate,
    start: Instant,
}

impl Pingora {
    /// In its first second it panics if two threads meet at a turn (`assertion failed: new >= now - 1000`), so that is spent alone.
    fn new(bytes: usize) -> Self {
        let pingora = Self { start: stopwatch(), rate: rates::pingora(WINDOW, rates::columns(bytes)) };
        while pingora.start.elapsed() < Duration::from_millis(1_100) {
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
        let nanos = self.start.elapsed().as_nanos() % WINDOW.as_nanos();
        Duration::from_nanos(u64::try_from(nanos).expect("milliseconds"))
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds")
}

/// One subject's events.
pub(crate) struct Turns {
    pub(crate) name: &'static str,
    pub(crate) bytes: usize,
    pub(crate) threads: usize,
    pub(crate) near: Histogram<u64>,
    pub(crate) away: Histogram<u64>,
}

impl Turns {
    /// The mean of the worst events.
    fn worst(histogram: &Histogram<u64>) -> f64 {
        let from = histogram.value_at_quantile(1.0 - WORST);
        let (mut sum, mut events) = (0.0, 0.0);
        for value in histogram.iter_recorded().filter(|value| value.value_iterated_to() >= from) {
            let count = crate::summary::float(value.count_at_value());
            sum += crate::summary::float(value.value_iterated_to()) * count;
            events += count;
        }
        sum / f64::max(events, 1.0)
    }

    /// The worst events near turns over the worst away from them.
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
        println!("{:<34} worst near over worst away: {:.2}", "", self.ratio());
    }

    pub(crate) fn json(&self) -> Value {
        let place = |histogram: &Histogram<u64>| {
            json!({
                "events": histogram.len(), "mean_ns": histogram.mean(), "p50_ns": histogram.value_at_quantile(0.5),
                "p99_ns": histogram.value_at_quantile(0.99), "p99.9_ns": histogram.value_at_quantile(0.999),
                "worst_0.01_percent_mean_ns": Self::worst(histogram), "max_ns": histogram.max(),
            })
        };
        json!({
            "subject": self.name, "bytes": self.bytes, "threads": self.threads,
            "near": place(&self.near), "away": place(&self.away), "ratio": self.ratio(),
        })
    }
}

/// Times events one by one for a while, on one thread; another may count beside it.
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

/// Ours and the peer in turns, of two sizes, alone and beside another thread.
pub(crate) fn run(span: Duration) -> Vec<Turns> {
    let keys = rates::hot();
    let mut all = Vec::new();
    for (bytes, threads) in [(rates::SMALL, 1), (rates::SMALL, 2), (4 << 20, 1), (4 << 20, 2)] {
        let new = |name| Turns { name, bytes, threads, near: histogram(), away: histogram() };
        let (mut ours, mut peer) = (new("Rate"), new("pingora"));
        let clock = tollgate::QuantaClock::new();
        let rate = tollgate::sketch::Rate::builder(WINDOW).memory(bytes).clock(clock.clone()).build();
        let our_rate = Ours { rate: rate.expect("it fits"), clock };
        for _ in 0..ROUNDS {
            time(&our_rate, threads, &keys, span / ROUNDS, &mut ours);
            // Anew, or its turns would wander off with each pause.
            let pingora = Pingora { start: stopwatch(), rate: rates::pingora(WINDOW, rates::columns(bytes)) };
            time(&pingora, threads, &keys, span / ROUNDS, &mut peer);
        }
        all.extend([ours, peer]);
    }
    all
}
