//! A check in two parts: a look, and the exchange that charges. For several limits on one request.

use super::{SlotAddress, SlotTable};
use crate::algorithm::compact::slot::{SlotStanding, SlotWord, standing};
use crate::algorithm::compact::{CompactState, STATE_BITS, Verdict};
use crate::base::decision::{Decision, Outcome};
use crate::base::sync::AtomicU64;
use crate::base::sync::Ordering::{AcqRel, Relaxed};
use crate::store::op::{Exchange, Ticket};

/// A check that is decided and not charged yet.
#[derive(Copy, Clone, Debug)]
pub struct SlotTicket<'t, N> {
    // Apart from the look, which `look_slowly` returns in memory, so that these stay in registers.
    word: &'t N,
    now_ns: u64,
    cost: u64,
    look: Look<'t>,
}

/// What was decided, and on what.
#[derive(Copy, Clone, Debug)]
struct Look<'t> {
    verdict: Verdict,
    /// The key's slot and word; `None` if it was not found at the first look.
    found: Option<(&'t AtomicU64, u64)>,
    fingerprint: u64,
    /// How far ahead the state is, of a reference, and the state that this is added to.
    ahead: u64,
    reference: u64,
    from: u64,
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
        SlotTicket { word, now_ns, cost, look: self.look(word, place, now_ns, cost) }
    }

    #[inline(always)]
    fn look(&self, word: &N, place: SlotAddress, now_ns: u64, cost: u64) -> Look<'_> {
        let reference = word.reference(now_ns);
        let slots = self.bucket_of(place);
        if let Some((slot, seen)) = Self::locate(slots, place) {
            let (ahead, from) = match standing::<STATE_BITS>(seen, reference, self.horizon) {
                SlotStanding::Ahead(ahead) => (ahead, seen),
                SlotStanding::Idle => (0, reference),
                SlotStanding::Unsure(_) => return self.look_slowly(word, place, now_ns, cost),
            };
            // It has to raise the newest time before it is charged, or is too far behind the word.
            if !self.newest.is_near(now_ns) {
                return self.look_slowly(word, place, now_ns, cost);
            }
            let verdict = word.judge(ahead, now_ns, cost);
            let found = Some((slot, seen));
            return Look { verdict, found, fingerprint: place.fingerprint(), ahead, reference, from };
        }
        self.look_slowly(word, place, now_ns, cost)
    }

    /// Not to be charged by one exchange: left to [`SlotTable::apply`].
    #[cold]
    #[inline(never)]
    fn look_slowly(&self, word: &N, place: SlotAddress, now_ns: u64, cost: u64) -> Look<'_> {
        self.retry(word, now_ns, |at| {
            let ahead = self.owed(word, place, at)?;
            let (verdict, fingerprint) = (word.judge(ahead, at.now_ns, cost), place.fingerprint());
            let reference = at.reference;
            Ok(Look { verdict, found: None, fingerprint, ahead, reference, from: reference })
        })
    }
}

impl<N: CompactState> Ticket for SlotTicket<'_, N> {
    #[inline(always)]
    fn outcome(&self) -> Outcome {
        self.look.verdict.outcome()
    }

    #[inline(always)]
    fn exchange(&self) -> Exchange {
        let Look { verdict, found, fingerprint, ahead, from, .. } = self.look;
        let (Some((slot, seen)), Verdict::Admit(after)) = (found, verdict) else {
            return Exchange::Lost;
        };
        if after == ahead {
            return Exchange::Done;
        }
        let next = SlotWord::pack(fingerprint, from.wrapping_add(after.wrapping_sub(ahead)));
        // Ordering: as in `check`.
        slot.compare_exchange(seen, next, AcqRel, Relaxed).into()
    }

    #[inline(always)]
    fn charged(&self) -> Decision {
        let after = match self.look.verdict {
            Verdict::Admit(after) => after,
            Verdict::Deny | Verdict::Never => self.look.ahead,
        };
        if after == self.look.ahead {
            return self.uncharged();
        }
        self.word.decision(self.outcome(), after, (self.now_ns, self.look.reference), self.cost)
    }

    #[inline(always)]
    fn uncharged(&self) -> Decision {
        let at = (self.now_ns, self.look.reference);
        self.word.uncharged(self.outcome(), self.look.ahead, at, self.cost)
    }
}
