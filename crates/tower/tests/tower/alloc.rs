//! An admitted request allocates nothing if clients are identified by address and no header fields are written.

use std::net::SocketAddr;

use http::{HeaderMap, Request, StatusCode};
use tollgate::{FixedWindow, Gcra, Quota, RateLimiter};
use tollgate_http::{Dialect, Fields, Policy, Reset};
use tollgate_tower::{
    ClientIp, IpNet, KeyExtractor, Missing, PeerAddr, Proxies, RateLimitLayer, RequestLimit,
};

use crate::counting::allocations;
use crate::setup::{ask, compact, manual};

/// Builds requests that came through two proxies. They are built before counting, so their own memory does not count.
fn requests(count: u16) -> Vec<Request<()>> {
    (0..count)
        .map(|index| {
            let peer: SocketAddr = "10.0.0.1:443".parse().expect("an address");
            let [high, low] = index.to_be_bytes();
            Request::builder()
                .header("x-forwarded-for", format!("6.6.6.6, 203.0.{high}.{low}"))
                .header("x-forwarded-for", "10.0.0.2")
                .header(
                    "forwarded",
                    format!("for=\"[2001:db8:0:{index:x}::1]:80\";host=\"a, b\", for=10.0.0.2"),
                )
                .extension(PeerAddr(peer))
                .body(())
                .expect("a request")
        })
        .collect()
}

/// Sends requests. Returns the number of allocations and the number of admitted requests.
fn sent<L: RequestLimit<X::Key>, X: KeyExtractor>(
    layer: &RateLimitLayer<L, X>,
    requests: Vec<Request<()>>,
) -> (u64, usize) {
    let mut admitted = 0;
    let allocations = allocations(|| {
        for request in requests {
            admitted += usize::from(ask(layer, request).status() == StatusCode::OK);
        }
    });
    (allocations, admitted)
}

fn clients() -> [ClientIp; 4] {
    let networks: [IpNet; 1] = ["10.0.0.0/8".parse().expect("a network")];
    [
        ClientIp::x_forwarded_for(Proxies::hops(2)),
        ClientIp::x_forwarded_for(Proxies::networks(networks)),
        ClientIp::forwarded(Proxies::hops(2)),
        ClientIp::forwarded(Proxies::networks(networks)),
    ]
}

// G72
#[test]
fn admitted_request_allocates_nothing() {
    let quota = Quota::per_hour(5);
    for client in clients() {
        let layer =
            RateLimitLayer::new(compact(quota, &manual()), client.clone()).policy("per-client", quota);
        for _ in 0..5 {
            assert_eq!(sent(&layer, requests(300)), (0, 300), "{client:?}");
        }
        let (allocations, admitted) = sent(&layer, requests(300));
        assert_eq!(admitted, 0, "{client:?}");
        assert!(
            allocations >= 300,
            "{client:?}: each denied request has a response of its own, but there were {allocations} allocations"
        );

        let sketch = RateLimiter::builder(FixedWindow::new(quota)).clock(manual()).sketch();
        let layer = RateLimitLayer::new(sketch.expect("the quota fits the store"), client.clone());
        assert_eq!(sent(&layer, requests(300)), (0, 300), "{client:?}");
    }
}

/// Exemptions, costs, shared keys and refunds allocate nothing either.
#[test]
fn layer_options_allocate_nothing() {
    let quota = Quota::per_hour(5);
    let layer = RateLimitLayer::new(compact(quota, &manual()), ClientIp::x_forwarded_for(Proxies::hops(3)))
        .exempt(|head| head.path() == "/health")
        .cost(|head| 1 + u64::from(head.method() == http::Method::POST))
        .missing(Missing::Shared([0, 0, 0, 0].into()))
        .refund(|status| status == StatusCode::OK)
        .refund_errors(true);
    assert_eq!(sent(&layer, requests(300)), (0, 300));
}

/// Neither does a layer of rules, also if they match the address of an IPv6 client and count its network.
// G72
#[cfg(feature = "rules")]
#[test]
fn layer_of_rules_allocates_nothing() {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use std::sync::Arc;
    use tollgate_rules::{Config, Rules};

    let text = "
domain: edge
tollgate: {}
descriptors:
  - { key: client, rate_limit: { unit: year, requests_per_unit: 2 } }
  - { key: client, value: '2001:db8::7', rate_limit: { unit: year, requests_per_unit: 0 } }
  - { key: client, ranges: ['2001:db8:1::/80'], rate_limit: { unit: year, requests_per_unit: 1000 } }
  - key: path
    value: /
    descriptors: [ { key: client, rate_limit: { unit: year, requests_per_unit: 1000 } } ]
";
    let config = Config::from_yaml("test.yaml", text).expect("a file of rules");
    let rules = Rules::builder().clock(manual()).load([config]).expect("rules");
    let client = ClientIp::peer();
    let layer = RateLimitLayer::rules(Arc::new(rules), "edge", move |head, descriptors| {
        let address = client.key(head)?;
        descriptors.begin().address("client", address);
        descriptors.begin().entry("path", head.path()).entry("client", address);
        Some(())
    });
    let layer = layer.expect("a domain with rules");
    let request = |address: IpAddr| {
        Request::builder().extension(PeerAddr((address, 443).into())).body(()).expect("a request")
    };
    let admitted = |address: &dyn Fn(u16) -> IpAddr| {
        sent(&layer, (0..300).map(|index| request(address(index))).collect())
    };
    let range = |index| Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, index).into();
    // The first requests also allocate what the thread keeps, and the stores.
    let _ = admitted(&|index| Ipv6Addr::new(0x2001, 0xdb8, 9, index, 0xabcd, 0xabcd, 0xabcd, 0xabcd).into());
    let _ = admitted(&range);
    let networks = |index| Ipv6Addr::new(0x2001, 0xdb8, 2, index, 1, 2, 3, 4).into();
    assert_eq!(admitted(&networks), (0, 300), "networks");
    assert_eq!(admitted(&range), (0, 300), "a range");
    assert_eq!(
        admitted(&|index| Ipv4Addr::from_bits(0xc633_0000 | u32::from(index)).into()),
        (0, 300),
        "IPv4 addresses"
    );
    assert_eq!(admitted(&networks).1, 300);
    assert_eq!(admitted(&networks).1, 0, "the rule counts the networks");
}

/// Header fields allocate only their values and their room in the response.
#[test]
fn header_fields_allocate_little() {
    let quota = Quota::per_hour(5);
    let [client, ..] = clients();
    let layer = RateLimitLayer::new(compact(quota, &manual()), client).policy("per-client", quota);
    let layer = layer.fields_on_allowed(true).fields(Fields::default());
    let (allocations, admitted) = sent(&layer, requests(100));
    assert_eq!(admitted, 100);
    assert!((200..=500).contains(&allocations), "{allocations}");
}

/// Writing header fields allocates at most once per value if the header map has room.
#[test]
fn header_field_allocates_only_its_value() {
    let (minute, day) = (Quota::per_minute(100), Quota::per_day(1_000));
    let [burst, daily] = [minute, day].map(|quota| RateLimiter::direct(Gcra::new(quota)).check());
    let policies = [Policy::new("burst", &minute, burst), Policy::new("daily", &day, daily)];
    for (dialect, most) in [
        (Dialect::Draft11, 2),
        (Dialect::Draft07, 2),
        (Dialect::Draft06, 4),
        (Dialect::Legacy { reset: Reset::Epoch }, 3),
        (Dialect::Off, 0),
    ] {
        let fields = Fields::new(dialect);
        let mut headers = HeaderMap::with_capacity(16);
        let count = allocations(|| fields.write(&mut headers, &policies));
        assert!(count <= most, "{dialect:?}: {count}");
        assert_eq!(headers.len() as u64, most);
    }
}
