//! What each rule has decided about one request, and their combined result.

use std::time::Duration;

use smallvec::SmallVec;

use crate::base::decision::{Decision, Outcome};
use crate::edge::rules::counting::{DecidedWhere, SharedDecision};
use crate::edge::rules::engine::state::Part;

/// The rules of one request. Most requests have one or two.
pub(in crate::edge::rules::engine) type Few<T> = SmallVec<[T; 2]>;

/// A rule's decision about a request.
#[derive(Copy, Clone, Debug)]
pub(in crate::edge::rules::engine) struct Decided {
    pub(in crate::edge::rules::engine) rule: u32,
    pub(in crate::edge::rules::engine) descriptor: u32,
    pub(in crate::edge::rules::engine) part: Part,
    pub(super) soft: bool,
    /// `None` for a rule without a limit, and for a shared rule that was not asked.
    pub(in crate::edge::rules::engine) decision: Option<Decision>,
    /// Which side decided, for a shared rule.
    pub(super) by: Option<DecidedWhere>,
}

impl Decided {
    /// The entry of a rule that denies, and that this process counts.
    #[inline]
    pub(super) const fn new(rule: u32, descriptor: u32, decision: Decision) -> Self {
        Self { decision: Some(decision), ..Self::not_yet(rule, descriptor, Part::Enforced) }
    }

    /// The entry of a rule that has not decided yet.
    #[inline]
    pub(super) const fn not_yet(rule: u32, descriptor: u32, part: Part) -> Self {
        Self { rule, descriptor, part, soft: false, decision: None, by: None }
    }

    #[inline]
    pub(super) fn outcome(&self) -> Outcome {
        self.decision.as_ref().map_or(Outcome::Allowed, Decision::outcome)
    }

    /// Returns the answer of a shared rule.
    pub(super) fn shared(&self) -> Option<SharedDecision> {
        Some(SharedDecision { decision: self.decision?, by: self.by? })
    }

    /// Whether a shared rule was decided without its server.
    pub(super) fn is_without_server(&self) -> bool {
        self.by.and_then(DecidedWhere::event).is_some()
    }
}

/// The combined result of all rules of a request.
#[derive(Copy, Clone, Debug)]
pub(in crate::edge::rules::engine) struct Summary {
    pub(in crate::edge::rules::engine) outcome: Outcome,
    /// Whether this is a dry run, which denies nothing.
    pub(in crate::edge::rules::engine) shadow: bool,
    /// Whether there are rules with `quota_mode`, and none of them had quota left.
    pub(in crate::edge::rules::engine) quota_rules_deny: bool,
    /// The wait for rules that admitted and counted a request that another rule denied: how long they would deny the
    /// same request now.
    pub(in crate::edge::rules::engine) longest_other_wait: Duration,
}

impl Summary {
    /// The result of an admitted request.
    #[inline]
    pub(super) const fn allowed(shadow: bool) -> Self {
        Self::new(Outcome::Allowed, shadow)
    }

    #[inline]
    pub(in crate::edge::rules::engine) const fn new(outcome: Outcome, shadow: bool) -> Self {
        Self { outcome, shadow, quota_rules_deny: false, longest_other_wait: Duration::ZERO }
    }
}
