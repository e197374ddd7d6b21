//! A generated day of requests, the same on every machine: integer arithmetic and a fixed seed.
//!
//! | client | requests | when |
//! |---|---|---|
//! | 20,000 clients, popularity by Zipf's law | 230,000 | all day, four times as busy in the evening as at night |
//! | the most popular of them | 9,000 | within twenty minutes from 20:15, as after a link is shared widely |
//! | `scraper` | 21,600 | two a second from 02:00 to 05:00 |
//! | `cron` | 8,640 | ninety within four seconds around a full minute, every quarter of an hour |
//! | `poller` | 15,157 | 16:00 to 20:00, every 0.9 to 1 s: slightly more than 60 a minute |
//! | `stuck-retrying` | 16,000 | from 11:00, a hundred tries in thirty seconds, then a minute's rest |

use crate::input::{Record, Trace};

const SECOND: u64 = 1_000_000_000;
pub const HOUR: u64 = 3_600 * SECOND;
/// 2026-01-15T00:00:00Z, a Thursday.
pub const DAY: u64 = 1_768_435_200 * SECOND;
const SEED: u64 = 0x7011_6A7E;
const CLIENTS: u32 = 20_000;

/// Requests an hour, relative to each other, from midnight on.
const HOURLY: [u64; 24] =
    [6, 5, 4, 3, 3, 3, 4, 6, 8, 10, 11, 11, 12, 11, 11, 11, 11, 12, 13, 14, 15, 14, 11, 8];

/// SplitMix64 (Steele, Lea and Flood 2014): small, and good enough for this purpose.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`; the bias is below one in a million for bounds below 2^44.
    fn below(&mut self, bound: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(bound)) >> 64).unwrap_or(0)
    }

    /// Returns an index with a probability in proportion to its weight, from the [`sums`] of weights.
    fn index(&mut self, sums: &[u64]) -> usize {
        let at = self.below(*sums.last().unwrap_or(&1));
        sums.partition_point(|&sum| sum <= at)
    }
}

/// Returns the sum of the weights up to each index.
fn sums(weights: impl Iterator<Item = u64>) -> Vec<u64> {
    let sum = |sum: &mut u64, weight| {
        *sum += weight;
        Some(*sum)
    };
    weights.scan(0, sum).collect()
}

/// Generates the day.
pub fn day() -> Trace {
    let mut random = Random(SEED);
    let mut trace = Trace::default();
    let mut push = |key: &str, at: u64| {
        if let Some(key) = trace.keys.intern(key.as_bytes()) {
            trace.records.push(Record { at: DAY + at, cost: 1, key });
        }
    };
    let clients = sums((1..=u64::from(CLIENTS)).map(|rank| 1_000_000_000 / rank));
    let hours = sums(HOURLY.into_iter());
    for _ in 0..230_000 {
        let client = random.index(&clients);
        let hour = random.index(&hours) as u64;
        push(&name(client), hour * HOUR + random.below(HOUR));
    }
    // Only the most popular clients, each equally likely; most requests come at the beginning.
    for _ in 0..9_000 {
        let client = usize::try_from(random.below(u64::from(CLIENTS) / 8)).unwrap_or(0);
        let (a, b) = (random.below(1_200 * SECOND), random.below(1_200 * SECOND));
        push(&name(client), 20 * HOUR + 900 * SECOND + a.min(b));
    }
    for n in 0..21_600 {
        push("scraper", 2 * HOUR + n * SECOND / 2 + random.below(SECOND / 4));
    }
    for n in 0..96 {
        for _ in 0..90 {
            push("cron", n * 900 * SECOND + 58 * SECOND + random.below(4 * SECOND));
        }
    }
    let mut at = 16 * HOUR;
    while at < 20 * HOUR {
        push("poller", at);
        at += SECOND - random.below(SECOND / 10);
    }
    for n in 0..160 {
        for tries in 0..100 {
            push(
                "stuck-retrying",
                11 * HOUR + n * 90 * SECOND + tries * 3 * SECOND / 10 + random.below(SECOND / 10),
            );
        }
    }
    trace.records.sort_by_key(|record| record.at);
    trace.notes.push(
        "generated requests, because no file was named: a day of 20,000 clients,\n         \
         a sudden crowd at 20:15, a scraper from 02:00 to 05:00, a cron job,\n         \
         a poller and a client that keeps retrying"
            .to_owned(),
    );
    trace
}

fn name(client: usize) -> String {
    format!("client-{:05}", client + 1)
}
