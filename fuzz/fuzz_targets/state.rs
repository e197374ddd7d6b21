//! Restores rules and limiters from random bytes. They give an error, or a state that decides without a panic, and that can
//! be saved and restored again.
//!
//! The first bytes choose rules, a time, and whether the rest is a whole snapshot or changes of a valid one. The checksum is
//! always right, so that the content is read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::{Gcra, ManualClock, Quota, RateLimiter, SlidingLog, Timestamp};
use tollgate_rules::{Config, Descriptor, Rules, RulesSnapshot};
use tollgate_testing::compact::seal;

const KINDS: [&str; 8] = [
    "",
    ", store: keyed",
    ", algorithm: gcra, store: keyed, hold: {}",
    ", algorithm: sliding-window, store: keyed",
    ", algorithm: sub-window",
    ", algorithm: sliding-log",
    ", algorithm: gcra, block: { for: 9s, at_most: 1h }",
    ", hold: {}",
];
const START: u64 = 1_700_000_000_000_000_000;
const REQUEST: [(&str, &str); 1] = [("a", "x")];

fn config(kind: &str) -> Config {
    let limit = format!("{{ unit: minute, requests_per_unit: 5{kind} }}");
    let text = format!("{{ domain: d, tollgate: {{}}, descriptors: [ {{ key: a, rate_limit: {limit} }} ] }}");
    Config::from_yaml("fuzz", &text).expect("the file is valid")
}

fn saved(rules: &Rules<ManualClock>) -> Vec<u8> {
    let mut bytes = Vec::new();
    rules.snapshot(&mut bytes).expect("a vector takes all bytes");
    bytes
}

/// Makes a snapshot of random bytes: whole, or pairs of a place and a byte that change a valid one.
fn forged(mut valid: Vec<u8>, begin: usize, is_whole: bool, data: &[u8]) -> Vec<u8> {
    if is_whole {
        valid.truncate(begin);
        valid.extend_from_slice(data);
        valid.extend_from_slice(&[0; 8]);
    } else {
        let len = valid.len() - 8 - begin;
        for change in data.chunks_exact(3) {
            valid[begin + usize::from(u16::from_le_bytes([change[0], change[1]])) % len] = change[2];
        }
    }
    seal(&mut valid);
    valid
}

fn rules(kind: &str, now: Timestamp, is_whole: bool, data: &[u8]) {
    let request = [Descriptor::new(&REQUEST)];
    let clock = ManualClock::new(Timestamp::from_nanos(START));
    let builder = Rules::builder().clock(clock.clone());
    let before = builder.load([config(kind)]).expect("the rules load");
    let _ = before.check_n("d", &request, 2);
    let (_, held) = before.hold("d", &request, 1, std::time::Duration::from_secs(60));
    // The magic, the version, the seeds and their probe.
    let bytes = forged(saved(&before), 8 + 4 + 40, is_whole, data);
    let Ok(snapshot) = RulesSnapshot::read(bytes) else { return };
    clock.set(now);
    let builder = Rules::builder().clock(clock).restore(snapshot);
    let after = builder.load([config(kind)]).expect("no snapshot makes a load fail");
    for hits in [0, 1, u64::MAX] {
        let _ = after.check_n("d", &request, hits);
    }
    if let Some(id) = held {
        after.commit("d", &request, id, 4);
    }
    RulesSnapshot::read(saved(&after)).expect("a state that was restored can be saved");
}

// G142
fuzz_target!(|data: &[u8]| {
    let Some(([kind, time], data)) = data.split_first_chunk() else { return };
    let now =
        Timestamp::from_nanos([0, START - 1, START, START + 1_000_000_000, u64::MAX][usize::from(*time) % 5]);
    let is_whole = time & 128 != 0;
    match kind % 10 {
        8 => {
            let limiter =
                || RateLimiter::builder(SlidingLog::new(Quota::per_second(5))).clock(ManualClock::new(now));
            let before = limiter().keyed::<u32>();
            let _ = before.check_n(&1, 3);
            let bytes = forged(before.snapshot(), 8 + 4, is_whole, data);
            let after = limiter().keyed::<u32>();
            if after.restore(&bytes).is_ok() {
                let _ = (after.check(&1), after.charge_unchecked(&1, u64::MAX), after.snapshot());
            }
        }
        9 => {
            let limiter = || {
                RateLimiter::builder(Gcra::new(Quota::per_second(7))).clock(ManualClock::new(now)).direct()
            };
            let before = limiter();
            let _ = before.check_n(3);
            let bytes = forged(before.snapshot(), 8 + 4, is_whole, data);
            let after = limiter();
            if after.restore(&bytes).is_ok() {
                let _ = (after.check(), after.snapshot());
            }
        }
        kind => rules(KINDS[usize::from(kind)], now, is_whole, data),
    }
});
