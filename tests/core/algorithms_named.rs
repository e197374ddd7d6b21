//! Well-known worked examples of each algorithm, and tests for mistakes found in other rate limiters.

use std::time::Duration;
use tollgate::{
    Algorithm, Decision, Direct, FixedWindow, Gcra, LeakyBucketMeter, LeakyBucketQueue, ManualClock,
    MinimumSpacing, Quota, RateLimiter, SlidingLog, SlidingWindow, SubWindow, Timestamp, TokenBucket,
};
use tollgate_testing::{HOUR, MINUTE, SEC};

/// A limiter of one stream. The test gives the time of each call.
struct Story<A: Algorithm>(RateLimiter<Direct<A>, ManualClock>);

impl<A: Algorithm> Story<A> {
    fn new(algorithm: A) -> Self {
        Self(RateLimiter::builder(algorithm).clock(ManualClock::new(Timestamp::ZERO)).direct())
    }

    fn offer_ns(&self, nanos: u64, cost: u64) -> Decision {
        self.0.at(Timestamp::from_nanos(nanos)).check_n(cost)
    }

    fn offer(&self, secs: u64, cost: u64) -> Decision {
        self.offer_ns(secs * SEC, cost)
    }

    fn admits(&self, secs: u64, cost: u64) -> bool {
        self.offer(secs, cost).is_allowed()
    }

    /// Returns how many of `offered` single units are admitted.
    fn admitted(&self, secs: u64, offered: u64) -> u64 {
        (0..offered).map(|_| u64::from(self.admits(secs, 1))).sum()
    }

    fn remaining(&self, secs: u64) -> u64 {
        self.offer(secs, 0).remaining()
    }
}

fn per(limit: u64, period_ns: u64) -> Quota {
    Quota::new(limit, Duration::from_nanos(period_ns))
}

#[test]
fn interval_bucket_refills_3_every_10_minutes() {
    let bucket = Story::new(TokenBucket::interval(per(3, 10 * MINUTE).burst(5)));
    assert_eq!(bucket.admitted(0, 6), 5, "a full bucket holds five tokens");
    assert_eq!(bucket.admitted(599, 1), 0, "no token is added before the period ends");
    assert_eq!(bucket.admitted(600, 4), 3, "then three tokens come at once");
    assert_eq!(bucket.admitted(1_200, 1), 1);
    assert_eq!(bucket.remaining(1_800), 5, "two left and three new");
    assert_eq!(bucket.remaining(86_400), 5, "the bucket never holds more than five");
}

#[test]
fn greedy_bucket_refills_each_200_seconds() {
    let bucket = Story::new(TokenBucket::new(per(3, 10 * MINUTE).burst(5)));
    assert_eq!(bucket.admitted(0, 6), 5);
    assert_eq!(bucket.offer(0, 1).retry_after(), Some(Duration::from_secs(200)));
    assert!(!bucket.offer_ns(200 * SEC - 1, 1).is_allowed());
    assert_eq!(bucket.admitted(200, 2), 1);
    assert_eq!(bucket.admitted(600, 3), 2);
    assert_eq!(bucket.remaining(86_400), 5);
}

#[test]
fn aligned_bucket_refills_each_tenth_minute() {
    let bucket = Story::new(TokenBucket::aligned(per(3, 10 * MINUTE).burst(5), Timestamp::from_secs(30)));
    assert_eq!(bucket.admitted(600, 6), 5);
    assert_eq!(bucket.admitted(629, 1), 0);
    assert_eq!(bucket.admitted(630, 4), 3, "the refill comes thirty seconds after the bucket's first use");
    assert_eq!(bucket.admitted(1_229, 1), 0);
    assert_eq!(bucket.admitted(1_230, 4), 3);
}

#[test]
fn adaptive_bucket_starts_with_partial_batch() {
    for (refill, start) in [(400, 266), (300, 300), (200, 333), (100, 366)] {
        let quota = per(refill, HOUR).burst(400);
        let bucket = Story::new(TokenBucket::aligned_adaptive(quota, Timestamp::ZERO));
        let twenty_past = 20 * 60;
        assert_eq!(bucket.remaining(twenty_past), start, "refill {refill}");
        assert_eq!(bucket.admitted(twenty_past, 500), start, "refill {refill}");
        assert_eq!(bucket.remaining(3_599), 0);
        assert_eq!(bucket.remaining(3_600), refill);
    }
}

#[test]
fn leaky_bucket_drains_one_each_second() {
    let bucket = Story::new(LeakyBucketMeter::new(Quota::per_second(1).burst(10)));
    assert_eq!(bucket.offer(0, 8).remaining(), 2);
    assert_eq!(bucket.remaining(1), 3, "level 7 of 10");
}

#[test]
fn leaky_bucket_at_level_6_admits_4() {
    let bucket = Story::new(LeakyBucketMeter::new(Quota::per_second(1).burst(10)));
    assert!(bucket.admits(0, 8));
    assert_eq!(bucket.remaining(2), 4, "level 6 of 10");
    assert_eq!(bucket.admitted(2, 5), 4);
    assert_eq!(bucket.offer(2, 1).retry_after(), Some(Duration::from_secs(1)));
}

#[test]
fn leaky_bucket_queue_releases_one_each_second() {
    let queue = Story::new(LeakyBucketQueue::new(Quota::per_second(1).burst(3)));
    let delays: Vec<_> = (0..3).map(|_| queue.offer(0, 1).delay().as_secs()).collect();
    assert_eq!(delays, [0, 1, 2]);
    assert!(queue.offer(0, 1).is_denied());
    let late = queue.offer_ns(SEC + SEC / 2, 1);
    assert!(late.is_allowed());
    assert_eq!(late.delay(), Duration::from_millis(1_500), "the request goes at 3 s");
}

/// With rounded intervals, a queue of a hundred years would hold 660 billion units too many.
// G87
#[test]
fn queue_length_follows_longest_wait() {
    let years = |years: u64| Duration::from_secs(years * 31_557_600);
    for (limit, wait) in [
        (700_000, years(100)),
        (700_000, years(20)),
        (999, years(290)),
        (7, years(2)),
        (333_333, Duration::from_secs(3_600)),
        (10, Duration::from_millis(250)),
        (3, Duration::ZERO),
    ] {
        let quota = Quota::per_second(limit);
        let last_waits = |units: u64| {
            let queue = Story::new(LeakyBucketQueue::new(quota.burst(units)));
            assert!(queue.admits(1_000, units - 1));
            queue.offer(1_000, 1).delay()
        };
        let queue = LeakyBucketQueue::with_longest_wait(quota, wait).expect("a wait below 292 years");
        let units = Story::new(queue).remaining(0);
        assert!(last_waits(units) <= wait, "{units} of {quota} in {wait:?}");
        assert!(last_waits(units + 1) > wait, "{units} of {quota} in {wait:?}");
    }
}

#[test]
fn fixed_window_admits_10_per_minute() {
    let window = Story::new(FixedWindow::new(Quota::per_minute(10)));
    assert_eq!(window.admitted(0, 5), 5);
    assert_eq!(window.admitted(10, 3), 3);
    assert_eq!(window.admitted(30, 2), 2);
    let refused = window.offer(40, 1);
    assert!(refused.is_denied());
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(20)));
    assert_eq!(window.remaining(60), 10, "a new window starts with the new minute");
    assert_eq!(window.admitted(60, 11), 10);
}

// G1
#[test]
fn fixed_window_admits_double_at_boundary() {
    let window = Story::new(FixedWindow::new(Quota::per_minute(10)));
    assert_eq!(window.admitted(59, 11), 10);
    assert_eq!(window.admitted(60, 11), 10, "the two windows admit twenty units within two seconds");
}

#[test]
fn first_use_window_ignores_clock_minutes() {
    let window = Story::new(FixedWindow::from_first_use(Quota::per_minute(10)));
    assert_eq!(window.admitted(59, 11), 10);
    assert_eq!(window.admitted(60, 1), 0);
    assert!(!window.offer_ns(119 * SEC - 1, 1).is_allowed());
    assert_eq!(window.admitted(119, 1), 1, "a new window opens one minute after the first opened");
    assert_eq!(window.admitted(130, 10), 9);
    assert_eq!(window.admitted(178, 1), 0);
    assert_eq!(window.admitted(179, 1), 1);
}

#[test]
fn sliding_log_admits_3_in_10_seconds() {
    let log = Story::new(SlidingLog::new(per(3, 10 * SEC)));
    for secs in [0, 4, 8] {
        assert!(log.admits(secs, 1), "{secs} s");
    }
    let refused = log.offer(9, 1);
    assert!(refused.is_denied());
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)), "the first unit leaves the log at 10 s");
    assert!(log.admits(11, 1));
    assert!(log.admits(15, 1));
    assert!(!log.admits(15, 1), "the units of 8, 11 and 15 s are still in the log");
}

#[test]
fn sliding_log_unit_leaves_after_window() {
    let log = Story::new(SlidingLog::new(per(1, 10 * SEC)));
    assert!(log.admits(3, 1));
    assert!(!log.offer_ns(13 * SEC - 1, 1).is_allowed());
    assert!(log.admits(13, 1));
}

#[test]
fn lenient_sub_windows_admit_double_limit() {
    let counter = Story::new(SubWindow::new(Quota::per_hour(500), 60));
    assert!(counter.offer_ns(MINUTE - 1, 500).is_allowed(), "at the last nanosecond of minute 0");
    assert!(counter.offer_ns(HOUR - 1, 1).is_denied());
    assert!(counter.offer_ns(HOUR, 500).is_allowed(), "minute 0 is not among the last 60");
    let strict = Story::new(SubWindow::new(Quota::per_hour(500), 60).strict());
    assert!(strict.offer_ns(MINUTE - 1, 500).is_allowed());
    assert!(strict.offer_ns(HOUR, 1).is_denied());
    assert!(strict.offer_ns(HOUR + MINUTE, 500).is_allowed());
}

#[test]
fn sliding_window_weighs_previous_window() {
    let counter = Story::new(SlidingWindow::new(Quota::per_minute(7)));
    assert_eq!(counter.admitted(30, 5), 5);
    assert_eq!(counter.admitted(60 + 10, 3), 3);
    assert!(counter.admits(60 + 18, 1), "5 × 0.7 + 3 = 6.5 is below 7");
    assert!(!counter.admits(60 + 18, 1), "7.5 is above 7");
}

#[test]
fn strict_sliding_window_admits_2_of_3() {
    let strict = Story::new(SlidingWindow::new(Quota::per_minute(10)).strict());
    assert_eq!(strict.admitted(59, 8), 8);
    assert_eq!(strict.admitted(66, 3), 2, "8 × 0.9 = 7.2 counts as 8");
    let rounding_down = Story::new(SlidingWindow::new(Quota::per_minute(10)));
    assert_eq!(rounding_down.admitted(59, 8), 8);
    assert_eq!(rounding_down.admitted(66, 3), 3, "8 × 0.9 = 7.2 counts as 7");
}

#[test]
fn minimum_spacing_admits_every_2_seconds() {
    let spacing = Story::new(MinimumSpacing::new(Duration::from_secs(2)));
    assert!(spacing.admits(5, 1));
    assert!(spacing.offer_ns(7 * SEC - 1, 1).is_denied());
    assert_eq!(spacing.offer(6, 1).retry_after(), Some(Duration::from_secs(1)));
    assert!(spacing.admits(7, 1_000), "the cost of an event does not matter");
    assert!(spacing.offer(8, 1).is_denied());
}

#[test]
fn gcra_admits_one_per_interval_after_burst() {
    let limiter = Story::new(Gcra::new(Quota::per_minute(10)));
    assert_eq!(limiter.admitted(0, 11), 10);
    for unit in 1..100 {
        assert!(limiter.offer_ns(unit * 6 * SEC - 1, 1).is_denied());
        assert!(limiter.offer_ns(unit * 6 * SEC, 1).is_allowed());
    }
}

// G15
#[test]
fn fractional_second_interval_is_exact() {
    // With a burst of two, the key is always in debt, so an error from a rounded interval would add up and become
    // visible.
    let limiter = Story::new(Gcra::new(Quota::per_minute(7).burst(2)));
    assert_eq!(limiter.admitted(0, 3), 2);
    for unit in 1..700_u64 {
        let due = (unit * MINUTE).div_ceil(7);
        assert!(limiter.offer_ns(due - 1, 1).is_denied(), "unit {unit}");
        assert!(limiter.offer_ns(due, 1).is_allowed(), "unit {unit}");
        assert_eq!(limiter.offer_ns(due, 0).remaining(), 0);
    }
}

#[test]
fn fractional_nanosecond_interval_is_not_rounded() {
    // governor 0.10 rounds the interval to whole nanoseconds and therefore admits 333 of these.
    let limiter = Story::new(Gcra::new(Quota::per_second(300_000_000).burst(1)));
    let admitted = (0..1_000).filter(|nanos| limiter.offer_ns(*nanos, 1).is_allowed()).count();
    assert_eq!(admitted, 250, "one unit conforms every 4 ns: at 3 ns the next is not due yet");
    let burst_of_four = Story::new(Gcra::new(Quota::per_second(300_000_000).burst(4)));
    let admitted =
        (0..1_000).filter(|nanos| (0..2).any(|_| burst_of_four.offer_ns(*nanos, 1).is_allowed())).count();
    assert!((300..=304).contains(&admitted), "{admitted}");
}

#[test]
fn frequent_polling_keeps_full_rate() {
    // ratelimit 2.0 drops the fraction of a token at each refill: polled every 1,999 ns, it yields half its rate.
    let bucket = Story::new(TokenBucket::new(Quota::per_second(1_000).burst(1)));
    let admitted =
        (0..200_000_000_u64 / 1_999).filter(|poll| bucket.offer_ns(poll * 1_999, 1).is_allowed()).count();
    assert!((199..=201).contains(&admitted), "{admitted} units were admitted in a fifth of a second");
}

#[test]
fn short_idle_time_earns_no_second_burst() {
    // GCRA compares the arrival time with the current time. throttlecrab compares it with the current time minus the
    // tolerance and admits 17 units here.
    let limiter = Story::new(Gcra::new(Quota::per_minute(60).burst(10)));
    assert!(limiter.admits(0, 1));
    let admitted = (0..20).filter(|_| limiter.offer_ns(8_900_000_000, 1).is_allowed()).count();
    assert_eq!(admitted, 10);
}

// G38, G87
#[test]
fn overflowing_cost_is_never_admitted() {
    // governor 0.10 multiplies the cost by one day in nanoseconds without an overflow check. In release builds it
    // therefore admits a cost of 213,504.
    let limiter = Story::new(Gcra::new(Quota::per_day(1).burst(10)));
    for cost in [11, 213_504, 213_505, 213_506, 1 << 32, u64::MAX / 86_400_000_000_000, u64::MAX] {
        let decision = limiter.offer(0, cost);
        assert!(decision.is_never(), "{cost}");
        assert_eq!(decision.retry_after(), None);
    }
    assert_eq!(limiter.remaining(0), 10);
}
