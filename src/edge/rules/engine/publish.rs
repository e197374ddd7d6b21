//! Figures of rules for the `metrics` facade.

use super::Rules;
use crate::base::clock::Clock;
use crate::edge::telemetry::{publish_rule, publish_unmatched};

/// Publishes the readings of all rules' stores, each under its domain's and its rule's name, as its counters are. Of rules of one name
/// in a domain, of which [`Config::warnings`](crate::rules::Config::warnings) and
/// [`Domain::warnings`](crate::rules::Domain::warnings) tell, one is seen: give each a name of its own.
///
/// And of each domain, how many of its rules have applied to no request since the last load, although it was asked
/// ([`Rules::unmatched`]). Call it when metrics are scraped, as [`telemetry::publish`](crate::telemetry::publish).
///
/// # Complexity
/// As [`Rules::readings`].
pub fn publish_rules<C: Clock>(rules: &Rules<C>) {
    rules.readings(publish_rule);
    for domain in &rules.in_force.load().domains {
        publish_unmatched(&domain.name, domain.unmatched().count());
    }
}
