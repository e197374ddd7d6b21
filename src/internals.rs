//! What the other packages of this repository use, and users do not need. It is not part of the public interface: any
//! release may change it, so these packages depend on one exact version.

pub use crate::algorithm::compact::ticks::gcd;
pub use crate::base::check_time::CheckTime;
#[cfg(tollgate_loom)]
pub use crate::base::clock::models::SharedTime;
pub use crate::base::clock::{saturating_nanos, unix_nanos};
// `tollgate-http` shows clients the rate that was in force, and not the quota of the caller.
pub use crate::base::debug_shows_message;
pub use crate::base::decision::Facts;
use crate::base::decision::{Decision, Outcome};
use crate::base::quota::QuotaError;
pub use crate::base::quota::parse_period;
pub use crate::base::sync;
pub use crate::limiter::distinct::KnownPairs;
pub use crate::limiter::striped::{Account, Padded, Small, Terms};
pub use crate::store::any::saved;
pub use crate::store::{holding, migrate, op, snapshot};
#[cfg(feature = "metrics")]
pub use crate::telemetry::facade;
pub use crate::telemetry::gauges::readings_of;
// `tollgate-tower` reports requests without a key to the `metrics` facade, under the names of this crate.
pub use crate::telemetry::keyless::KeylessCounts;
pub use crate::telemetry::stripes::Stripes;

/// Creates an error: a server cannot count or share a limit.
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
