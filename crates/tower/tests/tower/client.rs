//! Tests how the layer reads the client's address from header fields. The client may have written a part of these
//! fields; trusted proxies append the rest. Properties:
//!
//! - A client can write any bytes and any lines. They do not change the address that the layer reads from the part that
//!   the proxies wrote.
//! - The proxies may write one line or several lines, with or without ports. The result is the same.
//! - In `Forwarded`, the layer reads only `for`, even if other parameters contain quoted text.
//! - A key is the client's address, cut to its prefix. If a request comes from that cut address, it has the same key.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::{HeaderName, HeaderValue, Request};
use proptest::prelude::*;
use tollgate_tower::{ClientIp, Head, IpNet, KeyExtractor, PeerAddr, Proxies};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fn ours() -> Vec<IpNet> {
    ["10.0.0.0/8", "fd00::/8"].map(|text| text.parse().expect("a valid network")).into()
}

/// Random addresses of clients and proxies.
fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<Ipv4Addr>().prop_map(IpAddr::V4),
        any::<Ipv6Addr>().prop_map(IpAddr::V6),
        any::<[u8; 3]>().prop_map(|[a, b, c]| IpAddr::from([10, a, b, c])),
        any::<u64>().prop_map(|low| IpAddr::V6(Ipv6Addr::from_bits(0xfd << 120 | u128::from(low)))),
        any::<Ipv4Addr>().prop_map(|v4| IpAddr::V6(v4.to_ipv6_mapped())),
    ]
}

/// The part that a client writes: arbitrary bytes, most of them with a meaning in these fields.
fn written() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let byte = prop_oneof![
        4 => prop::sample::select(b",\"\\;=:[] \tfor10.".to_vec()),
        1 => any::<u8>(),
    ];
    let line = prop::collection::vec(byte, 0..60);
    prop::collection::vec(line.prop_filter("a value", |line| HeaderValue::from_bytes(line).is_ok()), 0..4)
}

#[derive(Clone, Debug)]
struct Appended {
    address: Option<IpAddr>,
    port: Option<u16>,
    host: String,
    own_line: bool,
}

fn appended() -> impl Strategy<Value = Vec<Appended>> {
    let host = "[ -~]{0,20}";
    let one = (prop::option::weighted(0.9, address()), any::<Option<u16>>(), host, any::<bool>());
    let one = one.prop_map(|(address, port, host, own_line)| Appended { address, port, host, own_line });
    prop::collection::vec(one, 1..6)
}

fn element(appended: &Appended, forwarded: bool) -> String {
    let node = match (appended.address, appended.port) {
        (None, _) => "unknown".to_owned(),
        (Some(IpAddr::V6(v6)), Some(port)) => format!("[{v6}]:{port}"),
        (Some(IpAddr::V6(v6)), None) if forwarded => format!("[{v6}]"),
        (Some(v4), Some(port)) => format!("{v4}:{port}"),
        (Some(address), None) => address.to_string(),
    };
    if !forwarded {
        return node;
    }
    let host = appended.host.replace('\\', "\\\\").replace('"', "\\\"");
    format!("proto=https;host=\"{host}\";for=\"{node}\"")
}

fn lines(left: &[Vec<u8>], right: &[Appended], forwarded: bool, alone: bool) -> Vec<Vec<u8>> {
    let mut lines = left.to_vec();
    for appended in right {
        let element = element(appended, forwarded);
        match lines.last_mut().filter(|_| !alone && !appended.own_line) {
            Some(line) => {
                line.extend_from_slice(b", ");
                line.extend_from_slice(element.as_bytes());
            }
            None => lines.push(element.into_bytes()),
        }
    }
    lines
}

fn request(name: &HeaderName, lines: &[Vec<u8>]) -> Request<()> {
    let mut request = Request::new(());
    for line in lines {
        request.headers_mut().append(name, HeaderValue::from_bytes(line).expect("a valid header value"));
    }
    request.extensions_mut().insert(PeerAddr(SocketAddr::new(PEER, 1)));
    request
}

/// Returns the client according to the proxies' part, or `None` if the proxies' part does not decide it.
fn expected(right: &[Appended], hops: Option<usize>) -> Option<Option<IpAddr>> {
    let known = |address: IpAddr| Some(address.to_canonical()).filter(|address| !address.is_unspecified());
    let mut addresses = right.iter().rev().map(|appended| appended.address.and_then(known));
    match hops {
        Some(0) => Some(Some(PEER)),
        Some(hops) => addresses.nth(hops - 1),
        None => {
            let is_ours = |address: &IpAddr| ours().iter().any(|network| network.contains(address));
            addresses.find(|address| !address.as_ref().is_some_and(is_ours))
        }
    }
}

proptest! {
    #![proptest_config(tollgate_testing::operations::config(500))]

    // G71
    #[test]
    fn client_written_fields_never_change_address(
        left in written(),
        right in appended(),
        hops in prop::option::of(0_usize..7),
        forwarded: bool,
    ) {
        let proxies = hops.map_or_else(|| Proxies::networks(ours()), Proxies::hops);
        let (name, client) = match forwarded {
            true => ("forwarded", ClientIp::forwarded(proxies)),
            false => ("x-forwarded-for", ClientIp::x_forwarded_for(proxies)),
        };
        let name = HeaderName::from_static(name);
        let read = |lines: &[Vec<u8>]| client.address(Head::of(&request(&name, lines)));
        let (together, alone) = (lines(&left, &right, forwarded, false), lines(&left, &right, forwarded, true));
        if let Some(expected) = expected(&right, hops) {
            prop_assert_eq!(read(&together), expected);
            prop_assert_eq!(read(&alone), expected);
        } else if left.is_empty() {
            // With trusted networks: all addresses belong to proxies, so the result is the leftmost address. With a
            // number of hops: the fields have fewer addresses than hops, so the result is `None`.
            let last = right.first().and_then(|appended| appended.address).map(|address| address.to_canonical());
            prop_assert_eq!(read(&together), if hops.is_some() { None } else { last });
        }
    }

    #[test]
    fn client_key_is_a_network(address in address(), v4 in 0_u8..=32, v6 in 0_u8..=128) {
        let client = ClientIp::peer().ipv4_prefix(v4).and_then(|client| client.ipv6_prefix(v6)).expect("valid prefix lengths");
        let key = |address: IpAddr| {
            let mut request = Request::new(());
            request.extensions_mut().insert(PeerAddr(SocketAddr::new(address, 1)));
            client.key(Head::of(&request))
        };
        let address = address.to_canonical();
        let bits = if address.is_ipv4() { v4 } else { v6 };
        let network = IpNet::new(address, bits).expect("a valid prefix length").network();
        prop_assert_eq!(key(address), (!address.is_unspecified()).then_some(network));
        prop_assert!(network.is_unspecified() || network != network.to_canonical() || key(network) == Some(network));
    }
}

/// The answer to a request without a key names the part of a pair that is missing, and not the other one.
#[test]
fn pair_names_its_missing_part() {
    let mut request = Request::new(());
    request.extensions_mut().insert(PeerAddr(SocketAddr::new(PEER, 443)));
    let unnamed = |_: Head<'_>| None::<u8>;
    let behind_proxy = ClientIp::x_forwarded_for(Proxies::hops(1));
    let head = Head::of(&request);
    assert_eq!((ClientIp::peer(), unnamed).what(head), None);
    assert_eq!(
        (ClientIp::peer(), behind_proxy.clone()).what(head).as_deref(),
        Some("client address in x-forwarded-for")
    );
    assert_eq!((behind_proxy, unnamed).what(head).as_deref(), Some("client address in x-forwarded-for"));
}
