//! Maps a hash to a slot: open addressing with linear probing, at most half full.
//!
//! `TopKeys` does not use the map of the standard library, because that map would store the keys a second time.

use crate::sketch::hash::{mix, scale};

/// The slot number of a free place.
const FREE: u32 = u32::MAX;

#[derive(Copy, Clone)]
struct IndexEntry {
    /// The top bits of the mixed hash. The home place is computed from them.
    tag: u32,
    slot: u32,
}

#[derive(Clone)]
pub(super) struct Index {
    /// The length is a power of two.
    places: Vec<IndexEntry>,
}

impl Index {
    /// The bytes per slot in the worst case: if the number of slots is just above a power of two, a quarter of the
    /// places is used.
    pub(super) const MAX_SLOT_BYTES: usize = 4 * size_of::<IndexEntry>();

    /// Creates an index for slots below `slots`, which is at most 2^30. Returns `None` if the memory cannot be
    /// allocated.
    pub(super) fn for_slots(slots: usize) -> Option<Self> {
        let len = (2 * slots).next_power_of_two();
        let mut places = Vec::new();
        places.try_reserve_exact(len).ok()?;
        places.resize(len, IndexEntry { tag: 0, slot: FREE });
        Some(Self { places })
    }

    pub(super) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<IndexEntry>()
    }

    pub(super) fn clear(&mut self) {
        self.places.fill(IndexEntry { tag: 0, slot: FREE });
    }

    fn home(&self, tag: u32) -> usize {
        scale(u64::from(tag) << 32, self.places.len())
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.places.len() - 1)
    }

    /// Returns the distance from `other` forward to `at`, with wrap-around.
    fn behind(&self, at: usize, other: usize) -> usize {
        at.wrapping_sub(other) & (self.places.len() - 1)
    }

    /// Returns the first place from the home place on that is free, or for which `stop` returns true.
    fn probe(&self, tag: u32, mut stop: impl FnMut(IndexEntry) -> bool) -> usize {
        let mut at = self.home(tag);
        // The loop ends, because half of the places are free.
        while self.places[at].slot != FREE && !stop(self.places[at]) {
            at = self.after(at);
        }
        at
    }

    /// Returns the slot that has this hash and for which `is` returns true.
    #[inline]
    pub(super) fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = tag(hash);
        let slot = self.places[self.probe(tag, |place| place.tag == tag && is(place.slot))].slot;
        (slot != FREE).then_some(slot)
    }

    /// Inserts a slot that is not in the index.
    pub(super) fn insert(&mut self, hash: u64, slot: u32) {
        let tag = tag(hash);
        let at = self.probe(tag, |_| false);
        self.places[at] = IndexEntry { tag, slot };
    }

    /// Removes a slot that is in the index. It then moves later entries back, so that no free place separates an
    /// entry from its home.
    pub(super) fn remove(&mut self, hash: u64, slot: u32) {
        let mut free = self.probe(tag(hash), |place| place.slot == slot);
        let mut at = free;
        loop {
            at = self.after(at);
            let place = self.places[at];
            if place.slot == FREE {
                break;
            }
            // An entry whose home comes after the free place stays.
            if self.behind(at, self.home(place.tag)) >= self.behind(at, free) {
                self.places[free] = place;
                free = at;
            }
        }
        self.places[free].slot = FREE;
    }
}

fn tag(hash: u64) -> u32 {
    (mix(hash) >> 32) as u32
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    /// Inserts and removes slots with few home places in any order, and compares the index with a set.
    #[test]
    fn index_finds_slots_until_removed() {
        const SLOTS: u32 = 16;
        let mut index = Index::for_slots(SLOTS as usize).unwrap();
        // Five hashes for sixteen slots give long runs, and some of them wrap around the end.
        let hash = |slot: u32| u64::from(slot % 5);
        let mut within = [false; SLOTS as usize];
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random = mix(random + 1);
            #[expect(clippy::cast_possible_truncation, reason = "below 16")]
            let slot = (random % u64::from(SLOTS)) as u32;
            let is_in = &mut within[slot as usize];
            if *is_in {
                index.remove(hash(slot), slot);
            } else {
                index.insert(hash(slot), slot);
            }
            *is_in = !*is_in;
            for slot in 0..SLOTS {
                let found = index.find(hash(slot), |candidate| candidate == slot);
                assert_eq!(found, within[slot as usize].then_some(slot));
            }
        }
    }
}
