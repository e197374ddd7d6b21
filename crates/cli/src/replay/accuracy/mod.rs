//! The accuracy of a store compared with a keyed one, for people and for programs.

mod compact;
mod sketch;

use serde_json::Value;
use tollgate::{LimitKind, StoreKind};

use super::StoreFigures;
use super::ledger::Differences;
use crate::store::Storage;
use tollgate_report::human;

/// The part of one result that a table needs.
#[derive(Copy, Clone, Debug)]
pub struct Accuracy<'a> {
    /// The algorithm.
    pub algorithm: LimitKind,
    /// Requests admitted.
    pub admitted: u64,
    /// Requests denied.
    pub denied: u64,
    /// The figures of the store.
    pub figures: &'a StoreFigures,
}

impl Accuracy<'_> {
    /// Returns the requests that the keyed store would have admitted.
    fn deserving(&self) -> u64 {
        let Differences { wrongly_denied, wrongly_admitted } = self.figures.differences;
        self.admitted - wrongly_admitted + wrongly_denied
    }

    /// Returns the wrongly denied as a share of those that deserved admission, and the wrongly admitted as a share of
    /// the rest.
    fn wrong(&self) -> [String; 2] {
        let Differences { wrongly_denied, wrongly_admitted } = self.figures.differences;
        let deserving = self.deserving();
        let others = self.admitted + self.denied - deserving;
        [(wrongly_denied, deserving), (wrongly_admitted, others)].map(|(part, whole)| match part {
            0 => "0".to_owned(),
            _ => format!("{} ({})", human::count(part), human::share(part, whole)),
        })
    }
}

/// Returns a table of the store's accuracy with each algorithm, with advice; nothing for the keyed store.
pub fn table(storage: &Storage, results: &[Accuracy<'_>]) -> Option<String> {
    match storage.store {
        StoreKind::Keyed | StoreKind::Direct => None,
        StoreKind::Compact => Some(compact::table(storage, results)),
        StoreKind::Sketch => Some(sketch::table(storage, results)),
    }
}

/// Returns the accuracy of one result in JSON: an object with the store's name; nothing for the keyed store. New fields
/// may be added; these fields keep their names and meaning.
pub fn json(storage: &Storage, algorithm: LimitKind, figures: &StoreFigures) -> Value {
    match storage.store {
        StoreKind::Keyed | StoreKind::Direct => Value::Null,
        StoreKind::Compact => compact::json(storage, algorithm, figures),
        StoreKind::Sketch => sketch::json(storage, figures),
    }
}
