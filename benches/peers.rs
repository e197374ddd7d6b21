//! What does a check cost, next to the peers and next to what the hardware allows, in one run?
//!
//! ```text
//! cargo bench --bench peers                              the tables
//! cargo bench --bench peers -- --json FILE               and the same as JSON
//! cargo bench --bench peers -- --quick                   fewer, shorter rounds; what no target needs, only tried
//! cargo bench --bench peers -- --charts                  what charts need too: keys by powers of ten to 10^8, threads to 8,
//!                                                        shares of denials; with --quick in short rounds
//! cargo bench --bench peers -- --large                   10 M and 100 M keys too (12 GB, many minutes)
//! cargo bench --bench peers -- --scenario hot --subject keyed     only names that contain this, are what stands behind =,
//!                                                        or do not contain what stands behind !; several with commas
//! cargo bench --profile server --bench peers             the build that servers should use: thin LTO, one codegen unit
//! ```
//! `TOLLGATE_BENCH_JSON=FILE` and `TOLLGATE_BENCH_LARGE=1` do the same as the flags.
//!
//! * **ns/check** is wall time × threads / checks of all threads: what one check costs the thread that makes it.
//!   **M checks/s** is checks of all threads / wall time. They are printed side by side since this field mixes them up.
//! * Every row reads a real clock and counts only whether the check was admitted. Allowed rows assert that nothing
//!   was denied, denied rows that nothing was admitted.
//! * Batches check so many keys by one call; their time is a check's, all work included, but a decision is counted as it
//!   is made and not kept, unless the row says so.
//! * Keys are drawn uniformly at random. Real traffic is skewed, which suits caches and hurts contended words;
//!   the two ends are here: 1,000 keys, and one word hit by all.
//! * "stolen" is the share of time in which the scheduler ran something else: a row with more than a few percent
//!   was measured on a busy machine.
//! * On virtual machines the host may move the two processors nearer together or further apart while this runs,
//!   which changes all contended rows up to threefold. Each two-thread table says what a cache line took between
//!   them; compare rows of one table, and ratios, rather than figures of two runs.
//! * Known bias: loops this tight let the processor overlap one check's clock read with the last one's tail, for
//!   all rows alike. Two threads on two cores of one socket say nothing about two sockets.
//! * Compact rows say how much memory they were given. Beside the tables, "evicted" counts the checks that had no room.
//! * Peers are called as their documentation recommends. pingora-limits counts rather than limits, in fixed memory
//!   and with errors; it is here because people compare it.

#[path = "peers/charts.rs"]
mod charts;
#[path = "peers/compact.rs"]
mod compact;
#[path = "peers/flood.rs"]
mod flood;
#[path = "peers/floor.rs"]
mod floor;
#[path = "peers/harness.rs"]
mod harness;
#[path = "peers/keys.rs"]
mod keys;
#[path = "peers/memory.rs"]
mod memory;
#[path = "peers/ours.rs"]
mod ours;
#[path = "peers/plan.rs"]
mod plan;
#[path = "peers/report.rs"]
mod report;
#[path = "peers/rivals.rs"]
mod rivals;
#[path = "peers/sketch.rs"]
mod sketch;
#[path = "peers/subject.rs"]
mod subject;
#[path = "peers/summary.rs"]
mod summary;
mod support;
#[path = "peers/targets.rs"]
mod targets;
#[path = "peers/turn.rs"]
mod turn;

use serde_json::json;

use targets::{Measured, Target};

fn main() {
    if plan::answer_parent() {
        return;
    }
    // Cargo passes `--bench` when benching; without it (`cargo test --benches`) this only shows that all rows run.
    let smoke = !support::has("--bench");
    let quick = smoke || support::has("--quick");
    let large = support::has("--large") || std::env::var_os("TOLLGATE_BENCH_LARGE").is_some();
    let charts = support::has("--charts");
    let (machine, versions) = (report::machine(), report::versions());
    println!("{machine:#}\n{versions:#}");

    let measured = plan::Plan { smoke, quick, large, charts }.run();

    report::print_counts(&measured);
    println!("\n## Targets");
    let targets = measured.targets();
    targets.iter().for_each(Target::print);
    if let Some(path) = support::option("--json").or_else(|| std::env::var("TOLLGATE_BENCH_JSON").ok()) {
        let Measured { tables, footprints, flood, left_out } = &measured;
        let report = json!({
            "profile": report::profile(),
            "machine": machine,
            "versions": versions,
            "quick": quick,
            "rows": report::tables(tables),
            "flood": report::flood(flood.as_ref()),
            "resident": report::footprints(footprints),
            "left_out": left_out.iter().map(charts::LeftOut::json).collect::<Vec<_>>(),
            "targets": targets.iter().map(Target::json).collect::<Vec<_>>(),
        });
        std::fs::write(&path, format!("{report:#}\n"))
            .unwrap_or_else(|error| panic!("writing {path}: {error}"));
    }
}
