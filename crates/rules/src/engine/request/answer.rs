//! The answer of the rules to a request.

use std::fmt;
use std::time::Duration;

use tollgate::internals::Loaded;
use tollgate::internals::saturating_nanos;
use tollgate::{DecidedBy, Decision, LimitKind, Outcome};
use tollgate_config::{Amount, Rule};

use super::decided::{Decided, DecidedList};
use crate::engine::state::{ActiveDomain, ActiveRule, Counter, Role, RuleSet, overrides};

/// The outcome of one rule.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// The rule admits the request.
    Allowed,
    /// The rule admits the request, but more units are in use than the soft limit.
    SoftLimited,
    /// The rule denies the request.
    Denied,
    /// The request exceeds the rule's limit, but the rule denies nothing: it only reports, or another rule with
    /// `quota_mode` had quota left.
    ShadowDenied,
    /// The rule admits everything without counting.
    Unlimited,
    /// The rule is shared by processes and was not asked, because another rule had already denied the request or
    /// because the request costs nothing.
    NotAsked,
}

/// The answer to one request: whether it is admitted, and the outcome of each rule that applies.
///
/// It keeps the rules that decided it, so it stays valid after a reload.
///
/// # Examples
/// ```
/// use tollgate_rules::{Descriptor, Rules, Verdict};
///
/// let rules = Rules::from_yaml("
/// domain: shop
/// tollgate: {}
/// descriptors:
///   - key: user
///     rate_limit: { name: daily, unit: day, requests_per_unit: 1 }
/// ")?;
/// let ask = || rules.check("shop", &[Descriptor::new(&[("user", "alice")])]);
/// assert!(ask().is_allowed());
/// let answer = ask();
/// assert!(answer.is_denied() && answer.retry_after().is_some());
/// let denied: Vec<_> = answer.denied_by().map(|limit| (limit.name(), limit.verdict())).collect();
/// assert_eq!(denied, [("daily", Verdict::Denied)]);
/// # Ok::<(), tollgate_rules::RulesError>(())
/// ```
pub struct Answer {
    pub(in crate::engine) rules: Loaded<RuleSet>,
    /// `None` if the domain has no rules.
    pub(in crate::engine) domain: Option<u32>,
    pub(in crate::engine) joint: JointOutcome,
    pub(in crate::engine) decided: DecidedList,
}

/// What the rules of a request decide together.
#[derive(Copy, Clone, Debug)]
pub(in crate::engine) struct JointOutcome {
    /// The outcome, also in a dry run.
    pub(in crate::engine) outcome: Outcome,
    /// Whether this is a dry run, which denies nothing.
    pub(in crate::engine) shadow: bool,
    /// Whether there are rules with `quota_mode`, and none of them had quota left.
    pub(in crate::engine) quota_rules_deny: bool,
    /// The wait for rules that admitted and counted a request that another rule denied: how long they would deny the
    /// same request now.
    pub(super) longest_other_wait: Duration,
}

impl JointOutcome {
    /// The outcome of a request that begins to ask a domain.
    #[inline(always)]
    pub(in crate::engine) fn begin(domain: &ActiveDomain) -> Self {
        domain.note_asked();
        Self::new(domain.is_dry_run)
    }

    /// The outcome of a request before any rule has decided.
    #[inline(always)]
    pub(super) const fn new(shadow: bool) -> Self {
        let (outcome, quota_rules_deny, longest_other_wait) = (Outcome::Allowed, false, Duration::ZERO);
        Self { outcome, shadow, quota_rules_deny, longest_other_wait }
    }
}

impl Answer {
    /// Returns the answer of an admitted request to which no rule applies.
    #[inline(always)]
    pub(super) fn new(rules: Loaded<RuleSet>, domain: Option<u32>, shadow: bool) -> Self {
        Self { rules, domain, joint: JointOutcome::new(shadow), decided: DecidedList::new() }
    }

    /// Returns whether the request is admitted, and if not, whether it can ever be admitted.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        if self.joint.shadow { Outcome::Allowed } else { self.joint.outcome }
    }

    /// Whether the request is admitted. Also true if no rule applies to the request, unless
    /// [`WithoutRule::Deny`](crate::WithoutRule::Deny) is set.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.outcome() == Outcome::Allowed
    }

    /// Whether the request is denied.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        !self.is_allowed()
    }

    /// Whether some rule can never admit the cost of the request, or no rule applies to it and
    /// [`WithoutRule::Deny`](crate::WithoutRule::Deny) is set.
    #[must_use]
    pub fn is_never(&self) -> bool {
        self.outcome() == Outcome::Never
    }

    /// Whether the request would be denied without the dry run of all rules.
    #[must_use]
    pub fn is_shadow_denied(&self) -> bool {
        self.joint.shadow && self.joint.outcome != Outcome::Allowed
    }

    /// Whether the domain has rules.
    #[must_use]
    pub fn has_domain(&self) -> bool {
        self.domain.is_some()
    }

    /// Returns the index of the request's domain among those in force, in the order of
    /// [`Rules::for_each`](crate::Rules::for_each). Returns `None` if the domain has no rules.
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::{Descriptor, Rules};
    ///
    /// let rules = Rules::from_yaml("
    /// domain: api
    /// descriptors: [{ key: tenant, rate_limit: { unit: second, requests_per_unit: 1 } }]
    /// ")?;
    /// let answer = rules.check("api", &[Descriptor::new(&[("tenant", "a")])]);
    /// assert_eq!(answer.domain_index(), Some(0));
    /// assert_eq!(answer.limits().map(|limit| limit.index()).collect::<Vec<_>>(), [0]);
    /// # Ok::<(), tollgate_rules::RulesError>(())
    /// ```
    #[must_use]
    pub fn domain_index(&self) -> Option<usize> {
        self.domain.map(|place| place as usize)
    }

    pub(in crate::engine) fn domain(&self) -> Option<&ActiveDomain> {
        self.rules.domain_at(self.domain?)
    }

    /// Returns all rules that apply, in the order of the request's descriptors and then of the rules in the file.
    pub fn limits(&self) -> impl Iterator<Item = Applied<'_>> {
        self.applied(self.decided.iter())
    }

    /// Returns the rule with this index among those that apply.
    pub(in crate::engine) fn limit_at(&self, place: usize) -> Option<Applied<'_>> {
        self.applied(self.decided.get(place).into_iter()).next()
    }

    fn applied<'a>(
        &'a self,
        decided: impl Iterator<Item = &'a Decided>,
    ) -> impl Iterator<Item = Applied<'a>> {
        let domain = self.domain();
        decided.filter_map(move |decided| {
            Some(Applied { active: domain?.rule(decided.rule)?, decided, answer: self })
        })
    }

    /// Returns the rules that deny the request.
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::{Descriptor, Rules};
    ///
    /// let rules = Rules::from_yaml("
    /// domain: edge
    /// descriptors:
    ///   - key: remote_address
    ///     rate_limit: { unit: hour, requests_per_unit: 1, name: per-address }
    /// ")?;
    /// let ask = || rules.check("edge", &[Descriptor::new(&[("remote_address", "192.0.2.1")])]);
    /// assert!(ask().is_allowed());
    /// let answer = ask();
    /// let names: Vec<&str> = answer.denied_by().map(|limit| limit.name()).collect();
    /// assert_eq!(names, ["per-address"]);
    /// # Ok::<(), tollgate_rules::RulesError>(())
    /// ```
    pub fn denied_by(&self) -> impl Iterator<Item = Applied<'_>> {
        let denied = self.is_denied();
        self.limits().filter(move |limit| denied && limit.refuses())
    }

    /// Returns how long until the same request could be admitted, if no other request is charged until then. This is
    /// the longest wait of the rules that deny. Among rules with `quota_mode`, only the shortest wait counts. Returns
    /// zero if the request was admitted, and `None` if it can never be admitted.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if self.is_never() {
            return None;
        }
        let waits = |role: Role| {
            let refuses = self.denied_by().filter(move |limit| limit.decided.role == role);
            refuses.filter_map(|limit| limit.decided.decision?.retry_after())
        };
        let enforced = waits(Role::Enforced).max();
        let other = if self.is_denied() { self.joint.longest_other_wait } else { Duration::ZERO };
        Some(enforced.max(waits(Role::Quota).min()).unwrap_or_default().max(other))
    }

    /// Whether any rule marks the request because more units are in use than its soft limit.
    #[must_use]
    pub fn is_soft_limited(&self) -> bool {
        self.decided.iter().any(|decided| decided.soft)
    }

    /// Returns the strictest of the rules that apply to the descriptor with this index. It is the one that Envoy's service
    /// names in the status of the descriptor.
    #[must_use]
    pub fn strictest(&self, descriptor: usize) -> Option<Applied<'_>> {
        self.strictest_of(descriptor, |_| true)
    }

    /// Does what [`Answer::strictest`] does, but only with the rules that clients may see ([`Rule::headers`]).
    #[must_use]
    pub fn strictest_shown(&self, descriptor: usize) -> Option<Applied<'_>> {
        self.strictest_of(descriptor, |limit| limit.rule().headers)
    }

    /// Whether the descriptor with this index is over its limit: see [`Applied::is_over_limit`].
    #[must_use]
    pub fn is_over_limit(&self, descriptor: usize) -> bool {
        self.strictest(descriptor).is_some_and(|limit| limit.is_over_limit())
    }

    /// Returns the remaining units of the descriptor with this index: see [`Applied::limit_remaining`]. Returns 0 without a
    /// limit.
    #[must_use]
    pub fn remaining(&self, descriptor: usize) -> u32 {
        self.strictest(descriptor).map_or(0, |limit| limit.limit_remaining())
    }

    fn strictest_of(&self, descriptor: usize, counts: impl Fn(&Applied<'_>) -> bool) -> Option<Applied<'_>> {
        // The limits are in the order of the descriptors.
        let first = self.decided.partition_point(|decided| (decided.descriptor as usize) < descriptor);
        let own = self.decided.get(first..).unwrap_or_default().iter();
        let applied = self.applied(own.take_while(|decided| decided.descriptor as usize == descriptor));
        let applied = applied.filter(|limit| limit.decided.role != Role::Replaced && counts(limit));
        let rank = |limit: &Applied<'_>| {
            (!limit.is_over_limit(), limit.decided.role == Role::Shadow, limit.remaining())
        };
        // Compares instead of ranking each limit, because most descriptors have a single one.
        applied.min_by(|one, other| rank(one).cmp(&rank(other)))
    }
}

/// A rule that applies to a request, with its outcome.
#[derive(Copy, Clone)]
pub struct Applied<'a> {
    active: &'a ActiveRule,
    pub(in crate::engine) decided: &'a Decided,
    answer: &'a Answer,
}

impl<'a> Applied<'a> {
    /// Returns the rule.
    #[must_use]
    pub fn rule(&self) -> &'a Rule {
        &self.active.rule
    }

    /// Returns the rule's name, for clients and logs.
    #[must_use]
    pub fn name(&self) -> &'a str {
        &self.active.rule.name
    }

    /// Returns the index of the rule in its domain, as in [`Domain::rules`](crate::Domain::rules).
    #[must_use]
    pub fn index(&self) -> usize {
        self.decided.rule as usize
    }

    /// Returns the index of the request's descriptor that the rule applies to.
    #[must_use]
    pub fn descriptor(&self) -> usize {
        self.decided.descriptor as usize
    }

    /// Returns the outcome of the rule. If another rule denied the request, this is the outcome that the rule would
    /// have had.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self.decided.decision {
            None if self.is_unasked() => Verdict::NotAsked,
            None => Verdict::Unlimited,
            Some(decision) if decision.is_allowed() && self.decided.soft => Verdict::SoftLimited,
            Some(decision) if decision.is_allowed() => Verdict::Allowed,
            Some(_) if self.refuses() && !self.answer.joint.shadow => Verdict::Denied,
            Some(_) => Verdict::ShadowDenied,
        }
    }

    /// Returns the rule's decision. If another rule denied the request, this is the decision that the rule would have
    /// made. Returns `None` for a rule without a limit, for a rule that another one replaces, and for a rule that was
    /// [not asked](Verdict::NotAsked).
    #[must_use]
    pub fn decision(&self) -> Option<&'a Decision> {
        self.decided.decision.as_ref()
    }

    /// Returns which side decided, for a rule that processes share. Returns `None` for other rules, and for a rule that
    /// was not asked.
    #[must_use]
    pub fn decided_by(&self) -> Option<DecidedBy> {
        self.decided.by.map(|by| by.by)
    }

    /// Returns the rule's decision if a client may see it: for header fields and error bodies.
    ///
    /// Returns `None` for a rule without a decision, and for a rule that clients must not see ([`Rule::headers`]). Also
    /// returns `None` if the rule's state is not known: its server was unavailable, or this process holds only a part of
    /// the limit.
    #[must_use]
    pub fn decision_shown(&self) -> Option<&'a Decision> {
        let decision = self.decision().filter(|_| self.rule().headers)?;
        let is_known = match self.decided_by() {
            None | Some(DecidedBy::Server) => true,
            // If the server did not answer, no limiter decided.
            Some(DecidedBy::Open | DecidedBy::Closed) => false,
            // An admission by a part of the limit does not show how much of the rest is used.
            Some(_) => decision.is_denied(),
        };
        is_known.then_some(decision)
    }

    fn is_unasked(&self) -> bool {
        matches!(self.active.counter, Counter::Shared(_)) && self.decided.role != Role::Replaced
    }

    /// Returns the units that would be admitted now. Returns `u64::MAX` without a limit. Returns 0 for a rule that only
    /// reports and would deny, and for a rule that was not asked. After a denied cost above 1, some units may be left,
    /// although [`Applied::limit_remaining`] returns 0.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        match &self.decided.decision {
            None if self.is_unasked() => 0,
            None => u64::MAX,
            Some(decision) if decision.is_denied() && !self.refuses() => 0,
            Some(decision) => decision.remaining(),
        }
    }

    /// Returns the number of units that a fresh key may use at once: the burst, or the limit of windows. Returns
    /// `u64::MAX` without a limit.
    #[must_use]
    pub fn quota(&self) -> u64 {
        self.decided.decision.map_or(self.active.quota, |decision| decision.limit())
    }

    /// Returns the time in which that many units refill: the period of windows.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.active.window
    }

    /// Whether the rule could have denied the request: it does not only report, and no other rule replaces it.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        self.decided.role.can_deny() && !self.answer.joint.shadow
    }

    /// Whether the rule denies the request only if all such rules of the request deny it: `quota_mode`.
    #[must_use]
    pub fn is_quota(&self) -> bool {
        self.decided.role == Role::Quota
    }

    /// Whether this is a limit that the [request set itself](crate::Descriptor::limit).
    #[must_use]
    pub fn is_of_request(&self) -> bool {
        overrides::is_index(self.decided.rule)
    }

    fn refuses(&self) -> bool {
        self.is_over_limit() && (self.decided.role != Role::Quota || self.answer.joint.quota_rules_deny)
    }

    /// Whether the rule is over its limit. This is never true for a rule that only reports. It can be true for a rule with
    /// `quota_mode` although another such rule has quota left and the request is admitted.
    #[must_use]
    pub fn is_over_limit(&self) -> bool {
        let is_denied = self.decided.decision.as_ref().is_some_and(Decision::is_denied);
        is_denied && self.decided.role.can_deny()
    }

    /// Returns when the limit has room again, from the time of the decision. Returns `None` for a rule that admits
    /// everything, and for a rule that was not asked.
    ///
    /// For a fixed window, this is the time until the window ends, whether units are used or not. For another
    /// algorithm, it is the time until the request fits if it was denied, or the time until all units are available if
    /// it was admitted.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate_rules::{Config, Descriptor, Rules};
    /// use tollgate::{ManualClock, Timestamp};
    ///
    /// let config = Config::from_yaml("limits.yaml", "
    /// domain: edge
    /// descriptors: [{ key: user, rate_limit: { unit: minute, requests_per_unit: 10 } }]
    /// ")?;
    /// let rules = Rules::builder().clock(ManualClock::new(Timestamp::from_secs(62))).load([config])?;
    /// let answer = rules.check("edge", &[Descriptor::new(&[("user", "alice")])]);
    /// let limit = answer.strictest(0).expect("a rule applies");
    /// assert_eq!(limit.reset_after(), Some(Duration::from_secs(58)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn reset_after(&self) -> Option<Duration> {
        let decision = self.decision()?;
        let window = match &self.rule().limit {
            Amount::Unlimited => return None,
            Amount::Blocked { period } => saturating_nanos(*period),
            Amount::Limited { limit, .. } => match limit.kind() {
                LimitKind::FixedWindow => limit.quota().period_ns(),
                LimitKind::CalendarWindow { calendar } => {
                    let end = calendar.period_at(decision.at()).end;
                    return Some(end.duration_since(decision.at()));
                }
                _ => 0,
            },
            Amount::InProgress { .. } => 0,
        };
        if let Some(passed_ns) = decision.at_ns().checked_rem(window) {
            return Some(Duration::from_nanos(window - passed_ns));
        }
        decision.retry_after().filter(|_| decision.is_denied()).or_else(|| Some(decision.reset_after()))
    }

    /// Returns the remaining units as Envoy's service reports them: 0 for a rule over its limit, 4,294,967,295 for a rule
    /// that admits everything.
    #[must_use]
    pub fn limit_remaining(&self) -> u32 {
        match &self.rule().limit {
            Amount::Unlimited => u32::MAX,
            _ if self.decision().is_some_and(Decision::is_denied) => 0,
            _ => u32::try_from(self.remaining()).unwrap_or(u32::MAX),
        }
    }
}

impl fmt::Debug for Applied<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Applied")
            .field("name", &self.name())
            .field("verdict", &self.verdict())
            .field("decision", &self.decision())
            .finish()
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("outcome", &self.outcome())
            .field("limits", &self.limits().collect::<Vec<_>>())
            .finish()
    }
}
