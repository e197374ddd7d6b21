//! Models of eight threads that spend leases of one source. Shuttle runs them in sampled interleavings; see
//! `sync::sample`.

use super::*;
use crate::base::sync::sample;

const SCHEDULES: usize = 800;

/// Runs eight threads, and returns the sum of the units that they spent.
fn eight<P: LeaseSource + Send + Sync + 'static>(
    leases: &Arc<Leases<P>>,
    run: impl Fn(&Leases<P>, usize) -> u64 + Copy + Send + 'static,
) -> u64 {
    crate::base::sync::eight(leases, run).into_iter().sum()
}

#[test]
fn eight_threads_spend_all_units_once() {
    sample(SCHEDULES, || {
        let leases = Arc::new(leases_of_pot(9, 4));
        leases.fill(3, T1, 0, 2);
        let spent = eight(&leases, |leases, number| leases.check(number, T1, 1 + number as u64 % 3));
        assert_eq!(spent + leases.drain(T1), 11, "each unit can be spent exactly once");
    });
}

#[test]
fn eight_threads_spend_the_source_exactly() {
    sample(SCHEDULES, || {
        let leases = Arc::new(leases(Direct::new(Gcra::new(Quota::new(10, HOUR))), 4));
        let spent = eight(&leases, |leases, number| leases.check(number, T1, 1 + number as u64 % 2));
        assert!(spent <= 10, "the source charges at most ten units: {spent}");
        assert_eq!(spent + leases.drain(T1), 10, "each unit can be spent exactly once");
    });
}

/// Two of eight threads deposit units that were charged elsewhere.
#[test]
fn six_spenders_and_two_deposits_lose_no_unit() {
    sample(SCHEDULES, || {
        let leases = Arc::new(leases_of_pot(2, 2));
        let told = crate::base::sync::eight(&leases, |leases, number| {
            if number < 2 {
                (leases.account().deposit(Lease::new(2, HOUR), T1, T1), 0)
            } else {
                (0, leases.check(number, T1, 1))
            }
        });
        let (deposited, spent) =
            told.into_iter().fold((0, 0), |sums, told| (sums.0 + told.0, sums.1 + told.1));
        assert_eq!(spent + leases.drain(T1), 2 + deposited, "each unit can be spent exactly once");
    });
}

/// Half of the threads check half a life later than the others. No unit of the first time is spent after its expiry.
#[test]
fn eight_refills_do_not_extend_a_lease() {
    sample(SCHEDULES, || {
        let leases = Arc::new(leases_of_pot(12, 2));
        let spent = eight(&leases, |leases, number| {
            leases.check(number / 2, if number % 2 == 0 { T1 } else { T2 }, 1)
        });
        leases.source.left.store(0, Ordering::SeqCst);
        let (late, granted) = (leases.drain(E1), leases.source.late.load(Ordering::SeqCst));
        assert!(late <= granted, "no unit is spent after its lease has expired: {late} > {granted}");
        assert!(spent + late <= 12, "no unit is spent twice");
    });
}

#[test]
#[should_panic(expected = "each unit can be spent exactly once")]
fn control_eight_plain_store_refill_spends_twice() {
    sample(SCHEDULES, || {
        let leases = Arc::new(leases_of_pot(9, 1));
        let spent =
            eight(
                &leases,
                |leases, number| {
                    if number == 0 { refill_by_store(leases) } else { leases.check(0, T1, 1) }
                },
            );
        assert_eq!(spent + leases.drain(T1), 9, "each unit can be spent exactly once");
    });
}
