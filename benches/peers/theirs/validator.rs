//! The buckets and the map of a validator of Solana (agave), which limits connections by address.
//!
//! A bucket is 56 bytes: units and times in three atomics, the rate in floating point, and the system's clock in
//! microseconds. A new address gets a clone of a prototype. The map is allocated for twice its target. When it holds half as
//! many addresses again as its target, the call that noticed removes all but those that were used last. It looks at the
//! time of the last use only, so an address that has spent its units is removed like any other.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use dashmap::DashMap;

use super::Source;
use crate::subject::{Recipe, Setup, Subject};
use crate::summary::float;
use crate::support::{length, stopwatch};

pub(crate) const NAME: &str = "a validator's map";

struct Bucket {
    per_us: f64,
    burst: u64,
    epoch: Instant,
    units: AtomicU64,
    used_us: AtomicU64,
    /// Microseconds that have not yet become a whole unit.
    rest_us: AtomicU64,
}

impl Bucket {
    fn full(setup: Setup) -> Self {
        let terms = setup.expect.terms();
        let burst = u64::from(terms.burst);
        Self {
            per_us: f64::from(terms.rate) / terms.period.as_secs_f64() / 1e6,
            burst,
            epoch: stopwatch(),
            units: AtomicU64::new(burst),
            used_us: AtomicU64::new(0),
            rest_us: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn take(&self) -> bool {
        self.refill();
        self.units.fetch_update(Relaxed, Relaxed, |units| units.checked_sub(1)).is_ok()
    }

    #[inline(always)]
    fn refill(&self) {
        let now_us = u64::try_from(self.epoch.elapsed().as_micros()).unwrap_or(u64::MAX);
        let before_us = self.used_us.fetch_max(now_us, Relaxed);
        if now_us <= before_us {
            return;
        }
        let passed_us = self.rest_us.swap(0, Relaxed) + (now_us - before_us);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the server rounds down")]
        let (gained, spent_us) = {
            let gained = (float(passed_us) * self.per_us).floor();
            (gained as u64, (gained / self.per_us) as u64)
        };
        if gained > 0 {
            let refilled = |units: u64| Some(units.saturating_add(gained).min(self.burst));
            let _ = self.units.fetch_update(Relaxed, Relaxed, refilled);
        }
        self.rest_us.fetch_add(passed_us.saturating_sub(spent_us), Relaxed);
    }
}

impl Clone for Bucket {
    fn clone(&self) -> Self {
        let copy = |word: &AtomicU64| AtomicU64::new(word.load(Relaxed));
        let Self { units, used_us, rest_us, .. } = self;
        Self { units: copy(units), used_us: copy(used_us), rest_us: copy(rest_us), ..*self }
    }
}

struct Map {
    buckets: DashMap<IpAddr, Bucket>,
    prototype: Bucket,
    target: usize,
    /// New addresses until the next trim.
    room: AtomicUsize,
}

impl Map {
    fn new(setup: Setup) -> Self {
        let target = length(setup.population);
        Self {
            buckets: DashMap::with_capacity(target * 2),
            prototype: Bucket::full(setup),
            target,
            room: AtomicUsize::new(target + target / 2),
        }
    }

    #[cold]
    fn trim(&self) {
        self.room.store(self.target / 2, Relaxed);
        let mut used: Vec<u64> = self.buckets.iter().map(|bucket| bucket.used_us.load(Relaxed)).collect();
        if let Some(surplus @ 1..) = used.len().checked_sub(self.target) {
            let (_, &mut oldest, _) = used.select_nth_unstable(surplus);
            self.buckets.retain(|_, bucket| bucket.used_us.load(Relaxed) >= oldest);
        }
    }
}

impl Subject<Source> for Map {
    #[inline(always)]
    fn check(&self, source: &Source) -> bool {
        if let Some(bucket) = self.buckets.get(&source.0) {
            return bucket.take();
        }
        let is_admitted = self.buckets.entry(source.0).or_insert_with(|| self.prototype.clone()).take();
        if self.room.fetch_sub(1, Relaxed) == 1 {
            self.trim();
        }
        is_admitted
    }
}

pub(super) fn recipe() -> Recipe<Source> {
    Recipe {
        name: NAME,
        counts: "DashMap (SipHash) of buckets of 56 B, f64 rate, Instant::now; trimmed to the last used at 1.5 times its target",
        build: |setup| Box::new(Map::new(setup)),
    }
}
