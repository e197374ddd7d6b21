//! Limits for several periods, worked out by hand or checked by replaying them and each limit one below.

use std::fmt::Write as _;

use serde_json::Value;

use crate::support::{Place, trace};

const ALL: [&str; 7] =
    ["gcra", "token-bucket", "leaky-bucket", "fixed-window", "sliding-log", "sliding-window", "sub-window"];

fn suggestions(place: &Place, args: &str) -> Vec<Value> {
    place.run(&format!("suggest {args} --json")).json()["suggestions"].as_array().unwrap().clone()
}

/// The limits of one suggestion.
fn limits(suggestion: &Value) -> Vec<u64> {
    suggestion["limits"].as_array().unwrap().iter().map(|limit| limit["limit"].as_u64().unwrap()).collect()
}

/// Replays with these flags: requests and keys denied.
fn denied(place: &Place, input: &str, flags: &str) -> (u64, u64) {
    let json = place.run(&format!("replay {input} {flags} --json --top 0")).json();
    let result = &json["results"][0];
    (result["denied"].as_u64().unwrap(), result["keys_denied"].as_u64().unwrap())
}

/// One client asks twenty times, once a second; two ask ten times at once. Against a day, what refills in these seconds is
/// nothing, so that all algorithms count alike.
fn slow_and_sudden() -> Place {
    let place = Place::new();
    let mut log = String::from("ts,client\n");
    (0..20).for_each(|second| log.push_str(&format!("{},slow\n", 100 + second)));
    (0..10).for_each(|_| log.push_str("100,sudden\n100,other\n"));
    place.file("log", log);
    place
}

#[test]
fn the_answer_is_worked_out_by_hand() {
    let place = slow_and_sudden();
    for algorithm in ALL {
        let on = |goal: &str| {
            let args = format!("log --time-format s --algorithm {algorithm} --period d --period s {goal}");
            limits(&suggestions(&place, &args)[0])
        };
        // 6 of 40. With half of them, 17 a day deny the slow one 3; with the rest, 9 a second deny the others 1 each,
        // which leaves one: 16 a day.
        assert_eq!(on("--deny-requests 15%"), [16, 9], "{algorithm}");
        // 4: 18 a day deny 2, and 9 a second 2. 5: one is left over, for 17 a day. 7: 17 a day deny 3, and 8 a second 4.
        assert_eq!(on("--deny-requests 10%"), [18, 9], "{algorithm}");
        assert_eq!(on("--deny-requests 12.5%"), [17, 9], "{algorithm}");
        assert_eq!(on("--deny-requests 17.5%"), [17, 8], "{algorithm}");
        // 1: half of it is nothing, and a second is not denied less than 2; so the day has it.
        assert_eq!(on("--deny-requests 2.5%"), [19, 10], "{algorithm}");
        assert_eq!(on("--deny-requests 0%"), [20, 10], "{algorithm}");
        assert_eq!(on("--deny-requests 100%"), [1, 1], "{algorithm}");
        // A third of the clients: half of one is none, so the day denies no one; nor can a second deny one of two; so
        // the slow one is denied all but what keeps the others whole.
        assert_eq!(on("--deny-clients 34%"), [10, 10], "{algorithm}");
    }
    // The order of the flags is no matter but for the order of the answer.
    let args = "log --time-format s --algorithm gcra --period s --period d --deny-requests 15%";
    let answer = &suggestions(&place, args)[0];
    assert_eq!(limits(answer), [9, 16]);
    assert_eq!(answer["flags"], "--limit 9/s --limit 16/d");
}

#[test]
fn three_periods_have_a_third_each() {
    // Once a minute for twenty minutes; once a second for twenty seconds; ten at once.
    let place = Place::new();
    let mut log = String::from("ts,client\n");
    for n in 0..20 {
        let _ = writeln!(log, "{},minutes\n{},seconds", 3_600 + 60 * n, 3_600 + n);
    }
    log.push_str(&"3600,once\n".repeat(10));
    place.file("log", log);
    let args = "log --time-format s --algorithm fixed-window --period min --period s --period h";
    // 9 of 50, so 3, 6 and 9. 19 an hour deny two clients 1 each (18 would deny 4); 15 a minute deny one of them 5, and 6 in
    // all; 7 a second deny the last one 3, and 9 in all.
    let answer = &suggestions(&place, &format!("{args} --deny-requests 18%"))[0];
    assert_eq!(limits(answer), [15, 7, 19]);
    assert_eq!((&answer["denied"], &answer["keys_denied"]), (&9.into(), &3.into()));
    assert_eq!(answer["flags"], "--limit 15/min --limit 7/s --limit 19/h");
}

#[test]
fn json_lists_every_limit() {
    let place = slow_and_sudden();
    let args = "log --time-format s --deny-requests 15% --algorithm fixed-window";
    let answer = &suggestions(&place, &format!("{args} --period s --period d"))[0];
    let (second, day) = (1_000_000_000_u64, 86_400_000_000_000_u64);
    let both = serde_json::json!([
        {"limit": 9, "period_ns": second, "burst": 9},
        {"limit": 16, "period_ns": day, "burst": 16},
    ]);
    assert_eq!(answer["limits"], both);
    for (field, value) in
        [("limit", 9), ("period_ns", second), ("burst", 9), ("denied", 6), ("keys_denied", 3)]
    {
        assert_eq!(answer[field], value, "{field}");
    }
    assert_eq!(answer["monotone"], true);
    // What was tried in its place is with the day's limit in force, which alone denies 4.
    let tried = answer["tried"].as_array().unwrap();
    let tried = |limit: u64| &tried.iter().find(|tried| tried["limit"] == limit).unwrap()["denied"];
    assert_eq!([tried(8), tried(9), tried(10), tried(18)], [8, 6, 4, 4]);
    // One period has its limit in both places.
    let answer = &suggestions(&place, &format!("{args} --period s"))[0];
    assert_eq!(answer["limits"], serde_json::json!([{"limit": 7, "period_ns": second, "burst": 7}]));
    assert_eq!(answer["limit"], 7);
}

#[test]
fn the_table_explains_itself() {
    let place = slow_and_sudden();
    let args = "suggest log --time-format s --deny-requests 15% --algorithm gcra";
    let run = place.run(&format!("{args} --period d --period s")).ok();
    for part in [
        "Goal     deny at most 15% of requests, periods 1 d and 1 s\n",
        "Method   from the longest period to the shortest",
        "the k-th of 2 to k/2",
        "◀ --limit 16/d ",
        "◀ --limit 9/s ",
        "15/d",
        "Each line changes one limit",
        "\n--limit 16/d --limit 9/s --algorithm gcra\n",
    ] {
        assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
    }
    let run = place.run(&format!("{args} --period d")).ok();
    for part in ["Method", "Each line", "/d "] {
        assert!(!run.stdout.replace("--limit 14/d ", "").contains(part), "{part}: {}", run.stdout);
    }
    for command in ["suggest", "replay"] {
        let help = place.run(&format!("{command} --help")).ok().stdout;
        assert!(help.contains("--deny-requests 0.1% --period 1h --period 1s"), "{help}");
    }
    let help = place.run("suggest --help").ok().stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("the k-th of n to k/n") && help.contains("\"limits\""), "{help}");
}

/// The answer meets the goal, and with any limit one lower it would not.
fn is_least(place: &Place, input: &str, args: &str, periods: &[&str]) {
    let flags: String = periods.iter().map(|period| format!(" --period {period}")).collect();
    let json = place.run(&format!("suggest {input} {args}{flags} --deny-requests 2% --json")).json();
    let records = json["input"]["records"].as_u64().unwrap();
    let answer = &json["suggestions"][0];
    let found = limits(answer);
    let at = |limits: &[u64]| {
        let limits = limits.iter().zip(periods).map(|(limit, period)| format!(" --limit {limit}/{period}"));
        denied(place, input, &format!("{args}{}", limits.collect::<String>()))
    };
    assert_eq!(
        (at(&found).0, at(&found).1),
        (answer["denied"].as_u64().unwrap(), answer["keys_denied"].as_u64().unwrap())
    );
    assert_eq!(at(&found), denied(place, input, &format!("{args} {}", answer["flags"].as_str().unwrap())));
    assert!(at(&found).0 * 50 <= records, "{args}: {answer}");
    for place in 0..found.len() {
        let mut lower = found.clone();
        lower[place] -= 1;
        assert!(lower[place] > 0 && at(&lower).0 * 50 > records, "{args}: {lower:?}: {answer}");
    }
}

/// Clients of all habits, for an hour.
fn crowd() -> Place {
    let mut seed = 0xABCD_u64;
    let mut below = |end: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    let mut log = String::from("ts,client\n");
    for _ in 0..1_500 {
        let (at, client) = (below(3_600), below(40) * below(40));
        (0..1 + below(1 + client % 7)).for_each(|_| log.push_str(&format!("{at},c{client}\n")));
    }
    let place = Place::new();
    place.file("log", log);
    place
}

#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn no_limit_of_the_answer_could_be_one_lower() {
    let place = crowd();
    for algorithm in ALL {
        is_least(&place, "log --time-format s", &format!("--algorithm {algorithm}"), &["10min", "1s"]);
    }
    is_least(&place, "log --time-format s", "--algorithm gcra", &["1s", "1h", "1min"]);
    for store in ["compact", "sketch"] {
        let args = format!("--algorithm fixed-window --store {store} --memory 1KiB");
        is_least(&place, "log --time-format s", &args, &["10min", "1s"]);
    }
    let Some(path) = trace("normalized/sec_edgar_2017.tsv.gz") else { return };
    is_least(&place, &path.display().to_string(), "--algorithm gcra", &["60s", "1s"]);
}

#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn ample_memory_gives_the_keyed_stores_answer() {
    let place = crowd();
    let args = "log --time-format s --period 10min --period 1s --deny-clients 5% --algorithm fixed-window";
    let keyed = suggestions(&place, args);
    for store in ["compact", "sketch"] {
        let other = suggestions(&place, &format!("{args} --store {store} --memory 1MiB"));
        for field in ["limits", "flags", "denied", "keys_denied", "tried"] {
            assert_eq!(keyed[0][field], other[0][field], "{store} {field}");
        }
        assert_eq!(other[0][store]["wrongly_denied"], 0);
    }
}

#[test]
fn a_burst_is_each_limits() {
    let place = Place::new();
    let seconds: String = (0..60).map(|n| format!("{},a\n", 100 + n)).collect();
    place.file("log", format!("ts,client\n{seconds}"));
    // Once a second through a burst of one needs the whole pace of either limit.
    let args = "log --time-format s --burst 1 --deny-requests 0% --period min --period 2s";
    let answer = &suggestions(&place, args)[0];
    assert_eq!(limits(answer), [60, 2]);
    assert_eq!(answer["flags"], "--limit 60/min --limit 2/2s --burst 1");
    assert_eq!(
        denied(&place, "log --time-format s --algorithm gcra", "--limit 60/min --limit 2/2s --burst 1"),
        (0, 0)
    );
    // One that is a limit's own size is named too, for the other's sake.
    let answer = &suggestions(&place, &args.replace("--burst 1", "--burst 60"))[0];
    assert!(answer["flags"].as_str().unwrap().ends_with(" --burst 60"), "{answer}");
}

#[test]
fn bad_periods_are_refused_with_the_reason() {
    let place = Place::new();
    // Before any input is read: there is no log.
    for twice in ["--period 60s --period min", "--period s --period 1h --period 1000ms"] {
        place.run(&format!("suggest log {twice}")).fails(2, &["--period: 1 ", "named twice", "of its own"]);
    }
    place.run("suggest log --period 1s --period soon").fails(2, &["60s", "soon"]);
    place.run("suggest log --period 1s --period 0s").fails(2, &["--period"]);
    place.run("suggest log --period 1s 1h").fails(1, &["log"]);
    place
        .run("suggest log --period 1s --period 1h --store compact --memory 300")
        .fails(2, &["--memory 300B", "at least 544 bytes", "272 for each limit"]);
}

#[test]
fn what_cannot_be_met_names_the_period() {
    let place = Place::new();
    place.file("log", format!("ts,client\n{}", "100,a\n".repeat(40)));
    let args = "suggest log --time-format s --deny-requests 1%";
    // Two at the same time never fit through a burst of one.
    place.run(&format!("{args} --period s --period h --burst 1")).fails(
        1,
        &["gcra: no limit with --period h can keep to 1/2 of the goal to deny at most 1%", "burst of 1"],
    );
    // Forty at once are more than the highest rate there is.
    place.run(&format!("{args} --period h --period ns")).fails(
        1,
        &["gcra: no limit with --period ns can deny at most 1% of requests; even 32 denies 20.00 %"],
    );
    // The memory that is named is the whole.
    place
        .run("suggest log --time-format s --period h --period s --store sketch --memory 9000TiB")
        .fails(2, &["fixed-window: --memory 9216000GiB: there is no memory"]);
}
