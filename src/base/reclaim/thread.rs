//! The record of the calling thread.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::domain::{DOMAIN, Place, Record};
use super::{Free, Retired, barrier};
use crate::base::sync::AtomicPtr;

thread_local! {
    /// The record of this thread. It has no destructor and no lazy initialisation, so a pin only reads it, also while the
    /// thread ends. (Systems without native thread-local values may set it to `None` before the thread ends.)
    static RECORD: Cell<Option<&'static Record>> = const { Cell::new(None) };
    /// The same record. The destructor gives it back.
    static ENDING: Ending = const { Ending(Cell::new(None)) };
}

struct Ending(Cell<Option<&'static Record>>);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(record) = self.0.get()
            && record.end()
        {
            leave(record);
        }
    }
}

/// Gives the record of an ending thread back. A later pin of this thread takes one again.
#[cold]
fn leave(record: &Record) {
    RECORD.set(None);
    DOMAIN.leave(record);
}

/// Runs in the only thread of a copied process.
extern "C" fn forget_other_threads() {
    DOMAIN.forget_other_threads(RECORD.get());
}

/// Takes a record for this thread.
#[cold]
fn register() -> &'static Record {
    DOMAIN.choose(|| {
        // Two threads that register first at the same time both call this, which does no harm.
        barrier::at_copy(forget_other_threads);
        barrier::register()
    });
    let take = |ending: &Ending| {
        let record = ending.0.get().unwrap_or_else(|| DOMAIN.register());
        ending.0.set(Some(record));
        record
    };
    let record = ENDING.try_with(take).unwrap_or_else(|_| {
        // The thread-local values are being dropped, so the last guard gives the record back.
        let record = DOMAIN.register();
        let _ = record.end();
        record
    });
    RECORD.set(Some(record));
    record
}

/// Frees items that no thread can use any more. `guard` is that of this thread.
#[cold]
fn collect(record: &Record, guard: &Pinned) {
    // SAFETY: the domain passes only such items.
    DOMAIN.collect(record, |item| unsafe { item.free(guard) });
}

/// Pins the calling thread while it exists. It stays on that thread.
pub(crate) struct Pinned {
    record: &'static Record,
    not_send: PhantomData<*const ()>,
}

/// Pins the calling thread. Nothing that is retired from now on is freed before the guard is dropped.
#[inline(always)]
pub(crate) fn pin() -> Pinned {
    let record = RECORD.get().unwrap_or_else(register);
    let collects = DOMAIN.pin(record);
    let guard = Pinned { record, not_send: PhantomData };
    if collects {
        collect(record, &guard);
    }
    guard
}

/// Holds the value to which `present` points, and returns it with the place. If no place is empty, calls `count` with the value, which
/// must increment its count.
#[inline(always)]
pub(super) fn hold<T>(
    present: &AtomicPtr<T>,
    count: impl Fn(NonNull<T>),
) -> (NonNull<T>, Option<&'static Place>) {
    match RECORD.get().and_then(|record| DOMAIN.hold(record, present)) {
        Some((value, place)) => (value, Some(place)),
        None => hold_rarely(present, count),
    }
}

/// For the first value of a thread, or if its places are in use, or if the value was just replaced.
#[cold]
#[inline(never)]
fn hold_rarely<T>(
    present: &AtomicPtr<T>,
    count: impl Fn(NonNull<T>),
) -> (NonNull<T>, Option<&'static Place>) {
    // The pin registers the thread. An ending thread has the record as long as the guard.
    let guard = pin();
    match DOMAIN.hold(guard.record, present) {
        Some((value, place)) => (value, Some(place)),
        None => (DOMAIN.hold_counted(guard.record, present, count), None),
    }
}

/// Orders the accesses of all threads, before a look at the places. Returns false if the system refused.
pub(super) fn order_all_threads() -> bool {
    // The pin registers this thread, and so chooses the barriers.
    drop(pin());
    DOMAIN.pass_heavy_barrier()
}

/// Frees the values that were left behind and that no thread holds, unless this thread is ending or frees something already.
pub(super) fn free_left() {
    let guard = pin();
    if let Some(_freeing) = guard.record.begin_to_free() {
        // One at a time, because its drop may panic.
        while let Some(value) = DOMAIN.take_left() {
            // SAFETY: no thread holds the value.
            unsafe { value.free(&guard) };
        }
    }
}

impl Pinned {
    /// Calls `free` with `ptr` and `part` once no currently pinned thread can hold that part. The part has this number of
    /// bytes, which only decides when memory is freed.
    ///
    /// May free other retired items, but not while an item is being freed.
    ///
    /// # Safety
    /// If no thread that pins from now on can reach the part, then it must be sound to call `free` with these arguments
    /// once, on any thread, at any later time. The caller must ensure that no such thread can reach the part. `free` must
    /// not panic.
    pub(crate) unsafe fn retire<T>(&self, ptr: *mut T, part: usize, bytes: usize, free: Free<T>) {
        if DOMAIN.retire(self.record, Retired::new(ptr, part, free), bytes) {
            collect(self.record, self);
        }
    }

    /// Unpins and pins again, so that items retired in the meantime can be freed. The caller must not use any pointer
    /// that it found before.
    pub(crate) fn repin(&mut self) {
        DOMAIN.repin(self.record);
    }
}

impl Drop for Pinned {
    #[inline(always)]
    fn drop(&mut self) {
        if DOMAIN.unpin(self.record) {
            leave(self.record);
        }
    }
}
