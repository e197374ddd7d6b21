//! How a log line gives its client: virtual hosts, ports, proxy lists and IPv6 networks, and warnings about
//! unsuitable keys.

use std::fmt::Write as _;

use crate::support::{Place, Run};

const ONE: &str = "--algorithm gcra --limit 1/60s";
const TIME: &str = "[30/Jun/2017:00:00:00 +0000] \"GET / HTTP/1.1\" 200 5";

/// Writes a log whose lines begin with these texts.
fn log(beginnings: &[&str]) -> Place {
    let place = Place::new();
    place.file("log", beginnings.iter().fold(String::new(), |log, who| log + who + " - - " + TIME + "\n"));
    place
}

/// Writes a CSV file with one quoted client per line.
fn csv(clients: &[&str]) -> Place {
    let place = Place::new();
    let lines = clients.iter().fold(String::new(), |mut lines, client| {
        let _ = writeln!(lines, "100,\"{client}\"");
        lines
    });
    place.file("log", format!("ts,client\n{lines}"));
    place
}

#[track_caller]
fn says(run: &Run, parts: &[&str]) {
    for part in parts {
        assert!(run.stdout.contains(part), "{part:?} is not in {}", run.stdout);
    }
}

#[test]
fn virtual_host_is_not_the_client() {
    let place = log(&[
        "shop.example:443 192.0.2.1",
        "shop.example:443 192.0.2.2",
        "other.example 192.0.2.1",
        "shop.example:443 2001:db8::1",
    ]);
    assert_eq!(place.decisions(&format!("log {ONE}")), "1101");
    let run = place.run(&format!("replay log {ONE}")).ok();
    says(&run, &["4 records (clf)", "4 records with a virtual host", "of 3 keys"]);
    let json = place.run(&format!("replay log {ONE} --json")).json();
    assert_eq!(json["input"]["virtual_hosts"], 4);
    assert_eq!(place.decisions(&format!("log {ONE} --key vhost")), "1010");
    assert_eq!(place.decisions(&format!("log {ONE} --key vhost+ip")), "1111");
}

#[test]
fn client_ports_are_ignored() {
    let place =
        log(&["192.0.2.5:55512", "192.0.2.5:55513", "192.0.2.5", "[2001:db8::1]:1", "[2001:db8::2]:2"]);
    assert_eq!(place.decisions(&format!("log {ONE}")), "10010");
    let run = place.run(&format!("replay log {ONE}")).ok();
    says(&run, &["4 records with a port, which is removed", "of 2 keys"]);
}

#[test]
fn proxy_list_gives_trusted_client() {
    let place = csv(&["1.2.3.4, 5.6.7.8", "6.6.6.6, 5.6.7.8", "5.6.7.8", "1.2.3.4, 9.9.9.9"]);
    // The nearest proxy wrote the right end of the list. A client can forge the left end.
    assert_eq!(place.decisions(&format!("log {ONE}")), "1001");
    let run = place.run(&format!("replay log {ONE}")).ok();
    says(&run, &["3 records with a list of addresses: the client is the last address", "--proxies N"]);
    // With two trusted proxies, a request with only one address bypassed a proxy. The program skips it, as the
    // middleware rejects it.
    let run = place.run(&format!("replay log {ONE} --proxies 2 --json --allow-skipped"));
    assert!(run.stderr.contains("the address before the trusted proxies is missing"), "{}", run.stderr);
    let json = run.json();
    assert_eq!((&json["input"]["records"], &json["input"]["skipped"]), (&3.into(), &1.into()));
    assert_eq!((&json["input"]["keys"], &json["input"]["from_lists"]), (&2.into(), &3.into()));
    place.run("replay log --proxies 0").fails(2, &["1 or more"]);
    // A name with a comma is one key.
    let place = csv(&["Doe, John", "Doe, Jane", "Doe, John"]);
    assert_eq!(place.decisions(&format!("log {ONE}")), "110");
}

#[test]
fn output_names_ipv6_prefix() {
    let place = csv(&["2001:db8::1", "2001:db8::2", "192.0.2.1"]);
    place.file(
        "rules.yaml",
        "domain: d\ndescriptors:\n  - key: remote_address\n    rate_limit: { unit: hour, requests_per_unit: 1 }\n  \
         - key: remote_address\n    value: '2001:db8::2'\n    rate_limit: { unit: hour, requests_per_unit: 2 }\n",
    );
    for args in ["replay log", "suggest log", "replay log --rules rules.yaml --ipv6-prefix 64"] {
        says(&place.run(args).ok(), &["Client   IPv6 addresses are grouped by /64 (2 records)"]);
        if !args.contains("--rules") {
            says(&place.run(&format!("{args} --ipv6-prefix 56")).ok(), &["grouped by /56"]);
        }
        let json = place.run(&format!("{args} --json")).json();
        assert_eq!(json["input"]["ipv6_prefix"], 64, "{args}");
    }
    // Rules match the whole address, as the layer and the service do, so the second rule applies to one client. They count it
    // whole, as the service does.
    let json = place.run("replay log --rules rules.yaml --json").json();
    assert_eq!(
        (&json["rules"][1]["matched"], &json["input"]["ipv6_prefix"]),
        (&1.into(), &128.into()),
        "{json}"
    );
}

#[test]
fn unsuitable_keys_give_warnings() {
    let mut lines: Vec<String> = (0..100).map(|n| format!("192.0.2.{}", n % 10)).collect();
    let on = |lines: &[String], args: &str| {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        csv(&lines).run(&format!("{args} --time-format s")).ok()
    };
    for command in ["replay log", "suggest log"] {
        assert!(!on(&lines, command).stdout.contains("Warning"), "{command}");
    }
    lines.iter_mut().take(92).for_each(|line| "192.0.2.77".clone_into(line));
    for command in ["replay log", "suggest log"] {
        says(&on(&lines, command), &["Warning  key \"192.0.2.77\" has 92 of 100 requests", "--key"]);
    }
    let each = on(&(0..100).map(|n| format!("user-{n}")).collect::<Vec<_>>(), "replay log");
    says(&each, &["Warning  nearly every request has its own key (100 keys of 100 requests)"]);

    // With rules, the warning is about the field of the address.
    let place = log(&["192.0.2.1"; 40]);
    place.file(
        "rules.yaml",
        "domain: d\ndescriptors:\n  - key: remote_address\n    rate_limit: { unit: hour, requests_per_unit: 1 }\n",
    );
    let json = place.run("replay log --rules rules.yaml --json").json();
    let warning = json["input"]["warnings"][0].as_str().unwrap();
    assert!(warning.contains("40 of 40 requests") && warning.contains("--descriptor"), "{warning}");
}

#[test]
fn request_targets_keep_ports() {
    let place = Place::new();
    let line = |target: &str| {
        format!("192.0.2.1 - - [30/Jun/2017:00:00:00 +0000] \"CONNECT {target} HTTP/1.1\" 405 5\n")
    };
    place.file("log", line("198.51.100.7:25") + &line("198.51.100.7:80") + &line("198.51.100.7:25"));
    place.file("log.csv", "ts,url\n100,198.51.100.7:25\n100,198.51.100.7:80\n100,198.51.100.7:25\n");
    assert_eq!(place.decisions(&format!("log {ONE} --key path")), "110");
    assert_eq!(place.decisions(&format!("log.csv {ONE} --key url")), "110");
    place.file(
        "rules.yaml",
        "domain: d\ndescriptors:\n  - key: path\n    descriptors:\n      - key: remote_address\n        \
         rate_limit: { unit: hour, requests_per_unit: 1 }\n",
    );
    assert_eq!(place.decisions("log --rules rules.yaml"), "110");
    let json = place.run("replay log --rules rules.yaml --json").json();
    assert_eq!(json["input"]["ports_cut"], 0);
}

/// The client was the first field of a usual name: an empty user name, the requested host, or a proxy.
// G88
#[test]
fn client_is_chosen_by_values() {
    let place = Place::new();
    let jsonl = |records: &[&str]| -> String {
        (0..).zip(records).map(|(n, fields)| format!("{{\"ts\":{},{fields}}}\n", 1_700_000_000 + n)).collect()
    };
    place
        .file(
            "proxy.jsonl",
            jsonl(&[
                r#""user_id":"","request":{"peer":"192.0.2.9","for":"198.51.100.1"}"#,
                r#""user_id":"","request":{"peer":"192.0.2.9","for":"198.51.100.1"}"#,
                r#""user_id":"bob","request":{"peer":"192.0.2.9","for":"198.51.100.2"}"#,
            ]),
        )
        .file(
            "doubt.jsonl",
            jsonl(&[r#""ip":"192.0.2.1","for":"198.51.100.1""#, r#""ip":"192.0.2.2","for":"198.51.100.2""#]),
        )
        .file("host.jsonl", jsonl(&[r#""host":"a.example","n":1"#, r#""host":"b.example","n":2"#]));
    assert_eq!(place.decisions(&format!("proxy.jsonl {ONE}")), "101");
    let run = place.run(&format!("replay proxy.jsonl {ONE}")).ok();
    let said = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains(
            "Client from \"request.for\", whose values are addresses; \"request.peer\" is 192.0.2.9 in all of the first records"
        ),
        "{said}"
    );
    let json = place.run(&format!("replay proxy.jsonl {ONE} --json")).json();
    assert!(
        json["input"]["client_from"][0].as_str().unwrap().starts_with("from \"request.for\""),
        "{json:#}"
    );
    // The program does not say why, if the command line names the field.
    let json = place.run(&format!("replay proxy.jsonl {ONE} --json --key request.peer")).json();
    assert_eq!((&json["input"]["client_from"], &json["input"]["keys"]), (&serde_json::json!([]), &1.into()));
    for command in ["replay", "suggest"] {
        place
            .run(&format!("{command} doubt.jsonl"))
            .fails(1, &["doubt.jsonl: which field is the client?", "\"for\"", "--key ip or --key for"]);
        place
            .run(&format!("{command} host.jsonl"))
            .fails(1, &["\"host\" has the names of hosts", "ts, host, n"]);
    }
    assert_eq!(place.decisions(&format!("doubt.jsonl {ONE} --key for")), "11");
}

/// The first address after the agent was the client of each line, although it was in one column here and in another there.
#[test]
fn columns_with_addresses_are_not_mixed() {
    let place = Place::new();
    let line = |ip: &str, end: &str| format!("{ip} - - {TIME} \"-\" \"x\" {end}\n");
    let proxied = |ends: [&str; 2]| ends.map(|end| line("10.0.0.1", end)).concat();
    place
        .file("two", proxied(["\"203.0.113.9\" \"203.0.113.5\"", "\"-\" \"203.0.113.5\""]))
        .file("one", proxied(["\"-\" \"203.0.113.9\"", "\"-\" \"203.0.113.5\""]))
        .file(
            "direct",
            line("192.0.2.1", "\"-\" \"-\"").repeat(3) + &line("192.0.2.2", "\"1.1.1.1\" \"2.2.2.2\""),
        );
    for args in ["replay two", "replay two --key forwarded", "suggest two", "replay two --key ip+forwarded"] {
        place
            .run(args)
            .fails(1, &["which column is the client?", "\"forwarded\" would mix them", "--log-format"]);
    }
    assert_eq!(place.decisions(&format!("two {ONE} --key ip")), "10");
    assert_eq!(place.decisions(&format!("one {ONE}")), "11");
    assert_eq!(place.decisions(&format!("direct {ONE}")), "1001");
}

/// What grep writes before a line was a part of the client.
#[test]
fn prefix_of_grep_is_named() {
    log(&["access.log:192.0.2.1", "access.log:192.0.2.2"]).run("replay log").fails(
        1,
        &["log: words before the address; cut them, or give --log-format", "begins \"access.log:192.0.2.1"],
    );
}

/// A rule's key `host` took the client's address, because the common log format calls it `host` too.
#[test]
fn host_of_rules_is_the_virtual_host() {
    let place =
        log(&["www.example:443 192.0.2.1", "www.example:443 192.0.2.2", "shop.example:443 192.0.2.1"]);
    place.file(
        "rules.yaml",
        "domain: d\ndescriptors:\n  - key: host\n    rate_limit: { unit: hour, requests_per_unit: 1 }\n",
    );
    assert_eq!(place.decisions("log --rules rules.yaml"), "101");
    let run = place.run("replay log --rules rules.yaml").ok();
    assert!(run.stdout.contains("host=vhost"), "{}", run.stdout);
}

/// The requested host varied, and the client did not.
#[test]
fn requested_host_is_no_address_for_rules() {
    let place = Place::new();
    let line = |n: u32| {
        format!(
            "{{\"ts\":{},\"remote_addr\":\"192.0.2.1\",\"host\":\"198.51.100.{n}\"}}\n",
            1_700_000_000 + n
        )
    };
    place.file("log", line(1) + &line(2));
    place.file("rules.yaml", "domain: d\ndescriptors:\n  - key: remote_address\n    rate_limit: { unit: hour, requests_per_unit: 1 }\n");
    for args in ["log --rules rules.yaml", &format!("log {ONE}")] {
        assert_eq!(place.decisions(args), "10", "{args}");
    }
}

#[test]
fn json_list_gives_trusted_client() {
    let place = Place::new();
    let line = |n: u32, list: &str| {
        format!("{{\"ts\":{},\"ip\":\"10.0.0.1\",\"x_forwarded_for\":[{list}]}}\n", 1_700_000_000 + n)
    };
    let log: String = [
        line(0, r#""203.0.113.99","198.51.100.1""#),
        line(1, r#""203.0.113.98","198.51.100.1""#),
        line(2, r#""203.0.113.99","198.51.100.2""#),
    ]
    .concat();
    place.file("log", log);
    assert_eq!(place.decisions(&format!("log {ONE}")), "101");
    assert_eq!(place.decisions(&format!("log {ONE} --proxies 2")), "110");
    assert_eq!(place.decisions(&format!("log {ONE} --key x_forwarded_for[0]")), "110");
}
