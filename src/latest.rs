//! Times, and what is done about one that lags.
//!
//! A state that is further ahead of a thread's time than any can be was either written after that time (the thread
//! was held up since it read its clock), or so long ago that it has come round. Who has a clock reads it again, *after*
//! having loaded the very state in question: still too far ahead means ancient. Who was given a time asks for the latest
//! one that any call was given, and for the clock's.

use crossbeam_utils::CachePadded;

use crate::algorithm::narrow::{Narrow, STATE_BITS};
use crate::clock::Clock;
use crate::sync::{AtomicU64, Ordering};

/// Where a check's time comes from.
pub(crate) trait Time {
    /// Whether a check that turns out to be late begins again, as of the latest time; else it is decided as of its own.
    const BEGINS_AGAIN: bool;

    /// The time, in nanoseconds.
    fn now(&self) -> u64;

    /// The latest time there is, for a check of `now_ns` that has loaded a word that is too far ahead of it.
    fn latest(&self, now_ns: u64) -> u64;

    /// The latest time at which a debt may have been spilled, for a check of `now_ns`; not before it.
    fn spilled(&self, now_ns: u64) -> u64;

    /// To be called before anything is written as of `now_ns`.
    fn note(&self, now_ns: u64);
}

/// A clock.
pub(crate) struct Clocked<'a, C>(pub(crate) &'a C);

impl<C: Clock> Time for Clocked<'_, C> {
    const BEGINS_AGAIN: bool = true;

    #[inline(always)]
    fn now(&self) -> u64 {
        self.0.now().as_nanos()
    }

    fn latest(&self, _now_ns: u64) -> u64 {
        self.now()
    }

    fn spilled(&self, now_ns: u64) -> u64 {
        self.now().max(now_ns)
    }

    #[inline(always)]
    fn note(&self, _now_ns: u64) {}
}

/// A clock that was read once, for a batch: all of it is decided as of that time.
pub(crate) struct Once<'a, C> {
    clock: &'a C,
    now_ns: u64,
}

impl<'a, C: Clock> Once<'a, C> {
    #[inline(always)]
    pub(crate) fn read(clock: &'a C) -> Self {
        Self { clock, now_ns: clock.now().as_nanos() }
    }
}

impl<C: Clock> Time for Once<'_, C> {
    const BEGINS_AGAIN: bool = false;

    #[inline(always)]
    fn now(&self) -> u64 {
        self.now_ns
    }

    fn latest(&self, now_ns: u64) -> u64 {
        Clocked(self.clock).latest(now_ns)
    }

    fn spilled(&self, now_ns: u64) -> u64 {
        Clocked(self.clock).spilled(now_ns)
    }

    #[inline(always)]
    fn note(&self, _now_ns: u64) {}
}

/// A time that the caller says, to a limiter with a clock.
pub(crate) struct Given<'a, C> {
    pub(crate) now_ns: u64,
    pub(crate) latest: &'a Latest,
    pub(crate) clock: &'a C,
}

impl<C: Clock> Time for Given<'_, C> {
    const BEGINS_AGAIN: bool = false;

    #[inline(always)]
    fn now(&self) -> u64 {
        self.now_ns
    }

    /// Other calls may have been made by the clock.
    fn latest(&self, now_ns: u64) -> u64 {
        let given_ns = self.latest.at(now_ns);
        self.latest.believed(self.clock.now().as_nanos(), now_ns).max(given_ns)
    }

    /// Not by the clock: a trace of yesterday is replayed in its own time, in which its debts are.
    fn spilled(&self, now_ns: u64) -> u64 {
        self.latest.at(now_ns)
    }

    #[inline(always)]
    fn note(&self, now_ns: u64) {
        self.latest.note(now_ns);
    }
}

/// The latest time that any call was given, to within a quarter of a horizon: read often and written seldom.
#[derive(Debug)]
pub(crate) struct Latest {
    /// On a line of its own: the rest of a limiter is only read.
    ns: CachePadded<AtomicU64>,
    gap_ns: u64,
    /// A time further ahead than half the range is not believed: it would make states of now look ancient.
    trust_ns: u64,
}

impl Latest {
    pub(crate) fn new<N: Narrow>(word: &N) -> Self {
        let half_range = 1 << (STATE_BITS - 1);
        // None for windows, of which one is a different state as soon as it begins.
        let gap_ns = if N::COARSEST == 0 { 0 } else { word.span_ns(word.horizon()) / 4 };
        Self::within(gap_ns, word.span_ns(half_range - 2 * word.horizon()))
    }

    /// To within `gap_ns`; a time further ahead than `trust_ns` is not believed.
    pub(crate) fn within(gap_ns: u64, trust_ns: u64) -> Self {
        Self { ns: CachePadded::new(AtomicU64::new(0)), gap_ns, trust_ns }
    }

    /// Takes notice of a time that something is about to be written as of.
    #[inline(always)]
    pub(crate) fn note(&self, now_ns: u64) {
        // Ordering: Relaxed for the look, which may be outdated and then only writes in vain.
        let latest_ns = self.ns.load(Ordering::Relaxed);
        let late = latest_ns.saturating_sub(now_ns) > self.trust_ns;
        if now_ns > latest_ns.saturating_add(self.gap_ns) || (latest_ns == 0 && now_ns > 0) || late {
            self.raise(latest_ns, now_ns, late);
        }
    }

    #[cold]
    fn raise(&self, latest_ns: u64, now_ns: u64, late: bool) {
        if late {
            // A time that nobody can believe any more, and that would stand for ever. If another call was first, let it be.
            let _ = self.ns.compare_exchange(latest_ns, now_ns, Ordering::AcqRel, Ordering::Relaxed);
        } else {
            // Ordering: Release: ordered before the word that is written next, as of this time.
            self.ns.fetch_max(now_ns, Ordering::AcqRel);
        }
    }

    /// The latest time as `now_ns` may believe it: not before it, and not half a range after it.
    pub(crate) fn at(&self, now_ns: u64) -> u64 {
        // Ordering: Acquire; the caller has loaded a word with Acquire, and whoever wrote it took notice of its time first.
        self.believed(self.ns.load(Ordering::Acquire), now_ns)
    }

    fn believed(&self, latest_ns: u64, now_ns: u64) -> u64 {
        match latest_ns.checked_sub(now_ns) {
            Some(ahead_ns) if ahead_ns <= self.trust_ns => latest_ns,
            _ => now_ns,
        }
    }
}
