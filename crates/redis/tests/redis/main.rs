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
