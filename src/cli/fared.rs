//! How a store fared beside a keyed one, whichever it is.

use serde::Serialize;

use super::algorithms::Kind;
use super::compact::{self, CompactJson};
use super::human;
use super::sketch::{self, SketchJson};
use super::storage::Storage;
use super::stores::{Differences, Figures};

/// What a table needs to know of one result.
#[derive(Copy, Clone, Debug)]
pub struct Fared<'a, F> {
    /// Which algorithm.
    pub kind: Kind,
    /// Requests admitted.
    pub admitted: u64,
    /// Requests denied.
    pub denied: u64,
    /// What the store told.
    pub figures: &'a F,
}

impl<'a, F> Fared<'a, F> {
    /// Requests that the keyed store would have admitted.
    #[must_use]
    pub fn deserving(&self, differences: Differences) -> u64 {
        self.admitted - differences.wrongly_admitted + differences.wrongly_denied
    }

    /// Those denied wrongly, as a share of those that deserved to be admitted; and those admitted wrongly, of the others.
    #[must_use]
    pub fn wrong(&self, differences: Option<Differences>) -> [String; 2] {
        let differences = differences.unwrap_or_default();
        let deserving = self.deserving(differences);
        let others = self.admitted + self.denied - deserving;
        [part(differences.wrongly_denied, deserving), part(differences.wrongly_admitted, others)]
    }

    /// With figures of one store only.
    fn of<G>(&self, figures: impl FnOnce(&'a F) -> Option<&'a G>) -> Option<Fared<'a, G>> {
        let Self { kind, admitted, denied, .. } = *self;
        Some(Fared { kind, admitted, denied, figures: figures(self.figures)? })
    }
}

fn part(part: u64, whole: u64) -> String {
    match part {
        0 => "0".to_owned(),
        _ => format!("{} ({})", human::count(part), human::share(part, whole)),
    }
}

/// A table of how a store fared with each algorithm, and what to do about it; nothing about the keyed one.
#[must_use]
pub fn table<'a>(storage: &Storage, results: impl Iterator<Item = Fared<'a, Figures>>) -> Option<String> {
    match storage {
        Storage::Keyed => None,
        Storage::Compact(setup) => {
            let compact = |figures: &'a Figures| match figures {
                Figures::Compact(figures) => Some(figures),
                _ => None,
            };
            let results: Vec<_> = results.filter_map(|fared| fared.of(compact)).collect();
            Some(compact::table(setup, &results))
        }
        Storage::Sketch(setup) => {
            let sketch = |figures: &'a Figures| match figures {
                Figures::Sketch(figures) => Some(figures),
                _ => None,
            };
            let results: Vec<_> = results.filter_map(|fared| fared.of(sketch)).collect();
            Some(sketch::table(setup, &results))
        }
    }
}

/// The same of one result in JSON: an object named for the store.
#[derive(Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum FaredJson {
    /// The compact store.
    Compact(CompactJson),
    /// The sketch store.
    Sketch(SketchJson),
}

impl FaredJson {
    /// The figures of one algorithm; `None` of the keyed store.
    #[must_use]
    pub fn new(storage: &Storage, kind: Kind, figures: &Figures) -> Option<Self> {
        match (storage, figures) {
            (Storage::Compact(setup), Figures::Compact(figures)) => {
                Some(Self::Compact(CompactJson::new(setup, kind, figures)))
            }
            (Storage::Sketch(setup), Figures::Sketch(figures)) => {
                Some(Self::Sketch(SketchJson::new(setup, figures)))
            }
            _ => None,
        }
    }
}
