//! What does a check cost, next to the peers and next to what the hardware allows, in one run?
//!
//! ```text
//! cargo bench --bench peers                              the tables
//! cargo bench --bench peers -- --json FILE               and the same as JSON
//! cargo bench --bench peers -- --quick                   fewer, shorter rounds
//! cargo bench --bench peers -- --large                   10 M keys too (several GB, several minutes)
//! cargo bench --bench peers -- --scenario hot --subject keyed     only names that contain this, or are what stands behind =
//! ```
//! `TOLLGATE_BENCH_JSON=FILE` and `TOLLGATE_BENCH_LARGE=1` do the same as the flags.
//!
//! * **ns/check** is wall time × threads / checks of all threads: what one check costs the thread that makes it.
//!   **M checks/s** is checks of all threads / wall time. They are printed side by side since this field mixes them up.
//! * Every row reads a real clock and counts only whether the check was admitted. Allowed rows assert that nothing
//!   was denied, denied rows that nothing was admitted.
//! * Keys are drawn uniformly at random. Real traffic is skewed, which suits caches and hurts contended words;
//!   the two ends are here: 1,000 keys, and one word hit by all.
//! * "stolen" is the share of time in which the scheduler ran something else: a row with more than a few percent
//!   was measured on a busy machine.
//! * On virtual machines the host may move the two processors nearer together or further apart while this runs,
//!   which changes all contended rows up to threefold. Each two-thread table says what a cache line took between
//!   them; compare rows of one table, and ratios, rather than figures of two runs.
//! * Known bias: loops this tight let the processor overlap one check's clock read with the last one's tail, for
//!   all rows alike. Two threads on two cores of one socket say nothing about two sockets.
//! * Peers are called as their documentation recommends. pingora-limits counts rather than limits, in fixed memory
//!   and with errors; it is here because people compare it.

#[path = "peers/compact.rs"]
mod compact;
#[path = "peers/floor.rs"]
mod floor;
#[path = "peers/harness.rs"]
mod harness;
#[path = "peers/memory.rs"]
mod memory;
#[path = "peers/ours.rs"]
mod ours;
#[path = "peers/report.rs"]
mod report;
#[path = "peers/rivals.rs"]
mod rivals;
mod support;

use harness::{Expect, Key, Recipe, Scenario, Table};
use report::Target;
use serde_json::json;

/// Whether a name contains the text, or is the text behind a leading `=`.
fn matches(name: &str, text: &str) -> bool {
    text.strip_prefix('=').map_or_else(|| name.contains(text), |whole| name == whole)
}

/// The recipes that `--subject` names; all without it.
fn chosen<K: Key>(groups: impl IntoIterator<Item = Vec<Recipe<K>>>) -> Vec<Recipe<K>> {
    let wanted = support::option("--subject");
    let keep = |name: &str| wanted.as_deref().is_none_or(|text| matches(name, text));
    groups.into_iter().flatten().filter(|recipe| keep(recipe.name)).collect()
}

fn keyed() -> Vec<Recipe<u64>> {
    chosen([floor::keyed(), compact::keyed(), ours::keyed(), rivals::keyed()])
}

fn strings() -> Vec<Recipe<String>> {
    chosen([floor::strings(), compact::strings(), ours::strings(), rivals::strings()])
}

fn one_word() -> Vec<Recipe<u64>> {
    chosen([floor::one_word(), ours::one_word(), rivals::one_word()])
}

struct Run {
    quick: bool,
    wanted: Option<String>,
    tables: Vec<Table>,
}

impl Run {
    fn wants(&self, id: &str) -> bool {
        self.wanted.as_deref().is_none_or(|text| matches(id, text))
    }

    fn scenario<K: Key>(&mut self, mut scenario: Scenario, recipes: &[Recipe<K>]) {
        if !self.wants(scenario.id) || recipes.is_empty() {
            return;
        }
        if self.quick {
            scenario.checks /= 4;
            scenario.rounds = 7;
        }
        scenario.run(recipes, &mut |table| {
            report::print_table(&table);
            self.tables.push(table);
        });
    }
}

/// A scenario on keyed limiters: both numbers of threads, ratios against the floor and governor with ahash.
fn keyed_scenario(id: &'static str, title: &'static str, population: u64, expect: Expect) -> Scenario {
    Scenario {
        id,
        title,
        population,
        expect,
        threads: &[1, 2],
        // Turns of 5 to 100 ms: short enough that most meet no interruption, long enough for the stopwatch.
        checks: if population > 10_000 { 1_000_000 } else { 500_000 },
        rounds: if population > 10_000 { 9 } else { 31 },
        floor: floor::FLOOR,
        governor: rivals::GOVERNOR,
    }
}

fn measure_all(run: &mut Run, large: bool) {
    use Expect::{Allowed, AllowedIdle, Denied};
    let hot = |id, title, expect| keyed_scenario(id, title, 1_000, expect);
    let word = |id, title, expect| Scenario {
        population: 1,
        governor: rivals::GOVERNOR_DIRECT,
        ..keyed_scenario(id, title, 1, expect)
    };

    let mut pieces = keyed_scenario("pieces", "Pieces of a check", 1_000, Allowed);
    pieces.rounds = 7;
    run.scenario(pieces, &chosen([floor::pieces()]));
    let mut pieces = keyed_scenario("pieces-strings", "Pieces of a check on strings", 1_000, Allowed);
    (pieces.rounds, pieces.threads) = (7, &[1]);
    run.scenario(pieces, &chosen([floor::string_pieces()]));

    run.scenario(hot("hot", "Allowed, 1,000 keys", Allowed), &keyed());
    run.scenario(hot("hot-denied", "Denied, 1,000 keys", Denied), &keyed());
    run.scenario(word("word", "Allowed, one word hit by all threads", AllowedIdle), &one_word());
    run.scenario(word("word-denied", "Denied, one word read by all threads", Denied), &one_word());
    run.scenario(hot("strings-hot", "Allowed, 1,000 string keys of 24 bytes", Allowed), &strings());
    run.scenario(keyed_scenario("1m", "Allowed, 1 M keys", 1_000_000, Allowed), &keyed());
    run.scenario(
        hot("idle-hot", "Allowed, 1,000 keys, each idle again before it comes back", AllowedIdle),
        &keyed(),
    );
    run.scenario(
        keyed_scenario(
            "idle-1m",
            "Allowed, 1 M keys, each idle again before it comes back",
            1_000_000,
            AllowedIdle,
        ),
        &keyed(),
    );
    run.scenario(keyed_scenario("1m-denied", "Denied, 1 M keys", 1_000_000, Denied), &keyed());
    run.scenario(
        keyed_scenario("strings-1m", "Allowed, 1 M string keys of 24 bytes", 1_000_000, Allowed),
        &strings(),
    );
    if large {
        run.scenario(keyed_scenario("10m", "Allowed, 10 M keys", 10_000_000, Allowed), &keyed());
    }
}

fn targets(tables: &[Table]) -> Vec<Target> {
    let ratio = |scenario: &str, threads: usize, subject: &str, base: &str| {
        let table = tables.iter().find(|table| table.scenario == scenario && table.threads == threads)?;
        Some(table.row(subject)?.ratio(table.row(base)?))
    };
    let (ours, governor) = (ours::KEYED, rivals::GOVERNOR);
    let denied = |threads: usize| {
        let table = tables.iter().find(|table| table.scenario == "hot-denied" && table.threads == threads)?;
        table.row(ours)
    };
    [
        (
            "keyed against governor + ahash, 1,000 keys, allowed, 1 thread",
            0.9,
            ratio("hot", 1, ours, governor),
        ),
        (
            "keyed against governor + ahash, 1,000 keys, allowed, 2 threads",
            0.6,
            ratio("hot", 2, ours, governor),
        ),
        (
            "keyed, 1,000 keys, denied (writes nothing shared): 2 threads against 1",
            1.1,
            denied(2).zip(denied(1)).map(|(two, one)| two.ratio(one)),
        ),
    ]
    .into_iter()
    .filter_map(|(text, bound, ratio)| ratio.map(|ratio| Target { text, bound, ratio }))
    .collect()
}

fn main() {
    if memory::answer_parent(&keyed()) || memory::answer_parent(&strings()) {
        return;
    }
    // Cargo passes `--bench` when benching; without it (`cargo test --benches`) this only shows that all rows run.
    let smoke = !support::has("--bench");
    let quick = smoke || support::has("--quick");
    let large = support::has("--large") || std::env::var_os("TOLLGATE_BENCH_LARGE").is_some();
    let (machine, versions) = (report::machine(), report::versions());
    println!("{machine:#}\n{versions:#}");

    let mut run = Run { quick, wanted: support::option("--scenario"), tables: Vec::new() };
    let mut footprints = Vec::new();
    if run.wants("memory") && !smoke {
        // Just below and just above a doubling of most hash tables; the truth for a given size lies between.
        let populations: &[u64] = if quick { &[1_000_000] } else { &[900_000, 1_000_000] };
        footprints = memory::measure(&keyed(), populations);
        footprints.extend(memory::measure(&strings(), populations));
        if large {
            footprints.extend(memory::measure(&keyed(), &[10_000_000]));
        }
        report::print_footprints(&footprints);
    }
    measure_all(&mut run, large);

    report::print_counts(&run.tables);
    println!("\n## Targets");
    let targets = targets(&run.tables);
    targets.iter().for_each(Target::print);
    if let Some(path) = support::option("--json").or_else(|| std::env::var("TOLLGATE_BENCH_JSON").ok()) {
        let report = json!({
            "machine": machine,
            "versions": versions,
            "quick": quick,
            "rows": report::tables(&run.tables),
            "resident": report::footprints(&footprints),
            "targets": targets.iter().map(Target::json).collect::<Vec<_>>(),
        });
        std::fs::write(&path, format!("{report:#}\n"))
            .unwrap_or_else(|error| panic!("writing {path}: {error}"));
    }
}
