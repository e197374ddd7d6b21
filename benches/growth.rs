//! Does a growing keyed table show in the tail of the latency?
//!
//! ```text
//! cargo bench --bench growth                      0 to 4 M keys
//! cargo bench --bench growth -- --keys 1000000 --json FILE
//! ```
//! Part one uses one thread. Every key is new, and after each new key, one of 1,000 hot keys is checked. Both
//! operations are timed one by one.
//! Part two uses two threads. One adds keys as fast as possible; the other times checks of the hot keys. This shows
//! which operations wait for the growth.
//! Tollgate and governor (ahash) alternate by blocks in part one and by runs in part two, so that a busy machine
//! affects both.
//!
//! Each figure is the named percentile over all operations of its kind; `max` is the slowest operation. Timing adds one
//! counter read, and the operating system's interruptions are in every row. The row `clock alone` shows both; only the
//! time above it belongs to the table.
//! Known bias: if the allocator must ask the system for memory, a new key's time includes that, as in practice.

mod support;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};

use governor::clock::QuantaClock as GovernorClock;
use governor::state::keyed::DashMapStateStore;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tollgate::{Gcra, Keyed, RateLimiter};

use support::{XorShift, count, key, length};

const HOT: u64 = 1_000;
/// Operations of one subject before the other takes its turn.
const BLOCK: u64 = 4_096;
/// Runs of each subject in part two.
const RUNS: usize = 3;

trait Table: Sync {
    const NAME: &'static str;
    fn new() -> Self;
    /// Checks `key`, which must be admitted.
    fn check(&self, key: u64);
    fn keys(&self) -> usize;
}

struct Ours(RateLimiter<Keyed<u64>>);

impl Table for Ours {
    const NAME: &'static str = "tollgate keyed";

    fn new() -> Self {
        let quota = tollgate::Quota::per_minute(1).burst(10_000_000);
        Self(RateLimiter::builder(Gcra::new(quota)).keyed())
    }

    #[inline(always)]
    fn check(&self, key: u64) {
        assert!(self.0.check(&key).is_allowed());
    }

    fn keys(&self) -> usize {
        self.0.len()
    }
}

type GovernorStore = DashMapStateStore<u64, ahash::RandomState>;

struct Governor(governor::RateLimiter<u64, GovernorStore, GovernorClock>);

impl Table for Governor {
    const NAME: &'static str = "governor + ahash";

    fn new() -> Self {
        let (rate, burst) = const { (NonZeroU32::new(1).unwrap(), NonZeroU32::new(10_000_000).unwrap()) };
        let quota = governor::Quota::per_minute(rate).allow_burst(burst);
        let store = GovernorStore::with_hasher(ahash::RandomState::new());
        Self(governor::RateLimiter::new(quota, store, GovernorClock::default()))
    }

    #[inline(always)]
    fn check(&self, key: u64) {
        assert!(self.0.check_key(&key).is_ok());
    }

    fn keys(&self) -> usize {
        self.0.len()
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds")
}

/// Times single operations. The end of one operation is the start of the next.
struct Timer {
    clock: quanta::Clock,
    last: u64,
}

impl Timer {
    fn new() -> Self {
        let clock = quanta::Clock::new();
        Self { last: clock.raw(), clock }
    }

    #[inline(always)]
    fn restart(&mut self) {
        self.last = self.clock.raw();
    }

    #[inline(always)]
    fn lap(&mut self, into: &mut Histogram<u64>) {
        let now = self.clock.raw();
        into.saturating_record(self.clock.delta_as_nanos(self.last, now));
        // The time for recording does not count as part of the next operation.
        self.last = self.clock.raw();
    }
}

/// One subject's histograms.
struct Record {
    name: &'static str,
    what: &'static str,
    histogram: Histogram<u64>,
}

fn block<T: Table>(
    table: &T,
    from: u64,
    to: u64,
    hot: &mut XorShift,
    first: &mut Histogram<u64>,
    known: &mut Histogram<u64>,
) {
    let mut timer = Timer::new();
    for number in from..to {
        let (new, old) = (key(number), key(hot.below(HOT)));
        timer.restart();
        table.check(new);
        timer.lap(first);
        table.check(old);
        timer.lap(known);
    }
}

fn one_thread(keys: u64, records: &mut Vec<Record>) {
    let (ours, governor) = (Ours::new(), Governor::new());
    for number in 0..HOT {
        ours.check(key(number));
        governor.check(key(number));
    }
    let mut figures: [Histogram<u64>; 5] = std::array::from_fn(|_| histogram());
    let [ours_first, ours_hot, governor_first, governor_hot, clock] = &mut figures;
    let mut from = HOT;
    while from < keys {
        let to = (from + BLOCK).min(keys);
        // Both subjects check the same hot keys.
        block(&ours, from, to, &mut XorShift::new(from), ours_first, ours_hot);
        block(&governor, from, to, &mut XorShift::new(from), governor_first, governor_hot);
        let mut timer = Timer::new();
        for _ in from..to {
            timer.lap(clock);
        }
        from = to;
    }
    assert_eq!((count(ours.keys()), count(governor.keys())), (keys, keys));
    let names = [
        (Ours::NAME, "first sight"),
        (Governor::NAME, "first sight"),
        (Ours::NAME, "hot check between"),
        (Governor::NAME, "hot check between"),
        ("clock alone", "one thread"),
    ];
    let [ours_first, ours_hot, governor_first, governor_hot, clock] = figures;
    let ordered = [ours_first, governor_first, ours_hot, governor_hot, clock];
    records.extend(names.into_iter().zip(ordered).map(|((name, what), histogram)| Record {
        name,
        what,
        histogram,
    }));
}

fn beside_growth<T: Table>(keys: u64, run: usize, into: &mut Histogram<u64>) {
    let table = T::new();
    for number in 0..HOT {
        table.check(key(number));
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in HOT..keys {
                table.check(key(number));
            }
            done.store(true, Ordering::Release);
        });
        let (mut timer, mut rng) = (Timer::new(), XorShift::new(count(run)));
        while !done.load(Ordering::Acquire) {
            for _ in 0..64 {
                let old = key(rng.below(HOT));
                timer.restart();
                table.check(old);
                timer.lap(into);
            }
        }
    });
    assert_eq!(count(table.keys()), keys);
}

/// Measures the clock alone while another thread keeps its processor busy without shared data.
fn beside_nothing(operations: u64, into: &mut Histogram<u64>) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = XorShift::new(1);
            while !done.load(Ordering::Acquire) {
                std::hint::black_box(rng.draw());
            }
        });
        let mut timer = Timer::new();
        for _ in 0..operations {
            timer.lap(into);
        }
        done.store(true, Ordering::Release);
    });
}

fn two_threads(keys: u64, records: &mut Vec<Record>) {
    let mut figures: [Histogram<u64>; 3] = std::array::from_fn(|_| histogram());
    let [ours, governor, clock] = &mut figures;
    for run in 0..RUNS {
        beside_growth::<Ours>(keys, run, ours);
        beside_growth::<Governor>(keys, run, governor);
        beside_nothing(keys, clock);
    }
    let names = [Ours::NAME, Governor::NAME, "clock alone"];
    let what = "hot check beside growth";
    records.extend(names.into_iter().zip(figures).map(|(name, histogram)| Record { name, what, histogram }));
}

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];

fn print(records: &[Record]) {
    print!("{:<18} {:<24} {:>10} {:>8}", "", "", "operations", "mean");
    for (name, _) in QUANTILES {
        print!(" {name:>8}");
    }
    println!(" {:>12}   (ns)", "max");
    for Record { name, what, histogram } in records {
        print!("{name:<18} {what:<24} {:>10} {:>8.1}", histogram.len(), histogram.mean());
        for (_, quantile) in QUANTILES {
            print!(" {:>8}", histogram.value_at_quantile(quantile));
        }
        println!(" {:>12}", histogram.max());
    }
}

fn json(records: &[Record]) -> Value {
    let row = |Record { name, what, histogram }: &Record| {
        let mut row = json!({
            "subject": name, "operation": what, "operations": histogram.len(),
            "mean_ns": histogram.mean(), "max_ns": histogram.max(),
        });
        for (name, quantile) in QUANTILES {
            row[format!("{name}_ns")] = histogram.value_at_quantile(quantile).into();
        }
        row
    };
    records.iter().map(row).collect::<Vec<_>>().into()
}

fn main() {
    // Without cargo's `--bench` (as in `cargo test --benches`), this is only a short test run.
    let default = if support::has("--bench") { 4_000_000 } else { 20_000 };
    let keys =
        support::option("--keys").map_or(default, |text| text.parse().expect("--keys NUMBER")).max(HOT);
    let mut records = Vec::new();
    one_thread(keys, &mut records);
    two_threads(keys, &mut records);
    println!("A keyed table grows from 0 to {} keys", length(keys));
    print(&records);
    if let Some(path) = support::option("--json") {
        let report = json!({"keys": keys, "rows": json(&records)});
        support::write(&path, &format!("{report:#}\n"));
    }
}
