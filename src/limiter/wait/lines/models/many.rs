//! Models of eight waiters in one line. Shuttle runs them in sampled interleavings; see `sync::sample`.

use super::*;
use crate::base::sync::{eight, sample, thread};

const SCHEDULES: usize = 800;

/// The line, the number of waiters at its head, and the tickets of waiters that have left.
struct Shared {
    lines: WaitLines,
    inside: AtomicUsize,
    left: AtomicUsize,
}

impl Shared {
    fn leave(&self, place: LinePosition) {
        self.lines.leave(place, 5, 5);
        self.left.fetch_or(1 << place.ticket, Ordering::SeqCst);
    }

    /// Waits for the wake-up. Fails if all earlier waiters have left without it.
    fn is_called(&self, place: LinePosition, calls: &Calls) {
        let before = (1 << place.ticket) - 1;
        loop {
            let left = self.left.load(Ordering::SeqCst);
            if called(calls) {
                return;
            }
            assert!(left & before != before, "a waiter that saw a head is woken when it becomes the head");
            thread::yield_now();
        }
    }
}

/// Eight threads join one line. Two give up at once, and six wait for their turns.
fn eight_waiters(standing: Look) {
    let shared = Shared { lines: WaitLines::new(), inside: AtomicUsize::new(0), left: AtomicUsize::new(0) };
    let shared = Arc::new(shared);
    eight(&shared, move |shared, number| {
        let (waker, calls) = waker();
        let (place, before) = shared.lines.join("key", 1, 0, Waker::noop().clone());
        if number % 4 == 3 {
            return shared.leave(place);
        }
        if before.is_some()
            && let LineStanding::Behind { .. } = standing(&shared.lines, place, &waker)
        {
            shared.is_called(place, &calls);
        }
        assert!(is_head(&shared.lines, place), "a waiter that is woken is the head");
        assert_eq!(shared.inside.fetch_add(1, Ordering::SeqCst), 0, "a line has only one head");
        shared.inside.fetch_sub(1, Ordering::SeqCst);
        shared.leave(place);
    });
    let lines = &shared.lines;
    assert_eq!((lines.len(), lines.waiters()), (0, 0), "a line is removed with its last waiter");
}

#[test]
fn models_eight_waiters_are_woken_in_order() {
    sample(SCHEDULES, || eight_waiters(WaitLines::standing));
}

#[test]
#[should_panic(expected = "is woken when it becomes the head")]
fn models_control_eight_separate_look_loses_wake_up() {
    sample(SCHEDULES, || eight_waiters(separately));
}
