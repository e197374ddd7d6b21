//! A store whose kind and algorithm are chosen at run time.
//!
//! Algorithms with equal decisions share one implementation: a greedy token bucket, and a leaky bucket as a meter, are
//! GCRA. This leaves 27 pairs of store and algorithm. One `match` selects the pair, so that a check runs the code of its
//! pair without a call through a pointer. The first charge creates the store: see [`late`] and [`late_compact`].

mod late;
mod late_compact;

use std::fmt;
use std::hash::{BuildHasher, Hash};

use self::late::{DirectPlan, KeyedPlan, LateStore, Plan};
use self::late_compact::LateCompact;
use crate::algorithm::{
    Blocked, CalendarWindow, FixedWindow, Gcra, LeakyBucketQueue, Limit, LimitKind, MinimumSpacing,
    SlidingLog, SlidingWindow, SubWindow, TokenBucket,
};
use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Outcome};
use crate::base::quota::{Quota, QuotaError, Reason};
use crate::store::op::{
    CarriedOver, CarryOver, Debt, Debts, Inherit, KeyTrace, ManyKeys, Migrate, Operation, Peeked, Pins,
    Rebuild, Store, StoreBase, Ticket, WordTicket,
};
use crate::store::present::States;
use crate::store::sketch::SketchPlan;
use crate::store::{Direct, Gauges, Keyed, Lookup, Saturation, Sketch, StoreConfig, StoreKind};

/// A store whose kind and algorithm are chosen at run time. The store of [`AnyLimiter`](crate::AnyLimiter).
///
/// A key of type `K` can have any form that [`Lookup`] allows, as in a [`Keyed`] store. The first charge creates the
/// states. A compact store has room for eight keys at first, and the ninth one creates its table. If there is not
/// enough memory, each charge that needs it is denied for a second. A store of more than 16 MiB is created with its
/// limiter.
///
/// # Complexity
/// That of the chosen store, and one jump.
#[repr(C)]
pub struct AnyStore<K = String, H = ahash::RandomState> {
    pair: Pair<K, H>,
    limit: Limit,
    config: StoreConfig,
}

type DirectOf<A, H> = LateStore<DirectPlan<A>, Direct<A>, H>;
type KeyedOf<K, A, H> = LateStore<KeyedPlan<A>, Keyed<K, A, H>, H>;
type SketchOf<A, H> = LateStore<SketchPlan<A>, Sketch<A, H>, H>;

/// The places of a decision and of the ticket that charges it. Both are written where they stay: see [`AnyStore::check`].
pub(crate) type Planned<'p, 's> = (&'p mut Option<Decision>, &'p mut Option<WordTicket<'s>>);

/// A store with its algorithm.
// The tag has a byte of its own. Otherwise the compiler hides it in a field of the stores, and each check needs four more
// instructions to read it.
#[repr(u8)]
enum Pair<K, H> {
    DirectFixed(DirectOf<FixedWindow, H>),
    DirectGcra(DirectOf<Gcra, H>),
    DirectBlocked(DirectOf<Blocked, H>),
    DirectSliding(DirectOf<SlidingWindow, H>),
    DirectSub(DirectOf<SubWindow, H>),
    DirectLog(DirectOf<SlidingLog, H>),
    DirectBucket(DirectOf<TokenBucket, H>),
    DirectQueue(DirectOf<LeakyBucketQueue, H>),
    DirectSpacing(DirectOf<MinimumSpacing, H>),
    DirectCalendar(DirectOf<CalendarWindow, H>),
    KeyedFixed(KeyedOf<K, FixedWindow, H>),
    KeyedGcra(KeyedOf<K, Gcra, H>),
    KeyedBlocked(KeyedOf<K, Blocked, H>),
    KeyedSliding(KeyedOf<K, SlidingWindow, H>),
    KeyedSub(KeyedOf<K, SubWindow, H>),
    KeyedLog(KeyedOf<K, SlidingLog, H>),
    KeyedBucket(KeyedOf<K, TokenBucket, H>),
    KeyedQueue(KeyedOf<K, LeakyBucketQueue, H>),
    KeyedSpacing(KeyedOf<K, MinimumSpacing, H>),
    KeyedCalendar(KeyedOf<K, CalendarWindow, H>),
    CompactFixed(LateCompact<FixedWindow, H>),
    CompactGcra(LateCompact<Gcra, H>),
    // The largest of the pairs, and few limits have blocks.
    CompactBlocked(Box<LateCompact<Blocked, H>>),
    CompactSliding(LateCompact<SlidingWindow, H>),
    CompactQueue(LateCompact<LeakyBucketQueue, H>),
    CompactSpacing(LateCompact<MinimumSpacing, H>),
    SketchFixed(SketchOf<FixedWindow, H>),
    SketchSliding(SketchOf<SlidingWindow, H>),
}

/// Runs code for the store, by its kind.
macro_rules! by_kind {
    ($pair:expr, $store:ident => $direct:expr, $keyed:expr, $compact:expr, $sketch:expr $(,)?) => {
        by_kind!(@$pair, $store;
            [DirectFixed, DirectGcra, DirectBlocked, DirectSliding, DirectSub, DirectLog, DirectBucket, DirectQueue, DirectSpacing, DirectCalendar] $direct;
            [KeyedFixed, KeyedGcra, KeyedBlocked, KeyedSliding, KeyedSub, KeyedLog, KeyedBucket, KeyedQueue, KeyedSpacing, KeyedCalendar] $keyed;
            [CompactFixed, CompactGcra, CompactBlocked, CompactSliding, CompactQueue, CompactSpacing] $compact;
            [SketchFixed, SketchSliding] $sketch;
        )
    };
    (@$pair:expr, $store:ident; $([$($variant:ident),+] $what:expr;)+) => {
        match $pair {
            $($(Pair::$variant($store) => {
                // Some kinds do not use the store.
                let _ = $store;
                $what
            })+)+
        }
    };
}

/// Runs the same code for all kinds.
macro_rules! each {
    ($pair:expr, $store:ident => $what:expr) => {
        by_kind!($pair, $store => $what, $what, $what, $what)
    };
}

/// Runs the same code for stores that can carry over usage, and `$else` for sketches.
macro_rules! migrating {
    ($pair:expr, $store:ident => $what:expr, $else:expr) => {
        by_kind!($pair, $store => $what, $what, $what, $else)
    };
}

/// Runs code for a store and the store that replaces it, if both are compact.
macro_rules! both_compact {
    ($from:expr, $into:expr, |$last:ident, $next:ident| $what:expr, $else:expr) => {
        by_kind!($from, $last => $else, $else, by_kind!($into, $next => $else, $else, $what, $else), $else)
    };
}

pub mod saved;

impl<K, H> Pair<K, H>
where
    K: Hash + Eq + Send + Sync + 'static,
    H: BuildHasher + Clone,
{
    /// Plans a store. This is the one place that turns a limit into its algorithm.
    fn new(config: &StoreConfig, limit: &Limit, hasher: &H) -> Result<Self, QuotaError> {
        macro_rules! planned {
            ($algorithm:expr, [$direct:ident, $keyed:ident] $(, $compact:ident)? $(; $sketch:ident)?) => {{
                let algorithm = $algorithm;
                match config.kind {
                    StoreKind::Direct => Self::$direct(LateStore::new(DirectPlan(algorithm), hasher)?),
                    StoreKind::Keyed => {
                        Self::$keyed(LateStore::new(KeyedPlan { algorithm, layout: config.options.keyed() }, hasher)?)
                    }
                    $(StoreKind::Compact => Self::$compact(LateCompact::new(config.compact(algorithm)?, hasher)?.into()),)?
                    $(StoreKind::Sketch => {
                        let capacity = config.options.capacity.unwrap_or_default();
                        Self::$sketch(LateStore::new(SketchPlan::new(algorithm, capacity)?, hasher)?)
                    })?
                    #[allow(unreachable_patterns, reason = "some algorithms fit into every store")]
                    _ => return Err(unsupported(config.kind, limit)),
                }
            }};
        }
        let quota = limit.quota();
        if let Some(block) = limit.block() {
            // A limit of another algorithm has no block.
            return Ok(planned!(
                Blocked::try_new(quota, block)?,
                [DirectBlocked, KeyedBlocked],
                CompactBlocked
            ));
        }
        Ok(match limit.canonical().kind() {
            LimitKind::Gcra | LimitKind::TokenBucket | LimitKind::LeakyBucketMeter => {
                planned!(Gcra::new(quota), [DirectGcra, KeyedGcra], CompactGcra)
            }
            LimitKind::LeakyBucketQueue => {
                planned!(LeakyBucketQueue::new(quota), [DirectQueue, KeyedQueue], CompactQueue)
            }
            LimitKind::IntervalBucket => {
                planned!(TokenBucket::try_interval(quota)?, [DirectBucket, KeyedBucket])
            }
            LimitKind::AlignedBucket { at, adaptive: false } => {
                planned!(TokenBucket::try_aligned(quota, at)?, [DirectBucket, KeyedBucket])
            }
            LimitKind::AlignedBucket { at, adaptive: true } => {
                planned!(TokenBucket::try_aligned_adaptive(quota, at)?, [DirectBucket, KeyedBucket])
            }
            LimitKind::FixedWindow => {
                planned!(FixedWindow::try_new(quota)?, [DirectFixed, KeyedFixed], CompactFixed; SketchFixed)
            }
            LimitKind::FirstUseWindow => {
                planned!(FixedWindow::try_from_first_use(quota)?, [DirectFixed, KeyedFixed])
            }
            LimitKind::CalendarWindow { calendar } => {
                planned!(CalendarWindow::try_new(calendar, quota.limit())?, [DirectCalendar, KeyedCalendar])
            }
            LimitKind::SlidingWindow { strict } => {
                let window = SlidingWindow::try_new(quota)?;
                let window = if strict { window.strict() } else { window };
                planned!(window, [DirectSliding, KeyedSliding], CompactSliding; SketchSliding)
            }
            LimitKind::SubWindow { parts, strict } => {
                let window = SubWindow::try_new(quota, parts)?;
                let window = if strict { window.strict() } else { window };
                planned!(window, [DirectSub, KeyedSub])
            }
            LimitKind::SlidingLog => planned!(SlidingLog::try_new(quota)?, [DirectLog, KeyedLog]),
            LimitKind::MinimumSpacing { spacing } => {
                planned!(MinimumSpacing::new(spacing), [DirectSpacing, KeyedSpacing], CompactSpacing)
            }
        })
    }

    /// Returns a sketch that shares the counts of this one under another limit. `None` if this is not a sketch, or if
    /// its windows differ. Creates the sketch, because both have the same tables.
    fn with_limit_of(&self, limit: &Limit) -> Option<Self> {
        macro_rules! sharing {
            ($late:expr, $window:expr) => {{
                let sketch = $late.make().ok()?.with_limit_of(&$window)?;
                LateStore::of(sketch.plan().clone(), sketch, &$late.hasher)
            }};
        }
        let quota = limit.quota();
        Some(match (self, limit.canonical().kind()) {
            (Self::SketchFixed(late), LimitKind::FixedWindow) => {
                Self::SketchFixed(sharing!(late, FixedWindow::try_new(quota).ok()?))
            }
            (Self::SketchSliding(late), LimitKind::SlidingWindow { strict }) => {
                let window = SlidingWindow::try_new(quota).ok()?;
                Self::SketchSliding(sharing!(late, if strict { window.strict() } else { window }))
            }
            _ => return None,
        })
    }
}

/// The error for a limit that a kind of store does not support.
fn unsupported(kind: StoreKind, limit: &Limit) -> QuotaError {
    let store = if kind == StoreKind::Sketch { "sketch" } else { "compact" };
    let algorithm = if limit.block().is_some() { "a limit with a block" } else { limit.kind().name() };
    Reason::Unsupported { algorithm, store }.into()
}

impl<K, H> AnyStore<K, H>
where
    K: Hash + Eq + Send + Sync + 'static,
    H: BuildHasher + Clone,
{
    /// Plans a store.
    ///
    /// # Errors
    /// Returns an error if the store does not support the limit, or if it is large and there is not enough memory.
    #[doc(hidden)]
    pub fn new(config: StoreConfig, limit: Limit, hasher: &H) -> Result<Self, QuotaError> {
        Ok(Self { pair: Pair::new(&config, &limit, hasher)?, limit, config })
    }

    /// Returns a store of the same kind and size with another limit. A sketch keeps its counts if `keeps` is `true` and
    /// [`with_limit_of`](Self::with_limit_of) can share them; other stores are empty.
    pub(crate) fn with_limit(&self, limit: Limit, keeps: bool) -> Result<Self, QuotaError> {
        if keeps && let Some(same) = self.with_limit_of(&limit) {
            return Ok(same);
        }
        let next = Self::new(self.config, limit, each!(&self.pair, store => &store.hasher))?;
        both_compact!(&self.pair, &next.pair, |last, next| next.take_over_times(last)?, ());
        Ok(next)
    }

    /// Returns a sketch that shares the counts of this one under another limit. `None` if this is not a sketch, if its
    /// windows differ, or if its counters cannot count to the limit.
    #[doc(hidden)]
    pub fn with_limit_of(&self, limit: &Limit) -> Option<Self> {
        Some(Self { pair: self.pair.with_limit_of(limit)?, limit: *limit, config: self.config })
    }

    pub(crate) const fn limit(&self) -> Limit {
        self.limit
    }

    /// [`Operation::Check`], with the decision written to its place. Returns its outcome, so that the caller need not read what was
    /// just written. A denial starts no block, because only the caller knows whether it is enforced.
    ///
    /// `hash` returns the hash of the key by the store's hasher. It is called if the store finds its keys by their hashes. The
    /// caller computes it, because it may charge the same key in several stores with one hasher.
    #[inline(always)]
    #[doc(hidden)]
    pub fn check<Q: Lookup<K> + ?Sized>(
        &self,
        (key, hash): (&Q, impl FnOnce() -> u64),
        at: CheckTime,
        cost: u64,
        decision: &mut Option<Decision>,
    ) -> Outcome {
        by_kind!(&self.pair, store =>
            check(store, key, at, cost, decision),
            check(store, key, at, cost, decision),
            store.check_into(store.given(key, hash()), at, cost, decision),
            check(store, key, at, cost, decision),
        )
    }

    /// Decides as [`AnyStore::check`] does, and leaves the charge to a ticket. If it writes no ticket, the request is denied,
    /// or its charge takes more than one exchange; then the decision charged nothing. `pins` keeps what the tickets need.
    #[inline(always)]
    #[doc(hidden)]
    pub fn ticket<'s, Q: Lookup<K> + ?Sized + 's>(
        &'s self,
        (key, hash): (&Q, impl FnOnce() -> u64),
        at: CheckTime,
        cost: u64,
        pins: &'s Pins,
        into: Planned<'_, 's>,
    ) -> Outcome {
        by_kind!(&self.pair, store =>
            ticket(store, key, at, cost, pins, into),
            ticket(store, key, at, cost, pins, into),
            store.ticket(store.given(key, hash()), at, cost, pins, into),
            ticket(store, key, at, cost, pins, into),
        )
    }

    /// Returns the address of the memory that a check reads after that of a compact store. `None` as long as no charge has created it.
    /// That of another store is its own address.
    #[doc(hidden)]
    pub fn states_address(&self) -> Option<usize> {
        let own = std::ptr::from_ref(self).addr();
        by_kind!(&self.pair, store => Some(own), Some(own), store.states_address(), Some(own))
    }

    /// Whether anything was charged.
    fn is_used(&self) -> bool {
        by_kind!(&self.pair, store =>
            store.get().is_some(),
            store.get().is_some(),
            store.is_used(),
            store.get().is_some(),
        )
    }

    /// Returns the number of keys with a state, if the store knows it. A store that does not exist yet is empty.
    #[doc(hidden)]
    pub fn keys(&self, now_ns: u64) -> Option<usize> {
        by_kind!(&self.pair, late =>
            None,
            Some(late.get().map_or(0, Keyed::len)),
            Some(late.live(CheckTime::from_ns(now_ns))),
            None,
        )
    }

    /// Returns the bytes that the states take. A store that does not exist yet takes none.
    pub(crate) fn state_bytes(&self) -> usize {
        by_kind!(&self.pair, late =>
            0,
            late.get().map_or(0, States::state_bytes),
            late.state_bytes(),
            late.get().map_or(0, States::state_bytes),
        )
    }

    /// Returns the figures of a compact store.
    #[doc(hidden)]
    pub fn gauges(&self) -> Option<Gauges> {
        by_kind!(&self.pair, late =>
            None,
            None,
            Some(late.gauges()),
            None,
        )
    }

    /// Returns how full a sketch is.
    #[doc(hidden)]
    pub fn saturation(&self, now_ns: u64) -> Option<Saturation> {
        by_kind!(&self.pair, late =>
            None,
            None,
            None,
            Some(late.get().map(|store| store.saturation(now_ns)).unwrap_or_default()),
        )
    }
}

/// One function for each pair. A single function would save and restore the registers that the largest pair needs.
#[inline(never)]
fn check<P: Plan<S, H>, S: Store<Q>, H, Q: ?Sized>(
    store: &LateStore<P, S, H>,
    key: &Q,
    at: CheckTime,
    cost: u64,
    decision: &mut Option<Decision>,
) -> Outcome {
    let operation = if S::BLOCKS { Operation::Check.without_block() } else { Operation::Check };
    // Written here. A caller that copies a decision just after it was written waits for the stores, because it loads wider words.
    decision.insert(store.apply(key, operation, at, cost)).outcome()
}

#[inline(never)]
fn apply<P: Plan<S, H>, S: Store<Q>, H, Q: ?Sized>(
    store: &LateStore<P, S, H>,
    key: &Q,
    operation: Operation,
    at: CheckTime,
    cost: u64,
) -> Decision {
    store.apply(key, operation, at, cost)
}

#[inline(never)]
fn ticket<'s, P: Plan<S, H>, S: Store<Q>, H, Q: ?Sized + 's>(
    store: &'s LateStore<P, S, H>,
    key: &Q,
    at: CheckTime,
    cost: u64,
    pins: &'s Pins,
    (decision, word): Planned<'_, 's>,
) -> Outcome {
    if let Some(made) = store.get()
        && let Some(outcome) = write_ticket(made.aim(made.prepare(key), at, cost), pins, (decision, word))
    {
        return outcome;
    }
    decision.insert(store.peek(key, at, cost)).outcome()
}

/// Writes the decision of a ticket, and what charges it. Returns `None` if it does not decide, or if its charge takes more than one
/// exchange.
#[inline(always)]
fn write_ticket<'s>(
    mut ticket: impl Ticket + 's,
    pins: &'s Pins,
    (decision, word): Planned<'_, 's>,
) -> Option<Outcome> {
    if ticket.peek() != Peeked::Decided {
        return None;
    }
    let outcome = ticket.outcome();
    if outcome != Outcome::Allowed {
        *decision = Some(ticket.uncharged());
        return Some(outcome);
    }
    *decision = Some(ticket.charged());
    *word = ticket.into_word(pins);
    word.is_some().then_some(outcome)
}

#[inline(never)]
fn peek<P: Plan<S, H>, S: Store<Q>, H, Q: ?Sized>(
    store: &LateStore<P, S, H>,
    key: &Q,
    at: CheckTime,
    cost: u64,
) -> Decision {
    store.peek(key, at, cost)
}

impl<K, H> ManyKeys for AnyStore<K, H> {}

impl<K, H, Q> Store<Q> for AnyStore<K, H>
where
    K: Hash + Eq + Send + Sync + 'static,
    H: BuildHasher + Clone,
    Q: Lookup<K> + ?Sized,
{
    type Prepared<'k>
        = &'k Q
    where
        Q: 'k;

    // The decision is enough: each call selects its pair again.
    type Ticket<'s>
        = Decision
    where
        Self: 's;

    fn prepare<'k>(&self, key: &'k Q) -> &'k Q {
        key
    }

    fn apply(&self, key: &Q, operation: Operation, at: CheckTime, cost: u64) -> Decision {
        by_kind!(&self.pair, store =>
            apply(store, key, operation, at, cost),
            apply(store, key, operation, at, cost),
            store.apply(key, operation, at, cost),
            apply(store, key, operation, at, cost),
        )
    }

    fn peek(&self, key: &Q, at: CheckTime, cost: u64) -> Decision {
        by_kind!(&self.pair, store =>
            peek(store, key, at, cost),
            peek(store, key, at, cost),
            store.peek(key, at, cost),
            peek(store, key, at, cost),
        )
    }

    fn decide(&self, key: &Q, at: CheckTime, cost: u64) -> Decision {
        self.peek(key, at, cost)
    }

    const BLOCKS: bool = true;

    fn block(&self, key: &Q, at: CheckTime, denial: Decision) -> Decision {
        each!(&self.pair, store => store.block(key, at, denial))
    }

    fn refund(&self, key: &Q, at: CheckTime, charge: &Decision, units: u64) -> u64 {
        each!(&self.pair, store => store.refund(key, at, charge, units))
    }

    fn give_back(&self, key: &Q, at: CheckTime, units: u64) -> u64 {
        each!(&self.pair, store => store.give_back(key, at, units))
    }

    fn key_hash(&self, key: &Q) -> u64 {
        each!(&self.pair, store => store.key_hash(key))
    }

    fn refund_traced<B: BuildHasher>(&self, key: KeyTrace<'_, B>, at: CheckTime, charge: &Decision) -> u64 {
        each!(&self.pair, store => store.refund_traced::<Q, B>(key, at, charge))
    }
}

impl<K, H> StoreBase for AnyStore<K, H>
where
    K: Hash + Eq + Send + Sync + 'static,
    H: BuildHasher + Clone,
{
    fn can_refund(&self) -> bool {
        each!(&self.pair, store => store.can_refund())
    }

    fn burst(&self) -> u64 {
        each!(&self.pair, store => store.debts().burst())
    }
}

impl<K, H> Migrate for AnyStore<K, H>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    H: BuildHasher + Clone,
{
    fn debts(&self) -> &dyn Debts {
        each!(&self.pair, store => store.debts())
    }

    fn is_known(&self) -> bool {
        migrating!(&self.pair, store => store.is_known(), true)
    }

    fn newest_ns(&self) -> u64 {
        migrating!(&self.pair, store => store.newest_ns(), u64::MAX)
    }

    fn beyond_ns(&self) -> Option<u64> {
        migrating!(&self.pair, store => store.beyond_ns(), None)
    }

    fn migrates(&self) -> bool {
        self.config.kind != StoreKind::Sketch
    }

    fn carry_all(&self, into: &Self, carry: CarryOver<'_>) -> CarriedOver {
        if !self.is_used() {
            return CarriedOver::All;
        }
        by_kind!(&self.pair, late =>
            {
                let peek = |at| late.peek(&(), at, 0);
                let debt = carry.debt(peek(CheckTime::from_ns(carry.at_ns)), peek);
                if debt.units == 0 || !late.knew(&()) {
                    return CarriedOver::All;
                }
                let seed = |into: &dyn Fn(&()) -> Option<Decision>| into(&()).is_none().into();
                by_kind!(&into.pair, into =>
                    seed(&|key| into.seed(key, carry.when, debt)),
                    CarriedOver::NotAll, CarriedOver::NotAll, CarriedOver::NotAll
                )
            },
            {
                let mut all = true;
                if let Some(store) = late.get() {
                    store.for_each(carry.at_ns, |key, before| {
                        let debt = carry.debt(before, |at| late.peek(key, at, 0));
                        all &= into.is_seeded(key, carry.when, debt);
                    });
                }
                all.into()
            },
            by_kind!(&into.pair, into =>
                CarriedOver::NotAll, CarriedOver::NotAll, late.carry_into(into, carry), CarriedOver::NotAll
            ),
            CarriedOver::NotAll,
        )
    }
}

impl<K, H> Rebuild for AnyStore<K, H>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    H: BuildHasher + Clone + Send + Sync + 'static,
{
    fn rebuild(&self, quota: &Quota) -> Result<Self, QuotaError> {
        self.with_limit(self.limit.with_quota(*quota)?, false)
    }

    fn rebuild_shared(&self, quota: &Quota) -> Result<Self, QuotaError> {
        self.with_limit(self.limit.with_quota(*quota)?, true)
    }
}

impl<K, H, Q> Inherit<Q> for AnyStore<K, H>
where
    K: Hash + Eq + Send + Sync + 'static,
    H: BuildHasher + Clone,
    Q: Lookup<K> + ?Sized,
{
    /// A sketch cannot take over usage.
    fn holds(&self, key: &Q) -> bool {
        migrating!(&self.pair, store => store.holds(key), true)
    }

    fn knew(&self, key: &Q) -> bool {
        migrating!(&self.pair, store => store.knew(key), false)
    }

    fn seed(&self, key: &Q, when: CheckTime, debt: Debt) -> Option<Decision> {
        migrating!(&self.pair, store => store.seed(key, when, debt), None)
    }

    fn forget(&self, key: &Q) -> bool {
        migrating!(&self.pair, store => store.forget(key), false)
    }

    fn block_for(&self, key: &Q, when: CheckTime, block_ns: u64) -> bool {
        migrating!(&self.pair, store => store.block_for(key, when, block_ns), false)
    }
}

impl<K, H> fmt::Debug for AnyStore<K, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        each!(&self.pair, store => fmt::Debug::fmt(store, f))
    }
}
