//! Simulates many processes, one server and a network in virtual time. It measures exactly what leases and write-back
//! admit.
//!
//! The processes run the real books. The server is the model of the script. Only time and the network are simulated.
//! The seed determines the whole run.
//!
//! | part | contents |
//! |---|---|
//! | `world` | the event loop of one server and its processes |
//! | `setup`, `load` | the settings of a run, and its requests |
//! | `node` | one process: its book, in either mode |
//! | `bounds`, `tally` | what the docs allow, and what was admitted |
//! | `regions` | the event loop of several regions that exchange totals |
//! | `events` | what happens next |

mod bounds;
mod events;
mod load;
mod node;
pub mod regions;
mod setup;
mod tally;
mod world;

pub use self::load::{Arrival, Pattern, requests};
pub use self::setup::{Faults, Mode, Network, Setup};
pub use self::tally::Outcome;
pub use self::world::{ROUNDS, Request, START, World, run};

/// A second, in nanoseconds.
pub const SECOND: u64 = 1_000_000_000;
