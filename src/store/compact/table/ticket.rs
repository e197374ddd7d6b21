//! A check in two parts: a look, and the exchange that charges. For several limits on one request.

use super::{SlotAddress, SlotTable};
use crate::algorithm::compact::slot::{SlotWord, distance, is_behind};
use crate::algorithm::compact::{CompactState, STATE_BITS, Verdict};
use crate::base::decision::{Decision, Outcome};
use crate::base::sync::AtomicU64;
use crate::base::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::store::op::{Exchange, Ticket};

/// A check that is decided and not charged yet.
#[derive(Copy, Clone, Debug)]
pub struct SlotTicket<'t, N> {
    word: &'t N,
    /// The key's slot, its word, and the word that an idle key would have; `None` if one exchange may not do.
    found: Option<(&'t AtomicU64, u64, u64)>,
    at: Standing,
    verdict: Verdict,
    cost: u64,
}

/// How far ahead a key's state is, of which time and its reference.
#[derive(Copy, Clone, Debug)]
struct Standing {
    ahead: u64,
    now_ns: u64,
    reference: u64,
}

impl<N: CompactState, const WAYS: usize> SlotTable<N, WAYS> {
    /// Decides as [`SlotTable::check`], and leaves the charge to the ticket.
    #[inline(always)]
    pub(in crate::store::compact) fn prepare<'t>(
        &'t self,
        word: &'t N,
        place: SlotAddress,
        now_ns: u64,
        cost: u64,
    ) -> SlotTicket<'t, N> {
        let reference = word.reference(now_ns);
        let (found, at) = match self.look(place, now_ns, reference) {
            Some((found, ahead)) => (Some(found), Standing { ahead, now_ns, reference }),
            None => {
                // Field by field: what is returned in memory would stay there, that of the fast path too.
                let Standing { ahead, now_ns, reference } = self.look_slowly(word, place, now_ns);
                (None, Standing { ahead, now_ns, reference })
            }
        };
        SlotTicket { word, found, at, verdict: word.judge(at.ahead, at.now_ns, cost), cost }
    }

    /// The key's slot, its word, and the word that an idle key would have; and how far ahead it is. `None` if the key is not at
    /// home, or has to raise the newest time before it is charged, or is too far behind the word.
    #[inline(always)]
    fn look(&self, place: SlotAddress, now_ns: u64, reference: u64) -> Option<((&AtomicU64, u64, u64), u64)> {
        let slots = self.bucket_of(place);
        let slot = &slots[place.home::<WAYS>()];
        // Ordering: as in `locate`.
        let (seen, idle) = (slot.load(Acquire), place.word(reference));
        let (slot, seen, distance) = match distance(seen, idle) {
            Some(distance) => (slot, seen, distance),
            None => {
                let (slot, seen) = Self::locate(slots, place)?;
                (slot, seen, distance(seen, idle)?)
            }
        };
        let ahead = if is_behind::<STATE_BITS>(distance) { 0 } else { distance };
        if ahead > self.horizon {
            return None;
        }
        self.newest.is_near(now_ns).then_some(((slot, seen, idle), ahead))
    }

    /// Not to be charged by one exchange: left to [`SlotTable::apply`].
    #[cold]
    #[inline(never)]
    fn look_slowly(&self, word: &N, place: SlotAddress, now_ns: u64) -> Standing {
        self.retry(word, now_ns, |at| {
            let ahead = self.owed(word, place, at)?;
            Ok(Standing { ahead, now_ns: at.now_ns, reference: at.reference })
        })
    }
}

impl<N: CompactState> Ticket for SlotTicket<'_, N> {
    #[inline(always)]
    fn outcome(&self) -> Outcome {
        self.verdict.outcome()
    }

    #[inline(always)]
    fn exchange(&self) -> Exchange {
        let (Some((slot, seen, idle)), Verdict::Admit(after)) = (self.found, self.verdict) else {
            return Exchange::Lost;
        };
        // No other cost leaves the state as it is.
        if self.cost == 0 {
            return Exchange::Done;
        }
        let from = if self.at.ahead == 0 { idle } else { seen };
        let next = from.wrapping_add(SlotWord::pack(0, after.wrapping_sub(self.at.ahead)));
        // Ordering: as in `check`.
        slot.compare_exchange(seen, next, AcqRel, Relaxed).into()
    }

    #[inline(always)]
    fn charged(&self) -> Decision {
        match self.verdict {
            Verdict::Admit(after) if self.cost > 0 => {
                let Standing { now_ns, reference, .. } = self.at;
                self.word.decision(Outcome::Allowed, after, (now_ns, reference), self.cost)
            }
            _ => self.uncharged(),
        }
    }

    #[inline(always)]
    fn uncharged(&self) -> Decision {
        let Standing { ahead, now_ns, reference } = self.at;
        self.word.uncharged(self.outcome(), ahead, (now_ns, reference), self.cost)
    }
}
