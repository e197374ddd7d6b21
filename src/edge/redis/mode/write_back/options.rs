//! What is set about write-back.

use std::time::Duration;

use crate::edge::redis::client::Builder;

#[derive(Clone, Debug)]
pub(super) struct WriteBackOptions {
    pub(super) interval: Duration,
    pub(super) processes: Option<u32>,
}

/// Sets what is optional about write-back, and makes the limiter. By [`Builder::write_back`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until a limiter is made"]
pub struct WriteBackBuilder<T, C = ()> {
    pub(super) builder: Builder<T>,
    pub(super) options: WriteBackOptions,
    /// `()`: the default one, made with the limiter.
    pub(super) clock: C,
}

impl<T> Builder<T> {
    /// A limiter that decides in this process, and tells the server afterwards. See [`WriteBackLimiter`](super::WriteBackLimiter).
    pub fn write_back(self) -> WriteBackBuilder<T> {
        let options = WriteBackOptions { interval: Duration::from_secs(1), processes: None };
        WriteBackBuilder { builder: self, options, clock: () }
    }
}

impl<T, C> WriteBackBuilder<T, C> {
    /// How long after it was let through a unit is posted, at the latest. Default: one second. At least 1 ms.
    ///
    /// Windows shorter than four of these are posted to four times in each, and by GCRA half the time in which a full burst is
    /// refilled is never exceeded; but keys are looked through no more often than every 5 ms.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.options.interval = interval.max(Duration::from_millis(1));
        self
    }

    /// How many processes share the limits. Default: as many as [`OnFailure::Local`](crate::edge::redis::OnFailure::Local) says, which is one
    /// unless set.
    ///
    /// One part in so many of a limit may be let through of a key (or in a window) before the server has been asked once. If it is
    /// less than there are, more can be admitted in total.
    pub fn processes(mut self, processes: u32) -> Self {
        self.options.processes = Some(processes.max(1));
        self
    }

    /// Another clock. Its origin must be the Unix epoch, within the windows' length. Default: [`QuantaClock`](crate::QuantaClock).
    pub fn clock<D>(self, clock: D) -> WriteBackBuilder<T, D> {
        WriteBackBuilder { builder: self.builder, options: self.options, clock }
    }
}
