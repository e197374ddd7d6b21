//! Limits that requests bring along.
//!
//! A request may say its own limit (`limit` of Envoy's descriptors), which comes before the file's. It counts by domain, entries and
//! unit, not by the limit, so requests of one client that say different limits share one counter: that has room for any, and each
//! request is judged by what it says. Envoy's service has one counter for these and for the file's rule; here a rule that counts in
//! windows of the same unit, by all values, looks into this counter, and this one into the rule's.

use std::sync::OnceLock;
use std::time::Duration;

use super::chosen::Hasher;
use super::live::Active;
use super::spec::{Algorithm, Limit, Metric, Rule, Store, Unit};
use crate::base::quota::Quota;

/// The first place of those rules, behind all rules of any file.
const FIRST: u32 = u32::MAX - 7;

/// Whether it is the place of one of these.
pub(super) const fn is_place(place: u32) -> bool {
    place >= FIRST
}

/// Clients whose own limits are counted, for each unit.
const MAX_KEYS: usize = 100_000;

/// The largest limit that is told from a larger one: 268 million a second are more than there can be, and a word has room for them.
const MOST: [u64; 7] = [1 << 28, 1 << 32, 1 << 32, 1 << 32, 1 << 32, 1 << 32, 1 << 32];

/// One for each unit that was ever asked for.
#[derive(Debug, Default)]
pub(super) struct Overrides([OnceLock<Option<Active>>; 7]);

impl Overrides {
    /// The place of the rule for a unit.
    pub(super) const fn place(unit: Unit) -> u32 {
        FIRST + unit as u32
    }

    /// The rule in a place, if it is one of these.
    pub(super) fn at(&self, place: u32) -> Option<&Active> {
        self.0.get(place.checked_sub(FIRST)? as usize)?.get()?.as_ref()
    }

    /// The rule for a unit. `None` if it could not be made.
    pub(super) fn rule(&self, unit: Unit, hasher: &Hasher) -> Option<&Active> {
        let index = unit as usize;
        self.0.get(index)?.get_or_init(|| Active::made(rule(unit)?, hasher)).as_ref()
    }
}

fn rule(unit: Unit) -> Option<Rule> {
    let quota = Quota::try_new(*MOST.get(unit as usize)?, unit.period()).ok()?;
    let name = format!("requested per {unit}");
    Some(Rule {
        identity: name.clone().into(),
        name: name.clone().into(),
        is_named: false,
        limit: Limit::Quota {
            quota,
            algorithm: Algorithm::FixedWindow,
            store: Some(Store::Keyed { max_keys: Some(MAX_KEYS) }),
        },
        soft: u64::MAX,
        shadow: false,
        quota_mode: false,
        enforced_per_million: 1_000_000,
        replaces: Vec::new(),
        counted_by: u32::MAX,
        counted_by_key: 0,
        metric: Metric { levels: vec![name.into()], ..Metric::default() },
        line: 0,
    })
}

impl Unit {
    /// The unit of so long a period.
    pub(super) fn of(period: Duration) -> Option<Self> {
        use Unit::{Day, Hour, Minute, Month, Second, Week, Year};
        [Second, Minute, Hour, Day, Week, Month, Year].into_iter().find(|unit| unit.period() == period)
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
