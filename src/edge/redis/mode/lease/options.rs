//! What is set about leases.

use std::time::Duration;

use super::book::LeaseSettings;
use crate::edge::redis::client::Builder;

/// Sets what is optional about leases, and makes the limiter. By [`Builder::leases`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until a limiter is made"]
pub struct LeaseBuilder<T, C = ()> {
    pub(super) builder: Builder<T>,
    pub(super) options: LeaseSettings,
    /// `()`: the default one, made with the limiter.
    pub(super) clock: C,
}

impl<T> Builder<T> {
    /// A limiter that is charged for units in blocks, and spends them in this process: a check costs what one in this process does.
    /// See [`LeaseLimiter`](super::LeaseLimiter).
    pub fn leases(self) -> LeaseBuilder<T> {
        let options = LeaseSettings::default();
        LeaseBuilder { builder: self, options, clock: () }
    }
}

impl<T, C> LeaseBuilder<T, C> {
    /// How long units may be spent after they were charged, counted from before the server was asked. Default: one second.
    ///
    /// Longer means fewer questions for keys that are used seldom, and more that is charged long before it is spent. It should be
    /// many round trips: what comes later than this is lost. At least 1 ms, at most an hour.
    pub fn life(mut self, life: Duration) -> Self {
        self.options.life = life.clamp(Duration::from_millis(1), Duration::from_secs(3600));
        self
    }

    /// The most units that are held of a key, but for a request that itself costs more. Default: 4,096.
    pub fn max_block(mut self, max_block: u64) -> Self {
        self.options.max_block = max_block.max(1);
        self
    }

    /// About how many processes share the limits. Default: 8.
    ///
    /// A process is granted at most one part in twice as many of what is left at once. If it is less than there are, one that is
    /// idle can strand more; if it is more, blocks are smaller near the end of a quota.
    pub fn processes(mut self, processes: u32) -> Self {
        self.options.processes = processes.max(1);
        self
    }

    /// So many stripes (rounded up to a power of two, at most 1,024) for each key, as those of
    /// [`striped`](crate::Builder::striped) limiters: for the one key that all cores hit at once. Each takes 128 bytes; without
    /// this, a key takes about 200 bytes, and its text.
    pub fn stripes(mut self, stripes: usize) -> Self {
        self.options.stripes = Some(stripes.clamp(1, 1_024).next_power_of_two());
        self
    }

    /// Another clock for what is held. Default: [`QuantaClock`](crate::QuantaClock).
    pub fn clock<D>(self, clock: D) -> LeaseBuilder<T, D> {
        LeaseBuilder { builder: self.builder, options: self.options, clock }
    }
}
