//! Suggested limits for several periods, calculated by hand or checked with replays of the limits and of each limit
//! one lower.

use std::fmt::Write as _;

use serde_json::Value;

use crate::support::{Place, trace};

const ALL: [&str; 7] =
    ["gcra", "token-bucket", "leaky-bucket", "fixed-window", "sliding-log", "sliding-window", "sub-window"];

fn suggestions(place: &Place, args: &str) -> Vec<Value> {
    place.run(&format!("suggest {args} --json")).json()["suggestions"].as_array().unwrap().clone()
}

/// Returns the limits of one suggestion.
fn limits(suggestion: &Value) -> Vec<u64> {
    suggestion["limits"].as_array().unwrap().iter().map(|limit| limit["limit"].as_u64().unwrap()).collect()
}

/// Replays with these flags. Returns the numbers of denied requests and denied keys.
fn denied(place: &Place, input: &str, flags: &str) -> (u64, u64) {
    let json = place.run(&format!("replay {input} {flags} --json --top 0")).json();
    let result = &json["results"][0];
    (result["denied"].as_u64().unwrap(), result["keys_denied"].as_u64().unwrap())
}

/// Writes a log where one client sends twenty requests, one each second, and two clients send ten requests at once. A
/// daily limit refills nothing in these seconds, so all algorithms count alike.
fn log_of_slow_and_bursty_clients() -> Place {
    let place = Place::new();
    let mut log = String::from("ts,client\n");
    (0..20).for_each(|second| log.push_str(&format!("{},slow\n", 100 + second)));
    (0..10).for_each(|_| log.push_str("100,sudden\n100,other\n"));
    place.file("log", log);
    place
}

#[test]
fn suggestion_agrees_with_hand_calculation() {
    let place = log_of_slow_and_bursty_clients();
    for algorithm in ALL {
        let on = |goal: &str| {
            let args = format!("log --time-format s --algorithm {algorithm} --period d --period s {goal}");
            limits(&suggestions(&place, &args)[0])
        };
        // The goal allows 6 denials of 40 requests. The daily limit may use half of them: 17 per day deny 3 requests
        // of the slow client. The limit per second may use the rest: 9 per second deny 1 request of each other
        // client. One denial is left over, so the daily limit becomes 16.
        assert_eq!(on("--deny-requests 15%"), [16, 9], "{algorithm}");
        // With 4 denials: 18 per day deny 2, and 9 per second deny 2. With 5: one is left over, so the daily limit
        // becomes 17. With 7: 17 per day deny 3, and 8 per second deny 4.
        assert_eq!(on("--deny-requests 10%"), [18, 9], "{algorithm}");
        assert_eq!(on("--deny-requests 12.5%"), [17, 9], "{algorithm}");
        assert_eq!(on("--deny-requests 17.5%"), [17, 8], "{algorithm}");
        // With 1 denial: half of it is 0, and any lower limit per second denies at least 2, so the daily limit uses it.
        assert_eq!(on("--deny-requests 2.5%"), [19, 10], "{algorithm}");
        assert_eq!(on("--deny-requests 0%"), [20, 10], "{algorithm}");
        assert_eq!(on("--deny-requests 100%"), [1, 1], "{algorithm}");
        // The goal allows one denied client of three. Half of it is 0 clients, and a limit per second cannot deny
        // only one of two. So the daily limit denies the slow client, and is the lowest that admits all requests of
        // the others.
        assert_eq!(on("--deny-clients 34%"), [10, 10], "{algorithm}");
    }
    // The order of the flags only changes the order of the answer.
    let args = "log --time-format s --algorithm gcra --period s --period d --deny-requests 15%";
    let answer = &suggestions(&place, args)[0];
    assert_eq!(limits(answer), [9, 16]);
    assert_eq!(answer["flags"], "--limit 9/s --limit 16/d");
}

#[test]
fn three_periods_share_goal_equally() {
    // One request each minute for twenty minutes, one each second for twenty seconds, and ten at once.
    let place = Place::new();
    let mut log = String::from("ts,client\n");
    for n in 0..20 {
        let _ = writeln!(log, "{},minutes\n{},seconds", 3_600 + 60 * n, 3_600 + n);
    }
    log.push_str(&"3600,once\n".repeat(10));
    place.file("log", log);
    let args = "log --time-format s --algorithm fixed-window --period min --period s --period h";
    // The goal allows 9 denials of 50 requests, so the periods get 3, 6 and 9 in turn. 19 per hour deny two clients 1
    // each (18 would deny 4). 15 per minute deny one of them 5, for a sum of 6. 7 per second deny the last client 3,
    // for a sum of 9.
    let answer = &suggestions(&place, &format!("{args} --deny-requests 18%"))[0];
    assert_eq!(limits(answer), [15, 7, 19]);
    assert_eq!((&answer["denied"], &answer["keys_denied"]), (&9.into(), &3.into()));
    assert_eq!(answer["flags"], "--limit 15/min --limit 7/s --limit 19/h");
}

#[test]
fn json_lists_every_limit() {
    let place = log_of_slow_and_bursty_clients();
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
    // The other limits per second were tried together with the day's limit, which alone denies 4.
    let tried = answer["tried"].as_array().unwrap();
    let tried = |limit: u64| &tried.iter().find(|tried| tried["limit"] == limit).unwrap()["denied"];
    assert_eq!([tried(8), tried(9), tried(10), tried(18)], [8, 6, 4, 4]);
    // With one period, the JSON has the limit in both places.
    let answer = &suggestions(&place, &format!("{args} --period s"))[0];
    assert_eq!(answer["limits"], serde_json::json!([{"limit": 7, "period_ns": second, "burst": 7}]));
    assert_eq!(answer["limit"], 7);
}

#[test]
fn suggestion_table_explains_method() {
    let place = log_of_slow_and_bursty_clients();
    let args = "suggest log --time-format s --deny-requests 15% --algorithm gcra";
    let run = place.run(&format!("{args} --period d --period s")).ok();
    for part in [
        "Goal     deny at most 15% of requests, periods 1 d and 1 s\n",
        "Method   finds the limits from the longest period to the shortest",
        "the k-th of 2: k/2",
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
    assert!(
        help.contains("The k-th of n limits is the smallest one") && help.contains("\"limits\""),
        "{help}"
    );
}

/// Asserts that the answer meets the goal, and that no limit of the answer could be one lower.
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

/// Writes a log of an hour of many different clients.
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

// G89
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn each_suggested_limit_is_lowest() {
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
fn ample_memory_gives_keyed_suggestion() {
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
fn suggested_limits_share_burst_flag() {
    let place = Place::new();
    let seconds: String = (0..60).map(|n| format!("{},a\n", 100 + n)).collect();
    place.file("log", format!("ts,client\n{seconds}"));
    // One request each second with a burst of one needs the full rate of both limits.
    let args = "log --time-format s --burst 1 --deny-requests 0% --period min --period 2s";
    let answer = &suggestions(&place, args)[0];
    assert_eq!(limits(answer), [60, 2]);
    assert_eq!(answer["flags"], "--limit 60/min --limit 2/2s --burst 1");
    assert_eq!(
        denied(&place, "log --time-format s --algorithm gcra", "--limit 60/min --limit 2/2s --burst 1"),
        (0, 0)
    );
    // The answer names the burst even if it equals one of the limits, since the other limit needs it.
    let answer = &suggestions(&place, &args.replace("--burst 1", "--burst 60"))[0];
    assert!(answer["flags"].as_str().unwrap().ends_with(" --burst 60"), "{answer}");
}

#[test]
fn bad_periods_are_refused_with_reason() {
    let place = Place::new();
    // The flags are checked before any input is read. There is no log.
    for twice in ["--period 60s --period min", "--period s --period 1h --period 1000ms"] {
        place
            .run(&format!("suggest log {twice}"))
            .fails(2, &["--period: 1 ", "given twice", "a different period"]);
    }
    place.run("suggest log --period 1s --period soon").fails(2, &["60s", "soon"]);
    place.run("suggest log --period 1s --period 0s").fails(2, &["--period"]);
    place.run("suggest log --period 1s 1h").fails(1, &["log"]);
    place
        .run("suggest log --period 1s --period 1h --store compact --memory 300")
        .fails(2, &["--memory 300B", "at least 544 bytes", "272 for each limit"]);
}

// G89
#[test]
fn unreachable_goal_names_period() {
    let place = Place::new();
    place.file("log", format!("ts,client\n{}", "100,a\n".repeat(40)));
    let args = "suggest log --time-format s --deny-requests 1%";
    // A burst of one never admits two requests at the same time.
    place.run(&format!("{args} --period s --period h --burst 1")).fails(
        1,
        &["gcra: no limit with --period h meets its part (1/2) of the goal to deny at most 1%", "burst of 1"],
    );
    // Forty requests at once exceed the highest rate.
    place.run(&format!("{args} --period h --period ns")).fails(
        1,
        &["gcra: no limit with --period ns meets the goal to deny at most 1% of requests; even a limit of 32 denies 20.00 %"],
    );
    // The message names the total memory, not the share of one limit.
    place
        .run("suggest log --time-format s --period h --period s --store sketch --memory 9000TiB")
        .fails(2, &["fixed-window: --memory 9216000GiB: cannot allocate a table of "]);
}
