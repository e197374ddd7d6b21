//! Requests to which no rule applies.

use crate::base::clock::Clock;
use crate::base::decision::Outcome;
use crate::edge::rules::engine::state::{DomainId, RuleSet, Rules, WithoutRule};
use crate::edge::rules::matching::Descriptor;
use crate::edge::telemetry::request_without_rule;

/// The most descriptors of a request, and entries of each, that the log names.
const LOGGED: usize = 8;

impl<C: Clock> Rules<C> {
    /// Decides a request to which no rule applies, and logs it.
    #[inline]
    pub(super) fn decide_without_rule(
        &self,
        rules: &RuleSet,
        domain: DomainId<'_>,
        descriptors: &[Descriptor<'_>],
    ) -> Outcome {
        match self.options.without_rule {
            WithoutRule::Admit => Outcome::Allowed,
            WithoutRule::Log | WithoutRule::Deny => self.decide_and_note(rules, domain, descriptors),
        }
    }

    #[cold]
    fn decide_and_note(
        &self,
        rules: &RuleSet,
        domain: DomainId<'_>,
        descriptors: &[Descriptor<'_>],
    ) -> Outcome {
        if !is_exempt(rules, domain, descriptors) {
            note(rules, domain, descriptors, self.options.without_rule == WithoutRule::Deny);
        }
        self.outcome_without_rule(rules, domain, descriptors)
    }

    /// Returns the outcome of a request to which no rule applies.
    #[cold]
    pub(in crate::edge::rules::engine) fn outcome_without_rule(
        &self,
        rules: &RuleSet,
        domain: DomainId<'_>,
        descriptors: &[Descriptor<'_>],
    ) -> Outcome {
        let denies = self.options.without_rule == WithoutRule::Deny;
        if denies && !is_exempt(rules, domain, descriptors) { Outcome::Never } else { Outcome::Allowed }
    }
}

/// Whether a descriptor without a limit exempts a request.
#[cold]
fn is_exempt(rules: &RuleSet, domain: DomainId<'_>, descriptors: &[Descriptor<'_>]) -> bool {
    let Some(domain) = rules.domain_of(domain) else { return false };
    descriptors.iter().any(|descriptor| domain.tree().exempts(descriptor.entries()))
}

/// Logs the first request of a domain to which no rule applies.
fn note(rules: &RuleSet, domain: DomainId<'_>, descriptors: &[Descriptor<'_>], is_denied: bool) {
    let active = rules.domain_of(domain);
    let noted = active.map_or(&rules.unknown_noted, |domain| &domain.without_rule_noted);
    if noted.set() {
        return;
    }
    let name = match (active, domain) {
        (Some(domain), _) => &domain.name,
        (None, DomainId::Name(name)) => name,
        (None, DomainId::Index(_)) => "",
    };
    let keys = |descriptor: &Descriptor<'_>| {
        let keys = descriptor.entries().iter().take(LOGGED).map(|(key, _)| *key);
        keys.collect::<Vec<_>>().join(".")
    };
    let keys = descriptors.iter().take(LOGGED).map(keys).collect::<Vec<_>>().join(", ");
    request_without_rule(name, &keys, is_denied);
}
