//! Requests whose rules are asked elsewhere, and awaited.
//!
//! ```text
//! limits of this process that can refuse are looked at ── one refuses ──► refused; no server was asked
//!   └─ all shared ones that can refuse are charged, at once ── one refuses ──► the others are refunded
//!       └─ those of this process are charged ── one refuses, since another request was first ──► all are refunded
//!           └─ those that only report
//! ```
//! Who drops the future takes all of it back: it may be that of a request that was about to be refused, and nobody else's units are to be
//! spent by a client that hangs up. What this process counts is given back at once; a task waits for the other answers, and gives
//! back what they charged.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::runtime::Handle;

use super::answer::{Answer, Few, Part};
use super::decide::{Ask, Asks, refuses};
use super::request::{Descriptor, Key};
use super::shared::{Said, SharedLimiter};
use super::spec::Charging;
use super::{Outcome, Rules, charges};
use crate::base::check_time::CheckTime;
use crate::base::clock::Clock;
use crate::base::sync::fence_after_rmw;

impl<C: Clock> Rules<C> {
    /// [`Rules::check`] that waits for the server where rules are shared (`store: redis`). All of them are asked at the same time, and
    /// none if a limit in this process refuses: those say [`NotAsked`](super::Verdict::NotAsked) then.
    ///
    /// Rules of the modes `lease` and `write-back` wait only if this process holds no units and the limit may have some. Without shared
    /// rules this is [`Rules::check`]. With a [`BlockingClient`](crate::edge::redis::BlockingClient) it blocks the thread.
    ///
    /// # Panics
    /// In a tokio runtime without a timer (`enable_time`), if a rule is shared by an async client.
    ///
    /// # Cancellation
    /// What a future that is dropped has charged, or may have charged, is given back: by a task on the runtime that it was polled in, as soon
    /// as the servers have answered. What cannot be taken back stays charged: units of `write-back`, stores that cannot give back,
    /// `charging: count-first`, an answer that was lost.
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
    /// let server = InProcess::default(); // in production a `Client`
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

    /// [`Rules::check_n`] that waits, as [`Rules::check_async`].
    pub async fn check_n_async(&self, name: &str, descriptors: &[Descriptor<'_>], hits: u64) -> Answer {
        loop {
            let live = self.live.load();
            let Some((place, domain)) = live.domain(name) else {
                return self.unknown(live);
            };
            let mut asks = Asks::default();
            asks.find(domain, descriptors, hits, self.clock.now().as_nanos(), &self.hasher);
            if !asks.are_shared() {
                return self.check_n(name, descriptors, hits);
            }
            let mut waiting = Waiting::new(&mut asks, &self.clock, domain.charging);
            let outcome = waiting.decide().await;
            if waiting.asks.charged() {
                fence_after_rmw();
                if waiting.asks.missed_twin(domain)
                    || (!self.live.is_present(&live)
                        && !waiting
                            .asks
                            .still_count_in(self.live.load().domain(name).map(|(_, domain)| domain)))
                {
                    waiting.undo().await;
                    continue;
                }
            }
            waiting.keep();
            drop(waiting);
            let ((outcome, shadow, quotas_refuse), wait_besides) =
                self.come_of(domain, &mut asks, outcome, descriptors, CheckTime::read(&self.clock));
            let decided = asks.said();
            let domain = Some(place);
            return Answer { live, domain, outcome, shadow, quotas_refuse, wait_besides, decided };
        }
    }

    /// [`Rules::refund`] that waits for the server where rules are shared.
    pub async fn refund_async(&self, descriptors: &[Descriptor<'_>], answer: &Answer) {
        self.refund_local(descriptors, answer);
        let Some(domain) = self.refundable(answer) else { return };
        let refunds: Vec<_> = {
            let live = self.live.load();
            let now = live.domain(&domain.name).map(|(_, domain)| domain);
            let charged =
                charges(domain, descriptors, answer).filter_map(|(descriptor, active, decided, charge)| {
                    let shared = active.shared().filter(|_| active.counts_in(now))?;
                    let key = Key::of(&domain.name, descriptor, active);
                    Some(async move { shared.limiter.refund_async(key.as_str(), charge, decided.by).await })
                });
            charged.collect()
        };
        join_all(refunds).await;
    }
}

impl Asks<'_> {
    /// Whether any is asked elsewhere.
    fn are_shared(&self) -> bool {
        self.asks.iter().any(Ask::is_shared)
    }
}

/// The rules of one request while some of them are waited for. Dropped before [`keep`](Self::keep), it takes back what was charged.
struct Waiting<'a, 'r, C: Clock> {
    asks: &'a mut Asks<'r>,
    clock: &'a C,
    charging: Charging,
    /// Of those that were asked elsewhere, by their places.
    errands: Few<(usize, Errand)>,
    is_over: bool,
}

impl<C: Clock> Drop for Waiting<'_, '_, C> {
    fn drop(&mut self) {
        // What counts first counts what is refused too, and what nobody waits for.
        if self.is_over || self.charging == Charging::CountFirst {
            self.keep();
            return;
        }
        self.asks.undo_here(CheckTime::read(self.clock));
        // The others take themselves back.
        self.errands.clear();
    }
}

impl<'a, 'r, C: Clock> Waiting<'a, 'r, C> {
    fn new(asks: &'a mut Asks<'r>, clock: &'a C, charging: Charging) -> Self {
        Self { asks, clock, charging, errands: Few::new(), is_over: false }
    }

    /// What was charged stays charged.
    fn keep(&mut self) {
        self.is_over = true;
        self.errands.drain(..).for_each(|(_, errand)| errand.keep());
    }

    fn now(&self) -> CheckTime {
        CheckTime::read(self.clock)
    }

    async fn decide(&mut self) -> Outcome {
        match self.charging {
            Charging::AllOrNothing => self.all_or_nothing().await,
            Charging::CountFirst => {
                self.ask_all(|_, part| part != Part::Replaced).await;
                let when = self.now();
                self.asks.each(|_| true).for_each(|(ask, said)| ask.count(said, when));
            }
        }
        self.asks.outcome()
    }

    /// As [`Asks::all_or_nothing`]; what has been asked is not asked again.
    async fn all_or_nothing(&mut self) {
        self.asks.look_together(self.now());
        let mut admitted = self.asks.outcome() == Outcome::Allowed && self.look_at_shared().await;
        if admitted {
            self.ask_all(|ask, part| refuses(part) && ask.undoes()).await;
            if self.asks.outcome() == Outcome::Allowed {
                // What was charged to these is not given back.
                self.ask_all(|ask, part| refuses(part) && !ask.undoes()).await;
            }
            admitted = self.asks.outcome() == Outcome::Allowed && self.asks.charge_all(self.now());
            if !admitted && self.asks.charged() {
                self.undo().await;
                self.asks.look_again(self.now());
            }
        }
        if admitted {
            self.ask_all(|_, part| part == Part::Shadow).await;
        }
        self.asks.report_only(admitted, self.now());
    }

    /// As [`Asks::look_at_shared`], of all at the same time. Charges nothing.
    async fn look_at_shared(&mut self) -> bool {
        let looks: Few<_> =
            self.asks.to_look_at().into_iter().map(|at| (at, self.asks.besides(at))).collect();
        if looks.is_empty() {
            return true;
        }
        let looked = {
            let asks = &self.asks.asks;
            let looked = looks.iter().filter_map(|&(place, besides)| {
                let ask = asks.get(place)?;
                let shared = ask.active.shared()?;
                let cost = ask.cost.saturating_add(besides);
                Some(async move { (place, shared.limiter.look_async(ask.key.as_str(), cost).await) })
            });
            join_all(looked).await
        };
        for (place, looked) in looked {
            if let (Some(looked), Some((ask, said))) = (looked, self.asks.at(place)) {
                ask.hear(said, looked);
            }
        }
        self.asks.go_on()
    }

    /// Asks all shared ones that take part so, at the same time.
    async fn ask_all(&mut self, takes_part: impl Fn(&Ask<'_>, Part) -> bool) {
        let from = self.errands.len();
        for (place, (ask, said)) in self.asks.each(|_| true).enumerate() {
            if let Some(shared) = ask.active.shared()
                && ask.cost > 0
                && said.decision.is_none()
                && takes_part(ask, said.part)
            {
                self.errands.push((place, Errand::new(&shared.limiter, ask.key.as_str(), ask.cost)));
            }
        }
        let Some(asked) = self.errands.get_mut(from..) else { return };
        join_all(asked.iter_mut().map(|(_, errand)| errand)).await;
        for (place, errand) in &*asked {
            if let (Some(heard), Some((ask, said))) = (errand.heard(), self.asks.at(*place)) {
                ask.hear(said, heard);
            }
        }
    }

    /// Takes back what was charged: here first, which needs no wait; and elsewhere at the same time.
    async fn undo(&mut self) {
        self.asks.undo_here(self.now());
        for (place, errand) in &mut self.errands {
            if let Some((ask, _)) = self.asks.at(*place) {
                ask.charged = false;
            }
            errand.take_back();
        }
        join_all(self.errands.iter_mut().map(|(_, errand)| errand)).await;
        self.errands.clear();
    }
}

type Boxed<R> = Pin<Box<dyn Future<Output = R> + Send>>;

/// What one shared rule is asked for, or gives back: as a future, until there is an answer. Who drops it before it is
/// [kept](Self::keep) has what it charged, or may charge yet, given back by a task, which waits for the answer first.
struct Errand {
    limiter: Arc<SharedLimiter>,
    key: Arc<str>,
    runtime: Option<Handle>,
    stage: Stage,
}

enum Stage {
    Asking(Boxed<Said>),
    Heard(Said),
    Returning(Boxed<()>),
    Done,
}

impl Errand {
    fn new(limiter: &Arc<SharedLimiter>, key: &str, cost: u64) -> Self {
        let (limiter, key) = (Arc::clone(limiter), Arc::<str>::from(key));
        let asked = {
            let (limiter, key) = (Arc::clone(&limiter), Arc::clone(&key));
            Box::pin(async move { limiter.check_async(&key, cost).await })
        };
        Self { limiter, key, runtime: Handle::try_current().ok(), stage: Stage::Asking(asked) }
    }

    const fn heard(&self) -> Option<Said> {
        match self.stage {
            Stage::Heard(said) => Some(said),
            Stage::Asking(_) | Stage::Returning(_) | Stage::Done => None,
        }
    }

    /// From here on it is what was given back that is waited for.
    fn take_back(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Heard(said) if said.0.charged() > 0 => {
                let (limiter, key) = (Arc::clone(&self.limiter), Arc::clone(&self.key));
                Stage::Returning(Box::pin(async move {
                    limiter.refund_async(&key, &said.0, Some(said.1)).await;
                }))
            }
            Stage::Heard(_) => Stage::Done,
            other => other,
        };
    }

    /// Nothing is given back.
    fn keep(mut self) {
        self.stage = Stage::Done;
    }
}

impl Future for Errand {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.stage = match &mut self.stage {
            Stage::Asking(asked) => Stage::Heard(std::task::ready!(asked.as_mut().poll(context))),
            Stage::Returning(back) => {
                std::task::ready!(back.as_mut().poll(context));
                Stage::Done
            }
            Stage::Heard(_) | Stage::Done => return Poll::Ready(()),
        };
        Poll::Ready(())
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        self.take_back();
        let stage = std::mem::replace(&mut self.stage, Stage::Done);
        if matches!(stage, Stage::Done | Stage::Heard(_)) {
            return;
        }
        let (limiter, key) = (Arc::clone(&self.limiter), Arc::clone(&self.key));
        let rest = async move {
            match stage {
                Stage::Asking(asked) => {
                    let (charge, by) = asked.await;
                    if charge.charged() > 0 {
                        limiter.refund_async(&key, &charge, Some(by)).await;
                    }
                }
                Stage::Returning(back) => back.await,
                Stage::Heard(_) | Stage::Done => {}
            }
        };
        match &self.runtime {
            Some(runtime) => drop(runtime.spawn(rest)),
            // What needs no wait is done all the same.
            None => drop(rest.now_or_never()),
        }
    }
}
