//! How scalars are read: their types in YAML, whole numbers, shares and times.

use std::time::Duration;

use tollgate_config::{Amount, Config, Metadata, Store};

use super::support::{good, limit, problem};

/// Returns the type of an unquoted scalar of YAML. A number is an integer if it is valid as text.
fn type_of(text: &str) -> &'static str {
    let limit = "rate_limit: { unit: day, requests_per_unit: 1 }";
    let file = |fields: &str| format!("domain: d\ndescriptors: [ {{ key: a, {fields}, {limit} }} ]");
    let config = good(&file(&format!("metadata: {{ v: {text} }}")));
    let is_text = Config::from_yaml("test.yaml", &file(&format!("value: {text}"))).is_ok();
    match config.rules()[0].metadata.as_deref().and_then(|map| map.get("v")) {
        Some(Metadata::Null) => "null",
        Some(Metadata::Bool(_)) => "bool",
        Some(Metadata::Number(_)) if is_text => "integer",
        Some(Metadata::Text(_)) if is_text => "text",
        _ => "float",
    }
}

#[test]
fn plain_scalar_types() {
    for (name, texts) in [
        ("integer", "1001 -5 +5 1_000 0x1F 0x_1 0o_7 0o17 0b101 010"),
        ("float", "1.5 1. .5 -1e9 1_0.5 .inf -.INF .nan 6.02e23 08"),
        ("text", "203.0.113.7 1e e5 0x 0x_ _1 y inf nan . + 1-2 ٣ 25% 4MiB"),
        ("null", "~ null Null NULL"),
        ("bool", "yes No ON off true False"),
    ] {
        for text in texts.split(' ') {
            assert_eq!(type_of(text), name, "{text}");
        }
    }
    assert_eq!(type_of(""), "null");
}

#[test]
fn whole_number_syntax() {
    let field = |text: &str| limit(&format!("unit: day, requests_per_unit: 0, soft: {text}"));
    for (text, number) in [
        ("0", 0),
        ("+5", 5),
        ("-0", 0),
        ("1_000", 1000),
        ("0x1F", 31),
        ("0o17", 15),
        ("0b101", 5),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(good(&field(text)).rules()[0].soft, number, "{text}");
    }
    for (text, part) in [
        ("-1", "-1 is negative"),
        ("010", "010 begins with a zero"),
        ("18446744073709551616", "18446744073709551616 is more than 18446744073709551615"),
        ("_1", "expected a whole number, found \"_1\""),
        ("0x", "expected a whole number, found \"0x\""),
        ("0x_", "expected a whole number, found \"0x_\""),
        ("1.0", "expected a whole number, found \"1.0\""),
    ] {
        problem(&field(text), part);
    }
}

#[test]
fn shares_are_exact() {
    let field = |text: &str| limit(&format!("unit: day, requests_per_unit: 1, enforced: '{text}'"));
    for (text, share) in [
        ("25%", 250_000),
        ("100%", 1_000_000),
        ("0%", 0),
        ("0.0001%", 1),
        ("12.5 %", 125_000),
        ("100.0000%", 1_000_000),
    ] {
        assert_eq!(good(&field(text)).rules()[0].enforced_per_million, share, "{text}");
    }
    for text in
        ["", "%", "25", "0.25", "101%", "100.0001%", "0.00001%", "-1%", ".5%", "5.%", "1e1%", "1.2.3%"]
    {
        problem(&field(text), "expected a percentage from 0% to 100%");
    }
}

#[test]
fn timeout_needs_a_unit() {
    let field =
        |text: &str| limit(&format!("unit: day, requests_per_unit: 1, store: redis, timeout: '{text}'"));
    for (text, ms) in [("1ms", 1), ("40ms", 40), ("1s", 1_000), ("25 ms", 25), ("60s", 60_000)] {
        let Amount::Limited { store: Some(Store::Redis(shared)), .. } = good(&field(text)).rules()[0].limit
        else {
            panic!("{text}")
        };
        assert_eq!(shared.timeout, Duration::from_millis(ms), "{text}");
    }
    for text in ["", "40", "0ms", "61s", "ms", "s", "-1ms", "1.5s", "1m", "+1s", "99999999999999999999ms"] {
        problem(&field(text), "expected a time from 1ms to 60s, found");
    }
}

#[test]
fn long_text_is_cut_in_messages() {
    problem("domain: d\ndescriptors: \"a\\nb\"", r#"expected a list, found "a\nb""#);
    let long = "ü".repeat(10_000);
    let cut = format!("found \"{}\"…;", "ü".repeat(80));
    problem(&format!("domain: d\ndescriptors: {long}"), &cut);
}
