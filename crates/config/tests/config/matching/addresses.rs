//! Ranges of addresses and prefixes: which rules a request finds.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use proptest::prelude::*;
use tollgate_config::Domain;

use super::support::domain;
use crate::files::file;

const LIMIT: &str = "rate_limit: { unit: day, requests_per_unit: 1 }";

fn names<'d>(domain: &'d Domain, value: &str) -> Vec<&'d str> {
    domain.matching(&[("ip", value)], None).iter().map(|rule| &*rule.name).collect()
}

// G123
#[test]
fn value_precedes_range_and_range_precedes_the_rest() {
    let domain = domain(&file(&[
        "key: ip, rate_limit: { unit: day, requests_per_unit: 1, name: bare }",
        "key: ip, value: '10.*', rate_limit: { unit: day, requests_per_unit: 1, name: wild }",
        "key: ip, ranges: [10.0.0.0/8, '2001:db8::/32'], \
         rate_limit: { unit: day, requests_per_unit: 1, name: wide }",
        "key: ip, ranges: [10.1.0.0/16, '::ffff:192.0.2.0/120'], \
         rate_limit: { unit: day, requests_per_unit: 1, name: narrow }",
        "key: ip, ranges: [10.9.0.0/16]",
        "key: ip, value: 10.1.0.7, rate_limit: { unit: day, requests_per_unit: 1, name: exact }",
        "key: other, rate_limit: { unit: day, requests_per_unit: 1, name: other }",
    ]));
    for (name, values) in [
        ("exact", "10.1.0.7"),
        ("narrow", "10.1.0.8 ::ffff:10.1.0.8 192.0.2.200"),
        ("wide", "10.2.0.8 2001:db8:ffff::"),
        ("wild", "10.9.not-an-address"),
        ("bare", " 192.0.3.1 2001:db9::"),
    ] {
        values.split(' ').for_each(|value| assert_eq!(names(&domain, value), [name], "{value}"));
    }
    assert!(names(&domain, "10.9.1.1").is_empty(), "a range without a limit exempts its addresses");
    assert_eq!(domain.matching(&[("other", "x")], None).len(), 1);
    assert!(domain.matching(&[("ip", "10.1.0.7"), ("ip", "10.1.0.7")], None).is_empty());
}

/// A search reads the canonical text of an address, which no pattern with capital letters has.
// G123
#[test]
fn patterns_of_addresses_match_in_any_case() {
    let text = |range: &str| {
        file(&[
            "key: ip, value: '2001:DB8:A*', rate_limit: { unit: day, requests_per_unit: 1, name: wild }",
            "key: ip, rate_limit: { unit: day, requests_per_unit: 1, name: bare }",
            &format!("key: {range}, ranges: [10.0.0.0/8]"),
        ])
    };
    let read = domain(&text("ip"));
    for value in ["2001:db8:a::1", "2001:DB8:A::1", "2001:0db8:abcd::", "2001:DB8:A is no address"] {
        assert_eq!(names(&read, value), ["wild"], "{value}");
    }
    assert_eq!(names(&read, "2001:db8:b::1"), ["bare"]);
    // Where nothing reads addresses, texts are compared.
    let as_text = domain(&text("other"));
    assert_eq!(names(&as_text, "2001:DB8:A::1"), ["wild"]);
    assert_eq!(names(&as_text, "2001:db8:a::1"), ["bare"]);
}

#[test]
fn descriptors_below_a_range_are_found() {
    let domain = domain(
        &file(&[
            "key: path, value: /login, descriptors: [ { key: ip, ranges: [10.0.0.0/8], LIMIT } ]",
            "key: ip, ranges: [10.0.0.0/8], descriptors: [{ key: path, LIMIT }]",
        ])
        .replace("LIMIT", LIMIT),
    );
    assert_eq!(domain.matching(&[("path", "/login"), ("ip", "10.2.3.4")], None).len(), 1);
    assert!(domain.matching(&[("path", "/login"), ("ip", "11.2.3.4")], None).is_empty());
    assert_eq!(domain.matching(&[("ip", "10.2.3.4"), ("path", "/")], None).len(), 1);
    assert!(domain.matching(&[("ip", "10.2.3.4")], None).is_empty());
}

// G123
#[test]
fn ranges_are_members_of_tiers() {
    let domain = domain(&file(&["
  - key: ip
    rate_limit: { unit: day, requests_per_unit: 1, name: own }
    tiers:
      office: { ranges: [10.0.0.0/8], members: [192.0.2.1], rate_limit: { unit: day, requests_per_unit: 9, name: office } }
      lab: { ranges: [10.1.0.0/16], rate_limit: { unit: day, requests_per_unit: 9, name: lab } }
    descriptors: [{ key: path, rate_limit: { unit: day, requests_per_unit: 1, name: below } }]
"]));
    for (values, name) in [("10.0.0.1 192.0.2.1", "office"), ("10.1.0.1", "lab"), ("11.0.0.1 x", "own")] {
        values.split(' ').for_each(|value| assert_eq!(names(&domain, value), [name], "{value}"));
    }
    let named = domain.matching(&[("ip", "10.1.0.1")], Some("office"));
    assert_eq!(&*named[0].name, "office");
    assert_eq!(domain.matching(&[("ip", "10.1.0.1"), ("path", "/")], None).len(), 1);
}

#[test]
fn prefixes_of_the_kind_of_address_apply() {
    let text = file(&["
  - key: ip
    prefixes:
      ipv4: { 24: ONE, 32: ONE }
      ipv6: { 64: ONE, 56: ONE, 48: ONE }
    tiers:
      big:
        members: ['2001:db8::1', 192.0.2.1]
        ranges: [10.0.0.0/8]
        prefixes: { ipv4: { 32: ONE }, ipv6: { 64: ONE } }
"]);
    let domain = domain(&text.replace("ONE", "{ unit: second, requests_per_unit: 1 }"));
    let of = |prefixes: &[&str]| prefixes.iter().map(|prefix| format!("d.ip.{prefix}")).collect::<Vec<_>>();
    assert_eq!(names(&domain, "2001:db8::7"), of(&["ipv6/48", "ipv6/56", "ipv6/64"]));
    assert_eq!(names(&domain, "::ffff:192.0.2.7"), of(&["ipv4/32", "ipv4/24"]));
    assert_eq!(names(&domain, "unknown"), of(&["ipv6/64", "ipv4/32"]));
    assert_eq!(names(&domain, "10.1.1.1"), of(&["tier_big.ipv4/32"]));
    assert_eq!(names(&domain, "2001:db8::1"), of(&["tier_big.ipv6/64"]));
    assert_eq!(names(&domain, "192.0.2.1"), of(&["tier_big.ipv4/32"]));
    let tier = |value: &str| {
        domain.matching(&[("ip", value)], Some("big")).iter().map(|rule| &*rule.name).collect::<Vec<_>>()
    };
    assert_eq!(tier("2001:db8::7"), of(&["tier_big.ipv6/64"]));
    assert_eq!(tier("x"), of(&["tier_big.ipv6/64", "tier_big.ipv4/32"]));
    let identities: Vec<&str> = domain.rules().iter().map(|rule| &*rule.identity).collect();
    assert_eq!(identities[..2], ["d|ip#prefix=ipv6/48", "d|ip#prefix=ipv6/56"]);
    assert!(domain.rules().iter().all(|rule| rule.prefix.is_some()));
}

/// A range with an address near few others, so that ranges nest.
fn range() -> impl Strategy<Value = IpNet> {
    let ipv4 = (0_u32..4, 0_u32..8, 0_u8..=32)
        .prop_map(|(high, low, bits)| IpNet::new(Ipv4Addr::from_bits(high << 30 | low).into(), bits));
    let ipv6 = (0_u128..4, 0_u128..8, 0_u8..=128)
        .prop_map(|(high, low, bits)| IpNet::new(Ipv6Addr::from_bits(high << 126 | low << 61).into(), bits));
    prop_oneof![ipv4, ipv6].prop_map(|range| range.expect("the length is valid").trunc())
}

/// The ends of ranges, and the addresses next to them.
fn addresses_near(ranges: &[IpNet]) -> Vec<IpAddr> {
    let near = |address: IpAddr| {
        [-1, 0, 1].map(|step| match address {
            IpAddr::V4(one) => Ipv4Addr::from_bits(one.to_bits().wrapping_add_signed(step)).into(),
            IpAddr::V6(one) => Ipv6Addr::from_bits(one.to_bits().wrapping_add_signed(step.into())).into(),
        })
    };
    ranges.iter().flat_map(|range| [range.network(), range.broadcast()]).flat_map(near).collect()
}

proptest! {
    #![proptest_config(tollgate_testing::operations::config(128))]

    // G123
    #[test]
    fn longest_range_is_that_of_a_scan(mut ranges in prop::collection::vec(range(), 1..40)) {
        ranges.sort_unstable();
        ranges.dedup();
        let mut text = "domain: d\ntollgate: {}\ndescriptors:\n".to_owned();
        for range in &ranges {
            let limit = format!("{{ unit: day, requests_per_unit: 1, name: '{range}' }}");
            writeln!(text, "  - {{ key: ip, ranges: ['{range}'], rate_limit: {limit} }}").expect("a text");
        }
        let domain = domain(&text);
        for address in addresses_near(&ranges) {
            let canonical = address.to_canonical();
            let inside = ranges.iter().filter(|range| range.contains(&canonical));
            let expected: Vec<String> =
                inside.max_by_key(|range| range.prefix_len()).map(ToString::to_string).into_iter().collect();
            prop_assert_eq!(names(&domain, &address.to_string()), expected, "{}\n{}", address, text);
        }
    }
}
