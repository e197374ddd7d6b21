//! What counts for a rule, and how a rule that this process counts is charged.
//!
//! ```text
//! Rule, and the Counter that it had before ──prepare──► Prepared ──finish──► Counter
//!                                             stores are made   │  from the moment of the change on, a counter of this process
//!                                                               ▼  takes over what keys owe in the one before
//! ```

use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::SlidingLog;
use crate::base::check_time::CheckTime;
use crate::base::clock::saturating_nanos;
use crate::base::decision::{Decision, Facts, Outcome};
use crate::base::quota::{Quota, QuotaError};
use crate::edge::rules::counting::{AnyStore, Hasher, NoCounter, Servers, SharedLimiter, StoreKind};
use crate::edge::rules::rule::{self, Algorithm, Charging, Limit, MEMORY, Rule};
use crate::store::migrate::{Carry, Generation};
use crate::store::op::{Operation, Store};

/// Keys of a keyed store that was taken because no compact one holds the limit.
const MAX_KEYS: usize = 100_000;

/// What counts for a rule.
#[derive(Debug)]
pub(super) enum Counter {
    /// Nothing: the rule has no limit. The last local counter is kept for the load in which the rule has one again.
    Unlimited(Option<LocalCounter>),
    /// Nothing: the limit is 0.
    Blocked {
        period: Duration,
        last: Option<LocalCounter>,
    },
    Local(LocalCounter),
    Shared(SharedCounter),
}

/// A limiter that other processes share.
#[derive(Clone, Debug)]
pub(super) struct SharedCounter {
    pub(super) limiter: Arc<dyn SharedLimiter>,
    made_of: Parameters,
}

/// A store of this process.
#[derive(Clone, Debug)]
pub(super) struct LocalCounter {
    pub(super) generation: Arc<Generation<AnyStore>>,
    /// The units that the store has room for beyond the most that may be in use. A rule that counts first needs one, to see that its limit
    /// is exceeded. The others hold what clients may owe from a load whose limit was higher.
    pub(super) headroom: u64,
    /// Whether a charge can be taken back.
    pub(super) undoes: bool,
    /// Whether it is the first, which takes nothing over.
    is_first: bool,
    made_of: Parameters,
}

/// All that a counter is made of. A rule with the same parameters keeps its counter.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) struct Parameters {
    quota: Quota,
    /// The most that may be in use: the limit of windows, else the burst; 0 of a limit of nothing, which has no quota.
    most: u64,
    algorithm: Algorithm,
    store: Option<rule::Store>,
    charging: Charging,
    /// By values with their keys, and by keys alone.
    counted_by: [u32; 2],
}

/// A counter whose store is made, and not in force yet.
pub(super) enum Prepared {
    Done(Counter),
    /// In force from the moment of the change on.
    After {
        last: Arc<Generation<AnyStore>>,
        store: AnyStore,
        headroom: u64,
        made_of: Parameters,
    },
}

impl Prepared {
    pub(super) fn finish(self, when: CheckTime) -> Result<Counter, NoCounter> {
        Ok(match self {
            Self::Done(counter) => counter,
            Self::After { last, store, headroom, made_of } => {
                let generation = last.next(store, Carry::Used, when)?;
                Counter::Local(LocalCounter::new(generation, false, headroom, made_of))
            }
        })
    }
}

impl Counter {
    pub(super) fn local(&self) -> Option<&LocalCounter> {
        if let Self::Local(local) = self { Some(local) } else { None }
    }

    /// Whether both count in one place.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Local(one), Self::Local(other)) => Arc::ptr_eq(&one.generation, &other.generation),
            (Self::Shared(one), Self::Shared(other)) => Arc::ptr_eq(&one.limiter, &other.limiter),
            _ => false,
        }
    }

    /// The counter of this process, whether or not it is in force.
    fn last_local(&self) -> Option<&LocalCounter> {
        match self {
            Self::Local(local) => Some(local),
            Self::Unlimited(last) | Self::Blocked { last, .. } => last.as_ref(),
            Self::Shared(_) => None,
        }
    }

    /// Prepares a rule's counter. The last counter of the rule's identity stays, if its parameters do.
    pub(super) fn prepare(
        rule: &Rule,
        charging: Charging,
        last: Option<&Self>,
        now_ns: u64,
        (hasher, servers): (&Hasher, &Servers),
    ) -> Result<Prepared, NoCounter> {
        let last_shared = if let Some(Self::Shared(shared)) = last { Some(shared) } else { None };
        let counted_by = [rule.counted_by, rule.counted_by_key];
        let last = last.and_then(Self::last_local).filter(|last| last.made_of.counted_by == counted_by);
        let (quota, most, algorithm, store) = match rule.limit {
            Limit::Quota { quota, algorithm, store } => (quota, algorithm.most(&quota), algorithm, store),
            Limit::Blocked { period } => match Quota::try_new(1, period) {
                // Whether any was refused is counted, for looks.
                Ok(quota) if charging == Charging::CountFirst => (quota, 0, Algorithm::FixedWindow, None),
                _ => return Ok(Prepared::Done(Self::Blocked { period, last: last.cloned() })),
            },
            Limit::Unlimited => return Ok(Prepared::Done(Self::Unlimited(last.cloned()))),
        };
        let store = store.filter(|store| !matches!(store, rule::Store::Redis(_)) || !servers.alone);
        let made_of = Parameters { quota, most, algorithm, store, charging, counted_by };
        if let Some(rule::Store::Redis(how)) = store {
            if let Some(kept) = last_shared.filter(|last| last.made_of == made_of) {
                return Ok(Prepared::Done(Self::Shared(kept.clone())));
            }
            let limiter = servers.limiter(&rule.identity, quota, algorithm, how, last_shared.is_some())?;
            return Ok(Prepared::Done(Self::Shared(SharedCounter { limiter, made_of })));
        }
        if let Some(kept) = last.filter(|last| last.made_of == made_of) {
            return Ok(Prepared::Done(Self::Local(kept.clone())));
        }
        let first = |store: AnyStore, headroom: u64| {
            let generation = Generation::first(store);
            Prepared::Done(Self::Local(LocalCounter::new(generation, true, headroom, made_of)))
        };
        let make = |headroom: u64| made_of.store(rule, headroom, hasher);
        // One unit, by which a rule that counts first tells that its limit is exceeded.
        let least = u64::from(charging == Charging::CountFirst);
        let Some(last) = last else { return Ok(first(make(least)?, least)) };
        let before = last.generation.store();
        let algorithm_now = algorithm.with_quota(made_of.with_headroom(least)?)?;
        if let Some(same) = before.with_limit_of(&algorithm_now).filter(|_| last.made_of.store == store) {
            return Ok(first(same, least));
        }
        // What is used stays used, also beyond the new limit; with room for that in the store, windows forget it at their end as they
        // forget all.
        let unpaid = if last.generation.is_taking_over(now_ns) { last.headroom } else { 0 };
        let owed = last.made_of.most.saturating_add(unpaid);
        let headroom = least.max(owed.min(most_room(algorithm, most)).saturating_sub(most));
        let (store, headroom) = match make(headroom) {
            Ok(store) => (store, headroom),
            Err(_) => (make(least)?, least),
        };
        if before.migrates() && store.migrates() {
            return Ok(Prepared::After { last: Arc::clone(&last.generation), store, headroom, made_of });
        }
        Ok(first(store, headroom))
    }
}

impl Parameters {
    /// A quota with the headroom: added to the limit for windows, and else to the burst.
    fn with_headroom(&self, headroom: u64) -> Result<Quota, QuotaError> {
        let room = self.most.saturating_add(headroom);
        if self.algorithm.has_burst() {
            self.quota.try_burst(room)
        } else {
            Quota::try_new(room, self.quota.period())
        }
    }

    fn store(&self, rule: &Rule, headroom: u64, hasher: &Hasher) -> Result<AnyStore, NoCounter> {
        let algorithm = self.algorithm.with_quota(self.with_headroom(headroom)?)?;
        let kind = match self.store {
            _ if rule.has_one_counter() => StoreKind::Direct,
            Some(rule::Store::Compact(capacity)) => StoreKind::Compact(capacity),
            Some(rule::Store::Keyed { max_keys }) => StoreKind::Keyed(max_keys),
            Some(rule::Store::Sketch(capacity)) => StoreKind::Sketch(capacity),
            // A shared rule has no store here.
            None | Some(rule::Store::Redis(_)) => {
                let compact = AnyStore::new(StoreKind::Compact(MEMORY), algorithm, hasher);
                return compact
                    .or_else(|_| AnyStore::new(StoreKind::Keyed(Some(MAX_KEYS)), algorithm, hasher));
            }
        };
        AnyStore::new(kind, algorithm, hasher)
    }
}

/// The most units that a store of this limit has room for, when clients may have used more under another one. A log takes memory
/// for each of them, for every key, for as long as the rule stays.
fn most_room(algorithm: Algorithm, limit: u64) -> u64 {
    match algorithm {
        Algorithm::SlidingLog => limit.saturating_mul(4).clamp(1_024, SlidingLog::MAX_LIMIT),
        _ => u64::MAX,
    }
}

/// The answer of a limit of nothing.
pub(super) fn blocked(period: Duration, cost: u64, now_ns: u64) -> Decision {
    let outcome = if cost == 0 { Outcome::Allowed } else { Outcome::Never };
    let reset_ns = match saturating_nanos(period) {
        0 => 0,
        period_ns => period_ns - now_ns % period_ns,
    };
    let facts = Facts::Plain { remaining: 0, retry_ns: reset_ns, reset_ns, delay_ns: 0 };
    Decision::new(outcome, cost, 0, now_ns, facts).uncharged()
}

impl LocalCounter {
    fn new(generation: Generation<AnyStore>, is_first: bool, headroom: u64, made_of: Parameters) -> Self {
        let undoes = generation.store().can_refund();
        Self { generation: Arc::new(generation), headroom, undoes, is_first, made_of }
    }

    /// Whether keys can still owe what was carried over.
    #[inline]
    pub(super) fn is_taking_over(&self, when: CheckTime) -> bool {
        !self.is_first && self.generation.is_taking_over(when.ns())
    }

    /// Charges a request, if that leaves the headroom free.
    #[inline]
    pub(super) fn charge(&self, key: &str, cost: u64, headroom: u64, when: CheckTime) -> Decision {
        if cost > 0 && headroom == 0 && !self.is_taking_over(when) {
            return self.generation.store().check(key, when, cost);
        }
        self.charge_keeping(key, cost, headroom, when)
    }

    #[cold]
    fn charge_keeping(&self, key: &str, cost: u64, headroom: u64, when: CheckTime) -> Decision {
        let generation = &self.generation;
        if cost == 0 {
            return self.look(key, 0, headroom, when);
        }
        if headroom == 0 {
            return generation.apply(key, Operation::Check, when, cost);
        }
        let decision = generation.apply(key, Operation::CheckKeeping { headroom }, when, cost);
        decision.judged(decision.outcome(), cost, headroom, || self.next(key, headroom, when))
    }

    /// The decision that a charge would be; charges nothing.
    #[inline]
    pub(super) fn look(&self, key: &str, cost: u64, headroom: u64, when: CheckTime) -> Decision {
        if headroom == 0 && !self.is_taking_over(when) {
            return self.generation.store().peek(key, when, cost).for_cost(cost);
        }
        self.look_keeping(key, cost, headroom, when)
    }

    #[cold]
    fn look_keeping(&self, key: &str, cost: u64, headroom: u64, when: CheckTime) -> Decision {
        // A look for nothing is always allowed.
        let more = if cost == 0 { 0 } else { headroom };
        let decision = self.generation.peek(key, when, cost.saturating_add(more));
        decision.judged(decision.outcome(), cost, headroom, || self.next(key, headroom, when))
    }

    /// Whether there is room for one unit, and when.
    fn next(&self, key: &str, headroom: u64, when: CheckTime) -> Decision {
        self.generation.peek(key, when, headroom.saturating_add(1))
    }

    /// Counts a request first and judges it afterwards, in a store that has room for one unit more than may be in use: whether
    /// that is taken says that the limit is exceeded, by however much. A request that brings its limit along is counted whole (`whole`), since
    /// its store has room for any. `elsewhere` says how many units another counter of the same requests holds.
    pub(super) fn count(
        &self,
        key: &str,
        whole: bool,
        cost: u64,
        headroom: u64,
        when: CheckTime,
        elsewhere: impl FnOnce() -> u64,
    ) -> CountedFirst {
        let generation = &self.generation;
        let operation = match whole {
            true => Operation::Force,
            // All but one unit of the headroom is for debts from before.
            false => Operation::TakeKeeping { headroom: headroom.saturating_sub(1) },
        };
        let taken = match cost {
            0 => generation.peek(key, when, 0),
            _ => generation.apply(key, operation, when, cost),
        };
        let charged = taken.charged();
        let elsewhere = elsewhere();
        let is_over = taken.remaining() < headroom.saturating_add(elsewhere) || (cost > 0 && charged < cost);
        let outcome = match is_over {
            false => Outcome::Allowed,
            true if cost > taken.limit().saturating_sub(headroom) => Outcome::Never,
            true => Outcome::Denied,
        };
        let judged = match outcome {
            // When there is room for the request and the headroom.
            Outcome::Denied => generation.peek(key, when, cost.saturating_add(headroom)),
            _ => taken,
        };
        let in_use = taken.limit().saturating_sub(taken.remaining());
        let before = in_use.saturating_sub(charged).saturating_add(elsewhere);
        let decision = judged.judged(outcome, cost, headroom, || self.next(key, headroom, when));
        CountedFirst { decision: decision.beside(elsewhere), charged, before }
    }
}

/// What came of counting a request first.
pub(super) struct CountedFirst {
    pub(super) decision: Decision,
    pub(super) charged: u64,
    /// The units that were in use before.
    pub(super) before: u64,
}
