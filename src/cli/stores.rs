//! The limiters of a replay, over any store, in the trace's own time.

mod sketch;

use std::any::TypeId;
use std::time::Duration;

pub use self::sketch::SketchFigures;
pub(super) use self::sketch::{SketchGates, fits_sketch};
use super::algorithms::Kind;
use super::input::Record;
use super::storage;
use crate::base::sync::AtomicU64;
use crate::store::op::{ManyKeys, Store};
use crate::{
    Algorithm, Compact, CompactAlgorithm, Decision, HashedStore, Keyed, ManualClock, Quota, QuotaError,
    RateLimiter, Timestamp, check_all_at,
};

type Hasher = ahash::RandomState;

type KeyedLimiter<A> = RateLimiter<Keyed<u32, A, Hasher>, ManualClock>;

/// Admitted, or denied.
pub(super) type Answer = Result<(), Refusal>;

/// Why a request was denied.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    /// The limiter that denied it, by its place; of several the one with the longest wait.
    pub(super) by: usize,
    /// That wait; `None` if no wait helps.
    pub(super) wait: Option<Duration>,
}

/// The limiters that a request must pass.
pub(super) trait Gates {
    /// Admits a request and charges it to every limiter, or denies it and charges none.
    fn decide(&mut self, record: &Record) -> Answer;

    /// Looks at the store, as of `now`: the bytes that its states take.
    fn look(&mut self, now: Timestamp) -> usize;
}

/// One limiter, over any store.
trait Gate {
    fn charge(&self, record: &Record) -> Decision;
}

impl<A: Algorithm> Gate for KeyedLimiter<A> {
    fn charge(&self, record: &Record) -> Decision {
        self.check_at(&record.key, record.cost, Timestamp::from_nanos(record.at))
    }
}

impl<S: HashedStore> Gate for RateLimiter<S, ManualClock> {
    fn charge(&self, record: &Record) -> Decision {
        self.check_at(&record.key, record.cost, Timestamp::from_nanos(record.at))
    }
}

/// One limit is asked directly, which is faster; several decide together.
fn ask<S>(limiters: &[RateLimiter<S, ManualClock>], record: &Record) -> Answer
where
    S: Store<u32> + ManyKeys,
    RateLimiter<S, ManualClock>: Gate,
{
    if let [limiter] = limiters {
        let decision = limiter.charge(record);
        return if decision.is_allowed() {
            Ok(())
        } else {
            Err(Refusal { by: 0, wait: decision.retry_after() })
        };
    }
    let limits: Vec<_> = limiters.iter().map(|limiter| limiter.on(&record.key).cost(record.cost)).collect();
    let decision = check_all_at(&limits[..], Timestamp::from_nanos(record.at));
    match decision.refused_by() {
        None => Ok(()),
        Some(by) => Err(Refusal { by, wait: decision.retry_after() }),
    }
}

/// Keys are our own small numbers, which no client chooses; fixed seeds make runs repeatable.
fn hasher() -> Hasher {
    Hasher::with_seeds(1, 2, 3, 4)
}

/// Every key apart.
pub(super) struct KeyedGates<A: Algorithm> {
    limiters: Vec<KeyedLimiter<A>>,
}

impl<A: Algorithm> KeyedGates<A> {
    pub(super) fn new(algorithms: Vec<A>) -> Self {
        // Every check is given its time, so the clock is never read: a still one costs nothing to make.
        let build = |algorithm| {
            let clock = ManualClock::new(Timestamp::ZERO);
            RateLimiter::builder(algorithm).clock(clock).hasher(hasher()).keyed()
        };
        Self { limiters: algorithms.into_iter().map(build).collect() }
    }
}

impl<A: Algorithm> Gates for KeyedGates<A> {
    fn decide(&mut self, record: &Record) -> Answer {
        ask(&self.limiters, record)
    }

    fn look(&mut self, _now: Timestamp) -> usize {
        self.limiters.iter().map(|limiter| limiter.len() * bytes_per_key(limiter.algorithm())).sum()
    }
}

/// What the keyed store keeps for one key: link, hash, state and key in a node, and its share of the buckets.
fn bytes_per_key<A: Algorithm>(algorithm: &A) -> usize {
    let node = size_of::<(usize, u64, u64, A::Tail, u32, usize)>().next_multiple_of(64);
    let boxed = TypeId::of::<A::Tail>() == TypeId::of::<Box<[AtomicU64]>>();
    let elsewhere = if boxed { algorithm.tail_len() * size_of::<AtomicU64>() } else { 0 };
    node + elsewhere + 4 * size_of::<usize>()
}

/// How a store fared.
#[derive(Clone, Debug)]
pub enum Figures {
    /// It has nothing to run short of.
    Keyed,
    /// By its counters.
    Compact(CompactFigures),
    /// By how full it got.
    Sketch(SketchFigures),
}

/// How a compact store fared.
#[derive(Clone, Debug, Default)]
pub struct CompactFigures {
    /// Slots of all limiters.
    pub slots: u64,
    /// The most of them that were seen in use.
    pub peak_live_slots: u64,
    /// Keys that still owed when their slot was taken.
    pub evicted: u64,
    /// Newcomers that began with a debt.
    pub indebted: u64,
    /// Newcomers denied for it.
    pub denied_for_debt: u64,
    /// First checks that were decided again, having met a larger debt once they were in.
    pub retreats: u64,
    /// Those that raced and could not be; none in a replay.
    pub raced: u64,
    /// What a keyed store would have decided otherwise, if one ran beside it.
    pub differences: Option<Differences>,
}

/// Decisions that differ from a keyed store's, which is charged with what the store in question admits, so that each is
/// judged by itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Differences {
    /// Denied, though the keyed store would have admitted it.
    pub wrongly_denied: u64,
    /// Admitted, though the keyed store would have denied it.
    pub wrongly_admitted: u64,
}

/// A keyed store that is charged with what another one admits, and asked about each request.
///
/// So every decision is judged by itself. With a keyed store that went its own way, one wrong denial would count twice:
/// the client has used less from then on, and its next request is admitted where the keyed store denies it.
struct Ledger<A: Algorithm> {
    limiters: Vec<KeyedLimiter<A>>,
    /// The same algorithms with limits that nothing reaches, for what was admitted wrongly and is to be charged too.
    boundless: Vec<A>,
    differences: Differences,
}

impl<A: Algorithm> Ledger<A> {
    fn new(algorithms: Vec<A>, quotas: &[Quota], kind: Kind) -> Self {
        let boundless =
            algorithms.iter().zip(quotas).map(|(algorithm, quota)| boundless(algorithm, quota, kind));
        Self {
            boundless: boundless.collect(),
            limiters: KeyedGates::new(algorithms).limiters,
            differences: Differences::default(),
        }
    }

    /// Takes notice of a request and what became of it.
    fn enter(&mut self, record: &Record, admitted: bool) {
        let now = Timestamp::from_nanos(record.at);
        if !admitted {
            let admits =
                |limiter: &KeyedLimiter<A>| limiter.peek_at(&record.key, record.cost, now).is_allowed();
            let deserved = self.limiters.iter().all(admits);
            self.differences.wrongly_denied += u64::from(deserved);
            return;
        }
        let mut deserved = true;
        for (limiter, boundless) in self.limiters.iter().zip(&self.boundless) {
            if limiter.charge(record).is_denied() {
                deserved = false;
                let _ = limiter.check_with(&record.key, boundless, record.cost, now);
            }
        }
        self.differences.wrongly_admitted += u64::from(!deserved);
    }
}

/// The algorithm with as large a quota as its state can be charged with: 2³² times its own, nearly always.
fn boundless<A: Algorithm>(algorithm: &A, quota: &Quota, kind: Kind) -> A {
    let larger = |shift: u32| {
        let times = |units: u64| units.checked_mul(1 << shift);
        let quota = if kind.heeds_burst() {
            quota.try_burst(times(quota.burst_size())?)
        } else {
            Quota::try_new(times(quota.limit())?, quota.period())
        };
        algorithm.requota(&quota.ok()?).ok()
    };
    (1..=32).rev().find_map(larger).unwrap_or_else(|| algorithm.clone())
}

/// Fingerprints in fixed memory, and a keyed store beside them.
pub(super) struct CompactGates<A: CompactAlgorithm> {
    limiters: Vec<RateLimiter<Compact<A, Hasher>, ManualClock>>,
    clock: ManualClock,
    ledger: Option<Ledger<A>>,
    peak_live_slots: usize,
    /// Looks between two counts of live slots, and how many are left until the next.
    stride: usize,
    left: usize,
}

/// Slots counted in all; a count of 4 MiB takes a quarter of a millisecond, and such tables are counted at every look.
const COUNTED: usize = 1 << 30;

impl<A: CompactAlgorithm> CompactGates<A> {
    pub(super) fn new(
        algorithms: Vec<A>,
        setup: storage::Compact,
        ledger: Option<(&[Quota], Kind)>,
        looks: usize,
    ) -> Result<Self, QuotaError> {
        let clock = ManualClock::new(Timestamp::ZERO);
        let share = setup.memory.share(algorithms.len());
        let build = |algorithm| {
            let builder =
                RateLimiter::builder(algorithm).clock(clock.clone()).hasher(hasher()).capacity(share);
            match setup.overflow {
                Some(overflow) => builder.overflow(overflow.into()),
                None => builder,
            }
            .compact()
        };
        let ledger = ledger.map(|(quotas, kind)| Ledger::new(algorithms.clone(), quotas, kind));
        let limiters = algorithms.into_iter().map(build).collect::<Result<Vec<_>, _>>()?;
        let slots: usize = limiters.iter().map(|limiter| limiter.gauges().slots).sum();
        let stride = looks.div_ceil((COUNTED / slots).max(1));
        Ok(Self { limiters, clock, ledger, peak_live_slots: 0, stride, left: stride })
    }

    pub(super) fn figures(&self) -> CompactFigures {
        let mut figures = CompactFigures {
            peak_live_slots: self.peak_live_slots as u64,
            differences: self.ledger.as_ref().map(|ledger| ledger.differences),
            ..CompactFigures::default()
        };
        for gauges in self.limiters.iter().map(RateLimiter::gauges) {
            figures.slots += gauges.slots as u64;
            figures.evicted += gauges.evicted;
            figures.indebted += gauges.indebted;
            figures.denied_for_debt += gauges.denied_for_debt;
            figures.retreats += gauges.retreats;
            figures.raced += gauges.raced;
        }
        figures
    }
}

impl<A: CompactAlgorithm> Gates for CompactGates<A> {
    fn decide(&mut self, record: &Record) -> Answer {
        let answer = ask(&self.limiters, record);
        if let Some(ledger) = &mut self.ledger {
            ledger.enter(record, answer.is_ok());
        }
        answer
    }

    fn look(&mut self, now: Timestamp) -> usize {
        self.left -= 1;
        if self.left == 0 {
            self.left = self.stride;
            self.clock.set(now);
            let live = self.limiters.iter().map(RateLimiter::live_slots).sum();
            self.peak_live_slots = self.peak_live_slots.max(live);
        }
        self.limiters.iter().map(RateLimiter::state_bytes).sum()
    }
}
