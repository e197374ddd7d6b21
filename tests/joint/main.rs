//! One charge on several places: limits that are checked together, and leases.

#[macro_use]
extern crate tollgate_testing;

mod check_all;
mod lease;
