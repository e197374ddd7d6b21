//! Requests whose rules are asked elsewhere, and awaited.
//!
//! ```text
//! limits of this process that can refuse are looked at ── one refuses ──► refused; no server was asked
//!   └─ all shared ones that can refuse are charged, at once ── one refuses ──► the others are refunded
//!       └─ those of this process are charged ── one refuses, since another request was first ──► all are refunded
//!           └─ those that only report
//! ```
//! A future that is dropped charges what it has charged: it may be that of one that was about to be refused.

use futures_util::future::join_all;

use super::answer::{Answer, Decided, Part};
use super::decide::{Ask, Asks, refuses};
use super::request::{Descriptor, Key};
use super::spec::Charging;
use super::{Outcome, Rules, charges};
use crate::clock::Clock;
use crate::store::verb::When;
use crate::sync::fence_after_rmw;

impl<C: Clock> Rules<C> {
    /// [`Rules::check`] that waits for the server where rules are shared (`store: redis`). All of them are asked at the same time, and
    /// none if a limit in this process refuses: those say [`NotAsked`](super::Verdict::NotAsked) then.
    ///
    /// Rules of the modes `lease` and `write-back` wait only if this process holds no units and the limit may have some. Without shared
    /// rules this is [`Rules::check`]. With a [`BlockingClient`](crate::redis::BlockingClient) it blocks the thread.
    ///
    /// # Cancellation
    /// A future that is dropped may have charged some of the limits, all of them, or none.
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
            let outcome = if asks.are_shared() {
                asks.decide_async(domain.charging, &self.clock).await
            } else {
                domain.timer.time(|| asks.decide(domain.charging, When::read(&self.clock)))
            };
            if asks.charged() {
                fence_after_rmw();
                if !self.live.is_present(&live)
                    && !asks.still_count_in(self.live.load().domain(name).map(|(_, domain)| domain))
                {
                    asks.undo_async(&self.clock).await;
                    continue;
                }
            }
            let ((outcome, shadow, quotas_refuse), wait_besides) =
                self.come_of(domain, &mut asks, outcome, descriptors, When::read(&self.clock));
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

impl<'r> Asks<'r> {
    /// Whether any is asked elsewhere.
    fn are_shared(&self) -> bool {
        self.asks.iter().any(Ask::is_shared)
    }

    async fn decide_async<C: Clock>(&mut self, charging: Charging, clock: &C) -> Outcome {
        match charging {
            Charging::AllOrNothing => self.all_or_nothing_async(clock).await,
            Charging::CountFirst => {
                self.ask_all(|_, part| part != Part::Replaced).await;
                let when = When::read(clock);
                self.each(|_| true).for_each(|(ask, said)| ask.count(said, when));
            }
        }
        self.outcome()
    }

    /// As [`Asks::all_or_nothing`]; what has been asked is not asked again.
    async fn all_or_nothing_async<C: Clock>(&mut self, clock: &C) {
        self.look_together(When::read(clock));
        let mut admitted = self.outcome() == Outcome::Allowed;
        if admitted {
            self.ask_all(|ask, part| refuses(part) && ask.undoes()).await;
            if self.outcome() == Outcome::Allowed {
                // What was charged to these is not given back.
                self.ask_all(|ask, part| refuses(part) && !ask.undoes()).await;
            }
            admitted = self.outcome() == Outcome::Allowed && self.charge_all(When::read(clock));
            if !admitted && self.charged() {
                self.undo_async(clock).await;
                self.look_again(When::read(clock));
            }
        }
        if admitted {
            self.ask_all(|_, part| part == Part::Shadow).await;
        }
        self.report_only(admitted, When::read(clock));
    }

    /// Asks all shared ones that take part so, at the same time.
    async fn ask_all(&mut self, takes_part: impl Fn(&Ask<'_>, Part) -> bool) {
        let asked = self.each(|_| true).filter(|(ask, said)| {
            ask.is_shared() && ask.cost > 0 && said.decision.is_none() && takes_part(ask, said.part)
        });
        let asked: Vec<_> = asked.map(|(ask, said)| ask.ask_async(said)).collect();
        join_all(asked).await;
    }

    /// Takes back what was charged: at the same time where that takes long.
    async fn undo_async<C: Clock>(&mut self, clock: &C) {
        let shared: Vec<_> = self
            .each(|_| true)
            .filter(|(ask, _)| ask.charged && ask.is_shared())
            .map(|(ask, said)| ask.refund_async(said))
            .collect();
        join_all(shared).await;
        self.undo(When::read(clock));
    }
}

impl Ask<'_> {
    async fn ask_async(&mut self, said: &mut Decided) {
        let Some(shared) = self.active.shared() else { return };
        let answer = shared.limiter.check_async(self.key.as_str(), self.cost).await;
        self.hear(said, answer);
    }

    async fn refund_async(&mut self, said: &Decided) {
        self.charged = false;
        if let (Some(shared), Some(charge)) = (self.active.shared(), &said.decision) {
            shared.limiter.refund_async(self.key.as_str(), charge, said.by).await;
        }
    }
}
