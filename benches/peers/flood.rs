//! How long do the checks of honest keys take during a flood of unique keys?
//!
//! One thread checks [`HONEST_KEYS`] keys, drawn uniformly, [`HONEST_RATE`] times a second in total, and times each
//! check. All honest keys stay far below their limits. Another thread checks a new key [`FLOOD_RATE`] times a second.
//! At any time, more of these keys have debts than the stores have slots. The flood is the same for all subjects, as
//! far as they keep up with it (see "flood M/s"). One additional row gets as large a flood as one core can produce. In
//! each round, each subject is built twice: for a turn without the flood and for a turn with it. A turn starts with one
//! check of each honest key. With the flood, two new keys for each slot follow.
//!
//! * A time covers one check and the reading of one counter. The row `clock alone` shows the time of that reading and
//!   the machine's own interruptions. Both are part of every row, and nothing is subtracted. If a check starts late
//!   because the previous check took long, that delay does not count.
//! * Percentiles are per turn, and the table shows their medians over the rounds. On a virtual machine with few cores,
//!   p99.99 mostly shows the machine's interruptions.
//! * Ratios are per pair: a turn without the flood, followed at once by a turn with it. Other load on the machine that
//!   lasts for seconds slows both turns of a pair. Load that starts between the turns affects one pair of many. The
//!   table shows the median with its 95 % confidence interval by order statistics.
//! * "denied" is the share of honest checks that were denied. Each of these denials is wrong: a full store saves memory
//!   and sometimes denies. A store that forgets keys admits too much instead, which the table does not show.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use hdrhistogram::Histogram;

use crate::subject::{Expect, Setup, Subject};
use crate::summary::{Interval, Summary, float};
use crate::support::{XorShift, key};
use crate::turn::{Gate, delayed_ns, transfer_ns};

const HONEST_KEYS: u64 = 100_000;
const HONEST_RATE: u64 = 100_000;
const FLOOD_RATE: u64 = 2_000_000;
/// Slots of the compact store, and the maximum number of keys in stores that have such a cap.
const SLOTS: u64 = 1 << 18;
/// A number of unique keys that fills every store of limited size.
pub(crate) const FULL: u64 = 2 * SLOTS;
/// The reported percentiles, in percent.
pub(crate) const PERCENTILES: [f64; 4] = [50.0, 99.0, 99.9, 99.99];
/// The index of the percentile that has a target.
pub(crate) const P999: usize = 2;

/// A limiter that can be flooded.
pub(crate) trait Flooded: Sync {
    /// Checks some keys without timing them.
    fn show(&self, numbers: Range<u64>);
    /// Checks and times honest keys.
    fn honest(&self, checks: u64, seed: u64) -> Honest;
    /// Checks new keys until `stop` is true. Returns the number of checks.
    fn flood(&self, pace: Pace, first: u64, stop: &AtomicBool) -> u64;
}

/// The times and denials of the honest keys' checks in a turn.
pub(crate) struct Honest {
    times: Histogram<u64>,
    denied: u64,
    delayed_ns: u64,
}

/// Nanoseconds between checks. Zero means as fast as possible.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Pace(u64);

impl Pace {
    const fn a_second(rate: u64) -> Self {
        Self(1_000_000_000 / rate)
    }

    /// Spins until check `number` is due. A late check starts immediately.
    #[inline(always)]
    fn wait(self, clock: &quanta::Clock, start: u64, number: u64) {
        while clock.delta_as_nanos(start, clock.raw()) < number * self.0 {
            std::hint::spin_loop();
        }
    }
}

impl<S: Subject<u64>> Flooded for S {
    fn show(&self, numbers: Range<u64>) {
        for number in numbers {
            std::hint::black_box(self.check(&key(number)));
        }
    }

    fn honest(&self, checks: u64, seed: u64) -> Honest {
        let pace = Pace::a_second(HONEST_RATE);
        let (clock, mut rng) = (quanta::Clock::new(), XorShift::new(seed));
        let mut times = Histogram::new_with_max(10_000_000_000, 3).expect("valid bounds");
        let mut denied = 0;
        let before = delayed_ns();
        let start = clock.raw();
        for number in 0..checks {
            let next = key(rng.below(HONEST_KEYS));
            pace.wait(&clock, start, number);
            let asked = clock.raw();
            let admitted = self.check(&next);
            let answered = clock.raw();
            times.saturating_record(clock.delta_as_nanos(asked, answered));
            denied += u64::from(!admitted);
        }
        Honest { times, denied, delayed_ns: delayed_ns() - before }
    }

    fn flood(&self, pace: Pace, first: u64, stop: &AtomicBool) -> u64 {
        let clock = quanta::Clock::new();
        let start = clock.raw();
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            pace.wait(&clock, start, number);
            std::hint::black_box(self.check(&key(first + number)));
            number += 1;
        }
        number
    }
}

/// A subject that reads the clock and always admits.
struct Nothing;

impl Subject<u64> for Nothing {
    #[inline(always)]
    fn check(&self, _: &u64) -> bool {
        true
    }
}

/// The length of a measurement.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Length {
    pub(crate) rounds: u64,
    pub(crate) turn_ms: u64,
    /// Keys of the flood that are checked before a turn starts.
    pub(crate) unique_before: u64,
}

/// How to build a subject for the flood.
pub(crate) struct Victim {
    pub(crate) name: &'static str,
    pub(crate) counts: &'static str,
    pub(crate) build: fn(Setup) -> Box<dyn Flooded>,
    /// Whether the flood is as fast as one core can produce.
    pub(crate) unbounded: bool,
}

/// The subject that measures only the timing and the machine.
pub(crate) fn clock_alone() -> Vec<Victim> {
    vec![Victim {
        name: "clock alone",
        counts: "no limiter: the timing, and the machine",
        build: |_| Box::new(Nothing),
        unbounded: false,
    }]
}

/// The figures of one turn. Times are in nanoseconds.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) percentiles: [f64; 4],
    pub(crate) worst: f64,
    /// The denied share of the honest checks.
    pub(crate) denied: f64,
    /// The checks of the flood, in millions per second.
    pub(crate) flood: f64,
    /// The share of time in which the honest thread was ready but did not run.
    pub(crate) delayed: f64,
}

/// All turns of one subject.
pub(crate) struct FloodRow {
    pub(crate) name: &'static str,
    pub(crate) counts: &'static str,
    pub(crate) calm: Vec<Turn>,
    pub(crate) flooded: Vec<Turn>,
}

impl FloodRow {
    /// Returns the ratio of a percentile with the flood to the same percentile of the preceding turn without it.
    pub(crate) fn ratio(&self, percentile: usize) -> Interval {
        let pairs = self.flooded.iter().zip(&self.calm);
        Interval::of(
            pairs.map(|(flooded, calm)| flooded.percentiles[percentile] / calm.percentiles[percentile]),
        )
    }
}

/// Runs one turn on a new subject. The flood, if any, runs on a second thread.
fn turn(victim: &Victim, flooded: bool, length: Length, seed: u64) -> Turn {
    let checks = length.turn_ms * HONEST_RATE / 1_000;
    let limiter = (victim.build)(Setup { population: SLOTS, expect: Expect::Mostly });
    limiter.show(0..HONEST_KEYS);
    let (met, flood) = if flooded {
        let (gate, stop) = (Gate::new(2), AtomicBool::new(false));
        let first = HONEST_KEYS + length.unique_before;
        limiter.show(HONEST_KEYS..first);
        let pace = if victim.unbounded { Pace(0) } else { Pace::a_second(FLOOD_RATE) };
        std::thread::scope(|scope| {
            let flood = scope.spawn(|| {
                gate.wait();
                limiter.flood(pace, first, &stop)
            });
            gate.wait();
            let met = limiter.honest(checks, seed);
            stop.store(true, Ordering::Relaxed);
            (met, flood.join().expect("the flood's thread panicked"))
        })
    } else {
        (limiter.honest(checks, seed), 0)
    };
    let nanoseconds = float(checks) * 1e9 / float(HONEST_RATE);
    Turn {
        percentiles: PERCENTILES.map(|percentile| float(met.times.value_at_percentile(percentile))),
        worst: float(met.times.max()),
        denied: float(met.denied) / float(checks),
        flood: float(flood) / nanoseconds * 1e3,
        delayed: float(met.delayed_ns) / nanoseconds,
    }
}

/// The results of all subjects.
pub(crate) struct Flood {
    pub(crate) rows: Vec<FloodRow>,
    /// The time that a cache line takes between two cores, measured before each round. During a flood, the other core
    /// has written most lines that a check needs.
    pub(crate) transfer_ns: Summary,
}

/// Measures all subjects without and with the flood. In each round the subjects take turns. Returns `None` if there are
/// no subjects.
pub(crate) fn measure(victims: &[Victim], length: Length) -> Option<Flood> {
    let mut rows: Vec<FloodRow> = victims
        .iter()
        .map(|victim| FloodRow {
            name: victim.name,
            counts: victim.counts,
            calm: Vec::new(),
            flooded: Vec::new(),
        })
        .collect();
    let mut transfers = Vec::new();
    for round in 0..length.rounds {
        transfers.push(transfer_ns());
        for (victim, row) in victims.iter().zip(&mut rows) {
            row.calm.push(turn(victim, false, length, round));
            row.flooded.push(turn(victim, true, length, round));
        }
    }
    (!rows.is_empty()).then(|| Flood { rows, transfer_ns: Summary::of(transfers) })
}
