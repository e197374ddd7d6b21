//! Measures how soon limiters of each mode use a server that has returned.

use std::time::{Duration, Instant};

use tollgate::Quota;
use tollgate_redis::{AtomicLimiter, Client, DecidedBy, LeaseLimiter, Limit, OnFailure, WriteBackLimiter};

use crate::until;
use tollgate_testing::redis::{Cluster, Server};

/// The longest time from a server's return to its next decision, on a machine that is not busy.
const TARGET: Duration = Duration::from_secs(2);
/// Long enough for the pauses between probes to reach their maximum.
const OUTAGE: Duration = Duration::from_secs(8);

/// One limiter of each mode. All of them deny requests without a server.
struct Modes {
    atomic: AtomicLimiter,
    leases: LeaseLimiter,
    write_back: WriteBackLimiter,
}

impl Modes {
    fn new(client: &Client) -> Self {
        let limiter = |name, limit| client.limiter(name, limit).on_failure(OnFailure::Closed);
        let gcra = Limit::gcra(Quota::per_second(1_000));
        // The outage uses up this window. The policy denies first, and later the server's count does.
        let window = Limit::fixed_window(Quota::new(50, Duration::from_secs(365 * 86_400)));
        Self {
            atomic: limiter("atomic", gcra).atomic().unwrap(),
            leases: limiter("leases", gcra).leases().build().unwrap(),
            write_back: limiter("write_back", window).write_back().build().unwrap(),
        }
    }

    /// Returns which part decided a check, in each mode.
    async fn by(&self, key: &str) -> [DecidedBy; 3] {
        [
            self.atomic.check(key).await.by(),
            self.leases.check_async(key).await.by(),
            self.write_back.check(key).by(),
        ]
    }

    /// Checks all keys for `lasts`. Returns whether the policy decided the last key in every mode.
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

    /// Returns the time in each mode until the policy decides no key.
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

async fn assert_used_soon_after(stop: fn(&mut Server), start: fn(&mut Server)) {
    let Some(mut server) = Server::start() else { return };
    let modes = Modes::new(&Client::open(&server.url()).unwrap());
    let keys = ["a".to_owned()];
    stop(&mut server);
    assert!(modes.hammer(&keys, OUTAGE).await, "the policy decides in every mode");
    start(&mut server);
    let took = modes.until_back(&keys).await;
    assert!(took.iter().all(|took| *took < TARGET), "{took:?}");
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
    let urls = cluster.urls();
    let modes = Modes::new(&Client::cluster(urls.iter().map(String::as_str)).unwrap());
    let keys: Vec<String> = (0..12).map(|key| format!("key{key}")).collect();
    modes.hammer(&keys, Duration::from_millis(200)).await;
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
        modes.hammer(&keys, Duration::ZERO).await;
        promoted()
    })
    .await;
    let took = modes.until_back(&keys).await;
    assert!(took.iter().all(|took| *took < TARGET), "{took:?}");
}
