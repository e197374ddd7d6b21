//! Properties of rules, over random requests, waits and loads:
//!
//! - With count-first, a fixed window decides as an exact counter that is incremented before each decision. This holds
//!   in every store.
//! - While the clock does not advance, a request is admitted only if the charged units and its cost fit in the limit in
//!   force, whatever was loaded in between. With all-or-nothing, each request that fits is admitted. This holds for
//!   shared counters and for separate ones.
//! - A denied request is admitted after the wait in its answer, and not a nanosecond earlier.
//! - Nothing panics, whatever the times, limits and costs are.

use super::engine::{config, one};
use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tollgate::{ManualClock, Timestamp};
use tollgate_rules::{Charging, Config, Descriptor, Rules, TimeUnit};

const START: Timestamp = Timestamp::from_secs(3_600 * 500_000);
const X: [(&str, &str); 1] = [("a", "x")];
const BOTH: [Charging; 2] = [Charging::AllOrNothing, Charging::CountFirst];

const KINDS: [&str; 12] = [
    "",
    ", store: keyed",
    ", store: compact",
    ", algorithm: gcra",
    ", algorithm: gcra, store: keyed",
    ", algorithm: sliding-window",
    ", algorithm: sliding-window, store: keyed",
    ", algorithm: sliding-window, strict: true",
    ", algorithm: sub-window, parts: 6",
    ", algorithm: sub-window, parts: 6, strict: true",
    ", algorithm: sliding-log",
    ", algorithm: token-bucket",
];
const SKETCHES: [&str; 2] = [", store: sketch", ", store: sketch, algorithm: sliding-window"];

fn rules(text: &str, charging: Charging) -> (Rules<ManualClock>, ManualClock) {
    let clock = ManualClock::new(START);
    let builder = Rules::builder().clock(clock.clone()).charging(charging);
    (builder.load([config(text)]).unwrap_or_else(|error| panic!("{error}")), clock)
}

#[derive(Copy, Clone, Debug)]
enum Op {
    Ask { key: u64, hits: u64 },
    Wait { ns: u64 },
    Load { kind: usize, limit: u64 },
}

// G67
#[test]
fn count_first_matches_exact_counter() {
    let hits = prop_oneof![Just(0), Just(1), 1_u64..12, Just(u64::from(u32::MAX)), Just(u64::MAX)];
    let op = prop_oneof![
        6 => (0_u64..3, hits).prop_map(|(key, hits)| Op::Ask { key, hits }),
        1 => (1_u64..90).prop_map(|seconds| Op::Wait { ns: seconds * 1_000_000_000 }),
    ];
    for (store, limit) in
        [("", 7), (", store: keyed", 7), (", store: compact", 1), (", store: sketch", 7_u64)]
    {
        proptest!(tollgate_testing::operations::config(120), |(ops in prop::collection::vec(op.clone(), 1..60))| {
            let text = one(&format!("{{ unit: minute, requests_per_unit: {limit} {store} }}"));
            let (rules, clock) = rules(&text, Charging::CountFirst);
            let mut now_ns = START.as_nanos();
            let mut counts: HashMap<(u64, u64), u128> = HashMap::new();
            for &op in &ops {
                let (key, hits) = match op {
                    Op::Ask { key, hits } => (key, hits),
                    Op::Wait { ns } | Op::Load { limit: ns, .. } => {
                        now_ns += ns;
                        clock.advance(Duration::from_nanos(ns));
                        continue;
                    }
                };
                let count = counts.entry((key, now_ns / 60_000_000_000)).or_default();
                *count += u128::from(hits);
                let answer = rules.check_n("d", &[Descriptor::new(&[("a", &key.to_string())])], hits);
                prop_assert_eq!(answer.is_denied(), *count > u128::from(limit), "{} {:?} {}", store, op, count);
                let left = u128::from(limit).saturating_sub(*count);
                let said = answer.limits().next().map(|limit| (u128::from(limit.remaining()), limit.quota()));
                prop_assert_eq!(said, Some((left, limit)), "{} {}", store, count);
            }
        });
    }
}

// G65
#[test]
fn reloads_at_one_instant_admit_exact_limit() {
    let op = prop_oneof![
        1 => (0..KINDS.len(), 1_u64..40).prop_map(|(kind, limit)| Op::Load { kind, limit }),
        3 => (0_u64..3, 0_u64..45).prop_map(|(key, hits)| Op::Ask { key, hits }),
    ];
    for (shared, charging) in [(false, BOTH[0]), (true, BOTH[0]), (false, BOTH[1]), (true, BOTH[1])] {
        let text = |kind: usize, limit: u64| {
            let value = if shared { "value: '*', share_threshold: true," } else { "" };
            let limit = format!("{{ unit: hour, requests_per_unit: {limit} {} }}", KINDS[kind]);
            format!(
                "{{ domain: d, tollgate: {{}}, descriptors: [ {{ key: a, {value} rate_limit: {limit} }} ] }}"
            )
        };
        proptest!(tollgate_testing::operations::config(100), |(ops in prop::collection::vec(op.clone(), 1..40))| {
            let (rules, _clock) = rules(&text(0, 10), charging);
            let (mut limit, mut used) = (10, HashMap::<u64, u64>::new());
            for &op in &ops {
                let (key, hits) = match op {
                    Op::Load { kind, limit: new } => {
                        limit = new;
                        rules.replace([config(&text(kind, new))]).unwrap_or_else(|error| panic!("{error}"));
                        continue;
                    }
                    Op::Ask { key, hits } => (key, hits),
                    Op::Wait { .. } => continue,
                };
                let used = used.entry(if shared { 0 } else { key }).or_default();
                let answer = rules.check_n("d", &[Descriptor::new(&[("a", &key.to_string())])], hits);
                let said = answer.limits().next().map(|limit| (limit.remaining(), limit.quota()));
                let (left, quota) = said.unwrap_or_default();
                prop_assert_eq!(quota, limit);
                let fits = hits == 0 || *used + hits <= limit;
                if charging == Charging::AllOrNothing {
                    prop_assert_eq!(answer.is_allowed(), fits, "{} used, {:?} of {}", used, op, limit);
                }
                if answer.is_allowed() {
                    prop_assert!(fits, "{used} used, {op:?} of {limit}");
                    *used += hits;
                }
                let most = limit.saturating_sub(*used);
                // With count-first, denied requests are counted too, and a load may forget those counts.
                let is_right = if charging == Charging::AllOrNothing { left == most } else { left <= most };
                prop_assert!(is_right, "{left} left, {used} used of {limit}");
            }
        });
    }
}

// G67
#[test]
#[ignore = "takes several seconds in a debug build; .ci/run runs it"]
fn rules_wait_is_exact() {
    let op = prop_oneof![
        6 => (1_u64..12).prop_map(|hits| Op::Ask { key: 0, hits }),
        2 => (1_u64..3_000_000_000).prop_map(|ns| Op::Wait { ns }),
        2 => (1_u64..20).prop_map(|limit| Op::Load { kind: 0, limit }),
    ];
    for kind in KINDS.into_iter().chain(SKETCHES) {
        for charging in BOTH {
            let text =
                |limit: u64| one(&format!("{{ unit: second, every: 6, requests_per_unit: {limit} {kind} }}"));
            // Returns the last answer, and whether the same request is admitted `later_ns` after it.
            let replay = |ops: &[Op], later_ns: u64| {
                let (rules, clock) = rules(&text(10), charging);
                let mut last = None;
                for &op in ops {
                    match op {
                        Op::Ask { hits, .. } => {
                            last = Some((rules.check_n("d", &[Descriptor::new(&X)], hits), hits));
                        }
                        Op::Wait { ns } => clock.advance(Duration::from_nanos(ns)),
                        Op::Load { limit, .. } => drop(rules.replace([config(&text(limit))]).ok()?),
                    }
                }
                let (answer, hits) = last?;
                clock.advance(Duration::from_nanos(later_ns));
                Some((answer, rules.check_n("d", &[Descriptor::new(&X)], hits).is_allowed()))
            };
            let outcome = TestRunner::new(tollgate_testing::operations::config(24)).run(
                &prop::collection::vec(op.clone(), 1..25),
                |ops| {
                    for end in 1..=ops.len() {
                        let ops = &ops[..end];
                        let (Some(Op::Ask { .. }), Some((answer, _))) = (ops.last(), replay(ops, 0)) else {
                            continue;
                        };
                        let (true, Some(wait)) = (answer.is_denied(), answer.retry_after()) else { continue };
                        let wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
                        prop_assert!(wait_ns > 0, "{answer:?}");
                        let then = |ns| replay(ops, ns).is_some_and(|(_, admitted)| admitted);
                        prop_assert!(then(wait_ns), "denied after the reported wait of {wait:?}: {answer:?}");
                        let is_early = then(wait_ns - 1);
                        prop_assert!(!is_early, "admitted before the reported wait of {wait:?}: {answer:?}");
                    }
                    Ok(())
                },
            );
            assert!(outcome.is_ok(), "{kind:?} {charging:?}: {outcome:?}");
        }
    }
}

#[test]
fn nothing_panics() {
    const UNITS: [&str; 7] = ["second", "minute", "hour", "day", "week", "month", "year"];
    const LIMITS: [u32; 6] = [1, 2, 1_000, 65_000, 1 << 24, u32::MAX];
    const TIMES: [u64; 7] = [0, 1, 1 << 40, START.as_nanos(), u64::MAX / 2, u64::MAX - 1, u64::MAX];
    const HITS: [u64; 7] = [0, 1, 2, 1_000, 1 << 32, u64::MAX - 1, u64::MAX];
    let kinds: Vec<&str> =
        KINDS.into_iter().chain(SKETCHES).chain([", algorithm: gcra, burst: 4294967295"]).collect();
    let op = (0_u8..4, 0..kinds.len(), 0_usize..7, 0_usize..6, 0_usize..7, 0_usize..7);
    proptest!(tollgate_testing::operations::config(100), |(first in any::<bool>(), ops in prop::collection::vec(op, 1..20))| {
        let (rules, _) = rules(&one("{ unit: hour, requests_per_unit: 10 }"), BOTH[usize::from(first)]);
        for &(what, kind, unit, limit, time, hits) in &ops {
            if what == 0 {
                if kinds[kind].contains("log") && LIMITS[limit] > 100_000 {
                    continue;
                }
                let limit = format!("{{ unit: {}, requests_per_unit: {} {} }}", UNITS[unit], LIMITS[limit], kinds[kind]);
                // The reader rejects some of these files.
                if let Ok(config) = Config::from_yaml("test.yaml", &one(&limit)) {
                    let _ = rules.replace([config]);
                }
                continue;
            }
            let plain = Descriptor::new(&X);
            let asked = [if what == 3 { plain.limit(LIMITS[limit], TimeUnit::Second) } else { plain }];
            let answer = rules.at(Timestamp::from_nanos(TIMES[time])).check_n("d", &asked, HITS[hits]);
            let said = (format!("{answer:?}"), answer.retry_after(), answer.remaining(0));
            prop_assert!(!said.0.is_empty());
            if kind % 2 == 0 {
                rules.refund(&asked, &answer);
            }
        }
    });
}
