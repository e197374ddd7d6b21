//! Snapshots of rules, and what the next process takes over.
//!
//! - Rules that are restored decide like rules that continued, for every algorithm and store that can be saved, every way of
//!   charging, and also after the numbers change as a reload would change them.
//! - Holds, requests in progress and limits that requests set survive. `engine::alike` restarts all kinds of limits.
//! - If the clock is behind the snapshot, nothing is freed. Any bytes give an error or rules that decide.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{ManualClock, Timestamp};
use tollgate_rules::{Answer, Charging, Descriptor, RestoreReport, Rules, RulesSnapshot, TimeUnit};
use tollgate_testing::compact::{Random, seal};

use super::engine::{START, config, file, one};

const A: [(&str, &str); 1] = [("a", "x")];

/// What the rules of a file can be.
const KINDS: [&str; 13] = [
    "",
    ", store: keyed",
    ", store: keyed, max_keys: 100",
    ", memory: 64KiB",
    ", algorithm: gcra",
    ", algorithm: gcra, store: keyed",
    ", algorithm: sliding-window",
    ", algorithm: sliding-window, store: keyed, strict: true",
    ", algorithm: sub-window, parts: 6",
    ", algorithm: sliding-log",
    ", algorithm: token-bucket, store: keyed",
    ", algorithm: gcra, block: { for: 40s, at_most: 10m }",
    ", algorithm: leaky-bucket",
];

/// The rules of a process, its clock, and its way of charging.
type Scene = (Rules<ManualClock>, ManualClock, Charging);

fn load(text: &str, charging: Charging, now: Timestamp, snapshot: Option<Vec<u8>>) -> Scene {
    let clock = ManualClock::new(now);
    let mut builder = Rules::builder().clock(clock.clone()).charging(charging);
    if let Some(snapshot) = snapshot {
        builder = builder.restore(RulesSnapshot::read(snapshot).unwrap());
    }
    (builder.load([config(text)]).unwrap_or_else(|error| panic!("{error}")), clock, charging)
}

/// Starts the first process.
fn start(text: &str) -> Scene {
    load(text, Charging::AllOrNothing, START, None)
}

fn saved(rules: &Rules<ManualClock>) -> Vec<u8> {
    let mut bytes = Vec::new();
    rules.snapshot(&mut bytes).unwrap();
    bytes
}

/// Starts the next process with these rules, at the same time.
fn restart((rules, clock, charging): &Scene, text: &str) -> Scene {
    load(text, *charging, tollgate::Clock::now(clock), Some(saved(rules)))
}

fn ask((rules, ..): &Scene, entries: &[(&str, &str)], hits: u64) -> Answer {
    rules.check_n("d", &[Descriptor::new(entries)], hits)
}

/// Whether the request is admitted, the units left, the time until all are available, and the wait.
fn figures(answer: &Answer) -> (bool, u32, Option<Duration>, Option<Duration>) {
    let reset_after = answer.strictest(0).and_then(|limit| limit.reset_after());
    (answer.is_allowed(), answer.remaining(0), reset_after, answer.retry_after())
}

fn report((rules, ..): &Scene) -> RestoreReport {
    rules.restored().expect("a snapshot was restored")
}

fn limit(units: u64, kind: &str) -> String {
    one(&format!("{{ unit: minute, requests_per_unit: {units}{kind} }}"))
}

/// One rule with a counter for each key, one for each pair, and one for all requests.
fn several(units: u64, kind: &str) -> String {
    let limit = format!("rate_limit: {{ unit: minute, requests_per_unit: {units}{kind} }}");
    file(&[
        &format!("key: a, {limit}, descriptors: [ {{ key: b, {limit} }} ]"),
        &format!("key: c, value: all, {limit}"),
    ])
}

// G142
#[test]
fn restored_rules_decide_like_rules_that_continued() {
    for charging in [Charging::AllOrNothing, Charging::CountFirst, Charging::CountDenials] {
        for kind in KINDS {
            let text = several(9, kind);
            let (random, mut kept) = (&mut Random(5), load(&several(9, kind), charging, START, None));
            let long = "x".repeat(500);
            let step = |kept: &Scene, other: Option<&Scene>, random: &mut Random| {
                let names = ["u", "v", "w", &long].map(|name| name.to_owned());
                let name = &names[usize::try_from(random.below(4)).unwrap()];
                let entries = [vec![("a", &**name)], vec![("a", &**name), ("b", "y")], vec![("c", "all")]];
                let (entries, hits) = (&entries[usize::try_from(random.below(3)).unwrap()], random.below(3));
                let wait = Duration::from_millis(random.below(4_000));
                kept.1.advance(wait);
                let ours = figures(&ask(kept, entries, hits));
                if let Some(other) = other {
                    other.1.advance(wait);
                    let theirs = figures(&ask(other, entries, hits));
                    assert_eq!(ours, theirs, "{charging} {kind} {entries:?} {hits}");
                }
            };
            for _ in 0..4 {
                (0..40).for_each(|_| step(&kept, None, random));
                let next = restart(&kept, &text);
                assert_eq!((report(&next).counters, report(&next).unusable.len()), (3, 0), "{kind}");
                (0..40).for_each(|_| step(&kept, Some(&next), random));
                kept = next;
            }
        }
    }
}

/// A restart with other numbers is a reload with other numbers.
// G142
#[test]
fn changed_rules_take_usage_over_as_a_reload_does() {
    let others = [4, 30];
    for charging in [Charging::AllOrNothing, Charging::CountFirst] {
        for (kind, next) in
            KINDS.iter().flat_map(|kind| [(kind, *kind), (kind, ", store: keyed"), (kind, "")])
        {
            for units in others {
                let scene = load(&limit(12, kind), charging, START, None);
                for _ in 0..7 {
                    let _ = ask(&scene, &A, 1);
                }
                scene.1.advance(Duration::from_secs(3));
                let text = limit(units, next);
                let restarted = restart(&scene, &text);
                scene.0.replace([config(&text)]).unwrap();
                for wait in [0, 1, 20, 40, 60] {
                    for (_, clock, _) in [&scene, &restarted] {
                        clock.advance(Duration::from_secs(wait));
                    }
                    for hits in [0, 1, 3] {
                        let [ours, theirs] = [&restarted, &scene].map(|scene| figures(&ask(scene, &A, hits)));
                        let what = format!("{charging} {kind:?} to {next:?} {units}, after {wait}, {hits}");
                        assert_eq!(ours, theirs, "{what}");
                    }
                }
                // The usage that was taken over is in the next snapshot, too.
                let again = restart(&restarted, &text);
                let [saved, ours] = [&again, &restarted].map(|scene| figures(&ask(scene, &A, 0)));
                assert_eq!(saved, ours, "{kind:?} {next:?}");
            }
        }
    }
}

/// Cause: a compact store has no keys, so a load that replaces it by a keyed store leaves its usage behind until a request asks
/// for the key, and a snapshot left such usage out. Symptom: a process that was replaced after such a load admitted the whole
/// limit again.
// G142
#[test]
fn usage_that_a_load_has_not_carried_over_yet_is_saved() {
    let others = ["", ", store: keyed", ", algorithm: gcra, memory: 32KiB"];
    let pairs = others.iter().flat_map(|second| others.map(|third| (second, third)));
    for (kind, (second, third)) in KINDS.iter().flat_map(|kind| pairs.clone().map(move |pair| (kind, pair))) {
        let scene = start(&limit(12, kind));
        for _ in 0..7 {
            let _ = ask(&scene, &A, 1);
        }
        for (units, next) in [(20, second), (30, &third)] {
            scene.1.advance(Duration::from_secs(1));
            scene.0.replace([config(&limit(units, next))]).unwrap();
            assert!(ask(&scene, &[("a", "other")], 1).is_allowed());
        }
        // Two processes, one after the other, and no request of the first key.
        let text = limit(30, third);
        let again = restart(&restart(&scene, &text), &text);
        assert_eq!(report(&again).unusable, [], "{kind:?} to {second:?} to {third:?}");
        for wait in [0, 1, 20, 60] {
            for (_, clock, _) in [&scene, &again] {
                clock.advance(Duration::from_secs(wait));
            }
            for (key, hits) in [("x", 0), ("x", 1), ("x", 3), ("other", 1)] {
                let [ours, theirs] = [&again, &scene].map(|scene| figures(&ask(scene, &[("a", key)], hits)));
                assert_eq!(ours, theirs, "{kind:?} to {second:?} to {third:?}, {wait}, {key} {hits}");
            }
        }
    }
}

// G142
#[test]
fn removed_rules_are_dropped_and_new_ones_start_without_usage() {
    let two = |a: &str, b: &str| {
        let limit = "rate_limit: { unit: day, requests_per_unit: 5 }";
        format!("{{ domain: d, descriptors: [ {{ key: {a}, {limit} }}, {{ key: {b}, {limit} }} ] }}")
    };
    let scene = start(&two("a", "b"));
    for key in ["a", "b"] {
        assert!(ask(&scene, &[(key, "x")], 2).is_allowed());
    }
    let next = restart(&scene, &two("b", "c"));
    let left = |key| ask(&next, &[(key, "x")], 0).remaining(0);
    assert_eq!((left("b"), left("c")), (3, 5));
    let RestoreReport { made_at, counters, dropped, unusable, holds, .. } = report(&next);
    assert_eq!((made_at, counters, dropped, unusable.len(), holds), (START, 1, 1, 0, 0));
    assert!(scene.0.restored().is_none());
}

/// The rules may come from a source that answers only later.
// G142
#[test]
fn first_load_with_rules_takes_the_snapshot_over() {
    let scene = start(&limit(5, ""));
    assert!(ask(&scene, &A, 3).is_allowed());
    let first = saved(&scene.0);
    let snapshot = RulesSnapshot::read(first.clone()).unwrap();
    let builder = Rules::builder().clock(scene.1.clone()).restore(snapshot);
    let next = (builder.load([]).unwrap(), scene.1.clone(), scene.2);
    assert!(next.0.restored().is_none());
    let refused = next.0.replace([config(&limit(5, ", store: redis"))]);
    assert!(refused.is_err(), "a load that fails takes nothing over");
    // A process that ends before its rules come hands the usage on.
    scene.1.advance(Duration::from_secs(1));
    assert_eq!(saved(&next.0), first);
    next.0.replace([config(&limit(5, ""))]).unwrap();
    assert_eq!(ask(&next, &A, 0).remaining(0), 2);
}

// G142
#[test]
fn holds_and_requests_in_progress_survive() {
    let text = file(&["key: a, rate_limits: [ { unit: day, requests_per_unit: 10, hold: { life: 60s } }, \
                       { in_progress: 2, hold: { life: 60s } } ]"]);
    let descriptors = [Descriptor::new(&A)];
    for algorithm in ["", "algorithm: gcra, ", "algorithm: gcra, store: keyed, ", "algorithm: sub-window, "] {
        let text = text.replace("unit: day", &format!("{algorithm}unit: day"));
        let scene = start(&text);
        let [first, second] =
            [6, 2].map(|units| scene.0.hold("d", &descriptors, units, Duration::MAX).1.unwrap());
        let next = restart(&scene, &text);
        assert_eq!((next.0.holds(), report(&next).holds), (4, 4));
        assert!(ask(&next, &A, 1).is_denied(), "{algorithm}: two are in progress");
        assert!(next.0.commit("d", &descriptors, first, 1), "{algorithm}");
        let left =
            |scene: &Scene| scene.0.peek("d", &descriptors).limits().next().map(|limit| limit.remaining());
        assert_eq!((left(&next), next.0.holds()), (Some(7), 2), "{algorithm}");
        // A third process, with another limit. The hold there ends by itself.
        let third = restart(&next, &text.replace("10", "20"));
        assert_eq!(left(&third), Some(17), "{algorithm}");
        third.1.advance(Duration::from_secs(61));
        assert!(!third.0.commit("d", &descriptors, second, 0), "the hold has ended");
        assert!(left(&third) >= Some(19) && third.0.holds() == 0, "{algorithm}");
    }
}

/// A hold that the bytes have twice is one hold.
#[test]
fn hold_that_is_forged_twice_is_taken_over_once() {
    let text = limit(5, ", hold: { life: 10s }");
    let scene = start(&text);
    let request = [Descriptor::new(&A)];
    let id = scene.0.hold("d", &request, 2, Duration::from_secs(9)).1.unwrap();
    let one = saved(&scene.0);
    // The holds are before the last byte and the checksum.
    let end = one.len() - 9;
    let identity = one.windows(24).rposition(|bytes| bytes == id.to_bytes()).unwrap();
    let begin = identity - (1 + 8 + 8);
    assert_eq!(one[begin], 3);
    let mut twice = [&one[..end], &one[begin..]].concat();
    seal(&mut twice);
    let next = load(&text, Charging::AllOrNothing, START, Some(twice));
    assert_eq!((report(&next).holds, next.0.holds()), (1, 1));
    next.0.commit("d", &request, id, 1);
    assert_eq!((next.0.holds(), ask(&next, &A, 0).remaining(0)), (0, 4));
}

// G142
#[test]
fn stores_of_other_sizes_keep_their_usage() {
    let sizes = [", memory: 64MiB", ", memory: 40MiB", ", memory: 1MiB", ", store: keyed"];
    let keys: Vec<String> = (0..300).map(|key| format!("k{key}")).collect();
    for (from, to) in sizes.iter().flat_map(|from| sizes.map(|to| (from, to))) {
        let scene = start(&limit(9, from));
        keys.iter().for_each(|key| assert!(ask(&scene, &[("a", key)], 4).is_allowed()));
        let next = restart(&scene, &limit(9, to));
        assert_eq!(report(&next).unusable, []);
        for key in &keys {
            assert_eq!(ask(&next, &[("a", key)], 0).remaining(0), 5, "{from} to {to}");
        }
    }
}

/// A store takes memory and time only as far as the snapshot fills it.
// G142
#[test]
fn forged_sizes_cost_nothing() {
    let scene = start(&limit(5, ", memory: 64MiB"));
    assert!(ask(&scene, &A, 3).is_allowed());
    let bytes = saved(&scene.0);
    let size = (64_u64 << 20).to_le_bytes();
    let at = bytes.windows(8).position(|window| window == size).unwrap();
    for forged in [1 << 33, 1 << 40, 1 << 60, u64::MAX] {
        let mut bytes = bytes.clone();
        bytes[at..at + 8].copy_from_slice(&u64::to_le_bytes(forged));
        seal(&mut bytes);
        let next = load(&limit(5, ""), Charging::AllOrNothing, START, Some(bytes));
        assert_eq!((report(&next).counters, report(&next).unusable.len()), (0, 1), "{forged}");
        assert_eq!(ask(&next, &A, 0).remaining(0), 5);
    }
}

/// No request has asked for the key since the loads.
#[test]
fn usage_that_loads_carry_over_survives() {
    for charging in [Charging::AllOrNothing, Charging::CountFirst, Charging::CountDenials] {
        for kind in KINDS.iter().filter(|kind| !kind.contains("block") && !kind.contains("leaky")) {
            let scene = load(&limit(10, kind), charging, START, None);
            assert!(ask(&scene, &A, 6).is_allowed());
            for units in [8, 20, 12] {
                scene.0.replace([config(&limit(units, kind))]).unwrap();
                let next = restart(&scene, &limit(units, kind));
                let left = u64::from(ask(&next, &A, 0).remaining(0));
                assert_eq!(left, units - 6, "{kind}, {charging}, {units}");
            }
            scene.0.replace([config(&one("{ unlimited: true }"))]).unwrap();
            let next = restart(&scene, &limit(9, kind));
            assert_eq!(figures(&ask(&next, &A, 0)).1, 3, "{kind}, {charging}");
        }
    }
}

/// A snapshot waits for no load, and takes usage over while one runs.
#[test]
fn snapshots_beside_loads_lose_no_usage() {
    for kind in ["", ", store: keyed", ", algorithm: gcra, store: keyed"] {
        let text = |units: usize| limit(1_000 + units as u64 % 7, kind);
        let (rules, ..) = start(&text(0));
        let keys: Vec<String> = (0..20).map(|key| format!("k{key}")).collect();
        let used = |rules: &Rules<ManualClock>, key: &str| {
            let answer = rules.check_n("d", &[Descriptor::new(&[("a", key)])], 0);
            let applied = answer.strictest(0).expect("a rule applies");
            applied.quota() - applied.remaining()
        };
        std::thread::scope(|scope| {
            scope.spawn(|| (0..15).for_each(|units| drop(rules.replace([config(&text(units))]).unwrap())));
            scope.spawn(|| (0..15).for_each(|_| rules.snapshot(std::io::sink()).unwrap()));
            for _ in 0..50 {
                keys.iter().for_each(|key| {
                    assert!(rules.check("d", &[Descriptor::new(&[("a", key)])]).is_allowed());
                });
            }
        });
        let (next, ..) = load(&text(3), Charging::AllOrNothing, START, Some(saved(&rules)));
        for key in &keys {
            assert!(used(&rules, key) >= 50, "{kind}");
            assert_eq!(used(&next, key), used(&rules, key), "{kind}");
        }
    }
}

// G142
#[test]
fn limits_that_requests_set_survive() {
    let scene = start(&limit(5, ""));
    let own = |scene: &Scene| {
        let answer = scene.0.check("d", &[Descriptor::new(&A).limit(4, TimeUnit::Day)]);
        answer.remaining(0)
    };
    assert_eq!((own(&scene), own(&scene)), (3, 2));
    let next = restart(&scene, &limit(5, ""));
    assert_eq!(own(&next), 1);
}

// G142
#[test]
fn clock_behind_the_snapshot_frees_nothing() {
    for kind in KINDS {
        let scene = start(&limit(6, kind));
        assert!((0..6).all(|_| ask(&scene, &A, 1).is_allowed()), "{kind}");
        let blocked = ask(&scene, &A, 1).retry_after();
        for behind in [1, 3_600, 86_400 * 400, START.as_nanos() / 1_000_000_000 - 3_605] {
            let now = Timestamp::from_nanos(START.as_nanos() - behind * 1_000_000_000);
            let next = load(&limit(6, kind), Charging::AllOrNothing, now, Some(saved(&scene.0)));
            let denied = ask(&next, &A, 1);
            assert!(denied.is_denied(), "{kind}, {behind} seconds");
            // A debt that would end in the middle of a window ends with the window.
            let longest = blocked.unwrap().max(Duration::from_secs(120)) + Duration::from_secs(60);
            assert!(denied.retry_after().unwrap() <= longest, "{kind}: {:?}", denied.retry_after());
            next.1.advance(longest + Duration::from_secs(1));
            assert!(ask(&next, &A, 1).is_allowed(), "{kind}, {behind} seconds");
        }
    }
}

/// The first process had no clock yet, so its time was that of 1970.
// G142
#[test]
fn debts_are_paid_after_any_time() {
    let year = Duration::from_secs(365 * 86_400);
    for (kind, units) in KINDS.iter().flat_map(|kind| [7, 13, 35_000].map(|units| (kind, units))) {
        for start in [Timestamp::from_nanos(5_000_000_000), START] {
            let scene = load(&several(units, kind), Charging::AllOrNothing, start, None);
            let c = [("c", "all")];
            assert!(ask(&scene, &A, units).is_allowed() && ask(&scene, &c, units).is_allowed(), "{kind}");
            let bytes = saved(&scene.0);
            for years in [1, 4, 8, 10, 16, 20, 30, 40, 50, 57, 66, 90, 120, 200] {
                let now = start + year * years;
                let next = load(&several(units, kind), Charging::AllOrNothing, now, Some(bytes.clone()));
                for key in [&A, &c] {
                    assert!(ask(&next, key, units).is_allowed(), "{kind} {units}, {key:?}, {years} years");
                }
            }
        }
    }
}

// G142
#[cfg(feature = "calendar")]
#[test]
fn calendars_continue_and_changed_ones_start_without_usage() {
    let of = |units, day| {
        one(&format!("{{ period: month, starts: {{ day: {day} }}, requests_per_unit: {units} }}"))
    };
    let month = |day| of(5, day);
    let scene = start(&month(1));
    assert!(ask(&scene, &A, 3).is_allowed());
    let same = restart(&scene, &month(1));
    assert_eq!(figures(&ask(&same, &A, 0)), figures(&ask(&scene, &A, 0)));
    let other = restart(&scene, &month(7));
    assert_eq!(ask(&other, &A, 0).remaining(0), 5);
    let [(rule, why)] = &report(&other).unusable[..] else { panic!("one rule has another calendar") };
    assert_eq!(&**rule, "d|a");
    assert!(why.to_string().contains("calendar"), "{why}");
    // Another number is no other calendar.
    for (units, left) in [(9, 6), (4, 1), (3, 0), (2, 0)] {
        let changed = restart(&scene, &of(units, 1));
        assert_eq!(report(&changed).unusable, [], "{units}");
        assert_eq!(ask(&changed, &A, 0).remaining(0), left, "{units}");
    }
}

// G142
#[test]
fn damaged_and_foreign_bytes_are_refused() {
    let scene = start(&several(5, ", store: keyed"));
    let _ = ask(&scene, &[("a", "secret-name")], 2);
    let bytes = saved(&scene.0);
    let refused = |bytes: &[u8], part: &str| {
        let error = RulesSnapshot::read(bytes.to_vec()).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    for at in 0..bytes.len() {
        refused(&bytes[..at], "cannot restore the snapshot");
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        refused(&changed, "cannot restore the snapshot");
    }
    refused(b"domain: d", "not a tollgate snapshot");
    let mut other = bytes.clone();
    other[8] = 3;
    refused(&other, "it has version 3, and this library reads version 2");
    let mut seeds = bytes.clone();
    seeds[12] ^= 1;
    seal(&mut seeds);
    refused(&seeds, "another processor");
    let mut loads = bytes.clone();
    loads[60..68].fill(0xff);
    seal(&mut loads);
    refused(&loads, "its number of loads is invalid");
    let builder = Rules::builder().restore(RulesSnapshot::read(bytes).unwrap());
    assert!(!format!("{builder:?}").contains("secret-name"), "{builder:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Bytes with a right checksum: an error, or rules that decide without a panic.
    // G142
    #[test]
    fn forged_snapshots_are_refused_or_valid(
        kind in 0..KINDS.len(),
        changes in prop::collection::vec((0..1_000_000_usize, prop_oneof![Just(0_u8), Just(255), any::<u8>()]), 1..6),
        now in prop_oneof![Just(0), Just(START.as_nanos()), Just(START.as_nanos() + 1), Just(u64::MAX)],
    ) {
        let hold = if kind < 2 { ", hold: {}" } else { "" };
        let text = limit(6, &format!("{}{hold}", KINDS[kind]));
        let scene = start(&text);
        let _ = (ask(&scene, &A, 2), ask(&scene, &[("a", "y")], 1));
        let held = scene.0.hold("d", &[Descriptor::new(&A)], 1, Duration::MAX).1;
        let mut bytes = saved(&scene.0);
        // Not the seeds: other seeds are another program.
        let first = 8 + 4 + 40;
        for (at, byte) in changes {
            let at = first + at % (bytes.len() - first - 8);
            bytes[at] = byte;
        }
        seal(&mut bytes);
        let clock = ManualClock::new(Timestamp::from_nanos(now));
        if let Ok(snapshot) = RulesSnapshot::read(bytes) {
            let rules = Rules::builder().restore(snapshot).clock(clock.clone()).load([config(&text)]).unwrap();
            for hits in [0, 1, u64::MAX] {
                let _ = rules.check_n("d", &[Descriptor::new(&A)], hits);
            }
            if let Some(id) = held {
                rules.commit("d", &[Descriptor::new(&A)], id, 3);
            }
            let again = saved(&rules);
            prop_assert!(RulesSnapshot::read(again).is_ok());
        }
    }
}

/// Limits beyond 32 bits count whole units, also after a restart. The fields of Envoy's replies have 32 bits, and saturate.
#[test]
fn limits_beyond_32_bits_count_and_are_saved() {
    const MOST: u64 = 5_000_000_000;
    for kind in KINDS {
        // A log keeps each unit, and a denial begins a block.
        if ["sliding-log", "block"].iter().any(|one| kind.contains(one)) {
            continue;
        }
        let text = one(&format!("{{ unit: month, requests_per_unit: {MOST}{kind} }}"));
        let scene = start(&text);
        let first = ask(&scene, &A, MOST - 3);
        let applied = first.limits().next().unwrap();
        let figures = (first.is_allowed(), applied.remaining(), applied.limit_remaining());
        assert_eq!(figures, (true, 3, 3), "{kind}");
        let next = restart(&scene, &text);
        assert!(ask(&next, &A, 4).is_denied() && ask(&next, &A, 3).is_allowed(), "{kind}");
        let other = ask(&next, &[("a", "y")], 1);
        let applied = other.limits().next().unwrap();
        assert_eq!((applied.remaining(), applied.limit_remaining()), (MOST - 1, u32::MAX), "{kind}");
    }
}
