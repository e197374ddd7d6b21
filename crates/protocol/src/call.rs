//! Calls to the shared state, and its replies.
//!
//! A [`Call`] is one question about one key. A transport carries it to the state: to a server, where a script answers
//! it, or to a model of a server in this process. All limiters of `tollgate-redis`, and their simulation, use these calls. The call's [`Scope`]
//! selects the script, because holds and totals of regions count together with the limits of their key.

use std::future::{Future, ready};
use std::sync::Arc;

use smallvec::SmallVec;
use tollgate::Timestamp;
use tollgate::holds::HoldId;
use tollgate::internals::holding::KeyStanding;

use super::error::{Error, ErrorKind};
use super::plan::Plan;
use super::terms::{LinkAges, LinkReport, RegionScope, RegionTerms, RegionUse};

/// One question about one key of a limiter.
#[derive(Clone, Debug)]
pub struct Call {
    /// The key in Redis, as [`tagged`](crate::tagged) writes it.
    pub tag: Vec<u8>,
    /// The limits of the limiter: all are charged, or none.
    pub plan: Arc<Plan>,
    /// The question.
    pub ask: Question,
    /// The time of the decision. `None` means the server's time.
    pub now: Option<Timestamp>,
    /// The server that holds the key.
    pub place: Place,
    /// What counts in addition to the requests of the key.
    pub scope: Scope,
}

/// What counts in addition to the requests of a key.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Scope {
    /// Nothing.
    #[default]
    Limits,
    /// The holds of the key: a request is admitted if the limits have room for it and for all holds. Without a limit, the
    /// holds are requests in progress. Those have a key of their own in Redis.
    Holds {
        /// The most units that the key can hold.
        most_units: u64,
    },
    /// The units that other regions admitted. The plan has one limit, with windows.
    Region(RegionScope),
}

/// The server that holds a key. Servers are numbered within a client; a client of one server has server 0.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// The server that holds the key.
    pub server: usize,
    /// The server that held the key in the previous set of servers, if it is another.
    pub before: Option<usize>,
}

/// The questions. If a question charges units, their number is never 0.
///
/// With [`Scope::Holds`], the questions are `Check`, `Peek`, and those about holds. With [`Scope::Region`], they are `Check`,
/// `Peek` and `Post`, and those of an exchange.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// Charges the units to all limits if all have room. Otherwise charges nothing.
    Check {
        /// The units.
        cost: u64,
    },
    /// Returns the state of the limits. Writes nothing.
    Peek {
        /// The units for which the reply states the wait.
        cost: u64,
    },
    /// Charges the units, even if they exceed a limit.
    Force {
        /// The units.
        cost: u64,
    },
    /// Takes units back, as far as time has not yet paid for them.
    Refund {
        /// The units.
        units: u64,
        /// When the units were charged, by the server's clock in microseconds. A window that is over gives nothing
        /// back.
        at_us: u64,
    },
    /// Removes the states of the limits, so that the key owes nothing. The reply has the number of states, and no figures.
    Forget,
    /// Charges a block of units: at least `least`, at most `wanted`. Between these bounds it is at most the remaining units divided
    /// by `share`. If fewer than `least` remain, charges nothing.
    Lease {
        /// The smallest useful number of units.
        least: u64,
        /// The largest number of units.
        wanted: u64,
        /// The number of parts, at least 1.
        share: u64,
    },
    /// Charges units that one process has already admitted, even if they exceed a limit. It charges the difference
    /// between `total` and the units that this process posted before in this epoch. A call whose answer was lost can
    /// therefore be sent again, and may arrive late or twice.
    ///
    /// The server remembers the two highest epochs of each process. For GCRA it keeps them for an hour after the key's
    /// last post, plus the time that refills a full burst. A process that posts for a key after a longer time begins a
    /// new epoch. A post of an epoch older than these two charges nothing. All limits are charged for the same epoch.
    /// If their windows differ, post to each limit with [`Plan::single`].
    Post {
        /// A number that no other process has.
        process: u64,
        /// The epoch. Each epoch has its own totals. Later epochs are greater; all are below 2^53. For windows, the
        /// epoch is the window's index: the server's time divided by the period. A window that is over is not charged,
        /// except the previous window of a sliding limit. For GCRA, the process chooses its epochs.
        epoch: u64,
        /// The sum of all units that this process admitted in this epoch.
        total: u64,
    },
    /// Holds the units if the limits have room for them and for all holds.
    Hold {
        /// The units.
        units: u64,
        /// For how long, by the server's clock.
        life_us: u64,
        /// The identity of the hold.
        identity: u128,
    },
    /// Removes the hold and charges the units, even if they exceed a limit. If the hold is not there, charges them only
    /// if its end has passed.
    Commit {
        /// The hold, with the end that the caller expects. A renewal whose answer was lost can have moved it.
        hold: HoldId,
        /// The units.
        units: u64,
    },
    /// Removes the hold.
    Release {
        /// The hold.
        hold: HoldId,
    },
    /// Lets the hold end later, at the server's time plus `life_us`.
    Renew {
        /// The hold.
        hold: HoldId,
        /// The new life.
        life_us: u64,
    },
    /// To the server of another region: the own totals of the region that the [scope](RegionScope::from) names.
    Tell {
        /// The index of its window.
        index: u64,
        /// Its totals in this window and in the window before.
        totals: [u64; 2],
    },
    /// To the own server: the reply, in an exchange, of the region that the [scope](RegionScope::from) names.
    Hear {
        /// The number of the exchange.
        round: u64,
        /// The index of the other region's window.
        index: u64,
        /// The other region's totals in this window and in the window before.
        totals: [u64; 2],
        /// The index of the own window that `floor` is about.
        of: u64,
        /// What the other region knows of the own totals in this window and in the window before.
        floor: [u64; 2],
    },
}

/// The reply of the shared state.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Reply {
    /// The units that this call charged to each of the limits, or 0 if it was denied. For a refund, the units taken
    /// back. If the limits differ (a post to a window that is over, or a debt beyond 2^52), the largest number.
    pub granted: u64,
    /// The time of the decision, in microseconds since the Unix epoch.
    pub now_us: u64,
    /// The state of each limit after the call. With holds, its waits are those of the units that were asked plus those
    /// held.
    pub limits: SmallVec<[LimitStanding; 1]>,
    /// With [`Scope::Holds`]: whether the hold was taken, or the hold to settle or renew was there.
    pub done: bool,
    /// The holds of the key after the call, with [`Scope::Holds`].
    pub held: KeyStanding,
    /// What the region's server knows, with [`Scope::Region`].
    pub region: Option<Box<RegionUse>>,
}

impl Reply {
    /// A reply about the limits alone.
    pub fn new(granted: u64, now_us: u64, limits: SmallVec<[LimitStanding; 1]>) -> Self {
        Self { granted, now_us, limits, ..Self::default() }
    }

    /// The reply of a region's server. For limiters, `limit - room` units are used, or more if the limit is exceeded.
    pub(crate) fn of_region(granted: u64, now_us: u64, terms: &RegionTerms, found: RegionUse) -> Self {
        let limit = terms.windows.limit;
        let current = if found.used > limit { found.used } else { limit.saturating_sub(found.room) };
        let start_us = found.index.saturating_mul(terms.windows.period_us);
        let window = LimitStanding::Windows { start_us, previous: 0, current };
        let limits = std::iter::once(window).collect();
        Self { region: Some(Box::new(found)), ..Self::new(granted, now_us, limits) }
    }
}

/// The state of one limit after a call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LimitStanding {
    /// How far the theoretical arrival time is ahead, in the ticks of the limit's plan.
    Pace {
        /// In ticks.
        ahead: u64,
        /// Whether the key is in a block.
        is_blocked: bool,
    },
    /// The units in the current window, and in the previous window.
    Windows {
        /// When the current window begins. This is later than `now_us` if the server's time stepped back to before the
        /// window.
        start_us: u64,
        /// The units in the previous window; 0 for fixed windows.
        previous: u64,
        /// The units in the current window.
        current: u64,
    },
    /// The units that return in batches.
    Batches {
        /// When the period ends, and units return.
        ends_us: u64,
        /// The units used.
        used: u64,
    },
    /// The figures of all other kinds, computed by the script.
    Plain {
        /// The units left.
        left: u64,
        /// The time until the units fit that the caller asked for, if they did not fit. Otherwise, the time until one
        /// unit fits if none is left, or 0.
        wait_us: u64,
        /// The time until all units are left.
        reset_us: u64,
        /// The time until the turn of the units that this call charged.
        delay_us: u64,
    },
}

/// Carries calls to the shared state.
pub trait Transport: Send + Sync + 'static {
    /// The states of the limits of one key, as a server stores them.
    type States: Send + Sync;

    /// Returns whether parts of the shared state fail by themselves, as the nodes of a Cluster do.
    fn in_parts(&self) -> bool {
        false
    }

    /// Returns whether this server has said that it evicts keys.
    fn evicts(&self, _server: usize) -> bool {
        false
    }

    /// Returns the address of this server for events, without user and password.
    fn address(&self, _server: usize) -> String {
        "in this process".to_owned()
    }

    /// Sends a call. If it takes too long, the caller drops the future.
    ///
    /// # Errors
    /// If the server does not answer, refuses the call, or sends something else than a reply. The server may still have carried out the call.
    fn call(&self, call: &Call) -> impl Future<Output = Result<Reply, Error>> + Send;

    /// Returns whether the server has a state for each limit of the key, or had a copy of it.
    ///
    /// # Errors
    /// Those of [`call`](Self::call). A transport whose keys never move refuses this, and the two steps below.
    fn has_states(&self, _: &Call) -> impl Future<Output = Result<bool, Error>> + Send {
        ready(Err(uncopied()))
    }

    /// Reads the states of the limits of the key.
    ///
    /// # Errors
    /// Those of [`has_states`](Self::has_states).
    fn read_states(&self, _: &Call) -> impl Future<Output = Result<Self::States, Error>> + Send {
        ready(Err(uncopied()))
    }

    /// Stores states that were read from another server. Changes nothing for a limit that has a state, or had a copy.
    ///
    /// # Errors
    /// Those of [`has_states`](Self::has_states).
    fn write_states(&self, _: &Call, _: &Self::States) -> impl Future<Output = Result<(), Error>> + Send {
        ready(Err(uncopied()))
    }

    /// Returns whether this is one server, not a Cluster or a set of servers. A region needs one server.
    fn is_one_server(&self) -> bool {
        true
    }

    /// Reports what this process saw of the calls to other regions. Returns what all processes of the region saw. The
    /// caller limits the time.
    ///
    /// # Errors
    /// Those of [`call`](Self::call). A transport without regions refuses this.
    fn report_links(&self, _: &LinkReport) -> impl Future<Output = Result<Vec<LinkAges>, Error>> + Send {
        ready(Err(Error::new(ErrorKind::Refused, "this client has no regions")))
    }

    /// Returns the part of its server that this call is about. Parts fail by themselves, as the nodes of a Cluster do,
    /// and each part of each server has its own breaker. Any number is valid: parts that are equal modulo
    /// [`slot::PARTS`](crate::slot::PARTS) share a breaker.
    fn part(&self, _call: &Call) -> usize {
        0
    }
}

/// The error of a transport whose keys never move.
fn uncopied() -> Error {
    Error::new(ErrorKind::Refused, "this client has one server, so its keys do not move")
}
