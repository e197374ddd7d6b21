//! The rules in force: trees that match requests, and a counter for each rule.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::counter::{Counter, LocalCounter, Prepared, has_room_for_debts};
use super::decided::Part;
use super::error::RulesError;
use super::held::{self, CounterName, RuleBook};
use super::options::LoadOptions;
use super::overrides;
use super::restore::{RestoreReport, Restored, RulesSnapshot};
use super::values::SeenValues;
use crate::algorithm::LimitKind;
use crate::base::check_time::CheckTime;
use crate::base::quota::Quota;
use crate::base::sync::AtomicU32;
use crate::base::sync::Ordering::Relaxed;
use crate::edge::rules::config::{Domain, RuleFiles};
use crate::edge::rules::counting::{Hasher, NoCounter, Servers};
use crate::edge::rules::matching::{AddressText, CounterKey, Descriptor, FoundRules, LONGEST, Tree};
use crate::edge::rules::rule::{Amount, Charging, Rule, UNITS, Unit};
use crate::edge::telemetry::{CheckTimer, Meters};
use crate::store::AnyStore;
use crate::store::migrate::{Generation, Numbered};

/// Each thread times one in this number of checks, on average.
const TIMED: u32 = 128;

/// All rules of all domains from one load.
#[derive(Debug)]
pub(super) struct RuleSet {
    number: u64,
    names: HashMap<Box<str>, u32, Hasher>,
    overrides: Arc<Overrides>,
    /// The units that requests hold. All loads share it from the first load that needs it.
    pub(super) book: Option<Arc<RuleBook>>,
    pub(super) domains: Vec<ActiveDomain>,
    /// Set by the first logged request with a domain that has no rules.
    pub(super) unknown_noted: OnceFlag,
}

/// Names one domain of a set.
#[derive(Copy, Clone, Debug)]
pub(super) enum DomainId<'a> {
    Name(&'a str),
    /// The domain was looked up before.
    Index(u32),
}

/// The rules of one domain.
#[derive(Debug)]
pub(super) struct ActiveDomain {
    /// The index of the domain.
    pub(super) index: u32,
    pub(super) name: Box<str>,
    pub(super) charging: Charging,
    /// Whether all its rules are a dry run.
    pub(super) shadow: bool,
    /// Whether all its rules are quotas.
    pub(super) quota: bool,
    /// The files of its rules.
    pub(super) files: RuleFiles,
    /// Set by the domain's first request since this load.
    asked: OnceFlag,
    /// Set by the domain's first request under any load; all loads share this flag.
    ever_asked: Arc<OnceFlag>,
    /// Set by the first logged request to which no rule applied since this load.
    pub(super) without_rule_noted: OnceFlag,
    tree: Tree,
    pub(super) rules: Vec<ActiveRule>,
    /// The units that requests hold, if some rules have `hold` or `in_progress`.
    pub(super) book: Option<Arc<RuleBook>>,
    /// Whether some of them are shared by processes.
    #[cfg(feature = "redis")]
    pub(super) has_shared: bool,
    overrides: Arc<Overrides>,
    pub(super) timer: CheckTimer,
    by_identity: HashMap<Box<str>, u32, Hasher>,
}

/// A rule with its counter.
#[derive(Debug)]
pub(super) struct ActiveRule {
    pub(super) rule: Rule,
    pub(super) counter: Counter,
    /// The admitted values of a rule that counts different values.
    pub(super) values: Option<Arc<SeenValues>>,
    /// The units that a fresh key may use at once, and the time in which they refill.
    pub(super) quota: u64,
    pub(super) window: Duration,
    /// The unit for which limits that requests set count together with this rule.
    pub(super) unit: Option<Unit>,
    /// The part that the rule takes in every request, or `None` if the request's key or the time decides.
    pub(super) part: Option<Part>,
    /// Whether the rule is plain: it is enforced for every request, this process counts it in a store without headroom and
    /// without blocks, and it has no soft limit.
    is_plain: bool,
    /// Whether the rule replaces others, or counts values.
    pub(super) is_rare: bool,
    /// Whether requests with other keys have separate counters.
    keys_vary: bool,
    key_from: KeyFrom,
    /// The entries whose values are read as addresses, one bit for each.
    addresses: u32,
    pub(super) meters: Arc<Meters>,
    /// Set by the first request since this load that the rule matched.
    pub(super) matched: OnceFlag,
    /// Whether a request matched it before this load.
    matched_before: bool,
    /// The name of the counter, if requests hold units of it.
    pub(super) held_name: Option<Arc<CounterName>>,
}

/// What the key of a rule is made of.
#[derive(Copy, Clone, Debug)]
enum KeyFrom {
    /// The value of one entry.
    Entry(u32),
    /// The value of one entry that is read as an address.
    Address(u32),
    /// The prefix of the last entry's address with this number of bits.
    Prefix(u8),
    /// Several parts, or none.
    Parts,
    /// Several parts, of which some are read as addresses, or the last one is a prefix.
    PartsWithAddresses,
}

/// The counter of a rule, before its load is in force.
enum RuleCounter {
    Own(Prepared, Option<Arc<SeenValues>>),
    /// The counter is that of an earlier rule of the domain, with this index: another class of the same descriptor.
    SameAs(usize),
}

impl RuleCounter {
    fn close_last(&self) {
        if let Self::Own(prepared, _) = self {
            prepared.close_last();
        }
    }
}

/// The rules of limits that requests set: one for each unit that a request has used.
type Overrides = [OnceLock<Option<ActiveRule>>; 7];

/// A flag that any thread sets and no thread clears.
#[derive(Debug, Default)]
pub(super) struct OnceFlag(AtomicU32);

impl OnceFlag {
    /// Sets the flag, and returns whether it was set before.
    #[inline]
    pub(super) fn set(&self) -> bool {
        let before = self.is_set();
        // Written only once, because all threads read this cache line.
        if !before {
            // Ordering: Relaxed, here and below. The flag publishes no other data.
            self.0.store(1, Relaxed);
        }
        before
    }

    #[inline]
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Relaxed) != 0
    }
}

impl Numbered for RuleSet {
    fn number(&self) -> u64 {
        self.number
    }
}

impl RuleSet {
    /// Creates a set without rules.
    pub(super) fn empty(hasher: &Hasher) -> Self {
        let names = HashMap::with_hasher(hasher.clone());
        Self {
            number: 0,
            names,
            overrides: Arc::default(),
            book: None,
            domains: Vec::new(),
            unknown_noted: OnceFlag::default(),
        }
    }

    /// Creates the rules of these domains, with the clients' usage under the rules in force now. If one rule fails, the
    /// whole load fails.
    pub(super) fn after(
        &self,
        domains: Vec<Domain>,
        options: &LoadOptions,
        (hasher, servers): (&Hasher, &Servers),
        snapshot: Option<&RulesSnapshot>,
        now: impl Fn() -> CheckTime,
    ) -> Result<(Self, Option<RestoreReport>), RulesError> {
        let (begun, mut restored) = (now(), Restored::default());
        let has_holds =
            options.hold_all || domains.iter().any(|domain| domain.rules().iter().any(holds_units));
        let book = self.book.clone().or_else(|| has_holds.then(|| held::new_book(hasher)));
        let mut prepared = Vec::with_capacity(domains.len());
        for mut domain in domains {
            let charging = options.charging(domain.charging);
            domain.charging = Some(charging);
            if options.hold_all && charging != Charging::CountFirst {
                domain.rules.iter_mut().for_each(|rule| rule.hold_by_default(has_room_for_debts));
            }
            let before = self.domain(domain.name());
            let mut of_classes: HashMap<&str, usize> = HashMap::new();
            let counters = domain.rules().iter().enumerate().map(|(index, rule)| {
                if rule.class.is_some() {
                    let first = *of_classes.entry(rule.counter()).or_insert(index);
                    if first != index {
                        return Ok(RuleCounter::SameAs(first));
                    }
                }
                let last = before.and_then(|before| before.by_identity(rule.counter()));
                let seen = last.and_then(|last| Some((&last.rule, last.values.as_ref()?)));
                let snapshot = snapshot.filter(|_| last.is_none());
                let saved = snapshot.and_then(|snapshot| {
                    snapshot.counter(domain.name(), rule, (hasher, begun), &mut restored)
                });
                let last = last.map(|last| &last.counter).or(saved.as_ref());
                let is_refused = options.quota && !servers.alone && rule.limit.blocks_on_server();
                let prepared = match is_refused {
                    true => Err(NoCounter::Refused(
                        "cannot be a quota: with store: redis, the server would block the key although another rule admits \
                         the request; remove the block, or use store: keyed",
                    )),
                    false => Counter::prepare(rule, charging, last, begun, (hasher, servers), book.as_ref()),
                };
                prepared
                    .and_then(|counter| {
                        let values = SeenValues::after(rule, charging, seen, hasher)?;
                        if let (Some(snapshot), Some(values)) = (snapshot, &values) {
                            snapshot.values(domain.name(), rule, values, begun);
                        }
                        Ok(RuleCounter::Own(counter, values))
                    })
                    .map_err(|error| RulesError::no_counter(domain.files.of(index), rule, error))
            });
            let counters = counters.collect::<Result<Vec<_>, _>>()?;
            prepared.push((domain, counters));
        }
        let report = snapshot.map(|snapshot| {
            self.restore_overrides(snapshot, (hasher, begun), &mut restored);
            snapshot.finish(restored, book.as_deref(), begun)
        });
        // All slow steps are finished at this point, and no later step can fail.
        prepared.iter().flat_map(|(_, counters)| counters).for_each(RuleCounter::close_last);
        let when = now();
        let overrides = Arc::clone(&self.overrides);
        let mut next = Self { number: self.number + 1, overrides, book, ..Self::empty(hasher) };
        for (domain, counters) in prepared {
            let before = self.domain(&domain.name);
            let domain = next.activate(domain, before, counters, when, (hasher, options));
            next.names.insert(domain.name.clone(), domain.index);
            next.domains.push(domain);
        }
        Ok((next, report))
    }

    /// Creates the rules of limits that requests have set before the snapshot.
    fn restore_overrides(
        &self,
        snapshot: &RulesSnapshot,
        (hasher, now): (&Hasher, CheckTime),
        restored: &mut Restored,
    ) {
        for (place, &(_, unit)) in self.overrides.iter().zip(UNITS) {
            let Some(mut active) =
                overrides::rule(unit).and_then(|rule| ActiveRule::new_override(rule, hasher))
            else {
                continue;
            };
            if let Some(counter) = snapshot.counter("", &active.rule, (hasher, now), restored) {
                active.counter = counter.of_rule(&active.rule, false, 0);
                // A request that sets a limit at this moment has created the rule.
                let _ = place.set(Some(active));
            }
        }
    }

    /// Returns the rules of limits that requests have set.
    pub(super) fn overrides(&self) -> impl Iterator<Item = &ActiveRule> {
        self.overrides.iter().filter_map(|place| place.get()?.as_ref())
    }

    /// Creates a set without rules, after the loads of an earlier process.
    pub(super) fn after_loads(number: u64, hasher: &Hasher) -> Self {
        Self { number, ..Self::empty(hasher) }
    }

    fn activate(
        &self,
        domain: Domain,
        before: Option<&ActiveDomain>,
        counters: Vec<RuleCounter>,
        when: CheckTime,
        (hasher, options): (&Hasher, &LoadOptions),
    ) -> ActiveDomain {
        let charging = domain.charging();
        let Domain { name, shadow, rules, tree, files, .. } = domain;
        let mut by_identity = HashMap::with_capacity_and_hasher(rules.len(), hasher.clone());
        by_identity.extend((0..).zip(&rules).map(|(index, rule)| (rule.identity.clone(), index)));
        // The next load finds the counter of classes, whatever classes it has.
        let of_classes = (0..).zip(&rules).filter(|(_, rule)| rule.class.is_some());
        by_identity.extend(of_classes.map(|(index, rule)| (rule.counter().into(), index)));
        let mut active: Vec<ActiveRule> = Vec::with_capacity(rules.len());
        for (rule, prepared) in rules.into_iter().zip(counters) {
            let before = before.and_then(|before| before.by_identity(&rule.identity));
            let meters = match before.filter(|before| before.rule.name == rule.name) {
                Some(same) => Arc::clone(&same.meters),
                None => Arc::new(Meters::new(&name, &rule.name).near_limit(options.near_limit)),
            };
            let (counter, values) = match prepared {
                RuleCounter::Own(prepared, values) => (prepared.finish(when), values),
                RuleCounter::SameAs(earlier) => (active[earlier].counter.clone(), None),
            };
            let counter = counter.of_rule(&rule, shadow || options.shadow, self.number);
            let addresses = tree.addresses(u32::try_from(active.len()).unwrap_or(u32::MAX));
            let matched_before = before.is_some_and(ActiveRule::has_matched);
            let held_name = rule.hold.is_some().then(|| CounterName::of(&name, &rule));
            active.push(ActiveRule {
                values,
                matched_before,
                held_name,
                ..ActiveRule::new(rule, addresses, counter, meters)
            });
        }
        let rules = active;
        ActiveDomain {
            index: u32::try_from(self.domains.len()).unwrap_or(u32::MAX),
            charging,
            shadow,
            quota: options.quota,
            files,
            asked: OnceFlag::default(),
            ever_asked: before.map(|before| Arc::clone(&before.ever_asked)).unwrap_or_default(),
            without_rule_noted: OnceFlag::default(),
            tree,
            #[cfg(feature = "redis")]
            has_shared: rules.iter().any(|rule| matches!(rule.counter, Counter::Shared(_))),
            book: self.book.clone().filter(|_| rules.iter().any(|active| holds_units(&active.rule))),
            rules,
            overrides: Arc::clone(&self.overrides),
            timer: CheckTimer::new(&name, TIMED),
            by_identity,
            name,
        }
    }

    /// Whether rules of this load, or of an earlier one, hold units.
    pub(super) const fn has_holds(&self) -> bool {
        self.book.is_some()
    }

    /// Returns the number of holds and of requests in progress.
    pub(super) fn holds(&self) -> usize {
        self.book.as_ref().map_or(0, |book| book.len())
    }

    /// Returns the counter with this name, also if no rule counts by it any more.
    pub(super) fn counter(&self, name: &CounterName) -> Option<&LocalCounter> {
        let active = self.domain(&name.domain)?.by_identity(&name.counter)?;
        // The identity can be that of a class by now, which counts together with the other classes.
        if active.rule.counter() == &*name.counter { active.counter.last_local() } else { None }
    }

    /// Returns the stores from which requests hold units, and which the rules of `next` do not use.
    pub(super) fn held_before(&self, next: &Self) -> impl Iterator<Item = &Arc<Generation<AnyStore>>> {
        self.domains.iter().flat_map(|domain| &domain.rules).filter_map(|active| {
            let (name, last) = (active.held_name.as_ref()?, &active.counter.last_local()?.generation);
            let is_same = next.counter(name).is_some_and(|next| Arc::ptr_eq(&next.generation, last));
            (!is_same).then_some(last)
        })
    }

    #[inline]
    pub(super) fn domain(&self, name: &str) -> Option<&ActiveDomain> {
        match &self.domains[..] {
            // Comparing with a single name is faster than hashing it.
            [only] => (*only.name == *name).then_some(only),
            _ => self.domain_at(*self.names.get(name)?),
        }
    }

    #[inline(always)]
    pub(super) fn domain_of(&self, domain: DomainId<'_>) -> Option<&ActiveDomain> {
        match domain {
            DomainId::Name(name) => self.domain(name),
            DomainId::Index(index) => self.domain_at(index),
        }
    }

    #[inline]
    pub(super) fn domain_at(&self, index: u32) -> Option<&ActiveDomain> {
        self.domains.get(index as usize)
    }
}

impl ActiveDomain {
    /// Returns the rule that counts the limits that requests set, if any request has set one.
    #[inline]
    pub(super) fn override_in_use(&self, unit: Unit) -> Option<&ActiveRule> {
        self.overrides.get(unit as usize)?.get()?.as_ref()
    }

    /// Returns the same rule, and creates it for the first such request. `None` if it could not be created.
    pub(super) fn override_of(&self, unit: Unit, hasher: &Hasher) -> Option<&ActiveRule> {
        let make = || ActiveRule::new_override(overrides::rule(unit)?, hasher);
        self.overrides.get(unit as usize)?.get_or_init(make).as_ref()
    }

    /// Returns the key of a limit that the request sets.
    pub(super) fn key_of_request<'r>(&self, descriptor: &Descriptor<'r>) -> CounterKey<'r> {
        CounterKey::of_request(&self.name, descriptor).bounded(|key| self.hash(key))
    }

    /// Returns a hash of a long key, with the seeds of this process.
    fn hash(&self, key: &str) -> u128 {
        let half = |half: u8| u128::from(self.by_identity.hasher().hash_one((half, key)));
        half(0) << u64::BITS | half(1)
    }

    /// Returns the rule with an index that was found in this set.
    pub(super) fn rule(&self, index: u32) -> Option<&ActiveRule> {
        let of_override = || {
            let unit = index.checked_sub(overrides::FIRST)?;
            self.overrides.get(unit as usize)?.get()?.as_ref()
        };
        self.rules.get(index as usize).or_else(of_override)
    }

    /// Searches the rules that apply to a descriptor.
    #[inline]
    pub(super) fn search(&self, descriptor: &Descriptor<'_>) -> FoundRules {
        self.tree.find(descriptor.entries(), descriptor.tier)
    }

    pub(super) const fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the rules that were found, with their indices.
    #[inline]
    pub(super) fn rules_of(&self, found: FoundRules) -> impl Iterator<Item = (u32, &ActiveRule)> {
        let found = found.rules();
        // The number of rules fits in 32 bits.
        let first = u32::try_from(found.start).unwrap_or(u32::MAX);
        (first..).zip(self.rules.get(found).unwrap_or_default())
    }

    /// Returns the rule that was found, with its index, if it is the only one.
    #[inline]
    pub(super) fn alone(&self, descriptor: &Descriptor<'_>, found: FoundRules) -> Option<(u32, &ActiveRule)> {
        if self.charging != Charging::AllOrNothing || self.quota || descriptor.limit.is_some() {
            return None;
        }
        let found = found.rules();
        let first = u32::try_from(found.start).ok()?;
        match self.rules.get(found) {
            Some([active]) => Some((first, active)),
            _ => None,
        }
    }

    /// Marks the domain as used by a request.
    #[inline]
    pub(super) fn note_asked(&self) {
        if !self.asked.set() {
            self.ever_asked.set();
        }
    }

    /// Whether a request used the domain, under this load or an earlier one.
    pub(super) fn was_asked(&self) -> bool {
        self.ever_asked.is_set()
    }

    /// Returns the rules that matched no request since this load. Empty before the domain's first request.
    pub(super) fn unmatched(&self) -> impl Iterator<Item = &ActiveRule> {
        self.rules.iter().filter(|active| self.asked.is_set() && !active.matched.is_set())
    }

    pub(super) fn by_identity(&self, identity: &str) -> Option<&ActiveRule> {
        self.rules.get(*self.by_identity.get(identity)? as usize)
    }

    pub(super) fn file_of(&self, identity: &str) -> Option<&str> {
        Some(self.files.of(*self.by_identity.get(identity)? as usize))
    }
}

impl ActiveRule {
    /// Creates a rule that belongs to no file and no load.
    fn new_override(rule: Rule, hasher: &Hasher) -> Option<Self> {
        let servers = Servers::default();
        let when = CheckTime::from_ns(0);
        let prepared =
            Counter::prepare(&rule, Charging::AllOrNothing, None, when, (hasher, &servers), None).ok()?;
        let counter = prepared.finish(when);
        let meters = Arc::new(Meters::new("", &rule.name));
        let counter = counter.of_rule(&rule, false, 0);
        Some(Self::new(rule, 0, counter, meters))
    }

    /// Creates a rule that reads the values of the entries in `addresses` as addresses.
    fn new(rule: Rule, addresses: u32, counter: Counter, meters: Arc<Meters>) -> Self {
        let kept = rule.kept();
        let (quota, window) = match &rule.limit {
            Amount::Unlimited => (u64::MAX, Duration::ZERO),
            Amount::Blocked { period } => (0, *period),
            Amount::InProgress { most, life } => (*most, *life),
            Amount::Limited { limit, .. } if limit.kind().has_burst() => {
                let own = limit.most() - kept;
                (own, refill_time(own, &limit.quota()))
            }
            Amount::Limited { limit, .. } => (limit.most() - kept, limit.quota().period()),
        };
        let keys_vary = rule.metric.levels.iter().any(|level| level.contains('*'));
        let is_fixed = match (&counter, &rule.limit) {
            (Counter::Local(_), Amount::Limited { limit, .. }) => limit.kind() == LimitKind::FixedWindow,
            (Counter::Local(_), Amount::Blocked { .. }) => true,
            _ => false,
        };
        let unit = Unit::of(window).filter(|_| is_fixed && !rule.shares_counters);
        let counted_by = rule.counted_by | rule.counted_by_key;
        let is_alone = counted_by.is_power_of_two() && !keys_vary;
        let entry = counted_by.trailing_zeros();
        let key_from = match rule.prefix {
            Some(bits) if is_alone => KeyFrom::Prefix(bits),
            None if is_alone && addresses & counted_by == 0 => KeyFrom::Entry(entry),
            None if is_alone => KeyFrom::Address(entry),
            None if addresses & rule.counted_by == 0 => KeyFrom::Parts,
            _ => KeyFrom::PartsWithAddresses,
        };
        let (part, matched) = (Part::of_all(&rule), OnceFlag::default());
        let is_rare = rule.distinct || holds_units(&rule) || !rule.replaces.is_empty();
        let is_plain = part == Some(Part::Enforced)
            && rule.soft == u64::MAX
            && !rule.distinct
            && rule.hold.is_none()
            && counter.local().is_some_and(|counter| counter.headroom == 0 && !counter.has_blocks());
        let values = None;
        Self {
            rule,
            counter,
            values,
            quota,
            window,
            unit,
            part,
            is_plain,
            is_rare,
            keys_vary,
            key_from,
            addresses,
            meters,
            matched,
            matched_before: false,
            held_name: None,
        }
    }

    /// Whether a request has matched the rule, under this load or an earlier one.
    pub(super) fn has_matched(&self) -> bool {
        self.matched_before || self.matched.is_set()
    }

    /// Returns the counter and the key of a request, if that counter alone decides. It does not if limits that requests
    /// set count together with the rule.
    #[inline]
    pub(super) fn plain<'r>(
        &self,
        domain: &ActiveDomain,
        descriptor: &Descriptor<'r>,
    ) -> Option<(&LocalCounter, &'r str)> {
        let Counter::Local(counter) = &self.counter else { return None };
        let (_, value) = match self.key_from {
            KeyFrom::Entry(entry) => descriptor.counted().get(entry as usize)?,
            KeyFrom::Address(entry) => {
                let entry = descriptor.counted().get(entry as usize)?;
                // The route counts other spellings of an address.
                if AddressText::instead_of(entry.1).is_some() {
                    return None;
                }
                entry
            }
            _ => return None,
        };
        let is_plain = self.is_plain && value.len() <= LONGEST && !self.counts_with_override(domain);
        is_plain.then_some((counter, value))
    }

    /// Whether limits that requests set count together with this rule. True only after a request has set one.
    #[inline]
    pub(super) fn counts_with_override(&self, domain: &ActiveDomain) -> bool {
        self.unit.is_some_and(|unit| domain.override_in_use(unit).is_some())
    }

    /// Returns the key under which the rule counts a request.
    #[inline]
    pub(super) fn key<'r>(&self, domain: &ActiveDomain, descriptor: &Descriptor<'r>) -> CounterKey<'r> {
        if let KeyFrom::Entry(entry) = self.key_from
            && let Some((_, value)) = descriptor.counted().get(entry as usize)
            && value.len() <= LONGEST
        {
            return CounterKey::Whole(value);
        }
        self.bounded_key(domain, descriptor)
    }

    /// Returns a key of any kind. Not inlined, so that the key of one value is written where it stays.
    #[inline(never)]
    fn bounded_key<'r>(&self, domain: &ActiveDomain, descriptor: &Descriptor<'r>) -> CounterKey<'r> {
        let key = self.whole_key(descriptor);
        match self.counter {
            // All processes that share a rule need the same key.
            #[cfg(feature = "redis")]
            Counter::Shared(_) => key.bounded(crate::edge::rules::counting::key_digest),
            _ => key.bounded(|key| domain.hash(key)),
        }
    }

    #[inline]
    fn whole_key<'r>(&self, descriptor: &Descriptor<'r>) -> CounterKey<'r> {
        let (entries, counted_by) = (descriptor.counted(), [self.rule.counted_by, self.rule.counted_by_key]);
        let value = |entry: u32| entries.get(entry as usize).map_or("", |(_, value)| value);
        match self.key_from {
            KeyFrom::Entry(entry) => CounterKey::Whole(value(entry)),
            KeyFrom::Address(entry) => CounterKey::of_address(value(entry)),
            // The lengths of the rule decide, and not the caller's.
            KeyFrom::Prefix(bits) => {
                CounterKey::of_prefix(descriptor.entries().last().map_or("", |(_, value)| value), bits)
            }
            KeyFrom::Parts => CounterKey::new(entries, counted_by, self.keys_vary),
            KeyFrom::PartsWithAddresses => {
                CounterKey::with_addresses(entries, counted_by, self.keys_vary, self.addresses_of(descriptor))
            }
        }
    }

    /// Returns the entries that are read as addresses, and the address and the bits of a prefix.
    fn addresses_of<'r>(&self, descriptor: &Descriptor<'r>) -> (u32, Option<(&'r str, u8)>) {
        let last = descriptor.entries().last();
        (self.addresses, self.rule.prefix.zip(last).map(|(bits, &(_, whole))| (whole, bits)))
    }

    /// Returns the key of a request with several values, for readers.
    pub(super) fn shown_key(&self, descriptor: &Descriptor<'_>) -> String {
        let counted_by = [self.rule.counted_by, self.rule.counted_by_key];
        CounterKey::shown(descriptor.counted(), counted_by, self.addresses_of(descriptor))
    }

    /// Returns the key and the value of an entry whose different values a rule counts.
    pub(super) fn value_of<'r>(&self, descriptor: &Descriptor<'r>) -> Option<(&'r str, CounterKey<'r>)> {
        let (&(key, value), before) = descriptor.counted().split_last()?;
        let entry = u32::try_from(before.len()).unwrap_or(u32::MAX);
        let is_address = self.addresses.checked_shr(entry).unwrap_or_default() & 1 == 1;
        Some((key, if is_address { CounterKey::of_address(value) } else { CounterKey::Whole(value) }))
    }

    /// Returns the hash of a key of the rule in the book: among the requests in progress, or among the holds.
    pub(super) fn hash_in(&self, book: &RuleBook, in_progress: bool, key: &str) -> u64 {
        book.hash(&(in_progress, self.rule.counter(), key))
    }

    /// Whether the rules that are in force now use the same counter as this rule.
    pub(super) fn still_counts(&self, domain: Option<&ActiveDomain>) -> bool {
        let now = domain.and_then(|domain| domain.by_identity(&self.rule.identity));
        now.is_some_and(|now| now.counter.is(&self.counter))
    }
}

/// Whether requests hold units of the rule.
fn holds_units(rule: &Rule) -> bool {
    rule.hold_life().is_some()
}

/// Returns the time in which these units refill, rounded up.
fn refill_time(units: u64, quota: &Quota) -> Duration {
    let ns = (u128::from(units) * u128::from(quota.period_ns())).div_ceil(u128::from(quota.limit()));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}
