//! The exact counts of a run, by an observer that sees all nodes.

use tollgate::LimitKind;
use tollgate_redis::Limit;

/// The result of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Requests.
    pub offered: u64,
    /// Admitted requests.
    pub admitted: u64,
    /// The largest over-admission: in a window, or with GCRA in any interval beyond burst and rate.
    pub over: u64,
    /// The bound on `over` in the mode's docs.
    pub bound: u64,
    /// The largest number of requests that a process could admit between two posts at this load: those offered in an
    /// interval and a round trip.
    pub offered_between: u64,
    /// Denied requests while units were left.
    pub refused_with_room: u64,
    /// Denied requests while the server had units.
    pub refused_early: u64,
    /// Units of windows that were left at the end of the window, although requests needed them.
    pub left: u64,
    /// The largest number of units that were charged to a window and not spent in it.
    pub stranded: u64,
    /// The bound on `stranded` in the mode's docs; see [`run`](super::run).
    pub stranded_bound: u64,
    /// Requests that waited for an answer of the server.
    pub waited: u64,
    /// The sum of their waiting times, in microseconds.
    pub waited_us: u64,
    /// Calls to the server.
    pub calls: u64,
    /// The length of the run, in virtual seconds.
    pub seconds: u64,
    /// The units charged in the shared state at the end; `dropped` is the units that the nodes report as dropped.
    pub charged: u64,
    /// See `charged`.
    pub dropped: u64,
    /// The units that the nodes report as not posted yet.
    pub pending: u64,
}

/// The exact account of one key.
pub(super) struct Exact {
    limit: Limit,
    window_ns: u64,
    window: u64,
    admitted: u64,
    refused: bool,
    /// The units that the server charged to the current window.
    charged: u64,
    /// With GCRA: the debt in units, and its time.
    owed: f64,
    at_ns: u64,
    peak: f64,
}

impl Exact {
    pub(super) fn new(limit: Limit) -> Self {
        let window_ns = u64::try_from(limit.quota().period().as_nanos()).unwrap_or(u64::MAX);
        Self {
            limit,
            window_ns,
            window: 0,
            admitted: 0,
            refused: false,
            charged: 0,
            owed: 0.0,
            at_ns: 0,
            peak: 0.0,
        }
    }

    /// Ends windows that are over.
    pub(super) fn pass(&mut self, now_ns: u64, outcome: &mut Outcome) {
        let quota = self.limit.quota();
        match self.limit.kind() {
            LimitKind::Gcra => {
                let seconds = (now_ns.saturating_sub(self.at_ns)) as f64 / 1e9;
                let rate = quota.limit() as f64 / quota.period().as_secs_f64();
                self.owed = (self.owed - seconds * rate).max(0.0);
                self.at_ns = now_ns;
            }
            _ => {
                let window = now_ns / self.window_ns;
                if window != self.window {
                    self.end(outcome);
                    self.window = window;
                }
            }
        }
    }

    fn end(&mut self, outcome: &mut Outcome) {
        let limit = self.limit.most();
        outcome.over = outcome.over.max(self.admitted.saturating_sub(limit));
        if self.refused {
            outcome.left += limit.saturating_sub(self.admitted);
        }
        outcome.stranded = outcome.stranded.max(self.charged.saturating_sub(self.admitted));
        (self.admitted, self.refused, self.charged) = (0, false, 0);
    }

    pub(super) fn charge(&mut self, units: u64) {
        self.charged += units;
    }

    pub(super) fn request(&mut self, cost: u64, admitted: bool, outcome: &mut Outcome) {
        outcome.offered += 1;
        outcome.admitted += u64::from(admitted);
        if admitted {
            self.admitted += cost;
            self.owed += cost as f64;
            self.peak = self.peak.max(self.owed);
            return;
        }
        self.refused = true;
        let room = match self.limit.kind() {
            LimitKind::Gcra => self.owed + cost as f64 <= self.limit.most() as f64,
            _ => self.admitted + cost <= self.limit.most(),
        };
        outcome.refused_with_room += u64::from(room);
        outcome.refused_early += u64::from(room && self.charged < self.limit.most());
    }

    pub(super) fn finish(&mut self, outcome: &mut Outcome) {
        match self.limit.kind() {
            LimitKind::Gcra => {
                let over = (self.peak - self.limit.most() as f64).max(0.0).ceil();
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a count of requests"
                )]
                let over = over as u64;
                outcome.over = over;
            }
            _ => self.end(outcome),
        }
    }
}
