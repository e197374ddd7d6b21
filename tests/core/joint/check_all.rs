//! Several limits on one request: the request is charged to all of them, or to none.

use proptest::prelude::*;
use std::time::Duration;
use tollgate::{
    Compact, Decision, FixedWindow, Gcra, ManualClock, MinimumSpacing, Overflow, Quota, RateLimiter,
    SlidingLog, SlidingWindow, SubWindow, Timestamp, TokenBucket, check_all, joint::AllOf, joint::BoundLimit,
    joint::JointDecision, joint::Limits,
};
use tollgate_testing::kinds::quota;
use tollgate_testing::oracle::{Fixed, Gcra as GcraOracle, Interval, Log, Oracle, Spacing, Spec, Verdict};
use tollgate_testing::subjects::verdict;
use tollgate_testing::{MS, SEC, build};

/// The start of a minute.
const START: Timestamp = Timestamp::from_secs(1_000_020);

fn clock() -> ManualClock {
    ManualClock::new(START)
}

mod stories {
    use super::*;

    #[test]
    fn each_limit_has_own_cost() {
        let clock = clock();
        let posts = build(Gcra::new(Quota::per_second(1)), &clock).keyed::<String>();
        let friends = build(FixedWindow::new(Quota::per_day(150)), &clock).keyed::<String>();
        // A post costs one unit of the posts' limit, and one unit of the friends' limit for each friend that it tags.
        let tag = |count| check_all((posts.on("alice"), friends.on("alice").cost(count)));
        assert!(tag(100).is_allowed());
        assert_eq!(tag(1).denied_by(), Some(0), "the posts' limit is one a second");
        clock.advance(Duration::from_secs(1));
        let over = tag(51);
        assert_eq!(over.denied_by(), Some(1));
        assert_eq!(over.each()[1].cost(), 51);
        assert!(tag(50).is_allowed(), "the denied post was charged to neither limit");
        clock.advance(Duration::from_secs(1));
        assert!(tag(0).is_allowed(), "a post that tags no friend is admitted");
        let never = tag(151);
        assert!(never.is_never() && never.is_denied());
        assert_eq!(
            (never.denied_by(), never.retry_after()),
            (Some(1), None),
            "a limit that never admits the request counts as the longest wait"
        );
    }

    #[test]
    fn each_limit_has_own_key() {
        let clock = clock();
        let limiter = |n| build(Gcra::new(Quota::per_hour(n)), &clock).compact().unwrap();
        let (by_user, by_route) = (limiter(2), limiter(3));
        let ask = |user: &str, route: (&str, u16)| check_all((by_user.on(user), by_route.on(&route)));
        assert!(ask("alice", ("GET", 1)).is_allowed());
        assert!(ask("alice", ("GET", 1)).is_allowed());
        assert_eq!(ask("alice", ("GET", 2)).denied_by(), Some(0));
        assert!(ask("bob", ("GET", 1)).is_allowed());
        assert_eq!(ask("bob", ("GET", 1)).denied_by(), Some(1));
        assert!(ask("bob", ("GET", 2)).is_allowed());
    }

    #[test]
    fn repeated_limiter_is_charged_twice() {
        let limiter = build(Gcra::new(Quota::per_hour(3)), &clock()).compact().unwrap();
        assert!(check_all((limiter.on("from"), limiter.on("to"))).is_allowed());
        assert!(check_all((limiter.on("alice"), limiter.on("alice"))).is_allowed());
        assert_eq!(limiter.peek("alice").remaining(), 1);
        let both = check_all((limiter.on("alice"), limiter.on("alice")));
        assert!(both.is_denied(), "each charge alone would be admitted, but not both");
        assert_eq!(limiter.peek("alice").remaining(), 1, "nothing is charged");
    }

    #[test]
    fn joint_peek_and_refund_leave_no_charge() {
        let clock = clock();
        let hour = build(Gcra::new(Quota::per_hour(5)), &clock).compact().unwrap();
        let day = build(FixedWindow::new(Quota::per_day(9)), &clock).keyed::<u64>();
        let limits = (hour.on(&1).cost(3), day.on(&1));
        assert!(AllOf::new(limits).peek().is_allowed());
        assert_eq!(AllOf::new(limits).at(START).peek().remaining(), 5);
        let charge = check_all(limits);
        assert_eq!((charge.remaining(), charge.each()[0].cost(), charge.each()[1].cost()), (2, 3, 1));
        AllOf::new(limits).refund(&charge);
        assert_eq!((hour.peek(&1).remaining(), day.peek(&1).remaining()), (5, 9));
        let refused = check_all((hour.on(&1).cost(6), day.on(&1)));
        AllOf::new((hour.on(&1).cost(6), day.on(&1))).refund(&refused);
        assert_eq!(
            (hour.peek(&1).remaining(), day.peek(&1).remaining()),
            (5, 9),
            "a denied request has nothing to refund"
        );
    }

    #[test]
    fn empty_joint_check_is_allowed() {
        let none: [tollgate::joint::BoundLimit<'_, tollgate::Compact, ManualClock, u64>; 0] = [];
        for decision in [check_all(&none[..]).is_allowed(), check_all(none).is_allowed()] {
            assert!(decision);
        }
        let answer = check_all(none);
        assert_eq!((answer.remaining(), answer.denied_by()), (u64::MAX, None));
        assert_eq!((answer.reset_after(), answer.delay()), (Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn joint_decision_reports_queue_delay() {
        let clock = clock();
        let queue = tollgate::LeakyBucketQueue::new(Quota::per_second(10).burst(3));
        let queue = build(queue, &clock).direct();
        let day = build(FixedWindow::new(Quota::per_day(2)), &clock).direct();
        let ask = || check_all((queue.on(), day.on()));
        assert_eq!(ask().delay(), Duration::ZERO);
        assert_eq!(ask().delay(), Duration::from_millis(100));
        let refused = ask();
        assert_eq!((refused.denied_by(), refused.delay()), (Some(1), Duration::ZERO));
    }

    /// Limits whose charges cannot be refunded are charged last, whatever their order in the call.
    // G47
    #[test]
    fn joint_check_mixes_all_stores() {
        let clock = clock();
        let sketch = build(FixedWindow::new(Quota::per_minute(5)), &clock).sketch().unwrap();
        let log = build(SlidingLog::new(Quota::per_minute(4)), &clock).direct();
        let inherit =
            build(Gcra::new(Quota::per_minute(6)), &clock).overflow(Overflow::Inherit).compact().unwrap();
        let adjustable = build(Gcra::new(Quota::per_minute(3)), &clock).direct().adjustable();
        let sub = build(SubWindow::new(Quota::per_minute(9), 6), &clock).keyed::<String>();
        let ask = |n: u64| {
            check_all((
                sketch.on("k").cost(n),
                log.on().cost(n),
                inherit.on("k").cost(n),
                adjustable.on().cost(n),
                sub.on("k").cost(n),
            ))
        };
        assert!(ask(2).is_allowed());
        let refused = ask(2);
        assert_eq!(refused.denied_by(), Some(3), "the adjustable limiter has one of three units left");
        assert_eq!(refused.each().iter().map(Decision::remaining).collect::<Vec<_>>(), [3, 2, 4, 1, 7]);
        assert!(ask(1).is_allowed());
        let left: Vec<u64> = ask(1).each().iter().map(Decision::remaining).collect();
        assert_eq!(left, [2, 1, 3, 0, 6]);
    }
}

/// Random requests against two sets of three limits, over every store that keeps keys apart.
mod random {
    use super::*;

    const SPECS: [Spec; 3] = [
        Spec { limit: 10, period_ns: 10 * SEC, burst: 7 },
        Spec { limit: 6, period_ns: 3 * SEC, burst: 6 },
        Spec { limit: 4, period_ns: 8 * SEC, burst: 5 },
    ];

    #[derive(Copy, Clone, Debug)]
    struct Ask {
        /// The time since the previous request, in milliseconds.
        after_ms: u64,
        costs: [u64; 3],
        keys: [u64; 3],
        refund: bool,
    }

    impl Ask {
        fn key(&self, index: usize) -> usize {
            usize::try_from(self.keys[index]).expect("small")
        }
    }

    fn asks() -> impl Strategy<Value = Vec<Ask>> {
        let after = prop_oneof![3 => Just(0), 5 => 0_u64..1_500, 1 => 0_u64..20_000];
        let cost = || prop_oneof![2 => Just(0_u64), 8 => 1_u64..4, 1 => 4_u64..9];
        let ask =
            (after, [cost(), cost(), cost()], [0_u64..2, 0_u64..2, 0_u64..2], prop::bool::weighted(0.1))
                .prop_map(|(after_ms, costs, keys, refund)| Ask { after_ms, costs, keys, refund });
        prop::collection::vec(ask, 1..60)
    }

    /// Runs requests through limits and through their oracles. Each limit has one oracle for each key.
    fn run<D: AsRef<[Decision]>>(
        asks: &[Ask],
        mut oracles: [[Box<dyn Oracle>; 2]; 3],
        peek_and_check: impl Fn(&Ask, Timestamp) -> [JointDecision<D>; 2],
    ) -> Result<(), TestCaseError> {
        let mut now = 1_700_000_000 * SEC;
        for ask in asks {
            now += ask.after_ms * MS;
            let time = Timestamp::from_nanos(now);
            let each = |index: usize| &oracles[index][ask.key(index)];
            let verdicts: Vec<Verdict> =
                (0..3).map(|index| each(index).peek(now, ask.costs[index])).collect();
            let waits: Vec<Option<u128>> =
                (0..3).map(|index| each(index).retry_after(now, ask.costs[index])).collect();
            let allowed = verdicts.iter().all(|verdict| *verdict == Verdict::Allowed);
            let [peeked, decision] = peek_and_check(ask, time);
            for answer in [&peeked, &decision] {
                prop_assert_eq!(answer.is_allowed(), allowed, "{:?} {:?}", answer, verdicts);
                prop_assert_eq!(answer.is_never(), verdicts.contains(&Verdict::Never));
                let said: Vec<Verdict> = answer.each().iter().map(verdict).collect();
                prop_assert_eq!(&said, &verdicts, "the decision of each limit");
                let longest = waits.iter().try_fold(0, |most: u128, wait| Some(most.max((*wait)?)));
                prop_assert_eq!(answer.retry_after().map(|wait| wait.as_nanos()), longest);
                let worst = |index: &usize| waits[*index].unwrap_or(u128::MAX);
                let refusing = (0..3).filter(|index| verdicts[*index] != Verdict::Allowed);
                let by = refusing.rev().max_by_key(worst);
                prop_assert_eq!(answer.denied_by(), by);
            }
            if allowed {
                for (index, oracle) in oracles.iter_mut().enumerate() {
                    oracle[ask.key(index)].offer(now, ask.costs[index]);
                }
            }
            for (index, answer) in decision.each().iter().enumerate() {
                let oracle = &oracles[index][ask.key(index)];
                // With a minimum spacing, a request is one event. Its cost does not matter.
                let left = oracle.remaining(now).min(answer.limit());
                prop_assert_eq!(answer.remaining(), left, "limit {}: {:?}", index, decision);
            }
        }
        Ok(())
    }

    fn two<O: Oracle + 'static>(make: impl Fn() -> O) -> [Box<dyn Oracle>; 2] {
        [Box::new(make()), Box::new(make())]
    }

    proptest! {
        #![proptest_config(tollgate_testing::operations::config(150))]

        #[test]
        fn joint_gcra_log_and_window_match_oracles(asks in asks()) {
            let [a, b, c] = SPECS;
            let gcra = build(Gcra::new(quota(a).unwrap()), &clock()).compact().unwrap();
            let log = build(SlidingLog::new(quota(b).unwrap()), &clock()).keyed::<u64>();
            let fixed = build(FixedWindow::new(quota(c).unwrap()), &clock()).compact().unwrap();
            run(
                &asks,
                [two(|| GcraOracle::new(a)), two(|| Log::new(b)), two(|| Fixed::new(c))],
                |Ask { costs: [x, y, z], keys: [k, l, m], .. }, now| {
                    let limits = (gcra.on(k).cost(*x), log.on(l).cost(*y), fixed.on(m).cost(*z));
                    let all = AllOf::new(limits).at(now);
                    [all.peek(), all.check()]
                },
            )?;
        }

        #[test]
        fn joint_spacing_interval_and_gcra_match_oracles(asks in asks()) {
            let [a, b, c] = SPECS;
            let spacing = MinimumSpacing::new(Duration::from_nanos(a.period_ns / 10));
            let spacing = build(spacing, &clock()).keyed::<u64>();
            let interval = build(TokenBucket::interval(quota(b).unwrap()), &clock()).keyed::<u64>();
            let gcra = build(Gcra::new(quota(c).unwrap()), &clock()).keyed::<u64>();
            run(
                &asks,
                [two(|| Spacing::new(a.period_ns / 10)), two(|| Interval::new(b)), two(|| GcraOracle::new(c))],
                |Ask { costs: [x, y, z], keys: [k, l, m], .. }, now| {
                    let limits = (spacing.on(k).cost(*x), interval.on(l).cost(*y), gcra.on(m).cost(*z));
                    let all = AllOf::new(limits).at(now);
                    [all.peek(), all.check()]
                },
            )?;
        }

        /// Tuples, arrays and slices of limits decide alike.
        // G47
        #[test]
        #[ignore = "several seconds unless optimised; .ci/run runs it"]
        fn tuples_arrays_and_slices_decide_alike(asks in asks()) {
            let make = || SPECS.map(|spec| {
                build(Gcra::new(quota(spec).unwrap()), &clock()).compact().unwrap()
            });
            let (tuple, array, slice) = (make(), make(), make());
            let mut now = 1_700_000_000 * SEC;
            for ask in &asks {
                now += ask.after_ms * MS;
                let time = Timestamp::from_nanos(now);
                let in_tuple = (on(&tuple, ask, 0), on(&tuple, ask, 1), on(&tuple, ask, 2));
                let in_array = [on(&array, ask, 0), on(&array, ask, 1), on(&array, ask, 2)];
                let in_slice = [on(&slice, ask, 0), on(&slice, ask, 1), on(&slice, ask, 2)];
                let a = AllOf::new(in_tuple).at(time).check();
                let b = AllOf::new(in_array).at(time).check();
                let c = AllOf::new(&in_slice[..]).at(time).check();
                prop_assert_eq!(a, b);
                prop_assert_eq!(a.each(), c.each());
                prop_assert_eq!(a.outcome(), c.outcome());
                if ask.refund {
                    refund(in_tuple, &a);
                    refund(in_array, &b);
                    refund(&in_slice[..], &c);
                }
            }
        }
    }

    fn on<'a>(
        limits: &'a [RateLimiter<Compact, ManualClock>; 3],
        ask: &'a Ask,
        index: usize,
    ) -> BoundLimit<'a, Compact, ManualClock, u64> {
        limits[index].on(&ask.keys[index]).cost(ask.costs[index])
    }

    fn refund<L: Limits>(limits: L, charge: &JointDecision<L::Decisions>) {
        AllOf::new(limits).refund(charge);
    }
}

/// Checks that a sliding window takes part in a rollback. Races are tested in `tests/stress/check_all.rs` and in the
/// models.
#[test]
fn sliding_window_joins_rollback() {
    let limiter = build(SlidingWindow::new(Quota::per_minute(5)), &clock()).compact().unwrap();
    let charge = check_all((limiter.on("alice").cost(5),));
    AllOf::new((limiter.on("alice").cost(5),)).refund(&charge);
    assert_eq!(limiter.peek("alice").remaining(), 5);
}
