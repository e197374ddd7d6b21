//! Keys and what this process holds of them, bounded.
//!
//! The map is a library's: reads take no lock, and what is removed is freed once nobody looks at it. Here is the bound.

use std::fmt;
use std::sync::Arc;

use crate::sync::{AtomicUsize, Ordering};

/// At most so many keys, each with a value that is changed in place.
pub(super) struct Table<V> {
    map: papaya::HashMap<Box<[u8]>, Arc<V>, ahash::RandomState>,
    /// Keys that are in the map or about to be.
    held: AtomicUsize,
    max: usize,
}

impl<V: Send + Sync + 'static> Table<V> {
    pub(super) fn new(max: usize) -> Self {
        Self { map: papaya::HashMap::with_hasher(ahash::RandomState::new()), held: AtomicUsize::new(0), max }
    }

    /// Calls `act` with the value of a key, if it is there. O(1); takes no lock.
    #[inline]
    pub(super) fn get<R>(&self, key: &[u8], act: impl FnOnce(&Arc<V>) -> R) -> Option<R> {
        self.map.pin().get(key).map(act)
    }

    /// The value of a key, made if it is not there; `None` if there is no room for it.
    pub(super) fn get_or_make(&self, key: &[u8], make: impl FnOnce() -> V) -> Option<Arc<V>> {
        let map = self.map.pin();
        if let Some(value) = map.get(key) {
            return Some(Arc::clone(value));
        }
        // Ordering: Relaxed. A tally; rooms are taken before an insert and given back after a removal, so there are never more
        // keys than rooms.
        if self.held.fetch_add(1, Ordering::Relaxed) >= self.max {
            self.held.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        match map.try_insert(key.into(), Arc::new(make())) {
            Ok(value) => Some(Arc::clone(value)),
            Err(there) => {
                self.held.fetch_sub(1, Ordering::Relaxed);
                Some(Arc::clone(there.current))
            }
        }
    }

    /// Removes those that `keep` does not want. Others may have one of them in their hands still. O(keys).
    pub(super) fn retain(&self, mut keep: impl FnMut(&[u8], &Arc<V>) -> bool) {
        let map = self.map.pin();
        for (key, value) in &map {
            if !keep(key, value) && map.remove(key).is_some() {
                // Ordering: Relaxed; see above.
                self.held.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Removes a key if it has this very value still. Others may have it in their hands.
    pub(super) fn remove(&self, key: &[u8], value: &Arc<V>) -> bool {
        let map = self.map.pin();
        let removed = map.remove_if(key, |_, present| Arc::ptr_eq(present, value));
        let is_removed = matches!(removed, Ok(Some(_)));
        if is_removed {
            // Ordering: Relaxed; see above.
            self.held.fetch_sub(1, Ordering::Relaxed);
        }
        is_removed
    }

    /// Calls `visit` with each. O(keys).
    pub(super) fn for_each(&self, mut visit: impl FnMut(&[u8], &Arc<V>)) {
        for (key, value) in &self.map.pin() {
            visit(key, value);
        }
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }
}

impl<V> fmt::Debug for Table<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("max", &self.max).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_table_holds_no_more_than_its_bound() {
        let table = Table::new(2);
        for (key, is_held) in [(b"a", true), (b"b", true), (b"c", false), (b"a", true)] {
            assert_eq!(table.get_or_make(key, || 1).is_some(), is_held);
        }
        assert_eq!((table.len(), table.get(b"c", |_| ())), (2, None));
        table.retain(|key, _| key != b"a");
        assert!(table.get_or_make(b"c", || 1).is_some(), "there is room again");
        let mut keys = Vec::new();
        table.for_each(|key, _| keys.push(key.to_vec()));
        keys.sort();
        assert_eq!(keys, [b"b", b"c"]);
    }
}
