//! Which rules a request meets: the samples of Envoy's language, and what is ours.
//!
//! Properties:
//! - a tree finds what walking the file by hand finds, whatever the patterns, the values, the tiers and their members.
#![cfg(feature = "rules")]
#![allow(missing_docs, reason = "tests")]

#[path = "rules_matching/naive.rs"]
mod naive;
#[path = "rules_matching/ours.rs"]
mod ours;
#[path = "rules_matching/properties.rs"]
mod properties;
#[path = "rules_matching/samples.rs"]
mod samples;
#[path = "rules_matching/support.rs"]
mod support;
#[path = "rules_matching/texts.rs"]
mod texts;
