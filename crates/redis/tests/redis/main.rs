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
mod classes;
mod clients;
mod credentials;
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
#[cfg(feature = "watch")]
#[path = "../../../../tests/common/one_rule.rs"]
mod one_rule;
mod operations;
mod protocol;
#[cfg(feature = "metrics")]
#[path = "../../../../tests/common/recorded.rs"]
mod recorded;
mod regions;
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

use tollgate::{
    FixedWindow, LeakyBucketQueue, Limit, MinimumSpacing, Quota, SlidingLog, SubWindow, Timestamp,
    TokenBucket,
};

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

/// Limits of all algorithms. Units of the first ten can be held.
fn all_kinds(quota: Quota) -> [Limit; 13] {
    let (at, in_parts) = (Timestamp::from_nanos(7_003_000_000), SubWindow::new(quota, 5));
    [
        Limit::gcra(quota),
        Limit::fixed_window(quota),
        Limit::sliding_window(quota),
        Limit::sliding_window(quota).strict(),
        in_parts.into(),
        in_parts.strict().into(),
        SlidingLog::new(quota).into(),
        FixedWindow::from_first_use(quota).into(),
        TokenBucket::interval(quota).into(),
        TokenBucket::aligned(quota, at).into(),
        LeakyBucketQueue::new(quota).into(),
        MinimumSpacing::new(quota.period() / 4).into(),
        TokenBucket::aligned_adaptive(quota, at).into(),
    ]
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
