//! Decisions while no server answers: admitted, denied, or decided by this process's share of the limits.

use std::time::Duration;

use tollgate::{Quota, Timestamp};
use tollgate_redis::{AtomicLimiter, Blocking, Breaker, DecidedBy, Limit, OnFailure};

use crate::absent;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const SECOND: Duration = Duration::from_secs(1);

/// A limiter whose server refuses connections. Its breaker never opens, or opens with the first call.
fn limiter(
    limits: &[Limit],
    on_failure: OnFailure,
    max_keys: usize,
    failures: u32,
) -> Blocking<AtomicLimiter> {
    let builder = absent().blocking().limiter("api", limits[0]).on_failure(on_failure).max_keys(max_keys);
    let builder = builder.breaker(Breaker::new(failures, Duration::from_secs(3_600)));
    limits[1..].iter().fold(builder, |builder, limit| builder.and(*limit)).atomic().unwrap()
}

fn two_limits() -> [Limit; 2] {
    [Limit::gcra(Quota::per_second(10)), Limit::fixed_window(Quota::per_hour(8))]
}

#[test]
fn open_admits_all_uncharged() {
    let limiter = limiter(&two_limits(), OnFailure::Open, 100, u32::MAX);
    for cost in [0, 1, 1_000] {
        let answer = limiter.block_on(|l| l.at(NOW).check_n("a", cost));
        assert_eq!((answer.is_allowed(), answer.by()), (true, DecidedBy::Open));
        assert_eq!((answer.decision().remaining(), answer.decision().at()), (0, NOW));
        assert_eq!(limiter.block_on(|l| l.refund("a", &answer)).unwrap(), 0);
    }
    assert_eq!(limiter.health().open, 3);
}

// G83
#[test]
fn local_decides_by_its_share() {
    let limiter = limiter(&two_limits(), OnFailure::Local { processes: 2 }, 100, u32::MAX);
    let check = |cost| limiter.block_on(|l| l.at(NOW).check_n("a", cost));
    let admitted = (0..20).filter(|_| check(1).is_allowed()).count();
    assert_eq!(admitted, 4, "the share is half of 8 units an hour");
    let refused = check(1);
    assert_eq!(refused.by(), DecidedBy::Local);
    assert!(refused.retry_after().unwrap() > SECOND, "the share has room only when the window ends");
    assert!(limiter.block_on(|l| l.at(NOW).check_n("b", 4)).is_allowed(), "each key has its own share");
    // More than the share, but not more than the limit: the retry time is when the server is back.
    assert_eq!((check(5).decision().is_never(), check(5).retry_after()), (false, Some(SECOND)));
    assert!(check(9).decision().is_never());
    assert_eq!(limiter.health().local, 25);
    // A peek charges nothing.
    for _ in 0..3 {
        let peeked = limiter.block_on(|l| l.peek_n("c", 3));
        assert_eq!((peeked.is_allowed(), limiter.block_on(|l| l.refund("c", &peeked)).unwrap()), (true, 0));
        assert_eq!(peeked.decision().remaining(), 4);
    }
    assert!(limiter.block_on(|l| l.peek_n("c", 9)).decision().is_never());
}

#[test]
fn local_charges_all_limits_or_none() {
    let limits = [
        Limit::gcra(Quota::per_second(10)),
        Limit::fixed_window(Quota::per_minute(6)),
        Limit::sliding_window(Quota::per_hour(100)).strict(),
    ];
    let limiter = limiter(&limits, OnFailure::Local { processes: 2 }, 100, u32::MAX);
    let minute = |minute: u32| Timestamp::from_secs(1_699_999_200) + 60 * minute * SECOND;
    let first = limiter.block_on(|l| l.at(minute(0)).check_n("a", 2));
    let left = first.decision().remaining();
    assert_eq!((first.is_allowed(), left), (true, 1), "the share of a minute is 3 units");
    for _ in 0..100 {
        let denied = limiter.block_on(|l| l.at(minute(0)).check_n("a", 2));
        assert_eq!((denied.is_denied(), denied.decision().limit()), (true, 3));
    }
    // The requests that the minute denied did not charge the hour, whose share is 50 units.
    for at in 1..=16 {
        assert!(limiter.block_on(|l| l.at(minute(at)).check_n("a", 3)).is_allowed(), "minute {at}");
    }
    assert_eq!(limiter.block_on(|l| l.at(minute(17)).check("a")).decision().limit(), 50);
    assert!(limiter.block_on(|l| l.at(minute(0)).check_n("b", 3)).is_allowed(), "each key has its own share");
}

/// Rounding matters most for small shares: each share would round the same half unit down.
// G83
#[test]
fn sliding_window_shares_admit_at_most_the_limit() {
    let start = Timestamp::from_secs(1_699_920_000);
    let end = start + Duration::from_secs(60);
    for limit in [1, 4, 7, 8, 32] {
        for processes in [1, 2, 4, 8, 32] {
            let limits = [Limit::sliding_window(Quota::per_minute(limit))];
            let on_failure = OnFailure::Local { processes };
            let all: Vec<_> = (0..processes).map(|_| limiter(&limits, on_failure, 10, 1)).collect();
            for after_ms in [100, 900, 15_000, 30_000] {
                let key = after_ms.to_string();
                let admitted = |now| -> u64 {
                    let each = all.iter().map(|limiter| {
                        let allowed = || limiter.block_on(|l| l.at(now).check(&*key)).is_allowed();
                        std::iter::repeat_with(allowed).take_while(|allowed| *allowed).count()
                    });
                    u64::try_from(each.sum::<usize>()).unwrap()
                };
                let first = admitted(start + Duration::from_millis(59_900));
                let second = admitted(end + Duration::from_millis(after_ms));
                // The result of one limiter with the whole limit, which rounds the previous window down once.
                let weighed = first * (60_000 - after_ms) / 60_000;
                let bound = limit.max(u64::from(processes));
                let what = format!("{limit} among {processes}: {first}, and {second} {after_ms} ms later");
                assert!(first <= bound && second + weighed <= bound, "{what}");
            }
        }
    }
}

#[test]
fn keys_beyond_the_bound_are_denied() {
    let limits = [Limit::gcra(Quota::per_hour(10))];
    let limiter = limiter(&limits, OnFailure::Local { processes: 1 }, 2, 1);
    let allowed = ["a", "b", "c", "a"].map(|key| limiter.block_on(|l| l.at(NOW).check(key)).is_allowed());
    assert_eq!(allowed, [true, true, false, true]);
}
