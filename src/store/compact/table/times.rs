//! How a table handles time: see [`crate::base::check_time`].

use super::super::gauges::GaugeStripe;
use super::{Again, DecisionTime, SlotTable};
use crate::algorithm::compact::{CompactState, STATE_BITS};
use crate::base::check_time::CheckTime;
use crate::base::sync::Ordering::{AcqRel, Relaxed};

impl<N: CompactState, const WAYS: usize> SlotTable<N, WAYS> {
    /// Raises the newest time to a moment, before the call writes anything as of this moment.
    ///
    /// A moment may be later than the caller's own time. When the call chose such a moment, the moment was not after
    /// `high`. If it is after `high` now, the newest time was wrong and has been dropped in the meantime. The call then
    /// begins again at its own time.
    pub(super) fn announce(&self, word: &N, at: &DecisionTime) -> Result<(), Again> {
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

    /// The newest time that must be announced for a state that is `ahead` of a time. If the state is further ahead than
    /// the horizon, it was charged at a later time, and the newest time is later accordingly.
    pub(super) fn covering_ns(&self, word: &N, now_ns: u64, ahead: u64) -> u64 {
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

    /// How far ahead of its time a state of an image can be: a quarter of the range. Callers' times may differ by this
    /// much.
    pub(in crate::store::compact) const MOST_AHEAD: u64 = 1 << (STATE_BITS - 2);
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
