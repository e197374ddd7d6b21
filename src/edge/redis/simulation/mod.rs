//! Many processes, one server and a network, in virtual time: what the modes that decide in the process admit, exactly.
//!
//! The processes run the real books; the server is the model of the script; only time and the network are made up. All is determined by
//! the seed. For this crate's tests and examples: no part of the interface.

mod load;
mod node;
mod random;
mod steps;
mod tally;
mod world;

pub use self::load::Pattern;
pub use self::node::Mode;
pub use self::steps::{Steps, Sum};
pub use self::tally::Outcome;
pub use self::world::{Faults, Network, Setup, run};
