//! The guarantees of `TopKeys`, checked against exact counts. The fuzz target shares this file.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use tollgate::sketch::TopKeys;

/// The true units of each key.
#[derive(Clone, Debug)]
pub struct Exact<K> {
    units: HashMap<K, u128>,
    /// The smallest number of entries among the merged summaries.
    entries: usize,
}

impl<K: Copy + Hash + Eq + Debug> Exact<K> {
    pub fn new(entries: usize) -> Self {
        Self { units: HashMap::new(), entries }
    }

    pub fn add(&mut self, key: K, n: u64) {
        if n > 0 {
            *self.units.entry(key).or_default() += u128::from(n);
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for (key, units) in &other.units {
            *self.units.entry(*key).or_default() += units;
        }
        self.entries = self.entries.min(other.entries);
    }

    pub fn total(&self) -> u128 {
        self.units.values().sum()
    }

    /// Asserts every bound, for every key.
    pub fn judge(&self, ours: &TopKeys<K>) {
        let entries = self.entries as u128;
        let total = self.total();
        let floor = ours.max_error();
        assert!(u128::from(floor) * entries <= total, "{floor} of {total}: {ours:?}");
        assert_eq!(ours.total(), stop(total));
        assert_eq!((ours.len().min(1) == 0, ours.len()), (ours.is_empty(), ours.top(usize::MAX).len()));
        assert!(ours.len() <= ours.capacity());

        let top = ours.top(usize::MAX);
        assert!(top.is_sorted_by_key(|entry| std::cmp::Reverse(entry.count)), "{ours:?}");
        let mut above = 0;
        for entry in &top {
            let units = self.units.get(&entry.key).copied().unwrap_or_default();
            assert!(units > 0, "{entry:?} was never added");
            assert!(stop(units) <= entry.count, "{entry:?} is too low: {units} units");
            assert!(u128::from(entry.at_least()) <= units, "{entry:?} is too high: {units} units");
            assert!(entry.error <= floor && entry.count >= floor, "{entry:?}, {floor}");
            above += u128::from(entry.count - floor);
            assert_eq!(ours.get(&entry.key), Some(*entry), "`get` and `top` differ");
        }
        assert!(above + u128::from(floor) * entries <= total, "the counts do not bound the floor: {ours:?}");
        for (key, units) in &self.units {
            if ours.get(key).is_none() {
                assert!(stop(*units) <= floor, "{key:?} with {units} units has no entry: {ours:?}");
                assert!(
                    units * entries <= total || total > u128::from(u64::MAX),
                    "{key:?} is heavy and has no entry: {ours:?}"
                );
            }
        }
        if self.units.len() <= self.entries {
            assert_eq!((floor, ours.len()), (0, self.units.len()), "every key has an entry of its own");
        }
    }
}

/// Converts to `u64`; counts saturate at `u64::MAX`.
fn stop(units: u128) -> u64 {
    u64::try_from(units).unwrap_or(u64::MAX)
}
