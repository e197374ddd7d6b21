//! The least rights of the user for each mode. The table in the guide has the same rights.

use std::time::{Duration, Instant};

use super::newer;
use crate::{PATIENCE, strict};
use tollgate::Quota;
use tollgate_redis::{Blocking, Client, ErrorKind, Health, Limit, LimiterBuilder, Shard, Shards, SharedHold};
use tollgate_testing::redis::{Cluster, Server};

/// The commands that every mode needs.
const EVERY_MODE: [&str; 5] = ["eval", "evalsha", "get", "set", "time"];
/// The commands that write-back also needs.
const WRITE_BACK: [&str; 5] = ["hdel", "hget", "hgetall", "hset", "pexpire"];
/// The commands that holds and requests in progress also need.
const HOLDS: [&str; 9] =
    ["zadd", "zcard", "zrange", "zrangebyscore", "zrem", "zremrangebyscore", "zscore", "del", "pexpire"];
/// The commands that a Cluster also needs.
const CLUSTER: [&str; 2] = ["cluster|slots", "asking"];

/// Gives the user `limits` these rights and no others: no other keys, and no channels.
#[track_caller]
fn grant(server: &Server, commands: &[&str]) -> Option<()> {
    let words = ["ACL", "SETUSER", "limits", "reset", "on", ">secret", "resetchannels", "~tollgate:*"];
    let rights: Vec<_> = commands.iter().map(|command| format!("+{command}")).collect();
    newer(server, &words.into_iter().chain(rights.iter().map(String::as_str)).collect::<Vec<_>>())
}

fn url(server: &Server) -> String {
    format!("redis://limits:secret@127.0.0.1:{}/", server.port())
}

fn builder(client: &Blocking<Client>, limit: Limit) -> LimiterBuilder<Blocking<Client>> {
    strict(client.limiter("acl", limit), &[])
}

/// Asserts that the server answered every call.
fn assert_answered(health: &Health) {
    assert!(health.answered > 0, "{health:?}");
    assert_eq!(health.failed(), 0, "{health:?}");
}

/// Asks the server every question of the atomic mode.
fn ask_atomic(client: &Blocking<Client>, limit: Limit) -> Health {
    let limiter = builder(client, limit).atomic().unwrap();
    let answer = limiter.check("a");
    let _ = limiter.block_on(|l| l.peek("a"));
    let _ = limiter.block_on(|l| l.charge_unchecked("a", 2));
    let _ = limiter.block_on(|l| l.refund("a", &answer));
    limiter.health()
}

fn ask_leases(client: &Blocking<Client>, limit: Limit) -> Health {
    let limiter = builder(client, limit).leases().build().unwrap();
    let answer = limiter.block_on(|l| l.check_async("a"));
    let _ = limiter.refund("a", &answer);
    for _ in 0..100 {
        let _ = limiter.block_on(|l| l.check_async("a"));
    }
    let health = limiter.health();
    limiter.block_on(|l| l.clone().close());
    health
}

fn ask_write_back(client: &Blocking<Client>, limit: Limit) -> Health {
    let limiter = builder(client, limit).write_back().build().unwrap();
    let _ = limiter.block_on(|l| l.check_async("a"));
    limiter.block_on(|l| l.flush());
    let health = limiter.health();
    limiter.block_on(|l| l.clone().close());
    health
}

/// Asks the server every question about holds.
fn ask_holds(client: &Blocking<Client>, limit: Limit) -> Health {
    let limiter = builder(client, limit).holding().unwrap();
    let hold = |units, life| limiter.block_on(|l| l.hold("a", units, life)).map(SharedHold::detach);
    if let (Ok(id), Ok(_ended)) = (hold(2, PATIENCE), hold(1, Duration::from_micros(1))) {
        let _ = limiter.check("a");
        let _ = limiter.block_on(|l| l.commit("a", id, 1));
    }
    limiter.health()
}

fn limits() -> [Limit; 3] {
    [Limit::gcra, Limit::fixed_window, Limit::sliding_window].map(|kind| kind(Quota::per_hour(1_000)))
}

#[test]
fn user_with_least_rights_suffices_for_each_mode() {
    let Some(server) = Server::start() else { return };
    let Some(()) = grant(&server, &EVERY_MODE) else { return };
    let client = Client::open(&url(&server)).unwrap().blocking();
    for limit in limits() {
        assert_answered(&ask_atomic(&client, limit));
        assert_answered(&ask_leases(&client, limit));
    }
    // An address can name a database.
    grant(&server, &[&EVERY_MODE[..], &["select"]].concat()).unwrap();
    let in_database = Client::open(&format!("{}1", url(&server))).unwrap().blocking();
    assert_answered(&ask_atomic(&in_database, limits()[0]));
    grant(&server, &[&EVERY_MODE[..], &HOLDS].concat()).unwrap();
    for limit in limits() {
        assert_answered(&ask_holds(&client, limit));
    }
    // A process that has not posted for more than an hour: the first post of another process removes it.
    server.command::<()>(&["HSET", "tollgate:v1:{acl|a}:pg0", "7", "1 1 1 - -"]);
    grant(&server, &[&EVERY_MODE[..], &WRITE_BACK].concat()).unwrap();
    for limit in limits() {
        assert_answered(&ask_write_back(&client, limit));
    }
    assert_eq!(server.command::<u64>(&["HEXISTS", "tollgate:v1:{acl|a}:pg0", "7"]), 0);
}

// G97
#[test]
fn user_with_least_rights_copies_moved_keys() {
    let (Some(one), Some(two)) = (Server::start(), Server::start()) else { return };
    let rights = [&EVERY_MODE[..], &["pttl"]].concat();
    let (Some(()), Some(())) = (grant(&one, &rights), grant(&two, &rights)) else { return };
    let shard = |name, server| Shard::new(name, Client::open(&url(server)).unwrap());
    let moved = Shards::new([shard("two", &two)]).previous([shard("one", &one)], Duration::from_secs(3_600));
    let moved = Client::sharded(moved).unwrap().blocking();
    for limit in limits() {
        let old = Client::open(&url(&one)).unwrap().blocking();
        let (old, new) = (builder(&old, limit).atomic().unwrap(), builder(&moved, limit).atomic().unwrap());
        for answer in [old.check_n("a", 600), new.block_on(|l| l.peek("a"))] {
            assert!((400..=401).contains(&answer.decision().remaining()), "{answer:?}");
        }
        assert!(new.check_n("a", 500).is_denied() && new.check_n("a", 300).is_allowed());
        assert_eq!(new.health().uncopied, 0);
        assert_answered(&new.health());
    }
}

#[test]
fn user_with_least_rights_suffices_in_cluster() {
    let Some(cluster) = Cluster::start() else { return };
    for node in &cluster.nodes {
        let Some(()) = grant(node, &[&EVERY_MODE[..], &WRITE_BACK, &CLUSTER].concat()) else { return };
    }
    let client = Client::cluster([&*url(&cluster.nodes[0])]).unwrap().blocking();
    for limit in limits() {
        assert_answered(&ask_atomic(&client, limit));
        assert_answered(&ask_leases(&client, limit));
        assert_answered(&ask_write_back(&client, limit));
    }
}

/// Returns the error that a client without one of its rights gets.
fn error_without(server: &Server, missing: &str, client: &Blocking<Client>) -> String {
    let rest = EVERY_MODE.into_iter().filter(|right| *right != missing);
    grant(server, &rest.collect::<Vec<_>>()).unwrap();
    // The script is known only if the first call may send it.
    let _: redis::Value = server.command(&["SCRIPT", "FLUSH"]);
    let limiter = builder(client, limits()[0]).atomic().unwrap();
    let error = limiter.block_on(|l| l.charge_unchecked("a", 1)).expect_err(missing);
    assert_eq!(error.kind(), ErrorKind::Refused, "{missing}: {error}");
    assert_eq!(limiter.health().errors(ErrorKind::Refused), 1);
    error.to_string()
}

/// Each right of the table is needed.
#[test]
fn user_with_fewer_rights_gets_clear_error() {
    let Some(server) = Server::start() else { return };
    let Some(()) = grant(&server, &EVERY_MODE) else { return };
    let client = Client::open(&url(&server)).unwrap().blocking();
    for missing in EVERY_MODE {
        let error = error_without(&server, missing, &client);
        println!("{missing}: {error}");
        let is_clear = error.contains("permission") || error.contains("can't run this command");
        assert!(is_clear, "{missing}: {error}");
    }
    type Ask = fn(&Blocking<Client>, Limit) -> Health;
    for (more, ask) in [(&WRITE_BACK[..], ask_write_back as Ask), (&HOLDS, ask_holds)] {
        for missing in more {
            let rights = EVERY_MODE.iter().chain(more).copied().filter(|right| right != missing);
            grant(&server, &rights.collect::<Vec<_>>()).unwrap();
            server.command::<()>(&["FLUSHALL"]);
            server.command::<()>(&["HSET", "tollgate:v1:{acl|a}:pg0", "7", "1 1 1 - -"]);
            let health = ask(&client, limits()[0]);
            assert!(health.errors(ErrorKind::Refused) > 0, "{missing}: {health:?}");
        }
    }
    // A user that may not touch the keys. The error does not contain the key.
    grant(&server, &EVERY_MODE).unwrap();
    let _: () = server.command(&["ACL", "SETUSER", "limits", "resetkeys", "~other:*"]);
    let limiter = builder(&client, limits()[0]).atomic().unwrap();
    let error = limiter.block_on(|l| l.charge_unchecked("a client", 1)).unwrap_err().to_string();
    println!("{error}");
    assert!(error.contains("NOPERM") && !error.contains("a client"), "{error}");
}

#[test]
fn user_without_cluster_rights_gets_clear_error() {
    let Some(cluster) = Cluster::start() else { return };
    for node in &cluster.nodes {
        let Some(()) = grant(node, &EVERY_MODE) else { return };
    }
    let client = Client::cluster([&*url(&cluster.nodes[0])]).unwrap().blocking();
    let limiter = builder(&client, limits()[0]).atomic().unwrap();
    let began = Instant::now();
    let error = limiter.block_on(|l| l.charge_unchecked("a", 1)).unwrap_err();
    println!("{error}");
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("permission"), "{error}");
    assert!(began.elapsed() < PATIENCE, "the call does not wait for its time-out");
}

/// An operator reads in the log why calls fail, whatever the mode.
#[cfg(feature = "tracing")]
#[test]
fn breaker_event_names_the_missing_right() {
    let Some(server) = Server::start() else { return };
    let Some(()) = grant(&server, &["eval"]) else { return };
    let client = Client::open(&url(&server)).unwrap();
    let limiter = strict(client.limiter("acl", limits()[0]), &[]).atomic().unwrap();
    let events = crate::listener::events(|| {
        // The runtime stays in this thread, where the subscriber is set.
        crate::one_thread().block_on(async {
            for _ in 0..10 {
                let _ = limiter.check("a").await;
            }
        });
    });
    let errors: Vec<_> = events.iter().filter_map(|(_, _, fields)| fields.get("error")).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains("permission") && errors[0].contains("evalsha"), "{errors:?}");
}
