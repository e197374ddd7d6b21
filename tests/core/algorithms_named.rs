//! Well-known worked examples of each algorithm, and tests for mistakes found in other rate limiters.

use std::time::Duration;
use tollgate::{
    Algorithm, Decision, Direct, FixedWindow, Gcra, LeakyBucketMeter, LeakyBucketQueue, ManualClock,
    MinimumSpacing, Quota, RateLimiter, SlidingLog, SlidingWindow, SubWindow, Timestamp, TokenBucket,
};
use tollgate_testing::{HOUR, MINUTE, SEC, build};

/// A limiter of one stream. The test gives the time of each call.
struct Story<A: Algorithm>(RateLimiter<Direct<A>, ManualClock>);

impl<A: Algorithm> Story<A> {
    fn new(algorithm: A) -> Self {
        Self(build(algorithm, &ManualClock::new(Timestamp::ZERO)).direct())
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

/// Offers single units. Each step: the second, how many are offered, and how many are admitted. A negative second is one
/// nanosecond before it.
fn play<A: Algorithm>(what: &str, algorithm: A, steps: &[(i64, u64, u64)]) {
    let story = Story::new(algorithm);
    for (step, &(second, offered, admitted)) in steps.iter().enumerate() {
        let nanos = second.unsigned_abs() * SEC - u64::from(second < 0);
        let found = (0..offered).filter(|_| story.offer_ns(nanos, 1).is_allowed()).count() as u64;
        assert_eq!(found, admitted, "{what}: step {step}, {second} s");
    }
}

// G1
#[test]
fn textbook_examples_of_buckets() {
    let bucket = per(3, 10 * MINUTE).burst(5);
    play(
        "three tokens come at once, and the bucket never holds more than five",
        TokenBucket::interval(bucket),
        &[(0, 6, 5), (599, 1, 0), (600, 4, 3), (1_200, 1, 1), (1_800, 6, 5), (86_400, 6, 5)],
    );
    play(
        "a token comes every 200 seconds",
        TokenBucket::new(bucket),
        &[(0, 6, 5), (-200, 1, 0), (200, 2, 1), (600, 3, 2), (86_400, 6, 5)],
    );
    play(
        "the refill comes at each tenth minute and thirty seconds",
        TokenBucket::aligned(bucket, Timestamp::from_secs(30)),
        &[(600, 6, 5), (629, 1, 0), (630, 4, 3), (1_229, 1, 0), (1_230, 4, 3)],
    );
    for (refill, start) in [(400, 266), (300, 300), (200, 333), (100, 366)] {
        play(
            "at twenty past, a new bucket has a part of the next batch",
            TokenBucket::aligned_adaptive(per(refill, HOUR).burst(400), Timestamp::ZERO),
            &[(1_200, 500, start), (3_599, 1, 0), (3_600, 500, refill)],
        );
    }
    let meter = LeakyBucketMeter::new(Quota::per_second(1).burst(10));
    play("level 7 of 10 after a second", meter, &[(0, 8, 8), (1, 4, 3)]);
    play("level 6 of 10 after two seconds", meter, &[(0, 8, 8), (2, 5, 4), (-3, 1, 0), (3, 2, 1)]);
    play(
        "one unit an interval after the burst",
        Gcra::new(Quota::per_minute(10)),
        &[(0, 11, 10), (-6, 1, 0), (6, 2, 1), (-12, 1, 0), (12, 2, 1), (-18, 1, 0), (18, 2, 1)],
    );
    play(
        "an event every two seconds",
        MinimumSpacing::new(Duration::from_secs(2)),
        &[(5, 1, 1), (-7, 1, 0), (7, 1, 1), (8, 1, 0)],
    );
}

// G1
#[test]
fn textbook_examples_of_windows() {
    let ten = Quota::per_minute(10);
    play(
        "ten in each minute of the clock",
        FixedWindow::new(ten),
        &[(0, 5, 5), (10, 3, 3), (30, 2, 2), (40, 1, 0), (-60, 1, 0), (60, 11, 10)],
    );
    play(
        "twenty within two seconds, around a boundary",
        FixedWindow::new(ten),
        &[(59, 11, 10), (60, 11, 10)],
    );
    play(
        "a new window opens one minute after the first opened",
        FixedWindow::from_first_use(ten),
        &[(59, 11, 10), (60, 1, 0), (-119, 1, 0), (119, 1, 1), (130, 10, 9), (178, 1, 0), (179, 1, 1)],
    );
    play(
        "three in ten seconds",
        SlidingLog::new(per(3, 10 * SEC)),
        &[(0, 1, 1), (4, 1, 1), (8, 1, 1), (9, 1, 0), (11, 1, 1), (15, 1, 1), (15, 1, 0)],
    );
    let log = SlidingLog::new(per(1, 10 * SEC));
    play("a unit leaves the log after the window", log, &[(3, 1, 1), (-13, 1, 0), (13, 1, 1)]);
    let parts = SubWindow::new(Quota::per_hour(500), 60);
    play(
        "minute 0 is not among the last 60, so the limit is admitted twice",
        parts,
        &[(-60, 500, 500), (-3_600, 1, 0), (3_600, 501, 500)],
    );
    play(
        "minute 0 still counts in part",
        parts.strict(),
        &[(-60, 500, 500), (3_600, 1, 0), (3_660, 501, 500)],
    );
    play(
        "5 × 0.7 + 3 = 6.5 is below 7, and 7.5 is above",
        SlidingWindow::new(Quota::per_minute(7)),
        &[(30, 5, 5), (70, 3, 3), (78, 1, 1), (78, 1, 0)],
    );
    play("8 × 0.9 = 7.2 counts as 7", SlidingWindow::new(ten), &[(59, 8, 8), (66, 3, 3)]);
    play("8 × 0.9 = 7.2 counts as 8", SlidingWindow::new(ten).strict(), &[(59, 8, 8), (66, 3, 2)]);
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
