//! The steps of the protocol that the docs of `striped` describe: spending, refilling, taking from other stripes, and
//! putting back.

use std::time::Duration;

use super::source::{Lease, LeaseRequest, LeaseSource};
use super::word::{Gathered, StripeLayout, exchange};
use super::words::Words;
use crate::base::clock::{Timestamp, saturating_nanos};
use crate::base::decision::{Decision, Facts, Outcome};
use crate::base::sync::{AtomicU64, Ordering};

/// The constants of a limiter's leases.
#[derive(Copy, Clone, Debug)]
pub struct Terms {
    pub(super) layout: StripeLayout,
    /// The limit.
    pub limit: u64,
    pub(super) max_block_log2: u32,
}

impl Terms {
    /// Creates the terms of a limit whose leases live this long, with blocks of at most `max_block` units.
    pub fn new(limit: u64, life: Duration, max_block: u64) -> Self {
        let layout = StripeLayout::new(saturating_nanos(life));
        Self { layout, limit, max_block_log2: max_block.clamp(1, layout.most()).ilog2() }
    }

    /// Spends a cost from the stripe of the thread with this number, if the stripe holds it and no other call changes
    /// the stripe first. Returns the units left in the stripe and their expiry. A cost of 0 is not spent.
    #[inline(always)]
    pub fn take<W: Words>(&self, words: &W, thread: usize, now_ns: u64, cost: u64) -> Option<(u64, u64)> {
        let home = words.home(thread);
        // Ordering: Relaxed, here and below; see the text of `striped`.
        let word = home.load(Ordering::Relaxed);
        let units = self.layout.units_of(word);
        // One comparison for `1 <= cost <= units`. It comes first because a stripe usually holds no units when a check
        // is denied.
        let is_spent = cost.wrapping_sub(1) < units
            && self.layout.is_alive(word, now_ns)
            && exchange(home, word, word - cost);
        is_spent.then(|| (units - cost, self.layout.expiry_of(word)))
    }

    /// Returns the longest life of a lease, in nanoseconds.
    pub const fn life_ns(&self) -> u64 {
        self.layout.life_ns()
    }

    /// Returns the most units that one deposit can add to an empty word.
    pub const fn most(&self) -> u64 {
        self.layout.most()
    }
}

/// The words of one limit, with its source and its constants. Created for one call.
#[derive(Copy, Clone, Debug)]
pub struct Account<'a, P, W> {
    /// The limit that has the units.
    pub source: &'a P,
    /// The constants.
    pub terms: &'a Terms,
    /// The words that hold leased units.
    pub words: &'a W,
}

/// The result of spending from a stripe and a hand.
enum Settled {
    /// The cost is spent. Its units expire at `expiry` or later, and `left` units are left in the stripe.
    Spent { left: u64, expiry: u64 },
    /// This many units are missing.
    Short { missing: u64 },
}

impl<'a, P: LeaseSource, W: Words> Account<'a, P, W> {
    /// Decides and charges for the thread with this number. Also returns the earliest expiry of the spent units, or 0
    /// if no unit was spent.
    #[inline(always)]
    pub fn charge_on(&self, thread: usize, now_ns: u64, cost: u64) -> (Decision, u64) {
        if let Some((left, expiry)) = self.terms.take(self.words, thread, now_ns, cost) {
            return (self.spent(now_ns, cost, left), expiry);
        }
        // One comparison for `1 <= cost <= limit`. The words are read after the source's denial.
        if cost.wrapping_sub(1) < self.terms.limit
            && let Some(refused) = self.source.deny(cost, Timestamp::from_nanos(now_ns))
            && self.is_empty(now_ns)
        {
            return (refused, 0);
        }
        // Passes a copy of `self`, so that the compiler can keep `self` itself in registers.
        let &Self { source, terms, words } = self;
        Self { source, terms, words }.gather(words.home(thread), now_ns, cost)
    }

    /// Returns whether no word holds units.
    #[inline(always)]
    fn is_empty(&self, now_ns: u64) -> bool {
        let layout = &self.terms.layout;
        let is_empty = |stripe: &AtomicU64| {
            let word = stripe.load(Ordering::Relaxed);
            layout.units_of(word) == 0 || !layout.is_alive(word, now_ns)
        };
        self.words.deposits().slots(now_ns).is_empty() && self.words.stripes().all(is_empty)
    }

    fn spent(&self, now_ns: u64, cost: u64, left: u64) -> Decision {
        let facts = Facts::Plain { remaining: left, retry_ns: 0, reset_ns: 0, delay_ns: 0 };
        Decision::new(Outcome::Allowed, cost, self.terms.limit, now_ns, facts)
    }

    /// Collects the cost from the stripe, the deposits, the source and the other stripes. Out of line: one check per
    /// block calls this.
    #[cold]
    #[inline(never)]
    fn gather(&self, home: &AtomicU64, now_ns: u64, cost: u64) -> (Decision, u64) {
        if cost == 0 || cost > self.terms.limit {
            return (self.peek(now_ns, cost), 0);
        }
        let word = home.load(Ordering::Relaxed);
        let mut log2 = self.terms.layout.next_log2(word, now_ns).min(self.terms.max_block_log2);
        let mut hand = Gathered::EMPTY;
        let mut standing = None;
        loop {
            let mut missing = match self.settle(home, now_ns, cost, hand, log2) {
                Settled::Spent { left, expiry } => {
                    let decision = self.spent(now_ns, cost, left);
                    let decision = standing.map_or(decision, |standing| decision.with_facts_of(standing));
                    return (decision, expiry);
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
                holders: self.words.holders(),
                now: Timestamp::from_nanos(now_ns),
            };
            let refused = match self.source.lease(&request) {
                Ok(lease) => {
                    let expiry = self.terms.layout.expiry(now_ns, lease.life_ns);
                    hand.add(Gathered { units: lease.units(), expiry });
                    standing = lease.standing;
                    // Near the limit blocks are small, and grow again from there.
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
            // The source has fewer units than it denied, whatever it reports. The loop ends at the latest when the
            // other words are empty.
            let left = || refused.remaining().min(missing - 1);
            if others == 0 || others < missing && others.saturating_add(left()) < missing {
                let held = (cost - missing).saturating_add(others);
                self.put_back(home, now_ns, hand);
                return (self.denied(now_ns, cost, held, missing, refused), 0);
            }
            self.take_from_others(home, now_ns, missing, &mut hand);
        }
    }

    /// Spends `cost`, if the stripe and the hand together hold enough: first from the stripe, then from the hand.
    /// Leaves the rest in the stripe.
    fn settle(&self, home: &AtomicU64, now_ns: u64, cost: u64, hand: Gathered, log2: u32) -> Settled {
        loop {
            let word = home.load(Ordering::Relaxed);
            let held = self.terms.layout.held(word, now_ns);
            if let Some(missing) = cost.checked_sub(held.saturating_add(hand.units))
                && missing > 0
            {
                return Settled::Short { missing };
            }
            let next = if hand.units == 0 {
                word - cost
            } else {
                // The stripe and the hand both have units left only if another call has refilled the stripe.
                let from_hand = cost.saturating_sub(held);
                let rest = Gathered { units: hand.units - from_hand, ..hand };
                self.join(word, held - (cost - from_hand), rest, log2, now_ns)
            };
            if exchange(home, word, next) {
                let own = if held > 0 { self.terms.layout.expiry_of(word) } else { u64::MAX };
                return Settled::Spent {
                    left: self.terms.layout.held(next, now_ns),
                    expiry: own.min(hand.expiry),
                };
            }
        }
    }

    /// Takes a block from the deposits, if a slot holds the missing units. If several slots do, uses the slot that
    /// expires first.
    fn draw(&self, now_ns: u64, missing: u64, wanted: u64, hand: &mut Gathered) -> bool {
        let layout = &self.terms.layout;
        loop {
            let slots = self.words.deposits().slots(now_ns).iter();
            let words = slots.map(|slot| (slot, slot.load(Ordering::Relaxed)));
            let enough = words.filter(|(_, word)| layout.held(*word, now_ns) >= missing);
            let Some((slot, word)) = enough.min_by_key(|(_, word)| layout.expiry_of(*word)) else {
                return false;
            };
            let share = layout.held(word, now_ns) / self.words.holders();
            let units = wanted.min(share).max(missing);
            if exchange(slot, word, word - units) {
                hand.add(Gathered { units, expiry: layout.expiry_of(word) });
                return true;
            }
        }
    }

    /// Takes up to the missing units, from one word after another.
    pub(super) fn take_from_others(
        &self,
        home: &AtomicU64,
        now_ns: u64,
        mut missing: u64,
        hand: &mut Gathered,
    ) {
        for other in self.others(home, now_ns) {
            let piece = self.take_from(other, now_ns, missing);
            missing -= piece.units;
            hand.add(piece);
        }
    }

    /// Takes up to `most` units from a word.
    fn take_from(&self, place: &AtomicU64, now_ns: u64, most: u64) -> Gathered {
        loop {
            let word = place.load(Ordering::Relaxed);
            let units = self.terms.layout.held(word, now_ns).min(most);
            if units == 0 || exchange(place, word, word - units) {
                return Gathered { units, expiry: self.terms.layout.expiry_of(word) };
            }
        }
    }

    /// Returns a word with `own` units of the word `word` and the units of a hand. If both have units, all of them take
    /// the earlier expiry. The later expiry would give some units a longer life than they were charged for.
    fn join(&self, word: u64, own: u64, hand: Gathered, log2: u32, now_ns: u64) -> u64 {
        let fresh = if self.terms.layout.is_alive(hand.expiry, now_ns) { hand.units } else { 0 };
        let expiry = match (own, fresh) {
            (0, _) => hand.expiry,
            (_, 0) => self.terms.layout.expiry_of(word),
            _ => self.terms.layout.expiry_of(word).min(hand.expiry),
        };
        self.terms.layout.pack(expiry, log2, own.saturating_add(fresh))
    }

    /// Adds a hand to a word.
    pub(super) fn put_back(&self, place: &AtomicU64, now_ns: u64, hand: Gathered) {
        if hand.units == 0 {
            return;
        }
        loop {
            let word = place.load(Ordering::Relaxed);
            let own = self.terms.layout.held(word, now_ns);
            let next = self.join(word, own, hand, self.terms.layout.block_log2(word), now_ns);
            if exchange(place, word, next) {
                break;
            }
        }
    }

    /// Builds the denial of a request for `cost` units, when the source denied `missing` of them and stripes hold
    /// `held`.
    fn denied(&self, now_ns: u64, cost: u64, held: u64, missing: u64, refused: Decision) -> Decision {
        // Uses the wait for the whole cost, because the units in the stripes may have expired by then. The wait is at
        // least that of the denied units, because a source's peek may not know the true wait.
        let whole =
            if missing == cost { refused } else { self.source.peek(cost, Timestamp::from_nanos(now_ns)) };
        let outcome = if whole.is_never() || refused.is_never() { Outcome::Never } else { Outcome::Denied };
        self.with_held(outcome, now_ns, cost, [whole, refused], held)
    }

    /// Builds a decision that charges nothing: the source's decision, with the units of the stripes added. If the
    /// source returned two decisions, uses the longer of their waits.
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
            remaining: whole.remaining().saturating_add(held).min(self.terms.limit),
            retry_ns: longer(|decision| decision.retry_after().unwrap_or_default()),
            reset_ns: longer(|decision| decision.reset_after()),
            delay_ns: 0,
        };
        Decision::new(outcome, cost, self.terms.limit, now_ns, facts)
    }

    /// Decides what a check would, and charges nothing.
    pub fn peek(&self, now_ns: u64, cost: u64) -> Decision {
        let source = self.source.peek(cost, Timestamp::from_nanos(now_ns));
        let held = self.held(now_ns);
        let outcome = if cost > self.terms.limit {
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

    /// Takes all units out, and passes each word's units and expiry to `each`. No other call can spend these units any
    /// more, so the caller may return them to the source.
    pub fn take_all(&self, now_ns: u64, mut each: impl FnMut(u64, u64)) {
        for place in self.words.all(now_ns) {
            let Gathered { units, expiry } = self.take_from(place, now_ns, u64::MAX);
            if units > 0 {
                each(units, expiry);
            }
        }
    }

    /// Adds a lease to the deposits, where all stripes find it. Returns the number of units that were kept.
    pub fn deposit(&self, lease: Lease, asked_ns: u64, now_ns: u64) -> u64 {
        // If `asked_ns` is in the future, the life begins now. Otherwise the lease would live too long.
        let expiry = self.terms.layout.expiry(asked_ns.min(now_ns), lease.life_ns);
        self.words.deposits().add(&self.terms.layout, Gathered { units: lease.units(), expiry }, now_ns)
    }

    /// Returns how many units to fetch so that every recently used stripe finds its next block: twice the current
    /// blocks of these stripes, less the units that are held already, and at most the free room of the deposits.
    pub(crate) fn wanted(&self, now_ns: u64) -> u64 {
        let recent = |word: &u64| self.terms.layout.is_recent(*word, now_ns);
        let words = || self.words.stripes().map(|stripe| stripe.load(Ordering::Relaxed));
        let blocks = words().filter(recent).map(|word| 1 << self.terms.layout.block_log2(word)).sum::<u64>();
        let wanted = blocks.saturating_mul(2).saturating_sub(self.held(now_ns));
        wanted.min(self.words.deposits().room(&self.terms.layout, now_ns))
    }

    /// Returns all words except `home`.
    fn others(&self, home: &AtomicU64, now_ns: u64) -> impl Iterator<Item = &'a AtomicU64> {
        let home: *const AtomicU64 = home;
        self.words.all(now_ns).filter(move |word| !std::ptr::eq(*word, home))
    }

    /// Returns the units in all words except `home`.
    pub(super) fn held_by_others(&self, home: &AtomicU64, now_ns: u64) -> u64 {
        self.held_in(self.others(home, now_ns), now_ns)
    }

    /// Returns the units in all words.
    pub fn held(&self, now_ns: u64) -> u64 {
        self.held_in(self.words.all(now_ns), now_ns)
    }

    fn held_in(&self, words: impl Iterator<Item = &'a AtomicU64>, now_ns: u64) -> u64 {
        let held = |word: &AtomicU64| self.terms.layout.held(word.load(Ordering::Relaxed), now_ns);
        words.map(held).fold(0, u64::saturating_add)
    }
}
