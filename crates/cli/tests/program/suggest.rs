//! Suggested limits, checked by hand or with replays of the limit and of the limit one lower.

use serde_json::Value;

use crate::support::{Place, trace};

/// Replays at `limit`. Returns the numbers of denied requests and denied keys.
fn denied(place: &Place, input: &str, algorithm: &str, limit: u64, period: &str, more: &str) -> (u64, u64) {
    let args =
        format!("replay {input} --algorithm {algorithm} --limit {limit}/{period} {more} --json --top 0");
    let json = place.run(&args).json();
    let result = &json["results"][0];
    (result["denied"].as_u64().unwrap(), result["keys_denied"].as_u64().unwrap())
}

fn suggestion(place: &Place, args: &str) -> (Value, u64) {
    let json = place.run(&format!("suggest {args} --json")).json();
    let limit = json["suggestions"][0]["limit"].as_u64().unwrap();
    (json, limit)
}

#[test]
fn suggestion_agrees_with_hand_calculation() {
    let place = Place::new();
    // Ten clients: client n sends n requests in one second.
    let lines: String = (1..=10).flat_map(|n| vec![format!("100,c{n}\n"); n]).collect();
    place.file("log", format!("ts,client\n{lines}"));
    for algorithm in ["gcra", "fixed-window", "sliding-log", "sub-window"] {
        let on = |goal: &str| suggestion(&place, &format!("log --algorithm {algorithm} {goal}")).1;
        // A limit of 8 denies requests of clients 9 and 10, which are 20 % of clients, and 3 of 55 requests, which
        // are 5.45 %.
        assert_eq!(on("--deny-clients 20%"), 8, "{algorithm}");
        assert_eq!(on("--deny-clients 19.9%"), 9, "{algorithm}");
        assert_eq!(on("--deny-requests 5.46%"), 8, "{algorithm}");
        assert_eq!(on("--deny-requests 5.45%"), 9, "{algorithm}");
        assert_eq!(on("--deny-requests 0%"), 10, "{algorithm}");
        assert_eq!(on("--deny-requests 100%"), 1, "{algorithm}");
    }
    let run = place.run("suggest log --deny-clients 0.2 --period 1h").ok();
    assert!(run.stdout.contains("--limit 8/h --algorithm gcra"), "{}", run.stdout);
}

// G89
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn suggested_limit_is_lowest_for_goal() {
    let place = Place::new();
    let Some(path) = trace("normalized/github_events_2015.tsv.gz") else { return };
    let input = path.display().to_string();
    for (algorithm, period) in [("gcra", "60s"), ("sliding-window", "10s"), ("fixed-window", "1h")] {
        let (json, limit) = suggestion(
            &place,
            &format!("{input} --algorithm {algorithm} --period {period} --deny-requests 2%"),
        );
        let records = json["input"]["records"].as_u64().unwrap();
        let keys = json["input"]["keys"].as_u64().unwrap();
        let at = |limit| denied(&place, &input, algorithm, limit, period, "");
        assert!(
            limit > 1 && at(limit).0 * 50 <= records && at(limit - 1).0 * 50 > records,
            "{algorithm} {limit}"
        );
        assert_eq!(json["suggestions"][0]["denied"], at(limit).0);

        let (_, limit) = suggestion(
            &place,
            &format!("{input} --algorithm {algorithm} --period {period} --deny-clients 0.1%"),
        );
        assert!(at(limit).1 * 1000 <= keys && at(limit - 1).1 * 1000 > keys, "{algorithm} {limit}");
    }
}

// G89
#[test]
fn both_goals_are_met_together() {
    let place = Place::new();
    // Ten clients: client n sends n requests in one second. Another client sends a hundred.
    let mut lines: String = (1..=10).flat_map(|n| vec![format!("100,c{n}\n"); n]).collect();
    lines.push_str(&"100,busy\n".repeat(100));
    place.file("log", format!("ts,client\n{lines}"));
    let on = |goal: &str| suggestion(&place, &format!("log --time-format s {goal}"));
    // A limit of 10 denies requests of one client in eleven, and 90 of 155 requests.
    let (json, limit) = on("--deny-clients 10%");
    assert_eq!((limit, &json["suggestions"][0]["denied"]), (10, &90.into()));
    let warning = json["suggestions"][0]["warnings"][0].as_str().unwrap();
    assert!(warning.contains("58.06 % of all requests") && warning.contains("--deny-requests"), "{warning}");
    // At most 15 of 155 requests may be denied, so the busy client keeps 85.
    let (json, limit) = on("--deny-clients 10% --deny-requests 10%");
    assert_eq!((limit, &json["suggestions"][0]["denied"]), (85, &15.into()));
    assert_eq!(json["suggestions"][0]["warnings"], serde_json::json!([]));
    let goal = &json["goal"];
    assert_eq!((&goal["deny"], &goal["share_billionths"]), (&"requests".into(), &100_000_000.into()));
    assert_eq!(goal["requests_billionths"], 100_000_000);
    assert_eq!(goal["clients_billionths"], 100_000_000);
    // Here the goal for clients needs the higher limit.
    assert_eq!(on("--deny-clients 0% --deny-requests 10%").1, 100);
    let run = place.run("suggest log --time-format s --deny-clients 10%").ok();
    for part in [
        "--limit 10/min --algorithm gcra\n  denies 58.06 % of requests, from 9.09 % of clients\n",
        "  Warning: few clients are denied, but 58.06 % of all requests are",
    ] {
        assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
    }
    let run = place.run("suggest log --time-format s --deny-clients 10% --deny-requests 10%").ok();
    let goal =
        "Goal     deny at most 10% of requests, and deny requests of at most 10% of clients, period 1 min";
    assert!(run.stdout.contains(goal) && !run.stdout.contains("Warning:"), "{}", run.stdout);
}

#[test]
fn suggestion_keeps_burst_flag() {
    let place = Place::new();
    place.file("log", "ts,client\n100,a\n101,a\n102,a\n103,a\n104,a\n105,a\n106,a\n107,a\n108,a\n109,a\n");
    // With a burst of one, one request each second needs the full rate.
    let (json, limit) = suggestion(&place, "log --burst 1 --deny-requests 0%");
    assert_eq!(limit, 60);
    assert_eq!(json["suggestions"][0]["flags"], "--limit 60/min --burst 1");
    assert_eq!(denied(&place, "log", "gcra", 60, "min", "--burst 1").0, 0);
    assert!(denied(&place, "log", "gcra", 59, "min", "--burst 1").0 > 0);
    // A burst of one never admits two requests at the same time.
    place.file("log", "ts,client\n100,a\n100,a\n");
    place.run("suggest log --burst 1 --deny-requests 0%").fails(1, &["no limit", "burst of 1"]);
}

// G89
#[test]
fn every_algorithm_gets_a_suggestion() {
    let place = Place::new();
    let lines: String = (0..400).map(|n| format!("{},c{}\n", n * n % 3_600, n * n % 7)).collect();
    place.file("log", format!("ts,client\n{lines}"));
    let json = place.run("suggest log --time-format s --algorithm all --deny-requests 1% --json").json();
    let suggestions = json["suggestions"].as_array().unwrap();
    assert_eq!(suggestions.len(), 7);
    for suggestion in suggestions {
        assert!(suggestion["denied"].as_u64().unwrap() <= 4);
        assert!(suggestion["flags"].as_str().unwrap().starts_with("--limit "));
    }
}

#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn suggest_without_file_uses_generated_day() {
    let run = Place::new().run("suggest --deny-requests 5%").ok();
    assert!(
        run.stdout.contains("generated requests") && run.stdout.contains("--algorithm gcra"),
        "{}",
        run.stdout
    );
    let run = Place::new().run("suggest").ok();
    assert!(run.stdout.contains("by default") && run.stdout.contains("--limit "), "{}", run.stdout);
}
