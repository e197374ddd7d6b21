//! Rules in front of a service: which requests they deny, and what clients receive.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tollgate::{ManualClock, Timestamp};
use tollgate_http::{Dialect, Fields};
use tollgate_rules::{Config, Descriptors, Rules, WithoutRule};
use tollgate_tower::{
    Body, ClientIp, Describe, Head, InDomain, KeyExtractor as _, Missing, RateLimitLayer, SoftLimited,
};
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::setup::{ask, from, now, text, to, with};

const START: Timestamp = Timestamp::from_secs(3_600 * 500_000);

fn rules(text: &str) -> Arc<Rules<ManualClock>> {
    let config = Config::from_yaml("test.yaml", text).unwrap();
    Arc::new(Rules::builder().clock(ManualClock::new(START)).load([config]).unwrap())
}

const TEXT: &str = "
domain: api
tollgate: {}
descriptors:
  - key: client
    rate_limits:
      - { unit: minute, requests_per_unit: 4, soft: 3, name: per-minute }
      - { unit: day, requests_per_unit: 100, algorithm: gcra, burst: 10, name: per-day }
  - key: path
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1, name: dry }
  - key: path
    value: /closed
    rate_limit: { unit: hour, requests_per_unit: 0, name: closed }
";

type DescribeFn = fn(Head<'_>, &mut Descriptors) -> Option<()>;

fn describe(head: Head<'_>, descriptors: &mut Descriptors) -> Option<()> {
    if let Some(client) = head.headers().get("client").and_then(|client| client.to_str().ok()) {
        descriptors.begin().entry("client", client);
    }
    descriptors.begin().entry("path", head.path());
    Some(())
}

fn by(client: &str, path: &str) -> Request<()> {
    with(to(path), "client", client)
}

fn api(rules: &Arc<Rules<ManualClock>>) -> RateLimitLayer<InDomain<ManualClock>, Describe<DescribeFn>> {
    RateLimitLayer::rules(Arc::clone(rules), "api", describe as DescribeFn).unwrap()
}

/// Returns the problem that the body of an answer reports.
fn problem(answer: Response<Body<Full<Bytes>>>) -> serde_json::Value {
    serde_json::from_str(&text(answer)).unwrap()
}

#[test]
fn denials_name_the_denying_rules() {
    let layer = api(&rules(TEXT)).fields_on_allowed(true);
    let is_marked = service_fn(async |request: Request<()>| {
        let is_marked = request.extensions().get::<SoftLimited>().is_some();
        Ok::<_, Infallible>(Response::builder().header("marked", is_marked.to_string()).body(()).unwrap())
    });
    for (left, marked) in [(3, "false"), (2, "false"), (1, "false"), (0, "true")] {
        let response = now(layer.layer(is_marked).oneshot(by("alice", "/"))).unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["ratelimit-policy"], r#""per-minute";q=4;w=60, "per-day";q=10;w=8640"#);
        let day = 6 + left;
        let expected = format!(r#""per-minute";r={left};t=60, "per-day";r={day};t={}"#, day * 864);
        assert_eq!(response.headers()["ratelimit"], expected, "the fields do not mention a dry run");
        assert_eq!(response.headers()["marked"], marked);
    }
    let response = ask(&layer, by("alice", "/"));
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "60");
    assert_eq!(response.headers()["ratelimit"], r#""per-minute";r=0;t=60"#);
    assert_eq!(problem(response)["violated-policies"], serde_json::json!(["per-minute"]));
    assert_eq!(ask(&layer, by("bob", "/")).status(), 200, "another client has its own counter");
    for _ in 0..9 {
        assert_eq!(ask(&layer, to("/")).status(), 200, "a dry run denies no request");
    }
}

/// Cause: a layer did not check its domain. Trigger: `"apii"` instead of `"api"`. Symptom: the layer never limited a
/// request and gave no error.
// G64
#[test]
fn layer_of_an_unknown_domain_is_an_error() {
    let error = RateLimitLayer::rules(rules(TEXT), "apii", describe).unwrap_err().to_string();
    for part in
        ["\"apii\"", "the most similar domain is \"api\", in test.yaml", "use that name, or load a file"]
    {
        assert!(error.contains(part), "{part} is not in {error}");
    }
    let none = Rules::builder().clock(ManualClock::new(START)).load([]).unwrap();
    let error = RateLimitLayer::rules(Arc::new(none), "api", describe).unwrap_err().to_string();
    assert!(error.contains("\"api\"") && error.contains("load a file"), "{error}");
}

/// The domain is in use as soon as the layer exists, before any request.
// G64
#[test]
fn layer_domain_cannot_be_removed() {
    let rules = rules(TEXT);
    let layer = api(&rules);
    let renamed = Config::from_yaml("test.yaml", &TEXT.replace("domain: api", "domain: store")).unwrap();
    let error = rules.replace([renamed]).unwrap_err().to_string();
    assert!(error.contains("test.yaml:2:9") && error.contains("\"api\" is in use"), "{error}");
    let statuses = [(); 5].map(|()| ask(&layer, by("alice", "/")).status().as_u16());
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
}

const HIDDEN: &str = "
domain: api
tollgate: {}
descriptors:
  - key: client
    rate_limits:
      - { unit: minute, requests_per_unit: 4, name: shown }
      - { unit: hour, requests_per_unit: 2, name: secret, headers: false }
";

/// A rule with `headers: false` decides, and no field or body mentions it.
// G122
#[test]
fn hidden_rule_is_in_no_response() {
    let layer = api(&rules(HIDDEN))
        .fields_on_allowed(true)
        .instance(|refused| Some(format!("/why{}", refused.head().path())));
    for left in [3, 2] {
        let response = ask(&layer, by("alice", "/"));
        assert_eq!(response.headers()["ratelimit-policy"], r#""shown";q=4;w=60"#);
        assert_eq!(response.headers()["ratelimit"], format!(r#""shown";r={left};t=60"#));
    }
    let response = ask(&layer, by("alice", "/"));
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "3600", "the client must know when to try again");
    assert_eq!(response.headers()["ratelimit-policy"], r#""shown";q=4;w=60"#);
    assert_eq!(response.headers()["ratelimit"], r#""shown";r=2;t=60"#);
    let problem = problem(response);
    assert_eq!(problem["violated-policies"], serde_json::json!([]));
    assert_eq!(problem["instance"], "/why/");
}

/// A request that can never be admitted gets no `Retry-After`.
#[test]
fn zero_limit_rule_gives_no_retry_after() {
    let response = ask(&api(&rules(TEXT)), by("alice", "/closed"));
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(!response.headers().contains_key("retry-after"));
    assert_eq!(
        response.headers()["ratelimit-policy"],
        r#""per-minute";q=4;w=60, "per-day";q=10;w=8640, "closed";q=0;w=3600"#
    );
}

/// A peek at a rule with a limit of 0 denies no request.
#[test]
fn zero_limit_peek_denies_nothing() {
    let look = |head: Head<'_>, descriptors: &mut Descriptors| {
        descriptors.begin().entry("path", "/closed").hits(0);
        describe(head, descriptors)
    };
    let layer = RateLimitLayer::rules(rules(TEXT), "api", look).unwrap();
    for _ in 0..4 {
        assert_eq!(ask(&layer, by("alice", "/")).status(), StatusCode::OK);
    }
    let response = ask(&layer, by("alice", "/"));
    assert_eq!(response.headers()["retry-after"], "60");
    assert_eq!(response.headers()["ratelimit"], r#""per-minute";r=0;t=60"#);
    assert_eq!(problem(response)["violated-policies"], serde_json::json!(["per-minute"]));
}

/// A failed request is refunded in every rule, so later requests can use those units.
#[test]
fn failed_request_is_refunded_in_every_rule() {
    let rules = rules(TEXT);
    let layer = api(&rules).refund(|status| status.is_server_error());
    for _ in 0..20 {
        let response = ask(&layer, with(by("alice", "/"), "x-status", "503"));
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    let mut descriptors = Descriptors::new();
    descriptors.begin().entry("client", "alice");
    let left: Vec<u64> = descriptors.with(|descriptors| {
        rules.check_n("api", descriptors, 0).limits().map(|limit| limit.remaining()).collect()
    });
    assert_eq!(left, [4, 10]);
}

#[test]
fn request_cost_sets_rule_hits() {
    let layer = api(&rules(TEXT))
        .cost(|head| if head.path() == "/big" { 3 } else { 1 })
        .fields(Fields::new(Dialect::Draft06))
        .fields_on_allowed(true);
    assert_eq!(ask(&layer, by("alice", "/big")).headers()["ratelimit-remaining"], "1");
    assert_eq!(ask(&layer, by("alice", "/big")).status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(ask(&layer, by("alice", "/")).status(), StatusCode::OK);
}

/// Rules are reloaded while the server handles requests. Every request gets an answer, and only the rules decide it.
// G64
#[test]
fn rules_reload_under_requests() {
    let of = |limit: usize| {
        format!(
            "{{ domain: api, descriptors: [ {{ key: client, rate_limit: {{ unit: day, requests_per_unit: {limit} }} }} ] }}"
        )
    };
    let rules = rules(&of(100));
    let layer = api(&rules);
    let is_done = AtomicBool::new(false);
    let (mut admitted, mut asked) = ([0; 20], 0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for load in 1..=100 {
                rules.replace([Config::from_yaml("test.yaml", &of(100 + load % 2)).unwrap()]).unwrap();
            }
            is_done.store(true, Ordering::Release);
        });
        while !is_done.load(Ordering::Acquire) || asked < 20 * 400 {
            let client = asked % 20;
            match ask(&layer, by(&client.to_string(), "/")).status() {
                StatusCode::OK => admitted[client] += 1,
                StatusCode::TOO_MANY_REQUESTS => {}
                other => panic!("{other}"),
            }
            asked += 1;
        }
    });
    assert_eq!(rules.reloads().successes, 101);
    assert!(admitted.iter().all(|&admitted| (95..=101).contains(&admitted)), "{admitted:?}");
    rules.clock().advance(Duration::from_secs(86_400));
    assert_eq!(ask(&layer, by("0", "/")).status(), StatusCode::OK);
}

/// A request without a key is denied unless the server configures something else.
#[test]
fn request_without_client_follows_missing_policy() {
    let known = |head: Head<'_>, descriptors: &mut Descriptors| {
        let client = head.headers().get("client")?.to_str().ok()?;
        descriptors.begin().entry("client", client);
        Some(())
    };
    let mut empty = Descriptors::new();
    empty.begin().entry("client", "empty");
    for (missing, expected) in [
        (Missing::Deny, [403; 5]),
        (Missing::Allow, [200; 5]),
        (Missing::Shared(empty), [200, 200, 200, 200, 429]),
    ] {
        let layer = RateLimitLayer::rules(rules(TEXT), "api", known).unwrap().missing(missing);
        assert_eq!([(); 5].map(|()| ask(&layer, to("/")).status().as_u16()), expected);
        assert_eq!(ask(&layer, by("alice", "/")).status(), StatusCode::OK);
    }
}

/// `ClientIp` cuts addresses to 64 bits, and the layer gave the rules only the network. So rules for one IPv6 address, for
/// a single address as a range and for a /80 admitted what they deny, without a word, and the same rules for IPv4 worked.
// G123
#[test]
fn rules_match_the_whole_address_and_count_its_network() {
    let rows = [
        "value: '2001:db8::1'",
        "ranges: ['2001:db8::1/128'] ",
        "ranges: ['2001:db8::/80']",
        "ranges: ['2001:db8::/127', 192.0.2.0/31]",
    ];
    for row in rows {
        let rules = rules(&format!(
            "
domain: edge
tollgate: {{}}
descriptors:
  - key: ip
    {row}
    rate_limit: {{ unit: minute, requests_per_unit: 0 }}
  - key: ip
    rate_limit: {{ unit: minute, requests_per_unit: 3 }}
  - key: path
    descriptors:
      - key: ip
        {row}
        rate_limit: {{ unit: minute, requests_per_unit: 0 }}
"
        ));
        for nested in [false, true] {
            let client = ClientIp::peer();
            let describe = move |head: Head<'_>, descriptors: &mut Descriptors| {
                let address = client.key(head)?;
                match nested {
                    false => descriptors.begin().address("ip", address),
                    true => descriptors.begin().entry("path", head.path()).entry("ip", address),
                };
                Some(())
            };
            let layer = RateLimitLayer::rules(Arc::clone(&rules), "edge", describe).unwrap();
            let ask = |peer: &str| ask(&layer, from(peer)).status().as_u16();
            assert_eq!(ask("2001:db8::1"), 429, "{row}: the rule of the address");
            assert_eq!(ask("2001:db8:0:0:1::1"), 200, "{row}: another address of the network");
            assert_eq!(ask("2001:db8:0:0:1::2"), 200, "{row}");
            assert_eq!(ask("2001:db8::1"), 429, "{row}");
            let expected = if nested { [200, 200] } else { [200, 429] };
            let last = [ask("2001:db8:0:0:2::3"), ask("2001:db8:0:0:3::4")];
            assert_eq!(last, expected, "{row}: addresses of a network share a counter");
            assert_eq!(ask("2001:db8:0:1::1"), 200, "{row}: another network");
        }
    }
}

/// A refund goes to the counter of the network, and the lengths of `prefixes` precede that of the layer.
#[test]
fn refunds_and_prefixes_of_cut_addresses() {
    let rules = rules(
        "
domain: edge
tollgate: {}
descriptors:
  - key: ip
    rate_limit: { unit: minute, requests_per_unit: 2 }
  - key: step
    prefixes:
      ipv4: { 24: { unit: minute, requests_per_unit: 1 } }
      ipv6: { 128: { unit: minute, requests_per_unit: 1 } }
  - key: above
    descriptors:
      - key: ip
        prefixes: { ipv4: { 32: { unlimited: true } }, ipv6: { 48: { unit: minute, requests_per_unit: 1 } } }
",
    );
    let layer_of = |key: &'static str| {
        let client = ClientIp::peer().ipv4_prefix(16).unwrap();
        let describe = move |head: Head<'_>, descriptors: &mut Descriptors| {
            let address = client.key(head)?;
            match key {
                "above" => descriptors.begin().address(key, address).address("ip", address),
                _ => descriptors.begin().address(key, address),
            };
            Some(())
        };
        RateLimitLayer::rules(Arc::clone(&rules), "edge", describe).unwrap()
    };
    let refunding = layer_of("ip").refund(|status| status.is_server_error());
    let told = |(peer, status)| ask(&refunding, with(from(peer), "x-status", status)).status().as_u16();
    let requests = [
        ("2001:db8::1", "503"),
        ("2001:db8::2", "200"),
        ("2001:db8::3", "503"),
        ("2001:db8::4", "200"),
        ("2001:db8::5", "200"),
    ];
    assert_eq!(requests.map(told), [503, 200, 503, 200, 429]);
    let layer = layer_of("step");
    let peers = ["2001:db8::1", "2001:db8::2", "2001:db8::1", "192.0.2.1", "192.0.3.1", "192.0.2.2"];
    let codes = peers.map(|peer| ask(&layer, from(peer)).status().as_u16());
    assert_eq!(codes, [200, 200, 429, 200, 200, 429]);
    // The value above the prefix counts as the network.
    let layer = layer_of("above");
    let peers = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"];
    assert_eq!(peers.map(|peer| ask(&layer, from(peer)).status().as_u16()), [200, 429, 200]);
}

/// A layer denies what no rule matches, if its rules are built so. Only a load can change that, so there is no wait.
#[test]
fn requests_without_a_rule_are_denied_by_the_layer() {
    let text = TEXT.replace("key: path", "key: root");
    let config = Config::from_yaml("test.yaml", &text).unwrap();
    let builder = Rules::builder().clock(ManualClock::new(START)).without_rule(WithoutRule::Deny);
    let layer = api(&Arc::new(builder.load([config]).unwrap()));
    let answer = ask(&layer, to("/"));
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(!answer.headers().contains_key("retry-after"));
    assert_eq!(ask(&layer, by("alice", "/")).status(), StatusCode::OK);
}
