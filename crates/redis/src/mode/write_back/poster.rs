//! The number by which the shared state identifies a poster.
//!
//! The shared state takes all posts with one number as totals of one poster. A count that starts again from zero
//! therefore needs a new number. This happens:
//!
//! - when a key gets an entry, for the first time or again;
//! - when an account returns to a window in which it may already have posted.

use tollgate::internals::sync::{AtomicU64, Ordering};

/// Numbers are below this bound, so that the server's scripts count with them exactly.
const END: u64 = 1 << 52;

/// A source of poster numbers; see the module docs.
#[derive(Debug)]
pub(super) struct PosterNumbers {
    next: AtomicU64,
}

impl PosterNumbers {
    /// Counts up from `first`. This should be a random number, far from the numbers of other processes.
    pub(super) fn new(first: u64) -> Self {
        Self { next: AtomicU64::new(first) }
    }

    /// Returns a number that this source has not returned before.
    pub(super) fn next(&self) -> u64 {
        // Ordering: Relaxed. The only requirement is that each caller gets a different number.
        self.next.fetch_add(1, Ordering::Relaxed) % END
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_and_stay_exact() {
        let numbers = PosterNumbers::new(END - 2);
        assert_eq!([(); 4].map(|()| numbers.next()), [END - 2, END - 1, 0, 1]);
    }
}
