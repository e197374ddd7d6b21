//! Shuttle models: eight concurrent requests use one circuit breaker; see `sync::sample`.

use tollgate::internals::sync::sample;

use super::*;

const SCHEDULES: usize = 1_000;

fn eight_threads_probe(take: fn(&Circuit, u64) -> Option<Permit>) {
    let circuit = opened();
    let threads: [_; 8] = std::array::from_fn(|number| {
        spawn(&circuit, move |circuit| usize::from(take(circuit, (2 + number as u64 % 3) * TICK).is_some()))
    });
    let probes: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(probes, 1, "exactly one call after the pause probes");
}

#[test]
fn one_of_eight_probes() {
    sample(SCHEDULES, || eight_threads_probe(probe));
}

#[test]
#[should_panic(expected = "after the pause probes")]
fn control_eight_probes_by_load_and_store() {
    sample(SCHEDULES, || eight_threads_probe(probe_by_load_and_store));
}

#[test]
fn fifth_of_eight_failures_opens_the_breaker() {
    sample(SCHEDULES, || {
        let circuit = circuit(5);
        let permits: [_; 8] = std::array::from_fn(|_| circuit.admit(0).expect("the circuit is closed"));
        let threads = permits.map(|permit| {
            spawn(&circuit, move |circuit| circuit.failed(&permit, 0, 0) != BreakerChange::Nothing)
        });
        let opened = threads.map(|thread| thread.join().unwrap());
        let opened = opened.iter().filter(|&&opened| opened).count();
        assert_eq!(opened, 1, "exactly one failure reports that it opened the circuit");
        assert_eq!(circuit.state(0).0, BreakerState::Open, "every failure counts");
    });
}
