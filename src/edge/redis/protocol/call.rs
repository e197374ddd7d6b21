//! What is asked of the shared state, and what it answers.
//!
//! A [`Call`] is one question about one key. A transport carries it to where the state is: to a server, where a script answers it,
//! or to a model of one in this process. All modes, and their simulation, are made of these calls.

use std::future::Future;
use std::sync::Arc;

use smallvec::SmallVec;

use super::error::Error;
use super::plan::Plan;
use crate::base::clock::Timestamp;

/// One question about one key of a limiter.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// As [`tagged`](super::tag::tagged) wrote it.
    pub(crate) tag: Vec<u8>,
    /// The limits of the limiter: all are charged, or none.
    pub(crate) plan: Arc<Plan>,
    /// The question.
    pub(crate) ask: Question,
    /// The time of the decision. `None` means the server's time.
    pub(crate) now: Option<Timestamp>,
}

/// What is asked. Units are never 0 where something is charged.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Question {
    /// Charges the units to all limits if all have room. Otherwise charges nothing.
    Check {
        /// The units.
        cost: u64,
    },
    /// How things stand. Writes nothing.
    Peek,
    /// Charges the units, even without room.
    Force {
        /// The units.
        cost: u64,
    },
    /// Takes units back, as far as time has not paid them.
    Refund {
        /// The units.
        units: u64,
        /// When they were charged, by the server's clock in microseconds, so that a window that is over gives nothing back.
        at_us: u64,
    },
    /// Charges a block of units: at least `least`, at most `wanted`. Between these bounds it is at most the remaining units divided
    /// by `share`. If fewer than `least` remain, charges nothing.
    Lease {
        /// The fewest that are of use.
        least: u64,
        /// The most.
        wanted: u64,
        /// The parts, 1 or more.
        share: u64,
    },
    /// Charges what one process has let through already, room or not: all that `total` exceeds what was posted before by this
    /// process in this epoch. So a call whose answer was lost can be sent again, and come late or twice.
    ///
    /// The two highest epochs of each process are remembered. For GCRA they are kept for an hour after the key's last post, plus the
    /// time that refills a full burst. A process that posts for a key after a longer time begins a new epoch. A post of an older epoch
    /// than these two charges nothing. All limits are charged by the same epoch: where their windows differ, post to each by
    /// [`Plan::single`].
    Post {
        /// A number that no other process has.
        process: u64,
        /// Each epoch has totals of its own. Later epochs are greater; all are below 2^53. For windows, the epoch is the window's index:
        /// the server's time divided by the period. A window that is over is not charged, except the previous window of a sliding
        /// limit. For GCRA, the process chooses its epochs.
        epoch: u64,
        /// All that this process let through in this epoch.
        total: u64,
    },
}

/// What the shared state answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reply {
    /// The units that this call charged to each of the limits; 0 if it was refused. Of a refund, those that were taken back. Where
    /// limits differ (a post to a window that is over, a debt beyond 2^52) the most of them.
    pub(crate) granted: u64,
    /// The time of the decision, in microseconds since the Unix epoch.
    pub(crate) now_us: u64,
    /// How each limit stands afterwards.
    pub(crate) limits: SmallVec<[LimitState; 1]>,
}

/// How one limit stands after a call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum LimitState {
    /// How far the theoretical arrival time is ahead, in the ticks of the limit's plan.
    Pace {
        /// In ticks.
        ahead: u64,
    },
    /// Units in the present window, and in the one before.
    Windows {
        /// When the present window begins: later than `now_us`, if the server's time stepped back before it.
        start_us: u64,
        /// Of the window before; 0 for fixed windows.
        previous: u64,
        /// Of the present window.
        current: u64,
    },
}

/// What carries calls.
pub(crate) trait Transport: Send + Sync + 'static {
    /// Whether parts of the shared state fail by themselves, as the nodes of a cluster do.
    fn in_parts(&self) -> bool {
        false
    }

    /// Whether the server has said that it evicts keys.
    fn evicts(&self) -> bool {
        false
    }

    /// Asks. The guard ends a call that takes too long by dropping the future.
    fn call(&self, call: &Call) -> impl Future<Output = Result<Reply, Error>> + Send;

    /// Which part of the shared state this call is about, where parts fail by themselves, as the nodes of a cluster do: each has a
    /// breaker of its own. Any number: parts that are alike modulo [`PARTS`](super::slot::PARTS) share one.
    fn part(&self, _call: &Call) -> usize {
        0
    }
}
