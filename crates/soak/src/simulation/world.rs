//! The event loop of the simulation.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tollgate::ManualClock;
use tollgate_protocol::{Plan, Question, Reply};
use tollgate_redis::InProcess;
use tollgate_redis::internals::{LeaseBook, Waiting};
use tollgate_testing::accuracy::random::Random;

use super::SECOND;
use super::bounds::{bound, most_within, stranded};
use super::events::Events;
use super::load::{Arrival, requests};
use super::node::{Asked, Found, Node, NodeAnswer};
use super::setup::{Mode, Setup, nanos};
use super::tally::{Exact, Outcome};

/// The start time, a multiple of every window.
pub const START: u64 = 1_699_999_200 * SECOND;
/// How often a request looks for units, before it asks the server for its own cost alone. The same as in
/// `LeaseLimiter::check_async`.
pub const ROUNDS: usize = 4;

/// A request at a node.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Request {
    pub node: usize,
    pub key: u32,
    pub cost: u64,
    /// Whether it waits for units that the node does not hold.
    pub waits: bool,
}

/// A request that waits.
#[derive(Copy, Clone)]
struct Sought {
    request: Request,
    since: u64,
    rounds: usize,
}

/// A call, from when it is sent until it ends.
struct InFlight {
    node: usize,
    asked: Asked,
    /// The request that waits for the answer.
    sought: Option<Sought>,
}

enum Event {
    Request(Request),
    Due(usize),
    /// A message to the server.
    Call(usize),
    /// A message to the node.
    Answer(usize, Reply),
    Lost(usize),
}

/// The state of a simulation.
pub struct World {
    pub setup: Setup,
    /// The present time, by the server's clock.
    pub now: u64,
    nodes: Vec<Node>,
    /// How far each node's clock is ahead, in nanoseconds.
    pub skews: Vec<u64>,
    /// The requests at each node that wait for the calls of others, by key.
    waiting: BTreeMap<(usize, u32), VecDeque<(Sought, Waiting)>>,
    server: InProcess,
    events: Events<Event>,
    /// All calls. `None` after a call has ended.
    in_flight: Vec<Option<InFlight>>,
    pub random: Random,
    exact: Vec<Exact>,
    pub outcome: Outcome,
    /// Each admitted request, and its time.
    pub admitted: Vec<(u64, Request)>,
    /// The units of requests that the server decided itself.
    pub asked_exactly: u64,
}

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
    let mut world = World::new(setup);
    let window_seconds = setup.limit.quota().period().as_secs();
    let (rate, seconds) = (setup.per_second, setup.seconds);
    let load = requests(setup.pattern, setup.nodes, rate, seconds, window_seconds, &mut world.random);
    world.outcome.seconds = seconds;
    world.outcome.stranded_bound = stranded(setup, &load);
    let interval_ns = setup.interval_ns();
    world.outcome.offered_between =
        most_within(load.iter().map(|one| one.at), interval_ns + 3 * setup.network.way_ns());
    world.begin();
    for Arrival { at, node } in load {
        let request = Request { node, key: 0, cost: 1, waits: setup.mode == Mode::Awaited };
        world.request(START + at, request);
    }
    // Long enough for the calls in flight, and for one more post.
    world.until(START + seconds * SECOND + 2 * interval_ns + SECOND);
    world.finish()
}

impl World {
    /// Creates the nodes and the server.
    ///
    /// # Panics
    /// Panics if the shared state cannot keep the limit.
    #[must_use]
    #[track_caller]
    pub fn new(setup: &Setup) -> Self {
        let plan = Arc::new(Plan::new(&[setup.limit]).expect("the script can count the limit"));
        let mut random = Random::new(setup.seed);
        let skews: Vec<u64> = (0..setup.nodes).map(|_| random.below(nanos(setup.skew))).collect();
        let nodes: Vec<Node> = (0..setup.nodes).map(|number| Node::new(setup, &plan, number)).collect();
        for (node, skew) in nodes.iter().zip(&skews) {
            (0..setup.keys).for_each(|key| node.add_key(key, START + skew));
        }
        Self {
            setup: *setup,
            now: START,
            nodes,
            skews,
            waiting: BTreeMap::new(),
            server: InProcess::new(ManualClock::default()),
            events: Events::default(),
            in_flight: Vec::new(),
            random,
            exact: (0..setup.keys).map(|_| Exact::new(setup.limit)).collect(),
            outcome: Outcome::default(),
            admitted: Vec::new(),
            asked_exactly: 0,
        }
    }

    /// Starts the task of each node, at a random time within an interval.
    pub fn begin(&mut self) {
        for node in 0..self.nodes.len() {
            let first = self.random.below(self.setup.interval_ns().max(1));
            self.events.add(START + first, Event::Due(node));
        }
    }

    /// Adds a request at this time.
    pub fn request(&mut self, at: u64, request: Request) {
        self.events.add(at, Event::Request(request));
    }

    /// Runs until this time.
    pub fn until(&mut self, until: u64) {
        while let Some((at, event)) = self.events.next(until) {
            self.now = at;
            for exact in &mut self.exact {
                exact.pass(at, &mut self.outcome);
            }
            match event {
                Event::Request(request) => self.seek(Sought { request, since: at, rounds: 0 }),
                Event::Due(node) => self.work(node),
                Event::Call(call) => self.arrive(call),
                Event::Answer(call, reply) => self.answer(call, &reply),
                Event::Lost(call) => self.lose(call),
            }
        }
        self.now = until;
    }

    /// Ends the run, and returns its result.
    fn finish(mut self) -> Outcome {
        for exact in &mut self.exact {
            exact.finish(&mut self.outcome);
        }
        for (node, skew) in self.nodes.iter().zip(&self.skews) {
            if let Some(stats) = node.posted(self.now + skew) {
                self.outcome.pending += stats.pending;
                self.outcome.dropped += stats.evicted_pending;
            }
        }
        self.outcome.bound = bound(&self.setup);
        self.outcome
    }

    /// The books of all nodes with leases, and the time of each node.
    pub fn leases(&self) -> impl Iterator<Item = (&LeaseBook, u64)> {
        let nodes = self.nodes.iter().zip(&self.skews);
        nodes.filter_map(|(node, skew)| Some((node.leases()?, self.now + skew)))
    }

    /// The requests that wait for a call of another request, and the calls in flight.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum::<usize>() + self.in_flight.iter().flatten().count()
    }

    fn local(&self, node: usize) -> u64 {
        self.now + self.skews[node]
    }

    fn way(&mut self) -> u64 {
        let way = self.setup.network.way_ns();
        way + self.random.below(way / 2)
    }

    fn is_cut(&self, node: usize) -> bool {
        let Some((from, until)) = self.setup.faults.partition_ms else { return false };
        let ms = (self.now - START) / 1_000_000;
        node < self.setup.nodes as usize / 2 && (from..until).contains(&ms)
    }

    fn count(&mut self, Request { key, cost, .. }: Request, admitted: bool) {
        self.exact[key as usize].request(cost, admitted, &mut self.outcome);
    }

    fn decide(&mut self, sought: Sought, admitted: bool) {
        self.count(sought.request, admitted);
        if admitted {
            self.admitted.push((self.now, sought.request));
        }
        self.outcome.waited += u64::from(self.now > sought.since);
        self.outcome.waited_us += (self.now - sought.since) / 1_000;
    }

    /// A request looks for units, for the first time or again.
    fn seek(&mut self, sought: Sought) {
        let Request { node, key, cost, waits } = sought.request;
        let local = self.local(node);
        let found = if waits {
            self.nodes[node].find(key, cost, local, sought.rounds == ROUNDS)
        } else {
            Found::Decided(self.nodes[node].check(key, cost, local))
        };
        let next = Sought { rounds: sought.rounds + 1, ..sought };
        match found {
            Found::Decided(admitted) => self.decide(sought, admitted),
            Found::Asks(asked) => self.ask(node, asked, Some(next)),
            // The caller in flight gets an answer or gives up, so no request waits forever.
            Found::Waits(waiting) => {
                self.waiting.entry((node, key)).or_default().push_back((next, waiting));
            }
        }
        if self.nodes[node].woke() {
            self.send(node);
        }
    }

    /// The waiting requests for a key of a node look again.
    fn ring(&mut self, node: usize, key: u32) {
        let most = self.waiting.get(&(node, key)).map_or(0, VecDeque::len);
        for _ in 0..most {
            let first = self.waiting.get_mut(&(node, key)).and_then(VecDeque::pop_front);
            let Some((sought, waiting)) = first else { return };
            drop(waiting);
            self.seek(sought);
        }
    }

    /// The task of a node sends due calls, and sets its timer.
    fn work(&mut self, node: usize) {
        self.send(node);
        let skew = self.skews[node];
        let next = self.nodes[node].next_ns(self.now + skew).saturating_sub(skew);
        // A real timer also fires up to a millisecond late.
        let next = next.max(self.now + 100_000) + self.random.below(1_000_000);
        self.events.add(next, Event::Due(node));
    }

    /// A call reaches the server.
    fn arrive(&mut self, call: usize) {
        let Some(Some(InFlight { node, asked, sought })) = self.in_flight.get(call) else { return };
        let (node, sought, is_exact) = (*node, *sought, matches!(asked, Asked::Exact(..)));
        let reply = self.server.answer_at(asked.call(), self.now / 1_000);
        if let Question::Lease { wanted, .. } = asked.call().ask {
            assert!(reply.granted <= wanted, "the server grants no more than the node wants");
        }
        self.outcome.calls += 1;
        self.outcome.charged += reply.granted;
        self.exact[asked.key() as usize].charge(reply.granted);
        let is_lost = self.random.below(100) < self.setup.faults.lost;
        if is_lost || self.is_cut(node) {
            self.events.add(self.now + self.give_up_ns(), Event::Lost(call));
            return;
        }
        let back = self.now + self.way();
        let Some(sought) = sought.filter(|_| is_exact) else {
            return self.events.add(back, Event::Answer(call, reply));
        };
        // The request counts when it is charged. Only its answer is still in flight.
        self.in_flight[call] = None;
        let admitted = reply.granted > 0;
        self.count(sought.request, admitted);
        if admitted {
            self.admitted.push((self.now, sought.request));
            self.asked_exactly += reply.granted;
        }
        self.outcome.waited += 1;
        self.outcome.waited_us += (back - sought.since) / 1_000;
    }

    /// An answer reaches its node.
    fn answer(&mut self, call: usize, reply: &Reply) {
        let Some(InFlight { node, asked, sought }) = self.in_flight[call].take() else { return };
        let told = self.nodes[node].answered(&asked, reply, self.local(node));
        let wakes = self.nodes[node].woke();
        match (sought, told) {
            (Some(sought), NodeAnswer::Decided(admitted)) => self.decide(sought, admitted),
            (Some(sought), NodeAnswer::Again) => self.seek(sought),
            (None, _) => {}
        }
        if wakes {
            self.send(node);
        }
        self.ring(node, asked.key());
    }

    /// A node gives a call up.
    fn lose(&mut self, call: usize) {
        let Some(InFlight { node, asked, sought }) = self.in_flight[call].take() else { return };
        self.nodes[node].failed(&asked, self.local(node));
        if let Some(sought) = sought {
            self.decide(sought, false);
        }
        self.ring(node, asked.key());
    }

    /// The time after which a node gives up an answer, from when the call was sent or lost.
    const fn give_up_ns(&self) -> u64 {
        match self.setup.mode {
            Mode::Awaited => self.setup.network.timeout_ns(),
            Mode::Lease | Mode::WriteBack => 4 * self.setup.network.way_ns(),
        }
    }

    fn ask(&mut self, node: usize, asked: Asked, sought: Option<Sought>) {
        let call = self.in_flight.len();
        self.in_flight.push(Some(InFlight { node, asked, sought }));
        let lost = self.setup.faults.lost_calls;
        if self.is_cut(node) || (lost > 0 && self.random.below(100) < lost) {
            self.events.add(self.now + self.give_up_ns(), Event::Lost(call));
        } else {
            let way = self.way();
            self.events.add(self.now + way, Event::Call(call));
        }
    }

    fn send(&mut self, node: usize) {
        for asked in self.nodes[node].due(self.local(node)) {
            self.ask(node, asked, None);
        }
    }
}
