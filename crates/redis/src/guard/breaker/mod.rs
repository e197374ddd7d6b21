//! The circuit breaker: it decides whether the server is called.
//!
//! ```text
//!            n failures in a row                  the pause is over: one call is the probe
//!   closed ─────────────────────► open ─────────────────────────────────────────► half-open
//!     ▲                             ▲   ◄── the probe fails: twice the pause ──────   │  │ ▲
//!     │                             └── (up to eight times, or a second) ─────────────┘  │ │ no report by the deadline:
//!     └────────────────────────── the probe succeeds ◄──────────────────────────────────┘ │ the next call is the probe
//! ```
//!
//! The whole state is one word, changed by compare-exchange. There is no lock, and no thread waits for a pause to end.
//! The state machine is pure: the caller passes all times.
//!
//! *One probe.*
//!
//! 1. The call that changes the word from open to half-open is the probe. The word that it wrote is its ticket.
//! 2. All other calls are denied until the probe reports, or until its deadline. The deadline is needed because the
//!    probe's caller may disappear without a report.
//! 3. A probe reports with one compare-exchange from its own ticket. After another probe has taken over, this exchange
//!    fails and changes nothing. So a late report does not start a third probe while the second is in flight.
//! 4. Each ticket contains a generation, so a later word does not equal an earlier ticket.
//!
//! If the caller of a probe stops waiting, the probe reports this. The breaker then opens again for another pause of
//! the same length, because the probe learned nothing.
//!
//! *Late answers.* A call that was sent before the breaker opened can report after it opened. Its failure does not
//! count, and its success does not close the breaker; only the probe closes it. So no other call can undo the success
//! of the current probe. If another probe has taken over, the first probe's success is lost, and the second probe
//! decides.
//!
//! *No stampede.* A server that is back receives one probe from each process, not the load under which it failed. The
//! probe arrives at a random time in the second half of the pause, chosen again for each process and pause. After the
//! probe's answer, all requests go to the server at once, through the existing connection, in one pipeline. The server
//! therefore sees a queue of small commands, bounded by the calls of a process within one time-out. There is no slow
//! start. If the server fails under this load, the breaker opens again after n failures, within one time-out.

#[cfg(all(test, tollgate_loom))]
mod models;

use std::time::Duration;

use tollgate::internals::saturating_nanos;
use tollgate::internals::sync::{AtomicU64, Ordering};
use tollgate::waiting::Jitter;

/// Nanoseconds in a tick, as a power of two: about a millisecond, so that the time field holds 73 years.
const TICK_BITS: u32 = 20;
/// The maximum number of times that a pause doubles: up to eight times its first length.
const MAX_LEVEL: u64 = 3;
/// The maximum length of a doubled pause, so that a recovered server is found soon. One small command a second from
/// each process is little load. A first pause that is longer keeps its length.
const LONGEST_DOUBLED: Duration = Duration::from_secs(1);

/// The time until which the breaker is open, or until which the probe must report. In the closed state, the number of
/// failures in a row.
const TIME_BITS: u32 = 41;
/// The generation field counts probes and wraps around. So a ticket differs from the tickets of the half million probes
/// before it and after it.
const GENERATION_BITS: u32 = 19;
const LEVEL_BITS: u32 = 2;
const _: () = assert!(TIME_BITS + GENERATION_BITS + LEVEL_BITS + 2 == u64::BITS);

const MAX_TIME: u64 = (1 << TIME_BITS) - 1;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Phase {
    /// The number of failures since the last success.
    Closed { failures: u64 },
    /// Open until this tick since the origin.
    Open { until: u64 },
    /// A probe is in flight, and must report by this tick.
    HalfOpen { until: u64 },
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Word {
    phase: Phase,
    /// How often the pause has doubled.
    level: u64,
    generation: u64,
}

impl Word {
    const NEW: Self = Self { phase: Phase::Closed { failures: 0 }, level: 0, generation: 0 };

    const fn pack(self) -> u64 {
        let (phase, low) = match self.phase {
            Phase::Closed { failures } => (0, failures),
            Phase::Open { until } => (1, until),
            Phase::HalfOpen { until } => (2, until),
        };
        let high = (phase << LEVEL_BITS) | self.level;
        (((high << GENERATION_BITS) | self.generation) << TIME_BITS) | low
    }

    const fn unpack(word: u64) -> Self {
        let low = word & MAX_TIME;
        let rest = word >> TIME_BITS;
        let high = rest >> GENERATION_BITS;
        Self {
            phase: match high >> LEVEL_BITS {
                0 => Phase::Closed { failures: low },
                1 => Phase::Open { until: low },
                _ => Phase::HalfOpen { until: low },
            },
            level: high & ((1 << LEVEL_BITS) - 1),
            generation: rest & ((1 << GENERATION_BITS) - 1),
        }
    }
}

/// The state of a circuit breaker: whether the server is called.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[non_exhaustive]
pub enum BreakerState {
    /// All calls are sent.
    #[default]
    Closed,
    /// The pause is over. One request is sent as a probe, now or when the next request comes. If it is answered, the
    /// breaker closes.
    HalfOpen,
    /// No calls are sent, for a pause.
    Open,
}

/// Permission to send one call. The holder reports the result of the call; otherwise the deadline of a probe passes.
#[derive(Debug)]
#[must_use = "report the result of the call to the breaker"]
pub(super) struct Permit {
    /// The word that this probe wrote.
    ticket: Option<u64>,
}

impl Permit {
    pub(super) const fn is_probe(&self) -> bool {
        self.ticket.is_some()
    }
}

/// The change that a report made.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use = "count and log the change"]
pub(super) enum BreakerChange {
    /// No visible change.
    Nothing,
    /// The server is called again.
    Closed,
    /// The server is not called for this many nanoseconds from now.
    Opened {
        /// The pause.
        pause_ns: u64,
        /// Whether a probe failed, so that the server was not called before either.
        again: bool,
    },
}

/// See the module docs.
#[derive(Debug)]
pub(super) struct Circuit {
    word: AtomicU64,
    /// When the first of the last failures in a row was reported, in nanoseconds. Only events show it.
    failing_since_ns: AtomicU64,
    /// When the circuit was created, in nanoseconds.
    origin_ns: u64,
    /// The number of failures in a row that open the circuit.
    failures: u64,
    pause: Duration,
    /// How long a probe may take.
    probe_ns: u64,
}

impl Circuit {
    /// Creates a closed circuit. A probe that has not reported after `probe` is replaced by another.
    pub(super) fn new(failures: u32, pause: Duration, probe: Duration, now_ns: u64) -> Self {
        Self {
            word: AtomicU64::new(Word::NEW.pack()),
            failing_since_ns: AtomicU64::new(now_ns),
            origin_ns: now_ns,
            failures: u64::from(failures.max(1)),
            pause,
            probe_ns: saturating_nanos(probe),
        }
    }

    /// The number of whole ticks that have passed. At the end of the time field's range, all pauses are over.
    fn passed(&self, now_ns: u64) -> u64 {
        (now_ns.saturating_sub(self.origin_ns) >> TICK_BITS).min(MAX_TIME)
    }

    /// The first tick that is at least `by_ns` later, and at least one tick after now.
    fn later(&self, now_ns: u64, by_ns: u64) -> u64 {
        let at = now_ns.saturating_sub(self.origin_ns).saturating_add(by_ns);
        at.div_ceil(1 << TICK_BITS).max(self.passed(now_ns) + 1).min(MAX_TIME)
    }

    /// Returns permission to call the server, or the number of nanoseconds until a call may be permitted.
    pub(super) fn admit(&self, now_ns: u64) -> Result<Permit, u64> {
        // Ordering: Relaxed, here and at all exchanges. The word is the whole state and publishes no other memory. The
        // word's modification order decides which call is the probe, and what its report changes.
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            let word = Word::unpack(seen);
            let (Phase::Open { until } | Phase::HalfOpen { until }) = word.phase else {
                return Ok(Permit { ticket: None });
            };
            if self.passed(now_ns) < until {
                return Err(self.ns_until(until, now_ns));
            }
            let generation = (word.generation + 1) & ((1 << GENERATION_BITS) - 1);
            let phase = Phase::HalfOpen { until: self.later(now_ns, self.probe_ns) };
            let ticket = Word { phase, level: word.level, generation }.pack();
            match self.word.compare_exchange(seen, ticket, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(Permit { ticket: Some(ticket) }),
                // Another call became the probe, or reported.
                Err(now) => seen = now,
            }
        }
    }

    /// Reports that the server answered this call.
    pub(super) fn succeeded(&self, permit: &Permit) -> BreakerChange {
        if let Some(ticket) = permit.ticket {
            let closed = Word { generation: Word::unpack(ticket).generation, ..Word::NEW };
            // One exchange: if it fails, another probe has taken over.
            return self.replace(ticket, closed).map_or(BreakerChange::Nothing, |()| BreakerChange::Closed);
        }
        let mut seen = self.word.load(Ordering::Relaxed);
        // Usually there was no failure. Then this writes nothing to shared memory.
        while let word @ Word { phase: Phase::Closed { failures: 1.. }, .. } = Word::unpack(seen) {
            match self.replace(seen, Word { phase: Phase::Closed { failures: 0 }, ..word }) {
                Ok(()) => break,
                Err(now) => seen = now,
            }
        }
        BreakerChange::Nothing
    }

    /// Reports that the server failed this call. `random` is 64 random bits, for the pause.
    pub(super) fn failed(&self, permit: &Permit, now_ns: u64, random: u64) -> BreakerChange {
        if let Some(ticket) = permit.ticket {
            return self.reopen(ticket, 1, now_ns, random);
        }
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            let word = Word::unpack(seen);
            let Phase::Closed { failures } = word.phase else {
                return BreakerChange::Nothing;
            };
            if failures == 0 {
                // Ordering: Relaxed. It publishes nothing, and an event may show the time of another thread's first failure.
                self.failing_since_ns.store(now_ns, Ordering::Relaxed);
            }
            let failures = failures + 1;
            let (next, change) = if failures < self.failures {
                (Word { phase: Phase::Closed { failures }, ..word }, BreakerChange::Nothing)
            } else {
                let (open, pause_ns) = self.open(word.generation, 0, now_ns, random);
                (open, BreakerChange::Opened { pause_ns, again: false })
            };
            match self.replace(seen, next) {
                Ok(()) => return change,
                Err(now) => seen = now,
            }
        }
    }

    /// Reports that the caller stopped waiting before the answer. If the call is a probe, the circuit opens again, for
    /// a pause as long as the last. Other calls change nothing.
    pub(super) fn abandoned(&self, permit: &Permit, now_ns: u64, random: u64) -> BreakerChange {
        permit.ticket.map_or(BreakerChange::Nothing, |ticket| self.reopen(ticket, 0, now_ns, random))
    }

    /// Opens the circuit again after a probe. The pause is doubled `doubled` more times.
    fn reopen(&self, ticket: u64, doubled: u64, now_ns: u64, random: u64) -> BreakerChange {
        let Word { level, generation, .. } = Word::unpack(ticket);
        let (open, pause_ns) = self.open(generation, (level + doubled).min(MAX_LEVEL), now_ns, random);
        let change = BreakerChange::Opened { pause_ns, again: true };
        self.replace(ticket, open).map_or(BreakerChange::Nothing, |()| change)
    }

    /// Returns since when calls have failed, or had failed before the circuit closed.
    pub(super) fn failing_since_ns(&self) -> u64 {
        // Ordering: Relaxed; see `failed`.
        self.failing_since_ns.load(Ordering::Relaxed)
    }

    /// Returns the open state with half to all of the level's pause, and the length of this pause in nanoseconds.
    fn open(&self, generation: u64, level: u64, now_ns: u64, random: u64) -> (Word, u64) {
        let doubled = self.pause.saturating_mul(1 << level.min(MAX_LEVEL));
        let most = doubled.min(LONGEST_DOUBLED.max(self.pause));
        let pause_ns = Jitter::between(most / 2, most).nanos(random);
        (Word { phase: Phase::Open { until: self.later(now_ns, pause_ns) }, level, generation }, pause_ns)
    }

    fn replace(&self, seen: u64, next: Word) -> Result<(), u64> {
        // Ordering: Relaxed; see `admit`.
        self.word.compare_exchange(seen, next.pack(), Ordering::Relaxed, Ordering::Relaxed).map(|_| ())
    }

    fn ns_until(&self, tick: u64, now_ns: u64) -> u64 {
        let at_ns = self.origin_ns.saturating_add(tick.saturating_mul(1 << TICK_BITS));
        at_ns.saturating_sub(now_ns)
    }

    /// Returns the state, and the number of nanoseconds until it may change: until the pause ends, or until the probe's
    /// deadline. Half-open with 0 means that the next request is the probe.
    pub(super) fn state(&self, now_ns: u64) -> (BreakerState, u64) {
        // Ordering: Relaxed; see `admit`.
        match Word::unpack(self.word.load(Ordering::Relaxed)).phase {
            Phase::Closed { .. } => (BreakerState::Closed, 0),
            Phase::Open { until } if self.passed(now_ns) < until => {
                (BreakerState::Open, self.ns_until(until, now_ns))
            }
            Phase::Open { until } | Phase::HalfOpen { until } => {
                (BreakerState::HalfOpen, self.ns_until(until, now_ns))
            }
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const START: u64 = 1_700_000_000 * SECOND;
    /// The length of a tick, rounded up.
    const TICK: u64 = 1 << TICK_BITS;

    fn circuit(failures: u32) -> Circuit {
        Circuit::new(failures, Duration::from_secs(1), Duration::from_millis(100), START)
    }

    fn ask(circuit: &Circuit, now_ns: u64) -> Permit {
        circuit.admit(now_ns).expect("the breaker permits a call")
    }

    fn fail(circuit: &Circuit, now_ns: u64) -> BreakerChange {
        circuit.failed(&ask(circuit, now_ns), now_ns, u64::MAX)
    }

    #[test]
    fn words_round_trip() {
        for phase in [
            Phase::Closed { failures: MAX_TIME },
            Phase::Open { until: 0 },
            Phase::HalfOpen { until: MAX_TIME },
        ] {
            for (level, generation) in [(0, 0), (MAX_LEVEL, (1 << GENERATION_BITS) - 1), (1, 2)] {
                let word = Word { phase, level, generation };
                assert_eq!(Word::unpack(word.pack()), word);
            }
        }
    }

    #[test]
    fn overdue_probe_is_replaced() {
        let circuit = circuit(1);
        let _ = fail(&circuit, START);
        let now = START + 2 * SECOND;
        let lost = ask(&circuit, now);
        let wait = circuit.admit(now).unwrap_err();
        assert!((100_000_000..100_000_000 + TICK).contains(&wait), "{wait}");
        let now = now + wait;
        let second = ask(&circuit, now);
        assert!(second.is_probe());
        // The first probe reports too late. It neither opens nor closes the circuit while another probe is in flight.
        assert_eq!(circuit.failed(&lost, now, 0), BreakerChange::Nothing);
        assert_eq!(circuit.succeeded(&lost), BreakerChange::Nothing);
        assert!(circuit.admit(now).is_err());
        assert_eq!(circuit.succeeded(&second), BreakerChange::Closed);
        // A late report counts if no other probe has taken over.
        let _ = fail(&circuit, now);
        let late = ask(&circuit, now + 10 * SECOND);
        assert_eq!(circuit.succeeded(&late), BreakerChange::Closed);
    }

    // G84
    #[test]
    fn nothing_overflows() {
        let longest = Circuit::new(u32::MAX, Duration::MAX, Duration::MAX, 0);
        let _ = fail(&longest, u64::MAX);
        let circuit = Circuit::new(0, Duration::MAX, Duration::MAX, 0);
        assert!(matches!(fail(&circuit, u64::MAX), BreakerChange::Opened { .. }), "0 failures count as 1");
        // At the end of the time field's range, all pauses are over; no earlier pause is that long.
        assert!(ask(&circuit, u64::MAX).is_probe());
        let shortest = Circuit::new(1, Duration::ZERO, Duration::ZERO, 0);
        let _ = fail(&shortest, 5);
        assert!(shortest.admit(5).is_err(), "a pause lasts at least one tick");
        // Time may step back, even to before the origin.
        let circuit = super::tests::circuit(1);
        let _ = fail(&circuit, START + SECOND);
        assert!(circuit.admit(0).is_err());
        assert!(ask(&circuit, START + 3 * SECOND).is_probe());
    }

    // For every sequence of calls, reports and time steps:
    // - no probe starts while another is in flight, unless the deadline of the other has passed;
    // - after n failures in a row of a closed circuit, no call is admitted for half a pause;
    // - from every state, the circuit is closed after one longest pause and a successful probe.
    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(7), ..ProptestConfig::default() })]
        #[test]
        fn breaker_properties_hold(steps in prop::collection::vec((0_u8..4, any::<u64>(), 0_u64..700_000_000), 1..60)) {
            let circuit = circuit(2);
            let mut now = START;
            // Permits in flight, with their deadlines.
            let mut flying: Vec<(Permit, u64)> = Vec::new();
            let mut opened_at = None;
            for (what, random, step) in steps {
                match what {
                    0 => now += step,
                    1 => if let Ok(permit) = circuit.admit(now) {
                        if let Some(at) = opened_at {
                            prop_assert!(now >= at + SECOND / 2 || circuit.state(now).0 == BreakerState::Closed);
                        }
                        if permit.is_probe() {
                            let rival = flying.iter().any(|(other, deadline)| other.is_probe() && *deadline > now);
                            prop_assert!(!rival, "a second probe at {now}");
                        }
                        flying.push((permit, now + 100_000_000));
                    },
                    _ => if !flying.is_empty() {
                        let at = usize::try_from(random % flying.len() as u64).unwrap();
                        let (permit, _) = flying.swap_remove(at);
                        let change = if what == 2 { circuit.succeeded(&permit) } else { circuit.failed(&permit, now, random) };
                        match change {
                            BreakerChange::Opened { .. } => opened_at = Some(now),
                            BreakerChange::Closed => opened_at = None,
                            BreakerChange::Nothing => {}
                        }
                    },
                }
            }
            now += 9 * SECOND;
            let permit = ask(&circuit, now);
            let _ = circuit.succeeded(&permit);
            prop_assert_eq!(circuit.state(now).0, BreakerState::Closed);
        }
    }
}
