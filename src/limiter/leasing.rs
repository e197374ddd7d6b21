//! Limiters without keys that spend from leases.

use crate::base::clock::{Clock, Timestamp};
use crate::base::decision::Decision;
use crate::limiter::RateLimiter;
use crate::limiter::striped::{Lease, LeaseAlgorithm, LeaseSource, Leases, Striped};

impl<P: LeaseSource, C: Clock> RateLimiter<Leases<P>, C> {
    /// As [`RateLimiter::check_at`] by the thread of a number, of which each stripe has every so-manieth. For
    /// tests.
    #[doc(hidden)]
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn check_on(&self, thread: usize, cost: u64, now: Timestamp) -> Decision {
        self.store.charge_on(thread, now.as_nanos(), cost)
    }

    /// How many units should be fetched now, so that every stripe that is in use finds a block when it has
    /// used up the one it has: twice the present blocks of the stripes that leased in the last life, less
    /// what is there; and no more than a [`deposit`](RateLimiter::deposit) has room for.
    ///
    /// For sources that are filled by deposits. Zero while nothing is spent: the first call after that asks
    /// the source, which knows by it that units are wanted again.
    ///
    /// # Complexity
    /// O(stripes); reads only.
    #[must_use]
    pub fn wanted(&self) -> u64 {
        self.store.account().wanted(self.now_ns())
    }

    /// Hands over a lease that was charged without being asked for by a check, for all stripes to draw from.
    /// Returns how many of its units could be kept; the others are lost.
    ///
    /// `asked` is the limiter's time ([`RateLimiter::clock`]) when the lease was asked for: its life begins
    /// there, since it may have been charged as early as that; now, if that is earlier. Of a lease that has
    /// expired by now nothing is kept.
    ///
    /// Sixteen slots keep deposits of different expiries apart. When all are in use, units are joined under
    /// the earlier of two expiries, where the least is lost by it, in units times time; units that would take
    /// away more than they bring are not kept. A slot holds at most a unit for each 512 to 1,024 ns of the
    /// limiter's [`lease_life`](crate::Builder::lease_life) (at least 127: 16,383 for 10 ms), and a larger
    /// deposit takes several. A deposit of no more than [`RateLimiter::wanted`], made at once and for the
    /// whole life, is kept whole.
    ///
    /// # Complexity
    /// O(slots) for each slot that it takes. Lock-free.
    ///
    /// # Examples
    /// See [`LeaseSource`].
    pub fn deposit(&self, lease: Lease, asked: Timestamp) -> u64 {
        self.store.account().deposit(lease, asked.as_nanos(), self.now_ns())
    }

    /// The source.
    pub const fn source(&self) -> &P {
        self.store.source()
    }
}

impl<A: LeaseAlgorithm, C> RateLimiter<Striped<A>, C> {
    /// The algorithm.
    pub fn algorithm(&self) -> &A {
        self.store.source().algorithm()
    }
}
