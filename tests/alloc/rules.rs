//! Counts what rules allocate.
//!
//! - A check allocates nothing if each rule counts by one value, whether the request is admitted or denied.
//! - A check of a rule that counts by several values allocates one string.
//! - Reading a file takes at most twenty times its length in memory.

use crate::counting::{allocations, peak_bytes};
use tollgate::rules::{Config, ConfigError, Descriptor, Domain, Rules};

const TEXT: &str = "
domain: d
tollgate: {}
descriptors:
  - { key: many, rate_limit: { unit: second, requests_per_unit: 1000000 } }
  - { key: none, rate_limit: { unit: year, requests_per_unit: 1 } }
  - key: path
    value: /login
    descriptors: [ { key: client, rate_limit: { unit: year, requests_per_unit: 1 } } ]
  - key: tenant
    descriptors: [ { key: client, rate_limit: { unit: year, requests_per_unit: 1 } } ]
";

/// Returns the smallest count of many calls. The first calls of a thread also allocate what the thread keeps.
fn fewest(what: impl Fn()) -> u64 {
    (0..4).for_each(|_| what());
    (0..200).map(|_| allocations(&what)).min().unwrap_or(u64::MAX)
}

#[test]
fn rule_check_allocates_nothing() {
    let rules = Rules::builder().load([Config::from_yaml("test.yaml", TEXT).unwrap()]).unwrap();
    let ask = |entries: &[(&str, &str)]| {
        let _ = rules.check("d", &[Descriptor::new(entries)]);
    };
    assert_eq!(fewest(|| ask(&[("many", "x")])), 0, "admitted");
    assert_eq!(fewest(|| ask(&[("none", "x")])), 0, "denied");
    assert_eq!(
        fewest(|| ask(&[("path", "/login"), ("client", "x")])),
        0,
        "denied, counted by one of two values"
    );
    assert_eq!(fewest(|| ask(&[("tenant", "t"), ("client", "x")])), 1, "denied, counted by both values");
    let (one, other) = ([("many", "x")], [("none", "x")]);
    let both = [Descriptor::new(&one), Descriptor::new(&other)];
    assert_eq!(fewest(|| drop(rules.check("d", &both))), 0, "two rules");
    assert_eq!(fewest(|| drop(rules.check("nope", &both))), 0, "no rules");
}

#[test]
fn pattern_search_never_allocates() {
    let patterns = |key: &str, value: fn(usize) -> String| {
        lines(1_000, |at| format!("  - {{ key: '{key}', value: '{}', {LIMIT} }}\n", value(at)))
    };
    let text = patterns("path", |at| format!("*/{at}/*"))
        + &patterns("host", |at| format!("*a*{at}-*b*"))
        + &patterns("x-*", |at| format!("v{at}"));
    let domain =
        Domain::merge([Config::from_yaml("test.yaml", &yaml(&text)).unwrap()], false).unwrap().remove(0);
    // This value contains most of the patterns' parts, but the last part of each host pattern is missing.
    let often: String = (0..1_000).map(|at| format!("{at}-")).collect();
    for (key, value, found) in [
        ("path", "/a/731/b", 1),
        ("path", "/a/b", 0),
        ("host", "a-731-b", 1),
        ("host", &*often, 0),
        ("x-y", "v731", 1),
        ("x-y", "v", 0),
    ] {
        assert_eq!(domain.matching(&[(key, value)], None).len(), found, "{key} {value}");
        let allocated = fewest(|| {
            std::hint::black_box(domain.matching(&[(key, value)], None));
        });
        assert_eq!(allocated, 0, "{key} {value}");
    }
}

type Read = fn(&str, &str) -> Result<Config, ConfigError>;

const LIMIT: &str = "rate_limit: { unit: day, requests_per_unit: 1 }";

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(line).collect()
}

fn yaml(descriptors: &str) -> String {
    format!("domain: d\ntollgate: {{}}\ndescriptors:\n{descriptors}")
}

/// Returns a file with many rules below one value.
fn below(value: usize, children: usize) -> String {
    let children = lines(children, |at| format!("      - {{ key: k, value: v{at}, {LIMIT} }}\n"));
    yaml(&format!("  - key: a\n    value: {}\n    descriptors:\n{children}", "x".repeat(value)))
}

/// Returns a file whose descriptor has this metadata, which the reader ignores.
fn metadata(value: &str) -> String {
    yaml(&format!("  - {{ key: a, metadata: {{ x: {value} }} }}\n"))
}

/// Returns patterns of one key. Each contains a text of `length` digits that no other pattern contains.
fn patterns(count: usize, length: usize) -> String {
    let digits = |at: usize| format!("{at:05}{:0length$}", at.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    lines(count, |at| format!("  - {{ key: k, value: '*{}*', {LIMIT} }}\n", &digits(at)[..length]))
}

fn yaml_files() -> Vec<(&'static str, String)> {
    let members = lines(150_000, |at| format!("        - m{at}\n"));
    let open = lines(40, |level| format!("{}&a{level} x:\n", " ".repeat(level + 4)));
    let anchors =
        yaml(&format!("- key: a\n  metadata:\n{open}{}", format!("{}- a\n", " ".repeat(44)).repeat(30_000)));
    let in_lines = |at| {
        format!(
            "  - key: k\n    value: v{at}\n    rate_limit:\n      unit: day\n      requests_per_unit: 1\n"
        )
    };
    vec![
        ("a long value above many rules", below(100_000, 20_000)),
        ("a value of a thousand bytes above many rules", below(1_000, 20_000)),
        ("a value of a hundred bytes above many rules", below(100, 20_000)),
        ("many rules", yaml(&lines(20_000, |at| format!("  - {{ key: k, value: v{at}, {LIMIT} }}\n")))),
        ("many rules in lines", yaml(&lines(20_000, in_lines))),
        ("many keys", yaml(&lines(120_000, |at| format!("- key: k{at}\n")))),
        ("many patterns", yaml(&patterns(20_000, 6))),
        ("patterns of twelve bytes", yaml(&patterns(20_000, 12))),
        ("many long patterns", yaml(&patterns(8_000, 100))),
        (
            "many members",
            yaml(&format!("- key: a\n  tiers:\n    t:\n      {LIMIT}\n      members:\n{members}")),
        ),
        ("many texts", metadata(&format!("[{}]", "a,".repeat(700_000)))),
        (
            "many texts in lines",
            yaml(&format!("- key: a\n  metadata:\n    x:\n{}", "    - a\n".repeat(200_000))),
        ),
        ("many empty maps", metadata(&format!("[{}]", "{},".repeat(700_000)))),
        ("many maps", metadata(&format!("[{}]", "a: b,".repeat(300_000)))),
        ("many keys of a map", metadata(&format!("{{ {} }}", lines(120_000, |at| format!("k{at}: x,"))))),
        ("many anchors", metadata(&format!("[{}]", "&a ".repeat(400_000)))),
        ("anchors in anchors", anchors),
    ]
}

fn json_files() -> Vec<(&'static str, String)> {
    let rule = |at| {
        format!(
            "{{\"key\":\"k\",\"value\":\"v{at}\",\"rate_limit\":{{\"unit\":\"day\",\"requests_per_unit\":1}}}},"
        )
    };
    let file =
        |descriptors: &str| format!("{{\"domain\":\"d\",\"descriptors\":[{descriptors}{{\"key\":\"z\"}}]}}");
    let numbers = format!("{{\"key\":\"y\",\"metadata\":{{\"x\":[{}1]}}}},", "1,".repeat(700_000));
    vec![("many rules in JSON", file(&lines(20_000, rule))), ("many numbers in JSON", file(&numbers))]
}

/// The bound holds whether the file is read or refused: the memory must stay proportional to the file's length.
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn reading_takes_bounded_memory() {
    let (yaml, json): (Read, Read) = (Config::from_yaml, Config::from_json);
    let files = yaml_files().into_iter().map(|file| (yaml, file));
    let files = files.chain(json_files().into_iter().flat_map(|file| [(yaml, file.clone()), (json, file)]));
    for (read, (name, text)) in files {
        assert!(text.len() > 1_000_000, "{name}: {}", text.len());
        let peak = peak_bytes(|| drop(read("test", &text)));
        assert!(peak <= 20 * text.len(), "{name}: {peak} bytes for {}", text.len());
    }
}

#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn ordinary_large_files_are_read() {
    for (name, text) in yaml_files().into_iter().chain(json_files()) {
        let is_ordinary = name.starts_with("many rules")
            || name.starts_with("many keys")
            || name.ends_with("patterns")
            || name == "many members";
        if is_ordinary && !name.ends_with("of a map") {
            assert!(Config::from_yaml("test", &text).is_ok(), "{name}");
        }
    }
}

/// The memory is bounded, too, where a few bytes expand to much.
#[test]
fn expanding_small_file_takes_bounded_memory() {
    let aliases = lines(11, |level| {
        let before = if level == 0 { "x".to_owned() } else { format!("*a{}", level - 1) };
        format!("  - &a{level} [{}]\n", [&*before; 10].join(", "))
    });
    for (name, text) in [
        ("aliases of aliases", format!("domain: d\nmetadata:\n{aliases}")),
        ("rules below a value", below(40_000, 1_000)),
        ("texts in brackets", metadata(&format!("[{}]", "a,".repeat(25_000)))),
        ("maps in brackets", metadata(&format!("[{}]", "a: b,".repeat(12_000)))),
        ("texts in lines", yaml(&format!("- key: a\n  metadata:\n    x:\n{}", "    - a\n".repeat(15_000)))),
    ] {
        let peak = peak_bytes(|| drop(Config::from_yaml("test", &text)));
        assert!(peak <= 24 << 20, "{name}: {peak} bytes for {}", text.len());
    }
}
