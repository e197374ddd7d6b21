//! A server in this process.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate::{Clock, Limit, StdClock};
use tollgate_protocol::{Call, Error, KeyStates, LinkAges, LinkReport, Reply, ServerModel, Transport};

use super::runtime::{Blocking, Routed};
use super::settings::{InProgressOptions, LimiterBuilder};
use super::sharded::{Routes, ShardError, Shards};

/// A server in this process, for your tests and for simulations. It gives the same answers as the script on a real
/// server, without a delay.
///
/// It can use any [`Clock`], in whole microseconds. All clones are the same server. For the limiters for threads that block,
/// use [`InProcess::blocking`].
///
/// # Examples
/// ```
/// use tollgate_redis::{InProcess, Limit};
/// use tollgate::{ManualClock, Quota};
///
/// let clock = ManualClock::default();
/// let server = InProcess::new(clock.clone());
/// // One limiter in each of two services.
/// let ours = server.limiter("api", Limit::gcra(Quota::per_second(2)));
/// let theirs = server.limiter("api", Limit::gcra(Quota::per_second(2)));
/// # let _ = (ours, theirs);
/// ```
#[derive(Clone)]
pub struct InProcess {
    /// In the order of the routes.
    servers: Arc<[Arc<ServerState>]>,
    routes: Arc<Routes>,
}

struct ServerState {
    clock: Box<dyn Clock + Send + Sync>,
    model: Mutex<ServerModel>,
}

impl InProcess {
    /// Creates an empty server that uses this clock.
    pub fn new(clock: impl Clock + Send + Sync + 'static) -> Self {
        let server = ServerState { clock: Box::new(clock), model: Mutex::default() };
        Self { servers: [Arc::new(server)].into(), routes: Arc::default() }
    }

    /// Creates a server that spreads keys over several servers in this process, as
    /// [`Client::sharded`](crate::Client::sharded) spreads keys over servers.
    ///
    /// # Errors
    /// The errors of [`Client::sharded`](crate::Client::sharded).
    ///
    /// # Examples
    /// ```
    /// use tollgate::Quota;
    /// use tollgate_redis::{InProcess, Limit, Shard};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let [one, two] = [InProcess::default(), InProcess::default()];
    /// let both = InProcess::sharded([Shard::new("one", one.clone()), Shard::new("two", two.clone()).weight(2)])?;
    /// let limiter = both.limiter("api", Limit::gcra(Quota::per_hour(10))).atomic()?;
    /// for user in 0..90_u32 {
    ///     assert!(limiter.check(&user).await.is_allowed());
    /// }
    /// assert!(one.keys() > 0 && two.keys() > one.keys());
    /// assert_eq!(one.keys() + two.keys(), 90);
    /// # Ok(()) }
    /// ```
    pub fn sharded(servers: impl Into<Shards<Self>>) -> Result<Self, ShardError> {
        let single = |server: Self| match &*server.servers {
            [state] if server.routes.names().is_empty() => Some(Arc::clone(state)),
            _ => None,
        };
        let (servers, routes) = servers.into().resolve(single)?;
        Ok(Self { servers, routes })
    }

    /// Returns a builder for a limiter with this name. All limiters with the same name, prefix and limits share their
    /// state.
    pub fn limiter(&self, name: &str, limit: impl Into<Limit>) -> LimiterBuilder<Self> {
        LimiterBuilder::new(self.clone(), &self.routes, name, &[limit.into()])
    }

    /// Returns a builder for a limit of `limit` units in progress for each key. All limits with the same name and prefix
    /// share their state.
    pub fn in_progress(&self, name: &str, limit: u64) -> LimiterBuilder<Self, InProgressOptions> {
        LimiterBuilder::in_progress(self.clone(), &self.routes, name, limit)
    }

    /// Returns the same server, for threads that block.
    #[must_use]
    pub fn blocking(&self) -> Blocking<Self> {
        Blocking::new(self.clone())
    }

    /// Returns the number of keys, including expired keys that are not yet removed.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.servers.iter().map(|server| server.model_now().keys()).sum()
    }

    /// Removes all keys, like a server that restarts without its data.
    pub fn clear(&self) {
        for server in &*self.servers {
            *server.model_now() = ServerModel::default();
        }
    }

    /// Answers at this time of the server's clock, unless the call contains a time.
    #[cfg(tollgate_simulation)]
    #[doc(hidden)]
    pub fn answer_at(&self, call: &Call, now_us: u64) -> Reply {
        self.servers[call.place.server].model_now().answer(call, now_us)
    }
}

impl ServerState {
    /// Returns the model of the server, and the time in microseconds. The time is read under the lock, when no other call is being
    /// answered. A script does the same: its calls never see time step back.
    fn now(&self) -> (MutexGuard<'_, ServerModel>, u64) {
        let model = self.model_now();
        let now_us = self.clock.now().as_nanos() / 1_000;
        (model, now_us)
    }

    fn model_now(&self) -> MutexGuard<'_, ServerModel> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Uses the system's clock.
impl Default for InProcess {
    fn default() -> Self {
        Self::new(StdClock::new())
    }
}

impl Routed for InProcess {
    fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").field("keys", &self.keys()).finish_non_exhaustive()
    }
}

impl Transport for InProcess {
    type States = KeyStates;

    async fn has_states(&self, call: &Call) -> Result<bool, Error> {
        let (model, now_us) = self.servers[call.place.server].now();
        Ok(model.has_states(call, now_us))
    }

    async fn read_states(&self, call: &Call) -> Result<KeyStates, Error> {
        let (model, now_us) = self.servers[call.place.server].now();
        Ok(model.read_states(call, now_us))
    }

    async fn write_states(&self, call: &Call, states: &KeyStates) -> Result<(), Error> {
        let (mut model, now_us) = self.servers[call.place.server].now();
        model.write_states(call, states, now_us);
        Ok(())
    }

    async fn call(&self, call: &Call) -> Result<Reply, Error> {
        let (mut model, now_us) = self.servers[call.place.server].now();
        Ok(model.answer(call, now_us))
    }

    fn is_one_server(&self) -> bool {
        self.servers.len() == 1
    }

    async fn report_links(&self, report: &LinkReport) -> Result<Vec<LinkAges>, Error> {
        let (mut model, now_us) = self.servers[0].now();
        Ok(model.report_links(report, now_us))
    }
}
