//! What do ten thousand rules take: time to start and to reload, and memory?

use std::hint::black_box;

use tollgate_rules::{Config, Descriptor, Rules};

use super::support::{count, stopwatch};

const RULES: u64 = 10_000;
/// The rules that requests use at first.
const USED: u64 = 1_000;
const RELOADS: u64 = 50;

/// Returns the file. Each tenant has a rule with a count for each client. The first tenant's limit is `first`.
fn text(first: u64) -> String {
    let line = |tenant| {
        let limit = if tenant == 0 { first } else { 1_000_000 };
        format!(
            "  - {{ key: tenant, value: t{tenant}, descriptors: [ {{ key: client, rate_limit: {{ unit: day, requests_per_unit: {limit} }} }} ] }}\n"
        )
    };
    format!("domain: bench\ndescriptors:\n{}", (0..RULES).map(line).collect::<String>())
}

fn read(text: &str) -> Config {
    Config::from_yaml("bench.yaml", text).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the bytes of this process that are in memory, or 0 if the system does not show them.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Makes one request of each of the first tenants.
fn ask(rules: &Rules, tenants: u64) {
    for tenant in 0..tenants {
        let tenant = format!("t{tenant}");
        let entries = [("tenant", &*tenant), ("client", "203.0.113.7")];
        assert!(rules.check("bench", &[Descriptor::new(&entries)]).is_allowed());
    }
}

/// Prints the figures and returns them, each with its name and unit. Call it first, so that the memory of the process is
/// that of these rules.
pub(crate) fn run() -> Vec<(&'static str, f64, &'static str)> {
    let before = resident();
    let files = [1_000_000, 2_000_000].map(text);
    let start = stopwatch();
    let config = read(&files[0]);
    let read_in = start.elapsed();
    let start = stopwatch();
    let rules = Rules::builder().load([config]).unwrap_or_else(|error| panic!("{error}"));
    let loaded_in = start.elapsed();
    let memory = || resident().saturating_sub(before);
    let loaded = memory();
    ask(&rules, USED);
    let used = memory();
    let (mut reads, mut reloads) = (Vec::new(), Vec::new());
    let mut after_first = 0;
    for reload in 0..RELOADS {
        let file = &files[usize::from(reload % 2 == 0)];
        let start = stopwatch();
        let config = read(file);
        reads.push(start.elapsed());
        let report = rules.replace([config]).unwrap_or_else(|error| panic!("{error}"));
        reloads.push(start.elapsed());
        assert_eq!(count(report.changes().len()), 1, "one rule changes");
        if reload < 10 {
            after_first = memory();
        }
    }
    let reloaded = memory();
    ask(&rules, RULES);
    let all = memory();
    black_box(rules);
    reads.sort_unstable();
    reloads.sort_unstable();
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let mib = |bytes: u64| super::summary::float(bytes >> 10) / 1024.0;
    let figures = vec![
        ("read the file", ms(read_in), "ms"),
        ("load the rules", ms(loaded_in), "ms"),
        ("memory after the load", mib(loaded), "MiB"),
        ("memory after 1,000 were used", mib(used), "MiB"),
        ("read again: median", ms(reads[reads.len() / 2]), "ms"),
        ("read and reload, one change: median", ms(reloads[reloads.len() / 2]), "ms"),
        ("read and reload, one change: slowest", ms(reloads[reloads.len() - 1]), "ms"),
        ("memory after 10 reloads", mib(after_first), "MiB"),
        ("memory after 50 reloads", mib(reloaded), "MiB"),
        ("memory after all were used", mib(all), "MiB"),
    ];
    println!("10,000 rules of the default store, one file of {} kB", files[0].len() / 1_000);
    for (name, figure, unit) in &figures {
        println!("{name:<38} {figure:>8.1} {unit}");
    }
    println!();
    figures
}
