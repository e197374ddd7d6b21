//! Measures how often stores of bounded memory decide wrongly, for each cell of the table in the design: `cargo run
//! --release -p tollgate-soak --bin accuracy`.
//!
//! Each line is one run of two minutes of traffic. Only the second minute counts. `-- 16` uses a sixteenth of the keys, the requests and the memory. `--json FILE` before the numbers also
//! writes the results as JSON.

use tollgate_testing::accuracy::measure::{Charged, play};
use tollgate_testing::accuracy::table::cells;

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = (arguments.first().map(String::as_str) == Some("--json")).then(|| {
        arguments.remove(0);
        arguments.remove(0)
    });
    let mut cells_done = Vec::new();
    let mut numbers =
        arguments.iter().map(|number| number.parse::<u64>().expect("each argument must be a whole number"));
    let (scale, warm_up, measured) =
        (numbers.next().unwrap_or(1), numbers.next().unwrap_or(60), numbers.next().unwrap_or(60));
    println!("percent of deserving requests denied / of abusive ones admitted; design in brackets");
    for cell in cells() {
        let traffic = cell.traffic.scaled(scale);
        let bytes = (cell.mebibytes << 20) / usize::try_from(scale).expect("small");
        let limiter = cell.row.limiter(&traffic, bytes);
        let outcome = play(&traffic, &limiter, 7, warm_up, measured);
        let [admissions, conforming, deserved] =
            [Charged::Admissions, Charged::Conforming, Charged::Deserved]
                .map(|charged| outcome.honest(charged));
        println!(
            "{} {:7} {} MiB: {:8.4} / {:.5} [{} / {}]  honest {:.4}, flood {:.4}, late {:.4}; \
             admissions {:.4} / {:.4}, conforming {:.4} / {:.4}, deserved {:.4} / {:.4}; {:.0} live keys, {:.1} bytes each",
            traffic.name,
            cell.row.name(),
            cell.mebibytes,
            100.0 * outcome.denied_share(),
            100.0 * outcome.admitted_share(),
            cell.denied_percent,
            cell.admitted_percent,
            100.0 * admissions.denied_share(),
            100.0 * outcome.flood.denied_share(),
            100.0 * admissions.late_share(),
            100.0 * admissions.denied_share(),
            100.0 * admissions.admitted_share(),
            100.0 * conforming.denied_share(),
            100.0 * conforming.admitted_share(),
            100.0 * deserved.denied_share(),
            100.0 * deserved.admitted_share(),
            outcome.live,
            outcome.bytes_a_key(),
        );
        cells_done.push(serde_json::json!({
            "traffic": traffic.name, "way": cell.row.name(), "mebibytes": cell.mebibytes,
            "denied_percent": 100.0 * outcome.denied_share(),
            "admitted_percent": 100.0 * outcome.admitted_share(),
            "design_denied_percent": cell.denied_percent, "design_admitted_percent": cell.admitted_percent,
            "live_keys": outcome.live,
        }));
    }
    if let Some(path) = json {
        let report = serde_json::json!({ "scale": scale, "cells": cells_done });
        std::fs::write(&path, format!("{report:#}\n"))
            .unwrap_or_else(|error| panic!("writing {path}: {error}"));
    }
}
