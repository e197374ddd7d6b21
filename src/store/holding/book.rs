//! The holds that are not settled yet, by key.
//!
//! ```text
//! shards ─► Mutex { key hash ─► KeyHolds { end, identity ─► Held, … } }
//! ```
//!
//! *Each hold is settled once.* The thread that removes a hold from its shard settles it. A hold is removed under the shard's
//! mutex, so a commit, a release and the end of its life cannot all settle it.
//!
//! *No denial because of a hold that has ended.* A decision has these steps:
//!
//! 1. It reads the number of holds in its key's shard.
//! 2. It asks the store, which denies.
//! 3. If the number was not zero, it releases the ended holds of the key under the mutex, and asks the store again.
//!
//! A thread that releases a hold lowers the number after the refund. A decision that reads zero therefore finds all
//! earlier refunds in the store, and a decision that reads another number waits for the mutex, and finds them as well.
//!
//! *No hold stays for ever.* Each new hold forgets up to two holds of its shard that have ended, and whose charge time
//! has paid. For such a hold, a refund would return nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::PoisonError;

use crossbeam_utils::CachePadded;

use super::id::{HoldId, HoldIds};
use crate::base::sync::{AtomicUsize, Mutex, Ordering};

/// The number of shards: enough that requests of different keys rarely use the same mutex.
const SHARDS: usize = if cfg!(tollgate_loom) { 2 } else { 64 };
/// The most holds that one decision releases.
const RELEASED_AT_ONCE: usize = if cfg!(tollgate_loom) { 2 } else { 64 };
/// The most holds that a new hold forgets. It is more than one, so that a shard cannot fill up with them.
const FORGOTTEN_AT_ONCE: usize = 2;

/// All holds of a limiter. `C` is the charge of a hold in a store, or `()` if there is none.
#[derive(Debug)]
pub(crate) struct HoldBook<C> {
    hasher: ahash::RandomState,
    ids: HoldIds,
    most: usize,
    len: AtomicUsize,
    // Padded: holds of different keys write different shards.
    shards: Box<[CachePadded<HoldShard<C>>]>,
}

#[derive(Debug)]
struct HoldShard<C> {
    /// The number of holds here. Written under the mutex.
    len: AtomicUsize,
    held: Mutex<ShardHolds<C>>,
}

#[derive(Debug)]
struct ShardHolds<C> {
    keys: BTreeMap<u64, KeyHolds<C>>,
    /// From when each hold can be forgotten.
    paid: BTreeSet<(u64, u64, HoldId)>,
}

#[derive(Debug)]
struct KeyHolds<C> {
    units: u128,
    /// In the order of their ends.
    holds: BTreeMap<HoldId, Held<C>>,
    /// The end of each hold, by its random bits.
    ends: BTreeMap<u128, u64>,
}

/// A hold.
#[derive(Debug)]
pub(crate) struct Held<C> {
    pub(crate) units: u64,
    /// The time from which a refund of the charge would return nothing.
    pub(crate) paid_ns: u64,
    pub(crate) charge: C,
}

/// The holds of a key.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct KeyStanding {
    /// The sum of their units.
    pub(crate) units: u128,
    /// The first and the last end, in nanoseconds.
    pub(crate) ends_ns: Option<(u64, u64)>,
}

/// Why a hold was not kept.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum NotKept {
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
        // Ordering: Relaxed. The number only limits how many holds exist.
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<C> HoldBook<C> {
    /// Creates a book for at most `most` holds.
    pub(crate) fn new(most: usize) -> Self {
        Self::with_hasher(most, ahash::RandomState::new())
    }

    /// Creates a book whose hashes of keys another process can compute.
    pub(crate) fn with_hasher(most: usize, hasher: ahash::RandomState) -> Self {
        let shard = |_| {
            let held = ShardHolds { keys: BTreeMap::new(), paid: BTreeSet::new() };
            CachePadded::new(HoldShard { len: AtomicUsize::new(0), held: Mutex::new(held) })
        };
        Self {
            hasher,
            ids: HoldIds::new(),
            most,
            len: AtomicUsize::new(0),
            shards: (0..SHARDS).map(shard).collect(),
        }
    }

    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Visits all holds, one shard at a time.
    #[allow(dead_code, reason = "rules use it")]
    pub(crate) fn for_each(&self, mut visit: impl FnMut(u64, HoldId, &Held<C>)) {
        for shard in &self.shards {
            shard.with(|held| {
                for (&hash, key) in &held.keys {
                    key.holds.iter().for_each(|(&id, hold)| visit(hash, id, hold));
                }
            });
        }
    }

    /// Returns the number of holds.
    pub(crate) fn len(&self) -> usize {
        // Ordering: Relaxed. The result is an estimate while holds come and go.
        self.len.load(Ordering::Relaxed)
    }

    /// Returns whether a key of this shard may have a hold. If not, all refunds of earlier holds are visible.
    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        // Ordering: Acquire. Pairs with the Release in `Leaving`.
        self.shard(hash).len.load(Ordering::Acquire) > 0
    }

    /// Keeps a hold until the end of its identity, if the key then holds at most `limit` units.
    pub(crate) fn keep(
        &self,
        (hash, id): (u64, HoldId),
        hold: Held<C>,
        (limit, now_ns): (u64, u64),
    ) -> Result<KeyStanding, NotKept> {
        let shard = self.shard(hash);
        shard.with(|held| {
            self.forget(shard, held, now_ns);
            let standing = held.standing(hash);
            if standing.units + u128::from(hold.units) > u128::from(limit) {
                return Err(NotKept::KeyFull(standing));
            }
            let has_room = self.has_room() || (self.forget_unpaid(shard, held, now_ns) && self.has_room());
            if !has_room {
                return Err(NotKept::BookFull);
            }
            // Ordering: Relaxed. A decision that does not see the new hold was made before it.
            shard.len.fetch_add(1, Ordering::Relaxed);
            held.insert(hash, id, hold);
            Ok(held.standing(hash))
        })
    }

    /// Removes the hold with these random bits, so that the caller settles it. Returns it with its own end, or `None` if it
    /// is settled, or was never here.
    pub(crate) fn take(&self, hash: u64, id: HoldId) -> Option<(HoldId, Held<C>)> {
        self.remove(hash, |held| {
            let end_ns = *held.keys.get(&hash)?.ends.get(&id.random())?;
            Some(HoldId::new(end_ns, id.random()))
        })
    }

    fn remove(
        &self,
        hash: u64,
        choose: impl FnOnce(&ShardHolds<C>) -> Option<HoldId>,
    ) -> Option<(HoldId, Held<C>)> {
        let shard = self.shard(hash);
        shard.with(|held| {
            let id = choose(held)?;
            let taken = held.remove(hash, id)?;
            drop(Leaving(&shard.len, &self.len));
            Some((id, taken))
        })
    }

    /// Gives a hold another identity, and so another end, in one step. Returns whether it was here.
    #[allow(dead_code, reason = "requests in progress on Redis use it")]
    pub(crate) fn renew(&self, hash: u64, (id, later): (HoldId, HoldId)) -> bool {
        self.shard(hash).with(|held| {
            let Some(hold) = held.remove(hash, id) else { return false };
            held.insert(hash, later, Held { paid_ns: later.end_ns(), ..hold });
            true
        })
    }

    /// Removes the hold of the key that ends first, so that the caller settles it.
    #[allow(dead_code, reason = "rules use it")]
    pub(crate) fn take_first(&self, hash: u64) -> Option<(HoldId, Held<C>)> {
        self.remove(hash, |held| held.first(hash))
    }

    /// Releases holds of the key that have ended: at most [`RELEASED_AT_ONCE`]. Returns whether there were any.
    pub(crate) fn release_ended(&self, hash: u64, now_ns: u64, mut release: impl FnMut(&Held<C>)) -> bool {
        let shard = self.shard(hash);
        shard.with(|held| {
            let mut any = false;
            for _ in 0..RELEASED_AT_ONCE {
                let Some(id) = held.first(hash).filter(|first| first.end_ns() <= now_ns) else { break };
                let Some(ended) = held.remove(hash, id) else { break };
                let _leaving = Leaving(&shard.len, &self.len);
                release(&ended);
                any = true;
            }
            any
        })
    }

    /// Returns the units that a key holds.
    pub(crate) fn standing(&self, hash: u64) -> KeyStanding {
        self.shard(hash).with(|held| held.standing(hash))
    }

    /// Forgets ended holds whose charge is paid.
    fn forget(&self, shard: &HoldShard<C>, held: &mut ShardHolds<C>, now_ns: u64) {
        for _ in 0..FORGOTTEN_AT_ONCE {
            match held.paid.first() {
                Some(&(paid_ns, hash, id)) if paid_ns <= now_ns => {
                    drop(held.remove(hash, id));
                    drop(Leaving(&shard.len, &self.len));
                }
                _ => return,
            }
        }
    }

    /// Counts one hold more, if there is room.
    fn has_room(&self) -> bool {
        // Ordering: Relaxed. See `Leaving`.
        let has_room = self.len.fetch_add(1, Ordering::Relaxed) < self.most;
        if !has_room {
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
        has_room
    }

    /// Forgets an ended hold of a book that is full. Its units stay charged until time has paid them. Returns whether there
    /// was one among the first of this shard.
    fn forget_unpaid(&self, shard: &HoldShard<C>, held: &mut ShardHolds<C>, now_ns: u64) -> bool {
        let mut first = held.paid.iter().take(RELEASED_AT_ONCE);
        let Some(&(_, hash, id)) = first.find(|(_, _, id)| id.end_ns() <= now_ns) else { return false };
        drop(held.remove(hash, id));
        drop(Leaving(&shard.len, &self.len));
        true
    }

    /// Returns the identity of a new hold.
    pub(crate) fn id(&self, end_ns: u64) -> HoldId {
        HoldId::new(end_ns, self.ids.next())
    }

    fn shard(&self, hash: u64) -> &HoldShard<C> {
        &self.shards[usize::from((hash >> 48) as u16) % SHARDS]
    }
}

impl<C> HoldShard<C> {
    fn with<T>(&self, work: impl FnOnce(&mut ShardHolds<C>) -> T) -> T {
        // A refund can run the caller's `Eq`, which can panic. The hold is removed by then, and the rest is as before.
        work(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<C> ShardHolds<C> {
    fn standing(&self, hash: u64) -> KeyStanding {
        let Some(key) = self.keys.get(&hash) else { return KeyStanding::default() };
        let (first, last) = (key.holds.first_key_value(), key.holds.last_key_value());
        let ends_ns = first.zip(last).map(|((first, _), (last, _))| (first.end_ns(), last.end_ns()));
        KeyStanding { units: key.units, ends_ns }
    }

    /// Returns the hold of the key that ends first.
    fn first(&self, hash: u64) -> Option<HoldId> {
        self.keys.get(&hash)?.holds.first_key_value().map(|(&id, _)| id)
    }

    fn insert(&mut self, hash: u64, id: HoldId, hold: Held<C>) {
        self.paid.insert((hold.paid_ns.max(id.end_ns()), hash, id));
        let key = self.keys.entry(hash).or_insert_with(|| KeyHolds {
            units: 0,
            holds: BTreeMap::new(),
            ends: BTreeMap::new(),
        });
        key.units += u128::from(hold.units);
        key.holds.insert(id, hold);
        key.ends.insert(id.random(), id.end_ns());
    }

    fn remove(&mut self, hash: u64, id: HoldId) -> Option<Held<C>> {
        let key = self.keys.get_mut(&hash)?;
        let hold = key.holds.remove(&id)?;
        key.ends.remove(&id.random());
        key.units -= u128::from(hold.units);
        if key.holds.is_empty() {
            self.keys.remove(&hash);
        }
        self.paid.remove(&(hold.paid_ns.max(id.end_ns()), hash, id));
        Some(hold)
    }
}
