//! A value with a number that one thread replaces while others use it.
//!
//! # Which thread frees a replaced value
//! A value may be large: the rules of one load, or a store with all keys. A user that was the last one would free it, and a
//! request would wait for that. So the thread that replaces a value keeps it among its [`Replaced`] ones, and frees it there
//! when no user is left. A value that still has users then waits for a later call, because the replacing thread
//! does not wait.

use std::fmt;
use std::sync::Arc;

use crate::base::sync::{Loaded, Swap};

/// A value that can be replaced during use. A user can check afterwards whether it is still the current value.
#[derive(Debug)]
pub(crate) struct Published<T>(Swap<T>);

/// A value with a number. Each published value has a higher number than all values before it.
pub(crate) trait Numbered {
    /// The number of this value.
    fn number(&self) -> u64;
}

impl<T: Numbered> Published<T> {
    pub(crate) fn new(first: T) -> Self {
        Self(Swap::new(first))
    }

    #[inline]
    pub(crate) fn load(&self) -> Loaded<T> {
        self.0.load()
    }

    /// Replaces the current value, and adds it to `replaced`. Only one thread at a time may call this.
    pub(crate) fn publish(&self, next: Arc<T>, replaced: &mut Replaced<T>) {
        replaced.0.push(self.0.swap(next));
    }

    /// Whether `value` is still the current value. The caller must call this after a fence.
    #[cold]
    pub(crate) fn is_present(&self, value: &T) -> bool {
        self.0.load().number() == value.number()
    }
}

/// The values that one [`Published`] has replaced, as long as other threads may use them. It belongs to the thread that replaces them.
pub(crate) struct Replaced<T>(Vec<Arc<T>>);

impl<T> Replaced<T> {
    /// Frees the values that no other thread uses any more, on this thread. Returns whether some are left.
    pub(crate) fn free_unused(&mut self) -> bool {
        // The newest first, because a value may use the one before it.
        for index in (0..self.0.len()).rev() {
            // No thread can find the value any more. So if this count is the only one, no other comes.
            if self.0.get(index).is_some_and(|value| Arc::strong_count(value) == 1) {
                drop(self.0.remove(index));
            }
        }
        !self.0.is_empty()
    }
}

impl<T> Default for Replaced<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> fmt::Debug for Replaced<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Replaced").field(&self.0.len()).finish()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::sync::Mutex;
    use std::thread::{self, ThreadId};

    use super::*;

    /// Notes the thread that frees it.
    struct Noted(u64, Arc<Mutex<Vec<ThreadId>>>);

    impl Numbered for Noted {
        fn number(&self) -> u64 {
            self.0
        }
    }

    impl Drop for Noted {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(thread::current().id());
        }
    }

    /// The last user of a large value freed it, and the request of that user waited for this.
    // G108
    #[test]
    fn replacing_thread_frees_the_values() {
        let freed = Arc::default();
        let noted = |number| Noted(number, Arc::clone(&freed));
        let (value, mut replaced) = (Published::new(noted(0)), Replaced::default());
        let loaded = [value.load(), value.load()];
        value.publish(Arc::new(noted(1)), &mut replaced);
        assert!(replaced.free_unused(), "the first value has users");
        let clone = Arc::clone(&*value.load());
        value.publish(Arc::new(noted(2)), &mut replaced);
        thread::scope(|scope| drop(scope.spawn(|| drop((loaded, clone)))));
        assert!(freed.lock().unwrap().is_empty(), "no user frees a value");
        assert!(!replaced.free_unused());
        assert_eq!(*freed.lock().unwrap(), [thread::current().id(); 2]);
        assert_eq!(value.load().number(), 2);
    }
}
