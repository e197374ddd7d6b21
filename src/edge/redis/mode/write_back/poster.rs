//! By what number the shared state knows who posts.
//!
//! It takes posts by one number for totals of one poster. So whoever begins to count anew needs a new one: each entry of a key, also
//! one that comes back, and each account that is turned back to a window in which it may have posted.

use crate::base::sync::{AtomicU64, Ordering};

/// Numbers are below this, so that a server's scripts reckon with them exactly.
const END: u64 = 1 << 52;

/// See the module.
#[derive(Debug)]
pub(super) struct PosterNumbers {
    next: AtomicU64,
}

impl PosterNumbers {
    /// Counts up from a number that is far from those of other processes: a random one.
    pub(super) fn new(first: u64) -> Self {
        Self { next: AtomicU64::new(first) }
    }

    /// One that was not handed out before.
    pub(super) fn next(&self) -> u64 {
        // Ordering: Relaxed. Only that each caller gets another one matters.
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
