//! Changes of a key's debt other than checks: debts carried over from another table, refunds and resets.

use super::times::MOST_AHEAD;
use super::{Again, FoundSlot, Full, PendingInsert, SlotAddress, SlotTable};
use crate::algorithm::compact::{CompactState, Moved, Verdict};
use crate::algorithm::step::Refund;
use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Outcome};
use crate::base::sync::Ordering::{AcqRel, Relaxed};
use crate::store::op::Debt;

impl<N: CompactState, const WAYS: usize> SlotTable<N, WAYS> {
    /// Inserts a key that has no slot, with a debt.
    ///
    /// Does nothing if these units are paid by now, or if the key already owes as much or more.
    pub(in crate::store::compact) fn seed(&self, word: &N, hash: u64, time: CheckTime, debt: Debt) {
        let place = self.place(hash);
        self.retry(word, time.ns(), |at| {
            let FoundSlot::Absent { slot, word: seen, ahead } = self.find(word, place, at)? else {
                return Ok(());
            };
            let started = self.debt(word, place, ahead, at);
            let Some(left) = self.times().seeded(word, debt, started, at) else { return Ok(()) };
            let newcomer =
                PendingInsert { place, next: place.word(at.reference.wrapping_add(left)), started };
            self.insert(word, newcomer, (slot, seen, ahead), at)
        });
    }

    /// Starts the block of a request that was denied, if the words have blocks. Returns the denial afterwards.
    #[inline(always)]
    pub(in crate::store::compact) fn block(
        &self,
        word: &N,
        place: SlotAddress,
        now_ns: u64,
        denial: Decision,
    ) -> Decision {
        if !N::BLOCKS || denial.outcome() != Outcome::Denied || denial.is_block() {
            return denial;
        }
        self.retry(word, now_ns, |at| {
            // An absent key has no debt, so it was forgotten after the denial. A request that fits by now was denied
            // before a refund or a reset.
            let FoundSlot::Here { slot, word: seen, ahead } = self.find(word, place, at)? else {
                return Ok(denial);
            };
            if word.judge(ahead, at.now_ns, denial.cost()) != Verdict::Deny {
                return Ok(denial);
            }
            let blocked = word.block(ahead);
            if let Some(after) = blocked {
                self.announce(word, at)?;
                let next = place.word(at.reference.wrapping_add(after));
                // Ordering: as in `check`.
                let slot = &self.bucket_of(place)[slot];
                slot.compare_exchange(seen, next, AcqRel, Relaxed).map_err(|_| Again::Lost)?;
            }
            let ahead = blocked.unwrap_or(ahead);
            Ok(word.uncharged(Outcome::Denied, ahead, at.moment(), denial.cost()))
        })
    }

    /// Blocks a key for this number of nanoseconds, if the words have blocks. Returns whether they have.
    pub(in crate::store::compact) fn block_for(
        &self,
        word: &N,
        hash: u64,
        time: CheckTime,
        block_ns: u64,
    ) -> bool {
        let place = self.place(hash);
        N::BLOCKS
            && self.retry(word, time.ns(), |at| {
                let found = self.find(word, place, at)?;
                let owed = match &found {
                    FoundSlot::Here { ahead, .. } => *ahead,
                    FoundSlot::Absent { ahead, .. } => self.debt(word, place, *ahead, at),
                };
                let Some(after) = word.block_for(owed, block_ns) else { return Ok(false) };
                self.announce(word, at)?;
                let next = place.word(at.reference.wrapping_add(after));
                match found {
                    FoundSlot::Here { slot, word: seen, .. } => {
                        let slot = &self.bucket_of(place)[slot];
                        // Ordering: as in `check`.
                        slot.compare_exchange(seen, next, AcqRel, Relaxed).map_err(|_| Again::Lost)?;
                    }
                    FoundSlot::Absent { slot, word: seen, ahead } => {
                        let newcomer = PendingInsert { place, next, started: owed };
                        self.insert(word, newcomer, (slot, seen, ahead), at)?;
                    }
                }
                Ok(true)
            })
    }

    /// Whether the table can refund charges.
    ///
    /// It cannot under `Inherit`: there a new key does not look again after its insertion, so words must only grow.
    pub(in crate::store::compact) const fn can_refund(&self) -> bool {
        !matches!(self.full, Full::Inherit)
    }

    /// Takes back up to `units` of a charge, as far as they are still owed. Without a charge, takes back up to `units` of
    /// what the key owes. The key must be in a slot, and in no other place.
    ///
    /// Returns the number of units taken back.
    pub(in crate::store::compact) fn refund(
        &self,
        word: &N,
        place: SlotAddress,
        time: CheckTime,
        charge: Option<&Decision>,
        units: u64,
    ) -> u64 {
        if !self.can_refund() {
            return 0;
        }
        self.retry(word, time.ns(), |at| {
            let FoundSlot::Here { slot, word: seen, ahead } = self.find(word, place, at)? else {
                return Ok(0);
            };
            let refund = Refund { charge, units, now_ns: at.now_ns };
            let Some(Moved { ahead, units }) = word.refund(ahead, at.reference, &refund) else {
                return Ok(0);
            };
            let next = place.word(at.reference.wrapping_add(ahead));
            // The thread that inserted the key may be about to retreat: see the module docs.
            if !self.is_sole_slot(word, PendingInsert { place, next, started: 0 }, slot, at) {
                return Ok(0);
            }
            self.announce(word, at)?;
            // Ordering: as in `check`.
            let slot = &self.bucket_of(place)[slot];
            slot.compare_exchange(seen, next, AcqRel, Relaxed).map_err(|_| Again::Lost)?;
            Ok(units)
        })
    }

    /// Clears the debt of a key. Returns whether it owed anything.
    pub(in crate::store::compact) fn reset(&self, word: &N, hash: u64, time: CheckTime) -> bool {
        let place = self.place(hash);
        self.retry(word, time.ns(), |at| {
            // So far behind that the word is idle even for callers whose times lag.
            let next = place.word(at.reference.wrapping_sub(MOST_AHEAD));
            match self.find(word, place, at)? {
                FoundSlot::Here { slot, word: seen, ahead } => {
                    if seen != next {
                        let slot = &self.bucket_of(place)[slot];
                        // Ordering: as in `check`.
                        slot.compare_exchange(seen, next, AcqRel, Relaxed).map_err(|_| Again::Lost)?;
                    }
                    Ok(ahead > 0)
                }
                FoundSlot::Absent { slot, word: seen, ahead } => {
                    // Under `Inherit`, the debt belongs to another key. Under `Forget`, there is no debt.
                    let Full::Spill(_) = &self.full else {
                        return Ok(false);
                    };
                    let debt = self.debt(word, place, ahead, at);
                    if debt > 0 {
                        let newcomer = PendingInsert { place, next, started: debt };
                        self.insert(word, newcomer, (slot, seen, ahead), at)?;
                    }
                    Ok(debt > 0)
                }
            }
        })
    }
}
