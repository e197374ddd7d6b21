//! How long does it take to find the rules of a request, with ten rules and with a thousand?
//!
//! ```text
//! cargo bench --features rules --bench rules                 the table
//! cargo bench --features rules --bench rules -- --quick      fewer, shorter rounds
//! cargo bench --features rules --bench rules -- --json FILE  and the same as JSON
//! cargo bench --features rules --bench rules -- --many       only the first part, about ten thousand rules
//! ```
//! * **ns** is wall time / matches on one thread: the median over rounds, in which the sizes take turns. A ratio is the
//!   median of the ratios of all rounds, and then that of the quiet rounds: those in which the subject that is compared
//!   with is within 10 % of its own minimum.
//! * The requests use all rules of the file in random order. The 1,024 requests are built beforehand, and each has its
//!   own texts.
//! * exact: one key with many values. bare: many keys without values. prefix: many patterns `/v1/…*` of one key.
//!   suffix: patterns `*….ext`. middle: patterns `/v1/…*/edit` with the same ending. nested: ten values on the first
//!   level, and a part of the exact values below each. literal: patterns `*/…/*`, found by one automaton over the texts
//!   that they contain.
//! * The second table measures whole checks (matching, deciding and counting) and compares them with the limiter alone.
//! * Before these tables, the bench measures the start, the reloads and the resident memory of ten thousand rules. These
//!   figures are of one run. On Linux the memory is `VmRSS`, without what the process had before.
//! * One more part finds addresses in 100,000 ranges.
//! * Known bias: a tight loop keeps in the caches as much of the tree as fits.

#[path = "peers/summary.rs"]
#[allow(dead_code, reason = "made for peers.rs")]
mod summary;
mod support;

#[path = "rules/addresses.rs"]
mod addresses;
#[path = "rules/checks.rs"]
mod checks;
#[path = "rules/many.rs"]
mod many;

use std::fmt::Write as _;

use serde_json::{Value, json};
use summary::{Ratio, Summary, float};
use support::{XorShift, count, has, length, option, stopwatch};
use tollgate_rules::{Config, Domain};

const SIZES: [u64; 2] = [10, 1_000];
const REQUESTS: u64 = 1_024;
const KINDS: [(&str, Kind); 7] = [
    ("exact", |n, _| {
        (vec![("path", Some(format!("/v1/items/{n:06}")))], vec![text("path", format!("/v1/items/{n:06}"))])
    }),
    ("bare", |n, _| {
        (vec![(leak(format!("key-{n:06}")), None)], vec![text(&format!("key-{n:06}"), "x".to_owned())])
    }),
    ("prefix", |n, _| {
        (
            vec![("path", Some(format!("/v1/items/{n:06}*")))],
            vec![text("path", format!("/v1/items/{n:06}/edit"))],
        )
    }),
    ("suffix", |n, _| {
        (vec![("path", Some(format!("*/{n:06}.png")))], vec![text("path", format!("/static/{n:06}.png"))])
    }),
    ("middle", |n, _| {
        (vec![("path", Some(format!("/v1/{n:06}*/edit")))], vec![text("path", format!("/v1/{n:06}/a/edit"))])
    }),
    ("nested", |n, size| {
        let (outer, inner) = (n / (size / 10), n % (size / 10));
        let rule =
            vec![("tenant", Some(format!("t{outer}"))), ("path", Some(format!("/v1/items/{inner:06}")))];
        (rule, vec![text("tenant", format!("t{outer}")), text("path", format!("/v1/items/{inner:06}"))])
    }),
    ("literal", |n, _| {
        (vec![("path", Some(format!("*/{n:06}/*")))], vec![text("path", format!("/static/{n:06}/x"))])
    }),
];

type Rule = Vec<(&'static str, Option<String>)>;
type Request = Vec<(String, String)>;
/// Returns the rule with this number, and a request that it limits.
type Kind = fn(u64, u64) -> (Rule, Request);

fn text(key: &str, value: String) -> (String, String) {
    (key.to_owned(), value)
}

/// Keys in a bench may live until the process ends.
fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

struct Subject {
    domain: Domain,
    requests: Vec<Request>,
}

impl Subject {
    fn new(kind: Kind, size: u64) -> Self {
        let mut yaml = "domain: bench\ndescriptors:\n".to_owned();
        let mut outer = String::new();
        for n in 0..size {
            let (rule, _) = kind(n, size);
            for (level, (key, value)) in rule.iter().enumerate() {
                let (indent, last) = (" ".repeat(2 + 4 * level), level + 1 == rule.len());
                let head = format!("{indent}- key: {key}\n");
                let value =
                    value.as_ref().map_or(String::new(), |value| format!("{indent}  value: \"{value}\"\n"));
                if last {
                    let limit = format!("{indent}  rate_limit: {{ unit: second, requests_per_unit: 10 }}\n");
                    write!(yaml, "{head}{value}{limit}").expect("writing to a String never fails");
                } else if outer != value {
                    writeln!(yaml, "{head}{value}{indent}  descriptors:")
                        .expect("writing to a String never fails");
                    outer = value;
                }
            }
        }
        let config = Config::from_yaml("bench.yaml", &yaml).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(count(config.rules().len()), size);
        let domain = Domain::merge([config], false).expect("one file cannot clash with itself").remove(0);
        let mut random = XorShift::new(7);
        let requests = (0..REQUESTS).map(|_| kind(random.below(size), size).1).collect();
        Self { domain, requests }
    }

    /// Returns the nanoseconds per match.
    fn run(&self, matches: u64) -> f64 {
        let requests: Vec<Vec<(&str, &str)>> = self
            .requests
            .iter()
            .map(|request| request.iter().map(|(key, value)| (&**key, &**value)).collect())
            .collect();
        let start = stopwatch();
        let mut found = 0;
        for request in requests.iter().cycle().take(length(matches)) {
            found += std::hint::black_box(self.domain.matching(std::hint::black_box(request), None)).len();
        }
        let ns = start.elapsed().as_nanos();
        assert_eq!(count(found), matches, "each request matches one rule");
        float(u64::try_from(ns).expect("a round is short")) / float(matches)
    }
}

fn main() {
    let many = many::run();
    if has("--many") {
        return;
    }
    let (rounds, matches) = if has("--quick") { (5, 20_000) } else { (31, 200_000) };
    println!(
        "{:<8} {:>9} {:>9} {:>7} {:>7} {:>6}   ns per match, one thread",
        "kind", "10 rules", "1,000", "ratio", "quiet", "rounds"
    );
    let mut rows: Vec<Value> = Vec::new();
    for (name, kind) in KINDS {
        let [few, many] = SIZES.map(|size| Subject::new(kind, size));
        let (few, many): (Vec<f64>, Vec<f64>) =
            (0..rounds).map(|_| (few.run(matches), many.run(matches))).unzip();
        let Ratio { all, quiet, quiet_rounds } = Ratio::of(&many, &few, &few);
        let (few, many) = (Summary::of(few).median, Summary::of(many).median);
        println!("{name:<8} {few:>9.1} {many:>9.1} {:>7.2} {quiet:>7.2} {quiet_rounds:>6}", all.median);
        rows.push(json!({
            "kind": name, "few_ns": few, "many_ns": many, "ratio": all.median, "quiet": quiet,
            "quiet_rounds": quiet_rounds,
        }));
    }
    let addresses = addresses::run(rounds, matches);
    let checks = checks::run(rounds, matches);
    let checks: Vec<Value> =
        checks.iter().map(|(name, ns, Ratio { all, quiet, quiet_rounds })| json!({ "kind": name, "ns": ns, "ratio": all.median, "quiet": quiet, "quiet_rounds": quiet_rounds })).collect();
    if let Some(path) = option("--json") {
        let many = many.into_iter().map(|(name, figure, unit)| (name.to_owned(), figure, unit));
        let many: Vec<Value> = many
            .chain(addresses)
            .map(|(name, figure, unit)| json!({ "kind": name, "figure": figure, "unit": unit }))
            .collect();
        let json =
            json!({ "many_rules": many, "few": SIZES[0], "many": SIZES[1], "rows": rows, "checks": checks });
        support::write(&path, &json.to_string());
    }
}
