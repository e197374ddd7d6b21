//! An axum server whose processes share their limits through Redis:
//! `cargo run -p tollgate-tower-examples --example axum_redis -- redis://127.0.0.1/ 3000`.
//!
//! Start it twice, on ports 3000 and 3001. Then run `curl -i http://127.0.0.1:3000/` and the same with the other port
//! in turn. Together, the two processes admit ten requests, and then one every six minutes. If you stop Redis, each
//! process continues with its half of the limit. With `-- --once`, the program does all of this itself: it starts a
//! Redis server and two processes, sends requests to both, prints the results, and stops everything.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::routing::get;
use axum::{Router, serve};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tollgate_redis::Client;
use tollgate_rules::{Config, Rules};
use tollgate_tower::{ClientIp, KeyExtractor as _, RateLimitLayer};

/// Every process has the same rules; a real server reads them from a file. Each request asks Redis (`atomic`). If a
/// round trip is too slow, `lease` takes units in blocks.
const LIMITS: &str = "
domain: shop
tollgate:
  store: redis
  mode: atomic
  processes: 2          # so that each has its half while Redis is away
  on_failure: local
  timeout: 1s           # of a busy machine; 40ms is the default
descriptors:
  - key: remote_address
    rate_limit: { unit: hour, requests_per_unit: 10, algorithm: gcra, name: per-address }
";
const LIMIT: usize = 10;

type Fallible<T> = Result<T, Box<dyn Error>>;

fn app(rules: Arc<Rules>) -> Fallible<Router> {
    // Clients connect directly. Behind a proxy, use `ClientIp::x_forwarded_for(Proxies::hops(1))`.
    let by_client =
        ClientIp::peer().peer_from(|extensions| Some(extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip()));
    let limits = RateLimitLayer::rules(rules, "shop", move |head, descriptors| {
        descriptors.begin().address("remote_address", by_client.key(head)?);
        Some(())
    })?;
    // The check sends a request to Redis and awaits the answer.
    Ok(Router::new().route("/", get(async || "hello\n")).layer(limits.fields_on_allowed(true).awaited()))
}

#[tokio::main]
async fn main() -> Fallible<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (redis, port) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--once"] => return once().await,
        [redis, port] => (
            redis,
            port.parse().map_err(|_| {
                format!("{port:?} is not a port; use 0 to 65535, where 0 takes any free port")
            })?,
        ),
        _ => return Err("pass the address of a Redis server and a port, or --once".into()),
    };
    // The store connects at the first check, and reconnects after a failure.
    let client = Client::open(redis)?;
    let rules = Rules::builder().shared(client).load([Config::from_yaml("limits.yaml", LIMITS)?])?;

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    println!("http://{}", listener.local_addr()?);
    let service = app(Arc::new(rules))?.into_make_service_with_connect_info::<SocketAddr>();
    Ok(serve(listener, service).await?)
}

/// A child process, which is stopped when this value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a Redis server on a free port, in its own directory. Returns its address, or `None` if no Redis server is
/// installed.
async fn start_redis(dir: &std::path::Path) -> Fallible<Option<(Running, String)>> {
    for _ in 0..20 {
        let port = StdListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(dir);
        let process = match command.stdin(Stdio::null()).stdout(Stdio::null()).spawn() {
            Ok(process) => process,
            Err(error) => {
                eprintln!("SKIPPED: redis-server cannot be started ({error})");
                return Ok(None);
            }
        };
        let mut process = Running(process);
        // Wait until the server is up. It ends early if another process took the port.
        while process.0.try_wait()?.is_none() {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(Some((process, format!("redis://127.0.0.1:{port}/"))));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Err("redis-server did not start".into())
}

/// Starts this program again as a server on a free port, and returns its address.
fn start_server(redis: &str) -> Fallible<(Running, String)> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut process = Running(command.args([redis, "0"]).stdout(Stdio::piped()).spawn()?);
    let output = process.0.stdout.take().ok_or("the server has no standard output")?;
    let mut address = String::new();
    BufReader::new(output).read_line(&mut address)?;
    if address.is_empty() {
        return Err("the server did not start".into());
    }
    Ok((process, address.trim_end().to_owned()))
}

type Http = HttpClient<HttpConnector, Empty<bytes::Bytes>>;

async fn ask(client: &Http, address: &str) -> Fallible<Response<Incoming>> {
    Ok(client.get(address.parse()?).await?)
}

/// Sends this number of requests to each process, in turn. Returns the number that each admitted, and the last
/// denial.
async fn ask_both(
    client: &Http,
    servers: [&str; 2],
    times: usize,
) -> Fallible<([usize; 2], Response<Incoming>)> {
    let (mut admitted, mut refusal) = ([0; 2], None);
    for _ in 0..times {
        for (server, admitted) in servers.iter().zip(&mut admitted) {
            let response = ask(client, server).await?;
            match response.status() {
                StatusCode::OK => *admitted += 1,
                StatusCode::TOO_MANY_REQUESTS => refusal = Some(response),
                other => return Err(format!("{server} answers {other}").into()),
            }
        }
    }
    Ok((admitted, refusal.ok_or("no request was denied")?))
}

async fn once() -> Fallible<()> {
    let dir = tempfile::tempdir()?;
    let Some((mut redis, url)) = start_redis(dir.path()).await? else { return Ok(()) };
    let (one, first) = start_server(&url)?;
    let (other, second) = start_server(&url)?;
    println!("Redis is process {} at {url}", redis.0.id());
    println!("The servers are processes {} at {first} and {} at {second}\n", one.0.id(), other.0.id());
    let client: Http = HttpClient::builder(TokioExecutor::new()).build_http();

    let ([a, b], refusal) = ask_both(&client, [&first, &second], LIMIT).await?;
    println!(
        "Of {} requests, the first server admitted {a} and the second {b}: {} in total",
        2 * LIMIT,
        a + b
    );
    println!("The last request was denied with {}", refusal.status());
    for (name, value) in refusal.headers() {
        println!("    {name}: {}", value.to_str()?);
    }
    for field in ["retry-after", "ratelimit", "ratelimit-policy"] {
        if !refusal.headers().contains_key(field) {
            return Err(format!("a denial has no {field}").into());
        }
    }
    let field = refusal.headers()["ratelimit"].to_str()?.to_owned();
    let body = refusal.into_body().collect().await?.to_bytes();
    println!("    {}\n", String::from_utf8_lossy(&body));
    if a + b != LIMIT || !field.starts_with("\"per-address\";r=0") {
        return Err(format!("the servers admitted {a} and {b} requests, with ratelimit: {field}").into());
    }

    redis.0.kill()?;
    redis.0.wait()?;
    let ([a, b], refusal) = ask_both(&client, [&first, &second], LIMIT).await?;
    println!(
        "Redis was stopped. Of {} more requests, the servers admitted {a} and {b}, half of the limit each.",
        2 * LIMIT
    );
    let wait = refusal.headers().get("retry-after").ok_or("a denial has no retry-after")?;
    println!("The other requests were denied, with retry-after: {} seconds", wait.to_str()?);
    if [a, b] != [LIMIT / 2; 2] {
        return Err(format!("without Redis, the servers admitted {a} and {b}").into());
    }
    // All child processes have been stopped by now, or are stopped here by their own ids.
    drop([one, other]);
    Ok(())
}
