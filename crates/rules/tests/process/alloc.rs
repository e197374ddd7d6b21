//! Counts what rules allocate.
//!
//! - A check allocates nothing if each rule counts by one value, whether the request is admitted or denied.
//! - A check of a rule that counts by several values allocates one string.
//! - Reading a file takes at most twenty times its length in memory.
//! - A rule takes at most 2 kB before its first charge, and a load that changes one rule frees as much as it allocates.

use crate::counting::{allocations, bytes_held, held, peak_bytes};
use tollgate_rules::{Config, ConfigError, Descriptor, Domain, Format, Rules};

const RULES: &str = "
  - { key: many, rate_limit: { unit: second, requests_per_unit: 1000000 } }
  - { key: none, rate_limit: { unit: year, requests_per_unit: 1 } }
  - key: path
    value: /login
    descriptors: [ { key: client, rate_limit: { unit: year, requests_per_unit: 1 } } ]
  - { key: tenant, descriptors: [ { key: client, rate_limit: { unit: year, requests_per_unit: 1 } } ] }
";

fn rules(descriptors: &str) -> Rules {
    Rules::builder().load([Config::from_yaml("test.yaml", &yaml(descriptors)).unwrap()]).unwrap()
}

/// Returns the smallest count of many calls. The first calls of a thread also allocate what the thread keeps.
fn fewest(what: impl Fn()) -> u64 {
    (0..4).for_each(|_| what());
    (0..200).map(|_| allocations(&what)).min().unwrap_or(u64::MAX)
}

// G68
#[test]
fn rule_check_allocates_nothing() {
    let rules = rules(RULES);
    let ask = |entries: &[(&str, &str)]| fewest(|| drop(rules.check("d", &[Descriptor::new(entries)])));
    assert_eq!(ask(&[("many", "x")]), 0, "admitted");
    assert_eq!(ask(&[("none", "x")]), 0, "denied");
    assert_eq!(ask(&[("path", "/login"), ("client", "x")]), 0, "denied, counted by one of two values");
    assert_eq!(ask(&[("tenant", "t"), ("client", "x")]), 1, "denied, counted by both values");
    let (one, other) = ([("many", "x")], [("none", "x")]);
    let both = [Descriptor::new(&one), Descriptor::new(&other)];
    assert_eq!(fewest(|| drop(rules.check("d", &both))), 0, "two rules");
    assert_eq!(fewest(|| drop(rules.check("nope", &both))), 0, "no rules");
}

/// Neither do steps of `prefixes`, ranges, and spellings that are not those of the counter.
#[test]
fn address_check_allocates_nothing() {
    let rules = rules(
        "
  - { key: ip, ranges: [10.0.0.0/8, '2001:db8::/32'], rate_limit: { unit: year, requests_per_unit: 1 } }
  - key: net
    prefixes:
      ipv4: { 32: { unit: year, requests_per_unit: 1 } }
      ipv6: { 64: { unit: year, requests_per_unit: 1 }, 48: { unit: year, requests_per_unit: 1 } }
",
    );
    for (key, values) in [
        ("ip", "10.1.2.3 2001:db8::1 11.1.2.3 ::ffff:10.1.2.3 2001:DB8:0:0:0:0:0:2"),
        ("net", "10.1.2.3 2001:db8::1 text"),
    ] {
        for value in values.split(' ') {
            let count = fewest(|| drop(rules.check("d", &[Descriptor::new(&[(key, value)])])));
            assert_eq!(count, 0, "{key} {value}");
        }
    }
}

/// A client that uses all 65,536 networks of its /48 does not grow the memory.
// G124
#[test]
fn flood_of_prefixes_keeps_memory_flat() {
    let rules = rules(
        "
  - key: ip
    prefixes:
      ipv4: { 32: { unit: hour, requests_per_unit: 100 } }
      ipv6: { 64: { unit: hour, requests_per_unit: 100 }, 48: { unit: hour, requests_per_unit: 1000 } }
",
    );
    let flood = |networks: std::ops::Range<u32>| {
        let ask = |network: u32| {
            let address = format!("2001:db8:7:{network:x}::1");
            rules.check("d", &[Descriptor::new(&[("ip", &address)])]).is_allowed()
        };
        networks.filter(|network| ask(*network)).count()
    };
    let first = flood(0..2_000);
    let before = held();
    let admitted = first + flood(2_000..1 << 16);
    assert_eq!(held(), before);
    // An hour may end during the test.
    assert!((1_000..=2_000).contains(&admitted), "{admitted}");
}

/// 100,000 ranges take less than 10 MB.
#[test]
fn many_ranges_take_little_memory() {
    use std::fmt::Write as _;
    for is_ipv6 in [false, true] {
        let mut text = "domain: d\ntollgate: {}\ndescriptors:\n- key: ip\n  ranges:\n".to_owned();
        for n in 0..100_000_u32 {
            let (high, low) = (n / 256, n % 256);
            let _ = match is_ipv6 {
                // No range touches another, so each takes two intervals.
                true => writeln!(text, "  - 2001:{high:x}:{:x}::/48", 2 * low),
                false => writeln!(text, "  - {}.{}.{low}.0/25", 1 + high / 256, high % 256),
            };
        }
        let config = Config::from_yaml("test.yaml", &text).unwrap_or_else(|error| panic!("{error}"));
        // A load frees the list of the file.
        let bytes = bytes_held(|| Domain::merge([config.clone()], false).unwrap());
        assert!(bytes < 6_500_000, "{bytes} bytes for 100,000 ranges, IPv6: {is_ipv6}");
    }
}

/// Returns a file with a rule for each value from 0. The limit of the rule for 0 is `first`. `store` is the rules' store and
/// algorithm.
fn many_rules(count: usize, first: usize, store: &str) -> Config {
    let line = |at| {
        let limit = if at == 0 { first } else { 100 };
        format!(
            "  - {{ key: tenant, value: t{at}, descriptors: [ {{ key: client, rate_limit: {{ unit: year, requests_per_unit: {limit}{store} }} }} ] }}\n"
        )
    };
    Config::from_yaml("test.yaml", &yaml(&lines(count, line))).unwrap()
}

/// Every kind of store, each with an algorithm whose states are large.
const STORES: [&str; 5] = [
    "",
    ", algorithm: sliding-window",
    ", store: keyed, max_keys: 100000",
    ", store: sketch",
    ", algorithm: sub-window, parts: 1000",
];

// G68
#[test]
fn rule_without_requests_takes_two_kilobytes() {
    for store in STORES {
        let config = many_rules(1_000, 100, store);
        let rules = bytes_held(|| Rules::builder().load([config.clone()]).unwrap());
        // The load takes over the content of the files.
        let content = bytes_held(|| config.clone());
        let each = rules.max(content) / 1_000;
        assert!(each <= 2_048, "{each} bytes for each rule: {store}");
    }
}

// G68
#[test]
fn rule_without_limit_for_keys_takes_two_kilobytes() {
    let log = "rate_limit: { unit: day, requests_per_unit: 60000, algorithm: sliding-log }";
    let text = yaml(&lines(100, |at| format!("  - {{ key: k, value: v{at}, {log} }}\n")));
    let config = Config::from_yaml("test.yaml", &text).unwrap();
    let held = bytes_held(|| Rules::builder().load([config.clone()]).unwrap());
    assert!(held <= 100 * 2_048, "{held} bytes for 100 logs");
}

/// Peeks, queries, refunds and readings are answered without a store.
// G68
#[test]
fn only_charge_creates_store() {
    for store in STORES {
        let rules = Rules::builder().load([many_rules(1, 100, store)]).unwrap();
        let entries = [("tenant", "t0"), ("client", "x")];
        let descriptors = [Descriptor::new(&entries)];
        let before = held();
        let _ = rules.check_n("d", &descriptors, 0);
        let _ = rules.refund_n("d", &descriptors, 1);
        rules.readings(|_, _, _| ());
        let look = |cost: u64| {
            let (before, answer) = (held(), rules.check_n("d", &descriptors, cost));
            (held() - before, answer.remaining(0))
        };
        let thread = held() - before;
        assert!(thread < 2_048, "{thread} bytes: {store}");
        assert_eq!(look(0), (0, 100), "{store}");
        let (made, left) = look(1);
        assert!(made >= 192 && left == 99, "{made} bytes, {left} units: {store}");
    }
}

// G68
#[test]
fn loads_of_many_rules_do_not_grow() {
    let _alone = crate::alone();
    for store in STORES {
        let configs = [100, 101].map(|first| many_rules(1_000, first, store));
        let rules = Rules::builder().load([configs[0].clone()]).unwrap();
        let load = |count: usize| {
            (0..count).for_each(|at| drop(rules.replace([configs[(at + 1) % 2].clone()]).unwrap()));
            free_what_waits();
            held()
        };
        // Each rule was asked once, and keeps its last store.
        for at in 0..1_000 {
            let tenant = format!("t{at}");
            let answer = rules.check("d", &[Descriptor::new(&[("tenant", &tenant), ("client", "x")])]);
            assert!(answer.is_allowed());
        }
        let (first, last) = (load(2), load(20));
        assert!(last - first < 64 << 10, "from {first} to {last} bytes: {store}");
    }
}

/// A keyed store frees its nodes late, when other keys are removed. This function removes many small keys, so that only
/// some of them wait.
fn free_what_waits() {
    let other = tollgate::RateLimiter::keyed(tollgate::Gcra::new(tollgate::Quota::per_hour(1)));
    for key in 0..20_000_u64 {
        assert!(other.check(&key).is_allowed() && other.reset(&key));
    }
}

#[test]
fn pattern_search_never_allocates() {
    let patterns = |key: &str, value: fn(usize) -> String| {
        lines(1_000, |at| format!("  - {{ key: '{key}', value: '{}', {LIMIT} }}\n", value(at)))
    };
    let text = patterns("path", |at| format!("*/{at}/*"))
        + &patterns("host", |at| format!("*a*{at}-*b*"))
        + &patterns("x-*", |at| format!("v{at}"));
    let domain = domain(&text);
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

fn domain(descriptors: &str) -> Domain {
    Domain::merge([Config::from_yaml("test.yaml", &yaml(descriptors)).unwrap()], false).unwrap().remove(0)
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
        format!("- key: a\n  metadata:\n{open}{}", format!("{}- a\n", " ".repeat(44)).repeat(30_000));
    let rule = |at| format!("  - {{ key: k, value: v{at}, {LIMIT} }}\n");
    let pattern = |value: &str| format!("  - {{ key: k, value: '{value}', {LIMIT} }}\n");
    let rule_in_lines = |at| {
        format!(
            "  - key: k\n    value: v{at}\n    rate_limit:\n      unit: day\n      requests_per_unit: 1\n"
        )
    };
    let replaced = |at| {
        let replaces = format!("replaces: [ {{ name: n{} }} ]", at + 1);
        format!("  - {{ unit: day, requests_per_unit: 1, name: n{at}, {replaces} }}\n")
    };
    let wrong_key = |at| format!("  k{at:05}: x\n");
    let a = |fields: &str, more: String| format!("- key: a\n  {fields}:\n{more}");
    let descriptors = [
        ("many rules", lines(20_000, rule)),
        ("many rules in lines", lines(20_000, rule_in_lines)),
        ("many keys", lines(120_000, |at| format!("- key: k{at}\n"))),
        ("many patterns", patterns(20_000, 6)),
        ("patterns of twelve bytes", patterns(20_000, 12)),
        ("many long patterns", patterns(8_000, 100)),
        ("patterns of some stars", lines(10_000, |at| pattern(&format!("{at}{}", "*ab".repeat(30))))),
        ("a pattern of many stars", pattern(&"*ab".repeat(400_000))),
        ("a key of many stars", pattern(&"*ab".repeat(400_000)).replace("key: k, value", "key")),
        ("many members", a("tiers", format!("    t:\n      {LIMIT}\n      members:\n{members}"))),
        ("many wrong keys", format!("- key: a\n{}", lines(100_000, wrong_key))),
        ("many descriptors with a wrong key", lines(100_000, |at| format!("- k{at:05}: x\n"))),
        ("many descriptors without a key", lines(100_000, |_| "- value: xy\n".to_owned())),
        ("many empty descriptors", lines(100_000, |_| "- ~         \n".to_owned())),
        ("many misplaced keys", lines(60_000, |_| "- { key: k, unit: x }\n".to_owned())),
        ("many rules that replace others", a("rate_limits", lines(20_000, replaced))),
        ("many texts in lines", a("metadata", format!("    x:\n{}", "    - a\n".repeat(200_000)))),
        ("anchors in anchors", anchors),
    ];
    let wrong_keys_of_file = lines(100_000, |at| format!("k{at:05}: x\n"));
    let mut files = vec![
        ("a long value above many rules", below(100_000, 20_000)),
        ("a value of a thousand bytes above many rules", below(1_000, 20_000)),
        ("a value of a hundred bytes above many rules", below(100, 20_000)),
        ("many wrong keys of the file", yaml("") + &wrong_keys_of_file),
        ("many texts", metadata(&format!("[{}]", "a,".repeat(700_000)))),
        ("many empty maps", metadata(&format!("[{}]", "{},".repeat(700_000)))),
        ("many maps", metadata(&format!("[{}]", "a: b,".repeat(300_000)))),
        ("many keys of a map", metadata(&format!("{{ {} }}", lines(120_000, |at| format!("k{at}: x,"))))),
        ("many anchors", metadata(&format!("[{}]", "&a ".repeat(400_000)))),
    ];
    files.extend(descriptors.map(|(name, descriptors)| (name, yaml(&descriptors))));
    files
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
// G68
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn reading_takes_bounded_memory() {
    let (yaml, json): (Read, Read) = (Config::from_yaml, Config::from_json);
    let list: Read =
        |name, text| Config::all_from_bytes(name, Format::Json, text).map(|mut all| all.remove(0));
    let lists = [("a list of empty maps", format!("[{}{{}}]", "{},".repeat(500_000)))];
    let files = yaml_files().into_iter().map(|file| (yaml, file)).chain(lists.map(|file| (list, file)));
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

/// Covers every way of matching: an exact value, each kind of wildcard, no value, a tier, a tier's member, and no
/// match.
// G68
#[test]
fn rule_matching_never_allocates() {
    let domain = domain(&format!(
        "
  - {{ key: a, value: exact, descriptors: [{{ key: b, {LIMIT}, tiers: {{ t: {{ members: [m], {LIMIT} }} }} }}] }}
  - {{ key: a, value: '/v*/x*', {LIMIT} }}
  - {{ key: a, value: '*.png', {LIMIT} }}
  - {{ key: a, value: '*mid*', {LIMIT} }}
  - {{ key: 'k*', {LIMIT} }}
"
    ));
    let find = |entries: &[(&str, &str)], tier, found| {
        let count = allocations(|| assert_eq!(domain.matching(entries, tier).len(), found));
        assert_eq!(count, 0, "{entries:?} {tier:?}");
    };
    for (b, tier) in [("x", None), ("x", Some("t")), ("m", Some("u"))] {
        find(&[("a", "exact"), ("b", b)], tier, 1);
    }
    for (key, value, found) in
        [("a", "/v1/xy", 1), ("a", "cat.png", 1), ("a", "amidst", 1), ("key", "", 1), ("a", "none", 0)]
    {
        find(&[(key, value)], None, found);
    }
}
