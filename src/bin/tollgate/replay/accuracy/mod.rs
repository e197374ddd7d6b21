//! How a store fared beside a keyed one, for people and for programs.

mod compact;
mod sketch;

use serde_json::Value;

use super::StoreFigures;
use super::ledger::Differences;
use crate::algorithm::AlgorithmName;
use crate::human;
use crate::store::{Storage, StoreArg};

/// What a table needs to know of one result.
#[derive(Copy, Clone, Debug)]
pub struct Accuracy<'a> {
    /// Which algorithm.
    pub algorithm: AlgorithmName,
    /// Requests admitted.
    pub admitted: u64,
    /// Requests denied.
    pub denied: u64,
    /// What the store told.
    pub figures: &'a StoreFigures,
}

impl Accuracy<'_> {
    /// Requests that the keyed store would have admitted.
    fn deserving(&self) -> u64 {
        let Differences { wrongly_denied, wrongly_admitted } = self.figures.differences;
        self.admitted - wrongly_admitted + wrongly_denied
    }

    /// Those denied wrongly, as a share of those that deserved to be admitted; and those admitted wrongly, of the others.
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

/// A table of how a store fared with each algorithm, and what to do about it; nothing about the keyed one.
pub fn table(storage: &Storage, results: &[Accuracy<'_>]) -> Option<String> {
    match storage.store {
        StoreArg::Keyed => None,
        StoreArg::Compact => Some(compact::table(storage, results)),
        StoreArg::Sketch => Some(sketch::table(storage, results)),
    }
}

/// The same of one result in JSON: an object named for the store; nothing of the keyed one. Fields may be added; those here keep their
/// names and meaning.
pub fn json(storage: &Storage, algorithm: AlgorithmName, figures: &StoreFigures) -> Value {
    match storage.store {
        StoreArg::Keyed => Value::Null,
        StoreArg::Compact => compact::json(storage, algorithm, figures),
        StoreArg::Sketch => sketch::json(storage, figures),
    }
}
