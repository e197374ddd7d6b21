//! An axum server that reads its limits from a file and reloads the file when it changes, with Prometheus metrics:
//! `cargo run -p tollgate-tower-examples --example axum`.
//!
//! The server listens on port 3000 of this machine. Run `curl -i http://127.0.0.1:3000/search` a few times, with and
//! without `-H 'tier: premium'`. Then change a number in `crates/tower/examples/limits.yaml`, try again, and look at `/metrics`.
//! With `-- --once`, the server takes a free port, sends some requests to itself, prints the answers and ends. The
//! third search is marked and the fourth is denied; a search of a premium account is admitted. (`axum_layer.rs` shows
//! a layer without rules.)

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::ConnectInfo;
use axum::routing::get;
use axum::{Extension, Router, serve};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tollgate::telemetry;
use tollgate_rules::{Descriptors, Rules, RulesError};
use tollgate_tower::{ClientIp, Head, KeyExtractor as _, RateLimitLayer, SoftLimited};

const LIMITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/limits.yaml");

/// The identities of a request, for the rules: its client, and its path with its client. Clients connect to this
/// server directly. Behind a proxy, use `ClientIp::x_forwarded_for(Proxies::hops(1))`.
fn describe(by_client: &ClientIp, head: Head<'_>, descriptors: &mut Descriptors) -> Option<()> {
    let address = by_client.key(head)?;
    descriptors.begin().address("remote_address", address);
    descriptors.begin().entry("path", head.path()).address("remote_address", address);
    descriptors.begin().entry("path", head.path());
    // A real server takes the tier from its own data about the account, and not from the client's header.
    if let Some(tier) = head.headers().get("tier").and_then(|tier| tier.to_str().ok()) {
        descriptors.tier(tier);
    }
    Some(())
}

async fn search(marked: Option<Extension<SoftLimited>>) -> &'static str {
    match marked {
        None => "all results\n",
        Some(_) => "the first ten results; try again in a minute for all of them\n",
    }
}

fn app(rules: Arc<Rules>) -> Result<Router, RulesError> {
    let by_client =
        ClientIp::peer().peer_from(|extensions| Some(extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip()));
    let limits =
        RateLimitLayer::rules(Arc::clone(&rules), "shop", move |head, to| describe(&by_client, head, to))?
            .fields_on_allowed(true)
            .refund(|status| status.is_server_error());

    // Counters update this recorder at each event; gauges are published when a client requests `/metrics`.
    let metrics = get(async move |Extension(prometheus): Extension<PrometheusHandle>| {
        tollgate_rules::publish_rules(&rules);
        prometheus.render()
    });
    let app = Router::new().route("/", get(async || "hello\n")).route("/search", get(search));
    Ok(app.layer(limits).route("/metrics", metrics))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Before the rules, because the rules register their counters when they are created.
    let prometheus = PrometheusBuilder::new().install_recorder()?;
    telemetry::describe();
    tollgate_rules::telemetry::describe();

    let rules = Arc::new(Rules::read(LIMITS)?);
    let _watcher = Rules::watch(&rules, |loaded| match loaded {
        Ok(report) => println!("limits are loaded: {report}"),
        Err(error) => println!("the limits are unchanged, because the load failed:\n{error}"),
    })?;
    let app = app(rules)?.layer(Extension(prometheus));

    // The connection's address comes with each request.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    if !std::env::args().any(|argument| argument == "--once") {
        let listener = TcpListener::bind("127.0.0.1:3000").await?;
        println!("http://{}", listener.local_addr()?);
        return Ok(serve(listener, service).await?);
    }

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = serve(listener, service).with_graceful_shutdown(async {
        stopped.await.ok();
    });
    let server = tokio::spawn(server.into_future());

    let client = Client::builder(TokioExecutor::new()).build_http();
    let requests = [
        ("/", ""),
        ("/search", ""),
        ("/search", ""),
        ("/search", ""),
        ("/search", ""),
        ("/search", "premium"),
    ];
    for (path, tier) in requests.into_iter().chain([("/", ""), ("/metrics", "")]) {
        let request = Request::get(format!("http://{address}{path}")).header("tier", tier);
        let response = client.request(request.body(Empty::<bytes::Bytes>::new())?).await?;
        println!("GET {path}: {}", response.status());
        // The fourth search is admitted if a new minute has begun by then.
        if (path, tier) != ("/search", "") {
            assert!(response.status().is_success());
        }
        for (name, value) in response.headers() {
            println!("    {name}: {}", value.to_str()?);
        }
        print!("{}", String::from_utf8_lossy(&response.into_body().collect().await?.to_bytes()));
        println!();
    }

    drop(client);
    let _ = stop.send(());
    server.await??;
    Ok(())
}
