//! `tollgate rules check`: the table, the JSON, and the errors and warnings.

use crate::support::Place;

const EDGE: &str = "\
domain: edge
tollgate: { memory: 2MiB }
descriptors:
  - key: remote_address
    rate_limit: { unit: second, requests_per_unit: 10, algorithm: gcra, burst: 20, soft: 15, name: calls }
  - key: remote_address
    value: 203.0.113.7
    rate_limit: { unit: second, requests_per_unit: 0 }
  - key: path
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1000, store: keyed, max_keys: 5000, enforced: 12.5% }
  - key: path
    value: /free
    rate_limit: { unlimited: true, replaces: [{ name: calls }] }
";
const WRONG: &str = "\
domain: wrong
descriptors:
  - key: a
    rate_limit: { unit: fortnight, requests_per_unit: 10 }
  - key: b
    rate_limit: { unit: second, requests_per_unit: -1 }
";

#[test]
fn valid_rules_print_table() {
    let place = Place::new();
    place.file("edge.yaml", EDGE);
    let run = place.run("rules check edge.yaml").ok();
    let line = |needle: &str| {
        let found = run.stdout.lines().find(|line| line.contains(needle));
        found.unwrap_or_else(|| panic!("{needle} is not in {}", run.stdout)).to_owned()
    };
    assert_eq!(line("Domain"), "Domain edge: 4 rules, charged all-or-nothing");
    for (rule, parts) in [
        ("edge|remote_address ", &[" calls ", "10/s burst 20", "gcra", "compact 2MiB", "soft 15", " 5"][..]),
        ("edge|remote_address=203.0.113.7", &["edge.remote_address_203.0.113.7", "denies all"]),
        (
            "edge|path ",
            &[" edge.path ", "1000/h", "fixed-window", "keyed, 5,000 keys", "shadow; enforced 12.50 %"],
        ),
        ("edge|path=/free", &["none", "replaces calls"]),
    ] {
        let line = line(rule);
        for part in parts {
            assert!(line.contains(part), "{part:?} is not in {line:?}");
        }
    }
    assert_eq!(run.stderr, "");
}

#[test]
fn valid_rules_print_json() {
    let place = Place::new();
    place.file("edge.yaml", EDGE);
    let json = place.run("rules check edge.yaml --json").json();
    let rules = &json["domains"][0]["rules"];
    assert_eq!(rules.as_array().unwrap().len(), 4);
    assert_eq!(rules[0]["identity"], "edge|remote_address");
    assert_eq!(rules[0]["name"], "calls");
    assert_eq!(rules[0]["burst"], 20);
    assert_eq!(rules[0]["memory_bytes"], 2 << 20);
    assert_eq!(rules[0]["soft"], 15);
    assert_eq!(rules[1]["limit"], 0);
    assert_eq!(rules[2]["period_ns"], 3_600_000_000_000_u64);
    assert_eq!(rules[2]["enforced_per_million"], 125_000);
    assert_eq!(rules[2]["max_keys"], 5000);
    assert_eq!(rules[3]["unlimited"], true);
    assert_eq!(rules[3]["replaces"][0], "calls");
    assert_eq!(json["errors"].as_array().unwrap().len(), 0);
}

/// The check needs no server, and works whether or not the program supports Redis.
// G90
#[test]
fn rules_in_redis_are_checked() {
    let place = Place::new();
    let text = "domain: d\ntollgate: { store: redis, mode: atomic, processes: 3, timeout: 25ms }\ndescriptors:\n  \
        - { key: a, rate_limit: { unit: hour, requests_per_unit: 2 } }\n  \
        - { key: b, rate_limit: { unit: hour, requests_per_unit: 2, processes: 1, on_failure: open } }\n";
    place.file("shared.yaml", text);
    let run = place.run("rules check shared.yaml").ok();
    assert!(run.stdout.contains("redis, atomic, 3 processes "), "{}", run.stdout);
    assert!(run.stdout.contains("redis, atomic, 1 process "), "{}", run.stdout);
    let json = place.run("rules check shared.yaml --json").json();
    let shared =
        serde_json::json!({ "mode": "atomic", "on_failure": "local", "processes": 3, "timeout_ms": 25 });
    assert_eq!(json["domains"][0]["rules"][0]["shared"], shared);
    assert_eq!(json["domains"][0]["rules"][0]["store"], "redis");
    let exact = text.replace("unit: hour", "unit: hour, algorithm: sliding-log");
    place.file("exact.yaml", &exact).file("wrong.yaml", exact.replace("atomic", "lease"));
    place.run("rules check exact.yaml").ok();
    let run = place.run("rules check wrong.yaml");
    assert!(run.code != 0 && run.stderr.contains("does not support sliding-log"), "{}", run.stderr);
}

// G90
#[test]
fn every_rule_error_has_its_position() {
    let place = Place::new();
    place.file("edge.yaml", EDGE).file("wrong.yaml", WRONG);
    place.run("rules check edge.yaml wrong.yaml missing.toml notes.txt").fails(
        1,
        &[
            "error: wrong.yaml:4:25: descriptors[0].rate_limit.unit: no unit is called \"fortnight\"; use second,",
            "error: wrong.yaml:6:52: descriptors[1].rate_limit.requests_per_unit: -1 is negative",
            "error: missing.toml: cannot be read: no such file or directory",
            "error: notes.txt: the file name has no known extension; use .yaml",
            "error: 4 problems in 3 files",
        ],
    );
    let run = place.run("rules check wrong.yaml --json");
    assert_eq!(run.code, 1);
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(json["errors"][0]["line"], 4);
    assert_eq!(json["errors"][0]["path"], "descriptors[0].rate_limit.unit");
    assert_eq!(json["domains"].as_array().unwrap().len(), 0);
}

// G90
#[test]
fn warnings_do_not_fail() {
    let place = Place::new();
    place.file("a.yaml", "domain: a\ndescriptors: [{ key: k, rate_limit: { unit: day } }]");
    let run = place.run("rules check a.yaml").ok();
    assert!(run.stderr.starts_with("warning: a.yaml:2:"), "{}", run.stderr);
    assert!(run.stderr.contains("denies all requests"), "{}", run.stderr);
}

#[test]
fn merge_flag_merges_domains() {
    let place = Place::new();
    let rule = |key| {
        format!(
            "domain: a\ndescriptors: [{{ key: {key}, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}]"
        )
    };
    place.file("one.yaml", rule("x")).file("two.yaml", rule("y")).file("three.yaml", rule("x"));
    place.run("rules check one.yaml two.yaml").fails(1, &["two.yaml:1:9:", "one.yaml:1", "--merge-domains"]);
    let run = place.run("rules check one.yaml two.yaml --merge-domains").ok();
    assert!(run.stdout.contains("Domain a: 2 rules") && run.stderr.is_empty(), "{run:?}");
    let named = rule("z").replace("{ unit:", "{ name: a.x, unit:");
    let run = place.file("named.yaml", named).run("rules check one.yaml named.yaml --merge-domains").ok();
    assert!(
        run.stderr.starts_with(
            "warning: named.yaml:2:1: this rule and the rule in one.yaml:2 are both named \"a.x\""
        ),
        "{}",
        run.stderr
    );
    place
        .run("rules check one.yaml two.yaml three.yaml --merge-domains")
        .fails(1, &["three.yaml:2:15:", "key \"x\" without a value is also in one.yaml:2"]);
}

#[test]
fn rules_check_help_explains_options() {
    let place = Place::new();
    place.run("rules check").fails(2, &["FILE"]);
    let help = place.run("rules check --help").ok().stdout;
    assert!(help.contains("requests_per_unit: 5") && help.contains("--merge-domains"), "{help}");
}

const LOG: &str = "\
192.0.2.1 - - [10/Oct/2020:10:00:00 +0000] \"GET / HTTP/1.1\" 200 1
192.0.2.2 - - [10/Oct/2020:10:00:01 +0000] \"GET /login HTTP/1.1\" 200 1
";
const MISSPELT: &str = "\
domain: edge
descriptors:
  - key: remote_address
    rate_limit: { unit: second, requests_per_unit: 10 }
  - key: path
    value: /log-in
    rate_limit: { unit: second, requests_per_unit: 1 }
  - key: user_agnet
    rate_limit: { unit: second, requests_per_unit: 1 }
";

// G90
#[test]
fn rules_without_matches_give_warnings() {
    let place = Place::new();
    place.file("edge.yaml", MISSPELT).file("access.log", LOG);
    let run = place.run("rules check edge.yaml --log access.log").ok();
    assert!(run.stdout.contains("Domain edge: 3 rules"), "{}", run.stdout);
    for part in [
        "warning: edge.yaml:7: the rule \"edge|path=/log-in\" applies to none of the 2 requests of the log; correct",
        "warning: edge.yaml:9: the rule \"edge|user_agnet\" applies",
        "Request  remote_address=ip",
        "no field matches user_agnet",
    ] {
        assert!(run.stderr.contains(part), "{part:?} is not in {}", run.stderr);
    }
    assert_eq!(run.stderr.matches("warning:").count(), 2, "{}", run.stderr);

    // The flags for fields are those of `replay --rules`.
    let run = place.run("rules check edge.yaml --log access.log --descriptor path:=/log-in --json");
    let json = run.json();
    let warnings = json["warnings"].as_array().unwrap();
    let lines: Vec<_> = warnings.iter().map(|warning| warning["line"].as_u64().unwrap()).collect();
    assert_eq!((lines, warnings[0]["file"].as_str()), (vec![4, 9], Some("edge.yaml")));

    // The log comes from standard input, and there is nothing to warn about.
    place.file("edge.yaml", MISSPELT.replace("log-in", "login").replace("user_agnet", "method"));
    let run = place.run_with("rules check edge.yaml --log - --format clf", LOG.as_bytes()).ok();
    assert!(!run.stderr.contains("warning:"), "{}", run.stderr);
}

#[test]
fn log_options_need_a_log() {
    let place = Place::new();
    place.file("edge.yaml", MISSPELT).file("access.log", LOG);
    for option in ["--strict", "--format clf", "--descriptor a=b", "--domain edge"] {
        place.run(&format!("rules check edge.yaml {option}")).fails(2, &["--log <FILE>"]);
    }
    place.run("rules check edge.yaml --log access.log --key ip").fails(2, &["--key"]);
    place.run("rules check edge.yaml --log access.log --domain shop").fails(2, &["\"shop\"", "\"edge\""]);
    place.run("rules check edge.yaml --log nowhere.log").fails(1, &["nowhere.log"]);
    // Errors in rule files are reported before any log is read.
    place.file("wrong.yaml", WRONG);
    place.run("rules check wrong.yaml --log nowhere.log").fails(1, &["fortnight", "2 problems in 1 file"]);
}

#[test]
fn only_files_with_problems_are_counted() {
    let place = Place::new();
    place.file("wrong.yaml", WRONG).file("good.yaml", MISSPELT);
    place.run("rules check good.yaml wrong.yaml").fails(1, &["error: 2 problems in 1 file; see above"]);
}

#[cfg(not(feature = "serve"))]
#[test]
fn service_names_the_missing_feature() {
    let place = Place::new();
    for command in ["serve", "serve limits.yaml --grpc :8081", "serve --help", "serve -V"] {
        place.run(command).fails(2, &["built without the service", "--features serve"]);
    }
    let help = place.run("--help").ok().stdout;
    assert!(help.contains("(not in this build)"), "{help}");
}

#[cfg(not(feature = "redis"))]
#[test]
fn commands_for_servers_name_the_missing_feature() {
    let place = Place::new();
    for command in ["push limits.yaml", "diff limits.yaml", "pull"] {
        place.run(&format!("rules {command}")).fails(2, &["built without Redis", "--features redis"]);
    }
}

/// Rules for units that are reported after the response need `charging: count-denials`.
#[test]
fn uncounted_reports_are_a_warning() {
    let file =
        |settings: &str, descriptor: &str| format!("domain: d\n{settings}\ndescriptors:\n  - {descriptor}\n");
    let limit = "rate_limit: { unit: hour, requests_per_unit: 100 }";
    let named = "rate_limit: { unit: hour, requests_per_unit: 100, name: Token budget }";
    for (settings, descriptor, warns) in [
        ("", format!("{{ key: tokens, {limit} }}"), true),
        ("tollgate: { charging: all-or-nothing }", format!("{{ key: llm-cost, {limit} }}"), true),
        ("", format!("{{ key: model_name_override, {limit} }}"), true),
        ("", format!("{{ key: user, {named} }}"), true),
        (
            "",
            format!("{{ key: user, descriptors: [ {{ key: kind, value: input_tokens, {limit} }} ] }}"),
            true,
        ),
        ("tollgate: { charging: count-denials }", format!("{{ key: tokens, {limit} }}"), false),
        ("tollgate: { charging: count-first }", format!("{{ key: tokens, {limit} }}"), false),
        // The value of a header, and not a budget.
        ("", format!("{{ key: api_token, {limit} }}"), false),
        ("", format!("{{ key: user, {limit} }}"), false),
    ] {
        let place = Place::new();
        place.file("limits.yaml", file(settings, &descriptor));
        let run = place.run("rules check limits.yaml").ok();
        let told = run.stderr.contains("a report that exceeds the limit is not counted")
            && run.stderr.contains("charging: count-denials");
        assert_eq!(told, warns, "{descriptor}: {}", run.stderr);
    }
}

/// Rules that load and match nothing, and objects of other programs, were accepted or refused without the reason.
// G90
#[test]
fn values_that_never_match_and_foreign_files_are_named() {
    let place = Place::new();
    let rule = |key: &str, value: &str| {
        format!(
            "domain: edge\ndescriptors:\n  - key: {key}\n    value: \"{value}\"\n    rate_limit: {{ unit: minute, requests_per_unit: 9 }}\n"
        )
    };
    for (key, value, remedy) in [
        ("remote_address", "2001:DB8:0::A", "write \"2001:db8::a\""),
        ("remote_address", "198.51.100.4:443", "write \"198.51.100.4\""),
        ("remote_address", "${CLIENT}", "a variable that nothing filled in"),
        ("path", "/assets/.*", "write \"/assets/*\""),
    ] {
        place.file("limits.yaml", rule(key, value));
        let json = place.run("rules check limits.yaml --json").json();
        let [warning] = &json["warnings"].as_array().unwrap()[..] else { panic!("{json:#}") };
        assert!(format!("{warning}").replace("\\\"", "\"").contains(remedy), "{warning}");
        assert_eq!(warning["line"], 3);
    }
    place
        .run_with("rules check -", b"apiVersion: v1\nkind: ConfigMap\ndata: { a.yaml: 'domain: d' }\n")
        .fails(1, &["standard input:1:1: this is a ConfigMap of Kubernetes", "tollgate rules check -"]);
    for text in [
        &rule("path", "/a")[..],
        "domain = \"edge\"\n[[descriptors]]\nkey = \"path\"\n",
        "{\"domain\":\"edge\"}",
    ] {
        let run = place.run_with("rules check -", text.as_bytes()).ok();
        assert!(run.stdout.contains("Domain edge"), "{run:?}");
    }
    let run = place.run_with("rules explain - edge path=/a", rule("path", "/a").as_bytes()).ok();
    assert!(run.stdout.contains("edge|path=/a"), "{run:?}");
    // Envoy's own bound does not apply to a file with the key.
    let month = "rate_limit: { unit: month, requests_per_unit: 6000000000 }";
    place.file("usd.yaml", format!("domain: d\ntollgate: {{}}\ndescriptors: [{{ key: team, {month} }}]\n"));
    assert_eq!(
        place.run("rules check usd.yaml --json").json()["domains"][0]["rules"][0]["limit"],
        6_000_000_000_u64
    );
    for (cost, verdict) in [("6000000000", "allowed"), ("6000000001", "denied")] {
        let said = place.run(&format!("rules explain usd.yaml d team=a --cost {cost} --json")).json();
        let rule = &said["rules"][0];
        assert_eq!(
            (&rule["verdict"], &rule["remaining"]),
            (&verdict.into(), &6_000_000_000_u64.into()),
            "{said:#}"
        );
    }
}
