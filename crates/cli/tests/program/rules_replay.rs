//! `tollgate replay --rules`: the requests that rules deny, by rule and by key.

use serde_json::{Value, json};
use tollgate::{ManualClock, Timestamp};
use tollgate_rules::{Charging, Config, Descriptor, Rules};

use crate::support::{Place, Run};

const EDGE: &str = "\
domain: edge
descriptors:
  - key: remote_address
    rate_limit: { unit: minute, requests_per_unit: 3 }
  - key: remote_address
    value: 203.0.113.7
    rate_limit: { unit: second, requests_per_unit: 0 }
  - key: path
    value: /login
    descriptors:
      - key: remote_address
        rate_limit: { unit: hour, requests_per_unit: 1, name: logins }
";

/// Requests: seconds after 10:00, address, and request line.
const LOG: [(u32, &str, &str); 10] = [
    (0, "192.0.2.1", "GET /login HTTP/1.1"),  // the first login
    (1, "192.0.2.1", "POST /login HTTP/1.1"), // logins denies
    (2, "192.0.2.1", "GET / HTTP/1.1"),
    (3, "192.0.2.2", "GET / HTTP/1.1"),
    (4, "192.0.2.1", "GET / HTTP/1.1"), // the third request that is charged
    (5, "192.0.2.1", "GET / HTTP/1.1"), // remote_address denies, for 55 s
    (6, "203.0.113.7", "GET / HTTP/1.1"), // blocked
    (7, "192.0.2.1", "GET /login HTTP/1.1"), // both deny
    (8, "192.0.2.2", "-"),
    (60, "192.0.2.1", "GET / HTTP/1.1"), // the next minute
];
const DECIDED: &str = "1011100011"; // the second, sixth, seventh and eighth are denied

fn clf() -> String {
    let line = |&(second, address, request): &(u32, &str, &str)| {
        let (minute, second) = (second / 60, second % 60);
        format!("{address} - - [10/Oct/2020:10:{minute:02}:{second:02} +0000] \"{request}\" 200 1\n")
    };
    LOG.iter().map(line).collect()
}

fn place() -> Place {
    let place = Place::new();
    place.file("edge.yaml", EDGE).file("log", clf());
    place
}

/// Returns the first entry of a list where `field` is `value`.
#[track_caller]
fn entry<'j>(list: &'j Value, field: &str, value: &str) -> &'j Value {
    let found = list.as_array().unwrap().iter().find(|entry| entry[field] == value);
    found.unwrap_or_else(|| panic!("no {field} {value} in {list:#}"))
}

#[track_caller]
fn has(entry: &Value, figures: &Value) {
    for (name, value) in figures.as_object().unwrap() {
        assert_eq!(&entry[name], value, "{name} of {entry:#}");
    }
}

/// Returns the first output line that begins with `begin`. Runs of spaces become single spaces.
#[track_caller]
fn row(run: &Run, begin: &str) -> String {
    let rows = run.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let found: Vec<String> = rows.filter(|line| line.starts_with(begin)).collect();
    found.first().unwrap_or_else(|| panic!("{begin:?} is not in {}", run.stdout)).clone()
}

/// Cause: the value was the address without its length. Symptom: a rule for 192.0.2.1/32, as Envoy sends it, applied to no request.
#[test]
fn masked_addresses_are_networks() {
    let place = Place::new();
    let rule = |value| {
        format!(
            "  - {{ key: masked_remote_address, value: {value}, rate_limit: {{ unit: hour, requests_per_unit: 1 }} }}\n"
        )
    };
    let rules = [rule("192.0.2.1/32"), rule("'2001:db8:0:1::/64'"), rule("'2001:db8:0:1::7/128'")].concat();
    let log = ["192.0.2.1", "2001:db8:0:1::7"].map(|address| {
        format!("{address} - - [10/Oct/2020:10:00:00 +0000] \"GET / HTTP/1.1\" 200 1\n").repeat(2)
    });
    place.file("edge.yaml", format!("domain: edge\ndescriptors:\n{rules}")).file("log", log.concat());
    for descriptor in ["", "--descriptor masked_remote_address=ip"] {
        for (prefix, network) in [("", "2001:db8:0:1::7/128"), ("--ipv6-prefix 64", "2001:db8:0:1::/64")] {
            let json =
                place.run(&format!("replay log --rules edge.yaml --json {descriptor} {prefix}")).json();
            for value in ["192.0.2.1/32", network] {
                let rule = format!("edge|masked_remote_address={value}");
                has(entry(&json["rules"], "rule", &rule), &json!({ "matched": 2, "denied": 1 }));
            }
            has(&json["results"], &json!({ "denied": 2, "unmatched": 0 }));
        }
    }
}

#[test]
fn denials_are_reported_by_rule_and_key() {
    let place = place();
    let json = place.run("replay log --rules edge.yaml --decisions out --json").json();
    assert_eq!(String::from_utf8(place.read("out")).unwrap(), DECIDED);
    has(&json["input"], &json!({ "records": 10, "skipped": 0, "keys": 5 }));
    assert_eq!(
        json["descriptors"],
        json!([
            { "descriptor": "remote_address=ip", "requests": 10, "matched": 10 },
            { "descriptor": "path=path,remote_address=ip", "requests": 9, "matched": 3 },
        ])
    );
    has(
        &json["results"],
        &json!({
            "admitted": 6, "denied": 4, "never": 1, "shadow_denied": 0, "soft_limited": 0, "unmatched": 0,
            "undescribed": 0, "unknown_domain": 0, "longest_wait_ns": 3_599_000_000_000_u64,
        }),
    );
    // Two rules denied two requests each of the same key. Equal counts are in the order of the first denials.
    assert_eq!(
        json["results"]["top_denied"],
        json!([
            { "domain": "edge", "rule": "edge|path=/login|remote_address", "key": "192.0.2.1", "denied": 2, "shadow_denied": 0 },
            { "domain": "edge", "rule": "edge|remote_address", "key": "192.0.2.1", "denied": 2, "shadow_denied": 0 },
            { "domain": "edge", "rule": "edge|remote_address=203.0.113.7", "key": "", "denied": 1, "shadow_denied": 0 },
        ])
    );
    let rules = &json["rules"];
    assert_eq!(rules.as_array().unwrap().len(), 3);
    has(
        entry(rules, "rule", "edge|remote_address"),
        &json!({
            "domain": "edge", "name": "edge.remote_address", "file": "edge.yaml", "line": 4, "limit": 3,
            "period_ns": 60_000_000_000_u64, "algorithm": "fixed-window", "matched": 9, "allowed": 6, "denied": 2,
            // This is the second request, which `logins` denied.
            "uncharged": 1, "keys_denied": 1, "longest_wait_ns": 55_000_000_000_u64, "never": 0, "near_limit": 1,
        }),
    );
    has(
        entry(rules, "name", "logins"),
        &json!({
            "rule": "edge|path=/login|remote_address", "line": 12, "matched": 3, "allowed": 1, "denied": 2,
            "uncharged": 0, "keys_denied": 1, "longest_wait_ns": 3_599_000_000_000_u64,
        }),
    );
    has(
        entry(rules, "rule", "edge|remote_address=203.0.113.7"),
        &json!({ "limit": 0, "matched": 1, "allowed": 0, "denied": 1, "never": 1, "keys_denied": 1 }),
    );
}

#[test]
fn rules_table_agrees_with_json() {
    let run = place().run("replay log --rules edge.yaml --top 2").ok();
    assert!(
        run.stdout.contains("Rules    3 of domain \"edge\", charged all-or-nothing (edge.yaml)\n"),
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("Request  remote_address=ip (derived from the rules"), "{}", run.stdout);
    assert_eq!(row(&run, "10 6"), "10 6 4 40.00 % 59 min 59 s; 1 never 0 0 0");
    assert_eq!(row(&run, "path=path"), "path=path,remote_address=ip 9 3");
    assert_eq!(
        row(&run, "edge|remote_address 3"),
        "edge|remote_address 3/min fixed-window 9 6 2 0 1 1 0 1 55 s 4"
    );
    assert_eq!(
        row(&run, "edge|remote_address=203.0.113.7"),
        "edge|remote_address=203.0.113.7 denies all 1 0 1 0 0 0 0 1 never 7"
    );
    let keys = run.stdout.split("Most denied keys").nth(1).unwrap();
    assert_eq!(keys.lines().skip(3).count(), 2, "{keys}");
    assert!(!keys.contains("203.0.113.7"), "{keys}");
}

/// Decides the same requests with the library's `Rules`.
fn directly(text: &str, charging: Charging) -> String {
    let config = Config::from_yaml("edge.yaml", text).unwrap();
    let rules = Rules::builder().clock(ManualClock::default()).charging(charging).load([config]).unwrap();
    let decide = |&(second, address, request): &(u32, &str, &str)| {
        let now = Timestamp::from_secs(1_602_324_000 + u64::from(second));
        let path = request.split(' ').nth(1).map(|path| path.split('?').next().unwrap());
        let alone = [("remote_address", address)];
        let both = [("path", path.unwrap_or_default()), ("remote_address", address)];
        let descriptors = [Descriptor::new(&alone), Descriptor::new(&both)];
        let some = if path.is_some() { &descriptors[..] } else { &descriptors[..1] };
        if rules.at(now).check("edge", some).is_allowed() { '1' } else { '0' }
    };
    LOG.iter().map(decide).collect()
}

// G88
#[test]
fn replay_decides_like_library() {
    let place = place();
    let decide = |args: &str| {
        let as_asked = "--descriptor remote_address=ip --descriptor path=bare_path,remote_address=ip";
        place.decisions(&format!("log --rules edge.yaml {as_asked} {args}"))
    };
    assert_eq!(directly(EDGE, Charging::AllOrNothing), DECIDED);
    assert_eq!(decide(""), DECIDED);
    // With count-first, the denied second request is charged too, so the fifth exceeds the limit.
    let counted = directly(EDGE, Charging::CountFirst);
    assert_eq!(counted, "1011000011");
    assert_eq!(decide("--charging count-first"), counted);
}

#[test]
fn every_format_gives_same_decisions() {
    let place = place();
    let (mut jsonl, mut csv) = (String::new(), String::from("ts,request.ip,request.path\n"));
    for (second, address, request) in LOG {
        let ts = 1_602_324_000 + second;
        let path = request.split(' ').nth(1).map_or("", |path| path.split('?').next().unwrap());
        let request =
            if path.is_empty() { json!({ "ip": address }) } else { json!({ "ip": address, "path": path }) };
        jsonl += &format!("{}\n", json!({ "ts": ts, "request": request }));
        csv += &format!("{ts},{address},{path}\n");
    }
    let tsv = csv.replace(',', "\t");
    place.file("log.jsonl", jsonl).file("log.csv", csv).file("log.tsv", tsv);
    for name in ["log.jsonl", "log.csv", "log.tsv"] {
        let args = "--rules edge.yaml --descriptor remote_address=request.ip \
                    --descriptor path=request.path,remote_address=request.ip";
        assert_eq!(place.decisions(&format!("{name} {args}")), DECIDED, "{name}");
    }
}

#[test]
fn shadow_rules_report_and_admit() {
    let place = place();
    let shadow = EDGE.replace(
        "  - key: remote_address\n    rate",
        "  - key: remote_address\n    shadow_mode: true\n    rate",
    );
    place.file("shadow.yaml", shadow).file("dry.yaml", format!("tollgate: {{ shadow: true }}\n{EDGE}"));
    let json = place.run("replay log --rules shadow.yaml --json").json();
    // `logins` and the blocked address still deny.
    has(&json["results"], &json!({ "admitted": 7, "denied": 3, "shadow_denied": 1 }));
    let rule = entry(&json["rules"], "rule", "edge|remote_address");
    has(
        rule,
        &json!({ "shadow": true, "denied": 0, "keys_denied": 0, "keys_shadow_denied": 1, "longest_wait_ns": 0 }),
    );
    assert_eq!(rule["shadow_denied"], rule["top_denied"][0]["shadow_denied"]);
    assert_eq!(rule["top_denied"][0]["key"], "192.0.2.1");

    let json = place.run("replay log --rules dry.yaml --json").json();
    has(&json["results"], &json!({ "admitted": 10, "denied": 0, "shadow_denied": 4, "never": 0 }));
    has(
        entry(&json["rules"], "name", "logins"),
        &json!({ "denied": 0, "shadow_denied": 2, "keys_shadow_denied": 1 }),
    );
}

/// Replay removed the query, which Envoy's `:path` has. So it denied requests that the gateway admits, and `explain` found no rule for
/// them.
#[test]
fn path_has_its_query_as_at_gateway() {
    let place = Place::new();
    let rule = |value: &str| {
        format!(
            "domain: edge\ndescriptors:\n  - {{ key: path, value: '{value}', share_threshold: {}, rate_limit: {{ unit: hour, requests_per_unit: 1 }} }}\n",
            value.contains('*')
        )
    };
    let log: String = ["/login?n=1", "/login?n=2", "/login", "/login"]
        .map(|path| format!("192.0.2.1 - - [10/Oct/2020:10:00:00 +0000] \"GET {path} HTTP/1.1\" 200 1\n"))
        .concat();
    place.file("log", log).file("exact.yaml", rule("/login")).file("shared.yaml", rule("/login*"));
    assert_eq!(place.decisions("log --rules exact.yaml"), "1110");
    let warning = "2 requests had the path \"/login\" with a query, which is another value, so the rule edge|path=/login does not \
                   apply";
    for args in ["replay log --rules exact.yaml", "rules check exact.yaml --log log"] {
        let run = place.run(args).ok();
        let said = (run.stdout + &run.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(warning) && said.contains("write value: \"/login*\""), "{said}");
    }
    let json = place.run("replay log --rules exact.yaml --json").json();
    assert!(json["input"]["warnings"][0].as_str().unwrap().starts_with("2 requests had"), "{json:#}");
    let said = place.run("rules explain exact.yaml edge path=/login?n=1").ok().stdout;
    assert!(said.contains("no rule applies"), "{said}");
    // One counter for all spellings with a query.
    assert_eq!(place.decisions("log --rules shared.yaml"), "1000");
    let json = place.run("replay log --rules shared.yaml --json").json();
    assert_eq!(json["input"]["warnings"], json!([]));
    // For a gateway that removes the query.
    assert_eq!(place.decisions("log --rules exact.yaml --descriptor path=bare_path"), "1000");
    let run = place.run("replay log --rules exact.yaml --descriptor path=bare_path").ok();
    assert!(run.stdout.contains("bare_path is the path without its query"), "{}", run.stdout);
}

/// A trace comes from one machine, so shared rules decide as if they were local. A note says this.
#[test]
fn redis_rules_are_replayed_locally() {
    let place = place();
    place.file("shared.yaml", format!("tollgate: {{ store: redis, mode: atomic, processes: 4 }}\n{EDGE}"));
    assert_eq!(place.decisions("log --rules shared.yaml"), DECIDED);
    let run = place.run("replay log --rules shared.yaml").ok();
    assert!(run.stderr.contains("2 rules with store: redis: replayed as on one machine"), "{}", run.stderr);
}

#[test]
fn keys_of_rule_are_denied_separately() {
    let place = Place::new();
    place
        .file("log.csv", "ts,tenant,user\n1,a,x\n1,a,y\n1,a,x\n1,b,x\n1,b,x\n1,b,x\n1,,x\n1,\"c,d\",-\n")
        .file(
            "rules.yaml",
            "domain: d\ndescriptors:\n  - key: tenant\n    descriptors:\n      - key: user\n        \
         rate_limit: { unit: hour, requests_per_unit: 1 }\n",
        );
    let json = place.run("replay log.csv --rules rules.yaml --decisions out --json").json();
    assert_eq!(place.read("out"), b"11010011");
    has(&json["results"], &json!({ "denied": 3, "unmatched": 2, "undescribed": 2 }));
    has(&json["rules"][0], &json!({ "matched": 6, "allowed": 3, "denied": 3, "keys_denied": 2 }));
    assert_eq!(
        json["rules"][0]["top_denied"],
        json!([
            { "key": "tenant=b,user=x", "denied": 2, "shadow_denied": 0 },
            { "key": "tenant=a,user=x", "denied": 1, "shadow_denied": 0 },
        ])
    );
}

#[test]
fn costs_tiers_and_prefixes_apply() {
    let place = Place::new();
    place
        .file(
            "log.jsonl",
            r#"{"ts":1,"ip":"2001:db8::1","plan":"free","n":2}
{"ts":1,"ip":"2001:db8::2","plan":"free","n":1}
{"ts":1,"ip":"2001:db8::3","plan":"pro","n":9}
{"ts":1,"ip":"2001:db8:0:1::1","n":1}
{"ts":1,"ip":"2001:db8:0:1::1","n":5}
"#,
        )
        .file(
            "rules.yaml",
            "domain: d\ntollgate: {}\ndescriptors:\n  - key: remote_address\n    \
             rate_limit: { unit: hour, requests_per_unit: 2 }\n    \
             tiers:\n      pro: { rate_limit: { unit: hour, requests_per_unit: 10 } }\n",
        );
    let decide = |args: &str| place.decisions(&format!("log.jsonl --rules rules.yaml {args}"));
    assert_eq!(decide("--ipv6-prefix 128"), "11111");
    assert_eq!(decide("--ipv6-prefix 128 --cost n"), "11010");
    assert_eq!(decide("--ipv6-prefix 128 --cost n --tier plan"), "11110");
    // Addresses are whole by default, as a gateway sends them, and networks as in the layer.
    assert_eq!(decide("--cost n --tier plan"), "11110");
    assert_eq!(decide("--ipv6-prefix 64 --cost n --tier plan"), "10110");
    let json = place.run("replay log.jsonl --rules rules.yaml --ipv6-prefix 128 --cost n --json").json();
    has(&json["results"], &json!({ "denied": 2, "never": 2 }));
}

/// Replay and the check against a log cut IPv6 addresses to 64 bits before they asked the rules. So rules for one address
/// or for a /80 applied to no request and were called unused, although the service and `explain` matched them. They match
/// the whole address now, and the network is counted.
#[test]
fn rules_match_whole_addresses_and_count_networks() {
    let place = Place::new();
    let addresses = [
        "2001:db8::1",
        "2001:db8::2",
        "2001:DB8:0::3",
        "2001:db8::1:0:0:5",
        "2001:db8:0:1::1",
        "198.51.100.4",
    ];
    let lines: Vec<String> =
        addresses.iter().map(|address| format!("{{\"ts\":1,\"ip\":\"{address}\"}}\n")).collect();
    place.file("log.jsonl", lines.concat());
    for row in
        ["value: '2001:db8::2'", "ranges: ['2001:db8::2/128']", "ranges: ['2001:db8::2/127', 192.0.2.0/24]"]
    {
        place.file(
            "rules.yaml",
            format!(
                "domain: d\ntollgate: {{}}\ndescriptors:\n  - key: remote_address\n    \
                 rate_limit: {{ unit: hour, requests_per_unit: 2 }}\n  - key: remote_address\n    {row}\n    \
                 rate_limit: {{ unit: hour, requests_per_unit: 0 }}\n"
            ),
        );
        let decide = |args: &str| place.decisions(&format!("log.jsonl --rules rules.yaml {args}"));
        // The rule of the address denies the second or the third too, and the network has two units for the others.
        let (network, whole) = if row.contains("127") { ("100111", "100111") } else { ("101011", "101111") };
        assert_eq!(decide("--ipv6-prefix 64"), network, "{row}");
        assert_eq!(decide(""), whole, "{row}");
        let check = place.run("rules check rules.yaml --log log.jsonl").ok();
        assert!(!format!("{check:?}").contains("applies to none"), "{row}: {check:?}");
        let said = place.run("rules explain rules.yaml d remote_address=2001:db8::2").ok().stdout;
        assert!(said.contains("denied"), "{row}: {said}");
        let json = place.run("replay log.jsonl --rules rules.yaml --ipv6-prefix 64 --json").json();
        let networks = &json["rules"][0]["top_denied"];
        if !row.contains("127") {
            assert_eq!(networks[0]["key"], "2001:db8::", "{json:#}");
        }
    }
    // A value above `prefixes` counts as the network too.
    place.file(
        "rules.yaml",
        "domain: d\ntollgate: {}\ndescriptors:\n  - key: client\n    descriptors:\n      - key: remote_address\n        \
         prefixes: { ipv4: { 32: { unlimited: true } }, ipv6: { 48: { unit: hour, requests_per_unit: 2 } } }\n",
    );
    let decide = "log.jsonl --rules rules.yaml --descriptor client=ip,remote_address=ip";
    assert_eq!(place.decisions(&format!("{decide} --ipv6-prefix 64")), "110011");
    assert_eq!(place.decisions(decide), "111111");
}

#[test]
fn domain_comes_from_flag_or_field() {
    let place = place();
    place.file("log.csv", "ts,ip,site\n1,a,one\n1,a,one\n1,a,two\n1,a,three\n1,a,\n");
    for domain in ["one", "two"] {
        let rules = format!(
            "domain: {domain}\ndescriptors: [{{ key: ip, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}]\n"
        );
        place.file(&format!("{domain}.yaml"), rules);
    }
    place
        .run("replay log.csv --rules one.yaml --rules two.yaml")
        .fails(2, &["which domain", "\"one\", \"two\"", "--domain", "--domain-field"]);
    place.run("replay log.csv --rules one.yaml --domain three").fails(2, &["\"three\"", "\"one\""]);
    let both = "log.csv --rules one.yaml --rules two.yaml";
    assert_eq!(place.decisions(&format!("{both} --domain two")), "10000");
    assert_eq!(place.decisions(&format!("{both} --domain-field site")), "10111");
    let json = place.run(&format!("replay {both} --domain-field site --json")).json();
    has(&json["results"], &json!({ "unknown_domain": 2, "unmatched": 0, "denied": 1 }));
    has(entry(&json["rules"], "domain", "one"), &json!({ "matched": 2, "denied": 1, "file": "one.yaml" }));
    has(entry(&json["rules"], "domain", "two"), &json!({ "matched": 1, "denied": 0, "file": "two.yaml" }));
}

#[test]
fn constants_come_from_flags_or_rules() {
    let place = place();
    place.file(
        "rules.yaml",
        "domain: d\ndescriptors:\n  - key: generic_key\n    value: 'a,b'\n    \
         rate_limit: { unit: hour, requests_per_unit: 4 }\n",
    );
    let run = place.run("replay log --rules rules.yaml --decisions out").ok();
    assert!(run.stdout.contains("Request  generic_key:='a,b' (derived"), "{}", run.stdout);
    assert!(row(&run, "d|generic_key=a,b (all together)").ends_with(" 6 0"));
    assert_eq!(place.read("out"), b"1111000000");
    assert_eq!(place.decisions("log --rules rules.yaml --descriptor generic_key:='a,b'"), "1111000000");
    assert_eq!(place.decisions("log --rules rules.yaml --descriptor generic_key:=a"), "1111111111");
    place.file(
        "two.yaml",
        "domain: d\ndescriptors:\n\
         - { key: generic_key, value: a, rate_limit: { unit: hour, requests_per_unit: 4 } }\n\
         - { key: generic_key, value: b, rate_limit: { unit: hour, requests_per_unit: 3 } }\n\
         - { key: generic_key, rate_limit: { unit: hour, requests_per_unit: 1 } }\n",
    );
    let run = place.run("replay log --rules two.yaml --decisions out").ok();
    assert!(run.stdout.contains("Note     the rules have 2 constants"), "{}", run.stdout);
    assert!(run.stdout.contains("Note     rule d|generic_key: no field can be derived"), "{}", run.stdout);
    assert_eq!(place.read("out"), b"1110000000");
}

#[test]
fn replay_sorts_by_time_by_default() {
    let place = Place::new();
    place.file("log.csv", "ts,ip\n160,a\n100,a\n161,a\nx,a\n").file(
        "rules.yaml",
        "domain: d\ndescriptors: [{ key: ip, rate_limit: { unit: minute, requests_per_unit: 1 } }]\n",
    );
    assert_eq!(place.decisions("log.csv --rules rules.yaml --allow-skipped"), "110");
    let run = place.run("replay log.csv --rules rules.yaml --no-sort --allow-skipped").ok();
    assert!(run.stdout.contains("replayed as they are") && run.stderr.contains("Skipped 1 line"), "{run:?}");
    place.run("replay log.csv --rules rules.yaml --strict").fails(1, &["log.csv:5:", "--strict"]);
}

/// If a rule's store is too small, the output has a note, since some denials are then errors of the store.
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn full_rule_store_gives_note() {
    let place = Place::new();
    let requests: String =
        (0..60_000).map(|n| format!("{},user-{}\n", 100 + n / 1_000, n % 20_000)).collect();
    let rules = |settings: &str| {
        format!(
            "domain: d\ntollgate: {{ {settings} }}\ndescriptors:\n\
             - {{ key: ip, rate_limit: {{ unit: hour, requests_per_unit: 2, algorithm: gcra }} }}\n"
        )
    };
    place.file("log.csv", format!("ts,ip\n{requests}"));
    for (name, settings) in [("small", "memory: 4KiB"), ("roomy", "memory: 8MiB"), ("keyed", "store: keyed")]
    {
        place.file(&format!("{name}.yaml"), rules(settings));
    }
    let small = place.run("replay log.csv --rules small.yaml --json");
    assert!(small.stderr.contains("Note     rule d|ip: its store was full"), "{}", small.stderr);
    let small = small.json();
    let count = |name: &str| small["rules"][0][name].as_u64().unwrap();
    assert!(count("evictions") > 0 && count("debt_denials") > 0, "{small:#}");
    assert!(count("denied") > 20_000, "{small:#}");
    let roomy = place.run("replay log.csv --rules roomy.yaml --json");
    assert!(!roomy.stderr.contains("store was full"), "{}", roomy.stderr);
    has(
        &roomy.json()["rules"][0],
        &json!({ "evictions": 0, "debt_denials": 0, "denied": 20_000, "keys_denied": 20_000 }),
    );
    let keyed = place.run("replay log.csv --rules keyed.yaml --json").json();
    has(&keyed["rules"][0], &json!({ "evictions": null, "debt_denials": null, "denied": 20_000 }));
}

#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn generated_day_has_client_field() {
    let place = place();
    let run = place.run("replay --rules edge.yaml --chart out.svg").ok();
    assert!(run.stdout.contains("Request  remote_address=client"), "{}", run.stdout);
    assert!(run.stdout.contains("Note     no field matches path"), "{}", run.stdout);
    assert_eq!(row(&run, "path=?"), "path=?,remote_address=client 0 0");
    let chart = String::from_utf8(place.read("out.svg")).unwrap();
    assert!(chart.contains("edge.yaml") && chart.contains("3 rules"), "{chart:.500}");
}

#[test]
fn replay_errors_name_place_and_cause() {
    let place = place();
    place.file("wrong.yaml", EDGE.replace("unit: hour", "unit: fortnight"));
    place.run("replay log --rules wrong.yaml").fails(
        1,
        &[
            "error: wrong.yaml:12:29:",
            "no unit is called \"fortnight\"",
            "error: 1 problem in 1 file; see above",
        ],
    );
    place.run("replay log --rules missing.yaml").fails(1, &["missing.yaml: cannot be read"]);
    place.run("replay log --rules edge.yaml --rules edge.yaml").fails(1, &["domain"]);

    let with =
        |descriptor: &str| place.run(&format!("replay log --rules edge.yaml --descriptor {descriptor}"));
    with("remote_address=cookie")
        .fails(1, &["log: there is no field \"cookie\"; the fields are: ip, ident,"]);
    with("remote_address").fails(2, &["--descriptor", "expected KEY=FIELD or KEY:=TEXT"]);
    with("k:='x").fails(2, &["the quote is not closed"]);
    with("a=ip --descriptor a=ip").fails(2, &["--descriptor a=ip is given twice"]);
    place.file("log.jsonl", "{\"ts\":1,\"ip\":\"a\"}\n");
    place
        .run("replay log.jsonl --rules edge.yaml --descriptor remote_address=id")
        .fails(1, &["log.jsonl: there is no field \"id\"; the fields are: ts, ip"]);
    place
        .run("replay log.jsonl --rules edge.yaml --tier plan")
        .fails(1, &["log.jsonl: there is no field \"plan\""]);
    place.file("odd.yaml", EDGE.replace("remote_address", "tenant").replace("path", "zone"));
    place.run("replay log --rules odd.yaml").fails(1, &["(tenant, zone)", "--descriptor KEY=FIELD"]);
}

#[test]
fn limit_flags_conflict_with_rules() {
    let place = place();
    for flag in [
        "--limit 1/s",
        "--algorithm gcra",
        "--store compact",
        "--burst 3",
        "--key ip",
        "--memory 1MiB",
        "--strict-windows",
    ] {
        let name = flag.split(' ').next().unwrap();
        place
            .run(&format!("replay log --rules edge.yaml {flag}"))
            .fails(2, &["--rules", name, "cannot be used"]);
    }
    for flag in
        ["--descriptor a=ip", "--domain d", "--tier plan", "--charging count-first", "--merge-domains"]
    {
        place.run(&format!("replay log {flag}")).fails(2, &["--rules"]);
    }
}

#[test]
fn replay_help_explains_rules() {
    let help = Place::new().run("replay --help").ok().stdout;
    for part in [
        "--rules limits.yaml",
        "--descriptor path=path,remote_address=ip",
        "generic_key:=api",
        "requests_per_unit: 5",
    ] {
        assert!(help.contains(part), "{part:?} is not in {help}");
    }
}

/// The proxy was the client, because the names of fields decided.
#[test]
fn client_of_rules_is_chosen_by_values() {
    let place = place();
    let line = |minute: u32, list: &str| {
        format!(
            "192.0.2.9 - - [10/Oct/2020:10:{minute:02}:00 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\" \"{list}\"\n"
        )
    };
    let envoy = |second: u32, list: &str| {
        format!(
            "[2024-04-15T20:17:{second:02}.310Z] \"GET / HTTP/2\" 204 - 154 0 226 100 \"{list}\" \"a\" \"b\" \"c\" \
             \"tcp://10.0.2.1:80\"\n"
        )
    };
    let caddy = |second: u32, client: &str| {
        format!(
            "{{\"ts\":{},\"request\":{{\"remote_ip\":\"192.0.2.9\",\"client_ip\":\"{client}\",\"uri\":\"/\"}}}}\n",
            1_700_000_000 + second
        )
    };
    let clients = ["198.51.100.1", "198.51.100.1", "198.51.100.2"];
    let log = |of: &dyn Fn(u32, &str) -> String| -> String {
        (0..).zip(clients).map(|(at, client)| of(at, client)).collect()
    };
    place.file("main.log", log(&line)).file("envoy.log", log(&envoy)).file("caddy.log", log(&caddy));
    place.file("one.yaml", "domain: d\ndescriptors:\n  - key: remote_address\n    rate_limit: { unit: day, requests_per_unit: 1 }\n");
    for (log, field) in [
        ("main.log", "forwarded"),
        ("envoy.log", "%REQ(X-FORWARDED-FOR)%"),
        ("caddy.log", "request.client_ip"),
    ] {
        assert_eq!(place.decisions(&format!("{log} --rules one.yaml")), "101", "{log}");
        let run = place.run(&format!("replay {log} --rules one.yaml")).ok();
        let reason = format!("from {field:?}, whose values are addresses");
        assert!(run.stdout.contains(&reason), "{log}: {}", run.stdout);
        let said = place.run(&format!("rules check one.yaml --log {log}")).ok();
        assert!(said.stderr.contains(&reason), "{log}: {said:?}");
    }
    place.file(
        "doubt.csv",
        "ts,ip,for\n1700000000,192.0.2.1,198.51.100.1\n1700000001,192.0.2.2,198.51.100.2\n",
    );
    let question = ["--descriptor remote_address=ip or --descriptor remote_address=for"];
    place.run("replay doubt.csv --rules one.yaml").fails(1, &question);
    place.run("rules check one.yaml --log doubt.csv").fails(1, &question);
    place.run("replay doubt.csv --rules one.yaml --descriptor remote_address=for").ok();
}
