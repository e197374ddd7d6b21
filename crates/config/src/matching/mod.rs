//! Finds the rules that limit a request, by its keys and values.
//!
//! ```text
//! at each level   1. the exact (key, value)             one hash look-up
//!                 2. the longest range of addresses     a search in sorted intervals
//!                 3. the wildcards, first declared      by their prefix or suffix, or by a literal between
//!                 4. the key without a value            one hash look-up
//! ```
//! A level is a number. One table for all levels holds the exact entries, by the hash of level, key and value, so a
//! search does not copy the request's texts. A search never backtracks: the first entry that a level finds counts, as
//! in Envoy's service.
//!
//! [`Branch`] is a descriptor of a file. [`Tree`] holds the branches in a form for search, and its `trace` explains why rules do
//! not apply.

mod address;
mod affixes;
mod branch;
mod by_address;
mod literals;
mod node;
mod pattern;
mod same;
mod trace;
mod tree;
mod wild;

pub use self::address::{AddressText, address_of, push_ipv4};
pub(super) use self::address::{Ranges, canonical, is_longer_than_addresses, pattern_in_lower_case};
pub(super) use self::branch::{Branch, BranchRules, Matched, Position, Tier, keys_of_addresses};
pub use self::node::FoundRules;
pub(super) use self::pattern::Pattern;
pub use self::same::is_same;
pub use self::trace::{FileEntry, Mismatch, Missed};
pub use self::tree::Tree;
pub(super) use self::wild::Wildcards;
