//! One charge on several places: limits that are checked together, and leases.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod check_all;
mod lease;
