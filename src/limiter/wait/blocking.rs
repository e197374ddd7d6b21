//! A thread that waits.

use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

use super::turn::{Next, Turn};
use super::{Jitter, NotReady, WaitLines};
use crate::base::clock::Clock;
use crate::base::decision::Decision;
use crate::base::sync::{Condvar, Mutex};
use crate::store::Store;

/// The first sleep while a clock stands, and the longest: each is twice the one before. The second is how late a thread may
/// be once the clock goes on, which is what tokio's timer allows itself.
const SHORTEST_NS: u64 = 1_000;
const LONGEST_NS: u64 = 1_000_000;

/// A wait of the calling thread for its turn, made by [`RateLimiter::wait`](crate::RateLimiter::wait); [`Wait::block`] waits.
///
/// See [`guide::waiting`](crate::guide::waiting) for how lines are served.
#[must_use = "nobody waits until `block` is called"]
pub struct Wait<'a, S, C, Q = ()>(Turn<'a, S, C, Q>)
where
    S: Store<Q>,
    C: Clock,
    Q: Hash + ?Sized;

impl<'a, S: Store<Q>, C: Clock, Q: Hash + ?Sized> Wait<'a, S, C, Q> {
    pub(crate) fn new(store: &'a S, clock: &'a C, lines: &'a WaitLines, key: &'a Q, cost: u64) -> Self {
        Self(Turn::new(store, clock, lines, key, cost))
    }

    /// Waits no longer than this from [`Wait::block`] on. Refused at once when it is known that the turn comes later, else at the
    /// deadline. Default: however long it takes.
    pub fn within(mut self, longest: Duration) -> Self {
        self.0.within(longest);
        self
    }

    /// Waits a random time longer than until the turn, but not beyond the deadline; whoever need not wait goes at once.
    /// Default: none.
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.0.jitter(jitter);
        self
    }

    /// Blocks the thread until its turn has come.
    ///
    /// The answer is the charge that was made for it: its [`delay`](Decision::delay) has passed, and it can be
    /// [refunded](crate::RateLimiter::refund).
    ///
    /// # Errors
    /// [`NotReady`], and nothing was charged: if the cost can never go, or not before the deadline.
    pub fn block(mut self) -> Result<Decision, NotReady> {
        // Who need not wait needs no waker. Who must is in line by now, and leaves its own with the next step.
        if let Next::Done(result) = self.0.advance(Waker::noop()) {
            return result;
        }
        let alarm = Arc::new(Alarm::default());
        let waker = Waker::from(Arc::clone(&alarm));
        let (mut slept_at_ns, mut least_ns) = (None, 0_u64);
        loop {
            match self.0.advance(&waker) {
                Next::Done(result) => return result,
                Next::Sleep { now_ns, until_ns } => {
                    // A clock that stands does so for longer than is missing: it may be a nanosecond.
                    least_ns = if slept_at_ns == Some(now_ns) {
                        least_ns.saturating_mul(2).clamp(SHORTEST_NS, LONGEST_NS)
                    } else {
                        0
                    };
                    slept_at_ns = Some(now_ns);
                    alarm.sleep((until_ns - now_ns).max(least_ns));
                }
            }
        }
    }
}

impl<S: Store<Q>, C: Clock, Q: Hash + ?Sized> fmt::Debug for Wait<'_, S, C, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Wait").field(&self.0).finish()
    }
}

/// What a sleeping thread is woken by: a flag of its own rather than the thread's parking token, which is the caller's.
#[derive(Default)]
struct Alarm {
    rung: Mutex<bool>,
    bell: Condvar,
}

impl Alarm {
    /// Sleeps for so long, or until woken, or for no reason less.
    fn sleep(&self, ns: u64) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if !*rung {
            rung = match self.bell.wait_timeout(rung, Duration::from_nanos(ns)) {
                Ok((rung, _)) => rung,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        *rung = false;
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.bell.notify_one();
    }
}
