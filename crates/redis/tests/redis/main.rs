//! Limits that several processes share through Redis. Tests of connections and faults use real servers.

#[path = "../../../../tests/common/alike.rs"]
mod alike;
#[path = "../../../../tests/common/alike_limits.rs"]
mod alike_limits;
#[cfg(feature = "rules")]
#[path = "../../../../tests/common/alike_rules.rs"]
mod alike_rules;
mod blocks;
#[cfg(feature = "calendar")]
mod calendars;
mod calls;
mod classes;
mod clients;
mod credentials;
mod fake;
mod fallback;
mod faults;
mod guard;
mod harness;
mod holds;
mod hosts;
mod kinds;
mod kinds_alike;
mod lease;
#[cfg(feature = "tracing")]
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../../tests/common/listener.rs"]
mod listener;
mod lost_holds;
#[cfg(feature = "metrics")]
mod metrics;
mod modes;
#[cfg(feature = "watch")]
#[path = "../../../../tests/common/one_rule.rs"]
mod one_rule;
mod operations;
#[cfg(feature = "metrics")]
#[path = "../../../../tests/common/recorded.rs"]
mod recorded;
#[cfg(feature = "rules")]
mod rules;
#[cfg(feature = "rules")]
#[path = "../../../../tests/common/scenarios.rs"]
mod scenarios;
mod script;
mod sentinel;
mod sharded;
mod write_back;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tollgate::Limit;
use tollgate_redis::{Client, LimiterBuilder, OnFailure};
use tollgate_testing::redis::{Cluster, Server};

/// The longest wait for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Repeats a question until the answer is yes.
#[allow(clippy::disallowed_methods, reason = "real servers take real time")]
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < PATIENCE, "still waiting until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Repeats a question until the answer is yes, in a test that blocks.
#[allow(clippy::disallowed_methods, reason = "real servers take real time")]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "still waiting until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A runtime with two threads.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A runtime of the calling thread.
fn one_thread() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs this many tasks at the same time. Returns their results.
async fn in_tasks<F>(count: usize, task: impl Fn(usize) -> F) -> Vec<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    (0..count).for_each(|number| _ = tasks.spawn(task(number)));
    tasks.join_all().await
}

/// Runs this many threads at the same time. Returns their results.
fn in_threads<R: Send>(count: usize, run: impl Fn(usize) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || run(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn client(server: &Server) -> Client {
    Client::open(&server.url()).unwrap()
}

fn client_of(cluster: &Cluster) -> Client {
    Client::cluster(cluster.urls().iter().map(String::as_str)).unwrap()
}

/// A client of an address where no server listens.
fn absent() -> Client {
    Client::open("redis://127.0.0.1:1/").unwrap()
}

/// Adds limits. The limiter waits longer than a busy machine delays an answer, and denies what no server decides.
fn strict<T>(builder: LimiterBuilder<T>, more: &[Limit]) -> LimiterBuilder<T> {
    let builder = builder.timeout(PATIENCE).on_failure(OnFailure::Closed);
    more.iter().fold(builder, |builder, limit| builder.and(*limit))
}

/// Lets one test at a time use every processor. Such a test also needs replies within its time-outs.
fn busy() -> MutexGuard<'static, ()> {
    static BUSY: Mutex<()> = Mutex::new(());
    BUSY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks as the scenarios of rules do.
#[cfg(feature = "rules")]
async fn ask(
    rules: &tollgate_rules::Rules<tollgate::ManualClock>,
    domain: &str,
    descriptors: &[tollgate_rules::Descriptor<'_>],
    cost: u64,
) -> tollgate_rules::Answer {
    rules.check_n_async(domain, descriptors, cost).await
}
