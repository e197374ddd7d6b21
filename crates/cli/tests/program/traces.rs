//! Real traffic: the source form and the normalized form of each shared trace give the same decisions.
//!
//! Both forms hold the same requests of the same clients. Among requests with equal times, the normalized form keeps
//! the source's order, as the program's sort does. The same key may have different text in the two forms (an address
//! in dots or as an integer).

use std::path::Path;

use crate::support::{Place, trace};

fn compare(source: &str, name: &str, records: u64, keys: u64) {
    let normalized = format!("normalized/{name}.tsv.gz");
    let Some(source) = trace(source) else { return };
    let Some(normalized) = trace(&normalized) else { return };
    let place = Place::new();
    let runs = [
        "--algorithm sliding-log --limit 10/60s",
        "--algorithm sliding-window --limit 60/3600s",
        "--algorithm gcra --limit 10/60s --limit 60/3600s",
    ];
    for run in runs {
        let decide = |path: &Path| {
            let json = place.run(&format!("replay {} {run} --json --decisions out", path.display())).json();
            let input = &json["input"];
            assert_eq!((&input["records"], &input["keys"]), (&records.into(), &keys.into()), "{run}");
            assert_eq!(input["skipped"], 0, "{run}");
            if run.contains("sliding-log") {
                let none = serde_json::json!({ "wrongly_admitted": 0, "wrongly_denied": 0 });
                assert_eq!(json["results"][0]["against_log"], none, "{run}");
            }
            place.read("out")
        };
        let (a, b) = (decide(&source), decide(&normalized));
        assert_eq!(a.len() as u64, records);
        assert!(a.contains(&b'0') && a.contains(&b'1'), "{run}");
        // This is not `assert_eq!`, since its message would have half a megabyte.
        assert!(a == b, "{run}: first difference at {:?}", a.iter().zip(&b).position(|(a, b)| a != b));
    }
}

// G88
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn honeynet_httpd_2004() {
    compare("honeynet_httpd_2004.log.gz", "honeynet_httpd_2004", 38_487, 9_269);
}

#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn aws_honeypot_2013() {
    compare("aws_honeypot_2013.csv.gz", "aws_honeypot_2013", 451_581, 69_602);
}

#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn github_events_2015() {
    compare("github_events_2015.jsonl.gz", "github_events_2015", 127_397, 45_170);
}

// G88
#[test]
fn sec_edgar_2017() {
    compare("sec_edgar_2017.csv.gz", "sec_edgar_2017", 24_999, 490);
}

#[test]
fn zeek_conn_2022() {
    compare("zeek_conn_2022.tsv.gz", "zeek_conn_2022", 24_798, 4_516);
}

#[test]
fn times_keep_their_microseconds() {
    let Some(path) = trace("zeek_conn_2022.tsv.gz") else { return };
    let json = Place::new().run(&format!("replay {} --algorithm gcra --json", path.display())).json();
    assert_eq!(json["input"]["first_ns"], 1_655_056_416_228_417_000_u64);
    assert_eq!(json["input"]["last_ns"], 1_656_021_487_290_393_000_u64);
}

/// Rules decide the requests of both forms alike, and each rule's figures add up.
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn rules_on_honeynet_httpd_2004() {
    let Some(source) = trace("honeynet_httpd_2004.log.gz") else { return };
    let Some(normalized) = trace("normalized/honeynet_httpd_2004.tsv.gz") else { return };
    let place = Place::new();
    place.file(
        "rules.yaml",
        "domain: web\ndescriptors:\n\
         - key: remote_address\n  rate_limit: { unit: minute, requests_per_unit: 60 }\n\
         - key: path\n  value: /cgi-bin/*\n  descriptors:\n  \
         - key: remote_address\n    rate_limit: { unit: hour, requests_per_unit: 2, name: cgi }\n\
         - key: path\n  value: /\n  shadow_mode: true\n  rate_limit: { unit: day, requests_per_unit: 2 }\n",
    );
    let decide = |path: &Path, ip: &str, resource: &str| {
        let args = format!(
            "--descriptor remote_address={ip} --descriptor path={resource},remote_address={ip} --descriptor path={resource}"
        );
        let out = "--json --decisions out --top 100000";
        let run = format!("replay {} --rules rules.yaml {args} {out}", path.display());
        (place.run(&run).json(), place.read("out"))
    };
    let (json, decisions) = decide(&source, "ip", "path");
    assert_eq!(decisions.len(), 38_487);
    let count = |value: &serde_json::Value| value.as_u64().unwrap();
    let results = &json["results"];
    assert_eq!(
        count(&results["denied"]),
        decisions.iter().filter(|&&decision| decision == b'0').count() as u64
    );
    assert_eq!(count(&results["admitted"]) + count(&results["denied"]), 38_487);
    assert_eq!(results["unmatched"], 0);
    let rules = json["rules"].as_array().unwrap();
    assert_eq!(rules[0]["matched"], 38_487);
    for rule in rules {
        let parts = ["allowed", "denied", "shadow_denied", "unlimited_allowed", "uncharged"];
        let sum: u64 = parts.iter().map(|part| count(&rule[part])).sum();
        assert_eq!(count(&rule["matched"]), sum, "{}", rule["rule"]);
        assert!(count(&rule["allowed"]) > 0, "{}", rule["rule"]);
        let listed = rule["top_denied"].as_array().unwrap();
        assert_eq!(listed.len() as u64, count(&rule["keys_denied"]) + count(&rule["keys_shadow_denied"]));
        for what in ["denied", "shadow_denied"] {
            let sum: u64 = listed.iter().map(|key| count(&key[what])).sum();
            assert_eq!(sum, count(&rule[what]), "{what} of {}", rule["rule"]);
        }
    }
    assert!(count(&rules[0]["denied"]) > 0 && count(&rules[1]["denied"]) > 0);
    assert!(count(&rules[2]["shadow_denied"]) > 0 && rules[2]["denied"] == 0);

    // The normalized form cuts long paths, which changes no decision here.
    let (_, again) = decide(&normalized, "client", "resource");
    assert!(
        decisions == again,
        "first difference at {:?}",
        decisions.iter().zip(&again).position(|(a, b)| a != b)
    );
}

#[test]
fn skipped_tests_are_reported() {
    tollgate_testing::skipped::assert_skip_is_reported(
        "traces::honeynet_httpd_2004",
        "TOLLGATE_TRACES",
        "/nowhere",
        "no /nowhere/honeynet_httpd_2004.log.gz",
    );
}
