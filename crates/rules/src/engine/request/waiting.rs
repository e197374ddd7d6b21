//! Checks that wait for the server of shared rules.
//!
//! A request may have a deadline for all stages together. A limit whose server has not answered by then decides by its
//! `on_failure`. A task waits for the late answer and refunds what it charged. Refunds, and charges of denied requests,
//! also continue in a task after the deadline.
//!
//! Dropping the future refunds all charges. The request may be one that other limits were about to deny, and a client
//! that disconnects must not use up other clients' units. Charges in this process are refunded immediately. For the
//! servers, a task waits for the pending answers and then refunds what they charged.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};
use tollgate::holds::HoldId;
use tollgate::internals::CheckTime;
use tollgate::{Clock, Outcome, SharedDecision};
use tollgate_config::Charging;

use super::answer::{Answer, JointOutcome};
use super::check::{HoldUse, Peek, Request, RequestCheck};
use super::decided::{Decided, ShortList};
use super::refund::Refund;
use super::rule_check;
use super::rule_check::{CountedBy, RuleCheck};
use crate::counting::{MayWait, SharedLimiter, SharedReply};
use crate::descriptor::Descriptor;
use crate::engine::state::{Role, Rules};

impl<C: Clock> Rules<C> {
    /// Does what [`Rules::check`] does, and waits for the server of shared rules (`store: redis`). It asks all shared
    /// rules concurrently. If a limit in this process denies the request, it asks none of them, and their verdict is
    /// [`NotAsked`](super::Verdict::NotAsked).
    ///
    /// Rules in the modes `lease` and `write-back` wait only if this process holds no units and the limit may have
    /// some. Without shared rules, this is the same as [`Rules::check`]. With a
    /// `tollgate_redis::Blocking` client, it blocks the thread.
    ///
    /// # Panics
    /// In a tokio runtime without a timer (`enable_time`), if a rule is shared by an async client.
    ///
    /// # Cancellation
    /// If the future is dropped, all that it charged or may have charged is refunded. A task does this on the runtime
    /// that polled the future, as soon as the servers have answered. Some charges cannot be refunded and stay: units of
    /// `write-back`, stores that cannot refund, `charging: count-first`, and a lost answer.
    ///
    /// # Examples
    /// ```
    /// use tollgate_redis::InProcess;
    /// use tollgate_rules::{Config, Descriptor, Rules};
    ///
    /// const LIMITS: &str = "
    /// domain: edge
    /// tollgate: { store: redis, mode: atomic }
    /// descriptors:
    ///   - key: remote_address
    ///     rate_limit: { unit: hour, requests_per_unit: 3 }
    /// ";
    /// let server = InProcess::default(); // a `Client` in production
    /// let machine = || Rules::builder().shared(server.clone()).load([Config::from_yaml("limits.yaml", LIMITS)?]);
    /// let (one, other) = (machine()?, machine()?);
    /// let request = [Descriptor::new(&[("remote_address", "192.0.2.1")])];
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// assert!(one.check_async("edge", &request).await.is_allowed());
    /// assert!(one.check_async("edge", &request).await.is_allowed());
    /// assert!(other.check_async("edge", &request).await.is_allowed());
    /// assert!(other.check_async("edge", &request).await.is_denied());
    /// # });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn check_async(&self, domain: &str, descriptors: &[Descriptor<'_>]) -> Answer {
        self.check_n_async(domain, descriptors, 1).await
    }

    /// Does what [`Rules::check_n`] does, and waits like [`Rules::check_async`].
    pub async fn check_n_async(&self, name: &str, descriptors: &[Descriptor<'_>], hits: u64) -> Answer {
        self.check_by(name, descriptors, hits, None).await
    }

    /// Does what [`Rules::check_n_async`] does, and answers by the deadline. Use it if a caller stops waiting at a known
    /// time, as gateways do.
    ///
    /// The deadline bounds all stages of the request together, whatever the rules' time-outs are. A shared rule whose
    /// server has not answered by then decides by its `on_failure`, and
    /// [`Applied::decided_by`](super::Applied::decided_by) names the policy. If the late answer charges units, a task
    /// refunds them. Such a refund is not possible for units of `write-back`, which stay used.
    ///
    /// After the deadline, the future needs only the time that the thread needs. With a
    /// `tollgate_redis::Blocking` client, the deadline has no effect, because the thread blocks.
    ///
    /// # Panics
    /// Outside of a tokio runtime with a timer (`enable_time`), if a rule is shared.
    ///
    /// # Cancellation
    /// Same as [`Rules::check_async`].
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tollgate_redis::InProcess;
    /// use tollgate_rules::{Config, Descriptor, Rules};
    ///
    /// const LIMITS: &str = "
    /// domain: edge
    /// tollgate: { store: redis, mode: atomic }
    /// descriptors: [{ key: remote_address, rate_limit: { unit: hour, requests_per_unit: 3 } }]
    /// ";
    /// let rules = Rules::builder()
    ///     .shared(InProcess::default()) // a `Client` in production
    ///     .load([Config::from_yaml("limits.yaml", LIMITS)?])?;
    /// let request = [Descriptor::new(&[("remote_address", "192.0.2.1")])];
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let deadline = Instant::now() + Duration::from_millis(15);
    /// assert!(rules.check_until("edge", &request, 1, deadline).await.is_allowed());
    /// # });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn check_until(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        hits: u64,
        deadline: std::time::Instant,
    ) -> Answer {
        self.check_by(domain, descriptors, hits, Some(deadline.into())).await
    }

    async fn check_by(
        &self,
        name: &str,
        descriptors: &[Descriptor<'_>],
        hits: u64,
        deadline: Option<Instant>,
    ) -> Answer {
        let mut answer = self.find_domain(name);
        let Some(domain) = answer.domain() else { return answer };
        if !domain.has_shared {
            self.decide_request(&mut answer, &Request::of(descriptors, hits), CheckTime::read(&self.clock));
            return answer;
        }
        self.wait(&mut answer, Request::of(descriptors, hits), deadline).await;
        answer
    }

    /// Does what [`Rules::hold`] does, and waits like [`Rules::check_async`].
    pub async fn hold_async(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        units: u64,
        life: Duration,
    ) -> (Answer, Option<HoldId>) {
        self.hold_by(domain, descriptors, (units, life), None).await
    }

    /// Does what [`Rules::hold_async`] does, and answers by the deadline, as [`Rules::check_until`] does.
    pub async fn hold_until(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        units: u64,
        life: Duration,
        deadline: std::time::Instant,
    ) -> (Answer, Option<HoldId>) {
        self.hold_by(domain, descriptors, (units, life), Some(deadline.into())).await
    }

    async fn hold_by(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        (units, life): (u64, Duration),
        deadline: Option<Instant>,
    ) -> (Answer, Option<HoldId>) {
        let when = CheckTime::read(&self.clock);
        let mut answer = self.find_domain(domain);
        let Some(found) = answer.domain() else { return (answer, None) };
        let Some(id) = found.new_hold(descriptors, life, when) else {
            return (self.check_by(domain, descriptors, units, deadline).await, None);
        };
        let request = Request { hold: HoldUse::As(&id), ..Request::of(descriptors, units) };
        match answer.domain().is_some_and(|domain| domain.has_shared) {
            true => self.wait(&mut answer, request, deadline).await,
            false => self.decide_request(&mut answer, &request, when),
        }
        let is_held = answer.joint.outcome == Outcome::Allowed;
        (answer, is_held.then_some(id))
    }

    /// Does what [`Rules::peek`] does, and answers by the deadline, as [`Rules::check_until`] does. The server of a shared rule
    /// is asked only in a domain with `charging: count-denials`, as for every request that costs nothing; otherwise the answer has
    /// no figures of that rule.
    ///
    /// # Panics
    /// Same as [`Rules::check_until`].
    ///
    /// # Complexity
    /// That of [`Rules::check_until`]. Dropping the future changes nothing.
    pub async fn peek_until(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        deadline: std::time::Instant,
    ) -> Answer {
        let mut answer = self.find_domain(domain);
        let Some(found) = answer.domain() else { return answer };
        let has_shared = found.has_shared;
        let queries: ShortList<_> = descriptors.iter().map(|descriptor| descriptor.hits(0)).collect();
        let request = Request { hold: HoldUse::Nothing, ..Request::of(&queries, 0) };
        match has_shared {
            true => self.wait(&mut answer, request, Some(deadline.into())).await,
            false => self.decide_request(&mut answer, &request, CheckTime::read(&self.clock)),
        }
        answer
    }

    async fn wait(&self, answer: &mut Answer, request: Request<'_, '_>, deadline: Option<Instant>) {
        // Boxed, so that the future is small for services without shared rules.
        Box::pin(self.decide_waiting(answer, &request, deadline)).await;
    }

    /// Takes a request along the [route](super::route) of [`Rules::decide_request`], and waits for the servers of shared
    /// rules.
    async fn decide_waiting(
        &self,
        answer: &mut Answer,
        request: &Request<'_, '_>,
        deadline: Option<Instant>,
    ) {
        loop {
            let Answer { rules, domain, joint, decided } = &mut *answer;
            let Some(domain) = domain.and_then(|index| rules.domain_at(index)) else { return };
            *joint = JointOutcome::begin(domain);
            let mut waiting = Waiting::new(&self.clock, decided, deadline);
            let now = waiting.now();
            if !self.find(&mut waiting.check, (rules, domain), request, joint, now) {
                return waiting.keep();
            }
            let start = if waiting.check.has_shared { None } else { domain.timer.start() };
            joint.outcome = waiting.decide(domain.charging).await;
            domain.timer.stop(start);
            if !self.is_outdated(&waiting.check, rules, domain) {
                waiting.keep();
                if domain.charging == Charging::CountDenials && waiting.check.has_shared {
                    waiting.count_denials().await;
                }
                let now = waiting.now();
                return self.conclude(&mut waiting.check, domain, request, joint, now);
            }
            waiting.refund().await;
            let next = self.find_domain(&domain.name);
            drop(waiting);
            *answer = next;
        }
    }

    /// Gives the servers what this process holds: units of rules with the mode `lease` go back, and units that rules with
    /// `write-back` have admitted are posted. Call it before the process ends, after the last check. A later check finds
    /// no held units. With a `tollgate_redis::Blocking` client, it does nothing.
    ///
    /// It waits for the servers, so set a timeout.
    ///
    /// # Examples
    /// ```
    /// use tollgate_redis::InProcess;
    /// use tollgate_rules::{Config, Rules};
    ///
    /// let limits = "{ domain: d, tollgate: { store: redis }, descriptors: [ { key: a, rate_limit: { unit: day, requests_per_unit: 9 } } ] }";
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let rules = Rules::builder().shared(InProcess::default()).load([Config::from_yaml("limits.yaml", limits)?])?;
    /// // The server has stopped. Before the process ends:
    /// rules.close().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn close(&self) {
        let mut all: Vec<_> = self.shared_limiters().iter().map(|limiter| limiter.close()).collect();
        until_all(&mut all, SharedReply::poll_ready).await;
    }

    /// Does what [`Rules::refund`] does, and waits for the server of shared rules. If the future is dropped after its
    /// first poll, the refunds continue in tasks.
    pub async fn refund_async(&self, descriptors: &[Descriptor<'_>], answer: &Answer) {
        let when = CheckTime::read(&self.clock);
        let mut calls: ShortList<SharedCall> = ShortList::new();
        for Refund { counted, key, decided } in
            self.refunds(descriptors, answer, CheckTime::read(&self.clock))
        {
            match (counted, decided.shared()) {
                (CountedBy::Shared(shared), Some(charge)) => {
                    calls.push(SharedCall::refunding(&shared.limiter, key.as_str(), charge));
                }
                _ => rule_check::refund(counted, key.as_str(), decided, 0, when),
            }
        }
        until_all(&mut calls, SharedCall::poll_ready).await;
    }
}

/// A request that asks all shared rules of a step concurrently. If it is dropped before it [keeps](Self::keep) the charges,
/// it refunds them.
struct Waiting<'r, C: Clock> {
    check: RequestCheck<'r>,
    clock: &'r C,
    /// The calls of shared rules.
    calls: ShortList<RuleCall>,
    /// When the answer is due.
    deadline: Option<Instant>,
    /// Whether the decision is final.
    is_over: bool,
}

/// The call of the rule at an index.
struct RuleCall {
    place: usize,
    call: SharedCall,
}

impl RuleCall {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> bool {
        self.call.poll_ready(context)
    }
}

impl<'r, C: Clock> Waiting<'r, C> {
    fn new(clock: &'r C, decided: &'r mut Vec<Decided>, deadline: Option<Instant>) -> Self {
        Self { check: RequestCheck::new(decided), clock, calls: ShortList::new(), deadline, is_over: false }
    }

    /// The time of the next step.
    fn now(&self) -> CheckTime {
        CheckTime::read(self.clock)
    }

    /// Keeps all charges: the decision is final.
    fn keep(&mut self) {
        self.is_over = true;
        self.keep_calls();
    }

    fn keep_calls(&mut self) {
        self.calls.drain(..).for_each(|kept| kept.call.keep());
    }

    /// Takes the steps of [`RequestCheck::decide`], and waits for the servers between them.
    async fn decide(&mut self, charging: Charging) -> Outcome {
        if !self.check.has_shared {
            return self.check.decide(charging, self.now());
        }
        if charging == Charging::CountFirst {
            self.ask(|_, role| role != Role::Replaced).await;
            return self.check.decide(charging, self.now());
        }
        let admitted = self.all_or_nothing().await;
        self.check.settle(charging, admitted, self.now())
    }

    async fn all_or_nothing(&mut self) -> bool {
        let several = self.check.has_several();
        let admitted = (!several || self.peek().await) && self.charge().await;
        if several && !admitted && self.check.is_charged() {
            self.refund().await;
            self.check.peek_again(self.now());
        }
        if admitted {
            self.ask(|_, role| role == Role::Shadow).await;
        }
        admitted
    }

    /// Peeks at the rules that can deny, as far as a peek is useful. Returns whether none of them denies.
    async fn peek(&mut self) -> bool {
        let now = self.now();
        if !self.check.peek_at_others(now) {
            return false;
        }
        self.peek_at_servers().await;
        self.check.may_continue()
    }

    /// Charges the rules that can deny, until one does. Returns whether none of them denies.
    async fn charge(&mut self) -> bool {
        self.ask(|check, role| role.can_deny() && check.counted.can_refund()).await;
        if self.check.outcome() == Outcome::Allowed {
            self.ask(|_, role| role.can_deny()).await;
        }
        let now = self.now();
        self.check.outcome() == Outcome::Allowed && self.check.charge_all(now)
    }

    /// Peeks at the shared rules that [`RequestCheck::peeks`] returns, and records the answers.
    async fn peek_at_servers(&mut self) {
        let check = &mut self.check;
        let peeks = check.peeks();
        let mut all: ShortList<_> = peeks
            .into_iter()
            .filter_map(|Peek { place, cost }| {
                let check = check.rules.get(place)?;
                let CountedBy::Shared(shared) = check.counted else { return None };
                Some((place, shared.limiter.peek(check.key.as_str(), cost, MayWait::Yes)))
            })
            .collect();
        // After the deadline, no peek counts.
        let asked = until_all(&mut all, |(_, peek), context| peek.poll_ready(context));
        if by(self.deadline, asked).await.is_none() {
            return;
        }
        for (place, peeked) in all {
            if let (Some(Some(peeked)), Some((check, decided))) = (peeked.now(), check.at(place)) {
                check.record_peek(decided, peeked);
            }
        }
    }

    /// Charges the shared rules that `is_asked` selects by their parts, and records the answers.
    async fn ask(&mut self, is_asked: fn(&RuleCheck<'_>, Role) -> bool) {
        let (check, from) = (&mut self.check, self.calls.len());
        for (place, (check, decided)) in check.each(|_| true).enumerate() {
            if let CountedBy::Shared(shared) = check.counted
                && (check.cost > 0 || check.peeks_at_use())
                && decided.decision.is_none()
                && is_asked(check, decided.role)
            {
                let (key, reports_only) = (check.key.as_str(), shared.reports_only(decided.role));
                let call = SharedCall::new(&shared.limiter, key, check.cost, reports_only);
                self.calls.push(RuleCall { place, call });
            }
        }
        let Some(asked) = self.calls.get_mut(from..) else { return };
        by(self.deadline, until_all(asked, RuleCall::poll_ready)).await;
        for RuleCall { place, call } in asked {
            let Some((check, decided)) = check.at(*place) else { continue };
            let answer = call.answer().unwrap_or_else(|| call.decide_without_server(check.cost));
            check.record_answer(decided, answer);
        }
    }

    /// Refunds all charges.
    async fn refund(&mut self) {
        let now = self.now();
        self.check.refund_here(now);
        for RuleCall { place, call } in &mut self.calls {
            if let Some((check, _)) = self.check.at(*place) {
                check.effect.is_charged = false;
            }
            call.refund();
        }
        // The refunds that are not finished by the deadline continue in tasks.
        by(self.deadline, until_all(&mut self.calls, RuleCall::poll_ready)).await;
        self.calls.clear();
    }

    /// Charges the denied request to the rules that deny it.
    async fn count_denials(&mut self) {
        let mut calls: ShortList<SharedCall> = ShortList::new();
        for (check, shared) in self.check.shared_denials() {
            calls.push(SharedCall::count_denied(&shared.limiter, check.key.as_str(), check.cost));
            check.effect.is_denial_counted = true;
        }
        // The calls that are not finished by the deadline continue in tasks.
        by(self.deadline, until_all(&mut calls, SharedCall::poll_ready)).await;
    }
}

impl<C: Clock> Drop for Waiting<'_, C> {
    /// Refunds all charges that were not kept: the caller no longer waits.
    fn drop(&mut self) {
        // A rule that counts first also counts denied and dropped requests. The request is not over: if a load has replaced
        // the rule, it begins again, perhaps with rules that refund.
        if self.is_over || self.check.counts_first() {
            return self.keep_calls();
        }
        let now = self.now();
        self.check.refund_here(now);
        // The calls refund themselves.
        self.calls.clear();
    }
}

/// Waits for a future, at most until the deadline. A future that is ready is used even after it.
async fn by<F: Future>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    match deadline {
        None => Some(future.await),
        Some(deadline) => timeout_at(deadline, future).await.ok(),
    }
}

/// Waits until all of them are ready. `poll_ready` returns whether one is, and may be called again after that.
async fn until_all<T>(all: &mut [T], mut poll_ready: impl FnMut(&mut T, &mut Context<'_>) -> bool) {
    poll_fn(|context| {
        let mut are_ready = true;
        for one in &mut *all {
            are_ready &= poll_ready(one, context);
        }
        if are_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// A call of one shared rule, to charge, to refund, or with a cost of 0 to query the units in use. If it is dropped before
/// it is [kept](Self::keep), a task waits for the answer and refunds the charge.
struct SharedCall {
    limiter: Arc<dyn SharedLimiter>,
    key: Arc<str>,
    runtime: Option<Handle>,
    stage: CallStage,
}

enum CallStage {
    Asked(SharedReply<SharedDecision>),
    Refunding(SharedReply<()>),
    Done,
}

impl SharedCall {
    fn new(limiter: &Arc<dyn SharedLimiter>, key: &str, cost: u64, reports_only: bool) -> Self {
        let asked = limiter.check(key, cost, reports_only, MayWait::Yes);
        Self::with(limiter, key, CallStage::Asked(asked))
    }

    /// A call that charges a denied request, and refunds nothing. If it is dropped, a task finishes it.
    fn count_denied(limiter: &Arc<dyn SharedLimiter>, key: &str, cost: u64) -> Self {
        let counted = limiter.count_denied(key, cost, MayWait::Yes);
        Self::with(limiter, key, CallStage::Refunding(counted))
    }

    /// A call that refunds a charge. If it is dropped, a task finishes it.
    fn refunding(limiter: &Arc<dyn SharedLimiter>, key: &str, charge: SharedDecision) -> Self {
        let mut call = Self::with(limiter, key, CallStage::Asked(SharedReply::Now(charge)));
        call.refund();
        call
    }

    fn with(limiter: &Arc<dyn SharedLimiter>, key: &str, stage: CallStage) -> Self {
        Self { limiter: Arc::clone(limiter), key: key.into(), runtime: Handle::try_current().ok(), stage }
    }

    /// Decides as if the server did not answer. If it answers later, a task refunds what it charged.
    fn decide_without_server(&mut self, cost: u64) -> SharedDecision {
        let answer = self.limiter.fallback(&self.key, cost);
        let answered = Self::with(&self.limiter, &self.key, CallStage::Asked(SharedReply::Now(answer)));
        drop(std::mem::replace(self, answered));
        answer
    }

    const fn answer(&self) -> Option<SharedDecision> {
        if let CallStage::Asked(SharedReply::Now(answer)) = self.stage { Some(answer) } else { None }
    }

    /// From here on, the call waits for the refund. If there is no answer yet, it waits for the answer first.
    fn refund(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, CallStage::Done) {
            CallStage::Asked(SharedReply::Now(answer)) if answer.decision().charged() == 0 => CallStage::Done,
            CallStage::Asked(asked) => {
                let (limiter, key) = (Arc::clone(&self.limiter), Arc::clone(&self.key));
                // A refund may block the thread, so it begins with the first poll.
                CallStage::Refunding(SharedReply::Later(Box::pin(async move {
                    if let Some(charge) = asked.get(MayWait::Yes).await
                        && charge.decision().charged() > 0
                    {
                        limiter.refund(&key, charge, MayWait::Yes).get(MayWait::Yes).await;
                    }
                })))
            }
            other => other,
        };
    }

    /// Keeps the charge.
    fn keep(mut self) {
        self.stage = CallStage::Done;
    }

    /// Returns whether there is nothing to wait for: see [`SharedReply::poll_ready`].
    fn poll_ready(&mut self, context: &mut Context<'_>) -> bool {
        match &mut self.stage {
            CallStage::Asked(asked) => asked.poll_ready(context),
            CallStage::Refunding(back) => back.poll_ready(context),
            CallStage::Done => true,
        }
    }
}

impl Drop for SharedCall {
    fn drop(&mut self) {
        self.refund();
        let CallStage::Refunding(SharedReply::Later(mut rest)) =
            std::mem::replace(&mut self.stage, CallStage::Done)
        else {
            return;
        };
        match &self.runtime {
            Some(runtime) => drop(runtime.spawn(rest)),
            // A future of the program's store may have panicked, and must not be polled again.
            None if std::thread::panicking() => {}
            // The part that needs no waiting still happens.
            None => drop(rest.as_mut().poll(&mut Context::from_waker(Waker::noop()))),
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::super::decided::DecidedList;
    use std::error::Error;
    use std::sync::Mutex;

    use super::*;
    use crate::{Config, SharedRule, SharedStore};
    use tollgate::{DecidedBy, Decision, Timestamp};

    /// Counts one key, and admits every request.
    #[derive(Clone, Default, Debug)]
    struct Used(Arc<Mutex<u64>>);

    impl SharedStore for Used {
        fn limiter_for(
            &self,
            _: &SharedRule<'_>,
        ) -> Result<Arc<dyn SharedLimiter>, Box<dyn Error + Send + Sync>> {
            Ok(Arc::new(self.clone()))
        }
    }

    impl SharedLimiter for Used {
        fn check(&self, _: &str, cost: u64, _: bool, _: MayWait) -> SharedReply<SharedDecision> {
            *self.0.lock().unwrap() += cost;
            let allowed = Decision::made_elsewhere(Outcome::Allowed, cost, 9, Timestamp::from_secs(0));
            SharedReply::Now(SharedDecision::new(allowed, DecidedBy::Server))
        }

        fn can_refund(&self) -> bool {
            true
        }

        fn refund(&self, _: &str, charge: SharedDecision, _: MayWait) -> SharedReply<()> {
            *self.0.lock().unwrap() -= charge.decision().charged();
            SharedReply::Now(())
        }
    }

    /// Cause: a load replaced a rule that counts first while a request waited for the server. Symptom: the request began
    /// again with a rule that refunds, and its charge stayed although its future was dropped.
    #[tokio::test]
    async fn request_that_begins_again_with_other_charging_is_refunded() {
        let store = Used::default();
        let load = |charging: &str| {
            let text = format!(
                "{{ domain: d, tollgate: {{ store: redis, mode: atomic, charging: {charging} }}, descriptors: [ {{ key: a, rate_limit: {{ unit: day, requests_per_unit: 9 }} }} ] }}"
            );
            let config = Config::from_yaml("rules", &text).unwrap();
            Rules::builder().shared(store.clone()).load([config]).unwrap()
        };
        let (before, after) = (load("count-first"), load("all-or-nothing"));
        let descriptors = [Descriptor::new(&[("a", "x")])];
        for rules in [&before, &after] {
            let answer = rules.find_domain("d");
            let domain = answer.domain().unwrap();
            let mut decided = DecidedList::new();
            let mut waiting = Waiting::new(rules.clock(), &mut decided, None);
            let request = Request::of(&descriptors, 1);
            let now = waiting.now();
            waiting.check.find((&answer.rules, domain), &request, now.ns(), &rules.hasher);
            waiting.ask(|_, _| true).await;
            assert!(waiting.check.is_charged());
            // Here the caller stops waiting.
        }
        tokio::task::yield_now().await;
        assert_eq!(*store.0.lock().unwrap(), 1, "only the request that counts first stays charged");
    }
}
