//! The sketch store: windows for any number of keys in constant memory, whatever their number.
//!
//! | part | holds |
//! |---|---|
//! | [`crate::sketch::window`] | who comes for the first time in a window, and counts of windows |
//! | `sizes` | from bytes or traffic to sizes |
//! | `saturation` | how full it is |
//! | here | deciding, hashing, batches |
//!
//! # Deciding
//! What was counted for a key in a window is at most its estimate: the least of its counters, and one more if the
//! doorkeeper knows it. The first unit of a key in a window is kept by the doorkeeper alone, so that the many keys that
//! come once touch no counter.
//!
//! *A key that the doorkeeper does not know* has used nothing: it is decided so, whatever its counters hold. More than one
//! unit is raised into the counters first, and then the key is put in: of those who race, one is told that it was the first,
//! and is admitted; the others see its count, and decide anew.
//!
//! *A key that it knows* is charged by exact exchanges ([`WindowCounters`]), from exactly the estimate that was decided
//! on. Under a fixed limit of one it has used all, so its counters are not read. Denials write nothing, but for those below.
//!
//! # Sliding windows
//! The last window's estimate weighs too, so a charge of a thread that lags in the last window must not come after it was
//! read for this one. Both write and then look, with a fence in between: who has charged a window looks whether the next one
//! has begun where its key is, and if so begins again there; and reads the last window's estimate again, and denies if it
//! has grown too much. At least one of two such threads sees the other. In both cases the charge stays where it is, against
//! the client.

#[cfg(all(test, tollgate_loom))]
mod models;
mod saturation;
mod sizes;

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

pub use self::saturation::Saturation;
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
use crate::store::op::{Debts, HashedStore, ManyKeys, Operation, Store};

/// Counts of windows in a sketch: constant memory, whatever the number of keys.
///
/// Nothing is kept of a key at all: it has a few bits and counters that it shares with others. So the counts that it is
/// decided by are what was counted for it, or more: nobody is ever admitted more than the limit, and a key may be denied
/// early, the more often the fuller the sketch is ([`Saturation`]). Four MiB count 17 M admitted units of 10 M keys (Zipf
/// 1.0) in one window of 100 a key, and deny about one deserving request in ten thousand.
///
/// Prefer [`Compact`](crate::Compact) where it has room for the keys that owe: it forgets as keys pay, this one by whole
/// windows. This one is for more busy keys than there is memory for, at 1 to 8 bytes each; and a flood of ever new keys takes
/// three bits for each of them, which denies nobody as long as the doorkeeper has room for them.
///
/// Made by [`Builder::sketch`](crate::Builder::sketch). Windows are aligned to the Unix epoch, and turn by themselves: no call
/// pays for a turn.
///
/// # Consistency
/// Never more than the limit is admitted to a key in one window, under any interleaving. Races can deny what there was room for,
/// once: first checks of one key in a window of which one costs more than a unit; checks of one key on both sides of a
/// sliding window's turn; and checks that lost a race for counters that all are shared. What they charged or raised stays.
///
/// A thread that is held up for more than half of the range of tags (45 days for windows of a minute, 2 hours for a millisecond)
/// takes newer counts for old ones. If the limiter's own clock is set back by two windows or more, counting begins anew: nobody is
/// locked out by a clock that was wrong.
///
/// A check of an earlier window than others have reached, whose key shares a word with theirs, is counted in the window that they
/// are in, since the word knows that one only. So times that the caller says ([`check_at`](crate::RateLimiter::check_at)) and
/// that step back are counted in some window between their own and the newest, each of which admits the limit. If calls by the
/// clock are made too, given times must not be ahead of it by two windows or more: each would take the other's for old.
///
/// # Source
/// Cormode and Muthukrishnan 2005 (count-min); Estan and Varghese 2002 (conservative update); Einziger, Friedman and
/// Manes 2017, `TinyLFU` (doorkeeper); Putze, Sanders and Singler 2007 (blocked Bloom filters).
pub struct Sketch<A: WindowAlgorithm = FixedWindow, H = ahash::RandomState> {
    algorithm: A,
    word: A::CompactState,
    hasher: H,
    /// Shared with those that count the same windows for other limits.
    tables: Arc<Tables>,
}

/// Where the counts are: what does not depend on the limit.
#[derive(Debug)]
struct Tables {
    windows: Windows,
    seen: WindowedBloom,
    counters: WindowCounters,
}

/// A key's place in the tables.
#[derive(Copy, Clone, Debug)]
pub struct SketchKey {
    hash: u64,
    probe: Probe,
    lines: Lines,
}

/// What is asked of a key.
#[derive(Copy, Clone, Debug)]
struct Request {
    operation: Operation,
    cost: u64,
}

/// What came of one attempt.
#[must_use]
enum Attempt {
    Decided(Decision),
    /// Another thread was first: all begins again.
    Lost,
    /// Others are in a later window: all begins again there.
    Late(Late),
}

/// What a request comes to, given a key's counts.
#[must_use]
enum Plan {
    /// Nothing is charged. The units are those that the answer is about.
    Answer(Outcome, u64),
    /// So many units, one or more.
    Charge(u64),
}

impl Request {
    /// The units that there must be room for besides those that are charged.
    #[inline(always)]
    fn headroom(&self) -> u64 {
        match self.operation {
            Operation::CheckKeeping { headroom } | Operation::TakeKeeping { headroom } => headroom,
            _ => 0,
        }
    }

    /// Decides `cost` units with the headroom; about how many units.
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
    fn plan<A: WindowState>(&self, word: &A, counts: &WindowCounts) -> Plan {
        let &Self { operation, cost } = self;
        let remaining = || word.answer(Outcome::Denied, counts, 0, cost).remaining();
        let cost = match operation {
            Operation::Check | Operation::CheckKeeping { .. } | Operation::Reserve { .. } => cost,
            // More than the limit no counter holds.
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
            Plan::Charge(cost)
        } else {
            Plan::Answer(outcome, units)
        }
    }
}

impl Tables {
    #[inline(always)]
    fn key(&self, hash: u64) -> SketchKey {
        let Self { windows, seen, counters } = self;
        SketchKey { hash, probe: seen.probe(windows, hash), lines: counters.lines(hash) }
    }

    /// A key's estimate in the window before this one, if that matters.
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

    /// Decides without charging.
    fn look<A: WindowState, const N: usize, const PER: usize>(
        &self,
        word: &A,
        key: &SketchKey,
        moment: &Moment,
        cost: u64,
    ) -> Result<Decision, Late> {
        let Self { windows, seen, counters } = self;
        let &Moment { now_ns, window, to_end_ns } = moment;
        let previous = self.last::<A, N, PER>(key, window)?;
        let current = if seen.look(windows, &key.probe, window)?.is_in() {
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
        let known = seen.look(windows, &key.probe, window)?;
        if !known.is_in() {
            return self.attempt_first::<A, N, PER>(word, key, moment, request, previous, &known);
        }
        if !A::LAST && word.limit() == 1 {
            // The doorkeeper's unit was all: nothing is counted.
            let counts = WindowCounts { previous, current: 1, to_end_ns };
            if let Plan::Answer(outcome, units) = request.plan(word, &counts) {
                return Ok(Attempt::Decided(word.answer(outcome, &counts, now_ns, units).uncharged()));
            }
        }
        let rows: Rows<N, PER> = counters.rows(&key.lines);
        let read = counters.read(windows, &rows, window)?;
        let counts = WindowCounts { previous, current: read.least + 1, to_end_ns };
        let cost = match request.plan(word, &counts) {
            Plan::Charge(cost) => cost,
            Plan::Answer(outcome, units) => {
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
        let cost = match request.plan(word, &counts) {
            Plan::Charge(cost) => cost,
            Plan::Answer(outcome, units) => {
                return Ok(Attempt::Decided(word.answer(outcome, &counts, now_ns, units).uncharged()));
            }
        };
        // All but the first unit, which the doorkeeper keeps.
        if cost > 1 {
            counters.raise(windows, &counters.rows::<N, PER>(&key.lines), (window, cost - 1))?;
        }
        if known.insert(windows, window)? == Insert::Again {
            return Ok(Attempt::Lost);
        }
        self.charged::<A, N, PER>(word, key, moment, request, &counts, cost)
    }

    /// The answer to a request of a key that had these counts, and was charged `cost` units.
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
            // The doorkeeper's word of the last window is that of the next one, if it has begun: then this is late.
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

impl<A: WindowAlgorithm, H: BuildHasher> Sketch<A, H> {
    pub(crate) fn new(algorithm: A, hasher: H, capacity: Capacity) -> Result<Self, QuotaError> {
        let word = algorithm.compact(&[], 0)?;
        let windows = Windows::new(word.window_ns(), tag_bits(word.window_ns()), u64::MAX);
        if let Some(min_ns) = windows.too_short() {
            return Err(Reason::ShortWindow { algorithm: "sketch", got_ns: word.window_ns(), min_ns }.into());
        }
        let last = <A::CompactState as WindowState>::LAST;
        let sizes = sizes::Sizes::new(capacity, word.limit(), last)?;
        let refused = || QuotaError::from(Reason::Memory { bytes: sizes.bytes() });
        let seen = WindowedBloom::new(sizes.seen, last).ok_or_else(refused)?;
        // The doorkeeper has the first of them.
        let counters =
            WindowCounters::new(sizes.counters, word.limit() - 1, last, &windows).ok_or_else(refused)?;
        let tables = Arc::new(Tables { windows, seen, counters });
        Ok(Self { algorithm, word, hasher, tables })
    }

    /// The same counts under another limit; `None` if the windows are others, or the counters cannot hold it.
    pub(crate) fn with_limit_of(&self, algorithm: &A) -> Option<Self>
    where
        H: Clone,
    {
        let word = algorithm.compact(&[], 0).ok()?;
        let fits =
            word.window_ns() == self.word.window_ns() && word.limit() - 1 <= self.tables.counters.most();
        let (algorithm, hasher, tables) = (algorithm.clone(), self.hasher.clone(), Arc::clone(&self.tables));
        fits.then_some(Self { algorithm, word, hasher, tables })
    }

    pub(crate) fn algorithm(&self) -> &A {
        &self.algorithm
    }

    pub(crate) fn saturation(&self, now_ns: u64) -> Saturation {
        let Tables { windows, seen, counters } = &*self.tables;
        Saturation::of(windows, seen, counters, windows.index(now_ns), self.word.limit())
    }

    #[inline(always)]
    fn attempt(&self, key: &SketchKey, moment: &Moment, request: Request) -> Attempt {
        let (tables, word) = (&*self.tables, &self.word);
        let attempt = if tables.counters.is_together() {
            tables.attempt::<_, 2, 2>(word, key, moment, request)
        } else {
            tables.attempt::<_, 4, 1>(word, key, moment, request)
        };
        attempt.unwrap_or_else(Attempt::Late)
    }

    /// Charges a key once an attempt came to nothing. Out of line, and with the hash alone, so that an attempt keeps nothing for it.
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

/// A sketch takes no debts over.
impl<A: WindowAlgorithm, H> Debts for Sketch<A, H> {
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

    // Charging is more than one exchange.
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
        let (tables, word) = (&*self.tables, &self.word);
        let mut moment = tables.windows.moment(at.ns());
        loop {
            let decided = if tables.counters.is_together() {
                tables.look::<_, 2, 2>(word, &key, &moment, cost)
            } else {
                tables.look::<_, 4, 1>(word, &key, &moment, cost)
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

    /// Counters that keys share cannot be lowered.
    fn refund(&self, _key: SketchKey, _at: CheckTime, _charge: &Decision, _units: u64) -> u64 {
        0
    }

    fn can_refund(&self) -> bool {
        false
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

    fn clear(&self) {
        self.tables.seen.clear();
        self.tables.counters.clear();
        self.tables.windows.clear();
    }

    fn state_bytes(&self) -> usize {
        self.tables.bytes()
    }
}

impl<A: WindowAlgorithm, H> fmt::Debug for Sketch<A, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sketch")
            .field("algorithm", &self.algorithm)
            .field("state_bytes", &self.tables.bytes())
            .finish_non_exhaustive()
    }
}
