//! What each rule has decided about one request, and their combined result.

use std::time::Duration;

use smallvec::SmallVec;

use crate::base::decision::{Decision, Outcome};
use crate::edge::rules::counting::{DecidedWhere, SharedDecision};
use crate::edge::rules::rule::{Amount, MILLION, Rule};

/// The rules of one request. Most requests have one or two.
pub(super) type Few<T> = SmallVec<[T; 2]>;

/// The part that a rule takes in a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Enforced,
    /// Denies the request if all rules with this part deny it.
    Quota,
    /// Reports only.
    Shadow,
    /// Disabled by another rule.
    Replaced,
}

impl Part {
    /// Returns the part that a rule takes in every request, or `None` if the rule is enforced for a share of its keys
    /// only.
    pub(super) fn of_all(rule: &Rule) -> Option<Self> {
        if rule.shadow {
            Some(Self::Shadow)
        } else {
            (rule.enforced_per_million >= MILLION).then(|| Self::of_enforced(rule))
        }
    }

    /// Returns the part for keys that the rule is enforced for. A rule without a limit is not a quota.
    pub(super) fn of_enforced(rule: &Rule) -> Self {
        if rule.quota_mode && rule.limit != Amount::Unlimited { Self::Quota } else { Self::Enforced }
    }

    /// Whether the rule can deny the request.
    #[inline]
    pub(super) fn refuses(self) -> bool {
        matches!(self, Self::Enforced | Self::Quota)
    }
}

/// A rule's decision about a request.
#[derive(Copy, Clone, Debug)]
pub(super) struct Decided {
    pub(super) rule: u32,
    pub(super) descriptor: u32,
    pub(super) part: Part,
    pub(super) soft: bool,
    /// `None` for a rule without a limit, and for a shared rule that was not asked.
    pub(super) decision: Option<Decision>,
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
pub(super) struct Summary {
    pub(super) outcome: Outcome,
    /// Whether this is a dry run, which denies nothing.
    pub(super) shadow: bool,
    /// Whether there are rules with `quota_mode`, and none of them had quota left.
    pub(super) quota_rules_deny: bool,
    /// The wait for rules that admitted and counted a request that another rule denied: how long they would deny the
    /// same request now.
    pub(super) longest_other_wait: Duration,
}

impl Summary {
    /// The result of an admitted request.
    #[inline]
    pub(super) const fn allowed(shadow: bool) -> Self {
        Self::new(Outcome::Allowed, shadow)
    }

    #[inline]
    pub(super) const fn new(outcome: Outcome, shadow: bool) -> Self {
        Self { outcome, shadow, quota_rules_deny: false, longest_other_wait: Duration::ZERO }
    }
}
