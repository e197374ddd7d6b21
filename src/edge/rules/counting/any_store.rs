//! A store of this process with the kind and algorithm that a rule names.
//!
//! Algorithms with equal decisions share one implementation: a token bucket, and a leaky bucket as a meter, are GCRA.
//! This leaves fifteen pairs of store and algorithm. One `match` selects the pair, so that a check runs the code of its
//! pair without a call through a pointer. The first charge creates the store: see [`LateStore`].

use std::fmt;

use super::late_store::{DirectPlan, KeyedPlan, LateStore, Plan};
use super::{Hasher, NoCounter};
use crate::algorithm::{CompactAlgorithm, FixedWindow, Gcra, SlidingLog, SlidingWindow, SubWindow};
use crate::base::check_time::CheckTime;
use crate::base::decision::Decision;
use crate::base::quota::{Quota, QuotaError};
use crate::edge::rules::rule::Algorithm;
use crate::edge::telemetry::{Reading, readings_of};
use crate::store::compact::{CompactLayout, CompactPlan};
use crate::store::keyed::KeyedLayout;
use crate::store::op::{CarriedOver, CarryOver, Debts, Inherit, Migrate, Operation, Store};
use crate::store::sketch::SketchPlan;
use crate::store::{Capacity, Compact, Keyed, WhenFull};

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
// The tag has a byte of its own. Otherwise it is hidden in a field of the stores, and each check takes four instructions
// more to read it.
#[repr(u8)]
pub(crate) enum AnyStore {
    DirectFixed(LateStore<DirectPlan<FixedWindow>>),
    DirectGcra(LateStore<DirectPlan<Gcra>>),
    DirectSliding(LateStore<DirectPlan<SlidingWindow>>),
    DirectSub(LateStore<DirectPlan<SubWindow>>),
    DirectLog(LateStore<DirectPlan<SlidingLog>>),
    KeyedFixed(LateStore<KeyedPlan<FixedWindow>>),
    KeyedGcra(LateStore<KeyedPlan<Gcra>>),
    KeyedSliding(LateStore<KeyedPlan<SlidingWindow>>),
    KeyedSub(LateStore<KeyedPlan<SubWindow>>),
    KeyedLog(LateStore<KeyedPlan<SlidingLog>>),
    CompactFixed(LateStore<CompactPlan<FixedWindow>>),
    CompactGcra(LateStore<CompactPlan<Gcra>>),
    CompactSliding(LateStore<CompactPlan<SlidingWindow>>),
    SketchFixed(LateStore<SketchPlan<FixedWindow>>),
    SketchSliding(LateStore<SketchPlan<SlidingWindow>>),
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

impl AnyStore {
    /// Plans a store of this kind with an algorithm.
    pub(crate) fn new(kind: StoreKind, algorithm: WithQuota, hasher: &Hasher) -> Result<Self, NoCounter> {
        use StoreKind::{Compact, Direct, Keyed, Sketch};
        use WithQuota::{FixedWindow, Gcra, SlidingLog, SlidingWindow, SubWindow};
        macro_rules! planned {
            ($plan:expr) => {
                LateStore::new($plan, hasher)?
            };
        }
        let keyed =
            |max: Option<usize>| KeyedLayout { capacity: 0, cap: max.map(|max| (max, WhenFull::Forget)) };
        let sized = |capacity| CompactLayout { capacity, ..CompactLayout::default() };
        Ok(match (kind, algorithm) {
            (Direct, FixedWindow(window)) => Self::DirectFixed(planned!(DirectPlan(window))),
            (Direct, Gcra(gcra)) => Self::DirectGcra(planned!(DirectPlan(gcra))),
            (Direct, SlidingWindow(window)) => Self::DirectSliding(planned!(DirectPlan(window))),
            (Direct, SubWindow(window)) => Self::DirectSub(planned!(DirectPlan(window))),
            (Direct, SlidingLog(log)) => Self::DirectLog(planned!(DirectPlan(log))),
            (Keyed(max), FixedWindow(algorithm)) => {
                Self::KeyedFixed(planned!(KeyedPlan { algorithm, layout: keyed(max) }))
            }
            (Keyed(max), Gcra(algorithm)) => {
                Self::KeyedGcra(planned!(KeyedPlan { algorithm, layout: keyed(max) }))
            }
            (Keyed(max), SlidingWindow(algorithm)) => {
                Self::KeyedSliding(planned!(KeyedPlan { algorithm, layout: keyed(max) }))
            }
            (Keyed(max), SubWindow(algorithm)) => {
                Self::KeyedSub(planned!(KeyedPlan { algorithm, layout: keyed(max) }))
            }
            (Keyed(max), SlidingLog(algorithm)) => {
                Self::KeyedLog(planned!(KeyedPlan { algorithm, layout: keyed(max) }))
            }
            (Compact(size), FixedWindow(window)) => {
                Self::CompactFixed(planned!(CompactPlan::new(window, sized(size))?))
            }
            (Compact(size), Gcra(gcra)) => Self::CompactGcra(planned!(CompactPlan::new(gcra, sized(size))?)),
            // The same number of slots as the other store, so that debts carry over slot by slot.
            (Compact(size), SlidingWindow(window)) => {
                Self::CompactSliding(planned!(CompactPlan::new(window, sized(size.without_sketch()))?))
            }
            (Sketch(size), FixedWindow(window)) => {
                Self::SketchFixed(planned!(SketchPlan::new(window, size)?))
            }
            (Sketch(size), SlidingWindow(window)) => {
                Self::SketchSliding(planned!(SketchPlan::new(window, size)?))
            }
            (Compact(_), SubWindow(_) | SlidingLog(_)) | (Sketch(_), _) => return Err(NoCounter::Algorithm),
        })
    }

    /// [`Operation::Check`].
    #[inline]
    pub(crate) fn check(&self, key: &str, at: CheckTime, cost: u64) -> Decision {
        each!(self, store => check(store, key, at, cost))
    }

    /// Whether the store exists. Until then, nothing was charged.
    fn is_made(&self) -> bool {
        each!(self, store => store.get().is_some())
    }

    /// Returns a sketch that shares the counts of this one under another limit. `None` if this is not a sketch, or if
    /// its windows differ. Creates the sketch, because both have the same tables.
    pub(crate) fn with_limit_of(&self, algorithm: &WithQuota, hasher: &Hasher) -> Option<Self> {
        macro_rules! with_limit {
            ($late:expr, $window:expr) => {{
                let sketch = $late.make().ok()?.with_limit_of($window)?;
                LateStore::of(sketch.plan().clone(), sketch, hasher)
            }};
        }
        Some(match (self, algorithm) {
            (Self::SketchFixed(late), WithQuota::FixedWindow(window)) => {
                Self::SketchFixed(with_limit!(late, window))
            }
            (Self::SketchSliding(late), WithQuota::SlidingWindow(window)) => {
                Self::SketchSliding(with_limit!(late, window))
            }
            _ => return None,
        })
    }

    /// Whether usage can be carried over from this store and into it.
    pub(crate) fn migrates(&self) -> bool {
        migrating!(self, store => true, false)
    }

    /// Returns the readings for metrics. A store that does not exist yet is empty.
    pub(crate) fn readings(&self, now_ns: u64) -> Vec<Reading> {
        by_kind!(self, late =>
            Vec::new(),
            readings_of(Some(late.get().map_or(0, Keyed::len)), None, None),
            {
                let made = late.get();
                let keys = made.map_or(0, |store| store.live_slots(CheckTime::from_ns(now_ns)));
                let gauges = made.map_or_else(|| late.plan.gauges(), Compact::gauges);
                readings_of(Some(keys), Some(gauges), None)
            },
            {
                let saturation = late.get().map(|store| store.saturation(now_ns)).unwrap_or_default();
                readings_of(None, None, Some(saturation))
            },
        )
    }
}

/// One function for each kind. A single function would save the registers that the largest kind needs.
#[inline(never)]
fn check<P: Plan>(store: &LateStore<P>, key: &str, at: CheckTime, cost: u64) -> Decision {
    store.apply(key, Operation::Check, at, cost)
}

#[inline(never)]
fn peek<P: Plan>(store: &LateStore<P>, key: &str, at: CheckTime, cost: u64) -> Decision {
    store.peek(key, at, cost)
}

impl Store<str> for AnyStore {
    type Prepared<'k> = &'k str;

    // Each call knows its kind.
    type Ticket<'s> = Decision;

    fn prepare<'k>(&self, key: &'k str) -> &'k str {
        key
    }

    fn apply(&self, key: &str, operation: Operation, at: CheckTime, cost: u64) -> Decision {
        each!(self, store => store.apply(key, operation, at, cost))
    }

    fn peek(&self, key: &str, at: CheckTime, cost: u64) -> Decision {
        each!(self, store => peek(store, key, at, cost))
    }

    fn decide(&self, key: &str, at: CheckTime, cost: u64) -> Decision {
        self.peek(key, at, cost)
    }

    fn refund(&self, key: &str, at: CheckTime, charge: &Decision, units: u64) -> u64 {
        each!(self, store => store.refund(key, at, charge, units))
    }

    fn can_refund(&self) -> bool {
        each!(self, store => store.plan.can_refund())
    }
}

impl Migrate for AnyStore {
    fn debts(&self) -> &dyn Debts {
        each!(self, store => store.plan.debts())
    }

    fn is_known(&self) -> bool {
        migrating!(self, store => store.is_known(), true)
    }

    fn newest_ns(&self) -> u64 {
        migrating!(self, store => store.newest_ns(), u64::MAX)
    }

    fn carry_all(&self, into: &Self, carry: CarryOver<'_>) -> CarriedOver {
        if !self.is_made() {
            return CarriedOver::All;
        }
        let mut all = true;
        let mut seed = |key: &str, before: Decision| {
            let (as_of_ns, owed) = carry.debt(before, |at| self.peek(key, at, 0));
            all &= owed == 0 || into.seed(key, carry.when, as_of_ns, owed).is_none();
        };
        by_kind!(self, late =>
            if self.knew("") {
                seed("", self.peek("", CheckTime::from_ns(carry.at_ns), 0));
            },
            if let Some(store) = late.get() {
                store.for_each(carry.at_ns, |key, before| seed(key, before));
            },
            return match into {
                Self::CompactFixed(into) => carry_slots(late, into, carry),
                Self::CompactGcra(into) => carry_slots(late, into, carry),
                Self::CompactSliding(into) => carry_slots(late, into, carry),
                _ => CarriedOver::NotAll,
            },
            return CarriedOver::NotAll,
        );
        all.into()
    }
}

fn carry_slots<A: CompactAlgorithm, B: CompactAlgorithm>(
    from: &LateStore<CompactPlan<A>>,
    into: &LateStore<CompactPlan<B>>,
    carry: CarryOver<'_>,
) -> CarriedOver {
    match (from.get(), into.make()) {
        (Some(from), Ok(into)) => from.carry_into(into, carry),
        _ => CarriedOver::NotAll,
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

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A store that does not exist yet answers like a store that holds nothing.
    #[test]
    fn planned_store_answers_like_an_empty_one() {
        let hasher = Hasher::with_seeds(1, 2, 3, 4);
        let quota = Quota::per_minute(10).burst(5);
        let algorithms = [
            Algorithm::FixedWindow,
            Algorithm::Gcra,
            Algorithm::SlidingWindow { strict: false },
            Algorithm::SlidingWindow { strict: true },
            Algorithm::SubWindow { parts: 6, strict: false },
            Algorithm::SlidingLog,
        ];
        let size = Capacity::memory(64 << 10);
        let kinds = [
            StoreKind::Direct,
            StoreKind::Keyed(None),
            StoreKind::Keyed(Some(2)),
            StoreKind::Compact(size),
            StoreKind::Sketch(size),
        ];
        let mut pairs = 0;
        for (kind, algorithm) in
            kinds.into_iter().flat_map(|kind| algorithms.map(|algorithm| (kind, algorithm)))
        {
            let new = || AnyStore::new(kind, algorithm.with_quota(quota)?, &hasher);
            let (Ok(planned), Ok(made)) = (new(), new()) else { continue };
            assert!(each!(&made, store => store.make().is_ok()));
            pairs += 1;
            for at_ns in [0, 1, 59 * SECOND, 60 * SECOND, 1_700_000_000 * SECOND + 7, u64::MAX / 2, u64::MAX]
            {
                let at = CheckTime::from_ns(at_ns);
                for cost in [0, 1, 5, 6, 10, 11, u64::MAX] {
                    let name = format!("{kind:?} {algorithm:?} at {at_ns}, cost {cost}");
                    assert_eq!(planned.peek("x", at, cost), made.peek("x", at, cost), "{name}");
                }
                let readings = |store: &AnyStore| format!("{:?}", store.readings(at_ns));
                assert_eq!(readings(&planned), readings(&made), "{kind:?} {algorithm:?}");
            }
            assert_eq!(planned.can_refund(), made.can_refund());
            assert_eq!(planned.debts().burst(), made.debts().burst());
            assert!(
                !planned.is_made()
                    && !planned.knew("x")
                    && planned.carry_all(&made, nothing()) == CarriedOver::All
            );
            assert!(planned.check("x", CheckTime::from_ns(SECOND), 1).is_allowed() && planned.is_made());
        }
        assert_eq!(pairs, 6 * 3 + 4 + 3);
    }

    fn nothing() -> CarryOver<'static> {
        CarryOver { when: CheckTime::from_ns(0), at_ns: 0, owed: &|_| (0, 0) }
    }
}
