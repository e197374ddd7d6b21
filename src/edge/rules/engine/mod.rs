//! Rules in force: checks, refunds and reloads.
//!
//! # How a load replaces the rules
//! ```text
//! Rules ──► RuleSet n: trees, and for each rule the generation that counts for it
//!              │ an unchanged rule keeps its generation
//!              ▼ a rule with other numbers, algorithm or store: a new generation that takes over usage, in units
//!           RuleSet n − 1
//! ```
//! 1. One pointer publishes all rules. A request is therefore decided by the old rules or by the new ones, never by a
//!    mix.
//! 2. After a check has charged, it reads the pointer again. If the pointer moved and the charged counters no longer
//!    count, the check refunds the charge and decides again.
//! 3. So no charge is lost. [`Adjustable`](crate::Adjustable) limiters work in the same way, and rules use their
//!    generations.
//!
//! [`route`] decides one request. [`counter`] holds the state that counts for a rule. [`rule_set`] holds the rules of
//! one load. [`reload`] replaces them with the next load.

mod answer;
mod at;
mod builder;
mod check;
mod count_denials;
mod counted_by;
mod counter;
mod decided;
mod error;
mod explain;
mod held;
mod hold_check;
mod holds;
mod load_report;
#[cfg(all(test, tollgate_loom))]
mod models;
mod operate;
mod options;
mod overrides;
mod plain;
#[cfg(feature = "metrics")]
mod publish;
mod refund;
mod reload;
mod report;
mod restore;
mod route;
mod rule_check;
mod rule_set;
mod saved;
#[cfg(feature = "redis")]
mod servers;
mod values;
#[cfg(feature = "redis")]
mod waiting;
mod without_rule;

use std::path::Path;
use std::sync::Mutex;

pub use self::answer::{Answer, Applied, Code, Status, Verdict};
pub use self::builder::RulesBuilder;
use self::counter::Counter;
pub use self::error::RulesError;
pub use self::explain::{Explained, Explanation, Reason};
pub use self::load_report::{Change, ChangeKind, Difference, LoadReport};
pub use self::operate::{KeyFigures, KeyReport};
use self::options::LoadOptions;
pub use self::options::WithoutRule;
#[cfg(feature = "metrics")]
pub use self::publish::publish_rules;
use self::reload::Loading;
#[cfg(feature = "watch")]
pub(in crate::edge::rules) use self::reload::Look;
use self::report::Observers;
use self::restore::Restoring;
pub use self::restore::{RestoreReport, RulesSnapshot};
use self::rule_set::{DomainId, OnceFlag, RuleSet};
use super::config::Config;
use super::counting::{Hasher, Servers};
use super::matching::Descriptor;
use super::rule::Rule;
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, QuantaClock, Timestamp};
use crate::edge::telemetry::{DeniedKey, MeterCounts, Reading, Reloads};
use crate::limiter::At;
use crate::store::migrate::Published;

/// Rules in force, with the usage of their clients.
///
/// Share it by reference or in an `Arc`; every method takes `&self`. A check takes no lock.
///
/// # Consistency
/// All rules that decide a request come from the same load. A reload never loses a charge. A request that is in
/// progress during a reload may be charged twice, which is stricter for the client. This happens in three cases: the
/// rule cannot refund (logs, sketches), the rule counts first, or the reload copied the charge before the refund.
///
/// # Examples
/// ```
/// use tollgate::rules::{Config, Descriptor, Rules};
///
/// let text = |limit| format!("domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {{ unit: day, requests_per_unit: {limit} }}");
/// let rules = Rules::from_yaml(&text(2))?;
/// let ask = || rules.check("shop", &[Descriptor::new(&[("user", "alice")])]);
/// assert!(ask().is_allowed() && ask().is_allowed() && ask().is_denied());
///
/// rules.replace([Config::from_yaml("rules", &text(3))?])?; // two units are still used
/// assert!(ask().is_allowed() && ask().is_denied());
/// assert!(rules.replace([Config::from_yaml("rules", &text(4))?]).is_ok());
/// # Ok::<(), tollgate::rules::RulesError>(())
/// ```
pub struct Rules<C = QuantaClock> {
    in_force: Published<RuleSet>,
    /// Allows one load at a time. Checks never take this lock.
    loading: Mutex<Loading>,
    /// Why the last load failed. It has its own lock, because a reader must not wait for a load.
    last_error: Mutex<Option<RulesError>>,
    /// What the first load takes over. It has its own lock for the same reason.
    restoring: Mutex<Restoring>,
    options: LoadOptions,
    hasher: Hasher,
    /// The secret seeds of the hasher.
    seeds: [u64; 4],
    clock: C,
    reloads: Reloads,
    observers: Observers,
    servers: Servers,
    /// Whether a load had rules that hold units.
    has_holds: OnceFlag,
}

impl Rules {
    /// Creates rules from YAML, with the default clock.
    ///
    /// # Errors
    /// If the text does not follow the
    /// [language](https://docs.rs/crate/tollgate/latest/source/docs/rules.md).
    /// The error lists all problems by line.
    pub fn from_yaml(text: &str) -> Result<Self, RulesError> {
        Self::builder().load([Config::from_yaml("rules", text)?])
    }

    /// Reads rules from a YAML, JSON or TOML file, with the default clock. The file's extension selects the format. A
    /// path may be a [folder](RulesBuilder::read).
    ///
    /// # Errors
    /// If the file cannot be read, or does not follow the
    /// [language](https://docs.rs/crate/tollgate/latest/source/docs/rules.md).
    pub fn read(path: impl AsRef<Path>) -> Result<Self, RulesError> {
        Self::builder().read([path])
    }

    /// Returns a builder, for another clock, several files, a dry run and other options.
    pub fn builder() -> RulesBuilder {
        RulesBuilder {
            options: LoadOptions::default(),
            observers: Observers::default(),
            servers: Servers::default(),
            clock: (),
            snapshot: None,
        }
    }
}

impl<C: Clock> Rules<C> {
    /// Decides a request with these descriptors. Charges all rules that apply, or none.
    ///
    /// A request is admitted if its domain has no rules, or if no rule applies to its descriptors. Call
    /// [`Rules::require_domain`] once to make sure that the domain exists and that no reload removes it.
    ///
    /// # Shared rules
    /// With an async client, this method never waits. **A rule with `store: redis, mode: atomic` is then not asked**:
    /// it decides by its `on_failure`, as if the server did not answer, and its metrics count it so. Rules in the other
    /// modes decide from the units that this process holds. Use `check_async` for `atomic` rules; with a blocking
    /// client, this method waits for them. See [the guide](https://docs.rs/crate/tollgate/latest/source/docs/rules.md).
    ///
    /// # Complexity
    /// One search for each descriptor by its entries, and one check of a store for each rule that applies. The search
    /// takes constant time, except for wildcards that begin with `*`. Never allocates for up to two rules that count by
    /// one value each. Takes no lock.
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn check(&self, domain: &str, descriptors: &[Descriptor<'_>]) -> Answer {
        self.decide_by_name(domain, descriptors, 1, CheckTime::read(&self.clock))
    }

    /// Does what [`Rules::check`] does for a request that costs `hits`, unless its descriptors set a cost. A cost of 0
    /// only peeks. (A server of Envoy's protocol must pass 1 if a request's `hits_addend` is 0, but 0 if a descriptor's
    /// `hits_addend` is 0.)
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn check_n(&self, domain: &str, descriptors: &[Descriptor<'_>], hits: u64) -> Answer {
        self.decide_by_name(domain, descriptors, hits, CheckTime::read(&self.clock))
    }

    /// Returns these rules at a time that the caller gives, to check requests and to replace rules.
    #[inline(always)]
    pub const fn at(&self, now: Timestamp) -> At<'_, Self> {
        At::new(self, now)
    }

    #[inline(always)]
    fn decide_by_name(
        &self,
        name: &str,
        descriptors: &[Descriptor<'_>],
        hits: u64,
        when: CheckTime,
    ) -> Answer {
        self.decide(self.in_force.load(), DomainId::Name(name), descriptors, hits, when)
    }

    /// Returns the most-denied keys with the rules that denied them, if they are [kept](RulesBuilder::top_denied).
    #[must_use]
    pub fn top_denied(&self, most: usize) -> Vec<DeniedKey> {
        self.observers.top.as_ref().map(|top| top.top(most)).unwrap_or_default()
    }

    /// Returns the clock.
    #[must_use]
    pub const fn clock(&self) -> &C {
        &self.clock
    }

    /// Calls `visit` with the domain's name, the rule and its counts, for each rule in force. The counts start when the
    /// rule takes effect, and continue if a reload keeps the rule.
    ///
    /// # Examples
    /// ```
    /// use tollgate::rules::{Descriptor, Rules};
    ///
    /// let rules = Rules::from_yaml("{ domain: edge, descriptors: [ { key: a, rate_limit: { unit: hour, requests_per_unit: 1 } } ] }")?;
    /// for _ in 0..3 {
    ///     let _ = rules.check("edge", &[Descriptor::new(&[("a", "x")])]);
    /// }
    /// rules.for_each(|domain, rule, counts| {
    ///     assert_eq!((domain, &*rule.name, counts.allowed, counts.denied), ("edge", "edge.a", 1, 2));
    /// });
    /// # Ok::<(), tollgate::rules::RulesError>(())
    /// ```
    pub fn for_each(&self, mut visit: impl FnMut(&str, &Rule, MeterCounts)) {
        for domain in &self.in_force.load().domains {
            for active in &domain.rules {
                visit(&domain.name, &active.rule, active.meters.counts());
            }
        }
    }

    /// Returns the file of a rule in force. `identity` is the rule's [`Rule::identity`]. `None` if the domain has no such
    /// rule.
    ///
    /// # Examples
    /// ```
    /// use tollgate::rules::{Config, Rules};
    ///
    /// let text = "{ domain: edge, descriptors: [ { key: a, rate_limit: { unit: hour, requests_per_unit: 1 } } ] }";
    /// let rules = Rules::builder().load([Config::from_yaml("limits.yaml", text)?])?;
    /// assert_eq!(rules.file_of("edge", "edge|a").as_deref(), Some("limits.yaml"));
    /// assert_eq!(rules.file_of("edge", "edge|b"), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn file_of(&self, domain: &str, identity: &str) -> Option<String> {
        self.in_force.load().domain(domain)?.file_of(identity).map(str::to_owned)
    }

    /// Calls `visit` with the domain, the rule's name and the readings of its store, for each rule: keys, evictions,
    /// and how full the store is. Use it for gauges when metrics are scraped. With the feature `metrics`,
    /// `rules::publish_rules` does this.
    ///
    /// # Complexity
    /// O(slots) of all compact stores.
    pub fn readings(&self, mut visit: impl FnMut(&str, &str, &[Reading])) {
        let now_ns = self.clock.now().as_nanos();
        for domain in &self.in_force.load().domains {
            for active in &domain.rules {
                let readings = match &active.counter {
                    Counter::Local(local) => local.readings(now_ns),
                    Counter::Shared(shared) => shared.limiter.readings(),
                    Counter::Unlimited(_) | Counter::Blocked { .. } | Counter::InProgress(_) => continue,
                };
                visit(&domain.name, &active.rule.name, &readings);
            }
        }
    }
}

impl<C> std::fmt::Debug for Rules<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Omits the rules: their values may be customers' names and keys.
        let rules = self.in_force.load();
        let domains: Vec<(&str, usize)> =
            rules.domains.iter().map(|domain| (&*domain.name, domain.rules.len())).collect();
        f.debug_struct("Rules").field("rules_by_domain", &domains).finish_non_exhaustive()
    }
}
