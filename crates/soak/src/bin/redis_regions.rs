//! Simulates three regions that share one limit. Prints what they admit beyond the limit, by the exchange interval and by
//! the length of a partition, and draws a chart.
//!
//! ```text
//! cargo run --release -p tollgate-soak --bin redis_regions -- docs/redis_regions.svg
//! ```

use std::time::Duration;

use tollgate::Quota;
use tollgate_redis::{Limit, RegionPolicy};
use tollgate_soak::simulation::regions::{Cut, RegionOutcome, RegionSetup, run_regions};
use tollgate_testing::chart;

const LIMIT: u64 = 6_000;
const POLICIES: [(&str, RegionPolicy); 2] =
    [("share", RegionPolicy::Share), ("as last known", RegionPolicy::AsLastKnown)];
/// Exchange intervals in milliseconds.
const EXCHANGES: [u64; 6] = [500, 1_000, 2_000, 5_000, 10_000, 20_000];
/// Lengths of a partition in seconds. It begins 30 seconds after a window.
const PARTITIONS: [u64; 7] = [0, 10, 20, 40, 60, 120, 180];

/// A point: its place on the axis, and the excess and its bound in percent of the limit.
type Point = (f64, f64, f64);
/// What the horizontal axis shows, and the points of each policy.
type Panel<'a> = (&'a str, Vec<(&'a str, Vec<Point>)>);

fn setup(policy: RegionPolicy) -> RegionSetup {
    RegionSetup::new(Limit::fixed_window(Quota::per_minute(LIMIT)), policy, vec![50; 3])
}

#[expect(clippy::cast_precision_loss, reason = "counts are small")]
fn point(at: f64, outcome: &RegionOutcome) -> Point {
    let over = outcome.over;
    let all = [over.calm, over.cut, over.inside, over.healed];
    let percent = |units: u64| units as f64 * 100.0 / LIMIT as f64;
    let (over, bound) = (all.iter().map(|worst| worst.over).max(), all.iter().map(|worst| worst.bound).max());
    (at, percent(over.unwrap_or(0)), percent(bound.unwrap_or(0)))
}

fn main() {
    println!(
        "| policy | exchange interval, s | partition, s | over, % of the limit | at most, % | admitted, % of the offered |"
    );
    println!("|---|--:|--:|--:|--:|--:|");
    let mut violations = 0;
    let mut measure = |name: &str, setup: &RegionSetup, at: f64, partition: u64| {
        let outcome = run_regions(setup);
        violations += outcome.over.violations();
        let point = point(at, &outcome);
        println!(
            "| {name} | {:.1} | {partition} | {:.1} | {:.0} | {} |",
            setup.exchange.as_secs_f64(),
            point.1,
            point.2,
            outcome.admitted * 100 / outcome.offered.max(1)
        );
        point
    };
    let (mut by_exchange, mut by_partition) = (Vec::new(), Vec::new());
    for (name, policy) in POLICIES {
        let runs = EXCHANGES.map(|ms| {
            let exchange = Duration::from_millis(ms);
            measure(name, &RegionSetup { exchange, ..setup(policy) }, exchange.as_secs_f64(), 0)
        });
        by_exchange.push((name, runs.to_vec()));
        let runs = PARTITIONS.map(|seconds| {
            let cut = (seconds > 0).then_some((90_000, 90_000 + seconds * 1_000, Cut::All));
            #[expect(clippy::cast_precision_loss, reason = "at most some minutes")]
            let at = seconds as f64;
            measure(name, &RegionSetup { partition_ms: cut, ..setup(policy) }, at, seconds)
        });
        by_partition.push((name, runs.to_vec()));
    }
    if violations > 0 {
        eprintln!("error: {violations} bounds were exceeded");
        std::process::exit(1);
    }
    if let Some(path) = std::env::args().nth(1) {
        draw(&path, &[("exchange interval, s", by_exchange), ("length of a partition, s", by_partition)]);
    }
}

/// Draws the excess and its bound for both policies.
fn draw(path: &str, panels: &[Panel<'_>]) {
    // In the second panel, the lines of the bounds are at the upper left.
    let legends = [[0.0, 0.0], [1.0, 0.5]].map(Some);
    let panels: Vec<_> = panels
        .iter()
        .zip(legends)
        .map(|((caption, policies), legend)| {
            let points = || policies.iter().flat_map(|(_, points)| points);
            let right = points().map(|point| point.0).fold(0.0, f64::max);
            let top = points().map(|point| point.2.max(point.1)).fold(10.0, f64::max);
            let lines =
                policies.iter().zip([chart::BLUE, chart::VERMILION]).flat_map(|((name, points), colour)| {
                    let line = |what: &str, is_dashed, of: fn(&Point) -> f64| chart::Line {
                        name: format!("{what}: {name}"),
                        colour,
                        is_dashed,
                        points: points.iter().map(|point| [point.0, of(point)]).collect(),
                    };
                    [line("measured", false, |point| point.1), line("at most", true, |point| point.2)]
                });
            chart::Panel {
                caption: String::new(),
                x: chart::Axis::linear(caption, right),
                y: chart::Axis::linear("beyond the limit, % of the limit", top * 1.05),
                lines: lines.collect(),
                legend,
            }
        })
        .collect();
    let title = "Three regions share 6,000 a minute; 50 requests a second in each region";
    std::fs::write(path, chart::draw(title, 960, 480, &panels)).expect("writing");
}
