//! How a table handles time: see [`crate::base::check_time`].

use core::ops::Deref;

use crossbeam_utils::CachePadded;

use super::super::gauges::GaugeStripe;
use super::{Again, DecisionTime, SlotAddress, SlotTable};
use crate::algorithm::compact::slot::{SlotStanding, SlotWord, distance, is_own_and_behind, standing};
use crate::algorithm::compact::{CompactState, Moment, STATE_BITS, Verdict};
use crate::base::check_time::{Bounds, CheckTime, Newest};
use crate::base::decision::{Decision, Outcome};
use crate::base::sync::AtomicU64;
use crate::base::sync::Ordering::{AcqRel, Relaxed};
use crate::store::op::Debt;

/// How far ahead of its time a state of an image can be: a quarter of the range. Callers' times may differ by this
/// much.
pub(super) const MOST_AHEAD: u64 = 1 << (STATE_BITS - 2);

/// The times of a store with such words: how far ahead a state can be at most, and the newest time.
#[derive(Debug)]
pub(super) struct Times<'t, B> {
    pub(super) horizon: u64,
    pub(super) newest: &'t Newest<B>,
}

impl<B: Deref<Target = Bounds>> Times<'_, B> {
    /// Decides `cost` units for one slot and its word, and charges them if they are admitted. `None` if the word belongs to
    /// another key, or if one exchange is not enough.
    #[inline(always)]
    pub(super) fn check_slot<N: CompactState>(
        &self,
        word: &N,
        place: SlotAddress,
        (slot, seen): (&AtomicU64, u64),
        at: Moment,
        cost: u64,
    ) -> Option<Decision> {
        // The charge is added to the loaded word, not to its distance from the reference. The result is the same, but
        // fewer instructions depend on each other between the load and the exchange. Checks on one processor cannot
        // overlap in this part.
        let idle = place.word(at.reference);
        let distance = distance(seen, idle);
        // One comparison for the common case, and one more for a word that is just idle.
        let (ahead, from) = if distance <= self.horizon {
            (distance, seen)
        } else if is_own_and_behind(distance) {
            (0, idle)
        } else {
            return None;
        };
        match word.judge(ahead, at.now_ns, cost) {
            // This denial starts a block.
            Verdict::Deny if N::BLOCKS && word.block(ahead).is_some() => None,
            Verdict::Deny => Some(word.uncharged(Outcome::Denied, ahead, at, cost)),
            Verdict::Never => Some(word.uncharged(Outcome::Never, ahead, at, cost)),
            // Only a cost of zero leaves the state unchanged.
            Verdict::Admit(_) if cost == 0 => Some(word.uncharged(Outcome::Allowed, ahead, at, cost)),
            Verdict::Admit(after) => {
                if !self.newest.is_near(at.now_ns) {
                    return None;
                }
                let next = from.wrapping_add(SlotWord::pack(0, after.wrapping_sub(ahead)));
                // Ordering: AcqRel. The proof in the module docs rests on the order of each location, and on the
                // absence of cycles of loads that see later stores. In theory, Relaxed would allow such cycles.
                slot.compare_exchange(seen, next, AcqRel, Relaxed).ok()?;
                Some(word.decision(Outcome::Allowed, after, at, cost))
            }
        }
    }

    /// Whether the state of a word is ahead of a reference.
    pub(super) fn owes(&self, word: u64, reference: u64) -> bool {
        let state = SlotWord::unpack(word).state;
        matches!(standing::<STATE_BITS>(state, reference, self.horizon), SlotStanding::Ahead(_))
    }

    /// How far a loaded state is ahead of a moment. `None` means a state from an earlier round.
    #[inline]
    pub(super) fn ahead<N: CompactState>(&self, word: &N, state: u64, at: &DecisionTime) -> Option<u64> {
        match standing::<STATE_BITS>(state, at.reference, self.horizon) {
            SlotStanding::Idle => Some(0),
            SlotStanding::Ahead(ahead) => Some(ahead),
            SlotStanding::Unsure(ahead) => {
                // The bound is read after the state was loaded: see `check_time`. The bound has no meaning for a time
                // below `low`. In that case the caller begins again: see `near`.
                let high_ns = self.newest.high();
                let newer =
                    if high_ns > at.now_ns { word.reference(high_ns).wrapping_sub(at.reference) } else { 0 };
                (ahead - self.horizon <= newer).then_some(ahead)
            }
        }
    }

    /// Raises the newest time to a moment, before the call writes anything as of this moment.
    ///
    /// A moment may be later than the caller's own time. When the call chose such a moment, the moment was not after
    /// `high`. If it is after `high` now, the newest time was wrong and has been dropped in the meantime. The call then
    /// begins again at its own time.
    #[inline(always)]
    pub(super) fn announce<N: CompactState>(&self, word: &N, at: &DecisionTime) -> Result<(), Again> {
        if at.now_ns > at.own_ns && at.now_ns > self.newest.high() {
            return Err(Again::AsOf(at.own_ns));
        }
        self.newest.raise(at.now_ns, |now_ns| word.last_ns(now_ns));
        Ok(())
    }

    /// Returns the time for a check that begins again because its time is too far behind the words that it has loaded.
    #[inline]
    pub(super) fn near(&self, at: &DecisionTime) -> Result<(), Again> {
        let low_ns = self.newest.low();
        if at.now_ns >= low_ns {
            return Ok(());
        }
        // A call that only peeks changes nothing.
        let as_of_ns = if at.peeks { low_ns } else { self.newest.as_of(at.now_ns) };
        if as_of_ns > at.now_ns { Err(Again::AsOf(as_of_ns)) } else { Ok(()) }
    }

    /// The newest time that must be announced for a state that is `ahead` of a time. If the state is further ahead than
    /// the horizon, it was charged at a later time, and the newest time is later accordingly.
    pub(super) fn covering_ns<N: CompactState>(&self, word: &N, now_ns: u64, ahead: u64) -> u64 {
        match ahead.saturating_sub(self.horizon) {
            0 => word.last_ns(now_ns),
            // Rounded up by one state and one nanosecond. The slack is added when the newest time is raised.
            beyond => {
                let beyond_ns = word.span_ns(beyond + 1) + 1;
                let slack_ns = word.span_ns(word.slack());
                word.last_ns(now_ns.saturating_add(beyond_ns.saturating_sub(slack_ns)))
            }
        }
    }

    /// Returns how far ahead a debt is that comes from another store, before it is written as of a moment. `None` if it is
    /// paid by then, or if the key `started` with as much.
    pub(super) fn seeded<N: CompactState>(
        &self,
        word: &N,
        debt: Debt,
        started: u64,
        at: &DecisionTime,
    ) -> Option<u64> {
        let Debt { at_ns: then_ns, units, block } = debt;
        let seeded = word.resume(then_ns, word.seed(then_ns, units), block);
        let state = word.reference(then_ns).wrapping_add(seeded);
        // If this thread's time lags, the state may be further ahead than any normal state.
        let (SlotStanding::Ahead(left) | SlotStanding::Unsure(left)) =
            standing::<STATE_BITS>(state, at.reference, self.horizon)
        else {
            return None;
        };
        if left <= started {
            return None;
        }
        // The state was made at `then_ns`.
        self.newest.raise(at.now_ns.max(then_ns), |now_ns| word.last_ns(now_ns));
        if left > self.horizon {
            self.newest.raise_to(self.covering_ns(word, at.now_ns, left));
        }
        Some(left)
    }
}

/// Repeats an attempt until it succeeds, as of a later time if necessary.
// Each attempt is a closure of one place, so nothing is inlined twice.
#[inline(always)]
pub(super) fn retry<N: CompactState, R>(
    word: &N,
    mut at: DecisionTime,
    mut attempt: impl FnMut(&DecisionTime) -> Result<R, Again>,
) -> R {
    loop {
        match attempt(&at) {
            Ok(result) => return result,
            Err(Again::Lost) => {}
            Err(Again::AsOf(now_ns)) => at = DecisionTime { now_ns, reference: word.reference(now_ns), ..at },
        }
    }
}

impl<N: CompactState, const WAYS: usize> SlotTable<N, WAYS> {
    #[inline(always)]
    pub(super) const fn times(&self) -> Times<'_, CachePadded<Bounds>> {
        Times { horizon: self.horizon, newest: &self.newest }
    }

    /// See [`Times::announce`].
    pub(super) fn announce(&self, word: &N, at: &DecisionTime) -> Result<(), Again> {
        self.times().announce(word, at)
    }

    /// See [`Times::near`].
    #[inline]
    pub(super) fn near(&self, at: &DecisionTime) -> Result<(), Again> {
        self.times().near(at)
    }

    /// How far the newest time is after a moment. Reads and writes of the sketch use the later of the two times.
    pub(super) fn later(&self, word: &N, at: &DecisionTime) -> u64 {
        let newest_ns = self.newest.newest();
        if newest_ns > at.now_ns { word.reference(newest_ns).wrapping_sub(at.reference) } else { 0 }
    }

    /// Records when a word was paid, before a new key replaces it. For a caller whose time lags, the word may not be
    /// paid yet.
    pub(super) fn replaces(&self, stripe: &GaugeStripe, paid_ns: u64) {
        let mut seen_ns = stripe.replaced_ns.load(Relaxed);
        // A recorded time after `high` was wrong, and is replaced.
        while seen_ns < paid_ns || seen_ns > self.newest.high() {
            // Ordering: AcqRel: before the exchange that replaces the word.
            match stripe.replaced_ns.compare_exchange(seen_ns, paid_ns, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(other) => seen_ns = other,
            }
        }
    }

    /// See [`Newest::newest`].
    pub(in crate::store::compact) fn newest(&self) -> CheckTime {
        CheckTime::from_ns(self.newest.newest())
    }

    /// See [`Newest::high`](crate::base::check_time::Newest::high).
    pub(in crate::store::compact) fn high_ns(&self) -> u64 {
        self.newest.high()
    }

    /// Takes over the times of the table that this table replaces.
    pub(in crate::store::compact) fn take_over_times<M>(&self, word: &N, last: &SlotTable<M, WAYS>) {
        self.newest.raise(last.newest.newest(), |now_ns| word.last_ns(now_ns));
        self.counters.take_times_of(&last.counters);
    }

    /// See [`Times::covering_ns`].
    pub(super) fn covering_ns(&self, word: &N, now_ns: u64, ahead: u64) -> u64 {
        self.times().covering_ns(word, now_ns, ahead)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::super::Full;
    use super::*;
    use crate::algorithm::compact::ticks::{Interval, UnitRate};
    use crate::algorithm::compact::{TatVariant, TatWord, newest_of};

    /// A call may still use a wrong newest time that was dropped after its decision. The call does not restore this
    /// time.
    // G40
    #[test]
    fn running_call_does_not_restore_wrong_time() {
        let rate = UnitRate { interval: Interval { num: 10, den: 1 }, burst: 1 };
        let word = TatWord::with_ticks("test", rate, 10, TatVariant::Meter).unwrap();
        let newest = newest_of(&word);
        let table = SlotTable::<TatWord, 2>::new(1, word.horizon(), Full::Forget, newest).unwrap();
        let (right_ns, wrong_ns) = (5_000, u64::MAX / 2);
        table.newest.raise(wrong_ns, |now_ns| now_ns);
        let Err(Again::AsOf(low_ns)) = table.near(&DecisionTime::new(&word, right_ns)) else {
            panic!("a request that is far behind is decided as of a later time")
        };
        let under_way = DecisionTime { own_ns: right_ns, ..DecisionTime::new(&word, low_ns) };
        assert_eq!(table.announce(&word, &under_way), Ok(()), "the wrong time is still in force");

        let later_ns = right_ns + 2_000_000_000;
        assert_eq!(table.near(&DecisionTime::new(&word, later_ns)), Ok(()), "the wrong time is given up");
        assert_eq!(table.announce(&word, &under_way), Err(Again::AsOf(right_ns)));
        assert_eq!(table.newest().ns(), later_ns, "the wrong time does not return");
    }
}
