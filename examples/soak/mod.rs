//! Rounds of random scenes, each of which holds what limiters do against what they promise.
//!
//! | part | holds |
//! |---|---|
//! | here | scenes, rounds, the threads of a round, and what is broken on purpose |
//! | `run` | rounds one after another, what they came to, and who watches that they end |
//! | `judge` | what was admitted, in every interval |
//! | `draw` | random quotas, times and operations |
//! | `gate` | limiters of all stores behind one face, with all threads' ways to ask |
//! | `single` | one thread against the oracles, decision by decision |
//! | `tight` | the same where memory is short |
//! | `crowd` | many threads: intervals while time runs, equality while it stands |
//! | `flood` | keys that come once, beside honest ones |
//! | `reload` | quotas and rules that change under load |
//! | `joint` | several limits on one request; charges that are given back |
//! | `windows` | windows of a sketch that turn under the threads' hands |
//! | `remote` | limits that several machines share |
//! | `memory` | what the process has resident |
//!
//! A scene says what is wrong by an error, and a panic in it is a fault as well. What limiters answer comes to a scene through
//! [`Hand::told`], where a run with [`Fault`] lies to it now and then: so it can be shown that each scene finds such a limiter.

mod crowd;
mod draw;
mod flood;
mod gate;
mod joint;
mod judge;
pub(crate) mod memory;
mod reload;
#[cfg(feature = "simulation")]
mod remote;
pub(crate) mod run;
mod single;
mod tight;
mod windows;

use crate::common::compact::Random;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Says what is wrong, unless all is well.
macro_rules! ensure {
    ($holds:expr, $($said:tt)+) => {
        if !$holds {
            return Err(format!($($said)+));
        }
    };
}
pub(crate) use ensure;

/// What a round found: nothing, or what is wrong.
pub(crate) type Found = Result<(), String>;

/// A limiter that is broken on purpose: now and then it answers the opposite.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Says yes to what it denied.
    Admits,
    /// Denies what it has charged.
    Denies,
}

/// One of so many answers is a lie.
const LIES: u64 = 24;

/// A kind of round.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Those that it must find. Whoever only promises a bound may deny.
    pub(crate) finds: &'static [Fault],
    play: fn(&mut Round<'_>) -> Found,
}

const BOTH: &[Fault] = &[Fault::Admits, Fault::Denies];
const MORE: &[Fault] = &[Fault::Admits];

/// All scenes that this build has.
pub(crate) const SCENES: &[Scene] = &[
    Scene {
        name: "single",
        about: "one thread, any store and algorithm, random quotas and clocks, against an oracle",
        finds: BOTH,
        play: single::play,
    },
    Scene {
        name: "tight",
        about: "one thread, more keys than the memory holds: each policy errs on its side only",
        finds: BOTH,
        play: tight::play,
    },
    Scene {
        name: "crowd",
        about: "threads on one limiter: every interval within its bound, and all that is due while time stands",
        finds: BOTH,
        play: crowd::play,
    },
    Scene {
        name: "flood",
        about: "honest keys in a flood of others that never come again; memory stays as it is",
        finds: BOTH,
        play: flood::play,
    },
    Scene {
        name: "reload",
        about: "quotas and rules that change under load: never above the largest in force",
        finds: MORE,
        play: reload::play,
    },
    Scene {
        name: "joint",
        about: "several limits on one request, refunds, waits: what is charged is what was admitted",
        finds: BOTH,
        play: joint::play,
    },
    Scene {
        name: "windows",
        about: "windows of a sketch that turn while threads count in them: never above the limit in one",
        finds: MORE,
        play: windows::play,
    },
    #[cfg(feature = "simulation")]
    Scene {
        name: "remote",
        about: "machines that share a limit, by call, lease and write-back, with losses: within the bound",
        finds: MORE,
        play: remote::play,
    },
];

/// An admission: asked for after `before` was read from the clock, and answered before `after` was.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) key: u32,
    pub(crate) cost: u32,
    pub(crate) before: u64,
    pub(crate) after: u64,
}

/// Admissions that one thread remembers, at most.
const REMEMBERED: usize = 1 << 14;

/// Where threads note admissions: allocated once, used by every round.
#[derive(Debug)]
pub(crate) struct Notes {
    each: Vec<Vec<Seen>>,
    all: Vec<Seen>,
}

impl Notes {
    pub(crate) fn new(threads: usize) -> Self {
        let room = |len| {
            // Written once, so that the pages are the process's from the start on and its size says nothing of them.
            let mut room = vec![Seen { key: 1, cost: 1, before: 1, after: 1 }; len];
            room.clear();
            room
        };
        Self { each: (0..threads).map(|_| room(REMEMBERED)).collect(), all: room(REMEMBERED * threads) }
    }
}

/// A round under way.
pub(crate) struct Round<'n> {
    pub(crate) random: Random,
    /// How many threads there are to be.
    pub(crate) threads: usize,
    /// Decisions so far.
    pub(crate) checks: u64,
    /// Intervals that were judged.
    pub(crate) intervals: u64,
    notes: &'n mut Notes,
    fault: Option<Fault>,
    end: Instant,
}

/// One thread of a round.
pub(crate) struct Hand<'r> {
    pub(crate) number: usize,
    pub(crate) random: Random,
    pub(crate) checks: u64,
    seen: &'r mut Vec<Seen>,
    fault: Option<Fault>,
    end: Instant,
}

#[expect(clippy::disallowed_methods, reason = "rounds take real time, whatever clocks the limiters have")]
fn real_now() -> Instant {
    Instant::now()
}

impl<'n> Round<'n> {
    pub(crate) fn new(
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

    /// Whether there is time for more.
    pub(crate) fn goes_on(&self) -> bool {
        real_now() < self.end
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[below(&mut self.random, of.len())]
    }

    /// What a limiter answered, or the opposite if it is to be broken.
    pub(crate) fn told(&mut self, allowed: bool) -> bool {
        self.checks += 1;
        lie(self.fault, &mut self.random, allowed)
    }

    /// Runs `work` on threads that begin together. What they note is kept for [`Round::judge`].
    pub(crate) fn on_threads<R: Send>(&mut self, work: impl Fn(&mut Hand<'_>) -> R + Sync) -> Vec<R> {
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

    /// Judges what the threads noted since the last time.
    pub(crate) fn judge(&mut self, bound: &judge::Bound<'_>) -> Found {
        let Notes { each, all } = &mut *self.notes;
        all.clear();
        all.extend(each.iter_mut().flat_map(|seen| seen.drain(..)));
        let (intervals, found) = judge::judge(all, bound);
        self.intervals += intervals;
        found
    }

    /// Forgets what the threads noted.
    fn forget(&mut self) {
        self.notes.each.iter_mut().for_each(Vec::clear);
    }
}

impl Hand<'_> {
    /// Whether there is time for more, and room to note it.
    pub(crate) fn goes_on(&self) -> bool {
        self.seen.len() < REMEMBERED && real_now() < self.end
    }

    /// See [`Round::told`].
    pub(crate) fn told(&mut self, allowed: bool) -> bool {
        self.checks += 1;
        lie(self.fault, &mut self.random, allowed)
    }

    /// Notes an admission, if there is room for it: those that are missing make no interval look fuller.
    pub(crate) fn note(&mut self, key: u32, cost: u64, before: u64, after: u64) {
        if self.seen.len() < REMEMBERED {
            let cost = u32::try_from(cost).expect("a small cost");
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

/// A place in a list.
pub(crate) fn below(random: &mut Random, len: usize) -> usize {
    usize::try_from(random.below(len as u64)).expect("less than a length")
}

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SEC: u64 = 1_000_000_000;
pub(crate) const HOUR: u64 = 3_600 * SEC;
/// In our times, at the beginning of a day.
pub(crate) const START: u64 = 19_700 * 24 * HOUR;
