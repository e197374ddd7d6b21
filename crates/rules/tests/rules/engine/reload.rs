//! Reloading rules: which counters keep their state.

use std::fs;
use std::time::Duration;

use tollgate_rules::{Config, Descriptor, Rules};

use super::{OK, OVER, Scene, config, file, left, one};

const X: [(&str, &str); 1] = [("a", "x")];

/// A sketch keeps its counts as long as its windows stay the same and its counters are wide enough.
#[test]
fn sketch_keeps_counts_over_reload() {
    for algorithm in ["fixed-window", "sliding-window"] {
        let of = |limit: u32, unit: &str| {
            one(&format!(
                "{{ unit: {unit}, requests_per_unit: {limit}, algorithm: {algorithm}, store: sketch }}"
            ))
        };
        let scene = Scene::new(&of(100, "hour"));
        assert_eq!(scene.admitted(&X, 60), 60);
        for (limit, left_of_it) in [(120, 60), (50, 0), (100, 40), (128, 68)] {
            scene.reload(&of(limit, "hour"));
            assert_eq!(left(&scene, &X), left_of_it, "{algorithm} {limit}");
        }
        // Counters of seven bits hold at most 127. Counters of hours cannot count days.
        scene.reload(&of(129, "hour"));
        assert_eq!(left(&scene, &X), 129, "wider counters start empty");
        assert_eq!(scene.admitted(&X, 60), 60);
        scene.reload(&of(129, "day"));
        assert_eq!(left(&scene, &X), 129, "counters of another window start empty");
    }
}

/// Cause: a count above the new limit overflowed into the bits of the window's number. Symptom: after the limit was
/// lowered, the full limit was admitted again.
#[test]
fn lowered_limit_keeps_sketch_counts() {
    let nanosecond = Duration::from_nanos(1);
    // A sliding window has room again when a quarter of the used units weighs less than the new limit.
    let three_quarters = Duration::from_secs(3_600 + 2_700) + nanosecond;
    for (algorithm, room_after) in
        [("fixed-window", Duration::from_secs(3_600)), ("sliding-window", three_quarters)]
    {
        let of = |limit: u32| {
            one(&format!(
                "{{ unit: hour, requests_per_unit: {limit}, algorithm: {algorithm}, store: sketch }}"
            ))
        };
        for (high, used) in [(100, 64), (128, 128), (60_000, 60_000)] {
            let low = used / 4;
            for scene in [Scene::new(&of(high)), Scene::counting_first(&of(high))] {
                assert!(scene.ask_n(&X, used.into()).is_allowed());
                for limit in [low, 1, high / 2, high, low] {
                    scene.reload(&of(limit));
                    let expected = limit.saturating_sub(used);
                    assert_eq!(left(&scene, &X), expected, "{algorithm}: {used} of {high}, now {limit}");
                }
                let refused = scene.ask(&X);
                assert_eq!(refused.retry_after(), Some(room_after), "{algorithm} {used} of {high}");
                scene.clock.advance(room_after - nanosecond);
                assert_eq!(left(&scene, &X), 0, "{algorithm} {used} of {high}");
                scene.clock.advance(nanosecond);
                assert_eq!(left(&scene, &X), if algorithm == "fixed-window" { low } else { 1 });
            }
        }
    }
}

/// Cause: a log reserved an entry for each unit of the old limit, half a megabyte per key for a log of ten units. A log
/// now keeps a bounded number. A store that cannot hold the old count keeps only the new limit as used.
#[test]
fn usage_above_lowered_limit_is_clamped() {
    const LOG: &str = "algorithm: sliding-log";
    const SLIDING: &str = "algorithm: sliding-window, store: compact";
    let wide = |limit: u32| one(&format!("{{ unit: hour, requests_per_unit: {limit}, store: compact }}"));
    for (high, low, kind, kept) in [
        (1_000, 10, LOG, 1_000),
        (60_000, 10, LOG, 1_024),
        (60_000, 300, LOG, 1_200),
        (60_000, 15_000, LOG, 60_000),
        (100_000, 10, LOG, 1_024),
        (100_000, 20_000, LOG, 65_536),
        (60_000, 1_000, SLIDING, 60_000),
        (100_000, 1_000, SLIDING, 1_000),
    ] {
        let scene = Scene::new(&wide(high));
        assert!(scene.ask_n(&X, high.into()).is_allowed());
        scene.reload(&one(&format!("{{ unit: hour, requests_per_unit: {low}, {kind} }}")));
        assert!(scene.ask(&X).is_denied(), "{low} of {high}, {kind}");
        assert_eq!(left(&scene, &[("a", "new")]), low);
        scene.reload(&wide(high));
        assert_eq!(left(&scene, &X), high - kept, "{low} of {high}, {kind}");
    }
}

/// With a smaller burst, the key owes the excess and repays it over time. With a lower limit of windows, the excess
/// expires with the window.
#[test]
fn usage_above_lowered_limit_becomes_debt() {
    let scene = Scene::new(&one("{ unit: minute, requests_per_unit: 60 }"));
    assert_eq!(scene.admitted(&X, 60), 60);
    scene.reload(&one("{ unit: minute, requests_per_unit: 60, algorithm: gcra, burst: 5 }"));
    let wait = scene.ask(&X).retry_after();
    assert_eq!(wait, Some(Duration::from_secs(56)), "56 units above the burst, one second each");
    scene.advance(56);
    assert_eq!(left(&scene, &X), 1);
    scene.advance(9);
    assert_eq!(left(&scene, &X), 5);

    let scene = Scene::new(&one("{ unit: minute, requests_per_unit: 60 }"));
    assert_eq!(scene.admitted(&X, 60), 60);
    scene.reload(&one("{ unit: minute, requests_per_unit: 20 }"));
    assert_eq!(scene.ask(&X).retry_after(), Some(Duration::from_secs(60)));
    scene.advance(60);
    assert_eq!(scene.admitted(&X, 60), 20, "a new window admits the new limit");
}

/// A store may change its kind. A compact store cannot list its keys, so requests read the old store until all debts
/// have expired.
#[test]
fn store_change_keeps_debts() {
    for (from, to) in
        [("compact", "keyed"), ("keyed", "compact"), ("compact, memory: 64KiB", "compact, memory: 2MiB")]
    {
        let of = |store: &str| one(&format!("{{ unit: hour, requests_per_unit: 100, store: {store} }}"));
        let scene = Scene::new(&of(from));
        assert_eq!(scene.admitted(&X, 60), 60);
        scene.reload(&of(to));
        assert_eq!(left(&scene, &X), 40, "{from} to {to}");
    }
    // A sketch neither takes over counts nor hands them on.
    let of = |store: &str| one(&format!("{{ unit: hour, requests_per_unit: 100, store: {store} }}"));
    let scene = Scene::new(&of("compact"));
    assert_eq!(scene.admitted(&X, 60), 60);
    scene.reload(&of("sketch"));
    assert_eq!(left(&scene, &X), 100);
}

/// A removed rule loses its state, an added rule starts empty, and the other rules keep their state.
#[test]
fn added_and_removed_rules_start_empty() {
    let rules =
        ["a", "b"].map(|key| format!("key: {key}, rate_limit: {{ unit: hour, requests_per_unit: 5 }}"));
    let [one, both] = [file(&[&rules[0]]), file(&[&rules[0], &rules[1]])];
    let scene = Scene::new(&both);
    assert_eq!((scene.admitted(&X, 3), scene.admitted(&[("b", "x")], 3)), (3, 3));
    scene.reload(&one);
    assert!(scene.ask(&[("b", "x")]).limits().count() == 0);
    scene.reload(&both);
    assert_eq!((left(&scene, &X), left(&scene, &[("b", "x")])), (2, 5));
    let other = || config("{ domain: other, descriptors: [] }");
    assert!(scene.rules.replace([other()]).is_err(), "the domain is in use");
    assert!(scene.ask(&X).has_domain());
}

/// An answer still describes the rules that decided it after those rules are replaced.
#[test]
fn answer_outlives_its_rules() {
    let scene = Scene::new(&one("{ unit: hour, requests_per_unit: 5, name: old }"));
    let answer = scene.ask(&X);
    scene.reload(&file(&["key: b, rate_limit: { unit: hour, requests_per_unit: 5 }"]));
    assert_eq!(answer.limits().map(|limit| limit.name().to_owned()).collect::<Vec<_>>(), ["old"]);
    scene.rules.refund(&[Descriptor::new(&X)], &answer);
}

/// A failed load changes nothing, is counted, and reports its cause.
// G64
#[test]
fn failed_load_keeps_rules() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.yaml");
    fs::write(&path, one("{ unit: hour, requests_per_unit: 5 }")).unwrap();
    let rules = Rules::read(&path).unwrap();
    let ask = || rules.check("d", &[Descriptor::new(&X)]);
    assert!(ask().is_allowed());
    fs::write(&path, one("{ unit: fortnight, requests_per_unit: 9 }")).unwrap();
    let error = rules.reload().unwrap_err();
    assert!(error.to_string().contains("limits.yaml") && error.to_string().contains("fortnight"), "{error}");
    assert!(error.config().is_some());
    assert_eq!(ask().remaining(0), 3);
    let reloads = rules.reloads();
    assert_eq!((reloads.successes, reloads.errors), (1, 1));
    assert_eq!(rules.last_error().unwrap().to_string(), error.to_string());
    fs::remove_file(&path).unwrap();
    assert!(rules.reload().unwrap_err().to_string().contains("limits.yaml"));
    fs::write(&path, one("{ unit: hour, requests_per_unit: 9 }")).unwrap();
    rules.reload().unwrap();
    assert_eq!(ask().remaining(0), 6);
    assert!(rules.last_error().is_none());
}

#[test]
fn rules_without_files_cannot_reload() {
    let scene = Scene::new(&one("{ unit: hour, requests_per_unit: 5 }"));
    assert!(scene.rules.reload().unwrap_err().to_string().contains("replace"));
    assert_eq!(scene.rules.reloads().errors, 1);
}

// G64
#[test]
fn domain_in_two_files_needs_merge() {
    let of = |name: &str, key: &str| {
        let rule = format!("key: {key}, rate_limit: {{ unit: hour, requests_per_unit: 1 }}");
        Config::from_yaml(name, &file(&[&rule])).unwrap()
    };
    let files = || [of("one.yaml", "a"), of("two.yaml", "b")];
    let error = Rules::builder().load(files()).unwrap_err().to_string();
    assert!(error.contains("one.yaml") && error.contains("two.yaml"), "{error}");
    let rules = Rules::builder().merge_domains(true).load(files()).unwrap();
    for key in ["a", "b"] {
        let ask = || rules.check("d", &[Descriptor::new(&[(key, "x")])]).is_denied();
        assert_eq!((ask(), ask()), (OK, OVER), "{key}");
    }
    let twice = [of("one.yaml", "a"), of("two.yaml", "a")];
    assert!(Rules::builder().merge_domains(true).load(twice).is_err(), "duplicates still fail");
}

/// A reader of the last error must not wait for a slow load.
#[test]
fn last_error_waits_for_no_load() {
    let rules = Rules::from_yaml("{ domain: d, descriptors: [] }").unwrap();
    let (told, heard) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        // The load reads the new rules while it holds its lock.
        let read = std::iter::once_with(|| {
            scope.spawn(|| told.send(rules.last_error().is_none()));
            assert_eq!(heard.recv_timeout(Duration::from_secs(60)), Ok(true));
            config("{ domain: d, descriptors: [] }")
        });
        rules.replace(read).unwrap();
    });
}
