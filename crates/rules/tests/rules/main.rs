//! Rules: deciding and reloading.

#[path = "../../../../tests/common/alike.rs"]
mod alike;
#[path = "../../../../tests/common/alike_rules.rs"]
mod alike_rules;
#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
#[path = "../../../../tests/common/arena.rs"]
#[allow(dead_code, reason = "no test looks at the writes of rules")]
mod arena;
mod descriptors;
mod engine;
#[path = "../../../config/tests/config/files.rs"]
mod files;
#[cfg(feature = "watch")]
mod folders;
#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
mod lock_free;
#[cfg(feature = "watch")]
#[path = "../../../../tests/common/one_rule.rs"]
mod one_rule;
mod own_store;
mod properties;
#[cfg(feature = "watch")]
mod restore;
#[path = "../../../../tests/common/scenarios.rs"]
mod scenarios;
mod send_sync;
#[cfg(feature = "watch")]
mod source;
#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
#[path = "../../../../tests/common/stopped.rs"]
#[allow(dead_code, reason = "the control of this test is in another program")]
mod stopping;
#[path = "../../../config/tests/config/matching/texts.rs"]
mod texts;
#[cfg(feature = "watch")]
mod watch;
#[cfg(feature = "watch")]
mod watching;

/// Asks as the scenarios do.
async fn ask(
    rules: &tollgate_rules::Rules<tollgate::ManualClock>,
    domain: &str,
    descriptors: &[tollgate_rules::Descriptor<'_>],
    cost: u64,
) -> tollgate_rules::Answer {
    #[cfg(feature = "tokio")]
    return rules.check_n_async(domain, descriptors, cost).await;
    #[cfg(not(feature = "tokio"))]
    rules.check_n(domain, descriptors, cost)
}
