//! governor, as two servers call it.
//!
//! * A proxy (linkerd) takes it without quanta and without DashMap: a map with a mutex, and the system's clock. The map is
//!   never swept, and has no cap.
//! * A mediator of messages (affinidi) puts a cap around it. A handle of its own into governor's DashMap shows whether a key
//!   is known. Known keys are checked. At the cap, a new key is denied, after a sweep if the last one was 100 ms ago.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use dashmap::DashMap;
use governor::Quota;
use governor::clock::{Clock, MonotonicClock, QuantaClock};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::{HashMapStateStore, ShrinkableKeyedStateStore};
use governor::state::{InMemoryState, StateStore};

use super::Source;
use crate::subject::{Recipe, Setup, Subject};
use crate::support::{length, stopwatch};

pub(super) const CAPPED: &str = "governor, with a cap";

const SWEEP_MS: u64 = 100;

fn quota(setup: Setup) -> Quota {
    let terms = setup.expect.terms();
    let burst = NonZeroU32::new(terms.burst).expect("not zero");
    Quota::with_period(terms.interval()).expect("not zero").allow_burst(burst)
}

type NoOp = NoOpMiddleware<<MonotonicClock as Clock>::Instant>;

struct Locked(governor::RateLimiter<IpAddr, HashMapStateStore<IpAddr>, MonotonicClock, NoOp>);

impl Subject<Source> for Locked {
    #[inline(always)]
    fn check(&self, source: &Source) -> bool {
        self.0.check_key(&source.0).is_ok()
    }
}

/// governor's DashMap, which the server can look into.
#[derive(Clone, Default)]
struct Handle(Arc<DashMap<IpAddr, InMemoryState>>);

impl StateStore for Handle {
    type Key = IpAddr;

    #[inline(always)]
    fn measure_and_replace<T, F, E>(&self, key: &IpAddr, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        self.0.measure_and_replace(key, decide)
    }
}

impl ShrinkableKeyedStateStore<IpAddr> for Handle {
    fn retain_recent(&self, drop_below: Nanos) {
        self.0.retain_recent(drop_below);
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

struct Capped {
    limiter: governor::RateLimiter<IpAddr, Handle, QuantaClock>,
    keys: Handle,
    cap: usize,
    started: Instant,
    swept_ms: AtomicU64,
}

impl Capped {
    fn new(setup: Setup) -> Self {
        let keys = Handle::default();
        Self {
            limiter: governor::RateLimiter::new(quota(setup), keys.clone(), QuantaClock::default()),
            keys,
            cap: length(setup.population),
            started: stopwatch(),
            swept_ms: AtomicU64::new(0),
        }
    }

    /// Returns whether a new key has room.
    fn has_room(&self) -> bool {
        if self.keys.len() < self.cap {
            return true;
        }
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let swept_ms = self.swept_ms.load(Relaxed);
        if now_ms >= swept_ms + SWEEP_MS
            && self.swept_ms.compare_exchange(swept_ms, now_ms, Relaxed, Relaxed).is_ok()
        {
            self.limiter.retain_recent();
        }
        self.keys.len() < self.cap
    }
}

impl Subject<Source> for Capped {
    #[inline(always)]
    fn check(&self, source: &Source) -> bool {
        (self.keys.0.contains_key(&source.0) || self.has_room()) && self.limiter.check_key(&source.0).is_ok()
    }
}

pub(super) fn recipes() -> Vec<Recipe<Source>> {
    vec![
        Recipe {
            name: "governor, in a mutex",
            counts: "check_key on its HashMap (SipHash) with a mutex, MonotonicClock; never swept",
            build: |setup| {
                let clock = MonotonicClock;
                Box::new(Locked(governor::RateLimiter::hashmap_with_clock(quota(setup), clock)))
            },
        },
        Recipe {
            name: CAPPED,
            counts: "check_key on its DashMap (SipHash), quanta clock; contains_key before, len and a sweep at the cap",
            build: |setup| Box::new(Capped::new(setup)),
        },
    ]
}
