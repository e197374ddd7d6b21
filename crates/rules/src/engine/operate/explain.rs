//! Explains what the rules do with a request: [`Rules::explain`].
//!
//! The rules are found and decided by the steps of the [route](super::super::request), with peeks instead of charges, also
//! under `charging: count-first`. The rules that do not apply come from the same search ([`Tree::missed`]).
//!
//! [`Tree::missed`]: tollgate_config::internals::Tree::missed

use std::collections::HashSet;
use std::fmt;

use tollgate::Clock;
use tollgate::internals::CheckTime;
use tollgate_config::internals::MILLION;
use tollgate_config::{FileEntry, Mismatch, Rule};

use crate::counting::MayWait;
use crate::descriptor::Descriptor;
use crate::engine::request::{Answer, Applied, CountedBy, Request, RequestCheck};
use crate::engine::state::{ActiveDomain, DomainId, Role, Rules, RulesAt};

/// The number of rules that are listed for each descriptor although they do not apply.
const MOST_MISSED: usize = 20;

/// What the rules would do with a request, and why. Returned by [`Rules::explain`].
///
/// # Examples
/// ```
/// use tollgate_rules::{Descriptor, Reason, Rules};
///
/// let rules = Rules::from_yaml("
/// domain: edge
/// descriptors:
///   - key: remote_address
///     rate_limit: { unit: second, requests_per_unit: 10 }
///   - key: remote_address
///     value: 198.51.100.20
///     rate_limit: { unit: second, requests_per_unit: 99 }
/// ")?;
/// let explanation = rules.explain("edge", &[Descriptor::new(&[("remote_address", "192.0.2.1")])], 11);
/// assert!(explanation.answer().is_never(), "the rule never admits 11 units at once");
///
/// let [own, other] = explanation.rules().collect::<Vec<_>>()[..] else { panic!() };
/// assert_eq!((own.reason(), own.key()), (Reason::Enforced, Some("192.0.2.1")));
/// assert_eq!(other.reason().to_string(), "the value of entry 1 is not \"198.51.100.20\"");
/// # Ok::<(), tollgate_rules::RulesError>(())
/// ```
pub struct Explanation {
    answer: Answer,
    listed: Vec<Listed>,
    rest: usize,
}

/// A rule of an explanation.
#[derive(Debug)]
struct Listed {
    descriptor: u32,
    rule: u32,
    cause: Cause,
}

/// Why a rule applies or not.
#[derive(Debug)]
enum Cause {
    /// It applies. `place` is its index among the rules of the answer.
    Applies {
        place: usize,
        key: Box<str>,
        replaced_by: Option<u32>,
    },
    Misses(Mismatch<u32>),
    /// The request sets its own limit.
    RequestLimit,
}

/// Why a rule applies to a request, or why it does not. [`Display`](fmt::Display) writes it for people.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reason<'a> {
    /// The rule applies, and can deny the request.
    Enforced,
    /// The rule applies, and denies the request only if all such rules do: `quota_mode`.
    Quota,
    /// The rule applies, and is enforced for a share of its keys: `enforced`.
    Share {
        /// The number of keys in a million.
        per_million: u32,
        /// Whether this key is one of them. If not, the rule only reports.
        is_in: bool,
    },
    /// The rule applies, but only reports: `shadow_mode`.
    Shadow,
    /// The rule applies, but all rules of the domain only report.
    DryRun,
    /// Another rule, with this name, switches the rule off for the request: `replaces`.
    ReplacedBy(&'a str),
    /// The request sets its own limit, which takes precedence.
    RequestLimit,
    /// The rule's keys, values or tier are not those of the request.
    Misses(Mismatch<FileEntry<'a>>),
}

impl Reason<'_> {
    /// Whether the rule applies. A rule that another one replaces does not.
    #[must_use]
    pub const fn applies(&self) -> bool {
        matches!(self, Self::Enforced | Self::Quota | Self::Share { .. } | Self::Shadow | Self::DryRun)
    }

    /// Returns the reason in one word, which stays the same in later versions.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Quota => "quota",
            Self::Share { .. } => "share",
            Self::Shadow => "shadow",
            Self::DryRun => "dry-run",
            Self::ReplacedBy(_) => "replaced",
            Self::RequestLimit => "request-limit",
            Self::Misses(why) => why.name(),
        }
    }
}

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Enforced => f.write_str("enforced"),
            Self::Quota => f.write_str("quota_mode: denies only if all quotas of the request are used"),
            Self::Share { per_million, is_in } => {
                let (percent, rest) = (per_million / 10_000, per_million % 10_000);
                let fraction = format!(".{rest:04}");
                let fraction = if rest == 0 { "" } else { fraction.trim_end_matches('0') };
                let which = if is_in { "is one of them" } else { "is not: only reports" };
                write!(f, "enforced for {percent}{fraction} % of keys, and this key {which}")
            }
            Self::Shadow => f.write_str("shadow_mode: only reports"),
            Self::DryRun => f.write_str("the domain is a dry run: only reports"),
            Self::ReplacedBy(name) => write!(f, "replaced by {name:?}"),
            Self::RequestLimit => f.write_str("the request sets its own limit"),
            Self::Misses(why) => write!(f, "{why}"),
        }
    }
}

/// A rule in an [`Explanation`].
#[derive(Copy, Clone)]
pub struct Explained<'a> {
    explanation: &'a Explanation,
    listed: &'a Listed,
    rule: &'a Rule,
}

impl<'a> Explained<'a> {
    /// Returns the rule.
    #[must_use]
    pub const fn rule(&self) -> &'a Rule {
        self.rule
    }

    /// Returns the index of the request's descriptor.
    #[must_use]
    pub const fn descriptor(&self) -> usize {
        self.listed.descriptor as usize
    }

    /// Returns the index of the rule in its domain, as in [`Domain::rules`](crate::Domain::rules).
    #[must_use]
    pub const fn index(&self) -> usize {
        self.listed.rule as usize
    }

    /// Returns the key under which the rule counts the request. It is empty if all requests share one counter. Values of
    /// several entries are joined, each with its length before it. With `prefixes`, the last value is the prefix. Returns
    /// `None` if the rule does not apply.
    #[must_use]
    pub fn key(&self) -> Option<&'a str> {
        match &self.listed.cause {
            Cause::Applies { key, .. } => Some(key),
            Cause::Misses(_) | Cause::RequestLimit => None,
        }
    }

    /// Returns the rule's decision and its figures. Returns `None` if the rule does not apply.
    #[must_use]
    pub fn applied(&self) -> Option<Applied<'a>> {
        match self.listed.cause {
            Cause::Applies { place, .. } => self.explanation.answer.limit_at(place),
            Cause::Misses(_) | Cause::RequestLimit => None,
        }
    }

    /// Returns why the rule applies, or why it does not.
    #[must_use]
    pub fn reason(&self) -> Reason<'a> {
        let Explanation { answer, .. } = self.explanation;
        match &self.listed.cause {
            Cause::RequestLimit => Reason::RequestLimit,
            Cause::Misses(why) => {
                let entry = |node| answer.domain().map(|domain| domain.tree().file_entry(node));
                Reason::Misses(why.map(|node| entry(node).unwrap_or_default()))
            }
            Cause::Applies { place, replaced_by, .. } => {
                let by = replaced_by.and_then(|by| answer.domain()?.rule(by));
                if let Some(by) = by {
                    return Reason::ReplacedBy(&by.rule.name);
                }
                self.role(answer.limit_at(*place).map(|applied| applied.decided.role))
            }
        }
    }

    /// Returns the reason for a rule that applies.
    fn role(&self, role: Option<Role>) -> Reason<'a> {
        let per_million = self.rule.enforced_per_million;
        match role {
            _ if self.rule.shadow => Reason::Shadow,
            _ if self.explanation.answer.joint.shadow => Reason::DryRun,
            _ if per_million < MILLION => {
                Reason::Share { per_million, is_in: role.is_some_and(Role::can_deny) }
            }
            Some(Role::Quota) => Reason::Quota,
            _ => Reason::Enforced,
        }
    }
}

impl fmt::Debug for Explained<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Explained")
            .field("name", &self.rule.name)
            .field("reason", &self.reason())
            .field("applied", &self.applied())
            .finish_non_exhaustive()
    }
}

impl Explanation {
    /// Returns the answer that a check would give now. Nothing was charged, so its remaining units are those before the
    /// request.
    #[must_use]
    pub const fn answer(&self) -> &Answer {
        &self.answer
    }

    /// Returns the rules that apply, and those that fail at the last step of the search, by descriptor.
    pub fn rules(&self) -> impl Iterator<Item = Explained<'_>> {
        let domain = self.answer.domain();
        self.listed.iter().filter_map(move |listed| {
            Some(Explained { explanation: self, listed, rule: &domain?.rule(listed.rule)?.rule })
        })
    }

    /// Returns the number of the domain's other rules, which do not apply.
    #[must_use]
    pub const fn others(&self) -> usize {
        self.rest
    }
}

impl fmt::Debug for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Explanation")
            .field("answer", &self.answer)
            .field("rules", &self.rules().collect::<Vec<_>>())
            .field("others", &self.rest)
            .finish()
    }
}

impl<C: Clock> Rules<C> {
    /// Explains what [`Rules::check_n`] would do with a request now: which rules apply and why others do not, the key and
    /// the figures of each counter, and the answer. Charges and counts nothing. As for a peek, the rules that apply have
    /// [matched](Rules::unmatched).
    ///
    /// Lists all rules that apply. For each descriptor, it also lists up to 20 rules that fail at the last step of the
    /// search, because those are the rules that the caller may have meant.
    ///
    /// A rule with `store: redis` is not asked, except in the mode `write-back`. An explanation starts no
    /// [block](tollgate::Blocked), so a check that starts one has a longer wait.
    ///
    /// # Complexity
    /// O(rules of the domain). It is meant for people and tests, and not for each request.
    #[must_use]
    pub fn explain(&self, domain: &str, descriptors: &[Descriptor<'_>], cost: u64) -> Explanation {
        self.explain_at(domain, descriptors, cost, CheckTime::read(&self.clock))
    }

    fn explain_at(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        hits: u64,
        when: CheckTime,
    ) -> Explanation {
        let rules = self.in_force.load();
        let index = rules.domain(domain).map(|domain| domain.index);
        let mut answer = self.undecided(rules, index);
        let Answer { rules, joint, decided, .. } = &mut answer;
        let (mut listed, mut rest) = (Vec::new(), 0);
        if let Some(domain) = index.and_then(|index| rules.domain_at(index)) {
            let mut check = RequestCheck::new(decided);
            check.find((&**rules, domain), &Request::of(descriptors, hits), when.ns(), &self.hasher);
            check.peek_all(domain.charging, when);
            peek_at_shared(&mut check);
            joint.quota_rules_deny = check.all_quota_rules_deny();
            joint.shadow = domain.is_dry_run;
            joint.outcome = match check.is_empty() {
                true => self.outcome_without_rule(rules, DomainId::Index(domain.index), descriptors),
                false => check.outcome(),
            };
            listed = applying(&mut check);
            for (descriptor, place) in descriptors.iter().zip(0..) {
                listed.extend(missing(domain, descriptor, place));
            }
            // Stable: the rules that apply stay first.
            listed.sort_by_key(|one| one.descriptor);
            let all: HashSet<u32> = listed.iter().map(|one| one.rule).collect();
            rest = (0..).zip(&domain.rules).filter(|(rule, _)| !all.contains(rule)).count();
        }
        if answer.domain.is_none() {
            answer.joint.outcome =
                self.outcome_without_rule(&answer.rules, DomainId::Name(domain), descriptors);
        }
        Explanation { answer, listed, rest }
    }
}

impl<C: Clock> RulesAt<'_, C> {
    /// [`Rules::explain`] at this time.
    #[must_use]
    pub fn explain(self, domain: &str, descriptors: &[Descriptor<'_>], cost: u64) -> Explanation {
        self.rules.explain_at(domain, descriptors, cost, CheckTime::given(self.now))
    }
}

/// Peeks at the shared rules whose use this process knows. Their charges cannot be refunded.
fn peek_at_shared(check: &mut RequestCheck<'_>) {
    for (check, decided) in check.each(|role| role != Role::Replaced) {
        if let CountedBy::Shared(shared) = check.counted
            && !shared.limiter.can_refund()
            && let Some(Some(peeked)) = shared.limiter.peek(check.key.as_str(), check.cost, MayWait::No).now()
        {
            check.record_peek(decided, peeked);
        }
    }
}

/// Lists the rules that apply.
fn applying(check: &mut RequestCheck<'_>) -> Vec<Listed> {
    let replacing: Vec<_> =
        check.each(|_| true).map(|(check, decided)| (check.active, decided.rule)).collect();
    let by = |name: &str| {
        let mut all = replacing.iter();
        all.find(|(active, _)| active.rule.replaces.iter().any(|one| **one == *name)).map(|(_, rule)| *rule)
    };
    let all = check.each(|_| true).enumerate().map(|(place, (check, decided))| {
        let replaced = decided.role == Role::Replaced;
        let replaced_by = replaced.then(|| by(&check.active.rule.name)).flatten();
        let cause = Cause::Applies { place, key: check.key.as_str().into(), replaced_by };
        Listed { descriptor: decided.descriptor, rule: decided.rule, cause }
    });
    all.collect()
}

/// Lists rules that do not apply to a descriptor.
fn missing(domain: &ActiveDomain, descriptor: &Descriptor<'_>, place: u32) -> Vec<Listed> {
    let found = descriptor.limit.map(|_| domain.search(descriptor));
    let overridden = found.into_iter().flat_map(|found| domain.rules_of(found));
    let overridden = overridden.map(|(rule, _)| (rule, Cause::RequestLimit));
    let missed = domain.tree().missed(descriptor.entries(), descriptor.tier);
    let missed = missed.into_iter().flat_map(|missed| {
        let rules = domain.rules_of(missed.rules);
        rules.map(move |(rule, _)| (rule, Cause::Misses(missed.why)))
    });
    let all = overridden.chain(missed).take(MOST_MISSED);
    all.map(|(rule, cause)| Listed { descriptor: place, rule, cause }).collect()
}
