//! A task that waits, by tokio's timer.

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

/// A task's wait for its turn, made by [`RateLimiter::until_ready`](crate::RateLimiter::until_ready): a future that nothing is done
/// for until it is first polled.
///
/// The answer is the charge that was made for it: its [`delay`](Decision::delay) has passed, and it can be
/// [refunded](crate::RateLimiter::refund). See [`guide::waiting`](crate::guide::waiting) for how lines are served.
///
/// # Errors
/// [`NotReady`], and nothing was charged: if the cost can never go, or not before the deadline.
///
/// # Cancellation
/// May be dropped at any time: what was reserved is given back, and the next in line is woken. One that is kept and not
/// polled holds up those behind it.
///
/// # Panics
/// When polled outside a tokio runtime, or in one without a timer, if it has to wait.
///
/// # Complexity
/// O(1) if nobody waits for a key of the same shard and there is room: one hash more than a check, no lock and no allocation. Else
/// a mutex for a moment at each poll, and O(log n) in the number that wait.
#[must_use = "nobody waits until this is polled"]
pub struct UntilReady<'a, S: Store<Q>, C: Clock, Q: Hash + ?Sized = ()> {
    turn: Turn<'a, S, C, Q>,
    /// Boxed when there is something to wait for, so that the whole can be moved.
    timer: Option<Pin<Box<Sleep>>>,
    /// By the limiter's clock, what the timer is set to.
    until_ns: u64,
}

impl<'a, S: Store<Q>, C: Clock, Q: Hash + ?Sized> UntilReady<'a, S, C, Q> {
    pub(crate) fn new(store: &'a S, clock: &'a C, lines: &'a WaitLines, key: &'a Q, cost: u64) -> Self {
        Self { turn: Turn::new(store, clock, lines, key, cost), timer: None, until_ns: 0 }
    }

    /// Waits no longer than this from the first poll on. Refused at once when it is known that the turn comes later, else at the
    /// deadline. Default: however long it takes. No effect after the first poll.
    pub fn within(mut self, longest: Duration) -> Self {
        self.turn.within(longest);
        self
    }

    /// Waits a random time longer than until the turn, but not beyond the deadline; whoever need not wait goes at once.
    /// Default: none. No effect once the turn has come.
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.turn.jitter(jitter);
        self
    }

    /// Whether the timer has gone off at `until_ns`, to which it is set if it was not.
    fn poll_timer(&mut self, cx: &mut Context<'_>, now_ns: u64, until_ns: u64) -> Poll<()> {
        let left = Duration::from_nanos(until_ns - now_ns);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(left)));
        // Also sets a timer that went off before the limiter's clock was there.
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
                // No deadline: whoever leaves the line calls.
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
