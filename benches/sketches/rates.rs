//! Rates: Tollgate's `Rate`, and pingora-limits' `Rate` with the same memory and with the same error.

use std::time::Duration;

use pingora_limits::estimator::Estimator;
use pingora_limits::rate::Rate as PingoraRate;
use tollgate::Timestamp;
use tollgate::sketch::Rate;

use crate::subject::{Recipe, Setup};
use crate::summary::float;
use crate::support::{count, key};
use crate::{Scene, call};

/// The window of both rates. With a window of one second, windows end during the bench, as they do on a server.
const WINDOW: Duration = Duration::from_secs(1);
/// The default memory of pingora-limits: two sketches of 4 rows of 1,024 counters of 8 bytes.
pub(crate) const SMALL: usize = 2 * 4 * 1_024 * 8;
const LARGE: usize = 16 << 20;

fn bytes(setup: Setup) -> usize {
    if setup.population > 10_000 { LARGE } else { SMALL }
}

/// Returns the number of columns that each of pingora's four rows gets if its two sketches take `bytes` bytes together.
pub(crate) fn columns(bytes: usize) -> usize {
    bytes / 8 / 4 / 2
}

pub(crate) fn ours(window: Duration, bytes: usize, largest: u64) -> Rate {
    Rate::builder(window).memory(bytes).largest(largest).build().expect("the configuration is valid")
}

pub(crate) fn pingora(window: Duration, columns: usize) -> PingoraRate {
    PingoraRate::new_with_estimator_config(window, 4, columns)
}

pub(crate) const DEFAULT_LARGEST: u64 = (1 << 24) - 1;
const UNSEEN: u64 = 1 << 40;
const PROBES: u64 = 100_000;

/// Returns the mean count of keys without events, after one event of each of `population` other keys.
fn our_error(bytes: usize, population: u64) -> f64 {
    let (rate, now) = (ours(WINDOW, bytes, DEFAULT_LARGEST), Timestamp::from_secs(1));
    for number in 0..population {
        rate.observe_at(&key(number), 1, now);
    }
    let sum: u64 = (UNSEEN..UNSEEN + PROBES).map(|number| rate.current_at(&key(number), now)).sum();
    float(sum) / float(PROBES)
}

fn pingora_error(columns: usize, population: u64) -> f64 {
    let estimator = Estimator::new(4, columns);
    for number in 0..population {
        estimator.incr(key(number), 1);
    }
    let sum: isize = (UNSEEN..UNSEEN + PROBES).map(|number| estimator.get(key(number))).sum();
    float(u64::try_from(sum).expect("counts never decrease")) / float(PROBES)
}

/// Returns a number of columns with which pingora's error is at most ours. The result is at most a fifth larger than
/// necessary.
fn equal_columns(setup: Setup) -> usize {
    let error = our_error(bytes(setup), setup.population);
    let mut columns = columns(bytes(setup)) / 2;
    while pingora_error(columns, setup.population) > error {
        columns = columns * 6 / 5;
    }
    columns
}

pub(crate) const OURS: &str = "Rate";
pub(crate) const SAME_MEMORY: &str = "pingora, same memory";
pub(crate) const SAME_ERROR: &str = "pingora, same error";

fn recipes() -> Vec<Recipe<u64>> {
    vec![
        Recipe {
            name: OURS,
            counts: "observe; counts of 24 bits; 64 KiB, or 16 MiB for a million keys",
            build: |setup| {
                let rate = ours(WINDOW, bytes(setup), DEFAULT_LARGEST);
                call(move |key| rate.observe(key, 1) > 0)
            },
        },
        Recipe {
            name: "Rate, 12 bits",
            counts: "observe; counts of 12 bits, two of a key in a word; as much memory",
            build: |setup| {
                let rate = ours(WINDOW, bytes(setup), (1 << 12) - 1);
                call(move |key| rate.observe(key, 1) > 0)
            },
        },
        Recipe {
            name: "Rate, rate and observe",
            counts: "both counts of a key, and then observe",
            build: |setup| {
                let rate = ours(WINDOW, bytes(setup), DEFAULT_LARGEST);
                call(move |key| rate.components(key).sliding_rate() >= 0.0 && rate.observe(key, 1) > 0)
            },
        },
        Recipe {
            name: SAME_MEMORY,
            counts: "observe; 4 rows",
            build: |setup| {
                let rate = pingora(WINDOW, columns(bytes(setup)));
                call(move |key| rate.observe(key, 1) > 0)
            },
        },
        Recipe {
            name: SAME_ERROR,
            counts: "observe; 4 rows of as many columns as make its mean error no more than Rate's",
            build: |setup| {
                let rate = pingora(WINDOW, equal_columns(setup));
                call(move |key| rate.observe(key, 1) > 0)
            },
        },
    ]
}

pub(crate) fn scenes() -> [Scene; 2] {
    [
        Scene::known("rate-hot", "Rates: observe one of 1,000 keys", 1_000, SAME_MEMORY, recipes()),
        Scene::known("rate-1m", "Rates: observe one of 1 M keys", 1_000_000, SAME_MEMORY, recipes()),
    ]
}

/// Returns a row for each number of keys: this number, the memory in bytes, our mean error, and pingora's mean error.
/// The error is the mean count of keys without events.
pub(crate) fn errors(smoke: bool) -> Vec<(u64, usize, f64, f64)> {
    let keys = if smoke { vec![1_000] } else { vec![1_000, 10_000, 100_000] };
    let row = |keys| (keys, SMALL, our_error(SMALL, keys), pingora_error(columns(SMALL), keys));
    keys.into_iter().map(row).collect()
}

/// Returns the keys of the events for the measurement of window turns.
pub(crate) fn hot() -> Vec<u64> {
    let mut rng = crate::support::XorShift::new(1);
    (0..1 << 14).map(|_| key(rng.below(count(1_000)))).collect()
}
