//! Faults that fail no call or one call, a limiter that starts before its server, and many tasks during an outage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::Quota;
use tollgate_redis::{Breaker, Client, DecidedBy, Limit, OnFailure};

use super::subject::{LIMIT, LOCAL, PAUSE, POLICIES, SHARE, Subject, TIMEOUT};
use tollgate_testing::redis::{Proxy, Server};

/// If the server loses the script, the next call loads it again, and no caller sees an error.
// G85
#[test]
fn lost_script_is_loaded_again() {
    let Some(server) = Server::start() else { return };
    for subject in Subject::both(&server.url(), OnFailure::Closed) {
        subject.until_server();
        for round in 0..20 {
            let _: redis::Value = server.command(&["SCRIPT", "FLUSH"]);
            loop {
                let failed = subject.health().failed();
                if subject.check(&format!("{} {round}", subject.name())).by() == DecidedBy::Server {
                    break;
                }
                // On a busy machine the reply may come after the time-out.
                let health = subject.health();
                assert!(health.failed() > failed || health.is_partitioned(), "{health:?}");
            }
        }
        assert!(subject.health().answered >= 20, "{:?}", subject.health());
    }
}

/// A connection that is cut within a reply fails that call. The client opens a new connection, and mixes up no replies.
#[test]
fn truncated_reply_fails_one_call() {
    let Some(server) = Server::start() else { return };
    for policy in POLICIES {
        let proxy = Proxy::start(server.port());
        for subject in Subject::both(&proxy.url(), policy) {
            for bytes in 0..6 {
                subject.until_server();
                let failed = subject.health().failed();
                proxy.cut_after(bytes);
                let key = format!("cut {policy:?} {bytes} {}", subject.name());
                let tally = subject.check_times(&key, LIMIT + SHARE + 5);
                assert!(subject.health().failed() > failed, "{}", subject.name());
                assert!(tally.admitted <= LIMIT);
                if policy == LOCAL {
                    assert!(tally.let_through <= SHARE);
                }
            }
            subject.until_server();
        }
    }
}

/// A limiter that starts before its server uses the policy, and later the server.
#[test]
fn limiter_may_start_before_server() {
    for policy in POLICIES {
        let Some(mut server) = Server::start() else { return };
        server.kill();
        let subjects = Subject::both(&server.url(), policy);
        for subject in &subjects {
            let tally = subject.check_times("early", 20);
            assert_eq!((tally.by_server, tally.by_policy), (0, 20), "{}", subject.name());
            assert!(subject.health().answered == 0 && subject.health().is_partitioned());
        }
        server.restart();
        for subject in &subjects {
            subject.until_server();
        }
    }
}

/// During an outage all of many tasks get answers, the open breaker protects the server, and the limit holds.
// G85
#[test]
fn concurrent_tasks_survive_outage() {
    const TASKS: u64 = 64;
    const FAILURES: u32 = 5;
    let Some(server) = Server::start() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let client = Client::open(&server.url()).unwrap();
    let limiter = client
        .limiter("crowd", Limit::gcra(Quota::per_hour(LIMIT)))
        .timeout(TIMEOUT)
        .breaker(Breaker::new(FAILURES, PAUSE))
        .on_failure(LOCAL)
        .atomic()
        .unwrap();
    let (admitted, answers) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    runtime.block_on(async {
        while limiter.check("warm").await.by() != DecidedBy::Server {}
        server.pause();
        let before = limiter.health();
        let crowd: Vec<_> = (0..TASKS)
            .map(|_| {
                let (limiter, admitted, answers) =
                    (limiter.clone(), Arc::clone(&admitted), Arc::clone(&answers));
                tokio::spawn(async move {
                    for _ in 0..100 {
                        let answer = limiter.check("crowd").await;
                        admitted.fetch_add(u64::from(answer.is_allowed()), Ordering::Relaxed);
                        answers.fetch_add(1, Ordering::Relaxed);
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                })
            })
            .collect();
        for task in crowd {
            task.await.unwrap();
        }
        let health = limiter.health();
        assert_eq!(answers.load(Ordering::Relaxed), TASKS * 100);
        let asked = health.asked - before.asked - (health.probes - before.probes);
        // The failures before the one that opens the breaker, and answers of a server that pauses late, let a task ask again.
        let again = u64::from(FAILURES - 1) + (health.answered - before.answered);
        assert!(
            asked <= TASKS + again,
            "only calls that began before the breaker opened reach the server: {before:?} {health:?}"
        );
        server.resume();
        while limiter.check("warm again").await.by() != DecidedBy::Server {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for _ in 0..2 * LIMIT {
            admitted.fetch_add(u64::from(limiter.check("crowd").await.is_allowed()), Ordering::Relaxed);
        }
    });
    let admitted = admitted.load(Ordering::Relaxed);
    assert!(admitted <= LIMIT + SHARE + 1, "{admitted}");
}
