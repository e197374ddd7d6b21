//! What does counting in a sketch cost, next to pingora-limits and fastbloom, and what does a window's turn?
//!
//! ```text
//! cargo bench --bench sketches                        the tables
//! cargo bench --bench sketches -- --quick             fewer, shorter rounds
//! cargo bench --bench sketches -- --json FILE         and the same as JSON
//! cargo bench --bench sketches -- --scenario rate     only those whose names contain this; or turns
//! ```
//! * **ns** is wall time × threads / calls of all threads, as in `peers.rs`, whose harness this is. Ratios
//!   are taken within rounds, against the row that the table names.
//! * Keys are 64-bit numbers, drawn uniformly at random. Skewed traffic has fewer keys in cache-cold lines.
//! * "Same memory" is the peer with the same bytes; its counters have 64 bits each. "Same error" is the peer
//!   with as many columns as make the mean count of a key that was never seen no more than ours, when each of
//!   the table's keys had an event: that is what a limit's wrong denials depend on.
//! * Turns: each event is timed by itself, which adds a counter reading; those within 100 µs after a turn
//!   (and 20 before) are near it. There the peer clears a sketch, in one event of about a thousand; and our
//!   keys' first events of a window are there, which find lines that nobody touched for a window. p99.99 is
//!   what one event in 10,000 reaches; above it the operating system's interruptions take over (with a
//!   real-time priority: its throttling).
//! * On two threads the peer is warmed up for a second on one: before, it panics when two threads meet at a
//!   turn of windows below a second (0.9.1: `assertion failed: new >= now - 1000`).
//! * Known bias: as in `peers.rs`. On virtual machines the distance between the two processors changes all
//!   contended rows; compare rows of one table.

#[path = "peers/harness.rs"]
#[allow(dead_code, reason = "made for peers.rs")]
mod harness;
#[path = "peers/keys.rs"]
#[allow(dead_code, reason = "made for peers.rs")]
mod keys;
#[path = "sketches/others.rs"]
mod others;
#[path = "sketches/rates.rs"]
mod rates;
#[path = "peers/subject.rs"]
#[allow(dead_code, reason = "made for peers.rs")]
mod subject;
#[path = "peers/summary.rs"]
#[allow(dead_code, reason = "made for peers.rs")]
mod summary;
mod support;
#[path = "peers/turn.rs"]
mod turn;
#[path = "sketches/turns.rs"]
mod turns;

use std::time::Duration;

use serde_json::{Value, json};

use harness::{Draw, Scenario, Table};
use subject::{Contender, Expect, Recipe, Subject};
use summary::Summary;

/// One call on a key, that must answer `true`.
struct Call<F>(F);

impl<F: Fn(&u64) -> bool + Sync> Subject<u64> for Call<F> {
    #[inline(always)]
    fn check(&self, key: &u64) -> bool {
        (self.0)(key)
    }
}

fn call(operation: impl Fn(&u64) -> bool + Sync + 'static) -> Box<dyn Contender<u64>> {
    Box::new(Call(operation))
}

/// A table: rows, and the one that ratios are taken against.
struct Scene {
    scenario: Scenario,
    recipes: Vec<Recipe<u64>>,
}

impl Scene {
    fn known(
        id: &'static str,
        title: &'static str,
        population: u64,
        base: &'static str,
        recipes: Vec<Recipe<u64>>,
    ) -> Self {
        let scenario = Scenario {
            id,
            title,
            population,
            draw: Draw::Known,
            expect: Expect::Allowed,
            threads: &[1, 2],
            checks: if population > 10_000 { 1_000_000 } else { 500_000 },
            rounds: if population > 10_000 { 9 } else { 31 },
            floor: base,
            governor: base,
        };
        Self { scenario, recipes }
    }

    fn new_keys(
        id: &'static str,
        title: &'static str,
        population: u64,
        base: &'static str,
        recipes: Vec<Recipe<u64>>,
    ) -> Self {
        let mut scene = Self::known(id, title, population, base, recipes);
        scene.scenario.draw = Draw::New;
        // As many as there is room for, on two threads.
        scene.scenario.checks = population / 2;
        scene
    }

    fn run(mut self, smoke: bool, quick: bool, tables: &mut Vec<Table>) {
        if quick {
            self.scenario.checks /= 4;
            self.scenario.rounds = 7;
        }
        if smoke {
            self.scenario.checks /= 50;
            self.scenario.rounds = 1;
            self.scenario.population = self.scenario.population.min(10_000);
        }
        self.scenario.run(&self.recipes, &mut |table: Table| {
            print(&table);
            tables.push(table);
        });
    }
}

fn print(table: &Table) {
    println!("\n## {}, {} thread(s)", table.title, table.threads);
    if let Some(ns) = table.transfer_ns {
        println!("(a modified line goes from core to core in {:.0} ns)", ns.median);
    }
    println!("{:<26} {:>8} {:>18} {:>8}   against {}", "", "ns", "quartiles", "stolen", table.floor);
    for row in &table.rows {
        let (ns, ratio) = (row.ns(), table.row(table.floor).map(|base| row.ratio(base)));
        print!(
            "{:<26} {:>8.1} {:>8.1}..{:>8.1} {:>6.1} %",
            row.name,
            ns.median,
            ns.q1,
            ns.q3,
            row.delayed() * 100.0
        );
        println!(
            "   {}",
            ratio.map_or_else(String::new, |r| format!("{:.2} [{:.2}..{:.2}]", r.median, r.q1, r.q3))
        );
    }
}

fn json_table(table: &Table) -> impl Iterator<Item = Value> {
    table.rows.iter().map(|row| {
        let (ns, ratio) = (row.ns(), table.row(table.floor).map(|base| row.ratio(base).median));
        json!({
            "table": table.scenario, "threads": table.threads, "subject": row.name, "counts": row.counts,
            "median_ns": ns.median, "q1_ns": ns.q1, "q3_ns": ns.q3, "mops": row.mops().median,
            "against": table.floor, "ratio": ratio, "stolen": row.delayed(),
        })
    })
}

/// A ratio that a run is held against; not an exit code, since one noisy run proves nothing.
struct Target {
    text: String,
    bound: f64,
    ratio: f64,
}

impl Target {
    fn print(&self) {
        let verdict = if self.ratio <= self.bound { "PASS" } else { "MISS" };
        println!("{verdict} {}: {:.2} <= {:.2}", self.text, self.ratio, self.bound);
    }

    fn json(&self) -> Value {
        let holds = self.ratio <= self.bound;
        json!({"target": self.text, "bound": self.bound, "ratio": self.ratio, "holds": holds})
    }
}

fn targets(tables: &[Table], turns: &[turns::Turns]) -> Vec<Target> {
    let bounds = [
        ("rate-hot", rates::OURS, rates::SAME_MEMORY, 0.9),
        ("rate-hot", rates::OURS, rates::SAME_ERROR, 0.7),
        ("rate-1m", rates::OURS, rates::SAME_MEMORY, 0.9),
        ("rate-1m", rates::OURS, rates::SAME_ERROR, 0.7),
        ("count-hot", others::COUNT_MIN, others::ESTIMATOR, 1.0),
        ("count-1m", others::COUNT_MIN, others::ESTIMATOR, 1.0),
        ("set-insert", others::BLOOM, others::FASTBLOOM, 1.0),
        ("set-contains", others::BLOOM, others::FASTBLOOM, 1.0),
    ];
    let mut targets = Vec::new();
    for (id, name, base, bound) in bounds {
        for table in tables.iter().filter(|table| table.scenario == id) {
            if let (Some(row), Some(base_row)) = (table.row(name), table.row(base)) {
                let ratio: Summary = row.ratio(base_row);
                let text = format!("{id}, {} thread(s): {name} against {base}", table.threads);
                targets.push(Target { text, bound, ratio: ratio.median });
            }
        }
    }
    for pair in turns.chunks_exact(2) {
        let [ours, peer] = pair else { continue };
        let of = format!("{} B, {} thread(s)", ours.bytes, ours.threads);
        let text = format!("p99.99 near turns against away, {of}");
        targets.push(Target { text, bound: 1.0, ratio: ours.ratio() });
        let text = format!("p99.99 near turns against pingora's, {of}");
        targets.push(Target { text, bound: 1.0, ratio: ours.against(peer) });
    }
    targets
}

fn main() {
    // Cargo passes `--bench` when benching; without it (`cargo test --benches`) this only shows that all rows
    // run.
    let smoke = !support::has("--bench");
    let quick = smoke || support::has("--quick");
    let only = support::option("--scenario");
    let wanted = |id: &str| only.as_deref().is_none_or(|only| id.contains(only));

    let errors = if wanted("errors") { rates::errors(smoke) } else { Vec::new() };
    for (keys, bytes, ours, pingora) in &errors {
        println!("{keys} keys of one event, {bytes} B: an unseen key has {ours:.3}, pingora {pingora:.3}");
    }
    let mut tables = Vec::new();
    for scene in rates::scenes().into_iter().chain(others::scenes()) {
        if wanted(scene.scenario.id) {
            scene.run(smoke, quick, &mut tables);
        }
    }
    let span = Duration::from_millis(if smoke {
        40
    } else if quick {
        1_000
    } else {
        4_000
    });
    let turns = if wanted("turns") { turns::run(span) } else { Vec::new() };
    if !turns.is_empty() {
        println!(
            "\n## Turns of windows of 10 ms\n{:<48} {:>10} {:>8} {:>8} {:>8} {:>8} {:>12} {:>10}   (ns)",
            "", "events", "mean", "p50", "p99", "p99.9", "p99.99", "max"
        );
        turns.iter().for_each(turns::Turns::print);
    }
    println!("\n## Targets");
    let targets = targets(&tables, &turns);
    targets.iter().for_each(Target::print);
    if let Some(path) = support::option("--json") {
        let errors = errors.iter().map(|(keys, bytes, ours, pingora)| {
            json!({"keys": keys, "bytes": bytes, "ours": ours, "pingora": pingora})
        });
        let report = json!({
            "quick": quick,
            "errors": errors.collect::<Vec<_>>(),
            "rows": tables.iter().flat_map(json_table).collect::<Vec<_>>(),
            "turns": turns.iter().map(turns::Turns::json).collect::<Vec<_>>(),
            "targets": targets.iter().map(Target::json).collect::<Vec<_>>(),
        });
        std::fs::write(&path, format!("{report:#}\n"))
            .unwrap_or_else(|error| panic!("writing {path}: {error}"));
    }
}
