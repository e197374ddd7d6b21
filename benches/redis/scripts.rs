//! How long do the scripts of all algorithms run on the server, and what does a sliding log cost as a sorted set?
//!
//! * The figures are `usec_per_call` of EVALSHA in `INFO commandstats`. They contain the script and its commands, and
//!   neither the network nor the parsing of the call. The calls are those of `check`, with the server's time.
//! * A **bare script** receives the same keys and arguments as the limiter. It calls the same commands, with as many
//!   bytes, on values of the same length, and replies with the same numbers. MONITOR shows what the limiter calls in
//!   some calls in a row, and the bare script repeats them in this order. The factor is the cost of the arithmetic.
//! * The subjects take turns. A round of a subject has some slices of 240 calls. Each figure is the best of all slices,
//!   because another program can only make a slice slower. A factor is the ratio of two such figures.
//! * Twenty keys are asked in one pipeline, once in `GAP`. All checks are allowed, except where a row says otherwise.
//! * A sliding log is full: in each call, one unit leaves and one enters. The **sorted set** is the usual script for such
//!   a log: a member for each unit, whose score is its time.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use tollgate::{
    FixedWindow, MinimumSpacing, Quota, SlidingLog, SlidingWindow, SubWindow, Timestamp, TokenBucket,
};
use tollgate_redis::{AtomicLimiter, Blocking, Client, Limit};

use super::support;
use tollgate_testing::redis::Server;

/// The key of captured calls. All keys are as long.
pub(crate) const FIRST: &str = "the-first";
const KEYS: usize = 20;
/// The time from one call of a key to its next. Twenty calls take about half of it.
const GAP: Duration = Duration::from_micros(600);
/// The number of calls of each key that make one figure, and of the calls that are captured for a bare script.
const SLICE: usize = 12;
const MOST: f64 = 1.5;

const SORTED_SET: &str = "local time = redis.call('TIME')
local now, limit, period = time[1] * 1000000 + time[2], ARGV[1] + 0, ARGV[2] + 0
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - period)
local used = redis.call('ZCARD', KEYS[1])
if used >= limit then
  return { 0, 0, now }
end
redis.call('ZADD', KEYS[1], now, string.format('%.0f-%s', now, ARGV[3]))
redis.call('PEXPIRE', KEYS[1], math.ceil(period / 1000) + 1000)
return { 1, limit - used - 1, now }";

/// The effort of a measurement.
#[derive(Copy, Clone)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// The slices of a round. Each of them gives a figure.
    pub(crate) slices: usize,
    /// The most ticks without figures before a measurement.
    pub(crate) warm: usize,
}

/// The tables, and the targets: name, bound and figure.
pub(crate) struct Report {
    pub(crate) tables: Vec<Value>,
    pub(crate) targets: Vec<(String, f64, f64)>,
}

/// The words of a command that a monitor saw. A byte that MONITOR escapes is a dot.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut bytes = line.chars();
    while let Some(byte) = bytes.next() {
        match (&mut word, byte) {
            (None, '"') => word = Some(String::new()),
            (None, _) => {}
            (Some(_), '"') => words.extend(word.take()),
            (Some(word), '\\') => {
                if bytes.next() == Some('x') {
                    let _ = (bytes.next(), bytes.next());
                }
                word.push('.');
            }
            (Some(word), byte) => word.push(byte),
        }
    }
    words
}

/// Returns the commands that the server runs meanwhile, those of scripts included.
fn monitored(server: &Server, act: impl FnOnce()) -> Vec<Vec<String>> {
    const END: &str = "the-end";
    let mut monitor =
        TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).expect("the server accepts the connection");
    monitor.write_all(b"MONITOR\r\n").expect("the server reads");
    let mut lines = BufReader::new(monitor).lines().map(|line| line.expect("the line can be read"));
    assert_eq!(lines.next().expect("the server answers"), "+OK");
    act();
    let _: String = server.command(&["ECHO", END]);
    lines.map(|line| words(&line)).take_while(|words| words.last().is_none_or(|word| word != END)).collect()
}

/// Returns the text of a script that calls these commands and gives this reply.
fn bare_text(commands: &[Vec<String>], keys: &[String], reply: &[i64]) -> String {
    let text = |word: &String| match keys.iter().position(|key| key == word) {
        Some(index) => format!("KEYS[{}]", index + 1),
        // The limiters' scripts pass offsets and times as numbers.
        None if !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()) => word.clone(),
        None => format!("'{}'", word.replace('\'', ".")),
    };
    let mut script = "local call = redis.call\n".to_owned();
    for words in commands {
        let words: Vec<String> = words.iter().map(text).collect();
        script.extend(["call(", &words.join(", "), ")\n"]);
    }
    let numbers: Vec<String> = reply.iter().map(i64::to_string).collect();
    let format = "I8".repeat(reply.len());
    script.extend(["return struct.pack('>", &format, "', ", &numbers.join(", "), ")\n"]);
    script
}

/// The numbers of a reply: a list, or a text with 8 bytes for each number.
pub(crate) fn numbers(reply: &redis::Value) -> Vec<i64> {
    match reply {
        redis::Value::BulkString(text) => {
            text.as_chunks().0.iter().map(|bytes| i64::from_be_bytes(*bytes)).collect()
        }
        _ => redis::from_redis_value_ref(reply).expect("a list of numbers"),
    }
}

/// Returns the words of a check of the key [`FIRST`], as the server received them.
pub(crate) fn call_of(server: &Server, limiter: &Blocking<AtomicLimiter>) -> Vec<String> {
    // The server learns the script.
    let _ = limiter.check("first");
    let seen = monitored(server, || assert!(limiter.check(FIRST).is_allowed()));
    seen.into_iter().find(|words| words[0] == "EVALSHA").expect("MONITOR shows the check")
}

/// Builds the command with these words for another key.
pub(crate) fn command(words: &[String], key: &str) -> redis::Cmd {
    let mut command = redis::cmd(&words[0]);
    for word in &words[1..] {
        match word.split_once(FIRST) {
            Some((before, after)) => command.arg(format!("{before}{key}{after}")),
            None => command.arg(word),
        };
    }
    command
}

/// The beginning of the keys of bare scripts.
const BARE: &str = "bare--";

/// What is measured.
struct Subject {
    /// The words of a call for the key [`FIRST`]. The second is the hash of a script.
    words: Vec<String>,
    /// The scripts of the calls, in turns.
    hashes: Vec<String>,
    /// The beginning of its keys.
    prefix: &'static str,
    /// Whether each call has a number of its own as its last argument.
    numbered: bool,
}

impl Subject {
    fn keys(&self) -> &[String] {
        let count: usize = self.words[2].parse().expect("the number of keys");
        &self.words[3..3 + count]
    }

    fn client(&self, number: usize) -> String {
        let client = format!("{}-{number:02}", self.prefix);
        assert_eq!(client.len(), FIRST.len());
        client
    }

    /// Returns the names of all keys.
    fn names(&self) -> Vec<String> {
        let clients = (0..KEYS).map(|number| self.client(number));
        clients.flat_map(|client| self.keys().iter().map(move |key| key.replace(FIRST, &client))).collect()
    }
}

/// The parts of a measurement that all subjects share.
struct Bench<'a> {
    server: &'a Server,
    client: Blocking<Client>,
    connection: redis::Connection,
    effort: Effort,
    sequence: u64,
}

/// How a row is measured.
#[derive(Copy, Clone)]
struct Plan {
    /// The ticks without figures before the first round, and before each other round.
    warm: [usize; 2],
    granted: i64,
}

impl Bench<'_> {
    /// Asks these keys once in `GAP`, and returns the last replies.
    fn ticks(&mut self, subject: &Subject, clients: &[String], ticks: usize) -> Vec<Vec<i64>> {
        let mut replies = Vec::new();
        for tick in 0..ticks {
            let mut words = subject.words.clone();
            words[1].clone_from(&subject.hashes[tick % subject.hashes.len()]);
            let start = support::stopwatch();
            let mut pipeline = redis::pipe();
            for client in clients {
                self.sequence += 1;
                let mut command = command(&words, client);
                if subject.numbered {
                    command.arg(self.sequence);
                }
                pipeline.add_command(command);
            }
            let values: Vec<redis::Value> = pipeline.query(&mut self.connection).expect("the server answers");
            replies = values.iter().map(numbers).collect();
            while start.elapsed() < GAP {
                std::hint::spin_loop();
            }
        }
        replies
    }

    /// Returns the script time of each subject, the best of all slices, in microseconds. A second subject begins with a
    /// copy of the first subject's state, if it is a bare script. If the system pauses this program for half a gap, the
    /// server's replies change, so that slice does not count.
    fn best(&mut self, subjects: &[Subject], plan: Plan) -> Vec<f64> {
        let mut best = vec![f64::INFINITY; subjects.len()];
        for round in 0..self.effort.rounds {
            for (index, subject) in subjects.iter().enumerate() {
                if round == 0 && subject.prefix == BARE {
                    self.copy(&subjects[0], subject);
                }
                let clients: Vec<String> = (0..KEYS).map(|number| subject.client(number)).collect();
                self.ticks(subject, &clients, plan.warm[round.min(1)].min(self.effort.warm));
                let complete = self.effort.warm >= plan.warm[0];
                for _ in 0..self.effort.slices {
                    self.server.command::<()>(&["CONFIG", "RESETSTAT"]);
                    let replies = self.ticks(subject, &clients, SLICE);
                    if !complete || replies.iter().all(|reply| reply[0] == plan.granted) {
                        best[index] = best[index].min(self.script_us());
                    }
                }
            }
        }
        assert!(
            best.iter().all(|us| us.is_finite()),
            "no slice granted {} units each: {best:?}",
            plan.granted
        );
        best
    }

    /// Returns the mean time of the scripts since the last reset, in microseconds.
    fn script_us(&self) -> f64 {
        let info: String = self.server.command(&["INFO", "commandstats"]);
        let stats = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
        let us =
            stats.and_then(|stats| stats.split(',').find_map(|part| part.strip_prefix("usec_per_call=")));
        us.and_then(|us| us.parse().ok()).expect("the server counts commands")
    }

    /// Copies the state of each key.
    fn copy(&mut self, from: &Subject, to: &Subject) {
        for (from, to) in from.names().iter().zip(to.names()) {
            let state: Vec<u8> = redis::cmd("GET").arg(from).query(&mut self.connection).expect("a text");
            let mut set = redis::cmd("SET");
            let () = set.arg(to).arg(state).arg("EX").arg(3_600).query(&mut self.connection).expect("a copy");
        }
    }

    /// Returns the bytes of a subject's first key.
    fn bytes(&self, subject: &Subject) -> u64 {
        self.server.command(&["MEMORY", "USAGE", &subject.names()[0], "SAMPLES", "0"])
    }

    /// A limiter with these limits.
    fn limiter(&self, name: &str, limits: &[Limit]) -> Subject {
        let mut builder = self.client.limiter(name, limits[0]).timeout(Duration::from_secs(5));
        for limit in &limits[1..] {
            builder = builder.and(*limit);
        }
        let words = call_of(self.server, &builder.atomic().expect("the limits are valid"));
        Subject { hashes: vec![words[1].clone()], words, prefix: "limits", numbered: false }
    }

    /// The script with the commands of a limiter, and nothing else.
    fn bare(&mut self, limiter: &Subject, plan: Plan) -> Subject {
        let client = [FIRST.to_owned()];
        self.ticks(limiter, &client, plan.warm[0].min(self.effort.warm));
        let mut replies = Vec::new();
        let seen = monitored(self.server, || replies = self.ticks(limiter, &client, SLICE));
        // Two calls have one script if they have the same commands with as many bytes.
        let mut alike: HashMap<Vec<(&str, usize)>, String> = HashMap::new();
        let mut hashes = Vec::new();
        for call in seen.split(|words| words[0] == "EVALSHA").filter(|call| !call.is_empty()) {
            let shape = call.iter().map(|words| (words[0].as_str(), words.iter().map(String::len).sum()));
            let hash = alike.entry(shape.collect()).or_insert_with(|| {
                let script = bare_text(call, limiter.keys(), &replies[0]);
                if support::has("--show") {
                    println!("{script}");
                }
                self.server.command(&["SCRIPT", "LOAD", &script])
            });
            hashes.push(hash.clone());
        }
        assert_eq!(hashes.len(), SLICE, "MONITOR shows the commands of scripts");
        Subject { words: limiter.words.clone(), hashes, prefix: BARE, numbered: false }
    }

    /// The usual script for the log of this limiter, whose keys are as long.
    fn sorted_set(&self, ring: &Subject, limit: u64, period: Duration) -> Subject {
        let hash: String = self.server.command(&["SCRIPT", "LOAD", SORTED_SET]);
        let (limit, period_us) = (limit.to_string(), period.as_micros().to_string());
        let words = ["EVALSHA", &hash, "1", &ring.keys()[0], &limit, &period_us];
        Subject {
            words: words.map(str::to_owned).into(),
            hashes: vec![hash.clone()],
            prefix: "sorted",
            numbered: true,
        }
    }

    fn row(&mut self, name: &str, subjects: &[Subject], plan: Plan) -> (Value, Vec<f64>) {
        let us = self.best(subjects, plan);
        let factor = us[0] / us[1];
        println!("| {name} | {:.2} | {:.2} | {factor:.2} |", us[0], us[1]);
        (json!({ "limit": name, "us": us[0], "bare_us": us[1], "factor": factor }), us)
    }
}

/// The limits of each row. No check of theirs is denied.
fn limits() -> [(&'static str, Vec<Limit>); 11] {
    let hour = Quota::per_hour(1_000_000);
    // A sliding window is in use if the previous window has units.
    let window = Quota::new(1_000_000, Duration::from_millis(200));
    let spacing = MinimumSpacing::new(Duration::from_micros(1));
    [
        ("GCRA", vec![Limit::gcra(hour)]),
        ("fixed window", vec![Limit::fixed_window(hour)]),
        ("sliding window", vec![SlidingWindow::new(window).into()]),
        ("fixed window from first use", vec![FixedWindow::from_first_use(hour).into()]),
        ("token bucket, interval", vec![TokenBucket::interval(hour).into()]),
        ("token bucket, aligned", vec![TokenBucket::aligned(hour, Timestamp::ZERO).into()]),
        ("minimum spacing", vec![spacing.into()]),
        ("sub-window counter, 12 parts", vec![SubWindow::new(hour, 12).into()]),
        ("sub-window counter, 60 parts", vec![SubWindow::new(hour, 60).into()]),
        ("two limits: GCRA, fixed window", vec![Limit::gcra(hour), Limit::fixed_window(hour)]),
        ("two limits: interval, spacing", vec![TokenBucket::interval(hour).into(), spacing.into()]),
    ]
}

/// Measures all scripts.
pub(crate) fn measure(server: &Server, client: Blocking<Client>, effort: Effort) -> Report {
    let mut bench = Bench { server, client, connection: server.connection(), effort, sequence: 0 };
    let (mut scripts, mut logs, mut targets) = (Vec::new(), Vec::new(), Vec::new());
    println!("\n## Script time on the server\n\n| limit | µs | bare script | factor |\n|---|---:|---:|---:|");
    let mut add = |name: &str, row: Value| {
        if !name.starts_with("two limits") {
            let factor = row["factor"].as_f64().unwrap_or(f64::NAN);
            targets.push((format!("script time, {name}, against a bare script"), MOST, factor));
        }
        scripts.push(row);
    };
    for (index, (name, limits)) in limits().into_iter().enumerate() {
        let plan = Plan { warm: [if name == "sliding window" { 400 } else { 20 }, 20], granted: 1 };
        let limiter = bench.limiter(&format!("s{index}"), &limits);
        let bare = bench.bare(&limiter, plan);
        let (row, _) = bench.row(name, &[limiter, bare], plan);
        add(name, row);
    }
    for units in [10_u16, 100, 1_000] {
        let (limit, warm) = (u64::from(units), usize::from(units));
        // At each call, the oldest unit left half a gap ago.
        let period = GAP * units.into() - GAP / 2;
        let plan = Plan { warm: [warm, warm], granted: 1 };
        let ring = bench.limiter("log", &[SlidingLog::new(Quota::new(limit, period)).into()]);
        let bare = bench.bare(&ring, plan);
        let sorted = bench.sorted_set(&ring, limit, period);
        let name = format!("sliding log of {units}");
        let subjects = [ring, bare, sorted];
        let (row, us) = bench.row(&name, &subjects, plan);
        add(&name, row);
        // Units of an hour do not leave.
        let hour = Duration::from_secs(3_600);
        let ring = bench.limiter("full", &[SlidingLog::new(Quota::new(limit, hour)).into()]);
        let sorted = bench.sorted_set(&ring, limit, hour);
        let subjects = [ring, sorted];
        let denied = bench.best(&subjects, Plan { warm: [warm, 20], granted: 0 });
        let bytes = subjects.map(|subject| bench.bytes(&subject));
        logs.push(json!({
            "units": units, "ring_us": us[0], "sorted_set_us": us[2], "ring_denied_us": denied[0],
            "sorted_set_denied_us": denied[1], "ring_bytes": bytes[0], "sorted_set_bytes": bytes[1],
        }));
    }
    println!("\n## Sliding log: ring and sorted set\n");
    println!("| units | ring µs | sorted set | denied: ring | sorted set | bytes: ring | sorted set |");
    println!("|---:|---:|---:|---:|---:|---:|---:|");
    for row in &logs {
        let us = ["ring_us", "sorted_set_us", "ring_denied_us", "sorted_set_denied_us"];
        let us: Vec<String> = us.map(|name| format!("{:.2}", row[name].as_f64().unwrap_or(f64::NAN))).into();
        println!(
            "| {} | {} | {} | {} |",
            row["units"],
            us.join(" | "),
            row["ring_bytes"],
            row["sorted_set_bytes"]
        );
    }
    let tables = vec![
        json!({ "title": "Script time on the server", "rows": scripts }),
        json!({ "title": "Sliding log: ring and sorted set", "rows": logs }),
    ];
    Report { tables, targets }
}
