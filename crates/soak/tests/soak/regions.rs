//! Several regions in virtual time: what they admit together stays within the bounds of both policies.

use std::time::Duration;

use tollgate::Quota;
use tollgate_redis::{Limit, RegionPolicy};
use tollgate_soak::simulation::regions::{Cut, Mistake, RegionOutcome, RegionSetup, run_regions};

fn setup(policy: RegionPolicy, per_second: &[u64]) -> RegionSetup {
    let limit = Limit::fixed_window(Quota::per_minute(3_000));
    RegionSetup { keys: 5, seconds: 240, ..RegionSetup::new(limit, policy, per_second.to_vec()) }
}

fn assert_bounded(setup: &RegionSetup) -> RegionOutcome {
    let outcome = run_regions(setup);
    println!("{setup:?}\n  {outcome:?}");
    assert_eq!(outcome.over.violations(), 0, "{setup:?}\n{outcome:?}");
    outcome
}

const POLICIES: [RegionPolicy; 2] = [RegionPolicy::Share, RegionPolicy::AsLastKnown];

// G98, G99
#[test]
fn regions_in_calm_stay_within_bound() {
    for policy in POLICIES {
        for per_second in [&[100][..], &[50, 50, 50], &[140, 5, 5], &[100, 100, 100]] {
            let outcome = assert_bounded(&setup(policy, per_second));
            assert!(outcome.admitted > 0 && (per_second.len() == 1) == (outcome.exchanges == 0));
        }
    }
}

// G98, G99, G101
#[test]
fn partition_stays_within_bound() {
    for policy in POLICIES {
        for cut in [Cut::All, Cut::First, Cut::OneWay] {
            let mut setup = setup(policy, &[80, 80, 80]);
            setup.partition_ms = Some((50_000, 200_000, cut));
            setup.keys = 1;
            let outcome = assert_bounded(&setup);
            assert!(outcome.cut_off[0] > 0 && outcome.cut_off[1] == 0, "{outcome:?}");
            assert_eq!(outcome.disagreements, 0, "{outcome:?}");
            assert!(outcome.over.inside.windows > 0);
        }
    }
}

/// However many processes a region has, what all admit beyond the limit in calm is what they admit before they learn of it.
// G98, G99
#[test]
fn processes_of_regions_add_only_what_they_admit_unseen() {
    for policy in POLICIES {
        for processes in [1, 4] {
            let mut setup = setup(policy, &[60, 60, 10]);
            (setup.processes, setup.keys, setup.seconds) = (processes, 2, 180);
            (setup.exchange, setup.interval) = (Duration::from_secs(1), Duration::from_millis(200));
            let calm = assert_bounded(&setup).over.calm;
            assert!(calm.windows > 0 && calm.bound <= 600, "a fifth of the limit: {calm:?}");
        }
    }
}

/// Windows that are counted by one clock also contain what the other regions count in the next window.
// G98
#[test]
fn clocks_that_differ_add_what_is_admitted_in_the_difference() {
    for policy in POLICIES {
        let mut setup = setup(policy, &[60, 60, 60]);
        (setup.skew, setup.keys, setup.seconds) = (Duration::from_secs(4), 2, 180);
        let over = assert_bounded(&setup).over;
        assert!(over.one_clock.over > over.calm.over + 200, "the control: {over:?}");
    }
}

// G98
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn ten_regions_with_faults_stay_within_bound() {
    for policy in POLICIES {
        let mut setup = setup(policy, &[15; 10]);
        setup.limit = Limit::fixed_window(Quota::per_minute(1_500));
        (setup.keys, setup.seconds) = (3, 130);
        assert_bounded(&setup);
        setup.lost = 20;
        assert_bounded(&setup);
        setup.processes = 4;
        assert_bounded(&setup);
    }
}

// G98
#[test]
fn cold_burst_stays_within_bound() {
    for policy in POLICIES {
        let mut setup = setup(policy, &[2_000, 2_000, 2_000]);
        (setup.keys, setup.seconds) = (1, 12);
        let outcome = assert_bounded(&setup);
        assert_eq!(outcome.over.calm.over > 2_000, policy == RegionPolicy::AsLastKnown, "{outcome:?}");
    }
}

// G98
#[test]
fn small_limits_stay_within_bound() {
    for policy in POLICIES {
        for limit in [3, 10, 100] {
            let mut setup = setup(policy, &[5, 5, 1]);
            setup.limit = Limit::fixed_window(Quota::per_minute(limit));
            let outcome = assert_bounded(&setup);
            if limit <= 10 {
                assert!(
                    outcome.admitted >= 4 * limit * u64::from(setup.keys),
                    "no unit is lost: {outcome:?}"
                );
            }
        }
    }
}

// G98
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn different_clocks_stay_within_bound() {
    for policy in POLICIES {
        for skew_ms in [50, 2_000, 20_000] {
            let mut setup = setup(policy, &[60, 60, 60]);
            setup.skew = Duration::from_millis(skew_ms);
            assert_bounded(&setup);
        }
    }
}

// G98
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn sliding_windows_of_regions_stay_within_bound() {
    for policy in POLICIES {
        for partition_ms in [None, Some((50_000, 200_000, Cut::All))] {
            let mut setup = setup(policy, &[60, 60, 10]);
            setup.limit = Limit::sliding_window(Quota::per_minute(3_000));
            (setup.keys, setup.partition_ms) = (2, partition_ms);
            assert_bounded(&setup);
        }
    }
}

/// The controls: the assertions of this file find both mistakes.
// G98
#[test]
fn region_mistakes_break_the_bounds() {
    let mut setup = setup(RegionPolicy::Share, &[100, 100, 100]);
    (setup.keys, setup.partition_ms) = (1, Some((50_000, 200_000, Cut::All)));
    setup.mistake = Some(Mistake::RenewalWithoutNews);
    let outcome = run_regions(&setup);
    assert!(outcome.over.inside.violations > 0, "{outcome:?}");

    setup.partition_ms = None;
    setup.policy = RegionPolicy::AsLastKnown;
    setup.per_second = vec![10, 10, 10];
    setup.mistake = None;
    assert_eq!(run_regions(&setup).admitted, run_regions(&setup).offered, "below the limit, all is admitted");
    setup.mistake = Some(Mistake::Echo);
    let outcome = run_regions(&setup);
    assert!(outcome.admitted < outcome.offered, "{outcome:?}");
}

#[test]
fn same_seed_gives_same_region_run() {
    let setup = RegionSetup { keys: 1, ..setup(RegionPolicy::Share, &[20, 20]) };
    assert_eq!(run_regions(&setup), run_regions(&setup));
    assert_ne!(run_regions(&setup), run_regions(&RegionSetup { seed: 8, ..setup }));
}

/// What the processes report of other regions is what their region knows, not what one process last tried.
// G101
#[test]
fn processes_report_what_their_region_knows() {
    let exchange = Duration::from_millis(500);
    // One report to the server, and one reply; the simulation looks every 50 ms.
    let told = 2 * exchange + Duration::from_millis(100);
    for processes in [2, 6] {
        let mut setup = setup(RegionPolicy::Share, &[40, 40, 40]);
        (setup.exchange, setup.interval, setup.processes) = (exchange, exchange / 5, processes);
        (setup.keys, setup.lost) = (2, 2);
        let outcome = assert_bounded(&setup);
        assert!(outcome.false_alarm <= told, "{outcome:?}");
        setup.lost = 0;
        setup.partition_ms = Some((100_000, 130_000, Cut::All));
        let outcome = assert_bounded(&setup);
        assert_eq!(outcome.cut_off, [u64::from(processes) * 6, 0], "{outcome:?}");
        assert!(outcome.alarm <= 6 * exchange && outcome.false_alarm <= told, "{outcome:?}");
        // The control. With two processes, each exchanges often enough that it may find nothing.
        if processes == 6 {
            setup.mistake = Some(Mistake::NoReports);
            let alone = run_regions(&setup);
            println!("without reports: {alone:?}");
            assert!(alone.alarm > 6 * exchange && alone.false_alarm > told, "the control: {alone:?}");
        }
    }
}
