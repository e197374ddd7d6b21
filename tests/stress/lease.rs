//! Leases: all that one thread would have been admitted, whichever stripes the threads have, and no more.

use super::*;
use crate::common::lease::LEASABLE;
use tollgate::LeaseAlgorithm;

/// Fewer stripes than threads, and more than cores.
const STRIPES: [usize; 3] = [1, 2, 16];
/// Long enough that many a lease is used up, and short enough that in the jumps between rounds all expire.
const LIFE: Duration = Duration::from_millis(20);

/// All threads offer single units until all are refused. Units are prepaid and carried about, but in the end
/// each was spent.
fn one_limit<A: LeaseAlgorithm>(
    algorithm: A,
    mut oracle: Box<dyn Oracle>,
    spec: Spec,
    stripes: usize,
    size: Size,
) {
    let clock = ManualClock::new(Timestamp::ZERO);
    let builder = RateLimiter::builder(algorithm).clock(clock.clone());
    let limiter = builder.stripes(stripes).lease_life(LIFE).striped();
    until_refused(|| limiter.check().is_allowed(), &clock, &mut *oracle, spec, size, &limiter);
}

/// Threads spend, take from each other and put back, with costs of all sizes, while time runs: never more
/// than was charged.
fn while_leases_expire<A: LeaseAlgorithm>(
    algorithm: A,
    oracle: &dyn Oracle,
    spec: Spec,
    stripes: usize,
    size: Size,
) {
    let start = 1_700_000_000 * SEC;
    let clock = ManualClock::new(Timestamp::from_nanos(start));
    let builder = RateLimiter::builder(algorithm).clock(clock.clone());
    let limiter = builder.stripes(stripes).lease_life(LIFE).striped();
    let admitted = [AtomicU64::new(0)];
    in_rounds(
        1,
        |_| (),
        |thread, _| {
            let mut random = Random(thread);
            for _ in 0..size.rounds * 50 {
                let now = clock.now();
                if random.below(16) == 0 {
                    clock.advance(LIFE / 5);
                }
                let cost = 1 + random.below(4) * random.below(2);
                if limiter.check_at(cost, now).is_allowed() {
                    admitted[0].fetch_add(cost, Ordering::Relaxed);
                }
            }
        },
    );
    // Every lease was taken within this time.
    let elapsed = u128::from(clock.now().as_nanos() - start);
    within(&admitted, oracle.most_in(elapsed), &(limiter, spec));
}

/// Lives of microseconds by a real clock, so that leases expire between one check and the next.
fn by_a_real_clock<A: LeaseAlgorithm>(algorithm: A, oracle: &dyn Oracle, stripes: usize, size: Size) {
    let limiter =
        RateLimiter::builder(algorithm).stripes(stripes).lease_life(Duration::from_micros(80)).striped();
    let (admitted, elapsed) = in_real_time(size, 1, |random| {
        let cost = 1 + random.below(3);
        limiter.check_n(cost).is_allowed().then_some((0, cost))
    });
    within(&admitted, oracle.most_in(elapsed), &limiter);
}

/// Large enough that blocks are larger than a unit, on some of the stripes.
const LEASED: [Spec; 3] = [
    Spec { limit: 10, period_ns: SEC, burst: 10 },
    Spec { limit: 400, period_ns: 7 * SEC, burst: 400 },
    Spec { limit: 1, period_ns: SEC, burst: 1 },
];

fn each_leasable(law: impl Fn(Kind, Spec, usize)) {
    for kind in LEASABLE {
        for spec in LEASED {
            for stripes in STRIPES {
                law(kind, spec, stripes);
            }
        }
    }
}

fn all_one_limit(size: Size) {
    each_leasable(|kind, spec, stripes| {
        with_leasable!(kind, spec, algorithm => one_limit(algorithm, kind.oracle(spec), spec, stripes, size))
            .unwrap();
    });
}

fn all_while_leases_expire(size: Size) {
    each_leasable(|kind, spec, stripes| {
        let oracle = kind.oracle(spec);
        with_leasable!(kind, spec, algorithm => {
            while_leases_expire(algorithm, &*oracle, spec, stripes, size);
        })
        .unwrap();
    });
}

fn all_leases_by_a_real_clock(size: Size) {
    let spec = Spec::new(1_000, 10_000_000);
    for kind in LEASABLE {
        for stripes in STRIPES {
            let oracle = kind.oracle(spec);
            with_leasable!(kind, spec, algorithm => by_a_real_clock(algorithm, &*oracle, stripes, size))
                .unwrap();
        }
    }
}

const FEW: Size = Size { rounds: QUICK.rounds / 3, ..QUICK };

#[test]
fn striped_limit_admits_exactly_as_one_thread() {
    all_one_limit(FEW);
}

#[test]
fn leases_stay_within_the_bound_while_they_expire() {
    all_while_leases_expire(FEW);
}

#[test]
#[cfg_attr(miri, ignore = "reads real clocks")]
fn leases_stay_within_the_bound_by_a_real_clock() {
    all_leases_by_a_real_clock(Size { real_time: QUICK.real_time / 4, ..QUICK });
}

#[test]
#[ignore = "minutes long; for sanitizers"]
fn heavy_one_limit_in_stripes() {
    all_one_limit(HEAVY);
}

#[test]
#[ignore = "minutes long; for sanitizers"]
fn heavy_leases_while_they_expire() {
    all_while_leases_expire(HEAVY);
}

#[test]
#[ignore = "minutes long; for sanitizers"]
fn heavy_leases_by_a_real_clock() {
    all_leases_by_a_real_clock(HEAVY);
}
