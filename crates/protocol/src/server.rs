//! The states of all keys of a server, in this process.

use std::collections::{BTreeSet, HashMap};

use tollgate::holds::HoldId;

use crate::call::{Call, Reply, Scope};
use crate::model::{self, KeyState, MARGINS_US, answer_holds, holds_are_over};
use crate::region::{RegionLinks, RegionState};
use crate::script::{region, time_us};
use crate::terms::{LinkAges, LinkReport, RegionScope};

/// A server in Rust. It gives the same answers as the scripts on a server.
///
/// The caller passes the times, in microseconds since the Unix epoch. They must not step back, as they never do for the scripts of
/// one server: read the clock under the lock of the model.
#[derive(Default, Debug)]
pub struct ServerModel {
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

/// The states of the limits of one key, for a copy to another [`ServerModel`].
#[derive(Clone, Default, Debug)]
pub struct KeyStates {
    held: KeyState,
    life_us: u64,
}

#[derive(Default, Debug)]
struct KeptKey {
    held: KeyState,
    /// When the key expires, by the clock.
    over_us: u64,
}

/// With fewer entries than this, the server does not look for expired entries.
const SWEEP: usize = 1_024;

impl ServerModel {
    /// Answers a call. If the call has a time, that is the time of the decision, and `now_us` only decides what has expired.
    pub fn answer(&mut self, call: &Call, now_us: u64) -> Reply {
        if self.stored() >= self.sweep_at.max(SWEEP) {
            self.sweep(now_us);
        }
        match &call.scope {
            Scope::Limits => self.answer_limits(call, now_us),
            Scope::Holds { most_units } => self.answer_holds(call, *most_units, now_us),
            Scope::Region(scope) => self.answer_region(call, scope, now_us),
        }
    }

    /// Returns the number of keys with limits, including expired keys that are not yet removed.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.held.len()
    }

    /// Returns whether each limit of the call's key has a state, or had a copy of one.
    #[must_use]
    pub fn has_states(&self, call: &Call, now_us: u64) -> bool {
        self.live(&call.tag, now_us).is_some_and(|entry| entry.held.is_complete(&call.plan))
    }

    /// Reads the states of the limits of the call's key. They are empty if there are none.
    #[must_use]
    pub fn read_states(&self, call: &Call, now_us: u64) -> KeyStates {
        let states = |entry: &KeptKey| KeyStates {
            held: entry.held.states(&call.plan),
            life_us: entry.over_us - now_us,
        };
        self.live(&call.tag, now_us).map(states).unwrap_or_default()
    }

    /// Stores states that were read from another server. Changes nothing for a limit that has a state.
    pub fn write_states(&mut self, call: &Call, states: &KeyStates, now_us: u64) {
        if states.life_us > 0 {
            let entry = self.held.entry(call.tag.clone()).or_default();
            entry.expire(now_us);
            entry.held.adopt(&call.plan, &states.held);
            entry.over_us = entry.over_us.max(now_us.saturating_add(states.life_us));
        }
    }

    /// Merges what a process saw of the calls to other regions. Returns what all processes of the region saw.
    pub fn report_links(&mut self, report: &LinkReport, now_us: u64) -> Vec<LinkAges> {
        self.links.entry(report.name.clone()).or_default().merge(report, now_us)
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
        let at_us = time_us(call).unwrap_or(now_us);
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
        let reply = answer_holds(&mut holds, call, most_units, time_us(call).unwrap_or(now_us), &mut limits);
        if !holds.is_empty() {
            self.holds.insert(name, holds);
        }
        reply
    }

    fn answer_region(&mut self, call: &Call, scope: &RegionScope, now_us: u64) -> Reply {
        let entry = self.regions.entry(region::name(call));
        let (state, _) = entry.or_insert_with(|| (RegionState::default(), scope.terms.windows.period_us));
        state.answer(&call.ask, scope, time_us(call).unwrap_or(now_us))
    }

    /// The entry of a key, unless it has expired.
    fn live(&self, tag: &[u8], now_us: u64) -> Option<&KeptKey> {
        self.held.get(tag).filter(|entry| entry.over_us > now_us)
    }
}

impl KeptKey {
    /// Forgets the state if the key has expired.
    fn expire(&mut self, now_us: u64) {
        if self.over_us <= now_us {
            self.held = KeyState::default();
        }
    }
}
