//! A store whose algorithm and kind are chosen while running: by a rule.
//!
//! The algorithms that decide alike are one here (a token bucket and a leaky bucket as a meter are GCRA), so fifteen pairs are
//! all there are.

use std::fmt;

use crate::algorithm::{Algorithm, FixedWindow, Gcra, SlidingLog, SlidingWindow, SubWindow};
use crate::base::check_time::CheckTime;
use crate::base::decision::Decision;
use crate::base::quota::QuotaError;
use crate::edge::telemetry::{Reading, readings_of};
use crate::limiter::{Builder, RateLimiter};
use crate::store::op::{Inherit, Migrate, Operation, Store};
use crate::store::{Capacity, Compact, Direct, Gauges, Keyed, Sketch, WhenFull};

/// Where states are kept.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) enum Kind {
    /// One for all.
    Direct,
    Compact(Capacity),
    Keyed(Option<(usize, WhenFull)>),
    Sketch(Capacity),
}

/// An algorithm, chosen while running.
#[derive(Copy, Clone, Debug)]
pub(crate) enum AnyAlgorithm {
    FixedWindow(FixedWindow),
    Gcra(Gcra),
    SlidingWindow(SlidingWindow),
    SubWindow(SubWindow),
    SlidingLog(SlidingLog),
}

/// Why there is no such store.
#[derive(Clone, Debug)]
pub(crate) enum NoStore {
    /// It cannot hold the quota, or there is no memory.
    Quota(QuotaError),
    /// It does not know the algorithm.
    Algorithm,
}

impl From<QuotaError> for NoStore {
    fn from(error: QuotaError) -> Self {
        Self::Quota(error)
    }
}

/// How keys are hashed, by all stores of one set of rules: so that a compact one can be carried over into another.
pub(crate) type Hasher = ahash::RandomState;

macro_rules! stores {
    ($($variant:ident($store:ty),)+) => {
        /// See the module's text.
        pub(crate) enum Chosen {
            $($variant($store),)+
        }

        macro_rules! each {
            ($chosen:expr, $inner:ident => $what:expr) => {
                match $chosen {
                    $(Chosen::$variant($inner) => $what,)+
                }
            };
        }
    };
}

stores! {
    DirectFixed(Box<Direct<FixedWindow>>),
    DirectGcra(Box<Direct<Gcra>>),
    DirectSliding(Box<Direct<SlidingWindow>>),
    DirectSub(Box<Direct<SubWindow>>),
    DirectLog(Box<Direct<SlidingLog>>),
    KeyedFixed(Box<Keyed<String, FixedWindow, Hasher>>),
    KeyedGcra(Box<Keyed<String, Gcra, Hasher>>),
    KeyedSliding(Box<Keyed<String, SlidingWindow, Hasher>>),
    KeyedSub(Box<Keyed<String, SubWindow, Hasher>>),
    KeyedLog(Box<Keyed<String, SlidingLog, Hasher>>),
    CompactFixed(Box<Compact<FixedWindow, Hasher>>),
    CompactGcra(Box<Compact<Gcra, Hasher>>),
    CompactSliding(Box<Compact<SlidingWindow, Hasher>>),
    SketchFixed(Box<Sketch<FixedWindow, Hasher>>),
    SketchSliding(Box<Sketch<SlidingWindow, Hasher>>),
}

/// The same of those stores that carry over what keys owe; `$else` for the others.
macro_rules! each_that_carries {
    ($chosen:expr, $inner:ident => $what:expr, $else:expr) => {
        match $chosen {
            Chosen::DirectFixed($inner) => $what,
            Chosen::DirectGcra($inner) => $what,
            Chosen::DirectSliding($inner) => $what,
            Chosen::DirectSub($inner) => $what,
            Chosen::DirectLog($inner) => $what,
            Chosen::KeyedFixed($inner) => $what,
            Chosen::KeyedGcra($inner) => $what,
            Chosen::KeyedSliding($inner) => $what,
            Chosen::KeyedSub($inner) => $what,
            Chosen::KeyedLog($inner) => $what,
            Chosen::CompactFixed($inner) => $what,
            Chosen::CompactGcra($inner) => $what,
            Chosen::CompactSliding($inner) => $what,
            Chosen::SketchFixed(_) | Chosen::SketchSliding(_) => $else,
        }
    };
}

fn direct<A: Algorithm>(algorithm: A) -> Box<Direct<A>> {
    Box::new(Direct::new(algorithm))
}

fn builder<A: Algorithm>(algorithm: A, hasher: &Hasher) -> Builder<A, (), Hasher> {
    RateLimiter::builder(algorithm).hasher(hasher.clone())
}

fn keyed<A: Algorithm>(
    algorithm: A,
    hasher: &Hasher,
    cap: Option<(usize, WhenFull)>,
) -> Box<Keyed<String, A, Hasher>> {
    let builder = builder(algorithm, hasher);
    Box::new(
        match cap {
            Some((max, when_full)) => builder.max_keys(max, when_full),
            None => builder,
        }
        .keyed_parts()
        .0,
    )
}

impl Chosen {
    /// A store of this kind with an algorithm.
    pub(crate) fn new(kind: Kind, algorithm: AnyAlgorithm, hasher: &Hasher) -> Result<Self, NoStore> {
        use AnyAlgorithm::{FixedWindow, Gcra, SlidingLog, SlidingWindow, SubWindow};
        Ok(match (kind, algorithm) {
            (Kind::Direct, FixedWindow(algorithm)) => Self::DirectFixed(direct(algorithm)),
            (Kind::Direct, Gcra(algorithm)) => Self::DirectGcra(direct(algorithm)),
            (Kind::Direct, SlidingWindow(algorithm)) => Self::DirectSliding(direct(algorithm)),
            (Kind::Direct, SubWindow(algorithm)) => Self::DirectSub(direct(algorithm)),
            (Kind::Direct, SlidingLog(algorithm)) => Self::DirectLog(direct(algorithm)),
            (Kind::Keyed(cap), FixedWindow(algorithm)) => Self::KeyedFixed(keyed(algorithm, hasher, cap)),
            (Kind::Keyed(cap), Gcra(algorithm)) => Self::KeyedGcra(keyed(algorithm, hasher, cap)),
            (Kind::Keyed(cap), SlidingWindow(algorithm)) => Self::KeyedSliding(keyed(algorithm, hasher, cap)),
            (Kind::Keyed(cap), SubWindow(algorithm)) => Self::KeyedSub(keyed(algorithm, hasher, cap)),
            (Kind::Keyed(cap), SlidingLog(algorithm)) => Self::KeyedLog(keyed(algorithm, hasher, cap)),
            (Kind::Compact(size), FixedWindow(algorithm)) => {
                Self::CompactFixed(Box::new(builder(algorithm, hasher).capacity(size).compact_parts()?.0))
            }
            (Kind::Compact(size), Gcra(algorithm)) => {
                Self::CompactGcra(Box::new(builder(algorithm, hasher).capacity(size).compact_parts()?.0))
            }
            // As many slots as the others have, so that what is owed can be carried over slot by slot.
            (Kind::Compact(size), SlidingWindow(algorithm)) => {
                let size = size.beside_spill();
                Self::CompactSliding(Box::new(builder(algorithm, hasher).capacity(size).compact_parts()?.0))
            }
            (Kind::Sketch(size), FixedWindow(algorithm)) => {
                Self::SketchFixed(Box::new(builder(algorithm, hasher).capacity(size).sketch_parts()?.0))
            }
            (Kind::Sketch(size), SlidingWindow(algorithm)) => {
                Self::SketchSliding(Box::new(builder(algorithm, hasher).capacity(size).sketch_parts()?.0))
            }
            (Kind::Compact(_), SubWindow(_) | SlidingLog(_))
            | (Kind::Sketch(_), Gcra(_) | SubWindow(_) | SlidingLog(_)) => return Err(NoStore::Algorithm),
        })
    }

    /// A sketch that goes on with the counts of this one under another limit; `None` if this is no sketch, or its windows are others.
    pub(crate) fn with_limit_of(&self, algorithm: &AnyAlgorithm) -> Option<Self> {
        match (self, algorithm) {
            (Self::SketchFixed(sketch), AnyAlgorithm::FixedWindow(algorithm)) => {
                Some(Self::SketchFixed(Box::new(sketch.with_limit_of(algorithm)?)))
            }
            (Self::SketchSliding(sketch), AnyAlgorithm::SlidingWindow(algorithm)) => {
                Some(Self::SketchSliding(Box::new(sketch.with_limit_of(algorithm)?)))
            }
            _ => None,
        }
    }

    /// Whether what keys owe can be carried over from it and into it.
    pub(crate) fn carries(&self) -> bool {
        each_that_carries!(self, _store => true, false)
    }

    /// What it says of itself.
    pub(crate) fn readings(&self, now_ns: u64) -> Vec<Reading> {
        let compact = |live: usize, gauges: Gauges| readings_of(Some(live), Some(gauges), None);
        let keyed = |keys: usize| readings_of(Some(keys), None, None);
        match self {
            Self::CompactFixed(store) => {
                compact(store.live_slots(CheckTime::from_ns(now_ns)), store.gauges())
            }
            Self::CompactGcra(store) => compact(store.live_slots(CheckTime::from_ns(now_ns)), store.gauges()),
            Self::CompactSliding(store) => {
                compact(store.live_slots(CheckTime::from_ns(now_ns)), store.gauges())
            }
            Self::KeyedFixed(store) => keyed(store.len()),
            Self::KeyedGcra(store) => keyed(store.len()),
            Self::KeyedSliding(store) => keyed(store.len()),
            Self::KeyedSub(store) => keyed(store.len()),
            Self::KeyedLog(store) => keyed(store.len()),
            Self::SketchFixed(store) => readings_of(None, None, Some(store.saturation(now_ns))),
            Self::SketchSliding(store) => readings_of(None, None, Some(store.saturation(now_ns))),
            _ => Vec::new(),
        }
    }
}

impl Store<str> for Chosen {
    type Prepared<'k> = &'k str;

    // Of which kind it is, only each call knows.
    type Ticket<'s> = Decision;

    fn prepare<'k>(&self, key: &'k str) -> &'k str {
        key
    }

    fn apply(&self, key: &str, operation: Operation, at: CheckTime, cost: u64) -> Decision {
        each!(self, store => {
            let key = store.prepare(key);
            Store::<str>::prefetch(&**store, key);
            Store::<str>::apply(&**store, key, operation, at, cost)
        })
    }

    fn peek(&self, key: &str, at: CheckTime, cost: u64) -> Decision {
        each!(self, store => Store::<str>::peek(&**store, store.prepare(key), at, cost))
    }

    fn decide(&self, key: &str, at: CheckTime, cost: u64) -> Decision {
        self.peek(key, at, cost)
    }

    fn refund(&self, key: &str, at: CheckTime, charge: &Decision, units: u64) -> u64 {
        each!(self, store => Store::<str>::refund(&**store, store.prepare(key), at, charge, units))
    }

    fn can_refund(&self) -> bool {
        each!(self, store => Store::<str>::can_refund(&**store))
    }
}

impl Migrate for Chosen {
    fn paid_in_ns(&self, at_ns: u64, units: u64) -> u64 {
        each_that_carries!(self, store => store.paid_in_ns(at_ns, units), 0)
    }

    fn left(&self, at_ns: u64, units: u64, now_ns: u64) -> u64 {
        each_that_carries!(self, store => store.left(at_ns, units, now_ns), 0)
    }

    fn burst(&self) -> u64 {
        match self {
            Self::SketchFixed(store) => store.limit(),
            Self::SketchSliding(store) => store.limit(),
            carrying => each_that_carries!(carrying, store => store.burst(), 0),
        }
    }

    fn owed(&self, decision: &Decision) -> u64 {
        each_that_carries!(self, store => store.owed(decision), decision.owed())
    }

    fn is_known(&self) -> bool {
        each_that_carries!(self, store => store.is_known(), true)
    }

    fn carry_all(
        &self,
        into: &Self,
        when: CheckTime,
        at_ns: u64,
        owed: &dyn Fn(&Decision) -> (u64, u64),
    ) -> bool {
        let mut all = true;
        let mut seed = |key: &str, before: &Decision| {
            let (as_of_ns, owed) = owed(before);
            all &= owed == 0 || into.seed(key, when, as_of_ns, owed).is_none();
        };
        macro_rules! compact_into {
            ($store:expr) => {
                match into {
                    Self::CompactFixed(into) => $store.carry_into(into, when, at_ns, owed),
                    Self::CompactGcra(into) => $store.carry_into(into, when, at_ns, owed),
                    Self::CompactSliding(into) => $store.carry_into(into, when, at_ns, owed),
                    _ => false,
                }
            };
        }
        match self {
            Self::DirectFixed(_)
            | Self::DirectGcra(_)
            | Self::DirectSliding(_)
            | Self::DirectSub(_)
            | Self::DirectLog(_) => {
                let then = CheckTime::from_ns(at_ns);
                if self.knew("") {
                    seed("", &self.peek("", then, 0));
                }
            }
            Self::KeyedFixed(store) => store.for_each(at_ns, |key, before| seed(key, &before)),
            Self::KeyedGcra(store) => store.for_each(at_ns, |key, before| seed(key, &before)),
            Self::KeyedSliding(store) => store.for_each(at_ns, |key, before| seed(key, &before)),
            Self::KeyedSub(store) => store.for_each(at_ns, |key, before| seed(key, &before)),
            Self::KeyedLog(store) => store.for_each(at_ns, |key, before| seed(key, &before)),
            Self::CompactFixed(store) => return compact_into!(store),
            Self::CompactGcra(store) => return compact_into!(store),
            Self::CompactSliding(store) => return compact_into!(store),
            Self::SketchFixed(_) | Self::SketchSliding(_) => return false,
        }
        all
    }
}

impl Inherit<str> for Chosen {
    /// A sketch takes nothing over.
    fn holds(&self, key: &str) -> bool {
        each_that_carries!(self, store => store.holds(key), true)
    }

    fn knew(&self, key: &str) -> bool {
        each_that_carries!(self, store => store.knew(key), false)
    }

    fn seed(&self, key: &str, when: CheckTime, at_ns: u64, units: u64) -> Option<Decision> {
        each_that_carries!(self, store => store.seed(key, when, at_ns, units), None)
    }
}

impl fmt::Debug for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        each!(self, store => fmt::Debug::fmt(store, f))
    }
}
