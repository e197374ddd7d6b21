//! The accuracy of the compact store.

use serde_json::{Value, json};
use tollgate::{LimitKind, Overflow};

use super::{Accuracy, Differences};
use crate::replay::StoreFigures;
use crate::store::Storage;
use tollgate_report::human;
use tollgate_report::output::wrap::for_stdout;
use tollgate_report::output::{merged, table};

/// The store of one result.
pub fn json(storage: &Storage, algorithm: LimitKind, figures: &StoreFigures) -> Value {
    // The requested memory of all limits together; `state_bytes` is the memory in use.
    let asked = json!({ "memory_bytes": storage.memory.bytes(), "overflow": storage.overflow(algorithm).to_string() });
    json!({ "compact": merged([asked, json!(figures.compact), json!(figures.differences)]) })
}

/// A table of the store's figures, and whether the memory is enough.
pub fn table(storage: &Storage, results: &[Accuracy<'_>]) -> String {
    let row = |result: &Accuracy<'_>| {
        let (figures, [wrongly_denied, wrongly_admitted]) = (&result.figures.compact, result.wrong());
        vec![
            result.algorithm.name().to_owned(),
            storage.overflow(result.algorithm).to_string(),
            human::count(figures.slots),
            human::count(figures.peak_live_slots),
            human::count(figures.evicted),
            human::count(figures.indebted),
            wrongly_denied,
            wrongly_admitted,
        ]
    };
    let header = "Algorithm|When full|Slots|Most in use|Evicted|Indebted|Wrongly denied|Wrongly admitted";
    let table = table::table(header, 2..8, results.iter().map(row), &[3, 2]);
    let verdict = for_stdout(&verdict(storage, results));
    format!("Compact store of {}\n{table}\n{ABOUT}\n{verdict}\n", storage.memory)
}

const ABOUT: &str = "\
When full: the policy if there is no room for a new key (--overflow). Evicted:
keys that lost their slot while they had a debt. Indebted: new keys that started
with such a debt. Wrongly: a store that keeps every key would decide otherwise.";

/// Returns whether the memory is enough, from the decisions that differ from the keyed store's, and their cause.
fn verdict(storage: &Storage, results: &[Accuracy<'_>]) -> String {
    // Each policy errs in one direction only, and only after a client has lost its slot.
    let short = |result: &&Accuracy<'_>| {
        let Differences { wrongly_denied, wrongly_admitted } = result.figures.differences;
        let errs = match storage.overflow(result.algorithm) {
            Overflow::Forget => wrongly_admitted,
            Overflow::Spill | Overflow::Inherit => wrongly_denied,
        };
        result.figures.compact.evicted > 0 && errs > 0
    };
    let differs = |result: &Accuracy<'_>| result.figures.differences != Differences::default();
    let names: Vec<_> = results.iter().filter(short).map(|result| result.algorithm.name()).collect();
    if !names.is_empty() {
        let (names, more) = (names.join(", "), storage.memory.doubled());
        format!(
            "Memory is short for {names}: some decisions differ from the keyed store's. Try --memory {more}."
        )
    } else if results.iter().any(differs) {
        "Memory is enough. Decisions differ only for requests within a tick of their conforming time (a tick is at most \
         1/256 of the time for one unit), and for clients with equal fingerprints, about one in two million."
            .to_owned()
    } else if results.iter().any(|result| result.figures.compact.evicted > 0) {
        "Memory is enough: some clients lost their slots, but every decision is the same as the keyed store's."
            .to_owned()
    } else {
        "Memory is enough: every decision is the same as the keyed store's.".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use tollgate::StoreKind;

    use super::*;
    use crate::replay::CompactFigures;

    fn table_for(overflow: Overflow, figures: StoreFigures) -> String {
        let overflow = Some(overflow);
        let storage = Storage { store: StoreKind::Compact, memory: "64KiB".parse().unwrap(), overflow };
        let result = Accuracy { algorithm: LimitKind::Gcra, admitted: 90, denied: 10, figures: &figures };
        table(&storage, &[result])
    }

    #[test]
    fn compact_verdict_blames_memory_only_for_evictions() {
        let figures = |evicted, wrongly_denied, wrongly_admitted| StoreFigures {
            compact: CompactFigures { evicted, ..CompactFigures::default() },
            differences: Differences { wrongly_denied, wrongly_admitted },
            ..StoreFigures::default()
        };
        let short =
            "Memory is short for gcra: some decisions differ from the keyed store's. Try --memory 128KiB.";
        for (overflow, figures, verdict) in [
            (Overflow::Spill, figures(0, 0, 0), "Memory is enough: every decision"),
            (Overflow::Spill, figures(5, 0, 0), "Memory is enough: some clients lost their slots"),
            (Overflow::Spill, figures(5, 9, 0), short),
            (Overflow::Inherit, figures(5, 9, 0), short),
            (Overflow::Forget, figures(5, 0, 9), short),
            // No client lost a slot, or the policy never errs in this direction.
            (
                Overflow::Spill,
                figures(0, 9, 9),
                "Memory is enough. Decisions differ only for requests within a tick",
            ),
            (
                Overflow::Spill,
                figures(5, 0, 9),
                "Memory is enough. Decisions differ only for requests within a tick",
            ),
            (
                Overflow::Forget,
                figures(5, 9, 0),
                "Memory is enough. Decisions differ only for requests within a tick",
            ),
        ] {
            let text = table_for(overflow, figures);
            assert!(text.contains(verdict), "{overflow}: {text}");
        }
    }

    #[test]
    fn wrong_decision_shares_use_right_total() {
        // Of 90 admitted, 5 should have been denied; of 10 denied, 3 should have been admitted. So 88 deserved it, and
        // 12 did not.
        let differences = Differences { wrongly_denied: 3, wrongly_admitted: 5 };
        let text = table_for(Overflow::Forget, StoreFigures { differences, ..StoreFigures::default() });
        assert!(text.contains("3 (3.41 %)") && text.contains("5 (41.67 %)"), "{text}");
    }
}
