//! Rows that have a process of their own: it fills a limiter, reports its resident memory, and then measures one turn
//! for each line that it reads.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::keys::for_each_chunk;
use crate::limiters::{COMPACT, GOVERNOR, KEYED, Limiter, SLOW, TIGHT, turn};
use crate::support::{XorShift, count, has, key, length, option};
use crate::{Point, Scale, rules};

/// The rows of a size are processes that take turns, unless they would need too much memory together.
const MOST_KEYS_TOGETHER: u64 = 10_000_000;

/// Returns the bytes of this process that are in memory, or 0 if the system does not show them.
pub(crate) fn resident() -> u64 {
    // The second number of `statm` is a count of pages. Pages have 4 KiB on the systems that these figures are for.
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// Answers the parent: first the figures of the filled limiter, then the nanoseconds of each turn.
pub(crate) fn serve(figures: &Value, mut turn: impl FnMut() -> f64) {
    println!("{figures}");
    for line in std::io::stdin().lock().lines() {
        line.expect("the parent writes lines");
        println!("{}", turn());
    }
}

/// Returns whether this process is a child. If it is, its work is done.
pub(crate) fn answer_parent() -> bool {
    let (Some(subject), Some(size)) = (option("--child"), option("--size")) else { return false };
    let size = size.parse().expect("--size NUMBER");
    let calls = option("--calls").and_then(|text| text.parse().ok()).expect("--calls NUMBER");
    if has("--of-rules") {
        rules::answer(&subject, size, calls);
    } else {
        let known = [COMPACT, TIGHT, KEYED, GOVERNOR];
        fill(known.iter().find(|limiter| limiter.name == subject).expect("a known limiter"), size, calls);
    }
    true
}

fn fill(limiter: &Limiter, population: u64, calls: u64) {
    let sight = |population| {
        let contender = (limiter.build)(population, SLOW);
        for_each_chunk(population, |keys: &[u64]| {
            assert_eq!(contender.run(keys, count(keys.len())), count(keys.len()));
        });
        contender
    };
    // A first small limiter makes the code and its buffers resident.
    drop(sight(100));
    let before = resident();
    let contender = sight(population);
    let bytes = resident().saturating_sub(before);
    // With few keys, the stream fits in the second-level cache.
    let mut stream = vec![0; length(if population <= 10_000 { calls.min(1 << 14) } else { calls })];
    let mut random = XorShift::new(population);
    serve(&json!({ "bytes": bytes }), || {
        stream.fill_with(|| key(random.below(population)));
        turn(&*contender, std::slice::from_ref(&stream), calls)
    });
}

/// A process that has filled its limiter.
struct Process {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    /// Returns the process and the figures of its limiter.
    fn start(subject: &str, size: u64, calls: u64, more: &[&str]) -> (Self, Value) {
        let program = std::env::current_exe().expect("the bench knows its own program");
        let mut child = Command::new(program)
            .args(["--child", subject, "--size", &size.to_string(), "--calls", &calls.to_string()])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the bench can start itself");
        let requests = child.stdin.take().expect("its input is a pipe");
        let answers = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let mut process = Self { child, requests, answers };
        let figures = serde_json::from_str(&process.answer()).expect("a child writes its figures first");
        (process, figures)
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("a child answers");
        line
    }

    fn turn(&mut self) -> f64 {
        writeln!(self.requests).expect("a child waits for the next turn");
        self.answer().trim().parse().expect("a child answers with a time")
    }

    fn end(self) {
        let Self { mut child, requests, .. } = self;
        drop(requests);
        assert!(child.wait().expect("a child ends").success());
    }
}

/// Measures rows of one size, which take turns.
fn together(
    chart: &'static str,
    subjects: &[&'static str],
    size: u64,
    (rounds, calls): (usize, u64),
    more: &[&str],
) -> Vec<Point> {
    let mut rows: Vec<(Process, Point)> = subjects
        .iter()
        .map(|&subject| {
            let (process, more) = Process::start(subject, size, calls, more);
            (process, Point { chart, subject, x: size, ns: Vec::new(), more })
        })
        .collect();
    for round in 0..=rounds {
        for (process, point) in &mut rows {
            let ns = process.turn();
            // Round 0 only warms up.
            if round > 0 {
                point.ns.push(ns);
            }
        }
    }
    rows.into_iter()
        .map(|(process, point)| {
            process.end();
            point
        })
        .collect()
}

pub(crate) fn keys(scale: Scale) -> Vec<Point> {
    let mut points = Vec::new();
    for size in (2..=8).map(|power| 10_u64.pow(power)).filter(|size| *size <= scale.most_keys) {
        let limiters = [COMPACT, TIGHT, KEYED, GOVERNOR];
        let fitting = limiters.iter().filter(|limiter| size <= limiter.most_keys);
        let names: Vec<&'static str> = fitting.map(|limiter| limiter.name).collect();
        let fit = size <= MOST_KEYS_TOGETHER;
        let turns = (if fit { scale.rounds } else { scale.rounds.min(5) }, 1_000_000 / scale.divisor);
        for group in names.chunks(if fit { names.len() } else { 1 }) {
            points.extend(together("keys", group, size, turns, &[]));
        }
    }
    points
}

pub(crate) fn rules(scale: Scale) -> Vec<Point> {
    let sizes = (0..=5).map(|power| 10_u64.pow(power)).filter(|size| *size <= scale.most_rules);
    let turns = (scale.rounds, 100_000 / scale.divisor);
    sizes.flat_map(|size| together("rules", &rules::SUBJECTS, size, turns, &["--of-rules"])).collect()
}
