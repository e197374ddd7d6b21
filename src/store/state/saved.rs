//! The state of a key in a snapshot: its head, and all its tail words.
//!
//! - *Written*: the words are those of one moment. The head is loaded before and after the tail, and fills that an admission
//!   still owes are written first. If the key is so busy that no moment is found, its debt is written instead, as a new
//!   state would have it.
//! - *Read*: the algorithm checks the words. If the clock is behind the snapshot, the key gets its debt as of now.

use alloc::vec::Vec;

use super::{Action, Dead, KeyState, Request};
use crate::algorithm::step::{Algorithm, BlockRest, DEAD, Stepper, Tail};
use crate::base::decision::Decision;
use crate::base::sync::{AtomicU64, Ordering};
use crate::store::snapshot::{SnapshotError, SnapshotReader, SnapshotTimes, put_u64};

/// How often the words of a key are read until they are those of one moment.
const TRIES: u32 = 16;

impl<T: Tail, X: super::Access> KeyState<T, X> {
    /// Appends the words, and returns `true`. Appends nothing if the key owes nothing.
    pub(crate) fn save(&self, algorithm: &impl Algorithm<Tail = T>, now_ns: u64, into: &mut Vec<u8>) -> bool {
        let mut last = None;
        for _ in 0..TRIES {
            // A peek writes the fills that are missing.
            let Ok(decision) = self.peek(algorithm, now_ns, 0) else { return false };
            // Ordering: Acquire, see the module docs of `state`.
            let head = self.head.load(Ordering::Acquire);
            if head == 0 || head == DEAD || algorithm.is_idle(head, |index| self.read(index), now_ns) {
                return false;
            }
            if self.save_words(algorithm, head, into) {
                return true;
            }
            last = Some(decision);
        }
        let seeded = last.and_then(|decision| Self::seeded(algorithm, &decision, 0));
        seeded.is_some_and(|state| state.save_words(algorithm, state.head.load(Ordering::Acquire), into))
    }

    /// Appends the words if they are those of one moment, in which the head was this one.
    fn save_words(&self, algorithm: &impl Algorithm<Tail = T>, head: u64, into: &mut Vec<u8>) -> bool {
        let words: Vec<u64> = (0..self.tail.words().len()).map(|index| self.read(index)).collect();
        let is_whole = self.head_unchanged(head).is_ok() && algorithm.accepts(head, |index| words[index]);
        if is_whole {
            [head].into_iter().chain(words).for_each(|word| put_u64(word, into));
        }
        is_whole
    }

    /// A new state with the debt of a decision, moved back in time. It owes nothing no sooner than the old state would have:
    /// a window may end soon after the earlier time, so the debt may count from a later one.
    fn seeded(
        algorithm: &impl Algorithm<Tail = T>,
        decision: &Decision,
        back_ns: u64,
    ) -> Option<KeyState<T, Dead>> {
        let (BlockRest { level, until_ns }, units) =
            (BlockRest::of(decision), Stepper::owed(algorithm, decision));
        let block = BlockRest { level, until_ns: until_ns.saturating_sub(back_ns) };
        let seed = |later_ns: u64| {
            let state = KeyState::fresh(algorithm.tail_len());
            let now_ns = decision.owed_as_of_ns().saturating_sub(back_ns).saturating_add(later_ns);
            let seed = Request { algorithm, action: Action::Seed(block), now_ns, cost: units };
            (units > 0 && state.apply(&seed).is_ok()).then_some(state)
        };
        let mut later_ns = 0_u64;
        loop {
            let state = seed(later_ns)?;
            let now = state.peek(algorithm, decision.at_ns().saturating_sub(back_ns), 0).ok()?;
            match decision.reset_ns().saturating_sub(now.reset_ns()) {
                // The next window begins before the time has doubled 64 times.
                missing_ns @ 1.. if later_ns < u64::MAX / 2 => later_ns = missing_ns.max(2 * later_ns),
                _ => return Some(state),
            }
        }
    }

    /// Reads a state. Returns `None` if the key owes nothing any more.
    pub(crate) fn load(
        algorithm: &impl Algorithm<Tail = T>,
        reader: &mut SnapshotReader<'_>,
        times: SnapshotTimes,
    ) -> Result<Option<Self>, SnapshotError> {
        // Before the tail is allocated.
        reader.has((1 + algorithm.tail_len()).saturating_mul(size_of::<u64>()))?;
        let head = reader.u64()?;
        let mut state = KeyState::<T, Dead>::fresh(algorithm.tail_len());
        for word in state.tail.words() {
            // Ordering: Relaxed, here and below. No other thread has the state yet.
            word.store(reader.u64()?, Ordering::Relaxed);
        }
        if head == 0 || head == DEAD || !algorithm.accepts(head, |index| state.read(index)) {
            return Err(SnapshotError::content("state of a key"));
        }
        state.head = AtomicU64::new(head);
        let peek = |at_ns| state.peek(algorithm, at_ns, 0).ok();
        let then = peek(times.then_ns);
        // After years, a word wraps around, and a debt that was paid seems to be owed again.
        let owes_at = |at_ns| peek(at_ns).is_some_and(|decision| decision.reset_ns() > 0);
        if then.is_some_and(|then| then.reset_ns() <= times.passed_ns()) && owes_at(times.now_ns) {
            return Ok(None);
        }
        let state = match times.back_ns() {
            0 => Some(state),
            back_ns => then.and_then(|then| Self::seeded(algorithm, &then, back_ns)),
        };
        let owes = state.filter(|state| {
            let head = state.head.load(Ordering::Relaxed);
            !algorithm.is_idle(head, |index| state.read(index), times.now_ns)
        });
        Ok(owes.map(|KeyState { head, tail, .. }| Self { head, tail, access: core::marker::PhantomData }))
    }

    /// Takes over a state that no other thread has.
    pub(crate) fn replace(&self, other: &Self) {
        for (word, other) in self.tail.words().iter().zip(other.tail.words()) {
            word.store(other.load(Ordering::Relaxed), Ordering::Release);
        }
        // Ordering: Release: publishes the tail.
        self.head.store(other.head.load(Ordering::Relaxed), Ordering::Release);
    }

    /// The units that the key owes.
    pub(crate) fn owed(&self, algorithm: &impl Algorithm<Tail = T>, now_ns: u64) -> u64 {
        self.peek(algorithm, now_ns, 0).map_or(0, |decision| Stepper::owed(algorithm, &decision))
    }
}
