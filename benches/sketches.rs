//! What does counting in a sketch cost, next to the peers?

#[path = "peers/harness.rs"]
#[allow(dead_code)]
mod harness;
#[path = "peers/keys.rs"]
#[allow(dead_code)]
mod keys;
#[path = "sketches/rates.rs"]
mod rates;
#[path = "peers/subject.rs"]
#[allow(dead_code)]
mod subject;
#[path = "peers/summary.rs"]
mod summary;
mod support;
#[path = "peers/turn.rs"]
mod turn;

use harness::{Draw, Scenario, Table};
use subject::Expect;

fn main() {
    let smoke = !support::has("--bench");
    let quick = smoke || support::has("--quick");
    for (id, population) in [("hot", 1_000), ("1m", 1_000_000)] {
        if support::option("--scenario").is_some_and(|only| only != id) { continue; }
        let scenario = Scenario {
            id,
            title: id,
            population,
            draw: Draw::Known,
            expect: Expect::Allowed,
            threads: &[1, 2],
            checks: if quick { 200_000 } else { 1_000_000 },
            rounds: if quick { 7 } else { 15 },
            floor: rates::OURS,
            governor: rates::PINGORA,
        };
        let mut recipes = rates::recipes();
        if let Some(only) = support::option("--subject") { recipes.retain(|r| r.name.contains(&only)); }
        scenario.run(&recipes, &mut |table: Table| {
            println!("{} {} threads", table.title, table.threads);
            for row in &table.rows {
                let base = table.row(rates::PINGORA).unwrap_or(row);
                let ns = row.ns();
                let ratio = row.ratio(base);
                println!("  {:<28} {:>7.1} [{:.1}..{:.1}] ratio to pingora {:.2} [{:.2}..{:.2}]  delayed {:.3}", row.name, ns.median, ns.q1, ns.q3, ratio.median, ratio.q1, ratio.q3, row.delayed());
            }
        });
    }
}
