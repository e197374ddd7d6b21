//! Loom models of a bucket: every interleaving of two or three threads, up to a bound on preemptions.
//!
//! The message of each assertion states the law that the model checks. A *control* is the same model with a broken
//! protocol. A control must fail, which shows that the model can detect the fault. Buckets have two slots, a tick is a
//! nanosecond, and the times are small.

use super::*;
use crate::algorithm::compact::slot::FINGERPRINT_BITS;
use crate::algorithm::compact::ticks::{Interval, UnitRate};
use crate::algorithm::compact::{Moved, TatVariant, TatWord, newest_of};
use crate::algorithm::step::Refund;
use crate::base::check_time::CheckTime;
use crate::base::sync::Ordering::Release;
use crate::base::sync::{Arc, admitted, beside, both};
use crate::store::capacity::Capacity;
use crate::store::compact::Overflow;

mod blocks;

#[cfg(tollgate_shuttle)]
mod many;

const WAYS: usize = 2;
/// The number of ticks per unit.
const T: u64 = 10;

fn model(run: impl Fn() + Sync + Send + 'static) {
    crate::base::sync::explore(3, run);
}

fn word(burst: u64) -> TatWord {
    let rate = UnitRate { interval: Interval { num: T, den: 1 }, burst };
    TatWord::with_ticks("model", rate, T, TatVariant::Meter).unwrap()
}

/// A hash with a fingerprint and a home slot. There is only one bucket.
const fn key(fingerprint: u64, home: u64) -> u64 {
    fingerprint | (home << FINGERPRINT_BITS)
}

const ALL: [Overflow; 3] = [Overflow::Spill, Overflow::Forget, Overflow::Inherit];
const X: u64 = key(1, 0);
const Y: u64 = key(2, 1);
const Z: u64 = key(3, 0);

/// A table of one bucket.
struct Shared {
    table: SlotTable<TatWord, WAYS>,
    word: TatWord,
}

impl Shared {
    fn new(burst: u64, overflow: Overflow) -> Arc<Self> {
        let word = word(burst);
        let sizes = Capacity::slots(2).sizes(overflow, WAYS);
        let full = match overflow {
            Overflow::Forget => Full::Forget,
            Overflow::Inherit => Full::Inherit,
            Overflow::Spill => Full::Spill(Box::new(Spill::for_models(&word, &sizes))),
        };
        let table = SlotTable::new(1, word.horizon(), full, newest_of(&word)).unwrap();
        // Most models run at time 100, so they do not raise the newest time further.
        table.newest.raise(100, |now_ns| now_ns);
        Arc::new(Self { table, word })
    }

    /// One check as of a time.
    fn check(&self, hash: u64, now_ns: u64, cost: u64) -> bool {
        self.decide(hash, now_ns, cost).is_allowed()
    }

    fn set(&self, slot: usize, hash: u64, state: u64) {
        self.table.buckets[0][slot].store(SlotWord::pack(hash & 0xFF_FFFF, state), Release);
    }

    fn words(&self) -> [SlotWord; WAYS] {
        std::array::from_fn(|slot| SlotWord::unpack(self.table.buckets[0][slot].load(Acquire)))
    }

    fn slots_of(&self, hash: u64) -> usize {
        self.words().iter().filter(|word| word.fingerprint == hash & 0xFF_FFFF).count()
    }
}

/// The check of a number of units at time 100.
fn check(hash: u64, cost: u64) -> impl Fn(&Shared) -> bool + Copy {
    move |shared| shared.check(hash, 100, cost)
}

// G4
#[test]
fn last_unit_is_admitted_once() {
    model(|| {
        let shared = Shared::new(1, Overflow::Spill);
        shared.set(0, X, 100);
        let answers = beside(&shared, [check(X, 1); 2]);
        assert_eq!(admitted(&answers), 1, "one unit, one admission");
        assert_eq!(shared.words()[0].state, 100 + T, "the slot holds the charge");
    });
}

// G4, G9
#[test]
fn three_first_checks_take_one_slot() {
    for overflow in ALL {
        model(move || {
            let shared = Shared::new(2, overflow);
            let answers = beside(&shared, [check(X, 1); 3]);
            assert_eq!(admitted(&answers), 2, "two units, two admissions");
            assert_eq!(shared.slots_of(X), 1, "a key has one slot");
        });
    }
}

/// Two first checks. One clock shows a time before another key's slot becomes idle, and the other clock a time after
/// it.
fn straddling(overflow: Overflow, check: fn(&Shared, u64) -> bool) {
    let shared = Shared::new(1, overflow);
    shared.set(0, Y, 95);
    shared.set(1, Z, 94);
    let answers = beside(&shared, [94, 96].map(|now| move |shared: &Shared| check(shared, now)));
    assert_eq!(admitted(&answers), 1, "one unit, one admission");
    assert_eq!(shared.slots_of(X), 1, "a key has one slot");
}

// G4
#[test]
fn clocks_around_expiry_take_one_slot() {
    for overflow in ALL {
        model(move || straddling(overflow, |shared, now| shared.check(X, now, 1)));
    }
}

/// Inserts a new key into the first slot that is idle by the thread's own clock.
fn first_idle(shared: &Shared, now: u64) -> bool {
    let slots = shared.table.bucket(0);
    loop {
        let words: [u64; WAYS] = std::array::from_fn(|slot| slots[slot].load(Relaxed));
        if let Some(word) = words.iter().find(|&&word| SlotWord::unpack(word).fingerprint == 1) {
            return SlotWord::unpack(*word).state <= now;
        }
        let slot = words.iter().position(|&word| SlotWord::unpack(word).state <= now).unwrap();
        let next = SlotWord::pack(1, now + T);
        if slots[slot].compare_exchange(words[slot], next, AcqRel, Relaxed).is_ok() {
            return true;
        }
    }
}

// G4
#[test]
#[should_panic(expected = "one unit, one admission")]
fn control_first_idle_slot_admits_twice() {
    model(|| straddling(Overflow::Inherit, first_idle));
}

/// Two checks of x, which owes all its units. Its slot comes after an empty slot, as after the retreat of another key.
fn behind_empty_slot(overflow: Overflow, check: fn(&Shared) -> bool) {
    let shared = Shared::new(1, overflow);
    shared.set(1, X, 100 + T);
    let answers = beside(&shared, [check; 2]);
    assert_eq!(admitted(&answers), 0, "a key behind an empty slot keeps its debt");
    assert_eq!(shared.slots_of(X), 1, "a key has one slot");
}

// G4
#[test]
fn key_behind_empty_slot_keeps_its_debt() {
    for overflow in ALL {
        model(move || behind_empty_slot(overflow, |shared| shared.check(X, 100, 1)));
    }
}

/// Inserts x into the first empty slot of its search, without a look at the slots after it.
fn first_empty(shared: &Shared) -> bool {
    let own = &shared.table.bucket(0)[0];
    let next = SlotWord::pack(X & 0xFF_FFFF, 100 + T);
    own.load(Acquire) == EMPTY && own.compare_exchange(EMPTY, next, AcqRel, Relaxed).is_ok()
}

// G4
#[test]
#[should_panic(expected = "a key behind an empty slot keeps its debt")]
fn control_search_that_ends_at_empty_slot_forgets_debt() {
    model(|| behind_empty_slot(Overflow::Inherit, first_empty));
}

// G4
#[test]
fn idle_key_and_new_key_race_for_slot() {
    for overflow in ALL {
        model(move || {
            let shared = Shared::new(1, overflow);
            shared.set(0, Y, 90);
            shared.set(1, Z, 105);
            let answers = beside(&shared, [check(Y, 1), check(X, 1)]);
            // The second check found a full bucket of keys that owe, so it may be denied under Inherit.
            assert!(answers[0] || answers[1], "at least one of the two checks is admitted");
            if overflow == Overflow::Inherit {
                assert_eq!(admitted(&answers), 1, "only one of the two checks is admitted");
            }
            for (hash, answer) in [(Y, answers[0]), (X, answers[1])] {
                assert!(shared.slots_of(hash) <= 1, "a key has one slot");
                if answer && overflow == Overflow::Spill {
                    assert!(!shared.check(hash, 100, 1), "an admitted charge is remembered");
                }
            }
        });
    }
}

/// A key that has one unit left of three is evicted while it checks. Returns how often it is admitted.
fn evict_during_check(overflow: Overflow) -> usize {
    let shared = Shared::new(3, overflow);
    // Key y owes two units, and key z owes more, so the slot of y is the one to evict.
    shared.set(0, Y, 120);
    shared.set(1, Z, 125);
    let answers = beside(&shared, [check(X, 1), check(Y, 1)]);
    let mut admitted = usize::from(answers[1]);
    while admitted < 9 && shared.check(Y, 100, 1) {
        admitted += 1;
    }
    admitted
}

// G6
#[test]
fn key_evicted_during_check_keeps_debt() {
    for overflow in [Overflow::Spill, Overflow::Inherit] {
        model(move || {
            assert!(evict_during_check(overflow) <= 1, "{overflow:?}: one unit was left");
        });
    }
}

/// Under `Forget`, the key may be admitted the amount of its dropped debt again, but no more.
// G8
#[test]
fn forgotten_key_regains_at_most_its_debt() {
    model(|| assert!(evict_during_check(Overflow::Forget) <= 1 + 2, "one unit was left, and two were owed"));
}

// G8
#[test]
#[should_panic(expected = "one unit was left")]
fn control_forgetting_admits_again() {
    model(|| assert!(evict_during_check(Overflow::Forget) <= 1, "one unit was left"));
}

#[test]
fn several_units_are_charged_whole() {
    model(|| {
        let shared = Shared::new(5, Overflow::Spill);
        let answers = beside(&shared, [check(X, 3), check(X, 2)]);
        let third = shared.check(X, 100, 1);
        assert_eq!((answers, third), ([true, true], false), "3 + 2 units fit into 5");
        assert_eq!(shared.words()[0].state, 100 + 5 * T, "the state includes both charges in full");
    });
    model(|| {
        let shared = Shared::new(4, Overflow::Spill);
        let answers = beside(&shared, [check(X, 3), check(X, 2)]);
        let charged = 3 * u64::from(answers[0]) + 2 * u64::from(answers[1]);
        assert_eq!(admitted(&answers), 1, "3 + 2 units exceed 4");
        assert_eq!(shared.words()[0].state, 100 + charged * T, "no charge is partial");
    });
}

/// A time near the end of the range: words wrap around between the times of threads whose clocks differ.
const WRAP: u64 = (1 << STATE_BITS) - 5;
/// Later than `WRAP` by more than a horizon, with the wrap-around in between.
const LATER: u64 = WRAP + 20 * T;

/// Two threads whose clocks differ charge X. Both see what the faster thread charged.
fn check_with_distant_clocks(fast: fn(&Shared) -> bool) {
    let shared = Shared::new(1, Overflow::Inherit);
    let (fast, slow) = both(&shared, fast, |shared| shared.check(X, WRAP, 1));
    assert!(fast || slow, "at least one check is admitted");
    for now_ns in [LATER, WRAP, LATER] {
        let again = shared.check(X, now_ns, 1);
        assert!(!(fast && again), "a charge by the faster clock is remembered");
    }
}

// G12
#[test]
fn distant_clocks_admit_no_more() {
    model(|| check_with_distant_clocks(|shared| shared.check(X, LATER, 1)));
}

/// Charges a key in the slot that `find` returns, without raising the newest time, recording the debt that it evicts,
/// or checking whether the key is in another slot too.
fn charge_plainly(shared: &Shared, hash: u64, now: u64, cost: u64) -> bool {
    let place = shared.table.place(hash);
    let at = DecisionTime::new(&shared.word, now);
    loop {
        let (slot, seen, ahead) = match shared.table.find(&shared.word, place, &at) {
            Ok(FoundSlot::Here { slot, word, ahead }) => (slot, word, ahead),
            Ok(FoundSlot::Absent { slot, word, .. }) => (slot, word, 0),
            Err(_) => continue,
        };
        let Verdict::Admit(after) = shared.word.judge(ahead, now, cost) else { return false };
        let next = SlotWord::pack(place.fingerprint(), now + after);
        if shared.table.bucket(0)[slot].compare_exchange(seen, next, AcqRel, Relaxed).is_ok() {
            return true;
        }
    }
}

/// The control: publishes a word without first raising the newest time.
// G12
#[test]
#[should_panic(expected = "a charge by the faster clock is remembered")]
fn control_without_newest_time_live_word_looks_old() {
    model(|| check_with_distant_clocks(|shared| charge_plainly(shared, X, LATER, 1)));
}

/// The faster clock moves on, by more than a horizon each time.
// G12
#[test]
fn preempted_check_admits_no_more() {
    model(|| {
        let shared = Shared::new(1, Overflow::Inherit);
        let latest = WRAP + 40 * T;
        both(
            &shared,
            move |shared| shared.check(X, LATER, 1) | shared.check(X, latest, 1),
            |shared| shared.check(X, WRAP, 1),
        );
        assert!(!shared.check(X, latest, 1), "a charge at the latest time is remembered");
    });
}

/// Two first checks of x, each of all six units. Both slots are equally far ahead, so x chooses the slot at its home,
/// and y chooses the other one. If y writes its smaller word in between, the second check of x chooses y's slot.
fn racing_first_checks(overflow: Overflow, check: fn(&Shared) -> bool) {
    let shared = Shared::new(6, overflow);
    shared.set(0, Z, 150);
    shared.set(1, key(4, 0), 150);
    let second = move |shared: &Shared| {
        let _ = shared.check(Y, 100, 1);
        check(shared)
    };
    let (one, two) = both(&shared, check, second);
    assert!(shared.slots_of(X) <= 1, "a key has one slot");
    assert!(!(one && two), "six units, one admission of six");
}

// G6, G7
#[test]
fn first_checks_racing_eviction_take_one_slot() {
    let check = |shared: &Shared| shared.check(X, 100, 6);
    model(move || racing_first_checks(Overflow::Forget, check));
    // The words of the sketch add more interleavings to explore.
    crate::base::sync::explore(2, move || racing_first_checks(Overflow::Spill, check));
}

// G6, G7
#[test]
#[should_panic(expected = "a key has one slot")]
fn control_without_second_look_two_slots() {
    model(|| racing_first_checks(Overflow::Forget, |shared| charge_plainly(shared, X, 100, 6)));
}

impl Shared {
    fn decide(&self, hash: u64, now_ns: u64, cost: u64) -> Decision {
        self.table.check(&self.word, self.table.place(hash), self.word.moment(now_ns), cost)
    }

    fn refund(&self, hash: u64, now: u64, charge: &Decision) -> u64 {
        let place = self.table.place(hash);
        self.table.refund(&self.word, place, CheckTime::from_ns(now), Some(charge), charge.cost())
    }

    /// The number of units that a key is admitted one by one.
    fn admits(&self, hash: u64, now: u64) -> u64 {
        (0..9).take_while(|_| self.check(hash, now, 1)).count() as u64
    }
}

/// Like [`racing_first_checks`], but the second thread refunds its charge.
fn first_checks_racing_own_refund(overflow: Overflow, refund: fn(&Shared, &Decision) -> u64) {
    let shared = Shared::new(2, overflow);
    shared.set(0, Z, 115);
    shared.set(1, key(4, 0), 115);
    let second = move |shared: &Shared| {
        let _ = shared.check(Y, 100, 1);
        let charge = shared.decide(X, 100, 2);
        if charge.is_allowed() { 2 - refund(shared, &charge) } else { 0 }
    };
    let (one, two) = both(&shared, |shared| u64::from(shared.check(X, 100, 2)) * 2, second);
    let owed = one + two;
    assert!(owed <= 2, "two units, one admission of two");
    assert!(shared.admits(X, 100) <= 2 - owed, "units that were not refunded are owed");
}

#[test]
fn refund_racing_first_check_refunds_own_charge() {
    let refund = |shared: &Shared, charge: &Decision| shared.refund(X, 100, charge);
    model(move || first_checks_racing_own_refund(Overflow::Forget, refund));
    crate::base::sync::explore(1, move || first_checks_racing_own_refund(Overflow::Spill, refund));
}

/// Refunds a charge from the first word of a key, without checking that it is the key's only word.
fn lower(shared: &Shared, hash: u64, charge: &Decision) -> u64 {
    let place = shared.table.place(hash);
    let slots = shared.table.bucket(0);
    loop {
        let Some((slot, seen)) = SlotTable::<TatWord, WAYS>::locate(slots, place) else { return 0 };
        let SlotWord { fingerprint, state } = SlotWord::unpack(seen);
        let refund = Refund { charge: Some(charge), units: charge.cost(), now_ns: 100 };
        let Some(Moved { ahead, units }) = shared.word.refund(state - 100, 100, &refund) else { return 0 };
        let next = SlotWord::pack(fingerprint, 100 + ahead);
        if slot.compare_exchange(seen, next, AcqRel, Relaxed).is_ok() {
            return units;
        }
    }
}

// G44
#[test]
#[should_panic(expected = "units that were not refunded are owed")]
fn control_refund_without_second_look_refunds_too_much() {
    model(|| first_checks_racing_own_refund(Overflow::Forget, |shared, charge| lower(shared, X, charge)));
}

/// A key that owes two units of three refunds one while it is evicted. Returns how many units it is then admitted, and
/// how many it may be admitted.
fn refund_racing_an_eviction(overflow: Overflow) -> (u64, u64) {
    let shared = Shared::new(3, overflow);
    shared.set(1, Z, 125);
    let charge = shared.decide(X, 100, 1);
    assert!(shared.check(X, 100, 1));
    let (back, is_new_admitted) = both(&shared, move |shared| shared.refund(X, 100, &charge), check(Y, 1));
    assert!(is_new_admitted, "a new key is not denied for the debts of other keys");
    (shared.admits(X, 100), 1 + back)
}

// G44
#[test]
fn refund_racing_eviction_loses_no_debt() {
    model(|| {
        let (admitted, room) = refund_racing_an_eviction(Overflow::Spill);
        assert!(admitted <= room, "units that were not refunded are owed, in a slot or in the sketch");
    });
    model(|| {
        let (admitted, _) = refund_racing_an_eviction(Overflow::Forget);
        assert!(admitted <= 3, "a forgotten key counts as a new key");
    });
}

/// A key returns with a debt from the sketch, while the charge behind this debt is refunded.
#[test]
fn refund_racing_a_return_refunds_once() {
    crate::base::sync::explore(2, || {
        let shared = Shared::new(3, Overflow::Spill);
        shared.set(1, Z, 125);
        let charge = shared.decide(X, 100, 2);
        // The slot of the key goes to y, and its debt to the sketch.
        assert!(shared.check(Y, 100, 1));
        let (given, back) = both(&shared, move |shared| shared.refund(X, 100, &charge), check(X, 1));
        let charged = u64::from(back);
        assert!(shared.admits(X, 100) <= 3 - (2 - given) - charged, "units that were not refunded are owed");
    });
}

/// Two first checks of x under `Inherit`, which does not look again. Between them, `refund` lowers the word of another
/// key.
fn first_checks_racing_a_refund(refund: fn(&Shared, &Decision) -> u64) {
    let shared = Shared::new(9, Overflow::Inherit);
    shared.set(0, Z, 150);
    let charge = shared.decide(Y, 100, 5);
    both(&shared, check(X, 1), move |shared| {
        refund(shared, &charge);
        shared.check(X, 100, 1)
    });
    assert!(shared.slots_of(X) <= 1, "a key has one slot");
}

// G9
#[test]
fn inherit_policy_allows_no_refund() {
    model(|| {
        first_checks_racing_a_refund(|shared, charge| {
            let back = shared.refund(Y, 100, charge);
            assert_eq!(back, 0, "there is no refund under Inherit");
            back
        });
    });
}

// G9
#[test]
#[should_panic(expected = "a key has one slot")]
fn control_refund_under_inherit_gives_two_slots() {
    model(|| first_checks_racing_a_refund(|shared, charge| lower(shared, Y, charge)));
}
