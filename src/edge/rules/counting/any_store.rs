//! A store of this process with the kind and algorithm that a rule names.
//!
//! Algorithms with equal decisions share one implementation: a token bucket, and a leaky bucket as a meter, are GCRA.
//! This leaves fifteen pairs of store and algorithm. One `match` selects the pair, so that a check runs the code of its
//! pair without a call through a pointer.

use std::fmt;

use super::{Hasher, NoCounter};
use crate::algorithm::{self, FixedWindow, Gcra, SlidingLog, SlidingWindow, SubWindow};
use crate::base::check_time::CheckTime;
use crate::base::decision::Decision;
use crate::base::quota::{Quota, QuotaError};
use crate::edge::rules::rule::Algorithm;
use crate::edge::telemetry::{Reading, readings_of};
use crate::limiter::{Builder, RateLimiter};
use crate::store::op::{CarriedOver, CarryOver, Debts, Inherit, Migrate, Operation, Store};
use crate::store::{Capacity, Compact, Direct, Keyed, Sketch, WhenFull};

/// The kinds of stores.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) enum StoreKind {
    /// One state for all keys.
    Direct,
    Compact(Capacity),
    /// With a maximum number of keys, if there is one.
    Keyed(Option<usize>),
    Sketch(Capacity),
}

/// An algorithm with its quota.
#[derive(Copy, Clone, Debug)]
pub(crate) enum WithQuota {
    FixedWindow(FixedWindow),
    Gcra(Gcra),
    SlidingWindow(SlidingWindow),
    SubWindow(SubWindow),
    SlidingLog(SlidingLog),
}

impl Algorithm {
    pub(crate) fn with_quota(self, quota: Quota) -> Result<WithQuota, QuotaError> {
        Ok(match self {
            Self::FixedWindow => WithQuota::FixedWindow(FixedWindow::try_new(quota)?),
            Self::Gcra | Self::TokenBucket | Self::LeakyBucket => WithQuota::Gcra(Gcra::new(quota)),
            Self::SlidingWindow { strict } => {
                let window = SlidingWindow::try_new(quota)?;
                WithQuota::SlidingWindow(if strict { window.strict() } else { window })
            }
            Self::SubWindow { parts, strict } => {
                let window = SubWindow::try_new(quota, parts)?;
                WithQuota::SubWindow(if strict { window.strict() } else { window })
            }
            Self::SlidingLog => WithQuota::SlidingLog(SlidingLog::try_new(quota)?),
        })
    }
}

/// See the module's documentation.
pub(crate) enum AnyStore {
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

/// Runs code for the store, by its kind.
macro_rules! by_kind {
    ($any:expr, $store:ident => $direct:expr, $keyed:expr, $compact:expr, $sketch:expr $(,)?) => {
        by_kind!(@$any, $store;
            [DirectFixed, DirectGcra, DirectSliding, DirectSub, DirectLog] $direct;
            [KeyedFixed, KeyedGcra, KeyedSliding, KeyedSub, KeyedLog] $keyed;
            [CompactFixed, CompactGcra, CompactSliding] $compact;
            [SketchFixed, SketchSliding] $sketch;
        )
    };
    (@$any:expr, $store:ident; $([$($variant:ident),+] $what:expr;)+) => {
        match $any {
            $($(AnyStore::$variant($store) => {
                // Some kinds do not use the store.
                let _ = $store;
                $what
            })+)+
        }
    };
}

/// Runs the same code for all kinds.
macro_rules! each {
    ($any:expr, $store:ident => $what:expr) => {
        by_kind!($any, $store => $what, $what, $what, $what)
    };
}

/// Runs the same code for stores that can carry over usage, and `$else` for sketches.
macro_rules! migrating {
    ($any:expr, $store:ident => $what:expr, $else:expr) => {
        by_kind!($any, $store => $what, $what, $what, $else)
    };
}

fn builder<A: algorithm::Algorithm>(algorithm: A, hasher: &Hasher) -> Builder<A, (), Hasher> {
    RateLimiter::builder(algorithm).hasher(hasher.clone())
}

fn keyed<A: algorithm::Algorithm>(
    algorithm: A,
    hasher: &Hasher,
    max_keys: Option<usize>,
) -> Box<Keyed<String, A, Hasher>> {
    let builder = builder(algorithm, hasher);
    let builder = match max_keys {
        Some(max) => builder.max_keys(max, WhenFull::Forget),
        None => builder,
    };
    Box::new(builder.keyed_parts().0)
}

fn direct<A: algorithm::Algorithm>(algorithm: A) -> Box<Direct<A>> {
    Box::new(Direct::new(algorithm))
}

impl AnyStore {
    /// Creates a store of this kind with an algorithm.
    pub(crate) fn new(kind: StoreKind, algorithm: WithQuota, hasher: &Hasher) -> Result<Self, NoCounter> {
        use StoreKind::{Compact, Direct, Keyed, Sketch};
        use WithQuota::{FixedWindow, Gcra, SlidingLog, SlidingWindow, SubWindow};
        macro_rules! sized {
            ($algorithm:expr, $size:expr, $parts:ident) => {
                Box::new(builder($algorithm, hasher).capacity($size).$parts()?.0)
            };
        }
        Ok(match (kind, algorithm) {
            (Direct, FixedWindow(window)) => Self::DirectFixed(direct(window)),
            (Direct, Gcra(gcra)) => Self::DirectGcra(direct(gcra)),
            (Direct, SlidingWindow(window)) => Self::DirectSliding(direct(window)),
            (Direct, SubWindow(window)) => Self::DirectSub(direct(window)),
            (Direct, SlidingLog(log)) => Self::DirectLog(direct(log)),
            (Keyed(max), FixedWindow(window)) => Self::KeyedFixed(keyed(window, hasher, max)),
            (Keyed(max), Gcra(gcra)) => Self::KeyedGcra(keyed(gcra, hasher, max)),
            (Keyed(max), SlidingWindow(window)) => Self::KeyedSliding(keyed(window, hasher, max)),
            (Keyed(max), SubWindow(window)) => Self::KeyedSub(keyed(window, hasher, max)),
            (Keyed(max), SlidingLog(log)) => Self::KeyedLog(keyed(log, hasher, max)),
            (Compact(size), FixedWindow(window)) => Self::CompactFixed(sized!(window, size, compact_parts)),
            (Compact(size), Gcra(gcra)) => Self::CompactGcra(sized!(gcra, size, compact_parts)),
            // The same number of slots as the other store, so that debts carry over slot by slot.
            (Compact(size), SlidingWindow(window)) => {
                Self::CompactSliding(sized!(window, size.without_sketch(), compact_parts))
            }
            (Sketch(size), FixedWindow(window)) => Self::SketchFixed(sized!(window, size, sketch_parts)),
            (Sketch(size), SlidingWindow(window)) => Self::SketchSliding(sized!(window, size, sketch_parts)),
            (Compact(_), SubWindow(_) | SlidingLog(_)) | (Sketch(_), _) => return Err(NoCounter::Algorithm),
        })
    }

    /// [`Operation::Check`].
    #[inline]
    pub(crate) fn check(&self, key: &str, at: CheckTime, cost: u64) -> Decision {
        each!(self, store => check(&**store, key, at, cost))
    }

    /// Returns a sketch that continues the counts of this one under another limit. `None` if this is not a sketch, or
    /// if its windows differ.
    pub(crate) fn with_limit_of(&self, algorithm: &WithQuota) -> Option<Self> {
        Some(match (self, algorithm) {
            (Self::SketchFixed(sketch), WithQuota::FixedWindow(window)) => {
                Self::SketchFixed(Box::new(sketch.with_limit_of(window)?))
            }
            (Self::SketchSliding(sketch), WithQuota::SlidingWindow(window)) => {
                Self::SketchSliding(Box::new(sketch.with_limit_of(window)?))
            }
            _ => return None,
        })
    }

    /// Whether usage can be carried over from this store and into it.
    pub(crate) fn migrates(&self) -> bool {
        migrating!(self, store => true, false)
    }

    /// Returns the readings for metrics.
    pub(crate) fn readings(&self, now_ns: u64) -> Vec<Reading> {
        by_kind!(self, store =>
            Vec::new(),
            readings_of(Some(store.len()), None, None),
            readings_of(Some(store.live_slots(CheckTime::from_ns(now_ns))), Some(store.gauges()), None),
            readings_of(None, None, Some(store.saturation(now_ns))),
        )
    }
}

#[inline]
fn apply(store: &impl Store<str>, key: &str, operation: Operation, at: CheckTime, cost: u64) -> Decision {
    let key = store.prepare(key);
    store.prefetch(key);
    store.apply(key, operation, at, cost)
}

/// One function for each kind. A single function would save the registers that the largest kind needs.
#[inline(never)]
fn check(store: &impl Store<str>, key: &str, at: CheckTime, cost: u64) -> Decision {
    apply(store, key, Operation::Check, at, cost)
}

#[inline(never)]
fn peek(store: &impl Store<str>, key: &str, at: CheckTime, cost: u64) -> Decision {
    store.peek(store.prepare(key), at, cost)
}

fn refund(store: &impl Store<str>, key: &str, at: CheckTime, charge: &Decision, units: u64) -> u64 {
    store.refund(store.prepare(key), at, charge, units)
}

impl Store<str> for AnyStore {
    type Prepared<'k> = &'k str;

    // Each call knows its kind.
    type Ticket<'s> = Decision;

    fn prepare<'k>(&self, key: &'k str) -> &'k str {
        key
    }

    fn apply(&self, key: &str, operation: Operation, at: CheckTime, cost: u64) -> Decision {
        each!(self, store => apply(&**store, key, operation, at, cost))
    }

    fn peek(&self, key: &str, at: CheckTime, cost: u64) -> Decision {
        each!(self, store => peek(&**store, key, at, cost))
    }

    fn decide(&self, key: &str, at: CheckTime, cost: u64) -> Decision {
        self.peek(key, at, cost)
    }

    fn refund(&self, key: &str, at: CheckTime, charge: &Decision, units: u64) -> u64 {
        each!(self, store => refund(&**store, key, at, charge, units))
    }

    fn can_refund(&self) -> bool {
        each!(self, store => Store::<str>::can_refund(&**store))
    }
}

impl Migrate for AnyStore {
    fn debts(&self) -> &dyn Debts {
        migrating!(self, store => store.debts(), &**store)
    }

    fn is_known(&self) -> bool {
        migrating!(self, store => store.is_known(), true)
    }

    fn carry_all(&self, into: &Self, carry: CarryOver<'_>) -> CarriedOver {
        let CarryOver { when, at_ns, owed } = carry;
        let mut all = true;
        let mut seed = |key: &str, before: &Decision| {
            let (as_of_ns, owed) = owed(before);
            all &= owed == 0 || into.seed(key, when, as_of_ns, owed).is_none();
        };
        by_kind!(self, store =>
            if self.knew("") {
                seed("", &self.peek("", CheckTime::from_ns(at_ns), 0));
            },
            store.for_each(at_ns, |key, before| seed(key, &before)),
            return match into {
                Self::CompactFixed(into) => store.carry_into(into, carry),
                Self::CompactGcra(into) => store.carry_into(into, carry),
                Self::CompactSliding(into) => store.carry_into(into, carry),
                _ => CarriedOver::NotAll,
            },
            return CarriedOver::NotAll,
        );
        all.into()
    }
}

impl Inherit<str> for AnyStore {
    /// A sketch cannot take over usage.
    fn holds(&self, key: &str) -> bool {
        migrating!(self, store => store.holds(key), true)
    }

    fn knew(&self, key: &str) -> bool {
        migrating!(self, store => store.knew(key), false)
    }

    fn seed(&self, key: &str, when: CheckTime, at_ns: u64, units: u64) -> Option<Decision> {
        migrating!(self, store => store.seed(key, when, at_ns, units), None)
    }
}

impl fmt::Debug for AnyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        each!(self, store => fmt::Debug::fmt(store, f))
    }
}
