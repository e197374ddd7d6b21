//! Simulates several regions that exchange totals, in virtual time.
//!
//! Each process runs the real book of the write-back mode. Each region's server is the model of the region's script.
//! The exchange uses the claims, the questions and the pauses that production uses. Only time and the network are
//! simulated.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::random::SplitMix64;
use super::region_tally::{Admissions, Phases};
use crate::edge::redis::client::OnFailure;
use crate::edge::redis::mode::write_back::{BookSettings, Post, WriteBackBook};
use crate::edge::redis::protocol::{Arithmetic, ErrorKind, Limit, Plan, Reply, Windows};
use crate::edge::redis::region::{
    Claim, LinkReport, Portion, RegionCall, RegionLink, RegionLinks, RegionPolicy, RegionQuestion,
    RegionReply, RegionState, RegionTerms, pause,
};

pub(super) const SECOND: u64 = 1_000_000_000;
/// The start time, a multiple of every window.
pub(super) const START: u64 = 1_699_999_200 * SECOND;
/// The shortest travel time between a process and the server of its region.
const WAY: u64 = 500_000;

/// Which messages between regions are lost during a partition.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Cut {
    /// All.
    All,
    /// Those from and to the first region.
    First,
    /// Those to the first region: its own questions arrive, and their answers are lost.
    OneWay,
}

/// A mistake, to show that the assertions find it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Mistake {
    /// Regions report the totals of other regions as their own.
    Echo,
    /// Each exchange renews the share, answered or not.
    RenewalWithoutNews,
    /// Each process knows only the calls that it made itself.
    NoReports,
}

/// The settings of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct RegionSetup {
    /// The limit, with windows.
    pub limit: Limit,
    /// What a region may admit.
    pub policy: RegionPolicy,
    /// The requests in a second, for each region.
    pub per_second: Vec<u64>,
    /// The processes in each region.
    pub processes: u32,
    /// The number of keys. The n-th key gets 1/n as many requests as the first.
    pub keys: u32,
    /// The length of the run.
    pub seconds: u64,
    /// The time between two posts of a process.
    pub interval: Duration,
    /// The time between two exchanges of a key.
    pub exchange: Duration,
    /// The shortest travel time of a message between regions. A message takes up to half as much more.
    pub delay: Duration,
    /// The percentage of messages between regions that are lost.
    pub lost: u64,
    /// The start and the end of a partition, in milliseconds.
    pub partition_ms: Option<(u64, u64, Cut)>,
    /// The clock of the n-th region is ahead by n times this time.
    pub skew: Duration,
    /// A mistake.
    pub mistake: Option<Mistake>,
    /// The seed of all random numbers.
    pub seed: u64,
}

impl RegionSetup {
    /// One process in each region and one key, for five minutes. Messages take 100 ms, and none is lost.
    #[must_use]
    pub const fn new(limit: Limit, policy: RegionPolicy, per_second: Vec<u64>) -> Self {
        Self {
            limit,
            policy,
            per_second,
            processes: 1,
            keys: 1,
            seconds: 300,
            interval: Duration::from_secs(1),
            exchange: Duration::from_secs(5),
            delay: Duration::from_millis(100),
            lost: 0,
            partition_ms: None,
            skew: Duration::ZERO,
            mistake: None,
            seed: 7,
        }
    }
}

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct RegionOutcome {
    /// The requests, and those that were admitted.
    pub offered: u64,
    /// The admitted requests.
    pub admitted: u64,
    /// The messages from one region to another, without answers.
    pub exchanges: u64,
    /// What was admitted beyond the limit.
    pub over: Phases,
    /// Regions that knew too little of another region after the partition healed.
    pub disagreements: u64,
    /// How many times a process reported another region as cut off: at the end of the partition, and at the end of the
    /// run.
    pub cut_off: [u64; 2],
    /// The longest time for which a process reported a region as cut off although, in the last three exchange intervals,
    /// the region had answered a process of its own region.
    pub false_alarm: Duration,
    /// The longest time from the first lost call of a partition until every process reports it.
    pub alarm: Duration,
}

enum Event {
    Request(usize, u32),
    Due(usize),
    /// A call reaches the server of the process's region.
    Call(usize, Post),
    Answer(usize, Post, Reply, Option<Claim>),
    /// An exchange reaches the server of another region.
    Tell(usize, usize, Claim),
    /// The reply reaches the process.
    Told(usize, usize, Claim, RegionReply),
    /// The reply reaches the server of the process's region.
    Hear(usize, RegionQuestion, Claim),
    /// A process reports its calls, and learns what its region knows.
    Report(usize),
    /// Compares what all processes report with the truth.
    Look,
    CutEnds,
    MustAgree,
}

struct Process {
    region: usize,
    book: WriteBackBook,
    /// The way to each region.
    links: Vec<RegionLink>,
    /// Since when it reports each region falsely.
    false_since: Vec<Option<u64>>,
}

struct Server {
    name: Box<str>,
    terms: Arc<RegionTerms>,
    states: HashMap<Vec<u8>, RegionState>,
    links: RegionLinks,
    /// When each region answered a process of this region, and when the first call was lost after it.
    answers: Vec<(u64, Option<u64>)>,
}

struct World<'s> {
    setup: &'s RegionSetup,
    servers: Vec<Server>,
    processes: Vec<Process>,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    what: HashMap<u64, Event>,
    number: u64,
    random: SplitMix64,
    admissions: Admissions,
    /// For each pair and key: exchanges lost in a row.
    lost_in_a_row: BTreeMap<(usize, usize, Vec<u8>), u64>,
    /// For each key and region: the window and the total when the partition ended.
    at_heal: Vec<(Vec<u8>, usize, u64, u64)>,
    outcome: RegionOutcome,
}

/// Runs a simulation.
///
/// # Panics
/// Panics if the limit has no windows, or if the script cannot count it.
#[must_use]
pub fn run_regions(setup: &RegionSetup) -> RegionOutcome {
    let plan = Arc::new(Plan::new(&[setup.limit]).expect("the script can count the limit"));
    let Some(Arithmetic::Windows(windows)) = plan.parts().first().map(|part| part.kind) else {
        panic!("the limit has no windows");
    };
    let regions = setup.per_second.len().max(1);
    let servers = (0..regions).map(|region| server(setup, windows, region, regions)).collect::<Vec<_>>();
    let processes = (0..regions * setup.processes.max(1) as usize)
        .map(|number| process(setup, &plan, number, &servers))
        .collect::<Vec<_>>();
    let mut world = World {
        setup,
        admissions: Admissions::new(windows, regions, setup.skew),
        servers,
        processes,
        events: BinaryHeap::new(),
        what: HashMap::new(),
        number: 0,
        random: SplitMix64(setup.seed),
        lost_in_a_row: BTreeMap::new(),
        at_heal: Vec::new(),
        outcome: RegionOutcome::default(),
    };
    world.requests();
    for process in 0..world.processes.len() {
        let at = START + world.random.below(SECOND);
        world.at(at, Event::Due(process));
        world.at(at, Event::Report(process));
    }
    world.at(START, Event::Look);
    if let Some((_, until, _)) = setup.partition_ms {
        let until = START + until * 1_000_000;
        world.at(until, Event::CutEnds);
        world.at(until + setup.agreement_ns(), Event::MustAgree);
    }
    let end = START + setup.seconds * SECOND;
    while let Some(Reverse((at, number))) = world.events.pop() {
        if at > end {
            break;
        }
        if let Some(event) = world.what.remove(&number) {
            world.happens(at, event);
        }
    }
    let mut outcome = std::mem::take(&mut world.outcome);
    outcome.cut_off[1] = world.cut_off();
    let lost = world.lost_in_a_row.values().copied().max().unwrap_or(0);
    outcome.over = world.admissions.judge(setup, setup.age_ns(lost), setup.flush_ns());
    outcome
}

impl RegionSetup {
    fn exchange_ns(&self) -> u64 {
        u64::try_from(self.exchange.as_nanos()).unwrap_or(u64::MAX)
    }

    fn delay_ns(&self) -> u64 {
        u64::try_from(self.delay.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The time between two posts, and two round trips inside the region.
    fn flush_ns(&self) -> u64 {
        u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX) + 8 * WAY
    }

    /// How old the knowledge of another region can be: one exchange, one message, and one post on either side.
    fn age_ns(&self, lost: u64) -> u64 {
        self.exchange_ns() * (lost + 1) * 11 / 10 + self.delay_ns() * 3 / 2 + 2 * self.flush_ns()
    }

    /// The time in which regions agree after a partition.
    fn agreement_ns(&self) -> u64 {
        self.exchange_ns() * 11 / 10 + 2 * self.delay_ns() * 3 / 2 + 2 * self.flush_ns()
    }
}

fn server(setup: &RegionSetup, windows: Windows, region: usize, regions: usize) -> Server {
    let name = |region: usize| -> Box<str> { format!("region{region}").into() };
    let others = (0..regions).filter(|other| *other != region).map(name).collect();
    let portion = Portion { from: region as u64, to: region as u64 + 1, of: regions as u64 };
    let terms = Arc::new(RegionTerms { windows, policy: setup.policy, portion, others });
    let answers = vec![(0, None); regions];
    Server { name: name(region), terms, states: HashMap::new(), links: RegionLinks::default(), answers }
}

fn process(setup: &RegionSetup, plan: &Arc<Plan>, number: usize, servers: &[Server]) -> Process {
    let region = number % servers.len();
    let options = BookSettings {
        routes: Arc::default(),
        head: b"regions:{".as_slice().into(),
        interval_ns: u64::try_from(setup.interval.as_nanos()).unwrap_or(u64::MAX),
        processes: setup.processes.max(1).into(),
        on_failure: OnFailure::Local { processes: setup.processes },
        max_keys: 10_000,
        process: (number as u64 + 1) << 20,
        in_flight: 64,
        in_parts: false,
        portion: Some(servers[region].terms.portion),
    };
    let links = servers.iter().map(|_| RegionLink::default()).collect();
    let false_since = vec![None; servers.len()];
    Process { region, book: WriteBackBook::new(Arc::clone(plan), options, || {}), links, false_since }
}

impl World<'_> {
    fn at(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.what.insert(self.number, event);
        self.events.push(Reverse((at, self.number)));
    }

    /// The clock of a region, and of its processes.
    fn clock(&self, region: usize, at: u64) -> u64 {
        at + u64::try_from(self.setup.skew.as_nanos()).unwrap_or(0) * region as u64
    }

    /// Schedules all requests.
    fn requests(&mut self) {
        let keys = self.setup.keys.max(1);
        let mut weights = Vec::new();
        let mut sum = 0;
        for rank in 1..=u64::from(keys) {
            sum += 1_000_000 / rank;
            weights.push(sum);
        }
        let regions = self.servers.len();
        for (region, &rate) in self.setup.per_second.iter().enumerate() {
            for _ in 0..rate * self.setup.seconds {
                let at = START + self.random.below(self.setup.seconds * SECOND);
                let point = self.random.below(sum);
                let key = weights.partition_point(|weight| *weight <= point);
                let of = self.random.below(self.setup.processes.max(1).into());
                let process = region + regions * usize::try_from(of).unwrap_or(0);
                self.at(at, Event::Request(process, u32::try_from(key).unwrap_or(0)));
            }
        }
    }

    fn way(&mut self) -> u64 {
        WAY + self.random.below(WAY / 2)
    }

    /// The time at which a message from one region arrives in another. `None` if it is lost.
    fn crosses(&mut self, from: usize, to: usize, at: u64) -> Option<u64> {
        let delay = self.setup.delay_ns();
        let arrives = at + delay + self.random.below(delay / 2);
        let is_lost = self.random.below(100) < self.setup.lost;
        let is_cut = self.setup.partition_ms.is_some_and(|(since, until, cut)| {
            let is_now = (since..until).contains(&((at - START) / 1_000_000));
            is_now
                && match cut {
                    Cut::All => true,
                    Cut::First => from == 0 || to == 0,
                    Cut::OneWay => to == 0,
                }
        });
        (!is_lost && !is_cut).then_some(arrives)
    }

    fn ask(
        &mut self,
        region: usize,
        name: &[u8],
        ask: RegionQuestion,
        at: u64,
    ) -> (RegionReply, Option<Claim>) {
        let pause_us = pause(self.setup.exchange_ns() / 1_000, self.random.next());
        let now_us = self.clock(region, at) / 1_000;
        let server = &mut self.servers[region];
        let call = RegionCall { name: name.to_vec(), terms: Arc::clone(&server.terms), pause_us, ask };
        let reply = server.states.entry(name.to_vec()).or_default().answer(&call, now_us);
        let claim = reply.claim(&call);
        (reply, claim)
    }

    fn happens(&mut self, at: u64, event: Event) {
        match event {
            Event::Request(process, key) => {
                let Process { region, ref book, .. } = self.processes[process];
                let local = self.clock(region, at);
                let is_allowed = book.check(&key.to_be_bytes(), 1, local).decision.is_allowed();
                self.outcome.offered += 1;
                if is_allowed {
                    self.outcome.admitted += 1;
                    self.admissions.add(key, region, process, at);
                }
                if self.processes[process].book.next_ns() == 0 {
                    self.send(process, at);
                }
            }
            Event::Due(process) => {
                self.send(process, at);
                let region = self.processes[process].region;
                let skew = self.clock(region, at) - at;
                let next = self.processes[process].book.next_ns().saturating_sub(skew).max(at + 100_000);
                let late = self.random.below(1_000_000);
                self.at(next + late, Event::Due(process));
            }
            Event::Call(process, post) => {
                let region = self.processes[process].region;
                let Some(ask) = RegionQuestion::of_mode(&post.call.ask) else { return };
                let (reply, claim) = self.ask(region, &post.call.tag, ask, at);
                let terms = Arc::clone(&self.servers[region].terms);
                let back = at + self.way();
                self.at(back, Event::Answer(process, post, reply.for_mode(&terms), claim));
            }
            Event::Answer(process, post, reply, claim) => {
                let local = self.clock(self.processes[process].region, at);
                if reply.now_us == 0 {
                    self.processes[process].book.failed(&post, ErrorKind::Timeout, local);
                } else {
                    self.processes[process].book.posted(&post, &reply, local);
                }
                if let Some(claim) = claim {
                    self.exchange(process, claim, at);
                }
                if self.processes[process].book.next_ns() == 0 {
                    self.send(process, at);
                }
            }
            Event::Tell(process, to, claim) => {
                let from = self.processes[process].region;
                let tell = claim.tell(&self.servers[from].name);
                let (mut reply, _) = self.ask(to, &claim.name, tell, at);
                if self.setup.mistake == Some(Mistake::Echo) {
                    reply.own[0] = reply.used;
                }
                match self.crosses(to, from, at) {
                    Some(back) => self.at(back, Event::Told(process, to, claim, reply)),
                    None => self.lost(process, to, at),
                }
            }
            Event::Told(process, to, claim, reply) => {
                let region = self.processes[process].region;
                self.processes[process].links[to].answered(self.clock(region, at));
                self.servers[region].answers[to] = (at, None);
                let hear = claim.hear(&self.servers[to].name, &reply);
                let arrives = at + self.way();
                self.at(arrives, Event::Hear(process, hear, claim));
            }
            Event::Hear(process, hear, claim) => {
                let _ = self.ask(self.processes[process].region, &claim.name, hear, at);
            }
            Event::Report(process) => {
                let region = self.processes[process].region;
                let local = self.clock(region, at);
                let all = self.servers.iter().zip(&self.processes[process].links);
                let links = all.map(|(server, link)| (server.name.clone(), link.report(local))).collect();
                let report = LinkReport { name: Vec::new(), life_us: u64::MAX, links };
                let known = self.servers[region].links.merge(&report, local / 1_000);
                if self.setup.mistake != Some(Mistake::NoReports) {
                    let links = &self.processes[process].links;
                    links.iter().zip(known).for_each(|(link, ages)| link.learn(ages, local));
                }
                self.at(at + self.setup.exchange_ns(), Event::Report(process));
            }
            Event::Look => {
                self.look_at_links(at);
                self.at(at + SECOND / 20, Event::Look);
            }
            Event::CutEnds => {
                self.outcome.cut_off[0] = self.cut_off();
                for region in 0..self.servers.len() {
                    let names: Vec<Vec<u8>> = self.servers[region].states.keys().cloned().collect();
                    for name in names {
                        let (reply, _) = self.look(region, &name, at);
                        self.at_heal.push((name, region, reply.index, reply.own[0]));
                    }
                }
            }
            Event::MustAgree => {
                for (name, of, index, own) in std::mem::take(&mut self.at_heal) {
                    for region in (0..self.servers.len()).filter(|region| *region != of) {
                        let known = self.servers[region].states.get(&name);
                        let known = known.map_or(0, |state| state.known_of(&self.servers[of].name, index));
                        let quantum = self.servers[region].terms.quantum();
                        let is_same_window = self.look(region, &name, at).0.index == index;
                        self.outcome.disagreements += u64::from(is_same_window && known + quantum <= own);
                    }
                }
            }
        }
    }

    /// A call of a process to a region, or its answer, is lost.
    fn lost(&mut self, process: usize, to: usize, at: u64) {
        let region = self.processes[process].region;
        self.processes[process].links[to].failed(self.clock(region, at));
        self.servers[region].answers[to].1.get_or_insert(at);
    }

    /// Compares what each process reports of each other region with what the processes of its region together saw.
    fn look_at_links(&mut self, at: u64) {
        let exchange_ns = self.setup.exchange_ns();
        let is_cut = self.setup.partition_ms.is_some_and(|(since, until, cut)| {
            cut == Cut::All && (since..until).contains(&((at - START) / 1_000_000))
        });
        for process in &mut self.processes {
            let answers = &self.servers[process.region].answers;
            for (to, (link, since)) in process.links.iter().zip(&mut process.false_since).enumerate() {
                let (answered, lost) = answers[to];
                let reports = link.is_cut_off(exchange_ns);
                let is_false = reports && at < answered + 3 * exchange_ns;
                *since = is_false.then(|| since.unwrap_or(at));
                let false_ns = since.map_or(0, |since| at - since);
                self.outcome.false_alarm = self.outcome.false_alarm.max(Duration::from_nanos(false_ns));
                if let Some(lost) = lost.filter(|_| is_cut && !reports) {
                    self.outcome.alarm = self.outcome.alarm.max(Duration::from_nanos(at - lost));
                }
            }
        }
    }

    /// Reads the state of a region without changing it.
    fn look(&mut self, region: usize, name: &[u8], at: u64) -> (RegionReply, Option<Claim>) {
        let kept = self.servers[region].states.get(name).cloned();
        let read = self.ask(region, name, RegionQuestion::Peek, at);
        self.servers[region].states.insert(name.to_vec(), kept.unwrap_or_default());
        read
    }

    fn send(&mut self, process: usize, at: u64) {
        let local = self.clock(self.processes[process].region, at);
        for post in self.processes[process].book.due(local) {
            let arrives = at + self.way();
            self.at(arrives, Event::Call(process, post));
        }
    }

    /// Carries out a claim.
    fn exchange(&mut self, process: usize, mut claim: Claim, at: u64) {
        let from = self.processes[process].region;
        if self.setup.mistake == Some(Mistake::Echo) {
            claim.totals[0] = self.look(from, &claim.name.clone(), at).0.used;
        }
        for to in (0..self.servers.len()).filter(|to| *to != from) {
            self.outcome.exchanges += 1;
            if self.setup.mistake == Some(Mistake::RenewalWithoutNews) {
                let hear = RegionQuestion::Hear {
                    from: self.servers[to].name.clone(),
                    round: claim.round,
                    index: claim.index,
                    totals: [0; 2],
                    of: claim.index,
                    floor: [0; 2],
                };
                self.at(at + WAY, Event::Hear(process, hear, claim.clone()));
            }
            let arrives = self.crosses(from, to, at);
            let lost = self.lost_in_a_row.entry((from, to, claim.name.clone())).or_default();
            let is_cut = self
                .setup
                .partition_ms
                .is_some_and(|(since, until, _)| (since..until).contains(&((at - START) / 1_000_000)));
            match arrives {
                Some(arrives) => {
                    *lost = 0;
                    self.at(arrives, Event::Tell(process, to, claim.clone()));
                }
                // A partition has a bound of its own.
                None => {
                    *lost += u64::from(!is_cut);
                    self.lost(process, to, at);
                }
            }
        }
    }

    /// How many times a process reports a region as cut off.
    fn cut_off(&self) -> u64 {
        let exchange_ns = self.setup.exchange_ns();
        let links = self.processes.iter().flat_map(|process| &process.links);
        links.filter(|link| link.is_cut_off(exchange_ns)).count() as u64
    }
}
