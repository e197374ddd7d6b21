//! What happens next, in virtual time.

use std::collections::BTreeMap;

/// Future events. Those of the same time happen in the order in which they were added.
pub(super) struct Events<E> {
    queue: BTreeMap<(u64, u64), E>,
    number: u64,
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self { queue: BTreeMap::new(), number: 0 }
    }
}

impl<E> Events<E> {
    pub(super) fn add(&mut self, at: u64, event: E) {
        self.number += 1;
        self.queue.insert((at, self.number), event);
    }

    /// Removes the first event, if it happens until then.
    pub(super) fn next(&mut self, until: u64) -> Option<(u64, E)> {
        let first = self.queue.first_entry().filter(|first| first.key().0 <= until)?;
        let ((at, _), event) = first.remove_entry();
        Some((at, event))
    }
}
