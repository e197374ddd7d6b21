//! The program as people and scripts meet it: every test runs the binary.
#![cfg(feature = "cli")]
#![allow(missing_docs, reason = "tests")]

#[path = "cli/bad_input.rs"]
mod bad_input;
#[path = "cli/clients.rs"]
mod clients;
#[path = "cli/compact.rs"]
mod compact;
#[path = "cli/formats.rs"]
mod formats;
#[path = "cli/limits.rs"]
mod limits;
#[path = "cli/outputs.rs"]
mod outputs;
#[path = "cli/rules_check.rs"]
mod rules_check;
#[path = "cli/rules_replay.rs"]
mod rules_replay;
#[path = "cli/several.rs"]
mod several;
#[path = "cli/sketch.rs"]
mod sketch;
#[path = "cli/suggest.rs"]
mod suggest;
#[path = "cli/suggest_several.rs"]
mod suggest_several;
#[path = "cli/support.rs"]
mod support;
#[path = "cli/traces.rs"]
mod traces;
