//! Simulates several regions that exchange totals, in virtual time.
//!
//! Each process runs the real book of the write-back mode. Each region's server is the model of the region's script.
//! The exchange uses the claims, the questions and the pauses that production uses. Only time and the network are
//! simulated.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tollgate_protocol::region::{Claim, RegionLink, RegionLinks, RegionState, pause};
use tollgate_protocol::{
    Call, LinkReport, Plan, PlannedLimit, Portion, Question, RegionScope, RegionTerms, RegionUse, Reply,
    Scope, Windows,
};
use tollgate_redis::internals::{BookSettings, Post, WriteBackBook, places_of};
use tollgate_redis::{ErrorKind, InProcess, OnFailure};
use tollgate_testing::accuracy::random::Random;

mod bound;
mod setup;
mod tally;

use self::setup::WAY;
pub use self::setup::{Cut, Mistake, RegionSetup};
use self::tally::Admissions;
pub use self::tally::{Phases, Worst};
use super::events::Events;
use super::setup::nanos;
use super::{SECOND, START};

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
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

enum RegionEvent {
    Request(usize, u32),
    Due(usize),
    /// A call reaches the server of the process's region.
    Call(usize, Post),
    Answer(usize, Post, Reply, Option<Box<Claim>>),
    /// An exchange reaches the server of another region.
    Tell(usize, usize, Claim),
    /// The reply reaches the process.
    Told(usize, usize, Claim, RegionUse),
    /// The reply reaches the server of the process's region.
    Hear(usize, Call),
    /// A process reports its calls, and learns what its region knows.
    Report(usize),
    /// Compares what all processes report with the truth.
    CompareLinks,
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
    /// The calls of the processes of this region to each region.
    answers: Vec<LastAnswer>,
}

#[derive(Copy, Clone, Default)]
struct LastAnswer {
    /// When the region answered last.
    at: u64,
    /// When the first call was lost after it.
    lost: Option<u64>,
}

/// The total of a key in a region when the partition ended.
struct HealedTotal {
    name: Vec<u8>,
    region: usize,
    /// The window.
    index: u64,
    own: u64,
}

struct RegionWorld<'s> {
    setup: &'s RegionSetup,
    servers: Vec<Server>,
    processes: Vec<Process>,
    events: Events<RegionEvent>,
    random: Random,
    admissions: Admissions,
    /// For each pair and key: exchanges lost in a row.
    lost_in_a_row: BTreeMap<(usize, usize, Vec<u8>), u64>,
    /// For each key and region.
    at_heal: Vec<HealedTotal>,
    outcome: RegionOutcome,
}

/// Runs a simulation.
///
/// # Panics
/// Panics if the limit has no windows, or if the script cannot count it.
#[must_use]
pub fn run_regions(setup: &RegionSetup) -> RegionOutcome {
    let plan = Arc::new(Plan::new(&[setup.limit]).expect("the script can count the limit"));
    let windows = plan.parts().first().and_then(PlannedLimit::windows).expect("the limit has windows");
    let regions = setup.per_second.len().max(1);
    let servers = (0..regions).map(|region| server(setup, windows, region, regions)).collect::<Vec<_>>();
    let processes = (0..regions * setup.processes.max(1) as usize)
        .map(|number| process(setup, &plan, number, &servers))
        .collect::<Vec<_>>();
    let mut world = RegionWorld {
        setup,
        admissions: Admissions::new(windows, regions, setup.skew),
        servers,
        processes,
        events: Events::default(),
        random: Random::new(setup.seed),
        lost_in_a_row: BTreeMap::new(),
        at_heal: Vec::new(),
        outcome: RegionOutcome::default(),
    };
    world.requests();
    for process in 0..world.processes.len() {
        let at = START + world.random.below(SECOND);
        world.at(at, RegionEvent::Due(process));
        world.at(at, RegionEvent::Report(process));
    }
    world.at(START, RegionEvent::CompareLinks);
    if let Some(partition) = setup.partition_ns() {
        world.at(partition.end, RegionEvent::CutEnds);
        world.at(partition.end + setup.agreement_ns(), RegionEvent::MustAgree);
    }
    let end = START + setup.seconds * SECOND;
    while let Some((at, event)) = world.events.next(end) {
        world.happens(at, event);
    }
    let mut outcome = std::mem::take(&mut world.outcome);
    outcome.cut_off[1] = world.cut_off();
    let lost = world.lost_in_a_row.values().copied().max().unwrap_or(0);
    outcome.over = world.admissions.judge(setup, setup.age_ns(lost), setup.flush_ns());
    outcome
}

fn server(setup: &RegionSetup, windows: Windows, region: usize, regions: usize) -> Server {
    let name = |region: usize| -> Box<str> { format!("region{region}").into() };
    let others = (0..regions).filter(|other| *other != region).map(name).collect();
    let portion = Portion { from: region as u64, to: region as u64 + 1, of: regions as u64 };
    let terms = Arc::new(RegionTerms { windows, policy: setup.policy, portion, others });
    let answers = vec![LastAnswer::default(); regions];
    Server { name: name(region), terms, states: HashMap::new(), links: RegionLinks::default(), answers }
}

fn process(setup: &RegionSetup, plan: &Arc<Plan>, number: usize, servers: &[Server]) -> Process {
    let region = number % servers.len();
    let options = BookSettings {
        places: places_of(&InProcess::default().limiter("regions", setup.limit)),
        interval_ns: nanos(setup.interval),
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

impl RegionWorld<'_> {
    fn at(&mut self, at: u64, event: RegionEvent) {
        self.events.add(at, event);
    }

    /// The clock of a region, and of its processes.
    fn clock(&self, region: usize, at: u64) -> u64 {
        at + nanos(self.setup.skew) * region as u64
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
                self.at(at, RegionEvent::Request(process, u32::try_from(key).unwrap_or(0)));
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
        let is_cut = self.setup.cut_at(at).is_some_and(|cut| match cut {
            Cut::All => true,
            Cut::First => from == 0 || to == 0,
            Cut::OneWay => to == 0,
        });
        (!is_lost && !is_cut).then_some(arrives)
    }

    /// Answers a call of a process to the server of its region, or of a claim to the server of a region.
    fn ask(&mut self, region: usize, call: &Call, at: u64) -> (Reply, Option<Claim>) {
        let from = if let Scope::Region(scope) = &call.scope { scope.from.clone() } else { None };
        let scope = RegionScope { from, ..self.scope(region) };
        let now_us = self.clock(region, at) / 1_000;
        let reply = self.servers[region]
            .states
            .entry(call.tag.clone())
            .or_default()
            .answer(&call.ask, &scope, now_us);
        let call = Call { scope: Scope::Region(scope), ..call.clone() };
        let claim = Claim::of(&call, &reply);
        (reply, claim)
    }

    /// The scope of a question that a region asks its server.
    fn scope(&mut self, region: usize) -> RegionScope {
        let pause_us = pause(self.setup.exchange_ns() / 1_000, self.random.next());
        RegionScope { terms: Arc::clone(&self.servers[region].terms), pause_us, from: None }
    }

    fn happens(&mut self, at: u64, event: RegionEvent) {
        match event {
            RegionEvent::Request(process, key) => self.request(process, key, at),
            RegionEvent::Due(process) => self.due(process, at),
            RegionEvent::Call(process, post) => {
                let region = self.processes[process].region;
                let (reply, claim) = self.ask(region, &post.call, at);
                let back = at + self.way();
                self.at(back, RegionEvent::Answer(process, post, reply, claim.map(Box::new)));
            }
            RegionEvent::Answer(process, post, reply, claim) => {
                self.answer(process, &post, &reply, at);
                if let Some(claim) = claim {
                    self.exchange(process, *claim, at);
                }
                self.send_if_due(process, at);
            }
            RegionEvent::Tell(process, to, claim) => self.tell(process, to, claim, at),
            RegionEvent::Told(process, to, claim, reply) => {
                let region = self.processes[process].region;
                self.processes[process].links[to].answered(self.clock(region, at));
                self.servers[region].answers[to] = LastAnswer { at, lost: None };
                let hear = claim.hear(&self.servers[to].name, &reply);
                let arrives = at + self.way();
                self.at(arrives, RegionEvent::Hear(process, hear));
            }
            RegionEvent::Hear(process, hear) => {
                let _ = self.ask(self.processes[process].region, &hear, at);
            }
            RegionEvent::Report(process) => self.report(process, at),
            RegionEvent::CompareLinks => {
                self.compare_links(at);
                self.at(at + SECOND / 20, RegionEvent::CompareLinks);
            }
            RegionEvent::CutEnds => self.note_totals(at),
            RegionEvent::MustAgree => self.compare_totals(at),
        }
    }

    fn request(&mut self, process: usize, key: u32, at: u64) {
        let Process { region, ref book, .. } = self.processes[process];
        let is_allowed = book.check(&key.to_be_bytes(), 1, self.clock(region, at)).decision.is_allowed();
        self.outcome.offered += 1;
        if is_allowed {
            self.outcome.admitted += 1;
            self.admissions.add(key, region, process, at);
        }
        self.send_if_due(process, at);
    }

    fn due(&mut self, process: usize, at: u64) {
        self.send(process, at);
        let skew = self.clock(self.processes[process].region, at) - at;
        let next = self.processes[process].book.next_ns().saturating_sub(skew).max(at + 100_000);
        let late = self.random.below(1_000_000);
        self.at(next + late, RegionEvent::Due(process));
    }

    fn answer(&self, process: usize, post: &Post, reply: &Reply, at: u64) {
        let Process { region, ref book, .. } = self.processes[process];
        let local = self.clock(region, at);
        if reply.now_us == 0 {
            book.failed(post, ErrorKind::Timeout, local);
        } else {
            book.posted(post, reply, local);
        }
    }

    fn tell(&mut self, process: usize, to: usize, claim: Claim, at: u64) {
        let from = self.processes[process].region;
        let (reply, _) = self.ask(to, &claim.tell(&self.servers[from].name), at);
        let mut theirs = *reply.region.expect("a region answers");
        if self.setup.mistake == Some(Mistake::Echo) {
            theirs.own[0] = theirs.used;
        }
        match self.crosses(to, from, at) {
            Some(back) => self.at(back, RegionEvent::Told(process, to, claim, theirs)),
            None => self.lost(process, to, at),
        }
    }

    fn report(&mut self, process: usize, at: u64) {
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
        self.at(at + self.setup.exchange_ns(), RegionEvent::Report(process));
    }

    /// Stores the totals of all regions at the end of a partition.
    fn note_totals(&mut self, at: u64) {
        self.outcome.cut_off[0] = self.cut_off();
        for region in 0..self.servers.len() {
            let names: Vec<Vec<u8>> = self.servers[region].states.keys().cloned().collect();
            for name in names {
                let RegionUse { index, own: [own, _], .. } = self.peek(region, &name, at);
                self.at_heal.push(HealedTotal { name, region, index, own });
            }
        }
    }

    /// Compares what each region knows with the totals at the end of the partition.
    fn compare_totals(&mut self, at: u64) {
        for healed in std::mem::take(&mut self.at_heal) {
            for region in (0..self.servers.len()).filter(|region| *region != healed.region) {
                let of = &self.servers[healed.region].name;
                let known = self.servers[region].states.get(&healed.name);
                let known = known.map_or(0, |state| state.known_of(of, healed.index));
                let quantum = self.servers[region].terms.quantum();
                let is_same_window = self.peek(region, &healed.name, at).index == healed.index;
                self.outcome.disagreements += u64::from(is_same_window && known + quantum <= healed.own);
            }
        }
    }

    /// A call of a process to a region, or its answer, is lost.
    fn lost(&mut self, process: usize, to: usize, at: u64) {
        let region = self.processes[process].region;
        self.processes[process].links[to].failed(self.clock(region, at));
        self.servers[region].answers[to].lost.get_or_insert(at);
    }

    /// Compares what each process reports of each other region with what the processes of its region together saw.
    fn compare_links(&mut self, at: u64) {
        let exchange_ns = self.setup.exchange_ns();
        let is_cut = self.setup.cut_at(at) == Some(Cut::All);
        for process in &mut self.processes {
            let answers = &self.servers[process.region].answers;
            for (to, (link, since)) in process.links.iter().zip(&mut process.false_since).enumerate() {
                let LastAnswer { at: answered, lost } = answers[to];
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
    fn peek(&mut self, region: usize, name: &[u8], at: u64) -> RegionUse {
        let (scope, now_us) = (self.scope(region), self.clock(region, at) / 1_000);
        let mut state = self.servers[region].states.entry(name.to_vec()).or_default().clone();
        let reply = state.answer(&Question::Peek { cost: 0 }, &scope, now_us);
        *reply.region.expect("a region answers")
    }

    fn send_if_due(&mut self, process: usize, at: u64) {
        if self.processes[process].book.next_ns() == 0 {
            self.send(process, at);
        }
    }

    fn send(&mut self, process: usize, at: u64) {
        let local = self.clock(self.processes[process].region, at);
        for post in self.processes[process].book.due(local) {
            let arrives = at + self.way();
            self.at(arrives, RegionEvent::Call(process, post));
        }
    }

    /// Carries out a claim.
    fn exchange(&mut self, process: usize, mut claim: Claim, at: u64) {
        let from = self.processes[process].region;
        if self.setup.mistake == Some(Mistake::Echo) {
            claim.totals[0] = self.peek(from, &claim.call.tag.clone(), at).used;
        }
        for to in (0..self.servers.len()).filter(|to| *to != from) {
            self.outcome.exchanges += 1;
            if self.setup.mistake == Some(Mistake::RenewalWithoutNews) {
                let nothing = RegionUse { index: claim.index, ..RegionUse::default() };
                let hear = claim.hear(&self.servers[to].name, &nothing);
                self.at(at + WAY, RegionEvent::Hear(process, hear));
            }
            let arrives = self.crosses(from, to, at);
            let lost = self.lost_in_a_row.entry((from, to, claim.call.tag.clone())).or_default();
            let is_cut = self.setup.cut_at(at).is_some();
            match arrives {
                Some(arrives) => {
                    *lost = 0;
                    self.at(arrives, RegionEvent::Tell(process, to, claim.clone()));
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
