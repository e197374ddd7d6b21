//! Code that the behaviour tests share: oracles, one interface to every limiter, random operations, real traces.

#![allow(dead_code, unused_imports, unused_macros, reason = "each test program uses a part")]

pub(crate) mod accuracy;
#[macro_use]
mod verbs;
#[macro_use]
pub(crate) mod compact;
pub(crate) mod kinds;
pub(crate) mod ledger;
#[macro_use]
pub(crate) mod lease;
pub(crate) mod operations;
pub(crate) mod oracle;
#[macro_use]
pub(crate) mod sketch;
pub(crate) mod skipped;
pub(crate) mod steps;
pub(crate) mod stopping;
#[macro_use]
pub(crate) mod subjects;
pub(crate) mod trace;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SEC: u64 = 1_000_000_000;
pub(crate) const MINUTE: u64 = 60 * SEC;
pub(crate) const HOUR: u64 = 60 * MINUTE;
