//! Tests of the test harness: the servers and the proxy behave as the other `redis` tests expect.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

use std::time::{Duration, Instant};

use crate::PATIENCE;
use tollgate_testing::redis::{Cluster, Proxy, Server};

fn ping(url: &str, timeout: Duration) -> redis::RedisResult<String> {
    let client = redis::Client::open(url)?;
    let mut connection = client.get_connection_with_timeout(timeout)?;
    connection.set_read_timeout(Some(timeout))?;
    redis::cmd("PING").query(&mut connection)
}

#[test]
fn server_is_paused_killed_and_restarted() {
    let Some(mut server) = Server::start() else { return };
    let soon = Duration::from_millis(300);
    assert_eq!(ping(&server.url(), PATIENCE).unwrap(), "PONG");
    let () = server.command(&["SET", "a", "1"]);
    server.pause();
    assert!(ping(&server.url(), soon).is_err());
    server.resume();
    assert_eq!(server.command::<i64>(&["GET", "a"]), 1);
    server.kill();
    assert!(ping(&server.url(), soon).is_err());
    server.restart();
    assert_eq!(server.command::<Option<i64>>(&["GET", "a"]), None, "a restarted server is empty");
}

#[test]
fn proxy_delays_drops_refuses_and_cuts() {
    let Some(server) = Server::start() else { return };
    let network = Proxy::start(server.port());
    let soon = PATIENCE;
    assert_eq!(ping(&network.url(), soon).unwrap(), "PONG");

    network.delay(Duration::from_millis(50));
    let started = Instant::now();
    assert_eq!(ping(&network.url(), soon).unwrap(), "PONG");
    assert!(started.elapsed() >= Duration::from_millis(100), "the delay applies in both directions");
    network.delay(Duration::ZERO);

    network.silence(true);
    assert!(ping(&network.url(), Duration::from_millis(100)).is_err());
    network.silence(false);
    network.refuse(true);
    assert!(ping(&network.url(), soon).is_err());
    network.refuse(false);

    network.cut_after(3);
    assert!(ping(&network.url(), soon).is_err());
    assert_eq!(ping(&network.url(), soon).unwrap(), "PONG", "the proxy cuts only once");
}

#[test]
fn cluster_masters_and_replicas_agree() {
    let Some(cluster) = Cluster::start_with_replicas(1) else { return };
    assert_eq!(cluster.urls().len(), 6);
    let info: String = cluster.nodes[0].command(&["CLUSTER", "INFO"]);
    assert!(info.contains("cluster_size:3") && info.contains("cluster_known_nodes:6"), "{info}");
}

#[test]
fn skipped_tests_are_reported() {
    // There is no program at this path.
    tollgate_testing::skipped::assert_skip_is_reported(
        "harness::server_is_paused_killed_and_restarted",
        "TOLLGATE_REDIS_SERVER",
        "/nowhere/redis-server",
        "no redis-server could be run",
    );
}
