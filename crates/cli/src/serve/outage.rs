//! Whether the Redis server can be used: a line in the log at each change, and what the health pages say.
//!
//! While the server cannot be used, the rules decide by `on_failure` and every answer looks as usual, so nothing else would tell an
//! operator. Each test charges one unit to a key of the program's own, because a charge needs everything that a rule needs: the
//! address, the password, the right to run scripts, and a server that takes writes. A test fails although no request comes, and its
//! error has the reason. The test's key is on one node of a Cluster; for the other nodes, the breakers of the rules tell.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::{MissedTickBehavior, interval};
use tollgate::Quota;
use tollgate::redis::{AtomicLimiter, Breaker, Client, Limit};
use tollgate::rules::{Amount, Rules, Store};

use super::log;
use crate::args::serve::ServeRules;
use crate::error::Error;
use crate::human;

/// How often the state is looked at, and how often the server is tested while it cannot be used.
const SECOND: Duration = Duration::from_secs(1);

/// A server that can be used is tested in each of this many seconds.
const USABLE: u64 = 3;

/// If tests succeed, the calls of rules must fail for this many seconds before the log reports it. The breakers of rules close a
/// moment after a server is back.
const PARTLY: u32 = 3;

/// The name of the tests' limiter, and its key.
const NAME: &str = "tollgate.health";

/// What is known about the Redis server.
#[derive(Debug)]
pub struct RedisState {
    /// The address, without user and password.
    address: String,
    /// `None` while the server can be used.
    outage: Mutex<Option<Arc<Outage>>>,
}

/// A time in which the server cannot be used.
#[derive(Debug)]
pub struct Outage {
    /// When a test failed first.
    pub since: SystemTime,
    /// Why.
    pub why: String,
    /// What decides meanwhile.
    pub decides: String,
}

impl RedisState {
    pub fn new(url: &str) -> Self {
        Self { address: without_secrets(url), outage: Mutex::new(None) }
    }

    /// Returns the present outage.
    pub fn outage(&self) -> Option<Arc<Outage>> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a sentence about the present outage: since when, why, and what decides.
    pub fn problem(&self) -> Option<String> {
        let outage = self.outage()?;
        let since = jiff::Timestamp::try_from(outage.since).map(|time| format!("{time:.0}"));
        let (address, why, decides) = (&self.address, &outage.why, &outage.decides);
        let since = since.unwrap_or_default();
        Some(format!("the Redis server {address} cannot be used since {since}: {why}; {decides}"))
    }

    /// Notes the result of a look. A change is a line in the log.
    fn note(&self, result: Result<(), String>, decides: impl FnOnce() -> String) {
        let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        match (&mut *outage, result) {
            (None, Ok(())) => {}
            // The reason may change: a server that is started again may refuse the password.
            (Some(present), Err(why)) => {
                if present.why != why {
                    let Outage { since, ref decides, .. } = **present;
                    *present = Arc::new(Outage { since, why, decides: decides.clone() });
                }
            }
            (empty @ None, Err(why)) => {
                *empty = Some(Arc::new(Outage { since: SystemTime::now(), why, decides: decides() }));
                drop(outage);
                self.problem().iter().for_each(log::warn);
            }
            (Some(ended), Ok(())) => {
                let lasted = ended.since.elapsed().unwrap_or_default().as_secs();
                *outage = None;
                log::warn(format_args!(
                    "the Redis server {} can be used again, after {}: it decides",
                    self.address,
                    human::counted(lasted, "second"),
                ));
            }
        }
    }
}

/// Watches the server for as long as the process runs.
#[derive(Debug)]
pub struct RedisWatch {
    limiter: AtomicLimiter,
    rules: Arc<Rules>,
    state: Arc<RedisState>,
}

impl RedisWatch {
    /// Prepares to watch the server of this client.
    ///
    /// # Errors
    /// If a limiter cannot be built, which does not happen for this quota.
    pub fn new(client: &Client, args: &ServeRules, rules: &Arc<Rules>) -> Result<Self, Error> {
        let mut builder = client.limiter(NAME, Limit::gcra(Quota::per_second(1_000)));
        if let Some(prefix) = &args.connection.redis_prefix {
            builder = builder.prefix(prefix);
        }
        // Each test calls the server, so that it has the reason of the failure.
        let builder = builder.timeout(SECOND).breaker(Breaker::new(u32::MAX, Duration::ZERO));
        let limiter = builder.atomic().map_err(|error| Error::run(error.to_string()))?;
        let state = Arc::new(RedisState::new(args.redis.as_deref().unwrap_or_default()));
        Ok(Self { limiter, rules: Arc::clone(rules), state })
    }

    /// Returns what the watch knows.
    pub fn state(&self) -> Arc<RedisState> {
        Arc::clone(&self.state)
    }

    /// Watches. Call it in the runtime that answers, because the client's connection belongs to the runtime that calls first.
    pub async fn run(self) {
        let Self { limiter, rules, state } = self;
        let mut second = interval(SECOND);
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut opened, mut failing) = (0, 0);
        for tick in 0_u64.. {
            second.tick().await;
            let servers = rules.health_by_server();
            // Without a rule that uses it, the server is not called.
            if servers.is_empty() {
                state.note(Ok(()), String::new);
                continue;
            }
            let now = servers.iter().fold(0_u64, |sum, (_, health)| sum.wrapping_add(health.opened));
            let fails = now > opened || servers.iter().any(|(_, health)| health.is_partitioned());
            (opened, failing) = (now, if fails { failing + 1 } else { 0 });
            let is_down = state.outage().is_some();
            if !is_down && failing == 0 && tick % USABLE != 0 {
                continue;
            }
            let result = match limiter.charge_unchecked(NAME, 1).await {
                Err(error) => Err(error.to_string()),
                Ok(_) if failing >= PARTLY || is_down && failing > 0 => {
                    Err("calls of rules fail, although a test succeeds: a part of it does not answer"
                        .to_owned())
                }
                Ok(_) => Ok(()),
            };
            state.note(result, || decides(&rules));
        }
    }
}

/// Returns a sentence about what decides without the server.
fn decides(rules: &Rules) -> String {
    let mut policies: BTreeMap<String, u64> = BTreeMap::new();
    rules.for_each(|_, rule, _| {
        if let Amount::Limited { store: Some(Store::Redis(shared)), .. } = rule.limit {
            *policies.entry(shared.on_failure.to_string()).or_default() += 1;
        }
    });
    let each =
        policies.iter().map(|(policy, count)| format!("{policy} for {}", human::counted(*count, "rule")));
    format!("meanwhile on_failure decides: {}", each.collect::<Vec<_>>().join(", "))
}

/// Returns addresses without users, passwords and settings.
fn without_secrets(urls: &str) -> String {
    // An address of Sentinels has commas and one user. Other addresses with commas have a user each.
    let one = |url: &str| {
        let (scheme, rest) = url.trim().split_once("://").unwrap_or(("redis", url.trim()));
        let rest = rest.split('?').next().unwrap_or_default();
        format!("{scheme}://{}", rest.rsplit('@').next().unwrap_or_default())
    };
    match urls.contains("-sentinel://") {
        true => one(urls),
        false => urls.split(',').map(one).collect::<Vec<_>>().join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_secrets() {
        for (url, shown) in [
            ("redis://127.0.0.1:6379/2", "redis://127.0.0.1:6379/2"),
            ("rediss://user:secret@[::1]:6379", "rediss://[::1]:6379"),
            ("redis://:secret@a:1, redis://u:sec%40ret@b:2", "redis://a:1,redis://b:2"),
            ("unix:///run/redis.sock?user=u&pass=secret", "unix:///run/redis.sock"),
            ("redis-sentinel://u:secret@a:1,b:2/name?auth=v:secret", "redis-sentinel://a:1,b:2/name"),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }

    #[test]
    fn outage_begins_and_ends_once() {
        let state = RedisState::new("redis://u:p@h:1");
        let failed = |why: &str| state.note(Err(why.to_owned()), || "meanwhile open decides".to_owned());
        assert_eq!(state.problem(), None);
        failed("first");
        let since = state.outage().unwrap().since;
        failed("second");
        let outage = state.outage().unwrap();
        assert_eq!((outage.since, &*outage.why), (since, "second"));
        let problem = state.problem().unwrap();
        assert!(
            problem.contains("redis://h:1 ") && problem.ends_with(": second; meanwhile open decides"),
            "{problem}"
        );
        state.note(Ok(()), String::new);
        assert!(state.outage().is_none());
    }
}
