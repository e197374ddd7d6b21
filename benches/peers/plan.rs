//! The plan of a run: which scenarios run, which rows they have, and how many checks and rounds they take.

use std::net::IpAddr;

use crate::charts::LeftOut;
use crate::flood::{self, Flood};
use crate::harness::{Draw, Scenario, Table};
use crate::keys::Key;
use crate::memory::{self, Footprint};
use crate::subject::{Expect, Recipe};
use crate::support::option;
use crate::targets::Measured;
use crate::theirs::forget::{self, Forgetful};
use crate::{compact, floor, ours, report, rivals, sketch, theirs};

/// Returns whether a name matches `texts`, a list with commas. A text matches each name that contains the text. `=text`
/// matches only the name `text`. `!text` matches each name that does not contain the text. All texts with `!` must
/// match. If the list has texts without `!`, at least one of these must match too.
fn matches(name: &str, texts: &str) -> bool {
    let (excluded, wanted): (Vec<&str>, Vec<&str>) = texts.split(',').partition(|text| text.starts_with('!'));
    let is_wanted =
        |text: &&str| text.strip_prefix('=').map_or_else(|| name.contains(*text), |whole| name == whole);
    excluded.iter().all(|text| !name.contains(&text[1..]))
        && (wanted.is_empty() || wanted.iter().any(is_wanted))
}

/// Returns whether `--scenario` selects this scenario. Without the option, all are selected.
fn wanted(id: &str) -> bool {
    option("--scenario").is_none_or(|text| matches(id, &text))
}

/// Returns the recipes that `--subject` selects. Without the option, all are selected.
pub(crate) fn chosen<K: Key>(groups: impl IntoIterator<Item = Vec<Recipe<K>>>) -> Vec<Recipe<K>> {
    let wanted = option("--subject");
    let keep = |name: &str| wanted.as_deref().is_none_or(|text| matches(name, text));
    groups.into_iter().flatten().filter(|recipe| keep(recipe.name)).collect()
}

fn keyed() -> Vec<Recipe<u64>> {
    chosen([floor::keyed(), compact::keyed(), ours::keyed(), rivals::keyed()])
}

/// Returns the rows of `keyed`, and the rows that make sense only with many keys.
pub(crate) fn many() -> Vec<Recipe<u64>> {
    chosen([floor::keyed(), compact::keyed(), compact::tight_rows(), ours::keyed(), rivals::keyed()])
}

/// Adds the rows of the sketch, which count windows.
fn with_sketch(mut rows: Vec<Recipe<u64>>) -> Vec<Recipe<u64>> {
    rows.extend(chosen([sketch::keyed()]));
    rows
}

fn strings() -> Vec<Recipe<String>> {
    chosen([floor::strings(), compact::strings(), ours::strings(), rivals::strings()])
}

fn addresses() -> Vec<Recipe<IpAddr>> {
    chosen([floor::addresses(), compact::addresses(), ours::addresses(), rivals::addresses()])
}

pub(crate) fn one_word() -> Vec<Recipe<u64>> {
    chosen([floor::one_word(), ours::one_word(), rivals::one_word()])
}

/// Returns one row for each use of memory. Rows that differ only in their clock or call are left out.
fn by_memory() -> Vec<Recipe<u64>> {
    let mut rows = many();
    rows.retain(|recipe| recipe.name == compact::TIGHT || !recipe.name.contains(','));
    rows
}

fn strings_by_memory() -> Vec<Recipe<String>> {
    let mut rows = strings();
    rows.retain(|recipe| !recipe.name.contains(','));
    rows
}

/// If this process is a child that measures memory, answers the parent and returns true.
pub(crate) fn answer_parent() -> bool {
    memory::answer_parent(&by_memory())
        || memory::answer_parent(&strings_by_memory())
        || memory::answer_parent(&theirs::recipes())
}

/// The options of a run, which decide how much it measures.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Plan {
    /// Runs every row briefly, only to show that it works.
    pub(crate) smoke: bool,
    /// Takes fewer checks and rounds.
    pub(crate) quick: bool,
    /// Also runs the scenarios with 10 M and 100 M keys.
    pub(crate) large: bool,
    /// Also measures the data of the charts.
    pub(crate) charts: bool,
    /// A load has the other core, so each scenario has one thread.
    pub(crate) beside: bool,
}

/// The scenarios whose figures have targets.
const BOUNDED: [&str; 10] = [
    "hot",
    "hot-denied",
    "word",
    "word-denied",
    "strings-1m",
    "100k",
    "1m",
    "10m",
    "first-sight",
    "first-sight-idle",
];

/// Returns a scenario for keyed limiters, with one and two threads. Its ratios refer to the floor and to governor with
/// ahash.
pub(crate) fn scenario(id: &'static str, title: &'static str, population: u64, expect: Expect) -> Scenario {
    Scenario {
        id,
        title,
        population,
        draw: Draw::Known,
        expect,
        threads: &[1, 2],
        // A turn takes 5 to 100 ms. Most turns are short enough to meet no interruption and long enough for the
        // stopwatch.
        checks: if population > 10_000 { 1_000_000 } else { 500_000 },
        rounds: if population > 10_000 { 9 } else { 21 },
        floor: floor::FLOOR,
        governor: rivals::GOVERNOR,
    }
}

impl Plan {
    pub(crate) fn run(self) -> Measured {
        let mut footprints = if wanted("memory") && !self.smoke { self.footprints() } else { Vec::new() };
        if wanted("theirs-bytes") && !self.smoke {
            footprints.extend(memory::measure(&theirs::recipes(), &[100_000, 1_000_000]));
        }
        report::print_footprints(&footprints);
        let mut tables = Vec::new();
        self.pieces(&mut tables);
        self.known_keys(&mut tables);
        self.new_keys(&mut tables);
        self.theirs(&mut tables);
        let mut left_out = Vec::new();
        if self.charts {
            self.for_charts(&mut tables, &mut left_out);
        }
        let flood = if wanted("flood") { self.flood() } else { None };
        flood.iter().for_each(report::print_flood);
        let forgetful = if wanted("theirs-full") { self.forgetful() } else { Vec::new() };
        report::print_forgetful(&forgetful);
        left_out.iter().for_each(LeftOut::print);
        Measured { tables, footprints, flood, forgetful, left_out }
    }

    /// Returns whether the run needs only the scenarios that have targets.
    fn brief(self) -> bool {
        self.quick && !self.charts
    }

    pub(crate) fn scenario<K: Key>(
        self,
        tables: &mut Vec<Table>,
        mut scenario: Scenario,
        recipes: &[Recipe<K>],
    ) {
        if !wanted(scenario.id) || recipes.is_empty() {
            return;
        }
        let started = crate::support::stopwatch();
        if self.beside {
            scenario.threads = &[1];
        }
        if self.quick {
            scenario.checks /= 4;
            scenario.rounds = scenario.rounds.min(7);
        }
        if self.smoke || (self.brief() && !BOUNDED.contains(&scenario.id)) {
            scenario.checks /= 50;
            scenario.rounds = 1;
            scenario.population = scenario.population.min(10_000);
            if let Draw::NewAfter(others) = &mut scenario.draw {
                *others = 10_000;
            }
        }
        scenario.run(recipes, &mut |table| {
            report::print_table(&table);
            tables.push(table);
        });
        println!("({:.1} s)", started.elapsed().as_secs_f64());
    }

    fn footprints(self) -> Vec<Footprint> {
        if self.brief() {
            let mut rows = by_memory();
            rows.retain(|recipe| [compact::TIGHT, rivals::GOVERNOR].contains(&recipe.name));
            return memory::measure(&rows, &[1_000_000]);
        }
        // Most hash tables double their size between these two populations. At other populations, the memory per key is
        // between these two results.
        let populations: &[u64] = if self.quick { &[1_000_000] } else { &[900_000, 1_000_000] };
        let mut footprints = memory::measure(&by_memory(), populations);
        footprints.extend(memory::measure(&strings_by_memory(), populations));
        if self.large {
            footprints.extend(memory::measure(&by_memory(), &[10_000_000]));
        }
        footprints
    }

    fn pieces(self, tables: &mut Vec<Table>) {
        let mut pieces = scenario("pieces", "Pieces of a check", 1_000, Expect::Allowed);
        pieces.rounds = 7;
        self.scenario(tables, pieces, &chosen([floor::pieces()]));
        let mut pieces = scenario("pieces-strings", "Pieces of a check on strings", 1_000, Expect::Allowed);
        (pieces.rounds, pieces.threads) = (7, &[1]);
        self.scenario(tables, pieces, &chosen([floor::string_pieces()]));
    }

    fn known_keys(self, tables: &mut Vec<Table>) {
        use Expect::{Allowed, AllowedIdle, AllowedWord, Denied};
        const HOT: u64 = 1_000;
        const MANY: u64 = 1_000_000;
        let hot = |id, title, expect| scenario(id, title, HOT, expect);
        let many_keys = |id, title, expect| scenario(id, title, MANY, expect);
        let word = |id, title, expect| Scenario {
            population: 1,
            governor: rivals::GOVERNOR_DIRECT,
            ..hot(id, title, expect)
        };
        let mut rows = with_sketch(keyed());
        rows.extend(chosen([floor::counter(), compact::half_full()]));
        self.scenario(tables, hot("hot", "Allowed, 1,000 keys", Allowed), &rows);
        let denied = hot("hot-denied", "Denied, 1,000 keys", Denied);
        self.scenario(tables, denied, &with_sketch(keyed()));
        self.scenario(tables, word("word", "Allowed, one word hit by all threads", AllowedWord), &one_word());
        self.scenario(
            tables,
            word("word-denied", "Denied, one word read by all threads", Denied),
            &one_word(),
        );
        let title = "Allowed, 100,000 keys";
        self.scenario(tables, scenario("100k", title, 100_000, Allowed), &keyed());
        let strings_hot = hot("strings-hot", "Allowed, 1,000 string keys of 24 bytes", Allowed);
        self.scenario(tables, strings_hot, &strings());
        let title = "Allowed, 1,000 IP addresses of both kinds";
        self.scenario(tables, hot("ip-hot", title, Allowed), &addresses());
        self.scenario(tables, many_keys("1m", "Allowed, 1 M keys", Allowed), &with_sketch(many()));
        let title = "Allowed, 1,000 keys, each idle again before it comes back";
        self.scenario(tables, hot("idle-hot", title, AllowedIdle), &keyed());
        let title = "Allowed, 1 M keys, each idle again before it comes back";
        self.scenario(tables, many_keys("idle-1m", title, AllowedIdle), &keyed());
        let denied = many_keys("1m-denied", "Denied, 1 M keys", Denied);
        self.scenario(tables, denied, &with_sketch(keyed()));
        let mut strings_many = many_keys("strings-1m", "Allowed, 1 M string keys of 24 bytes", Allowed);
        let mut rows = strings();
        if self.brief() {
            (strings_many.threads, strings_many.rounds) = (&[1], 5);
            rows.retain(|recipe| [floor::FLOOR, compact::COMPACT, rivals::GOVERNOR].contains(&recipe.name));
        }
        self.scenario(tables, strings_many, &rows);
        let title = "Allowed, 1 M IP addresses of both kinds";
        self.scenario(tables, many_keys("ip-1m", title, Allowed), &addresses());
        if self.large {
            self.scenario(tables, scenario("10m", "Allowed, 10 M keys", 10_000_000, Allowed), &many());
            let rows = chosen([floor::alone(), compact::huge()]);
            self.scenario(tables, scenario("100m", "Allowed, 100 M keys", 100_000_000, Allowed), &rows);
        }
    }

    fn new_keys(self, tables: &mut Vec<Table>) {
        let new = |id, title, population, expect, draw| Scenario {
            draw,
            checks: 250_000,
            rounds: 9,
            ..scenario(id, title, population, expect)
        };
        // The stores have room for the keys of two threads in one turn. Growth, allocation and fresh pages are part of
        // the time.
        let rows = chosen([floor::alone(), compact::new_keys(), ours::alone(), rivals::keyed()]);
        let title = "First sight: each key new, in a store built for the turn, with room";
        self.scenario(tables, new("first-sight", title, 500_000, Expect::Allowed, Draw::New), &rows);

        // After this many other keys, nearly all slots hold an idle key.
        let rows = chosen([floor::alone(), compact::new_keys(), ours::alone(), rivals::alone()]);
        let title = "First sight: each key new, in a store of keys that are idle again";
        let draw = Draw::NewAfter(2_000_000);
        self.scenario(tables, new("first-sight-idle", title, 100_000, Expect::AllowedIdle, draw), &rows);

        let rows = chosen([floor::alone(), compact::eviction(), ours::capped()]);
        let title = "Eviction: each key new, in a full store of 65,536 keys that owe";
        let draw = Draw::NewAfter(200_000);
        self.scenario(tables, new("eviction", title, 1 << 16, Expect::Allowed, draw), &rows);
    }

    fn forgetful(self) -> Vec<Forgetful> {
        forget::measure(match (self.smoke, self.quick) {
            (true, _) => forget::Length { cap: 1_024, floods: 1 },
            (false, true) => forget::Length { cap: 1 << 14, floods: 20 },
            // The cap of the DNS server. The validator's is 100,000.
            (false, false) => forget::Length { cap: 1 << 16, floods: 20 },
        })
    }

    fn flood(self) -> Option<Flood> {
        let wanted = option("--subject");
        let mut victims = flood::clock_alone();
        victims.extend(compact::victims());
        victims.extend(ours::victims());
        victims.extend(rivals::victims());
        victims.retain(|victim| wanted.as_deref().is_none_or(|text| matches(victim.name, text)));
        let length = match (self.smoke, self.quick) {
            (true, _) => flood::Length { rounds: 1, turn_ms: 10, unique_before: 10_000 },
            // A turn of half a second has 50 checks above its p99.9. With 21 pairs, the confidence interval reaches
            // from the 6th to the 16th of the sorted ratios.
            (false, true) => flood::Length { rounds: 6, turn_ms: 250, unique_before: flood::FULL },
            (false, false) => flood::Length { rounds: 21, turn_ms: 500, unique_before: flood::FULL },
        };
        flood::measure(&victims, length)
    }
}
