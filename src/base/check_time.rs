//! The time of a check, and the newest time that a store has written.
//!
//! A compact word, and a word of a sketch, keeps its time in few bits: modulo a *range*. A word far ahead of a caller's
//! time therefore has one of two meanings:
//!
//! - The word is *live*: another caller, or another clock, is ahead.
//! - The word is left from an earlier round of the range: no caller used it for almost a whole range.
//!
//! [`Newest`] distinguishes the two cases without a second clock reading:
//!
//! 1. A writer checks that its time is at most [`Newest::high`]. If not, it raises `high`, *before* it publishes its
//!    word.
//! 2. At any moment, every live word is therefore at most one horizon after `high`, whichever caller and clock wrote
//!    it. (The horizon is how far a word can be ahead of the time of its charge.)
//! 3. A reader loads a word, then loads `high`. A word beyond that bound is from an earlier round: it is idle. Any
//!    other word that is ahead of the reader is live, and its distance counts as a debt.
//! 4. A word reads as idle if it is behind the reader by up to half the range. A live word that is ahead by more than
//!    half the range would therefore read as idle, so a reader must not lag that far. If the time of a call is below
//!    [`Newest::low`], which is a quarter of the range behind the newest time, the call is decided at `low`.
//!
//! Times are compared as whole numbers, never modulo a range.
//!
//! # A wrong time
//! One call with a time far ahead (`u64::MAX`, for example) raises `high` and `low`. The limiter then decides the calls
//! with the right time at `low`. As `low` does not advance, nothing refills: each key can spend only the units that it
//! has left at that time.
//!
//! [`Newest::as_of`] records the first time below `low`. If the times below `low` advance by `patience`, and no call
//! raises `high` in the meantime, `high` falls to the time of these calls. Whenever `high` falls, each key may get one
//! more burst.

use core::ops::Deref;

use crossbeam_utils::CachePadded;

use crate::base::clock::{Clock, Timestamp};
use crate::base::sync::{AtomicU64, Ordering};

/// The time of a check, in nanoseconds since the origin of the limiter's clock.
///
/// The caller passes this time, or the limiter reads the clock once. No store reads a clock.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CheckTime(u64);

impl CheckTime {
    /// Reads the clock.
    #[inline(always)]
    pub fn read(clock: &impl Clock) -> Self {
        Self(clock.now().as_nanos())
    }

    /// Takes a time from the caller.
    #[inline(always)]
    pub const fn given(now: Timestamp) -> Self {
        Self(now.as_nanos())
    }

    /// Creates a time `ns` nanoseconds after the origin.
    #[inline(always)]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Returns the nanoseconds since the origin.
    #[inline(always)]
    pub const fn ns(self) -> u64 {
        self.0
    }
}

/// The value of `lagging` while no time below `low` is recorded.
const NO_LAG: u64 = u64::MAX;

/// The newest time that a store has written, in nanoseconds or in windows. See the module documentation.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Newest<B = CachePadded<Bounds>> {
    /// On their own cache line, except in a store with few keys: callers read the bounds at each charge, and write them once per `slack`.
    bounds: B,
    /// The distance from `low` to `high`: the slack plus the greatest allowed lag of a caller.
    span: u64,
    slack: u64,
    patience: u64,
}

/// The newest time of a store with few keys, in the cache lines of its other words: one of thousands of stores, each of
/// which is rarely in use.
#[cfg(feature = "std")]
pub(crate) type NewestOfFew = Newest<Unpadded>;

/// Bounds without a cache line of their own.
#[cfg(feature = "std")]
#[derive(Debug)]
pub(crate) struct Unpadded(Bounds);

#[cfg(feature = "std")]
impl Deref for Unpadded {
    type Target = Bounds;

    #[inline(always)]
    fn deref(&self) -> &Bounds {
        &self.0
    }
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Bounds {
    /// The newest time that raised `high`.
    newest: AtomicU64,
    /// The first time below `low` since `high` was raised, or [`NO_LAG`].
    lagging: AtomicU64,
    /// No word was written at a time later than this one. The value is at least `span`, so that [`Newest::is_near`]
    /// needs only one subtraction.
    high: AtomicU64,
}

impl Bounds {
    /// Bounds before any write.
    fn new(span: u64) -> Self {
        Self { high: AtomicU64::new(span), newest: AtomicU64::new(0), lagging: AtomicU64::new(NO_LAG) }
    }
}

impl Newest {
    /// `slack`: how far `high` is raised beyond a writer's time, so that writers raise it rarely. `lag`: how far
    /// callers may be behind the newest time. `patience`: how far the times of slower callers must advance before
    /// `high` falls to them.
    pub(crate) fn new(slack: u64, lag: u64, patience: u64) -> Self {
        let span = lag.saturating_add(slack);
        Self { bounds: CachePadded::new(Bounds::new(span)), slack, span, patience }
    }

    /// Returns the same for a store with few keys, before any write.
    #[cfg(feature = "std")]
    pub(crate) fn of_few(&self) -> NewestOfFew {
        let Self { span, slack, patience, .. } = *self;
        Newest { bounds: Unpadded(Bounds::new(span)), span, slack, patience }
    }
}

impl<B: Deref<Target = Bounds>> Newest<B> {
    /// Returns whether a time is between `low` and `high`. The caller may then publish a word at that time without
    /// raising `high`.
    ///
    /// Call it after an Acquire load of the word.
    #[inline(always)]
    pub(crate) fn is_near(&self, time: u64) -> bool {
        // A later time wraps to a distance beyond `span`, since `high` is at least `span`.
        self.high().wrapping_sub(time) <= self.span
    }

    /// Returns an upper bound of the times at which live words were written. Call it after an Acquire load of the word.
    #[inline(always)]
    pub(crate) fn high(&self) -> u64 {
        // Ordering: Acquire; pairs with `raise_to`. The writer of a word that the caller has loaded raised `high`, or
        // found it raised, before it published the word.
        self.bounds.high.load(Ordering::Acquire)
    }

    /// Returns the newest time that raised `high`: at most `slack` behind the newest time of all writers.
    #[inline]
    pub(crate) fn newest(&self) -> u64 {
        // Ordering: Acquire; pairs with `raise_to`. A thread that sees the new time also sees the new `high`.
        self.bounds.newest.load(Ordering::Acquire)
    }

    /// Returns the lowest time at which calls are decided. Call it after an Acquire load of the word.
    #[inline(always)]
    pub(crate) fn low(&self) -> u64 {
        self.high() - self.span
    }

    /// Raises `high` if needed. Call this before a word is published at `time`. `last` returns the latest time whose
    /// words are no further ahead than those of `time`.
    #[inline(always)]
    pub(crate) fn raise(&self, time: u64, last: impl FnOnce(u64) -> u64) {
        // Ordering: `newest` loads with Acquire; pairs with `raise_to`. If another thread has already raised `high`,
        // this thread publishes its word after that raise.
        if time > self.newest().saturating_add(self.slack) {
            self.raise_to(last(time));
        }
    }

    /// Raises `high` for `time`, as [`Newest::raise`] does, but does not check first whether this is needed.
    #[cold]
    pub(crate) fn raise_to(&self, time: u64) {
        let Bounds { high, newest, lagging } = &*self.bounds;
        // Ordering: Release, for all three, so that they are visible before the word that this thread publishes next.
        // `high` comes first: `raise` relies on it when it reads `newest`.
        high.fetch_max(time.saturating_add(self.slack), Ordering::AcqRel);
        newest.fetch_max(time, Ordering::AcqRel);
        // The newest time advances, so `high` does not fall to slower callers now.
        if lagging.load(Ordering::Relaxed) != NO_LAG {
            lagging.store(NO_LAG, Ordering::Release);
        }
    }

    /// Raises the times to those of another store with the same words, whose words come to this store. Call this after all of
    /// these words were loaded.
    #[cfg(feature = "std")]
    pub(crate) fn cover(&self, other: &Newest<impl Deref<Target = Bounds>>) {
        // Ordering: Release, as in `raise_to`.
        self.bounds.high.fetch_max(other.high(), Ordering::AcqRel);
        self.bounds.newest.fetch_max(other.newest(), Ordering::AcqRel);
    }

    /// Returns the time at which to decide a call whose `time` is below `low`: `low`, or `time` if `high` falls to it.
    #[cold]
    pub(crate) fn as_of(&self, time: u64) -> u64 {
        let Bounds { high, newest, lagging } = &*self.bounds;
        let seen_high = self.high();
        let seen_low = seen_high - self.span;
        if time >= seen_low {
            return time;
        }
        // Ordering: Relaxed. The value is only a hint for later calls; the exchange below checks that `high` is still
        // the same.
        let since = lagging.load(Ordering::Relaxed);
        if time < since {
            // This is the first time below `low`, or it is before the recorded one. (The recorded time may be wrong,
            // and far ahead. Then a wait from that time might never end.)
            lagging.store(time, Ordering::Relaxed);
            return seen_low;
        }
        if time - since < self.patience {
            return seen_low;
        }
        let next = time.saturating_add(self.slack).max(self.span);
        // Ordering: AcqRel, as in `raise_to`. If another call changes `high` first, that call lowered it for the same
        // reason, or raised it again.
        if high.compare_exchange(seen_high, next, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return self.low().max(time);
        }
        newest.store(time, Ordering::Release);
        lagging.store(NO_LAG, Ordering::Release);
        time
    }

    /// Resets the times, for a store that is empty.
    pub(crate) fn clear(&self) {
        let Bounds { high, newest, lagging } = &*self.bounds;
        // Ordering: Release, as in `raise_to`.
        newest.store(0, Ordering::Release);
        high.store(self.span, Ordering::Release);
        lagging.store(NO_LAG, Ordering::Release);
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    const LAG: u64 = 1_000;
    const PATIENCE: u64 = 50;

    fn newest(slack: u64) -> Newest {
        Newest::new(slack, LAG, PATIENCE)
    }

    #[test]
    fn newest_time_rises_once_per_slack() {
        for slack in [0, 10] {
            let newest = newest(slack);
            for time in [0, 1, 5_000, 5_000 + slack, 5_001 + slack, u64::MAX - 1, u64::MAX] {
                newest.raise(time, |time| time);
                assert!(newest.high() >= time, "{time}");
                assert!(newest.newest() <= time && time - newest.newest() <= slack, "{time}");
                assert!(newest.low() <= time.saturating_sub(LAG) && newest.is_near(time), "{time}");
            }
            newest.raise(7, |time| time);
            assert_eq!(newest.high(), u64::MAX, "`high` does not step back");
        }
    }

    // G12
    #[test]
    fn near_times_are_between_low_and_high() {
        for newest_time in [0, 1, 500, 1_000, 1_010, 5_000, u64::MAX / 2, u64::MAX - 20, u64::MAX] {
            let newest = newest(10);
            newest.raise(newest_time, |time| time);
            let (low, high) = (newest.low(), newest.high());
            for time in [0, 1, 10, 1_000, 1_011, u64::MAX / 2, u64::MAX - 1_020, u64::MAX - 1, u64::MAX] {
                let around = [low.wrapping_sub(1), low, high, high.wrapping_add(1), time];
                for time in around {
                    assert_eq!(
                        newest.is_near(time),
                        (low..=high).contains(&time),
                        "{time} near {newest_time}"
                    );
                }
            }
        }
    }

    // G12
    #[test]
    fn late_time_is_decided_at_low() {
        let newest = newest(10);
        newest.raise(5_000, |time| time);
        for (time, as_of) in [(6_000, 6_000), (5_000, 5_000), (4_000, 4_000), (3_999, 4_000), (3_970, 4_000)]
        {
            assert_eq!(newest.as_of(time), as_of, "{time}");
        }
        // `high` does not fall to the slower callers as long as the newest time advances.
        for time in (0..1_000).map(|step| 3_000 + step) {
            newest.raise(time + 2_100, |time| time);
            assert_eq!(newest.as_of(time), newest.low().max(time), "{time}");
        }
    }

    // G40
    #[test]
    fn wrong_newest_time_falls_after_patience() {
        for wrong in [u64::MAX, 1 << 40] {
            let newest = newest(10);
            newest.raise(wrong, |time| time);
            for time in 100..100 + PATIENCE {
                assert_eq!(newest.as_of(time), newest.low(), "{time}");
            }
            assert_eq!(newest.as_of(100 + PATIENCE), 100 + PATIENCE);
            assert_eq!((newest.newest(), newest.low()), (100 + PATIENCE, 0));
        }
    }

    #[test]
    fn earlier_time_restarts_the_patience() {
        let newest = newest(0);
        newest.raise(u64::MAX, |time| time);
        assert_eq!(newest.as_of(1 << 50), newest.low());
        for time in 100..100 + PATIENCE {
            assert_eq!(newest.as_of(time), newest.low(), "{time}");
        }
        assert_eq!(newest.as_of(100 + PATIENCE), 100 + PATIENCE);
    }
}
