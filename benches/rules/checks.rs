//! What does a whole check with rules cost, compared with the limiter that a server without rules would call?

use tollgate::{FixedWindow, Quota, RateLimiter, check_all};
use tollgate_rules::{Config, Descriptor, Rules};

use super::summary::{Ratio, Summary, float};
use super::support::{XorShift, count, length, stopwatch};

const KEYS: u64 = 1_000;

fn rules(limits: &str) -> Rules {
    let text = format!("{{ domain: bench, tollgate: {{}}, descriptors: [ {limits} ] }}");
    let config = Config::from_yaml("bench.yaml", &text).unwrap_or_else(|error| panic!("{error}"));
    Rules::builder().load([config]).unwrap_or_else(|error| panic!("{error}"))
}

/// Makes a check for a client's address, and returns whether it was admitted.
type Check = Box<dyn Fn(&str) -> bool>;

/// Returns the subjects: a name, the index of the subject to compare with, and the check. That index is the subject's
/// own or an earlier one. No client reaches the limits.
fn subjects() -> Vec<(&'static str, usize, Check)> {
    const ADDRESS: &str =
        "{ key: remote_address, rate_limit: { unit: minute, requests_per_unit: 1000000, algorithm: gcra } }";
    const WINDOW: &str = "{ key: remote_address, rate_limit: { unit: minute, requests_per_unit: 1000000 } }";
    const CLIENT: &str = "{ key: client, rate_limit: { unit: hour, requests_per_unit: 10000000 } }";
    const MORE: &str = "unit: minute, requests_per_unit: 100000000";
    const PREFIXES: &str = "ipv4: { 32: { unit: minute, requests_per_unit: 1000000 }, \
        24: { unit: minute, requests_per_unit: 100000000 }, 16: { unit: minute, requests_per_unit: 100000000 } }, \
        ipv6: { 64: { unlimited: true } }";
    let quota = Quota::per_minute(1_000_000);
    let windows =
        |quota| RateLimiter::builder(FixedWindow::new(quota)).compact().expect("the configuration is valid");
    let bucket = RateLimiter::new(quota);
    let window = windows(quota);
    let pair = (windows(quota), windows(Quota::per_hour(10_000_000)));
    let of_rules = |limits: &str| {
        let rules = rules(limits);
        let check = move |client: &str| {
            rules.check("bench", &[Descriptor::new(&[("remote_address", client)])]).is_allowed()
        };
        Box::new(check) as Check
    };
    let both = rules(&format!("{WINDOW}, {CLIENT}"));
    let single = rules(&format!(
        "{WINDOW}, {{ key: network, rate_limit: {{ {MORE} }} }}, {{ key: wider, rate_limit: {{ {MORE} }} }}"
    ));
    vec![
        ("limiter, gcra", 0, Box::new(move |client| bucket.check(client).is_allowed())),
        ("rule, gcra", 0, of_rules(ADDRESS)),
        ("limiter, fixed window", 2, Box::new(move |client| window.check(client).is_allowed())),
        ("rule, fixed window", 2, of_rules(WINDOW)),
        (
            "two limiters, check_all",
            4,
            Box::new(move |client| check_all((pair.0.on(client), pair.1.on(client))).is_allowed()),
        ),
        (
            "two rules",
            4,
            Box::new(move |client| {
                let (one, other) = ([("remote_address", client)], [("client", client)]);
                both.check("bench", &[Descriptor::new(&one), Descriptor::new(&other)]).is_allowed()
            }),
        ),
        (
            "three rules, cut before",
            6,
            Box::new(move |client| {
                let (network, _) = client.rsplit_once('.').expect("an address");
                let (wider, _) = network.rsplit_once('.').expect("an address");
                let entries = [("remote_address", client), ("network", network), ("wider", wider)];
                let each = entries.each_ref().map(std::slice::from_ref);
                single.check("bench", &each.map(Descriptor::new)).is_allowed()
            }),
        ),
        (
            "three prefixes of one rule",
            6,
            of_rules(&format!("{{ key: remote_address, prefixes: {{ {PREFIXES} }} }}")),
        ),
    ]
}

/// Prints the table and returns its rows: the name, the nanoseconds, and the ratio to the compared subject.
pub(crate) fn run(rounds: usize, checks: u64) -> Vec<(&'static str, f64, Ratio)> {
    let mut random = XorShift::new(11);
    let clients: Vec<String> =
        (0..KEYS).map(|_| format!("203.0.{}.{}", random.below(256), random.below(256))).collect();
    let subjects = subjects();
    let mut all: Vec<Vec<f64>> = vec![Vec::new(); subjects.len()];
    for _ in 0..rounds {
        for ((_, _, check), ns) in subjects.iter().zip(&mut all) {
            let start = stopwatch();
            let admitted = clients.iter().cycle().take(length(checks)).filter(|client| check(client)).count();
            let elapsed = u64::try_from(start.elapsed().as_nanos()).expect("a round is short");
            assert_eq!(count(admitted), checks, "no client reaches the limit");
            ns.push(float(elapsed) / float(checks));
        }
    }
    println!(
        "\n{:<26} {:>7} {:>7} {:>7} {:>6}   ns per check, 1,000 keys, one thread",
        "", "ns", "ratio", "quiet", "rounds"
    );
    let mut rows = Vec::new();
    for ((name, beside, _), ns) in subjects.iter().zip(&all) {
        let median = Summary::of(ns.iter().copied()).median;
        let ratio @ Ratio { all, quiet, quiet_rounds } = Ratio::of(ns, &all[*beside], &all[*beside]);
        println!("{name:<26} {median:>7.1} {:>7.2} {quiet:>7.2} {quiet_rounds:>6}", all.median);
        rows.push((*name, median, ratio));
    }
    rows
}
