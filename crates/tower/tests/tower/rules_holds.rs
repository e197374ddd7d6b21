//! Rules with `hold` and `in_progress` in a layer: a request holds units until the body of its response has ended.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use tollgate::{ManualClock, Timestamp};
use tollgate_rules::{Config, Descriptor, Descriptors, Rules};
use tollgate_tower::{Body, Describe, Head, InDomain, RateLimitLayer};
use tower::{Layer as _, ServiceExt as _, service_fn};

const TEXT: &str = "
domain: api
tollgate: {}
descriptors:
  - key: all
    rate_limits:
      - { in_progress: 2, name: slots }
      - { unit: day, requests_per_unit: 100, hold: { life: 1h }, name: tokens }
  - key: path
    value: /closed
    rate_limit: { unit: day, requests_per_unit: 0 }
";

fn config(text: &str) -> Config {
    Config::from_yaml("test.yaml", text).unwrap()
}

fn rules(text: &str) -> Arc<Rules<ManualClock>> {
    let clock = ManualClock::new(Timestamp::from_secs(3_600 * 500_000));
    Arc::new(Rules::builder().clock(clock).load([config(text)]).unwrap())
}

type DescribeFn = fn(Head<'_>, &mut Descriptors) -> Option<()>;
type Layered = RateLimitLayer<InDomain<ManualClock>, Describe<DescribeFn>>;

fn layer(rules: &Arc<Rules<ManualClock>>) -> Layered {
    let describe: DescribeFn = |head, descriptors| {
        descriptors.begin().entry("all", "x");
        descriptors.begin().entry("path", head.path());
        Some(())
    };
    let layer = RateLimitLayer::rules(Arc::clone(rules), "api", describe).unwrap();
    layer.cost(|_| 1).settle_by_header(HeaderName::from_static("x-used"))
}

/// Answers with the query as the units used. `/error` fails.
async fn call(layer: &Layered, uri: &str) -> Result<Response<Body<String>>, &'static str> {
    let serve = async |request: Request<()>| {
        if request.uri().path() == "/error" {
            return Err("the service failed");
        }
        let mut response = Response::new("answer".to_owned());
        if let Some(used) = request.uri().query() {
            response.headers_mut().insert("x-used", used.parse().unwrap());
        }
        Ok(response)
    };
    layer.layer(service_fn(serve)).oneshot(Request::builder().uri(uri).body(()).unwrap()).await
}

/// Returns the tokens that are left, and the number of holds and of requests in progress.
fn state(rules: &Rules<ManualClock>) -> (u64, usize) {
    let answer = rules.explain("api", &[Descriptor::new(&[("all", "x")])], 0);
    let tokens = answer.answer().limits().find(|limit| limit.name() == "tokens").unwrap().remaining();
    (tokens, rules.holds())
}

// G135
#[tokio::test]
async fn request_holds_until_its_body_has_ended() {
    let rules = rules(TEXT);
    let layer = layer(&rules);
    let first = call(&layer, "/").await.unwrap();
    let second = call(&layer, "/").await.unwrap();
    assert_eq!(state(&rules), (98, 4));
    let third = call(&layer, "/").await.unwrap();
    assert_eq!(third.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(state(&rules), (98, 4), "the denied request holds nothing");
    first.into_body().collect().await.unwrap();
    assert_eq!(state(&rules), (98, 2), "without a cost in the response, the estimate stays charged");
    drop(second);
    assert_eq!(state(&rules), (98, 0));
    assert_eq!(call(&layer, "/closed").await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(state(&rules), (98, 0), "another rule denied the request");
}

// G135
#[tokio::test]
async fn response_tells_the_cost() {
    let rules = rules(TEXT);
    let layer = layer(&rules).cost(|_| 2);
    let answer = call(&layer, "/?30").await.unwrap();
    assert_eq!(state(&rules), (98, 2), "the request is in progress until its body has ended");
    drop(answer);
    assert_eq!(state(&rules), (70, 0));
    drop(call(&layer, "/?0").await.unwrap());
    assert_eq!(state(&rules), (70, 0), "zero gives all units back");
    assert!(call(&layer, "/error").await.is_err());
    assert_eq!(state(&rules), (68, 0), "units that may have been used are charged");
    let refunding = layer.refund_errors(true);
    assert!(call(&refunding, "/error").await.is_err());
    assert_eq!(state(&rules), (68, 0));
    let huge = refunding.cost(|_| 69);
    assert_eq!(call(&huge, "/").await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(state(&rules), (68, 0));
}

// G135
#[tokio::test]
async fn loads_add_and_change_holds() {
    let before = "
domain: api
tollgate: {}
descriptors:
  - key: all
    rate_limit: { unit: day, requests_per_unit: 100, name: tokens }
";
    let rules = rules(before);
    let layer = layer(&rules);
    let plain = call(&layer, "/").await.unwrap();
    assert_eq!(state(&rules), (99, 0));
    rules.replace([config(&TEXT.replace("100", "200"))]).unwrap();
    drop(plain);
    let held = call(&layer, "/").await.unwrap();
    assert_eq!(rules.holds(), 2);
    rules.replace([config(TEXT)]).unwrap();
    let other = call(&layer, "/").await.unwrap();
    assert_eq!(call(&layer, "/").await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS, "the hold survives");
    drop((held, other));
    assert_eq!(rules.holds(), 0);
    rules.clock().advance(Duration::from_secs(3_600));
    assert_eq!(call(&layer, "/").await.unwrap().status(), StatusCode::OK);
}

/// A descriptor's own cost is an estimate, too: the response tells the cost, and a refund gives it back.
// G135
#[tokio::test]
async fn own_cost_of_a_descriptor_is_settled() {
    let rules = rules(TEXT);
    let describe: DescribeFn = |head, descriptors| {
        descriptors.begin().entry("all", "x").hits(5);
        descriptors.begin().entry("path", head.path());
        Some(())
    };
    let layer = RateLimitLayer::rules(Arc::clone(&rules), "api", describe).unwrap();
    let layer = layer.settle_by_header(HeaderName::from_static("x-used")).refund_errors(true);
    assert!(call(&layer, "/error").await.is_err());
    assert_eq!(state(&rules), (100, 0), "the layer refunds errors");
    drop(call(&layer, "/?30").await.unwrap());
    assert_eq!(state(&rules), (70, 0), "30 units were used");
}
