//! Refunds of the charges of an answer, and refunds without an answer.

use std::collections::HashSet;

use tollgate::internals::CheckTime;
use tollgate::{Clock, Outcome};
use tollgate_config::Charging;

use super::answer::Answer;
use super::check::{HoldUse, Request, RequestCheck};
use super::decided::{Decided, DecidedList, ShortList};
use super::rule_check;
use super::rule_check::{CountedBy, RuleCheck};
use crate::descriptor::{CounterKey, Descriptor};
use crate::engine::state::{ActiveDomain, LocalCounter, Role, Rules};

/// A charge that can be refunded.
pub(super) struct Refund<'a> {
    pub(super) counted: CountedBy<'a>,
    pub(super) key: CounterKey<'a>,
    pub(super) decided: &'a Decided,
}

impl<C: Clock> Rules<C> {
    /// Refunds the charges of an answer as far as possible, as [`AllOf::refund`](tollgate::joint::AllOf::refund) does. Pass the
    /// request's descriptors. Rules that count first, and rules that have changed since the check, do not refund.
    ///
    /// A shared rule in the mode `atomic` refunds only through a `Blocking` client, which waits, or with `refund_async`.
    pub fn refund(&self, descriptors: &[Descriptor<'_>], answer: &Answer) {
        let when = CheckTime::read(&self.clock);
        for Refund { counted, key, decided } in self.refunds(descriptors, answer, when) {
            rule_check::refund(counted, key.as_str(), decided, 0, when);
        }
    }

    /// Iterates over the charges of an answer that can be refunded.
    pub(super) fn refunds<'a>(
        &self,
        descriptors: &'a [Descriptor<'a>],
        answer: &'a Answer,
        when: CheckTime,
    ) -> ShortList<Refund<'a>> {
        let mut refunds = ShortList::new();
        let Some(domain) = answer.domain() else { return refunds };
        if domain.charging == Charging::CountFirst || answer.joint.outcome != Outcome::Allowed {
            return refunds;
        }
        let rules = self.in_force.load();
        let now = rules.domain(&domain.name);
        for decided in &*answer.decided {
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
                if own.is_none() && self.give_up_first(active, key.as_str(), domain, when) {
                    continue;
                }
                if (own.is_some() && !counted.is_shared()) || active.still_counts(now) {
                    refunds.push(Refund { counted, key, decided });
                }
            }
        }
        refunds
    }

    /// Refunds units to all rules that apply to these descriptors, without the answer that charged them. A
    /// descriptor's own cost has precedence over `hits`.
    ///
    /// No rule gets back more than is in use. Every caller can free the units of every key, so offer this only to
    /// callers that you trust. Use [`Rules::refund`] if you have the answer: it refunds the exact charges.
    ///
    /// Returns `false`, and refunds nothing, if one of these rules cannot refund: a log, a sketch, or a rule with
    /// `store: redis`. A refund during a reload may be lost, which is stricter for the client.
    ///
    /// # Complexity
    /// Same as [`Rules::check`].
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::{Descriptor, Rules};
    ///
    /// let rules = Rules::from_yaml("
    /// domain: gateway
    /// descriptors: [{ key: model, rate_limit: { unit: day, requests_per_unit: 100 } }]
    /// ")?;
    /// let request = [Descriptor::new(&[("model", "large")])];
    /// assert_eq!(rules.check_n("gateway", &request, 60).remaining(0), 40);
    /// assert!(rules.refund_n("gateway", &request, 25));
    /// assert_eq!(rules.check_n("gateway", &request, 0).remaining(0), 65);
    /// assert!(rules.refund_n("gateway", &request, 1_000));
    /// assert_eq!(rules.check_n("gateway", &request, 0).remaining(0), 100);
    /// # Ok::<(), tollgate_rules::RulesError>(())
    /// ```
    #[must_use = "`false` means that nothing was refunded"]
    pub fn refund_n(&self, domain: &str, descriptors: &[Descriptor<'_>], hits: u64) -> bool {
        let when = CheckTime::read(&self.clock);
        let rules = self.in_force.load();
        let Some(domain) = rules.domain(domain) else { return true };
        let mut decided = DecidedList::new();
        let mut found = RequestCheck::new(&mut decided);
        let request = Request { hold: HoldUse::Nothing, ..Request::of(descriptors, hits) };
        found.find((&rules, domain), &request, when.ns(), &self.hasher);
        let all = found.each(|role| role != Role::Replaced).all(|(check, _)| match check.counted {
            CountedBy::Local { counter, .. } => counter.can_refund,
            CountedBy::Shared(_) => false,
            CountedBy::Nothing | CountedBy::Blocked(_) | CountedBy::Book(_) => true,
        });
        if all {
            let mut ended = HashSet::new();
            for (check, _) in found.each(|role| role != Role::Replaced) {
                // Several descriptors with the same rule and key are one request in progress.
                let is_first = !check.is_in_progress()
                    || ended.insert((check.active.rule.counter(), check.key.as_str().to_owned()));
                if is_first {
                    refund_cost(check, domain, when);
                }
            }
        }
        all
    }
}

/// Refunds the cost of a request that this rule did not charge now.
fn refund_cost(check: &RuleCheck<'_>, domain: &ActiveDomain, when: CheckTime) {
    match check.counted {
        // A known value stays known, so its unit is not returned.
        CountedBy::Local { .. } if check.counts_values() => {}
        CountedBy::Local { counter, .. } => {
            // The holds of the key give their own units back.
            refund_in_use(counter, check.key.as_str(), check.cost, check.held_units(domain), when);
        }
        CountedBy::Book(counter) if check.cost > 0 => check.leave_first(counter),
        _ => {}
    }
}

/// Refunds units of a key, whichever requests charged them: at most those in use, less those of `others`. Returns the number of
/// units refunded.
pub(in crate::engine) fn refund_in_use(
    counter: &LocalCounter,
    key: &str,
    units: u64,
    others: u64,
    when: CheckTime,
) -> u64 {
    let in_use = counter.generation.peek(key, when, 0);
    let units = units.min(in_use.owed().saturating_sub(others));
    counter.generation.give_back(key, when, units)
}
