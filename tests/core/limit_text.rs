//! Limits as text: every limit is printed as a text that is parsed to the same limit, and errors name a remedy.

use proptest::prelude::*;
use std::time::Duration;
use tollgate::{
    Block, Blocked, FixedWindow, Gcra, LeakyBucketMeter, LeakyBucketQueue, Limit, LimitKind, MinimumSpacing,
    Quota, QuotaError, SlidingLog, SlidingWindow, SubWindow, Timestamp, TokenBucket,
};

#[test]
fn algorithms_print_and_parse() {
    let (ten_minutes, day) = (Block::of(Duration::from_secs(600)), Duration::from_secs(86_400));
    let hour = Quota::per_hour(400);
    let at = Timestamp::from_secs(86_400 + 8 * 3_600);
    for (limit, text) in [
        (Gcra::new(Quota::per_second(7).burst(20)).into(), "7/s burst 20"),
        (Limit::gcra(Quota::per_minute(10)), "10/min"),
        (Limit::token_bucket(Quota::per_minute(10).burst(2)), "token-bucket 10/min burst 2"),
        (TokenBucket::interval(hour).into(), "token-bucket(interval) 400/h"),
        (TokenBucket::aligned(hour, Timestamp::ZERO).into(), "token-bucket(aligned) 400/h"),
        (TokenBucket::aligned(Quota::per_day(9), at).into(), "token-bucket(aligned, at 8h) 9/d"),
        (
            TokenBucket::aligned_adaptive(hour.burst(500), Timestamp::from_secs(60)).into(),
            "token-bucket(aligned, at 1min, adaptive) 400/h burst 500",
        ),
        (
            TokenBucket::aligned_adaptive(hour, Timestamp::ZERO).into(),
            "token-bucket(aligned, adaptive) 400/h",
        ),
        (Blocked::new(Quota::per_minute(5), ten_minutes).into(), "1/12s burst 5 block 10min"),
        (
            Limit::token_bucket(Quota::per_minute(5)).with_block(ten_minutes.at_most(day)).unwrap(),
            "token-bucket 5/min block 10min to 1d",
        ),
        (LeakyBucketMeter::new(Quota::per_second(1)).into(), "leaky-bucket 1/s"),
        (LeakyBucketQueue::new(Quota::per_second(1).burst(3)).into(), "leaky-bucket(queue) 1/s burst 3"),
        (FixedWindow::new(hour).into(), "fixed-window 400/h"),
        (FixedWindow::from_first_use(hour).into(), "fixed-window(first-use) 400/h"),
        (SlidingWindow::new(hour).into(), "sliding-window 400/h"),
        (SlidingWindow::new(hour).strict().into(), "sliding-window(strict) 400/h"),
        (SubWindow::new(hour, 1).into(), "sub-window(1) 400/h"),
        (SubWindow::new(hour, 60).strict().into(), "sub-window(60, strict) 400/h"),
        (SlidingLog::new(hour).into(), "sliding-log 400/h"),
        (MinimumSpacing::new(Duration::from_millis(250)).into(), "minimum-spacing 250ms"),
        (MinimumSpacing::new(Duration::ZERO).into(), "minimum-spacing 0s"),
        (MinimumSpacing::new(Duration::MAX).into(), "minimum-spacing 18446744073709551615ns"),
    ] {
        assert_eq!(limit.to_string(), text);
        assert_eq!(text.parse::<Limit>().unwrap(), limit, "{text}");
    }
}

#[test]
fn other_spellings_parse() {
    for (text, printed) in [
        ("gcra 1_000 / 2 hours burst 7", "1000/2h burst 7"),
        ("  sub-window 5/min ", "sub-window(60) 5/min"),
        ("sub-window ( strict ) 5/min", "sub-window(60, strict) 5/min"),
        ("sliding-log()3/10s", "sliding-log 3/10s"),
        ("minimum-spacing s", "minimum-spacing 1s"),
        ("fixed-window 5/s burst 5", "fixed-window 5/s"),
        ("sub-window(1_000) 5/s", "sub-window(1000) 5/s"),
        ("token-bucket(aligned, at 49h) 9/d", "token-bucket(aligned, at 1h) 9/d"),
        (" gcra 5/min  block  600 s  to 10m ", "5/min block 10min"),
    ] {
        assert_eq!(text.parse::<Limit>().unwrap().to_string(), printed, "{text}");
    }
}

/// Four units of a period above 292 years are a quota only with a smaller burst, which windows do not have.
#[test]
fn window_without_valid_quota_is_an_error() {
    let quota: Quota = "4/9223372036854775908ns burst 1".parse().unwrap();
    for kind in [LimitKind::FixedWindow, LimitKind::SlidingLog, LimitKind::SlidingWindow { strict: true }] {
        let error = Limit::try_new(kind, quota).unwrap_err().to_string();
        assert!(error.contains("292 years"), "{error}");
    }
    assert!(Limit::try_new(LimitKind::TokenBucket, quota).is_ok());
}

// G43
#[test]
fn errors_show_text_and_remedy() {
    for (text, needle) in [
        ("", "\"/\""),
        ("moving-window 5/s", "name of an algorithm (gcra, token-bucket"),
        ("Gcra 5/s", "name of an algorithm"),
        ("sliding-log", "\"/\""),
        ("sliding-log(strict) 5/s", "no parentheses"),
        ("sub-window(60 5/s", "\")\" after the options"),
        ("sub-window(many) 5/s", "sub-window(60)"),
        ("sub-window(60, lenient) 5/s", "sub-window(60, strict)"),
        ("sub-window(0) 5/s", "number of sub-windows is 0"),
        ("sub-window(9999) 5/s", "at most 4096"),
        ("sub-window(5000000000) 5/s", "at most 4096"),
        ("sub-window(+60) 5/s", "sub-window(60)"),
        ("gcra100/min", "a space after the name"),
        ("sub-window60/min", "a space after the name"),
        ("minimum-spacing250ms", "a space after the name"),
        ("window5/min", "name of an algorithm (gcra, token-bucket"),
        ("sub-window(60, strict, 7, 8, 9) 5/s", "sub-window(60, strict)"),
        ("token-bucket(hourly) 5/s", "token-bucket(interval)"),
        ("token-bucket(aligned, 8h) 5/s", "at 8h"),
        ("sliding-log 5/s burst 6", "no burst"),
        ("sliding-log 70000/s", "65536"),
        ("minimum-spacing 10/s", "a period such as"),
        ("5/min block soon", "a period such as"),
        ("5/min block 10min to", "a period such as"),
        ("5/min block 10min to 5min", "must be at least 10min"),
        ("sliding-log 5/min block 10min", "sliding-log cannot block keys"),
        ("leaky-bucket(queue) 5/min block 10min", "leaky-bucket cannot block keys"),
        ("minimum-spacing(strict) 10s", "no parentheses"),
    ] {
        let error = text.parse::<Limit>().unwrap_err().to_string();
        assert!(error.contains(needle), "{text:?}: {error}");
        assert!(error.contains(&format!("{text:?}")), "{text:?}: {error}");
        assert!(error.contains("[ALGORITHM] LIMIT/PERIOD"), "{text:?}: {error}");
    }
}

fn kinds() -> impl Strategy<Value = LimitKind> {
    prop_oneof![
        Just(LimitKind::Gcra),
        Just(LimitKind::TokenBucket),
        Just(LimitKind::IntervalBucket),
        (any::<u64>(), any::<bool>())
            .prop_map(|(ns, adaptive)| LimitKind::AlignedBucket { at: Timestamp::from_nanos(ns), adaptive }),
        Just(LimitKind::LeakyBucketMeter),
        Just(LimitKind::LeakyBucketQueue),
        Just(LimitKind::FixedWindow),
        Just(LimitKind::FirstUseWindow),
        any::<bool>().prop_map(|strict| LimitKind::SlidingWindow { strict }),
        (1..5_000u32, any::<bool>()).prop_map(|(parts, strict)| LimitKind::SubWindow { parts, strict }),
        Just(LimitKind::SlidingLog),
        any::<Duration>().prop_map(|spacing| LimitKind::MinimumSpacing { spacing }),
        (0..100_000u64).prop_map(|ms| LimitKind::MinimumSpacing { spacing: Duration::from_millis(ms) }),
    ]
}

fn quotas() -> impl Strategy<Value = Quota> {
    let limits = prop_oneof![1..1_000u64, 1..u64::MAX];
    let periods = prop_oneof![
        (1..10_000u64).prop_map(Duration::from_secs),
        (1..u64::MAX).prop_map(Duration::from_nanos)
    ];
    let bursts = proptest::option::of(prop_oneof![1..1_000u64, 1..u64::MAX]);
    (limits, periods, bursts).prop_filter_map("not a quota", |(limit, period, burst)| {
        // Some quotas are valid only with their burst.
        let burst = burst.unwrap_or(limit);
        format!("{limit}/{}ns burst {burst}", period.as_nanos()).parse().ok()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 100_000, ..ProptestConfig::with_cases(2_000) })]

    // G43
    #[test]
    fn text_of_every_limit_parses_back(kind in kinds(), quota in quotas()) {
        if let Ok(limit) = Limit::try_new(kind, quota) {
            prop_assert_eq!(limit.to_string().parse::<Limit>().unwrap(), limit);
            let same = limit.with_quota(limit.quota());
            prop_assert_eq!(same, Ok(limit));
        }
    }

    #[test]
    fn text_of_every_block_parses_back(kind in kinds(), quota in quotas(), first in 1..u64::MAX, times in 1..20_000_u32) {
        let first = Duration::from_nanos(first);
        for block in [Block::of(first), Block::of(first).at_most(first.saturating_mul(times))] {
            if let Ok(limit) = Limit::try_new(kind, quota).and_then(|limit| limit.with_block(block)) {
                prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit));
                prop_assert_eq!(limit.with_quota(limit.quota()), Ok(limit));
            }
        }
    }

    /// The numbers of an algorithm are those of a valid quota, and its limit keeps them.
    #[test]
    fn limit_of_algorithm_is_the_limit_of_its_own_algorithm(quota in quotas(), at in any::<u64>(), parts in 1..4_097u32) {
        let at = Timestamp::from_nanos(at);
        macro_rules! same {
            ($made:expr, $again:expr) => {
                if let Ok(algorithm) = $made {
                    let limit = Limit::from(algorithm);
                    prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit));
                    prop_assert_eq!(Limit::try_new(limit.kind(), limit.quota()), Ok(limit));
                    prop_assert_eq!($again(limit.quota()).map(Limit::from), Ok(limit));
                }
            };
            ($new:expr) => {
                same!($new(quota), $new)
            };
        }
        same!(|quota| Ok::<_, QuotaError>(Gcra::new(quota)));
        let block = Block::of(Duration::from_secs(600));
        if let Ok(algorithm) = Blocked::try_new(quota, block) {
            let limit = Limit::from(algorithm);
            prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit));
            prop_assert_eq!(Blocked::try_new(limit.quota(), block).map(Limit::from), Ok(limit));
        }
        same!(|quota| Ok::<_, QuotaError>(LeakyBucketQueue::new(quota)));
        same!(|quota| Ok::<_, QuotaError>(TokenBucket::new(quota)));
        same!(TokenBucket::try_interval);
        same!(|quota| TokenBucket::try_aligned(quota, at));
        same!(|quota| TokenBucket::try_aligned_adaptive(quota, at));
        same!(FixedWindow::try_new);
        same!(FixedWindow::try_from_first_use);
        same!(SlidingWindow::try_new);
        same!(|quota| SubWindow::try_new(quota, parts));
        same!(SlidingLog::try_new);
    }

    // G43
    #[test]
    fn no_text_panics(text in "[a-z(),µ\\-/ 0-9]{0,40}", any_text in ".{0,30}", kind in kinds(), cut in 0..40usize) {
        let _ = text.parse::<Limit>();
        let _ = any_text.parse::<Limit>();
        // A text that is nearly right.
        let limit = Limit::try_new(kind, Quota::per_minute(7)).unwrap_or(Limit::gcra(Quota::per_minute(7)));
        let mut near = limit.to_string();
        near.truncate(near.len().saturating_sub(cut));
        let _ = near.parse::<Limit>();
        let _ = (near + &text).parse::<Limit>();
    }
}
