//! How the compact store fared, for people and for programs.

use serde::Serialize;

use super::algorithms::Kind;
use super::fared::Fared;
use super::human;
use super::report::{align_right, plain_table};
use super::storage::{Compact, Overflow};
use super::stores::{CompactFigures, Differences};
use super::table::fitted;

/// The store of one result, in JSON. Fields may be added; those here keep their names and meaning.
#[derive(Serialize, Debug)]
pub struct CompactJson {
    /// As asked for, of all limits together; `state_bytes` is what was made of it.
    memory_bytes: u64,
    overflow: &'static str,
    slots: u64,
    peak_live_slots: u64,
    evicted: u64,
    indebted: u64,
    denied_for_debt: u64,
    retreats: u64,
    raced: u64,
    wrongly_denied: u64,
    wrongly_admitted: u64,
}

impl CompactJson {
    /// The figures of one algorithm.
    #[must_use]
    pub fn new(compact: &Compact, kind: Kind, figures: &CompactFigures) -> Self {
        let Differences { wrongly_denied, wrongly_admitted } = figures.differences.unwrap_or_default();
        Self {
            memory_bytes: compact.memory.bytes(),
            overflow: compact.overflow(kind).as_str(),
            slots: figures.slots,
            peak_live_slots: figures.peak_live_slots,
            evicted: figures.evicted,
            indebted: figures.indebted,
            denied_for_debt: figures.denied_for_debt,
            retreats: figures.retreats,
            raced: figures.raced,
            wrongly_denied,
            wrongly_admitted,
        }
    }
}

/// A table of the store's figures, and whether the memory is enough.
#[must_use]
pub fn table(compact: &Compact, results: &[Fared<'_, CompactFigures>]) -> String {
    let mut table = plain_table(&[
        "Algorithm",
        "When full",
        "Slots",
        "Most in use",
        "Evicted",
        "Indebted",
        "Wrongly denied",
        "Wrongly admitted",
    ]);
    for fared in results {
        let (kind, figures) = (fared.kind, fared.figures);
        let [wrongly_denied, wrongly_admitted] = fared.wrong(figures.differences);
        table.add_row([
            kind.as_str().to_owned(),
            compact.overflow(kind).as_str().to_owned(),
            human::count(figures.slots),
            human::count(figures.peak_live_slots),
            human::count(figures.evicted),
            human::count(figures.indebted),
            wrongly_denied,
            wrongly_admitted,
        ]);
    }
    align_right(&mut table, 2..8);
    let table = fitted(table, &[3, 2]);
    format!("Compact store of {}\n{table}\n{ABOUT}\n{}\n", compact.memory, verdict(compact, results))
}

const ABOUT: &str = "\
When full: what is done without room for a new key (--overflow). Evicted: keys
that lost their slot while they owed. Indebted: new keys that began with such a
debt. Wrongly: not as a store that keeps every key.";

/// Whether the memory is enough, by what differs from the keyed store and why.
fn verdict(compact: &Compact, results: &[Fared<'_, CompactFigures>]) -> String {
    // Each policy errs on one side only, and not before a client has lost its slot.
    let short = |Fared { kind, figures, .. }: &&Fared<'_, CompactFigures>| {
        let Differences { wrongly_denied, wrongly_admitted } = figures.differences.unwrap_or_default();
        let errs = match compact.overflow(*kind) {
            Overflow::Forget => wrongly_admitted,
            Overflow::Spill | Overflow::Inherit => wrongly_denied,
        };
        figures.evicted > 0 && errs > 0
    };
    let differs =
        |fared: &Fared<'_, CompactFigures>| fared.figures.differences != Some(Differences::default());
    let names: Vec<_> = results.iter().filter(short).map(|fared| fared.kind.as_str()).collect();
    if !names.is_empty() {
        let (names, more) = (names.join(", "), compact.memory.doubled());
        format!("Memory is short for {names}: some decisions are not the keyed store's. Try --memory {more}.")
    } else if results.iter().any(differs) {
        "Memory is enough. What differs are requests within a tick of the time at which they may go (a tick is at \
         most\n1/256 of the time for one unit), or clients that hash alike, about one in two million."
            .to_owned()
    } else if results.iter().any(|fared| fared.figures.evicted > 0) {
        "Memory is enough: some clients lost their slots to others, but every decision is the keyed store's."
            .to_owned()
    } else {
        "Memory is enough: every decision is the keyed store's.".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(overflow: &str, figures: CompactFigures) -> String {
        let overflow = <Overflow as clap::ValueEnum>::from_str(overflow, false).unwrap();
        let compact = Compact { memory: "64KiB".parse().unwrap(), overflow: Some(overflow) };
        let fared = Fared { kind: Kind::Gcra, admitted: 90, denied: 10, figures: &figures };
        table(&compact, &[fared])
    }

    #[test]
    fn memory_is_blamed_only_for_what_it_does() {
        let figures = |evicted, wrongly_denied, wrongly_admitted| CompactFigures {
            evicted,
            differences: Some(Differences { wrongly_denied, wrongly_admitted }),
            ..CompactFigures::default()
        };
        let short =
            "Memory is short for gcra: some decisions are not the keyed store's. Try --memory 128KiB.";
        for (overflow, figures, verdict) in [
            ("spill", figures(0, 0, 0), "Memory is enough: every decision"),
            ("spill", figures(5, 0, 0), "Memory is enough: some clients lost their slots"),
            ("spill", figures(5, 9, 0), short),
            ("inherit", figures(5, 9, 0), short),
            ("forget", figures(5, 0, 9), short),
            // Nobody lost a slot, or the policy never errs on this side.
            ("spill", figures(0, 9, 9), "Memory is enough. What differs are requests within a tick"),
            ("spill", figures(5, 0, 9), "Memory is enough. What differs are requests within a tick"),
            ("forget", figures(5, 9, 0), "Memory is enough. What differs are requests within a tick"),
        ] {
            let text = told(overflow, figures);
            assert!(text.contains(verdict), "{overflow}: {text}");
        }
    }

    #[test]
    fn shares_are_of_those_it_could_happen_to() {
        // Of 90 admitted 5 should not have been, of 10 denied 3 should have been: 88 deserved it, and 12 did not.
        let differences = Some(Differences { wrongly_denied: 3, wrongly_admitted: 5 });
        let text = told("forget", CompactFigures { differences, ..CompactFigures::default() });
        assert!(text.contains("3 (3.41 %)") && text.contains("5 (41.67 %)"), "{text}");
    }
}
