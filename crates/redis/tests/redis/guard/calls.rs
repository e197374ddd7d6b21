//! Calls to several servers, without a runtime and from threads, and what the guard reports of them.

use futures_util::FutureExt as _;
use tollgate_redis::{BreakerState, Shard, Shards};

use super::*;
use crate::absent;

/// Returns keys for which `is_wanted` accepts the place.
async fn keys_at(set: &InProcess, count: usize, is_wanted: impl Fn(Place) -> bool) -> Vec<String> {
    let finder = Fake::that(Does::Answer);
    let limiter = limiter_of(set, &finder, Breaker::default(), OnFailure::Open);
    let mut keys = Vec::new();
    for key in (0..).map(|key| format!("{key}.a")) {
        let _ = ask_about(&limiter, &key).await;
        let place = finder.0.lock().unwrap().asked.pop().expect("the server was asked");
        keys.extend(is_wanted(place).then_some(key));
        if keys.len() == count {
            break;
        }
    }
    keys
}

/// The server of index 0 hangs. Its breaker opens, and the other server is not affected.
// G96
#[tokio::test(start_paused = true)]
async fn each_server_has_its_own_breaker_and_counts() {
    let set = InProcess::sharded(["a", "b"].map(|name| Shard::new(name, InProcess::default()))).unwrap();
    let server = Fake::new(|call| if call.place.server == 0 { Does::Hang } else { Does::Answer });
    let limiter = limiter_of(&set, &server, Breaker::new(3, SECOND), OnFailure::Closed);
    // All keys are of the same part, so only the server differs.
    let [down, up] = [0, 1].map(|at| keys_at(&set, 5, move |place| place.server == at));
    let (down, up) = (down.await, up.await);
    for _ in 0..10 {
        assert!(ask_about(&limiter, &down[0]).await.is_err());
        assert!(ask_about(&limiter, &up[0]).await.is_ok());
    }
    server.now_does(Does::Fail(ErrorKind::Reply));
    let mut waits = [Duration::ZERO; 2];
    for (wait, keys) in waits.iter_mut().zip([&down, &up]) {
        for key in keys {
            *wait = limiter.check(key).await.retry_after().expect("the request can be admitted later");
        }
    }
    assert!(waits[0] < SECOND && waits[1] == SECOND, "the pause of its own server: {waits:?}");
    let health = limiter.health_by_server();
    let [(a, down), (b, up)] = &health[..] else { panic!("there are two servers") };
    assert_eq!((&**a, &**b), ("a", "b"));
    assert_eq!((down.asked, down.failed(), down.opened, down.errors(ErrorKind::Breaker)), (3, 3, 1, 12));
    assert_eq!((down.breaker, down.is_partitioned(), down.closed), (BreakerState::Open, true, 5));
    assert_eq!((up.asked, up.answered, up.failed(), up.opened), (15, 10, 5, 0));
    assert_eq!((up.breaker, up.is_partitioned(), up.closed), (BreakerState::Closed, false, 5));
    let sum = limiter.health();
    assert_eq!((sum.asked, sum.answered, sum.closed, sum.breaker), (18, 10, 10, BreakerState::Open));
    assert!(sum.is_partitioned());
}

// G97
#[tokio::test(start_paused = true)]
async fn hung_previous_server_delays_a_call_by_half_a_timeout() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let shard = |name| Shard::new(name, InProcess::default());
    let set = Shards::new([shard("a"), shard("b")]).previous([shard("a"), shard("c")], HOUR);
    let set = InProcess::sharded(set).unwrap();
    let limiter_hung = |hung| {
        let server = Fake::new(move |call| if call.place.server == hung { Does::Hang } else { Does::Answer });
        limiter_of(&set, &server, Breaker::new(3, SECOND), OnFailure::Closed)
    };
    let key = async |server, before| {
        keys_at(&set, 1, |place| place == Place { server, before: Some(before) }).await.remove(0)
    };
    let took = async |limiter: &AtomicLimiter, key: &str| {
        let began = tokio::time::Instant::now();
        (ask_about(limiter, key).await.is_ok(), began.elapsed().as_millis() / 2 * 2)
    };
    let half = TIMEOUT.as_millis() / 2;
    let (limiter, moved) = (limiter_hung(2), key(0, 2).await);
    for _ in 0..3 {
        assert_eq!(took(&limiter, &moved).await, (true, half), "the key begins with an empty state");
    }
    assert_eq!(took(&limiter, &moved).await, (true, 0), "the breaker of the previous server is open");
    let health = limiter.health_by_server();
    assert_eq!((health[2].1.uncopied, health[2].1.asked, health[0].1.uncopied), (4, 3, 0));
    assert_eq!((limiter.health().uncopied, limiter.health().abandoned), (4, 0));
    // Nothing is copied to a server that does not answer, and the previous server does not decide.
    assert_eq!(took(&limiter_hung(1), &key(1, 0).await).await, (false, half));
    tokio::time::advance(HOUR).await;
    assert_eq!(took(&limiter, &moved).await, (true, 0));
    let previous = limiter.health_by_server()[2].1;
    assert_eq!((previous.uncopied, previous.asked), (4, 3), "the previous server is not asked any more");
}

// G82
#[test]
fn missing_runtime_does_not_panic() {
    let answering = limiter(&Fake::that(Does::Answer), OnFailure::Open);
    assert_eq!(ask(&answering).now_or_never(), Some(Ok(())));
    let limiter = absent().limiter("api", Limit::gcra(Quota::per_second(1))).atomic().unwrap();
    assert_eq!(ask(&limiter).now_or_never(), Some(Err(ErrorKind::Unreachable)));
}

#[test]
fn blocking_calls_use_the_breaker() {
    let builder = absent().blocking().limiter("api", Limit::gcra(Quota::per_second(1)));
    let limiter = builder.breaker(Breaker::new(3, 3_600 * SECOND)).timeout(20 * SECOND).atomic().unwrap();
    let ask = || limiter.block_on(|l| l.charge_unchecked("a", 1)).unwrap_err();
    for _ in 0..3 {
        assert_eq!(ask().kind(), ErrorKind::Unreachable);
    }
    assert_eq!(ask().kind(), ErrorKind::Breaker);
    assert_eq!(ask().to_string(), "the circuit breaker is open");
    let health = limiter.health();
    assert_eq!((health.asked, health.errors(ErrorKind::Breaker)), (3, 2));
}

/// Operators depend on the names of metrics.
#[cfg(feature = "metrics")]
#[test]
fn guard_reports_to_the_metrics_facade() {
    crate::recorded::recorded(|values| {
        let server = Fake::that(Does::Answer);
        let limiter = limiter(&server, OnFailure::Local { processes: 1 });
        assert_eq!(ask(&limiter).now_or_never(), Some(Ok(())));
        server.now_does(Does::Fail(ErrorKind::Timeout));
        for _ in 0..4 {
            assert!(ask(&limiter).now_or_never().expect("at once").is_err());
        }
        let _ = limiter.check("a").now_or_never().expect("at once");
        tollgate::telemetry::publish("api", &limiter.health());
        let mut values = values();
        values.retain(|_, value| *value > 0.0);
        let expected = [
            ("tollgate_breaker_state{limiter=api}", 2.0),
            ("tollgate_failure_decisions_total{limiter=api,decision=error_local}", 1.0),
            ("tollgate_partitioned{limiter=api}", 1.0),
            ("tollgate_sync_duration_seconds{limiter=api}", 4.0),
            ("tollgate_sync_errors_total{limiter=api,kind=breaker}", 2.0),
            ("tollgate_sync_errors_total{limiter=api,kind=timeout}", 3.0),
        ];
        assert_eq!(values, expected.map(|(name, value)| (name.to_owned(), value)).into());
    });
}
