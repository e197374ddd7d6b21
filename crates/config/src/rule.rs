//! The content of a rule, after it has been read and checked.

use std::fmt;
use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use tollgate::{Capacity, Class, Limit, LimitKind, StoreConfig, StoreKind};

/// A limit on the requests that match one descriptor of the file.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Rule {
    /// The identity of the rule across loads: the entries that lead to it, and which limit of them it is. If the
    /// identity stays the same, clients keep their usage when the rule's numbers change.
    pub identity: Box<str>,
    /// The name in header fields, problem documents, logs and metrics: `rate_limit.name`, or the name of the rule's
    /// metrics if that is absent.
    pub name: Box<str>,
    /// Whether the file sets `name`. Only then can `replaces` of other rules refer to it.
    pub is_named: bool,
    /// How much the rule admits.
    pub limit: Amount,
    /// The soft limit. A request is admitted but marked if it leaves more units than this in use. `u64::MAX` if there
    /// is no soft limit.
    pub soft: u64,
    /// Whether the rule counts and reports, but denies nothing.
    pub shadow: bool,
    /// Whether the rule denies a request only if all such rules of the request deny it.
    pub quota_mode: bool,
    /// The number of keys in a million for which the rule is enforced. For the other keys, it acts like `shadow`.
    pub enforced_per_million: u32,
    /// Whether header fields and problem documents mention the rule.
    pub headers: bool,
    /// How requests hold units of the limit, if its `rate_limit` has `hold`.
    pub hold: Option<Box<RuleHold>>,
    /// The class of requests that the rule limits, if its descriptor has `classes`.
    pub class: Option<Box<RuleClass>>,
    /// The names of rules that this rule disables for the same request.
    pub replaces: Vec<Box<str>>,
    /// The entries that have a counter for each key and value; the first entry is the lowest bit. With no bit set, all
    /// requests share one counter.
    pub counted_by: u32,
    /// The other entries that have a counter for each key: those with `share_threshold` and a `*` in their key.
    pub counted_by_key: u32,
    /// For a rule of `prefixes`: how many leading bits of an address count. The address is the last value of the
    /// request. A value that is not an address counts as it is.
    pub prefix: Option<u8>,
    /// Whether the rule limits the number of different values of the last entry, for each key of the other entries:
    /// `distinct: true`.
    pub distinct: bool,
    /// Whether requests of different keys or values share a counter: `share_threshold`, `classes`, `prefixes` or
    /// `distinct`.
    pub shares_counters: bool,
    /// The name of the rule's metrics.
    pub metric: Metric,
    /// The `metadata` of the descriptor, a [map](Metadata::Map). Rules of one descriptor share it. It has no effect on
    /// decisions; a service can pass it on to its clients.
    pub metadata: Option<Arc<Metadata>>,
    /// The rule's line, from 1.
    pub line: usize,
}

impl Rule {
    /// Returns a rule with this limit, which sets nothing else and has no place in a file: no identity and no name.
    #[doc(hidden)]
    #[must_use]
    pub fn of(limit: Amount, line: usize) -> Self {
        Self {
            identity: Box::default(),
            name: Box::default(),
            is_named: false,
            limit,
            soft: u64::MAX,
            shadow: false,
            quota_mode: false,
            enforced_per_million: MILLION,
            headers: true,
            hold: None,
            class: None,
            replaces: Vec::new(),
            counted_by: 0,
            counted_by_key: 0,
            prefix: None,
            distinct: false,
            shares_counters: false,
            metric: Metric::default(),
            metadata: None,
            line,
        }
    }

    /// Returns what the rule sets, as names and values: what the reports of loads, `tollgate rules check` and the debug
    /// pages of `tollgate serve` show. The rule's place in the file is not a setting.
    ///
    /// # Examples
    /// ```
    /// use tollgate_config::{Config, SettingValue};
    ///
    /// let config = Config::from_yaml("limits.yaml", "
    /// domain: shop
    /// descriptors:
    ///   - key: user
    ///     shadow_mode: true
    ///     rate_limit: { unit: day, requests_per_unit: 100 }
    /// ")?;
    /// let settings = config.rules()[0].settings();
    /// assert!(settings.contains(&("limit", SettingValue::Text("100/d".into()))));
    /// assert!(settings.contains(&("shadow", SettingValue::Flag { is_on: true, default: false })));
    /// # Ok::<(), tollgate_config::ConfigError>(())
    /// ```
    #[must_use]
    pub fn settings(&self) -> Vec<(&'static str, SettingValue<'_>)> {
        // Without `..`, so that the compiler asks for each new field: is it a setting?
        let Self {
            identity: _,
            name,
            is_named: _,
            limit,
            soft,
            shadow,
            quota_mode,
            enforced_per_million,
            headers,
            hold,
            class,
            replaces,
            counted_by,
            counted_by_key: _,
            prefix: _,
            distinct,
            shares_counters: _,
            metric,
            metadata,
            line: _,
        } = self;
        let text = |text: Option<String>| SettingValue::Text(text.unwrap_or_else(|| NONE.to_owned()));
        let flag = |is_on: &bool, default| SettingValue::Flag { is_on: *is_on, default };
        let algorithm = match limit {
            Amount::Limited { limit, .. } => Some(limit.kind().name().to_owned()),
            Amount::Unlimited | Amount::Blocked { .. } | Amount::InProgress { .. } => None,
        };
        let hold = hold.as_deref().map(|hold| format!("{:?}, at most {} units", hold.life, hold.most));
        // The entries with separate counters, from 1.
        let entries = (0..u32::BITS).filter(|bit| counted_by >> bit & 1 == 1).map(|bit| bit + 1);
        vec![
            ("limit", SettingValue::Text(limit.to_string())),
            ("algorithm", text(algorithm)),
            ("store", text(self.store_text())),
            ("distinct", SettingValue::Text(distinct.to_string())),
            ("soft", SettingValue::Units(Some(*soft).filter(|&soft| soft < u64::MAX))),
            ("shadow", flag(shadow, false)),
            ("quota_mode", flag(quota_mode, false)),
            ("enforced per million", SettingValue::PerMillion(*enforced_per_million)),
            ("headers", flag(headers, true)),
            ("class", SettingValue::Class(class.as_deref())),
            ("hold", text(hold)),
            ("replaces", SettingValue::Names(replaces)),
            ("name", SettingValue::Text(format!("{name:?}"))),
            ("counted by", SettingValue::Text(format!("{:?}", entries.collect::<Vec<_>>()))),
            ("metric", SettingValue::Text(format!("{:?} {:b}", metric.levels, metric.with_value))),
            ("metadata", text(metadata.as_ref().map(|map| format!("{map:?}")))),
        ]
    }

    /// Writes `keyed of 5 keys`.
    fn store_text(&self) -> Option<String> {
        let Amount::Limited { store, .. } = &self.limit else { return None };
        Some(match store {
            None => self.store_kind()?.to_string(),
            Some(Store::Local(config)) => config.to_string(),
            Some(named @ Store::Redis(Shared { mode, on_failure, processes, timeout })) => format!(
                "{named} (mode {mode}, on_failure {on_failure}, processes {processes}, timeout {timeout:?})"
            ),
        })
    }

    /// Returns the name of the rule's metrics for a request: `files.tenant_acme.method`.
    #[must_use]
    pub fn metric_name(&self, domain: &str, entries: &[(&str, &str)]) -> String {
        self.metric.name(domain, entries)
    }

    /// Whether all requests share one counter.
    #[inline]
    #[must_use]
    pub const fn has_one_counter(&self) -> bool {
        self.counted_by | self.counted_by_key == 0
    }

    /// Returns the identity of the rule's counter: the identity of the rule, unless several classes share the counter.
    #[must_use]
    pub fn counter(&self) -> &str {
        self.class.as_ref().map_or(&self.identity, |class| &class.counter)
    }

    /// Returns the units of the limit that the rule leaves to other classes. 0 for a rule without a class.
    #[must_use]
    pub fn kept(&self) -> u64 {
        match (&self.class, &self.limit) {
            (Some(class), Amount::Limited { limit, .. }) => class.share.headroom(limit.most()),
            _ => 0,
        }
    }

    /// Returns how long a request holds units of the rule at most, if it does. For a limit on requests in progress, this is the
    /// longest time for which a request counts.
    #[inline]
    #[must_use]
    pub fn hold_life(&self) -> Option<Duration> {
        match (&self.limit, &self.hold) {
            (Amount::InProgress { life, .. }, _) => Some(*life),
            (_, hold) => hold.as_ref().map(|hold| hold.life),
        }
    }

    /// Whether processes share it: `store: redis`.
    #[inline]
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        matches!(self.limit, Amount::Limited { store: Some(Store::Redis(_)), .. })
    }
}

/// The value of a setting: see [`Rule::settings`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SettingValue<'a> {
    /// Whether the rule does something.
    Flag {
        /// Whether it does.
        is_on: bool,
        /// Whether a rule does that does not set it.
        default: bool,
    },
    /// A number of units, if it is set.
    Units(Option<u64>),
    /// A number of keys in a million.
    PerMillion(u32),
    /// The names of other rules.
    Names(&'a [Box<str>]),
    /// The class, if the rule has one.
    Class(Option<&'a RuleClass>),
    /// The text of a setting that [`Rule`] has as a type of its own, such as its limit.
    Text(String),
}

const NONE: &str = "none";

impl fmt::Display for SettingValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag { is_on, .. } => write!(f, "{is_on}"),
            Self::Units(Some(units)) => write!(f, "{units}"),
            Self::PerMillion(keys) => write!(f, "{keys}"),
            Self::Names(names) => write!(f, "{names:?}"),
            Self::Class(Some(class)) => write!(f, "{} of {} per million", class.name, class.share.share()),
            Self::Units(None) | Self::Class(None) => f.write_str(NONE),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// A class of requests: one value of a descriptor with `classes`.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RuleClass {
    /// The value of the request's entry, or `*` for all values that no other class has.
    pub name: Box<str>,
    /// The share of the burst.
    pub share: Class,
    /// The identity of the counter, which is the same for all classes of the descriptor.
    pub counter: Box<str>,
}

/// How requests hold units of a rule: they take the units at their start, and settle them at their end.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RuleHold {
    /// How long a hold lives at most.
    pub life: Duration,
    /// The most units that the holds of a key can have at the same time.
    pub most: u64,
    /// The units that a request with a cost of 0 holds, if there are any. A later request with a cost settles the hold.
    pub units: Option<u64>,
}

/// How much a rule admits.
#[derive(Clone, PartialEq, Debug)]
pub enum Amount {
    /// Everything, without counting.
    Unlimited,
    /// Nothing: `requests_per_unit: 0`.
    Blocked {
        /// The unit.
        period: Duration,
    },
    /// A number of requests in progress at the same time: `in_progress`.
    InProgress {
        /// The number.
        most: u64,
        /// How long a request counts at most.
        life: Duration,
    },
    /// A limit.
    Limited {
        /// The quota, and its algorithm.
        limit: Limit,
        /// The store, which the first charge creates. `None` is the default: a compact store of 1 MiB, or a keyed store
        /// if a compact store cannot hold the limit.
        store: Option<Store>,
    },
}

impl Amount {
    /// Whether the limit has a `block`, and a server that processes share blocks its keys.
    #[must_use]
    pub const fn blocks_on_server(&self) -> bool {
        matches!(self, Self::Limited { limit, store: Some(Store::Redis(_)) } if limit.block().is_some())
    }
}

impl fmt::Display for Amount {
    /// Writes `10/s burst 30`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Blocked { .. } => f.write_str("denies all"),
            Self::InProgress { most, life } => write!(f, "{most} in progress, for {life:?} at most"),
            Self::Limited { limit, .. } => match limit.kind() {
                LimitKind::CalendarWindow { calendar } => write!(f, "{}/{calendar}", limit.most()),
                _ => write!(f, "{}", limit.quota()),
            },
        }
    }
}

/// Where a rule counts.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Store {
    /// In a store of this process: `compact` or `sketch`, with their memory, or `keyed`. If a keyed store has a maximum number
    /// of keys, a new key at the maximum removes an idle key; if no key is idle, it removes the one that becomes idle first.
    Local(StoreConfig),
    /// `redis`, which processes share.
    Redis(Shared),
}

impl Store {
    /// The memory of a compact store or a sketch whose rule sets none: 1 MiB. A compact store of this size has room for
    /// eighty thousand busy keys.
    pub const MEMORY: Capacity = Capacity::memory(1 << 20);

    /// Returns the kind of a store of this process.
    #[must_use]
    pub const fn kind(&self) -> Option<StoreKind> {
        match self {
            Self::Local(config) => Some(config.kind()),
            Self::Redis(_) => None,
        }
    }
}

impl fmt::Display for Store {
    /// Returns the name in rules.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(config) => write!(f, "{}", config.kind()),
            Self::Redis(_) => f.write_str("redis"),
        }
    }
}

/// Stores by name, with default parameters.
pub(crate) const STORES: &[(&str, Store)] = &[
    ("compact", Store::Local(StoreConfig::new(StoreKind::Compact).with_capacity(Store::MEMORY))),
    ("keyed", Store::Local(StoreConfig::new(StoreKind::Keyed))),
    ("sketch", Store::Local(StoreConfig::new(StoreKind::Sketch).with_capacity(Store::MEMORY))),
    ("redis", Store::Redis(Shared::DEFAULT)),
];

/// How several processes share a limit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Shared {
    /// Which side decides: the server for each request, or this process from the units that it holds.
    pub mode: Mode,
    /// What happens while the server does not answer.
    pub on_failure: FailurePolicy,
    /// The number of processes that share the limit, 1 or more. It determines how much each process may admit alone,
    /// and how much it leases at most.
    pub processes: u32,
    /// The maximum wait for the server.
    pub timeout: Duration,
}

/// The modes of shared limits, by their names in rules.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Mode {
    /// `atomic`: the server decides each request. Exact, at the cost of one round trip per request.
    Atomic,
    /// `lease`: this process takes units in blocks and decides from them. A window never admits more than its limit.
    /// GCRA may exceed its limit by at most the units that refill in the life of a lease. This is the default.
    #[default]
    Lease,
    /// `write-back`: this process decides, and reports to the server afterwards. The excess has a documented bound.
    WriteBack,
}

/// What happens while the server does not answer, by its name in rules.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// `open`: requests are admitted without counting.
    Open,
    /// `closed`: requests are denied.
    Closed,
    /// `local`: this process decides alone, with its part of the limit. This is the default.
    #[default]
    Local,
}

/// Whether denied requests are charged.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Charging {
    /// A request is charged to all its limits or to none, so a denied request costs nothing. This is the default.
    #[default]
    AllOrNothing,
    /// Every limit counts every request, including denied ones, and then decides. Envoy's service works in this way.
    CountFirst,
    /// A denied request is charged to the limits that deny it and to no other. An admitted request is charged to all of
    /// its limits. Use it where a request reports units that are already spent, such as the tokens of a response: a
    /// report that exceeds the limit stays counted, and a later query with a cost of 0 is denied.
    CountDenials,
}

impl Charging {
    /// Whether a limit counts a request that it denies. Its store then has room for one unit beyond the limit, which
    /// shows that the limit is exceeded.
    #[inline]
    #[must_use]
    pub const fn counts_denied(self) -> bool {
        matches!(self, Self::CountFirst | Self::CountDenials)
    }
}

/// The name of a rule's metrics: the levels of its path, joined by dots.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Metric {
    /// Each level's key, with the value if the file has one, or with the pattern for wildcards. A suffix identifies the
    /// tier, or the limit if one descriptor has several.
    pub levels: Vec<Arc<str>>,
    /// The levels that show the request's own key and value instead; the first level is the lowest bit.
    pub with_value: u32,
    /// Whether these levels show an empty value too, as `key_`. This is the case for `detailed_metric` without
    /// `share_threshold`.
    pub with_empty_value: bool,
}

/// A value of `metadata` in a file, with the types of JSON.
///
/// # Examples
/// ```
/// use tollgate_config::{Config, Metadata};
///
/// let config = Config::from_yaml("limits.yaml", "
/// domain: edge
/// descriptors:
///   - key: model
///     metadata: { backend: large, weight: 0.5 }
///     rate_limit: { unit: hour, requests_per_unit: 100 }
/// ")?;
/// let metadata = config.rules()[0].metadata.as_deref();
/// assert_eq!(metadata.and_then(|map| map.get("backend")), Some(&Metadata::Text("large".into())));
/// assert_eq!(metadata.and_then(|map| map.get("weight")), Some(&Metadata::Number(0.5)));
/// # Ok::<(), tollgate_config::ConfigError>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub enum Metadata {
    /// An empty value.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A finite number. Whole numbers beyond 2^53 are rounded.
    Number(f64),
    /// A text. Infinite numbers, and the dates and times of TOML, are texts.
    Text(Box<str>),
    /// A list.
    List(Box<[Self]>),
    /// A map, in the order of the file. No key occurs twice.
    Map(Box<[(Box<str>, Self)]>),
}

impl Metadata {
    /// Returns the value of a key of a map. Returns `None` for a missing key, and for any other kind of value. O(keys).
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|(name, _)| **name == *key).map(|(_, value)| value)
    }
}

/// Envoy's time units.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum TimeUnit {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day of 24 hours.
    Day,
    /// Seven days.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

/// The default wait for a server. A server in the same data centre answers within one millisecond. 40 ms are half of
/// the delay that a client notices.
const TIMEOUT: Duration = Duration::from_millis(40);
/// All keys, in millionths: the unit of shares.
pub const MILLION: u32 = 1_000_000;

/// The algorithm of a rule that names none, as in Envoy's service. The default in code is [`Gcra`](tollgate::Gcra).
pub(crate) const DEFAULT_ALGORITHM: LimitKind = LimitKind::FixedWindow;

/// The algorithms of [`LimitKind::BY_NAME`], with their names.
pub(crate) const ALGORITHMS: &[(&str, LimitKind)] = &{
    let mut named = [("", DEFAULT_ALGORITHM); LimitKind::BY_NAME.len()];
    let mut at = 0;
    while at < named.len() {
        let kind = LimitKind::BY_NAME[at].0;
        named[at] = (kind.name(), kind);
        at += 1;
    }
    named
};

/// Defines the name of a value, whatever its parameters.
fn name_of<T>(names: &[(&'static str, T)], value: &T) -> &'static str {
    names.iter().find(|(_, named)| discriminant(named) == discriminant(value)).map_or("", |(name, _)| name)
}

macro_rules! named {
    ($($(#[$doc:meta])* $names:ident: $type:ty = [$($name:literal => $value:expr),+ $(,)?];)+) => {$(
        $(#[$doc])*
        pub(crate) const $names: &[(&str, $type)] = &[$(($name, $value)),+];

        impl fmt::Display for $type {
            /// Returns the name in rules.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(name_of($names, self))
            }
        }
    )+};
}

named! {
    MODES: Mode = ["atomic" => Mode::Atomic, "lease" => Mode::Lease, "write-back" => Mode::WriteBack];
    ON_FAILURE: FailurePolicy =
        ["open" => FailurePolicy::Open, "closed" => FailurePolicy::Closed, "local" => FailurePolicy::Local];
    CHARGING: Charging = [
        "all-or-nothing" => Charging::AllOrNothing,
        "count-first" => Charging::CountFirst,
        "count-denials" => Charging::CountDenials,
    ];
    UNITS: TimeUnit = [
        "second" => TimeUnit::Second,
        "minute" => TimeUnit::Minute,
        "hour" => TimeUnit::Hour,
        "day" => TimeUnit::Day,
        "week" => TimeUnit::Week,
        "month" => TimeUnit::Month,
        "year" => TimeUnit::Year,
    ];
}

impl Shared {
    pub(crate) const DEFAULT: Self =
        Self { mode: Mode::Lease, on_failure: FailurePolicy::Local, processes: 1, timeout: TIMEOUT };
}

impl TimeUnit {
    /// All units, the shortest first.
    pub const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// Returns the unit with this period, if there is one.
    #[must_use]
    pub fn of(period: Duration) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.period() == period)
    }

    /// Returns the length of the unit. A month has 30 days, and a year has 365.
    #[must_use]
    pub const fn period(self) -> Duration {
        const DAY: u64 = 86_400;
        Duration::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
            Self::Year => 365 * DAY,
        })
    }
}

impl Metric {
    /// Returns the name for a request in the form of Envoy's service: the domain, and then the key of each level. A key
    /// is followed by its value if the file has a value, or if the name shows the request's value.
    ///
    /// `entries` are the entries of the request that matched the rule.
    #[must_use]
    pub fn name(&self, domain: &str, entries: &[(&str, &str)]) -> String {
        let mut name = domain.to_owned();
        for (at, level) in self.levels.iter().enumerate() {
            name.push('.');
            match entries.get(at) {
                Some((key, value)) if at < 32 && self.with_value & 1 << at != 0 => {
                    name.push_str(key);
                    if self.with_empty_value || !value.is_empty() {
                        name.push('_');
                        name.push_str(value);
                    }
                }
                _ => name.push_str(level),
            }
        }
        name
    }
}
