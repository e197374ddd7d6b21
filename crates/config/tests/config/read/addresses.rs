//! `ranges` and `prefixes`: forms that are read, and forms that are errors.

use tollgate_config::{Config, Domain};

use super::support::{file, good, problem, rejected};

fn descriptor(fields: &str) -> String {
    file(&[&format!("key: ip, {fields}")])
}

const LIMIT: &str = "{ unit: second, requests_per_unit: 10 }";

// G123
#[test]
fn bad_ranges_are_refused() {
    let rows = r#"
        ranges: [10.0.0.0/33] => 4:25: descriptors[0].ranges[0]: "10.0.0.0/33" is not a range of addresses ... such as 10.0.0.0/8
        ranges: [10.0.0/8] => is not a range of addresses
        ranges: [10.0.0.0/08] => is not a range of addresses
        ranges: [10.0.0.0-10.0.0.9] => is not a range of addresses
        ranges: [localhost] => "localhost" is not a range of addresses
        ranges: [''] => is not a range of addresses
        ranges: [10.1.0.0/8] => "10.1.0.0/8" has bits after the first 8; write 10.0.0.0/8
        ranges: ['2001:db8::1/32'] => write 2001:db8::/32
        ranges: ['::ffff:10.0.0.1/104'] => has bits after the first 8; write 10.0.0.0/8
        ranges: 10.0.0.0/8 => expected a list
        ranges: [] => there are no ranges
        ranges: [10.0.0.0/8, 10.0.0.0/8] => descriptors: the range 10.0.0.0/8 occurs twice ... line 4
        ranges: [10.0.0.1, 10.0.0.1/32] => the range 10.0.0.1/32 occurs twice
        ranges: ['::ffff:10.0.0.0/104', 10.0.0.0/8] => the range 10.0.0.0/8 occurs twice
        ranges: [10.0.0.0/8] }\n  - { key: ip, ranges: [11.0.0.0/8, 10.0.0.0/8]
            => 5:5: descriptors: the range 10.0.0.0/8 occurs twice; remove it here or in the descriptor in line 4
        value: a, ranges: [10.0.0.0/8] => value and ranges cannot be used together; write two descriptors
    "#;
    rejected(rows, descriptor);
    let both = |other: &str| descriptor(&format!("ranges: [10.0.0.0/8] }}\n  - {{ {other}"));
    good(&both("key: ip, ranges: [10.1.0.0/16, 10.0.0.0/16]"));
    good(&both("key: other, ranges: [10.0.0.0/8]"));
    good(&both("key: ip, value: 10.0.0.0/8"));
    let wild = file(&["key: 'i*', ranges: [10.0.0.0/8]"]);
    problem(&wild, "ranges cannot be used with a `*` in the key");
    let plain = "domain: d\ndescriptors: [{ key: ip, ranges: [10.0.0.0/8] }]";
    problem(plain, "it is an extra key of a descriptor");
}

#[test]
fn bad_ranges_of_tiers_are_refused() {
    let tiers = |fields: &str| descriptor(&fields.replace("LIMIT", &format!("rate_limit: {LIMIT}")));
    good(&tiers("tiers: { a: { ranges: [10.0.0.0/8], LIMIT } }"));
    good(&tiers("ranges: [10.0.0.0/8], tiers: { a: { ranges: [10.0.0.0/8], LIMIT } }"));
    let rows = r#"
        value: x, tiers: { a: { ranges: [10.0.0.0/8], LIMIT } } => tiers.a.ranges[0]: this descriptor matches one value only
        value: 'x*', tiers: { a: { ranges: [10.0.0.0/8], LIMIT } } => cannot be compared with a `*`
        ranges: [10.0.0.0/8], tiers: { a: { ranges: [11.0.0.0/8], LIMIT } } => does not match the descriptor's value; remove it
        ranges: [10.0.0.0/8], tiers: { a: { ranges: [8.0.0.0/5], LIMIT } } => does not match the descriptor's value; remove it
        ranges: [10.0.0.0/8], tiers: { a: { ranges: ['::/0'], LIMIT } } => does not match the descriptor's value; remove it
        tiers: { a: { ranges: [10.0.0.0/8], LIMIT }, b: { ranges: [10.0.0.0/8], LIMIT } }
            => the range 10.0.0.0/8 is a member of "a" and of "b"
        ranges: [10.0.0.0/8], tiers: { a: { members: [11.0.0.1], LIMIT } } => "11.0.0.1" does not match the descriptor's value
    "#;
    rejected(rows, tiers);
}

// G123
#[test]
fn files_with_the_same_range_are_not_merged() {
    let file = |name: &str, ranges: &str| {
        Config::from_yaml(name, &descriptor(&format!("ranges: [{ranges}]"))).unwrap()
    };
    let error =
        Domain::merge([file("a", "10.0.0.0/8"), file("b", "11.0.0.0/8, 10.0.0.0/8")], true).unwrap_err();
    assert!(error.to_string().contains("key \"ip\", range 11.0.0.0/8 is also in a:4"), "{error}");
    Domain::merge([file("a", "10.0.0.0/8"), file("b", "10.0.0.0/16")], true).unwrap();
}

/// The second of two spellings was never found, and its rule limited nothing.
// G123
#[test]
fn spellings_of_one_address_are_refused_where_they_are_read() {
    let rule = |fields: &str| format!("  - {{ key: ip, {fields}, rate_limit: {LIMIT} }}\n");
    let file = |rules: &[&str]| {
        let rules: String = rules.iter().map(|fields| rule(fields)).collect();
        format!("domain: d\ntollgate: {{}}\ndescriptors:\n{rules}")
    };
    let range = "ranges: [10.0.0.0/8]";
    let (one, other) = ("value: '2001:db8::1'", "value: '2001:DB8:0::1'");
    let said = r#"6:5: descriptors: key "ip", value "2001:DB8:0::1" is the same address as the value in line 4 ... remove it here or in line 4"#;
    problem(&file(&[one, range, other]), said);
    problem(&file(&["value: '::ffff:10.0.0.1'", "value: 10.0.0.1", range]), "in line 4");
    // Texts that nothing reads as addresses stay apart.
    good(&file(&[one, other]));
    let tiers = |members: [&str; 2]| {
        let [gold, silver] =
            members.map(|members| format!("{{ members: [{members}], rate_limit: {LIMIT} }}"));
        format!("tiers: {{ gold: {gold}, silver: {silver} }}")
    };
    let respelled = tiers(["10.0.0.1", "x, '::ffff:10.0.0.1'"]);
    let said = r#"5:5: descriptors: "::ffff:10.0.0.1", a member of "silver", is the same address as "10.0.0.1", a member of "gold"; remove "10.0.0.1" or "::ffff:10.0.0.1""#;
    problem(&file(&[range, &respelled]), said);
    good(&file(&[&respelled]));
    // Another file can read what this one compares as texts.
    let merged = |files: &[&[&str]]| {
        let files = files.iter().zip(["a", "b", "c"]);
        let files: Vec<_> =
            files.map(|(rules, name)| Config::from_yaml(name, &file(rules)).unwrap()).collect();
        Domain::merge(files, true).map_err(|error| error.to_string())
    };
    let error = merged(&[&[one], &[range], &[other]]).unwrap_err();
    assert!(error.contains("value \"2001:DB8:0::1\" is the same address as the value in a:4"), "{error}");
    let error = merged(&[&[range], &[one, other]]).unwrap_err();
    assert!(error.contains("is the same address as the value in b:4; remove one of them"), "{error}");
    let error = merged(&[&[range], &[&respelled]]).unwrap_err();
    assert!(error.contains("b:4:5: descriptors: \"::ffff:10.0.0.1\", a member of \"silver\""), "{error}");
    assert!(merged(&[&[one], &[other]]).is_ok());
    // Nothing reads this pattern as one of addresses until the files are merged.
    let pattern = "value: '2001:0db8:*'";
    let warnings = merged(&[&[pattern], &[range]]).unwrap();
    let warnings: Vec<String> = warnings.iter().flat_map(Domain::warnings).map(ToString::to_string).collect();
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.starts_with("a:4:5: \"2001:0db8:*\" is compared with the shortest text"), "{warning}");
    assert!(good(&file(&[pattern])).warnings().is_empty());
    assert_eq!(good(&file(&[pattern, range])).warnings().len(), 1);
    // Patterns of addresses match in any case, so the second is never used.
    let warnings = good(&file(&["value: '2001:DB8:*'", "value: '2001:db8:*'", range])).warnings().to_vec();
    assert!(warnings.len() == 1 && warnings[0].to_string().contains("is never used"), "{warnings:?}");
}

#[test]
fn rules_of_ranges_have_identities() {
    let text = |more: &str| descriptor(&format!("ranges: [10.0.0.0/8{more}], rate_limit: {LIMIT}"));
    let (one, two) = (good(&text("")), good(&text(", 11.0.0.0/8")));
    assert_eq!(&*one.rules()[0].identity, "d|ip==10.0.0.0/8");
    assert_eq!(&*one.rules()[0].name, "d.ip_10.0.0.0/8");
    assert_eq!(one.rules()[0].identity, two.rules()[0].identity);
    assert_eq!(one.rules()[0].path(), [("ip".into(), Some("10.0.0.0/8".into()))]);
    let value = good(&descriptor(&format!("value: =10.0.0.0/8, rate_limit: {LIMIT}")));
    assert_ne!(one.rules()[0].identity, value.rules()[0].identity);
}

#[test]
fn bad_prefixes_are_refused() {
    let units = |text: &str| {
        let text = text.replace("LOW", "{ unit: second, requests_per_unit: 10 }");
        descriptor(&text.replace("HIGH", "{ unit: second, requests_per_unit: 100 }"))
    };
    for fields in [
        "prefixes: { ipv4: { 32: LOW }, ipv6: { 64: LOW } }",
        "prefixes: { ipv4: { 32: { unlimited: true } }, ipv6: { 64: LOW } }",
        "prefixes: { ipv4: { 32: LOW }, ipv6: { 48: HIGH, 56: { unit: minute, requests_per_unit: 600 }, 64: LOW } }",
        "ranges: ['2001:db8::/32'], prefixes: { ipv6: { 64: LOW } }",
    ] {
        good(&units(fields));
    }
    good(&units("prefixes: { ipv4: { 32: LOW }, ipv6: { 64: LOW } }").replace("key: ip", "key: 'i*'"));
    let rows = r#"
        ipv4: { 33: LOW }, ipv6: { 64: LOW }
            => prefixes.ipv4: "33" is not a length of a prefix; write a whole number from 1 to 32 ...
        ipv4: { 0: LOW }, ipv6: { 64: LOW } => "0" is not a length ...
        ipv4: { 032: LOW }, ipv6: { 64: LOW } => "032" is not a length ...
        ipv4: { 32: LOW }, ipv6: { 129: LOW } => from 1 to 128 ...
        ipv4: { 32: LOW }, ipv6: { 64: HIGH, 48: LOW } => the limit of /48 is below the limit of /64
            ... , and all addresses of a /64 are in one /48; raise it, or remove /64
        ipv4: { 32: LOW }, ipv6: { 64: LOW, 48: { unit: hour, requests_per_unit: 35999 } } => below the limit of /64
        ipv4: { 32: LOW }, ipv6: { 64: { unlimited: true }, 48: LOW } => below the limit of /64
        ipv4: {}, ipv6: { 64: LOW } => prefixes.ipv4: the addresses of ipv4 have no limit; write ipv4: { 32:
        ipv6: { 64: LOW } => the addresses of ipv4 have no limit
        ipv4: { 32: LOW }, ipv6: { 64: { unit: second, requests_per_unit: 1, burst: 0 } } => prefixes.ipv6.64
        64: LOW, 48: HIGH => 4:28: descriptors[0].prefixes: the length 64 is not below a kind of address
            ... ; write ipv4: { 32: … } and ipv6: { 64: … }
    "#;
    rejected(rows, |kinds| units(&format!("prefixes: {{ {kinds} }}")));
    let rows = r#"
        rate_limit: LOW => prefixes and rate_limit cannot be used together; keep one of them
        rate_limits: [LOW] => prefixes and rate_limits cannot be used together
        value: 10.0.0.1 => this descriptor matches one value only
        value: '10.*' => write ranges instead
        ranges: [10.0.0.0/8], share_threshold: true => share_threshold makes one counter for all addresses
    "#;
    rejected(rows, |more| {
        units(&format!("prefixes: {{ ipv4: {{ 32: LOW }}, ipv6: {{ 64: LOW }} }}, {more}"))
    });
}

#[test]
fn addresses_guide_example_loads_without_warnings() {
    let guide = include_str!("../../../../../docs/addresses.md");
    let texts: Vec<&str> =
        guide.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(texts.len(), 1);
    assert!(good(texts[0]).warnings().is_empty());
}
