//! Leases: units charged at a source in blocks, and spent from stripes that cores do not share.
//!
//! | part | holds |
//! |---|---|
//! | `word` | one stripe's word; when a lease is alive; how large the next block is |
//! | `source` | what grants leases, and the direct store as one that does |
//! | `deposits` | what was deposited from outside |
//! | `words` | the stripes and the deposits: padded for many threads, or small for one of many keys |
//! | `account` | spending, refilling, taking from others, putting back |
//! | here | one limit in stripes |
//!
//! ```text
//! check(cost):  own stripe holds the cost? -> one exchange, on a line that no other core writes
//! otherwise, until the cost is together:
//!   1. own stripe + hand >= cost           -> exchange the stripe for what is left of both; done
//!   2. a slot of the deposits, or the source,
//!      grants at least what is missing     -> into the hand
//!   3. the source denies: own stripe + hand + all other stripes + what the source says it has left
//!        < cost                            -> put the hand back into the own stripe; denied
//!        otherwise                         -> take what is missing from the others into the hand
//! ```
//!
//! A word's lease was charged before it was written, so the law that matters is that *no unit is spent twice,
//! or after its lease has expired*:
//!
//! - Units leave a stripe by an exchange from exactly the word that they were read in. A word is the whole
//!   state of its stripe, so a word that was changed and changed back is as good as one that was not.
//! - The hand (what one call has got so far) has one expiry, the earliest of its pieces'. What is left of a
//!   stripe is spent at once, and the rest of the block becomes the new word under its own expiry. Where two
//!   pieces with units left meet in one word (somebody refilled the stripe meanwhile, or a hand is put back),
//!   it takes the earlier expiry. So no unit is ever given a later one.
//! - A stripe that is found empty or expired is overwritten: what it held is lost.
//!
//! *Lock-free.* An exchange fails, and a turn of the loop is in vain, only after somebody else's exchange.
//! Hands only grow until their call ends, and every other exchange ends one; units being finite, some call
//! ends.
//!
//! *What a denial has seen.* The source's refusal, then each other word once. Units that are in another
//! call's hand, or move from a stripe not yet seen to one already seen (a hand put back), are missed.
//!
//! Ordering of all of it: Relaxed. Words publish nothing but themselves, and all that is asked of them is
//! that each has one order of modification, and that a thread sees what was written before it was told of it.

mod account;
mod deposits;
#[cfg(all(test, tollgate_loom))]
mod models;
mod source;
mod word;
mod words;

use std::fmt;
use std::time::Duration;

pub(crate) use self::account::{Account, Terms};
pub use self::source::{Lease, LeaseAlgorithm, LeaseRequest, LeaseSource};
pub(crate) use self::words::Small;
pub(crate) use self::words::{Padded, Words};
use crate::algorithm::Gcra;
use crate::base::decision::Decision;
use crate::base::sync::processors;
use crate::store::Direct;

/// Leases of a [`Direct`] state: one limit that all cores can hit at once. The store of
/// [`Builder::striped`](crate::Builder::striped).
pub type Striped<A = Gcra> = Leases<Direct<A>>;

const MAX_STRIPES: usize = 1024;

/// One limit in stripes, each with units that were charged beforehand at a [`LeaseSource`].
///
/// A *direct* limiter has one word, and every allowed check writes it: cores that hit it at once wait for its
/// cache line, and two of them are together slower than one alone. Here each thread has a *stripe* (threads
/// take turns in choosing, so up to the number of stripes each has its own). A check takes from it what was
/// charged for at the source in a block; once a block is used up, the next one is charged. So the shared word
/// is written once a block. (Threads get their turns when they first use any such limiter, for all of them:
/// two that use this one can share a stripe while another is free.)
///
/// Made by [`Builder::striped`](crate::Builder::striped), or by [`Builder::leases`](crate::Builder::leases)
/// for a source of your own. Worth it for a limit that several cores hit hundreds of thousands of times a
/// second; for all others [`Direct`] is exact, and as fast, and can do more: here nobody can wait for a turn,
/// reserve, refund, settle or adjust the quota, and policies have no leases.
///
/// # What is guaranteed
///
/// - **Nothing is admitted that was not charged.** A block may be spent until its lease expires,
///   [`lease_life`](crate::Builder::lease_life) after it was charged (10 ms unless said otherwise; less by up
///   to a sixteenth, or by up to 4.1 µs if that is more, as expiries are kept in ticks). So in any interval
///   of length `t` no more is admitted than the algorithm admits in `t + life`: for GCRA
///   `burst + (t + life) / T`. For windows of the calendar this means that one can see its limit and, just
///   after it has begun, what was charged to the one before and is still held: up to half a limit more (what
///   stripes can hold, see below).
/// - **Late times.** A time that lags by up to a life finds the leases that were taken since, and adds its
///   lag to that interval. Leases that a source of your own has made shorter are found by times that lag for
///   longer than a life: by all that are less than two lives before the expiry. Earlier times find none.
/// - **A check is denied only if the source and all stripes together do not hold its cost.** Before it
///   denies, a call looks into the other stripes, and takes from them. Units that another call has in its
///   hands at that very moment, between two exchanges, are not seen.
/// - **What is stranded is bounded.** Units left when a lease expires are lost. They are at most the sum of
///   the blocks last charged, one for each stripe. A block is at most
///   [`max_block`](crate::Builder::max_block), about what the stripe lately used up in one life (it doubles
///   while blocks last for less than half of one, and halves when one expires unspent, and for every idle
///   life), and, with a state in this process, the stripe's share of half of what remained when it was
///   charged: all stripes together never strand more than half of a limit. The only exception is a request
///   that itself costs more, which is spent at once.
/// - A denial writes nothing, unless a race gave it part of its cost: that part goes to its own stripe, with
///   the earliest expiry of its pieces.
/// - Lock-free, like every call here. No check is denied because of contention.
///
/// # What decisions say
/// One that a stripe's units sufficed for knows only its stripe: [`remaining`](Decision::remaining) is at
/// least so much, and [`reset_after`](Decision::reset_after) is zero. One that charged a block has the
/// source's figures after that, and so does a denial, with what all stripes hold added to `remaining`, and a
/// [`retry_after`](Decision::retry_after) that is the source's own, so that it may be admitted earlier. Peeks
/// add up everything.
///
/// # Complexity
/// A check that its stripe suffices for: O(1), one exchange. One in a block of them charges the source.
/// Denials and peeks look at all stripes. Memory: 128 bytes for each stripe.
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
    source: P,
    terms: Terms,
    words: Padded,
}

/// What a builder says about leases.
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
            source,
            words: Padded::new(stripes),
        }
    }

    pub(crate) const fn source(&self) -> &P {
        &self.source
    }

    #[inline(always)]
    pub(crate) fn account(&self) -> Account<'_, P, Padded> {
        Account { source: &self.source, terms: &self.terms, words: &self.words }
    }

    /// Decides and charges for a thread of this number.
    #[inline(always)]
    pub(crate) fn charge_on(&self, thread: usize, now_ns: u64, cost: u64) -> Decision {
        self.account().charge_on(thread, now_ns, cost).0
    }
}

impl<P: fmt::Debug> fmt::Debug for Leases<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let life = Duration::from_nanos(self.terms.layout.life_ns());
        f.debug_struct("Leases")
            .field("source", &self.source)
            .field("stripes", &self.words.holders())
            .field("life", &life)
            .finish_non_exhaustive()
    }
}
