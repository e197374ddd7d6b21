//! A queue of keys that wait for a call to the server, oldest first.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{MutexGuard, PoisonError};

use tollgate::internals::sync::Mutex;

/// A queue of keys. The thread that removes a key owns its next call. The users of the queue ensure that no key is
/// queued twice.
pub(crate) struct KeyQueue<K> {
    /// `None` after the queue is closed.
    keys: Mutex<Option<VecDeque<K>>>,
    /// Called when the queue is no longer empty.
    wake: Box<dyn Fn() + Send + Sync>,
}

impl<K> KeyQueue<K> {
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { keys: Mutex::new(Some(VecDeque::new())), wake: Box::new(wake) }
    }

    fn keys(&self) -> MutexGuard<'_, Option<VecDeque<K>>> {
        // No code leaves the list half changed when it panics. So the list is valid even if the lock is poisoned.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a key. Calls `wake` if it is the first key. Returns the key as an error if the queue is closed.
    pub(crate) fn push(&self, key: K) -> Result<(), K> {
        let mut keys = self.keys();
        let Some(list) = &mut *keys else { return Err(key) };
        list.push_back(key);
        let is_first = list.len() == 1;
        drop(keys);
        if is_first {
            self.wake();
        }
        Ok(())
    }

    pub(crate) fn pop(&self) -> Option<K> {
        self.keys().as_mut()?.pop_front()
    }

    pub(crate) fn wake(&self) {
        (self.wake)();
    }

    pub(crate) fn len(&self) -> usize {
        self.keys().as_ref().map_or(0, VecDeque::len)
    }

    /// Closes the queue, and returns the keys in it. Later keys are not accepted.
    pub(crate) fn close(&self) -> VecDeque<K> {
        self.keys().take().unwrap_or_default()
    }
}

impl<K> fmt::Debug for KeyQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyQueue").field("len", &self.len()).finish_non_exhaustive()
    }
}
