//! Which rules a request meets: the samples of Envoy's language, and what is ours.
#![cfg(feature = "rules")]
#![allow(missing_docs, reason = "tests")]

#[path = "rules_matching/samples.rs"]
mod samples;
