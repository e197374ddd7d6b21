//! Tables for one question each, and targets. The benches other than `peers` share this code.

use serde_json::{Value, json};

use super::harness::{Draw, Scenario, Table};
use super::subject::{Contender, Expect, Recipe, Subject};

/// One call on a key. The call must return `true`.
struct Call<F>(F);

impl<F: Fn(&u64) -> bool + Sync> Subject<u64> for Call<F> {
    #[inline(always)]
    fn check(&self, key: &u64) -> bool {
        (self.0)(key)
    }
}

pub(crate) fn call(operation: impl Fn(&u64) -> bool + Sync + 'static) -> Box<dyn Contender<u64>> {
    Box::new(Call(operation))
}

/// A table: its rows, and the row that ratios refer to.
pub(crate) struct Scene {
    pub(crate) scenario: Scenario,
    pub(crate) recipes: Vec<Recipe<u64>>,
}

impl Scene {
    pub(crate) fn known(
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

    pub(crate) fn new_keys(
        id: &'static str,
        title: &'static str,
        population: u64,
        base: &'static str,
        recipes: Vec<Recipe<u64>>,
    ) -> Self {
        let mut scene = Self::known(id, title, population, base, recipes);
        scene.scenario.draw = Draw::New;
        // Together, two threads insert as many keys as the store has room for.
        scene.scenario.checks = population / 2;
        scene
    }

    pub(crate) fn run(mut self, smoke: bool, quick: bool, tables: &mut Vec<Table>) {
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
        println!("(a modified cache line goes from core to core in {:.0} ns)", ns.median);
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

pub(crate) fn json_table(table: &Table) -> impl Iterator<Item = Value> {
    table.rows.iter().map(|row| {
        let (ns, ratio) = (row.ns(), table.row(table.floor).map(|base| row.ratio(base).median));
        json!({
            "table": table.scenario, "threads": table.threads, "subject": row.name, "counts": row.counts,
            "median_ns": ns.median, "q1_ns": ns.q1, "q3_ns": ns.q3, "mops": row.mops().median,
            "against": table.floor, "ratio": ratio, "stolen": row.delayed(),
        })
    })
}

/// A ratio with a bound. It does not change the exit code, since one noisy run proves nothing.
pub(crate) struct Target {
    pub(crate) text: String,
    pub(crate) bound: f64,
    pub(crate) ratio: f64,
}

impl Target {
    pub(crate) fn print(&self) {
        let verdict = if self.ratio <= self.bound { "PASS" } else { "MISS" };
        println!("{verdict} {}: {:.2} <= {:.2}", self.text, self.ratio, self.bound);
    }

    pub(crate) fn json(&self) -> Value {
        let holds = self.ratio <= self.bound;
        json!({"target": self.text, "bound": self.bound, "value": {"median": self.ratio}, "holds": holds})
    }
}
