//! How does the cost of a check grow: with keys, threads, rules, descriptors of a call and limits of a call?
//!
//! ```text
//! cargo bench --features rules --bench cost                 all parts, to 100 M keys: 4 GiB of memory
//! cargo bench --features rules --bench cost -- --quick      fewer, shorter rounds, to 1 M keys
//! cargo bench --features rules --bench cost -- --json FILE  and the same as JSON
//! cargo bench --features rules --bench cost -- --parts keys,threads   only these of keys, rules, calls and threads
//! ```
//! * **ns** is wall time × threads / calls of all threads. In each round, every row of a part takes one turn. A figure
//!   is the median over the rounds. A ratio is the median of the ratios within the rounds.
//! * *keys* and *rules*: each row has a process of its own, which reports the resident memory that the limiter added.
//!   With 100 M keys the processes follow each other, because they would need too much memory together.
//! * *threads*: the rounds also measure the parts of a model of many cores: see `cost/threads.rs`.
//! * governor with ahash is what a user would write otherwise: one limiter, a map from tenant to limiter for rules, and
//!   a loop over limiters for several limits. The loop charges the first limits even if a later one denies.
//! * `growth.rs` answers another question: what a growing table does to the tail of the latency.
//! * Known bias: a tight loop keeps in the caches as much as fits, and overlaps each check with the next.

#[path = "cost/calls.rs"]
mod calls;
#[path = "cost/child.rs"]
mod child;
#[path = "peers/keys.rs"]
#[allow(dead_code, reason = "made for peers.rs")]
mod keys;
#[path = "cost/limiters.rs"]
mod limiters;
#[path = "cost/rules.rs"]
mod rules;
#[path = "peers/subject.rs"]
#[allow(dead_code, reason = "made for peers.rs")]
mod subject;
#[path = "peers/summary.rs"]
#[allow(dead_code, reason = "made for peers.rs")]
mod summary;
mod support;
#[path = "cost/threads.rs"]
mod threads;
#[path = "peers/turn.rs"]
#[allow(dead_code, reason = "made for peers.rs")]
mod turn;

use serde_json::{Value, json};
use summary::Summary;

/// How much is measured.
#[derive(Copy, Clone)]
struct Scale {
    rounds: usize,
    /// The calls of a turn are divided by this.
    divisor: u64,
    most_keys: u64,
    most_rules: u64,
}

/// One point of a line of a chart.
struct Point {
    chart: &'static str,
    subject: &'static str,
    x: u64,
    /// The times of the rounds.
    ns: Vec<f64>,
    more: Value,
}

fn json(points: &[Point]) -> Vec<Value> {
    let row = |point: &Point| {
        let base = points.iter().find(|base| {
            (base.chart, base.x) == (point.chart, point.x) && base.subject.starts_with("governor")
        });
        let ratio = base
            .filter(|base| base.subject != point.subject)
            .map(|base| Summary::of(point.ns.iter().zip(&base.ns).map(|(own, base)| own / base)).median);
        let Summary { q1, median, q3, .. } = Summary::of(point.ns.iter().copied());
        let mut row = json!({
            "chart": point.chart, "subject": point.subject, "x": point.x, "ns": median, "q1": q1, "q3": q3,
            "ratio": ratio,
        });
        if let (Value::Object(row), Value::Object(more)) = (&mut row, &point.more) {
            row.extend(more.clone());
        }
        row
    };
    points.iter().map(row).collect()
}

/// Returns the figures that have bounds: rules beside governor, and calls of several descriptors beside calls of one.
fn targets(points: &[Point]) -> Vec<Value> {
    let find = |chart, subject: &str, x| {
        points.iter().find(|point| point.chart == chart && point.subject.starts_with(subject) && point.x == x)
    };
    let target = |text: String, bound: f64, own: Option<&Point>, other: Option<&Point>, times: f64| {
        let ratios = own?.ns.iter().zip(&other?.ns).map(|(own, other)| own / (other * times));
        let Summary { min, q1, median, q3, max } = Summary::of(ratios);
        let value = json!({ "min": min, "q1": q1, "median": median, "q3": q3, "max": max });
        Some(json!({ "target": text, "bound": bound, "value": value, "holds": median <= bound }))
    };
    let one = find("descriptors", "tollgate", 1);
    let text = "rules, one descriptor: against governor with String keys".to_owned();
    let mut found = vec![target(text, 1.5, one, find("descriptors", "governor", 1), 1.0)];
    for n in [2_u32, 3, 4, 8, 16] {
        let text = format!("rules, {n} descriptors: against {n} times one descriptor");
        found.push(target(text, 1.2, find("descriptors", "tollgate", n.into()), one, n.into()));
    }
    for (count, words, bound) in [(1_000, "1,000", 1.5), (10_000, "10,000", 2.0)] {
        let text = format!("rules, {words} rules with one key each: against a map of governors");
        found.push(target(
            text,
            bound,
            find("rules", "tollgate", count),
            find("rules", "governor", count),
            1.0,
        ));
    }
    found.into_iter().flatten().collect()
}

fn print(rows: &[Value]) {
    for row in rows {
        println!("{row}");
    }
}

fn main() {
    if child::answer_parent() {
        return;
    }
    // Without cargo's `--bench` (as in `cargo test --benches`), this is only a short test run.
    let scale = if !support::has("--bench") {
        Scale { rounds: 1, divisor: 100, most_keys: 10_000, most_rules: 100 }
    } else if support::has("--quick") {
        Scale { rounds: 3, divisor: 10, most_keys: 1_000_000, most_rules: 10_000 }
    } else {
        Scale { rounds: 11, divisor: 1, most_keys: 100_000_000, most_rules: 100_000 }
    };
    let parts = support::option("--parts");
    let wanted = |part: &str| parts.as_deref().is_none_or(|parts| parts.split(',').any(|one| one == part));
    let (mut rows, mut bounded, mut model) = (Vec::new(), Vec::new(), None);
    let mut keep = |points: Vec<Point>| {
        let (more, targets) = (json(&points), targets(&points));
        print(&more);
        print(&targets);
        rows.extend(more);
        bounded.extend(targets);
    };
    if wanted("keys") {
        keep(child::keys(scale));
    }
    if wanted("rules") {
        keep(child::rules(scale));
    }
    if wanted("calls") {
        keep(calls::descriptors(scale));
        keep(calls::limits(scale));
    }
    if wanted("threads") {
        let (points, parts) = threads::run(scale);
        keep(points);
        println!("{parts:#}");
        model = Some(parts);
    }
    if let Some(path) = support::option("--json") {
        let mut report = json!({ "rows": rows, "targets": bounded });
        if let Some(model) = model {
            report["model"] = model;
        }
        support::write(&path, &format!("{report:#}\n"));
    }
}
