//! Loom models of charges that are later than the time of a change. The clock can stop between its reading and the next
//! step, because each reading is a step of its own.

use super::*;
use crate::base::clock::models::SharedTime;

/// Two bursts take less time.
const LATER_SECS: u64 = 3 * 3_600;
const LATER_NS: u64 = (100 + LATER_SECS) * 1_000_000_000;

/// A store with a clock, and the time of its latest admission.
struct Timed {
    store: Shared,
    clock: SharedTime,
}

impl Timed {
    fn check(&self) -> Option<u64> {
        let when = CheckTime::read(&self.clock);
        let decision = Store::<()>::apply(&self.store, &(), Operation::Check, when, 1);
        decision.is_allowed().then(|| when.ns())
    }

    /// A check that looks at the published generation only, and does not record its time.
    fn check_without_record(&self) -> Option<u64> {
        let when = CheckTime::read(&self.clock);
        loop {
            let generation = self.store.present.load();
            let decision = generation.apply(&(), Operation::Check, when, 1);
            if decision.is_denied() {
                return None;
            }
            if self.store.present.counts_charge(&generation, || false, |_| false) {
                return Some(when.ns());
            }
            let store = &generation.padded.store;
            let _ = Store::<()>::refund(store, (), when, &decision, 1);
        }
    }

    fn change(&self) {
        self.store.set_quota(&of_one(), Carry::Used, || CheckTime::read(&self.clock)).unwrap();
    }

    /// A change at a given time, the time before the clock advanced.
    fn change_at_given_time(&self) {
        self.store.set_quota(&of_one(), Carry::Used, || CheckTime::from_ns(100_000_000_000)).unwrap();
    }

    /// A change that closes the generation after it has read its time.
    fn change_with_early_time(&self) {
        let when = CheckTime::read(&self.clock);
        let last = self.store.present.load().to_arc().settled(Carry::Used, || when).unwrap();
        last.close();
        let store = last.padded.store.rebuild(&of_one()).unwrap();
        let next = std::sync::Arc::new(last.next(store, Carry::Used, when));
        self.store.present.publish(next, &mut Replaced::default());
    }

    /// A change that does not close the generation.
    fn change_without_close(&self) {
        let last =
            self.store.present.load().to_arc().settled(Carry::Used, || CheckTime::read(&self.clock)).unwrap();
        let store = last.padded.store.rebuild(&of_one()).unwrap();
        let when = CheckTime::read(&self.clock);
        let next = std::sync::Arc::new(last.next(store, Carry::Used, when));
        self.store.present.publish(next, &mut Replaced::default());
    }
}

/// One thread advances the clock and checks, while another thread changes the quota and then checks. With a wide slack,
/// the charge records its time only if the generation is closed.
fn one_unit_at_one_time(is_slack_wide: bool, check: fn(&Timed) -> Option<u64>, change: fn(&Timed)) {
    let store = Shared::new(Direct::new(Gcra::new(of_one())));
    if is_slack_wide {
        store.present.load().padded.latest.open_until(LATER_NS + 1);
    }
    let timed = Arc::new(Timed { store, clock: SharedTime::new(100) });
    let checker = spawn(&timed, move |timed| {
        timed.clock.advance(LATER_SECS);
        check(timed)
    });
    change(&timed);
    let here = timed.check();
    let there = checker.join().unwrap();
    assert!(here.is_none() || here != there, "one unit is admitted at one time: {here:?}");
}

// G49
#[test]
fn charge_between_reading_and_publication_counts() {
    for is_slack_wide in [false, true] {
        explore(3, move || one_unit_at_one_time(is_slack_wide, Timed::check, Timed::change));
    }
}

// G49
#[test]
#[should_panic(expected = "one unit is admitted at one time")]
fn control_without_record_loses_charge() {
    explore(3, || one_unit_at_one_time(true, Timed::check_without_record, Timed::change));
}

// G49
#[test]
#[should_panic(expected = "one unit is admitted at one time")]
fn control_with_time_before_closing_loses_charge() {
    explore(3, || one_unit_at_one_time(true, Timed::check, Timed::change_with_early_time));
}

// G49
#[test]
#[should_panic(expected = "one unit is admitted at one time")]
fn control_without_closing_loses_charge() {
    explore(3, || one_unit_at_one_time(true, Timed::check, Timed::change_without_close));
}

// G49
#[test]
fn charge_after_given_time_counts() {
    explore(3, || one_unit_at_one_time(false, Timed::check, Timed::change_at_given_time));
}

// G49
#[test]
#[should_panic(expected = "one unit is admitted at one time")]
fn control_given_time_without_record_loses_charge() {
    explore(3, || one_unit_at_one_time(false, Timed::check_without_record, Timed::change_at_given_time));
}

/// The charge is in the generation before the last one, or lands in it while the second change is made.
// G49
#[test]
fn late_charge_counts_after_two_changes() {
    let two = |timed: &Timed| {
        timed.change();
        timed.change();
    };
    explore(2, move || one_unit_at_one_time(true, Timed::check, two));
}
