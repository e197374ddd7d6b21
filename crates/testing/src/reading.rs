//! How a limiter reads times, and an oracle that reads them in the same way.

use super::compact::{Layout, Ticks};
use super::kinds::Kind;
use super::oracle::{Oracle, Spec};

/// How a limiter reads times. Without a layout of ticks, it reads nanoseconds.
#[derive(Copy, Clone, Debug)]
pub struct Reading {
    pub kind: Kind,
    pub spec: Spec,
    pub layout: Option<Layout>,
    /// The number of a tick may need more than 64 bits. Counted from this one, it does not.
    first: u128,
}

impl Reading {
    /// For times that are not before `earliest`.
    pub fn new(layout: Option<Layout>, kind: Kind, spec: Spec, earliest: u64) -> Self {
        let reading = Self { kind, spec, layout, first: 0 };
        Self { first: reading.ticks().map_or(0, |ticks| ticks.floor(earliest)), ..reading }
    }

    pub fn ticks(&self) -> Option<&Ticks> {
        self.layout.as_ref().and_then(Layout::ticks)
    }

    pub fn oracle(&self) -> Box<dyn Oracle> {
        self.kind.oracle(self.ticks().map_or(self.spec, |ticks| ticks.spec(self.kind, self.spec)))
    }

    /// Returns a time as that oracle counts it.
    pub fn at(&self, now: u64) -> u64 {
        self.ticks().map_or(now, |ticks| {
            u64::try_from(ticks.floor(now) - self.first).expect("the time is within half the range")
        })
    }

    /// Converts a wait of that oracle to nanoseconds.
    pub fn wait(&self, now: u64, wait: u128) -> u128 {
        self.layout.map_or(wait, |layout| layout.wait(now, wait))
    }

    /// Returns how much earlier than exact arithmetic the limiter may admit a request.
    pub fn tick_ns(&self) -> u128 {
        self.layout.map_or(0, |layout| layout.tick_ns())
    }
}
