//! How the sketch store fared, for people and for programs.

use serde::Serialize;

use super::fared::Fared;
use super::human;
use super::report::{align_right, plain_table};
use super::storage::Sketch;
use super::stores::{Differences, SketchFigures};
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
    format!("Sketch store of {}, at its fullest\n{table}\n{}\n", sketch.memory, verdict(sketch, results))
}

/// Whether the memory is enough, by how full the sketch got and by what differs from the keyed store.
fn verdict(sketch: &Sketch, results: &[Fared<'_, SketchFigures>]) -> String {
    let differences = |fared: &Fared<'_, SketchFigures>| fared.figures.differences.unwrap_or_default();
    let share_denied = |fared: &Fared<'_, SketchFigures>| {
        let (denied, deserving) = (differences(fared).wrongly_denied, fared.deserving(differences(fared)));
        denied as f64 / deserving.max(1) as f64
    };
    let short = |fared: &&Fared<'_, SketchFigures>| {
        fared.figures.saturation.is_warning() || share_denied(fared) > Saturation::WARNING
    };
    let names: Vec<_> = results.iter().filter(short).map(|fared| fared.kind.as_str()).collect();
    let sum = |count: fn(Differences) -> u64| results.iter().map(|fared| count(differences(fared))).sum();
    let (denied, admitted): (u64, u64) =
        (sum(|wrong| wrong.wrongly_denied), sum(|wrong| wrong.wrongly_admitted));
    let mut text = if !names.is_empty() {
        format!(
            "Warning: memory is short for {}: more than one in a thousand is denied for what others used.\nTry \
             --memory {}.",
            names.join(", "),
            sketch.memory.doubled()
        )
    } else if denied > 0 {
        "Memory is enough: fewer than one in a thousand were denied for what others used. More --memory makes them \
         fewer still."
            .to_owned()
    } else if admitted > 0 {
        "Memory is enough: nobody was denied for what others used.".to_owned()
    } else {
        "Memory is enough: every decision is the keyed store's.".to_owned()
    };
    if admitted > 0 {
        text += "\nWrongly admitted are requests older than one before them (--no-sort): others have begun a later \
                 window, and\nthey are counted in that one.";
    }
    text
}
