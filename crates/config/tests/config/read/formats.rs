//! The same rules in YAML, JSON and TOML give the same result. The file's extension selects the format. Files of one
//! domain can be merged.

use tollgate_config::{Config, ConfigError, Domain, Format, Rule};

use super::support::good;
use crate::matching::texts;

const EDGE_JSON: &str = r#"{
  "domain": "edge",
  "descriptors": [
    { "key": "remote_address", "rate_limit": { "unit": "second", "requests_per_unit": 10 } },
    { "key": "remote_address", "value": "203.0.113.7", "rate_limit": { "unit": "second", "requests_per_unit": 0 } },
    { "key": "remote_address", "value": "198.51.100.20" },
    { "key": "path", "value": "\/\u006cogin", "descriptors": [
      { "key": "remote_address", "rate_limit": { "unit": "Minute", "requests_per_unit": 5 } },
      { "key": "remote_address", "value": "198.51.100.20", "rate_limit": { "unlimited": true } }
    ] },
    { "key": "path", "rate_limit": { "unit": "HOUR", "requests_per_unit": 1000 } }
  ]
}"#;
const EDGE_TOML: &str = r#"
domain = "edge"

[[descriptors]]
key = "remote_address"
rate_limit = { unit = "second", requests_per_unit = 10 }

[[descriptors]]
key = "remote_address"
value = "203.0.113.7"
rate_limit = { unit = "second", requests_per_unit = 0 }

[[descriptors]]
key = "remote_address"
value = "198.51.100.20"

[[descriptors]]
key = "path"
value = "/login"

[[descriptors.descriptors]]
key = "remote_address"
rate_limit = { unit = "Minute", requests_per_unit = 5 }

[[descriptors.descriptors]]
key = "remote_address"
value = "198.51.100.20"
rate_limit.unlimited = true

[[descriptors]]
key = "path"

[descriptors.rate_limit]
unit = "HOUR"
requests_per_unit = 1_000
"#;
/// The rules without their line numbers, which differ between the formats.
fn rules(config: &Config) -> Vec<Rule> {
    let mut rules = config.rules().to_vec();
    rules.iter_mut().for_each(|rule| rule.line = 0);
    rules
}

#[test]
fn formats_give_equal_rules() {
    let yaml = good(texts::EDGE);
    let json = Config::from_json("a.json", EDGE_JSON).unwrap();
    let toml = Config::from_toml("a.toml", EDGE_TOML).unwrap();
    for other in [json, toml] {
        assert_eq!((rules(&other), other.domain()), (rules(&yaml), yaml.domain()));
        assert_eq!(other.warnings().len(), yaml.warnings().len());
    }
    // JSON is a subset of YAML, so the YAML reader accepts JSON files.
    assert_eq!(rules(&good(&EDGE_JSON.replace("\\/", "/"))), rules(&good(texts::EDGE)));
}

/// The settings of limits that Tollgate adds. JSON is YAML, and an inline table of TOML has another sign after its keys.
#[test]
fn settings_of_limits_are_equal_in_each_format() {
    for settings in [
        r#""unit": "minute", "requests_per_unit": 5, "algorithm": "gcra", "block": { "for": "10m", "at_most": "1d" }"#,
        r#""unit": "minute", "requests_per_unit": 10, "hold": { "life": "2m", "most": "50%", "units": 3 }"#,
        r#""in_progress": 4, "hold": { "life": "1h" }"#,
        r#""unit": "hour", "requests_per_unit": 10, "distinct": true"#,
        #[cfg(feature = "calendar")]
        r#""period": "month", "time_zone": "Asia/Tokyo", "starts": { "day": 31, "hour": 6 }, "requests_per_unit": 9"#,
    ] {
        let json = format!(
            r#"{{ "domain": "d", "tollgate": {{}}, "descriptors": [ {{ "key": "a", "rate_limit": {{ {settings} }} }} ] }}"#
        );
        let inline = settings.replace("\": ", "\" = ");
        let toml = format!(
            "domain = 'd'\ntollgate = {{}}\ndescriptors = [ {{ key = 'a', rate_limit = {{ {inline} }} }} ]"
        );
        let of_yaml = rules(&good(&json));
        assert_eq!(rules(&Config::from_json("a.json", &json).unwrap()), of_yaml);
        assert_eq!(rules(&Config::from_toml("a.toml", &toml).unwrap()), of_yaml);
    }
}

#[test]
fn rules_report_their_lines() {
    let lines = |config: Config| config.rules().iter().map(|rule| rule.line).collect::<Vec<_>>();
    assert_eq!(lines(good(texts::EDGE)), [5, 8, 15, 18, 20]);
    assert_eq!(lines(Config::from_json("a", EDGE_JSON).unwrap()), [4, 5, 8, 9, 11]);
    assert_eq!(lines(Config::from_toml("a", EDGE_TOML).unwrap()), [6, 11, 23, 28, 33]);
}

#[test]
fn problem_positions_in_each_format() {
    let json = EDGE_JSON.replace("\"HOUR\"", "\"é\"").replace("1000 }", "1000, \"what\": [1.5, {}] }");
    let toml = EDGE_TOML.replace("\"Minute\"", "1979-05-27").replace("1_000", "-1");
    let lines = [
        "a:11:46: descriptors[4].rate_limit.unit: no unit is called \"é\"",
        "a:11:78: descriptors[4].rate_limit.what: ",
        "a:23:23: descriptors[3].descriptors[0].rate_limit.unit: expected text, found 1979-05-27",
        "a:35:21: descriptors[4].rate_limit.requests_per_unit: -1 is negative",
    ];
    let errors = [Config::from_json("a", &json).unwrap_err(), Config::from_toml("a", &toml).unwrap_err()];
    let said: Vec<String> = errors.iter().flat_map(ConfigError::problems).map(ToString::to_string).collect();
    assert_eq!(said.len(), 4, "{said:#?}");
    assert!(said.iter().zip(lines).all(|(said, line)| said.starts_with(line)), "{said:#?}");
}

#[test]
fn repeated_keys_and_deep_values_are_rejected() {
    let said = |text: &str| Config::from_json("a.json", text).unwrap_err().to_string();
    let twice = said("{\"domain\": \"d\",\n\"domain\": \"d\"}");
    assert!(twice.contains("a.json:2:1: the key \"domain\" occurs twice"), "{twice}");
    let deep = "[".repeat(300) + &"]".repeat(300);
    assert!(said(&format!("{{\"domain\": \"d\", \"metadata\": {deep}}}")).contains("at most 100 deep"));
}

// G68
#[test]
fn syntax_errors_suggest_remedies() {
    type Format = (&'static str, fn(&str, &str) -> Result<Config, ConfigError>);
    let (yaml, json): (Format, Format) = (("YAML", Config::from_yaml), ("JSON", Config::from_json));
    let toml: Format = ("TOML", Config::from_toml);
    let rows = [
        (yaml, "domain: d\ndescriptors:\n\t- key: a", "3:", "indent with spaces, not with tabs"),
        (yaml, "domain: d\ndescriptors:\n  - key: a\n\tvalue: b", "3:", "indent with spaces, not with tabs"),
        (yaml, "domain: d\ndescriptors:\n  -\tkey: a\n  \tvalue: b", "", "indent with spaces, not with tabs"),
        (yaml, "domain: d: e", "1:10", "put text with a colon in quotes"),
        (yaml, "domain: d\n  descriptors: []", "2:", "indent this line like the lines around it"),
        (yaml, "domain: d\ndescriptors: [", "", "an unclosed quote or bracket"),
        (yaml, "domain: \"d\ndescriptors: []", "", "an unclosed quote or bracket"),
        (yaml, "domain: d\ndescriptors:\n  - key: a\n - key: b", "4:", "lines with a different indentation"),
        (json, "{\"domain\": \"d\",}", "1:16", "or remove the comma before"),
        (json, "{\"domain\": [1,]}", "1:15", "extra quote, comma or bracket"),
        (json, "{\"domain\": \"d\"} x", "1:17", "remove the text after the end"),
        (json, "{\"domain\": \"d\te\"}", "1:13", "write it as \\n or \\t"),
        (json, "{\"domain\": 'd'}", "1:12", "extra quote, comma or bracket"),
        (json, "{\n\"domain\": \"\\ud800\"}", "2:11", "both halves"),
        (json, "", "1", "extra quote, comma or bracket"),
        (toml, "domain = d", "1:10", "put text in quotes"),
        (toml, "domain = \"d\"\ndescriptors = [", "2:", "close all quotes and brackets"),
        (toml, "domain", "1:", "write key = value"),
        (toml, "[domain", "1:8", "close all quotes and brackets"),
        (toml, "domain = \"d\"\ndomain = \"e\"", "2:1", "put text in quotes"),
    ];
    for ((format, read), text, place, remedy) in rows {
        let error = read("a", text).unwrap_err();
        let problem = &error.problems()[0];
        let at = format!("{}:{}", problem.line(), problem.column());
        assert!(at.starts_with(place) && problem.remedy().contains(remedy), "{text:?}: {problem}");
        let begin = format!("this is not valid {format}: ");
        assert!(problem.message().starts_with(&begin), "{text:?}: {problem}");
    }
}

// G68
#[test]
fn invalid_utf8_is_reported_with_position() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a.yaml");
    for (bytes, at) in
        [(&b"domain: d\n\n# caf\xe9\n"[..], (3, 6)), (b"\xff\xfed\0", (1, 1)), (b"a: \xc3\xbc\xc3", (1, 5))]
    {
        std::fs::write(&path, bytes).unwrap();
        let error = Config::read(&path).unwrap_err();
        let problem = &error.problems()[0];
        assert_eq!((problem.line(), problem.column()), at, "{problem}");
        assert!(problem.message().starts_with("this is not UTF-8: found the byte 0x"), "{problem}");
        assert_eq!(problem.remedy(), "save the file as UTF-8");
    }
}

#[test]
fn oversized_rule_files_are_rejected() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a.yaml");
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let error = Config::read(&path).unwrap_err().to_string();
    assert!(error.ends_with("a.yaml: the file has more than 67108864 bytes; write fewer rules"), "{error}");
    let toml = format!("domain = \"d\"{}", "\n".repeat(4 << 20));
    let error = Config::from_toml("a", &toml).unwrap_err().to_string();
    assert!(error.contains("a TOML file may have at most 4194304 bytes, found 4194316; write fewer rules, or use YAML or JSON"), "{error}");
    // The limit applies only to brackets that may be a key, because the parser must read them to the end first.
    let list = format!("[{}]", "a, ".repeat(20_000));
    let long = format!("domain: d\ndescriptors:\n  - {{ key: a, metadata: {{ x: {list} }} }}");
    let error = Config::from_yaml("a", &long).unwrap_err().to_string();
    let said = "a:3:5: this list or map in brackets is too long; write each item on its own line";
    assert!(error.starts_with(said), "{error}");
    let in_lines = format!("domain: d\ndescriptors:\n  - key: a\n    metadata:\n      x: {list}");
    assert!(Config::from_yaml("a", &in_lines).is_ok());
}

#[test]
fn file_extension_selects_format() {
    let place = tempfile::tempdir().unwrap();
    for (name, text) in
        [("a.yaml", texts::EDGE), ("a.yml", texts::EDGE), ("a.json", EDGE_JSON), ("a.TOML", EDGE_TOML)]
    {
        let path = place.path().join(name);
        std::fs::write(&path, format!("\u{feff}{text}")).unwrap();
        let config = Config::read(&path).unwrap();
        assert_eq!((config.domain(), config.rules().len()), ("edge", 5));
        assert_eq!(config.file(), path.display().to_string());
    }
    let error = Config::read(place.path().join("none.yaml")).unwrap_err();
    let part = "none.yaml: cannot be read: no such file or directory; check the path";
    assert!(error.to_string().contains(part), "{error}");
    assert_eq!((error.problems()[0].line(), error.problems().len()), (0, 1));
    std::fs::write(place.path().join("b.yaml"), [b'a', 0xFF]).unwrap();
    assert!(Config::read(place.path().join("b.yaml")).is_err());
    assert!(Config::read("rules").unwrap_err().to_string().contains("use .yaml"));
}

#[test]
fn domains_merge_or_stay_separate() {
    let file = |name: &str, text: &str| Config::from_yaml(name, text).unwrap();
    let of = |name: &str, domain: &str, key: &str| {
        let rule = format!("{{ key: {key}, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}");
        file(name, &format!("domain: {domain}\ndescriptors: [{rule}]"))
    };
    let (one, two) = (|| of("one.yaml", "a", "x"), || of("two.yaml", "a", "y"));
    let other = || of("b.yaml", "b", "y");
    let names =
        |domains: &[Domain]| domains.iter().map(|domain| domain.name().to_owned()).collect::<Vec<_>>();

    assert_eq!(names(&Domain::merge([one(), other()], false).unwrap()), ["a", "b"]);
    let error = Domain::merge([one(), other(), two()], false).unwrap_err().to_string();
    let remedy = "rename one of them, or merge the files with --merge-domains (RulesBuilder::merge_domains)";
    assert_eq!(error, format!("two.yaml:1:9: domain: one.yaml:1 already has the domain \"a\"; {remedy}"));

    let merged = Domain::merge([one(), other(), two()], true).unwrap();
    assert_eq!(names(&merged), ["a", "b"]);
    let found =
        |key| merged[0].matching(&[(key, "")], None).iter().map(|rule| &*rule.identity).collect::<Vec<_>>();
    assert_eq!((found("x"), found("y")), (vec!["a|x"], vec!["a|y"]));

    let error = Domain::merge([one(), two(), one()], true).unwrap_err().to_string();
    let begin = "one.yaml:2:15: descriptors: key \"x\" without a value is also in one.yaml:2";
    assert!(error.starts_with(begin), "{error}");
    let counting = file("c.yaml", "domain: a\ntollgate: { charging: count-first, shadow: true }");
    let error = Domain::merge([one(), counting], true).unwrap_err();
    assert_eq!(error.problems().len(), 2);
    let part = "c.yaml:1:9: tollgate.charging: charging differs from one.yaml:1";
    assert!(error.to_string().contains(part), "{error}");
}

/// Cause: each item of a list has problems of its own, and all were kept. Trigger: a short text of millions of items. Symptom: reading took a
/// hundred times the memory of the text.
// G68
#[test]
fn problems_of_a_list_are_bounded() {
    let read = |bad: usize| {
        let text = format!(r#"[{}{{"domain":"d"}}]"#, "{},".repeat(bad));
        Config::all_from_bytes("list", Format::Json, text)
    };
    assert_eq!(read(0).unwrap().len(), 1);
    for bad in [1, 99, 100, 1 << 16] {
        let error = read(bad).unwrap_err();
        let (problems, last) = (error.problems(), error.problems().last().unwrap().to_string());
        assert!(problems[0].to_string().starts_with("list[0]:1:1: domain: the domain is missing"), "{error}");
        assert_eq!(problems.len(), bad.min(100) + usize::from(bad >= 100));
        assert_eq!(last.contains("the rest of it was not read"), bad >= 100, "{last}");
    }
}
