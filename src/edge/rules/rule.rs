//! What a rule says, once it has been read and checked.

use std::fmt;
use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use crate::{Capacity, Quota};

/// One limit on the requests that one descriptor of the file matches.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Rule {
    /// What it is known by when the file is loaded again: the entries that lead to it, and which limit of them it is. A rule
    /// whose identity stays keeps what its clients have used when its numbers change.
    pub identity: Box<str>,
    /// Its name in header fields, problem documents, logs and metrics: `rate_limit.name`, or else as its metrics are called.
    pub name: Box<str>,
    /// Whether `name` was written in the file, so that `replaces` of other rules can mean it.
    pub is_named: bool,
    /// How much.
    pub limit: Limit,
    /// A request that leaves more units in use than this is marked, though it goes through; `u64::MAX` if there is no soft limit.
    pub soft: u64,
    /// Whether it is counted and reported, but refuses nobody.
    pub shadow: bool,
    /// Whether a request is refused only if all such rules of it refuse.
    pub quota_mode: bool,
    /// For how many of a million keys it refuses; for the others it is as `shadow`.
    pub enforced_per_million: u32,
    /// Named rules of the same request that this one switches off.
    pub replaces: Vec<Box<str>>,
    /// Which of the request's entries have a counter of their own by key and value, the first entry in the lowest bit. None: all
    /// requests share one.
    pub counted_by: u32,
    /// Which others have a counter of their own by key alone: those with `share_threshold` and a `*` in their key.
    pub counted_by_key: u32,
    /// How its metrics are called.
    pub metric: Metric,
    /// Where it stands, from 1.
    pub line: usize,
}

impl Rule {
    /// What the rule's metrics are called for a request: `files.tenant_acme.method`.
    #[must_use]
    pub fn metric_name(&self, domain: &str, entries: &[(&str, &str)]) -> String {
        self.metric.name(domain, entries)
    }

    /// Whether all requests share one counter.
    pub(super) const fn has_one_counter(&self) -> bool {
        self.counted_by | self.counted_by_key == 0
    }

    /// Whether requests of different keys or values share a counter: `share_threshold`.
    pub(super) fn shares_counters(&self) -> bool {
        let wild = self.metric.levels.iter().map(|level| level.contains('*'));
        (0..u32::BITS).zip(wild).any(|(bit, is_wild)| is_wild && self.counted_by >> bit & 1 == 0)
    }

    /// Whether processes share it: `store: redis`.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        matches!(self.limit, Limit::Quota { store: Some(Store::Redis(_)), .. })
    }
}

/// How much a rule lets through.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Limit {
    /// Everything, uncounted.
    Unlimited,
    /// Nothing: `requests_per_unit: 0`.
    Blocked {
        /// The unit.
        period: Duration,
    },
    /// So much.
    Quota {
        /// The limit, its period, and the burst for those algorithms that have one.
        quota: Quota,
        /// By which algorithm.
        algorithm: Algorithm,
        /// In which store; `None` is the default: a compact one of 1 MiB, or a keyed one for what that cannot hold.
        store: Option<Store>,
    },
}

/// The algorithms by their names in rules.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Algorithm {
    /// `fixed-window`, aligned to the Unix epoch, as Envoy's service counts: the default of rules. In code the default is
    /// [`Gcra`](crate::Gcra).
    #[default]
    FixedWindow,
    /// `gcra`.
    Gcra,
    /// `token-bucket`, refilled continuously.
    TokenBucket,
    /// `leaky-bucket`, as a meter.
    LeakyBucket,
    /// `sliding-window`: two counts.
    SlidingWindow {
        /// `strict: true`.
        strict: bool,
    },
    /// `sub-window`.
    SubWindow {
        /// `parts: 60`.
        parts: u32,
        /// `strict: true`.
        strict: bool,
    },
    /// `sliding-log`.
    SlidingLog,
}

/// The stores by their names in rules.
#[derive(Copy, Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Store {
    /// `compact`.
    Compact(Capacity),
    /// `keyed`, of at most so many keys.
    Keyed {
        /// The cap, if there is one; beyond it new keys push idle ones out, and are else forgotten.
        max_keys: Option<usize>,
    },
    /// `sketch`.
    Sketch(Capacity),
    /// `redis`: shared with other processes.
    Redis(Shared),
}

/// How a limit is kept that several processes share.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Shared {
    /// Who decides: the server each time, or this process by what it holds.
    pub mode: Mode,
    /// What is done while the server cannot be asked.
    pub on_failure: OnFailure,
    /// How many processes share the limit, 1 or more: for what each may do alone, and for what each leases at most.
    pub processes: u32,
    /// How long to wait for the server.
    pub timeout: Duration,
}

/// The modes of shared limits by their names in rules.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Mode {
    /// `atomic`: the server decides each request. Exact; a round trip each.
    Atomic,
    /// `lease`: this process takes units in blocks, and decides by them. Never more than the limit in a window, and by GCRA no more than
    /// comes back in a lease's life beyond it; the default.
    #[default]
    Lease,
    /// `write-back`: this process decides, and tells the server afterwards. Within a bound that is stated.
    WriteBack,
}

/// What is done while the server cannot be asked, by its name in rules.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum OnFailure {
    /// `open`: requests are admitted, uncounted.
    Open,
    /// `closed`: they are refused.
    Closed,
    /// `local`: this process decides alone, by its part of the limit. The default.
    #[default]
    Local,
}

/// What a rule charges requests that it refuses.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Charging {
    /// All limits of a request are charged, or none; a refused request costs nothing. The default.
    #[default]
    AllOrNothing,
    /// Every limit counts every request, refused ones too, and judges afterwards: as Envoy's service does.
    CountFirst,
}

/// How a rule's metrics are called: the levels of its path, joined by dots.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Metric {
    /// Each level's key, with the value if it was written in the file; the pattern for wildcards. After them, for tiers and for
    /// several limits of one descriptor, which of them it is.
    pub levels: Vec<Arc<str>>,
    /// Levels that show the request's own key and value instead, the first in the lowest bit.
    pub with_value: u32,
    /// Whether these show an empty value too, as `key_`: by `detailed_metric` without `share_threshold`.
    pub with_empty_value: bool,
}

/// Envoy's units.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Unit {
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

/// The memory of a rule's store of fixed size, unless the rule says otherwise: a compact one has room for eighty thousand busy keys.
pub(super) const MEMORY: Capacity = Capacity::memory(1 << 20);
/// The parts of a sub-window without a number in the file.
const PARTS: u32 = 60;
/// The wait for a server without a time in the file. A server in the same data centre answers within one millisecond, and 40 are half of
/// what a client notices.
const TIMEOUT: Duration = Duration::from_millis(40);
/// All keys, in the parts that shares are counted in.
pub(super) const MILLION: u32 = 1_000_000;

/// The name of a value, whatever its parameters.
fn name_of<T>(names: &[(&'static str, T)], value: &T) -> &'static str {
    names.iter().find(|(_, named)| discriminant(named) == discriminant(value)).map_or("", |(name, _)| name)
}

macro_rules! named {
    ($($(#[$doc:meta])* $names:ident: $type:ty = [$($name:literal => $value:expr),+ $(,)?];)+) => {$(
        $(#[$doc])*
        pub(super) const $names: &[(&str, $type)] = &[$(($name, $value)),+];

        impl fmt::Display for $type {
            /// Its name in rules.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(name_of($names, self))
            }
        }
    )+};
}

named! {
    /// Algorithms by name, with default parameters.
    ALGORITHMS: Algorithm = [
        "fixed-window" => Algorithm::FixedWindow,
        "gcra" => Algorithm::Gcra,
        "token-bucket" => Algorithm::TokenBucket,
        "leaky-bucket" => Algorithm::LeakyBucket,
        "sliding-window" => Algorithm::SlidingWindow { strict: false },
        "sub-window" => Algorithm::SubWindow { parts: PARTS, strict: false },
        "sliding-log" => Algorithm::SlidingLog,
    ];
    /// Stores by name, with default parameters.
    STORES: Store = [
        "compact" => Store::Compact(MEMORY),
        "keyed" => Store::Keyed { max_keys: None },
        "sketch" => Store::Sketch(MEMORY),
        "redis" => Store::Redis(Shared::DEFAULT),
    ];
    MODES: Mode = ["atomic" => Mode::Atomic, "lease" => Mode::Lease, "write-back" => Mode::WriteBack];
    ON_FAILURE: OnFailure =
        ["open" => OnFailure::Open, "closed" => OnFailure::Closed, "local" => OnFailure::Local];
    CHARGING: Charging =
        ["all-or-nothing" => Charging::AllOrNothing, "count-first" => Charging::CountFirst];
    UNITS: Unit = [
        "second" => Unit::Second,
        "minute" => Unit::Minute,
        "hour" => Unit::Hour,
        "day" => Unit::Day,
        "week" => Unit::Week,
        "month" => Unit::Month,
        "year" => Unit::Year,
    ];
}

impl Shared {
    pub(super) const DEFAULT: Self =
        Self { mode: Mode::Lease, on_failure: OnFailure::Local, processes: 1, timeout: TIMEOUT };
}

impl Algorithm {
    /// Whether it has a burst: windows count up to the limit.
    pub(crate) const fn has_burst(self) -> bool {
        matches!(self, Self::Gcra | Self::TokenBucket | Self::LeakyBucket)
    }

    /// Whether the compact store has a form for it, and the script in Redis knows it.
    pub(super) const fn is_compact(self) -> bool {
        !matches!(self, Self::SubWindow { .. } | Self::SlidingLog)
    }

    /// Whether the sketch counts it.
    pub(super) const fn is_sketched(self) -> bool {
        matches!(self, Self::FixedWindow | Self::SlidingWindow { .. })
    }

    /// The most units that may be in use: the limit of windows, else the burst.
    pub(super) const fn most(self, quota: &Quota) -> u64 {
        if self.has_burst() { quota.burst_size() } else { quota.limit() }
    }
}

impl Unit {
    /// The unit of this period.
    pub(super) fn of(period: Duration) -> Option<Self> {
        UNITS.iter().map(|&(_, unit)| unit).find(|unit| unit.period() == period)
    }

    /// How long it is. A month has 30 days, and a year 365.
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
    /// The name for a request, as Envoy's service calls it: the domain, and each level's key, with its value where the file has
    /// one or the request's is asked for.
    ///
    /// Entries are those of the request that the rule was found for.
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
