//! The design's table: the wrong denials and wrong admissions of four stores in three amounts of memory.

use super::measure::Limiter;
use super::traffic::{A, B, Traffic};
use tollgate::{Capacity, Overflow};

/// A row of the table: how the memory is used.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Row {
    Store(Overflow),
    Sketch,
}

pub const ROWS: [Row; 4] =
    [Row::Store(Overflow::Spill), Row::Store(Overflow::Inherit), Row::Store(Overflow::Forget), Row::Sketch];

pub const MEBIBYTES: [usize; 3] = [1, 2, 4];

/// One cell of the table: the percentage of deserving requests denied, and of abusive requests admitted.
#[derive(Copy, Clone, Debug)]
pub struct Cell {
    pub traffic: Traffic,
    pub row: Row,
    pub mebibytes: usize,
    pub denied_percent: f64,
    pub admitted_percent: f64,
}

impl Row {
    pub fn name(self) -> String {
        match self {
            Self::Store(overflow) => format!("{overflow:?}"),
            Self::Sketch => "Sketch".to_owned(),
        }
    }

    pub fn limiter(self, traffic: &Traffic, bytes: usize) -> Limiter {
        match self {
            Self::Store(overflow) => Limiter::store(traffic, overflow, Capacity::memory(bytes)),
            Self::Sketch => Limiter::sketch(traffic, bytes),
        }
    }

    /// Returns the design's figures for traffic A and B, each in 1, 2 and 4 MiB.
    const fn figures(self) -> [[(f64, f64); 3]; 2] {
        match self {
            Self::Store(Overflow::Inherit) => {
                [[(48.9, 0.0), (0.29, 0.0), (0.0006, 0.0)], [(6.3, 0.0), (0.12, 0.0), (0.0, 0.0)]]
            }
            Self::Store(Overflow::Forget) => {
                [[(0.0, 2.0), (0.0, 0.10), (0.0, 0.0001)], [(0.0, 0.43), (0.0, 0.02), (0.0, 0.0)]]
            }
            Self::Store(_) => {
                [[(1.5, 0.0), (0.022, 0.0), (0.0, 0.0)], [(0.87, 0.0), (0.023, 0.0), (0.0, 0.0)]]
            }
            Self::Sketch => {
                [[(0.85, 0.0), (0.13, 0.0), (0.012, 0.0)], [(0.81, 0.0), (0.12, 0.0), (0.011, 0.0)]]
            }
        }
    }
}

/// Returns all cells, row by row.
pub fn cells() -> impl Iterator<Item = Cell> {
    ROWS.into_iter().flat_map(|row| {
        [A, B].into_iter().zip(row.figures()).flat_map(move |(traffic, figures)| {
            MEBIBYTES.into_iter().zip(figures).map(move |(mebibytes, (denied_percent, admitted_percent))| {
                Cell { traffic, row, mebibytes, denied_percent, admitted_percent }
            })
        })
    })
}
