//! Rates: ours, and pingora-limits' with as much memory, as it comes, and with as little error.

use std::time::Duration;

use pingora_limits::estimator::Estimator;
use pingora_limits::rate::Rate as PingoraRate;
use tollgate::sketch::Rate;

use crate::subject::{Recipe, Setup, Subject};
use crate::support::{count, key, length};

const WINDOW: Duration = Duration::from_secs(1);
/// What pingora-limits takes by default: two sketches of 4 rows of 1,024 counters of 8 bytes.
const SMALL: usize = 2 * 4 * 1_024 * 8;
/// Where a million keys have counters of their own.
const LARGE: usize = 16 << 20;

/// As much as the scenario's keys want.
fn bytes(setup: Setup) -> usize {
    if setup.population > 10_000 { LARGE } else { SMALL }
}

/// Columns of pingora's four rows, twice, in so many bytes.
fn columns(bytes: usize) -> usize {
    bytes / 8 / 4 / 2
}

pub(crate) fn ours(bytes: usize, largest: u64) -> Rate {
    Rate::builder(WINDOW).memory(bytes).largest(largest).build().expect("it fits")
}

pub(crate) fn pingora(columns: usize) -> PingoraRate {
    PingoraRate::new_with_estimator_config(WINDOW, 4, columns)
}

struct Ours(Rate);

impl Subject<u64> for Ours {
    #[inline(always)]
    fn check(&self, key: &u64) -> bool {
        self.0.observe(key, 1) > 0
    }
}

struct Pingora(PingoraRate);

impl Subject<u64> for Pingora {
    #[inline(always)]
    fn check(&self, key: &u64) -> bool {
        self.0.observe(key, 1) > 0
    }
}

const UNSEEN: u64 = 1 << 40;
const PROBES: u64 = 200_000;

/// The mean count of keys that were never seen, once each of so many was seen once: ours.
pub(crate) fn our_error(rate: &Rate, population: u64) -> f64 {
    let now = tollgate::Timestamp::from_secs(1);
    for number in 0..population {
        rate.observe_at(&key(number), 1, now);
    }
    let sum: u64 = (UNSEEN..UNSEEN + PROBES).map(|number| rate.current_at(&key(number), now)).sum();
    crate::summary::float(sum) / crate::summary::float(PROBES)
}

/// The same for pingora's.
pub(crate) fn pingora_error(columns: usize, population: u64) -> f64 {
    let estimator = Estimator::new(4, columns);
    for number in 0..population {
        estimator.incr(key(number), 1);
    }
    let sum: isize = (UNSEEN..UNSEEN + PROBES).map(|number| estimator.get(key(number))).sum();
    crate::summary::float(u64::try_from(sum).expect("no decrements")) / crate::summary::float(PROBES)
}

/// The columns with which pingora's error is no more than ours, to within a quarter.
pub(crate) fn equal_columns(bytes: usize, population: u64) -> usize {
    let error = our_error(&ours(bytes, (1 << 24) - 1), population);
    let mut columns = columns(bytes) / 4;
    while pingora_error(columns, population) > error {
        columns = columns * 5 / 4;
    }
    columns
}

pub(crate) const OURS: &str = "Rate";
pub(crate) const PINGORA: &str = "pingora, same memory";
pub(crate) const EQUAL: &str = "pingora, same error";

pub(crate) fn recipes() -> Vec<Recipe<u64>> {
    vec![
        Recipe {
            name: OURS,
            counts: "observe: 24-bit counts of two windows",
            build: |setup| Box::new(Ours(ours(bytes(setup), (1 << 24) - 1))),
        },
        Recipe {
            name: "Rate, 12-bit counts",
            counts: "observe, counts up to 4,095",
            build: |setup| Box::new(Ours(ours(bytes(setup), (1 << 12) - 1))),
        },
        Recipe {
            name: PINGORA,
            counts: "observe, 4 rows",
            build: |setup| Box::new(Pingora(pingora(columns(bytes(setup))))),
        },
        Recipe {
            name: EQUAL,
            counts: "observe, 4 rows, of as many columns as make its mean error no more than ours",
            build: |setup| {
                let columns = equal_columns(bytes(setup), setup.population);
                println!("equal columns {} for {}", columns, setup.population);
                Box::new(Pingora(pingora(columns)))
            },
        },
    ]
}

#[allow(unused)]
fn unused() {
    let _ = (count(0), length(0));
}
