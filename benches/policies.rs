//! What do several limits on one request cost, compared with the same number of single checks and with throttle-net's
//! `MultiLimiter`?
//!
//! ```text
//! cargo bench --bench policies                        the tables
//! cargo bench --bench policies -- --quick             fewer, shorter rounds
//! cargo bench --bench policies -- --json FILE         and the same as JSON
//! cargo bench --bench policies -- --scenario compact  only the tables whose names contain this text
//! ```
//! * **ns** is wall time × threads / requests of all threads, as in `peers.rs`, whose harness this bench uses. Ratios
//!   are taken within rounds, relative to one single check.
//! * All limits of a request are GCRA and admit every request. Each request uses one of 1,000 keys; direct limiters
//!   have no keys. "Singles" are the same number of separate checks, each with its own clock reading. Singles would
//!   charge one limit even if the other denies.
//! * throttle-net's `MultiLimiter` has no keys, and names its limits by strings. It is compared with Tollgate's
//!   limiters without keys. On two threads, both threads write the same words.
//! * Denied: the second of two limits denies every request.
//! * Known bias: as in `peers.rs`, a tight loop hides part of a check's latency behind the next clock reading.

#[path = "peers/harness.rs"]
#[allow(dead_code, reason = "made for peers.rs")]
mod harness;
#[path = "peers/keys.rs"]
#[allow(dead_code, reason = "made for peers.rs")]
mod keys;
#[path = "sketches/scene.rs"]
#[allow(dead_code, reason = "made for sketches.rs")]
mod scene;
#[path = "peers/subject.rs"]
#[allow(dead_code, reason = "made for peers.rs")]
mod subject;
#[path = "peers/summary.rs"]
#[allow(dead_code, reason = "made for peers.rs")]
mod summary;
mod support;
#[path = "peers/turn.rs"]
mod turn;

use std::time::Duration;

use serde_json::json;
use throttle_net::{MultiLimiter, Throttle};
use tollgate::{Direct, Gcra, Keyed, Quota, RateLimiter, check_all};

use harness::Table;
use scene::{Scene, Target, call, json_table};
use subject::{Expect, Recipe};

const KEYS: u64 = 1_000;
const ONE: &str = "one check";
const TWO_SINGLES: &str = "two single checks";
const TWO: &str = "two limits";
const THREE_SINGLES: &str = "three single checks";
const THREE: &str = "three limits";
const TWO_THROTTLE: &str = "throttle-net, two";
const THREE_THROTTLE: &str = "throttle-net, three";

/// A quota that no key uses up, even if a thread is held up for a second.
fn plenty() -> Quota {
    Quota::per_second(10_000_000).burst(30_000_000)
}

fn compact() -> RateLimiter {
    RateLimiter::new(plenty())
}

fn keyed() -> RateLimiter<Keyed<u64>> {
    RateLimiter::keyed(Gcra::new(plenty()))
}

fn direct() -> RateLimiter<Direct> {
    RateLimiter::direct(Gcra::new(plenty().burst(2_000_000_000)))
}

/// A row. Its figure is the time of one request.
macro_rules! recipe {
    ($name:ident, $build:block) => {
        Recipe { name: $name, counts: "requests", build: |_| $build }
    };
}

/// The five rows for limiters with one kind of store.
macro_rules! rows {
    ($make:ident, $key:ident, ($($check:tt)*), ($($on:tt)*)) => {
        vec![
            recipe!(ONE, {
                let a = $make();
                call(move |$key| a.check($($check)*).is_allowed())
            }),
            recipe!(TWO_SINGLES, {
                let (a, b) = ($make(), $make());
                call(move |$key| a.check($($check)*).is_allowed() & b.check($($check)*).is_allowed())
            }),
            recipe!(TWO, {
                let (a, b) = ($make(), $make());
                call(move |$key| check_all((a.on($($on)*), b.on($($on)*))).is_allowed())
            }),
            recipe!(THREE_SINGLES, {
                let (a, b, c) = ($make(), $make(), $make());
                call(move |$key| {
                    a.check($($check)*).is_allowed()
                        & b.check($($check)*).is_allowed()
                        & c.check($($check)*).is_allowed()
                })
            }),
            recipe!(THREE, {
                let (a, b, c) = ($make(), $make(), $make());
                call(move |$key| check_all((a.on($($on)*), b.on($($on)*), c.on($($on)*))).is_allowed())
            }),
        ]
    };
}

fn throttle() -> Throttle {
    Throttle::per_duration(1_000_000_000, Duration::from_secs(1))
}

fn scenes() -> Vec<Scene> {
    let mut without_keys = rows!(direct, _key, (), ());
    without_keys.push(recipe!(TWO_THROTTLE, {
        let limits =
            MultiLimiter::builder().dimension("requests", throttle()).dimension("tokens", throttle()).build();
        call(move |_| limits.try_acquire_costs(&[("requests", 1), ("tokens", 1)]))
    }));
    without_keys.push(recipe!(THREE_THROTTLE, {
        let builder =
            MultiLimiter::builder().dimension("requests", throttle()).dimension("tokens", throttle());
        let limits = builder.dimension("bytes", throttle()).build();
        call(move |_| limits.try_acquire_costs(&[("requests", 1), ("tokens", 1), ("bytes", 1)]))
    }));
    let known = |id, title, rows| Scene::known(id, title, KEYS, ONE, rows);
    let mut denied = known(
        "denied",
        "Compact limiters, denied by the last limit",
        vec![
            recipe!(ONE, {
                let last = drained();
                call(move |key| last.check(key).is_allowed())
            }),
            recipe!(TWO, {
                let (first, last) = (compact(), drained());
                for key in 0..KEYS {
                    assert!(first.check(&key).is_allowed());
                }
                call(move |key| check_all((first.on(key), last.on(key))).is_allowed())
            }),
        ],
    );
    denied.scenario.expect = Expect::Denied;
    vec![
        known("compact", "Compact limiters", rows!(compact, key, (key), (key))),
        known("keyed", "Keyed limiters", rows!(keyed, key, (key), (key))),
        known("direct", "Limiters without keys", without_keys),
        denied,
    ]
}

/// Makes a limiter whose keys have no units left for an hour.
fn drained() -> RateLimiter {
    let limiter = RateLimiter::new(Quota::per_hour(1));
    for key in 0..KEYS {
        assert!(limiter.check(&key).is_allowed());
    }
    limiter
}

fn targets(tables: &[Table]) -> Vec<Target> {
    let bounds = [
        ("compact", TWO, ONE, 1.7),
        ("keyed", TWO, ONE, 1.7),
        ("direct", TWO, ONE, 1.7),
        ("compact", TWO, TWO_SINGLES, 1.0),
        ("compact", THREE, THREE_SINGLES, 1.0),
        ("direct", TWO, TWO_THROTTLE, 1.0),
        ("direct", THREE, THREE_THROTTLE, 1.0),
    ];
    Target::of_tables(tables, &bounds)
}

fn main() {
    // Cargo passes `--bench` for a bench run. Without it (as in `cargo test --benches`), this is only a short test run
    // of all rows.
    let smoke = !support::has("--bench");
    let quick = smoke || support::has("--quick");
    let only = support::option("--scenario");
    let mut tables = Vec::new();
    for scene in scenes() {
        if only.as_deref().is_none_or(|only| scene.scenario.id.contains(only)) {
            scene.run(smoke, quick, &mut tables);
        }
    }
    println!("\n## Targets");
    let targets = targets(&tables);
    targets.iter().for_each(Target::print);
    if let Some(path) = support::option("--json") {
        let report = json!({
            "quick": quick,
            "rows": tables.iter().flat_map(json_table).collect::<Vec<_>>(),
            "targets": targets.iter().map(Target::json).collect::<Vec<_>>(),
        });
        support::write(&path, &format!("{report:#}\n"));
    }
}
