//! How soon limiters of each mode use a server that is back.

use std::time::{Duration, Instant};

use tollgate::Quota;
use tollgate::redis::{AtomicLimiter, Client, DecidedBy, LeaseLimiter, Limit, OnFailure, WriteBackLimiter};

use crate::servers::{Cluster, Server};

/// Within so long of its return a server is used again, on a machine that is not busy.
const TARGET: Duration = Duration::from_secs(2);
/// Longer than pauses need to grow.
const OUTAGE: Duration = Duration::from_secs(8);

/// One limiter of each mode, all of which refuse without a server.
struct Modes {
    atomic: AtomicLimiter<Client>,
    leases: LeaseLimiter,
    write_back: WriteBackLimiter,
}

impl Modes {
    fn new(client: &Client) -> Self {
        let limiter = |name, limit| client.limiter(name, limit).on_failure(OnFailure::Closed);
        let gcra = Limit::gcra(Quota::per_second(1_000));
        // Used up in the outage: so it is refused by the policy, and later by what the server says.
        let window = Limit::fixed_window(Quota::new(50, Duration::from_secs(365 * 86_400)));
        Self {
            atomic: limiter("atomic", gcra).atomic().unwrap(),
            leases: limiter("leases", gcra).leases().build().unwrap(),
            write_back: limiter("write_back", window).write_back().build().unwrap(),
        }
    }

    /// Who decides in each mode.
    async fn by(&self, key: &str) -> [DecidedBy; 3] {
        [
            self.atomic.check(key).await.by(),
            self.leases.check_async(key).await.by(),
            self.write_back.check(key).by(),
        ]
    }

    /// Asks about all keys for a while; whether the policy decided everything about the last of them at the end.
    async fn hammer(&self, keys: &[String], lasts: Duration) -> bool {
        let began = Instant::now();
        loop {
            let mut last = [DecidedBy::Server; 3];
            for key in keys {
                last = self.by(key).await;
            }
            if began.elapsed() >= lasts {
                return last == [DecidedBy::Closed; 3];
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// How long it takes until no key is decided by the policy, in each mode.
    async fn until_back(&self, keys: &[String]) -> [Duration; 3] {
        let (began, mut took) = (Instant::now(), [None; 3]);
        while took.contains(&None) {
            assert!(began.elapsed() < Duration::from_secs(30), "{took:?}");
            let mut closed = [false; 3];
            for key in keys {
                let by = self.by(key).await;
                for (closed, by) in closed.iter_mut().zip(by) {
                    *closed |= by == DecidedBy::Closed;
                }
            }
            for (took, closed) in took.iter_mut().zip(closed) {
                *took = if closed { None } else { took.or(Some(began.elapsed())) };
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        took.map(Option::unwrap)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
async fn restarted_server_is_used_within_two_seconds() {
    let Some(mut server) = Server::start() else { return };
    let modes = Modes::new(&Client::open(&server.url()).unwrap());
    let keys = ["a".to_owned()];
    server.kill();
    assert!(modes.hammer(&keys, OUTAGE).await, "all decided by the policy");
    server.restart();
    let took = modes.until_back(&keys).await;
    assert!(took.iter().all(|took| *took < TARGET), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
async fn resumed_server_is_used_within_two_seconds() {
    let Some(server) = Server::start() else { return };
    let modes = Modes::new(&Client::open(&server.url()).unwrap());
    let keys = ["a".to_owned()];
    server.pause();
    assert!(modes.hammer(&keys, OUTAGE).await, "all decided by the policy");
    server.resume();
    let took = modes.until_back(&keys).await;
    assert!(took.iter().all(|took| *took < TARGET), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promoted_replica_is_used_within_two_seconds() {
    let Some(mut cluster) = Cluster::start_with_replicas(1) else { return };
    let urls = cluster.urls();
    let modes = Modes::new(&Client::cluster(urls.iter().map(String::as_str)).unwrap());
    let keys: Vec<String> = (0..12).map(|key| format!("key{key}")).collect();
    modes.hammer(&keys, Duration::from_millis(200)).await;
    cluster.nodes[0].kill();
    // It holds slot 0. Another node says that it does.
    let dead = cluster.nodes[0].port();
    let promoted = || {
        // Each range: its first and last slot, and its nodes, of which the first holds it.
        let map: Vec<Vec<redis::Value>> = cluster.nodes[1].command(&["CLUSTER", "SLOTS"]);
        let range = map.into_iter().find(|range| range[0] == redis::Value::Int(0)).expect("slot 0 is held");
        !format!("{:?}", range[2]).contains(&format!("int({dead})"))
    };
    let began = Instant::now();
    while !promoted() {
        assert!(began.elapsed() < Duration::from_secs(30));
        modes.hammer(&keys, Duration::ZERO).await;
    }
    let took = modes.until_back(&keys).await;
    assert!(took.iter().all(|took| *took < TARGET), "{took:?}");
}
