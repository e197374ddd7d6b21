//! What the other packages of this repository use, and users do not need. It is not part of the public interface: any
//! release may change it, so these packages depend on one exact version.
//!
//! The methods of public types that these packages use are `#[doc(hidden)]`.

// `tollgate-redis` counts times of a quota in whole ticks.
pub use crate::algorithm::compact::ticks::gcd;
// The packages of rules and of Redis read a clock once for each request, and pass the time on.
pub use crate::base::check_time::CheckTime;
// Threads of a model decide at one time that moves on.
#[cfg(tollgate_loom)]
pub use crate::base::clock::models::SharedTime;
// Times of settings and of servers are nanoseconds in both packages.
pub use crate::base::clock::{saturating_nanos, unix_nanos};
// A search among thousands of rules requests the memory of a rule before it needs it.
pub use crate::base::memory::prefetch::prefetch;
// Errors of all packages show their message.
pub use crate::base::debug_shows_message;
// `tollgate-http` shows clients the rate that was in force, and not the quota of the caller. Servers send these figures.
pub use crate::base::decision::Facts;
use crate::base::decision::{Decision, Outcome};
use crate::base::quota::QuotaError;
// A block in rules is a period without a quota.
pub use crate::base::quota::parse_period;
// An answer by rules keeps the rules that were in force.
pub use crate::base::reclaim::Loaded;
// The concurrent parts of both packages have models.
pub use crate::base::sync;
// A rule with `distinct` counts the values that it has seen.
pub use crate::limiter::distinct::KnownPairs;
// A process spends units of a server as stripes spend those of a limiter.
pub use crate::limiter::striped::{Account, Padded, Small, Terms};
// Snapshots of rules have those of their stores.
pub use crate::store::any::saved;
// The counter of a rule is a generation of a store. Rules and servers hold units by the same book and names. Snapshots of
// rules have the same form as those of limiters.
pub use crate::store::{holding, migrate, op, snapshot};
// All packages report to the `metrics` facade in the same way.
#[cfg(feature = "metrics")]
pub use crate::telemetry::facade;
// The counter of a rule has the readings of its store.
pub use crate::telemetry::gauges::readings_of;
// A request of rules looks up the counters of its thread once for each rule.
pub use crate::telemetry::meters::OwnTallies;
// `tollgate-tower` reports requests without a key to the `metrics` facade, under the names of this crate.
pub use crate::telemetry::keyless::KeylessCounts;
// Shared limiters count calls and failures in stripes, one for each of up to 16 threads.
pub use crate::telemetry::stripes::Stripes;

/// Creates an error with the text of the caller: a rule or a server cannot count the limit.
#[must_use]
pub fn quota_error(text: String) -> QuotaError {
    QuotaError::worded(text)
}

/// Returns the figures of a decision. `tollgate-http` computes what a client may still use from them.
#[inline]
pub const fn facts(decision: &Decision) -> &Facts {
    decision.facts()
}

/// Returns the nanoseconds until one unit is free, whatever the decision's cost: clients of `tollgate-http` read it.
#[inline]
pub fn one_unit_ns(decision: &Decision) -> u64 {
    decision.for_cost(1).retry_ns()
}

/// Creates a decision. `tollgate-http` needs one for a limit that admits nothing, which no limiter decides.
pub const fn decision(outcome: Outcome, cost: u64, limit: u64, at_ns: u64, facts: Facts) -> Decision {
    Decision::new(outcome, cost, limit, at_ns, facts)
}
