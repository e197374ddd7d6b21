//! The peers: rate limiters of other crates. Each row makes the call that the crate's documentation recommends for the
//! key type, with the crate's defaults unless the row's name states another setting.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use governor::clock::{Clock, MonotonicClock, QuantaClock, Reference};
use governor::state::keyed::DashMapStateStore;
use governor::state::{InMemoryState, NotKeyed};
use quota::{QuotaPolicy, QuotaPool, RefillRate};

use crate::flood::Victim;
use crate::floor;
use crate::subject::{Expect, Recipe, Setup, Subject};
use crate::support::length;

fn governor_quota(expect: Expect) -> governor::Quota {
    let terms = expect.terms();
    let burst = NonZeroU32::new(terms.burst).expect("not zero");
    governor::Quota::with_period(terms.interval()).expect("not zero").allow_burst(burst)
}

type GovernorState<K, H> = DashMapStateStore<K, H>;
type GovernorNoOp<C> = governor::middleware::NoOpMiddleware<<C as Clock>::Instant>;

struct Governor<K, H, C>(governor::RateLimiter<K, GovernorState<K, H>, C, GovernorNoOp<C>>)
where
    K: std::hash::Hash + Eq + Clone,
    H: std::hash::BuildHasher + Clone,
    C: Clock;

impl<K, H, C> Governor<K, H, C>
where
    K: std::hash::Hash + Eq + Clone,
    H: std::hash::BuildHasher + Default + Clone,
    C: Clock + Default,
{
    fn new(setup: Setup) -> Self {
        let store = GovernorState::with_hasher(H::default());
        Self(governor::RateLimiter::new(governor_quota(setup.expect), store, C::default()))
    }
}

impl<K, H, C> Subject<K> for Governor<K, H, C>
where
    K: std::hash::Hash + Eq + Clone + Sync + Send,
    H: std::hash::BuildHasher + Clone + Sync + Send,
    C: Clock + Sync,
    C::Instant: Reference + Sync,
{
    #[inline(always)]
    fn check(&self, key: &K) -> bool {
        self.0.check_key(key).is_ok()
    }
}

struct GovernorDirect(governor::RateLimiter<NotKeyed, InMemoryState, QuantaClock>);

impl Subject<u64> for GovernorDirect {
    #[inline(always)]
    fn check(&self, _: &u64) -> bool {
        self.0.check().is_ok()
    }
}

fn rate_net_builder(setup: Setup) -> rate_net::Builder {
    // The default cap is 2^20 keys; rows with more keys need a larger one.
    let keys = length(setup.population).max(1 << 19) * 2;
    let builder = rate_net::RateLimiter::builder().eviction(rate_net::Eviction::capacity(keys));
    let terms = setup.expect.terms();
    builder.quota(terms.rate, terms.period).burst(terms.burst)
}

struct RateNet(rate_net::RateLimiter);

impl RateNet {
    fn new(setup: Setup) -> Self {
        Self(rate_net_builder(setup).try_build().expect("valid settings"))
    }
}

impl Subject<u64> for RateNet {
    #[inline(always)]
    fn check(&self, key: &u64) -> bool {
        self.0.check(*key).is_allow()
    }
}

impl Subject<String> for RateNet {
    #[inline(always)]
    fn check(&self, key: &String) -> bool {
        self.0.check_bytes(key.as_str()).is_allow()
    }
}

struct RateNetDirect(rate_net::DirectLimiter);

impl Subject<u64> for RateNetDirect {
    #[inline(always)]
    fn check(&self, _: &u64) -> bool {
        self.0.check().is_allow()
    }
}

struct Ratelimit(ratelimit::Ratelimiter);

impl Ratelimit {
    fn new(setup: Setup) -> Self {
        let terms = setup.expect.terms();
        let builder = ratelimit::Ratelimiter::builder(u64::from(terms.rate))
            .period(terms.period)
            .max_tokens(u64::from(terms.burst))
            .initial_available(u64::from(terms.burst));
        Self(builder.build().expect("valid settings"))
    }
}

impl Subject<u64> for Ratelimit {
    #[inline(always)]
    fn check(&self, _: &u64) -> bool {
        self.0.try_wait().is_ok()
    }
}

struct Quota<K: std::hash::Hash + Eq>(QuotaPool<K>);

impl<K: std::hash::Hash + Eq + Clone> Quota<K> {
    fn new(setup: Setup) -> Self {
        let terms = setup.expect.terms();
        let rate = RefillRate::per_sec(f64::from(terms.rate) / terms.period.as_secs_f64());
        let policy = QuotaPolicy::new().set_capacity(f64::from(terms.burst)).set_refill_rate(rate);
        Self(QuotaPool::with_key_type(policy, u64::from(terms.burst)))
    }
}

impl Subject<u64> for Quota<u64> {
    #[inline(always)]
    fn check(&self, key: &u64) -> bool {
        self.0.check(key, 1)
    }
}

impl Subject<String> for Quota<String> {
    #[inline(always)]
    fn check(&self, key: &String) -> bool {
        self.0.check(key.as_str(), 1)
    }
}

/// pingora-limits as a limiter, as its documentation shows: observe, then compare.
struct Pingora {
    rate: pingora_limits::rate::Rate,
    limit: isize,
}

impl Pingora {
    fn new(setup: Setup) -> Self {
        // In rows that deny, the window is an hour, so that no window ends during a row.
        let (window, limit) = match setup.expect {
            Expect::Denied => (setup.expect.terms().period, 1),
            Expect::Allowed
            | Expect::AllowedIdle
            | Expect::AllowedWord
            | Expect::Mostly
            | Expect::Spent
            | Expect::Denying(_) => (Duration::from_secs(1), isize::MAX / 2),
        };
        Self { rate: pingora_limits::rate::Rate::new(window), limit }
    }
}

impl Subject<u64> for Pingora {
    #[inline(always)]
    fn check(&self, key: &u64) -> bool {
        self.rate.observe(key, 1) <= self.limit
    }
}

impl Subject<String> for Pingora {
    #[inline(always)]
    fn check(&self, key: &String) -> bool {
        self.rate.observe(key, 1) <= self.limit
    }
}

/// What a user would write otherwise: a concurrent map of words with the GCRA of the [floor](crate::floor). It never forgets a
/// key.
struct HashIndex {
    words: scc::HashIndex<u64, AtomicU64, ahash::RandomState>,
    clock: floor::Clock,
    gcra: floor::Gcra,
}

impl HashIndex {
    fn new(setup: Setup) -> Self {
        Self {
            words: scc::HashIndex::default(),
            clock: floor::Clock::new(),
            gcra: floor::Gcra::new(setup.expect),
        }
    }
}

impl Subject<u64> for HashIndex {
    #[inline(always)]
    fn check(&self, key: &u64) -> bool {
        let now = self.clock.now();
        let known = |_: &u64, word: &AtomicU64| self.gcra.check(word, now);
        if let Some(admitted) = self.words.peek_with(key, known) {
            return admitted;
        }
        let word = AtomicU64::new(0);
        let first = self.gcra.check(&word, now);
        match self.words.insert_sync(*key, word) {
            Ok(()) => first,
            // Another thread inserted the key first.
            Err(_) => self.words.peek_with(key, known).unwrap_or(first),
        }
    }
}

pub(crate) const HASH_INDEX: &str = "scc HashIndex of words";
pub(crate) const GOVERNOR: &str = "governor + ahash";
pub(crate) const PINGORA: &str = "pingora-limits Rate";
pub(crate) const GOVERNOR_DIRECT: &str = "governor direct";

pub(crate) fn keyed() -> Vec<Recipe<u64>> {
    vec![
        Recipe {
            name: GOVERNOR,
            counts: "check_key on its DashMap with ahash, quanta clock",
            build: |setup| Box::new(Governor::<u64, ahash::RandomState, QuantaClock>::new(setup)),
        },
        Recipe {
            name: HASH_INDEX,
            counts: "quanta now + peek_with of a map of atomic words with ahash + the floor's GCRA, as a user would write it",
            build: |setup| Box::new(HashIndex::new(setup)),
        },
        Recipe {
            name: "governor",
            counts: "check_key on its DashMap with its default hasher (SipHash), quanta clock",
            build: |setup| Box::new(Governor::<u64, std::hash::RandomState, QuantaClock>::new(setup)),
        },
        Recipe {
            name: "governor + ahash, OS clock",
            counts: "check_key with ahash and MonotonicClock (Instant::now)",
            build: |setup| Box::new(Governor::<u64, ahash::RandomState, MonotonicClock>::new(setup)),
        },
        Recipe {
            name: "rate-net",
            counts: "check on a u64 key, token bucket, its OS clock; cap above the number of keys",
            build: |setup| Box::new(RateNet::new(setup)),
        },
        Recipe {
            name: "quota",
            counts: "check on a borrowed key, continuous GCRA, default slot-cache, quanta clock",
            build: |setup| Box::new(Quota::<u64>::new(setup)),
        },
        Recipe {
            name: PINGORA,
            counts: "observe and compare on 4 x 1024 counters whatever the number of keys (an estimate), Instant::now",
            build: |setup| Box::new(Pingora::new(setup)),
        },
    ]
}

/// The rows for a table of new keys among others: each keeps all keys.
pub(crate) fn alone() -> Vec<Recipe<u64>> {
    keyed().into_iter().filter(|recipe| [GOVERNOR, HASH_INDEX].contains(&recipe.name)).collect()
}

pub(crate) fn strings() -> Vec<Recipe<String>> {
    vec![
        Recipe {
            name: GOVERNOR,
            counts: "check_key with ahash; takes &String only, which is given to it ready made",
            build: |setup| Box::new(Governor::<String, ahash::RandomState, QuantaClock>::new(setup)),
        },
        Recipe {
            name: "governor",
            counts: "check_key with its default hasher; takes &String only, which is given to it ready made",
            build: |setup| Box::new(Governor::<String, std::hash::RandomState, QuantaClock>::new(setup)),
        },
        Recipe {
            name: "rate-net",
            counts: "check_bytes on a borrowed key",
            build: |setup| Box::new(RateNet::new(setup)),
        },
        Recipe {
            name: "quota",
            counts: "check on &str",
            build: |setup| Box::new(Quota::<String>::new(setup)),
        },
        Recipe {
            name: PINGORA,
            counts: "observe and compare on 4 x 1024 counters",
            build: |setup| Box::new(Pingora::new(setup)),
        },
    ]
}

pub(crate) fn addresses() -> Vec<Recipe<IpAddr>> {
    vec![
        Recipe {
            name: GOVERNOR,
            counts: "check_key on its DashMap with ahash, quanta clock",
            build: |setup| Box::new(Governor::<IpAddr, ahash::RandomState, QuantaClock>::new(setup)),
        },
        Recipe {
            name: "governor",
            counts: "check_key on its DashMap with its default hasher (SipHash), quanta clock",
            build: |setup| Box::new(Governor::<IpAddr, std::hash::RandomState, QuantaClock>::new(setup)),
        },
    ]
}

pub(crate) fn victims() -> Vec<Victim> {
    vec![
        Victim {
            name: GOVERNOR,
            counts: "check_key on its DashMap with ahash, which grows; retain_recent is never called",
            build: |setup| Box::new(Governor::<u64, ahash::RandomState, QuantaClock>::new(setup)),
            unbounded: false,
        },
        Victim {
            name: "rate-net",
            counts: "check on a u64 key; at its default cap of 2^20 keys it evicts",
            build: |setup| Box::new(RateNet::new(setup)),
            unbounded: false,
        },
    ]
}

pub(crate) fn one_word() -> Vec<Recipe<u64>> {
    vec![
        Recipe {
            name: GOVERNOR_DIRECT,
            counts: "check of a direct limiter, quanta clock",
            build: |setup| {
                Box::new(GovernorDirect(governor::RateLimiter::direct_with_clock(
                    governor_quota(setup.expect),
                    QuantaClock::default(),
                )))
            },
        },
        Recipe {
            name: "ratelimit",
            counts: "try_wait, its OS clock",
            build: |setup| Box::new(Ratelimit::new(setup)),
        },
        Recipe {
            name: "rate-net direct",
            counts: "check of a DirectLimiter, its OS clock",
            build: |setup| {
                Box::new(RateNetDirect(rate_net_builder(setup).try_build_direct().expect("valid settings")))
            },
        },
        Recipe {
            name: "governor + ahash, one key",
            counts: "check_key of one and the same key",
            build: |setup| Box::new(Governor::<u64, ahash::RandomState, QuantaClock>::new(setup)),
        },
        Recipe {
            name: "quota, one key",
            counts: "check of one and the same key",
            build: |setup| Box::new(Quota::<u64>::new(setup)),
        },
    ]
}
