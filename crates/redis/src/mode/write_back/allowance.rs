//! The units of one key that a process may still admit before it asks again: one word.
//!
//! ```text
//! word  = [ dead : 1 | left : 63 ]
//! until = the local time from which the window of the word may be over
//! ```
//!
//! 1. Spenders only subtract from `left`, with one compare-exchange.
//! 2. All other changes are made by one thread at a time, the holder of the key's ledger. It knows the value to which
//!    the word was last set, so the difference is what was spent.
//! 3. To set a new allowance, the holder does a compare-exchange from the value that it read. So no spent unit is lost
//!    between the read and the write.
//! 4. At the end of a window, the holder writes `until` after the word. A spender that reads the new `until` sees the
//!    allowance of the new window. A spender that reads the old `until` after that time spends nothing. So units of a
//!    past window are never spent in the next.
//! 5. To remove an entry, the holder marks the word dead in one compare-exchange, which succeeds only if nothing was
//!    spent since the word was set. A spender that finds a dead word starts again with the key's next entry. So no
//!    spent unit is in an entry that is never posted.

use tollgate::internals::sync::{AtomicU64, Ordering};

const DEAD: u64 = 1 << 63;
/// The maximum number of units in an allowance. No process spends more between two calls.
pub(crate) const MOST: u64 = 1 << 40;

/// The allowance of a key; see the module docs.
#[derive(Debug)]
pub(crate) struct Allowance {
    word: AtomicU64,
    until: AtomicU64,
}

/// The result of an attempt to spend.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Spend {
    /// The cost was spent, and this many units are left.
    Done(u64),
    /// Only this many units are left; nothing was spent.
    Short(u64),
    /// The window may be over; nothing was spent.
    Over,
    /// The entry is removed; nothing was spent.
    Dead,
}

/// The result of an attempt to remove an entry.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Removal {
    /// The entry is dead.
    Done,
    /// The entry has units that are not entered or not posted, and stays alive.
    InUse,
}

/// The units spent before an allowance was set, and the units left after it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reset {
    pub(crate) spent: u64,
    pub(crate) left: u64,
}

impl Allowance {
    pub(crate) fn new(left: u64, until_ns: u64) -> Self {
        Self { word: AtomicU64::new(left.min(MOST)), until: AtomicU64::new(until_ns) }
    }

    /// Spends `cost` units if they are left. Lock-free.
    #[inline]
    pub(crate) fn spend(&self, cost: u64, now_ns: u64) -> Spend {
        // Ordering: Acquire; pairs with `set_until`: a thread that sees a window's end sees the word of that window, or
        // a later word.
        if now_ns >= self.until.load(Ordering::Acquire) {
            return Spend::Over;
        }
        // Ordering: Relaxed, here and below. The spent units are read from this word alone, by its modification order.
        // The word publishes nothing else.
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & DEAD != 0 {
                return Spend::Dead;
            }
            if word < cost {
                return Spend::Short(word);
            }
            match self.word.compare_exchange_weak(word, word - cost, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Spend::Done(word - cost),
                Err(now) => word = now,
            }
        }
    }

    /// The units left; 0 for a dead word.
    pub(crate) fn left(&self) -> u64 {
        // Ordering: Relaxed; see `spend`.
        let word = self.word.load(Ordering::Relaxed);
        if word & DEAD == 0 { word } else { 0 }
    }

    pub(crate) fn is_dead(&self) -> bool {
        // Ordering: Relaxed; see `spend`.
        self.word.load(Ordering::Relaxed) & DEAD != 0
    }

    /// Sets the units left to `left(spent)`, where `spent` is the number of units spent since the word was set to
    /// `was`.
    ///
    /// Only the holder of the ledger may call this, and only for a word that is not dead.
    pub(crate) fn reset(&self, was: u64, mut left: impl FnMut(u64) -> u64) -> Reset {
        // Ordering: Relaxed, here and below; see `spend`. Holders of the ledger are ordered by its lock.
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let spent = was.saturating_sub(word);
            let next = left(spent).min(MOST);
            match self.word.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Reset { spent, left: next },
                Err(now) => word = now,
            }
        }
    }

    /// Sets the time from which nothing is spent. Call it after [`reset`](Self::reset). Only the holder of the ledger
    /// may call this.
    pub(crate) fn set_until(&self, until_ns: u64) {
        // Ordering: Release; pairs with `spend`.
        self.until.store(until_ns, Ordering::Release);
    }

    /// Marks the word dead, if nothing was spent since it was set to `was`. Only the holder of the ledger may call
    /// this.
    pub(crate) fn kill(&self, was: u64) -> Removal {
        // Ordering: Relaxed; see `spend`.
        match self.word.compare_exchange(was, DEAD, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Removal::Done,
            Err(_) => Removal::InUse,
        }
    }
}

#[cfg(all(test, tollgate_loom))]
#[path = "models.rs"]
mod models;

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn reset_returns_spent_units() {
        let word = Allowance::new(5, 100);
        assert_eq!(word.spend(3, 99), Spend::Done(2));
        assert_eq!(word.spend(3, 99), Spend::Short(2));
        assert_eq!(word.spend(1, 100), Spend::Over);
        assert_eq!(word.reset(5, |spent| spent + 7), Reset { spent: 3, left: 10 });
        word.set_until(200);
        assert_eq!(word.spend(10, 100), Spend::Done(0));
        assert_eq!(word.spend(0, 100), Spend::Done(0));
    }

    #[test]
    fn only_unspent_word_is_killed() {
        let word = Allowance::new(5, 100);
        assert_eq!(word.spend(1, 0), Spend::Done(4));
        assert_eq!(word.kill(5), Removal::InUse);
        assert_eq!(word.reset(5, |_| 0), Reset { spent: 1, left: 0 });
        assert!(word.kill(0) == Removal::Done && word.is_dead());
        assert_eq!((word.spend(0, 0), word.left()), (Spend::Dead, 0));
    }

    #[test]
    fn allowance_is_capped_at_its_maximum() {
        let word = Allowance::new(u64::MAX, u64::MAX);
        assert_eq!(word.left(), MOST);
        assert_eq!(word.reset(MOST, |_| u64::MAX), Reset { spent: 0, left: MOST });
        assert_eq!(word.spend(u64::MAX, 0), Spend::Short(MOST));
    }
}
