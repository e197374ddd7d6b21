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
//! [`check`] decides one request. [`counter`] holds the state that counts for a rule. [`rule_set`] holds the rules of
//! one load. [`reload`] replaces them with the next load.

mod answer;
mod builder;
mod check;
#[cfg(feature = "redis")]
mod check_async;
mod count_denials;
mod counter;
mod error;
mod load_report;
#[cfg(all(test, tollgate_loom))]
mod models;
mod overrides;
#[cfg(feature = "metrics")]
mod publish;
mod refund_n;
mod reload;
mod report;
mod rule_check;
mod rule_set;

use std::path::Path;
use std::sync::Mutex;

pub use self::answer::{Answer, Applied, Code, Status, Verdict};
use self::answer::{Decided, Few, Summary};
use self::builder::LoadOptions;
pub use self::builder::RulesBuilder;
use self::check::{CountedBy, Observers, PlainCheck, RequestCheck};
use self::counter::Counter;
pub use self::error::RulesError;
pub use self::load_report::{Change, ChangeKind, Difference, LoadReport};
#[cfg(feature = "metrics")]
pub use self::publish::publish_rules;
use self::reload::Loading;
use self::rule_check::{RuleCheck, give_back};
use self::rule_set::{ActiveDomain, RuleSet};
use super::config::Config;
use super::counting::{Hasher, Servers};
use super::matching::{CounterKey, Descriptor};
use super::rule::{Charging, Rule};
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, QuantaClock, Timestamp};
use crate::base::decision::{Decision, Outcome};
use crate::base::sync::{Loaded, fence_after_rmw};
use crate::edge::telemetry::{DeniedKey, MeterCounts, Reading, Reloads};
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
    options: LoadOptions,
    hasher: Hasher,
    clock: C,
    reloads: Reloads,
    observers: Observers,
    servers: Servers,
}

impl Rules {
    /// Creates rules from YAML, with the default clock.
    ///
    /// # Errors
    /// If the text does not follow the [language](crate::guide::rules). The error lists all problems by line.
    pub fn from_yaml(text: &str) -> Result<Self, RulesError> {
        Self::builder().load([Config::from_yaml("rules", text)?])
    }

    /// Reads rules from a YAML, JSON or TOML file, with the default clock. The file's extension selects the format. A
    /// path may be a [folder](RulesBuilder::read).
    ///
    /// # Errors
    /// If the file cannot be read, or does not follow the [language](crate::guide::rules).
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
    /// client, this method waits for them. See [the guide](crate::guide::rules).
    ///
    /// # Complexity
    /// One search for each descriptor by its entries, and one check of a store for each rule that applies. The search
    /// takes constant time, except for wildcards that begin with `*`. Never allocates for up to two rules that count by
    /// one value each. Takes no lock.
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn check(&self, domain: &str, descriptors: &[Descriptor<'_>]) -> Answer {
        self.decide(domain, descriptors, 1, CheckTime::read(&self.clock))
    }

    /// Does what [`Rules::check`] does for a request that costs `hits`, unless its descriptors set a cost. A cost of 0
    /// only peeks. (A server of Envoy's protocol must pass 1 if a request's `hits_addend` is 0, but 0 if a descriptor's
    /// `hits_addend` is 0.)
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn check_n(&self, domain: &str, descriptors: &[Descriptor<'_>], hits: u64) -> Answer {
        self.decide(domain, descriptors, hits, CheckTime::read(&self.clock))
    }

    /// Does what [`Rules::check_n`] does, at a time that the caller gives. To load rules between such calls, use
    /// [`Rules::replace_at`].
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn check_at(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        hits: u64,
        now: Timestamp,
    ) -> Answer {
        self.decide(domain, descriptors, hits, CheckTime::given(now))
    }

    fn decide(&self, name: &str, descriptors: &[Descriptor<'_>], hits: u64, when: CheckTime) -> Answer {
        let rules = self.in_force.load();
        let Some(domain) = rules.domain(name) else { return self.unknown_domain(rules) };
        domain.note_asked();
        // The common cases, which need no list of rules.
        match descriptors {
            [descriptor] => {
                if let Some(plain) = PlainCheck::find(domain, descriptor, hits, when) {
                    let start = domain.timer.start();
                    let decision = plain.charge(when);
                    domain.timer.stop(start);
                    let summary = Summary::new(decision.outcome(), self.options.shadow || domain.shadow);
                    if decision.is_allowed() {
                        if decision.charged() > 0 {
                            fence_after_rmw();
                            if plain.active.counts_with_override(domain)
                                || (!plain.counter.generation.is_open_for(&decision)
                                    && self
                                        .was_replaced(&rules, domain, |now| plain.active.still_counts(now)))
                            {
                                plain.refund(&decision, when);
                                return self.decide_together(rules, name, descriptors, hits, when);
                            }
                        }
                        plain.active.meters.observe_allowed(&decision);
                    } else {
                        self.report_alone(&decision, plain.rule, domain, descriptors, &summary);
                    }
                    let (rule, domain) = (plain.rule, Some(domain.index));
                    let mut decided = Few::new();
                    decided.push(Decided::new(rule, 0, decision));
                    return Answer { rules, domain, summary, decided };
                }
            }
            [_, _] => {
                let index = domain.index;
                return self.decide_two(rules, (name, index), descriptors, hits, when);
            }
            _ => {}
        }
        self.decide_together(rules, name, descriptors, hits, when)
    }

    /// Decides a request with two descriptors.
    #[inline(never)]
    fn decide_two(
        &self,
        rules: Loaded<RuleSet>,
        (name, index): (&str, u32),
        descriptors: &[Descriptor<'_>],
        hits: u64,
        when: CheckTime,
    ) -> Answer {
        let mut decided = Few::new();
        if let [one, other] = descriptors
            && let Some(domain) = rules.domain_at(index)
            && let Some(first) = PlainCheck::find(domain, one, hits, when)
            && let Some(second) = PlainCheck::find(domain, other, hits, when)
            && self.admit_both(&rules, domain, [first, second], when, &mut decided)
        {
            let summary = Summary::new(Outcome::Allowed, self.options.shadow || domain.shadow);
            let domain = Some(domain.index);
            return Answer { rules, domain, summary, decided };
        }
        self.decide_together(rules, name, descriptors, hits, when)
    }

    /// Charges both rules of a request if both admit it. Otherwise nothing stays charged, and
    /// [`Rules::decide_together`] computes the decision of each rule. It charges in the same order.
    #[inline]
    fn admit_both(
        &self,
        rules: &Loaded<RuleSet>,
        domain: &ActiveDomain,
        [first, second]: [PlainCheck<'_>; 2],
        when: CheckTime,
        decided: &mut Few<Decided>,
    ) -> bool {
        let both = [&first, &second];
        // If both descriptors match the same rule, both charges may go to the same key.
        let is_simple =
            |plain: &PlainCheck<'_>| plain.counter.undoes && plain.active.rule.replaces.is_empty();
        if std::ptr::eq(first.active, second.active) || !both.into_iter().all(is_simple) {
            return false;
        }
        let start = domain.timer.start();
        if second.look(when).is_denied() {
            return false;
        }
        let charge = first.charge(when);
        if charge.is_denied() {
            return false;
        }
        let charges = [charge, second.charge(when)];
        domain.timer.stop(start);
        fence_after_rmw();
        // Each of them is asked, because each one records its charge.
        let is_open = charges[1].is_allowed()
            && (both.into_iter().zip(&charges))
                .fold(true, |open, (plain, charge)| plain.counter.generation.is_open_for(charge) && open);
        if charges[1].is_denied()
            || both.into_iter().any(|plain| plain.active.counts_with_override(domain))
            || (!is_open
                && self.was_replaced(rules, domain, |now| {
                    both.into_iter().all(|plain| plain.active.still_counts(now))
                }))
        {
            both.into_iter().zip(&charges).for_each(|(plain, charge)| plain.refund(charge, when));
            return false;
        }
        let [one, other] = &charges;
        first.admitted(0, one, decided);
        second.admitted(1, other, decided);
        true
    }

    /// Reports the denial of a rule that decided alone.
    #[cold]
    fn report_alone(
        &self,
        decision: &Decision,
        rule: u32,
        domain: &ActiveDomain,
        descriptors: &[Descriptor<'_>],
        summary: &Summary,
    ) {
        if let (Some(descriptor), Some(active)) = (descriptors.first(), domain.rule(rule)) {
            let check = RuleCheck::new(domain, active, descriptor, decision.cost());
            check.report(
                &mut Decided::new(rule, 0, *decision),
                domain,
                descriptors,
                summary,
                &self.observers,
            );
        }
    }

    /// Decides by all rules that apply, whatever their number.
    #[inline(never)]
    fn decide_together(
        &self,
        mut rules: Loaded<RuleSet>,
        name: &str,
        descriptors: &[Descriptor<'_>],
        hits: u64,
        when: CheckTime,
    ) -> Answer {
        loop {
            let Some(domain) = rules.domain(name) else { return self.unknown_domain(rules) };
            let mut decided = Few::new();
            let summary = {
                let mut check = RequestCheck::new(&mut decided);
                check.find(domain, descriptors, hits, when.ns(), &self.hasher);
                let start = domain.timer.start();
                let outcome = check.decide(domain.charging, when);
                domain.timer.stop(start);
                if self.is_outdated(&check, &rules, domain) {
                    check.undo(when, true);
                    None
                } else {
                    if domain.charging == Charging::CountDenials {
                        check.count_shared_denials(outcome == Outcome::Allowed);
                    }
                    let outcome = (outcome, self.options.shadow);
                    Some(check.finish(domain, descriptors, outcome, when, &self.observers))
                }
            };
            if let Some(summary) = summary {
                let domain = Some(domain.index);
                return Answer { rules, domain, summary, decided };
            }
            rules = self.in_force.load();
        }
    }

    /// Returns the answer to a request with a domain that has no rules.
    #[cold]
    fn unknown_domain(&self, rules: Loaded<RuleSet>) -> Answer {
        self.reloads.unknown_domain();
        let summary = Summary::new(Outcome::Allowed, self.options.shadow);
        Answer { rules, domain: None, summary, decided: Few::new() }
    }

    /// Whether a check charged a counter that no longer counts. Either a load replaced the rules in the meantime, or a
    /// request was the first to set its own limit, which counts together with the charged rule.
    #[inline]
    fn is_outdated(&self, check: &RequestCheck<'_>, rules: &Loaded<RuleSet>, domain: &ActiveDomain) -> bool {
        check.charged() && {
            fence_after_rmw();
            check.missed_new_twin(domain)
                || (!check.is_open() && self.was_replaced(rules, domain, |now| check.still_counts(now)))
        }
    }

    /// Whether a load replaced the rules in the meantime, and the rules in force now use other counters. The caller
    /// must ask the counters first whether they are open.
    #[cold]
    fn was_replaced(
        &self,
        rules: &Loaded<RuleSet>,
        domain: &ActiveDomain,
        still_counts: impl FnOnce(Option<&ActiveDomain>) -> bool,
    ) -> bool {
        !self.in_force.is_present(rules) && !still_counts(self.in_force.load().domain(&domain.name))
    }

    /// Refunds the charges of an answer as far as possible, as [`refund_all`](crate::refund_all) does. Pass the
    /// request's descriptors. Rules that count first, and rules that have changed since the check, do not refund.
    ///
    /// A shared rule in the mode `atomic` refunds only through a `BlockingClient`, which waits, or with `refund_async`.
    pub fn refund(&self, descriptors: &[Descriptor<'_>], answer: &Answer) {
        let when = CheckTime::read(&self.clock);
        for Refund { counted, key, decided } in self.refunds(descriptors, answer) {
            give_back(counted, key.as_str(), decided, 0, when);
        }
    }

    /// Iterates over the charges of an answer that can be refunded.
    fn refunds<'a>(&self, descriptors: &'a [Descriptor<'a>], answer: &'a Answer) -> Few<Refund<'a>> {
        let mut refunds = Few::new();
        let Some(domain) = answer.domain() else { return refunds };
        if domain.charging == Charging::CountFirst || answer.summary.outcome != Outcome::Allowed {
            return refunds;
        }
        let rules = self.in_force.load();
        let now = rules.domain(&domain.name);
        for decided in &answer.decided {
            if decided.decision.is_some_and(|charge| charge.charged() > 0)
                && let Some(descriptor) = descriptors.get(decided.descriptor as usize)
                && let Some(active) = domain.rule(decided.rule)
            {
                let own = descriptor.limit.map(|(requests, _)| requests);
                let counted = CountedBy::of(active, own, domain.charging);
                let key = match own {
                    Some(_) => domain.key_of_request(descriptor),
                    None => active.key(domain, descriptor),
                };
                if (own.is_some() && !counted.is_shared()) || active.still_counts(now) {
                    refunds.push(Refund { counted, key, decided });
                }
            }
        }
        refunds
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
                    Counter::Unlimited(_) | Counter::Blocked { .. } => continue,
                };
                visit(&domain.name, &active.rule.name, &readings);
            }
        }
    }
}

/// A charge that can be refunded.
struct Refund<'a> {
    counted: CountedBy<'a>,
    key: CounterKey<'a>,
    decided: &'a Decided,
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
