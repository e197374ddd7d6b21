//! Checks that wait for the server of shared rules.
//!
//! ```text
//! 1. peek at this process's limits that can deny ── one denies ──► denied; no server was asked
//!   └─ 2. charge all shared limits that can deny, concurrently ── one denies ──► the others are refunded
//!       └─ 3. charge this process's limits ── one denies because another request came first ──► all are refunded
//!           └─ 4. charge the limits that only report
//! ```
//! With `charging: count-denials`, a denied request is then charged to the limits that deny it: see
//! [`count_denials`](super::count_denials).
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

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::answer::{Answer, Few, Part};
use super::check::{CountedBy, RequestCheck};
use super::counter::Counter;
use super::rule_check::{RuleCheck, give_back};
use super::{Refund, Rules};
use crate::base::check_time::CheckTime;
use crate::base::clock::Clock;
use crate::base::decision::Outcome;
use crate::edge::rules::counting::{SharedDecision, SharedLimiter, Wait};
use crate::edge::rules::matching::Descriptor;
use crate::edge::rules::rule::Charging;

impl<C: Clock> Rules<C> {
    /// Does what [`Rules::check`] does, and waits for the server of shared rules (`store: redis`). It asks all shared
    /// rules concurrently. If a limit in this process denies the request, it asks none of them, and their verdict is
    /// [`NotAsked`](super::Verdict::NotAsked).
    ///
    /// Rules in the modes `lease` and `write-back` wait only if this process holds no units and the limit may have
    /// some. Without shared rules, this is the same as [`Rules::check`]. With a
    /// [`BlockingClient`](crate::edge::redis::BlockingClient), it blocks the thread.
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
    /// [`BlockingClient`](crate::edge::redis::BlockingClient), the deadline has no effect, because the thread blocks.
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
        if self.in_force.load().domain(name).is_none_or(|domain| !domain.has_shared) {
            return self.check_n(name, descriptors, hits);
        }
        // A future of a service without shared rules is small.
        Box::pin(self.check_shared(name, descriptors, hits, deadline)).await
    }

    async fn check_shared(
        &self,
        name: &str,
        descriptors: &[Descriptor<'_>],
        hits: u64,
        deadline: Option<Instant>,
    ) -> Answer {
        loop {
            let rules = self.in_force.load();
            let Some(domain) = rules.domain(name) else {
                return self.unknown_domain(rules);
            };
            domain.note_asked();
            let mut decided = Few::new();
            let mut check = RequestCheck::new(&mut decided);
            check.find(domain, descriptors, hits, self.clock.now().as_nanos(), &self.hasher);
            if !check.rules.iter().any(|check| check.counted.is_shared()) {
                return self.check_n(name, descriptors, hits);
            }
            let mut waiting = WaitingCheck::new(&mut check, &self.clock, domain.charging, deadline);
            let outcome = waiting.decide().await;
            if self.is_outdated(waiting.check, &rules, domain) {
                waiting.undo().await;
                continue;
            }
            waiting.keep();
            if domain.charging == Charging::CountDenials {
                waiting.count_shared_denials(outcome == Outcome::Allowed).await;
            }
            drop(waiting);
            let when = CheckTime::read(&self.clock);
            let summary =
                check.finish(domain, descriptors, (outcome, self.options.shadow), when, &self.observers);
            drop(check);
            let domain = Some(domain.index);
            return Answer { rules, domain, summary, decided };
        }
    }

    /// Gives the servers what this process holds: units of rules with the mode `lease` go back, and units that rules with
    /// `write-back` have admitted are posted. Call it before the process ends, after the last check. A later check finds
    /// no held units. With a [`BlockingClient`](crate::edge::redis::BlockingClient), it does nothing.
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
        for Refund { counted, key, decided } in self.refunds(descriptors, answer) {
            match (counted, decided.decision, decided.by) {
                (CountedBy::Shared(shared), Some(decision), Some(by)) => {
                    let charge = SharedDecision { decision, by };
                    calls.push(SharedCall::refund(&shared.limiter, key.as_str(), charge));
                }
                _ => give_back(counted, key.as_str(), decided, 0, when),
            }
        }
        join_all(calls.iter_mut()).await;
    }
}

/// The rules of one request while it waits for some of them. If it is dropped before [`keep`](Self::keep), it refunds
/// the charges.
struct WaitingCheck<'a, 'r, C: Clock> {
    check: &'a mut RequestCheck<'r>,
    clock: &'a C,
    charging: Charging,
    /// The calls of shared rules, by the indices of the rules.
    calls: Few<(usize, SharedCall)>,
    /// When the answer is due.
    deadline: Option<Instant>,
    is_over: bool,
}

impl<C: Clock> Drop for WaitingCheck<'_, '_, C> {
    fn drop(&mut self) {
        // A rule that counts first also counts denied and dropped requests.
        if self.is_over || self.charging == Charging::CountFirst {
            self.keep();
            return;
        }
        self.check.undo(CheckTime::read(self.clock), false);
        // The other calls refund themselves.
        self.calls.clear();
    }
}

impl<'a, 'r, C: Clock> WaitingCheck<'a, 'r, C> {
    fn new(
        check: &'a mut RequestCheck<'r>,
        clock: &'a C,
        charging: Charging,
        deadline: Option<Instant>,
    ) -> Self {
        Self { check, clock, charging, calls: Few::new(), deadline, is_over: false }
    }

    /// Keeps all charges.
    fn keep(&mut self) {
        self.is_over = true;
        self.calls.drain(..).for_each(|(_, call)| call.keep());
    }

    fn now(&self) -> CheckTime {
        CheckTime::read(self.clock)
    }

    async fn decide(&mut self) -> Outcome {
        match self.charging {
            Charging::AllOrNothing => _ = self.all_or_nothing().await,
            Charging::CountDenials => {
                let admitted = self.all_or_nothing().await;
                self.check.count_denials(admitted, self.now());
            }
            Charging::CountFirst => {
                self.ask_all(|_, part| part != Part::Replaced).await;
                self.check.count(self.now());
            }
        }
        self.check.outcome()
    }

    /// Same as [`RequestCheck::all_or_nothing`], but does not ask again what was already asked. Returns whether the
    /// request is admitted.
    async fn all_or_nothing(&mut self) -> bool {
        self.check.peek_together(self.now());
        let mut admitted = self.check.outcome() == Outcome::Allowed && self.peek_at_shared().await;
        if admitted {
            self.ask_all(|check, part| part.refuses() && check.counted.undoes()).await;
            if self.check.outcome() == Outcome::Allowed {
                // Charges to these rules are not refunded.
                self.ask_all(|check, part| part.refuses() && !check.counted.undoes()).await;
            }
            admitted = self.check.outcome() == Outcome::Allowed && self.check.charge_all(self.now());
            if !admitted && self.check.charged() {
                self.undo().await;
                self.check.peek_again(self.now());
            }
        }
        if admitted {
            self.ask_all(|_, part| part == Part::Shadow).await;
        }
        self.check.report_only(admitted, self.now());
        admitted
    }

    /// Same as [`RequestCheck::count_shared_denials`], for all rules concurrently.
    async fn count_shared_denials(&mut self, admitted: bool) {
        let mut calls: Few<SharedCall> = Few::new();
        for (check, shared) in self.check.shared_denials(admitted) {
            calls.push(SharedCall::count_denied(&shared.limiter, check.key.as_str(), check.cost));
            check.is_denial_counted = true;
        }
        // The calls that are not finished by the deadline continue in tasks.
        by(self.deadline, join_all(calls.iter_mut())).await;
    }

    /// Same as [`RequestCheck::peek_at_shared`], for all rules concurrently. Charges nothing.
    async fn peek_at_shared(&mut self) -> bool {
        let places = self.check.rules_to_peek_at();
        if places.is_empty() {
            return true;
        }
        let looks = {
            let rules = &self.check.rules;
            let looks = places.iter().filter_map(|&(place, cost)| {
                let check = rules.get(place)?;
                let CountedBy::Shared(shared) = check.counted else { return None };
                Some(async move { (place, shared.limiter.peek(check.key.as_str(), cost, Wait::Yes).await) })
            });
            by(self.deadline, join_all(looks)).await.unwrap_or_default()
        };
        for (place, looked) in looks {
            if let (Some(looked), Some((check, decided))) = (looked, self.check.at(place)) {
                check.record_answer(decided, looked);
            }
        }
        self.check.may_continue()
    }

    /// Asks all shared rules with this part concurrently.
    async fn ask_all(&mut self, takes_part: impl Fn(&RuleCheck<'_>, Part) -> bool) {
        let from = self.calls.len();
        for (place, (check, decided)) in self.check.each(|_| true).enumerate() {
            if let CountedBy::Shared(shared) = check.counted
                && (check.cost > 0 || check.looks_at_use())
                && decided.decision.is_none()
                && takes_part(check, decided.part)
            {
                let call = SharedCall::new(&shared.limiter, check.key.as_str(), check.cost);
                self.calls.push((place, call));
            }
        }
        let Some(asked) = self.calls.get_mut(from..) else { return };
        by(self.deadline, join_all(asked.iter_mut().map(|(_, call)| call))).await;
        for (place, call) in asked {
            if call.answer().is_none()
                && let Some((check, _)) = self.check.at(*place)
            {
                call.decide_without_server(check.cost);
            }
            if let (Some(answer), Some((check, decided))) = (call.answer(), self.check.at(*place)) {
                check.record_answer(decided, answer);
            }
        }
    }

    /// Refunds the charges: first those of this process, without waiting, then all shared ones concurrently.
    async fn undo(&mut self) {
        self.check.undo(self.now(), false);
        for (place, call) in &mut self.calls {
            if let Some((check, _)) = self.check.at(*place) {
                check.charged = false;
            }
            call.give_back();
        }
        // The refunds that are not finished by the deadline continue in tasks.
        by(self.deadline, join_all(self.calls.iter_mut().map(|(_, call)| call))).await;
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
    Returning(BoxFuture<'static, ()>),
    Done,
}

impl SharedCall {
    fn new(limiter: &Arc<SharedLimiter>, key: &str, cost: u64) -> Self {
        let (limiter, key) = (Arc::clone(limiter), Arc::<str>::from(key));
        let asked = {
            let (limiter, key) = (Arc::clone(&limiter), Arc::clone(&key));
            Box::pin(async move {
                if cost > 0 {
                    return limiter.check(&key, cost, Wait::Yes).await;
                }
                let looked = limiter.peek_use(&key, Wait::Yes).await;
                looked.unwrap_or_else(|| limiter.decide_without_server(&key, 0))
            })
        };
        Self { limiter, key, runtime: Handle::try_current().ok(), stage: CallStage::Asking(asked) }
    }

    /// A call that charges a denied request, and refunds nothing. If it is dropped, a task finishes it.
    fn count_denied(limiter: &Arc<SharedLimiter>, key: &str, cost: u64) -> Self {
        let (limiter, key) = (Arc::clone(limiter), Arc::<str>::from(key));
        let counted = {
            let (limiter, key) = (Arc::clone(&limiter), Arc::clone(&key));
            Box::pin(async move { limiter.count_denied(&key, cost, Wait::Yes).await })
        };
        Self { limiter, key, runtime: Handle::try_current().ok(), stage: CallStage::Returning(counted) }
    }

    /// A call that refunds a charge. If it is dropped, a task finishes it.
    fn refund(limiter: &Arc<SharedLimiter>, key: &str, charge: SharedDecision) -> Self {
        let (limiter, key, stage) = (Arc::clone(limiter), Arc::from(key), CallStage::Answered(charge));
        let mut call = Self { limiter, key, runtime: Handle::try_current().ok(), stage };
        call.give_back();
        call
    }

    /// Decides as if the server did not answer. If it answers later, a task refunds what it charged.
    fn decide_without_server(&mut self, cost: u64) {
        let (limiter, key) = (Arc::clone(&self.limiter), Arc::clone(&self.key));
        let stage = CallStage::Answered(limiter.decide_without_server(&key, cost));
        let runtime = self.runtime.clone();
        drop(std::mem::replace(self, Self { limiter, key, runtime, stage }));
    }

    const fn answer(&self) -> Option<SharedDecision> {
        match self.stage {
            CallStage::Answered(answer) => Some(answer),
            CallStage::Asking(_) | CallStage::Returning(_) | CallStage::Done => None,
        }
    }

    /// From here on, the future waits for the refund. If there is no answer yet, it waits for the answer first.
    fn give_back(&mut self) {
        let (limiter, key) = (Arc::clone(&self.limiter), Arc::clone(&self.key));
        let refund = async move |charge: SharedDecision| {
            if charge.decision.charged() > 0 {
                limiter.refund(&key, charge, Wait::Yes).await;
            }
        };
        self.stage = match std::mem::replace(&mut self.stage, CallStage::Done) {
            CallStage::Asking(asked) => {
                CallStage::Returning(Box::pin(async move { refund(asked.await).await }))
            }
            CallStage::Answered(answer) if answer.decision.charged() > 0 => {
                CallStage::Returning(Box::pin(async move { refund(answer).await }))
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
            CallStage::Returning(back) => {
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
        self.give_back();
        let CallStage::Returning(rest) = std::mem::replace(&mut self.stage, CallStage::Done) else { return };
        match &self.runtime {
            Some(runtime) => drop(runtime.spawn(rest)),
            // The part that needs no waiting still happens.
            None => drop(rest.now_or_never()),
        }
    }
}
