//! The wait of one direction.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::ByteLimit;

/// A wait that lasts over calls: it belongs to the wrapper, not to the future of one call.
#[derive(Debug)]
pub(crate) struct Pause {
    /// Boxed, so that the wrapper can be moved. `None` until the first wait.
    timer: Option<Pin<Box<Sleep>>>,
    is_set: bool,
}

/// About thirty years, the longest wait of tokio's own timer.
const LONGEST: Duration = Duration::from_secs(30 * 365 * 86_400);

impl Pause {
    pub(crate) const fn new() -> Self {
        Self { timer: None, is_set: false }
    }

    /// Returns whether time has paid what passed before.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let (true, Some(timer)) = (self.is_set, &mut self.timer) {
            std::task::ready!(timer.as_mut().poll(cx));
            self.is_set = false;
        }
        Poll::Ready(())
    }

    /// Charges what has passed. The next [`Pause::poll`] waits until it is paid.
    pub(crate) fn charge(&mut self, limit: &impl ByteLimit, units: u64) {
        if units == 0 {
            return;
        }
        let delay = limit.charge(units).min(LONGEST);
        self.is_set = !delay.is_zero();
        if self.is_set {
            let until = Instant::now() + delay;
            match &mut self.timer {
                Some(timer) => timer.as_mut().reset(until),
                None => self.timer = Some(Box::pin(sleep_until(until))),
            }
        }
    }
}
