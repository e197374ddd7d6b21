//! Tests of the structures with fixed memory: filters, counters, rates, the heaviest keys, and the sketch store.

mod bloom;
mod count_min;
mod in_flight;
mod rate;
mod sketch_store;
mod sketch_turns;
mod tat_sketch;
mod top_keys;
