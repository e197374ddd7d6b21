//! Which rules a request meets: the samples of Envoy's language, and what is ours.
//!
//! Properties:
//! - a tree finds what walking the file by hand finds, whatever the patterns, the values, the tiers and their members.

mod naive;
mod ours;
mod properties;
mod samples;
mod support;
pub(crate) mod texts;
