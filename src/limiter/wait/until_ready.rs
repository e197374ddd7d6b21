//! A task that waits, with tokio's timer.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use super::turn::{Next, Turn};
use super::{Jitter, NotReady, WaitLines};
use crate::base::clock::Clock;
use crate::base::decision::Decision;
use crate::store::Store;

/// A future that waits for a turn, made by [`RateLimiter::until_ready`](crate::RateLimiter::until_ready). It does
/// nothing until its first poll.
///
/// The output is the charge for this turn. The [`delay`](Decision::delay) of the charge has passed, and the caller can
/// [refund](crate::RateLimiter::refund) it. See
/// [`docs/waiting.md`](https://docs.rs/crate/tollgate/latest/source/docs/waiting.md)
/// for the order of waiters.
///
/// # Errors
/// Returns [`NotReady`], and charges nothing, if the cost can never be admitted, or not before the deadline.
///
/// # Cancellation
/// The future may be dropped at any time. The drop refunds its reservation and wakes the next waiter. A future that is
/// kept but not polled delays the waiters behind it.
///
/// # Panics
/// Panics if it has to wait and is polled outside a tokio runtime, or in a runtime without a timer.
///
/// # Complexity
/// O(1) if capacity is free and no other call waits for a key of the same shard. It then takes one more hash than a
/// check, no lock and no allocation. Otherwise each poll holds a mutex for a moment, and takes O(log n) for n waiters.
#[must_use = "the wait does not begin until the future is polled"]
pub struct UntilReady<'a, S: Store<Q>, C: Clock, Q: Hash + ?Sized = ()> {
    turn: Turn<'a, S, C, Q>,
    /// Boxed, so that the whole future can be moved. `None` until the task has to wait.
    timer: Option<Pin<Box<Sleep>>>,
    /// The time that the timer is set to, by the limiter's clock.
    until_ns: u64,
}

impl<'a, S: Store<Q>, C: Clock, Q: Hash + ?Sized> UntilReady<'a, S, C, Q> {
    pub(crate) fn new(store: &'a S, clock: &'a C, lines: &'a WaitLines, key: &'a Q, cost: u64) -> Self {
        Self { turn: Turn::new(store, clock, lines, key, cost), timer: None, until_ns: 0 }
    }

    /// Limits the wait to this time from the first poll on. The wait fails immediately if the turn is known to come
    /// later, and otherwise at the deadline. Default: no limit. No effect after the first poll.
    pub fn within(mut self, longest: Duration) -> Self {
        self.turn.within(longest);
        self
    }

    /// Adds a random time to the wait, but not beyond the deadline. A task that need not wait continues immediately.
    /// Default: none. No effect after the turn has come.
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.turn.jitter(jitter);
        self
    }

    /// Returns whether the timer has fired at `until_ns`. Sets the timer first if it is set to another time.
    fn poll_timer(&mut self, cx: &mut Context<'_>, now_ns: u64, until_ns: u64) -> Poll<()> {
        let left = Duration::from_nanos(until_ns - now_ns);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(left)));
        // This also resets a timer that fired before the limiter's clock reached `until_ns`.
        if self.until_ns != until_ns || timer.is_elapsed() {
            self.until_ns = until_ns;
            timer.set(sleep(left));
        }
        timer.as_mut().poll(cx)
    }
}

impl<S: Store<Q>, C: Clock, Q: Hash + ?Sized> Future for UntilReady<'_, S, C, Q> {
    type Output = Result<Decision, NotReady>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match self.turn.advance(cx.waker()) {
                Next::Done(result) => {
                    self.timer = None;
                    return Poll::Ready(result);
                }
                // There is no deadline: the waiter that leaves the line calls the waker.
                Next::Sleep { until_ns: u64::MAX, .. } => return Poll::Pending,
                Next::Sleep { now_ns, until_ns } => {
                    if self.poll_timer(cx, now_ns, until_ns).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl<S: Store<Q>, C: Clock, Q: Hash + ?Sized> fmt::Debug for UntilReady<'_, S, C, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UntilReady").field(&self.turn).finish()
    }
}
