//! Faults that fail no call or one call, a limiter that starts before its server, and many tasks during an outage.

use std::time::Duration;

use tollgate::Quota;
use tollgate_redis::{Breaker, DecidedBy, Limit};

use super::subject::{LIMIT, LOCAL, PAUSE, POLICIES, SHARE, Subject, TIMEOUT};
use crate::{client, in_tasks, runtime, until};
use tollgate_testing::redis::{Proxy, Server};

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
                assert!(tally.admitted <= LIMIT && (policy != LOCAL || tally.let_through <= SHARE));
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
        subjects.iter().for_each(Subject::until_server);
    }
}

/// During an outage all of many tasks get answers, the open breaker protects the server, and the limit holds.
// G85
#[test]
fn concurrent_tasks_survive_outage() {
    const TASKS: usize = 64;
    const FAILURES: u32 = 5;
    let Some(server) = Server::start() else { return };
    let builder = client(&server).limiter("crowd", Limit::gcra(Quota::per_hour(LIMIT)));
    let builder = builder.timeout(TIMEOUT).breaker(Breaker::new(FAILURES, PAUSE)).on_failure(LOCAL);
    let limiter = builder.atomic().unwrap();
    let mut admitted = 0;
    runtime().block_on(async {
        while limiter.check("warm").await.by() != DecidedBy::Server {}
        server.pause();
        let before = limiter.health();
        let crowd = in_tasks(TASKS, |_| {
            let limiter = limiter.clone();
            async move {
                let mut admitted = 0;
                for _ in 0..100 {
                    admitted += u64::from(limiter.check("crowd").await.is_allowed());
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                admitted
            }
        });
        admitted += crowd.await.into_iter().sum::<u64>();
        let health = limiter.health();
        let asked = health.asked - before.asked - (health.probes - before.probes);
        // The failures before the one that opens the breaker, and answers of a server that pauses late, let a task ask again.
        let again = u64::from(FAILURES - 1) + (health.answered - before.answered);
        assert!(
            asked <= TASKS as u64 + again,
            "only calls that began before the breaker opened reach the server: {before:?} {health:?}"
        );
        server.resume();
        until("the server decides", async || limiter.check("warm again").await.by() == DecidedBy::Server)
            .await;
        for _ in 0..2 * LIMIT {
            admitted += u64::from(limiter.check("crowd").await.is_allowed());
        }
    });
    assert!(admitted <= LIMIT + SHARE + 1, "{admitted}");
}
