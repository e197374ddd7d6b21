//! What the rules say of a request.

use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;

use super::counter::Counter;
use super::overrides;
use super::rule_set::{ActiveDomain, ActiveRule, RuleSet};
use crate::base::decision::{Decision, Outcome};
use crate::base::sync::Loaded;
use crate::edge::rules::counting::DecidedWhere;
use crate::edge::rules::rule::{Limit, MILLION, Rule};

/// As Envoy's service answers.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Code {
    /// It may go.
    Ok,
    /// It must not.
    OverLimit,
}

/// What came of one rule.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// There was room.
    Allowed,
    /// There was room, but more is in use than the soft limit.
    SoftLimited,
    /// There was none.
    Denied,
    /// There was none, but the rule refuses nobody: it only reports, or another one with `quota_mode` had room.
    ShadowDenied,
    /// The rule lets all through, uncounted.
    Unlimited,
    /// The rule is shared by processes, and was not asked: another one refused the request already, or it costs nothing.
    NotAsked,
}

/// How a rule takes part in a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Enforced,
    /// Refuses if all such do.
    Quota,
    /// Reports only.
    Shadow,
    /// Switched off by another rule.
    Replaced,
}

impl Part {
    /// How a rule takes part in every request; `None` if it refuses a share of its keys only.
    pub(super) fn of_all(rule: &Rule) -> Option<Self> {
        if rule.shadow {
            Some(Self::Shadow)
        } else {
            (rule.enforced_per_million >= MILLION).then(|| Self::of_enforced(rule))
        }
    }

    /// How it takes part for the keys that it refuses. What has no limit is no quota.
    pub(super) fn of_enforced(rule: &Rule) -> Self {
        if rule.quota_mode && rule.limit != Limit::Unlimited { Self::Quota } else { Self::Enforced }
    }

    /// Whether it can refuse the request.
    pub(super) fn refuses(self) -> bool {
        matches!(self, Self::Enforced | Self::Quota)
    }
}

/// A rule in a request, decided.
#[derive(Copy, Clone, Debug)]
pub(super) struct Decided {
    pub(super) rule: u32,
    pub(super) descriptor: u32,
    pub(super) part: Part,
    pub(super) soft: bool,
    /// None of a rule without a limit, and of a shared one that was not asked.
    pub(super) decision: Option<Decision>,
    /// Who decided, of a shared rule.
    pub(super) by: Option<DecidedWhere>,
}

/// Rules of one request: mostly one or two.
pub(super) type Few<T> = SmallVec<[T; 2]>;

/// The answer to one request: whether it may go, and what each rule that applies says of it.
///
/// It holds on to the rules that were in force when it was decided, so what it says stays true when they are loaded again.
///
/// # Examples
/// ```
/// use tollgate::rules::{Descriptor, Rules, Verdict};
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
/// let refused: Vec<_> = answer.refused_by().map(|limit| (limit.name(), limit.verdict())).collect();
/// assert_eq!(refused, [("daily", Verdict::Denied)]); // why it was refused
/// # Ok::<(), tollgate::rules::RulesError>(())
/// ```
pub struct Answer {
    pub(super) rules: Loaded<RuleSet>,
    /// `None` if there are no rules for it.
    pub(super) domain: Option<u32>,
    pub(super) summary: Summary,
    pub(super) decided: Few<Decided>,
}

/// What the rules of a request say together.
#[derive(Copy, Clone, Debug)]
pub(super) struct Summary {
    pub(super) outcome: Outcome,
    /// Whether nothing is refused: a dry run.
    pub(super) shadow: bool,
    /// Whether there are rules with `quota_mode`, and none had room.
    pub(super) quotas_refuse: bool,
    /// How long the rules that admitted a refused request, and counted it all the same, would refuse the same one now.
    pub(super) other_retry_after: Duration,
}

impl Summary {
    /// What a rule says that no other one is asked with.
    #[inline]
    pub(super) const fn new(outcome: Outcome, shadow: bool) -> Self {
        Self { outcome, shadow, quotas_refuse: false, other_retry_after: Duration::ZERO }
    }
}

impl Answer {
    /// Whether the request may go, and if not whether it ever can.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        if self.summary.shadow { Outcome::Allowed } else { self.summary.outcome }
    }

    /// Whether the request may go. True of a request to which no rule applies.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.outcome() == Outcome::Allowed
    }

    /// Whether the request must not go.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        !self.is_allowed()
    }

    /// Whether some rule can never admit its cost.
    #[must_use]
    pub fn is_never(&self) -> bool {
        self.outcome() == Outcome::Never
    }

    /// Whether it would have been refused, were it not for a dry run of all rules.
    #[must_use]
    pub fn is_shadow_denied(&self) -> bool {
        self.summary.shadow && self.summary.outcome != Outcome::Allowed
    }

    /// Whether there are rules for the domain at all.
    #[must_use]
    pub fn has_domain(&self) -> bool {
        self.domain.is_some()
    }

    /// As Envoy's service answers for the whole request.
    #[must_use]
    pub fn code(&self) -> Code {
        if self.is_allowed() { Code::Ok } else { Code::OverLimit }
    }

    /// The index of its domain among those in force, in the order of [`Rules::for_each`](super::Rules::for_each); `None` if there are
    /// no rules for it.
    ///
    /// # Examples
    /// ```
    /// use tollgate::rules::{Descriptor, Rules};
    ///
    /// let rules = Rules::from_yaml("
    /// domain: api
    /// descriptors: [{ key: tenant, rate_limit: { unit: second, requests_per_unit: 1 } }]
    /// ")?;
    /// let answer = rules.check("api", &[Descriptor::new(&[("tenant", "a")])]);
    /// assert_eq!(answer.domain_index(), Some(0));
    /// assert_eq!(answer.limits().map(|limit| limit.index()).collect::<Vec<_>>(), [0]);
    /// # Ok::<(), tollgate::rules::RulesError>(())
    /// ```
    #[must_use]
    pub fn domain_index(&self) -> Option<usize> {
        self.domain.map(|place| place as usize)
    }

    pub(super) fn domain(&self) -> Option<&ActiveDomain> {
        self.rules.domain_at(self.domain?)
    }

    /// Every rule that applies, in the order of the request's descriptors and the file's rules.
    pub fn limits(&self) -> impl Iterator<Item = Applied<'_>> {
        let domain = self.domain();
        self.decided.iter().filter_map(move |decided| {
            Some(Applied { active: domain?.rule(decided.rule)?, decided, summary: &self.summary })
        })
    }

    /// The rules that refuse the request.
    ///
    /// # Examples
    /// ```
    /// use tollgate::rules::{Descriptor, Rules};
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
    /// let names: Vec<&str> = answer.refused_by().map(|limit| limit.name()).collect();
    /// assert_eq!(names, ["per-address"]);
    /// # Ok::<(), tollgate::rules::RulesError>(())
    /// ```
    pub fn refused_by(&self) -> impl Iterator<Item = Applied<'_>> {
        let denied = self.is_denied();
        self.limits().filter(move |limit| denied && limit.refuses())
    }

    /// How long until the same request could be admitted, if nothing else is until then: as the rule says that refuses for
    /// longest; of those with `quota_mode` the one that refuses for the shortest time. Zero if it was allowed, `None` if it can never be.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if self.is_never() {
            return None;
        }
        let waits = |part: Part| {
            let refuses = self.refused_by().filter(move |limit| limit.decided.part == part);
            refuses.filter_map(|limit| limit.decided.decision?.retry_after())
        };
        let enforced = waits(Part::Enforced).max();
        let other = if self.is_denied() { self.summary.other_retry_after } else { Duration::ZERO };
        Some(enforced.max(waits(Part::Quota).min()).unwrap_or_default().max(other))
    }

    /// Whether any rule marks it: more is in use than its soft limit.
    #[must_use]
    pub fn is_soft_limited(&self) -> bool {
        self.decided.iter().any(|decided| decided.soft)
    }

    /// As Envoy's service answers for one descriptor, by its place.
    #[must_use]
    pub fn status(&self, descriptor: usize) -> Status<'_> {
        let applied = self.limits().filter(|limit| limit.descriptor() == descriptor);
        let strictest = applied.filter(|limit| limit.decided.part != Part::Replaced).min_by_key(|limit| {
            let is_ok = limit.code() == Code::Ok;
            (is_ok, limit.decided.part == Part::Shadow, limit.remaining())
        });
        Status { strictest }
    }
}

/// One rule that applies to a request, and what came of it.
#[derive(Copy, Clone)]
pub struct Applied<'a> {
    active: &'a ActiveRule,
    decided: &'a Decided,
    summary: &'a Summary,
}

impl<'a> Applied<'a> {
    /// The rule.
    #[must_use]
    pub fn rule(&self) -> &'a Rule {
        &self.active.rule
    }

    /// Its name, for clients and logs.
    #[must_use]
    pub fn name(&self) -> &'a str {
        &self.active.rule.name
    }

    /// The index of the rule among its domain's, as in [`Domain::rules`](crate::rules::Domain::rules).
    #[must_use]
    pub fn index(&self) -> usize {
        self.decided.rule as usize
    }

    /// Which of the request's descriptors it applies to.
    #[must_use]
    pub fn descriptor(&self) -> usize {
        self.decided.descriptor as usize
    }

    /// What came of it. Of a request that another rule refused, what would have.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self.decided.decision {
            None if self.is_unasked() => Verdict::NotAsked,
            None => Verdict::Unlimited,
            Some(decision) if decision.is_allowed() && self.decided.soft => Verdict::SoftLimited,
            Some(decision) if decision.is_allowed() => Verdict::Allowed,
            Some(_) if self.refuses() && !self.summary.shadow => Verdict::Denied,
            Some(_) => Verdict::ShadowDenied,
        }
    }

    /// Its decision; `None` of a rule that has no limit, that another one replaces, or that was [not asked](Verdict::NotAsked). Of a request that another rule refused, it
    /// says what this one would have decided.
    #[must_use]
    pub fn decision(&self) -> Option<&'a Decision> {
        self.decided.decision.as_ref()
    }

    /// Who decided, of a rule that processes share; `None` of others, and of one that was not asked.
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn decided_by(&self) -> Option<crate::edge::redis::DecidedBy> {
        self.decided.by.map(DecidedWhere::decided_by)
    }

    /// Whether a client can be told its figures: not if the server could not be asked, so that nobody decided, nor if it was admitted
    /// by the part that this process holds.
    #[cfg(feature = "tower")]
    pub(crate) fn knows_remaining(&self) -> bool {
        let is_denied = self.decided.decision.is_some_and(|decision| decision.is_denied());
        self.decided.by.is_none_or(|by| by.knows_remaining() || (is_denied && !by.is_undecided()))
    }

    fn is_unasked(&self) -> bool {
        matches!(self.active.counter, Counter::Shared(_)) && self.decided.part != Part::Replaced
    }

    /// The units that would be admitted now; `u64::MAX` without a limit, 0 of a rule that only reports and would refuse, and of one
    /// that was not asked. After a refused cost above 1 some may be left, where [`Status::remaining`] says 0.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        match &self.decided.decision {
            None if self.is_unasked() => 0,
            None => u64::MAX,
            Some(decision) if decision.is_denied() && !self.refuses() => 0,
            Some(decision) => decision.remaining(),
        }
    }

    /// What could pass from full: the burst, or the limit of windows; `u64::MAX` without a limit.
    #[must_use]
    pub fn quota(&self) -> u64 {
        self.decided.decision.map_or(self.active.quota, |decision| decision.limit())
    }

    /// The time in which so much passes: the period of windows.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.active.window
    }

    /// Whether it could have refused the request: it does not only report, and no other rule replaces it.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        self.decided.part.refuses() && !self.summary.shadow
    }

    /// Whether it is a limit that the [request brought along](crate::rules::Descriptor::limit).
    #[must_use]
    pub fn is_of_request(&self) -> bool {
        overrides::is_index(self.decided.rule)
    }

    fn refuses(&self) -> bool {
        self.is_over() && (self.decided.part != Part::Quota || self.summary.quotas_refuse)
    }

    /// Whether it is over its limit, and does not only report that.
    fn is_over(&self) -> bool {
        let is_denied = self.decided.decision.as_ref().is_some_and(Decision::is_denied);
        is_denied && self.decided.part.refuses()
    }

    fn code(&self) -> Code {
        if self.is_over() { Code::OverLimit } else { Code::Ok }
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

/// As Envoy's service answers for one descriptor of a request: of several limits on it by the strictest.
#[derive(Copy, Clone, Debug)]
pub struct Status<'a> {
    strictest: Option<Applied<'a>>,
}

impl<'a> Status<'a> {
    /// Whether it is over its limit. A rule that only reports never is; one with `quota_mode` is, even if another one with room lets
    /// the request through.
    #[must_use]
    pub fn code(&self) -> Code {
        self.strictest.map_or(Code::Ok, |limit| limit.code())
    }

    /// The limit that applies, if one does.
    #[must_use]
    pub fn limit(&self) -> Option<Applied<'a>> {
        self.strictest
    }

    /// What is left of it: 0 without a limit and of a rule that is over its limit, 4,294,967,295 of one that lets all through.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        let Some(limit) = self.strictest else { return 0 };
        match &limit.rule().limit {
            Limit::Unlimited => u32::MAX,
            _ if limit.decision().is_some_and(Decision::is_denied) => 0,
            _ => u32::try_from(limit.remaining()).unwrap_or(u32::MAX),
        }
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
