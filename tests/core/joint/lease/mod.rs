//! Limiters that spend from leases.
//!
//! The properties hold for random block sizes, lease lives, costs, times and stripes.
//! 1. For any source, no interval spends more than the source charged in the interval and in one lease life before
//!    it.
//! 2. While no lease expires, every charged unit is either spent or available. A check is denied only if the
//!    available units and the source together are less than its cost.
//! 3. A peek returns what the following check returns, and changes nothing.
//! 4. No interval of length `t` admits more than the algorithm's bound for `t` plus one lease life. If times step
//!    back, the longest lag is added, up to one more life.
//! 5. While no lease expires, as many single units are admitted as by a direct limiter.
//! 6. With blocks of one unit in one stripe, and with lives too short to hold anything, each decision equals that of
//!    a direct limiter, with all its figures.

mod deposits;

use proptest::prelude::*;
use proptest::sample::select;
use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::time::Duration;
use tollgate::{
    Clock, Decision, Gcra, ManualClock, Quota, RateLimiter, Timestamp, leases::Lease, leases::LeaseAlgorithm,
    leases::LeaseRequest, leases::LeaseSource, leases::Leases, leases::Striped,
};
use tollgate_testing::kinds::{Kind, LEASABLE};
use tollgate_testing::laws::all_are_within;
use tollgate_testing::operations::{config, exact_spec, ops, run_cases, start};
use tollgate_testing::oracle::{Oracle, Spec};
use tollgate_testing::steps::within_reach;
use tollgate_testing::subjects::Subject;
use tollgate_testing::{MS, SEC, START, at};

const LIFE: u64 = 10 * MS;

/// Checks by one thread: `times` checks of `cost` each, `step` nanoseconds after the last ones (before them if
/// negative).
#[derive(Copy, Clone, Debug)]
struct Checks {
    thread: usize,
    step: i64,
    cost: u64,
    times: u32,
}

fn steps(backward: bool) -> impl Strategy<Value = i64> {
    let back = u32::from(backward);
    let life = LIFE.cast_signed();
    prop_oneof![
        6 => Just(0),
        4 => 1..=life / 16,
        3 => life / 16..=life,
        2 => life - 3..=life + 3,
        2 => life..=8 * life,
        2 => 0..=2 * SEC.cast_signed(),
        back => -life / 16..=-1,
        back => -3 * life..=-1,
        back => -SEC.cast_signed()..=-1,
    ]
}

fn checks(
    steps: impl Strategy<Value = i64>,
    costs: impl Strategy<Value = u64>,
) -> impl Strategy<Value = Vec<Checks>> {
    let times = prop_oneof![2 => Just(1), 1 => 2..40_u32];
    let checks = (0..4_usize, steps, costs, times);
    let checks = checks.prop_map(|(thread, step, cost, times)| Checks { thread, step, cost, times });
    prop::collection::vec(checks, 1..60)
}

fn costs() -> impl Strategy<Value = u64> {
    prop_oneof![8 => Just(1_u64), 3 => 1..=5_u64, 2 => 1..=50_u64, 1 => select(vec![0, 1_000, u64::MAX])]
}

fn stripes() -> impl Strategy<Value = usize> {
    1..=4_usize
}

fn max_block() -> impl Strategy<Value = u64> {
    select(vec![1, 2, 8, 64, 4096, u64::MAX])
}

/// A source that records what it granted.
#[derive(Debug)]
struct Fake {
    left: Cell<u64>,
    /// The granted share of the wanted units above the least, in sixteenths. Above 16, the source grants more than
    /// was wanted.
    generosity: u64,
    granted: RefCell<Vec<(u64, u64)>>,
    asked: Cell<u64>,
}

impl Fake {
    fn new(left: u64, generosity: u64) -> Self {
        Self { left: left.into(), generosity, granted: RefCell::default(), asked: Cell::new(0) }
    }

    fn total(&self) -> u64 {
        self.granted.borrow().iter().map(|(_, units)| units).sum()
    }
}

impl LeaseSource for Fake {
    fn limit(&self) -> u64 {
        u64::MAX
    }

    fn lease(&self, request: &LeaseRequest) -> Result<Lease, Decision> {
        self.asked.set(self.asked.get() + 1);
        assert!(request.least > 0 && request.wanted >= request.least && request.holders > 0);
        let left = self.left.get();
        if left < request.least {
            let retry = Duration::from_secs(7);
            return Err(Decision::denied(request.least, self.limit(), left, retry, request.now));
        }
        let units = (request.least + (request.wanted - request.least) * self.generosity / 16).min(left);
        self.left.set(left - units);
        self.granted.borrow_mut().push((request.now.as_nanos(), units));
        Ok(Lease::new(units, Duration::from_secs(3600)))
    }
}

type Limiter<P> = RateLimiter<Leases<P>, ManualClock>;

fn leasing<P: LeaseSource>(source: P, stripes: usize, max_block: u64) -> Limiter<P> {
    let builder = Leases::builder(source).clock(ManualClock::new(at(START)));
    builder.stripes(stripes).max_block(max_block).lease_life(Duration::from_nanos(LIFE)).leases()
}

/// Checks that every interval between two entries of `spent` holds at most what `granted` has in the interval and in
/// one life before it. Both lists are in order.
fn is_prepaid(spent: &[(u64, u64)], granted: &[(u64, u64)]) {
    for (first, &(from, _)) in spent.iter().enumerate() {
        let mut alive = granted.iter().skip_while(|(time, _)| time + LIFE <= from).peekable();
        let (mut units, mut charged) = (0, 0);
        for &(to, cost) in &spent[first..] {
            units += cost;
            while let Some((_, more)) = alive.next_if(|(time, _)| *time <= to) {
                charged += more;
            }
            assert!(units <= charged, "{units} spent from {from} to {to}, {charged} charged");
        }
    }
}

proptest! {
    #![proptest_config(config(96))]

    // G50
    #[test]
    fn spending_is_charged_within_lease_life(
        checks in checks(steps(false), costs()),
        (stripes, max_block) in (stripes(), max_block()),
        (left, generosity) in (0..2_000_u64, select(vec![0, 7, 16, 40])),
    ) {
        let limiter = leasing(Fake::new(left, generosity), stripes, max_block);
        let (mut now, mut spent) = (START, Vec::new());
        for Checks { thread, step, cost, times } in checks {
            now = now.checked_add_signed(step).unwrap();
            for _ in 0..times {
                let peeked = limiter.at(at(now)).peek_n(cost);
                let decision = limiter.leases().check_on(thread, cost, at(now));
                let (left, held) = (limiter.leases().source().left.get(), peeked.remaining());
                if cost > 0 {
                    // The source's own peek always reports zero units.
                    prop_assert!(decision.is_allowed() || left.saturating_add(held) < cost, "{decision:?}");
                    prop_assert!(decision.is_allowed() || limiter.at(at(now)).peek_n(0).remaining() == held);
                }
                if decision.is_allowed() && cost > 0 {
                    spent.push((now, cost));
                }
            }
        }
        is_prepaid(&spent, &limiter.leases().source().granted.borrow());
    }

    // G51
    #[test]
    fn unexpired_leases_lose_no_units(
        checks in checks(0..=(LIFE / 64).cast_signed(), costs()),
        (stripes, max_block) in (stripes(), max_block()),
        (left, generosity) in (0..2_000_u64, select(vec![0, 7, 16, 40])),
    ) {
        let limiter = leasing(Fake::new(left, generosity), stripes, max_block);
        let (mut now, mut spent) = (START, 0);
        for Checks { thread, step, cost, times } in checks {
            now = now.checked_add_signed(step).unwrap().min(START + LIFE * 7 / 8);
            for _ in 0..times {
                let decision = limiter.leases().check_on(thread, cost, at(now));
                spent += if decision.is_allowed() { cost } else { 0 };
                let held = limiter.at(at(now)).peek_n(0).remaining();
                prop_assert_eq!(limiter.leases().source().total(), spent + held);
                prop_assert_eq!(decision.is_denied() && cost <= held + limiter.leases().source().left.get(), false);
                prop_assert!(decision.remaining() <= held + limiter.leases().source().left.get());
            }
        }
        // Each stripe can spend all charged units.
        let held = limiter.at(at(now)).peek_n(0).remaining();
        limiter.leases().source().left.set(0);
        if held > 0 {
            prop_assert!(limiter.leases().check_on(1, held, at(now)).is_allowed());
        }
        prop_assert!(limiter.leases().check_on(1, 1, at(now)).is_denied());
    }
}

/// Draws quotas with a tight bound: little is refilled within a lease life.
fn tight() -> impl Strategy<Value = Spec> {
    let period = select(vec![SEC, 3 * SEC, 100 * MS, 60 * SEC]);
    (prop_oneof![1..=30_u64, 30..=600_u64], period).prop_map(|(limit, period_ns)| Spec::new(limit, period_ns))
}

fn striped<A: LeaseAlgorithm>(
    algorithm: A,
    stripes: usize,
    max_block: u64,
) -> RateLimiter<Striped<A>, ManualClock> {
    let builder = RateLimiter::builder(algorithm).clock(ManualClock::new(at(START)));
    builder.stripes(stripes).max_block(max_block).lease_life(Duration::from_nanos(LIFE)).striped()
}

/// Checks that every interval admits at most the bound for its length plus one life. If times step back, the longest
/// lag is added, up to one more life and the rounding of expiries. Checks also that peeks agree with checks.
fn stays_within<A: LeaseAlgorithm>(
    limiter: &RateLimiter<Striped<A>, ManualClock>,
    oracle: &dyn Oracle,
    checks: &[Checks],
) {
    let (mut now, mut newest, mut lag) = (START, START, 0);
    let mut spent = Vec::new();
    for &Checks { thread, step, cost, times } in checks {
        now = now.checked_add_signed(step).expect("a time near the start");
        newest = newest.max(now);
        lag = lag.max(newest - now);
        for _ in 0..times {
            let peeked = limiter.at(at(now)).peek_n(cost);
            let decision = limiter.leases().check_on(thread, cost, at(now));
            assert_eq!(peeked.outcome(), decision.outcome(), "{peeked:?} {decision:?}");
            if decision.is_allowed() && cost > 0 {
                spent.push((now, cost));
            }
        }
    }
    spent.sort_unstable();
    let slack = LIFE + lag.min(LIFE + LIFE / 16);
    all_are_within(&spent, |t| oracle.most_in(t + u128::from(slack)), oracle);
}

// G50
#[test]
fn striped_intervals_stay_within_bound() {
    for kind in LEASABLE {
        // Windows count a late time in the newest window instead of its own.
        let backward = matches!(kind, Kind::Gcra | Kind::Greedy | Kind::Meter);
        let case = (tight(), checks(steps(backward), costs()), stripes(), max_block());
        run_cases(kind, 48, &case, |(spec, checks, stripes, max_block)| {
            with_leasable!(kind, spec, algorithm => {
                let limiter = striped(algorithm, stripes, max_block);
                stays_within(&limiter, &*kind.oracle(spec), &checks);
            })
            .expect("the quota fits the store");
            true
        });
    }
}

// G51
#[test]
fn unexpired_leases_admit_as_much_as_direct() {
    for kind in LEASABLE {
        let case = (tight(), checks(0..=(LIFE / 64).cast_signed(), Just(1)), stripes(), max_block());
        run_cases(kind, 64, &case, |(spec, checks, stripes, max_block)| {
            with_leasable!(kind, spec, algorithm => {
                let striped = striped(algorithm, stripes, max_block);
                let direct = RateLimiter::builder(algorithm).clock(ManualClock::default()).direct();
                let (mut now, mut ours, mut theirs) = (START, 0, 0);
                for Checks { thread, step, times, .. } in checks {
                    now = now.checked_add_signed(step).unwrap().min(START + LIFE * 7 / 8);
                    for _ in 0..times {
                        ours += u64::from(striped.leases().check_on(thread, 1, at(now)).is_allowed());
                        theirs += u64::from(direct.at(at(now)).check().is_allowed());
                        assert!(ours >= theirs, "striped admitted {ours} units, direct {theirs}");
                    }
                }
            })
            .expect("the quota fits the store");
            true
        });
    }
}

#[test]
fn empty_leases_decide_as_direct() {
    for kind in LEASABLE {
        let case = (exact_spec(kind), start(), ops(1, 80, true), any::<bool>());
        run_cases(kind, 48, &case, |(spec, start, ops, one_block)| {
            with_leasable!(kind, spec, algorithm => {
                let builder = RateLimiter::builder(algorithm).clock(ManualClock::default());
                let striped = match one_block {
                    true => builder.stripes(1).max_block(1).striped(),
                    false => builder.stripes(3).lease_life(Duration::from_nanos(4_095)).striped(),
                };
                let direct = RateLimiter::builder(algorithm).clock(ManualClock::default()).direct();
                let mut oracle = kind.oracle(spec);
                let mut now = start;
                for (thread, op) in ops.iter().enumerate() {
                    now = within_reach(op.step.apply(now, spec, &*oracle), start, kind, spec);
                    let cost = op.cost.apply(now, &*oracle);
                    let expected = direct.at(at(now)).check_n(cost);
                    assert_eq!(striped.leases().check_on(thread, cost, at(now)), expected);
                    assert_eq!(striped.at(at(now)).peek_n(cost), Subject::peek_at(&direct, 0, cost, now));
                    let _ = oracle.offer(now, cost);
                }
            });
            true
        });
    }
}

// G52
#[test]
fn lease_blocks_follow_usage() {
    let limiter = leasing(Fake::new(u64::MAX, 16), 2, 1024);
    for _ in 0..100_000 {
        assert!(limiter.leases().check_on(0, 1, at(START)).is_allowed());
    }
    let asked = limiter.leases().source().asked.take();
    assert!((100_000 / 1024..100_000 / 1024 + 16).contains(&asked), "{asked}");

    // With one unit in two lives, the charged block is halved each time, and soon only the used units are charged.
    for life in 1..=40 {
        assert!(limiter.leases().check_on(0, 1, at(START + 2 * life * LIFE)).is_allowed());
    }
    let total = |from: u64| -> u64 {
        let granted = limiter.leases().source().granted.borrow();
        granted.iter().filter(|(time, _)| *time > from).map(|(_, units)| units).sum()
    };
    assert!(total(START) <= 40 + 512, "{}", total(START));
    assert_eq!(total(START + 30 * LIFE), 25, "each check charges a single unit");
}

// G52
#[test]
fn leases_strand_at_most_half_limit() {
    for (stripes, limit) in [(1, 10), (1, 1_000), (2, 100), (2, 1_000), (4, 1_000), (4, 100_000)] {
        let limiter = striped(Gcra::new(Quota::per_day(limit)), stripes, 4096);
        for used in 0..limit {
            let thread = usize::try_from(used).expect("small");
            assert!(limiter.leases().check_on(thread, 1, at(START)).is_allowed());
            if used.is_power_of_two() {
                let (now, later) =
                    (limiter.at(at(START)).peek(), limiter.at(at(START + LIFE)).peek().remaining());
                assert_eq!(now.remaining(), limit - used - 1, "no unit is lost while its lease is alive");
                let lost = now.remaining() - later;
                assert!(
                    lost <= limit / 2 && lost <= 4096 * limiter_stripes(stripes),
                    "{lost} of {limit} units were stranded"
                );
            }
        }
        assert!(limiter.leases().check_on(1, 1, at(START)).is_denied(), "{limit}");
        assert_eq!(limiter.at(at(START)).peek().remaining(), 0);
    }
}

fn limiter_stripes(stripes: usize) -> u64 {
    stripes.next_power_of_two() as u64
}

/// A time far ahead leaves no units that could be spent before it, and it does not lock the stripe.
#[test]
fn leases_of_other_times_are_not_spent() {
    let limiter = leasing(Fake::new(1_000_000, 16), 1, 1024);
    let year = 365 * 86_400 * SEC;
    for now in [START, START + year, START, START - year, 0, u64::MAX, START + 1, u64::MAX - 1, 1, START] {
        for _ in 0..10 {
            assert!(limiter.leases().check_on(0, 1, at(now)).is_allowed(), "{now}");
        }
        let granted = limiter.leases().source().granted.borrow();
        let here: u64 = granted.iter().filter(|(time, _)| *time == now).map(|(_, units)| units).sum();
        assert!(here >= 10, "at {now}, units of another time were spent");
    }
}

/// A check first uses up a lease that holds too little. The rest of the next lease keeps its own expiry.
#[test]
fn lease_leftovers_keep_own_expiry() {
    let limiter = leasing(Fake::new(1_000_000, 16), 1, 64);
    // Checks until the source grants a block of 16 units. The last check spends its first unit.
    let mut now = START;
    while limiter.leases().source().granted.borrow().last().is_none_or(|(_, units)| *units < 16) {
        assert!(limiter.leases().check_on(0, 1, at(now)).is_allowed());
    }
    now += LIFE * 3 / 4;
    limiter.leases().source().left.set(16);
    // Spends 15 units of the old lease and five of 16 units of a new one.
    assert!(limiter.leases().check_on(0, 20, at(now)).is_allowed());
    assert_eq!(limiter.at(at(now)).peek().remaining(), 11);
    assert_eq!(limiter.at(at(now + LIFE * 3 / 4)).peek().remaining(), 11);
    assert_eq!(limiter.at(at(now + LIFE)).peek().remaining(), 0);
}

/// A source is not asked endlessly if it grants too few units, none, or units without a life.
#[test]
fn misbehaving_sources_do_no_harm() {
    struct Stingy(fn(&LeaseRequest) -> Result<Lease, Decision>);
    impl LeaseSource for Stingy {
        fn limit(&self) -> u64 {
            100
        }
        fn lease(&self, request: &LeaseRequest) -> Result<Lease, Decision> {
            (self.0)(request)
        }
    }
    let limiter = leasing(Stingy(|_| Ok(Lease::new(0, Duration::MAX))), 2, 64);
    assert!(limiter.check().is_denied());
    let limiter = leasing(Stingy(|_| Ok(Lease::new(2, Duration::MAX))), 2, 64);
    assert!(limiter.leases().check_on(0, 5, at(START)).is_denied());
    assert_eq!(limiter.peek_n(1).remaining(), 2, "the granted units are kept");
    assert!(limiter.leases().check_on(0, 4, at(START)).is_allowed(), "the kept units are used");
    assert!(limiter.leases().check_on(0, 101, at(START)).is_never());
    let limiter = leasing(Stingy(|_| Ok(Lease::new(u64::MAX, Duration::MAX))), 2, 64);
    assert!(limiter.leases().check_on(0, 100, at(START)).is_allowed());
    assert!(limiter.leases().check_on(1, 100, at(START)).is_allowed());
    let limiter = leasing(Stingy(|request| Ok(Lease::new(request.wanted, Duration::ZERO))), 2, 64);
    assert!(limiter.check().is_allowed());
    assert_eq!(limiter.peek().remaining(), 0);
    let enough = |request: &LeaseRequest| {
        Err(Decision::denied(request.least, 100, u64::MAX, Duration::ZERO, request.now))
    };
    let limiter = leasing(Stingy(enough), 2, 64);
    assert!(limiter.check_n(100).is_denied(), "the source refuses although it reports enough units");
}

#[test]
fn partial_grants_are_kept() {
    /// Grants the items of its list, one per call, and reports a fixed number of units left.
    struct Scripted(RefCell<Vec<(u64, Duration)>>, u64);
    impl LeaseSource for Scripted {
        fn limit(&self) -> u64 {
            100
        }
        fn lease(&self, request: &LeaseRequest) -> Result<Lease, Decision> {
            let refused = Decision::denied(request.least, 100, 0, Duration::from_secs(1), request.now);
            self.0.borrow_mut().pop().map(|(units, life)| Lease::new(units, life)).ok_or(refused)
        }
        fn peek(&self, cost: u64, now: Timestamp) -> Decision {
            Decision::denied(cost, 100, self.1, Duration::from_secs(1), now)
        }
    }
    let scripted = |mut grants: Vec<(u64, Duration)>, left| {
        grants.reverse();
        leasing(Scripted(grants.into(), left), 2, 64)
    };
    let long = Duration::MAX;
    // The two granted units and the three of the other stripe are five.
    let limiter = scripted(vec![(4, long), (2, long), (0, long)], 0);
    assert!(limiter.leases().check_on(1, 1, at(START)).is_allowed());
    assert!(limiter.leases().check_on(0, 5, at(START)).is_allowed());
    assert_eq!(limiter.leases().source().0.borrow().len(), 1, "each check asked the source once");

    // A grant of no units and no life does not shorten the life of the units already held.
    let limiter = scripted(vec![(2, long), (2, long), (0, Duration::ZERO)], 50);
    assert!(limiter.leases().check_on(1, 1, at(START)).is_allowed());
    assert!(limiter.leases().check_on(0, 5, at(START)).is_denied());
    assert!(
        limiter.leases().check_on(0, 3, at(START)).is_allowed(),
        "two units of this stripe and one of the other are three"
    );
}

/// The wait of a denial is never shorter than that of the refusal, whatever a peek of the source reports.
#[test]
fn denial_reports_longer_wait() {
    struct Refusing {
        refusal: Duration,
        peek: Option<Duration>,
        never: bool,
    }
    impl Refusing {
        fn denied(&self, cost: u64, retry_after: Duration, now: Timestamp) -> Decision {
            if self.never {
                let small = RateLimiter::builder(Gcra::new(Quota::per_day(1))).clock(ManualClock::new(now));
                return small.direct().peek_n(2);
            }
            Decision::denied(cost, 1_000, 0, retry_after, now)
        }
    }
    impl LeaseSource for Refusing {
        fn limit(&self) -> u64 {
            1_000
        }
        fn lease(&self, request: &LeaseRequest) -> Result<Lease, Decision> {
            Err(self.denied(request.least, self.refusal, request.now))
        }
        fn peek(&self, cost: u64, now: Timestamp) -> Decision {
            self.denied(cost, self.peek.unwrap_or_default(), now)
        }
    }
    let ms = Duration::from_millis;
    for (refusal, peek) in [(5, 0), (0, 5), (3, 8), (8, 3)] {
        let limiter = leasing(Refusing { refusal: ms(refusal), peek: Some(ms(peek)), never: false }, 1, 64);
        limiter.leases().deposit(Lease::new(100, ms(10)), at(START), limiter.clock().now());
        // The stripe took a block of two units and keeps one, so the source is asked for the rest.
        assert!(limiter.check().is_allowed() && limiter.check().is_allowed());
        let denied = limiter.check_n(150);
        assert!(denied.is_denied());
        let expected = refusal.max(peek);
        assert_eq!(denied.retry_after(), Some(ms(expected)), "{refusal} {peek}");
        assert!(denied.reset_after() >= ms(expected));
    }
    // A cost that the source never grants is `Never`, with and without held units.
    let limiter = leasing(Refusing { refusal: ms(1), peek: None, never: true }, 1, 64);
    assert!(limiter.check_n(60).is_never() && limiter.peek_n(60).is_never());
    limiter.leases().deposit(Lease::new(100, ms(10)), at(START), limiter.clock().now());
    assert!(limiter.check().is_allowed() && limiter.check().is_allowed());
    assert!(limiter.peek_n(150).is_never() && limiter.check_n(150).is_never());
    assert!(limiter.peek_n(98).is_allowed());
    // The default peek of a source reports zero units, but also a wait.
    let limiter = leasing(Fake::new(0, 16), 1, 64);
    assert!(limiter.peek().is_denied() && limiter.peek().retry_after() > Some(Duration::ZERO));
}

#[test]
fn failing_source_denies_until_it_recovers() {
    let limiter = leasing(Fake::new(0, 16), 2, 64);
    let decision = limiter.check();
    assert!(decision.is_denied() && !decision.is_never());
    assert_eq!(decision.retry_after(), Some(Duration::from_secs(7)));
    limiter.leases().source().left.set(5);
    assert!(limiter.leases().check_on(0, 2, at(START)).is_allowed());
    assert!(limiter.leases().check_on(1, 3, at(START)).is_allowed());
    assert!(limiter.leases().check_on(1, 1, at(START)).is_denied());
}

#[test]
fn threads_choose_their_own_stripes() {
    let limiter =
        RateLimiter::builder(Gcra::new(Quota::per_day(10_000))).clock(ManualClock::default()).striped();
    let admitted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..5)
            .map(|_| scope.spawn(|| (0..3_000).filter(|_| limiter.check().is_allowed()).count()))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!(admitted, 10_000);
    let mut decisions = Vec::new();
    limiter.check_each([1, 0, 10_001], |decision| decisions.push(decision));
    let outcomes: Vec<_> =
        decisions.iter().map(|decision| (decision.is_allowed(), decision.is_never())).collect();
    assert_eq!(outcomes, [(false, false), (true, false), (false, true)]);
    assert_eq!(limiter.algorithm(), &Gcra::new(Quota::per_day(10_000)));
}

#[test]
fn lease_types_are_shareable_and_printable() {
    fn shared<T: Send + Sync + Debug + 'static>() {}
    fn small<T: Send + Sync + Debug + Copy + PartialEq + 'static>() {}
    shared::<RateLimiter<Striped>>();
    shared::<RateLimiter<Striped<tollgate::SlidingLog>, tollgate::StdClock>>();
    small::<Lease>();
    small::<LeaseRequest>();
    let limiter = striped(Gcra::new(Quota::per_second(5)), 2, 8);
    assert!(format!("{limiter:?}").contains("Leases"));
    let lease = Lease::new(7, Duration::from_millis(3));
    assert_eq!((lease.units(), lease.life()), (7, Duration::from_millis(3)));
}
