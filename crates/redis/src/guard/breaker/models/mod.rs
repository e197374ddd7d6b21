//! Loom models of the circuit breaker: concurrent requests and reports, in every interleaving up to a bound on
//! preemptions.
//!
//! Each model's assertion states its law. A *control* is the same model with one incorrect step. It must fail, which
//! shows that the model can detect the fault.

use tollgate::internals::sync::explore;
use tollgate::internals::sync::{Arc, thread};

use super::*;

#[cfg(tollgate_shuttle)]
mod many;

const TICK: u64 = 1 << TICK_BITS;
/// A pause is one tick, and a probe may take ten. So the model detects a word that admits another probe after only a
/// pause.
const PAUSE: u64 = TICK;
const PROBE: u64 = 10 * TICK;
const LATER: u64 = 100 * TICK;

fn circuit(failures: u32) -> Arc<Circuit> {
    Arc::new(Circuit::new(failures, Duration::from_nanos(PAUSE), Duration::from_nanos(PROBE), 0))
}

/// A circuit that opened at the start, so that a probe is possible after one tick.
fn opened() -> Arc<Circuit> {
    let circuit = circuit(1);
    let permit = circuit.admit(0).expect("the circuit is closed");
    assert!(matches!(circuit.failed(&permit, 0, u64::MAX), BreakerChange::Opened { .. }));
    circuit
}

/// Acts on the circuit in a thread.
fn spawn<R: Send + 'static>(
    circuit: &Arc<Circuit>,
    act: impl FnOnce(&Circuit) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let circuit = Arc::clone(circuit);
    thread::spawn(move || act(&circuit))
}

fn probe(circuit: &Circuit, now_ns: u64) -> Option<Permit> {
    circuit.admit(now_ns).ok().filter(Permit::is_probe)
}

/// Takes the probe with a separate load and store.
fn probe_by_load_and_store(circuit: &Circuit, now_ns: u64) -> Option<Permit> {
    let word = Word::unpack(circuit.word.load(Ordering::Relaxed));
    let Phase::Open { until } = word.phase else { return None };
    if circuit.passed(now_ns) < until {
        return None;
    }
    let phase = Phase::HalfOpen { until: circuit.later(now_ns, PROBE) };
    let ticket = Word { phase, generation: word.generation + 1, ..word }.pack();
    circuit.word.store(ticket, Ordering::Relaxed);
    Some(Permit { ticket: Some(ticket) })
}

fn one_probe(take: fn(&Circuit, u64) -> Option<Permit>) {
    explore(3, move || {
        let circuit = opened();
        let take = move |circuit: &Circuit| usize::from(take(circuit, 2 * TICK).is_some());
        let others = [spawn(&circuit, take), spawn(&circuit, take)];
        let mine = take(&circuit);
        let probes = others.into_iter().map(|other| other.join().unwrap()).sum::<usize>() + mine;
        assert_eq!(probes, 1, "exactly one call after the pause probes");
    });
}

// G84
#[test]
fn one_of_three_probes() {
    one_probe(probe);
}

// G84
#[test]
#[should_panic(expected = "after the pause probes")]
fn control_probe_by_load_and_store() {
    one_probe(probe_by_load_and_store);
}

/// An overdue probe fails while another probe takes over. A third request comes one pause later.
fn overdue(fail: fn(&Circuit, &Permit, u64)) {
    explore(3, move || {
        let circuit = opened();
        let lost = probe(&circuit, 2 * TICK).expect("the pause is over");
        let others = [LATER, LATER + 3 * PAUSE]
            .map(|now_ns| spawn(&circuit, move |circuit| usize::from(probe(circuit, now_ns).is_some())));
        fail(&circuit, &lost, LATER);
        let begun: usize = others.into_iter().map(|other| other.join().unwrap()).sum();
        let fourth = usize::from(probe(&circuit, LATER + 3 * PAUSE).is_some());
        assert!(begun + fourth <= 1, "at most one probe until its deadline");
    });
}

#[test]
fn overdue_failure_admits_no_second_probe() {
    overdue(|circuit, lost, now_ns| {
        let _ = circuit.failed(lost, now_ns, 0);
    });
}

#[test]
#[should_panic(expected = "at most one probe")]
fn control_failure_without_ticket_check() {
    overdue(|circuit, lost, now_ns| {
        let ticket = Word::unpack(lost.ticket.expect("a probe"));
        let (open, _) = circuit.open(ticket.generation, 1, now_ns, 0);
        circuit.word.store(open.pack(), Ordering::Relaxed);
    });
}

/// The probe succeeds while an older call fails, and another request comes.
fn success(fail: fn(&Circuit, &Permit, u64)) {
    explore(3, move || {
        let circuit = circuit(2);
        let late = circuit.admit(0).expect("the circuit is closed");
        for _ in 0..2 {
            let permit = circuit.admit(0).expect("the circuit is closed");
            let _ = circuit.failed(&permit, 0, u64::MAX);
        }
        let mine = probe(&circuit, 2 * TICK).expect("the pause is over");
        let failing = spawn(&circuit, move |circuit| fail(circuit, &late, 2 * TICK));
        let asking = spawn(&circuit, |circuit| probe(circuit, 2 * TICK).is_some());
        let change = circuit.succeeded(&mine);
        assert_eq!(change, BreakerChange::Closed, "no other report replaces the probe's word");
        failing.join().unwrap();
        let is_second = asking.join().unwrap();
        assert!(!is_second, "no second probe while the first is in flight or after it succeeded");
        assert_eq!(circuit.state(2 * TICK).0, BreakerState::Closed, "the probe's success is not lost");
    });
}

// G84
#[test]
fn probe_success_survives_a_late_failure() {
    success(|circuit, late, now_ns| {
        let _ = circuit.failed(late, now_ns, 0);
    });
}

// G84
#[test]
#[should_panic(expected = "probe")]
fn control_late_failure_opens() {
    success(|circuit, _, now_ns| {
        let (open, _) = circuit.open(0, 0, now_ns, 0);
        circuit.word.store(open.pack(), Ordering::Relaxed);
    });
}

// G84
#[test]
fn no_failure_is_lost() {
    explore(3, || {
        let circuit = circuit(3);
        let fail = |circuit: &Circuit| {
            let permit = circuit.admit(0).expect("the circuit is closed until the third failure");
            usize::from(circuit.failed(&permit, 0, 0) != BreakerChange::Nothing)
        };
        let others = [spawn(&circuit, fail), spawn(&circuit, fail)];
        let mine = fail(&circuit);
        let opened = others.into_iter().map(|other| other.join().unwrap()).sum::<usize>() + mine;
        assert_eq!(opened, 1, "exactly the third failure reports that it opened the circuit");
        assert_eq!(circuit.state(0).0, BreakerState::Open);
    });
}
