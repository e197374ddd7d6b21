//! Redis servers for tests. Each server listens on a free loopback port, runs in its own directory, and is stopped by
//! its process id. The environment variable `TOLLGATE_REDIS_SERVER` names the server's program, for example the path of
//! a `valkey-server`. Without it, the tests use the `redis-server` on the search path.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::skipped::skip;
use tempfile::TempDir;

/// The time limit for a server to start, and for a cluster to agree.
const PATIENCE: Duration = Duration::from_secs(60);

/// The period of a window that does not end during a test: windows begin by the clock, and the present one of 70 years ends
/// in 2039.
pub const NO_END: Duration = Duration::from_secs(70 * 365 * 86_400);

/// A Redis server, which stops when this value is dropped.
#[derive(Debug)]
pub struct Server {
    process: Child,
    port: u16,
    dir: TempDir,
    options: Vec<String>,
}

impl Server {
    /// Starts a server. Without `redis-server`, reports that the test skips and returns `None`.
    #[track_caller]
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Starts a server with more command-line options.
    #[track_caller]
    pub fn start_with(options: &[&str]) -> Option<Self> {
        if let Err(error) = Command::new(program()).arg("--version").stdout(Stdio::null()).status() {
            skip(&format!(
                "no redis-server could be run ({error}); install it (Debian: apt-get install redis-server)"
            ));
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory for the server");
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        // Another process may take a port between its choice and its use.
        for _ in 0..20 {
            let port = free_port();
            let mut process = spawn(port, dir.path(), &options);
            if wait_until_up(&mut process, port) {
                return Some(Self { process, port, dir, options });
            }
            let _ = process.kill();
            let _ = process.wait();
        }
        panic!("redis-server does not start: {}", log(dir.path()));
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Opens a connection for the test's own commands.
    pub fn connection(&self) -> redis::Connection {
        let client = redis::Client::open(self.url()).expect("an address");
        client.get_connection().expect("the server is up")
    }

    /// Runs one command for the test.
    pub fn command<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.query(&mut self.connection()).expect("the server answers")
    }

    /// Runs one command for the test, at a server with a password.
    ///
    /// # Errors
    /// The errors of the client library.
    pub fn ask<T: redis::FromRedisValue>(&self, password: &str, words: &[&str]) -> redis::RedisResult<T> {
        let url = self.url().replace("redis://", &format!("redis://:{password}@"));
        let mut connection =
            redis::Client::open(url)?.get_connection_with_timeout(Duration::from_millis(500))?;
        redis::Cmd::new().arg(words).query(&mut connection)
    }

    /// Returns the number of writes that the server has made.
    pub fn writes(&self) -> u64 {
        let info: String = self.command(&["INFO", "persistence"]);
        let line = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
        line.and_then(|count| count.trim().parse().ok()).expect("the server counts its writes")
    }

    /// Starts a Sentinel with the lines of its file. Without `redis-server`, this panics.
    pub fn start_sentinel(settings: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory for the Sentinel");
        let conf = dir.path().join("sentinel.conf");
        for _ in 0..20 {
            let port = free_port();
            // A Sentinel writes to its file.
            let own = format!("port {port}\nbind 127.0.0.1\ndir {}\n", dir.path().display());
            std::fs::write(&conf, own + settings).expect("a file for the Sentinel");
            let mut command = Command::new(program());
            command.arg(&conf).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null());
            let mut process = command.spawn().expect("redis-server can be run");
            if wait_until_up(&mut process, port) {
                return Self { process, port, dir, options: Vec::new() };
            }
            let _ = process.kill();
            let _ = process.wait();
        }
        panic!("the Sentinel does not start");
    }

    /// Kills the server, which saves nothing.
    pub fn kill(&mut self) {
        self.process.kill().expect("the server can be killed");
        self.process.wait().expect("the server ends");
    }

    /// Kills the server through a shared reference. It ends when this value is dropped.
    pub fn stop_process(&self) {
        self.signal("KILL");
    }

    /// Pauses the server: its connections stay open, and it answers nothing.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Resumes the server after a pause.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        let status = Command::new("kill").args(["-s", signal, &pid]).status().expect("kill can be run");
        assert!(status.success(), "process {pid} takes a signal");
    }

    /// Starts the server again on its port, without data.
    pub fn restart(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            self.process = spawn(self.port, self.dir.path(), &self.options);
            if wait_until_up(&mut self.process, self.port) {
                return;
            }
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
        panic!("the server does not start again: {}", log(self.dir.path()));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a free port below 55,000. A cluster node also needs the port 10,000 above.
fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        if port < 55_000 {
            return port;
        }
    }
}

/// Returns the server's program.
fn program() -> OsString {
    std::env::var_os("TOLLGATE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

fn spawn(port: u16, dir: &Path, options: &[String]) -> Child {
    let log = File::options().create(true).append(true).open(dir.join("log")).expect("a file for its log");
    let port = port.to_string();
    let own =
        ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"];
    let mut command = Command::new(program());
    command.args(own).arg("--dir").arg(dir).args(options);
    command.stdin(Stdio::null()).stderr(log.try_clone().expect("a second handle")).stdout(log);
    command.spawn().expect("redis-server can be run")
}

fn wait_until_up(process: &mut Child, port: u16) -> bool {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if process.try_wait().expect("the process belongs to this test").is_some() {
            return false;
        }
        if is_up(port) {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Returns whether a server answers on this port.
fn is_up(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_millis(500)));
    let mut answer = [0; 5];
    // A server with a password asks for it.
    stream.write_all(b"PING\r\n").is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && (&answer == b"+PONG" || &answer == b"-NOAU")
}

fn log(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("log")).unwrap_or_default()
}

/// A cluster of three masters with replicas, which stops when this value is dropped.
#[derive(Debug)]
pub struct Cluster {
    pub nodes: Vec<Server>,
}

impl Cluster {
    /// Starts three masters. Without `redis-server`, reports that the test skips and returns `None`.
    #[track_caller]
    pub fn start() -> Option<Self> {
        Self::start_with_replicas(0)
    }

    /// Starts three masters with `replicas` replicas each. A replica takes over about a second after its master
    /// fails.
    #[track_caller]
    pub fn start_with_replicas(replicas: usize) -> Option<Self> {
        Self::start_with(&[], replicas)
    }

    /// Starts three masters with more command-line options, and `replicas` replicas each.
    #[track_caller]
    pub fn start_with(options: &[&str], replicas: usize) -> Option<Self> {
        // A busy machine may stop a node for a second, and then the others refuse all keys. Without replicas, no test waits for that.
        let timeout = if replicas == 0 { "30000" } else { "1000" };
        let own = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            timeout,
            "--repl-diskless-sync-delay",
            "0",
        ];
        let options = [&own, options].concat();
        let mut nodes = Vec::new();
        for _ in 0..3 + 3 * replicas {
            nodes.push(Server::start_with(&options)?);
        }
        let cluster = Self { nodes };
        let addresses = cluster.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port));
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]).args(addresses);
        create.args(["--cluster-replicas", &replicas.to_string(), "--cluster-yes"]);
        let output = create.output().expect("redis-cli can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        cluster.until(|node| node.contains("cluster_state:ok"));
        cluster.until_replicas_have_data();
        Some(cluster)
    }

    /// Waits until every replica has its first copy of the data. Before that, a replica never takes over.
    fn until_replicas_have_data(&self) {
        let started = Instant::now();
        for node in &self.nodes {
            let is_ready =
                |info: String| info.contains("role:master") || info.contains("master_link_status:up");
            while !is_ready(node.command(&["INFO", "replication"])) {
                assert!(started.elapsed() < PATIENCE, "a replica gets no data within {PATIENCE:?}");
                thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Returns the addresses of all nodes.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// Waits until `says` accepts the cluster information of every node that is up.
    pub fn until(&self, says: impl Fn(&str) -> bool) {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let up = self.nodes.iter().filter(|node| is_up(node.port));
            if up.into_iter().all(|node| says(&node.command::<String>(&["CLUSTER", "INFO"]))) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("the cluster does not agree within {PATIENCE:?}");
    }
}

/// A master, its replica, and three Sentinels, which all stop when this value is dropped. A replica takes over one to
/// three seconds after the Sentinels lose the master.
#[derive(Debug)]
pub struct Sentinels {
    /// The master at the start.
    pub master: Server,
    /// Its replica.
    pub replica: Server,
    /// The three Sentinels.
    pub sentinels: Vec<Server>,
}

impl Sentinels {
    /// Starts the servers. The servers have the password `data`, and the Sentinels the password `watch`. Without
    /// `redis-server`, reports that the test skips and returns `None`.
    #[track_caller]
    pub fn start() -> Option<Self> {
        let password = ["--requirepass", "data", "--masterauth", "data", "--repl-diskless-sync-delay", "0"];
        let master = Server::start_with(&password)?;
        let port = master.port.to_string();
        let replica = Server::start_with(&[&password[..], &["--replicaof", "127.0.0.1", &port]].concat())?;
        let settings = format!(
            "sentinel monitor mymaster 127.0.0.1 {port} 2\nsentinel auth-pass mymaster data\n\
             sentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 3000\n\
             requirepass watch\nsentinel sentinel-pass watch\n"
        );
        let sentinels = (0..3).map(|_| Server::start_sentinel(&settings)).collect();
        let all = Self { master, replica, sentinels };
        all.until(|info| info.contains("slaves=1,sentinels=3"));
        let is_ready = |info: String| info.contains("master_link_status:up");
        let started = Instant::now();
        while !is_ready(all.replica.ask("data", &["INFO", "replication"]).unwrap_or_default()) {
            assert!(started.elapsed() < PATIENCE, "the replica gets no data within {PATIENCE:?}");
            thread::sleep(Duration::from_millis(20));
        }
        Some(all)
    }

    /// Returns an address with the passwords and all Sentinels.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(|one| format!("127.0.0.1:{}", one.port)).collect();
        format!("redis-sentinel://:data@{}/mymaster?auth=watch", hosts.join(","))
    }

    /// Waits until `says` accepts what each Sentinel says about the master.
    pub fn until(&self, says: impl Fn(&str) -> bool) {
        let started = Instant::now();
        while !self
            .sentinels
            .iter()
            .all(|one| one.ask("watch", &["INFO", "sentinel"]).is_ok_and(|info: String| says(&info)))
        {
            assert!(started.elapsed() < PATIENCE, "the Sentinels do not agree within {PATIENCE:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until each Sentinel names the replica as the master.
    pub fn until_replica_takes_over(&self) {
        let address = format!("address=127.0.0.1:{}", self.replica.port);
        self.until(|info| info.contains(&address));
    }
}

/// A proxy between a client and a server, which can be slow or fail.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: u16,
    /// The delay of every piece of data in either direction, in microseconds.
    delay_us: AtomicU64,
    /// Whether the proxy drops all data.
    silent: AtomicBool,
    /// Whether the proxy closes new connections at once.
    refusing: AtomicBool,
    /// The bytes of answers that the proxy forwards before it cuts all connections; `u64::MAX` for no limit.
    cut_after: AtomicU64,
    /// The number of connections so far, and the number of the last connection whose data the proxy drops.
    made: AtomicU64,
    forgotten: AtomicU64,
    done: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Starts a proxy to a server's port, at first without delays or failures.
    pub fn start(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        let shared = Arc::new(Shared {
            server,
            delay_us: AtomicU64::new(0),
            silent: AtomicBool::new(false),
            refusing: AtomicBool::new(false),
            cut_after: AtomicU64::new(u64::MAX),
            made: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
            done: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener));
        Self { port, shared }
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Delays every piece of data in both directions.
    pub fn delay(&self, delay: Duration) {
        self.shared.delay_us.store(delay.as_micros().try_into().expect("a short delay"), Ordering::SeqCst);
    }

    /// Drops all data from now on, on old and new connections, or stops doing so.
    pub fn silence(&self, silent: bool) {
        self.shared.silent.store(silent, Ordering::SeqCst);
    }

    /// Drops all data on the existing connections without closing them. New connections work.
    pub fn forget_old(&self) {
        self.shared.forgotten.store(self.shared.made.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Cuts all connections and refuses new ones, or accepts new ones again.
    pub fn refuse(&self, refusing: bool) {
        self.shared.refusing.store(refusing, Ordering::SeqCst);
        if refusing {
            self.cut();
        }
    }

    /// Cuts all connections now. New connections work.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Forwards `bytes` more bytes of answers, and then cuts all connections once, in the middle of an answer.
    pub fn cut_after(&self, bytes: u64) {
        self.shared.cut_after.store(bytes, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.done.store(true, Ordering::SeqCst);
        self.shared.cut();
        // Wakes the accepting thread.
        let _ = TcpStream::connect_timeout(
            &SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)),
            Duration::from_secs(1),
        );
    }
}

impl Shared {
    fn cut(&self) {
        for stream in self.streams.lock().expect("no thread panics while it holds this lock").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.done.load(Ordering::SeqCst) {
                return;
            }
            let Ok(client) = client else { continue };
            if self.refusing.load(Ordering::SeqCst) {
                continue;
            }
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.server)) else { continue };
            let number = self.made.fetch_add(1, Ordering::SeqCst) + 1;
            let mut streams = self.streams.lock().expect("no thread panics while it holds this lock");
            for (from, to, answers) in [(&client, &server, false), (&server, &client, true)] {
                let _ = from.set_nodelay(true);
                let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
                let shared = Arc::clone(self);
                thread::spawn(move || shared.carry(from, to, answers, number));
            }
            streams.extend([client, server]);
        }
    }

    fn carry(&self, mut from: TcpStream, mut to: TcpStream, answers: bool, number: u64) {
        let mut piece = [0; 16 * 1024];
        loop {
            let length = match from.read(&mut piece) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let delay = self.delay_us.load(Ordering::SeqCst);
            if delay > 0 {
                thread::sleep(Duration::from_micros(delay));
            }
            if self.silent.load(Ordering::SeqCst) || number <= self.forgotten.load(Ordering::SeqCst) {
                continue;
            }
            let through = if answers { self.through(length) } else { length };
            if to.write_all(&piece[..through]).is_err() {
                break;
            }
            if through < length {
                self.cut();
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    /// Returns how many bytes of an answer of this length the proxy forwards.
    fn through(&self, length: usize) -> usize {
        let left = self.cut_after.load(Ordering::SeqCst);
        if left == u64::MAX {
            return length;
        }
        let through = length.min(usize::try_from(left).unwrap_or(usize::MAX));
        let next = if through < length { u64::MAX } else { left - through as u64 };
        self.cut_after.store(next, Ordering::SeqCst);
        through
    }
}
