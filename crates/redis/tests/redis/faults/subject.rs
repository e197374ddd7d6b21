//! One type for async and blocking limiters.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::wait_until;
use tokio::runtime::Runtime;
use tollgate::Quota;
use tollgate_redis::{
    AtomicLimiter, Blocking, Breaker, Client, DecidedBy, Health, Limit, OnFailure, SharedDecision,
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

enum Kind {
    Async(Runtime, AtomicLimiter),
    Blocking(Blocking<AtomicLimiter>),
}

pub(crate) struct Subject {
    kind: Kind,
    policy: OnFailure,
    longest: Cell<Duration>,
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

fn limit() -> Limit {
    Limit::gcra(Quota::per_hour(LIMIT))
}

macro_rules! build {
    ($client:expr, $policy:expr, $timeout:expr) => {
        $client
            .limiter("faults", limit())
            .timeout($timeout)
            .breaker(Breaker::new(FAILURES, PAUSE))
            .on_failure($policy)
            .atomic()
            .expect("the script can count this limit")
    };
}

impl Subject {
    fn of(kind: Kind, policy: OnFailure) -> Self {
        Self { kind, policy, longest: Cell::default() }
    }

    /// Returns one limiter of each kind for a server.
    pub(crate) fn both(url: &str, policy: OnFailure) -> [Self; 2] {
        let client = Client::open(url).expect("the address is valid");
        let blocking = Client::open(url).expect("the address is valid").blocking();
        [Self::of_async(&client, policy, TIMEOUT), Self::of_blocking(&blocking, policy, TIMEOUT)]
    }

    /// Returns one limiter of each kind for a cluster.
    pub(crate) fn both_of_cluster(urls: &[String], policy: OnFailure) -> [Self; 2] {
        Self::both_within(urls, policy, TIMEOUT)
    }

    /// Returns limiters for a cluster that wait longer than a busy machine delays them.
    pub(crate) fn both_patient(urls: &[String], policy: OnFailure) -> [Self; 2] {
        Self::both_within(urls, policy, SLACK)
    }

    fn both_within(urls: &[String], policy: OnFailure, timeout: Duration) -> [Self; 2] {
        let urls = || urls.iter().map(String::as_str);
        let client = Client::cluster(urls()).expect("the addresses are valid");
        let blocking = Client::cluster(urls()).expect("the addresses are valid").blocking();
        [Self::of_async(&client, policy, timeout), Self::of_blocking(&blocking, policy, timeout)]
    }

    fn of_async(client: &Client, policy: OnFailure, timeout: Duration) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().expect("tokio builds a runtime");
        Self::of(Kind::Async(runtime, build!(client, policy, timeout)), policy)
    }

    fn of_blocking(client: &Blocking<Client>, policy: OnFailure, timeout: Duration) -> Self {
        Self::of(Kind::Blocking(build!(client, policy, timeout)), policy)
    }

    pub(crate) fn name(&self) -> String {
        let kind = match self.kind {
            Kind::Async(..) => "async",
            Kind::Blocking(_) => "blocking",
        };
        format!("{kind}, {:?}", self.policy)
    }

    /// Checks one key, and asserts that the call does not hang.
    pub(crate) fn check(&self, key: &str) -> SharedDecision {
        let began = Instant::now();
        let answer = match &self.kind {
            Kind::Async(runtime, limiter) => runtime.block_on(limiter.check(key)),
            Kind::Blocking(limiter) => limiter.check(key),
        };
        let took = began.elapsed();
        self.longest.set(self.longest.get().max(took));
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
        match &self.kind {
            Kind::Async(_, limiter) => limiter.health(),
            Kind::Blocking(limiter) => limiter.health(),
        }
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
