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
//! *A key that it knows* is charged by raise-then-commit ([`WindowCounters`]), from exactly the estimate that was decided
//! on. Denials write nothing, but for those below.
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
use crate::algorithm::compact::{Verdict, WindowAlgorithm, WindowState};
use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Outcome};
use crate::base::quota::{QuotaError, Reason};
use crate::base::sync::fence_after_rmw;
use crate::sketch::window::{
    Commit, Insert, Late, Moment, Probe, Read, Rows, WindowCounters, WindowedBloom, Windows, tag_bits,
};
use crate::store::capacity::Capacity;
use crate::store::op::{Debts, Exchange, HashedStore, ManyKeys, Operation, Store};

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

/// Where a key's counts are.
#[derive(Copy, Clone, Debug)]
pub struct CounterKey<const N: usize, const PER: usize> {
    probe: Probe,
    rows: Rows<N, PER>,
}

/// A key's place in the tables, in either layout of the counters.
#[derive(Copy, Clone, Debug)]
pub enum SketchKey {
    /// Two rows a line.
    Together(CounterKey<2, 2>),
    /// Each row has a line.
    Apart(CounterKey<4, 1>),
}

/// Calls with the key of either layout.
macro_rules! with_key {
    ($key:expr, $of:ident => $call:expr) => {
        match $key {
            SketchKey::Together($of) => $call,
            SketchKey::Apart($of) => $call,
        }
    };
}

/// What came of one attempt.
#[must_use]
enum Attempt {
    Decided(Decision),
    /// Another thread was first: all begins again.
    Lost,
}

/// What a key has used, by estimate.
#[derive(Copy, Clone, Debug)]
struct Used<'a, const N: usize, const PER: usize> {
    last: u64,
    current: u64,
    /// Its words as they were read, if the doorkeeper knows the key.
    read: Option<Read<'a, N, PER>>,
}

impl Tables {
    #[inline(always)]
    fn key<const N: usize, const PER: usize>(&self, hash: u64) -> CounterKey<N, PER> {
        CounterKey { probe: self.seen.probe(&self.windows, hash), rows: self.counters.rows(hash) }
    }

    #[inline(always)]
    fn prefetch<const N: usize, const PER: usize>(&self, key: &CounterKey<N, PER>) {
        self.seen.approach(&key.probe);
        self.counters.approach(&key.rows);
    }

    /// A key's estimate in the window before this one, if that matters.
    #[inline(always)]
    fn last<A: WindowState, const N: usize, const PER: usize>(
        &self,
        key: &CounterKey<N, PER>,
        window: u64,
    ) -> Result<u64, Late> {
        if !A::LAST || !self.seen.contained(&self.windows, &key.probe, window)? {
            return Ok(0);
        }
        Ok(self.counters.last(&self.windows, &key.rows, window)? + 1)
    }

    #[inline(always)]
    fn used<A: WindowState, const N: usize, const PER: usize>(
        &self,
        key: &CounterKey<N, PER>,
        window: u64,
    ) -> Result<Used<'_, N, PER>, Late> {
        let last = self.last::<A, N, PER>(key, window)?;
        if !self.seen.contains(&self.windows, &key.probe, window)? {
            return Ok(Used { last, current: 0, read: None });
        }
        let read = self.counters.read(&self.windows, &key.rows, window)?;
        Ok(Used { last, current: read.least + 1, read: Some(read) })
    }

    /// Decides without charging.
    fn look<A: WindowState, const N: usize, const PER: usize>(
        &self,
        word: &A,
        key: &CounterKey<N, PER>,
        moment: Moment,
        cost: u64,
    ) -> Result<Decision, Late> {
        let used = self.used::<A, N, PER>(key, moment.window)?;
        let ahead = word.ahead(moment.later, used.last, used.current);
        let outcome = word.judge(ahead, moment.now_ns, cost).outcome();
        Ok(word.uncharged(outcome, ahead, (moment.now_ns, word.reference(moment.now_ns)), cost))
    }

    /// Decides one request and charges it.
    #[inline(always)]
    fn attempt<A: WindowState, const N: usize, const PER: usize>(
        &self,
        word: &A,
        key: &CounterKey<N, PER>,
        moment: Moment,
        (operation, cost): (Operation, u64),
    ) -> Result<Attempt, Late> {
        let Moment { now_ns, window, .. } = moment;
        let at = (now_ns, word.reference(now_ns));
        let used = self.used::<A, N, PER>(key, window)?;
        let ahead = word.ahead(moment.later, used.last, used.current);
        let cost = match operation {
            Operation::Check | Operation::CheckKeeping { .. } | Operation::Reserve { .. } => cost,
            // More than the limit no counter holds.
            Operation::Force => cost.min(word.limit().saturating_sub(used.current)),
            Operation::TakeKeeping { headroom } => {
                let remaining = word.uncharged(Outcome::Denied, ahead, at, cost).remaining();
                cost.min(remaining.saturating_sub(headroom).max(1))
            }
            Operation::Take if matches!(word.judge(ahead, now_ns, cost), Verdict::Admit(_)) => cost,
            Operation::Take => word.uncharged(Outcome::Denied, ahead, at, cost).remaining().max(1).min(cost),
        };
        let headroom = match operation {
            Operation::CheckKeeping { headroom } | Operation::TakeKeeping { headroom } => headroom,
            _ => 0,
        };
        let room_for = |ahead: u64| match word.judge(ahead, now_ns, cost.saturating_add(headroom)) {
            Verdict::Admit(_) if headroom > 0 => (word.judge(ahead, now_ns, cost), cost),
            verdict => (verdict, cost.saturating_add(headroom)),
        };
        let (verdict, asked) = match operation {
            Operation::Force => {
                (Verdict::Admit(word.ahead(moment.later, used.last, used.current + cost)), cost)
            }
            _ => room_for(ahead),
        };
        let after = match verdict {
            Verdict::Admit(after) if cost > 0 => after,
            uncharged => {
                return Ok(Attempt::Decided(word.uncharged(uncharged.outcome(), ahead, at, asked)));
            }
        };
        if self.charge(key, window, used.read.as_ref(), cost)? == Exchange::Lost {
            return Ok(Attempt::Lost);
        }
        if A::LAST {
            fence_after_rmw();
            // The doorkeeper's word of the last window is that of the next one, if it has begun: then this is late.
            let last = self.last::<A, N, PER>(key, window)?;
            if last > used.last && operation != Operation::Force {
                let (again, asked) = room_for(word.ahead(moment.later, last, used.current));
                let ahead = word.ahead(moment.later, last, used.current + cost);
                return Ok(Attempt::Decided(match again {
                    Verdict::Admit(_) => word.decision(Outcome::Allowed, ahead, at, asked),
                    refused => word.uncharged(refused.outcome(), ahead, at, asked),
                }));
            }
        }
        Ok(Attempt::Decided(word.decision(Outcome::Allowed, after, at, cost)))
    }

    /// Charges what was decided on, unless another thread was first.
    #[inline(always)]
    fn charge<const N: usize, const PER: usize>(
        &self,
        key: &CounterKey<N, PER>,
        window: u64,
        read: Option<&Read<'_, N, PER>>,
        cost: u64,
    ) -> Result<Exchange, Late> {
        let Self { windows, seen, counters } = self;
        match read {
            None => {
                // All but the first unit, which the doorkeeper keeps.
                if cost > 1 {
                    counters.raise(windows, &key.rows, (window, cost - 1))?;
                }
                Ok(match seen.insert(windows, &key.probe, window)? {
                    Insert::First => Exchange::Done,
                    _ => Exchange::Lost,
                })
            }
            Some(read) => {
                let at = (window, read.least + cost);
                Ok(match counters.charge(windows, read, at)? {
                    Commit::Done => Exchange::Done,
                    _ => Exchange::Lost,
                })
            }
        }
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
        // What was counted for a higher limit is read by this one too.
        let word = word.with_room_of(&self.word);
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
    fn charge_key<const N: usize, const PER: usize>(
        &self,
        key: &CounterKey<N, PER>,
        now_ns: u64,
        ask: (Operation, u64),
    ) -> Decision {
        let mut moment = self.tables.windows.moment(now_ns);
        loop {
            match self.tables.attempt(&self.word, key, moment, ask) {
                Ok(Attempt::Decided(decision)) => return decision,
                Ok(Attempt::Lost) => {}
                Err(late) => moment = self.tables.windows.catch_up(moment, late),
            }
        }
    }

    fn peek_key<const N: usize, const PER: usize>(
        &self,
        key: &CounterKey<N, PER>,
        time: CheckTime,
        cost: u64,
    ) -> Decision {
        let mut moment = self.tables.windows.moment(time.ns());
        loop {
            match self.tables.look(&self.word, key, moment, cost) {
                Ok(decision) => return decision,
                Err(late) => moment = self.tables.windows.catch_up(moment, late),
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
        with_key!(key, key => self.tables.prefetch(&key));
    }

    #[inline(always)]
    fn apply(&self, key: SketchKey, operation: Operation, at: CheckTime, cost: u64) -> Decision {
        with_key!(key, key => self.charge_key(&key, at.ns(), (operation, cost)))
    }

    fn peek(&self, key: SketchKey, at: CheckTime, cost: u64) -> Decision {
        with_key!(key, key => self.peek_key(&key, at, cost))
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
        let tables = &*self.tables;
        if tables.counters.is_together() {
            SketchKey::Together(tables.key(hash))
        } else {
            SketchKey::Apart(tables.key(hash))
        }
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
