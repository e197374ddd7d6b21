//! Merges two summaries.

use std::hash::Hash;

use super::{Slot, TopKey, TopKeys, rank};

impl<K: Hash + Eq> TopKeys<K> {
    /// Adds the counts of another summary to this one. Errors add up as well.
    ///
    /// Suppose that both summaries have room for `m` entries, and have counted `n1` and `n2` units. After the merge,
    /// every bound of `n / m` holds with `(n1 + n2) / m`. If the capacities differ, `m` is the smaller one. Among equal
    /// counts, this summary's entries come before the entries of `other`.
    ///
    /// # Complexity
    /// O(m log m). It allocates temporary memory.
    pub fn merge(&mut self, other: &Self)
    where
        K: Clone,
    {
        // The methods of the keys may panic, so all calls to them come first.
        let theirs: Vec<Option<(u64, u64)>> = self
            .slots
            .iter()
            .map(|slot| other.get(&slot.entry.key).map(|entry| (entry.count, entry.error)))
            .collect();
        let newcomers = other.slots.iter().filter(|slot| self.get(&slot.entry.key).is_none());
        let mut newcomers: Vec<Slot<K>> = newcomers
            .map(|slot| Slot {
                entry: TopKey {
                    key: slot.entry.key.clone(),
                    count: slot.entry.count.saturating_add(self.floor),
                    error: slot.entry.error.saturating_add(self.floor),
                },
                hash: self.hasher.hash_one(&slot.entry.key),
                since: slot.since,
            })
            .collect();

        for (slot, theirs) in self.slots.iter_mut().zip(theirs) {
            let (count, error) = theirs.unwrap_or((other.floor, other.floor));
            slot.entry.count = slot.entry.count.saturating_add(count);
            slot.entry.error = slot.entry.error.saturating_add(error);
        }
        newcomers.sort_unstable_by_key(|slot| slot.since);
        let mut all: Vec<Slot<K>> = self.slots.drain(..).collect();
        all.sort_unstable_by_key(|slot| slot.since);
        all.extend(newcomers);
        all.iter_mut().zip(0..).for_each(|(slot, since)| slot.since = since);
        self.taken = all.len() as u64;

        all.sort_unstable_by_key(rank);
        let dropped = all.split_off(self.capacity.min(all.len()));
        let most_dropped = dropped.first().map_or(0, |slot| slot.entry.count);
        self.floor = self.floor.saturating_add(other.floor).max(most_dropped);
        self.total = self.total.saturating_add(other.total);
        self.least.clear();
        self.index.clear();
        for slot in all {
            self.push(slot);
        }
    }
}
