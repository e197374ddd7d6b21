//! One interface to every limiter under test.

use super::kinds::Kind;
use super::oracle::{Spec, Verdict};
use std::fmt::Debug;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::time::Duration;
use tollgate::{Algorithm, Clock, Decision, Direct, Keyed, ManualClock, Outcome, RateLimiter, Timestamp};

/// Builds a direct limiter, or returns `None` if the algorithm refuses the quota.
pub fn direct(kind: Kind, spec: Spec) -> Option<Box<dyn Subject>> {
    let clock = ManualClock::new(Timestamp::ZERO);
    with_algorithm!(kind, spec, algorithm => {
        Box::new(RateLimiter::builder(algorithm).clock(clock).direct()) as Box<dyn Subject>
    })
}

/// Builds a keyed limiter, or returns `None` if the algorithm refuses the quota.
pub fn keyed(kind: Kind, spec: Spec) -> Option<Box<dyn Subject>> {
    let clock = ManualClock::new(Timestamp::ZERO);
    with_algorithm!(kind, spec, algorithm => {
        Box::new(RateLimiter::builder(algorithm).clock(clock).keyed::<u32>()) as Box<dyn Subject>
    })
}

/// Builds a keyed limiter whose keys all have the same hash, so the search for a new key passes all others.
pub fn crowded(kind: Kind, spec: Spec) -> Option<Box<dyn Subject>> {
    let clock = ManualClock::new(Timestamp::ZERO);
    with_algorithm!(kind, spec, algorithm => {
        let hasher = BuildHasherDefault::<Constant>::default();
        Box::new(RateLimiter::builder(algorithm).clock(clock).hasher(hasher).keyed::<u32>()) as Box<dyn Subject>
    })
}

/// A hasher that gives every key the same hash.
#[derive(Default)]
pub struct Constant;

impl Hasher for Constant {
    fn finish(&self) -> u64 {
        0x5555_5555_5555_5555
    }
    fn write(&mut self, _: &[u8]) {}
}

/// A limiter under test, direct or keyed. A direct limiter has only key 0.
pub trait Subject: Debug + Send + Sync {
    fn check_at(&self, key: u32, cost: u64, now: u64) -> Decision;
    fn peek_at(&self, key: u32, cost: u64, now: u64) -> Decision;
    fn take_at(&self, key: u32, most: u64, now: u64) -> Decision;
    fn charge_unchecked_at(&self, key: u32, cost: u64, now: u64) -> Decision;
    fn reserve_at(&self, key: u32, cost: u64, wait: Duration, now: u64) -> Decision;
    fn refund_n_at(&self, key: u32, charge: &Decision, units: u64, now: u64) -> u64;
    fn check_oversized_at(&self, key: u32, cost: u64, now: u64) -> Decision;
    fn give_back_at(&self, key: u32, units: u64, now: u64) -> u64;
    fn settle_at(&self, key: u32, charge: &Decision, actual: u64, now: u64) -> Decision;
    /// Returns whether the limiter remembers the key's state.
    fn holds(&self, key: u32) -> bool;
}

/// A subject at a given time, as [`tollgate::At`].
#[derive(Copy, Clone, Debug)]
pub struct SubjectAt<'s> {
    subject: &'s dyn Subject,
    now: u64,
}

impl dyn Subject + '_ {
    pub fn at(&self, now: u64) -> SubjectAt<'_> {
        SubjectAt { subject: self, now }
    }
}

impl SubjectAt<'_> {
    pub fn check_n(self, key: u32, cost: u64) -> Decision {
        self.subject.check_at(key, cost, self.now)
    }

    pub fn check(self, key: u32) -> Decision {
        self.check_n(key, 1)
    }

    pub fn peek_n(self, key: u32, cost: u64) -> Decision {
        self.subject.peek_at(key, cost, self.now)
    }

    pub fn peek(self, key: u32) -> Decision {
        self.peek_n(key, 1)
    }

    pub fn take(self, key: u32, most: u64) -> Decision {
        self.subject.take_at(key, most, self.now)
    }

    pub fn charge_unchecked(self, key: u32, cost: u64) -> Decision {
        self.subject.charge_unchecked_at(key, cost, self.now)
    }

    pub fn reserve(self, key: u32, cost: u64, wait: Duration) -> Decision {
        self.subject.reserve_at(key, cost, wait, self.now)
    }

    pub fn refund_n(self, key: u32, charge: &Decision, units: u64) -> u64 {
        self.subject.refund_n_at(key, charge, units, self.now)
    }

    pub fn check_oversized(self, key: u32, cost: u64) -> Decision {
        self.subject.check_oversized_at(key, cost, self.now)
    }

    pub fn give_back(self, key: u32, units: u64) -> u64 {
        self.subject.give_back_at(key, units, self.now)
    }

    pub fn settle(self, key: u32, charge: &Decision, actual: u64) -> Decision {
        self.subject.settle_at(key, charge, actual, self.now)
    }
}

impl<A: Algorithm, C: Clock + Debug + Send + Sync> Subject for RateLimiter<Direct<A>, C> {
    verbs!(_key =>);

    fn holds(&self, _key: u32) -> bool {
        true
    }
}

impl<A, H, C> Subject for RateLimiter<Keyed<u32, A, H>, C>
where
    A: Algorithm,
    H: BuildHasher + Send + Sync,
    C: Clock + Debug + Send + Sync,
{
    verbs!(key => &key);

    fn holds(&self, key: u32) -> bool {
        self.contains(&key)
    }
}

/// Converts the decision's outcome to the oracle's type.
pub fn verdict(decision: &Decision) -> Verdict {
    match decision.outcome() {
        Outcome::Allowed => Verdict::Allowed,
        Outcome::Denied => Verdict::Denied,
        Outcome::Never => Verdict::Never,
    }
}
