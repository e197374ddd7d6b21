//! The counts of rules in force, and of their stores.

use std::collections::HashSet;
use std::sync::Arc;

use tollgate::Clock;
use tollgate::telemetry::{DeniedKey, MeterCounts, Reading};
use tollgate_config::Rule;

use crate::counting::SharedLimiter;
use crate::engine::state::{Counter, Rules};
#[cfg(feature = "metrics")]
use crate::telemetry::{publish_rule, publish_unmatched};

impl<C: Clock> Rules<C> {
    /// Calls `visit` with the domain's name, the rule and its counts, for each rule in force. The counts start when the
    /// rule takes effect, and continue if a reload keeps the rule.
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::{Descriptor, Rules};
    ///
    /// let rules = Rules::from_yaml("{ domain: edge, descriptors: [ { key: a, rate_limit: { unit: hour, requests_per_unit: 1 } } ] }")?;
    /// for _ in 0..3 {
    ///     let _ = rules.check("edge", &[Descriptor::new(&[("a", "x")])]);
    /// }
    /// rules.for_each(|domain, rule, counts| {
    ///     assert_eq!((domain, &*rule.name, counts.allowed, counts.denied), ("edge", "edge.a", 1, 2));
    /// });
    /// # Ok::<(), tollgate_rules::RulesError>(())
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
    /// use tollgate_rules::{Config, Rules};
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
    /// `tollgate_rules::publish_rules` does this.
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

    /// Returns the limiters of the rules in force with `store: redis`, each once. The store that made them may know more
    /// of them: `tollgate_redis::health_by_server` returns the health of their servers.
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::Rules;
    ///
    /// let rules = Rules::from_yaml("{ domain: edge, descriptors: [ { key: a, rate_limit: { unit: hour, requests_per_unit: 1 } } ] }")?;
    /// assert!(rules.shared_limiters().is_empty()); // this process counts the rule
    /// # Ok::<(), tollgate_rules::RulesError>(())
    /// ```
    #[must_use]
    pub fn shared_limiters(&self) -> Vec<Arc<dyn SharedLimiter>> {
        let mut seen = HashSet::new();
        let rules = self.in_force.load();
        let all = rules.domains.iter().flat_map(|domain| &domain.rules).filter_map(|active| {
            match &active.counter {
                Counter::Shared(shared) => Some(&shared.whole),
                _ => None,
            }
        });
        // The classes of a descriptor share a limiter.
        all.filter(|limiter| seen.insert(Arc::as_ptr(limiter).cast::<()>())).cloned().collect()
    }

    /// Returns the most-denied keys with the rules that denied them, if they are
    /// [kept](crate::RulesBuilder::top_denied).
    #[must_use]
    pub fn top_denied(&self, most: usize) -> Vec<DeniedKey> {
        self.observers.top.as_ref().map(|top| top.top(most)).unwrap_or_default()
    }

    /// Returns the rules in force that matched no request since the last load although their domain had requests, each
    /// with its domain. Such a rule has a misspelt key or value, in the file or in the caller, or another rule hides
    /// it.
    ///
    /// With the feature `metrics`, `tollgate_rules::publish_rules` publishes their number in each domain:
    /// `tollgate_rules_unmatched`.
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::{Descriptor, Rules};
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
    /// # Ok::<(), tollgate_rules::RulesError>(())
    /// ```
    #[must_use]
    pub fn unmatched(&self) -> Vec<(Box<str>, Rule)> {
        let live = self.in_force.load();
        let each = live.domains.iter().flat_map(|domain| {
            domain.unmatched().map(|active| (domain.name.clone(), Rule::clone(&active.rule)))
        });
        each.collect()
    }
}

/// Publishes the readings of all rules' stores. The labels are the domain and the rule's name, as for the rule's
/// counters. If several rules of a domain have the same name, only one is visible, so give each rule its own name.
/// [`Config::warnings`](crate::Config::warnings) and [`Domain::warnings`](crate::Domain::warnings) report
/// such names.
///
/// Also publishes, for each domain that had requests, how many of its rules matched no request since the last load
/// ([`Rules::unmatched`]). Call it when metrics are scraped, like [`telemetry::publish`](tollgate::telemetry::publish).
///
/// # Complexity
/// Same as [`Rules::readings`].
#[cfg(feature = "metrics")]
pub fn publish_rules<C: Clock>(rules: &Rules<C>) {
    rules.readings(publish_rule);
    for domain in &rules.in_force.load().domains {
        publish_unmatched(&domain.name, domain.unmatched().count());
    }
}
