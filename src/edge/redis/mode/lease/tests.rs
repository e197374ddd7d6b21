//! Books of several processes on one server, in virtual time. Messages take time and can be lost, and clocks differ.
//!
//! Properties, over random limits, traffic, delays, losses and clocks:
//! - GCRA: in no interval of length `t` do all processes together admit more than `B + r · (t + life)`;
//! - windows: no window admits more than its limit;
//! - sums: `granted = spent + held + stranded`, and the units that the server charged are the units granted or lost;
//! - denials: the retry time is not later than the server's.
//!
//! Single cases: under high demand, nearly all of a GCRA limit is admitted, and all of a window. Keys that fall idle
//! strand no more than the docs of [`LeaseLimiter`](super::LeaseLimiter) state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::book::{BlockRequest, Granted, LeaseBook, LeaseCheck, LeaseSettings, Receipt};
use crate::algorithm::{Limit, LimitKind};
use crate::base::quota::Quota;
use crate::edge::redis::client::InProcess;
use crate::edge::redis::protocol::{Call, Place, Plan, Question, Reply};

const MS: u64 = 1_000_000;
const SEC: u64 = 1_000 * MS;
/// How often one check asks, as in the limiters.
const ROUNDS: u32 = 4;
/// The start, by the true clock: the middle of a second.
const START: u64 = 1_700_000_000 * SEC + 500 * MS;

/// Xorshift, which is good enough for traffic.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}

#[derive(Clone, Debug)]
struct Setup {
    limit: Limit,
    processes: u32,
    keys: u64,
    life: Duration,
    max_block: u64,
    stripes: Option<usize>,
    /// The minimum travel time of a message in each direction. A random part of up to the same length is added.
    delay_ns: u64,
    /// One message in this number is lost; 0 means none.
    lost: u64,
    /// Clocks are ahead of the true clock by up to this much.
    skew_ns: u64,
    seed: u64,
}

impl Setup {
    fn new(limit: Limit, processes: u32) -> Self {
        Self {
            limit,
            processes,
            keys: 1,
            life: Duration::from_secs(1),
            max_block: 4_096,
            stripes: None,
            delay_ns: MS / 4,
            lost: 0,
            skew_ns: 0,
            seed: 1,
        }
    }
}

/// A message in flight.
enum Message {
    Question {
        process: usize,
        due: BlockRequest,
    },
    Answer {
        process: usize,
        due: BlockRequest,
        reply: Reply,
    },
    /// No answer came in time.
    TimeOut {
        process: usize,
        due: BlockRequest,
    },
}

struct LeaseWorld {
    setup: Setup,
    now_ns: u64,
    server: InProcess,
    plan: Arc<Plan>,
    books: Vec<LeaseBook>,
    skews: Vec<u64>,
    messages: BTreeMap<(u64, u64), Message>,
    sent: u64,
    random: Random,
    /// For each admission: the time by the true clock, the key, and the units.
    admitted: Vec<(u64, u64, u64)>,
    /// The units that the server charged.
    charged: u64,
    asked: u64,
    /// The checks that wait for another check's call, and how often each has asked already.
    waiting: Vec<(usize, u64, u64, u32)>,
    /// For checks with a call in flight that have asked more than once: how often they have asked.
    rounds: BTreeMap<(usize, u64), u32>,
    denied: u64,
}

impl LeaseWorld {
    fn new(setup: Setup) -> Self {
        let plan = Arc::new(Plan::new(&[setup.limit]).unwrap());
        let mut random = Random(setup.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let habits = |seed| LeaseSettings {
            limit: plan.most(),
            life: setup.life,
            max_block: setup.max_block,
            processes: setup.processes,
            stripes: setup.stripes,
            max_keys: 1_000,
            seed,
        };
        Self {
            now_ns: START,
            server: InProcess::new(crate::ManualClock::default()),
            books: (0..setup.processes)
                .map(|number| LeaseBook::new(habits(u64::from(number)), || {}))
                .collect(),
            skews: (0..setup.processes).map(|_| random.below(setup.skew_ns + 1)).collect(),
            plan,
            messages: BTreeMap::new(),
            sent: 0,
            random,
            admitted: Vec::new(),
            charged: 0,
            asked: 0,
            waiting: Vec::new(),
            rounds: BTreeMap::new(),
            denied: 0,
            setup,
        }
    }

    fn local(&self, process: usize) -> u64 {
        self.now_ns + self.skews[process]
    }

    fn send(&mut self, message: Message) {
        let at_ns = match message {
            Message::TimeOut { .. } => self.now_ns + 40 * MS,
            _ => self.now_ns + self.setup.delay_ns + self.random.below(self.setup.delay_ns),
        };
        self.sent += 1;
        self.messages.insert((at_ns, self.sent), message);
    }

    fn is_lost(&mut self) -> bool {
        self.setup.lost > 0 && self.random.below(self.setup.lost) == 0
    }

    /// Advances time, and delivers all messages that arrive meanwhile.
    fn until(&mut self, ns: u64) {
        while let Some(entry) = self.messages.first_entry() {
            if entry.key().0 > ns {
                break;
            }
            let ((at_ns, _), message) = entry.remove_entry();
            self.now_ns = at_ns;
            self.deliver(message);
        }
        self.now_ns = ns;
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Question { process, due } => {
                self.asked += 1;
                if self.is_lost() {
                    return self.send(Message::TimeOut { process, due });
                }
                let (tag, plan, place) = (due.key.to_vec(), self.plan.clone(), Place::default());
                let call = Call { tag, plan, ask: due.ask, now: None, place };
                let reply = self.server.answer_at(&call, self.now_ns / 1_000);
                self.charged += reply.granted;
                let Question::Lease { wanted, .. } = due.ask else { unreachable!() };
                assert!(reply.granted <= wanted);
                if self.is_lost() {
                    return self.send(Message::TimeOut { process, due });
                }
                self.send(Message::Answer { process, due, reply });
            }
            Message::Answer { process, due, reply } => {
                let key = u64::from_be_bytes(due.key[..].try_into().unwrap());
                // A process has at most one call about a key at a time.
                let rounds = self.rounds.remove(&(process, key)).unwrap_or(0);
                match self.land(process, &due, &reply) {
                    Receipt::Taken { until_ns } if due.cost > 0 => {
                        assert!(until_ns > self.local(process));
                        self.admitted.push((self.now_ns, key, due.cost));
                    }
                    Receipt::Late if due.cost > 0 => self.ask_again(process, key, due.cost, rounds),
                    Receipt::Refused { .. } => self.denied += u64::from(due.cost > 0),
                    Receipt::Taken { .. } | Receipt::Late => {}
                }
                self.wake();
            }
            Message::TimeOut { process, due } => {
                let key = u64::from_be_bytes(due.key[..].try_into().unwrap());
                self.rounds.remove(&(process, key));
                self.books[process].failed(&due, self.local(process));
                self.wake();
            }
        }
    }

    fn wake(&mut self) {
        for (process, key, cost, rounds) in std::mem::take(&mut self.waiting) {
            self.ask_again(process, key, cost, rounds);
        }
    }

    /// A check that waits for the server if too few units are held.
    fn ask(&mut self, process: usize, key: u64, cost: u64) {
        self.ask_again(process, key, cost, 0);
    }

    /// Like `ask`, for a check that has already asked `rounds` times without success. With a life shorter than a round
    /// trip, every answer comes too late. Without this bound, such a check would ask for as long as the server grants.
    fn ask_again(&mut self, process: usize, key: u64, cost: u64, rounds: u32) {
        if rounds >= ROUNDS {
            self.denied += 1;
            return;
        }
        let now_ns = self.local(process);
        let name = key.to_be_bytes();
        match self.books[process].check(&name, cost, now_ns) {
            LeaseCheck::Decided(decision, _) if decision.is_allowed() => {
                self.admitted.push((self.now_ns, key, cost));
            }
            LeaseCheck::Missing(_, holding) => {
                if let Some(due) = self.books[process].claim(&name, &holding, cost, now_ns) {
                    self.rounds.insert((process, key), rounds + 1);
                    self.send(Message::Question { process, due });
                } else {
                    drop(self.books[process].wait(&holding, cost, now_ns));
                    self.waiting.push((process, key, cost, rounds));
                }
            }
            LeaseCheck::Decided(..) | LeaseCheck::Failing | LeaseCheck::Full => self.denied += 1,
        }
        self.fetch(process);
    }

    fn land(&mut self, process: usize, due: &BlockRequest, reply: &Reply) -> Receipt {
        let granted = Granted::read(&self.plan, due, reply);
        self.books[process].answered(due, &granted, self.local(process))
    }

    /// A check that does not wait. Returns whether it was admitted.
    fn check(&mut self, process: usize, key: u64, cost: u64) -> bool {
        let now_ns = self.local(process);
        let name = key.to_be_bytes();
        let checked = self.books[process].check(&name, cost, now_ns);
        let allowed = match &checked {
            LeaseCheck::Decided(decision, until_ns) => {
                if decision.is_allowed() {
                    assert!(*until_ns > now_ns, "a unit is spent only during its life");
                    self.admitted.push((self.now_ns, key, cost));
                } else {
                    assert!(decision.is_never() || decision.retry_after().unwrap() > Duration::ZERO);
                }
                self.denied += u64::from(decision.is_denied());
                decision.is_allowed()
            }
            LeaseCheck::Missing(decision, holding) => {
                assert!(decision.is_denied() && decision.retry_after().unwrap() > Duration::ZERO);
                self.books[process].want(&name, holding, cost, now_ns);
                self.denied += 1;
                false
            }
            LeaseCheck::Failing | LeaseCheck::Full => false,
        };
        self.fetch(process);
        allowed
    }

    fn fetch(&mut self, process: usize) {
        for due in self.books[process].due(usize::MAX, self.local(process)) {
            self.send(Message::Question { process, due });
        }
    }

    fn of(&self, key: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let of_key = self.admitted.iter().filter(move |(_, of, _)| *of == key);
        of_key.map(|(at_ns, _, units)| (*at_ns, *units))
    }

    fn total(&self) -> u64 {
        self.admitted.iter().map(|(_, _, units)| units).sum()
    }

    /// Checks the documented bounds for each key, and the sums.
    fn audit(&self) {
        let (quota, life_ns) = (self.setup.limit.quota(), self.books[0].terms.life_ns());
        for key in 0..self.setup.keys {
            match self.setup.limit.kind() {
                LimitKind::Gcra => {
                    // A bucket of B + r · life that leaks at r never overflows. In units times period.
                    let (limit, period) = (u128::from(quota.limit()), u128::from(quota.period_ns()));
                    let most = u128::from(quota.burst_size()) * period
                        // Plus one microsecond, the resolution of server times.
                        + limit * u128::from(life_ns + 1_000);
                    let (mut level, mut last_ns) = (0_u128, START);
                    for (at_ns, units) in self.of(key) {
                        level = level.saturating_sub(limit * u128::from(at_ns - last_ns));
                        level += u128::from(units) * period;
                        last_ns = at_ns;
                        assert!(level <= most, "{} units beyond the bound", (level - most) / period);
                    }
                }
                _ => {
                    let mut windows = BTreeMap::new();
                    for (at_ns, units) in self.of(key) {
                        *windows.entry(at_ns / quota.period_ns()).or_insert(0) += units;
                    }
                    for (window, units) in windows {
                        assert!(units <= quota.limit(), "{units} in window {window} of {quota}");
                    }
                }
            }
        }
        let (mut granted, mut spent) = (0, 0);
        for (process, book) in self.books.iter().enumerate() {
            let counters = book.stats(self.local(process));
            let sum = counters.spent + counters.returned + counters.held + counters.stranded;
            assert_eq!(counters.granted, sum, "{counters:?}");
            (granted, spent) = (granted + counters.granted, spent + counters.spent);
        }
        assert!(granted <= self.charged, "every granted unit was charged");
        assert_eq!(spent, self.total());
    }

    fn stranded(&self) -> u64 {
        let each = self.books.iter().enumerate();
        each.map(|(process, book)| book.stats(self.local(process))).map(|c| c.held + c.stranded).sum()
    }
}

/// Whether checks wait.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum How {
    Sync,
    Async,
}

/// All processes together offer this many units a second for `for_ns`, at random times with an even rate.
fn offer(world: &mut LeaseWorld, how: How, per_second: u64, for_ns: u64) {
    let step_ns = SEC / per_second;
    let end_ns = world.now_ns + for_ns;
    while world.now_ns < end_ns {
        let next_ns = world.now_ns + 1 + world.random.below(2 * step_ns);
        world.until(next_ns);
        let process = usize::try_from(world.random.below(world.setup.processes.into())).unwrap();
        let key = world.random.below(world.setup.keys);
        match how {
            How::Sync => drop(world.check(process, key, 1)),
            How::Async => world.ask(process, key, 1),
        }
    }
}

#[test]
fn high_demand_uses_nearly_the_whole_rate() {
    for how in [How::Sync, How::Async] {
        for (rate, burst) in [(1_000, 1_000), (1_000, 100), (20, 20), (10_000, 10_000), (10_000, 200)] {
            let mut world = LeaseWorld::new(Setup::new(Limit::gcra(Quota::per_second(rate).burst(burst)), 8));
            let seconds = (20_000 / rate).clamp(2, 20);
            offer(&mut world, how, rate * 3, seconds * SEC);
            world.audit();
            let possible = burst + rate * seconds;
            let percent = world.total() * 100 / possible;
            assert!(percent >= 95, "{percent} % of {rate}/s, burst {burst}");
        }
    }
}

#[test]
fn moderate_demand_is_nearly_all_admitted() {
    for (how, rate, offered, least) in [
        (How::Sync, 1_000, 500, 98),
        (How::Async, 1_000, 500, 100),
        (How::Sync, 10_000, 8_000, 98),
        (How::Async, 10_000, 8_000, 100),
        (How::Async, 100, 50, 100),
        (How::Async, 4, 2, 100),
    ] {
        let mut world = LeaseWorld::new(Setup::new(Limit::gcra(Quota::per_second(rate).burst(rate)), 8));
        offer(&mut world, how, offered, 10 * SEC);
        world.until(world.now_ns + SEC);
        world.audit();
        let percent = world.total() * 100 / (world.total() + world.denied);
        assert!(percent >= least, "{percent} % of the offered units were admitted");
    }
}

#[test]
fn whole_window_is_admitted_and_no_more() {
    for limit in [1, 7, 100, 5_000] {
        let mut world = LeaseWorld::new(Setup::new(Limit::fixed_window(Quota::per_hour(limit)), 8));
        offer(&mut world, How::Async, (limit / 4).max(10), 60 * SEC);
        world.audit();
        assert_eq!(world.total() + world.stranded(), limit);
        assert!(world.stranded() <= (limit / 50).max(8), "{} units are stranded", world.stranded());
    }
}

fn setup() -> impl Strategy<Value = (Setup, u64, bool)> {
    let limit = (1_u64..2_000, 1_u64..20, 0_usize..4).prop_map(|(limit, seconds, kind)| {
        let quota = Quota::new(limit, Duration::from_millis(seconds * 250));
        match kind {
            0 | 1 => Limit::gcra(quota.burst(1 + limit * (seconds % 3) / 2)),
            2 => Limit::fixed_window(quota),
            _ => Limit::fixed_window(Quota::new(limit, Duration::from_millis(seconds * 40))),
        }
    });
    let rest = (1_u32..9, 1_u64..4, 5_u64..2_000, 1_u64..200, any::<u64>());
    let faults = (prop_oneof![Just(0_u64), 2_u64..20], 0_u64..2 * SEC, any::<bool>(), any::<bool>());
    let traffic = (10_u64..20_000, any::<bool>());
    (limit, rest, faults, traffic).prop_map(|(limit, rest, faults, (per_second, waits))| {
        let (processes, keys, life_ms, max_block, seed) = rest;
        let (lost, skew_ns, is_slow, is_striped) = faults;
        let setup = Setup {
            limit,
            processes,
            keys,
            life: Duration::from_millis(life_ms),
            max_block,
            stripes: is_striped.then_some(2),
            delay_ns: if is_slow { 20 * MS } else { MS / 3 },
            lost,
            skew_ns,
            seed,
        };
        (setup, per_second, waits)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, rng_seed: RngSeed::Fixed(7), ..ProptestConfig::default() })]

    #[test]
    fn leases_stay_within_documented_bounds((setup, per_second, waits) in setup()) {
        let keys = setup.keys;
        let mut world = LeaseWorld::new(setup);
        let how = if waits { How::Async } else { How::Sync };
        // Traffic, a pause in which leases expire, some requests with a higher cost, and traffic again.
        offer(&mut world, how, per_second, 1_000 * SEC / per_second.max(400));
        let later_ns = world.now_ns + world.random.below(3 * SEC);
        world.until(later_ns);
        for cost in 1..20 {
            let key = world.random.below(keys);
            world.ask(0, key, cost);
            world.check(0, key, cost * 3);
        }
        for (process, book) in world.books.iter().enumerate() {
            book.sweep(world.local(process));
        }
        offer(&mut world, how, per_second, 1_000 * SEC / per_second.max(400));
        // All messages arrive, and waiting checks continue one after another. Each asks at most a few times, so the
        // loop ends.
        let most = world.asked + (world.waiting.len() as u64 + world.messages.len() as u64 + 1) * (u64::from(ROUNDS) + 1);
        while !world.messages.is_empty() {
            world.until(world.now_ns + SEC);
            prop_assert!(world.asked <= most, "{} calls are more than the bound", world.asked);
        }
        world.audit();
        for (process, book) in world.books.iter().enumerate() {
            prop_assert_eq!(book.stats(world.local(process)).in_flight, 0);
        }
        prop_assert!(world.waiting.is_empty());
    }
}

#[test]
fn idle_key_strands_at_most_documented_units() {
    for (rate, offered, processes) in [(10_000, 4_000, 8), (1_000, 900, 4), (100, 80, 2), (5_000, 100, 8)] {
        let mut world =
            LeaseWorld::new(Setup::new(Limit::gcra(Quota::per_second(rate).burst(rate)), processes));
        offer(&mut world, How::Async, offered, 10 * SEC);
        let held: u64 =
            world.books.iter().enumerate().map(|(process, book)| book.held(world.local(process))).sum();
        // A quarter of the units used in a life, half as much again for random variation, and one unit for each
        // process.
        let most = offered / 4 * 3 / 2 + u64::from(processes);
        assert!(held <= most, "{held} units are held at {offered}/s, but at most {most} are allowed");
        assert!(held * 4 <= rate * 3, "{held} held units are more than three quarters of the limit");
        world.until(world.now_ns + 2 * SEC);
        assert_eq!(world.books[0].held(world.local(0)), 0, "held units expire after a life");
    }
}

#[test]
fn flood_on_used_up_key_sends_no_calls() {
    let mut world = LeaseWorld::new(Setup::new(Limit::fixed_window(Quota::per_hour(100)), 8));
    offer(&mut world, How::Async, 2_000, 2 * SEC);
    let asked = world.asked;
    offer(&mut world, How::Async, 2_000, 10 * SEC);
    assert_eq!(world.asked, asked, "no call is sent during the pause after a denial");
    let denied = world.books[0].peek(&0_u64.to_be_bytes(), 1, world.local(0));
    let left = 3_600 * SEC - world.now_ns % (3_600 * SEC);
    let told = denied.retry_after().unwrap().as_nanos();
    assert!(told >= u128::from(left - MS), "retry_after is too short: {told} of {left}");
    assert!(told <= u128::from(left) * 9 / 8 + 1_000_000);
}

#[test]
fn clock_step_back_locks_out_no_client() {
    let mut world = LeaseWorld::new(Setup::new(Limit::gcra(Quota::per_second(10)), 1));
    world.skews[0] = 3_600 * SEC;
    offer(&mut world, How::Async, 100, 2 * SEC);
    world.skews[0] = 0;
    let before = world.total();
    offer(&mut world, How::Async, 100, 2 * SEC);
    assert!(world.total() - before >= 18, "{} of 20 units", world.total() - before);
    world.audit();
}
