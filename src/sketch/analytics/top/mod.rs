//! The heaviest keys of a stream in bounded memory: Space-Saving.
//!
//! ```text
//! entry = [ key | count | error ]     count − error ≤ units of the key ≤ count
//! floor                               units of a key without an entry ≤ floor ≤ all units / entries
//! ```
//! A key that has an entry is counted there. Another takes a free entry, or else that of the least count,
//! which becomes the floor: the newcomer may have been here before, so it begins at the floor, and states
//! that as its error.
//!
//! *Why the floor stays low.* For `m` entries, after any adds and merges,
//!
//! ```text
//! Σ (count − floor) + m × floor ≤ all units
//! ```
//! An add puts `n` on both sides. When an entry gives way, the floor rises by what the least count was above
//! it: each of the `m` entries loses as much in the sum, and `m × floor` gains it all. A merge adds up the
//! counts and the floors (a key that is without an entry in one of the two is taken to be at its floor),
//! keeps the `m` largest, and raises the floor to the largest that it drops: again each of `m` entries loses
//! what `m × floor` gains.
//!
//! *Why not HeavyKeeper.* Its counts decay by chance when keys collide, so on skewed traffic it ranks better
//! in the same memory; but what it says holds with some probability only, no count carries an error of its
//! own, and no merge with a bound is known. Space-Saving's bounds hold for every stream, those of attackers
//! included, and survive merging, which the stripes of [`SampledTopKeys`] rest on; where it is at a loss, on
//! flat streams, its errors say so.
//!
//! *Eviction.* Counts only grow, so the heap of least counts is lazy: it holds what counts once were, a key
//! that is found does not touch it, and only what comes to its root is brought up to date.
//!
//! Sources: Metwally, Agrawal and El Abbadi 2005 (Space-Saving); Agarwal, Cormode, Huang, Phillips, Wei and
//! Yi 2012, and Cafaro, Pulimeno and Tempesta 2016 (merging); Gong, Yang et al. 2018 (HeavyKeeper).

mod index;
mod merge;
mod sampled;
mod text;

use std::alloc::{Layout, handle_alloc_error};
use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::hash::Hash;

use self::index::Index;
pub use self::sampled::{SampledTopKeys, TopSample};
pub use self::text::CutText;
use super::error::{SketchError, SketchReason};

/// The index has up to four places for each, and places are told by 32 bits.
const MAX_ENTRIES: usize = 1 << 30;

/// The heaviest keys of a stream, with their counts, in bounded memory.
///
/// Space-Saving with `m` entries. Once `n` units were added in all:
///
/// - Every key with more than `n / m` units has an entry.
/// - The count of an entry is not below the key's units, and not above them by more than its own
///   [`error`](TopKey::error), which is `n / m` at most and mostly far less.
/// - As long as there were no more than `m` keys, every count is exact.
///
/// [`max_error`](Self::max_error) says what may take the place of `n / m`, as of now. Counts and `n` stop at
/// `u64::MAX`, which then means that much or more.
///
/// Keys are of any type that can be compared and hashed: an address, a text of bounded length ([`CutText`]),
/// or, for what should not be kept, a hash as [`RateLimiter::hash`](crate::RateLimiter::hash) gives it
/// (`TopKeys<u64>`). For counting from many threads, on the side, see [`SampledTopKeys`].
///
/// # Order
/// Largest count first; of equals the one that has had its entry longer. What is kept and how it is ordered
/// depends on the order of adds only, so it is the same in every run.
///
/// # Keys that clients choose
/// The hasher has a secret, so clients cannot choose keys that are slow to look up. A flood of ever new keys
/// pushes out light keys but no heavy ones, and their entries say by their errors what they are.
///
/// # Memory
/// All of it is allocated when it is made: for each entry the key and 32 bytes, 16 bytes of heap, and 16 to
/// 32 of index.
///
/// # Examples
/// ```
/// use tollgate::sketch::TopKeys;
///
/// let mut denials = TopKeys::try_new(100)?; // whoever has more than 1 % of all is found
/// for request in 0..10_000_u32 {
///     // Two keys are behind half of it, and no other comes twice.
///     let key = if request % 2 == 0 { request % 4 } else { request };
///     denials.add(key, 1);
/// }
/// let top = denials.top(2);
/// assert_eq!([top[0].key, top[1].key], [0, 2]);
/// assert!((2_500..=2_500 + denials.max_error()).contains(&top[0].count));
/// assert!(denials.max_error() <= 10_000 / 100);
/// # Ok::<(), tollgate::sketch::SketchError>(())
/// ```
///
/// # Source
/// Metwally, Agrawal and El Abbadi 2005; for merging Agarwal et al. 2012 and Cafaro et al. 2016.
pub struct TopKeys<K> {
    slots: Vec<Slot<K>>,
    capacity: usize,
    /// Counts as they once were, and the slots that they are of.
    least: BinaryHeap<Reverse<(u64, u32)>>,
    index: Index,
    /// What a key without an entry has at most.
    floor: u64,
    /// All units.
    total: u64,
    /// Entries taken so far.
    taken: u64,
    hasher: ahash::RandomState,
}

/// A key, and how much was counted for it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TopKey<K> {
    /// The key.
    pub key: K,
    /// Its units, at most.
    pub count: u64,
    /// By how much the count may be too high, at most. 0 says that it is exact.
    pub error: u64,
}

impl<K> TopKey<K> {
    /// Its units, at least: the count less the error.
    #[must_use]
    pub fn at_least(&self) -> u64 {
        self.count.saturating_sub(self.error)
    }
}

#[derive(Clone)]
struct Slot<K> {
    entry: TopKey<K>,
    hash: u64,
    /// How many entries had been taken before.
    since: u64,
}

impl<K: Clone> Clone for TopKeys<K> {
    /// As large as this one, so that it need not allocate later either.
    fn clone(&self) -> Self {
        let mut slots = Vec::with_capacity(self.capacity);
        slots.extend_from_slice(&self.slots);
        let mut least = BinaryHeap::with_capacity(self.capacity);
        least.extend(&self.least);
        let (index, hasher) = (self.index.clone(), self.hasher.clone());
        let Self { capacity, floor, total, taken, .. } = *self;
        Self { slots, capacity, least, index, floor, total, taken, hasher }
    }
}

/// The order of results.
fn rank<K>(slot: &Slot<K>) -> (Reverse<u64>, u64) {
    (Reverse(slot.entry.count), slot.since)
}

impl<K> TopKeys<K> {
    /// Room for so many keys: some ten times as many as will be asked for, since light keys pass through as
    /// well.
    ///
    /// # Errors
    /// If `entries` is 0, or there is no memory for so many.
    pub fn try_new(entries: usize) -> Result<Self, SketchError> {
        if entries == 0 {
            return Err(SketchReason::ZeroItems.into());
        }
        Self::allocate(entries, ahash::RandomState::new()).ok_or_else(|| {
            let bytes = entries as u128 * Self::entry_bytes() as u128;
            SketchReason::Memory { bytes }.into()
        })
    }

    /// With no entry taken, or `None` if there is no memory for so many.
    fn allocate(entries: usize, hasher: ahash::RandomState) -> Option<Self> {
        if entries > MAX_ENTRIES {
            return None;
        }
        let mut slots = Vec::new();
        slots.try_reserve_exact(entries).ok()?;
        let mut least = BinaryHeap::new();
        least.try_reserve_exact(entries).ok()?;
        let index = Index::for_slots(entries)?;
        Some(Self { slots, capacity: entries, least, index, floor: 0, total: 0, taken: 0, hasher })
    }

    /// With no entry taken; aborts as any allocation does that fails.
    fn empty(entries: usize) -> Self {
        Self::allocate(entries, ahash::RandomState::new())
            .unwrap_or_else(|| handle_alloc_error(Layout::new::<Slot<K>>()))
    }

    /// The most bytes for an entry.
    fn entry_bytes() -> usize {
        size_of::<Slot<K>>() + size_of::<Reverse<(u64, u32)>>() + Index::MAX_SLOT_BYTES
    }

    /// The heaviest `n` keys, largest count first; of equals the one that has had its entry longer.
    ///
    /// # Complexity
    /// O(m log m) for `m` entries.
    #[must_use]
    pub fn top(&self, n: usize) -> Vec<&TopKey<K>> {
        let mut slots: Vec<&Slot<K>> = self.slots.iter().collect();
        slots.sort_unstable_by_key(|slot| rank(slot));
        slots.truncate(n);
        slots.into_iter().map(|slot| &slot.entry).collect()
    }

    /// What a key without an entry has at most, and by how much any count is too high at most: 0 as long as
    /// every key has found an entry, and never more than `total / capacity` (after a merge with a smaller
    /// one, by that one's capacity).
    #[must_use]
    pub fn max_error(&self) -> u64 {
        self.floor
    }

    /// All units that were added.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many keys have an entry.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether no key has an entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// How many keys can have an entry.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The bytes of its memory, without what keys allocate for themselves.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<K>>()
            + self.least.capacity() * size_of::<Reverse<(u64, u32)>>()
            + self.index.bytes()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.least.clear();
        self.index.clear();
        (self.floor, self.total, self.taken) = (0, 0, 0);
        self.slots.clear();
    }

    /// The slot with the least count; of equals the one with the least number.
    fn least(&mut self) -> Option<u32> {
        loop {
            let mut root = self.least.peek_mut()?;
            let Reverse((was, slot)) = *root;
            let count = self.slots[slot as usize].entry.count;
            if was == count {
                return Some(slot);
            }
            *root = Reverse((count, slot));
        }
    }

    /// Every unit counts as so many.
    fn scale(&mut self, factor: u64) {
        let by = |count: &mut u64| *count = count.saturating_mul(factor);
        self.slots.iter_mut().for_each(|slot| {
            by(&mut slot.entry.count);
            by(&mut slot.entry.error);
        });
        by(&mut self.floor);
        by(&mut self.total);
    }
}

impl<K: Hash + Eq> TopKeys<K> {
    /// Counts `n` units for a key. None counts nothing.
    ///
    /// # Complexity
    /// O(1) for a key that has an entry, amortised O(log m) for one that takes another's. Never allocates.
    pub fn add(&mut self, key: K, n: u64) {
        if n == 0 {
            return;
        }
        let hash = self.hasher.hash_one(&key);
        let found = self.find(hash, &key);
        self.total = self.total.saturating_add(n);
        match found {
            Some(slot) => {
                let entry = &mut self.slots[slot as usize].entry;
                entry.count = entry.count.saturating_add(n);
            }
            None => self.enter(key, hash, n),
        }
    }

    /// Gives a key without an entry a free one, or that of the least count.
    fn enter(&mut self, key: K, hash: u64, n: u64) {
        let free = self.slots.len();
        let least = if free < self.capacity { None } else { self.least() };
        if let Some(least) = least {
            self.floor = self.slots[least as usize].entry.count;
        }
        let entry = TopKey { key, count: self.floor.saturating_add(n), error: self.floor };
        let slot = Slot { entry, hash, since: self.taken };
        self.taken += 1;
        // The key that gives way is dropped last: it may panic, and all is in order by then.
        match least {
            Some(least) => {
                let old = std::mem::replace(&mut self.slots[least as usize], slot);
                self.index.remove(old.hash, least);
                self.index.insert(hash, least);
            }
            None => self.push(slot),
        }
    }

    /// Puts an entry into the next free slot.
    fn push(&mut self, slot: Slot<K>) {
        #[expect(clippy::cast_possible_truncation, reason = "at most `MAX_ENTRIES`")]
        let number = self.slots.len() as u32;
        self.index.insert(slot.hash, number);
        self.least.push(Reverse((slot.entry.count, number)));
        self.slots.push(slot);
    }

    fn find<Q: Eq + ?Sized>(&self, hash: u64, key: &Q) -> Option<u32>
    where
        K: Borrow<Q>,
    {
        self.index.find(hash, |slot| self.slots[slot as usize].entry.key.borrow() == key)
    }

    /// The entry of a key. One without an entry has at most [`max_error`](Self::max_error) units.
    #[must_use]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&TopKey<K>>
    where
        K: Borrow<Q>,
    {
        let slot = self.find(self.hasher.hash_one(key), key)?;
        Some(&self.slots[slot as usize].entry)
    }
}

impl<K: fmt::Debug> fmt::Debug for TopKeys<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopKeys")
            .field("capacity", &self.capacity)
            .field("total", &self.total)
            .field("max_error", &self.floor)
            .field("top", &self.top(10))
            .finish_non_exhaustive()
    }
}
