//! The heaviest keys of a stream in bounded memory: the Space-Saving algorithm.
//!
//! ```text
//! entry = [ key | count | error ]     count − error ≤ units of the key ≤ count
//! floor                               units of a key without an entry ≤ floor ≤ all units / entries
//! ```
//! An add of `n` units works in these steps:
//!
//! 1. If the key has an entry, add `n` to its count.
//! 2. Otherwise the key takes a free entry. If no entry is free, it takes the entry with the smallest count, and this
//!    count becomes the floor.
//! 3. The key may have been in the stream before, with at most `floor` units. So the count of the new entry is the
//!    floor plus `n`, and its error is the floor.
//!
//! *Why the floor stays low.* For `m` entries, after any adds and merges,
//!
//! ```text
//! Σ (count − floor) + m × floor ≤ all units
//! ```
//! An add of `n` units adds `n` to both sides. When an entry is replaced, the floor rises by the difference between
//! the smallest count and the old floor. Each of the `m` entries loses this difference in the sum, and `m × floor`
//! gains the total.
//!
//! A merge adds the counts and the floors. If a key has an entry in only one of the two summaries, the floor of the
//! other summary counts as its count there. The merge keeps the `m` largest entries and raises the floor to the
//! largest count that it drops. Again each of the `m` entries loses in the sum, and `m × floor` gains the same total.
//!
//! *Why not HeavyKeeper.* Its counts decay at random when keys collide. On skewed traffic this ranks keys better in
//! the same memory. But its bounds hold only with some probability, no count has an error of its own, and no merge
//! with a bound is known. The bounds of Space-Saving hold for every stream, including streams that an attacker
//! chooses. They also hold after a merge, which the stripes of [`SampledTopKeys`] need. If all keys are about equally
//! frequent, Space-Saving is less exact, and the reported errors show this.
//!
//! *Eviction.* A heap finds the entry with the smallest count. Counts only grow, so the heap may hold old values of
//! the counts. An add to a key that has an entry does not touch the heap. When the smallest count is needed, the root
//! of the heap is updated until its value is current.
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

/// The index has up to four places for each entry, and it stores slot numbers in 32 bits.
const MAX_ENTRIES: usize = 1 << 30;

/// Finds the heaviest keys of a stream and their counts, in bounded memory.
///
/// `TopKeys` is the Space-Saving algorithm with `m` entries. After `n` units were added in total:
///
/// - Every key with more than `n / m` units has an entry.
/// - The count of an entry is at least the number of the key's units. It is too high by at most its own
///   [`error`](TopKey::error), which is at most `n / m` and usually much smaller.
/// - As long as the stream has at most `m` keys, every count is exact.
///
/// [`max_error`](Self::max_error) returns the current bound, which is at most `n / m`. Counts and `n` stop at
/// `u64::MAX`, which then means this number or more.
///
/// Keys are of any type that can be compared and hashed: for example an address, or a text of bounded length
/// ([`CutText`]). For keys that should not be stored, use the hash that
/// [`RateLimiter::hash`](crate::RateLimiter::hash) returns (`TopKeys<u64>`). To count from many threads, outside the
/// request path, use [`SampledTopKeys`].
///
/// # Order
/// Results are in descending order of count. Among equal counts, the key with the older entry comes first. The kept
/// keys and their order depend only on the order of the adds, so every run gives the same result.
///
/// # Keys that clients choose
/// The hasher has a secret, so clients cannot choose keys that are slow to look up. A flood of new keys replaces
/// light keys but no heavy keys. The entries of the flood can be recognised: their errors are nearly as large as their
/// counts.
///
/// # Memory
/// All memory is allocated at creation. Each entry takes the key and 32 bytes, 16 bytes of heap, and 16 to 32 bytes
/// of index.
///
/// # Examples
/// ```
/// use tollgate::sketch::TopKeys;
///
/// let mut denials = TopKeys::try_new(100)?; // finds each key with more than 1 % of all units
/// for request in 0..10_000_u32 {
///     // Two keys send half of the requests, and no other key comes twice.
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
/// Metwally, Agrawal and El Abbadi 2005. For merging: Agarwal et al. 2012 and Cafaro et al. 2016.
pub struct TopKeys<K> {
    slots: Vec<Slot<K>>,
    capacity: usize,
    /// The counts, or old values of them, each with its slot. See *Eviction* in the module docs.
    least: BinaryHeap<Reverse<(u64, u32)>>,
    index: Index,
    /// The largest number of units that a key without an entry can have.
    floor: u64,
    /// The sum of all units.
    total: u64,
    /// The number of entries taken so far.
    taken: u64,
    hasher: ahash::RandomState,
}

/// A key and its count.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TopKey<K> {
    /// The key itself.
    pub key: K,
    /// The upper bound of the key's units.
    pub count: u64,
    /// The largest possible excess of the count. 0 means that the count is exact.
    pub error: u64,
}

impl<K> TopKey<K> {
    /// Returns the lower bound of the key's units: the count minus the error.
    #[must_use]
    pub fn at_least(&self) -> u64 {
        self.count.saturating_sub(self.error)
    }
}

#[derive(Clone)]
struct Slot<K> {
    entry: TopKey<K>,
    hash: u64,
    /// The number of entries that were taken before this one.
    since: u64,
}

impl<K: Clone> Clone for TopKeys<K> {
    /// The clone has the same capacity, so it does not allocate later either.
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

/// The sort key of the results.
fn rank<K>(slot: &Slot<K>) -> (Reverse<u64>, u64) {
    (Reverse(slot.entry.count), slot.since)
}

impl<K> TopKeys<K> {
    /// Creates a summary with room for `entries` keys. Choose about ten times the number of keys that you want to see,
    /// because light keys also take entries.
    ///
    /// # Errors
    /// If `entries` is 0, or if the memory cannot be allocated.
    pub fn try_new(entries: usize) -> Result<Self, SketchError> {
        if entries == 0 {
            return Err(SketchReason::ZeroItems.into());
        }
        Self::allocate(entries, ahash::RandomState::new()).ok_or_else(|| {
            let bytes = entries as u128 * Self::entry_bytes() as u128;
            SketchReason::Memory { bytes }.into()
        })
    }

    /// Creates an empty summary, or returns `None` if the memory cannot be allocated.
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

    /// Creates an empty summary. It aborts if the allocation fails, like any other allocation.
    fn empty(entries: usize) -> Self {
        Self::allocate(entries, ahash::RandomState::new())
            .unwrap_or_else(|| handle_alloc_error(Layout::new::<Slot<K>>()))
    }

    /// The largest number of bytes per entry.
    fn entry_bytes() -> usize {
        size_of::<Slot<K>>() + size_of::<Reverse<(u64, u32)>>() + Index::MAX_SLOT_BYTES
    }

    /// Returns the heaviest `n` keys, in descending order of count. Among equal counts, the older entry comes first.
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

    /// Returns the largest number of units that a key without an entry can have. No count is too high by more than
    /// this number. It is 0 as long as no key was replaced. It is never more than `total / capacity`; after a merge,
    /// the smaller capacity of the two summaries counts.
    #[must_use]
    pub fn max_error(&self) -> u64 {
        self.floor
    }

    /// Returns the sum of all units that were added.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of keys that have an entry.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether no key has an entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the number of keys that can have an entry.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the size of the memory in bytes, without the memory that keys allocate themselves.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<K>>()
            + self.least.capacity() * size_of::<Reverse<(u64, u32)>>()
            + self.index.bytes()
    }

    /// Removes all entries and counts.
    pub fn clear(&mut self) {
        self.least.clear();
        self.index.clear();
        (self.floor, self.total, self.taken) = (0, 0, 0);
        self.slots.clear();
    }

    /// Returns the slot with the smallest count; among equal counts, the slot with the smallest number.
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

    /// Multiplies all counts, errors and totals by `factor`.
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
    /// Adds `n` units to a key. An `n` of 0 counts nothing.
    ///
    /// # Complexity
    /// O(1) for a key that has an entry; amortised O(log m) for a key that replaces another. It never allocates.
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

    /// Gives a new key a free entry, or the entry with the smallest count.
    fn enter(&mut self, key: K, hash: u64, n: u64) {
        let free = self.slots.len();
        let least = if free < self.capacity { None } else { self.least() };
        if let Some(least) = least {
            self.floor = self.slots[least as usize].entry.count;
        }
        let entry = TopKey { key, count: self.floor.saturating_add(n), error: self.floor };
        let slot = Slot { entry, hash, since: self.taken };
        self.taken += 1;
        // The replaced key is dropped last. Its `Drop` may panic, and all fields are consistent by then.
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

    /// Returns the entry of a key. A key without an entry has at most [`max_error`](Self::max_error) units.
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
