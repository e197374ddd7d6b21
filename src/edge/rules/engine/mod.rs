//! Rules in force: checks, refunds and reloads.
//!
//! # How rules are replaced
//! ```text
//! Rules ──► RuleSet n: trees, and for each rule the generation that counts for it
//!              │ a rule that is as before keeps its generation
//!              ▼ a rule whose numbers, algorithm or store changed: one that takes over what clients have used, by units
//!           RuleSet n − 1
//! ```
//! One pointer publishes all rules, so a request is decided by the old ones or the new ones, never by some of each. A check that has
//! charged looks afterwards whether the pointer has moved. If what it charged does not count any more, it gives that back and decides
//! again. So no charge is lost, as with [`Adjustable`](crate::Adjustable) limiters, whose generations these are.
//!
//! [`check`] has the decision of one request, [`counter`] what counts for a rule, [`rule_set`] the rules of one load, and [`reload`]
//! how the next load replaces them.

mod answer;
mod builder;
mod check;
#[cfg(feature = "redis")]
mod check_async;
mod counter;
mod error;
mod load_report;
#[cfg(all(test, tollgate_loom))]
mod models;
mod overrides;
#[cfg(feature = "metrics")]
mod publish;
mod reload;
mod report;
mod rule_set;

use std::path::Path;
use std::sync::Mutex;

pub use self::answer::{Answer, Applied, Code, Status, Verdict};
use self::answer::{Decided, Few, Summary};
use self::builder::LoadOptions;
pub use self::builder::RulesBuilder;
use self::check::{CountedBy, Observers, PlainCheck, RequestCheck, RuleCheck, give_back};
use self::counter::Counter;
pub use self::error::RulesError;
pub use self::load_report::{Change, ChangeKind, Difference, LoadReport};
#[cfg(feature = "metrics")]
pub use self::publish::publish_rules;
use self::reload::Loading;
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

/// Rules, and what their clients have used.
///
/// Shared by reference or in an `Arc`; every method takes `&self`. A check takes no lock.
///
/// # Consistency
/// Each request is decided by all rules of one load. What is charged is never lost in a reload; a request that is under way in one
/// may be charged twice, against the client: by rules that cannot give back (logs, sketches), by those that count first, and if the
/// charge was carried over before it could be given back.
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
/// rules.replace([Config::from_yaml("rules", &text(3))?])?; // two are used still
/// assert!(ask().is_allowed() && ask().is_denied());
/// assert!(rules.replace([Config::from_yaml("rules", &text(4))?]).is_ok());
/// # Ok::<(), tollgate::rules::RulesError>(())
/// ```
pub struct Rules<C = QuantaClock> {
    in_force: Published<RuleSet>,
    /// One load at a time. Checks never take it.
    loading: Mutex<Loading>,
    options: LoadOptions,
    hasher: Hasher,
    clock: C,
    reloads: Reloads,
    observers: Observers,
    servers: Servers,
}

impl Rules {
    /// Rules by the default clock, from YAML.
    ///
    /// # Errors
    /// If the text is not what the [language](crate::guide::rules) says: with all that is wrong, by line.
    pub fn from_yaml(text: &str) -> Result<Self, RulesError> {
        Self::builder().load([Config::from_yaml("rules", text)?])
    }

    /// Rules by the default clock, from a YAML, JSON or TOML file, by its extension.
    ///
    /// # Errors
    /// If the file cannot be read, or is not what the [language](crate::guide::rules) says.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, RulesError> {
        Self::builder().read([path])
    }

    /// Rules with another clock, from several files, or for a dry run.
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
    /// Decides a request that says this of itself, and charges it: to all rules that apply, or none.
    ///
    /// A domain without rules allows, as do descriptors that no rule applies to. Call [`Rules::require_domain`] once, so that the domain is there and
    /// stays.
    ///
    /// # Rules that are shared
    /// This never waits for an async client. **A rule with `store: redis, mode: atomic` is then not asked**: it decides by its
    /// `on_failure`, as if the server were gone, and is counted so. Rules of the other modes decide by what this process holds.
    /// Use `check_async` for them; with a blocking client this waits. See [the guide](crate::guide::rules).
    ///
    /// # Complexity
    /// For each descriptor a search by its entries (constant but for wildcards that begin with `*`), and for each rule that
    /// applies a check of its store. Never allocates for up to two rules that count by one value each. Takes no lock.
    #[must_use = "an answer that nobody reads limits nothing"]
    pub fn check(&self, domain: &str, descriptors: &[Descriptor<'_>]) -> Answer {
        self.decide(domain, descriptors, 1, CheckTime::read(&self.clock))
    }

    /// [`Rules::check`] of a request that costs `hits`, where its descriptors do not say otherwise; 0 only looks. (A server of
    /// Envoy's protocol has to say 1 where a request's `hits_addend` is 0, and 0 where a descriptor's is.)
    #[must_use = "an answer that nobody reads limits nothing"]
    pub fn check_n(&self, domain: &str, descriptors: &[Descriptor<'_>], hits: u64) -> Answer {
        self.decide(domain, descriptors, hits, CheckTime::read(&self.clock))
    }

    /// [`Rules::check_n`] at a time that the caller says. If rules are loaded in between, use [`Rules::replace_at`].
    #[must_use = "an answer that nobody reads limits nothing"]
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
        // The usual cases, without a list of what is asked.
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
                                || self.was_replaced(&rules, domain, |now| plain.active.still_counts(now))
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

    /// Decides a request of two descriptors.
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

    /// Charges both rules of a request, if both admit it. If not, nothing stays charged, and [`Rules::decide_together`] says what each
    /// rule decides. It charges in the same order.
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
        // One rule that is asked twice may be asked for one key.
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
        if charges[1].is_denied()
            || both.into_iter().any(|plain| plain.active.counts_with_override(domain))
            || self.was_replaced(rules, domain, |now| {
                both.into_iter().all(|plain| plain.active.still_counts(now))
            })
        {
            both.into_iter().zip(&charges).for_each(|(plain, charge)| plain.refund(charge, when));
            return false;
        }
        for (place, (plain, charge)) in (0..).zip(both.into_iter().zip(charges)) {
            plain.active.meters.observe_allowed(&charge);
            decided.push(Decided::new(plain.rule, place, charge));
        }
        true
    }

    /// Reports the refusal of a rule that decided alone.
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

    /// Decides by all rules that apply, however many.
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

    /// The answer to a request of a domain without rules.
    #[cold]
    fn unknown_domain(&self, rules: Loaded<RuleSet>) -> Answer {
        self.reloads.unknown_domain();
        let summary = Summary::new(Outcome::Allowed, self.options.shadow);
        Answer { rules, domain: None, summary, decided: Few::new() }
    }

    /// Whether a check has charged what does not count any more: the rules were replaced meanwhile, or a request was the first to
    /// bring along a limit that counts together with them.
    #[inline]
    fn is_outdated(&self, check: &RequestCheck<'_>, rules: &Loaded<RuleSet>, domain: &ActiveDomain) -> bool {
        check.charged() && {
            fence_after_rmw();
            check.missed_twin(domain) || self.was_replaced(rules, domain, |now| check.still_counts(now))
        }
    }

    /// Whether the rules were replaced meanwhile, and those in force now do not count as these did. To be asked after a fence.
    #[inline(always)]
    fn was_replaced(
        &self,
        rules: &Loaded<RuleSet>,
        domain: &ActiveDomain,
        still_counts: impl FnOnce(Option<&ActiveDomain>) -> bool,
    ) -> bool {
        #[cold]
        fn present<C>(rules: &Rules<C>) -> Loaded<RuleSet> {
            rules.in_force.load()
        }
        !self.in_force.is_present(rules) && !still_counts(present(self).domain(&domain.name))
    }

    /// Takes back what an answer has charged, as far as that is possible: as [`refund_all`](crate::refund_all). The descriptors are
    /// those of the request. Nothing is given back by rules that count first, nor by those that have changed since.
    ///
    /// A shared rule of the mode `atomic` gives back only through a `BlockingClient`, which waits, or
    /// by `refund_async`.
    pub fn refund(&self, descriptors: &[Descriptor<'_>], answer: &Answer) {
        let when = CheckTime::read(&self.clock);
        for Refund { counted, key, decided } in self.refunds(descriptors, answer) {
            give_back(counted, key.as_str(), decided, when);
        }
    }

    /// The charges of an answer that can be taken back.
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
                    Some(_) => CounterKey::of_request(&domain.name, descriptor),
                    None => active.key(descriptor),
                };
                if (own.is_some() && !counted.is_shared()) || active.still_counts(now) {
                    refunds.push(Refund { counted, key, decided });
                }
            }
        }
        refunds
    }

    /// The keys that were refused most, and by which rule, if they are [kept](RulesBuilder::top_denied).
    #[must_use]
    pub fn top_denied(&self, most: usize) -> Vec<DeniedKey> {
        self.observers.top.as_ref().map(|top| top.top(most)).unwrap_or_default()
    }

    /// The clock.
    #[must_use]
    pub const fn clock(&self) -> &C {
        &self.clock
    }

    /// Calls `visit` with the name of each domain, each rule in force, and what was counted of it since it came in force: a rule
    /// that stays in a reload goes on counting.
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

    /// Calls `visit` with the domain and the name of each rule and what its store says of itself: keys, evictions, how full it is. For gauges, when
    /// they are scraped; with feature `metrics`, `rules::publish_rules` does that.
    ///
    /// # Complexity
    /// O(slots) of all compact stores.
    pub fn readings(&self, mut visit: impl FnMut(&str, &str, &[Reading])) {
        let now_ns = self.clock.now().as_nanos();
        for domain in &self.in_force.load().domains {
            for active in &domain.rules {
                let readings = match &active.counter {
                    Counter::Local(local) => local.generation.store().readings(now_ns),
                    Counter::Shared(shared) => shared.limiter.readings(),
                    Counter::Unlimited(_) | Counter::Blocked { .. } => continue,
                };
                visit(&domain.name, &active.rule.name, &readings);
            }
        }
    }
}

/// A charge that can be taken back.
struct Refund<'a> {
    counted: CountedBy<'a>,
    key: CounterKey<'a>,
    decided: &'a Decided,
}

impl<C> std::fmt::Debug for Rules<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the rules themselves, whose values may be customers' names and keys.
        let rules = self.in_force.load();
        let domains: Vec<(&str, usize)> =
            rules.domains.iter().map(|domain| (&*domain.name, domain.rules.len())).collect();
        f.debug_struct("Rules").field("rules_by_domain", &domains).finish_non_exhaustive()
    }
}
