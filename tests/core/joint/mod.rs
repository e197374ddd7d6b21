//! One charge on several places: limits that are checked together, and leases.

mod check_all;
mod lease;
