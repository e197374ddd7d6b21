//! A check in two parts: a look, and the exchange that charges. For several limits on one request.

use super::{Place, Table};
use crate::algorithm::compact::slot::{Standing, Word, standing};
use crate::algorithm::compact::{CompactState, STATE_BITS, Verdict};
use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Outcome};
use crate::base::sync::AtomicU64;
use crate::base::sync::Ordering::{AcqRel, Relaxed};

/// A check that is decided and not charged yet.
#[derive(Copy, Clone, Debug)]
pub struct Ticket<'t> {
    verdict: Verdict,
    /// The key's slot and word; `None` if it was not found at the first look.
    found: Option<(&'t AtomicU64, u64)>,
    fingerprint: u64,
    /// How far ahead the state is, of a reference, and the state that this is added to.
    ahead: u64,
    reference: u64,
    from: u64,
}

impl Ticket<'_> {
    #[inline(always)]
    pub(in crate::store::compact) const fn outcome(&self) -> Outcome {
        self.verdict.outcome()
    }
}

impl<N: CompactState, const WAYS: usize> Table<N, WAYS> {
    /// Decides as [`Table::charge_as_of`], and leaves the charge to [`Table::exchange`].
    #[inline(always)]
    pub(in crate::store::compact) fn prepare(
        &self,
        word: &N,
        place: Place,
        time: CheckTime,
        cost: u64,
    ) -> Ticket<'_> {
        let now_ns = time.ns();
        let reference = word.reference(now_ns);
        let slots = self.bucket(place.bucket);
        if let Some((slot, seen)) = Self::locate(slots, place) {
            let (ahead, from) = match standing::<STATE_BITS>(seen, reference, self.horizon) {
                Standing::Ahead(ahead) => (ahead, seen),
                Standing::Idle => (0, reference),
                Standing::Unsure(_) => return self.prepare_slowly(word, place, now_ns, cost),
            };
            // It has to raise the newest time before it is charged, or is too far behind the word.
            if !self.newest.is_near(now_ns) {
                return self.prepare_slowly(word, place, now_ns, cost);
            }
            let verdict = word.judge(ahead, now_ns, cost);
            let found = Some((slot, seen));
            return Ticket { verdict, found, fingerprint: place.fingerprint, ahead, reference, from };
        }
        self.prepare_slowly(word, place, now_ns, cost)
    }

    /// Not to be charged by one exchange: left to [`Table::act`].
    #[cold]
    #[inline(never)]
    fn prepare_slowly(&self, word: &N, place: Place, now_ns: u64, cost: u64) -> Ticket<'_> {
        self.until_done(word, now_ns, |at| {
            let ahead = self.owed(word, place, at)?;
            let (verdict, fingerprint) = (word.judge(ahead, at.now_ns, cost), place.fingerprint);
            let reference = at.reference;
            Ok(Ticket { verdict, found: None, fingerprint, ahead, reference, from: reference })
        })
    }

    /// Charges what was prepared, if nothing has changed since.
    #[inline(always)]
    pub(in crate::store::compact) fn exchange(ticket: &Ticket<'_>) -> bool {
        let &Ticket { verdict, found, fingerprint, ahead, from, .. } = ticket;
        let (Some((slot, seen)), Verdict::Admit(after)) = (found, verdict) else {
            return false;
        };
        if after == ahead {
            return true;
        }
        let next = Word::pack(fingerprint, from.wrapping_add(after.wrapping_sub(ahead)));
        // Ordering: as in `charge_as_of`.
        slot.compare_exchange(seen, next, AcqRel, Relaxed).is_ok()
    }

    /// The answer once that was done.
    #[inline(always)]
    pub(in crate::store::compact) fn charged(
        &self,
        word: &N,
        now_ns: u64,
        ticket: &Ticket<'_>,
        cost: u64,
    ) -> Decision {
        let after = match ticket.verdict {
            Verdict::Admit(after) => after,
            Verdict::Deny | Verdict::Never => ticket.ahead,
        };
        let charged = after != ticket.ahead;
        word.decision(ticket.outcome(), after, charged, (now_ns, ticket.reference), cost)
    }

    /// The answer if it is not done.
    #[inline(always)]
    pub(in crate::store::compact) fn uncharged(
        &self,
        word: &N,
        now_ns: u64,
        ticket: &Ticket<'_>,
        cost: u64,
    ) -> Decision {
        word.decision(ticket.outcome(), ticket.ahead, false, (now_ns, ticket.reference), cost)
    }
}
