//! Leases: units charged at a source in blocks, and spent from stripes that cores do not share.
//!
//! | part | holds |
//! |---|---|
//! | `word` | one stripe's word; when a lease is alive; how large the next block is |
//! | `source` | what grants leases, and the direct store as one that does |
//! | `reserve` | what was deposited from outside |
//! | here | stripes: spending, refilling, taking from others, putting back |
//!
//! ```text
//! check(cost):  own stripe holds the cost? -> one exchange, on a line that no other core writes
//! otherwise, until the cost is together:
//!   1. own stripe + hand >= cost           -> exchange the stripe for what is left of both; done
//!   2. a slot of the reserve, or the source,
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

#[cfg(all(test, tollgate_loom))]
mod models;
mod reserve;
mod source;
mod word;

use std::fmt;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use self::reserve::Reserve;
pub use self::source::{Lease, LeaseAlgorithm, LeaseRequest, LeaseSource};
use self::word::Layout;
use crate::algorithm::Gcra;
use crate::clock::{Timestamp, saturating_nanos};
use crate::decision::{Decision, Facts, Outcome};
use crate::store::Direct;
use crate::sync::{AtomicU64, Ordering, thread_number};

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
    layout: Layout,
    limit: u64,
    max_block_log2: u32,
    /// A power of two of them. Padded: a stripe is written by the threads that chose it, and read by the
    /// others seldom.
    stripes: Box<[CachePadded<AtomicU64>]>,
    reserve: CachePadded<Reserve>,
}

/// What a builder says about leases.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) stripes: Option<usize>,
    pub(crate) life: Duration,
    pub(crate) max_block: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { stripes: None, life: Duration::from_millis(10), max_block: 4096 }
    }
}

/// What one call has got so far: units to be spent before the earliest expiry of their pieces.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Hand {
    units: u64,
    expiry: u64,
}

impl Hand {
    const EMPTY: Self = Self { units: 0, expiry: u64::MAX };

    fn add(&mut self, units: u64, expiry: u64) {
        if units > 0 {
            self.units = self.units.saturating_add(units);
            self.expiry = self.expiry.min(expiry);
        }
    }
}

/// How a stripe and a hand were brought together.
enum Settled {
    /// The cost is spent; so many units are left in the stripe.
    Spent { left: u64 },
    /// So many units are missing.
    Short { missing: u64 },
}

impl<P: LeaseSource> Leases<P> {
    pub(crate) fn new(source: P, options: &Options) -> Self {
        let layout = Layout::new(saturating_nanos(options.life));
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let stripes = options.stripes.unwrap_or_else(cores).clamp(1, MAX_STRIPES).next_power_of_two();
        Self {
            limit: source.limit(),
            source,
            layout,
            max_block_log2: options.max_block.clamp(1, layout.most()).ilog2(),
            stripes: (0..stripes).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            reserve: CachePadded::new(Reserve::new()),
        }
    }

    pub(crate) const fn source(&self) -> &P {
        &self.source
    }

    /// Decides and charges for the calling thread.
    #[inline(always)]
    pub(crate) fn charge(&self, now_ns: u64, cost: u64) -> Decision {
        self.charge_on(thread_number(), now_ns, cost)
    }

    /// Decides and charges for a thread of this number.
    #[inline(always)]
    pub(crate) fn charge_on(&self, thread: usize, now_ns: u64, cost: u64) -> Decision {
        let home = &self.stripes[thread & (self.stripes.len() - 1)];
        // Ordering: Relaxed, here and below; see the module's text.
        let word = home.load(Ordering::Relaxed);
        let held = self.layout.held(word, now_ns);
        // One comparison for `1 <= cost <= held`.
        if cost.wrapping_sub(1) < held && exchange(home, word, word - cost) {
            return self.spent(now_ns, cost, held - cost);
        }
        self.gather(home, now_ns, cost)
    }

    fn spent(&self, now_ns: u64, cost: u64, left: u64) -> Decision {
        let facts = Facts::Plain { remaining: left, retry_ns: 0, reset_ns: 0, delay_ns: 0 };
        Decision::new(Outcome::Allowed, cost, self.limit, now_ns, facts)
    }

    /// Brings the cost together from wherever there is something. Out of line: one check in a block comes
    /// here.
    #[cold]
    #[inline(never)]
    fn gather(&self, home: &AtomicU64, now_ns: u64, cost: u64) -> Decision {
        if cost == 0 || cost > self.limit {
            return self.peek(now_ns, cost);
        }
        let word = home.load(Ordering::Relaxed);
        let mut log2 = self.layout.next_log2(word, now_ns).min(self.max_block_log2);
        let mut hand = Hand::EMPTY;
        let mut standing = None;
        loop {
            let mut missing = match self.settle(home, now_ns, cost, hand, log2) {
                Settled::Spent { left } => {
                    let decision = self.spent(now_ns, cost, left);
                    return standing.map_or(decision, |standing| decision.with_figures_of(standing));
                }
                Settled::Short { missing } => missing,
            };
            let wanted = missing.max(1 << log2);
            if self.draw(now_ns, missing, wanted, &mut hand) {
                continue;
            }
            let request = LeaseRequest {
                least: missing,
                wanted,
                holders: self.holders(),
                now: Timestamp::from_nanos(now_ns),
            };
            let refused = match self.source.lease(&request) {
                Ok(lease) => {
                    hand.add(lease.units(), self.layout.expiry(now_ns, lease.life_ns()));
                    standing = lease.standing();
                    // Near the limit blocks are small, and grow anew from there.
                    log2 = log2.min(lease.units().checked_ilog2().unwrap_or(0));
                    if lease.units() >= missing {
                        continue;
                    }
                    missing -= lease.units();
                    self.source.peek(missing, request.now)
                }
                Err(refused) => refused,
            };
            let others = self.held_by_others(home, now_ns);
            // The source has less than it refused, whatever it says: so a turn that takes nothing is the
            // last.
            let left = || refused.remaining().min(missing - 1);
            if others == 0 || others < missing && others.saturating_add(left()) < missing {
                let held = (cost - missing).saturating_add(others);
                self.put_back(home, now_ns, hand);
                return self.denied(now_ns, cost, held, missing, refused);
            }
            self.take_from_others(home, now_ns, missing, &mut hand);
        }
    }

    /// Spends `cost` from the stripe first and then from the hand, and leaves the rest in the stripe, if they
    /// hold so much.
    fn settle(&self, home: &AtomicU64, now_ns: u64, cost: u64, hand: Hand, log2: u32) -> Settled {
        loop {
            let word = home.load(Ordering::Relaxed);
            let held = self.layout.held(word, now_ns);
            if let Some(missing) = cost.checked_sub(held.saturating_add(hand.units))
                && missing > 0
            {
                return Settled::Short { missing };
            }
            let next = if hand.units == 0 {
                word - cost
            } else {
                // Units are left of both only if somebody else has refilled the stripe.
                let from_hand = cost.saturating_sub(held);
                let rest = Hand { units: hand.units - from_hand, ..hand };
                self.join(word, held - (cost - from_hand), rest, log2, now_ns)
            };
            if exchange(home, word, next) {
                return Settled::Spent { left: self.layout.held(next, now_ns) };
            }
        }
    }

    /// Takes a block from the reserve, if a slot holds what is missing: of those the one that expires first.
    fn draw(&self, now_ns: u64, missing: u64, wanted: u64, hand: &mut Hand) -> bool {
        loop {
            let words = self.reserve.slots(now_ns).iter().map(|slot| (slot, slot.load(Ordering::Relaxed)));
            let enough = words.filter(|(_, word)| self.layout.held(*word, now_ns) >= missing);
            let Some((slot, word)) = enough.min_by_key(|(_, word)| self.layout.expiry_of(*word)) else {
                return false;
            };
            let share = self.layout.held(word, now_ns) / self.holders();
            let units = wanted.min(share).max(missing);
            if exchange(slot, word, word - units) {
                hand.add(units, self.layout.expiry_of(word));
                return true;
            }
        }
    }

    /// Takes up to what is missing, a piece here and a piece there.
    fn take_from_others(&self, home: &AtomicU64, now_ns: u64, mut missing: u64, hand: &mut Hand) {
        for other in self.others(home, now_ns) {
            while missing > 0 {
                let word = other.load(Ordering::Relaxed);
                let units = self.layout.held(word, now_ns).min(missing);
                if units == 0 {
                    break;
                }
                if exchange(other, word, word - units) {
                    hand.add(units, self.layout.expiry_of(word));
                    missing -= units;
                }
            }
        }
    }

    /// `own` units of a word and those of a hand, in one word. If both have some, all take the earlier
    /// expiry: the later one would give units a longer life than they were charged for.
    fn join(&self, word: u64, own: u64, hand: Hand, log2: u32, now_ns: u64) -> u64 {
        let fresh = if self.layout.is_alive(hand.expiry, now_ns) { hand.units } else { 0 };
        let expiry = match (own, fresh) {
            (0, _) => hand.expiry,
            (_, 0) => self.layout.expiry_of(word),
            _ => self.layout.expiry_of(word).min(hand.expiry),
        };
        self.layout.pack(expiry, log2, own.saturating_add(fresh))
    }

    /// Adds a hand to a word.
    fn put_back(&self, place: &AtomicU64, now_ns: u64, hand: Hand) {
        if hand.units == 0 {
            return;
        }
        loop {
            let word = place.load(Ordering::Relaxed);
            let own = self.layout.held(word, now_ns);
            let next = self.join(word, own, hand, self.layout.block_log2(word), now_ns);
            if exchange(place, word, next) {
                break;
            }
        }
    }

    /// A denial of `missing` out of `cost` units, where stripes hold `held`.
    fn denied(&self, now_ns: u64, cost: u64, held: u64, missing: u64, refused: Decision) -> Decision {
        // The wait for the whole: what stripes hold now may have expired by then. But for no less than what
        // was refused: a peek may know of nothing.
        let whole =
            if missing == cost { refused } else { self.source.peek(cost, Timestamp::from_nanos(now_ns)) };
        let outcome = if whole.is_never() || refused.is_never() { Outcome::Never } else { Outcome::Denied };
        self.with_held(outcome, now_ns, cost, [whole, refused], held)
    }

    /// An answer that charges nothing: what the source says, with what stripes hold. If the source has said
    /// something twice, the longer of its waits.
    fn with_held(
        &self,
        outcome: Outcome,
        now_ns: u64,
        cost: u64,
        source: [Decision; 2],
        held: u64,
    ) -> Decision {
        let [whole, other] = source;
        if held == 0 && (whole.outcome(), whole.cost()) == (outcome, cost) {
            return whole;
        }
        let longer = |wait: fn(Decision) -> Duration| saturating_nanos(wait(whole).max(wait(other)));
        let facts = Facts::Plain {
            remaining: whole.remaining().saturating_add(held).min(self.limit),
            retry_ns: longer(|decision| decision.retry_after().unwrap_or_default()),
            reset_ns: longer(|decision| decision.reset_after()),
            delay_ns: 0,
        };
        Decision::new(outcome, cost, self.limit, now_ns, facts)
    }

    pub(crate) fn peek(&self, now_ns: u64, cost: u64) -> Decision {
        let source = self.source.peek(cost, Timestamp::from_nanos(now_ns));
        let held = self.held(now_ns);
        let outcome = if cost > self.limit {
            Outcome::Never
        } else if cost == 0 || source.is_allowed() || source.remaining().saturating_add(held) >= cost {
            Outcome::Allowed
        } else if source.is_never() {
            Outcome::Never
        } else {
            Outcome::Denied
        };
        self.with_held(outcome, now_ns, cost, [source; 2], held)
    }

    /// Puts a lease where all stripes find it. Returns how many of its units.
    pub(crate) fn deposit(&self, lease: Lease, asked_ns: u64, now_ns: u64) -> u64 {
        // A time of asking that is yet to come would make the life longer.
        let expiry = self.layout.expiry(asked_ns.min(now_ns), lease.life_ns());
        self.reserve.deposit(&self.layout, Hand { units: lease.units(), expiry }, now_ns)
    }

    /// How many units would be wanted so that every stripe in use has a block after the one it has, as far as
    /// there is room.
    pub(crate) fn wanted(&self, now_ns: u64) -> u64 {
        let recent = |word: &u64| self.layout.is_recent(*word, now_ns);
        let words = || self.stripes.iter().map(|stripe| stripe.load(Ordering::Relaxed));
        let blocks = words().filter(recent).map(|word| 1 << self.layout.block_log2(word)).sum::<u64>();
        let wanted = blocks.saturating_mul(2).saturating_sub(self.held(now_ns));
        wanted.min(self.reserve.room(&self.layout, now_ns))
    }

    /// How many stripes there are.
    fn holders(&self) -> u64 {
        self.stripes.len() as u64
    }

    /// All words but one.
    fn others(&self, home: &AtomicU64, now_ns: u64) -> impl Iterator<Item = &AtomicU64> {
        let home: *const AtomicU64 = home;
        let all = self.stripes.iter().map(|stripe| &**stripe).chain(self.reserve.slots(now_ns));
        all.filter(move |word| !std::ptr::eq(*word, home))
    }

    /// The units of all words but one.
    fn held_by_others(&self, home: &AtomicU64, now_ns: u64) -> u64 {
        let words = self.others(home, now_ns).map(|word| word.load(Ordering::Relaxed));
        words.map(|word| self.layout.held(word, now_ns)).fold(0, u64::saturating_add)
    }

    /// The units of all words.
    fn held(&self, now_ns: u64) -> u64 {
        let stripes = self.stripes.iter().map(|stripe| &**stripe);
        let words = stripes.chain(self.reserve.slots(now_ns)).map(|word| word.load(Ordering::Relaxed));
        words.map(|word| self.layout.held(word, now_ns)).fold(0, u64::saturating_add)
    }
}

/// Exchanges a word that was read, if it is still the same.
#[inline(always)]
fn exchange(place: &AtomicU64, word: u64, next: u64) -> bool {
    // Ordering: Relaxed; see the module's text.
    place.compare_exchange(word, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

impl<P: fmt::Debug> fmt::Debug for Leases<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let life = Duration::from_nanos(self.layout.life_ns());
        f.debug_struct("Leases")
            .field("source", &self.source)
            .field("stripes", &self.stripes.len())
            .field("life", &life)
            .finish_non_exhaustive()
    }
}

impl<A: LeaseAlgorithm> Striped<A> {
    pub(crate) fn algorithm(&self) -> &A {
        self.source.algorithm()
    }
}
