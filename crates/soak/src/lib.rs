//! Rounds of random scenes. Each scene compares the behaviour of limiters with their guarantees.
//!
//! | part | contents |
//! |---|---|
//! | here | scenes, rounds, the threads of a round, and deliberate faults |
//! | `run` | the sequence of rounds, its results, and the watchdog that ends a hanging round |
//! | `judge` | the admitted units in every interval |
//! | `draw` | random quotas, times and operations |
//! | `gate` | limiters of all stores behind one interface, with all threads' ways to check |
//! | `single` | one thread against the oracles, decision by decision |
//! | `tight` | the same with too little memory |
//! | `crowd` | many threads: intervals while the clock advances, equality while it does not |
//! | `flood` | keys that come once, together with honest keys |
//! | `reload` | quotas and rules that change under load |
//! | `joint` | several limits on one request; refunds |
//! | `windows` | windows of a sketch that expire while threads use them |
//! | `remote` | limits that several machines share |
//! | [`simulation`] | many processes in virtual time |
//! | `memory` | the resident memory of the process |
//!
//! A scene reports a breach with an error; a panic in a scene is a breach too. Each answer of a limiter reaches the
//! scene through [`Hand::told`]. In a run with [`Fault`], this method falsifies some answers, to show that each scene
//! detects a broken limiter.

#![allow(
    missing_debug_implementations,
    missing_docs,
    unreachable_pub,
    reason = "only its own program and tests use this library"
)]

#[macro_use]
extern crate tollgate_testing;

mod crowd;
mod draw;
mod flood;
mod gate;
mod joint;
mod judge;
pub mod memory;
mod reload;
mod remote;
pub mod run;
pub mod simulation;
mod single;
mod tight;
mod windows;

use std::sync::Barrier;
use std::time::{Duration, Instant};
use tollgate_testing::compact::Random;

/// Returns an error with a description, if the condition is false.
macro_rules! ensure {
    ($holds:expr, $($said:tt)+) => {
        if !$holds {
            return Err(format!($($said)+));
        }
    };
}
use ensure;

/// The result of a round: success, or a description of the breach.
pub type Found = Result<(), String>;

/// A deliberately broken limiter: some of its answers are reversed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Reports an admission for a denied request.
    Admits,
    /// Reports a denial for a charged request.
    Denies,
}

/// One in this number of answers is false.
const LIES: u64 = 24;

/// A kind of round.
#[derive(Debug)]
pub struct Scene {
    pub name: &'static str,
    pub about: &'static str,
    /// The faults that the scene must find. A scene that only guarantees a bound may deny more.
    pub finds: &'static [Fault],
    play: fn(&mut Round<'_>) -> Found,
}

const BOTH: &[Fault] = &[Fault::Admits, Fault::Denies];
const MORE: &[Fault] = &[Fault::Admits];

/// All scenes of this build.
pub const SCENES: &[Scene] = &[
    Scene {
        name: "single",
        about: "one thread, any store and algorithm, random quotas and clocks, compared with an oracle",
        finds: BOTH,
        play: single::play,
    },
    Scene {
        name: "tight",
        about: "one thread, more keys than the memory holds: each policy errs on one side only",
        finds: BOTH,
        play: tight::play,
    },
    Scene {
        name: "crowd",
        about: "threads on one limiter: every interval is within its bound; while time stands, every due unit is admitted",
        finds: BOTH,
        play: crowd::play,
    },
    Scene {
        name: "flood",
        about: "honest keys in a flood of unique keys; the memory stays constant",
        finds: BOTH,
        play: flood::play,
    },
    Scene {
        name: "reload",
        about: "quotas and rules that change under load: never more than the largest quota in force",
        finds: MORE,
        play: reload::play,
    },
    Scene {
        name: "joint",
        about: "several limits on one request, refunds, waits: the charges equal the admitted units",
        finds: BOTH,
        play: joint::play,
    },
    Scene {
        name: "windows",
        about: "windows of a sketch that turn while threads count: never more than the limit per window",
        finds: MORE,
        play: windows::play,
    },
    Scene {
        name: "remote",
        about: "machines that share a limit by calls, leases or write-back, with lost messages: within the bound",
        finds: MORE,
        play: remote::play,
    },
];

/// An admission. The clock reading `before` came before the check, and `after` came after its answer.
#[derive(Copy, Clone, Debug)]
pub struct Seen {
    pub key: u32,
    pub cost: u32,
    pub before: u64,
    pub after: u64,
}

/// The largest number of admissions that one thread notes.
const REMEMBERED: usize = 1 << 14;

/// The memory where threads note admissions: allocated once, used by every round.
#[derive(Debug)]
pub struct Notes {
    each: Vec<Vec<Seen>>,
    all: Vec<Seen>,
}

impl Notes {
    pub fn new(threads: usize) -> Self {
        let room = |len| {
            // The memory is written once, so that its pages are resident from the start and do not change the
            // measured size.
            let mut room = vec![Seen { key: 1, cost: 1, before: 1, after: 1 }; len];
            room.clear();
            room
        };
        Self { each: (0..threads).map(|_| room(REMEMBERED)).collect(), all: room(REMEMBERED * threads) }
    }
}

/// A running round.
pub struct Round<'n> {
    pub random: Random,
    /// The number of threads to start.
    pub threads: usize,
    /// The decisions so far.
    pub checks: u64,
    /// The intervals that were checked.
    pub intervals: u64,
    notes: &'n mut Notes,
    fault: Option<Fault>,
    end: Instant,
}

/// One thread of a round.
pub struct Hand<'r> {
    pub number: usize,
    pub random: Random,
    pub checks: u64,
    seen: &'r mut Vec<Seen>,
    fault: Option<Fault>,
    end: Instant,
}

#[expect(clippy::disallowed_methods, reason = "rounds take real time, whatever clocks the limiters have")]
fn real_now() -> Instant {
    Instant::now()
}

impl<'n> Round<'n> {
    pub fn new(
        seed: u64,
        threads: usize,
        budget: Duration,
        notes: &'n mut Notes,
        fault: Option<Fault>,
    ) -> Self {
        let threads = threads.min(notes.each.len());
        let end = real_now() + budget;
        Self { random: Random(seed), threads, checks: 0, intervals: 0, notes, fault, end }
    }

    /// Returns whether time is left.
    pub fn goes_on(&self) -> bool {
        real_now() < self.end
    }

    /// Returns one of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[below(&mut self.random, of.len())]
    }

    /// Returns the limiter's answer, or the opposite in a run with a fault.
    pub fn told(&mut self, allowed: bool) -> bool {
        self.checks += 1;
        lie(self.fault, &mut self.random, allowed)
    }

    /// Runs `work` on threads that begin together. Keeps the noted admissions for [`Round::judge`].
    pub fn on_threads<R: Send>(&mut self, work: impl Fn(&mut Hand<'_>) -> R + Sync) -> Vec<R> {
        let (fault, end, seed) = (self.fault, self.end, self.random.next());
        let barrier = Barrier::new(self.threads);
        let hands = self.notes.each.iter_mut().take(self.threads).enumerate();
        let (results, checks): (Vec<R>, Vec<u64>) = std::thread::scope(|scope| {
            let threads: Vec<_> = hands
                .map(|(number, seen)| {
                    let (work, barrier) = (&work, &barrier);
                    scope.spawn(move || {
                        let random = Random(seed.wrapping_add(number as u64 * 0x9E37_79B9));
                        let mut hand = Hand { number, random, checks: 0, seen, fault, end };
                        barrier.wait();
                        (work(&mut hand), hand.checks)
                    })
                })
                .collect();
            let ended = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
            ended.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).unzip()
        });
        self.checks += checks.iter().sum::<u64>();
        results
    }

    /// Checks the admissions that the threads noted since the last call.
    pub fn judge(&mut self, bound: &judge::Bound<'_>) -> Found {
        let Notes { each, all } = &mut *self.notes;
        all.clear();
        all.extend(each.iter_mut().flat_map(|seen| seen.drain(..)));
        let (intervals, found) = judge::judge(all, bound);
        self.intervals += intervals;
        found
    }

    /// Drops the noted admissions.
    fn forget(&mut self) {
        self.notes.each.iter_mut().for_each(Vec::clear);
    }
}

impl Hand<'_> {
    /// Returns whether time is left, and room for a note.
    pub fn goes_on(&self) -> bool {
        self.seen.len() < REMEMBERED && real_now() < self.end
    }

    /// See [`Round::told`].
    pub fn told(&mut self, allowed: bool) -> bool {
        self.checks += 1;
        lie(self.fault, &mut self.random, allowed)
    }

    /// Notes an admission, if there is room. A missing note can only make an interval look emptier.
    pub fn note(&mut self, key: u32, cost: u64, before: u64, after: u64) {
        if self.seen.len() < REMEMBERED {
            let cost = u32::try_from(cost).expect("the cost fits in 32 bits");
            self.seen.push(Seen { key, cost, before, after });
        }
    }
}

fn lie(fault: Option<Fault>, random: &mut Random, allowed: bool) -> bool {
    match fault {
        None => allowed,
        Some(Fault::Admits) => allowed || random.below(LIES) == 0,
        Some(Fault::Denies) => allowed && random.below(LIES) != 0,
    }
}

/// An index into a list.
pub fn below(random: &mut Random, len: usize) -> usize {
    usize::try_from(random.below(len as u64)).expect("an index below a length")
}

pub use tollgate_testing::{HOUR, MS, SEC};

/// A present-day time, at the beginning of a day.
pub const START: u64 = 19_700 * 24 * HOUR;
