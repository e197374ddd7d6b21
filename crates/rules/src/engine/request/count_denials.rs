//! Charges denied requests to the rules that deny them: [`Charging::CountDenials`].
//!
//! # Protocol
//! ```text
//! 1. decide as all-or-nothing does: charge all rules that can deny, or none
//!      └─ denied ──► 2. charge each rule that denies, in one step of its own
//!      └─ admitted ► 2. charge each rule that reports and is over, and each quota rule that is over
//! ```
//! The store of a rule has room for one unit beyond the limit. Step 1 keeps this unit free, so it admits exactly the
//! limit. Step 2 may use it, and takes as many units of the cost as there is room for. A cost of 0 is denied while this
//! unit is in use.
//!
//! # The law
//! When a request has been decided and no other request is in progress,
//!
//! - an admitted request is charged in full, once, to each rule that admits it;
//! - a denied request is charged once to each rule that denies it, until one unit beyond the limit is in use, and not
//!   at all to any other rule.
//!
//! Two requests can race. Each step changes one counter in one atomic operation, and step 1 alone admits. So two
//! requests never share the last unit. Step 1 may charge a rule and refund the charge because a later rule denies. If
//! another request sees this charge, the rule may deny that request and charge it for that. A request may also see in
//! step 2 that units were refunded since step 1. It is charged in full, and stays denied. Neither race leaves a charge
//! at a rule that reports no denial, and neither leaves a denial without its charge.

use tollgate::Outcome;
use tollgate::internals::CheckTime;
use tollgate_config::Charging;

use super::check::RequestCheck;
use super::decided::Decided;
use super::rule_check::{CountedBy, RuleCheck};
use crate::engine::state::{Effect, Role, SharedCounter};

impl<'r> RequestCheck<'r> {
    /// Charges the rules of this process that deny the request. If the request is admitted, charges the rules that
    /// report only and the quota rules that are over.
    pub(in crate::engine) fn count_denials(&mut self, admitted: bool, when: CheckTime) {
        for (check, decided) in self.denials(admitted) {
            check.count_denied(decided, when);
        }
    }

    /// Returns the shared rules to which the request is charged although they deny it. A denial without the server is
    /// not charged there.
    pub(super) fn shared_denials(&mut self) -> impl Iterator<Item = (&mut RuleCheck<'r>, &'r SharedCounter)> {
        let admitted = self.outcome() == Outcome::Allowed;
        self.denials(admitted).filter_map(|(check, decided)| match check.counted {
            CountedBy::Shared(shared) if decided.by.is_some() && !decided.is_without_server() => {
                Some((check, shared))
            }
            _ => None,
        })
    }

    /// Returns the rules to which the request is charged although they deny it.
    fn denials(&mut self, admitted: bool) -> impl Iterator<Item = (&mut RuleCheck<'r>, &mut Decided)> {
        let quota_is_charged = admitted || self.all_quota_rules_deny();
        let is_concerned = move |role: Role| match role {
            Role::Enforced => !admitted,
            Role::Quota => quota_is_charged,
            Role::Shadow => admitted,
            Role::Replaced => false,
        };
        let rules = self.each(is_concerned);
        // Units that a request wanted to hold are not in use.
        let is_charged = |check: &RuleCheck<'_>| check.cost > 0 && !check.uses_holds();
        rules.filter(move |(check, decided)| is_charged(check) && decided.outcome() != Outcome::Allowed)
    }
}

impl RuleCheck<'_> {
    /// Whether a cost of 0 asks how many units are in use.
    pub(super) fn peeks_at_use(&self) -> bool {
        self.cost == 0 && self.charging == Charging::CountDenials
    }

    /// Charges a request after all rules have decided.
    pub(super) fn charge_late(&mut self, decided: &mut Decided, when: CheckTime) {
        self.charge(decided, when);
        if self.charging == Charging::CountDenials && decided.outcome() != Outcome::Allowed {
            self.count_denied(decided, when);
        }
    }

    fn count_denied(&mut self, decided: &mut Decided, when: CheckTime) {
        let CountedBy::Local { counter, headroom } = self.counted else { return };
        if counter.has_blocks() {
            return;
        }
        let elsewhere = || self.elsewhere(when);
        let (decision, effect) =
            counter.count(self.key.as_str(), self.is_own, self.cost, headroom, when, elsewhere);
        // If other requests have given units back, the request stays denied with the earlier figures.
        if decision.is_denied() {
            decided.decision = Some(decision);
        }
        self.effect = Effect { is_denial_counted: true, ..effect };
    }
}
