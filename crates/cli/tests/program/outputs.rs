//! Outputs: JSON, decisions, charts, tables and help.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Place, program};

fn small() -> Place {
    let place = Place::new();
    place.file("log", "ts,client\n100,a\n100,a\n101,a\n102,b\n102,b\n160,c\n");
    place
}

// G88
#[test]
fn json_has_the_stable_schema() {
    let json = small().run("replay log --limit 1/60s --algorithm sliding-log --algorithm gcra --json").json();
    let input = &json["input"];
    let expected = [
        ("records", 6_u64),
        ("skipped", 0),
        ("keys", 3),
        ("first_ns", 100_000_000_000),
        ("last_ns", 160_000_000_000),
    ];
    for (field, value) in expected {
        assert_eq!(input[field], Value::from(value), "{field}");
    }
    let results = json["results"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    for (result, algorithm) in results.iter().zip(["gcra", "sliding-log"]) {
        assert_eq!((&result["algorithm"], &result["store"]), (&algorithm.into(), &"keyed".into()));
        let limit =
            serde_json::json!([{"limit": 1, "period_ns": 60_000_000_000_u64, "burst": 1, "refused": 3}]);
        assert_eq!(result["limits"], limit);
        assert_eq!(
            (&result["admitted"], &result["denied"], &result["keys_denied"]),
            (&3.into(), &3.into(), &2.into())
        );
        let top = serde_json::json!([{"key": "a", "denied": 2}, {"key": "b", "denied": 1}]);
        assert_eq!(result["top_denied"], top);
        assert!(result["state_bytes"].as_u64().unwrap() > 0);
    }
}

#[test]
fn json_goes_alone_to_stdout_or_file() {
    let place = small();
    let run = place.run("replay log --json").ok();
    assert!(run.stdout.starts_with('{') && run.stdout.ends_with("}\n"));
    assert!(run.stderr.contains("6 records (csv)"), "{}", run.stderr);
    let run = place.run("replay log --json=out.json").ok();
    assert!(run.stdout.contains("Algorithm") && !run.stdout.contains('{'), "{}", run.stdout);
    let json: Value = serde_json::from_slice(&place.read("out.json")).unwrap();
    place.run("replay log --json missing.json").fails(1, &["missing.json", "--json=missing.json"]);
    assert_eq!(json["results"].as_array().unwrap().len(), 7);
}

// G88
#[test]
fn decisions_have_one_byte_per_record() {
    let place = small();
    assert_eq!(place.decisions("log --limit 1/60s --algorithm gcra"), "100101");
    assert_eq!(place.decisions("log --limit 9/60s --algorithm sub-window"), "111111");
}

#[test]
fn top_flag_limits_key_list() {
    let place = small();
    let json = place.run("replay log --limit 1/60s --algorithm gcra --json --top 1").json();
    assert_eq!(json["results"][0]["top_denied"].as_array().unwrap().len(), 1);
    let json = place.run("replay log --limit 1/60s --algorithm gcra --json --top 0").json();
    assert_eq!(json["results"][0]["top_denied"].as_array().unwrap().len(), 0);
}

#[test]
fn table_compares_every_algorithm() {
    let run = small().run("replay log --limit 1/60s").ok();
    let names = [
        "gcra",
        "token-bucket",
        "leaky-bucket",
        "fixed-window",
        "sliding-log",
        "sliding-window",
        "sub-window",
    ];
    for name in names {
        let has_name =
            |line: &str| line.split("  ").any(|cell| cell.split(", ").any(|one| one.trim() == name));
        assert!(run.stdout.lines().any(has_name), "{name}: {}", run.stdout);
    }
    assert!(run.stdout.contains("50.00 %") && run.stdout.contains("Most denied keys"), "{}", run.stdout);
    assert!(!run.stdout.contains("No --limit was given"));
    // Without a terminal there is no progress bar.
    assert_eq!(run.stderr, "");
}

#[test]
fn default_limit_is_announced() {
    let run = small().run("replay log").ok();
    for part in ["60/min", "No --limit was given", "--limit LIMIT/PERIOD", "tollgate suggest"] {
        assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
    }
}

#[test]
fn output_names_chosen_fields() {
    let run = small().run("replay log").ok();
    assert!(run.stdout.contains("time from \"ts\" (s), key from \"client\""), "{}", run.stdout);
}

#[test]
fn replay_without_file_uses_generated_day() {
    let place = Place::new();
    let run = place.run("replay").ok();
    assert!(run.stdout.contains("generated requests"), "{}", run.stdout);
    let json = place.run("replay --algorithm gcra --json").json();
    let records = json["input"]["records"].as_u64().unwrap();
    assert!((250_000..350_000).contains(&records), "{records}");
    assert!(json["results"][0]["denied"].as_u64().unwrap() > 0);
    assert_eq!(json, place.run("replay --algorithm gcra --json").json());
}

/// The README shows the flags that draw its picture.
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn readme_command_draws_its_picture() {
    let readme = include_str!("../../../../README.md");
    let (_, flags) = readme.split_once("With `--algorithm ").expect("the flags");
    let (flags, _) = flags.split_once('`').expect("their end");
    let place = Place::new();
    place.run(&format!("replay --algorithm {flags}")).ok();
    let (_, file) = flags.rsplit_once(' ').expect("a file");
    assert!(
        place.read(file) == include_bytes!("../../../../docs/replay.svg"),
        "docs/replay.svg is not the output of `replay --algorithm {flags}`: draw it again"
    );
}

#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn charts_are_svg() {
    let place = small();
    for args in ["--algorithm gcra", ""] {
        place.run(&format!("replay log --limit 1/60s {args} --chart out.svg")).ok();
        let svg = String::from_utf8(place.read("out.svg")).unwrap();
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        for part in [
            "Admitted and denied requests over time",
            "admitted",
            "denied",
            "gcra",
            "3 denied (50.00 %)",
            "UTC",
        ] {
            assert!(svg.contains(part), "{part}");
        }
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(!svg.contains("NaN"));
    }
}

#[test]
fn unwritable_outputs_fail_before_replay() {
    let place = small();
    std::fs::create_dir(place.path("folder.svg")).unwrap();
    place.file(
        "rules.yaml",
        "domain: d\ndescriptors:\n  - key: ip\n    rate_limit: { unit: hour, requests_per_unit: 1 }\n",
    );
    for through in ["--algorithm gcra", "--rules rules.yaml"] {
        for file in [
            "--chart no/such.svg",
            "--chart folder.svg",
            "--report no/such.html",
            "--decisions no/such",
            "--json=no/such",
        ] {
            // Outputs are checked before the log is opened.
            place.run(&format!("replay missing.log {through} {file}")).fails(1, &["cannot write"]);
        }
    }
    // The check leaves no new file behind, and keeps an existing file until it is replaced.
    place.file("old.svg", "old");
    for file in ["new.svg", "old.svg"] {
        place.run(&format!("replay missing.log --chart {file}")).fails(1, &["missing.log"]);
    }
    assert!(!place.path("new.svg").exists());
    assert_eq!(place.read("old.svg"), b"old");
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_error_keeps_table() {
    let place = small();
    std::os::unix::fs::symlink("/dev/full", place.path("full.svg")).unwrap();
    place.file(
        "rules.yaml",
        "domain: d\ndescriptors:\n  - key: ip\n    rate_limit: { unit: hour, requests_per_unit: 1 }\n",
    );
    for through in ["--algorithm gcra", "--rules rules.yaml"] {
        let run = place.run(&format!("replay log {through} --chart full.svg"));
        assert_eq!(run.code, 1, "{run:?}");
        assert!(run.stderr.contains("cannot write full.svg"), "{}", run.stderr);
        assert!(run.stdout.contains("Admitted") && run.stdout.contains("Longest wait"), "{}", run.stdout);
    }
}

/// Returns the SVG text of a replay's chart.
fn chart(place: &Place, args: &str) -> String {
    place.run(&format!("replay log {args} --chart out.svg")).ok();
    String::from_utf8(place.read("out.svg")).unwrap()
}

#[test]
fn algorithms_with_equal_decisions_share_panel() {
    let place = small();
    let svg = chart(&place, "--limit 1/60s");
    assert!(svg.contains("gcra, token-bucket, leaky-bucket"), "{svg}");
    assert_eq!(
        svg.matches(" admitted, ").count(),
        1,
        "all seven algorithms decide alike and share one panel"
    );
    place.file("log", "ts,client\n119,a\n119,a\n120,a\n");
    let svg = chart(&place, "--limit 2/60s");
    assert_eq!(
        svg.matches(" admitted, ").count(),
        2,
        "the fixed window admits the third request, so it has its own panel"
    );
}

#[test]
fn chart_axes_name_their_units() {
    let place = small();
    let svg = chart(&place, "--limit 1/60s");
    // Times are whole seconds, so columns are too. The busiest column has two requests.
    for part in ["requests per second", "each column is 1 s", ">2</text>"] {
        assert!(svg.contains(part), "{part:?}: {svg}");
    }
    let lines: String = (0..3_000).map(|n| format!("{},a\n", 1_000_000 + n * 7 + n % 5)).collect();
    place.file("log", format!("ts,client\n{lines}"));
    let svg = chart(&place, "--limit 1/60s");
    assert!(svg.contains("requests per 2 min") && svg.contains(">18</text>"), "{svg}");
}

#[test]
fn chart_shortens_long_gaps() {
    let place = Place::new();
    let lines: String = (0..3_600)
        .map(|n| format!("{},a\n", 1_424_638_800 + n * 3 + if n < 1_800 { 0 } else { 5_000_000 }))
        .collect();
    place.file("log", format!("ts,client\n{lines}"));
    let svg = chart(&place, "--limit 1/60s");
    for part in ["22 Feb 2015", "21 Apr 2015", "requests per minute", "without long gaps"] {
        assert!(svg.contains(part), "{part:?}: {svg}");
    }
}

#[test]
fn charts_accept_extreme_times() {
    let place = Place::new();
    place.file("log", "ts_ns,client\n0,a\n18446744073709551615,a\n");
    place.run("replay log --chart out.svg").ok();
    place.file("log", "ts_ns,client\n18446744073709551615,a\n");
    place.run("replay log --chart out.svg").ok();
}

#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn closed_pipe_is_no_error() {
    let place = Place::new();
    for args in [&["replay"][..], &["replay", "--json", "--top", "100000"], &["replay", "--help"]] {
        let mut child = Command::new(program())
            .args(args)
            .current_dir(place.path(""))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!stderr.contains("panicked") && !stderr.contains("error"), "{stderr}");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
    }
}

#[test]
fn replay_help_has_examples() {
    let place = Place::new();
    let long = place.run("replay --help").ok().stdout;
    for part in ["Examples:", "--ipv6-prefix", "60/min]", "Exit codes:", "strftime", "gcra"] {
        assert!(long.contains(part), "{part}");
    }
    let short = place.run("replay -h").ok().stdout;
    assert!(short.len() < long.len() && short.contains("--limit"));
    assert!(place.run("suggest --help").ok().stdout.contains("--deny-clients 1%"));
    assert!(place.run("--help").ok().stdout.contains("suggest"));
    assert!(place.run("--version").ok().stdout.starts_with("tollgate "));
}

#[test]
fn unusual_columns_are_explained() {
    let place = small();
    place.file(
        "rules.yaml",
        "domain: d\ndescriptors:\n  - key: ip\n    rate_limit: { unit: hour, requests_per_unit: 1 }\n",
    );
    for (args, explained) in [
        ("", &["Keys denied: ", "State: ", "Differs: "][..]),
        ("--store compact --memory 64KiB", &["When full: ", "Evicted:", "Indebted: ", "Wrongly: "]),
        ("--store sketch --memory 64KiB", &["False positive: ", "Overcounted: ", "Wrongly: "]),
        ("--rules rules.yaml", &["Shadow: ", "Uncharged: ", "Near: ", "Soft: ", "No domain: "]),
    ] {
        let run = place.run(&format!("replay log {args}")).ok();
        for part in explained {
            assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
        }
    }
}

/// One client asks nine times in ten seconds, for ten minutes, and another one in the tenth second.
fn busy() -> Place {
    let place = Place::new();
    let line =
        |second: u64| format!("{},{}\n", 1_000 + second, if second % 10 == 7 { "slow" } else { "busy" });
    place.file("log", "ts,client\n".to_owned() + &(0..600).map(line).collect::<String>());
    place
}

/// Cause: a replay showed what its limits denied, and not which limit to take.
#[test]
fn replay_ends_with_the_answer_of_suggest() {
    let place = busy();
    for (replay, suggest) in [
        ("--limit 5/min --algorithm fixed-window --algorithm gcra", "--period 1min"),
        ("--limit 5/10s --burst 7 --algorithm gcra", "--period 10s --burst 7"),
        ("--limit 5/min --algorithm fixed-window", "--period 1min --algorithm fixed-window"),
    ] {
        let text = place.run(&format!("replay log {replay}")).ok().stdout;
        let suggested = place.run(&format!("suggest log {suggest}")).ok().stdout;
        let answer = suggested.split("\n\n").last().unwrap();
        assert!(answer.starts_with("--limit ") && answer.contains("\n  denies "), "{suggested}");
        assert!(text.ends_with(answer) && text.contains("\nTo deny at most 0.1% of requests"), "{text}");
    }
    let json = place.run("replay log --limit 5/min --algorithm gcra --json").json();
    assert_eq!(json.as_object().unwrap().keys().collect::<Vec<_>>(), ["input", "results"]);
}

#[test]
fn algorithms_that_decide_alike_share_a_row() {
    let text = busy().run("replay log --limit 5/min").ok().stdout;
    let rows = |name: &str| text.lines().filter(|line| line.trim_start().starts_with(name)).count();
    let all = ["gcra, token-bucket, leaky-bucket ", "gcra ", "token-bucket ", "leaky-bucket "].map(rows);
    // The results, and the comparison with the log.
    assert_eq!(all, [2, 0, 0, 0], "{text}");
    assert!(text.contains("Key    Requests   gcra, token-bucket, leaky-bucket "), "{text}");
}
