//! Rules on a server: their counters, and their texts.
//!
//! ```text
//! limiter   the counter of a rule, of any mode and client: what `tollgate_rules::SharedStore` asks of a client
//! denials   what it needs to count the requests that it denies
//! source    the texts of rules under a key: what `tollgate_rules::Source` asks
//! push      writes such texts
//! ```

mod denials;
mod limiter;
mod push;
mod source;

use std::any::Any;
use std::sync::Arc;

use tollgate::Clock;

use self::limiter::RuleLimiter;
pub use self::source::{PushedRules, RedisRules};
use super::guard::Health;
use tollgate_protocol::Plan;
use tollgate_rules::{Amount, Config, ConfigError, Problem, Rule, Rules, Store};

/// Checks that a server can count the rules of a file with `store: redis`, and names all that it cannot. A load of [`Rules`]
/// stops at the first of them, and a tool that only reads the file may have no server.
///
/// # Errors
/// If the script on the server cannot count limits exactly. The problems name the rules.
///
/// # Examples
/// ```
/// use tollgate_redis::check_config;
/// use tollgate_rules::Config;
///
/// let limit = |burst: u32| format!("
/// domain: edge
/// tollgate: {{ store: redis, mode: atomic }}
/// descriptors: [{{ key: user, rate_limit: {{ unit: day, requests_per_unit: 1, algorithm: gcra, burst: {burst} }} }}]
/// ");
/// assert!(check_config(&Config::from_yaml("limits.yaml", &limit(10))?).is_ok());
/// let error = check_config(&Config::from_yaml("limits.yaml", &limit(100_000))?).unwrap_err();
/// assert!(error.to_string().contains("the burst can be at most 26062"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check_config(config: &Config) -> Result<(), ConfigError> {
    let problem = |rule: &Rule| {
        let Amount::Limited { limit, store: Some(Store::Redis(_)) } = rule.limit else { return None };
        let error = Plan::new(&[limit]).err()?;
        let message = format!("the rule {:?} cannot be counted: {error}", rule.identity);
        Some(Problem::of_line(config.file(), rule.line, &message, "choose another limit, algorithm or store"))
    };
    let problems: Vec<_> = config.rules().iter().filter_map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(ConfigError::new(problems)) }
}

/// Returns the health of the servers of all rules with `store: redis`, by the server's name: the sums of the counts, and the
/// worst state. The name is empty if there is one server, or one Cluster. Empty without such rules.
///
/// # Complexity
/// O(rules), with some hundred loads for each shared rule.
///
/// # Examples
/// ```
/// use tollgate::ManualClock;
/// use tollgate_redis::{BreakerState, InProcess, health_by_server};
/// use tollgate_rules::{Config, Rules};
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
/// let rules = Rules::builder().shared(InProcess::new(ManualClock::default())).load([config])?;
/// let [(name, health)] = &health_by_server(&rules)[..] else { panic!() };
/// assert_eq!((&**name, health.asked, health.breaker), ("", 0, BreakerState::Closed));
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn health_by_server<C: Clock>(rules: &Rules<C>) -> Vec<(Arc<str>, Health)> {
    let mut servers: Vec<(Arc<str>, Health)> = Vec::new();
    for limiter in rules.shared_limiters() {
        let any: &dyn Any = &*limiter;
        // The store of the rules may be another one.
        let health = any.downcast_ref().map(RuleLimiter::health_by_server);
        for (name, health) in health.into_iter().flatten() {
            match servers.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum = sum.plus(health),
                None => servers.push((name, health)),
            }
        }
    }
    servers
}
