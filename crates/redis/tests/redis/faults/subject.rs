//! One type for async and blocking limiters.

use std::time::{Duration, Instant};

use crate::{runtime, wait_until};
use tollgate::Quota;
use tollgate_redis::{
    AtomicLimiter, Breaker, Client, DecidedBy, Error, Health, Limit, LimiterBuilder, OnFailure,
    SharedDecision,
};

pub(crate) const TIMEOUT: Duration = Duration::from_millis(100);
/// How much longer than its time-out a call may take on a busy machine.
const SLACK: Duration = Duration::from_secs(10);
pub(crate) const FAILURES: u32 = 3;
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Ten units at once, and then one unit in six minutes.
pub(crate) const LIMIT: u64 = 10;
/// The share of one of two processes.
pub(crate) const SHARE: u64 = LIMIT / 2;

pub(crate) const LOCAL: OnFailure = OnFailure::Local { processes: 2 };
pub(crate) const POLICIES: [OnFailure; 3] = [OnFailure::Open, OnFailure::Closed, LOCAL];

/// An async or a blocking limiter.
pub(crate) struct Subject {
    kind: &'static str,
    policy: OnFailure,
    limiter: AtomicLimiter,
    ask: Box<dyn Fn(&str) -> SharedDecision>,
}

/// The counts of several answers.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) by_server: u64,
    pub(crate) by_policy: u64,
    /// Requests that the server admitted.
    pub(crate) admitted: u64,
    /// Requests that the policy admitted.
    pub(crate) let_through: u64,
}

fn set<T>(builder: LimiterBuilder<T>, policy: OnFailure, timeout: Duration) -> LimiterBuilder<T> {
    builder.timeout(timeout).breaker(Breaker::new(FAILURES, PAUSE)).on_failure(policy)
}

impl Subject {
    /// Returns one limiter of each kind for a server.
    pub(crate) fn both(url: &str, policy: OnFailure) -> [Self; 2] {
        Self::within(|| Client::open(url), policy, TIMEOUT)
    }

    /// Returns one limiter of each kind for a cluster.
    pub(crate) fn both_of_cluster(urls: &[String], policy: OnFailure) -> [Self; 2] {
        Self::within(|| Client::cluster(urls.iter().map(String::as_str)), policy, TIMEOUT)
    }

    /// Returns limiters for a cluster that wait longer than a busy machine delays them.
    pub(crate) fn both_patient(urls: &[String], policy: OnFailure) -> [Self; 2] {
        Self::within(|| Client::cluster(urls.iter().map(String::as_str)), policy, SLACK)
    }

    fn within(client: impl Fn() -> Result<Client, Error>, policy: OnFailure, timeout: Duration) -> [Self; 2] {
        let client = || client().expect("the addresses are valid");
        let (runtime, limit) = (runtime(), Limit::gcra(Quota::per_hour(LIMIT)));
        let limiter = set(client().limiter("faults", limit), policy, timeout).atomic().unwrap();
        let blocking = set(client().blocking().limiter("faults", limit), policy, timeout).atomic().unwrap();
        let (asked, inside) = (limiter.clone(), AtomicLimiter::clone(&blocking));
        let ask = Box::new(move |key: &str| runtime.block_on(asked.check(key)));
        let ask_blocking = Box::new(move |key: &str| blocking.check(key));
        [
            Self { kind: "async", policy, limiter, ask },
            Self { kind: "blocking", policy, limiter: inside, ask: ask_blocking },
        ]
    }

    pub(crate) fn name(&self) -> String {
        format!("{}, {:?}", self.kind, self.policy)
    }

    /// Checks one key, and asserts that the call does not hang.
    pub(crate) fn check(&self, key: &str) -> SharedDecision {
        let began = Instant::now();
        let answer = (self.ask)(key);
        let took = began.elapsed();
        assert!(took < TIMEOUT + SLACK, "{}: a call took {took:?}", self.name());
        self.verify(&answer);
        answer
    }

    /// Asserts that the answer follows the policy, if the policy decided it.
    fn verify(&self, answer: &SharedDecision) {
        let name = self.name();
        match (answer.by(), self.policy) {
            (DecidedBy::Server, _) => {}
            (DecidedBy::Open, OnFailure::Open) => assert!(answer.is_allowed(), "{name}"),
            (DecidedBy::Closed, OnFailure::Closed) => {
                assert!(answer.is_denied(), "{name}");
                let wait = answer.retry_after().expect("the request can be admitted later");
                assert!(wait > Duration::ZERO && wait <= 10 * PAUSE.max(TIMEOUT), "{name}: {wait:?}");
            }
            (DecidedBy::Local, OnFailure::Local { .. }) => {}
            (by, _) => panic!("{name}: decided by {by:?}"),
        }
    }

    pub(crate) fn check_times(&self, key: &str, times: u64) -> Tally {
        let mut tally = Tally::default();
        for _ in 0..times {
            let answer = self.check(key);
            let allowed = u64::from(answer.is_allowed());
            if answer.by() == DecidedBy::Server {
                tally.by_server += 1;
                tally.admitted += allowed;
            } else {
                tally.by_policy += 1;
                tally.let_through += allowed;
            }
        }
        tally
    }

    pub(crate) fn health(&self) -> Health {
        self.limiter.health()
    }

    /// Checks new keys, which no other check uses, until the server decides.
    pub(crate) fn until_server(&self) {
        self.until("the server decides", |answer, _| answer.by() == DecidedBy::Server);
        assert!(!self.health().is_partitioned(), "{}", self.name());
    }

    /// Checks new keys, which no other check uses, until the breaker is open.
    pub(crate) fn until_open(&self) {
        self.until("the breaker opens", |_, health| health.is_partitioned());
    }

    fn until(&self, what: &str, is_so: impl Fn(&SharedDecision, &Health) -> bool) {
        let mut turns = 0;
        wait_until(&format!("{what}: {}", self.name()), || {
            turns += 1;
            let answer = self.check(&format!("{what} {turns}"));
            is_so(&answer, &self.health())
        });
    }
}
