//! Publishes readings of rules through the `metrics` facade.

use crate::base::clock::Clock;
use crate::edge::rules::engine::state::Rules;
use crate::edge::telemetry::{publish_rule, publish_unmatched};

/// Publishes the readings of all rules' stores. The labels are the domain and the rule's name, as for the rule's
/// counters. If several rules of a domain have the same name, only one is visible, so give each rule its own name.
/// [`Config::warnings`](crate::rules::Config::warnings) and [`Domain::warnings`](crate::rules::Domain::warnings) report
/// such names.
///
/// Also publishes, for each domain that had requests, how many of its rules matched no request since the last load
/// ([`Rules::unmatched`]). Call it when metrics are scraped, like [`telemetry::publish`](crate::telemetry::publish).
///
/// # Complexity
/// Same as [`Rules::readings`].
pub fn publish_rules<C: Clock>(rules: &Rules<C>) {
    rules.readings(publish_rule);
    for domain in &rules.in_force.load().domains {
        publish_unmatched(&domain.name, domain.unmatched().count());
    }
}
