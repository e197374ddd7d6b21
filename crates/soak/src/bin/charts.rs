//! Draws `benches/charts`, the charts of `BENCHMARKS.md`, from `benches/results`: `cargo run -p tollgate-soak --bin
//! charts`. The test at the foot compares the files with what this program draws.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tollgate_testing::chart::{self, Axis, Bars, Line, Panel};

const COMPACT: &str = "tollgate compact";
const BATCHES: &str = "tollgate compact, batches of 16";
const KEYED: &str = "tollgate keyed";
const CAPPED: &str = "tollgate keyed, capped";
const GOVERNOR: &str = "governor + ahash";
const FLOOR: &str = "floor";
const CLOCK: &str = "clock alone";

fn main() {
    for (path, svg) in charts() {
        fs::write(&path, svg).expect("writing a chart");
    }
}

fn benches() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches"))
}

fn results(name: &str) -> Value {
    let text = fs::read_to_string(benches().join(format!("results/{name}.json"))).expect("reading results");
    serde_json::from_str(&text).expect("results are JSON")
}

/// Returns the number at a path such as `/cpu_us/2`.
fn number(row: &Value, path: &str) -> f64 {
    row.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number {path} in {row}"))
}

fn rows_of(table: &Value) -> impl Iterator<Item = &Value> {
    table["rows"].as_array().expect("rows").iter()
}

/// Returns the rows of a table in which `name` has this text.
fn with<'a>(table: &'a Value, name: &'a str, text: &'a str) -> impl Iterator<Item = &'a Value> {
    rows_of(table).filter(move |row| row[name] == text)
}

fn colour_of(name: &str) -> &'static str {
    let colours = [
        ("floor", chart::GREY),
        ("clock", chart::GREY),
        ("governor +", chart::VERMILION),
        ("governor, ", chart::VERMILION),
        ("governor", chart::ORANGE),
        ("rate-net", chart::PURPLE),
        ("quota", chart::BROWN),
        ("ratelimit", chart::BROWN),
        ("pingora", chart::BLACK),
        ("batches", chart::SKY),
        ("12 B", chart::SKY),
        ("array", chart::SKY),
        ("keyed", chart::GREEN),
        ("direct", chart::GREEN),
        ("one after", chart::GREEN),
    ];
    colours.into_iter().find(|(part, _)| name.contains(part)).map_or(chart::BLUE, |(_, colour)| colour)
}

/// Returns a line for each subject, with its points in the order of `x`.
fn lines<'a>(rows: impl Iterator<Item = &'a Value>, x: fn(&Value) -> f64, y: fn(&Value) -> f64) -> Vec<Line> {
    let mut found = BTreeMap::<&str, Vec<[f64; 2]>>::new();
    for row in rows {
        found.entry(row["subject"].as_str().expect("a subject")).or_default().push([x(row), y(row)]);
    }
    let line = |(name, mut points): (&str, Vec<[f64; 2]>)| {
        points.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let is_dashed = [FLOOR, CLOCK].contains(&name) || name.ends_with("no flood");
        Line { name: name.to_owned(), colour: colour_of(name), is_dashed, points }
    };
    found.into_iter().map(line).collect()
}

/// The name of a file, and its content.
type Drawn = (&'static str, String);

/// Draws a chart whose axes are logarithmic and as long as its lines need.
fn draw(name: &'static str, title: &str, caption: &str, axes: [&str; 2], lines: Vec<Line>) -> Drawn {
    let values = |at: usize| lines.iter().flat_map(|line| &line.points).map(move |point| point[at]);
    let axes = [Axis::around(axes[0], values(0)), Axis::around(axes[1], values(1))];
    draw_on(name, title, caption, axes, lines)
}

fn draw_on(name: &'static str, title: &str, caption: &str, [x, y]: [Axis; 2], lines: Vec<Line>) -> Drawn {
    let panel = Panel { caption: caption.to_owned(), x, y, lines, legend: None };
    (name, chart::draw(title, 800, 460, &[panel]))
}

/// Returns the path and the content of each chart.
fn charts() -> Vec<(PathBuf, String)> {
    let mut charts = Vec::new();
    peers(&results("peers"), &mut charts);
    flood(&results("peers")["flood"], &mut charts);
    charts.push(theirs(&results("theirs")));
    cost(&results("cost"), &mut charts);
    let serve = results("serve");
    let rows = rows_of(&serve).filter(|row| row["descriptors"].is_u64());
    charts.push(draw(
        "serve",
        "What a request to the service costs",
        "Lower is better. Processor time of the server; the floor answers a constant",
        ["descriptors of a request", "microseconds a request"],
        lines(rows, |row| number(row, "/descriptors"), |row| number(row, "/cpu_us/2")),
    ));
    charts.into_iter().map(|(name, svg)| (benches().join(format!("charts/{name}.svg")), svg)).collect()
}

fn peers(peers: &Value, charts: &mut Vec<Drawn>) {
    let ns = |row: &Value| number(row, "/ns_per_check/2");
    let compared =
        [FLOOR, COMPACT, BATCHES, KEYED, GOVERNOR, "governor", "quota", "rate-net", "pingora-limits Rate"];
    let by_keys = ["hot", "10k", "100k", "1m", "10m", "100m"]
        .into_iter()
        .flat_map(|name| with(peers, "scenario", name));
    let by_keys =
        by_keys.filter(|row| row["threads"] == 1 && compared.iter().any(|name| row["subject"] == *name));
    charts.push(draw(
        "keys",
        "What a check costs, by number of keys",
        "Lower is better. One thread, allowed, clock reading included",
        ["distinct keys, drawn uniformly", "nanoseconds a check"],
        lines(by_keys, |row| number(row, "/keys"), ns),
    ));
    for (name, scenario, what) in
        [("threads", "threads", "1,000 keys"), ("threads_word", "threads-word", "one word hit by all")]
    {
        let rows = with(peers, "scenario", scenario);
        charts.push(draw(
            name,
            &format!("Checks a second, by threads: {what}"),
            &format!("Higher is better. All threads together, on {} cores", peers["machine"]["cores"]),
            ["threads", "million checks a second"],
            lines(rows, |row| number(row, "/threads"), |row| number(row, "/million_checks_per_s")),
        ));
    }
    let rows = rows_of(peers).filter(|row| share(row).is_some());
    let lines = lines(rows, |row| share(row).expect("a share"), ns);
    let top = lines.iter().flat_map(|line| &line.points).map(|point| point[1]).fold(0.0, f64::max);
    charts.push(draw_on(
        "denials",
        "What a check costs, by share of denials",
        "Lower is better. One thread, 1,000 keys, a share of which has used up its limit",
        [Axis::linear("% of checks denied", 100.0), Axis::linear("nanoseconds a check", 1.05 * top)],
        lines,
    ));
}

/// Returns the share of denials of a row that belongs to that chart.
fn share(row: &Value) -> Option<f64> {
    row["scenario"].as_str()?.strip_prefix("denials-")?.parse().ok()
}

fn flood(flood: &Value, charts: &mut Vec<Drawn>) {
    // The places of the percentiles, by the number of nines.
    let places = [("p50", 0.3), ("p99", 2.0), ("p99.9", 3.0), ("p99.99", 4.0)];
    let mut rows = Vec::new();
    for row in rows_of(flood) {
        let subject = row["subject"].as_str().expect("a subject");
        if ![CLOCK, COMPACT, CAPPED, GOVERNOR, "rate-net"].contains(&subject) {
            continue;
        }
        for (turns, words) in [("flooded", ""), ("without", ", no flood")] {
            rows.extend(places.map(|(place, nines)| {
                json!({ "subject": format!("{subject}{words}"), "nines": nines, "ns": row[turns]["ns"][place] })
            }));
        }
    }
    charts.push(draw_on(
        "flood",
        "Honest keys' latency under a flood of new keys",
        "Lower is better. Dashed: without the flood of another core",
        [
            Axis::named("percentile of the honest keys' checks", places),
            Axis::around("nanoseconds", rows.iter().map(|row| number(row, "/ns"))),
        ],
        lines(rows.iter(), |row| number(row, "/nines"), |row| number(row, "/ns")),
    ));
}

/// The maps of addresses that servers wrote for themselves.
fn theirs(theirs: &Value) -> Drawn {
    let subjects = [
        (COMPACT, chart::BLUE),
        ("tollgate keyed, Forget", chart::GREEN),
        ("a validator's map", chart::VERMILION),
        ("a DNS server's map", chart::PURPLE),
        ("governor, in a mutex", chart::ORANGE),
        ("governor, with a cap", chart::BROWN),
    ];
    let each = |of: &dyn Fn(&str) -> (f64, String)| subjects.map(|(name, _)| of(name)).to_vec();
    let found = |rows: &'static str, name: &str, keys: u64| {
        // A map that is full has as many keys as its cap.
        let is_full = |row: &Value| row["scenario"].as_str().is_some_and(|one| one.contains("-cap-"));
        let is_it = |row: &&Value| {
            row["subject"] == name && (rows == "forgetful" || row["keys"] == keys && !is_full(row))
        };
        let row = theirs[rows].as_array().expect("rows").iter().find(is_it);
        row.unwrap_or_else(|| panic!("no row of {name} in {rows}"))
    };
    let rounded = |value: f64| (value, format!("{value:.0}"));
    let spent = |name: &str| {
        let row = found("forgetful", name, 0);
        let (units, denied) = (number(row, "/units_too_many"), number(row, "/newcomers_denied"));
        let newcomers = if denied < 0.5 { String::new() } else { ", newcomers denied".to_owned() };
        (units, format!("{units:.0}{newcomers}"))
    };
    let measures = [
        (
            "Nanoseconds a check",
            each(&|name| rounded(number(found("rows", name, 100_000), "/ns_per_check/2"))),
        ),
        (
            "Bytes an address",
            each(&|name| rounded(number(found("resident", name, 100_000), "/bytes_per_key"))),
        ),
        ("Units too many in 20 floods", each(&spent)),
    ];
    let measures = measures.map(|(caption, values)| Bars { caption: caption.to_owned(), values });
    let title =
        "Tollgate beside maps that servers wrote for themselves, with 100,000 addresses. Lower is better";
    ("theirs", chart::draw_bars(title, 960, &subjects, &measures))
}

fn cost(cost: &Value, charts: &mut Vec<Drawn>) {
    let (x, ns) = (|row: &Value| number(row, "/x"), |row: &Value| number(row, "/ns"));
    for (name, chart, title, caption, axes) in [
        (
            "cost_keys",
            "keys",
            "Time of a check, by number of keys",
            "Lower is better. One thread; each row in a process of its own",
            ["keys, drawn uniformly", "nanoseconds a check"],
        ),
        (
            "cost_rules",
            "rules",
            "Time of a check, by rules in the file",
            "Lower is better. A rule for each tenant, tenants drawn uniformly, one thread",
            ["rules", "nanoseconds a check"],
        ),
        (
            "cost_descriptors",
            "descriptors",
            "Time of a service call, by descriptors",
            "Lower is better. Through the library, without a server; one thread, 1,000 clients",
            ["descriptors of the call", "nanoseconds a call"],
        ),
        (
            "cost_limits",
            "limits",
            "Time of a call, by limits",
            "Lower is better. Compact stores, 1,000 keys, one thread",
            ["limits of the call", "nanoseconds a call"],
        ),
    ] {
        charts.push(draw(name, title, caption, axes, lines(with(cost, "chart", chart), x, ns)));
    }
    charts.push(draw(
        "cost_memory",
        "Resident memory, by number of keys",
        "Lower is better. Of the same processes, after each key was checked once",
        ["keys", "MiB"],
        // A page is the least memory that becomes resident.
        lines(with(cost, "chart", "keys"), x, |row| number(row, "/bytes").max(4096.0) / 1_048_576.0),
    ));
    let panels = ["one hot key", "1,000 keys", "1 M keys"].map(|load| {
        let chart = format!("threads, {load}");
        let lines = lines(with(cost, "chart", &chart), x, |row| 1e3 * number(row, "/x") / number(row, "/ns"));
        let rate = Axis::log("million checks a second", 5.0, 200.0, vec![10.0, 20.0, 50.0, 100.0]);
        let threads = Axis::log("threads", 0.9, 9.0, vec![1.0, 2.0, 4.0, 8.0]);
        Panel { caption: load.to_owned(), x: threads, y: rate, lines, legend: Some([1.0, 0.0]) }
    });
    let title = format!(
        "Checks a second of all threads together, on {} cores. Higher is better",
        cost["model"]["cores"]
    );
    charts.push(("cost_threads", chart::draw(&title, 1_080, 400, &panels)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_are_those_of_the_stored_results() {
        for (path, svg) in charts() {
            let stored = fs::read_to_string(&path).unwrap_or_default();
            assert!(stored == svg, "{} is old: cargo run -p tollgate-soak --bin charts", path.display());
        }
    }
}
