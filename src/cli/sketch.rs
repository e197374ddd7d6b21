//! How the sketch store fared, for people and for programs.

use serde::Serialize;

use super::fared::Fared;
use super::human;
use super::report::{align_right, plain_table};
use super::storage::Sketch;
use super::stores::{Differences, SketchFigures};
use super::table::fitted;
use crate::Saturation;

/// The store of one result, in JSON. Fields may be added; those here keep their names and meaning.
#[derive(Serialize, Debug)]
pub struct SketchJson {
    /// As asked for, of all limits together; `state_bytes` is what was made of it.
    memory_bytes: u64,
    wrongly_denied: u64,
    wrongly_admitted: u64,
    saturation: SaturationJson,
}

/// At the end of the fullest window, as chances from 0 to 1.
#[derive(Serialize, Debug)]
struct SaturationJson {
    mistaken: f64,
    overcounted: f64,
    denied: f64,
}

impl SketchJson {
    /// The figures of one algorithm.
    #[must_use]
    pub fn new(sketch: &Sketch, figures: &SketchFigures) -> Self {
        let Differences { wrongly_denied, wrongly_admitted } = figures.differences.unwrap_or_default();
        let Saturation { mistaken, overcounted, denied, .. } = figures.saturation;
        Self {
            memory_bytes: sketch.memory.bytes(),
            wrongly_denied,
            wrongly_admitted,
            saturation: SaturationJson { mistaken, overcounted, denied },
        }
    }
}

/// A table of the store's figures, and whether the memory is enough.
#[must_use]
pub fn table(sketch: &Sketch, results: &[Fared<'_, SketchFigures>]) -> String {
    let mut table = plain_table(&[
        "Algorithm",
        "Mistaken",
        "Overcounted",
        "Denied early",
        "Wrongly denied",
        "Wrongly admitted",
    ]);
    for fared in results {
        let Saturation { mistaken, overcounted, denied, .. } = fared.figures.saturation;
        let [wrongly_denied, wrongly_admitted] = fared.wrong(fared.figures.differences);
        table.add_row([
            fared.kind.as_str().to_owned(),
            human::chance(mistaken),
            human::chance(overcounted),
            human::chance(denied),
            wrongly_denied,
            wrongly_admitted,
        ]);
    }
    align_right(&mut table, 1..6);
    let table = fitted(table, &[2, 1]);
    format!(
        "Sketch store of {}, at its fullest\n{table}\n{ABOUT}\n{}\n",
        sketch.memory,
        verdict(sketch, results)
    )
}

const ABOUT: &str = "\
Chances that a new key is mistaken for one that came before, that a key is
overcounted by a unit or more, and that one is denied below half of its limit.
Wrongly: not as a store that keeps every key.";

/// Whether the memory is enough, by what was denied wrongly, and by how full the sketch got.
fn verdict(sketch: &Sketch, results: &[Fared<'_, SketchFigures>]) -> String {
    let short_for = |cause: Cause, why: &str| {
        let of = results.iter().filter(|fared| short(fared) == Some(cause));
        let names: Vec<_> = of.map(|fared| fared.kind.as_str()).collect();
        (!names.is_empty()).then(|| format!("Warning: memory is short for {}: {why}", names.join(", ")))
    };
    let did = short_for(Cause::Denied, "more than one in a thousand was denied for what others used.");
    let full = short_for(
        Cause::Full,
        "at its fullest, more than one newcomer in a thousand would have been denied below half of its limit.",
    );
    let mut lines: Vec<String> = did.into_iter().chain(full).collect();
    let differences = || results.iter().map(|fared| fared.figures.differences.unwrap_or_default());
    let stepped_back = differences().any(|wrong| wrong.wrongly_admitted > 0);
    lines.push(if !lines.is_empty() {
        format!("Try --memory {}.", sketch.memory.doubled())
    } else if stepped_back {
        "Memory is enough.".to_owned()
    } else if differences().any(|wrong| wrong.wrongly_denied > 0) {
        "Memory is enough: fewer than one in a thousand were denied for what others used. With more --memory, fewer \
         still."
            .to_owned()
    } else {
        "Memory is enough: every decision is the keyed store's.".to_owned()
    });
    if stepped_back {
        lines.push(
            "Times step back (--no-sort): a request older than what others did counts in their window here, and in \
             its own in\nthe keyed store. Decisions differ by that too."
                .to_owned(),
        );
    }
    lines.join("\n")
}

/// Why memory is short.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Cause {
    /// Too many were denied.
    Denied,
    /// Too many would have been, who would have come when it was fullest.
    Full,
}

fn short(fared: &Fared<'_, SketchFigures>) -> Option<Cause> {
    let differences = fared.figures.differences.unwrap_or_default();
    let share = differences.wrongly_denied as f64 / fared.deserving(differences).max(1) as f64;
    // Nothing is admitted wrongly unless times step back, and then wrong denials say nothing about memory.
    if differences.wrongly_admitted == 0 && share > Saturation::WARNING {
        Some(Cause::Denied)
    } else {
        fared.figures.saturation.is_warning().then_some(Cause::Full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::algorithms::Kind;

    fn told(denied: f64, wrongly_denied: u64, wrongly_admitted: u64) -> String {
        let sketch = Sketch { memory: "64KiB".parse().unwrap() };
        let saturation = Saturation { denied, mistaken: 0.25, overcounted: 1e-9 };
        let differences = Some(Differences { wrongly_denied, wrongly_admitted });
        let figures = SketchFigures { saturation, differences };
        table(
            &sketch,
            &[Fared { kind: Kind::FixedWindow, admitted: 9_000, denied: 1_000, figures: &figures }],
        )
    }

    #[test]
    fn memory_is_blamed_for_what_it_does() {
        let denied = "Warning: memory is short for fixed-window: more than one in a thousand was denied for what others \
                      used.\nTry --memory 128KiB.";
        let full = "Warning: memory is short for fixed-window: at its fullest, more than one newcomer";
        for (saturation, wrongly_denied, wrongly_admitted, verdict) in [
            (0.0, 0, 0, "Memory is enough: every decision is the keyed store's."),
            (0.001, 9, 0, "Memory is enough: fewer than one in a thousand"),
            (0.0, 10, 0, denied),
            (0.0011, 10, 0, denied),
            (0.0011, 9, 0, full),
            (0.0011, 0, 0, full),
            // Times stepped back.
            (0.0011, 10, 7, full),
            (0.001, 10, 7, "Memory is enough.\nTimes step back (--no-sort)"),
        ] {
            let text = told(saturation, wrongly_denied, wrongly_admitted);
            assert!(text.contains(verdict), "{saturation} {wrongly_denied} {wrongly_admitted}: {text}");
            assert_eq!(text.contains("(--no-sort)"), wrongly_admitted > 0, "{text}");
        }
    }

    #[test]
    fn chances_are_shown_as_shares() {
        let text = told(0.0123, 0, 0);
        for part in ["Sketch store of 64KiB, at its fullest", "25.00 %", "<0.001 %", "1.23 %"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
