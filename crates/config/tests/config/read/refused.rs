//! Texts that Envoy's service rejects, and valid YAML that is ambiguous.

use super::support::{bad, good, problem, rejected};

fn envoy(descriptor: &str) -> String {
    format!("domain: d\ndescriptors:\n  - {descriptor}\n")
}

#[test]
fn envoy_errors_are_rejected() {
    let rows = r#"
        { key: a, rate_limit: { unit: fortnight, requests_per_unit: 1 } }
            => test.yaml:3:35: descriptors[0].rate_limit.unit: no unit is called "fortnight"; use second, minute, hour, day, week, month or year
        { key: a, rate_limit: { requests_per_unit: 1 } } => 3:27: descriptors[0].rate_limit: the unit is missing
        { key: '', rate_limit: { unit: day, requests_per_unit: 1 } } => 3:12: descriptors[0].key: the key is missing
        { value: a } => 3:5: descriptors[0].key: the key is missing
        { key: a, requests_per_second: 5 }
            => 3:15: descriptors[0].requests_per_second: a descriptor has no key "requests_per_second"
        { key: a, rate_limit: { unit: day, requests_per_second: 5 } } => did you mean requests_per_unit?
        just a text => 3:5: descriptors[0]: expected a map, found "just a text"
        { key: a, 5: b } => 3:15: descriptors[0]: keys must be text, found 5
        { key: a, value: b }\n  - { key: a, value: b }
            => 4:5: descriptors[1]: the descriptor with key "a", value "b" occurs twice; remove it here or in line 3
        { key: a }\n  - { key: a } => 4:5: descriptors[1]: the descriptor with key "a" without a value occurs twice
        { key: a, rate_limit: { unlimited: true, unit: day } }
            => 3:52: descriptors[0].rate_limit.unit: unit cannot be used with unlimited: true
        { key: a, rate_limit: { unit: day, requests_per_unit: 1, name: x, replaces: [{ name: x }] } }
            => 3:90: descriptors[0].rate_limit.replaces[0].name: a rule cannot replace itself: "x"
        { key: a, rate_limit: { unit: day, requests_per_unit: 1, replaces: [{ name: '' }] } } => the name is missing
        { key: a, rate_limit: { unit: day, requests_per_unit: 1, replaces: [{}] } } => the name is missing
        { key: a, value: b, share_threshold: true } => 3:42: descriptors[0].share_threshold: only descriptors with a `*`
        { key: a, share_threshold: true } => share_threshold
        { key: a, rate_limit: { unit: day, requests_per_unit: -1 } } => 3:59: ... -1 is negative; write a whole number
        { key: a, rate_limit: { unit: day, requests_per_unit: 4294967296 } }
            => is more than 4294967295 ... from 0 to 4294967295; for a larger limit, add `tollgate: {}`
        { key: a, rate_limit: { unit: day, requests_per_unit: 99999999999999999999 } } => is more than 4294967295
        { key: a, value: [b, c] } => found a list; write one descriptor for each value
        { key: a, rate_limit: { unit: day, requests_per_unit: 1.5 } } => expected a whole number, found "1.5"
        { key: a, rate_limit: { unit: day, requests_per_unit: '10' } } => found the text "10"; remove the quotes
        { key: a, rate_limit: { unit: day, requests_per_unit: 010 } } => begins with a zero
        { key: a, value: 1.10 } => 3:22: descriptors[0].value: expected text, found 1.10; put it in quotes: "1.10"
        { key: a, value: [b] } => descriptors[0].value: expected text, found a list
        { key: a, rate_limit: [] } => descriptors[0].rate_limit: expected a map, found a list
        { key: a, descriptors: { key: b } } => 3:28: descriptors[0].descriptors: expected a list, found a map
        { key: a, shadow_mode: maybe } => "maybe" is neither true nor false; write true or false
        { key: a, shadow_mode: 'true' } => remove the quotes
        { key: a, name: { what: 1 } } => descriptors[0].name.what: no key is called "what"
        { key: a, unit: 1.5 } => descriptors[0].unit: expected text or a whole number, found 1.5
        { key: a, replaces: [x] } => descriptors[0].replaces[0]: expected a map, found "x"
    "#;
    rejected(rows, envoy);
}

#[test]
fn file_without_domain_is_rejected() {
    problem("", "test.yaml:1:1: the file is empty");
    problem("descriptors: []", "1:1: domain: the domain is missing");
    problem("domain: ''", "1:9: domain: the domain is missing");
    problem("domain: ~", "1:1: domain: the domain is missing");
    problem("domain: [a]", "1:9: domain: expected text, found a list");
    problem("- a", "1:1: expected a map, found a list; write a map with the keys domain, descriptors");
    problem("domain: d\ndescriptors: 5", r#"2:14: descriptors: expected a list, found "5""#);
    assert!(good("domain: d").rules().is_empty());
}

// G68
#[test]
fn problems_are_sorted_by_line() {
    let text = "
domain: ''
descriptors:
  - key: a
    rate_limit: { unit: eon, requests_per_unit: -5 }
  - key: a
  - value: 1.5
    colour: red
";
    let said = bad(text);
    let lines: Vec<&str> = said.iter().map(|said| said.split(':').nth(1).unwrap()).collect();
    assert_eq!(lines, ["2", "5", "5", "6", "7", "7", "8"], "{said:#?}");
}

#[test]
fn problem_list_is_truncated() {
    let text = format!("domain: d\ndescriptors:\n{}", "  - nothing\n".repeat(1000));
    let said = bad(&text);
    assert_eq!(said.len(), 101);
    assert_eq!(said[100], "test.yaml: and 900 more problems");
}

#[test]
fn ambiguous_yaml_is_rejected() {
    problem("domain: d\ndomain: e", r#"2:1: the key "domain" occurs twice; remove it here or in line 1"#);
    problem("domain: d\n---\ndomain: e", "a second document begins here");
    problem("domain: d\ndescriptors: [", "this is not valid YAML");
    problem("domain: &a d\nname: *b", "this is not valid YAML ... 2:");
    let merge = "domain: d\ndescriptors:\n  - &a { key: a }\n  - { <<: *a, value: b }";
    let said = bad(merge);
    assert!(said.iter().any(|said| said.contains("merge keys are not supported")), "{said:?}");
    // An alias to a value that contains the alias.
    assert!(!bad("domain: d\nmetadata: &a [*a]").is_empty());
}

#[test]
fn yaml_alias_expansion_is_bounded() {
    let text = "
domain: d
descriptors:
  - key: a
    rate_limit: &limit { unit: day, requests_per_unit: 7 }
  - key: b
    rate_limit: *limit
";
    let config = good(text);
    assert_eq!(config.rules()[0].limit, config.rules()[1].limit);
    let mut laughs = "domain: d\nmetadata:\n  - &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        laughs += &format!("  - &a{level} [{}]\n", [&*before; 10].join(", "));
    }
    problem(&laughs, "the file's aliases expand to too many values");
}

#[test]
fn nesting_depth_is_bounded() {
    let nested = |levels: usize| {
        let mut text = "domain: d\n".to_owned();
        for level in 0..levels {
            let indent = "  ".repeat(level);
            text += &format!("{indent}descriptors:\n{indent}- key: k{level}\n");
        }
        text + &"  ".repeat(levels) + "rate_limit: { unit: day, requests_per_unit: 1 }\n"
    };
    assert_eq!(good(&nested(32)).rules()[0].counted_by, u32::MAX);
    problem(&nested(33), "descriptors may be at most 32 levels deep");
    for depth in [99, 1_000, 100_000] {
        let text = format!("domain: d\nmetadata: {}{}", "[".repeat(depth), "]".repeat(depth));
        match depth {
            99 => drop(good(&text)),
            _ => assert_eq!(bad(&text).len(), 1),
        }
    }
}

#[test]
fn scalars_keep_their_spelling() {
    let text = "
domain: 5
descriptors:
  - { key: true, value: 1001, rate_limit: { unit: day, requests_per_unit: 1_000 } }
  - { key: a, value: 0x1F, rate_limit: { unit: DaY, requests_per_unit: 0x10 } }
  - { key: a, value: yes, shadow_mode: on, rate_limit: { unit: day, requests_per_unit: +3 } }
  - { key: a, value: '1.5', rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: a, value: !!str 1.6, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: a, value: 203.0.113.7, metadata: { weight: 1.5, 7: [x] }, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: a, value: '', rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: b, value: , rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: c, rate_limit: }
";
    let config = good(text);
    let identities: Vec<&str> = config.rules().iter().map(|rule| &*rule.identity).collect();
    let expected =
        ["5|true=1001", "5|a=0x1F", "5|a=yes", "5|a=1.5", "5|a=1.6", "5|a=203.0.113.7", "5|a", "5|b"];
    assert_eq!(identities, expected);
    assert!(config.rules()[2].shadow && !config.rules()[1].shadow);
}

#[test]
fn largest_count_is_read_and_clamped() {
    let text = "
domain: d
descriptors:
  - { key: a, rate_limit: { unit: minute, requests_per_unit: 4294967295 } }
  - { key: b, rate_limit: { unit: second, requests_per_unit: 4294967295 } }
  - { key: c, rate_limit: { unit: second, requests_per_unit: 536870910 } }
";
    let config = good(text);
    let limits: Vec<String> = config.rules().iter().map(|rule| rule.limit.to_string()).collect();
    // A window of one second can count up to 536,870,910 units. No process can receive more requests than that in a
    // second.
    assert_eq!(limits, ["4294967295/min", "536870910/s", "536870910/s"]);
    let [warning] = config.warnings() else { panic!("{:?}", config.warnings()) };
    assert!(warning.to_string().contains("536870910 is used instead"), "{warning}");
}

/// Gateways write the names of rules into header fields without escapes.
#[test]
fn names_that_break_headers_are_rejected() {
    let named = |name: &str| {
        envoy(&format!("{{ key: a, rate_limit: {{ unit: day, requests_per_unit: 1, name: {name} }} }}"))
    };
    for (name, shown) in [
        (r#"'a"b'"#, r#"'"'"#),
        (r"'a\b'", r"'\\'"),
        (r#""a\nb""#, r"'\n'"),
        (r#""a\tb""#, r"'\t'"),
        (r#""a\0b""#, r"'\0'"),
        (r#""a\x7fb""#, r"'\u{7f}'"),
        (r#""a\u0085b""#, r"'\u{85}'"),
    ] {
        let said =
            format!("descriptors[0].rate_limit.name: a name must not contain {shown}, because gateways");
        problem(&named(name), &said);
    }
    for name in ["'per-ip / v1.2'", "größe", "a=b;c"] {
        good(&named(name));
    }
}

#[test]
fn templates_that_nothing_filled_in_are_named() {
    let rule = |number: &str| {
        format!(
            "domain: d\ndescriptors:\n- key: k\n  rate_limit: {{ unit: day, requests_per_unit: {number} }}\n"
        )
    };
    for text in [
        rule("{{ .Values.n }}"),
        rule("${N}"),
        rule("$(N)"),
        format!("{{{{- if .Values.on }}}}\n{}{{{{- end }}}}\n", rule("1")),
    ] {
        problem(&text, "write its value, or run the file first through the program that fills variables in");
    }
    problem(
        &format!("# {{{{ a }}}}\n{}", rule("x")),
        "expected a whole number, found \"x\"; write a whole number",
    );
}

#[test]
fn objects_of_other_programs_are_named() {
    let map = "apiVersion: v1
kind: ConfigMap
metadata: { name: ratelimit }
data:
  limits.yaml: |
    domain: edge
";
    let jsonpath =
        r"kubectl get configmap ratelimit -o jsonpath='{.data.limits\.yaml}' | tollgate rules check -";
    problem(map, &format!("this is a ConfigMap of Kubernetes, not a file of rules ... {jsonpath}"));
    problem(&format!("{map}---\nkind: Secret\n"), "this is a ConfigMap of Kubernetes");
    let two = map
        .replace("ratelimit }", "ratelimit, namespace: edge }")
        .replace("data:\n", "data:\n  envoy.json: |\n    {}\n");
    problem(&two, r"configmap ratelimit -n edge -o jsonpath='{.data.limits\.yaml}' |");
    let binary = "apiVersion: v1\nkind: ConfigMap\nbinaryData: { a: ZA== }\n";
    problem(
        binary,
        "kubectl get configmap NAME -o jsonpath='{.binaryData.a}' | base64 -d | tollgate rules check -",
    );
    let rows = r#"
        gateway.envoyproxy.io/v1alpha1 BackendTrafficPolicy => a policy of Envoy Gateway ... /rlconfig
        gateway.envoyproxy.io/v1alpha1 EnvoyProxy => an object of Envoy Gateway (EnvoyProxy) ... --xds
        limitador.kuadrant.io/v1alpha1 Limitador => an object of Limitador ... max_value
        kuadrant.io/v1 RateLimitPolicy => a policy of Kuadrant ... its namespace is the domain
        ratelimit.solo.io/v1alpha1 RateLimitConfig => a RateLimitConfig of Gloo ... requestsPerUnit
        gloo.solo.io/v1 Settings => an object of Gloo (Settings) ... spec.ratelimit.descriptors
        networking.istio.io/v1alpha3 EnvoyFilter => an object of Istio ... often in a ConfigMap
        apps/v1 Deployment => an object of Kubernetes (Deployment) ... `descriptors:`
    "#;
    rejected(rows, |object| {
        let (version, kind) = object.split_once(' ').expect("a version and a kind");
        format!("apiVersion: {version}\nkind: {kind}\nspec: {{}}\n")
    });
    let limits = "- namespace: shop\n  max_value: 10\n  seconds: 60\n  conditions: []\n  variables: []\n";
    problem(limits, "a list of limits of Limitador ... its variables are keys without a value");
    // A file of rules may have such keys in its metadata only.
    problem("domain: d\nkind: ConfigMap\n", r#"no key "kind""#);
}

/// Cause: a message had the names of the file as they were. Trigger: a name that a shell reads as a command. Symptom: a reader who copied the
/// remedy ran that command.
#[test]
fn commands_of_remedies_have_only_names() {
    let map = |name: &str, key: &str| {
        let [name, key] = [name, key].map(|text| format!("{text:?}"));
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: {name}, namespace: {name} }}\ndata: {{ {key}: x }}\n"
        )
    };
    let none = "kubectl get configmap NAME -o jsonpath='{.data.KEY}' | tollgate rules check -";
    for text in ["a; reboot", "$(reboot)", "`reboot`", "a' b", "-a", "", "a\nb", &"a".repeat(254)] {
        problem(&map(text, text), none);
    }
    let right = r"configmap a.b_c-1 -n a.b_c-1 -o jsonpath='{.data.d-e_f\.yaml}' |";
    problem(&map("a.b_c-1", "d-e_f.yaml"), right);
}

/// Cause: keys were written into paths and messages as they were. Trigger: a key with a line feed. Symptom: an error had more lines than
/// problems, and the log showed a line that the program had not written.
#[test]
fn each_problem_is_one_short_line() {
    let long = "1".repeat(1 << 16);
    let texts = [
        "domain: d\n\"a\\nb\": 1\n".to_owned(),
        "domain: d\n\"\\e[31m\\u202e\\u2028\": 1\n".to_owned(),
        "domain: d\ndescriptors: [{ key: a, name: { \"a\\nb\": 1 } }]\n".to_owned(),
        "apiVersion: v1\nkind: \"a\\nb\"\n".to_owned(),
        format!("domain: d\n{long}: 1\n"),
        format!("domain: d\ndescriptors: [{{ key: a, unit: {long} }}]\n"),
        format!("apiVersion: v1\nkind: {long}a\n"),
    ];
    for text in texts {
        let problems = bad(&text);
        assert_eq!(problems.len(), 1, "{problems:?}");
        let is_hidden = |letter: char| letter.is_control() || "\u{202e}\u{2028}".contains(letter);
        assert!(problems[0].len() < 500 && !problems[0].contains(is_hidden), "{:?}", problems[0]);
    }
    problem(
        "domain: d\n\"a\\nb\": 1\n",
        r#"test.yaml:2:1: a\nb: the file's top-level map has no key "a\nb""#,
    );
}
