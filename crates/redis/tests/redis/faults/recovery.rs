//! Measures how soon limiters of each mode use a server that has returned.

use std::time::{Duration, Instant};

use tollgate::Quota;
use tollgate_redis::{Client, DecidedBy, Limit, OnFailure};

use crate::modes::AnyMode;
use crate::{client, client_of, until};
use tollgate_testing::redis::{Cluster, NO_END, Server};

/// The longest time from a server's return to its next decision, on a machine that is not busy.
const TARGET: Duration = Duration::from_secs(2);
/// Long enough for the pauses between probes to reach their maximum.
const OUTAGE: Duration = Duration::from_secs(8);

/// One limiter of each mode. All of them deny requests without a server.
fn modes(client: &Client) -> [AnyMode; 3] {
    AnyMode::all(|name| {
        // The outage uses up this window. The policy denies first, and later the server's count does.
        let window = Limit::fixed_window(Quota::new(50, NO_END));
        let limit = if name == "write-back" { window } else { Limit::gcra(Quota::per_second(1_000)) };
        client.limiter(name, limit).on_failure(OnFailure::Closed)
    })
}

/// Returns for each mode whether the policy decided a key.
async fn closed(modes: &[AnyMode; 3], keys: &[String]) -> [bool; 3] {
    let mut closed = [false; 3];
    for (closed, mode) in closed.iter_mut().zip(modes) {
        for key in keys {
            *closed |= mode.check(key).await.by() == DecidedBy::Closed;
        }
    }
    closed
}

/// Checks all keys for `lasts`. Returns what the last checks found.
async fn hammer(modes: &[AnyMode; 3], keys: &[String], lasts: Duration) -> [bool; 3] {
    let began = Instant::now();
    loop {
        let closed = closed(modes, keys).await;
        if began.elapsed() >= lasts {
            return closed;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Asserts that soon the policy decides no key, in every mode.
async fn assert_back(modes: &[AnyMode; 3], keys: &[String]) {
    let (began, mut took) = (Instant::now(), [None; 3]);
    until("the policy decides no key", async || {
        for (took, closed) in took.iter_mut().zip(closed(modes, keys).await) {
            *took = if closed { None } else { took.or(Some(began.elapsed())) };
        }
        !took.contains(&None)
    })
    .await;
    assert!(took.iter().all(|took| *took < Some(TARGET)), "{took:?}");
}

async fn assert_used_soon_after(stop: fn(&mut Server), start: fn(&mut Server)) {
    let Some(mut server) = Server::start() else { return };
    let modes = modes(&client(&server));
    let keys = ["a".to_owned()];
    stop(&mut server);
    assert_eq!(hammer(&modes, &keys, OUTAGE).await, [true; 3], "the policy decides in every mode");
    start(&mut server);
    assert_back(&modes, &keys).await;
}

// G85
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
async fn restarted_server_is_used_within_two_seconds() {
    assert_used_soon_after(Server::kill, Server::restart).await;
}

// G85
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
async fn resumed_server_is_used_within_two_seconds() {
    assert_used_soon_after(|server| server.pause(), |server| server.resume()).await;
}

// G85
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a machine that is not busy; .ci/run runs it"]
async fn promoted_replica_is_used_within_two_seconds() {
    let Some(mut cluster) = Cluster::start_with_replicas(1) else { return };
    let modes = modes(&client_of(&cluster));
    let keys: Vec<String> = (0..12).map(|key| format!("key{key}")).collect();
    hammer(&modes, &keys, Duration::from_millis(200)).await;
    cluster.nodes[0].kill();
    // The killed node held slot 0. Wait until another node reports a new holder.
    let dead = cluster.nodes[0].port();
    let promoted = || {
        // Each range lists its first slot, its last slot and its nodes. The first node is the master.
        let map: Vec<Vec<redis::Value>> = cluster.nodes[1].command(&["CLUSTER", "SLOTS"]);
        let range =
            map.into_iter().find(|range| range[0] == redis::Value::Int(0)).expect("slot 0 has a node");
        !format!("{:?}", range[2]).contains(&format!("int({dead})"))
    };
    until("the replica is promoted", async || {
        hammer(&modes, &keys, Duration::ZERO).await;
        promoted()
    })
    .await;
    assert_back(&modes, &keys).await;
}
