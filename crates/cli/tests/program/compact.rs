//! The compact store: its figures and its errors. It errs only when memory is short, and only in the direction of its
//! overflow policy.

use serde_json::Value;

use crate::support::{Place, names, results, trace};

/// The overflow policies. `true` means that the errors are wrong denials, `false` that they are wrong admissions.
const POLICIES: [(&str, bool); 3] = [("spill", true), ("inherit", true), ("forget", false)];

/// Writes ten minutes of requests, with times in tenths of a second. 40 regular clients stay below ten requests per
/// minute, one greedy client does not, and each of many strangers sends one request.
pub(crate) fn flood() -> Place {
    let mut seed = 0x5EED_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    let mut lines = String::from("ts,client\n");
    for tenth in 0..6_000_u64 {
        let mut push = |client: &str| lines.push_str(&format!("{}.{},{client}\n", tenth / 10, tenth % 10));
        // Each regular client sends a request every 8 s, at its own tenth of a second.
        if tenth % 80 < 40 {
            push(&format!("regular-{}", tenth % 80));
        }
        if tenth % 20 == 0 {
            push("greedy");
        }
        push(&format!("stranger-{}", random()));
        push(&format!("stranger-{}", random()));
    }
    let place = Place::new();
    place.file("log", lines);
    place
}

pub(crate) const FLOOD: &str = "log --time-format s --limit 10/60s";

fn number(result: &Value, field: &str) -> u64 {
    let compact = &result["compact"];
    compact[field].as_u64().unwrap_or_else(|| panic!("no {field} in {result}"))
}

/// Returns the numbers of requests denied wrongly and admitted wrongly.
fn wrongly(result: &Value) -> (u64, u64) {
    (number(result, "wrongly_denied"), number(result, "wrongly_admitted"))
}

#[test]
fn json_has_compact_store_figures() {
    let place = flood();
    let run = place.run(&format!("replay {FLOOD} --store compact --memory 64KiB --json"));
    for part in ["Store    compact, 64KiB", "sliding-log left out", "sub-window left out"] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
    let json = run.json();
    assert_eq!(names(&json), ["gcra", "token-bucket", "leaky-bucket", "fixed-window", "sliding-window"]);
    for result in results(&json) {
        assert_eq!(result["store"], "compact");
        let overflow = if result["algorithm"] == "sliding-window" { "forget" } else { "spill" };
        assert_eq!(result["compact"]["overflow"], overflow);
        assert_eq!(number(result, "memory_bytes"), 64 << 10);
        let state = result["state_bytes"].as_u64().unwrap();
        assert!((60 << 10..=64 << 10).contains(&state), "{state}");
        let (slots, peak) = (number(result, "slots"), number(result, "peak_live_slots"));
        assert!(slots * 8 <= state && peak > 0 && peak <= slots, "{result}");
        for field in ["evicted", "indebted", "denied_for_debt", "retreats", "raced"] {
            let _ = number(result, field);
        }
        // The replay has one thread, so there are no races.
        assert_eq!(number(result, "raced"), 0);
    }
    let keyed = place.run(&format!("replay {FLOOD} --algorithm gcra --json")).json();
    assert!(keyed["results"][0].get("compact").is_none());
    // `--overflow` sets the policy.
    let json = place.run(&format!("replay {FLOOD} --store compact --overflow inherit --json")).json();
    assert_eq!(names(&json), ["gcra", "token-bucket", "leaky-bucket", "fixed-window"]);
    assert_eq!(json["results"][0]["compact"]["overflow"], "inherit");
    assert_eq!(number(&json["results"][0], "memory_bytes"), 4 << 20);
}

#[test]
fn short_memory_errs_in_policy_direction() {
    let place = flood();
    for (overflow, denies) in POLICIES {
        let args = format!("replay {FLOOD} --store compact --memory 272 --overflow {overflow}");
        let json = place.run(&format!("{args} --json")).json();
        for result in results(&json) {
            let (denied, admitted) = wrongly(result);
            let (errs, never) = if denies { (denied, admitted) } else { (admitted, denied) };
            assert!(errs > 0 && never == 0, "{overflow}: {result}");
            assert!(number(result, "evicted") > 1_000, "{overflow}: {result}");
            assert_eq!(number(result, "indebted") > 0, denies, "{overflow}: {result}");
            // Wrong decisions are a part of all decisions.
            assert!(denied <= result["denied"].as_u64().unwrap(), "{result}");
            assert!(admitted <= result["admitted"].as_u64().unwrap(), "{result}");
        }
        let table = place.run(&args).ok().stdout;
        for part in ["Compact store of 272B", overflow, "Memory is short", "Try --memory "] {
            assert!(table.contains(part), "{overflow}: {part}: {table}");
        }
        // The compact store decides, not the keyed store of the comparison.
        let args = format!("{FLOOD} --algorithm fixed-window");
        let short = place.decisions(&format!("{args} --store compact --memory 272 --overflow {overflow}"));
        assert!(short != place.decisions(&args), "{overflow}");
    }
}

#[test]
fn invalid_store_flags_give_reasons() {
    let place = Place::new();
    // The flags are checked before any input is read. There is no log.
    for (memory, why) in [
        ("", "the number is missing"),
        ("lots", "the unit is not"),
        ("4MeB", "the unit is not"),
        ("-4MiB", "the unit is not"),
        ("1.2.3MiB", "two decimal points"),
        ("0", "it is less than 1 byte"),
        ("9999999TiB", "it is larger than the address space"),
    ] {
        for command in ["replay", "suggest"] {
            let run = place.run(&format!("{command} log --store compact --memory={memory}"));
            run.fails(2, &["--memory <SIZE>", "invalid amount of memory", why, "512KiB, 4MiB or 1.5GiB"]);
        }
    }
    let too_little = ["--memory 271B", "at least 272 bytes"];
    place.run("replay log --store compact --memory 271").fails(2, &too_little);
    place.run("replay log --store compact --overflow drop").fails(2, &["spill, forget, inherit"]);
    for command in ["replay", "suggest"] {
        for store in ["", "--store keyed"] {
            place
                .run(&format!("{command} log {store} --memory 4MiB"))
                .fails(2, &["--memory 4MiB", "keyed store takes as much memory", "--store compact"]);
            place
                .run(&format!("{command} log {store} --overflow forget"))
                .fails(2, &["--overflow forget", "keyed store never overflows", "--store compact"]);
        }
        for algorithm in ["sub-window", "sliding-log"] {
            place
                .run(&format!("{command} log --store compact --algorithm gcra --algorithm {algorithm}"))
                .fails(2, &[algorithm, "cannot hold", "sliding-window; use one of them", "--store keyed"]);
        }
        place
            .run(&format!("{command} log --store compact --algorithm sliding-window --overflow inherit"))
            .fails(2, &["sliding-window", "--overflow inherit is not possible", "use --overflow forget"]);
    }
}

#[test]
fn oversized_quota_error_names_flags() {
    let place = Place::new();
    place.file("log", "ts,client\n100,a\n100,a\n");
    let args = "replay log --store compact --limit 70000/60s";
    let run = place.run(&format!("{args} --algorithm sliding-window"));
    run.fails(2, &["sliding-window: ", "the limit, in this store, can be at most", "but is 70000"]);
    let run = place.run(&format!("{args} --json"));
    assert!(run.stderr.contains("sliding-window left out: "), "{}", run.stderr);
    assert_eq!(names(&run.json()), ["gcra", "token-bucket", "leaky-bucket", "fixed-window"]);
    // No machine has this many addresses.
    place
        .run("replay log --store compact --memory 9000TiB --algorithm gcra")
        .fails(2, &["gcra: --memory 9216000GiB: cannot allocate a table of "]);
    // The spill cannot hold windows of a microsecond. The message names the flag, not the library's type.
    let run = place.run("replay log --store compact --limit 10/us --algorithm fixed-window");
    run.fails(2, &["fixed-window: ", "--overflow inherit or --overflow forget"]);
    assert!(!run.stderr.contains("Overflow::"), "{}", run.stderr);
}

/// Replays a real trace through the compact store. With enough memory every decision is the keyed store's. With too
/// little memory, decisions differ only in the direction of the overflow policy. The comparison is exact because
/// times are whole seconds. One trace has finer times, but none of its denied requests is within a tick of being
/// admitted.
pub(crate) fn real(name: &str, algorithms: &str, short: Option<&str>) {
    let Some(path) = trace(&format!("normalized/{name}.tsv.gz")) else { return };
    let place = Place::new();
    let args = format!("replay {} {algorithms} --limit 10/60s --json --top 3", path.display());
    let keyed = place.run(&args).json();
    let ample = place.run(&format!("{args} --store compact")).json();
    assert_eq!(ample["input"], keyed["input"]);
    for result in results(&ample) {
        assert_eq!(wrongly(result), (0, 0), "{name}: {result}");
        let same = results(&keyed).iter().find(|keyed| keyed["algorithm"] == result["algorithm"]).unwrap();
        for field in ["admitted", "denied", "keys_denied", "top_denied"] {
            assert_eq!(result[field], same[field], "{name} {field}: {result}");
        }
        // Waits may differ by a tick, which for these limits is 100 µs.
        let wait = |result: &Value| result["longest_wait_ns"].as_u64().unwrap();
        assert!(wait(result).abs_diff(wait(same)) <= 100_000, "{name}: {result}");
    }
    for (overflow, denies) in POLICIES {
        let Some(memory) = short else { continue };
        let json =
            place.run(&format!("{args} --store compact --memory {memory} --overflow {overflow}")).json();
        let mut errs = 0;
        for result in results(&json) {
            let (denied, admitted) = wrongly(result);
            assert_eq!(if denies { admitted } else { denied }, 0, "{name} {overflow}: {result}");
            errs += denied + admitted;
        }
        assert!(errs > 0, "{name} {overflow}: no decision is wrong with only {memory}");
    }
}
