//! One of three real servers is killed or hangs.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tollgate::Quota;
use tollgate_redis::{
    Breaker, BreakerState, Client, DecidedBy, Health, Limit, OnFailure, Shards, SharedDecision,
};

use super::named;
use crate::modes::AnyMode;
use crate::{PATIENCE, absent, busy, client, client_of, one_thread, strict, until};
use tollgate_testing::redis::{Cluster, NO_END, Server};

/// Longer than a busy machine delays the answer of a server that works.
const TIMEOUT: Duration = Duration::from_secs(4);

fn three() -> Option<[Server; 3]> {
    Some([Server::start()?, Server::start()?, Server::start()?])
}

/// Chooses the server by the part of a key before the first `/`.
fn part(key: &[u8]) -> &[u8] {
    key.split(|&byte| byte == b'/').next().unwrap_or(key)
}

fn sharded(servers: &[Server; 3]) -> Client {
    let clients = servers.each_ref().map(client);
    Client::sharded(Shards::new(named(&clients)).by("part", part)).expect("the set is valid")
}

fn limit() -> Limit {
    Limit::fixed_window(Quota::new(1_000, NO_END))
}

/// One limiter of each mode.
fn subjects(client: &Client) -> [AnyMode; 3] {
    AnyMode::all(|name| {
        let builder = client.limiter(name, limit()).timeout(TIMEOUT).on_failure(OnFailure::Closed);
        builder.breaker(Breaker::new(5, Duration::from_millis(200)))
    })
}

fn health(subject: &AnyMode) -> Vec<Health> {
    let named = subject.health_by_server();
    assert!(named.iter().map(|(name, _)| &**name).eq(["a", "b", "c"]));
    named.into_iter().map(|(_, health)| health).collect()
}

/// Checks `times` new keys of a server at the same time.
async fn check_new(subject: &AnyMode, part: &str, round: &str, times: usize) -> Vec<SharedDecision> {
    let keys: Vec<_> = (0..times).map(|key| format!("{part}/{round}/{key}")).collect();
    join_all(keys.iter().map(|key| subject.check(key))).await
}

/// Returns a part of keys for each server: all keys with this part are on this server.
async fn parts(client: &Client, servers: &[Server; 3]) -> [String; 3] {
    let limiter = strict(client.limiter("parts", Limit::gcra(Quota::per_hour(1))), &[]).atomic().unwrap();
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

/// Stops one of three servers, checks keys of all three, and starts the server again. For a limiter of each mode.
fn fault(stop: fn(&mut Server), start: fn(&mut Server)) {
    for mode in 0..3 {
        let _busy = busy();
        let Some(mut servers) = three() else { return };
        one_thread().block_on(fault_of(&mut servers, mode, stop, start));
    }
}

async fn fault_of(servers: &mut [Server; 3], mode: usize, stop: fn(&mut Server), start: fn(&mut Server)) {
    let client = sharded(servers);
    let parts = parts(&client, servers).await;
    let subject = subjects(&client).into_iter().nth(mode).expect("a limiter of this mode");
    let mode = subject.name();
    for part in &parts {
        let answers = check_new(&subject, part, "before", 20).await;
        assert!(answers.iter().all(SharedDecision::is_allowed), "{mode}: {answers:?}");
    }
    stop(&mut servers[0]);
    // More keys than calls may be in flight to one server.
    let began = Instant::now();
    let mut longest = Duration::ZERO;
    for round in 0.. {
        // In write-back, a new key gets units until this process notices that its server does not answer.
        let is_noticed = mode != "write-back" || health(&subject)[0].breaker != BreakerState::Closed;
        let name = round.to_string();
        let others = async {
            for part in &parts[1..] {
                let began = Instant::now();
                let answers = check_new(&subject, part, &name, 5).await;
                longest = longest.max(began.elapsed());
                let is_decided =
                    |answer: &SharedDecision| answer.is_allowed() && answer.by() != DecidedBy::Local;
                assert!(answers.iter().all(is_decided), "{mode}, round {round}: {answers:?}");
            }
        };
        let many = if round < 3 { 300 } else { 5 };
        let (own, ()) = tokio::join!(check_new(&subject, &parts[0], &name, many), others);
        let is_denied = own.iter().all(SharedDecision::is_denied);
        assert!(!is_noticed || is_denied, "{mode}: the policy decides the server's keys");
        if is_noticed && health(&subject)[0].closed > 0 && began.elapsed() > Duration::from_secs(1) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{mode}: {:?}", health(&subject));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let [down, others @ ..] = &health(&subject)[..] else { panic!("there are three servers") };
    assert_ne!(down.breaker, BreakerState::Closed, "{mode}");
    assert!(down.closed > 0 && down.failed() > 0 && down.opened > 0, "{mode}: {down:?}");
    for health in others {
        assert_eq!((health.breaker, health.closed, health.opened), (BreakerState::Closed, 0, 0), "{mode}");
        assert!(health.answered > 0 && !health.is_partitioned(), "{mode}");
    }
    // The other servers have the units that were admitted while one was away.
    let reader = strict(client.limiter(mode, limit()), &[]).atomic().unwrap();
    for part in &parts[1..] {
        for key in 0..5 {
            let answer = reader.peek(&format!("{part}/0/{key}")).await;
            assert_eq!(answer.by(), DecidedBy::Server);
            assert!(answer.decision().remaining() < 1_000, "{mode}: {answer:?}");
        }
    }
    start(&mut servers[0]);
    let mut round = 0;
    until("the keys are allowed again", async || {
        round += 1;
        let answers = check_new(&subject, &parts[0], &format!("back-{round}"), 3).await;
        answers.iter().all(SharedDecision::is_allowed)
    })
    .await;
    println!("{mode}: the longest check of the other servers' keys took {longest:?}");
    subject.close().await;
}

// G96
#[test]
fn killed_server_affects_only_its_keys() {
    fault(Server::kill, Server::restart);
}

// G96
#[test]
fn hung_server_affects_only_its_keys() {
    fault(|server| server.pause(), |server| server.resume());
}

/// A previous server that is down delays its keys and gives them a new budget, and the health counts this.
// G97
#[tokio::test(flavor = "current_thread")]
async fn previous_server_that_is_down_is_counted() {
    let Some(servers) = three() else { return };
    let clients = servers.each_ref().map(client);
    let mut before = named(&clients);
    before.push(tollgate_redis::Shard::new("gone", absent()).weight(3));
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
    let (Some(server), Some(cluster)) = (Server::start(), Cluster::start()) else { return };
    let set = Client::sharded(named(&[client(&server), client_of(&cluster)])).unwrap();
    let limiter = strict(set.limiter("api", Limit::gcra(Quota::per_hour(1))), &[]).atomic().unwrap();
    for key in 0..200_u32 {
        assert!(limiter.check(&key).await.is_allowed() && limiter.check(&key).await.is_denied());
    }
    let alone: u64 = server.command(&["DBSIZE"]);
    let nodes: Vec<u64> = cluster.nodes.iter().map(|node| node.command(&["DBSIZE"])).collect();
    assert_eq!(alone + nodes.iter().sum::<u64>(), 200);
    assert!((60..=140).contains(&alone) && nodes.iter().all(|keys| *keys > 0), "{alone}, {nodes:?}");
}
