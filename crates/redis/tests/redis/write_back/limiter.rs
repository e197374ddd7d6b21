//! Write-back limiters with a server in this process and a manual clock.

use std::time::Duration;

use tollgate::{ManualClock, Quota, Timestamp};
use tollgate_redis::{DecidedBy, InProcess, Limit, OnFailure, WriteBackLimiter};

use crate::strict;

const START: Timestamp = Timestamp::from_secs(1_699_999_200);

fn clock() -> ManualClock {
    ManualClock::new(START)
}

fn limiter(
    server: &InProcess,
    clock: &ManualClock,
    limit: Limit,
    processes: u32,
) -> WriteBackLimiter<ManualClock> {
    let builder = server.limiter("api", limit).write_back().processes(processes);
    builder.clock(clock.clone()).build().unwrap()
}

fn admitted(limiter: &WriteBackLimiter<ManualClock>, times: usize) -> usize {
    (0..times).filter(|_| limiter.check("a").is_allowed()).count()
}

/// A process that starts again has no count of a key, so it admits its part before its first answer, and then no more.
// G80
#[tokio::test(flavor = "current_thread")]
async fn restarted_process_admits_one_part_of_an_exhausted_key() {
    let quota = Quota::per_day(100);
    for (limit, processes, part) in [
        (Limit::fixed_window(quota), 4, 25),
        (Limit::sliding_window(quota), 4, 25),
        (Limit::gcra(quota.burst(40)), 4, 10),
        (Limit::fixed_window(Quota::per_day(3)), 10, 1),
    ] {
        let (clock, used) = (clock(), limit.most());
        let server = InProcess::new(clock.clone());
        let all = server.limiter("api", limit).atomic().unwrap();
        assert!(all.check_n("a", used).await.is_allowed());
        for _ in 0..5 {
            let restarted = limiter(&server, &clock, limit, processes);
            assert_eq!(admitted(&restarted, 100), part, "{limit:?}: before the first answer");
            assert_eq!(restarted.flush().await, 0);
            assert_eq!(admitted(&restarted, 100), 0, "{limit:?}: after the first answer");
            assert_eq!(restarted.stats().overshoot, part as u64);
            restarted.close().await;
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn processes_learn_usage_from_posts() {
    let (clock, limit) = (clock(), Limit::fixed_window(Quota::per_minute(100)));
    let server = InProcess::new(clock.clone());
    let [one, two] = [(); 2].map(|()| limiter(&server, &clock, limit, 2));
    // Each process gets half of the limit before it knows the server's count.
    assert_eq!((admitted(&one, 100), admitted(&two, 100)), (50, 50));
    assert_eq!((one.flush().await, two.flush().await), (0, 0));
    assert_eq!(admitted(&two, 100), 0, "the limit is used up");
    // `one` asked when half was left and it had posted all used units, so it may admit (50 + 100 / 2) / (50 + 100) of
    // 50 units.
    assert_eq!(admitted(&one, 100), 33);
    assert_eq!((one.flush().await, admitted(&one, 100)), (0, 0));
    let stats = one.stats();
    assert_eq!((stats.keys, stats.pending, stats.failures, stats.evicted_pending), (1, 0, 0, 0));
    assert_eq!((stats.overshoot, two.stats().overshoot), (33, 0), "the units above the limit");
    // Clocks drift, so at the exact end of the window the next window may not have begun.
    clock.advance(Duration::from_millis(60_050));
    assert_eq!(admitted(&one, 100), 50, "the next window starts with its full share");
}

#[tokio::test(flavor = "current_thread")]
async fn single_busy_process_gets_full_limit() {
    let (clock, limit) = (clock(), Limit::fixed_window(Quota::per_minute(1_000)));
    let server = InProcess::new(clock.clone());
    let busy = limiter(&server, &clock, limit, 10);
    let mut units = 0;
    // Thirty-nine posts suffice for the whole limit.
    for _ in 0..39 {
        units += admitted(&busy, 1_000);
        assert_eq!(busy.flush().await, 0);
    }
    assert_eq!(units, 1_000, "one process gets the whole limit");
}

#[tokio::test(flavor = "current_thread")]
async fn waiting_check_asks_when_allowance_is_spent() {
    let (clock, limit) = (clock(), Limit::fixed_window(Quota::per_minute(100)));
    let server = InProcess::new(clock.clone());
    let limiter = limiter(&server, &clock, limit, 10);
    let mut allowed = 0;
    for _ in 0..150 {
        let answer = limiter.check_async("a").await;
        assert_eq!(answer.by(), DecidedBy::Held);
        allowed += u64::from(answer.is_allowed());
    }
    assert_eq!(allowed, 100, "no request is denied while units are left");
    let answer = limiter.check_async("a").await;
    assert_eq!(answer.retry_after(), Some(Duration::from_secs(60)));
    // This cost is above the process's share, and below the limit.
    assert!(limiter.check_n_async("b", 60).await.is_allowed());
    assert!(limiter.check_n_async("b", 60).await.is_denied());
    assert!(limiter.check_n_async("b", 101).await.decision().is_never());
    assert!(limiter.check_n("b", 0).is_allowed());
}

#[tokio::test(flavor = "current_thread")]
async fn each_limit_is_posted_by_its_windows() {
    let clock = clock();
    let server = InProcess::new(clock.clone());
    let more = [Limit::fixed_window(Quota::per_hour(25)), Limit::gcra(Quota::per_minute(600))];
    let make = || {
        let builder = server.limiter("api", Limit::fixed_window(Quota::per_second(10)));
        strict(builder, &more).write_back().clock(clock.clone()).build().unwrap()
    };
    let one = make();
    for admits in [10, 10, 5, 0] {
        assert_eq!(admitted(&one, 20), admits, "the hourly limit spans several windows of a second");
        assert_eq!(one.flush().await, 0);
        // Move a little into the next second. Clocks drift, so at its exact start the window before may not be over.
        clock.advance(Duration::from_millis(1_001));
    }
    let two = make();
    assert!(two.check_async("a").await.is_allowed(), "its own share, before it knows the server's count");
    assert_eq!(two.flush().await, 0);
    assert!(two.check_async("a").await.is_denied());
}

#[tokio::test(flavor = "current_thread")]
async fn close_and_drop_post_admitted_units() {
    let (clock, limit) = (clock(), Limit::fixed_window(Quota::per_minute(100)));
    let server = InProcess::new(clock.clone());
    let closed = limiter(&server, &clock, limit, 1);
    let copy = closed.clone();
    assert_eq!(admitted(&copy, 30), 30);
    assert_eq!(closed.close().await, 0);
    let dropped = limiter(&server, &clock, limit, 2);
    assert_eq!(admitted(&dropped, 30), 30);
    drop(dropped);
    // The task posts once more when the last copy is gone.
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    let all = server.limiter("api", limit).atomic().unwrap();
    assert_eq!(all.peek("a").await.decision().remaining(), 40, "both limiters posted their 30 units");
}

#[tokio::test(flavor = "current_thread")]
async fn write_back_key_beyond_capacity_asks_server() {
    let (clock, limit) = (clock(), Limit::fixed_window(Quota::per_minute(2)));
    let server = InProcess::new(clock.clone());
    let builder = server.limiter("api", limit).max_keys(1).on_failure(OnFailure::Closed);
    let limiter = builder.write_back().clock(clock.clone()).build().unwrap();
    assert!(limiter.check("a").is_allowed());
    assert!(limiter.check("b").is_denied(), "the limiter has no place for a second key");
    for allowed in [true, true, false] {
        let answer = limiter.check_async("b").await;
        assert_eq!((answer.is_allowed(), answer.by()), (allowed, DecidedBy::Server));
    }
    // The second key gets the place when the first is idle.
    assert_eq!(limiter.flush().await, 0);
    clock.advance(Duration::from_secs(180));
    assert_eq!(limiter.flush().await, 0);
    assert!(limiter.check("b").is_allowed());
}

#[test]
fn endless_timeout_is_accepted() {
    let limit = Limit::fixed_window(Quota::per_day(3));
    let server = InProcess::default().blocking();
    let limiter = server.limiter("api", limit).timeout(Duration::MAX).write_back().build().unwrap();
    assert_eq!((0..5).filter(|_| limiter.block_on(|l| l.check_async("a")).is_allowed()).count(), 3);
    assert_eq!(limiter.block_on(|l| l.clone().close()), 0);
}
