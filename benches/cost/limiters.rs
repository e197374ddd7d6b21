//! The limiters of the parts *keys* and *threads*, and a subject made of a closure.

use std::time::Duration;

use governor::clock::QuantaClock;
use governor::state::keyed::DashMapStateStore;
use tollgate::{Capacity, Gcra, Quota, RateLimiter};

use crate::subject::{Contender, Expect, Subject, Terms};
use crate::support::length;
use crate::turn::{least_disturbed, sample};

/// One call on a key. The call must return `true`.
struct Call<F>(F);

impl<K, F: Fn(&K) -> bool + Sync> Subject<K> for Call<F> {
    #[inline(always)]
    fn check(&self, key: &K) -> bool {
        (self.0)(key)
    }
}

pub(crate) fn call<K: 'static>(operation: impl Fn(&K) -> bool + Sync + 'static) -> Box<dyn Contender<K>> {
    Box::new(Call(operation))
}

/// Returns the nanoseconds per call in the least disturbed of several turns. There is a thread for each stream.
pub(crate) fn turn<K: Sync>(contender: &dyn Contender<K>, streams: &[Vec<K>], calls: u64) -> f64 {
    least_disturbed(streams.len(), || sample(contender, streams, calls, Expect::Allowed)).ns
}

/// 1 unit in ten minutes per key, and a burst that many keys never use up. Every key has a debt all the time.
pub(crate) const SLOW: Terms = Terms { rate: 1, period: Duration::from_secs(600), burst: 10_000_000 };
/// A quota that no key uses up, even if all calls use one key.
pub(crate) const PLENTY: Terms =
    Terms { rate: 10_000_000, period: Duration::from_secs(1), burst: 30_000_000 };

pub(crate) type GovernorOf<K> =
    governor::RateLimiter<K, DashMapStateStore<K, ahash::RandomState>, QuantaClock>;

pub(crate) fn governor<K: std::hash::Hash + Eq + Clone>(terms: Terms) -> GovernorOf<K> {
    let burst = std::num::NonZeroU32::new(terms.burst).expect("not zero");
    let quota = governor::Quota::with_period(terms.interval()).expect("not zero").allow_burst(burst);
    let store = DashMapStateStore::with_hasher(ahash::RandomState::new());
    governor::RateLimiter::new(quota, store, QuantaClock::default())
}

pub(crate) fn quota(terms: Terms) -> Quota {
    Quota::new(u64::from(terms.rate), terms.period).burst(u64::from(terms.burst))
}

/// A limiter by its name, and the largest number of keys for which it is measured: more would take minutes, or too much
/// memory.
pub(crate) struct Limiter {
    pub(crate) name: &'static str,
    pub(crate) most_keys: u64,
    /// Takes the number of keys and the quota.
    pub(crate) build: fn(u64, Terms) -> Box<dyn Contender<u64>>,
}

fn compact(terms: Terms, capacity: Capacity) -> Box<dyn Contender<u64>> {
    let builder = RateLimiter::builder(Gcra::new(quota(terms))).capacity(capacity);
    let limiter = builder.compact().expect("the quota fits in a slot's word");
    call(move |key: &u64| limiter.check(key).is_allowed())
}

pub(crate) const COMPACT: Limiter = Limiter {
    name: "tollgate compact",
    most_keys: 100_000_000,
    build: |keys, terms| compact(terms, Capacity::slots(length(keys.max(1_000)) * 4)),
};

pub(crate) const TIGHT: Limiter = Limiter {
    name: "tollgate compact, 12 B a key",
    most_keys: 10_000_000,
    build: |keys, terms| {
        let admitted = (keys * u64::from(terms.rate)).div_ceil(terms.period.as_secs());
        compact(terms, Capacity::for_traffic(admitted, &quota(terms)))
    },
};

pub(crate) const KEYED: Limiter = Limiter {
    name: "tollgate keyed",
    most_keys: 10_000_000,
    build: |_, terms| {
        let limiter = RateLimiter::builder(Gcra::new(quota(terms))).keyed();
        call(move |key: &u64| limiter.check(key).is_allowed())
    },
};

pub(crate) const GOVERNOR: Limiter = Limiter {
    name: "governor + ahash",
    most_keys: 100_000_000,
    build: |_, terms| {
        let limiter = governor(terms);
        call(move |key: &u64| limiter.check_key(key).is_ok())
    },
};
