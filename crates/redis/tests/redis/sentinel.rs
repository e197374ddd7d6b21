//! Servers behind Sentinels: a master that dies, that is demoted, or that is left alone.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

use std::time::{Duration, Instant};

use crate::modes::AnyMode;
use crate::{PATIENCE, strict, until, wait_until};
use tokio::time::sleep;
use tollgate::Quota;
use tollgate_redis::{Client, CredentialsFile, DecidedBy, Limit, OnFailure};
use tollgate_testing::redis::{NO_END, Sentinels, Server};

fn keys(server: &Server) -> i64 {
    server.ask("data", &["DBSIZE"]).unwrap()
}

/// The master is killed under load. All decisions are counted.
// G145
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_master_gives_back_only_what_the_replica_missed() {
    const LIMIT: u64 = 600;
    /// What the master admits after the replica was last level with it. At most this did not reach the replica.
    const MISSED: u64 = 50;
    let Some(mut all) = Sentinels::start() else { return };
    let client = Client::open(&all.url()).unwrap();
    let builder = client.limiter("api", Limit::fixed_window(Quota::new(LIMIT, NO_END)));
    let limiter = builder.timeout(Duration::from_millis(200)).on_failure(OnFailure::Closed).atomic().unwrap();
    let (mut admitted, mut killed, mut is_used_again) = (0, None, None);
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < 2 * PATIENCE, "the limit is used up after the fail-over");
        let answer = limiter.check("a").await;
        if answer.is_allowed() {
            assert_eq!(answer.by(), DecidedBy::Server, "nothing passes without a decision of a server");
            admitted += 1;
        }
        if answer.by() == DecidedBy::Server {
            if let (Some(killed), None) = (killed, is_used_again) {
                is_used_again = Some(Instant::now().duration_since(killed));
            }
            if answer.is_denied() {
                break;
            }
        }
        if admitted == LIMIT / 2 - MISSED && killed.is_none() {
            wait_until("the replica follows", || replicated(&all.master) == replicated(&all.replica));
        }
        if admitted == LIMIT / 2 && killed.is_none() {
            all.master.kill();
            killed = Some(Instant::now());
        }
        sleep(Duration::from_millis(2)).await;
    }
    println!("admitted {admitted} of {LIMIT}; used again after {:?}", is_used_again.unwrap());
    assert!(admitted <= LIMIT + MISSED, "{admitted} of {LIMIT}, and {MISSED} at most twice");
    // A call without an answer in time may have been counted.
    let failed = limiter.health().failed();
    assert!(admitted + failed >= LIMIT, "{admitted} of {LIMIT}, and {failed} calls failed");
}

/// Returns up to which byte of the stream of commands a server is.
fn replicated(server: &Server) -> String {
    let info: String = server.ask("data", &["INFO", "replication"]).unwrap();
    let offset = info.lines().find_map(|line| line.strip_prefix("master_repl_offset:"));
    offset.expect("each server has an offset").to_owned()
}

/// A master that becomes a replica still answers, and refuses writes.
// G145
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demoted_master_is_left_in_every_mode() {
    let Some(all) = Sentinels::start() else { return };
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "data\n").unwrap();
    // The credentials of the file are for the servers. The Sentinels have their own in the address.
    let url = all.url().replace(":data@", "");
    let client = Client::open(&url).unwrap().credentials(CredentialsFile::new(secret.path()));
    let modes = AnyMode::all(|name| {
        let builder = client.limiter(name, Limit::fixed_window(Quota::new(1_000_000, NO_END)));
        builder.timeout(Duration::from_millis(200)).on_failure(OnFailure::Closed)
    });
    for mode in &modes {
        // On a busy machine the first answers may come after the time-out.
        until("the limiter uses the master", async || mode.check("a").await.is_allowed()).await;
    }
    let () = all.sentinels[0].ask("watch", &["SENTINEL", "FAILOVER", "mymaster"]).unwrap();
    all.until_replica_takes_over();
    let mut turn = 0;
    // New keys need new leases and new posts.
    until("the limiters use the new master", async || {
        turn += 1;
        for mode in &modes {
            let _ = mode.check(&turn.to_string()).await;
        }
        keys(&all.replica) >= 40
    })
    .await;
    for mode in &modes {
        let before = mode.health().answered;
        let _ = mode.check("last").await;
        until("the limiter hears a reply", async || mode.health().answered > before).await;
    }
}

/// A master that the Sentinels replaced while it hung answers again, before anything demotes it.
// G145
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_master_is_left_although_it_answers() {
    let Some(all) = Sentinels::start() else { return };
    let client = Client::open(&all.url()).unwrap();
    let builder = client.limiter("api", Limit::gcra(Quota::per_day(1_000_000)));
    let limiter = builder.timeout(Duration::from_secs(2)).on_failure(OnFailure::Closed).atomic().unwrap();
    assert_eq!(limiter.check("a").await.by(), DecidedBy::Server);
    all.master.pause();
    all.until_replica_takes_over();
    // The master does not answer. So the new one does, as soon as the client looks for it: once a second.
    until("the limiter uses the new master", async || limiter.check("a").await.by() == DecidedBy::Server)
        .await;
    all.master.resume();
    let (old, new) = (keys(&all.master), keys(&all.replica));
    assert_eq!(limiter.check("b").await.by(), DecidedBy::Server);
    assert_eq!(keys(&all.replica), new + 1);
    assert!(keys(&all.master) <= old.max(new + 1));
}

// G145
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_names_and_absent_sentinels_are_errors() {
    let Some(all) = Sentinels::start() else { return };
    for url in [all.url().replace("mymaster", "other"), "redis-sentinel://127.0.0.1:1/mymaster".to_owned()] {
        let client = Client::open(&url).unwrap();
        let limiter = strict(client.limiter("api", Limit::gcra(Quota::per_day(10))), &[]).atomic().unwrap();
        assert_eq!(limiter.check("a").await.by(), DecidedBy::Closed);
    }
    #[cfg(feature = "rules")]
    {
        let rules = tollgate_redis::RedisRules::open(&all.url(), "limits").unwrap();
        assert!(rules.pull().unwrap().is_none(), "rules are read at the master");
    }
    // Three Sentinels of five are more than half.
    let url = all.url().replace("sentinel://:data@", "sentinel://:data@127.0.0.1:1,127.0.0.1:2,");
    let limiter = Client::open(&url).unwrap().limiter("api", Limit::gcra(Quota::per_day(10)));
    let limiter = limiter.timeout(PATIENCE).atomic().unwrap();
    assert_eq!(limiter.check("a").await.by(), DecidedBy::Server);
}

#[test]
fn addresses_of_sentinels_are_checked() {
    let open = |rest| Client::open(&format!("redis-sentinel://{rest}"));
    for rest in ["a:1", "a:1/", "a,,b/n", "/n"] {
        let error = open(rest).unwrap_err().to_string();
        assert!(error.contains("redis-sentinel://"), "{rest}: {error}");
    }
    for rest in ["a/n", "u:p@a:1,b,[::1]:3/n/2", "a/n?auth=u:p"] {
        assert!(open(rest).is_ok(), "{rest}");
    }
}
