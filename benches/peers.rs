//! What does a check cost, compared with other crates and with the limits of the hardware, in one run?
//!
//! ```text
//! cargo bench --bench peers                              the tables
//! cargo bench --bench peers -- --json FILE               and the same as JSON
//! cargo bench --bench peers -- --quick                   fewer, shorter rounds; rows without a target run once
//! cargo bench --bench peers -- --charts                  the charts' rows too: powers of ten of keys to 10^8, threads to 8,
//!                                                        shares of denials; short rounds with --quick
//! cargo bench --bench peers -- --large                   10 M and 100 M keys too (12 GB, many minutes)
//! cargo bench --bench peers -- --scenario hot --subject keyed     comma-separated texts: `text` selects names that contain it,
//!                                                        `=text` the name itself, `!text` names that do not contain it
//! cargo bench --profile server --bench peers             the build that servers should use: thin LTO, one codegen unit
//! cargo bench --bench peers -- --scenario theirs         maps of addresses that servers wrote for themselves
//! cargo bench --bench peers -- --beside                  one thread, beside a fixed load on the other core
//! ```
//! `TOLLGATE_BENCH_JSON=FILE` and `TOLLGATE_BENCH_LARGE=1` have the same effect as the flags.
//!
//! * **ns/check** is wall time × threads / checks of all threads: the cost of one check for the thread that makes it.
//!   **M checks/s** is checks of all threads / wall time. The tables show both, because publications often confuse
//!   them.
//! * Every row reads a real clock and counts only whether the check was admitted. In allowed rows every check must be
//!   admitted, and in denied rows every check must be denied; an assertion checks this.
//! * A batch makes several checks in one call. Its time is the time per check and includes all work. A decision is
//!   counted when it is made and is not stored, unless the row's description says otherwise.
//! * Keys are drawn uniformly at random. Real traffic is skewed, which is better for caches and worse for contended
//!   words. The tables contain both extremes: 1,000 keys, and one word that all checks use.
//! * "stolen" is the share of time in which the scheduler ran something else. If a row has more than a few percent, the
//!   machine was busy.
//! * On virtual machines, the host may move the two processors closer together or farther apart during a run. This
//!   changes all contended rows up to threefold. Each two-thread table therefore shows how long a cache line takes
//!   between the processors. Compare rows of one table, and ratios, rather than figures of two runs.
//! * Known bias: in loops this tight, the processor overlaps the clock reading of one check with the end of the
//!   previous check. This affects all rows. Two threads on two cores of one socket predict nothing about two sockets.
//! * The description of a compact row states its memory. Below the table, "evicted" is the share of checks that evicted
//!   a key with a debt.
//! * Peers are called as their documentation recommends. pingora-limits is a counter and not a limiter; it uses fixed
//!   memory and has errors. It is included because people compare with it.

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
#[path = "peers/neighbour.rs"]
mod neighbour;
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
#[path = "peers/theirs/mod.rs"]
mod theirs;
#[path = "peers/turn.rs"]
mod turn;

use serde_json::json;

use targets::{Measured, Target};

fn main() {
    if neighbour::answer_parent() || plan::answer_parent() {
        return;
    }
    // Cargo passes `--bench` for a bench run. Without it (as in `cargo test --benches`), this is only a short test run
    // of all rows.
    let smoke = !support::has("--bench");
    let quick = smoke || support::has("--quick");
    let large = support::has("--large") || std::env::var_os("TOLLGATE_BENCH_LARGE").is_some();
    let charts = support::has("--charts");
    let (machine, versions) = (report::machine(), report::versions());
    println!("{machine:#}\n{versions:#}");

    let neighbour = support::has("--beside").then(neighbour::Neighbour::start);
    let measured = plan::Plan { smoke, quick, large, charts, beside: neighbour.is_some() }.run();
    drop(neighbour);

    report::print_counts(&measured);
    println!("\n## Targets");
    let targets = measured.targets();
    targets.iter().for_each(Target::print);
    if let Some(path) = support::option("--json").or_else(|| std::env::var("TOLLGATE_BENCH_JSON").ok()) {
        let Measured { tables, footprints, flood, forgetful, left_out } = &measured;
        let report = json!({
            "profile": report::profile(),
            "machine": machine,
            "versions": versions,
            "quick": quick,
            "counts": report::counts(tables),
            "rows": report::tables(tables),
            "flood": report::flood(flood.as_ref()),
            "forgetful": report::forgetful(forgetful),
            "resident": report::footprints(footprints),
            "left_out": left_out.iter().map(charts::LeftOut::json).collect::<Vec<_>>(),
            "targets": targets.iter().map(Target::json).collect::<Vec<_>>(),
        });
        support::write(&path, &format!("{report:#}\n"));
    }
}
