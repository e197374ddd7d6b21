//! The sketch store: it counts windows for any number of keys in constant memory.
//!
//! | part | contents |
//! |---|---|
//! | [`crate::sketch::window`] | the doorkeeper, which detects the first request of a key in a window, and the counts of windows |
//! | `sizes` | the sizes of the doorkeeper and the counters for a capacity |
//! | `saturation` | how full the sketch is |
//! | this file | decisions, hashing, batches |
//!
//! # Deciding
//! The estimate of a key in a window is never below its true count. It is the minimum of the key's counters, plus one
//! if the doorkeeper knows the key. The doorkeeper alone keeps the first unit of a key in a window, so the many keys
//! that send one request do not touch any counter.
//!
//! *The doorkeeper does not know the key.* The key has used nothing in this window, whatever its counters hold.
//!
//! 1. The store decides with a count of zero.
//! 2. If the cost is more than one unit, the store raises the counters.
//! 3. The store inserts the key into the doorkeeper. If several threads race here, the insert returns "first" to
//!    exactly one of them, and its request is admitted. The other threads see the count of that request, and decide
//!    again.
//!
//! *The doorkeeper knows the key.* The store decides from the estimate, and charges by exchanges that succeed only if
//! the counters still hold the values of that estimate ([`WindowCounters`]). Under a fixed window with a limit of one,
//! the key has used its limit, so the store does not read its counters.
//!
//! A denial writes nothing, with two exceptions. After a lost race, the counters that the lost attempt raised stay
//! raised. Under a sliding window, the charge of a request that is denied in step 3 below stays.
//!
//! # Sliding windows
//! The decision also includes the estimate of the last window. So a thread that lags in the last window must not add
//! its charge after another thread has read that estimate. Each thread writes first and then looks, with a fence in
//! between:
//!
//! 1. It charges its window.
//! 2. It checks whether the next window has begun in the words of its key. If so, it starts again in that window.
//! 3. It reads the estimate of the last window again. If the estimate has grown too much, it denies the request.
//!
//! At least one of two such threads sees the write of the other thread. In both cases the charge is not undone, so the
//! client has less quota left.

#[cfg(all(test, tollgate_loom))]
mod models;
mod saturation;
mod sizes;

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

pub use self::saturation::Saturation;
use self::sizes::Sizes;
use crate::algorithm::FixedWindow;
use crate::algorithm::compact::{WindowAlgorithm, WindowCounts, WindowState};
use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Outcome};
use crate::base::quota::{QuotaError, Reason};
use crate::base::sync::fence_after_rmw;
use crate::sketch::window::{
    Commit, Insert, Known, Late, Lines, Moment, Probe, Rows, WindowCounters, WindowedBloom, Windows, tag_bits,
};
use crate::store::capacity::Capacity;
use crate::store::op::{Debts, HashedStore, KeyTrace, ManyKeys, Operation, Store, StoreBase};
use crate::store::present::{PresentStore, States};

/// Counts windows in a sketch: constant memory, whatever the number of keys.
///
/// The sketch does not store keys. Each key has a few bits and counters that it shares with other keys, so the count
/// for a key is never below its true count. No key is ever admitted more than its limit. A key may be denied early, and
/// this is more frequent when the sketch is fuller ([`Saturation`]). For example, 4 MiB count 17 M admitted units of
/// 10 M keys (Zipf 1.0) in one window with a limit of 100 per key. About one deserving request in ten thousand is then
/// denied.
///
/// Prefer [`Compact`](crate::Compact) if it has room for the keys that owe. It frees room as each key pays its debt,
/// and a sketch frees room only at the end of a window. Use a sketch if the memory has only 1 to 8 bytes for each busy
/// key, which is too little for slots. In a flood of fresh keys, each key takes three bits. The flood causes no denial
/// of another key as long as the doorkeeper has room.
///
/// Created by [`Builder::sketch`](crate::Builder::sketch). Windows are aligned to the Unix epoch. A new window begins
/// without any work, so no call is slow because of it.
///
/// # Consistency
/// In one window, a key is never admitted more than its limit, under any interleaving. Races can deny a request
/// although there was room for it, once, in three cases:
///
/// - First checks of one key race in a window, and one of them costs more than one unit.
/// - Checks of one key race on both sides of the boundary between two sliding windows.
/// - Checks lose a race for counters that are all shared with other keys.
///
/// The units that such a check charged or raised are not given back.
///
/// If a thread is preempted for more than half of the range of tags (45 days for windows of a minute, 2 hours for
/// windows of a millisecond), it treats newer counts as old ones. If the limiter's own clock is set back by two windows
/// or more, counting starts again from zero, so a clock that was wrong does not lock out any client.
///
/// A word holds the counts of one window only. If a check's time is in an earlier window than a word of its key, the
/// check counts in the later window. So if times that the caller passes ([`at`](crate::RateLimiter::at))
/// step back, a check counts in some window between its own and the newest one. Each of these windows admits the limit.
/// If some calls use the clock and others pass times, the passed times must be ahead of the clock by less than two
/// windows. Otherwise each kind of call treats the counts of the other kind as old.
///
/// # Source
/// Cormode and Muthukrishnan 2005 (count-min); Estan and Varghese 2002 (conservative update); Einziger, Friedman and
/// Manes 2017, `TinyLFU` (doorkeeper); Putze, Sanders and Singler 2007 (blocked Bloom filters).
pub struct Sketch<A: WindowAlgorithm = FixedWindow, H = ahash::RandomState> {
    plan: SketchPlan<A>,
    hasher: H,
    /// Shared with sketches that count the same windows for other limits.
    tables: Arc<Tables>,
}

/// A sketch without its tables and hasher: all that a quota and a capacity decide.
#[derive(Clone, Debug)]
pub(crate) struct SketchPlan<A: WindowAlgorithm> {
    algorithm: A,
    word: A::CompactState,
    sizes: Sizes,
}

/// The tables that hold the counts. They do not depend on the limit.
#[derive(Debug)]
struct Tables {
    windows: Windows,
    seen: WindowedBloom,
    counters: WindowCounters,
}

/// The places of a key in the tables.
#[derive(Copy, Clone, Debug)]
pub struct SketchKey {
    hash: u64,
    probe: Probe,
    lines: Lines,
}

/// A request for a key.
#[derive(Copy, Clone, Debug)]
struct Request {
    operation: Operation,
    cost: u64,
}

/// The result of one attempt.
#[must_use]
enum Attempt {
    Decided(Decision),
    /// Another thread was first. The caller attempts the request again.
    Lost,
    /// Other threads are in a later window. The caller attempts the request again in that window.
    Late(Late),
}

/// The effect of a request, given the counts of its key.
#[must_use]
enum Effect {
    /// Charges nothing. The decision is about this number of units.
    Answer(Outcome, u64),
    /// Charges this number of units, at least one.
    Charge(u64),
}

impl Request {
    /// The units that must stay free after the charge.
    #[inline(always)]
    fn headroom(&self) -> u64 {
        match self.operation {
            Operation::CheckKeeping { headroom } | Operation::TakeKeeping { headroom } => headroom,
            _ => 0,
        }
    }

    /// Decides `cost` units with the headroom. Also returns the number of units that the decision is about.
    #[inline(always)]
    fn judge<A: WindowState>(&self, word: &A, counts: &WindowCounts, cost: u64) -> (Outcome, u64) {
        let headroom = self.headroom();
        let all = cost.saturating_add(headroom);
        match word.judge_counts(counts, all) {
            Outcome::Allowed if headroom > 0 => (word.judge_counts(counts, cost), cost),
            outcome => (outcome, all),
        }
    }

    #[inline(always)]
    fn effect<A: WindowState>(&self, word: &A, counts: &WindowCounts) -> Effect {
        let &Self { operation, cost } = self;
        let remaining = || word.answer(Outcome::Denied, counts, 0, cost).remaining();
        let cost = match operation {
            Operation::Check
            | Operation::CheckKeeping { .. }
            | Operation::CheckOversized
            | Operation::Reserve { .. } => cost,
            // A counter holds at most the limit.
            Operation::Force => cost.min(word.limit().saturating_sub(counts.current)),
            Operation::TakeKeeping { headroom } => cost.min(remaining().saturating_sub(headroom).max(1)),
            Operation::Take if word.judge_counts(counts, cost) == Outcome::Allowed => cost,
            Operation::Take => remaining().max(1).min(cost),
        };
        let (outcome, units) = match operation {
            Operation::Force => (Outcome::Allowed, cost),
            _ => self.judge(word, counts, cost),
        };
        if outcome == Outcome::Allowed && cost > 0 {
            Effect::Charge(cost)
        } else {
            Effect::Answer(outcome, units)
        }
    }
}

impl Tables {
    #[inline(always)]
    fn key(&self, hash: u64) -> SketchKey {
        let Self { windows, seen, counters } = self;
        SketchKey { hash, probe: seen.probe(windows, hash), lines: counters.lines(hash) }
    }

    /// The estimate of a key in the last window, or zero if the algorithm does not use it.
    #[inline(always)]
    fn last<A: WindowState, const N: usize, const PER: usize>(
        &self,
        key: &SketchKey,
        window: u64,
    ) -> Result<u64, Late> {
        let Self { windows, seen, counters } = self;
        if !A::LAST || !seen.contained(windows, &key.probe, window)? {
            return Ok(0);
        }
        let rows: Rows<N, PER> = counters.rows(&key.lines);
        Ok(counters.last(windows, &rows, window)? + 1)
    }

    /// Decides without a charge.
    fn peek<A: WindowState, const N: usize, const PER: usize>(
        &self,
        word: &A,
        key: &SketchKey,
        moment: &Moment,
        cost: u64,
    ) -> Result<Decision, Late> {
        let Self { windows, seen, counters } = self;
        let &Moment { now_ns, window, to_end_ns } = moment;
        let previous = self.last::<A, N, PER>(key, window)?;
        let current = if seen.find(windows, &key.probe, window)?.is_in() {
            let rows: Rows<N, PER> = counters.rows(&key.lines);
            counters.estimate(windows, &rows, window)? + 1
        } else {
            0
        };
        let counts = WindowCounts { previous, current, to_end_ns };
        Ok(word.answer(word.judge_counts(&counts, cost), &counts, now_ns, cost).uncharged())
    }

    /// Decides one request and charges it.
    #[inline(always)]
    fn attempt<A: WindowState, const N: usize, const PER: usize>(
        &self,
        word: &A,
        key: &SketchKey,
        moment: &Moment,
        request: Request,
    ) -> Result<Attempt, Late> {
        let Self { windows, seen, counters } = self;
        let &Moment { now_ns, window, to_end_ns } = moment;
        let previous = self.last::<A, N, PER>(key, window)?;
        let known = seen.find(windows, &key.probe, window)?;
        if !known.is_in() {
            return self.attempt_first::<A, N, PER>(word, key, moment, request, previous, &known);
        }
        if !A::LAST && word.limit() == 1 {
            // The unit in the doorkeeper was the full limit, so no counter is used.
            let counts = WindowCounts { previous, current: 1, to_end_ns };
            if let Effect::Answer(outcome, units) = request.effect(word, &counts) {
                return Ok(Attempt::Decided(word.answer(outcome, &counts, now_ns, units).uncharged()));
            }
        }
        let rows: Rows<N, PER> = counters.rows(&key.lines);
        let read = counters.read(windows, &rows, window)?;
        let counts = WindowCounts { previous, current: read.least + 1, to_end_ns };
        let cost = match request.effect(word, &counts) {
            Effect::Charge(cost) => cost,
            Effect::Answer(outcome, units) => {
                return Ok(Attempt::Decided(word.answer(outcome, &counts, now_ns, units).uncharged()));
            }
        };
        if counters.charge(windows, &read, (window, read.least + cost)) == Commit::Lost {
            return Ok(Attempt::Lost);
        }
        self.charged::<A, N, PER>(word, key, moment, request, &counts, cost)
    }

    /// [`Tables::attempt`] for a key that has used nothing in this window.
    #[inline(always)]
    fn attempt_first<A: WindowState, const N: usize, const PER: usize>(
        &self,
        word: &A,
        key: &SketchKey,
        moment: &Moment,
        request: Request,
        previous: u64,
        known: &Known<'_>,
    ) -> Result<Attempt, Late> {
        let Self { windows, seen: _, counters } = self;
        let &Moment { now_ns, window, to_end_ns } = moment;
        let counts = WindowCounts { previous, current: 0, to_end_ns };
        let cost = match request.effect(word, &counts) {
            Effect::Charge(cost) => cost,
            Effect::Answer(outcome, units) => {
                return Ok(Attempt::Decided(word.answer(outcome, &counts, now_ns, units).uncharged()));
            }
        };
        // The counters hold all units except the first, which the doorkeeper keeps.
        if cost > 1 {
            counters.raise(windows, &counters.rows::<N, PER>(&key.lines), (window, cost - 1))?;
        }
        if known.insert(windows, window)? == Insert::Again {
            return Ok(Attempt::Lost);
        }
        self.charged::<A, N, PER>(word, key, moment, request, &counts, cost)
    }

    /// The decision for a request whose key had these counts and was charged `cost` units.
    #[inline(always)]
    fn charged<A: WindowState, const N: usize, const PER: usize>(
        &self,
        word: &A,
        key: &SketchKey,
        moment: &Moment,
        request: Request,
        counts: &WindowCounts,
        cost: u64,
    ) -> Result<Attempt, Late> {
        let &Moment { now_ns, window, .. } = moment;
        let after = WindowCounts { current: counts.current + cost, ..*counts };
        if A::LAST {
            fence_after_rmw();
            // The doorkeeper uses one word for the last and the next window. If the next window has begun, this read
            // returns `Late`.
            let previous = self.last::<A, N, PER>(key, window)?;
            if previous > counts.previous && request.operation != Operation::Force {
                let (outcome, units) = request.judge(word, &WindowCounts { previous, ..*counts }, cost);
                let answer = word.answer(outcome, &WindowCounts { previous, ..after }, now_ns, units);
                let is_allowed = outcome == Outcome::Allowed;
                return Ok(Attempt::Decided(if is_allowed { answer } else { answer.uncharged() }));
            }
        }
        Ok(Attempt::Decided(word.answer(Outcome::Allowed, &after, now_ns, cost)))
    }

    fn bytes(&self) -> usize {
        self.seen.bytes() + self.counters.bytes()
    }
}

impl<A: WindowAlgorithm> SketchPlan<A> {
    /// # Errors
    /// Returns an error if no word can hold the quota, if the windows are too short, or if the capacity is too small.
    pub(crate) fn new(algorithm: A, capacity: Capacity) -> Result<Self, QuotaError> {
        let word = algorithm.compact(&[], 0)?;
        if let Some(min_ns) = windows_of(&word).too_short() {
            return Err(Reason::ShortWindow { algorithm: "sketch", got_ns: word.window_ns(), min_ns }.into());
        }
        let sizes = Sizes::new(capacity, word.limit(), <A::CompactState as WindowState>::LAST)?;
        Ok(Self { algorithm, word, sizes })
    }

    /// The bytes of the tables.
    pub(crate) fn bytes(&self) -> u64 {
        self.sizes.bytes()
    }

    /// The decision for a key that was never charged, in a sketch that holds nothing. Charges nothing.
    pub(crate) fn peek(&self, at: CheckTime, cost: u64) -> Decision {
        let Moment { now_ns, to_end_ns, .. } = windows_of(&self.word).moment(at.ns());
        let counts = WindowCounts { previous: 0, current: 0, to_end_ns };
        self.word.answer(self.word.judge_counts(&counts, cost), &counts, now_ns, cost).uncharged()
    }
}

/// New windows for this word.
fn windows_of(word: &impl WindowState) -> Windows {
    Windows::new(word.window_ns(), tag_bits(word.window_ns()), u64::MAX)
}

impl<A: WindowAlgorithm, H: BuildHasher> Sketch<A, H> {
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub(crate) fn new(plan: SketchPlan<A>, hasher: H) -> Result<Self, QuotaError> {
        let (sizes, word, windows) = (plan.sizes, &plan.word, windows_of(&plan.word));
        let last = <A::CompactState as WindowState>::LAST;
        let refused = || QuotaError::from(Reason::Memory { bytes: sizes.bytes() });
        let seen = WindowedBloom::new(sizes.seen, last).ok_or_else(refused)?;
        // The doorkeeper keeps the first unit.
        let counters =
            WindowCounters::new(sizes.counters, word.limit() - 1, last, &windows).ok_or_else(refused)?;
        let tables = Arc::new(Tables { windows, seen, counters });
        Ok(Self { plan, hasher, tables })
    }

    /// Returns a store with the same counts and another limit.
    ///
    /// Returns `None` if the windows differ, or if the counters cannot hold the limit.
    pub(crate) fn with_limit_of(&self, algorithm: &A) -> Option<Self>
    where
        H: Clone,
    {
        let word = algorithm.compact(&[], 0).ok()?;
        let fits =
            word.window_ns() == self.plan.word.window_ns() && word.limit() - 1 <= self.tables.counters.most();
        let plan = SketchPlan { algorithm: algorithm.clone(), word, sizes: self.plan.sizes };
        fits.then(|| Self { plan, hasher: self.hasher.clone(), tables: Arc::clone(&self.tables) })
    }

    pub(crate) fn plan(&self) -> &SketchPlan<A> {
        &self.plan
    }

    pub(crate) fn algorithm(&self) -> &A {
        &self.plan.algorithm
    }

    pub(crate) fn saturation(&self, now_ns: u64) -> Saturation {
        let Tables { windows, seen, counters } = &*self.tables;
        Saturation::of(windows, seen, counters, windows.index(now_ns), self.plan.word.limit())
    }

    #[inline(always)]
    fn attempt(&self, key: &SketchKey, moment: &Moment, request: Request) -> Attempt {
        let (tables, word) = (&*self.tables, &self.plan.word);
        let attempt = if tables.counters.is_together() {
            tables.attempt::<_, 2, 2>(word, key, moment, request)
        } else {
            tables.attempt::<_, 4, 1>(word, key, moment, request)
        };
        attempt.unwrap_or_else(Attempt::Late)
    }

    /// Charges a key after a failed attempt. It is out of line and takes only the hash, so that the first attempt does
    /// not have to keep other values for this call.
    #[cold]
    #[inline(never)]
    fn charge_again(&self, hash: u64, now_ns: u64, request: Request, mut late: Option<Late>) -> Decision {
        let Tables { windows, .. } = &*self.tables;
        let (key, mut moment) = (self.tables.key(hash), windows.moment(now_ns));
        loop {
            if let Some(late) = late.take() {
                moment = windows.catch_up(moment, late);
            }
            match self.attempt(&key, &moment, request) {
                Attempt::Decided(decision) => return decision,
                Attempt::Lost => {}
                Attempt::Late(now_late) => late = Some(now_late),
            }
        }
    }
}

impl<A: WindowAlgorithm, H> ManyKeys for Sketch<A, H> {}

/// A sketch cannot take over debts, so no key owes anything that was carried over.
impl<A: WindowAlgorithm> Debts for SketchPlan<A> {
    fn paid_in_ns(&self, _at_ns: u64, _units: u64) -> u64 {
        0
    }

    fn left(&self, _at_ns: u64, _units: u64, _now_ns: u64) -> u64 {
        0
    }

    fn burst(&self) -> u64 {
        self.word.limit()
    }

    fn owed(&self, decision: &Decision) -> u64 {
        decision.owed()
    }
}

impl<A: WindowAlgorithm, H: BuildHasher, Q: Hash + ?Sized> Store<Q> for Sketch<A, H> {
    type Prepared<'k>
        = SketchKey
    where
        Q: 'k;

    // A charge takes more than one exchange.
    type Ticket<'s>
        = Decision
    where
        Self: 's;

    #[inline(always)]
    fn prepare(&self, key: &Q) -> SketchKey {
        self.prepare_hash(self.hash(key))
    }

    #[inline(always)]
    fn prefetch(&self, key: SketchKey) {
        self.tables.seen.approach(&key.probe);
        self.tables.counters.approach(&key.lines);
    }

    #[inline(always)]
    fn apply(&self, key: SketchKey, operation: Operation, at: CheckTime, cost: u64) -> Decision {
        let (now_ns, request) = (at.ns(), Request { operation, cost });
        match self.attempt(&key, &self.tables.windows.moment(now_ns), request) {
            Attempt::Decided(decision) => decision,
            Attempt::Lost => self.charge_again(key.hash, now_ns, request, None),
            Attempt::Late(late) => self.charge_again(key.hash, now_ns, request, Some(late)),
        }
    }

    fn peek(&self, key: SketchKey, at: CheckTime, cost: u64) -> Decision {
        let (tables, word) = (&*self.tables, &self.plan.word);
        let mut moment = tables.windows.moment(at.ns());
        loop {
            let decided = if tables.counters.is_together() {
                tables.peek::<_, 2, 2>(word, &key, &moment, cost)
            } else {
                tables.peek::<_, 4, 1>(word, &key, &moment, cost)
            };
            match decided {
                Ok(decision) => return decision,
                Err(late) => moment = tables.windows.catch_up(moment, late),
            }
        }
    }

    fn decide(&self, key: SketchKey, at: CheckTime, cost: u64) -> Decision {
        Store::<Q>::peek(self, key, at, cost)
    }

    /// Returns 0: keys share the counters, so a refund cannot lower them.
    fn refund(&self, _key: SketchKey, _at: CheckTime, _charge: &Decision, _units: u64) -> u64 {
        0
    }

    /// Returns 0, as a refund does.
    fn give_back(&self, _key: SketchKey, _at: CheckTime, _units: u64) -> u64 {
        0
    }

    fn key_hash(&self, key: &Q) -> u64 {
        self.hash(key)
    }

    fn refund_traced<B: BuildHasher>(
        &self,
        _key: KeyTrace<'_, B>,
        _at: CheckTime,
        _charge: &Decision,
    ) -> u64 {
        0
    }
}

impl<A: WindowAlgorithm, H> StoreBase for Sketch<A, H> {
    fn can_refund(&self) -> bool {
        false
    }

    fn burst(&self) -> u64 {
        self.plan.burst()
    }
}

impl<A: WindowAlgorithm, H: BuildHasher> HashedStore for Sketch<A, H> {
    #[inline]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
    }

    #[inline(always)]
    fn prepare_hash(&self, hash: u64) -> SketchKey {
        self.tables.key(hash)
    }
}

impl<A: WindowAlgorithm, H> States for Sketch<A, H> {
    fn clear(&self) {
        self.tables.seen.clear();
        self.tables.counters.clear();
        self.tables.windows.clear();
    }

    fn state_bytes(&self) -> usize {
        self.tables.bytes()
    }
}

impl<A: WindowAlgorithm, H> PresentStore for Sketch<A, H> {
    type Store = Self;

    fn present<T>(&self, property: impl FnOnce(&Self) -> T) -> T {
        property(self)
    }
}

impl<A: WindowAlgorithm, H> fmt::Debug for Sketch<A, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sketch")
            .field("algorithm", &self.plan.algorithm)
            .field("state_bytes", &self.tables.bytes())
            .finish_non_exhaustive()
    }
}
