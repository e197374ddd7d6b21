//! A bounded table of keys, and what this process holds for each.
//!
//! The map comes from a library: reads take no lock, and a removed value is freed when no thread can still see it. This
//! module adds the bound.

use std::sync::Arc;

use tollgate::internals::sync::{AtomicUsize, Ordering};

use crate::mode::name::{KeyRef, LookupKey, OwnedKey};

/// A table of at most `max` keys. Each value is changed in place.
#[derive(Debug)]
pub(crate) struct KeyTable<V> {
    map: papaya::HashMap<OwnedKey, Arc<V>, ahash::RandomState>,
    /// Keys that are in the map or about to be inserted.
    held: AtomicUsize,
    max: usize,
}

/// A guard for reads; see [`KeyTable::pin`].
pub(crate) struct PinnedTable<'t, V>(
    papaya::HashMapRef<'t, OwnedKey, Arc<V>, ahash::RandomState, papaya::LocalGuard<'t>>,
);

impl<V> PinnedTable<'_, V> {
    /// Returns the value of a key, if it is in the table. O(1); takes no lock.
    #[inline(always)]
    pub(crate) fn get<'k>(&self, name: impl LookupKey<'k>) -> Option<&Arc<V>> {
        self.0.get(&name)
    }
}

impl<V: Send + Sync + 'static> KeyTable<V> {
    pub(crate) fn new(max: usize) -> Self {
        Self { map: papaya::HashMap::with_hasher(ahash::RandomState::new()), held: AtomicUsize::new(0), max }
    }

    /// Calls `read` with the value of a key, if it is in the table. O(1); takes no lock.
    pub(crate) fn get<'k, R>(&self, name: impl LookupKey<'k>, read: impl FnOnce(&Arc<V>) -> R) -> Option<R> {
        self.pin().get(name).map(read)
    }

    /// Returns a guard for reads. While the guard exists, no value found through it is freed.
    #[inline(always)]
    pub(crate) fn pin(&self) -> PinnedTable<'_, V> {
        PinnedTable(self.map.pin())
    }

    /// Returns the value of a key, and inserts it if it is missing. Returns `None` if the table has no room.
    pub(crate) fn get_or_make(&self, name: KeyRef<'_>, make: impl FnOnce() -> V) -> Option<Arc<V>> {
        let map = self.map.pin();
        if let Some(value) = map.get(&name) {
            return Some(Arc::clone(value));
        }
        // Ordering: Relaxed. The counter publishes no other memory. It is incremented before an insert and decremented
        // after a removal, so the map never holds more keys than it counts.
        if self.held.fetch_add(1, Ordering::Relaxed) >= self.max {
            self.held.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        match map.try_insert(name.to_owned_key(), Arc::new(make())) {
            Ok(value) => Some(Arc::clone(value)),
            Err(there) => {
                self.held.fetch_sub(1, Ordering::Relaxed);
                Some(Arc::clone(there.current))
            }
        }
    }

    /// Removes a key if it still has this exact value. Other threads may still hold the value.
    pub(crate) fn remove(&self, name: KeyRef<'_>, value: &Arc<V>) {
        let map = self.map.pin();
        let removed = map.remove_if(&name, |_, present| Arc::ptr_eq(present, value));
        if let Ok(Some(_)) = removed {
            // Ordering: Relaxed; see above.
            self.held.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Calls `visit` with each key, which may remove it. O(keys).
    pub(crate) fn for_each(&self, mut visit: impl FnMut(KeyRef<'_>, &Arc<V>)) {
        for (key, value) in &self.map.pin() {
            visit(key.as_ref(), value);
        }
    }

    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn table_holds_at_most_its_bound() {
        let table = KeyTable::new(2);
        let [a, b, c] = [b"a", b"b", b"c"].map(|key| KeyRef::Bytes(key));
        for (name, is_held) in [(a, true), (b, true), (c, false), (a, true)] {
            assert_eq!(table.get_or_make(name, || 1).is_some(), is_held);
        }
        assert_eq!((table.len(), table.get(c, |_| ())), (2, None));
        table.for_each(|name, value| {
            if name == a {
                table.remove(name, value);
            }
        });
        assert!(table.get_or_make(c, || 1).is_some(), "there is room again");
        let mut keys = Vec::new();
        table.for_each(|name, _| keys.push(name.bytes().into_owned()));
        keys.sort();
        assert_eq!(keys, [b"b", b"c"]);
    }
}
