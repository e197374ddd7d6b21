//! Checks that documents agree with the code: GUARANTEES.md, the table of models, and the paths that texts name.

mod guarantees;
mod models_table;
mod paths;
mod programs;
