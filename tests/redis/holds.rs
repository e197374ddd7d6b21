//! Requests in progress that processes share.
//! - Against a list of requests: every decision.
//! - On a real server: calls whose answers are lost, and keys that expire.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use tollgate::holds::HoldId;
use tollgate::redis::{BlockingClient, Breaker, Client, DecidedBy, InProcess, OnFailure, SharedPermit};
use tollgate::{ManualClock, Timestamp};
use tollgate_testing::holds::HoldOp as Op;
use tollgate_testing::redis::Server;

const PATIENCE: Duration = Duration::from_secs(20);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn start() -> ManualClock {
    ManualClock::new(Timestamp::from_secs(1_800_000_000))
}

fn op() -> impl Strategy<Value = (u64, Op)> {
    let op = prop_oneof![
        4 => (0..12_u64).prop_map(Op::Check),
        5 => (0..12_u64, 0..40_u8).prop_map(|(units, life_s)| Op::Hold { units, life_s }),
        3 => (any::<u8>(), 0..20_u64).prop_map(|(which, actual)| Op::Commit { which, actual }),
        2 => any::<u8>().prop_map(|which| Op::Release { which }),
        3 => (0..20_000_000_000_u64).prop_map(Op::Wait),
    ];
    (0..2_u64, op)
}

/// The time of a server, in whole microseconds.
fn server_time(clock: &ManualClock) -> Timestamp {
    use tollgate::Clock as _;
    Timestamp::from_nanos(clock.now().as_nanos() / 1_000 * 1_000)
}

proptest! {
    #[test]
    /// The units in progress are those of the requests that have not left and have not ended.
    fn shared_in_progress_equals_a_list(ops in prop::collection::vec(op(), 1..80)) {
        const LIMIT: u64 = 15;
        let clock = start();
        let server = InProcess::new(clock.clone()).blocking();
        let limiters = [(); 2].map(|()| server.in_progress("exports", LIMIT).life(seconds(20)).build().unwrap());
        let mut held = Vec::<(u64, HoldId, u64)>::new();
        for (index, (key, op)) in ops.into_iter().enumerate() {
            let (limiter, now) = (&limiters[index % 2], server_time(&clock));
            held.retain(|(_, id, _)| id.end() > now);
            let used: u64 = held.iter().filter(|of| of.0 == key).map(|&(_, _, units)| units).sum();
            prop_assert_eq!(limiter.current(&key).unwrap(), used);
            match op {
                Op::Hold { units, .. } => match limiter.try_enter(&key, units).map(SharedPermit::detach) {
                    Ok(id) => {
                        prop_assert!(used + units <= LIMIT);
                        held.push((key, id, units));
                    }
                    Err(denied) => {
                        prop_assert!(used + units > LIMIT);
                        let decision = denied.decision();
                        prop_assert_eq!((decision.limit(), decision.remaining()), (LIMIT, LIMIT - used));
                        let first = held.iter().filter(|of| of.0 == key).map(|of| of.1.end()).min();
                        let first = first.map_or(Duration::ZERO, |end| end.duration_since(now));
                        prop_assert_eq!(decision.retry_after(), Some(first));
                    }
                },
                Op::Release { which } if !held.is_empty() => {
                    let (key, id, _) = held.swap_remove(usize::from(which) % held.len());
                    prop_assert!(limiter.leave(&key, id).unwrap());
                    prop_assert!(!limiter.leave(&key, id).unwrap());
                }
                Op::Wait(ns) => clock.advance(Duration::from_nanos(ns)),
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn renewed_permit_ends_later() {
    let clock = start();
    let exports = InProcess::new(clock.clone()).in_progress("exports", 1).life(seconds(10)).build().unwrap();
    let mut stream = exports.try_enter("a", 1).await.unwrap();
    for _ in 0..5 {
        clock.advance(seconds(9));
        assert!(stream.renew().await.unwrap());
        assert_eq!(stream.id().end(), server_time(&clock) + seconds(10));
        assert!(exports.try_enter("a", 1).await.is_err());
    }
    clock.advance(seconds(10));
    assert!(!stream.renew().await.unwrap() && exports.try_enter("a", 1).await.is_ok());
}

/// A caller that stops waiting, and a call without an answer in time, leave no request in progress.
#[tokio::test]
async fn lost_answers_are_withdrawn() {
    let Some(server) = Server::start() else { return };
    let client = Client::open(&server.url()).unwrap();
    let build = || client.in_progress("exports", 1).breaker(Breaker::new(u32::MAX, Duration::ZERO));
    let patient = build().timeout(PATIENCE).on_failure(OnFailure::Closed).build().unwrap();
    let hasty = build().timeout(Duration::from_millis(300)).on_failure(OnFailure::Closed).build().unwrap();
    assert!(patient.try_enter("a", 1).await.unwrap().leave().await.unwrap());
    for _ in 0..3 {
        server.pause();
        let stopped = tokio::time::timeout(Duration::from_millis(100), patient.try_enter("a", 1)).await;
        assert!(stopped.is_err());
        assert_eq!(hasty.try_enter("b", 1).await.unwrap_err().by(), DecidedBy::Closed);
        server.resume();
        let began = Instant::now();
        for key in ["a", "b"] {
            while patient.current(key).await.map_or(true, |units| units > 0) {
                assert!(began.elapsed() < PATIENCE, "{key} is in progress for the rest of its life");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// The keys of holds expire with their last hold, and an empty key is removed at once.
#[test]
fn keys_of_holds_expire() {
    let Some(server) = Server::start() else { return };
    let client = BlockingClient::open(&server.url()).unwrap();
    let exports = client.in_progress("exports", 4).life(seconds(5)).timeout(PATIENCE).build().unwrap();
    let permit = exports.try_enter("s", 1).unwrap();
    let name = "tollgate:v1:{exports|s}:n";
    let left: i64 = server.command(&["PTTL", name]);
    assert!((4_000..=6_000).contains(&left), "{left}");
    assert!(exports.leave("s", permit.id()).unwrap());
    assert_eq!(server.command::<u64>(&["EXISTS", name]), 0);
    // A value that is not ours is an error of this key.
    server.command::<()>(&["SET", name, "x"]);
    assert!(exports.current("s").unwrap_err().to_string().contains("did not write"));
    assert_eq!(exports.health().opened, 0);
}
