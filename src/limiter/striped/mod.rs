//! Leases: units that are charged at a source in blocks, and spent from stripes that cores do not share.
//!
//! | part | holds |
//! |---|---|
//! | `word` | the word of one stripe, when a lease is alive, and the size of the next block |
//! | `source` | the trait of sources that grant leases, and the direct store as a source |
//! | `deposits` | the units that were deposited from outside |
//! | `words` | the stripes and the deposits: padded for many threads, or small for one of many keys |
//! | `account` | the steps below: spending, refilling, taking from other stripes, putting back |
//! | this file | one limit in stripes |
//!
//! A *word* holds the units of one stripe, and the time at which they expire. The *hand* is the set of units that one
//! call has collected so far. It belongs to that call alone.
//!
//! A check spends its cost from its own stripe by one exchange, if the stripe holds the cost. No other core usually
//! writes that cache line. Otherwise the call repeats these steps until it ends:
//!
//! 1. If its own stripe and its hand together hold the cost, the call exchanges the stripe's word for a word with the
//!    units that are left of both. The request is admitted.
//! 2. If a slot of the deposits holds the missing units, or the source grants them, the call adds them to its hand.
//! 3. If the source denies, the call adds up its own stripe, its hand, all other stripes, the deposits, and the units
//!    that remain at the source:
//!    - If the sum is less than the cost, the call puts its hand back into its own stripe. The request is denied.
//!    - Otherwise the call takes the missing units from the other words into its hand.
//!
//! A lease is charged at the source before its units are written into a word. The protocol must therefore only ensure
//! that *no unit is spent twice, or after its lease has expired*:
//!
//! - Units leave a word only by an exchange from exactly the value that was read. A word is the whole state of its
//!   stripe, so a word that changed and changed back is equivalent to an unchanged word.
//! - A hand has one expiry, the earliest of its pieces. The call first spends the units of its stripe, so the units
//!   that are left usually come from its hand alone, and keep the hand's expiry.
//! - Units of two expiries can meet in one word if another call has refilled the stripe, or if a hand is put back. The
//!   word then takes the earlier expiry, so no unit ever gets a later one.
//! - A word that is empty or expired is overwritten. Its expired units are lost.
//!
//! *Lock-free.* An exchange fails only after an exchange by another call, and the same holds for an iteration of the
//! loop. Hands only grow until their call ends, and every exchange that does not fill a hand ends a call. The number of
//! units is finite, so some call ends.
//!
//! *A denial* comes after the source's denial and one read of each other word. It can miss two kinds of units: units in
//! the hand of another call, and units of a hand that another call puts back into a word that was already read.
//!
//! Ordering: Relaxed everywhere. Words publish nothing but themselves. The protocol needs only that each word has one
//! modification order, and that a thread sees every write that happened before its call.

mod account;
mod deposits;
#[cfg(all(test, tollgate_loom))]
mod models;
mod source;
mod word;
mod words;

use std::fmt;
use std::time::Duration;

use crossbeam_utils::CachePadded;

pub use self::account::{Account, Terms};
pub use self::source::{Lease, LeaseAlgorithm, LeaseRequest, LeaseSource};
pub use self::words::Padded;
pub use self::words::Small;
pub(crate) use self::words::Words;
use crate::algorithm::Gcra;
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, Timestamp};
use crate::base::decision::Decision;
use crate::base::sync::processors;
use crate::limiter::at::Timed;
use crate::limiter::{At, RateLimiter};
use crate::store::{Direct, Store};

/// Leases of a [`Direct`] state: one limit that all cores can use at once. The store of
/// [`Builder::striped`](crate::Builder::striped).
pub type Striped<A = Gcra> = Leases<Direct<A>>;

const MAX_STRIPES: usize = 1024;

/// One limit in stripes; each stripe holds units that were charged in advance at a [`LeaseSource`].
///
/// A *direct* limiter has one word, and every admitted check writes it. Cores that use it at once wait for its cache
/// line, and two cores together are slower than one core alone.
///
/// Here each thread has a *stripe*. A check takes units from its stripe. These units were charged at the source as a
/// *block*; when a block is used up, the limiter charges the next one. The shared word is therefore written once per
/// block.
///
/// Threads get their stripes in rotation, by thread numbers. A thread gets its number when it first uses any striped
/// limiter, and keeps it for all striped limiters. If only some of these threads use this limiter, two of them can
/// share a stripe while another stripe is free.
///
/// [`Builder::striped`](crate::Builder::striped) creates it, or [`Builder::leases`](crate::Builder::leases) for your
/// own source. Use it for a limit that several cores check hundreds of thousands of times per second. For all other
/// limits, [`Direct`] is exact, as fast, and has more operations: a striped limiter cannot wait, reserve, refund,
/// settle or adjust its quota, and it cannot be one of several limits on a request ([`check_all`](crate::check_all)).
///
/// # Guarantees
///
/// - **Every admitted unit was charged first.** A block may be spent until its lease expires,
///   [`lease_life`](crate::Builder::lease_life) after the charge. The life is 10 ms by default. Expiries are kept in
///   ticks, so a lease can end earlier by up to a sixteenth of the life, or by up to 4.1 µs if that is more. In any
///   interval of length `t`, the limiter therefore admits at most the units that the algorithm admits in `t + life`:
///   for GCRA `burst + (t + life) / T`. A calendar window can admit its limit and, just after it begins, the units
///   that were charged to the previous window and are still held. That is up to half a limit more, the most that
///   stripes can hold (see below).
/// - **Late times.** A caller whose time lags by up to one life can spend the leases that were taken since that time.
///   The lag then adds to the interval of the bound above. Earlier times find no lease. (A lease can be spent at all
///   times less than two lives before its expiry. If your own source grants shorter leases, callers that lag by more
///   than one life can therefore spend them too.)
/// - **A check is denied only if the source and all stripes together do not hold its cost.** Before a denial, the call
///   reads the other stripes and takes units from them. It does not see units that another call holds at that moment,
///   between two exchanges.
/// - **Stranded units are bounded.** Units that are left when a lease expires are lost. They are at most the sum of
///   the last charged blocks, one for each stripe. Three values limit a block:
///   - [`max_block`](crate::Builder::max_block);
///   - about the units that the stripe recently used in one life: the block doubles while blocks last for less than
///     half a life, and halves when a block expires unspent and for every idle life;
///   - for a state in this process, the stripe's share of half of the remaining units at the charge. All stripes
///     together never strand more than half of a limit. The only exception is a request that itself costs more; its
///     units are spent at once.
/// - A denial writes nothing, unless a race gave the call a part of its cost. That part goes to its own stripe, with
///   the earliest expiry of its pieces.
/// - All calls are lock-free. Contention never causes a denial.
///
/// # Decisions
/// - If the stripe held enough units, the decision has only the stripe's figures: [`remaining`](Decision::remaining) is
///   a lower bound, and [`reset_after`](Decision::reset_after) is zero.
/// - If the check charged a block, the decision has the source's figures after that charge.
/// - A denial has the source's figures, and its `remaining` includes the units of all stripes. Its
///   [`retry_after`](Decision::retry_after) is the source's own, so the request may be admitted earlier.
/// - The `remaining` of a peek includes the units of the source and of all stripes.
///
/// # Complexity
/// O(1) and one exchange if the stripe holds the cost. One check per block also charges the source. Denials and peeks
/// read all stripes. Memory: 128 bytes for each stripe.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{Gcra, Quota, RateLimiter};
///
/// let limiter = RateLimiter::builder(Gcra::new(Quota::per_second(10_000_000)))
///     .lease_life(Duration::from_millis(5))
///     .striped();
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| (0..1_000).for_each(|_| assert!(limiter.check().is_allowed())));
///     }
/// });
/// ```
pub struct Leases<P = Direct> {
    // Padded: a source in this process is written for each block, and checks read the other fields.
    source: CachePadded<P>,
    terms: Terms,
    words: Padded,
}

/// The builder's options for leases.
#[derive(Clone, Debug)]
pub(crate) struct StripeOptions {
    pub(crate) stripes: Option<usize>,
    pub(crate) life: Duration,
    pub(crate) max_block: u64,
}

impl Default for StripeOptions {
    fn default() -> Self {
        Self { stripes: None, life: Duration::from_millis(10), max_block: 4096 }
    }
}

impl<P: LeaseSource> Leases<P> {
    pub(crate) fn new(source: P, options: &StripeOptions) -> Self {
        let cores = || processors().unwrap_or(1);
        let stripes = options.stripes.unwrap_or_else(cores).clamp(1, MAX_STRIPES).next_power_of_two();
        Self {
            terms: Terms::new(source.limit(), options.life, options.max_block),
            source: CachePadded::new(source),
            words: Padded::new(stripes),
        }
    }

    /// Returns the source of the leases.
    pub fn source(&self) -> &P {
        &self.source
    }

    /// Returns how many units to fetch at the time `now`, so that every stripe in use finds its next block of units when its present
    /// block is empty.
    ///
    /// This is twice the present blocks of the stripes that leased within the last life, less the units that the
    /// limiter already holds. It is never more than the deposits have room for ([`deposit`](Leases::deposit)).
    ///
    /// Use this method with sources that are filled by deposits. The result is zero while no check spends units. The
    /// first check after such a pause asks the source, which shows the source that units are wanted again.
    ///
    /// # Complexity
    /// O(stripes); reads only.
    #[must_use]
    pub fn wanted(&self, now: Timestamp) -> u64 {
        self.account().wanted(now.as_nanos())
    }

    /// Adds a lease that was charged outside a check, so that all stripes can draw from it. Returns the number of
    /// units that the limiter keeps. The other units are lost.
    ///
    /// `asked` is the limiter's time ([`RateLimiter::clock`](crate::RateLimiter::clock)) at the request for the lease, and `now` the present time. The lease's life begins at
    /// `asked`, because the source may have charged the units then. If `asked` is in the future, the life begins now.
    /// The limiter keeps no unit of an expired lease.
    ///
    /// The limiter keeps all units of a deposit in this case: the deposit has at most [`Leases::wanted`] units, it
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
    pub fn deposit(&self, lease: Lease, asked: Timestamp, now: Timestamp) -> u64 {
        self.account().deposit(lease, asked.as_nanos(), now.as_nanos())
    }

    #[inline(always)]
    pub(crate) fn account(&self) -> Account<'_, P, Padded> {
        Account { source: &self.source, terms: &self.terms, words: &self.words }
    }

    /// Decides and charges as if the thread with this number called. Thread numbers map to stripes in rotation. For
    /// tests.
    #[doc(hidden)]
    #[must_use = "the leases do not stop the request: the caller must read the decision"]
    pub fn check_on(&self, thread: usize, cost: u64, now: Timestamp) -> Decision {
        self.account().charge_on(thread, now.as_nanos(), cost).0
    }
}

impl<A: LeaseAlgorithm, C: Clock> RateLimiter<Striped<A>, C> {
    /// Takes back up to `units` of what was admitted, for a caller that does not have the decision of the charge. Returns
    /// the number of units taken back. They come back to the state that all stripes lease from, in the way of a
    /// [direct limiter](RateLimiter::give_back). Units that stripes hold were not admitted yet, so they do not come back.
    ///
    /// # Complexity
    /// O(stripes), and one exchange.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Gcra, Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::builder(Gcra::new(Quota::per_hour(1_000))).striped();
    /// assert!(limiter.check_n(600).is_allowed());
    /// assert_eq!(limiter.give_back(100), 100);
    /// assert_eq!(limiter.peek().remaining(), 500);
    /// assert_eq!(limiter.give_back(1_000), 500);
    /// ```
    pub fn give_back(&self, units: u64) -> u64 {
        self.store.give_back(self.time(), units)
    }
}

impl<A: LeaseAlgorithm, C> At<'_, RateLimiter<Striped<A>, C>> {
    /// [`RateLimiter::give_back`] at this time.
    pub fn give_back(self, units: u64) -> u64 {
        self.store().give_back(self.time(), units)
    }
}

impl<A: LeaseAlgorithm> Striped<A> {
    fn give_back(&self, at: CheckTime, units: u64) -> u64 {
        // The debt is read before the stripes: a block that is leased in between then counts as held only.
        let owed = self.source.peek(at.ns(), 0).owed();
        let admitted = owed.saturating_sub(self.account().held(at.ns()));
        Store::<()>::give_back(&*self.source, (), at, units.min(admitted))
    }
}

impl<P: fmt::Debug> fmt::Debug for Leases<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let life = Duration::from_nanos(self.terms.layout.life_ns());
        f.debug_struct("Leases")
            .field("source", &*self.source)
            .field("stripes", &self.words.holders())
            .field("life", &life)
            .finish_non_exhaustive()
    }
}
