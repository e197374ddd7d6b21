//! Measures in virtual time how much the modes that decide in the process admit, and compares this with their
//! documented bounds: `cargo run --release -p tollgate-soak --bin redis_simulation`.
//!
//! N processes with the real accounting code share 10,000 units in 10 seconds (by GCRA, 1,000 per second and 2,000 at
//! once). The load is three times as high, for 30 seconds. `--quick` stops at 10 processes. `-- chart.svg` also draws a chart.

use std::time::Duration;

use tollgate::Quota;
use tollgate_redis::Limit;
use tollgate_soak::simulation::{Mode, Network, Outcome, Pattern, Setup, run};
use tollgate_testing::chart;

const LIMIT: u64 = 10_000;
const SECONDS: u64 = 30;
const NODES: [u32; 4] = [1, 10, 100, 1_000];
const NETWORKS: [Network; 2] = [Network::Lan, Network::Regions];

fn limits() -> [(&'static str, Limit); 2] {
    let quota = Quota::new(LIMIT, Duration::from_secs(10));
    [("window", Limit::fixed_window(quota)), ("GCRA", Limit::gcra(quota.burst(2_000)))]
}

fn setup(mode: Mode, limit: Limit, nodes: u32, pattern: Pattern, network: Network) -> Setup {
    Setup { pattern, per_second: 3_000, seconds: SECONDS, network, seed: 1, ..Setup::new(mode, limit, nodes) }
}

/// As a share of the available units.
fn percent(units: u64, of: u64) -> f64 {
    100.0 * units as f64 / of.max(1) as f64
}

fn line(name: &str, setup: &Setup, outcome: &Outcome) {
    let limit = setup.limit.most();
    println!(
        "| {} | {name} | {} | {} | {} | {:.1} | {:.0} | {:.2} | {:.2} | {:.0} | {:.2} | {:.1} | {:.1} | {:.0} |",
        setup.mode.name(),
        setup.network.name(),
        setup.pattern.name(),
        setup.nodes,
        percent(outcome.over, limit),
        percent(outcome.bound, limit),
        percent(outcome.left, limit * outcome.seconds / 10),
        percent(outcome.stranded, limit),
        percent(outcome.stranded_bound, limit),
        percent(outcome.refused_early, outcome.offered),
        percent(outcome.waited, outcome.offered),
        outcome.waited_us as f64 / 1e3 / outcome.waited.max(1) as f64,
        outcome.calls as f64 / outcome.seconds as f64,
    );
}

fn main() {
    let path = std::env::args().nth(1);
    let is_quick = path.as_deref() == Some("--quick");
    let most = if is_quick { 10 } else { 1_000 };
    println!(
        "| mode | limit | network | requests | N | over, % of the limit | at most | left at the end, % | stranded, % | at most | refused early, % | waited, % | ms | calls/s |"
    );
    println!("|---|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let mut windows = Vec::new();
    let mut exceeded = 0;
    for mode in Mode::ALL {
        for (name, limit) in limits() {
            for network in NETWORKS {
                for pattern in Pattern::ALL {
                    for nodes in NODES.into_iter().filter(|nodes| *nodes <= most) {
                        let setup = setup(mode, limit, nodes, pattern, network);
                        let outcome = run(&setup);
                        line(name, &setup, &outcome);
                        exceeded += u64::from(outcome.over > outcome.bound);
                        exceeded += u64::from(
                            mode == Mode::Awaited
                                && name == "window"
                                && outcome.stranded > outcome.stranded_bound,
                        );
                        if name == "window" {
                            windows.push((setup, outcome));
                        }
                    }
                }
            }
        }
    }
    if exceeded > 0 {
        eprintln!("error: {exceeded} bounds were exceeded");
        std::process::exit(1);
    }
    if let Some(path) = path.filter(|_| !is_quick) {
        draw(&path, &windows);
    }
}

/// Draws the over-admission and denial of both modes by the number of processes, half a millisecond from the server.
/// Both axes are logarithmic.
fn draw(path: &str, windows: &[(Setup, Outcome)]) {
    type Value = fn(&Outcome) -> u64;
    // Smaller values are drawn at this value, because a logarithmic axis has no zero.
    let least = 0.01;
    let panels: [(&str, Mode, Value, Value); 2] = [
        ("Write-back: admitted beyond the limit", Mode::WriteBack, |run| run.over, |run| run.bound),
        ("Leases: charged but not spent", Mode::Awaited, |run| run.stranded, |run| run.stranded_bound),
    ];
    let panels = panels.map(|(caption, mode, measured, bound)| {
        let line = |what: &str, pattern, colour, is_dashed, value: Value| {
            let cells = windows.iter().filter(|(setup, _)| {
                (setup.mode, setup.network, setup.pattern) == (mode, Network::Lan, pattern)
            });
            let points = cells.map(|(setup, outcome)| {
                [f64::from(setup.nodes), percent(value(outcome), setup.limit.most()).max(least)]
            });
            chart::Line { name: what.to_owned(), colour, is_dashed, points: points.collect() }
        };
        let colours = [chart::BLUE, chart::VERMILION, chart::GREEN, chart::PURPLE];
        let patterns = || Pattern::ALL.into_iter().zip(colours);
        let mut lines: Vec<_> = patterns()
            .map(|(pattern, colour)| {
                line(&format!("measured: {}", pattern.name()), pattern, colour, false, measured)
            })
            .collect();
        // The bound of write-back does not depend on the traffic.
        if mode == Mode::WriteBack {
            lines.push(line("at most: any traffic", Pattern::Even, chart::BLACK, true, bound));
        } else {
            lines.extend(patterns().map(|(pattern, colour)| {
                line(&format!("at most: {}", pattern.name()), pattern, colour, true, bound)
            }));
        }
        chart::Panel {
            caption: caption.to_owned(),
            x: chart::Axis::log("processes", 1.0, 1_000.0, vec![1.0, 10.0, 100.0, 1_000.0]),
            // Room for the legend below the values that are zero.
            y: chart::Axis::log(
                "% of the limit (none: 0.01)",
                0.000_005,
                10_000.0,
                vec![0.01, 0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0],
            ),
            lines,
            legend: Some([1.0, 1.0]),
        }
    });
    let title = "A limit of 10,000 in 10 s, under three times that load; 0.5 ms from the server";
    std::fs::write(path, chart::draw(title, 960, 600, &panels)).expect("writing");
}
