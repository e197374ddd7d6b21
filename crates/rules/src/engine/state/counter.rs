//! The counter of a rule, and how to charge a rule that this process counts.
//!
//! ```text
//! Rule, and the Counter that it had before ──prepare──► Prepared ──close, finish──► Counter
//!                                           creates the store     │  puts the counter in force; from then on, a counter
//!                                                                 ▼  of this process takes over debts from the previous
//!                                                                    one
//! ```

use std::iter;
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tollgate::internals::migrate::{Generation, OwnStore};
use tollgate::internals::op::{Migrate, Operation, Store, StoreBase};
use tollgate::internals::readings_of;
use tollgate::internals::{CheckTime, Facts, saturating_nanos};
use tollgate::stores::AnyStore;
use tollgate::telemetry::Reading;
use tollgate::{
    Block, Carry, Class, Decision, Limit, LimitKind, Outcome, Quota, QuotaError, SlidingLog, StoreConfig,
    StoreKind, WhenFull,
};
use tollgate_config::internals::store_kind_of;
use tollgate_config::{Amount, Charging, Rule};

use super::held::RuleBook;
use super::role::Role;
use crate::counting::{Hasher, NoCounter, Servers, SharedLimiter};

/// The capacity of a keyed store that replaces a compact one because the compact one cannot hold the limit.
const MAX_KEYS: usize = 100_000;

/// The counter of a rule. Rules of several classes have clones of one counter.
// The tag comes first, so that it is in one line with what a check reads: see `ActiveRule`.
#[derive(Clone, Debug)]
#[repr(C, u8)]
pub(in crate::engine) enum Counter {
    /// Counts nothing: the rule has no limit. It keeps the last local counter until a load gives the rule a limit
    /// again.
    Unlimited(Option<LocalCounter>),
    /// Counts nothing: the limit is 0.
    Blocked {
        period: Duration,
        last: Option<Box<LocalCounter>>,
    },
    Local(LocalCounter),
    Shared(SharedCounter),
    /// Counts the requests in progress.
    InProgress(ProgressCounter),
}

/// The requests in progress: at most `most` for each key.
#[derive(Clone, Debug)]
pub(in crate::engine) struct ProgressCounter {
    pub(in crate::engine) book: Arc<RuleBook>,
    pub(in crate::engine) most: u64,
}

/// A limiter that other processes share.
#[derive(Clone, Debug)]
pub(in crate::engine) struct SharedCounter {
    /// The limiter of the rule's class, or of all requests.
    pub(in crate::engine) limiter: Arc<dyn SharedLimiter>,
    /// The limiter of all classes.
    pub(in crate::engine) whole: Arc<dyn SharedLimiter>,
    /// Whether no rule of the domain denies a request.
    is_dry_run: bool,
    pub(in crate::engine) parameters: Parameters,
}

impl SharedCounter {
    /// Whether a denial of a rule with this role does not deny the request.
    pub(in crate::engine) fn reports_only(&self, role: Role) -> bool {
        role != Role::Enforced || self.is_dry_run
    }
}

/// A store of this process. What a check reads comes first: see [`ActiveRule`](super::ActiveRule).
#[derive(Clone, Debug)]
#[repr(C)]
pub(in crate::engine) struct LocalCounter {
    /// The store of the generation: with thousands of rules, a check waits for each memory that it reads.
    pub(in crate::engine) store: OwnStore<AnyStore>,
    /// Whether a charge can be refunded.
    pub(in crate::engine) can_refund: bool,
    /// Whether this is the first counter, which takes over no usage.
    is_first: bool,
    /// The headroom: units that stay free in the store. It is [`spare`](Self::spare), and for a class, the units of other
    /// classes.
    pub(in crate::engine) headroom: u64,
    pub(in crate::engine) generation: Arc<Generation<AnyStore>>,
    /// The units that the store can hold beyond the maximum in use. A rule that counts denied requests needs one unit to detect
    /// that its limit is exceeded. The rest holds usage from a load with a higher limit.
    pub(super) spare: u64,
    /// The number of the load that created it, or the first of the counters whose usage it takes over.
    pub(in crate::engine) lineage: u64,
    pub(in crate::engine) parameters: Parameters,
    /// What the older stores of the generation are made of, the latest first, each with its spare units.
    pub(super) past: Arc<[(Parameters, u64)]>,
}

/// A store that a load has replaced, and from which keys still take usage over.
pub(super) struct OlderStore {
    pub(super) store: AnyStore,
    /// Its parameters, and the units that it can hold beyond its limit.
    pub(super) parameters: (Parameters, u64),
    /// The time of the load that replaced it.
    pub(super) at_ns: u64,
}

/// The parameters of a counter. A rule with the same parameters keeps its counter.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(in crate::engine) struct Parameters {
    pub(super) limit: Limit,
    /// The maximum number of units in use: the limit of windows, or the burst of other algorithms. It is 0 for a limit
    /// of 0, which has no quota.
    pub(in crate::engine) most: u64,
    pub(super) store: Option<tollgate_config::Store>,
    pub(super) charging: Charging,
    /// Whether a compact store has room for a debt beyond the limit: a hold may have used more than it took.
    pub(super) has_overdraft: bool,
    /// The entries that count by key and value, and those that count by key alone.
    pub(super) counted_by: [u32; 2],
}

/// A counter with a finished store, which is not in force yet.
pub(super) enum Prepared {
    Done(Counter),
    /// Puts the counter in force, at the time of the change.
    After {
        last: Arc<Generation<AnyStore>>,
        store: Box<AnyStore>,
        headroom: u64,
        parameters: Parameters,
        lineage: u64,
        past: Arc<[(Parameters, u64)]>,
    },
}

/// Why a rule with holds has no counter.
const NO_HOLDS: NoCounter = NoCounter::refused(
    "cannot have hold or in_progress: denied requests are charged first; use charging: all-or-nothing or count-denials",
);

/// Returns the limiter of a class. `None` if the store has none, or panics.
fn class_of(whole: &Arc<dyn SharedLimiter>, share: Class) -> Option<Arc<dyn SharedLimiter>> {
    catch_unwind(AssertUnwindSafe(|| whole.class(share))).unwrap_or_default()
}

/// The way in which a load carries usage over.
const CARRY: Carry = Carry::Used;

impl Prepared {
    /// Checks that the store of a rule counts its class.
    pub(super) fn check_class(&self, rule: &Rule) -> Result<(), NoCounter> {
        if let (Self::Done(Counter::Shared(shared)), Some(class)) = (self, &rule.class)
            && class_of(&shared.whole, class.share).is_none()
        {
            let why = "cannot have this class: its store does not count it; use store: keyed";
            return Err(NoCounter::refused(why));
        }
        Ok(())
    }

    /// Closes the previous counter, before the time of the load is read.
    pub(super) fn close_last(&self) {
        if let Self::After { last, .. } = self {
            last.close();
        }
    }

    pub(super) fn finish(self, when: CheckTime) -> Counter {
        match self {
            Self::Done(counter) => counter,
            Self::After { last, store, headroom, parameters, lineage, past } => {
                let generation = last.next(*store, CARRY, when);
                let first = LocalCounter::new(generation, headroom, parameters);
                Counter::Local(LocalCounter { is_first: false, lineage, past, ..first })
            }
        }
    }
}

impl Counter {
    /// Returns the counter for a rule, which may be one of several classes, in a domain that denies requests or not. `load`
    /// is the number of the load, from 1.
    pub(super) fn of_rule(mut self, rule: &Rule, in_dry_run: bool, load: u64) -> Self {
        match &mut self {
            Self::Local(local) => {
                local.headroom = local.spare.saturating_add(rule.kept());
                if local.lineage == 0 {
                    local.lineage = load;
                }
            }
            Self::Shared(shared) => {
                let whole = &shared.whole;
                let limiter = match &rule.class {
                    None => Some(Arc::clone(whole)),
                    Some(class) => class_of(whole, class.share),
                };
                // The load has asked before, and refused a class without a limiter.
                let Some(limiter) = limiter else {
                    return Self::Blocked { period: Duration::ZERO, last: None };
                };
                (shared.limiter, shared.is_dry_run) = (limiter, in_dry_run);
            }
            Self::Unlimited(_) | Self::Blocked { .. } | Self::InProgress(_) => {}
        }
        self
    }

    pub(in crate::engine) fn local(&self) -> Option<&LocalCounter> {
        if let Self::Local(local) = self { Some(local) } else { None }
    }

    /// Whether both counters use the same store.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Local(one), Self::Local(other)) => Arc::ptr_eq(&one.generation, &other.generation),
            (Self::Shared(one), Self::Shared(other)) => Arc::ptr_eq(&one.whole, &other.whole),
            (Self::InProgress(one), Self::InProgress(other)) => Arc::ptr_eq(&one.book, &other.book),
            _ => false,
        }
    }

    /// Returns the counter of this process, whether it is in force or not.
    pub(super) fn last_local(&self) -> Option<&LocalCounter> {
        match self {
            Self::Local(local) => Some(local),
            Self::Unlimited(last) => last.as_ref(),
            Self::Blocked { last, .. } => last.as_deref(),
            Self::Shared(_) | Self::InProgress(_) => None,
        }
    }

    /// Prepares a rule's counter. If the parameters are unchanged, the last counter with the rule's identity stays.
    pub(super) fn prepare(
        rule: &Rule,
        charging: Charging,
        last: Option<&Self>,
        now: CheckTime,
        (hasher, servers): (&Hasher, &Servers),
        book: Option<&Arc<RuleBook>>,
    ) -> Result<Prepared, NoCounter> {
        let last_shared = if let Some(Self::Shared(shared)) = last { Some(shared) } else { None };
        let counted_by = [rule.counted_by, rule.counted_by_key];
        let last = last.and_then(Self::last_local).filter(|last| last.parameters.counted_by == counted_by);
        let (limit, most, store) = match rule.limit {
            Amount::Limited { limit, store } => (limit, limit.most(), store),
            Amount::Blocked { period } => match Quota::try_new(1, period).and_then(one_window) {
                // A window of one unit counts whether any request was denied. A peek reads this.
                Ok(limit) if charging.counts_denied() => (limit, 0, None),
                _ => return Ok(Prepared::Done(Self::Blocked { period, last: last.cloned().map(Box::new) })),
            },
            Amount::Unlimited => return Ok(Prepared::Done(Self::Unlimited(last.cloned()))),
            Amount::InProgress { most, .. } => {
                let book = book.filter(|_| charging != Charging::CountFirst).ok_or(NO_HOLDS)?;
                return Ok(Prepared::Done(Self::InProgress(ProgressCounter {
                    book: Arc::clone(book),
                    most,
                })));
            }
        };
        if rule.hold.is_some() && charging == Charging::CountFirst {
            return Err(NO_HOLDS);
        }
        let store =
            store.filter(|store| !matches!(store, tollgate_config::Store::Redis(_)) || !servers.alone);
        let has_overdraft = rule.hold.is_some();
        let parameters = Parameters { limit, most, store, charging, has_overdraft, counted_by };
        if let Some(tollgate_config::Store::Redis(how)) = store {
            let counts_denials = charging == Charging::CountDenials;
            if counts_denials && (limit.block().is_some() || rule.class.is_some()) {
                return Err(NoCounter::refused(
                    "cannot count denied requests: with store: redis, `charging: count-denials` knows no block and no \
                     classes; use another charging, or store: keyed",
                ));
            }
            if let Some(kept) = last_shared.filter(|last| last.parameters == parameters) {
                return Ok(Prepared::Done(Self::Shared(kept.clone())));
            }
            let whole = servers.limiter(rule.counter(), limit, how, counts_denials, last_shared.is_some())?;
            if counts_denials && !whole.counts_denials() {
                return Err(NoCounter::refused(
                    "cannot count denied requests: its store does not; use another charging, or store: keyed",
                ));
            }
            let limiter = Arc::clone(&whole);
            let shared = SharedCounter { limiter, whole, is_dry_run: false, parameters };
            return Ok(Prepared::Done(Self::Shared(shared)));
        }
        if let Some(kept) = last.filter(|last| last.parameters == parameters) {
            return Ok(Prepared::Done(Self::Local(kept.clone())));
        }
        let first = |store: AnyStore, headroom: u64| {
            let generation = Generation::first(store);
            Prepared::Done(Self::Local(LocalCounter::new(generation, headroom, parameters)))
        };
        let make = |headroom: u64| parameters.store(headroom, hasher);
        // One unit, with which a rule that counts denied requests detects that its limit is exceeded. A rule with blocks
        // counts no denied request.
        let least = u64::from(parameters.counts_denied());
        let Some(last) = last else { return Ok(first(make(least)?, least)) };
        let before = last.generation.store();
        let same = before.with_limit_of(&parameters.with_headroom(least)?);
        if let Some(same) = same.filter(|_| last.parameters.store == store) {
            return Ok(first(same, least));
        }
        // Usage stays, also beyond the new limit. If the store can hold it, windows free it at their end as usual.
        let unpaid = if last.generation.is_taking_over(now.ns()) { last.spare } else { 0 };
        let owed = last.parameters.most.saturating_add(unpaid);
        let headroom = least.max(owed.min(largest_kept(&limit, most)).saturating_sub(most));
        let (store, headroom) = match make(headroom) {
            Ok(store) => (store, headroom),
            Err(_) => (make(least)?, least),
        };
        if before.migrates() && store.migrates() {
            let lineage = last.lineage;
            let all = iter::once((last.parameters, last.spare)).chain(last.past.iter().copied());
            let last = last.generation.settled(CARRY, || now)?;
            let past = all.take(1 + last.pending() as usize).collect();
            return Ok(Prepared::After { last, store: Box::new(store), headroom, parameters, lineage, past });
        }
        Ok(first(store, headroom))
    }
}

impl Parameters {
    /// Whether a denied request takes a unit beyond the limit.
    pub(in crate::engine) const fn counts_denied(&self) -> bool {
        self.charging.counts_denied() && self.limit.block().is_none()
    }

    /// Returns how long a denial blocks a key, if it does.
    pub(in crate::engine) const fn block(&self) -> Option<Block> {
        self.limit.block()
    }

    /// Returns the limit with the headroom: added to the limit of windows, or to the burst of other algorithms.
    fn with_headroom(&self, headroom: u64) -> Result<Limit, QuotaError> {
        self.limit.with_most(self.most.saturating_add(headroom))
    }

    pub(super) fn store(&self, headroom: u64, hasher: &Hasher) -> Result<AnyStore, NoCounter> {
        let limit = self.with_headroom(headroom)?;
        let overdraft = if self.has_overdraft { self.most } else { 0 };
        let kind = store_kind_of(self.store, self.counted_by == [0; 2], &limit, overdraft);
        let config = match (kind, self.store) {
            (StoreKind::Direct, _) => StoreConfig::new(kind),
            (_, Some(tollgate_config::Store::Local(config))) => config,
            (StoreKind::Keyed, _) => StoreConfig::new(kind).with_max_keys(MAX_KEYS, WhenFull::Forget),
            (StoreKind::Compact | StoreKind::Sketch, _) => {
                StoreConfig::new(kind).with_capacity(tollgate_config::Store::MEMORY)
            }
        };
        Ok(AnyStore::new(config.with_overdraft(overdraft), limit, hasher)?)
    }
}

fn one_window(quota: Quota) -> Result<Limit, QuotaError> {
    Limit::try_new(LimitKind::FixedWindow, quota)
}

/// Returns the maximum number of units in a store with this limit, including usage from another limit. A log uses
/// memory for each unit of every key, as long as the rule exists. A key whose block has ended has one unit free; if more
/// units had to stay free, the key would be blocked again at once.
fn largest_kept(rule: &Limit, limit: u64) -> u64 {
    match rule.kind() {
        LimitKind::SlidingLog => limit.saturating_mul(4).clamp(1_024, SlidingLog::MAX_LIMIT),
        _ if rule.block().is_some() => limit,
        _ => u64::MAX,
    }
}

/// Returns the decision of a limit of 0.
pub(in crate::engine) fn blocked(period: Duration, cost: u64, now_ns: u64) -> Decision {
    let outcome = if cost == 0 { Outcome::Allowed } else { Outcome::Never };
    let reset_ns = match saturating_nanos(period) {
        0 => 0,
        period_ns => period_ns - now_ns % period_ns,
    };
    let facts = Facts::Plain { remaining: 0, retry_ns: reset_ns, reset_ns, delay_ns: 0 };
    Decision::new(outcome, cost, 0, now_ns, facts).uncharged()
}

impl LocalCounter {
    /// The number of bytes at its beginning that a check of a plain rule reads.
    pub(super) const READ: usize = offset_of!(Self, is_first) + size_of::<bool>();

    fn new(generation: Generation<AnyStore>, headroom: u64, parameters: Parameters) -> Self {
        let can_refund = generation.store().can_refund();
        let (store, generation) = (generation.own_store(), Arc::new(generation));
        let (is_first, lineage, past) = (true, 0, Arc::default());
        Self { store, generation, headroom, spare: headroom, can_refund, is_first, lineage, parameters, past }
    }

    /// Creates the counter that another process had: its store has room for `spare` more units than its limit. `older` are
    /// the stores from which keys still take usage over, the latest first.
    pub(super) fn restored(
        store: AnyStore,
        now_ns: u64,
        (spare, lineage): (u64, u64),
        parameters: Parameters,
        older: Vec<OlderStore>,
    ) -> Self {
        let restored = |store: AnyStore, at_ns| {
            let largest_debt = store.largest_debt(at_ns);
            Generation::restored(store, largest_debt)
        };
        let after = |generation: Generation<AnyStore>, last| match last {
            Some((last, at_ns)) => generation.after(last, CARRY, at_ns),
            None => generation,
        };
        let (is_first, past) = (older.is_empty(), older.iter().map(|older| older.parameters).collect());
        let mut last: Option<(Generation<AnyStore>, u64)> = None;
        for OlderStore { store, at_ns, .. } in older.into_iter().rev() {
            let generation = restored(store, at_ns);
            last = Some((after(generation, last), at_ns));
        }
        let generation = after(restored(store, now_ns), last);
        Self { is_first, lineage, past, ..Self::new(generation, spare, parameters) }
    }

    /// Takes over the usage that a load carries over from another store, as far as that store can list it.
    pub(super) fn take_over_all(&self, now: CheckTime) {
        if self.is_taking_over(now.ns()) {
            // An error means that keys still ask the other store. They continue to do so.
            let _ = self.generation.settled(CARRY, || now);
        }
    }

    /// Whether keys may still have usage that was carried over.
    #[inline(always)]
    pub(in crate::engine) fn is_taking_over(&self, now_ns: u64) -> bool {
        !self.is_first && self.generation.is_taking_over(now_ns)
    }

    /// Whether the store alone decides a request, and its charges can be refunded.
    pub(super) const fn is_plain(&self) -> bool {
        self.headroom == 0 && self.can_refund && !self.has_blocks()
    }

    /// Whether denials can block keys.
    #[inline]
    pub(in crate::engine) const fn has_blocks(&self) -> bool {
        self.parameters.limit.block().is_some()
    }

    /// Starts the block of a request that the rule denies. Returns the denial afterwards.
    pub(in crate::engine) fn block(&self, key: &str, denial: Decision) -> Decision {
        self.generation.block(key, CheckTime::from_ns(denial.at_ns()), denial)
    }

    /// Returns the readings for metrics.
    pub(in crate::engine) fn readings(&self, now_ns: u64) -> Vec<Reading> {
        self.generation.take_over_rest(CheckTime::from_ns(now_ns));
        let store = self.generation.store();
        readings_of(store.keys(now_ns), store.gauges(), store.saturation(now_ns))
    }

    /// Charges a request if the headroom stays free.
    #[inline]
    pub(in crate::engine) fn charge(&self, key: &str, cost: u64, headroom: u64, when: CheckTime) -> Decision {
        let generation = &self.generation;
        if cost == 0 {
            return self.peek(key, 0, headroom, when);
        }
        if headroom == 0 && !self.has_blocks() {
            return generation.apply(key, Operation::Check, when, cost);
        }
        // With a headroom, a denial starts no block: see `LocalCounter::block`.
        let decision = generation.apply(key, Operation::CheckKeeping { headroom }, when, cost);
        decision.for_lower_limit(decision.outcome(), cost, headroom, || self.next(key, headroom, when))
    }

    /// Returns the decision that a charge would give, and charges nothing.
    #[inline]
    pub(in crate::engine) fn peek(&self, key: &str, cost: u64, headroom: u64, when: CheckTime) -> Decision {
        if headroom == 0 && !self.is_taking_over(when.ns()) {
            return self.store.get().peek(key, when, cost).for_cost(cost);
        }
        self.peek_with_headroom(key, cost, headroom, when)
    }

    #[cold]
    fn peek_with_headroom(&self, key: &str, cost: u64, headroom: u64, when: CheckTime) -> Decision {
        // A peek with cost 0 is always admitted.
        let more = if cost == 0 { 0 } else { headroom };
        let decision = self.generation.peek(key, when, cost.saturating_add(more));
        decision.for_lower_limit(decision.outcome(), cost, headroom, || self.next(key, headroom, when))
    }

    /// Returns whether one unit fits, and when.
    fn next(&self, key: &str, headroom: u64, when: CheckTime) -> Decision {
        self.generation.peek(key, when, headroom.saturating_add(1))
    }

    /// Counts a request first and decides afterwards. The store has room for one unit more than the maximum in use. If
    /// that unit is taken, the limit is exceeded; the amount is unknown. A request that sets its own limit is counted
    /// in full (`whole`), because its store has room for any limit. `elsewhere` is the number of units in another
    /// counter of the same requests.
    #[inline]
    pub(in crate::engine) fn count(
        &self,
        key: &str,
        whole: bool,
        cost: u64,
        headroom: u64,
        when: CheckTime,
        elsewhere: impl FnOnce() -> u64,
    ) -> (Decision, Effect) {
        if self.has_blocks() {
            return self.count_admitted(key, cost, when);
        }
        let generation = &self.generation;
        let operation = match whole {
            true => Operation::Force,
            // The headroom except one unit is reserved for carried-over usage.
            false => Operation::TakeKeeping { headroom: headroom.saturating_sub(1) },
        };
        let taken = match cost {
            0 => generation.peek(key, when, 0),
            _ => generation.apply(key, operation, when, cost),
        };
        self.judge(key, when, taken, CountedUnits { cost, earlier: 0, headroom, elsewhere: elsewhere() })
    }

    /// Returns what [`LocalCounter::count`] would decide after the request has counted `earlier` units of the same key.
    /// Charges nothing.
    pub(in crate::engine) fn peek_count(
        &self,
        key: &str,
        cost: u64,
        earlier: u64,
        headroom: u64,
        when: CheckTime,
        elsewhere: u64,
    ) -> Decision {
        if self.has_blocks() {
            return self.block_asked_for(key, cost, when).unwrap_or_else(|| self.peek(key, cost, 0, when));
        }
        let state = self.generation.peek(key, when, 0);
        self.judge(key, when, state, CountedUnits { cost, earlier, headroom, elsewhere }).0
    }

    /// Decides a request of which `state` has charged what it could.
    fn judge(&self, key: &str, when: CheckTime, state: Decision, units: CountedUnits) -> (Decision, Effect) {
        let CountedUnits { cost, earlier, headroom, elsewhere } = units;
        let charged = state.charged();
        let free = state.remaining().saturating_add(charged).saturating_sub(earlier);
        let is_over = free < cost.saturating_add(headroom).saturating_add(elsewhere);
        let outcome = match is_over {
            false => Outcome::Allowed,
            true if cost > state.limit().saturating_sub(headroom) => Outcome::Never,
            true => Outcome::Denied,
        };
        let judged = match outcome {
            // This peek computes the time at which the request conforms with the headroom added to its cost.
            Outcome::Denied => {
                self.generation.peek(key, when, cost.saturating_add(earlier).saturating_add(headroom))
            }
            _ => state,
        };
        let in_use = state.limit().saturating_sub(state.remaining());
        let before = in_use.saturating_sub(charged).saturating_add(elsewhere);
        let decision = judged.for_lower_limit(outcome, cost, headroom, || self.next(key, headroom, when));
        (decision.with_other_units(elsewhere), Effect::counted(charged, before))
    }

    /// Returns the block of a key about which a cost of 0 asks.
    fn block_asked_for(&self, key: &str, cost: u64, when: CheckTime) -> Option<Decision> {
        Some(self.peek(key, 1, 0, when)).filter(|next| cost == 0 && next.is_block())
    }

    /// Counts a request if it is admitted. A denied request blocks its key, and is not counted in addition. A cost of 0
    /// asks whether the key is in a block.
    #[cold]
    fn count_admitted(&self, key: &str, cost: u64, when: CheckTime) -> (Decision, Effect) {
        let block = self.block_asked_for(key, cost, when);
        let decision = block.unwrap_or_else(|| self.charge(key, cost, 0, when));
        let in_use = decision.limit().saturating_sub(decision.remaining());
        let charged = decision.charged();
        (decision, Effect::counted(charged, in_use.saturating_sub(charged)))
    }
}

/// The units by which a request that is counted first is judged.
struct CountedUnits {
    cost: u64,
    /// The units that the request would charge before.
    earlier: u64,
    headroom: u64,
    /// The units in another counter of the same requests.
    elsewhere: u64,
}

/// What a request did to a counter.
#[derive(Copy, Clone, Default, Debug)]
pub(in crate::engine) struct Effect {
    pub(in crate::engine) is_charged: bool,
    pub(in crate::engine) is_denial_counted: bool,
    /// The units that were charged, whether the rule denies the request or not.
    pub(in crate::engine) taken: u64,
    /// The units in use before this request, if denied requests are counted.
    pub(in crate::engine) before: u64,
}

impl Effect {
    const fn counted(taken: u64, before: u64) -> Self {
        Self { is_charged: taken > 0, is_denial_counted: false, taken, before }
    }
}
