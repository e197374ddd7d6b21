//! What does a check cost if several machines share the limit?
//!
//! ```text
//! cargo bench --features redis --bench redis               the tables
//! cargo bench --features redis --bench redis -- --quick    fewer rounds
//! cargo bench --features redis --bench redis -- --json FILE   and the same as JSON
//! cargo bench --features redis --bench redis -- --own         only `redis/own.rs`; --threads N sets the runtime's threads
//! cargo bench --features redis --bench redis -- --scripts     only the script times; --show prints the bare scripts
//! ```
//! The bench starts its own redis-server on a free local port, and stops it at the end.
//!
//! * **One at a time**: the rows take turns. Each row sends one request on one connection and waits for the answer. The
//!   base row is a bare EVALSHA of the same script that GCRA uses, with the same arguments, sent by the client library
//!   alone. The time above it is Tollgate's own. Another row runs a script that returns one number, which shows the
//!   time of the round trip. Percentiles are over all rounds. A ratio is the median of the rounds' ratios of medians.
//! * **Sixty-four at once**: 64 tasks share one connection, and each sends its next request when its answer arrives.
//!   The figure is checks per second.
//! * **Held here**: leases and write-back, compared with a limiter that only this process uses. The figure is
//!   nanoseconds per check, measured in batches, with the clock reading.
//! * **Script time on the server**: what the server counts, without the network. `redis/scripts.rs` describes it.
//! * **The server stopped** (SIGSTOP): the time of decisions that this process makes once the circuit breaker is open.
//!
//! Peers: *GCRA in Lua, floats* is the approach of libraries that keep a theoretical arrival time in a script
//! (redis_rate for Go and its ports). *INCRBY, EXPIRE* is the pipeline of Envoy's service: it counts one window, and a
//! denial writes too.

mod support;

#[path = "redis/own.rs"]
mod own;
#[path = "redis/scripts.rs"]
mod scripts;

use std::hint::black_box;
use std::time::Duration;

use hdrhistogram::Histogram;
use redis::Script;
use redis::aio::MultiplexedConnection;
use scripts::Effort;
use serde_json::{Value, json};
use tollgate::{Gcra, Keyed, Quota, RateLimiter};
use tollgate_redis::{AtomicLimiter, Client, LeaseLimiter, Limit, OnFailure, WriteBackLimiter};
use tollgate_testing::redis::Server;

/// A quota that no key uses up.
const PLENTY: Quota = Quota::per_second(10_000_000);
const AT_ONCE: usize = 64;
/// Rounds until the blocks of leases are as large as the use of one round.
const GROWTH: usize = 24;

const GCRA_IN_LUA: &str = "
local now = redis.call('TIME')
now = (now[1] - 1483228800) + now[2] / 1000000
local interval = ARGV[2] / ARGV[1]
local burst_offset = interval * ARGV[1]
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
tat = math.max(tat, now)
local new = tat + interval
local diff = now - (new - burst_offset)
local remaining = diff / interval
if remaining < 0 then
  return { 0, 0, tostring(tat - now), tostring(tat - now) }
end
local reset_after = new - now
if reset_after > 0 then
  redis.call('SET', KEYS[1], new, 'EX', math.ceil(reset_after))
end
return { 1, remaining, '-1', tostring(reset_after) }
";

/// The arguments of a check, as the server received them. One of them contains the key.
enum Subject {
    /// The words of a check, as the server saw them, and which of them has the key in it.
    Bare(Vec<String>),
    One(Script),
    Lua(Script),
    Increments,
    Atomic(AtomicLimiter),
}

struct Row {
    name: &'static str,
    subject: Subject,
}

impl Row {
    async fn ask(&self, connection: &mut MultiplexedConnection, key: &str) {
        match &self.subject {
            Subject::Bare(words) => {
                let command = scripts::command(words, key);
                let reply = command.query_async(connection).await.expect("the server answers");
                assert_eq!(scripts::numbers(&reply)[0], 1);
            }
            Subject::One(script) => {
                let one: i64 = script.key(key).invoke_async(connection).await.expect("the server answers");
                assert_eq!(one, 1);
            }
            Subject::Lua(script) => {
                let asked = script.key(key).arg(10_000_000).arg(1).invoke_async(connection).await;
                let (allowed, ..): (i64, i64, String, String) = asked.expect("the server answers");
                assert_eq!(allowed, 1);
            }
            Subject::Increments => {
                let mut pipeline = redis::pipe();
                // Uses its own key, because the other rows store no number in theirs.
                let key = format!("count:{key}");
                pipeline.incr(&key, 1).expire(&key, 1).ignore();
                let (count,): (i64,) = pipeline.query_async(connection).await.expect("the server answers");
                assert!(count > 0);
            }
            Subject::Atomic(limiter) => assert!(limiter.check(key).await.is_allowed()),
        }
    }
}

fn rows(client: &Client, words: &[String]) -> Vec<Row> {
    let atomic = |name: &'static str, limiter: &str, limit: Limit| Row {
        name,
        subject: Subject::Atomic(
            client
                .limiter(limiter, limit)
                .timeout(Duration::from_secs(5))
                .atomic()
                .expect("the limit is valid"),
        ),
    };
    let two = client.limiter("two", Limit::gcra(PLENTY)).and(Limit::fixed_window(PLENTY));
    vec![
        Row { name: "bare EVALSHA of the same", subject: Subject::Bare(words.to_vec()) },
        atomic("atomic, GCRA", "gcra", Limit::gcra(PLENTY)),
        atomic("atomic, fixed window", "fixed", Limit::fixed_window(PLENTY)),
        atomic("atomic, sliding window", "sliding", Limit::sliding_window(PLENTY)),
        Row {
            name: "atomic, two limits",
            subject: Subject::Atomic(
                two.timeout(Duration::from_secs(5)).atomic().expect("the limits are valid"),
            ),
        },
        Row { name: "GCRA in Lua, floats", subject: Subject::Lua(Script::new(GCRA_IN_LUA)) },
        Row { name: "EVALSHA of \"return 1\"", subject: Subject::One(Script::new("return 1")) },
        Row { name: "INCRBY, EXPIRE", subject: Subject::Increments },
    ]
}

fn keys(count: usize) -> Vec<String> {
    (0..support::count(count)).map(support::text).collect()
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn nanos(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_nanos()).expect("the time fits in 64 bits")
}

/// The results of one row.
struct Measured {
    name: &'static str,
    all: Histogram<u64>,
    ratios: Vec<f64>,
}

async fn one_at_a_time(
    server: &Server,
    rows: &[Row],
    keys: &[String],
    rounds: usize,
    asks: usize,
) -> Vec<Measured> {
    let client = redis::Client::open(server.url()).expect("a valid address");
    let mut connection =
        client.get_multiplexed_async_connection().await.expect("the server accepts the connection");
    let mut measured: Vec<Measured> =
        rows.iter().map(|row| Measured { name: row.name, all: histogram(), ratios: Vec::new() }).collect();
    // The first round only warms up.
    for round in 0..=rounds {
        let mut times: Vec<Vec<f64>> = rows.iter().map(|_| Vec::with_capacity(asks)).collect();
        for number in 0..asks {
            for turn in 0..rows.len() {
                // Each row follows each of the others equally often.
                let row = if number % 2 == 0 { turn } else { rows.len() - 1 - turn };
                let row = (row + number / 2) % rows.len();
                let start = support::stopwatch();
                rows[row].ask(&mut connection, &keys[number % keys.len()]).await;
                let elapsed = nanos(start.elapsed());
                times[row].push(elapsed as f64);
                if round > 0 {
                    measured[row].all.saturating_record(elapsed);
                }
            }
        }
        if round > 0 {
            let medians: Vec<f64> = times.into_iter().map(median).collect();
            for (measured, own) in measured.iter_mut().zip(&medians) {
                measured.ratios.push(own / medians[0]);
            }
        }
    }
    measured
}

fn print_latencies(title: &str, measured: &[Measured]) -> Value {
    println!("\n## {title}\n");
    println!("| check | p50 µs | p99 | p99.9 | ratio to a bare EVALSHA |");
    println!("|---|---:|---:|---:|---:|");
    let mut json = Vec::new();
    for row in measured {
        let at = |quantile| us(row.all.value_at_quantile(quantile));
        let ratio = median(row.ratios.clone());
        println!("| {} | {:.1} | {:.1} | {:.1} | {ratio:.3} |", row.name, at(0.5), at(0.99), at(0.999));
        json.push(json!({ "check": row.name, "p50_us": at(0.5), "p99_us": at(0.99), "p999_us": at(0.999), "ratio": ratio }));
    }
    json!({ "title": title, "rows": json })
}

/// Returns the checks per second of each row.
async fn at_once(server: &Server, rows: Vec<Row>, keys: &[String], asks: usize) -> Vec<(&'static str, f64)> {
    let client = redis::Client::open(server.url()).expect("a valid address");
    let mut rates = Vec::new();
    for row in rows {
        let connection =
            client.get_multiplexed_async_connection().await.expect("the server accepts the connection");
        let name = row.name;
        let row = std::sync::Arc::new(row);
        let start = support::stopwatch();
        let tasks: Vec<_> = (0..AT_ONCE)
            .map(|task| {
                let (row, mut connection, keys) =
                    (std::sync::Arc::clone(&row), connection.clone(), keys.to_vec());
                tokio::spawn(async move {
                    for number in 0..asks / AT_ONCE {
                        row.ask(&mut connection, &keys[(task + number) % keys.len()]).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("the task does not panic");
        }
        rates.push((name, (asks / AT_ONCE * AT_ONCE) as f64 / start.elapsed().as_secs_f64()));
    }
    rates
}

/// Runs a batch of checks and returns the nanoseconds per check.
fn batch(keys: &[String], checks: usize, mut check: impl FnMut(&str) -> bool) -> f64 {
    let mut allowed = 0_usize;
    let start = support::stopwatch();
    for number in 0..checks {
        allowed += usize::from(check(black_box(&keys[number % keys.len()])));
    }
    let elapsed = start.elapsed();
    black_box(allowed);
    elapsed.as_secs_f64() * 1e9 / checks as f64
}

struct Held {
    name: &'static str,
    ns: Vec<f64>,
    ratios: Vec<f64>,
    denied: usize,
}

/// Measures leases and write-back next to a limiter that only this process uses.
async fn held(client: &Client, count: usize, rounds: usize, checks: usize) -> Vec<Held> {
    let keys = keys(count);
    let here: RateLimiter<Keyed<String>> = RateLimiter::keyed(Gcra::new(PLENTY));
    let lease: LeaseLimiter = client
        .limiter("lease", Limit::gcra(PLENTY))
        .leases()
        .life(Duration::from_secs(60))
        .max_block(1 << 20)
        .build()
        .expect("a runtime is running");
    let back: WriteBackLimiter =
        client.limiter("back", Limit::gcra(PLENTY)).write_back().build().expect("a runtime is running");
    let mut rows: Vec<Held> = ["in this process (keyed)", "lease", "write-back"]
        .into_iter()
        .map(|name| Held { name, ns: Vec::new(), ratios: Vec::new(), denied: 0 })
        .collect();
    for key in &keys {
        let _ = lease.check_async(key.as_str()).await;
        let _ = back.check_async(key.as_str()).await;
    }
    // Blocks start at one unit and double while they are used up.
    for round in 0..=rounds + GROWTH {
        let mut ns = [0.0; 3];
        for turn in 0..3 {
            let row = (turn + round) % 3;
            let mut denied = 0;
            ns[row] = batch(&keys, checks, |key| {
                let allowed = match row {
                    0 => here.check(key).is_allowed(),
                    1 => lease.check(key).is_allowed(),
                    _ => back.check(key).is_allowed(),
                };
                denied += usize::from(!allowed);
                allowed
            });
            if round > GROWTH {
                rows[row].denied += denied;
            }
            // Between batches, the tasks that fetch and post can run, as they do in a server that waits for requests.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if round > GROWTH {
            for (row, own) in rows.iter_mut().zip(ns) {
                row.ns.push(own);
                row.ratios.push(own / ns[0]);
            }
        }
    }
    rows
}

/// Measures the time of decisions while the server is stopped.
async fn stopped(server: &Server, client: &Client, decisions: usize) -> Histogram<u64> {
    let limiter = client
        .limiter("stopped", Limit::gcra(PLENTY))
        .timeout(Duration::from_millis(40))
        .on_failure(OnFailure::Local { processes: 2 })
        .atomic()
        .expect("the limit is valid");
    let keys = keys(100);
    let _ = limiter.check(keys[0].as_str()).await;
    server.pause();
    // Checks until the breaker is open.
    for _ in 0..10 {
        let _ = limiter.check(keys[0].as_str()).await;
    }
    let mut times = histogram();
    for number in 0..decisions {
        let start = support::stopwatch();
        let answer = limiter.check(keys[number % keys.len()].as_str()).await;
        times.saturating_record(nanos(start.elapsed()));
        assert!(answer.by().is_failure());
    }
    server.resume();
    times
}

/// Measures checks in this process and through the network.
async fn checks(
    server: &Server,
    words: &[String],
    (rounds, asks): (usize, usize),
    report: &mut Vec<Value>,
    targets: &mut Vec<(String, f64, f64)>,
) {
    let client = Client::open(&server.url()).expect("a valid address");
    for count in [1, 100] {
        let keys = keys(count);
        let measured = one_at_a_time(server, &rows(&client, words), &keys, rounds, asks).await;
        report.push(print_latencies(&format!("One at a time, {count} key(s)"), &measured));
        let ratio = median(measured[1].ratios.clone());
        targets.push((
            format!("atomic, {count} key(s), one at a time, against a bare EVALSHA of our own script"),
            1.10,
            ratio,
        ));
        let title = format!("{AT_ONCE} at once on one connection, {count} key(s)");
        println!("\n## {title}\n\n| check | checks/s |\n|---|---:|");
        let rates = at_once(server, rows(&client, words), &keys, rounds * asks).await;
        for (name, rate) in &rates {
            println!("| {name} | {rate:.0} |");
        }
        report.push(json!({ "title": title, "a_second": rates }));
    }
    for count in [1, 100] {
        let title = format!("Held here, {count} key(s)");
        println!(
            "\n## {title}\n\n| check | ns | ratio to a local limiter | denied without a unit |\n|---|---:|---:|---:|"
        );
        let rows = held(&client, count, rounds, asks * 50).await;
        for row in &rows {
            let (ns, ratio) = (median(row.ns.clone()), median(row.ratios.clone()));
            println!("| {} | {ns:.1} | {ratio:.2} | {} |", row.name, row.denied);
        }
        let ratio = median(rows[1].ratios.clone());
        targets.push((format!("lease, {count} key(s), against the check in this process"), 2.0, ratio));
        report.push(json!({
                "title": title,
                "rows": rows.iter().map(|row| json!({ "check": row.name, "ns": median(row.ns.clone()), "ratio": median(row.ratios.clone()) })).collect::<Vec<_>>(),
            }));
    }
    let times = stopped(server, &client, asks * 100).await;
    let at = |quantile| us(times.value_at_quantile(quantile));
    println!(
        "\n## The server stopped, decided here\n\n| p50 µs | p99 | p99.9 | worst |\n|---:|---:|---:|---:|"
    );
    println!("| {:.1} | {:.1} | {:.1} | {:.1} |", at(0.5), at(0.99), at(0.999), us(times.max()));
    report.push(
        json!({ "title": "stopped", "p50_us": at(0.5), "p99_us": at(0.99), "worst_us": us(times.max()) }),
    );
    targets.push(("the server stopped, p99 of decisions made here, µs".to_owned(), 1_000.0, at(0.99)));
}

fn print_targets(targets: &[(String, f64, f64)]) {
    println!("\n## Targets\n");
    for (what, most, got) in targets {
        println!(
            "- {what}: {got:.3}, at most {most:.3}: {}",
            if got <= most { "holds" } else { "does not hold" }
        );
    }
}

fn main() -> std::io::Result<()> {
    // Cargo passes `--bench` for a bench run. Without it (as in `cargo test --benches`), this is only a short test run
    // of all rows.
    let smoke = !support::has("--bench");
    let (rounds, asks, effort) = match (smoke, support::has("--quick")) {
        (true, _) => (1, 20, Effort { rounds: 1, slices: 1, warm: 2 }),
        (false, true) => (11, 400, Effort { rounds: 3, slices: 5, warm: 1_000 }),
        (false, false) => (31, 2_000, Effort { rounds: 11, slices: 10, warm: 1_000 }),
    };
    let Some(server) = Server::start() else { return Ok(()) };
    let client = Client::open(&server.url()).expect("a valid address").blocking();
    let runtime = match support::option("--threads") {
        Some(threads) => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads.parse().expect("a number"))
            .enable_all()
            .build()?,
        None => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
    };
    let (mut tables, mut targets) = (Vec::new(), Vec::new());
    if !support::has("--scripts") {
        let own = own::measure(&server, rounds, if smoke { asks } else { asks.max(1_000) * 8 });
        let (own, bounds) = runtime.block_on(own);
        tables.extend(own);
        targets.extend(bounds);
    }
    if !support::has("--scripts") && !support::has("--own") {
        let bare = client.limiter("bare", Limit::gcra(PLENTY)).timeout(Duration::from_secs(5));
        let words = scripts::call_of(&server, &bare.atomic().expect("the limit is valid"));
        runtime.block_on(checks(&server, &words, (rounds, asks), &mut tables, &mut targets));
    }
    if !support::has("--own") {
        let scripts = scripts::measure(&server, client, effort);
        tables.extend(scripts.tables);
        targets.extend(scripts.targets);
    }
    print_targets(&targets);
    if let Some(path) = support::option("--json") {
        let targets = targets.iter().map(|(what, most, got)| {
            json!({ "target": what, "bound": most, "value": { "median": got }, "holds": got <= most })
        });
        let targets: Vec<Value> = targets.collect();
        let report = json!({ "tables": tables, "targets": targets });
        support::write(&path, &format!("{report:#}\n"));
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}
