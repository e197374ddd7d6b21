//! Runs the same steps for every way in which a server can fail.

use std::time::Duration;

use tollgate_redis::{ErrorKind, Health, OnFailure};

use super::subject::{FAILURES, LIMIT, POLICIES, SHARE, Subject, TIMEOUT, Tally};
use tollgate_testing::redis::{Proxy, Server};

/// A server and the network in front of it.
struct World {
    server: Server,
    proxy: Proxy,
}

struct Outage {
    name: &'static str,
    /// Begins the fault, or ends it.
    set: fn(&mut World, bool),
    /// The errors that calls may return.
    kinds: &'static [ErrorKind],
}

fn told(world: &World, words: &[&str]) {
    let _: redis::Value = world.server.command(words);
}

/// Asserts that the policy admitted what it should of `asked` requests, which are all that it decided.
fn verify(policy: OnFailure, asked: u64, let_through: u64, name: &str) {
    match policy {
        OnFailure::Open => assert_eq!(let_through, asked, "{name}"),
        OnFailure::Closed => assert_eq!(let_through, 0, "{name}"),
        _ => assert!(let_through <= SHARE, "{name}: {let_through}"),
    }
}

fn run(outage: &Outage) {
    for policy in POLICIES {
        let Some(server) = Server::start() else { return };
        let proxy = Proxy::start(server.port());
        let mut world = World { server, proxy };
        let subjects = Subject::both(&world.proxy.url(), policy);
        for (key, subject) in ["one", "two"].into_iter().zip(&subjects) {
            story(outage, &mut world, subject, policy, key);
        }
    }
}

fn story(outage: &Outage, world: &mut World, subject: &Subject, policy: OnFailure, key: &str) {
    let name = format!("{}, {}", outage.name, subject.name());
    subject.until_server();
    let before = subject.check_times(key, 3);
    let began = subject.health();

    (outage.set)(world, true);
    // These calls open the breaker. Many more calls follow.
    let first = subject.check_times(key, u64::from(FAILURES) + 1);
    subject.until_open();
    let opened = subject.health();
    let rest = subject.check_times(key, 200);
    let during = subject.health();
    assert_eq!(first.by_server + rest.by_server, 0, "{name}: the server decided: {during:?}");
    verify(policy, first.by_policy + rest.by_policy, first.let_through + rest.let_through, &name);
    // While the breaker is open, only probes reach the server.
    assert_eq!(during.asked - opened.asked, during.probes - opened.probes, "{name}: {opened:?} {during:?}");
    let errors =
        |health: &Health, kinds: &[ErrorKind]| kinds.iter().map(|kind| health.errors(*kind)).sum::<u64>();
    let found = errors(&during, outage.kinds) - errors(&began, outage.kinds);
    assert!(found > 0, "{name}: {during:?}");
    // On a busy machine, an answer of any server can be late.
    let late = match outage.kinds.contains(&ErrorKind::Timeout) {
        true => 0,
        false => during.errors(ErrorKind::Timeout) - began.errors(ErrorKind::Timeout),
    };
    assert_eq!(found + late, during.failed() - began.failed(), "{name}: {during:?}");
    let fallbacks = |health: &Health| health.open + health.closed + health.local;
    assert!(fallbacks(&during) - fallbacks(&began) >= 200, "{name}: {during:?}");
    assert_eq!(during.answered, began.answered, "{name}");

    (outage.set)(world, false);
    subject.until_server();
    let after = subject.check_times(key, 2 * LIMIT);
    verify_bound(outage, policy, &[before, first, rest, after], &name);
    assert!(after.by_server > 0 || after.by_policy > 0);
}

fn verify_bound(outage: &Outage, policy: OnFailure, all: &[Tally], name: &str) {
    let admitted: u64 = all.iter().map(|tally| tally.admitted).sum();
    // Only a server that is killed loses its data.
    let limit = if outage.name == KILLED { 2 * LIMIT } else { LIMIT };
    // Ten units refill in an hour, so at most one refills during the test.
    assert!(admitted <= limit + 1, "{name}: {admitted} admitted by the server");
    if !matches!(policy, OnFailure::Open) {
        let both = admitted + all.iter().map(|tally| tally.let_through).sum::<u64>();
        assert!(both <= limit + SHARE + 1, "{name}: {both} admitted by the server and the policy together");
    }
}

const KILLED: &str = "killed server";
/// The errors of a server that does not answer, or not in time.
const AWAY: &[ErrorKind] = &[ErrorKind::Timeout, ErrorKind::Unreachable];

// G82
#[test]
fn policy_decides_during_each_outage() {
    let outage = |name, kinds, set: fn(&mut World, bool)| run(&Outage { name, set, kinds });
    outage(KILLED, AWAY, |world, on| if on { world.server.kill() } else { world.server.restart() });
    outage("paused server", AWAY, |world, on| if on { world.server.pause() } else { world.server.resume() });
    outage("silent network", AWAY, |world, on| {
        if !on {
            // Dropped bytes leave old connections out of step, so the proxy cuts them, as a real network would.
            world.proxy.cut();
        }
        world.proxy.silence(on);
    });
    outage("refused connections", AWAY, |world, on| world.proxy.refuse(on));
    outage("slow network", AWAY, |world, on| {
        world.proxy.delay(if on { 2 * TIMEOUT } else { Duration::ZERO });
    });
    outage("full memory", &[ErrorKind::Refused], |world, on| {
        told(world, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        told(world, &["CONFIG", "SET", "maxmemory", if on { "1" } else { "0" }]);
    });
    outage("read-only server", &[ErrorKind::Refused], |world, on| {
        // The server becomes a replica of an address where nothing listens.
        told(world, &if on { ["REPLICAOF", "127.0.0.1", "1"] } else { ["REPLICAOF", "NO", "ONE"] });
    });
}
