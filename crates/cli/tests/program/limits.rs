//! Limits, keys and costs, with decisions calculated by hand.

use crate::support::Place;

/// Writes a log of `second,key[,cost]` lines.
fn log(lines: &str) -> Place {
    let place = Place::new();
    place.file("log", format!("ts,client,units\n{}\n", lines.replace(' ', "\n")));
    place
}

#[test]
fn gcra_admits_burst_then_rate() {
    // One unit each 10 s with a burst of 3: the limit admits three requests at 100, one at 110, none at 111, one at 120.
    let place = log("100,a 100,a 100,a 100,a 110,a 111,a 120,a");
    for algorithm in ["gcra", "token-bucket", "leaky-bucket"] {
        let args = format!("log --algorithm {algorithm} --limit 6/60s --burst 3");
        assert_eq!(place.decisions(&args), "1110101", "{algorithm}");
    }
}

#[test]
fn burst_flag_applies_to_every_limit() {
    let place = log("100,a 100,a 100,a");
    let json = place
        .run_with("replay log --algorithm gcra --json --burst 2 --limit 6/60s --limit 5/min", b"")
        .json();
    let limits = &json["results"][0]["limits"];
    assert_eq!((&limits[0]["burst"], &limits[1]["burst"]), (&2.into(), &2.into()));
    assert_eq!(json["results"][0]["admitted"], 2);
}

#[test]
fn fixed_window_resets_at_boundary() {
    // Windows of 60 s begin at multiples of 60, so 119 and 120 are in different windows.
    let place = log("118,a 119,a 119,a 120,a 121,a 122,a");
    assert_eq!(place.decisions("log --algorithm fixed-window --limit 2/60s"), "110110");
    assert_eq!(place.decisions("log --algorithm sliding-log --limit 2/60s"), "110000");
}

#[test]
fn two_limits_charge_all_or_none() {
    // The first limit, 1/s, denies the second request at 100, which must not charge the other limit. Both limits
    // admit the requests at 101 and at 102. The second limit, 3/10s, denies the request at 103, which must not charge
    // the first limit.
    let place = log("100,a 100,a 101,a 102,a 103,a 110,a 110,b");
    for algorithm in ["sliding-log", "fixed-window"] {
        let args = format!("log --algorithm {algorithm} --limit 1/s --limit 3/10s");
        assert_eq!(place.decisions(&args), "1011011", "{algorithm}");
    }
    let json = place.run("replay log --algorithm sliding-log --limit 1/s --limit 3/10s --json").json();
    let result = &json["results"][0];
    assert_eq!(result["limits"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&result["admitted"], &result["denied"], &result["keys_denied"]),
        (&5.into(), &2.into(), &1.into())
    );
    // The second limit denies at 103, and admits again at 110.
    assert_eq!(result["longest_wait_ns"], 7_000_000_000_u64);
}

#[test]
fn strict_windows_round_against_the_client() {
    // Eight requests at 59 s and three at 66 s. At 66 s nine tenths of the eight still count, which are 7.2 units.
    let eleven = ["59,a"; 8].iter().chain(&["66,a"; 3]).copied().collect::<Vec<_>>().join(" ");
    let place = log(&eleven);
    assert_eq!(
        place.decisions("log --time-format s --algorithm sliding-window --limit 10/min"),
        "1".repeat(11)
    );
    let strict =
        place.decisions("log --time-format s --algorithm sliding-window --limit 10/min --strict-windows");
    assert_eq!(strict, "11111111110");
    // With two sub-windows of half a minute, the request at 29 s no longer counts at 60 s. With strict windows it does,
    // since a sub-window that has partly left the window still counts.
    let place = log("29,a 60,a");
    let args = "log --time-format s --algorithm sub-window --sub-windows 2 --limit 1/min";
    assert_eq!(place.decisions(args), "11");
    assert_eq!(place.decisions(&format!("{args} --strict-windows")), "10");
}

#[test]
fn costs_come_from_a_field() {
    // The limit is ten units in 60 s. A cost of 0 charges nothing, and a cost of 11 can never be admitted.
    let place = log("100,a,4 101,a,7 102,a,6.0 103,a,0 104,a,1 105,b,11");
    let args = "log --algorithm sliding-log --limit 10/60s --cost units";
    assert_eq!(place.decisions(args), "101100");
    let json = place.run(&format!("replay {args} --json")).json();
    assert_eq!(json["results"][0]["never"], 1);
    let table = place.run(&format!("replay {args}")).ok().stdout;
    assert!(table.contains("1 never"), "{table}");
    let place = log("100,a,1.5 101,a,-1 102,a,x 103,a, 104,a,3");
    let run = place.run(&format!("replay {args} --key client --json --allow-skipped"));
    assert!(run.stderr.contains("log: 4 lines: the cost \"1.5\" is not a whole number"), "{}", run.stderr);
    assert_eq!(run.json()["input"]["skipped"], 4);
}

#[test]
fn keys_of_several_fields_are_distinct() {
    let place = log("100,a,x 100,a,y 100,a,x 100,b,x");
    let args = "log --algorithm gcra --limit 1/60s";
    assert_eq!(place.decisions(args), "1001");
    assert_eq!(place.decisions(&format!("{args} --key client+units")), "1101");
    let json = place.run(&format!("replay {args} --key client+units --json")).json();
    assert_eq!(json["results"][0]["top_denied"][0]["key"], "a + x");
}

#[test]
fn ipv6_networks_are_one_client() {
    let lines = "100,2001:db8::1 100,2001:DB8:0:0:ffff::2 100,2001:db8:0:1::1 100,192.0.2.1 100,::ffff:192.0.2.1 100,name";
    let place = log(lines);
    let args = "log --algorithm gcra --limit 1/60s";
    assert_eq!(place.decisions(&format!("{args} --ipv6-prefix 128")), "111101");
    assert_eq!(place.decisions(args), "101101");
    assert_eq!(place.decisions(&format!("{args} --ipv6-prefix 32")), "100101");
    let json = place.run(&format!("replay {args} --json")).json();
    assert_eq!(json["results"][0]["top_denied"][0]["key"], "2001:db8::/64");
    assert_eq!(json["results"][0]["top_denied"][1]["key"], "192.0.2.1");
}

// G88
#[test]
fn times_out_of_order_are_sorted_stably() {
    let place = log("110,a 100,a 100,b 105,a");
    let args = "log --algorithm sliding-log --limit 1/10s";
    // Sorted by time: a at 100, b at 100, a at 105, a at 110.
    assert_eq!(place.decisions(args), "1101");
    let run = place.run(&format!("replay {args}")).ok();
    assert!(run.stdout.contains("1 request older than the previous one: sorted"), "{}", run.stdout);
    // Without the sort, the older requests of a are denied. b is another client.
    assert_eq!(place.decisions(&format!("{args} --no-sort")), "1010");
    let json = place.run(&format!("replay {args} --no-sort --json")).json();
    assert_eq!(json["input"]["out_of_order"], 1);
    assert_eq!(json["input"]["first_ns"], 100_000_000_000_u64);
}

#[test]
fn algorithm_too_small_for_limit_is_omitted() {
    let place = log("100,a 100,a");
    let run = place.run("replay log --limit 70000/60s --json");
    assert!(run.stderr.contains("sliding-log left out"), "{}", run.stderr);
    assert_eq!(run.json()["results"].as_array().unwrap().len(), 6);
    place.run("replay log --limit 70000/60s --algorithm sliding-log").fails(2, &["sliding-log", "65536"]);
}

/// Returns how many requests each algorithm admits or denies wrongly, compared with an exact sliding log.
fn against_log(place: &Place, args: &str) -> Vec<(u64, u64)> {
    let json = place.run(&format!("replay log {args} --json")).json();
    let count = |value: &serde_json::Value| value.as_u64().unwrap();
    let each = json["results"].as_array().unwrap().iter().map(|result| &result["against_log"]);
    each.map(|log| (count(&log["wrongly_admitted"]), count(&log["wrongly_denied"]))).collect()
}

#[test]
fn differences_from_exact_log_are_counted() {
    // A window of 60 s begins at 120, so the fixed window admits two requests at 119 and two at 120. GCRA refills one
    // unit in 30 s.
    let place = log("119,a 119,a 120,a 120,a 150,a 150,a");
    let args = "--algorithm gcra --algorithm fixed-window --algorithm sliding-log --limit 2/60s";
    // gcra 110010, fixed-window 111100, sliding-log 110000.
    assert_eq!(against_log(&place, args), [(1, 0), (2, 0), (0, 0)]);
    assert_eq!(against_log(&place, "--algorithm gcra --burst 1 --limit 2/60s"), [(0, 3)]);
    let table = place.run(&format!("replay log {args}")).ok().stdout;
    for part in [
        "Compared with an exact sliding log",
        "Admitted, log denies",
        "16.67 %",
        "33.33 %",
        "compared on its own",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
    // If times step back, there is no exact window to compare with.
    let place = log("120,a 119,a");
    let run = place.run("replay log --no-sort").ok();
    assert!(!run.stdout.contains("Compared with an exact sliding log"), "{}", run.stdout);
    let json = place.run("replay log --no-sort --json --algorithm gcra").json();
    assert_eq!(json["results"][0]["against_log"], serde_json::Value::Null);
}

// G88
#[test]
fn sliding_log_agrees_with_exact_log() {
    let mut seed = 1_u64;
    let mut next = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    let mut now = 1_000_000_u64;
    let lines: Vec<String> = (0..4_000)
        .map(|_| {
            now += next(3) * next(700);
            format!("{}.{:03},{},{}", now / 1_000, now % 1_000, next(5), next(4))
        })
        .collect();
    let place = log(&lines.join(" "));
    let json = place.run("replay log --limit 9/10s --cost units --algorithm sliding-log --json").json();
    assert!(json["results"][0]["denied"].as_u64().unwrap() > 500, "{json}");
    for limits in ["--limit 9/10s", "--limit 1/s", "--limit 4/s --limit 20/min", "--limit 3/1001ms"] {
        for cost in ["", "--cost units"] {
            let args = format!("{limits} {cost} --time-format s --algorithm sliding-log");
            assert_eq!(against_log(&place, &args), [(0, 0)], "{args}");
        }
    }
}
