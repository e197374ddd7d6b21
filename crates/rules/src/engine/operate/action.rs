//! What operators do to keys: [`Rules::operate`].
//!
//! The rules are found by the search of a check. Each counter then changes by itself, in one exchange of its word, or by one
//! command to the server. So no action is a part of another one, and a check that races with an action comes before or after it.
//! A load that replaces a counter may miss what an action did to it, so the action is done again if the rules have changed. Only a
//! grant is not: it could count twice.

use std::collections::HashMap;
use std::time::Duration;

use tollgate::internals::{CheckTime, saturating_nanos};
use tollgate::{Clock, Decision};

use crate::counting::{MayWait, OperatorAction, Refusal, ready};
use crate::descriptor::Descriptor;
use crate::engine::request::{
    CountedBy, Decided, DecidedList, HoldUse, Request, RequestCheck, RuleCheck, refund_in_use,
};
use crate::engine::state::{ActiveDomain, LocalCounter, Role, Rules, RulesAt, SharedCounter};

/// How often an action is repeated because loads replaced the rules.
const MOST_LOADS: usize = 4;

/// A rule that applies to a request, the state of the request's key, and what an operator's action did. Returned by
/// [`Rules::operate`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct KeyReport {
    /// The index of the request's descriptor.
    pub descriptor: usize,
    /// The rule's name.
    pub name: Box<str>,
    /// The rule's identity.
    pub identity: Box<str>,
    /// The file of the rule.
    pub file: Box<str>,
    /// The rule's line in the file, from 1.
    pub line: usize,
    /// The key under which the rule counts: see [`Explained::key`](super::Explained::key).
    pub key: Box<str>,
    /// The rule's role in the request, in one word: `enforced`, `quota`, `shadow` or `replaced`.
    pub role: &'static str,
    /// Whether other processes share the count.
    pub is_shared: bool,
    /// The state of the key after the action. `None` if the rule has no limit, if another rule replaces it, or if this process does
    /// not know it: its server did not answer, or its mode is `lease`.
    pub figures: Option<KeyFigures>,
    /// The units that the action gave back, or why the rule refuses it.
    pub result: Result<u64, Refusal>,
}

/// The state of a key.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct KeyFigures {
    /// The limit, or the burst.
    pub limit: u64,
    /// The used units, with those that requests hold. It may exceed the limit.
    pub used: u64,
    /// The units left.
    pub remaining: u64,
    /// The time until all units are left.
    pub reset_after: Duration,
    /// The rest of the key's block, if it is in one.
    pub blocked_for: Option<Duration>,
    /// The units that requests hold; for a rule with `in_progress`, the requests.
    pub held: u64,
    /// When the first and the last of them end by themselves, from now.
    pub held_until: Option<(Duration, Duration)>,
}

impl<C: Clock> Rules<C> {
    /// Inspects or changes the keys of a request, for an operator: see [`OperatorAction`]. Acts on each rule that applies to the
    /// descriptors, or only on the `rule` with this name or identity, and returns a report for each of them. One rule can
    /// refuse what another one does. Returns `None` if the domain does not exist.
    ///
    /// No action changes a rule or another key. Stores whose keys share a state ([compact](tollgate::Compact) ones, with a small
    /// probability) share the action too. A check that races with an action comes before or after it. During a load, a check in
    /// progress may keep a debt that a reset forgets.
    ///
    /// Every caller can free the units of every key, so offer this only to callers that you trust. It does not wait: a rule
    /// with `store: redis` and an async client refuses; use [`Rules::operate_async`].
    ///
    /// # Complexity
    /// Same as [`Rules::check`]. Allocates.
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::{Descriptor, Rules, OperatorAction};
    ///
    /// let rules = Rules::from_yaml("
    /// domain: shop
    /// descriptors: [{ key: user, rate_limit: { unit: month, requests_per_unit: 1000 } }]
    /// ")?;
    /// let alice = [Descriptor::new(&[("user", "alice")])];
    /// assert!(rules.check_n("shop", &alice, 1_000).is_allowed());
    ///
    /// let reports = rules.operate("shop", &alice, None, OperatorAction::Grant(50)).expect("the domain exists");
    /// assert_eq!(reports[0].result, Ok(50));
    /// assert_eq!(reports[0].figures.map(|figures| (figures.used, figures.remaining)), Some((950, 50)));
    /// # Ok::<(), tollgate_rules::RulesError>(())
    /// ```
    pub fn operate(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        rule: Option<&str>,
        action: OperatorAction,
    ) -> Option<Vec<KeyReport>> {
        ready(self.operate_by(domain, descriptors, (rule, action), MayWait::No, None))
    }

    /// Does what [`Rules::operate`] does, and waits for the server of shared rules. There, an action changes the key for all
    /// processes: in the mode `atomic`; in the other modes, processes hold units, so the rule refuses.
    ///
    /// On a server, an action is a few commands. `Reset` and `Unblock` remove the key, so they also end a block that began a
    /// moment before. `Block` refuses a key that is in a block, and if the burst is
    /// one unit, the block takes at least the time in which that unit refills.
    ///
    /// # Panics
    /// As [`Rules::check_async`] does.
    ///
    /// # Cancellation
    /// If the future is dropped, some rules may have done the action.
    #[cfg(feature = "tokio")]
    pub async fn operate_async(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        rule: Option<&str>,
        action: OperatorAction,
    ) -> Option<Vec<KeyReport>> {
        self.operate_by(domain, descriptors, (rule, action), MayWait::Yes, None).await
    }

    async fn operate_by(
        &self,
        name: &str,
        descriptors: &[Descriptor<'_>],
        (rule, action): (Option<&str>, OperatorAction),
        wait: MayWait,
        at: Option<CheckTime>,
    ) -> Option<Vec<KeyReport>> {
        let mut reports = None;
        for _ in 0..MOST_LOADS {
            let rules = self.in_force.load();
            let Some(domain) = rules.domain(name) else { break };
            let when = at.unwrap_or_else(|| CheckTime::read(&self.clock));
            let mut decided = DecidedList::new();
            let mut found = RequestCheck::new(&mut decided);
            let request = Request { hold: HoldUse::Nothing, ..Request::of(descriptors, 0) };
            found.find((&rules, domain), &request, when.ns(), &self.hasher);
            let mut done = HashMap::new();
            let mut all = Vec::new();
            let mut place = 0;
            while let Some((check, decided)) = found.at(place) {
                place += 1;
                let its = &check.active.rule;
                if rule.is_some_and(|wanted| *wanted != *its.name && *wanted != *its.identity) {
                    continue;
                }
                // Several descriptors, or classes, may count by one key.
                let counter = (its.counter().to_owned(), check.key.as_str().to_owned());
                let result = match done.get(&counter) {
                    Some(result) => Result::clone(result),
                    None => apply(check, decided, domain, (action, wait), when).await,
                };
                done.insert(counter, result.clone());
                all.push(report(check, decided, domain, (result, wait), when).await);
            }
            reports = Some(all);
            // A load that has replaced a counter may have carried over what the action has changed.
            if self.in_force.counts_charge(&rules, || !action.can_repeat(), |_| false) {
                break;
            }
        }
        reports
    }
}

impl<C: Clock> RulesAt<'_, C> {
    /// [`Rules::operate`] at this time.
    pub fn operate(
        self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        rule: Option<&str>,
        action: OperatorAction,
    ) -> Option<Vec<KeyReport>> {
        let at = Some(CheckTime::given(self.now));
        ready(self.rules.operate_by(domain, descriptors, (rule, action), MayWait::No, at))
    }
}

/// Does what the operator wants. Returns the units that were given back.
async fn apply(
    check: &RuleCheck<'_>,
    decided: &Decided,
    domain: &ActiveDomain,
    (action, wait): (OperatorAction, MayWait),
    when: CheckTime,
) -> Result<u64, Refusal> {
    match check.counted {
        _ if action == OperatorAction::Inspect => Ok(0),
        _ if decided.role == Role::Replaced => Err(Refusal::Replaced),
        CountedBy::Local { counter, .. } => apply_here(check, counter, domain, action, when),
        CountedBy::Shared(SharedCounter { whole, parameters, .. }) => {
            let block = parameters.block().ok_or(Refusal::HasNoBlock);
            match action {
                OperatorAction::Block(length) => Refusal::of_length(length, block?.longest())?,
                OperatorAction::Unblock => {
                    block?;
                }
                _ => {}
            }
            let done = whole.operate(check.key.as_str(), action, wait).get(wait).await;
            done.unwrap_or(Err(Refusal::CannotWait))
        }
        CountedBy::Book(_) => Err(Refusal::InProgress),
        CountedBy::Nothing | CountedBy::Blocked(_) => Err(Refusal::CountsNothing),
    }
}

/// [`apply`] on a counter of this process.
fn apply_here(
    check: &RuleCheck<'_>,
    counter: &LocalCounter,
    domain: &ActiveDomain,
    action: OperatorAction,
    when: CheckTime,
) -> Result<u64, Refusal> {
    let (key, generation) = (check.key.as_str(), &counter.generation);
    let is_block = generation.peek(key, when, 1).is_block();
    let (holds, held) = (check.active.rule.hold.is_some(), check.held_units(domain));
    let give_back = |units| match counter.can_refund {
        true => Ok(refund_in_use(counter, key, units, held, when)),
        false => Err(Refusal::CannotGiveBack),
    };
    match action {
        OperatorAction::Inspect => Ok(0),
        OperatorAction::Grant(_) if is_block => Err(Refusal::InBlock),
        OperatorAction::Grant(0) => give_back(0),
        OperatorAction::Grant(units) => {
            let mark = denial_mark(counter, &generation.peek(key, when, 0));
            give_back(units.saturating_add(mark)).map(|back| back.saturating_sub(mark))
        }
        OperatorAction::Block(length) => {
            Refusal::of_length(length, counter.parameters.block().ok_or(Refusal::HasNoBlock)?.longest())?;
            let is_done = generation.block_for(key, when, saturating_nanos(length));
            if is_done { Ok(0) } else { Err(Refusal::NoRoom) }
        }
        OperatorAction::Unblock if counter.parameters.block().is_none() => Err(Refusal::HasNoBlock),
        OperatorAction::Unblock if !is_block => Ok(0),
        // The end of a hold gives its units back. If they were forgotten before, it would give back those of others.
        OperatorAction::Reset if holds && !is_block => give_back(u64::MAX),
        OperatorAction::Reset | OperatorAction::Unblock if holds && held > 0 => Err(Refusal::HoldsInBlock),
        OperatorAction::Reset | OperatorAction::Unblock => {
            let used = used(counter, &generation.peek(key, when, 0), is_block);
            match generation.forget(key, when) {
                true => Ok(used),
                false => give_back(u64::MAX).map_err(|_| Refusal::CannotForget),
            }
        }
    }
}

/// Returns the used units. In a block, these are all.
fn used(counter: &LocalCounter, now: &Decision, is_block: bool) -> u64 {
    if is_block { now.limit() } else { now.owed() - denial_mark(counter, now) }
}

/// Returns the units above the limit. A rule that counts denied requests uses one to mark that it has denied a request.
fn denial_mark(counter: &LocalCounter, now: &Decision) -> u64 {
    if counter.parameters.counts_denied() { now.owed().saturating_sub(counter.parameters.most) } else { 0 }
}

/// Reports on a rule after an action.
async fn report(
    check: &RuleCheck<'_>,
    decided: &Decided,
    domain: &ActiveDomain,
    (result, wait): (Result<u64, Refusal>, MayWait),
    when: CheckTime,
) -> KeyReport {
    let rule = &check.active.rule;
    let role = match decided.role {
        Role::Replaced => "replaced",
        Role::Shadow => "shadow",
        _ if domain.is_dry_run => "shadow",
        Role::Quota => "quota",
        Role::Enforced => "enforced",
    };
    let figures = match check.counted {
        _ if decided.role == Role::Replaced => None,
        CountedBy::Shared(shared) => {
            let known = shared.limiter.peek(check.key.as_str(), 1, wait).get(wait).await.flatten();
            let known = known.map(|known| known.decision());
            known.map(|known| KeyFigures::of(&known, known.limit().saturating_sub(known.remaining())))
        }
        _ => figures_here(check, domain, when),
    };
    KeyReport {
        descriptor: decided.descriptor as usize,
        name: rule.name.clone(),
        identity: rule.identity.clone(),
        file: domain.files.of(decided.rule as usize).into(),
        line: rule.line,
        key: check.key.as_str().into(),
        role,
        is_shared: check.counted.is_shared(),
        figures,
        result,
    }
}

/// Returns the state of a key that this process counts.
fn figures_here(check: &RuleCheck<'_>, domain: &ActiveDomain, when: CheckTime) -> Option<KeyFigures> {
    let in_progress = check.is_in_progress();
    let book = domain.book.as_deref().filter(|_| check.active.rule.hold_life().is_some());
    let standing = book.map(|book| {
        let hash = check.hash_in(book, in_progress);
        check.release_ended(book, hash, when);
        book.standing(hash)
    });
    let standing = standing.unwrap_or_default();
    let held = u64::try_from(standing.units).unwrap_or(u64::MAX);
    let from_now = |end_ns: u64| Duration::from_nanos(end_ns.saturating_sub(when.ns()));
    let held_until = standing.ends_ns.map(|(first, last)| (from_now(first), from_now(last)));
    let figures = match check.counted {
        CountedBy::Local { counter, .. } => {
            let next = check.peeked(1, when)?;
            let now = counter.generation.peek(check.key.as_str(), when, 0);
            KeyFigures::of(&next, used(counter, &now, next.is_block()))
        }
        CountedBy::Book(counter) => {
            let remaining = counter.most.saturating_sub(held);
            let reset_after = held_until.map_or(Duration::ZERO, |(_, last)| last);
            KeyFigures { limit: counter.most, used: held, remaining, reset_after, ..KeyFigures::default() }
        }
        CountedBy::Blocked(_) => KeyFigures::default(),
        CountedBy::Nothing | CountedBy::Shared(_) => return None,
    };
    Some(KeyFigures { held, held_until, ..figures })
}

impl KeyFigures {
    /// `next` is the decision on one unit, without a charge.
    fn of(next: &Decision, used: u64) -> Self {
        Self {
            limit: next.limit(),
            used,
            remaining: next.remaining(),
            reset_after: next.reset_after(),
            blocked_for: next.retry_after().filter(|_| next.is_block()),
            ..Self::default()
        }
    }
}
