//! The targets, and how a run compares with them.

use serde_json::{Value, json};

use crate::charts::LeftOut;
use crate::flood::{Flood, P999};
use crate::harness::Table;
use crate::memory::Footprint;
use crate::report::{interval, summary, twice};
use crate::summary::{Interval, Ratio, Summary};
use crate::theirs::forget::Forgetful;
use crate::{compact, floor, ours, rivals, theirs};

/// A figure with a bound. It does not change the exit code, since one noisy run proves nothing.
pub(crate) struct Target {
    pub(crate) text: &'static str,
    pub(crate) bound: f64,
    /// A ratio, or a number of bytes.
    pub(crate) value: Figure,
}

/// A figure over the rounds, or over pairs of turns.
pub(crate) enum Figure {
    Rounds(Summary),
    /// A ratio of two rows of one table.
    Ratio(Ratio),
    Pairs(Interval),
}

impl Target {
    /// Whether the target is met.
    pub(crate) fn holds(&self) -> bool {
        let figure = match self.value {
            Figure::Rounds(Summary { median, .. }) | Figure::Pairs(Interval { median, .. }) => median,
            Figure::Ratio(ratio) => ratio.decisive(),
        };
        figure <= self.bound
    }

    pub(crate) fn print(&self) {
        let (median, spread) = match &self.value {
            Figure::Rounds(Summary { min, q1, median, q3, max }) => {
                (median, format!("quartiles {q1:.2}..{q3:.2}, range {min:.2}..{max:.2}"))
            }
            Figure::Ratio(Ratio { all: Summary { q1, median, q3, .. }, quiet, quiet_rounds }) => {
                (median, format!("quartiles {q1:.2}..{q3:.2}; {quiet:.2} in {quiet_rounds} quiet rounds"))
            }
            Figure::Pairs(Interval { low, median, high }) => {
                (median, format!("95 % interval {low:.2}..{high:.2}"))
            }
        };
        let outcome = if self.holds() { "PASS" } else { "MISS" };
        println!("{outcome} {}: {median:.2} <= {:.2} ({spread})", self.text, self.bound);
    }

    pub(crate) fn json(&self) -> Value {
        let value = match self.value {
            Figure::Rounds(over_rounds) => summary(over_rounds),
            Figure::Ratio(ratio) => twice(ratio),
            Figure::Pairs(over_pairs) => interval(over_pairs),
        };
        json!({"target": self.text, "bound": self.bound, "value": value, "holds": self.holds()})
    }
}

/// The results of a run.
pub(crate) struct Measured {
    pub(crate) tables: Vec<Table>,
    pub(crate) footprints: Vec<Footprint>,
    pub(crate) flood: Option<Flood>,
    pub(crate) forgetful: Vec<Forgetful>,
    pub(crate) left_out: Vec<LeftOut>,
}

impl Measured {
    /// Returns the ratio of one row to another row of the same table.
    fn ratio(&self, scenario: &str, threads: usize, subject: &str, base: &str) -> Option<Figure> {
        let table = self.table(scenario, threads)?;
        table.ratio(table.row(subject)?, base).map(Figure::Ratio)
    }

    /// Returns the ratio of a row with two threads to the same row with one thread.
    fn two_threads(&self, scenario: &str, subject: &str) -> Option<Figure> {
        let row = |threads| self.table(scenario, threads)?.row(subject);
        Some(Figure::Rounds(row(2)?.ratio(row(1)?)))
    }

    fn table(&self, scenario: &str, threads: usize) -> Option<&Table> {
        self.tables.iter().find(|table| table.scenario == scenario && table.threads == threads)
    }

    /// Returns the targets whose rows were measured.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let (keyed, compact, batches) = (ours::KEYED, compact::COMPACT, compact::BATCHES);
        let (floor, governor) = (floor::FLOOR, rivals::GOVERNOR);
        let resident = self.footprints.iter().filter(|footprint| footprint.name == compact::TIGHT);
        let mut resident = resident.map(|footprint| footprint.bytes_per_key).peekable();
        let resident = resident.peek().is_some().then(|| Figure::Rounds(Summary::of(resident)));
        let mut flooded = self.flood.iter().flat_map(|flood| &flood.rows);
        let flooded = flooded.find(|row| row.name == compact).map(|row| row.ratio(P999));
        [
            (
                "keyed against governor + ahash, 1,000 keys, allowed, 1 thread",
                0.85,
                self.ratio("hot", 1, keyed, governor),
            ),
            (
                "keyed against governor + ahash, 1,000 keys, allowed, 2 threads",
                0.6,
                self.ratio("hot", 2, keyed, governor),
            ),
            (
                "keyed against governor + ahash, 100,000 keys, allowed, 1 thread",
                0.9,
                self.ratio("100k", 1, keyed, governor),
            ),
            (
                "keyed against governor + ahash, 100,000 keys, allowed, 2 threads",
                0.6,
                self.ratio("100k", 2, keyed, governor),
            ),
            (
                "keyed against a scc::HashIndex of words, 100,000 keys, allowed, 1 thread",
                1.0,
                self.ratio("100k", 1, keyed, rivals::HASH_INDEX),
            ),
            (
                "keyed against governor + ahash, 1 M keys, allowed, 1 thread",
                0.8,
                self.ratio("1m", 1, keyed, governor),
            ),
            (
                "keyed against governor + ahash, 1 M keys, allowed, 2 threads",
                0.5,
                self.ratio("1m", 2, keyed, governor),
            ),
            (
                "keyed against governor + ahash, 10 M keys, allowed, 1 thread",
                0.75,
                self.ratio("10m", 1, keyed, governor),
            ),
            (
                "keyed against governor + ahash, first sight, 1 thread",
                1.5,
                self.ratio("first-sight", 1, keyed, governor),
            ),
            (
                "keyed against governor + ahash, a new key among idle ones, 1 thread",
                1.2,
                self.ratio("first-sight-idle", 1, keyed, governor),
            ),
            (
                "keyed against governor + ahash, a new key among idle ones, 2 threads",
                1.2,
                self.ratio("first-sight-idle", 2, keyed, governor),
            ),
            (
                "keyed, 1,000 keys, denied (writes nothing shared): 2 threads against 1",
                1.1,
                self.two_threads("hot-denied", keyed),
            ),
            (
                "compact against reading the counter alone, 1,000 keys, allowed, 1 thread",
                1.15,
                self.ratio("hot", 1, compact, floor::COUNTER),
            ),
            (
                "compact against the floor, 1,000 keys, allowed, 1 thread",
                1.25,
                self.ratio("hot", 1, compact, floor),
            ),
            (
                "compact against governor + ahash, 1,000 keys, allowed, 1 thread",
                0.65,
                self.ratio("hot", 1, compact, governor),
            ),
            (
                "compact, half full, against governor + ahash, 1,000 keys, allowed, 1 thread",
                0.75,
                self.ratio("hot", 1, compact::HALF_FULL, governor),
            ),
            (
                "compact in batches of 16 against governor + ahash, 1,000 keys, 1 thread",
                0.4,
                self.ratio("hot", 1, batches, governor),
            ),
            (
                "compact against the floor, 10 M keys, allowed, 1 thread",
                1.2,
                self.ratio("10m", 1, compact, floor),
            ),
            (
                "compact in batches of 16 against governor + ahash, 10 M keys, 1 thread",
                0.1,
                self.ratio("10m", 1, batches, governor),
            ),
            (
                "compact against governor + ahash, 1 M string keys, allowed, 1 thread",
                0.35,
                self.ratio("strings-1m", 1, compact, governor),
            ),
            (
                "compact against clock, hash and load (the floor's denial), 1,000 keys, 1 thread",
                1.15,
                self.ratio("hot-denied", 1, compact, floor),
            ),
            (
                "compact, 1,000 keys, denied: 2 threads against 1",
                1.1,
                self.two_threads("hot-denied", compact),
            ),
            (
                "leases against governor direct, one word, allowed, 2 threads",
                0.25,
                self.ratio("word", 2, ours::STRIPED, rivals::GOVERNOR_DIRECT),
            ),
            (
                "leases against our own direct, one word, allowed, 1 thread",
                1.2,
                self.ratio("word", 1, ours::STRIPED, ours::DIRECT),
            ),
            (
                "striped against our own direct, one word, denied, 1 thread",
                2.0,
                self.ratio("word-denied", 1, ours::STRIPED, ours::DIRECT),
            ),
            (
                "striped against our own direct, one word, denied, 2 threads",
                2.0,
                self.ratio("word-denied", 2, ours::STRIPED, ours::DIRECT),
            ),
            (
                "keyed with Forget against a validator's map, new addresses at a cap of 64, 1 thread",
                1.0,
                self.ratio("theirs-cap-64", 1, theirs::FORGET, theirs::validator::NAME),
            ),
            (
                "keyed with Forget against a validator's map, new addresses at a cap of 1,024, 1 thread",
                1.0,
                self.ratio("theirs-cap-1k", 1, theirs::FORGET, theirs::validator::NAME),
            ),
            ("compact, resident bytes a key that owes, table and sketch", 12.5, resident),
        ]
        .into_iter()
        .chain([(
            "compact, honest keys' p99.9 under a flood of unique keys against without",
            2.0,
            flooded.map(Figure::Pairs),
        )])
        .filter_map(|(text, bound, value)| value.map(|value| Target { text, bound, value }))
        .collect()
    }
}
