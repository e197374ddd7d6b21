//! What a process may still let through of one key before it asks again: one word.
//!
//! ```text
//! word  = [ dead : 1 | left : 63 ]
//! until = when the window that it belongs to can be over, by the local clock
//! ```
//!
//! Spenders only take from `left`, by one compare-exchange. All else is done by one thread at a time, which holds the key's
//! ledger: it knows what the word was set to last, so what is missing is what was spent.
//!
//! - A new allowance is set by a compare-exchange from what was read, so no spender's unit falls between reading and setting.
//! - A window's end: `until` is written after the word. Who reads the new one sees the new window's allowance, and who reads the old
//!   one after its time spends nothing. So nothing of a window that is over is spent in the next.
//! - Removal: the word dies only if nothing was spent since it was set, in the same exchange. Who meets a dead word starts over, with
//!   the key's next entry; so no spent unit is in an entry that nobody posts.

use crate::base::sync::{AtomicU64, Ordering};

const DEAD: u64 = 1 << 63;
/// The most units that are handed out at once; more would not be spent between two asks.
pub(crate) const MOST: u64 = 1 << 40;

/// See the module.
#[derive(Debug)]
pub(crate) struct Allowance {
    word: AtomicU64,
    until: AtomicU64,
}

/// What became of a spender's try.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Spend {
    /// It is spent, and so much is left.
    Done(u64),
    /// Only so much is left; nothing was spent.
    Short(u64),
    /// The window can be over; nothing was spent.
    Over,
    /// The entry is removed; nothing was spent.
    Dead,
}

/// What became of an entry that was to be removed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Removal {
    /// It is dead.
    Done,
    /// It holds something that is not entered or not posted, and lives on.
    InUse,
}

impl Allowance {
    pub(crate) fn new(left: u64, until_ns: u64) -> Self {
        Self { word: AtomicU64::new(left.min(MOST)), until: AtomicU64::new(until_ns) }
    }

    /// Spends `cost` if it is there. Lock-free.
    #[inline]
    pub(crate) fn spend(&self, cost: u64, now_ns: u64) -> Spend {
        // Ordering: Acquire; pairs with `set_until`: who sees a window's end sees the word of that window, or a later one.
        if now_ns >= self.until.load(Ordering::Acquire) {
            return Spend::Over;
        }
        // Ordering: Relaxed, here and below. What was spent is read from this word alone, by its modification order; it
        // publishes nothing else.
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

    /// What is left. Of a dead word, nothing.
    pub(crate) fn left(&self) -> u64 {
        // Ordering: Relaxed; see `spend`.
        let word = self.word.load(Ordering::Relaxed);
        if word & DEAD == 0 { word } else { 0 }
    }

    pub(crate) fn is_dead(&self) -> bool {
        // Ordering: Relaxed; see `spend`.
        self.word.load(Ordering::Relaxed) & DEAD != 0
    }

    /// Sets what is left, made of what was spent since it was set to `was`; says what was spent, and what is left.
    ///
    /// For the holder of the ledger only, of a word that is not dead.
    pub(crate) fn reset(&self, was: u64, mut left: impl FnMut(u64) -> u64) -> (u64, u64) {
        // Ordering: Relaxed, here and below; see `spend`. Holders of the ledger are ordered by its lock.
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let spent = was.saturating_sub(word);
            let next = left(spent).min(MOST);
            match self.word.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return (spent, next),
                Err(now) => word = now,
            }
        }
    }

    /// From when on nothing of it is spent; after [`reset`](Self::reset). For the holder of the ledger only.
    pub(crate) fn set_until(&self, until_ns: u64) {
        // Ordering: Release; pairs with `spend`.
        self.until.store(until_ns, Ordering::Release);
    }

    /// Kills the word, if nothing was spent since it was set to `was`. For the holder of the ledger only.
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
    fn what_is_spent_is_missing_at_the_reset() {
        let word = Allowance::new(5, 100);
        assert_eq!(word.spend(3, 99), Spend::Done(2));
        assert_eq!(word.spend(3, 99), Spend::Short(2));
        assert_eq!(word.spend(1, 100), Spend::Over);
        assert_eq!(word.reset(5, |spent| spent + 7), (3, 10));
        word.set_until(200);
        assert_eq!(word.spend(10, 100), Spend::Done(0));
        assert_eq!(word.spend(0, 100), Spend::Done(0));
    }

    #[test]
    fn a_word_dies_unspent_only() {
        let word = Allowance::new(5, 100);
        assert_eq!(word.spend(1, 0), Spend::Done(4));
        assert_eq!(word.kill(5), Removal::InUse);
        assert_eq!(word.reset(5, |_| 0), (1, 0));
        assert!(word.kill(0) == Removal::Done && word.is_dead());
        assert_eq!((word.spend(0, 0), word.left()), (Spend::Dead, 0));
    }

    #[test]
    fn more_than_a_word_holds_is_cut() {
        let word = Allowance::new(u64::MAX, u64::MAX);
        assert_eq!(word.left(), MOST);
        assert_eq!(word.reset(MOST, |_| u64::MAX), (0, MOST));
        assert_eq!(word.spend(u64::MAX, 0), Spend::Short(MOST));
    }
}
