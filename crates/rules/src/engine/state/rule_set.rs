//! The rules in force: trees that match requests, and a counter for each rule.

use std::collections::HashMap;
use std::mem::offset_of;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tollgate::internals::CheckTime;
use tollgate::internals::migrate::{Generation, Numbered};
use tollgate::internals::prefetch;
use tollgate::internals::sync::Ordering::Relaxed;
use tollgate::internals::sync::{AtomicU32, AtomicUsize};
use tollgate::stores::AnyStore;
use tollgate::telemetry::{CheckTimer, Meters};
use tollgate::{LimitKind, Quota};
use tollgate_config::internals::{FoundRules, RuleFiles, Tree, is_same};
use tollgate_config::{Amount, Charging, Rule, TimeUnit};

use super::counter::{Counter, LocalCounter};
use super::held::{CounterName, RuleBook};
use super::overrides;
use super::role::Role;
use super::values::SeenValues;
use crate::counting::{Hasher, Servers};
use crate::descriptor::{CounterKey, Descriptor, KeyTexts, LONGEST};

/// Each thread times one in this number of checks, on average.
pub(super) const TIMED: u32 = 128;

/// All rules of all domains from one load.
#[derive(Debug)]
pub(in crate::engine) struct RuleSet {
    pub(super) number: u64,
    pub(super) names: HashMap<Box<str>, u32, Hasher>,
    pub(super) overrides: Arc<Overrides>,
    /// The units that requests hold. All loads share it from the first load that needs it.
    pub(in crate::engine) book: Option<Arc<RuleBook>>,
    pub(in crate::engine) domains: Vec<ActiveDomain>,
    /// Set by the first logged request with a domain that has no rules.
    pub(in crate::engine) unknown_noted: OnceFlag,
}

/// Names one domain of a set.
#[derive(Copy, Clone, Debug)]
pub(in crate::engine) enum DomainId<'a> {
    Name(&'a str),
    /// The domain was looked up before.
    Index(u32),
}

/// The rules of one domain.
#[derive(Debug)]
pub(in crate::engine) struct ActiveDomain {
    /// The index of the domain.
    pub(in crate::engine) index: u32,
    pub(in crate::engine) name: Box<str>,
    pub(in crate::engine) charging: Charging,
    /// Whether its files make all its rules a dry run.
    pub(in crate::engine) shadow: bool,
    /// Whether its files or the program do.
    pub(in crate::engine) is_dry_run: bool,
    /// Whether all its rules are quotas.
    pub(in crate::engine) quota: bool,
    /// Whether the stores of its rules may decide a request alone, if all rules of the request are plain.
    pub(in crate::engine) has_plain: bool,
    /// The files of its rules.
    pub(in crate::engine) files: RuleFiles,
    /// Set by the domain's first request since this load.
    pub(super) asked: OnceFlag,
    /// Set by the domain's first request under any load; all loads share this flag.
    pub(super) ever_asked: Arc<OnceFlag>,
    /// Set by the first logged request to which no rule applied since this load.
    pub(in crate::engine) without_rule_noted: OnceFlag,
    pub(super) tree: Tree,
    pub(in crate::engine) rules: Vec<ActiveRule>,
    /// The units that requests hold, if some rules have `hold` or `in_progress`.
    pub(in crate::engine) book: Option<Arc<RuleBook>>,
    /// Whether some of them are shared by processes.
    #[cfg(feature = "tokio")]
    pub(in crate::engine) has_shared: bool,
    pub(super) overrides: Arc<Overrides>,
    pub(in crate::engine) timer: CheckTimer,
    pub(super) by_identity: HashMap<Box<str>, u32, Hasher>,
}

/// A rule with its counter. What a check of a plain rule reads comes first, up to the middle of the counter, and fills one
/// cache line: with thousands of rules, each check waits for every line that it reads.
#[derive(Debug)]
#[repr(C, align(64))]
pub(in crate::engine) struct ActiveRule {
    /// Whether the rule matched a request since this load.
    pub(in crate::engine) matched: Matched,
    /// The unit for which limits that requests set count together with this rule.
    pub(in crate::engine) unit: Option<TimeUnit>,
    /// The role that the rule has in every request, or `None` if the request's key or the time decides.
    pub(in crate::engine) role: Option<Role>,
    /// Whether the rule is plain: it is enforced for every request, has no soft limit, and is counted by one value or prefix, or by
    /// none, in a store of this process, without headroom and without blocks. Its charges can be refunded.
    is_plain: bool,
    /// Whether the rule replaces others, or counts values.
    pub(in crate::engine) is_rare: bool,
    /// The index of the entry whose value is the key, if the rule is plain and needs nothing else. Otherwise [`u32::MAX`], so that no
    /// request has this entry: one comparison then tells both.
    plain_entry: u32,
    pub(in crate::engine) meters: Meters,
    pub(in crate::engine) counter: Counter,
    /// The content of the rule. It is apart, so that more rules fit in a page.
    pub(in crate::engine) rule: Box<Rule>,
    /// The admitted values of a rule that counts different values.
    pub(in crate::engine) values: Option<Arc<SeenValues>>,
    /// The units that a fresh key may use at once, and the time in which they refill.
    pub(in crate::engine) quota: u64,
    pub(in crate::engine) window: Duration,
    /// The entries whose values are read as addresses, one bit for each.
    addresses: u32,
    key_from: KeyFrom,
    /// Whether requests with other keys have separate counters.
    keys_vary: bool,
    /// Whether a request matched it before this load.
    pub(super) matched_before: bool,
    /// The name of the counter, if requests hold units of it.
    pub(in crate::engine) held_name: Option<Arc<CounterName>>,
}

/// What the key of a rule is made of.
#[derive(Copy, Clone, Debug)]
enum KeyFrom {
    /// Nothing: all requests have one counter.
    Nothing,
    /// The value of one entry.
    Entry(u8),
    /// The value of one entry that is read as an address.
    Address(u8),
    /// The prefix of the last entry's address with this number of bits.
    Prefix(u8),
    /// Several parts.
    Parts,
    /// Several parts, of which some are read as addresses, or the last one is a prefix.
    PartsWithAddresses,
}

/// The rules of limits that requests set: one for each unit that a request has used.
type Overrides = [OnceLock<Option<ActiveRule>>; 7];

/// A flag that any thread sets and no thread clears.
#[derive(Debug, Default)]
pub(in crate::engine) struct OnceFlag(AtomicU32);

impl OnceFlag {
    /// Sets the flag, and returns whether it was set before.
    #[inline]
    pub(in crate::engine) fn set(&self) -> bool {
        let before = self.is_set();
        // Written only once, because all threads read this cache line.
        if !before {
            // Ordering: Relaxed, here and below. The flag publishes no other data.
            self.0.store(1, Relaxed);
        }
        before
    }

    #[inline]
    pub(in crate::engine) fn is_set(&self) -> bool {
        self.0.load(Relaxed) != 0
    }
}

/// Whether a rule matched a request, and where its checks read memory after that of its store. With thousands of rules, a check
/// would wait for the store, and then for the memory to which the store points.
#[derive(Debug, Default)]
pub(in crate::engine) struct Matched(AtomicUsize);

/// [`Matched`] as long as no charge has created that memory. Otherwise its address, or 0 before the first request.
const WITHOUT_ADDRESS: usize = 1;

/// The lines at that address: the list of a compact store's first keys has three.
const FIRST_LINES: [usize; 3] = [0, 64, 128];

impl Matched {
    // Ordering: Relaxed, here and below. The address is only a hint.
    #[inline]
    fn get(&self) -> usize {
        self.0.load(Relaxed)
    }

    pub(in crate::engine) fn is_set(&self) -> bool {
        self.get() != 0
    }
}

impl Numbered for RuleSet {
    fn number(&self) -> u64 {
        self.number
    }
}

impl RuleSet {
    /// Creates a set without rules, after this number of loads.
    pub(in crate::engine) fn empty(number: u64, hasher: &Hasher) -> Self {
        Self {
            number,
            names: HashMap::with_hasher(hasher.clone()),
            overrides: Arc::default(),
            book: None,
            domains: Vec::new(),
            unknown_noted: OnceFlag::default(),
        }
    }

    /// Returns the rules of limits that requests have set.
    pub(super) fn overrides(&self) -> impl Iterator<Item = &ActiveRule> {
        self.overrides.iter().filter_map(|place| place.get()?.as_ref())
    }

    /// Whether rules of this load, or of an earlier one, hold units.
    pub(in crate::engine) const fn has_holds(&self) -> bool {
        self.book.is_some()
    }

    /// Returns the number of holds and of requests in progress.
    pub(in crate::engine) fn holds(&self) -> usize {
        self.book.as_ref().map_or(0, |book| book.len())
    }

    /// Returns the counter with this name, also if no rule counts by it any more.
    pub(in crate::engine) fn counter(&self, name: &CounterName) -> Option<&LocalCounter> {
        let active = self.domain(&name.domain)?.by_identity(&name.counter)?;
        // The identity can be that of a class by now, which counts together with the other classes.
        if active.rule.counter() == &*name.counter { active.counter.last_local() } else { None }
    }

    /// Returns the stores from which requests hold units, and which the rules of `next` do not use.
    pub(in crate::engine) fn held_before(
        &self,
        next: &Self,
    ) -> impl Iterator<Item = &Arc<Generation<AnyStore>>> {
        self.domains.iter().flat_map(|domain| &domain.rules).filter_map(|active| {
            let (name, last) = (active.held_name.as_ref()?, &active.counter.last_local()?.generation);
            let is_same = next.counter(name).is_some_and(|next| Arc::ptr_eq(&next.generation, last));
            (!is_same).then_some(last)
        })
    }

    #[inline(always)]
    pub(in crate::engine) fn domain(&self, name: &str) -> Option<&ActiveDomain> {
        match &self.domains[..] {
            // Comparing with a single name is faster than hashing it, and needs no call.
            [only] => is_same(&only.name, name).then_some(only),
            _ => self.domain_by_hash(name),
        }
    }

    /// Not inlined: a request with a single domain would save its registers.
    #[inline(never)]
    fn domain_by_hash(&self, name: &str) -> Option<&ActiveDomain> {
        self.domain_at(*self.names.get(name)?)
    }

    #[inline(always)]
    pub(in crate::engine) fn domain_of(&self, domain: DomainId<'_>) -> Option<&ActiveDomain> {
        match domain {
            DomainId::Name(name) => self.domain(name),
            DomainId::Index(index) => self.domain_at(index),
        }
    }

    #[inline]
    pub(in crate::engine) fn domain_at(&self, index: u32) -> Option<&ActiveDomain> {
        self.domains.get(index as usize)
    }
}

impl ActiveDomain {
    /// Returns the rule that counts the limits that requests set, if any request has set one.
    #[inline]
    pub(in crate::engine) fn override_in_use(&self, unit: TimeUnit) -> Option<&ActiveRule> {
        self.overrides.get(unit as usize)?.get()?.as_ref()
    }

    /// Returns the same rule, and creates it for the first such request. `None` if it could not be created.
    pub(in crate::engine) fn override_of(&self, unit: TimeUnit, hasher: &Hasher) -> Option<&ActiveRule> {
        let make = || ActiveRule::new_override(overrides::rule(unit)?, hasher);
        self.overrides.get(unit as usize)?.get_or_init(make).as_ref()
    }

    /// Returns the key of a limit that the request sets.
    pub(in crate::engine) fn key_of_request<'r>(&self, descriptor: &Descriptor<'r>) -> CounterKey<'r> {
        CounterKey::of_request(&self.name, descriptor).bounded(|key| self.hash(key))
    }

    /// Returns a hash of a long key, with the seeds of this process.
    fn hash(&self, key: &str) -> u128 {
        let half = |half: u8| u128::from(self.by_identity.hasher().hash_one((half, key)));
        half(0) << u64::BITS | half(1)
    }

    /// Returns the rule with an index that was found in this set.
    pub(in crate::engine) fn rule(&self, index: u32) -> Option<&ActiveRule> {
        let of_override = || {
            let unit = index.checked_sub(overrides::FIRST)?;
            self.overrides.get(unit as usize)?.get()?.as_ref()
        };
        self.rules.get(index as usize).or_else(of_override)
    }

    /// Searches the rules that apply to a descriptor.
    #[inline(always)]
    pub(in crate::engine) fn search(&self, descriptor: &Descriptor<'_>) -> FoundRules {
        self.tree.find(descriptor.entries(), descriptor.tier)
    }

    pub(in crate::engine) const fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the rule that was found, if it is the only one.
    #[inline(always)]
    pub(in crate::engine) fn only(&self, found: FoundRules) -> Option<&ActiveRule> {
        let numbers = found.numbers();
        if numbers.end.wrapping_sub(numbers.start) != 1 {
            return None;
        }
        self.rules.get(numbers.start as usize)
    }

    /// Returns the rules that were found, with their indices.
    #[inline]
    pub(in crate::engine) fn rules_of(&self, found: FoundRules) -> impl Iterator<Item = (u32, &ActiveRule)> {
        (found.numbers().start..).zip(self.rules.get(found.rules()).unwrap_or_default())
    }

    /// Marks the domain as used by a request.
    #[inline]
    pub(in crate::engine) fn note_asked(&self) {
        if !self.asked.set() {
            self.ever_asked.set();
        }
    }

    /// Whether a request used the domain, under this load or an earlier one.
    pub(in crate::engine) fn was_asked(&self) -> bool {
        self.ever_asked.is_set()
    }

    /// Returns the rules that matched no request since this load. Empty before the domain's first request.
    pub(in crate::engine) fn unmatched(&self) -> impl Iterator<Item = &ActiveRule> {
        self.rules.iter().filter(|active| self.asked.is_set() && !active.matched.is_set())
    }

    pub(in crate::engine) fn by_identity(&self, identity: &str) -> Option<&ActiveRule> {
        self.rules.get(*self.by_identity.get(identity)? as usize)
    }

    pub(in crate::engine) fn file_of(&self, identity: &str) -> Option<&str> {
        Some(self.files.of(*self.by_identity.get(identity)? as usize))
    }
}

impl ActiveRule {
    /// Creates a rule that belongs to no file and no load.
    pub(super) fn new_override(rule: Rule, hasher: &Hasher) -> Option<Self> {
        let servers = Servers::default();
        let when = CheckTime::from_ns(0);
        let prepared =
            Counter::prepare(&rule, Charging::AllOrNothing, None, when, (hasher, &servers), None).ok()?;
        let counter = prepared.finish(when);
        let meters = Meters::new("", &rule.name);
        let counter = counter.of_rule(&rule, false, 0);
        Some(Self::new(rule, 0, counter, meters))
    }

    /// Creates a rule that reads the values of the entries in `addresses` as addresses.
    pub(super) fn new(rule: Rule, addresses: u32, counter: Counter, meters: Meters) -> Self {
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
        let unit = TimeUnit::of(window).filter(|_| is_fixed && !rule.shares_counters);
        let counted_by = rule.counted_by | rule.counted_by_key;
        let is_alone = counted_by.is_power_of_two() && !keys_vary;
        let entry = u8::try_from(counted_by.trailing_zeros()).unwrap_or(u8::MAX);
        let key_from = match rule.prefix {
            Some(bits) if is_alone => KeyFrom::Prefix(bits),
            None if is_alone && addresses & counted_by == 0 => KeyFrom::Entry(entry),
            None if is_alone => KeyFrom::Address(entry),
            None if counted_by == 0 => KeyFrom::Nothing,
            None if addresses & rule.counted_by == 0 => KeyFrom::Parts,
            _ => KeyFrom::PartsWithAddresses,
        };
        let (role, matched) = (Role::of_all(&rule), Matched::default());
        let is_rare = rule.distinct || holds_units(&rule) || !rule.replaces.is_empty();
        let is_plain = role == Some(Role::Enforced)
            && rule.soft == u64::MAX
            && !is_rare
            && !matches!(key_from, KeyFrom::Parts | KeyFrom::PartsWithAddresses)
            && counter.local().is_some_and(LocalCounter::is_plain);
        let plain_entry = match key_from {
            KeyFrom::Entry(entry) if is_plain => entry.into(),
            _ => u32::MAX,
        };
        let values = None;
        Self {
            rule: Box::new(rule),
            counter,
            values,
            quota,
            window,
            unit,
            role,
            is_plain,
            is_rare,
            keys_vary,
            key_from,
            addresses,
            plain_entry,
            meters,
            matched,
            matched_before: false,
            held_name: None,
        }
    }

    /// Notes that a request matched the rule, and requests the memory of its counter in advance.
    #[inline(always)]
    pub(in crate::engine) fn note_match(&self) {
        let address = self.matched.get();
        if address <= WITHOUT_ADDRESS {
            self.note_states();
        } else {
            for offset in FIRST_LINES {
                prefetch(ptr::without_provenance::<u8>(address.wrapping_add(offset)));
            }
        }
    }

    /// Notes where the states of the counter are. They move when a store creates its table. No check looks for that, so the hint
    /// is of no use from then on, until a request is denied or a load comes.
    #[cold]
    #[inline(never)]
    pub(in crate::engine) fn note_states(&self) {
        let address = match &self.counter {
            Counter::Local(local) => local.store.get().states_address().unwrap_or(WITHOUT_ADDRESS),
            _ => ptr::from_ref(self).addr(),
        };
        // Written rarely, because all threads read this cache line.
        if address != self.matched.get() {
            self.matched.0.store(address, Relaxed);
        }
    }

    /// Whether a request has matched the rule, under this load or an earlier one.
    pub(in crate::engine) fn has_matched(&self) -> bool {
        self.matched_before || self.matched.is_set()
    }

    /// Returns the counter and the key of a request, if the rule is plain and limits that requests set do not count together
    /// with it. `texts` has room for a key that the request does not have itself.
    #[inline(always)]
    pub(in crate::engine) fn plain<'r>(
        &self,
        domain: &ActiveDomain,
        descriptor: &Descriptor<'r>,
        texts: Option<&'r KeyTexts>,
    ) -> Option<(&LocalCounter, &'r str)> {
        let Counter::Local(counter) = &self.counter else { return None };
        let key = match descriptor.counted().get(self.plain_entry as usize) {
            Some(&(_, value)) => value,
            None => self.other_plain_key(descriptor, texts)?,
        };
        (key.len() <= LONGEST && !self.counts_with_override(domain)).then_some((counter, key))
    }

    /// Returns the key of a request under a plain rule whose key needs more than an entry. `None` if the rule is not plain, or there
    /// is no room for the key.
    #[inline(never)]
    fn other_plain_key<'r>(
        &self,
        descriptor: &Descriptor<'r>,
        texts: Option<&'r KeyTexts>,
    ) -> Option<&'r str> {
        match self.key_from {
            _ if !self.is_plain => None,
            KeyFrom::Nothing => Some(""),
            KeyFrom::Address(entry) => {
                let &(_, value) = descriptor.counted().get(usize::from(entry))?;
                CounterKey::of_address(value).kept_in(texts)
            }
            _ => self.whole_key(descriptor).kept_in(texts),
        }
    }

    /// Whether a request may be decided by the rule's store alone.
    pub(in crate::engine) const fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Whether limits that requests set count together with this rule. True only after a request has set one.
    #[inline]
    pub(in crate::engine) fn counts_with_override(&self, domain: &ActiveDomain) -> bool {
        self.unit.is_some_and(|unit| domain.override_in_use(unit).is_some())
    }

    /// Returns the key under which the rule counts a request.
    #[inline]
    pub(in crate::engine) fn key<'r>(
        &self,
        domain: &ActiveDomain,
        descriptor: &Descriptor<'r>,
    ) -> CounterKey<'r> {
        if let KeyFrom::Entry(entry) = self.key_from
            && let Some((_, value)) = descriptor.counted().get(usize::from(entry))
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
            Counter::Shared(_) => key.bounded(crate::counting::key_digest),
            _ => key.bounded(|key| domain.hash(key)),
        }
    }

    #[inline]
    fn whole_key<'r>(&self, descriptor: &Descriptor<'r>) -> CounterKey<'r> {
        let (entries, counted_by) = (descriptor.counted(), [self.rule.counted_by, self.rule.counted_by_key]);
        let value = |entry: u8| entries.get(usize::from(entry)).map_or("", |(_, value)| value);
        match self.key_from {
            KeyFrom::Nothing => CounterKey::Whole(""),
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
    pub(in crate::engine) fn shown_key(&self, descriptor: &Descriptor<'_>) -> String {
        let counted_by = [self.rule.counted_by, self.rule.counted_by_key];
        CounterKey::shown(descriptor.counted(), counted_by, self.addresses_of(descriptor))
    }

    /// Returns the key and the value of an entry whose different values a rule counts.
    pub(in crate::engine) fn value_of<'r>(
        &self,
        descriptor: &Descriptor<'r>,
    ) -> Option<(&'r str, CounterKey<'r>)> {
        let (&(key, value), before) = descriptor.counted().split_last()?;
        let entry = u32::try_from(before.len()).unwrap_or(u32::MAX);
        let is_address = self.addresses.checked_shr(entry).unwrap_or_default() & 1 == 1;
        Some((key, if is_address { CounterKey::of_address(value) } else { CounterKey::Whole(value) }))
    }

    /// Returns the hash of a key of the rule in the book: among the requests in progress, or among the holds.
    pub(in crate::engine) fn hash_in(&self, book: &RuleBook, in_progress: bool, key: &str) -> u64 {
        book.hash(&(in_progress, self.rule.counter(), key))
    }

    /// Whether the rules that are in force now use the same counter as this rule.
    pub(in crate::engine) fn still_counts(&self, domain: Option<&ActiveDomain>) -> bool {
        let now = domain.and_then(|domain| domain.by_identity(&self.rule.identity));
        now.is_some_and(|now| now.counter.is(&self.counter))
    }
}

/// Whether requests hold units of the rule.
pub(super) fn holds_units(rule: &Rule) -> bool {
    rule.hold_life().is_some()
}

const _: () =
    assert!(LocalCounter::READ + size_of::<u64>() + offset_of!(ActiveRule, counter) <= 64, "one line");

/// Returns the time in which these units refill, rounded up.
fn refill_time(units: u64, quota: &Quota) -> Duration {
    let ns = (u128::from(units) * u128::from(quota.period_ns())).div_ceil(u128::from(quota.limit()));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}
