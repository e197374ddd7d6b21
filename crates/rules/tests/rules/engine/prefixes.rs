//! Rules of `prefixes` and `ranges`: what they count together.

use std::net::Ipv6Addr;
use std::time::Duration;

use tollgate::ManualClock;
use tollgate_rules::{Descriptor, OperatorAction, Rules, TimeUnit, Verdict};

use super::{START, Scene, config, file};

const LADDER: &[&str] = &["
  - key: ip
    prefixes:
      ipv4: { 32: { unit: hour, requests_per_unit: 2 }, 24: { unit: hour, requests_per_unit: 3 } }
      ipv6:
        64: { unit: hour, requests_per_unit: 2 }
        56: { unit: hour, requests_per_unit: 4 }
        48: { unit: hour, requests_per_unit: 6 }
"];

fn rules(descriptors: &[&str]) -> Rules<ManualClock> {
    Scene::of(descriptors).rules
}

fn ask(rules: &Rules<ManualClock>, address: &str, hits: u64) -> Vec<(String, u64, bool)> {
    let answer = rules.check_n("d", &[Descriptor::new(&[("ip", address)])], hits);
    let each = answer.limits().map(|limit| {
        let left = limit.decision().expect("a limit").remaining();
        let name = limit.name().trim_start_matches("d.ip.").to_owned();
        (name, left, limit.verdict() == Verdict::Denied)
    });
    each.collect()
}

/// Returns the units that are left at each step, and whether the request was admitted.
fn left(rules: &Rules<ManualClock>, address: &str) -> (Vec<u64>, bool) {
    let each = ask(rules, address, 1);
    (each.iter().map(|(_, left, _)| *left).collect(), each.iter().all(|(_, _, denied)| !denied))
}

// G124
#[test]
fn refund_covers_all_steps() {
    let rules = rules(LADDER);
    let descriptors = [Descriptor::new(&[("ip", "2001:db8::1")])];
    let answer = rules.check_n("d", &descriptors, 2);
    assert!(answer.is_allowed());
    rules.refund(&descriptors, &answer);
    assert_eq!(left(&rules, "2001:db8::2"), (vec![5, 3, 1], true));
    assert!(rules.refund_n("d", &descriptors, 1));
    assert_eq!(left(&rules, "2001:db8::2"), (vec![5, 3, 1], true));
}

#[test]
fn other_texts_are_counted_by_the_longest_prefixes() {
    let rules = rules(LADDER);
    for text in ["unknown", "", "203.0.113.1:80", "2001:db8::1%eth0", "[2001:db8::1]"] {
        assert_eq!(left(&rules, text), (vec![1, 1], true), "{text}");
        assert_eq!(left(&rules, text), (vec![0, 0], true), "{text}");
        assert_eq!(left(&rules, text), (vec![0, 0], false), "{text}");
    }
    assert_eq!(left(&rules, "203.0.113.1"), (vec![1, 2], true));
}

/// Spellings of one address each, as a client or a gateway can write them.
const SPELLINGS: [&[&str]; 2] = [
    &["10.0.0.1", "::ffff:10.0.0.1", "::ffff:a00:1", "::FFFF:A00:1", "0:0:0:0:0:ffff:10.0.0.1"],
    &["2001:db8::1", "2001:DB8::1", "2001:0db8::0001", "2001:db8:0:0:0:0:0:1", "2001:db8::0.0.0.1"],
];

/// A rule with `ranges` counted each text of a value, so a client multiplied its limit by the spellings of its address. The
/// same was true of the other rules of the key, although their search reads the value as an address too.
// G123
#[test]
fn spellings_of_an_address_are_one_client() {
    let rows = [
        // The ranges themselves, alone and with another part of the key.
        "{ key: ip, ranges: [10.0.0.0/8, '2001:db8::/32'], LIMIT }",
        "{ key: tenant, descriptors: [ { key: ip, ranges: [10.0.0.0/8, '2001:db8::/32'], LIMIT } ] }",
        "{ key: ip, ranges: [10.0.0.0/8, '2001:db8::/32'], descriptors: [ { key: path, LIMIT } ] }",
        // The descriptors beside ranges: without a value, and a wildcard.
        "{ key: ip, LIMIT }\n  - { key: ip, ranges: [192.0.2.0/24] }",
        "{ key: ip, value: '*', LIMIT }\n  - { key: ip, ranges: [192.0.2.0/24] }",
        // The exact value precedes a range without a limit, however the file writes it.
        "{ key: ip, value: 10.0.0.1, LIMIT }\n  - { key: ip, value: '2001:DB8::1', LIMIT }\n  - { key: ip, ranges: ['0.0.0.0/0', '::/0'] }",
        "{ key: ip, value: '::ffff:a00:1', LIMIT }\n  - { key: ip, value: '2001:db8::1', LIMIT }\n  - { key: ip, ranges: [172.16.0.0/12] }",
        // A tier with ranges, and the members of another one.
        "{ key: ip, LIMIT, tiers: { a: { ranges: [10.0.0.0/8, '2001:db8::/32'], LIMIT } } }",
        "{ key: ip, tiers: { a: { members: [10.0.0.1, '2001:DB8:0::1'], LIMIT }, b: { ranges: [192.0.2.0/24], LIMIT } } }",
        // The exact value beside prefixes, and prefixes below another address.
        "{ key: ip, value: 10.0.0.1, LIMIT }\n  - { key: ip, value: '2001:db8::1', LIMIT }\n  - { key: ip, prefixes: { ipv4: { 32: NONE }, ipv6: { 64: NONE } } }",
        "{ key: ip, ranges: [10.0.0.0/8, '2001:db8::/32'], descriptors: [ { key: ip, prefixes: { ipv4: { 32: ONE }, ipv6: { 64: ONE } } } ] }",
    ];
    for row in rows {
        let row = row.replace("NONE", "{ unlimited: true }").replace("LIMIT", "rate_limit: ONE");
        let row = row.replace("ONE", "{ unit: day, requests_per_unit: 1 }");
        let text = file(&[&format!("\n  - {row}\n")]);
        let rules = Scene::new(&text).rules;
        for spellings in SPELLINGS {
            let admitted = spellings.iter().map(|address| {
                let all: [&[(&str, &str)]; 4] = [
                    &[("ip", *address)],
                    &[("tenant", "t"), ("ip", *address)],
                    &[("ip", *address), ("path", "/")],
                    &[("ip", *address), ("ip", *address)],
                ];
                let applies = |entries: &&&[(&str, &str)]| {
                    rules.check_n("d", &[Descriptor::new(entries)], 0).limits().count() > 0
                };
                let entries = all.iter().find(applies).expect("a rule applies to each spelling");
                let descriptors = [Descriptor::new(entries)];
                let (explained, answer) =
                    (rules.explain("d", &descriptors, 1), rules.check("d", &descriptors));
                assert_eq!(explained.answer().is_denied(), answer.is_denied(), "{text}{address}");
                answer.is_allowed()
            });
            let admitted: Vec<bool> = admitted.collect();
            assert_eq!(admitted, [true, false, false, false, false], "{text}{}", spellings[0]);
        }
    }
}

/// A rule with `distinct` counts an address once, however it is written.
// G123
#[test]
fn spellings_of_an_address_are_one_value() {
    let rules = rules(&["
  - key: user
    descriptors:
      - { key: ip, rate_limit: { unit: day, requests_per_unit: 2, distinct: true } }
      - { key: ip, ranges: [192.0.2.0/24], rate_limit: { unlimited: true } }
"]);
    for address in SPELLINGS.into_iter().flatten() {
        let entries = [("user", "u"), ("ip", *address)];
        assert!(rules.check("d", &[Descriptor::new(&entries)]).is_allowed(), "{address}");
    }
    assert!(rules.check("d", &[Descriptor::new(&[("user", "u"), ("ip", "10.0.0.2")])]).is_denied());
}

/// Without ranges and prefixes, no rule reads the value as an address: the texts are values, as in Envoy's service.
#[test]
fn texts_that_no_rule_reads_as_addresses_stay_apart() {
    let rules = rules(&["key: ip, rate_limit: { unit: day, requests_per_unit: 1 }"]);
    for address in SPELLINGS.into_iter().flatten() {
        assert!(rules.check("d", &[Descriptor::new(&[("ip", *address)])]).is_allowed(), "{address}");
    }
}

/// The verbs find the counter of a spelling too.
#[test]
fn refunds_and_counted_networks_read_addresses() {
    let rules = rules(&[
        "key: ip, ranges: ['10.0.0.0/8', '2001:db8::/32'], rate_limit: { unit: day, requests_per_unit: 1, name: r }",
    ]);
    let [one, other] = ["::ffff:10.0.0.1", "10.0.0.1"].map(|address| [("ip", address)]);
    let answer = rules.check("d", &[Descriptor::new(&one)]);
    assert!(answer.is_allowed() && rules.check("d", &[Descriptor::new(&other)]).is_denied());
    rules.refund(&[Descriptor::new(&one)], &answer);
    assert!(rules.check("d", &[Descriptor::new(&other)]).is_allowed());
    // The range matches the address, and the counter is that of the network.
    let network = [("ip", "2001:db8::")];
    let mut admitted = ["2001:db8::1", "2001:db8::2", "2001:DB8::3"].into_iter().filter(|address| {
        let entries = [("ip", *address)];
        rules.check("d", &[Descriptor::new(&entries).counted_as(&network)]).is_allowed()
    });
    assert_eq!(admitted.next(), Some("2001:db8::1"));
    assert_eq!(admitted.next(), None);
}

#[test]
fn reload_that_adds_a_step_keeps_the_others() {
    let rules = rules(LADDER);
    assert_eq!(left(&rules, "2001:db8::1"), (vec![5, 3, 1], true));
    let more =
        file(LADDER).replace("        48:", "        52: { unit: hour, requests_per_unit: 5 }\n        48:");
    rules.replace([config(&more)]).unwrap();
    assert_eq!(left(&rules, "2001:db8::2"), (vec![4, 4, 2, 0], true));
}

#[test]
fn reporting_and_counting_work_as_for_other_rules() {
    let shadow = Scene::new(&file(LADDER).replace("key: ip", "key: ip\n    shadow_mode: true")).rules;
    for _ in 0..3 {
        assert!(shadow.check("d", &[Descriptor::new(&[("ip", "2001:db8::1")])]).is_allowed());
    }
    let first = Scene::counting_first(&file(LADDER)).rules;
    for _ in 0..3 {
        let _ = ask(&first, "2001:db8::1", 1);
    }
    assert_eq!(left(&first, "2001:db8::1:0:0:0").0[0], 2, "denied requests count");
    let shared = config(&file(LADDER).replace("tollgate: {}", "tollgate: { store: redis }"));
    let alone = Rules::builder().clock(ManualClock::new(START)).alone(true).load([shared]).unwrap();
    assert_eq!(left(&alone, "2001:db8::1"), (vec![5, 3, 1], true));
}

#[test]
fn prefix_joins_other_entries() {
    let rules = rules(&["
  - key: path
    descriptors:
      - key: ip
        prefixes:
          ipv4: { 24: { unit: hour, requests_per_unit: 1 } }
          ipv6: { 64: { unit: hour, requests_per_unit: 1 } }
"]);
    let ask = |path, ip| rules.check("d", &[Descriptor::new(&[("path", path), ("ip", ip)])]).is_allowed();
    assert!(ask("/a", "203.0.113.1"));
    assert!(!ask("/a", "203.0.113.2"));
    assert!(ask("/b", "203.0.113.2"));
    assert!(ask("/a", "x") && !ask("/a", "x") && ask("/b", "x"));
}

/// The key of a rule with `prefixes` was made of whole values, also of those above the prefix, and so was that of a limit
/// of the request. So each address of a network had its own counter there, although the network counts.
// G124
#[test]
fn entries_above_a_prefix_count_the_network() {
    let rules = rules(&["
  - key: wide
    descriptors:
      - key: ip
        prefixes: { ipv4: { 32: { unlimited: true } }, ipv6: { 48: { unit: hour, requests_per_unit: 1 } } }
  - key: narrow
    descriptors:
      - key: ip
        prefixes: { ipv4: { 32: { unlimited: true } }, ipv6: { 128: { unit: hour, requests_per_unit: 1 } } }
"]);
    let ask = |key: &str, address: &str, then: &dyn Fn(Descriptor<'_>) -> bool| {
        let (whole, network) =
            ([(key, address), ("ip", address)], [(key, "2001:db8::"), ("ip", "2001:db8::")]);
        then(Descriptor::new(&whole).counted_as(&network))
    };
    let check = |descriptor: Descriptor<'_>| rules.check("d", &[descriptor]).is_allowed();
    assert!(ask("wide", "2001:db8::1", &check));
    assert!(!ask("wide", "2001:db8::2", &check), "another address of the network");
    let reset =
        |descriptor: Descriptor<'_>| rules.operate("d", &[descriptor], None, OperatorAction::Reset).is_some();
    assert!(ask("wide", "2001:db8::3", &reset) && ask("wide", "2001:db8::4", &check));
    let back = |descriptor: Descriptor<'_>| rules.refund_n("d", &[descriptor], 1);
    assert!(ask("wide", "2001:db8::5", &back) && ask("wide", "2001:db8::6", &check));
    // The lengths of the rule precede the network.
    for address in ["2001:db8::1", "2001:db8::2"] {
        assert!(ask("narrow", address, &check) && !ask("narrow", address, &check), "{address}");
    }
    let limited = |descriptor: Descriptor<'_>| check(descriptor.limit(1, TimeUnit::Day));
    assert!(ask("other", "2001:db8::1", &limited));
    assert!(!ask("other", "2001:db8::2", &limited), "a limit of the request counts the network");
}

#[test]
fn ranges_count_each_address_or_all() {
    let rules = rules(&[
        "key: ip, ranges: [10.0.0.0/8], rate_limit: { unit: hour, requests_per_unit: 1 }",
        "key: ip, ranges: [11.0.0.0/8, '2001:db8::/32'], share_threshold: true, \
         rate_limit: { unit: hour, requests_per_unit: 2 }",
    ]);
    let admitted = |ip| rules.check("d", &[Descriptor::new(&[("ip", ip)])]).is_allowed();
    assert!(admitted("10.0.0.1") && admitted("10.0.0.2") && !admitted("10.0.0.1"));
    assert!(admitted("11.0.0.1") && admitted("2001:db8::1") && !admitted("11.0.0.2"));
}

/// The route of plain rules keeps the texts of four prefixes. A request with more of them is decided alike.
// G124
#[test]
fn request_of_several_addresses_counts_each_step() {
    let rules = rules(LADDER);
    let entries = ["2001:db8::1", "2001:db8:0:100::1", "2001:db8:1::1"].map(|address| [("ip", address)]);
    let left = |addresses: usize| {
        let descriptors: Vec<_> = entries[..addresses].iter().map(|entry| Descriptor::new(entry)).collect();
        let answer = rules.check("d", &descriptors);
        let each = answer.limits().map(|limit| limit.decision().expect("a limit").remaining());
        (each.collect::<Vec<_>>(), answer.is_allowed())
    };
    assert_eq!(left(1), (vec![5, 3, 1], true));
    assert_eq!(left(3), (vec![4, 2, 0, 3, 3, 1, 5, 3, 1], true), "the first two share the shortest prefix");
    assert_eq!(left(1), (vec![3, 2, 0], false));
    assert_eq!(left(3), (vec![3, 2, 0, 3, 3, 1, 5, 3, 1], false), "a denied request charges nothing");
}

/// Three steps decide as three rules whose callers cut the address themselves.
// G124
#[test]
fn steps_decide_as_single_rules() {
    let steps = rules(LADDER);
    let single = rules(&[
        "key: n48, rate_limit: { unit: hour, requests_per_unit: 6 }",
        "key: n56, rate_limit: { unit: hour, requests_per_unit: 4 }",
        "key: n64, rate_limit: { unit: hour, requests_per_unit: 2 }",
    ]);
    let mut state = 7_u64;
    for _ in 0..2_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let subnet = u128::from(state >> 40 & 0x3ff) << 64;
        let address = Ipv6Addr::from_bits(0x2001_0db8_0007_u128 << 80 | subnet | u128::from(state >> 60));
        let cut = |bits: u32| Ipv6Addr::from_bits(address.to_bits() & u128::MAX << (128 - bits)).to_string();
        let [n48, n56, n64] = [cut(48), cut(56), cut(64)];
        let (one, two, three) = ([("n48", &*n48)], [("n56", &*n56)], [("n64", &*n64)]);
        let expected =
            single.check("d", &[Descriptor::new(&one), Descriptor::new(&two), Descriptor::new(&three)]);
        let found = steps.check("d", &[Descriptor::new(&[("ip", &address.to_string())])]);
        assert_eq!(found.is_allowed(), expected.is_allowed(), "{address}");
        let figures = |answer: &tollgate_rules::Answer| {
            answer
                .limits()
                .map(|limit| limit.decision().copied().expect("a limit").remaining())
                .collect::<Vec<_>>()
        };
        assert_eq!(figures(&found), figures(&expected), "{address}");
        assert_eq!(found.retry_after(), expected.retry_after());
        steps.clock().advance(Duration::from_secs(7));
        single.clock().advance(Duration::from_secs(7));
    }
}
