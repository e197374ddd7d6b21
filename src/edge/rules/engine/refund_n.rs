//! Refunds without an answer.

use super::Rules;
use super::answer::{Few, Part};
use super::check::{CountedBy, RequestCheck};
use super::rule_check::RuleCheck;
use crate::base::check_time::CheckTime;
use crate::base::clock::Clock;
use crate::edge::rules::matching::Descriptor;
use crate::store::op::Store;

impl<C: Clock> Rules<C> {
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
    /// use tollgate::rules::{Descriptor, Rules};
    ///
    /// let rules = Rules::from_yaml("
    /// domain: gateway
    /// descriptors: [{ key: model, rate_limit: { unit: day, requests_per_unit: 100 } }]
    /// ")?;
    /// let request = [Descriptor::new(&[("model", "large")])];
    /// assert_eq!(rules.check_n("gateway", &request, 60).status(0).remaining(), 40);
    /// assert!(rules.refund_n("gateway", &request, 25));
    /// assert_eq!(rules.check_n("gateway", &request, 0).status(0).remaining(), 65);
    /// assert!(rules.refund_n("gateway", &request, 1_000));
    /// assert_eq!(rules.check_n("gateway", &request, 0).status(0).remaining(), 100);
    /// # Ok::<(), tollgate::rules::RulesError>(())
    /// ```
    #[must_use = "`false` means that nothing was refunded"]
    pub fn refund_n(&self, domain: &str, descriptors: &[Descriptor<'_>], hits: u64) -> bool {
        let when = CheckTime::read(&self.clock);
        let rules = self.in_force.load();
        let Some(domain) = rules.domain(domain) else { return true };
        let mut decided = Few::new();
        let mut found = RequestCheck::new(&mut decided);
        found.find(domain, descriptors, hits, when.ns(), &self.hasher);
        let all = found.each(|part| part != Part::Replaced).all(|(check, _)| match check.counted {
            CountedBy::Local { counter, .. } => counter.undoes,
            CountedBy::Shared(_) => false,
            CountedBy::Nothing | CountedBy::Blocked(_) => true,
        });
        if all {
            found.each(|part| part != Part::Replaced).for_each(|(check, _)| refund(check, when));
        }
        all
    }
}

/// Refunds the cost of a request that this rule did not charge now.
fn refund(check: &RuleCheck<'_>, when: CheckTime) {
    if let CountedBy::Local { counter, .. } = check.counted {
        let key = check.key.as_str();
        let in_use = counter.generation.peek(key, when, 0);
        // A store refunds what a decision has charged. This decision stands for all of the key's charges.
        counter.generation.store().refund(key, when, &in_use.for_cost(check.cost).forced(), check.cost);
    }
}
