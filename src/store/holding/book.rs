//! The holds that are not settled yet, by key.
//!
//! ```text
//! shards ─► Mutex { (key hash, end, identity) ─► Held }
//! ```
//!
//! *Each hold is settled once.* The thread that removes a hold from its shard settles it. A hold is removed under the shard's
//! mutex, so a commit, a release and the end of its life cannot all settle it.
//!
//! *No denial because of the units of a hold that has ended.* A decision has these steps:
//!
//! 1. It reads the number of holds in its key's shard.
//! 2. It asks the store, which denies.
//! 3. If the number was not zero, it releases the ended holds of the key under the mutex, and asks the store again.
//!
//! A thread that releases a hold lowers the number after the refund. A decision that reads zero therefore finds all
//! earlier refunds in the store, and a decision that reads another number waits for the mutex, and finds them as well.
//!
//! *No denial because of the place of a hold that has ended.* Each new hold first releases two holds, of any keys, that have
//! ended before all others, and then takes a free place:
//!
//! 1. It reads the first end of each shard, and locks the shard with the earliest one.
//! 2. If that shard still has a hold that has ended, it releases this hold. Otherwise another thread was faster, and it
//!    reads the ends again.
//! 3. It takes a free place. If there is none although it has released a hold, another thread has taken that place, and it
//!    begins again. It is refused only if it found no hold that has ended, and then no free place.
//!
//! A shard publishes its next end after the place of a removed hold is free. A thread that finds no end in the past
//! therefore finds the places of all holds that have left. As each new hold releases two others, lost holds
//! become fewer, although no thread searches for them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::PoisonError;

use crossbeam_utils::CachePadded;

use super::id::HoldId;
use crate::base::sync::{AtomicU64, AtomicUsize, Mutex, Ordering};

/// The number of shards: enough that requests of different keys rarely use the same mutex.
const SHARDS: usize = if cfg!(tollgate_loom) { 2 } else { 64 };
/// The most holds that one decision releases.
const RELEASED_AT_ONCE: usize = if cfg!(tollgate_loom) { 2 } else { 64 };
/// The holds of any keys that a new hold releases. It is more than one, so that the book does not fill up with them.
const RELEASED_BY_EACH: usize = 2;

/// All holds of a limiter. `C` is the charge of a hold in a store, or `()` if there is none.
#[derive(Debug)]
pub struct HoldBook<C> {
    hasher: ahash::RandomState,
    most: usize,
    len: AtomicUsize,
    /// The number of holds in each shard. Written under the shard's mutex. Padded and apart from the mutexes, because each
    /// check reads the number of its key's shard, but rarely locks it.
    lens: Box<[CachePadded<AtomicUsize>]>,
    /// The first end of a hold in each shard, in nanoseconds, or the largest number. Written under the shard's mutex, after
    /// all else. Together, because each new hold reads all of them.
    first_ends_ns: [AtomicU64; SHARDS],
    // Padded: holds of different keys write different shards.
    shards: Box<[CachePadded<Mutex<BookShard<C>>>]>,
}

/// The holds of some keys. A key is known by its hash.
#[derive(Debug)]
struct BookShard<C> {
    /// The holds of each key in the order of their ends. One map for all keys, because a map for each would allocate room for
    /// eleven holds when most keys have one.
    holds: BTreeMap<(u64, HoldId), Held<C>>,
    /// The units that each key holds.
    units: BTreeMap<u64, u128>,
    /// The end of each hold, by its key and its random bits.
    ends: BTreeMap<(u64, u128), u64>,
    /// The holds of all keys in the order of their ends, with the hashes of their keys.
    by_end: BTreeSet<(HoldId, u64)>,
}

/// A hold.
#[derive(Debug)]
pub struct Held<C> {
    /// The held units.
    pub units: u64,
    /// What charged them.
    pub charge: C,
}

/// The holds of a key.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyStanding {
    /// The sum of their units.
    pub units: u128,
    /// The first and the last end, in nanoseconds.
    pub ends_ns: Option<(u64, u64)>,
}

/// Why a hold was not kept.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NotKept {
    /// The book is full.
    BookFull,
    /// The key would hold more units than its limit.
    KeyFull(KeyStanding),
}

/// Lowers the numbers when a removed hold is settled, even if the settlement panics.
struct Leaving<'b>(&'b AtomicUsize, &'b AtomicUsize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        // Ordering: Release. Pairs with the load in `may_hold`: a thread that reads the lower number sees the refund.
        self.0.fetch_sub(1, Ordering::Release);
        // Ordering: Relaxed. The number only limits how many holds exist, and `first_ends_ns` publishes that it is lower.
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<C> HoldBook<C> {
    /// Creates a book for at most `most` holds.
    pub(crate) fn new(most: usize) -> Self {
        Self::with_hasher(most, ahash::RandomState::new())
    }

    /// Creates a book whose hashes of keys another process can compute.
    pub fn with_hasher(most: usize, hasher: ahash::RandomState) -> Self {
        // Each exploration of a model finds a key in the same shard.
        let hasher = if cfg!(tollgate_loom) { ahash::RandomState::with_seeds(1, 2, 3, 4) } else { hasher };
        Self {
            hasher,
            most,
            len: AtomicUsize::new(0),
            lens: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            first_ends_ns: std::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            shards: (0..SHARDS).map(|_| CachePadded::new(Mutex::new(BookShard::new()))).collect(),
        }
    }

    pub(crate) fn hasher(&self) -> &ahash::RandomState {
        &self.hasher
    }

    /// Returns the hash of a key.
    pub fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Visits all holds, one shard at a time.
    pub fn for_each(&self, mut visit: impl FnMut(u64, HoldId, &Held<C>)) {
        for number in 0..SHARDS {
            self.with_shard(number, |_, shard| {
                shard.holds.iter().for_each(|(&(hash, id), hold)| visit(hash, id, hold));
            });
        }
    }

    /// Returns the number of holds.
    #[allow(clippy::len_without_is_empty, reason = "no caller asks whether it is empty")]
    pub fn len(&self) -> usize {
        // Ordering: Relaxed. The result is an estimate while holds come and go.
        self.len.load(Ordering::Relaxed)
    }

    /// Returns whether a key of this shard may have a hold. If not, all refunds of earlier holds are visible.
    #[inline]
    pub fn may_hold(&self, hash: u64) -> bool {
        // Ordering: Acquire. Pairs with the Release in `Leaving`.
        self.lens[Self::shard(hash)].load(Ordering::Acquire) > 0
    }

    /// Keeps a hold until the end of its identity, if the key then holds at most `limit` units. First releases holds of any
    /// keys that have ended: `release` receives the hash of the key, and gives the units back.
    pub fn keep(
        &self,
        (hash, id): (u64, HoldId),
        hold: Held<C>,
        (limit, now_ns): (u64, u64),
        mut release: impl FnMut(u64, &Held<C>),
    ) -> Result<KeyStanding, NotKept> {
        let (units, mut hold) = (hold.units, Some(hold));
        // Each further round means that other threads have taken the places of the released holds.
        loop {
            let released =
                (0..RELEASED_BY_EACH).take_while(|_| self.release_first(now_ns, &mut release)).count();
            let kept = self.with(hash, |len, shard| {
                let standing = shard.standing(hash);
                if standing.units + u128::from(units) > u128::from(limit) {
                    return Err(NotKept::KeyFull(standing));
                }
                if !self.take_place() {
                    return Err(NotKept::BookFull);
                }
                if let Some(hold) = hold.take() {
                    // Ordering: Relaxed. A decision that does not see the new hold was made before it.
                    len.fetch_add(1, Ordering::Relaxed);
                    shard.insert(hash, id, hold);
                }
                Ok(shard.standing(hash))
            });
            if released == 0 || kept != Err(NotKept::BookFull) {
                return kept;
            }
        }
    }

    /// Takes a free place. Returns `false` if there is none.
    pub(super) fn take_place(&self) -> bool {
        let raised = |len| (len < self.most).then_some(len + 1);
        // Ordering: Relaxed. See `Leaving`.
        self.len.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raised).is_ok()
    }

    /// Releases the hold that ended before all others. Returns `false` if no hold has ended.
    pub(super) fn release_first(&self, now_ns: u64, mut release: impl FnMut(u64, &Held<C>)) -> bool {
        // The largest number is no end.
        let has_ended = |end_ns: u64| end_ns <= now_ns && end_ns < u64::MAX;
        // Each further round means that another thread has released a hold meanwhile.
        loop {
            // Ordering: Acquire. Pairs with the Release in `with_shard`: a thread that reads a later end finds the place
            // of the hold that has left.
            let ends = self.first_ends_ns.iter().map(|end_ns| end_ns.load(Ordering::Acquire));
            let ended = ends.enumerate().filter(|&(_, end_ns)| has_ended(end_ns));
            let Some((number, _)) = ended.min_by_key(|&(_, end_ns)| end_ns) else { return false };
            let released = self.with_shard(number, |len, shard| {
                let &(id, hash) = shard.by_end.first().filter(|(id, _)| has_ended(id.end_ns()))?;
                let ended = shard.remove(hash, id)?;
                let _leaving = Leaving(len, &self.len);
                release(hash, &ended);
                Some(())
            });
            if released.is_some() {
                return true;
            }
        }
    }

    /// Removes the hold with these random bits, and lets `settle` settle it, given its own end. Returns `None` if it is
    /// settled, or was never here. What `settle` refunds is there for every decision that finds the hold gone.
    pub fn take<T>(&self, hash: u64, id: HoldId, settle: impl FnOnce(HoldId, Held<C>) -> T) -> Option<T> {
        let choose = |shard: &BookShard<C>| {
            let end_ns = *shard.ends.get(&(hash, id.random()))?;
            Some(HoldId::new(end_ns, id.random()))
        };
        self.remove(hash, choose, settle)
    }

    fn remove<T>(
        &self,
        hash: u64,
        choose: impl FnOnce(&BookShard<C>) -> Option<HoldId>,
        settle: impl FnOnce(HoldId, Held<C>) -> T,
    ) -> Option<T> {
        self.with(hash, |len, shard| {
            let id = choose(shard)?;
            let taken = shard.remove(hash, id)?;
            let _leaving = Leaving(len, &self.len);
            Some(settle(id, taken))
        })
    }

    /// Gives a hold another identity, and so another end, in one step. Returns whether it was here.
    pub(crate) fn renew(&self, hash: u64, (id, later): (HoldId, HoldId)) -> bool {
        self.with(hash, |_, shard| {
            let Some(hold) = shard.remove(hash, id) else { return false };
            shard.insert(hash, later, hold);
            true
        })
    }

    /// Removes the hold of the key that ends first, so that the caller settles it.
    pub fn take_first(&self, hash: u64) -> Option<(HoldId, Held<C>)> {
        self.remove(hash, |shard| shard.first(hash), |id, held| (id, held))
    }

    /// Releases holds of the key that have ended: at most [`RELEASED_AT_ONCE`]. Returns whether there were any.
    pub fn release_ended(&self, hash: u64, now_ns: u64, mut release: impl FnMut(&Held<C>)) -> bool {
        self.with(hash, |len, shard| {
            let mut any = false;
            for _ in 0..RELEASED_AT_ONCE {
                let Some(id) = shard.first(hash).filter(|first| first.end_ns() <= now_ns) else { break };
                let Some(ended) = shard.remove(hash, id) else { break };
                let _leaving = Leaving(len, &self.len);
                release(&ended);
                any = true;
            }
            any
        })
    }

    /// Returns the units that a key holds.
    pub fn standing(&self, hash: u64) -> KeyStanding {
        self.with(hash, |_, shard| shard.standing(hash))
    }

    /// The number of the key's shard.
    fn shard(hash: u64) -> usize {
        usize::from((hash >> 48) as u16) % SHARDS
    }

    fn with<T>(&self, hash: u64, work: impl FnOnce(&AtomicUsize, &mut BookShard<C>) -> T) -> T {
        self.with_shard(Self::shard(hash), work)
    }

    /// Calls `work` with the number of holds of a shard, and with its holds.
    fn with_shard<T>(&self, number: usize, work: impl FnOnce(&AtomicUsize, &mut BookShard<C>) -> T) -> T {
        let first_end_ns = &self.first_ends_ns[number];
        // A refund can run the caller's `Eq`, which can panic. The hold is removed by then, and the rest is as before. The
        // first end is too early until the next call.
        // A refund in a keyed store pins, and the end of a pin can free keys, whose `Drop` may use this book. This pin ends
        // after the lock.
        #[cfg(not(tollgate_loom))]
        let _pinned = crate::base::reclaim::pin();
        let mut shard = self.shards[number].lock().unwrap_or_else(PoisonError::into_inner);
        let worked = work(&self.lens[number], &mut shard);
        let first_ns = shard.by_end.first().map_or(u64::MAX, |(id, _)| id.end_ns());
        // Ordering: Relaxed. Only the mutex's holder writes it.
        if first_end_ns.load(Ordering::Relaxed) != first_ns {
            // Ordering: Release. See `release_first`.
            first_end_ns.store(first_ns, Ordering::Release);
        }
        worked
    }
}

impl<C> BookShard<C> {
    const fn new() -> Self {
        Self {
            holds: BTreeMap::new(),
            units: BTreeMap::new(),
            ends: BTreeMap::new(),
            by_end: BTreeSet::new(),
        }
    }

    /// Returns the holds of a key in the order of their ends.
    fn of_key(&self, hash: u64) -> impl DoubleEndedIterator<Item = HoldId> {
        self.holds.range((hash, HoldId::FIRST)..=(hash, HoldId::LAST)).map(|(&(_, id), _)| id)
    }

    fn standing(&self, hash: u64) -> KeyStanding {
        let Some(&units) = self.units.get(&hash) else { return KeyStanding::default() };
        let mut ids = self.of_key(hash);
        // The only hold of a key is the first and the last one.
        let ends_ns = ids.next().map(|first| (first.end_ns(), ids.next_back().unwrap_or(first).end_ns()));
        KeyStanding { units, ends_ns }
    }

    /// Returns the hold of the key that ends first.
    fn first(&self, hash: u64) -> Option<HoldId> {
        self.of_key(hash).next()
    }

    fn insert(&mut self, hash: u64, id: HoldId, hold: Held<C>) {
        *self.units.entry(hash).or_default() += u128::from(hold.units);
        self.holds.insert((hash, id), hold);
        self.ends.insert((hash, id.random()), id.end_ns());
        self.by_end.insert((id, hash));
    }

    fn remove(&mut self, hash: u64, id: HoldId) -> Option<Held<C>> {
        let hold = self.holds.remove(&(hash, id))?;
        self.ends.remove(&(hash, id.random()));
        self.by_end.remove(&(id, hash));
        if self.first(hash).is_none() {
            self.units.remove(&hash);
        } else if let Some(units) = self.units.get_mut(&hash) {
            *units -= u128::from(hold.units);
        }
        Some(hold)
    }
}
