//! The buckets of a table: first a few of them, and all of them once the first ones are full.
//!
//! A page of memory has buckets of 32 neighbouring parts of the hashes, so the first keys of a table would use a page each.
//! They share the *first buckets* instead. Nothing on the way of a check is added for that: the address of a bucket is
//! computed as usual, from the array that is in use.
//!
//! ```text
//! first buckets in use ──a bucket is full──► all buckets in use, words still to move ──► moved
//! ```
//! A word does not tell the bucket of its key among all buckets. So each first slot also has the *hash* of its key. A new
//! key claims the slot by that hash, and then writes its word. No other key ever gets the slot, even if its key is idle.
//! A key claims the first slot in the order of its search that is free or that its own fingerprint has claimed. Hashes never
//! change, so all threads that insert the key choose the same slot.
//!
//! # How words move
//! If a key finds no slot, its thread puts all buckets in use, and moves all words:
//!
//! 1. It *freezes* each first slot: it exchanges the word for one that has the same state, and no fingerprint. A thread
//!    that still uses the first buckets fails to exchange this word, and begins again with all buckets.
//! 2. It writes the word with its fingerprint to the key's bucket among all buckets, unless the key has a slot there.
//! 3. When all first slots are done, it notes that they are moved.
//!
//! A thread that searches all buckets first moves the words itself if they are not moved yet, so no thread waits for
//! another one. Several threads may move the same word. They find its key in its slot, or choose the same empty slot, as any
//! two threads that insert a key. A check of a key that is in its home slot need not look at the first buckets: a key is
//! among all buckets only after its first slot is frozen.
//!
//! The number of all buckets is a multiple of that of the first ones. So all keys of a bucket come from one first bucket, and
//! there is room for them.
//!
//! A state of 0 or 1 moves as 2. That is a debt two ticks too long, and only if the ticks have wrapped around.

use core::fmt;

use super::SlotAddress;
use crate::algorithm::compact::slot::{EMPTY, SlotWord};
use crate::base::memory::{Array, Staged, Zeroed};
use crate::base::sync::AtomicU64;
use crate::base::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// A frozen slot without a word.
const NOTHING: u64 = SlotWord::pack(0, 1);

/// See the module's documentation.
pub(super) struct Buckets<const WAYS: usize> {
    pub(super) words: Staged<[AtomicU64; WAYS]>,
    /// The hashes of the first slots.
    hashes: Array<[AtomicU64; WAYS]>,
    /// 1 as soon as no word is left in the first slots.
    pub(super) moved: AtomicU64,
}

impl<const WAYS: usize> Buckets<WAYS> {
    /// Creates empty buckets, of which `all` is a multiple of `first`, or returns `None` if there is not enough memory.
    pub(super) fn new(first: usize, all: usize) -> Option<Self> {
        debug_assert!(first == 0 || all.is_multiple_of(first), "a bucket has the keys of one first bucket");
        Some(Self {
            words: Staged::zeroed(first, all)?,
            hashes: Array::zeroed(first)?,
            moved: AtomicU64::new(u64::from(first == 0)),
        })
    }

    /// The bucket of a key among those in use.
    #[inline(always)]
    pub(super) fn current(&self, place: SlotAddress) -> &[AtomicU64; WAYS] {
        self.words.scaled(place.hash())
    }

    /// All buckets, in use or not.
    pub(super) fn all(&self) -> &[[AtomicU64; WAYS]] {
        self.words.whole()
    }

    /// Whether the first buckets are in use. If not, all words are among all buckets.
    pub(super) fn are_first(&self) -> bool {
        if self.words.small().is_some() {
            return true;
        }
        // Ordering: Acquire; pairs with `move_words`: the words are in their buckets.
        if self.moved.load(Acquire) == 0 {
            self.move_words();
        }
        false
    }

    pub(super) fn bucket(&self, place: SlotAddress, in_first: bool) -> &[AtomicU64; WAYS] {
        if in_first { self.words.first_scaled(place.hash()) } else { self.words.whole_scaled(place.hash()) }
    }

    /// The first slots, each with its hash. A frozen word has no fingerprint.
    pub(super) fn first_slots(&self) -> impl Iterator<Item = (&AtomicU64, &AtomicU64)> {
        self.words.first().iter().flatten().zip(self.hashes.iter().flatten())
    }

    /// The hash and the word of each key in the first slots, if they are in use.
    pub(super) fn first_keys(&self) -> Option<impl Iterator<Item = (SlotAddress, u64)>> {
        self.words.small()?;
        Some(self.first_slots().filter_map(|(slot, hash)| {
            // Ordering: Acquire; pairs with the exchange that wrote the word: its claim is visible.
            let seen = slot.load(Acquire);
            let place = SlotAddress::new(hash.load(Acquire));
            (seen != EMPTY && seen != NOTHING).then(|| (place, place.word(SlotWord::unpack(seen).state)))
        }))
    }

    /// The first slot that a key has or may claim, and its word; or no slot (`WAYS`) if other keys have all of them. `None` if
    /// the slot is frozen.
    pub(super) fn find_first(&self, place: SlotAddress) -> Option<(usize, u64)> {
        let (slots, hashes) = (self.bucket(place, true), self.hashes.scaled(place.hash()));
        let mut order = (0..WAYS).map(|step| place.nth::<WAYS>(step));
        let Some(slot) = order.find(|&slot| is_free_for(place, &hashes[slot])) else {
            return Some((WAYS, EMPTY));
        };
        // Ordering: Acquire, as in `SlotTable::search`. If the word is frozen, all buckets are seen to be in use.
        let seen = slots[slot].load(Acquire);
        (seen == EMPTY || place.owns(seen)).then_some((slot, seen))
    }

    /// Claims a first slot for a key. Returns `false` if another key has claimed it, or if there is none: then all buckets are
    /// put in use.
    pub(super) fn claim(&self, place: SlotAddress, slot: usize) -> bool {
        let Some(own) = self.hashes.scaled(place.hash()).get(slot) else {
            self.grow();
            return false;
        };
        // Ordering: AcqRel: before the exchange that writes the word.
        own.compare_exchange(0, place.claim(), AcqRel, Acquire).is_ok() || is_free_for(place, own)
    }

    /// Puts all buckets in use, and moves the words there.
    #[cold]
    pub(super) fn grow(&self) {
        self.words.grow();
        self.move_words();
    }

    #[cold]
    fn move_words(&self) {
        for (slot, hash) in self.first_slots() {
            let state = freeze(slot);
            if let Some(state) = state {
                self.move_word(SlotAddress::new(hash.load(Acquire)), state);
            }
        }
        // Ordering: Release; pairs with `are_first`.
        self.moved.store(1, Release);
    }

    /// Writes a word to the bucket of its key, unless the key has a slot there.
    pub(super) fn move_word(&self, place: SlotAddress, state: u64) {
        let slots = self.bucket(place, false);
        loop {
            // Another thread has moved all words, and the key may have lost its slot since.
            if self.moved.load(Acquire) == 1 {
                return;
            }
            let mut empty = None;
            for step in 0..WAYS {
                let slot = &slots[place.nth::<WAYS>(step)];
                // Ordering: Acquire, as in `SlotTable::search`.
                let seen = slot.load(Acquire);
                if place.owns(seen) {
                    return;
                }
                if seen == EMPTY {
                    empty = empty.or(Some(slot));
                }
            }
            // There is room as long as the words are not moved.
            let Some(slot) = empty else { return };
            // Ordering: AcqRel, as for an insertion.
            if slot.compare_exchange(EMPTY, place.word(state), AcqRel, Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Empties all slots.
    pub(super) fn clear(&self) {
        for (slot, _) in self.first_slots() {
            let empty = |seen| (SlotWord::unpack(seen).fingerprint != 0).then_some(EMPTY);
            // Ordering: AcqRel, as for a charge. A frozen word stays, and its copy is cleared below.
            let _ = slot.fetch_update(AcqRel, Relaxed, empty);
        }
        if !self.are_first() {
            self.all().iter().for_each(Zeroed::clear);
        }
    }
}

/// Whether a first slot has no key, or this one.
fn is_free_for(place: SlotAddress, hash: &AtomicU64) -> bool {
    // Ordering: Acquire; pairs with `claim`.
    let claimed = hash.load(Acquire);
    claimed == 0 || SlotAddress::new(claimed).fingerprint() == place.fingerprint()
}

/// Freezes a first slot, and returns the state that it holds, if any.
fn freeze(slot: &AtomicU64) -> Option<u64> {
    let frozen = |seen| match SlotWord::unpack(seen) {
        SlotWord { fingerprint: 0, state: 0 } => Some(NOTHING),
        SlotWord { fingerprint: 0, .. } => None,
        SlotWord { state, .. } => Some(SlotWord::pack(0, state.max(2))),
    };
    // Ordering: AcqRel: the claim of the slot is visible, and a thread that finds the key among all buckets finds this slot
    // frozen.
    let word = match slot.fetch_update(AcqRel, Acquire, frozen) {
        Ok(seen) => frozen(seen).unwrap_or(NOTHING),
        Err(frozen) => frozen,
    };
    (word != NOTHING).then(|| SlotWord::unpack(word).state)
}

impl<const WAYS: usize> fmt::Debug for Buckets<WAYS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.words.fmt(f)
    }
}
