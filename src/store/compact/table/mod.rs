//! Buckets of slots.
//!
//! ```text
//! word = [ state | fingerprint ]     state: the time when the key's debt is paid
//! ```
//! A word is *ahead* by its unpaid debt, and *idle* if its debt is paid.
//!
//! The top bits of a hash choose the one bucket of a key. The hash also chooses a *home* slot in that bucket. A search
//! visits all slots of the bucket in an order that depends on the home only ([`SlotAddress::nth`]). A check works in
//! these steps:
//!
//! 1. Search the bucket for the fingerprint.
//! 2. If the key is found, exchange its word for a word that is further ahead.
//! 3. If the key is not found, take the slot that is least ahead. If several slots are equal, take the first of them in
//!    the order of the search.
//!
//! # No key in two slots
//! A new key takes the slot that is *least ahead*, not *the first idle slot*. Whether a slot is idle depends on the
//! time, and two threads read different times.
//!
//! Assume that words only grow. Threads T1 and T2 both insert key x, into slots m and m', and neither has seen x.
//!
//! 1. T2 read m before T1 wrote it, and T1 read m' before T2 wrote it. So T2's value of m is at most T1's value, and
//!    T1's value of m' is at most T2's value.
//! 2. By the rule, T1's value of m is at most T1's value of m', and T2's value of m' is at most T2's value of m.
//! 3. Together: T1's m <= T1's m' <= T2's m' <= T2's m <= T1's m. So all four values are equal.
//! 4. Then the order of the search decides, and this order is the same for both threads. So m is before m' and m' is
//!    before m.
//! 5. So both threads took the same slot, and one exchange failed.
//!
//! The times of the threads do not matter, because a thread compares a state only with other states. An empty slot is
//! behind all states. So a search that has found an empty slot need not compare the slots after it: it only checks
//! whether one of them holds the key.
//!
//! There is one exception. If a word is half the range old, it can wrap around between the two clock readings. One
//! thread then sees it as far behind, and the other treats it as empty. Then both threads may insert the key, into
//! different slots. See `tests/stores/exhaustive/bucket.rs`.
//!
//! # Words that shrink
//! Under [`Full::Inherit`], a new key starts from the word that it replaces. So words only grow, and the proof above
//! holds.
//!
//! Under `Spill` and `Forget`, a smaller word replaces a live word when a bucket overflows. If this happens between the
//! reads of two threads, the threads may choose different slots. So under these policies a new key looks again after
//! its insertion:
//!
//! 1. It checks whether another slot holds its key, and whether the sketch has a larger debt than it began with.
//! 2. If either is true, it *retreats*: it exchanges its own word for an empty one, and decides again.
//!
//! Both threads write and then look, with a fence in between, so at least one sees the other. Two threads are never
//! both admitted wrongly (modelled). With three threads there is a gap: the retreat fails if a third thread has charged
//! the slot in the meantime. Then both slots stay. The key has a second budget until the slot that a search finds
//! second is evicted or idle. The store counts this ([`Gauges::raced`]).
//!
//! # Debts are never lost on the way
//! Under `Spill`, the debt of a live word is in the sketch before the word is replaced. A new key reads the sketch
//! after it has seen that its key is absent. So a thread that sees that the key is gone also sees its debt.
//!
//! # Words that come back
//! A refund lowers a word. So a word can return to an earlier value, and an exchange can succeed although the word
//! changed in between. This is correct:
//!
//! - A thread that charges the word of its key charges exactly the state that it saw.
//! - A thread that evicts a key has recorded exactly the debt that the key has again.
//! - A thread that inserted a key looks again afterwards. It then finds the key in another slot, or a larger debt in
//!   the sketch, if either has appeared in the meantime. Under `Inherit` the thread does not look again, but this
//!   policy allows no refunds.
//!
//! *When a refund is rejected.* A new key that retreats expects its own word, unchanged by a refund. So a key gets no
//! refund if it is in two slots, or if the sketch has a debt for it. The refunding thread always sees the insert into
//! the other slot, or the spilled debt. (The gap of three threads remains.) For the same reason, a key gets no
//! refund if it returned before its spilled debt was paid. A refund would not lower the debt in the sketch anyway.

#[cfg(all(test, tollgate_loom))]
mod models;

mod address;
mod change;
#[cfg(feature = "std")]
mod first_keys;
mod image;
mod operation;
mod ticket;
mod times;

pub(super) use self::address::SlotAddress;
#[cfg(feature = "std")]
pub(crate) use self::first_keys::{FirstKeys, NeedsTable};
pub(super) use self::image::Image;
use self::operation::{is_forced, judge};
pub(super) use self::ticket::SlotTicket;
use self::times::retry;
use alloc::boxed::Box;

use super::gauges::{GaugeCounters, Gauges, count};
use super::spill::{Identity, Spill};
use crate::algorithm::compact::slot::{EMPTY, SlotWord, order};
use crate::algorithm::compact::{CompactState, Moment, STATE_BITS, Verdict};
use crate::base::check_time::{CheckTime, Newest};
use crate::base::decision::{Decision, Outcome};
use crate::base::memory::prefetch::prefetch;
use crate::base::memory::{Array, Zeroed};
use crate::base::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::base::sync::{AtomicU64, fence_after_rmw};
use crate::sketch::hash::scale;
use crate::store::op::{Operation, Peeked, Ticket as _};

/// The overflow policy for a bucket whose keys all owe.
#[derive(Debug)]
pub(super) enum Full {
    Spill(Box<Spill>),
    Forget,
    Inherit,
}

/// A table of slots. See the module docs.
#[derive(Debug)]
pub(super) struct SlotTable<N, const WAYS: usize> {
    buckets: Array<[AtomicU64; WAYS]>,
    /// How far ahead a state can be at most.
    horizon: u64,
    full: Full,
    counters: GaugeCounters,
    newest: Newest,
    states: core::marker::PhantomData<N>,
}

/// The time at which a call decides.
#[derive(Copy, Clone, Debug)]
struct DecisionTime {
    /// The caller's time.
    own_ns: u64,
    /// The time of the decision: the caller's time, or a later one.
    now_ns: u64,
    reference: u64,
    /// Whether the call charges nothing, whatever it decides.
    peeks: bool,
}

impl DecisionTime {
    fn new<N: CompactState>(word: &N, now_ns: u64) -> Self {
        Self { own_ns: now_ns, now_ns, reference: word.reference(now_ns), peeks: false }
    }

    const fn moment(&self) -> Moment {
        Moment { now_ns: self.now_ns, reference: self.reference }
    }
}

/// The reason why a check begins again.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Again {
    /// Another thread's write took effect.
    Lost,
    /// The check must be decided as of this later time, in nanoseconds.
    AsOf(u64),
}

/// A key during its insertion: its word, and the debt that it started with.
#[derive(Copy, Clone, Debug)]
struct PendingInsert {
    place: SlotAddress,
    next: u64,
    started: u64,
}

/// The result of a search for a key in its bucket.
#[derive(Copy, Clone, Debug)]
enum FoundSlot {
    /// The slot and word of the key, and how far ahead the word is.
    Here { slot: usize, word: u64, ahead: u64 },
    /// The slot that is least ahead, its word, and how far ahead the word is.
    Absent { slot: usize, word: u64, ahead: u64 },
}

impl<N: CompactState, const WAYS: usize> SlotTable<N, WAYS> {
    /// A table of empty slots, or `None` if the memory cannot be allocated.
    pub(super) fn new(buckets: usize, horizon: u64, full: Full, newest: Newest) -> Option<Self> {
        const { assert!(WAYS.is_power_of_two(), "slots in a bucket are found by masking") };
        Some(Self {
            buckets: Array::zeroed(buckets)?,
            horizon,
            full,
            counters: GaugeCounters::new(),
            newest,
            states: core::marker::PhantomData,
        })
    }

    /// The address for a hash.
    #[inline(always)]
    #[expect(clippy::unused_self, reason = "an address belongs to a table")]
    pub(super) const fn place(&self, hash: u64) -> SlotAddress {
        SlotAddress::new(hash)
    }

    /// The slots in the bucket of a key.
    #[inline(always)]
    fn bucket_of(&self, place: SlotAddress) -> &[AtomicU64; WAYS] {
        self.buckets.scaled(place.hash())
    }

    /// The number of the bucket of a key.
    fn number_of(&self, place: SlotAddress) -> usize {
        scale(place.hash(), self.buckets.len())
    }

    fn bucket(&self, bucket: usize) -> &[AtomicU64; WAYS] {
        &self.buckets[bucket]
    }

    /// All slots, in order.
    fn slots(&self) -> impl Iterator<Item = &AtomicU64> {
        self.buckets.iter().flatten()
    }

    fn len(&self) -> usize {
        self.buckets.len() * WAYS
    }

    /// Prefetches the cache line of a key.
    #[inline(always)]
    pub(super) fn prefetch(&self, place: SlotAddress) {
        prefetch(&raw const self.bucket_of(place)[place.home::<WAYS>()]);
    }

    /// Decides `cost` units at a time, and charges them if they are admitted.
    ///
    /// Lock-free: a check begins again only if another thread's write took effect. A denial writes nothing, with one
    /// exception: a denial because of the debt that a new key began with is counted.
    // Always inlined: see `KeyState::charge`.
    #[inline(always)]
    pub(super) fn check(&self, word: &N, place: SlotAddress, at: Moment, cost: u64) -> Decision {
        match self.check_at_home(word, place, at, cost) {
            Some(decision) => decision,
            None => self.check_elsewhere(word, place, at.now_ns, cost),
        }
    }

    /// [`SlotTable::check`] for a key in its home slot. `None` leaves the check to [`SlotTable::check_elsewhere`].
    #[inline(always)]
    pub(super) fn check_at_home(
        &self,
        word: &N,
        place: SlotAddress,
        at: Moment,
        cost: u64,
    ) -> Option<Decision> {
        let slot = &self.bucket_of(place)[place.home::<WAYS>()];
        // Ordering: as in `locate`.
        let seen = slot.load(Acquire);
        self.check_slot(word, place, (slot, seen), at, cost)
    }

    /// [`SlotTable::check`] for one slot and its word.
    #[inline(always)]
    fn check_slot(
        &self,
        word: &N,
        place: SlotAddress,
        (slot, seen): (&AtomicU64, u64),
        at: Moment,
        cost: u64,
    ) -> Option<Decision> {
        self.times().check_slot(word, place, (slot, seen), at, cost)
    }

    /// Returns the slot and word of the key. If there are two, returns the one nearest to its home.
    #[inline(never)]
    fn locate(slots: &[AtomicU64; WAYS], place: SlotAddress) -> Option<(&AtomicU64, u64)> {
        // Ordering: Acquire. The bounds of `newest` are read after the word, and the writer of the word raised them
        // before.
        for step in 0..WAYS {
            let slot = &slots[place.nth::<WAYS>(step)];
            let seen = slot.load(Acquire);
            if place.owns(seen) {
                return Some((slot, seen));
            }
        }
        None
    }

    /// [`SlotTable::check`] for a key that is not in its home slot, or that takes more than one exchange. A separate
    /// function, so that the inlined code at each call is short.
    #[inline(never)]
    pub(super) fn check_elsewhere(&self, word: &N, place: SlotAddress, now_ns: u64, cost: u64) -> Decision {
        let (slots, at) = (self.bucket_of(place), word.moment(now_ns));
        for step in 0..WAYS {
            let slot = &slots[place.nth::<WAYS>(step)];
            // Ordering: as in `locate`.
            let seen = slot.load(Acquire);
            if place.owns(seen) {
                if let Some(decision) = self.check_slot(word, place, (slot, seen), at, cost) {
                    return decision;
                }
                break;
            }
            // A new key takes the first empty slot, so a key is rarely in a slot after an empty one.
            if seen == EMPTY {
                break;
            }
        }
        self.charge_slowly(word, place, now_ns, cost)
    }

    /// A check that lost an exchange, did not find its key, found a state too far ahead, or must raise the newest time.
    #[cold]
    #[inline(never)]
    fn charge_slowly(&self, word: &N, place: SlotAddress, now_ns: u64, cost: u64) -> Decision {
        let decided =
            self.decide(word, place, now_ns, |ahead, at| (word.judge(ahead, at.now_ns, cost), cost));
        self.block(word, place, now_ns, decided)
    }

    /// Decides and charges an operation.
    pub(super) fn apply(
        &self,
        word: &N,
        operation: Operation,
        place: SlotAddress,
        at: CheckTime,
        cost: u64,
    ) -> Decision {
        let decided = self.decide(word, place, at.ns(), |ahead, at| judge(word, operation, cost, ahead, at));
        if is_forced(operation, &decided) {
            return decided.forced();
        }
        let may_block = matches!(operation, Operation::Check | Operation::Take);
        if may_block { self.block(word, place, at.ns(), decided) } else { decided }
    }

    /// Decides by `judge`. It maps how far a state is ahead, and a time, to a verdict and a cost.
    fn decide(
        &self,
        word: &N,
        place: SlotAddress,
        now_ns: u64,
        judge: impl Fn(u64, Moment) -> (Verdict, u64),
    ) -> Decision {
        self.retry(word, now_ns, |at| {
            let found = self.find(word, place, at)?;
            let (slot, seen, started) = match found {
                FoundSlot::Here { slot, word, ahead } => (slot, word, ahead),
                FoundSlot::Absent { slot, word: seen, ahead } => {
                    (slot, seen, self.debt(word, place, ahead, at))
                }
            };
            let when = at.moment();
            let (verdict, cost) = judge(started, when);
            let refused = |outcome| word.uncharged(outcome, started, when, cost);
            match verdict {
                Verdict::Never => Ok(refused(Outcome::Never)),
                Verdict::Deny => {
                    if let FoundSlot::Absent { .. } = found
                        && started > 0
                        && let (Verdict::Admit(_), _) = judge(0, when)
                    {
                        count(&self.counters.stripe(self.number_of(place)).denied_for_debt);
                    }
                    Ok(refused(Outcome::Denied))
                }
                Verdict::Admit(after) if after == started => {
                    Ok(word.uncharged(Outcome::Allowed, started, when, cost))
                }
                Verdict::Admit(after) => {
                    self.announce(word, at)?;
                    let next = place.word(at.reference.wrapping_add(after));
                    match found {
                        FoundSlot::Here { .. } => {
                            let slot = &self.bucket_of(place)[slot];
                            // Ordering: as in `check`.
                            slot.compare_exchange(seen, next, AcqRel, Relaxed).map_err(|_| Again::Lost)?;
                        }
                        FoundSlot::Absent { ahead, .. } => {
                            let newcomer = PendingInsert { place, next, started };
                            self.insert(word, newcomer, (slot, seen, ahead), at)?;
                        }
                    }
                    Ok(word.decision(Outcome::Allowed, after, when, cost))
                }
            }
        })
    }

    /// Returns the decision that [`SlotTable::check`] would make now, with the current figures and without a charge.
    pub(super) fn peek(&self, word: &N, place: SlotAddress, time: CheckTime, cost: u64) -> Decision {
        // Most keys that a caller peeks at have a slot, and a ticket finds it as fast as a check does.
        let mut ticket = self.aim(word, place, time.ns(), cost);
        match ticket.peek() {
            Peeked::Decided => ticket.uncharged(),
            Peeked::Undecided => self.peek_elsewhere(word, place, time, cost),
        }
    }

    /// [`SlotTable::peek`] for a key without a slot, or for a time that is not near the newest one.
    #[inline(never)]
    fn peek_elsewhere(&self, word: &N, place: SlotAddress, time: CheckTime, cost: u64) -> Decision {
        let at = DecisionTime { peeks: true, ..DecisionTime::new(word, time.ns()) };
        retry(word, at, |at| {
            let ahead = self.owed(word, place, at)?;
            let outcome = word.judge(ahead, at.now_ns, cost).outcome();
            Ok(word.uncharged(outcome, ahead, at.moment(), cost))
        })
    }

    /// How far ahead the state of a key is, in its slot or elsewhere.
    fn owed(&self, word: &N, place: SlotAddress, at: &DecisionTime) -> Result<u64, Again> {
        Ok(match self.find(word, place, at)? {
            FoundSlot::Here { ahead, .. } => ahead,
            FoundSlot::Absent { ahead, .. } => self.debt(word, place, ahead, at),
        })
    }

    /// Repeats an attempt until it succeeds, as of a later time if necessary.
    fn retry<R>(&self, word: &N, now_ns: u64, attempt: impl FnMut(&DecisionTime) -> Result<R, Again>) -> R {
        retry(word, DecisionTime::new(word, now_ns), attempt)
    }

    /// See [`Times::ahead`](times::Times::ahead).
    #[inline]
    fn ahead(&self, word: &N, state: u64, at: &DecisionTime) -> Option<u64> {
        self.times().ahead(word, state, at)
    }

    /// Searches for a key. If the key is absent, finds the slot that is least ahead.
    fn find(&self, word: &N, place: SlotAddress, at: &DecisionTime) -> Result<FoundSlot, Again> {
        let slots = self.bucket_of(place);
        let horizon = self.horizon.cast_signed();
        // A word from an earlier round is idle.
        let here = |slot, seen| {
            let ahead = self.ahead(word, SlotWord::unpack(seen).state, at).unwrap_or(0);
            self.near(at).map(|()| FoundSlot::Here { slot, word: seen, ahead })
        };
        // The slot that is least ahead, and its word.
        let (mut least, mut slot, mut word_of_least) = (i64::MAX, 0, EMPTY);
        let mut steps = 0..WAYS;
        for step in &mut steps {
            let other = place.nth::<WAYS>(step);
            // Ordering: Acquire, as in `locate`. It also acquires the exchange that replaced the key's word, if the key
            // was here: its debt was written, and the time of its slot raised, before that exchange.
            let seen = slots[other].load(Acquire);
            if seen == EMPTY {
                if least > i64::MIN {
                    (least, slot, word_of_least) = (i64::MIN, other, EMPTY);
                }
                break;
            }
            if place.owns(seen) {
                return here(other, seen);
            }
            let state = SlotWord::unpack(seen).state;
            let mut order = order::<STATE_BITS>(state, at.reference);
            // From an earlier round: preferred to all other slots, like an empty slot.
            if order > horizon && self.ahead(word, state, at).is_none() {
                order = i64::MIN;
            }
            if order < least {
                (least, slot, word_of_least) = (order, other, seen);
            }
        }
        // No slot is preferred to the first empty slot, so the others matter only if one of them holds the key. A look at all slots
        // in the order of the memory takes half the instructions of one in the order of the search.
        // Ordering: as above.
        if !steps.is_empty() && slots.iter().any(|slot| place.owns(slot.load(Acquire))) {
            for step in steps {
                let other = place.nth::<WAYS>(step);
                // Ordering: as above.
                let seen = slots[other].load(Acquire);
                if place.owns(seen) {
                    return here(other, seen);
                }
            }
        }
        // From an earlier round, or behind: zero.
        let absent =
            FoundSlot::Absent { slot, word: word_of_least, ahead: u64::try_from(least).unwrap_or(0) };
        self.near(at)?;
        let stripe = self.counters.stripe(self.number_of(place));
        // The key may have been here, and may have been idle when another key took its slot. Then it begins no earlier
        // than the time when its debt was paid. A recorded time later than `high` is wrong, and is ignored.
        let mut from_ns = match stripe.replaced_ns.load(Acquire) {
            replaced_ns if replaced_ns <= self.newest.high() => replaced_ns,
            _ => 0,
        };
        if let Full::Spill(_) = self.full {
            // The sketch knows debts only as of the newest time. A debt that is paid by then may still be owed at an
            // earlier time.
            from_ns = from_ns.max(stripe.spilled_ns.load(Acquire).min(self.newest.newest()));
        }
        if from_ns > at.now_ns { Err(Again::AsOf(from_ns)) } else { Ok(absent) }
    }

    /// The debt with which an absent key begins. `least` is the smallest debt in its bucket.
    #[inline]
    fn debt(&self, word: &N, place: SlotAddress, least: u64, at: &DecisionTime) -> u64 {
        match &self.full {
            Full::Forget => 0,
            Full::Inherit => least,
            // If the spill holds no debt, no other word of the sketch is read.
            Full::Spill(spill) if !spill.is_used(at.reference) => 0,
            Full::Spill(spill) => self.spilled(spill, word, place, at),
        }
    }

    /// The debt that the sketch has for a key. A separate function, because most first checks find no debt in the sketch.
    #[inline(never)]
    fn spilled(&self, spill: &Spill, word: &N, place: SlotAddress, at: &DecisionTime) -> u64 {
        let later = self.later(word, at);
        let latest = || at.reference.wrapping_add(self.later(word, at));
        let key = Identity::new(self.number_of(place), place.fingerprint());
        match spill.debt(key, at.reference.wrapping_add(later), &latest) {
            0 => 0,
            debt => debt.saturating_add(later),
        }
    }

    /// Inserts a new key into a slot that held the word `seen`, which was `ahead` of now. See the module docs for the
    /// order of the steps.
    fn insert(
        &self,
        word: &N,
        newcomer: PendingInsert,
        (slot, seen, ahead): (usize, u64, u64),
        at: &DecisionTime,
    ) -> Result<(), Again> {
        let PendingInsert { place, next, started } = newcomer;
        let counters = self.counters.stripe(self.number_of(place));
        if let Full::Spill(spill) = &self.full
            && ahead > 0
        {
            let evicted = Identity::new(self.number_of(place), SlotWord::unpack(seen).fingerprint);
            let paid_ns = word.last_ns(at.now_ns.saturating_add(word.span_ns(ahead))).saturating_add(1);
            if counters.spilled_ns.load(Relaxed) < paid_ns {
                // Ordering: AcqRel: before the exchange that replaces the word.
                counters.spilled_ns.fetch_max(paid_ns, AcqRel);
            }
            let later = self.later(word, at);
            // A debt that is paid by the newest time needs no record.
            if let Some(left @ 1..) = ahead.checked_sub(later) {
                let latest = || at.reference.wrapping_add(self.later(word, at));
                spill.record(evicted, left, at.reference.wrapping_add(later), &latest);
            }
        }
        let order = order::<STATE_BITS>(SlotWord::unpack(seen).state, at.reference);
        if seen != EMPTY && ahead == 0 && order <= 0 {
            let paid_ns = at.now_ns.saturating_sub(word.span_ns(order.unsigned_abs()));
            self.replaces(counters, word.last_ns(paid_ns).saturating_add(1).min(at.now_ns));
        }
        let own = &self.bucket_of(place)[slot];
        // Ordering: AcqRel: a thread that sees that the evicted key is gone also sees its recorded debt.
        own.compare_exchange(seen, next, AcqRel, Relaxed).map_err(|_| Again::Lost)?;
        if ahead > 0 {
            count(&counters.evicted);
        }
        if !matches!(self.full, Full::Inherit) && !self.is_sole_slot(word, newcomer, slot, at) {
            count(&counters.retreats);
            // Ordering: AcqRel, as for a charge.
            if own.compare_exchange(next, EMPTY, AcqRel, Relaxed).is_ok() {
                return Err(Again::Lost);
            }
            count(&counters.raced);
        }
        if started > 0 {
            count(&counters.indebted);
        }
        Ok(())
    }

    /// Whether a key is in no other slot, and owes no more than it started with.
    fn is_sole_slot(&self, word: &N, newcomer: PendingInsert, own: usize, at: &DecisionTime) -> bool {
        let PendingInsert { place, started, .. } = newcomer;
        // If two threads insert one key, at least one of them sees the word of the other.
        fence_after_rmw();
        let slots = self.bucket_of(place);
        for step in 1..WAYS {
            // Ordering: Acquire: if the other word is already gone, its debt is visible.
            let seen = slots[(own + step) & (WAYS - 1)].load(Acquire);
            if place.owns(seen) {
                return false;
            }
        }
        match self.full {
            Full::Inherit | Full::Forget => true,
            Full::Spill(_) => self.debt(word, place, 0, at) <= started,
        }
    }

    /// Whether a key has a slot.
    pub(super) fn holds(&self, hash: u64) -> bool {
        let place = self.place(hash);
        Self::locate(self.bucket_of(place), place).is_some()
    }

    /// Forgets all states.
    pub(super) fn clear(&self) {
        self.buckets.iter().for_each(Zeroed::clear);
        if let Full::Spill(spill) = &self.full {
            spill.clear();
        }
        self.counters.forget_times();
        self.newest.clear();
    }

    pub(super) fn state_bytes(&self) -> usize {
        let spill = match &self.full {
            Full::Spill(spill) => spill.bytes(),
            Full::Forget | Full::Inherit => 0,
        };
        self.len() * size_of::<AtomicU64>() + spill
    }

    pub(super) fn gauges(&self) -> Gauges {
        self.counters.sum(self.len())
    }
}
