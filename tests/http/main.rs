//! Header fields: exact examples from the drafts, and random limits and names that a client reads back.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod dialects;
mod meaning;
mod read_back;
mod reader;
mod refusals;
