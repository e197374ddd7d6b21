//! The events, one after another.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::load::{Pattern, requests};
use super::node::{Asked, Found, MAX_BLOCK, Mode, Node, Told};
use super::random::SplitMix64;
use super::tally::{Exact, Outcome};
use crate::base::clock::ManualClock;
use crate::edge::redis::client::InProcess;
use crate::edge::redis::mode::lease;
use crate::edge::redis::protocol::{Limit, LimitKind, Plan, Reply};

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

    /// How long is waited for an answer, in nanoseconds.
    #[must_use]
    pub const fn timeout_ns(self) -> u64 {
        match self {
            Self::Lan => 40_000_000,
            Self::Regions => 160_000_000,
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

/// A request that waits.
#[derive(Copy, Clone)]
struct Patient {
    since: u64,
    rounds: usize,
}

struct World<'h> {
    setup: Setup,
    nodes: &'h [Node],
    /// What nodes keep of the key, if requests wait for it.
    holdings: &'h [Option<Arc<lease::Holding>>],
    /// Those that wait for others' questions, at each node.
    waiting: Vec<VecDeque<(Patient, Option<lease::Waiting<'h>>)>>,
    exact: Exact,
    outcome: Outcome,
    /// How far each node's clock is ahead, so that none of them is right.
    skews: Vec<u64>,
    server: InProcess,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    what: std::collections::HashMap<u64, Event>,
    number: u64,
    /// And who waits for that answer alone.
    asked: Vec<Option<(Asked, Option<Patient>)>>,
    random: SplitMix64,
    calls: u64,
    charged: u64,
}

/// So often a call waits before it asks for itself alone, as in `LeaseLimiter::check_async`.
const ROUNDS: usize = 4;

/// Runs it.
///
/// `stranded_bound` is what the lease limiter's text says, of the requests that there were: of each process the most in a quarter of a life and
/// two round trips, but no more than its largest block; as often as it was idle for a life in a window, and once more at the window's end.
///
/// # Panics
/// If the limit is none that the shared state can keep.
#[must_use]
#[track_caller]
pub fn run(setup: &Setup) -> Outcome {
    let plan = Arc::new(Plan::new(&[setup.limit]).expect("a limit"));
    let interval_ns = u64::try_from(setup.interval.as_nanos()).unwrap_or(u64::MAX);
    let mut random = SplitMix64(setup.seed);
    let node = |number| Node::new(setup.mode, &plan, setup.nodes, number, interval_ns);
    let nodes: Vec<Node> = (0..setup.nodes).map(node).collect();
    let skews: Vec<u64> = (0..setup.nodes).map(|_| random.below(SECOND / 50)).collect();
    let holdings: Vec<_> = nodes.iter().zip(&skews).map(|(node, skew)| node.holding(START + skew)).collect();
    let mut world = World {
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
        world.at(START + first, Event::Due(node));
    }
    for (at, node) in load {
        world.at(START + at, Event::Request(node));
    }
    // Long enough for what is under way, and for one sync more.
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
        Mode::Lease | Mode::Awaited => refilled(setup.interval.as_secs_f64()),
        Mode::WriteBack => {
            let alone = partitioned * (limit / nodes).max(1);
            crate::edge::redis::mode::write_back::over_at_most(limit, nodes)
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

/// See [`run`].
fn stranded(setup: &Setup, load: &[(u64, u32)]) -> u64 {
    if setup.mode == Mode::WriteBack {
        return 0;
    }
    let life = u64::try_from(setup.interval.as_nanos()).unwrap_or(u64::MAX);
    let window = u64::try_from(setup.limit.quota().period().as_nanos()).unwrap_or(u64::MAX).max(1);
    let mut each = vec![Vec::new(); setup.nodes as usize];
    for (at, node) in load {
        each[*node as usize].push((*at, *node));
    }
    let of = |load: &Vec<(u64, u32)>| {
        // Two round trips, as long as they may be.
        let use_of = most_within(load, life / 4 + 6 * setup.network.way_ns()).min(MAX_BLOCK);
        let mut falls = std::collections::HashMap::<u64, u64>::new();
        for pair in load.windows(2) {
            if let [(before, _), (after, _)] = pair {
                *falls.entry(before / window).or_insert(1) += u64::from(after - before > life);
            }
        }
        use_of * falls.into_values().max().unwrap_or(1)
    };
    each.iter().map(of).sum()
}

impl World<'_> {
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

    fn decided(&mut self, patient: Patient, at: u64, admitted: bool) {
        self.exact.request(admitted, &mut self.outcome);
        self.outcome.waited += u64::from(at > patient.since);
        self.outcome.waited_us += (at - patient.since) / 1_000;
    }

    /// A request, for the first time or again.
    fn look(&mut self, node: u32, at: u64, patient: Patient) {
        let (index, local) = (node as usize, at + self.skew(node));
        let (found, wakes) = self.nodes[index].find(local, patient.rounds == ROUNDS);
        let next = Patient { rounds: patient.rounds + 1, ..patient };
        match found {
            Found::Decided(admitted) => self.decided(patient, at, admitted),
            Found::Asks(asked) => self.ask(node, at, asked, Some(next)),
            Found::Waits => {
                // Who asks has an answer or gives up, so nobody waits for ever.
                let holding = self.holdings[index].as_ref();
                let waiting = holding.and_then(|holding| self.nodes[index].wait(holding, local));
                self.waiting[index].push_back((next, waiting));
            }
        }
        if wakes {
            self.send(node, at);
        }
    }

    /// Those who wait at a node look again.
    fn ring(&mut self, node: u32, at: u64) {
        for _ in 0..self.waiting[node as usize].len() {
            let Some((patient, waiting)) = self.waiting[node as usize].pop_front() else { return };
            drop(waiting);
            self.look(node, at, patient);
        }
    }

    fn happens(&mut self, at: u64, event: Event) {
        match event {
            Event::Request(node) => self.look(node, at, Patient { since: at, rounds: 0 }),
            Event::Due(node) => {
                self.send(node, at);
                let skew = self.skew(node);
                let next = self.nodes[node as usize].next_ns(at + skew).saturating_sub(skew);
                // As late as a timer may be.
                let next = next.max(at + 100_000) + self.random.below(1_000_000);
                self.at(next, Event::Due(node));
            }
            Event::Call(node, id) => {
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
                    self.at(until, Event::Lost(node, id));
                    return;
                }
                let back = at + self.way();
                if let (true, Some(patient)) = (is_exact, patient) {
                    // It counts where it is charged; only the answer is on its way.
                    self.asked[id] = None;
                    self.exact.request(reply.granted > 0, &mut self.outcome);
                    self.outcome.waited += 1;
                    self.outcome.waited_us += (back - patient.since) / 1_000;
                } else {
                    self.at(back, Event::Answer(node, id, reply));
                }
            }
            Event::Answer(node, id, reply) => {
                let Some((asked, patient)) = self.asked.get_mut(id).and_then(Option::take) else { return };
                let local = at + self.skew(node);
                let (told, wakes) = self.nodes[node as usize].answered(&asked, &reply, local);
                match (patient, told) {
                    (Some(patient), Told::Decided(admitted)) => self.decided(patient, at, admitted),
                    (Some(patient), Told::Again) => self.look(node, at, patient),
                    (None, _) => {}
                }
                if wakes {
                    self.send(node, at);
                }
                self.ring(node, at);
            }
            Event::Lost(node, id) => {
                let Some((asked, patient)) = self.asked.get_mut(id).and_then(Option::take) else { return };
                self.nodes[node as usize].failed(&asked, at + self.skew(node));
                if let Some(patient) = patient {
                    self.decided(patient, at, false);
                }
                self.ring(node, at);
            }
        }
    }

    /// How long after it was sent, or lost, an answer is given up.
    const fn give_up_ns(&self) -> u64 {
        match self.setup.mode {
            Mode::Awaited => self.setup.network.timeout_ns(),
            Mode::Lease | Mode::WriteBack => 4 * self.setup.network.way_ns(),
        }
    }

    fn ask(&mut self, node: u32, at: u64, asked: Asked, patient: Option<Patient>) {
        let id = self.asked.len();
        self.asked.push(Some((asked, patient)));
        if self.is_cut(node, at) {
            self.at(at + self.give_up_ns(), Event::Lost(node, id));
        } else {
            let way = self.way();
            self.at(at + way, Event::Call(node, id));
        }
    }

    fn send(&mut self, node: u32, at: u64) {
        let local = at + self.skew(node);
        for asked in self.nodes[node as usize].due(local) {
            self.ask(node, at, asked, None);
        }
    }
}
