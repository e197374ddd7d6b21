//! Each test runs in a process of its own, whose environment variable `SSL_CERT_FILE` names the trusted authority.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tollgate::Quota;
use tollgate_redis::{Blocking, Client, DecidedBy, ErrorKind, Limit, OnFailure};
use tollgate_testing::redis::Server;
use tollgate_testing::skipped::skip;

const PATIENCE: Duration = Duration::from_secs(30);
/// Set in the process that runs a test: the directory of the certificates.
const DIRECTORY: &str = "TOLLGATE_TLS_DIRECTORY";

/// Makes two authorities, and certificates by the first one: for the name `localhost`, for the address `127.0.0.1`, and
/// for a client.
fn make_certificates(dir: &Path) -> std::io::Result<()> {
    let openssl = |words: &str| {
        let output = Command::new("openssl").current_dir(dir).args(words.split(' ')).output()?;
        assert!(output.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&output.stderr));
        Ok::<_, std::io::Error>(())
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for authority in ["authority", "other"] {
        openssl(&format!(
            "req -x509 {key} -days 2 -subj /CN={authority} -keyout {authority}.key -out {authority}.pem"
        ))?;
    }
    for (name, is_for) in [("name", "DNS:localhost"), ("address", "IP:127.0.0.1"), ("client", "DNS:client")] {
        openssl(&format!("req {key} -subj /CN={name} -keyout {name}.key -out {name}.csr"))?;
        std::fs::write(
            dir.join("extensions"),
            format!("subjectAltName={is_for}\nbasicConstraints=CA:FALSE\n"),
        )?;
        openssl(&format!(
            "x509 -req -in {name}.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 \
             -extfile extensions -out {name}.pem"
        ))?;
    }
    Ok(())
}

/// Runs `body` in a new process of this test, which trusts the authority `trusted`.
#[track_caller]
fn trusting(trusted: &str, test: &str, body: impl FnOnce(&Path)) {
    if let Some(dir) = std::env::var_os(DIRECTORY) {
        return body(Path::new(&dir));
    }
    let dir = tempfile::tempdir().expect("a directory for certificates");
    if let Err(error) = make_certificates(dir.path()) {
        return skip(&format!(
            "no openssl could be run ({error}); install it (Debian: apt-get install openssl)"
        ));
    }
    let this = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(this);
    command.args([&format!("tests::{test}"), "--exact", "--nocapture"]);
    command.env(DIRECTORY, dir.path()).env("SSL_CERT_FILE", dir.path().join(trusted));
    let output = command.output().expect("this program runs");
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}{stderr}");
    if let Some(line) = stderr.lines().find(|line| line.starts_with("SKIPPED")) {
        skip(line.split_once("): ").map_or(line, |(_, why)| why));
    }
}

/// A server that also listens for TLS.
struct TlsServer {
    plain: Server,
    port: u16,
}

impl TlsServer {
    /// `certificate` is the server's. The server asks clients for a certificate if `asks_clients`.
    #[track_caller]
    fn start(dir: &Path, certificate: &str, asks_clients: bool, options: &[&str]) -> Option<Self> {
        let path = |name: String| dir.join(name).into_os_string().into_string().expect("a path in UTF-8");
        let files = [
            path(format!("{certificate}.pem")),
            path(format!("{certificate}.key")),
            path("authority.pem".to_owned()),
        ];
        let port = loop {
            // The bus of a Cluster uses the port 10,000 above.
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let port = listener.local_addr().expect("a bound listener has an address").port();
            if port < 55_000 {
                break port;
            }
        };
        let asks = if asks_clients { "yes" } else { "no" };
        let tls_port = port.to_string();
        let mut words =
            vec!["--tls-port", &tls_port, "--tls-cert-file", &files[0], "--tls-key-file", &files[1]];
        words.extend(["--tls-ca-cert-file", &files[2], "--tls-auth-clients", asks]);
        words.extend(options);
        if !has_tls() {
            skip("the redis-server was built without TLS");
            return None;
        }
        Some(Self { plain: Server::start_with(&words)?, port })
    }

    fn url(&self, host: &str) -> String {
        format!("rediss://{host}:{}/", self.port)
    }
}

/// Returns whether the server was built with TLS. A server without it does not know the option, or ends. A server with
/// it answers that certificates are missing.
fn has_tls() -> bool {
    let Some(server) = Server::start() else { return false };
    let known: Vec<String> = server.command(&["CONFIG", "GET", "tls-port"]);
    let mut set = redis::cmd("CONFIG");
    set.arg(&["SET", "tls-port", "1"]);
    let answer: redis::RedisResult<()> = set.query(&mut server.connection());
    !known.is_empty() && answer.is_err_and(|error| !error.is_io_error())
}

macro_rules! limiter {
    ($client:expr) => {
        $client
            .limiter("tls", Limit::gcra(Quota::per_hour(10)))
            .timeout(PATIENCE)
            .on_failure(OnFailure::Closed)
            .atomic()
            .unwrap()
    };
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Asserts that the server decides with both clients.
fn assert_decides(client: &Client, blocking: &Blocking<Client>) {
    let (limiter, blocking) = (limiter!(client), limiter!(blocking));
    for key in 0..50_u64 {
        assert_eq!(blocking.check(&key).by(), DecidedBy::Server, "{:?}", blocking.health());
    }
    runtime().block_on(async {
        for key in 0..50_u64 {
            assert_eq!(limiter.check(&key).await.by(), DecidedBy::Server, "{:?}", limiter.health());
        }
    });
}

/// Returns the error of a call, which must come long before the time-out.
fn error(client: &Blocking<Client>) -> String {
    let began = Instant::now();
    let error = limiter!(client)
        .block_on(|limiter| limiter.charge_unchecked("a", 1))
        .expect_err("the server must not decide");
    assert!(began.elapsed() < PATIENCE / 2, "{error}");
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    error.to_string()
}

#[test]
fn tls_server_decides() {
    trusting("authority.pem", "tls_server_decides", |dir| {
        for (certificate, host) in [("name", "localhost"), ("address", "127.0.0.1")] {
            let Some(server) = TlsServer::start(dir, certificate, false, &[]) else { return };
            let url = server.url(host);
            assert_decides(&Client::open(&url).unwrap(), &Client::open(&url).unwrap().blocking());
        }
    });
}

#[test]
fn tls_server_of_unknown_authority_is_refused() {
    trusting("other.pem", "tls_server_of_unknown_authority_is_refused", |dir| {
        let Some(server) = TlsServer::start(dir, "name", false, &[]) else { return };
        let error = error(&Client::open(&server.url("localhost")).unwrap().blocking());
        assert!(error.contains("TLS"), "{error}");
    });
}

#[test]
fn tls_certificate_for_other_host_is_refused() {
    trusting("authority.pem", "tls_certificate_for_other_host_is_refused", |dir| {
        let Some(server) = TlsServer::start(dir, "name", false, &[]) else { return };
        let error = error(&Client::open(&server.url("127.0.0.1")).unwrap().blocking());
        assert!(error.contains("TLS"), "{error}");
    });
}

#[test]
fn tls_server_that_asks_for_client_certificate_refuses_url() {
    trusting("authority.pem", "tls_server_that_asks_for_client_certificate_refuses_url", |dir| {
        let Some(server) = TlsServer::start(dir, "name", true, &[]) else { return };
        let error = error(&Client::open(&server.url("localhost")).unwrap().blocking());
        assert!(error.contains("TLS"), "{error}");
    });
}

/// Returns a client of the `redis` crate with a client certificate. It trusts the first authority only by this
/// configuration.
fn with_certificate(dir: &Path, url: &str) -> redis::Client {
    let read = |name| std::fs::read(dir.join(name)).expect("a certificate");
    let client_tls =
        redis::ClientTlsConfig { client_cert: read("client.pem"), client_key: read("client.key") };
    let certificates =
        redis::TlsCertificates { client_tls: Some(client_tls), root_cert: Some(read("authority.pem")) };
    redis::Client::build_with_tls(url, certificates).expect("the certificates are valid")
}

#[test]
fn tls_client_certificate_is_accepted() {
    trusting("other.pem", "tls_client_certificate_is_accepted", |dir| {
        let Some(server) = TlsServer::start(dir, "name", true, &[]) else { return };
        let client = with_certificate(dir, &server.url("localhost"));
        assert_decides(
            &Client::from_redis(&client).unwrap(),
            &Client::from_redis(&client).unwrap().blocking(),
        );
        let Some(nodes) = cluster(dir, "address", true) else { return };
        let client = [with_certificate(dir, &nodes[0].url("127.0.0.1"))];
        assert_decides(
            &Client::cluster_from_redis(&client).unwrap(),
            &Client::cluster_from_redis(&client).unwrap().blocking(),
        );
        assert_each_decided(&nodes);
    });
}

/// Three nodes that talk to each other and to clients by TLS.
fn cluster(dir: &Path, certificate: &str, asks_clients: bool) -> Option<Vec<TlsServer>> {
    let options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--tls-cluster", "yes"];
    let nodes: Vec<_> =
        (0..3).map(|_| TlsServer::start(dir, certificate, asks_clients, &options)).collect::<Option<_>>()?;
    for (at, node) in nodes.iter().enumerate() {
        let (first, last) = ([0, 5_461, 10_923][at], [5_460, 10_922, 16_383][at]);
        let mut add = redis::cmd("CLUSTER");
        add.arg("ADDSLOTS").arg((first..=last).collect::<Vec<u16>>());
        let _: () = add.query(&mut node.plain.connection()).expect("the node takes the slots");
        let (port, bus) = (node.port.to_string(), (node.port + 10_000).to_string());
        let _: () = nodes[0].plain.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    }
    let began = Instant::now();
    for node in &nodes {
        let agrees =
            |info: String| info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3");
        while !agrees(node.plain.command(&["CLUSTER", "INFO"])) {
            assert!(began.elapsed() < PATIENCE, "the nodes do not agree");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Some(nodes)
}

#[test]
fn tls_cluster_decides() {
    trusting("authority.pem", "tls_cluster_decides", |dir| {
        let Some(nodes) = cluster(dir, "address", false) else { return };
        let url = nodes[0].url("127.0.0.1");
        assert_decides(&Client::cluster([&*url]).unwrap(), &Client::cluster([&*url]).unwrap().blocking());
        assert_each_decided(&nodes);
    });
}

/// The certificates name a host and no address, so only clients that use the announced names can connect.
#[test]
fn tls_cluster_with_host_names_decides() {
    trusting("authority.pem", "tls_cluster_with_host_names_decides", |dir| {
        let Some(nodes) = cluster(dir, "name", false) else { return };
        for node in &nodes {
            for (option, value) in
                [("cluster-announce-hostname", "localhost"), ("cluster-preferred-endpoint-type", "hostname")]
            {
                let _: () = node.plain.command(&["CONFIG", "SET", option, value]);
            }
        }
        let began = Instant::now();
        for node in &nodes {
            let map = || format!("{:?}", node.plain.command::<redis::Value>(&["CLUSTER", "SLOTS"]));
            while map().matches("localhost").count() < 3 {
                assert!(began.elapsed() < PATIENCE, "{}", map());
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let url = nodes[0].url("localhost");
        assert_decides(&Client::cluster([&*url]).unwrap(), &Client::cluster([&*url]).unwrap().blocking());
        assert_each_decided(&nodes);
    });
}

/// Asserts that each node ran the script.
fn assert_each_decided(nodes: &[TlsServer]) {
    for node in nodes {
        let calls: String = node.plain.command(&["INFO", "commandstats"]);
        assert!(calls.contains("cmdstat_evalsha"), "{calls}");
    }
}
