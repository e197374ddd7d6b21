//! One of three real servers is killed or hangs.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tollgate::Quota;
use tollgate_redis::{
    AtomicLimiter, Breaker, BreakerState, Client, DecidedBy, Health, LeaseLimiter, Limit, OnFailure, Shards,
    SharedDecision, WriteBackLimiter,
};

use super::named;
use crate::{PATIENCE, busy, until};
use tollgate_testing::redis::{NO_END, Server};

/// Longer than a busy machine delays the answer of a server that works.
const TIMEOUT: Duration = Duration::from_secs(4);
const NAMES: [&str; 3] = ["a", "b", "c"];

fn three() -> Option<[Server; 3]> {
    Some([Server::start()?, Server::start()?, Server::start()?])
}

/// Chooses the server by the part of a key before the first `/`.
fn part(key: &[u8]) -> &[u8] {
    key.split(|&byte| byte == b'/').next().unwrap_or(key)
}

fn client(servers: &[Server; 3]) -> Client {
    let clients = servers.each_ref().map(|server| Client::open(&server.url()).expect("the address is valid"));
    Client::sharded(Shards::new(named(&clients)).by("part", part)).expect("the set is valid")
}

fn limit() -> Limit {
    Limit::fixed_window(Quota::new(1_000, NO_END))
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Mode {
    Atomic,
    Leases,
    WriteBack,
}

enum Subject {
    Atomic(AtomicLimiter),
    Leases(LeaseLimiter),
    WriteBack(WriteBackLimiter),
}

impl Subject {
    fn new(client: &Client, mode: Mode) -> Self {
        let builder = client
            .limiter("faults", limit())
            .timeout(TIMEOUT)
            .breaker(Breaker::new(5, Duration::from_millis(200)))
            .on_failure(OnFailure::Closed);
        match mode {
            Mode::Atomic => Self::Atomic(builder.atomic().expect("the script can count this limit")),
            Mode::Leases => Self::Leases(builder.leases().build().expect("a runtime runs")),
            Mode::WriteBack => Self::WriteBack(builder.write_back().build().expect("a runtime runs")),
        }
    }

    async fn check(&self, key: &str) -> SharedDecision {
        match self {
            Self::Atomic(limiter) => limiter.check(key).await,
            Self::Leases(limiter) => limiter.check_async(key).await,
            Self::WriteBack(limiter) => limiter.check_async(key).await,
        }
    }

    fn health(&self) -> Vec<Health> {
        let named = match self {
            Self::Atomic(limiter) => limiter.health_by_server(),
            Self::Leases(limiter) => limiter.health_by_server(),
            Self::WriteBack(limiter) => limiter.health_by_server(),
        };
        assert!(named.iter().map(|(name, _)| &**name).eq(NAMES));
        named.into_iter().map(|(_, health)| health).collect()
    }

    async fn close(self) {
        match self {
            Self::Atomic(_) => {}
            Self::Leases(limiter) => limiter.close().await,
            Self::WriteBack(limiter) => drop(limiter.close().await),
        }
    }

    /// Checks `times` new keys of a server at the same time.
    async fn check_new(&self, part: &str, round: &str, times: usize) -> Vec<SharedDecision> {
        let keys: Vec<_> = (0..times).map(|key| format!("{part}/{round}/{key}")).collect();
        join_all(keys.iter().map(|key| self.check(key))).await
    }
}

/// Returns a part of keys for each server: all keys with this part are on this server.
async fn parts(client: &Client, servers: &[Server; 3]) -> [String; 3] {
    let limiter =
        client.limiter("parts", Limit::gcra(Quota::per_hour(1))).timeout(PATIENCE).atomic().unwrap();
    let mut found = [const { None }; 3];
    for number in 0.. {
        let part = format!("part-{number}");
        assert_eq!(limiter.check(&part).await.by(), DecidedBy::Server);
        let key = format!("tollgate:v1:{{parts|{part}}}:g0");
        let holders: Vec<_> = (0..3).filter(|&at| servers[at].command::<bool>(&["EXISTS", &key])).collect();
        assert_eq!(holders.len(), 1, "each key is on one server");
        let _ = found[holders[0]].get_or_insert(part);
        if found.iter().all(Option::is_some) {
            break;
        }
    }
    found.map(|part| part.expect("each server has a part"))
}

/// Stops one of three servers, checks keys of all three, and starts the server again.
fn fault(mode: Mode, stop: fn(&mut Server), start: fn(&mut Server)) {
    let _busy = busy();
    let Some(mut servers) = three() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("tokio builds a runtime").block_on(fault_of(&mut servers, mode, stop, start));
}

async fn fault_of(servers: &mut [Server; 3], mode: Mode, stop: fn(&mut Server), start: fn(&mut Server)) {
    let client = client(servers);
    let parts = parts(&client, servers).await;
    let subject = Subject::new(&client, mode);
    for part in &parts {
        let answers = subject.check_new(part, "before", 20).await;
        assert!(answers.iter().all(SharedDecision::is_allowed), "{mode:?}: {answers:?}");
    }
    stop(&mut servers[0]);
    // More keys than calls may be in flight to one server.
    let began = Instant::now();
    let mut longest = Duration::ZERO;
    for round in 0.. {
        // In write-back, a new key gets units until this process notices that its server does not answer.
        let is_noticed = mode != Mode::WriteBack || subject.health()[0].breaker != BreakerState::Closed;
        let name = round.to_string();
        let others = async {
            for part in &parts[1..] {
                let began = Instant::now();
                let answers = subject.check_new(part, &name, 5).await;
                longest = longest.max(began.elapsed());
                assert!(
                    answers.iter().all(|answer| answer.is_allowed() && answer.by() != DecidedBy::Local),
                    "{mode:?}, round {round}: {answers:?}"
                );
            }
        };
        let many = if round < 3 { 300 } else { 5 };
        let (own, ()) = tokio::join!(subject.check_new(&parts[0], &name, many), others);
        assert!(
            !is_noticed || own.iter().all(SharedDecision::is_denied),
            "{mode:?}: the policy decides the server's keys"
        );
        if is_noticed && subject.health()[0].closed > 0 && began.elapsed() > Duration::from_secs(1) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{mode:?}: {:?}", subject.health());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let [down, others @ ..] = &subject.health()[..] else { panic!("there are three servers") };
    assert_ne!(down.breaker, BreakerState::Closed, "{mode:?}");
    assert!(down.closed > 0 && down.failed() > 0 && down.opened > 0, "{mode:?}: {down:?}");
    for health in others {
        assert_eq!((health.breaker, health.closed, health.opened), (BreakerState::Closed, 0, 0), "{mode:?}");
        assert!(health.answered > 0 && !health.is_partitioned(), "{mode:?}");
    }
    // The other servers have the units that were admitted while one was away.
    let reader = client
        .limiter("faults", limit())
        .timeout(PATIENCE)
        .atomic()
        .expect("the script can count this limit");
    for part in &parts[1..] {
        for key in 0..5 {
            let answer = reader.peek(&format!("{part}/0/{key}")).await;
            assert_eq!(answer.by(), DecidedBy::Server);
            assert!(answer.decision().remaining() < 1_000, "{mode:?}: {answer:?}");
        }
    }
    start(&mut servers[0]);
    let mut round = 0;
    until("the keys are allowed again", async || {
        round += 1;
        let answers = subject.check_new(&parts[0], &format!("back-{round}"), 3).await;
        answers.iter().all(SharedDecision::is_allowed)
    })
    .await;
    println!("{mode:?}: the longest check of the other servers' keys took {longest:?}");
    subject.close().await;
}

// G96
#[test]
fn killed_server_affects_only_its_keys_atomic() {
    fault(Mode::Atomic, Server::kill, Server::restart);
}

// G96
#[test]
fn killed_server_affects_only_its_keys_leases() {
    fault(Mode::Leases, Server::kill, Server::restart);
}

// G96
#[test]
fn killed_server_affects_only_its_keys_write_back() {
    fault(Mode::WriteBack, Server::kill, Server::restart);
}

// G96
#[test]
fn hung_server_affects_only_its_keys_atomic() {
    fault(Mode::Atomic, |server| server.pause(), |server| server.resume());
}

// G96
#[test]
fn hung_server_affects_only_its_keys_leases() {
    fault(Mode::Leases, |server| server.pause(), |server| server.resume());
}

// G96
#[test]
fn hung_server_affects_only_its_keys_write_back() {
    fault(Mode::WriteBack, |server| server.pause(), |server| server.resume());
}

/// A previous server that is down delays its keys and gives them a new budget, and the health counts this.
// G97
#[tokio::test(flavor = "current_thread")]
async fn previous_server_that_is_down_is_counted() {
    let Some(servers) = three() else { return };
    let clients = servers.each_ref().map(|server| Client::open(&server.url()).unwrap());
    let gone = Client::open("redis://127.0.0.1:1").unwrap();
    let mut before = named(&clients);
    before.push(tollgate_redis::Shard::new("gone", gone).weight(3));
    let new = Shards::new(named(&clients)).previous(before, Duration::from_secs(3_600));
    let builder = Client::sharded(new).unwrap().limiter("api", Limit::gcra(Quota::per_hour(10)));
    let limiter = builder.timeout(Duration::from_secs(5)).atomic().unwrap();
    for key in 0..40_u32 {
        assert_eq!(limiter.check(&key).await.by(), DecidedBy::Server);
    }
    let health = limiter.health_by_server();
    let uncopied: Vec<_> = health.iter().map(|(name, health)| (&**name, health.uncopied > 0)).collect();
    assert_eq!(uncopied, [("a", false), ("b", false), ("c", false), ("gone", true)]);
}

/// A Cluster is one server of a set. Its nodes share its part of the keys.
#[tokio::test(flavor = "current_thread")]
async fn cluster_is_one_server_of_a_set() {
    let (Some(server), Some(cluster)) = (Server::start(), tollgate_testing::redis::Cluster::start()) else {
        return;
    };
    let urls = cluster.urls();
    let cluster_client = Client::cluster(urls.iter().map(String::as_str)).unwrap();
    let set = named(&[Client::open(&server.url()).unwrap(), cluster_client]);
    let limiter =
        Client::sharded(set).unwrap().limiter("api", Limit::gcra(Quota::per_hour(1))).timeout(PATIENCE);
    let limiter = limiter.atomic().unwrap();
    for key in 0..200_u32 {
        assert_eq!(
            [limiter.check(&key).await, limiter.check(&key).await].map(|answer| answer.is_allowed()),
            [true, false]
        );
    }
    let alone: u64 = server.command(&["DBSIZE"]);
    let nodes: Vec<u64> = cluster.nodes.iter().map(|node| node.command(&["DBSIZE"])).collect();
    assert_eq!(alone + nodes.iter().sum::<u64>(), 200);
    assert!((60..=140).contains(&alone) && nodes.iter().all(|keys| *keys > 0), "{alone}, {nodes:?}");
}
