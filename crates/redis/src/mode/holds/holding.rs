//! A limiter whose units can be held by all processes.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tollgate::holds::{HoldId, InProgress, Permit};
use tollgate::internals::quota_error;
use tollgate::{Class, DecidedBy, Decision, Limit, LimitKind, Outcome, QuotaError, SharedDecision, StdClock};
use tollgate_protocol::{Error, ErrorKind, Key, Plan, Question, identity_of};

use super::remote::{HoldingLimiter, hold_id, micros};
use crate::client::{Connected, LimiterBuilder, OnDrop};
use crate::guard::{Guard, Health, Local, Passage};
use crate::mode::dispatch::AsksServer;

impl<T: Connected> LimiterBuilder<T> {
    /// Builds a limiter whose units can be held: taken now, and settled later.
    ///
    /// # Errors
    /// Returns an error for the first limit that the server's script cannot count exactly, as
    /// [`atomic`](LimiterBuilder::atomic) does. Returns an error also for a limit whose units cannot be kept free: a leaky bucket
    /// as a queue, minimum spacing, a token bucket with an adaptive start, and a limit with a block.
    pub fn holding(self) -> Result<T::Form<HoldingLimiter>, QuotaError> {
        let settings = self.settings();
        settings.limits.iter().try_for_each(can_hold)?;
        let plan = Plan::new(&settings.limits)?;
        let (client, thread) = self.client.split();
        let limiter = HoldingLimiter::new(client, thread.clone(), plan, Guard::new(&settings), None);
        Ok(T::form(limiter, thread))
    }
}

/// Returns an error if units of the limit cannot be kept free for a hold.
fn can_hold(limit: &Limit) -> Result<(), QuotaError> {
    let (name, reason) = match limit.kind() {
        _ if limit.block().is_some() => (
            "GCRA with a block",
            "a block would take the units that are held, and their commit would prolong it",
        ),
        LimitKind::LeakyBucketQueue => {
            ("leaky bucket queue", "each request has its turn, and a hold has none")
        }
        LimitKind::MinimumSpacing { .. } => ("minimum spacing", "it has no units to keep free"),
        LimitKind::AlignedBucket { adaptive: true, .. } => {
            ("token bucket with an adaptive start", "an idle key loses units, also those that are held")
        }
        _ => return Ok(()),
    };
    let without = if limit.block().is_some() { " without a block" } else { "" };
    Err(quota_error(format!(
        "shared {name} of {}: its units cannot be held, because {reason}; use atomic(), or Gcra{without}",
        limit.quota()
    )))
}

impl HoldingLimiter {
    /// Asks the server to hold the units. Returns the hold, or the denial.
    ///
    /// If the caller stops waiting, or no answer arrives in time, the server may have the hold, so it is released.
    pub(super) async fn send_hold(
        &self,
        key: &[u8],
        units: u64,
        life: Duration,
    ) -> Result<Result<SharedHold, SharedDecision>, Error> {
        let (identity, life_us) = (identity_of(HoldId::unique(0).random(), units), micros(life));
        let (runtime, unknown_end) = (Handle::try_current().ok(), HoldId::new(0, identity));
        let lost = OnDrop::new(|| self.release_later(runtime.as_ref(), key.into(), unknown_end, life));
        let answer = self.ask(key, Question::Hold { units, life_us, identity }).await;
        if !answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Timeout) {
            lost.cancel();
        }
        let reply = answer?;
        let outcome = if reply.done { Outcome::Allowed } else { self.denial(units) };
        let decision = self.decision(&reply, outcome, units).uncharged();
        let answer = SharedDecision::new(decision, DecidedBy::Server);
        if !reply.done {
            return Ok(Err(answer));
        }
        let id = hold_id(reply.now_us.saturating_add(life_us), identity);
        Ok(Ok(SharedHold::new(self.clone(), key, life, id, answer)))
    }

    async fn check_bytes(&self, key: &[u8], cost: u64) -> SharedDecision {
        if cost == 0 {
            return self.peek_bytes(key, 0).await;
        }
        let dispatch = &self.dispatch;
        match self.ask(key, Question::Check { cost }).await {
            Ok(reply) => {
                let outcome = if reply.granted > 0 { Outcome::Allowed } else { self.denial(cost) };
                SharedDecision::new(self.decision(&reply, outcome, cost), DecidedBy::Server)
            }
            Err(_) => dispatch.guard.fallback(key, cost, dispatch.now()),
        }
    }

    async fn peek_bytes(&self, key: &[u8], cost: u64) -> SharedDecision {
        let dispatch = &self.dispatch;
        match self.ask(key, Question::Peek { cost }).await {
            Ok(reply) => {
                let left = dispatch
                    .plan
                    .remaining(&reply)
                    .saturating_sub(u64::try_from(reply.held.units).unwrap_or(u64::MAX));
                let outcome = if cost <= left { Outcome::Allowed } else { self.denial(cost) };
                SharedDecision::new(self.decision(&reply, outcome, cost).uncharged(), DecidedBy::Server)
            }
            Err(_) => dispatch.guard.without_server((key, cost, Class::ALL), dispatch.now(), Local::peek),
        }
    }

    /// Takes `units` for work whose cost is known later, or denies the work.
    ///
    /// Other requests of the key do not get the units until one of these events settles the hold:
    /// - [`SharedHold::commit`] charges the actual cost, and releases the rest.
    /// - A hold that is dropped is released, in the background.
    /// - [`commit`](Self::commit) and [`release`](Self::release) do the same by the hold's [identity](SharedHold::id), in
    ///   any process.
    /// - Its `life` ends.
    ///
    /// # Errors
    /// Returns the denial if the limits have no room for the units and all holds, or if the key has 4,096 holds.
    /// [`SharedDecision::retry_after`] returns the time until the limits have room, or until the first life ends. The request can
    /// be denied again then, if other holds are still there; and a hold that is settled can make room earlier.
    pub async fn hold<K: Key + ?Sized>(
        &self,
        key: &K,
        units: u64,
        life: Duration,
    ) -> Result<SharedHold, SharedDecision> {
        let (key, dispatch) = (&key.bytes(), &self.dispatch);
        if let Ok(answer) = self.send_hold(key, units, life).await {
            return answer;
        }
        let answer = dispatch.guard.fallback(key, units, dispatch.now());
        if answer.is_denied() {
            return Err(answer);
        }
        Ok(SharedHold::new(self.clone(), key, life, Self::unknown_id(), answer))
    }

    /// Settles the hold with this identity: charges `actual` units, and releases the rest of the hold. Returns the state of
    /// the key afterwards.
    ///
    /// If the hold was settled before its end, this call changes nothing. So a call whose answer was lost can be repeated
    /// until the hold would have ended. After its end, each call charges `actual` as of now.
    ///
    /// # Errors
    /// Returns an error if the server does not answer. The server may have settled the hold.
    pub async fn commit<K: Key + ?Sized>(&self, key: &K, id: HoldId, actual: u64) -> Result<Decision, Error> {
        self.send_commit(&key.bytes(), id, actual).await
    }

    /// Releases the hold with this identity. Returns whether it was there.
    ///
    /// # Errors
    /// Returns an error if the server does not answer. The call can be repeated.
    pub async fn release<K: Key + ?Sized>(&self, key: &K, id: HoldId) -> Result<bool, Error> {
        self.send_release(&key.bytes(), id, Passage::IfClosed).await
    }

    /// Checks one unit for `key` now, and charges it if it is admitted.
    pub async fn check<K: Key + ?Sized>(&self, key: &K) -> SharedDecision {
        self.check_n(key, 1).await
    }

    /// Checks `cost` units for `key` now, and charges all of them or none. The units of holds are not available.
    pub async fn check_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> SharedDecision {
        self.check_bytes(&key.bytes(), cost).await
    }

    /// Returns whether [`check`](Self::check) would admit the request now, and the state of the limits. Charges nothing.
    pub async fn peek<K: Key + ?Sized>(&self, key: &K) -> SharedDecision {
        self.peek_bytes(&key.bytes(), 1).await
    }

    /// Charges `cost` units for `key` now, even if they exceed a limit. See
    /// [`AtomicLimiter::charge_unchecked`](crate::AtomicLimiter::charge_unchecked).
    ///
    /// # Errors
    /// Returns an error if the server does not answer. The server may have charged the units.
    pub async fn charge_unchecked<K: Key + ?Sized>(
        &self,
        key: &K,
        cost: u64,
    ) -> Result<SharedDecision, Error> {
        // A hold that has ended.
        let charged = self.send_commit(&key.bytes(), HoldId::new(0, 0), cost).await?;
        Ok(SharedDecision::new(charged, DecidedBy::Server))
    }

    /// Returns the units of a key that are held.
    ///
    /// # Errors
    /// Returns an error if the server does not answer.
    pub async fn held<K: Key + ?Sized>(&self, key: &K) -> Result<u64, Error> {
        let held = self.ask(&key.bytes(), Question::Peek { cost: 0 }).await?.held;
        Ok(u64::try_from(held.units).unwrap_or(u64::MAX))
    }

    /// Returns the health of the server, as seen by this limiter's calls.
    #[must_use]
    pub fn health(&self) -> Health {
        self.dispatch.guard.health()
    }

    /// Returns the health of each server, if the client has [several](crate::Client::sharded). Otherwise
    /// returns an empty list.
    #[must_use]
    pub fn health_by_server(&self) -> Vec<(Arc<str>, Health)> {
        self.dispatch.guard.health_by_server()
    }
}

impl AsksServer for HoldingLimiter {
    fn ask_about(&self, key: &[u8], cost: u64) -> impl Future<Output = SharedDecision> + Send {
        self.check_bytes(key, cost)
    }
}

impl fmt::Debug for HoldingLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<_> = self.dispatch.plan.limits().collect();
        f.debug_struct("HoldingLimiter").field("limits", &limits).finish_non_exhaustive()
    }
}

/// Units that are taken from a [`HoldingLimiter`] and settled later, or a request in progress of an
/// [`InProgressLimiter`](crate::InProgressLimiter).
///
/// Dropping it releases the units in the background: a task of the runtime in which the hold was taken sends one call, also while
/// the breaker is open, and repeats it until it is answered. If the runtime ends first, the hold ends with its life.
/// [`release`](Self::release) waits for the server instead.
#[must_use = "a hold that is dropped is released"]
pub struct SharedHold {
    limiter: HoldingLimiter,
    key: Box<[u8]>,
    /// The runtime in which the hold was taken.
    runtime: Option<Handle>,
    life: Duration,
    id: HoldId,
    answer: SharedDecision,
    /// Whether the hold is neither settled nor detached.
    is_open: bool,
    /// The permit of this process, and its limit, if this process admitted a request in progress alone and counts it.
    permit: Option<(Permit, LocalLimit)>,
}

/// The requests in progress that this process admitted alone. Made on first use.
pub(super) type LocalLimit = Arc<OnceLock<InProgress<StdClock>>>;

impl SharedHold {
    pub(super) fn new(
        limiter: HoldingLimiter,
        key: &[u8],
        life: Duration,
        id: HoldId,
        answer: SharedDecision,
    ) -> Self {
        let runtime = Handle::try_current().ok();
        Self { limiter, key: key.into(), runtime, life, id, answer, is_open: true, permit: None }
    }

    /// The same hold, whose request in progress this process counts.
    pub(super) fn with_permit(mut self, permit: Option<Permit>, limit: &LocalLimit) -> Self {
        self.permit = permit.map(|permit| (permit, Arc::clone(limit)));
        self
    }

    /// Returns the answer that took the units. Its cost is the number of units.
    pub fn answer(&self) -> SharedDecision {
        self.answer
    }

    /// Returns what took the units.
    #[must_use]
    pub fn by(&self) -> DecidedBy {
        self.answer.by()
    }

    /// Returns the identity, by which another process can settle the hold. Its end is a time of the server's clock.
    ///
    /// If the server did not take the hold, the server does not know the identity. A commit by it charges the units.
    #[must_use]
    pub fn id(&self) -> HoldId {
        self.id
    }

    /// Leaves the hold to a caller that knows its identity. Otherwise it ends with its life.
    pub fn detach(mut self) -> HoldId {
        self.is_open = false;
        if let Some((permit, _)) = self.permit.take() {
            let _ = permit.detach();
        }
        self.id
    }

    /// Lets the hold end later: a life from now. Use it for work that can take longer than any useful life, such as a
    /// stream, and renew it well before the end of its life. Changes the [identity](Self::id). Returns whether the hold was
    /// there.
    ///
    /// If the server did not take the hold, renews a request in progress in this process, without a call. Returns `true` if
    /// nothing counts the hold.
    ///
    /// # Errors
    /// Returns an error if the server does not answer. The hold may then end at its previous end, or a life from now. The
    /// call can be repeated, and the hold ends in both cases when it is dropped.
    pub async fn renew(&mut self) -> Result<bool, Error> {
        if let Some((permit, limit)) = &mut self.permit {
            let was_there = limit.get().is_none_or(|limit| limit.renew(permit));
            self.id = permit.id();
            return Ok(was_there);
        }
        if self.by() != DecidedBy::Server {
            return Ok(true);
        }
        let life_us = micros(self.life);
        let reply = self.limiter.ask(&self.key, Question::Renew { hold: self.id, life_us }).await?;
        if reply.done {
            self.id = hold_id(reply.now_us.saturating_add(life_us), self.id.random());
        }
        Ok(reply.done)
    }

    /// Charges `actual` units, and releases the rest of the hold. Returns the state of the key afterwards.
    ///
    /// If `actual` is more than was held, the difference is charged even if the key cannot spend it. If the life of the hold
    /// has ended, charges `actual` as of now. If this process's share took the hold, it is settled there. For a request in
    /// progress, this ends the request, and charges nothing.
    ///
    /// # Errors
    /// Returns an error if the server does not answer. The server may have settled the hold. Until its end, call
    /// [`HoldingLimiter::commit`] with its identity again; otherwise it ends with its life.
    pub async fn commit(mut self, actual: u64) -> Result<Decision, Error> {
        self.is_open = false;
        if self.permit.is_some() {
            return Ok(self.answer.decision());
        }
        let dispatch = &self.limiter.dispatch;
        if self.by() == DecidedBy::Local
            && let Some(settled) =
                dispatch.guard.settle(&self.key, &self.answer.decision(), actual, dispatch.now())
        {
            return Ok(settled);
        }
        self.limiter.send_commit(&self.key, self.id, actual).await
    }

    /// Releases the hold, and waits for the server. Returns whether it was there.
    ///
    /// # Errors
    /// Returns an error if the server does not answer. The hold then ends with its life at the latest.
    pub async fn release(mut self) -> Result<bool, Error> {
        if self.by() != DecidedBy::Server {
            return Ok(true);
        }
        // If the caller stops waiting, or the call fails, the drop sends it again.
        let was_there = self.limiter.send_release(&self.key, self.id, Passage::IfClosed).await?;
        self.is_open = false;
        Ok(was_there)
    }
}

impl Drop for SharedHold {
    /// Releases the hold without waiting for the server.
    fn drop(&mut self) {
        let Self { limiter, key, .. } = self;
        match self.answer.by() {
            _ if !self.is_open => {}
            DecidedBy::Server => {
                limiter.release_later(self.runtime.as_ref(), std::mem::take(key), self.id, self.life);
            }
            DecidedBy::Local => {
                limiter.dispatch.guard.refund(key, &self.answer.decision(), limiter.dispatch.now());
            }
            _ => {}
        }
    }
}

impl fmt::Debug for SharedHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("SharedHold");
        text.field("id", &self.id).field("units", &self.answer.decision().cost()).finish_non_exhaustive()
    }
}
