//! A value that is created when it is first needed.
//!
//! ```text
//! null ──► a value, which stays until the owner is dropped
//! ```
//! A thread that finds null creates a value and exchanges null for it. If several threads create a value at the same
//! time, one exchange succeeds. The other threads drop their values and use that one. So no thread waits for another
//! one, as it would in a `OnceLock`.

#[cfg(all(test, tollgate_loom))]
mod models;

use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use alloc::boxed::Box;

use crate::base::sync::{AtomicPtr, Ordering};

/// See the module's documentation.
pub(crate) struct Lazy<T> {
    /// Null, or a box.
    value: AtomicPtr<T>,
    owned: PhantomData<Box<T>>,
}

// SAFETY: the pointer owns its value as a box would.
unsafe impl<T: Send> Send for Lazy<T> {}
// SAFETY: threads share the value, and each of them may create the value that another thread drops.
unsafe impl<T: Send + Sync> Sync for Lazy<T> {}

impl<T> Default for Lazy<T> {
    fn default() -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()), owned: PhantomData }
    }
}

impl<T> Lazy<T> {
    /// Holds a value that exists already.
    pub(crate) fn of(value: T) -> Self {
        Self { value: AtomicPtr::new(Box::into_raw(Box::new(value))), owned: PhantomData }
    }

    /// Returns the value, if it was created.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&T> {
        // Ordering: Acquire; pairs with the exchange in `get_or_make`: the value is visible.
        // SAFETY: the pointer is null, or it came from a box that only the `Drop` of self frees.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the value, and creates it if it was not created yet. If several threads call this at the same time, `make`
    /// may run on each of them.
    ///
    /// # Errors
    /// Returns the error of `make`. The next call tries again.
    #[cold]
    pub(crate) fn get_or_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        let new = NonNull::from(Box::leak(Box::new(make()?)));
        // Ordering: Release on success publishes the value. Acquire on failure, as in `get`.
        let exchanged =
            self.value.compare_exchange(ptr::null_mut(), new.as_ptr(), Ordering::Release, Ordering::Acquire);
        match exchanged {
            // SAFETY: as in `get`.
            Ok(_) => Ok(unsafe { new.as_ref() }),
            Err(other) => {
                // SAFETY: the pointer came from the box above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(new.as_ptr()) });
                // SAFETY: as in `get`. The exchange failed, so the pointer is not null.
                Ok(unsafe { &*other })
            }
        }
    }
}

impl<T> Drop for Lazy<T> {
    fn drop(&mut self) {
        // Ordering: Relaxed. The owner has exclusive access, so all writes of other threads happened before.
        if let Some(value) = NonNull::new(self.value.load(Ordering::Relaxed)) {
            // SAFETY: the pointer came from a box in `get_or_make`, and nothing else frees it.
            drop(unsafe { Box::from_raw(value.as_ptr()) });
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn value_is_created_once_and_dropped_once() {
        let counted = alloc::sync::Arc::new(());
        let lazy = Lazy::default();
        assert!(lazy.get().is_none());
        assert_eq!(lazy.get_or_make(|| Err("no memory")), Err("no memory"));
        for _ in 0..2 {
            let value = lazy.get_or_make(|| Ok::<_, ()>(alloc::sync::Arc::clone(&counted)));
            assert!(value.is_ok() && lazy.get().is_some());
        }
        assert_eq!(alloc::sync::Arc::strong_count(&counted), 2);
        drop(lazy);
        assert_eq!(alloc::sync::Arc::strong_count(&counted), 1);
    }
}
