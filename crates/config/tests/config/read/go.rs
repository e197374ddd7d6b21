//! Envoy's service loads its files with Go's YAML reader. These tests compare our reader with that reader.

use tollgate_config::Amount;

use super::support::{good, problem};

fn one(descriptor: &str) -> String {
    format!("domain: d\ndescriptors:\n  - {{ {descriptor} }}\n")
}

fn limited(number: &str) -> String {
    one(&format!("key: a, rate_limit: {{ unit: day, requests_per_unit: {number} }}"))
}

fn limit_of(number: &str) -> u64 {
    match good(&limited(number)).rules()[0].limit {
        Amount::Limited { limit, .. } => limit.quota().limit(),
        ref other => panic!("{number}: {other:?}"),
    }
}

// G68
#[test]
fn yaml_short_booleans_are_read() {
    for (text, shadow) in [("y", true), ("Y", true), ("n", false), ("N", false), ("!!bool y", true)] {
        let limit = "rate_limit: { unit: day, requests_per_unit: 1 }";
        let config = good(&one(&format!("key: y, value: n, shadow_mode: {text}, {limit}")));
        assert_eq!(config.rules()[0].shadow, shadow, "{text}");
        assert_eq!(&*config.rules()[0].identity, "d|y=n", "in a key or a value, y and n are text");
    }
    problem(&one("key: a, shadow_mode: 'y'"), r#""y" is neither true nor false"#);
    problem(&one("key: a, shadow_mode: ye"), r#""ye" is neither true nor false"#);
}

#[test]
fn yaml_tags_set_scalar_type() {
    assert_eq!(["!!int \"5\"", "!!int 5", "!!int '0x1F'"].map(limit_of), [5, 5, 31]);
    problem(&limited("!!str 5"), r#"found the text "5""#);
    problem(&limited("!!float 5"), r#"expected a whole number, found "5""#);
    let said = r#"test.yaml:3:22: "five" does not have the type of its tag !!int; remove the tag"#;
    problem(&one("key: a, value: !!int five, shadow_mode: !!bool 'true'"), said);
}

#[test]
fn underscores_are_allowed_after_number_prefix() {
    for (text, limit) in [("0x_1", 1), ("0x1_F_", 31), ("0o_17", 15), ("0b_1", 1), ("1_0_", 10)] {
        assert_eq!(limit_of(text), limit, "{text}");
    }
    for text in ["0x_", "_1"] {
        problem(&limited(text), "expected a whole number");
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
    problem("---\n---\n", "the file is empty");
    for second in ["domain: e", "[]", "text", "''"] {
        let text = format!("---\n{file}---\n---\n{second}\n");
        problem(&text, "test.yaml:6:1: a second document begins here");
    }
    problem(&format!("---\n{file}---\n*a\n"), "test.yaml:");
}

// G68
#[test]
fn metadata_is_a_map() {
    for (text, said) in [("text", "found \"text\""), ("[a]", "found a list"), ("1", "found \"1\"")] {
        let said = format!("descriptors[0].metadata: expected a map, {said}");
        problem(&one(&format!("key: a, metadata: {text}")), &said);
    }
    good(&one("key: a, metadata: { any: [thing, 1.5] }"));
    good(&one("key: a, metadata: "));
}

/// Go's reader takes these integers as floating-point numbers, so they are not valid as text.
#[test]
fn integers_beyond_go_range_are_not_text() {
    for text in ["9223372036854775808", "-9223372036854775809", "08", "0_9", "0x10000000000000000"] {
        let said = format!("expected text, found {text}; put it in quotes: \"{text}\"");
        let said = format!("test.yaml:3:22: descriptors[0].value: {said}");
        problem(&one(&format!("key: a, value: {text}")), &said);
        let said = "expected text or a whole number, found ... ; put it in quotes";
        problem(&one(&format!("key: a, name: {text}")), said);
        good(&one(&format!("key: a, value: '{text}'")));
    }
    for text in ["9223372036854775807", "-9223372036854775808", "+5", "017", "0", "-0x1F", "0b11"] {
        good(&one(&format!("key: a, value: {text}, name: {text}")));
    }
}
