//! Rules are replaced again and again while threads check.

use std::sync::Barrier;
use std::thread;

use tollgate::{ManualClock, Timestamp};
use tollgate_rules::{Config, Descriptor, Rules};

/// The number of keys depends on the number of checks, so that all keys reach their limits.
const KEYS: usize = CHECKS / 2_500;
const LOADS: usize = 100;
const THREADS: usize = 4;
const CHECKS: usize = if cfg!(tollgate_tsan) { 200_000 } else { 1_000_000 };

/// The rules of one load. Every load changes all numbers, and some loads change the algorithm or the store of a rule.
fn config(load: usize) -> Config {
    let limit = 300 + 50 * (load % 3);
    let algorithm = ["fixed-window", "gcra", "sliding-window"][load / 10 % 3];
    // The store does not change back: a compact store does not know its keys.
    let store = if load < LOADS / 2 { "keyed" } else { "compact" };
    let text = format!(
        "
domain: d
tollgate: {{}}
descriptors:
  - {{ key: plain, rate_limit: {{ unit: day, requests_per_unit: {limit} }} }}
  - {{ key: changing, rate_limit: {{ unit: day, requests_per_unit: {limit}, algorithm: {algorithm} }} }}
  - {{ key: moving, rate_limit: {{ unit: day, requests_per_unit: {limit}, store: {store} }} }}
  - {{ key: shared, value: all, rate_limit: {{ unit: day, requests_per_unit: {} }} }}
  - {{ key: same, rate_limit: {{ unit: day, requests_per_unit: 300 }} }}
",
        100 * limit
    );
    Config::from_yaml("stress.yaml", &text).unwrap()
}

/// Rules whose clock does not advance.
fn at_noon(config: Config) -> Rules<ManualClock> {
    let clock = ManualClock::new(Timestamp::from_secs(86_400 * 20_000));
    Rules::builder().clock(clock).load([config]).unwrap()
}

/// Returns the sum of each place.
fn sums<const N: usize>(each: &[[usize; N]]) -> [usize; N] {
    std::array::from_fn(|at| each.iter().map(|one| one[at]).sum())
}

/// The clock does not advance, so no charge is paid back. Whatever is loaded and when, no client is admitted more than
/// the highest limit that was in force. A client that checks often enough is admitted at least the lowest limit.
// G13, G65
#[test]
fn hundred_loads_lose_no_charge() {
    for key in ["plain", "changing", "moving", "same", "shared"] {
        let rules = at_noon(config(0));
        let clients: Vec<String> = (0..KEYS).map(|client| client.to_string()).collect();
        let value = |client: usize| if key == "shared" { "all" } else { &*clients[client] };
        let barrier = Barrier::new(THREADS + 1);
        let per_thread = CHECKS / 5 / THREADS;
        let admitted = thread::scope(|scope| {
            let ask = |thread: usize| {
                let mut admitted = [0_usize; KEYS];
                barrier.wait();
                for check in 0..per_thread {
                    let client = (check * 7 + thread * 31) % KEYS;
                    let answer = rules.check("d", &[Descriptor::new(&[(key, value(client))])]);
                    assert_eq!(answer.limits().count(), 1, "a request sees an incomplete load");
                    admitted[client] += usize::from(answer.is_allowed());
                }
                admitted
            };
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || ask(thread))).collect();
            barrier.wait();
            for load in 1..=LOADS {
                rules.replace([config(load)]).unwrap();
            }
            let each: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            sums(&each)
        });
        assert_eq!(rules.reloads().successes, 1 + LOADS as u64);
        if key == "shared" {
            let all: usize = admitted.iter().sum();
            assert!(all <= 40_000, "{key}: {all}");
            let least = 30_000 - 2 * LOADS * THREADS;
            assert!(all >= least, "{key}: {all}, {least} without the requests that a load charges twice");
            continue;
        }
        let highest = if key == "same" { 300 } else { 400 };
        for (client, &admitted) in admitted.iter().enumerate() {
            assert!(admitted <= highest, "{key} {client}: {admitted} of at most {highest}");
            // A request that runs during a load may be charged twice.
            assert!(admitted >= 300 - 20, "{key} {client}: {admitted} admitted of 500 requests");
        }
    }
}

/// Threads race for the last units of the second rule. A thread that comes too late refunds its charge to the first rule.
#[test]
fn racing_rules_are_charged_together() {
    const CLIENTS: usize = 4;
    const EACH: usize = 1_000;
    const ROUNDS: usize = 40;
    const OF_ALL: usize = 50;
    let text = format!(
        "
domain: d
tollgate: {{}}
descriptors:
  - {{ key: client, rate_limit: {{ unit: day, requests_per_unit: {EACH}, store: keyed }} }}
  - {{ key: all, rate_limit: {{ unit: day, requests_per_unit: {OF_ALL}, store: keyed }} }}
"
    );
    let config = Config::from_yaml("stress.yaml", &text).unwrap();
    let clients: Vec<String> = (0..CLIENTS).map(|client| client.to_string()).collect();
    let rules = at_noon(config.clone());
    let both = |client: usize, round: &str| {
        let (client, round) = ([("client", &*clients[client])], [("all", round)]);
        rules.check("d", &[Descriptor::new(&client), Descriptor::new(&round)]).is_allowed()
    };
    let barrier = Barrier::new(THREADS);
    let admitted = thread::scope(|scope| {
        let ask = |thread: usize| {
            let mut admitted = [0_usize; CLIENTS];
            for round in 0..ROUNDS {
                barrier.wait();
                for check in 0..OF_ALL {
                    let client = (check + thread) % CLIENTS;
                    admitted[client] += usize::from(both(client, &round.to_string()));
                    // The same rules are loaded again, so their counters stay.
                    if check % 10 == 0 && thread == 0 {
                        rules.replace([config.clone()]).unwrap();
                    }
                }
            }
            admitted
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || ask(thread))).collect();
        let each: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        sums(&each)
    });
    let all: usize = admitted.iter().sum();
    assert!((1..=OF_ALL * ROUNDS).contains(&all), "{all} of at most {OF_ALL} in each of {ROUNDS} rounds");
    for (client, &admitted) in admitted.iter().enumerate() {
        let one = [("client", &*clients[client])];
        let alone = || rules.check("d", &[Descriptor::new(&one)]).is_allowed();
        let left = (0..=EACH).take_while(|_| alone()).count();
        assert_eq!(admitted + left, EACH, "client {client} has a wrong charge");
    }
}

/// Threads ask for two limits, and the first one denies most requests. Each denied request is charged to the limit that
/// denies it, and the other limit is charged for the admitted requests only.
// G102
#[test]
fn denied_requests_spare_other_rules() {
    const LIMIT: u64 = 1_000;
    for order in [["scarce", "ample"], ["ample", "scarce"]] {
        for algorithm in ["fixed-window", "gcra", "sliding-window"] {
            let text = format!(
                "
domain: d
tollgate: {{ charging: count-denials, algorithm: {algorithm} }}
descriptors:
  - {{ key: scarce, rate_limit: {{ unit: day, requests_per_unit: {LIMIT} }} }}
  - {{ key: ample, rate_limit: {{ unit: day, requests_per_unit: 1000000 }} }}
"
            );
            let rules = at_noon(Config::from_yaml("stress.yaml", &text).unwrap());
            let entries = order.map(|key| [(key, "x")]);
            let request = entries.each_ref().map(|entries| Descriptor::new(entries));
            let barrier = Barrier::new(THREADS);
            let admitted: u64 = thread::scope(|scope| {
                let ask = || {
                    barrier.wait();
                    (0..CHECKS / 200).filter(|_| rules.check("d", &request).is_allowed()).count() as u64
                };
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(ask)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            let left = |key: &str| {
                let answer = rules.check_n("d", &[Descriptor::new(&[(key, "x")])], 0);
                let limit = answer.limits().next().unwrap();
                (answer.is_allowed(), limit.quota() - limit.remaining())
            };
            assert_eq!(admitted, LIMIT, "{algorithm}");
            assert_eq!(left("scarce"), (false, LIMIT), "{algorithm}: over the limit");
            assert_eq!(left("ample"), (true, LIMIT), "{algorithm}: charged for admitted requests only");
        }
    }
}
