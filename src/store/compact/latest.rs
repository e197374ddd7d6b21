//! Times, and what is done about one that lags.
//!
//! A state that is further ahead of a thread's time than any can be was either written after that time (the thread
//! was held up since it read its clock), or so long ago that it has come round. Who has a clock reads it again, after
//! having loaded the state: still too far ahead means ancient. Who was given a time asks for the latest one that any
//! call was given.

use crate::algorithm::narrow::Narrow;
use crate::clock::Clock;
use crate::sync::{AtomicU64, Ordering};

/// Where a check's time comes from.
pub(super) trait Time {
    /// The time, in nanoseconds.
    fn now(&self) -> u64;

    /// The time to go on with after a state seemed too far ahead of `now_ns`, and the latest time there is.
    fn again(&self, now_ns: u64) -> (u64, u64);

    /// To be called before anything is written as of `now_ns`.
    fn note(&self, now_ns: u64);
}

/// A clock.
pub(super) struct Clocked<'a, C>(pub(super) &'a C);

impl<C: Clock> Time for Clocked<'_, C> {
    #[inline(always)]
    fn now(&self) -> u64 {
        self.0.now().as_nanos()
    }

    fn again(&self, _now_ns: u64) -> (u64, u64) {
        let now_ns = self.now();
        (now_ns, now_ns)
    }

    #[inline(always)]
    fn note(&self, _now_ns: u64) {}
}

/// A clock that was read once, for a batch: all of it is decided as of that time.
pub(super) struct Once<'a, C> {
    clock: &'a C,
    now_ns: u64,
}

impl<'a, C: Clock> Once<'a, C> {
    #[inline(always)]
    pub(super) fn read(clock: &'a C) -> Self {
        Self { clock, now_ns: clock.now().as_nanos() }
    }
}

impl<C: Clock> Time for Once<'_, C> {
    #[inline(always)]
    fn now(&self) -> u64 {
        self.now_ns
    }

    fn again(&self, now_ns: u64) -> (u64, u64) {
        (now_ns, self.clock.now().as_nanos())
    }

    #[inline(always)]
    fn note(&self, _now_ns: u64) {}
}

/// A time that the caller says.
pub(super) struct Given<'a> {
    pub(super) now_ns: u64,
    pub(super) latest: &'a Latest,
}

impl Time for Given<'_> {
    #[inline(always)]
    fn now(&self) -> u64 {
        self.now_ns
    }

    fn again(&self, now_ns: u64) -> (u64, u64) {
        (now_ns, self.latest.at(now_ns))
    }

    #[inline(always)]
    fn note(&self, now_ns: u64) {
        self.latest.note(now_ns);
    }
}

/// The latest time that any call was given, to within a quarter of a horizon: read often and written seldom.
#[derive(Debug)]
pub(crate) struct Latest {
    ns: AtomicU64,
    gap_ns: u64,
    /// A time further ahead than half the range is not believed: it would make states of now look ancient.
    trust_ns: u64,
}

impl Latest {
    pub(crate) fn new<N: Narrow>(word: &N) -> Self {
        let half_range = 1 << (crate::algorithm::narrow::STATE_BITS - 1);
        Self {
            ns: AtomicU64::new(0),
            gap_ns: word.span_ns(word.horizon() / 4),
            trust_ns: word.span_ns(half_range - 2 * word.horizon()),
        }
    }

    /// Takes notice of a time that something is about to be written as of.
    #[inline(always)]
    pub(crate) fn note(&self, now_ns: u64) {
        // Ordering: Relaxed for the look, which may be outdated and then only writes in vain.
        let latest_ns = self.ns.load(Ordering::Relaxed);
        if now_ns > latest_ns.saturating_add(self.gap_ns) || (latest_ns == 0 && now_ns > 0) {
            self.raise(now_ns);
        }
    }

    #[cold]
    fn raise(&self, now_ns: u64) {
        // Ordering: Release: ordered before the word that is written next, as of this time.
        self.ns.fetch_max(now_ns, Ordering::AcqRel);
    }

    /// The latest time as `now_ns` may believe it: not before it, and not half a range after it.
    pub(crate) fn at(&self, now_ns: u64) -> u64 {
        // Ordering: Acquire; the caller has loaded a word with Acquire, and whoever wrote it took notice before.
        let latest_ns = self.ns.load(Ordering::Acquire);
        match latest_ns.checked_sub(now_ns) {
            Some(ahead_ns) if ahead_ns <= self.trust_ns => latest_ns,
            _ => now_ns,
        }
    }
}
