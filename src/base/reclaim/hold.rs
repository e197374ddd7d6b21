//! Held values: a thread may use them for longer than a pin, and another thread may let them go.
//!
//! A pin stays on its thread and holds back all that waits, so it must be short. The rules that an answer names are in use
//! until the answer is dropped, perhaps by another thread and after an `await`. So each record has a few *places*. A place
//! contains the address of a value that is held, or null.
//!
//! 1. *Hold*: find an empty place of the own record, read the pointer to the present value, store it in the place, pass the
//!    light barrier, and read the pointer again. If it is the same, the value is held.
//! 2. *Let go*, on any thread: store null in the place. The thread that has the record may then use the place again.
//! 3. *Free*: replace the pointer, pass the heavy barrier, and look at all places. If none has the former value, no thread
//!    uses it, and none can hold it any more.
//!
//! *Why nothing is freed too early.* If the light barrier came first, the thread that frees sees the place, or a later value
//! of it. If the heavy barrier came first, the second read finds another pointer, and the value is not used. A place is
//! stored with Release. It is read with Acquire, by the thread that frees and by the thread that uses the place again. So
//! all uses of a value come before everything that a later value of its place allows.
//!
//! *Counts.* If all places of a thread are in use, or the pointer was replaced between the two reads, the thread holds the
//! value in its spare place, increments the count of the value, and lets it go. The thread that frees reads the places
//! before the count, so it sees one of the two.
//!
//! *Values left behind.* The owner of the pointer may be dropped while the value is held. Then the value waits in a list, until
//! another owner is dropped, or replaces its value, after it was let go. So the thread that lets it go only stores null.
//!
//! *Copied processes.* In a process that was copied by `fork`, the places of the threads that do not exist there keep their
//! values, because the one thread may have got such a value from another. These values are never freed there, nor is one that
//! gets the same address as a value that such a thread was about to hold.

use std::ptr::{NonNull, null_mut};

use super::Retired;
use super::domain::{Batch, Domain, Place, Record};
use crate::base::sync::{AtomicPtr, Ordering};

impl Domain {
    /// Holds the present value, for the thread that has the record. `None` if all its places are in use, or if the value
    /// was replaced in the meantime.
    #[inline(always)]
    pub(super) fn hold<'r, T>(
        &self,
        record: &'r Record,
        present: &AtomicPtr<T>,
    ) -> Option<(NonNull<T>, &'r Place)> {
        // Ordering: Acquire. See the module docs, for a place that another thread has emptied.
        let place = record.places.iter().find(|place| place.load(Ordering::Acquire).is_null())?;
        Some((self.hold_in(place, present)?, place))
    }

    /// Calls `count` with the present value while it is held, which must increment its count.
    #[cold]
    pub(super) fn hold_counted<T>(
        &self,
        record: &Record,
        present: &AtomicPtr<T>,
        count: impl Fn(NonNull<T>),
    ) -> NonNull<T> {
        // Begins again only if the value was replaced in the meantime.
        loop {
            if let Some(value) = self.hold_in(&record.spare, present) {
                count(value);
                let_go(&record.spare);
                return value;
            }
        }
    }

    #[inline(always)]
    fn hold_in<T>(&self, place: &Place, present: &AtomicPtr<T>) -> Option<NonNull<T>> {
        // Ordering: Relaxed. The value is not used before the second read.
        let first = present.load(Ordering::Relaxed);
        // Ordering: Release, here and in `let_go`: see the module docs.
        place.store(first.cast(), Ordering::Release);
        self.pass_light_barrier();
        // Ordering: Acquire pairs with the thread that stored the pointer. This pointer is the one that is used: the first may
        // have led to a value that is gone, at the same address.
        let second = present.load(Ordering::Acquire);
        if second == first {
            return NonNull::new(second);
        }
        let_go(place);
        None
    }

    /// Whether a thread holds the value in a place. The caller has replaced the pointer to it, and then has passed the heavy
    /// barrier, or no thread can be holding it just now. Proportional to the largest number of threads so far.
    pub(super) fn is_held<T>(&self, value: *const T) -> bool {
        // Ordering: Acquire: see the module docs.
        let is_here = |place: &Place| std::ptr::eq(place.load(Ordering::Acquire), value.cast());
        self.threads().any(|thread| thread.places.iter().any(is_here) || is_here(&thread.spare))
    }

    /// Whether no thread uses a value, as `is_held` tells, and has no count of it either. The places come first: see the module docs.
    pub(super) fn is_unused<T>(&self, value: *const T, has_one_count: impl FnOnce() -> bool) -> bool {
        !self.is_held(value) && has_one_count()
    }

    /// Keeps a value that has lost its owner until no thread holds it. No thread can hold it from now on.
    pub(super) fn leave_behind(&self, value: Retired) {
        Batch::push(vec![value], 1, &self.left);
    }

    /// Takes one of the values that were left behind, if no thread holds it any more.
    pub(super) fn take_left(&self) -> Option<Retired> {
        if self.left.load(Ordering::Relaxed).is_null() {
            return None;
        }
        // Ordering: Acquire pairs with `Batch::push`. The thread that left a value behind has seen the places of all that hold it.
        let mut batch = self.left.swap(null_mut(), Ordering::Acquire);
        let mut taken = None;
        while !batch.is_null() {
            // SAFETY: the exchange passed the list to this call.
            let Batch { items, next, .. } = *unsafe { Box::from_raw(batch) };
            for value in items {
                if taken.is_some() || self.is_held(value.ptr) {
                    self.leave_behind(value);
                } else {
                    taken = Some(value);
                }
            }
            batch = next;
        }
        taken
    }
}

/// Empties a place, on any thread.
#[inline(always)]
pub(super) fn let_go(place: &Place) {
    place.store(null_mut(), Ordering::Release);
}

/// Operations with a fault, for the controls of the models.
#[cfg(all(test, tollgate_loom, not(tollgate_shuttle)))]
mod broken {
    use super::*;

    impl Domain {
        /// Stores the present value in the first place, and passes no barrier.
        fn place_first<'r, T>(record: &'r Record, present: &AtomicPtr<T>) -> Option<(NonNull<T>, &'r Place)> {
            let [place, ..] = &record.places;
            let value = NonNull::new(present.load(Ordering::Acquire))?;
            place.store(value.as_ptr().cast(), Ordering::Release);
            Some((value, place))
        }

        pub(in super::super) fn hold_without_barrier<'r, T>(
            record: &'r Record,
            present: &AtomicPtr<T>,
        ) -> Option<(NonNull<T>, &'r Place)> {
            let held = Self::place_first(record, present)?;
            (present.load(Ordering::Acquire) == held.0.as_ptr()).then_some(held)
        }

        pub(in super::super) fn hold_without_second_read<'r, T>(
            &self,
            record: &'r Record,
            present: &AtomicPtr<T>,
        ) -> Option<(NonNull<T>, &'r Place)> {
            let held = Self::place_first(record, present)?;
            self.pass_light_barrier();
            Some(held)
        }

        /// Does not order the uses of the value by the thread that emptied the place.
        pub(in super::super) fn hold_in_place_of_unknown_use<'r, T>(
            &self,
            record: &'r Record,
            present: &AtomicPtr<T>,
        ) -> Option<(NonNull<T>, &'r Place)> {
            let place = record.places.iter().find(|place| place.load(Ordering::Relaxed).is_null())?;
            Some((self.hold_in(place, present)?, place))
        }

        /// Frees the values left behind, without a look at the places.
        pub(in super::super) fn free_left_carelessly(&self, free: impl Fn(Retired)) {
            let batch = self.left.swap(null_mut(), Ordering::Acquire);
            if !batch.is_null() {
                // SAFETY: the exchange passed the list to this call.
                unsafe { Box::from_raw(batch) }.items.into_iter().for_each(free);
            }
        }
    }
}
