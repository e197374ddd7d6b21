//! Limiters of all stores behind one interface for many threads, with all ways to pass a time and a key to a check.

use super::{Hand, MS};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tollgate::{
    Algorithm, Capacity, Clock, Compact, CompactAlgorithm, Decision, Direct, Keyed, Overflow, RateLimiter,
    Sketch, WhenFull, WindowAlgorithm, leases::LeaseAlgorithm, leases::Striped, stores::Gauges,
};
use tollgate_testing::at;
use tollgate_testing::compact::{Layout, Seeded};
use tollgate_testing::kinds::Kind;
use tollgate_testing::oracle::Spec;

/// Any clock.
pub type Time = Arc<dyn Clock + Send + Sync>;

pub fn now_of(time: &Time) -> u64 {
    time.now().as_nanos()
}

/// A limiter. A limiter without keys treats all keys as one.
pub trait Gate: Debug + Send + Sync {
    /// Checks in one of the available ways. Ways that take a time use this one; the others read the clock.
    fn ask(&self, way: u64, key: u32, cost: u64, now: u64) -> bool;
    fn peek(&self, key: u32, cost: u64, now: u64) -> Decision;
    /// Returns the statistics of the store, if it is compact.
    fn gauges(&self) -> Option<Gauges> {
        None
    }
    /// Returns the number of keys in the store, if it knows them.
    fn held(&self) -> Option<usize> {
        None
    }
    /// Returns the memory of a store of fixed size.
    fn bytes(&self) -> Option<usize> {
        None
    }
    /// Returns a key's location in a compact store. Keys with the same number in one bucket are taken for each other.
    fn fingerprint(&self, _key: u32) -> u64 {
        0
    }
    /// Runs the maintenance calls that a limiter in use gets now and then. No check that still runs began before
    /// `oldest`.
    fn tidy(&self, _oldest: u64) {}
}

/// A kind of store, and its size.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Store {
    Direct,
    Striped,
    Keyed(Option<(usize, WhenFull)>),
    Compact(Overflow, usize),
    Sketch(usize),
}

/// A limiter, and the facts that the judge needs.
pub struct Built {
    pub gate: Box<dyn Gate>,
    pub layout: Option<Layout>,
    /// An interval counts as longer by this time: a tick, or the life of a lease.
    pub more_ns: u128,
    /// Whether it forgets idle keys.
    pub forgets: bool,
}

/// Two lease lives: the default, and one that ends between most checks.
const LIVES_NS: [u64; 2] = [10 * MS, 100_000];

/// Returns the limiter, if this store can hold this algorithm with this quota.
pub fn build(kind: Kind, spec: Spec, store: Store, time: Time, seed: u64) -> Option<Built> {
    let hasher = Seeded(seed);
    let plain = |gate: Box<dyn Gate>, forgets| Built { gate, layout: None, more_ns: 0, forgets };
    match store {
        Store::Direct => with_algorithm!(kind, spec, algorithm => {
            plain(Box::new(RateLimiter::builder(algorithm).clock(time).direct()), false)
        }),
        Store::Striped => with_leasable!(kind, spec, algorithm => {
            let life = LIVES_NS[usize::from(seed.is_multiple_of(3))];
            let builder = RateLimiter::builder(algorithm).clock(time).lease_life(Duration::from_nanos(life));
            let limiter = builder.stripes(1 << (seed % 5)).striped();
            Built { gate: Box::new(limiter), layout: None, more_ns: life.into(), forgets: false }
        }),
        Store::Keyed(cap) => with_algorithm!(kind, spec, algorithm => {
            let builder = RateLimiter::builder(algorithm).clock(time).hasher(hasher);
            let limiter = match cap {
                Some((max, when_full)) => builder.max_keys(max, when_full).keyed::<u32>(),
                None => builder.keyed::<u32>(),
            };
            plain(Box::new(limiter), true)
        }),
        Store::Compact(overflow, bytes) => with_compact!(kind, spec, algorithm => {
            let builder = RateLimiter::builder(algorithm).clock(time).hasher(hasher).overflow(overflow);
            builder.capacity(Capacity::memory(bytes)).compact().ok().map(|limiter| {
                let layout = Layout::read(&limiter.snapshot());
                Built { gate: Box::new(limiter), layout: Some(layout), more_ns: layout.tick_ns(), forgets: true }
            })
        })
        .flatten(),
        Store::Sketch(bytes) => with_windows!(kind, spec, algorithm => {
            let builder = RateLimiter::builder(algorithm).clock(time).hasher(hasher);
            builder.capacity(Capacity::memory(bytes)).sketch().ok().map(|limiter| plain(Box::new(limiter), false))
        })
        .flatten(),
    }
}

/// One check of a thread: the thread checks in any way, passes the answer to `told`, and notes an admission. Returns
/// the answer that `told` gave.
pub fn ask(hand: &mut Hand<'_>, gate: &dyn Gate, time: &Time, (key, cost, units): (u32, u64, u64)) -> bool {
    let before = now_of(time);
    let way = hand.random.next();
    let allowed = gate.ask(way, key, cost, before);
    let after = now_of(time);
    let told = hand.told(allowed);
    if told && units > 0 {
        hand.note(key, units, before, after.max(before));
    }
    told
}

impl<A: Algorithm> Gate for RateLimiter<Direct<A>, Time> {
    fn ask(&self, way: u64, _key: u32, cost: u64, now: u64) -> bool {
        match way % 3 {
            0 => self.check_n(cost).is_allowed(),
            1 => {
                let mut decisions = Vec::new();
                self.check_each([cost], |decision| decisions.push(decision));
                decisions[0].is_allowed()
            }
            _ => self.at(at(now)).check_n(cost).is_allowed(),
        }
    }

    fn peek(&self, _key: u32, cost: u64, now: u64) -> Decision {
        self.at(at(now)).peek_n(cost)
    }
}

impl<A: LeaseAlgorithm> Gate for RateLimiter<Striped<A>, Time> {
    fn ask(&self, way: u64, _key: u32, cost: u64, now: u64) -> bool {
        match way % 3 {
            0 => self.check_n(cost).is_allowed(),
            1 => self.leases().check_on(usize::try_from(way >> 60).expect("few"), cost, at(now)).is_allowed(),
            _ => self.at(at(now)).check_n(cost).is_allowed(),
        }
    }

    fn peek(&self, _key: u32, cost: u64, now: u64) -> Decision {
        self.at(at(now)).peek_n(cost)
    }
}

impl<A: Algorithm> Gate for RateLimiter<Keyed<u32, A, Seeded>, Time> {
    fn ask(&self, way: u64, key: u32, cost: u64, now: u64) -> bool {
        match way % 3 {
            0 => self.check_n(&key, cost).is_allowed(),
            1 if cost == 1 => {
                let mut decisions = Vec::new();
                self.check_each([&key].into_iter().map(|key| (key, 1)), |decision| decisions.push(decision));
                decisions[0].is_allowed()
            }
            _ => self.at(at(now)).check_n(&key, cost).is_allowed(),
        }
    }

    fn peek(&self, key: u32, cost: u64, now: u64) -> Decision {
        self.at(at(now)).peek_n(&key, cost)
    }

    fn held(&self) -> Option<usize> {
        Some(self.len())
    }

    fn tidy(&self, oldest: u64) {
        self.at(at(oldest)).retain_active();
    }
}

/// A check of a limiter that hashes keys.
macro_rules! ask_hashed {
    ($self:ident, $way:ident, $key:ident, $cost:ident, $now:ident) => {
        match $way % 5 {
            0 => $self.check_n(&$key, $cost).is_allowed(),
            1 => $self.check_hash($self.hash(&$key), $cost).is_allowed(),
            2 => $self.at(at($now)).check_hash($self.hash(&$key), $cost).is_allowed(),
            3 => {
                let mut allowed = false;
                $self.check_each([(&$key, $cost)], |decision| allowed = decision.is_allowed());
                allowed
            }
            _ => $self.at(at($now)).check_n(&$key, $cost).is_allowed(),
        }
    };
}

impl<A: CompactAlgorithm> Gate for RateLimiter<Compact<A, Seeded>, Time> {
    fn ask(&self, way: u64, key: u32, cost: u64, now: u64) -> bool {
        ask_hashed!(self, way, key, cost, now)
    }

    fn peek(&self, key: u32, cost: u64, now: u64) -> Decision {
        self.at(at(now)).peek_n(&key, cost)
    }

    fn gauges(&self) -> Option<Gauges> {
        Some(RateLimiter::<Compact<_, _>, _>::gauges(self))
    }

    fn bytes(&self) -> Option<usize> {
        Some(self.state_bytes())
    }

    fn fingerprint(&self, key: u32) -> u64 {
        // The lower bits of the hash; the upper bits choose the bucket.
        self.hash(&key) & 0xFF_FFFF
    }

    fn tidy(&self, _oldest: u64) {
        let _ = (self.fill(), self.live_slots());
    }
}

impl<A: WindowAlgorithm> Gate for RateLimiter<Sketch<A, Seeded>, Time> {
    fn ask(&self, way: u64, key: u32, cost: u64, now: u64) -> bool {
        ask_hashed!(self, way, key, cost, now)
    }

    fn peek(&self, key: u32, cost: u64, now: u64) -> Decision {
        self.at(at(now)).peek_n(&key, cost)
    }

    fn bytes(&self) -> Option<usize> {
        Some(self.state_bytes())
    }

    fn tidy(&self, _oldest: u64) {
        let _ = self.saturation();
    }
}
