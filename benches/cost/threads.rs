//! One hot key, a thousand keys and a million keys on several threads, and the parts of a model of more cores.
//!
//! The model gives the time of a check of the compact store on `T` cores. It is the larger of two times:
//!
//! * the time on one core, and a *fetch* if another core wrote the line last. Each core writes it equally often, so the
//!   probability of that is `(T - 1) / T`. It is smaller if a core's caches do not hold all lines, because a line that
//!   has left them comes from memory on one core too;
//! * the queue at one line: `T` *exchanges*, divided by the number of lines between which the keys are spread.
//!
//! Both parts are measured without a limiter, by calls that read the counter of the processor and exchange a word. This
//! is what a check cannot leave out. The exchange is the time between the calls of two cores on one word. The fetch is
//! what the second core adds if the words are spread like a thousand keys: with two cores, half of the words were
//! written by the other core, so a fetch is twice the added time.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::limiters::{COMPACT, GOVERNOR, KEYED, Limiter, PLENTY, SLOW, call, turn};
use crate::subject::{Contender, Terms};
use crate::support::{XorShift, count, key};
use crate::turn::transfer_ns;
use crate::{Point, Scale};

const THREADS: [usize; 4] = [1, 2, 4, 8];
const CALLS: u64 = 500_000;
/// Slots of a compact table in one cache line.
const SLOTS_IN_LINE: u64 = 8;

struct Load {
    chart: &'static str,
    keys: u64,
    terms: Terms,
}

const LOADS: [Load; 3] = [
    Load { chart: "threads, one hot key", keys: 1, terms: PLENTY },
    Load { chart: "threads, 1,000 keys", keys: 1_000, terms: SLOW },
    Load { chart: "threads, 1 M keys", keys: 1_000_000, terms: SLOW },
];

/// A limiter with a load, and its times: round by round, for each number of threads.
struct Seat {
    load: &'static Load,
    limiter: Limiter,
    contender: Box<dyn Contender<u64>>,
    ns: [Vec<f64>; 4],
}

impl Seat {
    fn new(load: &'static Load, limiter: Limiter) -> Self {
        let contender = (limiter.build)(load.keys, load.terms);
        let keys: Vec<u64> = (0..load.keys).map(key).collect();
        assert_eq!(contender.run(&keys, load.keys), load.keys);
        Self { load, limiter, contender, ns: Default::default() }
    }

    fn round(&mut self, round: usize, calls: u64) {
        for (threads, ns) in THREADS.into_iter().zip(&mut self.ns) {
            let streams: Vec<Vec<u64>> =
                (0..threads).map(|thread| stream(self.load.keys, round * 8 + thread, calls)).collect();
            let time = turn(&*self.contender, &streams, calls);
            // Round 0 only warms up.
            if round > 0 {
                ns.push(time);
            }
        }
    }
}

/// Draws the keys of one thread's turn. With few keys, they fit in the second-level cache.
fn stream(keys: u64, seed: usize, calls: u64) -> Vec<u64> {
    let mut random = XorShift::new(count(seed));
    let len = if keys <= 10_000 { calls.min(1 << 14) } else { calls };
    (0..len).map(|_| key(random.below(keys))).collect()
}

/// Returns the size of the caches that one core has for itself, or 1 MiB if the system does not show it.
fn own_cache() -> u64 {
    let path = "/sys/devices/system/cpu/cpu0/cache/index2/size";
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().strip_suffix('K').and_then(|kib| kib.parse::<u64>().ok()).map_or(1 << 20, |kib| kib << 10)
}

/// The number of lines that hold the words of a load's keys.
fn lines(load: &Load) -> u64 {
    let slots = (load.keys.max(1_000) * 4).next_power_of_two();
    (slots / SLOTS_IN_LINE).min(load.keys)
}

#[repr(align(64))]
struct Line(AtomicU64);

/// A call reads the counter, and then reads and exchanges the word of one of the lines, which the key chooses.
fn words(lines: u64) -> Box<dyn Contender<u64>> {
    let lines: Vec<Line> = (0..lines).map(|_| Line(AtomicU64::new(0))).collect();
    let (mask, clock) = (lines.len() - 1, quanta::Clock::new());
    assert!(lines.len().is_power_of_two());
    call(move |key: &u64| {
        #[expect(clippy::cast_possible_truncation, reason = "the mask takes the low bits")]
        let Line(word) = &lines[*key as usize & mask];
        let now = clock.raw();
        let mut seen = word.load(Ordering::Relaxed);
        // The counter grows, but the cores may read it in another order than they exchange the word.
        while let Err(other) =
            word.compare_exchange_weak(seen, seen.max(now) + 1, Ordering::Relaxed, Ordering::Relaxed)
        {
            seen = other;
        }
        true
    })
}

/// The times of the parts that are no checks, round by round.
#[derive(Default)]
struct Parts {
    transfer: Vec<f64>,
    /// One word, on one core and on two.
    one: [Vec<f64>; 2],
    /// The words of a thousand keys, on one core and on two.
    spread: [Vec<f64>; 2],
}

impl Parts {
    fn round(&mut self, round: usize, [one, spread]: [&dyn Contender<u64>; 2], calls: u64) {
        self.transfer.push(transfer_ns());
        for (words, times, keys) in [(one, &mut self.one, 1), (spread, &mut self.spread, 1_000)] {
            let streams = [0, 1].map(|thread| stream(keys, round * 8 + thread, calls));
            times[0].push(turn(words, &streams[..1], calls));
            times[1].push(turn(words, &streams, calls));
        }
    }

    fn json(&self, seats: &[Seat]) -> Value {
        let loads: Vec<Value> = seats
            .iter()
            .filter(|seat| seat.limiter.name == COMPACT.name)
            .map(|seat| {
                json!({
                    "load": seat.load.chart, "keys": seat.load.keys, "lines": lines(seat.load),
                    "alone_ns": seat.ns[0], "two_ns": seat.ns[1],
                })
            })
            .collect();
        let fetch: Vec<f64> =
            self.spread[0].iter().zip(&self.spread[1]).map(|(alone, two)| 2.0 * (two - alone)).collect();
        let exchange: Vec<f64> = self.one[1].iter().map(|two| two / 2.0).collect();
        json!({
            "cores": std::thread::available_parallelism().map_or(1, usize::from), "own_cache": own_cache(),
            "transfer_ns": self.transfer, "exchange_alone_ns": self.one[0], "exchange_ns": exchange,
            "fetch_ns": fetch, "loads": loads,
        })
    }
}

/// Returns the points of the charts, and the parts of the model.
pub(crate) fn run(scale: Scale) -> (Vec<Point>, Value) {
    let calls = CALLS / scale.divisor;
    let (one, spread) = (words(lines(&LOADS[0])), words(lines(&LOADS[1])));
    let mut parts = Parts::default();
    let mut seats: Vec<Seat> = LOADS
        .iter()
        .filter(|load| load.keys <= scale.most_keys)
        .flat_map(|load| [COMPACT, KEYED, GOVERNOR].map(|limiter| Seat::new(load, limiter)))
        .collect();
    for round in 0..=scale.rounds {
        if round > 0 {
            parts.round(round, [&*one, &*spread], calls);
        }
        seats.iter_mut().for_each(|seat| seat.round(round, calls));
    }
    let model = parts.json(&seats);
    let mut points = Vec::new();
    for seat in seats {
        for (threads, ns) in THREADS.into_iter().zip(seat.ns) {
            let (chart, subject, x) = (seat.load.chart, seat.limiter.name, count(threads));
            points.push(Point { chart, subject, x, ns, more: Value::Null });
        }
    }
    (points, model)
}
