//! Tables for one question each, and targets. The benches other than `peers` share this code.

use serde_json::{Value, json};

use super::harness::{Draw, Scenario, Table};
use super::subject::{Contender, Expect, Recipe, Subject};
use super::summary::{Ratio, Summary};

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
        let (ns, ratio) = (row.ns(), table.ratio(row, table.floor));
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
            ratio.map_or_else(String::new, |Ratio { all, quiet, quiet_rounds }| {
                let Summary { q1, median, q3, .. } = all;
                format!("{median:.2} [{q1:.2}..{q3:.2}] {quiet:.2} in {quiet_rounds} quiet rounds")
            })
        );
    }
}

pub(crate) fn json_table(table: &Table) -> impl Iterator<Item = Value> {
    table.rows.iter().map(|row| {
        let (ns, ratio) = (row.ns(), table.ratio(row, table.floor));
        json!({
            "table": table.scenario, "threads": table.threads, "subject": row.name, "counts": row.counts,
            "median_ns": ns.median, "q1_ns": ns.q1, "q3_ns": ns.q3, "mops": row.mops().median,
            "against": table.floor, "ratio": ratio.map(|ratio| ratio.all.median),
            "quiet": ratio.map(|ratio| ratio.quiet), "quiet_rounds": ratio.map(|ratio| ratio.quiet_rounds), "stolen": row.delayed(),
        })
    })
}

/// A ratio with a bound. It does not change the exit code, since one noisy run proves nothing.
pub(crate) struct Target {
    pub(crate) text: String,
    pub(crate) bound: f64,
    pub(crate) ratio: Figure,
}

/// A ratio of two rows, or of two figures that were taken once.
#[derive(Copy, Clone)]
pub(crate) enum Figure {
    Rounds(Ratio),
    Once(f64),
}

impl Target {
    /// Returns the targets of the rows that were measured.
    pub(crate) fn of_tables(tables: &[Table], bounds: &[(&str, &str, &str, f64)]) -> Vec<Self> {
        let mut targets = Vec::new();
        for &(id, name, base, bound) in bounds {
            for table in tables.iter().filter(|table| table.scenario == id) {
                if let Some(ratio) = table.row(name).and_then(|row| table.ratio(row, base)) {
                    let text = format!("{id}, {} thread(s): {name} against {base}", table.threads);
                    targets.push(Self { text, bound, ratio: Figure::Rounds(ratio) });
                }
            }
        }
        targets
    }

    fn holds(&self) -> bool {
        let figure = match self.ratio {
            Figure::Rounds(ratio) => ratio.decisive(),
            Figure::Once(ratio) => ratio,
        };
        figure <= self.bound
    }

    pub(crate) fn print(&self) {
        let verdict = if self.holds() { "PASS" } else { "MISS" };
        let figure = match self.ratio {
            Figure::Rounds(Ratio { all, quiet, quiet_rounds }) => {
                format!("{:.2}, and {quiet:.2} in {quiet_rounds} quiet rounds,", all.median)
            }
            Figure::Once(ratio) => format!("{ratio:.2}"),
        };
        println!("{verdict} {}: {figure} <= {:.2}", self.text, self.bound);
    }

    pub(crate) fn json(&self) -> Value {
        let value = match self.ratio {
            Figure::Rounds(Ratio { all, quiet, quiet_rounds }) => {
                json!({"median": all.median, "quiet": quiet, "quiet_rounds": quiet_rounds})
            }
            Figure::Once(ratio) => json!({"median": ratio}),
        };
        json!({"target": self.text, "bound": self.bound, "value": value, "holds": self.holds()})
    }
}
