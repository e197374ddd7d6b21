//! Lines of waiters: one line for each key that has waiters.
//!
//! ```text
//! OnceLock ─► shards ─► Mutex { key hash ─► Line { ticket ─► Waiter, … } }
//! ```
//!
//! *Order.* The waiter with the lowest ticket is the *head* of its line. Only the head asks the limiter. The other
//! waiters hold no units, so a waiter that gives up leaves only a gap in the tickets.
//!
//! *No wake-up is lost.* The protocol has these steps:
//!
//! 1. The head changes only under the shard's mutex, when the present head leaves.
//! 2. A waiter that is not the head finds that out, and stores its waker, in one critical section.
//! 3. A leaving head removes itself and takes the next waiter's waker, also in one critical section.
//! 4. If the waiter's section comes first, the leaving head finds its waker and calls it. If the head's section comes
//!    first, the waiter finds that it is the head.
//!
//! A waiter that is woken, and dropped before it looks, is already the head. It passes the turn on as it leaves. Wakers
//! are cloned, called and dropped outside the mutex, because each of these may run code of an executor, even the
//! destructor of another wait.
//!
//! *Keys by their hashes.* The hasher has its own secret. Two keys with equal hashes would share a line; the line
//! still serves in order, but more slowly. The tree of lines and the trees of waiters release their memory as they
//! shrink. A line is removed with its last waiter.

#[cfg(all(test, tollgate_loom))]
mod models;

use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::{OnceLock, PoisonError};
use std::task::Waker;

use crossbeam_utils::CachePadded;

use crate::base::sync::{AtomicUsize, Mutex, Ordering};

/// The number of shards: enough that waiters for different keys rarely use the same mutex. A thread holds the mutex for
/// one search in two small trees.
const SHARDS: usize = if cfg!(tollgate_loom) { 2 } else { 16 };

/// All lines of a limiter. Takes two words until the first wait.
#[derive(Debug)]
pub(crate) struct WaitLines {
    table: OnceLock<Box<LineTable>>,
}

#[derive(Debug)]
struct LineTable {
    hasher: ahash::RandomState,
    // Padded: waiters for different keys write different shards.
    shards: [CachePadded<Shard>; SHARDS],
}

#[derive(Debug)]
struct Shard {
    /// The number of waiters here. Written under the mutex; read without it by callers that may not have to wait.
    waiting: AtomicUsize,
    held: Mutex<ShardLines>,
}

#[derive(Debug, Default)]
struct ShardLines {
    lines: BTreeMap<u64, WaitLine>,
    next_ticket: u64,
}

#[derive(Debug)]
struct WaitLine {
    waiters: BTreeMap<u64, Waiter>,
    /// The units of all waiters that are not charged yet.
    units: u128,
    /// When the place of the head became free: the turn of the previous head, or the time at which it gave up.
    since_ns: u64,
    /// The turn of the head. If the head has not asked yet, this is `since_ns`, and the turn is not before that.
    turn_ns: u64,
    /// The clock reading at which the line last moved. It is after the previous head's turn, because timers are late.
    moved_ns: u64,
}

#[derive(Debug)]
struct Waiter {
    /// `None` after the waker was called.
    waker: Option<Waker>,
    units: u64,
    /// Whether the units are charged or about to be charged. The line then does not count them.
    charged: bool,
}

/// A waiter's place in a line.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct LinePosition {
    hash: u64,
    ticket: u64,
}

/// The units in line before a place.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Ahead {
    /// The units that are not charged yet.
    pub(crate) units: u128,
    /// No waiter in line is admitted before this time.
    pub(crate) turn_ns: u64,
}

/// Whether a place is at the head of its line.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum LineStanding {
    /// At the head of the line, which has had no head since `since_ns`.
    Head { since_ns: u64 },
    /// Behind a head whose turn is at `turn_ns`, or later if it has not asked yet. The line last moved at `moved_ns`.
    Behind { turn_ns: u64, moved_ns: u64 },
}

impl WaitLines {
    pub(crate) const fn new() -> Self {
        Self { table: OnceLock::new() }
    }

    fn table(&self) -> &LineTable {
        self.table.get_or_init(|| {
            let shard = |_| CachePadded::new(Shard { waiting: AtomicUsize::new(0), held: Mutex::default() });
            Box::new(LineTable { hasher: ahash::RandomState::new(), shards: std::array::from_fn(shard) })
        })
    }

    /// Returns whether a waiter for `key` exists. Takes a mutex only if a key of the same shard has a waiter.
    ///
    /// Sees every waiter whose `join` happens before this call.
    pub(crate) fn has<Q: Hash + ?Sized>(&self, key: &Q) -> bool {
        let Some(table) = self.table.get() else {
            return false;
        };
        let hash = table.hasher.hash_one(key);
        let shard = table.shard(hash);
        // Ordering: Relaxed. The value publishes nothing else. Zero means that no waiter whose `join` happened before
        // this load is still in line, and the modification order of this word is enough for that. The mutex protects
        // everything else.
        shard.waiting.load(Ordering::Relaxed) > 0 && shard.with(|held| held.lines.contains_key(&hash))
    }

    /// Joins the end of the key's line. Returns the place, and the units before it, or `None` if the place is the
    /// head.
    pub(crate) fn join<Q>(
        &self,
        key: &Q,
        units: u64,
        now_ns: u64,
        waker: Waker,
    ) -> (LinePosition, Option<Ahead>)
    where
        Q: Hash + ?Sized,
    {
        let table = self.table();
        let hash = table.hasher.hash_one(key);
        let shard = table.shard(hash);
        shard.with(|held| {
            let ticket = held.next_ticket;
            held.next_ticket = ticket.wrapping_add(1);
            let line = held.lines.entry(hash).or_insert_with(|| WaitLine {
                waiters: BTreeMap::new(),
                units: 0,
                since_ns: now_ns,
                turn_ns: now_ns,
                moved_ns: now_ns,
            });
            let ahead = Ahead { units: line.units, turn_ns: line.turn_ns };
            let before = (!line.waiters.is_empty()).then_some(ahead);
            line.waiters.insert(ticket, Waiter { waker: Some(waker), units, charged: false });
            line.units += u128::from(units);
            // Ordering: Relaxed, as in `has`.
            shard.waiting.fetch_add(1, Ordering::Relaxed);
            (LinePosition { hash, ticket }, before)
        })
    }

    /// Returns the standing of a place. If the place is not the head, calls `waker` when it becomes the head.
    pub(crate) fn standing(&self, place: LinePosition, waker: &Waker) -> LineStanding {
        let mut waker = Some(waker.clone());
        // `waker` then holds the old waker, which is dropped after the mutex is released.
        self.with(place, |line| {
            if line.is_head(place) {
                return LineStanding::Head { since_ns: line.since_ns };
            }
            if let Some(waiter) = line.waiters.get_mut(&place.ticket) {
                std::mem::swap(&mut waiter.waker, &mut waker);
            }
            LineStanding::Behind { turn_ns: line.turn_ns, moved_ns: line.moved_ns }
        })
        // A place is in a line from `join` to `leave`.
        .unwrap_or(LineStanding::Head { since_ns: 0 })
    }

    /// Records that the head is about to ask. From now on its units count as charged.
    pub(crate) fn asks(&self, place: LinePosition) {
        self.with(place, |line| line.set_charged(place, true));
    }

    /// Records when the head will go, and whether it is already charged.
    pub(crate) fn set_turn(&self, place: LinePosition, turn_ns: u64, charged: bool) {
        self.with(place, |line| {
            line.turn_ns = turn_ns;
            line.set_charged(place, charged);
        });
    }

    /// Leaves the line at `now_ns`. If the place was the head, its turn is free from `free_ns` on, and the next waiter
    /// is woken.
    pub(crate) fn leave(&self, place: LinePosition, free_ns: u64, now_ns: u64) {
        let shard = self.table().shard(place.hash);
        let gone = shard.with(|held| {
            let line = held.lines.get_mut(&place.hash)?;
            let was_head = line.is_head(place);
            let left = line.waiters.remove(&place.ticket)?;
            if !left.charged {
                line.units -= u128::from(left.units);
            }
            // Ordering: Relaxed, as in `has`.
            shard.waiting.fetch_sub(1, Ordering::Relaxed);
            let mut next = None;
            if line.waiters.is_empty() {
                held.lines.remove(&place.hash);
            } else if was_head {
                line.since_ns = line.since_ns.max(free_ns);
                line.turn_ns = line.since_ns;
                line.moved_ns = line.moved_ns.max(now_ns);
                next = line.waiters.first_entry().and_then(|mut next| next.get_mut().waker.take());
            }
            Some((left, next))
        });
        // Outside the mutex. The leaving waiter's own waker is dropped first.
        if let Some((left, Some(next))) = gone {
            drop(left);
            next.wake();
        }
    }

    fn with<T>(&self, place: LinePosition, work: impl FnOnce(&mut WaitLine) -> T) -> Option<T> {
        self.table().shard(place.hash).with(|held| held.lines.get_mut(&place.hash).map(work))
    }

    /// Returns 64 random bits, different for each place.
    pub(crate) fn random(&self, place: LinePosition) -> u64 {
        self.table().hasher.hash_one((place.ticket, place.hash))
    }

    /// Returns the number of waiters.
    pub(crate) fn waiters(&self) -> usize {
        // Ordering: Relaxed. The result is an estimate while waiters come and go.
        let waiting = |shard: &CachePadded<Shard>| shard.waiting.load(Ordering::Relaxed);
        self.table.get().map_or(0, |table| table.shards.iter().map(waiting).sum())
    }

    /// Returns the number of lines.
    pub(crate) fn len(&self) -> usize {
        let lines = |shard: &CachePadded<Shard>| shard.with(|held| held.lines.len());
        self.table.get().map_or(0, |table| table.shards.iter().map(lines).sum())
    }
}

impl LineTable {
    fn shard(&self, hash: u64) -> &Shard {
        // The top bits: the trees order by all bits, but hashes of two shards are never compared.
        let index = usize::from((hash >> 48) as u16) % SHARDS;
        &self.shards[index]
    }
}

impl Shard {
    fn with<T>(&self, work: impl FnOnce(&mut ShardLines) -> T) -> T {
        // Only a failed allocation can panic under the mutex, before anything has changed.
        work(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl WaitLine {
    fn is_head(&self, place: LinePosition) -> bool {
        self.waiters.first_key_value().is_some_and(|(&first, _)| first == place.ticket)
    }

    fn set_charged(&mut self, place: LinePosition, charged: bool) {
        let Some(waiter) = self.waiters.get_mut(&place.ticket) else {
            return;
        };
        let units = u128::from(waiter.units);
        match (std::mem::replace(&mut waiter.charged, charged), charged) {
            (false, true) => self.units -= units,
            (true, false) => self.units += units,
            _ => {}
        }
    }
}
