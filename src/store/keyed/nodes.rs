//! Memory for nodes: segments of 63 nodes each, in a directory that finds them by number.
//!
//! A node never moves, so a charge needs no index once it has its node. A *number* names a node: the segment's place in the
//! directory, and the node's place in the segment. The directory grows by levels, each twice as large as the one before, and no
//! level moves.
//!
//! One word of a segment says which of its nodes are taken. Its 64th bit says that a stripe *holds* the segment, that is, gives
//! nodes out of it. Each change of that word is one exchange:
//!
//! - A node is given out by setting its bit, and given back by clearing it after the key is dropped.
//! - A stripe whose segment is full takes another one that no stripe holds and that has room, or makes one.
//! - Whoever leaves a word without nodes and without a holder *closes* it, by setting all bits. No node is given out of a closed
//!   segment, so it leaves the directory and is freed.
//!
//! A node is given back, and a segment freed, when all threads that could have seen it have unpinned. A node's memory is used
//! again for another key. So a large peak of keys is the most memory that a store ever takes, and a segment that
//! is empty is memory that it gives back.
//!
//! Threads write nodes at each charge. Nodes of the first segments lie so far apart that no two share a cache line, which would
//! make threads that charge two hot keys wait for each other. A store of many keys does not need this, as its keys are seldom
//! charged at the same moment, and there nodes lie close.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::{MaybeUninit, forget};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::base::sync::epoch::{self, Guard};
use crate::base::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, thread_number};
use crate::store::state::KeyState;

/// One key. Never moves.
pub(super) struct KeyNode<K, T> {
    pub(super) state: KeyState<T>,
    pub(super) key: K,
}

/// Bits of a number.
pub(super) const NUMBER_BITS: u32 = 34;
/// Nodes of a segment: one for each bit of its word but the last.
const NODES: usize = 63;
/// Low bits of a number, that say the node's place in its segment.
const PLACE_BITS: u32 = 6;
/// Segments of the first level.
const FIRST_LEVEL: u32 = if cfg!(tollgate_loom) { 4 } else { 256 };
const LEVELS: usize = if cfg!(tollgate_loom) { 2 } else { 21 };
/// Segments that can be.
const SEGMENTS: u32 = FIRST_LEVEL << (LEVELS - 1);
/// Segments whose nodes have cache lines of their own: some 3,300 nodes for small keys.
const SPREAD: u32 = 256;
/// A stripe holds the segment, or it is closed.
const HELD: u64 = 1 << NODES;
const CLOSED: u64 = u64::MAX;
/// Segments that a stripe looks at for room before it makes one.
const LOOKED_AT: u32 = 4;
/// A stripe that has no segment yet.
const NONE: u32 = u32::MAX;

type Level<K, T> = AtomicPtr<Segment<K, T>>;

/// The segments of a store. Each of them keeps it.
struct Directory<K, T> {
    /// Each level's address, less the segments of the levels before it: so that a segment's own number leads to its entry.
    levels: [AtomicPtr<Level<K, T>>; LEVELS],
    /// Entries that were ever taken.
    len: AtomicU32,
    nodes: PhantomData<Box<KeyNode<K, T>>>,
}

/// Laid out as it is written, so that nodes of sixteen bytes begin at a multiple of their size, and none lies on two lines.
#[repr(C)]
struct Segment<K, T> {
    taken: AtomicU64,
    /// Bits of nodes that are never given out, so that the others lie apart. A segment with no others set is empty.
    never: u64,
    directory: Arc<Directory<K, T>>,
    id: u32,
    nodes: [UnsafeCell<MaybeUninit<KeyNode<K, T>>>; NODES],
}

/// The nodes of a store.
pub(super) struct Nodes<K, T> {
    directory: Arc<Directory<K, T>>,
    /// One for each thread that can insert at once, so that they seldom share a segment's word.
    stripes: Box<[CachePadded<Stripe>]>,
}

struct Stripe {
    /// The segment that nodes are given out of.
    current: AtomicU32,
    /// Where in the directory it looks next for one with room.
    hand: AtomicU32,
}

/// The level of a segment, and the first segment of that level.
#[inline]
fn level(id: u32) -> (usize, u32) {
    let level = (id | (FIRST_LEVEL - 1)).ilog2() - (FIRST_LEVEL.ilog2() - 1);
    (level as usize, if level == 0 { 0 } else { FIRST_LEVEL << (level - 1) })
}

/// Every which node is used where nodes have lines of their own. Nodes of whichever alignment share no line if 63 bytes or more
/// lie between them.
fn step<K, T>() -> usize {
    (1 + 63_usize.div_ceil(size_of::<KeyNode<K, T>>())).min(NODES)
}

/// Segments of a level.
fn level_len(level: usize) -> usize {
    (FIRST_LEVEL as usize) << level.saturating_sub(1)
}

impl<K, T> Directory<K, T> {
    fn new() -> Self {
        let levels = std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut()));
        Self { levels, len: AtomicU32::new(0), nodes: PhantomData }
    }

    /// The entry of a segment.
    ///
    /// # Safety
    /// The level of `id` was seen to exist, by this thread or by one that handed `id` on.
    #[inline(always)]
    unsafe fn entry(&self, id: u32) -> &Level<K, T> {
        // Ordering: Relaxed. That the level exists was handed on with `id`, and it never changes again.
        let level = self.levels[level(id).0].load(Ordering::Relaxed);
        // SAFETY: by the caller's word; levels have their length from their number, and live as long as the directory.
        unsafe { &*level.wrapping_add(id as usize) }
    }

    /// The entry of a segment, in a level that is made if it has to be.
    fn make_entry(&self, id: u32) -> &Level<K, T> {
        assert!(id < SEGMENTS, "a keyed store has at most 2^34 nodes");
        let (number, first) = level(id);
        // Ordering: Acquire, and Release on success: the level's entries are null.
        if self.levels[number].load(Ordering::Acquire).is_null() {
            let new: Box<[Level<K, T>]> =
                (0..level_len(number)).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
            let base = Box::into_raw(new).cast::<Level<K, T>>();
            let biased = base.wrapping_sub(first as usize);
            let null = std::ptr::null_mut();
            if self.levels[number]
                .compare_exchange(null, biased, Ordering::AcqRel, Ordering::Acquire)
                .is_err()
            {
                let level = std::ptr::slice_from_raw_parts_mut(base, level_len(number));
                // SAFETY: made above, of this length, and seen by no other thread.
                drop(unsafe { Box::from_raw(level) });
            }
        }
        // SAFETY: the level exists, as was just seen.
        unsafe { self.entry(id) }
    }

    /// The segment of this number, if there is one.
    fn segment<'g>(&self, id: u32, _guard: &'g Guard) -> Option<&'g Segment<K, T>> {
        if id >= self.len.load(Ordering::Acquire) {
            return None;
        }
        // Ordering: Acquire pairs with the exchange that put it there: all of it is written.
        let segment = self.make_entry(id).load(Ordering::Acquire);
        // SAFETY: freed by epoch after it left its entry, where it was under the guard.
        unsafe { segment.as_ref() }
    }
}

impl<K, T> Drop for Directory<K, T> {
    fn drop(&mut self) {
        for (number, level) in self.levels.iter().enumerate() {
            let biased = level.load(Ordering::Relaxed);
            if !biased.is_null() {
                // As many segments as the level has come before it, unless it is the first.
                let first = if number == 0 { 0 } else { level_len(number) };
                let level = std::ptr::slice_from_raw_parts_mut(biased.wrapping_add(first), level_len(number));
                // SAFETY: made by `make_entry`, of this length. No thread uses the directory any more.
                drop(unsafe { Box::from_raw(level) });
            }
        }
    }
}

impl<K, T> Segment<K, T> {
    /// An empty segment, held by its maker.
    fn new(id: u32, directory: Arc<Directory<K, T>>) -> Box<Self> {
        let step = if id < SPREAD { step::<K, T>() } else { 1 };
        let never = (0..NODES).filter(|place| place % step != 0).fold(0, |bits, place| bits | 1 << place);
        let mut segment = Box::<Self>::new_uninit();
        let raw = segment.as_mut_ptr();
        // SAFETY: each write is within the box. The nodes need none, as they are uninitialised until they are given out.
        unsafe {
            (&raw mut (*raw).taken).write(AtomicU64::new(never | HELD));
            (&raw mut (*raw).never).write(never);
            (&raw mut (*raw).directory).write(directory);
            (&raw mut (*raw).id).write(id);
            segment.assume_init()
        }
    }

    /// Takes a node, if one is free: its place.
    fn take(&self) -> Option<usize> {
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            let place = (taken | HELD).trailing_ones();
            if place > HELD.ilog2() {
                return None;
            }
            // Ordering: Acquire pairs with `release`: the key that was here before is dropped.
            match self.taken.compare_exchange(taken, taken | 1 << place, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Some(place as usize),
                Err(newer) => taken = newer,
            }
        }
    }

    /// Takes hold of it, if no other stripe does, and if at least a quarter of its nodes are free.
    fn hold(&self) -> bool {
        let taken = self.taken.load(Ordering::Relaxed);
        let has_room = 4 * taken.count_zeros() > (!self.never & !HELD).count_ones();
        taken & HELD == 0
            && has_room
            // Ordering: Relaxed. Nodes are taken by exchanges of their own.
            && self.taken.compare_exchange(taken, taken | HELD, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Clears a bit that was the caller's. Closes the segment if it was the last.
    fn release(&self, bit: u64, guard: &Guard) {
        // Ordering: AcqRel. All uses of the node come before; and all of all nodes, before the segment is freed.
        let taken = self.taken.fetch_and(!bit, Ordering::AcqRel) & !bit;
        if taken == self.never
            // Ordering: Relaxed: what was acquired just above is still all that was ever released.
            && self.taken.compare_exchange(taken, CLOSED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            // Ordering: AcqRel, as nothing may be put there before.
            let segment = self.directory.make_entry(self.id).swap(std::ptr::null_mut(), Ordering::AcqRel);
            // SAFETY: out of the directory now, so no thread that pins from now on reaches it. Only one exchange closes it.
            unsafe { guard.retire(segment, 0, |segment, _| drop(Box::from_raw(segment))) };
        }
    }
}

impl<K, T> Nodes<K, T> {
    pub(super) fn new(stripes: usize) -> Self {
        let stripe = |_| CachePadded::new(Stripe { current: AtomicU32::new(NONE), hand: AtomicU32::new(0) });
        Self { directory: Arc::new(Directory::new()), stripes: (0..stripes).map(stripe).collect() }
    }

    /// The bytes that this number of nodes takes.
    pub(super) fn bytes(nodes: usize) -> usize {
        let size = size_of::<KeyNode<K, T>>();
        let spread = nodes.min(SPREAD as usize * NODES.div_ceil(step::<K, T>()));
        spread * size * step::<K, T>() + (nodes - spread) * size
    }

    /// The node of this number.
    ///
    /// # Safety
    /// `number` was read under this guard from an index of this store that was its shard's at that time.
    #[inline(always)]
    pub(super) unsafe fn get<'g>(&'g self, number: u64, _guard: &'g Guard) -> &'g KeyNode<K, T> {
        let (id, place) = split(number);
        // SAFETY: the node was written before its number was published, and its level, its segment and its entry were made before.
        // It is given back, and its segment freed, by epoch after the number left the index, where it was under the guard.
        // Places are below NODES. Ordering: Relaxed, as the number was acquired.
        unsafe {
            let segment = self.directory.entry(id).load(Ordering::Relaxed);
            let nodes = (&raw const (*segment).nodes).cast::<UnsafeCell<MaybeUninit<KeyNode<K, T>>>>();
            (*UnsafeCell::raw_get(nodes.add(place))).assume_init_ref()
        }
    }

    /// Makes the caller the owner of the node of this number.
    ///
    /// # Safety
    /// Nobody else uses the node, nor finds it in an index.
    pub(super) unsafe fn own<'g>(&self, number: u64, guard: &'g Guard) -> Option<NewNode<'g, K, T>> {
        let (id, place) = split(number);
        Some(NewNode { segment: self.directory.segment(id, guard)?, place })
    }

    /// Gives the node of this number back.
    ///
    /// # Safety
    /// As for [`Nodes::get`]; no thread that pins from now on can find the number in an index; and this is called once for it.
    pub(super) unsafe fn retire(&self, number: u64, guard: &Guard) {
        let (id, place) = split(number);
        if let Some(segment) = self.directory.segment(id, guard) {
            // SAFETY: a segment is not closed while it has a node, and the rest by the caller's word.
            unsafe { guard.retire(std::ptr::from_ref(segment).cast_mut(), place, free) };
            guard.collect_sometimes();
        }
    }

    /// Puts a node into memory.
    pub(super) fn place<'g>(&'g self, node: KeyNode<K, T>, guard: &'g Guard) -> NewNode<'g, K, T> {
        let stripe = &self.stripes[thread_number() % self.stripes.len()];
        loop {
            // Ordering: Acquire, as for the entry that this is the number of.
            let current = stripe.current.load(Ordering::Acquire);
            let segment = self.directory.segment(current, guard);
            if let Some((segment, place)) = segment.and_then(|segment| Some((segment, segment.take()?))) {
                // SAFETY: the place was given to this call alone, and is below NODES.
                unsafe { (*segment.nodes[place].get()).write(node) };
                return NewNode { segment, place };
            }
            let next = self.hold_another(stripe, guard);
            let release = match stripe.current.compare_exchange(
                current,
                next,
                // Ordering: Release hands on that the entry's level exists.
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(old) => old,
                Err(_) => next,
            };
            // What is held is not closed, so it is there still.
            if let Some(segment) = self.directory.segment(release, guard) {
                segment.release(HELD, guard);
            }
        }
    }

    /// Takes hold of a segment that has room, or of a new one.
    fn hold_another(&self, stripe: &Stripe, guard: &Guard) -> u32 {
        // Ordering: AcqRel here and below: who knows that a segment was made knows its level.
        let len = self.directory.len.load(Ordering::Acquire);
        let hand = stripe.hand.fetch_add(LOOKED_AT, Ordering::Relaxed);
        let mut vacant = None;
        for step in 0..LOOKED_AT.min(len) {
            let id = hand.wrapping_add(step) % len;
            match self.directory.segment(id, guard) {
                Some(segment) if segment.hold() => return id,
                Some(_) => {}
                None => vacant = Some(id),
            }
        }
        loop {
            let id = vacant.take().unwrap_or_else(|| self.directory.len.fetch_add(1, Ordering::AcqRel));
            let entry = self.directory.make_entry(id);
            let new = Box::into_raw(Segment::new(id, Arc::clone(&self.directory)));
            // Ordering: Release publishes the segment.
            if entry.compare_exchange(std::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                return id;
            }
            // SAFETY: made just above, and seen by no other thread.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

impl<K, T> Drop for Nodes<K, T> {
    fn drop(&mut self) {
        let guard = epoch::pin();
        for stripe in &self.stripes {
            if let Some(segment) = self.directory.segment(stripe.current.load(Ordering::Relaxed), &guard) {
                segment.release(HELD, &guard);
            }
        }
    }
}

/// A number's segment and place.
#[inline(always)]
fn split(number: u64) -> (u32, usize) {
    #[expect(clippy::cast_possible_truncation, reason = "28 bits, and six")]
    let parts = ((number >> PLACE_BITS) as u32, (number & ((1 << PLACE_BITS) - 1)) as usize);
    parts
}

/// Drops a node and gives its place back.
///
/// A panic of the key's `Drop` ends here, and the panic hook reports it. Otherwise it would come out of some other key's check,
/// whose thread frees this node, and leak the nodes that are freed after it.
///
/// # Safety
/// The place was given out, its node was written, and nothing uses it any more.
unsafe fn free<K, T>(segment: *mut Segment<K, T>, place: usize) {
    // Pinned, as another thread may close the segment once the bit is cleared.
    let guard = epoch::pin();
    // SAFETY: the segment is not closed while the place is given out. The node was written then, and nobody uses it now.
    unsafe {
        let segment = &*segment;
        let dropped = catch_unwind(AssertUnwindSafe(|| (*segment.nodes[place].get()).assume_init_drop()));
        segment.release(1 << place, &guard);
        // Not dropped: a payload may panic as well.
        dropped.unwrap_or_else(forget);
    }
}

/// A node that no index has, and that one thread knows.
pub(super) struct NewNode<'g, K, T> {
    segment: &'g Segment<K, T>,
    place: usize,
}

impl<K, T> NewNode<'_, K, T> {
    pub(super) fn number(&self) -> u64 {
        u64::from(self.segment.id) << PLACE_BITS | self.place as u64
    }

    /// An index has the number now.
    pub(super) fn published(self) {
        forget(self);
    }
}

impl<K, T> Drop for NewNode<'_, K, T> {
    fn drop(&mut self) {
        // SAFETY: written when it was placed, and nobody else knows it.
        unsafe { free(std::ptr::from_ref(self.segment).cast_mut(), self.place) };
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::base::sync::epoch::pin;

    type Witnesses = Nodes<Arc<()>, ()>;

    fn node(witness: &Arc<()>) -> KeyNode<Arc<()>, ()> {
        KeyNode { state: KeyState::fresh(0), key: Arc::clone(witness) }
    }

    #[test]
    fn every_node_is_on_a_line_of_its_own_and_is_dropped_once() {
        let (witness, guard) = (Arc::new(()), pin());
        let allocator = Witnesses::new(1);
        let nodes: Vec<_> = (0..100).map(|_| allocator.place(node(&witness), &guard)).collect();
        let mut lines: Vec<usize> =
            nodes.iter().map(|node| node.segment.nodes[node.place].get().addr() / 64).collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 100);
        assert_eq!(Arc::strong_count(&witness), 101);
        let (kept, dropped): (Vec<_>, Vec<_>) =
            nodes.into_iter().enumerate().partition(|(index, _)| index % 3 == 0);
        drop(dropped);
        assert_eq!(Arc::strong_count(&witness), 1 + kept.len());
        drop(kept);
        assert_eq!(Arc::strong_count(&witness), 1);
    }

    #[test]
    fn nodes_of_many_keys_lie_close_and_their_memory_is_used_again() {
        const MANY: usize = 50_000;
        let (witness, guard) = (Arc::new(()), pin());
        let allocator = Witnesses::new(1);
        let place = || -> Vec<_> { (0..MANY).map(|_| allocator.place(node(&witness), &guard)).collect() };
        let nodes = place();
        let segments = allocator.directory.len.load(Ordering::Relaxed) as usize;
        assert!(segments < SPREAD as usize + MANY / NODES, "{segments} segments for {MANY} nodes");
        let kept: Vec<_> = nodes.into_iter().enumerate().filter(|(index, _)| index % 10 == 0).collect();
        drop((place(), kept));
        let more = allocator.directory.len.load(Ordering::Relaxed) as usize;
        assert!(more < segments * 5 / 4, "{segments} segments for all, {more} with a tenth of them twice");
    }

    #[test]
    fn empty_segments_are_freed() {
        let (witness, allocator) = (Arc::new(()), Witnesses::new(1));
        // A thread keeps the last few things that it retired, until it retires more or ends.
        std::thread::scope(|scope| {
            let work = || {
                let guard = pin();
                let nodes: Vec<_> = (0..50_000).map(|_| allocator.place(node(&witness), &guard)).collect();
                assert!(Arc::strong_count(&allocator.directory) > 800);
                drop(nodes);
            };
            scope.spawn(work).join().expect("it does not panic");
        });
        // They are freed by later pins, once no thread is pinned that was.
        for _ in 0..10_000_000 {
            if Arc::strong_count(&allocator.directory) == 2 {
                return;
            }
            drop(pin());
        }
        panic!("{} segments are left", Arc::strong_count(&allocator.directory) - 1);
    }

    #[test]
    fn levels_follow_each_other() {
        for (id, expected) in [
            (0, (0, 0)),
            (FIRST_LEVEL - 1, (0, 0)),
            (FIRST_LEVEL, (1, FIRST_LEVEL)),
            (2 * FIRST_LEVEL - 1, (1, FIRST_LEVEL)),
            (2 * FIRST_LEVEL, (2, 2 * FIRST_LEVEL)),
            (SEGMENTS - 1, (LEVELS - 1, SEGMENTS / 2)),
        ] {
            assert_eq!(level(id), expected, "{id}");
        }
        assert_eq!(u64::from(SEGMENTS) << PLACE_BITS, 1 << NUMBER_BITS);
    }
}
