//! Holds and requests in progress whose answers are lost, and permits that are dropped while the breaker is open: none counts for the
//! rest of its life.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

use std::time::Duration;

use crate::{PATIENCE, client, until};
use tollgate_redis::{Breaker, DecidedBy, InProgressLimiter, OnFailure, SharedHold};
use tollgate_testing::redis::Server;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Waits until no unit of the key is in progress, long before any life ends.
async fn all_end(exports: &InProgressLimiter, key: &str) {
    until("no unit is in progress", async || exports.current(key).await.is_ok_and(|units| units == 0)).await;
}

/// A server, and two limiters of the same requests: one that waits for a server which is slow, and one with a short time-out.
async fn patient_and_hasty(breaker: Breaker) -> Option<(Server, [InProgressLimiter; 2])> {
    let server = Server::start()?;
    let limiters = [PATIENCE, Duration::from_millis(300)].map(|timeout| {
        let exports = client(&server).in_progress("exports", 20).life(seconds(600)).timeout(timeout);
        exports.breaker(breaker).on_failure(OnFailure::Closed).build().unwrap()
    });
    assert!(limiters[0].try_enter("a", 1).await.unwrap().release().await.unwrap());
    Some((server, limiters))
}

/// Enters. On a busy machine the reply may come after the time-out, so this asks again.
async fn entered(exports: &InProgressLimiter, key: &str) -> SharedHold {
    loop {
        if let Ok(permit) = exports.try_enter(key, 1).await {
            return permit;
        }
    }
}

/// A caller that stops waiting, and a call without an answer in time, leave no request in progress.
// G136
#[tokio::test]
async fn lost_answers_are_withdrawn() {
    let never = Breaker::new(u32::MAX, Duration::ZERO);
    let Some((server, [patient, hasty])) = patient_and_hasty(never).await else { return };
    for _ in 0..3 {
        server.pause();
        let stopped = tokio::time::timeout(Duration::from_millis(100), patient.try_enter("a", 1)).await;
        assert!(stopped.is_err());
        assert_eq!(hasty.try_enter("b", 1).await.unwrap_err().by(), DecidedBy::Closed);
        server.resume();
        all_end(&patient, "a").await;
        all_end(&patient, "b").await;
    }
}

/// An answer to a renewal that is lost does not keep the request in progress after its permit is dropped.
// G136
#[tokio::test]
async fn lost_renewal_does_not_outlive_its_permit() {
    let never = Breaker::new(u32::MAX, Duration::ZERO);
    let Some((server, [patient, hasty])) = patient_and_hasty(never).await else { return };
    let mut permit = entered(&hasty, "a").await;
    server.pause();
    assert!(permit.renew().await.is_err(), "no answer in time");
    server.resume();
    // On a busy machine an earlier try may have entered as well, and is withdrawn.
    until("one unit is in progress", async || patient.current("a").await.unwrap() == 1).await;
    // The reply may come after the time-out.
    until("the renewal is answered", async || permit.renew().await.is_ok_and(|is_there| is_there)).await;
    drop(permit);
    all_end(&patient, "a").await;
}

/// A short stall of the server leaves no request in progress, also if the breaker opens.
// G136
#[tokio::test]
async fn lost_answers_are_withdrawn_although_the_breaker_is_open() {
    let Some((server, [patient, hasty])) = patient_and_hasty(Breaker::default()).await else { return };
    drop(entered(&hasty, "a").await);
    server.pause();
    let enters = (0..20).map(|_| hasty.try_enter("a", 1));
    assert!(futures_util::future::join_all(enters).await.iter().all(Result::is_err));
    server.resume();
    all_end(&patient, "a").await;
}

/// A permit that is dropped ends its request, also while the breaker is open.
// G136
#[tokio::test]
async fn permits_dropped_while_the_breaker_is_open_end() {
    let Some((server, [patient, hasty])) = patient_and_hasty(Breaker::default()).await else { return };
    let mut permits = Vec::new();
    for _ in 0..5 {
        permits.push(entered(&hasty, "a").await);
    }
    server.pause();
    for _ in 0..20 {
        assert!(hasty.try_enter("b", 1).await.is_err());
    }
    // The requests end during the stall.
    drop(permits);
    server.resume();
    all_end(&patient, "a").await;
}

/// A release that no server answers is repeated only for the life of the hold. No task stays.
// G136
#[tokio::test]
async fn releases_without_an_answer_stop_with_the_life() {
    let Some(server) = Server::start() else { return };
    let exports = client(&server).in_progress("exports", 1).life(seconds(1));
    let exports = exports.timeout(Duration::from_millis(300));
    let exports = exports.on_failure(OnFailure::Closed).build().unwrap();
    let permit = entered(&exports, "a").await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    server.pause();
    drop(permit);
    assert_eq!(tasks(), before + 1);
    until("the release is given up", async || tasks() <= before).await;
    server.resume();
}
