//! How often do windows in a sketch deny wrongly, depending on the memory? Run `cargo bench --bench sketch_accuracy`.
//!
//! The bench plays one window in which 10 M keys (Zipf 1.0) make 40 M requests, with a limit of 100 per key. `-- 16`
//! uses a sixteenth of the keys, the requests and the memory. `-- 1 chart.svg` also draws a chart. `--json FILE` before
//! the number also writes the results as JSON. Paths are relative to `benches/`.
//!
//! A request is *deserving* if its key has been admitted less than its limit. The bench compares three methods:
//! - plain count-min: 4 rows of 64-bit counters, and every request is counted. pingora-limits' `Estimator` does this.
//! - conservative update: 4 rows of 32-bit counters, and only admitted requests are counted. `sketch::CountMin` does
//!   this.
//! - the `Sketch` store: a doorkeeper for keys that come once, and counters of seven bits.

mod support;

use pingora_limits::estimator::Estimator;
use tollgate::sketch::CountMin;
use tollgate::{Capacity, FixedWindow, Quota, RateLimiter, Timestamp};
use tollgate_testing::accuracy::random::{Random, Zipf};
use tollgate_testing::chart;

const KEYS: u32 = 10_000_000;
const REQUESTS: u32 = 40_000_000;
const LIMIT: u64 = 100;
const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const KIBIBYTES: [usize; 6] = [1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10];
const WAYS: [&str; 3] = ["plain count-min", "conservative update", "doorkeeper and conservative update"];

/// The results of the requests.
#[derive(Copy, Clone, Debug, Default)]
struct Outcome {
    deserving: u64,
    denied: u64,
    /// Requests that were admitted beyond the limit.
    over: u64,
    admitted: u64,
}

impl Outcome {
    fn percent(&self) -> f64 {
        100.0 * self.denied as f64 / self.deserving as f64
    }
}

/// Plays one window. `admit` takes a key and returns whether its request is admitted.
fn play(keys: u32, requests: u32, mut admit: impl FnMut(u32) -> bool) -> Outcome {
    let zipf = Zipf::new(keys, 1.0);
    let mut random = Random::new(7);
    let mut used = vec![0_u64; keys as usize + 1];
    let mut outcome = Outcome::default();
    for _ in 0..requests {
        let key = zipf.sample(&mut random);
        let used = &mut used[key as usize];
        let admitted = admit(key);
        if *used < LIMIT {
            outcome.deserving += 1;
            outcome.denied += u64::from(!admitted);
        } else {
            outcome.over += u64::from(admitted);
        }
        *used += u64::from(admitted);
        outcome.admitted += u64::from(admitted);
    }
    outcome
}

fn decide(way: usize, bytes: usize, keys: u32, requests: u32) -> Outcome {
    let hasher = ahash::RandomState::with_seeds(1, 2, 3, 4);
    match way {
        0 => {
            let estimator = Estimator::new(4, bytes / 4 / size_of::<u64>());
            // The count includes the request. The count of a denied key still grows, so only the first hundred requests
            // of a key are admitted.
            play(keys, requests, |key| {
                u64::try_from(estimator.incr(key, 1)).is_ok_and(|count| count <= LIMIT)
            })
        }
        1 => {
            let counts = CountMin::for_memory(bytes, 4).expect("a valid size").with_hasher(hasher);
            play(keys, requests, |key| {
                let hash = counts.hash(&key);
                let admitted = counts.estimate_hash(hash) < LIMIT;
                if admitted {
                    counts.add_hash(hash, 1);
                }
                admitted
            })
        }
        _ => {
            let window = FixedWindow::new(Quota::per_hour(LIMIT));
            let builder = RateLimiter::builder(window).capacity(Capacity::memory(bytes)).hasher(hasher);
            let limiter = builder.sketch().expect("a valid size");
            play(keys, requests, |key| limiter.at(NOW).check(&key).is_allowed())
        }
    }
}

fn main() {
    // Cargo passes `--bench` for a bench run. Without it (as in `cargo test --benches`), this is only a short test run
    // of all methods.
    let usual = if support::has("--bench") { 1 } else { 64 };
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench").peekable();
    let json = arguments.next_if(|first| first == "--json").and_then(|_| arguments.next());
    let mut points = Vec::new();
    let scale = arguments
        .next()
        .map_or(usual, |scale| scale.parse::<u32>().expect("the scale must be a whole number"));
    println!("percent of deserving requests denied (and requests admitted beyond the limit)");
    let mut lines: Vec<Vec<(f64, f64)>> = vec![Vec::new(); WAYS.len()];
    for kibibytes in KIBIBYTES {
        let bytes = (kibibytes << 10) / scale as usize;
        for (way, name) in WAYS.iter().enumerate() {
            let outcome = decide(way, bytes, KEYS / scale, REQUESTS / scale);
            println!(
                "{:6.2} MiB {name:36} {:9.5} ({})",
                bytes as f64 / 1_048_576.0,
                outcome.percent(),
                outcome.over
            );
            points.push(serde_json::json!({
                "way": name, "mebibytes": kibibytes as f64 / 1024.0, "denied_percent": outcome.percent(),
                "admitted_beyond": outcome.over, "deserving": outcome.deserving,
            }));
            lines[way].push((bytes as f64 / 1_048_576.0, outcome.percent()));
        }
    }
    if let Some(path) = json {
        let report = serde_json::json!({ "scale": scale, "points": points });
        support::write(&path, &format!("{report:#}\n"));
    }
    if let Some(path) = arguments.next() {
        draw(&path, &lines);
    }
}

/// Draws one line per method. Both axes are logarithmic.
fn draw(path: &str, lines: &[Vec<(f64, f64)>]) {
    // Smaller values are drawn at this value: one request in ten million.
    let least = 1e-5;
    let memory: Vec<f64> = lines[0].iter().map(|point| point.0).collect();
    let (first, last) = (memory[0], memory[memory.len() - 1]);
    let colours = [chart::VERMILION, chart::BLUE, chart::BLACK];
    let line = |((line, name), colour): ((&Vec<(f64, f64)>, &str), _)| {
        let points = line.iter().map(|&(memory, percent)| [memory, percent.max(least)]).collect();
        chart::Line { name: name.to_owned(), colour, is_dashed: false, points }
    };
    let panel = chart::Panel {
        caption: String::new(),
        x: chart::Axis::log("memory, MiB", first, last, memory),
        y: chart::Axis::log(
            "% of deserving requests denied",
            least,
            100.0,
            (-5..=2).map(|power| 10_f64.powi(power)).collect(),
        ),
        lines: lines.iter().zip(WAYS).zip(colours).map(line).collect(),
        legend: Some([0.0, 1.0]),
    };
    let title = "Deserving requests denied, by memory (limit 100, 10 M keys, 40 M requests)";
    std::fs::write(path, chart::draw(title, 720, 440, &[panel])).expect("writing");
}
