//! Runs random operations on compact limiters and compares them with a map of integer oracles. With enough room, each
//! step must match. On a table of a few slots, errors are allowed on one side only. It also restores random bytes as
//! snapshots, and parses random text as an amount of memory.

#![no_main]

#[macro_use]
extern crate tollgate_testing;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::{Corpus, fuzz_target};
use std::collections::HashMap;
use tollgate::{Capacity, Compact, CompactAlgorithm, ManualClock, Overflow, RateLimiter, Timestamp};
use tollgate_testing::compact::{Layout, Seeded, seal};
use tollgate_testing::fuzzing::{cost, step};
use tollgate_testing::kinds::{COMPACT, Kind};
use tollgate_testing::oracle::{Oracle, Spec, Verdict};
use tollgate_testing::steps::{Cost, Op};
use tollgate_testing::subjects::verdict;

type Limiter<A> = RateLimiter<Compact<A, Seeded>, ManualClock>;

#[derive(Debug)]
enum Act {
    Check,
    CheckAt,
    CheckHash,
    Peek,
    /// For this key and this number of keys after it.
    Batch(u32),
    Reset,
    Clear,
    /// Takes a snapshot and restores it unchanged.
    RoundTrip,
    /// The same, with one byte changed or the end cut off.
    Damaged {
        at: usize,
        xor: u8,
    },
    Cut(usize),
    /// The same, with bytes changed and a correct checksum; ends the stream.
    Forged {
        at: usize,
        bytes: [u8; 4],
    },
}

#[derive(Debug)]
struct Stream {
    kind: Kind,
    spec: Spec,
    overflow: Overflow,
    /// Whether the table has room for all keys.
    roomy: bool,
    /// Whether time steps back.
    backward: bool,
    start: u64,
    acts: Vec<(Op, Act)>,
}

impl Stream {
    fn read(bytes: &mut Unstructured<'_>) -> Result<Self> {
        let kind = *bytes.choose(&COMPACT)?;
        let limit =
            if bytes.ratio(1, 4)? { bytes.int_in_range(1..=70_000)? } else { bytes.int_in_range(1..=20)? };
        let period_ns = match bytes.int_in_range(0..=3)? {
            0 => bytes.int_in_range(1..=1 << 58)?,
            1 => bytes.int_in_range(1..=1_000_000)?,
            _ => 1_000_000_000 * bytes.int_in_range(1..=100_000)?,
        };
        let spec = Spec::new(limit, period_ns);
        let spec = if bytes.arbitrary()? { spec.with_burst(bytes.int_in_range(1..=1 << 16)?) } else { spec };
        let two_counts = matches!(kind, Kind::Sliding | Kind::SlidingStrict);
        let overflow = match bytes.int_in_range(0..=2)? {
            0 if !two_counts => Overflow::Spill,
            1 if !two_counts => Overflow::Inherit,
            _ => Overflow::Forget,
        };
        let roomy = bytes.arbitrary()?;
        let backward = roomy && bytes.ratio(1, 4)?;
        let start =
            if bytes.arbitrary()? { 1_700_000_000_000_000_000 } else { u64::from(bytes.arbitrary::<u16>()?) };
        let keys = if roomy { 12 } else { 60 };
        let mut acts = Vec::new();
        while !bytes.is_empty() && acts.len() < 400 {
            let key = bytes.int_in_range(0..=keys - 1)?;
            let op = Op { key, step: step(bytes, backward)?, cost: cost(bytes)? };
            let act = match bytes.int_in_range(0..=31)? {
                0 => Act::Reset,
                1 => Act::Clear,
                2 => Act::RoundTrip,
                3 => Act::Damaged { at: bytes.arbitrary()?, xor: bytes.int_in_range(1..=255)? },
                4 => Act::Cut(bytes.arbitrary()?),
                5 => Act::Forged { at: bytes.arbitrary()?, bytes: bytes.arbitrary()? },
                6..=8 => Act::Batch(bytes.int_in_range(0..=20)?),
                9..=11 => Act::Peek,
                12..=14 => Act::CheckHash,
                15..=22 => Act::CheckAt,
                _ => Act::Check,
            };
            acts.push((op, act));
        }
        Ok(Self { kind, spec, overflow, roomy, backward, start, acts })
    }
}

/// The oracle of each key, which decides what the key may do.
struct Model<'a> {
    stream: &'a Stream,
    layout: Layout,
    first: u128,
    keys: HashMap<u32, Box<dyn Oracle>>,
}

impl Model<'_> {
    fn fresh(&self) -> Box<dyn Oracle> {
        match &self.layout {
            Layout::Ticks(ticks) => ticks.oracle(self.stream.kind, self.stream.spec),
            Layout::Windows { .. } => self.stream.kind.oracle(self.stream.spec),
        }
    }

    /// Returns a time as the limiter reads it.
    fn at(&self, now: u64) -> u64 {
        match &self.layout {
            Layout::Ticks(ticks) => {
                u64::try_from(ticks.floor(now) - self.first).expect("the time is within half the range")
            }
            Layout::Windows { .. } => now,
        }
    }

    /// Checks a decision, and charges the admitted units to the oracle.
    fn judge(&mut self, key: u32, cost: u64, now: u64, ours: Verdict, charges: bool) {
        let at = self.at(now);
        let fresh = self.fresh();
        let Stream { overflow, roomy, .. } = self.stream;
        let oracle = self.keys.entry(key).or_insert(fresh);
        let own = oracle.peek(at, cost);
        let sound = match (ours, own) {
            (Verdict::Allowed, Verdict::Denied) => !roomy && *overflow == Overflow::Forget,
            (Verdict::Denied, Verdict::Allowed) => !roomy && *overflow != Overflow::Forget,
            _ => ours == own,
        };
        assert!(
            sound,
            "the limiter says {ours:?}, the key's oracle {own:?}: {cost} at {now} of {key}, {oracle:?}"
        );
        if charges && ours == Verdict::Allowed && cost > 0 {
            oracle.charge(at.into(), cost);
        }
    }
}

fn play<A: CompactAlgorithm>(algorithm: A, stream: &Stream) -> Corpus {
    let Stream { kind, spec, overflow, roomy, backward, start, ref acts } = *stream;
    let clock = ManualClock::new(Timestamp::from_nanos(start));
    let capacity = if roomy { Capacity::memory(1 << 14) } else { Capacity::memory(1) };
    let builder = RateLimiter::builder(algorithm).clock(clock.clone()).hasher(Seeded(2));
    let Ok(limiter) = builder.capacity(capacity).overflow(overflow).compact() else { return Corpus::Reject };
    let layout = Layout::read(&limiter.snapshot());
    let reach = layout.reach() / 2;
    let within = |now: u64| now.clamp(start.saturating_sub(reach), start.saturating_add(reach).min(1 << 62));
    let first = match &layout {
        Layout::Ticks(ticks) => ticks.floor(within(0)),
        Layout::Windows { .. } => 0,
    };
    let mut model = Model { stream, layout, first, keys: HashMap::new() };
    let stepper = kind.oracle(spec);
    let mut now = start;
    for (op, act) in acts {
        now = within(op.step.apply(now, spec, &*stepper));
        clock.set(Timestamp::from_nanos(now));
        let fresh = model.fresh();
        let cost = match op.cost {
            Cost::Remaining(_) => op.cost.apply(model.at(now), &**model.keys.get(&op.key).unwrap_or(&fresh)),
            _ => op.cost.apply(now, &*stepper),
        };
        let told = Timestamp::from_nanos(now);
        match act {
            // The limiter accepts a clock that steps back, but not a time from the caller that steps back.
            Act::Check if !backward => {
                model.judge(op.key, cost, now, verdict(&limiter.check_n(&op.key, cost)), true)
            }
            Act::Check | Act::CheckAt => {
                model.judge(op.key, cost, now, verdict(&limiter.at(told).check_n(&op.key, cost)), true);
            }
            Act::CheckHash => {
                let hash = limiter.hash(&op.key);
                model.judge(op.key, cost, now, verdict(&limiter.at(told).check_hash(hash, cost)), true);
            }
            Act::Peek => {
                model.judge(op.key, cost, now, verdict(&limiter.at(told).peek_n(&op.key, cost)), false);
            }
            Act::Batch(_) if backward => {}
            Act::Batch(more) => {
                let keys: Vec<u32> = (op.key..=op.key + more).map(|key| key % 60).collect();
                let mut next = keys.iter();
                limiter.check_each(keys.iter().map(|key| (key, cost)), |decision| {
                    let key = next.next().expect("a decision for each key");
                    model.judge(*key, cost, now, verdict(&decision), true);
                });
                assert!(next.next().is_none());
            }
            // A reset key starts full at the present time, and not at an earlier time.
            Act::Reset if backward => {}
            // The keys that stay in the bucket cover the debts of evicted keys.
            Act::Reset if !roomy && overflow == Overflow::Inherit => {}
            Act::Reset => {
                limiter.reset(&op.key);
                model.keys.remove(&op.key);
            }
            Act::Clear => {
                limiter.clear();
                model.keys.clear();
                assert_eq!(limiter.live_slots(), 0);
            }
            // A snapshot contains only present debts, and not earlier ones.
            Act::RoundTrip if backward => {}
            Act::RoundTrip => {
                let snapshot = limiter.at(told).snapshot();
                limiter.restore(&snapshot).expect("a limiter restores its own snapshot");
                assert_eq!(limiter.at(told).snapshot(), snapshot);
            }
            Act::Damaged { at, xor } => {
                let mut snapshot = limiter.snapshot();
                let at = at % snapshot.len();
                snapshot[at] ^= xor;
                refused(&limiter, &snapshot);
            }
            Act::Cut(at) => {
                let snapshot = limiter.snapshot();
                refused(&limiter, &snapshot[..at % snapshot.len()]);
            }
            Act::Forged { at, bytes } => {
                let mut snapshot = limiter.snapshot();
                for (place, byte) in bytes.iter().enumerate() {
                    let at = (at.wrapping_add(place)) % snapshot.len();
                    snapshot[at] = *byte;
                }
                seal(&mut snapshot);
                let _ = limiter.restore(&snapshot);
                for key in 0..60_u32 {
                    let decision = limiter.check_n(&key, cost);
                    let _ = (decision.remaining(), decision.retry_after(), decision.reset_after());
                }
                return Corpus::Keep;
            }
        }
    }
    assert_eq!(limiter.gauges().raced, 0);
    if roomy {
        assert_eq!(limiter.gauges().evicted, 0, "no key is evicted while there is room");
    }
    Corpus::Keep
}

/// A failed restore returns the reason and changes nothing.
fn refused<A: CompactAlgorithm>(limiter: &Limiter<A>, snapshot: &[u8]) {
    let before = limiter.snapshot();
    let error =
        limiter.restore(snapshot).expect_err("the limiter rejects bytes that it did not write").to_string();
    assert!(error.len() > "cannot restore the snapshot: ".len());
    assert_eq!(limiter.snapshot(), before);
}

/// The limiter restores only bytes that a limiter wrote, except if the checksum is forged.
fn as_snapshot(bytes: &[u8]) {
    let quota = tollgate::Quota::per_minute(5);
    let builder =
        RateLimiter::builder(tollgate::Gcra::new(quota)).clock(ManualClock::default()).hasher(Seeded(2));
    let limiter = builder.capacity(Capacity::memory(512)).compact().expect("the quota is valid");
    refused(&limiter, bytes);
    // The first 84 bytes of a valid snapshot, followed by the random bytes.
    let mut begun = limiter.snapshot();
    begun.truncate(84);
    begun.extend_from_slice(bytes);
    refused(&limiter, &begun);
    begun.resize(begun.len() + 8, 0);
    seal(&mut begun);
    let _ = limiter.restore(&begun);
    for key in 0..20_u8 {
        let _ = limiter.check(&key);
    }
}

fn as_memory(text: &str) {
    match text.parse::<Capacity>() {
        Ok(capacity) => {
            let bytes = capacity.bytes().expect("the capacity is an amount of memory");
            assert!(bytes > 0);
            assert_eq!(format!("{bytes}").parse(), Ok(capacity), "{text:?}");
            assert_eq!(format!(" {bytes} B").parse(), Ok(capacity), "{text:?}");
        }
        Err(error) => assert!(error.to_string().contains("4MiB")),
    }
}

// G4, G31
fuzz_target!(|bytes: &[u8]| -> Corpus {
    match bytes.split_first() {
        None => Corpus::Reject,
        Some((0, rest)) => {
            as_snapshot(rest);
            Corpus::Keep
        }
        Some((1, rest)) => {
            as_memory(&String::from_utf8_lossy(rest));
            Corpus::Keep
        }
        Some((_, rest)) => match Stream::read(&mut Unstructured::new(rest)) {
            Err(_) => Corpus::Reject,
            Ok(stream) => with_compact!(stream.kind, stream.spec, algorithm => play(algorithm, &stream))
                .unwrap_or(Corpus::Reject),
        },
    }
});
