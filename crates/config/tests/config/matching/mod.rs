//! Which rules a request matches: the two sample files in Envoy's language, and Tollgate's additions.
//!
//! Properties:
//! - For any patterns, values, tiers and members, the tree finds the same rules as a naive walk through the file.

mod addresses;
mod ours;
mod patterns;
mod properties;
mod samples;
mod support;
pub(crate) mod texts;
