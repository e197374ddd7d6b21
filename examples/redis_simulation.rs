//! What the modes that decide in the process admit, measured in virtual time against what their texts say:
//! `cargo run --release --features redis --example redis_simulation`.
//!
//! N processes with the real books share 10,000 units in 10 seconds (by GCRA 1,000 a second and 2,000 at once), and are asked for three
//! times as many, for 30 seconds. `--features redis,cli -- chart.svg` draws it too.

use std::time::Duration;

use tollgate::Quota;
use tollgate::redis::Limit;
use tollgate::redis::simulation::{Faults, Mode, Network, Outcome, Pattern, Setup, run};

const LIMIT: u64 = 10_000;
const SECONDS: u64 = 30;
const NODES: [u32; 4] = [1, 10, 100, 1_000];
const NETWORKS: [Network; 2] = [Network::Lan, Network::Regions];

fn limits() -> [(&'static str, Limit); 2] {
    let quota = Quota::new(LIMIT, Duration::from_secs(10));
    [("window", Limit::fixed_window(quota)), ("GCRA", Limit::gcra(quota.burst(2_000)))]
}

fn setup(mode: Mode, limit: Limit, nodes: u32, pattern: Pattern, network: Network) -> Setup {
    Setup {
        mode,
        limit,
        nodes,
        pattern,
        per_second: 3_000,
        seconds: SECONDS,
        interval: Duration::from_secs(1),
        network,
        faults: Faults::default(),
        seed: 1,
    }
}

/// Of the units that there were.
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
        percent(outcome.refused_with_room, outcome.offered),
        percent(outcome.waited, outcome.offered),
        outcome.waited_us as f64 / 1e3 / outcome.waited.max(1) as f64,
        outcome.calls as f64 / outcome.seconds as f64,
    );
}

fn main() {
    println!(
        "| mode | limit | way | requests | N | over, % of the limit | at most | left at the end, % | stranded, % | at most | refused with room, % | waited, % | ms | calls/s |"
    );
    println!("|---|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let mut windows = Vec::new();
    let mut exceeded = 0;
    for mode in Mode::ALL {
        for (name, limit) in limits() {
            for network in NETWORKS {
                for pattern in Pattern::ALL {
                    for nodes in NODES {
                        let setup = setup(mode, limit, nodes, pattern, network);
                        let outcome = run(&setup);
                        line(name, &setup, &outcome);
                        exceeded += u64::from(outcome.over > outcome.bound);
                        if name == "window" {
                            windows.push((setup, outcome));
                        }
                    }
                }
            }
        }
    }
    if exceeded > 0 {
        eprintln!("{exceeded} bounds were exceeded");
        std::process::exit(1);
    }
    if let Some(path) = std::env::args().nth(1) {
        draw(&path, &windows);
    }
}

#[cfg(not(feature = "cli"))]
fn draw(path: &str, _windows: &[(Setup, Outcome)]) {
    eprintln!("{path}: drawing needs --features redis,cli");
    std::process::exit(2);
}

/// Write-back's surplus by the number of processes; both axes logarithmic, a panel for each network.
#[cfg(feature = "cli")]
fn draw(path: &str, windows: &[(Setup, Outcome)]) {
    use plotters::prelude::*;
    use plotters::style::register_font;

    // Text is measured with a font that comes with the program, so a machine needs none.
    let _ = register_font("sans-serif", FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT);
    // Of the Okabe-Ito set: told apart by every kind of colour vision.
    let colours = [
        RGBColor(0x00, 0x72, 0xB2),
        RGBColor(0xD5, 0x5E, 0x00),
        RGBColor(0x00, 0x9E, 0x73),
        RGBColor(0xCC, 0x79, 0xA7),
    ];
    // Less than this is drawn at it: nothing, on a logarithmic axis.
    let least = 0.01;
    let root = SVGBackend::new(path, (860, 460)).into_drawing_area();
    root.fill(&WHITE).expect("drawing");
    let title = "Write-back: admitted beyond a limit of 10,000 in 10 s, offered three times as much";
    let root = root.titled(title, ("sans-serif", 17)).expect("a title");
    let panels = root.split_evenly((1, NETWORKS.len()));
    for (panel, network) in panels.iter().zip(NETWORKS) {
        let mut chart = ChartBuilder::on(panel)
            .margin(12)
            .caption(format!("{} to the server", network.name()), ("sans-serif", 15))
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(
                (1.0..1_000.0_f64).log_scale().with_key_points(vec![1.0, 10.0, 100.0, 1_000.0]),
                (least..200_000.0_f64).log_scale(),
            )
            .expect("a chart");
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc("processes")
            .y_desc("% of the limit")
            .x_label_formatter(&|nodes| format!("{nodes}"))
            .y_label_formatter(&|percent| format!("{percent}"))
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 14))
            .draw()
            .expect("axes");
        // What it would be without a cap, and what it is at most.
        let uncapped: Vec<(f64, f64)> =
            [2.0, 10.0, 100.0, 1_000.0].map(|nodes| (nodes, 100.0 * (nodes - 1.0))).into();
        let grey = RGBColor(0x99, 0x99, 0x99);
        chart
            .draw_series(DashedLineSeries::new(uncapped, 3, 4, grey.stroke_width(2)))
            .expect("a line")
            .label("no cap: (N - 1) limits")
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], grey.stroke_width(1)));
        let of = |pattern: Pattern, value: fn(&Outcome) -> u64| -> Vec<(f64, f64)> {
            let cells = windows.iter().filter(|(setup, _)| {
                (setup.mode, setup.network, setup.pattern) == (Mode::WriteBack, network, pattern)
            });
            cells
                .map(|(setup, outcome)| {
                    (f64::from(setup.nodes), percent(value(outcome), setup.limit.most()).max(least))
                })
                .collect()
        };
        let bound: Vec<_> =
            of(Pattern::Even, |outcome| outcome.bound).into_iter().filter(|point| point.0 > 1.0).collect();
        chart
            .draw_series(LineSeries::new(bound, BLACK.stroke_width(2)))
            .expect("a line")
            .label("bound, whatever the traffic")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], BLACK.stroke_width(2)));
        for (pattern, colour) in Pattern::ALL.into_iter().zip(colours) {
            let points = of(pattern, |outcome| outcome.over);
            chart
                .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))
                .expect("a line")
                .label(format!("measured: {}", pattern.name()))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
            chart
                .draw_series(points.into_iter().map(|point| Circle::new(point, 4, colour.filled())))
                .expect("points");
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE)
            .border_style(RGBColor(0xDD, 0xDD, 0xDD))
            .label_font(("sans-serif", 13))
            .draw()
            .expect("a legend");
    }
    root.present().expect("writing");
}
