//! Which rules limit a request, and the key that each of them counts it by.
//!
//! ```text
//! at each level   the exact (key, value)              one look-up by hash
//!                 else the wildcards, first declared  by their literal beginning or end, or one in between
//!                 else the key without a value        one look-up by hash
//! ```
//! A level is a number. One table for all levels holds the exact entries, by the hash of level, key and value, so a request's texts
//! are not copied. A search never goes back: the entry that a level finds first counts, as in Envoy's service.
//!
//! [`Branch`] is what a file declares, [`Tree`] the branches compiled for search, [`Descriptor`] what a request brings.

mod affixes;
mod branch;
mod counter_key;
mod descriptor;
mod descriptors;
mod literals;
mod pattern;
mod tree;
mod wild;

pub(super) use self::branch::{Branch, Position, Tier};
pub(super) use self::counter_key::CounterKey;
pub use self::descriptor::Descriptor;
pub use self::descriptors::{Added, Descriptors};
pub(super) use self::pattern::Pattern;
pub(super) use self::tree::{FoundRules, Tree};
pub(super) use self::wild::Wildcards;
