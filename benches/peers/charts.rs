//! Additional measurements for the charts: powers of ten of keys, more threads, and shares of denials.

use serde_json::{Value, json};

use crate::harness::{Scenario, Table};
use crate::plan::{Plan, chosen, many, one_word, scenario};
use crate::subject::{Expect, Recipe};
use crate::summary::float;
use crate::{compact, floor, ours, report, rivals};

/// The subjects that the charts show: one for each kind of limiter, without variants of clock or batch.
const COMPARED: [&str; 9] = [
    floor::FLOOR,
    compact::COMPACT,
    compact::BATCHES,
    ours::KEYED,
    rivals::GOVERNOR,
    "governor",
    "quota",
    "rate-net",
    rivals::PINGORA,
];

/// The maximum memory of a subject. Rows that need more are left out.
const MOST_BYTES: u64 = 10 << 30;

/// A row that was left out because the machine has too little memory.
pub(crate) struct LeftOut {
    scenario: &'static str,
    subject: &'static str,
    gigabytes: f64,
}

impl LeftOut {
    pub(crate) fn print(&self) {
        println!("({}, {}: left out, needs about {:.0} GB)", self.scenario, self.subject, self.gigabytes);
    }

    pub(crate) fn json(&self) -> Value {
        json!({"scenario": self.scenario, "subject": self.subject, "gigabytes": self.gigabytes})
    }
}

fn compared() -> Vec<Recipe<u64>> {
    let mut rows = many();
    rows.retain(|recipe| COMPARED.contains(&recipe.name));
    rows
}

/// Returns the bytes per key at 10 M keys and more, from the resident memory of a run, rounded up.
fn bytes_a_key(subject: &str) -> u64 {
    match subject {
        floor::FLOOR => 14,
        compact::COMPACT | compact::BATCHES => 64,
        ours::KEYED => 155,
        "rate-net" => 160,
        rivals::PINGORA => 0,
        _ => 45,
    }
}

impl Plan {
    /// A scenario of ten million keys or more.
    fn huge(self, id: &'static str, title: &'static str, population: u64) -> (Scenario, Vec<Recipe<u64>>) {
        let mut huge = scenario(id, title, population, Expect::Allowed);
        huge.threads = &[1];
        let mut rows = compared();
        if population > 10_000_000 {
            rows.retain(|recipe| !recipe.name.starts_with("tollgate compact"));
            let small = chosen([compact::huge()]);
            let after_floor = rows.len().min(1);
            rows.splice(after_floor..after_floor, small);
        }
        (huge, rows)
    }

    /// Removes the rows for which there is too little memory, the last rows first.
    fn fit(scenario: &Scenario, rows: &mut Vec<Recipe<u64>>, left_out: &mut Vec<LeftOut>) {
        let room = report::memory_bytes("MemAvailable:") / 8 * 7;
        let mut taken = 0;
        rows.retain(|recipe| {
            let in_few_bytes =
                scenario.population > 10_000_000 && recipe.name.starts_with("tollgate compact");
            let bytes = scenario.population * if in_few_bytes { 24 } else { bytes_a_key(recipe.name) };
            let fits = bytes <= MOST_BYTES && taken + bytes <= room;
            if fits {
                taken += bytes;
            } else {
                let gigabytes = float(bytes) / 1e9;
                left_out.push(LeftOut { scenario: scenario.id, subject: recipe.name, gigabytes });
            }
            fits
        });
    }

    pub(crate) fn for_charts(self, tables: &mut Vec<Table>, left_out: &mut Vec<LeftOut>) {
        let one = |id, title, population, expect| Scenario {
            threads: &[1],
            rounds: 9,
            ..scenario(id, title, population, expect)
        };
        let rows = compared();
        self.scenario(tables, one("10k", "Allowed, 10,000 keys", 10_000, Expect::Allowed), &rows);
        if !self.large && !self.smoke {
            let (huge, mut rows) = self.huge("10m", "Allowed, 10 M keys", 10_000_000);
            Self::fit(&huge, &mut rows, left_out);
            self.scenario(tables, huge, &rows);
        }
        if !self.large && !self.smoke {
            let (mut huge, mut rows) = self.huge("100m", "Allowed, 100 M keys", 100_000_000);
            huge.rounds = 5;
            Self::fit(&huge, &mut rows, left_out);
            self.scenario(tables, huge, &rows);
        }
        self.threads(tables);
        self.denials(tables);
    }

    /// With more threads than processors, threads take turns. The chart's text notes that.
    fn threads(self, tables: &mut Vec<Table>) {
        const THREADS: &[usize] = &[1, 2, 4, 8];
        let by_threads = |id, title, population, expect, governor| Scenario {
            threads: THREADS,
            checks: 250_000,
            rounds: 7,
            governor,
            ..scenario(id, title, population, expect)
        };
        let title = "Allowed, 1,000 keys, by threads";
        let keys = by_threads("threads", title, 1_000, Expect::Allowed, rivals::GOVERNOR);
        self.scenario(tables, keys, &compared());
        let title = "Allowed, one word hit by all threads, by threads";
        let word = by_threads("threads-word", title, 1, Expect::AllowedWord, rivals::GOVERNOR_DIRECT);
        let mut rows = one_word();
        rows.retain(|recipe| !recipe.name.contains(", one key"));
        self.scenario(tables, word, &rows);
    }

    fn denials(self, tables: &mut Vec<Table>) {
        let mut rows = compared();
        // pingora-limits is left out: it counts requests that it would deny, so a denial saves nothing. And with a
        // thousand keys, some keys share counters.
        rows.retain(|recipe| recipe.name != rivals::PINGORA);
        for (id, title, percent) in [
            ("denials-0", "1,000 keys, none denied", 0),
            ("denials-25", "1,000 keys, a quarter denied", 25),
            ("denials-50", "1,000 keys, half denied", 50),
            ("denials-75", "1,000 keys, three quarters denied", 75),
            ("denials-100", "1,000 keys, all denied", 100),
        ] {
            let mut denials = scenario(id, title, 1_000, Expect::Denying(percent));
            (denials.threads, denials.checks, denials.rounds) = (&[1], 200_000, 9);
            self.scenario(tables, denials, &rows);
        }
    }
}
