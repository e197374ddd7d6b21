//! When the breaker opens, what probes, and when it closes.

use tollgate_redis::{BreakerState, DecidedBy};

use super::*;

// G84
#[tokio::test(start_paused = true)]
async fn timeout_noticed_late_does_not_count() {
    let limiter = limiter(&Fake::that(Does::Hang), OnFailure::Open);
    let late = async |lateness: Duration| {
        let stalls = async {
            tokio::task::yield_now().await;
            tokio::time::advance(TIMEOUT + lateness).await;
        };
        tokio::join!(ask(&limiter), stalls).0
    };
    for _ in 0..10 {
        assert_eq!(late(TIMEOUT).await, Err(ErrorKind::Timeout));
    }
    let health = limiter.health();
    assert_eq!((health.errors(ErrorKind::Timeout), health.opened), (10, 0));
    for _ in 0..3 {
        assert_eq!(late(TIMEOUT / 4).await, Err(ErrorKind::Timeout));
    }
    assert_eq!(limiter.health().opened, 1, "a time-out noticed nearly in time counts as a failure");
    // A probe that learns nothing keeps the breaker open.
    tokio::time::advance(2 * SECOND).await;
    assert_eq!(late(TIMEOUT).await, Err(ErrorKind::Timeout));
    assert_eq!(limiter.health().opened, 2);
    assert_eq!(ask(&limiter).await, Err(ErrorKind::Breaker));
}

// G82
#[tokio::test(start_paused = true)]
async fn hung_server_opens_the_breaker() {
    let server = Fake::that(Does::Hang);
    let limiter = limiter(&server, OnFailure::Open);
    for _ in 0..3 {
        let began = tokio::time::Instant::now();
        assert_eq!(ask(&limiter).await, Err(ErrorKind::Timeout));
        assert!((TIMEOUT..=TIMEOUT + Duration::from_millis(1)).contains(&began.elapsed()));
    }
    assert_eq!(server.asked(), 3);
    let began = tokio::time::Instant::now();
    for _ in 0..1_000 {
        assert_eq!(ask(&limiter).await, Err(ErrorKind::Breaker));
    }
    // An open breaker answers at once, without a call.
    assert_eq!((began.elapsed(), server.asked()), (Duration::ZERO, 0));
    // Ten minutes of requests, with pauses of half to all of a second.
    for _ in 0..60_000 {
        tokio::time::advance(Duration::from_millis(10)).await;
        let _ = ask(&limiter).await;
    }
    let probes = server.asked() as u64;
    assert!((560..=1_200).contains(&probes), "{probes}");
    let health = limiter.health();
    assert_eq!((health.asked, health.probes, health.opened), (3 + probes, probes, 1 + probes));
    assert_eq!(health.errors(ErrorKind::Timeout), 3 + probes);
    assert_eq!(health.errors(ErrorKind::Breaker), 61_000 - probes);
    assert_eq!((health.answered, health.failed()), (0, 3 + probes));
    assert!(health.is_partitioned());

    server.now_does(Does::Answer);
    tokio::time::advance(SECOND + TIMEOUT).await;
    for _ in 0..10 {
        assert_eq!(ask(&limiter).await, Ok(()));
    }
    let health = limiter.health();
    assert_eq!((health.answered, health.probes), (10, probes + 1));
    assert_eq!((health.breaker, health.is_partitioned()), (BreakerState::Closed, false));
}

// G84
#[tokio::test(start_paused = true)]
async fn one_of_many_calls_probes_after_the_pause() {
    let server = Fake::that(Does::Fail(ErrorKind::Unreachable));
    let limiter = limiter(&server, OnFailure::Open);
    for _ in 0..3 {
        assert_eq!(ask(&limiter).await, Err(ErrorKind::Unreachable));
    }
    server.now_does(Does::Late(TIMEOUT / 2));
    server.asked();
    tokio::time::advance(SECOND + TIMEOUT).await;
    let answers = futures_util::future::join_all((0..100).map(|_| ask(&limiter))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert_eq!(answers.iter().filter(|answer| **answer == Err(ErrorKind::Breaker)).count(), 99);
    assert_eq!(server.asked(), 1);
    assert_eq!(ask(&limiter).await, Ok(()), "after a successful probe, all calls are sent");
}

/// A call from before the opening ends while a probe is in flight. Only the probe closes the breaker.
#[tokio::test(start_paused = true)]
async fn late_answer_does_not_change_an_open_breaker() {
    const MS: Duration = Duration::from_millis(1);
    for late in [Does::Late(TIMEOUT / 2), Does::Hang] {
        let is_late = |call: &Call| call.tag.ends_with(b"late.a}");
        let server =
            Fake::new(move |call| if is_late(call) { late } else { Does::Fail(ErrorKind::Unreachable) });
        let limiter = limiter_of(&InProcess::default(), &server, Breaker::new(1, 10 * MS), OnFailure::Open);
        let state = async || {
            tokio::time::sleep(TIMEOUT - 5 * MS).await;
            (limiter.health().breaker, limiter.health().is_partitioned())
        };
        let rest = async {
            assert_eq!(ask(&limiter).await, Err(ErrorKind::Unreachable));
            tokio::time::sleep(12 * MS).await;
            server.now_does(Does::Late(TIMEOUT - MS));
            assert_eq!(tokio::join!(ask(&limiter), state()), (Ok(()), (BreakerState::HalfOpen, true)));
        };
        let (answer, ()) = tokio::join!(ask_about(&limiter, "late.a"), rest);
        assert_eq!(answer.is_ok(), matches!(late, Does::Late(_)));
        assert_eq!((limiter.health().breaker, limiter.health().opened), (BreakerState::Closed, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn only_server_errors_in_a_row_open_the_breaker() {
    for (kind, opens) in [
        (ErrorKind::Timeout, true),
        (ErrorKind::Unreachable, true),
        (ErrorKind::Refused, true),
        (ErrorKind::Reply, false),
        (ErrorKind::Address, false),
    ] {
        let server = Fake::that(Does::Fail(kind));
        let limiter = limiter(&server, OnFailure::Open);
        // A success sets the count back to zero.
        for does in [Does::Fail(kind), Does::Fail(kind), Does::Answer, Does::Fail(kind)] {
            server.now_does(does);
            let _ = ask(&limiter).await;
        }
        for _ in 0..10 {
            let _ = ask(&limiter).await;
        }
        assert_eq!(server.asked(), if opens { 6 } else { 14 }, "{kind:?}");
        assert_eq!(limiter.health().errors(kind), if opens { 5 } else { 13 });
        assert_eq!(limiter.health().is_partitioned(), opens);
    }
}

#[tokio::test(start_paused = true)]
async fn call_dropped_late_counts_as_failure() {
    // Futures that are dropped immediately: clients that hang up cannot open the breaker.
    let server = Fake::that(Does::Hang);
    let limiter = limiter(&server, OnFailure::Open);
    let dropped = async |after_ms| {
        let _ = tokio::time::timeout(Duration::from_millis(after_ms), ask(&limiter)).await.unwrap_err();
    };
    for _ in 0..50 {
        dropped(2).await;
    }
    let health = limiter.health();
    assert_eq!((health.abandoned, health.failed(), health.is_partitioned()), (50, 0, false));
    let others = [health.answered, health.probes, health.opened, health.uncopied];
    assert_eq!((health.asked, others), (50, [0; 4]));
    assert_eq!([health.open, health.closed, health.local], [0; 3]);
    // Futures that are dropped after more than a quarter of the time-out.
    for _ in 0..3 {
        dropped(15).await;
    }
    assert!(limiter.health().is_partitioned());
    // A probe whose caller disappears does not block the breaker: another probe follows after a pause, which is not longer.
    for _ in 0..5 {
        tokio::time::advance(SECOND + TIMEOUT).await;
        server.asked();
        dropped(2).await;
        assert_eq!((server.asked(), limiter.health().breaker), (1, BreakerState::Open));
        assert_eq!(ask(&limiter).await, Err(ErrorKind::Breaker));
    }
    server.now_does(Does::Answer);
    tokio::time::advance(SECOND + TIMEOUT).await;
    assert_eq!(ask(&limiter).await, Ok(()));
    assert_eq!(limiter.health().breaker, BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn partitioned_ends_with_the_pause() {
    let server = Fake::that(Does::Fail(ErrorKind::Unreachable));
    let limiter = limiter(&server, OnFailure::Open);
    for _ in 0..3 {
        let _ = ask(&limiter).await;
    }
    let state = || (limiter.health().breaker, limiter.health().is_partitioned());
    assert_eq!(state(), (BreakerState::Open, true));
    // Without traffic, no call can find out whether the server is back. The gauge must still return to 0, so
    // that an alarm ends.
    tokio::time::advance(2 * SECOND).await;
    assert_eq!(state(), (BreakerState::HalfOpen, false));
    // While the probe is in flight, other calls are denied.
    server.now_does(Does::Hang);
    let probe = tokio::time::timeout(TIMEOUT / 2, ask(&limiter));
    let during = async {
        tokio::time::sleep(TIMEOUT / 4).await;
        state()
    };
    assert_eq!(tokio::join!(probe, during).1, (BreakerState::HalfOpen, true));
}

/// Each pause is random, between half of its length and all of it. A tick of the breaker is about a millisecond.
// G85
#[tokio::test(start_paused = true)]
async fn pause_doubles_up_to_its_bound() {
    for (pause_ms, doubled_ms) in [
        (100, [100, 200, 400, 800, 800]),
        (300, [300, 600, 1_000, 1_000, 1_000]),
        (1_000, [1_000; 5]),
        (5_000, [5_000; 5]),
    ] {
        let server = Fake::that(Does::Fail(ErrorKind::Unreachable));
        let breaker = Breaker::new(1, Duration::from_millis(pause_ms));
        let limiter = limiter_of(&InProcess::default(), &server, breaker, OnFailure::Closed);
        let opens = async |ms: u64| {
            let wait = limiter.check("a").await.retry_after().expect("the breaker opens");
            let pause = Duration::from_millis(ms);
            assert!((pause / 2..pause + Duration::from_millis(2)).contains(&wait), "{ms}: {wait:?}");
            assert_eq!(server.asked(), 1);
            tokio::time::advance(wait).await;
        };
        for ms in doubled_ms {
            opens(ms).await;
        }
        server.now_does(Does::Answer);
        assert_eq!(limiter.check("a").await.by(), DecidedBy::Server);
        server.asked();
        server.now_does(Does::Fail(ErrorKind::Unreachable));
        opens(pause_ms).await;
    }
}

#[tokio::test(start_paused = true)]
async fn each_part_has_its_own_breaker() {
    let server = Fake::new(|call| if part_of(call) == usize::from(b'2') { Does::Hang } else { Does::Answer });
    let limiter = limiter(&server, OnFailure::Open);
    let mut answered = [0; 4];
    for _ in 0..20 {
        for (part, answered) in ["0", "1", "2", "3"].into_iter().zip(&mut answered) {
            *answered += u32::from(ask_about(&limiter, part).await.is_ok());
        }
    }
    assert_eq!(answered, [20, 20, 0, 20]);
    assert_eq!(server.asked(), 63);
    assert!(limiter.health().is_partitioned(), "one open breaker is enough");
}

#[tokio::test(start_paused = true)]
async fn closed_denies_until_the_next_probe() {
    // The error of one key does not open the breaker.
    let server = Fake::that(Does::Fail(ErrorKind::Reply));
    let limiter = limiter(&server, OnFailure::Closed);
    let answer = limiter.check("a").await;
    assert_eq!((answer.by(), answer.retry_after()), (DecidedBy::Closed, Some(SECOND)));
    server.now_does(Does::Hang);
    for _ in 0..3 {
        let _ = ask(&limiter).await;
    }
    let wait = limiter.check("a").await.retry_after().unwrap();
    assert!((SECOND / 2..SECOND + Duration::from_millis(2)).contains(&wait), "{wait:?}");
    server.now_does(Does::Answer);
    // The cost is more than the maximum of the tighter limit.
    assert!(limiter.check_n("a", 9).await.decision().is_never());
    assert_eq!(limiter.health().closed, 3);
    tokio::time::advance(wait - Duration::from_millis(1)).await;
    assert_eq!(ask(&limiter).await, Err(ErrorKind::Breaker));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(ask(&limiter).await, Ok(()), "the server is asked again when retry_after has passed");
}
