//! The words of an index, its lines, and its copies: see the page of the table.

use std::hint::select_unpredictable;

use super::super::nodes::NUMBER_BITS;
use super::SHARD_BITS;
use crate::base::sync::{AtomicU64, Ordering};

/// The number of words in a line: the same as in a cache line.
pub(super) const SLOTS: usize = if cfg!(tollgate_loom) { 2 } else { 8 };
/// The bit that turns an empty word into one that no insertion fills.
pub(super) const FROZEN: u64 = 1;
pub(super) const FILLED: u64 = 1 << (NUMBER_BITS + 1);
/// The number of hash bits in a word.
pub(super) const TAG_BITS: u32 = 62 - NUMBER_BITS;
pub(super) const EMPTY: u64 = 0;
/// A number without [`FILLED`].
pub(super) const TOMBSTONE: u64 = 2;

#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Line(pub(super) [AtomicU64; SLOTS]);

/// The alignment of a line leaves these bits of an index's address free for its shift and for [`GROWING`].
const LOW_BITS: usize = align_of::<Line>() - 1;
/// A copy of the index is being made.
const GROWING: usize = 1 << 5;

/// The tag of a key.
#[inline(always)]
pub(super) fn tag_of(hash: u64) -> u64 {
    hash << SHARD_BITS >> (64 - TAG_BITS)
}

/// The tag of a filled word.
#[inline(always)]
pub(super) fn tag(word: u64) -> u64 {
    word >> (64 - TAG_BITS)
}

#[inline(always)]
pub(super) fn has_tag(word: u64, tag: u64) -> bool {
    word >> (63 - TAG_BITS) == tag << 1 | 1
}

/// How far a word is over the least filled word of this tag. If the word is filled and has the tag, this is less than [`FILLED`],
/// and is the number in its place. So the lesser of two results is that of the word with the tag, and no branch is needed.
#[inline(always)]
pub(super) fn over(word: u64, tag: u64) -> u64 {
    word.wrapping_sub(tag << (64 - TAG_BITS) | FILLED)
}

/// The slot in a line that a search for a tag visits after `step` others. An even slot and the next one are a pair.
#[inline(always)]
pub(super) fn slot_of(tag: u64, step: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "28 bits")]
    let tag = tag as usize;
    (tag & (SLOTS - 2)) ^ step
}

/// The word for a key's node.
pub(super) fn word_of(hash: u64, number: u64) -> u64 {
    tag_of(hash) << (64 - TAG_BITS) | FILLED | number << 1
}

#[inline(always)]
pub(super) fn number(word: u64) -> u64 {
    word >> 1 & ((1 << NUMBER_BITS) - 1)
}

pub(super) fn is_filled(word: u64) -> bool {
    word & FILLED != 0
}

/// An index as stored in the shard's word: the address of its lines. A tag, shifted right by the low bits of the
/// address, is a line number.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) struct Index(pub(super) *mut Line);

impl Index {
    /// An index of `len` lines from this address on, which have no other owner.
    pub(super) fn of(base: *mut Line, len: usize) -> Self {
        let shift = TAG_BITS - len.ilog2();
        Self(base.map_addr(|address| address | shift as usize))
    }

    /// The index that all shards without keys share at first: one line of frozen words. Its shift differs from all other
    /// shifts.
    pub(super) fn vacant() -> Self {
        let index = Self::of(Box::into_raw(new_lines(1, EMPTY | FROZEN)).cast(), 1);
        Self(index.0.map_addr(|address| address + 1))
    }

    pub(super) fn is_vacant(self) -> bool {
        self.shift() > TAG_BITS
    }

    /// The same index, marked as growing.
    pub(super) fn growing(self) -> Self {
        Self(self.0.map_addr(|address| address | GROWING))
    }

    /// The same index without that mark.
    pub(super) fn unmarked(self) -> Self {
        Self(self.0.map_addr(|address| address & !GROWING))
    }

    pub(super) fn is_growing(self) -> bool {
        self.0.addr() & GROWING != 0
    }

    fn shift(self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "five bits")]
        let shift = (self.0.addr() & (GROWING - 1)) as u32;
        shift
    }

    pub(super) fn len(self) -> usize {
        (1 << TAG_BITS >> self.shift()).max(1)
    }

    /// The number of a tag's line. It is in bounds, because tags have TAG_BITS bits.
    #[inline(always)]
    pub(super) fn line(self, tag: u64) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "28 bits, and a shift whose upper bits are ignored"
        )]
        let (tag, shift) = (tag as u32, self.0.addr() as u32);
        // A shift of 32 bits takes the lowest five bits of the address, so no instruction masks them.
        tag.wrapping_shr(shift) as usize
    }

    /// The address of a tag's line.
    #[inline(always)]
    pub(super) fn home(self, tag: u64) -> *mut Line {
        self.0.map_addr(|address| address & !LOW_BITS).wrapping_add(self.line(tag))
    }

    pub(super) fn base(self) -> *mut Line {
        self.home(0)
    }

    /// # Safety
    /// The index is not freed in this time.
    pub(super) unsafe fn lines<'g>(self) -> &'g [Line] {
        // SAFETY: the index has this length, and only atomics change it.
        unsafe { std::slice::from_raw_parts(self.base(), self.len()) }
    }
}

pub(super) fn new_lines(len: usize, word: u64) -> Box<[Line]> {
    (0..len).map(|_| new_line(word)).collect()
}

pub(super) fn new_line(word: u64) -> Line {
    Line(std::array::from_fn(|_| AtomicU64::new(word)))
}

/// Freezes all empty words of an index. Returns the number of filled words.
pub(super) fn freeze(lines: &[Line]) -> usize {
    let mut filled = 0;
    for Line(line) in lines {
        // Ordering: Acquire, here and below, so that the copy passes the nodes on.
        let words = line.each_ref().map(|slot| slot.load(Ordering::Acquire));
        filled += words.iter().map(|word| usize::from(is_filled(*word))).sum::<usize>();
        for place in places(&words, |word| word == EMPTY) {
            // Ordering: Relaxed if the word was empty, because it passes nothing on.
            let frozen = line[place].compare_exchange(EMPTY, FROZEN, Ordering::Relaxed, Ordering::Acquire);
            filled += usize::from(frozen.is_err_and(is_filled));
        }
    }
    filled
}

/// Copies the filled words of an index without empty ones into empty lines. Returns the number of copied words.
pub(super) fn copy(lines: &[Line], copy: &[Line]) -> usize {
    let mut copied = 0;
    for Line(line) in lines {
        // Ordering: Relaxed, here and in the copy: `freeze` has acquired the words, and an exchange will publish them.
        let words = line.each_ref().map(|slot| slot.load(Ordering::Relaxed));
        for word in places(&words, is_filled).map(|place| words[place]) {
            let mut slots = search(copy, tag(word));
            let is_empty = |slot: &&AtomicU64| slot.load(Ordering::Relaxed) == EMPTY;
            // One of the first two slots is almost always empty. There is no branch on the first, because a processor cannot predict it.
            let first = slots.next().zip(slots.next());
            let first = first.map(|(first, second)| select_unpredictable(is_empty(&first), first, second));
            if let Some(slot) = first.filter(is_empty).or_else(|| slots.find(is_empty)) {
                slot.store(word, Ordering::Relaxed);
                copied += 1;
            }
        }
    }
    copied
}

/// The places of the words that satisfy a condition. It is collected as bits, without a branch for each word, because a
/// processor cannot predict which words are filled.
fn places(words: &[u64; SLOTS], condition: impl Fn(u64) -> bool) -> Places {
    Places(words.iter().enumerate().map(|(place, word)| u32::from(condition(*word)) << place).sum())
}

/// The places of the bits that are set.
pub(super) struct Places(u32);

impl Places {
    /// The maximum number of lines: a power of two.
    pub(super) const LINES: usize = 4;

    /// The filled slots of up to [`Places::LINES`] lines. Their number is a power of two. Slots are counted from `first` on, and
    /// those before it come last.
    #[inline(always)]
    pub(super) fn filled(lines: &[Line], first: usize) -> Self {
        let bits = |(place, Line(line)): (usize, &Line)| {
            // Ordering: Relaxed, because a thread that uses a node loads its word again.
            let words = line.each_ref().map(|slot| slot.load(Ordering::Relaxed));
            u64::from(places(&words, is_filled).0) << (place * SLOTS)
        };
        let (filled, slots) = (lines.iter().enumerate().map(bits).sum::<u64>(), lines.len() * SLOTS);
        #[expect(clippy::cast_possible_truncation, reason = "takes one of two copies")]
        let bits = ((filled | filled << slots) >> first & ((1 << slots) - 1)) as u32;
        Self(bits)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0 == 0
    }
}

impl Iterator for Places {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let place = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (place < u32::BITS).then_some(place as usize)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.0.count_ones() as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Places {}

/// The slots that a search for a tag visits, in order.
pub(super) fn search(lines: &[Line], tag: u64) -> impl Iterator<Item = &AtomicU64> {
    #[expect(clippy::cast_possible_truncation, reason = "28 bits")]
    let home = tag as usize >> (TAG_BITS - lines.len().ilog2());
    // Their number is a power of two.
    let last = lines.len() - 1;
    (0..lines.len()).flat_map(move |line| {
        let line = &lines[(home + line) & last];
        (0..SLOTS).map(move |step| &line.0[slot_of(tag, step)])
    })
}
