//! Models of holds: each is settled once, and no denial is due to a hold that has ended, neither by its units nor by its
//! place.

use std::hash::BuildHasher;

use super::{Charge, Held, HoldBook, HoldId, Holding};
use crate::algorithm::Gcra;
use crate::base::check_time::CheckTime;
use crate::base::decision::Decision;
use crate::base::quota::Quota;
#[cfg(tollgate_shuttle)]
use crate::base::sync::eight;
use crate::base::sync::{Arc, both, explore};
use crate::store::Direct;
use crate::store::op::{KeyTrace, Operation, Store, StoreBase};

const KEY: u64 = 7;
const HASH: u64 = 1 << 60;
const END: CheckTime = CheckTime::from_ns(2_000_000_000);

fn with_one_hold() -> (Arc<HoldBook<()>>, HoldId) {
    let book = HoldBook::new(4);
    let hold = Held { units: 1, charge: () };
    let id = HoldId::unique(END.ns());
    assert!(book.keep((HASH, id), hold, (u64::MAX, 0), |_, _| {}).is_ok(), "there is room");
    (Arc::new(book), id)
}

type Take = fn(&HoldBook<()>, HoldId) -> bool;

fn take(book: &HoldBook<()>, id: HoldId) -> bool {
    book.take(HASH, id, |_, _| ()).is_some()
}

/// The fault: looks for the hold in one critical section, and removes it in another one.
fn take_separately(book: &HoldBook<()>, id: HoldId) -> bool {
    let is_there = book.standing(HASH).units > 0;
    book.take(HASH, id, |_, _| ());
    is_there
}

/// A holder settles its hold while a decision releases it, because its life has ended.
fn settle_while_it_ends(take: Take) {
    explore(3, move || {
        let (book, id) = with_one_hold();
        let (settled, ended) =
            both(&book, move |book| take(book, id), |book| book.release_ended(HASH, END.ns(), |_| {}));
        assert_eq!(u32::from(settled) + u32::from(ended), 1, "a hold is settled once");
        assert_eq!((book.len(), book.may_hold(HASH)), (0, false), "a settled hold leaves nothing");
    });
}

// G117
#[test]
fn hold_is_settled_once() {
    settle_while_it_ends(take);
}

// G117
#[test]
#[should_panic(expected = "a hold is settled once")]
fn control_separate_look_settles_twice() {
    settle_while_it_ends(take_separately);
}

type Check = fn(&Holding<Direct<Gcra>>) -> bool;

fn check(limiter: &Holding<Direct<Gcra>>) -> bool {
    let key = Store::<u64>::prepare(limiter, &KEY);
    Store::<u64>::apply(limiter, key, Operation::Check, END, 1).is_allowed()
}

/// The fault: reads the number of holds after the store has denied.
fn check_before_the_number(limiter: &Holding<Direct<Gcra>>) -> bool {
    let ((), hash) = Store::<u64>::prepare(limiter, &KEY);
    let ask = || Store::<u64>::apply(&limiter.store, (), Operation::Check, END, 1).is_allowed();
    ask() || limiter.book.may_hold(hash) && check(limiter)
}

/// Two requests need the units of a hold that has ended.
fn requests_after_the_end(check: Check) {
    explore(3, move || {
        let limiter = Holding::new(Direct::new(Gcra::new(Quota::per_day(2))), 4);
        assert!(limiter.can_refund());
        let held = limiter.hold(&KEY, CheckTime::from_ns(1_000_000_000), 2, END.ns());
        assert!(held.is_ok(), "two units are free");
        let (one, other) = both(&Arc::new(limiter), check, check);
        assert!(one && other, "no denial is due to a hold that has ended");
    });
}

// G117
#[test]
fn ended_hold_denies_nothing() {
    requests_after_the_end(check);
}

// G117
#[test]
#[should_panic(expected = "no denial is due to a hold that has ended")]
fn control_late_number_denies() {
    requests_after_the_end(check_before_the_number);
}

/// A store with one state for each of two keys.
struct Pair([Direct<Gcra>; 2]);

impl StoreBase for Pair {
    fn can_refund(&self) -> bool {
        true
    }

    fn burst(&self) -> u64 {
        self.0[0].burst()
    }
}

impl Store<u64> for Pair {
    type Prepared<'k> = usize;
    type Ticket<'s> = Decision;

    fn prepare(&self, key: &u64) -> usize {
        (*key % 2) as usize
    }

    fn apply(&self, key: usize, operation: Operation, at: CheckTime, cost: u64) -> Decision {
        Store::<u64>::apply(&self.0[key], (), operation, at, cost)
    }

    fn peek(&self, key: usize, at: CheckTime, cost: u64) -> Decision {
        Store::<u64>::peek(&self.0[key], (), at, cost)
    }

    fn decide(&self, key: usize, at: CheckTime, cost: u64) -> Decision {
        self.peek(key, at, cost)
    }

    fn refund(&self, key: usize, at: CheckTime, charge: &Decision, units: u64) -> u64 {
        Store::<u64>::refund(&self.0[key], (), at, charge, units)
    }

    fn give_back(&self, key: usize, at: CheckTime, units: u64) -> u64 {
        Store::<u64>::give_back(&self.0[key], (), at, units)
    }

    fn key_hash(&self, key: &u64) -> u64 {
        *key
    }

    fn refund_traced<B: BuildHasher>(&self, key: KeyTrace<'_, B>, at: CheckTime, charge: &Decision) -> u64 {
        assert!(key.is(&key.hash), "the trace is that of the key");
        self.refund(self.prepare(&key.hash), at, charge, charge.charged())
    }
}

/// Returns a limiter with room for `most` holds, all of which the first key had, each of one unit of `most`.
fn full_of_ended(most: usize) -> Holding<Pair> {
    let store = || Direct::new(Gcra::new(Quota::per_day(most as u64)));
    let book = HoldBook::with_hasher(most, ahash::RandomState::with_seeds(1, 2, 3, 4));
    let limiter = Holding { store: Pair([store(), store()]), book };
    for _ in 0..most {
        assert!(limiter.hold(&0, CheckTime::from_ns(1_000_000_000), 1, END.ns()).is_ok(), "there is room");
    }
    limiter
}

/// The first odd key in the other shard than the first key.
fn other_key(limiter: &Holding<Pair>) -> u64 {
    let shard = |key: u64| limiter.book.hash(&key) >> 48 & 1;
    (1..).step_by(2).find(|key| shard(*key) != shard(0)).expect("half of the keys are there")
}

fn hold(limiter: &Holding<Pair>) -> bool {
    limiter.hold(&other_key(limiter), END, 1, 2 * END.ns()).is_ok()
}

/// The fault: gives the place of an ended hold to the new one, and loses its units.
fn hold_without_refund(limiter: &Holding<Pair>) -> bool {
    let hash = limiter.book.hash(&other_key(limiter));
    let charge = limiter.store.apply(1, Operation::Check, END, 1);
    let hold = Held { units: 1, charge: Charge { decision: charge, key: 1 } };
    let id = HoldId::unique(2 * END.ns());
    limiter.book.keep((hash, id), hold, (u64::MAX, END.ns()), |_, _| {}).is_ok()
}

/// A request needs the units of a hold that has ended, while a hold of another key needs its place.
fn units_and_place(hold: fn(&Holding<Pair>) -> bool) {
    explore(3, move || {
        let limiter = Arc::new(full_of_ended(1));
        let (held, admitted) = both(&limiter, hold, |limiter| {
            let key = limiter.prepare(&0);
            limiter.apply(key, Operation::Check, END, 1).is_allowed()
        });
        assert!(held && admitted, "no denial is due to a hold that has ended");
        assert_eq!(limiter.holds(), 1, "only the new hold is left");
    });
}

// G117
#[test]
fn ended_hold_gives_place_and_units() {
    units_and_place(hold);
}

// G117
#[test]
#[should_panic(expected = "no denial is due to a hold that has ended")]
fn control_place_without_units_denies() {
    units_and_place(hold_without_refund);
}

/// The fault: looks for a free place before it looks for holds that have ended.
fn hold_in_free_place_first(limiter: &Holding<Pair>) -> bool {
    let book = &limiter.book;
    book.take_place() || (book.release_first(END.ns(), |_, _| {}) && book.take_place())
}

/// Two new holds need the places of two holds that have ended.
fn two_places(other: fn(&Holding<Pair>) -> bool) {
    explore(3, move || {
        let limiter = Arc::new(full_of_ended(2));
        let (one, other) = both(&limiter, hold, other);
        assert!(one && other, "no denial is due to a hold that has ended");
        assert!(limiter.holds() <= 2, "the book has room for two holds");
    });
}

// G117
#[test]
fn new_holds_take_places_of_ended_ones() {
    two_places(hold);
}

// G117
#[test]
#[should_panic(expected = "no denial is due to a hold that has ended")]
fn control_free_place_first_denies() {
    two_places(hold_in_free_place_first);
}

#[cfg(tollgate_shuttle)]
#[test]
fn eight_settle_one_hold_once() {
    crate::base::sync::sample(400, || {
        let (book, id) = with_one_hold();
        let settled = eight(&book, move |book, number| match number % 2 {
            0 => take(book, id),
            _ => book.release_ended(HASH, END.ns(), |_| {}),
        });
        assert_eq!(settled.iter().filter(|&&settled| settled).count(), 1, "a hold is settled once");
    });
}
