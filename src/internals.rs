//! What the other packages of this repository use, and users do not need. It is not part of the public interface: any
//! release may change it, so these packages depend on one exact version.

// `tollgate-http` shows clients the rate that was in force, and not the quota of the caller.
pub use crate::base::decision::Facts;
use crate::base::decision::{Decision, Outcome};
// `tollgate-tower` reports requests without a key to the `metrics` facade, under the names of this crate.
pub use crate::edge::telemetry::keyless::KeylessCounts;
// `tollgate-tower` keeps the descriptors of a request while it waits for a server.
#[cfg(feature = "rules")]
pub use crate::edge::rules::matching::Pairs;

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
