//! Tests of the keyed and the compact store: what they do when full, and with clocks that lag, differ or wrap. Also
//! tests of sketches.

#[macro_use]
extern crate tollgate_testing;
#[path = "../common/counting.rs"]
mod counting;

mod any_store;
mod calendar;
mod caps_and_quotas;
mod compact_blocks;
mod compact_oracle;
mod compact_overflow;
mod compact_snapshot;
mod compact_store;
mod compact_tiers;
mod differing_clocks;
mod exhaustive;
mod keyed_snapshot;
mod keyed_store;
mod late_times;
mod sketches;
mod stale_clocks;
