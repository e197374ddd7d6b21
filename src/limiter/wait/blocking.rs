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

/// The shortest and the longest sleep while the clock does not advance. Each sleep is twice the previous one. After the
/// clock continues, a thread can be late by the longest sleep, which equals the precision of tokio's timer.
const SHORTEST_NS: u64 = 1_000;
const LONGEST_NS: u64 = 1_000_000;

/// A wait that blocks the calling thread, made by [`RateLimiter::wait`](crate::RateLimiter::wait); [`Wait::block`]
/// starts it.
///
/// See [`docs/waiting.md`](https://docs.rs/crate/tollgate/latest/source/docs/waiting.md) for how lines are served.
#[must_use = "the wait does not begin until `block` is called"]
pub struct Wait<'a, S, C, Q = ()>(Turn<'a, S, C, Q>)
where
    S: Store<Q>,
    C: Clock,
    Q: Hash + ?Sized;

impl<'a, S: Store<Q>, C: Clock, Q: Hash + ?Sized> Wait<'a, S, C, Q> {
    pub(crate) fn new(store: &'a S, clock: &'a C, lines: &'a WaitLines, key: &'a Q, cost: u64) -> Self {
        Self(Turn::new(store, clock, lines, key, cost))
    }

    /// Limits the wait to this time from the call of [`Wait::block`] on. The wait fails immediately if the turn is
    /// known to come later, and otherwise at the deadline. Default: no limit.
    pub fn within(mut self, longest: Duration) -> Self {
        self.0.within(longest);
        self
    }

    /// Adds a random time to the wait, but not beyond the deadline. A caller that need not wait continues immediately.
    /// Default: none.
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.0.jitter(jitter);
        self
    }

    /// Blocks the thread until its turn has come.
    ///
    /// Returns the charge for this turn. The [`delay`](Decision::delay) of the charge has passed, and the caller can
    /// [refund](crate::RateLimiter::refund) it.
    ///
    /// # Errors
    /// Returns [`NotReady`], and charges nothing, if the cost can never be admitted, or not before the deadline.
    pub fn block(mut self) -> Result<Decision, NotReady> {
        // A thread that need not wait needs no waker. A thread that must wait is in line after this call, and the next
        // call stores its waker.
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
                    // The missing time may be one nanosecond, and a coarse clock may not advance for much longer.
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

/// Wakes a sleeping thread. It has its own flag, because the thread's parking token belongs to the caller's code.
#[derive(Default)]
struct Alarm {
    is_awake: Mutex<bool>,
    signal: Condvar,
}

impl Alarm {
    /// Sleeps for `ns` at most; a wake-up or a spurious return ends the sleep earlier.
    fn sleep(&self, ns: u64) {
        let mut is_awake = self.is_awake.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_awake {
            is_awake = match self.signal.wait_timeout(is_awake, Duration::from_nanos(ns)) {
                Ok((is_awake, _)) => is_awake,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        *is_awake = false;
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        *self.is_awake.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.signal.notify_one();
    }
}
