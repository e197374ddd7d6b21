//! The cap of a keyed store, and the room of one key under it.

use std::hash::{BuildHasher, Hash};
use std::mem::forget;

use crossbeam_utils::CachePadded;

use super::nodes::KeyNode;
use super::table::{GRACE_NS, Occupied, Replaced};
use super::{Absent, Keyed, Lookup, WhenFull};
use crate::algorithm::Algorithm;
use crate::algorithm::step::Tail;
use crate::base::decision::{Decision, Facts, Outcome};
use crate::base::reclaim::Pinned;
use crate::base::sync::{AtomicUsize, Ordering};
use crate::store::state::{Admission, Kill, Request};

/// The number of keys that a full store looks at to forget one of them.
const TO_FORGET: usize = 6;
/// The number of keys that a full store looks at before it gives a new key no place, if its cap is above
/// [`FULLY_SEARCHED_CAP`].
const TO_REFUSE: usize = 12;
/// A store with a cap up to this value looks at all of its keys before it gives a new key no place.
const FULLY_SEARCHED_CAP: usize = 256;

pub(super) struct Cap {
    pub(super) max: usize,
    pub(super) when_full: WhenFull,
    /// Keys that the store holds or is about to hold. Only stores with a cap write this shared line, and only at first
    /// sight and removal.
    pub(super) held: CachePadded<AtomicUsize>,
}

impl Cap {
    /// The number of keys that a full store looks at for each new key.
    pub(super) fn searched(&self) -> usize {
        match self.when_full {
            WhenFull::Forget => TO_FORGET,
            WhenFull::Deny | WhenFull::Admit if self.max <= FULLY_SEARCHED_CAP => self.max,
            WhenFull::Deny | WhenFull::Admit => TO_REFUSE,
        }
    }
}

/// The room of one key under the cap. When it is dropped, the room is given back, unless a node has taken it. This also
/// happens if the key's own code panics.
pub(super) struct Room<'s, K, T: Tail> {
    pub(super) cap: Option<&'s Cap>,
    /// The key that was just removed to make this room.
    pub(super) replaced: Option<Replaced<'s, K, T>>,
}

impl<K, T: Tail> Room<'_, K, T> {
    /// Records that a node owns the room now, and that the removed key was passed on.
    pub(super) fn taken(self) {
        debug_assert!(self.replaced.is_none(), "a filled slot takes the key that it replaces");
        forget(self);
    }
}

impl<K, T: Tail> Drop for Room<'_, K, T> {
    fn drop(&mut self) {
        if let Some(cap) = self.cap {
            cap.held.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Room for a key, or the key that may be removed first among those that were searched.
type RoomOrFirst<'s, K, T> = Result<Room<'s, K, T>, Option<Occupied<'s, K, T>>>;

impl<K, A, H> Keyed<K, A, H>
where
    K: Hash + Eq + Send + Sync + 'static,
    A: Algorithm,
    H: BuildHasher,
{
    /// How long a key must be idle before a new key at the cap removes it. A new key may have fewer units than an idle one, which
    /// then keeps its place for a while.
    const GRACE_AT_CAP_NS: u64 = if A::HAS_FIRST_FILL { GRACE_NS } else { 0 };

    /// Returns room for one key under the cap, after the removal of an idle key if necessary.
    ///
    /// On failure, returns the key that may be removed first among the searched keys.
    // Always inlined at its one call. Otherwise its result is copied with wide loads, which wait for the stores of its words.
    #[inline(always)]
    pub(super) fn make_room<'s>(
        &'s self,
        hash: u64,
        now_ns: u64,
        guard: &'s Pinned,
    ) -> RoomOrFirst<'s, K, A::Tail> {
        let Some(cap) = &self.cap else {
            return Ok(Room { cap: None, replaced: None });
        };
        // Ordering: Relaxed, here and where room is given back. This is only a count; one node or one call owns each
        // unit of it.
        let more = |held| if held < cap.max { Some(held + 1) } else { None };
        let take = || {
            let taken = cap.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
            taken.ok().map(|_| Room { cap: Some(cap), replaced: None })
        };
        if let Some(room) = take() {
            return Ok(room);
        }
        let idle_since_ns = now_ns.saturating_sub(Self::GRACE_AT_CAP_NS);
        // A new key that replaces another one in any case stays in its own lines, which it writes anyway. Otherwise each key
        // searches at another position, and at another one when it comes again, without a counter that threads share. So a
        // flood of new keys covers the whole table.
        let place = match cap.when_full {
            WhenFull::Forget => hash,
            WhenFull::Deny | WhenFull::Admit => {
                self.table.hash(hash ^ now_ns.wrapping_mul(0x9E37_79B9_7F4A_7C15))
            }
        };
        loop {
            let until_idle =
                |node: &KeyNode<K, A::Tail>| node.state.until_idle(&self.algorithm, idle_since_ns);
            let soonest = match self.table.search(place, cap.searched(), guard, until_idle) {
                Some((0, held)) => {
                    if held.node.state.kill_if_idle(&self.algorithm, idle_since_ns) == Kill::Done {
                        // The room passes from the removed node to this call. The count stays the same.
                        let replaced = Some(self.table.replace(held, guard));
                        return Ok(Room { cap: Some(cap), replaced });
                    }
                    // Another thread has charged or removed this key.
                    continue;
                }
                soonest => soonest.map(|(_, held)| held),
            };
            return take().ok_or(soonest);
        }
    }

    /// The decision for a key that has no room under the cap, and for which no other key is forgotten.
    #[cold]
    #[inline(never)]
    pub(super) fn beyond_cap<'s, Q>(
        &'s self,
        now_ns: u64,
        ask: &Request<'_, A>,
        absent: &Absent<'s, Q>,
        first: &Admission,
        soonest: Option<Occupied<'s, K, A::Tail>>,
    ) -> Decision
    where
        Q: Lookup<K> + ?Sized,
    {
        let (&Absent { key, hash, guard, .. }, fresh) = (absent, first.decision);
        // Another thread may have taken the last room for this same key.
        if let Some(node) = self.live(key, hash, guard)
            && let Ok(decision) = node.state.apply(ask)
        {
            return decision;
        }
        let Some(Cap { when_full: WhenFull::Deny | WhenFull::Forget, .. }) = self.cap else {
            // Also a new key that begins with less than its cost: without a state, it would never refill.
            let outcome = if fresh.is_never() { Outcome::Never } else { Outcome::Allowed };
            return Decision::new(outcome, fresh.cost(), fresh.limit(), now_ns, *fresh.facts()).uncharged();
        };
        // Denies the new key, with the time until a held key becomes idle.
        let reset_ns = |held: Occupied<'_, K, A::Tail>| {
            let decision = held.node.state.peek(&self.algorithm, now_ns, 0).ok()?;
            Some(decision.reset_ns().saturating_add(Self::GRACE_AT_CAP_NS).max(1))
        };
        let retry_ns = soonest.and_then(reset_ns).unwrap_or(1);
        let facts = Facts::Plain { remaining: 0, retry_ns, reset_ns: retry_ns, delay_ns: 0 };
        Decision::new(Outcome::Denied, fresh.cost(), fresh.limit(), now_ns, facts)
    }
}
