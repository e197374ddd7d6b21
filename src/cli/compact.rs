//! How the compact store fared, for people and for programs.

use serde::Serialize;

use super::algorithms::Kind;
use super::human;
use super::report::{align_right, plain_table};
use super::storage::{Compact, Storage};
use super::stores::{Differences, Figures};

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
    /// The figures of one algorithm; `None` with another store.
    #[must_use]
    pub fn new(storage: &Storage, kind: Kind, figures: Option<&Figures>) -> Option<Self> {
        let (Storage::Compact(compact), Some(figures)) = (storage, figures) else { return None };
        let Differences { wrongly_denied, wrongly_admitted } = figures.differences.unwrap_or_default();
        Some(Self {
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
        })
    }
}

/// What a table needs to know of one result.
#[derive(Copy, Clone, Debug)]
pub struct Fared<'a> {
    /// Which algorithm.
    pub kind: Kind,
    /// Requests admitted.
    pub admitted: u64,
    /// Requests denied.
    pub denied: u64,
    /// What the store counted.
    pub figures: &'a Figures,
}

/// A table of the store's figures, and whether the memory is enough.
#[must_use]
pub fn table<'a>(compact: &Compact, results: impl Iterator<Item = Fared<'a>>) -> String {
    let results: Vec<_> = results.collect();
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
    for &Fared { kind, admitted, denied, figures } in &results {
        let Differences { wrongly_denied, wrongly_admitted } = figures.differences.unwrap_or_default();
        // Of those that deserved to be admitted, and of those that did not.
        let deserving = admitted - wrongly_admitted + wrongly_denied;
        let others = denied - wrongly_denied + wrongly_admitted;
        table.add_row([
            kind.as_str().to_owned(),
            compact.overflow(kind).as_str().to_owned(),
            human::count(figures.slots),
            human::count(figures.peak_live_slots),
            human::count(figures.evicted),
            human::count(figures.indebted),
            part(wrongly_denied, deserving),
            part(wrongly_admitted, others),
        ]);
    }
    align_right(&mut table, 2..8);
    format!("Compact store of {}\n{table}\n{}\n", compact.memory, verdict(compact, &results))
}

fn part(part: u64, whole: u64) -> String {
    match part {
        0 => "0".to_owned(),
        _ => format!("{} ({})", human::count(part), human::share(part, whole)),
    }
}

/// Whether the memory is enough, by what differs from the keyed store and why.
fn verdict(compact: &Compact, results: &[Fared<'_>]) -> String {
    let differences =
        || results.iter().map(|fared| (fared.figures, fared.figures.differences.unwrap_or_default()));
    // Debts of others come out of the sketch or are inherited; without any, no denial is for want of room.
    let short = |(figures, differences): (&Figures, Differences)| {
        differences.wrongly_admitted > 0 || (differences.wrongly_denied > 0 && figures.indebted > 0)
    };
    if differences().any(short) {
        let more = compact.memory.doubled();
        return format!(
            "Memory is short: some decisions are not what the keyed store's would be. Try --memory {more}."
        );
    }
    if differences().any(|(_, differences)| differences != Differences::default()) {
        return "Memory is enough. The decisions that differ are of requests that came just before their time: between two \
                ticks\nof the compact store, each at most 1/256 of the time for one unit, which it admits a tick late."
            .to_owned();
    }
    let evicted = differences().any(|(figures, _)| figures.evicted > 0);
    let but = if evicted { "some clients lost their slots to others, but every" } else { "every" };
    format!("Memory is enough: {but} decision is the keyed store's.")
}
