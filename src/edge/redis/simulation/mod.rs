//! Simulates many processes, one server and a network in virtual time. It measures exactly what leases and write-back
//! admit.
//!
//! The processes run the real books. The server is the model of the script. Only time and the network are simulated.
//! The seed determines the whole run. This module exists for this crate's tests and the soak programs, and is not part
//! of the public API.

mod load;
mod node;
mod random;
mod region_script;
mod region_setup;
mod region_tally;
mod regions;
mod steps;
mod tally;
mod world;

pub use self::load::Pattern;
pub use self::node::Mode;
pub use self::region_script::{compare_link_script, compare_region_script};
pub use self::region_setup::{Cut, Mistake, RegionSetup};
pub use self::region_tally::{Phases, Worst};
pub use self::regions::{RegionOutcome, run_regions};
pub use self::steps::{Steps, Sum};
pub use self::tally::Outcome;
pub use self::world::{Faults, Network, Setup, run};
