//! The event loop of the simulation.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::load::{Arrival, Pattern, requests};
use super::node::{Asked, Found, MAX_BLOCK, Mode, Node, NodeAnswer};
use super::random::SplitMix64;
use super::tally::{Exact, Outcome};
use crate::algorithm::{Limit, LimitKind};
use crate::base::clock::ManualClock;
use crate::edge::redis::client::InProcess;
use crate::edge::redis::mode::lease;
use crate::edge::redis::protocol::{Plan, Reply};

const SECOND: u64 = 1_000_000_000;
/// The start time, a multiple of every window.
const START: u64 = 1_699_999_200 * SECOND;

/// The travel time of messages, in each direction.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Network {
    /// 0.5 ms, and up to half as much more.
    Lan,
    /// 40 ms, and up to half as much more.
    Regions,
}

impl Network {
    /// The shortest travel time, in nanoseconds.
    #[must_use]
    pub const fn way_ns(self) -> u64 {
        match self {
            Self::Lan => 500_000,
            Self::Regions => 40_000_000,
        }
    }

    /// How long a node waits for an answer, in nanoseconds.
    #[must_use]
    pub const fn timeout_ns(self) -> u64 {
        match self {
            Self::Lan => 40_000_000,
            Self::Regions => 160_000_000,
        }
    }

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lan => "0.5 ms",
            Self::Regions => "40 ms",
        }
    }
}

/// The faults of a run.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Faults {
    /// The percentage of answers that are lost. Their calls still take effect.
    pub lost: u64,
    /// The start and end, in milliseconds, of a partition in which the first half of the nodes cannot reach the server.
    pub partition_ms: Option<(u64, u64)>,
}

/// The settings of a run.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Setup {
    /// What decides the requests.
    pub mode: Mode,
    /// The limit.
    pub limit: Limit,
    /// The number of processes.
    pub nodes: u32,
    /// How requests are distributed.
    pub pattern: Pattern,
    /// Requests in a second, over all processes.
    pub per_second: u64,
    /// The length of the run in seconds.
    pub seconds: u64,
    /// The time between two posts.
    pub interval: Duration,
    /// The network.
    pub network: Network,
    /// The faults.
    pub faults: Faults,
    /// The seed of all random numbers.
    pub seed: u64,
}

enum PostEvent {
    Request(u32),
    Due(u32),
    /// A message to the server.
    Call(u32, usize),
    /// A message to the node.
    Answer(u32, usize, Reply),
    Lost(u32, usize),
}

/// A request that waits.
#[derive(Copy, Clone)]
struct WaitingRequest {
    since: u64,
    rounds: usize,
}

struct PostWorld<'h> {
    setup: Setup,
    nodes: &'h [Node],
    /// The state of the key at each node, if requests wait for it.
    holdings: &'h [Option<Arc<lease::Holding>>],
    /// The requests at each node that wait for the calls of others.
    waiting: Vec<VecDeque<(WaitingRequest, Option<lease::Waiting<'h>>)>>,
    exact: Exact,
    outcome: Outcome,
    /// How far each node's clock is ahead, in nanoseconds: up to 20 ms.
    skews: Vec<u64>,
    server: InProcess,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    what: std::collections::HashMap<u64, PostEvent>,
    number: u64,
    /// Each call, and the request that waits for its answer, if there is one. `None` after the call has ended.
    asked: Vec<Option<(Asked, Option<WaitingRequest>)>>,
    random: SplitMix64,
    calls: u64,
    charged: u64,
}

/// How often a request looks for units, before it asks the server for its own cost alone. The same as in
/// `LeaseLimiter::check_async`.
const ROUNDS: usize = 4;

/// Runs a simulation.
///
/// `stranded_bound` is the bound in the lease limiter's docs, for the requests of this run. Each process strands at
/// most its requests in a quarter of a life and two round trips, and at most its largest block. It does so once for
/// each time that it was idle for a life in a window, and once more at the end of the window.
///
/// # Panics
/// Panics if the shared state cannot keep the limit.
#[must_use]
#[track_caller]
pub fn run(setup: &Setup) -> Outcome {
    let plan = Arc::new(Plan::new(&[setup.limit]).expect("the script can count the limit"));
    let interval_ns = u64::try_from(setup.interval.as_nanos()).unwrap_or(u64::MAX);
    let mut random = SplitMix64(setup.seed);
    let node = |number| Node::new(setup.mode, &plan, setup.nodes, number, interval_ns);
    let nodes: Vec<Node> = (0..setup.nodes).map(node).collect();
    let skews: Vec<u64> = (0..setup.nodes).map(|_| random.below(SECOND / 50)).collect();
    let holdings: Vec<_> = nodes.iter().zip(&skews).map(|(node, skew)| node.holding(START + skew)).collect();
    let mut world = PostWorld {
        setup: *setup,
        waiting: nodes.iter().map(|_| VecDeque::new()).collect(),
        nodes: &nodes,
        holdings: &holdings,
        exact: Exact::new(setup.limit),
        outcome: Outcome::default(),
        skews,
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
    world.outcome.seconds = seconds;
    world.outcome.stranded_bound = stranded(setup, &load);
    let interval = interval_ns + 3 * setup.network.way_ns();
    world.outcome.offered_between = most_within(&load, interval);
    for node in 0..setup.nodes {
        let first = world.random.below(interval_ns.max(1));
        world.at(START + first, PostEvent::Due(node));
    }
    for Arrival { at, node } in load {
        world.at(START + at, PostEvent::Request(node));
    }
    // Long enough for the calls in flight, and for one more post.
    let end = START + seconds * SECOND + 2 * interval_ns + SECOND;
    while let Some(Reverse((at, number))) = world.events.pop() {
        if at > end {
            break;
        }
        world.exact.pass(at, &mut world.outcome);
        let Some(event) = world.what.remove(&number) else { continue };
        world.happens(at, event);
    }
    world.exact.finish(&mut world.outcome);
    let mut outcome = std::mem::take(&mut world.outcome);
    for (node, skew) in world.nodes.iter().zip(&world.skews) {
        if let Some(stats) = node.stats(end + skew) {
            outcome.pending += stats.pending;
            outcome.dropped += stats.evicted_pending;
        }
    }
    (outcome.calls, outcome.charged) = (world.calls, world.charged);
    outcome.bound = bound(setup);
    outcome
}

/// The bound in the mode's docs.
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
        // A unit lives at most this long.
        Mode::Lease | Mode::Awaited => refilled(setup.interval.as_secs_f64()),
        Mode::WriteBack => {
            let alone = partitioned * (limit / nodes).max(1);
            crate::edge::redis::mode::write_back::over_at_most(limit, nodes)
                .saturating_add(refilled(interval.as_secs_f64() + partition))
                .saturating_add(alone)
        }
    }
}

/// The largest number of requests in any interval of this length.
fn most_within(load: &[Arrival], interval: u64) -> u64 {
    let (mut first, mut most) = (0, 0);
    for (last, one) in load.iter().enumerate() {
        while load.get(first).is_some_and(|from| from.at + interval < one.at) {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most as u64
}

/// The bound on stranded units; see [`run`].
fn stranded(setup: &Setup, load: &[Arrival]) -> u64 {
    if setup.mode == Mode::WriteBack {
        return 0;
    }
    let life = u64::try_from(setup.interval.as_nanos()).unwrap_or(u64::MAX);
    let window = u64::try_from(setup.limit.quota().period().as_nanos()).unwrap_or(u64::MAX).max(1);
    let mut each = vec![Vec::new(); setup.nodes as usize];
    for one in load {
        each[one.node as usize].push(*one);
    }
    let of = |load: &Vec<Arrival>| {
        // Six times the one-way delay is the longest time of two round trips.
        let use_of = most_within(load, life / 4 + 6 * setup.network.way_ns()).min(MAX_BLOCK);
        let mut falls = std::collections::HashMap::<u64, u64>::new();
        for pair in load.windows(2) {
            if let [before, after] = pair {
                *falls.entry(before.at / window).or_insert(1) += u64::from(after.at - before.at > life);
            }
        }
        use_of * falls.into_values().max().unwrap_or(1)
    };
    each.iter().map(of).sum()
}

impl PostWorld<'_> {
    fn at(&mut self, at: u64, event: PostEvent) {
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

    fn decided(&mut self, patient: WaitingRequest, at: u64, admitted: bool) {
        self.exact.request(admitted, &mut self.outcome);
        self.outcome.waited += u64::from(at > patient.since);
        self.outcome.waited_us += (at - patient.since) / 1_000;
    }

    /// A request looks for units, for the first time or again.
    fn seek(&mut self, node: u32, at: u64, patient: WaitingRequest) {
        let (index, local) = (node as usize, at + self.skew(node));
        let found = self.nodes[index].find(local, patient.rounds == ROUNDS);
        let wakes = self.nodes[index].woke();
        let next = WaitingRequest { rounds: patient.rounds + 1, ..patient };
        match found {
            Found::Decided(admitted) => self.decided(patient, at, admitted),
            Found::Asks(asked) => self.ask(node, at, asked, Some(next)),
            Found::Waits => {
                // The caller in flight gets an answer or gives up, so no request waits forever.
                let holding = self.holdings[index].as_ref();
                let waiting = holding.and_then(|holding| self.nodes[index].wait(holding, local));
                self.waiting[index].push_back((next, waiting));
            }
        }
        if wakes {
            self.send(node, at);
        }
    }

    /// The waiting requests of a node look again.
    fn ring(&mut self, node: u32, at: u64) {
        for _ in 0..self.waiting[node as usize].len() {
            let Some((patient, waiting)) = self.waiting[node as usize].pop_front() else { return };
            drop(waiting);
            self.seek(node, at, patient);
        }
    }

    fn happens(&mut self, at: u64, event: PostEvent) {
        match event {
            PostEvent::Request(node) => self.seek(node, at, WaitingRequest { since: at, rounds: 0 }),
            PostEvent::Due(node) => {
                self.send(node, at);
                let skew = self.skew(node);
                let next = self.nodes[node as usize].next_ns(at + skew).saturating_sub(skew);
                // A real timer also fires up to a millisecond late.
                let next = next.max(at + 100_000) + self.random.below(1_000_000);
                self.at(next, PostEvent::Due(node));
            }
            PostEvent::Call(node, id) => {
                let Some(Some((asked, patient))) = self.asked.get(id) else { return };
                let patient = *patient;
                self.calls += 1;
                let reply = self.server.answer_at(asked.call(), at / 1_000);
                self.charged += reply.granted;
                self.exact.charge(reply.granted);
                let is_exact = matches!(asked, Asked::Exact(_));
                let is_lost = self.random.below(100) < self.setup.faults.lost;
                if is_lost || self.is_cut(node, at) {
                    let until = at + self.give_up_ns();
                    self.at(until, PostEvent::Lost(node, id));
                    return;
                }
                let back = at + self.way();
                if let (true, Some(patient)) = (is_exact, patient) {
                    // The request counts when it is charged. Only its answer is still in flight.
                    self.asked[id] = None;
                    self.exact.request(reply.granted > 0, &mut self.outcome);
                    self.outcome.waited += 1;
                    self.outcome.waited_us += (back - patient.since) / 1_000;
                } else {
                    self.at(back, PostEvent::Answer(node, id, reply));
                }
            }
            PostEvent::Answer(node, id, reply) => {
                let Some((asked, patient)) = self.asked.get_mut(id).and_then(Option::take) else { return };
                let local = at + self.skew(node);
                let told = self.nodes[node as usize].answered(&asked, &reply, local);
                let wakes = self.nodes[node as usize].woke();
                match (patient, told) {
                    (Some(patient), NodeAnswer::Decided(admitted)) => self.decided(patient, at, admitted),
                    (Some(patient), NodeAnswer::Again) => self.seek(node, at, patient),
                    (None, _) => {}
                }
                if wakes {
                    self.send(node, at);
                }
                self.ring(node, at);
            }
            PostEvent::Lost(node, id) => {
                let Some((asked, patient)) = self.asked.get_mut(id).and_then(Option::take) else { return };
                self.nodes[node as usize].failed(&asked, at + self.skew(node));
                if let Some(patient) = patient {
                    self.decided(patient, at, false);
                }
                self.ring(node, at);
            }
        }
    }

    /// The time after which a node gives up an answer, from when the call was sent or lost.
    const fn give_up_ns(&self) -> u64 {
        match self.setup.mode {
            Mode::Awaited => self.setup.network.timeout_ns(),
            Mode::Lease | Mode::WriteBack => 4 * self.setup.network.way_ns(),
        }
    }

    fn ask(&mut self, node: u32, at: u64, asked: Asked, patient: Option<WaitingRequest>) {
        let id = self.asked.len();
        self.asked.push(Some((asked, patient)));
        if self.is_cut(node, at) {
            self.at(at + self.give_up_ns(), PostEvent::Lost(node, id));
        } else {
            let way = self.way();
            self.at(at + way, PostEvent::Call(node, id));
        }
    }

    fn send(&mut self, node: u32, at: u64) {
        let local = at + self.skew(node);
        for asked in self.nodes[node as usize].due(local) {
            self.ask(node, at, asked, None);
        }
    }
}
