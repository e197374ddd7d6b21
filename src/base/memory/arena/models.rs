//! Loom models of the places of an arena.

use super::*;
use crate::base::sync::{Arc, UnsafeCell, both, explore};

/// PlaceBits with the content of one.
struct Held {
    places: PlaceBits,
    content: UnsafeCell<u64>,
}

// SAFETY: loom reports accesses of the content that are not ordered.
unsafe impl Sync for Held {}
// SAFETY: as above.
unsafe impl Send for Held {}

type Release = fn(&PlaceBits, usize);

/// Takes a place, uses its memory, and gives it back.
fn use_place(held: &Held, release: Release) -> u64 {
    if !held.places.claim(5) {
        return 0;
    }
    held.content.with_mut(|content| {
        // SAFETY: the claim has the content alone, which loom checks.
        unsafe { *content += 1 };
    });
    release(&held.places, 5);
    1
}

/// Asserts that the content has one user at a time.
fn two_claims(release: Release) {
    let held = Arc::new(Held { places: PlaceBits::new(6), content: UnsafeCell::new(0) });
    let (one, other) =
        both(&held, move |held| use_place(held, release), move |held| use_place(held, release));
    let used = held.content.with_mut(|content| {
        // SAFETY: both threads have ended.
        unsafe { *content }
    });
    assert!(one + other == used && used > 0, "each claim has the place alone");
}

#[test]
fn place_has_one_user_at_a_time() {
    explore(3, || two_claims(PlaceBits::release));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_releasing_without_order_shares_the_place() {
    explore(3, || {
        two_claims(|places, place| {
            places.taken[place / 64].fetch_and(!(1 << (place % 64)), Ordering::Relaxed);
        });
    });
}
