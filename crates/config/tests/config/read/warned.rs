//! Files that load with a warning, because the author probably meant something different.

use tollgate_config::{Config, Domain};

use super::support::{contain, file, good};

/// Asserts that a text loads with a warning for each line, which contains all parts of the line.
#[track_caller]
fn warned(text: &str, said: &str) {
    let messages: Vec<String> = good(text).warnings().iter().map(ToString::to_string).collect();
    contain(&messages, said);
}

const DAY: &str = "rate_limit: { unit: day, requests_per_unit: 1 }";

#[test]
fn missing_requests_per_unit_denies_all() {
    let denies = "test.yaml:2:37: descriptors[0].rate_limit: without requests_per_unit, this limit denies all requests";
    for (fields, said) in [
        ("unit: day", &*format!("{denies} ... requests_per_unit: 0")),
        ("unit: day, requests_per_unit: 0", ""),
        ("unlimited: true", ""),
        ("unlimited: true, requests_per_unit: 1", "no effect together with unlimited"),
    ] {
        warned(&format!("domain: d\ndescriptors: [{{ key: a, rate_limit: {{ {fields} }} }}]"), said);
    }
}

#[test]
fn misplaced_keys_are_warned() {
    let text = "
domain: d
key: x
descriptors:
  - key: a
    rate_limit:
    unit: day
";
    let said = r#"
            3:1: key: key has no effect in the file's top-level map; move it to a descriptor
            5:5: key "a" without a value has no limit and no descriptors
            descriptors[0].rate_limit: this is empty, so there is no limit; indent its lines
            7:5: descriptors[0].unit: unit has no effect in a descriptor; move it to rate_limit
    "#;
    warned(text, said);
}

#[test]
fn unreachable_wildcards_are_warned() {
    let text = file(&[
        "key: path, value: /v1/*, DAY",
        "key: path, value: /v1/admin/*, DAY",
        "key: path, value: '/v*/x*', DAY",
        "key: path, value: '*/edit', DAY",
        "key: path, value: '/v1/*/edit', DAY",
        "key: 'x-*', DAY",
        "key: 'x-y-*', value: 'a', DAY",
    ])
    .replace("DAY", DAY);
    let said = r#"
            test.yaml:5:5: ... "/v1/admin/*" is never used ... "/v1/*" in line 4 matches the same requests
            test.yaml:8:5: ... "/v1/*/edit" ... line 4
            test.yaml:10:5: ... key "x-y-*", value "a" ... line 9
    "#;
    warned(&text, said);
}

#[test]
fn exact_entry_hiding_valueless_limit_is_warned() {
    let text = file(&[
        "key: path, DAY",
        "key: path, value: /login, descriptors: [{ key: a, DAY }]",
        "key: path, value: /allowed",
    ])
    .replace("DAY", DAY);
    warned(&text, r#"test.yaml:5:5: requests with only key "path", value "/login" have no limit ... line 4"#);
}

#[test]
fn useless_entries_and_names_are_warned() {
    let said = r#"2:15: key "a" without a value has no limit and no descriptors"#;
    warned("domain: d\ndescriptors: [{ key: a }]", said);
    let text = file(&[
        "key: a, rate_limit: { unit: day, requests_per_unit: 1, replaces: [{ name: b }, { name: c }] }",
        "key: b, rate_limit: { name: c, unit: day, requests_per_unit: 1 }",
    ]);
    warned(&text, r#"no rule in this file is named "b""#);
}

#[test]
fn duplicate_rule_names_are_warned() {
    let text = file(&[
        "key: a, rate_limit: { name: x, unit: day, requests_per_unit: 1 }",
        "key: b, rate_limit: { name: y, unit: day, requests_per_unit: 1 }",
        "key: c, rate_limit: { name: x, unit: day, requests_per_unit: 1 }",
    ]);
    warned(&text, r#"test.yaml:6:1: this rule and the rule in line 4 are both named "x" ... another name"#);
}

#[test]
fn duplicate_names_in_merged_files_are_warned() {
    let file = |name: &str, rules: &[(&str, &str)]| {
        let mut text = String::from("domain: d\ndescriptors:\n");
        for (key, called) in rules {
            text += &format!(
                "  - {{ key: {key}, rate_limit: {{ name: {called}, unit: day, requests_per_unit: 1 }} }}\n"
            );
        }
        Config::from_yaml(name, &text).unwrap()
    };
    let said = |files: Vec<Config>| -> Vec<String> {
        let domains = Domain::merge(files, true).unwrap();
        domains.iter().flat_map(Domain::warnings).map(ToString::to_string).collect()
    };
    let one = || file("one.yaml", &[("a", "x"), ("b", "y"), ("c", "y")]);
    let merged = said(vec![one(), file("two.yaml", &[("d", "z"), ("e", "z")])]);
    assert!(merged.is_empty(), "merging repeats no warning that a file already has");
    let warnings = said(vec![one(), file("two.yaml", &[("d", "z"), ("e", "y"), ("f", "y"), ("g", "x")])]);
    assert_eq!(warnings.len(), 2, "{warnings:#?}");
    for (warning, (line, other, name)) in warnings.iter().zip([(4, 4, "y"), (6, 3, "x")]) {
        let begin =
            format!("two.yaml:{line}:1: this rule and the rule in one.yaml:{other} are both named {name:?}:");
        assert!(warning.starts_with(&begin), "{warnings:#?}");
    }
}

#[test]
fn ignored_metric_options_are_warned() {
    let text = file(&[
        "key: a, DAY",
        "key: b, value_to_metric: true, descriptors: [{ key: c, DAY }]",
        "key: e, detailed_metric: true, DAY",
    ])
    .replace("DAY", DAY);
    warned(&text, "test.yaml:5:1: value_to_metric and detailed_metric do not change metrics: labels");
}

#[test]
fn redis_soft_limit_needs_atomic_mode() {
    let soft = |mode: &str| {
        format!(
            "domain: d\ntollgate: {{}}\ndescriptors: [{{ key: a, rate_limit: {{ unit: day, requests_per_unit: 9, soft: 5, store: redis{mode} }} }}]"
        )
    };
    warned(&soft(", mode: atomic"), "");
    let said = "rate_limit.soft: has no effect in the mode write-back ... write mode: atomic";
    warned(&soft(", mode: write-back"), said);
    warned(&soft(""), "has no effect in the mode lease");
}

#[test]
fn range_as_value_is_warned() {
    let text = |key: &str| format!("domain: d\ndescriptors: [{{ key: {key}, value: 10.0.0.0/8, {DAY} }}]");
    let said = r#""10.0.0.0/8" is compared as a text ... write ranges: ["10.0.0.0/8"] instead of value"#;
    warned(&text("remote_address"), said);
    warned(&text("masked_remote_address"), "");
}

/// Returns the warnings about one descriptor.
fn of_value(key: &str, value: &str) -> Vec<String> {
    let value = value.replace('\'', "''");
    let text = format!("domain: d\ndescriptors:\n  - {{ key: {key}, value: '{value}', {DAY} }}\n");
    good(&text).warnings().iter().map(ToString::to_string).collect()
}

// G90
#[test]
fn values_that_no_request_has_are_warned() {
    for (key, value, parts) in [
        // Addresses in a form that gateways do not send.
        ("remote_address", "2001:DB8::1", ["in lower case", "write \"2001:db8::1\""]),
        ("remote_address", "2001:0db8:0:0::1", ["the shortest text", "write \"2001:db8::1\""]),
        ("client_ip", "::ffff:192.0.2.1", ["an IPv4 address in IPv6 form", "write \"192.0.2.1\""]),
        ("remote_address", "192.0.2.1:8080", ["has a port", "write \"192.0.2.1\""]),
        ("x-real-ip", "[2001:db8::1]:443", ["has a port", "write \"2001:db8::1\""]),
        ("remote_address", "[2001:db8::1]", ["has brackets", "write \"2001:db8::1\""]),
        ("remote_address", "192.0.2.01", ["is no address", "write an address such as"]),
        ("remote_address", "localhost", ["is no address", "192.0.2.*"]),
        ("remote_address", "2001:DB8:*", ["capital letters", "write \"2001:db8:*\""]),
        ("remote_address", "2001:0db8:*", ["zeros before a digit", "write ranges"]),
        ("remote_address", "192.0.2.*:*0/x", ["matches no address", "2001:db8:*"]),
        ("masked_remote_address", "10.1.2.3/16", ["Envoy sends", "write \"10.1.0.0/16\""]),
        ("masked_remote_address", "10.1.2.3", ["Envoy sends", "write \"10.1.2.3/32\""]),
        // Several in one text.
        ("remote_address", "10.0.0.0/8", ["compared as a text", "ranges: [\"10.0.0.0/8\"]"]),
        ("ip", "10.0.0.1-10.0.0.9", ["is a range", "10.0.0.0/24"]),
        ("ip", "10.0.0.0/255.0.0.0", ["is a range", "write ranges"]),
        ("ip", "192.0.2.1, 192.0.2.2", ["a list in one text", "ranges: [\"192.0.2.1\", \"192.0.2.2\"]"]),
        ("remote_address", "192.0.2.1 192.0.2.2", ["a list in one text", "one descriptor for each"]),
        ("method", "GET|POST", ["a list in one text", "one descriptor for each"]),
        ("path", "/a,/b", ["a list in one text", "one descriptor for each"]),
        // Variables that nothing filled in.
        ("remote_address", "$IP_ADDRESS", ["a variable that nothing filled in", "envsubst"]),
        ("tenant", "{{ .Values.tenant }}", ["a variable", "helm template"]),
        // Regular expressions.
        ("path", "/part1/.*", ["begin with \"/part1/.\"", "write \"/part1/*\""]),
        ("path", "^/login$", ["only this text itself matches", "write \"/login\""]),
    ] {
        let said = of_value(key, value);
        assert_eq!(said.len(), 1, "{key} {value}: {said:#?}");
        for part in parts {
            assert!(said[0].contains(part), "{key} {value}: expected {part:?} in {}", said[0]);
        }
    }
}

#[test]
fn values_that_requests_have_are_not_warned() {
    for (key, values) in [
        ("remote_address", "192.0.2.1 | 2001:db8::1 | ::1 | 10.0.* | 2001:db8:*"),
        ("masked_remote_address", "10.1.0.0/16 | 2001:db8::/32"),
        ("network", "10.0.0.0/8"),
        ("host", "shop.example:8080 | *.example.org | api.* | *.* | [::1]"),
        (
            "path",
            "/v1/* | /odata/$metadata | /a b,c | /.well-known/* | /search?q=a | items[0] | /users/{id} | {id}",
        ),
        ("stage", "$default | $batch | $ | $5 | ${}"),
        ("user", r"<anonymous> | CORP\dave | C:\users | a,b | a+b | 10.0.* | 192.168.*.1 | <> | a<b>c"),
        ("user_agent", "*(compatible; bot/1.0)* | Mozilla/5.0 (X11; Linux)"),
        ("version", "2001:DB8::1 is not here"),
        ("price", "price (EUR) | 100% | %20 | %2f%"),
    ] {
        for value in values.split(" | ") {
            assert_eq!(of_value(key, value), [] as [String; 0], "{key} {value}");
        }
    }
}

#[test]
fn regular_expressions_and_variables_are_known() {
    let expressions = r"/part1/.* ^/login /login$ /users/[0-9]+ /users/\d+ (GET|POST) .* /a/.+ 10\.0\..* (?i)bot [^/]+
                        /api.* /v[1-3]/x \w+@example\.org [a-f]{8}";
    let variables = "$IP | ${IP} | 10.0.0.${N} | {{ .Values.ip }} | x-{{name}} | <your-ip> | %IP% | %REQ(X-USER)% | $(IP) | %(ip)s | #{ip}";
    let expressions =
        expressions.split_ascii_whitespace().map(|value| (value, "looks like a regular expression"));
    let variables = variables.split(" | ").map(|value| (value, "is a variable that nothing filled in"));
    for (value, message) in expressions.chain(variables) {
        let said = of_value("x", value);
        assert!(said.len() == 1 && said[0].contains(message), "{value}: {said:?}");
    }
    for (value, remedy) in [
        (r"10\.0\..*", "write \"10.0.*\""),
        ("/users/[^/]+/edit", "write \"/users/*/edit\""),
        ("/users/[0-9]+", "write each value"),
    ] {
        assert!(of_value("x", value)[0].contains(remedy), "{value}");
    }
}

/// Cause: each opening bracket searched for its closing one. Trigger: a long text of brackets. Symptom: a load of a megabyte took hours.
// G68
#[test]
fn long_texts_of_brackets_are_read_once() {
    let opened = |bracket: &str| bracket.repeat(1 << 20);
    for (value, is_expression) in [
        (opened("["), false),
        (opened("("), false),
        (opened("[") + "]", false),
        (opened("[") + "a-z]", true),
        (opened("(") + "a|b)", true),
        (opened("[]"), false),
        ("a-z] [x".to_owned(), false),
        ("a|b) (x".to_owned(), false),
        ("[x] [a-z]".to_owned(), true),
    ] {
        let limit = r#""rate_limit":{"unit":"day","requests_per_unit":1}"#;
        let text = format!(r#"{{"domain":"d","descriptors":[{{"key":"x","value":"{value}",{limit}}}]}}"#);
        let config = Config::from_json("test.json", &text).unwrap();
        assert_eq!(config.warnings().len(), usize::from(is_expression), "{:?}", config.warnings());
    }
}

#[test]
fn domains_keys_and_members_are_checked_too() {
    let text = format!(
        "
domain: $DOMAIN
tollgate: {{}}
descriptors:
  - key: '{{{{ .Values.key }}}}'
    {DAY}
  - key: remote_address
    {DAY}
    tiers:
      staff:
        members: [192.0.2.1, 192.0.2.2:80, 10.0.0.0/8]
        {DAY}
"
    );
    let said = r#"
            2:9: domain: "$DOMAIN" is a variable
            5:5: "{{ .Values.key }}" is a variable
            7:5: "192.0.2.2:80" has a port
            7:5: "10.0.0.0/8" is compared as a text
    "#;
    warned(&text, said);
    // Where a level reads addresses, all spellings are one value.
    let text = file(&[
        "key: remote_address, value: '2001:DB8::1', DAY",
        "key: remote_address, ranges: [10.0.0.0/8], DAY",
    ])
    .replace("DAY", DAY);
    warned(&text, "");
}
