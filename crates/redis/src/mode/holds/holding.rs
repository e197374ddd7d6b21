//! A limiter whose units can be held by all processes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tollgate::holds::HoldId;
use tollgate::internals::quota_error;
use tollgate::{Class, Decision, Limit, LimitKind, Outcome, QuotaError};

use super::remote::{RemoteHolds, hold_id, micros};
use crate::client::{Connected, LimiterBuilder};
use crate::guard::{Guard, Health, Passage};
use crate::mode::dispatch::AsksServer;
use crate::protocol::{Answer, DecidedBy, Error, Key, Plan, Question};

/// A limiter on whose units processes can have [holds](Self::hold): units that are taken now, and settled later.
///
/// Use it for costs that are known later, such as the tokens of a language model. [`LimiterBuilder::holding`] builds it. For one
/// process, use [`RateLimiter::with_holds`](tollgate::RateLimiter::with_holds). All clones are the same limiter.
///
/// # How it counts
/// The server decides every request in one atomic step and one round trip. It keeps the holds apart from the counts: a
/// request, or a new hold, is admitted if its units fit into the units left of all limits, less the units of all holds. A
/// commit removes the hold and charges the actual units, in one step. So the units that are charged and held never exceed
/// a limit, while no commit is larger than its hold. A commit that is larger is charged as well, and can leave a debt.
///
/// A hold whose life has ended, by the server's clock, counts nowhere, even if its holder died. The units of a hold do not
/// return with time: unlike in one process, time pays a charge from its commit on.
///
/// Only limiters of this type see the holds. A limiter of another mode with the same name and limits shares the counts, but
/// not the holds.
///
/// # If the server does not answer
/// [`LimiterBuilder::on_failure`] decides, as for an [`AtomicLimiter`](crate::AtomicLimiter). With
/// [`OnFailure::Local`](crate::OnFailure::Local), a hold charges the share of this process, and is settled
/// there. If no answer arrives in time, or the caller stops waiting, the limiter releases the hold by one more call.
/// It sends this call also while the breaker is open, and repeats it after pauses that grow from 50 ms to 15 s, until it is
/// answered, for the life of the hold and at most an hour. If the connection is lost, or the process or its runtime ends
/// first, the server keeps the hold until the end of its life.
///
/// # Cost
/// About 120 bytes at the server for each hold. A key can have at most 4,096 holds, and more are denied. A step removes
/// the holds that have ended: each once, so at most 4,096, which takes about 1.5 ms. The rest takes O(log holds). In a Cluster, a key and its holds
/// are on one node.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_redis::{InProcess, Limit};
/// use tollgate::{ManualClock, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = ManualClock::default();
/// let server = InProcess::new(clock.clone()); // or Client::open("redis://127.0.0.1")?
/// let tokens = server.limiter("tokens", Limit::gcra(Quota::per_minute(10_000))).holding()?;
///
/// let hold = tokens.hold("alice", 4_000, Duration::from_secs(60)).await.expect("10,000 are left");
/// assert!(tokens.check_n("alice", 7_000).await.is_denied());
/// let after = hold.commit(1_500).await?; // the answer had 1,500 tokens
/// assert_eq!(after.remaining(), 8_500);
///
/// let lost = tokens.hold("alice", 8_000, Duration::from_secs(60)).await.expect("8,500 are left");
/// let _ = lost.detach(); // its holder dies
/// assert!(tokens.check_n("alice", 1_000).await.is_denied());
/// clock.advance(Duration::from_secs(60));
/// assert!(tokens.check_n("alice", 1_000).await.is_allowed());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct HoldingLimiter {
    holds: Arc<RemoteHolds>,
}

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
        let holds = RemoteHolds::new(client, thread.clone(), plan, Guard::new(&settings), None);
        Ok(T::form(HoldingLimiter { holds }, thread))
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
    async fn hold_bytes(&self, key: &[u8], units: u64, life: Duration) -> Result<SharedHold, Answer> {
        let (holds, dispatch) = (&self.holds, &self.holds.dispatch);
        let (answer, id, is_held) = match holds.hold(key, units, life).await {
            Ok((reply, id)) => {
                let outcome = if reply.held.done { Outcome::Allowed } else { holds.denial(units) };
                let decision = holds.decision(&reply, outcome, units).uncharged();
                (Answer::new(decision, DecidedBy::Server), id, reply.held.done)
            }
            Err(_) => {
                let answer = dispatch.guard.fallback(key, units, dispatch.now());
                (answer, holds.unknown_id(), answer.is_allowed())
            }
        };
        if !is_held {
            return Err(answer);
        }
        Ok(SharedHold::new(Arc::clone(holds), key, life, id, answer))
    }

    async fn check_bytes(&self, key: &[u8], cost: u64) -> Answer {
        if cost == 0 {
            return self.peek_bytes(key, 0).await;
        }
        let (holds, dispatch) = (&*self.holds, &self.holds.dispatch);
        match holds.ask(key, Question::Check { cost }).await {
            Ok(reply) => {
                let outcome = if reply.granted > 0 { Outcome::Allowed } else { holds.denial(cost) };
                Answer::new(holds.decision(&reply, outcome, cost), DecidedBy::Server)
            }
            Err(_) => dispatch.guard.fallback(key, cost, dispatch.now()),
        }
    }

    async fn peek_bytes(&self, key: &[u8], cost: u64) -> Answer {
        let (holds, dispatch) = (&*self.holds, &self.holds.dispatch);
        match holds.ask(key, Question::Peek { cost }).await {
            Ok(reply) => {
                let left = dispatch.plan.remaining(&reply).saturating_sub(reply.held.units);
                let outcome = if cost <= left { Outcome::Allowed } else { holds.denial(cost) };
                Answer::new(holds.decision(&reply, outcome, cost).uncharged(), DecidedBy::Server)
            }
            Err(_) => dispatch.guard.fallback_peek(Class::ALL, key, cost, dispatch.now()),
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
    /// [`Answer::retry_after`] returns the time until the limits have room, or until the first life ends. The request can
    /// be denied again then, if other holds are still there; and a hold that is settled can make room earlier.
    pub async fn hold<K: Key + ?Sized>(
        &self,
        key: &K,
        units: u64,
        life: Duration,
    ) -> Result<SharedHold, Answer> {
        self.hold_bytes(&key.bytes(), units, life).await
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
        self.holds.commit(&key.bytes(), id, actual).await
    }

    /// Releases the hold with this identity. Returns whether it was there.
    ///
    /// # Errors
    /// Returns an error if the server does not answer. The call can be repeated.
    pub async fn release<K: Key + ?Sized>(&self, key: &K, id: HoldId) -> Result<bool, Error> {
        self.holds.release(&key.bytes(), id, Passage::IfClosed).await
    }

    /// Checks one unit for `key` now, and charges it if it is admitted.
    pub async fn check<K: Key + ?Sized>(&self, key: &K) -> Answer {
        self.check_n(key, 1).await
    }

    /// Checks `cost` units for `key` now, and charges all of them or none. The units of holds are not available.
    pub async fn check_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Answer {
        self.check_bytes(&key.bytes(), cost).await
    }

    /// Returns whether [`check`](Self::check) would admit the request now, and the state of the limits. Charges nothing.
    pub async fn peek<K: Key + ?Sized>(&self, key: &K) -> Answer {
        self.peek_bytes(&key.bytes(), 1).await
    }

    /// Charges `cost` units for `key` now, even if they exceed a limit. See
    /// [`AtomicLimiter::charge_unchecked`](crate::AtomicLimiter::charge_unchecked).
    ///
    /// # Errors
    /// Returns an error if the server does not answer. The server may have charged the units.
    pub async fn charge_unchecked<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Result<Answer, Error> {
        // A hold that has ended.
        let charged = self.holds.commit(&key.bytes(), HoldId::new(0, 0), cost).await?;
        Ok(Answer::new(charged, DecidedBy::Server))
    }

    /// Returns the units of a key that are held.
    ///
    /// # Errors
    /// Returns an error if the server does not answer.
    pub async fn held<K: Key + ?Sized>(&self, key: &K) -> Result<u64, Error> {
        Ok(self.holds.ask(&key.bytes(), Question::Peek { cost: 0 }).await?.held.units)
    }

    /// Returns the health of the server, as seen by this limiter's calls.
    #[must_use]
    pub fn health(&self) -> Health {
        self.holds.dispatch.guard.health()
    }

    /// Returns the health of each server, if the client has [several](crate::Client::sharded). Otherwise
    /// returns an empty list.
    #[must_use]
    pub fn health_by_server(&self) -> Vec<(Arc<str>, Health)> {
        self.holds.dispatch.guard.health_by_server()
    }
}

impl AsksServer for HoldingLimiter {
    fn ask_about(&self, key: &[u8], cost: u64) -> impl Future<Output = Answer> + Send {
        self.check_bytes(key, cost)
    }
}

impl fmt::Debug for HoldingLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<_> = self.holds.dispatch.plan.limits().collect();
        f.debug_struct("HoldingLimiter").field("limits", &limits).finish_non_exhaustive()
    }
}

/// Units that are taken from a [`HoldingLimiter`], and settled later.
///
/// Dropping it releases them in the background: a task of the runtime in which the hold was taken sends one call, also while the
/// breaker is open, and repeats it until it is answered. If the runtime ends first, the hold ends with its life. [`release`](Self::release) waits for the server instead.
#[must_use = "a hold that is dropped is released"]
pub struct SharedHold {
    holds: Arc<RemoteHolds>,
    key: Box<[u8]>,
    /// The runtime in which the hold was taken.
    runtime: Option<Handle>,
    life: Duration,
    id: HoldId,
    answer: Answer,
    /// Whether the hold is neither settled nor detached.
    is_open: bool,
}

impl SharedHold {
    pub(super) fn new(
        holds: Arc<RemoteHolds>,
        key: &[u8],
        life: Duration,
        id: HoldId,
        answer: Answer,
    ) -> Self {
        let runtime = Handle::try_current().ok();
        Self { holds, key: key.into(), runtime, life, id, answer, is_open: true }
    }

    /// Gives the hold an identity that this process alone knows.
    pub(super) fn set_id(&mut self, id: HoldId) {
        self.id = id;
    }

    /// Lets the hold end a life from now. Returns whether it was there.
    pub(super) async fn renew(&mut self) -> Result<bool, Error> {
        let life_us = micros(self.life);
        let reply = self.holds.ask(&self.key, Question::Renew { hold: self.id, life_us }).await?;
        if reply.held.done {
            self.id = hold_id(reply.now_us.saturating_add(life_us), self.id.random());
        }
        Ok(reply.held.done)
    }

    /// Returns the answer that took the units. Its cost is the number of units.
    pub fn answer(&self) -> Answer {
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
        self.id
    }

    /// Charges `actual` units, and releases the rest of the hold. Returns the state of the key afterwards.
    ///
    /// If `actual` is more than was held, the difference is charged even if the key cannot spend it. If the life of the hold
    /// has ended, charges `actual` as of now. If this process's share took the hold, it is settled there.
    ///
    /// # Errors
    /// Returns an error if the server does not answer. The server may have settled the hold. Until its end, call
    /// [`HoldingLimiter::commit`] with its identity again; otherwise it ends with its life.
    pub async fn commit(mut self, actual: u64) -> Result<Decision, Error> {
        self.is_open = false;
        let dispatch = &self.holds.dispatch;
        if self.by() == DecidedBy::Local
            && let Some(settled) =
                dispatch.guard.settle(&self.key, &self.answer.decision(), actual, dispatch.now())
        {
            return Ok(settled);
        }
        self.holds.commit(&self.key, self.id, actual).await
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
        let was_there = self.holds.release(&self.key, self.id, Passage::IfClosed).await?;
        self.is_open = false;
        Ok(was_there)
    }
}

impl Drop for SharedHold {
    /// Releases the hold without waiting for the server.
    fn drop(&mut self) {
        let Self { holds, key, .. } = self;
        match self.answer.by() {
            _ if !self.is_open => {}
            DecidedBy::Server => {
                holds.release_later(self.runtime.as_ref(), std::mem::take(key), self.id, self.life);
            }
            DecidedBy::Local => {
                holds.dispatch.guard.refund(key, &self.answer.decision(), holds.dispatch.now());
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
