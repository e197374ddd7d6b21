//! The client's address: which part of a field is trusted, in which spellings addresses are read, and their networks.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::{HeaderName, Request};
use tollgate_tower::{ClientIp, Head, IpNet, KeyExtractor, PeerAddr, Proxies};

fn request(peer: Option<&str>, name: &str, lines: &[&str]) -> Request<()> {
    let builder = lines.iter().fold(Request::builder(), |builder, line| builder.header(name, *line));
    let mut request = builder.body(()).expect("a valid request");
    if let Some(peer) = peer {
        let peer = peer.parse().expect("a valid address");
        request.extensions_mut().insert(PeerAddr(SocketAddr::new(peer, 9)));
    }
    request
}

fn text(address: Option<IpAddr>) -> String {
    address.map_or_else(|| "-".to_owned(), |address| address.to_string())
}

fn address(client: &ClientIp, request: &Request<()>) -> String {
    text(client.address(Head::of(request)))
}

fn private() -> Proxies {
    let networks: [IpNet; 2] =
        ["10.0.0.0/8", "::ffff:192.168.0.0/112"].map(|text| text.parse().expect("a network"));
    Proxies::networks(networks)
}

#[test]
fn trusted_hops_count_from_the_right() {
    let lines = ["6.6.6.6, 203.0.113.7", "10.0.0.2"];
    let request = request(Some("10.0.0.1"), "x-forwarded-for", &lines);
    let expected = ["10.0.0.1", "10.0.0.2", "203.0.113.7", "6.6.6.6", "-", "-"];
    for (hops, expected) in expected.into_iter().enumerate() {
        let client = ClientIp::x_forwarded_for(Proxies::hops(hops));
        assert_eq!(address(&client, &request), expected, "{hops}");
    }
}

#[test]
fn first_address_outside_trusted_networks_is_the_client() {
    let cases: [(Option<&str>, &[&str], &str); 12] = [
        // The client connected directly, so the field that it wrote is not read.
        (Some("203.0.113.7"), &["6.6.6.6"], "203.0.113.7"),
        (Some("10.0.0.1"), &["203.0.113.7"], "203.0.113.7"),
        (Some("::ffff:10.0.0.1"), &["203.0.113.7"], "203.0.113.7"),
        (Some("10.0.0.1"), &["6.6.6.6, 203.0.113.7", "192.168.0.1"], "203.0.113.7"),
        (Some("10.0.0.1"), &["6.6.6.6, unknown, 10.0.0.2"], "-"),
        (Some("10.0.0.1"), &["6.6.6.6, 10.0.0.2,"], "-"),
        (Some("10.0.0.1"), &["6.6.6.6", ""], "-"),
        (Some("10.0.0.1"), &["nonsense, 203.0.113.7"], "203.0.113.7"),
        // The request comes from inside the proxy networks.
        (Some("10.0.0.1"), &[], "10.0.0.1"),
        (Some("10.0.0.1"), &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        (Some("0.0.0.0"), &["203.0.113.7"], "-"),
        (None, &["203.0.113.7"], "-"),
    ];
    let client = ClientIp::x_forwarded_for(private());
    for (peer, lines, expected) in cases {
        let request = request(peer, "x-forwarded-for", lines);
        assert_eq!(address(&client, &request), expected, "{peer:?} {lines:?}");
    }
}

#[test]
fn too_long_proxy_chain_has_no_address() {
    for (proxies, expected) in [(Proxies::MAX - 1, "203.0.113.7"), (Proxies::MAX, "-")] {
        let line = format!("203.0.113.7{}", ", 10.0.0.2".repeat(proxies));
        let request = request(Some("10.0.0.1"), "x-forwarded-for", &[&line]);
        assert_eq!(address(&ClientIp::x_forwarded_for(private()), &request), expected, "{proxies}");
    }
}

#[test]
fn single_header_counts_if_the_peer_is_trusted() {
    let name = HeaderName::from_static("cf-connecting-ip");
    let cases: [(&str, &[&str], &str); 5] = [
        ("10.0.0.1", &["203.0.113.7"], "203.0.113.7"),
        ("198.51.100.1", &["203.0.113.7"], "198.51.100.1"),
        ("10.0.0.1", &["203.0.113.7", "203.0.113.7"], "-"),
        ("10.0.0.1", &["203.0.113.7, 6.6.6.6"], "-"),
        ("10.0.0.1", &[], "-"),
    ];
    let client = ClientIp::header(name.clone(), private());
    for (peer, lines, expected) in cases {
        let request = request(Some(peer), "cf-connecting-ip", lines);
        assert_eq!(address(&client, &request), expected, "{peer} {lines:?}");
    }
    let request = request(None, "cf-connecting-ip", &["203.0.113.7"]);
    for (hops, expected) in [(1, "203.0.113.7"), (0, "-")] {
        assert_eq!(address(&ClientIp::header(name.clone(), Proxies::hops(hops)), &request), expected);
    }
}

#[test]
fn client_keys_are_networks() {
    let key = |client: &ClientIp, peer| text(client.key(Head::of(&request(Some(peer), "x", &[]))));
    let client = ClientIp::peer();
    assert_eq!(key(&client, "2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    assert_eq!(key(&client, "::ffff:203.0.113.7"), "203.0.113.7");
    assert_eq!(key(&client, "64:ff9b::203.0.113.7"), "203.0.113.7");
    assert_eq!(key(&client, "64:ff9b::203.0.113.8"), "203.0.113.8");
    for (bits, expected) in [(0, "::"), (1, "::"), (48, "2001:db8:1::"), (128, "2001:db8:1:2:3:4:5:6")] {
        let client = ClientIp::peer().ipv6_prefix(bits).expect("a valid prefix");
        assert_eq!(key(&client, "2001:db8:1:2:3:4:5:6"), expected, "{bits}");
    }
    for (bits, expected) in [(0, "0.0.0.0"), (24, "203.0.113.0"), (32, "203.0.113.7")] {
        let client = ClientIp::peer().ipv4_prefix(bits).expect("a valid prefix");
        assert_eq!(key(&client, "203.0.113.7"), expected, "{bits}");
    }
    let error = ClientIp::peer().ipv6_prefix(129).expect_err("too long");
    assert_eq!(error.to_string(), "the prefix is 129 bits; use 0 to 128");
    assert!(ClientIp::peer().ipv4_prefix(33).is_err());
}

#[test]
fn peer_from_sets_the_peer_source() {
    let mut request = request(None, "x", &[]);
    request.extensions_mut().insert(Ipv4Addr::new(203, 0, 113, 7));
    let client = ClientIp::peer().peer_from(|extensions| Some((*extensions.get::<Ipv4Addr>()?).into()));
    assert_eq!(address(&client, &request), "203.0.113.7");
    assert_eq!(address(&ClientIp::peer(), &request), "-");
}

/// Checks the addresses of a field from the right: one for each number of hops.
fn assert_from_right(name: &str, lines: &[&str], expected: &[&str]) {
    for (index, expected) in expected.iter().enumerate() {
        let proxies = Proxies::hops(index + 1);
        let client = match name {
            "forwarded" => ClientIp::forwarded(proxies),
            _ => ClientIp::x_forwarded_for(proxies),
        };
        assert_eq!(address(&client, &request(None, name, lines)), *expected, "{name}: {lines:?}");
    }
}

#[test]
fn addresses_in_all_spellings() {
    for (text, expected) in [
        ("203.0.113.7", "203.0.113.7"),
        ("203.0.113.7:80", "203.0.113.7"),
        ("203.0.113.7:_port", "203.0.113.7"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:DB8::1]", "2001:db8::1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("[::ffff:cb00:7107]:1", "203.0.113.7"),
        ("64:ff9b::203.0.113.7", "203.0.113.7"),
        ("[64:ff9b::cb00:7107]:443", "203.0.113.7"),
        ("64:ff9b::", "-"),
        // A network-specific prefix (RFC 8215), not the well-known one.
        ("64:ff9b:1::cb00:7107", "64:ff9b:1::cb00:7107"),
        ("64:ff9b::1:cb00:7107", "64:ff9b::1:cb00:7107"),
        ("", "-"),
        ("unknown", "-"),
        ("_hidden", "-"),
        ("_SEVKISEK:80", "-"),
        ("0.0.0.0", "-"),
        ("[::]", "-"),
        ("::ffff:0.0.0.0", "-"),
        ("203.0.113.07", "-"),
        ("203.0.113.7:", "-"),
        ("203.0.113.7:x", "-"),
        ("203.0.113.7:123456", "-"),
        ("203.0.113.7:_", "-"),
        ("203.0.113.7 8", "-"),
        ("[2001:db8::1", "-"),
        ("[2001:db8::1]4711", "-"),
        ("[203.0.113.7]", "-"),
        ("fe80::1%eth0", "-"),
        ("localhost", "-"),
    ] {
        assert_from_right("x-forwarded-for", &[text], &[expected]);
    }
}

// G71
#[test]
fn lists_are_read_from_the_right_over_all_lines() {
    let lines = ["10.0.0.1, 10.0.0.2", "10.0.0.3", " 10.0.0.4 ,\t10.0.0.5"];
    let expected = ["10.0.0.5", "10.0.0.4", "10.0.0.3", "10.0.0.2", "10.0.0.1", "-"];
    assert_from_right("x-forwarded-for", &lines, &expected);
    assert_from_right("x-forwarded-for", &[], &["-"]);
    assert_from_right("x-forwarded-for", &["10.0.0.1,,"], &["-", "-", "10.0.0.1"]);
}

/// The positions of the elements to its left are not known.
#[test]
fn an_element_that_is_too_long_ends_the_list() {
    let long = format!("10.0.0.1, {}9", " ".repeat(64 << 10));
    let lines = ["10.0.0.3", &long, "10.0.0.2"];
    assert_from_right("x-forwarded-for", &lines, &["10.0.0.2", "-", "-", "-"]);
}

/// A proxy may copy client text into the same element as the address. That text does not hide the address.
#[test]
fn long_host_hides_no_address() {
    for length in [1_100, 60_000] {
        let line = format!("proto=http;host=\"{}\";for=203.0.113.7", "\\\"".repeat(length / 2));
        assert_from_right("forwarded", &[&line], &["203.0.113.7"]);
    }
}

#[test]
fn forwarded_in_all_spellings() {
    for (text, expected) in [
        ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
        ("For=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
        ("proto=https;FOR=\"192.0.2.60:80\"", "192.0.2.60"),
        ("for=192.0.2.60:80", "192.0.2.60"),
        ("for=[2001:db8::1]", "2001:db8::1"),
        ("for=\"192\\.0.2.60\"", "192.0.2.60"),
        ("host=\"a, for=10.0.0.1\";for=192.0.2.60", "192.0.2.60"),
        ("host=\"\\\", for=10.0.0.1\";for=192.0.2.60", "192.0.2.60"),
        ("for=192.0.2.60 ; by=_x", "192.0.2.60"),
        ("for=\"_gazonk\"", "-"),
        ("for=unknown", "-"),
        ("for=", "-"),
        ("for=\"\"", "-"),
        ("=192.0.2.60", "-"),
        ("for", "-"),
        ("", "-"),
        ("by=192.0.2.60", "-"),
        ("for=192.0.2.60;for=192.0.2.61", "-"),
        // Empty pairs.
        ("for=192.0.2.60;", "192.0.2.60"),
        (";for=192.0.2.60", "192.0.2.60"),
        ("for=192.0.2.60; ;proto=https ;; ", "192.0.2.60"),
        (";", "-"),
        (";;for=192.0.2.60;;for=192.0.2.61", "-"),
        ("for=192.0.2.60;by", "-"),
        ("for=\"192.0.2.60\"x", "-"),
        ("for =192.0.2.60", "-"),
    ] {
        assert_from_right("forwarded", &[text], &[expected]);
    }
}

/// Whatever a client writes, the part that a proxy appends is read correctly.
#[test]
fn an_unfinished_quotation_hides_nothing_to_its_right() {
    for left in ["for=\"", "\"", "\\", "for=\"\\", "for=\"a\\\"", ",,,", "x=\"\\\\"] {
        let line = format!("{left}, for=\"[2001:db8::1]:80\";host=\"x\\\\\", for=192.0.2.60");
        assert_from_right("forwarded", &[&line], &["192.0.2.60", "2001:db8::1"]);
    }
}
