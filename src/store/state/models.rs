//! Loom models of one key's state: every interleaving of two or three threads, up to a bound on preemptions.
//!
//! Each model's assertion states its law. A *control* is the same model with the protocol broken in the way that its
//! text warns of; it must fail, which shows that the model can see the fault.

use std::time::Duration;

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::algorithm::step::Stepper;
use crate::algorithm::{FixedWindow, Gcra, SlidingLog, SlidingWindow, SubWindow};
use crate::quota::Quota;

fn model(run: impl Fn() + Sync + Send + 'static) {
    crate::sync::explore(3, run);
}

const fn quota(limit: u64, period_ns: u64) -> Quota {
    Quota::new(limit, Duration::from_nanos(period_ns))
}

/// A clock whose reading is a schedule point: another thread can move it before, between and after.
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
    state: State<A::Tail>,
    clock: LoomClock,
}

impl<A: Algorithm> Shared<A> {
    fn new(algorithm: A, now_ns: u64) -> Arc<Self> {
        let state = State::fresh(algorithm.tail_len());
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

/// Runs `first` and `second` beside each other.
fn both<A: Algorithm, R: 'static>(
    shared: &Arc<Shared<A>>,
    first: impl FnOnce(&Shared<A>) -> R + 'static,
    second: impl FnOnce(&Shared<A>) -> R + 'static,
) -> (R, R) {
    let (one, two) = (shared.clone(), shared.clone());
    let one = thread::spawn(move || first(&one));
    let two = thread::spawn(move || second(&two));
    (one.join().unwrap(), two.join().unwrap())
}

#[test]
fn a_burst_of_one_admits_one_of_two() {
    model(|| {
        let shared = Shared::new(Gcra::new(quota(1, 10)), 100);
        let (a, b) = both(&shared, |s| s.check(1), |s| s.check(1));
        assert!(a ^ b, "exactly one of two conforms to a burst of one");
        assert_eq!(shared.head(), 110, "the TAT moved by the one emission interval that was admitted");
    });
}

#[test]
fn no_charge_is_lost_while_time_passes() {
    model(|| {
        let shared = Shared::new(Gcra::new(quota(1, 10).burst(2)), 100);
        let ticker = shared.clone();
        let ticker = thread::spawn(move || ticker.clock.set(110));
        let (a, b) = both(&shared, |s| [s.check(1), s.check(1)], |s| [s.check(1), false]);
        ticker.join().unwrap();
        let admitted = a.iter().chain(&b).filter(|allowed| **allowed).count() as u64;
        assert!(admitted <= 2 + 1, "admitted <= burst + elapsed / T");
        assert!(shared.head() >= 100 + admitted * 10, "every admission moved the TAT by T");
        assert!(shared.head() <= 110 + admitted * 10, "and nothing else moved it");
    });
}

#[test]
fn a_weighted_charge_is_whole_or_nothing() {
    model(|| {
        let shared = Shared::new(Gcra::new(quota(1, 10).burst(3)), 100);
        let (a, b) = both(&shared, |s| s.check(2), |s| s.check(2));
        assert!(a ^ b, "two of three units are left for one of two");
        assert_eq!(shared.head(), 120, "no part of a refused charge stays");
    });
}

/// A window turns while two threads count on both sides of the boundary, limit 2 in any 10 ns by strict counts.
fn window_turns<A: Algorithm>(algorithm: A, charge: fn(&Shared<A>, u64) -> bool) {
    let shared = Shared::new(algorithm, 0);
    assert!(shared.check_at(5, 1));
    let (a, b) = both(&shared, move |s| charge(s, 9), move |s| charge(s, 10));
    let c = shared.check_at(10, 1);
    let admitted = 1 + u64::from(a) + u64::from(b) + u64::from(c);
    assert!(admitted <= 2, "counts of the ended window are neither lost nor left behind: {admitted} > 2");
}

#[test]
fn a_window_that_turns_loses_no_count() {
    model(|| window_turns(SlidingWindow::new(quota(2, 10)).strict(), |s, now| s.check_at(now, 1)));
    model(|| window_turns(SubWindow::new(quota(2, 10), 1).strict(), |s, now| s.check_at(now, 1)));
}

/// The control's charge: exchanges the head first and raises the tail word afterwards.
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

#[test]
#[should_panic(expected = "neither lost nor left behind")]
fn control_raising_after_the_exchange_loses_counts() {
    model(|| {
        let shared = Shared::new(SlidingWindow::new(quota(2, 10)).strict(), 0);
        assert!(shared.check_at(5, 2));
        // The turn is the other thread's; this one asks in between.
        let (_, b) = both(&shared, |s| commit_first(s, 19), |s| s.check_at(12, 1));
        assert!(
            !b,
            "counts of the ended window are neither lost nor left behind: 2 x 8/10 leaves no room for 1"
        );
    });
}

#[test]
fn a_turn_seen_by_a_third_thread_is_whole() {
    model(|| {
        let shared = Shared::new(SlidingWindow::new(quota(2, 10)).strict(), 0);
        assert!(shared.check_at(5, 2));
        let (_, b) = both(&shared, |s| s.check_at(19, 1), |s| s.check_at(12, 1));
        assert!(
            !b,
            "counts of the ended window are neither lost nor left behind: 2 x 8/10 leaves no room for 1"
        );
    });
}

#[test]
fn a_lap_begins_once_and_within_its_beginners_call() {
    model(|| {
        let shared = Shared::new(FixedWindow::from_first_use(quota(2, 10)), 100);
        let ticker = shared.clone();
        let ticker = thread::spawn(move || ticker.clock.set(103));
        let (a, b) = both(&shared, |s| s.check(1), |s| s.check(2));
        ticker.join().unwrap();
        assert!(a ^ b, "a window of two holds one of 1 + 2");
        let anchor = shared.state.read(1);
        assert!((100..=103).contains(&anchor), "the window began at a time that a caller read: {anchor}");
        assert!(!shared.check_at(109, 2), "and lasts a period from it");
        assert!(shared.check_at(113, 2), "and no longer than one from the last reading");
    });
}

/// Two windows from first use, one after the other: at most the limit in each.
fn lap_after_lap(charge: fn(&Shared<FixedWindow>, u64) -> bool) {
    let shared = Shared::new(FixedWindow::from_first_use(quota(1, 10)), 0);
    assert!(shared.check_at(100, 1));
    let (a, b) = both(&shared, move |s| charge(s, 110), move |s| s.check_at(111, 1));
    assert!(!(a && b), "one window of one unit admits one");
}

#[test]
fn the_next_lap_is_one_lap() {
    model(|| lap_after_lap(|s, now| s.check_at(now, 1)));
}

#[test]
#[should_panic(expected = "one window of one unit admits one")]
fn control_anchoring_after_the_exchange_admits_twice() {
    model(|| lap_after_lap(commit_first));
}

#[test]
fn a_claimed_place_is_never_taken_for_an_expired_one() {
    model(|| {
        let shared = Shared::new(SlidingLog::new(quota(1, 10)), 0);
        assert!(shared.check_at(100, 1));
        let (a, b) = both(&shared, |s| s.check_at(110, 1), |s| s.check_at(111, 1));
        assert!(a ^ b, "one unit in any 10 ns: one of two at 110 and 111");
        assert!(!shared.check_at(119, 1), "the one admitted holds its place for 10 ns");
        assert!(shared.check_at(121, 1), "and no longer than from the later time");
    });
}

#[test]
fn helpers_and_claimers_leave_one_log() {
    model(|| {
        let shared = Shared::new(SlidingLog::new(quota(2, 10)), 0);
        let (a, b) = both(&shared, |s| s.check_at(100, 2), |s| s.check_at(101, 1));
        assert!(a ^ b, "two units in any 10 ns: one of 2 + 1");
        let c = shared.check_at(109, 1);
        assert_eq!(c, b, "only the single unit leaves room for another");
    });
}

/// The log, but blind to the lap bit.
#[derive(Clone, Debug)]
struct Blind(SlidingLog);

impl Stepper for Blind {
    type Tail = Box<[AtomicU64]>;

    fn tail_len(&self) -> usize {
        self.0.tail_len()
    }

    fn step(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        // With a ring of one, every unit's place is the one, and its lap is that of the newest.
        self.0.step(head, |index| (read(index) & !1) | (head & 1), now_ns, cost)
    }

    fn force(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        self.0.force(head, read, now_ns, cost)
    }

    fn reads(&self, other: &Self) -> bool {
        self.0.reads(&other.0)
    }

    fn is_idle(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64) -> bool {
        self.0.is_idle(head, read, now_ns)
    }

    fn filled(&self, fill: Fill, raise: impl FnMut(Raise)) {
        self.0.filled(fill, raise);
    }
}

impl Algorithm for Blind {
    fn requota(&self, _quota: &Quota) -> Result<Self, crate::quota::QuotaError> {
        Ok(self.clone())
    }

    fn with_quota(&self, _quota: &Quota) -> Result<Self, crate::quota::QuotaError> {
        Ok(self.clone())
    }
}

#[test]
#[should_panic(expected = "one unit in any 10 ns")]
fn control_without_the_lap_bit_a_claimed_place_looks_expired() {
    model(|| {
        let shared = Shared::new(Blind(SlidingLog::new(quota(1, 10))), 0);
        assert!(shared.check_at(100, 1));
        let (a, b) = both(&shared, |s| s.check_at(110, 1), |s| s.check_at(111, 1));
        assert!(a ^ b, "one unit in any 10 ns: one of two at 110 and 111");
    });
}

#[test]
fn a_dead_state_takes_no_charge() {
    model(|| {
        let shared = Shared::new(Gcra::new(quota(1, 10)), 0);
        assert!(shared.check_at(100, 1));
        let (killed, charged) = both(
            &shared,
            |s| s.state.kill_if_idle(&s.algorithm, 110),
            |s| s.state.charge(&s.algorithm, 110, 1).is_ok(),
        );
        assert!(killed ^ charged, "an idle state is reclaimed or charged, never both");
    });
}

#[test]
#[should_panic(expected = "never both")]
fn control_reclaiming_by_a_store_loses_a_charge() {
    model(|| {
        let shared = Shared::new(Gcra::new(quota(1, 10)), 0);
        assert!(shared.check_at(100, 1));
        let (killed, charged) = both(
            &shared,
            |s| {
                let idle = s.algorithm.is_idle(s.head(), |_| 0, 110);
                if idle {
                    s.state.head.store(DEAD, Ordering::SeqCst);
                }
                idle
            },
            |s| s.state.charge(&s.algorithm, 110, 1).is_ok(),
        );
        assert!(killed ^ charged, "an idle state is reclaimed or charged, never both");
    });
}
