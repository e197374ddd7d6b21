//! Buckets of slots.
//!
//! A key has one bucket, by the top bits of its hash, and looks for its fingerprint there, beginning at a *home* slot
//! that its hash chooses too. Found: the word is exchanged for one further ahead. Not found: the newcomer takes the
//! slot that is least ahead, of equal ones the nearest to its home.
//!
//! # No key in two slots
//! *Least ahead*, and not *the first that is idle*, since whether a slot is idle depends on the time, which two threads
//! read differently. Let T1 and T2 both put key x in, into slots m and m', neither having seen x, and let words only grow.
//! T2 read m before T1 wrote it, and T1 read m' before T2 did: T2's m is at most T1's, and T1's m' at most T2's. By
//! the rule T1's m is at most T1's m', and T2's m' at most T2's m. So m <= m' <= m' <= m all around; all are equal,
//! and by the distance from home, which is the same for both, m is before m' and m' before m. So they took the same slot,
//! and one exchange failed. Each thread's time plays no part: states are compared with each other.
//!
//! (But a word that comes round between the two readings of the time, just half the range old, is behind to one thread and
//! as good as empty to the other: then both may go in. See `exhaustive::bucket`.)
//!
//! *Words that shrink.* Under [`Full::Inherit`] a newcomer starts from the word that it takes, so words only grow,
//! and the above holds. Under `Spill` and `Forget` a live word is replaced by a lesser one when a bucket overflows. If
//! that comes between two threads' readings, they may choose different slots after all. So there the newcomer looks again
//! once it is in: if another slot holds its key, or the sketch a larger debt than it began with, it *retreats* (exchanges
//! its own word for an empty one) and decides anew. Both write, then both look, with a fence in between, so at least
//! one sees the other. Two threads are never both admitted wrongly (modelled). With three there is a gap: the retreat fails if a third
//! has charged the slot meanwhile, and then both slots stay; the key has a second budget until the slot that it finds
//! second is evicted or idle. That is counted ([`Gauges::raced`]).
//!
//! # Debts are never lost on the way
//! Under `Spill` a live word's debt is in the sketch before the word is replaced, and a newcomer looks into the
//! sketch after it has seen its key absent: so who sees the key gone sees the debt.
//!
//! # Words that come back
//! A charge that is given back lowers a word, so a word can be seen twice with the same value, and an exchange succeed as if
//! nothing had been in between. That is as well. Whoever charges a key's own word charges the very state that it saw.
//! Whoever evicts it has recorded the debt that it has again. A newcomer looks again once it is in, and finds its key in
//! another slot, or a larger debt, if either came meanwhile; under `Inherit`, where it does not look, nothing is given back.
//!
//! But a newcomer that has looked and retreats must find its word as it was. So nothing is given back to a key that is in two
//! slots, or in one while the sketch says that it owes: what its thread has put in elsewhere, or has spilled, whoever gives
//! back a charge sees. That leaves the gap of three threads as it is. (And a key that came back before its debt was
//! paid gets nothing back. Its debt would stay in the sketch anyway.)

#[cfg(all(test, tollgate_loom))]
mod models;

mod address;
mod image;
mod ticket;
mod times;

pub(super) use self::address::SlotAddress;
pub(super) use self::image::Image;
pub(super) use self::ticket::SlotTicket;
use alloc::boxed::Box;

use super::gauges::{GaugeCounters, Gauges, count};
use super::spill::{Identity, Spill};
use crate::algorithm::compact::slot::{EMPTY, SlotStanding, SlotWord, distance, is_behind, order, standing};
use crate::algorithm::compact::{CompactState, Moved, STATE_BITS, Verdict};
use crate::algorithm::step::Refund;
use crate::base::check_time::{CheckTime, Newest};
use crate::base::decision::{Decision, Outcome};
use crate::base::memory::prefetch::prefetch;
use crate::base::memory::{Array, Zeroed};
use crate::base::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::base::sync::{AtomicU64, fence_after_rmw};
use crate::sketch::hash::scale;
use crate::store::op::Operation;

/// What happens in a bucket whose keys all owe.
#[derive(Debug)]
pub(super) enum Full {
    Spill(Box<Spill>),
    Forget,
    Inherit,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct SlotTable<N, const WAYS: usize> {
    buckets: Array<[AtomicU64; WAYS]>,
    /// How far ahead a state can be.
    horizon: u64,
    full: Full,
    counters: GaugeCounters,
    newest: Newest,
    states: core::marker::PhantomData<N>,
}

/// A time in a check, in states.
#[derive(Copy, Clone, Debug)]
struct Moment {
    /// The caller's time.
    own_ns: u64,
    /// The time that it is decided as of: the caller's, or a later one.
    now_ns: u64,
    reference: u64,
    /// Whether nothing is charged, whatever is decided.
    looks: bool,
}

impl Moment {
    fn new<N: CompactState>(word: &N, now_ns: u64) -> Self {
        Self { own_ns: now_ns, now_ns, reference: word.reference(now_ns), looks: false }
    }
}

/// Why a check begins again.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Again {
    /// Another thread's write took effect.
    Lost,
    /// The check is decided as of this later time, in nanoseconds.
    AsOf(u64),
}

/// A key that is being put in: its word, and the debt that it started with.
#[derive(Copy, Clone, Debug)]
struct PendingInsert {
    place: SlotAddress,
    next: u64,
    started: u64,
}

/// What a bucket holds of a key.
#[derive(Copy, Clone, Debug)]
enum FoundSlot {
    /// The key's slot and word, and how far ahead it is.
    Here { slot: usize, word: u64, ahead: u64 },
    /// The slot that is least ahead, its word, and how far ahead it is.
    Absent { slot: usize, word: u64, ahead: u64 },
}

impl<N: CompactState, const WAYS: usize> SlotTable<N, WAYS> {
    /// A table of empty slots, or `None` if no address space holds so many.
    pub(super) fn new(buckets: usize, horizon: u64, full: Full, newest: Newest) -> Option<Self> {
        const { assert!(WAYS.is_power_of_two(), "places in a bucket are found by masking") };
        Some(Self {
            buckets: Array::zeroed(buckets)?,
            horizon,
            full,
            counters: GaugeCounters::new(),
            newest,
            states: core::marker::PhantomData,
        })
    }

    /// Where the key of a hash belongs.
    #[inline(always)]
    #[expect(clippy::unused_self, reason = "it is this table's")]
    pub(super) const fn place(&self, hash: u64) -> SlotAddress {
        SlotAddress::new(hash)
    }

    /// The slots of a key's bucket.
    #[inline(always)]
    fn bucket_of(&self, place: SlotAddress) -> &[AtomicU64; WAYS] {
        self.buckets.scaled(place.hash())
    }

    /// The number of a key's bucket.
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

    /// Asks for a key's line.
    #[inline(always)]
    pub(super) fn prefetch(&self, place: SlotAddress) {
        prefetch(&raw const self.bucket_of(place)[place.home::<WAYS>()]);
    }

    /// Decides `cost` units at a time, in nanoseconds and its reference, and charges them if they are admitted.
    ///
    /// Lock-free: begins again only if another thread's write took effect. A denial writes nothing, unless it is for the
    /// debt that a newcomer began with, which is counted.
    // Always: see `KeyState::charge`.
    #[inline(always)]
    pub(super) fn check(
        &self,
        word: &N,
        place: SlotAddress,
        (now_ns, reference): (u64, u64),
        cost: u64,
    ) -> Decision {
        let slot = &self.bucket_of(place)[place.home::<WAYS>()];
        // Ordering: as in `locate`.
        let seen = slot.load(Acquire);
        if let Some(decision) = self.check_slot(word, place, (slot, seen), (now_ns, reference), cost) {
            return decision;
        }
        self.check_elsewhere(word, place, now_ns, cost)
    }

    /// [`SlotTable::check`] by a slot and its word. `None` if the word is another key's, or it takes more than one exchange.
    #[inline(always)]
    fn check_slot(
        &self,
        word: &N,
        place: SlotAddress,
        (slot, seen): (&AtomicU64, u64),
        (now_ns, reference): (u64, u64),
        cost: u64,
    ) -> Option<Decision> {
        // What is charged is added to the word as it was loaded, rather than to what it is ahead of the reference: the same, by
        // a shorter way from the load to the exchange, which all checks on a processor queue up for.
        let idle = place.word(reference);
        let distance = distance(seen, idle)?;
        // One comparison for the common case, and for a word that is just idle.
        let (ahead, from) = if distance <= self.horizon {
            (distance, seen)
        } else if is_behind::<STATE_BITS>(distance) {
            (0, idle)
        } else {
            return None;
        };
        let at = (now_ns, reference);
        match word.judge(ahead, now_ns, cost) {
            Verdict::Deny => Some(word.uncharged(Outcome::Denied, ahead, at, cost)),
            Verdict::Never => Some(word.uncharged(Outcome::Never, ahead, at, cost)),
            // No other cost leaves the state as it is.
            Verdict::Admit(_) if cost == 0 => Some(word.uncharged(Outcome::Allowed, ahead, at, cost)),
            Verdict::Admit(after) => {
                if !self.newest.is_near(now_ns) {
                    return None;
                }
                let next = from.wrapping_add(SlotWord::pack(0, after.wrapping_sub(ahead)));
                // Ordering: AcqRel: the argument above about two slots rests on each location's order and on there
                // being no cycle of loads that see later stores, which Relaxed would allow on paper.
                slot.compare_exchange(seen, next, AcqRel, Relaxed).ok()?;
                Some(word.decision(Outcome::Allowed, after, at, cost))
            }
        }
    }

    /// The key's slot and word, the nearest to its home if there are two.
    #[inline(never)]
    fn locate(slots: &[AtomicU64; WAYS], place: SlotAddress) -> Option<(&AtomicU64, u64)> {
        // Ordering: Acquire; the bounds of `newest` are read after the word, whose writer raised them before.
        for step in 0..WAYS {
            let slot = &slots[(place.home::<WAYS>() + step) & (WAYS - 1)];
            let seen = slot.load(Acquire);
            if place.owns(seen) {
                return Some((slot, seen));
            }
        }
        None
    }

    /// [`SlotTable::check`] of a key that is not at home, or takes more than one exchange. Of its own, so that the code at each call
    /// is short.
    #[inline(never)]
    fn check_elsewhere(&self, word: &N, place: SlotAddress, now_ns: u64, cost: u64) -> Decision {
        let (slots, at) = (self.bucket_of(place), (now_ns, word.reference(now_ns)));
        for step in 0..WAYS {
            let slot = &slots[(place.home::<WAYS>() + step) & (WAYS - 1)];
            // Ordering: as in `locate`.
            let seen = slot.load(Acquire);
            if place.owns(seen) {
                if let Some(decision) = self.check_slot(word, place, (slot, seen), at, cost) {
                    return decision;
                }
                break;
            }
            // Keys are put into the first empty slot, so it is hardly after one.
            if seen == EMPTY {
                break;
            }
        }
        self.charge_slowly(word, place, now_ns, cost)
    }

    /// A check that lost an exchange, did not find its key, found a state too far ahead, or is the first of its time.
    #[cold]
    #[inline(never)]
    fn charge_slowly(&self, word: &N, place: SlotAddress, now_ns: u64, cost: u64) -> Decision {
        self.decide(word, place, now_ns, |ahead, (now_ns, _)| (word.judge(ahead, now_ns, cost), cost))
    }

    /// Decides and charges as an operation says.
    pub(super) fn apply(
        &self,
        word: &N,
        operation: Operation,
        place: SlotAddress,
        at: CheckTime,
        cost: u64,
    ) -> Decision {
        let keeping = |ahead, at: (u64, u64), headroom: u64, takes: bool| {
            let both = cost.saturating_add(headroom);
            let refused = match word.judge(ahead, at.0, both) {
                Verdict::Admit(_) => return (word.judge(ahead, at.0, cost), cost),
                refused => refused,
            };
            let remaining = word.uncharged(Outcome::Denied, ahead, at, both).remaining();
            match remaining.saturating_sub(headroom) {
                room @ 1.. if takes => (word.judge(ahead, at.0, room), room),
                _ => (refused, both),
            }
        };
        let judge = |ahead, at: (u64, u64)| match operation {
            Operation::Check => (word.judge(ahead, at.0, cost), cost),
            Operation::Force => {
                let Moved { ahead, units } = word.force(ahead, at.0, cost);
                (Verdict::Admit(ahead), units)
            }
            Operation::Reserve { wait_ns } => (word.reserve(ahead, at, cost, wait_ns), cost),
            Operation::CheckKeeping { headroom } => keeping(ahead, at, headroom, false),
            Operation::TakeKeeping { headroom } => keeping(ahead, at, headroom, true),
            Operation::Take => match word.judge(ahead, at.0, cost) {
                admitted @ Verdict::Admit(_) => (admitted, cost),
                _ => {
                    let room = word.uncharged(Outcome::Denied, ahead, at, cost).remaining().max(1);
                    (word.judge(ahead, at.0, room), room)
                }
            },
        };
        self.decide(word, place, at.ns(), judge)
    }

    /// Decides by what `judge` says of a state that is so far ahead at a time and its reference: a verdict, and the cost.
    fn decide(
        &self,
        word: &N,
        place: SlotAddress,
        now_ns: u64,
        judge: impl Fn(u64, (u64, u64)) -> (Verdict, u64),
    ) -> Decision {
        self.retry(word, now_ns, |at| {
            let found = self.find(word, place, at)?;
            let (slot, seen, started) = match found {
                FoundSlot::Here { slot, word, ahead } => (slot, word, ahead),
                FoundSlot::Absent { slot, word: seen, ahead } => {
                    (slot, seen, self.debt(word, place, ahead, at))
                }
            };
            let when = (at.now_ns, at.reference);
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

    /// What [`SlotTable::check`] would decide now, with the figures as they stand, uncharged.
    pub(super) fn peek(&self, word: &N, place: SlotAddress, time: CheckTime, cost: u64) -> Decision {
        let at = Moment { looks: true, ..Moment::new(word, time.ns()) };
        self.retry_from(word, at, |at| {
            let ahead = self.owed(word, place, at)?;
            let outcome = word.judge(ahead, at.now_ns, cost).outcome();
            Ok(word.uncharged(outcome, ahead, (at.now_ns, at.reference), cost))
        })
    }

    /// How far ahead a key's state is, wherever it is.
    fn owed(&self, word: &N, place: SlotAddress, at: &Moment) -> Result<u64, Again> {
        Ok(match self.find(word, place, at)? {
            FoundSlot::Here { ahead, .. } => ahead,
            FoundSlot::Absent { ahead, .. } => self.debt(word, place, ahead, at),
        })
    }

    /// Tries until it is done, as of a later time if that is needed.
    fn retry<R>(&self, word: &N, now_ns: u64, attempt: impl FnMut(&Moment) -> Result<R, Again>) -> R {
        self.retry_from(word, Moment::new(word, now_ns), attempt)
    }

    /// [`SlotTable::retry`] from a moment on.
    fn retry_from<R>(
        &self,
        word: &N,
        mut at: Moment,
        mut attempt: impl FnMut(&Moment) -> Result<R, Again>,
    ) -> R {
        loop {
            match attempt(&at) {
                Ok(result) => return result,
                Err(Again::Lost) => {}
                Err(Again::AsOf(now_ns)) => at = Moment { now_ns, reference: word.reference(now_ns), ..at },
            }
        }
    }

    /// How far a state that has been loaded is ahead of a moment; `None` is a state of an earlier round.
    #[inline]
    fn ahead(&self, word: &N, state: u64, at: &Moment) -> Option<u64> {
        match standing::<STATE_BITS>(state, at.reference, self.horizon) {
            SlotStanding::Idle => Some(0),
            SlotStanding::Ahead(ahead) => Some(ahead),
            SlotStanding::Unsure(ahead) => {
                // The bound is read after the state was loaded: see `check_time`. To a time that is below `low` it says nothing:
                // `find` begins again.
                let high_ns = self.newest.high();
                let newer =
                    if high_ns > at.now_ns { word.reference(high_ns).wrapping_sub(at.reference) } else { 0 };
                (ahead - self.horizon <= newer).then_some(ahead)
            }
        }
    }

    /// Looks for a key; if it is absent, for the slot that is least ahead.
    fn find(&self, word: &N, place: SlotAddress, at: &Moment) -> Result<FoundSlot, Again> {
        let slots = self.bucket_of(place);
        let (idle, horizon) = (place.word(at.reference), self.horizon.cast_signed());
        // The slot that is least ahead, and its word.
        let (mut least, mut slot, mut word_of_least) = (i64::MAX, 0, EMPTY);
        for step in 0..WAYS {
            let other = (place.home::<WAYS>() + step) & (WAYS - 1);
            // Ordering: Acquire, as in `locate`; and of the exchange that replaced the key's word, if it was here: its debt was
            // written, and its slot's time raised, before.
            let seen = slots[other].load(Acquire);
            let state = SlotWord::unpack(seen).state;
            if distance(seen, idle).is_some() {
                // A word of an earlier round is idle.
                let ahead = self.ahead(word, state, at).unwrap_or(0);
                return self.near(at).map(|()| FoundSlot::Here { slot: other, word: seen, ahead });
            }
            let mut order = order::<STATE_BITS>(state, at.reference);
            // Empty, or of an earlier round: before all others.
            if seen == EMPTY || (order > horizon && self.ahead(word, state, at).is_none()) {
                order = i64::MIN;
            }
            if order < least {
                (least, slot, word_of_least) = (order, other, seen);
            }
        }
        // Of an earlier round, or behind: zero.
        let absent =
            FoundSlot::Absent { slot, word: word_of_least, ahead: u64::try_from(least).unwrap_or(0) };
        self.near(at)?;
        let stripe = self.counters.stripe(self.number_of(place));
        // A key that was here, and was idle when its slot was taken, begins no earlier than when it had paid. (A time that is later
        // than all others is wrong.)
        let mut from_ns = match stripe.replaced_ns.load(Acquire) {
            replaced_ns if replaced_ns <= self.newest.high() => replaced_ns,
            _ => 0,
        };
        if let Full::Spill(_) = self.full {
            // The sketch knows debts as of the newest time only. What was paid by then may still be owed at an earlier one.
            from_ns = from_ns.max(stripe.spilled_ns.load(Acquire).min(self.newest.newest()));
        }
        if from_ns > at.now_ns { Err(Again::AsOf(from_ns)) } else { Ok(absent) }
    }

    /// What a key that is absent owes, in a bucket whose least slot is `least` ahead.
    fn debt(&self, word: &N, place: SlotAddress, least: u64, at: &Moment) -> u64 {
        match &self.full {
            Full::Forget => 0,
            Full::Inherit => least,
            // As long as nothing is owed there, no other word of the sketch is read.
            Full::Spill(spill) if !spill.is_used(at.reference) => 0,
            Full::Spill(spill) => {
                let later = self.later(word, at);
                let latest = || at.reference.wrapping_add(self.later(word, at));
                let key = Identity::new(self.number_of(place), place.fingerprint());
                match spill.debt(key, at.reference.wrapping_add(later), &latest) {
                    0 => 0,
                    debt => debt.saturating_add(later),
                }
            }
        }
    }

    /// Puts a newcomer into a slot that held a word, so far ahead of now.
    fn insert(
        &self,
        word: &N,
        newcomer: PendingInsert,
        (slot, seen, ahead): (usize, u64, u64),
        at: &Moment,
    ) -> Result<(), Again> {
        let PendingInsert { place, next, started } = newcomer;
        let counters = self.counters.stripe(self.number_of(place));
        if let Full::Spill(spill) = &self.full
            && ahead > 0
        {
            let evicted = Identity::new(self.number_of(place), SlotWord::unpack(seen).fingerprint);
            let paid_ns = word.last_ns(at.now_ns.saturating_add(word.span_ns(ahead))).saturating_add(1);
            if counters.spilled_ns.load(Relaxed) < paid_ns {
                // Ordering: AcqRel: before the exchange of the word that is replaced.
                counters.spilled_ns.fetch_max(paid_ns, AcqRel);
            }
            let later = self.later(word, at);
            // What has been paid by then needs no record.
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
        // Ordering: AcqRel: whoever finds the evicted key gone sees its debt recorded.
        own.compare_exchange(seen, next, AcqRel, Relaxed).map_err(|_| Again::Lost)?;
        if ahead > 0 {
            count(&counters.evicted);
        }
        if !matches!(self.full, Full::Inherit) && !self.is_sole_slot(word, newcomer, slot, at) {
            count(&counters.retreats);
            // Ordering: AcqRel, as a charge.
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
    fn is_sole_slot(&self, word: &N, newcomer: PendingInsert, own: usize, at: &Moment) -> bool {
        let PendingInsert { place, started, .. } = newcomer;
        // Of two threads that put one key in, at least one sees the other's word.
        fence_after_rmw();
        let slots = self.bucket_of(place);
        for step in 1..WAYS {
            // Ordering: Acquire: if the other word is gone already, its debt is seen.
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

    /// Puts a key in that has no slot, with `units` charged as of `then_ns`; unless they are paid by now, or it owes more.
    pub(super) fn seed(&self, word: &N, hash: u64, time: CheckTime, then_ns: u64, units: u64) {
        let place = self.place(hash);
        let state = word.reference(then_ns).wrapping_add(word.seed(then_ns, units));
        self.retry(word, time.ns(), |at| {
            let FoundSlot::Absent { slot, word: seen, ahead } = self.find(word, place, at)? else {
                return Ok(());
            };
            // Further ahead than any state is for a thread that lags.
            let (SlotStanding::Ahead(left) | SlotStanding::Unsure(left)) =
                standing::<STATE_BITS>(state, at.reference, self.horizon)
            else {
                return Ok(());
            };
            let started = self.debt(word, place, ahead, at);
            if left <= started {
                return Ok(());
            }
            // The state is one of then.
            let raised_ns = self.covering_ns(word, at.now_ns, left).max(then_ns);
            self.newest.raise(raised_ns, |now_ns| word.last_ns(now_ns));
            let newcomer = PendingInsert { place, next: place.word(state), started };
            self.insert(word, newcomer, (slot, seen, ahead), at)
        });
    }

    /// Whether charges can be taken back: not where a newcomer takes over what the least slot owes, which rests on words
    /// that only grow.
    pub(super) const fn can_refund(&self) -> bool {
        !matches!(self.full, Full::Inherit)
    }

    /// Takes back what is still owed of up to `units` of a charge, if the key has had its slot since: how many units.
    pub(super) fn refund(
        &self,
        word: &N,
        place: SlotAddress,
        time: CheckTime,
        charge: &Decision,
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
            // Else its newcomer may be about to retreat: see the module's text.
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

    /// Makes a key owe nothing; whether it did owe.
    pub(super) fn reset(&self, word: &N, hash: u64, time: CheckTime) -> bool {
        let place = self.place(hash);
        self.retry(word, time.ns(), |at| {
            // Idle to callers whose times lag, too.
            let next = place.word(at.reference.wrapping_sub(Self::MOST_AHEAD));
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
                    // A debt that would be inherited is another key's.
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

    /// Forgets everything.
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
