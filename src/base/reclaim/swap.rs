//! A shared value that is replaced as a whole, by the protocol of `hold`.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::domain::{DOMAIN, Place};
use super::hold::let_go;
use super::thread::{free_left, hold, order_all_threads};
use super::{Pinned, Retired};
use crate::base::sync::{AtomicPtr, Ordering};

/// A shared value that is replaced as a whole. A load takes no locked instruction where the system has the heavy barrier.
///
/// Not for signal handlers: a handler that interrupts a load may not load.
pub(crate) struct Swap<T> {
    /// Has a count of the `Arc`.
    present: AtomicPtr<T>,
    owns: PhantomData<Arc<T>>,
}

/// A value that was loaded. It stays valid as long as the caller has this, on any thread.
pub struct Loaded<T> {
    value: NonNull<T>,
    /// `None` if this has a count of the `Arc`.
    place: Option<&'static Place>,
    owns: PhantomData<Arc<T>>,
}

/// A value that was replaced, and that threads may still use. `None` only while it is dropped.
pub(crate) struct Former<T>(Option<Arc<T>>);

// SAFETY: this is used as an `Arc` of the value. Any thread may empty a place.
unsafe impl<T: Send + Sync> Send for Loaded<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Loaded<T> {}

impl<T: Send + Sync + 'static> Swap<T> {
    /// Creates a shared value. If it is held when the `Swap` is dropped, any thread may free it at any later time.
    pub(crate) fn new(value: T) -> Self {
        Self { present: AtomicPtr::new(Arc::into_raw(Arc::new(value)).cast_mut()), owns: PhantomData }
    }
}

impl<T> Swap<T> {
    /// Returns the present value.
    #[inline(always)]
    pub(crate) fn load(&self) -> Loaded<T> {
        // SAFETY: `present` has a count of the value, and the value is held during the call.
        let (value, place) =
            hold(&self.present, |value| unsafe { Arc::increment_strong_count(value.as_ptr()) });
        Loaded { value, place, owns: PhantomData }
    }

    /// Replaces the present value, and returns it.
    pub(crate) fn swap(&self, value: Arc<T>) -> Former<T> {
        // Ordering: Release publishes the value, and Acquire is for the one that is returned.
        let former = self.present.swap(Arc::into_raw(value).cast_mut(), Ordering::AcqRel);
        // SAFETY: the pointer comes from an `Arc`, with its count.
        Former(Some(unsafe { Arc::from_raw(former) }))
    }
}

impl<T> Drop for Swap<T> {
    fn drop(&mut self) {
        // Ordering: Relaxed. No other thread uses the pointer any more, so all that hold the value are known.
        let present = self.present.load(Ordering::Relaxed);
        // SAFETY: the pointer comes from an `Arc`, with its count.
        leave(unsafe { Arc::from_raw(present) });
    }
}

impl<T> fmt::Debug for Swap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Swap").finish_non_exhaustive()
    }
}

impl<T> Loaded<T> {
    /// Returns an `Arc` of the value.
    pub fn to_arc(&self) -> Arc<T> {
        // SAFETY: the value comes from an `Arc`, and is held.
        unsafe {
            Arc::increment_strong_count(self.value.as_ptr());
            Arc::from_raw(self.value.as_ptr())
        }
    }
}

impl<T> Deref for Loaded<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the value is held, or counted.
        unsafe { self.value.as_ref() }
    }
}

impl<T> Drop for Loaded<T> {
    #[inline(always)]
    fn drop(&mut self) {
        match self.place {
            Some(place) => let_go(place),
            // SAFETY: this has a count of the value.
            None => unsafe { Arc::decrement_strong_count(self.value.as_ptr()) },
        }
    }
}

impl<T> fmt::Debug for Loaded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").finish_non_exhaustive()
    }
}

impl<T> Former<T> {
    /// Frees the values that no thread uses, the last one first. If the system refuses its barrier, frees none.
    ///
    /// Proportional to the number of values, times the largest number of threads so far.
    pub(crate) fn free_unused(formers: &mut Vec<Self>) {
        // A look without the barrier may be stale. It only spares a barrier while all values are in use.
        if formers.iter().any(Self::is_unused) && order_all_threads() {
            for index in (0..formers.len()).rev() {
                if formers.get(index).is_some_and(Self::is_unused) {
                    // Removed before, because its drop may panic.
                    drop(formers.remove(index).0.take());
                }
            }
        }
        free_left();
    }

    /// Whether nothing uses the value, as far as the last barrier tells.
    fn is_unused(&self) -> bool {
        let has_one_count =
            |value: &Arc<T>| DOMAIN.is_unused(Arc::as_ptr(value), || Arc::strong_count(value) == 1);
        self.0.as_ref().is_some_and(has_one_count)
    }
}

impl<T> Drop for Former<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            if order_all_threads() {
                leave(value);
            } else {
                // It may be in use, as far as anyone knows.
                std::mem::forget(value);
            }
        }
    }
}

/// Drops a count of a value that has lost its owner, once no thread holds the value. All that hold it are known.
fn leave<T>(value: Arc<T>) {
    unsafe fn free<T>(value: *mut T, _: usize, _: &Pinned) {
        // SAFETY: the count that was left behind.
        unsafe { Arc::decrement_strong_count(value) };
    }
    if DOMAIN.is_held(Arc::as_ptr(&value)) {
        DOMAIN.leave_behind(Retired::new(Arc::into_raw(value).cast_mut(), 0, free));
    } else {
        drop(value);
    }
    free_left();
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::mpsc::sync_channel;
    use std::thread;

    use super::*;
    use crate::base::reclaim::domain::PLACES;
    use crate::base::sync::AtomicUsize;

    const ALIVE: usize = 0x7011_6A7E;

    /// Counts how many of these were freed, and knows when it is.
    struct Value(AtomicUsize, Arc<AtomicUsize>);

    impl Value {
        fn new(freed: &Arc<AtomicUsize>) -> Self {
            Self(AtomicUsize::new(ALIVE), Arc::clone(freed))
        }

        fn assert_alive(&self) {
            assert_eq!(self.0.load(Ordering::Relaxed), ALIVE, "a value is not freed while it is loaded");
        }
    }

    impl Drop for Value {
        fn drop(&mut self) {
            assert_eq!(self.0.swap(0, Ordering::Relaxed), ALIVE, "a value is freed once");
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn freed() -> Arc<AtomicUsize> {
        Arc::default()
    }

    /// Drops other owners until this number of values is freed. A thread of another test may be about to free some of them.
    fn free_all(freed: &AtomicUsize, expected: usize) {
        for _ in 0..10_000_000 {
            if freed.load(Ordering::Relaxed) == expected {
                return;
            }
            drop(Swap::new(()));
        }
        panic!("{} of {expected} values are freed", freed.load(Ordering::Relaxed));
    }

    #[test]
    fn any_thread_may_drop_a_loaded_value() {
        fn assert<T: Send + Sync + Unpin>() {}
        assert::<Loaded<usize>>();
        assert::<Former<usize>>();
        assert::<Swap<usize>>();
    }

    // G108
    #[test]
    fn owner_frees_a_value_that_no_thread_holds() {
        let freed = freed();
        let value = Swap::new(Value::new(&freed));
        drop((value.load(), value.load()));
        drop(value);
        assert_eq!(freed.load(Ordering::Relaxed), 1);
    }

    /// An answer by rules may outlive the rules.
    // G108
    #[test]
    fn loaded_values_outlive_their_owner() {
        let freed = freed();
        let value = Swap::new(Value::new(&freed));
        // More than a thread has places.
        let mut loaded: Vec<_> = (0..2 * PLACES).map(|_| value.load()).collect();
        drop(value);
        while let Some(last) = loaded.pop() {
            last.assert_alive();
            thread::spawn(move || drop(last)).join().unwrap();
            drop(Swap::new(()));
        }
        free_all(&freed, 1);
    }

    // G108
    #[test]
    fn panic_in_a_drop_keeps_the_other_values() {
        struct Panics(bool);
        impl Drop for Panics {
            fn drop(&mut self) {
                assert!(!self.0, "as the test asks");
            }
        }
        let value = Swap::new(Panics(false));
        let held = value.load();
        let mut formers = vec![value.swap(Arc::new(Panics(true))), value.swap(Arc::new(Panics(false)))];
        let free = std::panic::AssertUnwindSafe(|| Former::free_unused(&mut formers));
        std::panic::catch_unwind(free).unwrap_err();
        assert_eq!(formers.len(), 1, "the first value is still in use");
        drop(held);
        Former::free_unused(&mut formers);
        assert!(formers.is_empty());
    }

    /// Loads when its thread ends, after and before the record of the thread was given back.
    struct Late(Arc<Swap<Value>>);

    impl Drop for Late {
        fn drop(&mut self) {
            (0..2 * PLACES).for_each(|_| self.0.load().assert_alive());
        }
    }

    #[test]
    fn ending_thread_loads() {
        thread_local!(static LATE: RefCell<Option<Late>> = const { RefCell::new(None) });
        let freed = freed();
        for loads_first in [false, true] {
            let value = Arc::new(Swap::new(Value::new(&freed)));
            let own = Arc::clone(&value);
            let work = move || {
                let held = loads_first.then(|| own.load());
                LATE.set(Some(Late(Arc::clone(&own))));
                drop(own.load());
                held
            };
            // The thread has ended, and its place is still in use.
            let held = thread::spawn(work).join().unwrap();
            drop(value);
            if let Some(held) = &held {
                held.assert_alive();
            }
        }
        free_all(&freed, 2);
    }

    /// Threads load values and hand them to others, which drop them, while one thread replaces and frees.
    #[test]
    fn values_are_freed_once_and_never_in_use() {
        const THREADS: usize = 3;
        const LOADS: usize = if cfg!(miri) { 50 } else { 20_000 };
        let (freed, running) = (freed(), AtomicUsize::new(THREADS));
        let value = Swap::new(Value::new(&freed));
        let mut values = 1;
        let load = |next: std::sync::mpsc::SyncSender<Loaded<Value>>, last: std::sync::mpsc::Receiver<_>| {
            let mut kept = std::collections::VecDeque::new();
            for number in 0..LOADS {
                let loaded = value.load();
                loaded.assert_alive();
                if number % 3 == 0 {
                    // A full channel returns the value.
                    let _ = next.try_send(loaded);
                } else {
                    kept.push_back(loaded);
                }
                kept.extend(last.try_iter().take(1));
                if kept.len() > PLACES + number % PLACES {
                    kept.drain(..=number % PLACES).for_each(|loaded: Loaded<Value>| loaded.assert_alive());
                }
            }
            running.fetch_sub(1, Ordering::Release);
        };
        let mut formers = Vec::new();
        thread::scope(|scope| {
            let (mut senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| sync_channel(8)).unzip();
            senders.rotate_left(1);
            for (next, last) in senders.into_iter().zip(receivers) {
                scope.spawn(|| load(next, last));
            }
            while running.load(Ordering::Acquire) > 0 {
                formers.push(value.swap(Arc::new(Value::new(&freed))));
                values += 1;
                Former::free_unused(&mut formers);
            }
        });
        Former::free_unused(&mut formers);
        assert!(formers.is_empty(), "no thread holds a value");
        drop(value);
        assert_eq!(freed.load(Ordering::Relaxed), values);
    }
}
