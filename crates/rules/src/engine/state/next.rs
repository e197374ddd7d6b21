//! How the rules of a load come from those before it.
//!
//! A rule that stays the same keeps its counter. A changed rule has a new one, which takes over the usage.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate::internals::CheckTime;
use tollgate::telemetry::{CheckTimer, Meters};
use tollgate_config::internals::DomainParts;
use tollgate_config::{Charging, Domain, Rule, TimeUnit};

use super::counter::{Counter, Prepared};
use super::error::RulesError;
use super::held::CounterName;
use super::options::LoadOptions;
use super::restore::{RestoreReport, Restored, RulesSnapshot};
use super::rule_set::{ActiveDomain, ActiveRule, OnceFlag, RuleSet, TIMED, holds_units};
use super::values::SeenValues;
use super::{held, overrides};
use crate::counting::{Hasher, NoCounter, Servers};

/// The counter of a rule, before its load is in force.
enum RuleCounter {
    Own(Box<Prepared>, Option<Arc<SeenValues>>),
    /// The counter is that of an earlier rule of the domain, with this index: another class of the same descriptor.
    SameAs(usize),
}

impl RuleSet {
    /// Creates the rules of these domains, with the clients' usage under the rules in force now. If one rule fails, the
    /// whole load fails.
    pub(in crate::engine) fn after(
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
        for domain in domains {
            let mut domain = domain.into_parts();
            let charging = options.charging(domain.charging);
            domain.charging = Some(charging);
            if options.hold_all && charging != Charging::CountFirst {
                domain.rules.iter_mut().for_each(Rule::hold_by_default);
            }
            let before = self.domain(&domain.name);
            let mut of_classes: HashMap<&str, usize> = HashMap::new();
            let mut counters: Vec<RuleCounter> = Vec::with_capacity(domain.rules.len());
            for (index, rule) in domain.rules.iter().enumerate() {
                let mut prepare = || {
                    if rule.class.is_some() {
                        let first = *of_classes.entry(rule.counter()).or_insert(index);
                        if let Some(RuleCounter::Own(prepared, _)) = counters.get(first) {
                            prepared.check_class(rule)?;
                            return Ok(RuleCounter::SameAs(first));
                        }
                    }
                    if options.quota && !servers.alone && rule.limit.blocks_on_server() {
                        return Err(NoCounter::refused(
                            "cannot be a quota: with store: redis, the server would block the key although another rule \
                             admits the request; remove the block, or use store: keyed",
                        ));
                    }
                    let last = before.and_then(|before| before.by_identity(rule.counter()));
                    let seen = last.and_then(|last| Some((&*last.rule, last.values.as_ref()?)));
                    let snapshot = snapshot.filter(|_| last.is_none());
                    let saved = snapshot.and_then(|snapshot| {
                        snapshot.counter(&domain.name, rule, (hasher, begun), &mut restored)
                    });
                    let last = last.map(|last| &last.counter).or(saved.as_ref());
                    let counter =
                        Counter::prepare(rule, charging, last, begun, (hasher, servers), book.as_ref())?;
                    counter.check_class(rule)?;
                    let values = SeenValues::after(rule, charging, seen, hasher)?;
                    if let (Some(snapshot), Some(values)) = (snapshot, &values) {
                        snapshot.values(&domain.name, rule, values, begun);
                    }
                    Ok(RuleCounter::Own(Box::new(counter), values))
                };
                let error = |error| RulesError::no_counter(domain.files.of(index), rule, error);
                let counter = prepare().map_err(error)?;
                counters.push(counter);
            }
            prepared.push((domain, counters));
        }
        let report = snapshot.map(|snapshot| {
            self.restore_overrides(snapshot, (hasher, begun), &mut restored);
            snapshot.finish(restored, book.as_deref(), begun)
        });
        // All slow steps are finished at this point, and no later step can fail.
        for counter in prepared.iter().flat_map(|(_, counters)| counters) {
            if let RuleCounter::Own(prepared, _) = counter {
                prepared.close_last();
            }
        }
        let when = now();
        let overrides = Arc::clone(&self.overrides);
        let mut next = Self { overrides, book, ..Self::empty(self.number + 1, hasher) };
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
        for (place, unit) in self.overrides.iter().zip(TimeUnit::ALL) {
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

    fn activate(
        &self,
        domain: DomainParts,
        before: Option<&ActiveDomain>,
        counters: Vec<RuleCounter>,
        when: CheckTime,
        (hasher, options): (&Hasher, &LoadOptions),
    ) -> ActiveDomain {
        let DomainParts { name, charging, shadow, rules, mut tree, files } = domain;
        let charging = charging.unwrap_or_default();
        let is_dry_run = shadow || options.shadow;
        let mut by_identity = HashMap::with_capacity_and_hasher(rules.len(), hasher.clone());
        by_identity.extend((0..).zip(&rules).map(|(index, rule)| (rule.identity.clone(), index)));
        // The next load finds the counter of classes, whatever classes it has.
        let of_classes = (0..).zip(&rules).filter(|(_, rule)| rule.class.is_some());
        by_identity.extend(of_classes.map(|(index, rule)| (rule.counter().into(), index)));
        let mut active: Vec<ActiveRule> = Vec::with_capacity(rules.len());
        let last: Vec<Option<&ActiveRule>> =
            rules.iter().map(|rule| before?.by_identity(&rule.identity)).collect();
        let kept = |rule: &Rule, last: Option<&ActiveRule>| {
            last.filter(|last| last.rule.name == rule.name).map(|same| same.meters.clone())
        };
        // The counts of all rules that are new, and the index of the next one among them.
        let new_rules = rules.iter().zip(&last).filter(|&(rule, &last)| kept(rule, last).is_none()).count();
        let (tallies, mut new) = (Meters::tallies(new_rules), 0..);
        for ((rule, prepared), last) in rules.into_iter().zip(counters).zip(last) {
            let meters = kept(&rule, last).unwrap_or_else(|| {
                let index = new.next().unwrap_or_default();
                Meters::among(&tallies, index, &name, &rule.name).near_limit(options.near_limit)
            });
            let (counter, values) = match prepared {
                RuleCounter::Own(prepared, values) => (prepared.finish(when), values),
                RuleCounter::SameAs(earlier) => (active[earlier].counter.clone(), None),
            };
            let counter = counter.of_rule(&rule, is_dry_run, self.number);
            let addresses = tree.addresses(u32::try_from(active.len()).unwrap_or(u32::MAX));
            let matched_before = last.is_some_and(ActiveRule::has_matched);
            let held_name = rule.hold.is_some().then(|| CounterName::of(&name, &rule));
            let mut next = ActiveRule::new(rule, addresses, counter, meters);
            next.values = values;
            next.matched_before = matched_before;
            next.held_name = held_name;
            active.push(next);
        }
        let rules = active;
        tree.prefetch_among(&rules);
        ActiveDomain {
            index: u32::try_from(self.domains.len()).unwrap_or(u32::MAX),
            charging,
            shadow,
            is_dry_run,
            quota: options.quota,
            has_plain: charging == Charging::AllOrNothing && !options.quota,
            files,
            asked: OnceFlag::default(),
            ever_asked: before.map(|before| Arc::clone(&before.ever_asked)).unwrap_or_default(),
            without_rule_noted: OnceFlag::default(),
            tree,
            #[cfg(feature = "tokio")]
            has_shared: rules.iter().any(|rule| matches!(rule.counter, Counter::Shared(_))),
            book: self.book.clone().filter(|_| rules.iter().any(|active| holds_units(&active.rule))),
            rules,
            overrides: Arc::clone(&self.overrides),
            timer: CheckTimer::new(&name, TIMED),
            by_identity,
            name,
        }
    }
}
