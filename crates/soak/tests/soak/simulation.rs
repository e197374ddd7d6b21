//! Runs the modes that decide in the process (leases and write-back) in virtual time, and compares the units that
//! they admit with their documented bounds.

use std::time::Duration;

use tollgate::Quota;
use tollgate_redis::Limit;
use tollgate_soak::simulation::{Faults, Mode, Network, Outcome, Pattern, Setup, run};

fn setup(mode: Mode, limit: Limit, nodes: u32, pattern: Pattern, network: Network) -> Setup {
    Setup { pattern, network, ..Setup::new(mode, limit, nodes) }
}

fn limits() -> [Limit; 3] {
    let quota = Quota::new(1_000, Duration::from_secs(10));
    [
        Limit::fixed_window(quota),
        Limit::gcra(quota.burst(200)),
        Limit::fixed_window(Quota::new(20, Duration::from_secs(10))),
    ]
}

fn cells() -> impl Iterator<Item = (Mode, Network)> {
    Mode::ALL.into_iter().flat_map(|mode| [(mode, Network::Lan), (mode, Network::Regions)])
}

fn say(setup: &Setup, outcome: &Outcome) {
    println!(
        "{:10} {:?} {:5} {:10} {:6} {:?}",
        setup.mode.name(),
        setup.limit.kind(),
        setup.nodes,
        setup.pattern.name(),
        setup.network.name(),
        outcome
    );
}

// G78, G80
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn admitted_units_stay_within_bound() {
    for limit in limits() {
        for nodes in [1, 4, 25] {
            for pattern in Pattern::ALL {
                for (mode, network) in cells() {
                    let setup = setup(mode, limit, nodes, pattern, network);
                    let outcome = run(&setup);
                    say(&setup, &outcome);
                    assert!(outcome.over <= outcome.bound, "{setup:?}: {outcome:?}");
                    if mode != Mode::WriteBack {
                        assert!(
                            outcome.charged >= outcome.admitted,
                            "every admitted unit is charged: {outcome:?}"
                        );
                        continue;
                    }
                    assert_eq!(
                        outcome.charged + outcome.dropped + outcome.pending,
                        outcome.admitted,
                        "every admitted unit is charged once, is dropped or is pending: {setup:?}"
                    );
                }
            }
        }
    }
}

// G78
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn faults_keep_overshoot_within_bound() {
    for limit in limits() {
        for pattern in Pattern::ALL {
            for (lost, partition_ms) in [(20, None), (0, Some((3_000, 7_000))), (5, Some((6_000, 21_000)))] {
                let mut setup = setup(Mode::WriteBack, limit, 10, pattern, Network::Lan);
                setup.faults = Faults { lost, partition_ms, ..Faults::default() };
                let outcome = run(&setup);
                say(&setup, &outcome);
                assert!(outcome.over <= outcome.bound, "{setup:?}: {outcome:?}");
                assert!(outcome.charged <= outcome.admitted, "no unit is charged twice: {outcome:?}");
                let found = outcome.charged + outcome.dropped + outcome.pending;
                assert!(found >= outcome.admitted, "no unit is lost: {outcome:?}");
                for mode in [Mode::Awaited, Mode::Lease] {
                    let leases = Setup { mode, ..setup };
                    let outcome = run(&leases);
                    say(&leases, &outcome);
                    assert!(outcome.over <= outcome.bound, "{leases:?}: {outcome:?}");
                }
            }
        }
    }
}

// G79
#[test]
fn stranded_units_stay_within_formula() {
    for limit in [limits()[0], limits()[2]] {
        for nodes in [1, 4, 10] {
            for pattern in Pattern::ALL {
                for network in [Network::Lan, Network::Regions] {
                    let setup = setup(Mode::Awaited, limit, nodes, pattern, network);
                    let outcome = run(&setup);
                    say(&setup, &outcome);
                    assert!(outcome.stranded <= outcome.stranded_bound, "{setup:?}: {outcome:?}");
                    assert!(outcome.waited < outcome.offered || nodes > 1, "{setup:?}: {outcome:?}");
                }
            }
        }
    }
}

#[test]
fn awaited_request_is_denied_less_often() {
    let quota = Quota::new(1_000, Duration::from_secs(10));
    let sync = setup(Mode::Lease, Limit::fixed_window(quota), 25, Pattern::Burst, Network::Lan);
    let (sync, awaited) = (run(&sync), run(&Setup { mode: Mode::Awaited, ..sync }));
    assert!(awaited.refused_early < sync.refused_early / 2, "{awaited:?} {sync:?}");
    assert!(sync.waited == 0 && awaited.waited > 0, "{awaited:?} {sync:?}");
}

#[test]
fn same_seed_gives_same_run() {
    let setup = setup(Mode::WriteBack, limits()[0], 4, Pattern::Zipf, Network::Lan);
    assert_eq!(run(&setup), run(&setup));
    assert_ne!(run(&setup), run(&Setup { seed: 8, ..setup }));
}
