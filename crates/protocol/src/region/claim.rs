//! The order to exchange the totals of a key.

use crate::call::{Call, Question, Reply, Scope};
use crate::terms::{RegionScope, RegionUse};

/// The order to exchange a key.
#[derive(Clone, Debug)]
#[must_use = "a claim that is not carried out delays the exchange by one interval"]
pub struct Claim {
    /// The call whose reply contains the claim.
    pub call: Call,
    /// The number of the exchange.
    pub round: u64,
    /// The index of the window.
    pub index: u64,
    /// The own totals in this window and in the window before.
    pub totals: [u64; 2],
}

impl Claim {
    /// Returns the claim in the reply to this call.
    pub fn of(call: &Call, reply: &Reply) -> Option<Self> {
        let RegionUse { round, index, own, .. } = **reply.region.as_ref()?;
        (round > 0).then(|| Self { call: call.clone(), round, index, totals: own })
    }

    /// The call to the servers of the other regions.
    pub fn tell(&self, own_name: &str) -> Call {
        self.ask(own_name, Question::Tell { index: self.index, totals: self.totals })
    }

    /// The call to the own server, after the region `from` answered.
    pub fn hear(&self, from: &str, answer: &RegionUse) -> Call {
        let RegionUse { index, own: totals, known: floor, .. } = *answer;
        self.ask(from, Question::Hear { round: self.round, index, totals, of: self.index, floor })
    }

    fn ask(&self, from: &str, ask: Question) -> Call {
        let scope = match &self.call.scope {
            Scope::Region(scope) => {
                Scope::Region(RegionScope { from: Some(from.into()), pause_us: 0, ..scope.clone() })
            }
            other => other.clone(),
        };
        Call { ask, scope, ..self.call.clone() }
    }
}
