//! What does counting in a sketch cost, compared with pingora-limits and fastbloom? And what does a *turn* cost, the
//! change from one window to the next?
//!
//! ```text
//! cargo bench --bench sketches                        the tables
//! cargo bench --bench sketches -- --quick             fewer, shorter rounds
//! cargo bench --bench sketches -- --json FILE         and the same as JSON
//! cargo bench --bench sketches -- --scenario rate     only the tables whose names contain this text; or turns
//! ```
//! * **ns** is wall time × threads / calls of all threads, as in `peers.rs`, whose harness this bench uses. Ratios are
//!   taken within rounds, relative to the row that the table names.
//! * Keys are 64-bit numbers, drawn uniformly at random. With skewed traffic, fewer keys are in cache-cold lines.
//! * "Same memory" is the peer with the same number of bytes. Its counters have 64 bits each. "Same error" is the peer
//!   with enough columns that a key without events has, on average, a count no larger than ours, after one event of
//!   each of the table's keys. The wrong denials of a limit depend on this count.
//! * Turns: each event is timed separately, which adds a counter reading. Events from 20 µs before a turn to 100 µs
//!   after it are near the turn. Near a turn, about one of a thousand events of the peer clears a sketch. For Tollgate,
//!   the first event of each key in a window is near the turn; it uses cache lines that no event used for a window.
//!   p99.99 is the time that one event in 10,000 reaches. Above it, the operating system's interruptions dominate (with
//!   a real-time priority: its throttling).
//! * With two threads, one thread warms the peer up for a second. Before that, the peer panics if two threads meet at a
//!   turn of windows below a second (0.9.1: `assertion failed: new >= now - 1000`).
//! * Known bias: as in `peers.rs`. On virtual machines, the distance between the two processors changes all contended
//!   rows, so compare rows of one table.

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
#[path = "sketches/scene.rs"]
mod scene;
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

use serde_json::json;

use harness::Table;
use scene::{Figure, Scene, Target, call, json_table};

fn targets(tables: &[Table], turns: &[turns::Turns]) -> Vec<Target> {
    let bounds = [
        ("rate-hot", rates::OURS, rates::SAME_MEMORY, 0.9),
        ("rate-hot", rates::OURS, rates::SAME_ERROR, 0.7),
        ("rate-1m", rates::OURS, rates::SAME_MEMORY, 0.9),
        ("rate-1m", rates::OURS, rates::SAME_ERROR, 0.7),
        ("set-insert", others::BLOOM, others::FASTBLOOM, 1.0),
        ("set-contains", others::BLOOM, others::FASTBLOOM, 1.0),
    ];
    let mut targets = Target::of_tables(tables, &bounds);
    for pair in turns.chunks_exact(2) {
        let [ours, peer] = pair else { continue };
        let of = format!("{} B, {} thread(s)", ours.bytes, ours.threads);
        let text = format!("p99.99 near turns of the window and away from them, {of}");
        targets.push(Target { text, bound: 1.0, ratio: Figure::Once(ours.ratio()) });
        let text = format!("p99.99 near turns against pingora's, {of}");
        targets.push(Target { text, bound: 1.0, ratio: Figure::Once(ours.against(peer)) });
    }
    targets
}

fn main() {
    // Cargo passes `--bench` for a bench run. Without it (as in `cargo test --benches`), this is only a short test run
    // of all rows.
    let smoke = !support::has("--bench");
    let quick = smoke || support::has("--quick");
    let only = support::option("--scenario");
    let wanted = |id: &str| only.as_deref().is_none_or(|only| id.contains(only));

    let errors = if wanted("errors") { rates::errors(smoke) } else { Vec::new() };
    for (keys, bytes, ours, pingora) in &errors {
        println!(
            "after one event of each of {keys} keys, in {bytes} B, an unseen key counts {ours:.3} here and {pingora:.3} in pingora"
        );
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
        support::write(&path, &format!("{report:#}\n"));
    }
}
