//! Options of the lease mode.

use std::time::Duration;

use super::book::LeaseSettings;
use crate::client::LimiterBuilder;

/// Sets the options of the lease mode, and builds the limiter. [`LimiterBuilder::leases`] creates it.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it builds a limiter"]
pub struct LeaseBuilder<T, C = ()> {
    pub(super) builder: LimiterBuilder<T>,
    pub(super) options: LeaseSettings,
    /// `()` stands for the default clock, which is created with the limiter.
    pub(super) clock: C,
}

impl<T> LimiterBuilder<T> {
    /// Chooses the lease mode: the server charges units in blocks, and this process spends them. A check costs about as
    /// much as a check of a local limiter. See [`LeaseLimiter`](super::LeaseLimiter).
    pub fn leases(self) -> LeaseBuilder<T> {
        let options = LeaseSettings::default();
        LeaseBuilder { builder: self, options, clock: () }
    }
}

impl<T, C> LeaseBuilder<T, C> {
    /// Sets the lifetime of units. The lifetime starts before the call that charges them is sent. Default: one second.
    ///
    /// A longer life means fewer calls for rarely used keys, and more units that are charged long before they are
    /// spent. The life should be many round trips, because units that arrive after their life are lost. It is at least
    /// 1 ms and at most one hour.
    pub fn life(mut self, life: Duration) -> Self {
        self.options.life = life.clamp(Duration::from_millis(1), Duration::from_secs(3600));
        self
    }

    /// Sets the maximum number of units held for a key, except for a request that itself costs more. Default: 4,096.
    pub fn max_block(mut self, max_block: u64) -> Self {
        self.options.max_block = max_block.max(1);
        self
    }

    /// Sets the approximate number of processes that share the limits. Default: 8.
    ///
    /// With this value `p`, the server grants a process at most `1 / (2p)` of the remaining units at once. If more
    /// processes exist, an idle process can strand more units. If fewer exist, blocks are smaller near the end of a
    /// quota.
    pub fn processes(mut self, processes: u32) -> Self {
        self.options.processes = processes.max(1);
        self
    }

    /// Sets the number of stripes for each key, for a single key that all cores use at the same time. The number is
    /// rounded up to a power of two, at most 1,024. The stripes work like those of [`striped`](tollgate::Builder::striped)
    /// limiters.
    ///
    /// Each stripe takes 128 bytes. Without stripes, a key takes about 200 bytes, plus its text.
    pub fn stripes(mut self, stripes: usize) -> Self {
        self.options.stripes = Some(stripes.clamp(1, 1_024).next_power_of_two());
        self
    }

    /// Sets the clock for held units. Default: [`DefaultClock`](tollgate::DefaultClock).
    pub fn clock<D>(self, clock: D) -> LeaseBuilder<T, D> {
        LeaseBuilder { builder: self.builder, options: self.options, clock }
    }
}
