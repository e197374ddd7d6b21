//! A server in this process.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate::holds::HoldId;
use tollgate::{Clock, Limit, StdClock};

use super::runtime::{Blocking, Routed};
use super::settings::{InProgressOptions, LimiterBuilder};
use super::sharded::{Routes, ShardError, Shards};
use crate::protocol::model::{KeyState, MARGINS_US, answer_holds, holds_are_over};
use crate::protocol::script::region;
use crate::protocol::{Call, Error, LinkAges, LinkReport, RegionScope, Reply, Scope, Transport, model};
use crate::region::{RegionLinks, RegionState};

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
    keys: Mutex<KeptKeys>,
}

#[derive(Default)]
struct KeptKeys {
    held: HashMap<Vec<u8>, KeptKey, ahash::RandomState>,
    /// The holds of each key. Requests in progress, which have no limits, are apart.
    holds: HashMap<(Vec<u8>, bool), BTreeSet<HoldId>, ahash::RandomState>,
    /// The states of limits that several regions share, with their periods, by the names of their keys.
    regions: HashMap<Vec<u8>, (RegionState, u64), ahash::RandomState>,
    /// What the region of this server knows of its calls to others, for each limiter.
    links: HashMap<Vec<u8>, RegionLinks, ahash::RandomState>,
    /// The number of entries at which the server looks for expired entries.
    sweep_at: usize,
}

#[derive(Default)]
struct KeptKey {
    held: KeyState,
    /// When the key expires, by the clock.
    over_us: u64,
}

impl KeptKeys {
    fn answer(&mut self, call: &Call, now_us: u64) -> Reply {
        if self.stored() >= self.sweep_at.max(SWEEP) {
            self.sweep(now_us);
        }
        match &call.scope {
            Scope::Limits => self.answer_limits(call, now_us),
            Scope::Holds { most_units } => self.answer_holds(call, *most_units, now_us),
            Scope::Region(scope) => self.answer_region(call, scope, now_us),
        }
    }

    fn stored(&self) -> usize {
        self.held.len() + self.holds.len() + self.regions.len()
    }

    /// Removes all that has expired.
    fn sweep(&mut self, now_us: u64) {
        self.held.retain(|_, entry| entry.over_us > now_us);
        self.holds.retain(|_, holds| !holds_are_over(holds, now_us));
        self.regions.retain(|_, (state, period_us)| !state.is_over(*period_us, now_us));
        self.sweep_at = self.stored() * 2;
    }

    fn answer_limits(&mut self, call: &Call, now_us: u64) -> Reply {
        let at_us = time_us(call, now_us);
        let margin_us = MARGINS_US[usize::from(call.now.is_some())];
        let answer = |entry: &mut KeptKey| {
            entry.expire(now_us);
            let reply = model::answer(&call.plan, &mut entry.held, at_us, &call.ask);
            let rest_us = entry.held.rest_us(&call.plan, at_us);
            entry.over_us = entry.over_us.max(now_us.saturating_add(rest_us).saturating_add(margin_us));
            reply
        };
        if let Some(entry) = self.held.get_mut(&call.tag) {
            return answer(entry);
        }
        let mut entry = KeptKey::default();
        let reply = answer(&mut entry);
        if entry.held != KeyState::default() {
            self.held.insert(call.tag.clone(), entry);
        }
        reply
    }

    fn answer_holds(&mut self, call: &Call, most_units: u64, now_us: u64) -> Reply {
        let name = (call.tag.clone(), call.plan.parts().is_empty());
        let mut holds = self.holds.remove(&name).unwrap_or_default();
        let mut limits = |ask| self.answer_limits(&Call { ask, ..call.clone() }, now_us);
        let reply = answer_holds(&mut holds, call, most_units, time_us(call, now_us), &mut limits);
        if !holds.is_empty() {
            self.holds.insert(name, holds);
        }
        reply
    }

    fn answer_region(&mut self, call: &Call, scope: &RegionScope, now_us: u64) -> Reply {
        let entry = self.regions.entry(region::name(call));
        let (state, _) = entry.or_insert_with(|| (RegionState::default(), scope.terms.windows.period_us));
        state.answer(&call.ask, scope, time_us(call, now_us))
    }

    /// The entry of a key, unless it has expired.
    fn live(&self, tag: &[u8], now_us: u64) -> Option<&KeptKey> {
        self.held.get(tag).filter(|entry| entry.over_us > now_us)
    }
}

/// The time of a call, in microseconds.
fn time_us(call: &Call, now_us: u64) -> u64 {
    call.now.map_or(now_us, |now| now.as_nanos() / 1_000)
}

impl KeptKey {
    /// Forgets the state if the key has expired.
    fn expire(&mut self, now_us: u64) {
        if self.over_us <= now_us {
            self.held = KeyState::default();
        }
    }
}

/// With fewer entries than this, the server does not look for expired entries.
const SWEEP: usize = 1_024;

impl InProcess {
    /// Creates an empty server that uses this clock.
    pub fn new(clock: impl Clock + Send + Sync + 'static) -> Self {
        let server = ServerState { clock: Box::new(clock), keys: Mutex::default() };
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
        self.servers.iter().map(|server| server.keys_now().held.len()).sum()
    }

    /// Removes all keys, like a server that restarts without its data.
    pub fn clear(&self) {
        for server in &*self.servers {
            *server.keys_now() = KeptKeys::default();
        }
    }

    /// Answers at this time of the server's clock, unless the call contains a time.
    #[cfg(tollgate_simulation)]
    #[doc(hidden)]
    pub fn answer_at(&self, call: &Call, now_us: u64) -> Reply {
        self.servers[call.place.server].keys_now().answer(call, now_us)
    }
}

impl ServerState {
    /// Returns the keys, and the time in microseconds. The time is read under the lock, when no other call is being
    /// answered. A script does the same: its calls never see time step back.
    fn now(&self) -> (MutexGuard<'_, KeptKeys>, u64) {
        let keys = self.keys_now();
        let now_us = self.clock.now().as_nanos() / 1_000;
        (keys, now_us)
    }

    fn keys_now(&self) -> MutexGuard<'_, KeptKeys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// The states, and how long they live in microseconds.
    type States = (KeyState, u64);

    async fn has_states(&self, call: &Call) -> Result<bool, Error> {
        let (keys, now_us) = self.servers[call.place.server].now();
        Ok(keys.live(&call.tag, now_us).is_some_and(|entry| entry.held.is_complete(&call.plan)))
    }

    async fn read_states(&self, call: &Call) -> Result<Self::States, Error> {
        let (keys, now_us) = self.servers[call.place.server].now();
        let states = |entry: &KeptKey| (entry.held.states(&call.plan), entry.over_us - now_us);
        Ok(keys.live(&call.tag, now_us).map(states).unwrap_or_default())
    }

    async fn write_states(&self, call: &Call, (states, life_us): &Self::States) -> Result<(), Error> {
        let (mut keys, now_us) = self.servers[call.place.server].now();
        if *life_us > 0 {
            let entry = keys.held.entry(call.tag.clone()).or_default();
            entry.expire(now_us);
            entry.held.adopt(&call.plan, states);
            entry.over_us = entry.over_us.max(now_us.saturating_add(*life_us));
        }
        Ok(())
    }

    async fn call(&self, call: &Call) -> Result<Reply, Error> {
        let (mut keys, now_us) = self.servers[call.place.server].now();
        Ok(keys.answer(call, now_us))
    }

    fn is_one_server(&self) -> bool {
        self.servers.len() == 1
    }

    async fn report_links(&self, report: &LinkReport) -> Result<Vec<LinkAges>, Error> {
        let (mut keys, now_us) = self.servers[0].now();
        Ok(keys.links.entry(report.name.clone()).or_default().merge(report, now_us))
    }
}
