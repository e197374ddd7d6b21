//! The rules that are in force: matched by trees, each with its limiter.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::chosen::{AnyAlgorithm, Chosen, Hasher, Kind, NoStore};
use super::config::Files;
use super::error::{RulesError, Unmade};
use super::overrides::Overrides;
use super::shared::{Servers, SharedLimiter};
use super::spec::{self, Charging, Limit, Rule, Unit};
use super::tree::Tree;
use super::{Descriptor, Domain};
use crate::algorithm::{FixedWindow, Gcra, SlidingLog, SlidingWindow, SubWindow};
use crate::base::check_time::CheckTime;
use crate::base::quota::{Quota, QuotaError};
use crate::base::sync::AtomicU32;
use crate::base::sync::Ordering::Relaxed;
use crate::edge::telemetry::{CheckTimer, Meters};
use crate::store::migrate::{Carry, Generation, Numbered};
use crate::store::{Capacity, WhenFull};

/// What a compact store of a rule takes, unless the rule says otherwise: eighty thousand busy keys.
const MEMORY: &str = "1MiB";

/// One check in so many of each thread is timed.
const TIMED: u32 = 128;

/// Keys of a keyed store that was taken because no compact one holds the limit.
const MAX_KEYS: usize = 100_000;

/// All rules of all domains, as they were loaded together.
#[derive(Debug)]
pub(super) struct Live {
    number: u64,
    names: HashMap<Box<str>, u32, Hasher>,
    overrides: Arc<Overrides>,
    domains: Vec<InForce>,
}

/// The rules of one domain.
#[derive(Debug)]
pub(super) struct InForce {
    pub(super) name: Box<str>,
    pub(super) charging: Charging,
    /// A dry run of all its rules.
    pub(super) shadow: bool,
    /// Where its rules are from.
    pub(super) files: Files,
    /// Set by the first request of it since this load.
    asked: Mark,
    /// Set by the first request of it under any load: all loads share it.
    ever_asked: Arc<Mark>,
    tree: Tree,
    rules: Vec<Active>,
    overrides: Arc<Overrides>,
    pub(super) timer: CheckTimer,
    by_identity: HashMap<Box<str>, u32, Hasher>,
}

/// A rule, and what counts for it.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) rule: Rule,
    pub(super) gate: Gate,
    /// What could pass from full, and in what time so much passes.
    pub(super) quota: u64,
    pub(super) window: Duration,
    /// The unit of which limits that requests bring along count together with it.
    pub(super) unit: Option<Unit>,
    /// Whether requests with other keys count apart.
    pub(super) keys_vary: bool,
    pub(super) meters: Arc<Meters>,
    /// Set by the first request since this load that it applied to.
    matched: Mark,
}

/// What any thread sets, and nobody takes back.
#[derive(Debug, Default)]
struct Mark(AtomicU32);

impl Mark {
    /// Sets it, and says whether it was set before.
    #[inline]
    fn set(&self) -> bool {
        let before = self.is_set();
        // Written once only: all threads read the line.
        if !before {
            // Ordering: Relaxed, here and below. A mark publishes nothing but itself.
            self.0.store(1, Relaxed);
        }
        before
    }

    #[inline]
    fn is_set(&self) -> bool {
        self.0.load(Relaxed) != 0
    }
}

#[derive(Debug)]
pub(super) enum Gate {
    /// Counts nothing; what was counted before is kept for when it does again.
    Unlimited(Option<Limiter>),
    /// The same of a limit of nothing.
    Blocked {
        period: Duration,
        last: Option<Limiter>,
    },
    Limited(Limiter),
    /// Counted with other processes.
    Shared(Shared),
}

/// Where a rule's requests are counted together with those of other processes.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) limiter: Arc<SharedLimiter>,
    /// By which it was made.
    made: Made,
}

/// Where a rule's requests are counted.
#[derive(Clone, Debug)]
pub(super) struct Limiter {
    pub(super) generation: Arc<Generation<Chosen>>,
    /// How many units the store has room for beyond the most that may be in use: one by which a rule that counts first tells that
    /// its limit is exceeded, and those that clients may owe from a load whose limit was higher.
    pub(super) spare: u64,
    /// By which it was made.
    made: Made,
}

#[derive(Copy, Clone, PartialEq, Debug)]
struct Made {
    quota: Quota,
    /// The most that may be in use: the limit of windows, else the burst; 0 of a limit of nothing, which has no quota.
    most: u64,
    algorithm: spec::Algorithm,
    store: Option<spec::Store>,
    charging: Charging,
    /// By values with their keys, and by keys alone.
    counted_by: [u32; 2],
}

impl Numbered for Live {
    fn number(&self) -> u64 {
        self.number
    }
}

/// A rule whose store is made, and not in force yet.
enum Ready {
    Done(Gate),
    /// In force from the moment of the change on: what keys owe is carried over from the last one.
    After {
        last: Arc<Generation<Chosen>>,
        store: Chosen,
        spare: u64,
        made: Made,
    },
}

impl Live {
    /// No rules.
    pub(super) fn empty(hasher: &Hasher) -> Self {
        let names = HashMap::with_hasher(hasher.clone());
        Self { number: 0, names, overrides: Arc::default(), domains: Vec::new() }
    }

    /// The rules of these domains, with what clients have used under the rules in force now. Fails as a whole.
    pub(super) fn after(
        &self,
        domains: Vec<Domain>,
        charging: Option<Charging>,
        (hasher, servers): (&Hasher, &Servers),
        now: impl Fn() -> CheckTime,
    ) -> Result<Self, RulesError> {
        let begun_ns = now().ns();
        let mut made = Vec::with_capacity(domains.len());
        for domain in domains {
            let charging = charging.unwrap_or(domain.charging());
            let before = self.domain(domain.name()).map(|(_, domain)| domain);
            let ready = domain
                .rules()
                .iter()
                .enumerate()
                .map(|(index, rule)| {
                    let last = before.and_then(|before| before.by_identity(&rule.identity));
                    ready(rule, charging, last, begun_ns, (hasher, servers))
                        .map_err(|error| RulesError::unmade(domain.files().of(index), rule, error))
                })
                .collect::<Result<Vec<_>, _>>()?;
            made.push((domain, charging, ready));
        }
        // What takes time is done.
        let when = now();
        let overrides = Arc::clone(&self.overrides);
        let mut live = Self { number: self.number + 1, overrides, ..Self::empty(hasher) };
        for (domain, charging, ready) in made {
            let before = self.domain(domain.name()).map(|(_, domain)| domain);
            live.add(domain, before, (charging, ready), when, hasher)?;
        }
        Ok(live)
    }

    fn add(
        &mut self,
        domain: Domain,
        before: Option<&InForce>,
        (charging, ready): (Charging, Vec<Ready>),
        when: CheckTime,
        hasher: &Hasher,
    ) -> Result<(), RulesError> {
        let shadow = domain.is_shadow();
        let (name, rules, tree, files) = domain.into_parts();
        let mut by_identity = HashMap::with_capacity_and_hasher(rules.len(), hasher.clone());
        by_identity.extend((0..).zip(&rules).map(|(index, rule)| (rule.identity.clone(), index)));
        let rules = rules
            .into_iter()
            .zip(ready)
            .enumerate()
            .map(|(index, (rule, ready))| {
                let gate = ready
                    .gate(when)
                    .map_err(|error| RulesError::unmade(files.of(index), &rule, error.into()))?;
                let before = before.and_then(|before| before.by_identity(&rule.identity));
                let same = before.filter(|before| before.rule.name == rule.name);
                let meters = match same {
                    Some(same) => Arc::clone(&same.meters),
                    None => Arc::new(Meters::new(&name, &rule.name)),
                };
                Ok(Active::new(rule, gate, meters))
            })
            .collect::<Result<Vec<_>, RulesError>>()?;
        let place = u32::try_from(self.domains.len()).unwrap_or(u32::MAX);
        self.names.insert(name.clone(), place);
        let overrides = Arc::clone(&self.overrides);
        let timer = CheckTimer::new(&name, TIMED);
        let (asked, ever_asked) = (Mark::default(), before.map(|before| Arc::clone(&before.ever_asked)));
        let ever_asked = ever_asked.unwrap_or_default();
        self.domains.push(InForce {
            name,
            charging,
            shadow,
            files,
            asked,
            ever_asked,
            tree,
            rules,
            overrides,
            timer,
            by_identity,
        });
        Ok(())
    }

    pub(super) fn domain(&self, name: &str) -> Option<(u32, &InForce)> {
        let place = *self.names.get(name)?;
        Some((place, self.domain_at(place)?))
    }

    pub(super) fn domain_at(&self, place: u32) -> Option<&InForce> {
        self.domains.get(place as usize)
    }

    pub(super) fn domains(&self) -> impl Iterator<Item = &InForce> {
        self.domains.iter()
    }
}

impl InForce {
    /// The same, if a request ever brought one along.
    pub(super) fn override_in_use(&self, unit: Unit) -> Option<&Active> {
        self.overrides.at(Overrides::place(unit))
    }

    /// The rule in a place that was found here.
    pub(super) fn active(&self, rule: u32) -> Option<&Active> {
        self.rules.get(rule as usize).or_else(|| self.overrides.at(rule))
    }

    /// The rule by which limits that requests bring along are counted.
    pub(super) fn override_of(&self, unit: Unit, hasher: &Hasher) -> Option<&Active> {
        self.overrides.rule(unit, hasher)
    }

    /// The places of the rules that apply to a request.
    pub(super) fn find(&self, descriptor: &Descriptor<'_>) -> impl Iterator<Item = u32> + use<> {
        let found = self.tree.find(descriptor.entries(), descriptor.tier_name()).rules();
        // There are never so many.
        found.filter_map(|place| u32::try_from(place).ok())
    }

    /// Notes that a request asks it.
    #[inline]
    pub(super) fn note_asked(&self) {
        if !self.asked.set() {
            self.ever_asked.set();
        }
    }

    /// The rule in a place that was found here, which is noted.
    #[inline]
    pub(super) fn matched(&self, rule: u32) -> Option<&Active> {
        let active = self.active(rule)?;
        active.matched.set();
        Some(active)
    }

    /// Whether a request has asked it, under this load or one before.
    pub(super) fn was_asked(&self) -> bool {
        self.ever_asked.is_set()
    }

    /// Its rules that applied to no request since this load; none before the first request.
    pub(super) fn unmatched(&self) -> impl Iterator<Item = &Active> {
        self.rules.iter().filter(|active| self.asked.is_set() && !active.matched.is_set())
    }

    pub(super) fn rules(&self) -> &[Active] {
        &self.rules
    }

    pub(super) fn by_identity(&self, identity: &str) -> Option<&Active> {
        self.active(*self.by_identity.get(identity)?)
    }
}

impl Active {
    /// A rule that was never in force before.
    pub(super) fn made(rule: Rule, hasher: &Hasher) -> Option<Self> {
        match ready(&rule, Charging::AllOrNothing, None, 0, (hasher, &Servers::default())) {
            Ok(Ready::Done(gate)) => {
                let meters = Arc::new(Meters::new("", &rule.name));
                Some(Self::new(rule, gate, meters))
            }
            Ok(Ready::After { .. }) | Err(_) => None,
        }
    }

    fn new(rule: Rule, gate: Gate, meters: Arc<Meters>) -> Self {
        let (quota, window) = match &rule.limit {
            Limit::Unlimited => (u64::MAX, Duration::ZERO),
            Limit::Blocked { period } => (0, *period),
            Limit::Quota { quota, algorithm, .. } if algorithm.has_burst() => {
                (quota.burst_size(), refill_time(quota))
            }
            Limit::Quota { quota, .. } => (quota.limit(), quota.period()),
        };
        let keys_vary = rule.metric.levels.iter().any(|level| level.contains('*'));
        let is_fixed = match (&gate, &rule.limit) {
            (Gate::Limited(_), Limit::Quota { algorithm, .. }) => *algorithm == spec::Algorithm::FixedWindow,
            (Gate::Limited(_), Limit::Blocked { .. }) => true,
            _ => false,
        };
        let unit = Unit::of(window).filter(|_| is_fixed && !rule.shares_counters());
        Self { rule, gate, quota, window, unit, keys_vary, meters, matched: Mark::default() }
    }

    /// Whether the rules that are in force now count for this one where it does.
    pub(super) fn counts_in(&self, domain: Option<&InForce>) -> bool {
        let now = domain.and_then(|domain| domain.by_identity(&self.rule.identity));
        match (now.and_then(Self::limiter), self.limiter()) {
            (Some(now), Some(then)) => Arc::ptr_eq(&now.generation, &then.generation),
            _ => match (now.and_then(Self::shared), self.shared()) {
                (Some(now), Some(then)) => Arc::ptr_eq(&now.limiter, &then.limiter),
                _ => false,
            },
        }
    }

    pub(super) fn shared(&self) -> Option<&Shared> {
        match &self.gate {
            Gate::Shared(shared) => Some(shared),
            Gate::Limited(_) | Gate::Unlimited(_) | Gate::Blocked { .. } => None,
        }
    }

    pub(super) fn limiter(&self) -> Option<&Limiter> {
        match &self.gate {
            Gate::Limited(limiter) => Some(limiter),
            Gate::Unlimited(_) | Gate::Blocked { .. } | Gate::Shared(_) => None,
        }
    }

    /// Where it was counted last, whether or not it is now.
    fn last_limiter(&self) -> Option<&Limiter> {
        match &self.gate {
            Gate::Limited(limiter) => Some(limiter),
            Gate::Unlimited(last) | Gate::Blocked { last, .. } => last.as_ref(),
            Gate::Shared(_) => None,
        }
    }
}

impl Ready {
    fn gate(self, when: CheckTime) -> Result<Gate, NoStore> {
        Ok(match self {
            Self::Done(gate) => gate,
            Self::After { last, store, spare, made } => {
                let generation = Arc::new(last.next(store, Carry::Used, when)?);
                Gate::Limited(Limiter { generation, spare, made })
            }
        })
    }
}

/// Makes what counts for a rule, if the last rule of this identity does not count for it.
fn ready(
    rule: &Rule,
    charging: Charging,
    last: Option<&Active>,
    now_ns: u64,
    (hasher, servers): (&Hasher, &Servers),
) -> Result<Ready, Unmade> {
    let last_shared = last.and_then(Active::shared);
    let counted_by = [rule.counted_by, rule.counted_by_key];
    let last = last.and_then(Active::last_limiter).filter(|last| last.made.counted_by == counted_by);
    let (quota, most, algorithm, store) = match rule.limit {
        Limit::Quota { quota, algorithm, store } if algorithm.has_burst() => {
            (quota, quota.burst_size(), algorithm, store)
        }
        Limit::Quota { quota, algorithm, store } => (quota, quota.limit(), algorithm, store),
        Limit::Blocked { period } => match Quota::try_new(1, period) {
            // Whether any was refused is counted, for looks.
            Ok(quota) if charging == Charging::CountFirst => (quota, 0, spec::Algorithm::FixedWindow, None),
            _ => return Ok(Ready::Done(Gate::Blocked { period, last: last.cloned() })),
        },
        Limit::Unlimited => return Ok(Ready::Done(Gate::Unlimited(last.cloned()))),
    };
    let store = store.filter(|store| !matches!(store, spec::Store::Redis(_)) || !servers.alone());
    let made = Made { quota, most, algorithm, store, charging, counted_by };
    if let Some(spec::Store::Redis(how)) = store {
        if !servers.knows_how() {
            return Err(Unmade::NoServer);
        }
        if let Some(last) = last_shared.filter(|last| last.made == made) {
            return Ok(Ready::Done(Gate::Shared(last.clone())));
        }
        let limiter =
            Arc::new(servers.limiter(&rule.identity, quota, algorithm, how, last_shared.is_some())?);
        return Ok(Ready::Done(Gate::Shared(Shared { limiter, made })));
    }
    if let Some(last) = last
        && last.made == made
    {
        return Ok(Ready::Done(Gate::Limited(last.clone())));
    }
    let tells = u64::from(charging == Charging::CountFirst);
    let of = |store: Chosen, spare: u64| {
        let generation = Arc::new(Generation::first(store));
        Ready::Done(Gate::Limited(Limiter { generation, spare, made }))
    };
    let chosen = algorithm.build(made.with_more(tells)?)?;
    let Some(last) = last else {
        return Ok(of(make(rule, store, chosen, hasher)?, tells));
    };
    let before = last.generation.store();
    if let Some(same) = before.with_limit_of(&chosen).filter(|_| last.made.store == store) {
        return Ok(of(same, tells));
    }
    // What is used stays used, also beyond the new limit; with room for that in the store, windows forget it at their end as they
    // forget all.
    let owed =
        last.made.most.saturating_add(if last.generation.is_taking_over(now_ns) { last.spare } else { 0 });
    let spare = tells.max(owed.min(algorithm.most_room(most)).saturating_sub(most));
    let roomy = made
        .with_more(spare)
        .and_then(|quota| algorithm.build(quota))
        .map_err(NoStore::from)
        .and_then(|chosen| make(rule, store, chosen, hasher));
    let (fresh, spare) = match roomy {
        Ok(fresh) => (fresh, spare),
        Err(_) => (make(rule, store, chosen, hasher)?, tells),
    };
    Ok(if before.carries() && fresh.carries() {
        Ready::After { last: Arc::clone(&last.generation), store: fresh, spare, made }
    } else {
        of(fresh, spare)
    })
}

impl Made {
    /// A quota with room for so many units more: of the limit for windows, which have no other room, and else of the burst.
    fn with_more(&self, more: u64) -> Result<Quota, QuotaError> {
        let room = self.most.saturating_add(more);
        if self.algorithm.has_burst() {
            self.quota.try_burst(room)
        } else {
            Quota::try_new(room, self.quota.period())
        }
    }
}

/// The time in which a full burst passes, rounded up.
fn refill_time(quota: &Quota) -> Duration {
    let ns =
        (u128::from(quota.burst_size()) * u128::from(quota.period_ns())).div_ceil(u128::from(quota.limit()));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

fn make(
    rule: &Rule,
    store: Option<spec::Store>,
    algorithm: AnyAlgorithm,
    hasher: &Hasher,
) -> Result<Chosen, NoStore> {
    let kind = match store {
        _ if rule.has_one_counter() => Kind::Direct,
        Some(spec::Store::Compact(capacity)) => Kind::Compact(capacity),
        Some(spec::Store::Keyed { max_keys }) => Kind::Keyed(max_keys.map(|max| (max, WhenFull::Forget))),
        Some(spec::Store::Sketch(capacity)) => Kind::Sketch(capacity),
        // What is shared is not here.
        None | Some(spec::Store::Redis(_)) => {
            let capacity: Capacity = MEMORY.parse().map_err(|_| NoStore::Algorithm)?;
            if let Ok(compact) = Chosen::new(Kind::Compact(capacity), algorithm, hasher) {
                return Ok(compact);
            }
            Kind::Keyed(Some((MAX_KEYS, WhenFull::Forget)))
        }
    };
    Chosen::new(kind, algorithm, hasher)
}

impl spec::Algorithm {
    /// Whether a burst of its own means anything to it: windows count up to the limit.
    pub(crate) fn has_burst(self) -> bool {
        matches!(self, Self::Gcra | Self::TokenBucket | Self::LeakyBucket)
    }

    /// The most units that a store of this limit has room for, when clients may have used more under another one. A log takes memory
    /// for each of them, for every key, for as long as the rule stays.
    fn most_room(self, limit: u64) -> u64 {
        match self {
            Self::SlidingLog => limit.saturating_mul(4).clamp(1_024, SlidingLog::MAX_LIMIT),
            _ => u64::MAX,
        }
    }

    /// It with a quota.
    pub(crate) fn build(self, quota: Quota) -> Result<AnyAlgorithm, QuotaError> {
        Ok(match self {
            Self::FixedWindow => AnyAlgorithm::FixedWindow(FixedWindow::try_new(quota)?),
            Self::Gcra | Self::TokenBucket | Self::LeakyBucket => AnyAlgorithm::Gcra(Gcra::new(quota)),
            Self::SlidingWindow { strict } => {
                let window = SlidingWindow::try_new(quota)?;
                AnyAlgorithm::SlidingWindow(if strict { window.strict() } else { window })
            }
            Self::SubWindow { parts, strict } => {
                let window = SubWindow::try_new(quota, parts)?;
                AnyAlgorithm::SubWindow(if strict { window.strict() } else { window })
            }
            Self::SlidingLog => AnyAlgorithm::SlidingLog(SlidingLog::try_new(quota)?),
        })
    }
}
