//! Calls to the server of a region, and its replies.

use std::future::Future;
use std::sync::Arc;

use super::exchange::{LinkAges, LinkReport};
use super::policy::RegionTerms;
use crate::edge::redis::protocol::{Error, LimitState, Question, Reply, Transport};

/// One question about one limit of one key.
#[derive(Clone, Debug)]
pub struct RegionCall {
    /// The key in Redis.
    pub name: Vec<u8>,
    pub terms: Arc<RegionTerms>,
    /// The time from this claim to the next, if the reply contains a claim.
    pub pause_us: u64,
    pub ask: RegionQuestion,
}

/// The questions. Processes of the region ask the first three. The process that holds a claim asks the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegionQuestion {
    /// Returns the state.
    Peek,
    /// Charges the units if the region may admit them.
    Check { cost: u64 },
    /// Charges units that a process admitted; see
    /// [`Question::Post`](crate::edge::redis::protocol::Question::Post).
    Post { process: u64, epoch: u64, total: u64 },
    /// To the server of another region: the own totals of the region `from` in the window `index` and in the window
    /// before.
    Tell { from: Box<str>, index: u64, totals: [u64; 2] },
    /// To the own server: the reply of the region `from` in the exchange with the number `round`. `index` and `totals`
    /// are about that region. `floor` is what it knows of the own totals, in the window `of` and in the window before.
    Hear { from: Box<str>, round: u64, index: u64, totals: [u64; 2], of: u64, floor: [u64; 2] },
}

/// The reply of a region's server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegionReply {
    /// The units that this call charged.
    pub granted: u64,
    /// The server's time.
    pub now_us: u64,
    /// The index of the current window.
    pub index: u64,
    /// The own totals in the current window and in the window before.
    pub own: [u64; 2],
    /// All units that count against the limit, as far as the server knows.
    pub used: u64,
    /// The units that the region may admit now.
    pub room: u64,
    /// If the key is due for an exchange, the number of this exchange. Otherwise 0. Rounds are never 0.
    pub round: u64,
    /// After [`Tell`](RegionQuestion::Tell): the totals that the server knows of the region that asked.
    pub known: [u64; 2],
}

/// Carries calls to the server of a region.
pub trait RegionTransport: Transport + Clone {
    /// Returns whether this is one server, not a Cluster or a set of servers.
    fn is_one_server(&self) -> bool;

    /// Sends a call. The caller limits the time.
    fn ask_region(&self, call: &RegionCall) -> impl Future<Output = Result<RegionReply, Error>> + Send;

    /// Reports what this process saw of the calls to the other regions. Returns what all processes of the region saw. The
    /// caller limits the time.
    fn report_links(&self, report: &LinkReport) -> impl Future<Output = Result<Vec<LinkAges>, Error>> + Send;
}

/// The order to exchange a key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "a claim that is not carried out delays the exchange by one interval"]
pub struct Claim {
    pub name: Vec<u8>,
    pub terms: Arc<RegionTerms>,
    pub round: u64,
    pub index: u64,
    pub totals: [u64; 2],
}

impl RegionQuestion {
    /// Returns the question of a mode as a question for a region's server. Returns `None` if regions do not support it.
    pub const fn of_mode(ask: &Question) -> Option<Self> {
        match *ask {
            Question::Peek { .. } => Some(Self::Peek),
            Question::Check { cost } => Some(Self::Check { cost }),
            Question::Post { process, epoch, total } => Some(Self::Post { process, epoch, total }),
            _ => None,
        }
    }
}

impl RegionReply {
    /// The claim in the reply to this call.
    pub fn claim(&self, call: &RegionCall) -> Option<Claim> {
        (self.round > 0).then(|| Claim {
            name: call.name.clone(),
            terms: Arc::clone(&call.terms),
            round: self.round,
            index: self.index,
            totals: self.own,
        })
    }

    /// The reply as the modes read it: `limit - room` units are used, or more if the limit is exceeded.
    pub fn for_mode(&self, terms: &RegionTerms) -> Reply {
        let limit = terms.windows.limit;
        let current = if self.used > limit { self.used } else { limit.saturating_sub(self.room) };
        let start_us = self.index.saturating_mul(terms.windows.period_us);
        let limits = [LimitState::Windows { start_us, previous: 0, current }];
        Reply { granted: self.granted, now_us: self.now_us, limits: limits.into_iter().collect() }
    }
}

impl Claim {
    /// The question for the servers of the other regions.
    pub fn tell(&self, own_name: &str) -> RegionQuestion {
        RegionQuestion::Tell { from: own_name.into(), index: self.index, totals: self.totals }
    }

    /// The question for the own server, after the region `from` answered.
    pub fn hear(&self, from: &str, reply: &RegionReply) -> RegionQuestion {
        RegionQuestion::Hear {
            from: from.into(),
            round: self.round,
            index: reply.index,
            totals: reply.own,
            of: self.index,
            floor: reply.known,
        }
    }
}
