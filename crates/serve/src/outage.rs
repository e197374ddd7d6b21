//! Whether the Redis server can be used: a line in the log at each change, and what the health pages say.
//!
//! While the server cannot be used, the rules decide by `on_failure` and every answer looks as usual, so nothing else would tell an
//! operator. Each test charges one unit to a key of the program's own, because a charge needs everything that a rule needs: the
//! address, the password, the right to run scripts, and a server that takes writes. A test fails although no request comes, and its
//! error has the reason. The test's key is on one node of a Cluster; for the other nodes, the calls of the rules tell.
//!
//! A server can also be too slow: a test waits a second for it, and a request only until its deadline. Such calls open no breaker,
//! because their callers stop waiting long before a rule's `timeout`. So each look also counts the requests that rules have decided
//! without the server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, MissedTickBehavior, interval};
use tollgate::Quota;
use tollgate_redis::{AtomicLimiter, Breaker, Client, Health, Limit, health_by_server};
use tollgate_rules::{Amount, Rules, Store};

use super::log;
use crate::flags::ServeArgs;
use tollgate_report::error::Error;
use tollgate_report::human;

/// How often the state is looked at, and how often the server is tested while it cannot be used.
const SECOND: Duration = Duration::from_secs(1);

/// A server that can be used is tested in each of this many seconds.
const USABLE: u64 = 3;

/// If tests succeed, the calls of rules must fail for this many seconds before the log reports it. The breakers of rules close a
/// moment after a server is back. Without calls, this many quick tests in a row end an outage of late calls.
const PARTLY: u32 = 3;

/// The calls of rules are late if one request is decided without the server for this many calls. A request may need up to three
/// calls: one asks, one charges, and one refunds the charge that came too late. With one request for each four calls, nearly all calls
/// are therefore late if every request needs three, and at least a quarter are late if every request needs one.
const LATE: u64 = 4;

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

/// What the calls of rules tell about the server.
#[derive(Debug, Default)]
struct RuleCalls {
    opened: u64,
    asked: u64,
    decided_here: u64,
    /// For how many looks they fail.
    failing: u32,
    /// Whether they failed at the last such look because they were late.
    are_late: bool,
    /// Whether there was none since the last look.
    is_silent: bool,
    /// The quick tests in a row without a call.
    quick: u32,
}

impl RuleCalls {
    /// Compares the counts of all rules with those of the last look.
    fn compare(&mut self, health: &[(Arc<str>, Health)]) {
        let sum = |count: fn(&Health) -> u64| {
            health.iter().fold(0_u64, |sum, (_, health)| sum.wrapping_add(count(health)))
        };
        let opened = sum(|health| health.opened);
        let asked = sum(|health| health.asked);
        let decided_here = sum(|health| health.open.wrapping_add(health.closed).wrapping_add(health.local));
        // The sums are smaller after a load without some rules.
        let (calls, decided) =
            (asked.saturating_sub(self.asked), decided_here.saturating_sub(self.decided_here));
        let is_stopped = opened > self.opened || health.iter().any(|(_, health)| health.is_partitioned());
        let are_late = decided > 0 && decided.saturating_mul(LATE) >= calls;
        (self.opened, self.asked, self.decided_here) = (opened, asked, decided_here);
        self.is_silent = !is_stopped && calls == 0 && decided == 0;
        if is_stopped || are_late {
            (self.failing, self.are_late) = (self.failing.saturating_add(1), !is_stopped);
        } else if !self.is_silent || !self.are_late {
            // Without calls, nothing says that late ones are in time now.
            self.failing = 0;
        }
    }

    /// Returns what a look and the result of a test say together. `test` has the time that the test took, and `is_down` is the
    /// state before.
    fn judge(
        &mut self,
        test: Result<Duration, String>,
        is_down: bool,
        deadline: Duration,
    ) -> Result<(), String> {
        let took = test?;
        self.quick = if self.is_silent && took <= deadline { self.quick.saturating_add(1) } else { 0 };
        if self.quick >= PARTLY {
            self.failing = 0;
        }
        match self.failing {
            failing if failing < PARTLY && !(is_down && failing > 0) => Ok(()),
            _ if self.are_late => Err(format!(
                "a quarter or more of the calls of rules are late or fail, although a test succeeds: an answer must come within \
                 --deadline ({deadline:?})"
            )),
            _ => {
                Err("calls of rules fail, although a test succeeds: a part of it does not answer".to_owned())
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
    /// The longest time for an answer.
    deadline: Duration,
    calls: RuleCalls,
}

impl RedisWatch {
    /// Prepares to watch the server of this client.
    ///
    /// # Errors
    /// If a limiter cannot be built, which does not happen for this quota.
    pub fn new(client: &Client, args: &ServeArgs, rules: &Arc<Rules>) -> Result<Self, Error> {
        let mut builder = client.limiter(NAME, Limit::gcra(Quota::per_second(1_000)));
        if let Some(prefix) = &args.rules.connection.redis_prefix {
            builder = builder.prefix(prefix);
        }
        // Each test calls the server, so that it has the reason of the failure.
        let builder = builder.timeout(SECOND).breaker(Breaker::new(u32::MAX, Duration::ZERO));
        let limiter = builder.atomic().map_err(|error| Error::run(error.to_string()))?;
        let state = Arc::new(RedisState::new(args.rules.redis.as_deref().unwrap_or_default()));
        let (deadline, calls) = (args.bounds.deadline, RuleCalls::default());
        Ok(Self { limiter, rules: Arc::clone(rules), state, deadline, calls })
    }

    /// Returns what the watch knows.
    pub fn state(&self) -> Arc<RedisState> {
        Arc::clone(&self.state)
    }

    /// Watches. Call it in the runtime that answers, because the client's connection belongs to the runtime that calls first.
    pub async fn run(mut self) {
        let mut second = interval(SECOND);
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for tick in 0_u64.. {
            second.tick().await;
            self.test_once(tick % USABLE == 0).await;
        }
    }

    /// Looks once. `is_due` says whether a server that can be used is tested too.
    async fn test_once(&mut self, is_due: bool) {
        let health = health_by_server(&self.rules);
        // Without a rule that uses it, the server is not called.
        if health.is_empty() {
            self.calls = RuleCalls::default();
            self.state.note(Ok(()), String::new);
            return;
        }
        self.calls.compare(&health);
        let is_down = self.state.outage().is_some();
        if !is_down && self.calls.failing == 0 && !is_due {
            return;
        }
        let began = Instant::now();
        let test = self.limiter.charge_unchecked(NAME, 1).await;
        let test = test.map(|_| began.elapsed()).map_err(|error| error.to_string());
        let result = self.calls.judge(test, is_down, self.deadline);
        self.state.note(result, || decides(&self.rules));
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

    /// A look at these counts since the start, and a test that took so long, with a deadline of 15 ms. Returns whether the server can
    /// be used.
    struct Looks(RuleCalls, bool);

    impl Looks {
        fn then(&mut self, [asked, closed, opened]: [u64; 3], test_ms: u64) -> bool {
            let mut health = Health::default();
            (health.asked, health.closed, health.opened) = (asked, closed, opened);
            self.0.compare(&[("".into(), health)]);
            let (test, deadline) = (Duration::from_millis(test_ms), Duration::from_millis(15));
            let result = self.0.judge(Ok(test), !self.1, deadline);
            assert!(
                result.as_ref().err().is_none_or(|why| why.contains("--deadline (15ms)") == self.0.are_late)
            );
            self.1 = result.is_ok();
            self.1
        }
    }

    /// All calls were late, no breaker opened because their callers stopped waiting early, and each test had an answer in its second.
    /// So `on_failure` decided every request, and neither the log nor the health page said so.
    // G148
    #[test]
    fn late_calls_are_an_outage() {
        let mut looks = Looks(RuleCalls::default(), true);
        // The first calls need a connection.
        assert!(looks.then([4, 2, 0], 3) && looks.then([24, 2, 0], 3));
        // One request in each second, which is refunded. A second without a request says nothing.
        assert!(looks.then([26, 3, 0], 30) && looks.then([26, 3, 0], 30) && looks.then([28, 4, 0], 30));
        assert!(!looks.then([30, 5, 0], 30), "three seconds with late calls");
        assert!(!looks.then([30, 5, 0], 30) && !looks.then([30, 5, 0], 3) && !looks.then([30, 5, 0], 3));
        assert!(!looks.then([30, 5, 0], 30) && !looks.then([34, 6, 0], 3), "one call in four");
        // Nearly all are in time.
        assert!(looks.then([39, 7, 0], 30) && looks.then([39, 7, 0], 30));
        // Without calls, three quick tests end it.
        assert!(looks.then([40, 8, 0], 3) && looks.then([41, 9, 0], 3) && !looks.then([41, 10, 0], 3));
        assert!(!looks.then([41, 10, 0], 15) && !looks.then([41, 10, 0], 15) && looks.then([41, 10, 0], 15));
        // A load without some rules has smaller counts.
        assert!(looks.then([3, 0, 0], 3) && looks.then([9, 1, 0], 3) && looks.then([9, 1, 0], 3));
    }

    #[test]
    fn calls_that_open_a_breaker_are_an_outage_of_a_part() {
        let mut looks = Looks(RuleCalls::default(), true);
        assert!(looks.then([9, 9, 1], 3) && looks.then([9, 18, 2], 3) && !looks.then([9, 27, 3], 3));
        // The pause is over, and no request came.
        assert!(looks.then([9, 27, 3], 30));
        assert_eq!(looks.0.judge(Err("away".to_owned()), false, SECOND), Err("away".to_owned()));
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
