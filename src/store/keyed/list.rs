//! The list that holds the nodes, and the walk that everything but the quick look-up is made of.
//!
//! One singly linked list in the order of hashes. Buckets point into it, each at the place where the hashes of its
//! range begin, and are elements of it themselves (*sentinels*), of which only the link is stored.
//!
//! ```text
//! bucket ──► node ──► node ──► bucket ──► node ──► bucket ──► bucket ──► node ──► end
//! link bits:  0b001 the node that holds this link is unlinked or about to be: the link never changes again
//!             0b010 what it leads to is a bucket (or, with a null address, the end)
//!             0b100 the bucket that holds this link is being put into the list by one thread
//!             null  a bucket that nobody has asked for yet
//! ```
//!
//! *Removal* has three steps, and any thread that walks by completes the last two:
//! 1. the head of the node's state is exchanged for dead; one thread wins, and no charge can land any more;
//! 2. the node's own link is marked, so nothing can be inserted behind it;
//! 3. the link that leads to it is exchanged for what it leads to, and who does that retires the node.
//!
//! *Insertion* is one exchange of the link after the last element whose order is not greater. Two threads that
//! insert the same key exchange the same link, so one fails, walks again and finds the other's node. A dead
//! node of the same key does not count as found, and is out of the way before the walk ends.
//!
//! Orderings: a link is stored with Release and loaded with Acquire, which publishes the node behind it. Marks and
//! unlinks are Release as well, since they hand on a link that was loaded.

use super::blocks::free;
use crate::algorithm::step::Tail;
use crate::base::sync::epoch::Guard;
use crate::base::sync::{AtomicPtr, Ordering};
use crate::store::state::KeyState;

/// A link: a tagged pointer to the next element.
pub(super) type Link<K, T> = AtomicPtr<KeyNode<K, T>>;

/// One key. Never moves; freed by epoch.
pub(super) struct KeyNode<K, T> {
    pub(super) next: Link<K, T>,
    pub(super) hash: u64,
    pub(super) state: KeyState<T>,
    pub(super) key: K,
}

const MARK: usize = 0b01;
const SENTINEL: usize = 0b10;
const ENTERING: usize = 0b100;

/// What a link leads to.
pub(super) enum Target<'g, K, T> {
    /// The end of the list.
    End,
    /// A bucket.
    Bucket(&'g Link<K, T>),
    /// A node.
    KeyNode(&'g KeyNode<K, T>),
}

/// The pointer that means the end of the list.
pub(super) fn end<K, T>() -> *mut KeyNode<K, T> {
    std::ptr::without_provenance_mut(SENTINEL)
}

/// The pointer to a bucket as a list element.
pub(super) fn to_bucket<K, T>(bucket: &Link<K, T>) -> *mut KeyNode<K, T> {
    std::ptr::from_ref(bucket).cast_mut().cast::<KeyNode<K, T>>().map_addr(|address| address | SENTINEL)
}

fn is_marked<K, T>(link: *mut KeyNode<K, T>) -> bool {
    link.addr() & MARK != 0
}

/// The element, without what the tags say of the link's holder.
pub(super) fn element<K, T>(link: *mut KeyNode<K, T>) -> *mut KeyNode<K, T> {
    link.map_addr(|address| address & !(MARK | ENTERING))
}

/// Whether a bucket with this link is in the list, so that walks may start at it.
#[inline]
pub(super) fn is_entered<K, T>(link: *mut KeyNode<K, T>) -> bool {
    !link.is_null() && link.addr() & ENTERING == 0
}

/// Claims a bucket that nobody has asked for, so that this thread alone puts it into the list.
pub(super) fn claim<K, T>(bucket: &Link<K, T>) -> bool {
    let entering = std::ptr::without_provenance_mut(ENTERING);
    // Ordering: Relaxed. It decides who goes on, and hands nothing on.
    bucket.compare_exchange(std::ptr::null_mut(), entering, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Sets the link of a claimed bucket to what will follow it at `place`.
pub(super) fn prepare<K, T>(bucket: &Link<K, T>, place: &ListPosition<'_, K, T>) {
    // Ordering: Relaxed. The exchange that links the bucket in publishes it.
    bucket.store(place.next().map_addr(|address| address | ENTERING), Ordering::Relaxed);
}

/// Says that a claimed bucket is in the list now.
pub(super) fn entered<K, T>(bucket: &Link<K, T>) {
    let mut link = bucket.load(Ordering::Acquire);
    // Whoever changes the link of a bucket that is in the list clears the tag as well.
    while !is_entered(link) {
        match bucket.compare_exchange(link, element(link), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(newer) => link = newer,
        }
    }
}

/// Where a link's value leads.
///
/// # Safety
/// `link` was loaded under a guard that is held for `'g`, from a node or an entered bucket of a live table.
#[inline]
pub(super) unsafe fn target<'g, K, T>(link: *mut KeyNode<K, T>) -> Target<'g, K, T> {
    let pointer = element(link);
    if pointer.addr() == SENTINEL {
        Target::End
    } else if pointer.addr() & SENTINEL != 0 {
        let bucket = pointer.map_addr(|address| address & !SENTINEL).cast::<Link<K, T>>();
        // SAFETY: made by `to_bucket` from a bucket of the table, which lives as long as the table.
        Target::Bucket(unsafe { &*bucket })
    } else {
        // SAFETY: a node that was linked when the guard was held is freed after the guard is dropped. It is
        // only ever changed through its atomics.
        Target::KeyNode(unsafe { &*pointer })
    }
}

/// The link of a node that is in no list yet.
pub(super) fn unlinked<K, T>() -> Link<K, T> {
    AtomicPtr::new(std::ptr::null_mut())
}

/// Sets the link of a node that no other thread can see to what will follow it at `place`.
pub(super) fn set_next<K, T>(node: &mut KeyNode<K, T>, place: &ListPosition<'_, K, T>) {
    node.next = AtomicPtr::new(place.next());
}

/// What a visitor wants next.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Turn {
    /// Go on behind this element.
    On,
    /// Stop before it.
    Stop,
    /// Look at the same element again: its state may have been killed.
    Again,
}

/// The place between two elements where a walk stopped.
pub(super) struct ListPosition<'g, K, T> {
    link: &'g Link<K, T>,
    next: *mut KeyNode<K, T>,
}

impl<'g, K, T> ListPosition<'g, K, T> {
    /// The value to be stored in the link of a new element.
    pub(super) fn next(&self) -> *mut KeyNode<K, T> {
        element(self.next)
    }

    /// Links `element` in here, if the place still is one.
    ///
    /// # Safety
    /// `element` is a bucket of a live table, or a node that came from [`Unlinked`](super::blocks::Unlinked) by this pointer. It is in no
    /// list, and its own link is set to what follows at this place.
    pub(super) unsafe fn insert(&self, element: *mut KeyNode<K, T>) -> bool {
        // Ordering: Release publishes the element. The expected value is unmarked, so the exchange fails if the
        // element before the place is being removed. A bucket's tag for entering goes away: it was reached, so it is in.
        self.link.compare_exchange(self.next, element, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}

/// Marks a node whose state is dead, so that nothing is inserted behind it.
fn mark<K, T>(node: &KeyNode<K, T>) {
    let mut next = node.next.load(Ordering::Acquire);
    while !is_marked(next) {
        let marked = next.map_addr(|address| address | MARK);
        // Ordering: Release keeps what the link leads to published; Acquire on failure, for the value's next use.
        match node.next.compare_exchange(next, marked, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(newer) => next = newer,
        }
    }
}

/// Walks from behind `start` until `visit` says stop or the list ends, unlinking and retiring dead nodes.
///
/// `visit` sees live nodes and buckets. It may see a node twice, if the walk has to begin anew.
pub(super) fn walk<'g, K, T>(
    start: &'g Link<K, T>,
    guard: &'g Guard,
    mut visit: impl FnMut(&Target<'g, K, T>) -> Turn,
) -> ListPosition<'g, K, T>
where
    K: Send + 'static,
    T: Tail,
{
    // Buckets never leave the list: a walk that has to begin anew does so at the last one it passed.
    let mut start = start;
    'anew: loop {
        let mut link = start;
        // A bucket's link is never marked.
        let mut next = link.load(Ordering::Acquire);
        loop {
            // SAFETY: loaded just now under the guard, which is held for 'g.
            let here = unsafe { target(next) };
            let behind = match &here {
                Target::End => return ListPosition { link, next },
                Target::Bucket(bucket) => *bucket,
                Target::KeyNode(node) => {
                    if node.state.is_dead() {
                        mark(node);
                        let after = element(node.next.load(Ordering::Acquire));
                        // Ordering: Release hands on the link, which was loaded with Acquire above.
                        if link.compare_exchange(next, after, Ordering::Release, Ordering::Relaxed).is_err() {
                            continue 'anew;
                        }
                        // SAFETY: the node came from a chunk, by this pointer (`Keyed::insert`). It was reachable by
                        // this link alone, so it is unreachable for who pins from now on, and as only one
                        // exchange of that link away from it can succeed, it is retired once.
                        unsafe { guard.retire(element(next), free) };
                        next = after;
                        continue;
                    }
                    &node.next
                }
            };
            match visit(&here) {
                Turn::Stop => return ListPosition { link, next },
                Turn::Again => {}
                Turn::On => {
                    let after = behind.load(Ordering::Acquire);
                    // The element died while it was looked at: look again, and unlink it.
                    if is_marked(after) {
                        continue;
                    }
                    if let Target::Bucket(bucket) = here {
                        start = bucket;
                    }
                    link = behind;
                    next = after;
                }
            }
        }
    }
}
