//! The holds at the server of a limiter: its calls, and what the replies mean.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use tollgate::holds::HoldId;
use tollgate::internals::holding::HoldIds;
use tollgate::internals::{Facts, saturating_nanos};
use tollgate::{Decision, Outcome, StdClock, Timestamp};

use crate::client::{OnDrop, RuntimeThread};
use crate::guard::{Guard, Passage};
use crate::mode::dispatch::Dispatch;
use crate::protocol::{
    Error, ErrorKind, HeldUnits, MOST_HELD, Plan, Question, Reply, Scope, Transport, identity_of,
};

/// The longest life. The server counts ends exactly.
const LONGEST_US: u64 = 1 << 52;

/// The pauses between the calls of a release that is not answered: they double, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// For how long a release is repeated at most.
const LONGEST_RELEASE: Duration = Duration::from_secs(3_600);

/// The holds that a server keeps for a limiter.
pub(super) struct RemoteHolds {
    pub(super) dispatch: Dispatch<StdClock>,
    ids: HoldIds,
    /// The most units that a key can hold: the limit on requests in progress, for a limiter of that kind.
    pub(super) most_units: u64,
}

impl RemoteHolds {
    /// `limit` is the limit on requests in progress, for a limiter of that kind.
    pub(super) fn new(
        client: impl Transport,
        thread: Option<RuntimeThread>,
        plan: Plan,
        guard: Guard,
        limit: Option<u64>,
    ) -> Arc<Self> {
        let most_units = limit.unwrap_or(MOST_HELD).min(MOST_HELD);
        let dispatch =
            Dispatch::of(client, thread, plan, guard, Scope::Holds { most_units }, StdClock::new());
        Arc::new(Self { dispatch, ids: HoldIds::default(), most_units })
    }

    pub(super) async fn ask(&self, key: &[u8], ask: Question) -> Result<Reply, Error> {
        self.dispatch.ask(&self.dispatch.call(key, ask, None)).await
    }

    /// Releases a hold. Returns whether it was there.
    pub(super) async fn release(&self, key: &[u8], id: HoldId, passage: Passage) -> Result<bool, Error> {
        let call = self.dispatch.call(key, Question::Release { hold: id }, None);
        Ok(self.dispatch.send(&call, passage).await?.held.done)
    }

    /// Settles a hold. Returns the state of the key afterwards.
    pub(super) async fn commit(&self, key: &[u8], hold: HoldId, units: u64) -> Result<Decision, Error> {
        let reply = self.ask(key, Question::Commit { hold, units }).await?;
        Ok(self.decision(&reply, Outcome::Allowed, units).forced())
    }

    /// Asks the server to hold the units. Returns its reply, and the identity of the hold.
    ///
    /// If the caller stops waiting, or no answer arrives in time, the server may have the hold, so it is released.
    pub(super) async fn hold(
        self: &Arc<Self>,
        key: &[u8],
        units: u64,
        life: Duration,
    ) -> Result<(Reply, HoldId), Error> {
        let (identity, life_us) = (identity_of(self.ids.next(), units), micros(life));
        let (runtime, unknown_end) = (Handle::try_current().ok(), HoldId::new(0, identity));
        let lost = OnDrop::new(|| self.release_later(runtime.as_ref(), key.into(), unknown_end, life));
        let answer = self.ask(key, Question::Hold { units, life_us, identity }).await;
        if !answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Timeout) {
            lost.cancel();
        }
        let reply = answer?;
        let id = hold_id(reply.now_us.saturating_add(life_us), identity);
        Ok((reply, id))
    }

    /// An identity that the server does not know, and whose end has passed.
    pub(super) fn unknown_id(&self) -> HoldId {
        HoldId::new(0, self.ids.next())
    }

    /// Releases a hold without waiting for the answer, also while the breaker is open. If none arrives, a task repeats the call after growing pauses until
    /// the hold has ended by itself, which is at most `life` from now.
    pub(super) fn release_later(
        self: &Arc<Self>,
        runtime: Option<&Handle>,
        key: Box<[u8]>,
        id: HoldId,
        life: Duration,
    ) {
        let own = Arc::clone(self);
        match runtime {
            Some(runtime) => drop(runtime.spawn(async move { own.release_until(&key, id, life).await })),
            // A server in this process answers at once. Other servers need a runtime.
            None => drop(self.release(&key, id, Passage::Always).now_or_never()),
        }
    }

    /// Releases a hold. Repeats the call until the server answers, or the hold has ended.
    async fn release_until(&self, key: &[u8], id: HoldId, life: Duration) {
        let (began, most) = (Instant::now(), life.min(LONGEST_RELEASE));
        let mut pause = FIRST_PAUSE;
        while let Err(error) = self.release(key, id, Passage::Always).await {
            let is_lasting = matches!(error.kind(), ErrorKind::Address | ErrorKind::Reply);
            if is_lasting || began.elapsed().saturating_add(pause) >= most {
                return;
            }
            sleep(pause).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    /// Returns the outcome of a request of this cost that the server denied.
    pub(super) fn denial(&self, cost: u64) -> Outcome {
        if cost > self.dispatch.plan.most().min(self.most_units) { Outcome::Never } else { Outcome::Denied }
    }

    /// The decision about a request of this cost. The figures describe the state after the call, without the held units.
    pub(super) fn decision(&self, reply: &Reply, outcome: Outcome, cost: u64) -> Decision {
        let (plan, HeldUnits { units: held, first_us, last_us, .. }) = (&*self.dispatch.plan, reply.held);
        let at = Timestamp::from_nanos(reply.now_us.saturating_mul(1_000));
        let until_ns = |end_us: u64| end_us.saturating_sub(reply.now_us).saturating_mul(1_000);
        let is_limited = !plan.parts().is_empty();
        let room = if is_limited { plan.remaining(reply) } else { self.most_units };
        let remaining = room.saturating_sub(held);
        // The limits have room for the request and for all holds, or a hold ends.
        let wanted = if outcome == Outcome::Denied { cost } else { u64::from(remaining == 0) };
        let of_limits = is_limited.then(|| plan.peeked(reply, wanted.saturating_add(held), at));
        let refilled_ns = of_limits.filter(|of| of.outcome() == Outcome::Denied).map(|of| of.retry_ns());
        // Without held units, the end of a hold makes room only if the key has as many holds as it can.
        let is_full = outcome == Outcome::Denied && first_us > 0 && refilled_ns.is_none();
        let ended_ns = (held > 0 || is_full).then(|| until_ns(first_us));
        let facts = Facts::Plain {
            remaining,
            retry_ns: refilled_ns.into_iter().chain(ended_ns).min().unwrap_or(0),
            reset_ns: of_limits.map_or(0, |of| of.reset_ns()).max(until_ns(last_us)),
            delay_ns: 0,
        };
        let limit = of_limits.map_or(self.most_units, |of| of.limit());
        Decision::new(outcome, cost, limit, at.as_nanos(), facts)
    }
}

/// A life in microseconds, rounded up: at most 142 years.
pub(super) fn micros(life: Duration) -> u64 {
    saturating_nanos(life).div_ceil(1_000).min(LONGEST_US)
}

/// The identity of a hold that ends at this time of the server.
pub(super) fn hold_id(end_us: u64, identity: u128) -> HoldId {
    HoldId::new(end_us.saturating_mul(1_000), identity)
}
