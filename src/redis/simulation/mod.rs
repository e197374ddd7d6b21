//! Many processes, one server and a network, in virtual time: what the modes that decide in the process admit, exactly.
//!
//! The processes run the real books; the server is the model of the script; only time and the network are made up. All is determined by
//! the seed. For this crate's tests and examples: no part of the interface.

mod load;
mod node;
mod steps;
mod tally;
mod world;

pub use self::load::Pattern;
pub use self::node::Mode;
pub use self::steps::{Steps, Sum};
pub use self::tally::Outcome;
pub use self::world::{Faults, Network, Setup, run};

/// A generator of good enough randomness: SplitMix64.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `bound`; 0 if that is 0.
    fn below(&mut self, bound: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(bound)) >> 64).unwrap_or(0)
    }

    /// In [0, 1).
    fn fraction(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let bits = (self.next() >> 11) as f64;
        bits / (1_u64 << 53) as f64
    }
}
