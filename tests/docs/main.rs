//! Checks that documents agree with the code: GUARANTEES.md and the table of models.

#[path = "../common/skipped.rs"]
mod skipped;

mod guarantees;
mod models_table;
mod programs;
