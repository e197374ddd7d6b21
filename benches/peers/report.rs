//! Prints tables for people and JSON for programs.

use serde_json::{Value, json};

use crate::flood::{Flood, FloodRow, PERCENTILES, Turn};
use crate::harness::{Draw, Row, Table};
use crate::memory::Footprint;
use crate::summary::{Interval, Ratio, Summary};
use crate::targets::Measured;
use crate::theirs::forget::Forgetful;

/// Returns the machine and the software of a run.
pub(crate) fn machine() -> Value {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| field.trim_end() == name).map_or("unknown", |(_, value)| value.trim())
    };
    // A virtual machine often hides the product's number, but not which design it is.
    let cpu = format!("{}, family {}, model {}", field("model name"), field("cpu family"), field("model"));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let clock = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .unwrap_or_default();
    json!({
        "cpu": cpu,
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "os": format!("{}, {} {}", distribution(), std::env::consts::OS, kernel.trim()),
        "memory_gib": (memory_bytes("MemTotal:") + (1 << 29)) >> 30,
        "clocksource": clock.trim(),
        "rustc": rustc(),
        "allocator": "the system's",
        "load_average": std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim(),
    })
}

/// Returns the build profile. Cargo names the target directory after it.
pub(crate) fn profile() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let directory = program.ancestors().nth(2).and_then(std::path::Path::file_name);
    directory.map_or_else(|| "unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Returns the operating system's name for itself.
fn distribution() -> String {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "unknown".to_owned(), |name| name.trim_matches('"').to_owned())
}

/// Returns a figure of the machine's memory in bytes, or 0 if the system does not report it.
pub(crate) fn memory_bytes(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kibibytes = line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

fn rustc() -> String {
    let program = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let output = std::process::Command::new(program).arg("-V").output();
    output
        .map_or_else(|_| "unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the versions from the lock file. If a package occurs in several versions, the version that Tollgate uses
/// comes first, and the versions that the peers use follow.
pub(crate) fn versions() -> Value {
    let lock =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock")).unwrap_or_default();
    let own =
        lock.split("[[package]]").find(|package| package.contains("name = \"tollgate\"")).unwrap_or_default();
    let version = |package: &str| {
        let named = format!("name = \"{package}\"\nversion = \"");
        let all = lock.split(&*named).skip(1).filter_map(|after| after.split('"').next());
        // Only the lock file shows which version of a package another package depends on.
        let is_ours = |version: &&str| own.contains(&format!("\"{package} {version}\""));
        let (ours, others): (Vec<_>, Vec<_>) = all.partition(is_ours);
        match (&*ours, &*others) {
            ([], []) => "unknown".to_owned(),
            ([], [only]) => (*only).to_owned(),
            _ => format!("{} (peers: {})", ours.join(", "), others.join(", ")),
        }
    };
    let names = [
        "tollgate",
        "governor",
        "dashmap",
        "rate-net",
        "ratelimit",
        "quota",
        "pingora-limits",
        "throttle-net",
        "fastbloom",
        "ahash",
        "quanta",
    ];
    names
        .iter()
        .map(|name| ((*name).to_owned(), Value::String(version(name))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn ratio(ratio: Option<Ratio>) -> String {
    ratio.map_or_else(String::new, |Ratio { all, quiet, .. }| {
        format!("{:.2} [{:.2}..{:.2}] {quiet:.2}", all.median, all.q1, all.q3)
    })
}

fn ratios(table: &Table, row: &Row) -> (Option<Ratio>, Option<Ratio>) {
    (table.ratio(row, table.floor), table.ratio(row, table.governor))
}

fn print_transfer(ns: Summary) {
    println!(
        "(a modified cache line goes from core to core in {:.0} ns [{:.0}..{:.0}])",
        ns.median, ns.min, ns.max
    );
}

pub(crate) fn print_table(table: &Table) {
    let plural = if table.threads == 1 { "" } else { "s" };
    println!("\n## {}, {} thread{plural}", table.title, table.threads);
    if let Some(ns) = table.transfer_ns {
        print_transfer(ns);
    }
    println!(
        "{:<32} {:>9} {:>19} {:>17} {:>10} {:>24} {:>24} {:>6}",
        "",
        "ns/check",
        "[min..max]",
        "[quartiles]",
        "M checks/s",
        "x floor [quart.] quiet",
        "x gov. [quart.] quiet",
        "stolen"
    );
    for row in &table.rows {
        let ns = row.ns();
        let (floor, governor) = ratios(table, row);
        println!(
            "{:<32} {:>9.1} {:>19} {:>17} {:>10.1} {:>24} {:>24} {:>5.1}%",
            row.name,
            ns.median,
            format!("{:.1}..{:.1}", ns.min, ns.max),
            format!("{:.1}..{:.1}", ns.q1, ns.q3),
            row.mops().median,
            ratio(floor),
            ratio(governor),
            row.delayed() * 100.0
        );
    }
    for row in &table.rows {
        if let Some(evicted @ 1e-6..) = row.evicted {
            println!("({}: {:.4} % of checks evicted a key with a debt)", row.name, evicted * 100.0);
        }
    }
}

/// Prints the times of the honest keys' checks, without and with the flood.
pub(crate) fn print_flood(flood: &Flood) {
    println!("\n## Honest keys' checks, ns, while another thread floods the store with new keys");
    print_transfer(flood.transfer_ns);
    println!(
        "{:<32} {:>8} {:>8} {:>8} {:>8} {:>10} {:>9} {:>8} {:>7}",
        "", "p50", "p99", "p99.9", "p99.99", "max", "denied", "flood M/s", "stolen"
    );
    for row in &flood.rows {
        for (name, turns) in [(row.name, &row.calm), ("  flooded", &row.flooded)] {
            let median = |of: &dyn Fn(&Turn) -> f64| Summary::of(turns.iter().map(of)).median;
            let [p50, p99, p999, p9999] =
                std::array::from_fn(|index| median(&|turn| turn.percentiles[index]));
            println!(
                "{:<32} {p50:>8.0} {p99:>8.0} {p999:>8.0} {p9999:>8.0} {:>10.0} {:>8.4}% {:>9.1} {:>6.1}%",
                name,
                median(&|turn| turn.worst),
                median(&|turn| turn.denied) * 100.0,
                median(&|turn| turn.flood),
                median(&|turn| turn.delayed) * 100.0,
            );
        }
        let [p50, p99, p999, p9999] = std::array::from_fn(|index| {
            let Interval { low, median, high } = row.ratio(index);
            format!("{median:.2} [{low:.2}..{high:.2}]")
        });
        println!("  ratio [95 % interval]: p50 {p50}, p99 {p99}, p99.9 {p999}, p99.99 {p9999}");
    }
}

pub(crate) fn flood(flood: Option<&Flood>) -> Value {
    let turns = |turns: &[Turn]| {
        let over = |of: &dyn Fn(&Turn) -> f64| Summary::of(turns.iter().map(of)).median;
        let percentiles: serde_json::Map<_, _> = PERCENTILES
            .iter()
            .enumerate()
            .map(|(index, percent)| {
                (format!("p{percent}"), Value::from(over(&|turn| turn.percentiles[index])))
            })
            .collect();
        json!({
            "ns": percentiles,
            "max_ns": over(&|turn| turn.worst),
            "denied_share": over(&|turn| turn.denied),
            "flood_million_checks_per_s": over(&|turn| turn.flood),
            "stolen_share": over(&|turn| turn.delayed),
        })
    };
    let row = |row: &FloodRow| {
        let ratios: serde_json::Map<_, _> = PERCENTILES
            .iter()
            .enumerate()
            .map(|(index, percent)| (format!("p{percent}"), interval(row.ratio(index))))
            .collect();
        json!({
            "subject": row.name,
            "counts": row.counts,
            "rounds": row.calm.len(),
            "ratio": ratios,
            "without": turns(&row.calm),
            "flooded": turns(&row.flooded),
        })
    };
    flood.map_or(Value::Null, |flood| {
        json!({
            "line_transfer_ns": summary(flood.transfer_ns),
            "rows": flood.rows.iter().map(row).collect::<Vec<_>>(),
        })
    })
}

pub(crate) fn print_counts(measured: &Measured) {
    println!("\n## What each row measures");
    let mut seen = std::collections::BTreeSet::new();
    for row in measured.flood.iter().flat_map(|flood| &flood.rows) {
        println!("{:<32} {} (flooded)", row.name, row.counts);
    }
    for table in &measured.tables {
        for row in &table.rows {
            if seen.insert((row.name, row.counts)) {
                println!("{:<32} {} ({} keys)", row.name, row.counts, table.kind);
            }
        }
    }
}

pub(crate) fn print_footprints(footprints: &[Footprint]) {
    if footprints.is_empty() {
        return;
    }
    println!("\n## Resident bytes per key after one check of each key, each subject in its own process");
    for footprint in footprints {
        println!(
            "{:<32} {:<16} {:>10} keys {:>9.1} B a key",
            footprint.name, footprint.kind, footprint.population, footprint.bytes_per_key
        );
    }
}

/// Prints what the maps of addresses did with an address that had spent its units.
pub(crate) fn print_forgetful(rows: &[Forgetful]) {
    if let Some(Forgetful { length, .. }) = rows.first() {
        println!("\n## A spent address in {} floods past a cap of {} addresses", length.floods, length.cap);
        println!("{:<32} {:>14} {:>18} {:>16}", "", "units too many", "newcomers denied", "ns a newcomer");
    }
    for row in rows {
        println!(
            "{:<32} {:>14} {:>16.1} % {:>16.0}",
            row.name,
            row.too_many,
            row.denied * 100.0,
            row.newcomer_ns.median
        );
    }
}

pub(crate) fn forgetful(rows: &[Forgetful]) -> Value {
    let row = |row: &Forgetful| {
        json!({
            "subject": row.name,
            "counts": row.counts,
            "cap": row.length.cap,
            "floods": row.length.floods,
            "units_too_many": row.too_many,
            "newcomers_denied": row.denied,
            "ns_per_newcomer": five(row.newcomer_ns),
        })
    };
    rows.iter().map(row).collect()
}

fn draw(draw: Draw) -> &'static str {
    match draw {
        Draw::Known => "known keys",
        Draw::New => "new keys, new stores",
        Draw::NewAfter(_) => "new keys",
    }
}

pub(crate) fn summary(summary: Summary) -> Value {
    json!({"min": summary.min, "q1": summary.q1, "median": summary.median, "q3": summary.q3, "max": summary.max})
}

/// The same without names, for results of many rows.
fn five(summary: Summary) -> Value {
    json!([summary.min, summary.q1, summary.median, summary.q3, summary.max])
}

/// A ratio twice: over all rounds, and over the quiet ones.
pub(crate) fn twice(ratio: Ratio) -> Value {
    let mut value = summary(ratio.all);
    value["quiet"] = ratio.quiet.into();
    value["quiet_rounds"] = ratio.quiet_rounds.into();
    value
}

pub(crate) fn interval(interval: Interval) -> Value {
    json!({"low": interval.low, "median": interval.median, "high": interval.high})
}

pub(crate) fn tables(tables: &[Table]) -> Value {
    let mut rows = Vec::new();
    for table in tables {
        for row in &table.rows {
            let (floor, governor) = ratios(table, row);
            rows.push(json!({
                "scenario": table.scenario,
                "keys": table.population,
                "kind": table.kind,
                "draw": draw(table.draw),
                "outcome": format!("{:?}", table.expect).to_lowercase(),
                "threads": table.threads,
                "subject": row.name,
                "rounds": row.samples.len(),
                "ns_per_check": five(row.ns()),
                "million_checks_per_s": row.mops().median,
                "ratio_to_floor": floor.map(|ratio| five(ratio.all)),
                "ratio_to_governor": governor.map(|ratio| five(ratio.all)),
                "quiet_to_floor": floor.map(|ratio| ratio.quiet),
                "quiet_to_governor": governor.map(|ratio| ratio.quiet),
                "quiet_rounds": governor.or(floor).map(|ratio| ratio.quiet_rounds),
                "stolen_share": row.delayed(),
                "evicted_per_check": row.evicted,
                "line_transfer_ns": table.transfer_ns.map(five),
            }));
        }
    }
    rows.into()
}

/// What the rows measure, in words: each text once, with the first row that has it.
pub(crate) fn counts(tables: &[Table]) -> Value {
    let mut seen = std::collections::BTreeSet::new();
    let rows = tables.iter().flat_map(|table| &table.rows).filter(|row| seen.insert(row.counts));
    rows.map(|row| json!([row.name, row.counts])).collect()
}

pub(crate) fn footprints(footprints: &[Footprint]) -> Value {
    footprints
        .iter()
        .map(|f| json!({"subject": f.name, "kind": f.kind, "keys": f.population, "bytes_per_key": f.bytes_per_key}))
        .collect::<Vec<_>>()
        .into()
}
