//! `PrefixLimits`: limits for several prefixes of an address, without rules.

use std::net::{IpAddr, Ipv6Addr};

use http::Request;
use tollgate::{Gcra, Keyed, ManualClock, Quota, RateLimiter};
use tollgate_tower::{ClientIp, Head, KeyExtractor, PrefixLimits, RequestLimit, Ruling};

use crate::setup::{ask, from, manual};

type Limits<const N: usize> = PrefixLimits<N, Keyed<IpAddr, Gcra>, ManualClock>;

fn limits<const N: usize>(steps: [(u8, u8, u64); N]) -> Limits<N> {
    let clock = manual();
    let steps = steps.map(|(ipv4, ipv6, limit)| (ipv4, ipv6, Quota::per_hour(limit)));
    PrefixLimits::with(steps, |quota| RateLimiter::builder(Gcra::new(quota)).clock(clock.clone()).keyed())
        .expect("the steps are in order")
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Returns each step's name and the units that are left there.
fn figures<const N: usize>(limits: &Limits<N>, key: &str) -> (bool, Vec<(String, u64)>) {
    let ruling = limits.check(&address(key), 1);
    let mut told = Vec::new();
    limits.policies(&ruling, &mut |policies| {
        told.extend(policies.iter().map(|policy| (policy.name().to_owned(), policy.decision().remaining())));
    });
    (ruling.is_allowed(), told)
}

// G124
#[test]
fn prefixes_are_charged_all_or_none() {
    let limits = limits([(32, 64, 2), (24, 56, 3), (24, 48, 9)]);
    let named =
        |names: [&str; 3], left: [u64; 3]| names.into_iter().map(str::to_owned).zip(left).collect::<Vec<_>>();
    let ipv6 = |left| named(["ipv6/64", "ipv6/56", "ipv6/48"], left);
    assert_eq!(figures(&limits, "2001:db8::1"), (true, ipv6([1, 2, 8])));
    assert_eq!(figures(&limits, "2001:db8::2"), (true, ipv6([0, 1, 7])));
    assert_eq!(figures(&limits, "2001:db8::3"), (false, ipv6([0, 1, 7])));
    assert_eq!(figures(&limits, "2001:db8:0:1::"), (true, ipv6([1, 0, 6])));
    let ipv4 = |left| named(["ipv4/32", "ipv4/24", "ipv4/24"], left);
    assert_eq!(figures(&limits, "203.0.113.1"), (true, ipv4([1, 2, 8])));
    let one = address("203.0.113.1");
    let charge = limits.check(&one, 1);
    limits.refund(&one, &charge);
    assert_eq!(figures(&limits, "203.0.113.1"), (true, ipv4([0, 1, 7])));
}

/// Only `ClientIp` turned IPv4 in IPv6 into IPv4. With any other extractor, all IPv4 clients of a socket for both kinds
/// were one /64, and all clients of a NAT64 too.
// G124
#[test]
fn ipv4_in_ipv6_is_ipv4_whatever_the_extractor() {
    for form in ["::ffff:203.0.113.1", "64:ff9b::203.0.113.1"] {
        let limits = limits([(32, 64, 2), (24, 56, 3)]);
        let left = |one, all| vec![("ipv4/32".to_owned(), one), ("ipv4/24".to_owned(), all)];
        assert_eq!(figures(&limits, form), (true, left(1, 2)), "{form}");
        assert_eq!(figures(&limits, "203.0.113.1"), (true, left(0, 1)), "{form}");
        let other = form.replace("113.1", "114.1");
        assert_eq!(figures(&limits, &other), (true, left(1, 2)), "{form}: another client");
        let charge = limits.check(&address(form), 0);
        assert!(charge.is_allowed());
        let charge = limits.check(&address(&other), 1);
        limits.refund(&address(&other.replace("64:ff9b::", "::ffff:")), &charge);
        assert_eq!(figures(&limits, &other), (true, left(0, 1)), "{form}: refunded");
    }
}

// G124
#[test]
fn flood_of_networks_is_held_to_the_shortest_prefix() {
    let limits = limits([(32, 64, 10), (24, 56, 40), (16, 48, 100)]);
    let network: Ipv6Addr = "2001:db8:7::1".parse().expect("an address");
    let admitted = (0..1_u128 << 16)
        .filter(|number| {
            let address = Ipv6Addr::from_bits(network.to_bits() | number << 64);
            limits.check(&address.into(), 1).is_allowed()
        })
        .count();
    assert_eq!(admitted, 100);
}

#[test]
fn steps_in_the_wrong_order_are_refused() {
    let quota = Quota::per_second;
    let refused = |steps: [(u8, u8, Quota); 2]| {
        let error = PrefixLimits::new(steps).unwrap_err();
        assert_eq!(format!("{error:?}"), error.to_string());
        error.to_string()
    };
    assert_eq!(refused([(33, 64, quota(1)), (24, 48, quota(2))]), "the prefix is 33 bits; use 0 to 32");
    assert_eq!(refused([(32, 129, quota(1)), (24, 48, quota(2))]), "the prefix is 129 bits; use 0 to 128");
    assert_eq!(refused([(24, 48, quota(1)), (24, 64, quota(2))]), "the prefix is 64 bits; use 0 to 48");
    let lower = refused([(32, 64, quota(2)), (24, 48, Quota::per_minute(119))]);
    assert!(
        lower.starts_with("the quota of the prefix of 48 bits is below that of a longer prefix"),
        "{lower}"
    );
    assert!(PrefixLimits::new([(32, 64, quota(2)), (32, 64, Quota::per_minute(120))]).is_ok());
}

#[test]
fn layer_counts_prefixes_of_whole_addresses() {
    let client = ClientIp::peer().ipv6_prefix(8).expect("a valid length");
    let layer = client.limit_prefixes(limits([(32, 128, 1), (24, 64, 2)])).fields_on_allowed(true);
    let status = |peer: &str| {
        let response = ask(&layer, from(peer));
        let policies =
            response.headers().get_all("ratelimit-policy").iter().map(|line| line.to_str().expect("ASCII"));
        (response.status().as_u16(), policies.collect::<Vec<_>>().join(", "))
    };
    let (code, policies) = status("2001:db8::1");
    assert_eq!(code, 200);
    assert!(policies.contains("\"ipv6/128\"") && policies.contains("\"ipv6/64\""), "{policies}");
    assert_eq!(["2001:db8::1", "2001:db8::2", "2001:db8::3"].map(|peer| status(peer).0), [429, 200, 429]);
    assert!(ClientIp::peer().key(Head::of(&Request::new(()))).is_none());
}
