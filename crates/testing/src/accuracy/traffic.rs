//! Generates the requests of a traffic model. A request is a key and a time.

use super::random::{Random, Zipf};
use tollgate::Quota;

pub const SEC: u64 = 1_000_000_000;
/// All times are multiples of this step, 0.1 ms. The step is a whole number of ticks of every quota here, so a store
/// with enough room decides exactly as the oracle.
pub const STEP_NS: u64 = 100_000;
pub const START_NS: u64 = 1_700_000_000 * SEC;

/// Traffic of returning keys: a few keys are frequent, and most are rare. It may include a flood of keys that make only
/// one request each.
#[derive(Copy, Clone, Debug)]
pub struct Traffic {
    pub name: &'static str,
    /// The units per period. The burst has the same size.
    pub limit: u64,
    pub burst: u64,
    pub period_ns: u64,
    /// The number of returning keys.
    pub keys: u32,
    /// The exponent of the Zipf distribution of the returning keys.
    pub exponent: f64,
    /// The requests of returning keys per second.
    pub honest_per_second: u64,
    /// The requests of the flood per second, each with a new key.
    pub flood_per_second: u64,
    /// The time of the first request: a whole number of seconds.
    pub start_ns: u64,
}

/// Ten million keys, mostly rare, without a flood.
pub const A: Traffic = Traffic {
    name: "A",
    limit: 20,
    burst: 20,
    period_ns: 60 * SEC,
    keys: 10_000_000,
    exponent: 0.8,
    honest_per_second: 100_000,
    flood_per_second: 0,
    start_ns: START_NS,
};

/// One million keys, and a flood with eight times as many requests.
pub const B: Traffic = Traffic {
    name: "B",
    limit: 100,
    burst: 100,
    period_ns: 60 * SEC,
    keys: 1_000_000,
    exponent: 1.0,
    honest_per_second: 50_000,
    flood_per_second: 400_000,
    start_ns: START_NS,
};

/// One request.
#[derive(Copy, Clone, Debug)]
pub struct Request {
    pub now_ns: u64,
    pub key: u64,
    /// The key's index, or `None` for a key of the flood, which makes only one request.
    pub index: Option<usize>,
}

impl Traffic {
    /// Returns this traffic with its keys and requests divided by `by`. If the memory of the store is divided by `by`
    /// too, the ratio of keys to slots stays the same.
    pub fn scaled(self, by: u64) -> Self {
        Self {
            keys: u32::try_from(u64::from(self.keys) / by).expect("fewer keys fit in 32 bits"),
            honest_per_second: self.honest_per_second / by,
            flood_per_second: self.flood_per_second / by,
            ..self
        }
    }

    pub fn quota(&self) -> Quota {
        Quota::try_new(self.limit, std::time::Duration::from_nanos(self.period_ns))
            .and_then(|quota| quota.try_burst(self.burst))
            .expect("a quota")
    }

    pub fn interval_ns(&self) -> u64 {
        assert_eq!(self.period_ns % self.limit, 0, "the oracle needs a whole number of nanoseconds per unit");
        self.period_ns / self.limit
    }

    pub fn per_second(&self) -> u64 {
        self.honest_per_second + self.flood_per_second
    }

    /// Returns the requests of the first `seconds` seconds, evenly spaced in time. No key has a debt at second 0.
    pub fn requests(&self, seed: u64, seconds: u64) -> impl Iterator<Item = Request> + use<> {
        let Self { keys, exponent, flood_per_second, start_ns, .. } = *self;
        let zipf = Zipf::new(keys, exponent);
        let mut random = Random::new(seed);
        let per_second = self.per_second();
        (0..seconds * per_second).map(move |number| {
            let exact_ns = u128::from(number) * u128::from(SEC) / u128::from(per_second);
            let passed_ns = u64::try_from(exact_ns).expect("a time of minutes") / STEP_NS * STEP_NS;
            let flood = flood_per_second > 0 && random.below(per_second) < flood_per_second;
            let (key, index) = if flood {
                ((1 << 63) | number, None)
            } else {
                let rank = zipf.sample(&mut random);
                (u64::from(rank), Some(rank as usize - 1))
            };
            Request { now_ns: start_ns + passed_ns, key, index }
        })
    }
}
