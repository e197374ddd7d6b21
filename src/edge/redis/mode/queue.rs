//! Keys that wait for an exchange with the server, oldest first.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{MutexGuard, PoisonError};

use crate::base::sync::Mutex;

/// What is taken out of it is the taker's; nothing is in it twice, as its users see to.
pub(crate) struct KeyQueue<K> {
    /// `None`: the queue is closed.
    keys: Mutex<Option<VecDeque<K>>>,
    /// Called when there is something to send.
    wake: Box<dyn Fn() + Send + Sync>,
}

impl<K> KeyQueue<K> {
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { keys: Mutex::new(Some(VecDeque::new())), wake: Box::new(wake) }
    }

    fn keys(&self) -> MutexGuard<'_, Option<VecDeque<K>>> {
        // Nothing that is done under the lock can leave the list half changed.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a key, and wakes if it is the first. Gives it back if the queue is closed.
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

    /// Nobody takes up any more what is queued. Returns what was.
    pub(crate) fn close(&self) -> VecDeque<K> {
        self.keys().take().unwrap_or_default()
    }
}

impl<K> fmt::Debug for KeyQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyQueue").field("len", &self.len()).finish_non_exhaustive()
    }
}
