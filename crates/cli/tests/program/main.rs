//! The `tollgate` program. Every test runs the binary, as users and scripts do.

mod bad_input;
mod bounded;
mod clients;
mod compact;
mod formats;
mod limits;
mod outputs;
mod report;
mod rules_check;
mod rules_explain;
mod rules_replay;
#[cfg(feature = "redis")]
mod rules_shared;
#[cfg(feature = "serve")]
mod serve;
mod several;
mod shell;
mod sketch;
mod suggest;
mod suggest_several;
mod support;
mod terminal;
mod traces;
