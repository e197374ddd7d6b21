//! Envoy's service loads its files with Go's YAML reader. These tests compare our reader with that reader.

use tollgate_rules::Amount;

use super::support::{good, problem};

fn one(descriptor: &str) -> String {
    format!("domain: d\ndescriptors:\n  - {{ {descriptor} }}\n")
}

// G68
#[test]
fn yaml_short_booleans_are_read() {
    for (text, shadow) in [("y", true), ("Y", true), ("n", false), ("N", false), ("!!bool y", true)] {
        let config = good(&one(&format!(
            "key: y, value: n, shadow_mode: {text}, rate_limit: {{ unit: day, requests_per_unit: 1 }}"
        )));
        assert_eq!(config.rules()[0].shadow, shadow, "{text}");
        assert_eq!(&*config.rules()[0].identity, "d|y=n", "in a key or a value, y and n are text");
    }
    problem(&one("key: a, shadow_mode: 'y'"), &["\"y\" is neither true nor false"]);
    problem(&one("key: a, shadow_mode: ye"), &["\"ye\" is neither true nor false"]);
}

#[test]
fn yaml_tags_set_scalar_type() {
    let limit = |text: &str| {
        let text = one(&format!("key: a, rate_limit: {{ unit: day, requests_per_unit: {text} }}"));
        match good(&text).rules()[0].limit {
            Amount::Limited { limit, .. } => limit.quota().limit(),
            _ => 0,
        }
    };
    assert_eq!([limit("!!int \"5\""), limit("!!int 5"), limit("!!int '0x1F'")], [5, 5, 31]);
    let said = |text: &str, said: &[&str]| {
        let text = one(&format!("key: a, rate_limit: {{ unit: day, requests_per_unit: {text} }}"));
        problem(&text, said);
    };
    said("!!str 5", &["found the text \"5\""]);
    said("!!float 5", &["expected a whole number, found \"5\""]);
    problem(
        &one("key: a, value: !!int five, shadow_mode: !!bool 'true'"),
        &["test.yaml:3:22: \"five\" does not have the type of its tag !!int; remove the tag"],
    );
}

#[test]
fn underscores_are_allowed_after_number_prefix() {
    for (text, limit) in [("0x_1", 1), ("0x1_F_", 31), ("0o_17", 15), ("0b_1", 1), ("1_0_", 10)] {
        let config = good(&one(&format!("key: a, rate_limit: {{ unit: day, requests_per_unit: {text} }}")));
        let Amount::Limited { limit: read, .. } = config.rules()[0].limit else { panic!("{text}") };
        assert_eq!(read.quota().limit(), limit, "{text}");
    }
    for text in ["0x_", "_1"] {
        let text = one(&format!("key: a, rate_limit: {{ unit: day, requests_per_unit: {text} }}"));
        problem(&text, &["expected a whole number"]);
    }
}

/// Templates often leave empty documents in the output.
// G68
#[test]
fn documents_without_content_are_skipped() {
    let file = "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, requests_per_unit: 1 } }\n";
    for text in [
        format!("---\n{file}---\n"),
        format!("---\n---\n{file}"),
        format!("---\n# a comment\n---\n# another\n{file}---\n---\n# the end\n"),
        format!("--- ~\n---\n{file}...\n"),
        format!("{file}...\n---\nnull\n"),
    ] {
        assert_eq!(good(&text).rules().len(), 1, "{text}");
    }
    problem("---\n---\n", &["the file is empty"]);
    for second in ["domain: e", "[]", "text", "''"] {
        let text = format!("---\n{file}---\n---\n{second}\n");
        problem(&text, &["test.yaml:6:1: a second document begins here"]);
    }
    problem(&format!("---\n{file}---\n*a\n"), &["test.yaml:"]);
}

// G68
#[test]
fn metadata_is_a_map() {
    for (text, said) in
        [("text", "expected a map, found \"text\""), ("[a]", "found a list"), ("1", "found \"1\"")]
    {
        problem(&one(&format!("key: a, metadata: {text}")), &["descriptors[0].metadata: ", said]);
    }
    good(&one("key: a, metadata: { any: [thing, 1.5] }"));
    good(&one("key: a, metadata: "));
}

/// Go's reader takes these integers as floating-point numbers, so they are not valid as text.
#[test]
fn integers_beyond_go_range_are_not_text() {
    for text in ["9223372036854775808", "-9223372036854775809", "08", "0_9", "0x10000000000000000"] {
        problem(
            &one(&format!("key: a, value: {text}")),
            &[&format!(
                "test.yaml:3:22: descriptors[0].value: expected text, found {text}; put it in quotes: \"{text}\""
            )],
        );
        problem(
            &one(&format!("key: a, name: {text}")),
            &["expected text or a whole number, found", "; put it in quotes"],
        );
        good(&one(&format!("key: a, value: '{text}'")));
    }
    for text in ["9223372036854775807", "-9223372036854775808", "+5", "017", "0", "-0x1F", "0b11"] {
        good(&one(&format!("key: a, value: {text}, name: {text}")));
    }
}
