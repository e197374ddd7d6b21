//! Runs random operations on limiters that count in a sketch, and compares them with exact windows of each key. With
//! enough room, each step must match. In little memory, errors are allowed on one side only.

#![no_main]

#[macro_use]
extern crate tollgate_testing;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::{Corpus, fuzz_target};
use std::collections::HashMap;
use tollgate::{ManualClock, Timestamp, WindowAlgorithm};
use tollgate_testing::fuzzing::{cost, step};
use tollgate_testing::kinds::{Kind, WINDOWS};
use tollgate_testing::oracle::{Oracle, Spec, Verdict};
use tollgate_testing::sketch::{LEAST, build, reach};
use tollgate_testing::steps::{Cost, Op};
use tollgate_testing::subjects::verdict;

#[derive(Debug)]
enum Act {
    Check,
    CheckAt,
    CheckHash,
    Peek,
    /// For this key and this number of keys after it.
    Batch(u32),
    Clear,
    Saturation,
}

#[derive(Debug)]
struct Stream {
    kind: Kind,
    spec: Spec,
    bytes: usize,
    /// Whether time steps back.
    backward: bool,
    start: u64,
    acts: Vec<(Op, Act)>,
}

/// Memory in which a few keys share no counters.
const ROOMY: usize = 1 << 16;
const KEYS_WITH_ROOM: u32 = 4;
const KEYS: u32 = 80;

impl Stream {
    fn read(bytes: &mut Unstructured<'_>) -> Result<Self> {
        let kind = *bytes.choose(&WINDOWS)?;
        let limit = match bytes.int_in_range(0..=7)? {
            7 => bytes.int_in_range(1..=8_573_190_079)?,
            5 | 6 => bytes.int_in_range(1..=65_407)?,
            _ => bytes.int_in_range(1..=20)?,
        };
        // An empty input is also a valid stream. A fuzzer that starts with an empty input cannot find one if all such
        // inputs are rejected.
        let period_ns = match bytes.int_in_range(0..=3)? {
            3 => bytes.int_in_range(1..=1 << 58)?,
            2 => bytes.int_in_range(1..=1_000_000)?,
            _ => 1_000_000_000 * bytes.int_in_range(1..=100_000)?,
        };
        let spec = Spec::new(limit, period_ns);
        let memory = *bytes.choose(&[LEAST, 300, 1_000, ROOMY, ROOMY])?;
        let backward = bytes.ratio(1, 3)?;
        let start =
            if bytes.arbitrary()? { 1_700_000_000_000_000_000 } else { u64::from(bytes.arbitrary::<u16>()?) };
        let keys = if memory == ROOMY { KEYS_WITH_ROOM } else { KEYS };
        let mut acts = Vec::new();
        while !bytes.is_empty() && acts.len() < 400 {
            let key = bytes.int_in_range(0..=keys - 1)?;
            let op = Op { key, step: step(bytes, backward)?, cost: cost(bytes)? };
            let act = match bytes.int_in_range(0..=31)? {
                0 => Act::Clear,
                1 => Act::Saturation,
                2..=5 => Act::Batch(bytes.int_in_range(0..=40)?),
                6..=9 => Act::Peek,
                10..=12 => Act::CheckHash,
                13..=22 => Act::CheckAt,
                _ => Act::Check,
            };
            acts.push((op, act));
        }
        Ok(Self { kind, spec, bytes: memory, backward, start, acts })
    }
}

/// The exact windows of each key, which decide what the key may do.
struct Model<'a> {
    stream: &'a Stream,
    keys: HashMap<u32, Box<dyn Oracle>>,
}

impl Model<'_> {
    fn oracle(&mut self, key: u32) -> &mut Box<dyn Oracle> {
        let Stream { kind, spec, .. } = *self.stream;
        self.keys.entry(key).or_insert_with(|| kind.oracle(spec))
    }

    /// Checks a decision, and charges the admitted units to the oracle.
    fn judge(&mut self, key: u32, cost: u64, now: u64, decision: &tollgate::Decision, charges: bool) {
        let Stream { bytes, backward, .. } = *self.stream;
        let (remaining, ours) = (decision.remaining(), verdict(decision));
        let _ = (decision.retry_after(), decision.reset_after(), decision.delay());
        let oracle = self.oracle(key);
        let own = oracle.peek(now, cost);
        let roomy = bytes == ROOMY;
        let sound = match (ours, own) {
            (Verdict::Denied, Verdict::Allowed) => !roomy,
            // A time that steps back may count in a later window, which another key has begun.
            (Verdict::Allowed, Verdict::Denied) => !roomy && backward,
            _ => ours == own,
        };
        assert!(
            sound,
            "the limiter says {ours:?}, the key's oracle {own:?}: {cost} at {now} of {key}, {oracle:?}"
        );
        if charges && ours == Verdict::Allowed && cost > 0 && own == Verdict::Allowed {
            oracle.charge(now.into(), cost);
        }
        if roomy {
            assert_eq!(remaining, oracle.remaining(now), "{cost} at {now} of {key}, {oracle:?}");
        } else if !backward {
            assert!(remaining <= oracle.remaining(now), "{cost} at {now} of {key}, {oracle:?}");
        }
    }
}

fn play<A: WindowAlgorithm>(algorithm: A, stream: &Stream) -> Corpus {
    let Stream { kind, spec, bytes, backward, start, ref acts } = *stream;
    let clock = ManualClock::new(Timestamp::from_nanos(start));
    let Ok(limiter) = build(algorithm, bytes, clock.clone()) else { return Corpus::Reject };
    assert!(limiter.state_bytes() <= bytes);
    let reach = reach(spec.period_ns) / 2;
    let within = |now: u64| now.clamp(start.saturating_sub(reach), start.saturating_add(reach).min(1 << 62));
    let mut model = Model { stream, keys: HashMap::new() };
    let stepper = kind.oracle(spec);
    let mut now = start;
    for (op, act) in acts {
        now = within(op.step.apply(now, spec, &*stepper));
        clock.set(Timestamp::from_nanos(now));
        let cost = match op.cost {
            Cost::Remaining(_) => op.cost.apply(now, &**model.oracle(op.key)),
            _ => op.cost.apply(now, &*stepper),
        };
        let told = Timestamp::from_nanos(now);
        match act {
            // The limiter accepts a clock that steps back, but not a time from the caller that steps back.
            Act::Check if !backward => model.judge(op.key, cost, now, &limiter.check_n(&op.key, cost), true),
            Act::Check | Act::CheckAt => {
                model.judge(op.key, cost, now, &limiter.at(told).check_n(&op.key, cost), true);
            }
            Act::CheckHash => {
                let hash = limiter.hash(&op.key);
                model.judge(op.key, cost, now, &limiter.at(told).check_hash(hash, cost), true);
            }
            Act::Peek => model.judge(op.key, cost, now, &limiter.at(told).peek_n(&op.key, cost), false),
            Act::Batch(_) if backward => {}
            Act::Batch(more) => {
                let all = if bytes == ROOMY { KEYS_WITH_ROOM } else { KEYS };
                let keys: Vec<u32> = (op.key..=op.key + more).map(|key| key % all).collect();
                let mut next = keys.iter();
                limiter.check_each(keys.iter().map(|key| (key, cost)), |decision| {
                    let key = next.next().expect("a decision for each key");
                    model.judge(*key, cost, now, &decision, true);
                });
                assert!(next.next().is_none());
            }
            Act::Clear => {
                limiter.clear();
                model.keys.clear();
                assert_eq!(limiter.saturation().overcounted, 0.0);
            }
            Act::Saturation => {
                let saturation = limiter.saturation();
                for chance in [saturation.false_positive, saturation.overcounted, saturation.denied] {
                    assert!((0.0..=1.0).contains(&chance), "{saturation:?}");
                }
            }
        }
    }
    Corpus::Keep
}

// G10
fuzz_target!(|bytes: &[u8]| -> Corpus {
    match Stream::read(&mut Unstructured::new(bytes)) {
        Err(_) => Corpus::Reject,
        Ok(stream) => with_windows!(stream.kind, stream.spec, algorithm => play(algorithm, &stream))
            .unwrap_or(Corpus::Reject),
    }
});
