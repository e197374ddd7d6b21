//! `metadata` of descriptors is kept with its types, in every format.

use tollgate_config::{Config, Metadata};

fn text(text: &str) -> Metadata {
    Metadata::Text(text.into())
}

fn metadata(config: &Config, rule: usize) -> Option<&Metadata> {
    config.rules()[rule].metadata.as_deref()
}

const YAML: &str = r#"
domain: d
descriptors:
  - key: a
    metadata:
      null_value: ~
      truth: true
      whole: 42
      negative: -7
      fraction: 1.50
      large: 1e300
      words: large
      quoted: "42"
      list: [1, two, [false], { deep: ~ }]
      map: { one: { two: { three: 3 } } }
      empty_map: {}
      empty_list: []
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: b
    rate_limit: { unit: hour, requests_per_unit: 1 }
"#;

const JSON: &str = r#"{ "domain": "d", "descriptors": [
  { "key": "a", "metadata": {
      "null_value": null, "truth": true, "whole": 42, "negative": -7, "fraction": 1.50, "large": 1e300, "words": "large",
      "quoted": "42", "list": [1, "two", [false], { "deep": null }], "map": { "one": { "two": { "three": 3 } } },
      "empty_map": {}, "empty_list": [] },
    "rate_limit": { "unit": "hour", "requests_per_unit": 1 } },
  { "key": "b", "rate_limit": { "unit": "hour", "requests_per_unit": 1 } }
] }"#;

#[test]
fn metadata_keeps_deep_values_and_types() {
    let map = |entries: Vec<(&str, Metadata)>| {
        Metadata::Map(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
    };
    let list = |items: Vec<Metadata>| Metadata::List(items.into());
    let deep = map(vec![("deep", Metadata::Null)]);
    let expected = map(vec![
        ("null_value", Metadata::Null),
        ("truth", Metadata::Bool(true)),
        ("whole", Metadata::Number(42.0)),
        ("negative", Metadata::Number(-7.0)),
        ("fraction", Metadata::Number(1.5)),
        ("large", Metadata::Number(1e300)),
        ("words", text("large")),
        ("quoted", text("42")),
        ("list", list(vec![Metadata::Number(1.0), text("two"), list(vec![Metadata::Bool(false)]), deep])),
        ("map", map(vec![("one", map(vec![("two", map(vec![("three", Metadata::Number(3.0))]))]))])),
        ("empty_map", map(vec![])),
        ("empty_list", list(vec![])),
    ]);
    for config in [Config::from_yaml("a.yaml", YAML).unwrap(), Config::from_json("a.json", JSON).unwrap()] {
        assert_eq!(metadata(&config, 0), Some(&expected), "{config:?}");
        assert_eq!(metadata(&config, 1), None);
    }
}

#[test]
fn metadata_numbers_have_any_base() {
    let file = "domain = 'd'\n[[descriptors]]\nkey = 'a'\nmetadata = { hex = 0xff, under = 1_000, at = 1979-05-27, inf = inf }\n\
                rate_limit = { unit = 'hour', requests_per_unit = 1 }\n";
    let config = Config::from_toml("a.toml", file).unwrap();
    let get = |key: &str| metadata(&config, 0).and_then(|map| map.get(key)).cloned();
    assert_eq!(get("hex"), Some(Metadata::Number(255.0)));
    assert_eq!(get("under"), Some(Metadata::Number(1_000.0)));
    assert_eq!(get("at"), Some(text("1979-05-27")));
    assert_eq!(get("inf"), Some(text("inf")));
    assert_eq!(get("none"), None);
}

/// Wildcards, tiers and several limits of one descriptor share its metadata.
#[test]
fn all_rules_of_descriptor_share_metadata() {
    let file = "
domain: d
tollgate: {}
descriptors:
  - key: a
    value: x*
    metadata: { backend: large }
    rate_limits:
      - { unit: second, requests_per_unit: 1 }
      - { unit: hour, requests_per_unit: 9 }
    tiers:
      gold: { rate_limit: { unlimited: true } }
";
    let config = Config::from_yaml("a.yaml", file).unwrap();
    assert_eq!(config.rules().len(), 3);
    for rule in config.rules() {
        assert_eq!(rule.metadata.as_deref().and_then(|map| map.get("backend")), Some(&text("large")));
    }
}
