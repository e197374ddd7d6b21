//! What does a map do with an address that has spent its units, when more addresses come than the map may hold?
//!
//! One address spends its burst of 60, at 1 a minute. Then a flood comes: three times as many new addresses as the cap, or
//! as many as the map decides in a second. Then the address tries its burst again, 20 times in all. Each unit that it gets
//! beyond the 60 and the units that its time has earned is one too many. A map may also keep the address and deny
//! newcomers instead, so the table has their share, and the time that a newcomer takes.

use std::time::Duration;

use crate::keys::Key;
use crate::subject::{Contender, Expect, Recipe, Setup};
use crate::summary::{Summary, float};
use crate::support::{count, stopwatch};

use super::Source;

/// A flood against a map.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Length {
    /// The most addresses that the map should hold.
    pub(crate) cap: u64,
    pub(crate) floods: u64,
}

/// What a map did in all floods.
#[derive(Debug)]
pub(crate) struct Forgetful {
    pub(crate) name: &'static str,
    pub(crate) counts: &'static str,
    pub(crate) length: Length,
    /// The units that the address got beyond its quota.
    pub(crate) too_many: u64,
    /// The share of the new addresses of the last flood that were denied. The map is full then.
    pub(crate) denied: f64,
    /// The time that a new address took, by floods.
    pub(crate) newcomer_ns: Summary,
}

const PATIENCE: Duration = Duration::from_secs(1);

/// Returns how many new addresses from `first` on came, how many of them the map denied, and the nanoseconds of all.
fn flood(map: &dyn Contender<Source>, first: u64, most: u64) -> (u64, u64, f64) {
    let (mut came, mut denied, mut spent) = (0, 0, Duration::ZERO);
    while came < most && spent < PATIENCE {
        let piece: Vec<Source> = (first + came..first + most.min(came + 64)).map(Source::numbered).collect();
        let start = stopwatch();
        let admitted = map.run(&piece, count(piece.len()));
        spent += start.elapsed();
        came += count(piece.len());
        denied += count(piece.len()) - admitted;
    }
    (came, denied, spent.as_secs_f64() * 1e9)
}

fn measure_one(recipe: &Recipe<Source>, length: Length) -> Forgetful {
    let terms = Expect::Spent.terms();
    let map = (recipe.build)(Setup { population: length.cap, expect: Expect::Spent });
    let (spender, burst) = ([Source::numbered(0)], u64::from(terms.burst));
    let start = stopwatch();
    let mut got = map.run(&spender, burst);
    let (mut first, mut denied, mut times) = (1, 0.0, Vec::new());
    for _ in 0..length.floods {
        let (came, refused, ns) = flood(&*map, first, 3 * length.cap);
        (first, denied) = (first + came, float(refused) / float(came));
        times.push(ns / float(came));
        got += map.run(&spender, burst);
    }
    let due = burst + start.elapsed().as_secs() / terms.interval().as_secs();
    Forgetful {
        name: recipe.name,
        counts: recipe.counts,
        length,
        too_many: got.saturating_sub(due),
        denied,
        newcomer_ns: Summary::of(times),
    }
}

pub(crate) fn measure(length: Length) -> Vec<Forgetful> {
    super::recipes().iter().map(|recipe| measure_one(recipe, length)).collect()
}
