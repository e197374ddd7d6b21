//! Loom models of the state of one key: every interleaving of two or three threads, up to a bound on preemptions.
//!
//! The message of each assertion states the law that the model checks. A *control* is the same model with a broken
//! protocol, as its text describes. A control must fail, which shows that the model can detect the fault.

use std::time::Duration;

use super::*;
use crate::algorithm::{
    Block, Blocked, FixedWindow, Gcra, MinimumSpacing, SlidingLog, SlidingWindow, SubWindow,
};
use crate::base::quota::Quota;
use crate::base::sync::{Arc, both, spawn};
use crate::store::snapshot::{SnapshotReader, SnapshotTimes};

mod first_fill;
#[cfg(tollgate_shuttle)]
mod many;

fn model(run: impl Fn() + Sync + Send + 'static) {
    crate::base::sync::explore(3, run);
}

const fn quota(limit: u64, period_ns: u64) -> Quota {
    Quota::new(limit, Duration::from_nanos(period_ns))
}

/// A clock whose reading is a schedule point: another thread can move it before, between and after readings.
struct LoomClock(AtomicU64);

impl LoomClock {
    fn at(now_ns: u64) -> Self {
        Self(AtomicU64::new(now_ns))
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn set(&self, now_ns: u64) {
        self.0.store(now_ns, Ordering::SeqCst);
    }
}

struct Shared<A: Algorithm> {
    algorithm: A,
    state: KeyState<A::Tail>,
    clock: LoomClock,
}

impl<A: Algorithm> Shared<A> {
    fn new(algorithm: A, now_ns: u64) -> Arc<Self> {
        let state = KeyState::fresh(algorithm.tail_len());
        Arc::new(Self { algorithm, state, clock: LoomClock::at(now_ns) })
    }

    fn check_at(&self, now_ns: u64, cost: u64) -> bool {
        self.state.charge(&self.algorithm, now_ns, cost).unwrap().is_allowed()
    }

    fn check(&self, cost: u64) -> bool {
        self.check_at(self.clock.now(), cost)
    }

    fn head(&self) -> u64 {
        self.state.head.load(Ordering::SeqCst)
    }
}

// G2, G16
#[test]
fn burst_of_one_admits_one_check() {
    model(|| {
        let shared = Shared::new(Gcra::new(quota(1, 10)), 100);
        let (a, b) = both(&shared, |s| s.check(1), |s| s.check(1));
        assert!(a ^ b, "exactly one of two conforms to a burst of one");
        assert_eq!(shared.head(), 110, "the TAT moved by the one emission interval that was admitted");
    });
}

// G2
#[test]
fn passing_time_loses_no_charge() {
    model(|| {
        let shared = Shared::new(Gcra::new(quota(1, 10).burst(2)), 100);
        let ticker = spawn(&shared, |shared| shared.clock.set(110));
        let (a, b) = both(&shared, |s| [s.check(1), s.check(1)], |s| [s.check(1), false]);
        ticker.join().unwrap();
        let admitted = a.iter().chain(&b).filter(|allowed| **allowed).count() as u64;
        assert!(admitted <= 2 + 1, "admitted <= burst + elapsed / T");
        assert!(shared.head() >= 100 + admitted * 10, "every admission moved the TAT by T");
        assert!(shared.head() <= 110 + admitted * 10, "nothing else moved the TAT");
    });
}

// G2
#[test]
fn weighted_charge_is_all_or_nothing() {
    model(|| {
        let shared = Shared::new(Gcra::new(quota(1, 10).burst(3)), 100);
        let (a, b) = both(&shared, |s| s.check(2), |s| s.check(2));
        assert!(a ^ b, "two of three units are left for one of two");
        assert_eq!(shared.head(), 120, "no part of a denied charge stays");
    });
}

/// Two requests of a class that may use one of two units, and then a request that may use both.
fn two_of_a_class(charge: fn(&Shared<Gcra>) -> bool) {
    let shared = Shared::new(Gcra::new(quota(1, 10).burst(2)), 100);
    let (a, b) = both(&shared, charge, charge);
    assert!(a ^ b, "one of two leaves the unit of the other class");
    assert!(shared.check(1), "the other class finds its unit");
}

// G120
#[test]
fn racing_classes_leave_their_headroom() {
    model(|| {
        two_of_a_class(|Shared { algorithm, state, clock }| {
            let action = Action::Apply(Operation::CheckKeeping { headroom: 1 });
            state.apply(&Request { algorithm, action, now_ns: clock.now(), cost: 1 }).unwrap().is_allowed()
        });
    });
}

/// The control peeks at the cost and the headroom, and charges the cost in a step of its own.
// G120
#[test]
#[should_panic(expected = "one of two leaves the unit of the other class")]
fn control_peek_before_charge_uses_the_headroom() {
    model(|| {
        two_of_a_class(|shared| {
            let fits = shared.state.peek(&shared.algorithm, shared.clock.now(), 2).unwrap().is_allowed();
            fits && shared.check(1)
        });
    });
}

/// A window turns while two threads count on both sides of the boundary. The limit is 2 in any 10 ns, by strict counts.
fn count_around_boundary<A: Algorithm>(algorithm: A, charge: fn(&Shared<A>, u64) -> bool) {
    let shared = Shared::new(algorithm, 0);
    assert!(shared.check_at(5, 1));
    let (a, b) = both(&shared, move |s| charge(s, 9), move |s| charge(s, 10));
    let c = shared.check_at(10, 1);
    let admitted = 1 + u64::from(a) + u64::from(b) + u64::from(c);
    assert!(admitted <= 2, "no count of the ended window is lost: {admitted} > 2");
}

// G2
#[test]
fn new_window_loses_no_count() {
    model(|| count_around_boundary(SlidingWindow::new(quota(2, 10)).strict(), |s, now| s.check_at(now, 1)));
    model(|| count_around_boundary(SubWindow::new(quota(2, 10), 1).strict(), |s, now| s.check_at(now, 1)));
}

/// The charge of the control: exchanges the head first and raises the tail word afterwards.
fn commit_first<A: Algorithm>(shared: &Shared<A>, now_ns: u64) -> bool {
    let Shared { algorithm, state, .. } = shared;
    loop {
        let head = state.head.load(Ordering::Acquire);
        match algorithm.step(head, |index| state.read(index), now_ns, 1) {
            Step::Admit { next, raise, .. } => {
                if state.head.compare_exchange(head, next, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                    if let Some(raise) = raise {
                        state.raise(raise);
                    }
                    return true;
                }
            }
            _ => return false,
        }
    }
}

/// One thread makes the turn, while another thread checks in the window before it.
fn check_during_turn(charge: fn(&Shared<SlidingWindow>, u64) -> bool) {
    let shared = Shared::new(SlidingWindow::new(quota(2, 10)).strict(), 0);
    assert!(shared.check_at(5, 2));
    let (_, b) = both(&shared, move |s| charge(s, 19), |s| s.check_at(12, 1));
    assert!(!b, "no count of the ended window is lost: 2 x 8/10 leaves no room for 1");
}

// G2, G16
#[test]
#[should_panic(expected = "no count of the ended window is lost")]
fn control_late_raise_loses_counts() {
    model(|| check_during_turn(commit_first));
}

#[test]
fn window_change_is_seen_whole() {
    model(|| check_during_turn(|s, now| s.check_at(now, 1)));
}

#[test]
fn lap_begins_once_at_a_callers_time() {
    model(|| {
        let shared = Shared::new(FixedWindow::from_first_use(quota(2, 10)), 100);
        let ticker = spawn(&shared, |shared| shared.clock.set(103));
        let (a, b) = both(&shared, |s| s.check(1), |s| s.check(2));
        ticker.join().unwrap();
        assert!(a ^ b, "a window of two holds one of 1 + 2");
        let anchor = shared.state.read(1);
        assert!((100..=103).contains(&anchor), "the window began at a time that a caller read: {anchor}");
        assert!(!shared.check_at(109, 2), "the window lasts a period from its anchor");
        assert!(shared.check_at(113, 2), "the window ends at most a period after the last reading");
    });
}

/// Two windows from first use, one after the other: each admits at most the limit.
fn race_for_next_lap(charge: fn(&Shared<FixedWindow>, u64) -> bool) {
    let shared = Shared::new(FixedWindow::from_first_use(quota(1, 10)), 0);
    assert!(shared.check_at(100, 1));
    let (a, b) = both(&shared, move |s| charge(s, 110), move |s| s.check_at(111, 1));
    assert!(!(a && b), "one window of one unit admits one");
}

// G2
#[test]
fn next_lap_admits_one_unit() {
    model(|| race_for_next_lap(|s, now| s.check_at(now, 1)));
}

// G2
#[test]
#[should_panic(expected = "one window of one unit admits one")]
fn control_anchoring_after_the_exchange_admits_twice() {
    model(|| race_for_next_lap(commit_first));
}

/// Two checks at 110 and 111, after the log's only place has expired.
fn claim_expired_place(charge: fn(&Shared<SlidingLog>, u64) -> bool) -> Arc<Shared<SlidingLog>> {
    let shared = Shared::new(SlidingLog::new(quota(1, 10)), 0);
    assert!(charge(&shared, 100));
    let (a, b) = both(&shared, move |s| charge(s, 110), move |s| charge(s, 111));
    assert!(a ^ b, "one unit in any 10 ns: one of two at 110 and 111");
    shared
}

#[test]
fn claimed_log_place_is_not_expired() {
    model(|| {
        let shared = claim_expired_place(|s, now| s.check_at(now, 1));
        assert!(!shared.check_at(119, 1), "the one admitted holds its place for 10 ns");
        assert!(shared.check_at(121, 1), "the place expires 10 ns after the later time");
    });
}

// G2
#[test]
fn helping_threads_leave_one_log() {
    model(|| {
        let shared = Shared::new(SlidingLog::new(quota(2, 10)), 0);
        let (a, b) = both(&shared, |s| s.check_at(100, 2), |s| s.check_at(101, 1));
        assert!(a ^ b, "two units in any 10 ns: one of 2 + 1");
        let c = shared.check_at(109, 1);
        assert_eq!(c, b, "only the single unit leaves room for another");
    });
}

/// A charge that ignores the lap bit of the log's words.
fn blind(shared: &Shared<SlidingLog>, now_ns: u64) -> bool {
    let Shared { algorithm, state, .. } = shared;
    // In a ring of one, every unit has the same place, and its lap is the lap of the newest unit.
    let step = |head| algorithm.step(head, |index| (state.read(index) & !1) | (head & 1), now_ns, 1);
    state.charge_by(algorithm, step).unwrap().is_allowed()
}

// G2
#[test]
#[should_panic(expected = "one unit in any 10 ns")]
fn control_without_lap_bit_place_looks_expired() {
    model(|| drop(claim_expired_place(blind)));
}

/// One thread reclaims an idle state, while another thread charges it.
fn kill_during_charge(kill: fn(&Shared<Gcra>) -> bool) {
    let shared = Shared::new(Gcra::new(quota(1, 10)), 0);
    assert!(shared.check_at(100, 1));
    let (killed, charged) = both(&shared, kill, |s| s.state.charge(&s.algorithm, 110, 1).is_ok());
    assert!(killed ^ charged, "an idle state is reclaimed or charged, never both");
}

// G3
#[test]
fn dead_state_rejects_charges() {
    model(|| kill_during_charge(|s| s.state.kill_if_idle(&s.algorithm, 110) == Kill::Done));
}

// G3
#[test]
#[should_panic(expected = "never both")]
fn control_killing_by_store_loses_a_charge() {
    model(|| {
        kill_during_charge(|s| {
            let idle = s.algorithm.is_idle(s.head(), |_| 0, 110);
            if idle {
                s.state.head.store(DEAD, Ordering::SeqCst);
            }
            idle
        });
    });
}

impl<A: Algorithm> Shared<A> {
    fn charge_at(&self, now_ns: u64, cost: u64) -> Decision {
        self.state.charge(&self.algorithm, now_ns, cost).unwrap()
    }

    fn refund_at(&self, now_ns: u64, charge: &Decision) -> u64 {
        self.state
            .refund(&self.algorithm, &Refund { charge: Some(charge), units: charge.cost(), now_ns })
            .unwrap()
    }

    /// The time of the turn of a request that may wait for `wait_ns`, if it is admitted.
    fn turn_at(&self, now_ns: u64, wait_ns: u64) -> Option<u64> {
        let action = Action::Apply(Operation::Reserve { wait_ns });
        let request = Request { algorithm: &self.algorithm, action, now_ns, cost: 1 };
        let decision = self.state.apply(&request).unwrap();
        decision.is_allowed().then(|| now_ns + u64::try_from(decision.delay().as_nanos()).unwrap())
    }

    fn remaining_at(&self, now_ns: u64) -> u64 {
        self.state.peek(&self.algorithm, now_ns, 0).unwrap().remaining()
    }
}

/// A refund of one of two units, in parallel with a charge of the other unit. `refund` defines how the unit is taken
/// back.
fn refund_during_charge(refund: fn(&Shared<Gcra>, &Decision) -> u64) {
    let shared = Shared::new(Gcra::new(quota(1, 10).burst(2)), 100);
    let charge = shared.charge_at(100, 1);
    let (back, charged) = both(&shared, move |s| refund(s, &charge), |s| u64::from(s.check_at(100, 1)));
    assert_eq!(back, 1, "the whole unit is still owed");
    assert_eq!(shared.head(), 100 + 10 * charged, "neither the charge nor the refund is lost");
}

// G44
#[test]
fn refund_racing_a_charge_loses_neither() {
    model(|| refund_during_charge(|s, charge| s.refund_at(100, charge)));
}

// G150
#[test]
fn give_back_racing_a_charge_loses_neither() {
    model(|| {
        refund_during_charge(|s, _| {
            s.state.refund(&s.algorithm, &Refund { charge: None, units: 1, now_ns: 100 }).unwrap()
        });
    });
}

/// A refund that stores the new head instead of exchanging it.
fn refund_by_store(s: &Shared<Gcra>, charge: Option<&Decision>) -> u64 {
    let given = s.algorithm.refund(s.head(), |_| 0, &Refund { charge, units: 1, now_ns: 100 }).unwrap();
    s.state.head.store(given.next, Ordering::SeqCst);
    given.units
}

// G44
#[test]
#[should_panic(expected = "neither the charge nor the refund is lost")]
fn control_refund_by_store_loses_a_charge() {
    model(|| refund_during_charge(|s, charge| refund_by_store(s, Some(charge))));
}

// G150
#[test]
#[should_panic(expected = "neither the charge nor the refund is lost")]
fn control_give_back_by_store_loses_a_charge() {
    model(|| refund_during_charge(|s, _| refund_by_store(s, None)));
}

/// The only owner of a state charges one of three units, and then two threads share the state.
fn owned_then_shared(charge: fn(&Shared<Gcra>) -> bool) {
    let algorithm = Gcra::new(quota(1, 10).burst(3));
    let mut state = KeyState::<(), Infallible>::fresh(0);
    assert!(lasting(state.exclusive().charge(&algorithm, 100, 1)).is_allowed());
    let shared = Arc::new(Shared {
        algorithm,
        state: KeyState { head: state.head, tail: (), access: PhantomData },
        clock: LoomClock::at(100),
    });
    let (a, b) = both(&shared, charge, charge);
    assert!(a && b, "the threads find the two units that the owner left");
    assert!(!shared.check(1), "no charge is lost: all three units are in use");
}

// G149
#[test]
fn charge_of_the_only_owner_is_seen_by_the_threads_that_share() {
    model(|| owned_then_shared(|s| s.check(1)));
}

/// The control charges as an only owner in both threads.
// G149
#[test]
#[should_panic(expected = "no charge is lost")]
fn control_charging_as_owner_while_shared_loses_a_charge() {
    model(|| {
        owned_then_shared(|s| match s.algorithm.step(s.head(), |_| 0, s.clock.now(), 1) {
            Step::Admit { next, .. } => Exclusive::exchange(&s.state.head, s.head(), next).is_ok(),
            _ => false,
        });
    });
}

/// A cost of five with a burst of two, in parallel with a check of one unit.
fn oversized_during_charge(oversized: fn(&Shared<Gcra>) -> bool) {
    let shared = Shared::new(Gcra::new(quota(1, 10).burst(2)), 100);
    let (large, small) = both(&shared, oversized, |s| s.check_at(100, 1));
    assert!(large ^ small, "a cost above the burst is admitted if nothing is owed, and then nothing else is");
    assert_eq!(shared.head(), if large { 150 } else { 110 }, "each admission is charged whole");
}

impl Shared<Gcra> {
    fn apply_at(&self, now_ns: u64, cost: u64, operation: Operation) -> bool {
        let action = Action::Apply(operation);
        let request = Request { algorithm: &self.algorithm, action, now_ns, cost };
        self.state.apply(&request).unwrap().is_allowed()
    }
}

// G152
#[test]
fn oversized_cost_races_a_charge() {
    model(|| oversized_during_charge(|s| s.apply_at(100, 5, Operation::CheckOversized)));
}

/// Asks whether a whole burst is free, and then charges without a check.
// G152
#[test]
#[should_panic(expected = "and then nothing else is")]
fn control_oversized_cost_in_two_steps() {
    model(|| {
        oversized_during_charge(|s| s.remaining_at(100) == 2 && s.apply_at(100, 5, Operation::Force));
    });
}

/// Two threads refund one charge each, at different times. A third charge came after both.
#[test]
fn racing_refunds_keep_other_charges() {
    model(|| {
        let shared = Shared::new(Gcra::new(quota(1, 10).burst(4)), 100);
        let charges = [shared.charge_at(100, 1), shared.charge_at(100, 1)];
        assert!(shared.check_at(100, 1));
        let (a, b) =
            both(&shared, move |s| s.refund_at(100, &charges[0]), move |s| s.refund_at(105, &charges[1]));
        assert_eq!((a, b), (1, 1), "each refund takes back its unit, which is owed in full or by half");
        assert_eq!(shared.head(), 115, "the third charge, and the paid half of the second charge");
    });
}

/// A window turns while a charge in it is refunded: limit 3 in two windows.
fn refund_during_new_window<A: Algorithm>(algorithm: A) {
    let shared = Shared::new(algorithm, 0);
    let charge = shared.charge_at(5, 2);
    assert!(shared.check_at(5, 1));
    let (back, charged) =
        both(&shared, move |s| s.refund_at(9, &charge), |s| if s.check_at(10, 2) { 2 } else { 0 });
    assert!(charged == 0 || back == 2, "two of three units are left only if two were refunded");
    let owed = 1 + (2 - back) + charged;
    assert!(shared.remaining_at(10) <= 3 - owed, "units that were not refunded count in the ended window");
}

#[test]
fn refund_racing_new_window_loses_no_count() {
    model(|| refund_during_new_window(SlidingWindow::new(quota(3, 10)).strict()));
    model(|| refund_during_new_window(SubWindow::new(quota(3, 10), 1).strict()));
}

#[test]
fn refunded_lap_begins_once() {
    model(|| {
        let shared = Shared::new(FixedWindow::from_first_use(quota(2, 10)), 100);
        let charge = shared.charge_at(100, 2);
        let (back, charged) =
            both(&shared, move |s| s.refund_at(104, &charge), |s| if s.check_at(105, 1) { 1 } else { 0 });
        assert_eq!(back, 2, "the window of the charge has not ended");
        assert_eq!(shared.remaining_at(106), 2 - charged, "neither the charge nor the refund is lost");
        assert!(charged == 0 || !shared.check_at(114, 2), "a window lasts a period from its first use");
    });
}

/// Turns of one unit each, in parallel with a check that does not wait.
fn turns<A: Algorithm>(algorithm: A) {
    let shared = Shared::new(algorithm, 100);
    let (mut one, two) = both(
        &shared,
        |s| vec![s.turn_at(100, 50), s.turn_at(100, 50)],
        |s| vec![s.check_at(100, 1).then_some(100), s.turn_at(100, 10)],
    );
    one.extend(two);
    let mut given: Vec<u64> = one.into_iter().flatten().collect();
    given.sort_unstable();
    let expected: Vec<u64> = (0..given.len() as u64).map(|turn| 100 + 10 * turn).collect();
    assert_eq!(
        given, expected,
        "turns are distinct and an interval apart, and a check is admitted only as the first"
    );
    assert!(given.len() >= 2, "requests that may wait long enough get turns");
}

// G46
#[test]
fn reserved_turns_are_distinct_and_precede_checks() {
    model(|| turns(Gcra::new(quota(1, 10))));
    model(|| turns(MinimumSpacing::new(Duration::from_nanos(10))));
}

/// Blocks of 100 ns and then 200 ns, for a key whose two units are in use.
fn used_up() -> Arc<Shared<Blocked>> {
    let block = Block::of(Duration::from_nanos(100)).at_most(Duration::from_nanos(200));
    let shared = Shared::new(Blocked::new(quota(1, 10).burst(2), block), 0);
    assert!(shared.check_at(100, 2));
    shared
}

/// Two denials at different times.
fn race_to_block(deny: fn(&Shared<Blocked>, u64) -> Decision) {
    let shared = used_up();
    let (a, b) = both(&shared, move |s| deny(s, 100), move |s| deny(s, 101));
    let end = |denial: &Decision| denial.at_ns() + denial.block_ns();
    let now = shared.state.peek(&shared.algorithm, 102, 1).unwrap();
    assert_eq!(
        [end(&a), end(&b)],
        [end(&now); 2],
        "one block starts from one state, and ends at its stated time"
    );
    let next = shared.charge_at(end(&now), 2);
    assert_eq!(next.block_ns(), 200, "both denials were one block");
}

/// The exchange of the controls: it stores the next head of a step without a look at the head that it replaces.
fn store_next<A: Algorithm>(shared: &Shared<A>, step: Step) -> Decision {
    match step {
        Step::Admit { decision, next, .. } => {
            shared.state.head.store(next, Ordering::SeqCst);
            decision
        }
        Step::Deny(denial) => denial,
        Step::Help(_) => unreachable!("the word has no tail"),
    }
}

fn block_by_store(shared: &Shared<Blocked>, now_ns: u64) -> Decision {
    let (algorithm, head) = (&shared.algorithm, shared.head());
    store_next(shared, algorithm.block(head, algorithm.step(head, |_| 0, now_ns, 1)))
}

// G128
#[test]
fn racing_denials_start_one_block() {
    model(|| race_to_block(|s, now_ns| s.charge_at(now_ns, 1)));
}

// G128
#[test]
#[should_panic(expected = "one block starts from one state")]
fn control_blocks_by_store_start_twice() {
    model(|| race_to_block(block_by_store));
}

/// A denial, in parallel with a charge of thirty units that needs no room.
fn block_during_charge(deny: fn(&Shared<Blocked>, u64) -> Decision) {
    let shared = used_up();
    let (denial, forced) = both(
        &shared,
        move |s| deny(s, 100),
        |s| {
            let (algorithm, action) = (&s.algorithm, Action::Apply(Operation::Force));
            s.state.apply(&Request { algorithm, action, now_ns: 100, cost: 30 }).unwrap()
        },
    );
    assert!(denial.is_block() && forced.charged() == 30);
    let now = shared.state.peek(&shared.algorithm, 100, 1).unwrap();
    assert!(
        now.is_block() && now.reset_after() >= Duration::from_nanos(320),
        "no charge is lost, and no block"
    );
}

// G128
#[test]
fn block_racing_a_charge_loses_neither() {
    model(|| block_during_charge(|s, now_ns| s.charge_at(now_ns, 1)));
}

// G128
#[test]
#[should_panic(expected = "no charge is lost, and no block")]
fn control_block_by_store_loses_a_charge() {
    model(|| block_during_charge(block_by_store));
}

/// Saves two units of the window at 100 while a check begins the next window. Returns the units that the restored state
/// has at 200.
fn save_during_turn(save: fn(&Shared<SlidingWindow>) -> Vec<u8>) {
    let shared = Shared::new(SlidingWindow::new(quota(4, 100)), 150);
    assert!(shared.check_at(150, 2), "the first window has room");
    let (bytes, _) = both(&shared, save, |s| s.check_at(200, 1));
    let times = SnapshotTimes { then_ns: 200, now_ns: 200 };
    let mut reader = SnapshotReader::at(&bytes, 0);
    let restored = KeyState::<_, Dead>::load(&shared.algorithm, &mut reader, times).unwrap().unwrap();
    let used = restored.owed(&shared.algorithm, 200);
    assert!(used == 2 || used == 3, "the saved words are those of one moment");
}

// G142
#[test]
fn saved_words_are_of_one_moment() {
    model(|| {
        save_during_turn(|shared| {
            let mut bytes = Vec::new();
            assert!(shared.state.save(&shared.algorithm, 200, &mut bytes), "the key owes units");
            bytes
        });
    });
}

/// The control reads the tail before the head.
// G142
#[test]
#[should_panic(expected = "the saved words are those of one moment")]
fn control_save_without_a_second_look_loses_a_window() {
    model(|| {
        save_during_turn(|shared| {
            let tail = [0, 1].map(|index| shared.state.read(index));
            let head = shared.state.head.load(Ordering::Acquire);
            [head, tail[0], tail[1]].into_iter().flat_map(u64::to_le_bytes).collect()
        });
    });
}

/// An operator resets a key that owes two units, in parallel with a charge of one.
fn reset_racing_a_charge(forget: fn(&Shared<Gcra>)) {
    let shared = Shared::new(Gcra::new(quota(1, 10).burst(5)), 0);
    assert!(shared.check_at(100, 2));
    let (_, charge) = both(&shared, forget, |s| s.charge_at(100, 1));
    let owed = shared.state.peek(&shared.algorithm, 100, 0).unwrap().owed();
    // The charge found two units in use, so it was first and is forgotten; or none, so it stays.
    let found = charge.owed() - 1;
    assert_eq!(owed, if found == 0 { 1 } else { 0 }, "a reset forgets what was before it, and nothing more");
}

// G146
#[test]
fn reset_forgets_what_was_before_it() {
    model(|| reset_racing_a_charge(|s| assert!(s.state.forget())));
}

// G146
#[test]
#[should_panic(expected = "a reset forgets what was before it")]
fn control_reset_by_one_attempt_forgets_nothing() {
    model(|| {
        reset_racing_a_charge(|s| {
            let seen = s.state.head.load(Ordering::Acquire);
            let _ = s.state.head.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed);
        });
    });
}
