//! The accuracy of the sketch store.

use serde_json::{Value, json};
use tollgate::stores::Saturation;

use super::Accuracy;
use crate::replay::StoreFigures;
use crate::store::Storage;
use tollgate_report::human;
use tollgate_report::output::wrap::for_stdout;
use tollgate_report::output::{merged, table};

/// The store of one result.
pub fn json(storage: &Storage, figures: &StoreFigures) -> Value {
    let Saturation { false_positive, overcounted, denied, .. } = figures.saturation;
    // The saturation at the end of the fullest window, as chances from 0 to 1.
    let saturation =
        json!({ "false_positive": false_positive, "overcounted": overcounted, "denied": denied });
    json!({ "sketch": merged([
        // The requested memory of all limits together; `state_bytes` is the memory in use.
        json!({ "memory_bytes": storage.memory.bytes() }),
        json!(figures.differences),
        json!({ "saturation": saturation }),
    ]) })
}

/// A table of the store's figures, and whether the memory is enough.
pub fn table(storage: &Storage, results: &[Accuracy<'_>]) -> String {
    let row = |result: &Accuracy<'_>| {
        let Saturation { false_positive, overcounted, denied, .. } = result.figures.saturation;
        let chances = [false_positive, overcounted, denied].map(human::chance);
        [result.algorithm.name().to_owned()].into_iter().chain(chances).chain(result.wrong()).collect()
    };
    let header = "Algorithm|False positive|Overcounted|Denied early|Wrongly denied|Wrongly admitted";
    let table = table::table(header, 1..6, results.iter().map(row), &[2, 1]);
    let verdict = for_stdout(&verdict(storage, results));
    format!("Sketch store of {}, at its fullest\n{table}\n{ABOUT}\n{verdict}\n", storage.memory)
}

const ABOUT: &str = "\
Chances for a new key. False positive: it is taken for an earlier key.
Overcounted: it is counted at least one unit too high. Denied early: it is
denied below half of its limit. Wrongly: a store that keeps every key would
decide otherwise.";

/// Returns whether the memory is enough, from the wrong denials, and from how full the sketch became.
fn verdict(storage: &Storage, results: &[Accuracy<'_>]) -> String {
    let short_for = |cause: Cause, why: &str| {
        let of = results.iter().filter(|result| short(result) == Some(cause));
        let names: Vec<_> = of.map(|result| result.algorithm.name()).collect();
        (!names.is_empty()).then(|| format!("Warning: memory is short for {}: {why}", names.join(", ")))
    };
    let did =
        short_for(Cause::Denied, "more than one request in a thousand was denied because of other clients.");
    let full = short_for(
        Cause::Full,
        "at its fullest, it would have denied more than one new client in a thousand below half of its limit.",
    );
    let mut lines: Vec<String> = did.into_iter().chain(full).collect();
    let differences = || results.iter().map(|result| result.figures.differences);
    let stepped_back = differences().any(|wrong| wrong.wrongly_admitted > 0);
    lines.push(if !lines.is_empty() {
        format!("Try --memory {}.", storage.memory.doubled())
    } else if stepped_back {
        "Memory is enough.".to_owned()
    } else if differences().any(|wrong| wrong.wrongly_denied > 0) {
        "Memory is enough: fewer than one request in a thousand was denied because of other clients. More --memory lowers \
         this share."
            .to_owned()
    } else {
        "Memory is enough: every decision is the same as the keyed store's.".to_owned()
    });
    if stepped_back {
        lines.push(
            "Times step back (--no-sort): the sketch counts an old request in the newest window, and the keyed store in \
             the request's own window. Some decisions differ for this reason too."
                .to_owned(),
        );
    }
    lines.join("\n")
}

/// The reason why memory is short.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Cause {
    /// Too many requests were denied.
    Denied,
    /// Too many new clients would have been denied at the time when the sketch was fullest.
    Full,
}

fn short(result: &Accuracy<'_>) -> Option<Cause> {
    let differences = result.figures.differences;
    let share = differences.wrongly_denied as f64 / result.deserving().max(1) as f64;
    // Requests are admitted wrongly only if times step back, and then wrong denials do not depend on the memory.
    if differences.wrongly_admitted == 0 && share > Saturation::WARNING {
        Some(Cause::Denied)
    } else {
        result.figures.saturation.is_warning().then_some(Cause::Full)
    }
}

#[cfg(test)]
mod tests {
    use tollgate::StoreKind;

    use super::*;
    use crate::replay::ledger::Differences;

    fn table_for(denied: f64, wrongly_denied: u64, wrongly_admitted: u64) -> String {
        let memory = "64KiB".parse().unwrap();
        let storage = Storage { store: StoreKind::Sketch, memory, overflow: None };
        let mut figures = StoreFigures::default();
        figures.saturation.denied = denied;
        figures.saturation.false_positive = 0.25;
        figures.saturation.overcounted = 1e-9;
        figures.differences = Differences { wrongly_denied, wrongly_admitted };
        let algorithm = tollgate::LimitKind::FixedWindow;
        table(&storage, &[Accuracy { algorithm, admitted: 9_000, denied: 1_000, figures: &figures }])
    }

    #[test]
    fn sketch_verdict_blames_memory() {
        let denied = "Warning: memory is short for fixed-window: more than one request in a thousand was denied because \
                      of other clients.\nTry --memory 128KiB.";
        let full = "Warning: memory is short for fixed-window: at its fullest, it would have denied more than one new client";
        for (saturation, wrongly_denied, wrongly_admitted, verdict) in [
            (0.0, 0, 0, "Memory is enough: every decision is the same as the keyed store's."),
            (0.001, 9, 0, "Memory is enough: fewer than one request in a thousand"),
            (0.0, 10, 0, denied),
            (0.0011, 10, 0, denied),
            (0.0011, 9, 0, full),
            (0.0011, 0, 0, full),
            // Times stepped back.
            (0.0011, 10, 7, full),
            (0.001, 10, 7, "Memory is enough.\nTimes step back (--no-sort)"),
        ] {
            let text = table_for(saturation, wrongly_denied, wrongly_admitted);
            assert!(text.contains(verdict), "{saturation} {wrongly_denied} {wrongly_admitted}: {text}");
            assert_eq!(text.contains("(--no-sort)"), wrongly_admitted > 0, "{text}");
        }
    }

    #[test]
    fn chances_are_shown_in_percent() {
        let text = table_for(0.0123, 0, 0);
        for part in ["Sketch store of 64KiB, at its fullest", "25.00 %", "<0.001 %", "1.23 %"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
