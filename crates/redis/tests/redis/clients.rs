//! How clients connect, and that they never print a password. `faults/outages.rs` has servers that stop, hang or lose their data.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

use std::io::Read;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::operations::newer;
use crate::{PATIENCE, absent, client, in_tasks, in_threads, one_thread, runtime, strict, wait_until};
use futures_util::FutureExt as _;
use tollgate::{Clock, Quota, Timestamp};
use tollgate_redis::{
    AtomicLimiter, Blocking, Breaker, Client, DecidedBy, Error, ErrorKind, InProcess, Limit, OnFailure,
};
use tollgate_testing::redis::{NO_END, Proxy, Server};

/// Builds a limiter whose breaker never opens, so that every check calls the server.
macro_rules! limiter {
    ($client:expr, $timeout:expr) => {
        $client
            .limiter("api", Limit::gcra(Quota::per_day(1_000_000)))
            .timeout($timeout)
            .breaker(Breaker::new(u32::MAX, Duration::ZERO))
            .on_failure(OnFailure::Closed)
            .atomic()
            .unwrap()
    };
}

const SOON: Duration = Duration::from_millis(100);

/// Repeats a check until the server decides it.
fn until_answered(mut ask: impl FnMut() -> DecidedBy) {
    wait_until("the server decides", || ask() == DecidedBy::Server);
}

/// Returns the address of a listener that accepts connections and never replies, and a count of those connections.
fn silent_listener() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, taken) = (format!("redis://{}/", listener.local_addr().unwrap()), Arc::default());
    let counts: Arc<AtomicUsize> = Arc::clone(&taken);
    thread::spawn(move || {
        // This thread ends with the test process, and keeps the connections until then.
        let count = |_: &_| _ = counts.fetch_add(1, Ordering::SeqCst);
        listener.incoming().flatten().inspect(count).collect::<Vec<_>>()
    });
    (url, taken)
}

// G85
#[test]
fn concurrent_callers_share_connection_attempt() {
    let (url, taken) = silent_listener();
    let blocking = limiter!(Client::open(&url).unwrap().blocking(), SOON);
    assert_eq!(in_threads(32, |_| blocking.check("k").by()), [DecidedBy::Closed; 32]);
    assert_eq!(taken.load(Ordering::SeqCst), 1, "connections that the threads opened");

    let (url, taken) = silent_listener();
    let limiter = limiter!(Client::open(&url).unwrap(), SOON);
    let decided = runtime().block_on(in_tasks(32, |_| {
        let limiter = limiter.clone();
        async move { limiter.check("k").await.by() }
    }));
    assert_eq!(decided, [DecidedBy::Closed; 32]);
    assert_eq!(taken.load(Ordering::SeqCst), 1, "connections that the tasks opened");
}

#[test]
fn threads_call_server_in_parallel() {
    let Some(server) = Server::start() else { return };
    let network = Proxy::start(server.port());
    let limiter = limiter!(Client::open(&network.url()).unwrap().blocking(), PATIENCE);
    let round = || {
        let began = Instant::now();
        assert_eq!(in_threads(100, |_| limiter.check("k").by()), [DecidedBy::Server; 100]);
        began.elapsed()
    };
    round();
    let delay = Duration::from_millis(200);
    network.delay(delay);
    // Calls that wait for each other take a hundred delays in each direction at least.
    let took = round();
    assert!(took < delay * 200, "{took:?}");
    let health = limiter.health();
    assert_eq!((health.answered, health.failed(), health.opened), (200, 0, 0), "{health:?}");
    assert_eq!(connections(&server), 1, "all threads use one connection");
}

/// Calls that wait at the same moment are sent together. Each receives its own answer, and calls that are dropped do not
/// hold up the others.
#[test]
fn joined_calls_receive_their_own_answers() {
    let Some(server) = Server::start() else { return };
    let _busy = crate::busy();
    let limit = 1 << 40;
    let builder = client(&server).limiter("joined", Limit::fixed_window(Quota::new(limit, NO_END)));
    let limiter = strict(builder, &[]).atomic().unwrap();
    for (name, runtime) in [("one", one_thread()), ("several", runtime()), ("last", runtime())] {
        until_answered(|| runtime.block_on(limiter.check("first")).by());
        runtime.block_on(async {
            in_tasks(300, |cost| {
                let (limiter, cost) = (limiter.clone(), 1 + cost as u64);
                async move {
                    let key = format!("{name}-{cost}");
                    for number in 1..=20 {
                        if (cost + number) % 3 == 0 {
                            let _ = limiter.check("dropped").now_or_never();
                        }
                        let answer = limiter.check_n(&key, cost).await;
                        assert_eq!(answer.by(), DecidedBy::Server);
                        assert_eq!(answer.decision().remaining(), limit - number * cost);
                    }
                }
            })
            .await;
            // The runtime ends while calls wait.
            for _ in 0..100 {
                let limiter = limiter.clone();
                tokio::spawn(async move { limiter.check("left").await });
            }
            tokio::task::yield_now().await;
        });
    }
}

/// Counts the server's connections, except the one that this test uses for the count.
fn connections(server: &Server) -> u64 {
    let mut ours = server.connection();
    let list: String = redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("normal").query(&mut ours).unwrap();
    list.lines().count() as u64 - 1
}

/// Returns the id of the limiter's connection, which may have sent a PING after its last call.
fn connection_id(server: &Server) -> Option<u64> {
    let list: String = server.command(&["CLIENT", "LIST"]);
    let ours = list.lines().find(|line| !line.contains("cmd=client"))?;
    ours.split_whitespace().find_map(|word| word.strip_prefix("id=")).and_then(|id| id.parse().ok())
}

/// The network drops a connection without notice. The client replaces it, also if its callers wait for less than the
/// time-out.
#[test]
fn dead_connection_is_replaced() {
    for wait in [SOON / 4, PATIENCE] {
        let Some(server) = Server::start() else { return };
        let network = Proxy::start(server.port());
        let limiter = limiter!(Client::open(&network.url()).unwrap(), SOON);
        let runtime = runtime();
        let ask = || {
            let check = async { tokio::time::timeout(wait, limiter.check("k")).await };
            runtime.block_on(check).map_or(DecidedBy::Closed, |answer| answer.by())
        };
        until_answered(ask);
        network.forget_old();
        until_answered(ask);
    }
}

/// One slow reply after an idle time does not close the connection.
#[test]
fn slow_reply_keeps_connection_open() {
    let Some(server) = Server::start() else { return };
    let limiter = limiter!(client(&server), SOON);
    let runtime = runtime();
    let ask = || runtime.block_on(limiter.check("k")).by();
    // The time after which a silent connection counts as dead.
    let silent = Duration::from_secs(1);
    for _ in 0..20 {
        until_answered(ask);
        let before = connection_id(&server).expect("the limiter has a connection");
        thread::sleep(silent + 2 * SOON);
        let began = Instant::now();
        server.pause();
        assert_eq!(ask(), DecidedBy::Closed);
        server.resume();
        until_answered(ask);
        // A busy machine may make the reply too slow. Then the next turn counts.
        if began.elapsed() < silent {
            assert_eq!(connection_id(&server), Some(before));
            return;
        }
    }
    panic!("no reply comes within {silent:?}");
}

/// A caller that is cancelled during a probe does not stop later probes.
#[test]
fn cancelled_probe_does_not_block_breaker() {
    let Some(mut server) = Server::start() else { return };
    let limiter = client(&server).limiter("api", Limit::gcra(Quota::per_day(1_000_000)));
    let limiter = limiter.timeout(Duration::MAX).breaker(Breaker::new(1, Duration::from_millis(10)));
    let limiter = limiter.atomic().unwrap();
    let runtime = runtime();
    until_answered(|| runtime.block_on(limiter.check("k")).by());
    server.kill();
    let _ = runtime.block_on(limiter.check("k"));
    server.restart();
    server.pause();
    wait_until("a probe is cancelled", || {
        let _ = runtime.block_on(async { tokio::time::timeout(SOON, limiter.check("k")).await });
        limiter.health().abandoned > 0
    });
    server.resume();
    until_answered(|| runtime.block_on(limiter.check("k")).by());
}

// G86
#[test]
fn address_errors_hide_passwords() {
    // Another package of the same build may have brought TLS.
    let with_tls = "rediss://user:hunter2@host/";
    let without_tls = Client::open(with_tls).is_err().then_some((with_tls, "TLS"));
    let refused = [
        ("no address", "redis://"),
        ("http://user:hunter2@host/", "redis://"),
        ("redis://user:hunter2@host:port/", "redis://"),
        ("redis://user:hunter2@host/not-a-number", "redis://"),
    ];
    for (url, names) in refused.into_iter().chain(without_tls) {
        let errors: [Error; 2] = [Client::open(url).unwrap_err(), Client::cluster([url]).unwrap_err()];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Address, "{url}");
            assert!(error.to_string().contains(names), "{error}");
            assert!(!error.to_string().contains("hunter2"));
            // A program whose `main` returns an error prints its `Debug`.
            assert_eq!(format!("{error:?}"), error.to_string());
        }
    }
    assert_eq!(Client::cluster([]).unwrap_err().kind(), ErrorKind::Address);
    let url = "redis://user:hunter2@127.0.0.1:1/";
    let client = Client::open(url).unwrap();
    let builder = client.limiter("api", Limit::gcra(Quota::per_second(1)));
    let (blocking, limiter) = (client.blocking(), builder.clone().atomic().unwrap());
    assert!(!format!("{client:?} {builder:?} {blocking:?} {limiter:?}").contains("hunter2"));
}

// G86
#[test]
fn wrong_password_is_refused() {
    let Some(server) = Server::start() else { return };
    let user = ["ACL", "SETUSER", "limits", "on", ">hunter2", "~tollgate:*", "+@all"];
    let Some(()) = newer(&server, &user) else { return };
    let url = |password: &str| format!("redis://limits:{password}@127.0.0.1:{}/", server.port());
    let right = limiter!(Client::open(&url("hunter2")).unwrap().blocking(), PATIENCE);
    assert_eq!(right.check("k").by(), DecidedBy::Server);
    let wrong: Blocking<AtomicLimiter> = limiter!(Client::open(&url("wrong")).unwrap().blocking(), SOON);
    assert_eq!(wrong.check("k").by(), DecidedBy::Closed);
    let health = wrong.health();
    assert_eq!((health.asked, health.errors(ErrorKind::Refused)), (1, 1), "{health:?}");
}

/// A peer that replies in another protocol gives one error.
#[test]
fn reply_in_other_protocol_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let other = thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut connection, b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let _ = connection.read(&mut [0; 1_024]);
    });
    let limiter = limiter!(Client::open(&url).unwrap().blocking(), PATIENCE);
    assert_eq!(limiter.check("k").by(), DecidedBy::Closed);
    let health = limiter.health();
    let kinds = [ErrorKind::Reply, ErrorKind::Unreachable, ErrorKind::Refused];
    assert_eq!(kinds.map(|kind| health.errors(kind)).iter().sum::<u64>(), 1, "{health:?}");
    other.join().unwrap();
}

/// Returns whether a limiter finds out over three connections that its server evicts keys, and the policies that it
/// logged.
#[cfg(feature = "tracing")]
fn eviction_gauge_and_warnings(
    options: &[&str],
    prepare: &[&str],
    credentials: &str,
    expected: bool,
) -> Option<(bool, Vec<String>)> {
    let server = Server::start_with(options)?;
    if !prepare.is_empty() {
        newer::<()>(&server, prepare)?;
    }
    let proxy = Proxy::start(server.port());
    let client = Client::open(&format!("redis://{credentials}127.0.0.1:{}/", proxy.port())).unwrap();
    let limiter = limiter!(client, PATIENCE);
    let events = crate::listener::events(|| {
        // The runtime stays in this thread, where the subscriber is set.
        one_thread().block_on(async {
            for _ in 0..3 {
                while limiter.check("a").await.by() != DecidedBy::Server {}
                let mut turns = 0;
                crate::until("the client knows whether the server evicts", async || {
                    let _ = limiter.check("a").await;
                    turns += 1;
                    turns >= 20 && limiter.health().evicts == expected
                })
                .await;
                proxy.cut();
            }
        });
    });
    let readings = tollgate::telemetry::Readings::readings(&limiter.health());
    let evicts = limiter.health().evicts;
    let gauge = tollgate::telemetry::Reading::Gauge("tollgate_server_evicts", f64::from(u8::from(evicts)));
    assert!(readings.contains(&gauge), "{readings:?}");
    let logged = events.into_iter().filter_map(|(_, _, mut fields)| fields.remove("policy"));
    Some((evicts, logged.collect()))
}

// G82
#[cfg(feature = "tracing")]
#[test]
fn evicting_server_is_reported_once() {
    let user = ["ACL", "SETUSER", "limits", "on", ">pass", "~tollgate:*", "+@all", "-info"];
    for (memory, policy, prepare, credentials, evicts) in [
        ("100mb", "allkeys-random", &[][..], "", true),
        ("100mb", "volatile-ttl", &[], "", true),
        ("100mb", "noeviction", &[], "", false),
        // A server without a memory limit evicts nothing.
        ("0", "allkeys-lru", &[], "", false),
        // A user without the INFO permission gets no warning.
        ("100mb", "allkeys-lru", &user, "limits:pass@", false),
    ] {
        let options = ["--maxmemory", memory, "--maxmemory-policy", policy];
        let learnt = eviction_gauge_and_warnings(&options, prepare, credentials, evicts);
        let Some(learnt) = learnt else { return };
        let warnings = if evicts { vec![format!("\"{policy}\"")] } else { vec![] };
        assert_eq!(learnt, (evicts, warnings), "{memory} {policy} {credentials}");
    }
}

/// A policy that is set while the server runs is found without a new connection.
// G82
#[test]
#[ignore = "takes ten seconds or more; .ci/run runs it"]
fn eviction_that_is_set_later_is_found() {
    let safe = ["--maxmemory", "100mb", "--maxmemory-policy", "noeviction"];
    let Some(server) = Server::start_with(&safe) else { return };
    let limiter = limiter!(client(&server).blocking(), PATIENCE);
    for (policy, evicts) in [("noeviction", false), ("allkeys-random", true), ("noeviction", false)] {
        server.command::<()>(&["CONFIG", "SET", "maxmemory-policy", policy]);
        let is_found = (0..1_200).any(|_| {
            assert_eq!(limiter.block_on(|l| l.peek("k")).by(), DecidedBy::Server);
            thread::sleep(Duration::from_millis(50));
            limiter.block_on(|l| l.peek("k")).by() == DecidedBy::Server && limiter.health().evicts == evicts
        });
        assert!(is_found, "{policy}");
    }
}

#[test]
fn blocking_types_print_what_they_run() {
    let server = InProcess::default().blocking();
    let builder = server.limiter("api", Limit::gcra(Quota::per_second(1)));
    let lease = builder.clone().leases().build().unwrap();
    let write_back = builder.write_back().build().unwrap();
    assert_eq!(format!("{:?}", absent().blocking()), "Blocking(Client { cluster: false, .. })");
    assert_eq!(format!("{server:?}"), "Blocking(InProcess { keys: 0, .. })");
    assert_eq!(format!("{lease:?}"), "Blocking(LeaseLimiter { keys: 0, .. })");
    assert!(format!("{write_back:#?}").starts_with("Blocking(\n    WriteBackLimiter {\n"));
}

/// A clock that, in each reading, waits for a concurrent reading to begin, and remembers whether one did.
#[derive(Clone, Default)]
struct Meeting {
    inside: Arc<AtomicUsize>,
    met: Arc<AtomicUsize>,
}

impl Clock for Meeting {
    fn now(&self) -> Timestamp {
        self.inside.fetch_add(1, Ordering::SeqCst);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            if self.inside.load(Ordering::SeqCst) > 1 {
                self.met.fetch_add(1, Ordering::SeqCst);
            }
            thread::yield_now();
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
        Timestamp::from_secs(1_700_000_000)
    }
}

/// Regression test. Cause: the clock was read before the keys were locked. Trigger: a thread was delayed between
/// the two steps for longer than a short window, and then answered at an old time. Symptom: the current window
/// seemed to come from a clock that ran ahead. So it was moved back, and admitted more than its limit. A script on a
/// server reads the time while no other script runs, so a server in this process reads it under the lock.
#[test]
fn calls_in_process_read_the_clock_one_at_a_time() {
    let clock = Meeting::default();
    let server = InProcess::new(clock.clone()).blocking();
    let limiter = server.limiter("api", Limit::gcra(Quota::per_second(10))).atomic().unwrap();
    in_threads(2, |_| limiter.check("one"));
    assert_eq!(clock.met.load(Ordering::SeqCst), 0, "two calls read the clock at the same time");
}
