//! The protocol of reclamation. It names no thread-local value, so the models run it as it is.
//!
//! Each thread has a *record*. It contains the epoch at which the thread pinned, or 0. The records are in a list that only
//! grows; the record of a thread that has ended is used for another thread.
//!
//! 1. *Pin*: read the current epoch, store it in the record, pass the light barrier.
//! 2. *Retire*: put the item into the bag of the record. A full bag becomes a *batch* in the list of fresh batches. These
//!    steps order nothing.
//! 3. *Collect*, one thread at a time: once several batches are fresh, take all of them as one *group*, pass the heavy
//!    barrier, and only then advance the epoch. The group gets the number of the epoch that ended.
//! 4. The group is *ripe* when no record has this epoch or an earlier one. Then its items are freed, a few batches in each
//!    collection. After them the next group is taken.
//!
//! *Why nothing is freed too early.* Let a thread read a pointer to an item before the item was unpublished, so that it
//! may still use the item. The collecting thread took the batch, and so has seen that the item was unpublished, before it
//! passed the heavy barrier. The reading thread has not seen this after its light barrier. So its light barrier came
//! first, and two facts follow:
//! - The collecting thread sees the record of that pin, or a later value of the record.
//! - The reading thread had read the epoch before the collecting thread advanced it. So its record has the epoch of the
//!   group or an earlier one, and the group is not ripe.
//!
//! A later value of the record was stored with Release after the thread's last use of the item. The collecting thread
//! reads it with Acquire, so this use comes before the item is freed. A thread that registers later was not pinned at the
//! barrier.
//!
//! *Copied processes.* A process that was copied by `fork` has one thread, and records of all threads of the original.
//! Their pins would never end, so the one thread ends them before it continues.
//!
//! *Progress.* No thread waits for another. A thread that finds another one collecting leaves its batch in the list. The
//! flag that allows one collecting thread is held for a few steps and one barrier, never while items are freed.

use std::cell::Cell;
use std::ptr::null_mut;

use crossbeam_utils::CachePadded;

use super::{Retired, barrier};
use crate::base::sync::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, UnsafeCell, fence_after_rmw, full_fence,
};

/// The number of items in a batch.
pub(super) const BATCH: usize = 64;
/// A bag with more bytes than this becomes a batch early, so that large parts do not wait for small ones.
pub(super) const BATCH_BYTES: usize = 1 << 16;
/// One collection frees at most as much as this number of full batches have. A collection follows each full batch, so
/// more is freed than comes, even if some threads find another one collecting.
pub(super) const FREED: usize = 4;
/// A group begins when this number of batches waits. The heavy barrier interrupts all processors, so it is shared: one
/// barrier for each two batches took 8 % of a removal on two threads.
pub(super) const SHARED: usize = if cfg!(tollgate_loom) { 1 } else { 16 };
/// If more batches wait, threads that pin collect too.
pub(super) const MANY: usize = if cfg!(tollgate_loom) { 2 } else { 64 };
/// Of this number of pins of a thread, one collects while more than [`MANY`] batches wait.
const HELPS: u32 = 64;

/// The epoch has the upper bits of its word, and two flags below. A record contains a copy of the whole word, and is 0
/// while its thread is not pinned. At a million collections in a second, the epoch wraps in 146,000 years.
const EPOCH: u64 = 4;
/// The light barrier is a full fence, because the system has no heavy barrier. Decided before the first pin.
const FENCED: u64 = 1;
/// More than [`MANY`] batches wait.
const BACKLOG: u64 = 2;

/// [`Record::guards`] counts guards in steps of this number.
const GUARD: usize = 2;
/// In [`Record::guards`]: the thread is ending, and its last guard gives the record back.
const LEAVING: usize = 1;

/// Everything that waits, and the threads that may use it.
pub(super) struct Domain {
    /// The epoch and the flags, or 0 before the barriers are chosen.
    now: CachePadded<AtomicU64>,
    records: AtomicPtr<Record>,
    /// Batches that are in no group yet.
    fresh: AtomicPtr<Batch>,
    /// The number of batches that wait.
    batches: AtomicUsize,
    /// 1 while a thread uses the group.
    pub(super) busy: AtomicU32,
    group: UnsafeCell<Group>,
    /// Held values whose owners were dropped: see `hold`.
    pub(super) left: AtomicPtr<Batch>,
}

// SAFETY: `group` is used only by the thread that has set `busy`, and items may be freed on any thread (`Pinned::retire`).
unsafe impl Sync for Domain {}
// SAFETY: as above.
unsafe impl Send for Domain {}

/// The address of a value that is held, or null.
pub(super) type Place = AtomicPtr<()>;

/// The places of each thread, without the spare one. With these, a record has 128 bytes.
pub(super) const PLACES: usize = if cfg!(tollgate_loom) { 1 } else { 6 };

/// One thread. Only this thread uses the fields after `next`. The record is padded, because its thread writes it at each
/// pin.
#[repr(align(128))]
pub(super) struct Record {
    /// The epoch and the flags at the pin, or 0.
    pinned: AtomicU64,
    /// What the thread holds, or others for it: see `hold`.
    pub(super) places: [Place; PLACES],
    /// Has a value only while the thread counts a user of it.
    pub(super) spare: Place,
    /// 1 while a thread has the record.
    owned: AtomicU32,
    next: *const Record,
    guards: Cell<usize>,
    /// Pins while many batches waited.
    helped: Cell<u32>,
    pub(super) is_collecting: Cell<bool>,
    bag: UnsafeCell<Bag>,
}

#[cfg(all(target_pointer_width = "64", not(tollgate_loom)))]
const _: () = assert!(size_of::<Record>() == 128);

// SAFETY: other threads use only the atomics, and `next`, which never changes. `owned` passes the rest on.
unsafe impl Sync for Record {}

#[derive(Default)]
struct Bag {
    items: Vec<Retired>,
    bytes: usize,
}

pub(super) struct Batch {
    pub(super) items: Vec<Retired>,
    /// The number of items. A batch that has many bytes counts like one of [`BATCH`] items.
    cost: usize,
    pub(super) next: *mut Batch,
}

/// Batches that became unreachable at the same epoch.
struct Group {
    first: *mut Batch,
    /// The last epoch at which a thread may have found an item, or 0 before the heavy barrier.
    epoch: u64,
    is_ripe: bool,
}

macro_rules! empty {
    () => {
        Domain {
            now: CachePadded::new(AtomicU64::new(0)),
            records: AtomicPtr::new(null_mut()),
            fresh: AtomicPtr::new(null_mut()),
            batches: AtomicUsize::new(0),
            busy: AtomicU32::new(0),
            group: UnsafeCell::new(Group::EMPTY),
            left: AtomicPtr::new(null_mut()),
        }
    };
}

/// The domain of all keyed stores of the process. Some tests have domains of their own.
#[cfg(not(tollgate_loom))]
pub(super) static DOMAIN: Domain = empty!();

impl Domain {
    /// A domain of a test.
    #[cfg(all(test, not(tollgate_shuttle)))]
    pub(super) fn new() -> Self {
        empty!()
    }

    /// Chooses the barriers of all threads, in the first call. Each thread calls this before its first pin.
    pub(super) fn choose(&self, has_barrier: impl FnOnce() -> bool) {
        if self.now.load(Ordering::Relaxed) == 0 {
            let first = if has_barrier() { EPOCH } else { EPOCH | FENCED };
            // Ordering: Relaxed. From now on this thread reads this word or a later one.
            let _ = self.now.compare_exchange(0, first, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Returns a record for the calling thread.
    #[cold]
    pub(super) fn register(&self) -> &Record {
        // Ordering: Acquire pairs with `leave`, for the fields that only the owner uses.
        let take =
            |free: &Record| free.owned.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if let Some(record) = self.threads().find(|record| take(record)) {
            // The first pin helps, so short threads free more than they leave.
            record.helped.set(0);
            return record;
        }
        let new = Box::leak(Box::new(Record {
            pinned: AtomicU64::new(0),
            places: std::array::from_fn(|_| Place::new(null_mut())),
            spare: Place::new(null_mut()),
            owned: AtomicU32::new(1),
            next: null_mut(),
            guards: Cell::new(0),
            helped: Cell::new(0),
            is_collecting: Cell::new(false),
            bag: UnsafeCell::new(Bag::default()),
        }));
        let mut first = self.records.load(Ordering::Relaxed);
        loop {
            new.next = first;
            // Ordering: Release publishes the record.
            match self.records.compare_exchange(first, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return new,
                Err(other) => first = other,
            }
        }
    }

    /// The records of all threads, also of those that have ended.
    pub(super) fn threads(&self) -> impl Iterator<Item = &Record> {
        // Ordering: Acquire pairs with `register`.
        let mut record: *const Record = self.records.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: records are never freed.
            let thread = unsafe { record.as_ref() }?;
            record = thread.next;
            Some(thread)
        })
    }

    /// Hands the items of a thread over and gives its record back.
    #[cold]
    pub(super) fn leave(&self, record: &Record) {
        self.seal(record);
        record.guards.set(0);
        // Ordering: Release pairs with `register`.
        record.owned.store(0, Ordering::Release);
    }

    /// Ends the pins of all threads except the calling one, whose record is `own`. Only a process that was just copied may
    /// call this, because only then does no other thread exist.
    ///
    /// What the other threads kept in their records, and what they were freeing, is never freed in the copy: they may have
    /// been copied in the middle of a step, so that nothing can be said about these items.
    #[cfg(not(tollgate_loom))]
    pub(super) fn forget_other_threads(&self, own: Option<&Record>) {
        for thread in self.threads().filter(|&thread| own.is_none_or(|own| !std::ptr::eq(own, thread))) {
            // Ordering: Relaxed here and below. No other thread exists whose accesses could be ordered with these.
            thread.pinned.store(0, Ordering::Relaxed);
            thread.spare.store(null_mut(), Ordering::Relaxed);
        }
        let grouped = self.group.with_mut(|group| {
            // SAFETY: only this thread exists, and it runs no `Drop` of a key while it uses the group.
            let group = unsafe { &mut *group };
            if self.busy.swap(0, Ordering::Relaxed) != 0 {
                *group = Group::EMPTY;
            }
            Batch::count(group.first)
        });
        // The `Drop` of a key that is being freed has copied the process. The collection continues, and counts what it
        // has freed.
        if own.is_some_and(|own| own.is_collecting.get()) {
            return;
        }
        // Batches that another thread was freeing, or was about to bring, do not wait any more.
        let waiting = grouped + Batch::count(self.fresh.load(Ordering::Relaxed));
        self.batches.store(waiting, Ordering::Relaxed);
        if waiting <= MANY {
            self.now.fetch_and(!BACKLOG, Ordering::Relaxed);
        }
    }

    /// Adds a guard. Returns whether the caller must collect, because many batches wait.
    #[inline(always)]
    #[must_use]
    pub(super) fn pin(&self, record: &Record) -> bool {
        let guards = record.guards.get();
        record.guards.set(guards + GUARD);
        guards < GUARD && self.publish(record)
    }

    /// Removes a guard. Returns true if this was the last guard of an ending thread, which must [`leave`](Self::leave).
    #[inline(always)]
    #[must_use]
    pub(super) fn unpin(&self, record: &Record) -> bool {
        let guards = record.guards.get() - GUARD;
        record.guards.set(guards);
        if guards < GUARD {
            // Ordering: Release pairs with `is_ripe`: the uses of all items come before the pin ends.
            record.pinned.store(0, Ordering::Release);
        }
        guards == LEAVING
    }

    /// Unpins and pins again, if the record has one guard.
    #[inline]
    pub(super) fn repin(&self, record: &Record) {
        if record.guards.get() < 2 * GUARD {
            let _ = self.publish(record);
        }
    }

    /// Publishes the epoch of a pin. Returns whether the caller must collect.
    #[inline(always)]
    fn publish(&self, record: &Record) -> bool {
        // Ordering: Relaxed. An old epoch only lets items wait longer; a too new one is excluded by the barriers.
        let now = self.now.load(Ordering::Relaxed);
        if !barrier::CAN_ASK || now & (FENCED | BACKLOG) != 0 {
            return self.publish_rarely(record, now);
        }
        // Ordering: Release, for a pin that replaces an earlier one: see the module docs.
        record.pinned.store(now, Ordering::Release);
        barrier::light();
        false
    }

    /// As on every system without the heavy barrier, or if many batches wait.
    #[cold]
    fn publish_rarely(&self, record: &Record, now: u64) -> bool {
        // Ordering: AcqRel. Together with the fence it is a full fence between the record and the pointers read later. It
        // pairs with `full_fence` in `is_ripe`.
        record.pinned.swap(now, Ordering::AcqRel);
        fence_after_rmw();
        now & BACKLOG != 0 && Self::helps(record)
    }

    /// Whether this pin is one of those that collect.
    fn helps(record: &Record) -> bool {
        let helped = record.helped.get();
        record.helped.set(helped.wrapping_add(1));
        helped.is_multiple_of(HELPS)
    }

    /// Keeps an item of this number of bytes until no thread can use it. Returns whether the caller must collect.
    #[must_use]
    pub(super) fn retire(&self, record: &Record, item: Retired, bytes: usize) -> bool {
        let is_full = record.bag.with_mut(|bag| {
            // SAFETY: only this thread uses the bag of its record, and nothing here runs code of a caller.
            let bag = unsafe { &mut *bag };
            bag.items.reserve_exact(BATCH - bag.items.len());
            bag.items.push(item);
            bag.bytes = bag.bytes.saturating_add(bytes);
            bag.items.len() >= BATCH || bag.bytes >= BATCH_BYTES
        });
        if is_full {
            self.seal(record);
        }
        is_full
    }

    /// Makes a batch of the items in the bag of a thread.
    fn seal(&self, record: &Record) {
        // SAFETY: as in `retire`.
        let Bag { mut items, bytes } = record.bag.with_mut(|bag| std::mem::take(unsafe { &mut *bag }));
        if items.is_empty() {
            return;
        }
        // Threads that end, and large parts, make batches of a few items.
        items.shrink_to_fit();
        let cost = if bytes < BATCH_BYTES { items.len() } else { BATCH };
        // Counted before any thread can free it.
        self.count_fresh();
        Batch::push(items, cost, &self.fresh);
    }

    /// Counts a batch that waits from now on.
    pub(super) fn count_fresh(&self) {
        if self.batches.fetch_add(1, Ordering::Relaxed) >= MANY {
            // Ordering: Release pairs with `count_freed`.
            self.now.fetch_or(BACKLOG, Ordering::Release);
        }
    }

    /// Counts batches that were freed. Does not lose the flag of a batch that comes at the same time.
    pub(super) fn count_freed(&self, freed: usize) {
        let waiting = self.batches.fetch_sub(freed, Ordering::Relaxed) - freed;
        if waiting <= MANY && self.now.load(Ordering::Relaxed) & BACKLOG != 0 {
            // Ordering: Acquire. The count below includes the batches of all threads that set the flag before.
            self.now.fetch_and(!BACKLOG, Ordering::Acquire);
            if self.batches.load(Ordering::Relaxed) > MANY {
                self.now.fetch_or(BACKLOG, Ordering::Release);
            }
        }
    }

    /// Passes items that no thread can use any more to `free`.
    pub(super) fn collect(&self, record: &Record, free: impl Fn(Retired)) {
        let Some(_freeing) = record.begin_to_free() else { return };
        let mut batch = self.take_ripe();
        let mut freed = 0;
        while !batch.is_null() {
            // SAFETY: `take_ripe` passed the batch to this call.
            let Batch { items, next, .. } = *unsafe { Box::from_raw(batch) };
            // No thread can use the items of a ripe group.
            items.into_iter().for_each(&free);
            batch = next;
            freed += 1;
        }
        self.count_freed(freed);
    }

    /// Returns the first batches of the group, as a list, if the group is ripe and no other thread uses it.
    fn take_ripe(&self) -> *mut Batch {
        // Ordering: Acquire, and Release below, for the group.
        if self.busy.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return null_mut();
        }
        let ripe = self.group.with_mut(|group| {
            // SAFETY: only the thread that has set `busy` uses the group.
            let group = unsafe { &mut *group };
            if group.first.is_null() && self.batches.load(Ordering::Relaxed) >= SHARED {
                // Ordering: Acquire pairs with `seal`.
                *group = Group { first: self.fresh.swap(null_mut(), Ordering::Acquire), ..Group::EMPTY };
            }
            if self.is_ripe(group) { group.split() } else { null_mut() }
        });
        self.busy.store(0, Ordering::Release);
        ripe
    }

    /// Whether no thread can use an item of the group. Passes the heavy barrier for a new group.
    fn is_ripe(&self, group: &mut Group) -> bool {
        if group.first.is_null() || group.is_ripe {
            return group.is_ripe;
        }
        if group.epoch == 0 {
            // If the system refuses, the group waits. The next collection asks again.
            if !self.pass_heavy_barrier() {
                return false;
            }
            // Ordering: Relaxed, after the barrier: see the module docs.
            group.epoch = self.now.fetch_add(EPOCH, Ordering::Relaxed) / EPOCH;
        }
        let may_use = |thread: &Record| {
            // Ordering: Acquire pairs with the Release of a record's last value.
            let pinned = thread.pinned.load(Ordering::Acquire);
            pinned != 0 && pinned / EPOCH <= group.epoch
        };
        group.is_ripe = !self.threads().any(may_use);
        group.is_ripe
    }
}

/// The barriers as chosen: see `barrier`.
impl Domain {
    #[inline(always)]
    pub(super) fn pass_light_barrier(&self) {
        if !barrier::CAN_ASK || self.now.load(Ordering::Relaxed) & FENCED != 0 {
            full_fence();
        } else {
            barrier::light();
        }
    }

    /// Returns false if the system refused. Then anything may be in use.
    pub(super) fn pass_heavy_barrier(&self) -> bool {
        full_fence();
        self.now.load(Ordering::Relaxed) & FENCED != 0 || barrier::heavy()
    }
}

/// A thread that frees, until this is dropped.
pub(super) struct Freeing<'r>(&'r Record);

impl Drop for Freeing<'_> {
    fn drop(&mut self) {
        self.0.is_collecting.set(false);
    }
}

impl Record {
    /// Notes that the thread frees. `None` if it is ending, because then it frees nothing, or if it frees already.
    pub(super) fn begin_to_free(&self) -> Option<Freeing<'_>> {
        (self.guards.get() & LEAVING == 0 && !self.is_collecting.replace(true)).then(|| Freeing(self))
    }

    /// Marks the thread as ending. Returns whether it has no guard, and so must [`leave`](Domain::leave) now.
    #[cfg(not(tollgate_loom))]
    #[must_use]
    pub(super) fn end(&self) -> bool {
        self.guards.set(self.guards.get() | LEAVING);
        self.guards.get() < GUARD
    }
}

impl Batch {
    /// Puts a new batch into a list.
    pub(super) fn push(items: Vec<Retired>, cost: usize, list: &AtomicPtr<Self>) {
        let batch = Box::into_raw(Box::new(Self { items, cost, next: null_mut() }));
        let mut first = list.load(Ordering::Relaxed);
        loop {
            // SAFETY: no other thread knows the batch yet.
            unsafe { (*batch).next = first };
            // Ordering: Release passes on that the items were unpublished.
            match list.compare_exchange(first, batch, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }

    /// The number of batches in a list that no other thread changes.
    #[cfg(not(tollgate_loom))]
    fn count(first: *const Self) -> usize {
        // SAFETY: a batch in a list is valid.
        std::iter::successors(unsafe { first.as_ref() }, |batch| unsafe { batch.next.as_ref() }).count()
    }
}

impl Group {
    const EMPTY: Self = Self { first: null_mut(), epoch: 0, is_ripe: false };

    /// Takes batches of at most `FREED * BATCH` items, as a list.
    fn split(&mut self) -> *mut Batch {
        let (first, mut last, mut cost) = (self.first, null_mut::<Batch>(), 0);
        // SAFETY: only this thread uses the batches of the group.
        while let Some(batch) = unsafe { self.first.as_mut() } {
            cost += batch.cost;
            if cost > FREED * BATCH {
                break;
            }
            last = batch;
            self.first = batch.next;
        }
        // SAFETY: as above.
        if let Some(last) = unsafe { last.as_mut() } {
            last.next = null_mut();
        }
        first
    }
}

/// Operations with a fault, for the controls of the models.
#[cfg(all(test, tollgate_loom, not(tollgate_shuttle)))]
mod broken {
    use super::*;

    impl Domain {
        pub(in super::super) fn pin_without_barrier(&self, record: &Record) {
            record.guards.set(record.guards.get() + GUARD);
            record.pinned.store(self.now.load(Ordering::Relaxed), Ordering::Release);
        }

        /// Makes a group of the fresh batches.
        pub(in super::super) fn group_without_barrier(&self) {
            let first = self.fresh.swap(null_mut(), Ordering::Acquire);
            let epoch = self.now.fetch_add(EPOCH, Ordering::Relaxed) / EPOCH;
            self.group.with_mut(|group| {
                // SAFETY: only one thread of the control uses the group.
                unsafe { *group = Group { first, epoch, is_ripe: false } };
            });
        }

        pub(in super::super) fn advance_before_retiring(&self) {
            self.now.fetch_add(EPOCH, Ordering::Relaxed);
        }

        /// Makes a group of the fresh batches, with the epoch before the current one.
        pub(in super::super) fn group_as_of_last_epoch(&self) {
            let first = self.fresh.swap(null_mut(), Ordering::Acquire);
            full_fence();
            let _ = barrier::heavy();
            let epoch = self.now.load(Ordering::Relaxed) / EPOCH - 1;
            self.group.with_mut(|group| {
                // SAFETY: as above.
                unsafe { *group = Group { first, epoch, is_ripe: false } };
            });
        }

        /// Returns whether more than [`MANY`] batches wait, and whether the flag is set.
        pub(in super::super) fn backlog(&self) -> (bool, bool) {
            let flag = self.now.load(Ordering::Relaxed) & BACKLOG != 0;
            (self.batches.load(Ordering::Relaxed) > MANY, flag)
        }

        /// Does not look again after it has cleared the flag.
        pub(in super::super) fn count_freed_carelessly(&self, freed: usize) {
            if self.batches.fetch_sub(freed, Ordering::Relaxed) - freed <= MANY {
                self.now.fetch_and(!BACKLOG, Ordering::Relaxed);
            }
        }

        pub(in super::super) fn leave_carelessly(&self, record: &Record) {
            record.owned.store(0, Ordering::Release);
            self.seal(record);
        }
    }
}
