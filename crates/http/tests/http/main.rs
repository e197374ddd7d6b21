//! Header fields: exact examples from the drafts, and random limits and names that a client reads back.

mod dialects;
mod meaning;
mod read_back;
mod refusals;
#[cfg(feature = "rules")]
mod rules;
