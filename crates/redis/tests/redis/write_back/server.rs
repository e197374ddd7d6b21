//! Write-back limiters with a real server and a faulty network.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use crate::{PATIENCE, client, client_of, until};
use tollgate::Quota;
use tollgate_redis::internals::over_at_most;
use tollgate_redis::{Breaker, Client, ErrorKind, Limit, OnFailure, SharedDecision, WriteBackLimiter};
use tollgate_testing::redis::{Cluster, NO_END, Proxy, Server};

const PROCESSES: u32 = 4;

fn limit() -> Limit {
    Limit::fixed_window(Quota::new(2_000, NO_END))
}

fn limiter(url: &str) -> WriteBackLimiter {
    let client = Client::open(url).unwrap();
    let builder = client.limiter("api", limit()).on_failure(OnFailure::Local { processes: PROCESSES });
    let breaker = Breaker::new(5, Duration::from_millis(100));
    let builder = builder.breaker(breaker).timeout(Duration::from_millis(100));
    builder.write_back().interval(Duration::from_millis(50)).build().unwrap()
}

/// Checks one key from one limiter per address while `happens` runs, and then until the whole limit was admitted, however long
/// a busy machine takes for it. Returns the admitted units, the limiters, and
/// the result of `happens`.
async fn hammer<R: Send + 'static>(
    urls: Vec<String>,
    happens: impl FnOnce() -> R + Send + 'static,
) -> (u64, Vec<WriteBackLimiter>, R) {
    let limiters: Vec<_> = urls.iter().map(|url| limiter(url)).collect();
    let happens = tokio::task::spawn_blocking(happens);
    let mut admitted = 0;
    until("the limit is used up", async || {
        let checks = limiters.iter().flat_map(|limiter| (0..12).map(|_| limiter.check("a")));
        admitted += checks.filter(SharedDecision::is_allowed).count() as u64;
        happens.is_finished() && admitted >= limit().most()
    })
    .await;
    (admitted, limiters, happens.await.unwrap())
}

/// Flushes the limiters until they have posted all units.
async fn settle(limiters: &[WriteBackLimiter]) {
    for limiter in limiters {
        until("all units are posted", async || limiter.flush().await == 0).await;
        assert_eq!(limiter.stats().pending, 0, "{:?}", limiter.health());
    }
}

/// Returns the units that are left by the server's count, plus at most one. As one of a million processes, this
/// limiter gets one unit before it asks the server, and all remaining units after that.
async fn left(url: &str) -> u64 {
    let builder = Client::open(url).unwrap().limiter("api", limit()).timeout(PATIENCE);
    let limiter = builder.write_back().processes(1_000_000).build().unwrap();
    let mut left = 0;
    while limiter.check_async("a").await.is_allowed() {
        left += 1;
    }
    left
}

fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

fn bound() -> u64 {
    // In an outage each process may admit its share of the window a second time.
    limit().most() + over_at_most(limit().most(), PROCESSES.into()) + limit().most()
}

// G80
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faulty_network_stays_within_bound() {
    let Some(server) = Server::start() else { return };
    let networks: Vec<_> = (0..PROCESSES).map(|_| Proxy::start(server.port())).collect();
    let urls = networks.iter().map(Proxy::url).collect();
    let (admitted, limiters, _networks) = hammer(urls, move || {
        pause(100);
        networks[0].cut();
        networks[1].silence(true);
        pause(200);
        networks[1].silence(false);
        networks[2].refuse(true);
        networks[2].cut();
        pause(300);
        networks[2].refuse(false);
        networks[3].delay(Duration::from_millis(60));
        pause(1_500);
        // With a delay of 60 ms in each direction, every answer comes after the time-out of 100 ms, and no post is known to be
        // counted. The law is about what follows: from now on, answers come in time.
        networks[3].delay(Duration::ZERO);
        networks
    })
    .await;
    assert!((limit().most()..=bound()).contains(&admitted), "{admitted} of {}", limit().most());
    settle(&limiters).await;
    assert!(left(&server.url()).await <= 1, "the server counts every admitted unit");
}

// G81
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_server_receives_new_posts() {
    let Some(mut server) = Server::start() else { return };
    let urls = vec![server.url(); PROCESSES as usize];
    let url = server.url();
    let (admitted, limiters, _server) = hammer(urls, move || {
        pause(60);
        server.kill();
        pause(300);
        server.restart();
        pause(1_500);
        server
    })
    .await;
    // A server that restarts empty can grant the whole limit a second time.
    assert!((limit().most()..=bound() + limit().most()).contains(&admitted), "{admitted}");
    settle(&limiters).await;
    assert!(left(&url).await <= 1);
}

/// Returns a limit with a window of one second.
fn second(limit: u64) -> Limit {
    Limit::fixed_window(Quota::new(limit, Duration::from_secs(1)))
}

/// The units of each key that were asked for and admitted in each whole window.
type ByWindow = BTreeMap<(String, u64), (u64, u64)>;

/// Checks all keys on all limiters for `lasts`.
async fn by_window(limiters: &[WriteBackLimiter], keys: &[String], lasts: Duration) -> ByWindow {
    let (began, mut sum) = (Instant::now(), ByWindow::new());
    while began.elapsed() < lasts {
        for (limiter, key) in limiters.iter().flat_map(|limiter| keys.iter().map(move |key| (limiter, key))) {
            let window = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
            let units = u64::from(limiter.check(key.as_str()).is_allowed());
            let (asked, admitted) = sum.entry((key.clone(), window)).or_default();
            (*asked, *admitted) = (*asked + 1, *admitted + units);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let mut windows: Vec<_> = sum.keys().map(|(_, window)| *window).collect();
    windows.sort_unstable();
    sum.retain(|(_, window), _| *window > windows[0] && Some(window) < windows.last());
    sum
}

/// Asserts that each window of these keys admitted at least half of the limit, or of what was asked for on a busy machine, and
/// at most the bound. Each task may count one unit in the window before.
fn verify(windows: &ByWindow, keys: &[String], limit: u64, what: &str) {
    let bound = limit + over_at_most(limit, PROCESSES.into()) + u64::from(PROCESSES);
    let mine: Vec<_> = windows.iter().filter(|((key, _), _)| keys.contains(key)).collect();
    assert!(!mine.is_empty());
    for (place, (asked, admitted)) in mine {
        let least = (limit / 2).min(asked / 2);
        assert!((least..=bound).contains(admitted), "{what}: {place:?} admitted {admitted}, bound {bound}");
    }
}

fn four(client: impl Fn() -> Client, name: &str, limit: u64, policy: OnFailure) -> Vec<WriteBackLimiter> {
    let build = |_| {
        let builder = client().limiter(name, second(limit)).on_failure(policy);
        builder.write_back().processes(PROCESSES).build().unwrap()
    };
    (0..PROCESSES).map(build).collect()
}

// G84
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_type_key_affects_no_other_key() {
    let Some(server) = Server::start() else { return };
    for (name, policy) in [("open", OnFailure::Open), ("closed", OnFailure::Closed)] {
        server.command::<()>(&["LPUSH", &format!("tollgate:v1:{{{name}|bad}}:f0:1s"), "x"]);
        let limiters = four(|| client(&server), name, 200, policy);
        let admitted = by_window(&limiters, &["bad".into(), "good".into()], Duration::from_secs(4)).await;
        for limiter in &limiters {
            assert!(limiter.health().errors(ErrorKind::Reply) > 0, "{:?}", limiter.health());
        }
        verify(&admitted, &["good".into()], 200, name);
    }
}

// G84
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
async fn killed_master_affects_only_its_keys() {
    let Some(mut cluster) = Cluster::start() else { return };
    for node in &cluster.nodes {
        node.command::<()>(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    for (name, policy) in [("open", OnFailure::Open), ("closed", OnFailure::Closed)] {
        let slot = |key: &String| -> u16 {
            cluster.nodes[1].command(&["CLUSTER", "KEYSLOT", &format!("{{{name}|{key}}}")])
        };
        // Three groups of keys: those of the killed node, those of slots that share a breaker with it, and all others.
        let keys = [0..=5_460, 5_461..=6_143, 6_144..=16_383].map(|slots| {
            let keys = (0..).map(|key| format!("key{key}")).filter(|key| slots.contains(&slot(key)));
            keys.take(3).collect::<Vec<_>>()
        });
        let limiters = four(|| client_of(&cluster), name, 20, policy);
        by_window(&limiters, &keys.concat(), Duration::from_millis(300)).await;
        cluster.nodes[0].kill();
        let admitted = by_window(&limiters, &keys.concat(), Duration::from_secs(4)).await;
        verify(&admitted, &keys[1..].concat(), 20, name);
        assert!(limiters.iter().all(|limiter| limiter.health().failed() > 0));
        cluster.nodes[0].restart();
        cluster.until(|node| node.contains("cluster_slots_ok:16384"));
    }
}
