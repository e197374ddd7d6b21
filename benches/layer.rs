//! How much does the layer add to the cost of a request to an axum server?
//!
//! ```text
//! cargo bench --bench layer                the tables
//! cargo bench --bench layer -- --quick     fewer rounds
//! cargo bench --bench layer -- --json FILE   and the same as JSON
//! ```
//! * **Over loopback**: one server for each row, HTTP/1.1, on connections that stay open. The rows take turns. Each
//!   request is timed from its first byte written to the last byte of its answer. The client and all servers run in one
//!   thread. With several connections, the client sends one request on each of them at once, and divides the time by
//!   their number. The table shows the median of each round. A ratio is the median of the rounds' ratios, with the
//!   first and the ninth decile. The quiet ratio is that of the rounds in which the row without a layer is within 10 %
//!   of its own minimum.
//! * **In process**: calls the router without a network. The difference between two rows is the layer's own time.
//! * Every request is admitted. Where a header names the client, it has one of 1,000 addresses. The client writes and
//!   reads raw bytes. With a client that parses, a request would cost more and the layer's share would be smaller.
//! * Known bias: the server does nothing else, so the layer's tables stay in the caches.

#[path = "peers/summary.rs"]
#[allow(dead_code, reason = "made for peers.rs")]
mod summary;
mod support;

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get;
use axum::{Router, serve};
use http::{Extensions, Request, StatusCode};
use serde_json::json;
use summary::Ratio;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate::{Quota, RateLimiter};
use tollgate_tower::{ClientIp, IpNet, Proxies, RateLimitLayer};
use tower::Service;
use tower::util::MapRequestLayer;

/// A quota that no client uses up.
const PLENTY: Quota = Quota::per_second(1_000_000).burst(2_000_000);
const CLIENTS: usize = 1_000;
const ANSWER: &[u8] = b"hello";
const OFF: &str = "without";
const NOTHING: &str = "one that does nothing";
const ON: &str = "by peer";
const RULES: &str = "by two rules, by peer";

fn connected(extensions: &Extensions) -> Option<IpAddr> {
    Some(extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip())
}

fn by_peer() -> ClientIp {
    ClientIp::peer().peer_from(connected)
}

fn by_header() -> ClientIp {
    let networks: [IpNet; 2] =
        ["127.0.0.0/8", "10.0.0.0/8"].map(|text| text.parse().expect("a valid network"));
    ClientIp::x_forwarded_for(Proxies::networks(networks)).peer_from(connected)
}

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

/// The layer as in `crates/tower/examples/axum_layer.rs`.
fn limited(client: ClientIp, fields_on_allowed: bool) -> Router {
    let layer = RateLimitLayer::new(RateLimiter::new(PLENTY), client).policy("per-client", PLENTY);
    let layer = layer.exempt(|head| head.path() == "/health").fields_on_allowed(fields_on_allowed);
    hello().layer(layer)
}

/// With two rules of a file: one per client, and one per client and path.
#[cfg(feature = "rules")]
fn by_rules() -> Router {
    use tollgate_rules::{Config, Rules};
    use tollgate_tower::KeyExtractor as _;

    let text = "
domain: bench
tollgate: {}
descriptors:
  - key: remote_address
    rate_limit: { unit: second, requests_per_unit: 1000000, algorithm: gcra, burst: 2000000 }
  - key: path
    value: /
    descriptors:
      - key: remote_address
        rate_limit: { unit: minute, requests_per_unit: 100000000 }
";
    let config = Config::from_yaml("bench.yaml", text).unwrap_or_else(|error| panic!("{error}"));
    let rules = Rules::builder().load([config]).unwrap_or_else(|error| panic!("{error}"));
    let client = by_peer();
    let layer = RateLimitLayer::rules(std::sync::Arc::new(rules), "bench", move |head, descriptors| {
        let address = client.key(head)?;
        descriptors.begin().address("remote_address", address);
        descriptors.begin().entry("path", head.path()).address("remote_address", address);
        Some(())
    });
    hello().layer(layer.unwrap_or_else(|error| panic!("{error}")))
}

fn rows() -> Vec<(&'static str, Router)> {
    vec![
        (OFF, hello()),
        (NOTHING, hello().layer(MapRequestLayer::new(|request: Request<Body>| request))),
        (ON, limited(by_peer(), false)),
        ("by X-Forwarded-For", limited(by_header(), false)),
        ("by peer, with fields", limited(by_peer(), true)),
        #[cfg(feature = "rules")]
        (RULES, by_rules()),
    ]
}

fn forwarded_for(client: usize) -> String {
    format!("203.0.{}.{}, 10.0.0.1", client / 250, client % 250)
}

/// The server of a row, and connections to it.
struct Served {
    name: &'static str,
    connections: Vec<TcpStream>,
}

impl Served {
    async fn start(name: &'static str, app: Router, connections: usize) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(serve(listener, service).into_future());
        let mut streams = Vec::new();
        for _ in 0..connections {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        Ok(Self { name, connections: streams })
    }

    /// Sends one request on each connection, and returns the nanoseconds per request.
    async fn ask(&mut self, request: &[u8]) -> std::io::Result<f64> {
        let start = support::stopwatch();
        for stream in &mut self.connections {
            stream.write_all(request).await?;
        }
        let mut answer = [0; 1_024];
        for stream in &mut self.connections {
            let mut length = 0;
            while !answer[..length].ends_with(ANSWER) {
                match stream.read(&mut answer[length..]).await? {
                    0 => return Err(std::io::Error::other("the server closed the connection")),
                    more => length += more,
                }
            }
            assert!(answer.starts_with(b"HTTP/1.1 200"), "{}: {}", self.name, answer.escape_ascii());
        }
        Ok(start.elapsed().as_secs_f64() * 1e9 / self.connections.len() as f64)
    }
}

/// The medians of a row, one per round.
struct Row {
    name: &'static str,
    rounds: Vec<f64>,
}

struct Table {
    title: String,
    rows: Vec<Row>,
}

fn quantile(mut values: Vec<f64>, tenths: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * tenths / 10).copied().unwrap_or(f64::NAN)
}

fn median(values: Vec<f64>) -> f64 {
    quantile(values, 5)
}

impl Table {
    fn new(title: String) -> Self {
        Self { title, rows: rows().into_iter().map(|(name, _)| Row { name, rounds: Vec::new() }).collect() }
    }

    /// Returns the ratios to the first row, one per round.
    fn ratios(&self, row: &Row) -> Vec<f64> {
        row.rounds.iter().zip(&self.rows[0].rounds).map(|(round, base)| round / base).collect()
    }

    /// Returns the ratio to the first row.
    fn ratio(&self, row: &Row) -> Ratio {
        let base = &self.rows[0].rounds;
        Ratio::of(&row.rounds, base, base)
    }

    fn print(&self) {
        println!("\n## {}\n", self.title);
        println!("| layer | ns | ratio | 10 % | 90 % | quiet | quiet rounds |");
        println!("|---|---:|---:|---:|---:|---:|---:|");
        for row in &self.rows {
            let ratios = self.ratios(row);
            let at = |tenths| quantile(ratios.clone(), tenths);
            let ns = median(row.rounds.clone());
            let Ratio { quiet, quiet_rounds, .. } = self.ratio(row);
            println!(
                "| {} | {ns:.0} | {:.3} | {:.3} | {:.3} | {quiet:.3} | {quiet_rounds} |",
                row.name,
                at(5),
                at(1),
                at(9)
            );
        }
    }

    fn json(&self) -> serde_json::Value {
        let rows = self.rows.iter().map(|row| {
            let Ratio { all, quiet, quiet_rounds } = self.ratio(row);
            json!({
                "layer": row.name, "ns": median(row.rounds.clone()), "ratio": all.median, "quiet": quiet,
                "quiet_rounds": quiet_rounds,
            })
        });
        json!({ "title": self.title, "rows": rows.collect::<Vec<_>>() })
    }
}

async fn loopback(connections: usize, rounds: usize, requests: usize) -> std::io::Result<Table> {
    let mut servers = Vec::new();
    for (name, app) in rows() {
        servers.push(Served::start(name, app, connections).await?);
    }
    let texts: Vec<String> = (0..CLIENTS)
        .map(|client| {
            format!("GET / HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: {}\r\n\r\n", forwarded_for(client))
        })
        .collect();
    let mut table = Table::new(format!("Over loopback, {connections} connection(s)"));
    // The first round only warms up.
    for round in 0..=rounds {
        let mut times = vec![Vec::with_capacity(requests); servers.len()];
        for number in 0..requests {
            for turn in 0..servers.len() {
                // Each row follows each of the others equally often.
                let row = if number % 2 == 0 { turn } else { servers.len() - 1 - turn };
                let row = (row + number / 2) % servers.len();
                times[row].push(servers[row].ask(texts[number % CLIENTS].as_bytes()).await?);
            }
        }
        if round > 0 {
            for (row, times) in table.rows.iter_mut().zip(times) {
                row.rounds.push(median(times));
            }
        }
    }
    Ok(table)
}

fn request(client: usize) -> Request<Body> {
    let peer = SocketAddr::from(([127, 0, 0, 1], 9));
    let request = Request::builder().header("x-forwarded-for", forwarded_for(client));
    request.extension(ConnectInfo(peer)).body(Body::empty()).expect("a valid request")
}

/// Times small batches. Building the requests is not part of the time.
async fn in_process(rounds: usize, batch: usize) -> Table {
    let mut routers = rows();
    let mut table = Table::new("In process".to_owned());
    for round in 0..=rounds {
        for turn in 0..routers.len() {
            let row = (turn + round) % routers.len();
            let router = &mut routers[row].1;
            let requests: Vec<_> = (0..batch).map(|number| request(number % CLIENTS)).collect();
            let start = support::stopwatch();
            for request in requests {
                let response = router.call(request).await.expect("the router does not fail");
                assert_eq!(black_box(response).status(), StatusCode::OK);
            }
            let ns = start.elapsed().as_secs_f64() * 1e9 / batch as f64;
            if round > 0 {
                table.rows[row].rounds.push(ns);
            }
        }
    }
    table
}

fn main() -> std::io::Result<()> {
    // Cargo passes `--bench` for a bench run. Without it (as in `cargo test --benches`), this is only a short test run
    // of all rows.
    let smoke = !support::has("--bench");
    let (rounds, requests) = match (smoke, support::has("--quick")) {
        (true, _) => (1, 20),
        (false, true) => (11, 1_000),
        (false, false) => (31, 4_000),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tables = runtime.block_on(async {
        let mut tables = Vec::new();
        for connections in [1, 16] {
            tables.push(loopback(connections, rounds, requests / connections.min(4)).await?);
        }
        // A batch is so small that the requests, which are built beforehand, stay in the caches.
        tables.push(in_process(rounds * requests / 100 + 1, 100).await);
        std::io::Result::Ok(tables)
    })?;
    tables.iter().for_each(Table::print);
    // The targets are for the rows without fields, over loopback.
    println!("\n## Targets\n");
    let mut targets = Vec::new();
    for (table, (name, bound)) in
        tables[..2].iter().flat_map(|table| [(table, (ON, 1.03)), (table, (RULES, 1.06))])
    {
        let Some(row) = table.rows.iter().find(|row| row.name == name) else { continue };
        let ratio @ Ratio { all, quiet, quiet_rounds } = table.ratio(row);
        let holds = ratio.decisive() <= bound;
        let verdict = if holds { "holds" } else { "does not hold" };
        targets.push(json!({
            "target": format!("{}: {name} against without", table.title), "bound": bound,
            "value": { "median": all.median, "quiet": quiet, "quiet_rounds": quiet_rounds }, "holds": holds,
        }));
        println!(
            "- {}, {name}: {:.3} of the cost without the layer, {quiet:.3} in {quiet_rounds} quiet rounds, at most {bound:.3}: {verdict}",
            table.title, all.median
        );
    }
    if let Some(path) = support::option("--json") {
        let report =
            json!({ "tables": tables.iter().map(Table::json).collect::<Vec<_>>(), "targets": targets });
        support::write(&path, &format!("{report:#}\n"));
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}
