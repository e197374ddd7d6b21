//! The role of a rule in a request.

use tollgate_config::internals::MILLION;
use tollgate_config::{Amount, Rule};

/// The role of a rule in a request: whether it can deny it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Role {
    Enforced,
    /// Denies the request if all rules with this role deny it.
    Quota,
    /// Reports only.
    Shadow,
    /// Disabled by another rule.
    Replaced,
}

impl Role {
    /// Returns the role that a rule has in every request, or `None` if the rule is enforced for a share of its keys
    /// only.
    pub(super) fn of_all(rule: &Rule) -> Option<Self> {
        if rule.shadow {
            Some(Self::Shadow)
        } else {
            (rule.enforced_per_million >= MILLION).then(|| Self::of_enforced(rule))
        }
    }

    /// Returns the role for keys that the rule is enforced for. A rule without a limit is not a quota.
    pub(in crate::engine) fn of_enforced(rule: &Rule) -> Self {
        if rule.quota_mode && rule.limit != Amount::Unlimited { Self::Quota } else { Self::Enforced }
    }

    /// Whether the rule can deny the request.
    #[inline]
    pub(in crate::engine) fn can_deny(self) -> bool {
        matches!(self, Self::Enforced | Self::Quota)
    }
}
