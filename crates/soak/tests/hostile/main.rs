//! A hostile day: everything that the service does and everything that goes wrong, at once.
//!
//! Clients whose admissions are known exactly ask by each protocol, while others break rules, files change, operators act, and
//! the process is replaced or killed. The counts of the clients and those of the service must then be the same.
//!
//! TOLLGATE_SOAK_SECONDS is the length, by default a minute, and TOLLGATE_SOAK_SEED repeats the random choices of a run.

mod attacks;
mod clients;
mod ledger;
mod resp;

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::time::{Duration, Instant};

use futures_util::future::{LocalBoxFuture, join_all};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tollgate_testing::compact::Random;
use tollgate_testing::service::client::block_on;
use tollgate_testing::service::{self, FREE, Program};

use clients::Holds;
use ledger::{Ledger, MOVED, RULES};
use resp::Resp;

/// The service with all of its endpoints.
struct Whole;

impl Program for Whole {
    const PATH: &'static str = env!("CARGO_BIN_EXE_tollgate-soak-service");
}

type Server = service::Server<Whole>;
type Place = service::Place<Whole>;

const MS: Duration = Duration::from_millis(1);

/// No answer within this time is none. A busy machine is not so late.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest time of an attack.
const ATTACK: Duration = Duration::from_secs(3);

/// Clients that break rules, at the same time.
const ATTACKERS: usize = 12;

/// The most memory of the process, by [`FLAGS`] and [`rules`]. A rule and a quota have 256 KiB, and three stores have at most
/// 10 MiB for 100,000 keys. A connection has a message of 256 KiB. The rest is that of a process at its start.
const MOST_MEMORY: u64 = 64 << 20;

/// Small bounds, so that they are reached. Each of two users has half of the quotas.
const FLAGS: &str = "--resp 0 --metrics 127.0.0.1:0 --resp-quotas 16 --resp-quota-memory 256KiB --max-message 256KiB --state-every 1s \
                     --deadline 60s --connection-age 20s --drain-deadline 3s";

/// Lines of the log at WARN or ERROR that this day has. Any other is a fault.
const EXPECTED: [&str; 3] =
    ["the earlier rules stay in force", "the earlier users stay in force", "an operator's request from"];

/// A connection to some endpoint.
type Port = Box<dyn Stream>;
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// What happens to a process.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Phase {
    Serving,
    /// All clients stop.
    Resting,
    /// After SIGTERM.
    Draining,
    /// After SIGKILL.
    Killed,
}

/// What happened.
#[derive(Debug, Default)]
struct Counts {
    probes: Cell<u64>,
    attacks: Cell<u64>,
    acts: Cell<u64>,
    /// Connections that were closed without an answer.
    unread: Cell<u64>,
    /// The sums of [`SEEN`] over all processes.
    seen: RefCell<[u64; SEEN.len()]>,
    peak: Cell<u64>,
}

/// Counts of the service that loads and attacks raise.
const SEEN: [&str; 6] = [
    "tollgate_reload_total{result=\"success\"}",
    "tollgate_reload_total{result=\"error\"}",
    "tollgate_service_not_http2_total",
    "tollgate_service_connection_errors_total",
    "tollgate_resp_quotas_refused_total",
    "tollgate_resp_errors_total",
];

fn add(count: &Cell<u64>, more: u64) {
    count.set(count.get() + more);
}

/// What outlives a process.
struct Day {
    place: Place,
    flags: String,
    counts: Counts,
    random: RefCell<Random>,
    ledger: RefCell<Ledger>,
    holds: RefCell<Holds>,
}

impl Day {
    /// Whether all of it has happened, without which the day is not hostile.
    fn has_all(&self) -> bool {
        let (ledger, counts) = (self.ledger.borrow(), &self.counts);
        let own =
            [ledger.admitted, ledger.denied, self.holds.borrow().all, counts.probes.get(), counts.acts.get()];
        own.iter().chain(&*counts.seen.borrow()).all(|count| *count > 0)
    }
}

/// One process and its clients.
struct Life<'a> {
    server: RefCell<&'a mut Server>,
    ports: [(&'static str, String); 5],
    phase: Cell<Phase>,
    /// The end of the process, or of this phase.
    gone: Notify,
    place: &'a Place,
    counts: &'a Counts,
    random: &'a RefCell<Random>,
    ledger: &'a RefCell<Ledger>,
    holds: &'a RefCell<Holds>,
}

/// The rules of the day. The number makes each text another one.
fn rules(number: u64) -> String {
    let mut text = "domain: rl\ntollgate: { memory: 256KiB }\ndescriptors:\n".to_owned();
    let mut rule = |key: &str, unit: &str, limit: u64, more: &str| {
        let limit = format!("unit: {unit}, requests_per_unit: {limit}{more}");
        text += &format!("  - {{ key: {key}, rate_limit: {{ {limit} }} }}\n");
    };
    RULES.iter().for_each(|(key, limit, more)| rule(key, "year", *limit, more));
    let store = if number.is_multiple_of(2) { ", store: compact" } else { ", store: keyed" };
    rule(MOVED.0, "year", MOVED.1 - number % 1_000, store);
    rule("helped", "year", 5, ", algorithm: gcra, block: { for: 1h, at_most: 2h }");
    rule("held", "year", 9_000_000, ", store: keyed, hold: { life: 1h }");
    rule("lost", "year", 9_000_000, ", store: keyed, hold: { life: 1h }");
    rule("compact", "hour", 2, "");
    rule("keyed", "hour", 2, ", store: keyed, max_keys: 20000");
    rule("sketch", "hour", 2, ", store: sketch");
    rule(&format!("new{number}"), "day", 1, "");
    text
}

/// The users of the day. The number makes each text another one.
fn users(number: u64) -> String {
    format!("user good on >good-secret +@all ~*\nuser bad on >bad-secret >{number} +@all ~*\n")
}

/// Returns the used units of an answer with figures.
fn used(answer: &[String]) -> u64 {
    let number = |at: usize| answer[at][1..].parse::<u64>().unwrap_or_else(|_| panic!("{answer:?}"));
    number(2) - number(3)
}

impl Life<'_> {
    fn is_serving(&self) -> bool {
        self.phase.get() == Phase::Serving
    }

    /// Whether clients go on. While the process ends, they do until it is gone.
    fn goes_on(&self) -> bool {
        self.phase.get() != Phase::Resting
    }

    fn next(&self) -> u64 {
        self.random.borrow_mut().next()
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    fn index(&self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }

    fn byte(&self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    fn log(&self) -> String {
        self.server.borrow().log()
    }

    /// Chooses a key, and notes that it is asked for a unit.
    fn pick(&self, is_rule: bool) -> usize {
        let at = self.ledger.borrow().pick(&mut self.random.borrow_mut(), is_rule);
        self.ledger.borrow_mut().ask(at, 1);
        at
    }

    fn pick_rule(&self) -> (usize, &'static str, String) {
        let at = self.pick(true);
        let account = &self.ledger.borrow().accounts[at];
        (at, account.kind, account.key.clone())
    }

    fn tell(&self, at: usize, is_denied: bool) {
        self.ledger.borrow_mut().tell(at, is_denied);
    }

    async fn port(&self, name: &str) -> io::Result<Port> {
        if name == "admin" {
            return Ok(Box::new(UnixStream::connect(self.place.path("admin")).await?));
        }
        let (_, address) = self.ports.iter().find(|(port, _)| *port == name).unwrap();
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }

    async fn any_port(&self) -> io::Result<Port> {
        let name = match self.index(self.ports.len() + 1) {
            0 => "admin",
            at => self.ports[at - 1].0,
        };
        self.port(name).await
    }

    /// Sends a request of HTTP/1.0, and returns the status and the body.
    async fn http(&self, port: &str, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        let ask = async || {
            let (mut stream, mut answer) = (self.port(port).await?, Vec::new());
            stream.write_all(request.as_bytes()).await?;
            stream.read_to_end(&mut answer).await.map(|_| answer)
        };
        let mut answer = self.patient(ask()).await?;
        if answer.is_empty() && self.is_serving() {
            // On a very busy machine, a connection can reach its age before its request is read. A client asks again, and if the
            // first request was charged, the ledger shows it.
            add(&self.counts.unread, 1);
            answer = self.patient(ask()).await?;
        }
        let text = String::from_utf8_lossy(&answer).into_owned();
        let whole = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((whole.0[9..12].parse().unwrap(), whole.1.to_owned()))
    }

    /// Waits for something that must end.
    #[track_caller]
    fn patient<T>(&self, work: impl Future<Output = T>) -> impl Future<Output = T> {
        let caller = std::panic::Location::caller();
        async move {
            let done = timeout(PATIENCE, work).await;
            done.unwrap_or_else(|_| {
                panic!("{caller}: no answer in {PATIENCE:?} while {:?}: {}", self.phase.get(), self.log())
            })
        }
    }

    /// Returns the result. While the process serves, nothing may fail.
    #[track_caller]
    fn served<T, E: Debug>(&self, result: Result<T, E>) -> Option<T> {
        match result {
            Ok(done) => Some(done),
            Err(error) if self.is_serving() => panic!("{error:?}: {}", self.log()),
            Err(_) => None,
        }
    }

    /// Compares the usage of all keys.
    async fn compare(&self, was_killed: bool) {
        let mut resp = Resp::login(self, "good").await.unwrap();
        let all = self.ledger.borrow().accounts.len();
        for at in 0..all {
            let look = self.ledger.borrow().accounts[at].command(0);
            let answer = self.patient(resp.say(&look)).await.unwrap();
            let compared = self.ledger.borrow_mut().compare(at, used(&answer), was_killed);
            compared.unwrap_or_else(|why| panic!("{why}: {}", self.log()));
        }
    }

    /// Runs all clients until the end of this time.
    async fn be_busy(&self, length: Duration, end: Phase) {
        let attackers = async {
            tokio::select! {
                _ = join_all((0..ATTACKERS).map(|_| attacker(self))) => {}
                () = self.gone.notified() => {}
            }
        };
        let mut all: Vec<LocalBoxFuture<'_, ()>> = vec![
            Box::pin(self.conduct(length, end)),
            Box::pin(attackers),
            Box::pin(clients::prober(self)),
            Box::pin(clients::writer(self)),
            Box::pin(clients::operator(self)),
            Box::pin(clients::holder(self)),
            Box::pin(clients::web(self)),
        ];
        for _ in 0..3 {
            all.push(Box::pin(clients::gateway(self)));
            all.push(Box::pin(clients::program(self)));
        }
        join_all(all).await;
    }

    fn open_files_and_threads(&self) -> (usize, Vec<String>) {
        let server = self.server.borrow();
        (server.open_files(), server.threads())
    }

    /// Waits until the process has no more files and threads than at its start.
    async fn rest(&self, start: (usize, Vec<String>)) {
        let began = now();
        loop {
            let present = self.open_files_and_threads();
            if present.0 <= start.0 && present.1.len() <= start.1.len() {
                return;
            }
            let is_late = began.elapsed() > PATIENCE;
            assert!(
                !is_late,
                "{start:?} files and threads at the start, {present:?} without clients: {}",
                self.log()
            );
            sleep(100 * MS).await;
        }
    }

    /// Looks at the process until its time is over, and then ends it so.
    async fn conduct(&self, length: Duration, end: Phase) {
        let began = now();
        let mut seen = [0; SEEN.len()];
        while began.elapsed() < length {
            let (_, page) = self.http("debug", "GET", "/stats", "").await.unwrap();
            let stat = |name: &str| {
                let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                line.unwrap_or_else(|| panic!("{name}: {page}")).parse().unwrap()
            };
            self.ledger.borrow_mut().mark(stat("tollgate_service_state_writes_total"));
            seen = SEEN.map(stat);
            let memory = self.server.borrow().resident_bytes();
            self.counts.peak.set(self.counts.peak.get().max(memory));
            assert!(memory <= MOST_MEMORY, "{memory} bytes: {}", self.log());
            sleep(100 * MS).await;
        }
        self.counts.seen.borrow_mut().iter_mut().zip(seen).for_each(|(sum, seen)| *sum += seen);
        self.phase.set(end);
        match end {
            Phase::Draining => self.server.borrow().signal("TERM"),
            Phase::Killed => self.server.borrow().signal("KILL"),
            _ => return self.gone.notify_one(),
        }
        let code = self.patient(async {
            loop {
                if let Some(code) = self.server.borrow_mut().try_wait() {
                    return code;
                }
                sleep(10 * MS).await;
            }
        });
        let code = code.await;
        // The connections of the attackers are cut off at the end of a drain.
        let expected: &[i32] = if end == Phase::Killed { &[-1] } else { &[0, 3] };
        assert!(expected.contains(&code), "ended with {code}: {}", self.log());
        self.gone.notify_one();
    }
}

async fn attacker(life: &Life<'_>) {
    while life.is_serving() {
        // The service may end each of them at any time.
        let _ = timeout(ATTACK, attacks::attack(life)).await;
        add(&life.counts.attacks, 1);
    }
}

#[expect(clippy::disallowed_methods, reason = "the server needs real time")]
fn now() -> Instant {
    Instant::now()
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Starts a process, and lets it live until `end`.
fn live(day: &Day, number: u64, (length, end): (Duration, Phase), was_killed: bool) {
    let Day { place, flags, counts, random, ledger, holds } = day;
    place.write("limits.yaml", rules(number));
    place.write("users.acl", users(number));
    let mut server = Server::start_with(&[&place.rules()], flags, &[]);
    let ports = ["grpc", "http", "debug", "metrics", "resp"].map(|port| (port, server.address(port)));
    let life = Life {
        server: RefCell::new(&mut server),
        ports,
        phase: Cell::new(Phase::Serving),
        gone: Notify::new(),
        place,
        counts,
        random,
        ledger,
        holds,
    };
    block_on(async {
        life.compare(was_killed).await;
        if was_killed {
            let all = holds.borrow().all;
            holds.replace(Holds { key: format!("held{number}"), all, ..Holds::default() });
        }
        ledger.borrow_mut().open(number);
        let start = life.open_files_and_threads();
        life.be_busy(length, end).await;
        if end == Phase::Resting {
            clients::settle(&life).await;
            life.compare(false).await;
            life.rest(start).await;
        }
    });
    let log = server.log();
    let is_bad = |line: &&str| [" WARN ", " ERROR ", "panicked"].iter().any(|part| line.contains(part));
    for line in log.lines().filter(is_bad) {
        assert!(EXPECTED.iter().any(|part| line.contains(part)), "{line}");
    }
}

// G115, G143
#[test]
#[ignore = "takes a minute; .ci/run runs it, and ci/release.sh for half an hour"]
fn hostile_day_loses_nothing() {
    let length = Duration::from_secs(variable("TOLLGATE_SOAK_SECONDS").unwrap_or(60));
    let seed = variable("TOLLGATE_SOAK_SEED").unwrap_or_else(|| RandomState::new().hash_one(()));
    println!("TOLLGATE_SOAK_SEED={seed}");
    let place = Place::new();
    let path = |name: &str| place.name(name);
    let flags = format!(
        "{} {FLAGS} --state {} --resp-users {} --admin unix:{}",
        FREE.replace("--drain 0s", "--drain 300ms"),
        path("state"),
        path("users.acl"),
        path("admin")
    );
    let day = Day {
        place,
        flags,
        counts: Counts::default(),
        random: RefCell::new(Random(seed)),
        ledger: RefCell::default(),
        holds: RefCell::default(),
    };
    let each = (length / 6).clamp(Duration::from_secs(3), Duration::from_secs(200));
    // The first process has no state file, as after a kill before the first write.
    let (began, mut number, mut end) = (now(), 0, Phase::Killed);
    loop {
        // A busy machine needs more time until everything has happened.
        let is_over = began.elapsed() + each + each / 2 > length;
        let is_last = is_over && (day.has_all() || number > 60);
        let ends = [Phase::Draining, Phase::Killed, Phase::Resting];
        let last = end;
        end = if is_last { Phase::Resting } else { ends[usize::try_from(number % 3).unwrap()] };
        live(&day, number, (each, end), last == Phase::Killed);
        number += 1;
        if is_last {
            break;
        }
    }
    let (counts, ledger, holds) = (&day.counts, day.ledger.borrow(), day.holds.borrow());
    println!(
        "{number} processes, {} admitted, {} denied, {} lost by kills, {} holds, {} probes answered, {} attacks, {} acts, {} closed unread, \
         {} bytes at most; {SEEN:?} {:?}",
        ledger.admitted,
        ledger.denied,
        ledger.lost,
        holds.all,
        counts.probes.get(),
        counts.attacks.get(),
        counts.acts.get(),
        counts.unread.get(),
        counts.peak.get(),
        counts.seen.borrow()
    );
    assert!(day.has_all(), "something did not happen");
}
