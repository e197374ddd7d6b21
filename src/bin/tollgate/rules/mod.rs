//! What is about files of rules.
//!
//! | file | does |
//! |---|---|
//! | `files` | reads them, and tells what is wrong |
//! | `check` | `tollgate rules check`: shows what they say |
//! | `replay`, `tally`, `output` | `tollgate replay --rules`: who would be denied, by rule and by key |
//! | `rule` | what a rule says |
//! | `mapping` | from the fields of a log to descriptors |

pub mod check;
mod files;
mod mapping;
mod output;
pub mod replay;
mod rule;
mod tally;
