//! The map of a DNS server (Runbound), which limits queries by /24 and /48.
//!
//! A source is a number of units and the `Instant` of its last refill. A refill that gains a unit forgets the part of the
//! next. Each ten seconds, a query removes the sources that have all their units again. A new source at the cap removes
//! them once more, and is denied if none has left.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use dashmap::DashMap;

use super::Source;
use crate::subject::{Recipe, Setup, Subject};
use crate::support::{length, stopwatch};

const SWEEP_SECONDS: u64 = 10;

struct Bucket {
    units: u64,
    refilled: Instant,
}

struct Map {
    buckets: DashMap<IpAddr, Bucket, ahash::RandomState>,
    cap: usize,
    interval: Duration,
    burst: u64,
    started: Instant,
    swept_second: AtomicU64,
}

impl Map {
    fn new(setup: Setup) -> Self {
        let terms = setup.expect.terms();
        Self {
            buckets: DashMap::default(),
            cap: length(setup.population),
            interval: terms.interval(),
            burst: u64::from(terms.burst),
            started: stopwatch(),
            swept_second: AtomicU64::new(0),
        }
    }

    fn gained(&self, bucket: &Bucket, now: Instant) -> u64 {
        let units = now.duration_since(bucket.refilled).as_nanos() / self.interval.as_nanos();
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    #[cold]
    fn sweep(&self, now: Instant) {
        self.buckets.retain(|_, bucket| bucket.units.saturating_add(self.gained(bucket, now)) < self.burst);
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & (u32::MAX << 8)).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 80)).into(),
    }
}

impl Subject<Source> for Map {
    #[inline(always)]
    fn check(&self, source: &Source) -> bool {
        let (network, now) = (network(source.0), stopwatch());
        let second = now.duration_since(self.started).as_secs();
        let swept = self.swept_second.load(Relaxed);
        if second >= swept + SWEEP_SECONDS
            && self.swept_second.compare_exchange(swept, second, Relaxed, Relaxed).is_ok()
        {
            self.sweep(now);
        }
        if !self.buckets.contains_key(&network) && self.buckets.len() >= self.cap {
            self.sweep(now);
            if self.buckets.len() >= self.cap {
                return false;
            }
        }
        let mut bucket = self.buckets.entry(network).or_insert(Bucket { units: self.burst, refilled: now });
        let gained = self.gained(&bucket, now);
        if gained > 0 {
            *bucket = Bucket { units: bucket.units.saturating_add(gained).min(self.burst), refilled: now };
        }
        let is_admitted = bucket.units > 0;
        bucket.units = bucket.units.saturating_sub(1);
        is_admitted
    }
}

pub(super) fn recipe() -> Recipe<Source> {
    Recipe {
        name: "a DNS server's map",
        counts: "DashMap (ahash) of units and Instant by /24, Instant::now; sweeps each 10 s, and at the cap for each new source",
        build: |setup| Box::new(Map::new(setup)),
    }
}
