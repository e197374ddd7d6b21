//! What does a check cost, compared with the short script that a user would write otherwise?
//!
//! The **minimal script** keeps one number in one key, the theoretical arrival time of GCRA. It reads the time of the
//! server, decides, and writes the key with an expiry time. EVALSHA calls it over a multiplexed connection of the same
//! client library, with the library's own settings.
//!
//! * 64 callers share a connection. Each sends its next check when its answer arrives. The rows take turns, and each
//!   round runs all of them, in alternating order.
//! * The processor time of the client is that of all its threads (`/proc/self/task/*/schedstat`). The processor time of
//!   the server is what it reports itself (`INFO cpu`). Both are divided by the number of checks.
//! * Each ratio is to the minimal script of the same round, and stands twice: the median of all rounds, and the median
//!   of the *quiet* rounds. In a quiet round, the minimal script takes at most 10 % more time than in its best round.
//! * A second table has one caller, and percentiles of the time of a check.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use redis::Script;
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};
use tollgate::{FixedWindow, Quota};
use tollgate_redis::{AtomicLimiter, Client, DecidedBy, Limit};
use tollgate_testing::redis::Server;

use super::{AT_ONCE, keys, median, support};

/// A quota that no key uses up, with an interval of one microsecond.
const PLENTY: Quota = Quota::per_second(1_000_000);
/// The most by which a quiet round's minimal script exceeds its best round.
const QUIET: f64 = 1.1;

const MINIMAL: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local tat = tonumber(redis.call('GET', KEYS[1]) or 0)
if tat < now then tat = now end
local new = tat + ARGV[1]
if new - now > ARGV[2] + 0 then return { 0, tat - now } end
redis.call('SET', KEYS[1], string.format('%.0f', new), 'PX', math.ceil((new - now) / 1000))
return { 1, new - now }";

enum Subject {
    Minimal { script: Script, connection: MultiplexedConnection },
    Tollgate(AtomicLimiter),
}

impl Subject {
    async fn ask(&self, key: &str) {
        match self {
            Self::Minimal { script, connection } => {
                let asked = script.key(key).arg(1).arg(1_000_000).invoke_async(&mut connection.clone()).await;
                let (allowed, _): (u64, u64) = asked.expect("the server answers");
                assert_eq!(allowed, 1);
            }
            Self::Tollgate(limiter) => {
                let answer = limiter.check(key).await;
                assert!(answer.is_allowed() && answer.by() == DecidedBy::Server);
            }
        }
    }
}

/// One round of one row, for each check.
#[derive(Copy, Clone, Default)]
struct Sample {
    us: f64,
    client_us: f64,
    server_us: f64,
}

struct Row {
    name: &'static str,
    subject: Arc<Subject>,
    samples: Vec<Sample>,
    times: Histogram<u64>,
}

async fn rows(server: &Server) -> Vec<Row> {
    let theirs = redis::Client::open(server.url()).expect("a valid address");
    let connection =
        theirs.get_multiplexed_async_connection().await.expect("the server accepts the connection");
    let client = Client::open(&server.url()).expect("a valid address");
    let limiter = |name: &str, limits: &[Limit]| {
        let mut builder = client.limiter(name, limits[0]).timeout(Duration::from_secs(5));
        for limit in &limits[1..] {
            builder = builder.and(*limit);
        }
        Subject::Tollgate(builder.atomic().expect("the limits are valid"))
    };
    let gcra = Limit::gcra(PLENTY);
    let row = |name, subject| Row {
        name,
        subject: Arc::new(subject),
        samples: Vec::new(),
        times: super::histogram(),
    };
    vec![
        row("minimal script", Subject::Minimal { script: Script::new(MINIMAL), connection }),
        row("atomic, GCRA", limiter("one", &[gcra])),
        row("atomic, two limits", limiter("two", &[gcra, FixedWindow::new(PLENTY).into()])),
    ]
}

/// The processor time of this process, in microseconds.
fn client_us() -> f64 {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux lists the threads");
    let of = |task: fs::DirEntry| fs::read_to_string(task.path().join("schedstat")).ok();
    let texts = tasks.filter_map(|task| of(task.ok()?));
    texts.filter_map(|text| text.split(' ').next()?.parse::<f64>().ok()).sum::<f64>() / 1e3
}

/// The processor time of the server, in microseconds.
fn server_us(server: &Server) -> f64 {
    let info: String = server.command(&["INFO", "cpu"]);
    let field = |name| {
        let text = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        text.and_then(|text| text.trim().parse::<f64>().ok()).expect("the server reports its time")
    };
    (field("used_cpu_sys") + field("used_cpu_user")) * 1e6
}

/// Runs the checks of one round.
async fn run(server: &Server, row: &mut Row, keys: &Arc<[String]>, callers: usize, asks: usize) -> Sample {
    let (client, host) = (client_us(), server_us(server));
    let start = support::stopwatch();
    let tasks: Vec<_> = (0..callers)
        .map(|task| {
            let (subject, keys) = (Arc::clone(&row.subject), Arc::clone(keys));
            tokio::spawn(async move {
                let mut times = Vec::new();
                for number in 0..asks / callers {
                    let start = support::stopwatch();
                    subject.ask(&keys[(task + number) % keys.len()]).await;
                    if callers == 1 {
                        times.push(super::nanos(start.elapsed()));
                    }
                }
                times
            })
        })
        .collect();
    for task in tasks {
        for time in task.await.expect("the task does not panic") {
            row.times.saturating_record(time);
        }
    }
    let us = start.elapsed().as_secs_f64() * 1e6;
    let checks = (asks / callers * callers) as f64;
    let (client, host) = (client_us() - client, server_us(server) - host);
    Sample { us: us / checks, client_us: client / checks, server_us: host / checks }
}

/// The median of the ratios of a row to the first row, in these rounds.
fn ratio(rows: &[Row], row: usize, rounds: &[usize], of: impl Fn(&Sample) -> f64) -> f64 {
    median(rounds.iter().map(|&at| of(&rows[row].samples[at]) / of(&rows[0].samples[at])).collect())
}

async fn table(server: &Server, callers: usize, rounds: usize, asks: usize) -> (Value, [f64; 4]) {
    let mut rows = rows(server).await;
    let keys: Arc<[String]> = keys(100).into();
    // The first round only warms up.
    for round in 0..=rounds {
        for turn in 0..rows.len() {
            let at = if round % 2 == 0 { turn } else { rows.len() - 1 - turn };
            let sample = run(server, &mut rows[at], &keys, callers, asks).await;
            if round > 0 {
                rows[at].samples.push(sample);
            } else {
                rows[at].times.reset();
            }
        }
    }
    let all: Vec<usize> = (0..rounds).collect();
    let best = rows[0].samples.iter().map(|sample| sample.us).fold(f64::INFINITY, f64::min);
    let quiet: Vec<usize> =
        all.iter().copied().filter(|&at| rows[0].samples[at].us <= QUIET * best).collect();
    let title = format!("Beside the script that a user would write, {callers} caller(s)");
    println!("\n## {title}: {rounds} rounds, {} of them quiet\n", quiet.len());
    println!(
        "| check | µs | client µs | server µs | throughput to minimal | client time | server time | quiet: throughput | client time | server time |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    let mut json = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let of = |of: fn(&Sample) -> f64| median(row.samples.iter().map(of).collect());
        let figures = [of(|s| s.us), of(|s| s.client_us), of(|s| s.server_us)];
        let ratios = |rounds: &[usize]| {
            [
                ratio(&rows, index, rounds, |s| 1.0 / s.us),
                ratio(&rows, index, rounds, |s| s.client_us),
                ratio(&rows, index, rounds, |s| s.server_us),
            ]
        };
        let (every, still) = (ratios(&all), ratios(&quiet));
        let text: Vec<String> =
            figures.iter().chain(&every).chain(&still).map(|x| format!("{x:.2}")).collect();
        println!("| {} | {} |", row.name, text.join(" | "));
        json.push(json!({ "check": row.name, "us": figures, "ratios": every, "quiet": still }));
    }
    if callers == 1 {
        println!("\n| check | p50 µs | p99 | p99.9 |\n|---|---:|---:|---:|");
        for row in &rows {
            let at = |quantile| super::us(row.times.value_at_quantile(quantile));
            println!("| {} | {:.1} | {:.1} | {:.1} |", row.name, at(0.5), at(0.99), at(0.999));
        }
    }
    let two = median(quiet.iter().map(|&at| rows[2].samples[at].us / rows[1].samples[at].us).collect());
    let figures = [
        ratio(&rows, 1, &quiet, |s| s.us),
        ratio(&rows, 1, &quiet, |s| s.client_us),
        ratio(&rows, 1, &quiet, |s| s.server_us),
        two,
    ];
    println!("\ntwo limits to one: {two:.2}");
    (json!({ "title": title, "rounds": rounds, "quiet_rounds": quiet.len(), "rows": json }), figures)
}

/// Measures both tables. Returns them, and the targets: name, bound and figure.
pub(crate) async fn measure(
    server: &Server,
    rounds: usize,
    asks: usize,
) -> (Vec<Value>, Vec<(String, f64, f64)>) {
    let (many, [time, client, host, two]) = table(server, AT_ONCE, rounds, asks).await;
    let (one, _) = table(server, 1, rounds, asks / 8).await;
    let targets = vec![
        ("shared GCRA, 64 callers, time of a check to that of a minimal script".to_owned(), 1.0 / 0.9, time),
        ("shared GCRA, 64 callers, client's processor time to a minimal script's".to_owned(), 1.2, client),
        ("shared GCRA, 64 callers, server's processor time to a minimal script's".to_owned(), 1.2, host),
        ("shared, 64 callers, two limits in one call to one limit".to_owned(), 1.5, two),
    ];
    (vec![many, one], targets)
}
