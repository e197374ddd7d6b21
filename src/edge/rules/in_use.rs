//! Domains that are in use, which no load takes away unless it may; and rules that nobody meets.
//!
//! A domain is in use once a layer was made for it, or [`Rules::require_domain`] called, or a request has asked it. From then on a load
//! that has no rules of it fails: a name that is misspelt in a file must not turn all limits off.

use std::sync::PoisonError;

use super::config::removed;
use super::live::Live;
use super::{Config, Loading, Problem, Rule, Rules, RulesError};
use crate::base::clock::Clock;

impl<C: Clock> Rules<C> {
    /// Says that a domain is in use: from now on a load that would remove it, or leave it without any rule, fails, unless
    /// [`RulesBuilder::allow_removals`](super::RulesBuilder::allow_removals) says otherwise. A layer of the domain calls this when it is
    /// made; call it where your own code asks the rules. A domain that a request has asked is in use as well.
    ///
    /// # Errors
    /// If there are no rules of the domain: with its name, and the nearest that there is.
    ///
    /// # Examples
    /// ```
    /// use tollgate::rules::{Config, Rules};
    ///
    /// let text = |domain| format!("
    /// domain: {domain}
    /// descriptors:
    ///   - key: user
    ///     rate_limit: {{ unit: day, requests_per_unit: 100 }}
    /// ");
    /// let rules = Rules::from_yaml(&text("shop"))?;
    /// let error = rules.require_domain("shopp").unwrap_err();
    /// assert!(error.to_string().contains("the nearest is \"shop\""));
    ///
    /// rules.require_domain("shop")?;
    /// let renamed = Config::from_yaml("limits.yaml", &text("store"))?;
    /// assert!(rules.replace([renamed]).is_err()); // the old limits stay
    /// # Ok::<(), tollgate::rules::RulesError>(())
    /// ```
    pub fn require_domain(&self, domain: &str) -> Result<(), RulesError> {
        // No load is under way meanwhile.
        let mut loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let live = self.live.load();
        if live.domain(domain).is_none() {
            let likeness = |name: &str| strsim::jaro_winkler(domain, name);
            let nearest =
                live.domains().max_by(|one, other| likeness(&one.name).total_cmp(&likeness(&other.name)));
            let nearest = nearest.map(|near| (&*near.name, near.files.names().next().unwrap_or_default()));
            return Err(RulesError::no_domain(domain, nearest));
        }
        if !loading.required.iter().any(|required| &**required == domain) {
            loading.required.push(domain.into());
        }
        Ok(())
    }

    /// The rules in force that have applied to no request since the last load, although their domain was asked: a key or a value that is
    /// misspelt, in the file or by what asks; or a rule that another one hides. Each with its domain.
    ///
    /// With feature `metrics`, `telemetry::publish_rules` publishes how many there are in each domain: `tollgate_rules_unmatched`.
    ///
    /// # Examples
    /// ```
    /// use tollgate::rules::{Descriptor, Rules};
    ///
    /// let rules = Rules::from_yaml("
    /// domain: edge
    /// descriptors:
    ///   - key: user
    ///     rate_limit: { unit: day, requests_per_unit: 100 }
    ///   - key: remote_adress
    ///     rate_limit: { unit: second, requests_per_unit: 10 }
    /// ")?;
    /// let request = [Descriptor::new(&[("user", "alice")]), Descriptor::new(&[("remote_address", "192.0.2.1")])];
    /// assert!(rules.check("edge", &request).is_allowed());
    /// let unmatched: Vec<_> = rules.unmatched().iter().map(|(_, rule)| rule.identity.to_string()).collect();
    /// assert_eq!(unmatched, ["edge|remote_adress"]);
    /// # Ok::<(), tollgate::rules::RulesError>(())
    /// ```
    #[must_use]
    pub fn unmatched(&self) -> Vec<(Box<str>, Rule)> {
        let live = self.live.load();
        let each = live
            .domains()
            .flat_map(|domain| domain.unmatched().map(|active| (domain.name.clone(), active.rule.clone())));
        each.collect()
    }

    /// Calls `visit` with each domain and how many such rules it has.
    #[cfg(feature = "metrics")]
    pub(crate) fn for_each_unmatched(&self, mut visit: impl FnMut(&str, usize)) {
        for domain in self.live.load().domains() {
            visit(&domain.name, domain.unmatched().count());
        }
    }

    /// What a load of these files would take from domains in use, unless it may.
    pub(super) fn refused_removals(
        &self,
        last: &Live,
        loading: &Loading,
        configs: &[Config],
    ) -> Vec<Problem> {
        if self.options.allow_removals {
            return Vec::new();
        }
        let is_used = |name: &str| loading.required.iter().any(|required| &**required == name);
        let in_use = last.domains().filter(|domain| domain.was_asked() || is_used(&domain.name));
        in_use
            .filter_map(|domain| removed(configs, &domain.name, &domain.files, !domain.rules().is_empty()))
            .collect()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    /// The request found the rules of one load, and asked them after the next one. A load that follows has to know of it.
    #[test]
    fn domain_asked_during_a_load_is_in_use() {
        let config = |domain: &str| {
            let limit = "{ unit: hour, requests_per_unit: 1 }";
            let text = format!("{{ domain: {domain}, descriptors: [ {{ key: a, rate_limit: {limit} }} ] }}");
            Config::from_yaml("test.yaml", &text).expect("it is right")
        };
        let rules = Rules::builder().load([config("shop")]).expect("they load");
        let found = rules.live.load();
        rules.replace([config("shop")]).expect("they load");
        found.domain("shop").expect("there are rules").1.note_asked();
        assert!(rules.replace([config("store")]).is_err());
    }
}
