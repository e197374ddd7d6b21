//! The events, one after another.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use super::Random;
use super::load::{Pattern, requests};
use super::node::{Asked, Mode, Node};
use super::tally::{Exact, Outcome};
use crate::clock::ManualClock;
use crate::redis::call::Reply;
use crate::redis::in_process::InProcess;
use crate::redis::limit::{Limit, LimitKind};
use crate::redis::plan::Plan;

const SECOND: u64 = 1_000_000_000;
/// A whole number of every window.
const START: u64 = 1_699_999_200 * SECOND;

/// How long messages travel, each way.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Network {
    /// 0.5 ms, and up to half as much more.
    Lan,
    /// 40 ms, and up to half as much more.
    Regions,
}

impl Network {
    /// The shortest way, in nanoseconds.
    #[must_use]
    pub const fn way_ns(self) -> u64 {
        match self {
            Self::Lan => 500_000,
            Self::Regions => 40_000_000,
        }
    }

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lan => "0.5 ms",
            Self::Regions => "40 ms",
        }
    }
}

/// What goes wrong.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Faults {
    /// Of a hundred answers, so many are lost; what they answer is done.
    pub lost: u64,
    /// The first half of the nodes reaches no server from and until then, in milliseconds.
    pub partition_ms: Option<(u64, u64)>,
}

/// A run.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Setup {
    /// Who decides.
    pub mode: Mode,
    /// By what.
    pub limit: Limit,
    /// How many processes.
    pub nodes: u32,
    /// Who asks.
    pub pattern: Pattern,
    /// Requests in a second, of all together.
    pub per_second: u64,
    /// For so long.
    pub seconds: u64,
    /// Between two syncs.
    pub interval: Duration,
    /// How far.
    pub network: Network,
    /// What goes wrong.
    pub faults: Faults,
    /// Of all that is random.
    pub seed: u64,
}

enum Event {
    Request(u32),
    Due(u32),
    /// To the server.
    Call(u32, usize),
    /// To the node.
    Answer(u32, usize, Reply),
    Lost(u32, usize),
}

struct World {
    setup: Setup,
    nodes: Vec<Node>,
    /// How far each node's clock is ahead, so that none of them is right.
    skews: Vec<u64>,
    server: InProcess,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    what: std::collections::HashMap<u64, Event>,
    number: u64,
    asked: Vec<Option<Asked>>,
    random: Random,
    calls: u64,
    charged: u64,
}

/// Runs it.
///
/// # Panics
/// If the limit is none that the shared state can keep.
#[must_use]
pub fn run(setup: &Setup) -> Outcome {
    let plan = Arc::new(Plan::new(&[setup.limit]).expect("a limit"));
    let interval_ns = u64::try_from(setup.interval.as_nanos()).unwrap_or(u64::MAX);
    let mut random = Random(setup.seed);
    let node = |number| Node::new(setup.mode, &plan, setup.nodes, number, interval_ns);
    let mut world = World {
        setup: *setup,
        nodes: (0..setup.nodes).map(node).collect(),
        skews: (0..setup.nodes).map(|_| random.below(SECOND / 50)).collect(),
        server: InProcess::new(ManualClock::default()),
        events: BinaryHeap::new(),
        what: std::collections::HashMap::new(),
        number: 0,
        asked: Vec::new(),
        random,
        calls: 0,
        charged: 0,
    };
    let window_seconds = setup.limit.quota().period().as_secs();
    let (rate, seconds) = (setup.per_second, setup.seconds);
    let load = requests(setup.pattern, setup.nodes, rate, seconds, window_seconds, &mut world.random);
    let mut outcome = Outcome { seconds, ..Outcome::default() };
    let interval = interval_ns + 3 * setup.network.way_ns();
    outcome.offered_between = most_within(&load, interval);
    for node in 0..setup.nodes {
        let first = world.random.below(interval_ns.max(1));
        world.at(START + first, Event::Due(node));
    }
    for (at, node) in load {
        world.at(START + at, Event::Request(node));
    }
    let mut exact = Exact::new(setup.limit);
    // Long enough for what is under way, and for one sync more.
    let end = START + seconds * SECOND + 2 * interval_ns + SECOND;
    while let Some(Reverse((at, number))) = world.events.pop() {
        if at > end {
            break;
        }
        exact.pass(at, &mut outcome);
        let Some(event) = world.what.remove(&number) else { continue };
        if let Some(admitted) = world.happens(at, event) {
            exact.request(admitted, &mut outcome);
        }
    }
    exact.finish(&mut outcome);
    for (node, skew) in world.nodes.iter().zip(&world.skews) {
        let (pending, dropped) = node.pending(end + skew);
        outcome.pending += pending;
        outcome.dropped += dropped;
    }
    (outcome.calls, outcome.charged) = (world.calls, world.charged);
    outcome.bound = bound(setup);
    outcome
}

/// What a mode's text says.
fn bound(setup: &Setup) -> u64 {
    let (limit, nodes) = (setup.limit.most(), u64::from(setup.nodes));
    let partitioned = if setup.faults.partition_ms.is_some() { nodes / 2 } else { 0 };
    let interval = setup.interval + Duration::from_nanos(3 * setup.network.way_ns());
    let partition = setup.faults.partition_ms.map_or(0, |(from, until)| until.saturating_sub(from));
    let partition = Duration::from_millis(partition).as_secs_f64() * partitioned as f64 / nodes as f64;
    let refilled = |seconds: f64| match setup.limit.kind() {
        LimitKind::Gcra => {
            let quota = setup.limit.quota();
            let rate = quota.limit() as f64 / quota.period().as_secs_f64();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of units")]
            let units = (rate * seconds).ceil() as u64;
            units
        }
        _ => 0,
    };
    match setup.mode {
        // A unit lives for as long, at most.
        Mode::Lease => refilled(setup.interval.as_secs_f64()),
        Mode::WriteBack => {
            let alone = partitioned * (limit / nodes).max(1);
            crate::redis::write_back::over_at_most(limit, nodes)
                .saturating_add(refilled(interval.as_secs_f64() + partition))
                .saturating_add(alone)
        }
    }
}

/// The most requests in any interval so long.
fn most_within(load: &[(u64, u32)], interval: u64) -> u64 {
    let (mut first, mut most) = (0, 0);
    for (last, (at, _)) in load.iter().enumerate() {
        while load.get(first).is_some_and(|(from, _)| from + interval < *at) {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most as u64
}

impl World {
    fn at(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.what.insert(self.number, event);
        self.events.push(Reverse((at, self.number)));
    }

    fn way(&mut self) -> u64 {
        let way = self.setup.network.way_ns();
        way + self.random.below(way / 2)
    }

    fn skew(&self, node: u32) -> u64 {
        self.skews.get(node as usize).copied().unwrap_or(0)
    }

    fn is_cut(&self, node: u32, at: u64) -> bool {
        let Some((from, until)) = self.setup.faults.partition_ms else { return false };
        let ms = (at - START) / 1_000_000;
        node < self.setup.nodes / 2 && (from..until).contains(&ms)
    }

    /// Whether a request was admitted, if it was one.
    fn happens(&mut self, at: u64, event: Event) -> Option<bool> {
        match event {
            Event::Request(node) => {
                let local = at + self.skew(node);
                let (admitted, wakes) = self.nodes[node as usize].check(local);
                if wakes {
                    self.send(node, at);
                }
                return Some(admitted);
            }
            Event::Due(node) => {
                self.send(node, at);
                let skew = self.skew(node);
                let next = self.nodes[node as usize].next_ns(at + skew).saturating_sub(skew);
                // As late as a timer may be.
                let next = next.max(at + 100_000) + self.random.below(1_000_000);
                self.at(next, Event::Due(node));
            }
            Event::Call(node, id) => {
                let Some(Some(asked)) = self.asked.get(id) else { return None };
                self.calls += 1;
                let reply = self.server.answer_at(asked.call(), at / 1_000);
                self.charged += reply.granted;
                let is_lost = self.random.below(100) < self.setup.faults.lost;
                if !is_lost && !self.is_cut(node, at) {
                    let way = self.way();
                    self.at(at + way, Event::Answer(node, id, reply));
                } else {
                    self.at(at + 4 * self.setup.network.way_ns(), Event::Lost(node, id));
                }
            }
            Event::Answer(node, id, reply) => {
                let asked = self.asked.get_mut(id)?.take()?;
                let local = at + self.skew(node);
                if self.nodes[node as usize].answered(&asked, &reply, local) {
                    self.send(node, at);
                }
            }
            Event::Lost(node, id) => {
                let asked = self.asked.get_mut(id)?.take()?;
                self.nodes[node as usize].failed(&asked, at + self.skew(node));
            }
        }
        None
    }

    fn send(&mut self, node: u32, at: u64) {
        let local = at + self.skew(node);
        for asked in self.nodes[node as usize].due(local) {
            let id = self.asked.len();
            self.asked.push(Some(asked));
            if self.is_cut(node, at) {
                self.at(at + 4 * self.setup.network.way_ns(), Event::Lost(node, id));
            } else {
                let way = self.way();
                self.at(at + way, Event::Call(node, id));
            }
        }
    }
}
