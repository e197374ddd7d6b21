//! Options of the write-back mode.

use std::time::Duration;

use crate::edge::redis::client::Builder;

#[derive(Clone, Debug)]
pub(super) struct WriteBackOptions {
    pub(super) interval: Duration,
    pub(super) processes: Option<u32>,
}

/// Sets the options of the write-back mode, and builds the limiter. [`Builder::write_back`] creates it.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it builds a limiter"]
pub struct WriteBackBuilder<T, C = ()> {
    pub(super) builder: Builder<T>,
    pub(super) options: WriteBackOptions,
    /// `()` stands for the default clock, which is created with the limiter.
    pub(super) clock: C,
}

impl<T> Builder<T> {
    /// Chooses the write-back mode: this process decides, and posts to the server later. See
    /// [`WriteBackLimiter`](super::WriteBackLimiter).
    pub fn write_back(self) -> WriteBackBuilder<T> {
        let options = WriteBackOptions { interval: Duration::from_secs(1), processes: None };
        WriteBackBuilder { builder: self, options, clock: () }
    }
}

impl<T, C> WriteBackBuilder<T, C> {
    /// Sets the maximum time between the admission of a unit and its post. Default: one second. It is at least 1 ms.
    ///
    /// Windows shorter than four intervals are posted up to four times each. With GCRA, the time never exceeds half the
    /// time that refills a full burst. The limiter scans its keys at most once every 5 ms.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.options.interval = interval.max(Duration::from_millis(1));
        self
    }

    /// Sets the number of processes that share the limits. Default: the number in
    /// [`OnFailure::Local`](crate::edge::redis::OnFailure::Local), which is one unless it is set.
    ///
    /// For a new key or window, a process admits the limit divided by this number before the first answer of the
    /// server. If more processes exist, together they can admit more.
    pub fn processes(mut self, processes: u32) -> Self {
        self.options.processes = Some(processes.max(1));
        self
    }

    /// Sets the clock. Its origin must be the Unix epoch, with an error that is small compared to the length of the
    /// windows. Default: [`QuantaClock`](crate::QuantaClock).
    pub fn clock<D>(self, clock: D) -> WriteBackBuilder<T, D> {
        WriteBackBuilder { builder: self.builder, options: self.options, clock }
    }
}
