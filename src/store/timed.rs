//! The time of a request to a store.

use super::verb::When;
use crate::clock::Clock;
use crate::latest::{Clocked, Given, Latest, Time};

/// The time of a request, however it came to be known: given, read from the clock, or the end of a store that nobody charges
/// any more, to which nothing is later.
pub(crate) struct Timed<'a, C> {
    pub(crate) when: When<'a, C>,
    pub(crate) latest: &'a Latest,
}

impl<C: Clock> Timed<'_, C> {
    #[inline(always)]
    fn given(&self) -> Given<'_, C> {
        Given { now_ns: self.when.now_ns, latest: self.latest, clock: self.when.clock }
    }
}

impl<C: Clock> Time for Timed<'_, C> {
    const BEGINS_AGAIN: bool = false;

    #[inline(always)]
    fn now(&self) -> u64 {
        self.when.now_ns
    }

    fn latest(&self, now_ns: u64) -> u64 {
        match self.when {
            When { past: true, .. } => now_ns,
            When { given: true, .. } => self.given().latest(now_ns),
            When { clock, .. } => Clocked(clock).latest(now_ns),
        }
    }

    fn spilled(&self, now_ns: u64) -> u64 {
        match self.when {
            When { past: true, .. } => now_ns,
            When { given: true, .. } => self.given().spilled(now_ns),
            When { clock, .. } => Clocked(clock).spilled(now_ns),
        }
    }

    #[inline(always)]
    fn note(&self, now_ns: u64) {
        if self.when.given && !self.when.past {
            self.given().note(now_ns);
        }
    }
}
