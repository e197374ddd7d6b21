//! Reading, checking and matching rules.

mod files;
mod matching;
mod read;
