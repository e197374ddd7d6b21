//! The route of one request: find its rules, charge them, settle, report.
//!
//! If all rules of a request are plain, the steps are those of [`plain`](super::plain). Most requests are like this. Others
//! have these steps:
//!
//! ```text
//! find    the rules of all descriptors: RequestCheck::find
//! charge  peek at this process's limits, if several can deny ── one denies ──► denied; no server is asked
//!           └─ ask the shared limits ── one denies ──► the others are refunded
//!               └─ charge this process's limits ── one denies because another request came first ──► all are refunded
//!                   └─ charge the limits that only report
//! settle  a load has replaced a charged counter ──► refund, and find the rules again
//! report  the outcome of each rule: RequestCheck::finish. Rules that deny the request block its keys: RuleCheck::block
//! ```
//! With `charging: count-denials`, a denied request is then charged to the limits that deny it: see
//! [`count_denials`](super::count_denials). With `charging: count-first`, the request is counted at all limits and decided
//! afterwards.
//!
//! [`Rules::decide_request`] waits for no server. [`waiting`](super::waiting) takes the same steps, and waits between them.

use tollgate::internals::CheckTime;
use tollgate::internals::Loaded;
use tollgate::{Clock, Outcome, Timestamp};
use tollgate_config::Charging;
use tollgate_config::internals::FoundRules;

use super::answer::{Answer, JointOutcome};
use super::check::{Request, RequestCheck};
use super::decided::{Decided, DecidedList};
use super::plain;
use super::plain::{PlainCheck, PlainChecks, Room, Searched};
use super::report::Reporting;
use crate::descriptor::Descriptor;
use crate::engine::state::{ActiveDomain, ActiveRule, DomainId, Role, RuleSet, Rules, RulesAt, WithoutRule};
use crate::telemetry::request_without_rule;

/// Whether a request begins again with the rules in force, because a load has replaced the counters that it charged.
#[must_use]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Again {
    Yes,
    No,
}

/// How far a request came on the shortest route.
enum Attempt {
    Decided(Outcome),
    /// A load has replaced the counter that it charged. The charge was refunded.
    Outdated,
    /// It needs another route. If it has one descriptor, its rules were found.
    NotPlain(Option<FoundRules>),
}

impl<C: Clock> Rules<C> {
    /// Decides a request with these descriptors. Charges all rules that apply, or none.
    ///
    /// A request is admitted if its domain has no rules, or if no rule applies to its descriptors. Call
    /// [`Rules::require_domain`] once to make sure that the domain exists and that no reload removes it.
    ///
    /// # Shared rules
    /// With an async client, this method never waits. **A rule with `store: redis, mode: atomic` is then not asked**:
    /// it decides by its `on_failure`, as if the server did not answer, and its metrics count it so. Rules in the other
    /// modes decide from the units that this process holds. Use `check_async` for `atomic` rules; with a blocking
    /// client, this method waits for them. See [the guide](https://docs.rs/crate/tollgate/latest/source/docs/rules.md).
    ///
    /// # Complexity
    /// One search for each descriptor by its entries, and one check of a store for each rule that applies. The search
    /// takes constant time, except for wildcards that begin with `*`. Takes no lock. Never allocates for up to two rules that
    /// count by one value each, nor for up to 16 if their stores alone decide; the first answers of a thread allocate memory that
    /// later ones use again.
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn check(&self, domain: &str, descriptors: &[Descriptor<'_>]) -> Answer {
        self.decide_by_name(domain, descriptors, 1, CheckTime::read(&self.clock))
    }

    /// Does what [`Rules::check`] does for a request that costs `hits`, unless its descriptors set a cost. A cost of 0
    /// only peeks. (A server of Envoy's protocol must pass 1 if a request's `hits_addend` is 0, but 0 if a descriptor's
    /// `hits_addend` is 0.)
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn check_n(&self, domain: &str, descriptors: &[Descriptor<'_>], hits: u64) -> Answer {
        self.decide_by_name(domain, descriptors, hits, CheckTime::read(&self.clock))
    }

    /// Returns these rules at a time that the caller gives, to check requests and to replace rules.
    #[inline(always)]
    pub const fn at(&self, now: Timestamp) -> RulesAt<'_, C> {
        RulesAt { rules: self, now }
    }

    /// Decides a request without waiting. On the shortest route, the parts of the answer are variables until the end, because the
    /// compiler would copy a whole answer, and store a [`Request`] that this route does not need.
    #[inline(never)]
    fn decide_by_name(
        &self,
        name: &str,
        descriptors: &[Descriptor<'_>],
        hits: u64,
        when: CheckTime,
    ) -> Answer {
        let rules = self.in_force.load();
        let Some(domain) = rules.domain(name) else { return self.unknown_domain(rules, name) };
        let (joint, mut decided) = (JointOutcome::begin(domain), DecidedList::new());
        let attempt = self.attempt_plain((&rules, domain), (descriptors, hits), &mut decided, when);
        let domain = Some(domain.index);
        if let Attempt::Decided(outcome) = attempt {
            return Answer { rules, domain, joint: JointOutcome { outcome, ..joint }, decided };
        }
        let mut answer = Answer { rules, domain, joint, decided };
        self.decide_rest(&mut answer, &Request::of(descriptors, hits), attempt, when);
        answer
    }
}

impl<C: Clock> RulesAt<'_, C> {
    /// [`Rules::check`] at this time.
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn check(self, domain: &str, descriptors: &[Descriptor<'_>]) -> Answer {
        self.check_n(domain, descriptors, 1)
    }

    /// [`Rules::check_n`] at this time.
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn check_n(self, domain: &str, descriptors: &[Descriptor<'_>], hits: u64) -> Answer {
        self.rules.decide_by_name(domain, descriptors, hits, CheckTime::given(self.now))
    }
}

/// The rules in force, with the request's domain.
type Asked<'r> = (&'r Loaded<RuleSet>, &'r ActiveDomain);

/// What a request writes.
type Written<'w, 'r> = (&'w mut JointOutcome, &'r mut Vec<Decided>);

impl Answer {
    /// Returns what a request asks and writes. `None` if the domain has no rules.
    #[inline(always)]
    fn parts(&mut self) -> Option<(Asked<'_>, Written<'_, '_>)> {
        let Self { rules, domain, joint, decided } = self;
        let domain = domain.and_then(|index| rules.domain_at(index))?;
        Some(((rules, domain), (joint, decided)))
    }

    /// Does the same, and notes that a request asks the domain.
    #[inline(always)]
    fn begin(&mut self) -> Option<(Asked<'_>, Written<'_, '_>)> {
        let ((rules, domain), (joint, decided)) = self.parts()?;
        *joint = JointOutcome::begin(domain);
        Some(((rules, domain), (joint, decided)))
    }
}

impl<C: Clock> Rules<C> {
    /// Returns the answer of an admitted request to which no rule applies.
    #[inline(always)]
    pub(in crate::engine) fn undecided(&self, rules: Loaded<RuleSet>, domain: Option<u32>) -> Answer {
        Answer::new(rules, domain, self.options.shadow)
    }

    /// Returns the answer before any rule has decided, with the rules in force.
    pub(super) fn find_domain(&self, name: &str) -> Answer {
        let rules = self.in_force.load();
        match rules.domain(name).map(|domain| domain.index) {
            None => self.unknown_domain(rules, name),
            index => self.undecided(rules, index),
        }
    }

    /// Answers a request with a domain that has no rules.
    #[cold]
    #[inline(never)]
    fn unknown_domain(&self, rules: Loaded<RuleSet>, name: &str) -> Answer {
        self.reloads.unknown_domain();
        let mut answer = self.undecided(rules, None);
        answer.joint.outcome = self.decide_without_rule(&answer.rules, DomainId::Name(name), &[]);
        answer
    }

    /// Takes a request along the route, to the answer.
    #[inline(never)]
    pub(super) fn decide_request(&self, answer: &mut Answer, request: &Request<'_, '_>, when: CheckTime) {
        let Some((asked, (_, decided))) = answer.begin() else { return };
        let attempt = self.attempt_plain(asked, (request.descriptors, request.hits), decided, when);
        self.decide_rest(answer, request, attempt, when);
    }

    /// Continues the route after [`Rules::attempt_plain`].
    #[inline(never)]
    fn decide_rest(
        &self,
        answer: &mut Answer,
        request: &Request<'_, '_>,
        mut attempt: Attempt,
        when: CheckTime,
    ) {
        while let Some((asked, written)) = answer.parts() {
            let again = match attempt {
                Attempt::Decided(outcome) => {
                    written.0.outcome = outcome;
                    Again::No
                }
                Attempt::Outdated => Again::Yes,
                Attempt::NotPlain(found) => self.attempt_any(asked, request, found, written, when),
            };
            if again == Again::No {
                return;
            }
            attempt = self.begin_again(answer);
        }
    }

    /// Finds the rules that are in force now.
    #[cold]
    #[inline(never)]
    fn begin_again(&self, answer: &mut Answer) -> Attempt {
        if let Some(domain) = answer.domain() {
            let next = self.find_domain(&domain.name);
            *answer = next;
            let _ = answer.begin();
        }
        Attempt::NotPlain(None)
    }

    /// Decides a request if it has one descriptor, to which one plain rule applies. It needs no list.
    #[inline(always)]
    fn attempt_plain<'r>(
        &self,
        (rules, domain): Asked<'r>,
        (descriptors, hits): (&[Descriptor<'r>], u64),
        decided: &mut Vec<Decided>,
        when: CheckTime,
    ) -> Attempt {
        let [descriptor] = descriptors else { return Attempt::NotPlain(None) };
        let found = domain.search(descriptor);
        if let Some(active) = domain.only(found)
            && domain.has_plain
            && descriptor.limit.is_none()
            && let Some(check) =
                PlainCheck::new(domain, descriptor, active, descriptor.cost(hits), (None, when))
        {
            // It is empty. The compiler does not know that, and would compute the place of the next entry.
            decided.clear();
            decided.push(Decided::not_yet(found.numbers().start, 0, Role::Enforced));
            if let Some(decided) = decided.last_mut().map(std::array::from_mut) {
                if check.costs_nothing() {
                    let [decided] = decided;
                    return Attempt::Decided(plain::query(domain, check, decided, when));
                }
                let start = domain.timer.start();
                let outcome = check.decide(&mut decided[0], when, &self.hasher);
                domain.timer.stop(start);
                let taken = ([check], outcome);
                let settled = self.settle_plain((rules, domain), descriptors, taken, decided, when);
                return settled.map_or(Attempt::Outdated, Attempt::Decided);
            }
        }
        Attempt::NotPlain(Some(found))
    }

    /// Decides a request of any kind. If it has one descriptor, its rules were found.
    #[inline(always)]
    fn attempt_any<'r>(
        &self,
        asked: Asked<'r>,
        request: &Request<'_, 'r>,
        found: Option<FoundRules>,
        written: Written<'_, 'r>,
        when: CheckTime,
    ) -> Again {
        let domain = asked.1;
        let may_be_plain = domain.has_plain
            && found.is_none_or(|found| {
                // A plain rule may need room for its key.
                found.numbers().len() > 1 || domain.only(found).is_some_and(ActiveRule::is_plain)
            });
        match may_be_plain {
            true => self.attempt_several(asked, request, found, written, when),
            false => {
                self.decide_any(asked, &Request { searched: found.as_slice(), ..*request }, written, when)
            }
        }
    }

    /// Decides a request with rules of any number. The request is not copied, because a copy of what was just written waits.
    #[inline(always)]
    fn attempt_several<'r>(
        &self,
        (rules, domain): Asked<'r>,
        request: &Request<'_, 'r>,
        found: Option<FoundRules>,
        (joint, decided): Written<'_, 'r>,
        when: CheckTime,
    ) -> Again {
        let room = Room::default();
        let (mut checks, mut searched) = (PlainChecks::new(), Searched::new());
        let known = (found.as_slice(), &mut searched);
        if checks.find(domain, request, decided, known, (&room, when)) {
            let decided = decided.as_mut_slice();
            let start = domain.timer.start();
            let outcome = plain::decide(&mut checks, decided, when, (&self.hasher, &room));
            domain.timer.stop(start);
            let taken = (&*checks, outcome);
            let settled = self.settle_plain((rules, domain), request.descriptors, taken, decided, when);
            let Some(outcome) = settled else { return Again::Yes };
            joint.outcome = outcome;
            return Again::No;
        }
        decided.clear();
        let request = Request { searched: &searched, ..*request };
        self.decide_any((rules, domain), &request, (joint, decided), when)
    }

    /// Reports a request whose rules are all plain, and its outcome. The checks and the decisions are slices, or arrays of one.
    /// Returns `None` if it must begin again, because a load has replaced the counters that it charged.
    #[inline(always)]
    fn settle_plain<'r>(
        &self,
        (rules, domain): Asked<'_>,
        descriptors: &[Descriptor<'_>],
        (checks, outcome): (impl AsRef<[PlainCheck<'r>]> + Copy, Outcome),
        decided: &mut (impl AsRef<[Decided]> + AsMut<[Decided]> + ?Sized),
        when: CheckTime,
    ) -> Option<Outcome> {
        // The calls that are rare get copies, so that the checks themselves need no memory.
        if outcome != Outcome::Allowed {
            let (joint, checks) = (JointOutcome { outcome, ..JointOutcome::new(domain.is_dry_run) }, checks);
            let reporting = Reporting { domain, descriptors, joint, observers: &self.observers };
            plain::report_denied(checks.as_ref(), decided.as_mut(), &reporting);
        } else if self.is_plain_outdated(checks, &*decided, (rules, domain)) {
            let (checks, decided) = (checks, decided.as_ref());
            plain::refund(checks.as_ref(), decided, when);
            return None;
        } else {
            plain::report_admitted(checks.as_ref(), decided.as_ref());
        }
        Some(outcome)
    }

    /// Decides a request with rules of any kind.
    #[inline(never)]
    fn decide_any<'r>(
        &self,
        (rules, domain): Asked<'r>,
        request: &Request<'_, 'r>,
        (joint, decided): Written<'_, 'r>,
        when: CheckTime,
    ) -> Again {
        let mut check = RequestCheck::new(decided);
        if !self.find(&mut check, (rules, domain), request, joint, when) {
            return Again::No;
        }
        let start = domain.timer.start();
        joint.outcome = check.decide(domain.charging, when);
        domain.timer.stop(start);
        if self.is_outdated(&check, rules, domain) {
            check.refund(when);
            return Again::Yes;
        }
        if domain.charging == Charging::CountDenials && check.has_shared {
            check.count_shared_denials();
        }
        self.conclude(&mut check, domain, request, joint, when);
        Again::No
    }

    /// Finds the rules of a request. If none applies, decides the request and returns `false`.
    #[inline(always)]
    pub(super) fn find<'r>(
        &self,
        check: &mut RequestCheck<'r>,
        (rules, domain): Asked<'r>,
        request: &Request<'_, 'r>,
        joint: &mut JointOutcome,
        when: CheckTime,
    ) -> bool {
        check.find((&**rules, domain), request, when.ns(), &self.hasher);
        if check.is_empty() {
            let domain = DomainId::Index(domain.index);
            joint.outcome = self.decide_without_rule(rules, domain, request.descriptors);
        }
        !check.is_empty()
    }

    /// Settles holds, and reports what the rules have decided.
    #[inline(always)]
    pub(super) fn conclude(
        &self,
        check: &mut RequestCheck<'_>,
        domain: &ActiveDomain,
        request: &Request<'_, '_>,
        joint: &mut JointOutcome,
        when: CheckTime,
    ) {
        if check.has_holds() {
            self.finish_holds(check, domain, &mut joint.outcome, when);
        }
        joint.quota_rules_deny = check.all_quota_rules_deny();
        let reporting =
            Reporting { domain, descriptors: request.descriptors, joint: *joint, observers: &self.observers };
        joint.longest_other_wait = check.finish(&reporting, when);
    }

    /// Whether a check charged a counter that no longer counts. Either a load replaced the rules in the meantime, or a
    /// request was the first to set its own limit, which counts together with the charged rule.
    #[inline(always)]
    pub(super) fn is_outdated(
        &self,
        check: &RequestCheck<'_>,
        rules: &Loaded<RuleSet>,
        domain: &ActiveDomain,
    ) -> bool {
        let still_counts = |now: Option<&ActiveDomain>| check.still_counts(now);
        check.is_charged()
            && (!self.counts_charge(rules, domain, || check.is_open(), still_counts)
                || check.missed_new_override(domain))
    }

    /// Whether a charge to rules of a domain counts: see [`Published::counts_charge`]. `still_counts` decides it for the rules of
    /// the domain that are in force now.
    ///
    /// [`Published::counts_charge`]: tollgate::internals::migrate::Published::counts_charge
    #[inline(always)]
    pub(super) fn counts_charge(
        &self,
        rules: &RuleSet,
        domain: &ActiveDomain,
        is_open: impl FnOnce() -> bool,
        still_counts: impl FnOnce(Option<&ActiveDomain>) -> bool,
    ) -> bool {
        self.in_force.counts_charge(rules, is_open, |now| still_counts(now.domain(&domain.name)))
    }

    /// Decides a request to which no rule applies, and logs it.
    #[inline]
    pub(super) fn decide_without_rule(
        &self,
        rules: &RuleSet,
        domain: DomainId<'_>,
        descriptors: &[Descriptor<'_>],
    ) -> Outcome {
        match self.options.without_rule {
            WithoutRule::Admit => Outcome::Allowed,
            WithoutRule::Log | WithoutRule::Deny => self.decide_and_note(rules, domain, descriptors),
        }
    }

    #[cold]
    fn decide_and_note(
        &self,
        rules: &RuleSet,
        domain: DomainId<'_>,
        descriptors: &[Descriptor<'_>],
    ) -> Outcome {
        if !is_exempt(rules, domain, descriptors) {
            note(rules, domain, descriptors, self.options.without_rule == WithoutRule::Deny);
        }
        self.outcome_without_rule(rules, domain, descriptors)
    }

    /// Returns the outcome of a request to which no rule applies.
    #[cold]
    pub(in crate::engine) fn outcome_without_rule(
        &self,
        rules: &RuleSet,
        domain: DomainId<'_>,
        descriptors: &[Descriptor<'_>],
    ) -> Outcome {
        let denies = self.options.without_rule == WithoutRule::Deny;
        if denies && !is_exempt(rules, domain, descriptors) { Outcome::Never } else { Outcome::Allowed }
    }
}

/// The most descriptors of a request, and entries of each, that the log names.
const LOGGED: usize = 8;

/// Whether a descriptor without a limit exempts a request.
#[cold]
fn is_exempt(rules: &RuleSet, domain: DomainId<'_>, descriptors: &[Descriptor<'_>]) -> bool {
    let Some(domain) = rules.domain_of(domain) else { return false };
    descriptors.iter().any(|descriptor| domain.tree().exempts(descriptor.entries()))
}

/// Logs the first request of a domain to which no rule applies.
fn note(rules: &RuleSet, domain: DomainId<'_>, descriptors: &[Descriptor<'_>], is_denied: bool) {
    let active = rules.domain_of(domain);
    let noted = active.map_or(&rules.unknown_noted, |domain| &domain.without_rule_noted);
    if noted.set() {
        return;
    }
    let name = match (active, domain) {
        (Some(domain), _) => &domain.name,
        (None, DomainId::Name(name)) => name,
        (None, DomainId::Index(_)) => "",
    };
    let keys = |descriptor: &Descriptor<'_>| {
        let keys = descriptor.entries().iter().take(LOGGED).map(|(key, _)| *key);
        keys.collect::<Vec<_>>().join(".")
    };
    let keys = descriptors.iter().take(LOGGED).map(keys).collect::<Vec<_>>().join(", ");
    request_without_rule(name, &keys, is_denied);
}
