//! The guard between the modes and the server. It calls the server while the server answers, and decides requests while
//! the server does not answer.
//!
//! 1. A call chooses the breaker of its part of the shared state. If the breaker is open, the call fails without being
//!    sent.
//! 2. The call is sent, and waits for at most the time-out.
//! 3. The call reports its result to the breaker. If its caller drops it before the result, the drop reports.
//! 4. If the call failed, the mode asks the guard to decide the request by the limiter's [`OnFailure`].
//!
//! | error | does the breaker count it? |
//! |---|---|
//! | timeout, unreachable, refused | yes: the server failed |
//! | reply (not from our script), address | no: the server runs, or the address was never valid; a pause repairs neither |
//! | breaker | no: the call was not sent |
//!
//! *A late process.* If this process notices a time-out late, by more than half of the time-out, then this process was
//! not scheduled. An answer may have arrived in time without being read. The call is lost, but the breaker does not
//! count it as a failure of the server.
//!
//! *Callers that stop waiting.* A future can be dropped before its answer arrives. If it was dropped early, this says
//! nothing about the server, and it does not count. So clients that hang up cannot open the breaker. If it had waited
//! for at least a quarter of the time-out, it counts as a failure. So callers with shorter time-outs than the limiter's
//! can open the breaker. A probe that is dropped, early or late, opens the breaker again for a pause of the same
//! length.
//!
//! *Releases.* A call that ends a hold in the background is sent although the breaker is open, because no other call ends
//! the hold. It reports its result only if the breaker permitted it. Such calls are few: one for each call that was in flight,
//! and for each permit that is dropped. Pauses between their repetitions grow.
//!
//! *Several servers.* Each server of a [set](crate::Shards) has its own breakers and counts.
//!
//! *Clusters.* A node that is down must not block requests to other nodes. Successes on other nodes must also not reset
//! its count of failures in a row. So the guard has several breakers, one for each part of the shared state. In a
//! Cluster, the node that holds the key determines the breaker. A node that takes over slots has its own closed
//! breaker, so it is called immediately.

mod breaker;
mod health;
mod local;
mod moved;

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use tokio::runtime::Handle;
use tollgate::internals::sync::{AtomicU64, Ordering};
use tollgate::internals::{Facts, saturating_nanos};
use tollgate::{Class, Clock, DecidedBy, Decision, Limit, Outcome, SharedDecision, Timestamp, TokioClock};
use tollgate_protocol::slot::PARTS;
use tollgate_protocol::{Call, Error, ErrorKind, Reply, Transport};

pub use self::breaker::BreakerState;
use self::breaker::{BreakerChange, Circuit, Permit};
pub use self::health::Health;
use self::health::{GuardCount, Tallies};
pub(crate) use self::local::Local;
use crate::client::{KeyPlaces, OnFailure, Settings};
use crate::telemetry::{LimiterServer, server_fails, server_works};

/// The retry time of a denial, if no breaker gives the time of the next call.
const A_SECOND_NS: u64 = 1_000_000_000;

/// The maximum for the time that twice the time-out gives a probe to report.
const LONGEST_PROBE: Duration = Duration::from_secs(60);

/// Applies an operation to this process's share, for a key, a cost and a class.
pub(crate) type LocalVerb = fn(&Local, &[u8], u64, Class, Timestamp) -> Option<Decision>;

/// The guard of one limiter; see the module docs.
pub(crate) struct Guard {
    /// In the order of the routes.
    servers: Box<[ServerGuard]>,
    settings: Settings,
    /// The largest cost that all limits together can admit at once.
    most: u64,
    /// Built on first use. `None` if no algorithm fits a limit.
    local: OnceLock<Option<Local>>,
    /// Until when the previous set of servers is used, by `clock`.
    previous_until_ns: u64,
    /// The clock for pauses. It is monotonic, and it is tokio's clock, so that tests can pause it.
    clock: TokioClock,
    random: ahash::RandomState,
}

/// Which calls an open breaker stops.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Passage {
    /// The call is not sent.
    IfClosed,
    /// The call is sent, and tells the breaker nothing.
    Always,
}

/// The breakers and counts of one server.
struct ServerGuard {
    /// The server's name in a set.
    name: Option<Arc<str>>,
    /// The server's address, from the first call on.
    address: OnceLock<String>,
    circuits: [CachePadded<Circuit>; PARTS],
    tallies: Tallies,
    /// 1 if the server reports that it evicts keys.
    evicts: AtomicU64,
}

impl Guard {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self::of(settings, settings.limits.iter().map(Limit::most).min().unwrap_or(u64::MAX))
    }

    /// The guard of a limiter that can admit at most this cost at once.
    pub(crate) fn of(settings: &Settings, most: u64) -> Self {
        let clock = TokioClock::new();
        let breaker = settings.breaker;
        // A probe has the same time-out as any call. If it has not reported after twice that time, its caller is gone.
        // The deadline is at least one pause. So callers that all disappear send no more probes than callers that wait.
        let probe = settings.timeout.saturating_mul(2).min(LONGEST_PROBE).max(breaker.pause);
        let now_ns = clock.now().as_nanos();
        let server = |index: usize| {
            let name = settings.places.routes.names().get(index).cloned();
            ServerGuard {
                circuits: std::array::from_fn(|_| {
                    Circuit::new(breaker.failures, breaker.pause, probe, now_ns).into()
                }),
                tallies: Tallies::new(&settings.name, name.as_deref()),
                evicts: AtomicU64::new(0),
                address: OnceLock::new(),
                name,
            }
        };
        let previous_ns = saturating_nanos(settings.places.routes.previous_during());
        Self {
            servers: (0..settings.places.routes.len()).map(server).collect(),
            settings: settings.clone(),
            most,
            local: OnceLock::new(),
            previous_until_ns: now_ns.saturating_add(previous_ns),
            clock,
            random: ahash::RandomState::new(),
        }
    }

    /// Calls the server. Waits at most for the time-out, even if the transport hangs. If the key has a previous server,
    /// first copies the key's state from there.
    ///
    /// # Panics
    /// Panics in a tokio runtime that was built without its timer, as all of tokio's time functions do.
    pub(crate) async fn send<T: Transport>(
        &self,
        transport: &T,
        call: &Call,
        passage: Passage,
    ) -> Result<Reply, Error> {
        let mut most = self.settings.timeout;
        if let Some(before) = call.place.before {
            let began_ns = self.clock.now().as_nanos();
            if began_ns < self.previous_until_ns {
                // Boxed, as other rare steps of a call are, so that the future of the usual call is small.
                Box::pin(self.copy(transport, call, before)).await?;
            }
            most = most.saturating_sub(self.since(began_ns));
        }
        self.run_within(transport, call, (most, passage), || transport.call(call)).await
    }

    /// The time since `began_ns`.
    fn since(&self, began_ns: u64) -> Duration {
        Duration::from_nanos(self.clock.now().as_nanos().saturating_sub(began_ns))
    }

    /// Sends a request about the key of a call, unless the breaker of its server forbids it. Waits at most for `most`.
    async fn run_within<T: Transport, R, F: Future<Output = Result<R, Error>>>(
        &self,
        transport: &T,
        call: &Call,
        (most, passage): (Duration, Passage),
        send: impl FnOnce() -> F,
    ) -> Result<R, Error> {
        let server = &self.servers[call.place.server];
        server.address.get_or_init(|| transport.address(call.place.server));
        let flight = self.start_call(server, transport.part(call), passage)?;
        let mut asked = pin!(send());
        let late = || Error::new(ErrorKind::Timeout, format!("no answer within {most:?}"));
        // Without a runtime there is no timer. A transport that needs a runtime then returns an error. Any other
        // transport answers.
        let answer = if Handle::try_current().is_ok() {
            tokio::time::timeout(most, asked.as_mut()).await.unwrap_or_else(|_| Err(late()))
        } else {
            asked.await
        };
        server.learn_eviction(transport.evicts(call.place.server));
        flight.land(answer)
    }

    fn start_call<'g>(
        &'g self,
        server: &'g ServerGuard,
        part: usize,
        passage: Passage,
    ) -> Result<GuardedCall<'g>, Error> {
        let circuit = &*server.circuits[part % PARTS];
        let now_ns = self.clock.now().as_nanos();
        let permit = circuit.admit(now_ns).ok();
        if permit.is_none() && passage == Passage::IfClosed {
            server.tallies.error(ErrorKind::Breaker);
            // No text: it would be allocated for each request during the pause.
            return Err(Error::new(ErrorKind::Breaker, ""));
        }
        server.tallies.count(GuardCount::Asked);
        if permit.as_ref().is_some_and(Permit::is_probe) {
            server.tallies.count(GuardCount::Probe);
        }
        Ok(GuardedCall { guard: self, server, circuit, permit, began_ns: now_ns, landed: false })
    }

    /// The names and places of the limiter's keys.
    pub(crate) const fn places(&self) -> &KeyPlaces {
        &self.settings.places
    }

    /// Decides a request while the server is unavailable, by the limiter's [`OnFailure`]. `key` is the key that the
    /// caller passed.
    pub(crate) fn fallback(&self, key: &[u8], cost: u64, now: Timestamp) -> SharedDecision {
        self.fallback_of(Class::ALL, key, cost, now)
    }

    /// Like `fallback`, for a request of a class.
    pub(crate) fn fallback_of(&self, class: Class, key: &[u8], cost: u64, now: Timestamp) -> SharedDecision {
        self.without_server((key, cost, class), now, Local::check)
    }

    /// Takes back what a [`fallback`](Self::fallback) charged to this process's share. Returns the units taken back.
    pub(crate) fn refund(&self, key: &[u8], charge: &Decision, now: Timestamp) -> u64 {
        let local = self.local.get().and_then(Option::as_ref).filter(|_| charge.charged() > 0);
        local.map_or(0, |local| local.refund(key, charge, now))
    }

    /// Corrects what a [`fallback`](Self::fallback) charged to this process's share, for units whose cost is known now.
    pub(crate) fn settle(
        &self,
        key: &[u8],
        charge: &Decision,
        actual: u64,
        now: Timestamp,
    ) -> Option<Decision> {
        self.local.get().and_then(Option::as_ref)?.settle(key, charge, actual, now)
    }

    /// Decides a request of a class while the server is unavailable. This process's share checks it or peeks.
    pub(crate) fn without_server(
        &self,
        (key, cost, class): (&[u8], u64, Class),
        now: Timestamp,
        verb: LocalVerb,
    ) -> SharedDecision {
        let most = self.most - class.headroom(self.most);
        self.fallback_by((key, cost, most), now, |processes| {
            let make = || Local::new(&self.settings.limits, processes, self.settings.max_keys).ok();
            let decision = verb(self.local.get_or_init(make).as_ref()?, key, cost, class, now)?;
            // The server may admit a request above the maximum of the share when it is back.
            (!decision.is_never()).then_some(decision)
        })
    }

    /// Decides a request while the server is unavailable. `most` is the most units that the limit can ever admit.
    /// `share` decides with this process's share, for a number of processes; `None` denies.
    pub(crate) fn fallback_by(
        &self,
        (key, cost, most): (&[u8], u64, u64),
        now: Timestamp,
        share: impl FnOnce(u32) -> Option<Decision>,
    ) -> SharedDecision {
        let server = &self.servers[self.settings.places.server(key)];
        let (decision, by) = match self.settings.on_failure {
            OnFailure::Open => (self.undecided(server, Outcome::Allowed, (cost, most), now), DecidedBy::Open),
            OnFailure::Closed => (self.refusal(server, (cost, most), now), DecidedBy::Closed),
            OnFailure::Local { processes } => (
                share(processes).unwrap_or_else(|| self.refusal(server, (cost, most), now)),
                DecidedBy::Local,
            ),
        };
        server.tallies.decided(by);
        SharedDecision::new(decision, by)
    }

    /// A denial until the server is called again. It is permanent if the cost is above every limit's maximum.
    fn refusal(&self, server: &ServerGuard, (cost, most): (u64, u64), now: Timestamp) -> Decision {
        let outcome = if cost > most { Outcome::Never } else { Outcome::Denied };
        self.undecided(server, outcome, (cost, most), now)
    }

    fn undecided(
        &self,
        server: &ServerGuard,
        outcome: Outcome,
        (cost, most): (u64, u64),
        now: Timestamp,
    ) -> Decision {
        let wait_ns = match server.worst(self.clock.now().as_nanos()) {
            (BreakerState::Closed, _) | (_, 0) => A_SECOND_NS,
            (_, ns) => ns,
        };
        let facts = Facts::Plain { remaining: 0, retry_ns: wait_ns, reset_ns: wait_ns, delay_ns: 0 };
        Decision::new(outcome, cost, most, now.as_nanos(), facts).uncharged()
    }

    /// Returns the health of the server, or of all servers together.
    pub(crate) fn health(&self) -> Health {
        let now_ns = self.clock.now().as_nanos();
        self.servers.iter().fold(Health::default(), |sum, server| sum.plus(server.health(now_ns)))
    }

    /// Returns the health of each server of a set, by name.
    pub(crate) fn health_by_server(&self) -> Vec<(Arc<str>, Health)> {
        let now_ns = self.clock.now().as_nanos();
        let named = |server: &ServerGuard| Some((server.name.clone()?, server.health(now_ns)));
        self.servers.iter().filter_map(named).collect()
    }
}

impl ServerGuard {
    fn learn_eviction(&self, evicts: bool) {
        // Ordering: Relaxed, here and at the read in `health`. The test avoids a write to shared memory in the usual
        // case.
        if self.evicts.load(Ordering::Relaxed) != u64::from(evicts) {
            self.evicts.store(evicts.into(), Ordering::Relaxed);
        }
    }

    /// The states of all breakers, and the nanoseconds for which each denies calls.
    fn states(&self, now_ns: u64) -> impl Iterator<Item = (BreakerState, u64)> {
        self.circuits.iter().map(move |circuit| circuit.state(now_ns))
    }

    /// The state of the breaker that stays open for longest, and for how many nanoseconds.
    fn worst(&self, now_ns: u64) -> (BreakerState, u64) {
        self.states(now_ns).max().unwrap_or_default()
    }

    fn health(&self, now_ns: u64) -> Health {
        let turns_away = self.states(now_ns).any(|(_, left_ns)| left_ns > 0);
        let mut health = self.tallies.health(self.worst(now_ns).0, turns_away);
        health.evicts = self.evicts.load(Ordering::Relaxed) != 0;
        health
    }
}

/// A permitted call to the server. It reports its result to the breaker once: in `land`, or else when it is dropped.
struct GuardedCall<'g> {
    guard: &'g Guard,
    server: &'g ServerGuard,
    circuit: &'g Circuit,
    /// `None` if the breaker is open, and the call is sent past it.
    permit: Option<Permit>,
    began_ns: u64,
    landed: bool,
}

impl GuardedCall<'_> {
    /// Counts and logs a change of the breaker. `why` is the error of the last call, if the call reported one.
    fn note(&self, change: BreakerChange, now_ns: u64, why: Option<&Error>) {
        let server = || LimiterServer {
            limiter: &self.guard.settings.name,
            server: self.server.name.as_deref(),
            address: self.server.address.get().map_or("", String::as_str),
            on_failure: self.guard.settings.on_failure.as_str(),
            failing: Duration::from_nanos(now_ns.saturating_sub(self.circuit.failing_since_ns())),
        };
        match change {
            BreakerChange::Nothing => {}
            BreakerChange::Closed => server_works(&server()),
            BreakerChange::Opened { pause_ns, again } => {
                self.server.tallies.count(GuardCount::Opened);
                let why = why.map(|error| error as &dyn std::fmt::Display);
                server_fails(&server(), Duration::from_nanos(pause_ns), again, why);
            }
        }
    }

    fn land<R>(mut self, answer: Result<R, Error>) -> Result<R, Error> {
        self.landed = true;
        let now_ns = self.now_ns();
        let why = answer.as_ref().err();
        let failure = why.map(Error::kind);
        match failure {
            None => self.server.tallies.count(GuardCount::Answered),
            Some(kind) => self.server.tallies.error(kind),
        }
        match failure {
            Some(ErrorKind::Timeout) if self.noticed_late(now_ns) => self.call_abandoned(now_ns),
            Some(kind) if kind.is_of_server() => self.failed(now_ns, why),
            _ => self.succeeded(now_ns),
        }
        answer
    }

    /// The call was answered, or it failed for a reason that is not the server's.
    fn succeeded(&self, now_ns: u64) {
        if let Some(permit) = &self.permit {
            self.note(self.circuit.succeeded(permit), now_ns, None);
        }
    }

    fn failed(&self, now_ns: u64, why: Option<&Error>) {
        if let Some(permit) = &self.permit {
            self.note(self.circuit.failed(permit, now_ns, self.random(now_ns)), now_ns, why);
        }
    }

    fn call_abandoned(&self, now_ns: u64) {
        if let Some(permit) = &self.permit {
            self.note(self.circuit.abandoned(permit, now_ns, self.random(now_ns)), now_ns, None);
        }
    }

    /// Returns whether the time-out had passed long before this process continued.
    fn noticed_late(&self, now_ns: u64) -> bool {
        let timeout_ns = saturating_nanos(self.guard.settings.timeout);
        now_ns.saturating_sub(self.began_ns) > timeout_ns.saturating_add(timeout_ns / 2)
    }

    fn random(&self, now_ns: u64) -> u64 {
        self.guard.random.hash_one((now_ns, tollgate::internals::sync::thread_number()))
    }

    /// Returns the current time, and records how long the call took.
    fn now_ns(&self) -> u64 {
        let now_ns = self.guard.clock.now().as_nanos();
        self.server.tallies.took(Duration::from_nanos(now_ns.saturating_sub(self.began_ns)));
        now_ns
    }
}

impl Drop for GuardedCall<'_> {
    fn drop(&mut self) {
        if self.landed {
            return;
        }
        self.server.tallies.count(GuardCount::Abandoned);
        let now_ns = self.now_ns();
        let waited =
            now_ns.saturating_sub(self.began_ns) >= saturating_nanos(self.guard.settings.timeout) / 4;
        if waited && !self.permit.as_ref().is_some_and(Permit::is_probe) {
            self.failed(now_ns, None);
        } else {
            self.call_abandoned(now_ns);
        }
    }
}
