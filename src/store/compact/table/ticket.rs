//! A check in two parts, for several limits on one request: first the decision, then the exchange that charges.

use super::{SlotAddress, SlotTable};
use crate::algorithm::compact::slot::{EMPTY, SlotWord, distance, is_own, is_own_and_behind};
use crate::algorithm::compact::{CompactState, Moment, Verdict};
use crate::base::decision::{Decision, Outcome};
use crate::base::sync::AtomicU64;
use crate::base::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::store::op::{Exchange, Peeked, Ticket};
#[cfg(feature = "std")]
use crate::store::op::{Pins, WordTicket};

/// A check that is decided but not yet charged.
#[derive(Copy, Clone, Debug)]
pub struct SlotTicket<'t, N, const WAYS: usize> {
    table: &'t SlotTable<N, WAYS>,
    word: &'t N,
    place: SlotAddress,
    /// First the key's home, then the slot that [`Ticket::peek`] found. `None` if one exchange is not enough to charge
    /// the key.
    slot: Option<&'t AtomicU64>,
    /// The word of the slot.
    seen: u64,
    /// The word that an idle key would have.
    idle: u64,
    ahead: u64,
    /// The time of the decision.
    at: Moment,
    verdict: Verdict,
    cost: u64,
}

impl<N: CompactState, const WAYS: usize> SlotTable<N, WAYS> {
    /// A ticket that is not decided yet.
    ///
    /// This function loads no word. It computes all values that do not depend on a word. If they were computed after an
    /// Acquire load, the compiler would compute them for each load again.
    #[inline(always)]
    pub(in crate::store::compact) fn aim<'t>(
        &'t self,
        word: &'t N,
        place: SlotAddress,
        now_ns: u64,
        cost: u64,
    ) -> SlotTicket<'t, N, WAYS> {
        let slot = Some(&self.bucket_of(place)[place.home::<WAYS>()]);
        let at = word.moment(now_ns);
        let idle = place.word(at.reference);
        let (seen, ahead, verdict) = (EMPTY, 0, Verdict::Deny);
        SlotTicket { table: self, word, place, slot, seen, idle, ahead, at, verdict, cost }
    }

    /// For a key that takes more than one exchange: returns how far ahead its state is, and the time for which this
    /// holds.
    #[cold]
    #[inline(never)]
    fn peek_slowly(&self, word: &N, place: SlotAddress, now_ns: u64) -> (u64, u64) {
        self.retry(word, now_ns, |at| Ok((self.owed(word, place, at)?, at.now_ns)))
    }
}

impl<N: CompactState, const WAYS: usize> SlotTicket<'_, N, WAYS> {
    /// The word of a state that is this far ahead.
    #[inline(always)]
    const fn next(&self, after: u64) -> u64 {
        self.idle.wrapping_add(SlotWord::pack(0, after))
    }

    /// The same ticket, decided as [`SlotTable::check`] decides. The charge is left to the ticket.
    pub(in crate::store::compact) fn decided(mut self) -> Self {
        if self.peek() == Peeked::Undecided {
            let (ahead, now_ns) = self.table.peek_slowly(self.word, self.place, self.at.now_ns);
            (self.ahead, self.at) = (ahead, self.word.moment(now_ns));
            self.verdict = self.word.judge(ahead, now_ns, self.cost);
            self.slot = None;
        }
        self
    }
}

impl<N: CompactState, const WAYS: usize> Ticket for SlotTicket<'_, N, WAYS> {
    #[inline(always)]
    fn peek(&mut self) -> Peeked {
        let Some(mut slot) = self.slot else {
            return Peeked::Undecided;
        };
        // Ordering: as in `locate`.
        let mut seen = slot.load(Acquire);
        let mut ahead = distance(seen, self.idle);
        // One comparison for the common case, as in `check_slot`.
        if ahead > self.table.horizon {
            if !is_own(ahead) {
                let Some(found) = SlotTable::<N, WAYS>::locate(self.table.bucket_of(self.place), self.place)
                else {
                    return Peeked::Undecided;
                };
                (slot, seen) = found;
                ahead = distance(seen, self.idle);
            }
            if is_own_and_behind(ahead) {
                ahead = 0;
            } else if ahead > self.table.horizon {
                return Peeked::Undecided;
            }
        }
        if !self.table.newest.is_near(self.at.now_ns) {
            return Peeked::Undecided;
        }
        self.ahead = ahead;
        self.verdict = self.word.judge(ahead, self.at.now_ns, self.cost);
        (self.slot, self.seen) = (Some(slot), seen);
        Peeked::Decided
    }

    #[inline(always)]
    fn outcome(&self) -> Outcome {
        self.verdict.outcome()
    }

    #[inline(always)]
    fn exchange(&self) -> Exchange {
        let (Some(slot), Verdict::Admit(after)) = (self.slot, self.verdict) else {
            return Exchange::Lost;
        };
        // Only a cost of zero leaves the state unchanged.
        if self.cost == 0 {
            return Exchange::Done;
        }
        // Ordering: as in `check`.
        slot.compare_exchange(self.seen, self.next(after), AcqRel, Relaxed).into()
    }

    #[cfg(feature = "std")]
    #[inline(always)]
    fn into_word<'s>(self, _pins: &'s Pins) -> Option<WordTicket<'s>>
    where
        Self: 's,
    {
        match (self.slot, self.verdict) {
            (Some(slot), Verdict::Admit(after)) if self.cost > 0 => {
                Some(WordTicket::new(slot, self.seen, self.next(after)))
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn charged(&self) -> Decision {
        match self.verdict {
            Verdict::Admit(after) if self.cost > 0 => {
                self.word.decision(Outcome::Allowed, after, self.at, self.cost)
            }
            _ => self.uncharged(),
        }
    }

    #[inline(always)]
    fn uncharged(&self) -> Decision {
        self.word.uncharged(self.outcome(), self.ahead, self.at, self.cost)
    }
}
