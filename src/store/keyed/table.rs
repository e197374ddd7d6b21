//! The table: one list in the order of hashes, and generations of buckets that point into it.
//!
//! A *generation* is a flat array of 2ⁿ buckets. A hash belongs to the bucket that its top n bits number, and the
//! bucket's link stands in the list just before the hashes of its own. When the table is full, a generation twice as
//! large is published, empty: its buckets enter the list one by one, each when it is first asked for, behind
//! the bucket that it halves. No node moves, no bucket of an older generation leaves the list, and all arrays
//! together are less than twice the newest.
//!
//! A check loads the index (the newest generation's address and its n, in one word), a bucket, and a node.
//!
//! Only the thread that claimed a bucket puts it in; all others use the nearest bucket of an older generation that is
//! in already, so that nobody waits. Starting a walk too early in the list is never wrong.
//!
//! *Stale indices.* The quick look-up stops at the first bucket it meets, without asking which. Buckets of older
//! generations lie at the beginnings of ranges, before newer ones of the same beginning, so none is within
//! a newer bucket's range. One of a newer generation may be; but to have met it means to have acquired a
//! link made after that generation was published, and then the index is seen to have changed. So a key that was
//! not found, under an index that is still the same, is absent.
//!
//! *Sweeping.* Once the table is three quarters full, each insert looks at a few buckets by a hand that goes round,
//! and removes nodes that have been idle for a while. Three nodes looked at for each insert keep dead weight in
//! proportion to the live keys and to what came in that while, however long keys that are never seen again keep
//! coming; no thread is needed, and only inserts pay. The while ([`GRACE_NS`]) is there because a key that comes back
//! is dearer to make than to keep: without it, keys that are idle at each of their visits would push each other
//! out all the time.
//!
//! Counts and hands are striped by hash, so that inserting threads seldom share a line.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;

use crossbeam_utils::CachePadded;

use super::blocks::{NodeAllocator, Unlinked, free};
use super::links;
use super::list::{
    KeyNode, Link, ListPosition, Target, Turn, claim, element, end, entered, is_entered, prepare, target,
    to_bucket, walk,
};
use crate::algorithm::step::Tail;
use crate::base::memory::prefetch::prefetch;
use crate::base::sync::epoch::Guard;
use crate::base::sync::{AtomicPtr, AtomicUsize, Ordering};

/// Generations that can be: the largest has 2^40 buckets.
const GENERATIONS: u32 = 41;

/// Buckets swept at each insert into a table that is filling up: some 3 nodes.
const SWEPT: usize = 8;

/// How long a key must have been idle to be swept. To make it again costs the better part of a
/// microsecond, so at most once a second.
pub(super) const GRACE_NS: u64 = 1_000_000_000;

/// A bucket array's alignment leaves this many bits of its address for n.
const BITS_MASK: usize = links::ALIGN - 1;

pub(super) struct NodeTable<K, T> {
    /// The newest generation: its address, and n in the low bits. Read by every check, written when the table
    /// doubles, and so on a line with nothing else that changes.
    index: CachePadded<AtomicPtr<Link<K, T>>>,
    /// Every generation, at its n.
    generations: Box<[AtomicPtr<Link<K, T>>]>,
    stripes: Box<[CachePadded<TableStripe<K, T>>]>,
    first_bits: u32,
    nodes: PhantomData<Box<KeyNode<K, T>>>,
}

/// What inserts and removals write.
struct TableStripe<K, T> {
    /// Signed: a node is linked before it is counted, and may be removed in between.
    len: AtomicUsize,
    hand: AtomicUsize,
    nodes: NodeAllocator<KeyNode<K, T>>,
}

/// A generation as the index tells it.
struct Generation<K, T> {
    base: *mut Link<K, T>,
    bits: u32,
}

impl<K, T> Clone for Generation<K, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, T> Copy for Generation<K, T> {}

impl<K, T> Generation<K, T> {
    #[inline]
    fn of(index: *mut Link<K, T>) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "masked to six bits or so")]
        let bits = (index.addr() & BITS_MASK) as u32;
        Self { base: index.map_addr(|address| address & !BITS_MASK), bits }
    }

    fn index(self) -> *mut Link<K, T> {
        self.base.map_addr(|address| address | self.bits as usize)
    }

    /// The number of the bucket that a hash belongs to.
    #[inline]
    fn number(self, hash: u64) -> usize {
        (hash >> 1 >> (63 - self.bits)) as usize
    }

    /// The first hash of a bucket.
    fn first_hash(self, number: usize) -> u64 {
        (number as u64) << 1 << (63 - self.bits)
    }
}

impl<K, T> NodeTable<K, T>
where
    K: Send + 'static,
    T: Tail,
{
    /// An empty table of 2^`bits` buckets, with counts in `stripes` (a power of two) parts.
    pub(super) fn new(bits: u32, stripes: usize) -> Self {
        // Allocated first: a table that exists has its first generation.
        let first_bits = bits.min(GENERATIONS - 1);
        let first = Generation { base: links::alloc(1 << first_bits), bits: first_bits };
        let table = Self {
            index: CachePadded::new(AtomicPtr::new(std::ptr::null_mut())),
            generations: (0..GENERATIONS).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect(),
            stripes: (0..stripes.next_power_of_two())
                .map(|_| {
                    let (len, hand) = (AtomicUsize::new(0), AtomicUsize::new(0));
                    CachePadded::new(TableStripe { len, hand, nodes: NodeAllocator::empty() })
                })
                .collect(),
            first_bits,
            nodes: PhantomData,
        };
        // Ordering: Relaxed. No other thread knows the table yet.
        table.generations[first.bits as usize].store(first.base, Ordering::Relaxed);
        table.index.store(first.index(), Ordering::Relaxed);
        table.beginning().store(end(), Ordering::Relaxed);
        table
    }

    /// Keys held, idle ones included.
    pub(super) fn len(&self) -> usize {
        let sum: isize =
            self.stripes.iter().map(|stripe| stripe.len.load(Ordering::Relaxed).cast_signed()).sum();
        sum.max(0).cast_unsigned()
    }

    #[inline]
    fn newest(&self) -> Generation<K, T> {
        // Ordering: Acquire pairs with `grow`: the buckets are null, and all older generations are there.
        Generation::of(self.index.load(Ordering::Acquire))
    }

    /// A bucket of a generation.
    ///
    /// # Safety
    /// This table has the generation, and `number` is below its 2^`bits`.
    #[inline]
    #[expect(clippy::unused_self, reason = "the bucket lives as long as the table")]
    unsafe fn bucket(&self, generation: Generation<K, T>, number: usize) -> &Link<K, T> {
        // SAFETY: within the generation's array, by the caller's word. Arrays live as long as the table and never move.
        unsafe { &*generation.base.add(number) }
    }

    /// The bucket of a hash in the newest generation, and that generation's bits.
    #[inline]
    fn newest_bucket(&self, hash: u64) -> (&Link<K, T>, u32) {
        let newest = self.newest();
        // SAFETY: the index names generations that the table has, and `Generation::number` keeps below 2^bits.
        (unsafe { self.bucket(newest, newest.number(hash)) }, newest.bits)
    }

    /// The first node with this hash and key, if the table holds one; it may be dead.
    #[inline]
    pub(super) fn get<'g>(
        &'g self,
        hash: u64,
        guard: &'g Guard,
        mut is_key: impl FnMut(&K) -> bool,
    ) -> Option<&'g KeyNode<K, T>> {
        let (bucket, bits) = self.newest_bucket(hash);
        let mut next = bucket.load(Ordering::Acquire);
        if is_entered(next) {
            // SAFETY: loaded under the guard, from an entered bucket or from a node. So are those that follow.
            while let Target::KeyNode(node) = unsafe { target(next) } {
                if node.hash == hash && is_key(&node.key) {
                    return Some(node);
                }
                next = node.next.load(Ordering::Acquire);
            }
            // Ordering: Acquire, and behind the loads above, which are Acquire; see the text on stale indices.
            if self.newest().bits == bits {
                return None;
            }
        }
        self.find(hash, guard, is_key).ok()
    }

    /// The live node of a key, or else the place where it belongs.
    #[cold]
    pub(super) fn find<'g>(
        &'g self,
        hash: u64,
        guard: &'g Guard,
        mut is_key: impl FnMut(&K) -> bool,
    ) -> Result<&'g KeyNode<K, T>, ListPosition<'g, K, T>> {
        let newest = self.newest();
        let start = self.entrance(newest, newest.number(hash), guard);
        let mut found = None;
        let place = walk(start, guard, |here| {
            found = None;
            match here {
                Target::KeyNode(node) if node.hash == hash && is_key(&node.key) => {
                    found = Some(*node);
                    Turn::Stop
                }
                Target::KeyNode(node) if node.hash > hash => Turn::Stop,
                Target::Bucket(bucket) if self.begins(bucket).0 > hash => Turn::Stop,
                _ => Turn::On,
            }
        });
        found.ok_or(place)
    }

    /// Visits the nodes of the next few buckets; those that `kill` says it killed are unlinked.
    pub(super) fn sweep(&self, hash: u64, guard: &Guard, mut kill: impl FnMut(&KeyNode<K, T>) -> bool) {
        let (newest, part, first) = self.hand(hash, SWEPT);
        for step in 0..SWEPT.min(part.len()) {
            let number = part.start + (first + step) % part.len();
            walk(self.entrance(newest, number, guard), guard, |here| match here {
                Target::KeyNode(node) if kill(node) => {
                    self.removed(node.hash);
                    Turn::Again
                }
                Target::KeyNode(_) => Turn::On,
                _ => Turn::Stop,
            });
        }
    }

    /// Visits about the next `nodes` nodes, or all that there are (but gives up in a table that is all but empty); those
    /// that `kill` says it killed are unlinked.
    pub(super) fn search(
        &self,
        hash: u64,
        nodes: usize,
        guard: &Guard,
        mut kill: impl FnMut(&KeyNode<K, T>) -> bool,
    ) {
        // Two buckets for each node, or more.
        let (newest, part, first) = self.hand(hash, 2 * nodes);
        let passed = Cell::new(0);
        let seen = Cell::new(0);
        let mut visit = |here: &Target<'_, K, T>| match here {
            _ if seen.get() >= nodes || passed.get() > 16 * nodes + 4_096 => Turn::Stop,
            Target::KeyNode(node) => {
                seen.set(seen.get() + 1);
                if kill(node) {
                    self.removed(node.hash);
                    Turn::Again
                } else {
                    Turn::On
                }
            }
            _ => {
                passed.set(passed.get() + 1);
                Turn::On
            }
        };
        walk(self.entrance(newest, part.start + first, guard), guard, &mut visit);
        if seen.get() < nodes {
            walk(self.beginning(), guard, &mut visit);
        }
    }

    /// Where the hand of a hash's stripe stands: the newest generation, the stripe's part of its buckets, and the place
    /// within that. Moves it on.
    fn hand(&self, hash: u64, by: usize) -> (Generation<K, T>, Range<usize>, usize) {
        let newest = self.newest();
        let stripe = self.stripe(hash);
        let buckets = 1usize << newest.bits;
        let len = (buckets / self.stripes.len()).max(1);
        let start = (stripe * len) & (buckets - 1);
        // Ordering: Relaxed. Two threads at one place would only share the work.
        let first = self.stripes[stripe].hand.fetch_add(by, Ordering::Relaxed) % len;
        (newest, start..start + len, first)
    }

    /// Visits every live node; those that `kill` says it killed are unlinked.
    pub(super) fn for_each(&self, guard: &Guard, mut kill: impl FnMut(&KeyNode<K, T>) -> bool) {
        // A walk that begins anew sees nodes again: remember how far it came, and which nodes it saw there.
        let mut hash = 0;
        let mut there: Vec<*const KeyNode<K, T>> = Vec::new();
        walk(self.beginning(), guard, |element| {
            let Target::KeyNode(node) = element else {
                return Turn::On;
            };
            let this = std::ptr::from_ref(*node);
            match node.hash.cmp(&hash) {
                std::cmp::Ordering::Less => return Turn::On,
                std::cmp::Ordering::Equal if there.contains(&this) => return Turn::On,
                std::cmp::Ordering::Equal => {}
                std::cmp::Ordering::Greater => {
                    hash = node.hash;
                    there.clear();
                }
            }
            there.push(this);
            if !kill(node) {
                return Turn::On;
            }
            self.removed(node.hash);
            Turn::Again
        });
    }

    /// Asks the processor for the bucket that a check of this hash will read.
    #[inline]
    pub(super) fn prefetch_bucket(&self, hash: u64) {
        prefetch(self.newest_bucket(hash).0);
    }

    /// Asks for the bucket's first node. Reads the bucket, and not the node, which may be freed already.
    #[inline]
    pub(super) fn prefetch_node(&self, hash: u64) {
        // Ordering: Relaxed. Nothing is read through it.
        prefetch(element(self.newest_bucket(hash).0.load(Ordering::Relaxed)));
    }

    #[inline]
    fn stripe(&self, hash: u64) -> usize {
        // Low bits: the top ones number buckets, so neighbours in the list are spread.
        #[expect(clippy::cast_possible_truncation, reason = "masked to the number of stripes")]
        let stripe = hash as usize & (self.stripes.len() - 1);
        stripe
    }

    /// Puts a node into memory.
    pub(super) fn place(&self, node: KeyNode<K, T>, guard: &Guard) -> Unlinked<KeyNode<K, T>> {
        self.stripes[self.stripe(node.hash)].nodes.place(node, guard)
    }

    /// Counts a node that was linked in, and doubles the table if it is full. Says whether it is filling up, so that
    /// a sweep is due.
    pub(super) fn inserted(&self, hash: u64) -> bool {
        // Ordering: Relaxed. A count, for growth and for people.
        let len = self.stripes[self.stripe(hash)].len.fetch_add(1, Ordering::Relaxed).cast_signed() + 1;
        let newest = self.newest();
        // By this stripe's share of the buckets. Full with one node for two: a look-up that passes another key's
        // node waits for its line, if the other core wrote it.
        let full = ((1usize << newest.bits) / self.stripes.len() / 2).cast_signed();
        if len > full {
            self.grow(newest.bits);
        }
        len > full * 3 / 4
    }

    /// Counts a node whose state this thread killed.
    pub(super) fn removed(&self, hash: u64) {
        self.stripes[self.stripe(hash)].len.fetch_sub(1, Ordering::Relaxed);
    }

    #[cold]
    fn grow(&self, bits: u32) {
        let Some(place) = self.generations.get(bits as usize + 1) else {
            return;
        };
        let mut base = place.load(Ordering::Acquire);
        if base.is_null() {
            let new = links::alloc(2 << bits);
            // Ordering: AcqRel. Release publishes the nulls; Acquire for another thread's. Who loses the race frees
            // its own.
            base = match place.compare_exchange(base, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => new,
                Err(other) => {
                    // SAFETY: made by `alloc` above, of this length, and published to nobody.
                    unsafe { links::free(new, 2 << bits) };
                    other
                }
            };
        }
        let old = self.index.load(Ordering::Relaxed);
        if Generation::of(old).bits == bits {
            let new = Generation { base, bits: bits + 1 }.index();
            // Ordering: AcqRel. The index is published after its generation: by this Release, whoever made it, since
            // its publication was acquired above; and after all older ones, which the old index had published.
            let _ = self.index.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// The link that the list begins with.
    fn beginning(&self) -> &Link<K, T> {
        // SAFETY: `new` made the first generation, and each has a bucket 0.
        unsafe { self.bucket(self.generation(self.first_bits), 0) }
    }

    /// A generation that an index has told of.
    fn generation(&self, bits: u32) -> Generation<K, T> {
        // Ordering: Acquire would not be needed, as the index was acquired; it costs nothing here.
        Generation { base: self.generations[bits as usize].load(Ordering::Acquire), bits }
    }

    /// The bucket of this number if it is in the list, or can be put there now; else the nearest one that it
    /// descends from.
    fn entrance(&self, mut generation: Generation<K, T>, mut number: usize, guard: &Guard) -> &Link<K, T> {
        loop {
            // SAFETY: both came from the newest generation and `Generation::number`, or from those by `parent`, which keeps
            // to older generations and halves the number with their length.
            let bucket = unsafe { self.bucket(generation, number) };
            let link = bucket.load(Ordering::Acquire);
            if is_entered(link)
                || (link.is_null() && claim(bucket) && self.enter(generation, number, bucket, guard))
            {
                return bucket;
            }
            (generation, number) = self.parent(generation, number);
        }
    }

    /// The bucket that this one halves; or its neighbour before, in the first generation. The very first is
    /// in the list from the beginning.
    fn parent(&self, generation: Generation<K, T>, number: usize) -> (Generation<K, T>, usize) {
        if generation.bits == self.first_bits {
            (generation, number & number.wrapping_sub(1))
        } else {
            (self.generation(generation.bits - 1), number / 2)
        }
    }

    /// Puts a claimed bucket into the list.
    #[cold]
    fn enter(&self, generation: Generation<K, T>, number: usize, bucket: &Link<K, T>, guard: &Guard) -> bool {
        let (older, parent) = self.parent(generation, number);
        let start = self.entrance(older, parent, guard);
        let begins = (generation.first_hash(number), generation.bits);
        loop {
            let place = walk(start, guard, |element| match element {
                Target::KeyNode(node) if node.hash >= begins.0 => Turn::Stop,
                Target::Bucket(other) if self.begins(other) > begins => Turn::Stop,
                _ => Turn::On,
            });
            prepare(bucket, &place);
            // SAFETY: a bucket of this table; this thread alone claimed it, and `prepare` set its link.
            if unsafe { place.insert(to_bucket(bucket)) } {
                entered(bucket);
                return true;
            }
        }
    }

    /// A bucket's order in the list: the first hash of its range, and then its generation.
    fn begins(&self, bucket: &Link<K, T>) -> (u64, u32) {
        let address = std::ptr::from_ref(bucket).addr();
        for bits in (self.first_bits..GENERATIONS).rev() {
            let generation = self.generation(bits);
            if !generation.base.is_null() {
                let number = address.wrapping_sub(generation.base.addr()) / size_of::<Link<K, T>>();
                if number < 1 << bits {
                    return (generation.first_hash(number), bits);
                }
            }
        }
        unreachable!("a bucket in the list is one of its table's")
    }
}

impl<K, T> Drop for NodeTable<K, T> {
    fn drop(&mut self) {
        // Nodes that were unlinked belong to the epochs; all others are in the list still, dead ones too.
        let first = self.generations[self.first_bits as usize].load(Ordering::Relaxed);
        // SAFETY: the first generation was made with the table.
        let mut next = unsafe { &*first }.load(Ordering::Relaxed);
        loop {
            // SAFETY: nothing else uses the table any more, which protects as a guard does.
            next = match unsafe { target(next) } {
                Target::End => break,
                Target::Bucket(bucket) => bucket.load(Ordering::Relaxed),
                Target::KeyNode(node) => {
                    let after = node.next.load(Ordering::Relaxed);
                    // By the link's own pointer: one made of the reference could not be freed by.
                    let node = element(next);
                    // SAFETY: made by `Unlinked::into_raw`, linked in once, and not retired, since it is in the list.
                    unsafe { free(node) };
                    after
                }
            };
        }
        for (bits, generation) in self.generations.iter().enumerate() {
            let base = generation.load(Ordering::Relaxed);
            if !base.is_null() {
                // SAFETY: made by `alloc`, of this length, and freed here only.
                unsafe { links::free(base, 1 << bits) };
            }
        }
    }
}
