//! How limiters of all modes call the server.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tollgate::{Clock, DecidedBy, QuotaError, SharedDecision, Timestamp};
use tollgate_protocol::{Call, Error, Key, Plan, Question, Reply, Scope, Transport};

use crate::client::{Blocking, RuntimeThread, Settings};
use crate::guard::{Guard, Passage};

/// A call under way. This is the only allocation that a future of a limiter makes for a call.
type Carried<'c> = Pin<Box<dyn Future<Output = Result<Reply, Error>> + Send + 'c>>;

/// A client of any type, which carries calls through a guard.
trait Carrier: Send + Sync {
    fn carry<'c>(&'c self, guard: &'c Guard, call: &'c Call, passage: Passage) -> Carried<'c>;
}

/// A client, and the thread that runs it, if its callers block.
struct Link<T> {
    client: T,
    thread: Option<RuntimeThread>,
}

impl<T: Transport> Carrier for Link<T> {
    fn carry<'c>(&'c self, guard: &'c Guard, call: &'c Call, passage: Passage) -> Carried<'c> {
        Box::pin(async move {
            self.thread.as_ref().map_or(Ok(()), RuntimeThread::start)?;
            guard.send(&self.client, call, passage).await
        })
    }
}

/// A limiter's clock and its connection to the server. It hides the type of the client, so that limiters of all clients
/// have one type.
pub(crate) struct Dispatch<C> {
    pub(crate) plan: Arc<Plan>,
    pub(crate) guard: Guard,
    scope: Scope,
    clock: C,
    client: Box<dyn Carrier>,
}

impl<C: Clock> Dispatch<C> {
    pub(crate) fn new(
        client: impl Transport,
        thread: Option<RuntimeThread>,
        settings: &Settings,
        clock: C,
    ) -> Result<Self, QuotaError> {
        let plan = Plan::new(&settings.limits)?;
        Ok(Self::of(client, thread, plan, Guard::new(settings), Scope::Limits, clock))
    }

    pub(crate) fn of(
        client: impl Transport,
        thread: Option<RuntimeThread>,
        plan: Plan,
        guard: Guard,
        scope: Scope,
        clock: C,
    ) -> Self {
        Self { plan: Arc::new(plan), guard, scope, clock, client: Box::new(Link { client, thread }) }
    }

    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.now().as_nanos()
    }

    /// A call about a key. Without a time, the server's time decides.
    pub(crate) fn call(&self, key: &[u8], ask: Question, now: Option<Timestamp>) -> Call {
        self.call_by(&self.plan, key, ask, now)
    }

    /// A call by another plan of the same states.
    pub(crate) fn call_by(
        &self,
        plan: &Arc<Plan>,
        key: &[u8],
        ask: Question,
        now: Option<Timestamp>,
    ) -> Call {
        Call { scope: self.scope.clone(), ..self.guard.places().call(plan, key, ask, now) }
    }

    /// Sends a call, unless the breaker of its server is open.
    pub(crate) async fn ask(&self, call: &Call) -> Result<Reply, Error> {
        self.send(call, Passage::IfClosed).await
    }

    pub(crate) async fn send(&self, call: &Call, passage: Passage) -> Result<Reply, Error> {
        self.client.carry(&self.guard, call, passage).await
    }

    /// Asks the server to decide one request. The decision is as of this limiter's clock.
    pub(crate) async fn check(&self, key: &[u8], cost: u64) -> SharedDecision {
        let question = if cost == 0 { Question::Peek { cost: 0 } } else { Question::Check { cost } };
        let reply = self.ask(&self.call(key, question, None)).await;
        let now = self.now();
        match reply {
            Ok(reply) => SharedDecision::new(self.plan.decision(&reply, cost, now), DecidedBy::Server),
            Err(_) => self.guard.fallback(key, cost, now),
        }
    }

    /// Decides a request of a caller that cannot wait for the server, as if the server were unavailable.
    #[cfg(feature = "rules")]
    pub(crate) fn decide_without_server(&self, key: &[u8], cost: u64) -> SharedDecision {
        self.guard.fallback(key, cost, self.now())
    }
}

/// A limiter that asks the server about each request.
pub trait AsksServer {
    /// Checks the cost for a key, and charges all of it or nothing.
    fn ask_about(&self, key: &[u8], cost: u64) -> impl Future<Output = SharedDecision> + Send;
}

impl<L: AsksServer> Blocking<L> {
    /// Checks one unit for `key` now, and charges it if it is admitted. Waits for the server.
    pub fn check<K: Key + ?Sized>(&self, key: &K) -> SharedDecision {
        self.check_n(key, 1)
    }

    /// Checks `cost` units for `key` now, and charges all of them or none. Waits for the server.
    pub fn check_n<K: Key + ?Sized>(&self, key: &K, cost: u64) -> SharedDecision {
        let key = key.bytes();
        self.block_on(|limiter| limiter.ask_about(&key, cost))
    }
}
