//! The health of the servers of shared rules.

use std::collections::HashSet;
use std::sync::Arc;

use crate::edge::redis::Health;
use crate::edge::rules::engine::state::{Counter, Rules};

impl<C> Rules<C> {
    /// Returns the health of the servers of all rules with `store: redis`, by the server's name: the sums of the counts,
    /// and the worst state. The name is empty if there is one server, or one Cluster. Empty without such rules.
    ///
    /// # Complexity
    /// O(rules), with some hundred loads for each shared rule.
    ///
    /// # Examples
    /// ```
    /// use tollgate::ManualClock;
    /// use tollgate::redis::{BreakerState, InProcess};
    /// use tollgate::rules::{Config, Rules};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let config = Config::from_yaml("limits.yaml", "
    /// domain: edge
    /// tollgate: {}
    /// descriptors:
    ///   - key: a
    ///     rate_limit: { unit: hour, requests_per_unit: 1, store: redis }
    /// ")?;
    /// let rules = Rules::builder().redis(InProcess::new(ManualClock::default())).load([config])?;
    /// let [(name, health)] = &rules.health_by_server()[..] else { panic!() };
    /// assert_eq!((&**name, health.asked, health.breaker), ("", 0, BreakerState::Closed));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn health_by_server(&self) -> Vec<(Arc<str>, Health)> {
        let mut seen = HashSet::new();
        let mut servers: Vec<(Arc<str>, Health)> = Vec::new();
        for active in self.in_force.load().domains.iter().flat_map(|domain| &domain.rules) {
            let Counter::Shared(shared) = &active.counter else { continue };
            // The classes of a descriptor share a limiter.
            if !seen.insert(Arc::as_ptr(&shared.whole)) {
                continue;
            }
            for (name, health) in shared.whole.health_by_server() {
                match servers.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, sum)) => *sum = sum.plus(&health),
                    None => servers.push((name, health)),
                }
            }
        }
        servers
    }
}
