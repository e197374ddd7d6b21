//! The holds that a server keeps for a limiter: the calls, and what the replies mean.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use tollgate::holds::HoldId;
use tollgate::internals::holding::KeyStanding;
use tollgate::internals::{Facts, saturating_nanos};
use tollgate::{Decision, Outcome, StdClock, Timestamp};
use tollgate_protocol::{Error, ErrorKind, MOST_HELD, Plan, Question, Reply, Scope, Transport};

use crate::client::RuntimeThread;
use crate::guard::{Guard, Passage};
use crate::mode::dispatch::Dispatch;

/// The longest life. The server counts ends exactly.
const LONGEST_US: u64 = 1 << 52;

/// The pauses between the calls of a release that is not answered: they double, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// For how long a release is repeated at most.
const LONGEST_RELEASE: Duration = Duration::from_secs(3_600);

/// A limiter on whose units processes can have [holds](Self::hold): units that are taken now, and settled later.
///
/// Use it for costs that are known later, such as the tokens of a language model. [`LimiterBuilder::holding`](crate::LimiterBuilder::holding) builds it. For one
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
/// [`LimiterBuilder::on_failure`](crate::LimiterBuilder::on_failure) decides, as for an [`AtomicLimiter`](crate::AtomicLimiter). With
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
    pub(super) dispatch: Arc<Dispatch<StdClock>>,
    /// The most units that a key can hold: the limit on requests in progress, for a limiter of that kind.
    pub(super) most_units: u64,
}

impl HoldingLimiter {
    /// `limit` is the limit on requests in progress, for a limiter of that kind.
    pub(super) fn new(
        client: impl Transport,
        thread: Option<RuntimeThread>,
        plan: Plan,
        guard: Guard,
        limit: Option<u64>,
    ) -> Self {
        let most_units = limit.unwrap_or(MOST_HELD).min(MOST_HELD);
        let dispatch =
            Dispatch::of(client, thread, plan, guard, Scope::Holds { most_units }, StdClock::new());
        Self { dispatch: Arc::new(dispatch), most_units }
    }

    pub(super) async fn ask(&self, key: &[u8], ask: Question) -> Result<Reply, Error> {
        self.dispatch.ask(&self.dispatch.call(key, ask, None)).await
    }

    /// Releases a hold. Returns whether it was there.
    pub(super) async fn send_release(&self, key: &[u8], id: HoldId, passage: Passage) -> Result<bool, Error> {
        let call = self.dispatch.call(key, Question::Release { hold: id }, None);
        Ok(self.dispatch.send(&call, passage).await?.done)
    }

    /// Settles a hold. Returns the state of the key afterwards.
    pub(super) async fn send_commit(&self, key: &[u8], hold: HoldId, units: u64) -> Result<Decision, Error> {
        let reply = self.ask(key, Question::Commit { hold, units }).await?;
        Ok(self.decision(&reply, Outcome::Allowed, units).forced())
    }

    /// An identity that the server does not know, and whose end has passed.
    pub(super) fn unknown_id() -> HoldId {
        HoldId::unique(0)
    }

    /// Releases a hold without waiting for the answer, also while the breaker is open. If none arrives, a task repeats the call after growing pauses until
    /// the hold has ended by itself, which is at most `life` from now.
    pub(super) fn release_later(&self, runtime: Option<&Handle>, key: Box<[u8]>, id: HoldId, life: Duration) {
        let own = self.clone();
        match runtime {
            Some(runtime) => drop(runtime.spawn(async move { own.release_until(&key, id, life).await })),
            // A server in this process answers at once. Other servers need a runtime.
            None => drop(self.send_release(&key, id, Passage::Always).now_or_never()),
        }
    }

    /// Releases a hold. Repeats the call until the server answers, or the hold has ended.
    async fn release_until(&self, key: &[u8], id: HoldId, life: Duration) {
        let (began, most) = (Instant::now(), life.min(LONGEST_RELEASE));
        let mut pause = FIRST_PAUSE;
        while let Err(error) = self.send_release(key, id, Passage::Always).await {
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
        let (plan, KeyStanding { units, ends_ns }) = (&*self.dispatch.plan, reply.held);
        let held = u64::try_from(units).unwrap_or(u64::MAX);
        let at = Timestamp::from_nanos(reply.now_us.saturating_mul(1_000));
        let until_ns = |end_ns: u64| end_ns.saturating_sub(at.as_nanos());
        let is_limited = !plan.parts().is_empty();
        let room = if is_limited { plan.remaining(reply) } else { self.most_units };
        let remaining = room.saturating_sub(held);
        // The limits have room for the request and for all holds, or a hold ends.
        let wanted = if outcome == Outcome::Denied { cost } else { u64::from(remaining == 0) };
        let of_limits = is_limited.then(|| plan.peeked(reply, wanted.saturating_add(held), at));
        let refilled_ns = of_limits.filter(|of| of.outcome() == Outcome::Denied).map(|of| of.retry_ns());
        // Without held units, the end of a hold makes room only if the key has as many holds as it can.
        let is_full = outcome == Outcome::Denied && refilled_ns.is_none();
        let ended_ns = ends_ns.filter(|_| held > 0 || is_full).map(|(first, _)| until_ns(first));
        let facts = Facts::Plain {
            remaining,
            retry_ns: refilled_ns.into_iter().chain(ended_ns).min().unwrap_or(0),
            reset_ns: of_limits
                .map_or(0, |of| of.reset_ns())
                .max(ends_ns.map_or(0, |(_, last)| until_ns(last))),
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
