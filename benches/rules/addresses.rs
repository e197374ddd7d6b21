//! What do 100,000 ranges of addresses take: time to load, and time to find the range of an address?

use std::fmt::Write as _;
use std::hint::black_box;

use tollgate_rules::{Config, Domain};

use super::summary::{Summary, float};
use super::support::{XorShift, count, length, stopwatch};

const RANGES: u64 = 100_000;
const REQUESTS: u64 = 16_384;

/// Returns a file with one descriptor of all ranges, and addresses inside and outside of them.
fn subject(is_ipv6: bool) -> (String, Vec<String>) {
    let mut text = "domain: bench\ntollgate: {}\ndescriptors:\n- key: remote_address\n  ranges:\n".to_owned();
    for n in 0..RANGES {
        let (high, low) = (n / 256, n % 256);
        let _ = match is_ipv6 {
            true => writeln!(text, "  - 2001:{high:x}:{:x}::/48", 2 * low),
            false => writeln!(text, "  - {}.{}.{low}.0/25", 1 + high / 256, high % 256),
        };
    }
    text += "  rate_limit: { unit: second, requests_per_unit: 10 }\n";
    let mut random = XorShift::new(17);
    let address = |_| {
        let (high, low) = (random.below(RANGES / 256), random.below(256));
        match is_ipv6 {
            true => format!("2001:{high:x}:{:x}::{:x}", 2 * low + random.below(2), random.below(65_536)),
            false => format!("{}.{}.{low}.{}", 1 + high / 256, high % 256, random.below(256)),
        }
    };
    (text, (0..REQUESTS).map(address).collect())
}

/// Prints the figures and returns them, each with its name and unit.
pub(crate) fn run(rounds: usize, matches: u64) -> Vec<(String, f64, &'static str)> {
    let mut figures = Vec::new();
    for (kind, is_ipv6) in [("IPv4", false), ("IPv6", true)] {
        let (text, addresses) = subject(is_ipv6);
        let start = stopwatch();
        let config = Config::from_yaml("bench.yaml", &text).unwrap_or_else(|error| panic!("{error}"));
        let domain = Domain::merge([config], false).expect("one file cannot clash with itself").remove(0);
        let loaded = float(u64::try_from(start.elapsed().as_micros()).expect("a load is short")) / 1e3;
        let round = |_| {
            let start = stopwatch();
            let found = addresses.iter().cycle().take(length(matches)).filter(|address| {
                !black_box(domain.matching(black_box(&[("remote_address", address)]), None)).is_empty()
            });
            let found = count(found.count());
            let ns = u64::try_from(start.elapsed().as_nanos()).expect("a round is short");
            assert!(0 < found && found < matches, "half of the addresses are in a range");
            float(ns) / float(matches)
        };
        let ns = Summary::of((0..rounds).map(round)).median;
        println!(
            "100,000 ranges of {kind}: loaded in {loaded:.0} ms; {ns:.1} ns per match, with reading the address"
        );
        figures.push((format!("load of 100,000 ranges of {kind}"), loaded, "ms"));
        figures.push((format!("match in 100,000 ranges of {kind}"), ns, "ns"));
    }
    figures
}
