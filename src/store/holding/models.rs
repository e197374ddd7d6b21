//! Models of holds: each is settled once, and no denial is due to a hold that has ended.

use super::{Held, HoldBook, HoldId, Holding};
use crate::algorithm::Gcra;
use crate::base::check_time::CheckTime;
use crate::base::quota::Quota;
#[cfg(tollgate_shuttle)]
use crate::base::sync::eight;
use crate::base::sync::{Arc, both, explore};
use crate::store::Direct;
use crate::store::op::{Operation, Store, StoreBase as _};

const KEY: u64 = 7;
const HASH: u64 = 1 << 60;
const END: CheckTime = CheckTime::from_ns(2_000_000_000);

fn with_one_hold() -> (Arc<HoldBook<()>>, HoldId) {
    let book = HoldBook::new(4);
    let hold = Held { units: 1, paid_ns: u64::MAX, charge: () };
    let id = book.id(END.ns());
    assert!(book.keep((HASH, id), hold, (u64::MAX, 0)).is_ok(), "there is room");
    (Arc::new(book), id)
}

type Take = fn(&HoldBook<()>, HoldId) -> bool;

fn take(book: &HoldBook<()>, id: HoldId) -> bool {
    book.take(HASH, id).is_some()
}

/// The fault: looks for the hold in one critical section, and removes it in another one.
fn take_separately(book: &HoldBook<()>, id: HoldId) -> bool {
    let is_there = book.standing(HASH).units > 0;
    book.take(HASH, id);
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

#[test]
fn hold_is_settled_once() {
    settle_while_it_ends(take);
}

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

#[test]
fn ended_hold_denies_nothing() {
    requests_after_the_end(check);
}

#[test]
#[should_panic(expected = "no denial is due to a hold that has ended")]
fn control_late_number_denies() {
    requests_after_the_end(check_before_the_number);
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
