//! A Redis server that cannot be used: the log names the reason, the health pages too, and a line follows when it is back.
//!
//! The service used to start, to decide by `on_failure` and to write no line, whatever the reason and whatever `--log` was.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::{Grpc, LIMIT, block_on, bytes, get, stat};
use crate::server::{PATIENCE, Place, SHARED, Server, limit};
use tollgate_testing::redis::{Proxy, Server as Redis};

const GAUGE: &str = "tollgate_service_redis_usable";

/// Starts a service with a rule that the Redis server at this address counts, at the default level of the log.
fn serve(url: &str) -> (Place, Server) {
    let place = Place::with(limit(SHARED, "a", 1_000));
    let server = place.start(&format!("--redis {url} --metrics 127.0.0.1:0 --deadline 20s"));
    (place, server)
}

/// Sends requests, and returns how many were admitted.
async fn admitted(server: &Server, requests: usize) -> usize {
    let mut grpc = Grpc::connect(&server.address("grpc")).await;
    let mut admitted = 0;
    for _ in 0..requests {
        let code = grpc.ok(LIMIT, &bytes("0a02726c12080a060a01611201781801")).await[1];
        admitted += usize::from(code == 1);
    }
    admitted
}

/// Asserts that the service reports everywhere that the server at `address` cannot be used, and `why`.
#[track_caller]
fn reports(server: &mut Server, address: &str, why: &str) {
    let line = server.wait_for_line("cannot be used since");
    for part in [" WARN ", address, why, "on_failure decides: closed for 1 rule", "since 20"] {
        assert!(line.contains(part), "{part:?} is not in {line}");
    }
    block_on(async {
        assert_eq!(admitted(server, 20).await, 0);
        let health = get(&server.address("http"), "/healthcheck").await;
        assert_eq!(health.status, 200, "the service answers without the server");
        // Everyone who reaches this port can read it, so it has no address.
        let away = "OK, but the Redis server cannot be used; the log and the debug pages say why\n";
        assert_eq!(health.body, away);
        let text = get(&server.address("debug"), "/").await.body;
        assert!(text.contains(address) && text.contains(why) && text.contains("since"), "{text}");
        assert_eq!(stat(&server.address("debug"), GAUGE).await, 0);
        let metrics = get(&server.address("metrics"), "/metrics").await.body;
        assert!(metrics.contains(&format!("\n{GAUGE} 0\n")), "{metrics}");
    });
    let log = server.log();
    assert_eq!(log.matches("cannot be used").count(), 1, "one line for one change: {log}");
    assert!(!log.contains("secret"), "{log}");
}

/// Asserts that the health pages say that the server can be used.
async fn is_usable(server: &Server) {
    assert_eq!(get(&server.address("http"), "/healthcheck").await.body, "OK");
    assert_eq!(stat(&server.address("debug"), GAUGE).await, 1);
}

// G148
#[test]
fn refused_passwords_are_reported() {
    let Some(redis) = Redis::start_with(&["--requirepass", "true-secret"]) else { return };
    let address = format!("127.0.0.1:{}", redis.port());
    for (user, why) in [("", "NOAUTH"), (":wrong-secret@", "authentication failed")] {
        let (_place, mut server) = serve(&format!("redis://{user}{address}/"));
        reports(&mut server, &format!("redis://{address}/"), why);
    }
    // The right password.
    let (_place, server) = serve(&format!("redis://:true-secret@{address}/"));
    assert_eq!(block_on(admitted(&server, 20)), 20);
    block_on(is_usable(&server));
    assert!(!server.log().contains("cannot be used"), "{}", server.log());
}

// G148
#[test]
fn absent_servers_are_reported() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for url in
        [format!("redis://u:secret@{closed}/"), "redis://u:secret@no-such-host.invalid:6379/".to_owned()]
    {
        let (_place, mut server) = serve(&url);
        reports(&mut server, &url.replace("u:secret@", ""), "cannot be reached");
    }
}

// G148
#[test]
fn death_and_return_of_the_server_are_reported() {
    let Some(mut redis) = Redis::start() else { return };
    let (_place, mut server) = serve(&redis.url());
    assert_eq!(block_on(admitted(&server, 20)), 20);
    redis.kill();
    reports(&mut server, &redis.url(), "cannot be reached");
    redis.restart();
    let line = server.wait_for_line("can be used again");
    assert!(line.contains(" WARN ") && line.contains(&redis.url()) && line.contains("second"), "{line}");
    block_on(is_usable(&server));
    assert_eq!(block_on(admitted(&server, 20)), 20);
}

/// The answers came after `--deadline`, and long before the rule's `timeout`, so no breaker opened and no test failed:
/// `on_failure` decided all requests, and nothing said so.
// G148
#[test]
fn server_that_is_too_slow_is_reported() {
    let Some(redis) = Redis::start() else { return };
    let proxy = Proxy::start(redis.port());
    let place = Place::with(limit(SHARED, "a", 1_000));
    let args = format!("--redis {} --metrics 127.0.0.1:0 --deadline 100ms", proxy.url());
    let server = place.start(&args);
    let ask_until = |server: &Server, done: &dyn Fn(usize) -> bool| {
        let end = Instant::now() + PATIENCE;
        while !done(block_on(admitted(server, 1))) {
            assert!(Instant::now() < end, "{}", server.log());
        }
    };
    ask_until(&server, &|admitted| admitted == 1);
    // A call and its answer together take longer than the deadline, and shorter than a test. On a busy machine a test may be too
    // late at first, so its line may have another reason; the pages have the latest one.
    proxy.delay(Duration::from_millis(250));
    ask_until(&server, &|_| server.log().contains(&format!("{} cannot be used since", proxy.url())));
    let page = |server: &Server| block_on(get(&server.address("debug"), "/")).body;
    ask_until(&server, &|_| page(&server).contains("--deadline (100ms)"));
    proxy.delay(Duration::ZERO);
    ask_until(&server, &|_| server.log().contains("can be used again"));
    block_on(is_usable(&server));
}

/// A server that nothing uses is not called.
#[test]
fn idle_server_is_not_called() {
    let Some(redis) = Redis::start() else { return };
    let place = Place::new();
    let mut server = place.start(&format!("--redis {}", redis.url()));
    server.wait_for_line("the Redis server is not used");
    server.stop();
    let stats: String = redis.command(&["INFO", "commandstats"]);
    assert!(!stats.contains("eval"), "{stats}");
}
