//! The sketch store: its figures and its errors. It denies a request for the units of other keys only if memory is
//! short, and it never admits more than the exact store.

use serde_json::Value;

use crate::support::{Place, names, results, trace};

pub(crate) const BUSY: &str = "log --time-format s --limit 10/60s";
pub(crate) const BOTH: [&str; 2] = ["fixed-window", "sliding-window"];

/// A start after the sketch's first window. A saturation that is read without the present time would be that of the
/// first window, and the tests would notice.
const START: u64 = 600_000;

/// Writes three minutes of requests. Each of 400 clients stays below the limit with six or seven requests per minute,
/// and one client exceeds it.
pub(crate) fn crowd() -> Place {
    let mut lines = String::from("ts,client\n");
    for second in START..START + 180 {
        for client in (0..400).filter(|client| (second * 7 + client) % 9 == 0) {
            lines.push_str(&format!("{second},client-{client}\n"));
        }
        lines.push_str(&format!("{second},greedy\n"));
    }
    let place = Place::new();
    place.file("log", lines);
    place
}

fn number(result: &Value, field: &str) -> u64 {
    result["sketch"][field].as_u64().unwrap_or_else(|| panic!("no {field} in {result}"))
}

/// Returns the numbers of requests denied wrongly and admitted wrongly.
fn wrongly(result: &Value) -> (u64, u64) {
    (number(result, "wrongly_denied"), number(result, "wrongly_admitted"))
}

/// Returns one of the sketch's saturation figures.
fn chance(result: &Value, field: &str) -> f64 {
    let chance = result["sketch"]["saturation"][field].as_f64();
    let chance = chance.unwrap_or_else(|| panic!("no {field} in {result}"));
    assert!((0.0..=1.0).contains(&chance), "{result}");
    chance
}

#[test]
fn json_has_sketch_store_figures() {
    let place = crowd();
    let run = place.run(&format!("replay {BUSY} --store sketch --memory 64KiB --json"));
    // One line lists all algorithms that are left out for the same reason.
    for part in [
        "Store    sketch, 64KiB in all",
        "gcra, token-bucket, leaky-bucket, sliding-log, sub-window left out: the sketch store",
    ] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
    let json = run.json();
    assert_eq!(names(&json), BOTH);
    for result in results(&json) {
        assert_eq!(result["store"], "sketch");
        assert!(result.get("compact").is_none());
        let mut fields: Vec<_> = result["sketch"].as_object().unwrap().keys().collect();
        fields.sort();
        assert_eq!(fields, ["memory_bytes", "saturation", "wrongly_admitted", "wrongly_denied"]);
        assert_eq!(number(result, "memory_bytes"), 64 << 10);
        let state = result["state_bytes"].as_u64().unwrap();
        assert!((60 << 10..=64 << 10).contains(&state), "{state}");
        assert!(chance(result, "false_positive") > 0.0 && chance(result, "denied") < 0.001, "{result}");
        assert!(chance(result, "overcounted") >= chance(result, "denied"), "{result}");
    }
    for store in ["keyed", "compact"] {
        let json =
            place.run(&format!("replay {BUSY} --store {store} --algorithm fixed-window --json")).json();
        assert!(results(&json)[0].get("sketch").is_none());
    }
    // The default is the library's default.
    let json = place.run(&format!("replay {BUSY} --store sketch --json")).json();
    assert_eq!(number(&results(&json)[0], "memory_bytes"), 4 << 20);
}

#[test]
fn short_memory_denies_early_with_warning() {
    let place = crowd();
    let args = format!("replay {BUSY} --store sketch --memory 512");
    let json = place.run(&format!("{args} --json")).json();
    for result in results(&json) {
        let (denied, admitted) = wrongly(result);
        assert!(denied > 1_000 && admitted == 0, "{result}");
        assert!(denied <= result["denied"].as_u64().unwrap(), "{result}");
        assert!(chance(result, "denied") > 0.5, "{result}");
    }
    let table = place.run(&args).ok().stdout;
    let warning =
        "Warning: memory is short for fixed-window, sliding-window: more than one request in a thousand";
    for part in ["Sketch store of 512B, at its fullest", warning, "Try --memory 1KiB."] {
        assert!(table.contains(part), "{part}: {table}");
    }
    for algorithm in BOTH {
        // The sketch store decides, not the keyed store of the comparison, and it admits less.
        let args = format!("{BUSY} --algorithm {algorithm}");
        let short = place.decisions(&format!("{args} --store sketch --memory 512"));
        let exact = place.decisions(&args);
        assert!(short != exact, "{algorithm}");
        let admitted = |decisions: &str| decisions.matches('1').count();
        assert!(admitted(&short) < admitted(&exact), "{algorithm}");
    }
}

#[test]
fn saturation_is_of_fullest_window() {
    let place = Place::new();
    // A thousand clients in the first minute, and then one client for an hour.
    let mut lines = String::from("ts,client\n");
    (0..1_000).for_each(|client| lines.push_str(&format!("{START},{client}\n")));
    (1..60).for_each(|minute| lines.push_str(&format!("{},0\n", START + minute * 60)));
    place.file("log", lines);
    let args = "log --time-format s --store sketch --memory 600 --json";
    let json = place.run(&format!("replay {args} --limit 10/min")).json();
    for result in results(&json) {
        assert!(chance(result, "false_positive") > 0.5, "{result}");
    }
    // With two limits, the figure is that of the fuller sketch. In windows of an hour, later minutes add almost nothing.
    let both = place.run(&format!("replay {args} --limit 10/min --limit 100/h")).json();
    for (both, one) in results(&both).iter().zip(results(&json)) {
        assert!(
            chance(both, "false_positive") > chance(one, "false_positive"),
            "each has half of the memory"
        );
    }
}

#[test]
fn invalid_store_flags_give_reasons() {
    let place = Place::new();
    // The flags are checked before any input is read. There is no log.
    for command in ["replay", "suggest"] {
        for algorithm in ["gcra", "token-bucket", "leaky-bucket", "sliding-log", "sub-window"] {
            let run = place.run(&format!(
                "{command} log --store sketch --algorithm {algorithm} --algorithm fixed-window"
            ));
            run.fails(
                2,
                &[
                    algorithm,
                    "the sketch store can only count",
                    "it supports fixed-window and sliding-window",
                ],
            );
            // Only some of these algorithms can use the compact store.
            let compact = !["sliding-log", "sub-window"].contains(&algorithm);
            assert_eq!(run.stderr.contains("--store compact or keyed"), compact, "{}", run.stderr);
            assert!(run.stderr.contains("keyed"), "{}", run.stderr);
        }
        for overflow in ["spill", "forget", "inherit"] {
            place.run(&format!("{command} log --store sketch --overflow {overflow} --memory 1MiB")).fails(
                2,
                &[&format!("--overflow {overflow}"), "no slots", "remove the flag", "--store compact"],
            );
        }
        place
            .run(&format!("{command} log --store sketch --memory 271"))
            .fails(2, &["--memory 271B", "the sketch store needs at least 272 bytes"]);
        place
            .run(&format!("{command} log --store sketch --memory=4MeB"))
            .fails(2, &["--memory <SIZE>", "the unit is not"]);
        place.run(&format!("{command} log --memory 4MiB")).fails(2, &["--memory 4MiB", "--store sketch"]);
        place.run(&format!("{command} log --store sketches")).fails(2, &["keyed, compact, sketch"]);
    }
}

#[test]
fn limit_above_counter_range_names_flag() {
    let place = Place::new();
    place.file("log", "ts,client\n100,a\n100,a\n");
    let args = "replay log --store sketch --limit 10/s --limit 70000/60s";
    // Of two limits, the message names the one that does not fit.
    let run = place.run(&format!("{args} --algorithm sliding-window"));
    run.fails(
        2,
        &["sliding-window: --limit 70000/min: ", "the limit, in this store, can be at most", "but is 70000"],
    );
    assert!(!run.stderr.contains("10/s") && !run.stderr.contains("compact"), "{}", run.stderr);
    let run = place.run(&format!("{args} --json"));
    assert!(run.stderr.contains("sliding-window left out: --limit 70000/min: "), "{}", run.stderr);
    assert_eq!(names(&run.json()), ["fixed-window"]);
    // If no algorithm is left, the message gives all reasons.
    place
        .run("replay log --store sketch --limit 9000000000/60s")
        .fails(2, &["fixed-window left out: --limit 9000000000/min: ", "sliding-window left out: "]);
    // No machine has this many addresses.
    place
        .run("replay log --store sketch --memory 9000TiB --algorithm fixed-window")
        .fails(2, &["fixed-window: --memory 9216000GiB: cannot allocate a table of "]);
    place
        .run("suggest log --store sketch --memory 9000TiB")
        .fails(2, &["fixed-window: --memory 9216000GiB: cannot allocate a table of "]);
}

#[test]
fn extreme_costs_and_times_decide_correctly() {
    let place = Place::new();
    place.file(
        "log",
        "ts,client,units\n0,a,0\n0,a,11\n0,a,10\n0,a,1\n60,a,18446744073709551615\n119,a,10\n120,a,1\n",
    );
    let args = "log --key client --time-format s --cost units --limit 10/min --memory 64KiB";
    assert_eq!(place.decisions(&format!("{args} --store sketch --algorithm fixed-window")), "1010011");
    let json = place.run(&format!("replay {args} --store sketch --json")).json();
    for result in results(&json) {
        assert_eq!((wrongly(result), &result["never"]), ((0, 0), &2.into()), "{result}");
    }
    // Windows exist from 1970 to 2554. The last nanosecond is in the last window.
    place.file("log", "ts,client\n0,a\n0,a\n18446744073709551615,a\n18446744073709551615,a\n");
    let args = "log --time-format ns --limit 1/60s --store sketch --memory 272";
    for algorithm in BOTH {
        assert_eq!(place.decisions(&format!("{args} --algorithm {algorithm}")), "1010");
    }
}

#[test]
fn backward_times_are_not_memory_shortage() {
    let place = Place::new();
    // One client uses its limit, others begin a later window, and the first client comes again with earlier times.
    let mut lines = String::from("ts,client\n");
    lines.push_str(&format!("{START},a\n").repeat(12));
    (0..200).for_each(|client| lines.push_str(&format!("{},{client}\n", START + 60)));
    lines.push_str(&format!("{START},a\n").repeat(12));
    place.file("log", lines);
    let args =
        "replay log --time-format s --limit 10/min --store sketch --memory 1KiB --algorithm fixed-window";
    let sorted = place.run(&format!("{args} --json")).json();
    assert_eq!(wrongly(&results(&sorted)[0]).1, 0);
    let json = place.run(&format!("{args} --no-sort --json")).json();
    let (_, admitted) = wrongly(&results(&json)[0]);
    // These requests count in the later window, so the client gets at most that window's limit.
    assert!((1..=10).contains(&admitted), "{json}");
    let table = place.run(&format!("{args} --no-sort")).ok().stdout;
    assert!(table.contains("Memory is enough.\nTimes step back (--no-sort)"), "{table}");
}

/// Replays a real trace through the sketch store. With enough memory every decision is the keyed store's. With too
/// little memory, the only errors are wrong denials.
pub(crate) fn real(name: &str, short: &[(&str, &str)]) {
    let Some(path) = trace(&format!("normalized/{name}.tsv.gz")) else { return };
    let place = Place::new();
    let args = format!("replay {} --limit 5/10min --json --top 3", path.display());
    let sketch = place.run(&format!("{args} --store sketch --memory 16MiB")).json();
    let keyed = "--algorithm fixed-window --algorithm sliding-window";
    let keyed = place.run(&format!("{args} {keyed}")).json();
    assert_eq!(sketch["input"], keyed["input"]);
    for (result, same) in results(&sketch).iter().zip(results(&keyed)) {
        assert_eq!(wrongly(result), (0, 0), "{name}: {result}");
        for field in ["admitted", "denied", "never", "keys_denied", "top_denied", "longest_wait_ns"] {
            assert_eq!(result[field], same[field], "{name} {field}: {result}");
        }
        assert!(chance(result, "denied") < 0.001, "{name}: {result}");
    }
    for (limit, memory) in short {
        let args = format!("replay {} --limit {limit} --json --top 3", path.display());
        let json = place.run(&format!("{args} --store sketch --memory {memory}")).json();
        assert_eq!(names(&json), BOTH);
        for result in results(&json) {
            let (denied, admitted) = wrongly(result);
            assert!(denied > 0 && admitted == 0, "{name} {limit} {memory}: {result}");
        }
    }
}
