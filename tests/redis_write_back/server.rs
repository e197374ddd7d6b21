//! With a real server, and a network that fails.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

#[path = "../common/redis.rs"]
mod servers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use servers::{Proxy, Server};
use tollgate::Quota;
use tollgate::redis::simulation::Steps;
use tollgate::redis::{Breaker, Client, Limit, OnFailure, WriteBackLimiter};

const PROCESSES: u32 = 4;

/// A window that ends at no time that this test runs at, nearly always: a year.
fn limit() -> Limit {
    Limit::fixed_window(Quota::new(2_000, Duration::from_secs(365 * 86_400)))
}

fn limiter(url: &str) -> WriteBackLimiter {
    let client = Client::open(url).unwrap();
    let builder = client.limiter("api", limit()).on_failure(OnFailure::Local { processes: PROCESSES });
    let breaker = Breaker::new(5, Duration::from_millis(100));
    let builder = builder.breaker(breaker).timeout(Duration::from_millis(100));
    builder.write_back().interval(Duration::from_millis(50)).build().unwrap()
}

/// All hammer one key, while something happens; what was admitted, and the limiters.
async fn hammer<R: Send + 'static>(
    urls: Vec<String>,
    happens: impl FnOnce() -> R + Send + 'static,
) -> (u64, Vec<WriteBackLimiter>, R) {
    let (over, admitted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let limiters: Vec<_> = urls.iter().map(|url| limiter(url)).collect();
    let tasks: Vec<_> = limiters
        .iter()
        .map(|limiter| {
            let (limiter, over, admitted) = (limiter.clone(), Arc::clone(&over), Arc::clone(&admitted));
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    for _ in 0..5 {
                        admitted.fetch_add(u64::from(limiter.check("a").is_allowed()), Ordering::Relaxed);
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            })
        })
        .collect();
    let happened = tokio::task::spawn_blocking(happens).await.unwrap();
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    (admitted.load(Ordering::Relaxed), limiters, happened)
}

/// Until all is posted.
async fn settle(limiters: &[WriteBackLimiter]) {
    for limiter in limiters {
        for _ in 0..50 {
            if limiter.flush().await == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(limiter.stats().pending, 0, "{:?}", limiter.health());
    }
}

/// What is left by what the server counts: one of so many processes gets a unit before it has asked, and all that is left after.
async fn left(url: &str) -> u64 {
    let builder = Client::open(url).unwrap().limiter("api", limit());
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
    // In an outage each may let through its part of the window once more.
    limit().most() + Steps::over_at_most(limit(), PROCESSES) + limit().most()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_fails_costs_no_more_than_the_bound() {
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
        networks
    })
    .await;
    assert!((limit().most()..=bound()).contains(&admitted), "{admitted} of {}", limit().most());
    settle(&limiters).await;
    assert!(left(&server.url()).await <= 1, "all that was let through is counted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_is_told_again() {
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
    // A server that begins empty can hand out all of it once more.
    assert!((limit().most()..=bound() + limit().most()).contains(&admitted), "{admitted}");
    settle(&limiters).await;
    assert!(left(&url).await <= 1);
}
