//! Classes of requests in the layer: a closure chooses the class, and the classes of a client share one count.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use tollgate::{Class, Gcra, ManualClock, Quota, RateLimiter};
use tollgate_tower::{Classes, Head, RateLimitLayer, key_fn};
use tower::{Layer as _, ServiceExt as _, service_fn};

const QUOTA: Quota = Quota::per_hour(10);

fn class(head: Head<'_>) -> Option<Class> {
    Some(if head.path().starts_with("/export") { Class::percent(50) } else { Class::ALL })
}

fn client(head: Head<'_>) -> Option<String> {
    Some(head.headers().get("client")?.to_str().ok()?.to_owned())
}

async fn serve(request: Request<String>) -> Result<Response<String>, Infallible> {
    let status = if request.uri().path().ends_with("down") { 503 } else { 200 };
    Ok(Response::builder().status(status).body(String::new()).unwrap())
}

// G120
#[tokio::test]
async fn classes_of_a_client_share_its_limit() {
    let limiter =
        Arc::new(RateLimiter::builder(Gcra::new(QUOTA)).clock(ManualClock::default()).keyed::<String>());
    let layer = RateLimitLayer::new(Classes::new(Arc::clone(&limiter)), (key_fn(client), key_fn(class)))
        .policy("per-client", QUOTA)
        .refund(|status| status.is_server_error())
        .fields_on_allowed(true);
    let service = layer.layer(service_fn(serve));
    let ask = async |client: &str, path: &str| {
        let request = Request::builder().uri(path).header("client", client).body(String::new()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        let field = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), field("ratelimit-policy"), field("ratelimit"))
    };
    for left in (0..5).rev() {
        let (status, policy, limit) = ask("a", "/export").await;
        assert_eq!((status, policy.as_deref()), (200, Some(r#""per-client";q=5;w=1800"#)));
        assert!(limit.unwrap().starts_with(&format!(r#""per-client";r={left};"#)));
    }
    assert_eq!(ask("a", "/export").await.0, 429);
    let (status, policy, _) = ask("a", "/pay").await;
    assert_eq!((status, policy.as_deref()), (200, Some(r#""per-client";q=10;w=3600"#)));
    assert_eq!(ask("b", "/export/down").await.0, 503);
    assert_eq!(limiter.peek("b").remaining(), 10, "the charge was refunded");
    assert_eq!(limiter.peek("a").remaining(), 4);
}
