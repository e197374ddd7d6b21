//! Exhaustive checks of the two protocols that rest on words alone, with words small enough: times of four bits, which wrap while
//! the threads run; buckets of two slots; sketches of two rows of two cells.
//!
//! Loom and shuttle run the code itself, with large words, from a few beginnings and up to bounds. Here the threads are small
//! machines, whose steps are the code's: a step is one load, or one exchange with what was decided for it, and all that is
//! arithmetic (how a word stands, how words compare, what is admitted) is the code's own functions, at four bits. In turn
//! *every* interleaving is visited, from *every* beginning, and the clock may move on between any two steps. To be seen this
//! way: what is sequentially consistent. What weaker orderings do is loom's.

mod bucket;
mod cells;

use std::collections::HashSet;
use std::hash::Hash;

/// Bits of a time.
const BITS: u32 = 4;
const MASK: u8 = (1 << BITS) - 1;
/// When it begins: the clock's low four bits wrap on the way.
const BEGINNING: u8 = 14;
/// By how much the clock may move on.
const PASSES: u8 = 2;

/// Visits every state that can be reached from `beginning` by `next`, which pushes the states that are a step away;
/// how many there are.
fn visit<S: Copy + Eq + Hash>(beginning: S, mut next: impl FnMut(&S, &mut Vec<S>)) -> usize {
    let mut seen = HashSet::from([beginning]);
    let mut open = vec![beginning];
    let mut near = Vec::new();
    while let Some(state) = open.pop() {
        next(&state, &mut near);
        open.extend(near.drain(..).filter(|state| seen.insert(*state)));
    }
    seen.len()
}
