//! Measures how often a sketch of windows denies wrongly.

use tollgate::{Capacity, FixedWindow, ManualClock, Quota, RateLimiter, Timestamp};
use tollgate_testing::accuracy::random::{Random, Zipf};
use tollgate_testing::compact::Seeded;
use tollgate_testing::{HOUR, SEC};

const START: u64 = 1_700_000_000 * SEC;

/// Counts of wrong decisions in one window of traffic.
#[derive(Default, Debug)]
struct Errors {
    deserving: u64,
    denied_wrongly: u64,
    admitted_wrongly: u64,
}

impl Errors {
    fn denied_share(&self) -> f64 {
        self.denied_wrongly as f64 / self.deserving as f64
    }
}

/// Plays 40 M requests of 10 M keys (Zipf 1.0) in one window with a limit of 100 per key, in `mebibytes` of memory.
/// Requests, keys and memory are divided by `scale`.
fn one_window(scale: u32, mebibytes: usize, seed: u64) -> (Errors, tollgate::stores::Saturation) {
    const LIMIT: u64 = 100;
    let keys = 10_000_000 / scale;
    let bytes = (mebibytes << 20) / scale as usize;
    // Each seed starts in another phase of the sixteen-bit tags of hours.
    let clock = ManualClock::new(Timestamp::from_nanos(START + seed * (1 << 16) / 5 * HOUR));
    let builder =
        RateLimiter::builder(FixedWindow::new(Quota::per_hour(LIMIT))).clock(clock).hasher(Seeded(seed));
    let limiter = builder.capacity(Capacity::memory(bytes)).sketch().expect("a valid quota");
    let (zipf, mut random) = (Zipf::new(keys, 1.0), Random::new(seed));
    let mut used = vec![0_u64; keys as usize + 1];
    let mut errors = Errors::default();
    for _ in 0..40_000_000 / scale {
        let key = zipf.sample(&mut random);
        let used = &mut used[key as usize];
        let allowed = limiter.check(&key).is_allowed();
        errors.deserving += u64::from(*used < LIMIT);
        errors.denied_wrongly += u64::from(*used < LIMIT && !allowed);
        errors.admitted_wrongly += u64::from(*used >= LIMIT && allowed);
        *used += u64::from(allowed);
    }
    (errors, limiter.saturation())
}

/// Returns the percentage of deserving requests that were denied, over several hashers. One unlucky key contributes a
/// tenth of it.
fn percent_denied_wrongly(scale: u32, mebibytes: usize) -> f64 {
    let mut all = Errors::default();
    for seed in 1..=5 {
        let (errors, saturation) = one_window(scale, mebibytes, seed);
        assert_eq!(errors.admitted_wrongly, 0, "a request was admitted after its key had used the limit");
        assert!(saturation.denied > 0.0 && saturation.denied < 0.01, "{saturation:?}");
        all.deserving += errors.deserving;
        all.denied_wrongly += errors.denied_wrongly;
    }
    let percent = 100.0 * all.denied_share();
    println!("{mebibytes} MiB / {scale}: {percent:.4} % of {} deserving requests denied", all.deserving);
    percent
}

// G21
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn sketch_rarely_denies_wrongly_small_scale() {
    let percent = percent_denied_wrongly(64, 4);
    assert!(percent < 0.06, "{percent} %");
}

/// Checks that the results are within a factor of two of earlier measurements: 0.075, 0.021 and 0.011 %. The design's
/// target is 0.02 % in 4 MiB at full scale.
// G21
#[test]
#[ignore = "for release builds: 37 million requests"]
fn sketch_rarely_denies_wrongly_large_scale() {
    for (mebibytes, most) in [(2, 0.15), (4, 0.04), (8, 0.022)] {
        let percent = percent_denied_wrongly(16, mebibytes);
        assert!(percent < most, "{mebibytes} MiB: {percent} %");
    }
}
