//! Exhaustive checks of the two protocols of the compact store: the buckets of its table, and the cells of its sketch.
//! The words are small: times have four bits and wrap while the threads run, buckets have two slots, and sketches have
//! two rows of two cells.
//!
//! Loom and shuttle run the real code with large words, from a few starting states and up to bounds. Here the threads
//! are small state machines with the same steps as the code. A step is one load, or one exchange. All arithmetic (how a
//! word relates to the time, how words compare, what is admitted) uses the code's own functions, with four bits.
//!
//! These checks visit *every* interleaving from *every* starting state, and the clock may advance between any two
//! steps. They cover only sequentially consistent executions. Loom covers the effects of weaker orderings.

mod bucket;
mod cells;

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use tollgate::small::BITS;

const MASK: u8 = (1 << BITS) - 1;
/// The time at the start. The low four bits of the clock wrap during the run.
const BEGINNING: u8 = 14;
/// The number of ticks by which the clock may advance.
const PASSES: u8 = 2;

/// Hashes states of a few dozen bytes. The standard hash takes most of the time in a build without optimisation.
#[derive(Default)]
struct StateHasher(u64);

impl StateHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for StateHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.add(byte.into()));
    }

    fn write_isize(&mut self, variant: isize) {
        self.add(variant.cast_unsigned() as u64);
    }

    fn write_usize(&mut self, length: usize) {
        self.add(length as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Visits every state that can be reached from `beginning`, and returns the number of states.
///
/// `next` pushes the states that are one step away.
fn visit<S: Copy + Eq + Hash>(beginning: S, mut next: impl FnMut(&S, &mut Vec<S>)) -> usize {
    let mut seen = HashSet::<S, BuildHasherDefault<StateHasher>>::from_iter([beginning]);
    let mut open = vec![beginning];
    let mut near = Vec::new();
    while let Some(state) = open.pop() {
        next(&state, &mut near);
        open.extend(near.drain(..).filter(|state| seen.insert(*state)));
    }
    seen.len()
}
