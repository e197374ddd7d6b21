//! The comparison of secrets: tokens of operators, and hashes of passwords.

use std::hint::black_box;

/// Compares in a time that depends only on the lengths.
pub fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differ = |differ: u8, (one, other): (&u8, &u8)| black_box(differ | (one ^ other));
    one.len() == other.len() && black_box(one.iter().zip(other).fold(0, differ)) == 0
}
