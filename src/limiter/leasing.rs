//! Limiters without keys that spend from leases.

use crate::base::clock::{Clock, Timestamp};
use crate::base::decision::Decision;
use crate::limiter::RateLimiter;
use crate::limiter::striped::{Lease, LeaseAlgorithm, LeaseSource, Leases, Striped};

impl<P: LeaseSource, C: Clock> RateLimiter<Leases<P>, C> {
    /// A check at the time `now`, as if the thread with this number called it. Thread numbers map to stripes in
    /// rotation. For tests.
    #[doc(hidden)]
    #[must_use = "the limiter does not stop the request: the caller must read the decision"]
    pub fn check_on(&self, thread: usize, cost: u64, now: Timestamp) -> Decision {
        self.store.charge_on(thread, now.as_nanos(), cost)
    }

    /// Returns how many units to fetch now, so that every stripe in use finds its next block of units when its present
    /// block is empty.
    ///
    /// This is twice the present blocks of the stripes that leased within the last life, less the units that the
    /// limiter already holds. It is never more than the deposits have room for ([`deposit`](RateLimiter::deposit)).
    ///
    /// Use this method with sources that are filled by deposits. The result is zero while no check spends units. The
    /// first check after such a pause asks the source, which shows the source that units are wanted again.
    ///
    /// # Complexity
    /// O(stripes); reads only.
    #[must_use]
    pub fn wanted(&self) -> u64 {
        self.store.account().wanted(self.now_ns())
    }

    /// Adds a lease that was charged outside a check, so that all stripes can draw from it. Returns the number of
    /// units that the limiter keeps. The other units are lost.
    ///
    /// `asked` is the limiter's time ([`RateLimiter::clock`]) at the request for the lease. The lease's life begins at
    /// `asked`, because the source may have charged the units then. If `asked` is in the future, the life begins now.
    /// The limiter keeps no unit of an expired lease.
    ///
    /// The limiter keeps all units of a deposit in this case: the deposit has at most [`RateLimiter::wanted`] units, it
    /// is made at once, and it does not expire before a whole life has passed.
    ///
    /// Sixteen slots keep deposits with different expiries apart. When all slots are in use, units with two expiries
    /// share a slot, and all of its units expire at the earlier time. The limiter chooses the slot that loses least,
    /// measured in units times time. It does not keep units if a slot would lose more than they add. A slot holds at
    /// most one unit for each 512 to 1,024 ns of the limiter's [`lease_life`](crate::Builder::lease_life): at least 127
    /// units, and 16,383 units for 10 ms. A larger deposit takes several slots.
    ///
    /// # Complexity
    /// O(slots) for each slot that the deposit takes. Lock-free.
    ///
    /// # Examples
    /// See [`LeaseSource`].
    pub fn deposit(&self, lease: Lease, asked: Timestamp) -> u64 {
        self.store.account().deposit(lease, asked.as_nanos(), self.now_ns())
    }

    /// Returns the source of the leases.
    pub const fn source(&self) -> &P {
        self.store.source()
    }
}

impl<A: LeaseAlgorithm, C> RateLimiter<Striped<A>, C> {
    /// Returns the algorithm.
    pub fn algorithm(&self) -> &A {
        self.store.source().algorithm()
    }
}
