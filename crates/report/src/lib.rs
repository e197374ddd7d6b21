//! How the programs of Tollgate write. The program `tollgate` and the service use it, so that a number, an error, a rule and an
//! explanation look the same on a terminal, in JSON, in the log and on the debug pages.
//!
//! | file | does |
//! |---|---|
//! | `human`, `decimal` | display of numbers, times and durations; parsing of numbers |
//! | `text` | texts from others, which must not control a terminal |
//! | `error` | the failures that end a run, and their exit codes |
//! | `output/` | standard output and standard error: lines that fit the terminal, tables, JSON |
//! | `files`, `charging` | rule files that are read together; how denied requests are charged, as an argument |
//! | `rule`, `explanation` | the contents of a rule; which rules apply to a request, and why |
//! | `line` | the command line of the process, and what is wrong with it |
//! | `descriptor` | the descriptors of a request, as an argument |
//!
//! This package is for Tollgate's own programs, and changes without notice.

#![allow(
    clippy::len_without_is_empty,
    missing_debug_implementations,
    missing_docs,
    unreachable_pub,
    reason = "only the programs of this repository use it"
)]

pub mod charging;
pub mod decimal;
pub mod descriptor;
pub mod error;
pub mod explanation;
pub mod files;
pub mod human;
pub mod line;
pub mod output;
pub mod rule;
pub mod text;
