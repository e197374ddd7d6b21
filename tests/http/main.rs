//! Header fields: the examples of the drafts to the letter, and for random limits and names what clients read in them.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod dialects;
mod meaning;
mod read_back;
mod reader;
mod refusals;
