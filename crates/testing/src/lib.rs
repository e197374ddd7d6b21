//! Code that the tests of several packages share: oracles, one interface to every limiter, random operations, real
//! traces, Redis servers, and reports of skipped tests.

#![allow(
    clippy::new_without_default,
    clippy::should_implement_trait,
    missing_debug_implementations,
    missing_docs,
    reason = "only tests use this package"
)]

pub mod accuracy;
pub mod blocks;
pub mod bounds;
pub mod chart;
pub mod child;
#[macro_use]
mod verbs;
#[macro_use]
pub mod kinds;
pub mod compact;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod holds;
pub mod laws;
pub mod ledger;
pub mod limits;
pub mod naive;
pub mod operations;
pub mod oracle;
pub mod reader;
pub mod reading;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "service")]
pub mod service;
pub mod sketch;
pub mod skipped;
pub mod steps;
pub mod stopping;
pub mod subjects;
pub mod trace;

pub const MS: u64 = 1_000_000;
pub const SEC: u64 = 1_000_000_000;
pub const MINUTE: u64 = 60 * SEC;
pub const HOUR: u64 = 60 * MINUTE;

/// A time in November 2023, at which many tests begin.
pub const START: u64 = 1_700_000_000 * SEC;

/// Returns the time this number of nanoseconds after the epoch.
pub fn at(ns: u64) -> tollgate::Timestamp {
    tollgate::Timestamp::from_nanos(ns)
}

/// Returns a builder of limiters with this clock.
pub fn build<A: tollgate::Algorithm>(
    algorithm: A,
    clock: &tollgate::ManualClock,
) -> tollgate::Builder<A, tollgate::ManualClock> {
    tollgate::RateLimiter::builder(algorithm).clock(clock.clone())
}
