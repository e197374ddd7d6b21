//! How long do honest keys' checks take while a flood of unique keys rages?
//!
//! One thread checks [`HONEST_KEYS`] keys, drawn uniformly, [`HONEST_RATE`] times a second in all, and times each check
//! by itself. All of them stay far below their limits. On the other thread comes a key that was never seen before,
//! [`FLOOD_RATE`] times a second, so that at any time more of them owe than the stores have slots: the same flood for all
//! subjects (as far as they keep up with it: see "flood M/s"), and one row of as much as a core can do. Every round each
//! subject is built anew and takes its turn without the flood and with it. A turn begins with all honest keys once, and
//! the flood with two keys for each slot.
//!
//! * A time is the check's alone, with the reading of one counter (`clock alone` shows that, and the machine's own
//!   interruptions, which are in every row; nothing is subtracted). A check that comes late since the one before
//!   took long is not counted as having waited.
//! * Percentiles are of one turn, and the table shows their medians over the rounds. On a virtual machine with few
//!   cores p99.99 is mostly the machine's.
//! * Ratios are of pairs: a turn without the flood, and at once the one with it. So a neighbour that uses the machine for seconds slows
//!   both turns of a pair, and one that comes in between spoils one pair of many. Their median is printed with its 95 %
//!   confidence interval by order statistics.
//! * "denied" is the share of honest checks that were denied, each of them wrongly: what a full store costs in place of
//!   memory. Stores that forget instead admit too much, which is not shown.

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
/// Slots of the compact store, and the cap of those that have one.
const SLOTS: u64 = 1 << 18;
/// Unique keys that fill every store that has a size.
pub(crate) const FULL: u64 = 2 * SLOTS;
/// Percentiles, in percent.
pub(crate) const PERCENTILES: [f64; 4] = [50.0, 99.0, 99.9, 99.99];
/// Which of them has a bound.
pub(crate) const P999: usize = 2;

/// A limiter that can be flooded.
pub(crate) trait Flooded: Sync {
    /// Checks some keys, untimed.
    fn show(&self, numbers: Range<u64>);
    /// Checks and times honest keys.
    fn honest(&self, checks: u64, seed: u64) -> Honest;
    /// Checks ever new keys until it is to stop; how many.
    fn flood(&self, pace: Pace, first: u64, stop: &AtomicBool) -> u64;
}

/// What honest keys met in a turn.
pub(crate) struct Honest {
    times: Histogram<u64>,
    denied: u64,
    delayed_ns: u64,
}

/// So many nanoseconds from check to check; none at all is as fast as can be.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Pace(u64);

impl Pace {
    const fn a_second(rate: u64) -> Self {
        Self(1_000_000_000 / rate)
    }

    /// Spins until check `number` is due; those that are late follow at once.
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

/// Reads the clock, and admits.
struct Nothing;

impl Subject<u64> for Nothing {
    #[inline(always)]
    fn check(&self, _: &u64) -> bool {
        true
    }
}

/// How long is measured.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Length {
    pub(crate) rounds: u64,
    pub(crate) turn_ms: u64,
    /// Keys of the flood that come before a turn.
    pub(crate) unique_before: u64,
}

/// How to build what is flooded.
pub(crate) struct Victim {
    pub(crate) name: &'static str,
    pub(crate) counts: &'static str,
    pub(crate) build: fn(Setup) -> Box<dyn Flooded>,
    /// Whether the flood is as fast as a core can make it.
    pub(crate) unbounded: bool,
}

/// What the figures hold of the machine's own.
pub(crate) fn clock_alone() -> Vec<Victim> {
    vec![Victim {
        name: "clock alone",
        counts: "no limiter: the timing, and the machine",
        build: |_| Box::new(Nothing),
        unbounded: false,
    }]
}

/// One turn's figures, times in ns.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) percentiles: [f64; 4],
    pub(crate) worst: f64,
    /// Share of the honest checks.
    pub(crate) denied: f64,
    /// Checks of the flood, in millions a second.
    pub(crate) flood: f64,
    /// Share of the time that the honest thread was ready and did not run.
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
    /// A percentile under the flood over the same in the turn before, without.
    pub(crate) fn ratio(&self, percentile: usize) -> Interval {
        let pairs = self.flooded.iter().zip(&self.calm);
        Interval::of(
            pairs.map(|(flooded, calm)| flooded.percentiles[percentile] / calm.percentiles[percentile]),
        )
    }
}

/// One turn of a subject that was built for it; with a flood, on a second thread.
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
            (met, flood.join().expect("the flood panicked"))
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

/// All that was measured.
pub(crate) struct Flood {
    pub(crate) rows: Vec<FloodRow>,
    /// What a cache line took between two cores before each round: under a flood most lines that a check needs were
    /// written by the other core.
    pub(crate) transfer_ns: Summary,
}

/// Without the flood and with it, all subjects by turns in each round. `None` without subjects.
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
