//! Charges that are later than the time of a load: the clock stops between its reading and the publication, or the
//! caller gives an older time. Each of them still counts after the load.

use std::sync::Arc;
use std::time::Duration;

use tollgate::Timestamp;
use tollgate_rules::{Charging, Config, Descriptor, Rules};

use super::{START, config};
use tollgate_testing::stopping::Stopping;

const KEYS: [[(&str, &str); 1]; 3] = [[("a", "x")], [("b", "x")], [("c", "x")]];

/// Three rules with the same limit. The numbers differ in each load, so each load changes all rules.
fn text(kind: &str, limit: u64) -> Config {
    let (unit, settings) = kind.split_once(' ').unwrap_or((kind, ""));
    let rule = |key: &str| {
        format!("{{ key: {key}, rate_limit: {{ unit: {unit}, requests_per_unit: {limit} {settings} }} }}")
    };
    let rules = ["a", "b", "c"].map(rule).join(", ");
    config(&format!("{{ domain: d, tollgate: {{}}, descriptors: [ {rules} ] }}"))
}

const KINDS: [&str; 9] = [
    "second , algorithm: gcra, burst: 20",
    "second , algorithm: gcra, burst: 20, store: keyed",
    "second , algorithm: token-bucket, burst: 20",
    "second",
    "second , store: keyed",
    "second , algorithm: sliding-window",
    "second , algorithm: sliding-window, store: keyed",
    "second , algorithm: sub-window",
    "second , algorithm: sliding-log",
];

/// The units in a second. A refill needs a short interval, and a window only has to be filled.
fn units(kind: &str) -> u64 {
    if kind.contains("burst") { 1_000 } else { 40 }
}

fn rules(kind: &str, charging: Charging, clock: &Stopping) -> Arc<Rules<Stopping>> {
    let rules = Rules::builder().clock(clock.clone()).charging(charging).load([text(kind, units(kind))]);
    Arc::new(rules.unwrap())
}

/// The number of admitted requests with this many descriptors, at a given time or by the clock.
fn drain(rules: &Rules<Stopping>, descriptors: usize, at: Option<Timestamp>) -> u64 {
    let descriptors: Vec<_> = KEYS[..descriptors].iter().map(|key| Descriptor::new(key)).collect();
    let ask = || match at {
        Some(at) => rules.at(at).check("d", &descriptors),
        None => rules.check("d", &descriptors),
    };
    (0..).take_while(|_| ask().is_allowed()).count() as u64
}

/// The units that are admitted at once, under the first limit.
fn burst(kind: &str) -> u64 {
    if kind.contains("burst") { 20 } else { units(kind) }
}

// G65
#[test]
fn charge_before_late_load_counts() {
    for kind in KINDS {
        for charging in [Charging::AllOrNothing, Charging::CountFirst, Charging::CountDenials] {
            for (late_ms, descriptors) in [(41, 1), (41, 2), (41, 3), (2_000, 1), (2_000, 3)] {
                let what = format!("{kind}, {charging:?}, {late_ms} ms late, {descriptors} descriptors");
                let clock = Stopping::new(START);
                let rules = rules(kind, charging, &clock);
                // A load reads the clock more than once. Each of its readings is held up once.
                let mut stopped = 0;
                for load in 0..4_u64 {
                    clock.time.advance(Duration::from_secs(3));
                    let (other, time) = (Arc::clone(&rules), clock.time.clone());
                    let before = u32::try_from(load % 2).unwrap();
                    let told = Arc::new(std::sync::Mutex::new(0));
                    let used = Arc::clone(&told);
                    clock.stop_after(before, move || {
                        time.advance(Duration::from_millis(late_ms));
                        *used.lock().unwrap() = drain(&other, descriptors, None);
                    });
                    rules.replace([text(kind, units(kind) + 1 + load % 2)]).unwrap();
                    stopped += u64::from(!clock.go_on());
                    let used = *told.lock().unwrap();
                    let more = drain(&rules, descriptors, None);
                    // Under the new limit, there may be a unit more.
                    let most = if kind.contains("burst") { 0 } else { 2 };
                    assert!(used > 0 && more <= most, "{what}, load {load}: {used}, then {more}");
                }
                assert_eq!(stopped, 4, "{what}: the loads read the clock");
            }
        }
    }
}

/// A load at a given time before the latest charge is decided as of that charge.
// G65
#[test]
fn charge_after_given_time_of_load_counts() {
    for kind in KINDS {
        for before_ms in [1, 41, 1_001, 60_000] {
            for descriptors in 1..=3 {
                let clock = Stopping::new(START);
                let rules = rules(kind, Charging::AllOrNothing, &clock);
                let early = Timestamp::from_nanos(START.as_nanos() - before_ms * 1_000_000);
                assert_eq!(drain(&rules, descriptors, Some(START)), burst(kind));
                for load in 0..3 {
                    rules.at(early).replace([text(kind, units(kind) + 1 - load % 2)]).unwrap();
                    let more = drain(&rules, descriptors, Some(START));
                    assert!(more <= 1 - load.min(1), "{kind}, {before_ms} ms before, load {load}: {more}");
                }
                let later = START + Duration::from_secs(2);
                let most = burst(kind) + u64::from(burst(kind) > 20);
                assert_eq!(drain(&rules, descriptors, Some(later)), most);
            }
        }
    }
}
