//! Counts that describe the health of the server.

use tollgate::DecidedBy;
use tollgate::internals::Stripes;
use tollgate::internals::sync::Ordering::Relaxed;
use tollgate::telemetry::{Reading, Readings};
use tollgate_protocol::ErrorKind;

use super::breaker::BreakerState;
use crate::telemetry::{BREAKER_STATE, PARTITIONED, SERVER_EVICTS, SharedHandles};

/// The health of a shared limiter's server, or of all its servers together: counts since the limiter was built, and the breaker's state.
///
/// # Consistency
/// Each count is exact. The counts are read one after another, so a concurrent request may be included in part.
///
/// # Examples
/// With feature `metrics`, the limiter sends counts to the metrics facade itself. Publish the state when metrics are
/// scraped:
/// ```
/// # #[cfg(feature = "metrics")]
/// # fn scrape(health: tollgate_redis::Health) {
/// tollgate::telemetry::publish("api", &health); // `health` comes from `limiter.health()`
/// # }
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Health {
    /// Calls that were sent to the server. Each was answered, failed, was abandoned, or is in flight.
    pub asked: u64,
    /// Calls that the server answered.
    pub answered: u64,
    /// Calls whose caller dropped the future before the answer.
    pub abandoned: u64,
    /// Sent calls that were probes: calls that test whether the server is back.
    pub probes: u64,
    /// How often the breaker opened, including after probes that failed or were abandoned.
    pub opened: u64,
    /// Requests that were admitted without a decision, by [`OnFailure::Open`](crate::OnFailure::Open).
    pub open: u64,
    /// Requests that were denied without a decision, by [`OnFailure::Closed`](crate::OnFailure::Closed).
    pub closed: u64,
    /// Requests that this process decided with its share, by
    /// [`OnFailure::Local`](crate::OnFailure::Local).
    pub local: u64,
    /// Calls about a key that moved, for which this previous server did not answer. If the key had no state at its new
    /// server, it began with an empty one.
    /// See [`Shards::previous`](crate::Shards::previous).
    pub uncopied: u64,
    /// The breaker's state. If there are several breakers (in a Cluster, or with several servers), the worst state.
    pub breaker: BreakerState,
    /// Whether a server reports that it evicts keys when its memory is full, which can remove limiter state. This is
    /// the case for any `maxmemory-policy` except `noeviction`, if `maxmemory` is set. Each new connection asks the
    /// server, and again every ten seconds. If the server does not answer `INFO` (the user may not run it), the value does not change. It is `false`
    /// at first.
    pub evicts: bool,
    turns_away: bool,
    errors: [u64; ErrorKind::ALL.len()],
}

impl Health {
    /// Returns the number of errors of this kind. Calls with an [`ErrorKind::Breaker`] error were not sent.
    #[must_use]
    pub fn errors(&self, kind: ErrorKind) -> u64 {
        self.errors[kind as usize]
    }

    /// Returns the number of calls that were sent and failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        let sent = ErrorKind::ALL.into_iter().filter(|kind| *kind != ErrorKind::Breaker);
        sent.fold(0, |sum, kind| sum.wrapping_add(self.errors(kind)))
    }

    /// The counts other than errors, in the order of [`GuardCount`].
    const fn counts(&mut self) -> [&mut u64; TALLIES] {
        let Self { asked, answered, abandoned, probes, opened, open, closed, local, uncopied, .. } = self;
        [asked, answered, abandoned, probes, opened, open, closed, local, uncopied]
    }

    /// Adds the counts of another server. The worse state counts.
    pub(crate) fn plus(mut self, mut other: Self) -> Self {
        for (count, more) in self.counts().into_iter().zip(other.counts()) {
            *count = count.wrapping_add(*more);
        }
        Self {
            breaker: self.breaker.max(other.breaker),
            evicts: self.evicts || other.evicts,
            turns_away: self.turns_away || other.turns_away,
            errors: std::array::from_fn(|kind| self.errors[kind].wrapping_add(other.errors[kind])),
            ..self
        }
    }

    /// Returns whether the limiter currently sends no calls to the server, or to a part of it: a breaker's pause lasts,
    /// or its probe is in flight.
    ///
    /// After the pause this returns `false`, even before the next request. Until that request,
    /// [`breaker`](Self::breaker) is [`HalfOpen`](BreakerState::HalfOpen), however long the limiter is idle.
    #[must_use]
    pub const fn is_partitioned(&self) -> bool {
        self.turns_away
    }
}

/// The gauges `tollgate_partitioned` (0 or 1), `tollgate_breaker_state` (0 closed, 1 half-open, 2 open) and `tollgate_server_evicts` (0 or 1).
impl Readings for Health {
    fn readings(&self) -> Vec<Reading> {
        let state = match self.breaker {
            BreakerState::Closed => 0.0,
            BreakerState::HalfOpen => 1.0,
            BreakerState::Open => 2.0,
        };
        vec![
            Reading::Gauge(PARTITIONED, f64::from(u8::from(self.is_partitioned()))),
            Reading::Gauge(BREAKER_STATE, state),
            Reading::Gauge(SERVER_EVICTS, f64::from(u8::from(self.evicts))),
        ]
    }
}

/// The counts other than errors.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum GuardCount {
    Asked,
    Answered,
    Abandoned,
    Probe,
    Opened,
    Open,
    Closed,
    Local,
    Uncopied,
}

/// The number of variants of [`GuardCount`]. The counts of errors follow them.
const TALLIES: usize = 9;

/// The counters of one limiter.
pub(crate) struct Tallies {
    stripes: Stripes<{ TALLIES + ErrorKind::ALL.len() }>,
    handles: SharedHandles,
}

impl Tallies {
    /// `name` is the label `limiter`. In a set of servers, `server` is the label `server`.
    pub(crate) fn new(name: &str, server: Option<&str>) -> Self {
        Self {
            stripes: Stripes::default(),
            handles: SharedHandles::register(name, server, &ErrorKind::ALL.map(ErrorKind::as_str)),
        }
    }

    pub(crate) fn count(&self, tally: GuardCount) {
        // Ordering: Relaxed; see `Stripes`.
        self.stripes.own()[tally as usize].fetch_add(1, Relaxed);
    }

    /// A call failed, or was not sent.
    pub(crate) fn error(&self, kind: ErrorKind) {
        // Ordering: Relaxed; see `Stripes`.
        self.stripes.own()[TALLIES + kind as usize].fetch_add(1, Relaxed);
        self.handles.error(kind as usize);
    }

    /// A request was decided without the server.
    pub(crate) fn decided(&self, by: DecidedBy) {
        let tally = match by {
            DecidedBy::Open => GuardCount::Open,
            DecidedBy::Closed => GuardCount::Closed,
            DecidedBy::Local => GuardCount::Local,
            _ => return,
        };
        self.count(tally);
        if let Some(event) = by.event() {
            self.handles.decided(event);
        }
    }

    /// Records the duration of a call that was sent.
    pub(crate) fn took(&self, duration: std::time::Duration) {
        self.handles.took(duration);
    }

    pub(crate) fn health(&self, breaker: BreakerState, turns_away: bool) -> Health {
        let errors = std::array::from_fn(|kind| self.stripes.sum(TALLIES + kind));
        let mut health = Health { breaker, turns_away, errors, ..Health::default() };
        for (tally, count) in health.counts().into_iter().enumerate() {
            *count = self.stripes.sum(tally);
        }
        health
    }
}
