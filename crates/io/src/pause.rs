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

    /// Returns whether something may pass: time has paid what passed before, and the limit owes nothing to others.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, limit: &impl ByteLimit) -> Poll<()> {
        if !self.is_set {
            // Others may have used the limit meanwhile, also before the first call.
            self.wait(limit.charge(0));
        }
        if let (true, Some(timer)) = (self.is_set, &mut self.timer) {
            std::task::ready!(timer.as_mut().poll(cx));
            self.is_set = false;
        }
        Poll::Ready(())
    }

    /// Charges what has passed. The next [`Pause::poll`] waits until it is paid.
    pub(crate) fn charge(&mut self, limit: &impl ByteLimit, units: u64) {
        if units > 0 {
            self.wait(limit.charge(units));
        }
    }

    fn wait(&mut self, time: Duration) {
        self.is_set = !time.is_zero();
        if self.is_set {
            let until = Instant::now() + time.min(LONGEST);
            match &mut self.timer {
                Some(timer) => timer.as_mut().reset(until),
                None => self.timer = Some(Box::pin(sleep_until(until))),
            }
        }
    }
}
