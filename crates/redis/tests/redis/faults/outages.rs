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

/// A fault: how it begins, and how it ends.
struct Outage {
    begin: fn(&mut World),
    end: fn(&mut World),
    /// Whether the server loses its data.
    forgets: bool,
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
    let name = subject.name();
    subject.until_server();
    let before = subject.check_times(key, 3);
    let began = subject.health();

    (outage.begin)(world);
    // These calls open the breaker. Many more calls follow.
    let first = subject.check_times(key, u64::from(FAILURES) + 1);
    subject.until_open();
    let opened = subject.health();
    let rest = subject.check_times(key, 200);
    let during = subject.health();
    assert_eq!(
        first.by_server + rest.by_server,
        0,
        "{name}: the server decided during its outage: {during:?}"
    );
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

    (outage.end)(world);
    subject.until_server();
    let after = subject.check_times(key, 2 * LIMIT);
    let all = [before, first, rest, after];
    verify_bound(outage, policy, &all, &name);
    assert!(after.by_server > 0 || after.by_policy > 0);
}

fn verify_bound(outage: &Outage, policy: OnFailure, all: &[Tally], name: &str) {
    let admitted: u64 = all.iter().map(|tally| tally.admitted).sum();
    let limit = if outage.forgets { 2 * LIMIT } else { LIMIT };
    // Ten units refill in an hour, so at most one refills during the test.
    assert!(admitted <= limit + 1, "{name}: {admitted} admitted by the server");
    if !matches!(policy, OnFailure::Open) {
        let both = admitted + all.iter().map(|tally| tally.let_through).sum::<u64>();
        assert!(both <= limit + SHARE + 1, "{name}: {both} admitted by the server and the policy together");
    }
}

// G82
#[test]
fn outage_by_killed_server() {
    run(&Outage {
        begin: |world| world.server.kill(),
        end: |world| world.server.restart(),
        forgets: true,
        kinds: &[ErrorKind::Unreachable, ErrorKind::Timeout],
    });
}

// G82
#[test]
fn outage_by_paused_server() {
    run(&Outage {
        begin: |world| world.server.pause(),
        end: |world| world.server.resume(),
        forgets: false,
        kinds: &[ErrorKind::Timeout, ErrorKind::Unreachable],
    });
}

// G82
#[test]
fn outage_by_silent_network() {
    run(&Outage {
        begin: |world| world.proxy.silence(true),
        // Dropped bytes leave old connections out of step, so the proxy cuts them, as a real network would.
        end: |world| {
            world.proxy.cut();
            world.proxy.silence(false);
        },
        forgets: false,
        kinds: &[ErrorKind::Timeout, ErrorKind::Unreachable],
    });
}

#[test]
fn outage_by_refused_connections() {
    run(&Outage {
        begin: |world| world.proxy.refuse(true),
        end: |world| world.proxy.refuse(false),
        forgets: false,
        kinds: &[ErrorKind::Unreachable, ErrorKind::Timeout],
    });
}

#[test]
fn outage_by_slow_network() {
    run(&Outage {
        begin: |world| world.proxy.delay(2 * TIMEOUT),
        end: |world| world.proxy.delay(Duration::ZERO),
        forgets: false,
        kinds: &[ErrorKind::Timeout, ErrorKind::Unreachable],
    });
}

// G82
#[test]
fn memory_full() {
    run(&Outage {
        begin: |world| {
            told(world, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
            told(world, &["CONFIG", "SET", "maxmemory", "1"]);
        },
        end: |world| told(world, &["CONFIG", "SET", "maxmemory", "0"]),
        forgets: false,
        kinds: &[ErrorKind::Refused],
    });
}

// G82
#[test]
fn read_only() {
    run(&Outage {
        // The server becomes a replica of an address where nothing listens.
        begin: |world| told(world, &["REPLICAOF", "127.0.0.1", "1"]),
        end: |world| told(world, &["REPLICAOF", "NO", "ONE"]),
        forgets: false,
        kinds: &[ErrorKind::Refused],
    });
}
