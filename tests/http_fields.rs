//! Header fields: the examples of the drafts to the letter, and for random limits and names what clients read in them.

#[macro_use]
mod common;

mod http_fields {
    mod dialects;
    mod meaning;
    mod read_back;
    pub(crate) mod reader;
    mod refusals;
}
