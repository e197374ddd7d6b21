//! Leases admit exactly as much as one thread would be admitted, whichever stripes the threads use.

use super::*;
use tollgate::leases::LeaseAlgorithm;
use tollgate_testing::kinds::LEASABLE;

/// A single stripe, fewer stripes than threads, and more stripes than threads.
const STRIPES: [usize; 3] = [1, 2, 16];
/// Long enough that many leases are used up, and short enough that all leases expire in the jumps between rounds.
const LIFE: Duration = Duration::from_millis(20);

/// All threads check single units until all are denied. Units are prepaid and move between stripes, but in the end
/// each unit is spent.
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
    until_denied(|| limiter.check().is_allowed(), &clock, &mut *oracle, spec, size, &limiter);
}

/// Threads spend units, take units from each other and return units, with various costs, while the clock runs. They are
/// never admitted more than was charged.
fn while_leases_expire<A: LeaseAlgorithm>(
    algorithm: A,
    oracle: &dyn Oracle,
    spec: Spec,
    stripes: usize,
    size: Size,
) {
    let clock = ManualClock::new(Timestamp::from_nanos(START));
    let builder = RateLimiter::builder(algorithm).clock(clock.clone());
    let limiter = builder.stripes(stripes).lease_life(LIFE).striped();
    let check = |random: &mut Random, _, now| {
        let cost = 1 + random.below(4) * random.below(2);
        if limiter.at(now).check_n(cost).is_allowed() { cost } else { 0 }
    };
    // All leases were taken within this time.
    let (admitted, elapsed) = in_running_time(&clock, Size { keys: 1, ..size }, LIFE / 5, check);
    within(&admitted, oracle.most_in(elapsed), &(limiter, spec));
}

/// Leases live for microseconds of a real clock, so they expire between one check and the next.
fn by_a_real_clock<A: LeaseAlgorithm>(algorithm: A, oracle: &dyn Oracle, stripes: usize, size: Size) {
    let limiter =
        RateLimiter::builder(algorithm).stripes(stripes).lease_life(Duration::from_micros(80)).striped();
    let (admitted, elapsed) = in_real_time(size, 1, |random| {
        let cost = 1 + random.below(3);
        limiter.check_n(cost).is_allowed().then_some((0, cost))
    });
    within(&admitted, oracle.most_in(elapsed), &limiter);
}

/// Some of these limits are large enough for blocks of more than one unit, with some numbers of stripes.
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

// G51
#[test]
fn striped_limit_admits_exactly_as_one_thread() {
    all_one_limit(FEW);
}

// G50
#[test]
fn expiring_leases_stay_within_bound() {
    all_while_leases_expire(FEW);
}

#[test]
#[cfg_attr(miri, ignore = "reads real clocks")]
fn real_clock_leases_stay_within_bound() {
    all_leases_by_a_real_clock(Size { real_time: QUICK.real_time / 4, ..QUICK });
}

// G13
#[test]
#[ignore = "minutes long; for sanitizers"]
fn heavy() {
    all_one_limit(HEAVY);
    all_while_leases_expire(HEAVY);
    all_leases_by_a_real_clock(HEAVY);
}
