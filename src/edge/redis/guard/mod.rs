//! Between the modes and the server: asks it as long as it answers, and decides what becomes of a request while it does not.
//!
//! | error | a failure of the server's? |
//! |---|---|
//! | timeout, unreachable, refused | yes: the breaker counts it |
//! | reply (not one of our scripts'), address | no: it is there, or was never meant to be; pauses mend neither |
//! | breaker | no: it was not asked |
//!
//! *This process was late.* A time-out that was noticed more than half of itself too late says that this process was not scheduled: an answer
//! may have come in time and not been read. The call is lost, but it is no failure of the server's.
//!
//! *Callers that go away.* A future that is dropped before there was an answer says nothing of the server if it was dropped at once (clients that
//! hang up could else open the breaker), and much if it had waited: after a quarter of the time-out it counts as a failure. So
//! callers with shorter time-outs than ours open the breaker as well. A probe of this kind opens it again for one pause.
//!
//! *Clusters.* A node that is down must not keep requests from the others; and failures in a row are seldom in a row where others
//! succeed between them. So there are a few breakers, by the part of the shared state that a call is about: in a cluster, by the node that
//! holds the key. A node that takes over has a breaker of its own, which is closed: it is asked at once.

mod breaker;
mod health;
mod local;

use std::sync::OnceLock;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use tokio::runtime::Handle;

pub use self::breaker::BreakerState;
use self::breaker::{Change, Circuit, Permit};
pub use self::health::Health;
use self::health::{Tallies, Tally};
use self::local::Local;
use crate::base::clock::{Clock, Timestamp, saturating_nanos};
use crate::base::decision::{Decision, Facts, Outcome};
use crate::base::sync::{AtomicU64, Ordering};
use crate::edge::redis::client::{OnFailure, Settings};
use crate::edge::redis::protocol::slot::PARTS;
use crate::edge::redis::protocol::{Answer, Call, DecidedBy, Error, ErrorKind, Limit, Reply, Transport};
use crate::limiter::wait::TokioClock;

/// When to come back, if nothing says when the server is asked again.
const A_SECOND_NS: u64 = 1_000_000_000;

/// A probe that has not reported after so long is given up, whatever the time-out.
const LONGEST_PROBE: Duration = Duration::from_secs(60);

/// Asks this process's share for a key and a cost.
type LocalVerb = fn(&Local, &[u8], u64, Timestamp) -> Option<Decision>;

/// One for each limiter; see the module's text.
pub(crate) struct Guard {
    circuits: [CachePadded<Circuit>; PARTS],
    settings: Settings,
    /// The most that is ever admitted at once by all limits.
    most: u64,
    /// Made when it is first needed; `None` if no algorithm fits a limit.
    local: OnceLock<Option<Local>>,
    tallies: Tallies,
    /// 1 if the server says that it evicts keys.
    evicts: AtomicU64,
    /// Of pauses: monotonic, and tokio's, so that tests can pause it.
    clock: TokioClock,
    random: ahash::RandomState,
}

impl Guard {
    pub(crate) fn new(settings: &Settings) -> Self {
        let clock = TokioClock::new();
        let breaker = settings.breaker;
        // A probe has as long as a call; whoever has not reported by twice that is gone. Not sooner than a pause, so that callers
        // that all go away ask no more often than those that stay; and not much later than anyone waits.
        let probe = settings.timeout.saturating_mul(2).min(LONGEST_PROBE).max(breaker.pause);
        Self {
            circuits: std::array::from_fn(|_| {
                Circuit::new(breaker.failures, breaker.pause, probe, clock.now().as_nanos()).into()
            }),
            settings: settings.clone(),
            most: settings.limits.iter().map(Limit::most).min().unwrap_or(u64::MAX),
            local: OnceLock::new(),
            tallies: Tallies::new(&settings.name),
            evicts: AtomicU64::new(0),
            clock,
            random: ahash::RandomState::new(),
        }
    }

    /// Asks the server, unless it has failed just now, and waits for no longer than the time-out, whatever the transport does.
    ///
    /// # Panics
    /// In a tokio runtime that was built without its timer, as all of tokio's time does.
    pub(crate) async fn ask<T: Transport>(&self, transport: &T, call: &Call) -> Result<Reply, Error> {
        let flight = self.take_off(transport.part(call))?;
        let asked = transport.call(call);
        let late = || Error::new(ErrorKind::Timeout, format!("no answer within {:?}", self.settings.timeout));
        // Without a runtime there is no timer: what needs one says so itself, and what needs none answers.
        let answer = if Handle::try_current().is_ok() {
            tokio::time::timeout(self.settings.timeout, asked).await.unwrap_or_else(|_| Err(late()))
        } else {
            asked.await
        };
        self.learn_eviction(transport.evicts());
        flight.land(answer)
    }

    fn learn_eviction(&self, evicts: bool) {
        // Ordering: Relaxed, here and where it is shown. As a rule nothing that threads share is written.
        if self.evicts.load(Ordering::Relaxed) != u64::from(evicts) {
            self.evicts.store(evicts.into(), Ordering::Relaxed);
        }
    }

    fn take_off(&self, part: usize) -> Result<GuardedCall<'_>, Error> {
        let circuit = &*self.circuits[part % PARTS];
        let now_ns = self.clock.now().as_nanos();
        let permit = circuit.admit(now_ns).map_err(|_| {
            self.tallies.error(ErrorKind::Breaker);
            // Without a text, which would be made for each request meanwhile.
            Error::new(ErrorKind::Breaker, "")
        })?;
        self.tallies.count(Tally::Asked);
        if permit.is_probe() {
            self.tallies.count(Tally::Probe);
        }
        Ok(GuardedCall { guard: self, circuit, permit, began_ns: now_ns, landed: false })
    }

    fn note(&self, change: Change) {
        match change {
            Change::Nothing => {}
            Change::Closed => {
                #[cfg(feature = "tracing")]
                tracing::info!(target: "tollgate", "the shared state is asked again");
            }
            Change::Opened { pause_ns } => {
                self.tallies.count(Tally::Opened);
                #[cfg(feature = "tracing")]
                tracing::warn!(
                    target: "tollgate",
                    pause_ms = pause_ns / 1_000_000,
                    "the shared state is not asked for a while, after failures"
                );
                #[cfg(not(feature = "tracing"))]
                let _ = pause_ns;
            }
        }
    }

    /// What becomes of a request that the server could not be asked about, as the limiter's [`OnFailure`] says. `key` as the limiter
    /// was asked for it.
    pub(crate) fn fallback(&self, key: &[u8], cost: u64, now: Timestamp) -> Answer {
        self.without_server(key, cost, now, Local::check)
    }

    /// The same for a look: charges nothing.
    pub(crate) fn fallback_peek(&self, key: &[u8], cost: u64, now: Timestamp) -> Answer {
        self.without_server(key, cost, now, Local::peek)
    }

    /// Takes back what this process's share was charged in a [`fallback`](Self::fallback). Returns the units taken back.
    pub(crate) fn undo(&self, key: &[u8], charge: &Decision, now: Timestamp) -> u64 {
        let local = self.local.get().and_then(Option::as_ref).filter(|_| charge.charged() > 0);
        local.map_or(0, |local| local.undo(key, charge, now))
    }

    fn without_server(&self, key: &[u8], cost: u64, now: Timestamp, verb: LocalVerb) -> Answer {
        let (decision, by) = match self.settings.on_failure {
            OnFailure::Open => (self.undecided(Outcome::Allowed, cost, now), DecidedBy::Open),
            OnFailure::Closed => (self.refusal(cost, now), DecidedBy::Closed),
            OnFailure::Local { processes } => (
                self.local(processes, |local| verb(local, key, cost, now))
                    .unwrap_or_else(|| self.refusal(cost, now)),
                DecidedBy::Local,
            ),
        };
        self.tallies.decided(by);
        Answer::new(decision, by)
    }

    /// What the share says; `None` of what is more than the share ever admits: the server may admit it when it is back, if
    /// it is not more than the limit.
    fn local(&self, processes: u32, verb: impl FnOnce(&Local) -> Option<Decision>) -> Option<Decision> {
        let make = || Local::new(&self.settings.limits, processes, self.settings.max_keys).ok();
        let decision = self.local.get_or_init(make).as_ref().and_then(verb);
        decision.filter(|decision| !decision.is_never())
    }

    /// Until the server is asked again; for ever, if it would never be admitted.
    fn refusal(&self, cost: u64, now: Timestamp) -> Decision {
        let outcome = if cost > self.most { Outcome::Never } else { Outcome::Denied };
        self.undecided(outcome, cost, now)
    }

    fn undecided(&self, outcome: Outcome, cost: u64, now: Timestamp) -> Decision {
        let wait_ns = match self.worst() {
            (BreakerState::Closed, _) | (_, 0) => A_SECOND_NS,
            (_, ns) => ns,
        };
        let facts = Facts::Plain { remaining: 0, retry_ns: wait_ns, reset_ns: wait_ns, delay_ns: 0 };
        Decision::new(outcome, cost, self.most, now.as_nanos(), facts).uncharged()
    }

    /// The states of all breakers, and for how many nanoseconds each turns requests away.
    fn states(&self) -> impl Iterator<Item = (BreakerState, u64)> {
        let now_ns = self.clock.now().as_nanos();
        self.circuits.iter().map(move |circuit| circuit.state(now_ns))
    }

    /// The state of the breaker that stays open for longest, and for how many nanoseconds.
    fn worst(&self) -> (BreakerState, u64) {
        self.states().max().unwrap_or_default()
    }

    /// How the server fares.
    pub(crate) fn health(&self) -> Health {
        let mut health = self.tallies.health(self.worst().0, self.states().any(|(_, left_ns)| left_ns > 0));
        health.evicts = self.evicts.load(Ordering::Relaxed) != 0;
        health
    }
}

/// A call that was sent.
struct GuardedCall<'g> {
    guard: &'g Guard,
    circuit: &'g Circuit,
    permit: Permit,
    began_ns: u64,
    landed: bool,
}

impl GuardedCall<'_> {
    fn land(mut self, answer: Result<Reply, Error>) -> Result<Reply, Error> {
        self.landed = true;
        let now_ns = self.now_ns();
        let failure = answer.as_ref().err().map(Error::kind);
        match failure {
            None => self.guard.tallies.count(Tally::Answered),
            Some(kind) => self.guard.tallies.error(kind),
        }
        match failure {
            Some(ErrorKind::Timeout) if self.noticed_late(now_ns) => self.learnt_nothing(now_ns),
            Some(ErrorKind::Timeout | ErrorKind::Unreachable | ErrorKind::Refused) => self.failed(now_ns),
            None | Some(ErrorKind::Address | ErrorKind::Breaker | ErrorKind::Reply) => self.succeeded(),
        }
        answer
    }

    /// The call was answered, or failed for a reason that is not the server's.
    fn succeeded(&self) {
        self.guard.note(self.circuit.succeeded(&self.permit));
    }

    fn failed(&self, now_ns: u64) {
        self.guard.note(self.circuit.failed(&self.permit, now_ns, self.random(now_ns)));
    }

    fn learnt_nothing(&self, now_ns: u64) {
        self.guard.note(self.circuit.abandoned(&self.permit, now_ns, self.random(now_ns)));
    }

    /// Whether the time-out was over long before this process went on.
    fn noticed_late(&self, now_ns: u64) -> bool {
        let timeout_ns = saturating_nanos(self.guard.settings.timeout);
        now_ns.saturating_sub(self.began_ns) > timeout_ns.saturating_add(timeout_ns / 2)
    }

    fn random(&self, now_ns: u64) -> u64 {
        self.guard.random.hash_one((now_ns, crate::base::sync::thread_number()))
    }

    /// The time; and how long it took is recorded.
    fn now_ns(&self) -> u64 {
        let now_ns = self.guard.clock.now().as_nanos();
        #[cfg(feature = "metrics")]
        self.guard.tallies.took(Duration::from_nanos(now_ns.saturating_sub(self.began_ns)));
        now_ns
    }
}

impl Drop for GuardedCall<'_> {
    fn drop(&mut self) {
        if self.landed {
            return;
        }
        self.guard.tallies.count(Tally::Abandoned);
        let now_ns = self.now_ns();
        let waited =
            now_ns.saturating_sub(self.began_ns) >= saturating_nanos(self.guard.settings.timeout) / 4;
        if waited && !self.permit.is_probe() {
            self.failed(now_ns);
        } else {
            self.learnt_nothing(now_ns);
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
