//! The first keys of a store that has no table yet.
//!
//! A table takes at least a page of memory, and each check in it reads lines of several pages. Of thousands of stores, most have
//! few keys. So a store starts with a short list, of three cache lines. It gets its table with the first key that the list has no
//! entry for.
//!
//! ```text
//! entry = hash | word        hash: 0 = free        word: as in a slot; EMPTY before the key's first charge
//! ```
//! # An entry belongs to one key
//! A new key exchanges the hash of the first free entry in its search order for its own hash. No hash ever changes again, so a
//! key has one entry: a search stops at a free entry, and a thread that lost the exchange searches on from there. Then the
//! key's word is charged by exchanges, as a slot is. The hash alone tells whose word it is, so keys never share a word here.
//!
//! A thread that looks at an entry without a search loads its word before its hash. Then a word with a state was written after the
//! entry got its hash, so the thread sees whose word it is. In the other order, the hash could be that of the free entry, and the
//! word that of a key which has got the entry in between.
//!
//! # How the keys move to the table
//! 1. A thread that needs the table creates one that no other thread can see. If there is no memory for it, nothing else
//!    happens.
//! 2. It takes all free entries, so that no key can get one any more.
//! 3. It *freezes* each word: it exchanges it for a word with the same state and a fingerprint that is not the key's. No
//!    thread changes a frozen word.
//! 4. It copies the states to the table, and publishes the table by one exchange ([`Lazy`](crate::base::lazy::Lazy)).
//!
//! A thread whose exchange fails because the word is frozen takes the same steps itself, so no thread waits. All threads copy
//! the same frozen states, so it does not matter whose table is published. No charge is lost: it is either in the frozen
//! word, or it was not made. A peek may read a frozen word, because its state counts until the table is published.
//!
//! An entry is never used for another key. So a key that returns after its debt was paid finds its own word, and no debt has to
//! be kept elsewhere.

#[cfg(all(test, tollgate_loom))]
mod models;

use super::operation::{is_forced, judge};
use super::times::{MOST_AHEAD, Times, retry};
use super::{Again, DecisionTime, SlotAddress, SlotTable};
use crate::algorithm::compact::slot::{EMPTY, SlotWord, distance, is_own_and_behind};
use crate::algorithm::compact::{CompactState, Moment, Moved, Verdict, newest_of};
use crate::algorithm::step::Refund;
use crate::base::check_time::{CheckTime, NewestOfFew, Unpadded};
use crate::base::decision::{Decision, Outcome};
use crate::base::sync::AtomicU64;
use crate::base::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::store::op::{Debt, Operation, WordTicket};

/// The number of keys. A list of this length fills two cache lines.
const ENTRIES: usize = if cfg!(tollgate_loom) { 2 } else { 8 };

/// The hash of a free entry. A key with this hash has the hash 1 instead, which leads to the same slot of a table.
const FREE: u64 = 0;
/// The hash in an entry that no key got before the table. A key may have the same hash.
const CLOSED: u64 = u64::MAX;

/// The keys of a store without a table. See the module's documentation.
// The line of the times, and two lines of entries.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct FirstKeys {
    horizon: u64,
    newest: NewestOfFew,
    entries: [KeyEntry; ENTRIES],
}

#[derive(Debug)]
#[repr(C, align(16))]
struct KeyEntry {
    hash: AtomicU64,
    word: AtomicU64,
}

impl KeyEntry {
    /// Loads the hash and the word. If the word has a state, it is the state of the key with this hash.
    #[inline(always)]
    fn load(&self) -> (u64, u64) {
        // Ordering: Acquire. The word first, because its writer had seen the hash: see the module's documentation. The load of the hash
        // pairs with `claim`, although the hash publishes nothing else.
        let seen = self.word.load(Acquire);
        (self.hash.load(Acquire), seen)
    }
}

/// The operation needs a table: the list has no room for the key, or a thread is moving the keys to a table.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) struct NeedsTable;

/// What a change sees of a key.
#[derive(Copy, Clone, Debug)]
struct Seen {
    ahead: u64,
    /// Whether the key has no state yet.
    is_new: bool,
}

impl FirstKeys {
    pub(crate) fn new<N: CompactState>(word: &N) -> Self {
        let entries =
            core::array::from_fn(|_| KeyEntry { hash: AtomicU64::new(FREE), word: AtomicU64::new(EMPTY) });
        Self { newest: newest_of(word).of_few(), horizon: word.horizon(), entries }
    }

    const fn times(&self) -> Times<'_, Unpadded> {
        Times { horizon: self.horizon, newest: &self.newest }
    }

    /// [`SlotTable::check`] without a table, for a key in its first entry. `None` leaves the check to
    /// [`FirstKeys::check_elsewhere`].
    #[inline(always)]
    pub(crate) fn check_at_home<N: CompactState>(
        &self,
        word: &N,
        hash: u64,
        at: CheckTime,
        cost: u64,
    ) -> Option<Decision> {
        let place = SlotAddress::new(hash);
        let entry = &self.entries[place.home::<ENTRIES>()];
        let (own, seen) = entry.load();
        // Also the hash of a free entry, whose word has no state then.
        if own != hash {
            return None;
        }
        self.times().check_slot(word, place, (&entry.word, seen), word.moment(at.ns()), cost)
    }

    /// `None` if the word is frozen or new, or if one exchange is not enough.
    #[inline(always)]
    fn check_entry<N: CompactState>(
        &self,
        word: &N,
        place: SlotAddress,
        KeyEntry { word: state, .. }: &KeyEntry,
        at: Moment,
        cost: u64,
    ) -> Option<Decision> {
        // Ordering: Acquire, as in `SlotTable::locate`.
        self.times().check_slot(word, place, (state, state.load(Acquire)), at, cost)
    }

    /// [`FirstKeys::check_at_home`] for any key.
    pub(crate) fn check_elsewhere<N: CompactState>(
        &self,
        word: &N,
        hash: u64,
        at: CheckTime,
        cost: u64,
    ) -> Result<Decision, NeedsTable> {
        let place = SlotAddress::new(hash);
        let at_once = |entry| self.check_entry(word, place, entry, word.moment(at.ns()), cost);
        match self.find(place).and_then(at_once) {
            Some(decision) => Ok(decision),
            None => self.apply(word, Operation::Check, hash, at, cost),
        }
    }

    /// Decides and charges an operation.
    pub(crate) fn apply<N: CompactState>(
        &self,
        word: &N,
        operation: Operation,
        hash: u64,
        at: CheckTime,
        cost: u64,
    ) -> Result<Decision, NeedsTable> {
        let decided = self.change(word, hash, at, |Seen { ahead, .. }, at| {
            let when = at.moment();
            let (verdict, cost) = judge(word, operation, cost, ahead, when);
            match verdict {
                Verdict::Admit(after) if after != ahead => {
                    (Some(after), word.decision(Outcome::Allowed, after, when, cost))
                }
                verdict => (None, word.uncharged(verdict.outcome(), ahead, when, cost)),
            }
        })?;
        if is_forced(operation, &decided) {
            return Ok(decided.forced());
        }
        match operation {
            Operation::Check | Operation::Take => self.block(word, hash, at, decided),
            _ => Ok(decided),
        }
    }

    /// Returns the decision that a check would make now, without a charge.
    pub(crate) fn peek<N: CompactState>(&self, word: &N, hash: u64, time: CheckTime, cost: u64) -> Decision {
        let place = SlotAddress::new(hash);
        let at = DecisionTime { peeks: true, ..DecisionTime::new(word, time.ns()) };
        retry(word, at, |at| {
            let (Seen { ahead, .. }, _) = self.seen(word, self.find(place), at)?;
            let outcome = word.judge(ahead, at.now_ns, cost).outcome();
            Ok(word.uncharged(outcome, ahead, at.moment(), cost))
        })
    }

    /// Returns a ticket that charges a key, with the decision after the charge. `None` if the request is not admitted, or if
    /// its charge takes more than one exchange.
    pub(crate) fn ticket<'s, N: CompactState>(
        &'s self,
        word: &N,
        hash: u64,
        at: CheckTime,
        cost: u64,
    ) -> Option<(Decision, WordTicket<'s>)> {
        let (place, at) = (SlotAddress::new(hash), word.moment(at.ns()));
        let KeyEntry { word: state, .. } = self.find(place)?;
        // Ordering: as in `check_entry`.
        let seen = state.load(Acquire);
        let idle = place.word(at.reference);
        let ahead = match distance(seen, idle) {
            ahead if ahead <= self.horizon => ahead,
            ahead if is_own_and_behind(ahead) => 0,
            _ => return None,
        };
        match word.judge(ahead, at.now_ns, cost) {
            Verdict::Admit(after) if cost > 0 && self.newest.is_near(at.now_ns) => {
                let next = idle.wrapping_add(SlotWord::pack(0, after));
                let decision = word.decision(Outcome::Allowed, after, at, cost);
                Some((decision, WordTicket::new(state, seen, next)))
            }
            _ => None,
        }
    }

    /// [`SlotTable::block`] without a table.
    pub(crate) fn block<N: CompactState>(
        &self,
        word: &N,
        hash: u64,
        at: CheckTime,
        denial: Decision,
    ) -> Result<Decision, NeedsTable> {
        if !N::BLOCKS || denial.outcome() != Outcome::Denied || denial.is_block() {
            return Ok(denial);
        }
        self.change(word, hash, at, |Seen { ahead, is_new }, at| {
            if is_new || word.judge(ahead, at.now_ns, denial.cost()) != Verdict::Deny {
                return (None, denial);
            }
            let blocked = word.block(ahead);
            let ahead = blocked.unwrap_or(ahead);
            (blocked, word.uncharged(Outcome::Denied, ahead, at.moment(), denial.cost()))
        })
    }

    /// [`SlotTable::block_for`] without a table.
    pub(crate) fn block_for<N: CompactState>(
        &self,
        word: &N,
        hash: u64,
        at: CheckTime,
        block_ns: u64,
    ) -> Result<bool, NeedsTable> {
        if !N::BLOCKS {
            return Ok(false);
        }
        self.change(word, hash, at, |Seen { ahead, .. }, _| {
            let after = word.block_for(ahead, block_ns);
            (after, after.is_some())
        })
    }

    /// [`SlotTable::refund`] without a table.
    pub(crate) fn refund<N: CompactState>(
        &self,
        word: &N,
        hash: u64,
        at: CheckTime,
        charge: Option<&Decision>,
        units: u64,
    ) -> Result<u64, NeedsTable> {
        self.change(word, hash, at, |Seen { ahead, is_new }, at| {
            let refund = Refund { charge, units, now_ns: at.now_ns };
            match word.refund(ahead, at.reference, &refund) {
                Some(Moved { ahead, units }) if !is_new => (Some(ahead), units),
                _ => (None, 0),
            }
        })
    }

    /// [`SlotTable::seed`] without a table.
    pub(crate) fn seed<N: CompactState>(
        &self,
        word: &N,
        hash: u64,
        at: CheckTime,
        debt: Debt,
    ) -> Result<(), NeedsTable> {
        self.change(word, hash, at, |Seen { is_new, .. }, at| {
            (if is_new { self.times().seeded(word, debt, 0, at) } else { None }, ())
        })
    }

    /// Clears the debt of a key.
    pub(crate) fn reset<N: CompactState>(&self, word: &N, hash: u64) -> Result<(), NeedsTable> {
        self.change(word, hash, self.newest(), |Seen { is_new, .. }, _| {
            // So far behind that the word is idle even for callers whose times lag.
            ((!is_new).then_some(0_u64.wrapping_sub(MOST_AHEAD)), ())
        })
    }

    /// Whether a key has a state.
    pub(crate) fn holds(&self, hash: u64) -> bool {
        self.find(SlotAddress::new(hash)).is_some_and(|entry| !is_new(entry.word.load(Acquire)))
    }

    /// Whether no key has a state.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.iter().all(|entry| is_new(entry.word.load(Acquire)))
    }

    /// The number of keys that owe.
    pub(crate) fn live<N: CompactState>(&self, word: &N, time: CheckTime) -> usize {
        let reference = word.reference(time.ns());
        let is_live = |seen: u64| !is_new(seen) && self.times().owes(seen, reference);
        self.entries.iter().filter(|entry| is_live(entry.word.load(Relaxed))).count()
    }

    /// The hashes of the keys that have a state.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = u64> {
        let of_key = |(hash, seen)| if is_new(seen) { None } else { Some(hash) };
        self.entries.iter().map(KeyEntry::load).filter_map(of_key)
    }

    /// The latest time of any charge, to within the slack.
    pub(crate) fn newest(&self) -> CheckTime {
        CheckTime::from_ns(self.newest.newest())
    }

    /// Takes over the newest time of the store that this one replaces.
    pub(crate) fn take_over_time<N: CompactState>(&self, word: &N, newest: CheckTime) {
        self.newest.raise(newest.ns(), |now_ns| word.last_ns(now_ns));
    }

    /// A bound of the times of all charges.
    pub(crate) fn high_ns(&self) -> u64 {
        self.newest.high()
    }

    pub(crate) const fn state_bytes() -> usize {
        size_of::<[KeyEntry; ENTRIES]>()
    }

    /// Returns the entry of a key.
    #[inline]
    fn find(&self, place: SlotAddress) -> Option<&KeyEntry> {
        let hash = own_hash(place);
        for step in 0..ENTRIES {
            let entry = &self.entries[place.nth::<ENTRIES>(step)];
            match entry.hash.load(Acquire) {
                FREE => return None,
                other if other == hash => return Some(entry),
                _ => {}
            }
        }
        None
    }

    /// Returns the entry of a key, and takes a free one if it has none. `None` if no entry is free.
    fn claim(&self, place: SlotAddress) -> Option<&KeyEntry> {
        let hash = own_hash(place);
        for step in 0..ENTRIES {
            let entry = &self.entries[place.nth::<ENTRIES>(step)];
            // Ordering: AcqRel. Only the order of this word matters: all threads see one owner of the entry.
            match entry.hash.compare_exchange(FREE, hash, AcqRel, Acquire) {
                Ok(_) => return Some(entry),
                Err(other) if other == hash => return Some(entry),
                Err(_) => {}
            }
        }
        None
    }

    /// Returns what an entry says about its key, and its word.
    fn seen<N: CompactState>(
        &self,
        word: &N,
        entry: Option<&KeyEntry>,
        at: &DecisionTime,
    ) -> Result<(Seen, u64), Again> {
        // Ordering: as in `check_entry`.
        let seen = entry.map_or(EMPTY, |entry| entry.word.load(Acquire));
        let is_new = is_new(seen);
        // A word from an earlier round is idle.
        let ahead = || self.times().ahead(word, SlotWord::unpack(seen).state, at).unwrap_or(0);
        let ahead = if is_new { 0 } else { ahead() };
        self.times().near(at)?;
        Ok((Seen { ahead, is_new }, seen))
    }

    /// Exchanges the state of a key. `change` maps the state at a moment to how far ahead it is afterwards, or `None` to leave it,
    /// and to a result.
    fn change<N: CompactState, R>(
        &self,
        word: &N,
        hash: u64,
        time: CheckTime,
        change: impl Fn(Seen, &DecisionTime) -> (Option<u64>, R),
    ) -> Result<R, NeedsTable> {
        let place = SlotAddress::new(hash);
        retry(word, DecisionTime::new(word, time.ns()), |at| {
            let found = self.find(place);
            let (state, seen) = self.seen(word, found, at)?;
            if is_frozen(seen, place) {
                return Ok(Err(NeedsTable));
            }
            let (after, result) = change(state, at);
            let Some(after) = after else { return Ok(Ok(result)) };
            self.times().announce(word, at)?;
            let Some(entry) = found.or_else(|| self.claim(place)) else { return Ok(Err(NeedsTable)) };
            let next = place.word(at.reference.wrapping_add(after));
            // Ordering: AcqRel, as in `SlotTable::check`.
            entry.word.compare_exchange(seen, next, AcqRel, Relaxed).map_err(|_| Again::Lost)?;
            Ok(Ok(result))
        })
    }

    /// Moves all keys to a table that no other thread can see. Afterwards no state changes here: see the module's documentation.
    pub(in crate::store::compact) fn move_to<N: CompactState, const WAYS: usize>(
        &self,
        table: &SlotTable<N, WAYS>,
    ) {
        for entry in &self.entries {
            // Ordering: as in `claim`.
            let hash =
                entry.hash.compare_exchange(FREE, CLOSED, AcqRel, Acquire).map_or_else(|own| own, |_| CLOSED);
            let place = SlotAddress::new(hash);
            let mut seen = entry.word.load(Acquire);
            while !is_frozen(seen, place) {
                // Ordering: AcqRel. It acquires the last charge, and a thread whose exchange fails sees the frozen word.
                match entry.word.compare_exchange(seen, frozen(seen, place), AcqRel, Acquire) {
                    Ok(_) => break,
                    Err(other) => seen = other,
                }
            }
        }
        self.copy_to(table);
    }

    /// Copies all states to a table that no other thread can see.
    pub(in crate::store::compact) fn copy_to<N: CompactState, const WAYS: usize>(
        &self,
        table: &SlotTable<N, WAYS>,
    ) {
        for entry in &self.entries {
            let (hash, seen) = entry.load();
            if !is_new(seen) {
                table.put(SlotAddress::new(hash), SlotWord::unpack(seen).state);
            }
        }
        // After the words: their writers had raised these times before.
        table.newest.cover(&self.newest);
    }
}

impl<N: CompactState, const WAYS: usize> SlotTable<N, WAYS> {
    /// Writes the state of a key to a table that no other thread can see. Two keys may share a slot here; then the larger state
    /// counts for both.
    fn put(&self, place: SlotAddress, state: u64) {
        for step in 0..WAYS {
            let slot = &self.bucket_of(place)[place.nth::<WAYS>(step)];
            let seen = slot.load(Relaxed);
            let next = place.word(state);
            if seen == EMPTY || place.owns(seen) {
                let is_larger = !is_own_and_behind(distance(next, seen));
                if is_larger {
                    // Ordering: Release, as for each write of a slot. The table is published later.
                    slot.store(next, Release);
                }
                return;
            }
        }
    }
}

/// The hash by which the list names a key.
const fn own_hash(place: SlotAddress) -> u64 {
    match place.hash() {
        FREE => 1,
        hash => hash,
    }
}

/// Whether a word, frozen or not, has no state.
const fn is_new(word: u64) -> bool {
    SlotWord::unpack(word).fingerprint == 0
}

/// Whether the word of a key is frozen.
const fn is_frozen(word: u64, place: SlotAddress) -> bool {
    word != EMPTY && !place.owns(word)
}

/// Returns the word of a key in its frozen form. It has the fingerprint 0 if the key has no state.
const fn frozen(word: u64, place: SlotAddress) -> u64 {
    if word == EMPTY {
        return SlotWord::pack(0, 1);
    }
    let other = if place.fingerprint() == 1 { 2 } else { 1 };
    SlotWord::pack(other, SlotWord::unpack(word).state)
}
