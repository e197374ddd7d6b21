//! Checks that documents agree with the code: GUARANTEES.md, the table of models, the guides in `docs`, and the paths that
//! texts name.

mod guarantees;
mod models_table;
mod names;
mod pages;
mod paths;
mod programs;
mod readme;
