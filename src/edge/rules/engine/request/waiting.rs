//! Checks that wait for the server of shared rules.
//!
//! A request may have a deadline for all stages together. A limit whose server has not answered by then decides by its
//! `on_failure`. A task waits for the late answer and refunds what it charged. Refunds, and charges of denied requests,
//! also continue in a task after the deadline.
//!
//! Dropping the future refunds all charges. The request may be one that other limits were about to deny, and a client
//! that disconnects must not use up other clients' units. Charges in this process are refunded immediately. For the
//! servers, a task waits for the pending answers and then refunds what they charged.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::answer::Answer;
use super::check::{HoldUse, Peek, Request, RequestCheck};
use super::decided::Few;
use super::refund::Refund;
use super::route::Caller;
use super::rule_check;
use super::rule_check::{CountedBy, RuleCheck};
use crate::base::check_time::CheckTime;
use crate::base::clock::Clock;
use crate::base::decision::Outcome;
use crate::edge::rules::counting::{Denies, SharedDecision, SharedLimiter, Wait};
use crate::edge::rules::engine::state::{Counter, DomainId, Part, Rules};
use crate::edge::rules::matching::Descriptor;
use crate::store::HoldId;

impl<C: Clock> Rules<C> {
    /// Does what [`Rules::check`] does, and waits for the server of shared rules (`store: redis`). It asks all shared
    /// rules concurrently. If a limit in this process denies the request, it asks none of them, and their verdict is
    /// [`NotAsked`](super::Verdict::NotAsked).
    ///
    /// Rules in the modes `lease` and `write-back` wait only if this process holds no units and the limit may have
    /// some. Without shared rules, this is the same as [`Rules::check`]. With a
    /// [`Blocking`](crate::edge::redis::Blocking) client, it blocks the thread.
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
    /// use tollgate::redis::InProcess;
    /// use tollgate::rules::{Config, Descriptor, Rules};
    ///
    /// const LIMITS: &str = "
    /// domain: edge
    /// tollgate: { store: redis, mode: atomic }
    /// descriptors:
    ///   - key: remote_address
    ///     rate_limit: { unit: hour, requests_per_unit: 3 }
    /// ";
    /// let server = InProcess::default(); // a `Client` in production
    /// let machine = || Rules::builder().redis(server.clone()).load([Config::from_yaml("limits.yaml", LIMITS)?]);
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
    /// [`Blocking`](crate::edge::redis::Blocking) client, the deadline has no effect, because the thread blocks.
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
    /// use tollgate::redis::InProcess;
    /// use tollgate::rules::{Config, Descriptor, Rules};
    ///
    /// const LIMITS: &str = "
    /// domain: edge
    /// tollgate: { store: redis, mode: atomic }
    /// descriptors: [{ key: remote_address, rate_limit: { unit: hour, requests_per_unit: 3 } }]
    /// ";
    /// let rules = Rules::builder()
    ///     .redis(InProcess::default()) // a `Client` in production
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
            let domain = DomainId::Index(domain.index);
            return self.decide(answer.rules, domain, descriptors, hits, CheckTime::read(&self.clock));
        }
        self.wait(&mut answer, Request::of(descriptors, &[], hits), deadline).await;
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
        let request = Request { hold: HoldUse::As(&id), ..Request::of(descriptors, &[], units) };
        match answer.domain().is_some_and(|domain| domain.has_shared) {
            true => self.wait(&mut answer, request, deadline).await,
            false => self.decide_any(&mut answer, request, when),
        }
        let is_held = answer.outcome == Outcome::Allowed;
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
        let queries: Few<_> = descriptors.iter().map(|descriptor| descriptor.hits(0)).collect();
        let request = Request { hold: HoldUse::Nothing, ..Request::of(&queries, &[], 0) };
        match has_shared {
            true => self.wait(&mut answer, request, Some(deadline.into())).await,
            false => self.decide_any(&mut answer, request, CheckTime::read(&self.clock)),
        }
        answer
    }

    async fn wait(&self, answer: &mut Answer, request: Request<'_, '_>, deadline: Option<Instant>) {
        let mut caller = Waiting { clock: &self.clock, calls: Few::new(), deadline, is_over: false };
        // Boxed, so that the future is small for services without shared rules.
        Box::pin(self.route(answer, request, &mut caller)).await;
    }

    /// Gives the servers what this process holds: units of rules with the mode `lease` go back, and units that rules with
    /// `write-back` have admitted are posted. Call it before the process ends, after the last check. A later check finds
    /// no held units. With a [`Blocking`](crate::edge::redis::Blocking) client, it does nothing.
    ///
    /// It waits for the servers, so set a timeout.
    ///
    /// # Examples
    /// ```
    /// use tollgate::redis::InProcess;
    /// use tollgate::rules::{Config, Rules};
    ///
    /// let limits = "{ domain: d, tollgate: { store: redis }, descriptors: [ { key: a, rate_limit: { unit: day, requests_per_unit: 9 } } ] }";
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let rules = Rules::builder().redis(InProcess::default()).load([Config::from_yaml("limits.yaml", limits)?])?;
    /// // The server has stopped. Before the process ends:
    /// rules.close().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn close(&self) {
        let rules = self.in_force.load();
        let shared = rules.domains.iter().flat_map(|domain| &domain.rules).filter_map(|active| match &active
            .counter
        {
            Counter::Shared(shared) => Some(shared.limiter.close()),
            _ => None,
        });
        join_all(shared).await;
    }

    /// Does what [`Rules::refund`] does, and waits for the server of shared rules. If the future is dropped after its
    /// first poll, the refunds continue in tasks.
    pub async fn refund_async(&self, descriptors: &[Descriptor<'_>], answer: &Answer) {
        let when = CheckTime::read(&self.clock);
        let mut calls: Few<SharedCall> = Few::new();
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
        join_all(calls.iter_mut()).await;
    }
}

/// Asks all shared rules of a question concurrently. If it is dropped before it [keeps](Caller::keep) the charges, it
/// refunds them.
struct Waiting<'a, C> {
    clock: &'a C,
    /// The calls of shared rules.
    calls: Few<RuleCall>,
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

impl<C> Waiting<'_, C> {
    fn keep_calls(&mut self) {
        self.calls.drain(..).for_each(|kept| kept.call.keep());
    }
}

impl<C: Clock> Caller for Waiting<'_, C> {
    const WAITS: bool = true;

    fn now(&self) -> CheckTime {
        CheckTime::read(self.clock)
    }

    fn keep(&mut self) {
        self.is_over = true;
        self.keep_calls();
    }

    fn abandon(&mut self, check: &mut RequestCheck<'_>) {
        // A rule that counts first also counts denied and dropped requests. The request is not over: if a load has replaced
        // the rule, it begins again, perhaps with rules that refund.
        if self.is_over || check.counts_first() {
            return self.keep_calls();
        }
        check.refund_here(self.now());
        // The calls refund themselves.
        self.calls.clear();
    }

    async fn peek(&mut self, check: &mut RequestCheck<'_>) {
        let all = {
            let (peeks, rules) = (check.peeks(), &check.rules);
            let all = peeks.into_iter().filter_map(|Peek { place, cost }| {
                let check = rules.get(place)?;
                let CountedBy::Shared(shared) = check.counted else { return None };
                Some(async move { (place, shared.limiter.peek(check.key.as_str(), cost, Wait::Yes).await) })
            });
            by(self.deadline, join_all(all)).await.unwrap_or_default()
        };
        for (place, peeked) in all {
            if let (Some(peeked), Some((check, decided))) = (peeked, check.at(place)) {
                check.record_answer(decided, peeked);
            }
        }
    }

    async fn charge(&mut self, check: &mut RequestCheck<'_>, is_asked: fn(&RuleCheck<'_>, Part) -> bool) {
        let from = self.calls.len();
        for (place, (check, decided)) in check.each(|_| true).enumerate() {
            if let CountedBy::Shared(shared) = check.counted
                && (check.cost > 0 || check.peeks_at_use())
                && decided.decision.is_none()
                && is_asked(check, decided.part)
            {
                let call = SharedCall::new(
                    &shared.limiter,
                    check.key.as_str(),
                    check.cost,
                    shared.denies(decided.part),
                );
                self.calls.push(RuleCall { place, call });
            }
        }
        let Some(asked) = self.calls.get_mut(from..) else { return };
        by(self.deadline, join_all(asked.iter_mut().map(|asked| &mut asked.call))).await;
        for RuleCall { place, call } in asked {
            let Some((check, decided)) = check.at(*place) else { continue };
            let answer = call.answer().unwrap_or_else(|| call.decide_without_server(check.cost));
            check.record_answer(decided, answer);
        }
    }

    async fn refund(&mut self, check: &mut RequestCheck<'_>) {
        for RuleCall { place, call } in &mut self.calls {
            if let Some((check, _)) = check.at(*place) {
                check.effect.is_charged = false;
            }
            call.refund();
        }
        // The refunds that are not finished by the deadline continue in tasks.
        by(self.deadline, join_all(self.calls.iter_mut().map(|refunded| &mut refunded.call))).await;
        self.calls.clear();
    }

    async fn count_denials(&mut self, check: &mut RequestCheck<'_>) {
        let mut calls: Few<SharedCall> = Few::new();
        for (check, shared) in check.shared_denials() {
            calls.push(SharedCall::count_denied(&shared.limiter, check.key.as_str(), check.cost));
            check.effect.is_denial_counted = true;
        }
        // The calls that are not finished by the deadline continue in tasks.
        by(self.deadline, join_all(calls.iter_mut())).await;
    }
}

/// Waits for a future, at most until the deadline. A future that is ready is used even after it.
async fn by<F: Future>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    match deadline {
        None => Some(future.await),
        Some(deadline) => timeout_at(deadline, future).await.ok(),
    }
}

/// A call of one shared rule, to charge, to refund, or with a cost of 0 to query the units in use. It is a future until
/// there is an answer. If it is dropped before it is [kept](Self::keep), a task waits for the answer and refunds the
/// charge.
struct SharedCall {
    limiter: Arc<SharedLimiter>,
    key: Arc<str>,
    runtime: Option<Handle>,
    stage: CallStage,
}

enum CallStage {
    Asking(BoxFuture<'static, SharedDecision>),
    Answered(SharedDecision),
    Refunding(BoxFuture<'static, ()>),
    Done,
}

impl SharedCall {
    fn new(limiter: &Arc<SharedLimiter>, key: &str, cost: u64, denies: Denies) -> Self {
        Self::with(limiter, key, |limiter, key| {
            CallStage::Asking(Box::pin(async move {
                if cost > 0 {
                    return limiter.check(&key, cost, denies, Wait::Yes).await;
                }
                let peeked = limiter.peek_use(&key, Wait::Yes).await;
                peeked.unwrap_or_else(|| limiter.decide_without_server(&key, 0))
            }))
        })
    }

    /// A call that charges a denied request, and refunds nothing. If it is dropped, a task finishes it.
    fn count_denied(limiter: &Arc<SharedLimiter>, key: &str, cost: u64) -> Self {
        Self::with(limiter, key, |limiter, key| {
            CallStage::Refunding(Box::pin(async move { limiter.count_denied(&key, cost, Wait::Yes).await }))
        })
    }

    /// A call that refunds a charge. If it is dropped, a task finishes it.
    fn refunding(limiter: &Arc<SharedLimiter>, key: &str, charge: SharedDecision) -> Self {
        let mut call = Self::with(limiter, key, |_, _| CallStage::Answered(charge));
        call.refund();
        call
    }

    fn with(
        limiter: &Arc<SharedLimiter>,
        key: &str,
        stage: impl FnOnce(Arc<SharedLimiter>, Arc<str>) -> CallStage,
    ) -> Self {
        let (limiter, key) = (Arc::clone(limiter), Arc::<str>::from(key));
        let stage = stage(Arc::clone(&limiter), Arc::clone(&key));
        Self { limiter, key, runtime: Handle::try_current().ok(), stage }
    }

    /// Decides as if the server did not answer. If it answers later, a task refunds what it charged.
    fn decide_without_server(&mut self, cost: u64) -> SharedDecision {
        let answer = self.limiter.decide_without_server(&self.key, cost);
        let answered = Self::with(&self.limiter, &self.key, |_, _| CallStage::Answered(answer));
        drop(std::mem::replace(self, answered));
        answer
    }

    const fn answer(&self) -> Option<SharedDecision> {
        match self.stage {
            CallStage::Answered(answer) => Some(answer),
            CallStage::Asking(_) | CallStage::Refunding(_) | CallStage::Done => None,
        }
    }

    /// From here on, the future waits for the refund. If there is no answer yet, it waits for the answer first.
    fn refund(&mut self) {
        let (limiter, key) = (Arc::clone(&self.limiter), Arc::clone(&self.key));
        let refund = async move |charge: SharedDecision| {
            if charge.decision.charged() > 0 {
                limiter.refund(&key, charge, Wait::Yes).await;
            }
        };
        self.stage = match std::mem::replace(&mut self.stage, CallStage::Done) {
            CallStage::Asking(asked) => {
                CallStage::Refunding(Box::pin(async move { refund(asked.await).await }))
            }
            CallStage::Answered(answer) if answer.decision.charged() > 0 => {
                CallStage::Refunding(Box::pin(async move { refund(answer).await }))
            }
            CallStage::Answered(_) => CallStage::Done,
            other => other,
        };
    }

    /// Keeps the charge.
    fn keep(mut self) {
        self.stage = CallStage::Done;
    }
}

impl Future for SharedCall {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.stage = match &mut self.stage {
            CallStage::Asking(asked) => CallStage::Answered(std::task::ready!(asked.as_mut().poll(context))),
            CallStage::Refunding(back) => {
                std::task::ready!(back.as_mut().poll(context));
                CallStage::Done
            }
            CallStage::Answered(_) | CallStage::Done => return Poll::Ready(()),
        };
        Poll::Ready(())
    }
}

impl Drop for SharedCall {
    fn drop(&mut self) {
        self.refund();
        let CallStage::Refunding(rest) = std::mem::replace(&mut self.stage, CallStage::Done) else { return };
        match &self.runtime {
            Some(runtime) => drop(runtime.spawn(rest)),
            // The part that needs no waiting still happens.
            None => drop(rest.now_or_never()),
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::super::route::Route;
    use super::*;
    use crate::edge::redis::InProcess;
    use crate::edge::rules::Config;

    /// Cause: a load replaced a rule that counts first while a request waited for the server. Symptom: the request began
    /// again with a rule that refunds, and its charge stayed although its future was dropped.
    #[tokio::test]
    async fn request_that_begins_again_with_other_charging_is_refunded() {
        let server = InProcess::default();
        let load = |charging: &str| {
            let text = format!(
                "{{ domain: d, tollgate: {{ store: redis, mode: atomic, charging: {charging} }}, descriptors: [ {{ key: a, rate_limit: {{ unit: day, requests_per_unit: 9 }} }} ] }}"
            );
            let config = Config::from_yaml("rules", &text).unwrap();
            Rules::builder().redis(server.clone()).load([config]).unwrap()
        };
        let (before, after) = (load("count-first"), load("all-or-nothing"));
        let descriptors = [Descriptor::new(&[("a", "x")])];
        let mut caller = Waiting { clock: before.clock(), calls: Few::new(), deadline: None, is_over: false };
        for rules in [&before, &after] {
            let answer = rules.find_domain("d");
            let domain = answer.domain().unwrap();
            let mut decided = Few::new();
            let mut route = Route { check: RequestCheck::new(&mut decided), caller: &mut caller };
            let request = Request::of(&descriptors, &[], 1);
            route.check.find((&answer.rules, domain), &request, route.caller.now().ns(), &rules.hasher);
            route.caller.charge(&mut route.check, |_, _| true).await;
            assert!(route.check.is_charged());
            // Here the caller stops waiting.
        }
        tokio::task::yield_now().await;
        let left = after.check_n_async("d", &descriptors, 1).await.remaining(0);
        assert_eq!(left, 7, "only the request that counts first stays charged");
    }
}
