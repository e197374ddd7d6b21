//! Tollgate's rows, except those of the compact store.

use std::net::IpAddr;

use tollgate::{DefaultClock, Direct, Gcra, Keyed, RateLimiter, StdClock, WhenFull, leases::Striped};

use crate::flood::Victim;
use crate::subject::{Expect, Recipe, Setup, Subject};
use crate::support::length;

pub(crate) fn gcra(expect: Expect) -> Gcra {
    let terms = expect.terms();
    Gcra::new(tollgate::Quota::new(u64::from(terms.rate), terms.period).burst(u64::from(terms.burst)))
}

struct OursKeyed<K, C>(RateLimiter<Keyed<K>, C>);

impl OursKeyed<u64, DefaultClock> {
    /// Creates a limiter whose maximum number of keys is the scenario's population.
    fn capped(setup: Setup) -> Self {
        let builder = RateLimiter::builder(gcra(setup.expect));
        Self(builder.max_keys(length(setup.population), WhenFull::Forget).keyed())
    }
}

impl<C: tollgate::Clock + Sync> Subject<u64> for OursKeyed<u64, C> {
    #[inline(always)]
    fn check(&self, key: &u64) -> bool {
        self.0.check(key).is_allowed()
    }
}

impl<C: tollgate::Clock + Sync> Subject<String> for OursKeyed<String, C> {
    #[inline(always)]
    fn check(&self, key: &String) -> bool {
        self.0.check(key.as_str()).is_allowed()
    }
}

impl<C: tollgate::Clock + Sync> Subject<IpAddr> for OursKeyed<IpAddr, C> {
    #[inline(always)]
    fn check(&self, key: &IpAddr) -> bool {
        self.0.check(key).is_allowed()
    }
}

/// `check_each` on pieces of 16 keys: one clock reading and one guard per piece.
struct Batched<K>(RateLimiter<Keyed<K>, DefaultClock>);

impl Subject<u64> for Batched<u64> {
    #[inline(always)]
    fn check(&self, key: &u64) -> bool {
        self.0.check(key).is_allowed()
    }

    #[inline(always)]
    fn check_all(&self, keys: &[u64]) -> u64 {
        let mut decisions = Vec::with_capacity(16);
        let mut admitted = 0;
        for batch in keys.chunks(16) {
            decisions.clear();
            self.0.check_each(batch.iter().map(|key| (key, 1)), |decision| decisions.push(decision));
            admitted += decisions.iter().map(|decision| u64::from(decision.is_allowed())).sum::<u64>();
        }
        admitted
    }
}

struct OursDirect(RateLimiter<Direct, DefaultClock>);

impl Subject<u64> for OursDirect {
    #[inline(always)]
    fn check(&self, _: &u64) -> bool {
        self.0.check().is_allowed()
    }
}

struct OursStriped(RateLimiter<Striped, DefaultClock>);

impl Subject<u64> for OursStriped {
    #[inline(always)]
    fn check(&self, _: &u64) -> bool {
        self.0.check().is_allowed()
    }
}

pub(crate) const KEYED: &str = "tollgate keyed";
pub(crate) const DIRECT: &str = "tollgate direct";
pub(crate) const STRIPED: &str = "tollgate striped";

pub(crate) fn keyed() -> Vec<Recipe<u64>> {
    vec![
        Recipe {
            name: KEYED,
            counts: "check, GCRA, ahash, counter: the defaults",
            build: |setup| Box::new(OursKeyed::<u64, _>(RateLimiter::builder(gcra(setup.expect)).keyed())),
        },
        Recipe {
            name: "tollgate keyed, OS clock",
            counts: "the same with StdClock (Instant::now)",
            build: |setup| {
                let builder = RateLimiter::builder(gcra(setup.expect)).clock(StdClock::new());
                Box::new(OursKeyed::<u64, _>(builder.keyed()))
            },
        },
        Recipe {
            name: "tollgate keyed, batches of 16",
            counts: "check_each: one clock read for 16 checks; a time a check, all work included",
            build: |setup| Box::new(Batched(RateLimiter::builder(gcra(setup.expect)).keyed())),
        },
    ]
}

pub(crate) fn strings() -> Vec<Recipe<String>> {
    vec![Recipe {
        name: KEYED,
        counts: "check on &str for String keys, GCRA, ahash, default clock",
        build: |setup| Box::new(OursKeyed::<String, _>(RateLimiter::builder(gcra(setup.expect)).keyed())),
    }]
}

pub(crate) fn addresses() -> Vec<Recipe<IpAddr>> {
    vec![Recipe {
        name: KEYED,
        counts: "check, GCRA, ahash, default clock",
        build: |setup| Box::new(OursKeyed::<IpAddr, _>(RateLimiter::builder(gcra(setup.expect)).keyed())),
    }]
}

/// The row for tables of new keys.
pub(crate) fn alone() -> Vec<Recipe<u64>> {
    keyed().into_iter().filter(|recipe| recipe.name == KEYED).collect()
}

/// The row of a limiter at its cap.
pub(crate) fn capped() -> Vec<Recipe<u64>> {
    vec![Recipe {
        name: "tollgate keyed, capped",
        counts: "check with a cap of as many keys as the compact rows have slots: each new key forgets another",
        build: |setup| Box::new(OursKeyed::<u64, DefaultClock>::capped(setup)),
    }]
}

pub(crate) fn victims() -> Vec<Victim> {
    vec![Victim {
        name: "tollgate keyed, capped",
        counts: "check with a cap of 2^18 keys; beyond it forgets the key that is soonest idle",
        build: |setup| Box::new(OursKeyed::<u64, DefaultClock>::capped(setup)),
        unbounded: false,
    }]
}

pub(crate) fn one_word() -> Vec<Recipe<u64>> {
    vec![
        Recipe {
            name: DIRECT,
            counts: "check of a direct limiter, GCRA, default clock",
            build: |setup| Box::new(OursDirect(RateLimiter::direct(gcra(setup.expect)))),
        },
        Recipe {
            name: STRIPED,
            counts: "the same in leases, a stripe for each processor: the defaults",
            build: |setup| Box::new(OursStriped(RateLimiter::builder(gcra(setup.expect)).striped())),
        },
        Recipe {
            name: "tollgate keyed, one key",
            counts: "check of one and the same key",
            build: |setup| Box::new(OursKeyed::<u64, _>(RateLimiter::builder(gcra(setup.expect)).keyed())),
        },
    ]
}
