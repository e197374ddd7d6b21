//! A limit on the requests of a key that are in progress in all processes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate::holds::{HoldId, InProgress, Permit};
use tollgate::internals::quota_error;
use tollgate::{QuotaError, SharedDecision, StdClock};
use tollgate_protocol::{Error, Key, Plan};

use super::holding::{LocalLimit, SharedHold};
use super::remote::HoldingLimiter;
use crate::client::{Connected, InProgressOptions, LimiterBuilder};
use crate::guard::{Guard, Health, Passage};

/// A limit on the requests of each key that are in progress at the same time, in all processes.
///
/// A request is in progress until its [`SharedHold`] is released or dropped, until [`leave`](Self::leave) ends it, or until its life
/// has ended. A process that dies, or is cut off, therefore occupies its places only for the lives of its requests.
/// [`Client::in_progress`](crate::Client::in_progress) begins the builder. For one process, use
/// [`holds::InProgress`](tollgate::holds::InProgress). All clones are the same limiter.
///
/// # Consistency
/// The server counts the requests, in one atomic step and one round trip for each request that begins, and one for each
/// that ends. At most `limit` units of a key are in progress, however many processes share the limit, as long as the
/// server keeps its data. All times are the server's: a request that has ended by its clock counts nowhere. If the
/// server's clock steps back, requests end later, by the step. If no answer arrives in
/// time, or the caller stops waiting, the limiter withdraws the request by one more call. It sends this call
/// also while the breaker is open, and repeats it after pauses that grow from 50 ms to 15 s, until it is answered, for the
/// life of the request and at most an hour. If the connection is lost, or the process or its runtime ends first, the server
/// counts the request until the end of its life.
///
/// # If the server does not answer
/// [`on_failure`](LimiterBuilder::on_failure) decides, as for other limiters. With
/// [`OnFailure::Local`](crate::OnFailure::Local), this process admits its share of the limit, and at least one
/// unit, in addition to the requests that the server counts. [`SharedHold::by`] names what decided.
///
/// # Cost
/// About 120 bytes at the server for each request in progress. At most 4,096 requests of a key can be in progress, and
/// more are denied. A step removes the requests that have ended: each once, so at most 4,096, which takes about 1.5 ms. The
/// rest takes O(log requests). In a Cluster, each key is on one node.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_redis::InProcess;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = InProcess::default(); // or Client::open("redis://127.0.0.1")?
/// let exports = server.in_progress("exports", 2).life(Duration::from_secs(300)).build()?;
/// let first = exports.try_enter("alice", 1).await.expect("none is in progress");
/// let second = exports.try_enter("alice", 1).await.expect("one is in progress");
/// let denied = exports.try_enter("alice", 1).await.expect_err("two are in progress");
/// assert!(denied.retry_after().unwrap() <= Duration::from_secs(300)); // a life ends, or a request ends earlier
/// first.release().await?;
/// assert!(exports.try_enter("alice", 1).await.is_ok());
/// # drop(second);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct InProgressLimiter {
    holding: HoldingLimiter,
    life: Duration,
    local: LocalLimit,
}

impl<T: Connected> LimiterBuilder<T, InProgressOptions> {
    /// Builds the limiter. Sends nothing.
    ///
    /// # Errors
    /// Returns an error if the life is zero, because no request would count.
    pub fn build(self) -> Result<T::Form<InProgressLimiter>, QuotaError> {
        let (settings, InProgressOptions { limit, life }) = (self.settings(), self.options);
        if life.is_zero() {
            return Err(quota_error(
                "the life of a request in progress is zero, so no request would count; set a longer life"
                    .to_owned(),
            ));
        }
        let guard = Guard::of(&settings, limit);
        let (client, thread) = self.client.split();
        let holding = HoldingLimiter::new(client, thread.clone(), Plan::new(&[])?, guard, Some(limit));
        Ok(T::form(InProgressLimiter { holding, life, local: Arc::default() }, thread))
    }
}

impl InProgressLimiter {
    /// Decides while the server is unavailable.
    fn enter_alone(&self, key: &[u8], units: u64) -> Result<SharedHold, SharedDecision> {
        let Self { holding, life, local } = self;
        let (dispatch, most) = (&holding.dispatch, holding.most_units);
        let mut entered = None;
        let answer = dispatch.guard.fallback_by((key, units, most), dispatch.now(), |processes| {
            let share = (most / u64::from(processes.max(1))).max(1).min(most);
            let local = local.get_or_init(|| InProgress::new(share).clock(StdClock::new()).life(*life));
            Some(match local.try_enter(key, units) {
                Ok(permit) => entered.insert(permit).decision(),
                Err(denied) => denied.decision(),
            })
        });
        if answer.is_denied() {
            return Err(answer);
        }
        let id = entered.as_ref().map_or_else(HoldingLimiter::unknown_id, Permit::id);
        let hold = SharedHold::new(holding.clone(), key, *life, id, answer);
        Ok(hold.with_permit(entered, local))
    }

    /// Begins a request of `units` for `key`, or denies it. The request ends when the hold is released or dropped, or after its life.
    ///
    /// # Errors
    /// Returns the denial if the key would have more units in progress than its limit, or 4,096 requests.
    /// [`SharedDecision::retry_after`] returns the time until the first life ends; a request can end earlier.
    pub async fn try_enter<K: Key + ?Sized>(
        &self,
        key: &K,
        units: u64,
    ) -> Result<SharedHold, SharedDecision> {
        let key = &key.bytes();
        match self.holding.send_hold(key, units, self.life).await {
            Ok(answer) => answer,
            Err(_) => self.enter_alone(key, units),
        }
    }

    /// Ends the request with this identity, which any process can have begun. Returns whether it was in progress.
    ///
    /// # Errors
    /// Returns an error if the server does not answer. The request then ends with its life at the latest. The call can be
    /// repeated.
    pub async fn leave<K: Key + ?Sized>(&self, key: &K, id: HoldId) -> Result<bool, Error> {
        let key = &*key.bytes();
        if self.local.get().is_some_and(|local| local.leave(key, id)) {
            return Ok(true);
        }
        self.holding.send_release(key, id, Passage::IfClosed).await
    }

    /// Returns the units of a key that are in progress, by the server.
    ///
    /// # Errors
    /// Returns an error if the server does not answer.
    pub async fn current<K: Key + ?Sized>(&self, key: &K) -> Result<u64, Error> {
        self.holding.held(key).await
    }

    /// Returns the health of the server, as seen by this limiter's calls.
    #[must_use]
    pub fn health(&self) -> Health {
        self.holding.dispatch.guard.health()
    }

    /// Returns the health of each server, if the client has [several](crate::Client::sharded). Otherwise
    /// returns an empty list.
    #[must_use]
    pub fn health_by_server(&self) -> Vec<(Arc<str>, Health)> {
        self.holding.dispatch.guard.health_by_server()
    }
}

impl fmt::Debug for InProgressLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("InProgressLimiter");
        text.field("limit", &self.holding.most_units).field("life", &self.life).finish_non_exhaustive()
    }
}
