//! One shard: a list in split order, and a table of buckets into it that only ever doubles.
//!
//! Buckets lie in segments that are never moved: the first of a chosen size, each further one as large as all
//! before it together. Doubling publishes a segment of nulls, then the mask. A bucket enters the list when it is
//! first asked for, behind the bucket that it splits (its *parent*: its number without the top bit).
//!
//! Only the thread that claimed a bucket puts it in; all others use the nearest bucket above it that is in
//! already, so that nobody waits. Starting a walk too early in the list is never wrong.
//!
//! *Stale masks.* The quick look-up stops at the first bucket it meets, without asking which. That is right if no
//! bucket of a larger table lies between. To have met one means to have acquired a link made after that
//! table's mask was published: the mask is then seen to have changed. So a key that was not found, under a mask
//! that is still the same, is absent.
//!
//! *Sweeping.* Each insert looks at a few buckets by a hand that goes round, and removes idle nodes there. Looking
//! at 2 buckets or more for each insert keeps dead weight in proportion to the live keys, however long keys
//! that are never seen again keep coming; no thread is needed, and only inserts pay.

use std::marker::PhantomData;

use crossbeam_utils::CachePadded;

use super::list::{
    Link, Node, Place, Target, Turn, claim, end, entered, is_entered, prepare, target, to_bucket, walk,
};
use super::prefetch::prefetch;
use crate::algorithm::step::Tail;
use crate::sync::epoch::Guard;
use crate::sync::{AtomicPtr, AtomicUsize, Ordering};

/// Segments after the first: the table can grow by this factor of two.
const GROWTH: usize = 40;

/// Buckets swept at each insert, by the hand.
pub(super) const SWEPT: usize = 2;

pub(super) struct Shard<K, T> {
    /// Buckets less one. Read by every check, written only when the table doubles.
    mask: AtomicUsize,
    first: Box<[Link<K, T>]>,
    segments: [AtomicPtr<Link<K, T>>; GROWTH],
    counts: CachePadded<Counts>,
    nodes: PhantomData<Box<Node<K, T>>>,
}

/// What inserts and removals write, on a line that checks of known keys do not read.
struct Counts {
    len: AtomicUsize,
    hand: AtomicUsize,
}

impl<K, T> Shard<K, T>
where
    K: Send + 'static,
    T: Tail,
{
    /// An empty shard of `buckets` buckets, a power of two.
    pub(super) fn new(buckets: usize) -> Self {
        debug_assert!(buckets.is_power_of_two());
        let first = crate::sync::null_links(buckets);
        first[0].store(end(), Ordering::Relaxed);
        Self {
            mask: AtomicUsize::new(buckets - 1),
            first,
            segments: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            counts: CachePadded::new(Counts { len: AtomicUsize::new(0), hand: AtomicUsize::new(0) }),
            nodes: PhantomData,
        }
    }

    /// Keys held, idle ones included.
    pub(super) fn len(&self) -> usize {
        self.counts.len.load(Ordering::Relaxed)
    }

    /// The bucket of this number, at most the mask at some time.
    #[inline]
    fn bucket(&self, number: usize) -> &Link<K, T> {
        match self.first.get(number) {
            Some(bucket) => bucket,
            None => self.later_bucket(number),
        }
    }

    #[inline]
    fn later_bucket(&self, number: usize) -> &Link<K, T> {
        // Segment s >= 0 begins at bucket `first << s` and is as long.
        let segment = (number.ilog2() - self.first.len().ilog2()) as usize;
        let start = self.first.len() << segment;
        // Ordering: Acquire pairs with `grow`'s publication of the segment.
        let base = self.segments[segment].load(Ordering::Acquire);
        // SAFETY: `number` is at most a mask that was loaded with Acquire, and a mask is published after the
        // segments that it covers; the segment is `start` long, lives as long as the shard, and is never moved.
        unsafe { &*base.add(number - start) }
    }

    /// The live node of a key, if the table holds one.
    #[inline]
    pub(super) fn get<'g>(
        &'g self,
        hash: u64,
        guard: &'g Guard,
        mut is_key: impl FnMut(&K) -> bool,
    ) -> Option<&'g Node<K, T>> {
        // Ordering: Acquire pairs with `grow`: the segments that the mask covers are there.
        let mask = self.mask.load(Ordering::Acquire);
        let mut next = self.bucket(low(hash) & mask).load(Ordering::Acquire);
        if is_entered(next) {
            // SAFETY: loaded under the guard, from an entered bucket or from a node. So are those that follow.
            while let Target::Node(node) = unsafe { target(next) } {
                if node.hash == hash && is_key(&node.key) && !node.state.is_dead() {
                    return Some(node);
                }
                next = node.next.load(Ordering::Acquire);
            }
            // Ordering: Acquire keeps this load behind those above; see the module's text on stale masks.
            if self.mask.load(Ordering::Acquire) == mask {
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
    ) -> Result<&'g Node<K, T>, Place<'g, K, T>> {
        let order = split_order(hash);
        let start = self.entrance(low(hash) & self.mask.load(Ordering::Acquire), guard);
        let mut found = None;
        let place = walk(start, guard, |element| {
            found = None;
            match element {
                Target::Node(node) if node.hash == hash && is_key(&node.key) => {
                    found = Some(*node);
                    Turn::Stop
                }
                Target::Node(node) if split_order(node.hash) > order => Turn::Stop,
                Target::Bucket(bucket) if bucket_order(self.number_of(bucket)) > order => Turn::Stop,
                _ => Turn::On,
            }
        });
        found.ok_or(place)
    }

    /// Removes the idle nodes of the next few buckets, and says how many.
    pub(super) fn sweep(
        &self,
        buckets: usize,
        guard: &Guard,
        mut kill: impl FnMut(&Node<K, T>) -> bool,
    ) -> usize {
        let mask = self.mask.load(Ordering::Acquire);
        // Ordering: Relaxed. Two threads at one place would only share the work.
        let hand = self.counts.hand.fetch_add(buckets, Ordering::Relaxed);
        let mut killed = 0;
        for number in (0..buckets.min(mask + 1)).map(|step| hand.wrapping_add(step) & mask) {
            let bucket = self.bucket(number);
            if is_entered(bucket.load(Ordering::Acquire)) {
                walk(bucket, guard, |element| match element {
                    Target::Node(node) if kill(node) => {
                        self.removed();
                        killed += 1;
                        Turn::Again
                    }
                    Target::Node(_) => Turn::On,
                    _ => Turn::Stop,
                });
            }
        }
        killed
    }

    /// Calls `visit` with every live node; those for which it says so are counted as removed and unlinked.
    pub(super) fn for_each(&self, guard: &Guard, mut kill: impl FnMut(&Node<K, T>) -> bool) {
        // A walk that begins anew sees nodes again: remember how far it came, and which nodes it saw there.
        let mut order = 0;
        let mut there: Vec<*const Node<K, T>> = Vec::new();
        walk(&self.first[0], guard, |element| {
            let Target::Node(node) = element else {
                return Turn::On;
            };
            let this = std::ptr::from_ref(*node);
            match split_order(node.hash).cmp(&order) {
                std::cmp::Ordering::Less => return Turn::On,
                std::cmp::Ordering::Equal if there.contains(&this) => return Turn::On,
                std::cmp::Ordering::Equal => {}
                std::cmp::Ordering::Greater => {
                    order = split_order(node.hash);
                    there.clear();
                }
            }
            there.push(this);
            if !kill(node) {
                return Turn::On;
            }
            self.removed();
            Turn::Again
        });
    }

    /// Asks the processor for the lines that a check of this hash will read.
    #[inline]
    pub(super) fn prefetch_bucket(&self, hash: u64) {
        let mask = self.mask.load(Ordering::Acquire);
        prefetch(self.bucket(low(hash) & mask));
    }

    /// The same for the node, once the bucket is there.
    #[inline]
    pub(super) fn prefetch_node(&self, hash: u64, _guard: &Guard) {
        let mask = self.mask.load(Ordering::Acquire);
        let next = self.bucket(low(hash) & mask).load(Ordering::Acquire);
        if is_entered(next) {
            // SAFETY: loaded under the guard, from an entered bucket.
            if let Target::Node(node) = unsafe { target(next) } {
                prefetch(node);
            }
        }
    }

    /// Counts a node that was linked in, and doubles the table if it is full.
    pub(super) fn inserted(&self) {
        // Ordering: Relaxed. A count, for growth and for people.
        let len = self.counts.len.fetch_add(1, Ordering::Relaxed) + 1;
        let mask = self.mask.load(Ordering::Acquire);
        if len > mask {
            self.grow(mask);
        }
    }

    /// Counts a node whose state this thread killed.
    pub(super) fn removed(&self) {
        self.counts.len.fetch_sub(1, Ordering::Relaxed);
    }

    #[cold]
    fn grow(&self, mask: usize) {
        let buckets = mask + 1;
        let segment = (buckets.ilog2() - self.first.len().ilog2()) as usize;
        let Some(place) = self.segments.get(segment) else {
            return;
        };
        if place.load(Ordering::Acquire).is_null() {
            let base = Box::into_raw(crate::sync::null_links::<Node<K, T>>(buckets)).cast::<Link<K, T>>();
            // Ordering: Release publishes the nulls. Who loses the race frees its own.
            if place
                .compare_exchange(std::ptr::null_mut(), base, Ordering::Release, Ordering::Relaxed)
                .is_err()
            {
                // SAFETY: made by `into_raw` above from a box of `buckets` links, and published to nobody.
                drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(base, buckets)) });
            }
        }
        // Ordering: AcqRel. The mask is published after the segment it covers: our own by this Release, another
        // thread's because its publication was acquired by the load or by this exchange's failure to matter.
        let _ = self.mask.compare_exchange(mask, 2 * buckets - 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The bucket of this number if it is in the list, or can be put there now; else the nearest one above.
    fn entrance(&self, mut number: usize, guard: &Guard) -> &Link<K, T> {
        loop {
            let bucket = self.bucket(number);
            let link = bucket.load(Ordering::Acquire);
            // Bucket 0 is in the list from the beginning, so the others have a top bit to lose.
            if is_entered(link) || (link.is_null() && claim(bucket) && self.enter(number, bucket, guard)) {
                return bucket;
            }
            number = parent(number);
        }
    }

    /// Puts a claimed bucket into the list.
    #[cold]
    fn enter(&self, number: usize, bucket: &Link<K, T>, guard: &Guard) -> bool {
        let start = self.entrance(parent(number), guard);
        let order = bucket_order(number);
        loop {
            let place = walk(start, guard, |element| match element {
                Target::Node(node) if split_order(node.hash) > order => Turn::Stop,
                Target::Bucket(other) if bucket_order(self.number_of(other)) > order => Turn::Stop,
                _ => Turn::On,
            });
            prepare(bucket, &place);
            if place.insert(to_bucket(bucket)) {
                entered(bucket);
                return true;
            }
        }
    }

    /// The number of a bucket, by its address.
    fn number_of(&self, bucket: &Link<K, T>) -> usize {
        let address = std::ptr::from_ref(bucket).addr();
        let within = |base: *const Link<K, T>, len: usize| {
            let offset = address.wrapping_sub(base.addr()) / size_of::<Link<K, T>>();
            (offset < len).then_some(offset)
        };
        if let Some(offset) = within(self.first.as_ptr(), self.first.len()) {
            return offset;
        }
        let mut start = self.first.len();
        for segment in &self.segments {
            // Ordering: Acquire is not needed for the address. The segment was there when the link was made.
            if let Some(offset) = within(segment.load(Ordering::Acquire), start) {
                return start + offset;
            }
            start *= 2;
        }
        unreachable!("a bucket in the list lies in a segment of its table")
    }
}

impl<K, T> Drop for Shard<K, T> {
    fn drop(&mut self) {
        // Nodes that were unlinked belong to the epochs; all others are in the list still, dead ones too.
        let mut next = self.first[0].load(Ordering::Relaxed);
        loop {
            // SAFETY: nothing else uses the table any more, which protects as a guard does.
            next = match unsafe { target(next) } {
                Target::End => break,
                Target::Bucket(bucket) => bucket.load(Ordering::Relaxed),
                Target::Node(node) => {
                    let after = node.next.load(Ordering::Relaxed);
                    let node = std::ptr::from_ref(node).cast_mut();
                    // SAFETY: made by `Box::into_raw`, linked in once, and not retired, since it is in the list.
                    drop(unsafe { Box::from_raw(node) });
                    after
                }
            };
        }
        let mut len = self.first.len();
        for segment in &self.segments {
            let base = segment.load(Ordering::Relaxed);
            if !base.is_null() {
                // SAFETY: made by `grow` from a box of as many links, and freed here only.
                drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(base, len)) });
            }
            len *= 2;
        }
    }
}

/// The bits of a hash that number buckets; the high ones choose the shard.
#[inline]
fn low(hash: u64) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "masked by every user; the low bits are what is wanted"
    )]
    let low = hash as usize;
    low
}

/// A node's place in the list. Odd, so that a bucket sorts before its nodes; the top bit of the hash is lost.
fn split_order(hash: u64) -> u64 {
    hash.reverse_bits() | 1
}

/// A bucket's place in the list. Even, since no table has 2^63 buckets.
fn bucket_order(number: usize) -> u64 {
    (number as u64).reverse_bits()
}

/// The bucket that this one splits.
fn parent(number: usize) -> usize {
    number & !(1 << number.ilog2())
}
